"""A window of a waveform as a timing diagram: a document for WaveDrom, one column for each cycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rkcosim.waves.decode import Wave
from rkcosim.waves.files import WaveError
from rkcosim.waves.layout import ViewerLine, chosen

MOST_COLUMNS = 400
"""Columns of a diagram; a longer window is refused."""

_GAP = object()
"""Place of a gap among values."""

_QUIET = 3
"""Cycles without a change, from which on they are drawn as a gap."""


def timing_diagram(
    wave: Wave, *, first: int | None = None, last: int | None = None, signals: Sequence[str]
) -> dict[str, Any]:
    """Return cycles `first` to `last` (both included) as a document for WaveDrom.

    The first row has numbers of cycles, each from that cycle on. Where nothing changes for several cycles, a
    gap stands for them in all rows.

    Parameters
    ----------
    signals : patterns of signals, in this order, as in `rkcosim.waves.svg.draw`.

    Raises
    ------
    WaveError
        if the window is empty, outside of the waveform or has too many columns, or a pattern matches
        nothing.
    """
    low = wave.first if first is None else max(first, wave.first)
    high = wave.last if last is None else min(last, wave.last)
    if low > high:
        raise WaveError(
            f"{wave.file}: no cycles {first} to {last}; the waveform has {wave.first} to {wave.last}"
        )
    rows = [(group.name, row) for group in chosen(wave, signals) for row in group.rows()]
    values = [_values(wave, row, low, high) for _, row in rows]
    changes = [low]
    changes += [cycle for n, cycle in enumerate(range(low + 1, high + 1), 1) if _differs(values, n)]
    columns = _columns(changes, high)
    if len(columns) > MOST_COLUMNS:
        raise WaveError(
            f"{wave.file}: cycles {low} to {high} need {len(columns)} columns; {MOST_COLUMNS} are possible"
        )
    drawn = [_cycles(columns)]
    for (scope, row), shown in zip(rows, values, strict=True):
        lane = _lane(row, [_GAP if cycle is None else shown[cycle - low] for cycle in columns])
        drawn.append({"name": f"{scope.replace('.registers', '')}.{row.label}", **lane})
    return {"signal": drawn, "config": {"skin": "narrow" if len(columns) > 40 else "default"}}


def _values(wave: Wave, row: ViewerLine, low: int, high: int) -> list[int | str | None]:
    found: list[int | str | None] = []
    for begin, end, (value,) in wave.steps([row.signal.name], low, high):
        found += [row.value(value)] * (end - begin)
    return found[: high - low + 1]


def _differs(values: Sequence[Sequence[int | str | None]], place: int) -> bool:
    return any(row[place] != row[place - 1] for row in values)


def _columns(changes: Sequence[int], high: int) -> list[int | None]:
    """Return the cycle of each column; None stands for a gap."""
    columns: list[int | None] = []
    for begin, after in zip(changes, [*changes[1:], high + 1], strict=True):
        if after - begin > _QUIET:
            columns += [begin, None, after - 1]
        else:
            columns += range(begin, after)
    return columns


def _cycles(columns: Sequence[int | None]) -> dict[str, Any]:
    """Return the row of numbers: one at the beginning, and one behind each gap and at every fifth column."""
    wave, data, since = "", [], 0
    for place, cycle in enumerate(columns):
        before = columns[place - 1] if place else None
        if cycle is None:
            wave, since = wave + "|", 99
        elif before is None or since >= 5:
            wave, since = wave + "=", 1
            data.append(str(cycle))
        else:
            wave, since = wave + ".", since + 1
    return {"name": "cycle", "wave": wave, "data": data}


def _lane(row: ViewerLine, values: Sequence[object]) -> dict[str, Any]:
    """Return one row; None in `values` is an unknown value."""
    wave, data = "", []
    shown: object = _GAP
    bit = row.width == 1 and row.texts is None
    for value in values:
        if value is _GAP:
            wave += "|"
        elif value == shown:
            wave += "."
        else:
            shown = value
            assert value is None or isinstance(value, int | str)
            if value is None:
                wave += "x"
            elif bit:
                wave += str(value)
            else:
                wave += "="
                data.append(row.text(value))
    return {"wave": wave, "data": data} if data else {"wave": wave}
