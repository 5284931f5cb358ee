"""Names of what the decoders look at, and what the bits and numbers on those pins mean.

The hardware's own tables of clients and diagnostics are in `rtl.layouts`, which imports Amaranth; reading a
waveform must not need that, so they are repeated here and tests/unit/test_waves_decode.py holds them
together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rtl.regs.events import EVENTS, PORT
from waves.errors import WaveError

if TYPE_CHECKING:
    from waves.reader import Wave

READ_CLIENTS = ("FEATURE", "WEIGHT", "MRDMA", "BRDMA", "NRDMA", "ERDMA", "PPU", "PC")
"""By AXI read id (`rtl.layouts.ReadClient`)."""

WRITE_CLIENTS = ("DPU", "PPU")
"""By AXI write id (`rtl.layouts.WriteClient`)."""

DIAGNOSTICS = (
    "NONE",
    "UNKNOWN_WRITE",
    "BANK_SUM",
    "FEATURE_FOOTPRINT",
    "WEIGHT_FOOTPRINT",
    "RESERVED_MODE",
    "UNALIGNED_ADDRESS",
    "SIZE_MISMATCH",
    "WRONG_CORE",
    "READ_ERROR",
    "WRITE_ERROR",
    "UNDECODED_ACCESS",
    "BAD_COMMAND",
    "EMPTY_SIZE",
    "REUSE_FOOTPRINT",
)
"""By code (`rtl.layouts.DiagnosticCode`)."""

BEAT_BYTES = 32
"""Bytes of a beat of the AXI data bus."""

_GROUPS = {"m_axi": "axi", "s_axil": "axil", "diag": "diag", "watch": "watch"}
"""Port prefix of `rtl.core.NpuCore` to the scope that holds these pins in an engine's waveform."""

_EVENT_NAMES = {event.name: event.counter for event in PORT if event.name != event.counter}
"""Names of events in the engines' counters, where they differ."""


def find_cores(wave: Wave) -> dict[int, str]:
    """Cores of a waveform: number to scope.

    They are called `core0` to `core2`; in a waveform of the core's Verilog the one scope with the port
    `watch_valid` (the outermost) is core 0.
    """
    tops = {scope: re.fullmatch(r"core(\d+)", scope) for scope in wave.scopes()}
    found = {int(match[1]): scope for scope, match in tops.items() if match}
    if found:
        return found
    ports = [signal.scope for signal in wave.signals if signal.leaf == "watch_valid"]
    return {0: min(ports, key=lambda scope: scope.count("."))} if ports else {}


def spelled(wave: Wave, core: int, pin: str) -> str | None:
    """Full name of a core's pin, given as the core's port (`m_axi_arvalid`); None if it is not there."""
    scope = wave.core_scopes[core]
    prefix = next((group for group in _GROUPS if pin.startswith(group + "_")), None)
    names = [f"{scope}.{pin}"]
    if prefix is not None:
        names.insert(0, f"{scope}.{_GROUPS[prefix]}.{pin[len(prefix) + 1 :]}")
    return next((name for name in names if wave.has(name)), None)


def pin_names(wave: Wave, core: int, pins: tuple[str, ...]) -> list[str]:
    """Full names of a core's pins.

    Raises
    ------
    WaveError
        if the waveform lacks one of them.
    """
    found = []
    for pin in pins:
        name = spelled(wave, core, pin)
        if name is None:
            raise WaveError(
                f"{wave.file}: the pin {pin} of core {core} is not in the waveform; "
                "trace without --scope, or with more scopes"
            )
        found.append(name)
    return found


def event_place(wave: Wave, core: int, event: str) -> tuple[str, int | None] | None:
    """Signal of an event, and its bit there (None: a signal of its own); None if it is not there."""
    scope = wave.core_scopes[core]
    for name in (event, _EVENT_NAMES.get(event, event)):
        if wave.has(f"{scope}.events.{name}"):
            return f"{scope}.events.{name}", None
    return (f"{scope}.events", EVENTS.index(event)) if wave.has(f"{scope}.events") else None


def event_stretches(wave: Wave, core: int, event: str) -> list[tuple[int, int]]:
    """Stretches (first cycle, cycle after the last) in which an event is high.

    Raises
    ------
    WaveError
        if the waveform does not hold it.
    """
    place = event_place(wave, core, event)
    if place is None:
        raise WaveError(
            f"{wave.file}: the event {event} of core {core} is not in the waveform; trace with --scope tasks"
        )
    name, bit = place
    return list(joined(wave.when(name, 1))) if bit is None else list(joined(_bit(wave, name, bit)))


def _bit(wave: Wave, name: str, bit: int) -> Iterator[tuple[int, int]]:
    for begin, end, (value,) in wave.steps([name]):
        if isinstance(value, int) and value >> bit & 1:
            yield begin, end


def joined(stretches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Neighbours as one stretch."""
    held: tuple[int, int] | None = None
    for begin, end in stretches:
        if held is not None and held[1] == begin:
            held = held[0], end
            continue
        if held is not None:
            yield held
        held = begin, end
    if held is not None:
        yield held


def client_name(ident: int, *, write: bool) -> str:
    """Name of an AXI client, `id n` for one that is not known."""
    names = WRITE_CLIENTS if write else READ_CLIENTS
    return names[ident] if ident < len(names) else f"id {ident}"


def diagnostic_name(code: int) -> str:
    """Name of a diagnostic code, `CODE_n` for one that is not known."""
    return DIAGNOSTICS[code] if code < len(DIAGNOSTICS) else f"CODE_{code}"
