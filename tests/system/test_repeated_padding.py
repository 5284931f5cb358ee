"""Padding with copies of rows and columns on the NPU, against onnxruntime and LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the extra onnx")

import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from rkcosim.compiler import compile_model
from rkcosim.compiler.steps import CallStep, HostStep
from tests.system.golden_runs import checked_run

MAP, SIGNAL = (1, 11, 7, 9), (1, 11, 40)


@pytest.mark.parametrize(
    "mode, shape, pads, axes",
    [
        ("reflect", MAP, [0, 0, 3, 2, 0, 0, 1, 4], None),
        ("edge", MAP, [0, 0, 3, 2, 0, 0, 1, 4], None),
        ("wrap", MAP, [1, 2, 3, 0], [2, 3]),
        ("edge", MAP, [0] * 8, None),
        ("reflect", SIGNAL, [0, 0, 20, 0, 0, 17], None),
        ("edge", SIGNAL, [0, 0, 0, 0, 0, 30], None),
    ],
)
@pytest.mark.parametrize("codes", [False, True])
def test_onnx(
    mode: str, shape: tuple[int, ...], pads: list[int], axes: list[int] | None, codes: bool
) -> None:
    """Each element is that of onnxruntime, bit for bit."""
    constants = {"pads": np.array(pads), "s": np.array(0.05, np.float32), "z": np.array(3, np.int8)}
    names = ["x", "pads", "", "axes"] if axes else ["x", "pads"]
    if axes:
        constants["axes"] = np.array(axes)
    nodes = [helper.make_node("Pad", ["d" if codes else "x", *names[1:]], ["p"], "pad", mode=mode)]
    if codes:
        before = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q")
        nodes = [before, helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "d"), *nodes]
        nodes.append(helper.make_node("QuantizeLinear", ["p", "s", "z"], ["c"], "c"))
        nodes.append(helper.make_node("DequantizeLinear", ["c", "s", "z"], ["y"], "y"))
    else:
        nodes.append(helper.make_node("Neg", ["p"], ["y"], "neg"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None))]
    numbers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "padding", ends[:1], ends[1:], numbers)
    opset = [helper.make_opsetid("", 19)]
    data = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    x = (
        (np.random.default_rng(len(pads)).integers(-90, 90, shape) * 0.05)
        .astype(np.float16)
        .astype(np.float32)
    )
    want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    model = compile_model(data)
    assert not [step for step in model.plan.steps if isinstance(step, HostStep | CallStep)]
    if codes:
        x = np.clip(np.rint(x / 0.05) + 3, -128, 127).astype(np.int8)
        want = np.clip(np.rint(want / 0.05) + 3, -128, 127).astype(np.int8)
    assert (checked_run(model, [x]).reshape(want.shape) == want).all()


@pytest.mark.parametrize("mode, dtype", [(0, "float32"), (1, "int8")])
def test_mirror_pad(mode: int, dtype: str, tmp_path: Path) -> None:
    """MIRROR_PAD of TFLite: without the edge (REFLECT), and with it (SYMMETRIC)."""
    pytest.importorskip("tflite", reason="needs the extra tflite")
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    from rkcosim.measure.models.compare import compare
    from tests.makers.tflite_models import Tf

    t = Tf(seed=5, dtype=dtype)
    x = t.conv(t.input((1, 6, 5, 4)), 8, 3)
    pads = t.ints([[0, 0], [2, 1], [4, 3], [0, 0]])
    y = t.add("MIRROR_PAD", [x, pads], (1, 9, 12, 8), scale=t.items[x].scale, zero=t.items[x].zero, Mode=mode)
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(t.conv(y, 8, 3)))
    model = compile_model(file.read_bytes())
    assert not [step for step in model.plan.steps if isinstance(step, HostStep | CallStep)]
    found = compare(file, seed=1)
    assert found.match and len(found.layers) == 3
