"""Each interface alone, on a kernel without a device: names, descriptors, memory, processes."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rkcosim.devices.preload import preload_library
from rkcosim.devices.program import environment
from rkcosim.driver.kernel.memory import RESERVED
from rkcosim.driver.server import Server, ServerError
from rkcosim.driver.server.protocol import CHUNK, VERSION, Channel, Op
from rkcosim.engines import BuildError, toolchain
from tests import seeds
from tests.makers.fake_kernel import ECHO, NEST, SIGNAL, WAIT, FakeKernel
from tests.native.build import compiled


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()


@pytest.fixture
def server(kernel: FakeKernel, tmp_path: Path) -> Iterator[Server]:
    with Server(kernel, tmp_path / "device") as server:  # type: ignore[arg-type]
        yield server


@pytest.fixture(scope="module", params=["plain", "fortified"])
def probe(request: pytest.FixtureRequest) -> Path:
    """The C program `probe`, also built with the options of Linux distributions."""
    return compiled("probe", *(("-O2", "-D_FORTIFY_SOURCE=2") if request.param == "fortified" else ()))


def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


def ioctl_number(number: int, size: int) -> int:
    return 3 << 30 | size << 16 | ord("d") << 8 | number


def connect(server: Server) -> Channel:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(10)
    sock.connect(str(server.path))
    channel = Channel(sock)
    channel.send(Op.HELLO, (VERSION, os.fstat(sock.fileno()).st_ino))
    return channel


def test_native_program_does_everything_a_program_may(kernel: FakeKernel, server: Server, probe: Path):
    done = subprocess.run(
        [probe], env=environment(server.path), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and done.stdout == "all well\n", done.stderr
    assert kernel.text.written == [b"12\n", b"34\n"]
    assert until(lambda: not len(server.machine.descriptors)), "the program did not close descriptors"
    assert kernel.open_files == 0 and kernel.buffer.references == 1
    assert until(lambda: not server.clients)


def test_sanitized_library_finds_nothing(kernel: FakeKernel, server: Server, probe: Path):
    try:
        env = environment(server.path, sanitize=True)
    except BuildError as error:
        pytest.skip(str(error))
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    done = subprocess.run([probe], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_library_comes_from_the_cache_the_second_time(monkeypatch: pytest.MonkeyPatch):
    first = preload_library()
    monkeypatch.setattr(toolchain, "run", lambda *_: pytest.fail("compiled again"))
    assert preload_library() == first


def test_no_compiler_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BuildError, match=r"CC names 'no-such-compiler'.*install a C compiler"):
        preload_library()


def test_killed_program_leaves_nothing_behind(kernel: FakeKernel, server: Server):
    code = (
        "import fcntl, os, struct\n"
        "fd = os.open('/dev/dri/card1', os.O_RDWR)\n"
        "print('inside', flush=True)\n"
        f"fcntl.ioctl(fd, {ioctl_number(WAIT, 4)}, struct.pack('<i', 100000))\n"
    )
    program = subprocess.Popen(
        ["python3", "-c", code], env=environment(server.path), stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None and program.stdout.readline() == "inside\n"
    assert until(lambda: kernel.calls == 1)
    program.send_signal(signal.SIGKILL)
    program.wait()
    program.stdout.close()
    assert until(lambda: kernel.open_files == 0 and not server.clients)


def test_server_that_ends_is_enodev_for_the_program(kernel: FakeKernel, tmp_path: Path):
    code = (
        "import fcntl, os, struct\n"
        "fd = os.open('/dev/dri/card1', os.O_RDWR)\n"
        "print('inside', flush=True)\n"
        "for n in range(2):\n"
        "    try:\n"
        f"        fcntl.ioctl(fd, {ioctl_number(WAIT, 4)}, struct.pack('<i', 100000))\n"
        "    except OSError as error: print(error.errno, flush=True)\n"
    )
    with Server(kernel, tmp_path / "device") as server:  # type: ignore[arg-type]
        env = environment(server.path)
        program = subprocess.Popen(
            ["python3", "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert program.stdout is not None and program.stdout.readline() == "inside\n"
        assert until(lambda: kernel.calls == 1)
    out, err = program.communicate(timeout=10)
    assert out.split() == ["19", "19"] or out.split() == ["4", "19"], (out, err)
    assert "no simulated device at" in err


def test_second_server_at_the_same_path_is_refused(server: Server):
    with pytest.raises(ServerError, match="another server listens there"):
        Server(FakeKernel(), server.path)  # type: ignore[arg-type]


def test_leftover_of_a_killed_server_is_replaced(tmp_path: Path):
    path = tmp_path / "device"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(path))
    (tmp_path / "device.d").mkdir()
    (tmp_path / "device.d" / "manifest").write_text("")
    with Server(FakeKernel(), path):  # type: ignore[arg-type]
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["file", "long", "folder"])
def test_path_that_cannot_be_used_is_named(what: str, tmp_path: Path):
    path = {"file": tmp_path / "file", "long": tmp_path / ("x" * 120), "folder": tmp_path / "no" / "x"}[what]
    if what == "file":
        path.write_text("precious")
    with pytest.raises(ServerError, match=str(path)):
        Server(FakeKernel(), path)  # type: ignore[arg-type]
    if what == "file":
        assert path.read_text() == "precious"


def test_server_without_descriptors_serves_again_when_there_are_some(kernel: FakeKernel, server: Server):
    """Regression: the thread that accepts connections ended with the first EMFILE."""
    told: list[str] = []
    server.on_trouble = told.append
    good = connect(server)
    assert until(lambda: bool(server.clients))
    probe = os.dup(0)
    os.close(probe)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + RESERVED + 20, limits[1]))
    taken: list[Any] = []
    try:
        for hungry, most in ((lambda: connect(server), 50), (lambda: os.dup(0), 200)):
            with contextlib.suppress(OSError):
                while len(taken) < most:
                    taken.append(hungry())
            time.sleep(0.3)
            assert len(told) == 1 and "no new program is served for now: Too many open files" in told[0]
        os.close(taken.pop())  # leaves one descriptor for the answer
        good.send(Op.OPEN, (os.O_RDWR,), b"/dev/dri/card1")
        answer = good.receive()
        assert answer is not None and answer.a[0] == -errno.ENFILE
    finally:
        for one in taken:
            os.close(one) if isinstance(one, int) else one.socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    later = connect(server)
    for channel in (good, later):
        channel.send(Op.OPEN, (os.O_RDWR,), b"/dev/dri/card1")
        answer = channel.receive()
        assert answer is not None and answer.a[0] == 0
        channel.socket.close()


def test_socket_and_files_are_the_users_own(server: Server):
    assert os.stat(server.path).st_mode & 0o777 == 0o600
    assert os.stat(f"{server.path}.d").st_mode & 0o777 == 0o700


def test_wrong_version_is_logged_and_closed(kernel: FakeKernel, server: Server):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(str(server.path))
        sock.settimeout(10)
        channel = Channel(sock)
        channel.send(Op.HELLO, (VERSION + 1, 0))
        assert channel.receive() is None
    assert f"speaks version {VERSION + 1}" in kernel.log.text()


PACKETS: dict[str, bytes] = {
    "short": b"abc",
    "size that is not": struct.pack("<II5q", Op.OPEN, 100, 0, 0, 0, 0, 0),
    "no such request": struct.pack("<II5q", 99, 0, 0, 0, 0, 0, 0),
    "answer to nothing": struct.pack("<II5q", Op.ANSWER, 0, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", PACKETS)
def test_packet_that_is_none_ends_that_connection_only(name: str, kernel: FakeKernel, server: Server):
    good, bad = connect(server), connect(server)
    bad.socket.send(PACKETS[name])
    assert bad.receive() is None
    assert "server: process" in kernel.log.text()
    good.send(Op.OPEN, (os.O_RDWR,), b"/dev/dri/card1")
    answer = good.receive()
    assert answer is not None and answer.op == Op.DONE and answer.a[0] == 0
    good.socket.close()
    bad.socket.close()


REQUESTS: list[tuple[Op, tuple[Any, ...], bytes]] = [
    (Op.IOCTL, (1, ioctl_number(ECHO, 4), 0), b"abcd"),
    (Op.MMAP, (-1, 1 << 62, -5, -1, -1), b""),
    (Op.SIZE, (1 << 62,), b""),
    (Op.TEXT, (5,), b"x" * CHUNK),
    (Op.OPEN, (-1,), b"/etc/passwd"),
    (Op.OPEN, (0,), b"\0\xff" * 100),
    (Op.INTERRUPT, (12345,), b""),
]


def test_requests_for_what_is_not_there_are_errors(kernel: FakeKernel, server: Server):
    channel = connect(server)
    for op, numbers, data in REQUESTS:
        channel.send(op, numbers, data)
        if op != Op.INTERRUPT:
            answer = channel.receive()
            assert answer is not None and answer.op == Op.DONE and answer.a[0] < 0, (op, numbers)
    channel.socket.close()
    assert until(lambda: not server.clients)


def test_random_packets_end_at_most_their_own_connection(kernel: FakeKernel, server: Server):
    seed = seeds.seed(__name__, 31)
    print(f"seed {seed}")
    rng = random.Random(seed)
    good = connect(server)
    good.send(Op.OPEN, (os.O_RDWR,), b"/dev/dri/card1")
    opened = good.socket.recvmsg(4096, 64)
    fd = struct.unpack("<i", opened[1][0][2])[0]
    inode = os.fstat(fd).st_ino
    own = struct.pack("<i", fd)
    for _ in range(60):
        bad = connect(server)
        bad.socket.settimeout(0.05)
        for _ in range(rng.randrange(1, 12)):
            numbers = [rng.choice((0, 1, inode, rng.getrandbits(63), -rng.getrandbits(63))) for _ in range(5)]
            if rng.random() < 0.5:
                command = ioctl_number(rng.choice((ECHO, NEST, SIGNAL, 99)), rng.randrange(64))
                packet = struct.pack("<II5q", Op.IOCTL, 24, inode, command, *numbers[2:]) + rng.randbytes(24)
            else:
                data = rng.randbytes(rng.randrange(100))
                size = len(data) if rng.random() < 0.9 else rng.getrandbits(32)
                op = rng.choice((*Op, rng.getrandbits(32)))
                packet = struct.pack("<II5q", op, size, *numbers) + data
            try:
                packet = packet if rng.random() < 0.95 else packet[: rng.randrange(1, 48)]
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, own * rng.choice((1, 1, 2, 9)))]
                bad.socket.sendmsg([packet], rights if rng.random() < 0.7 else [])
                bad.socket.recv(65536)
            except OSError:
                pass
        bad.socket.close()
        good.send(Op.IOCTL, (0, ioctl_number(ECHO, 4), 4096), b"\0\1\2\3", fd)
        answer = good.receive()
        assert answer is not None and answer.op == Op.DONE, f"seed {seed}"
        assert answer.data == b"\xff\xfe\xfd\xfc", f"seed {seed}"
    good.socket.close()
    os.close(fd)
    assert until(lambda: not server.clients and not kernel.open_files), f"seed {seed}"
