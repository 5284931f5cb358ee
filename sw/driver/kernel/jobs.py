"""Jobs and timers, as the scheduler knows them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from sw.driver.core_port import CorePort
from sw.driver.kernel.fences import Fence
from sw.driver.kernel.memory import Domain, GemObject

if TYPE_CHECKING:
    from sw.driver.kernel.files import File


class Timer:
    """Calls back in the device's thread, with the lock held, when a cycle is reached.

    Parameters
    ----------
    deadline
        the cycle.
    call
        what to call.
    idle
        says that it is not needed any more, though whoever set it has not come round to `cancel` yet:
        time must not jump to its deadline then.
    """

    def __init__(self, deadline: int, call: Callable[[], None], idle: Callable[[], bool]) -> None:
        self.deadline, self.call, self._idle, self._cancelled = deadline, call, idle, False

    def cancel(self) -> None:
        """Forget it."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        """Whether it counts no more."""
        return self._cancelled or self._idle()


class Job:
    """Work for one or more cores.

    Only the device's thread changes a job that runs; a queued one may be dropped by whoever holds the lock.

    Members
    -------
    cores : numbers, lowest first; may be chosen as late as `ready`.
    state : "queued", "running" or "ended".
    error : errno it ended with, 0 if well.
    queues : keys of the queues it stands in.
    waiting : cores that have not finished.
    queued_at, started_at, ended_at : cycles, -1 before.
    fence : signals at the end.
    holds : buffers that live as long as it does.
    """

    def __init__(self, file: File, cores: list[int], domain: Domain, fence: Fence) -> None:
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
        """Whether nothing but its cores keeps it from starting; called when it heads its queues."""
        return True

    def prepare(self) -> None:
        """It is about to start; called once, with the lock held."""

    def begin(self, port: CorePort) -> None:
        """Start it on a core; called without the lock."""

    def interrupt(self, port: CorePort) -> bool:
        """Answer a core's interrupt; whether the core has finished.  Called without the lock."""
        raise NotImplementedError

    def ended(self) -> None:
        """It has ended; called once, with the lock held."""
