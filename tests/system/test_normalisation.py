"""Normalisations over channels in fp16: equal on RTL and both golden levels, near the exact result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.steps import HostStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.measure.models.compare import compare
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker
from tests.system.qdq_models import Net
from tests.system.test_compiler_golden import run

PLACES = 2.0**-11
"""Half of the last place of fp16, relative to a number."""


def network(kind: str, rows: int, channels: int, epsilon: float = 1e-6) -> tuple[bytes, Net]:
    """Return a model of one normalisation with random scale (and shift), and its network."""
    net = Net((1, rows, channels), 4)
    inputs = ["x", net.constant(net.rng.normal(size=channels))]
    if kind == "LayerNormalization":
        inputs.append(net.constant(net.rng.normal(size=channels)))
    y = net.add(kind, *inputs, axis=-1, epsilon=epsilon)
    return net.model(y, opset=17 if len(inputs) > 2 else 23).SerializeToString(), net


def exact(net: Net, x: np.ndarray, centred: bool, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the result in float64, and the magnitude of its terms."""
    from onnx import numpy_helper

    scale, *shift = (numpy_helper.to_array(item).astype(np.float64) for item in net.tensors)
    values = x.astype(np.float64)
    values = values - values.mean(axis=-1, keepdims=True) * centred
    unit = values / np.sqrt((values**2).mean(axis=-1, keepdims=True) + epsilon)
    added = shift[0] if shift else np.zeros_like(scale)
    return unit * scale + added, np.abs(unit * scale) + np.abs(added)


def on_npu(model: CompiledModel) -> bool:
    """Whether the NPU computes everything."""
    return not any(isinstance(step, HostStep) for step in model.plan.steps)


SIZES = [1e-3, 0.05, 0.8, 1.0, 1.5, 16.0, 300.0, 4000.0]
"""Standard deviations: both sums of squares are used, and both at once in a tensor."""


@pytest.mark.parametrize("kind", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize(("rows", "channels"), [(60, 192), (100, 60), (20, 512)])
def test_near_the_exact_result(kind: str, rows: int, channels: int) -> None:
    """Results are within some roundings of fp16 for numbers of any size."""
    data, net = network(kind, rows, channels)
    model = compile_model(data, reuse=False)
    assert on_npu(model)
    sizes = np.resize(SIZES, rows)[:, None]
    x = (net.rng.normal(size=(rows, channels)) * sizes).astype(np.float16).astype(np.float32)[None]
    with GoldenDriver() as driver, LoadedModel(model, driver) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        checker = ModelChecker(loaded, "golden")
        found = checker.check([x])
        assert found.match, str(found.first)
        checker.close()
        got = loaded.get_output(0)
    want, terms = exact(net, x, kind[0] == "L", 1e-6)
    largest = np.abs(x).max(axis=-1, keepdims=True) / np.sqrt((x**2).mean(axis=-1, keepdims=True))
    assert (np.abs(got - want) <= 4 * PLACES * (2 * terms + largest * 0.1 + 2.0**-8)).all()


def test_equal_numbers() -> None:
    """Of pixels with equal numbers only the shift remains."""
    data, net = network("LayerNormalization", 40, 128, 1e-12)
    x = np.repeat(np.linspace(-8, 8, 40, dtype=np.float32)[:, None], 128, axis=1)[None]
    got, _ = run(compile_model(data, reuse=False), x)
    assert np.isfinite(got).all()
    zeros, _ = run(compile_model(data, reuse=False), np.zeros_like(x))
    from onnx import numpy_helper

    assert np.allclose(zeros[0], numpy_helper.to_array(net.tensors[1]), atol=2e-3)


@pytest.mark.parametrize(
    ("shape", "axis"), [((1, 20, 64), -1), ((1, 60, 128), 1), ((1, 16, 30, 20), -1), ((1, 9000, 16), -1)]
)
def test_stays_on_the_host(shape: tuple[int, ...], axis: int) -> None:
    """Small tensors, other axes, maps and too many rows are normalised on the host."""
    net = Net(shape, 5)
    y = net.add("LayerNormalization", "x", net.constant(np.ones(shape[axis:])), axis=axis)
    y = net.add("MatMul", y, net.constant(net.rng.normal(size=(shape[-1], 32))))
    model = compile_model(net.model(y, opset=17).SerializeToString(), reuse=False)
    assert not on_npu(model)


def test_compare_and_compiled_file(tmp_path: Path) -> None:
    """The layer is within its bound beside onnxruntime's, and a compiled model file keeps it."""
    data, net = network("LayerNormalization", 60, 192)
    path = tmp_path / "norm.onnx"
    path.write_bytes(data)
    found = compare(path)
    assert [row.kind for row in found.layers] and found.match
    model = compile_model(data, reuse=False)
    x = net.rng.normal(size=net.shape).astype(np.float32)
    assert np.array_equal(run(compile_model(model.save()), x)[0], run(model, x)[0])


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


@pytest.mark.parametrize(("rows", "channels"), [(30, 192), (12, 400)])
def test_on_rtl(engine: Engine, rows: int, channels: int) -> None:
    """RTL = task golden = graph golden, bit for bit, with numbers of both sums of squares."""
    data, net = network("LayerNormalization", rows, channels)
    sizes = np.resize([0.01, 1.0, 500.0], rows)[:, None]
    x = (net.rng.normal(size=(rows, channels)) * sizes).astype(np.float32)[None]
    with LoadedModel(compile_model(data, reuse=False), Driver(engine, 2_000_000)) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        checker = ModelChecker(loaded, engine.name)
        found = checker.check([x])
        assert found.match, str(found.first)
        assert checker.check_memory() is None
        checker.close()
