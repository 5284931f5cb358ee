"""`--events` and `--timeline` of every command that runs something, and `rkcosim timeline`."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.waves import events
from rkcosim.waves.events import EventLog

pytest.importorskip("pyarrow")
messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "examples/streams/pool.json"
DIGITS = ROOT / "examples/digits/digits_int8.onnx"
PROGRAM = ROOT / "examples/device/program.py"


def rkcosim(*arguments: object) -> tuple[int, str]:
    """Return exit code and all printed text."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def packets(path: Path) -> int:
    """Events in a timeline."""
    trace = messages.Trace.FromString(path.read_bytes())
    return sum(packet.HasField("track_event") for packet in trace.packet)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[EventLog, dict, Path]:
    """Return log, report and folder of two inferences."""
    folder = tmp_path_factory.mktemp("digits")
    code, said = rkcosim(
        *("run", DIGITS, "--input", DIGITS.parent / "held_back.npz", "--limit", 2),
        *("--events", folder / "log.parquet", "--timeline", folder / "log.pftrace"),
        *("--json", folder / "run.json"),
    )
    assert code == 0, said
    return events.load(folder / "log.parquet"), json.loads((folder / "run.json").read_text()), folder


def test_a_model_has_layers(digits: tuple[EventLog, dict, Path]):
    log, report, folder = digits
    layers = [row for row in report["layers"] if row["target"] == "npu"]
    first = [e for e in log.where(kind="layer") if e.job == 0]
    assert [e.reason for e in first] == [row["name"] for row in layers]
    # The report's rows are those of the first inference.
    for event, row in zip(first, layers, strict=True):
        spans = [s for s in log.summary() if s.job == 0 and s.layer == event.reason]
        assert sum(s.cycles for s in spans) == row["cycles"] and len(spans) == row["tasks"]
        written = sum(n for s in spans for n in s.bytes_written.values())
        read = sum(n for s in spans for client, n in s.bytes_read.items() if client != "PC")
        assert (read, written) == (row["bytes_read"], row["bytes_written"])
    both = {one.layer: one for one in log.layers()}
    assert list(both) == [row["name"] for row in layers]
    assert all(one.tasks == 2 * row["tasks"] for one, row in zip(both.values(), layers, strict=True))
    assert packets(folder / "log.pftrace") > len(log)


def test_a_stream(tmp_path: Path):
    log = tmp_path / "deep" / "log.arrow"
    code, said = rkcosim("regcmd", "run", POOL, "--events", log, "--event-kinds", "task,burst")
    assert code == 0 and f"events: {len(events.load(log))} in {log}" in " ".join(said.split())
    assert set(events.load(log).count()) == {"task", "burst"}


def test_a_program(tmp_path: Path):
    log = tmp_path / "log.parquet"
    code, said = rkcosim("device", "--events", log, "--", sys.executable, PROGRAM, "rknpu")
    assert code == 0, said
    assert {span.core for span in events.load(log).tasks()} == {0, 1, 2}


def test_beside_a_waveform(tmp_path: Path):
    code, said = rkcosim(
        *("regcmd", "run", POOL, "--trace", tmp_path / "pool.vcd", "--from", 300, "--to", 500)
    )
    assert code == 0, said
    log = events.load(tmp_path / "pool.events.parquet")
    assert (log.meta["first"], log.meta["last"]) == (300, 499)
    assert log.where(kind="burst")["cycle"].min() >= 300


def test_beside_a_waveform_that_begins_by_itself(tmp_path: Path):
    """The log is reduced to the cycles of the waveform."""
    code, said = rkcosim(
        *("run", DIGITS, "--trace", tmp_path / "run.vcd", "--scope", "tasks"),
        *("--from", "layer:pool", "--to", "layer:pool"),
    )
    assert code == 0, said
    log = events.load(tmp_path / "run.events.parquet")
    layer = next(e for e in log.where(kind="layer") if e.reason == "pool")
    first, last = log.meta["traced"]
    assert first <= layer.cycle and layer.end - 1 <= last < layer.end + 10
    assert (log.meta["first"], log.meta["last"]) == (first, last)
    assert set(log.where(kind=["burst", "write", "stall"])["job"]) == {0}
    assert len(log.where(kind="task")) <= 2 and log.where(kind="packet")["task"].tolist()


