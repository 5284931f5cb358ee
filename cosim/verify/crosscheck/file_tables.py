"""Functions that nodes of a `.rknn` file compute by tables, and the tables that their tasks load [HW 7.9]."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.programs.task import Task
from rkcosim.spec.types import LUT_ENTRIES, LUT_MAX_STEP

Real = npt.NDArray[np.float64]
Function = Callable[[Real], Real]

FULL = 32768.0
"""Value in a table of a function's 1.0, if the function is bounded by 1."""

ENTRY_ERROR = 4.0
"""Largest distance of an entry from the function, in units of the table."""


class NotJudged(Exception):
    """Raised for a node whose mathematical value is not computed; the message gives the reason."""


def _sigmoid(x: Real) -> Real:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -700.0, 700.0)))


def _softplus(x: Real) -> Real:
    return np.logaddexp(0.0, x)


def _gelu(x: Real) -> Real:
    return x * 0.5 * (1.0 + _erf(x / math.sqrt(2.0)))


_erf: Function = np.vectorize(math.erf, otypes=[np.float64])

FUNCTIONS: dict[str, Function] = {
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
    "HardSigmoid": lambda x: np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "Swish": lambda x: x * _sigmoid(x),
    "HardSwish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Gelu": _gelu,
    "Softplus": _softplus,
    "Elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "Exp": lambda x: np.exp(np.clip(x, -700.0, 700.0)),
    "Erf": _erf,
}
"""Functions by the name with which the type of a node that computes one ends. The slope of HardSigmoid has no
effect, since the scale of the indices is fitted."""

_BOUNDED = ("Sigmoid", "Tanh", "HardSigmoid", "Erf")
"""Functions whose 1.0 is `FULL` in a table; the scale of the others' values is fitted."""


def function_name(kind: str) -> str | None:
    """Return the name of the function that nodes of a type compute, after a convolution or alone.

    The longest name counts: `ConvHardSigmoid` computes HardSigmoid, `ConvExSwish` and `exSwish` Swish.
    """
    found = [name for name in FUNCTIONS if kind.endswith(name)]
    return max(found, key=len, default=None)


class Registers(Protocol):
    """Access to the registers of a node's task."""

    @property
    def tasks(self) -> Sequence[Task]:
        """Tasks of the node."""

    def get(self, block: str, register: str, name: str | None = None) -> int:
        """Return a field."""

    def signed(self, block: str, register: str, name: str | None = None, bits: int = 32) -> int:
        """Return a field as a signed number of `bits` bits."""


@dataclass(frozen=True)
class _Part:
    """One of the two tables: first and last index, distance of entries, entries, slopes below and above."""

    start: int
    end: int
    step: int
    entries: Real
    under: float
    over: float

    def below(self, x: Real) -> npt.NDArray[np.bool_]:
        return np.asarray(x < self.start)

    def above(self, x: Real) -> npt.NDArray[np.bool_]:
        return np.asarray(
            ~self.below(x) & ((x > self.end) | (x - self.start > (LUT_ENTRIES - 1) * self.step))
        )

    def at(self, x: Real) -> Real:
        place = np.clip((x - self.start) / self.step, 0, LUT_ENTRIES - 1)
        y = np.interp(place, np.arange(LUT_ENTRIES), self.entries)
        y = np.where(self.below(x), self.entries[0] + (x - self.start) * self.under, y)
        return np.where(self.above(x), self.entries[-1] + np.maximum(x - self.end, 0) * self.over, y)


