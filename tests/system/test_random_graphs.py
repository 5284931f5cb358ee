"""Random networks: task golden = graph golden, and (long sweep) the RTL as well."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")

from cosim.compare import random_values
from cosim.crosscheck.model_check import GoldenDriver, ModelChecker
from cosim.engines.engine import open_engine
from sw.compiler import CompiledModel, compile_model
from sw.driver import Driver
from tests.system.random_graphs import Draw

QUICK, ALL = 60, 220
CORES = (1, 1, 2, 3)


def network(seed: int, cores: int = 1) -> tuple[CompiledModel, list[np.ndarray]]:
    model = compile_model(Draw(seed).bytes(), reuse=seed % 3 == 0, cores=cores)
    return model, list(random_values(model, seed))


def check(model: CompiledModel, driver: object, values: list[np.ndarray], seed: int) -> None:
    with model.load(driver) as loaded:  # type: ignore[arg-type]
        for index, item in enumerate(values):
            loaded.set_input(index, item)
        loaded.run()
        checker = ModelChecker(loaded, "device")
        verdict = checker.check(values)
        assert verdict.match, f"seed {seed}: {verdict.first}"
        assert checker.check_memory() is None, f"seed {seed}"
        checker.close()


@pytest.mark.parametrize("seed", range(QUICK))
def test_golden(seed: int) -> None:
    model, values = network(seed, CORES[seed % len(CORES)])
    check(model, GoldenDriver(), values, seed)


@pytest.mark.heavy
def test_rtl() -> None:
    """All seeds on the default engine, one core."""
    engine = open_engine(cores=1)
    for seed in range(ALL):
        model, values = network(seed)
        check(model, Driver(engine, 3_000_000), values, seed)
    engine.close()
