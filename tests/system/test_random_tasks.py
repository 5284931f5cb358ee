"""Random tasks: RTL equals the task-level golden model over all mapped memory, at the full geometry."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosim.crosscheck.random_tasks import KINDS, random_task
from cosim.crosscheck.sweep import Sweep, main, sweep
from cosim.engines import DramConfig, open_engine
from cosim.golden.task import GoldenNpu

SEED = int(os.environ.get("RKCOSIM_SEED") or secrets.randbits(32))
"""A fresh one in every run, printed with each failure; set RKCOSIM_SEED to repeat one."""


@pytest.fixture(scope="module")
def engine() -> Iterator:
    device = open_engine(cores=1)
    yield device
    device.close()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_matches_with_a_fixed_seed(engine, kind: str) -> None:  # type: ignore[no-untyped-def]
    totals = sweep_on(engine, 6, 1, kind)
    assert totals.compared >= 6
    assert not totals.failures, "\n".join(totals.failures)


def sweep_on(engine, count: int, seed: int, kind: str | None = None, reset: bool = False):  # type: ignore[no-untyped-def]
    """Run a sweep on an engine that other tests use too: whatever it maps goes away again."""
    golden = GoldenNpu(1)
    engine.reset(1)  # both sides start from reset
    try:
        return sweep(engine, count, seed, kind=kind, golden=golden, reset=reset)
    finally:
        for start in list(engine.memory.ranges):
            engine.memory.unmap(start)


def test_chains_of_mixed_tasks_match_with_a_fresh_seed(engine) -> None:  # type: ignore[no-untyped-def]
    print(f"seed {SEED}")
    totals = sweep_on(engine, 80, SEED)
    print(totals.line())
    assert totals.compared >= 80
    assert not totals.failures, f"seed {SEED}\n" + "\n".join(totals.failures)


def test_kicks_straight_after_a_reset_match(engine) -> None:  # type: ignore[no-untyped-def]
    totals = sweep_on(engine, 40, SEED + 2, reset=True)
    assert not totals.failures, f"seed {SEED + 2}\n" + "\n".join(totals.failures)


def test_memory_timing_changes_nothing() -> None:
    slow = DramConfig(
        jitter=200, seed=SEED & 0xFFFF, peak_bytes_per_cycle=6.0, read_latency=300, read_outstanding=3
    )
    with open_engine(cores=1, dram=slow) as device:
        totals = sweep(device, 30, SEED + 1)
    assert not totals.failures, f"seed {SEED + 1}\n" + "\n".join(totals.failures)


@pytest.mark.heavy
@pytest.mark.parametrize("part", range(5))
def test_many_tasks(engine, part: int) -> None:  # type: ignore[no-untyped-def]
    totals = sweep_on(engine, 400, SEED + 10 + part)
    print(totals.line())
    assert not totals.failures, f"seed {SEED + 10 + part}\n" + "\n".join(totals.failures)


def test_same_seed_same_task() -> None:
    first = random_task(np.random.default_rng([4, 2]), chain=3)
    second = random_task(np.random.default_rng([4, 2]), chain=3)
    assert first.words == second.words and first.description == second.description
    assert all((a[1] == b[1]).all() for a, b in zip(first.regions, second.regions, strict=True))


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 'dance'"):
        random_task(np.random.default_rng(0), "dance")


class Broken(GoldenNpu):
    """A device that gets one byte wrong in every kick, far from anything it should write."""

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        raised = super().run_until_irq(core_mask, max_cycles)
        base, size = self.memory.regions()[0]
        self.memory.view(base, size)[3] ^= 0x10
        return raised


class Dead(GoldenNpu):
    """A device that never interrupts."""

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        return 0


def test_a_stray_byte_in_a_guard_zone_is_found() -> None:
    task = random_task(np.random.default_rng(1), "conv")
    outcome = Sweep(Broken(1)).run(0, task)
    assert not outcome.verdict.match
    assert outcome.verdict.difference.count == 1
    assert outcome.verdict.difference.address == task.regions[0][0] + 3
    assert "written by no task" in outcome.verdict.text()


def test_a_wrong_output_names_task_and_registers() -> None:
    task = random_task(np.random.default_rng(1), "row_tiles")
    model = GoldenNpu(1)
    runner = Sweep(GoldenNpu(1), model)
    reports = runner.run(0, task).reports
    address = reports[1].writes[0].ranges[0][0] + 5

    class Wrong(GoldenNpu):
        def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
            raised = super().run_until_irq(core_mask, max_cycles)
            self.memory.view(address, 1)[0] ^= 1
            return raised

    verdict = Sweep(Wrong(1)).run(0, task).verdict
    assert (verdict.task, verdict.difference.address) == (1, address)
    assert verdict.registers["DPU"]["DST_BASE_ADDR"]
    assert "DATA_CUBE_HEIGHT" in verdict.text()
    assert task.arena.find(address).startswith("output")


def test_a_time_out_is_a_failure() -> None:
    outcome = Sweep(Dead(1)).run(0, random_task(np.random.default_rng(1), "pool"))
    assert not outcome.verdict.match and "no interrupt" in outcome.verdict.text()


def test_command_line_counts_and_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    report = tmp_path / "out" / "random.json"
    assert main(["--count", "5", "--seed", "9", "--engine", "golden", "--json", str(report)]) == 0
    data = json.loads(report.read_text())
    assert data["seed"] == 9 and data["match"] and data["compared"] >= 5 and "refused" in data
    assert "seed 9" in capsys.readouterr().out
