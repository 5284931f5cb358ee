"""AXI bursts from the `m_axi_*` pins of a core in a waveform."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from rkcosim.waves.pins import BEAT_BYTES, client_name, pin_names
from rkcosim.waves.reader import Reader

_PINS = (
    *("arvalid", "arready", "arid", "araddr", "arlen"),
    *("rvalid", "rready", "rid", "rlast", "rresp"),
    *("awvalid", "awready", "awid", "awaddr", "awlen"),
    *("wvalid", "wready", "wlast", "wstrb"),
    *("bvalid", "bready", "bid", "bresp"),
)

BURST_PINS = tuple(f"m_axi_{pin}" for pin in _PINS)
"""Pins of a core that `bursts` reads."""


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


class _Core:
    """Follows the five channels of one core."""

    def __init__(self, core: int) -> None:
        self.core = core
        self.found: list[Burst] = []
        self._reads: dict[int, deque[Burst]] = defaultdict(deque)  # by read id
        self._writes: deque[Burst] = deque()  # write data arrive in the order of the addresses
        self._unanswered: dict[int, deque[Burst]] = defaultdict(deque)  # by write id
        self._since: dict[str, int] = {}

    def stretch(self, begin: int, end: int, pins: dict[str, int]) -> None:
        """Process cycles in which no pin changes."""
        self._address("ar", begin, end, pins)
        self._address("aw", begin, end, pins)
        if pins["wvalid"] and pins["wready"]:
            for cycle in range(begin, end):
                if self._writes:
                    self._writes[0]._data(cycle, pins["wstrb"].bit_count())
                    if pins["wlast"]:
                        self._writes.popleft()
        if pins["rvalid"] and pins["rready"]:
            queue = self._reads[pins["rid"]]
            for cycle in range(begin, end):
                if queue:
                    queue[0]._data(cycle, BEAT_BYTES)
                    queue[0].error |= bool(pins["rresp"])
                    if pins["rlast"]:
                        queue.popleft().end = cycle
        if pins["bvalid"] and pins["bready"]:
            queue = self._unanswered[pins["bid"]]
            for cycle in range(begin, end):
                if queue:
                    burst = queue.popleft()
                    burst.end, burst.error = cycle, bool(pins["bresp"])

    def _address(self, channel: str, begin: int, end: int, pins: dict[str, int]) -> None:
        if not pins[channel + "valid"]:
            self._since.pop(channel, None)
            return
        since = self._since.setdefault(channel, begin)
        if not pins[channel + "ready"]:
            return
        write, ident = channel == "aw", pins[channel + "id"]
        direction, client = "write" if write else "read", client_name(ident, write=write)
        for cycle in range(begin, end):
            address, beats = pins[channel + "addr"], pins[channel + "len"] + 1
            burst = Burst(self.core, direction, client, address, beats, 0, since, cycle)
            since = cycle + 1
            self.found.append(burst)
            if write:
                self._writes.append(burst)
            (self._unanswered if write else self._reads)[ident].append(burst)
        del self._since[channel]


def core_bursts(wave: Reader, number: int) -> list[Burst]:
    """Return AXI bursts of a core in order of acceptance, without those from before the waveform."""
    core = _Core(number)
    for begin, end, values in wave.steps(pin_names(wave, number, BURST_PINS)):
        numbers = (value if isinstance(value, int) else 0 for value in values)
        core.stretch(begin, end, dict(zip(_PINS, numbers, strict=True)))
    return core.found
