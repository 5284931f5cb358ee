"""The server behind `librknnrt.so`: packets that no library sends end their connection and nothing else."""

from __future__ import annotations

import ctypes as ct
import fcntl
import functools
import mmap
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.compiler.runtime import LoadedModel
from rkcosim.driver import Driver
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api import custom_types as cu
from rkcosim.rknn_api import matmul_types as mt
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.declarations import digest
from rkcosim.rknn_api.server import RknnServer
from rkcosim.rknn_api.server.calls import Calls
from rkcosim.rknn_api.server.protocol import Channel, Gone, Op, Packet
from rkcosim.rknn_api.session import Model
from rkcosim.rknn_api.signatures import SIGNATURES
from tests.makers.rknn_models import Qdq, image_model
from tests.system.test_librknnrt import scaled_model

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
NUMBERS = {name: number for number, name in enumerate(SIGNATURES)}
SIZE = 1 << 16


class Client:
    """A program's thread that sends what it likes.

    Members
    -------
    session, thread : its connections.
    pages : the arena.
    """

    def __init__(self, path: Path, sealed: bool = True) -> None:
        self.session = self._connect(path)
        self.session.send(Op.SESSION, (digest(),))
        number = self.session.receive().a[0]
        self.thread = self._connect(path)
        fd = os.memfd_create("arena", os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, SIZE)
        if sealed:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self.pages = mmap.mmap(fd, SIZE)
        self.thread.send(Op.THREAD, (number,), fd=fd)
        os.close(fd)

    @staticmethod
    def _connect(path: Path) -> Channel:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(20)
        sock.connect(str(path))
        return Channel(sock)

    def call(self, name: str, *a: int, used: int = 64, fd: int = -1) -> int:
        """Result of a call, with a descriptor; Gone where the server ended the connection."""
        self.thread.send(Op.CALL, a, NUMBERS[name], used, fd)
        answer = self.thread.receive()
        answer.close()
        assert answer.op == Op.DONE
        return answer.a[0]

    def answer(self) -> Packet:
        """Return the next message of the server that is no request for a larger arena."""
        while (message := self.thread.receive()).op == Op.GROW:
            fd = os.memfd_create("arena", os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, message.a[0])
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            larger = mmap.mmap(fd, message.a[0])
            larger[: len(self.pages)] = self.pages[:]
            self.pages = larger
            self.thread.send(Op.ANSWER, fd=fd)
            os.close(fd)
        return message

    def close(self) -> None:
        """Close both connections."""
        self.thread.socket.close()
        self.session.socket.close()
        self.pages.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RknnServer]:
    driver = Driver(GoldenNpu(1), shared=True)
    rk.use_device(driver)
    with RknnServer(tmp_path / "socket") as made:
        yield made
    rk.use_device(None)
    assert not driver.buffers


def opened(client: Client, data: bytes = DIGITS.read_bytes()) -> int:
    """A context on a model, the digits network if no other is given."""
    client.pages[4096 : 4096 + len(data)] = data
    assert client.call("rknn_init", 64, 4096, len(data), 0, 0, used=4096 + len(data)) == 0
    return struct.unpack_from("<Q", client.pages, 64)[0]


def set_input(client: Client, context: int, values: np.ndarray) -> None:
    """Set the only input of a context through the second half of an arena of `SIZE` bytes."""
    at = SIZE // 2
    client.pages[at : at + values.nbytes] = values.tobytes()
    struct.pack_into("<I4xQIB3xii", client.pages, 256, 0, at, values.nbytes, 0, 0, 0)
    assert client.call("rknn_inputs_set", context, 1, 256, used=at + values.nbytes) == 0


def test_offsets_outside_of_the_arena_end_the_connection(server: RknnServer):
    good = Client(server.path)
    context = opened(good)
    for a in (
        (context, 1, SIZE, 376),
        (context, 1, SIZE - 100, 376),
        (context, 1, -5, 376),
        (context, 1, 1 << 62, 376),
    ):
        bad = Client(server.path)
        with pytest.raises(Gone):
            bad.call("rknn_query", *a)
        bad.close()
    assert good.call("rknn_query", context, 0, 128, 8) == 0
    assert struct.unpack_from("<II", good.pages, 128) == (1, 1)
    struct.pack_into(
        "<I4xQIB3xii", good.pages, 256, 0, SIZE - 8, 1 << 20, 0, 0, 1
    )  # a buffer that leaves the arena
    with pytest.raises(Gone):
        good.call("rknn_inputs_set", context, 1, 256)
    good.close()


