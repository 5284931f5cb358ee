"""Terminal manners of every command: help with examples, JSON, exit codes, one line per error.

The tests walk over the application, so a new command is covered when it lands; where one fails, its
message says what the command lacks.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cosim.cli import complete, exits
from cosim.cli.main import app
from cosim.conformance.groups import GROUPS
from cosim.streams.stream import Stream

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "examples" / "streams" / "pool.json"
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


TREE = typer.main.get_command(app)
COMMANDS = dict(_commands(TREE))


def of_commands(paths: Iterable[tuple[str, ...]]) -> pytest.MarkDecorator:
    """Run a test for each of these commands."""
    return pytest.mark.parametrize("path", list(paths), ids=" ".join)


every_command = of_commands(COMMANDS)


def rkcosim(*arguments: object, given: str | None = None) -> tuple[int, str, str]:
    """Exit code, what was printed, and the error stream."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def shell(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    start = [sys.executable, "-m", "cosim.cli.main", *map(str, arguments)]
    return subprocess.run(start, cwd=ROOT, capture_output=True, text=True, timeout=120, **options)


def one_line(code: int, errors: str, wanted: int = 2) -> None:
    """An error is one line that begins with the program's name."""
    assert code == wanted, errors
    assert "Traceback" not in errors
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("rkcosim: ") and len(lines[0]) > 15, errors


def examples_of(command: Any) -> list[str]:
    """Commands in the epilog, one a line."""
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    return [line for line in lines if "rkcosim " in line]


# Help.


@every_command
def test_help_has_examples_and_words_for_everything(path: tuple[str, ...]):
    command = COMMANDS[path]
    assert command.help, f"{' '.join(path)}: give the function a docstring, the help text"
    found = examples_of(command)
    assert found and "Examples:" in command.epilog, (
        f"{' '.join(path)}: give it epilog=examples('rkcosim {' '.join(path)} ...') of cosim.cli.app"
    )
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{' '.join(path)}: {parameter.name} has no help text"
    code, text, _ = rkcosim(*path, "--help")
    assert code == 0
    for example in found:
        assert example in text, f"the help breaks the example {example!r}"


@every_command
def test_examples_parse(path: tuple[str, ...]):
    """The options in the examples exist and take such values."""
    for example in examples_of(COMMANDS[path]):
        (part,) = [part.strip() for part in example.split("|") if part.strip().startswith("rkcosim ")]
        words = shlex.split(part)[1:]
        assert tuple(words[: len(path)]) == path, f"{example!r} is not about {' '.join(path)}"
        context = COMMANDS[path].make_context(" ".join(path), words[len(path) :])
        context.close()


SLOW = {
    ("conformance",),
    ("bench",),
    ("fuzz",),
    ("serve",),
    ("sweep",),
    ("device",),
    ("compare",),
    ("verilog",),
    ("regcmd", "capture"),
}
"""Commands whose examples take long, wait for ever, or need more than this package."""


def _files_are_there(path: tuple[str, ...], words: list[str]) -> bool:
    """Whether every file that an example reads comes with the project."""
    context = COMMANDS[path].make_context(" ".join(path), words[len(path) :])
    given = {p.name: context.params[p.name] for p in COMMANDS[path].params}
    context.close()
    read = [given[p.name] for p in COMMANDS[path].params if p.param_type_name == "argument"]
    read += [given.get("input"), given.get("against"), given.get("diff")]
    files = [str(f) for item in read if item for f in (item if isinstance(item, (list, tuple)) else [item])]
    ours = [file.startswith("examples/") and (ROOT / file).exists() for file in files]
    return all(mine or not re.search(r"\.\w{2,7}$", file) for mine, file in zip(ours, files, strict=True))


