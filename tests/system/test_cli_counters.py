"""`rkcosim counters`: a model's run with performance counters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.measure.perf.counted import count_model
from rkcosim.measure.perf.page import read_section
from rkcosim.spec.regs.counters import state_blocks
from tests.makers.jobs import engine_or_skip

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


@pytest.fixture(autouse=True)
def built() -> None:
    """Skip, with the reason, if no engine can be built."""
    engine_or_skip(cores=1).close()


def test_tables_json_and_page(tmp_path: Path):
    """Two inferences on two cores: every block's states add up, and the counted MACs are the network's."""
    out, page = tmp_path / "out.json", tmp_path / "page.md"
    data = ROOT / "examples" / "digits" / "held_back.npz"
    options = ["-i", str(data), "--limit", "2", "--cores", "2", "--json", str(out), "--page", str(page)]
    result = CliRunner().invoke(app, ["counters", str(DIGITS), *options])
    assert result.exit_code == 0, result.stderr
    found = json.loads(out.read_text())
    assert found["schema_version"] == 1 and found["inferences"] == 2 and len(found["cores"]) == 2
    for core in found["cores"]:
        assert core["unaccounted"] == {}
        for block in state_blocks():
            assert sum(core["states"][block.name].values()) == core["cycles"] > 0, block.name
    assert 0 < found["causes"]["array"] < sum(found["causes"].values()) <= 2 * found["cycles"]
    useful = sum(core["macs"]["useful"] for core in found["cores"])
    assert useful == found["macs"] > 0
    assert sum(core["tasks"]["done"] for core in found["cores"]) > 2
    section = read_section("counters", page)
    for block in state_blocks():
        assert f"| {block.name} |" in section and block.name in result.stdout
    assert "Core 1:" in section and "MACs useful" in section


def test_golden_has_none(tmp_path: Path):
    with pytest.raises(ValueError, match="golden has no performance counters"):
        count_model(DIGITS, engine="golden")
    result = CliRunner().invoke(app, ["counters", str(DIGITS), "--engine", "golden"])
    assert result.exit_code == 2 and "golden has no performance counters" in result.stderr
    missing = CliRunner().invoke(app, ["counters", str(tmp_path / "none.onnx")])
    assert missing.exit_code == 2 and "no such file" in missing.stderr
