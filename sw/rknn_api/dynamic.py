"""Models of several shapes: an ONNX model whose metadata lists the shapes.

The metadata entry `dynamic_input` has the shapes in the form of the vendor's converter: a JSON list
of sets, each with one shape for every input of the model, for example
`[[[1, 3, 64, 64]], [[1, 3, 96, 96]]]`.  Each set is compiled separately; the largest one represents
the model until `rknn_set_input_shapes` selects another one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rkcosim.compiler import ModelError
from rkcosim.rknn_api import types as t

KEY = "dynamic_input"
Shape = tuple[int, ...]


@dataclass
class Variants:
    """The shapes of a model: `sets` of one shape per input, with a compiled model for each set."""

    sets: list[tuple[Shape, ...]]
    models: list[Any]
    loaded: dict[int, Any] = field(default_factory=dict)
    """Variants on the device, by their number."""
    chosen: int | None = None

    @property
    def largest(self) -> int:
        """The set with the most elements."""
        sizes = [sum(math.prod(shape) for shape in shapes) for shapes in self.sets]
        return sizes.index(max(sizes))

    def close(self) -> None:
        """Free every variant."""
        for loaded in self.loaded.values():
            loaded.close()
        self.loaded.clear()

    def fill_range(self, target: t.rknn_input_range, name: str) -> None:
        """Answer of RKNN_QUERY_INPUT_DYNAMIC_RANGE for the input `target.index`."""
        shapes = [shown(shapes[target.index]) for shapes in self.sets]
        target.shape_number = len(shapes)
        target.n_dims = len(shapes[0])
        four = len(shapes[0]) == 4
        target.fmt = int(t.RKNN_TENSOR_NHWC if four else t.RKNN_TENSOR_UNDEFINED)
        target.name = name.encode()[: t.RKNN_MAX_NAME_LEN - 1]
        for row, shape in enumerate(shapes):
            target.dyn_range[row][: len(shape)] = list(shape)


def shown(shape: Shape) -> Shape:
    """A shape in the form for programs: four dimensions are N, H, W, C."""
    return (shape[0], shape[2], shape[3], shape[1]) if len(shape) == 4 else shape


def variants(data: bytes, compile_one: Callable[[bytes], Any]) -> Variants | None:
    """Compile every shape of a model; None for a model without `dynamic_input`.

    Raises
    ------
    ModelError
        For an invalid list, or a shape that cannot be compiled; the message names it.
    """
    if KEY.encode() not in data:
        return None
    import onnx

    try:
        proto = onnx.load_model_from_string(data)
    except Exception:  # the compiler's loader reports the error
        return None
    text = next((item.value for item in proto.metadata_props if item.key == KEY), None)
    if text is None:
        return None
    constants = {item.name for item in proto.graph.initializer}
    inputs = [info for info in proto.graph.input if info.name not in constants]
    sets = _sets(text, len(inputs))
    models = []
    for shapes in sets:
        for info, shape in zip(inputs, shapes, strict=True):
            dims = info.type.tensor_type.shape
            del dims.dim[:]
            for size in shape:
                dims.dim.add().dim_value = size
        del proto.graph.value_info[:]
        try:
            models.append(compile_one(proto.SerializeToString()))
        except ModelError as error:
            raise ModelError(f"{KEY} {[list(shape) for shape in shapes]}: {error}") from error
    return Variants(sets, models)


def _sets(text: str, inputs: int) -> list[tuple[Shape, ...]]:
    problem = ModelError(
        f"{KEY} must be a list of sets of {inputs} shapes, with positive sizes and equal ranks"
    )
    try:
        sets = [tuple(tuple(int(n) for n in shape) for shape in shapes) for shapes in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise problem from error
    if not 0 < len(sets) <= t.RKNN_MAX_DYNAMIC_SHAPE_NUM or len(set(sets)) != len(sets):
        raise problem
    ranks = {tuple(len(shape) for shape in shapes) for shapes in sets}
    if len(ranks) != 1 or len(next(iter(ranks))) != inputs:
        raise problem
    if any(not shape or min(shape) < 1 or math.prod(shape) > 1 << 28 for shapes in sets for shape in shapes):
        raise problem
    return sets
