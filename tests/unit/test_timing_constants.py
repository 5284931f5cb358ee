"""Every timing constant has a source that resolves, or stands among the assumptions with its effect."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from cosim.engines.library import DramConfig
from cosim.perf.boards import calibrated
from cosim.perf.boards.left_out import LEFT_OUT
from cosim.perf.boards.table import rows
from cosim.perf.constants import registry as constants
from cosim.perf.constants import text as constants_text
from cosim.perf.constants.kinds import Constant, Source, effects
from cosim.perf.constants.registry import CONSTANTS, NO_TIMING, by_id

ROOT = Path(__file__).parents[2]
HARDWARE = ROOT.parent / "shared" / "HARDWARE.md"

needs_hardware = pytest.mark.skipif(
    not HARDWARE.is_file(), reason="the hardware reference is not beside the repository"
)


@cache
def sections() -> dict[str, list[str]]:
    """Lines of each section by its number; a chapter holds the lines of its sections too."""
    found: dict[str, list[str]] = {}
    open_: list[str] = []
    for line in HARDWARE.read_text().splitlines():
        head = re.match(r"#+ (\d+)(\.\d+)?[. ]", line)
        if head:
            open_ = [head[1]] + ([head[1] + head[2]] if head[2] else [])
        for name in open_:
            found.setdefault(name, []).append(line)
    return found


@needs_hardware
@pytest.mark.parametrize("constant", [c for c in CONSTANTS if c.source], ids=lambda c: c.id)
def test_a_source_resolves_with_its_mark(constant: Constant) -> None:
    assert constant.source is not None
    lines = [line for line in sections()[constant.source.section] if constant.source.quote in line]
    assert lines, f"{constant.id}: HARDWARE {constant.source.section} does not say {constant.source.quote!r}"
    marked = [line for line in lines if constant.source.mark in line]
    assert marked or _below(constant.source), f"{constant.id}: no line has the mark {constant.source.mark}"


def _below(source: Source) -> bool:
    """Whether the paragraph or table of the quotation has the mark: tables carry some in their heading."""
    text = sections()[source.section]
    at = next(n for n, line in enumerate(text) if source.quote in line)
    before = at - next((n for n, line in enumerate(reversed(text[:at])) if line.startswith("#")), 0)
    return any(source.mark in line for line in text[before:at])


@pytest.mark.parametrize("constant", CONSTANTS, ids=lambda c: c.id)
def test_a_constant_is_whole(constant: Constant) -> None:
    """Its value is read from the code; without a source it says what it does to the totals."""
    assert isinstance(constant.value(), (int, float)), constant.place
    assert (ROOT / constant.place.split(":")[0]).is_file(), constant.place
    if constant.kind == "published":
        assert constant.source is not None
    if constant.kind == "assumed":
        assert constant.source is None
        assert constant.bound or effects().get(constant.id), "neither measured nor reasoned"


def test_every_field_of_the_memory_is_there() -> None:
    known = set(by_id()) | set(NO_TIMING)
    assert constants.dram_fields() <= known, constants.dram_fields() - known
    assert len(by_id()) == len(CONSTANTS)


def test_changes_change_something() -> None:
    default = DramConfig()
    for constant in CONSTANTS:
        for change in constant.changes:
            assert change.dram(default) != default, (constant.id, change.words)


def _numbers(path: Path) -> set[str]:
    """Names of a module that are bound to plain numbers."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, (int, float)):
                found.add(node.targets[0].id)
    return found


TIMING_WORDS = re.compile(
    r"CYCLES|LATENCY|DELAY|PATIENCE|SPACING|FIFO|BURST|STAGES|RUNS|RING|OUTSTANDING|BEATS"
)


def test_no_constant_of_the_rtl_is_forgotten() -> None:
    """Numbers of the RTL whose names speak of time or of room for it are in the registry."""
    known = {constant.place for constant in CONSTANTS}
    missing = []
    for path in sorted((ROOT / "rtl").rglob("*.py")):
        for name in _numbers(path):
            place = f"{path.relative_to(ROOT)}: {name}"
            if TIMING_WORDS.search(name) and place not in known and place not in SPEED_ONLY:
                missing.append(place)
    assert not missing, f"neither in cosim/perf/constants/registry.py nor without effect on cycles: {missing}"


SPEED_ONLY = {
    "rtl/core.py: QUIET_CYCLES": "when a core says that it is idle, outside of tasks",
    "rtl/npu/csc.py: STRIPE_LATENCY": "a sum of two that are listed",
}
"""Names that look like timing and decide about no cycle of a task."""


def test_the_page_has_every_constant() -> None:
    text = constants_text.section()
    for constant in CONSTANTS:
        assert f"| {constant.id} |" in text
    assert len(constants_text.lines()) == len(CONSTANTS) + 1


def test_the_fitted_bandwidth_is_one_cores_share_of_the_peak() -> None:
    value = calibrated.read().core_bytes_per_ns
    assert 5 < value < DramConfig().peak_bytes_per_cycle
    slow = calibrated.board_memory(200, value)
    assert slow.peak_bytes_per_cycle == pytest.approx(5 * value)
    assert slow.read_latency == DramConfig().read_latency // 5


@needs_hardware
def test_published_rows_resolve() -> None:
    """Each row's quotation is in its section, in a line that also has its sizes' source."""
    for row in rows():
        assert any(row.quote in line for line in sections()[row.section]), (row.id, row.quote)


@needs_hardware
@pytest.mark.parametrize("section", ["9.3", "9.4", "9.6"])
def test_every_published_row_is_in_the_table_or_named(section: str) -> None:
    """No row of the reference is passed over in silence."""
    for entry in LEFT_OUT:
        assert any(entry.quote in line for line in sections()[entry.section]), entry.quote
    quotes = [row.quote for row in rows()] + [entry.quote for entry in LEFT_OUT]
    tables = [line for line in sections()[section] if line.startswith("| ") and "---" not in line]
    heads = [line for line in tables if re.search(r"\| Source \|$|^\| Shape M", line)]
    missing = [line for line in tables if line not in heads and not any(quote in line for quote in quotes)]
    assert not missing, missing
