"""Products of two activations in int8: equal on RTL and both golden levels, within a step of the runtimes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.steps import ProductStep, SumsStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.measure.models.compare import compare
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker
from tests import seeds
from tests.makers.attention import Attention
from tests.makers.tflite_models import Tf
from tests.system.qdq_models import Net, quantise, reference
from tests.system.test_compiler_golden import run
from tests.system.test_products import BLOCKS, hosted, products

SCALES = (0.02, 0.03)
"""Steps of the factors."""


def attention(block: Attention, seed: int = 0, **options: bool) -> tuple[bytes, np.ndarray]:
    """Return a block that onnxruntime has quantised, and an input."""
    net = Net((1, block.tokens, block.width), seed)
    model = net.model(block.add(net, "x"))
    inputs = [net.rng.normal(size=net.shape).astype(np.float32) for _ in range(3)]
    return quantise(model, inputs, **options), inputs[0]


def verdict(model: CompiledModel, *inputs: np.ndarray) -> np.ndarray:
    """Run a model on the task-level golden model, compare all tensors with graph level, return the output."""
    with GoldenDriver() as driver, LoadedModel(model, driver) as loaded:
        for index, values in enumerate(inputs):
            loaded.set_input(index, values)
        loaded.run()
        checker = ModelChecker(loaded, "golden")
        found = checker.check(list(inputs))
        assert found.match, str(found.first)
        checker.close()
        return loaded.get_output(0)


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("name", BLOCKS)
def test_attention(name: str, unsigned: bool, tmp_path: Path) -> None:
    """Of a quantised attention only the Softmax runs on the host; every layer is within its bound."""
    data, x = attention(BLOCKS[name], unsigned=unsigned)
    model = compile_model(data, reuse=False)
    assert hosted(model) == ["Softmax"] and products(model) == 2
    got, want = verdict(model, x), reference(data, x)
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()  # some steps of 1/127 of seven layers
    path = tmp_path / "attention.onnx"
    path.write_bytes(data)
    found = compare(path)
    assert sum(row.kind == "product" for row in found.layers) >= 2
    assert [(row.name, row.worst) for row in found.layers if not row.good] == []


def test_heads_within_atoms() -> None:
    """Heads of 24 channels: the host brings factors and result into rows, the products run on the NPU."""
    data, x = attention(Attention(18, 48, 2), 3)
    model = compile_model(data, reuse=False)
    assert set(hosted(model)) == {"Rearrange", "Softmax"} and products(model) == 2
    got, want = verdict(model, x), reference(data, x)
    assert np.abs(got - want).max() < 0.02 * np.abs(want).max()


def test_symmetric_codes() -> None:
    """Without a zero point of the first factor no sums of columns are computed."""
    data, x = attention(BLOCKS["two heads"], symmetric=True)
    model = compile_model(data, reuse=False)
    assert products(model) == 2 and not [step for step in model.plan.steps if isinstance(step, SumsStep)]
    verdict(model, x)


@pytest.mark.parametrize("block", [BLOCKS["many rows"], Attention(33, 48, 2)])
def test_memory_is_shared(block: Attention) -> None:
    """Tensors that share memory, which is full of ones before, give the same codes."""
    data, x = attention(block, 5)
    apart, _ = run(compile_model(data, reuse=False), x)
    with GoldenDriver() as driver, LoadedModel(compile_model(data, reuse=True), driver) as loaded:
        region = loaded.buffers["activations"]
        region.view(0, loaded.model.plan.activation_bytes)[:] = 0xFF
        loaded.set_input(0, x)
        loaded.run()
        assert np.array_equal(loaded.get_output(0), apart)


def test_compiled_file() -> None:
    """A compiled model file keeps the products."""
    data, x = attention(BLOCKS["scaled keys"])
    model = compile_model(data, reuse=False)
    loaded = compile_model(model.save())
    assert products(loaded) == 2
    assert np.array_equal(run(loaded, x)[0], run(model, x)[0])


def product_model(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], zeros: tuple[int, int, int], kind: str
) -> tuple[bytes, float]:
    """Return a QDQ model of one product of its two inputs, and the step of its result."""
    first, second = shapes
    step = SCALES[0] * SCALES[1] * 30 * first[-1] ** 0.5
    tensors, nodes = [], []
    for name, zero, scale in zip("aby", zeros, (*SCALES, step), strict=True):
        tensors.append(numpy_helper.from_array(np.array(scale, np.float32), f"{name}_scale"))
        tensors.append(numpy_helper.from_array(np.array(zero, kind), f"{name}_zero"))

    def coded(name: str, source: str, made: str) -> None:
        coding = [f"{name}_scale", f"{name}_zero"]
        nodes.append(helper.make_node("QuantizeLinear", [source, *coding], [f"{name}_codes"], f"{name}_q"))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_codes", *coding], [made], f"{name}_d"))

    coded("a", "a", "a_real")
    coded("b", "b", "b_real")
    nodes.append(helper.make_node("MatMul", ["a_real", "b_real"], ["product"], name="product"))
    coded("y", "product", "y")
    ends = {"a": first, "b": second, "y": (*first[:-1], second[-1])}
    a, b, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in ends.items())
    graph = helper.make_graph(nodes, "product", [a, b], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), step


def steps_apart(data: bytes, step: float, got: np.ndarray, a: np.ndarray, b: np.ndarray) -> int:
    """Return the largest distance from onnxruntime's result in steps."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"a": a, "b": b})
    return int(np.rint(np.abs(got - want) / step).max())


