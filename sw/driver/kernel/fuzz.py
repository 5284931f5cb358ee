"""Hostile programs: mutated ioctls, command lists and descriptors, with a bystander who must not notice."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from errno import errorcode

from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.fuzz_programs import Bystander, Client
from sw.driver.kernel.interface import Credentials
from sw.driver.kernel.machine import ACCEL, CARD, RENDER, Kernel
from sw.driver.kernel.mutations import Mutator

HOSTILE_PIDS = (11, 12, 13)


@dataclass
class Report:
    """What came of it.

    Members
    -------
    seed, inputs : what was asked for.
    errors : how often each result came, "ok" or the errno's name.
    passed : ioctls that got past the first check of their arguments.
    ioctls : inputs that were ioctls.
    internal : errors of the model itself, which should not be.
    runs, disturbed : jobs of the bystander, and those that went wrong.
    leaks : what is left when every hostile program is gone; empty when all is well.
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
    leaks: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    seconds: float = 0.0

    @property
    def share(self) -> float:
        """Share of the ioctls that got past the first check."""
        return self.passed / max(1, self.ioctls)

    @property
    def good(self) -> bool:
        """Whether the kernel behaved."""
        return not (self.internal or self.disturbed or self.leaks)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.errors.most_common())
        return (
            f"seed {self.seed}: {self.inputs} inputs in {self.seconds:.1f} s, {self.ioctls} ioctls, "
            f"{self.share:.0%} past the first check; {counts}; bystander {self.runs} jobs, "
            f"{self.disturbed} disturbed; internal errors {self.internal}; "
            f"leaks: {', '.join(self.leaks) or 'none'}; slowest {self.slowest[1]} {self.slowest[0]:.2f} s"
        )


def fuzz(kernel: Kernel, seed: int, n: int, *, progress: Callable[[int], None] | None = None) -> Report:
    """Send `n` hostile inputs from a few programs to a kernel.

    Parameters
    ----------
    kernel
        a machine that nobody else uses meanwhile; it can be used afterwards.
    seed
        of everything that is drawn.
    n
        number of inputs.
    progress
        called with the number of inputs done, now and then.

    Returns
    -------
    Report
        see there; `good` says whether the kernel held.
    """
    rng, report = random.Random(seed), Report(seed, n)
    before = sum("internal error" in line.text for line in kernel.log)
    begin = time.monotonic()
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    bystander = Bystander(kernel)
    base = _holdings(kernel)
    paths = [node.path for node in kernel.nodes()]
    clients = [
        Client(path, pid, kernel.open(path, os.O_RDWR, Credentials(pid, pid % 2 * 1000)))
        for pid, path in zip(HOSTILE_PIDS * 2, (CARD, RENDER, ACCEL, RENDER, ACCEL, CARD), strict=True)
        if path in paths
    ]
    mutator = Mutator(kernel, clients, rng)
    for number in range(n):
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
        report.errors[outcome] += 1
        report.slowest = max(report.slowest, (time.monotonic() - start, name))
        if number % 50 == 49:
            report.runs += 1
            report.disturbed += not bystander.run(rng)
        if progress is not None and number % 50 == 49:
            progress(number + 1)
    for client in clients:
        for fd in list(client.fds.open):
            client.fds.close(fd)
        kernel.process_died(client.pid)
    _settle(kernel, 1)
    report.leaks += [f"{key}: {value}" for key, value in _holdings(kernel).items() if base[key] != value]
    bystander.client.file.close()
    kernel.scheduler.call(kernel.scheduler.mmu.refresh)  # drops what the device has mapped
    if descriptors and len(os.listdir("/proc/self/fd")) > descriptors:
        report.leaks.append(f"{len(os.listdir('/proc/self/fd')) - descriptors} descriptors of the server")
    report.internal += sum("internal error" in line.text for line in kernel.log) - before
    report.seconds = time.monotonic() - begin
    return report


def _holdings(kernel: Kernel) -> dict[str, int]:
    """What clients hold."""
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


def _settle(kernel: Kernel, files: int) -> None:
    """Wait until jobs of closed files have ended; each has its bound in device time."""
    scheduler = kernel.scheduler
    with scheduler.changed:
        while len([f for d in (kernel.rknpu, kernel.rocket) if d is not None for f in d.files]) > files:
            if not scheduler.changed.wait(60):
                return
