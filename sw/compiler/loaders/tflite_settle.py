"""Sizes that a TFLite file computes from the shapes of its own tensors.

Converters that do not know the size of an input write SHAPE and arithmetic in front of RESHAPE, RESIZE and
STRIDED_SLICE, also if the size is fixed afterwards.  The file then has no shapes, or wrong ones, for the
results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_runtimes import load_program
from rkcosim.compiler.loaders.tflite_file import TfModel, TfNode
from rkcosim.compiler.loaders.tflite_program import program

SIZED = {
    *(
        "RESHAPE",
        "RESIZE_BILINEAR",
        "RESIZE_NEAREST_NEIGHBOR",
        "BROADCAST_TO",
        "TILE",
        "FILL",
        "PAD",
        "PADV2",
    ),
    *("MIRROR_PAD", "SLICE", "STRIDED_SLICE"),
}
"""Operators with an input that decides about the shape of the result."""

STATEFUL = {
    *("WHILE", "IF", "CALL_ONCE", "CALL", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"),
    *("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"),
}
"""Operators whose results do not follow from their inputs alone."""

OF_VALUES = {
    *("WHERE", "UNIQUE", "SEGMENT_SUM", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "RANGE"),
    *STATEFUL,
}
"""Operators whose results have shapes that do not follow from the shapes of their inputs."""

MOST_ELEMENTS = 2**26
"""Elements of all results up to which the model is run to find their shapes."""


def settled(model: TfModel) -> TfModel:
    """Return a model in which sizes that only shapes determine are constants, and shapes are those of a run.

    LiteRT computes all results once, from zeros. The model itself is returned if no size is computed, if
    results have shapes that depend on values, or if LiteRT is missing or refuses the model.

    Parameters
    ----------
    model
        The model as it was read, with the shapes of its inputs.
    """
    sizes = _of_shapes(model)
    if not any(_unsettled(model, node, sizes) for node in model.nodes):
        return model
    kinds = {node.op for node in model.nodes if not sizes.issuperset(node.outputs)}
    if kinds & OF_VALUES or any(kind.startswith("CUSTOM") for kind in kinds):
        return model
    made = [number for node in model.nodes for number in node.outputs]
    made = [number for number in made if model.tensors[number].dtype in _KINDS]
    if sum(math.prod(model.tensors[number].shape) for number in made) > MOST_ELEMENTS:
        return model
    inputs = [model.tensors[number] for number in model.inputs]
    try:
        data = program(model, model.nodes, model.inputs, made).tobytes()
        run = load_program(
            "litert", data, [item.name for item in inputs], [model.tensors[n].name for n in made]
        )
        results = run([np.zeros(item.shape, item.dtype) for item in inputs])
    except (ModelError, ImportError):
        return model
    tensors = list(model.tensors)
    for number, values in zip(made, results, strict=True):
        known = values if number in sizes else None
        tensors[number] = replace(tensors[number], shape=values.shape, data=known, open_shape=False)
    nodes = [node for node in model.nodes if not sizes.issuperset(node.outputs)]
    return replace(model, tensors=tensors, nodes=nodes)


_KINDS = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "bool")


def _of_shapes(model: TfModel) -> set[int]:
    """Return the numbers of the tensors that only shapes and constants determine."""
    made = {number for node in model.nodes for number in node.outputs}
    items = enumerate(model.tensors)
    found = {at for at, item in items if 0 in item.shape and at not in made and at not in model.inputs}
    for node in model.nodes:
        known = all(_known(model, number, found) for number in node.inputs)
        if node.op in ("SHAPE", "RANK") or (node.inputs and known and node.op not in STATEFUL):
            found.update(node.outputs)
    return found


def _known(model: TfModel, number: int, found: set[int]) -> bool:
    return number < 0 or number in found or model.tensors[number].data is not None


def _unsettled(model: TfModel, node: TfNode, sizes: set[int]) -> bool:
    """Whether the file cannot have the shape of a result: its size is computed."""
    computed = [number for number in node.inputs[1:] if number in sizes]
    if node.op not in SIZED or not computed:
        return False
    return node.op != "RESHAPE" or _elements(model, node.inputs[:1]) != _elements(model, node.outputs)


def _elements(model: TfModel, numbers: Sequence[int]) -> int:
    return sum(math.prod(model.tensors[number].shape) for number in numbers)