def test_random_products() -> None:
    """Products of random shapes and zero points are within a step of onnxruntime's."""
    seed = seeds.seed(__name__)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(16):
        rows, depth, columns = (int(n) for n in rng.integers(1, 100, 3))
        batch = [(), (1,), (3,), (1, 2)][int(rng.integers(4))]
        kind = str(rng.choice(["int8", "uint8"]))
        info = np.iinfo(kind)
        zeros = tuple(int(rng.choice([n, info.min, info.max])) for n in rng.integers(info.min, info.max, 3))
        shapes = (*batch, rows, depth), (*batch, depth, columns)
        data, step = product_model(shapes, (zeros[0], zeros[1], zeros[2]), kind)
        model = compile_model(data, reuse=False)
        assert products(model) == 1, (shapes, zeros)
        a, b = (rng.normal(size=shape).astype(np.float32) * 2 for shape in shapes)
        assert steps_apart(data, step, verdict(model, a, b), a, b) <= 1, (shapes, zeros, kind)


def test_large_product() -> None:
    """A product whose rows and columns need several tasks, with heads as ranges of rows."""
    shapes = (1, 2, 900, 640), (1, 2, 640, 300)
    data, step = product_model(shapes, (7, -9, 0), "int8")
    model = compile_model(data, reuse=False)
    (index,) = (n for n, found in enumerate(model.plan.steps) if isinstance(found, ProductStep))
    assert len(model.plan.tiles[index]) > 1
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    got, _ = run(model, a, b)
    assert steps_apart(data, step, got, a, b) <= 1


@pytest.mark.parametrize("ends", [("Transpose",), ("Transpose", "Sin")])
def test_view_without_a_layout(ends: tuple[str, ...]) -> None:
    """A transposed result of several matrices, for which the NPU has no layout, goes to the host."""
    data, step = product_model(((2, 5, 40), (2, 40, 9)), (3, -4, 5), "int8")
    model = onnx.load_from_string(data)
    nodes, result = model.graph.node, model.graph.output[0]
    for number, kind in enumerate(ends):
        made = f"end{number}"
        more = {"perm": [0, 2, 1]} if kind == "Transpose" else {}
        nodes.append(helper.make_node(kind, [nodes[-1].output[0]], [made], made, **more))
    shape = (2, 9, 5)
    result.CopyFrom(helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.FLOAT, shape))
    data = model.SerializeToString()
    compiled = compile_model(data, reuse=False)
    assert products(compiled) == 1
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(2, 5, 40)).astype(np.float32), rng.normal(size=(2, 40, 9)).astype(np.float32)
    assert steps_apart(data, step, run(compiled, a, b)[0], a, b) <= 1


def test_sums_beyond_32_bits() -> None:
    """A product whose sums may exceed 32 bits runs on the host."""
    data, _ = product_model(((1, 40000), (40000, 2)), (3, 4, 5), "int8")
    assert products(compile_model(data)) == 0


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


def on_rtl(engine: Engine, data: bytes, *inputs: np.ndarray) -> None:
    """Compare RTL, task level and graph level in every tensor and all padding."""
    with LoadedModel(compile_model(data, reuse=False), Driver(engine, 2_000_000)) as loaded:
        for index, values in enumerate(inputs):
            loaded.set_input(index, values)
        loaded.run()
        checker = ModelChecker(loaded, engine.name)
        found = checker.check(list(inputs))
        assert found.match, str(found.first)
        assert checker.check_memory() is None
        checker.close()


