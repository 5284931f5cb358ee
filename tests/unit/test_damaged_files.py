"""Damaged files end in one line that names them and exit code 2, whichever library detects the damage."""

from __future__ import annotations

import copy
import io
import json
import socket
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.driver.kernel import Kernel
from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.interface import CallerError
from rkcosim.driver.server.protocol import Channel, Op
from rkcosim.driver.server.server import _Connection
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.models.references import OnnxRuntime, ReferenceProblem
from tests.makers.kernel_client import HIGH, Program
from tests.unit.test_report import run as report_of_a_run

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples/digits/digits_int8.onnx"


def said(*args: object) -> str:
    """Return the message of a command that must end with exit code 2, as one line."""
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


def damaged_archives(folder: Path) -> dict[str, Path]:
    """Archives of inputs, each with a different error."""
    images = np.random.default_rng(1).integers(0, 16, (4, 8, 8)).astype(np.uint8)
    good = io.BytesIO()
    np.savez_compressed(good, images=images)
    data = bytearray(good.getvalue())
    with zipfile.ZipFile(good) as archive:
        first = archive.infolist()[0]
    start = first.header_offset + 30 + len(first.filename.encode()) + 20
    made: dict[str, bytes] = {}
    for n in range(12):
        bad = bytearray(data)
        bad[start + 3 * n] ^= 0xFF
        made[f"deflate{n}"] = bytes(bad)
    made["cut"] = bytes(data[: len(data) // 2])
    made["empty"] = b""
    encrypted = bytearray(data)
    encrypted[6] |= 1
    encrypted[data.rindex(b"PK\1\2") + 8] |= 1
    made["encrypted"] = bytes(encrypted)
    for name, arrays in {
        "labels": {"images": images, "labels": np.array(["a"] * 4)},
        "scale": {"images": images, "scale": np.ones(3)},
    }.items():
        stream = io.BytesIO()
        np.savez(stream, **arrays)  # type: ignore[arg-type]
        made[name] = stream.getvalue()
    huge = io.BytesIO()
    with zipfile.ZipFile(huge, "w") as archive:
        header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1125899906842624,), }".ljust(117) + "\n"
        archive.writestr("images.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode())
    made["huge"] = huge.getvalue()
    for name, content in made.items():
        (folder / f"{name}.npz").write_bytes(content)
    return {name: folder / f"{name}.npz" for name in made}


def test_damaged_archives_of_inputs(tmp_path: Path) -> None:
    for name, path in damaged_archives(tmp_path).items():
        text = said("run", DIGITS, "-i", path, "--engine", "golden", "--quiet")
        assert text.startswith(f"rkcosim: {path}: ") and "internal" not in text, (name, text)


def test_an_archive_that_unpacks_to_too_much(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", bytes(1 << 20))
    data = path.read_bytes()
    place = data.rindex(b"PK\1\2") + 24  # what the directory says that the member unpacks to
    path.write_bytes(data[:place] + (0xFFFFFFF0).to_bytes(4, "little") + data[place + 4 :])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.npy", bytes(64))
    text = said("run", DIGITS, "-i", path, "--engine", "golden")
    assert f"{path}: its arrays unpack to 4,294,967,344 bytes, at most" in text


def leaves(value: Any) -> list[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *leaves(value[key])]]


def test_damaged_reports(tmp_path: Path) -> None:
    """Wrong values in place of members anywhere in a report give a page, or one line that names the file."""
    good, path = report_of_a_run(), tmp_path / "run.json"
    (tmp_path / "good.json").write_text(json.dumps(good))
    places = len(leaves(good))
    refused = 0
    for n in range(0, places, max(1, places // 12)):
        for junk in (None, 1 << 70, "x", [5], float("nan")):
            data = copy.deepcopy(good)
            container, key = leaves(data)[n]
            container[key] = junk
            path.write_text(json.dumps(data))
            for command in (
                ("report", path, "-o", tmp_path / "page.html"),
                ("diff", path, tmp_path / "good.json"),
            ):
                result = CliRunner().invoke(app, [str(arg) for arg in command])
                assert isinstance(result.exception, SystemExit | None), (key, junk, result.exception)
                assert result.exit_code in (0, 1, 2), (key, junk, result.output)
                if result.exit_code == 2:
                    refused += 1
                    assert result.output.startswith(f"rkcosim: {path}: "), result.output
    assert refused > 20
    for text in ("{", "[" * 100_000, '{"a": ' + "1" * 5000 + "}", "\xff"):
        path.write_bytes(text.encode("latin-1"))
        for command in (("report", path, "-o", tmp_path / "page.html"), ("diff", path, path)):
            assert f"rkcosim: {path}: " in said(*command)


def test_a_runtime_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail

    class Session:
        def get_inputs(self) -> list[Any]:
            return []

        def run(self, *_: Any) -> None:
            raise Fail("it cannot")

    import onnxruntime

    from rkcosim.compiler import compile_model

    real = onnxruntime.InferenceSession
    data = DIGITS.read_bytes()
    reference = OnnxRuntime(data, compile_model(data))
    assert isinstance(reference._session, real)
    reference._session = Session()
    with pytest.raises(ReferenceProblem, match="onnxruntime fails on the model: it cannot"):
        reference.run([])

    class FailingSession(Session):
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def get_inputs(self) -> list[Any]:
            return [type("Input", (), {"name": "x", "type": "tensor(float)"})]

    monkeypatch.setattr(onnxruntime, "InferenceSession", FailingSession)
    text = said("compare", DIGITS, "--reference", "onnxruntime", "--quiet")
    assert text.endswith(f"rkcosim: {DIGITS}: onnxruntime fails on the model: it cannot")


def test_a_program_that_breaks_the_protocol_is_no_internal_error() -> None:
    """The program answers a question of the kernel with a message that is no answer."""
    with Kernel(GoldenNpu(strict=False)) as kernel:
        program = Program(kernel)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        class Machine:
            def __init__(self) -> None:
                self.kernel = kernel

        class Server:
            machine = Machine()

        connection = _Connection(Server(), Channel(ours), program.file.credentials)  # type: ignore[arg-type]

        def answer() -> None:
            channel = Channel(theirs)
            assert channel.receive() is not None
            channel.send(Op.HELLO)

        thread = threading.Thread(target=answer)
        thread.start()

        class User:
            def read(self, address: int, size: int) -> bytes:
                return connection.ask(Op.READ, (address, size)).data

            def write(self, address: int, data: bytes) -> None: ...

        with pytest.raises(CallerError, match="message 1 where an answer was expected"):
            program.file.ioctl(s.DRM_VERSION, HIGH, User(), None)  # type: ignore[arg-type]
        thread.join()
        ours.close(), theirs.close()
        assert not [line.text for line in kernel.log if "internal error" in line.text]
