"""Broken surroundings: compilers, disks, paths, streams and signals that are not as expected.

docs/reliability.md has the table of what is promised.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rkcosim.base import tables
from rkcosim.base.folders import NoHomeError, at_home, user_cache
from rkcosim.cli import doctor, exits, results
from rkcosim.devices import program
from rkcosim.engines import build, cache, clock_gates, compilation, dram, toolchain, verilog
from rkcosim.engines.build import Variant
from rkcosim.engines.event_files import EventFiles
from rkcosim.engines.guard import guarded
from rkcosim.engines.protocol import BuildError
from rkcosim.measure.report.page import put
from rkcosim.waves.events import EventLog
from tests.programs import needs_program

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
LIMITS: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 120, "check": False}


def command(*words: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run `rkcosim` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rkcosim.cli.main", *map(str, words)], cwd=ROOT, **{**LIMITS, **settings}
    )


# Compilers.

FAKE = """#!/bin/sh
case "$*" in *--version*) echo "clang version 14.0.6"; exit;; esac
case "$*" in *-shared*) exec g++ -x c++ {extra} -x none "$@";; esac
exec g++ "$@"
"""
"""A compiler whose libraries need one function more, as Clang's code calls functions for atomic variables."""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a compiler whose libraries call a function, and an empty cache for it."""

    def made(function: str) -> None:
        extra = tmp_path / "extra.cpp"
        extra.write_text(f'extern "C" int f() __asm__("{function}"); extern "C" int g() {{ return f(); }}\n')
        fake = tmp_path / "clang++"
        fake.write_text(FAKE.format(extra=extra))
        fake.chmod(0o755)
        monkeypatch.setenv("CXX", str(fake))
        monkeypatch.setenv("RKCOSIM_CACHE", str(tmp_path / "cache"))
        toolchain.compiler.cache_clear()

    yield made
    toolchain.compiler.cache_clear()


@needs_program("g++")
def test_libraries_that_the_linker_needs_are_found(fake: Callable[[str], None], tmp_path: Path):
    fake("__atomic_is_lock_free")
    assert build.linked_with(tmp_path) == ["-latomic"]
    assert "-DNDEBUG" in build._flags(), "Verilator's assertions call that function"


