"""Conventions of every command: help with examples, JSON, exit codes, one line per error.

The tests iterate over all commands, so a new command is tested automatically; if a test fails, its
message names what the command lacks.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rkcosim import engines
from rkcosim.cli import exits
from rkcosim.cli.main import app
from rkcosim.cli.options import ENGINES
from rkcosim.spec.regs.options import VARIABLE
from rkcosim.verify.streams.stream import Stream
from tests.programs import needs_program

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "examples" / "streams" / "pool.json"
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"

needs_compiler = needs_program("g++")


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(_commands(app))


def of_commands(paths: Iterable[tuple[str, ...]]) -> pytest.MarkDecorator:
    """Run a test for each of these commands."""
    return pytest.mark.parametrize("path", list(paths), ids=" ".join)


every_command = of_commands(COMMANDS)


def rkcosim(*arguments: object, given: str | None = None) -> tuple[int, str, str]:
    """Return exit code, printed text, and the error stream."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def shell(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command as a separate process."""
    start = [sys.executable, "-m", "rkcosim.cli.main", *map(str, arguments)]
    return subprocess.run(start, cwd=ROOT, capture_output=True, text=True, timeout=120, **options)


def one_line(code: int, errors: str, wanted: int = 2) -> None:
    """Check that an error is one line that begins with the program's name."""
    assert code == wanted, errors
    assert "Traceback" not in errors
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) == 1 and lines[0].startswith("rkcosim: ") and len(lines[0]) > 15, errors


def examples_of(command: Any) -> list[str]:
    """Return the commands in the epilog, one per line."""
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    return [line for line in lines if "rkcosim " in line]


# Help.


@every_command
def test_help_has_examples_and_words_for_everything(path: tuple[str, ...]):
    command = COMMANDS[path]
    assert command.help, f"{' '.join(path)}: give the function a docstring, the help text"
    found = examples_of(command)
    assert found and "Examples:" in command.epilog, (
        f"{' '.join(path)}: give its decorator the example 'rkcosim {' '.join(path)} ...'"
    )
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{' '.join(path)}: {parameter.name} has no help text"
    code, text, _ = rkcosim(*path, "--help")
    assert code == 0
    for example in found:
        assert example in text, f"the help breaks the example {example!r}"


@every_command
def test_examples_parse(path: tuple[str, ...]):
    """The options in the examples exist and accept such values."""
    for example in examples_of(COMMANDS[path]):
        (part,) = [part.strip() for part in example.split("|") if part.strip().startswith("rkcosim ")]
        words = shlex.split(part)[1:]
        assert tuple(words[: len(path)]) == path, f"{example!r} is not about {' '.join(path)}"
        context = COMMANDS[path].make_context(" ".join(path), words[len(path) :])
        context.close()


SLOW = {
    ("conformance",),
    ("bench",),
    ("serve",),
    ("debug",),
    ("sweep",),
    ("device",),
    ("rknn", "run"),
    ("litert",),
    ("ort",),
    ("hexagon",),
    ("nnapi",),
    ("nnapi-specs",),
    ("diopi",),
    ("compare",),
    ("verilog",),
    ("verilator",),
    ("regcmd", "capture"),
}
"""Commands whose examples take long, do not end, or need more than this package."""


def _files_are_there(path: tuple[str, ...], words: list[str]) -> bool:
    """Whether every file that an example reads is part of the project."""
    context = COMMANDS[path].make_context(" ".join(path), words[len(path) :])
    given = {p.name: context.params[p.name] for p in COMMANDS[path].params}
    context.close()
    read = [given[p.name] for p in COMMANDS[path].params if p.param_type_name == "argument"]
    read += [given.get("input"), given.get("against"), given.get("diff")]
    files = [str(f) for item in read if item for f in (item if isinstance(item, (list, tuple)) else [item])]
    ours = [file.startswith("examples/") and (ROOT / file).exists() for file in files]
    return all(mine or not re.search(r"\.\w{2,8}$", file) for mine, file in zip(ours, files, strict=True))


