"""The debugger: positions forwards and backwards, breakpoints, values, and the cause of a wrong result."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.cli.debug import debug_command
from rkcosim.debug.breakpoints import BreakpointError
from rkcosim.debug.clients.terminal import Terminal
from rkcosim.debug.deviations.against import Tolerance, outputs_after_tasks, references
from rkcosim.debug.deviations.causes import inquire
from rkcosim.debug.deviations.patterns import patterns
from rkcosim.debug.expressions import ExpressionError
from rkcosim.debug.golden.session import Session
from rkcosim.debug.golden.stepped import SteppedKick
from rkcosim.debug.opening import Debugged, DebuggedJob, open_debugged, outputs_of
from rkcosim.debug.places import ListingPlace
from rkcosim.debug.tensors import TensorError
from rkcosim.regcmd.word import op_enable_mask, op_enable_word, words_to_bytes
from rkcosim.verify.streams.sources import SourceError
from rkcosim.verify.streams.stream import Stream

STREAMS = Path(__file__).resolve().parents[2] / "examples/streams"
DIGITS = STREAMS / "digits.json"


@pytest.fixture(scope="module")
def digits() -> Debugged:
    return open_debugged(DIGITS)


def everything(session: Session) -> dict[str, Any]:
    """Return every register, pointer, table and byte of the core and its memory."""
    device, memory = session.kick.device, session.kick.memory
    return {
        "groups": {name: copy.deepcopy(vars(state)) for name, state in device.space.blocks.items()},
        "plain": dict(device.space.plain),
        "raw": (device.raw, device.tasks_done, device.position),
        "cbuf": device.cbuf.bytes.tobytes(),
        "tables": device.lut.entries.tobytes(),
        "memory": [memory.read(address, size) for address, size in memory.regions()],
        "reports": len(device.reports),
    }


def test_going_back_over_three_tasks_gives_every_register_and_byte_again(digits: Debugged):
    session = Session(digits)
    session.step("task", 2)
    session.step("word", 7)
    first = everything(session)
    session.step("task", 3)
    assert everything(session) != first
    session.step_back("task", 3)
    assert session.place == ListingPlace(0, 2, 0)
    session.step("word", 7)
    assert everything(session) == first
    session.proceed()
    end = everything(session)
    session.run_to(ListingPlace(0, 2, 7))
    assert everything(session) == first
    session.proceed()
    assert everything(session) == end


def test_the_result_is_that_of_a_run_without_the_debugger(digits: Debugged):
    stream = Stream.load(DIGITS)
    session = Session(digits)
    assert session.proceed().reason == "end"
    for region in stream.run("golden").regions:
        assert session.kick.memory.read(region.address, region.data.size) == region.data.tobytes(), (
            region.name
        )


def test_a_kick_with_room_for_two_states_still_goes_back():
    stream = Stream.load(DIGITS)
    small, large = SteppedKick(stream, most_states=2, most_bytes=1), SteppedKick(stream)
    small.go_to(9)
    assert len(small.reach.tasks) <= 2
    for place in ((1, 5), (6, 0), (3, 2), (0, 0)):
        small.go_to(*place)
        large.go_to(*place)
        assert small.place == large.place == place
        for address, size in large.memory.regions():
            assert small.memory.read(address, size) == large.memory.read(address, size)


def test_breakpoints_stop_where_they_say_forwards_and_backwards(digits: Debugged):
    session = Session(digits)
    session.set_breakpoint("task 3")
    session.set_breakpoint("DPU.OUT_CVT_SHIFT.OUT_CVT_SHIFT if value > 22 and old < 22")
    session.watch("out7")
    line = session.source.line_of(ListingPlace(0, 6, 4))
    session.set_breakpoint(str(line))
    places = []
    while session.proceed().reason != "end":
        places.append((session.place.task, session.place.word, *session.stop.breakpoints))
    # `out7` shares its memory with results of tasks 1, 4 and 6; the shifts of tasks 5 and 9 are above 22.
    writes = [(2, 0, 3), (3, 0, 1), (5, 0, 3), (5, 87, 2), (6, 4, 4), (7, 0, 3), (8, 0, 3)]
    assert places == writes
    back = []
    while session.proceed_back().reason != "start":
        back.append((session.place.task, session.place.word))
    assert back == [place[:2] for place in reversed(places)]


def test_unknown_places_are_refused_with_what_there_is(digits: Debugged):
    session = Session(digits)
    for text, said in (
        ("task 10", "job 0 has no task 10; it has 10"),
        ("DPU.OUT_CVT_SHFT", "there are OUT_CVT_SHIFT"),
        ("node conv1", "a stream has only tasks"),
        ("cycle 5", "counts no cycles"),
        ("task 1 if DPU.", "is not an expression"),
        ("99999", "has no command word"),
        ("deviation", "there is no reference"),
    ):
        with pytest.raises(BreakpointError, match=said.replace("(", r"\(")):
            session.set_breakpoint(text)
    with pytest.raises(BreakpointError, match="is no place"):
        session.watch("0x10..0x")


def test_expressions_have_registers_and_tensors_and_nothing_of_python(digits: Debugged):
    session = Session(digits)
    session.step("task", 2)
    out = session.work.tensors["out1"].read(session.kick.memory)
    assert session.evaluate("out1[0, 3, 4, 7]") == out[3, 4, 7]
    assert session.evaluate("max(out1[3]) - 1") == int(out[3].max()) - 1
    assert session.evaluate("DPU[1].OUT_CVT_SHIFT.OUT_CVT_SHIFT == 21 and DPU.WIDTH + 1 == 16")
    assert session.evaluate("DPU[1].DST_BASE_ADDR") == 0x106000
    session.compare_with(references({"out1": out}, digits))
    assert session.evaluate("count(diff out1) == 0 and max(reference 'out1') == max('out1')")
    session.compare_with(references({"out2": np.zeros((32, 16, 16), np.int8)}, digits))
    for text in (
        "__import__('os')", "out1.__class__", "(lambda: 1)()", "[x for x in out1]", "1 << 10**9", "2 ** 9",
        "out1[99]", "nothing", "DPU.NOTHING", "golden out1", "reference out1", "x" * 2000, "1 if 1 else 0",
        "-" * 400 + "1",
    ):  # fmt: skip
        with pytest.raises(ExpressionError):
            session.evaluate(text)


def swapped(stream: Stream) -> None:
    """Let task 2 write its two surfaces in the other order."""
    task = stream.tasks[2]
    task["DPU.DST_BASE_ADDR"] = task["DPU.DST_BASE_ADDR"] + 256 * 16
    task["DPU.DST_SURF_STRIDE"] = -256 % (1 << 28) << 4


PLANTED: dict[str, tuple[int, Any, str, str]] = {
    "shift": (4, ("DPU.OUT_CVT_SHIFT.OUT_CVT_SHIFT", 21), "shift", "DPU.OUT_CVT_SHIFT.OUT_CVT_SHIFT"),
    "pad": (1, ("CNA.PAD_CON0.PAD_TOP", 0), "moved rows", "CNA.PAD_CON0.PAD_TOP"),
    "bias": (2, ("DPU_RDMA.BS_BASE_ADDR", 0x102000), "scattered", "DPU_RDMA.BS_BASE_ADDR.BS_BASE_ADDR"),
    "bias of another": (
        6,
        ("DPU_RDMA.BS_BASE_ADDR", 0x101C00),
        "part",
        "DPU_RDMA.BS_BASE_ADDR.BS_BASE_ADDR",
    ),
    "surfaces": (2, swapped, "order of surfaces", "DPU.DST_SURF_STRIDE.DST_SURF_STRIDE"),
    "relu": (2, ("DPU.BS_CFG.BS_RELU_BYPASS", 1), "relu", "DPU.BS_CFG.BS_RELU_BYPASS"),
    "offset": (7, ("DPU.OUT_CVT_OFFSET", -123), "offset", "DPU.OUT_CVT_OFFSET.OUT_CVT_OFFSET"),
}
"""Task, change, kind of the first pattern, and the field that must be the first cause."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_the_first_cause(name: str):
    task, change, kind, path = PLANTED[name]
    right = Stream.load(DIGITS)
    if name == "relu":  # the first layer with one that the zero point of the output does not hide
        right.tasks[2]["DPU.BS_CFG.BS_RELU_BYPASS"] = 0
        right.tasks[2]["DPU.OUT_CVT_OFFSET"] = 0
    wrong = copy.deepcopy(right)
    if callable(change):
        change(wrong)
    else:
        wrong.tasks[task][change[0]] = change[1]
    work, broken = worked(right), worked(wrong)
    broken.tensors = work.tensors  # the places where the tensors belong
    session = Session(broken, references(outputs_after_tasks(work), work))
    stop = session.proceed()
    assert stop.reason == "deviation"
    found = stop.deviation
    assert found is not None
    assert found.task == task
    here = everything(session)
    result = session.examine(found, most_trials=300 if name.startswith("bias") else 60)
    assert everything(session) == here, "trials leave nothing behind"
    assert found.patterns[0].kind == kind
    assert result.causes
    assert result.causes[0].explains
    assert result.causes[0].path == path


