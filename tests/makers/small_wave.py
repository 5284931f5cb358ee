"""Small waveforms made by hand, with the engines' signal names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rkcosim.spec.regs.events import PORT

UNITS = 10
"""Units of 100 ps per cycle."""

PINS = {
    **dict.fromkeys(["irq", "watch.valid", "watch.fetched", "diag.valid"], 1),
    **{"task_index": 12, "watch.offset": 16, "watch.value": 32},
    **{"diag.code": 8, "diag.block": 4, "diag.register": 16, "diag.value": 32},
    **dict.fromkeys([f"axi.{p}" for p in ("arvalid", "arready", "rvalid", "rready", "rlast")], 1),
    **dict.fromkeys([f"axi.{p}" for p in ("awvalid", "awready", "wvalid", "wready", "wlast")], 1),
    **dict.fromkeys(["axi.bvalid", "axi.bready"], 1),
    **{"axi.araddr": 40, "axi.awaddr": 40, "axi.arlen": 8, "axi.awlen": 8, "axi.wstrb": 32},
    **{"axi.arid": 5, "axi.rid": 5, "axi.awid": 4, "axi.bid": 4, "axi.rresp": 2, "axi.bresp": 2},
}
"""Pins of a core with their widths."""

EVENTS = tuple(event.counter for event in PORT)

Value = int | str | None
Pulses = Sequence[int]


def write_vcd(
    path: Path,
    signals: Mapping[str, tuple[int, Mapping[int, Value]]],
    end: int,
    aliases: Mapping[str, str] | None = None,
) -> Path:
    """Write a VCD file.

    Parameters
    ----------
    signals : full name (scopes with dots) -> width (0: text) and values by cycle; 0 before the first one.
        None is unknown.
    end : the cycle after the last.
    aliases : additional names of signals.
    """
    lines = ["$timescale 100ps $end"]
    tree: dict = {}
    numbers = {name: (number, width) for number, (name, (width, _)) in enumerate(signals.items())}
    numbers |= {name: numbers[other] for name, other in (aliases or {}).items()}
    for name, (number, width) in sorted(numbers.items()):
        *scopes, leaf = name.split(".")
        place = tree
        for scope in scopes:
            place = place.setdefault(scope, {})
        place[leaf] = (number, width)

    def declare(place: dict) -> None:
        for name, item in place.items():
            if isinstance(item, dict):
                lines.append(f"$scope module {name} $end")
                declare(item)
                lines.append("$upscope $end")
            else:
                number, width = item
                span = f" [{width - 1}:0]" if width > 1 else ""
                kind = f"wire {width}" if width else "string 1"
                lines.append(f"$var {kind} n{number} {name}{span} $end")

    declare(tree)
    lines.append("$enddefinitions $end")
    times: dict[int, list[str]] = {0: []}
    for number, (width, values) in enumerate(signals.values()):
        start: dict[int, Value] = {0: 0 if width else "-"}
        for cycle, value in sorted((start | dict(values)).items()):
            times.setdefault(cycle, []).append(_change(number, width, value))
    for cycle, changes in sorted(times.items()):
        lines += [f"#{cycle * UNITS}", *changes]
    lines.append(f"#{end * UNITS}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def core_signals(
    core: int, values: Mapping[str, Mapping[int, Value]], events: Mapping[str, Pulses] | None = None
) -> dict[str, tuple[int, dict[int, Value]]]:
    """Return all pins of a core.

    Parameters
    ----------
    values : values of pins by cycle; other pins stay 0.
    events : cycles in which each event is high.
    """
    unknown = set(values) - set(PINS) | set(events or ()) - set(EVENTS)
    assert not unknown, f"no pins: {unknown}"
    found = {f"core{core}.{pin}": (width, dict(values.get(pin, {}))) for pin, width in PINS.items()}
    for event in EVENTS:
        found[f"core{core}.events.{event}"] = (1, pulses((events or {}).get(event, ())))
    return found


def pulses(cycles: Pulses) -> dict[int, Value]:
    """Return a one-bit signal that is high in some cycles."""
    high = set(cycles)
    found: dict[int, Value] = {}
    for cycle in sorted(high | {c + 1 for c in high}):
        found[cycle] = int(cycle in high)
    return found


def _change(number: int, width: int, value: Value) -> str:
    if not width:
        return f"s{value} n{number}"
    if width == 1:
        return f"{'x' if value is None else value}n{number}"
    return f"b{'x' if value is None else format(int(value), 'b')} n{number}"
