"""`rkcosim debug -- PROGRAM`: the jobs of programs that run, and what killed programs and clients leave."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rkcosim.debug.clients.terminal import Terminal
from rkcosim.debug.golden.session import Session
from rkcosim.debug.program import open_program
from rkcosim.devices.rknn_library import lay_out, rknn_library
from rkcosim.spec.regs import cheader
from rkcosim.verify.streams.sources import SourceError
from tests.programs import needs_program
from tests.unit.test_debug_adapter import Client

pytestmark = needs_program("cc")

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"))


def compiled(made: Path) -> Path:
    """Fill a folder with two programs in C: `rknpu` for the driver's ioctls, `classify` for the library."""
    (made / "npu_registers.h").write_text(cheader.header())
    device, rknn = ROOT / "examples" / "device", ROOT / "examples" / "rknn"
    command = ["cc", "-O1", "-I", made, "-o", made / "rknpu", device / "rknpu_program.c"]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    lay_out(made / "rknn", rknn_library(), copy=True)
    command = ["cc", "-I", made / "rknn" / "include", "-o", made / "classify", rknn / "classify.c"]
    command += ["-L", made / "rknn" / "lib", "-lrknnrt"]
    subprocess.run(list(map(str, command)), check=True, timeout=60)
    (made / "picture").write_bytes(bytes(range(256)))
    return made


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files, which has to be empty after the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield tmp_path
    assert not list(tmp_path.iterdir())


def running(program: Path) -> list[int]:
    """Return the process numbers of a program."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.readlink(entry / "exe") == str(program):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def gone(program: Path) -> bool:
    """Whether a program ends within a few seconds."""
    end = time.monotonic() + 5
    while running(program) and time.monotonic() < end:
        time.sleep(0.02)
    return not running(program)


def test_jobs_of_a_program_of_the_drivers_ioctls(folder: Path, clean: Path):
    work = open_program([str(folder / "rknpu"), "all"])
    with closing(Session(work)) as session:
        session.set_breakpoint("job")
        assert session.step("interrupt").reason == "interrupt"
        names, hangs = [], []
        while (stop := session.proceed()).reason != "end":
            (names if stop.reason == "breakpoint" else hangs).append(stop.place.job)
        assert stop.text.endswith("the program ended with exit code 0")
        assert names == list(range(1, len(work.jobs))) and len(work.jobs) > 5
        assert len(hangs) == 1 and hangs[0] + 2 == len(work.jobs)  # the program lets one job time out
        assert {job.stream.core for job in work.jobs} == {0, 1, 2}
        assert session.run_to(session.stop.place.__class__(2, 1, 0)).place.job == 2  # back into a past job


def test_nodes_and_tensors_of_a_program_in_c(folder: Path, clean: Path, capfd: pytest.CaptureFixture[str]):
    """The program computes the same class with and without the debugger, which stops at a node."""
    work = open_program([str(folder / "classify"), str(DIGITS), str(folder / "picture")])
    with closing(Session(work)) as session:
        session.set_breakpoint("node pool")
        stop = session.proceed()
        assert (stop.reason, session.node, stop.place.task) == ("breakpoint", "pool", 3)
        (name,) = [one.name for one in work.tensors.values() if (one.job, one.task) == (0, 3)]
        before = session.evaluate(f"'{name}'").copy()
        session.step("task")
        after = session.evaluate(f"'{name}'").copy()
        assert (before != after).any()
        session.step_back("task")
        assert (session.evaluate(f"'{name}'") == before).all()
        assert session.proceed().text.endswith("exit code 0")
    assert re.search(r"picture: class \d", capfd.readouterr().out)


def test_a_program_that_is_killed_ends_the_session(folder: Path, clean: Path):
    work = open_program([str(folder / "rknpu"), "all"])
    with closing(Session(work)) as session:
        (number,) = running(folder / "rknpu")
        os.kill(number, signal.SIGKILL)
        assert session.proceed().text.endswith("the program ended by signal 9")
        assert session.step_back("task").place.task == 0
    assert gone(folder / "rknpu")


def test_leaving_the_debugger_kills_the_program(folder: Path, clean: Path):
    work = open_program([str(folder / "rknpu"), "all"])
    with closing(Session(work)) as session:
        assert Terminal(session).run_lines(["step 3", "quit"], "commands") == 0
        assert running(folder / "rknpu")
    assert not running(folder / "rknpu")


def test_programs_without_a_job_are_refused(folder: Path, clean: Path):
    with pytest.raises(SourceError, match="exit code 0, and started no job"):
        open_program(["true"])
    with pytest.raises(SourceError, match="No such file"):
        open_program(["/nothing/here"])


@contextmanager
def served(folder: Path, tmp: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Start `rkcosim debug` with the program; temporary files are made in `tmp`."""
    words = [sys.executable, "-m", "rkcosim", "debug", *more, "--", str(folder / "rknpu"), "all"]
    env = os.environ | {"TMPDIR": str(tmp)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as debugger:
        try:
            yield debugger
        finally:
            debugger.kill()


@contextmanager
def connected(port: int) -> Iterator[Client]:
    """Connect a client and launch."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as link,
        link.makefile("rb") as read,
        link.makefile("wb") as write,
    ):
        client = Client(read, write)
        client.ask("initialize", adapterID="rkcosim")
        client.ask("launch")
        client.wait("initialized")
        client.ask("configurationDone")
        assert client.wait("stopped")["reason"] == "entry"
        yield client


def test_clients_that_vanish_and_signals_leave_nothing(folder: Path, clean: Path):
    """The first client vanishes inside a job; the second gets a program of its own; SIGTERM ends it all."""
    with served(folder, clean, "--port", "0") as server:
        assert server.stdout is not None
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        with connected(port) as client:
            client.ask("setFunctionBreakpoints", breakpoints=[{"name": "job"}])
            client.ask("continue", threadId=1)
            client.wait("stopped")
            frame: dict[str, Any] = client.ask("stackTrace", threadId=2)["stackFrames"][0]
            assert frame["source"]["sourceReference"] == 2
            (first,) = running(folder / "rknpu")
        with connected(port):
            (second,) = running(folder / "rknpu")
            assert first != second
            server.send_signal(signal.SIGTERM)
            server.wait(10)
            assert gone(folder / "rknpu")


def test_a_debugger_that_is_ended_kills_its_program(folder: Path, clean: Path):
    """Commands that wait: the program's second job is never left."""
    commands = folder / "commands.txt"
    commands.write_text("break job\n" + "continue\nreverse-step\n" * 5000)
    with served(folder, clean, "--commands", str(commands)) as debugger:
        assert debugger.stdout is not None
        while "job 1 begins" not in debugger.stdout.readline():
            pass
        debugger.terminate()
        debugger.wait(10)
        assert gone(folder / "rknpu")
