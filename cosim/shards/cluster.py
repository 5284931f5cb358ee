"""A Dask cluster: on this machine, or a user's own; work sent out, events and results taken in.

Nothing is assumed of workers but Python and this project in the client's version: there is no shared file
system, and each builds its engine into its own cache.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from cosim.engines.threads import processors
from cosim.shards.errors import ClusterError, WorkersLost
from cosim.shards.version import QUERY, version

ANSWER_SECONDS = 30
"""How long a scheduler may take to answer, and its first worker to come."""

START_SECONDS = 120
"""How long the workers of a local cluster may take to start."""

GONE_SECONDS = 60
"""How long there may be no worker at all while there is work."""

SILENT_SECONDS = 3600
"""How long nothing at all may be heard while there is work; a first build of an engine takes minutes."""

CLOSE_SECONDS = 10

SPAWN_SECONDS = 10
"""How long starting the processes themselves may take, in which Ctrl-C is not heard."""

_NOISY = ("distributed", "tornado", "asyncio")

GONE = "the scheduler is gone"

MISSING = "this needs Dask, the Python package distributed: pip install 'rkcosim[shards]'"

_SETTINGS = {
    "distributed.admin.large-graph-warning-threshold": "1GB",  # images are large, on purpose
    "distributed.worker.daemon": True,
    "distributed.comm.timeouts.connect": f"{ANSWER_SECONDS}s",
    "distributed.worker.memory.target": False,  # images are no data to spill or to restart a worker for
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


@dataclass
class Ticket:
    """Work that was sent out.

    Members
    -------
    name : for people.
    worker : address of who has it, or had it last.
    starts : how often it was begun; more than once where workers were lost.
    said, done : the last that it told.
    ended : whether it is over.
    """

    key: str
    name: str
    worker: str = ""
    starts: int = 0
    said: str = ""
    done: int = 0
    ended: bool = False
    future: Any = None
    value: Any = None
    error: BaseException | None = None

    @property
    def retries(self) -> int:
        """How often it was begun again."""
        return max(0, self.starts - 1)

    def result(self) -> Any:
        """What it gave.

        Raises
        ------
        ClusterError
            if workers were lost with it too often, or it was given up.
        Exception
            what it raised.
        """
        if self.error is not None:
            raise self.error
        return self.value


@dataclass
class Cluster:
    """A connected cluster; `open_cluster` makes one.

    Members
    -------
    workers : threads of all workers together at the start.
    kind : "local", or the scheduler's address.
    """

    client: Any
    kind: str
    workers: int
    tickets: dict[str, Ticket] = field(default_factory=dict)
    _topic: str = ""
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _heard: float = field(default_factory=time.monotonic)
    _changed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._topic = f"rkcosim-{os.urandom(6).hex()}"
        self.client.subscribe_topic(self._topic, self._event)

    def keep(self, value: Any, name: str) -> Any:
        """Send something that much work will need, once; give it to `send` as an argument."""
        key = f"{self._topic}-{name}-{next(self._numbers)}"
        return self.client.submit(_same, value, key=key, pure=False)

    def send(self, work: Callable[..., Any], *arguments: Any, name: str) -> Ticket:
        """Let a worker call `work(*arguments, told)`, `told` as in `cosim.shards.run.run_shard`.

        `work` must be importable there.  When its worker is lost, another one begins it again.
        """
        ticket = Ticket(f"{self._topic}-{next(self._numbers)}", name)
        with self._lock:
            self.tickets[ticket.key] = ticket
        ticket.worker = self._least()
        ticket.future = self.client.submit(
            _work,
            work,
            self._topic,
            ticket.key,
            *arguments,
            key=ticket.key,
            pure=False,
            workers=[ticket.worker] if ticket.worker else None,
            allow_other_workers=bool(ticket.worker),  # if it is lost, or another one has nothing to do
        )
        self._heard = time.monotonic()
        ticket.future.add_done_callback(lambda _: self._changed.set())
        return ticket

    def wait(self, tickets: list[Ticket], seconds: float) -> None:
        """Wait until one more of some tickets has ended, at most so long.

        Raises
        ------
        ClusterError
            if the scheduler, or all workers for a while, are gone, or nothing has been heard for long.
        """
        self._changed.wait(seconds)
        self._changed.clear()
        for ticket in tickets:
            if not ticket.ended and ticket.future.done():
                self._end(ticket)
        if not all(ticket.ended for ticket in tickets):
            self._check()

    def _least(self) -> str:
        """The worker with least to do; Dask by itself prefers those that hold the image already."""
        threads = self._threads()
        busy = [ticket.worker for ticket in self.tickets.values() if not ticket.ended]
        return min(threads, key=lambda worker: busy.count(worker) / threads[worker], default="")

    def _threads(self) -> dict[str, int]:
        """Threads of each worker that is there."""
        try:
            return dict(self.client.nthreads())
        except Exception as error:
            raise WorkersLost(f"{GONE} ({_short(error)})") from error

    def _end(self, ticket: Ticket) -> None:
        ticket.ended = True
        state = ticket.future.status
        try:
            ticket.value = ticket.future.result(timeout=ANSWER_SECONDS)
        except Exception as error:
            if self.client.status != "running":
                ticket.error = WorkersLost(GONE)
            elif state in ("cancelled", "lost") or type(error).__module__.startswith("distributed"):
                ticket.error = WorkersLost(f"{ticket.name}: its workers were lost ({_short(error)})")
                ticket.error.__cause__ = error
            else:
                ticket.error = error
        ticket.future.release()
        ticket.future = None
        self._heard = time.monotonic()

    def _check(self) -> None:
        now = time.monotonic()
        if self.client.status not in ("running", "connecting"):
            raise WorkersLost(GONE)
        quiet = now - self._heard
        if quiet > GONE_SECONDS and not self._threads():
            raise WorkersLost(f"there has been no worker for {GONE_SECONDS} s")
        if quiet > SILENT_SECONDS:
            raise WorkersLost(f"the workers have said nothing for {SILENT_SECONDS} s")

    def _event(self, event: Any) -> None:
        """Take what a worker tells; called by the client's own thread."""
        stamp, message = event
        del stamp
        with self._lock:
            ticket = self.tickets.get(message["key"])
        if ticket is None:
            return
        self._heard = time.monotonic()
        if message["begins"]:
            ticket.starts += 1
            ticket.worker, ticket.said, ticket.done = message["worker"], "", 0
        else:
            ticket.said, ticket.done = message["said"], message["done"]

    def close(self) -> None:
        """Give up what is under way and leave the cluster."""
        with contextlib.suppress(Exception):
            self.client.unsubscribe_topic(self._topic)
        for ticket in self.tickets.values():
            if ticket.future is not None:
                with contextlib.suppress(Exception):
                    ticket.future.cancel()


