"""Unforeseen errors behind the calls of programs: codes, lines, tracebacks, exit codes of the commands."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rkcosim.rknn_api as rk
from rkcosim.apis.link.protocol import Channel, Message, RequestKind, Runtime, Status
from rkcosim.apis.link.worker import Worker
from rkcosim.base.failures import FOLDER_VARIABLE, INTERNAL, MOST_KEPT, Failures, told
from rkcosim.cli.main import app
from rkcosim.driver.kernel import Kernel
from rkcosim.driver.kernel.drm import GenericDrm
from rkcosim.driver.kernel.log import Log
from rkcosim.rknn_api.server import calls as server_calls
from rkcosim.rknn_api.server.session import Session
from rkcosim.rknn_api.signatures import SIGNATURES
from rkcosim.running.settings import read_settings
from tests.makers.rknn_models import image_model
from tests.programs import needs_program

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"

pytestmark = needs_program("cc")

CALLS_ALL = """
import ctypes, json, sys
library = ctypes.CDLL("librknnrt.so")
found = {}
for name, pointer in json.loads(sys.argv[1]).items():
    function = getattr(library, name)
    function.restype = ctypes.c_void_p if pointer else ctypes.c_int
    function.argtypes = [ctypes.c_uint64] * 6
    found[name] = function(*[0] * 6)
print(json.dumps(found))
"""
"""Calls functions with zeros for all arguments, and prints their results."""

REFUSED = {"rknn_create_mem_from_phys"}
"""Functions that the server refuses with zeros, before it calls them."""

SETS_INPUTS = """
import sys
import numpy as np
from rknnlite.api import RKNNLite
model = RKNNLite()
assert model.load_rknn(sys.argv[1]) == 0 and model.init_runtime() == 0
zeros = np.zeros((1, 16, 16, 1), np.float32)
print(model.inference([zeros]), model.inference([zeros]))
"""


def command(*arguments: object) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it wrote on standard error."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that gets the file with the tracebacks."""
    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def traceback_of(kept: Path, errors: str) -> str:
    """Return the text of the one file of tracebacks, which the messages name."""
    (file,) = kept.glob("rkcosim-error-*.txt")
    assert f"traceback in {file}; please report it" in errors
    return file.read_text()


def internal(errors: str) -> list[str]:
    return re.findall(r"^rkcosim: internal error in (.*) \(traceback in .*\)$", errors, re.MULTILINE)


