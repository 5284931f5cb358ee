"""The estimator against the present RTL: the cycles in the data set are current, and estimates are close."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rkcosim.compiler import compile_model
from rkcosim.driver.core_port import Kick
from rkcosim.engines import open_engine
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.estimator import estimate_model
from rkcosim.measure.perf.estimator.coefficients import COMMAND, stored, warning
from rkcosim.measure.perf.estimator.streams import estimate_programs
from rkcosim.regcmd.program import Program
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.streams.programs import bases_of_plan, programs_of_model
from rkcosim.verify.streams.sources import open_source
from rkcosim.verify.streams.stream import Region, Stream
from tests.makers.tflite_networks import keywords
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


def compared(stream: Stream, programs: list[Program], name: str) -> tuple[int, int, int]:
    """Run a stream and compare its tasks; return estimate, RTL, and RTL directly after the reset."""
    found = estimate_programs(programs)
    assert not found.missing
    cycles = []
    for idle in (600, 0):  # a core clears its register groups after a reset
        with closing(open_engine("verilator", cores=1, on_diagnostic="go on")) as engine:
            stream.load_into(engine.memory)
            engine.run(idle)
            result = run_kick(engine, stream.kick, 0, 200_000, stream.writes)
            assert result.done, name
            log = engine.task_log()
        cycles.append(result.cycles)
    assert len(log) == len(found.estimate.tasks)
    for task, record in zip(found.estimate.tasks, log, strict=True):
        assert abs(task.cycles / (record.end - record.start) - 1) < 0.05, (name, task, record)
    assert abs(found.estimate.cycles + found.after_reset - cycles[1]) < 0.01 * cycles[1], name
    return found.estimate.cycles, *cycles


@pytest.mark.parametrize("name", ["pool", "first", "digits", "bank_split", "surface_stride"])
def test_example_streams(name: str):
    """Tasks within 5 %, streams within 1 %. Of the other streams, one task does not end."""
    source = open_source([str(DIGITS.parents[1] / "streams" / f"{name}.json")])
    assert source.stream is not None
    estimate, warm, _ = compared(source.stream, source.programs, name)
    assert abs(estimate / warm - 1) < 0.01
    print(f"{name}: {estimate} of {warm} cycles, {estimate / warm - 1:+.2%}")


def test_no_example_stream_is_left_out():
    streams = {path.stem for path in (DIGITS.parents[1] / "streams").glob("*.json")}
    assert streams == {"pool", "first", "digits", "bank_split", "surface_stride", "no_interrupt"}
    source = open_source([str(DIGITS.parents[1] / "streams" / "no_interrupt.json")])
    (text,) = estimate_programs(source.programs).warnings
    assert "task 5" in text and "rdma.element" in text


@pytest.mark.parametrize("name", ["digits", "keywords"])
def test_streams_of_the_compiler(name: str):
    model = compile_model(DIGITS.read_bytes() if name == "digits" else keywords())
    plan, bases = model.plan, bases_of_plan(model.plan)
    listed = plan.task_list(bases)
    images = {"regcmd": listed.data, "weights": bytes(plan.weights)}
    images["activations"] = bytes(plan.activation_bytes)
    regions = [
        Region(region, bases[region], np.frombuffer(data, np.uint8))
        for region, data in images.items()
        if data
    ]
    for program in programs_of_model(model, name):
        first = program.tasks[0]
        assert first.address is not None and first.amount is not None and program.mask is not None
        kick = Kick(first.address, first.amount, len(program.tasks), program.mask)
        estimate, warm, _ = compared(Stream(kick, regions), [program], program.name)
        assert abs(estimate / warm - 1) < 0.01, program.name
        print(f"{program.name}: {estimate} of {warm} cycles, {estimate / warm - 1:+.2%}")
