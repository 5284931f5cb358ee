"""Sizes of open dimensions of an ONNX model that the arrays given as its inputs have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rkcosim.base.files import identify, open_regular, read_model
from rkcosim.measure.models.input_files import shape_inside


def shapes_of_arrays(model: Path, files: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's inputs with the sizes of arrays, by name.

    Parameters
    ----------
    model
        A model's file.
    files
        A `.npy` file for each input, in order, or one `.npz` file with arrays named as the inputs.

    Returns
    -------
    The inputs of an ONNX file that have open dimensions besides the first one, if the array has as many
    dimensions and fits the others.  An open first dimension is 1, since an array may have several samples.
    Nothing for other files and arrays; whoever reads these reports what is wrong.
    """
    archive = len(files) == 1 and files[0].suffix == ".npz"
    if not files or not (archive or all(path.suffix == ".npy" for path in files)):
        return {}
    data = read_model(model)
    if identify(data) != "ONNX model":
        return {}
    import onnx

    try:
        graph = onnx.load_model_from_string(data).graph
        shapes = [] if archive else [_shape_of(path) for path in files]
    except Exception:  # protobuf's and numpy's classes; the readers of model and arrays report it
        return {}
    constants = {item.name for item in graph.initializer}
    inputs = [item for item in graph.input if item.name not in constants]
    if archive:
        shapes = [shape_inside(files[0], item.name) or () for item in inputs]
    if len(inputs) != len(shapes):
        return {}
    found = {}
    for item, shape in zip(inputs, shapes, strict=True):
        sizes = [
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else 0
            for dim in item.type.tensor_type.shape.dim
        ]
        fits = len(sizes) == len(shape) and all(
            n in (0, m) for n, m in zip(sizes[1:], shape[1:], strict=True)
        )
        if fits and 0 in sizes[1:]:
            found[item.name] = (sizes[0] or 1, *shape[1:])
    return found


def _shape_of(path: Path) -> tuple[int, ...]:
    """Return the shape in the header of a `.npy` file."""
    with open_regular(path) as file:
        old = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
        return tuple(read(file)[0])
