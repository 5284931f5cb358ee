"""Ports of a core in a waveform with other names: a map file, a prefix, and the signals made from them.

A map is a TOML file. Its keys are the port names of the exported Verilog (`rkcosim.waves.ports.PORTS`); a
value says where the port is in the waveform::

    prefix = "top.dut."             # ports that are not listed are top.dut.irq, top.dut.s_axil_awaddr, ...
    clk = "clk_200"                 # its rising edges are the cycles
    irq = "~irq_n"                  # inverted
    s_axil_awaddr = "D{0..15}"      # bit 0 is D0, bit 15 is D15
    s_axil_araddr = ["A0", "A1", 0, 0]      # bit 0 first; constants are 0 and 1
    s_axil_wdata = "bus[95:64]"     # a part of a signal
    s_axil_wstrb = 15               # not in the waveform, and always this value

Tables `[core1]` and `[core2]` have the same keys for further cores. `cycle` and `first_edge` are times with a
unit, for a waveform without a clock.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from rkcosim.waves.backends import Backend, Changes, Part, Signal, read_joined
from rkcosim.waves.clocking import parse_time
from rkcosim.waves.files import WaveError
from rkcosim.waves.ports import CLOCK, GROUPS, PORTS
from rkcosim.waves.reader import Reader

MOST_BYTES = 1 << 20
"""Largest map file that is read."""

_CORE = re.compile(r"core([0-2])")
_RUN = re.compile(r"([^{}]*)\{(\d{1,4})\.\.(\d{1,4})\}([^{}]*)")
_SLICE = re.compile(r"(.+?)\s*\[(\d{1,6})(?::(\d{1,6}))?\]")
_TIMES = ("cycle", "first_edge")


@dataclass(frozen=True)
class CoreMap:
    """Names of one core's ports.

    Members
    -------
    prefix : beginning of the names of ports that are not in `ports`; None: only those in `ports` exist.
    ports : port name -> a name, a constant, or a list of them from bit 0 on.
    """

    prefix: str | None = None
    ports: Mapping[str, str | int | list[str | int]] = field(default_factory=dict)


@dataclass(frozen=True)
class PortMap:
    """Names of the ports of all cores, and the length of a cycle if the map has it.

    Members
    -------
    cores : map of each core by its number.
    times : `cycle` and `first_edge` in seconds, as far as the map has them.
    source : the file, for messages.
    """

    cores: Mapping[int, CoreMap]
    times: Mapping[str, Fraction] = field(default_factory=dict)
    source: str = ""

    @classmethod
    def of(cls, given: PortMap | Path | str | None, prefix: str | None = None) -> PortMap | None:
        """Return a map from a file or a map, with a prefix for core 0; None without any of them."""
        found = given if given is None or isinstance(given, PortMap) else read_map(Path(given))
        if prefix is None:
            return found
        cores = dict(found.cores) if found is not None else {}
        cores[0] = CoreMap(prefix, cores[0].ports if 0 in cores else {})
        return PortMap(cores, found.times if found is not None else {}, found.source if found else "")


def read_map(file: Path) -> PortMap:
    """Read a map file.

    Raises
    ------
    WaveError
        if it cannot be read, is no TOML, or has an unknown key or a value that means nothing.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise WaveError(f"{file}: {(error.strerror or str(error)).lower()}") from error
    if len(data) > MOST_BYTES:
        raise WaveError(f"{file}: a map of ports has at most {MOST_BYTES >> 20} MiB")
    try:
        table = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise WaveError(f"{file}: not a TOML file ({' '.join(str(error).split())})") from error
    times = {}
    for name in _TIMES:
        if name in table:
            try:
                times[name] = parse_time(str(table.pop(name)))
            except ValueError as error:
                raise WaveError(f"{file}: {name}: {error}") from error
    cores: dict[int, dict[str, Any]] = {}
    own = {key: value for key, value in table.items() if not _CORE.fullmatch(key)}
    if own:
        cores[0] = own
    for key, value in table.items():
        if match := _CORE.fullmatch(key):
            number = int(match[1])
            if not isinstance(value, dict):
                raise WaveError(f"{file}: {key} is a table of ports, as [{key}]")
            if number in cores:
                raise WaveError(f"{file}: core 0 has ports both in [core0] and outside of a table")
            cores[number] = value
    if not cores and not times:
        raise WaveError(f"{file}: the map names no port; its keys are port names, as s_axil_awaddr")
    return PortMap({n: _core_map(file, cores[n]) for n in sorted(cores)}, times, str(file))


