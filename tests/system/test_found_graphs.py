"""Kinds of faults that random graphs found (`tools.graph_fuzz`); onnxruntime is the judge of every output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler.loaders.onnx_windows import exact_windows
from tests.extent import extent
from tests.seeds import seed
from tools.graph_fuzz.doors import Doors, Form
from tools.graph_fuzz.draw import Graph, described, session
from tools.graph_fuzz.judge import Judge
from tools.graph_fuzz.search import fault

RNG = np.random.default_rng(seed(__name__))
N = helper.make_node


def graph(
    nodes: list[onnx.NodeProto], constants: dict[str, Any], opset: int = 17, **feeds: tuple[int, ...]
) -> Graph:
    """Return a graph whose output is `y`, with random inputs of these shapes."""
    arrays = {name: RNG.integers(-64, 65, shape).astype(np.float32) / 32 for name, shape in feeds.items()}
    given = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    made = helper.make_graph(
        nodes,
        "found",
        [described(name, array) for name, array in arrays.items()],
        [helper.make_empty_tensor_value_info("y")],
        given,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    right = session(model).run(None, arrays)[0]
    model.graph.output[0].CopyFrom(described("y", right))
    return Graph(model, arrays)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) / 2


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    with Doors() as made:
        yield made


def right(doors: Doors, made: Graph, cores: int = 1) -> None:
    """Both `run --check` and `compare` find a graph right, and its outputs are onnxruntime's."""
    for door in ("run", "compare"):
        said = fault(doors, door, made, Form(cores=cores))
        assert said is None, f"{door}: {said}\n{made.text()}"


@pytest.mark.parametrize("value", [1.5, -2.25, 0.0])
def test_padding_of_floats_is_no_whole_number(doors: Doors, value: float) -> None:
    pads, filling = np.array([0, 1, 1, 2, 0, 0, 1, 0]), np.float32(value)
    right(doors, graph([N("Pad", ["x", "p", "v"], ["y"])], {"p": pads, "v": filling}, x=(1, 3, 5, 6)))


def test_padding_of_named_axes(doors: Doors) -> None:
    constants = {"p": np.array([1, 2, 0, 1]), "v": np.float32(1.5), "a": np.array([2, 3])}
    right(doors, graph([N("Pad", ["x", "p", "v", "a"], ["y"])], constants, 18, x=(1, 3, 5, 6)))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("value", [-2.0, -0.7])
def test_padding_of_bytes_with_a_number_that_they_may_not_have(
    doors: Doors, value: float, again: bool
) -> None:
    constants: dict[str, Any] = {"p": np.array([0, 0, 2, 0, 0, 0, 0, 1]), "v": np.float32(value)}
    constants |= {"s": np.float32(0.006), "z": np.int8(-1), "t": np.float32(0.0152), "w": np.int8(4)}
    nodes = [
        N("QuantizeLinear", ["x", "s", "z"], ["a"]),
        N("DequantizeLinear", ["a", "s", "z"], ["b"]),
        N("Pad", ["b", "p", "v"], ["c" if again else "y"]),
    ]
    if again:
        nodes += [N("QuantizeLinear", ["c", "t", "w"], ["d"]), N("DequantizeLinear", ["d", "t", "w"], ["y"])]
    right(doors, graph(nodes, constants, x=(1, 3, 5, 2)))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_a_softmax_over_any_axis(doors: Doors, axis: int) -> None:
    nodes = [N("Softmax", ["x"], ["s"], axis=axis), N("Conv", ["s", "k"], ["y"])]
    right(doors, graph(nodes, {"k": floats(5, 4, 2, 2)}, x=(1, 4, 5, 6)))


def test_a_softmax_whose_result_has_another_order(doors: Doors) -> None:
    """The elements of t are the channels of a line in front, and the rows of a matrix behind."""
    nodes = [
        N("Conv", ["x", "k"], ["t"], kernel_shape=[2], pads=[0, 1]),
        N("Softmax", ["t"], ["s"], axis=2),
        N("Add", ["s", "c"], ["y"]),
    ]
    right(doors, graph(nodes, {"k": floats(38, 13, 2), "c": floats(1, 38, 1)}, x=(1, 13, 3)))


@pytest.mark.parametrize("second", ["b", "turned"])
@pytest.mark.parametrize(
    ("low", "high"),
    extent([(0, None), (-0.3, 0.2)], [(0, None), (0, 6), (0, 0.2), (-0.3, 0.2), (-0.3, None)]),
)
def test_limits_behind_a_product(doors: Doors, second: str, low: float, high: float | None) -> None:
    nodes = [N("Transpose", ["b"], ["turned"], perm=[0, 2, 1])] if second == "turned" else []
    ends = {"low": np.float32(low)} | ({} if high is None else {"high": np.float32(high)})
    nodes += [N("MatMul", ["a", second], ["t"]), N("Clip", ["t", *ends], ["y"])]
    right(doors, graph(nodes, ends, a=(1, 16, 16), b=(1, 16, 16)), cores=2)


