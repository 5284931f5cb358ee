"""Published measurements of real boards (HARDWARE 9.3, 9.4, 9.6), and which of them count.

The rows are in `boards.csv`, as published.  The rule that picks the rows for the error figures and the
halves they fall into were written down before anything was fitted to them, and stay as they are.
"""

from __future__ import annotations

import csv
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

TABLE = Path(__file__).with_name("boards.csv")

Family = Literal["dense", "depthwise", "first", "memory", "matmul", "models"]
FAMILIES: tuple[Family, ...] = get_args(Family)

LEAST_US = 1000.0
"""Shorter rows carry too much of the 30-100 us that per-layer profiling adds (HARDWARE 9.6)."""

LUT_ACTIVATIONS = ("swish",)
"""Activations that the DPU looks up in its table; what limits it there is not settled (HARDWARE 5.12)."""


@dataclass(frozen=True)
class Row:
    """One published measurement.

    Members
    -------
    id : name of the row, stable.
    section : of HARDWARE.
    family : what kind of work it is.
    operation : conv, add, concat, maxpool, resize, matmul or model.
    input, output : sizes C x H x W; of a product those of A (M x K) and B (K x N).
    kernel, stride, pad : of a window; `kernel` is the factor of a resize.
    type : int4, int8 or fp16.
    activation : none, clip, leaky or swish.
    cores, clock_mhz, clock_stated : as published; an inferred clock is not a stated one.
    low_us, high_us : the range measured, microseconds.
    source : key of HARDWARE 0.2; quote : text of the row there.
    """

    id: str
    section: str
    family: Family
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
    def excluded(self) -> str:
        """Why the row does not count for the error figures; empty: it does."""
        if self.measured_us < LEAST_US:
            return f"measured under {LEAST_US / 1000:.0f} ms"
        if self.activation in LUT_ACTIVATIONS:
            return "activation from the LUT"
        return "" if self.clock_stated else "clock not stated"

    @property
    def half(self) -> Literal["fitted", "held back"]:
        """Constants may be fitted to one half of the rows; the error is told of the other."""
        odd = hashlib.sha256(self.id.encode()).digest()[0] & 1
        return "held back" if odd else "fitted"


def rows() -> list[Row]:
    """All rows of the table, in its order."""
    with TABLE.open(newline="") as file:
        return [_row(entry) for entry in csv.DictReader(file)]


def _row(entry: dict[str, str]) -> Row:
    def sizes(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split("x"))

    family = next(name for name in FAMILIES if name == entry["family"])
    return Row(
        entry["id"],
        entry["section"],
        family,
        entry["operation"],
        sizes(entry["input"]),
        sizes(entry["output"]),
        int(entry["kernel"] or 0),
        int(entry["stride"] or 1),
        int(entry["pad"] or 0),
        entry["type"],
        entry["activation"],
        int(entry["cores"]),
        float(entry["clock_mhz"]),
        entry["clock_stated"] == "yes",
        float(entry["measured_us_low"]),
        float(entry["measured_us_high"]),
        entry["source"],
        entry["quote"],
    )
