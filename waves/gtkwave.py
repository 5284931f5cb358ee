"""Files for GTKWave: a save file with groups, colours and markers, and translate filters for values.

A translate filter is a file of lines `VALUE TEXT`; GTKWave compares VALUE with what it would show in the
signal's base. The save file is written by pyvcd (`vcd.gtkw`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from rkcosim.base.extras import needed
from rkcosim.waves.decode import Wave
from rkcosim.waves.files import WRITTEN_BY, WaveError, ours
from rkcosim.waves.layout import COLOURS, Group, Mark, ViewerLine, in_file, layout, marks, opening
from rkcosim.waves.translate import Translation, plain
from rkcosim.waves.whole_file import make_folder, named

MARKERS = "abcdefghijklmnopqrstuvwxyz"
"""Names of GTKWave's markers."""

_WINDOW = (1500, 900)
_FRAMES = 5.3  # frames of 200 pixels that fit the window's area of waves; zoom is -log2 of a frame's time


def write_gtkwave(wave: Wave, save: Path | None = None) -> tuple[Path, list[Path]]:
    """Write the save file and its filters, by default next to the waveform, never over a user's file.

    Returns
    -------
    The save file, and the filters (in a folder next to it).

    Raises
    ------
    WaveError
        if pyvcd is not installed.
    """
    with needed("vcd", "a save file for GTKWave", WaveError):
        from vcd.gtkw import GTKWSave

    save = save or ours(wave.file.with_suffix(".gtkw"))
    groups = layout(wave)
    folder = save.with_suffix(".filters").resolve()
    filters: dict[tuple[str, str], Path] = {}
    make_folder(folder / "filter")
    for texts, base in _used(groups):
        path = filters[texts.name, base] = folder / f"{plain(texts.name)}.{base}.txt"
        with named(path):
            path.write_text(filter_text(texts, base))
    with named(save), save.open("w") as stream:
        out = GTKWSave(stream)
        out.comment(WRITTEN_BY)
        out.dumpfile(str(wave.file))
        out.savefile(str(save))
        unit = _unit(wave.unit)
        first, last = opening(wave, groups)
        start, end = (int(wave.seconds(cycle) / unit) for cycle in (first, last + 1))
        out.timestart(start)
        out.size(*_WINDOW)
        lettered = list(zip(MARKERS, chosen_marks(marks(wave)), strict=False))
        places = {letter: int(wave.seconds(mark.cycle) / unit) for letter, mark in lettered}
        out.zoom_markers(-math.log2(max(end - start, 1) / _FRAMES), -1, **places)  # type: ignore[arg-type]
        for letter, mark in lettered:
            stream.write(f"[markername] {letter.upper()}{mark.name}\n")
        for scope in wave.scopes():
            if not all(signal.parts for signal in wave.within(scope)) or wave.scopes(scope):
                out.treeopen(scope)
        out.sst_expanded(False)
        out.signals_width(320)
        for group in groups:
            _group(out, group, filters)
    return save, sorted(filters.values())


def filter_text(texts: Translation, base: str) -> str:
    """Return a translate filter for values shown in a base ("hex", "dec" or "bin")."""
    from vcd.gtkw import make_translation_filter

    return make_translation_filter(list(texts.texts.items()), datafmt=base, size=texts.width) + "\n"


def chosen_marks(found: Sequence[Mark]) -> list[Mark]:
    """Return at most as many marks as there are markers: all interrupts first, then the first tasks."""
    if len(found) <= len(MARKERS):
        return list(found)
    kept = sorted(found, key=lambda mark: (mark.kind != "irq", mark.cycle))[: len(MARKERS)]
    return sorted(kept, key=lambda mark: mark.cycle)


def _unit(unit: Fraction) -> Fraction:
    """Return the unit in which GTKWave counts: for a file in units of 100 ps it is 1 ps."""
    power = Fraction(1)
    while power > unit:
        power /= 1000
    return power


def _group(out: Any, group: Group, filters: dict[tuple[str, str], Path]) -> None:
    with out.group(group.name, closed=group.closed):
        for item in group.items:
            if isinstance(item, Group):
                _group(out, item, filters)
            else:
                for row in in_file(item):
                    _row(out, row, filters)


def _row(out: Any, row: ViewerLine, filters: dict[tuple[str, str], Path]) -> None:
    from vcd.gtkw import GTKWColor

    width = row.signal.width
    name = row.signal.name + (f"[{width - 1}:0]" if width > 1 else "")
    if row.bit is not None:
        name = f"({width - 1 - row.bit}){name}"
    base = _base(row)
    out.trace(
        name,
        # of a name with dots, GTKWave shows only the part after the last one
        alias=row.label.replace(".", " "),
        color=GTKWColor[COLOURS[row.kind]],
        datafmt=base,
        translate_filter_file=str(filters[row.texts.name, base]) if row.texts else None,
    )


def _base(row: ViewerLine) -> str:
    return "bin" if row.width == 1 else {"text": "ascii"}.get(row.base, row.base)


def _used(groups: Sequence[Group]) -> list[tuple[Translation, str]]:
    rows = [row for group in groups for item in group.rows() for row in in_file(item)]
    found = {(row.texts.name, _base(row)): row.texts for row in rows if row.texts is not None}
    return [(texts, base) for (_, base), texts in found.items()]
