"""`rkcosim waves`: viewers' files, a viewer, or a picture of a waveform; `rkcosim timeline`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rkcosim.base import progress
from rkcosim.cli.app import Options, argument, command, option
from rkcosim.cli.options import WaveOptions
from rkcosim.cli.results import check_output, counted, write_text

if TYPE_CHECKING:
    from rkcosim.waves import Wave
    from rkcosim.waves.decode import DiagnosticSeen, Irq, WaveTask

VIEWERS = ("gtkwave", "surfer")
"""Viewers, in the order of preference."""


@dataclass(frozen=True, kw_only=True)
class WavesOptions(WaveOptions):
    """Options of `rkcosim waves`."""

    wave: Path = argument("Waveform (VCD or FST) that a run wrote with --trace, or another tool.")
    viewer: Literal["gtkwave", "surfer"] | None = option(
        "Viewer to open, gtkwave or surfer; default: the first one that is installed."
    )
    open_: bool = option("Open a viewer, if standard output is a terminal.", "--open/--no-open", default=True)
    list_: bool = option(
        "Instead of opening a viewer, print the jobs, register accesses, command words and bursts; with "
        "--json they are also in the document.",
        "--list",
        default=False,
    )
    svg: Path | None = option(
        "Instead of opening a viewer, draw a window of the waveform to this SVG file.", writes=True
    )
    wavedrom: Path | None = option(
        "Instead of opening a viewer, write a window as a timing diagram for WaveDrom (JSON) to this file.",
        writes=True,
    )
    first: str | None = option(
        "First cycle of the window: a cycle number, task:N, layer:NAME, write:..., or error.",
        "--from",
        metavar="WHEN",
    )
    last: str | None = option(
        "Last cycle of the window, in the same forms (for task:N and layer:NAME, its end).",
        "--to",
        metavar="WHEN",
    )
    signals: tuple[str, ...] = option(
        "Signals to draw, as a pattern for the end of their names; repeatable.", metavar="GLOB", default=()
    )
    width: int = option("Width of the picture in pixels.", low=400, high=20000, default=1200)


@command(
    "rkcosim waves build/pool.vcd",
    "rkcosim waves build/pool.vcd --svg pool.svg --from task:0 --signals 'core0.watch.*'",
    "rkcosim waves build/pool.vcd --wavedrom irq.json --from 815 --to 829 --signals core0.irq",
    "rkcosim waves bench.vcd --clock tb.clk --prefix tb.dut. --list",
    "rkcosim waves analyser.vcd --map ports.toml --list",
    waits=True,
)
def waves_command(asked: WavesOptions) -> None:
    """Open a waveform in a viewer, draw it, or list what it shows.

    Files that prepare its display in GTKWave and Surfer are written next to it. A waveform of the core's
    Verilog from another simulator, or of its bus from a logic analyser, is read with --clock or --cycle,
    and with --prefix or --map for other names of the ports.
    """
    if asked.svg is not None and asked.list_:
        raise ValueError("--list prints, --svg draws: give one of them")
    if asked.wavedrom is not None:
        _diagram(asked, asked.wavedrom)
    elif asked.svg is not None:
        _draw(asked, asked.svg)
    elif asked.list_:
        _list(asked)
    else:
        _view(asked)


def _view(asked: WavesOptions) -> None:
    """Write the viewers' files and open a viewer."""
    from rkcosim.waves.gtkwave import write_gtkwave
    from rkcosim.waves.surfer import write_surfer

    _refuse_window(asked)
    wave = _open(asked)
    with progress.step("writing files for viewers"):
        save, filters = write_gtkwave(wave)
        state, mappings = write_surfer(wave)
    print(_summary(wave))
    print(f"GTKWave: {save} ({len(filters)} filters)")
    print(f"Surfer:  {state} ({len(mappings)} mappings)")
    opened = None
    if asked.open_ and sys.stdout.isatty():
        opened = _viewer(wave, asked.viewer, save, state)
    elif asked.viewer:
        print(f"{asked.viewer} is not opened: standard output is not a terminal")
    if opened:
        print(f"opened {opened}")
    files = [str(path) for path in (save, *filters, state, *mappings)]
    asked.write(_facts(wave) | {"files": files, "opened": opened})