def _runnable(path: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """Return the examples of a command whose files are part of the project, and their words."""
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
    """Examples whose files are part of the project do what they say."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for example, words in _runnable(path):
        code, text, errors = rkcosim(*words)
        assert code == 0, f"{example}\n{text}{errors}"


def test_the_program_itself():
    code, text, _ = rkcosim("--help")
    assert code == 0 and "--install-completion" in text and "--show-completion" in text
    for name in app.modules:
        assert f"  {name} " in text


def test_start_is_quick():
    """Help and completion import no large packages."""
    heavy = "numpy amaranth onnx onnxruntime rich.table pyarrow perfetto cocotb jinja2".split()
    show = f"import sys, rkcosim.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", show], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert result.stdout.strip() == "[]", "import these inside the command, not at the top of the module"


# Options that every command has.


@every_command
def test_every_command_has_quiet_and_json(path: tuple[str, ...]):
    options = {word for parameter in COMMANDS[path].params for word in parameter.opts}
    assert "--quiet" in options, f"{' '.join(path)}: its options lack the base rkcosim.cli.app.Options"
    assert "--json" in options, f"{' '.join(path)}: its options lack the base rkcosim.cli.app.Options"


JSON_RUNS: dict[str, list[object]] = {
    "doctor": ["doctor"],
    "explain": ["explain", "0x15"],
    "compile": ["compile", DIGITS],
    "info": ["info", DIGITS],
    "estimate": ["estimate", DIGITS],
    "run": ["run", DIGITS, "--engine", "golden", "--check"],
    "regcmd run": ["regcmd", "run", POOL, "--engine", "golden", "--check"],
    "regcmd dump": ["regcmd", "dump", POOL],
    "regcmd lint": ["regcmd", "lint", POOL],
    "regcmd lint --explain": ["regcmd", "lint", "--explain"],
    "diff": ["diff", POOL, "--against", POOL, "--engine", "golden"],
    "conformance": ["conformance", "--engine", "golden", "--only", "pool int8", "--tasks", 2, "--seed", 1],
}


@pytest.mark.parametrize("name", JSON_RUNS)
def test_json_alone_on_standard_output(name: str):
    code, text, errors = rkcosim(*JSON_RUNS[name], "--json", "-")
    assert code == 0, errors
    assert isinstance(json.loads(text)["schema_version"], int)


def test_json_alone_beside_a_program():
    """With `rkcosim device --json -` the program's output goes to the error stream."""
    result = shell("device", "--engine", "golden", "--json", "-", "--", "echo", "hello")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["exit_code"] == 0 and "hello" in result.stderr


@every_command
def test_files_to_write_are_told_from_files_to_read(path: tuple[str, ...]):
    """The files that a successful command must write (`writes` of its options) are those in its help."""
    command = COMMANDS[path]
    for parameter in command.params:
        if parameter.param_type_name == "option" and parameter.metavar == "FILE":
            writes = re.search(r"(?i)\b(write|save|draw|update)\b", parameter.help or "")
            stream = parameter.name == "log"  # may be the error stream
            assert stream or (parameter.name in command.written) == bool(writes), parameter.help


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

    monkeypatch.setattr(COMMANDS["doctor",], "function", broken)
    code, _, errors = rkcosim("doctor")
    one_line(code, errors, exits.INTERNAL)
    (name,) = re.findall(r"traceback in (\S+),", errors)
    text = Path(name).read_text(encoding="utf-8")
    Path(name).unlink()
    assert Path(name).parent == Path(tempfile.gettempdir()) and "KeyError: 'lost'" in text
    monkeypatch.setenv("RKCOSIM_DEBUG", "1")
    code, _, errors = rkcosim("doctor")
    assert code == exits.INTERNAL and "Traceback" in errors
    Path(re.findall(r"traceback in (\S+),", errors)[0]).unlink()


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS["doctor",], "function", interrupted)
    code, _, errors = rkcosim("doctor")
    one_line(code, errors, exits.INTERRUPTED)