def test_beside_a_waveform_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, said = rkcosim("regcmd", "run", POOL, "--trace", tmp_path / "pool.vcd")
    assert code == 0 and "no event log is written next to" in said and "pip install 'rkcosim[waves]'" in said
    assert not list(tmp_path.glob("*.parquet"))
    code, said = rkcosim("regcmd", "run", POOL, "--events", tmp_path / "log.parquet")
    assert code == 2 and "pip install 'rkcosim[waves]'" in said


def test_a_run_that_fails_keeps_its_events(tmp_path: Path):
    log = tmp_path / "log.parquet"
    code, said = rkcosim("regcmd", "run", POOL, "--max-cycles", 200, "--events", log)
    assert code == 3, said
    assert {"write", "burst"} <= set(events.load(log).count())


def test_a_full_log_is_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "rkcosim.engines.events.Recording.start.__kwdefaults__",
        {
            "first": 0,
            "last": None,
            "limit": 10,
            "gap": 8,
        },
    )
    code, said = rkcosim("regcmd", "run", POOL, "--events", tmp_path / "log.parquet")
    assert code == 0 and "the event log was full after 10 events; dropped: write" in said
    assert sum(events.load(tmp_path / "log.parquet").dropped.values()) > 10


def test_timeline_of_a_log(digits: tuple[EventLog, dict, Path], tmp_path: Path):
    log, _, folder = digits
    code, said = rkcosim("timeline", folder / "log.parquet", "-o", tmp_path / "t.pftrace")
    assert code == 0 and f"{len(log):,} events" in said
    assert packets(tmp_path / "t.pftrace") == packets(folder / "log.pftrace")
    code, said = rkcosim(
        *("timeline", folder / "log.parquet", "-o", tmp_path / "w.pftrace", "--from", 3000, "--to", 4000)
    )
    assert code == 0 and 0 < packets(tmp_path / "w.pftrace") < packets(tmp_path / "t.pftrace")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["regcmd", "run", POOL, "--events", "log.txt"], "an event log is a .parquet or an .arrow file"),
        (
            ["regcmd", "run", POOL, "--engine", "golden", "--events", "l.arrow"],
            "records no events; --events needs",
        ),
        (["regcmd", "run", POOL, "--events", "l.arrow", "--event-kinds", "tasks"], "no events of kind"),
        (["regcmd", "run", POOL, "--event-kinds", "task"], "needs --events FILE or --timeline FILE"),
        (["timeline", "none.parquet"], "none.parquet: no such file"),
        (["timeline", POOL], "an event log is a .parquet or an .arrow file"),
        (["device", "--socket", "s.sock", "--events", "l.arrow", "--", "true"], "is an option of the server"),
    ],
)
def test_bad_input(words: list[object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    code, said = rkcosim(*words)
    assert code == 2 and message in " ".join(said.split()), said
    assert len(said.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


def test_timeline_of_a_window_without_events(digits: tuple[EventLog, dict, Path], tmp_path: Path):
    code, said = rkcosim(
        *("timeline", digits[2] / "log.parquet", "-o", tmp_path / "t.pftrace", "--from", 10**9)
    )
    assert code == 2 and "is in that window" in said


def test_the_example_reads_a_log(
    digits: tuple[EventLog, dict, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", ["events.py", str(digits[2] / "log.parquet")])
    runpy.run_path(str(ROOT / "examples/waves/events.py"), run_name="__main__")
    said = capsys.readouterr().out
    log = digits[0]
    stalled = {
        one.layer: sum(n for name, n in one.stalls.items() if name not in _OVERLAPPING)
        for one in log.layers()
    }
    assert f"'{max(stalled, key=lambda name: stalled[name])}' stalls most" in said
    assert "the longest burst:" in said


_OVERLAPPING = ("stall_acc", "stall_dpu", "stall_write", "only_output")
