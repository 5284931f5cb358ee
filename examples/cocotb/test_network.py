"""A small network that the real driver loads and runs on a core in the simulator, with a waveform.

pytest examples/cocotb/test_network.py
gtkwave build/network.vcd
"""

from __future__ import annotations

import os
from pathlib import Path

import cocotb
import numpy as np
import pytest

from rkcosim.cocotb import Coverage, NpuAgent, TaskMonitor, missing, simulate
from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.driver import Driver
from rkcosim.golden.task import GoldenNpu

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/digits/digits_int8.onnx"
IMAGES = ROOT / "examples/digits/held_back.npz"
IMAGE = 3


def classify(device, image):
    """Load and run the network on any device; returns the output and the number of tasks."""
    with Driver(device) as driver, LoadedModel(compile_model(MODEL.read_bytes()), driver) as model:
        model.set_input(0, image)
        report = model.run()
        return model.get_output(0), sum(layer.tasks for layer in report.layers)


@cocotb.test()
async def digits(dut):
    npu = NpuAgent(dut)
    tasks, coverage = TaskMonitor(npu), Coverage(npu)
    await npu.reset()
    with np.load(IMAGES) as data:
        image = data["images"][IMAGE][None, None] * data["scale"]
        label = int(data["labels"][IMAGE])

    scores, count = await npu.software(lambda device: classify(device, image))
    expected, _ = classify(GoldenNpu(1), image)
    assert np.array_equal(scores, expected)
    assert int(np.argmax(scores)) == label
    assert len(tasks) == count
    print(f"a {label}: {count} tasks, {sum(task.end - task.cycle for task in tasks.events)} cycles")
    print(coverage.text())
    coverage.save("coverage.xml")


@pytest.mark.skipif(missing("verilator") is not None, reason=missing("verilator") or "")
def test_network():
    folder = Path(os.environ.get("RKCOSIM_EXAMPLES_OUT", "build/network"))
    simulate(__file__, waves=folder / "network.vcd", folder=folder)
