"""Concats whose inputs have the range of the result, so that no value is rounded a second time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.quantization.session import Sample, Session

SAME_STEP = (
    "Resize",
    "MaxPool",
    "AveragePool",
    "Reshape",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Slice",
)
"""Operators whose result onnxruntime's quantiser gives the scale of the input."""


def shared_tensors(proto: onnx.ModelProto, name: str) -> list[str]:
    """Return the tensors that share a range if the Concat `name` does: its inputs, and its result.

    An input that is only moved or pooled stands for the tensor in front of that.

    Raises
    ------
    ModelError
        If the model has no Concat of this name.
    """
    concat = next((node for node in proto.graph.node if node.name == name), None)
    if concat is None or concat.op_type != "Concat":
        raise ModelError(f"no Concat of the model is named '{name}', so its inputs cannot share a range")
    makers = {out: node for node in proto.graph.node for out in node.output}
    constants = {item.name for item in proto.graph.initializer}

    def source(tensor: str) -> str:
        node = makers.get(tensor)
        while node is not None and node.op_type in SAME_STEP:
            tensor = node.input[0]
            node = makers.get(tensor)
        return tensor

    found = [source(tensor) for tensor in concat.input if tensor not in constants]
    return list(dict.fromkeys([*found, concat.output[0]]))


def shared_ranges(
    proto: onnx.ModelProto, names: Sequence[str], samples: Sequence[Sample]
) -> dict[str, tuple[float, float]]:
    """Return the common range of the tensors of each Concat in `names`, by the tensors' names.

    The range reaches from the smallest to the largest value of all of them on the samples, and includes 0.
    Concats that have a tensor in common have the same range.

    Raises
    ------
    ModelError
        As `shared_tensors`, or if onnxruntime fails.
    """
    groups: list[set[str]] = []
    for name in names:
        group = set(shared_tensors(proto, name))
        for other in [other for other in groups if other & group]:
            groups.remove(other)
            group |= other
        groups.append(group)
    tensors = sorted(set().union(*groups))
    limits = dict.fromkeys(tensors, (0.0, 0.0))
    run = Session(proto, tensors)
    for sample in samples:
        for name, values in {
            **sample,
            **run(sample, only=[one for one in tensors if one not in sample]),
        }.items():
            if name in limits and values.size:
                low, high = limits[name]
                limits[name] = (min(low, float(np.min(values))), max(high, float(np.max(values))))
    return {
        name: (min(limits[one][0] for one in group), max(limits[one][1] for one in group))
        for group in groups
        for name in group
    }
