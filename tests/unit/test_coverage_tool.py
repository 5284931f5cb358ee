"""The coverage of tools/coverage: lines and bits of a small design, the page and its reasons."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.engines import toolchain
from tests.unit import test_coverage_tool as this
from tools.coverage import annotate, model
from tools.coverage.constants import constant_bits
from tools.coverage.page import LINES, NO_REASON, renumbered, rows
from tools.coverage.reasons import SignalReason, read
from tools.coverage.results import Coverage, coverage

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).name

needs_verilator = pytest.mark.skipif(toolchain.verilator() is None, reason="no Verilator on this machine")


class Counter(wiring.Component):
    """Counts to 9 and is never told to load."""

    load: In(1)
    o: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count = Signal(8)
        wide = Signal(100)
        spare = Signal(4)
        shifted = Signal(8)
        m.d.sync += count.eq(count + 1)  # in every cycle, so it is not counted
        with m.If(count == 9):
            m.d.sync += count.eq(0)
        with m.Elif(self.load):
            m.d.sync += count.eq(5)  # never
        with m.Switch(count[:2]):
            with m.Case(2):
                m.d.comb += spare.eq(count)
            with m.Case(3):
                m.d.comb += spare.eq(1)
            with m.Default():
                m.d.comb += spare.eq(0)
        m.d.sync += wide.eq(wide ^ (1 << count))
        with m.If(count[0]):  # bits 0 and 1 are always 0, and bit 7
            m.d.comb += shifted.eq((count[:3] * 3)[:5] << 2)
        with m.FSM():
            with m.State("FIRST"):
                with m.If(count == 20):
                    m.next = "SECOND"  # never
            with m.State("SECOND"):
                m.d.comb += self.o[7].eq(1)  # never
        m.d.comb += self.o[:7].eq(count ^ spare ^ wide[93:] ^ shifted)
        return m


MAIN = """
#include <cstdio>
#include "Vcore.h"
#include "Vcore___024root.h"
#include "Vcore__Syms.h"
int main() {
    VerilatedContext context;
    Vcore top(&context);
    auto& counters = top.rootp->vlSymsp->__Vcoverage;
    for (auto& counter : counters) counter = 0;
    for (int n = 0; n < 200; n++) {
        top.clk = n & 1;
        top.eval();
    }
    for (auto counter : counters) std::printf("%u\\n", counter);
}
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Coverage:
    """The coverage of `Counter` after 100 cycles."""
    folder = tmp_path_factory.mktemp("coverage")
    tool = toolchain.verilator()
    assert tool is not None and tool.include is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annotate, "OURS", HERE)
        found = model.annotated(Counter(), "counter")
    (folder / "counter.v").write_text(found.text)
    options = [word.replace("core_top", "counter") for word in model.VERILATOR]
    tool.run([*options, "--Mdir", "obj", "counter.v"], folder)
    counters = model.prepared(folder / "obj", found, "counter.v").without(constant_bits(found.text))
    (folder / "main.cpp").write_text(MAIN)
    sources = [*sorted((folder / "obj").glob("*.cpp")), folder / "main.cpp"]
    sources += [tool.include / f"{name}.cpp" for name in ("verilated", "verilated_threads", "verilated_cov")]
    words = [*model.flags(folder / "obj", tool.include), "-O0", "-o", "main", *map(str, sources)]
    toolchain.compiler().run(words, folder)
    done = subprocess.run([folder / "main"], capture_output=True, text=True, check=True)
    counts = np.array(done.stdout.split(), np.uint32)
    assert counts.size == counters.size
    return coverage(counters, counts > 0)


def _text(line: int) -> str:
    return Path(this.__file__).read_text(encoding="utf-8").splitlines()[line - 1]


