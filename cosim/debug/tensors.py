"""Tensors in a device's memory: where each element is, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.base import Error
from rkcosim.golden.task.registers import View
from rkcosim.golden.task.shapes import DpuCube, PoolShape
from rkcosim.regcmd.lint.rule import Check
from rkcosim.regcmd.lint.traffic import accesses
from rkcosim.regcmd.machine import Start
from rkcosim.regcmd.program import Program
from rkcosim.spec.types import ATOM

TYPES = {"INT8": "i1", "INT16": "<i2", "INT32": "<i4", "FP16": "<f2", "FP32": "<f4"}
"""Element types of numpy by the names of OUT_PRECISION; other types have no values here."""


class TensorError(Error, ValueError):
    """A tensor does not exist, or an array does not fit it."""


@dataclass(frozen=True)
class TensorPlace:
    """A tensor: its elements by channel, row and column, and the address of each.

    Members
    -------
    name : its name; for the output of a task of a stream `out3`, with the number of the task.
    dtype : type of an element, little endian.
    addresses : int64 [channels, rows, columns], address of the first byte of each element.
    job, task : the task after which it is complete; None for an input.
    makers : (job, task) of all tasks that write it, if they are known; before them its memory may belong to
        other tensors.
    shape : its shape in the model's file; None for the output of a task.
    scale, zero_point : its quantisation; 1 and 0 for none.
    flipped : value by which the stored bytes differ from the elements (0x80 for unsigned pixels).
    """

    name: str
    dtype: np.dtype[Any]
    addresses: NDArray[np.int64]
    job: int | None = None
    task: int | None = None
    shape: tuple[int, ...] | None = None
    scale: float = 1.0
    zero_point: int = 0
    flipped: int = 0
    makers: frozenset[tuple[int, int]] = frozenset()
    span: tuple[int, int] = field(init=False)
    """First byte, and the byte after the last."""

    def __post_init__(self) -> None:
        first, last = int(self.addresses.min()), int(self.addresses.max())
        object.__setattr__(self, "span", (first, last + self.dtype.itemsize))

    @property
    def cube(self) -> tuple[int, int, int]:
        """Channels, rows, columns."""
        channels, rows, columns = self.addresses.shape
        return channels, rows, columns

    def read(self, memory: Any) -> NDArray[Any]:
        """Return the elements (channels, rows, columns) as they are in a memory.

        Raises
        ------
        MemoryFault, MemoryAccessError
            if the memory is not mapped.
        """
        first, end = self.span
        places = self.addresses[..., None] - first + np.arange(self.dtype.itemsize)
        raw = np.ascontiguousarray(memory.view(first, end - first)[places] ^ np.uint8(self.flipped))
        return raw.view(self.dtype)[..., 0]

    def inside(self, ranges: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
        """Return which elements begin in one of (first byte, number of bytes), bool of the cube's shape."""
        first, end = self.span
        held = np.zeros(end - first, bool)
        for start, size in ranges:
            low, high = max(start, first), min(start + size, end)
            if low < high:
                held[low - first : high - first] = True
        inside: NDArray[np.bool_] = held[self.addresses - first]
        return inside

    def index_of(self, address: int) -> tuple[int, int, int] | None:
        """Return channel, row and column of the element that has a byte; None if there is none."""
        found = np.argwhere((self.addresses <= address) & (address < self.addresses + self.dtype.itemsize))
        return (int(found[0][0]), int(found[0][1]), int(found[0][2])) if len(found) else None

    def fitted(self, given: NDArray[Any]) -> NDArray[Any]:
        """Return an array of others as elements of the cube.

        It may have the cube's shape (channels, rows, columns), the shape in the model's file, (1, channels,
        rows, columns), (rows, columns, channels) with 1 in front or not, or be the bytes of the memory from
        the first element on (uint8 of one dimension). Numbers of floating point for a quantised tensor are
        quantised, and unsigned bytes for one of signed codes lose 128.

        Raises
        ------
        TensorError
            if it fits in none of these ways; the message has all shapes.
        """
        if given.dtype == np.uint8 and given.ndim == 1 and given.size == self.span[1] - self.span[0]:
            if given.size != self.addresses.size or self.cube[1:] != (1, 1):
                image = MemoryImage(self.span[0], given)
                return self.read(image)
        values, cube = given, self.cube
        while values.ndim > 3 and values.shape[0] == 1:
            values = values[0]
        turned = (cube[1], cube[2], cube[0])
        if values.shape == cube:
            pass
        elif values.shape == turned:
            values = values.transpose(2, 0, 1)
        elif self.shape is not None and given.shape == self.shape and given.size == self.addresses.size:
            values = given.reshape(cube)
        elif values.size == self.addresses.size and values.ndim < 3 and 1 in cube:
            values = values.reshape(cube)
        else:
            own = "" if self.shape is None else f", {self.shape} in the model"
            raise TensorError(
                f"{self.name}: an array of shape {given.shape} does not fit: the tensor is {cube} (channels, "
                f"rows, columns){own}, or {self.span[1] - self.span[0]} bytes"
            )
        return self._converted(values)

    def _converted(self, values: NDArray[Any]) -> NDArray[Any]:
        kind = self.dtype.kind
        if values.dtype.kind not in "iufb":
            raise TensorError(f"{self.name}: elements of type {values.dtype} are not numbers")
        if kind == "i" and values.dtype.kind == "f" and self.scale != 1.0:
            info = np.iinfo(self.dtype)
            codes = np.round(values.astype(np.float64) / self.scale) + self.zero_point
            return np.clip(codes, info.min, info.max).astype(self.dtype)
        if values.dtype == np.uint8 and self.dtype == np.int8:
            return (values.astype(np.int16) - 128).astype(np.int8)
        if kind == "i":
            info = np.iinfo(self.dtype)
            if values.size and (values.min() < info.min or values.max() > info.max):
                raise TensorError(f"{self.name}: values {values.min()}..{values.max()} exceed {self.dtype}")
        return values.astype(self.dtype)


