"""Two hostile clients of one server that know everything about each other but have no descriptor of it."""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
from collections.abc import Iterator
from errno import EACCES, EBADF, EINVAL
from pathlib import Path

import pytest

from rkcosim.driver.kernel import Kernel
from rkcosim.driver.kernel import structs as s
from rkcosim.driver.server import Server
from rkcosim.driver.server.protocol import VERSION, Channel, Message, Op
from rkcosim.golden.task import GoldenNpu

AT = 0x10000
"""Address of the structures: they are sent with the request, so the server never uses it."""


class Client:
    """A program that implements the protocol and answers LOOKUP with any descriptor."""

    def __init__(self, server: Server, node: str) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(20)
        sock.connect(str(server.path))
        self.channel = Channel(sock)
        self.channel.send(Op.HELLO, (VERSION, os.fstat(sock.fileno()).st_ino))
        self.installed = -1
        self.node = self.ask(Op.OPEN, (os.O_RDWR,), node.encode()).fd
        self.inode = os.fstat(self.node).st_ino

    def close(self) -> None:
        """End as a program does."""
        self.channel.socket.close()
        for fd in {self.node, self.installed} - {-1}:
            os.close(fd)

    def ask(
        self, op: Op, a: tuple[int, ...], data: bytes = b"", fd: int | None = None, lookup: int | None = None
    ) -> Message:
        """Return the answer to a request; `lookup` is the descriptor sent when the server looks one up."""
        self.channel.send(op, a, data, fd)
        while True:
            message = self.channel.receive()
            assert message is not None
            if message.op == Op.DONE:
                return message
            if message.op == Op.LOOKUP:
                # In an older protocol the number identified the file.
                number = a[0] or 1
                self.channel.send(Op.ANSWER, (number,), fd=lookup)
            elif message.op == Op.INSTALL:
                self.installed = message.fd
                self.channel.send(Op.ANSWER, (message.fd,))
            else:
                raise AssertionError(message)

    def ioctl(
        self, request: int, struct: s.Struct, fd: int | None, inode: int = 0, lookup: int | None = None
    ) -> tuple[int, s.Struct]:
        """Return the result and structure of an ioctl that names an inode and sends a descriptor."""
        done = self.ask(Op.IOCTL, (inode, request, AT), bytes(struct), fd, lookup)
        return done.a[0], type(struct).of(done.data) if done.data else struct

    def make(self, secret: bytes) -> tuple[int, int, int]:
        """Make a buffer with a secret; return its handle, its offset for mmap and a dma-buf descriptor."""
        result, bo = self.ioctl(s.ROCKET_CREATE_BO, s.CreateBo(size=4096), self.node)
        assert result == 0
        place = self.ask(Op.MMAP, (0, bo.offset, 4096, 3, mmap.MAP_SHARED), fd=self.node)
        assert place.a[0] == 0
        with mmap.mmap(place.fd, 4096) as memory:
            memory[: len(secret)] = secret
        place.close()
        args = s.PrimeHandle(handle=bo.handle, flags=0o2000002)
        result, _ = self.ioctl(s.DRM_PRIME_HANDLE_TO_FD, args, self.node)
        assert result == 0
        return bo.handle, bo.offset, self.installed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Kernel(GoldenNpu(strict=False)) as kernel, Server(kernel, tmp_path / "device") as opened:
        yield opened


@pytest.fixture
def clients(server: Server) -> Iterator[list[Client]]:
    both = [Client(server, "/dev/accel/accel0") for _ in range(2)]
    yield both
    for client in both:
        client.close()


def strangers() -> Iterator[int | None]:
    """Return descriptors that a hostile program may send: none, pipes, sockets, a FIFO, a file, a device."""
    yield None
    read, write = os.pipe()
    left, right = socket.socketpair()
    with tempfile.TemporaryDirectory() as folder:
        fifo = Path(folder) / "fifo"
        os.mkfifo(fifo)
        opened = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        others = [read, write, left.fileno(), opened, os.open(folder, os.O_RDONLY)]
        yield from others
        for fd in (read, write, *others[3:]):
            os.close(fd)
    left.close()
    right.close()
    null = os.open("/dev/null", os.O_RDWR)
    yield null
    os.close(null)


