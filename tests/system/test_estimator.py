"""The estimator against the present RTL: the cycles in the data set are current, and estimates are close."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.estimator import estimate_model
from rkcosim.measure.perf.estimator.coefficients import COMMAND, stored, warning
from tests.programs import needs_program
from tools.estimator.collect import differences, measured, sample
from tools.estimator.data import read_data
from tools.estimator.fit import points

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"

pytestmark = needs_program("g++")


def test_held_out_layers_on_the_present_rtl():
    """The cycles of the layers equal the stored ones, and their estimates are within 5 %."""
    jobs = list(measured(sample(5)))
    stored_jobs, settings = read_data()
    assert differences(stored_jobs, jobs) == [], f"the data set was made with another RTL: run {COMMAND}"
    for point in points(jobs, settings, dict(stored())):
        assert abs(point.error) < 0.05, point


def test_a_network_on_the_present_rtl():
    run = run_model(DIGITS, check=False)
    found = estimate_model(DIGITS)
    assert found.cycles == pytest.approx(run.cycles / run.inferences, rel=0.03)
    assert warning() == ""
