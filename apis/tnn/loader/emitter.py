"""A list of ONNX nodes under construction, and arrays as the nodes need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.apis.tnn.loader.bound import Bound
from rkcosim.apis.tnn.loader.resources import Array


class Emitter:
    """Collects nodes and constants.

    Names that are made here have a colon, which no name of a `.tnnproto` file has.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self._layer, self._count = "", 0

    def begin(self, name: str) -> None:
        """Begin a layer; its nodes have its name, the first one without a number."""
        self._layer, self._count = name, 0

    def constant(self, what: str, values: Any, dtype: Any = np.float32, owner: str = "") -> str:
        """Add a constant of a blob's name `owner`, or of the current layer, and return its name."""
        name = f"{owner}::{what}" if owner else f"{self._layer}:{what}"
        array = np.ascontiguousarray(np.asarray(values, dtype))
        self.constants[name] = numpy_helper.from_array(array, name)
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node with one output and return the output's name."""
        return self.nodes_of(kind, inputs, [output or f"{self._layer}:{self._count}"], **attributes)[0]

    def nodes_of(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> list[str]:
        """Add a node with some outputs and return their names."""
        name = self._layer if not self._count else f"{self._layer}:{kind}{self._count}"
        self._count += 1
        self.nodes.append(helper.make_node(kind, list(inputs), list(outputs), name, **attributes))
        return list(outputs)


def real(b: Bound, name: str) -> Array:
    """Return an array of a resource in float32; weights of 8 bits are multiplied by their scales."""
    values = b.array(name)
    if values.dtype != np.int8:
        return values.astype(np.float32)
    scale = b.array("scale").astype(np.float32).reshape(-1)
    zero = b.resource.get("zero_point", np.zeros(1, np.int8)).astype(np.float32).reshape(-1)
    rows = values.reshape(scale.size, -1) if scale.size > 1 else values.reshape(1, -1)
    zero = zero if zero.size in (1, scale.size) and zero.size else np.zeros(1, np.float32)
    return ((rows.astype(np.float32) - zero[:, None]) * scale[:, None]).reshape(values.shape)


def filters(b: Bound, values: Array) -> Array:
    """Return the filter of a convolution in the shape (OC, IC / group, kh, kw)."""
    p = b.params
    return values.reshape(p["output_channel"], b.map()[1] // p["group"], *p["kernels"])
