"""Operators of TFLite models that LiteRT computes: partition, variables, control flow, refusals."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

from ai_edge_litert import interpreter

from rkcosim.compiler import CompiledModel, LoadedModel, ModelError, compile_model, litert
from rkcosim.compiler.host_runtimes import load_program
from rkcosim.compiler.options import using_options
from rkcosim.compiler.steps import CallStep
from rkcosim.driver import Driver
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.models.compare import compare
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.makers.tflite_models import Tf

IMAGE = (1, 6, 7, 8)


def by_litert(data: bytes, *rounds: np.ndarray) -> list[list[np.ndarray]]:
    """Outputs of the whole model for one input after another, from LiteRT's reference kernels."""
    kernels = interpreter.OpResolverType.BUILTIN_REF
    run = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=kernels)
    run.allocate_tensors()
    results = []
    for values in rounds:
        run.set_tensor(run.get_input_details()[0]["index"], values)
        run.invoke()
        results.append([np.array(run.get_tensor(item["index"])) for item in run.get_output_details()])
    return results


def by_npu(model: CompiledModel, *rounds: np.ndarray) -> list[list[np.ndarray]]:
    """Outputs on the golden device, in the order of the file; both golden levels have to agree."""
    results = []
    with Driver(GoldenNpu(1)) as driver, LoadedModel(model, driver) as loaded:
        checker = ModelChecker(loaded, "device")
        for values in rounds:
            given = values.transpose(0, 3, 1, 2) if values.ndim == 4 else values
            loaded.set_input(0, given)
            loaded.run()
            verdict = checker.check([given])
            assert verdict.match, str(verdict.first)
            made = [loaded.get_output(number, raw=True) for number in range(len(model.outputs))]
            results.append([item.transpose(0, 2, 3, 1) if item.ndim == 4 else item for item in made])
        checker.close()
    return results


def calls(model: CompiledModel) -> list[list[str]]:
    """The operators of each program of the host, in order."""
    steps = [step for step in model.plan.steps if isinstance(step, CallStep)]
    return [[item.kind for item in step.program.operators] for step in steps]


