"""Products of two activations in fp16: equal on RTL and both golden levels, near onnxruntime's binary32."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.limits import SMALL
from rkcosim.compiler.loaders.node import on_line
from rkcosim.compiler.loaders.views import View, settled_cube
from rkcosim.compiler.steps import AtomsStep, HostStep, ProductStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.measure.models.compare import compare
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker
from tests import seeds
from tests.makers.attention import Attention, vision_block
from tests.system.qdq_models import Net
from tests.system.test_compiler_float import FLOAT_TOLERANCE
from tests.system.test_compiler_golden import run

ULPS = 4
"""Bound of a product, in units of the last place of fp16 of the largest partial sum."""


def hosted(model: CompiledModel) -> list[str]:
    """Return the operators that the host computes."""
    return [step.kind for step in model.plan.steps if isinstance(step, HostStep)]


def products(model: CompiledModel) -> int:
    """Return the number of products of two activations on the NPU."""
    return sum(isinstance(step, ProductStep) for step in model.plan.steps)


def reference(data: bytes, feed: dict[str, np.ndarray]) -> np.ndarray:
    """Return the first output in binary32."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


BLOCKS = {
    "one head": Attention(17, 64, 1),
    "two heads": Attention(24, 64, 2, "queries"),
    "scaled keys": Attention(20, 64, 2, "keys"),
    "wide heads": Attention(50, 192, 3),
    "many rows": Attention(97, 128, 4),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_attention(name: str) -> None:
    """Of an attention at most a small Softmax runs on the host, also if tokens are no whole weight tiles."""
    block = BLOCKS[name]
    net = Net((1, block.tokens, block.width), len(name))
    data = net.model(block.add(net, "x")).SerializeToString()
    model = compile_model(data, reuse=False)
    small = block.heads * block.tokens**2 <= SMALL
    assert hosted(model) == ["Softmax"] * small and products(model) == 2
    assert "Affine" not in [step.kind for step in model.plan.steps]  # the scale is in the task before it
    x = net.rng.normal(size=net.shape).astype(np.float32)
    got, _ = run(model, x)
    want = reference(data, {"x": x})
    assert np.abs(got - want).max() < FLOAT_TOLERANCE * np.abs(want).max()


def test_heads_within_weight_tiles() -> None:
    """Heads of 24 channels: the host brings queries and keys into rows, the products run on the NPU."""
    block = Attention(18, 48, 2)
    net = Net((1, block.tokens, block.width), 3)
    data = net.model(block.add(net, "x")).SerializeToString()
    model = compile_model(data, reuse=False)
    assert sorted(hosted(model)) == ["Rearrange", "Rearrange", "Softmax"] and products(model) == 2
    x = net.rng.normal(size=net.shape).astype(np.float32)
    got, _ = run(model, x)
    want = reference(data, {"x": x})
    assert np.abs(got - want).max() < FLOAT_TOLERANCE * np.abs(want).max()


@pytest.mark.parametrize("block", [BLOCKS["many rows"], BLOCKS["one head"], Attention(33, 48, 2)])
def test_memory_is_shared(block: Attention) -> None:
    """Tensors that share memory, which is full of NaN before, give the same numbers."""
    net = Net((1, block.tokens, block.width), 5)
    data = net.model(block.add(net, "x")).SerializeToString()
    x = net.rng.normal(size=net.shape).astype(np.float32)
    apart, _ = run(compile_model(data, reuse=False), x)
    with GoldenDriver() as driver, LoadedModel(compile_model(data, reuse=True), driver) as loaded:
        region = loaded.buffers["activations"]
        region.view(0, loaded.model.plan.activation_bytes)[:] = 0xFF
        loaded.set_input(0, x)
        loaded.run()
        assert np.array_equal(loaded.get_output(0), apart)


def test_zeros_behind_factors_are_kept() -> None:
    """With shared memory nothing overwrites a factor or the zeros behind it before the product reads it."""
    block = Attention(33, 48, 2)
    net = Net((1, block.tokens, block.width), 5)
    plan = compile_model(net.model(block.add(net, "x")).SerializeToString(), reuse=True).plan
    checked = 0
    for index, step in enumerate(plan.steps):
        if not isinstance(step, ProductStep | AtomsStep):
            continue
        root = plan.graph.root(step.inputs[0].name)
        place = plan.places[root]
        written = [i for i, s in enumerate(plan.steps[:index]) if plan.graph.root(s.output.name) == root]
        for other in plan.steps[max(written, default=0) + 1 : index]:
            target = plan.places.get(plan.graph.root(other.output.name))
            assert target is not None
            first, last = target.ref.offset, target.ref.offset + target.size
            apart = last <= place.ref.offset or place.ref.offset + place.size <= first
            assert apart, (step.name, other.name)
            checked += 1
    assert checked


def picture_block() -> tuple[bytes, np.ndarray, Net]:
    """Return a block on patches of a picture, and its input."""
    net = Net((1, 3, 16, 12), 4)
    y = vision_block(net, Attention(12, 64, 2), (4, 3))
    return net.model(y, opset=20).SerializeToString(), net.rng.normal(size=net.shape).astype(np.float32), net


def test_vision_block() -> None:
    """Patches become tokens without moved bytes: only the Softmax runs on the host."""
    data, x, _ = picture_block()
    model = compile_model(data, reuse=False)
    assert hosted(model) == ["Softmax"] and products(model) == 2
    got, _ = run(model, x)
    want = reference(data, {"x": x})
    assert np.abs(got - want).max() < FLOAT_TOLERANCE * np.abs(want).max()


@pytest.mark.parametrize("name", ["two heads", "scaled keys", "wide heads"])
def test_layers_beside_the_reference(name: str, tmp_path: Path) -> None:
    """Every layer is within its bound if it gets onnxruntime's tensors, also those with heads as channels."""
    block = BLOCKS[name]
    net = Net((1, block.tokens, block.width), len(name))
    path = tmp_path / "attention.onnx"
    path.write_bytes(net.model(block.add(net, "x")).SerializeToString())
    found = compare(path)
    assert len(found.layers) > 5
    assert [(row.name, row.worst) for row in found.layers if not row.good] == []


def test_compiled_file() -> None:
    """A compiled model file keeps the products."""
    data, x, _ = picture_block()
    model = compile_model(data, reuse=False)
    loaded = compile_model(model.save())
    assert products(loaded) == 2
    assert np.array_equal(run(loaded, x)[0], run(model, x)[0])


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


def test_vision_block_on_rtl(engine: Engine) -> None:
    """RTL = task golden = graph golden, bit for bit, in every tensor and all padding."""
    data, x, _ = picture_block()
    with LoadedModel(compile_model(data, reuse=False), Driver(engine, 2_000_000)) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        checker = ModelChecker(loaded, engine.name)
        verdict = checker.check([x])
        assert verdict.match, str(verdict.first)
        assert checker.check_memory() is None
        checker.close()


def product_model(first: tuple[int, ...], second: tuple[int, ...]) -> bytes:
    """Return a model of one product of its two inputs."""
    sizes = {"a": first, "b": second, "y": np.broadcast_shapes(first[:-2], second[:-2])}
    sizes["y"] = (*sizes["y"], first[-2], second[-1])
    a, b, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in sizes.items())
    node = helper.make_node("MatMul", ["a", "b"], ["y"], name="product")
    graph = helper.make_graph([node], "product", [a, b], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def ulp(values: np.ndarray) -> np.ndarray:
    """Return the last place of fp16 numbers, at least that of the smallest normal one."""
    return 2.0 ** (np.floor(np.log2(np.maximum(values, 2.0**-14))) - 10)


def test_random_products() -> None:
    """Products of random shapes are within 4 last places of the largest partial sum."""
    seed = seeds.seed(__name__)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(12):
        rows, depth, columns = (int(n) for n in rng.integers(1, 80, 3))
        batch = [(), (1,), (3,), (1, 2)][int(rng.integers(4))]
        data = product_model((*batch, rows, depth), (*batch, depth, columns))
        model = compile_model(data, reuse=False)
        assert products(model) == 1, (batch, rows, depth, columns)
        a, b = (
            rng.normal(size=(*batch, *size)).astype(np.float32) for size in ((rows, depth), (depth, columns))
        )
        got, _ = run(model, a, b)
        exact, largest = a.astype(np.float64) @ b, np.abs(a.astype(np.float64)) @ np.abs(b)
        assert (np.abs(got - exact) <= ULPS * ulp(largest)).all(), (batch, rows, depth, columns)


def test_map_times_matrix() -> None:
    """The last axis of a map is its columns, also if there are as many as channels."""
    net = Net((1, 8, 5, 8), 2)
    data = net.model(net.add("MatMul", "x", net.constant(net.rng.normal(size=(8, 3))))).SerializeToString()
    x = net.rng.normal(size=net.shape).astype(np.float32)
    got, _ = run(compile_model(data, reuse=False), x)
    assert np.abs(got - reference(data, {"x": x})).max() < 1e-2


def test_views_are_arrays() -> None:
    """A reshaped or transposed view is what numpy makes of the array in memory."""
    seed = seeds.seed(__name__)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    changed = 0
    for _ in range(3000):
        rank = int(rng.integers(1, 6))
        stored = tuple(int(n) for n in rng.choice([1, 1, 2, 3, 4, 6], rank))
        axes = tuple(int(n) for n in rng.permutation(rank))
        view = View("x", stored[-1], stored, axes)
        array = np.arange(np.prod(stored)).reshape(stored).transpose(axes)
        rest, shape = array.size, [1]
        while rest > 1:
            shape.append(int(rng.choice([n for n in range(2, rest + 1) if rest % n == 0])))
            rest //= shape[-1]
        other = view.reshaped(tuple(int(n) for n in rng.permutation(shape)))
        if other is None:
            continue
        changed += 1
        seen = np.arange(array.size).reshape(other.stored).transpose(other.axes)
        assert np.array_equal(seen, array.reshape(other.shape))
        cube = settled_cube(other)
        if cube is not None:
            memory = np.arange(array.size).reshape(-1, view.channels)
            moved = other.shape if len(other.shape) < 4 else (1, *cube)
            whole = memory.T if len(moved) == 4 or on_line(other.shape, cube) else memory
            assert np.array_equal(whole.reshape(moved), array.reshape(other.shape))
    assert changed > 300
