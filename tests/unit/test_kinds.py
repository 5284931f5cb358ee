"""Files are recognised by their contents; every command's answer to files of another kind."""

from __future__ import annotations

import io
import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.base.files import KINDS, UNKNOWN, identify
from rkcosim.cli.main import app
from rkcosim.compiler import compile_model
from rkcosim.engines.snapshots.file import SnapshotFile
from tests.unit.test_report import run as report_of_a_run

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples/digits/digits_int8.onnx"
INPUTS = ROOT / "examples/digits/held_back.npz"
POOL = ROOT / "examples/streams/pool.json"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file of each kind, with names that do not show the kind."""
    folder = tmp_path_factory.mktemp("kinds")
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    SnapshotFile({}, {}).write(folder / "snapshot")
    listing = folder / "listing"
    CliRunner().invoke(app, ["regcmd", "dump", str(POOL), "--with-memory", "-o", str(listing)])
    contents: dict[str, bytes] = {
        "ONNX model": DIGITS.read_bytes(),
        "TFLite model": struct.pack("<I", 28) + b"TFL3" + bytes(40),
        "TNN network": b'"1 2 1 4206624770 ,"\n"x 1 1 2 2 ,"\n" x y ,"\n"y ,"\n" 1 ,"\n"ReLU y 1 1 x y ,"\n',
        "compiled model": compile_model(DIGITS.read_bytes()).save(),
        "snapshot": (folder / "snapshot").read_bytes(),
        "stream file": POOL.read_bytes(),
        "capture's manifest": json.dumps({"schema_version": 1, "tasks": {}, "memory": []}).encode(),
        "report of a run": json.dumps(report_of_a_run()).encode(),
        "page of a run": b'<!DOCTYPE html><script type="application/json" id="run">{}</script>',
        "event log": b"PAR1" + bytes(20) + b"PAR1",
        "waveform": b"$date today $end\n$version x $end\n",
        "archive of arrays (.npz)": INPUTS.read_bytes(),
        "array (.npy)": array.getvalue(),
        "picture": b"P5 2 2 255\n" + bytes(4),
        "text of a register-command stream": listing.read_bytes(),
        ".rknn file": b"RKNN" + bytes(60),
        "empty file": b"",
        "JSON file of another kind": b'{"something": 5}',
        "ZIP archive without arrays": b"PK\3\4" + bytes(60),
        "picture of a format that is not read": b"GIF89a" + bytes(20),
        "text file": b"# A page\n",
    }
    assert set(contents) == set(KINDS)
    for n, data in enumerate(contents.values()):
        (folder / str(n)).write_bytes(data)
    return {name: folder / str(n) for n, name in enumerate(contents)}


def test_each_kind_is_known_by_its_contents(files: dict[str, Path]) -> None:
    assert {name: identify(path.read_bytes()) for name, path in files.items()} == {n: n for n in KINDS}
    assert identify(bytes(100)) == identify(b"\xff\xfe\x00" * 9) == UNKNOWN
    assert identify(b"[" * 100_000) == "text file"
    assert identify(bytes([0, 0, 0, 0, 0, 0, 0, 1, 0x49]) + bytes(320)) == "waveform"


def said(*args: object) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


MODELS = ("ONNX model", "TFLite model", "TNN network", "compiled model", ".rknn file")
STREAMS = ("stream file", "capture's manifest")
REPORTS = ("report of a run", "page of a run", "JSON file of another kind", "text file")
WORDS = (*MODELS, *STREAMS, "JSON file of another kind", "text of a register-command stream", "text file")
COMMANDS: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "run": (("run", "FILE", "--engine", "golden"), MODELS),
    "compile": (("compile", "FILE"), MODELS),
    "compare": (("compare", "FILE"), MODELS),
    "estimate": (("estimate", "FILE"), (*MODELS, *STREAMS, "text of a register-command stream")),
    "counters": (("counters", "FILE"), MODELS),
    "regcmd run": (("regcmd", "run", "FILE", "--engine", "golden"), ("stream file", "text file")),
    "regcmd import": (
        ("regcmd", "import", "FILE", "-o", "/nowhere/out"),
        ("capture's manifest", "JSON file of another kind", "text file"),
    ),
    "regcmd dump": (("regcmd", "dump", "FILE"), (*WORDS, "picture")),
    "regcmd lint": (("regcmd", "lint", "FILE"), (*WORDS, "picture")),
    "diff": (("diff", "FILE"), (*STREAMS, "report of a run", "event log", "waveform")),
    "report": (("report", "FILE", "-o", "/nowhere/page.html"), REPORTS),
    "resume": (("run", DIGITS, "--resume", "FILE"), ("snapshot",)),
    "input": (("run", DIGITS, "-i", "FILE"), ("array (.npy)", "archive of arrays (.npz)")),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_say_what_a_file_is(command: str, files: dict[str, Path]) -> None:
    words, taken = COMMANDS[command]
    for kind, path in files.items():
        if kind in taken:
            continue
        text = said(*(path if word == "FILE" else word for word in words))
        assert f"rkcosim: {path}: " in text and f" {kind}" in text, (kind, text)
        takes = KINDS[kind].replace("{file}", str(path))
        assert takes in text, (kind, text)


def test_the_name_of_a_file_misleads_nobody(files: dict[str, Path], tmp_path: Path) -> None:
    for name in ("empty file", "stream file", "snapshot"):
        for suffix in (".tflite", ".onnx", ".rkc"):
            path = tmp_path / f"model{suffix}"
            shutil.copy(files[name], path)
            for command in (("run", path, "--engine", "golden"), ("regcmd", "dump", path)):
                text = said(*command)
                assert f"rkcosim: {path}: is a" in text and name in text, text
    shutil.copy(DIGITS, tmp_path / "model.json")
    assert CliRunner().invoke(app, ["compile", str(tmp_path / "model.json")]).exit_code == 0


def test_errors_inside_a_model_name_its_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(DIGITS.read_bytes()[:-500])
    for command in (
        ("run", path, "--engine", "golden"),
        ("run", path, "-i", INPUTS),
        ("compile", path),
        ("compare", path),
        ("estimate", path),
        ("regcmd", "dump", path),
    ):
        assert f"{path}: not an ONNX model, or cut short" in said(*command)
