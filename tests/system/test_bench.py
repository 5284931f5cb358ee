"""`rkcosim bench` for real: rows, equal cycles, parts that add up.  No time is asserted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cosim.cli.main import app
from cosim.perf.bench.jobs import JOBS, NETWORK
from cosim.perf.bench.layers import measure_layers
from cosim.perf.bench.run import measure_job
from cosim.perf.gate import read_baseline

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")


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


@pytest.mark.skipif(not NETWORK.exists(), reason="no example network beside the package")
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


@pytest.mark.heavy
@pytest.mark.parametrize("engine", ["plain", "cxxrtl", "verilator-exact"])
def test_engines_take_the_same_cycles(engine: str):
    """Builds every engine of the bench, plain Verilog among them, which takes minutes."""
    for job in ("network", "dma"):
        row, default = measure_job(engine, job, 60.0), measure_job("verilator", job, 60.0)
        assert row.complete and row.cycles == default.cycles, job
