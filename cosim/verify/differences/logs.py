"""The first difference of two event logs, or of two reports of model runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.base.files import read_json
from rkcosim.spec.regs import registers
from rkcosim.verify.differences.streams import Finding, differing_fields

if TYPE_CHECKING:
    from rkcosim.waves.events import Event

KINDS = ("write", "task", "diagnostic", "fault", "irq", "burst", "packet", "stripe", "layer")
"""Kinds that are compared one by one; the others (mac, stall, busy) follow from them."""


def first_event(ours: Path, theirs: Path) -> tuple[Finding | None, list[str]]:
    """Return the first event that two logs do not share.

    Events of a kind and core are compared in their order: a difference of contents is reported before a
    difference of cycles.

    Raises
    ------
    EventsError, FileNotFoundError
        if a log cannot be read.
    """
    from rkcosim.waves.events import load

    left, right = load(ours), load(theirs)
    a, b = _by_kind(left), _by_kind(right)
    moved = total = 0
    first_moved: tuple[int, str, dict[str, Any]] | None = None
    found: tuple[int, str, dict[str, Any]] | None = None
    for key in dict.fromkeys([*a, *b]):
        mine, other = a.get(key, []), b.get(key, [])
        total += len(mine)
        for number in range(max(len(mine), len(other))):
            x = mine[number] if number < len(mine) else None
            y = other[number] if number < len(other) else None
            if x is not None and y is not None and _what(x) == _what(y):
                if (x.cycle, x.end) != (y.cycle, y.end):
                    moved += 1
                    item = (min(x.cycle, y.cycle), _line(x, y), _data(x, y))
                    first_moved = min(first_moved or item, item, key=lambda i: i[0])
                continue
            cycle = min(e.cycle for e in (x, y) if e is not None)
            item = (cycle, _line(x, y), _data(x, y))
            found = min(found or item, item, key=lambda i: i[0])
            break
    notes = []
    if moved:
        notes.append(f"{moved} of {total} events are the same in another cycle")
    if found is not None:
        return Finding(found[1], found[2]), notes
    if first_moved is not None:
        return Finding("the same events, but " + first_moved[1], first_moved[2]), notes
    return None, [*notes, f"{total} events of {len(a)} kinds and cores"]


def _by_kind(log: Any) -> dict[tuple[str, int], list[Event]]:
    out: dict[tuple[str, int], list[Event]] = {}
    for event in log:
        if event.kind in KINDS:
            out.setdefault((event.kind, event.core), []).append(event)
    return out


def _what(event: Event) -> Event:
    """Return an event without its times."""
    return event._replace(cycle=0, end=0, latency=0)


def _line(ours: Event | None, theirs: Event | None) -> str:
    event = ours or theirs
    assert event is not None
    place = f"core {event.core}" + (f", task {event.task} of job {event.job}" if event.task >= 0 else "")
    if ours is None or theirs is None:
        side = "left" if theirs is None else "right"
        return f"cycle {event.cycle}, {place}: {_event(event)} only on the {side}"
    if _what(ours) == _what(theirs):
        return f"{_event(event)} ({place}) at cycle {ours.cycle}, against {theirs.cycle}"
    return f"cycle {ours.cycle}, {place}: {_event(ours)}, against {_event(theirs)}{_fields(ours, theirs)}"


def _event(event: Event) -> str:
    if event.kind == "write":
        register = registers().at(event.address)
        name = register.path if register is not None else f"offset 0x{event.address:04X}"
        return f"write of {name} 0x{event.value:X}"
    parts = [event.kind, event.block, event.client, event.direction, event.reason]
    if event.kind == "burst":
        parts.append(f"0x{event.address:X}, {event.bytes} bytes")
    return " ".join(part for part in parts if part)


def _fields(ours: Event, theirs: Event) -> str:
    """Return the fields that differ between two writes of one register."""
    register = registers().at(ours.address)
    if ours.kind != "write" or theirs.kind != "write" or ours.address != theirs.address or register is None:
        return ""
    return f" ({differing_fields(register, ours.value, theirs.value)})"


def _data(ours: Event | None, theirs: Event | None) -> dict[str, Any]:
    event = ours or theirs
    assert event is not None
    register = registers().at(event.address) if event.kind == "write" else None
    return {
        "kind": "event",
        "event": event.kind,
        "cycle": event.cycle,
        "core": event.core,
        "task": event.task,
        "job": event.job,
        "register": register.path if register is not None else None,
        "ours": None if ours is None else ours._asdict(),
        "theirs": None if theirs is None else theirs._asdict(),
    }


# -- reports ---------------------------------------------------------------------------------------

_LAYER = ("op", "target", "tasks", "macs", "bytes_read", "bytes_written", "cycles")
"""Members of a layer that are compared, contents before durations."""


def first_layer(ours: Path, theirs: Path) -> tuple[Finding | None, list[str]]:
    """Return the first layer in which two reports of `rkcosim run --json` (or of `regcmd run --json`) differ.

    Raises
    ------
    ValueError
        if one is not such a report, or they are of different kinds.
    """
    left, right = _report(ours), _report(theirs)
    if ("layers" in left) != ("layers" in right):
        raise ValueError(f"{ours} and {theirs} are reports of different kinds: a model's and a stream's")
    notes = list(_totals(left, right))
    for path, mine, other in _members(left, right):
        if mine != other:
            text = f"{path}: {_short(mine)}, against {_short(other)}"
            name, _, member = path.rpartition(" ")
            data = {"kind": "report", "place": name, "member": member, "ours": mine, "theirs": other}
            return Finding(text, data), notes
    return None, notes


def _report(path: Path) -> dict[str, Any]:
    data = read_json(path, "a report of rkcosim run --json")
    if not isinstance(data, dict) or "verdict" not in data or "cycles" not in data:
        raise ValueError(f"{path}: not a report of rkcosim run --json")
    if not isinstance(data["verdict"], dict):
        raise ValueError(f"{path}: damaged report: its member 'verdict' is not an object")
    for name in ("layers", "outputs", "tasks"):
        items = data.get(name, [])
        if name == "tasks" and not isinstance(items, list):
            continue  # for a stream, their number
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ValueError(f"{path}: damaged report: its member '{name}' is not a list of objects")
    for number, layer in enumerate(data.get("layers", [])):
        if type(layer.get("cycles")) not in (int, type(None)):
            raise ValueError(f"{path}: damaged report: the cycles of layer {number} are not a number")
    return data


def _members(left: dict[str, Any], right: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (place, ours, theirs) in the order in which differences are reported."""
    yield "verdict match", left["verdict"].get("match"), right["verdict"].get("match")
    for name in ("model", "stream", "status"):
        if name in left or name in right:
            yield f"report {name}", left.get(name), right.get(name)
    a, b = left.get("layers", []), right.get("layers", [])
    for number in range(min(len(a), len(b))):
        yield f"layer {number} name", a[number].get("name"), b[number].get("name")
        for member in _LAYER:
            label = f"layer {number} ({a[number].get('name')}) {member}"
            yield label, a[number].get(member), b[number].get(member)
    yield "number of layers", len(a), len(b)
    x, y = left.get("tasks"), right.get("tasks")
    if isinstance(x, list) and isinstance(y, list):
        for number in range(min(len(x), len(y))):
            yield f"task {number} cycles", x[number].get("cycles"), y[number].get("cycles")
        yield "number of tasks", len(x), len(y)
    else:
        yield "number of tasks", x, y
    yield "report cycles", left.get("cycles"), right.get("cycles")
    for number, (mine, other) in enumerate(
        zip(left.get("outputs", []), right.get("outputs", []), strict=False)
    ):
        yield f"output {number} top1", mine.get("top1"), other.get("top1")


def _totals(left: dict[str, Any], right: dict[str, Any]) -> Iterator[str]:
    for name in ("engine", "cell", "geometry", "cores", "inferences"):
        if left.get(name) != right.get(name):
            yield f"{name}: {left.get(name)}, against {right.get(name)}"
    a, b = left.get("layers", []), right.get("layers", [])
    if a and b:
        slower = sum((y.get("cycles") or 0) > (x.get("cycles") or 0) for x, y in zip(a, b, strict=False))
        faster = sum((y.get("cycles") or 0) < (x.get("cycles") or 0) for x, y in zip(a, b, strict=False))
        if slower or faster:
            yield f"cycles: {slower} layers are slower on the right, {faster} faster"
    if left.get("cycles") != right.get("cycles"):
        yield f"cycles in all: {_short(left.get('cycles'))}, against {_short(right.get('cycles'))}"


def _short(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