def test_arenas_that_may_shrink_and_other_versions_are_refused(server: RknnServer):
    weak = Client(server.path, sealed=False)
    with pytest.raises(Gone):
        weak.call("rknn_destroy", 1)
    weak.close()
    old = Client._connect(server.path)
    old.send(Op.SESSION, (digest() ^ 1,))
    with pytest.raises(Gone):
        old.receive()
    stranger = Client._connect(server.path)
    stranger.send(Op.THREAD, (12345,))
    with pytest.raises(Gone):
        stranger.receive()
    old.socket.close()
    stranger.socket.close()


def test_a_path_that_is_not_text_is_printed_with_escapes(
    server: RknnServer, caplog: pytest.LogCaptureFixture
):
    client = Client(server.path)
    client.pages[4096:4104] = b"a\xfc\xff.x\0\0\0"
    assert client.call("rknn_init", 64, 4096, 0, 0, 0, used=8192) == rk.types.RKNN_ERR_FAIL
    assert "cannot read 'a\\udcfc\\udcff.x'" in caplog.text
    caplog.text.encode()
    client.close()


def test_random_calls_leave_the_server_alive(server: RknnServer):
    rng = random.Random(7)
    for _ in range(150):
        client = Client(server.path)
        client.pages[:SIZE] = rng.randbytes(SIZE) if rng.random() < 0.5 else bytes(SIZE)
        try:
            for _ in range(8):
                name = rng.choice(list(NUMBERS))
                a = [
                    rng.choice((0, 1, 2, 64, 512, 4096, SIZE - 1, rng.getrandbits(62), -1)) for _ in range(6)
                ]
                if name.startswith("rknn_create_mem"):
                    a[5] = 64
                client.call(name, *a, used=rng.choice((64, 4096, SIZE)))
        except Gone:
            pass
        client.close()
    good = Client(server.path)
    context = opened(good)
    assert good.call("rknn_destroy", context) == 0
    good.close()


def test_packets_of_other_sizes_end_the_connection(server: RknnServer):
    for data in (b"", b"x", bytes(63), bytes(65), bytes(4096)):
        channel = Client._connect(server.path)
        channel.socket.send(data)
        if data:
            with pytest.raises(Gone):
                channel.receive()
        channel.socket.close()
    good = Client(server.path)
    good.thread.send(Op.CALL, (), 10_000)
    with pytest.raises(Gone):
        good.thread.receive()
    good.close()


def test_memory_that_becomes_shorter_is_an_error_of_its_client(server: RknnServer):
    """Whoever touches a mapping behind the end of its file gets SIGBUS, so the server copies by calls."""
    good, bad = Client(server.path), Client(server.path)
    context, other = opened(good), opened(bad)
    size, place = 8192, 1024
    fd = os.memfd_create("frame")
    os.ftruncate(fd, size)
    try:
        create = "rknn_create_mem_from_fd"
        assert bad.call(create, other, 0, 0, size, 0, place, used=2048, fd=fd) == 1
        for mode in (1, 2):
            assert bad.call("rknn_mem_sync", other, place, mode, used=2048) == 0
        os.ftruncate(fd, 100)
        for mode in (1, 2):
            assert bad.call("rknn_mem_sync", other, place, mode, used=2048) == rk.RKNN_ERR_FAIL
        assert os.fstat(fd).st_size == 100
        assert bad.call(create, other, 0, 0, size, 0, place, used=2048, fd=fd) == 0
        folder = os.open("/dev", os.O_RDONLY)
        assert bad.call(create, other, 0, 0, 1, 0, place, used=2048, fd=folder) == 0
        os.close(folder)
    finally:
        os.close(fd)
    assert bad.call("rknn_query", other, 0, 128, 8) == good.call("rknn_query", context, 0, 128, 8) == 0
    good.close()
    bad.close()