def _draw(asked: WavesOptions, svg: Path) -> None:
    """Draw a window of a waveform."""
    from rkcosim.waves.svg import draw, end_of_activity

    wave = _open(asked)
    low, high = _window(asked, wave)
    signals = list(asked.signals)
    with progress.step("drawing"):
        if asked.last is None:
            high = end_of_activity(wave, low, signals)
        text = draw(wave, first=low, last=high, signals=signals, width=asked.width)
    write_text(svg, text)
    print(_summary(wave))
    print(f"picture: {svg}")
    if asked.last is None and high is not None:
        print(f"it ends at cycle {high}, since nothing changes for long (--to {wave.last} draws all cycles)")
    asked.write(_facts(wave) | {"files": [str(svg)], "from": low, "to": high})


def _window(asked: WavesOptions, wave: Wave) -> tuple[int | None, int | None]:
    """Return first and last cycle of the window, None for the ends of the waveform."""
    from rkcosim.waves.decode import cycle_of
    from rkcosim.waves.spec import When

    low = cycle_of(wave, When.parse(asked.first)) if asked.first is not None else None
    high = cycle_of(wave, When.parse(asked.last), end=True) if asked.last is not None else None
    return low, high


def _diagram(asked: WavesOptions, path: Path) -> None:
    """Write a window of a waveform for WaveDrom."""
    from rkcosim.waves.wavedrom import timing_diagram

    if asked.svg is not None or asked.list_:
        raise ValueError("--wavedrom, --svg and --list exclude each other: give one of them")
    if not asked.signals:
        raise ValueError("--wavedrom needs --signals GLOB, which may be repeated")
    wave = _open(asked)
    low, high = _window(asked, wave)
    document = timing_diagram(wave, first=low, last=high, signals=asked.signals)
    write_text(path, json.dumps(document, indent=1) + "\n")
    print(_summary(wave))
    print(f"timing diagram: {path}")
    asked.write(_facts(wave) | {"files": [str(path)], "from": low, "to": high})


def _list(asked: WavesOptions) -> None:
    """Print what happens in a waveform."""
    from rkcosim.waves.listing import as_json, lines, listed

    _refuse_window(asked)
    wave = _open(asked)
    if not wave.cores:
        raise ValueError(
            f"{wave.file}: no core is recognised; name its ports with --prefix or --map (docs/viewers.md)"
        )
    with progress.step("decoding"):
        found = listed(wave)
    print(_summary(wave))
    for line in lines(found):
        print(line)
    asked.write(_facts(wave) | as_json(found))


def _refuse_window(asked: WavesOptions) -> None:
    given = {"--from": asked.first, "--to": asked.last, "--signals": asked.signals}
    if lone := [name for name, value in given.items() if value]:
        raise ValueError(f"{lone[0]} needs --svg FILE or --wavedrom FILE")


def _open(asked: WavesOptions) -> Wave:
    from rkcosim import waves
    from rkcosim.waves.files import inspect

    file = asked.wave
    cut = inspect(file).cut
    wave = waves.open(file, partial=bool(cut), **asked.opening)
    if cut:
        print(
            f"rkcosim: {file}: the file is cut off at cycle {wave.last}; only the part before is shown",
            file=sys.stderr,
        )
    with progress.step(f"reading {file.name}"):
        wave.load_pins()
    return wave


def _summary(wave: Wave) -> str:
    _, irqs, seen = _seen(wave)
    parts = [f"{wave.format.upper()}, cycles {wave.first} to {wave.last}"]
    parts += [wave.cycles.text] if wave.cycles.text else []
    parts.append(counted(len(wave.cores), "core"))
    parts += _task_parts(wave)
    parts.append(counted(len(irqs), "interrupt"))
    if seen:
        first = seen[0]
        parts.append(f"first diagnostic {first.code} at {first.register}, cycle {first.cycle}")
    return f"{wave.file}: " + ", ".join(parts)


def _task_parts(wave: Wave) -> list[str]:
    """Return the number of tasks; for a waveform without their events, what the bus pins show."""
    from rkcosim.waves import WaveError

    try:
        return [counted(len(wave.tasks()), "task")]
    except WaveError:
        parts = []
    for name, found in (("job", wave.jobs), ("host access", wave.accesses), ("burst", wave.bursts)):
        with suppress(WaveError):
            parts.append(counted(len(found()), name))
    return parts or [counted(0, "task")]


