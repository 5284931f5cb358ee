"""A core without floating-point arithmetic: integers as on the whole core, float tasks raise NOT_BUILT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.driver import Driver
from rkcosim.engines import open_engine
from rkcosim.engines.protocol import DiagnosticError, Engine
from rkcosim.export.folder import export_folder
from rkcosim.running.meter import meter
from rkcosim.spec.config import RK3588
from rkcosim.spec.types import BF16, FLOAT_CODES, FP16, INT16, PPU_CODES, TF32
from rkcosim.verify.conformance.case import Case
from rkcosim.verify.conformance.groups import GROUPS, draw_case
from rkcosim.verify.conformance.runner import Runner
from rkcosim.verify.crosscheck.model_check import ModelChecker
from rkcosim.verify.crosscheck.program import Task
from tests import seeds
from tests.makers.archives import arrays_of
from tests.system.qdq_models import Net
from tests.system.test_compiler_golden import SHAPES
from tests.verilog_tools import icarus, needs_icarus, yosys

pytestmark = pytest.mark.heavy  # engines of another core are built, which takes minutes

EXAMPLES = Path(__file__).parents[2] / "examples"
SEED = seeds.seed(__name__)
TASKS = 60
"""Tasks of each group."""

TASKS_EXACT = 12
"""Tasks of each group on the array cell's RTL."""

CONV_FLOATS = (FP16.code, BF16.code, TF32.code)


def opened(**settings: object) -> Engine:
    return open_engine(cores=1, config=replace(RK3588, floats=False), **settings)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with opened(on_diagnostic="go on") as device:
        yield Runner(device)


@pytest.fixture(scope="module")
def exact_runner() -> Iterator[Runner]:
    with opened(name="verilator", exact=True, on_diagnostic="go on") as device:
        yield Runner(device)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with opened() as device:
        yield device


def moves(task: Task) -> bool:
    """Whether a task only moves atoms, for which the output's type does not matter [HW 8.7]."""
    bypassed = all(task.get("DPU", f"{stage}_BYPASS") for stage in ("BS", "BN", "EW"))
    halves = task.get("DPU", "IN_PRECISION") == INT16.dpu_code
    return bool(task.get("DPU_RDMA", "UNPOOLING_EN")) and bypassed and halves


def not_built(task: Task) -> set[str]:
    """The registers of a task for which NOT_BUILT is raised."""
    found = set()
    if "CORE" in task.blocks and task.get("CORE", "PROC_PRECISION") in CONV_FLOATS:
        found.add("CORE.MISC_CFG")
    for block, register, fields in (
        ("DPU", "DATA_FORMAT", ("IN_PRECISION", "PROC_PRECISION", "OUT_PRECISION")),
        ("DPU_RDMA", "FEATURE_MODE_CFG", ("IN_PRECISION",)),
    ):
        if block == "DPU" and moves(task):
            continue
        if block in task.blocks and any(task.get(block, name) in FLOAT_CODES for name in fields):
            found.add(f"{block}.{register}")
    if "PPU" in task.blocks and task.get("PPU", "PROC_PRECISION") == PPU_CODES["fp16"]:
        found.add("PPU.DATA_FORMAT")
    return found


def told(case: Case) -> set[str]:
    return set().union(*(not_built(task) for task in case.plan.tasks))


def check(runner: Runner, group: str, tasks: int) -> tuple[int, int]:
    """Run cases of a group; return how many have integers only, and how many use a float type."""
    runner.reset()
    integers = floats = done = index = 0
    while done < tasks:
        case = draw_case(group, SEED, index)
        expected, where = told(case), f"seed {SEED}, case {index}"
        if not expected:
            outcome = runner.run(case)
            assert outcome.ok, f"{where}: {outcome.text()}"
            integers += 1
        else:
            runner.load(case)
            golden = runner.observe(runner.golden, case)
            runner.reset()
            device = runner.observe(runner.device, case)
            runner.reset()
            found = {register for code, register in device.diagnostics if code == "NOT_BUILT"}
            if golden.done and not golden.error and not case.plan.slave:
                assert device.done and not device.error, f"{where}: {device}\n{case.text()}"
                assert found == expected, f"{where}: {device.diagnostics}\n{case.text()}"
            else:  # a task that never ends may wait before a block looks at its settings
                assert found <= expected, f"{where}: {device.diagnostics}\n{case.text()}"
            floats += 1
        done += case.tasks
        index += 1
    return integers, floats


@pytest.mark.parametrize("group", GROUPS)
def test_integers_are_right_and_floats_are_refused(runner: Runner, group: str) -> None:
    integers, floats = check(runner, group, TASKS)
    print(f"{group}: {integers} cases of integers, {floats} with floats")
    assert integers + floats


@pytest.mark.parametrize("group", [name for name in GROUPS if name.startswith(("conv ", "depthwise "))])
def test_the_same_with_the_cell_in_rtl(exact_runner: Runner, group: str) -> None:
    integers, floats = check(exact_runner, group, TASKS_EXACT)
    name = group.split()[-1]
    assert (integers > 0) == (name in ("int4", "int8", "int16")) and (floats > 0) == (integers == 0)


@needs_icarus
def test_the_export_elaborates_and_leaves_reset(tmp_path: Path) -> None:
    export_folder(tmp_path, ["core"], geometry_name="small", floats=False)
    said = icarus(tmp_path, ["tb_npu_core.v", "npu_core.v"], "tb_npu_core")
    assert "PASS npu_core" in said, said
    script = ["read_verilog npu_core.v", "hierarchy -check -top npu_core", "proc", "check -assert"]
    (tmp_path / "read.ys").write_text("\n".join([*script, ""]))
    yosys().run(["read.ys"], tmp_path)


def test_the_message_says_what_is_not_built(engine: Engine) -> None:
    shape, build = next(iter(SHAPES.values()))
    net = Net(shape, 1)
    model = compile_model(net.model(build(net)).SerializeToString())
    with LoadedModel(model, Driver(engine, 2_000_000), meter=meter(engine)) as loaded:
        loaded.set_input(0, net.rng.normal(size=shape).astype(np.float32))
        with pytest.raises(DiagnosticError) as caught:
            loaded.run()
    text = str(caught.value)
    assert "a floating-point type, but this core was built without floating-point arithmetic" in text
    assert "NOT_BUILT" in text and "PROC_PRECISION 0x2" in text, text
    assert "DPU.DATA_FORMAT" in text or "DPU_RDMA.FEATURE_MODE_CFG" in text, text


def test_the_digits_network(engine: Engine) -> None:
    digits = arrays_of(EXAMPLES / "digits" / "held_back.npz")
    model = compile_model((EXAMPLES / "digits" / "digits_int8.onnx").read_bytes())
    with LoadedModel(model, Driver(engine, 2_000_000), meter=meter(engine)) as loaded:
        for image in digits["images"][:2]:
            x = (image.astype(np.int16) - 128).astype(np.int8).reshape(model.inputs[0].shape)
            loaded.set_input(0, x)
            loaded.run()
            checker = ModelChecker(loaded, engine.name)
            verdict = checker.check([x])
            assert verdict.match, str(verdict.first)
            assert checker.check_memory() is None
            checker.close()
