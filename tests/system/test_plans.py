"""The vendor's tile plans as jobs on one to three cores: every output equals numpy.

The numbers of ten layers of each type are re-tabulated in tests/makers/vendor_plans, from
boydjohnson/iree-rocket 2362a1f, iree-rocket-hal/tests/fixtures/conv_vendor_fixtures_i8.json and
conv_vendor_fixtures.json (source `iree-plans` of [HW 15]).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim.driver import Driver
from rkcosim.golden.task import GoldenNpu
from rkcosim.verify.conformance.plan_tables import CORES, Plan, read_plans
from rkcosim.verify.conformance.plans import run_plans
from tests.makers.jobs import engine_or_skip

FOLDER = Path(__file__).parents[1] / "makers" / "vendor_plans"
SMALL = 6000
"""Limit of the array slots of a plan in the quick test."""


def chosen() -> list[Plan]:
    """Return the first three small plans of each type and multi-core code, and the largest of them."""
    groups: dict[tuple[str, int], list[Plan]] = {}
    for plan in read_plans(FOLDER):
        if plan.slots <= SMALL:
            groups.setdefault((plan.dtype, plan.code), []).append(plan)
    return [plan for group in groups.values() for plan in (*group[:3], max(group, key=lambda p: p.slots))]


def check_listed(listed: list[Plan]) -> None:
    """Every task that is listed is run, and the tasks of a plan make its whole output."""
    assert {plan.code for plan in listed} == set(CORES)
    assert [text for plan in listed for text in plan.left_out] == ["fp16 case 12 plan 0 task 0: banks 0/0"]
    for plan in listed:
        kernels = max(row.cout for row in plan.rows)
        area = sum(row.out_atomics * min(row.kernels, kernels) for row in plan.rows)
        row = plan.rows[0]
        height = row.in_height + 2 * row.pad_h - row.kernel_h + 1
        if not plan.left_out:
            assert area >= height * row.out_width * row.cout, plan.name


def test_every_listed_task_is_run() -> None:
    listed = read_plans(FOLDER)
    assert len(listed) == 60
    check_listed(listed)


@pytest.mark.shared
def test_every_listed_task_of_all_plans_is_run(shared: Path) -> None:
    listed = read_plans(shared / "vendor_plans")
    assert len(listed) == 474
    check_listed(listed)


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
def test_all_tabulated_plans() -> None:
    with engine_or_skip() as engine:
        results = list(run_plans(read_plans(FOLDER), Driver(engine), seed=5))
    assert [(r.plan.name, r.mismatches, r.error) for r in results if not r.good] == []


@pytest.mark.shared
@pytest.mark.heavy
def test_all_plans(shared: Path) -> None:
    with engine_or_skip() as engine:
        results = list(run_plans(read_plans(shared / "vendor_plans"), Driver(engine), seed=5))
    assert [(r.plan.name, r.mismatches, r.error) for r in results if not r.good] == []