def _core_map(file: Path, table: Mapping[str, Any]) -> CoreMap:
    """Check one core's table."""
    ports = {key: value for key, value in table.items() if key != "prefix"}
    prefix = table.get("prefix")
    if prefix is not None and not isinstance(prefix, str):
        raise WaveError(f"{file}: prefix is a text, the beginning of the names, not {prefix!r}")
    for key, value in ports.items():
        if key not in PORTS:
            near = difflib.get_close_matches(key, [*PORTS, "prefix", *_TIMES], n=3)
            hint = f"; near: {', '.join(near)}" if near else ""
            raise WaveError(f"{file}: the core has no port '{key}'{hint}")
        items = value if isinstance(value, list) else [value]
        numbers = (0, 1) if isinstance(value, list) else range(1 << PORTS[key])
        for item in items:
            if isinstance(item, bool) or not isinstance(item, str | int) or item == "":
                raise WaveError(
                    f"{file}: {key}: a value is a name, a number, or a list of them, not {item!r}"
                )
            if isinstance(item, int) and item not in numbers:
                raise WaveError(
                    f"{file}: {key}: {item} is no value of a port of {PORTS[key]} bits"
                    if value is item
                    else f"{file}: {key}: a constant in a list is 0 or 1, not {item}"
                )
        if not items or len(items) > PORTS[key]:
            raise WaveError(f"{file}: {key} has {PORTS[key]} bits, and the list has {len(items)} elements")
    return CoreMap(prefix, ports)


class MappedBackend:
    """A backend with additional signals: the ports of cores under their own names.

    Parameters
    ----------
    backend : the file's backend.
    parts : parts of each port, by the full name that it gets.
    """

    def __init__(self, backend: Backend, parts: Mapping[str, Sequence[Part]]) -> None:
        self._backend = backend
        self._parts: dict[str, Sequence[Part]] = {}
        self.name, self.unit = backend.name, backend.unit
        made = []
        for name, of in parts.items():
            sources = tuple(part.source for part in of if part.source is not None)
            first = of[0]
            if len(of) == 1 and first.source is not None and not first.low and not first.inverted:
                if first.source.width == first.width:  # another name of the same signal
                    made.append(Signal(name, first.width, first.source.reference, sources))
                    continue
            reference = f"port {name}"
            self._parts[reference] = of
            made.append(Signal(name, sum(part.width for part in of), reference, sources))
        self.signals = [signal for signal in backend.signals if signal.name not in parts] + made

    def read(self, signals: Sequence[Signal]) -> dict[str, Changes]:
        """See `Backend`."""
        return read_joined(self._backend.read, self._parts, signals)


def mapped(file: Path, backend: Backend, ports: PortMap, plain: Reader) -> tuple[Backend, dict[int, str]]:
    """Return a backend that contains the ports of a map, and the scope of each core in it.

    Parameters
    ----------
    plain : the waveform without a map, to find names in.

    Raises
    ------
    WaveError
        if the waveform lacks a name of the map, or too many ports to decode anything.
    """
    found: dict[str, list[Part]] = {}
    scopes: dict[int, str] = {}
    problems: list[str] = []
    for number, core in ports.cores.items():
        if core.prefix is None and set(core.ports) <= {CLOCK}:  # the ports have their own names
            if CLOCK in core.ports:
                found[f"{CLOCK}.{CLOCK}"] = _of_value(plain, CLOCK, core.ports[CLOCK])
            continue
        scope = _scope(plain, core, number)
        own, wrong = _core_ports(plain, core)
        problems += wrong
        problems += _incomplete(plain, core, own, number)
        existing = {port for port in own if plain.has(f"{scope}.{port}") and port not in core.ports}
        found |= {f"{scope}.{port}": parts for port, parts in own.items() if port not in existing}
        scopes[number] = scope
    if problems:
        where = f"{ports.source}: " if ports.source else ""
        raise WaveError(
            f"{where}{file} does not have what the map of ports needs:\n  " + "\n  ".join(problems)
        )
    return MappedBackend(backend, found), scopes


def _scope(plain: Reader, core: CoreMap, number: int) -> str:
    """Return the scope that gets a core's ports: that of its prefix, or a new one."""
    prefix = (core.prefix or "").removesuffix(".")
    if prefix and (plain.within(prefix) or plain.scopes(prefix)):
        return prefix
    name = f"core{number}"
    while plain.within(name) or plain.scopes(name):
        name += "_"
    return name


def _core_ports(plain: Reader, core: CoreMap) -> tuple[dict[str, list[Part]], list[str]]:
    """Return the parts of each port of a core, and a text for each name that the waveform lacks."""
    found: dict[str, list[Part]] = {}
    problems: list[str] = []
    for port, width in PORTS.items():
        try:
            if port in core.ports:
                found[port] = _of_value(plain, port, core.ports[port])
            elif core.prefix is not None:
                for name in (core.prefix + port, f"{core.prefix}.{port}"):
                    if plain.has(name) or plain.has(f"{name}[0]"):
                        found[port] = _whole(plain, name, width)
                        break
        except WaveError as error:
            problems.append(f"{port}: {error}")
    return found, problems


