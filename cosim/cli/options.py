"""Options that several commands share, and the waveform they describe."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosim.cli import complete
from cosim.cli.exits import reported
from cosim.cli.signatures import with_options

if TYPE_CHECKING:
    from waves.spec import TraceSpec

INPUT_HELP = ".npz with images (and labels), pictures (BMP, PPM), or one .npy per model input."
EngineOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        autocompletion=complete.engines,
        help="verilator, cxxrtl, amaranth or golden; default: the fastest there is.",
    ),
]
ExactOption = Annotated[bool, typer.Option("--exact", help="Simulate the array cell's RTL too (slower).")]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the result as JSON; - for standard output."),
]
PageOption = Annotated[
    Path | None,
    typer.Option("--page", metavar="FILE", help="Also write the result into its section of this page."),
]
"""For commands that write a part of docs/performance.md (cosim/perf/page.py)."""
ShareOption = Annotated[int, typer.Option(min=1, max=3, help="Cores that share large layers.")]
DramOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dram",
        metavar="NAME=VALUE",
        autocompletion=complete.dram,
        help="Setting of the memory's timing, as peak_bytes_per_cycle=11.75; repeatable (docs/models.md).",
    ),
]
"""For commands that tell cycles; `cosim.engines.settings.dram_of` reads it."""
TraceOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a waveform to this file (docs/waves.md).")
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        autocompletion=complete.formats,
        help="Of the waveform: vcd or fst; default: by the file's ending.",
    ),
]
ScopeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="GLOB",
        help="Only these scopes of the waveform, as 'core0.CNA' or tasks; may be given several times.",
    ),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="WHEN",
        help="Begin of the waveform: a cycle, task:N, task:N@JOB, layer:NAME, write:BLOCK.REGISTER[=VALUE], "
        "write:BLOCK.REGISTER.FIELD=VALUE, error or mismatch.",
    ),
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="WHEN", help="End of the waveform, in the same words.")
]
BeforeOption = Annotated[
    int | None,
    typer.Option(
        "--before", metavar="CYCLES", help="Cycles to keep from before the begin (2000 for an error)."
    ),
]
LimitOption = Annotated[
    str | None,
    typer.Option("--trace-limit", metavar="SIZE", help="End the waveform at this size, as 500M."),
]
EventsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write the event log to this file: .parquet or .arrow (docs/events.md)."
    ),
]
TimelineOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a timeline for ui.perfetto.dev to this file.")
]
EventKindsOption = Annotated[
    str | None,
    typer.Option(
        "--event-kinds",
        metavar="KINDS",
        help="Record only these: task, write, burst, stripe, mac, packet, irq, stall, busy, diagnostic, "
        "fault, layer; several with commas.",
    ),
]
CoresOption = Annotated[int, typer.Option(min=1, max=3, help="Cores of the simulated NPU.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=3,
        help="Threads for cores at work together; default: what is fastest. No result depends on it.",
    ),
]
LogOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="The kernel's log (as dmesg) into a file, - for stderr.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Every ioctl that fails into the log too.")]
SaveOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Save a snapshot of the run to this file (docs/snapshots.md)."),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="BORDER",
        help="Where to save: task:N or task:N@JOB (before task N), layer:NAME (before it), job or job:N (its "
        "end).",
    ),
]
KeepGoingOption = Annotated[
    bool, typer.Option("--keep-going", help="Go on after saving; else the run ends there.")
]
TraceableOption = Annotated[
    bool, typer.Option("--traceable", help="Save so that what goes on can write waveforms (slower).")
]
ResumeOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Go on from this snapshot of the same run.")
]
ReportOption = Annotated[bool, typer.Option("--report", help="Jobs, tasks, cycles and host time at the end.")]


def traced(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a waveform in place of its parameter `trace` (TraceSpec | None)."""
    options = {
        "trace": TraceOption,
        "trace_format": FormatOption,
        "trace_scope": ScopeOption,
        "trace_from": FromOption,
        "trace_to": ToOption,
        "trace_before": BeforeOption,
        "trace_limit": LimitOption,
    }

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        values["trace"] = trace_spec(*(values.pop(name) for name in options))
        command(**values)

    return with_options(wrapper, command, options, without="trace", in_place=True)


def threaded(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that opens one engine the option of threads."""

    @functools.wraps(command)
    def wrapper(threads: int | None = None, **values: Any) -> None:
        from cosim.engines.threads import using_threads

        with using_threads(threads):
            command(**values)

    return with_options(wrapper, command, {"threads": ThreadsOption})


def saved(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of snapshots in place of its parameter `snapshot` (SnapshotOptions)."""
    options = {
        "save": SaveOption,
        "at": AtOption,
        "keep_going": KeepGoingOption,
        "traceable": TraceableOption,
        "resume": ResumeOption,
    }

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        from cosim.cli.snapshots import SnapshotOptions

        with reported():
            values["snapshot"] = SnapshotOptions(**{name: values.pop(name) for name in options})
        command(**values)

    return with_options(wrapper, command, options, without="snapshot")


def recorded(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that opens one engine the options of event logs; below `traced`, whose window counts."""
    options = {"events": EventsOption, "timeline": TimelineOption, "event_kinds": EventKindsOption}

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        given = [values.pop(name) for name in options]
        with reported(), _event_files(values.get("engine"), values.get("trace"), *given):
            command(**values)

    return with_options(wrapper, command, options)


def _event_files(
    engine: str | None,
    trace: TraceSpec | None,
    log: Path | None,
    timeline: Path | None,
    kinds: str | None,
) -> AbstractContextManager[None]:
    """What an engine opened within the context records, from the options."""
    if not (trace or log or timeline):
        if kinds:
            raise ValueError("--event-kinds needs --events FILE or --timeline FILE")
        return nullcontext()
    if engine == "golden":
        if trace is None:
            raise ValueError("the engine golden has no cycles, so it records no events")
        return nullcontext()  # the command says the same of the waveform
    from cosim.engines.event_files import EventFiles, beside, writing

    files = []
    if log or timeline:
        chosen = tuple(kind.strip() for kind in kinds.split(",")) if kinds else None
        files.append(EventFiles(log, timeline, chosen))
    if trace is not None and log is None:
        files += filter(None, [beside(trace)])
    return writing(files)


def trace_spec(
    trace: Path | None,
    form: str | None,
    scopes: list[str] | None,
    start: str | None,
    stop: str | None,
    before: int | None,
    limit: str | None,
) -> TraceSpec | None:
    """What to trace, from the options above; ends the command with one line where they make no sense."""
    given = {"--format": form, "--scope": scopes, "--from": start, "--to": stop, "--before": before}
    given["--trace-limit"] = limit
    with reported():
        if trace is None:
            wanting = [name for name, value in given.items() if value]
            if wanting:
                raise ValueError(f"{wanting[0]} needs --trace FILE")
            return None
        from waves.spec import TraceSpec, When, parse_size

        spec = TraceSpec(
            trace,
            form or "",
            tuple(scopes or ()),
            When.parse(start or 0),
            When.parse(stop) if stop is not None else None,
            before,
            parse_size(limit) if limit is not None else None,
        )
        trace.parent.mkdir(parents=True, exist_ok=True)
        return spec
