"""The estimator against the RTL as it is: cycles of the data set are the present ones, estimates near."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cosim.engines.library import DramConfig
from cosim.models.run import run_model
from cosim.perf.estimator import estimate_model
from cosim.perf.estimator.coefficients import COMMAND, stored, warning
from cosim.perf.estimator.collect import differences, measured, sample
from cosim.perf.estimator.data import read_data
from cosim.perf.estimator.fit import points, settings_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler on this machine")


def test_held_out_layers_on_the_present_rtl():
    """Their cycles are the stored ones to the cycle, and their estimates within 5 %."""
    jobs = [job for found in measured(sample(5)) for job in found]
    assert differences(read_data(), jobs) == [], f"the data set is of another RTL: run {COMMAND}"
    settings = {name: DramConfig(**values) for name, values in settings_of().items()}
    for point in points(jobs, settings, dict(stored())):
        assert abs(point.error) < 0.05, point


def test_a_network_on_the_present_rtl():
    run = run_model(DIGITS, check=False)
    found = estimate_model(DIGITS)
    assert found.cycles == pytest.approx(run.cycles / run.inferences, rel=0.03)
    assert warning() == ""
