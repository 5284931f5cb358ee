"""Engines that count: within `counted` every engine of this process uses the library with counters."""

from __future__ import annotations

import contextlib
import ctypes as ct
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.engines import build, system
from rkcosim.spec.config import RK3588


class Taken:
    """What the engines have counted so far.

    Parameters
    ----------
    library : the library with counters.
    size : number of its counters.

    Members
    -------
    seen : by counter, whether it was ever above 0.
    cycles : simulated cycles, of all engines.
    """

    def __init__(self, library: Path, size: int) -> None:
        self.library = library
        self.seen = np.zeros(size, bool)
        self.cycles = 0
        self._systems: weakref.WeakSet[Any] = weakref.WeakSet()
        self._take = ct.CDLL(str(library)).rk_take_coverage
        self._take.restype, self._take.argtypes = ct.c_uint64, [ct.c_void_p, ct.c_void_p, ct.c_uint64]

    def opened(self, loaded: Any) -> None:
        """Begin to count in a system whose cores come from the library; the first reset does not count."""
        self._read(loaded)
        self._systems.add(loaded)

    def closing(self, loaded: Any) -> None:
        """Add what a system has counted, if it counts."""
        if loaded in self._systems:
            self._systems.discard(loaded)
            self.seen |= self._read(loaded) > 0
            self.cycles += loaded.cycle

    def all(self) -> None:
        """Add what all systems have counted that are still open."""
        for loaded in list(self._systems):
            self.closing(loaded)

    def _read(self, loaded: Any) -> np.ndarray:
        counts = np.zeros(self.seen.size, np.uint32)
        size = self._take(loaded.opened(), counts.ctypes.data, counts.size)
        if size != counts.size:
            raise ValueError(f"the library has {size} counters, not {counts.size}")
        return counts


@contextlib.contextmanager
def counted(library: Path, size: int) -> Iterator[Taken]:
    """Within this context, engines with the compiled core of the RK3588 count, with the array cell as RTL.

    Engines that write waveforms or compare inside the core need other libraries, and do not count.
    """
    taken = Taken(library, size)
    plain_build, plain_load, plain_unload = build.build, system.System.load, system.System.unload

    def chosen(design: Any, variant: build.Variant, *rest: Any, **more: Any) -> Path:
        special = variant.traced or variant.probed or variant.watched
        if design is not None and design.config == RK3588 and variant.engine == "verilator" and not special:
            return library
        return plain_build(design, variant, *rest, **more)

    def load(self: Any, traced: bool) -> None:
        plain_load(self, traced)
        if not traced and self.source.library(False) == library:
            taken.opened(self)

    def unload(self: Any) -> None:
        taken.closing(self)
        plain_unload(self)

    build.build, system.System.load, system.System.unload = chosen, load, unload  # type: ignore[method-assign]
    try:
        yield taken
    finally:
        taken.all()
        build.build = plain_build
        system.System.load, system.System.unload = plain_load, plain_unload  # type: ignore[method-assign]
