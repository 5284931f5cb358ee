"""Conformance on the RTL: a few cases of every group with a new seed; many with the `heavy` marker."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from rkcosim.engines import open_engine
from rkcosim.verify.conformance.campaign import Campaign, GroupResult
from rkcosim.verify.conformance.groups import GROUPS
from rkcosim.verify.conformance.runner import Runner
from tests import seeds

SEED = seeds.seed(__name__)

FEW = 6
"""Tasks of each group in an ordinary run."""

EXACT = [
    *(f"conv {name}" for name in ("int4", "int8", "int16", "fp16", "bf16", "tf32")),
    *(f"depthwise {name}" for name in ("int8", "int16", "fp16", "bf16")),
]
"""Groups that also run on the array cell's RTL."""

FEW_EXACT = 2

MANY = 200

WATCHED = 30


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with open_engine(cores=1, on_diagnostic="go on") as device:
        yield Runner(device)


@pytest.fixture(scope="module")
def exact_runner() -> Iterator[Runner]:
    with open_engine("verilator", exact=True, cores=1, on_diagnostic="go on") as device:
        yield Runner(device)


def check(runner: Runner, group: str, tasks: int, folder: Path) -> GroupResult:
    """Run a group; failures are shrunk and saved as streams that `rkcosim regcmd run` can run."""
    runner.reset()
    result = Campaign(runner, SEED, folder=folder, failures_shown=1).group(group, tasks)
    assert not result.mismatches, f"seed {SEED}\n" + "\n".join(f.text for f in result.failures)
    return result


@pytest.mark.parametrize("group", GROUPS)
def test_a_few_cases_match(runner: Runner, group: str, tmp_path: Path) -> None:
    result = check(runner, group, max(2, round(FEW * GROUPS[group].share)), tmp_path)
    assert result.tasks and result.cycles


@pytest.mark.parametrize("group", EXACT)
def test_a_few_cases_match_with_the_cell_in_rtl(exact_runner: Runner, group: str, tmp_path: Path) -> None:
    assert check(exact_runner, group, FEW_EXACT, tmp_path).tasks


@pytest.mark.heavy
def test_no_register_changes_while_its_clock_is_said_not_to_matter(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with open_engine(cores=1, on_diagnostic="go on", watched=True) as device:
        watched = Runner(device)
        for group in GROUPS:
            check(watched, group, round(WATCHED * GROUPS[group].share), tmp_path)
    ctypes.CDLL(None).fflush(None)  # what the model printed
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("asleep:")]
    assert not lines, f"seed {SEED}\n" + "\n".join(sorted(set(lines))[:20])


@pytest.mark.heavy
@pytest.mark.parametrize("group", GROUPS)
def test_many_cases_match(runner: Runner, group: str, tmp_path: Path) -> None:
    check(runner, group, round(MANY * GROUPS[group].share), tmp_path)
