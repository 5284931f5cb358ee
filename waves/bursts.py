"""AXI bursts from the `m_axi_*` pins of a core in a waveform."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from waves.pins import BEAT_BYTES, client_name, pin_names

if TYPE_CHECKING:
    from waves.reader import Wave

_PINS = (
    *("arvalid", "arready", "arid", "araddr", "arlen"),
    *("rvalid", "rready", "rid", "rlast", "rresp"),
    *("awvalid", "awready", "awid", "awaddr", "awlen"),
    *("wvalid", "wready", "wlast", "wstrb"),
    *("bvalid", "bready", "bid", "bresp"),
)

BURST_PINS = tuple(f"m_axi_{pin}" for pin in _PINS)
"""Pins of a core that `bursts` looks at."""


@dataclass(frozen=True)
class Burst:
    """One AXI burst of a core.

    `direction` is "read" or "write", `bytes` counts what its strobes let through; `start` is the cycle in
    which the request is first up, `accepted` that in which it is taken, `first_data` that of the first
    beat, `end` that of the last beat of a read or of a write's response (None where the waveform
    does not show it); `error` says that a beat or the response was refused.
    """

    core: int
    direction: str
    client: str
    address: int
    beats: int
    bytes: int
    start: int
    accepted: int
    first_data: int | None
    end: int | None
    error: bool = False


@dataclass
class _Open:
    """A burst under way."""

    client: str
    address: int
    beats: int
    start: int
    accepted: int
    bytes: int = 0
    first_data: int | None = None
    end: int | None = None
    error: bool = False

    def data(self, cycle: int, count: int) -> None:
        self.bytes += count
        if self.first_data is None:
            self.first_data = cycle


class _Core:
    """Follows the five channels of one core."""

    def __init__(self, core: int) -> None:
        self.core = core
        self.reads: list[_Open] = []
        self.writes: list[_Open] = []
        self._asked: dict[int, deque[_Open]] = defaultdict(deque)  # by read id
        self._to_send: deque[_Open] = deque()  # write data come in the order of the addresses
        self._to_answer: dict[int, deque[_Open]] = defaultdict(deque)  # by write id
        self._since: dict[str, int | None] = {"ar": None, "aw": None}

    def stretch(self, begin: int, end: int, pins: dict[str, int]) -> None:
        """Cycles in which no pin changes."""
        self._address("ar", begin, end, pins)
        self._address("aw", begin, end, pins)
        if pins["wvalid"] and pins["wready"]:
            for cycle in range(begin, end):
                if self._to_send:
                    burst = self._to_send[0]
                    burst.data(cycle, pins["wstrb"].bit_count())
                    if pins["wlast"]:
                        self._to_send.popleft()
        if pins["rvalid"] and pins["rready"]:
            queue = self._asked[pins["rid"]]
            for cycle in range(begin, end):
                if queue:
                    burst = queue[0]
                    burst.data(cycle, BEAT_BYTES)
                    burst.error |= bool(pins["rresp"])
                    if pins["rlast"]:
                        burst.end = cycle
                        queue.popleft()
        if pins["bvalid"] and pins["bready"]:
            queue = self._to_answer[pins["bid"]]
            for cycle in range(begin, end):
                if queue:
                    burst = queue.popleft()
                    burst.end, burst.error = cycle, bool(pins["bresp"])

    def _address(self, channel: str, begin: int, end: int, pins: dict[str, int]) -> None:
        if not pins[channel + "valid"]:
            self._since[channel] = None
            return
        since = self._since[channel]
        if since is None:
            since = begin
        if not pins[channel + "ready"]:
            self._since[channel] = since
            return
        write = channel == "aw"
        for cycle in range(begin, end):
            ident = pins[channel + "id"]
            burst = _Open(
                client_name(ident, write=write),
                pins[channel + "addr"],
                pins[channel + "len"] + 1,
                since,
                cycle,
            )
            since = cycle + 1
            if write:
                self.writes.append(burst)
                self._to_send.append(burst)
                self._to_answer[ident].append(burst)
            else:
                self.reads.append(burst)
                self._asked[ident].append(burst)
        self._since[channel] = None


def bursts(wave: Wave, cores: Iterable[int]) -> list[Burst]:
    """AXI bursts, in order of their start; those asked for before the waveform begins are left out."""
    found: list[Burst] = []
    for number in cores:
        core = _Core(number)
        for begin, end, values in wave.steps(pin_names(wave, number, BURST_PINS)):
            pins = {
                pin: value if isinstance(value, int) else 0 for pin, value in zip(_PINS, values, strict=True)
            }
            core.stretch(begin, end, pins)
        for direction, opened in (("read", core.reads), ("write", core.writes)):
            found += [
                Burst(
                    number,
                    direction,
                    b.client,
                    b.address,
                    b.beats,
                    b.bytes,
                    b.start,
                    b.accepted,
                    b.first_data,
                    b.end,
                    b.error,
                )
                for b in opened
            ]
    return sorted(found, key=lambda burst: (burst.start, burst.core, burst.direction))