def _seen(wave: Wave) -> tuple[list[WaveTask], list[Irq], list[DiagnosticSeen]]:
    """Return tasks, interrupts and diagnostics, as far as the waveform holds them."""
    from rkcosim.waves import WaveError
    from rkcosim.waves.layout import tasks_and_irqs

    tasks, irqs = tasks_and_irqs(wave)
    try:
        return tasks, irqs, wave.diagnostics()
    except WaveError:
        return tasks, irqs, []


def _facts(wave: Wave) -> dict[str, Any]:
    tasks, irqs, seen = _seen(wave)
    return {
        "wave": str(wave.file),
        "format": wave.format,
        "first": wave.first,
        "last": wave.last,
        "cores": wave.cores,
        "tasks": [{"task" if n == "index" else n: v for n, v in asdict(task).items()} for task in tasks],
        "irqs": [asdict(irq) for irq in irqs],
        "diagnostics": [asdict(one) for one in seen],
    }


def _viewer(wave: Wave, wanted: str | None, save: Path, state: Path) -> str | None:
    """Start a viewer without waiting for it; return its name, None if there is no viewer or no display."""
    found = next((name for name in ((wanted,) if wanted else VIEWERS) if shutil.which(name)), None)
    if found is None:
        if wanted:
            raise ValueError(
                f"{wanted} is not installed; the files are written and can be opened with another viewer"
            )
        print(f"no viewer is installed ({' or '.join(VIEWERS)}); --svg FILE draws a picture")
        return None
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        print(f"there is no display for {found}; --svg FILE draws a picture")
        return None
    command = {
        "gtkwave": ["gtkwave", str(save.resolve())],
        "surfer": ["surfer", "--state-file", str(state.resolve()), str(wave.file.resolve())],
    }[found]
    process = subprocess.Popen(
        command,
        cwd=state.resolve().parent,  # the folder in which Surfer looks for mappings
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.returncode = 0  # suppress a warning: the viewer outlives this command
    return found


@dataclass(frozen=True, kw_only=True)
class TimelineOptions(Options):
    """Options of `rkcosim timeline`."""

    events: Path = argument("Event log (.parquet or .arrow) that a run wrote.")
    output: Path | None = option(
        "Timeline file to write; default: the log's name with .pftrace.", "-o", "--output", writes=True
    )
    first: int = option("First cycle to show.", "--from", low=0, metavar="CYCLE", default=0)
    last: int | None = option("Last cycle to show.", "--to", low=0, metavar="CYCLE")
    core: int | None = option("Show only this core; default: all.", low=0, high=2)


@command(
    "rkcosim timeline build/run.events.parquet -o build/run.pftrace",
    "rkcosim timeline run.parquet -o window.pftrace --from 12000 --to 14000 --core 0",
)
def timeline_command(asked: TimelineOptions) -> None:
    """Convert an event log into a timeline for ui.perfetto.dev.

    It has tracks per core and block, slices per task, and counters. When https://ui.perfetto.dev opens the
    file, the file stays on your machine.
    """
    from rkcosim.waves import events, timeline

    output = asked.output or asked.events.with_suffix(".pftrace")
    check_output(output)
    if asked.last is not None and asked.last < asked.first:
        raise ValueError(f"--to ({asked.last}) is before --from ({asked.first})")
    timeline.check()
    log = events.load(asked.events)
    there = len(log)
    if asked.first or asked.last is not None:
        log = log.between(asked.first, (1 << 62) if asked.last is None else asked.last)
    if asked.core is not None:
        log = log.where(core=asked.core)
    if there and not len(log):
        raise ValueError(f"{asked.events}: none of its {there:,} events is in that window")
    timeline.write_timeline(log, output)
    print(f"{len(log):,} events -> {output} (open it at https://ui.perfetto.dev)")
    if log.dropped:
        print(f"the log is incomplete, its limit was reached; dropped events: {log.dropped}")
    data = {"events": log.count(), "dropped": log.dropped, "output": str(output)}
    asked.write(data)
