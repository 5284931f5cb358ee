"""`--dram` of commands that report cycles: slower memory gives the same bytes; snapshots, waveforms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.engines.library import DramConfig
from rkcosim.measure.models.run import run_model
from tests.programs import needs_program

pytestmark = needs_program("g++")

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = EXAMPLES / "digits" / "digits_int8.onnx"
STREAM = EXAMPLES / "streams" / "pool.json"

HALF = ("--dram", "peak_bytes_per_cycle=11.825", "--dram", "core_bytes_per_cycle=5.875")
CHANGED = {"peak_bytes_per_cycle": 11.825, "core_bytes_per_cycle": 5.875}
SAID = (
    "memory timing: peak_bytes_per_cycle=11.825 (default 23.65), core_bytes_per_cycle=5.875 (default 11.75)"
)
TEXT = "peak_bytes_per_cycle=11.825, core_bytes_per_cycle=5.875"


def rkcosim(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def ran(tmp_path: Path, *words: object, code: int = 0) -> tuple[dict[str, Any], str]:
    """Return the JSON of a command and its output."""
    out = tmp_path / "out.json"
    got, text, errors = rkcosim(*words, "--json", out)
    assert got == code, errors
    return json.loads(out.read_text()), text


def bytes_of(run: dict[str, Any]) -> list[tuple[int, int]]:
    return [(row["bytes_read"], row["bytes_written"]) for row in run["layers"]]


@pytest.mark.parametrize("cores", [1, 3])
def test_half_the_bandwidth(tmp_path: Path, cores: int):
    options = ("--cores", cores, "--check")
    full, text = ran(tmp_path, "run", DIGITS, *options)
    assert full["dram_changed"] == {} and "memory timing" not in text
    half, text = ran(tmp_path, "run", DIGITS, *options, *HALF)
    assert half["dram_changed"] == CHANGED and half["dram"] == full["dram"] | CHANGED and SAID in text
    assert half["cycles"] > full["cycles"] and half["verdict"] == full["verdict"]
    assert bytes_of(half) == bytes_of(full) and half["outputs"] == full["outputs"]
    for slow, fast in zip(half["layers"], full["layers"], strict=True):
        assert slow["formula_npu"] == fast["formula_npu"]
        assert slow["formula_ddr"] >= 1.5 * fast["formula_ddr"], (
            "the bound is that of the memory that was used"
        )
    assert half["cycles"] == run_model(DIGITS, dram=DramConfig(**CHANGED), cores=cores, check=True).cycles


def test_snapshots(tmp_path: Path):
    """The memory setting is part of the snapshot; a run with another setting cannot continue from it."""
    whole, _ = ran(tmp_path, "run", DIGITS, *HALF)
    snap = tmp_path / "s.snap"
    ran(tmp_path, "run", DIGITS, *HALF, "--save", snap, "--at", "task:2")
    for again in ((), HALF):
        rest, text = ran(tmp_path, "run", DIGITS, "--resume", snap, *again)
        assert rest["cycles"] == whole["cycles"] and rest["tasks"] == whole["tasks"]
        assert rest["dram_changed"] == CHANGED and SAID in text
    for other, said in (
        ("peak_bytes_per_cycle=23.65", "default"),
        ("read_latency=60", "read_latency=60"),
    ):
        code, _, errors = rkcosim("run", DIGITS, "--resume", snap, "--dram", other)
        assert code == 2
        assert f"saved with memory timing {TEXT}, this is {said}\n" in errors
    ran(tmp_path, "run", DIGITS, "--save", snap, "--at", "task:2")
    code, _, errors = rkcosim("run", DIGITS, "--resume", snap, *HALF)
    assert code == 2 and f"saved with memory timing default, this is {TEXT}" in errors


def test_streams(tmp_path: Path):
    full, _ = ran(tmp_path, "regcmd", "run", STREAM, "--check")
    slow, text = ran(tmp_path, "regcmd", "run", STREAM, "--check", "--dram", "read_latency=500")
    assert full["dram_changed"] == {} and slow["dram_changed"] == {"read_latency": 500}
    assert slow["cycles"] >= full["cycles"] + 380 and slow["verdict"] == full["verdict"] == {"match": True}
    assert "memory timing: read_latency=500 (default 120)" in text
    snap = tmp_path / "s.snap"
    ran(tmp_path, "regcmd", "run", STREAM, "--dram", "read_latency=500", "--save", snap, "--at", "task:0")
    rest, _ = ran(tmp_path, "regcmd", "run", STREAM, "--resume", snap)
    assert rest["cycles"] == slow["cycles"] and rest["dram"]["read_latency"] == 500


def test_waveforms_and_pages(tmp_path: Path):
    wave, page = tmp_path / "w.vcd", tmp_path / "page.html"
    plain, _ = ran(tmp_path, "run", DIGITS, *HALF)
    options = ("--trace", wave, "--scope", "tasks", "--threads", 1)
    traced, _ = ran(tmp_path, "run", DIGITS, *HALF, *options)
    assert wave.stat().st_size and traced["cycles"] == plain["cycles"]
    pytest.importorskip("jinja2", reason="needs the extra report")
    ran(tmp_path, "run", DIGITS, *HALF, "--html", page)
    assert "not the default memory" in page.read_text() and "peak_bytes_per_cycle=11.825" in page.read_text()


def test_counters(tmp_path: Path):
    full, _ = ran(tmp_path, "counters", DIGITS)
    half, text = ran(tmp_path, "counters", DIGITS, *HALF)
    assert half["cycles"] > full["cycles"] and half["dram_changed"] == CHANGED and SAID in text
    assert half["cores"][0]["bytes"] == full["cores"][0]["bytes"] and not half["cores"][0]["unaccounted"]


def test_a_refused_burst(tmp_path: Path):
    code, _, errors = rkcosim("run", DIGITS, "--dram", "fault_read=20")
    assert code == 3 and "read error injected" in errors


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", DIGITS, "--dram", "speed=1"), "--dram: no setting 'speed', there are peak_bytes_per_cycle"),
        (("run", DIGITS, "--dram", "jitter=x"), "--dram: jitter: 'x' is not a whole number"),
        (("run", DIGITS, "--dram", "jitter=1,2"), "--dram: 2 values of jitter"),
        (("run", DIGITS, *HALF, "--engine", "golden"), "the engine golden counts no cycles; --dram needs"),
        (("run", DIGITS, "--shards", "2", "--dram", "fault_read=1"), "fault_read and fault_write count the"),
        (("regcmd", "run", STREAM, "--dram", "efficiency=2,3"), "--dram: 2 values of efficiency"),
        (("counters", DIGITS, *HALF, "--page", "page.md"), "leave out --dram or --page"),
        (("bench", *HALF), "--dram needs --model"),
        (("bench", "--model", DIGITS, *HALF, "--page", "page.md"), "leave out --dram or --page"),
        (("device", *HALF, "--socket", "no.sock", "--", "true"), "--dram is an option of the server"),
        (("serve", "--dram", "efficiency=-1"), "--dram: efficiency must be above 0"),
        (("regcmd", "capture", "--dram", "a=1", "--", "true"), "--dram: no setting 'a'"),
    ],
)
def test_refused(words: tuple[object, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    code, _, errors = rkcosim(*words)
    assert code == 2 and said in errors and errors.count("\n") == 1
