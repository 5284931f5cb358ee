"""Rows of `rkcosim bench` from invented timings (cosim/measure/perf/bench)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rkcosim.cli import bench
from rkcosim.cli.main import app
from rkcosim.measure.perf.attribution import CAUSES
from rkcosim.measure.perf.bench import DEFAULT_ENGINES, ENGINES, JOBS, run
from rkcosim.measure.perf.bench.engines import BOUND
from rkcosim.measure.perf.bench.jobs import EnoughError, Pass, ThreadRow, Timed
from rkcosim.measure.perf.bench.layers import LayerRow, document, markdown
from rkcosim.measure.perf.bench.rows import Bench, BenchRow, bound_row, facts_of, row_of, with_ratios
from rkcosim.measure.perf.bench.whole import WholeRun
from rkcosim.measure.perf.bench.whole import document as whole_document
from rkcosim.measure.perf.bench.whole import markdown as whole_markdown
from rkcosim.measure.perf.page import read_section
from rkcosim.measure.perf.workloads import Measured

MACHINE: dict[str, str | int] = {"cpu": "A", "processors": 2, "system": "Linux x86_64", "compiler": "g++ 12"}


def rows() -> list[BenchRow]:
    """Two engines and both references with constant rates."""
    found = [
        row_of("verilator", "busy", [Pass(1000, 0.5, 990), Pass(1000, 0.25, 990)]),
        row_of("verilator", "idle", [Pass(1000, 0.1)], jump=1e12),
        row_of("plain", "busy", [Pass(1000, 1.0, 990)]),
        row_of("amaranth", "busy", [Pass(10, 1.0, 9, complete=False)]),
        bound_row(4e6),
    ]
    return with_ratios(found)


def test_a_row_is_the_best_pass():
    row = rows()[0]
    assert (row.cycles, row.complete, row.passes) == (1000, True, 2)
    assert row.cycles_per_second == 4000 and row.seconds == 0.75
    assert row.mac_busy == 0.99


def test_ratios_are_to_the_same_workload():
    by = {(row.engine, row.workload): row.ratios for row in rows()}
    assert by["verilator", "busy"] == {"plain": 4.0, "bound": 0.001, "amaranth": 400.0}
    assert by["verilator", "idle"] == {}, "no other engine has idle rows"
    assert "plain" not in by["plain", "busy"]
    assert by["bound", "busy"]["plain"] == 4000.0


def test_passes_must_agree():
    with pytest.raises(RuntimeError, match=r"plain, dma: passes have different cycles: \[10, 11\]"):
        row_of("plain", "dma", [Pass(10, 1.0), Pass(11, 1.0)])
    with pytest.raises(RuntimeError, match="nothing was timed"):
        row_of("plain", "dma", [Pass(0, 0.0)])


def test_json_and_page():
    engines = [facts_of("verilator", 3 << 20), facts_of("plain"), facts_of("amaranth"), facts_of(BOUND)]
    found = Bench(MACHINE, engines, rows())
    data = json.loads(json.dumps(found.as_json()))
    assert data["schema_version"] == 1 and data["machine"]["cpu"] == "A"
    for row in data["rows"]:
        assert {"engine", "workload", "cycles_per_second", "ratios"} <= row.keys()
        assert row["workload"] in ("busy", "dma", "idle", "network")
    targets = {target["what"]: target["met"] for target in data["targets"]}
    assert targets == {"busy cycles a second": False, "times plain Verilog, array busy": False}
    text = found.markdown()
    assert "| cycles a second | busy | idle |" in text
    assert "| default: Verilator, array cell in C++, clock gates | 4,000 | 10,000 |" in text
    assert "| to plain Verilog in Verilator at its usual flags | 4 |" in text
    assert "first cycles of the work were run in: amaranth busy 10" in text
    assert "1,000,000; measured 4,000: missed" in text
    assert "3 MiB" in text and "1.0e+12 idle cycles" in text


class FakeEngine:
    """An engine with given cycles that interrupts after some of them."""

    name = "fake"

    def __init__(self, cycles: int) -> None:
        self.cycle, self.end = 0, cycles

    def counters(self, core: int) -> Any:
        class Counters:
            events = {"mac_slots": max(0, self.cycle - 500)}

        return Counters()

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        self.cycle = min(self.cycle + max_cycles, self.end)
        return int(self.cycle == self.end)

    def read32(self, core: int, offset: int) -> int:
        self.cycle += 3
        return 7


def test_only_the_wanted_part_is_timed():
    engine = FakeEngine(3000)
    timed = Timed(engine, 100, lambda e: e.counters(0).events["mac_slots"] > 0)
    assert timed.read32(0, 0) == 7
    assert timed.found.cycles == 0, "the part to be timed has not begun"
    assert timed.run_until_irq(1, 10_000) == 1
    assert timed.found.complete and 2300 < timed.found.cycles < 2500
    assert timed.found.slots == timed.found.cycles, "the array works all the time"


def test_enough_is_enough():
    timed = Timed(FakeEngine(1 << 40), 0.01)
    with pytest.raises(EnoughError):
        timed.run_until_irq(1, 1 << 40)
    assert not timed.found.complete and timed.found.cycles > 0


def test_what_never_begins():
    with pytest.raises(RuntimeError, match="never began"):
        Timed(FakeEngine(400), 1, lambda e: False).run_until_irq(1, 10_000)


def test_the_command_knows_all_names():
    assert set(bench.ENGINES) == {*ENGINES, BOUND}
    assert set(bench.WORKLOADS) == set(JOBS)
    assert set(DEFAULT_ENGINES) <= set(bench.ENGINES)


# The command, with everything that takes long replaced.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    def fake(what: str, function: Any, name: Any, jobs: Any = (), seconds: float = 0) -> Any:
        if function is run.measure_threads:
            return [ThreadRow(1, 500, 1.0, 1500.0, 1.0), ThreadRow(2, 500, 0.5, 3000.0, 2.0)]
        return [row_of(name, job, [Pass(100, seconds, 90)]) for job in jobs], 1 << 20

    for name, contender in list(ENGINES.items()):
        monkeypatch.setitem(
            run.ENGINES, name, contender.__class__(**{**vars(contender), "open": lambda progress: Nothing()})
        )
    monkeypatch.setattr(run, "apart", fake)
    monkeypatch.setattr(run, "bound_rate", lambda progress: 5e7)


def test_command(quick: None, tmp_path: Path):
    out, page = tmp_path / "bench.json", tmp_path / "page.md"
    words = ["--engines", "verilator, plain,bound", "--workloads", "busy,network", "--seconds", "2"]
    result = CliRunner().invoke(app, ["bench", *words, "--json", str(out), "--page", str(page)])
    assert result.exit_code == 0, result.output
    rows = json.loads(out.read_text())["rows"]
    assert [(row["engine"], row["workload"]) for row in rows] == [
        *(("verilator", "busy"), ("verilator", "network"), ("plain", "busy"), ("plain", "network")),
        ("bound", "busy"),
    ]
    assert all(row["cycles_per_second"] == 50 for row in rows[:4])
    assert "| cycles a second | busy | network |" in read_section("bench", page)
    assert json.loads(out.read_text())["threads"][1]["speedup"] == 2.0
    assert "1,500 core cycles a second of wall-clock time in one thread, times 2.00 in 2" in page.read_text()
    assert "x plain" in result.output and "MISSED" in result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--engines", "verilator,quick"),
            "there is no engine 'quick'; there are verilator, verilator-exact",
        ),
        (("--engines", "plain,plain"), "the same engine was given twice"),
        (("--workloads", "busy,quiet"), "there is no workload 'quiet'"),
        (("--layers", "--model", "a.onnx"), "--layers and --model exclude each other"),
        (("--layers", "--engines", "plain"), "--engines and --workloads have no effect"),
        (("--check",), "--check needs --layers"),
        (("--model", "not there.onnx"), "not there.onnx: no such file"),
    ],
)
def test_bad_words(quick: None, words: tuple[str, ...], said: str):
    result = CliRunner().invoke(app, ["bench", *words])
    assert result.exit_code == 2 and said in result.stderr, result.stderr


def test_a_page_without_the_section(quick: None, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n")
    result = CliRunner().invoke(app, ["bench", "--page", str(page)])
    assert result.exit_code == 2 and "has no section 'bench'" in result.stderr


# Layers.


def measured(cycles: int, npu: int, ddr: int, match: bool | None = None, **spent: int) -> Measured:
    parts = {str(cause): 0 for cause in CAUSES} | spent
    parts["task"] = cycles - sum(parts.values())
    return Measured("layer", 1, cycles, 9, parts["array"], {}, parts, 5, 6, npu, ddr, match)


def test_a_ratio_above_the_limit_is_explained():
    row = LayerRow(measured(2000, 1000, 800, array=1200, features=500, dpu=100), False)
    assert row.measured.ratio == 2.0 and not row.good
    assert row.excess == {"features": 500, "dpu": 100, "array": 200, "task": 200}
    assert row.why.startswith("features (input rows are loaded") and "500 cycles (25%)" in row.why
    text = markdown([row])
    assert "what a ratio above 1.3 is spent on" in text and "| 60.0% | 25.0% | 5.0% | 10.0% |" in text
    assert sum(row.excess.values()) == row.measured.cycles - row.measured.formula_npu


def test_good_layers():
    fine = LayerRow(measured(1050, 1000, 800, True, array=1000, features=50), True)
    assert fine.good and not fine.why
    assert not LayerRow(measured(1250, 1000, 800, array=1000), True).good, "the array is not busy enough"
    assert not LayerRow(measured(1050, 1000, 800, False, array=1000), True).good, "a byte is wrong"
    text = markdown([fine])
    assert "No layer takes more than 1.3 times its bound." in text and "95.2%" in text
    data = json.loads(json.dumps(document([fine])))
    (row,) = data["rows"]
    assert row["formula_cycles"] == 1000 and row["ratio"] == 1.05
    assert sum(row["spent"].values()) == row["cycles"]


def test_whole_models():
    runs = [WholeRun("net.onnx", 6_000_000, 4_100_000_000, True, 15.0, 20.0, 300 << 20)]
    assert (
        "| net.onnx | 6,000,000 | 4,100 | 15.0 | 400,000 | 300 MiB | match |"
        in whole_markdown(runs).splitlines()
    )
    (row,) = json.loads(json.dumps(whole_document(runs)))["rows"]
    assert row["cycles_per_second"] == 400_000 and row["match"]
