"""A few hundred jobs on each server and long-lived object: no type of object becomes more with the jobs."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from rkcosim.golden.task import GoldenNpu
from rkcosim.golden.task.context import MOST_FINDINGS, Finding
from rkcosim.golden.task.npu import KEPT_REPORTS
from rkcosim.verify.crosscheck.kick import run_kick
from tests import soak
from tests.extent import everything, extent
from tests.makers.small_streams import streams

SHORT = 150
"""Jobs of each load; `make soak` and `make test-all` have 10,000."""


@pytest.fixture(autouse=True, scope="module")
def without_what_is_older() -> None:
    """Let objects of earlier tests of this process not be looked at: they are many, and take long."""
    gc.collect()
    gc.freeze()  # for good, as tests/conftest.py does with what has been imported


@pytest.mark.parametrize("load", soak.LOADS)
def test_nothing_grows(load: str) -> None:
    """What grows does so in a second run, too; other processes of the machine also have files in /dev/shm."""

    def grown() -> list[str]:
        return soak.run(load, extent(SHORT, soak.JOBS)).found(memory=everything())

    assert grown() == [] or grown() == []


def test_a_device_that_keeps_every_report_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "GoldenNpu", lambda cores, **_: GoldenNpu(cores, kept=None))
    assert "golden: TaskReport grew by 100 in 100 jobs" in soak.run("golden", SHORT).found(memory=False)


class _Report:
    pass


def test_what_grows_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A list with an object for each job, a descriptor for each, and resident memory."""
    kept, opened = [], []

    def load(_: Path) -> soak.contextlib.AbstractContextManager[soak.Step]:
        def step(number: int) -> None:
            kept.append((_Report(), bytearray(b"x" * 60_000)))
            opened.append((tmp_path / "file").open("w"))

        return soak.contextlib.nullcontext(step)

    monkeypatch.setitem(soak.LOADS, "leak", load)
    found = soak.run("leak", 600).found()
    for file in opened:
        file.close()
    names = {line.split(": ")[1].split(" grew")[0] for line in found}
    assert {"_Report", "items of list (tuple)", "descriptors", "RSS"} <= names
    assert "leak: _Report grew by 400 in 400 jobs" in found


def test_reports_are_bounded_and_counted() -> None:
    device, stream = GoldenNpu(1, kept=3), streams()["conv"]
    stream.load_into(device.memory)
    for number in range(1, 10):
        assert run_kick(device, stream.kick, 0).done
        assert device.task_count() == number
        assert len(device.task_log()) == min(number, 4)
    assert device.reports[0].since(7) == device.reports[0][-2:]
    assert device.reports[0].since(2) == list(device.reports[0])  # the oldest of these are gone
    assert GoldenNpu(1).reports[0].total == 0 and KEPT_REPORTS == 256


def test_findings_are_bounded() -> None:
    findings = GoldenNpu(1).devices[0].findings
    for number in range(MOST_FINDINGS + 5):
        findings.append(Finding(number, "CODE", "PC", "NAME", 0, ""))
    assert len(findings) == MOST_FINDINGS and findings[0].task == 0
