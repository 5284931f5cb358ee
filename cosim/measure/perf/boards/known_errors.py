"""Known errors of the cycles against boards: where, in which direction, and why.

docs/board_times.md has an analysis of possible reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rkcosim.measure.perf.boards.table import LEAST_US, LUT_ACTIVATIONS, BoardRow


@dataclass(frozen=True)
class Known:
    """A group of rows that share a reason; the first group that covers a row explains it.

    Members
    -------
    where, direction, why : texts of the table.
    covers : function that says whether a row belongs to the group.
    size : size of the error, if no row shows it.
    """

    where: str
    direction: str
    why: str
    covers: Callable[[BoardRow], bool]
    size: str = ""


def _named(*ids: str) -> Callable[[BoardRow], bool]:
    return lambda row: row.id in ids


KNOWN: tuple[Known, ...] = (
    Known(
        "decoding of language models",
        "either",
        "limited by DRAM: boards stream weights with 20 GB/s (0.5 billion) to 26 GB/s (1.5 billion and "
        "more), all cores together 23.65 here; the host's work between products is left out",
        lambda row: row.operation == "decode",
    ),
    Known(
        "prefill of language models",
        "too fast",
        "the products alone; the vendor's runtime reaches 9 to 17 % of the arrays in the published times, "
        "which include attention, conversions of int32 sums and other work of the host",
        lambda row: row.operation == "prefill",
    ),
    Known(
        "additions and concatenations on three cores",
        "too fast",
        "three cores move 17 to 19 bytes per nanosecond together, 23.65 here; RKNN divides these layers, "
        "this compiler does not",
        lambda row: row.cores > 1 and row.operation in ("add", "concat"),
    ),
    Known(
        "products published in round figures",
        "either",
        "`~4 TOPS`, `~1.8 TOPS` and `~900 GFLOPS` have one or two digits: 3.95 TOPS would be 1.3 % more "
        "time. int4: the matrices have 6.4 MB, and moving each of them once takes 541 us at the fitted "
        "bandwidth, so no plan reaches 537",
        _named("CLE-int4", "CLE-int8", "CLE-fp16"),
    ),
    Known(
        "activations from the LUT",
        "either",
        "the DPU looks up 2 elements a cycle, boards were measured at 1.5 to 1.8 [HW 7.15], on small "
        "maps at less; our plan of a first layer with 16 kernels writes 32",
        lambda row: row.activation in LUT_ACTIVATIONS,
    ),
    Known(
        "products with K of 2048 and more",
        "too fast",
        "their authors' plan fills CBUF with one tile of A and one of B, and boards load a tile of B before "
        "they work on it: with that plan and that order the error is +3 to +4 %. Our plan passes B through "
        "CBUF while the array works and keeps it 94 to 98 % busy",
        lambda row: row.family == "matmul" and row.input[1] >= 2048 and row.id.startswith("MM-"),
    ),
    Known(
        "products with 1024 columns or fewer",
        "too fast",
        "the same device work took 1.4 to 1.5 times as long in a run with pauses of the host between its "
        "submits (8.20 and 5.74 ms, 31.70 and 21.45 ms [HW 12.3]), and these short ones take 3 to 5 times "
        "as long as their work at 1 GHz: the governor lowers the NPU's clock in pauses (320 to 200 MHz "
        "would explain them). Conflicts between rows of a result that are 4 KiB apart in memory are not the "
        "reason, because results are stored tile by tile",
        _named(
            "MM-512x1024x1024", "MM-256x1024x1024", "MM-128x512x512", "MM-64x256x256", "ALLB-64", "ALLB-256"
        ),
    ),
    Known(
        "a matrix times a vector",
        "too fast",
        "limited by memory, with an NPU clock that is not stated",
        _named("ALLB-8155"),
    ),
    Known(
        "maxima, resizing, concatenation",
        "too fast",
        "the vendor's plans for them are unknown; ours are passes of DPU and PPU at eight elements per cycle",
        lambda row: row.operation in ("concat", "maxpool", "resize"),
    ),
    Known(
        "layers under 1 ms",
        "too fast",
        "published with 30-100 us of profiling in each layer, in some tables 100-200 us [HW 12.6], "
        "which is not time of the NPU",
        lambda row: row.operation not in ("matmul", "model") and row.measured_us < LEAST_US,
    ),
    Known(
        "large convolutions of fp16",
        "too fast",
        "RKNN's tasks load their rows before they work: with its plan the errors are -3 to -4 %",
        lambda row: row.family == "dense" and row.type == "fp16",
    ),
    Known(
        "depthwise, 7x7 and stride 7",
        "too fast",
        "the board moves 10 bytes per nanosecond in it, but 11.7 in its additions",
        _named("UNET-52"),
    ),
    Known(
        "whole networks",
        "too fast",
        "RKNN's plans differ from ours, and its tasks load before they work: with its plan the held-back "
        "networks are at -2 to -11 %. The measured ResNet-50 is version 2, whose normalisations precede the "
        "convolutions and need separate passes, which the shapes used here (1.5) do not need",
        lambda row: row.operation == "model",
    ),
)


def group(row: BoardRow) -> Known | None:
    """Return the group that a row belongs to, or None."""
    return next((known for known in KNOWN if known.covers(row)), None)


def reason(row: BoardRow) -> str:
    """Return the reason of a row's error as far as it is known."""
    known = group(row)
    return f"{known.where}: {known.why}" if known else "not known"
