"""A session whose jobs are started by a program that runs: a double of the program, without processes."""

from __future__ import annotations

import threading
from pathlib import Path

from rkcosim.debug.golden.session import Session
from rkcosim.debug.opening import Debugged, DebuggedJob, outputs_of
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.verify.streams.stream import Stream

POOL = Path(__file__).resolve().parents[2] / "examples/streams/pool.json"


class Double:
    """Starts the same job a number of times, the last time behind a pause."""

    def __init__(self, jobs: int) -> None:
        self.left, self.ended, self.closed, self.pauses = jobs, "", False, 1

    def wait(self, work: Debugged, paused: threading.Event) -> bool:
        if self.left == 1 and self.pauses:
            self.pauses -= 1
            paused.set()
            return False
        if not self.left:
            self.ended = "the program ended with exit code 0"
            return False
        self.left -= 1
        stream = Stream.load(POOL)
        job = DebuggedJob(stream, program_of_stream(stream), [""])
        work.jobs.append(job)
        work.tensors |= outputs_of([job], len(work.jobs) - 1)
        return True

    def close(self) -> None:
        self.closed = True


def test_the_jobs_of_a_program_come_one_after_the_other():
    program = Double(3)
    work = Debugged("double", [], {}, program=program)
    assert program.wait(work, threading.Event())
    session = Session(work)
    first = len(session.source.lines)
    session.set_breakpoint("job")
    stop = session.proceed()
    assert (stop.reason, stop.place.job, stop.place.task) == ("breakpoint", 1, 0)
    assert len(session.source.lines) == 2 * first and session.line > first
    assert "out0_1" in work.tensors

    # Back into the job before, and forwards again: nothing new is started.
    assert session.step_back("word", 3).place.job == 0
    assert session.proceed().place.job == 1 and len(work.jobs) == 2

    stop = session.proceed()
    assert stop.reason == "pause" and "no further job" in stop.text
    assert session.proceed().place.job == 2
    assert session.proceed().text.endswith("all 3 tasks have run, interrupt status 0x400; " + program.ended)
    session.close()
    assert program.closed
