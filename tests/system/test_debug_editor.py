"""The debugger in Neovim with nvim-dap, without a screen (`tools/editor.py` and `tests/neovim.py`)."""

from __future__ import annotations

import html
import re
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import rkcosim
from rkcosim.debug.deviations.against import outputs_after_tasks
from rkcosim.debug.opening import open_debugged
from tests import neovim
from tests.programs import needs_program
from tests.system.test_debug_programs import compiled
from tools import editor

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIGITS = EXAMPLES / "streams" / "digits.json"
MODEL = EXAMPLES / "digits" / "digits_int8.onnx"


@pytest.fixture
def plugin() -> None:
    """Neovim with nvim-dap, without which the test is skipped."""
    if what := neovim.missing():
        pytest.skip(f"missing: {what}")


def test_neovim_shows_the_listing_and_the_cause_of_a_wrong_result(tmp_path: Path):
    if what := editor.missing():
        pytest.skip(f"missing: {what}")
    np.savez(tmp_path / "right.npz", **outputs_after_tasks(open_debugged(DIGITS)))
    tasks = rkcosim.TaskList.load(DIGITS)
    tasks[6]["CNA.PAD_CON0.PAD_TOP"] = 0
    tasks.save(tmp_path / "wrong.json")
    editor.draw(tmp_path / "wrong.json", tmp_path / "right.npz", tmp_path / "screen.svg")
    text = html.unescape(re.sub(r"<[^>]*>", " ", (tmp_path / "screen.svg").read_text()))
    text = " ".join(text.split())
    assert "1. CNA.PAD_CON0.PAD_TOP 0 -> 1 (convolution): every element is right with it" in text
    assert "OP_ENABLE CNA CORE DPU DPU_RDMA" in text and "Thread stopped due to exception" in text


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("engine", "cause"),
    [
        ("golden", "task 5: DPU.EW_CFG.EW_OP_SRC = 0x1: waits for ERDMA, which is off"),
        (
            "verilator",
            "DPU takes no results of CORE: it waits for operands of DPU_RDMA, which is not",
        ),
    ],
)
def test_a_hang_stops_as_an_exception_with_its_cause(tmp_path: Path, engine: str, cause: str):
    launch = {"program": str(EXAMPLES / "streams" / "no_interrupt.json"), "engine": engine}
    _, hang, state, back = neovim.session(tmp_path, launch, ["continue", "info state", "step_back"])
    assert hang["reason"] == "exception" and cause in hang["text"]
    assert cause in state and "tasks done: 5 of 10" in state
    assert hang["frames"][1].startswith("task 5: CNA CORE DPU DPU_RDMA")
    assert back["reason"] == "step"


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("engine", ["golden", "verilator"])
def test_a_wrong_byte_among_the_weights_stops_after_its_task(tmp_path: Path, engine: str):
    np.savez(tmp_path / "right.npz", **outputs_after_tasks(open_debugged(DIGITS)))
    tasks = rkcosim.TaskList.load(DIGITS)
    tasks.buffers["weights"].array[0x17C0 + 5] ^= 0x40
    tasks.save(tmp_path / "wrong.json")
    launch = {"program": str(tmp_path / "wrong.json"), "against": str(tmp_path / "right.npz")}
    steps = ["continue", "why", "print count(diff out4 != 0)", "print count(diff out3 != 0)"]
    _, stop, why, wrong, before = neovim.session(tmp_path, {**launch, "engine": engine}, steps)
    assert stop["reason"] == "exception" and "task 4 deviates from the reference: out4" in stop["text"]
    assert int(wrong.split()[0]) > 0 and before == "0"
    assert "weight: 288 bytes from 0x001027C0, weights + 0x17C0" in why
    assert (
        "the wrong elements are in channels 5, " in why and "no single field makes the result better" in why
    )


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("engine", ["golden", "verilator"])
def test_a_model_stops_at_a_node(tmp_path: Path, engine: str):
    highest = "print max(pool_QuantizeLinear_Output)"
    wrong = "print count(diff pool_QuantizeLinear_Output != 0)"
    steps = ["break node pool", "continue", highest, "break node dw2", "continue", highest, wrong]
    launch = {"program": str(MODEL), "engine": engine}
    _, _, pool, before, _, dw2, after, different = neovim.session(tmp_path, launch, steps)
    assert "node pool" in pool["frames"] and pool["reason"] == "breakpoint"
    assert "node dw2" in dw2["frames"] and dw2["shown"].startswith(("CNA.", "OP_ENABLE CNA"))
    assert before == "0" and int(after.split()[0]) > 0 and different == "0"


@pytest.mark.usefixtures("plugin")
@needs_program("cc")
def test_a_program_in_c_stops_at_a_node_and_ends(tmp_path: Path):
    folder = compiled(tmp_path)
    launch = {"command": [str(folder / "classify"), str(MODEL), str(folder / "picture")]}
    steps = ["break node pool", "continue", "step_back", "step_over", "delete", "continue"]
    _, _, stop, back, again, _, end = neovim.session(tmp_path, launch, steps)
    assert "node pool" in stop["frames"] and "node pw1" in back["frames"]
    assert (again["line"], again["frames"]) == (stop["line"], stop["frames"])
    assert end["text"].endswith("the program ended with exit code 0")


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("engine", ["golden", "verilator"])
def test_back_over_three_tasks_registers_and_bytes_are_as_before(tmp_path: Path, engine: str):
    """Stops in tasks 4 to 7: forwards, backwards, and forwards again."""
    steps = [f"break DPU.DATA_CUBE_WIDTH if task == {task}" for task in (4, 5, 6, 7)]
    there, back = ["continue", "everything"], ["reverse_continue", "everything"]
    answers = neovim.session(
        tmp_path, {"program": str(DIGITS), "engine": engine}, [*steps, *there * 4, *back * 3, *there * 3]
    )[1 + len(steps) :]
    stops, held = answers[::2], answers[1::2]
    lines = [stop["line"] for stop in stops]
    assert len(set(lines)) == 4
    assert [lines.index(line) for line in lines] == [0, 1, 2, 3, 2, 1, 0, 1, 2, 3]
    for number, line in enumerate(lines):
        assert held[number] == held[lines.index(line)], f"stop {number}"
    assert all(one != other for one, other in pairwise(held))
    assert len(held[0]["registers"]) > 200 and set(held[0]["memory"]) == {"weights", "activations", "regcmd"}


PLANTED = """
import sys
from pathlib import Path
from tests.planted_debugger import planted_session

session = planted_session(Path(sys.argv[1]))

from rkcosim.debug.clients.adapter import Adapter

Adapter(sys.stdin.buffer, sys.stdout.buffer, session).serve()
"""


@pytest.mark.usefixtures("plugin")
def test_a_wrong_byte_of_the_rtl_is_found_with_its_stage(tmp_path: Path):
    """The output converter of this RTL makes 10 of 9; builds of 200 processor seconds."""
    steps = ["break difference", "continue", "difference", "reverse_continue"]
    command = [sys.executable, "-c", PLANTED, str(DIGITS)]
    _, _, stop, found, back = neovim.session(tmp_path, {}, steps, command)
    assert stop["reason"] == "exception" and "RTL and golden model differ after task" in stop["text"]
    assert "from the burst of DPU" in found
    assert "made after CORE, in the stages before the writes of DPU" in found
    assert back["reason"] == "entry"
