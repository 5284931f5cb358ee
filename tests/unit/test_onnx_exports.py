"""ONNX files as exporters write them: functions, loops, bfloat16, codes of four bits; against onnxruntime.

What onnxruntime does not have (bfloat16) is compared with the reference evaluator of the package onnx.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import rkcosim
from rkcosim.compiler import compile_model
from rkcosim.compiler.loaders.onnx_loops import unrolled
from rkcosim.measure.models.hosted import host_work

RNG = np.random.default_rng(65)
SHAPE = (1, 8, 6, 6)
X = RNG.normal(size=SHAPE).astype(np.float32)
WEIGHTS = (RNG.normal(size=(8, 8, 3, 3)) / 9).astype(np.float32)


def _value(
    name: str, shape: tuple[int, ...] | None = SHAPE, kind: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes, constants, opset=21, functions=(), kind=TensorProto.FLOAT) -> onnx.ModelProto:
    made = [
        item if isinstance(item, onnx.TensorProto) else numpy_helper.from_array(item, name)
        for name, item in constants.items()
    ]
    graph = helper.make_graph(nodes, "g", [_value("x", SHAPE, kind)], [_value("y", SHAPE, kind)], made)
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid("own", 1)] if functions else [])]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=list(functions))
    onnx.checker.check_model(proto)
    return proto


def _whole_on_npu(proto: onnx.ModelProto, theirs: np.ndarray, tolerance: float) -> None:
    """The NPU computes all operators, with the numbers of the other runtime."""
    found = host_work(compile_model(proto.SerializeToString()))
    assert not found.operators and not found.alone
    ours = np.asarray(rkcosim.load(proto, engine="golden")(X))
    assert np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max()


def _theirs(proto: onnx.ModelProto) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": X})[0])


def _functions() -> list[onnx.FunctionProto]:
    """A function with an attribute, and one that calls it."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    leaky = helper.make_node("LeakyRelu", ["c"], ["y"])
    slope = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    leaky.attribute.append(slope)
    conv = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4)
    inner = helper.make_function("own", "Inner", ["x", "w"], ["y"], [conv, leaky], opsets, ["slope"])
    call = helper.make_node("Inner", ["x", "w"], ["y"], domain="own", slope=0.25)
    return [inner, helper.make_function("own", "Outer", ["x", "w"], ["y"], [call], opsets)]


def test_functions_of_the_file_are_put_in_place_of_their_calls():
    nodes = [
        helper.make_node("Outer", ["x", "w"], ["h"], domain="own"),
        helper.make_node("Inner", ["h", "w"], ["y"], domain="own", slope=0.5),
    ]
    proto = _model(nodes, {"w": WEIGHTS}, functions=_functions())
    _whole_on_npu(proto, _theirs(proto), 2e-3)


def _loop(turns: int, early: bool = False, scans: bool = False) -> onnx.ModelProto:
    condition = (
        helper.make_node("Less", ["n", "most"], ["go"])
        if early
        else helper.make_node("Identity", ["c"], ["go"])
    )
    nodes = [
        helper.make_node("Conv", ["s", "w"], ["h"], pads=[1] * 4),
        helper.make_node("Relu", ["h"], ["t"]),
        condition,
    ]
    more = [_value("t")] if scans else []
    body = helper.make_graph(
        nodes,
        "body",
        [_value("n", (), TensorProto.INT64), _value("c", (), TensorProto.BOOL), _value("s")],
        [_value("go", (), TensorProto.BOOL), _value("t"), *more],
        [numpy_helper.from_array(np.array(1, np.int64), "most")],
    )
    outputs = ["y", "rows"] if scans else ["y"]
    loop = helper.make_node("Loop", ["turns", "yes", "x"], outputs, "loop", body=body)
    return _model([loop], {"w": WEIGHTS, "turns": np.array(turns), "yes": np.array(True)})


def test_loops_of_a_constant_number_of_turns_are_written_out():
    proto = _loop(3)
    _whole_on_npu(proto, _theirs(proto), 2e-3)


def test_rows_of_a_loop_are_joined():
    proto = _loop(2, scans=True)
    del proto.graph.output[:]
    proto.graph.output.append(_value("rows", (2, *SHAPE)))
    written = unrolled(proto)
    assert not [node for node in written.graph.node if node.op_type == "Loop"]
    np.testing.assert_allclose(_theirs(written), _theirs(proto), rtol=1e-4, atol=1e-6)


