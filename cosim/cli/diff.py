"""`rkcosim diff`: find the first difference of two runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rkcosim.base import DEVICE_ERROR
from rkcosim.base.progress_display import kick
from rkcosim.cli.app import argument, command, option
from rkcosim.cli.exits import MISMATCH, OK, fail
from rkcosim.cli.options import MOST_CYCLES, EngineOptions, MaxCycles, WaveOptions

if TYPE_CHECKING:
    from rkcosim.verify.differences.streams import Finding
    from rkcosim.verify.streams.contents import Expected
    from rkcosim.verify.streams.stream import Stream

_COMPARED = {
    "stream file": "stream",
    "capture's manifest": "capture",
    "report of a run": "report",
    "waveform": "waveform",
    "event log": "event log",
}
"""Names used here for the kinds of files that can be compared."""


def kind_of(path: Path) -> str:
    """Return the kind of a file: "waveform", "event log", "report", "stream" or "capture".

    Raises
    ------
    ValueError
        if it is of another kind.
    FileNotFoundError
        if it does not exist.
    """
    from rkcosim.base.files import identify, open_regular, read_given, wrong
    from rkcosim.verify.streams.timing import EVENT_SUFFIXES, WAVE_SUFFIXES

    open_regular(path).close()
    if path.suffix in WAVE_SUFFIXES:
        return "waveform"
    if path.suffix in EVENT_SUFFIXES:
        return "event log"
    data = read_given(path)
    kind = identify(data)
    if kind not in _COMPARED:
        raise wrong(path, data, "a stream file, a capture's manifest, a report, an event log or a waveform")
    return _COMPARED[kind]


@dataclass(frozen=True, kw_only=True)
class DiffOptions(EngineOptions, WaveOptions):
    """Options of `rkcosim diff`."""

    file: Path = argument("A stream to run, a capture, a waveform, an event log, or a report (--json).")
    other: Path | None = argument("A second file of the same kind.", default=None)
    against: Path | None = option(
        "A capture's manifest or another stream; default: the expected result in the stream file."
    )
    max_cycles: MaxCycles = MOST_CYCLES


@command(
    "rkcosim diff examples/streams/pool.json --against examples/streams/pool.json --engine golden",
    "rkcosim diff stream.json --against capture.json",
    "rkcosim diff before.fst after.fst",
    "rkcosim diff before.parquet after.parquet",
    "rkcosim diff before.json after.json",
)
def diff_command(asked: DiffOptions) -> None:
    """Find the first difference of two runs.

    It is a register, a surface, a signal and its cycle, an event or a layer, depending on the files.
    """
    if asked.other is not None and asked.against is not None:
        raise ValueError("give the second file only once: as OTHER or with --against")
    second = asked.other or asked.against
    kinds = [kind_of(path) for path in (asked.file, second) if path is not None]
    simple = ["stream" if kind == "capture" else kind for kind in kinds]
    if len(set(simple)) > 1:
        raise ValueError(
            f"{asked.file} is a {kinds[0]}, {second} a {kinds[1]}: only files of the same kind can be "
            "compared (or a stream with a capture)"
        )
    if simple[0] == "stream":
        _diff_streams(asked, second)
    if second is None:
        raise ValueError(f"{asked.file} is a {kinds[0]}: give a second one to compare it with")
    finding, notes = _first(asked, simple[0], second)
    data = {"kind": simple[0], "ours": asked.file.name, "theirs": second.name, "notes": notes}
    _end(asked, data, finding, f"{asked.file.name} and {second.name}", notes)


def _first(asked: DiffOptions, kind: str, theirs: Path) -> tuple[Finding | None, list[str]]:
    ours = asked.file
    if kind == "waveform":
        from rkcosim.verify.differences.waves import first_signal

        return first_signal(ours, theirs, **asked.opening)
    from rkcosim.verify.differences.logs import first_event, first_layer

    return first_event(ours, theirs) if kind == "event log" else first_layer(ours, theirs)


def _opened(asked: DiffOptions, stream: Stream) -> AbstractContextManager[Any]:
    """Open the device on which a stream runs."""
    from rkcosim.engines.engine import open_engine

    return closing(open_engine(asked.engine, exact=asked.exact, cores=stream.core + 1, on_diagnostic="go on"))


def _diff_streams(asked: DiffOptions, against: Path | None) -> NoReturn:
    """Run a stream and find its first difference from a capture, another stream or its expected result."""
    from rkcosim.cli.regcmd_run import run_error, run_stream
    from rkcosim.verify.differences.streams import first_byte, first_command, first_register, walked
    from rkcosim.verify.streams.contents import Expected

    stream, expected = _loaded(asked.file)
    other: Stream | None = None
    if against is not None:
        other, expected = _loaded(against)
    elif expected is None:
        raise ValueError(
            f"{asked.file} has no expected result: give a capture's manifest or a stream with --against"
        )
    name = against.name if against else "expected"
    finding = first_command(stream, other) if other is not None else None
    checked = ["commands"] if other is not None else []
    if finding is None:
        with _opened(asked, stream) as device:
            with kick(asked.file.name, stream.kick.tasks, device, asked.max_cycles):
                result, stopped = run_stream(stream, device, asked.max_cycles)
            if not result.done:
                broken = walked(stream)[1]
                error = run_error(stopped, asked.max_cycles)
                text = error.pop("text") + (f":\n{result.state}" if stopped is None else "")
                text += "" if broken is None else f"\n{broken.place}"
                fail(text, DEVICE_ERROR, error | {"state": result.state})
            if expected is None and other is not None:
                expected = _run_other(asked, other)
            expected = expected or Expected()
            finding = first_byte(stream, device.memory, expected, device.name, name)
            finding = finding or first_register(device, stream.core, expected, device.name, name)
            finding = finding and _with_cycle(finding, device, stream.core)
            checked += [*(region.name for region in expected.outputs), *expected.registers]
    data = {"stream": asked.file.name, "against": name, "checked": checked}
    _end(asked, data, finding, ", ".join(checked) or "nothing to compare")


def _end(
    asked: DiffOptions, data: dict[str, Any], finding: Finding | None, equal: str, notes: Sequence[str] = ()
) -> NoReturn:
    """Write and print the verdict, and end with its exit code; `equal` describes what was the same."""
    found = {} if finding is None else {"first_difference": finding.text, **finding.data}
    asked.write(data | {"verdict": {"match": finding is None, **found}})
    print(f"match: {equal}" if finding is None else f"MISMATCH: {finding.text}")
    for note in notes:
        print(f"  {note}")
    raise SystemExit(OK if finding is None else MISMATCH)


def _with_cycle(finding: Finding, device: Any, core: int) -> Finding:
    """Add the cycles of the task that wrote a wrong byte, on engines that count cycles."""
    from rkcosim.verify.differences.streams import Finding

    number = finding.data.get("task")
    records: list[Any] = device.task_log() if device.has_cycles and number is not None else []
    for record in records:
        if (record.core, record.task) == (core, number):
            data = {"start_cycle": record.start, "end_cycle": record.end}
            text = f"{finding.text}; the task ran from cycle {record.start} to {record.end}"
            return Finding(text, finding.data | data)
    return finding


def _loaded(path: Path) -> tuple[Stream, Expected | None]:
    """Open a stream file or a capture, with the expected result of its run."""
    from rkcosim.verify.streams.capture import import_capture, load_expected
    from rkcosim.verify.streams.stream import Stream

    return import_capture(path) if kind_of(path) == "capture" else (Stream.load(path), load_expected(path))


def _run_other(asked: DiffOptions, other: Stream) -> Expected:
    """Run the other stream and return its memory as the expected result."""
    from rkcosim.cli.regcmd_run import no_interrupt, run_stream
    from rkcosim.verify.streams.contents import Expected

    with _opened(asked, other) as device:
        with kick("the stream to compare with", other.kick.tasks, device, asked.max_cycles):
            result, stopped = run_stream(other, device, asked.max_cycles)
        if stopped is not None:
            raise stopped
        if not result.done:
            text = f"the stream to compare with: {no_interrupt(asked.max_cycles)}"
            fail(f"{text}:\n{result.state}", DEVICE_ERROR, {"kind": "TimeOut", "state": result.state})
        return Expected(result.regions)
