"""Estimates of command streams: their tasks have the sizes that the compiler's plan gives them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.compiler import compile_model
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.perf.estimator import estimate_model
from rkcosim.measure.perf.estimator.coefficients import stored
from rkcosim.measure.perf.estimator.streams import INTERRUPT, KICK, estimate_programs, stream_tasks
from rkcosim.measure.perf.estimator.tasks import planned_tasks
from rkcosim.regcmd import TaskBuilder, words_to_bytes
from rkcosim.regcmd.program import Program, program_of_words
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.streams.programs import programs_of_model
from rkcosim.verify.streams.sources import open_source
from rkcosim.verify.streams.stream import Stream
from tests.makers.tflite_models import Tf
from tests.makers.tflite_networks import keywords

ROOT = Path(__file__).resolve().parents[2]
STREAMS = ROOT / "examples" / "streams"
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


def activations() -> bytes:
    """Tasks that load the tables of the DPU, and an addition of two cubes."""
    t = Tf(seed=3)
    x = t.conv(t.input((1, 12, 12, 16)), 32, 3)
    y = t.add("LOGISTIC", [x], (1, 12, 12, 32), scale=1 / 256, zero=-128)
    return t.bytes(t.add("ADD", [x, y], (1, 12, 12, 32)))


MODELS = {"digits": DIGITS.read_bytes, "keywords": keywords, "activations": activations}


@pytest.mark.parametrize("name", MODELS)
def test_the_tasks_of_a_plan(name: str):
    """Registers alone give the sizes that the plan knows, also of tables and of command words."""
    model = compile_model(MODELS[name]())
    programs = list(programs_of_model(model, name))
    found = [task for number, program in enumerate(programs) for task in stream_tasks(program, number)]
    planned = planned_tasks(model.plan)
    assert [task.shape for task in found] == [task.shape for task in planned]
    assert any(task.shape.lut_words for task in planned) == (name == "activations")
    assert [task.macs for task in found] == [task.macs for task in model.plan.tasks]
    whole, estimate = estimate_programs(programs), estimate_model(model)
    assert [task.cycles for task in whole.estimate.tasks] == [task.cycles for task in estimate.tasks]
    jobs = len(estimate.jobs)
    # The plan's jobs begin with the driver's register writes, a stream's with the kick.
    assert whole.estimate.cycles == pytest.approx(
        estimate.cycles - jobs * (stored()["kick"] - KICK - INTERRUPT), abs=2 * jobs
    )


def test_macs_are_those_of_the_golden_model():
    stream = Stream.load(STREAMS / "first.json")
    golden = GoldenNpu(1)
    stream.load_into(golden.memory)
    run_kick(golden, stream.kick, stream.core, writes=stream.writes)
    (program,) = open_source([str(STREAMS / "first.json")]).programs
    assert [task.macs for task in stream_tasks(program)] == [report.macs for report in golden.task_log()]


def pool(width: int) -> list[tuple[str, str, int]]:
    sizes = {"WIDTH": width - 1, "HEIGHT": 7, "CHANNEL": 15}
    values = [("PPU", f"DATA_CUBE_IN_{name}", value) for name, value in sizes.items()]
    values += [("PPU", "DATA_CUBE_OUT_WIDTH", width // 2 - 1), ("PPU", "DATA_CUBE_OUT_HEIGHT", 3)]
    values += [("PPU", "DATA_CUBE_OUT_CHANNEL", 15), ("PPU", "POOLING_KERNEL_CFG", 0x0011_0101)]
    return values + [("PPU_RDMA", f"CUBE_IN_{name}", value) for name, value in sizes.items()]


def test_registers_that_an_earlier_task_wrote():
    """The third task uses the group of the first one again and changes only the width."""
    tasks = []
    for settings in (
        pool(64),
        pool(16),
        [("PPU", "DATA_CUBE_IN_WIDTH", 31), ("PPU_RDMA", "CUBE_IN_WIDTH", 31)],
    ):
        task = TaskBuilder("pool").enable("PPU", "PPU_RDMA")
        for block in ("PPU", "PPU_RDMA"):
            task.set(block, "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
        for block, register, value in settings:
            task.set_word(block, register, value)
        tasks += task.words()
    found = stream_tasks(program_of_words(tasks))
    shapes = [task.shape for task in found]
    assert all(shapes) and [(s.in_width, s.in_height) for s in shapes if s] == [(64, 8), (16, 8), (32, 8)]


def test_what_cannot_be_estimated():
    """A task that feeds the PPU from the DPU; the others of the stream are estimated all the same."""
    task = TaskBuilder("flying").enable("CNA", "CORE", "DPU", "PPU").set_word("DPU", "DATA_CUBE_WIDTH", 7)
    (program,) = open_source([str(STREAMS / "pool.json")]).programs
    other = program_of_words(task.words(), "other")
    found = estimate_programs([program, other])
    (missing,) = found.missing
    assert (missing.name, missing.why) == (
        "other: task 0",
        "there is no estimate for a task of CNA, CORE, DPU, PPU",
    )
    assert len(found.estimate.layers) == 1
    with pytest.raises(ValueError, match="task 0: there is no estimate for a task of CNA, CORE, DPU, PPU"):
        estimate_programs([other])
    with pytest.raises(ValueError, match="empty: error: task 0: no op-enable word"):
        estimate_programs([program_of_words([0, 0], "empty")])


def test_blocks_that_the_host_starts():
    (program,) = open_source([str(STREAMS / "pool.json")]).programs
    writes = [
        (c.register.offset, c.value)
        for c in program.tasks[0].commands
        if c.register is not None and c.register.block != "PC"
    ]
    writes += [(registers()[b]["OPERATION_ENABLE"].offset, 1) for b in ("PPU_RDMA", "PPU")]
    slave = estimate_programs([Program("slave", [], 0, slave=True, writes=writes)])
    (task,) = slave.estimate.tasks
    alone = estimate_programs([program]).estimate.tasks[0]
    assert task.name == "started by the host" and slave.after_reset == 0
    assert task.cycles == alone.cycles and slave.estimate.cycles == task.cycles + INTERRUPT


def run(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["estimate", *(str(word) for word in words)])
    return done.exit_code, done.output


def test_the_command(tmp_path: Path):
    out = tmp_path / "e.json"
    code, text = run(STREAMS / "digits.json", "--json", out, "--roofline", tmp_path / "r.svg")
    assert (
        code == 0 and "task 9" in text and "directly after a reset, as rkcosim regcmd run starts it" in text
    )
    data = json.loads(out.read_text())
    assert data["kind"] == "stream" and len(data["layers"]) == 10 and not data["not_estimated"]
    assert data["cycles_after_reset"] - data["cycles"] == 92 and (tmp_path / "r.svg").exists()
    # The same lists as a binary file; without memory, nothing follows a kick's links.
    (program,) = open_source([str(STREAMS / "digits.json")]).programs
    binary = tmp_path / "digits.bin"
    binary.write_bytes(words_to_bytes([word for task in program.tasks for word in task.words]))
    code, text = run(binary, "--json", out)
    assert code == 0, text
    same = json.loads(out.read_text())
    assert [row["cycles"] for row in same["layers"]] == [row["cycles"] for row in data["layers"]]
    # A slower memory.
    code, text = run(STREAMS / "digits.json", "--ddr", "4GB/s", "--clock", "500", "--json", out)
    slow = json.loads(out.read_text())
    assert code == 0 and slow["cycles"] != data["cycles"] and slow["milliseconds"] > data["milliseconds"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--what-if"], "--what-if is for models, and pool.json is a command stream"),
        (["--cores", "2"], "--cores is for models"),
        (["--plan", "rknn"], "--plan is for models"),
        (["--no-fold"], "--no-fold is for models"),
        (["--shape", "x=1,2"], "--shape is for models"),
    ],
)
def test_options_for_models_are_refused(words: list[str], said: str):
    code, text = run(STREAMS / "pool.json", *words)
    assert code == 2 and said in text


def test_errors_of_the_stream_are_said(tmp_path: Path):
    code, text = run(STREAMS / "no_interrupt.json")
    assert code == 0 and "the RTL may take other cycles, or not end: no_interrupt.json: error: task 5" in text
    (tmp_path / "words.bin").write_bytes(bytes(range(1, 129)))  # no task is in it: it may be a model
    code, text = run(tmp_path / "words.bin")
    assert code == 2 and "not an ONNX model" in text