def worked(stream: Stream) -> Debugged:
    program = stream.program()
    job = DebuggedJob(stream, program, ["" for _ in program.tasks])
    return Debugged("planted", [job], outputs_of([job]), {region.name: region for region in stream.regions})


def test_bytes_of_a_region_are_compared_where_their_last_task_wrote_them(digits: Debugged):
    right = Stream.load(DIGITS)
    result = right.run("golden")
    wrong = Stream.load(DIGITS)
    wrong.tasks[9]["DPU.OUT_CVT_SHIFT.OUT_CVT_SHIFT"] = 25
    for stream, end in ((right, "end"), (wrong, "deviation")):
        work = worked(stream)
        session = Session(work, references({"activations": result["activations"]}, work))
        assert session.proceed().reason == end
    found = session.stop.deviation
    assert found is not None
    assert (found.task, found.reference.place.name) == (9, "out9")


def test_causes_end_after_their_time(digits: Debugged):
    wrong = Stream.load(DIGITS)
    wrong.tasks[0]["DPU.OUT_CVT_OFFSET"] = 0
    session = Session(worked(wrong), references({"out0": np.zeros((16, 16, 16), np.int8)}, digits))
    found = session.proceed().deviation
    assert found is not None
    session.run_to(ListingPlace(0, 0, 0))
    times = iter(range(100))
    result = inquire(
        session.kick, session.work.jobs[0], found, Tolerance(), most_seconds=3, clock=lambda: next(times)
    )
    assert 1 <= result.tried <= 4
    assert result.untried > 100


