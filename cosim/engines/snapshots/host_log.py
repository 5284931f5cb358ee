"""Log of a host program's accesses to an engine and of the answers, for replay in another process.

A host program (driver, runtime, checks) is deterministic: with the same answers it makes the same accesses. A
run is therefore resumed by running its program from the start, with the answers of the log until the log
ends, and with the restored engine afterwards. The log stands between an engine and the functions of its
library.
"""

from __future__ import annotations

import ctypes as ct
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.engines import library as lib
from rkcosim.engines.memory import PAGE, SPACE, DeviceMemory
from rkcosim.engines.protocol import SnapshotError

Pages = npt.NDArray[np.uint32]

_WORDS = SPACE // PAGE // 64  # words of a bitmap of pages

_WORD = {"w": "a write", "r": "a read", "x": "a run", "z": "a reset"}


def _rows(memory: DeviceMemory, pages: Pages) -> npt.NDArray[np.uint8]:
    return memory.array.reshape(-1, PAGE)[pages]


class HostLog:
    """The functions of a library, which log every access of the host and its answer, or replay the answers.

    Parameters
    ----------
    library : the functions of a built library.
    memory : the device's memory.

    Members
    -------
    entries : accesses that took cycles, oldest first: kind "w" [core, offset, value, result], "r" [core,
        offset, value, result], "x" [mask, first cycle, result], "z" [mask, cycles]; all end with the cycle
        and the interrupt lines after it.
    replaying : True while answers come from the log.
    """

    def __init__(self, library: ct.CDLL, memory: DeviceMemory) -> None:
        self._library, self._memory = library, memory
        self._handle = self._begin = 0
        self.entries: list[list[Any]] = []
        self._pages: list[Pages] = []  # pages written by the cores during each entry
        self._contents: list[npt.NDArray[np.uint8]] = []
        self._answers: dict[str, list[Any]] = {}  # answers to queries that take no cycles, in order
        self._told_of: dict[str, int] = {}  # number of answers that were replayed
        self._running = False  # the last entry is a run that may continue
        self._waits = False  # the host waits for a run; other accesses are queries only
        self._place: int | None = None  # next entry to replay
        self._end: Callable[[], None] = lambda: None
        self._now = self._irq = self._seen = 0
        self._words = np.zeros(_WORDS, np.uint64)

    @property
    def library(self) -> ct.CDLL:
        """The functions behind the log."""
        return self._library

    @property
    def replaying(self) -> bool:
        """Whether answers come from the log."""
        return self._place is not None

    def attach(self, handle: int) -> None:
        """Log the accesses to this system from now on."""
        self._handle = handle
        self._begin = int(self._library.rk_cycle(handle))
        self._library.rk_note_pages(handle, 1)
        self._take_pages()

    # To a file and from a file

    def dump(self) -> dict[str, bytes]:
        """Return the log as blocks of a snapshot; a run that has begun is its last entry."""
        if self._running:
            self._note_pages()
        data = {
            "begin": self._begin,
            "entries": self.entries,
            "pages": [pages.tolist() for pages in self._pages],
            "answers": self._answers,
            "running": self._running,
        }
        contents = [*self._contents, *([_rows(self._memory, self._pages[-1])] if self._running else [])]
        return {
            "host": json.dumps(data, separators=(",", ":")).encode(),
            "host_pages": b"".join(rows.tobytes() for rows in contents),
        }

    def load(self, blocks: dict[str, bytes], end: Callable[[], None]) -> None:
        """Replay this log to the host; `end` is called after the last entry, before the engine continues.

        Raises
        ------
        SnapshotError
            if the snapshot was saved without a log.
        """
        if "host" not in blocks:
            raise SnapshotError(
                "the snapshot was saved without the log of its program, so the program cannot be resumed: "
                "use open_engine(snapshot=...)"
            )
        data = json.loads(blocks["host"])
        self.entries = data["entries"]
        self._pages = [np.array(pages, np.uint32) for pages in data["pages"]]
        self._answers, self._told_of = data["answers"], {}
        rows = np.frombuffer(blocks["host_pages"], np.uint8).reshape(-1, PAGE)
        places = np.cumsum([0, *(len(pages) for pages in self._pages)])
        self._contents = [rows[places[n] : places[n + 1]] for n in range(len(self._pages))]
        self._running = data["running"]
        self._end = end
        self._now = self._begin = data["begin"]
        self._irq = self._seen = self._place = 0
        if not self.entries:
            self._go_on()

    # Accesses that take cycles

    def rk_write(self, handle: int, core: int, offset: int, value: int, bound: int) -> int:
        entry = self._told("w", core, offset, value)
        if entry is not None:
            return int(entry[4])
        result = self._library.rk_write(handle, core, offset, value, bound)
        self._keep(["w", core, offset, value, result])
        return int(result)

    def rk_read(self, handle: int, core: int, offset: int, value: Any, bound: int) -> int:
        entry = self._told("r", core, offset)
        if entry is not None:
            value._obj.value = entry[3]
            return int(entry[4])
        result = self._library.rk_read(handle, core, offset, value, bound)
        self._keep(["r", core, offset, value._obj.value, result])
        return int(result)

    def rk_reset(self, handle: int, mask: int, cycles: int) -> None:
        if self._told("z", mask, cycles) is None:
            self._library.rk_reset(handle, mask, cycles)
            self._keep(["z", mask, cycles])

    def rk_run(self, handle: int, end: int, mask: int, stop: int) -> int:
        if self._place is not None:
            entry = self._expect("x", mask)
            result, last = entry[3], entry[4]
            open_end = self._running and self._place + 1 == len(self.entries)
            if end < last or (end == last and not open_end and result == lib.RUN_BOUND):
                self._now = end
                if end == last:
                    self._tell(entry)
                return lib.RUN_BOUND
            if not open_end:
                if result == lib.RUN_BOUND:
                    raise self._differs(f"a run to cycle {end}", f"one to cycle {last}")
                self._tell(entry)
                if result == lib.RUN_DIAGNOSTIC:
                    self.rk_take_diagnostics(handle)
                return int(result)
            self._tell(entry)  # and continues from there
        if not self._running:
            begun = self._library.rk_cycle(handle)
            self.entries.append(["x", mask, begun, lib.RUN_BOUND, begun, 0])
            self._pages.append(np.zeros(0, np.uint32))
            self._running = True
        result = self._library.rk_run(handle, end, mask, stop)
        self.entries[-1][3:] = result, self._library.rk_cycle(handle), self._library.rk_irq(handle)
        return int(result)

    def run_begins(self) -> None:
        """The host begins to wait for a run."""
        self._close_run()
        self._waits = True

    def run_over(self) -> None:
        """Close the entry of the host's run; the next run begins a new entry."""
        self._waits = False
        self._close_run()

    def _close_run(self) -> None:
        if self._running and self._place is None:
            self._note_pages()
            self._contents.append(_rows(self._memory, self._pages[-1]))
            self._running = False

    # Queries that take no cycles

    def rk_cycle(self, handle: int) -> int:
        return int(self._library.rk_cycle(handle)) if self._place is None else self._now

    def rk_irq(self, handle: int) -> int:
        return int(self._library.rk_irq(handle)) if self._place is None else self._irq

    def rk_take_diagnostics(self, handle: int) -> int:
        if self._place is None:
            return int(self._library.rk_take_diagnostics(handle))
        room = 1 << 16
        buffer = (lib.DiagnosticEventC * room)()
        before, self._seen = self._seen, self._so_far("rk_diagnostics", handle, 0, buffer, room)
        return self._seen - before

    def __getattr__(self, name: str) -> Any:
        if name in _ASKED:
            count = _ASKED[name]
            return lambda *given: self._answer(name, given[:count], *given[count:])
        if name in _LATE:
            return partial(self._so_far, name, late=_LATE[name])
        found = getattr(self._library, name)
        if name not in _TOLD_THE_ENGINE:
            return found
        return lambda *arguments: found(*arguments) if self._place is None else None

    # Internals

    def _keep(self, entry: list[Any]) -> None:
        self._close_run()
        entry += [self._library.rk_cycle(self._handle), self._library.rk_irq(self._handle)]
        self.entries.append(entry)
        self._pages.append(np.zeros(0, np.uint32))
        self._note_pages()
        self._contents.append(_rows(self._memory, self._pages[-1]))

    def _take_pages(self) -> Pages:
        words = self._words
        if not self._library.rk_take_pages(self._handle, words.ctypes.data):
            return np.zeros(0, np.uint32)
        places = np.flatnonzero(words)
        bits = np.unpackbits(words[places].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        word, bit = np.nonzero(bits)
        return (places[word] * 64 + bit).astype(np.uint32)

    def _note_pages(self) -> None:
        self._pages[-1] = np.union1d(self._pages[-1], self._take_pages())

    def _answer(self, function: str, what: tuple[int, ...], *to: Any) -> int:
        """Ask the library, or replay the answer that it gave in this cycle."""
        objects = [getattr(item, "_obj", item) for item in to]
        key = " ".join(map(str, (function, self.rk_cycle(what[0]), *what[1:])))
        if self._place is None:
            result = getattr(self._library, function)(*what, *to) or 0
            if not self._waits:
                self._answers.setdefault(key, []).append([result, *(bytes(item).hex() for item in objects)])
            return int(result)
        known = self._answers.get(key)
        if not known:
            return 0
        number = self._told_of.get(key, 0)
        result, *texts = known[min(number, len(known) - 1)]
        try:
            answers = [bytes.fromhex(text) for text in texts]
        except ValueError:
            raise SnapshotError(f"damaged snapshot: its answer to '{key}' is not a number") from None
        if [len(answer) for answer in answers] != [ct.sizeof(item) for item in objects]:
            raise SnapshotError(f"damaged snapshot: its answer to '{key}' has a wrong length")
        for item, answer in zip(objects, answers, strict=True):
            ct.memmove(ct.addressof(item), answer, ct.sizeof(item))
        if not self._waits:
            self._told_of[key] = number + 1
        return int(result)

    def _so_far(self, function: str, handle: int, first: int, to: Any, room: int, late: int = 0) -> int:
        """Return items of one of the library's logs up to the present cycle.

        `late`: cycles until an item is visible.
        """
        count = int(getattr(self._library, function)(handle, first, to, room))
        if self._place is not None:
            while count and getattr(to[count - 1], "cycle", to[count - 1]) + late > self._now:
                count -= 1
        return count

    def _told(self, kind: str, *what: int) -> list[Any] | None:
        """Return the entry that answers this access, None if the engine must answer."""
        if self._place is None:
            return None
        entry = self._expect(kind, *what)
        self._tell(entry)
        return entry

    def _expect(self, kind: str, *what: int) -> list[Any]:
        assert self._place is not None
        entry = self.entries[self._place]
        if entry[: 1 + len(what)] != [kind, *what]:
            raise self._differs(_words(kind, what), _words(entry[0], entry[1:4]))
        return entry

    def _differs(self, now: str, then: str) -> SnapshotError:
        return SnapshotError(
            f"the program differs from the one whose run was saved: access {self._place} is {now}, it was "
            f"{then}"
        )

    def _tell(self, entry: list[Any]) -> None:
        """Apply the effects of an entry to what the host sees."""
        assert self._place is not None
        if len(self._pages[self._place]):
            self._memory.array.reshape(-1, PAGE)[self._pages[self._place]] = self._contents[self._place]
        self._now, self._irq = entry[-2:]
        self._place += 1
        if self._place == len(self.entries):
            self._go_on()

    def _go_on(self) -> None:
        if self._running:
            self._contents.pop()
        self._place = None
        self._end()


_ASKED = {"rk_counters": 2, "rk_pins": 2, "rk_open_bursts": 2, "rk_counts": 3}
"""Queries that take no cycles, with the number of arguments that identify one.

The other arguments take the answer.
"""

_LATE = {"rk_tasks": 0, "rk_diagnostics": 0, "rk_probes": 0, "rk_faults": 1, "rk_memory_writes": 1}
"""The library's logs, with the number of cycles until an entry is visible."""

_TOLD_THE_ENGINE = ("rk_kick", "rk_announce", "rk_map", "rk_watch_memory", "rk_error", "rk_count")
"""Functions whose effect the restored state already contains."""


def _words(kind: str, what: Any) -> str:
    numbers = [f"core {what[0]}" if kind in "wr" else f"cores {what[0]:#b}"]
    numbers += [hex(n) for n in what[1:]] if kind in "wr" else []
    return f"{_WORD[kind]} ({', '.join(numbers)})"