def test_attention_on_rtl(engine: Engine) -> None:
    """RTL = task golden = graph golden, bit for bit, for a quantised attention."""
    data, x = attention(BLOCKS["two heads"], unsigned=True)
    on_rtl(engine, data, x)


@pytest.mark.parametrize("zeros", [(-128, 127, 5), (127, -128, -7), (0, 0, 0)])
def test_zero_points_on_rtl(engine: Engine, zeros: tuple[int, int, int]) -> None:
    """RTL = task golden = graph golden for zero points at the ends, and several heads and tiles."""
    shapes = (1, 3, 19, 70), (1, 3, 70, 45)
    data, _ = product_model(shapes, zeros, "int8")
    rng = np.random.default_rng(2)
    on_rtl(engine, data, *(rng.normal(size=shape).astype(np.float32) * 2 for shape in shapes))


TFLITE = {
    "heads": ((1, 4, 10, 32), (1, 4, 32, 20), False, False),
    "keys": ((1, 4, 10, 32), (1, 4, 20, 32), False, True),
    "first turned": ((1, 3, 40, 17), (1, 3, 40, 64), True, False),
    "matrices": ((9, 33), (33, 70), False, False),
    "one matrix": ((1, 9, 64), (1, 64, 16), False, False),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("name", TFLITE)
def test_tflite(name: str, dtype: str) -> None:
    """BATCH_MATMUL runs on the NPU, codes within a step of the exact result and floats near it."""
    first, second, *turned = TFLITE[name]
    net = Tf(seed=3, dtype=dtype)
    x, y = net.input(first, 0.02), net.tensor(second, 0.03, name="b")
    net.inputs.append(y)
    sizes = [(*s[:-2], s[-1], s[-2]) if swap else s for s, swap in zip((first, second), turned, strict=True)]
    step = 0.02 * 0.03 * 30 * sizes[0][-1] ** 0.5
    shape = (*sizes[0][:-1], sizes[1][-1])
    options = {"AdjX": turned[0], "AdjY": turned[1]}
    made = net.add("BATCH_MATMUL", [x, y], shape, scale=step, zero=5, **options)
    model = compile_model(net.bytes(made), reuse=False)
    assert products(model) == 1
    rng = np.random.default_rng(4)
    real = dtype == "float32"
    values, exact = [], []
    for size, number, swap in zip((first, second), (x, y), turned, strict=True):
        item = net.items[number]
        info = np.iinfo("int8" if real else dtype)
        codes = rng.integers(info.min, info.max + 1, size).astype("int8" if real else dtype)
        numbers = codes * 0.01 if real else (codes.astype(float) - item.zero) * item.scale
        values.append(numbers.astype(np.float32) if real else codes)
        exact.append(numbers.swapaxes(-1, -2) if swap else numbers)
    placed = [v.transpose(0, 3, 1, 2) if v.ndim == 4 else v for v in values]
    got = verdict(model, *placed)
    got = got.transpose(0, 2, 3, 1) if got.ndim == 4 else got
    want = exact[0] @ exact[1]
    if real:
        assert np.abs(got - want).max() < 4e-3 * np.abs(want).max()
        return
    info = np.iinfo(dtype)
    want = (np.clip(np.rint(want / step) + 5, info.min, info.max) - 5) * step
    assert np.rint(np.abs(got - want) / step).max() <= 1


def test_tflite_beside_litert() -> None:
    """The product of codes is within a step of LiteRT's."""
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="needs the extra litert")
    net = Tf(seed=5)
    x, y = net.input((1, 2, 30, 48), 0.02), net.tensor((1, 2, 25, 48), 0.03, name="b")
    net.inputs.append(y)
    made = net.add("BATCH_MATMUL", [x, y], (1, 2, 30, 25), scale=0.1, zero=5, AdjX=False, AdjY=True)
    data = net.bytes(made)
    rng = np.random.default_rng(6)
    values = [rng.integers(-128, 128, net.items[n].shape).astype(np.int8) for n in (x, y)]
    interpreter = litert.Interpreter(model_content=data)
    interpreter.allocate_tensors()
    for given, codes in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(given["index"], codes)
    interpreter.invoke()
    want = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).astype(float) - 5
    got = verdict(compile_model(data, reuse=False), *(v.transpose(0, 3, 1, 2) for v in values))
    assert np.rint(np.abs(got.transpose(0, 2, 3, 1) / 0.1 - want)).max() <= 1
