"""A kernel without a device, to test access methods: its ioctls access memory as instructed."""

from __future__ import annotations

import os
import struct
import threading
import time
from dataclasses import dataclass
from errno import EINTR, EINVAL, ENOTTY
from types import SimpleNamespace
from typing import Any

from rkcosim.driver.kernel.fences import install
from rkcosim.driver.kernel.interface import KernelError
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.sysfs import TextFile

ECHO, NEST, EXPORT, FENCE, SIGNAL, WAIT, IDENTIFY = range(7)
"""Commands, by the number of the ioctl."""


@dataclass(frozen=True)
class FakeNode:
    path: str
    major: int = 226
    minor: int = 128
    mode: int = 0o666


class FakeText(TextFile):
    """A text file of the kernel that stores the written text."""

    def __init__(self, content: str = "hello\n", writable: bool = True) -> None:
        super().__init__(content, self._keep if writable else None)
        self.written: list[bytes] = []

    def _keep(self, text: str) -> None:
        if text == "bad\n":
            raise KernelError(EINVAL)
        self.written.append(text.encode("latin-1"))


class FakeBuffer:
    """An object that can be mapped."""

    access = os.O_RDWR

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("fake")
        os.ftruncate(self.fd, size)
        self.references = 1

    def fileno(self) -> int:
        return self.fd

    def hold(self) -> None:
        self.references += 1

    def close(self) -> None:
        self.references -= 1


class FakeFence(FakeBuffer):
    """An object that can be polled."""

    access = os.O_RDONLY

    def __init__(self) -> None:
        self.fd, self.end = os.pipe()
        self.references = 0


class FakeFile:
    def __init__(self, kernel: FakeKernel, path: str, flags: int, who: Any) -> None:
        self.kernel, self.path, self.flags, self.who = kernel, path, flags, who
        self.fence: FakeFence | None = None
        self.closed = self.interrupted = False

    def interrupt(self) -> None:
        self.interrupted = True

    def ioctl(self, request: int, argument: int, user: Any, fds: Any) -> int:
        if request >> 8 & 0xFF != ord("d"):
            raise KernelError(ENOTTY)
        self.kernel.calls += 1
        command, size = request & 0xFF, request >> 16 & 0x3FFF
        data = user.read(argument, size)
        if command == ECHO:
            user.write(argument, bytes(byte ^ 0xFF for byte in data))
            return 0
        if command == NEST:
            source, target, count = struct.unpack_from("<QQQ", data)
            user.write(target, bytes(reversed(user.read(source, count))))
            return count & 0xFFFF
        if command == EXPORT:
            user.write(argument, struct.pack("<i", install(fds, self.kernel.buffer, bool(data[0]))))
            return 0
        if command == FENCE:
            self.fence = FakeFence()
            user.write(argument, struct.pack("<i", install(fds, self.fence, True)))
            return 0
        if command == SIGNAL:
            obj = fds.lookup(struct.unpack("<i", data)[0])
            if obj is None:
                raise KernelError(EINVAL)
            os.write(obj.end, b"x")
            return 0
        if command == WAIT:
            self.interrupted = False
            end = time.monotonic() + struct.unpack("<i", data)[0] / 1000
            while time.monotonic() < end:
                if self.interrupted or self.closed:
                    raise KernelError(EINTR)
                time.sleep(0.002)
            return 0
        if command == IDENTIFY:
            user.write(argument, struct.pack("<i", self.who.pid))
            return 0
        raise KernelError(EINVAL)

    def mmap(self, offset: int, length: int, prot: int, flags: int) -> tuple[int, int]:
        if offset != 0x100000000:
            raise KernelError(EINVAL)
        return self.kernel.buffer.fileno(), 0

    def close(self) -> None:
        assert not self.closed
        self.closed = True
        self.kernel.open_files -= 1


class FakeKernel:
    hidden = ("/dev/dri", "/dev/accel")

    def __init__(self) -> None:
        self.log = Log()
        self.lock = threading.RLock()
        self.scheduler = SimpleNamespace(lock=self.lock)
        self.buffer = FakeBuffer(8192)
        self.calls = self.open_files = 0
        self.text = FakeText()

    def nodes(self) -> list[FakeNode]:
        return [FakeNode("/dev/dri/card1", 226, 1, 0o660), FakeNode("/dev/dri/renderD129", 226, 129)]

    def links(self) -> dict[str, str]:
        return {"/dev/dri/by-path/platform-npu-render": "../renderD129"}

    def files(self) -> dict[str, FakeText]:
        return {
            "/sys/kernel/debug/rknpu/version": FakeText("fake\n", False),
            "/sys/class/fake/delay": self.text,
        }

    def open(self, path: str, flags: int, who: Any) -> FakeFile:
        self.open_files += 1
        return FakeFile(self, path, flags, who)
