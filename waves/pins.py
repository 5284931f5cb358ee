"""Names of the pins that the decoders use, and the meanings of their bits."""

from __future__ import annotations

from collections.abc import Sequence

from rkcosim.spec.regs.events import EVENTS, PORT
from rkcosim.waves.files import WaveError
from rkcosim.waves.ports import PortGroup
from rkcosim.waves.reader import Reader

BEAT_BYTES = 32
"""Bytes of a beat of the AXI data bus."""

_GROUPS = {"m_axi": "axi", "s_axil": "axil", "diag": "diag", "watch": "watch"}
"""Scope of these pins in an engine's waveform, by port prefix of `rkcosim.rtl.core.NpuCore`."""

_EVENT_NAMES = {event.name: event.counter for event in PORT if event.name != event.counter}
"""Names of events in the engines' counters, if they differ."""


def spelled(wave: Reader, core: int, pin: str) -> str | None:
    """Return the full name of a core's pin, given as the core's port (`m_axi_arvalid`).

    None if it is missing.
    """
    scope = wave.core_scopes[core]
    prefix = next((group for group in _GROUPS if pin.startswith(group + "_")), None)
    names = [f"{scope}.{pin}".lstrip(".")]
    if prefix is not None:
        names.insert(0, f"{scope}.{_GROUPS[prefix]}.{pin[len(prefix) + 1 :]}")
    return next((name for name in names if wave.has(name)), None)


def pin_names(wave: Reader, core: int, pins: Sequence[str]) -> list[str]:
    """Return the full names of a core's pins.

    Raises
    ------
    WaveError
        if the waveform lacks some of them; names them all.
    """
    found = {pin: spelled(wave, core, pin) for pin in pins}
    lacking = [pin for pin, name in found.items() if name is None]
    if lacking:
        which = f"the pin {lacking[0]}" if len(lacking) == 1 else f"the pins {', '.join(lacking)}"
        verb = "is" if len(lacking) == 1 else "are"
        raise WaveError(f"{wave.file}: {which} of core {core} {verb} not in the waveform; {_remedy(wave)}")
    return [name for name in found.values() if name is not None]


def _remedy(wave: Reader) -> str:
    """Return what makes missing pins visible: in a waveform of an engine, or of another tool."""
    if wave.within("npu"):
        return "trace without --scope, or with more scopes"
    return "trace them, or name them in a map of ports (--map)"


def require_group(wave: Reader, core: int, *groups: PortGroup) -> list[PortGroup]:
    """Return those of some groups whose ports the waveform has.

    Raises
    ------
    WaveError
        if it has none; names what is missing of each.
    """
    found = [group for group in groups if has_group(wave, core, group)]
    if found:
        return found
    parts = []
    for group in groups:
        lacking = [port for port in group.needed if spelled(wave, core, port) is None]
        parts.append(f"the {group.name}")
        if len(lacking) < len(group.needed):
            parts[-1] += f" ({', '.join(lacking)})"
    raise WaveError(
        f"{wave.file}: {' and '.join(parts)} of core {core} are not in the waveform; {_remedy(wave)}"
    )


def has_group(wave: Reader, core: int, group: PortGroup) -> bool:
    """Return whether the waveform has all ports of a group that a decoder needs."""
    return all(spelled(wave, core, pin) is not None for pin in group.needed)


def event_place(wave: Reader, core: int, event: str) -> tuple[str, int | None] | None:
    """Return the signal of an event and its bit there (None: a separate signal); None if it is missing."""
    scope = wave.core_scopes[core]
    for name in (event, _EVENT_NAMES.get(event, event)):
        if wave.has(f"{scope}.events.{name}"):
            return f"{scope}.events.{name}", None
    return (f"{scope}.events", EVENTS.index(event)) if wave.has(f"{scope}.events") else None


def event_stretches(wave: Reader, core: int, event: str) -> list[tuple[int, int]]:
    """Return the stretches (first cycle, cycle after the last) in which an event is high.

    Raises
    ------
    WaveError
        if the waveform does not contain it.
    """
    place = event_place(wave, core, event)
    if place is None:
        raise WaveError(
            f"{wave.file}: the event {event} of core {core} is not in the waveform; {_remedy(wave)}"
        )
    name, bit = place
    return wave.when(name, 1) if bit is None else high_stretches(wave, name, bit)


def high_stretches(wave: Reader, name: str, bit: int) -> list[tuple[int, int]]:
    """Return the stretches (first cycle, cycle after the last) in which a bit of a signal is high."""
    found: list[tuple[int, int]] = []
    for begin, end, (value,) in wave.steps([name]):
        if isinstance(value, int) and value >> bit & 1:
            if found and found[-1][1] == begin:
                begin = found.pop()[0]
            found.append((begin, end))
    return found
