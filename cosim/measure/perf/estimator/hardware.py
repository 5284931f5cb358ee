"""NPUs with more arithmetic or memory than the RK3588's, as far as estimates can follow them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rkcosim.measure.perf.estimator.features import POOL, TaskShape


@dataclass(frozen=True)
class _TwoTiles(TaskShape):
    tile_cycles: ClassVar[float] = 1 / 2


@dataclass(frozen=True)
class _FourTiles(TaskShape):
    tile_cycles: ClassVar[float] = 1 / 4


_SHAPES = {1: TaskShape, 2: _TwoTiles, 4: _FourTiles}


@dataclass(frozen=True)
class Hardware:
    """How many times as fast the parts of a core are as those of the RK3588's.

    What a part needs from others stays as it is: the same bytes from memory, the same delays between blocks.

    Members
    -------
    array
        Weight tiles that the array takes in a cycle.
    tables
        Elements that the DPU looks up, in units of the RK3588's two a cycle.
    lanes
        Elements that CORE and the DPU pass, in units of the RK3588's eight a cycle; an octet is a larger
        group then.

    Raises
    ------
    ValueError
        If a number is not 1, 2 or 4.
    """

    array: int = 1
    tables: int = 1
    lanes: int = 1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value not in _SHAPES:
                raise ValueError(f"{name} must be 1, 2 or 4 times that of the RK3588, not {value!r}")

    def of(self, shape: TaskShape) -> TaskShape:
        """Return the sizes of a task on this NPU."""
        if shape.kind == POOL:
            return shape
        cycles = shape.octet_cycles
        if shape.octet_stage == "lut":
            cycles = max(-(-cycles * self.lanes // self.tables), 1)
        changed = replace(
            shape,
            octets=-(-shape.octets // self.lanes),
            kept=-(-shape.kept // self.lanes),
            octet_cycles=cycles,
            peak_macs=shape.peak_macs * self.array,
        )
        return _SHAPES[self.array](**vars(changed))


RK3588_RATES = Hardware()
"""The RK3588's."""
