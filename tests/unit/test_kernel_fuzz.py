"""Hostile programs against the kernel model, a few hundred inputs; each run prints its new seed."""

from __future__ import annotations

import errno
import json
import os
import random
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim.driver.kernel import Credentials, Kernel, KernelError
from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.machine import ACCEL, CARD, RENDER
from rkcosim.golden.task import GoldenNpu
from tests import seeds
from tools.fuzz import fuzz_command
from tools.kernel_fuzz import fuzz
from tools.kernel_fuzz.mutations import Mutator
from tools.kernel_fuzz.programs import FIRST_DATA, START, Bystander, Canaries, Client


@pytest.mark.parametrize("drivers", [("rknpu", "rocket"), ("rknpu",), ("rocket",)])
def test_hostile_programs(drivers: tuple[str, ...]) -> None:
    seed = seeds.seed(__name__)
    with Kernel(GoldenNpu(strict=False), drivers=drivers) as kernel:
        report = fuzz(kernel, seed, 400)
        print(report)
        assert report.good, f"{report}\n{[str(line) for line in kernel.log if 'internal' in line.text][:3]}"
        assert report.share > 0.4, report
        assert len(report.errors) > 3 and report.errors["ok"] > 100, report
        again = fuzz(kernel, seed, 50)
        assert again.good, "the kernel can still be used"


def test_the_bystander_notices_trouble() -> None:
    """A check of the fuzzer: a kernel that fails every job is not reported as good."""

    class Broken(GoldenNpu):
        def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
            super().run_until_irq(0, max_cycles)
            return 0

    with Kernel(Broken(strict=False)) as kernel:
        report = fuzz(kernel, 1, 100)
    assert report.disturbed and not report.good


def test_canaries_notice_what_changes() -> None:
    with Kernel(GoldenNpu(strict=False)) as kernel:
        bystander = Bystander(kernel)
        canaries = Canaries(bystander)
        assert bystander.run(random.Random(1))
        canaries.look()
        assert canaries.changed == 0
        bystander.client.poke(canaries._made[5], 4095, b"x")
        canaries.look()
        assert canaries.changed == 1
        canaries.look()
        assert canaries.changed == 1, "they are restored"


def test_a_mapping_that_outlives_its_domain_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the fuzzer: hostile jobs that write with the bystander's mappings are detected."""
    from rkcosim.driver.kernel import memory

    use = memory.Mmu.use

    def use_the_first(mmu: memory.Mmu, domain: memory.Domain) -> None:
        if getattr(mmu, "stuck", None) is None:
            mmu.stuck = domain  # type: ignore[attr-defined]
        use(mmu, mmu.stuck)  # type: ignore[attr-defined]

    monkeypatch.setattr(memory.Mmu, "use", use_the_first)
    with Kernel(GoldenNpu(strict=False), drivers=("rknpu",)) as kernel:
        report = fuzz(kernel, 1, 1000)
    assert not report.good and (report.trampled or report.disturbed), report


def test_writes_beside_a_structure_are_noticed() -> None:
    client = Client("", 1, None)  # type: ignore[arg-type]  # whose memory alone is looked at
    request, given = s.RKNPU_ACTION, bytes(s.Action(1, 2))
    for address, wrong in ((START, 0), (START + 4, 0), (START + 8, 1), (START - 4, 1)):
        client.arena.told[:] = [(address, 4)]
        assert Mutator._beside(client, request, START, given) == wrong, hex(address)
    client.arena.told[:] = [(FIRST_DATA, 9)]
    version = bytes(s.Version(name_len=9, name=FIRST_DATA))
    assert Mutator._beside(client, s.DRM_VERSION, START, version) == 0


def test_hostile_programs_at_once() -> None:
    """Several hostile programs in threads; an honest program among them gets every result right."""
    seed = seeds.seed(__name__)
    with Kernel(GoldenNpu(strict=False)) as kernel:
        bystander, failures = Bystander(kernel), []

        def run(number: int) -> None:
            who = Credentials(20 + number, 1000 * (number % 2))
            clients = [
                Client(path, who.pid, kernel.open(path, os.O_RDWR, who)) for path in (CARD, RENDER, ACCEL)
            ]
            mutator = Mutator(kernel, clients, random.Random(seed + number))
            mutator.texts = []  # the reset file belongs to root and is meant to affect every client
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
        fuzz_command,
        ["--engine", "golden", "--inputs", "100", "--seed", "3", "--json", str(tmp_path / "it.json")],
    )
    assert found.exit_code == 0, found.output
    assert found.output.startswith("seed 3\n") and "past the first check" in found.output
    account = json.loads((tmp_path / "it.json").read_text())
    assert account["good"] and account["inputs"] == 100 and account["schema_version"] == 1
