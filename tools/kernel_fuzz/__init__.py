"""Hostile programs: mutated ioctls, command lists and descriptors, next to a program that must not notice."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import errorcode

from rkcosim.driver.kernel.interface import Credentials, KernelError
from rkcosim.driver.kernel.machine import ACCEL, CARD, RENDER, Kernel
from tools.kernel_fuzz.mutations import Mutator
from tools.kernel_fuzz.programs import Bystander, Canaries, Client, opened

HOSTILE_PIDS = (11, 12, 13)


@dataclass
class Report:
    """Result of a fuzzing run.

    Members
    -------
    seed, inputs : the arguments.
    errors : number of occurrences of each result, "ok" or the name of an errno.
    passed : ioctls that passed the first check of their arguments.
    ioctls : inputs that were ioctls.
    internal : errors of the kernel model itself, which must not occur.
    runs, disturbed : jobs of the bystander, and how many of them failed.
    trampled : canaries (`Canaries`) that were changed.
    beside : writes of ioctls to unrelated memory of a program.
    late : requests that a server did not answer in time.
    leaks : resources that remain when every hostile program has ended; must be empty.
    slowest : seconds of the slowest input, and its name.
    """

    seed: int
    inputs: int
    errors: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    ioctls: int = 0
    internal: int = 0
    runs: int = 0
    disturbed: int = 0
    trampled: int = 0
    beside: int = 0
    late: int = 0
    leaks: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    seconds: float = 0.0

    @property
    def share(self) -> float:
        """Share of the ioctls that passed the first check."""
        return self.passed / max(1, self.ioctls)

    @property
    def good(self) -> bool:
        """Whether the kernel had no failure."""
        return not (
            self.internal or self.disturbed or self.trampled or self.beside or self.late or self.leaks
        )

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.errors.most_common())
        return (
            f"seed {self.seed}: {self.inputs} inputs in {self.seconds:.1f} s, {self.ioctls} ioctls, "
            f"{self.share:.0%} past the first check; {counts}; bystander {self.runs} jobs, "
            f"{self.disturbed} disturbed; canaries changed {self.trampled}, stray writes {self.beside}, "
            f"late answers {self.late}; internal errors {self.internal}; "
            f"leaks: {', '.join(self.leaks) or 'none'}; slowest {self.slowest[1]} {self.slowest[0]:.2f} s"
        )


def fuzz(kernel: Kernel, seed: int, n: int, *, progress: Callable[[int], None] | None = None) -> Report:
    """Send `n` hostile inputs from a few programs to a kernel.

    Parameters
    ----------
    kernel
        A machine that is not used by anything else meanwhile; it can be used afterwards.
    seed
        Seed of all random numbers.
    n
        Number of inputs.
    progress
        Called from time to time with the number of inputs done.

    Returns
    -------
    Report
        Its member `good` says whether the kernel had no failure.
    """
    rng, report = random.Random(seed), Report(seed, n)
    with watched(kernel, report, rng, progress) as count:
        paths = [node.path for node in kernel.nodes()]
        clients = [
            Client(path, pid, opened(kernel, path, Credentials(pid, pid % 2 * 1000)))
            for pid, path in zip(HOSTILE_PIDS * 2, (CARD, RENDER, ACCEL, RENDER, ACCEL, CARD), strict=True)
            if path in paths
        ]
        mutator = Mutator(kernel, clients, rng)
        for _ in range(n):
            start = time.monotonic()
            name = "?"
            try:
                name, passed = mutator.one()
                outcome = "ok"
            except KernelError as error:
                name, passed = mutator.name, mutator.passed
                outcome = errorcode.get(error.code, str(error.code))
            if name.startswith("ioctl"):
                report.ioctls += 1
                report.passed += passed
            count(outcome, start, name)
        report.beside = mutator.beside
        for client in clients:
            for fd in list(client.fds.open):
                client.fds.close(fd)
            kernel.process_died(client.pid)
    return report


@contextmanager
def watched(
    kernel: Kernel,
    report: Report,
    rng: random.Random,
    progress: Callable[[int], None] | None = None,
    wrong: Callable[[str], bool] = lambda text: "internal error" in text,
) -> Iterator[Callable[[str, float, str], None]]:
    """Watch a kernel while hostile inputs are sent to it in the `with` block.

    An honest program runs a job after every 50 inputs, among canaries; at the end no resources may remain.

    Parameters
    ----------
    kernel : the kernel to be watched.
    report : receives the observations.
    rng : random numbers for the honest program's data.
    progress : called from time to time with the number of inputs done.
    wrong : whether a line of the kernel's log reports an error of the model itself.

    Yields
    ------
    A function to be called after each input with its result, its start (`time.monotonic()`) and its name.
    """
    before = sum(wrong(line.text) for line in kernel.log)
    begin = time.monotonic()
    descriptors = _descriptors()
    bystander = Bystander(kernel)
    canaries = Canaries(bystander)
    base = holdings(kernel)

    def count(outcome: str, start: float, name: str) -> None:
        report.errors[outcome] += 1
        report.slowest = max(report.slowest, (time.monotonic() - start, name))
        done = report.errors.total()
        if done % 50 == 0:
            report.runs += 1
            report.disturbed += not bystander.run(rng)
            canaries.look()
            if progress is not None:
                progress(done)

    yield count
    settle(kernel, 1)
    canaries.look()
    report.trampled = canaries.changed
    report.leaks += [f"{key}: {value}" for key, value in holdings(kernel).items() if base[key] != value]
    bystander.client.file.close()
    kernel.scheduler.call(kernel.scheduler.mmu.refresh)  # releases what the device has mapped
    if (left := _descriptors() - descriptors) > 0:
        report.leaks.append(f"{left} descriptors of the server")
    report.internal += sum(wrong(line.text) for line in kernel.log) - before
    report.seconds = time.monotonic() - begin


def _descriptors() -> int:
    """Return the number of descriptors of this process; 0 if the system does not provide it."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def holdings(kernel: Kernel) -> dict[str, int]:
    """Return the resources of clients: files, names, offsets, bytes and jobs, by kind."""
    scheduler = kernel.scheduler
    with scheduler.lock:
        holdings = {"queued": len(scheduler.queues), "busy": len(scheduler.busy)}
        for driver in (kernel.rknpu, kernel.rocket):
            if driver is not None:
                holdings[f"{driver.name} files"] = len(driver.files)
                holdings[f"{driver.name} offsets"] = len(driver.by_offset)
                holdings[f"{driver.name} names"] = len(driver.names)
                holdings["bytes"] = driver.ram.used
        if kernel.rknpu is not None:
            holdings["objects"] = len(kernel.rknpu.objects)
    return holdings


def settle(kernel: Kernel, files: int) -> None:
    """Wait until jobs of closed files have ended; each has a limit in device time."""
    scheduler = kernel.scheduler
    with scheduler.changed:
        while len([f for d in (kernel.rknpu, kernel.rocket) if d is not None for f in d.files]) > files:
            if not scheduler.changed.wait(60):
                return
