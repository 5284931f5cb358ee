"""Memory layout of a `.rknn` file: the weights region, the internal buffer, and each activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Tensor, from_cube, host_tensor, to_cube
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.programs.task import Ref
from rkcosim.rknn_file import schema
from rkcosim.rknn_file.container import MOST_INTERNAL, FileTensor, RknnFile
from rkcosim.rknn_file.schema import Kind, Layout
from rkcosim.rknn_file.tables import RknnFileError
from rkcosim.spec.layouts import ATOM_BYTES

ALIGN = schema.WEIGHT_ALIGN
TABLE_BYTES = 64
"""Bytes reserved for a table of an activation: its task reads and writes one atom at the table's address."""


@dataclass(frozen=True)
class FilePlace(Place):
    """Place and layout of an activation in memory.

    Members
    -------
    tensor : the graph's tensor.
    stored : bytes that the file reserves for it.
    batch : number of consecutive cubes.
    surface_atoms : distance between surfaces in atoms.
    row_major : whether the elements are stored in the order of the model's shape.
    """

    tensor: Tensor | None = None
    stored: int = 0
    batch: int = 1
    surface_atoms: int = 0
    row_major: bool = False

    @property
    def plain(self) -> bool:
        """Whether the elements are stored in the order of the model's shape."""
        return self.row_major

    @property
    def size(self) -> int:
        """Number of bytes that the activation occupies."""
        return max(self.stored, self.needed)

    @property
    def needed(self) -> int:
        """Number of bytes of the elements with the gaps between them."""
        channels, height, width = self.cube
        if self.plain:
            return channels * height * width * self.itemsize
        if self.argb:
            return height * self.pitch * self.argb * self.itemsize
        return self.batch * self.surface_count * self.surface_atoms * ATOM_BYTES

    def pack(self, cube: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """Return the bytes of a cube (C, H, W) in this layout, uint8; gaps are zero."""
        if self.plain:
            return np.ascontiguousarray(self._values(cube)).reshape(-1).view(np.uint8)
        if self.argb:
            pixels = (cube.astype(np.int16) + 128).astype(np.uint8) if self.unsigned_pixels else cube
            rows = np.zeros((self.cube[1], self.pitch, self.argb), pixels.dtype)
            rows[:, : self.cube[2], : cube.shape[0]] = pixels.transpose(1, 2, 0)
            return rows.reshape(-1).view(np.uint8)
        values = self._values(cube)
        n, channels, height, width = values.shape
        full = np.zeros((n, self.surface_count * self.c2, height, width), cube.dtype)
        full[:, :channels] = values
        memory = np.zeros((n, self.surface_count, self.surface_atoms, self.c2), cube.dtype)
        atoms = full.reshape(n, self.surface_count, self.c2, height * width).transpose(0, 1, 3, 2)
        memory[:, :, : height * width] = atoms
        return memory.reshape(-1).view(np.uint8)

    def unpack(self, memory: npt.NDArray[np.uint8], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the cube (C, H, W) of type `dtype` that the bytes of the place hold."""
        data = np.ascontiguousarray(memory[: self.needed])
        if self.argb:
            kind = np.dtype(np.uint8) if self.unsigned_pixels else dtype
            pixels = data.view(kind).reshape(self.cube[1], self.pitch, self.argb)[:, : self.cube[2]]
            codes = pixels.transpose(2, 0, 1)[: self.cube[0]]
            return (codes.astype(np.int16) - 128).astype(np.int8) if self.unsigned_pixels else codes.copy()
        values = data.view(dtype)
        assert self.tensor is not None
        if not self.plain:
            channels, height, width = self._cube()
            atoms = values.reshape(self.batch, self.surface_count, self.surface_atoms, self.c2)
            atoms = atoms[:, :, : height * width].transpose(0, 1, 3, 2)
            values = atoms.reshape(self.batch, self.surface_count * self.c2, height, width)[:, :channels]
            if self.batch == 1:
                return np.ascontiguousarray(values).reshape(self.cube)
        return to_cube(np.ascontiguousarray(values).reshape(self.tensor.shape), self.tensor)

    def _cube(self) -> tuple[int, int, int]:
        """Return channels, rows and columns of one of the cubes."""
        assert self.tensor is not None
        if self.batch == 1:
            return self.cube
        _, channels, height, width = self.tensor.shape
        return channels, height, width

    def _values(self, cube: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a cube in the tensor's shape, or as (1, C, H, W) if it is stored as one cube."""
        assert self.tensor is not None
        return cube[None] if self.batch == 1 and not self.plain else from_cube(cube, self.tensor)

    def offset_of(self, channel: int, row: int, column: int) -> int:
        """Return the offset of an element's first byte from the first byte of the place."""
        if self.argb:
            return ((row * self.pitch + column) * self.argb + channel) * self.itemsize
        mark = np.zeros(self.cube, np.dtype(np.uint8 if self.itemsize == 1 else np.uint16))
        mark[channel, row, column] = 1
        return int(np.flatnonzero(self.pack(mark))[0])


def graph_tensor(tensor: FileTensor, name: str) -> Tensor:
    """Convert an activation to the compiler's form.

    Tensors of other types than int8, uint8 and float16 are kept by the host.

    Parameters
    ----------
    tensor
        The tensor of the file.
    name
        Its name in the graph.

    Raises
    ------
    RknnFileError
        if the element type is unknown.
    """
    kind = tensor.dtype
    if kind is None:
        raise RknnFileError(f"tensor '{tensor.name}' has elements of an unknown type")
    if kind not in (np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.float16)):
        return host_tensor(name, tensor.shape, kind)
    shape = tensor.shape
    if len(shape) == 4 and shape[0] == 1:
        cube = (shape[1], shape[2], shape[3])
    elif len(shape) != 4 and tensor.layout == Layout.NATIVE:
        height, width = tensor.native[2:4]
        cube = (tensor.elements // (height * width), height, width)
    else:
        cube = (1, tensor.elements // shape[-1], shape[-1])
    unsigned = kind == np.uint8
    zero = 0 if kind.kind == "f" else tensor.zero_point - (128 if unsigned else 0)
    scale = 1.0 if kind.kind == "f" else tensor.scale
    return Tensor(name, shape, scale, zero, cube, unsigned=unsigned, real=kind.kind == "f")


def place_of(file: RknnFile, tensor: FileTensor, shown: Tensor, ref: Ref) -> FilePlace:
    """Return place and layout of an activation.

    Parameters
    ----------
    file
        The file of the tensor.
    tensor
        The activation.
    shown
        Its form in the graph.
    ref
        Its first byte.

    Raises
    ------
    RknnFileError
        if the layout is unknown, or the tensor has fewer bytes than its elements need.
    """
    common = partial(FilePlace, ref, shown.cube, tensor=shown, stored=tensor.size, itemsize=shown.itemsize)
    item = shown.itemsize
    if tensor.row_major:
        place = common(surface_count=0, row_major=True)
    elif tensor.layout != Layout.NATIVE:
        raise RknnFileError(f"tensor '{tensor.name}' has the unknown layout {tensor.layout}")
    else:
        batch, c1, height, width, c2 = tensor.native
        if tensor.kind == Kind.INPUT and c1 == 1 and c2 * item < ATOM_BYTES:
            place = common(
                surface_count=1,
                argb=c2,
                pitch=file.pitches.get(tensor.index, width),
                unsigned_pixels=shown.unsigned,
            )
        elif c2 * item != ATOM_BYTES:
            raise RknnFileError(
                f"tensor '{tensor.name}' is stored as {list(tensor.native)}: not in whole atoms"
            )
        else:
            padded = not file.ours and tensor.kind != Kind.INPUT and height * width > 1
            step = schema.SURFACE_ATOMS if padded else 1
            atoms = -(-height * width // step) * step
            place = common(surface_count=c1, batch=batch, surface_atoms=atoms)
    if place.needed > max(tensor.size, 0) + ALIGN:
        raise RknnFileError(f"tensor '{tensor.name}' needs {place.needed} bytes and has {tensor.size}")
    return place


MOST_ABSENT, PACKED = 1 << 26, 16
"""Bytes of constants that a file need not have, and how many times as large as the file the others are: the
shortest code of compressed weights has 3 bits for 4 weights."""


def place_constants(file: RknnFile) -> tuple[bytearray, dict[int, Ref]]:
    """Lay out the weights region.

    The constants are placed in the order of the file, each rounded up to 64 bytes, as in the vendor's
    runtime. The constants of Resize nodes follow, which the file's size of the weights does not include, and
    the tables of activations; the commands that they hold are left out, since the command
    lists contain them as well.

    Returns
    -------
    The bytes of the region, and the place of each constant and table by its index.

    Raises
    ------
    RknnFileError
        if the constants are too large, or much larger than the file.
    """
    image, refs = bytearray(), dict[int, Ref]()
    stored = [t for t in file.tensors if t.kind in (Kind.CONSTANT, Kind.HOST_CONSTANT)]
    for tensor in (*stored, *(t for t in file.tensors if t.kind == Kind.RESIZE_CONSTANT)):
        if tensor.data or tensor.kind != Kind.RESIZE_CONSTANT:
            refs[tensor.index] = Ref("weights", len(image))
            size = max(tensor.size, len(tensor.data))
            if len(image) + size > MOST_INTERNAL:
                raise RknnFileError(f"damaged .rknn file: more than {MOST_INTERNAL} bytes of constants")
            if len(image) + size > MOST_ABSENT + PACKED * file.size:
                raise RknnFileError(
                    f"damaged .rknn file: '{tensor.name}' has {size} bytes, of which the file of {file.size} "
                    f"has {len(tensor.data)}"
                )
            image += tensor.data.ljust(-(-size // ALIGN) * ALIGN, b"\0")
    for tensor in file.tensors:
        if tensor.kind == Kind.TABLE:
            refs[tensor.index] = Ref("weights", len(image))
            image += bytes(TABLE_BYTES)
    return image, refs


def place_activations(
    file: RknnFile, together: Mapping[int, int], reuse: bool, rooms: Mapping[int, int] | None = None
) -> tuple[int, dict[int, Ref], int]:
    """Lay out the activations region.

    Parameters
    ----------
    file
        The file.
    together
        Maps each tensor that is a view of another tensor's bytes to that tensor.
    reuse
        Share memory between tensors as the file does; otherwise each tensor has separate memory.
    rooms
        Bytes that tensors take at least in separate memory, where tasks write past what the file states.

    Returns
    -------
    The size of the region in bytes, the place of each activation by its index, and the size without sharing.

    Raises
    ------
    RknnFileError
        if the activations are too large without sharing, or a view is not within its tensor.
    """
    apart, end = dict[int, int](), 0
    for tensor in file.tensors:
        if tensor.activation and tensor.index not in together:
            apart[tensor.index] = end
            size = max(tensor.size, (rooms or {}).get(tensor.index, 0), ALIGN)
            end += -(-size // ALIGN) * ALIGN
    if not reuse and end > MOST_INTERNAL:
        raise RknnFileError(f"its activations take {end} bytes if each has separate memory")
    refs = {}
    for tensor in file.tensors:
        if not tensor.activation:
            continue
        root = together.get(tensor.index, tensor.index)
        if reuse:
            offset = tensor.offset
        else:
            offset = apart[root] + tensor.offset - file.tensors[root].offset
            if not 0 <= offset <= end:
                raise RknnFileError(f"tensor '{tensor.name}' is not a view of '{file.tensors[root].name}'")
        refs[tensor.index] = Ref("activations", offset)
    return (file.internal_bytes if reuse else end) + ALIGN, refs, end
