"""Every timing constant has a source that exists, or is listed as an assumption with its effect."""

from __future__ import annotations

import ast
import re
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf import constants
from rkcosim.measure.perf.boards import runs
from rkcosim.measure.perf.boards.left_out import LEFT_OUT
from rkcosim.measure.perf.boards.table import rows
from rkcosim.measure.perf.constants import CONSTANTS, Constant, Source, effects
from tools.effects import TRIED
from tools.provenance import TABLE_SOURCES, read

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


@cache
def sections() -> dict[str, list[str]]:
    """Lines of each section of the hardware reference by its number."""
    found: dict[str, list[str]] = {}
    for path in sorted(REFERENCE.glob("[0-9]*.md")):
        name = ""
        for line in path.read_text("utf-8").splitlines():
            head = re.match(r"## (\d+\.\d+) ", line)
            name = head[1] if head else name
            found.setdefault(name, []).append(line)
    return found


def marks_of(source: Source) -> list[str]:
    """Marks `kind: key` of the lines that hold the quotation, or of the table that holds it."""
    lines = sections()[source.section]
    found = []
    for n, line in enumerate(lines):
        if source.quote in line:
            if line.startswith("|"):
                line = next(line for line in lines[n:] if line.startswith(TABLE_SOURCES))
            for kind, keys in re.findall(r"\[(board|family|derived|assumed): ([^\]]*)\]", line):
                found += [f"[{kind}: {key}]" for key in keys.split(", ")]
    return found


@pytest.mark.parametrize("constant", [c for c in CONSTANTS if c.source], ids=lambda c: c.id)
def test_a_source_resolves_with_its_mark(constant: Constant) -> None:
    assert constant.source is not None
    section = "\n".join(sections()[constant.source.section])
    assert constant.source.quote in section, f"{constant.id}: {constant.source} does not say it"
    assert constant.source.mark in marks_of(constant.source), f"{constant.id}: has another mark"


def test_a_wrong_source_does_not_resolve() -> None:
    source = next(c.source for c in CONSTANTS if c.id == "array.depthwise")
    assert source is not None and marks_of(source) == ["[derived: trm]", *marks_of(source)[1:]]
    assert not marks_of(replace(source, quote="65 of 1024 used"))
    assert replace(source, mark="[board: trm]").mark not in marks_of(source)


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda c: c.id)
def test_a_constant_is_whole(constant: Constant) -> None:
    """The value is read from the code; a constant without a source has its effect on the totals."""
    assert isinstance(constant.value(), (int, float)), constant.place
    assert (ROOT / constant.place.split(":")[0]).is_file(), constant.place
    if constant.kind == "published":
        assert constant.source is not None
    if constant.kind == "assumed":
        assert constant.source is None
        assert constant.bound or effects().get(constant.id), "neither measured nor reasoned"


NO_TIMING = {"dram.seed": "of the jitter", "dram.fault_read": "an error", "dram.fault_write": "an error"}
"""Fields of `DramConfig` that do not affect the cycles of a run without faults."""


def test_every_field_of_the_memory_is_there() -> None:
    ids = [constant.id for constant in CONSTANTS]
    missing = {f"dram.{field.name}" for field in fields(DramConfig)} - {*ids, *NO_TIMING}
    assert not missing
    assert len(set(ids)) == len(ids)


def test_changes_change_something_and_are_stored() -> None:
    assert all(replace(DramConfig(), **{name: v}) != DramConfig() for name in TRIED for v in TRIED[name])
    stored = {id: list(changes) for id, changes in effects().items()}
    assert stored == {f"dram.{name}": [f"{value:g}" for value in values] for name, values in TRIED.items()}


def _numbers(path: Path) -> set[str]:
    """Names of a module that are bound to plain numbers."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, (int, float)):
                found.add(node.targets[0].id)
    return found


TIMING_WORDS = re.compile(
    r"CYCLES|LATENCY|DELAY|PATIENCE|SPACING|FIFO|BURST|STAGES|RUNS|RING|OUTSTANDING|BEATS"
)


def test_no_constant_of_the_rtl_is_forgotten() -> None:
    """Numbers of the RTL whose names refer to time or buffer sizes are in the registry."""
    known = {constant.place for constant in CONSTANTS}
    missing = []
    for path in [*sorted((ROOT / "rtl").rglob("*.py")), *sorted((ROOT / "spec").rglob("*.py"))]:
        for name in _numbers(path):
            place = f"{path.relative_to(ROOT)}: {name}"
            if TIMING_WORDS.search(name) and place not in known and place not in SPEED_ONLY:
                missing.append(place)
    assert not missing, f"neither in cosim/measure/perf/constants.py nor without effect on cycles: {missing}"


SPEED_ONLY = {
    "rtl/core.py: QUIET_CYCLES": "when a core says that it is idle, outside of tasks",
    "rtl/npu/csc.py: STRIPE_LATENCY": "a sum of two that are listed",
    "rtl/npu/csc_task.py: GO_LATENCY": "says when the constants of a task are valid, for an assertion",
    "rtl/npu/cna_settings.py: BEGIN_LATENCY": "says when the settings of a task are valid, for an assertion",
    "rtl/npu/cna_settings.py: CHECK_LATENCY": "says when its settings can be checked, for an assertion",
    "spec/octets.py: LUT_CYCLES": "says what the RTL takes, for the causes of cycles",
    "spec/octets.py: DIVISION_CYCLES": "says what the RTL takes, for the causes of cycles",
}
"""Names that look like timing but do not affect the cycles of a task."""


def test_the_page_has_every_constant() -> None:
    text = constants.section()
    for constant in CONSTANTS:
        assert f"| {constant.id} |" in text
    assert len(constants.lines()) == len(CONSTANTS) + 1


def test_the_fitted_bandwidth_is_one_cores_share_of_the_peak() -> None:
    value = runs.fitted_bandwidth()
    assert value == DramConfig().core_bytes_per_cycle, "the default is the fitted value"
    assert 5 < value < DramConfig().peak_bytes_per_cycle
    slow = runs.board_memory(200, value)
    assert slow.core_bytes_per_cycle == pytest.approx(5 * value)
    assert slow.peak_bytes_per_cycle == pytest.approx(5 * DramConfig().peak_bytes_per_cycle)
    assert slow.read_latency == DramConfig().read_latency // 5


def test_published_rows_resolve() -> None:
    """Each row's quotation is in its section, in a line that also has its sizes' source."""
    keys = {source.key for source in read(REFERENCE).sources}
    for row in rows():
        assert any(row.quote in line for line in sections()[row.section]), (row.id, row.quote)
        assert set(row.source.split()) <= keys, row.id


@pytest.mark.parametrize("section", ["12.3", "12.4", "12.6", "12.9"])
def test_every_published_row_is_in_the_table_or_named(section: str) -> None:
    """No row of the reference is omitted."""
    for entry in LEFT_OUT:
        assert any(entry.quote in line for line in sections()[entry.section]), entry.quote
    quotes = [row.quote for row in rows()] + [entry.quote for entry in LEFT_OUT]
    tables = [line for line in sections()[section] if line.startswith("| ") and "---" not in line]
    heads = [line for line in tables if re.search(r"\| (Source|Profile) \|$", line)]
    missing = [line for line in tables if line not in heads and not any(quote in line for quote in quotes)]
    assert len(heads) == 1 and len(tables) > 10
    assert not missing, missing
