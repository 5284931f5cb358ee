"""Queues of jobs, timers, and the one thread at a time that runs the device."""

from __future__ import annotations

import heapq
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable
from errno import EINTR, EIO
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sw.driver.core_port import CorePort
from sw.driver.device import SharedMemory
from sw.driver.kernel.clock import Clock, Load
from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.jobs import Job, Timer
from sw.driver.kernel.log import Log
from sw.driver.kernel.memory import Mmu

if TYPE_CHECKING:
    from sw.driver.device import Device
    from sw.driver.kernel.files import File

T = TypeVar("T")

CHUNK_FIRST, CHUNK_LAST = 1 << 11, 1 << 32
"""Cycles between two looks at the queues: the first try, and the most."""

CHUNK_SECONDS = 0.002
"""Host time that such a stretch should take."""

TIMERS = 64
"""Timers to keep before the cancelled ones are thrown out."""

FAILURES = 16
"""Device errors in a row without progress after which jobs end with EIO."""


class Scheduler:
    """Starts jobs on idle cores, oldest first, and runs the device while there is work.

    All cores work in one IOMMU domain at a time: a job of another one waits until all cores are idle, and
    younger jobs wait behind it.  Time goes on only while a job runs or a timer is set; with no job at work
    it jumps to the next timer.

    One thread at a time runs the device ("the device's thread"): one of the scheduler's own, or, to spare
    the change of threads, that of a program which waits for its job (`take_over`).

    Parameters
    ----------
    device
        engine or golden model; from now on nobody else may use it.
    clock
        its clock.
    log
        the kernel's log.
    isolate
        reset a core when another client uses it next.
    """

    def __init__(self, device: Device, clock: Clock, log: Log, *, isolate: bool = True) -> None:
        self.device, self.clock, self.log, self.isolate = device, clock, log, isolate
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.mmu = Mmu(cast(SharedMemory, device.memory))
        self.ports = [CorePort(device, core) for core in range(device.cores)]
        self.load = Load(device.cores)
        self.cycle = device.cycle
        self.busy: dict[int, Job] = {}
        self._users: dict[int, File] = {}
        self.queues: dict[Hashable, deque[Job]] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._timers_room = TIMERS
        self._calls: deque[Callable[[], None]] = deque()
        self._numbers = 0
        self.submitted = 0
        self.faults_told = 0
        self._failures = 0
        self._chunk = CHUNK_FIRST
        self._stop = False
        self._idle, self._dozing = True, False
        self._work = threading.Condition(self.lock)
        self._runner: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name="rkcosim-kernel", daemon=True)
        self._thread.start()

    # For the threads of clients

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
        """There is something to do or to look at; with the lock held."""
        self._idle = False
        if self._runner is None:
            self._work.notify()
        elif self._dozing:
            self.changed.notify_all()

    def timer(
        self, nanoseconds: int, call: Callable[[], None], idle: Callable[[], bool] = lambda: False
    ) -> Timer:
        """Call back after some device time; with the lock held.  For `idle` see `Timer`."""
        timer = Timer(self.cycle + self.clock.cycles(max(0, nanoseconds)), call, idle)
        self._numbers += 1
        heapq.heappush(self._timers, (timer.deadline, self._numbers, timer))
        if len(self._timers) > self._timers_room:  # those of ended jobs would pile up until their deadlines
            self._timers = [item for item in self._timers if not item[2].cancelled]
            heapq.heapify(self._timers)
            self._timers_room = 2 * len(self._timers) + TIMERS
        self.wake()
        return timer

    def wait(self, file: File, done: Callable[[], bool], *, interruptible: bool = True) -> None:
        """Sleep until `done()`, which is called with the lock held; a thread that has taken over runs the
        device meanwhile, and must not hold the lock more than once.

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
                if self._runner is threading.current_thread() and not self._idle and not self._stop:
                    self._one_turn()
                else:
                    runs = self._runner is threading.current_thread()
                    self._dozing |= runs
                    self.changed.wait()
                    self._dozing &= not runs

    def take_over(self) -> bool:
        """Let this thread run the device while it waits, if none does; with the lock held.

        The main thread does not: a Ctrl-C would end it in the middle.  `hand_over` must follow.
        """
        thread = threading.current_thread()
        if self._runner is not None or self._stop or thread is threading.main_thread():
            return False
        self._runner = thread
        return True

    def hand_over(self) -> None:
        """This thread runs the device no more; with the lock held."""
        self._runner = None
        if self._calls or self.busy or self.queues or self._next() is not None or self._stop:
            self.wake()
        self.changed.notify_all()

    def wait_for(self, file: File, done: Callable[[], bool], nanoseconds: int) -> bool:
        """As `wait`, for at most some device time; whether it came true."""
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
        """Let the device's thread call `work` with the lock held, between two steps; its result or error."""
        if threading.current_thread() is self._runner:
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
        """Stop; jobs at work are abandoned."""
        with self.changed:
            self._stop = True
            self.changed.notify_all()
            self._work.notify()
            while self._runner not in (None, self._thread):
                self.changed.wait()
        self._thread.join()

    def outstanding(self, key: Hashable) -> list[Job]:
        """Jobs in a queue, those that run included."""
        return list(self.queues.get(key, ()))

    def all_jobs(self) -> list[Job]:
        """Every job that has not ended, oldest first."""
        jobs = {job.number: job for queue in self.queues.values() for job in queue}
        jobs.update((job.number, job) for job in self.busy.values())
        return [jobs[number] for number in sorted(jobs)]

    def end(self, job: Job, error: int = 0) -> None:
        """A job is over, well or not; with the lock held, of a running one in the device's thread."""
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
        """Call the device; what it raises goes to the log, as nothing a job does may stop the kernel."""
        try:
            return work()
        except Exception as error:  # diagnostics of any engine, and whatever hostile registers provoke
            self._failures += 1
            self.log.warn(f"rkcosim: {type(error).__name__}: {error}"[:2000])
            return fallback

    # The device's thread

    def _leave(self, job: Job, core: int) -> None:
        """A core is done with a job."""
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
        """Take the jobs that can start now: (job, core) in the order to start them."""
        begun: list[tuple[Job, int]] = []
        while not self._take(begun):
            pass  # a job ended instead of starting, so others may head the queues now
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
        except Exception as error:  # a mistake of this model: whoever waits must be told
            with self.changed:
                self.log.err(f"rkcosim: internal error: {type(error).__name__}: {error}")
                self.log.debug(traceback.format_exc())
                self._abandon()
        finally:
            self.lock.acquire()

    def _turn(self) -> None:
        """Start what can start, and let the device run for a while."""
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
        if begun:
            self._chunk = CHUNK_FIRST  # it may have grown while a hanging core let time jump
        for job, core in begun:
            if core in job.waiting:
                self.guard(partial(self._begin, job, core), None)
        with self.changed:
            self.stamp()
            self._fire(before)
            limit = self._next()
            lines = sum(1 << core for core in self.busy)
        budget = max(0, limit - self.cycle) if limit is not None else self._chunk
        self._step(lines, min(budget, self._chunk) if lines else budget)

    def _abandon(self) -> None:
        """Give up what runs and what is timed; with the lock held."""
        for job in set(self.busy.values()):
            self.end(job, EIO)
        self.guard(lambda: self.device.reset((1 << len(self.ports)) - 1), None)
        for _, _, timer in list(self._timers):
            if not timer.cancelled:
                timer.cancel()
                timer.call()

    def _begin(self, job: Job, core: int) -> None:
        """Start a job on a core, which is reset first if it holds the registers of another client."""
        if self.isolate and self._users.get(core, job.file) is not job.file:
            self.device.reset(1 << core)
        self._users[core] = job.file
        job.begin(self.ports[core])

    def stamp(self) -> None:
        """Look at the device's clock, after it has moved; in the device's thread, with the lock held."""
        self.cycle = self.guard(lambda: self.device.cycle, self.cycle)

    def _step(self, lines: int, budget: int) -> None:
        """Let the device run and answer its interrupts."""
        start, begin = time.monotonic(), self.cycle
        raised = self.guard(lambda: self.device.run_until_irq(lines, budget), 0)
        spent = time.monotonic() - start
        if not raised and budget >= self._chunk:
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
            self._fire(self.cycle)
            if self.cycle > begin:
                self._failures = 0
            elif self._failures >= FAILURES:
                self.log.err("rkcosim: the device does not go on, its jobs are given up")
                self._failures = 0
                self._abandon()
            self.changed.notify_all()