def test_neither_gets_the_others_memory(clients: list[Client]) -> None:
    made = [client.make(b"secret %d" % number) for number, client in enumerate(clients)]
    tried = 0
    for me, client in enumerate(clients):
        other, (handle, offset, dmabuf) = clients[1 - me], made[1 - me]
        numbers = other.inode, os.fstat(dmabuf).st_ino
        for inode in numbers:
            for shown in strangers():
                taken = client.ask(Op.MMAP, (inode, offset, 4096, 3, mmap.MAP_SHARED), fd=shown)
                assert (taken.a[0], taken.fd) == (-EBADF, -1)
                assert client.ask(Op.SIZE, (inode,), fd=shown).a[0] == -EBADF
                for request, args in (
                    (s.DRM_GEM_CLOSE, s.GemClose(handle=handle)),
                    (s.ROCKET_CREATE_BO, s.CreateBo(size=4096)),
                    (s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle(handle=handle)),
                ):
                    assert client.ioctl(request, args, shown, inode)[0] == -EBADF
                args = s.PrimeHandle(fd=3)
                result, _ = client.ioctl(s.DRM_PRIME_FD_TO_HANDLE, args, client.node, inode, lookup=shown)
                assert result == -EINVAL
                tried += 1
        # With its own node it may name the other's offset, but has no handle of that buffer.
        taken = client.ask(Op.MMAP, (other.inode, offset, 4096, 3, mmap.MAP_SHARED), fd=client.node)
        assert (taken.a[0], taken.fd) == (-EACCES, -1)
    assert tried == 28
    for number, (client, (_, offset, dmabuf)) in enumerate(zip(clients, made, strict=True)):
        place = client.ask(Op.MMAP, (0, 0, 4096, 3, mmap.MAP_SHARED), fd=dmabuf)
        with mmap.mmap(place.fd, 4096) as memory:
            assert memory[:8] == b"secret %d" % number
        place.close()
        assert client.ask(Op.SIZE, (0,), fd=dmabuf).a[0] == 4096
        assert client.ask(Op.MMAP, (0, offset, 4096, 3, mmap.MAP_SHARED), fd=client.node).a[0] == 0


def test_who_is_given_the_descriptor_has_the_memory(clients: list[Client]) -> None:
    one, two = clients
    _, _, dmabuf = one.make(b"shared")
    result, args = two.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=7), two.node, lookup=dmabuf)
    assert result == 0 and args.handle
    place = two.ask(Op.MMAP, (0, 0, 4096, 3, mmap.MAP_SHARED), fd=dmabuf)
    with mmap.mmap(place.fd, 4096) as memory:
        assert memory[:6] == b"shared"
    place.close()


def test_the_servers_copies_are_closed(server: Server) -> None:
    """Otherwise the server would not notice that the last copy of a program is closed."""
    client = Client(server, "/dev/accel/accel0")
    client.ask(Op.OPEN, (0,), b"/nothing", client.node)  # what the connection itself opens and closes is done
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        client.ioctl(s.DRM_GEM_CLOSE, s.GemClose(handle=99), client.node)
        client.ask(Op.OPEN, (0,), b"/nothing", client.node)
        client.ioctl(s.DRM_PRIME_FD_TO_HANDLE, s.PrimeHandle(fd=3), client.node, lookup=client.node)
    assert len(os.listdir("/proc/self/fd")) <= before
    os.close(client.node)
    client.node = -1
    client.ask(Op.SIZE, (0,))
    assert not len(server.machine.descriptors)
    client.close()


def test_stalled_clients_hold_nobody_up(server: Server, clients: list[Client]) -> None:
    """One never answers a LOOKUP, one reads no answer until its socket is full: another goes on meanwhile."""
    waiting, silent = clients
    args = bytes(s.PrimeHandle(fd=3))
    waiting.channel.send(Op.IOCTL, (0, s.DRM_PRIME_FD_TO_HANDLE, AT), args, waiting.node)
    silent.channel.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        for _ in range(100_000):
            silent.channel.send(Op.SIZE, (0,))
    good = Client(server, "/dev/accel/accel0")
    for number in range(20):
        good.make(b"secret %d" % number)
        os.close(good.installed)
        good.installed = -1
    good.close()


QUESTIONS = {
    "READ of jobs": (s.ROCKET_SUBMIT, s.RocketSubmit(jobs=0x4000, job_count=1, job_struct_size=40), Op.READ),
    "STORE of a name": (s.DRM_VERSION, s.Version(name=0x4000, name_len=16), Op.STORE),
    "INSTALL": (s.DRM_PRIME_HANDLE_TO_FD, s.PrimeHandle(handle=1, flags=0), Op.INSTALL),
}
"""Calls in which the server asks the program, and what it asks."""


def test_questions_that_are_never_answered_hold_nobody_up(server: Server) -> None:
    """Whatever a program is asked within a call, another one's buffers and jobs go on."""
    from tests.soak import SocketProgram, submit_of, sums

    stalled = []
    for request, args, op in QUESTIONS.values():
        client = Client(server, "/dev/accel/accel0")
        result, _ = client.ioctl(s.ROCKET_CREATE_BO, s.CreateBo(size=4096), client.node)
        assert result == 0
        client.channel.send(Op.IOCTL, (0, request, AT), bytes(args), client.node)
        question = client.channel.receive()
        assert question is not None and question.op == op
        question.close()
        stalled.append(client)
    program = SocketProgram(server)
    work = sums(program)
    for _ in range(3):
        work.out.bytes[:] = 0
        program.ioctl(s.RKNPU_SUBMIT, submit_of(work))
        assert work.right_result
    good = Client(server, "/dev/accel/accel0")
    good.make(b"secret")
    for client in (*stalled, good, program.client):
        client.close()
