"""Resources of a process, and calls of its functions that implement custom operators."""

from __future__ import annotations

import contextlib
import ctypes as ct
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import rkcosim.rknn_api as rk
from rkcosim.rknn_api import custom_types as cu
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.memory import forget
from rkcosim.rknn_api.server.board import Board
from rkcosim.rknn_api.server.protocol import Gone, ProtocolError
from rkcosim.rknn_api.state import Context, log, runtime

NO_HANDLE = (1 << 63) - 1
"""Handle that no context has."""


class Caller(Protocol):
    """Object that calls functions of the program: the connection of a thread that waits for its own call."""

    def callback(self, address: int, node: int, inputs: list[Any], outputs: list[Any]) -> int:
        """Call init, prepare or compute of a custom operator at an address and return its result."""
        ...

    def callback_end(self, address: int, node: int) -> int:
        """Call destroy of a custom operator unless the address is 0, and discard the node."""
        ...


Closed = Callable[[str, Any], None]
"""Called with the name of a model (empty for products) and the context before the context is destroyed."""


class Session:
    """Contexts and memory of one process.

    Members
    -------
    number : random number by which the threads of the process refer to the session.
    pid : number of the process.
    contexts : lock by handle; a call on a context holds its lock.
    memories : numbers of its memory (`priv_data` of rknn_tensor_mem).
    names : name of the model by handle.
    boards : board by handle, of contexts whose inputs were set.
    """

    def __init__(self, pid: int, closed: Closed | None = None) -> None:
        self.number = int.from_bytes(os.urandom(7), "little")
        self.pid = pid
        self.contexts: dict[int, threading.RLock] = {}
        self.memories: set[int] = set()
        self.names: dict[int, str] = {}
        self.boards: dict[int, Board] = {}
        self._closed = closed
        self._over = False

    def add(self, handle: int, name: str = "") -> None:
        """Add a new context."""
        self.contexts[handle] = threading.RLock()
        self.names[handle] = name
        if self._over:  # the process ended during the call
            self.destroy(handle)

    @contextlib.contextmanager
    def using(self, handle: int) -> Iterator[int]:
        """Hold the lock of a context of this process.

        Yields its handle; `NO_HANDLE` for a context that this process does not have, and 0 for 0.
        """
        lock = self.contexts.get(handle)
        if lock is None:
            yield NO_HANDLE if handle else 0
            return
        with lock:
            board = self.boards.get(handle)
            if board is None:
                yield handle if handle in self.contexts else NO_HANDLE
                return
            board.enter()
            try:
                yield handle if handle in self.contexts else NO_HANDLE
            finally:
                if handle in self.boards:
                    board.leave()

    def destroy(self, handle: int) -> int:
        """Destroy a model or matmul context and return the error code."""
        state = runtime.contexts.get(handle)
        board = self.boards.pop(handle, None)
        if board is not None:
            board.close()
        try:
            if state is not None and self._closed is not None:
                state.finish()
                self._closed(self.names.get(handle, ""), state)
        finally:
            one = isinstance(state, Context)
            code = rk.rknn_destroy(handle) if one else rk.rknn_matmul_destroy(handle)
            self.contexts.pop(handle, None)
            self.names.pop(handle, None)
        return code

    def close(self) -> None:
        """Free all resources of the process after its running calls have ended."""
        self._over = True
        for handle, lock in list(self.contexts.items()):
            with lock:
                if handle in self.contexts:
                    self.destroy(handle)
        for number in self.memories:
            memory = runtime.memories.get(number)
            if memory is not None:
                forget(memory)
        self.memories.clear()


_current = threading.local()


@contextlib.contextmanager
def serving(calls: Caller) -> Iterator[None]:
    """Use this thread's connection for calls of functions of the program."""
    before = getattr(_current, "calls", None)
    _current.calls = calls
    try:
        yield
    finally:
        _current.calls = before


def forwarded(op: cu.rknn_custom_op) -> None:
    """Replace the addresses of the program's functions in an operator by functions of this process.

    The functions call the program through the connection of the thread that runs them.
    """
    for name in ("init", "prepare", "compute"):
        address = _address(op, name)
        if address:
            setattr(op, name, cu.rknn_custom_op_callback(functools.partial(_forward, address)))
    op.destroy = cu.rknn_custom_op_destroy(functools.partial(_forward_end, _address(op, "destroy")))


def _address(op: cu.rknn_custom_op, name: str) -> int:
    place = ct.addressof(op) + getattr(cu.rknn_custom_op, name).offset
    return ct.c_uint64.from_address(place).value


def _forward(address: int, context: Any, inputs: Any, n_in: int, outputs: Any, n_out: int) -> int:
    calls = getattr(_current, "calls", None)
    if calls is None:
        log.error("a custom operator cannot run outside of a call of its program")
        return t.RKNN_ERR_FAIL
    node = int(context.contents.internal_ctx)
    try:
        given, taken = [inputs[n] for n in range(n_in)], [outputs[n] for n in range(n_out)]
        return int(calls.callback(address, node, given, taken))
    except MemoryError as error:
        log.error("a custom operator cannot run: %s", error)
        return t.RKNN_ERR_MALLOC_FAIL
    except (Gone, ProtocolError):  # nobody can raise it through C code; the next message ends the connection
        return t.RKNN_ERR_FAIL


def _forward_end(address: int, context: Any) -> int:
    calls = getattr(_current, "calls", None)
    return 0 if calls is None else int(calls.callback_end(address, int(context.contents.internal_ctx)))
