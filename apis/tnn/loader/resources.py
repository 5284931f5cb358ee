"""The bytes of a `.tnnmodel` file: weights and other arrays of a network's layers.

The layout is that of TNN (Tencent/TNN f0cb0812, source/tnn/interpreter/tnn/objseri.h and layer_interpreter/):
little endian; a string is its length as int32 and its bytes; an array is a magic number, its data type, its
number of bytes, in files of the second version its shape, and its bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.tnn.loader.params import BINARY
from rkcosim.apis.tnn.loader.proto import MAX_LAYERS, MAX_RANK, VERSION_1, VERSION_2, NetStructure
from rkcosim.compiler.graph import ModelError

Array = npt.NDArray[Any]
Resource = Mapping[str, Array]
"""Arrays of a layer by TNN's names without "_handle": filter, bias, scale, zero_point, slope, element."""

DTYPES: dict[int, str] = {0: "<f4", 1: "<f2", 2: "<i1", 3: "<i4", 4: "<u2", 5: "<i8", 6: "<u4"}
"""TNN's data types as numpy's; 4 (bfp16) is converted to float32."""

SCALE_SUFFIX = "_scale_data_"
"""The resource with the scales of an int8 blob has the blob's name and this suffix."""

TYPE_IDS = {
    **{"Convolution": 1, "BatchNormCxx": 2, "Deconvolution": 22, "InnerProduct": 19, "Scale": 16},
    **{"PReLU": 35, "Add": 38, "Mul": 42, "InstBatchNormCxx": 43, "BiasAdd": 54, "Const": 100},
    **{"MatMul": 105, "Sub": 108, "Maximum": 137, "Minimum": 140, "Div": 175, "BlobScale": 600},
    "SquaredDifference": 198,
}
"""Numbers of layer types with resources (source/tnn/core/layer_type.h)."""


