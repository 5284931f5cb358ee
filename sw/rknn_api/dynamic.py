"""Models of several shapes: an ONNX model whose metadata lists the shapes, or a compiled model of several.

The metadata entry `dynamic_input` has the shapes in the form of the vendor's converter: a JSON list
of sets, each with one shape for every input of the model, for example
`[[[1, 3, 64, 64]], [[1, 3, 96, 96]]]`.  Each set is compiled separately; the largest one represents
the model until `rknn_set_input_shapes` selects another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rkcosim.compiler import ModelError, several
from rkcosim.compiler.options import using_options
from rkcosim.compiler.several import KEY, Shape
from rkcosim.rknn_api import types as t


@dataclass
class Variants:
    """The shapes of a model: `sets` of one shape per input, with a compiled model for each set."""

    sets: list[tuple[Shape, ...]]
    models: list[Any]
    loaded: dict[int, Any] = field(default_factory=dict)
    """Variants on the device, by their number."""
    chosen: int | None = None
    cores: int = 1
    """Cores for which variants are planned when they are loaded."""

    @property
    def largest(self) -> int:
        """The set with the most elements."""
        return several.largest(self.sets)

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
    """Compile or read every shape of a model; None for a model without a list of shapes.

    Raises
    ------
    ModelError
        For an invalid list, or a shape that cannot be compiled; the message names it.
    """
    if several.is_several(data):
        return _unpacked(data, compile_one)
    if KEY.encode() not in data:
        return None
    import onnx

    from rkcosim.compiler.loaders.onnx_file import listed_shapes

    try:
        proto = onnx.load_model_from_string(data)
    except Exception:  # the compiler's loader reports the error
        return None
    sets = listed_shapes(proto)
    models = []
    for shapes in sets:
        try:
            with using_options(shapes={}, input_shapes=shapes):
                models.append(compile_one(data))
        except ModelError as error:
            raise ModelError(f"{KEY} {[list(shape) for shape in shapes]}: {error}") from error
    return Variants(sets, models) if sets else None


def _unpacked(data: bytes, compile_one: Callable[[bytes], Any]) -> Variants:
    try:
        sets, parts = several.unpack(data)
    except ValueError as error:
        raise ModelError(str(error)) from error
    models = [compile_one(part) for part in parts]
    for shapes, model in zip(sets, models, strict=True):
        if tuple(tuple(info.shape) for info in model.inputs) != shapes:
            raise ModelError("damaged compiled model: its shapes are not those of the list")
    return Variants(sets, models)
