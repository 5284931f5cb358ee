"""Execution of the calls of one thread of a program: arguments and results are in its arena."""

from __future__ import annotations

import ctypes as ct
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rkcosim.rknn_api as rk
from rkcosim.base.failures import one_line
from rkcosim.base.files import GivenFileError, read_opened
from rkcosim.rknn_api import custom_types as cu
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.convert import shown_dtype
from rkcosim.rknn_api.custom import is_node_of
from rkcosim.rknn_api.declarations import COUNT_ONE, COUNT_TEXT, COUNT_UNPACKED, MATRICES, operand_bits
from rkcosim.rknn_api.io import output_shape
from rkcosim.rknn_api.matmul_types import rknn_matmul_info
from rkcosim.rknn_api.memory import forget, memory_of, no_descriptor
from rkcosim.rknn_api.server.board import board_of
from rkcosim.rknn_api.server.protocol import Arena, Channel, Gone, Op, Packet, ProtocolError, aligned
from rkcosim.rknn_api.server.session import Session, forwarded, serving
from rkcosim.rknn_api.session import DTYPES
from rkcosim.rknn_api.signatures import NESTED, QUERIES, SIGNATURES, Argument, Signature, type_named
from rkcosim.rknn_api.state import Context, Refusal, log, runtime

MISSING = (
    "make it with `rkcosim compile MODEL -o {path}` from the ONNX or TFLite model that it was made of, "
    "or give the program that model's path"
)
"""Advice for a model file that does not exist."""

_SLACK = 1 << 20
"""Bytes reserved in an arena for calls within a callback, which cannot enlarge the arena."""


class _Given:
    """Precomputed description of how an argument is read."""

    def __init__(self, signature: Signature, argument: Argument) -> None:
        self.argument = argument
        self.kind = argument.ctype
        self.pointer = argument.way not in ("value", "address")
        self.signed = not self.pointer and self.kind in (ct.c_int32, ct.c_int)
        self.bits = (1 << 64) - 1 if not self.signed and ct.sizeof(self.kind) == 8 else (1 << 32) - 1
        if argument.way == "address":
            self.bits = (1 << 64) - 1
        self.is_context = argument.kind == "rknn_context" and not self.pointer
        self.is_memory = argument.kind == "rknn_tensor_mem"
        self.nested = NESTED.get(argument.kind, ())
        self.size = ct.sizeof(self.kind)
        self.returned = self.pointer and argument.way in ("out", "inout")
        self.count = COUNT_ONE
        if argument.kind == "text":
            self.count = COUNT_TEXT
        elif argument.count in MATRICES:
            self.count = MATRICES[argument.count]
        elif argument.count:
            self.count = signature.place(argument.count)
        numbers = self.kind is ct.c_uint8 and signature.name != "rknn_query"
        large = numbers or self.count == COUNT_TEXT or self.count in MATRICES.values()
        self.copied = self.pointer and not (large or self.nested or self.is_memory)
        """Whether the functions work on a copy of the target, because the program can change its arena at any
        time, also between a check and a use.  Texts are copied anyway; bytes are read or written once."""

    def number(self, raw: int) -> int:
        """Return the value of an argument that is not a pointer."""
        if self.signed:
            return ct.c_int32(raw).value
        return raw & self.bits

    def elements(self, name: str, a: tuple[int, ...]) -> int:
        """Return the number of elements of a pointer's target, for the numbers `a` of the call."""
        if self.count == COUNT_ONE:
            return 1
        if self.count >= 0:
            count = a[self.count] & 0xFFFFFFFF
            if name == "rknn_query":
                return ct.sizeof(type_named(QUERIES[a[1]])) if a[1] in QUERIES else 1
            return count
        return 0


_FUNCTIONS = [
    (signature, [_Given(signature, argument) for argument in signature.arguments])
    for signature in SIGNATURES.values()
]
_BITS = operand_bits()

Result = tuple[int, int, int, int]
"""Result of a call, two numbers, and a descriptor to send (-1 for none)."""