@needs_program("g++")
def test_a_library_that_cannot_be_loaded_stays_out_of_the_cache(
    fake: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake("nowhere")
    with pytest.raises(BuildError, match=r"cannot be loaded: .*undefined symbol: nowhere"):
        dram._library(lambda text: None)
    check = next(check for check in doctor.checks() if check.name == "C++ compiler")
    assert not check.ok and "undefined symbol: nowhere" in check.detail and check.fix

    def finish(self: Any, sources: Any, library: Path, *_: Any) -> None:
        library.write_bytes(b"\x7fELF cut")

    monkeypatch.setattr(build, "linked_with", lambda folder: [])
    monkeypatch.setattr(compilation.Compilation, "finish", finish)
    with pytest.raises(BuildError, match=r"model\.so was built, but cannot be loaded"):
        build.build(None, Variant("external"), lambda text: None)
    assert not list((tmp_path / "cache").glob("*/")), "no entry and no working folder remains"


# Disks.


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_a_tool_that_cuts_its_output_is_noticed(cut: bool, tmp_path: Path):
    """Yosys and others do not check whether the disk has taken what they write."""
    text = f"""
    import resource, signal, sys
    from pathlib import Path
    from rkcosim.engines import toolchain
    from rkcosim.engines.protocol import BuildError
    {"resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))" if cut else ""}
    command = ["sh", "-c", "trap '' XFSZ; head -c 90000 /dev/zero > out 2>/dev/null; exit 0"]
    try:
        toolchain.run(command, Path({str(tmp_path)!r}), "writer")
    except BuildError as error:
        sys.exit(str(error))
    """
    # Below a limit, Python would leave compiled modules that are cut, which fail in later processes.
    command = [sys.executable, "-B", "-c", textwrap.dedent(text)]
    done = subprocess.run(command, cwd=ROOT, **LIMITS)
    wanted = f"writer has no room for its output: {tmp_path} cannot take more data (File too large)"
    assert done.returncode == cut and (wanted in done.stderr) == cut, done.stderr


def test_verilog_that_was_cut_is_not_compiled(tmp_path: Path):
    whole = "module core(clk);\n  input clk;\nendmodule\n\nmodule \\core.pc (clk);\nendmodule\n"
    path = tmp_path / "core.v"
    path.write_text(whole)
    verilog.check_whole(path)
    for cut in (whole[: len(whole) - 12], whole[:30], ""):
        path.write_text(cut)
        with pytest.raises(BuildError, match=f"{path} was cut by Yosys"):
            verilog.check_whole(path)
    with pytest.raises(BuildError, match=r"has no module core\.cna"):
        clock_gates._Modules(whole).find("core.cna", "x")


def test_a_full_disk_below_the_cache_is_said_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RKCOSIM_CACHE", str(tmp_path))

    def full(work: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(BuildError, match=f"cache folder {tmp_path} cannot be written .*No space.*RKCOSIM_C"):
        cache.built("key", "model.so", "a library", full, lambda text: None)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_a_cache_whose_file_system_forbids_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RKCOSIM_CACHE", str(tmp_path))
    real = os.statvfs

    class NoPrograms:
        f_flag = os.ST_NOEXEC

    monkeypatch.setattr(os, "statvfs", lambda path: NoPrograms if path == tmp_path else real(path))
    with pytest.raises(BuildError, match=f"{tmp_path} cannot be used: .*noexec.*RKCOSIM_CACHE"):
        cache.cache_folder()
    assert cache.cache_folder(programs=False) == tmp_path


def test_without_a_home(monkeypatch: pytest.MonkeyPatch):
    for name in ("HOME", "XDG_CACHE_HOME", "RKCOSIM_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: os.fspath(path))
    with pytest.raises(NoHomeError, match="set the variable HOME"):
        user_cache()
    with pytest.raises(NoHomeError, match="set the variable HOME"):
        cache.cache_folder()
    assert at_home(Path("/a/~")) == Path("/a/~")
    assert not next(check for check in doctor.checks() if check.name == "cache folder").ok


# Paths.


@needs_program("cc")
@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
def test_a_program_never_runs_without_the_npu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The dynamic linker ends a path in LD_PRELOAD at a blank or a colon, and goes on without the library."""
    odd = tmp_path / "with a blank:and ñ"
    monkeypatch.delenv("RKCOSIM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(odd))
    env = program.environment(tmp_path / "socket", progress=lambda text: None)
    asks = [sys.executable, "-c", "print('npu_preload' in open('/proc/self/maps').read())"]
    done = subprocess.run(asks, env=env, **LIMITS)
    assert done.stdout == "True\n" and not done.stderr

    broken = tmp_path / "npu_preload.so"
    broken.write_bytes(b"no library" * 100)
    monkeypatch.setattr(program, "preload_library", lambda **_: broken)
    with pytest.raises(
        BuildError, match=r"run without the NPU, because .* cannot be preloaded: .*invalid ELF"
    ):
        program.environment(tmp_path / "socket")
    with pytest.raises(BuildError, match="LD_LIBRARY_PATH cannot have a path with ':'"):
        program.put_first("LD_LIBRARY_PATH", odd)


def test_names_that_are_no_text(tmp_path: Path):
    name = os.fsdecode(b"mod\xe9le.onnx")
    results.write_text(tmp_path / "page.html", f"<p>{name} …</p>")
    put(tmp_path / "report.html", f"<p>{name} …</p>")
    for page in ("page.html", "report.html"):
        assert (tmp_path / page).read_bytes() == b"<p>mod\\udce9le.onnx \xe2\x80\xa6</p>"
    text = f"from rkcosim.cli import streams; streams.prepare(); print({name!a}, '\\u2026')"
    for variables, dots in ({"LC_ALL": "C.UTF-8"}, "…"), ({"LC_ALL": "POSIX", "PYTHONUTF8": "0"}, "\\u2026"):
        env = {**os.environ, "PYTHONCOERCECLOCALE": "0", **variables}
        env.pop("PYTHONIOENCODING", None)
        done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, env=env, **{**LIMITS, "text": False})
        assert done.stderr == b""
        assert done.stdout.startswith(b"mod\xe9le.onnx " + dots.encode()), done.stdout


def test_names_give_no_orders_to_a_terminal():
    name = "conv\x1b]0;title\x07\x1b[2Jx\x9b1m\x1b[31mred\x1b[0m\tend"
    text = f"from rkcosim.cli import streams; streams.prepare(); print({name!r})"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, **LIMITS)
    assert done.stdout == "conv\\x1b]0;title\\x07\\x1b[2Jx\\x9b1m\x1b[31mred\x1b[0m\tend\n"


# Streams.


def _closing(*numbers: int) -> Callable[[], None]:
    return lambda: [os.close(number) for number in numbers] and None


def test_closed_streams_are_as_the_null_device(tmp_path: Path):
    document = tmp_path / "found.json"
    done = command("explain", "0x15", "--json", document, preexec_fn=_closing(0, 1, 2))
    assert done.returncode == 0 and document.read_text().startswith("{")
    done = command("explain", "0x15", preexec_fn=_closing(2))
    assert done.returncode == 0 and done.stdout.startswith("0x15")
    done = command("explain", "0x15", "--json", "-", preexec_fn=_closing(1))
    assert done.returncode == exits.BAD_INPUT and "standard output is closed" in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full")
@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("--version",), ("--show-completion",)])
def test_help_for_a_full_disk(words: tuple[str, ...]):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(  # within bash, which is then the shell of the completion
            ["bash", "-c", '"$@"; exit $?', "bash", sys.executable, "-m", "rkcosim.cli.main", *words],
            cwd=ROOT,
            **{**LIMITS, "stdout": full, "stderr": subprocess.PIPE, "capture_output": False},
        )
    assert done.returncode == exits.BAD_INPUT
    assert done.stderr == "rkcosim: standard output: No space left on device\n"


def test_other_errors_of_the_system_are_not_said_of_standard_output(capsys: pytest.CaptureFixture[str]):
    def said(error: Exception) -> str:
        with pytest.raises(SystemExit) as ended, exits.reported():
            raise error
        assert ended.value.code == exits.BAD_INPUT
        return capsys.readouterr().err

    assert said(OSError(28, "No space left on device")) == "rkcosim: No space left on device\n"
    assert "ulimit -n" in said(OSError(24, "Too many open files"))
    assert "ulimit -u" in said(RuntimeError("can't start new thread"))
    assert "download" in said(FileNotFoundError(2, "", "https:/x.org/a.onnx"))
    assert "$HOME" in said(FileNotFoundError(2, "", "~/a.onnx"))


def test_a_refusal_of_a_library_is_no_internal_error(capsys: pytest.CaptureFixture[str]):
    """An ONNX file with an operator that nobody has registered: the call fails, as the interface says."""
    from rkcosim.rknn_api.session import RknnError
    from rkcosim.running.session import RunError

    class Refused(Exception):
        __module__ = "rkcosim.rknn_api.custom"

    def code(reason: Exception) -> int | None:
        return exits.exit_code(RunError(RknnError("rknn_run", -1, reason)))

    assert code(Refused("no operator of type 'Foo' is registered")) == exits.BAD_INPUT
    assert code(KeyError("a fault of this package")) == exits.INTERNAL


@pytest.mark.parametrize("kind", ["rkc", "rknn"])
def test_a_damaged_model_is_named(kind: str, tmp_path: Path):
    from rkcosim.compiler.graph import ModelError
    from rkcosim.running.session import cores_of

    path = tmp_path / f"cut.{kind}"
    path.write_bytes({"rkc": b"RKCOSIM\0", "rknn": b"RKNN\0\0\0\0"}[kind] + bytes(100))
    with pytest.raises(ModelError, match=f"^{path}: "):
        cores_of(path)


def test_too_few_descriptors_for_a_cluster(monkeypatch: pytest.MonkeyPatch):
    cluster = pytest.importorskip("rkcosim.measure.shards.cluster")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (16, 16))
    with pytest.raises(cluster.ClusterError, match=r"needs 96 descriptors, the limit is 16 \(ulimit -n\)"):
        cluster._enough_descriptors(2)


# Signals.


def test_an_interruption_that_became_another_error(monkeypatch: pytest.MonkeyPatch):
    """Code in C that is interrupted during an import raises ImportError without a cause."""
    for error, code in (KeyboardInterrupt(), exits.INTERRUPTED), (exits.Terminated(), exits.TERMINATED):
        monkeypatch.setattr(exits, "_heard", error)
        with pytest.raises(SystemExit) as ended, exits.reported():
            raise ImportError("initialization failed")
        assert ended.value.code == code


def test_ctrl_c_while_processes_start_is_kept():
    """The test runs in its own process, because another thread of pytest may receive the signal."""
    pytest.importorskip("rkcosim.measure.shards.cluster")
    text = """
    import os, signal, subprocess, time
    from rkcosim.measure.shards import cluster
    try:
        with cluster._deaf():
            child = subprocess.run(["grep", "SigBlk", "/proc/self/status"], capture_output=True, text=True)
            print("blocked", child.stdout.split()[1], flush=True)
            os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            time.sleep(0.1)
        print("lost")
    except KeyboardInterrupt:
        print("kept")
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], cwd=ROOT, **LIMITS)
    lines = ended.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["blocked", "kept"], ended.stderr
    assert int(lines[0].split()[1], 16) & 1 << signal.SIGINT - 1, "a process that is started has it blocked"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_killed_build_leaves_nothing(tmp_path: Path):
    """The tool and what the tool has started end, and the working folder is removed."""
    work = tmp_path / ".build-x"
    work.mkdir()
    text = f"""
    from pathlib import Path
    from rkcosim.engines import guard, toolchain
    work = Path({str(work)!r})
    with guard.guarded(work):
        toolchain.run(["sh", "-c", "sleep 1000 & echo $! > inner; echo $$ > outer; wait"], work, "tool")
    """
    builder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], cwd=ROOT)
    _until(lambda: (work / "outer").exists() and (work / "outer").read_text().endswith("\n"))
    pids = [int((work / name).read_text()) for name in ("inner", "outer")]
    builder.kill()
    builder.wait()
    _until(lambda: not work.exists() and not any(map(_runs, pids)))

    work.mkdir()
    with guarded(work):
        pass
    assert work.exists(), "a build that ends by itself removes its folder itself"


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_probe_is_called(tmp_path: Path):
    """What the linker accepts may still end when it runs, on a processor without an instruction."""
    (tmp_path / "a.c").write_text(
        '__attribute__((visibility("default"))) int f(void) { __builtin_trap(); }\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "a.c", "-o", "a.so"], cwd=tmp_path, check=True)
    toolchain.check_loads(tmp_path / "a.so")
    with pytest.raises(BuildError, match="the test ended with signal"):
        toolchain.check_loads(tmp_path / "a.so", "f")
    assert ctypes.CDLL(str(tmp_path / "a.so"))


@pytest.mark.parametrize("columns", [30, 61, 80, 104])
def test_tables_fit_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    """What a terminal has no room for is named below the table; what is printed is whole."""
    monkeypatch.setenv("COLUMNS", str(columns))
    heads = ("layer", *(f"figure {n}|,.1f" for n in range(7)))
    rows = [(f"layer{n}", *(1234.5 * 10**n for _ in range(7))) for n in range(3)]
    tables.console().print(tables.table(None, heads, rows))
    lines = capsys.readouterr().out.splitlines()
    shown, note = (lines[:4], " ".join(lines[4:])) if len(lines) > 4 else (lines, "")
    assert all(len(line.rstrip()) <= columns for line in shown)
    kept = shown[0].split()[2::2]
    assert kept == [str(n) for n in range(len(kept))] and shown[3].split()[1:] == ["123,450.0"] * len(kept)
    gone = [f"figure {n}" for n in range(len(kept), 7)]
    assert note == (f"not shown in {columns} columns: {', '.join(gone)}" if gone else "")
    assert len(kept) == min(7, (columns - 8) // 11)  # "layer0" and "123,450.0" with a blank at each side


def test_a_log_that_nobody_named_is_not_written_without_events(tmp_path: Path) -> None:
    """`--trace` of a window in which nothing happens leaves no file; a log that was asked for is written."""
    meta = {"first": 0, "last": 99, "traced": [0, 99]}
    for beside in (True, False):
        path = tmp_path / f"{beside}.parquet"
        log = EventLog.of([], dict(meta))
        EventFiles(path, last=99, beside=beside).write(log)
        assert path.exists() != beside


class _CausedError(Exception):
    """An error of the package around another one."""

    exit_code = 3

    def __init__(self, text: str, cause: Exception) -> None:
        super().__init__(text)
        self.cause = cause


@pytest.mark.parametrize(
    "error, said",
    [
        (MemoryError(), ""),
        (MemoryError("Unable to allocate 8 GiB"), "Unable to allocate 8 GiB: "),
        (_CausedError("model.onnx: ", MemoryError()), "model.onnx: "),
    ],
)
def test_too_little_memory_is_no_internal_error(
    error: Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, exits.reported():
        raise error
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"rkcosim: {said}memory is used up (limit of memory: ulimit -v)\n"


WRITER = """
import os, signal, sys
from pathlib import Path
from rkcosim.waves.whole_file import whole_file

with whole_file(Path(sys.argv[1])) as place, place.open("w") as file:
    for number in range(100):
        file.write("x" * 1000)
        file.flush()
        if number == 50:
            os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_file(number: signal.Signals, tmp_path: Path) -> None:
    """What was there stays; only a process that is killed leaves its part."""
    path = tmp_path / "out.json"
    path.write_text("before")
    words = [sys.executable, "-c", WRITER, str(path), str(int(number))]
    code = subprocess.run(words, **LIMITS).returncode
    assert code == -number or (number == signal.SIGINT and code in (1, 130, -number))
    assert path.read_text() == "before"
    left = sorted(file.name for file in tmp_path.iterdir() if file != path)
    assert len(left) == (number != signal.SIGINT) and all(name.endswith(".part") for name in left)


def test_only_the_age_of_leftovers_depends_on_the_clock() -> None:
    """A clock that jumps ends no wait and changes no measurement: these use the monotonic clock."""
    places = [
        f"{path.relative_to(ROOT)}"
        for folder in ("cosim", "sw", "apis", "waves")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "time.time()" in path.read_text(encoding="utf-8")
    ]
    assert places == ["cosim/engines/cache.py"]


BUILDER = """
import time
from pathlib import Path
from rkcosim.engines.cache import built

done = []

def build(folder):
    done.append(folder)
    time.sleep(0.5)
    (folder / "library").write_text("contents")

path = built("key", "library", "a test", build, lambda text: None)
print("built" if done else "found", path)
"""


def test_two_processes_build_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one waits for the first and takes its entry."""
    monkeypatch.setenv("RKCOSIM_CACHE", str(tmp_path))
    words = [sys.executable, "-c", BUILDER]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate(timeout=60)[0].split() for one in both]
    assert sorted(line[0] for line in said) == ["built", "found"]
    assert said[0][1] == said[1][1]
