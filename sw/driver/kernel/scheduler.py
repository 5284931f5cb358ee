"""Jobs, their queues, timers, and the thread that runs the device."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from errno import EINTR, EIO
from functools import partial
from typing import Any, TypeVar, cast

from rkcosim.base.failures import is_internal, one_line
from rkcosim.driver.core_port import CorePort
from rkcosim.driver.device import Device, SharedMemory
from rkcosim.driver.kernel.clock import Clock, Load
from rkcosim.driver.kernel.fences import Fence
from rkcosim.driver.kernel.interface import Credentials, KernelError
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.memory import Domain, GemObject, Mmu
from rkcosim.driver.kernel.trouble import Trouble

T = TypeVar("T")
AnyJob = TypeVar("AnyJob", bound="Job")

CHUNK_FIRST, CHUNK_LAST = 1 << 11, 1 << 32
"""Initial and maximum number of cycles between two checks of the queues."""

CHUNK_SECONDS = 0.002
"""Host time in seconds that the device should run between two checks."""

TIMERS = 64
"""Number of timers that are kept before cancelled ones are removed."""

FAILURES = 16
"""Number of consecutive device errors without progress after which jobs end with EIO."""


class Client:
    """Data of the scheduler about an open file.

    Members
    -------
    credentials : those of the process that opened it.
    jobs : jobs that have not ended.
    interrupts : number of signals; a wait that began before the last one ends with EINTR.
    closed : whether the last descriptor has been closed.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self.jobs: set[Job] = set()
        self.interrupts = 0
        self.closed = False

    def job_ended(self, job: Job) -> None:
        """One of its jobs has ended; called with the lock held."""
        self.jobs.discard(job)


class Timer:
    """Call a function in the device's thread, with the lock held, when a cycle is reached.

    Parameters
    ----------
    deadline
        The cycle.
    call
        The function.
    idle
        Returns whether the timer is not needed any more although `cancel` has not been called yet; time must
        not jump to its deadline then.
    """

    def __init__(self, deadline: int, call: Callable[[], None], idle: Callable[[], bool]) -> None:
        self.deadline, self.call, self._idle, self._cancelled = deadline, call, idle, False

    def cancel(self) -> None:
        """Cancel the timer."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        """Whether the timer has been cancelled."""
        return self._cancelled or self._idle()


class Job:
    """Work for one or more cores.

    Only the device's thread changes a running job; a queued one may be dropped by any thread that holds the
    lock.

    Members
    -------
    cores : numbers, lowest first; may be selected as late as in `ready`.
    state : "queued", "running" or "ended".
    error : errno of its end, 0 for success.
    queues : keys of the queues that contain it.
    waiting : cores that have not finished.
    queued_at, started_at, ended_at : cycles, -1 before.
    fence : signals at the end.
    holds : buffers that it keeps alive.
    """

    def __init__(self, file: Client, cores: list[int], domain: Domain, fence: Fence) -> None:
        self.file, self.cores, self.domain, self.fence = file, cores, domain, fence
        self.state = "queued"
        self.error = 0
        self.number = 0
        self.queues: list[Hashable] = list(cores)
        self.waiting: set[int] = set()
        self.queued_at = self.started_at = self.ended_at = -1
        self.holds: list[GemObject] = []
        self.timers: list[Timer] = []

    def ready(self) -> bool:
        """Whether it can start as soon as its cores are idle; called when it is first in its queues."""
        return True

    def prepare(self) -> None:
        """Called once before the start, with the lock held."""

    def begin(self, port: CorePort) -> None:
        """Start the job on a core; called without the lock."""

    def interrupt(self, port: CorePort) -> bool:
        """Handle a core's interrupt; returns whether the core has finished.  Called without the lock."""
        raise NotImplementedError

    def ended(self) -> None:
        """Called once after the end, with the lock held."""


