"""Engines that can be saved at a border between tasks, and go on in another process (docs/snapshots.md)."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cosim.engines import library as lib
from cosim.engines.errors import SnapshotError
from cosim.engines.library import DramConfig
from cosim.engines.memory import PAGE, DeviceMemory
from cosim.engines.records import TaskLog
from cosim.engines.snapshots.file import SnapshotFile
from cosim.engines.snapshots.host_log import HostLog
from cosim.engines.snapshots.orders import Border, SaveOrder, SnapshotInfo, SnapshotTaken


class SnapshotEngine(ABC):
    """What an engine has for snapshots: a base of `SocEngine`, whose members it uses."""

    name: str
    cell: str
    cores: int
    dram: DramConfig
    options: frozenset[str]
    memory: DeviceMemory
    recording: Any
    tracing: Any
    _lib: Any
    _handle: int | None
    _traced: bool
    _touched: bool
    _reported: int
    _counting: bool
    _reset_at: list[int]
    _tasks: TaskLog

    _log: HostLog | None = None
    _log_for_orders: bool = False
    _resumed: int = 0

    def _prepare_snapshots(self, identity: Callable[[], Mapping[str, Any]]) -> None:
        """`identity` says of which build the state is; called when somebody wants to know."""
        self._identify = identity
        self._orders: list[SaveOrder] = []
        self._ended: dict[int, int] = {}  # tasks that have ended, by job

    @abstractmethod
    def _opened(self) -> int: ...

    @abstractmethod
    def _open(self, traced: bool) -> None: ...

    @abstractmethod
    def _close_handle(self) -> None: ...

    @property
    @abstractmethod
    def cycle(self) -> int: ...

    @property
    def resumed_at(self) -> int:
        """Cycle of the snapshot that this engine went on from, 0 for none."""
        return self._resumed

    def remember_host(self, *, for_orders: bool = False) -> None:
        """Keep what the host asks and is answered from now on, so that snapshots can resume its program too.

        Parameters
        ----------
        for_orders : only until the orders that there are have been carried out: it takes memory.

        Raises
        ------
        SnapshotError
            after the first access.
        """
        if self._touched:
            raise SnapshotError("what the host does must be remembered from its first access on")
        if self._log is None:
            self._log = HostLog(self._lib, self.memory)
            self._log.attach(self._opened())
            self._lib = self._log
        self._log_for_orders = for_orders

    def _go_on_logging(self) -> None:
        """The library was loaded again, before the first access."""
        if self._log is not None:
            self._log = None
            self.remember_host(for_orders=self._log_for_orders)
        self._look_out()

    def _forget_host(self) -> None:
        """Nobody will save what the host does."""
        if self._log is not None and self._log_for_orders and not self._orders:
            self._lib = self._log.library
            self._lib.rk_note_pages(self._opened(), 0)
            self._log = None

    def save(
        self,
        path: str | Path,
        *,
        facts: Mapping[str, Any] | None = None,
        blocks: Mapping[str, bytes] | None = None,
    ) -> SnapshotInfo:
        """Save everything that the engine is: cores, memory, logs, cycle; it goes on as if nothing had been.

        Parameters
        ----------
        facts, blocks : more for the file: JSON values under "run" of its header, bytes by name.

        Raises
        ------
        SnapshotError
            for an engine that cannot be saved, or a file that cannot be written.
        """
        begun = time.perf_counter()
        self._savable()
        if self._log is not None and self._log.replaying:
            raise SnapshotError("the run has not come to where it goes on, so it cannot be saved")
        size = self._lib.rk_save(self._opened())
        if not size:
            raise SnapshotError(f"the {self._identify()['variant']} cannot be saved")
        state = np.empty(size, np.uint8)
        self._lib.rk_saved(state.ctypes.data)
        ranges = sorted(self.memory.ranges.items())
        pages = _used_pages(self.memory, ranges)
        contents = {
            "state": state.tobytes(),
            "pages": pages.tobytes(),
            "memory": self.memory.array.reshape(-1, PAGE)[pages].tobytes(),
        }
        if self._log is not None:
            contents |= self._log.dump()
        header = {
            **self._identity_now(),
            "cycle": self.cycle,
            "tasks": self._ended_now(),
            "ranges": ranges,
            "host": self._host_state(),
            "run": dict(facts or {}),
        }
        file = SnapshotFile(header, {**contents, **(blocks or {})})
        size = file.write(Path(path))
        return SnapshotInfo(Path(path), size, self.cycle, time.perf_counter() - begun)

    def restore(self, path: str | Path | SnapshotFile, *, replay: bool = False) -> None:
        """Become what the snapshot's engine was.

        Parameters
        ----------
        replay : False: memory and all are as they were at once, and the host does what it likes.  True: the
            host's program runs from its start and is told what it was told before, until it comes to the
            cycle of the snapshot.

        Raises
        ------
        SnapshotError
            for a file that is none, is damaged, or is of another engine; says what differs.
        """
        self._savable()
        file = path if isinstance(path, SnapshotFile) else SnapshotFile.read(Path(path))
        self._fits(file)
        if self.tracing.result() is not None:
            raise SnapshotError("restore() must come before trace()")
        if replay and self._log is None:
            self.remember_host()
        for iova in self.memory.ranges:
            self.memory.unmap(iova)
        self._close_handle()
        log, self._log = self._log, None
        self._open(self._traced)
        self._restore_state(file)
        self._resumed = int(file.header["cycle"])
        self._touched = True
        self._tasks = TaskLog()
        self._ended = {}
        self.recording.arm()
        if replay:
            assert log is not None
            self._log = self._lib = log
            log.attach(self._opened())
            log.load(file.blocks, lambda: self._same_memory(file))
        else:
            self._restore_host(file)

    def _restore_state(self, file: SnapshotFile) -> None:
        state = np.frombuffer(file.blocks["state"], np.uint8)
        if self._lib.rk_restore(self._opened(), state.ctypes.data, state.size):
            raise SnapshotError(f"{file.path}: the state does not fit this engine")

    # Orders

    def save_at(self, path: str | Path, at: str | Border, *, stop: bool = False) -> SaveOrder:
        """Save when a run comes to a border between tasks (see `Border.parse`).

        Parameters
        ----------
        stop : end the run there with `SnapshotTaken`, else it goes on.

        Returns
        -------
        The order; its `taken` says whether it has happened.

        Raises
        ------
        SnapshotError
            for an engine that cannot be saved.
        """
        order = SaveOrder(Path(path), at if isinstance(at, Border) else Border.parse(at), stop)
        self.order(order)
        return order

    def order(self, order: SaveOrder) -> None:
        """Take an order; see `save_at`."""
        self._savable()
        self._orders.append(order)
        self._look_out()

    def _look_out(self) -> None:
        if self._orders:
            self._ended = {}
            if self._log is None or not self._log.replaying:
                self._ended = self._ended_now()
            self._lib.rk_stop_at_tasks(self._opened(), 1)

    @contextmanager
    def _one_run(self) -> Iterator[None]:
        """Around what the host takes for one run."""
        self._at_border(False)
        if self._log is not None:
            self._log.run_begins()
        try:
            yield
        finally:
            if self._log is not None:
                self._log.run_over()
        self._at_border(True)

    def _at_border(self, over: bool = False) -> None:
        """Carry out the orders whose border was passed since the last time; `over`: the host's run ends."""
        if not self._orders or (self._log is not None and self._log.replaying):
            return
        before, self._ended = self._ended, self._ended_now()
        for order in list(self._orders):
            if self._passed(order.at, before, over):
                self._orders.remove(order)
                if not self._orders:
                    self._lib.rk_stop_at_tasks(self._opened(), 0)
                order.taken = self.save(order.path, facts=order.facts, blocks=order.blocks)
                if order.stop:
                    raise SnapshotTaken(order)
                self._forget_host()

    def _ended_now(self) -> dict[int, int]:
        """Tasks that have ended, by job; every job that was kicked has an entry."""
        ended = dict.fromkeys(range(len(self.recording.kicks)), 0)
        room = 256
        buffer, first = (lib.TaskEventC * room)(), 0
        while count := self._lib.rk_tasks(self._opened(), first, buffer, room):
            for event in buffer[:count]:
                if event.kind and event.job in ended:
                    ended[event.job] += 1
            first += count
        return ended

    def _passed(self, at: Border, before: Mapping[int, int], over: bool) -> bool:
        for job, ended in self._ended.items():
            if at.job is not None and job != at.job:
                continue
            _, core = self.recording.kicks[job]
            latest = all(other <= job for other, (_, c) in enumerate(self.recording.kicks) if c == core)
            if not at.layer and at.tasks is None:
                up = self._lib.rk_irq(self._opened()) >> core & 1
                if over and latest and up:  # the end of a job's only task has not been seen yet
                    return True
                continue
            wanted = [at.tasks]
            if at.layer:
                wanted = [first for first, _, name in self.recording.layers.get(job, ()) if name == at.layer]
            if any(n is not None and before.get(job, -1) < n <= ended for n in wanted):
                return True
        return False

    # What must be the same

    def _savable(self) -> None:
        if self.name != "verilator":
            raise SnapshotError(f"the engine {self.name} cannot be saved; the engine verilator can")

    def _identity_now(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "cell": self.cell,
            "cores": self.cores,
            **self._identify(),
            "dram": asdict(self.dram),
            "options": sorted(self.options),
        }

    def _fits(self, file: SnapshotFile) -> None:
        """See that a snapshot is of this engine; raises SnapshotError with what differs first."""
        mine, header = self._identity_now(), file.header
        words = {
            "engine": "the engine {0}",
            "cell": "the array cell '{0}' (cpp, or rtl with --exact)",
            "cores": "{0} cores",
            "variant": "the {0}",
            "geometry": "the geometry {0}",
            "options": "the options {0}",
        }
        header = {"options": [], **header}  # files of earlier versions have none
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

    # What the host knows

    def _host_state(self) -> dict[str, Any]:
        recording = self.recording
        return {
            "reset_at": self._reset_at,
            "reported": self._reported,
            "kicks": recording.kicks,
            "announced": {str(core): layers for core, layers in recording.announced.items()},
            "layers": {str(job): layers for job, layers in recording.layers.items()},
            "counting": self._counting,
        }

    def _restore_host(self, file: SnapshotFile) -> None:
        """Memory, and what the engine's Python side knew."""
        for iova, size in file.header["ranges"]:
            self.memory.map(iova, size)
        pages, rows = _image(file)
        self.memory.array.reshape(-1, PAGE)[pages] = rows
        host, recording = file.header["host"], self.recording
        self._reset_at, self._reported = list(host["reset_at"]), host["reported"]
        self._counting = host["counting"]
        recording.kicks = [(cycle, core) for cycle, core in host["kicks"]]
        for name in ("announced", "layers"):
            found = {int(n): [tuple(layer) for layer in layers] for n, layers in host[name].items()}
            setattr(recording, name, found)
        self._look_out()

    def _same_memory(self, file: SnapshotFile) -> None:
        """The host has come to the snapshot's cycle: see that its memory is as it was."""
        ranges = [(iova, size) for iova, size in file.header["ranges"]]
        if sorted(self.memory.ranges.items()) != ranges:
            raise SnapshotError(
                f"{file.path}: the program has mapped other memory than the one whose run was saved"
            )
        pages, rows = _image(file)
        now = _used_pages(self.memory, ranges)
        all_rows = self.memory.array.reshape(-1, PAGE)
        wrong = [*np.setxor1d(now, pages)[:1], *pages[(all_rows[pages] != rows).any(axis=1)][:1]]
        if wrong:
            raise SnapshotError(
                f"{file.path}: the program's memory differs from that of the run that was saved, at "
                f"0x{int(min(wrong)) * PAGE:08X}: another model, another input, or another version of rkcosim"
            )
        self._look_out()
        self._forget_host()


def _used_pages(memory: DeviceMemory, ranges: list[tuple[int, int]]) -> np.ndarray:
    """Mapped pages that hold anything but zeros: uint32 of shape (n,), in order."""
    rows = memory.array.reshape(-1, PAGE).view(np.uint64)
    found = [np.zeros(0, np.uint32)]
    for iova, size in ranges:
        first = iova // PAGE
        used = np.flatnonzero(rows[first : first + size // PAGE].any(axis=1))
        found.append((used + first).astype(np.uint32))
    return np.concatenate(found)


def _image(file: SnapshotFile) -> tuple[np.ndarray, np.ndarray]:
    """Page numbers, and their bytes of shape (n, 4096)."""
    pages = np.frombuffer(file.blocks["pages"], np.uint32)
    return pages, np.frombuffer(file.blocks["memory"], np.uint8).reshape(-1, PAGE)
