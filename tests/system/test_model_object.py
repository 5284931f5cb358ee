"""The Model object on the RTL: its cycles, checks and waveforms are those of the commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rkcosim
from rkcosim.base import PACKAGE
from tests.programs import needs_program

pytestmark = needs_program("g++")

DIGITS = PACKAGE / "examples" / "digits" / "digits_int8.onnx"


@pytest.fixture(scope="module")
def model():
    with rkcosim.load(DIGITS) as made:
        yield made


def test_a_profile_has_the_cycles_of_the_command(model: rkcosim.Model):
    x = np.random.default_rng(0).random((1, 1, 16, 16), np.float32)
    found = model.profile(x)
    command = rkcosim.run_model(DIGITS, {"image": x}, check=False)
    assert found.cycles == command.cycles
    assert [row.cycles for row in found.layers] == [row.cycles for row in command.layers]
    assert np.array_equal(found.outputs["probabilities"], command.results[0][0])
    assert all(row.bound for row in found.layers)
    assert sum(task.cycles for task in found.tasks) < found.cycles


def test_a_check_compares_the_rtl(model: rkcosim.Model):
    found = model.check()
    assert found and found.verdict["levels"][0] == model.engine.name
    assert found.profile.cycles is not None


def test_a_waveform_of_one_layer(model: rkcosim.Model, tmp_path: Path):
    path = tmp_path / "dw2.vcd"
    found = model.trace(None, path, start="layer:dw2", stop="layer:dw2", scopes=["core0.DPU"])
    text = path.read_text()
    cycles = [int(line[1:]) for line in text.splitlines() if line[:1] == "#"]
    assert found.cycles is not None and 1000 < cycles[-1] - cycles[0] < 2 * found.layers["dw2"].cycles * 10
    assert "DPU" in text


def test_three_cores_and_another_memory():
    slow = {"core_bytes_per_cycle": 2, "peak_bytes_per_cycle": 2}
    with rkcosim.load(DIGITS, dram=slow) as one, rkcosim.load(DIGITS) as other:
        assert one.profile().cycles > 1.2 * other.profile().cycles
    with rkcosim.load(DIGITS, cores=3) as several:
        found = several.check()
        assert found and found.profile.run.cores == 3
