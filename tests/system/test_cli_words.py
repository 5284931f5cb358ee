"""Small conventions: unknown names, versions, variables, folders, widths, signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from rkcosim.cli import results
from rkcosim.cli.main import app
from rkcosim.cli.options import ENGINES
from rkcosim.engines.engine import open_engine
from rkcosim.engines.event_files import EventFiles, writing
from rkcosim.waves.events import EventLog, EventsError
from rkcosim.waves.spec import SpecError, TraceSpec
from tests.programs import needs_program
from tests.system.test_cli_manners import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "examples" / "streams" / "pool.json"
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"

needs_compiler = needs_program("g++")


def rkcosim(*arguments: object) -> tuple[int, str, str]:
    """Return exit code, printed text, and the error stream."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


WITH_ENGINES = [
    path for path, command in COMMANDS.items() if any("--engine" in p.opts for p in command.params)
]


@pytest.mark.parametrize("path", WITH_ENGINES, ids=" ".join)
def test_an_unknown_engine_lists_those_that_there_are(path: tuple[str, ...]):
    code, _, errors = rkcosim(*path, "--engine", "verilater", "x")
    assert code == 2 and len(errors.splitlines()) == 1
    assert all(name in errors for name in ENGINES) and "did you mean verilator?" in errors


def test_version_and_module():
    code, text, _ = rkcosim("--version")
    assert code == 0 and re.fullmatch(r"rkcosim \S.* \(sources [0-9a-f]{12}\)\n", text)
    start = [sys.executable, "-m", "rkcosim", "--version"]
    done = subprocess.run(start, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == text
    start = [sys.executable, "-m", "rkcosim", "rnu"]
    done = subprocess.run(start, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "(all: rkcosim --help)" in done.stderr


def test_every_variable_is_on_the_page():
    page = (ROOT / "docs" / "commandline.md").read_text()
    listed = set(re.findall(r"^\| (.*?) \|", page.partition("## Environment variables")[2], re.MULTILINE))
    listed = {name for cell in listed for name in re.findall(r"`(\w+)`", cell)}
    names, macros = set(), set()
    for package in ("spec", "rtl", "sw", "cosim", "waves", "apis", "tools"):
        for path in (ROOT / package).rglob("*"):
            if path.suffix not in (".py", ".c", ".h", ".cpp", ".sv", ".v"):
                continue
            text = path.read_text()
            names |= set(re.findall(r"\bRKCOSIM_[A-Z0-9_]+", text))
            macros |= set(re.findall(r"-D(RKCOSIM_[A-Z0-9_]+)", text))
            for line in re.findall(r"^\s*[#`](?:if|ifdef|ifndef|elif|define)\b.*$", text, re.MULTILINE):
                macros |= set(re.findall(r"RKCOSIM_[A-Z0-9_]+", line))
    assert {"RKCOSIM_CACHE", "RKCOSIM_SOCKET", "RKCOSIM_DEBUG"} <= names - macros <= listed
    assert {name for name in listed if name.startswith("RKCOSIM_")} <= names, "a variable that no code reads"


@pytest.mark.parametrize("name", ["o.xyz", "o", "o.vcd.gz"])
def test_an_ending_that_is_no_format(name: str, tmp_path: Path):
    code, _, errors = rkcosim("regcmd", "run", POOL, "--trace", tmp_path / name)
    assert code == 2 and "is not that of a waveform" in errors and "--format vcd" in errors
    assert TraceSpec(tmp_path / name, "fst").format == "fst"
    assert TraceSpec(tmp_path / "O.FST").format == "fst" and TraceSpec(tmp_path / "o.vcd").format == "vcd"


def test_a_folder_that_is_made_is_said(tmp_path: Path):
    folder = tmp_path / "new" / "deep"
    code, _, errors = rkcosim("explain", "0x15", "--json", folder / "x.json")
    assert code == 0 and errors == f"rkcosim: made the folder {folder}\n"
    assert rkcosim("explain", "0x15", "--json", folder / "x.json")[2] == ""
    assert rkcosim("explain", "0x15", "--json", tmp_path / "other" / "x.json", "--quiet")[2] == ""


def test_more_tasks_than_asked_for_are_explained():
    words = ["conformance", "--engine", "golden", "--only", "chains", "--seed", 1]
    code, text, _ = rkcosim(*words, "--tasks", 1)
    assert code == 0 and re.search(
        r"^[2-9] tasks \(1 requested; .* chains are not cut\) in 1 groups", text, re.M
    )
    code, text, _ = rkcosim(*words[:4], "pool int8", "--seed", 1, "--tasks", 2)
    assert code == 0 and "2 tasks in 1 groups" in text and "requested" not in text


def test_a_data_frame_without_pandas(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EventsError, match="pip install pandas"):
        EventLog({}, {}).to_pandas()


@needs_compiler
def test_a_scope_that_is_not_there_leaves_no_event_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = tmp_path / "run.parquet"
    with writing([EventFiles(log)]), open_engine(cores=1) as engine:

        def refused(_: object) -> None:
            raise SpecError("no scope and no signal is called 'core0.Z*'")

        monkeypatch.setattr(engine.tracing._system, "traced", True)
        monkeypatch.setattr(engine.tracing, "start", refused)
        with pytest.raises(SpecError):
            engine.trace(TraceSpec(tmp_path / "w.vcd", scopes=("core0.Z*",)))
    assert not log.exists()


LONG = "a_convolution_whose_name_is_much_longer_than_a_column/of/a/table/on/a/terminal"


def long_names(path: Path) -> Path:
    """A network of floats of one layer with a long name."""
    rng = np.random.default_rng(1)
    weights = helper.make_tensor("w", TensorProto.FLOAT, (8, 3, 1, 1), rng.normal(size=24).astype(np.float32))
    node = helper.make_node("Conv", ["x", "w"], ["y"], name=LONG)
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, c, 6, 6)) for n, c in (("x", 3), ("y", 8))
    ]
    graph = helper.make_graph([node], "g", values[:1], values[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def test_names_are_whole_in_a_pipe(tmp_path: Path):
    model = long_names(tmp_path / "m.onnx")
    start = [sys.executable, "-m", "rkcosim", "run", str(model), "--engine", "golden"]
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    common: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run(start, env=env, check=False, **common)
    assert done.returncode == 0 and LONG in done.stdout, done.stderr
    assert max(map(len, done.stdout.splitlines())) < 400, "a line is padded to a width that no terminal has"
    done = subprocess.run(
        start,
        cwd=ROOT,
        env={**env, "COLUMNS": "110"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert LONG not in done.stdout and LONG[-27:] in done.stdout
    assert results.shortened(LONG, SimpleNamespace(width=80), 10) == f"…{LONG[-9:]}"


@needs_compiler
def test_sigterm_leaves_no_half_built_engine(tmp_path: Path):
    start = [sys.executable, "-m", "rkcosim", "regcmd", "run", str(POOL)]
    run = subprocess.Popen(
        start,
        cwd=ROOT,
        env={**os.environ, "RKCOSIM_CACHE": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".build-*")) and time.monotonic() < deadline:
        assert run.poll() is None, run.communicate()
        time.sleep(0.05)
    assert list(tmp_path.glob(".build-*")), "the build did not start"
    run.send_signal(signal.SIGTERM)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 143 and "ended by SIGTERM" in errors and "Traceback" not in errors
    assert not list(tmp_path.glob(".build-*")) and not list(tmp_path.glob(".new-*"))


# The page of the kit for testbenches.


def test_lines_that_the_page_names():
    page = (ROOT / "docs" / "howto" / "testbenches.md").read_text()
    bench = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert bench is not None
    lines = bench[1].splitlines()
    wrong = next(n for n, line in enumerate(lines, 1) if "assert not wrong.size" in line)
    called = next(n for n, line in enumerate(lines, 1) if "simulate(__file__" in line)
    assert f"/test_pool.py:{wrong})" in page and f"\ntest_pool.py:{called}: SimulationError" in page


def test_names_that_the_page_has_from_the_package():
    pytest.importorskip("cocotb", reason="needs the extra cocotb")
    from rkcosim import cocotb as kit

    page = (ROOT / "docs" / "cocotb.md").read_text().partition("## The parts")[2].partition("## Cycles")[0]
    named = set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)[`(]", page)) - {"AxiLiteMaster", "AxiRam"}
    assert "BusError" in named and named <= {*kit.__all__, "DramConfig"}, named - set(kit.__all__)
    assert issubclass(kit.BusError, Exception)


def test_the_scoreboard_takes_a_drawn_stream():
    pytest.importorskip("cocotb", reason="needs the extra cocotb")
    from rkcosim.cocotb import Scoreboard, random_streams

    class Loaded(Exception):
        pass

    def load(stream: object) -> None:
        given.append(stream)
        raise Loaded

    given: list[object] = []
    (drawn,) = random_streams("pool int8", 1, 1)
    agent: Any = SimpleNamespace(core=0, options=frozenset(), on_reset=[], load=load)
    with pytest.raises(Loaded):
        asyncio.run(Scoreboard(agent).run(drawn))
    assert given == [drawn.stream]
