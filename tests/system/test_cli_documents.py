"""However a run ends, the requested documents are written, or the message names those that are not."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rkcosim.cli import exits
from rkcosim.cli.app import Group, Options, command
from rkcosim.cli.main import app
from rkcosim.cli.moments import check_trace, work_of_model
from rkcosim.cli.options import Html
from rkcosim.devices.simulated import Report
from rkcosim.driver.core_port import Kick
from rkcosim.engines import build
from rkcosim.engines.protocol import EngineError
from rkcosim.engines.settings import cycles_text
from rkcosim.running.session import Session
from rkcosim.verify.streams.stream import Stream
from rkcosim.waves import events
from rkcosim.waves.spec import SpecError, TraceSpec, When
from tests.programs import needs_program

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "examples" / "streams" / "pool.json"
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"

needs_compiler = needs_program("g++")
engines = pytest.mark.parametrize("engine", ["golden", pytest.param("verilator", marks=needs_compiler)])


def rkcosim(*arguments: object, of: click.Command = app) -> tuple[int, str, str]:
    """Return exit code, printed text, and the error stream."""
    result = CliRunner().invoke(of, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def damaged(path: Path) -> Path:
    """Return a stream whose first command word is invalid."""
    stream = Stream.load(POOL)
    stream.regions[0].data[:8] = 0xFF
    stream.save(path)
    return path


def hanging(path: Path) -> Path:
    """Return a stream of two tasks whose first one has no link to the second."""
    stream = Stream.load(POOL)
    Stream(Kick(**stream.kick.__dict__ | {"tasks": 2}), stream.regions).save(path)
    return path


@engines
def test_a_diagnostic_leaves_json_and_page(engine: str, tmp_path: Path):
    out, page = tmp_path / "run.json", tmp_path / "run.html"
    given = ["--engine", engine, "--json", out, "--html", page]
    code, _, errors = rkcosim("regcmd", "run", damaged(tmp_path / "bad.json"), *given)
    assert code == exits.DEVICE_ERROR and "not written" not in errors
    data = json.loads(out.read_text())
    assert data["done"] is False and data["error"]["exit_code"] == code
    assert data["error"]["text"] in errors and data["error"]["kind"] in ("GoldenError", "DiagnosticError")
    assert data["state"] and data["rows"] is not None
    assert ">stopped<" in page.read_text()


@engines
def test_a_time_out_leaves_json_and_page(engine: str, tmp_path: Path):
    out, page = tmp_path / "run.json", tmp_path / "run.html"
    given = ["--engine", engine, "--json", out, "--html", page, "--max-cycles", 20000]
    given += ["--on-diagnostic", "go on"]
    code, _, errors = rkcosim("regcmd", "run", hanging(tmp_path / "hang.json"), *given)
    assert code == exits.DEVICE_ERROR and "not written" not in errors
    data = json.loads(out.read_text())
    assert data["error"]["text"] in errors and data["state"] in errors and data["state"]
    assert page.exists()


@needs_compiler
def test_a_diagnostic_leaves_the_event_log(tmp_path: Path):
    log, line = tmp_path / "run.parquet", tmp_path / "run.perfetto"
    given = ["--events", log, "--timeline", line]
    code, _, errors = rkcosim("regcmd", "run", damaged(tmp_path / "bad.json"), *given)
    assert code == exits.DEVICE_ERROR and "not written" not in errors
    assert len(events.load(log).where(kind="diagnostic")) and line.stat().st_size


def test_json_on_standard_output_has_the_error(tmp_path: Path):
    code, text, errors = rkcosim(
        "regcmd", "run", damaged(tmp_path / "bad.json"), "--engine", "golden", "--json", "-"
    )
    assert code == exits.DEVICE_ERROR and json.loads(text)["error"]["text"] in errors


def test_a_model_that_stops_leaves_json_and_names_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def stops(*_: object) -> None:
        raise EngineError("the device is gone")

    monkeypatch.setattr(Session, "infer", stops)
    out, page, table = tmp_path / "run.json", tmp_path / "run.html", tmp_path / "run.csv"
    given = ["--engine", "golden", "--json", out, "--html", page, "--csv", table]
    code, _, errors = rkcosim("run", DIGITS, *given)
    assert code == exits.DEVICE_ERROR
    assert f"(not written: {table}, {page})" in errors and not page.exists() and not table.exists()
    data = json.loads(out.read_text())
    assert data["command"] == "run" and data["verdict"] == {"match": None}
    wanted = {"text": "the device is gone", "exit_code": exits.DEVICE_ERROR, "kind": "EngineError"}
    assert data["error"] == wanted


def test_two_streams_that_hang(tmp_path: Path):
    out, bad = tmp_path / "diff.json", hanging(tmp_path / "hang.json")
    code, _, errors = rkcosim("diff", bad, bad, "--engine", "golden", "--json", out)
    assert code == exits.DEVICE_ERROR
    assert json.loads(out.read_text())["error"]["state"] in errors


@dataclass(frozen=True, kw_only=True)
class ForgetOptions(Options):
    """Options of a command that forgets its JSON document."""

    html: Html = None


def made(ending: object) -> click.Command:
    """Return a command that writes its page, ends as specified, and forgets its JSON document."""

    @command()
    def forget_command(asked: ForgetOptions) -> None:
        """Forget."""
        if asked.html is not None:
            asked.html.write_text("page")
        if isinstance(ending, BaseException):
            raise ending

    group = Group("rkcosim", {"forget": ""})
    group.add_command(forget_command)
    return group


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (None, exits.BAD_INPUT),
        (SystemExit(0), exits.BAD_INPUT),
        (SystemExit(1), 1),
        (ValueError("wrong"), exits.BAD_INPUT),
        (KeyboardInterrupt(), exits.INTERRUPTED),
    ],
    ids=str,
)
def test_what_was_not_written_is_named(ending: Any, code: int, tmp_path: Path):
    out, page = tmp_path / "out.json", tmp_path / "out.html"
    page.write_text("of an earlier run")
    got, _, errors = rkcosim("forget", "--json", out, "--html", page, of=made(ending))
    assert got == code and "not written" in errors
    assert str(out) in errors and str(page) not in errors


def test_bad_input_writes_nothing(tmp_path: Path):
    out = tmp_path / "out.json"
    code, _, errors = rkcosim("run", tmp_path / "none.onnx", "--json", out)
    assert code == exits.BAD_INPUT and "not written" not in errors and not out.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", DIGITS, "--from", "layer:residul"], "no layer has this name; did you mean residual?"),
        (["run", DIGITS, "--from", "layer:???"], "no layer has this name; there are "),
        (["run", DIGITS, "--to", "layer:cnv1"], "'layer:cnv1'"),
        (["run", DIGITS, "--from", "task:999"], "the last one is task:"),
        (["run", DIGITS, "--from", "task:0@3"], "there is one job, number 0"),
        (["run", DIGITS, "--scope", "core0.CNE"], "did you mean core0.CNA"),
        (["run", DIGITS, "--scope", "core1.CNA"], "did you mean core0"),
        (["regcmd", "run", POOL, "--from", "task:7"], "the last one is task:0"),
        (["regcmd", "run", POOL, "--from", "task:0@1"], "there is one job, number 0"),
        (["regcmd", "run", POOL, "--from", "layer:pool"], "use task:N"),
        (["regcmd", "run", POOL, "--scope", "core0.PUP"], "did you mean core0.PPU"),
        (["device", "--scope", "core3", "--", "true"], "did you mean core"),
        (["device", "--from", "layer:x", "--", "true"], "use task:N"),
        (["serve", "--scope", "core0.PUP"], "did you mean core0.PPU"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else None,
)
def test_names_are_checked_before_anything_is_built(
    words: list[object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def built(*_: object, **__: object) -> None:
        raise AssertionError("a library was asked for")

    monkeypatch.setattr(build, "build", built)
    wave = tmp_path / "new" / "w.vcd"
    place = words.index("--") if "--" in words else len(words)
    code, _, errors = rkcosim(*words[:place], "--trace", wave, *words[place:])
    assert code == exits.BAD_INPUT and said in errors and len(errors.splitlines()) == 1, errors
    assert not wave.parent.exists()


def test_layer_of_a_snapshot_is_checked_too(tmp_path: Path):
    code, _, errors = rkcosim("run", DIGITS, "--save", tmp_path / "x.snap", "--at", "layer:nothing")
    assert code == exits.BAD_INPUT and "'layer:nothing': no layer has this name" in errors


def test_layers_of_a_model_pass():
    work = work_of_model(DIGITS, 1, False, 2)
    assert work.layers
    for name in work.layers or ():
        check_trace(TraceSpec(Path("w.vcd"), start=When.parse(f"layer:{name}")), work)
    assert work.kicks is not None
    last = When.parse(f"task:{work.kicks[-1] - 1}@{2 * len(work.kicks) - 1}")
    check_trace(TraceSpec(Path("w.vcd"), start=last), work)
    for task, job in ((work.kicks[-1], 2 * len(work.kicks) - 1), (0, 2 * len(work.kicks))):
        with pytest.raises(SpecError):
            check_trace(TraceSpec(Path("w.vcd"), start=When.parse(f"task:{task}@{job}")), work)


PROGRAM = ROOT / "examples" / "device" / "program.py"
UNMEASURED: dict[str, list[object]] = {
    "run": ["run", DIGITS],
    "run on two cores": ["run", DIGITS, "--cores", 2],
    "regcmd run": ["regcmd", "run", POOL],
    "regcmd run to its bound": ["regcmd", "run", "HANGING", "--on-diagnostic", "go on"],
    "conformance": ["conformance", "--only", "pool int8", "--tasks", 2, "--seed", 1],
    "device": ["device", "--report", "--", sys.executable, PROGRAM, "rknpu"],
    "regcmd capture": ["regcmd", "capture", "-o", "OUT", "--", sys.executable, PROGRAM, "rknpu"],
}


def times(data: Any, path: str = "") -> dict[str, Any]:
    """Return every member of a document that is a time of the device."""
    if isinstance(data, list):
        return {k: v for n, item in enumerate(data) for k, v in times(item, f"{path}[{n}]").items()}
    if not isinstance(data, dict):
        names = ("cycles", "core_cycles", "cycles_per_second", "inference_cycles", "busy", "mac_busy")
        return {path: data} if path.rpartition(".")[2].partition("[")[0] in names else {}
    return {k: v for name, item in data.items() for k, v in times(item, f"{path}.{name}").items()}


@pytest.mark.parametrize("name", UNMEASURED)
def test_the_golden_engine_tells_no_times(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    out, page, place = tmp_path / "o.json", tmp_path / "o.html", tmp_path / "capture.json"
    given = {"OUT": place, "HANGING": hanging(tmp_path / "hang.json")}
    words = [given.get(word, word) if isinstance(word, str) else word for word in UNMEASURED[name]]
    options: list[object] = ["--engine", "golden", "--json", out]
    options += ["--html", page] if "run" in name else []
    at = words.index("--") if "--" in words else len(words)
    _, text, errors = rkcosim(*words[:at], *options, *words[at:])
    found = times(json.loads(out.read_text()))
    assert found and set(found.values()) == {None}, found
    text += errors.replace("within 10000000 cycles", "") + "".join(capfd.readouterr())
    assert not re.search(r"\d (cycles|ms\b)", text), text
    if page.exists():
        assert "at 1 GHz" not in page.read_text()


def test_a_measured_engine_tells_them(tmp_path: Path):
    report = Report("verilator", 1, 2, 300, 1.0, 0.5)
    assert report.as_json()["cycles"] == 300 and "300 cycles on verilator" in report.text()
    report.engine = "golden"
    assert report.as_json()["cycles"] is None and "- cycles on golden" in report.text()
    assert (cycles_text(1234, "cxxrtl"), cycles_text(1234, "golden")) == ("1,234", "-")