RNG = np.random.default_rng(7)
CUBE = RNG.integers(-50, 50, (32, 6, 7)).astype(np.int8)


def changed(kind: str) -> np.ndarray:
    """Return the cube, wrong in one way."""
    got = CUBE.copy()
    wide = CUBE.astype(np.int64)
    if kind == "offset":
        return (wide + 9).astype(np.int8)
    if kind == "shift":
        return np.clip(wide * 2, -128, 127).astype(np.int8)
    if kind == "scale":
        return np.round(wide * 1.4).astype(np.int8)
    if kind == "channel offset":
        return (wide + np.arange(32)[:, None, None] % 5).astype(np.int8)
    if kind == "order of surfaces":
        return np.concatenate([got[16:], got[:16]])
    if kind == "order of channels":
        return got[[1, 0, *range(2, 32)]]
    if kind == "order of rows":
        return got[:, [0, 2, 1, 3, 4, 5]]
    if kind == "moved columns":
        got[:, :, :-1] = CUBE[:, :, 1:]
        got[:, :, -1] = 99
    if kind == "border":
        got[:, 0] += 3
        got[:3, :, 0] -= 5
    if kind == "relu":
        return np.maximum(got, 0)
    if kind == "clipped":
        return np.minimum(got, 20)
    if kind == "stale":
        got[:, 2:4] = 0
    return got


@pytest.mark.parametrize(
    "kind",
    ["offset", "shift", "scale", "channel offset", "order of surfaces", "order of channels", "order of rows",
     "moved columns", "border", "relu", "clipped", "stale"],
)  # fmt: skip
def test_patterns_are_named(kind: str):
    got = changed(kind)
    before = np.zeros_like(CUBE) if kind == "stale" else None
    found = patterns(got, CUBE, np.ones(CUBE.shape, bool), got != CUBE, before)
    assert found[0].kind == kind
    assert not patterns(CUBE, CUBE, np.ones(CUBE.shape, bool), np.zeros(CUBE.shape, bool))


def test_references_take_the_layouts_of_others(digits: Debugged):
    session = Session(digits)
    session.step("task", 3)
    place = digits.tensors["out2"]
    cube = place.read(session.kick.memory)
    first, end = place.span
    whole = session.kick.memory.view(first, end - first).copy()
    for array in (
        cube,
        cube[None],
        cube.transpose(1, 2, 0),
        cube.transpose(1, 2, 0)[None],
        whole,
        cube.astype(np.float32),
    ):
        assert np.array_equal(place.fitted(array), cube)
    unsigned = (cube.astype(np.int16) + 128).astype(np.uint8)
    assert np.array_equal(place.fitted(unsigned), cube)
    with pytest.raises(TensorError, match=r"shape \(3, 3\) does not fit"):
        place.fitted(np.zeros((3, 3), np.int8))
    with pytest.raises(TensorError, match="exceed int8"):
        place.fitted(cube.astype(np.int32) * 9)
    with pytest.raises(TensorError, match="there are out2"):
        references({"ou2": cube}, digits)