class MemoryImage:
    """Bytes from an address on, as a memory."""

    def __init__(self, first: int, data: NDArray[np.uint8]) -> None:
        self.first, self.data = first, data

    def view(self, address: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes themselves, uint8 of shape (size,)."""
        return self.data[address - self.first :][:size]


def output_of(program: Program, start: Start, name: str, job: int, task: int) -> TensorPlace | None:
    """Return the output of a start as a tensor; None if its elements have no plain layout.

    Parameters
    ----------
    program, start : the registers in effect.
    name, job, task : members of the result.
    """
    check = Check(program, start)
    for access in accesses(check):
        if not access.write or access.register != "DST_BASE_ADDR":
            continue
        base = access.pieces[0][0]
        if access.block == "DPU" and check.dpu is not None:
            return _of_dpu(check.dpu, base, name, job, task)
        if check.pool is not None:
            return _of_pool(check.pool, base, name, job, task)
    return None


def _type_of(view: View, register: str, field_name: str) -> np.dtype[Any] | None:
    codes = view.fields(register)[field_name].enum or {}
    names = {code: known for known, code in codes.items()}
    found = TYPES.get(names.get(view(register, field_name), ""))
    return None if found is None else np.dtype(found)


def _of_dpu(dpu: DpuCube, base: int, name: str, job: int, task: int) -> TensorPlace | None:
    dtype = _type_of(dpu.view, "DATA_FORMAT", "OUT_PRECISION")
    if dtype is None or dpu.packets or dpu.reduces:
        return None
    channels = dpu.view("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") + 1
    written = np.array(dpu.written_surfaces, np.int64)
    channels = min(channels, written.size * dpu.per_atom)
    return _cube(
        base, written, (channels, dpu.height, dpu.width), dpu.line, dpu.per_atom, dtype, name, job, task
    )


def _of_pool(pool: PoolShape, base: int, name: str, job: int, task: int) -> TensorPlace | None:
    dtype = _type_of(pool.view, "DATA_FORMAT", "PROC_PRECISION")
    if dtype is None:
        return None
    pitch = pool.view.signed("DST_SURF_STRIDE")
    written = pitch * np.arange(pool.surfaces, dtype=np.int64)
    line = pool.out_width + pool.view("OPERATION_MODE_CFG", "NOTCH_ADDR")
    cube = (pool.channels, pool.out_height, pool.out_width)
    return _cube(base, written, cube, line, ATOM // dtype.itemsize, dtype, name, job, task)


def _cube(
    base: int,
    surfaces: NDArray[np.int64],
    cube: tuple[int, int, int],
    line: int,
    per_atom: int,
    dtype: np.dtype[Any],
    name: str,
    job: int,
    task: int,
) -> TensorPlace | None:
    """Return a cube of surfaces of rows of atoms, whose distances are given in atoms."""
    channel = np.arange(cube[0])[:, None, None]
    row, column = np.arange(cube[1])[None, :, None], np.arange(cube[2])[None, None, :]
    atom = surfaces[channel // per_atom] + row * line + column
    addresses = base + ATOM * atom + channel % per_atom * dtype.itemsize
    if not addresses.size:
        return None
    return TensorPlace(name, dtype, addresses, job, task, makers=frozenset({(job, task)}))
