"""Problems found by the device: refused accesses in the words of the IOMMU's driver, and each kind once."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rkcosim.driver.device import Device
from rkcosim.driver.kernel.log import Log
from rkcosim.regcmd.job import interrupt_bits

IOMMUS = ("fdab9000.iommu", "fdaca000.iommu", "fdada000.iommu")
SHOWN = 8
"""Maximum number of faults that are logged for one interrupt."""

MOST_KINDS = 256
"""Maximum number of kinds that are kept; others are only counted."""

DMA_ERRORS = interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR")


@dataclass
class Kind:
    """Problems of one kind: the `text` of the first one, and their number."""

    text: str
    count: int

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        head, *more = self.text.splitlines() or [""]
        return "\n".join([head + times, *(f"  {line}" for line in more)])


class Trouble:
    """Ask the device for problems and record them.

    Everything except `kinds` is for the device's thread, which need not hold the kernel's lock.

    Parameters
    ----------
    device
        It may have `complaints(place)` (see `rkcosim.engines.complaints`) and `faults(first, most)`; None:
        no device is asked.
    log
        Log of the kernel: each kind is logged when it first occurs.
    guard
        Calls the device and handles its exceptions: (call, result in this case).

    Members
    -------
    on_new : called with each kind when it first occurs.
    full : the device's logs are full, so that further problems are not counted.
    """

    def __init__(
        self, device: Device | None, log: Log, guard: Callable[[Callable[[], Any], Any], Any]
    ) -> None:
        self._device, self._log, self._guard = device, log, guard
        self._kinds: dict[tuple[Any, ...], Kind] = {}
        self._lock = threading.Lock()
        self._place: Any = None
        self._faults = 0
        self.full = False
        self.on_new: Callable[[Kind], None] | None = None

    def kinds(self) -> list[Kind]:
        """All kinds so far, in the order of their first occurrence."""
        with self._lock:
            return [Kind(kind.text, kind.count) for kind in self._kinds.values()]

    def look(self, raw: int = DMA_ERRORS) -> None:
        """Record what the device has found since the last call.

        Parameters
        ----------
        raw
            Raw status of an interrupt: refused accesses are only searched for if it reports them.
        """
        ask: Any = getattr(self._device, "complaints", None)
        if ask is None:
            return
        found = self._guard(lambda: ask() if self._place is None else ask(self._place), None)
        if found is None:
            return
        self._place, self.full = found.place, self.full or getattr(found, "full", False)
        for one in found.diagnostics:
            self._add(one.kind, str(one.first), one.count)
        if raw & DMA_ERRORS:
            self._page_faults()

    def gave_up(self, what: str, state: str) -> None:
        """Record a job that timed out.

        Parameters
        ----------
        what
            Which job, without numbers that vary.
        state
            The reason: what the blocks of its core wait for.
        """
        text = f"{what}: {state}"
        self._add(("time-out", re.sub(r"cycle \d+|0x[0-9a-f]+|\d+ times", "", text)), text, 1, tell=False)

    def _page_faults(self) -> None:
        """Log the accesses refused since the last call; engines without a list have already reported them."""
        faults: Any = getattr(self._device, "faults", None)
        if faults is None:
            return
        for fault in self._guard(lambda: faults(self._faults, SHOWN), []):
            self._log.err(f"rk_iommu {IOMMUS[fault.core]}: Page fault at {fault.address:#x}: {fault}")
        self._faults = self._place[1]

    def _add(self, key: tuple[Any, ...], text: str, count: int, *, tell: bool = True) -> None:
        with self._lock:
            if key not in self._kinds and len(self._kinds) >= MOST_KINDS:
                key, text = ("others",), f"of more than {MOST_KINDS} kinds, counted together"
            known = self._kinds.get(key)
            if known is not None:
                known.count += count
                return
            new = self._kinds[key] = Kind(text, count)
        if tell:
            self._log.info(f"rkcosim: {text}")
        if self.on_new is not None:
            self.on_new(new)
