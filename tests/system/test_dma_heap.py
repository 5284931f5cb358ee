"""Memory from /dev/dma_heap: programs under `device` and `rknn`, and this process."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from errno import EACCES, EFAULT, EINVAL, EMFILE, ENODEV, ENOMEM, ENOTTY
from pathlib import Path
from typing import Any

import pytest

from rkcosim.devices import device
from rkcosim.devices.native_library import c_compiler
from rkcosim.devices.rknn_library import lay_out, rknn_library
from rkcosim.driver.kernel import BoardView, Credentials, Kernel
from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.boards import board_named
from rkcosim.golden.task import GoldenNpu
from tests.makers.kernel_client import LOW, Program
from tests.programs import needs_program

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"

pytestmark = needs_program("cc")

PROGRAM = """
import fcntl
import json
import mmap
import os
import struct
import sys

ALLOC, SYNC, NAME = 0xC0184800, 0x40086200, 0x40086201
told = {}


def errno(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def allocate(node, length, fd=0, fd_flags=os.O_RDWR | os.O_CLOEXEC, heap_flags=0, request=ALLOC):
    data = bytearray(struct.pack("<QIIQ", length, fd, fd_flags, heap_flags))
    fcntl.ioctl(node, request, data)
    return struct.unpack("<QIIQ", data)[1]


told["nodes"] = sorted(os.listdir("/dev/dma_heap"))
status = os.stat("/dev/dma_heap/cma")
told["number"] = [os.major(status.st_rdev), os.minor(status.st_rdev)]
node = os.open("/dev/dma_heap/system", os.O_RDONLY | os.O_CLOEXEC)
fd = allocate(node, 5000)
told["mode"] = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
told["inheritable"] = [os.get_inheritable(fd), os.get_inheritable(allocate(node, 1, fd_flags=os.O_RDWR))]
told["size"] = os.lseek(fd, 0, os.SEEK_END)
pages = mmap.mmap(fd, 8192)
told["zero"] = pages[:] == bytes(8192)
pages[4999] = 7
copy = os.dup(fd)
os.close(fd)
told["shared"] = mmap.mmap(copy, 8192)[4999]
told["sync"] = [errno(fcntl.ioctl, copy, SYNC, struct.pack("<Q", flags)) for flags in (3, 7, 1, 6, 0, 4, 8)]
told["other"] = errno(fcntl.ioctl, copy, 0x40086209, bytes(8))
told["beyond"] = errno(mmap.mmap, copy, 8193)
told["names"] = [errno(fcntl.ioctl, copy, NAME, letters * b"x") for letters in (31, 32)]
read_only = allocate(node, 4096, fd_flags=os.O_RDONLY)
told["read only"] = [
    fcntl.fcntl(read_only, fcntl.F_GETFL) & os.O_ACCMODE,
    errno(mmap.mmap, read_only, 4096),
    errno(lambda: mmap.mmap(read_only, 4096, prot=mmap.PROT_READ)),
]
told["refused"] = [
    errno(allocate, node, 0),
    errno(allocate, node, 2**64 - 1),
    errno(allocate, node, 2**40),
    errno(lambda: allocate(node, 4096, fd=3)),
    errno(lambda: allocate(node, 4096, fd_flags=os.O_RDWR | os.O_NONBLOCK)),
    errno(lambda: allocate(node, 4096, heap_flags=1)),
    errno(lambda: allocate(node, 4096, request=ALLOC + 1)),
    errno(lambda: fcntl.ioctl(node, ALLOC, 16)),
    errno(mmap.mmap, node, 4096),
    errno(lambda: fcntl.ioctl(node, 0xC0004800, bytearray(24))),
]
print(json.dumps(told))
"""

WANTED = {
    "nodes": ["cma", "cma-uncached", "system", "system-dma32", "system-uncached", "system-uncached-dma32"],
    "number": [251, 4],
    "mode": 2,
    "inheritable": [False, True],
    "size": 8192,
    "zero": True,
    "shared": 7,
    "sync": [0, 0, 0, 0, EINVAL, EINVAL, EINVAL],
    "other": ENOTTY,
    "beyond": EINVAL,
    "names": [0, EINVAL],
    "read only": [0, EACCES, 0],
    "refused": [EINVAL, EINVAL, ENOMEM, EINVAL, EINVAL, EINVAL, EINVAL, EFAULT, ENODEV, EINVAL],
}
"""Answers of torvalds/linux (drivers/dma-buf/dma-heap.c and dma-buf.c; mm/mmap.c for the access modes); names
and numbers are those of a board (rockchip-linux/mpp, issue 626)."""


def cli(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rkcosim", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("command", ["rknn", "device"])
def test_a_program(command: str):
    done = cli(command, "--engine", "golden", "--", sys.executable, "-c", PROGRAM)
    assert json.loads(done.stdout) == WANTED


def test_this_process(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    with device(engine="golden"):
        runpy.run_path(str(script))
    assert json.loads(capsys.readouterr().out) == WANTED


def test_memory_of_a_model(tmp_path: Path):
    lay_out(tmp_path, rknn_library(), copy=True)
    source = Path(__file__).with_name("programs") / "heaps.c"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path / 'include'}", f"-L{tmp_path / 'lib'}"]
    program = tmp_path / "heaps"
    subprocess.run([*c_compiler(), *flags, "-o", program, source, "-lrknnrt"], check=True)
    cli("rknn", "--engine", "golden", "--", program, DIGITS)


class Memory:
    """A program's memory that holds one structure, and its descriptors."""

    def __init__(self, data: bytes, room: int = 1000) -> None:
        self.data, self.room = bytearray(data), room
        self.made: list[Any] = []

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.data[address : address + size])

    def write(self, address: int, data: bytes) -> None:
        self.data[address : address + len(data)] = data

    def install(self, obj: Any, cloexec: bool) -> int:
        if not self.room:
            raise OSError(EMFILE, "no descriptors left")
        self.made.append(obj)
        return 40 + len(self.made)