class _Reader:
    """Takes values off the bytes of a file; every length is checked before memory is used."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.where = "the header"

    @property
    def left(self) -> int:
        """Number of bytes that are left."""
        return len(self.data) - self.at

    def wrong(self, text: str) -> ModelError:
        """Return an error that names the layer and the position."""
        return ModelError(f"damaged .tnnmodel: {self.where}, byte {self.at}: {text}")

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if not 0 <= size <= self.left:
            raise self.wrong(f"{size} bytes are announced, {self.left} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        """Return an int32."""
        return int(struct.unpack("<i", self.take(4))[0])

    def string(self) -> str:
        """Return a string."""
        begin, size = self.at, self.number()
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            self.at = begin
            raise self.wrong("a name is not text") from None

    def array(self) -> Array:
        """Return an array; one without bytes has the shape (0,)."""
        magic, kind, size = self.number() & 0xFFFFFFFF, self.number(), self.number()
        if kind not in DTYPES:
            raise self.wrong(f"an array has the data type {kind}")
        dtype = np.dtype(DTYPES[kind])
        if size <= 0:
            return np.zeros(0, dtype)
        dims: list[int] = []
        if magic == VERSION_2:
            rank = self.number()
            if not 0 <= rank <= MAX_RANK:
                raise self.wrong(f"an array has {rank} dimensions")
            dims = [self.number() for _ in range(rank)]
        if size % dtype.itemsize:
            raise self.wrong(f"an array has {size} bytes in elements of {dtype.itemsize}")
        values = np.frombuffer(self.take(size), dtype)
        if kind == 4:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        if dims and (min(dims) < 0 or math.prod(dims) != values.size):
            raise self.wrong(f"an array of the shape {dims} has {values.size} elements")
        return values.reshape(dims) if dims else values


def _coded(reader: _Reader, made: dict[str, Array]) -> dict[str, Array]:
    """Add zero points and scales of int8 weights; older files have only the scales."""
    first = reader.array()
    if first.dtype == np.int8:
        made["zero_point"], made["scale"] = first, reader.array()
    else:
        made["scale"] = first
    return made


def _convolution(reader: _Reader) -> dict[str, Array]:
    reader.string()
    has_bias = reader.number()
    made = {"filter": reader.array()}
    if has_bias:
        made["bias"] = reader.array()
    return _coded(reader, made) if made["filter"].dtype == np.int8 else made


def _inner_product(reader: _Reader) -> dict[str, Array]:
    reader.string()
    made = {"weight": reader.array(), "bias": reader.array()}
    return _coded(reader, made) if made["weight"].dtype == np.int8 else made


def _blob_scale(reader: _Reader) -> dict[str, Array]:
    made = _coded(reader, {})
    made["bias"] = reader.array()
    return made


def _scale_and_bias(reader: _Reader) -> dict[str, Array]:
    return {"scale": reader.array(), "bias": reader.array()}


def _prelu(reader: _Reader) -> dict[str, Array]:
    reader.string()
    return {"slope": reader.array()}


def _scale(reader: _Reader) -> dict[str, Array]:
    reader.string()
    has_bias = reader.number()
    made = {"scale": reader.array()}
    if has_bias:
        made["bias"] = reader.array()
    return made


def _matmul(reader: _Reader) -> dict[str, Array]:
    made = {"weight": reader.array()}
    if made["weight"].dtype == np.int8:
        made["scale"] = reader.array()
    return made


def _element(reader: _Reader) -> dict[str, Array]:
    return {"element": reader.array()}


def _bias(reader: _Reader) -> dict[str, Array]:
    return {"bias": reader.array()}


RESOURCES: dict[str, Callable[[_Reader], dict[str, Array]]] = {
    "Convolution": _convolution,
    "Deconvolution": _convolution,
    "InnerProduct": _inner_product,
    "BlobScale": _blob_scale,
    "BatchNormCxx": _scale_and_bias,
    "InstBatchNormCxx": _scale_and_bias,
    "PReLU": _prelu,
    "Scale": _scale,
    "MatMul": _matmul,
    "BiasAdd": _bias,
    "Const": lambda reader: {"weight": reader.array()},
    **dict.fromkeys(BINARY, _element),
}
"""Readers of resources by layer type."""


def _type_of(name: str) -> str:
    plain = name.removeprefix("DynamicRangeQuantized").removeprefix("Quantized")
    return {"BatchNormalization": "BatchNormCxx"}.get(plain, plain)


def read_resources(data: bytes, net: NetStructure) -> tuple[dict[str, Resource], dict[str, Array]]:
    """Read a `.tnnmodel` file.

    Parameters
    ----------
    data
        Bytes of the file.
    net
        The network, for the types of layers in files that do not have them.

    Returns
    -------
    Resources by layer name, and constants by blob name.

    Raises
    ------
    ModelError
        If the file is damaged, or has arrays of a layer type that is not read; the message names the layer.
    """
    reader = _Reader(data)
    if reader.left >= 4 and struct.unpack_from("<I", data)[0] in (VERSION_1, VERSION_2):
        reader.number()
    count = reader.number() & 0x1FFFFFFF
    if count >= MAX_LAYERS:
        raise reader.wrong(f"{count} layers")
    types = {layer.name: layer.type for layer in net.layers}
    found: dict[str, Resource] = {}
    for number in range(count):
        reader.where = f"layer {number} of {count}"
        reader.number()
        first = reader.string()
        if _type_of(first) in RESOURCES or first not in types:
            kind, name = _type_of(first), reader.string()
        else:  # files without type names
            kind, name = types[first], first
        reader.where = f"{kind} '{name}'"
        if kind not in RESOURCES:
            raise reader.wrong(f"resources of layers of the type '{kind}' are not read")
        found[name] = RESOURCES[kind](reader)
    reader.where = "the constants"
    constants: dict[str, Array] = {}
    if reader.left >= 4:
        reader.number()
        size = reader.number()
        if not 0 <= size < MAX_LAYERS:
            raise reader.wrong(f"{size} constants")
        for _ in range(size):
            name = reader.string()
            constants[name] = reader.array()
    return found, constants


def _text(name: str) -> bytes:
    return struct.pack("<i", len(name.encode())) + name.encode()


def _raw(values: Array, version: int) -> bytes:
    kind = {np.dtype(text): number for number, text in DTYPES.items() if number != 4}[values.dtype]
    head = struct.pack("<Iii", version, kind, values.nbytes)
    if version == VERSION_2 and values.nbytes:
        head += struct.pack(f"<{1 + values.ndim}i", values.ndim, *values.shape)
    return head + np.ascontiguousarray(values).tobytes()


_WRITTEN: dict[str, tuple[bool, tuple[str, ...]]] = {
    "InnerProduct": (True, ("weight", "bias", "zero_point", "scale")),
    "BlobScale": (False, ("zero_point", "scale", "bias")),
    "BatchNormCxx": (False, ("scale", "bias")),
    "InstBatchNormCxx": (False, ("scale", "bias")),
    "PReLU": (True, ("slope",)),
    "MatMul": (False, ("weight", "scale")),
    "BiasAdd": (False, ("bias",)),
    "Const": (False, ("weight",)),
    **dict.fromkeys(BINARY, (False, ("element",))),
}
"""For each type: whether the layer's name comes first, and the arrays in their order."""


def write_resources(net: NetStructure, resources: Mapping[str, Resource]) -> bytes:
    """Return the bytes of a `.tnnmodel` file, which `read_resources` reads.

    Parameters
    ----------
    net
        The network; its version is that of the file.
    resources
        Arrays by layer name; scales of blobs have the name of the blob with `SCALE_SUFFIX`.
    """
    types = {layer.name: layer.type for layer in net.layers}
    quantized = {layer.name for layer in net.layers if layer.quantized}
    out = [struct.pack("<Ii", net.version, len(resources))]
    for name, arrays in resources.items():
        kind = types.get(name, "BlobScale")
        shown = f"Quantized{kind}" if name in quantized else kind
        out.append(struct.pack("<i", TYPE_IDS[kind]) + _text(shown) + _text(name))
        none = np.zeros(0, np.float32)
        if kind in ("Convolution", "Deconvolution", "Scale"):
            main = "scale" if kind == "Scale" else "filter"
            bias = arrays.get("bias")
            out.append(_text(name) + struct.pack("<i", bias is not None) + _raw(arrays[main], net.version))
            out += [] if bias is None else [_raw(bias, net.version)]
            if arrays[main].dtype == np.int8:
                out += [_raw(arrays[key], net.version) for key in ("zero_point", "scale") if key in arrays]
            continue
        first, keys = _WRITTEN[kind]
        out += [_text(name)] if first else []
        optional = {"zero_point", "scale"} if kind in ("InnerProduct", "MatMul") else {"zero_point"}
        kept = [key for key in keys if key in arrays or key not in optional]
        out += [_raw(arrays.get(key, none), net.version) for key in kept]
    return b"".join(out)