def _same(value: Any) -> Any:
    return value


def _work(work: Callable[..., Any], topic: str, key: str, *arguments: Any) -> Any:
    """Runs in a worker: calls `work` and passes on what it tells."""
    from distributed import get_worker

    worker = get_worker()

    def event(begins: bool, said: str = "", done: int = 0) -> None:
        message = {"key": key, "worker": worker.address, "begins": begins, "said": said, "done": done}
        worker.log_event(topic, message)

    def told(said: str, done: int) -> None:
        state = worker.state.tasks.get(key)
        if state is None or state.state not in ("executing", "long-running"):
            raise ClusterError("given up")
        event(False, said, done)

    event(True)
    return work(*arguments, told)


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


@contextmanager
def open_cluster(scheduler: str | None = None, workers: int | None = None) -> Iterator[Cluster]:
    """Connect to a cluster, a local one by default, and check that its workers are of this version.

    Parameters
    ----------
    scheduler : address of a Dask scheduler, as "tcp://host:8786"; None starts a cluster of processes here.
    workers : processes of the local cluster; by default one for each processor.

    Raises
    ------
    ClusterError
        if Dask is missing, nobody answers, there is no worker, or a worker has another version.
    """
    try:
        import dask
        import distributed
    except ImportError as error:
        raise ClusterError(MISSING) from error
    if workers is not None and workers < 1:
        raise ClusterError(f"a cluster has at least one worker, not {workers}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(dask.config.set(_SETTINGS))
        address: Any = scheduler
        count = 1
        if scheduler is None:
            count = workers or processors()
            address = stack.enter_context(_local(distributed, count))
        client = stack.enter_context(_client(distributed, address, scheduler))
        threads = _threads(client, count, scheduler)
        _check_versions(client)
        cluster = Cluster(client, scheduler or "local", threads)
        try:
            yield cluster
        finally:
            cluster.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Let Dask's loggers say nothing: what counts comes back as an error."""
    names = ["tornado", "asyncio", *logging.root.manager.loggerDict]
    loggers = [logging.getLogger(name) for name in names if name.split(".")[0] in _NOISY]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"(distributed|dask|contextlib)")
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)