class Table:
    """The two tables of a node as one function of real indices, without the roundings of the hardware.

    Values lie on lines between the entries, and on lines with the slopes of LUT_LE_SLOPE and LUT_LO_SLOPE
    beyond the ends.

    Parameters
    ----------
    node
        Registers of the task that looks up, and the tasks that load the tables.

    Raises
    ------
    NotJudged
        if none of the tasks loads a table.
    """

    def __init__(self, node: Registers) -> None:
        entries = _loaded(node.tasks)
        if not entries:
            raise NotJudged("none of its tasks loads its table")
        self._parts = {name: _part(node, name, values) for name, values in entries.items()}
        self._first = {
            name: ("LE", "LO")[node.get("DPU", "LUT_CFG", f"LUT_{name}_PRIORITY")]
            for name in ("HYBRID", "UFLOW", "OFLOW")
        }
        self.low = min(part.start for part in self._parts.values())
        """First index of the tables."""
        self.high = max(part.end for part in self._parts.values())
        """Last index of the tables."""

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """Indices of the entries, in order."""
        parts = self._parts.values()
        ranges = [np.arange(part.start, part.end + 1, part.step) for part in parts]
        return np.unique(np.concatenate(ranges))

    @property
    def first(self) -> int:
        """The first index whose value is one of the function.

        It is that of the second entry if the first one is 0 although the function is not: all indices below
        the tables get 0 by it (ConvExGelu of the toolkit 2.3.0).
        """
        start, then = self.places[:2]
        ahead, value, behind = self.at(np.array([start - 1, start, then], np.float64))
        return int(then if ahead == value == 0.0 and abs(behind) > 2 * ENTRY_ERROR else start)

    def at(self, index: Real) -> Real:
        """Return the values at real indices."""
        x = np.asarray(index, np.float64)
        if len(self._parts) == 1:
            return next(iter(self._parts.values())).at(x)
        le, lo = self._parts["LE"], self._parts["LO"]
        hits = [~(part.below(x) | part.above(x)) for part in (le, lo)]
        use = np.full(x.shape, self._first["HYBRID"] == "LO")
        use[hits[0] & ~hits[1]] = False
        use[hits[1] & ~hits[0]] = True
        use[le.below(x) & lo.below(x)] = self._first["UFLOW"] == "LO"
        use[le.above(x) & lo.above(x)] = self._first["OFLOW"] == "LO"
        return np.where(use, lo.at(x), le.at(x))

    def around(self, index: Real, error: Any) -> tuple[Real, Real]:
        """Return the lowest and highest value at whole indices within `error` of `index`."""
        reach = np.maximum(error, 0.0)
        sides = [self.at(np.rint(index + part * reach)) for part in (-1.0, -0.5, 0.0, 0.5, 1.0)]
        return np.minimum.reduce(sides), np.maximum.reduce(sides)

    def fit(self, name: str) -> tuple[float, float]:
        """Fit the scales of indices and values to a function.

        Returns
        -------
        The number of indices per 1.0 of the function's argument, and of units of the table per 1.0 of its
        value.

        Raises
        ------
        NotJudged
            if an entry is further than `ENTRY_ERROR` from the function at every scale.
        """
        function, places = FUNCTIONS[name], self.places[self.places >= self.first]
        values = self.at(places.astype(np.float64))
        inner = np.abs(values) < 0.999 * FULL
        moved = np.abs(values - np.median(values)) > 0.02 * float(np.ptp(values))
        chosen = np.flatnonzero(inner & moved)
        if chosen.size < 8:
            raise NotJudged("its table is no table of the function")
        sample = chosen[:: max(1, chosen.size // 96)]
        at, wanted = places[sample], values[sample]

        def scale(units: float) -> float:
            shape = function(at / units)
            return FULL if name in _BOUNDED else float(shape @ wanted / max(float(shape @ shape), 1e-30))

        def apart(units: float) -> float:
            return float(np.abs(function(at / units) * scale(units) - wanted).max())

        best = float(min(np.geomspace(16.0, 65536.0, 4001), key=apart))
        for width in (3e-3, 1e-4, 4e-6):
            best = float(min(best * (1 + np.linspace(-width, width, 81)), key=apart))
        near = float(np.rint(best))
        units = near if apart(near) <= apart(best) + 0.5 else best
        full = scale(units)
        kept = inner if inner.any() else np.ones_like(inner)
        if np.abs(function(places[kept] / units) * full - values[kept]).max() > ENTRY_ERROR:
            raise NotJudged("its table is no table of the function")
        return units, full

    def judged(self, name: str, scales: tuple[float, float], index: Real, error: Any) -> tuple[Real, Real]:
        """Return the values that a function has at real indices, and the largest error of the tables there.

        Beyond the ends of the tables the values are those of the lines that continue them. Both are in units
        of the tables, and the error has the unit that the interpolation truncates. Within the tables it is
        the largest distance of table and function, at all indices and `error` indices, at least half of one,
        to either side, with those before `first` apart; beyond them the step of the line over that reach.
        """
        units, full = scales
        reach = max(0.5, float(np.max(error, initial=0.0)))
        function = FUNCTIONS[name]
        every = np.arange(self.low, self.high + 1).astype(np.float64)
        values = self.at(every)
        sides = [function((every + part * reach) / units) * full for part in (-1.0, 0.0, 1.0)]
        apart = np.maximum.reduce([np.abs(values - side) for side in sides])
        early = every < self.first
        inside, edge = float(apart[~early].max()), float(apart[early].max(initial=0.0))
        bound = np.where(index < self.first + reach * early.any(), max(inside, edge), inside)
        found = function(index / units) * full
        outside = (index < self.low) | (index > self.high)
        if outside.any():
            far = index[outside]
            found[outside] = line = self.at(far)
            ends = [np.abs(self.at(far + part * reach) - line) for part in (-1.0, 1.0)]
            bound[outside] = np.maximum.reduce(ends)
        return found, bound + 1.0


def _loaded(tasks: Iterable[Task]) -> dict[str, Real]:
    """Return the entries of each table that tasks load, by the table's name."""
    found: dict[str, Real] = {}
    kind, at, writing = "LE", 0, False
    for task in tasks:
        for setting in task.settings:
            if (setting.block, setting.register) == ("DPU", "LUT_ACCESS_CFG"):
                kind = "LO" if setting.fields["LUT_TABLE_ID"] else "LE"
                at = int(str(setting.fields["LUT_ADDR"]))
                writing = bool(setting.fields["LUT_ACCESS_TYPE"])
            elif (setting.block, setting.register) == ("DPU", "LUT_ACCESS_DATA"):
                if writing and at < LUT_ENTRIES:
                    value = int(str(setting.fields["LUT_ACCESS_DATA"])) & 0xFFFF
                    entries = found.setdefault(kind, np.zeros(LUT_ENTRIES))
                    entries[at] = value - 65536 if value >> 15 else value
                    at += 1
    return found


def _part(node: Registers, name: str, entries: Real) -> _Part:
    scale, shift = f"LUT_{name}_SLOPE_SCALE", f"LUT_{name}_SLOPE_SHIFT"
    slopes = [
        node.signed("DPU", scale, f"{side}_SCALE", 16) / 2.0 ** node.get("DPU", shift, f"{side}_SHIFT")
        for side in ("UFLOW", "OFLOW")
    ]
    step = 1 << min(node.get("DPU", "LUT_INFO", f"LUT_{name}_INDEX_SELECT"), LUT_MAX_STEP)
    start = node.signed("DPU", f"LUT_{name}_START", f"LUT_{name}_START")
    end = node.signed("DPU", f"LUT_{name}_END", f"LUT_{name}_END")
    return _Part(start, min(end, start + (LUT_ENTRIES - 1) * step), step, entries, *slopes)