def test_loops_that_may_end_early_stay():
    """Their condition depends on the turn; the host computes them as onnxruntime does."""
    for proto in (_loop(3, early=True), _loop(300)):
        assert unrolled(proto) is proto
    proto = _loop(3, early=True)
    np.testing.assert_array_equal(rkcosim.load(proto, engine="golden")(X), _theirs(proto))


@pytest.mark.parametrize("inside", [True, False])
def test_bfloat16_is_read_as_float32(inside):
    """The evaluator rounds each result to bfloat16, which has 8 bits; so that is the tolerance."""
    bits = (WEIGHTS.view(np.uint32) >> 16).astype(np.uint16)
    weights = helper.make_tensor("w", TensorProto.BFLOAT16, WEIGHTS.shape, bits.tobytes(), raw=True)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    kind = TensorProto.BFLOAT16
    given = X
    if inside:
        kind = TensorProto.FLOAT
        nodes[0].input[0], nodes[1].output[0] = "xb", "yb"
        nodes.insert(0, helper.make_node("Cast", ["x"], ["xb"], to=TensorProto.BFLOAT16))
        nodes.append(helper.make_node("Cast", ["yb"], ["y"], to=TensorProto.FLOAT))
    else:
        given = X.astype(helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16))
    proto = _model(nodes, {"w": weights}, opset=22, kind=kind)
    theirs = np.asarray(ReferenceEvaluator(proto).run(None, {"x": given})[0]).astype(np.float32)
    _whole_on_npu(proto, theirs, 2.0**-6)
    model = compile_model(proto.SerializeToString())
    wide = np.asarray(given).astype(np.float32)
    np.testing.assert_array_equal(model.encode_input(0, given), model.encode_input(0, wide))


@pytest.mark.parametrize("signed", [True, False], ids=["int4", "uint4"])
def test_weights_of_four_bits_are_codes_of_the_npu(signed):
    """As QDQ tools write them: int8 activations, a scale for each kernel, packed codes."""
    kind, low, zero = (TensorProto.INT4, -8, 0) if signed else (TensorProto.UINT4, 0, 8)
    codes = RNG.integers(low, low + 16, (8, 8, 3, 3))
    constants = {
        "q": helper.make_tensor("q", kind, codes.shape, codes.reshape(-1).tolist()),
        "z": helper.make_tensor("z", kind, (8,), [zero] * 8),
        "s": (RNG.random(8) / 20 + 0.01).astype(np.float32),
        "xs": np.float32(0.03),
        "ys": np.float32(0.1),
        "o": np.int8(3),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "o"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "o"], ["xd"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0),
        helper.make_node("Conv", ["xd", "w"], ["c"], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["c", "ys", "o"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "o"], ["y"]),
    ]
    proto = _model(nodes, constants)
    model = compile_model(proto.SerializeToString())
    assert not host_work(model).operators and model.plan.steps[0].weights.dtype == np.int8
    theirs = ReferenceEvaluator(proto).run(None, {"x": X})[0]
    ours = np.asarray(rkcosim.load(proto, engine="golden")(X))
    assert np.abs(ours - theirs).max() <= 0.1 * 1.001  # one step of the output


def test_blocks_of_codes_are_numbers():
    """One scale for 16 rows of a matrix (block_size), the numbers as the evaluator makes them."""
    codes = RNG.integers(-8, 8, (32, 8))
    constants = {
        "q": helper.make_tensor("q", TensorProto.INT4, codes.shape, codes.reshape(-1).tolist()),
        "s": (RNG.random((2, 8)) / 20 + 0.01).astype(np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=16),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    made = [
        item if isinstance(item, onnx.TensorProto) else numpy_helper.from_array(item, name)
        for name, item in constants.items()
    ]
    graph = helper.make_graph(nodes, "g", [_value("x", (4, 32))], [_value("y", (4, 8))], made)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert not host_work(compile_model(proto.SerializeToString())).operators
    x = RNG.normal(size=(4, 32)).astype(np.float32)
    theirs = ReferenceEvaluator(proto).run(None, {"x": x})[0]
    ours = np.asarray(rkcosim.load(proto, engine="golden")(x))
    assert np.abs(ours - theirs).max() <= 2e-3 * np.abs(theirs).max()
