"""Saving of engines at a border between tasks, and resuming in another process (docs/snapshots.md)."""

from __future__ import annotations

import copy
import ctypes as ct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.base.numbered import Numbered
from rkcosim.engines import library as lib
from rkcosim.engines.events import Recording
from rkcosim.engines.memory import PAGE, DeviceMemory
from rkcosim.engines.protocol import SnapshotError, require
from rkcosim.engines.records import TaskLog
from rkcosim.engines.snapshots.contents import read_snapshot
from rkcosim.engines.snapshots.file import SnapshotFile
from rkcosim.engines.snapshots.host_log import HostLog
from rkcosim.engines.snapshots.orders import Border, SaveOrder, SnapshotInfo, SnapshotTaken
from rkcosim.engines.system import System
from rkcosim.engines.traces.engine import EngineTrace


@dataclass(frozen=True)
class KeptState:
    """The state of an engine in this process, without the contents of its memory.

    Members
    -------
    cycle : its cycle.
    state : the state of cores, memory timing and logs, uint8.
    host : the state of the engine's Python part.
    """

    cycle: int
    state: np.ndarray
    host: Mapping[str, Any]


class Snapshots:
    """The snapshots of one engine.

    Parameters
    ----------
    engine : the system whose state is saved.
    recording, tracing : its other parts, whose jobs and layers are saved too.
    """

    def __init__(self, engine: System, recording: Recording, tracing: EngineTrace) -> None:
        self.engine, self._recording, self._tracing = engine, recording, tracing
        self.log: HostLog | None = None
        """Log of the host's accesses and the answers, None if it is not kept."""
        self._log_for_orders = False
        self._orders: list[SaveOrder] = []
        self._ended: dict[int, int] = {}  # number of tasks that have ended, by job
        engine.reopened.append(self._go_on_logging)

    def remember_host(self, *, for_orders: bool = False) -> None:
        """Log the host's accesses and the answers from now on, so that its program can be resumed too.

        Parameters
        ----------
        for_orders : True to stop when the present orders have been carried out, because the log takes memory.

        Raises
        ------
        SnapshotError
            after the first access.
        """
        if self.engine.touched:
            raise SnapshotError("the host's accesses must be logged from the first one on")
        if self.log is None:
            self.log = HostLog(self.engine.lib, self.engine.memory)
            self.log.attach(self.engine.opened())
            self.engine.lib = self.log
        self._log_for_orders = for_orders

    def _go_on_logging(self) -> None:
        """Attach the log after the library was loaded again, before the first access."""
        if self.log is not None:
            self.log = None
            self.remember_host(for_orders=self._log_for_orders)
        self._look_out()

    def _forget_host(self) -> None:
        """Stop the log, because nobody will save it."""
        if self.log is not None and self._log_for_orders and not self._orders:
            self.engine.lib = self.log.library
            self.engine.lib.rk_note_pages(self.engine.opened(), 0)
            self.log = None

    def save(
        self,
        path: str | Path,
        *,
        facts: Mapping[str, Any] | None = None,
        blocks: Mapping[str, bytes] | None = None,
    ) -> SnapshotInfo:
        """Save the whole state of the engine (cores, memory, logs, cycle); the engine continues unchanged.

        Parameters
        ----------
        facts, blocks : further contents of the file: JSON values under "run" of its header, bytes by name.

        Raises
        ------
        SnapshotError
            for an engine that cannot be saved, or a file that cannot be written.
        """
        begun = time.perf_counter()
        self.savable()
        if self.log is not None and self.log.replaying:
            raise SnapshotError("the run is still being replayed up to its snapshot, so it cannot be saved")
        state = self._state()
        ranges = sorted(self.engine.memory.ranges.items())
        pages = _used_pages(self.engine.memory, ranges)
        contents = {
            "state": state.tobytes(),
            "pages": pages.tobytes(),
            "memory": self.engine.memory.array.reshape(-1, PAGE)[pages].tobytes(),
        }
        if self.log is not None:
            contents |= self.log.dump()
        header = {
            **self._identity_now(),
            "cycle": self.engine.cycle,
            "tasks": self._ended_now(),
            "ranges": ranges,
            "host": self._host_state(),
            "run": dict(facts or {}),
        }
        file = SnapshotFile(header, {**contents, **(blocks or {})})
        size = file.write(Path(path))
        return SnapshotInfo(Path(path), size, self.engine.cycle, time.perf_counter() - begun)

    def restore(self, path: str | Path | SnapshotFile, *, replay: bool = False) -> None:
        """Restore the state of the snapshot's engine.

        Parameters
        ----------
        replay : False: the state is restored at once, and the host may do anything afterwards. True: the
            host's program runs from its start and gets the logged answers until it reaches the cycle of the
            snapshot.

        Raises
        ------
        SnapshotError
            if it is not a snapshot, is damaged, or belongs to another engine; the message says what differs.
        """
        self.savable()
        file = path if isinstance(path, SnapshotFile) else read_snapshot(Path(path))
        self._fits(file)
        if self._tracing.result() is not None:
            raise SnapshotError("restore() must come before trace()")
        if replay and self.log is None:
            self.remember_host()
        for iova in self.engine.memory.ranges:
            self.engine.memory.unmap(iova)
        self.engine.unload()
        log, self.log = self.log, None
        self.engine.load(self.engine.traced)
        self._restore_state(file)
        self.engine.resumed_at = int(file.header["cycle"])
        self.engine.touched = True
        self.engine.tasks = TaskLog()
        self._ended = {}
        self._recording.arm()
        if replay:
            assert log is not None
            self.log = self.engine.lib = log
            log.attach(self.engine.opened())
            log.load(file.blocks, lambda: self._same_memory(file))
        else:
            self._restore_host(file)

    def _restore_state(self, file: SnapshotFile) -> None:
        state = np.frombuffer(file.blocks["state"], np.uint8)
        if self.engine.lib.rk_restore(self.engine.opened(), state.ctypes.data, state.size):
            raise SnapshotError(f"{file.path}: the state does not fit this engine")

    def _state(self) -> np.ndarray:
        """Return the state of cores, memory timing and logs, uint8."""
        size = self.engine.lib.rk_save(self.engine.opened())
        if not size:
            raise SnapshotError(
                f"the {self.engine.source.identity(self.engine.traced)['variant']} cannot be saved"
            )
        state = np.empty(size, np.uint8)
        self.engine.lib.rk_saved(state.ctypes.data)
        return state

    # In this process

    def keep(self) -> KeptState:
        """Return the state of the engine for `put_back`; the contents of its memory are not in it.

        Raises
        ------
        SnapshotError
            for an engine that cannot be saved.
        """
        self.savable()
        return KeptState(self.engine.cycle, self._state(), copy.deepcopy(self._host_state()))

    def put_back(self, kept: KeptState) -> None:
        """Return to a state of this engine; the caller puts the contents of the memory back.

        Events are recorded from there on, and those recorded before are forgotten.
        """
        if self.engine.lib.rk_restore(self.engine.opened(), kept.state.ctypes.data, kept.state.size):
            raise SnapshotError("the kept state does not fit this engine")
        self.engine.tasks = TaskLog()
        self._put_host(kept.host)
        self._recording.arm()

    # Orders

    def save_at(self, path: str | Path, at: str | Border, *, stop: bool = False) -> SaveOrder:
        """Save when a run reaches a border between tasks (see `Border.parse`).

        Parameters
        ----------
        stop : True to end the run there with `SnapshotTaken`; otherwise it continues.

        Returns
        -------
        The order; its `taken` is set when the snapshot was saved.

        Raises
        ------
        SnapshotError
            for an engine that cannot be saved.
        """
        order = SaveOrder(Path(path), at if isinstance(at, Border) else Border.parse(at), stop)
        self.order(order)
        return order

    def order(self, order: SaveOrder) -> None:
        """Accept an order; see `save_at`."""
        self.savable()
        self._orders.append(order)
        self._look_out()

    def _look_out(self) -> None:
        if self._orders:
            self._ended = {}
            if self.log is None or not self.log.replaying:
                self._ended = self._ended_now()
            self.engine.lib.rk_stop_at_tasks(self.engine.opened(), 1)

    @contextmanager
    def one_run(self) -> Iterator[None]:
        """Context of what the host considers one run."""
        self.at_border(False)
        if self.log is not None:
            self.log.run_begins()
        try:
            yield
        finally:
            if self.log is not None:
                self.log.run_over()
        self.at_border(True)

    def at_border(self, over: bool = False) -> None:
        """Carry out the orders whose border was passed since the last call; `over`: the host's run ends."""
        if not self._orders or (self.log is not None and self.log.replaying):
            return
        before, self._ended = self._ended, self._ended_now()
        for order in list(self._orders):
            if self._passed(order.at, before, over):
                self._orders.remove(order)
                if not self._orders:
                    self.engine.lib.rk_stop_at_tasks(self.engine.opened(), 0)
                order.taken = self.save(order.path, facts=order.facts, blocks=order.blocks)
                if order.stop:
                    raise SnapshotTaken(order)
                self._forget_host()

    def _ended_now(self) -> dict[int, int]:
        """Return the number of ended tasks by job; every job that was kicked has an entry."""
        kicks = self._recording.kicks
        ended = dict.fromkeys(range(kicks.gone, len(kicks)), 0)
        room = 256
        buffer = (lib.TaskEventC * room)()
        first = self.engine.lib.rk_tasks_gone(self.engine.opened(), ct.byref(ct.c_uint64()))
        while count := self.engine.lib.rk_tasks(self.engine.opened(), first, buffer, room):
            for event in buffer[:count]:
                if event.kind and event.job in ended:
                    ended[event.job] += 1
            first += count
        return ended

    def _passed(self, at: Border, before: Mapping[int, int], over: bool) -> bool:
        for job, ended in self._ended.items():
            if at.job is not None and job != at.job:
                continue
            kicks = self._recording.kicks
            _, core = kicks[job]
            latest = all(other <= job for other, (_, c) in enumerate(kicks, kicks.gone) if c == core)
            if not at.layer and at.tasks is None:
                up = self.engine.lib.rk_irq(self.engine.opened()) >> core & 1
                if over and latest and up:  # the end of a job's only task is not visible yet
                    return True
                continue
            wanted = [at.tasks]
            if at.layer:
                wanted = [first for first, _, name in self._recording.layers.get(job, ()) if name == at.layer]
            if any(n is not None and before.get(job, -1) < n <= ended for n in wanted):
                return True
        return False

    # Conditions for resuming

    def savable(self) -> None:
        require(self.engine.name, "has_snapshots", "a snapshot", SnapshotError)

    def _identity_now(self) -> dict[str, Any]:
        return {
            "engine": self.engine.name,
            "cell": self.engine.cell,
            "cores": self.engine.cores,
            **self.engine.source.identity(self.engine.traced),
            "dram": asdict(self.engine.dram),
            "options": sorted(self.engine.options),
        }

    def _fits(self, file: SnapshotFile) -> None:
        """Check that a snapshot belongs to this engine; raises SnapshotError with the first difference."""
        mine, header = self._identity_now(), file.header
        words = {
            "engine": "the engine {0}",
            "cell": "the array cell '{0}' (cpp, or rtl with --exact)",
            "cores": "{0} cores",
            "variant": "the {0}",
            "geometry": "the geometry {0}",
            "options": "the options {0}",
        }
        header = {"options": [], **header}  # files of earlier versions have no options
        for name, text in words.items():
            if header.get(name) != mine[name]:
                then, now = text.format(header.get(name)), text.format(mine[name])
                raise SnapshotError(f"{file.path}: saved by {then}, this is {now}")
        for name, value in mine["dram"].items():
            if header["dram"].get(name) != value:
                raise SnapshotError(
                    f"{file.path}: saved with memory timing {name} {header['dram'].get(name)}, "
                    f"this is {value}"
                )
        if header["build"] != mine["build"]:
            raise SnapshotError(
                f"{file.path}: saved by another build of the engine ({header['build']}, this is "
                f"{mine['build']}): design, harness or Verilator have changed since"
            )

    # State of the host

    def _host_state(self) -> dict[str, Any]:
        recording = self._recording
        return {
            "reset_at": self.engine.reset_at,
            "reported": self.engine.reported,
            "kicks": list(recording.kicks),
            "kicks_gone": recording.kicks.gone,
            "announced": {str(core): layers for core, layers in recording.announced.items()},
            "layers": {str(job): layers for job, layers in recording.layers.items()},
            "counting": self.engine.counting,
        }

    def _restore_host(self, file: SnapshotFile) -> None:
        """Restore the memory and the state of the engine's Python part."""
        for iova, size in file.header["ranges"]:
            self.engine.memory.map(iova, size)
        pages, rows = _image(file)
        self.engine.memory.array.reshape(-1, PAGE)[pages] = rows
        self._put_host(file.header["host"])
        self._look_out()

    def _put_host(self, host: Mapping[str, Any]) -> None:
        """Restore the state of the engine's Python part."""
        recording = self._recording
        self.engine.reset_at, self.engine.reported = list(host["reset_at"]), host["reported"]
        self.engine.counting = host["counting"]
        recording.kicks = Numbered([(cycle, core) for cycle, core in host["kicks"]], host["kicks_gone"])
        for name in ("announced", "layers"):
            found = {int(n): [tuple(layer) for layer in layers] for n, layers in host[name].items()}
            setattr(recording, name, found)

    def _same_memory(self, file: SnapshotFile) -> None:
        """Check that the host's memory at the snapshot's cycle is the same as in the saved run."""
        ranges = [(iova, size) for iova, size in file.header["ranges"]]
        if sorted(self.engine.memory.ranges.items()) != ranges:
            raise SnapshotError(
                f"{file.path}: the program has mapped other memory than the one whose run was saved"
            )
        pages, rows = _image(file)
        now = _used_pages(self.engine.memory, ranges)
        all_rows = self.engine.memory.array.reshape(-1, PAGE)
        wrong = [*np.setxor1d(now, pages)[:1], *pages[(all_rows[pages] != rows).any(axis=1)][:1]]
        if wrong:
            raise SnapshotError(
                f"{file.path}: the program's memory differs from that of the run that was saved, at "
                f"0x{int(min(wrong)) * PAGE:08X}: another model, another input, or another version of rkcosim"
            )
        self._look_out()
        self._forget_host()


def _used_pages(memory: DeviceMemory, ranges: list[tuple[int, int]]) -> np.ndarray:
    """Return the mapped pages that do not contain only zeros: uint32 of shape (n,), in order."""
    rows = memory.array.reshape(-1, PAGE).view(np.uint64)
    found = [np.zeros(0, np.uint32)]
    for iova, size in ranges:
        first = iova // PAGE
        used = np.flatnonzero(rows[first : first + size // PAGE].any(axis=1))
        found.append((used + first).astype(np.uint32))
    return np.concatenate(found)


def _image(file: SnapshotFile) -> tuple[np.ndarray, np.ndarray]:
    """Return page numbers, and their bytes of shape (n, 4096)."""
    pages = np.frombuffer(file.blocks["pages"], np.uint32)
    return pages, np.frombuffer(file.blocks["memory"], np.uint8).reshape(-1, PAGE)
