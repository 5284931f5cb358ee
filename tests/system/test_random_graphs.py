"""Random networks: task level equals graph level of the golden model, and (long sweep) the RTL as well."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.steps import ConvStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.measure.models.draw import random_reals
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker
from tests.extent import extent
from tests.system.random_graphs import Draw

QUICK, ALL, RESIDUAL = 60, 220, 60
CORES = (1, 1, 2, 3)


def network(
    seed: int, cores: int = 1, residual: bool = False, fuse: bool = True
) -> tuple[CompiledModel, list[np.ndarray]]:
    model = compile_model(Draw(seed, residual).bytes(), fuse=fuse, reuse=seed % 3 == 0, cores=cores)
    return model, list(random_reals(model.inputs, seed))


def check(model: CompiledModel, driver: object, values: list[np.ndarray], seed: int) -> None:
    with LoadedModel(model, driver) as loaded:  # type: ignore[arg-type]
        for index, item in enumerate(values):
            loaded.set_input(index, item)
        loaded.run()
        checker = ModelChecker(loaded, "device")
        verdict = checker.check(values)
        assert verdict.match, f"seed {seed}: {verdict.first}"
        assert checker.check_memory() is None, f"seed {seed}"
        checker.close()


@pytest.mark.parametrize("seed", range(extent(16, QUICK)))
def test_golden(seed: int) -> None:
    model, values = network(seed, CORES[seed % len(CORES)])
    check(model, GoldenDriver(), values, seed)


@pytest.mark.parametrize("seed", range(extent(16, RESIDUAL)))
def test_residual_golden(seed: int) -> None:
    model, values = network(seed, CORES[seed % len(CORES)], residual=True)
    check(model, GoldenDriver(), values, seed)


def test_residual_kinds() -> None:
    """The random networks contain every kind of fused addition, and additions that stay separate."""
    seen = set()
    for seed in range(RESIDUAL):
        plan = network(seed, residual=True)[0].plan
        seen |= {"apart" for _ in plan.notes}
        for step in plan.steps:
            if isinstance(step, ConvStep) and step.addend is not None:
                assert step.kind == ("DepthwiseConv+Add" if step.depthwise else "Conv+Add")
                form = "channel" if step.added_per_channel else "pixel"
                seen.add((step.depthwise, form, step.limits is not None))
    assert len(seen) == 9, seen


@pytest.mark.heavy
def test_rtl() -> None:
    """All seeds on the default engine, one core."""
    engine = open_engine(cores=1)
    for seed in range(ALL):
        model, values = network(seed)
        check(model, Driver(engine, 3_000_000), values, seed)
    for seed in range(RESIDUAL):
        model, values = network(seed, residual=True)
        check(model, Driver(engine, 3_000_000), values, seed)
    engine.close()
