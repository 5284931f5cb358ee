"""With the core of `pyproject.toml` alone, every command works or names the extra that it needs.

A process in which the modules of all other packages cannot be found runs one command after the other.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rkcosim.base import extras
from rkcosim.cli.main import app
from tests.environments import PROJECT, hidden_modules, hide

ROOT = Path(__file__).resolve().parents[2]

RUN = """
import json, sys
from click.testing import CliRunner
from rkcosim.cli.main import app
for words in json.load(sys.stdin):
    result = CliRunner().invoke(app, words, prog_name="rkcosim")
    print(json.dumps([result.exit_code, result.stdout, result.stderr]), flush=True)
"""

DIGITS, POOL = "examples/digits/digits_int8.onnx", "examples/streams/pool.json"
IMAGE = "examples/digits/held_back.npz"

WORKS = {
    "run": ["run", DIGITS, "--input", IMAGE, "--limit", "1", "--engine", "golden", "--check"],
    "compile": ["compile", DIGITS],
    "info": ["info", DIGITS],
    "estimate": ["estimate", DIGITS],
    "regcmd dump": ["regcmd", "dump", POOL],
    "regcmd lint": ["regcmd", "lint", POOL],
    "regcmd run": ["regcmd", "run", POOL, "--engine", "golden", "--check"],
    "regcmd asm": ["regcmd", "asm", "pool.txt", "--into", POOL, "-o", "again.json"],
    "diff": ["diff", POOL, "--against", POOL, "--engine", "golden"],
    "conformance": [
        "conformance",
        "--engine",
        "golden",
        "--only",
        "pool int8",
        "--tasks",
        "1",
        "--seed",
        "1",
    ],
    "device": ["device", "--engine", "golden", "--", "true"],
    "explain": ["explain", "0x15"],
    "doctor": ["doctor"],
    "validate": ["validate", "--help"],
}
"""Commands that need the core only, with arguments for a short run."""

NAMES = {
    "tflite": ["info", "model.tflite"],
    "pictures": ["run", DIGITS, "--input", "picture.png", "--engine", "golden"],
    "onnx": ["compare", DIGITS],
    "shards": ["run", DIGITS, "--input", IMAGE, "--limit", "1", "--shards", "2"],
    "waves": ["regcmd", "dump", POOL, "--events", "wave.vcd"],
}
"""By extra, a command that needs it."""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the words of every command below `group`."""
    found: list[tuple[str, ...]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        group_below = isinstance(command, click.Group)
        found += commands(command, (*path, name)) if group_below else [(*path, name)]  # type: ignore[arg-type]
    return found


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """Exit code, output and errors of each command, by its name or extra."""
    folder = tmp_path_factory.mktemp("core")
    hide(hidden_modules(), folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "model.tflite").write_bytes(b"\0\0\0\0TFL3" + bytes(64))
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    (folder / "wave.vcd").write_text("$timescale 1ns $end\n$enddefinitions $end\n#0\n")
    helps = {" ".join(path): [*path, "--help"] for path in commands(app)}
    dump = {"text": ["regcmd", "dump", POOL, "-o", "pool.txt"], "start": ["--help"]}
    asked = {**dump, **WORKS, **NAMES, **{f"{name} --help": words for name, words in helps.items()}}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(list(asked.values())),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(answers) == len(asked), done.stdout + done.stderr
    return {name: tuple(answer) for name, answer in zip(asked, answers, strict=True)}


def test_the_modules_are_hidden():
    hidden = hidden_modules()
    assert {"vcdvcd", "PIL", "pytest", "cocotb", "onnxruntime", "pyarrow", "shellingham"} <= hidden
    assert not {"numpy", "onnx", "amaranth", "click", "rich", "flatbuffers", "systemrdl"} & hidden


@pytest.mark.parametrize("name", WORKS)
def test_it_works_with_the_core(said: dict[str, tuple[int, str, str]], name: str):
    code, _, errors = said[name]
    assert code == 0, errors


def test_a_run_says_why_it_compares_with_nothing(said: dict[str, tuple[int, str, str]]):
    assert f"onnxruntime is not installed: {extras.install('onnx')}" in said["run"][2]


@pytest.mark.parametrize("extra", NAMES)
def test_it_names_the_extra(said: dict[str, tuple[int, str, str]], extra: str):
    code, _, errors = said[extra]
    last = errors.splitlines()[-1]
    assert code == 2 and extras.install(extra) in last and "is not installed" in last, errors


@pytest.mark.parametrize("path", commands(app), ids=" ".join)
def test_every_command_has_help_with_the_core(said: dict[str, tuple[int, str, str]], path: tuple[str, ...]):
    code, text, errors = said[f"{' '.join(path)} --help"]
    assert code == 0 and text.startswith("Usage:"), errors


def test_the_table_of_extras_is_that_of_the_project():
    """Names, packages and places: `rkcosim.base.extras`, `pyproject.toml` and the page agree."""
    known = PROJECT["optional-dependencies"]
    assert set(extras.EXTRAS) == set(known)
    for name, extra in extras.EXTRAS.items():
        listed = {re.match(r"[\w.-]+", line)[0] for line in known[name]}  # type: ignore[index]
        packages = set(extra.packages.values())
        assert packages <= listed and (name == "dev" or packages == listed), name
    page = (ROOT / "docs/getting_started.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert rows == set(known)


def test_pip_takes_an_extra_of_what_is_installed():
    """The printed form needs no index that has the package; here everything is there, so nothing is asked."""
    command = extras.install("report").split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *(word.strip("'") for word in command), "--no-index", "--dry-run"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and "already satisfied" in done.stdout, done.stderr


def test_needed():
    with pytest.raises(
        extras.MissingPackage, match=r"^a log needs pyarrow, which is not installed: pip inst"
    ):
        with extras.needed("pyarrow", "a log"):
            raise ModuleNotFoundError("no", name="pyarrow")
    with pytest.raises(ValueError, match=r"a picture needs PIL, which cannot be imported: libx"):
        with extras.needed("PIL", "a picture", ValueError):
            raise ImportError("libx.so: not there", name="PIL._imaging", path="x")
    with pytest.raises(ValueError, match="no extra brings the module numpy"):
        extras.missing("numpy")
