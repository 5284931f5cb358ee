"""The debugger on the RTL: cycles forwards and backwards, breakpoints, both register groups, differences."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.debug.clients.terminal import Terminal
from rkcosim.debug.golden.session import Session
from rkcosim.debug.opening import Debugged, open_debugged
from rkcosim.debug.places import ListingPlace
from rkcosim.debug.rtl.held import contents
from rkcosim.debug.rtl.session import RtlSession
from rkcosim.engines.engine import open_engine
from rkcosim.engines.library import MAX_LOOKAHEAD
from rkcosim.spec.regs import counter_registers
from rkcosim.verify.crosscheck.kick import start
from rkcosim.waves.spec import TraceSpec, When
from tests.unit.test_debug_adapter import client

STREAMS = Path(__file__).resolve().parents[2] / "examples/streams"


@pytest.fixture(scope="module")
def digits() -> Debugged:
    return open_debugged(STREAMS / "digits.json")


@pytest.fixture(scope="module")
def session(digits: Debugged) -> Iterator[RtlSession]:
    made = RtlSession(digits, spacing=1000, most_states=6)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def at_the_start(request: pytest.FixtureRequest) -> None:
    """Put the shared session back to its start, without breakpoints."""
    if "session" in request.fixturenames:
        session = request.getfixturevalue("session")
        session.breakpoints.clear()
        session.run.go_to(session.run.first_cycle)


def everything(session: RtlSession) -> dict[str, Any]:
    """Return every bit of the cores, every byte of the memory, the registers and the logs."""
    engine = session.engine
    return {
        "cycle": engine.cycle,
        "state": engine.snapshots.keep().state.tobytes(),
        "memory": {iova: engine.memory.read(iova, size) for iova, size in engine.memory.ranges.items()},
        "groups": {name: (state.groups, state.pointer) for name, state in session.contents.blocks.items()},
        "tasks": session.run.tasks(0),
        "place": session.place,
    }


def test_back_over_three_tasks_everything_is_as_before(session: RtlSession) -> None:
    seen = []
    for _ in range(5):
        session.step("task")
        seen.append(everything(session))
    session.step("cycle", 333)
    seen.append(everything(session))
    session.step("task")
    assert len(session.run.kept.cycles) <= 6
    for before in (seen[5], seen[4], seen[3], seen[1], seen[0]):
        session.run.go_to(before["cycle"])
        assert everything(session) == before
    session.step("task", 4)
    assert everything(session) == seen[4]


def test_breakpoints_stop_in_their_cycle_forwards_and_backwards(session: RtlSession) -> None:
    enable = session.source.line_of(ListingPlace(0, 4, session.core_run.enable_word(4)))
    for text in ("cycle 7000", "DPU.OUT_CVT_SHIFT if value > 22 and old < 22", "task 3", "interrupt", enable):
        session.set_breakpoint(str(text))
    stops = []
    while (stop := session.proceed()).reason != "end":
        stops.append((session.run.cycle, stop.breakpoints))
    assert [numbers for _, numbers in stops] == [[1], [3], [5], [2], [4]], stops
    assert stops[0][0] == 7000 and stops[1][0] == session.run.tasks(0)[3].start
    assert session.run.ended(0) and session.finished
    back = []
    while session.proceed_back().reason != "start":
        back.append(session.run.cycle)
    assert back == [cycle for cycle, _ in reversed(stops)]


def test_accesses_of_a_range_stop_at_the_burst(session: RtlSession) -> None:
    session.watch("out3")
    stop = session.proceed()
    first, end = session.work.tensors["out3"].span
    task = session.run.running_task(0)
    assert stop.reason == "breakpoint" and "requests a write of 0x" in stop.text and task is not None
    before = session.memory.read(first, end - first)
    session.breakpoints.clear()
    session.watch("out3", "read")
    assert "requests a read of 0x" in session.proceed().text
    session.run.go_to(session.run.first_cycle)
    assert before == session.memory.read(first, end - first), "the byte was written before its burst"


def test_registers_of_both_groups_are_those_that_the_core_uses(session: RtlSession) -> None:
    """The groups that follow from the writes agree with the signals of the core."""
    session.step("task", 2)
    session.step("cycle", 500)
    signals = session.signals
    pointers = signals.pointers()
    written = contents(session.core_run, session.run.tasks(0)).blocks
    assert {name: state.pointer for name, state in written.items()} == {
        name: fields["POINTER"] for name, fields in pointers.items()
    }
    for block in signals.running():
        state = session.contents.blocks[block]
        used = signals.used_registers(block)
        held = {offset: word for offset, word in state.groups[state.executer].items() if offset in used}
        assert held and held == {offset: used[offset] for offset in held}, block
    assert session.evaluate("cycle") == session.run.cycle
    assert {"PC", "CNA_FEATURE", "CSC", "DPU", "PPU"} <= signals.activities().keys()
    assert session.inside("DPU") and session.inside("CBUF")


def test_waveform_and_counters_of_a_cycle_are_those_of_a_plain_run(
    session: RtlSession, tmp_path: Path
) -> None:
    session.step("cycle", 640)
    before, cycle = everything(session), session.run.cycle
    out = io.StringIO()
    commands = ["info counters", f"trace from here for 20 cycles {tmp_path / 'here.vcd'}", "info counters"]
    assert Terminal(session, out).run_lines(commands, "commands") == 0
    assert f"cycles {cycle} to {cycle + 19} -> " in out.getvalue()
    assert everything(session) == before
    spec = TraceSpec(tmp_path / "plain.vcd", start=When.parse(cycle), stop=When.parse(cycle + 20))
    stream = session.work.jobs[0].stream
    for trace in (spec, None):
        with open_engine(cores=1, on_diagnostic="go on", trace=trace) as engine:
            stream.load_into(engine.memory)
            start(engine, stream.kick, stream.core, stream.writes)
            if trace is None:
                engine.counter_window(0).write32(counter_registers()["CONTROL"]["SWITCH"].offset, 1)
            engine.run_to(cycle if trace is None else cycle + 20)
            counted = engine.block_counters(0)
    assert (tmp_path / "here.vcd").read_bytes() == (tmp_path / "plain.vcd").read_bytes()
    feature = ", ".join(f"{name} {value}" for name, value in counted.states["CNA_FEATURE"].items() if value)
    assert feature and out.getvalue().count(f"CNA_FEATURE: {feature}\n") == 2


def test_a_hang_says_who_waits_for_whom_as_the_end_of_a_run() -> None:
    work = open_debugged(STREAMS / "no_interrupt.json")
    session = RtlSession(work)
    out = io.StringIO()
    assert Terminal(session, out).run_lines(["continue", "info state", "reverse-next"], "commands") == 3
    session.close()
    with open_engine(cores=1, traced=True, on_diagnostic="go on") as engine:
        stream = work.jobs[0].stream
        stream.load_into(engine.memory)
        from rkcosim.verify.crosscheck.kick import run_kick

        state = run_kick(engine, stream.kick, stream.core, max_cycles=200_000, writes=stream.writes).state
    waits = [line for line in state.splitlines() if " waits for " in line or "takes no results" in line]
    assert waits and all(line in out.getvalue() for line in waits)


def test_the_first_difference_is_found_in_the_cycle_of_its_write(digits: Debugged) -> None:
    """The golden model of the test has a wrong byte among the weights, so the RTL differs from it."""
    session = RtlSession(digits)
    try:
        golden = session._goldens[0] = Session(digits).kick
        golden.memory.view(digits.regions["weights"].address + 0x17C0 + 5, 1)[0] ^= 0x40
        session.set_breakpoint("difference")
        stop = session.proceed()
        assert stop.reason == "difference" and session.wrong is not None
        wrong = session.wrong
        write = session.first_wrong_write()
        assert wrong.begin < write.cycle <= wrong.end and write.burst is not None
        assert session.run.cycle == write.cycle and write.burst.cycle <= write.cycle
        assert session.memory.view(write.address, 1)[0] != write.got
        session.step("cycle", MAX_LOOKAHEAD + 1)
        assert session.memory.view(write.address, 1)[0] == write.got != write.want
    finally:
        session.close()


@pytest.mark.parametrize("engine", ["golden", "fast"])
def test_engines_that_cannot_be_saved_are_refused(digits: Debugged, engine: str) -> None:
    with pytest.raises(ValueError, match="cannot be saved"):
        RtlSession(digits, engine=engine)


def test_the_golden_model_has_no_cycles_and_no_signals(digits: Debugged) -> None:
    session, out = Session(digits), io.StringIO()
    for command in (
        "step cycle 3",
        "info block DPU",
        "difference",
        "break cycle 5",
        "thread 4",
        "info counters",
    ):
        assert Terminal(session, out).run_lines([command], "commands") == 2, command
    assert np.count_nonzero([line.startswith("error: ") for line in out.getvalue().splitlines()]) == 6


def test_an_editor_sees_cycles_and_signals() -> None:
    with client() as editor:
        editor.ask("initialize", adapterID="rkcosim")
        assert "cannot" in editor.ask(
            "launch", wrong=True, program=str(STREAMS / "digits.json"), engine="fast"
        )
        editor.ask("launch", program=str(STREAMS / "digits.json"), engine="verilator")
        made = editor.ask("setFunctionBreakpoints", breakpoints=[{"name": "cycle 7000"}])["breakpoints"]
        assert made[0]["verified"]
        editor.ask("configurationDone")
        editor.wait("stopped")
        editor.ask("continue", threadId=1)
        assert "cycle 7000" in editor.wait("stopped")["text"]
        (_, task, *_) = editor.ask("stackTrace", threadId=1)["stackFrames"]
        assert "cycle 7000, task 2 runs" in task["name"]
        scopes = {one["name"]: one["variablesReference"] for one in editor.ask("scopes", frameId=1)["scopes"]}
        parts = editor.ask("variables", variablesReference=scopes["DPU signals"])["variables"]
        pipe = next(one["variablesReference"] for one in parts if one["name"] == "pipe")
        assert len(editor.ask("variables", variablesReference=pipe)["variables"]) > 100
        state = editor.ask("variables", variablesReference=scopes["State"])["variables"]
        assert any(one["name"] == "CSC" for one in state)
        assert editor.ask("evaluate", expression="cycle", context="hover")["result"].startswith("7000")
        editor.ask("stepBack", threadId=1)
        assert editor.wait("stopped")["reason"] == "step"
        editor.ask("disconnect")


PLANTED = """
import sys
from pathlib import Path
from tests.planted_debugger import planted_session

session = planted_session(Path(sys.argv[1]))

from rkcosim.debug.clients.terminal import Terminal

code = Terminal(session).run_lines(["break difference", "continue", "difference", "info state"], "commands")
session.close()
sys.exit(code)
"""


def test_a_fault_planted_in_the_rtl_is_found_with_its_stage() -> None:
    """The output converter of this RTL makes 10 of 9; builds of 200 processor seconds."""
    run = subprocess.run(
        [sys.executable, "-c", PLANTED, str(STREAMS / "digits.json")],
        capture_output=True,
        text=True,
        cwd=STREAMS.parents[1],
        timeout=1200,
    )
    assert run.returncode == 1, run.stderr
    assert "difference: RTL and golden model differ after task" in run.stdout
    assert "from the burst of DPU" in run.stdout
    assert "made after CORE, in the stages before the writes of DPU" in run.stdout
