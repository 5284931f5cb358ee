"""The vendor's tile plans as jobs on one to three cores: every output equals numpy."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim.conformance.plan_tables import CORES, Plan, read_plans
from cosim.conformance.plans import run_plans
from cosim.golden.task import GoldenNpu
from sw.driver import Driver
from tests.models.jobs import engine_or_skip

FOLDER = Path(__file__).parents[3] / "shared/vendor_plans"
SMALL = 6000
"""Slots of the array that a plan of the quick test has at most."""


def plans() -> list[Plan]:
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} is not there")
    return read_plans(FOLDER)


def chosen() -> list[Plan]:
    """The first three small plans of each type and multi-core code, and the largest of them."""
    groups: dict[tuple[str, int], list[Plan]] = {}
    for plan in plans():
        if plan.slots <= SMALL:
            groups.setdefault((plan.dtype, plan.code), []).append(plan)
    return [plan for group in groups.values() for plan in (*group[:3], max(group, key=lambda p: p.slots))]


def test_every_listed_task_is_run() -> None:
    listed = plans()
    assert len(listed) == 474 and {plan.code for plan in listed} == set(CORES)
    assert [text for plan in listed for text in plan.left_out] == ["fp16 case 12 plan 0 task 0: banks 0/0"]
    for plan in listed:
        kernels = max(row.cout for row in plan.rows)
        area = sum(row.out_atomics * min(row.kernels, kernels) for row in plan.rows)
        row = plan.rows[0]
        height = row.in_height + 2 * row.pad_h - row.kernel_h + 1
        if not plan.left_out:
            assert area >= height * row.out_width * row.cout, plan.name


def test_small_plans_on_the_golden_model() -> None:
    results = list(run_plans(chosen(), Driver(GoldenNpu(3)), seed=3))
    assert [r.plan.name for r in results if not r.good] == []


def test_small_plans() -> None:
    some = chosen()
    assert {plan.cores for plan in some} == {1, 2, 3}
    with engine_or_skip() as engine:
        results = list(run_plans(some, Driver(engine), seed=4))
    assert [(r.plan.name, r.mismatches, r.error) for r in results if not r.good] == []


@pytest.mark.heavy
def test_all_plans() -> None:
    with engine_or_skip() as engine:
        results = list(run_plans(plans(), Driver(engine), seed=5))
    assert [(r.plan.name, r.mismatches, r.error) for r in results if not r.good] == []
