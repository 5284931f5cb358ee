"""Published measurements of real boards ([HW 12.3], [HW 12.4], [HW 12.6], [HW 12.9]), in two halves.

`boards.csv` has the rows as published, and all of them count.  Their division into halves was fixed before
anything was fitted to them, and must not be changed.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

TABLE = Path(__file__).with_name("boards.csv")

Family = Literal[
    "conv",
    "first",
    "depthwise",
    "pooling",
    "resize",
    "concat",
    "element-wise",
    "transpose",
    "normalisation",
    "matmul",
    "models",
    "operators",
    "language",
]
"""`first` are layers that read the model's input, and `concat` are concatenations, splits, slices and
paddings: operations that only move data within a layout.  `operators` are models of one operator, whose
time is that of a call."""

FAMILIES: tuple[Family, ...] = get_args(Family)

LAYERS: tuple[Family, ...] = FAMILIES[: FAMILIES.index("matmul")]
"""Families of single layers."""

LUT_ACTIVATIONS = ("swish", "sigmoid")
"""Activations that the DPU computes with its LUT; their rate on boards is not settled [HW 7.15]."""


@dataclass(frozen=True)
class BoardRow:
    """One published measurement.

    Members
    -------
    id : stable name of the row.
    section : number of the section in docs/reference.
    family : kind of work.
    series : the measurements whose constants the time of the row includes, for example one profile
        (`rkcosim.measure.perf.boards.terms`); empty if it includes none.
    operation : one of `rkcosim.measure.perf.boards.layers.OPERATIONS`, matmul, model, prefill or decode.
    input, output : sizes C x H x W; for a product those of A (M x K) and B (K x N); for a language model
        those of `rkcosim.measure.perf.boards.language.LanguageModel`, and the number of tokens.
    kernel, stride, pad : the window; `kernel` is the factor of a resize.
    type : int4, int8 or fp16.
    activation : none, clip, leaky, relu, sigmoid or swish; for an operator its name in ONNX.
    cores, clock_mhz, clock_stated : as published; `clock_stated` is false for an inferred clock.  Of a
        product, each core computes the whole.
    low_us, high_us : measured range in microseconds.
    source : key of [HW 15]; quote : text of the row there.
    """

    id: str
    section: str
    family: Family
    series: str
    operation: str
    input: tuple[int, ...]
    output: tuple[int, ...]
    kernel: int
    stride: int
    pad: int
    type: str
    activation: str
    cores: int
    clock_mhz: float
    clock_stated: bool
    low_us: float
    high_us: float
    source: str
    quote: str

    @property
    def measured_us(self) -> float:
        """Middle of the range."""
        return (self.low_us + self.high_us) / 2

    @property
    def half(self) -> Literal["fitted", "held back"]:
        """The half of the rows: constants may be fitted to one, the error is given for the other."""
        odd = hashlib.sha256(self.id.encode()).digest()[0] & 1
        return "held back" if odd else "fitted"


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


_TYPES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("input", "output"), _sizes),
    **dict.fromkeys(("kernel", "pad"), lambda text: int(text or 0)),
    "stride": lambda text: int(text or 1),
    "cores": int,
    "clock_stated": "yes".__eq__,
    **dict.fromkeys(("clock_mhz", "measured_us_low", "measured_us_high"), float),
}
"""Conversion of columns that are not texts."""


def rows() -> list[BoardRow]:
    """Return all rows of the table, in its order; its columns are the members of `BoardRow`."""
    with TABLE.open(newline="") as file:
        return [
            BoardRow(*(_TYPES.get(column, str)(text) for column, text in entry.items()))
            for entry in csv.DictReader(file)
        ]
