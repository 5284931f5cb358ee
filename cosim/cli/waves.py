"""`rkcosim waves`: files for viewers beside a waveform, a viewer, or a picture."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim import progress
from cosim.cli.exits import write_json, write_text

if TYPE_CHECKING:
    from waves import Wave
    from waves.decode import DiagnosticSeen, Irq, WaveTask

VIEWERS = ("gtkwave", "surfer")
"""In the order in which one is looked for."""


def waves_command(
    file: Path, viewer: str | None, may_open: bool, without_svg: list[str], json: Path | None
) -> None:
    """Write viewers' files and open one."""
    from waves.gtkwave import write_gtkwave
    from waves.surfer import write_surfer

    if without_svg:
        raise ValueError(f"{without_svg[0]} is for pictures: give --svg FILE too")
    wave = _open(file)
    with progress.step("writing files for viewers"):
        save, filters = write_gtkwave(wave)
        state, mappings = write_surfer(wave)
    print(_summary(wave))
    print(f"GTKWave: {save} ({len(filters)} filters)")
    print(f"Surfer:  {state} ({len(mappings)} mappings)")
    opened = None
    if may_open and sys.stdout.isatty():
        opened = _viewer(wave, viewer, save, state)
    elif viewer:
        print(f"{viewer} is not opened: the output is no terminal")
    if opened:
        print(f"opened {opened}")
    if json:
        files = [str(path) for path in (save, *filters, state, *mappings)]
        write_json(json, _facts(wave) | {"files": files, "opened": opened})


def draw_command(
    file: Path,
    svg: Path,
    first: str | None,
    last: str | None,
    signals: list[str],
    width: int,
    json: Path | None,
) -> None:
    """Draw a window of a waveform."""
    from waves.moments import cycle_of
    from waves.spec import When
    from waves.svg import draw

    wave = _open(file)
    low = cycle_of(wave, When.parse(first)) if first is not None else None
    high = cycle_of(wave, When.parse(last), end=True) if last is not None else None
    with progress.step("drawing"):
        text = draw(wave, first=low, last=high, signals=signals, width=width)
    write_text(svg, text)
    print(_summary(wave))
    print(f"picture: {svg}")
    if json:
        write_json(json, _facts(wave) | {"files": [str(svg)], "from": low, "to": high})


def _open(file: Path) -> Wave:
    import waves

    try:
        wave = waves.open(file)
    except waves.WaveError:
        wave = waves.open(file, partial=True)
        print(f"rkcosim: {file}: cut off at cycle {wave.last}; shown as far as it goes", file=sys.stderr)
    with progress.step(f"reading {file.name}"):
        wave.load_pins()
    return wave


def _summary(wave: Wave) -> str:
    tasks, irqs, seen = _seen(wave)
    parts = [f"{wave.format.upper()}, cycles {wave.first} to {wave.last}"]
    for count, name in ((len(wave.cores), "core"), (len(tasks), "task"), (len(irqs), "interrupt")):
        parts.append(f"{count} {name}{'' if count == 1 else 's'}")
    if seen:
        first = seen[0]
        parts.append(f"first diagnostic {first.code} at {first.register}, cycle {first.cycle}")
    return f"{wave.file}: " + ", ".join(parts)


def _seen(wave: Wave) -> tuple[list[WaveTask], list[Irq], list[DiagnosticSeen]]:
    """Tasks, interrupts and diagnostics, as far as the waveform holds them."""
    from waves import WaveError
    from waves.layout import tasks_and_irqs

    tasks, irqs = tasks_and_irqs(wave)
    try:
        return tasks, irqs, wave.diagnostics()
    except WaveError:
        return tasks, irqs, []


def _facts(wave: Wave) -> dict[str, Any]:
    tasks, irqs, seen = _seen(wave)
    return {
        "schema_version": 1,
        "wave": str(wave.file),
        "format": wave.format,
        "first": wave.first,
        "last": wave.last,
        "cores": wave.cores,
        "tasks": [
            {"core": t.core, "job": t.job, "task": t.index, "start": t.start, "end": t.end, "layer": t.layer}
            for t in tasks
        ],
        "irqs": [{"core": i.core, "start": i.start, "end": i.end} for i in irqs],
        "diagnostics": [
            {"core": d.core, "cycle": d.cycle, "code": d.code, "register": d.register, "value": d.value}
            for d in seen
        ],
    }


def _viewer(wave: Wave, wanted: str | None, save: Path, state: Path) -> str | None:
    """Start a viewer and do not wait for it; None if there is none or no screen."""
    found = next((name for name in ((wanted,) if wanted else VIEWERS) if shutil.which(name)), None)
    if found is None:
        if wanted:
            raise ValueError(f"{wanted} is not installed; the files are written, open them with a viewer")
        print(f"no viewer is installed ({' or '.join(VIEWERS)}); --svg FILE draws a picture")
        return None
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        print(f"no screen to open {found} on; --svg FILE draws a picture")
        return None
    command = {
        "gtkwave": ["gtkwave", str(save.resolve())],
        "surfer": ["surfer", "--state-file", str(state.resolve()), str(wave.file.resolve())],
    }[found]
    process = subprocess.Popen(
        command,
        cwd=state.resolve().parent,  # where Surfer looks for mappings
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.returncode = 0  # it outlives this command: nobody waits for it
    return found
