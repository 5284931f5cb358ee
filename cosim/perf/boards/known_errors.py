"""Where cycles are known to be wrong against boards, in which direction, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cosim.perf.boards.table import LEAST_US, LUT_ACTIVATIONS, Row


@dataclass(frozen=True)
class Known:
    """A group of rows that share a reason; the first group that covers a row explains it.

    Members
    -------
    where, direction, why : for people.
    covers : whether a row belongs to it.
    size : by how much, where no row shows it.
    """

    where: str
    direction: str
    why: str
    covers: Callable[[Row], bool]
    size: str = ""


def _named(*ids: str) -> Callable[[Row], bool]:
    return lambda row: row.id in ids


KNOWN: tuple[Known, ...] = (
    Known(
        "products published in round figures",
        "either",
        "`~4 TOPS`, `~1.8 TOPS` and `~900 GFLOPS` have one or two digits: 3.95 TOPS would be 1.3 % more "
        "time. int4: the matrices hold 6.4 MB, and each of them moved once takes 541 us at the fitted "
        "bandwidth, so no plan reaches 537",
        _named("CLE-int4", "CLE-int8", "CLE-fp16"),
    ),
    Known(
        "activations from the LUT",
        "either",
        "the DPU looks up 2 elements a cycle, boards were measured at 1.5 to 1.8 (HARDWARE 5.12), on small "
        "maps at less; our plan of a first layer with 16 kernels writes 32",
        lambda row: row.activation in LUT_ACTIVATIONS,
    ),
    Known(
        "products with K of 2048 and more",
        "too fast",
        "boards reach 73 % of the array in them at 1 GHz and at 200 MHz alike, so what holds them lies in "
        "the core's own clock or in the plan, which is not published; ours computes K in parts and keeps the "
        "array 94 to 98 % busy. Writing rows of C that are 8 KiB and more apart costs boards 1.4 to 2.3 "
        "times the output's time (HARDWARE 8), which is not modelled",
        lambda row: row.family == "matmul" and row.input[1] >= 2048 and row.id.startswith("MM-"),
    ),
    Known(
        "products of 1024 and fewer columns",
        "too fast",
        "the published times grow with the number of submits and hold what happens between them; rows of C "
        "4 KiB and more apart also cost boards 1.4 to 2.3 times (HARDWARE 8), which is not modelled",
        _named(
            "MM-512x1024x1024", "MM-256x1024x1024", "MM-128x512x512", "MM-64x256x256", "ALLB-64", "ALLB-256"
        ),
    ),
    Known(
        "a matrix times a vector",
        "too fast",
        "bound by memory, on an NPU clock that is not stated",
        _named("ALLB-8155"),
    ),
    Known(
        "maxima, resizing, concatenation",
        "too fast",
        "the vendor's plans for them are unknown; ours are passes of DPU and PPU at eight elements a cycle",
        _named("CHAN-9", "CHAN-42", "CHAN-47"),
    ),
    Known(
        "layers under 1 ms",
        "too fast",
        "published with 30-100 us of profiling in each layer, in some tables 100-200 us (HARDWARE 9.6), "
        "which the NPU does not see",
        lambda row: row.operation not in ("matmul", "model") and row.measured_us < LEAST_US,
    ),
    Known(
        "large convolutions of fp16",
        "too fast",
        "what is left beside the fitted bandwidth; see below",
        lambda row: row.family == "dense" and row.type == "fp16",
    ),
    Known(
        "depthwise, 7x7 and stride 7",
        "too fast",
        "the board moves 10 bytes a nanosecond in it, where its additions reach 11.7",
        _named("UNET-52"),
    ),
    Known(
        "whole networks",
        "too fast",
        "RKNN's plans are not ours: more tasks, layers on the CPU between them, and the ResNet-50 that was "
        "measured is version 2, whose normalisations stand before the convolutions and cost passes of "
        "their own that the shapes here (1.5) do not have",
        lambda row: row.operation == "model",
    ),
    Known(
        "several cores",
        "too fast",
        "the fitted bandwidth is one core's; how three share what is there is only known from two layers "
        "(add: 1.65 times as fast as one core, concat: 1.56)",
        lambda row: row.cores > 1,
        "not measured",
    ),
)


def group(row: Row) -> Known | None:
    """The group that a row belongs to."""
    return next((known for known in KNOWN if known.covers(row)), None)


def reason(row: Row) -> str:
    """Why a row is off, as far as that is known."""
    known = group(row)
    return f"{known.where}: {known.why}" if known else "not known"


ANALYSIS: tuple[str, ...] = (
    "What was fitted, and what was not: the rows of the fitted half can tell one constant, the bandwidth of "
    "one core, since its rows that move data (an addition, a concatenation, a depthwise layer of stride 7) "
    "and MobileNetV1 depend on it. Add and concat on three cores, 1.65 and 1.56 times as fast as on one "
    "(HARDWARE 9.6), say the same without any model: one core alone does not get what DRAM has. No dense "
    "row that counts is in the fitted half, so nothing was fitted to dense layers: their error follows. "
    "Latencies were left alone: doubled they change the totals by less than 0.2 % (see the constants).",
    "",
    "What speaks against it: HARDWARE 8 tells of about 17 bytes a nanosecond of NPU streaming, without a "
    "number of cores. One core's rows alone are run with it here; the engines' default stays the 23.65 of "
    "all cores (`rkcosim run --dram peak_bytes_per_cycle=11.75`, `open_engine(dram=board_memory(1000, "
    "11.75))`). "
    "Two networks outside the table, in the shapes of their papers, estimated: yolov5s_relu 16.4 ms (14.5 "
    "with nothing fitted) where boards take 15.1 to 16.7; 3.8 ms of it are the 6x6 stem that the model zoo "
    "has replaced. yolov8n 12.5 ms (11.6) where the zoo has 13.6.",
    "",
    "Large convolutions of fp16 take boards 1.20 to 1.28 times the formula. Over all six rows of 3x3 "
    "layers in the UNET table, by least squares of relative errors (an analysis, nothing is tuned by it):",
    "",
    "| explanation | fit | worst row | the same for int8 (CHAN 70) |",
    "| --- | --- | --- | --- |",
    "| bubbles in proportion: a x NPU | a = 1.28 | -18 % | |",
    "| overhead and bubbles: b + a x NPU | 22 us, a = 1.22 | +7 % | -37 % |",
    "| NPU + b + output not overlapped | 22 us, 7.5 bytes/ns | -12 % | +5 % |",
    "| NPU + b + input not overlapped | 21 us, 8.5 bytes/ns | +7 % | -1 % |",
    "",
    "The last one carries over to int8 and needs no bubbles that int8 would not have: RKNN's plans seem to "
    "load a tile before they work on it. FEATURE_GRAINS does not do that: with the values of RKNN's "
    "captured programs (about 1024 CBUF entries, HARDWARE 3.8) the UNET rows take the same cycles here, and "
    "CHAN 70 takes 5 % more. With the fitted bandwidth this model loses part of the difference by itself, "
    "since each of its tasks begins with rows that nothing overlaps with.",
)
"""Paragraphs under the table (Markdown)."""
