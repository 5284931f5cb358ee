"""Published measurements of boards beside the RTL: each row run, its time, and the error."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cosim.engines.engine import Engine, open_engine
from cosim.perf import layer_models
from cosim.perf.boards import FAMILIES, Row
from cosim.perf.workloads import Measured, matmul, run_compiled
from sw.compiler import ModelError, compile_model

SCHEMA_VERSION = 1

PRODUCTS = {
    "fp16": "float16 x float16 -> float32",
    "int8": "int8 x int8 -> int32",
    "int4": "int4 x int4 -> int16",
}
"""Type of a published product to the kind that runs (the rows do not say the output's type)."""


@dataclass(frozen=True)
class Result:
    """A row and what the RTL says; `measured` is None where it was not run, and `why` says so."""

    row: Row
    measured: Measured | None
    why: str = ""

    @property
    def microseconds(self) -> float | None:
        """Time of the RTL at the row's clock."""
        return None if self.measured is None else self.measured.cycles / self.row.clock_mhz

    @property
    def error(self) -> float | None:
        """(RTL - board) / board."""
        return None if self.microseconds is None else self.microseconds / self.row.measured_us - 1

    @property
    def above_formula(self) -> bool | None:
        """Whether the RTL takes at least the formula's cycles."""
        return None if self.measured is None else self.measured.cycles >= self.measured.formula_cycles

    @property
    def below_board(self) -> bool | None:
        """Whether the RTL takes at most the time measured."""
        return None if self.microseconds is None else self.microseconds <= self.row.high_us

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        found = self.measured
        return {
            "id": self.row.id,
            "family": self.row.family,
            "measured_us": self.row.measured_us,
            "clock_mhz": self.row.clock_mhz,
            "rtl_us": None if self.microseconds is None else round(self.microseconds, 2),
            "error": None if self.error is None else round(self.error, 4),
            "cycles": found.cycles if found else None,
            "formula_cycles": found.formula_cycles if found else None,
            "ratio": round(found.ratio, 4) if found else None,
            "rtl_above_formula": self.above_formula,
            "rtl_below_board": self.below_board,
            "counts": not self.row.excluded,
            "half": self.row.half,
            "excluded": self.row.excluded,
            "not_run": self.why,
            "source": self.row.source,
        }


def measure(row: Row, engine: Engine) -> Result:
    """Run one row on an engine of one core."""
    if row.operation == "matmul":
        (m, k), (_, n) = row.input, row.output
        return Result(row, matmul(PRODUCTS[row.type], m, k, n)(engine, row.id, False))
    if row.operation == "model":
        return Result(row, None, "a whole network: run its file (examples/networks) with rkcosim run")
    try:
        model = compile_model(_layer(row))
    except ModelError as error:
        return Result(row, None, str(error))
    if any(step.host for step in model.plan.steps if hasattr(step, "host")):
        return Result(row, None, "a part of it runs on the host")
    return Result(row, run_compiled(engine, row.id, False, model))


def _layer(row: Row) -> bytes:
    int8 = row.type == "int8"
    channels, height, width = row.input
    if row.operation == "conv":
        return layer_models.conv(
            channels,
            row.output[0],
            (height, width),
            int8=int8,
            kernel=row.kernel,
            stride=row.stride,
            pad=row.pad,
            depthwise=row.family == "depthwise",
            activation=row.activation,
        )
    if row.operation == "add":
        return layer_models.add(row.input, int8=int8)
    if row.operation == "concat":
        return layer_models.concat(row.input, 3, int8=int8)
    if row.operation == "maxpool":
        return layer_models.max_pool(row.input, row.kernel, row.stride, row.pad, int8=int8)
    if row.operation == "resize":
        return layer_models.resize(row.input, row.kernel, int8=int8)
    raise ValueError(f"{row.id}: no such operation: {row.operation}")


def validate(rows: Iterable[Row], each: Callable[[Result], None] = lambda _: None) -> list[Result]:
    """Run rows, each on a fresh engine; `each` is called with every result."""
    results = []
    for row in rows:
        with open_engine(cores=1) as engine:
            results.append(measure(row, engine))
        each(results[-1])
    return results


def families(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Per family: rows, and the error over those that count and were held back from all fitting."""
    found = []
    listed = list(results)
    for family in FAMILIES:
        of = [result for result in listed if result.row.family == family]
        counted = [
            abs(result.error)
            for result in of
            if result.error is not None and not result.row.excluded and result.row.half == "held back"
        ]
        found.append(
            {
                "family": family,
                "rows": len(of),
                "run": sum(result.measured is not None for result in of),
                "counted": len(counted),
                "median_error": round(statistics.median(counted), 4) if counted else None,
                "mean_error": round(statistics.fmean(counted), 4) if counted else None,
            }
        )
    return found