@needs_verilator
def test_exactly_the_lines_that_never_run_are_reported(measured: Coverage) -> None:
    source = Path(this.__file__).read_text(encoding="utf-8").splitlines()
    never = [number for number, text in enumerate(source, 1) if text.endswith("# never")]
    assert len(never) == 3
    assert [line.number for line in measured.uncovered()] == never
    ran = [_text(line.number).strip() for line in measured.lines.values() if line.ran]
    assert sorted(ran) == sorted(
        [
            "m.d.sync += count.eq(0)",
            "m.d.comb += spare.eq(count)",
            "m.d.comb += spare.eq(1)",
            "m.d.comb += spare.eq(0)",
            "m.d.comb += shifted.eq((count[:3] * 3)[:5] << 2)",
        ]
    )


@needs_verilator
def test_exactly_the_bits_that_never_move_are_reported(measured: Coverage) -> None:
    missing = {toggles.signal.name: toggles for toggles in measured.signals}
    assert missing["count"].missing == [4, 5, 6, 7]  # counts to 9
    assert missing["spare"].missing == [3]  # 0, 1, 2 and 6
    assert missing["wide"].never_1 == list(range(10, 100))  # bits above 64 too


PAGE = ROOT / "docs/results/rtl_coverage.md"


def test_every_row_of_the_page_is_a_line_of_the_sources() -> None:
    wrong = []
    for row in rows(PAGE.read_text()):
        lines = (ROOT / row.file).read_text().splitlines() if (ROOT / row.file).is_file() else []
        if lines[row.number - 1 : row.number] == [] or lines[row.number - 1].strip() != row.text:
            wrong.append(f"{row.file}:{row.number}: {row.text}")
    assert not wrong, (
        "the page is not that of the sources: if only lines moved, run "
        "python -m tools.coverage --renumber docs/results/rtl_coverage.md, else make coverage\n"
        + "\n".join(wrong)
    )


def test_the_page_gives_the_reasons_of_the_file() -> None:
    reasons, text = read(), PAGE.read_text()
    assert NO_REASON not in text
    for row in rows(text):
        assert reasons.line(row.file, row.text), f"{row.file}:{row.number} has no reason"
    assert {(row.file, row.text) for row in rows(text)} == {(r.file, r.text) for r in reasons.lines}
    assert {r.reason for r in (*reasons.lines, *reasons.signals) if r.reason not in text} == set()


def test_every_reason_is_about_a_line_that_exists() -> None:
    for reason in read().lines:
        lines = [line.strip() for line in (ROOT / reason.file).read_text().splitlines()]
        assert reason.text in lines and len(reason.reason) >= 10, f"{reason.file}: {reason.text}"


@pytest.mark.parametrize("reason", read().signals, ids=lambda reason: f"{reason.file}: {reason.names[0]}")
def test_every_reason_is_about_signals_of_a_file_that_exists(reason: SignalReason) -> None:
    assert list(ROOT.glob(reason.file)) and reason.names and len(reason.reason) >= 10
    assert not reason.bits or re.fullmatch(r"\d+(:\d+)?", reason.bits)


def test_lines_that_moved_are_renumbered(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("\n\nx = 1\ny = 2 | 3\nx = 1\n")
    table = "| file | line | text | why |\n| --- | ---: | --- | --- |\n"
    text = f"begin\n{LINES}\n\n{table}| `a.py` | 1 | `x = 1` | a |\n| `a.py` | 2 | `y = 2 \\| 3` | b |\n"
    text += "| `a.py` | 3 | `x = 1` | c |\n\n## Next\n\n| `a.py` | 9 | `z` | d |\n"
    found = renumbered(text, tmp_path)
    assert [(row.number, row.text) for row in rows(found)] == [(3, "x = 1"), (4, "y = 2 | 3"), (5, "x = 1")]
    assert renumbered(found, tmp_path) == found and found.endswith("| 9 | `z` | d |\n")
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(ValueError, match="make coverage"):
        renumbered(text, tmp_path)


@needs_verilator
def test_bits_that_are_constant_are_not_counted(measured: Coverage) -> None:
    counted = {toggles.signal.name: toggles.signal.bits for toggles in measured.signals}
    assert counted["shifted"] == (2, 3, 4, 5, 6)
    assert counted["count"] == tuple(range(8)) and counted["wide"] == tuple(range(100))
