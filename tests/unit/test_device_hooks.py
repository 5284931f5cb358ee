"""The simulated device in a Python process: which functions it intercepts and which it does not."""

from __future__ import annotations

import builtins
import fcntl
import glob
import io
import mmap
import os
import select
import stat
import struct
import types
from collections.abc import Iterator
from errno import EBADF, EFAULT, EINVAL
from pathlib import Path

import pytest

from rkcosim.driver.hooks import Hooks
from rkcosim.driver.server import Descriptors
from tests.makers.fake_kernel import ECHO, EXPORT, FENCE, NEST, SIGNAL, FakeKernel

CARD = "/dev/dri/card1"
BUFFER = 0x100000000


def request(number: int, size: int) -> int:
    return 3 << 30 | size << 16 | ord("d") << 8 | number


@pytest.fixture
def kernel() -> Iterator[FakeKernel]:
    kernel = FakeKernel()
    with Hooks(kernel):  # type: ignore[arg-type]
        yield kernel
    assert kernel.open_files == 0


@pytest.fixture
def fd(kernel: FakeKernel) -> Iterator[int]:
    fd = os.open(CARD, os.O_RDWR | os.O_CLOEXEC)
    yield fd
    os.close(fd)


def test_names_of_the_machine(kernel: FakeKernel, tmp_path: Path):
    assert sorted(os.listdir("/dev/dri")) == ["by-path", "card1", "renderD129"]
    assert sorted(entry.name for entry in os.scandir("/dev/dri")) == sorted(os.listdir("/dev/dri"))
    assert glob.glob("/dev/dri/card*") == [CARD]
    status = os.stat(CARD)
    assert stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(226, 1)
    assert Path("/dev/dri/renderD129").is_char_device() and os.path.exists(CARD)
    assert not os.path.exists("/dev/dri/card0") and os.access(CARD, os.R_OK | os.W_OK)
    link = "/dev/dri/by-path/platform-npu-render"
    assert os.path.islink(link) and os.path.realpath(link) == "/dev/dri/renderD129"
    assert os.readlink(link) == "../renderD129" and os.stat(link).st_rdev == os.makedev(226, 129)
    assert Path("/sys/kernel/debug/rknpu/version").read_text(encoding="utf-8") == "fake\n"
    with pytest.raises(FileNotFoundError):
        os.open("/dev/dri/card0", os.O_RDWR)
    # All other functions are unchanged.
    (tmp_path / "file").write_text("text")
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "text"
    assert os.path.exists("/dev/null") and os.path.exists("/proc/self/status")


def test_texts_are_read_and_written(kernel: FakeKernel):
    path = "/sys/class/fake/delay"
    with open(path, encoding="utf-8") as file:
        assert file.read() == "hello\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write("7\n")
    fd = os.open(path, os.O_WRONLY)
    assert os.write(fd, b"8\n") == 2
    with pytest.raises(OSError) as caught:
        os.write(fd, b"bad\n")
    assert caught.value.errno == EINVAL
    os.close(fd)
    assert sorted(kernel.text.written) == [b"7\n", b"8\n"]
    with pytest.raises(PermissionError):
        open("/sys/kernel/debug/rknpu/version", "w", encoding="utf-8")


def test_ioctl_takes_every_kind_of_argument(fd: int):
    echo = request(ECHO, 4)
    assert fcntl.ioctl(fd, echo, b"\0\1\2\3") == b"\xff\xfe\xfd\xfc"
    buffer = bytearray(b"\0\1\2\3")
    assert fcntl.ioctl(fd, echo, buffer) == 0 and buffer == b"\xff\xfe\xfd\xfc"
    assert fcntl.ioctl(fd, echo, buffer, False) == b"\0\1\2\3" and buffer == b"\xff\xfe\xfd\xfc"
    import ctypes

    number = ctypes.c_uint32(1)
    fcntl.ioctl(fd, echo, number)
    assert number.value == 0xFFFFFFFE
    assert fcntl.ioctl(fd, echo, ctypes.addressof(number)) == 0 and number.value == 1
    with os.fdopen(os.dup(fd), "rb", buffering=0) as file:
        assert fcntl.ioctl(file, echo, b"\0\0\0\0") == b"\xff\xff\xff\xff"
    source, target = ctypes.create_string_buffer(b"abcd", 4), ctypes.create_string_buffer(4)
    nest = struct.pack("<QQQ", ctypes.addressof(source), ctypes.addressof(target), 4)
    fcntl.ioctl(fd, request(NEST, 24), nest)
    assert target.raw == b"dcba"
    for bad in ((8, ctypes.addressof(target), 4), (ctypes.addressof(source), 8, 4), (1 << 63, 1 << 63, 9)):
        with pytest.raises(OSError) as caught:
            fcntl.ioctl(fd, request(NEST, 24), struct.pack("<QQQ", *bad))
        assert caught.value.errno == EFAULT


