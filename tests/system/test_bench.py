"""`rkcosim bench` as a real run: rows, equal cycles, parts that add up.  No time is checked."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.engines import open_engine
from rkcosim.engines.soc import SocEngine
from rkcosim.measure.perf.bench.engines import open_plain
from rkcosim.measure.perf.bench.jobs import JOBS, NETWORK
from rkcosim.measure.perf.bench.layers import measure_layers
from rkcosim.measure.perf.bench.run import measure_job
from rkcosim.measure.perf.gate import read_baseline
from rkcosim.measure.perf.workloads import MEMORY
from tests.programs import needs_program
from tests.system import toy_core as toy
from tests.system.toy_core import SOURCE, TARGET

pytestmark = needs_program("g++")


def test_the_default_engine(tmp_path: Path):
    out = tmp_path / "bench.json"
    words = ["--engines", "verilator,bound", "--seconds", "0.02", "--json", str(out)]
    result = CliRunner().invoke(app, ["bench", *words, "--page", str(tmp_path / "page.md")])
    assert result.exit_code == 0, result.output
    data = json.loads(out.read_text())
    rows = {(row["engine"], row["workload"]): row for row in data["rows"]}
    assert set(rows) == {*(("verilator", job) for job in JOBS), ("bound", "busy")}
    assert all(row["cycles_per_second"] > 0 for row in rows.values())
    assert rows["verilator", "busy"]["mac_busy"] > 0.9
    assert rows["verilator", "dma"]["mac_busy"] == rows["verilator", "idle"]["mac_busy"] == 0
    assert 0 < rows["verilator", "busy"]["ratios"]["bound"] < 1
    assert (
        rows["verilator", "idle"]["jump_cycles_per_second"] > rows["verilator", "idle"]["cycles_per_second"]
    )
    assert data["engines"][0]["peak_bytes"] > 10 << 20


@pytest.mark.skipif(not NETWORK.exists(), reason="no example network next to the package")
def test_the_network_is_run_whole():
    row = measure_job("verilator", "network", 1.0)
    assert row.complete and row.cycles == read_baseline()["digits"]["cycles"]


def test_layers_add_up():
    name = "fp16 depthwise 3x3 128 at 28x28"
    (row,) = measure_layers([name], check=True)
    assert row.measured.match
    assert row.measured.cycles == read_baseline()[name]["cycles"]
    assert sum(row.measured.spent.values()) == row.measured.cycles
    assert all(count >= 0 for count in row.measured.spent.values())


def test_plain_verilog_is_the_same_design():
    """The exported Verilog, with its pins driven without registers in between: the same cycles and bytes."""
    found = []
    for make in (partial(open_engine, "verilator", cores=1, design=toy.ToyCore, dram=MEMORY), open_plain_toy):
        with make() as engine:
            for base in (SOURCE, TARGET):
                engine.memory.map(base, 0x1000)
            engine.memory.write(SOURCE, np.arange(0x1000, dtype=np.uint32).astype(np.uint8))
            toy.start(engine, 0, 5)
            assert engine.run_until_irq(1, 20_000) == 1
            total = engine.read32(0, toy.SUM)
            found.append((engine.cycle, total, engine.memory.read(TARGET, 0x1000), engine.counters(0)))
    assert found[0] == found[1]
    assert found[0][2][: 5 * 16 * 32].strip(b"\0"), "nothing was copied"


def open_plain_toy() -> SocEngine:
    return open_plain(design=toy.ToyCore)


@pytest.mark.heavy
@pytest.mark.parametrize("engine", ["plain", "cxxrtl", "verilator-exact"])
def test_engines_take_the_same_cycles(engine: str):
    """Builds every engine of the bench including plain Verilog, which takes minutes."""
    for job in ("network", "dma"):
        row, default = measure_job(engine, job, 60.0), measure_job("verilator", job, 60.0)
        assert row.complete and row.cycles == default.cycles, job
