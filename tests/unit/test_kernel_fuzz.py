"""Hostile programs against the kernel model, a few hundred inputs; the seed is fresh and printed."""

from __future__ import annotations

import errno
import json
import os
import random
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cosim.cli.main import app
from cosim.golden.task import GoldenNpu
from sw.driver.kernel import Credentials, Kernel, KernelError
from sw.driver.kernel.fuzz import fuzz
from sw.driver.kernel.fuzz_programs import Bystander, Client
from sw.driver.kernel.machine import ACCEL, CARD, RENDER
from sw.driver.kernel.mutations import Mutator


@pytest.mark.parametrize("drivers", [("rknpu", "rocket"), ("rknpu",), ("rocket",)])
def test_hostile_programs(drivers: tuple[str, ...]) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    with Kernel(GoldenNpu(strict=False), drivers=drivers) as kernel:
        report = fuzz(kernel, seed, 400)
        print(report)
        assert report.good, f"{report}\n{[str(line) for line in kernel.log if 'internal' in line.text][:3]}"
        assert report.share > 0.4, report
        assert len(report.errors) > 3 and report.errors["ok"] > 100, report
        again = fuzz(kernel, seed, 50)
        assert again.good, "the kernel can be used on"


def test_the_bystander_notices_trouble() -> None:
    """The check of the fuzzer itself: a kernel that fails every job is not called good."""

    class Broken(GoldenNpu):
        def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
            super().run_until_irq(0, max_cycles)
            return 0

    with Kernel(Broken(strict=False)) as kernel:
        report = fuzz(kernel, 1, 100)
    assert report.disturbed and not report.good


def test_hostile_programs_at_once() -> None:
    """Several of them in threads of their own; an honest program among them gets every result right."""
    seed = random.SystemRandom().randrange(1 << 32)
    with Kernel(GoldenNpu(strict=False)) as kernel:
        bystander, failures = Bystander(kernel), []

        def run(number: int) -> None:
            who = Credentials(20 + number, 1000 * (number % 2))
            clients = [
                Client(path, who.pid, kernel.open(path, os.O_RDWR, who)) for path in (CARD, RENDER, ACCEL)
            ]
            mutator = Mutator(kernel, clients, random.Random(seed + number))
            mutator.texts = []  # the reset file is root's and meant to hit everybody
            for _ in range(150):
                try:
                    mutator.one()
                except KernelError as error:
                    if error.code == errno.EIO:
                        failures.append(f"{mutator.name}: {error}")
            for client in clients:
                for fd in list(client.fds.open):
                    client.fds.close(fd)
            kernel.process_died(who.pid)

        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(4)]
        for thread in threads:
            thread.start()
        rng, runs = random.Random(seed), 0
        while any(thread.is_alive() for thread in threads) or not runs:
            assert bystander.run(rng), f"seed {seed}: {kernel.log.text()[-2000:]}"
            runs += 1
        assert not failures, (seed, failures[:3])


def test_the_command(tmp_path: Path) -> None:
    found = CliRunner().invoke(
        app,
        ["fuzz", "--engine", "golden", "--inputs", "100", "--seed", "3", "--json", str(tmp_path / "it.json")],
    )
    assert found.exit_code == 0, found.output
    assert found.output.startswith("seed 3\n") and "past the first check" in found.output
    account = json.loads((tmp_path / "it.json").read_text())
    assert account["good"] and account["inputs"] == 100 and account["schema_version"] == 1
