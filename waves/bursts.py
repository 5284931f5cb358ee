"""AXI bursts from the `m_axi_*` pins of a core in a waveform, and the memory that they cover."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rkcosim.spec.port_codes import client_name
from rkcosim.waves.pins import BEAT_BYTES, pin_names, require_group, spelled
from rkcosim.waves.ports import AXI_READ, AXI_WRITE, RESET, PortGroup
from rkcosim.waves.reader import Reader, Repeats, Value

BURST_PINS = (*AXI_READ.needed, "m_axi_rresp", *AXI_WRITE.needed, *AXI_WRITE.more)
"""Pins of a core that `core_bursts` reads."""


@dataclass
class Burst:
    """One AXI burst of a core.

    Members
    -------
    direction : "read" or "write".
    bytes : number of bytes that the strobes enable.
    start : cycle in which the request is first valid.
    accepted : cycle in which it is accepted.
    first_data : cycle of the first beat.
    end : cycle of the last beat of a read, or of a write's response (None if the waveform does not show it).
    error : True if a beat or the response reported an error.
    """

    core: int
    direction: str
    client: str
    address: int
    beats: int
    bytes: int
    start: int
    accepted: int
    first_data: int | None = None
    end: int | None = None
    error: bool = False

    def _data(self, cycle: int, count: int) -> None:
        self.bytes += count
        if self.first_data is None:
            self.first_data = cycle


@dataclass(frozen=True)
class Region:
    """A range of memory that the bursts of one client cover without a gap.

    Members
    -------
    direction, client : as in `Burst`.
    first, end : its first address, and the address after the last.
    bursts : number of bursts in it.
    bytes : bytes that they moved.
    """

    core: int
    direction: str
    client: str
    first: int
    end: int
    bursts: int
    bytes: int


Beat = Callable[[Burst, int, Value], None]
"""Called with each beat of a read: its burst, the cycle, and the value of the data pins."""


Key = tuple[str, int]
"""A queue of bursts: "r" and "b" with the id, "w" with 0."""


class _Core:
    """Follows the five channels of one core."""

    def __init__(
        self, wave: Reader, core: int, beat: Beat | None = None, skipped: Mapping[Key, int] | None = None
    ) -> None:
        self.core = core
        self._requests = Repeats(wave)
        self._beats = Repeats(wave, 4 << 20, 16)
        self.beat = beat
        self.found: list[Burst] = []
        self.orphans: Counter[Key] = Counter()
        self.reset()
        self._skipped.update(skipped or {})
        self._began = True

    def reset(self) -> None:
        """Forget what is under way."""
        self._reads: dict[int, deque[Burst]] = defaultdict(deque)  # by read id
        self._writes: deque[Burst] = deque()  # data follow their addresses, in the order of these
        self._unanswered: dict[int, deque[Burst]] = defaultdict(deque)  # by write id
        self._since: dict[str, int] = {}
        self._skipped: Counter[Key] = Counter()
        self._began = False

    def _passes(self, key: Key, queue: deque[Burst], *, last: bool) -> bool:
        """Return whether a beat or response belongs to the first burst of a queue.

        Otherwise it belongs to one from before the waveform: `orphans` counts these.
        """
        if self._skipped[key]:
            self._skipped[key] -= last
            return False
        if not queue:
            self.orphans[key] += last and self._began
        return bool(queue)

    def writes(self, begin: int, end: int, pins: dict[str, int]) -> None:
        """Process cycles in which no pin of the write channels changes."""
        self._address("aw", begin, end, pins)
        if pins["wvalid"] and pins["wready"]:
            for cycle in self._beats(begin, end):
                if self._passes(("w", 0), self._writes, last=bool(pins["wlast"])):
                    self._writes[0]._data(cycle, pins["wstrb"].bit_count())
                    if pins["wlast"]:
                        self._writes.popleft()
        if pins["bvalid"] and pins["bready"]:
            queue = self._unanswered[pins["bid"]]
            for cycle in self._beats(begin, end):
                if self._passes(("b", pins["bid"]), queue, last=True):
                    burst = queue.popleft()
                    burst.end, burst.error = cycle, bool(pins["bresp"])

    def reads(self, begin: int, end: int, pins: dict[str, int], data: Value) -> None:
        """Process cycles in which no pin of the read channels changes."""
        self._address("ar", begin, end, pins)
        if pins["rvalid"] and pins["rready"]:
            queue = self._reads[pins["rid"]]
            for cycle in self._beats(begin, end):
                if self._passes(("r", pins["rid"]), queue, last=bool(pins["rlast"])):
                    queue[0]._data(cycle, BEAT_BYTES)
                    queue[0].error |= bool(pins["rresp"])
                    if self.beat is not None:
                        self.beat(queue[0], cycle, data)
                    if pins["rlast"]:
                        queue.popleft().end = cycle

    def _address(self, channel: str, begin: int, end: int, pins: dict[str, int]) -> None:
        if not pins[channel + "valid"]:
            self._since.pop(channel, None)
            return
        since = self._since.setdefault(channel, begin)
        if not pins[channel + "ready"]:
            return
        write, ident = channel == "aw", pins[channel + "id"]
        direction, client = "write" if write else "read", client_name(ident, write=write)
        for cycle in self._requests(begin, end):
            address, beats = pins[channel + "addr"], pins[channel + "len"] + 1
            burst = Burst(self.core, direction, client, address, beats, 0, since, cycle)
            since = cycle + 1
            self.found.append(burst)
            if write:
                self._writes.append(burst)
            (self._unanswered if write else self._reads)[ident].append(burst)
        del self._since[channel]


def core_bursts(wave: Reader, number: int, beat: Beat | None = None) -> list[Burst]:
    """Return AXI bursts of a core, without those from before the waveform and from resets.

    If the waveform has only the read or only the write channels, the others' bursts are missing.

    Parameters
    ----------
    beat : called with each beat of a read; only reads are then followed.

    Raises
    ------
    WaveError
        if the waveform has neither, or with `beat` not the read channels with their data.
    """
    found: list[Burst] = []
    for group in require_group(wave, number, AXI_READ, *([AXI_WRITE] if beat is None else [])):
        core = _followed(wave, _Core(wave, number), group)
        if core.orphans or beat is not None:  # the beats of earlier bursts come first
            core = _followed(wave, _Core(wave, number, beat, core.orphans), group)
        found += core.found
    return found


def _followed(wave: Reader, core: _Core, group: PortGroup) -> _Core:
    """Process all cycles of a waveform."""
    data = "m_axi_rdata"
    ports = [RESET, *group.needed, *(port for port in group.more if port != data)]
    there = {port: name for port in ports if (name := spelled(wave, core.core, port)) is not None}
    if core.beat is not None:
        there[data] = pin_names(wave, core.core, [data])[0]
    leaves = [port.removeprefix("m_axi_") for port in there]
    pins = {port.removeprefix("m_axi_"): 0 for port in ports}
    for begin, end, values in wave.steps(list(there.values())):
        numbers = (value if isinstance(value, int) else 0 for value in values)
        pins.update(zip(leaves, numbers, strict=True))
        if pins[RESET]:
            core.reset()
        elif group is AXI_WRITE:
            core.writes(begin, end, pins)
        else:
            core.reads(begin, end, pins, values[-1] if core.beat is not None else None)
    return core


def regions(bursts: Iterable[Burst]) -> list[Region]:
    """Return the ranges of memory that bursts cover, by core, direction and client, in order."""
    found: list[Region] = []
    ranges = sorted(
        (b.core, b.direction, b.client, b.address, b.address + b.beats * BEAT_BYTES, b.bytes) for b in bursts
    )
    for core, direction, client, first, end, moved in ranges:
        last = found[-1] if found else None
        if (
            last
            and (last.core, last.direction, last.client) == (core, direction, client)
            and first <= last.end
        ):
            end = max(end, last.end)
            found[-1] = Region(core, direction, client, last.first, end, last.bursts + 1, last.bytes + moved)
        else:
            found.append(Region(core, direction, client, first, end, 1, moved))
    return found
