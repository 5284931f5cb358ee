"""Constants of TFLite files: plain, packed (int4, int2) and sparse buffers as arrays.

A sparse tensor is stored as a tree with one level for each dimension, in the order of `traversal_order`:
first the tensor's dimensions, then those of its blocks.  A dense level has all its positions; a compressed
one lists the positions that exist (segments and indices, as in the CSR format).  The buffer has the values
of the last level (schema.fbs of TensorFlow Lite, table SparsityParameters).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import ModelError

MAX_RANK = 8
"""Largest number of dimensions of a tensor."""

PACKED = {"int4": (4, True), "uint4": (4, False), "int2": (2, True)}
"""Types with several elements in a byte: bits of one, and whether it is signed."""
_UNREAD = ("string", "resource", "variant")
"""Types whose buffers are not arrays of numbers."""


def numbers(values: Any) -> npt.NDArray[Any]:
    """Return a vector that may be absent; flatbuffers gives 0 for an absent one."""
    return np.asarray(values).reshape(-1) if isinstance(values, np.ndarray) else np.zeros(0, np.int64)


def constant_data(
    model: Any, file: bytes, tensor: Any, name: str, shape: tuple[int, ...], dtype: str
) -> npt.NDArray[Any] | None:
    """Return the values of a constant tensor.

    Parameters
    ----------
    model
        The file's root table (`tflite.Model`).
    file
        The bytes of the file, which has large buffers behind the flatbuffer.
    tensor
        The tensor's table (`tflite.Tensor`).
    name, shape, dtype
        Name for messages, shape and type of the tensor.

    Returns
    -------
    An array of `shape`, int8 for int4 and int2, uint8 for uint4; None for a tensor without data, and text.

    Raises
    ------
    ModelError
        If the buffer does not exist or has not the size of the shape; the message names the tensor.
    """
    if not 0 <= tensor.Buffer() < model.BuffersLength():
        raise ModelError(f"tensor '{name}': buffer {tensor.Buffer()} of {model.BuffersLength()}")
    buffer = model.Buffers(tensor.Buffer())
    if buffer.DataLength():
        raw = numbers(buffer.DataAsNumpy()).astype(np.uint8, copy=False)
    elif buffer.Offset() > 1:  # 1 marks a buffer whose place is not known yet
        start, size = buffer.Offset(), buffer.Size()
        if start + size > len(file):
            raise ModelError(f"tensor '{name}': {size} bytes at {start} of a file of {len(file)} bytes")
        raw = np.frombuffer(file, np.uint8, size, start)
    else:
        return None
    if dtype in _UNREAD:
        return None
    if dtype.startswith(("type", "bfloat", "float8")):
        raise ModelError(f"tensor '{name}': {dtype} is not supported")
    sparsity = tensor.Sparsity()
    if sparsity is not None:
        return _dense(sparsity, raw, name, shape, dtype)
    values = _values(raw, dtype, math.prod(shape))
    if values is None:
        raise ModelError(f"tensor '{name}': {raw.size} bytes of data for {dtype} {shape}")
    return values.reshape(shape)


def _values(raw: npt.NDArray[np.uint8], dtype: str, count: int) -> npt.NDArray[Any] | None:
    """Return `count` elements of a buffer, or None if it has another number of them."""
    if dtype in PACKED:  # the first element of a byte in its lowest bits
        bits, signed = PACKED[dtype]
        if raw.size != -(-count * bits // 8):
            return None
        codes = np.stack([raw >> place & (2**bits - 1) for place in range(0, 8, bits)], axis=-1)
        codes = codes.reshape(-1)[:count]
        most = 2 ** (bits - 1)
        return (
            np.where(codes >= most, codes.astype(np.int8) - 2 * most, codes).astype(np.int8)
            if signed
            else codes
        )
    kind = np.dtype(dtype).newbyteorder("<")
    return np.frombuffer(raw.tobytes(), kind) if raw.size == count * kind.itemsize else None


def _dense(
    sparsity: Any, raw: npt.NDArray[np.uint8], name: str, shape: tuple[int, ...], dtype: str
) -> npt.NDArray[Any]:
    """Return a sparse tensor as a dense array."""
    order = [int(n) for n in numbers(sparsity.TraversalOrderAsNumpy())]
    blocked = [int(n) for n in numbers(sparsity.BlockMapAsNumpy())]
    levels = len(shape) + len(blocked)
    wrong = ModelError(f"tensor '{name}': its sparsity parameters do not fit the shape {shape}")
    known = sorted(order) == list(range(levels)) and sparsity.DimMetadataLength() == levels
    if not known or len(set(blocked)) != len(blocked) or not all(0 <= n < len(shape) for n in blocked):
        raise wrong
    sizes = _level_sizes(sparsity, order, blocked, shape)
    if sizes is None:
        raise wrong
    vectors = {
        level: (_index_vector(item, "ArraySegments"), _index_vector(item, "ArrayIndices"))
        for level in range(levels)
        if (item := sparsity.DimMetadata(level)).Format() != 0
    }
    # A level has at most as many paths as the buffer has values or the next compressed level has segments.
    most = max(raw.size * 2, *(segments.size for segments, _ in vectors.values()), 0)
    # One row for each path from the root to the current level: the position along each dimension.
    paths: npt.NDArray[np.int64] = np.zeros((1, levels), np.int64)
    for level, dimension in enumerate(order):
        if level not in vectors:
            count = sizes[dimension]
            if len(paths) * count > most:
                raise wrong
            counts, places = np.full(len(paths), count), np.tile(np.arange(count), len(paths))
        else:
            segments, places = vectors[level]
            if segments.size != len(paths) + 1 or segments[0] != 0 or segments[-1] != places.size:
                raise wrong
            counts, outside = np.diff(segments), (places < 0) | (places >= sizes[dimension])
            if (counts < 0).any() or outside.any():
                raise wrong
        paths = np.repeat(paths, counts, axis=0)
        paths[:, dimension] = places
    values = _values(raw, dtype, len(paths))
    if values is None:
        raise ModelError(f"tensor '{name}': {raw.size} bytes of data for {len(paths)} elements of {dtype}")
    at = [paths[:, axis] for axis in range(len(shape))]
    for number, axis in enumerate(blocked):
        at[axis] = at[axis] * sizes[len(shape) + number] + paths[:, len(shape) + number]
    result = np.zeros(shape, values.dtype)
    result[tuple(at)] = values
    return result


def _level_sizes(
    sparsity: Any, order: list[int], blocked: list[int], shape: tuple[int, ...]
) -> list[int] | None:
    """Return the number of blocks along each dimension and the size of each block; None for bad ones."""
    sizes = [*shape, *(0 for _ in blocked)]
    for level, dimension in enumerate(order):
        if dimension >= len(shape):
            size = int(sparsity.DimMetadata(level).DenseSize())
            axis = blocked[dimension - len(shape)]
            if size < 1 or shape[axis] % size:
                return None
            sizes[dimension], sizes[axis] = size, shape[axis] // size
    dense = all(
        sparsity.DimMetadata(level).DenseSize() == sizes[dimension]
        for level, dimension in enumerate(order)
        if sparsity.DimMetadata(level).Format() == 0
    )
    return sizes if dense and all(sizes) else None


def _index_vector(item: Any, which: str) -> npt.NDArray[np.int64]:
    """Return the segments or indices of a compressed level; the schema has three types of vectors."""
    import tflite

    kind, table = getattr(item, f"{which}Type")(), getattr(item, which)()
    classes = {1: tflite.Int32Vector, 2: tflite.Uint16Vector, 3: tflite.Uint8Vector}
    if kind not in classes or table is None:
        return np.zeros(0, np.int64)
    vector = classes[kind]()
    vector.Init(table.Bytes, table.Pos)
    return numbers(vector.ValuesAsNumpy()).astype(np.int64)
