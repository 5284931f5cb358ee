"""Parts of a model in another runtime: partition, programs, conversions, containers, both golden levels."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rkcosim.compiler import CompiledModel, LoadedModel, ModelError, compile_model
from rkcosim.compiler import graph as g
from rkcosim.compiler.host_calls import given_to, taken
from rkcosim.compiler.host_runtimes import load_program
from rkcosim.compiler.partition import join_parts
from rkcosim.compiler.steps import CallStep
from rkcosim.driver import Driver
from rkcosim.golden.task import GoldenNpu
from rkcosim.verify.crosscheck.model_check import ModelChecker

FLOAT = TensorProto.FLOAT


def build(parts: Sequence[g.HostPart], takes: Sequence[str], gives: Sequence[str]) -> g.Program:
    """One ONNX model of float32 values of all nodes."""
    ends = [[helper.make_tensor_value_info(name, FLOAT, None) for name in names] for names in (takes, gives)]
    graph = helper.make_graph([part.part for part in parts], "part", *ends)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    ports = [tuple(g.Port(name, "float32") for name in names) for names in (takes, gives)]
    data = np.frombuffer(proto.SerializeToString(), np.uint8)
    return g.Program(parts[0].runtime, data, *ports)


def part(kind: str, inputs: Sequence[str], output: str, runtime: str = "onnxruntime") -> g.HostPart:
    node = helper.make_node(kind, list(inputs), [output])
    said = g.HostOperator(output, kind, "a test", 48)
    return g.HostPart(output, tuple(inputs), output, part=node, runtime=runtime, operator=said)


def network(runtime: str = "onnxruntime") -> g.Graph:
    """x -> Abs, Neg (host) -> Relu (NPU) -> Exp (host), and Sin of x for the sum at the end."""
    graph = g.Graph("mixed")
    for name, scale in (("x", 0.1), ("n", 0.05), ("r", 0.04)):
        graph.tensors[name] = g.Tensor(name, (1, 3, 4, 4), scale, 3, (3, 4, 4), unsigned=name == "n")
    for name in ("a", "e", "s", "y"):
        graph.tensors[name] = g.host_tensor(name, (1, 3, 4, 4), np.float32)
    graph.ops = [
        part("Abs", ["x"], "a", runtime),
        part("Neg", ["a"], "n", runtime),
        g.Rescale("relu", ("n",), "r", "Relu", clamp=g.Clamp(-2.0)),
        part("Sin", ["a"], "s", runtime),
        part("Exp", ["r"], "e", runtime),
        part("Add", ["e", "s"], "y", runtime),
    ]
    graph.inputs.append(g.GraphInput("x", "x", (1, 3, 4, 4)))
    graph.outputs.append(g.GraphOutput("y", (1, 3, 4, 4), "y", False))
    return graph


def compiled(runtime: str = "onnxruntime") -> CompiledModel:
    graph = network(runtime)
    join_parts(graph, build)
    return CompiledModel(graph)


def test_parts_are_joined_and_stay_convex() -> None:
    calls = [step for step in compiled().plan.steps if isinstance(step, CallStep)]
    kinds = [[item.kind for item in step.program.operators] for step in calls]
    assert kinds == [["Abs", "Neg", "Sin"], ["Exp", "Add"]]
    assert [t.name for t in calls[0].outputs] == ["n", "s"]
    assert "a" not in compiled().graph.tensors  # only the first program sees it


@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx-reference"])
def test_run_and_both_golden_levels(runtime: str) -> None:
    model = compile_model(compiled(runtime).save())  # through a container
    codes = np.arange(-24, 24, dtype=np.int8).reshape(1, 3, 4, 4)
    with Driver(GoldenNpu(1)) as driver, LoadedModel(model, driver) as loaded:
        loaded.set_input(0, codes)
        report = loaded.run()
        result = loaded.get_output(0)
        assert ModelChecker(loaded).check([codes]).match
        loaded.memory("y")[:4] = 255
        verdict = ModelChecker(loaded).check([codes])
        assert verdict.first is not None and verdict.first.tensor == "y"
        loaded.memory("s")[:4] = 255
        verdict = ModelChecker(loaded).check([codes])
        assert verdict.first is not None and verdict.first.tensor == "s"
    x = np.abs((codes.astype(np.float32) - 3) * np.float32(0.1))
    n = np.clip(np.rint(-x / np.float32(0.05)) + 131, 0, 255) - 131
    r = np.clip(np.rint(np.maximum(n * 0.05, -2.0) / 0.04), -131, 124) * 0.04
    np.testing.assert_allclose(result, np.exp(r) + np.sin(x), atol=0.05)
    assert [(row.target, len(row.hosted)) for row in report.layers] == [("host", 3), ("npu", 0), ("host", 2)]
    assert report.layers[0].elements == 144


def test_ports_of_channels_last_and_codes() -> None:
    tensor = g.Tensor("t", (1, 2, 3, 4), 0.5, -128, (2, 3, 4), unsigned=True)
    cube = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
    port = g.Port("p", "uint8", (0, 2, 3, 1))
    codes = taken(cube, tensor, port)
    assert codes.shape == (1, 3, 4, 2) and codes[0, 0, 1].tolist() == [129, 141]
    np.testing.assert_array_equal(given_to(codes, tensor, port), cube)
    reals = taken(cube, tensor, g.Port("p", "float32", (0, 2, 3, 1)))
    np.testing.assert_array_equal(reals, codes * np.float32(0.5))
    np.testing.assert_array_equal(given_to(reals, tensor, g.Port("p", "float32", (0, 2, 3, 1))), cube)
    halves = g.Tensor("h", (2, 3), 1.0, 0, (3, 2, 1), real=True)
    values = np.arange(6, dtype=np.float16).reshape(3, 2, 1)
    assert taken(values, halves, g.Port("h", "float32")).tolist() == [[0, 2, 4], [1, 3, 5]]
    with pytest.raises(ModelError, match=r"the result 'p' is \(1, 2, 3, 4\), not \(1, 3, 4, 2\)"):
        given_to(codes.reshape(1, 2, 3, 4), tensor, port)


def test_a_missing_runtime_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match=r"in onnxruntime, which is not .*: pip install 'rkcosim\[onnx\]'"):
        load_program("onnxruntime", b"no program was read before with these bytes", [], [])
    with pytest.raises(ModelError, match="runtime 'none', which is not known"):
        load_program("none", b"", [], [])


def test_programs_with_data_in_other_files_are_refused() -> None:
    tensor = helper.make_tensor("w", FLOAT, [1], [1.0])
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    body = helper.make_graph([], "g", [], [helper.make_tensor_value_info("w", FLOAT, [1])], [tensor])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    cond = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph([branch], "g", [cond], [helper.make_tensor_value_info("y", FLOAT, [1])])
    data = helper.make_model(graph).SerializeToString()
    for runtime in ("onnxruntime", "onnx-reference"):
        with pytest.raises(ModelError, match="tensor 'w' is in another file"):
            load_program(runtime, data, ["c"], ["y"])
    with pytest.raises(ModelError, match="refuses a part of the model"):
        load_program("onnxruntime", onnx.ModelProto().SerializeToString(), [], [])