def _runnable(path: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Examples of a command whose files come with the project, and their words."""
    found = []
    for example in examples_of(COMMANDS[path]):
        (part,) = [part.strip() for part in example.split("|") if part.strip().startswith("rkcosim ")]
        words = shlex.split(part)[1:]
        if not example.startswith("dmesg") and _files_are_there(path, words):
            found.append((example, words))
    return found


@needs_compiler
@of_commands(path for path in COMMANDS if path not in SLOW and _runnable(path))
def test_examples_run(path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Examples whose files come with the project do what they say."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for example, words in _runnable(path):
        code, text, errors = rkcosim(*words)
        assert code == 0, f"{example}\n{text}{errors}"


def test_the_program_itself():
    code, text, _ = rkcosim("--help")
    assert code == 0 and "--install-completion" in text and "--show-completion" in text
    for name in TREE.commands:
        assert f"  {name} " in text


def test_start_is_quick():
    """Nothing heavy is imported for help and completion."""
    heavy = "numpy amaranth onnx onnxruntime rich.table pyarrow perfetto cocotb jinja2".split()
    show = f"import sys, cosim.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", show], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]", "import these inside the command, not at the top of the module"


# Options that every command has.


@every_command
def test_every_command_has_quiet_and_json(path: tuple[str, ...]):
    options = {word for parameter in COMMANDS[path].params for word in parameter.opts}
    assert "--quiet" in options, f"{' '.join(path)}: make its group a cosim.cli.app.App"
    assert "--json" in options, f"{' '.join(path)}: give it json: JsonOption = None (cosim.cli.options)"


JSON_RUNS: dict[str, list[object]] = {
    "doctor": ["doctor"],
    "explain": ["explain", "0x15"],
    "compile": ["compile", DIGITS],
    "estimate": ["estimate", DIGITS],
    "run": ["run", DIGITS, "--engine", "golden", "--check"],
    "regcmd run": ["regcmd", "run", POOL, "--engine", "golden", "--check"],
    "regcmd dump": ["regcmd", "dump", POOL],
    "regcmd lint": ["regcmd", "lint", POOL],
    "regcmd lint --explain": ["regcmd", "lint", "--explain"],
    "diff": ["diff", POOL, "--against", POOL, "--engine", "golden"],
    "conformance": ["conformance", "--engine", "golden", "--only", "pool int8", "--tasks", 2, "--seed", 1],
    "fuzz": ["fuzz", "--engine", "golden", "--inputs", 5, "--seed", 1],
}


@pytest.mark.parametrize("name", JSON_RUNS)
def test_json_alone_on_standard_output(name: str):
    code, text, errors = rkcosim(*JSON_RUNS[name], "--json", "-")
    assert code == 0, errors
    assert isinstance(json.loads(text)["schema_version"], int)


def test_json_alone_beside_a_program():
    """What a program prints under `rkcosim device --json -` goes to the error stream."""
    result = shell("device", "--engine", "golden", "--json", "-", "--", "echo", "hello")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["exit_code"] == 0 and "hello" in result.stderr


# Exit codes.


def test_codes_of_results(tmp_path: Path):
    other = Stream.load(POOL)
    other.regions[1].data[:] ^= 1  # the input
    other.save(tmp_path / "other.json")
    assert rkcosim("diff", POOL, "--against", POOL, "--engine", "golden")[0] == exits.OK
    code, text, _ = rkcosim("diff", POOL, "--against", tmp_path / "other.json", "--engine", "golden")
    assert code == exits.MISMATCH and "MISMATCH" in text
    stream = Stream.load(POOL)
    stream.regions[0].data[:8] = 0xFF
    stream.save(tmp_path / "bad.json")
    code, _, errors = rkcosim("regcmd", "run", tmp_path / "bad.json", "--engine", "golden")
    assert code == exits.DEVICE_ERROR and errors.startswith("rkcosim: ")


@pytest.mark.parametrize("code", [0, 1, 7])
def test_a_programs_code(code: int):
    result = shell("device", "--engine", "golden", "--", "sh", "-c", f"exit {code}")
    assert result.returncode == code


def test_internal_errors_are_kept(monkeypatch: pytest.MonkeyPatch):
    def broken(_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("cosim.cli.doctor_command.doctor_command", broken)
    code, _, errors = rkcosim("doctor")
    one_line(code, errors, exits.INTERNAL)
    (name,) = re.findall(r"traceback in (\S+),", errors)
    text = Path(name).read_text()
    Path(name).unlink()
    assert Path(name).parent == Path(tempfile.gettempdir()) and "KeyError: 'lost'" in text
    monkeypatch.setenv("RKCOSIM_DEBUG", "1")
    code, _, errors = rkcosim("doctor")
    assert code == exits.INTERNAL and "Traceback" in errors
    Path(re.findall(r"traceback in (\S+),", errors)[0]).unlink()


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cosim.cli.doctor_command.doctor_command", interrupted)
    code, _, errors = rkcosim("doctor")
    one_line(code, errors, exits.INTERRUPTED)


def _heard() -> None:
    """Whoever started the tests in the background may have had the signal ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@needs_compiler
def test_ctrl_c_during_a_run_leaves_no_half_files(tmp_path: Path):
    start = [sys.executable, "-m", "cosim.cli.main", "conformance", "--tasks", "5000", "--only", "pool int8"]
    start += ["--json", str(tmp_path / "out.json"), "--failures", str(tmp_path / "failures")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    run = subprocess.Popen(start, cwd=ROOT, text=True, preexec_fn=_heard, **pipes)
    assert run.stdout is not None and run.stdout.readline().startswith("seed")
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    one_line(run.returncode, errors, exits.INTERRUPTED)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["explain", "0x15"]])
def test_nobody_reads(words: list[str]):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        start = [sys.executable, "-m", "cosim.cli.main", *words]
        result = subprocess.run(
            start, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert result.returncode == exits.BROKEN_PIPE and not result.stderr


# Bad input: every command, every kind.


@of_commands(path for path in COMMANDS if path != ("explain",))  # its words may begin with anything
def test_unknown_option(path: tuple[str, ...]):
    code, _, errors = rkcosim(*path, "--jsno", "x")
    one_line(code, errors)
    assert f"{' '.join(path)} --help" in errors


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["rnu"], "did you mean run"),
        (["regcmd", "dmup"], "did you mean dump"),
        (["run", "--limt", "3", "x"], "--limit"),
        (["run"], "missing argument"),
        (["run", "x", "--limit", "0"], "greater than"),
        (["conformance", "--only", "nothing like it"], "no group"),
        (["conformance", "--case", "1", "--engine", "golden"], "--only"),
        (["serve", "--cores", "9"], "--cores"),
        (["compare", DIGITS, "--reference", "tf"], "litert"),
        (["run", DIGITS, "--json", "/"], "folder"),
        (["run", DIGITS, "--json", f"{POOL}/x.json"], "is a file"),
        (["device", "--engine", "golden"], "name a program"),
        (["device", "--socket", "/nowhere/at.all", "--", "true"], "rkcosim serve"),
        (["run", DIGITS, "--engine", "abacus"], "abacus"),
        (["run", DIGITS, "--engine", "golden", "--trace", "x.vcd"], "waveform"),
        (["run", DIGITS, "--from", "3"], "--trace"),
    ],
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else None,
)
def test_wrong_words(words: list[object], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    code, _, errors = rkcosim(*words)
    one_line(code, errors)
    assert hint in errors
    assert not list(tmp_path.iterdir())


BAD_FILES = {
    "missing": None,
    "empty": b"",
    "binary": bytes(range(256)) * 5,
    "JSON of something else": b'{"schema_version": 1, "hello": [1, 2]}',
    "text": b"nothing that anybody knows\n",
}


def _takes_files(path: tuple[str, ...]) -> bool:
    """Whether arguments are files, not words or a program."""
    arguments = [p for p in COMMANDS[path].params if p.param_type_name == "argument"]
    return bool(arguments) and path[-1] not in ("explain", "device", "capture")


@of_commands(path for path in COMMANDS if _takes_files(path))
@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files(path: tuple[str, ...], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each command with an argument that is a file, given one that it cannot use."""
    arguments = [p for p in COMMANDS[path].params if p.param_type_name == "argument"]
    monkeypatch.chdir(tmp_path)
    file = Path("given.json" if "JSON" in kind else "given.bin")
    data = BAD_FILES[kind]
    if data is not None:
        file.write_bytes(data)
    words: list[object] = [*path]
    for argument in arguments:
        words += [file] * (1 if argument.nargs == -1 or argument.nargs == 1 else argument.nargs)
    for option in COMMANDS[path].params:
        if option.param_type_name == "option" and option.required:
            words += [option.opts[0], "out.made"]
    code, _, errors = rkcosim(*words)
    if code == 0 and data is not None:  # some commands rightly read words from any bytes
        assert path in (("regcmd", "dump"), ("regcmd", "asm")), (
            f"{' '.join(path)} took a file of {kind} without a word"
        )
        return
    if path == ("regcmd", "lint") and code == exits.MISMATCH:
        return  # findings
    one_line(code, errors)
    assert {p.name for p in tmp_path.iterdir()} <= {file.name}, "something half-written stays"


# Completion.


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_completion(kind: str):
    words = "rkcosim conformance --only conv"
    env = os.environ | {"_RKCOSIM_COMPLETE": f"complete_{kind}", "_TYPER_COMPLETE_ARGS": words}
    env |= {"COMP_WORDS": words, "COMP_CWORD": "3", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    start = "import sys; sys.argv = ['rkcosim']; from cosim.cli.main import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", start],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "conv int8" in result.stdout.replace("\\", ""), result.stderr


def test_words_to_complete_are_those_that_there_are():
    from cosim.cli.complete import formats, groups, references

    assert complete.group_names() == list(GROUPS), "bring cosim.cli.complete.GROUPS up to date"
    assert groups("pool i") == ["pool int8", "pool int16", "pool index"]
    assert references("l") == ["litert"] and formats("") == ["vcd", "fst"]
