"""Boards: memory through which a program sets inputs and reads outputs of a context without a message.

A message to the server and back takes longer than the conversion of a small tensor.  The first
rknn_inputs_set of a context therefore returns a board (a memory file), and the first rknn_outputs_get the
pages of the outputs.  After that `librknnrt.so` converts quantised tensors itself (native/rk_board.c): it
writes the native bytes of an input to the board and sets `given`, and the server takes them over before its
next call on the context.  It reads outputs from the pages while `sequence` is even and unchanged, which is so
while no call on the context runs.  Whatever a board does not permit is sent as a message.
"""

from __future__ import annotations

import ctypes as ct
import fcntl
import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import LoadedModel
from rkcosim.rknn_api.native import native_input
from rkcosim.rknn_api.server.protocol import aligned
from rkcosim.rknn_api.state import Context

MOST_BYTES = 1 << 24
"""Largest tensor of a board in native bytes."""


class BoardTensor(ct.Structure):
    """A tensor of a board, `struct rk_board_tensor` of native/rknnrt.h.

    An element (channel, row, column) is the byte at
    `at + channel / step * surface + channel % step + row * line + column * pixel`.

    Members
    -------
    usable : whether the program may use the tensor.
    given : set by the program for an input that it has written, cleared by the server.
    channels, height, width : sizes of the tensor.
    step : channels that are stored next to each other.
    scale, zero : quantisation of the codes.
    low, high : smallest and largest code.
    flip : a stored byte is a code XOR this number.
    at : offset of the first byte: of an input in the board, of an output in the pages of the activations.
    size : number of stored bytes.
    pixel, line, surface : distances in bytes.
    """

    _fields_ = (
        *((name, ct.c_uint32) for name in ("usable", "given", "channels", "height", "width", "step")),
        *((name, ct.c_float) for name in ("scale", "zero")),
        *((name, ct.c_int32) for name in ("low", "high")),
        *((name, ct.c_uint32) for name in ("flip", "reserved")),
        *((name, ct.c_uint64) for name in ("at", "size", "pixel", "line", "surface")),
    )
    usable: int
    given: int
    at: int
    size: int


class BoardHead(ct.Structure):
    """Begin of a board, `struct rk_board`; the tensors of the inputs and then of the outputs follow.

    Members
    -------
    sequence : odd while a call on the context runs.
    inputs, outputs : numbers of tensors.
    """

    _fields_ = tuple((name, ct.c_uint32) for name in ("sequence", "inputs", "outputs", "reserved"))
    sequence: int


@dataclass(frozen=True)
class Strides:
    """Layout of a stored cube; see `BoardTensor`."""

    step: int
    pixel: int
    line: int
    surface: int
    flip: int


def strides_of(place: Any) -> Strides | None:
    """Return the layout of a tensor of single bytes in memory; None if it is not of the form of a board.

    The offset of every element is found by unpacking memory that contains its own addresses.
    """
    channels, height, width = (int(n) for n in place.cube)
    if place.itemsize != 1 or not 0 < place.size <= MOST_BYTES:
        return None
    flip = int(place.unpack(np.zeros(place.size, np.uint8), np.dtype(np.int8)).view(np.uint8).flat[0])
    addresses = np.arange(place.size, dtype=np.uint32)
    offsets: npt.NDArray[np.int64] = np.zeros(place.cube, np.int64)
    for shift in (0, 8, 16):
        codes = place.unpack((addresses >> shift & 255).astype(np.uint8), np.dtype(np.int8))
        offsets += (np.ascontiguousarray(codes).view(np.uint8).astype(np.int64) ^ flip) << shift
    return _checked(offsets, flip, channels, height, width)


def _checked(
    offsets: npt.NDArray[np.int64], flip: int, channels: int, height: int, width: int
) -> Strides | None:
    rows = offsets[:, 0, 0]
    breaks = np.flatnonzero(np.diff(rows) != 1)
    step = int(breaks[0]) + 1 if breaks.size else channels
    surface = int(rows[step] - rows[0]) if step < channels else 0
    line = int(offsets[0, 1, 0] - offsets[0, 0, 0]) if height > 1 else 0
    pixel = int(offsets[0, 0, 1] - offsets[0, 0, 0]) if width > 1 else 0
    channel = np.arange(channels)
    starts = channel // step * surface + channel % step
    expected = starts[:, None, None] + (np.arange(height) * line)[:, None] + np.arange(width) * pixel
    if min(pixel, line, surface) < 0 or not np.array_equal(offsets, expected):
        return None
    return Strides(step, pixel, line, surface, flip)