def _heard() -> None:
    """Restore the signal: the parent process may have ignored it if the tests run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@needs_compiler
def test_ctrl_c_during_a_run_leaves_no_half_files(tmp_path: Path):
    start = [
        sys.executable,
        "-m",
        "rkcosim.cli.main",
        "conformance",
        "--tasks",
        "5000",
        "--only",
        "pool int8",
    ]
    start += ["--json", str(tmp_path / "out.json"), "--failures", str(tmp_path / "failures")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    run = subprocess.Popen(start, cwd=ROOT, text=True, preexec_fn=_heard, **pipes)
    assert run.stdout is not None and run.stdout.readline().startswith("seed")
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    # Interrupted within an exec() of a text, as dataclasses do, CPython ends by the signal itself, which a
    # shell shows as the same number.
    code = exits.INTERRUPTED if run.returncode == -signal.SIGINT else run.returncode
    one_line(code, errors, exits.INTERRUPTED)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["explain", "0x15"], ["estimate", str(DIGITS)]]
)
def test_nobody_reads(words: list[str]):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        start = [sys.executable, "-m", "rkcosim.cli.main", *words]
        result = subprocess.run(
            start, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    finally:
        os.close(writer)
    assert result.returncode == exits.BROKEN_PIPE and not result.stderr


# Bad input: every command, every kind.


# Words of `explain` may begin with anything, those of `verilator` are another program's.
@of_commands(path for path in COMMANDS if path not in (("explain",), ("verilator",)))
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
        (["run", "x", "--limit", "0"], "x>=1"),
        (["conformance", "--only", "nothing like it"], "no group"),
        (["conformance", "--case", "1", "--engine", "golden"], "--only"),
        (["serve", "--cores", "9"], "--cores"),
        (["compare", DIGITS, "--reference", "tf"], "litert"),
        (["run", DIGITS, "--json", "/"], "folder"),
        (["run", DIGITS, "--json", f"{POOL}/x.json"], "is a file"),
        (["device", "--engine", "golden"], "no program given"),
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
    return (
        bool(arguments)
        and path[-1] not in ("explain", "device", "capture", "litert", "ort", "hexagon", "nnapi", "diopi")
        and path != ("verilator",)
        and path != ("rknn", "run")
    )


@of_commands(path for path in COMMANDS if _takes_files(path))
@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files(path: tuple[str, ...], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each command with a file argument, called with a file that it cannot use."""
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
            f"{' '.join(path)} took a file of {kind} without a message"
        )
        return
    if path == ("regcmd", "lint") and code == exits.MISMATCH:
        return  # findings
    one_line(code, errors)
    assert {p.name for p in tmp_path.iterdir()} <= {file.name}, "an incomplete file remains"


