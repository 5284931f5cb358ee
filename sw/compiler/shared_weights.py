"""Models without weights, which use those of another model (RKNN_FLAG_SHARE_WEIGHT_MEM of `rknn_api.h`).

A container without weights has, in the place of each array of floats or bytes, a digest of its contents, by
which the array is found in the full model.  The weights of parts that onnxruntime computes on the host are
in models of ONNX; there the digest is in the tensor's `doc_string`.  Smaller arrays stay in the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import ModelError, Program
from rkcosim.compiler.host_runtimes import onnx_tensors

Array = npt.NDArray[Any]

LEAST = 12
"""Bytes of the smallest array that is taken out: as many as its digest needs."""

LETTERS = 8
"""Length of a digest in hexadecimal digits."""

ONNX = ("onnxruntime", "onnx-reference")
"""Runtimes whose programs are ONNX models."""

Find = Callable[[np.dtype[Any], tuple[int, ...], str], Array]
"""Returns the array of a digest; raises ModelError if the full model has none."""


def is_weight(array: Array) -> bool:
    """Return whether an array is taken out: floats or bytes, of at least `LEAST` bytes."""
    return (array.dtype.kind == "f" or array.dtype.itemsize == 1) and array.nbytes >= LEAST


def digest(array: Array) -> str:
    """Return the digest of an array's contents."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:LETTERS]


def without_weights(program: Program) -> Array:
    """Return the bytes of a program, uint8 (n,); weights of an ONNX model are taken out of it."""
    if program.runtime not in ONNX:
        return program.data
    import onnx
    from onnx import numpy_helper

    model = onnx.load_model_from_string(program.data.tobytes())
    for tensor in onnx_tensors(model.graph, *model.functions):
        array = _contents(tensor, numpy_helper)
        if array is not None and is_weight(array):
            kept = tensor.name, tensor.data_type, list(tensor.dims)
            tensor.Clear()
            tensor.name, tensor.data_type = kept[:2]
            tensor.dims.extend(kept[2])
            tensor.doc_string = digest(array)
    return np.frombuffer(model.SerializeToString(), np.uint8)


def with_weights(runtime: str, data: Array, find: Find) -> Array:
    """Return the bytes of a program whose weights were taken out; raises ModelError as `find`."""
    if runtime not in ONNX:
        return data
    import onnx
    from onnx.helper import tensor_dtype_to_np_dtype

    model = onnx.load_model_from_string(data.tobytes())
    for tensor in onnx_tensors(model.graph, *model.functions):
        if len(tensor.doc_string) == LETTERS and not tensor.raw_data and np.prod(tensor.dims):
            dtype = np.dtype(tensor_dtype_to_np_dtype(tensor.data_type))
            tensor.raw_data = find(dtype, tuple(tensor.dims), tensor.doc_string).tobytes()
            tensor.ClearField("doc_string")
    return np.frombuffer(model.SerializeToString(), np.uint8)


def _contents(tensor: Any, numpy_helper: Any) -> Array | None:
    """Return the array of an ONNX tensor; None for one without contents in this file, and for text."""
    if tensor.external_data or tensor.data_type in (0, 8) or not np.prod(tensor.dims):
        return None
    array: Array = numpy_helper.to_array(tensor)
    return array


def weights_of(values: Iterator[Any]) -> Iterator[Array]:
    """Yield the weights among arrays and programs."""
    for value in values:
        if isinstance(value, Program):
            if value.runtime not in ONNX:
                continue
            import onnx
            from onnx import numpy_helper

            model = onnx.load_model_from_string(value.data.tobytes())
            for tensor in onnx_tensors(model.graph, *model.functions):
                array = _contents(tensor, numpy_helper)
                if array is not None and is_weight(array):
                    yield array
        elif is_weight(value):
            yield value


def finder(values: Iterator[Any]) -> Find:
    """Return a function that finds the weights of a full model by their digests.

    Parameters
    ----------
    values : arrays and programs of the full model.
    """
    known = {(array.dtype, array.shape, digest(array)): array for array in weights_of(values)}

    def find(dtype: np.dtype[Any], shape: tuple[int, ...], text: str) -> Array:
        array = known.get((dtype, shape, text))
        if array is None:
            raise ModelError(
                f"the full model does not have the weights of this one: a tensor {dtype} {list(shape)} has "
                "other contents or another shape there"
            )
        return array

    return find