class Calls:
    """Serve the calls of one connection.

    Parameters
    ----------
    session : session of the process.
    channel, arena : connection and memory of the thread.
    """

    def __init__(self, session: Session, channel: Channel, arena: Arena) -> None:
        self.session, self.channel, self.arena = session, channel, arena
        self.used = 0
        """Number of used bytes of the arena."""
        self._depth = 0

    def serve(self) -> None:
        """Answer calls until the connection is closed.

        Raises
        ------
        Gone
            if the program has closed the connection.
        ProtocolError
            if a message is invalid.
        """
        with serving(self):
            while True:
                self._message(self.channel.receive())

    def _message(self, packet: Packet) -> None:
        try:
            if packet.op == Op.ARENA and not self._depth:
                self.arena = Arena(packet.fd)
            elif packet.op == Op.CALL:
                self._call(packet)
            else:
                raise ProtocolError(f"message {packet.op} where a call was expected")
        finally:
            packet.close()

    def _call(self, packet: Packet) -> None:
        if not 0 <= packet.number < len(_FUNCTIONS):
            raise ProtocolError(f"function {packet.number}")
        signature, given = _FUNCTIONS[packet.number]
        before, self.used = self.used, aligned(packet.used)
        try:
            result, *more, fd = self._result(signature, given, packet)
        except (Gone, ProtocolError):
            raise
        except Exception as error:  # the program gets the code of the interface, and the server goes on
            result, more, fd = _failure(signature, error), [0, 0], -1
        finally:
            self.used = before
        try:
            self.channel.send(Op.DONE, (int(result or 0), *more), fd=fd)
        finally:
            if fd >= 0:
                os.close(fd)

    def _result(self, signature: Signature, given: list[_Given], packet: Packet) -> Result:
        """Execute a call; raises what the functions of the interface did not turn into a code."""
        copies = {
            n: self._copy(signature.name, one, n, packet)
            for n, one in enumerate(given)
            if one.copied and packet.a[n]
        }
        values = [
            ct.addressof(copies[n]) if n in copies else self._value(signature.name, one, n, packet, copies)
            for n, one in enumerate(given)
        ]
        handle = values[0] if given[0].is_context else 0
        with self.session.using(handle) as own:
            if given[0].is_context:
                values[0] = own
            special = _SPECIAL.get(signature.name)
            if special is not None:
                result = special(self, packet, values)
            else:
                result = getattr(rk, signature.name)(*values), 0, 0, -1
        for n, copy in copies.items():
            if given[n].returned:
                size = ct.sizeof(copy)
                ct.memmove(self.arena.address(packet.a[n], size), copy, size)
        return result

    def _copy(self, name: str, one: _Given, place: int, packet: Packet) -> Any:
        """Return the bytes that a pointer leads to, as a ctypes object of this process."""
        size = one.size * one.elements(name, packet.a)
        source = self.arena.address(packet.a[place], size)
        return (ct.c_char * size).from_buffer_copy(ct.string_at(source, size))

    def _value(self, name: str, one: _Given, place: int, packet: Packet, copies: dict[int, Any]) -> Any:
        """Return an argument as the functions expect it: number, address, structs, or text as bytes.

        Parameters
        ----------
        copies : the arguments that have been copied, by place.
        """
        raw = packet.a[place]
        if not one.pointer:
            return one.number(raw)
        if not raw:
            return 0
        if one.count == COUNT_TEXT:
            return self.arena.text(raw)
        if one.argument.count in MATRICES:
            return self._matrix(raw, packet, copies, 8 if one.count == COUNT_UNPACKED else 0)
        count = one.elements(name, packet.a)
        if name == "rknn_init" and one.argument.name == "model" and not count:
            return self.arena.text(raw)
        address = self.arena.address(raw, one.size * count)
        if one.is_memory:
            memory = t.rknn_tensor_mem.from_buffer_copy(ct.string_at(address, one.size))
            if (memory.priv_data or 0) not in self.session.memories:
                memory.priv_data = None
            return memory
        if not one.nested:
            return address
        items = (one.kind * count).from_buffer_copy(ct.string_at(address, one.size * count))
        for item in items:
            for pointer in one.nested:
                offset = ct.c_uint64.from_address(
                    ct.addressof(item) + getattr(one.kind, pointer.member).offset
                )
                if offset.value:
                    size = max(getattr(item, pointer.length), 0) * pointer.unit
                    offset.value = self.arena.address(offset.value, size)
        return items if one.argument.count else items[0]

    def _matrix(self, raw: int, packet: Packet, copies: dict[int, Any], least_bits: int) -> int:
        rows, columns = (ct.c_int32(packet.a[n]).value for n in (2, 3))
        info = rknn_matmul_info.from_buffer(copies[4]) if 4 in copies else None
        bits = _BITS.get(int(info.type), 0) if info is not None else 0
        bits = max(bits, least_bits) if bits else 0
        return self.arena.address(raw, max(rows, 0) * max(columns, 0) * bits // 8)

    # -- allocation in the arena --------------------------------------------------------------------

    def take(self, size: int) -> int:
        """Allocate bytes in the arena and return their offset.

        The arena may be replaced by a larger one, so that earlier addresses become invalid.

        Raises
        ------
        MemoryError
            if the arena cannot be enlarged.
        """
        at = aligned(self.used)
        if at + size > self.arena.size:
            self._grow(at + size + _SLACK)
        self.used = at + size
        return at

    def _grow(self, size: int) -> None:
        if self._depth:
            raise MemoryError("the arena cannot be enlarged within a callback")
        self.channel.send(Op.GROW, (size,))
        answer = self.channel.receive()
        try:
            if answer.op != Op.ANSWER:
                raise ProtocolError(f"message {answer.op} where a larger arena was expected")
            if answer.fd < 0:
                raise MemoryError(f"the program cannot allocate an arena of {size} bytes")
            self.arena = Arena(answer.fd)
            if self.arena.size < size:
                raise ProtocolError("the new arena is too small")
        finally:
            answer.close()

    def put(self, data: bytes) -> int:
        """Copy bytes into the arena and return their offset; errors as `take`."""
        at = self.take(len(data))
        ct.memmove(self.arena.address(at, len(data)), data, len(data))
        return at

    # -- functions of the program -----------------------------------------------------------------------

    def callback(self, address: int, node: int, inputs: list[Any], outputs: list[Any]) -> int:
        """Call init, prepare or compute of a custom operator in the waiting thread of the program."""
        before = self.used
        tensors = [*inputs, *outputs]
        size = ct.sizeof(cu.rknn_custom_op_tensor)
        room = sum(aligned(int(one.mem.size)) for one in tensors) + 2 * aligned(size * len(tensors))
        try:
            if aligned(self.used) + room + _SLACK // 2 > self.arena.size:
                self._grow(aligned(self.used) + room + _SLACK)
            places = [self.take(size * len(side)) for side in (inputs, outputs)]
            data = []
            for side, place in zip((inputs, outputs), places, strict=True):
                for n, one in enumerate(side):
                    shown = cu.rknn_custom_op_tensor.from_buffer_copy(one)
                    at = self.put(ct.string_at(one.mem.virt_addr, one.mem.size) if one.mem.size else b"")
                    shown.mem.virt_addr = at
                    ct.memmove(self.arena.address(place + n * size, size), ct.addressof(shown), size)
                    data.append(at)
            a = (address, node, places[0], len(inputs), places[1], len(outputs))
            result = self._ask(a, 0)
            for one, at in zip(outputs, data[len(inputs) :], strict=True):
                ct.memmove(one.mem.virt_addr, self.arena.address(at, one.mem.size), one.mem.size)
            return result
        finally:
            self.used = before

    def callback_end(self, address: int, node: int) -> int:
        """Call destroy of a custom operator in the program, if it has one."""
        return self._ask((address, node), 1)

    def _ask(self, a: tuple[int, ...], number: int) -> int:
        try:
            self.channel.send(Op.CALLBACK, a, number, aligned(self.used))
            self._depth += 1
            try:
                while (answer := self.channel.receive()).op == Op.CALL:
                    self._message(answer)
            finally:
                self._depth -= 1
        except Gone:
            return t.RKNN_ERR_FAIL
        answer.close()
        return ct.c_int32(answer.a[0]).value

    # -- functions that need special treatment ----------------------------------------------------------

    def _new(self, handle: int, address: int, name: str = "") -> Result:
        """Add a context to the session after its creation; its handle is at `address`."""
        if handle != t.RKNN_SUCC:
            return handle, 0, 0, -1
        number = ct.c_uint64.from_address(address).value
        self.session.add(number, name)
        state = runtime.contexts.get(number)
        if not isinstance(state, Context):
            return t.RKNN_SUCC, 0, 0, -1
        return t.RKNN_SUCC, len(state.model.inputs), len(state.model.outputs), -1

    def _init(self, packet: Packet, values: list[Any]) -> Result:
        handle, model, size, flag, extend = values
        name = f"model of {size} bytes"
        if extend:
            extend = t.rknn_init_extend.from_buffer_copy(ct.string_at(extend, ct.sizeof(t.rknn_init_extend)))
            if int(extend.ctx) not in self.session.contexts:
                extend.ctx = 0
        if isinstance(model, bytes):
            path = os.fsdecode(model)
            name = Path(path).name
            if packet.fd < 0:
                log.error(
                    "rknn_init: cannot read '%s'; if there is no such file, %s",
                    path,
                    MISSING.format(path=path),
                )
                return t.RKNN_ERR_FAIL, 0, 0, -1
            try:
                with open(packet.fd, "rb", closefd=False) as file:  # `packet` closes it
                    model = read_opened(file, Path(path))
            except GivenFileError as error:
                log.error("rknn_init: cannot read the model: %s", error)
                return t.RKNN_ERR_FAIL, 0, 0, -1
            except OSError as error:
                log.error("rknn_init: cannot read '%s': %s", path, error.strerror or error)
                return t.RKNN_ERR_FAIL, 0, 0, -1
            if not model:
                log.error("rknn_init: '%s' is empty", path)
                return t.RKNN_ERR_MODEL_INVALID, 0, 0, -1
            size = len(model)
        return self._new(rk.rknn_init(handle, model, size, flag, extend or None), handle, name)

    def _dup(self, packet: Packet, values: list[Any]) -> Result:
        source = ct.c_uint64.from_address(values[0]).value if values[0] else 0
        with self.session.using(source) as own:
            code = rk.rknn_dup_context(t.rknn_context(own), values[1])
        return self._new(code, values[1], self.session.names.get(source, ""))

    def _create(self, packet: Packet, values: list[Any]) -> Result:
        return self._new(getattr(rk, _name(packet))(*values), values[0])

    def _destroy(self, packet: Packet, values: list[Any]) -> Result:
        handle = values[0]
        matmul = _name(packet) == "rknn_matmul_destroy"
        if handle in self.session.contexts and matmul != isinstance(runtime.contexts.get(handle), Context):
            return self.session.destroy(handle), 0, 0, -1
        return getattr(rk, _name(packet))(handle), 0, 0, -1

    def _query(self, packet: Packet, values: list[Any]) -> Result:
        context, cmd, info, size = values
        code = rk.rknn_query(context, cmd, info, size)
        if code != t.RKNN_SUCC or cmd not in (t.RKNN_QUERY_PERF_DETAIL, t.RKNN_QUERY_DEVICE_MEM_INFO):
            return code, 0, 0, -1
        state = runtime.contexts[context]
        if cmd == t.RKNN_QUERY_PERF_DETAIL:
            text = state.perf_text.value if state.perf_text is not None else b""
            return code, self.put(text) if text else 0, len(text), -1
        weights = state.loaded.buffers["weights"]
        fd = getattr(weights, "fd", None)
        return code, getattr(weights, "mapped_size", 0), 0, -1 if fd is None else os.dup(fd)

    def _run(self, packet: Packet, values: list[Any]) -> Result:
        context, extend = values
        if not extend:
            return rk.rknn_run(context, None), 0, 0, -1
        more = t.rknn_run_extend.from_address(extend)
        given, more.fence_fd = int(more.fence_fd), packet.fd
        code = rk.rknn_run(context, more)
        state = runtime.contexts.get(context)
        fence = -1
        if code == t.RKNN_SUCC and state is not None and state.flag & t.RKNN_FLAG_FENCE_OUT_OUTSIDE:
            fence = int(more.fence_fd)
        more.fence_fd = given
        return code, 0, 0, fence

    def _inputs_set(self, packet: Packet, values: list[Any]) -> Result:
        """Set inputs; the answer to the first call on what a context has loaded has a board."""
        handle = values[0]
        code = rk.rknn_inputs_set(*values)
        state = runtime.contexts.get(handle)
        board = self.session.boards.get(handle)
        if code != t.RKNN_SUCC or state is None or (board is not None and board.fits(state)):
            return code, 0, 0, -1
        if board is not None:
            del self.session.boards[handle]
            board.close()
        made = board_of(state) if state.inputs_set >= set(range(len(state.model.inputs))) else None
        if made is None:
            return code, 0, 0, -1
        self.session.boards[handle] = made
        made.leave()
        return code, made.size, 0, os.dup(made.fd)

    def _outputs_get(self, packet: Packet, values: list[Any]) -> Result:
        context, count, items, extend = values
        state = runtime.contexts.get(context)
        if not isinstance(state, Context) or not items:
            return rk.rknn_outputs_get(context, count, items or None, extend or None), 0, 0, -1
        sizes = [_output_bytes(state, item) for item in items]
        offsets = [self._offset(item.buf) for item in items]
        for number, item in enumerate(items):
            if not item.is_prealloc:
                offsets[number] = self.take(sizes[number])
                item.size = sizes[number]
        base = self.arena.base  # it does not move any more
        for offset, item in zip(offsets, items, strict=True):
            item.is_prealloc, item.buf = 1, base + offset if offset else None
        code = rk.rknn_outputs_get(context, count, items, extend or None)
        if code == t.RKNN_SUCC:
            place = ct.sizeof(t.rknn_output)
            for number, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
                shown = t.rknn_output.from_address(base + packet.a[2] + number * place)
                shown.buf, shown.size = offset, size
            board = self.session.boards.get(context)
            pages = board.pages() if board is not None else None
            if pages is not None:
                return code, pages[1], 0, os.dup(pages[0])
        return code, 0, 0, -1

    def _offset(self, address: int | None) -> int:
        return address - self.arena.base if address else 0

    def _memory(self, packet: Packet, values: list[Any]) -> Result:
        name, context, fd = _name(packet), values[0], packet.fd
        copied = 0
        if name == "rknn_create_mem_from_fd":
            values[1:3] = [fd, 0]
        elif name == "rknn_create_mem_from_phys" and not self._owns(values[1], values[3]) and values[2]:
            # Memory of the program, which the library copies to and from device memory allocated here.
            name, copied, values = "rknn_create_mem", 1, [context, values[3]]
        elif name == "rknn_create_mem_from_phys":
            if not self._owns(values[1], values[3]):
                raise Refusal.invalid(f"0x{values[1]:X} is not memory of this program, and virt_addr is null")
            values[2] = 0
        elif name == "rknn_create_mem_from_mb_blk":
            values[1] = 0
        pointer = getattr(rk, name)(*values)
        if not pointer:
            return 0, 0, 0, -1
        struct = pointer.contents
        memory = memory_of(struct)
        if copied:
            struct.flags = int(t.RKNN_TENSOR_MEMORY_FLAGS_FROM_PHYS)
        self.session.memories.add(struct.priv_data)
        place = self.arena.address(packet.a[-1], ct.sizeof(struct))
        ct.memmove(place, ct.addressof(struct), ct.sizeof(struct))
        if memory.host is not None:  # memory of a descriptor that the program itself can map
            return 1, values[3] + values[4], 0, -1
        pages = memory.allocation.buffer
        try:
            return 1, pages.mapped_size, copied, os.dup(pages.fd)
        except OSError as error:
            self.session.memories.discard(memory.struct.priv_data)
            forget(memory)
            raise no_descriptor(memory.struct.priv_data, error) from error

    def _owns(self, address: int, size: int) -> bool:
        """Return whether a range of device memory belongs to this process."""
        found = [runtime.memories[n] for n in self.session.memories if n in runtime.memories]
        return any(m.iova <= address and address + size <= m.iova + m.size for m in found)

    def _destroy_mem(self, packet: Packet, values: list[Any]) -> Result:
        code = rk.rknn_destroy_mem(*values)
        if code == t.RKNN_SUCC:
            self.session.memories.discard(values[1].priv_data)
        return code, 0, 0, -1

    def _register(self, packet: Packet, values: list[Any]) -> Result:
        context, address, count = values
        if not address:
            return rk.rknn_register_custom_ops(context, None, count), 0, 0, -1
        kind = cu.rknn_custom_op * count
        ops = kind.from_buffer_copy(ct.string_at(address, ct.sizeof(kind)))
        for op in ops:
            op.cl_kernel_source = None  # an address in the program; there is no GPU
            forwarded(op)
        state = runtime.contexts.get(context)
        if isinstance(state, Context):
            state.foreground = True
        return rk.rknn_register_custom_ops(context, ops, count), 0, 0, -1

    def _attribute(self, packet: Packet, values: list[Any]) -> Result:
        if values[0]:
            asked = cu.rknn_custom_op_context.from_address(values[0])
            owners = (
                h for h in self.session.contexts if is_node_of(runtime.contexts.get(h), asked.internal_ctx)
            )
            if next(owners, None) is None:  # a node of another program
                asked.internal_ctx = 0
        rk.rknn_custom_op_get_op_attr(*values)
        if not values[2]:
            return 0, 0, 0, -1
        attr = cu.rknn_custom_op_attr.from_address(values[2])
        size = attr.n_elems * np.dtype(DTYPES[attr.dtype]).itemsize if attr.data else 0
        data = ct.string_at(attr.data, size) if size else b""
        attr.data = None
        return 0, self.put(data) if data else 0, len(data), -1


def _failure(signature: Signature, error: Exception) -> int:
    """Report an error that a call has not handled; return the value by which its function says so."""
    code = t.RKNN_ERR_MALLOC_FAIL if isinstance(error, MemoryError) else t.RKNN_ERR_FAIL
    if isinstance(error, Refusal):
        code = error.code
    if isinstance(error, Refusal):
        log.error("%s", error)
    elif not runtime.failed(signature.name, error):
        log.error("%s: %s", signature.name, one_line(error))
    return int(signature.failure(code) or 0)


def _name(packet: Packet) -> str:
    return _FUNCTIONS[packet.number][0].name


def _output_bytes(state: Context, item: t.rknn_output) -> int:
    """Return the size in bytes of an output in the requested type; 0 for an output that does not exist."""
    if item.index >= len(state.model.outputs):
        return 0
    info = state.model.outputs[item.index]
    return math.prod(output_shape(state, item.index)) * (4 if item.want_float else shown_dtype(info).itemsize)


_SPECIAL: dict[str, Callable[[Calls, Packet, list[Any]], Result]] = {
    "rknn_init": Calls._init,
    "rknn_dup_context": Calls._dup,
    "rknn_matmul_create": Calls._create,
    "rknn_matmul_create_dynamic_shape": Calls._create,
    "rknn_destroy": Calls._destroy,
    "rknn_matmul_destroy": Calls._destroy,
    "rknn_query": Calls._query,
    "rknn_run": Calls._run,
    "rknn_inputs_set": Calls._inputs_set,
    "rknn_outputs_get": Calls._outputs_get,
    **{name: Calls._memory for name in SIGNATURES if name.startswith("rknn_create_mem")},
    "rknn_destroy_mem": Calls._destroy_mem,
    "rknn_register_custom_ops": Calls._register,
    "rknn_custom_op_get_op_attr": Calls._attribute,
}
