"""Programs that are debugged: each of their jobs waits before it starts, until the debugger has left it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.debug.opening import Debugged, DebuggedJob, NamedJobs, outputs_of
from rkcosim.devices.recorder import Captured, Recorder
from rkcosim.verify.streams.contents import StreamContents
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.sources import SourceError

POLL = 0.05
"""Seconds between two looks at whether a wait was given up."""


STANDARD_ERROR = 2
"""Number of the file of standard error."""


@dataclass
class _Held:
    """A job that has not started: it starts when `go` is set."""

    captured: Captured
    go: threading.Event = field(default_factory=threading.Event)


class DebuggedProgram:
    """A program that calls `rknn_api.h` or the kernel drivers, whose jobs are debugged.

    The library and the device files have a device each, on the golden model. A job is debugged on a copy of
    the memory, forwards and backwards, while the program waits for it. When the debugger leaves the job, it
    runs on the program's device, and the program goes on.

    Parameters
    ----------
    arguments : the program and its arguments. It gets no input.
    cores : cores of its device.
    quiet : send what the program prints to standard error, because standard output has messages of a client.

    Raises
    ------
    SourceError
        if the program cannot be started.
    """

    def __init__(self, arguments: Sequence[str], cores: int = 3, *, quiet: bool = False) -> None:
        self._queue: queue.SimpleQueue[_Held | int] = queue.SimpleQueue()
        self._current: _Held | None = None
        self._lock = threading.Lock()
        self._over = False
        self._ended = ""
        self._contexts: dict[int, NamedJobs] = {}
        self._stack = contextlib.ExitStack()
        try:
            self._process = self._started(list(arguments), cores, quiet)
        except BaseException:
            self._stack.close()
            raise
        threading.Thread(target=self._watch, name="debugged program", daemon=True).start()

    def _started(self, arguments: list[str], cores: int, quiet: bool) -> subprocess.Popen[bytes]:
        """Open a device and its servers, and start the program with them."""
        from rkcosim import rknn_api
        from rkcosim.devices import program
        from rkcosim.devices.ending import Ending
        from rkcosim.devices.rknn_surroundings import rknn_surroundings
        from rkcosim.devices.simulated import SimulatedMachine
        from rkcosim.driver import Driver
        from rkcosim.engines.engine import open_engine

        stack = self._stack
        reason = program.why_not(arguments[0])
        if reason is not None:
            raise SourceError(f"{arguments[0]}: {reason}")
        program.many_descriptors()
        machine = stack.enter_context(SimulatedMachine("golden", cores=cores, begun=self._hold))
        engine = stack.enter_context(contextlib.closing(open_engine("golden", cores=cores)))
        ending = None
        if threading.current_thread() is threading.main_thread():
            ending = stack.enter_context(Ending(program.ENDING))
        stack.callback(rknn_api.use_device, None)
        rknn_api.use_device(Driver(Recorder(engine, lambda captured: None, self._hold), shared=True))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rkcosim-")))
        if ending is not None:
            ending.at_last(lambda: _remove(folder))
        env = stack.enter_context(rknn_surroundings(folder, machine.failures, files=machine.kernel))
        output = STANDARD_ERROR if quiet else None
        try:
            process = subprocess.Popen(
                arguments, env=env, stdin=subprocess.DEVNULL, stdout=output, start_new_session=True
            )
        except OSError as error:
            raise SourceError(f"{arguments[0]}: {error.strerror or error}") from None
        if ending is not None:
            ending.program(process)
        return process

    def _watch(self) -> None:
        self._queue.put(self._process.wait())

    def _hold(self, captured: Captured) -> None:
        """Wait, in the thread of the device, until a job may start."""
        held = _Held(captured)
        with self._lock:
            if self._over:
                return
            self._queue.put(held)
        held.go.wait()

    @property
    def ended(self) -> str:
        """How the program ended, "" if it runs."""
        return self._ended

    def wait(self, work: Debugged, paused: threading.Event) -> bool:
        """As `RunningProgram`."""
        if self._current is not None:
            self._current.go.set()
            self._current = None
        while not self._over and not paused.is_set():
            try:
                found = self._queue.get(timeout=POLL)
            except queue.Empty:
                continue
            if isinstance(found, int):
                self._finish()
                by = f"by signal {-found}" if found < 0 else f"with exit code {found}"
                self._ended = f"the program ended {by}"
                break
            self._current = found
            self._add(work, found.captured)
            return True
        return False

    def _add(self, work: Debugged, captured: Captured) -> None:
        """Add a job, with the names of the model that it belongs to."""
        number, stream = len(work.jobs), captured.stream
        _share(stream, work.jobs[-1].stream if work.jobs else None)
        named = self._named(stream)
        if named is not None:
            job = named.add(stream, number, f"{work.name}, job {number}")
            work.tensors |= named.tensors()
        else:
            program = program_of_stream(stream, f"{work.name}, job {number}")
            job = DebuggedJob(stream, program, ["" for _ in program.tasks])
        work.jobs.append(job)
        if named is None:
            work.tensors |= outputs_of([job], number)
        work.regions = {region.name: region for region in stream.regions}

    def _named(self, stream: StreamContents) -> NamedJobs | None:
        """Return the names of the context of `rknn_api` whose model has the job's first list."""
        from rkcosim.rknn_api.state import runtime

        for state in list(runtime.contexts.values()):
            loaded = getattr(state, "loaded", None)
            if loaded is None:
                continue
            places = {
                entry.address: number
                for number, entry in enumerate(loaded.tasks.tasks)
                if entry.address is not None
            }
            if stream.kick.base in places:
                key = id(loaded)
                if key not in self._contexts:
                    self._contexts[key] = NamedJobs(state.model, dict(loaded.bases), places)
                return self._contexts[key]
        return None

    def _finish(self) -> None:
        """Let all jobs that wait go on, and hold no further ones."""
        with self._lock:
            self._over = True
        if self._current is not None:
            self._current.go.set()
            self._current = None
        while not self._queue.empty():
            found = self._queue.get()
            if isinstance(found, _Held):
                found.go.set()

    def close(self) -> None:
        """End the program and everything that serves it."""
        if self._process.poll() is None:
            self._ended = self._ended or "the program was killed"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._finish()
        self._process.wait()
        self._stack.close()


def _share(stream: Any, before: Any) -> None:
    """Let a stream have the arrays of the job before it for regions that are equal."""
    if before is None:
        return
    known = {(region.address, region.data.size): region for region in before.regions}
    for index, region in enumerate(stream.regions):
        same = known.get((region.address, region.data.size))
        if same is not None and same.name == region.name and np.array_equal(same.data, region.data):
            stream.regions[index] = same


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def open_program(arguments: Sequence[str], cores: int = 3, *, quiet: bool = False) -> Debugged:
    """Start a program and wait for its first job; for the parameters see `DebuggedProgram`.

    Raises
    ------
    SourceError
        if the program cannot be started, or ends without a job.
    """
    program = DebuggedProgram(arguments, cores, quiet=quiet)
    work = Debugged(Path(arguments[0]).name, [], {}, program=program)
    try:
        found = program.wait(work, threading.Event())
    except BaseException:
        program.close()
        raise
    if not found:
        program.close()
        raise SourceError(f"{arguments[0]}: {program.ended}, and started no job")
    return work