def test_every_function_returns_its_failure_value(
    kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    names = {name: s.result not in ("code", "void") for name, s in SIGNATURES.items()}
    for name in names:

        def broken(*_: object, name: str = name) -> int:
            raise LookupError(f"lost {name}")

        monkeypatch.setattr(rk, name, broken)
    out = tmp_path / "out.json"
    program = f"import sys; sys.stdout = open({str(tmp_path / 'said')!r}, 'w')\n{CALLS_ALL}"
    words = ["rknn", "run", "--engine", "golden", "--json", out, "--", sys.executable, "-c", program]
    code, errors = command(*words, json.dumps(names))
    assert code == INTERNAL, errors
    found = json.loads((tmp_path / "said").read_text())
    codes = {name for name, pointer in names.items() if not pointer and SIGNATURES[name].result == "code"}
    assert {name: found[name] for name in codes} == dict.fromkeys(codes, rk.RKNN_ERR_FAIL)
    assert not [name for name, pointer in names.items() if pointer and found[name] is not None]
    reached = [name for name in names if name not in REFUSED]
    lines = [f"{name}: LookupError: lost {name}" for name in reached]
    assert internal(errors) == lines
    assert traceback_of(kept, errors).count("Traceback (most recent call last)") == min(
        len(reached), MOST_KEPT
    )
    document = json.loads(out.read_text())
    assert document["exit_code"] == INTERNAL
    assert document["errors"] == [f"internal error in {line}" for line in lines]


def test_an_error_beside_a_function_is_told_once_and_the_server_goes_on(
    kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def broken(_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(server_calls, "board_of", broken)
    program = f"import sys; sys.stdout = open({str(tmp_path / 'said')!r}, 'w')\n{SETS_INPUTS}"
    code, errors = command("rknn", "--engine", "golden", "--", sys.executable, "-c", program, DIGITS)
    assert code == INTERNAL and (tmp_path / "said").read_text() == "None None\n"
    assert internal(errors) == ["rknn_inputs_set: KeyError: 'x'"] and "simulator has ended" not in errors
    assert "in broken" in traceback_of(kept, errors)


def test_the_programs_own_code_comes_first_and_expected_errors_are_none(
    kept: Path, monkeypatch: pytest.MonkeyPatch
):
    program = "import ctypes, sys; ctypes.CDLL('librknnrt.so').rknn_destroy(1); sys.exit(int(sys.argv[1]))"
    words = ["rknn", "--engine", "golden", "--", sys.executable, "-c", program]
    assert command(*words, 0)[0] == 0 and not list(kept.iterdir())
    monkeypatch.setattr(rk, "rknn_destroy", lambda _: [][1])
    code, errors = command(*words, 3)
    assert code == 3 and internal(errors) == ["rknn_destroy: IndexError: list index out of range"]


def test_an_error_at_the_end_of_a_process_is_told(kept: Path, monkeypatch: pytest.MonkeyPatch):
    real = Session.close

    def broken(session: Session) -> None:
        real(session)
        raise LookupError("lost")

    monkeypatch.setattr(Session, "close", broken)
    program = "import ctypes; ctypes.CDLL('librknnrt.so').rknn_destroy(1)"
    code, errors = command("rknn", "--engine", "golden", "--", sys.executable, "-c", program)
    assert code == INTERNAL and re.fullmatch(
        r"the server of process \d+: LookupError: lost", *internal(errors)
    )
    assert "in broken" in traceback_of(kept, errors)


def test_a_thread_that_ends_by_an_exception_is_told(kept: Path, capsys: pytest.CaptureFixture[str]):
    failures, before = Failures(), threading.excepthook
    with failures.watching():
        thread = threading.Thread(target=lambda: 1 // 0, name="worker 7")
        thread.start()
        thread.join()
    assert threading.excepthook is before and failures.code(0) == INTERNAL and failures.code(2) == 2
    errors = capsys.readouterr().err
    assert len(internal(errors)) == 1 and internal(errors)[0].startswith(
        "the thread 'worker 7': ZeroDivision"
    )
    assert "ZeroDivisionError" in traceback_of(kept, errors)


VERSION = "import fcntl, os, sys; fd = os.open('/dev/dri/card1', os.O_RDWR)\n"
VERSION += "try: fcntl.ioctl(fd, 0xC0406400, bytes(64))\n"
VERSION += "except OSError as error: open(sys.argv[1], 'w').write(str(error.errno))"


def test_an_ioctl_gives_eio(kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def broken(*_: object) -> int:
        raise LookupError("lost")

    monkeypatch.setattr(GenericDrm, "_version", broken)
    said, out = tmp_path / "said", tmp_path / "out.json"
    words = ["device", "--engine", "golden", "--json", out, "--", sys.executable, "-c", VERSION, said]
    code, errors = command(*words)
    assert code == INTERNAL and said.read_text() == "5"
    assert internal(errors) == ["VERSION: LookupError: lost"]
    assert "in broken" in traceback_of(kept, errors)
    assert json.loads(out.read_text())["errors"] == ["internal error in VERSION: LookupError: lost"]


def test_an_open_gives_eio(kept: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def broken(*_: object) -> int:
        raise LookupError("lost")

    monkeypatch.setattr(Kernel, "open", broken)
    program = "import os, sys\ntry: os.open('/dev/dri/card1', os.O_RDWR)\n"
    program += "except OSError as error: open(sys.argv[1], 'w').write(str(error.errno))"
    words = ["device", "--engine", "golden", "--", sys.executable, "-c", program, tmp_path / "said"]
    code, errors = command(*words)
    assert code == INTERNAL and (tmp_path / "said").read_text() == "5"
    assert internal(errors) == ["the call OPEN: LookupError: lost"]


def test_errors_of_the_system_are_no_internal_ones(kept: Path):
    log = Log()
    log.failures = Failures()
    log.failed("the call OPEN", OSError(24, "Too many open files"))
    assert log.failures.code(0) == 0 and not list(kept.iterdir())
    assert "error in the call OPEN: OSError: [Errno 24] Too many open files" in log.text()


class Broken:
    """The calls of a plug-in, all of which raise an exception."""

    def __init__(self, *_: object) -> None: ...

    def greeting(self) -> bytes:
        return b""

    def answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        raise LookupError("lost")


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Worker, Channel]]:
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr("rkcosim.apis.link.worker.Machine", lambda _: None)
    worker = Worker(theirs, Broken)
    with theirs, ours:
        yield worker, Channel(ours)


def test_a_plug_in_tells_the_command(
    kept: Path,
    connected: tuple[Worker, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    worker, _ = connected
    empty = memoryview(b"")
    hello = Message(RequestKind.HELLO, number=Runtime.LITERT << 32 | 3)
    wrong = b"engine\0gold\0"
    answer, text = worker._answer(
        Message(RequestKind.HELLO, number=hello.number, used=len(wrong)), memoryview(wrong)
    )
    assert answer.status == Status.FAILED and b"the option engine" in text  # an option of the script
    assert not worker.failures.count and read_settings({}) is not None
    assert worker._answer(hello, empty)[0].status == Status.OK
    for _ in range(3):
        answer, text = worker._answer(Message(RequestKind.RUN), empty)
        assert answer.status == Status.FAILED and text == b"LookupError: lost"
    (line,) = internal(capsys.readouterr().err)
    assert line == "the call 5 of the program: LookupError: lost"
    assert told(tmp_path) == [f"internal error in {line}"] and worker.failures.count == 3


LITERT = """
import sys
from ai_edge_litert.interpreter import Interpreter
try:
    Interpreter(sys.argv[1]).allocate_tensors()
except (RuntimeError, ValueError) as error:
    pass
"""
SESSION = """
import sys
import onnxruntime
try:
    onnxruntime.InferenceSession(sys.argv[1])
except Exception:
    pass
"""
GRAPH = """
import ctypes
number = ctypes.c_uint32()
assert ctypes.CDLL("libhexagon_nn.so").hexagon_nn_init(ctypes.byref(number)) != 0
"""
MODEL = """
import ctypes
made = ctypes.c_void_p()
assert ctypes.CDLL("libneuralnetworks.so").ANeuralNetworksModel_create(ctypes.byref(made)) != 0
"""


@pytest.mark.parametrize(
    ("name", "place", "program", "needed"),
    [
        ("litert", "rkcosim.apis.litert.library.MODULE", LITERT, "ai_edge_litert"),
        ("ort", "rkcosim.apis.ort.library.MODULE", SESSION, "onnxruntime"),
        ("hexagon", "rkcosim.apis.hexagon.library.MODULE", GRAPH, ""),
        ("nnapi", "rkcosim.apis.nnapi.ndk.library.MODULE", MODEL, ""),
    ],
    ids=["litert", "ort", "hexagon", "nnapi"],
)
def test_a_command_whose_process_had_an_error_ends_with_70(
    name: str,
    place: str,
    program: str,
    needed: str,
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
):
    if needed:
        pytest.importorskip(needed, reason="needs an extra")
    from tests.makers.litert_scripts import small

    monkeypatch.setattr(place, "tests.makers.broken_worker")
    monkeypatch.setenv("TMPDIR", str(kept))
    model = tmp_path / "model"
    model.write_bytes(small() if name == "litert" else image_model())
    code, _ = command(name, "--engine", "golden", "--", sys.executable, "-c", program, model)
    errors = capfd.readouterr().err
    assert code == INTERNAL, errors
    assert {re.sub(r"call \d+", "call", line) for line in internal(errors)} == {
        "the call of the program: LookupError: lost"
    }
    assert "in answer" in traceback_of(kept, errors)


def test_a_server_that_had_an_error_ends_with_70(tmp_path: Path):
    code = "from rkcosim.driver.kernel.drm import GenericDrm\n"
    code += "GenericDrm._version = lambda *_: [][1]\nfrom rkcosim.cli.main import main\nmain()"
    path = tmp_path / "socket"
    words = [sys.executable, "-c", code, "serve", "--engine", "golden", "--socket", path]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=environment, **pipes) as server:  # type: ignore[call-overload]
        server.stdout.readline()
        words = [sys.executable, "-m", "rkcosim", "device", "--socket", path, "--", sys.executable]
        subprocess.run([*words, "-c", VERSION, tmp_path / "said"], check=True, timeout=60)
        server.send_signal(signal.SIGTERM)
        errors = server.communicate(timeout=30)[1]
    assert server.returncode == INTERNAL and (tmp_path / "said").read_text() == "5"
    assert internal(errors) == ["VERSION: IndexError: list index out of range"]
