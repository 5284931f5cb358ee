"""A Dask cluster, on this machine or provided by the user: sends work and receives events and results.

Workers need only Python and this project in the client's version: there is no shared file
system, and each worker builds the engine in its own cache.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import os
import resource
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rkcosim.base import BAD_INPUT, DEVICE_ERROR, QUERY, version
from rkcosim.base.extras import needed
from rkcosim.engines.settings import processors

ANSWER_SECONDS = 30
"""Seconds within which a scheduler must answer and its first worker must appear."""

START_SECONDS = 120
"""Seconds within which the workers of a local cluster must start."""

GONE_SECONDS = 60
"""Seconds without any worker after which waiting for work is given up."""

SILENT_SECONDS = 3600
"""Seconds without any message after which waiting is given up; a first build of an engine takes minutes."""

CLOSE_SECONDS = 10

LOOK = 0.2
"""Seconds between two checks of the workers."""

SPAWN_SECONDS = 10
"""Seconds within which the processes must start."""

DESCRIPTORS, DESCRIPTORS_EACH = 64, 16
"""Descriptors that this process needs for a local cluster, and for each worker; with too few, Dask hangs."""

_PEERS = "rkcosim.measure.shards.peers"
"""Module that scheduler and workers of a local cluster import before they listen."""

GONE = "the connection to the scheduler was lost"

_SETTINGS = {
    "distributed.admin.large-graph-warning-threshold": "1GB",  # images are large
    "distributed.worker.daemon": True,
    "distributed.comm.timeouts.connect": f"{ANSWER_SECONDS}s",
    "distributed.worker.memory.target": False,  # images must not be spilled and must not restart a worker
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


class ClusterError(Exception):
    """A cluster cannot be used: Dask is missing, the scheduler does not answer, or versions differ."""

    exit_code = BAD_INPUT


class WorkersLost(ClusterError):
    """Workers were lost too often, or none is left."""

    exit_code = DEVICE_ERROR


@dataclass
class Ticket:
    """Work that was sent: a future of Dask, and the progress that its worker reports.

    Members
    -------
    name : name in messages.
    worker : address of the worker that has it, or had it last.
    starts : number of times it was started; more than one if workers were lost.
    said, done : the last report: current activity, and simulated cycles.
    ended : whether `result` is available.
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
        """Number of times it was started again."""
        return max(0, self.starts - 1)

    def result(self) -> Any:
        """Return the value that the work returned.

        Raises
        ------
        ClusterError
            If workers were lost with it too often, or it was cancelled.
        Exception
            Any exception that the work raised.
        """
        if self.error is not None:
            raise self.error
        return self.value