def test_models_are_read_from_regular_files(server: RknnServer, tmp_path: Path, caplog):
    client = Client(server.path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    client.pages[4096 : 4096 + 5] = b"name\0"
    zero, ended = "name: is a device, not a regular file", "name: is a FIFO, not a regular file"

    def settled() -> int:
        """Descriptors, after a call that comes after the end of the one before."""
        assert client.call("rknn_init", 64, 4096, 0, 0, 0, used=8192) == rk.RKNN_ERR_FAIL  # without a file
        return len(os.listdir("/proc/self/fd"))

    before = settled()
    for path, said in (("/dev/zero", zero), ("/dev", "'name': Is a directory"), (str(fifo), ended)):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        caplog.clear()
        assert client.call("rknn_init", 64, 4096, 0, 0, 0, used=8192, fd=fd) == rk.RKNN_ERR_FAIL
        os.close(fd)
        assert said in caplog.text
    assert settled() == before
    fd = os.open(DIGITS, os.O_RDONLY)
    assert client.call("rknn_init", 64, 4096, 0, 0, 0, used=8192, fd=fd) == 0
    os.close(fd)
    client.close()


def test_structs_are_copied_before_they_are_checked(server: RknnServer, monkeypatch: pytest.MonkeyPatch):
    """The program can change its arena between a check and a use: no function may work on structs in it."""
    client = Client(server.path)
    context, arenas, found = opened(client), [], {}
    execute = Calls._result

    def result(self, signature, given, packet):
        arenas.append(self.arena)
        return execute(self, signature, given, packet)

    def function(name, *values):
        found[name] = values
        return SIGNATURES[name].failure(t.RKNN_ERR_FAIL)

    monkeypatch.setattr(Calls, "_result", result)
    chosen = [name for name in SIGNATURES if not name.endswith("_destroy")]  # these have no pointers
    for name in chosen:
        monkeypatch.setattr(rk, name, functools.partial(function, name))
    for name in chosen:
        signature = SIGNATURES[name]
        arguments = []
        for place, argument in enumerate(signature.arguments):
            pointer = argument.way not in ("value", "address")
            plain = context if argument.kind == "rknn_context" else 32 if argument.name in ("K", "N") else 1
            arguments.append((place + 1) * 8192 if pointer else plain)
        client.pages[8192:] = bytes(SIZE - 8192)
        if name == "rknn_dup_context":
            struct.pack_into("<Q", client.pages, arguments[0], context)
        client.call(name, *arguments, used=SIZE - 64)
    base = arenas[-1].base
    inside = {
        (name, argument.name)
        for name, values in found.items()
        for argument, value in zip(SIGNATURES[name].arguments, values, strict=True)
        if isinstance(value, int) and base <= value < base + SIZE
    }
    matrices = {("rknn_B_normal_layout_to_native_layout", f"B_{end}put") for end in ("in", "out")}
    assert inside == {("rknn_init", "model"), *matrices}
    assert set(chosen) - set(found) == {"rknn_create_mem_from_phys"}  # it becomes rknn_create_mem
    monkeypatch.undo()
    client.close()


def test_sizes_that_change_between_check_and_use(server: RknnServer, monkeypatch: pytest.MonkeyPatch):
    """A type of 16 bits that takes the place of one of 8 while a matrix is checked changes no size."""
    client, rows, columns = Client(server.path), 64, 256
    matrix = SIZE - rows * columns  # the last bytes of the arena
    info = mt.rknn_matmul_info(M=1, K=rows, N=columns, type=mt.RKNN_INT8_MM_INT8_TO_INT32)
    other = mt.rknn_matmul_info(M=1, K=rows, N=columns, type=mt.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32)
    client.pages[64 : 64 + len(bytes(info))] = bytes(info)
    checked = Calls._matrix

    def change(self, *given):
        try:
            return checked(self, *given)
        finally:
            client.pages[64 : 64 + len(bytes(other))] = bytes(other)

    monkeypatch.setattr(Calls, "_matrix", change)
    result = client.call("rknn_B_normal_layout_to_native_layout", matrix, matrix, rows, columns, 64)
    assert result == 0 and client.pages[64 : 64 + len(bytes(other))] == bytes(other)
    client.close()


def test_device_addresses_lead_to_memory_of_the_same_program_only(server: RknnServer):
    one, two = Client(server.path), Client(server.path)
    contexts = [opened(client) for client in (one, two)]
    struct_at, size = 128, 8192
    assert one.call("rknn_create_mem", contexts[0], size, 0, 0, 0, struct_at) == 1
    made = t.rknn_tensor_mem.from_buffer_copy(one.pages[struct_at : struct_at + ct.sizeof(t.rknn_tensor_mem)])
    address = made.phys_addr
    assert one.call("rknn_create_mem_from_phys", contexts[0], address, 0, size, 0, struct_at) == 1
    for start, length in ((address, size), (address + 4096, 64), (address - 4096, 4096)):
        assert two.call("rknn_create_mem_from_phys", contexts[1], start, 0, length, 0, struct_at) == 0
    one.close()
    two.close()


def with_operator(client: Client) -> int:
    """A context on a model with a custom operator of the program, whose input is set."""
    context = opened(client, scaled_model())
    op = cu.rknn_custom_op(version=1, target=cu.RKNN_TARGET_TYPE_CPU, op_type=b"Scaled")
    client.pages[1024 : 1024 + ct.sizeof(op)] = bytes(op)
    struct.pack_into("<Q", client.pages, 1024 + cu.rknn_custom_op.compute.offset, 0x1234)
    assert client.call("rknn_register_custom_ops", context, 1024, 1, used=2048) == 0
    set_input(client, context, np.zeros(30, np.float32))
    return context


def test_a_function_that_never_returns_holds_nobody_up(server: RknnServer):
    """A program whose custom operator does not end: the server waits for it, and others run."""
    bad, good = Client(server.path), Client(server.path)
    context = with_operator(bad)
    bad.thread.send(Op.CALL, (context, 0), NUMBERS["rknn_run"], 64)
    asked = bad.answer()
    assert (asked.op, asked.number, asked.a[0]) == (Op.CALLBACK, 0, 0x1234)
    other = opened(good)
    set_input(good, other, np.zeros(256, np.float32))
    assert good.call("rknn_run", other, 0) == 0
    assert good.call("rknn_destroy", other) == 0
    bad.thread.send(Op.ANSWER, (0,))
    assert bad.answer().a[0] == 0, "it ends when the program answers"
    bad.close()
    good.close()


def test_a_program_that_ends_within_its_function_gets_no_result(server: RknnServer, caplog):
    """The run fails; what the function has not computed is not taken for its result."""
    client = Client(server.path)
    context = with_operator(client)
    client.thread.send(Op.CALL, (context, 0), NUMBERS["rknn_run"], 64)
    assert client.thread.receive().op == Op.GROW
    client.thread.send(Op.ANSWER)  # no larger arena
    answer = client.thread.receive()
    assert (answer.op, answer.a[0]) == (Op.DONE, t.RKNN_ERR_FAIL)
    assert f"compute returned {t.RKNN_ERR_MALLOC_FAIL}" in caplog.text
    client.close()


def test_a_part_on_the_host_holds_nobody_up(server: RknnServer, monkeypatch: pytest.MonkeyPatch):
    """The host's part of a model may take ten minutes; the device is free meanwhile."""
    begun, go_on, compute = threading.Event(), threading.Event(), LoadedModel.compute

    def slow(self, number):
        begun.set()
        assert go_on.wait(20)
        compute(self, number)

    monkeypatch.setattr(LoadedModel, "compute", slow)
    net = Qdq()
    x = net.conv(net.input("x", (1, 16, 3, 4)), 16, 16)
    net.output(net.conv(net.coded(net.node("Sin", x), 1 / 64, 0), 16, 16), "y", (1, 16, 3, 4))
    data, values = net.bytes(), (np.arange(192, dtype=np.float32) % 23 - 11) / 2
    slowly, good = Client(server.path), Client(server.path)
    context = opened(slowly, data)
    set_input(slowly, context, values)
    slowly.thread.send(Op.CALL, (context, 0), NUMBERS["rknn_run"], 64)
    assert begun.wait(20)
    other = opened(good, image_model())  # without a part for the host
    set_input(good, other, np.zeros(180, np.float32))
    assert good.call("rknn_run", other, 0) == 0
    assert good.call("rknn_destroy", other) == 0
    go_on.set()
    assert slowly.answer().a[0] == 0
    struct.pack_into("<BBxxIQI4x", slowly.pages, 256, 1, 1, 0, 49152, values.nbytes)
    assert slowly.call("rknn_outputs_get", context, 1, 256, 0, used=57344) == 0
    got = np.frombuffer(slowly.pages[49152 : 49152 + values.nbytes], np.float32)
    with Model(data) as model:
        (wanted,) = model.run(values.reshape(1, 16, 3, 4))
    np.testing.assert_array_equal(got, wanted.reshape(-1))
    assert len(set(got.tolist())) > 10
    slowly.close()
    good.close()
