"""Constants of a TFLite model that other constants determine, and operators that no output needs.

Converters write constants as operators: float16 weights as DEQUANTIZE, sparse ones as DENSIFY, and the
shape of a Keras Flatten as SHAPE, STRIDED_SLICE and PACK.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.loaders.node import Constant
from rkcosim.compiler.loaders.tflite_file import (
    SYNTHETIC,
    WITHOUT_OUTPUT,
    TfModel,
    TfNode,
    TfTensor,
    new_constant,
)

Array = npt.NDArray[Any]


def _dequantize(node: TfNode, items: Sequence[TfTensor]) -> Array:
    item = items[0]
    assert item.data is not None
    if item.data.dtype.kind == "f":
        return item.data.astype(np.float32)
    zero = item.zero if item.zero.size else np.zeros(1, np.int64)
    return Constant(item.data, item.scale, zero, item.axis).real().astype(np.float32)


def _densify(node: TfNode, items: Sequence[TfTensor]) -> Array:
    assert items[0].data is not None  # dense since the file was read
    return items[0].data


def _shape(node: TfNode, items: Sequence[TfTensor]) -> Array:
    return np.array(items[0].shape)


def _rank(node: TfNode, items: Sequence[TfTensor]) -> Array:
    return np.array(len(items[0].shape))


FOLDED: dict[str, Callable[[TfNode, Sequence[TfTensor]], Array]] = {
    "DEQUANTIZE": _dequantize,
    "DENSIFY": _densify,
    "SHAPE": _shape,
    "RANK": _rank,
}
"""Operators that are computed here, from tensors whose values are known."""

OF_SHAPE = ("SHAPE", "RANK")
"""Operators that need no values, only shapes."""


TRANSPOSED = "CUSTOM Convolution2DTransposeBias"
"""MediaPipe's transposed convolution of an input, weights and a bias.  Its options are the padding (1 SAME,
2 VALID) and the strides of columns and rows as int32, as LiteRT's XNNPACK delegate reads them."""


def standardised(model: TfModel) -> TfModel:
    """Return a model in which custom operators that have a standard form are written in that form."""
    tensors, nodes = list(model.tensors), []
    for node in model.nodes:
        if node.op == TRANSPOSED and len(node.custom) == 12 and len(node.inputs) == 3:
            padding, across, down = (int(n) for n in np.frombuffer(node.custom, "<i4"))
            if padding in (1, 2) and 1 <= across <= 2**16 and 1 <= down <= 2**16:
                output = tensors[node.outputs[0]]
                tensors.append(new_constant(f"{output.name}@shape", output.shape))
                x, weights, bias = node.inputs
                inputs = (len(tensors) - 1, weights, x, bias)
                options = {"Padding": padding - 1, "StrideW": across, "StrideH": down}
                options["FusedActivationFunction"] = 0
                node = TfNode("TRANSPOSE_CONV", inputs, node.outputs, options, SYNTHETIC)
        nodes.append(node)
    return replace(model, tensors=tensors, nodes=nodes)


def simplified(model: TfModel) -> TfModel:
    """Return a model with constants computed and without operators that no output needs.

    A RESHAPE needs only its first input: the file has the shape of its result, with the size that is used for
    an open dimension.

    Parameters
    ----------
    model
        The model as it was read.  A scale or a number of elements that does not fit is left to the operator.
    """
    model = standardised(model)
    tensors = list(model.tensors)
    left: list[TfNode] = []
    for node in model.nodes:
        items = [tensors[number] for number in node.inputs if number >= 0]
        known = node.op in OF_SHAPE or all(item.data is not None for item in items)
        fold = FOLDED.get(node.op)
        if fold is None or not items or not known or (node.op == "DEQUANTIZE" and not _real(items[0])):
            left.append(node)
            continue
        output = tensors[node.outputs[0]]
        values = fold(node, items).astype(np.dtype(output.dtype))
        tensors[node.outputs[0]] = replace(output, data=values, shape=values.shape)
    return without_unused(replace(model, tensors=tensors, nodes=left), known_shapes=True)


def without_unused(model: TfModel, known_shapes: bool = False) -> TfModel:
    """Return a model without operators that no output needs.

    Parameters
    ----------
    model
        The model.
    known_shapes
        Whether a RESHAPE needs only its first input.
    """
    needed, nodes = set(model.outputs), []
    for node in reversed(model.nodes):
        if not needed.isdisjoint(node.outputs) or node.op in WITHOUT_OUTPUT:
            needed.update(node.inputs[:1] if known_shapes and node.op == "RESHAPE" else node.inputs)
            nodes.append(node)
    return replace(model, nodes=nodes[::-1])


def _real(item: TfTensor) -> bool:
    """Whether a constant is a float or has one scale, or one for each channel."""
    if item.data is None or item.data.dtype.kind == "f":
        return item.data is not None
    fits = item.data.ndim > item.axis >= 0 and item.scale.size == item.data.shape[item.axis]
    return item.scale.size == 1 or fits
