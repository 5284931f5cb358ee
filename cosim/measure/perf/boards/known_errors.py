"""Known errors of the cycles against boards: where, in which direction, and why.

docs/performance.md continues with an analysis of possible reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rkcosim.measure.perf.boards.table import LEAST_US, LUT_ACTIVATIONS, Row


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
    covers: Callable[[Row], bool]
    size: str = ""


def _named(*ids: str) -> Callable[[Row], bool]:
    return lambda row: row.id in ids


KNOWN: tuple[Known, ...] = (
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
        "boards reach 73 % of the array's rate in them, at 1 GHz and at 200 MHz; the limit is therefore in "
        "the core's own clock domain or in the plan, which is not published. Ours divides K and keeps the "
        "array 94 to 98 % busy. Writing rows of C that are 8 KiB or more apart costs boards 1.4 to 2.3 "
        "times the output's time [HW 11], which is not modelled",
        lambda row: row.family == "matmul" and row.input[1] >= 2048 and row.id.startswith("MM-"),
    ),
    Known(
        "products with 1024 columns or fewer",
        "too fast",
        "the published times grow with the number of submits and include the time between them; rows of C "
        "4 KiB or more apart also cost boards 1.4 to 2.3 times [HW 11], which is not modelled",
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
        _named("CHAN-9", "CHAN-42", "CHAN-47"),
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
        "the rest that the fitted bandwidth does not explain; see below",
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
        "RKNN's plans differ from ours: more tasks, and layers on the CPU. The measured ResNet-50 "
        "is version 2, whose normalisations precede the convolutions and need separate passes, which the "
        "shapes used here (1.5) do not need",
        lambda row: row.operation == "model",
    ),
    Known(
        "several cores",
        "too fast",
        "the fitted bandwidth is that of one core; how three cores share it is known only from two "
        "layers (add: 1.65 times as fast as one core, concat: 1.56)",
        lambda row: row.cores > 1,
        "not measured",
    ),
)


def group(row: Row) -> Known | None:
    """Return the group that a row belongs to, or None."""
    return next((known for known in KNOWN if known.covers(row)), None)


def reason(row: Row) -> str:
    """Return the reason of a row's error as far as it is known."""
    known = group(row)
    return f"{known.where}: {known.why}" if known else "not known"