@contextmanager
def _local(distributed: Any, workers: int) -> Iterator[Any]:
    """A cluster of `workers` processes that leave Ctrl-C to this one."""
    try:
        cluster = distributed.LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # None would still take port 8787
            scheduler_kwargs={"dashboard": False},
            worker_dashboard_address=None,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
            death_timeout=START_SECONDS,
        )
    except Exception as error:
        raise ClusterError(f"no local cluster could be started: {_short(error)}") from error
    try:
        with _deaf():  # what a process ignores, those that it starts ignore as well
            cluster.scale(workers)
            until = time.monotonic() + SPAWN_SECONDS
            while len(_processes(cluster)) < workers and time.monotonic() < until:
                time.sleep(0.02)
        yield cluster
    finally:
        _close(cluster)


@contextmanager
def _deaf() -> Iterator[None]:
    """Do not hear Ctrl-C, in the thread that could."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _processes(cluster: Any) -> list[int]:
    """Ids of the processes that a local cluster has started."""
    nannies = list(cluster.workers.values())
    return [nanny.process.pid for nanny in nannies if nanny.process is not None and nanny.process.pid]


def _close(cluster: Any) -> None:
    """End a local cluster and its processes, also one that is half started."""
    processes = _processes(cluster)
    try:
        cluster.close(timeout=CLOSE_SECONDS)
    except Exception:  # a worker that is being started cannot be closed
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(Exception):
            cluster.close(timeout=CLOSE_SECONDS)
    cluster.shutdown_on_close = False  # or Dask tries again at exit


@contextmanager
def _client(distributed: Any, address: Any, scheduler: str | None) -> Iterator[Any]:
    try:
        client = distributed.Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(f"no Dask scheduler answers at {scheduler} ({_short(error)})") from error
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=CLOSE_SECONDS)


def _threads(client: Any, count: int, scheduler: str | None) -> int:
    """Wait for `count` workers; threads of all that are there."""
    seconds = ANSWER_SECONDS if scheduler else START_SECONDS
    try:
        client.wait_for_workers(count, timeout=seconds)
    except Exception as error:
        hint = f"; 'dask worker {scheduler}' starts one" if scheduler else ""
        what = "no worker came" if scheduler else "not all workers started"
        raise ClusterError(f"{what} within {seconds} s{hint}") from error
    return max(1, sum(client.nthreads().values()))


def _check_versions(client: Any) -> None:
    """Refuse workers of another version, or without this project.

    Raises
    ------
    ClusterError
        naming the worker and both versions.
    """
    ours = version()
    found = client.run(eval, QUERY, on_error="return")
    for worker, theirs in sorted(found.items()):
        if isinstance(theirs, BaseException):
            raise ClusterError(f"worker {worker} cannot use rkcosim: {_short(theirs)}; this is {ours}")
        if theirs != ours:
            raise ClusterError(f"worker {worker} has rkcosim {theirs}, this is {ours}")
