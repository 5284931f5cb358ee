"""TFLite operators on the RTL: every tensor equal to both golden levels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.measure.models.draw import random_reals
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.makers.tflite_models import Tf
from tests.system.test_tflite_ops import CASES

MAX_CYCLES = 2_000_000


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", CASES, ids=lambda n: n.replace(" ", "-"))
def test_operator(engine: Engine, name: str) -> None:
    shape, build = CASES[name]
    t = Tf(seed=len(name))
    t.input(shape)
    model = compile_model(t.bytes(build(t)), reuse=False)
    values: list[np.ndarray] = list(random_reals(model.inputs, 5))
    with LoadedModel(model, Driver(engine, MAX_CYCLES)) as loaded:
        loaded.set_input(0, values[0])
        loaded.run()
        checker = ModelChecker(loaded, engine.name)
        verdict = checker.check(values)
        assert verdict.match, str(verdict.first)
        assert checker.check_memory() is None
        checker.close()
