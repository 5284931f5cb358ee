"""The host's register accesses from the `s_axil_*` pins of a core in a waveform."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from rkcosim.spec.regs import Register, registers
from rkcosim.waves.pins import require_group, spelled
from rkcosim.waves.ports import LITE_READ, LITE_WRITE, PORTS, RESET
from rkcosim.waves.reader import Reader, Repeats, Value

OFFSET_MASK = (1 << PORTS["s_axil_awaddr"]) - 1
ALL_BYTES = (1 << PORTS["s_axil_wstrb"]) - 1

_ABSENT: dict[str, Value] = {"wstrb": ALL_BYTES, RESET: 0}
"""Values of pins that a waveform lacks; others are 0."""


@dataclass
class Access:
    """One access of the host to a register.

    Members
    -------
    direction : "read" or "write".
    offset : address inside the core.
    value : written or read value; None if the waveform does not show it or some bits are unknown.
    strobes : bytes that are written, bit 0 for bits 7 to 0. The core refuses a write of some bytes only.
    start : cycle in which the address (or, of a write, the data) is first valid.
    accepted : cycle in which the address, and the data of a write, have been accepted.
    end : cycle in which the response is accepted; None if the waveform does not show it.
    error : True if the response is an error.
    """

    core: int
    direction: str
    offset: int
    value: int | None
    strobes: int
    start: int
    accepted: int
    end: int | None = None
    error: bool = False

    @property
    def described(self) -> Register | None:
        """The register at the offset, None if there is none."""
        return registers().at(self.offset)

    @property
    def path(self) -> str:
        """`BLOCK.REGISTER`, or the offset."""
        return self.described.path if self.described else f"offset {self.offset:#06x}"

    @property
    def fields(self) -> dict[str, int]:
        """Values of the register's fields; empty for an unknown register or value."""
        return self.described.decode(self.value) if self.described and self.value is not None else {}

    @property
    def whole(self) -> bool:
        """Whether the access has all four bytes and no error, so that a write changes the register."""
        return self.strobes == ALL_BYTES and not self.error

    @property
    def text(self) -> str:
        """The access in one line, with the codes of fields by name."""
        notes = [] if self.strobes == ALL_BYTES else [f"(bytes {self.strobes:04b} only)"]
        notes += ["(error)"] if self.error else []
        return " ".join([value_text(self.path, self.described, self.value), *notes])


def value_text(path: str, register: Register | None, value: int | None) -> str:
    """Return a register with its value in one line; fields that are 0 are left out unless 0 has a name."""
    if register is None or value is None:
        return f"{path} = {'unknown' if value is None else f'{value:#x}'}"
    parts = []
    for name, number in register.decode(value).items():
        label = register.fields[name].label(number)
        if label is not None or number:
            parts.append(f"{name}={label if label is not None else number}")
    return " ".join([path, *parts])


Pins = dict[str, Value]


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


@dataclass
class _Transfer:
    """One transfer of a channel: cycles in which it was first valid and accepted, and values of its pins."""

    start: int
    cycle: int
    value: Value = None
    more: int = 0


class _Channel:
    """The transfers of one channel, in order."""

    def __init__(self, name: str, value: str, more: str = "") -> None:
        self.name, self._value, self._more = name, value, more
        self.found: list[_Transfer] = []
        self._since: int | None = None

    def stretch(self, begin: int, end: int, pins: Pins, repeats: Repeats) -> None:
        """Process cycles in which no pin changes."""
        if pins[f"{self.name}valid"] != 1:
            self._since = None
            return
        if self._since is None:
            self._since = begin
        if pins[f"{self.name}ready"] == 1:
            for cycle in repeats(begin, end):
                more = _number(pins[self._more]) if self._more else 0
                self.found.append(_Transfer(self._since, cycle, pins[self._value], more))
                self._since = cycle + 1
            self._since = None

    def missing(self, responses: list[_Transfer], *, may: bool) -> int:
        """Return how many transfers were before the waveform: those of responses without a request in it.

        A response is later than its request; `may`: False if nothing can have been under way.
        """
        cycles = [transfer.cycle for transfer in self.found]
        extra = (number + 1 - bisect_left(cycles, r.cycle) for number, r in enumerate(responses))
        return max(0, *extra) if may and responses else 0


class _Port:
    """The five channels of one core's slave port between two resets.

    Parameters
    ----------
    late : True if accesses may be under way at the beginning.
    """

    def __init__(self, core: int, *, late: bool) -> None:
        self._core, self._late = core, late
        self.writes = _Channel("aw", "awaddr"), _Channel("w", "wdata", "wstrb"), _Channel("b", "bresp")
        self.reads = _Channel("ar", "araddr"), _Channel("r", "rdata", "rresp")

    def accesses(self) -> Iterator[Access]:
        """Yield the accesses of which the waveform shows the requests."""
        aw, w, b = self.writes
        # The n-th address, the n-th data and the n-th response belong together; either of the first two may
        # come first.
        before = aw.missing(b.found, may=self._late), w.missing(b.found, may=self._late)
        skipped = max(before)
        pairs = zip(aw.found[skipped - before[0] :], w.found[skipped - before[1] :], strict=False)
        for number, (address, data) in enumerate(pairs, skipped):
            access = Access(
                *(self._core, "write", _number(address.value) & OFFSET_MASK),
                *(_known(data.value), data.more),
                *(min(address.start, data.start), max(address.cycle, data.cycle)),
            )
            if number < len(b.found):
                access.end, access.error = b.found[number].cycle, _number(b.found[number].value) >> 1 == 1
            yield access
        ar, r = self.reads
        skipped = ar.missing(r.found, may=self._late)
        for number, request in enumerate(ar.found, skipped):
            offset = _number(request.value) & OFFSET_MASK
            access = Access(self._core, "read", offset, None, ALL_BYTES, request.start, request.cycle)
            if number < len(r.found):
                answer = r.found[number]
                access.value, access.end, access.error = (
                    _known(answer.value),
                    answer.cycle,
                    answer.more >> 1 == 1,
                )
            yield access


def _known(value: Value) -> int | None:
    return value if isinstance(value, int) else None


def core_accesses(wave: Reader, number: int) -> list[Access]:
    """Return the accesses to a core in the order of their start.

    Those whose address or data were accepted before the waveform begins, or during a reset, are left out; how
    many these are follows from the responses. Without `wstrb` all bytes are written; without the pins of the
    response its cycle is unknown, and none is an error.

    Raises
    ------
    WaveError
        if the waveform has neither the write nor the read channels.
    """
    found: list[Access] = []
    for group in require_group(wave, number, LITE_WRITE, LITE_READ):
        ports = [RESET, *group.needed, *group.more]
        there = {port: name for port in ports if (name := spelled(wave, number, port)) is not None}
        leaves = [port.removeprefix("s_axil_") for port in there]
        pins: Pins = {port.removeprefix("s_axil_"): None for port in ports} | _ABSENT
        port, repeats = _Port(number, late=True), Repeats(wave)
        for begin, end, values in wave.steps(list(there.values())):
            pins.update(zip(leaves, values, strict=True))
            if pins[RESET] == 1:
                found += port.accesses()
                port = _Port(number, late=False)
                continue
            for channel in port.writes if group is LITE_WRITE else port.reads:
                channel.stretch(begin, end, pins, repeats)
        found += port.accesses()
    return sorted(found, key=lambda access: (access.start, access.accepted))