def test_mappings_share_memory(fd: int):
    with mmap.mmap(fd, 8192, offset=BUFFER) as one, mmap.mmap(fd, 4096, offset=BUFFER) as two:
        one[3:6] = b"abc"
        assert two[3:6] == b"abc" and isinstance(one, mmap.mmap)
        buffer = struct.unpack("<i", fcntl.ioctl(fd, request(EXPORT, 4), bytes(4)))[0]
        assert os.lseek(buffer, 0, os.SEEK_END) == 8192
        with mmap.mmap(buffer, 8192) as three:
            assert three[3:6] == b"abc"
        os.close(buffer)
    with pytest.raises(OSError) as caught:
        mmap.mmap(fd, 4096, offset=0)
    assert caught.value.errno == EINVAL
    with mmap.mmap(-1, 4096) as outside:
        assert isinstance(outside, mmap.mmap) and len(outside) == 4096


def test_fences_poll(fd: int):
    fence = struct.unpack("<i", fcntl.ioctl(fd, request(FENCE, 4), bytes(4)))[0]
    poll = select.poll()
    poll.register(fence, select.POLLIN)
    assert poll.poll(0) == []
    fcntl.ioctl(fd, request(SIGNAL, 4), struct.pack("<i", fence))
    assert poll.poll(5000) == [(fence, select.POLLIN)]
    os.close(fence)
    with pytest.raises(OSError) as caught:
        fcntl.ioctl(fd, request(SIGNAL, 4), struct.pack("<i", fence))
    assert caught.value.errno == EBADF


def test_file_closes_with_its_last_copy(kernel: FakeKernel):
    fd = os.open(CARD, os.O_RDWR)
    copy = os.dup(fd)
    os.close(fd)
    assert kernel.open_files == 1 and fcntl.ioctl(copy, request(ECHO, 1), b"\0") == b"\xff"
    os.close(copy)
    assert kernel.open_files == 0


def test_functions_come_back_and_taken_over_names_are_followed(monkeypatch: pytest.MonkeyPatch):
    taken = types.ModuleType("some_program")
    taken.ioctl = fcntl.ioctl  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "some_program", taken)
    before = (os.open, os.close, os.stat, fcntl.ioctl, mmap.mmap, builtins.open, io.open, os.scandir)
    with Hooks(FakeKernel()):  # type: ignore[arg-type]
        fd = os.open(CARD, os.O_RDWR)
        assert taken.ioctl is fcntl.ioctl and taken.ioctl(fd, request(ECHO, 1), b"\0") == b"\xff"
        os.close(fd)
        with pytest.raises(RuntimeError, match="already has a simulated device"), Hooks(FakeKernel()):  # type: ignore[arg-type]
            pass
    assert before == (os.open, os.close, os.stat, fcntl.ioctl, mmap.mmap, builtins.open, io.open, os.scandir)
    assert taken.ioctl is fcntl.ioctl


def test_descriptors_pass_readiness_on_and_see_the_end():
    closed: list[str] = []
    obj = types.SimpleNamespace(close=lambda: closed.append("closed"))
    table = Descriptors()
    source, end = os.pipe()
    fd = table.make(obj, 61, watched=source)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(0) == [] and table.find_fd(fd) is obj
    os.write(end, b"x")
    assert poll.poll(5000) == [(fd, select.POLLIN)]
    os.close(fd)
    table.reap()
    assert closed == ["closed"] and len(table) == 0
    spare = table.make(obj, 61)
    table.discard(spare)
    assert closed == ["closed"] and len(table) == 0
    left = table.make(obj, 61)
    table.close()
    assert closed == ["closed"] * 2
    for number in (source, end, left):
        os.close(number)