@pytest.mark.parametrize("kind", ["LayerNormalization", "Softmax", "InstanceNormalization", "Resize"])
def test_limits_behind_other_operators(doors: Doors, kind: str) -> None:
    """Also limits that the tasks of the operator cannot have."""
    shape, more, constants = (1, 70, 64), {"axis": -1}, {"low": np.float32(0), "high": np.float32(0.25)}
    inputs = ["x"]
    if kind == "LayerNormalization":
        constants |= {"scale": floats(64), "shift": floats(64)}
        inputs += ["scale", "shift"]
    elif kind == "InstanceNormalization":
        shape, more = (1, 8, 6, 6), {}
        constants |= {"scale": floats(8), "shift": floats(8)}
        inputs += ["scale", "shift"]
    elif kind == "Resize":
        shape, more = (1, 8, 6, 6), {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        more["nearest_mode"] = "floor"
        constants |= {"scales": np.array([1, 1, 2, 2], np.float32)}
        inputs += ["", "scales"]
    nodes = [N(kind, inputs, ["t"], **more), N("Clip", ["t", "low", "high"], ["y"])]
    right(doors, graph(nodes, constants, x=shape))


@pytest.mark.parametrize("limits", [(), (0, 6), (0, None)])
@pytest.mark.parametrize("factor", [1.0, 1 / 6])
@pytest.mark.parametrize("channels", [1, 19])
def test_a_gate_with_a_number_per_channel(
    doors: Doors, limits: tuple[float | None, ...], factor: float, channels: int
) -> None:
    """x * limited(x + c), as a written-out HardSwish has it, with one c or one per channel."""
    ends = {f"end{n}": np.float32(end) for n, end in enumerate(limits) if end is not None}
    constants = {"c": floats(1, channels), "f": np.float32(factor)} | ends
    nodes = [N("Add", ["x", "c"], ["t"]), N("Clip", ["t", *ends], ["u"]), N("Mul", ["x", "u"], ["v"])]
    right(doors, graph([*nodes, N("Mul", ["v", "f"], ["y"])], constants, x=(1, 19)))


def test_a_factor_whose_unused_lanes_are_not_zero(doors: Doors) -> None:
    """Six channels leave two lanes of their atom, to which the sum adds as well."""
    nodes = [N("Add", ["b", "c"], ["t"]), N("MatMul", ["a", "t"], ["y"])]
    right(doors, graph(nodes, {"c": np.full((1, 1, 1), 1.648, np.float32)}, a=(1, 4, 4), b=(1, 4, 6)))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("kernel", "strides", "pads"),
    [
        ([1, 1], [2, 3], [0, 0, 0, 0]),
        ([2, 2], [3, 3], [0, 1, 0, 1]),
        ([3, 2], [2, 2], [1, 0, 1, 1]),
        ([3, 3], [2, 2], [0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("size", extent([(4, 5)], [(2, 2), (4, 5), (6, 7)]))
def test_pools_that_round_up(
    doors: Doors, op: str, kernel: list[int], strides: list[int], pads: list[int], size: tuple[int, int]
) -> None:
    """What follows has the size that onnxruntime gives, which leaves out windows in the trailing padding."""
    if any(n + a + b < k for n, k, a, b in zip(size, kernel, pads[:2], pads[2:], strict=True)):
        return  # the window does not fit
    pool = N(op, ["x"], ["t"], kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=1)
    made = graph([pool, N("Cos", ["t"], ["y"])], {}, x=(1, 3, *size))
    shape = Judge(made).wanted[0].shape
    model = exact_windows(made.model)
    assert onnx.shape_inference.infer_shapes(model, strict_mode=True)
    inferred = {item.name: item for item in onnx.shape_inference.infer_shapes(model).graph.value_info}["t"]
    assert tuple(dim.dim_value for dim in inferred.type.tensor_type.shape.dim) == shape
    right(doors, made)


@pytest.mark.parametrize(
    "rounding", extent(["floor"], ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
)
@pytest.mark.parametrize("corner", ["align_corners", "half_pixel", "asymmetric", "pytorch_half_pixel"])
def test_a_resize_whose_places_are_whole_numbers(doors: Doors, corner: str, rounding: str) -> None:
    """33 rows and 99: row 49 is at 49 * 32 / 98 = 16, and 49 * (32 / 98) is less."""
    how = {"mode": "nearest", "coordinate_transformation_mode": corner, "nearest_mode": rounding}
    nodes = [N("Resize", ["x", "", "scales"], ["y"], **how)]
    right(doors, graph(nodes, {"scales": np.array([1, 1, 3, 1.5], np.float32)}, x=(1, 1, 33, 10)))


def test_a_part_of_the_host_with_an_operator_that_its_runtime_lacks(doors: Doors) -> None:
    """A Resize with aligned corners goes to onnx' evaluator, which has no DequantizeLinear of opset 17."""
    how = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    nodes = [
        N("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1),
        N("Resize", ["x", "", "scales"], ["t"], **how),
        N("MatMul", ["t", "d"], ["y"]),
    ]
    constants = {
        "w": RNG.integers(-127, 128, (12, 21)).astype(np.int8),
        "s": np.full(21, 0.01, np.float32),
        "z": np.zeros(21, np.int8),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    right(doors, graph(nodes, constants, x=(1, 1, 5, 6)))


def test_outputs_without_a_shape_or_a_type(doors: Doors) -> None:
    """onnxruntime infers them, and onnx' checker refuses such a model."""
    nodes = [N("Conv", ["x", "k"], ["c"]), N("Relu", ["c"], ["y"])]
    made = graph(nodes, {"k": floats(5, 3, 3, 3)}, x=(2, 3, 8, 8))
    ends = [helper.make_empty_tensor_value_info("y"), helper.make_tensor_value_info("c", 1, None)]
    del made.model.graph.output[:]
    made.model.graph.output.extend(ends)
    right(doors, made)
