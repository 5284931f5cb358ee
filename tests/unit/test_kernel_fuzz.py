"""Hostile programs against the kernel model, a few hundred inputs; the seed is fresh and printed."""

from __future__ import annotations

import random

import pytest

from cosim.golden.task import GoldenNpu
from sw.driver.kernel import Kernel
from sw.driver.kernel.fuzz import fuzz


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
