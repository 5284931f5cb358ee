"""Compiled networks on the RTL: every tensor equal to the task-level and the graph-level golden model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler import CompiledModel, LoadedModel, compile_conv_layer, compile_model
from rkcosim.compiler.steps import HostStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.running.meter import meter
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.system.qdq_models import Net, make
from tests.system.test_compiler_golden import DIVIDED, SHAPES, TILED

MAX_CYCLES = 2_000_000
QUICK_TILED = ("one stripe", "stride above kernel", "depthwise rows", "rows of pixels", "depthwise columns")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


def check(engine: Engine, model: CompiledModel, x: np.ndarray) -> None:
    """Run once; check tensors, padding and the per-layer report."""
    with LoadedModel(model, Driver(engine, MAX_CYCLES), meter=meter(engine)) as loaded:
        loaded.set_input(0, x)
        report = loaded.run()
        checker = ModelChecker(loaded, engine.name)
        verdict = checker.check([x])
        assert verdict.match, str(verdict.first)
        assert checker.check_memory() is None
        checker.close()
    layers = [layer for layer in report.layers if layer.target == "npu"]
    assert len(layers) == sum(not isinstance(step, HostStep) for step in model.plan.steps)
    assert sum(layer.cycles or 0 for layer in layers) <= report.cycles
    assert all(layer.cycles for layer in layers)
    for layer in layers:
        assert layer.mac_busy is not None and layer.cycles is not None
        assert layer.formula_npu <= layer.cycles and layer.mac_busy <= layer.cycles
        assert (layer.mac_busy > 0) == (layer.formula_npu > 0)


@pytest.mark.parametrize("name", SHAPES)
def test_network(engine: Engine, name: str) -> None:
    shape, build = SHAPES[name]
    data, x = make(shape, build, seed=len(name), unsigned=len(name) % 2 == 1)
    check(engine, compile_model(data, reuse=False), x)


@pytest.mark.parametrize("name", SHAPES)
def test_float_network(engine: Engine, name: str) -> None:
    shape, build = SHAPES[name]
    net = Net(shape, len(name))
    data = net.model(build(net)).SerializeToString()
    x = net.rng.normal(size=shape).astype(np.float32)
    check(engine, compile_model(data, reuse=False), x)


LARGE = {**TILED, **DIVIDED}


@pytest.mark.parametrize(
    "name", [n if n in QUICK_TILED else pytest.param(n, marks=pytest.mark.heavy) for n in LARGE]
)
def test_tiled(engine: Engine, name: str) -> None:
    model = compile_conv_layer(**LARGE[name][0], relu=True, seed=7)
    x = np.random.default_rng(3).integers(-128, 128, model.inputs[0].shape).astype(np.int8)
    check(engine, model, x)