class Scheduler:
    """Start jobs on idle cores, oldest first, and run the device while there is work.

    All cores work in one IOMMU domain at a time: a job of another domain waits until all cores are idle, and
    younger jobs wait behind it.  Time advances only while a job runs or a timer is set; without a running job
    it jumps to the next timer.

    One thread at a time runs the device ("the device's thread"): the thread of the scheduler, or, to avoid
    a change of threads, that of a program which waits for its job (`run`).

    Parameters
    ----------
    device
        Engine or golden model; from now on only the scheduler may use it.
    clock
        Its clock.
    log
        Log of the kernel.
    isolate
        Reset a core before another client uses it.
    synchronous
        The scheduler has no thread: a thread that waits for a job runs the device and receives the exceptions
        of the device, which do not end the job; problems found by the device are not collected (`Trouble`).
    """

    def __init__(
        self, device: Device, clock: Clock, log: Log, *, isolate: bool = True, synchronous: bool = False
    ) -> None:
        self.device, self.clock, self.log, self.isolate = device, clock, log, isolate
        self.synchronous = synchronous
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.mmu = Mmu(cast(SharedMemory, device.memory))
        self.ports = [CorePort(device, core) for core in range(device.cores)]
        self.load = Load(device.cores)
        self.cycle = device.cycle
        self.busy: dict[int, Job] = {}
        self._users: dict[int, Client] = {}
        self.queues: dict[Hashable, deque[Job]] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._timers_room = TIMERS
        self._calls: deque[Callable[[], None]] = deque()
        self._numbers = 0
        self.submitted = 0
        self.trouble = Trouble(None if synchronous else device, log, self.guard)
        self._failures = 0
        self._chunk = CHUNK_LAST if synchronous else CHUNK_FIRST
        self._stop = False
        self._idle, self._dozing = True, False
        self._work = threading.Condition(self.lock)
        self._runner: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name="rkcosim-kernel", daemon=True)
        if not synchronous:
            self._thread.start()

    # Called by the threads of clients

    @property
    def time(self) -> int:
        """Device time in ns."""
        return self.clock.time(self.cycle)

    def submit(self, job: Job) -> None:
        """Queue a job; with the lock held."""
        self._numbers += 1
        self.submitted += 1
        job.number, job.queued_at = self._numbers, self.cycle
        for key in job.queues:
            self.queues.setdefault(key, deque()).append(job)
        job.file.jobs.add(job)
        self.wake()

    def wake(self) -> None:
        """Wake the device's thread, because there may be work; with the lock held."""
        self._idle = False
        if self._runner is None:
            self._work.notify()
        elif self._dozing:
            self.changed.notify_all()

    def timer(
        self, nanoseconds: int, call: Callable[[], None], idle: Callable[[], bool] = lambda: False
    ) -> Timer:
        """Call a function after some device time; with the lock held.  For `idle` see `Timer`."""
        timer = Timer(self.cycle + self.clock.cycles(max(0, nanoseconds)), call, idle)
        self._numbers += 1
        heapq.heappush(self._timers, (timer.deadline, self._numbers, timer))
        if len(self._timers) > self._timers_room:  # timers of ended jobs accumulate
            self._timers = [item for item in self._timers if not item[2].cancelled]
            heapq.heapify(self._timers)
            self._timers_room = 2 * len(self._timers) + TIMERS
        self.wake()
        return timer

    def wait(self, file: Client, done: Callable[[], bool], *, interruptible: bool = True) -> None:
        """Sleep until `done()`, which is called with the lock held.

        A thread that has taken over runs the device meanwhile, and must not hold the lock more than once.

        Raises
        ------
        KernelError
            EINTR when the file is interrupted (if `interruptible`) or closed.
        """
        with self.changed:
            seen = file.interrupts
            while not done():
                if file.closed or (interruptible and file.interrupts != seen):
                    raise KernelError(EINTR, "interrupted")
                if self.synchronous:
                    self._take_over()  # the thread that ran the device may have ended
                if self._runner is threading.current_thread() and not self._idle and not self._stop:
                    self._one_turn()
                else:
                    runs = self._runner is threading.current_thread()
                    self._dozing |= runs
                    self.changed.wait()
                    self._dozing &= not runs

    def run(self, file: Client, queue: Callable[[], AnyJob]) -> AnyJob:
        """Submit a job with `queue`, called with the lock held, wait for its end and return it.

        The calling thread runs the device meanwhile, if no other thread does.
        """
        try:
            with self.lock:
                self._take_over()
                job = queue()
            self.wait(file, lambda: job.state == "ended", interruptible=False)
            return job
        finally:
            with self.lock:
                self._hand_over()

    def _take_over(self) -> None:
        """Let this thread run the device while it waits, if no thread does; with the lock held.

        The main thread does so in synchronous mode only, because a Ctrl-C could stop it at any point.
        """
        thread = threading.current_thread()
        if self._runner is None and not self._stop:
            if self.synchronous or thread is not threading.main_thread():
                self._runner = thread

    def _hand_over(self) -> None:
        """Stop running the device in this thread, if it did; with the lock held."""
        if self._runner is not threading.current_thread():
            return
        self._runner = None
        if self._calls or self.busy or self.queues or self._next() is not None or self._stop:
            self.wake()
        self.changed.notify_all()

    def wait_for(self, file: Client, done: Callable[[], bool], nanoseconds: int) -> bool:
        """As `wait`, for at most some device time; returns whether `done()` became true."""
        with self.changed:
            if done():
                return True
            late: list[bool] = []
            seen = file.interrupts

            def idle() -> bool:
                return file.closed or file.interrupts != seen or done()

            timer = self.timer(nanoseconds, lambda: late.append(True), idle)
            try:
                self.wait(file, lambda: bool(late) or done())
            finally:
                timer.cancel()
            return done()

    def call(self, work: Callable[[], T]) -> T:
        """Let the device's thread call `work` with the lock held, between two steps; returns its result."""
        if threading.current_thread() is self._runner:
            return work()
        if self.synchronous:
            with self.changed:
                self.changed.wait_for(lambda: self._runner is None)
                return work()
        result: list[Any] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                result.append(work())
            except BaseException as error:
                failure.append(error)
            self.changed.notify_all()

        with self.changed:
            self._calls.append(run)
            self.wake()
            while not result and not failure:
                if self._stop:
                    raise KernelError(EIO, "the kernel has stopped")
                self.changed.wait()
        if failure:
            raise failure[0]
        return result[0]

    def close(self) -> None:
        """Stop; running jobs are abandoned."""
        with self.changed:
            self._stop = True
            self.changed.notify_all()
            self._work.notify()
            while self._runner not in (None, self._thread):
                self.changed.wait()
        if not self.synchronous:
            self._thread.join()

    def outstanding(self, key: Hashable) -> list[Job]:
        """Jobs in a queue, including those that run."""
        return list(self.queues.get(key, ()))

    def all_jobs(self) -> list[Job]:
        """Every job that has not ended, oldest first."""
        jobs = {job.number: job for queue in self.queues.values() for job in queue}
        jobs.update((job.number, job) for job in self.busy.values())
        return [jobs[number] for number in sorted(jobs)]

    def end(self, job: Job, error: int = 0) -> None:
        """End a job, successfully or not; with the lock held, for a running one in the device's thread."""
        if job.state == "ended":
            return
        for core in list(job.waiting):
            self._leave(job, core)
        for key in list(job.queues):
            self._unqueue(job, key)
        job.state, job.error, job.ended_at = "ended", error, self.cycle
        for timer in job.timers:
            timer.cancel()
        job.ended()
        job.fence.signal(self.time, error)
        for item in job.holds:
            item.drop()
        job.file.job_ended(job)
        self.changed.notify_all()

    def guard(self, work: Callable[[], T], fallback: T) -> T:
        """Call the device and log its exceptions, because no job may stop the kernel.

        In synchronous mode the caller receives them.
        """
        if self.synchronous:
            return work()
        try:
            return work()
        except Exception as error:  # diagnostics of any engine, and the effects of arbitrary register values
            self._failures += 1
            if is_internal(error):
                self.log.failed("the device", error)
            else:
                self.log.warn(f"rkcosim: {one_line(error)}"[:2000])
            return fallback

    # The device's thread

    @contextmanager
    def unlocked(self) -> Iterator[None]:
        """Release the lock for other threads; in the device's thread, which holds it once.

        Afterwards jobs may have been added or removed; running jobs continue to run.
        """
        self.lock.release()
        try:
            yield
        finally:
            self.lock.acquire()

    def _leave(self, job: Job, core: int) -> None:
        """A core has finished a job."""
        job.waiting.discard(core)
        if self.busy.get(core) is job:
            del self.busy[core]
            start = max(job.started_at, 0)
            self.load.add(core, self.clock.time(start), self.time)
        if core in job.queues:
            self._unqueue(job, core)

    def _unqueue(self, job: Job, key: Hashable) -> None:
        job.queues.remove(key)
        queue = self.queues[key]
        queue.remove(job)
        if not queue:
            del self.queues[key]

    def _pick(self) -> list[tuple[Job, int]]:
        """Remove the jobs that can start now from their queues: (job, core) in the order of their start."""
        begun: list[tuple[Job, int]] = []
        while not self._take(begun):
            pass  # a job ended instead of starting, so that other jobs may be first in the queues now
        self.guard(self.mmu.refresh, None)
        return begun

    def _take(self, begun: list[tuple[Job, int]]) -> bool:
        heads = {queue[0].number: queue[0] for queue in self.queues.values() if queue[0].state == "queued"}
        taken: set[int] = set(self.busy)
        for _, job in sorted(heads.items()):
            if any(self.queues[key][0] is not job for key in job.queues) or not job.ready():
                continue
            if not taken.isdisjoint(job.cores):
                taken.update(job.cores)
                continue
            if job.domain is not self.mmu.domain and self.busy:
                break
            self.guard(partial(self.mmu.use, job.domain), None)
            job.state, job.started_at, job.waiting = "running", self.cycle, set(job.cores)
            self.busy.update(dict.fromkeys(job.cores, job))
            job.prepare()
            if job.state == "ended":
                return False
            taken.update(job.cores)
            begun += [(job, core) for core in job.cores]
        return True

    def _fire(self, until: int) -> None:
        """Call the timers that are due."""
        while self._timers and (self._timers[0][2].cancelled or self._timers[0][0] <= until):
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.call()
                self.stamp()

    def _next(self) -> int | None:
        """Cycle of the next timer."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _run(self) -> None:
        with self.changed:
            while not self._stop:
                if self._runner is not None or self._idle:
                    self._work.wait()
                    continue
                self._runner = self._thread
                while not self._idle and not self._stop:
                    self._one_turn()
                self._runner = None

    def _one_turn(self) -> None:
        """Called with the lock held once; releases it meanwhile."""
        self.lock.release()
        try:
            self._turn()
        except Exception as error:  # an error in this model: waiting threads must be notified
            if self.synchronous:
                raise
            with self.changed:
                self.log.failed("the device's thread", error)
                self._abandon()
        finally:
            self.lock.acquire()

    def _turn(self) -> None:
        """Start the jobs that can start, and let the device run for a while."""
        with self.changed:
            while self._calls:
                self._calls.popleft()()
                self.stamp()
            if self._stop:
                return
            begun = self._pick()
            if not begun and not self.busy and self._next() is None:
                self._idle = not self._calls
                return
            before = self.cycle
        if begun and not self.synchronous:
            self._chunk = CHUNK_FIRST  # it may have grown while time jumped for a core that hangs
        for job, core in begun:
            if core in job.waiting:
                self.guard(partial(self._begin, job, core), None)
        with self.changed:
            self.stamp()
            self._fire(before)
            limit = self._next()
            lines = sum(1 << core for core in self.busy)
        budget = max(0, limit - self.cycle) if limit is not None else self._chunk
        self._step(lines, min(budget, self._chunk))  # close to the timer, because sleeping blocks are skipped

    def _abandon(self) -> None:
        """Abandon running jobs and timers; with the lock held."""
        for job in set(self.busy.values()):
            self.end(job, EIO)
        self.guard(lambda: self.device.reset((1 << len(self.ports)) - 1), None)
        for _, _, timer in list(self._timers):
            if not timer.cancelled:
                timer.cancel()
                timer.call()

    def _begin(self, job: Job, core: int) -> None:
        """Start a job on a core, which is reset first if it has the registers of another client."""
        if self.isolate and self._users.get(core, job.file) is not job.file:
            self.device.reset(1 << core)
        self._users[core] = job.file
        job.begin(self.ports[core])

    def stamp(self) -> None:
        """Read the device's clock after the device has run; in the device's thread, with the lock held."""
        self.cycle = self.guard(lambda: self.device.cycle, self.cycle)

    def _step(self, lines: int, budget: int) -> None:
        """Run the device and handle its interrupts."""
        start, begin = time.monotonic(), self.cycle
        raised = self.guard(lambda: self.device.run_until_irq(lines, budget), 0)
        spent = time.monotonic() - start
        if not raised and budget >= self._chunk and not self.synchronous:
            factor = 2 if spent < CHUNK_SECONDS else 0.5 if spent > 4 * CHUNK_SECONDS else 1
            self._chunk = min(CHUNK_LAST, max(CHUNK_FIRST, int(self._chunk * factor)))
        finished: list[tuple[Job, int]] = []
        for core in range(len(self.ports)):
            if raised >> core & 1 and (job := self.busy.get(core)) is not None:
                if self.guard(partial(job.interrupt, self.ports[core]), False):
                    finished.append((job, core))
        with self.changed:
            self.stamp()
            for job, core in finished:
                self._leave(job, core)
                if not job.waiting:
                    self.end(job, job.error)
            # Without other threads a device only returns without an interrupt at the end of its budget,
            # so the time is over even if its clock shows less.
            over = begin + budget if self.synchronous and not raised else 0
            self._fire(max(self.cycle, over))
            if self.cycle > begin:
                self._failures = 0
            elif self._failures >= FAILURES:
                self.log.err("rkcosim: the device makes no progress, its jobs are given up")
                self._failures = 0
                self._abandon()
            self.changed.notify_all()
