"""Constraints of the compiler: each can be met and not met, and its text names the values."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import rkcosim
from rkcosim.compiler import compile_model
from rkcosim.compiler.constraints import CONSTRAINTS, UnmetError, constraint, every_constraint, requirement
from rkcosim.compiler.graph import Tensor, Window
from rkcosim.measure.models.hosted import host_work

every_constraint()
ROWS = Tensor("t", (1, 64, 128), 1.0, 0, (128, 64, 1), channels_last=True, real=True)

CASES = {
    "known_operator": [(("Sin", True), ("Sin", False), "Sin")],
    "reads_the_npu": [((False, ("a",)), (True, ("a",)), "'a'")],
    "between_npu_operations": [
        ((1, "Relu", True), (0, "Relu", False), "Relu"),
        ((1, "Pad", True), (0, "Pad", True), "it only moves elements"),
    ],
    "followed_by_npu": [((True, "y"), (False, "y"), "'y'")],
    "readable_by_host": [
        (("y", True, True), ("y", False, True), "uses its result 'y'"),
        (("y", True, True), ("y", False, False), "'y' is not quantised"),
    ],
    "one_result": [(((),), (("i",),), "'i'")],
    "tensor_size": [(((1, 8),), ((1, 0),), "(1, 0) has 0"), (((1, 8),), ((2**14, 2**13),), "134,217,728")],
    "tensor_shape": [(((1, 2, 3, 4),), ((2, 3, 4),), "(2, 3, 4)")],
    "constant_weights": [(("w", (1,), True), ("w", (3, 4), False), "'w' (3, 4)")],
    "constant_parameter": [(("s", True), ("s", False), "'s'")],
    "quantised": [(("x", True), ("x", False), "'x'")],
    "float_type": [(("x", "float16"), ("x", "float64"), "'x' is float64")],
    "max_pool_window": [
        ((Window((3, 3)), False, (1, 800)), (Window((17, 3)), False, (8, 8)), "(17, 3)"),
        ((Window((3, 3)), False, (2, 682)), (Window((3, 3)), False, (2, 683)), "(2, 683)"),
    ],
    "average_counts_padding": [
        ((Window((3, 3)), True, True), (Window((3, 3), pads=(1, 1, 1, 1)), True, False), "(1, 1, 1, 1)")
    ],
    "average_window": [((Window((31, 31)), True), (Window((32, 31)), False), "(32, 31)")],
    "order_in_memory": [(((2, 3), (3, 2), True), ((2, 3), (3, 2), False), "(2, 3) to (3, 2)")],
    "part_of_a_view": [(((3, 4), 0, True), ((3, 4), 1, False), "axis 1 of (3, 4)")],
    "matrices_of_heads": [
        (((1, 4, 9, 16), (4, 16, 8)), ((1, 4, 9, 16), (2, 16, 8)), "(1, 4, 9, 16) times (2, 16, 8)"),
        (((2, 9, 16), (2, 16, 8)), ((9, 16), (2, 16, 8)), "(9, 16) times (2, 16, 8)"),
    ],
    "slice_steps": [(((7, 1),), ((8, 1),), "(8, 1)")],
    "pad_edges": [
        (((15, 0, 99, 0), None, True), ((16, 0, 0, 0), None, True), "(16, 0, 0, 0)"),
        (((1, 1, 1, 1), 2.5, False), ((1, 1, 1, 1), 2.5, True), "2.5"),
    ],
    "pad_mode": [(("constant", (0,) * 8), ("mirror", (0,) * 8), "mode mirror")],
    "pad_axes": [(((0, 1, 0, 0), (0,) * 4), ((1, 0, 0, 0), (0,) * 4), "(1, 0, 0, 0, 0, 0, 0, 0)")],
    "nearest_ranges": [((256, (9, 9), (7, 7)), (257, (9, 9), (7, 7)), "(9, 9) to (7, 7), 257 ranges")],
    "resize_mode": [
        (("cubic",), ("area",), "mode area"),
        (("linear",), ("linear", "antialias"), "antialias"),
    ],
    "resize_coordinates": [
        (("half_pixel", "linear"), ("tf_crop_and_resize", "linear"), "tf_crop_and_resize"),
        (("half_pixel_symmetric", "cubic"), ("half_pixel_symmetric", "nearest"), "half_pixel_symmetric"),
    ],
    "resize_sizes": [(((1, 4, 2, 2), (1, 4, 4, 4)), ((1, 4, 2, 2), (1, 5, 4, 4)), "(1, 5, 4, 4)")],
    "resize_ratio": [
        (("linear", "rows", 4, 6, True), ("linear", "rows", 4, 11, False), "linear, 4 to 11 rows")
    ],
    "resize_matrix": [
        (
            ("linear", "rows", 900, 4, 256),
            ("cubic", "columns", 900, 3, 257),
            "900 to 3 columns: 257 elements",
        ),
        (("linear", "rows", 4096, 4096, 2), ("linear", "rows", 4096, 4097, 2), "4096 to 4097 rows"),
    ],
    "resize_of_codes": [(("cubic", True), ("cubic", False), "mode cubic of bytes")],
    "block_size": [((7, True), (8, True), "8 x 8"), ((8, False), (3, False), "3 x 3")],
    "cube_axis": [((1, (1, 2, 3, 4)), (0, (1, 2, 3, 4)), "axis 0 of (1, 2, 3, 4)")],
    "input_of_floats": [((True, "x"), (False, "x"), "'x' is a tensor of bytes")],
    "softmax_axis": [((ROWS, -1), (ROWS, 1), "axis 1 of (1, 64, 128)")],
    "softmax_rows": [((2, 2), (2, 1), "1 rows of 2 channels")],
    "normalised_rows": [((2, 8191), (2, 8192), "8192 rows"), ((2, 1), (1, 1), "1 channels")],
    "worth_a_job": [((4097,), (4096,), "4096")],
    "softmax_atoms": [((49, "x", True), (49, "x", False), "49 channels of 'x'")],
    "normalised_axis": [((-1, (1, 4, 8), True), (1, (1, 4, 8), True), "axis 1 of (1, 4, 8)")],
    "normalised_range": [((("g",), True), (("g",), False), "'g'")],
    "group_count": [((2, 8), (3, 8), "3 groups of 8")],
    "pixels_of_a_map": [((2, 8), (1, 8), "8 channels of 1 pixels")],
    "window_dimensions": [(((3, 3),), ((3, 3, 3),), "(3, 3, 3)")],
    "window_limits": [
        ((Window((31, 31), (7, 7)),), (Window((32, 3)),), "(32, 3)"),
        ((Window((3, 3), dilations=(32, 1)),), (Window((3, 3), dilations=(33, 1)),), "(33, 1)"),
    ],
    "window_padding": [(((15, 15, 99, 99),), ((16, 0, 0, 0),), "(16, 0, 0, 0)")],
    "window_steps": [(((0,) * 4, (1, 1)), ((-1, 0, 0, 0), (1, 1)), "(-1, 0, 0, 0)")],
    "wide_form": [((Window((33, 3)), ""), (Window((33, 3)), "dilated"), "a dilated convolution")],
    "wide_blocks": [
        ((Window((33, 3)), 64, 8191, True), (Window((33, 3)), 64, 8191, False), "at most 64 pixels")
    ],
    "wide_copies": [((Window((11, 11), (11, 11)), 256), (Window((1, 11), (1, 11)), 257), "257 windows")],
    "wide_depthwise": [((Window((33, 1)), 2), (Window((33, 1)), 5000), "5000 channels")],
    "fused_activation": [(("RELU", True), ("TANH", False), "TANH")],
    "slice_masks": [(((),), (("ShrinkAxisMask",),), "ShrinkAxisMask")],
    "nearest_mode": [(("floor",), ("round",), "nearest_mode round")],
    "task_width": [((2047,), (2048,), "2048")],
    "fits_cbuf": [(("",), ("9 rows do not fit CBUF",), "9 rows")],
    "transposed_pads": [(((0,) * 4, "x", True), ((3, 3, 3, 3), "x", False), "(3, 3, 3, 3)")],
    "transposed_attributes": [(((),), (("auto_pad",),), "auto_pad")],
    "plain_rows": [((False,), (True,), "transA is 1")],
    "constant_matrix": [(("w", (3, 4)), ("w", None), "'w'"), (("w", (3, 4)), ("w", (2, 3, 4)), "(2, 3, 4)")],
    "product_depth": [(("x", (2, 8), 8, True), ("x", (2, 8), 9, False), "(2, 8) times depth 9")],
    "product_rows": [(("x", (1, 2, 3, 4), True), ("x", (1, 2, 3, 4), False), "'x' (1, 2, 3, 4)")],
    "two_operands": [((2,), (3,), "3 operands")],
    "operand_shapes": [(((1, 4), (1, 4), True), ((1, 4), (2, 4), False), "(1, 4) and (2, 4)")],
    "larger_dividend": [(("x", True), ("x", False), "'x'")],
    "divisor_of_bytes": [(("d", 1), ("d", 4), "4 numbers"), (("d", 1), ("d", 0), "'d' is computed")],
    "divisor_of_floats": [(("d", (1,), True), ("d", (2, 3), False), "'d' (2, 3)")],
    "finite_constant": [(("c", True), ("c", False), "'c' is"), (("c", True), ("c", False, True), "zeros")],
    "slopes_of_channels": [(("s", (1,), True), ("s", (4, 4), False), "(4, 4)")],
    "reduced_axes": [
        (
            ("mean", (2, 3), (1, 2, 3, 4), True),
            ("sum", (2, 3), (1, 2, 3, 4), False),
            "a sum over the axes [2, 3]",
        )
    ],
    "kept_dimensions": [(("rows", True), ("rows", False), "of the rows")],
    "pool_dilations": [(((1, 1),), ((2, 1),), "(2, 1)")],
    "average_inside_padding": [(((4, 4), True), ((4, 4), False), "(4, 4)")],
    "moved_channels": [((4096, 4096), (4097, 4096), "4,097 channels of 4,096")],
    "inserted_zeros": [(((8, 1),), ((3, 1),), "(3, 1)")],
    "function_of_floats": [(("Tanh", True), ("Tanh", False), "Tanh")],
    "known_function": [(("Spin", True), ("Spin", False), "Spin")],
}


@pytest.mark.parametrize("name", sorted(CONSTRAINTS))
def test_each_constraint_can_be_met_and_not_met(name: str):
    rule = CONSTRAINTS[name]
    for good, bad, text in CASES[name]:
        assert rule.reason(*good) == ""
        rule("here", *good)
        with pytest.raises(UnmetError) as error:
            rule("here", *bad)
        assert text in str(error.value) and str(error.value).startswith("here: ")
        assert error.value.constraint == name
        assert requirement(rule.reason(*bad)) == requirement(str(error.value)) != str(error.value)
    assert rule.text.endswith(".") and "{" not in rule.text


def test_a_constraint_needs_a_sentence_and_a_new_name():
    def slice_steps() -> str:
        """A sentence."""
        return ""

    for rule in (slice_steps, lambda: ""):
        with pytest.raises(ValueError, match="no sentence, or its name is in use"):
            constraint()(rule)
    assert requirement("a plain reason") == "a plain reason"


def _model(node: onnx.NodeProto, inputs: dict[str, tuple[int, ...]], **constants: np.ndarray) -> bytes:
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made).SerializeToString()


MAP = {"x": (1, 16, 8, 8)}
WIDE = {"x": (1, 64, 128)}


@pytest.mark.parametrize(
    ("node", "inputs", "constants", "reason"),
    [
        (
            helper.make_node("Conv", ["x", "kf"], ["y"], "n", group=2),
            {**MAP, "kf": (4, 8, 3, 3)},
            {},
            "'kf' (4, 8, 3, 3) is computed by the model (required: weights and bias are constants",
        ),
        (
            helper.make_node("Resize", ["x", "", "s"], ["y"], "n", mode="nearest", exclude_outside=1),
            MAP,
            {"s": np.array([1, 1, 2, 2], np.float32)},
            "mode nearest, exclude_outside (required: the mode is nearest, linear",
        ),
        (
            helper.make_node("Softmax", ["x"], ["y"], "n"),
            WIDE,
            {},
            "no operation of the NPU reads the result",
        ),
        (helper.make_node("Softmax", ["x"], ["y"], "n"), {"x": (1, 10)}, {}, "1 rows of 10 channels"),
        (
            helper.make_node("Softmax", ["x"], ["y"], "n"),
            {"x": (8, 16)},
            {},
            "it has 128 elements (required: ",
        ),
        (
            helper.make_node("Transpose", ["x"], ["y"], "n", perm=[0, 2, 3, 1]),
            MAP,
            {},
            "it only moves elements, and the NPU computes no other operation",
        ),
        (helper.make_node("Flatten", ["x"], ["y"], "n"), MAP, {}, "it only moves elements, and the NPU"),
    ],
)
def test_the_reason_is_the_constraint_that_failed(node, inputs, constants, reason):
    """A computed kernel, a Resize, a Softmax: not that a shape is not supported, or that nothing else is."""
    (said,) = host_work(compile_model(_model(node, inputs, **constants))).operators
    assert said.reason.startswith(reason) and said.kind == node.op_type


@pytest.mark.parametrize("size", [2, 4, 8])
def test_blocks_of_the_largest_size_that_the_constraint_allows(size):
    """The NPU moves them as onnxruntime does."""
    node = helper.make_node("DepthToSpace", ["x"], ["y"], "n", blocksize=size)
    data = _model(node, {"x": (1, 64, 2, 3)})
    model = rkcosim.load(data, engine="golden")
    x = np.random.default_rng(size).normal(size=(1, 64, 2, 3)).astype(np.float16).astype(np.float32)
    theirs = onnxruntime.InferenceSession(data).run(None, {"x": x})[0]
    np.testing.assert_array_equal(model(x), theirs)
    assert not host_work(compile_model(data)).operators
