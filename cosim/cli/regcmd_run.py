"""`rkcosim regcmd run`: run a stream on the RTL or the golden model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.base import DEVICE_ERROR
from rkcosim.base.progress_display import kick
from rkcosim.cli.app import argument, command, option
from rkcosim.cli.exits import MISMATCH, OK, error_facts, fail
from rkcosim.cli.options import MOST_CYCLES, Html, MaxCycles, RecordedOptions
from rkcosim.cli.snapshots import SnapshotOptions

if TYPE_CHECKING:
    from rkcosim.engines.engine import AnyEngine
    from rkcosim.verify.streams.runs import StreamResult
    from rkcosim.verify.streams.stream import Stream
    from rkcosim.waves.spec import TraceSpec

SAVED = ("engine", "exact", "check", "on_diagnostic", "dram")
"""Options that affect the result of a run and are stored in a snapshot."""


@dataclass(frozen=True, kw_only=True)
class RegcmdRunOptions(RecordedOptions, SnapshotOptions):
    """Options of `rkcosim regcmd run`."""

    file: Path = argument("Stream file: command lists with their memory image (JSON).")
    check: bool = option("Compare all memory with the golden model after the run.", default=False)
    on_diagnostic: str = option(
        "What to do at a diagnostic of the device: 'stop', or 'go on' as silicon does.",
        metavar="MODE",
        words=("stop", "go on"),
        default="stop",
    )
    max_cycles: MaxCycles = MOST_CYCLES
    html: Html = None


@command(
    "rkcosim regcmd run examples/streams/pool.json --check",
    "rkcosim regcmd run examples/streams/pool.json --trace build/pool.vcd --scope core0.PPU",
    "rkcosim regcmd run stream.json --max-cycles 200000 --trace build/end.fst --from error",
    "rkcosim regcmd run stream.json --save build/task3.snap --at task:3",
)
def run_command(asked: RegcmdRunOptions) -> None:
    """Run a stream with its memory image.

    It runs on the RTL or on the golden model. With --check the exit code is 1 if memory differs.
    """
    with asked.recording() as trace:
        _run(asked, trace)


def _run(asked: RegcmdRunOptions, trace: TraceSpec | None) -> None:
    from rkcosim.cli.moments import Work, check_layer, check_trace
    from rkcosim.cli.snapshots import SavedRun
    from rkcosim.engines.engine import open_engine
    from rkcosim.engines.settings import changed, timing_line
    from rkcosim.measure.report.kept import keeping, write_page
    from rkcosim.regcmd.machine import task_count
    from rkcosim.verify.crosscheck.mismatch_trace import trace_mismatch, wants_mismatch
    from rkcosim.verify.streams.stream import Stream

    stream = Stream.load(asked.file)
    run = SavedRun(asked, "regcmd run", asked.file, SAVED, trace)
    engine, exact, check, on_diagnostic, dram = (run.values[name] for name in SAVED)
    kicks = None if stream.kick.slave else [stream.kick.tasks]
    tasks = task_count(stream.program()) if stream.kick.slave else stream.kick.tasks
    work = Work(None, kicks=kicks, cores=stream.core + 1)
    check_trace(trace, work)
    if (at := asked.border) is not None and at.layer:
        check_layer(at.text, at.layer, work)
    later = wants_mismatch(trace, check)
    opened = partial(
        open_engine, engine, cores=stream.core + 1, exact=exact, dram=dram, on_diagnostic=on_diagnostic
    )

    @contextmanager
    def repeat(spec: TraceSpec | None) -> Iterator[tuple[Any, Callable[[], object]]]:
        with closing(opened(trace=spec)) as again:
            yield again, partial(run_stream, stream, again, asked.max_cycles)

    with keeping(asked.html), run.running(), closing(opened(trace=None if later else trace)) as device:
        with kick("stream", stream.kick.tasks, device, asked.max_cycles):
            result, stopped = run_stream(stream, device, asked.max_cycles)
        said = [str(item) for item in device.diagnostics()] if device.has_cycles else []
        for line in said:
            print(f"diagnostic: {line}")
        data: dict[str, Any] = {
            "stream": asked.file.name,
            "engine": device.name,
            "tasks": tasks,
            "cycles": result.cycles,
            "dram_changed": changed(dram),
            "status": f"0x{result.status:05X}",
            "done": result.done,
            "state": result.state,
            "diagnostics": said,
            "verdict": {"match": None},
        }
        if result.done:
            took = "-" if result.cycles is None else result.cycles
            print(f"{tasks} tasks, {took} cycles, status 0x{result.status:05X}")
            if timing := timing_line(dram):
                print(timing)
            if check:
                verdict = result.compare()
                print(verdict)
                data["verdict"] = {"match": verdict.match}
                if not verdict:
                    data["verdict"]["first_difference"] = verdict.where
                if "first" in verdict.difference:
                    data["verdict"]["address"] = verdict.difference["first"]
                if trace and later:
                    data["verdict"] |= trace_mismatch(trace, data["verdict"], repeat)
        else:
            data["error"] = run_error(stopped, asked.max_cycles)
        if asked.json or asked.html:
            from rkcosim.measure.models.rows import stream_rows

            data |= stream_rows(device, stream)
        asked.write(data)
        if asked.html:
            write_page(asked.html, data, device.events() if device.has_events else None)
    # At this point the engine has written its waveform and event log.
    if stopped is not None:
        raise stopped
    if not result.done:
        fail(f"{data['error']['text']}:\n{result.state}", DEVICE_ERROR)
    run.finish()
    raise SystemExit(MISMATCH if data["verdict"]["match"] is False else OK)


def run_stream(
    stream: Stream, device: AnyEngine, max_cycles: int
) -> tuple[StreamResult, BaseException | None]:
    """Run a stream on `device`; return the result, and the error of the device that stopped it, if any.

    After an error the result has the cycles, the status and the state at that moment. The memory of the
    stream remains mapped.
    """
    from rkcosim.engines.protocol import JobError, JobTimeout

    try:
        return stream.run(device, max_cycles=max_cycles, keep=True), None
    except JobTimeout as error:
        return error.result, None
    except JobError as error:
        return error.result, error.__cause__


def no_interrupt(max_cycles: int) -> str:
    """Return the text for a run whose interrupt did not come within its bound."""
    chosen = " (--max-cycles sets another bound)" if max_cycles == MOST_CYCLES else ""
    return f"no interrupt within {max_cycles} cycles{chosen}"


def run_error(stopped: BaseException | None, max_cycles: int) -> dict[str, Any]:
    """Return the member `error` of the JSON document for a run that did not end."""
    if stopped is None:
        text = no_interrupt(max_cycles)
        return {"text": text, "exit_code": DEVICE_ERROR, "kind": "TimeOut"}
    return {"text": str(stopped), "exit_code": DEVICE_ERROR, **error_facts(stopped)}