# Completion.


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_completion(kind: str):
    words = "rkcosim conformance --only conv"
    env = os.environ | {"_RKCOSIM_COMPLETE": f"{kind}_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
    if kind == "fish":
        env["COMP_CWORD"] = "conv"
    start = "import sys; sys.argv = ['rkcosim']; from rkcosim.cli.main import main; main()"
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


def words_of(path: tuple[str, ...], option: str, begun: str) -> list[str]:
    """Return the words that the shell completes after an option."""
    (parameter,) = [p for p in COMMANDS[path].params if option in p.opts]
    return [item.value for item in parameter.shell_complete(click.Context(COMMANDS[path]), begun)]


@pytest.mark.parametrize(
    ("path", "option", "begun", "wanted"),
    [
        ("conformance", "--only", "pool i", ["pool int8", "pool int16", "pool index"]),
        ("compare", "--reference", "l", ["litert"]),
        ("run", "--format", "", ["vcd", "fst"]),
        ("run", "--engine", "", ["verilator", "cxxrtl", "amaranth", "changes", "fast", "golden"]),
        ("run", "--dram", "read_", ["read_latency=", "read_outstanding="]),
        ("sweep", "--dram", "read_", ["read_latency=", "read_outstanding="]),
        ("serve", "--drivers", "r", ["rknpu", "rocket"]),
        ("device", "--soft-reset", "", ["clears", "keeps"]),
        ("serve", "--fault", "h", ["h1_dense_after_depthwise", "h2_fp16_after_int32"]),
        ("serve", "--rocket-interface", "1.", ["1.0", "1.1", "1.3", "1.5"]),
        ("verilog", "--block", "dpu_r", ["dpu_rdma", "dpu_registers", "dpu_rdma_registers"]),
        ("verilog", "--geometry", "", ["rk3588", "small"]),
        ("bench", "--engines", "b", ["bound"]),
        ("bench", "--workloads", "", ["busy", "dma", "idle", "network", "yolov8n"]),
        ("waves", "--viewer", "g", ["gtkwave"]),
        ("regcmd run", "--on-diagnostic", "g", ["go on"]),
    ],
)
def test_words_after_an_option(path: str, option: str, begun: str, wanted: list[str]):
    assert words_of(tuple(path.split()), option, begun) == wanted


def test_engines_are_those_that_there_are():
    assert list(ENGINES) == [*engines.ENGINES, "changes", "fast", "golden"]


@needs_program("bash")
def test_bash_inserts_names_with_blanks(tmp_path: Path):
    """The installed script, run by bash: a blank in a name is escaped."""
    program = tmp_path / "rkcosim"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rkcosim "$@"\n')
    program.chmod(0o755)
    script = f"""
        eval "$(_RKCOSIM_COMPLETE=bash_source {program})"
        COMP_WORDS=(rkcosim conformance --only conv) COMP_CWORD=3
        _rkcosim_completion {program}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert "conv\\ int8" in done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("shell_name", "file"),
    [
        ("bash", ".bash_completions/rkcosim.sh"),
        ("zsh", ".zfunc/_rkcosim"),
        ("fish", ".config/fish/completions/rkcosim.fish"),
    ],
)
def test_completion_is_installed_once(
    shell_name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shellingham.detect_shell", lambda: (shell_name, f"/bin/{shell_name}"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").write_text("alias ll=ls\n")
    for _ in range(2):
        code, text, errors = rkcosim("--install-completion")
        assert code == 0 and file in text, errors
    assert "_RKCOSIM_COMPLETE" in (tmp_path / file).read_text()
    settings = (tmp_path / ".bashrc").read_text()
    assert settings.startswith("alias ll=ls\n")
    assert settings.count("rkcosim.sh") == (shell_name == "bash")
    code, text, _ = rkcosim("--show-completion")
    assert code == 0 and text.strip() == (tmp_path / file).read_text().strip()


def test_no_summary_is_cut():
    """A terminal of 80 columns shows the complete first sentence of every help text."""
    for words in ([], ["regcmd"]):
        result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
        listed = result.output.partition("Commands:\n")[2].splitlines()
        assert listed and all(line.endswith(".") and not line.endswith("..") for line in listed), listed
        assert max(map(len, result.output.splitlines())) <= 80


@every_command
def test_help_shows_no_python_types(path: tuple[str, ...]):
    _, text, _ = rkcosim(*path, "--help")
    assert not re.search(r"<\w|\bINTEGER\b|\bFLOAT\b|RANGE|\bPATH\b", text.partition("Examples:")[0])


def test_options_of_the_hardware_end_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    code, out, _ = rkcosim(
        "--option",
        "q1_zero_point_after_rounding",
        "run",
        DIGITS,
        "--engine",
        "golden",
        "--input",
        ROOT / "examples/digits/held_back.npz",
        "--limit",
        1,
    )
    assert code == 0 and out
    assert VARIABLE not in os.environ
