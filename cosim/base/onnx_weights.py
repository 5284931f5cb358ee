"""ONNX models whose tensors are in other files beside them ("external data"): read as one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

MOST = (1 << 31) - 1
"""Largest size in bytes of a model in one piece, which protocol buffers set."""

ReadPart = Callable[[str, int, int | None], bytes]
"""Reads a part of a file of the model's folder: takes its name, the first byte, and the number of bytes."""


class OnnxWeightsError(ValueError):
    """A tensor in another file cannot be read; the message names the tensor."""


def whole(data: bytes, read: ReadPart) -> bytes:
    """Return an ONNX model with the tensors that are in other files; others are unchanged.

    Parameters
    ----------
    data
        Bytes of the model.
    read
        Reads a part of a file; raises ValueError or OSError.

    Raises
    ------
    OnnxWeightsError
        If a part cannot be read, or the model would be larger than `MOST`.
    """
    if b"location" not in data:  # the key that every external tensor has
        return data
    import onnx

    try:
        proto = onnx.load_model_from_string(data)
    except Exception:  # damaged; the reader of the model says so
        return data
    tensors = [tensor for tensor in _tensors(proto) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if not tensors:
        return data
    total = len(data)
    for tensor in tensors:
        where = f"tensor '{tensor.name[:100]}'"
        try:
            raw = _read(tensor, read)
        except ValueError as error:
            raise OnnxWeightsError(f"{where}: {error}") from error
        except OSError as error:
            raise OnnxWeightsError(f"{where}: {error.filename}: {error.strerror}") from error
        total += len(raw)
        if total > MOST:
            raise OnnxWeightsError(f"{where}: the model is larger than {MOST:,} bytes in one piece")
        tensor.raw_data = raw
        del tensor.external_data[:]
        tensor.ClearField("data_location")
    return proto.SerializeToString()


def _read(tensor: Any, read: ReadPart) -> bytes:
    """Return the bytes of a tensor in another file."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset, length = (int(entries[key]) if entries.get(key) else None for key in ("offset", "length"))
    except ValueError as error:
        raise ValueError("offset and length must be whole numbers") from error
    if (offset or 0) < 0 or (length or 0) < 0:
        raise ValueError("offset and length must not be negative")
    return read(entries.get("location", ""), offset or 0, length)


def _tensors(proto: onnx.ModelProto) -> Iterator[Any]:
    """Yield all tensors of a model: initializers, attributes, and those of inner graphs and functions."""
    left: list[Any] = [proto.graph, *proto.functions]
    while left:
        body = left.pop()
        yield from getattr(body, "initializer", ())
        for sparse in getattr(body, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for node in body.node:
            for item in node.attribute:
                if item.HasField("t"):
                    yield item.t
                yield from item.tensors
                if item.HasField("g"):
                    left.append(item.g)
                left += item.graphs