class Board:
    """Board of a context.

    Parameters
    ----------
    state : the context, whose inputs have been set once.

    Members
    -------
    fd : descriptor of the memory file; the owner of the board closes it with `close`.
    size : bytes of the file.

    Raises
    ------
    OSError
        if the memory file cannot be created.
    """

    def __init__(self, state: Context) -> None:
        model = state.model
        self._state, self._loaded = state, state.loaded
        self._count = len(model.inputs), len(model.outputs)
        self._names = [native_input(model, n).tensor for n in range(self._count[0])]
        self._pages: Any = None
        """Buffer of the activations whose pages the program has."""
        tensors = [self._input(n) for n in range(self._count[0])]
        tensors += [self._output(n) for n in range(self._count[1])]
        end = aligned(ct.sizeof(BoardHead) + ct.sizeof(BoardTensor) * len(tensors))
        for tensor in tensors[: self._count[0]]:
            tensor.at, end = end, aligned(end + tensor.size)
        self.size = end
        self.fd = os.memfd_create("rknn board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, end)
            fcntl.fcntl(
                self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            )
            self._memory = mmap.mmap(self.fd, end)
        except OSError:
            os.close(self.fd)
            raise
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._head = BoardHead.from_buffer(self._memory)
        self._head.inputs, self._head.outputs = self._count
        self._tensors = (BoardTensor * len(tensors)).from_buffer(self._memory, ct.sizeof(BoardHead))
        for number, tensor in enumerate(tensors):
            ct.memmove(ct.addressof(self._tensors[number]), ct.addressof(tensor), ct.sizeof(tensor))
        self._usable = [bool(tensor.usable) for tensor in tensors]
        self._sizes = [int(tensor.size) for tensor in tensors]
        self._at = [int(tensor.at) for tensor in tensors]
        for number in range(self._count[0]):
            held = state.held.get(number)
            if self._usable[number] and held is not None and held.size == self._sizes[number]:
                self._stored(number)[:] = held
            else:
                self._usable[number] = False

    def _stored(self, number: int) -> npt.NDArray[np.uint8]:
        return self._bytes[self._at[number] : self._at[number] + self._sizes[number]]

    def _input(self, index: int) -> BoardTensor:
        info, name = self._state.model.inputs[index], self._names[index]
        assert name is not None
        if info.preprocessing is not None and not info.preprocessing.neutral:
            return BoardTensor()
        return self._tensor(info, name, self._loaded.memory(name).size, pixels=True)

    def _output(self, index: int) -> BoardTensor:
        item, info = self._state.model.graph.outputs[index], self._state.model.outputs[index]
        if item.real or self._state.model.graph.tensors[item.value].host:
            return BoardTensor()
        place = self._state.model.plan.place(item.value)
        made = self._tensor(info, item.value, place.size, pixels=False)
        made.usable = made.usable and place.ref.region == "activations"
        made.at = place.ref.offset
        return made

    def _tensor(self, info: Any, name: str, size: int, pixels: bool) -> BoardTensor:
        """Describe a tensor; it is not usable unless it is a quantised cube in the order of its shape."""
        model = self._state.model
        tensor = model.graph.tensors[name]
        if tensor.host:  # the array of a tensor that only the host reads or makes has no place on the device
            return BoardTensor()
        place = model.plan.place(name)
        cube = tuple(int(n) for n in place.cube)
        if tensor.real or tuple(info.shape) != (1, *cube) or tuple(tensor.shape) != (1, *cube):
            return BoardTensor()
        strides = strides_of(place)
        if strides is None or place.size > size:
            return BoardTensor()
        signed = np.dtype(info.dtype) == np.int8
        flip = strides.flip ^ (0 if signed else 0x80)
        low, high = (-128, 127) if signed else (0, 255)
        quantised = info.scale, info.zero_point, low, high, flip, 0, 0, size
        return BoardTensor(
            1, 0, *cube, strides.step, *quantised, strides.pixel, strides.line, strides.surface
        )

    def enter(self) -> None:
        """Begin a call on the context: take over the inputs that the program has written."""
        self._head.sequence |= 1
        for index in range(self._count[0]):
            if self._tensors[index].given:
                self._tensors[index].given = 0
                if self._usable[index]:
                    self._state.held[index] = self._stored(index).copy()
                    self._state.io.pop((True, index), None)
                    self._state.inputs_set.add(index)

    def leave(self) -> None:
        """End a call on the context: say which tensors the program may use until the next one."""
        state, frame = self._state, self._state.frame
        same = state.loaded is self._loaded
        quiet = same and (frame is None or frame.thread is None or not frame.thread.is_alive())
        valid = quiet and frame is not None and frame.failure is None and state.previous is None
        valid &= self._pages is not None and self._loaded.buffers.get("activations") is self._pages
        for index, usable in enumerate(self._usable):
            self._tensors[index].usable = usable and (quiet if index < self._count[0] else valid)
        self._head.sequence = (self._head.sequence | 1) + 1 & 0xFFFFFFFF

    def pages(self) -> tuple[int, int] | None:
        """Return descriptor and size of the pages of the activations, if the program does not have them."""
        buffer = self._loaded.buffers.get("activations")
        fd = getattr(buffer, "fd", None)
        if fd is None or buffer is self._pages or self._state.loaded is not self._loaded:
            return None
        self._pages = buffer
        return fd, buffer.mapped_size

    def fits(self, state: Context) -> bool:
        """Return whether the board still belongs to what the context has loaded."""
        return state.loaded is self._loaded

    def close(self) -> None:
        """Make the board unusable for the program and close its descriptor."""
        self._head.sequence |= 1
        for tensor in self._tensors:
            tensor.usable = 0
        os.close(self.fd)


def board_of(state: Any) -> Board | None:
    """Return a new board for a context; None if its model is of a kind whose tensors need the server."""
    if not isinstance(state, Context) or type(state.loaded) is not LoadedModel or state.variants is not None:
        return None
    try:
        return Board(state)
    except OSError:
        return None