def ran(lines: str, work: Debugged) -> tuple[int, str]:
    out = io.StringIO()
    code = Terminal(Session(work), out).run_lines(lines.splitlines(), "commands")
    return code, out.getvalue()


def test_files_of_commands_have_exit_codes(digits: Debugged, tmp_path: Path):
    code, said = ran(
        "b task 2\nc\nbt\np/x DPU[1].DST_BASE_ADDR\nx/32xb out1\ninfo registers DPU\nrs 2\nl", digits
    )
    assert code == 0
    assert "breakpoint 1: task 2: CNA CORE DPU DPU_RDMA" in said
    assert "0x106000" in said
    assert "DPU.DATA_FORMAT OUT_PRECISION=INT8" in said
    assert ran("next\nassert DPU[0].WIDTH == 15", digits)[0] == 0
    assert ran("next\nassert DPU[0].WIDTH == 16", digits)[0] == 1
    code, said = ran("next\nno-such-command\nquit", digits)
    assert (code, "line 2" in said) == (2, True)
    code, said = ran(f"save {tmp_path / 'right.npz'}\nagainst {tmp_path / 'right.npz'}\nc", digits)
    assert (code, "10 tensors ->" in said, "all 10 tasks have run" in said) == (0, True, True)
    np.savez(tmp_path / "r.npz", out3=np.zeros((32, 8, 8), np.int8))
    code, said = ran(f"against {tmp_path / 'r.npz'}\nc", digits)
    assert code == 1
    assert "task 3 deviates from the reference: out3" in said
    for command in Terminal(Session(digits), io.StringIO()).completenames(""):
        assert ran(f"help {command}", digits)[0] == 0


def test_a_hang_names_the_block_that_waits():
    stream = Stream.load(STREAMS / "pool.json")
    enable = stream.tasks[0].words
    (at,) = (n for n, c in enumerate(stream.tasks[0].commands) if c.kind == "op_enable")
    region = next(r for r in stream.regions if r.address <= stream.tasks[0].address < r.address + r.data.size)
    start = stream.tasks[0].address - region.address + 8 * at
    region.data[start : start + 8] = np.frombuffer(
        words_to_bytes([op_enable_word(op_enable_mask(["PPU"]))]), np.uint8
    )
    assert enable != stream.tasks[0].words
    code, said = ran("c\ninfo state", worked(stream))
    assert code == 3
    assert "PPU: waits for PPU_RDMA, not running" in said
    assert "OP_ENABLE PPU" in said


def test_a_listing_needs_its_memory(tmp_path: Path):
    stream, path = Stream.load(DIGITS), tmp_path / "digits.txt"
    path.write_text(stream.dump(memory=True), encoding="utf-8")
    assert ran("c", open_debugged(path))[0] == 0
    path.write_text(stream.dump(), encoding="utf-8")
    with pytest.raises(SourceError, match="--with-memory"):
        open_debugged(path)


def test_words_are_completed(digits: Debugged):
    terminal = Terminal(Session(digits), io.StringIO())

    def completed(line: str) -> list[str]:
        """Return what readline offers for the end of a line."""
        begin = max(line.rfind(mark) for mark in " -(=") + 1
        if not begin:
            return terminal.completenames(line)
        return terminal.completedefault(line[begin:], line, begin, len(line))

    assert completed("rev") == ["reverse-continue", "reverse-next", "reverse-step"]
    assert completed("reverse-st") == ["step"]
    assert completed("info la") == ["layout"]
    assert completed("break ta") == ["task"]
    assert completed("print DPU_RDMA.ERD") == ["DPU_RDMA.ERDMA_CFG"]
    assert completed("break DPU.DATA_CUBE_WIDTH.W") == ["DPU.DATA_CUBE_WIDTH.WIDTH"]
    assert completed("print max(out1") == ["out1"]
    assert not completed("print DPU.NOTHING.")
    assert debug_command.waits, "a line about progress would stand in the line that the user types"
