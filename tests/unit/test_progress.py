"""Progress: steps, the live line on a terminal, and no output elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rkcosim.base import progress
from rkcosim.base.progress_display import clock, describe, quantity
from rkcosim.measure.models.progress import Inferences

ROOT = Path(__file__).resolve().parents[2]

WORK = """
import sys, time
from rkcosim.base import progress
from rkcosim.base import progress_display as shown
shown.AFTER = 0.3
engine = type("Engine", (), dict(trace_bytes=lambda self: 12345, can_trace=True))()
with shown.shown(quiet={quiet}):
    progress.say("before")
    with progress.step("counting", 10, "things") as step:
        for number in range(10):
            step.done = number
            engine.cycle = number * 1000
            progress.tick(engine)
            time.sleep(0.12)
            if number == 5:
                progress.say("half")
    print("result", flush=True)
"""


def on_terminal(
    env: dict[str, str] | None = None, quiet: bool = False, stdout_too: bool = False
) -> tuple[str, str]:
    """Return the output to the pipe and to a terminal of 120 columns."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", WORK.format(quiet=quiet)],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", **(env or {})},
        stdout=slave if stdout_too else subprocess.PIPE,
        stderr=slave,
        text=True,
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        seen += data
    os.close(master)
    out = process.communicate(timeout=30)[0] or ""
    assert process.returncode == 0
    return out, seen.decode()


def test_live_line():
    out, seen = on_terminal()
    assert out == "result\n"
    assert "counting" in seen and "/10 things" in seen and "%" in seen and " left" in seen
    assert "cycles" in seen and "/s" in seen and "trace 12.3 kB" in seen
    assert "rkcosim: before" in seen and ": half" in seen
    assert seen.rstrip("\r\n").rfind("\x1b[?25h") > seen.rfind("\x1b[?25l"), "the cursor must come back"


def test_result_stands_on_its_own_line_of_the_terminal():
    _, seen = on_terminal(stdout_too=True)
    assert "result\r\n" in seen


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": ""}])
def test_no_control_characters_where_they_are_not_understood(env: dict[str, str]):
    out, seen = on_terminal(env)
    assert out == "result\n" and "\x1b" not in seen and "rkcosim: half" in seen


def test_quiet():
    assert on_terminal(quiet=True) == ("result\n", "")


def test_no_color_keeps_the_line_and_drops_the_colours():
    import re

    _, seen = on_terminal({"NO_COLOR": "1"})
    assert "counting" in seen
    assert not re.search(r"\x1b\[(3[0-9]|9[0-9]|38;|48;)[0-9;]*m", seen)