def test_memory_is_freed_with_the_last_descriptor():
    view = BoardView(board_named(None), {})
    ram = view.heaps.ram
    file = view.open("/dev/dma_heap/cma", 0, Credentials(1))
    program = Memory(bytes(s.HeapAllocation(len=10_000, fd_flags=2)))
    file.ioctl(s.DMA_HEAP_ALLOC, 0, program, program)
    assert s.HeapAllocation.of(bytes(program.data)).fd == 41 and ram.used == 12288
    (buffer,) = program.made
    file.close()
    assert ram.used == 12288
    buffer.close()
    assert ram.used == 0
    full = Memory(bytes(s.HeapAllocation(len=4096)), room=0)
    with pytest.raises(OSError) as caught:
        view.open("/dev/dma_heap/cma", 0, Credentials(1)).ioctl(s.DMA_HEAP_ALLOC, 0, full, full)
    assert caught.value.errno == EMFILE and ram.used == 0


def test_the_driver_imports_memory_of_a_heap():
    """The pages exist until handle and descriptor are closed."""
    with Kernel(GoldenNpu(strict=False)) as kernel:
        program = Program(kernel)
        heap = kernel.open("/dev/dma_heap/system", 0, Credentials(100))
        program.memory.write(LOW, bytes(s.HeapAllocation(len=4096, fd_flags=2)))
        heap.ioctl(s.DMA_HEAP_ALLOC, LOW, program.memory, program.fds)
        fd = s.HeapAllocation.of(program.memory.read(LOW, 24)).fd
        made = program.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=fd))
        again = program.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=fd))
        assert made.handle == again.handle != 0
        item, buffer = program.file.handles.get(made.handle), program.fds.table[fd]
        assert item is not None and item.imported and item.backing is buffer.item.backing
        used = kernel.heaps.ram.used
        program.fds.close(fd)
        assert kernel.heaps.ram.used == used
        program.ioctl(s.DRM_GEM_CLOSE, s.GemClose(handle=made.handle))
        assert kernel.heaps.ram.used == used - 4096