def codes(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def bilinear(t: Tf, x: int, h: int, w: int) -> int:
    size = (1, h, w, t.items[x].shape[3])
    return t.add("RESIZE_BILINEAR", [x, t.ints([h, w])], size, scale=t.items[x].scale)


def test_segmentation() -> None:
    """Resize between NPU layers, and an argument of the maximum, whose 64-bit result only the host keeps."""
    t = Tf()
    x = t.conv(t.input(IMAGE), 16, 3, 2, scale=0.4)
    y = t.conv(bilinear(t, x, 11, 13), 5, 1, scale=0.5)
    z = t.tensor((1, 11, 13), None, None, dtype="int64")
    t.nodes.append(("ARG_MAX", [y, t.ints(np.int32(3))], [z], {"OutputType": 4}))
    data = t.bytes(z)
    model = compile_model(data, reuse=False)
    assert calls(model) == [["RESIZE_BILINEAR"], ["ARG_MAX"]] and model.plan.jobs == 2
    assert model.outputs[0].dtype == np.int64 and model.outputs[0].shape == (1, 11, 13)
    ((ours,),), ((theirs,),) = by_npu(model, codes(IMAGE)), by_litert(data, codes(IMAGE))
    assert (ours == theirs).mean() > 0.9  # one step of a layer may change which one is the largest
    again = compile_model(model.save())
    assert np.array_equal(by_npu(again, codes(IMAGE))[0][0], ours)


def test_operators_stay_together() -> None:
    """Light operators between two of the host stay there, so that one program has all of them."""
    t = Tf()
    x = t.conv(t.input(IMAGE), 8, 3)
    y = t.add("RELU", [bilinear(t, x, 11, 13)], (1, 11, 13, 8))
    model = compile_model(t.bytes(t.conv(bilinear(t, y, 7, 8), 4, 1)))
    assert calls(model) == [["RESIZE_BILINEAR", "RELU", "RESIZE_BILINEAR"]] and model.plan.jobs == 2
    (step,) = [step for step in model.plan.steps if isinstance(step, CallStep)]
    first, second, third = [item.reason for item in step.program.operators]
    assert "mode linear, 6 to 11 rows (required: " in first
    assert second.startswith("its inputs ") and "are on the host (required: " in second and third != second


def test_resize_of_floats_by_a_product() -> None:
    """Ratios that bytes leave to the host; LiteRT computes in binary32."""
    t = Tf(dtype="float32")
    data = t.bytes(bilinear(t, t.conv(t.input(IMAGE), 12, 3), 11, 13))
    values = np.random.default_rng(0).normal(size=IMAGE).astype(np.float32)
    model = compile_model(data, reuse=False)
    assert not calls(model)
    ((ours,),), ((theirs,),) = by_npu(model, values), by_litert(data, values)
    assert np.abs(ours - theirs).max() <= 2.0**-9 * np.abs(theirs).max()


def test_float_on_the_host() -> None:
    """With floats on the host the result is LiteRT's binary32, to the last bit of its own kernels."""
    t = Tf(dtype="float32")
    data = t.bytes(t.dense(t.conv(t.input(IMAGE), 4, 3), 3))
    values = np.random.default_rng(0).normal(size=IMAGE).astype(np.float32)
    with using_options(floats="host"):
        model = compile_model(data)
    assert calls(model) == [["CONV_2D", "FULLY_CONNECTED"]] and model.plan.jobs == 0
    assert {item.reason for step in model.plan.steps for item in step.program.operators} == {"--float host"}
    ours, theirs = by_npu(model, values)[0][0], by_litert(data, values)[0][0]
    assert ours.dtype == np.float32 and np.abs(ours - theirs).max() < 1e-5 * np.abs(theirs).max()
    with using_options(floats="refuse"), pytest.raises(ModelError, match="--float refuse"):
        compile_model(data)
    assert compile_model(data).plan.jobs == 1


def test_bytes_and_floats() -> None:
    """int8, then floats, then int8: layers of both types on the NPU, the conversions on the host."""
    t = Tf()
    x = t.conv(t.input(IMAGE), 8, 3, scale=0.4)
    real = t.tensor(IMAGE, dtype="float32")
    t.nodes.append(("DEQUANTIZE", [x], [real], {}))
    t.dtype = "float32"
    y = t.conv(real, 8, 3)
    t.dtype = "int8"
    z = t.conv(t.add("QUANTIZE", [y], IMAGE, scale=0.4), 4, 1, scale=0.9)
    data = t.bytes(z)
    model = compile_model(data, reuse=False)
    assert calls(model) == [["DEQUANTIZE"], ["QUANTIZE"]] and model.plan.jobs == 3
    assert [step.output.real for step in model.plan.steps if step.kind == "Conv"] == [False, True, False]
    ours, theirs = by_npu(model, codes(IMAGE))[0][0], by_litert(data, codes(IMAGE))[0][0]
    assert np.abs(ours.astype(int) - theirs).max() <= 2
    with using_options(floats="host"):
        model = compile_model(data, reuse=False)
    assert calls(model) == [["DEQUANTIZE", "CONV_2D", "QUANTIZE"]] and model.plan.jobs == 2


def test_wide_activations() -> None:
    """Activations of 16 bits with weights of 8 run on the host; the result has the file's codes."""
    t = Tf()
    x = t.input(IMAGE, 0.001, 0)
    y = t.conv(x, 4, 3, scale=0.002, zero=0)
    t.items[x].dtype = t.items[y].dtype = "int16"
    bias = t.items[t.nodes[0][1][2]]
    bias.dtype, bias.data = "int64", bias.data.astype(np.int64)  # type: ignore[union-attr]
    data = t.bytes(y)
    model = compile_model(data)
    assert calls(model) == [["CONV_2D"]] and model.plan.jobs == 0
    assert (model.inputs[0].dtype, model.outputs[0].scale) == (np.int16, np.float32(0.002))
    values = np.random.default_rng(0).integers(-30000, 30000, IMAGE).astype(np.int16)
    assert np.array_equal(by_npu(model, values)[0][0], by_litert(data, values)[0][0])


def streaming() -> bytes:
    """A model that adds its last input: a variable that another subgraph sets to a constant."""
    t = Tf()
    x = t.input(IMAGE)
    once, first = Tf(), codes(IMAGE, 7)
    handle = once.tensor((), None, None, dtype="resource")
    value = once.tensor(IMAGE, data=first)
    once.nodes += [
        ("VAR_HANDLE", [], [handle], {"SharedName": "last"}),
        ("ASSIGN_VARIABLE", [handle, value], [], {}),
    ]
    t.others.append(once)
    t.nodes.append(("CALL_ONCE", [], [], {"InitSubgraphIndex": 1}))
    handle = t.tensor((), None, None, dtype="resource")
    t.nodes.append(("VAR_HANDLE", [], [handle], {"SharedName": "last"}))
    before = t.add("READ_VARIABLE", [handle], IMAGE)
    total = t.add("ADD", [x, before], IMAGE, scale=0.11)
    t.nodes.append(("ASSIGN_VARIABLE", [handle, x], [], {}))
    return t.bytes(t.conv(total, 4, 3))


def test_variables_in_a_comparison(tmp_path: Path) -> None:
    """`compare` carries the variables from one inference to the next, as LiteRT does."""
    file = tmp_path / "streaming.tflite"
    file.write_bytes(streaming())
    rounds = [[(codes(IMAGE, seed).transpose(0, 3, 1, 2) + 3) * np.float32(0.05)] for seed in (1, 2, 3)]
    found = compare(file, rounds)
    assert found.match and max(output.worst for output in found.outputs) <= 1.01


def test_variables_outlive_an_inference() -> None:
    data = streaming()
    rounds = [codes(IMAGE, seed) for seed in (1, 2, 3)]
    model = compile_model(data, reuse=False)
    assert calls(model) == [] and len(model.graph.states) == 1
    theirs = by_litert(data, *rounds)
    for each in (model, compile_model(data, reuse=True), compile_model(model.save())):
        ours = by_npu(each, *rounds)
        for (a,), (b,) in zip(ours, theirs, strict=True):
            assert np.abs(a.astype(int) - b).max() <= 1
    assert not np.array_equal(theirs[1][0], by_litert(data, rounds[1])[0][0])  # the variable counts


def test_variable_of_the_host() -> None:
    """A variable that only the host's operators use, of a type that the NPU does not have."""
    t = Tf()
    x = t.input(IMAGE)
    once = Tf()
    handle = once.tensor((), None, None, dtype="resource")
    value = once.tensor((), None, None, dtype="int32", data=np.array(5, np.int32))
    once.nodes += [
        ("VAR_HANDLE", [], [handle], {"SharedName": "count"}),
        ("ASSIGN_VARIABLE", [handle, value], [], {}),
    ]
    t.others.append(once)
    t.nodes.append(("CALL_ONCE", [], [], {"InitSubgraphIndex": 1}))
    handle = t.tensor((), None, None, dtype="resource")
    t.nodes.append(("VAR_HANDLE", [], [handle], {"SharedName": "count"}))
    before, after = (t.tensor((), None, None, dtype="int32") for _ in range(2))
    t.nodes.append(("READ_VARIABLE", [handle], [before], {}))
    t.nodes.append(("ADD", [before, t.ints(np.int32(3))], [after], {}))
    t.nodes.append(("ASSIGN_VARIABLE", [handle, after], [], {}))
    data = t.bytes(t.conv(x, 4, 1), after)
    rounds = [codes(IMAGE)] * 3
    ours = [int(item[1]) for item in by_npu(compile_model(data), *rounds)]
    assert ours == [8, 11, 14] == [int(item[1]) for item in by_litert(data, *rounds)]


def branching() -> bytes:
    """IF over the sum of the input's convolution: one of two subgraphs gets it."""
    t = Tf(dtype="float32")
    y = t.conv(t.input(IMAGE), 4, 3)
    total = t.add("SUM", [y, t.ints([0, 1, 2, 3])], ())
    large = t.tensor((), dtype="bool")
    zero = t.tensor((), data=np.array(0, np.float32))
    t.nodes.append(("GREATER", [total, zero], [large], {}))
    shape = t.items[y].shape
    for kind in ("ABS", "NEG"):
        other = Tf(dtype="float32")
        other.outputs = [other.add(kind, [other.input(shape)], shape)]
        t.others.append(other)
    z = t.tensor(shape)
    t.nodes.append(("IF", [large, y], [z], {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}))
    return t.bytes(z)


def test_control_flow() -> None:
    data = branching()
    model = compile_model(data)
    assert calls(model) == [["SUM", "GREATER", "IF"]] and model.plan.jobs == 1
    for seed in range(4):
        values = np.random.default_rng(seed).normal(size=IMAGE).astype(np.float32)
        ours, theirs = by_npu(model, values)[0][0], by_litert(data, values)[0][0]
        assert np.abs(ours - theirs).max() < 3e-3 * np.abs(theirs).max()


def test_signatures(tmp_path: Path) -> None:
    """The first subgraph runs, unless a signature is named; for an unknown name the known ones are listed."""
    t, other = Tf(), Tf()
    y = t.conv(t.input(IMAGE), 4, 3)
    other.outputs = [other.conv(other.input(IMAGE), 9, 1)]
    t.others.append(other)
    t.signatures = {"small": 0, "large": 1}
    data = t.bytes(y)
    assert compile_model(data).outputs[0].shape == (1, 4, 6, 7)
    file = tmp_path / "two.tflite"
    file.write_bytes(data)
    with using_options(signature="large"):
        assert compile_model(data).outputs[0].shape == (1, 9, 6, 7)
        found = compare(file)
    assert found.match and found.layers[0].elements == 9 * 6 * 7
    with using_options(signature="medium"), pytest.raises(ModelError, match=r"'medium'.*'small', 'large'"):
        compile_model(data)


def test_flatten_of_keras() -> None:
    """The shape that Flatten computes is not needed: the file has it."""
    t = Tf()
    x = t.conv(t.input(IMAGE), 4, 3, 2)
    shape = t.add("SHAPE", [x], (4,))
    batch = t.tensor((), None, None, dtype="int32")
    ends = [t.ints([0]), t.ints([1]), t.ints([1])]
    t.nodes.append(("STRIDED_SLICE", [shape, *ends], [batch], {"ShrinkAxisMask": 1}))
    packed = t.tensor((2,), None, None, dtype="int32")
    t.nodes.append(("PACK", [batch, t.ints(np.int32(48))], [packed], {"ValuesCount": 2}))
    t.items[shape].dtype, t.items[shape].scale = "int32", None
    flat = t.add("RESHAPE", [x, packed], (1, 48), scale=t.items[x].scale)
    model = compile_model(t.bytes(t.dense(flat, 3)))
    assert calls(model) == [] and model.plan.jobs == 1
    assert [step.kind for step in model.plan.steps] == ["Conv", "FullyConnected"]


def test_flatten_on_the_host() -> None:
    """A RESHAPE of the host gets its shape from the file if the shape is computed elsewhere."""
    t = Tf()
    y = bilinear(t, t.conv(t.input(IMAGE), 4, 3, 2), 11, 13)
    shape = t.tensor((4,), None, None, dtype="int32")
    t.nodes.append(("SHAPE", [y], [shape], {"OutType": 2}))
    ends = [t.ints([0]), t.ints([1]), t.ints([1])]
    batch, packed = t.tensor((), None, None, dtype="int32"), t.tensor((2,), None, None, dtype="int32")
    t.nodes.append(("STRIDED_SLICE", [shape, *ends], [batch], {"ShrinkAxisMask": 1}))
    t.nodes.append(("PACK", [batch, t.ints(np.int32(572))], [packed], {"ValuesCount": 2}))
    data = t.bytes(t.dense(t.add("RESHAPE", [y, packed], (1, 572)), 3))
    model = compile_model(data, reuse=False)
    assert calls(model) == [["RESIZE_BILINEAR", "RESHAPE"]]
    ours, theirs = by_npu(model, codes(IMAGE))[0][0], by_litert(data, codes(IMAGE))[0][0]
    assert np.abs(ours.astype(int) - theirs).max() <= 2


def test_constants_are_folded() -> None:
    """LiteRT computes operators of constants while the model is compiled."""
    t = Tf()
    x = t.input(IMAGE)
    doubled = t.tensor((2,), None, None, dtype="int32")
    t.nodes.append(("MUL", [t.ints([6, 7]), t.ints([2, 2])], [doubled], {}))
    y = t.add("RESIZE_NEAREST_NEIGHBOR", [x, doubled], (1, 12, 14, 8))
    model = compile_model(t.bytes(t.conv(y, 4, 1)))
    assert calls(model) == [] and model.plan.jobs == 1


def test_shapes_that_depend_on_values() -> None:
    """A tensor without a known shape stays inside one program, if the results after it have one."""
    t = Tf()
    y = t.conv(t.input(IMAGE), 4, 1)
    places, count = (t.tensor(shape, None, None, dtype="int64") for shape in ((), (1, 1)))
    t.nodes.append(("WHERE", [t.add("ABS", [y], t.items[y].shape)], [places], {}))
    t.nodes.append(("REDUCE_MAX", [places, t.ints([0, 1])], [count], {"KeepDims": True}))
    data = t.bytes(count)
    model = compile_model(data)
    assert calls(model)[-1][-2:] == ["WHERE", "REDUCE_MAX"]
    assert by_npu(model, codes(IMAGE))[0][0].tolist() == by_litert(data, codes(IMAGE))[0][0].tolist() == [[6]]


def batched(t: Tf, shape: tuple[int, ...]) -> int:
    """A network on a batch: with a sum, constants of the whole batch, and an operator of the host."""
    count = shape[0]
    x = t.conv(t.input(shape), 16, 3, 2, FusedActivationFunction=1)
    y = t.conv(t.depthwise(x, 3), 16, 1)
    x = t.add("ADD", [x, y], t.items[x].shape, scale=0.9)
    x = t.add("ADD", [x, t.constant(t.items[x].shape, 0.02)], t.items[x].shape, scale=0.9)
    edges = t.ints([[0, 0], [1, 1], [0, 0], [0, 0]])
    x = t.add("PAD", [x, edges], (count, 5, 4, 16), scale=0.9)
    x = t.add("RESIZE_BILINEAR", [x, t.ints([13, 6])], (count, 13, 6, 16), scale=0.9)
    x = t.add("MEAN", [t.conv(x, 8, 1), t.ints([1, 2])], (count, 8), scale=0.5)
    return t.dense(x, 5)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_batches(dtype: str) -> None:
    """The NPU computes the samples one after another, with the weights once; the host divides and joins."""
    t, one = Tf(dtype=dtype), Tf(dtype=dtype)
    shape = (3, *IMAGE[1:])
    data = t.bytes(batched(t, shape))
    model = compile_model(data, reuse=False)
    single = compile_model(one.bytes(batched(one, IMAGE)))
    assert model.inputs[0].shape == (3, 8, 6, 7) and model.outputs[0].shape == (3, 5)
    on_host = ["RESIZE_BILINEAR"] * 3 in calls(model)  # the NPU has it for floats
    assert on_host == (dtype == "int8")
    assert len(model.plan.tasks) >= 3 * len(single.plan.tasks)
    assert len(model.plan.weights) < 2 * len(single.plan.weights)
    values = codes(shape) if dtype == "int8" else codes(shape).astype(np.float32) / 64
    ours, theirs = by_npu(model, values)[0][0].astype(float), by_litert(data, values)[0][0]
    assert np.abs(ours - theirs).max() <= (2 if dtype == "int8" else 3e-3 * np.abs(theirs).max())


def test_batch_that_is_mixed() -> None:
    """An operator that mixes samples gets the whole batch, on the host."""
    t = Tf()
    x = t.conv(t.input((2, 6, 7, 8)), 4, 1, scale=0.3)
    turned = t.add("TRANSPOSE", [x, t.ints([1, 0, 2, 3])], (6, 2, 7, 4), scale=0.3)
    model = compile_model(t.bytes(turned), reuse=False)
    assert calls(model)[0] == ["SPLIT"] and calls(model)[1][-1] == "TRANSPOSE"
    values = codes((2, 6, 7, 8))
    ours, theirs = by_npu(model, values)[0][0], by_litert(t.bytes(turned), values)[0][0]
    assert np.abs(ours.astype(int) - theirs).max() <= 1


def custom(t: Tf) -> int:
    y = t.conv(t.input(IMAGE), 4, 1)
    return t.add("CUSTOM edgetpu-custom-op", [y], t.items[y].shape, custom=b"\1\2\3\4")


def test_transposed_convolution_of_mediapipe(tmp_path: Path) -> None:
    """The custom operator with a bias is the standard one, on the NPU and for LiteRT."""
    t, file = Tf(dtype="float32"), tmp_path / "custom.tflite"
    x = t.input(IMAGE)
    weights, _ = t.weights((5, 2, 2, 8), 0)
    options = np.array([1, 2, 2], "<i4").tobytes()
    y = t.add(
        "CUSTOM Convolution2DTransposeBias", [x, weights, t.bias(5, 1.0)], (1, 12, 14, 5), custom=options
    )
    file.write_bytes(t.bytes(y))
    model = compile_model(file.read_bytes())
    assert [step.kind for step in model.plan.steps] == ["ConvTranspose"]
    found = compare(file)
    assert found.match and len(found.layers) == 1
    with using_options(floats="host"):
        assert calls(compile_model(file.read_bytes())) == [["TRANSPOSE_CONV"]]


def wrong_shape(t: Tf) -> int:
    x = t.conv(t.input(IMAGE), 4, 1)
    return t.add("RESIZE_BILINEAR", [x, t.ints([12, 14])], (1, 12, 15, 4))


def dynamic(t: Tf) -> int:
    y = t.conv(t.input(IMAGE), 4, 1)
    places = t.tensor((), None, None, dtype="int64")
    t.nodes.append(("WHERE", [y], [places], {}))
    return places


REFUSED: dict[str, tuple[str, Callable[[Tf], int]]] = {
    "custom": (r"CUSTOM edgetpu-custom-op 't4': neither the NPU nor LiteRT .* --outputs", custom),
    "data": ("output 't4' has a shape that depends on the values", dynamic),
    "shape": (r"'t5' is \(1, 12, 15, 4\) in the file, but LiteRT computes \(1, 12, 14, 4\)", wrong_shape),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    words, build = REFUSED[name]
    t = Tf()
    with pytest.raises(ModelError, match=words):
        compile_model(t.bytes(build(t)))


def test_outputs_before_a_custom_operator(tmp_path: Path) -> None:
    """The part before an unknown operator compiles, and LiteRT gets the same part for a comparison."""
    t, file = Tf(), tmp_path / "custom.tflite"
    data = t.bytes(custom(t))
    file.write_bytes(data)
    with using_options(outputs=("t3",)):
        assert compile_model(data).outputs[0].name == "t3"
        found = compare(file)
    assert found.match and len(found.layers) == 1 and not found.skipped
    with using_options(outputs=("t99",)), pytest.raises(ModelError, match="'t99'"):
        compile_model(data)


def test_without_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the message names the extra; models for the NPU alone still compile."""
    monkeypatch.setitem(sys.modules, "ai_edge_litert.schema_py_generated", None)
    t = Tf()
    x = t.conv(t.input(IMAGE), 4, 3)
    data = t.bytes(x)
    assert compile_model(data).plan.jobs == 1
    with pytest.raises(ModelError, match=r"LiteRT, which is not installed: pip install 'rkcosim\[litert\]'"):
        compile_model(t.bytes(bilinear(t, x, 11, 14)))


def endless() -> bytes:
    """WHILE whose condition is always true."""
    t = Tf(dtype="float32")
    x = t.input((1, 4))
    condition, body = Tf(dtype="float32"), Tf(dtype="float32")
    given = condition.input((1, 4))
    true = condition.tensor((), dtype="bool")
    zero = condition.tensor((), data=np.array(0, np.float32))
    total = condition.add("SUM", [given, condition.ints([0, 1])], ())
    square = condition.add("MUL", [total, zero], ())
    condition.nodes.append(("EQUAL", [square, zero], [true], {}))
    condition.outputs = [true]
    body.outputs = [body.add("NEG", [body.input((1, 4))], (1, 4))]
    t.others = [condition, body]
    return t.bytes(t.add("WHILE", [x], (1, 4), CondSubgraphIndex=1, BodySubgraphIndex=2))


def test_endless_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program without end is ended; the next one gets a new process."""
    run = load_program("litert", endless(), (), ())
    monkeypatch.setattr(litert, "LONGEST", 0.5)
    with pytest.raises(ModelError, match="more than"):
        run([np.ones((1, 4), np.float32)])
    monkeypatch.undo()
    t = Tf()
    data = t.bytes(t.add("RELU", [t.input((1, 4))], (1, 4)))
    assert load_program("litert", data, (), ())([np.zeros((1, 4), np.int8)])[0].shape == (1, 4)


def test_ended_process() -> None:
    """A program that was loaded before LiteRT's process ended is loaded again."""
    t = Tf(seed=8)
    run = load_program("litert", t.bytes(t.add("RELU", [t.input((1, 9))], (1, 9))), (), ())
    before = run([codes((1, 9))])
    assert litert._WORKER.process is not None
    litert._WORKER.process.kill()
    with pytest.raises(ModelError, match="signal 9"):
        run([codes((1, 9))])
    assert np.array_equal(run([codes((1, 9))]), before)