def test_plain_lines_where_there_is_no_terminal():
    run = subprocess.run(
        [sys.executable, "-c", WORK.format(quiet=False)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert run.stdout == "result\n" and run.stderr == "rkcosim: before\nrkcosim: half\n"


def test_short_work_shows_nothing():
    work = WORK.replace("0.3", "60.0").replace("time.sleep(0.12)", "time.sleep(0.01)")
    assert "AFTER = 60.0" in work
    master, slave = pty.openpty()
    run = subprocess.run(
        [sys.executable, "-c", work.format(quiet=False).replace('progress.say("before")', "pass")],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=slave,
        timeout=30,
        check=True,
    )
    os.close(slave)
    try:
        seen = os.read(master, 4096)
    except OSError:
        seen = b""
    os.close(master)
    assert run.stdout == b"result\n" and b"counting" not in seen


def test_chunks_follow_the_speed():
    chunks = progress.Chunks(1 << 22)
    for _ in range(12):  # 1 M cycles a second
        chunks.took(chunks.cycles, chunks.cycles / 1e6)
    assert 90_000 <= chunks.cycles <= 110_000
    chunks.took(chunks.cycles, 10.0)  # suddenly slow
    assert chunks.cycles <= 1100
    for _ in range(12):  # nothing but waiting costs no time
        chunks.took(chunks.cycles, 0.0)
    assert chunks.cycles == 1 << 22
    chunks.took(100, 1000.0)
    assert chunks.cycles == progress.Chunks.LEAST


def test_steps_end_with_what_they_describe():
    with pytest.raises(ValueError), progress.step("outer"), progress.step("inner", 3):
        assert [step.what for step in progress.steps] == ["outer", "inner"]
        raise ValueError
    assert progress.steps == []


def test_words():
    assert [clock(s) for s in (0, 7.4, 754, 11_220)] == ["0:00", "0:07", "12:34", "3:07:00"]
    assert [quantity(v) for v in (85, 1234, 779_000, 1.2e6, 5e9)] == [
        "85 ",
        "1.2 k",
        "779 k",
        "1.2 M",
        "5.0 G",
    ]
    step = progress.Step("plans", 12, "plans", done=3, detail="conv3")
    assert describe(step) == "plans 3/12 plans: conv3"


class Engine:
    """An engine that has only a log and a cycle."""

    dram = None
    has_cycles = True

    def __init__(self) -> None:
        self.cycle = 0
        self.log: list[Any] = []

    def task_log(self) -> list[Any]:
        return self.log

    def task_count(self) -> int:
        return len(self.log)

    def task(self, start: int, end: int | None) -> None:
        self.log.append(SimpleNamespace(start=start, end=end, cycles=None if end is None else end - start))


def _plan(*costs: int) -> Any:
    tasks = [SimpleNamespace(layer=n, formula_npu=c, reads=0, writes=0) for n, c in enumerate(costs)]
    return SimpleNamespace(tasks=tasks, steps=[SimpleNamespace(name=f"layer{n}") for n in range(len(costs))])


def test_inferences_by_the_tasks_that_have_ended():
    engine = Engine()
    shown = Inferences(_plan(600, 1600, 600), engine, 2, checks=False)  # 1000, 2000, 1000 with overhead
    for number in range(2):
        with shown.running(number):
            (step,) = progress.steps
            assert step.follow is not None
            for at, share in ((0, 0.0), (1, 0.25), (2, 0.75)):
                step.follow(engine)
                assert step.done == pytest.approx(number + share)
                assert f"layer{at}, task {at + 1} of 3" in step.detail
                engine.task(engine.cycle, engine.cycle + 1000)
                engine.cycle += 1000
            step.follow(engine)
            assert step.done == number + 1
    assert progress.steps == []


def test_inferences_within_a_task_and_with_checks():
    engine = Engine()
    shown = Inferences(_plan(600, 600), engine, 1, checks=True)
    with shown.running(0):
        (step,) = progress.steps
        assert step.follow is not None
        engine.task(0, None)
        engine.cycle = 500
        step.follow(engine)
        assert 0.1 < step.done < 0.25  # half of the first of two tasks, checks to come
    with shown.checking():
        assert 0.5 < progress.steps[0].done < 1


def test_inferences_of_a_model_without_a_plan():
    engine = Engine()
    shown = Inferences(None, engine, 1, checks=False)
    with shown.running(0):
        step = progress.steps[0]
        assert step.follow is not None
        step.follow(engine)
        assert step.done == 0


PLAIN = """
import sys, time
from rkcosim.base import progress
from rkcosim.base import progress_display as shown
lines = shown.PlainLines(every=0.3)
with progress.listen(lines), progress.step("compiling", 100, "files") as step:
    engine = type("Engine", (), dict(cycle=4321, can_trace=False))()
    step.done = 12
    progress.tick(engine)
    time.sleep(0.5)
    step.done = 60
    time.sleep(0.4)
time.sleep(0.5)
lines.close()
"""


def test_a_pipe_hears_now_and_then_what_is_under_way():
    done = subprocess.run([sys.executable, "-c", PLAIN], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stdout
    lines = done.stderr.splitlines()
    assert lines and all(line.startswith("rkcosim: compiling ") for line in lines)
    assert "12/100 files" in lines[0] and "4,321 cycles" in lines[0] and "60/100 files" in lines[-1]
    assert len(lines) <= 4  # and nothing once the step is over
