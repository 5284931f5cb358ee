"""Two waveforms of the same work: the first cycle in which a signal differs, and what ran then."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.verify.differences.streams import Finding

if TYPE_CHECKING:
    from rkcosim.waves import Wave

NAMED = 6
"""Maximum number of signals in the text."""

BATCH = 512
"""Number of signals that are read at a time."""


def first_signal(ours: Path, theirs: Path, **opening: Any) -> tuple[Finding | None, list[str]]:
    """Return the first divergence of two waveforms after the first cycle in which both know the signals.

    Parameters
    ----------
    opening : arguments of `rkcosim.waves.open` for both.

    Returns
    -------
    The divergence (None: all common signals are the same), and lines about what was not compared.

    Raises
    ------
    WaveError
        if a file cannot be read, or they have no signal in common.
    """
    from rkcosim import waves

    left, right = waves.open(ours, **opening), waves.open(theirs, **opening)
    a, b = ({signal.name: signal for signal in wave.signals} for wave in (left, right))
    common = _once([name for name in a if name in b], a)
    if not common:
        raise waves.WaveError(f"{ours} and {theirs} have no signal in common")
    notes = []
    for wave, mine, other in ((left, a, b), (right, b, a)):
        own = [name for name in mine if name not in other]
        if own:
            notes.append(f"{len(own)} signals only in {wave.file.name}, as {own[0]}")
    first, last = max(left.first, right.first), min(left.last, right.last)
    best: int | None = None
    found: list[str] = []
    for start in range(0, len(common), BATCH):
        names = common[start : start + BATCH]
        left.load(*names)
        right.load(*names)
        for name in names:
            cycle = _first(left, right, name, first, last if best is None else best)
            if cycle is not None and (best is None or cycle < best):
                best, found = cycle, []
            if cycle is not None and cycle == best:
                found.append(name)
    if best is None:
        if (left.first, left.last) != (right.first, right.last):
            notes.append(f"compared from cycle {first} to {last}, which both have")
        return None, notes
    return _divergence(left, right, best, found), notes


def _once(names: list[str], signals: dict[str, Any]) -> list[str]:
    """Return one name of each signal, without aliases."""
    seen: dict[str, str] = {}
    for name in names:
        seen.setdefault(signals[name].reference, name)
    return list(seen.values())


def _first(left: Wave, right: Wave, name: str, first: int, last: int) -> int | None:
    if left.value(name, first) != right.value(name, first):
        return first
    ours, theirs = left.changes(name, first + 1, last), right.changes(name, first + 1, last)
    for mine, other in zip_longest(ours, theirs):
        if mine != other:
            return min(pair[0] for pair in (mine, other) if pair is not None)
    return None


def _divergence(left: Wave, right: Wave, cycle: int, names: list[str]) -> Finding:
    names = sorted(names, key=lambda name: (name.count("."), name))
    shown = ", ".join(
        f"{n} {_text(left.value(n, cycle))} / {_text(right.value(n, cycle))}" for n in names[:NAMED]
    )
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    data: dict[str, Any] = {"kind": "signal", "cycle": cycle, "signals": names}
    text = f"cycle {cycle}: {shown}{more}"
    try:
        running = [t for t in left.tasks() if t.start <= cycle and (t.end is None or cycle <= t.end)]
        writes = [w for w in left.register_writes() if w.cycle <= cycle]
    except ValueError:  # a trace of some scopes only may not show it
        return Finding(text, data)
    if running:
        data["tasks"] = [{"core": t.core, "job": t.job, "task": t.index} for t in running]
        text += (
            "; " + ", ".join(f"task {t.index} of job {t.job} on core {t.core}" for t in running) + " running"
        )
    else:
        text += "; no task running"
    if writes:
        data["last_write"] = {
            "cycle": writes[-1].cycle,
            "register": writes[-1].path,
            "value": writes[-1].value,
        }
        text += f"; last register write at {writes[-1].cycle}: {writes[-1].text}"
    return Finding(text, data)


def _text(value: object) -> str:
    return f"0x{value:X}" if isinstance(value, int) and value > 9 else str(value)