@dataclass
class Cluster:
    """A connected cluster, made by `open_cluster`.

    Members
    -------
    workers : number of threads of all workers together at the start.
    """

    client: Any
    workers: int
    tickets: dict[str, Ticket] = field(default_factory=dict)
    _topic: str = field(default_factory=lambda: f"rkcosim-{os.urandom(6).hex()}")
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _heard: float = field(default_factory=time.monotonic)
    _changed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.client.subscribe_topic(self._topic, self._event)

    def keep(self, value: Any) -> Any:
        """Send a value once that several works need; pass the result to `send` as an argument.

        It is the result of a task rather than scattered data, so that Dask can restore it when a worker is
        lost.
        """
        return self.client.submit(_same, value, key=f"{self._topic}-{next(self._numbers)}", pure=False)

    def send(self, work: Callable[..., Any], *arguments: Any, name: str) -> Ticket:
        """Let a worker call `work(*arguments, told)`, see `rkcosim.measure.shards.run.run_shard`.

        The worker must be able to import `work`.  If the worker is lost, Dask starts it on another one.
        """
        key, worker = f"{self._topic}-{next(self._numbers)}", self._least()
        ticket = self.tickets[key] = Ticket(key, name, worker)
        ticket.future = self.client.submit(
            _work,
            work,
            self._topic,
            key,
            *arguments,
            key=key,
            pure=False,
            workers=[worker] if worker else None,
            allow_other_workers=bool(worker),  # if it is lost, or another one is idle
        )
        self._heard = time.monotonic()
        ticket.future.add_done_callback(lambda _: self._changed.set())
        return ticket

    def wait(self, tickets: list[Ticket]) -> None:
        """Wait until one more of these tickets has ended, at most `LOOK` seconds.

        Raises
        ------
        ClusterError
            If the scheduler is lost, all workers are lost for some time, or no message came for long.
        """
        self._changed.wait(LOOK)  # `distributed.wait` would raise for a future that was cancelled
        self._changed.clear()
        under_way = [ticket for ticket in tickets if not ticket.ended]
        for ticket in under_way:
            if ticket.future.done():
                self._end(ticket)
        if not all(ticket.ended for ticket in under_way):
            self._check()

    def _least(self) -> str:
        """Return the worker with the least work; Dask itself would prefer workers that have the image."""
        threads = self._threads()
        busy = [ticket.worker for ticket in list(self.tickets.values()) if not ticket.ended]
        return min(threads, key=lambda worker: busy.count(worker) / threads[worker], default="")

    def _threads(self) -> dict[str, int]:
        """Return the number of threads of each worker."""
        try:
            return dict(self.client.nthreads())
        except Exception as error:
            raise WorkersLost(f"{GONE} ({_short(error)})") from error

    def _end(self, ticket: Ticket) -> None:
        state = ticket.future.status
        try:
            ticket.value = ticket.future.result(timeout=ANSWER_SECONDS)
        except Exception as error:
            ticket.error = error
            if self.client.status != "running":
                ticket.error = WorkersLost(GONE)
            elif state in ("cancelled", "lost") or type(error).__module__.startswith("distributed"):
                ticket.error = WorkersLost(f"{ticket.name}: its workers were lost ({_short(error)})")
                ticket.error.__cause__ = error
        ticket.future.release()
        ticket.future, ticket.ended = None, True
        self._heard = time.monotonic()

    def _check(self) -> None:
        quiet = time.monotonic() - self._heard
        if self.client.status not in ("running", "connecting"):
            raise WorkersLost(GONE)
        if quiet > GONE_SECONDS and not self._threads():
            raise WorkersLost(f"there was no worker for {GONE_SECONDS} s")
        if quiet > SILENT_SECONDS:
            raise WorkersLost(f"no message from any worker for {SILENT_SECONDS} s")

    def _event(self, event: tuple[float, dict[str, Any]]) -> None:
        """Process a worker's report; called by the client's thread."""
        try:
            message = event[1]
            key, worker, said = (str(message[name]) for name in ("key", "worker", "said"))
            begins, done = bool(message["begins"]), int(message["done"])
        except (LookupError, TypeError, ValueError):  # of another client of the user's scheduler
            return
        ticket = self.tickets.get(key)
        if ticket is not None:
            self._heard = time.monotonic()
            ticket.starts += begins
            ticket.worker, ticket.said, ticket.done = worker, said, done

    def close(self) -> None:
        """Cancel work that has not ended, and leave the cluster."""
        with contextlib.suppress(Exception):
            self.client.unsubscribe_topic(self._topic)
            self.client.cancel([t.future for t in self.tickets.values() if t.future is not None])


def _same(value: Any) -> Any:
    return value


def _work(work: Callable[..., Any], topic: str, key: str, *arguments: Any) -> Any:
    """Call `work` in a worker and forward its reports."""
    from distributed import get_worker

    worker = get_worker()

    def event(said: str, done: int, begins: bool = False) -> None:
        message = {"key": key, "worker": worker.address, "begins": begins, "said": said, "done": done}
        worker.log_event(topic, message)

    def told(said: str, done: int) -> None:
        state = worker.state.tasks.get(key)
        if state is None or state.state not in ("executing", "long-running"):
            raise ClusterError("the work was cancelled")
        event(said, done)

    event("", 0, begins=True)
    return work(*arguments, told)


def _short(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:200]


