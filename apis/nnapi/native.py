"""Tensors that stay in device memory, in the layout that the NPU reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rkcosim.apis.nnapi.model import Operand, OperandType
from rkcosim.apis.nnapi.segments import View
from rkcosim.apis.nnapi.values import Array
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.runtime import NpuBuffer


@dataclass(frozen=True)
class NativeTensor:
    """A value in device memory: NC1HWC2, or packed pixels, of each sample.

    Members
    -------
    operand : its type and quantisation.
    shape : shape of the array.
    view : how the elements of the array lie in the cubes.
    place : layout of a cube in memory; where it lies there has no meaning.
    buffers : device memory of each sample.
    """

    operand: Operand
    shape: tuple[int, ...]
    view: View
    place: Place
    buffers: tuple[NpuBuffer, ...]

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of an element of the array."""
        return self.operand.type.dtype

    @property
    def nbytes(self) -> int:
        """Bytes in device memory."""
        return self.place.size * len(self.buffers)

    @property
    def cube_dtype(self) -> np.dtype:
        """The type of an element in device memory: int8 or float16."""
        return np.dtype(np.float16 if self.dtype.kind == "f" else np.int8)

    def to_numpy(self) -> Array:
        """Return the array, converted to the layout and the type of the operand."""
        cubes = [self.place.unpack(b.view(0, self.place.size), self.cube_dtype) for b in self.buffers]
        array = self.view.array(np.stack(cubes)).reshape(self.shape)
        if self.operand.type is OperandType.TENSOR_QUANT8_ASYMM:
            return array.view(np.uint8) ^ np.uint8(0x80)
        return array.astype(self.dtype, copy=False)

    def fits(self, view: View, place: Place) -> bool:
        """Whether the bytes are those that a tensor with this view and layout needs."""
        return view == self.view and same_layout(place, self.place)

    def free(self) -> None:
        """Free the device memory."""
        for buffer in self.buffers:
            buffer.free()


def same_layout(first: Place, second: Place) -> bool:
    """Whether two tensors have the same bytes for the same elements."""
    return _layout(first) == _layout(second)


def _layout(place: Place) -> Sequence[object]:
    members = (place.cube, place.surface_count, place.argb, place.pitch, place.unsigned_pixels)
    return (*members, place.itemsize, place.plain)
