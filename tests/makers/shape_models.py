"""Models with free dimensions, whose results depend on the sizes in more than one way."""

from __future__ import annotations

import json

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rkcosim.compiler.host_runtimes import exact_options
from tests import seeds


def enlarging(
    sets: object = None, size: tuple[int | str, int | str] = ("h", "w"), batch: int | str = 1
) -> bytes:
    """Return a network that halves a picture and enlarges the result to the size of the picture.

    Parameters
    ----------
    sets : list for the metadata entry `dynamic_input`; None for none.
    size : height and width of the input in the file.
    batch : first dimension of the input in the file.
    """
    rng = np.random.default_rng(seeds.number())
    first, second = (
        (rng.standard_normal(shape) / 4).astype(np.float32) for shape in ((8, 3, 3, 3), (4, 8, 3, 3))
    )
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"], "first", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Shape", ["x"], ["size"], "size"),
        helper.make_node("Slice", ["size", "two", "four"], ["rest"], "rest"),
        helper.make_node("Shape", ["b"], ["inner"], "inner"),
        helper.make_node("Slice", ["inner", "zero", "two"], ["front"], "front"),
        helper.make_node("Concat", ["front", "rest"], ["sizes"], "sizes", axis=0),
        helper.make_node("Resize", ["b", "", "", "sizes"], ["c"], "resize", mode="nearest", **NEAREST),
        helper.make_node("Conv", ["c", "l"], ["y"], "second", pads=[1] * 4),
    ]
    numbers = {name: np.array([value]) for name, value in (("zero", 0), ("two", 2), ("four", 4))}
    graph = helper.make_graph(
        nodes,
        "enlarging",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, *size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4, "p", "q"])],
        [
            numpy_helper.from_array(array, name)
            for name, array in {"k": first, "l": second, **numbers}.items()
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    if sets is not None:
        helper.set_model_props(made, {"dynamic_input": json.dumps(sets)})
    return made.SerializeToString()


NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def by_onnxruntime(model: bytes, *inputs: np.ndarray) -> np.ndarray:
    """Return the first output of onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, exact_options(onnxruntime))
    names = [item.name for item in session.get_inputs()]
    return np.asarray(session.run(None, dict(zip(names, inputs, strict=True)))[0])


def free(model: bytes) -> bytes:
    """Return a model without the entries of its metadata."""
    made = onnx.load_model_from_string(model)
    del made.metadata_props[:]
    return made.SerializeToString()
