"""Work for the cores of an engine that runs while the host waits for something else: `engine.submit`.

Simulated time passes only while the host waits for a result, so the cycles of each job do not depend on the
speed of the host: they follow from the order of the calls alone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any, Generic, Protocol, TypeVar

from rkcosim.engines.protocol import DiagnosticError, EngineError

MAX_CYCLES = 10_000_000
"""Default bound of a job in cycles."""

STRETCH = 1 << 16
"""Cycles after which a wait looks at the time of the host."""

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class BegunWork(Protocol[T_co]):
    """Work that a core does."""

    def end(self, raised: bool) -> T_co:
        """Return the result after the core's interrupt; False: the bound of cycles was reached without one.

        Raises what the caller of `Submission.result` shall get.
        """
        ...

    def failed(self, error: Exception) -> Exception:
        """Stop the core after an error of the engine; return what the caller shall get."""
        ...

    def cancel(self) -> None:
        """Stop the core."""
        ...


class CoreWork(Protocol[T_co]):
    """Work for one core: `rkcosim.Stream` and `rkcosim.TaskList`."""

    @property
    def core(self) -> int:
        """The core that it is meant for."""
        ...

    def begin(self, engine: Any, core: int) -> BegunWork[T_co]:
        """Write what is needed to memory and registers, and start the core."""
        ...


class Submission(Generic[T]):
    """A job of one core, as `concurrent.futures.Future`: `result`, `exception`, `done`, `cancel`.

    A method that waits lets the engine simulate, all of its cores together, until this job has ended.
    Several threads may wait: they simulate in turns.

    Members
    -------
    core : the core that runs it.
    max_cycles : its bound in cycles from its start.
    started : cycle of its start, None while it waits for an earlier job of the core.
    """

    def __init__(self, queue: Submissions, work: CoreWork[T], core: int, max_cycles: int) -> None:
        self.core, self.max_cycles = core, max_cycles
        self.started: int | None = None
        self._queue, self._work = queue, work
        self._begun: BegunWork[T] | None = None
        self._state = "queued"
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Submission[T]], object]] = []

    def result(self, timeout: float | None = None) -> T:
        """Return the result; simulates until there is one.

        Parameters
        ----------
        timeout : seconds after which TimeoutError is raised (the job goes on at the next call); None: only
            the job's bound in cycles ends the wait.

        Raises
        ------
        JobError, JobTimeout
            if the job failed or did not end; see `rkcosim.engines.protocol`.
        concurrent.futures.CancelledError
            if it was cancelled, or the engine was closed.
        TimeoutError
            after `timeout`.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        result: T = self._result
        return result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the job, None if it has a result; waits and raises as `result`."""
        self._queue.advance(self, timeout)
        if self._state == "cancelled":
            raise CancelledError(f"the job of core {self.core} was cancelled")
        return self._error

    def done(self) -> bool:
        """Whether the job has ended or was cancelled; nothing is simulated."""
        return self._state in ("finished", "cancelled")

    def running(self) -> bool:
        """Whether the core works on the job."""
        return self._state == "running"

    def cancelled(self) -> bool:
        """Whether the job was cancelled."""
        return self._state == "cancelled"

    def cancel(self) -> bool:
        """Cancel the job; a core that works on it is reset. Returns False if it has already ended."""
        if self.done():
            return self.cancelled()
        self._queue.cancel(self)
        return self.cancelled()

    def add_done_callback(self, work: Callable[[Submission[T]], object]) -> None:
        """Call a function with this object when the job has ended or was cancelled."""
        if self.done():
            work(self)
        else:
            self._callbacks.append(work)

    def __repr__(self) -> str:
        state = "failed" if self._state == "finished" and self._error is not None else self._state
        return f"<job on core {self.core}, {state}>"

    # For the queue

    def _start(self, engine: Any) -> bool:
        """Start the core; returns False if that has failed."""
        try:
            self._begun = self._work.begin(engine, self.core)
        except Exception as error:
            self._close("finished", error=error)
            return False
        self.started, self._state = engine.cycle, "running"
        return True

    def _end(self, raised: bool) -> None:
        """Take the result."""
        assert self._begun is not None
        try:
            self._close("finished", self._begun.end(raised))
        except Exception as error:
            self._close("finished", error=error)

    def _fail(self, error: Exception) -> None:
        """Take an error of the engine."""
        assert self._begun is not None
        self._close("finished", error=self._begun.failed(error))

    def _stop(self) -> None:
        """Stop the core, if it works on the job."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.cancel()

    def _close(self, state: str, result: Any = None, error: BaseException | None = None) -> None:
        """Set the state after which nothing changes, and call the callbacks."""
        self._state, self._result, self._error = state, result, error
        self._begun = None
        callbacks, self._callbacks = self._callbacks, []
        for work in callbacks:
            work(self)

    @property
    def _left(self) -> int:
        """Cycles up to the bound; for a running job."""
        assert self.started is not None
        return self.started + self.max_cycles - int(self._queue.engine.cycle)


