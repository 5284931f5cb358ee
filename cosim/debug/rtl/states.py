"""States of an engine in this process, from which a run goes back."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rkcosim.engines.memory import PAGE

if TYPE_CHECKING:
    from rkcosim.engines.snapshots.state import KeptState
    from rkcosim.engines.soc import SocEngine

MOST_STATES = 64
"""Number of states that a run keeps; beyond it every other one of the older half is dropped."""

MOST_BYTES = 512 << 20
"""Bytes of states and pages that a run keeps; beyond it states are dropped in the same way."""

SPACING = 1 << 17
"""Cycles between two states."""


@dataclass
class _Entry:
    """A state, and the pages that were written between the state before it and this one."""

    kept: KeptState
    pages: dict[int, NDArray[np.uint8]]

    @property
    def size(self) -> int:
        return self.kept.state.nbytes + PAGE * len(self.pages)


class KeptStates:
    """The kept states of one run.

    Parameters
    ----------
    engine : the engine, which stands at the start of the run.
    original : returns the contents of a page at the start of the run, uint8 [4096].
    most_states, most_bytes, spacing : bounds of what is kept, and cycles between two states.
    """

    def __init__(
        self,
        engine: SocEngine,
        original: Callable[[int], NDArray[np.uint8]],
        *,
        most_states: int = MOST_STATES,
        most_bytes: int = MOST_BYTES,
        spacing: int = SPACING,
    ) -> None:
        if most_states < 2 or most_bytes < 1 or spacing < 1:
            raise ValueError(
                f"at least 2 states, 1 byte and 1 cycle are needed, not {most_states}, {most_bytes} and "
                f"{spacing}"
            )
        self._engine, self._original = engine, original
        self._most_states, self._most_bytes, self._spacing = most_states, most_bytes, spacing
        engine.lib.rk_note_pages(engine.opened(), 1)
        self._entries = [_Entry(engine.snapshots.keep(), {})]

    @property
    def cycles(self) -> list[int]:
        """Cycles of the states, in ascending order."""
        return [entry.kept.cycle for entry in self._entries]

    @property
    def bytes(self) -> int:
        """Bytes of states and pages."""
        return sum(entry.size for entry in self._entries)

    @property
    def next_cycle(self) -> int:
        """The cycle in which the next state is to be kept."""
        return self._entries[-1].kept.cycle + self._spacing

    def keep(self) -> None:
        """Keep the present state, if it is later than the last one, and drop some if there are too many."""
        engine = self._engine
        if engine.cycle <= self._entries[-1].kept.cycle:
            return
        rows = engine.memory.array.reshape(-1, PAGE)
        pages = {page: rows[page].copy() for page in self._written()}
        self._entries.append(_Entry(engine.snapshots.keep(), pages))
        while len(self._entries) > self._most_states or (
            self.bytes > self._most_bytes and len(self._entries) > 2
        ):
            self._thin()

    def _thin(self) -> None:
        """Drop every other state of the older half, but not the first one; their pages go to the next one."""
        half = max(3, len(self._entries) // 2)
        thinned = self._entries[:1]
        carried: dict[int, NDArray[np.uint8]] = {}
        for number, entry in enumerate(self._entries[1:half], 1):
            entry.pages = {**carried, **entry.pages}
            carried = entry.pages if number % 2 else {}
            if not number % 2:
                thinned.append(entry)
        if carried:
            self._entries[half].pages = {**carried, **self._entries[half].pages}
        self._entries[:half] = thinned

    def _written(self) -> list[int]:
        """Return the pages that the cores have written since the last call."""
        bits = np.zeros(1 << 14, np.uint64)
        if not self._engine.lib.rk_take_pages(self._engine.opened(), bits.ctypes.data):
            return []
        found: list[int] = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()
        return found

    def go_back(self, cycle: int) -> int:
        """Return to the latest state at or before a cycle, or else to the first one; return its cycle."""
        at = max(0, bisect.bisect_right(self.cycles, cycle) - 1)
        entry = self._entries[at]
        wrong = set(self._written()).union(*(later.pages for later in self._entries[at + 1 :]))
        rows = self._engine.memory.array.reshape(-1, PAGE)
        self._engine.snapshots.put_back(entry.kept)
        for page in wrong:
            rows[page] = self._page(page, at)
        del self._entries[at + 1 :]
        return entry.kept.cycle

    def _page(self, page: int, at: int) -> NDArray[np.uint8]:
        """Return the contents that a page had in a state."""
        for entry in reversed(self._entries[: at + 1]):
            if page in entry.pages:
                return entry.pages[page]
        return self._original(page)