@contextmanager
def open_cluster(scheduler: str | None = None, workers: int | None = None) -> Iterator[Cluster]:
    """Connect to a cluster (by default start a local one) and check that its workers have this version.

    Parameters
    ----------
    scheduler : address of a Dask scheduler, such as "tcp://host:8786"; None starts local processes.
    workers : number of processes of the local cluster; by default one per processor.

    Raises
    ------
    ClusterError
        If Dask is missing, the scheduler does not answer, or there is no worker of this version.
    """
    with needed("distributed", "this command", ClusterError):
        import dask
        import distributed
    if workers is not None and workers < 1:
        raise ClusterError(f"a cluster has at least one worker, not {workers}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(dask.config.set(_SETTINGS))
        count, address, security = 1, scheduler, None  # the user's own settings of Dask for their scheduler
        if scheduler is None:
            count = workers or processors()
            security = _own_security(distributed)
            address = stack.enter_context(_local(distributed, count, security))
        try:
            client = distributed.Client(
                address, timeout=ANSWER_SECONDS, set_as_default=False, security=security
            )
        except (OSError, TimeoutError, ValueError, TypeError) as error:  # TypeError: a key is missing
            raise ClusterError(f"no Dask scheduler answers at {scheduler} ({_short(error)})") from error
        stack.callback(_left, client)
        cluster = Cluster(client, _come(client, count, scheduler))
        _check_versions(client)
        stack.callback(cluster.close)
        yield cluster


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's loggers; relevant problems are raised as errors."""
    noisy = ("distributed", "tornado", "asyncio")
    names = [*noisy, *logging.root.manager.loggerDict]
    loggers = [logging.getLogger(name) for name in names if name.split(".")[0] in noisy]
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


def _own_security(distributed: Any) -> Any:
    """Return a key and a certificate of this run, which scheduler, workers and client must have.

    They are only in memory. Without them every user of the machine could connect to the ports of the cluster
    and have functions executed.

    Raises
    ------
    ClusterError
        If the package that makes keys is missing.
    """
    with needed("cryptography", "a cluster on this machine", ClusterError):
        import cryptography  # noqa: F401 (distributed imports parts of it)
    return distributed.security.Security.temporary()


@contextmanager
def _safe_path() -> Iterator[None]:
    """Let Python processes that are started ignore modules in the current folder."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


@contextmanager
def _local(distributed: Any, workers: int, security: Any) -> Iterator[Any]:
    """Start a cluster of `workers` processes that leave Ctrl-C to this one."""
    importlib.import_module(_PEERS)
    _enough_descriptors(workers)
    try:
        with _deaf():  # the threads made here start the processes, which inherit that
            cluster = distributed.LocalCluster(
                protocol="tls://",
                security=security,
                n_workers=0,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",  # None would still use port 8787
                scheduler_kwargs={"dashboard": False},
                worker_dashboard_address=None,
                memory_limit=0,
                silence_logs=logging.CRITICAL,
                death_timeout=START_SECONDS,
                preload=[_PEERS],
            )
    except Exception as error:
        raise ClusterError(f"no local cluster could be started: {_short(error)}") from error
    try:
        with _safe_path():
            cluster.scale(workers)
            until = time.monotonic() + SPAWN_SECONDS
            while len(_processes(cluster)) < workers and time.monotonic() < until:
                time.sleep(0.02)
        yield cluster
    finally:
        _close(cluster)


@contextmanager
def _deaf() -> Iterator[None]:
    """Block Ctrl-C for threads that are started within the `with` block, and for their processes.

    One that comes meanwhile is delivered to this thread at the end, or at once by another thread
    that does not block it (those of numpy's libraries): Python raises it here in both cases.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _enough_descriptors(workers: int) -> None:
    """Raise this process's limit of descriptors as far as a local cluster needs it.

    Raises
    ------
    ClusterError
        If the limit cannot be raised that far.
    """
    wanted = DESCRIPTORS + DESCRIPTORS_EACH * workers
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now == resource.RLIM_INFINITY or now >= wanted:
        return
    if most != resource.RLIM_INFINITY and most < wanted:
        raise ClusterError(
            f"a local cluster of {workers} workers needs {wanted} descriptors, the limit is {most} "
            "(ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _processes(cluster: Any) -> list[int]:
    """Return the ids of the processes that a local cluster has started."""
    nannies = list(cluster.workers.values())
    return [nanny.process.pid for nanny in nannies if nanny.process is not None and nanny.process.pid]


def _close(cluster: Any) -> None:
    """End a local cluster and its processes, even if it is only partly started."""
    processes = _processes(cluster)
    try:
        cluster.close(timeout=CLOSE_SECONDS)
    except Exception:  # a worker that is being started cannot be closed
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(Exception):
            cluster.close(timeout=CLOSE_SECONDS)
    cluster.shutdown_on_close = False  # otherwise Dask tries again at exit


def _left(client: Any) -> None:
    with contextlib.suppress(Exception):
        client.close(timeout=CLOSE_SECONDS)


def _come(client: Any, count: int, scheduler: str | None) -> int:
    """Wait for `count` workers; return the number of threads of all present workers."""
    seconds = ANSWER_SECONDS if scheduler else START_SECONDS
    try:
        client.wait_for_workers(count, timeout=seconds)
    except Exception as error:
        hint = f"; 'dask worker {scheduler}' starts one" if scheduler else ""
        what = "no worker connected" if scheduler else "not all workers started"
        raise ClusterError(f"{what} within {seconds} s{hint}") from error
    return max(1, sum(client.nthreads().values()))


def _check_versions(client: Any) -> None:
    """Refuse workers that have another version or cannot import this project.

    Raises
    ------
    ClusterError
        If there is such a worker; the message names it and both versions.
    """
    ours = version()
    found = client.run(eval, QUERY, on_error="return")
    for worker, theirs in sorted(found.items()):
        if isinstance(theirs, BaseException):
            raise ClusterError(f"worker {worker} cannot use rkcosim: {_short(theirs)}; this is {ours}")
        if theirs != ours:
            raise ClusterError(f"worker {worker} has rkcosim {theirs}, this is {ours}")