class Submissions:
    """The jobs of an engine: one running and any number of queued ones for each core.

    Parameters
    ----------
    engine : runs them; between the calls, others may use cores that have no job.
    errors : classes of errors of the engine that end the jobs of its cores.
    """

    def __init__(self, engine: Any, errors: tuple[type[Exception], ...] = (EngineError,)) -> None:
        self.engine, self._errors = engine, errors
        self._lock = threading.RLock()
        self._running: dict[int, Submission[Any]] = {}
        self._queued: dict[int, deque[Submission[Any]]] = {core: deque() for core in range(engine.cores)}

    def submit(
        self, work: CoreWork[T], core: int | None = None, max_cycles: int = MAX_CYCLES
    ) -> Submission[T]:
        """Start work on a core, or queue it behind the core's other jobs; nothing is waited for.

        Parameters
        ----------
        work : a `Stream` or a `TaskList`.
        core : number of the core; None: that of the stream.
        max_cycles : bound of its cycles.

        Returns
        -------
        The job, whose `result` waits for it; also an error at the start of the job is raised there.

        Raises
        ------
        ValueError
            for a core that the engine does not have, or a bound below 1.
        TypeError
            for anything but work for a core.
        """
        if not callable(getattr(work, "begin", None)):
            raise TypeError(f"submit takes a Stream or a TaskList, not {type(work).__name__}")
        chosen = work.core if core is None else core
        if chosen not in range(self.engine.cores):
            raise ValueError(f"the engine has {self.engine.cores} cores, the job is for core {chosen!r}")
        if max_cycles < 1:
            raise ValueError(f"max_cycles must be at least 1, not {max_cycles}")
        with self._lock:
            job = Submission(self, work, chosen, max_cycles)
            self._queued[chosen].append(job)
            self._start(chosen)
        return job

    def advance(self, job: Submission[Any], timeout: float | None = None) -> None:
        """Simulate until a job has ended; raises TimeoutError after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while not job.done():
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"the job of core {job.core} has not ended within {timeout} s")
            with self._lock:
                if not job.done():  # another thread may have simulated its end
                    self._step()

    def _step(self) -> None:
        """Simulate up to the next interrupt, at most to the next bound or the end of a stretch."""
        running = dict(self._running)
        mask = sum(1 << core for core in running)
        stretch = STRETCH - self.engine.cycle % STRETCH
        cycles = min(stretch, *(max(job._left, 0) for job in running.values()))
        try:
            raised = self.engine.run_until_irq(mask, cycles)
        except DiagnosticError as error:
            wrong = {one.core for one in error.diagnostics} & set(running)
            if not wrong:
                raise
            for core in sorted(wrong):
                self._take(core)._fail(error)
        except self._errors as error:
            for core in sorted(running):
                self._take(core)._fail(error)
        else:
            for core, job in sorted(running.items()):
                if raised >> core & 1 or job._left <= 0:
                    self._take(core)._end(bool(raised >> core & 1))
        for core in sorted(running):
            self._start(core)

    def _take(self, core: int) -> Submission[Any]:
        return self._running.pop(core)

    def _start(self, core: int) -> None:
        """Start the next job of a core that has none."""
        queued = self._queued[core]
        while queued and core not in self._running:
            job = queued.popleft()
            if job._start(self.engine):
                self._running[core] = job

    def cancel(self, job: Submission[Any]) -> None:
        """Cancel a job, unless it has ended."""
        with self._lock:
            if job.done():
                return
            if self._running.get(job.core) is job:
                del self._running[job.core]
                job._stop()
            else:
                self._queued[job.core].remove(job)
            job._close("cancelled")
            self._start(job.core)

    def close(self) -> None:
        """Cancel every job; the engine is being closed."""
        with self._lock:
            for queued in self._queued.values():
                while queued:
                    queued.popleft()._close("cancelled")
            while self._running:
                job = self._running.popitem()[1]
                with contextlib.suppress(Exception):
                    job._stop()
                job._close("cancelled")
