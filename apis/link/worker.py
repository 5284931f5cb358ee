"""The process in which an interface's models are compiled and simulated: its life, from its start to its end.

Each interface with a C library has a module `worker` that calls `main`.  The library starts it with the
connection as descriptor 3 (`rkcosim.apis.link.protocol`).  It ends when the library closes the connection or
when the library's process ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pkgutil import resolve_name
from typing import Protocol

from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.link.protocol import PROTOCOL, Channel, Message, ProtocolError, RequestKind, Runtime, Status
from rkcosim.base.failures import Failures, is_internal
from rkcosim.devices.ending import Ending, say_now
from rkcosim.running.machine import Machine
from rkcosim.running.settings import read_settings

DESCRIPTOR = 3
"""The connection."""

BUSY_SECONDS, WRITE_SECONDS = 2.0, 600.0
"""Seconds after the end of the plug-in's process: to end a request, and to write results."""


class Calls(Protocol):
    """The calls of one plug-in."""

    def greeting(self) -> bytes:
        """Return what the plug-in must know."""

    def answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        """Execute a request and return the answer with its contents."""


class Worker:
    """Answers the requests of a plug-in.

    Parameters
    ----------
    connection : the connection to it.
    calls : makes the calls of a runtime on a device.

    Members
    -------
    busy : whether a request is being executed.
    failures : unforeseen errors behind the requests.
    """

    def __init__(self, connection: socket.socket, calls: Callable[[Runtime, Machine], Calls]) -> None:
        self._channel, self._make_calls = Channel(connection), calls
        self._machine: Machine | None = None
        self._calls: Calls | None = None
        self.busy = False
        self.failures = Failures()

    def serve(self) -> None:
        """Answer requests until the connection is closed."""
        try:
            while (got := self._channel.receive()) is not None:
                self.busy = True
                answer = self._answer(*got)
                self.busy = False
                self._channel.send(*answer)
                if got[0].call == RequestKind.CLOSE:
                    return
        finally:
            self._close()

    def _answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        try:
            if request.call == RequestKind.HELLO:
                return Message(request.call, size=request.size), self._hello(request, memory)
            if request.call == RequestKind.CLOSE:
                self._close()
                return Message(request.call, size=request.size), b""
            if self._calls is None:
                raise ProtocolError("a request before the options")
            return self._calls.answer(request, memory)
        except Exception as error:  # the runtime reports every error to the script
            wrong_option = request.call == RequestKind.HELLO and isinstance(error, ValueError)
            if is_internal(error) and not wrong_option:
                self.failures.add(f"the call {request.call} of the program", error)
            return Message(request.call, Status.FAILED, size=request.size), _text(error).encode()

    def _hello(self, request: Message, memory: memoryview) -> bytes:
        runtime, version = divmod(request.number, 1 << 32)
        if version != PROTOCOL or self._calls is not None:
            raise ProtocolError("the library is of another version of rkcosim: ask for its path again")
        texts = bytes(memory[: request.used]).decode(errors="replace").split("\0")[:-1]
        settings = read_settings(dict(zip(texts[::2], texts[1::2], strict=True)))
        self._machine = open_machine(settings)
        self._calls = self._make_calls(Runtime(runtime), self._machine)
        return self._calls.greeting()

    def _close(self) -> None:
        machine, self._machine, self._calls = self._machine, None, None
        if machine is not None:
            machine.close()


def calls_for(wanted: Runtime, home: str) -> Callable[[Runtime, Machine], Calls]:
    """Return the function that makes the calls of an interface, which raises ProtocolError for another one.

    Parameters
    ----------
    wanted : the interface.
    home : its class of calls, as "module:name", which is imported when the library has connected.
    """

    def make(runtime: Runtime, machine: Machine) -> Calls:
        if runtime != wanted:
            raise ProtocolError(f"runtime {runtime} in a process for {wanted.name}")
        calls: Calls = resolve_name(home)(machine)
        return calls

    return make


def _text(error: Exception) -> str:
    """Return the text of an error, with its class if it has no text of ours."""
    ours = hasattr(error, "exit_code") or type(error).__module__.startswith("rkcosim.")
    text = str(error)
    return text if text and (ours or isinstance(error, ValueError)) else f"{type(error).__name__}: {text}"


@contextlib.contextmanager
def _following(parent: int, worker: Worker, connection: socket.socket) -> Iterator[None]:
    """End this process when another one ends, also if it has forked and so the connection stays open."""
    try:
        watched = os.pidfd_open(parent)
    except OSError:  # it has ended, or the kernel has no such descriptors: the connection tells
        yield
        return

    def watch() -> None:
        select.select([watched], [], [])
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        busy = worker.busy
        if not over.wait(BUSY_SECONDS if busy else WRITE_SECONDS):
            say_now("rkcosim: the program has ended during an inference; its results are not written\n")
            os._exit(1)

    over = threading.Event()
    threading.Thread(target=watch, name="rkcosim parent", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def main(calls: Callable[[Runtime, Machine], Calls]) -> None:
    """Serve the library that started this process; `calls` makes its calls on a device."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # standard output belongs to the script
    connection = socket.socket(fileno=DESCRIPTOR)
    connection.set_inheritable(False)
    worker = Worker(connection, calls)

    def heard(_: int) -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    with Ending((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), heard) as ending, worker.failures.watching():
        with _following(os.getppid(), worker, connection):
            try:
                worker.serve()
            except Exception as error:  # between two requests, or when the results are written
                worker.failures.add("the simulator's process", error)
                sys.exit(worker.failures.code(1))
    sys.exit(128 + ending.number if ending.number else worker.failures.code(0))