def _of_value(plain: Reader, port: str, value: str | int | list[str | int]) -> list[Part]:
    """Return the parts of a port from its value in a map."""
    width = PORTS[port]
    if isinstance(value, int):
        return [Part(None, value, width)]
    names = _names(value) if isinstance(value, str) else [n for item in value for n in _names(item)]
    if len(names) == 1 and isinstance(names[0], str):
        return _whole(plain, names[0], width)
    if len(names) > width:
        raise WaveError(f"it has {width} bits, and the map names {len(names)}")
    parts: list[Part] = []
    for name in names:
        if isinstance(name, int):
            parts.append(Part(None, name, 1))
            continue
        (bit,) = _whole(plain, name, 1, whole=True)
        parts.append(bit)
    return parts


def _names(value: str | int) -> list[str | int]:
    """Return the names that a value such as `D{0..15}` stands for."""
    if isinstance(value, int):
        return [value]
    match = _RUN.fullmatch(value)
    if match is None:
        return [value]
    first, last = int(match[2]), int(match[3])
    step = 1 if last >= first else -1
    return [f"{match[1]}{number}{match[4]}" for number in range(first, last + step, step)]


def _whole(plain: Reader, name: str, width: int, *, whole: bool = False) -> list[Part]:
    """Return the parts of the signal, or the bits of one, that a name means.

    Parameters
    ----------
    width : number of bits of the port; further bits of the signal are left out.
    whole : True if that is an error.
    """
    inverted = name.startswith("~")
    text = name.removeprefix("~").strip()
    high = low = None
    signal = _known(plain, text)
    if signal is None and (match := _SLICE.fullmatch(text)):
        signal, high, low = _known(plain, match[1]), int(match[2]), int(match[3] or match[2])
    if signal is None and _known(plain, f"{text}[0]"):  # one signal for each bit
        bits: list[Part] = []
        while len(bits) < width and (bit := _known(plain, f"{text}[{len(bits)}]")):
            bits.append(Part(bit, 0, 1, inverted))
        return bits
    if signal is None:
        try:
            signal = plain.find(text)
        except WaveError as error:
            raise WaveError(str(error).removeprefix(f"{plain.file}: ")) from error
    if not signal.width:
        raise WaveError(f"'{text}' is a text or a real number")
    if high is None or low is None:
        high, low = signal.width - 1, 0
    if not low <= high < signal.width:
        raise WaveError(f"'{name}': {signal.name} has bits {signal.width - 1} to 0")
    if whole and high > low:
        raise WaveError(f"'{name}' has {high + 1 - low} bits; in a list each element is one bit")
    return [Part(signal, low, min(high + 1 - low, width), inverted)]


def _known(plain: Reader, name: str) -> Signal | None:
    """Return the signal that a name means; None if there is none.

    Words of arrays have names with a backslash in VCD files of Icarus (`\\data[1]`), which pywellen divides
    (`\\data.[1]`); they may be given as `data[1]`.
    """
    if name in plain:
        return plain.find(name)
    if "[" not in name and not any("\\" in signal.name for signal in plain.signals):
        return None
    found = {
        signal.reference: signal
        for signal in plain.signals
        if "\\" in signal.name and f".{_without_escapes(signal.name)}".endswith(f".{name}")
    }
    return next(iter(found.values())) if len(found) == 1 else None


def _without_escapes(name: str) -> str:
    return name.replace("\\", "").replace(".[", "[")


def _incomplete(plain: Reader, core: CoreMap, own: Mapping[str, object], number: int) -> list[str]:
    """Return a text for each group of ports of which a map has some and lacks some."""
    texts = []
    complete = False
    for group in GROUPS:
        there = [port for port in group.needed if port in own]
        lacking = [port for port in group.needed if port not in own and port not in core.ports]
        complete = complete or len(there) == len(group.needed)
        if lacking and any(port in core.ports for port in (*there, *group.more)):
            texts.append(
                f"core {number}: {group.shows} need the ports {', '.join(lacking)} too{_near(plain, lacking)}"
            )
    if not complete and not texts and not any(port in core.ports for port in PORTS if port != CLOCK):
        wanted = ", ".join(GROUPS[0].needed)
        prefix = core.prefix or ""
        texts.append(
            f"core {number}: no group of ports is complete; with the prefix '{prefix}' there should be "
            f"{wanted}, or other ports of {', '.join(group.name for group in GROUPS)}"
            f"{_near(plain, [prefix + port for port in (*GROUPS[0].needed[:1], *GROUPS[2].needed[:1])])}"
        )
    return texts


def _near(plain: Reader, names: Sequence[str]) -> str:
    """Return similar names in the waveform, as the end of a text."""
    near = list(dict.fromkeys(found for name in names for found in plain.near(name)))
    return f"; near: {', '.join(near[:8])}" if near else ""
