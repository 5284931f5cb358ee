"""Known errors of the cycles against boards: where, in which direction, and why.

docs/board_times.md has an analysis of possible reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rkcosim.measure.perf.boards.table import LAYERS, LUT_ACTIVATIONS, BoardRow
from rkcosim.measure.perf.boards.terms import CHAINED, RUN, RUN_ROWS, RUN_SEVERAL


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
        "too slow",
        "each product is counted as a call on three cores of its own; the runtime may join those of q, k and "
        "v, and of gate and up",
        lambda row: row.operation == "decode",
    ),
    Known(
        "prefill of language models",
        "either",
        "beside the products it is a constant for each of their results, fitted to two models; attention "
        "grows with the number of heads, activations with the inner width",
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
        "two measurements that were disturbed",
        "too fast",
        "C88-4 took 12,009 us, the same layer of 1.8 times the size 4,204 us on one core; of three equal "
        "poolings (C88-42) one took 5,125 us and the others 235 and 267 us",
        _named("C88-4", "C88-42"),
    ),
    Known(
        "max pooling",
        "either",
        "the PPU's rate was fitted to poolings of three profiles, with other constants of profiling than "
        "those of all layers [HW 9.10]",
        lambda row: row.operation == "maxpool",
    ),
    Known(
        "resizing",
        "too fast",
        "boards take 2.1 to 2.3 cycles for 16 bytes of output in int8 and 4.4 in fp16; here the memory is "
        "the limit",
        lambda row: row.operation == "resize",
    ),
    Known(
        "concatenations of YOLOv5s",
        "too fast",
        "the older toolkit moves 2.4 to 2.8 elements a cycle in them, the newer ones 10 to 11 bytes",
        lambda row: row.operation == "concat" and row.series == "yolov5s-640",
    ),
    Known(
        "splits, slices and paddings",
        "either",
        "the vendor's plans for them are unknown; ours are passes of the DPU or copies of rows",
        lambda row: row.operation in ("split", "slice", "pad"),
    ),
    Known(
        "transposed convolutions",
        "either",
        "RKNN's division of them is unknown; ours is used",
        lambda row: row.operation == "deconv",
    ),
    Known(
        "convolutions of fp16 with an addition",
        "too slow",
        "RKNN adds the second tensor in the same task; this compiler adds it in a second one",
        lambda row: row.operation == "conv+add" and row.type == "fp16",
    ),
    Known(
        "layers of the input",
        "too fast",
        "boards take 1.2 to 1.8 times as long for fp16 inputs of 3 channels",
        lambda row: row.family == "first" and row.type == "fp16",
    ),
    Known(
        "models of one operator",
        "too fast",
        "two tables of their author differ by up to 2.3 times for the same model (sub, neg); the time is "
        "that of a call, which one constant does not describe: models with a function of the LUT take 206 to "
        "758 us, others 53 to 270",
        lambda row: row.family == "operators",
    ),
    Known(
        "fp16 products of 2048 rows with K of 2048 and more",
        "too fast",
        "the vendor's library divides K badly: the board reaches 574 GFLOPS for K of 2048 and 74 from 8192 "
        "on; its plan for them is unknown",
        lambda row: row.id.startswith("RUN-fp16") and row.input[1] >= 2048,
    ),
    Known(
        "int8 products with A and C in rows, and with K of 2048",
        "too fast",
        "the library converts rows in some shapes only (3.4 times the time of the native layout, or less "
        "than it), and its plan for K of 2048 is unknown",
        lambda row: row.series == RUN and row.type == "int8" and row.input[0] > 1,
    ),
    Known(
        "products by rknn_matmul_run",
        "either",
        "the bandwidth of one core is the one of layers, 11.75 bytes a nanosecond; the boards of these "
        "products streamed 11.1 to 11.2",
        lambda row: row.series in (RUN, RUN_ROWS, RUN_SEVERAL) and row.id.startswith(("RUN", "ROWS")),
    ),
    Known(
        "chained jobs of another driver library",
        "too fast",
        "its time between jobs is not known",
        lambda row: row.series == CHAINED,
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
        "large convolutions of fp16",
        "too fast",
        "RKNN's tasks load their rows before they work: with its plan the errors are -3 to -4 %",
        lambda row: row.family == "conv" and row.type == "fp16" and row.measured_us >= 1000,
    ),
    Known(
        "depthwise, 7x7 and stride 7",
        "too fast",
        "the board moves 10 bytes per nanosecond in it, but 11.7 in its additions",
        _named("UNET-52"),
    ),
    Known(
        "concatenations",
        "either",
        "the vendor's plans for them are unknown; ours are passes of the DPU at eight elements a cycle",
        lambda row: row.operation == "concat",
    ),
    Known(
        "operations on whole tensors",
        "too fast",
        "boards move 9 to 10 bytes a nanosecond in them, 11.7 here",
        lambda row: row.family in ("element-wise", "normalisation", "transpose"),
    ),
    Known(
        "other layers",
        "either",
        "what profiling adds differs from layer to layer, here it is a constant of each profile; equal "
        "layers "
        "of one profile were measured with up to twice the time",
        lambda row: row.family in LAYERS,
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
