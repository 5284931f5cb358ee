"""Memory behind a core's AXI port with the timing of the engines' DRAM model (cosim/harness/dram.h, port.h).

Cycle for cycle the same as the compiled engines with one core: latency, ordering, outstanding bursts,
the budgets of bandwidth, refused addresses and injected faults.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.triggers import First, RisingEdge, Timer

from cosim.cocotb.pins import Bundle, Clocking, high
from cosim.engines.diagnostics import Fault, client_name, make_fault
from cosim.engines.library import DramConfig
from cosim.engines.memory import PAGE, DeviceMemory
from rtl.bus import AXI_ADDRESS_BITS, Burst, Response

BEAT_BYTES = 32
_UNIT = 1 << 16
"""Budgets count 1/65536 of a byte."""

_BEAT_COST = BEAT_BYTES * _UNIT
_OVERDRAFT = 8 * _BEAT_COST
_READ_UNMAPPED, _WRITE_UNMAPPED, _READ_INJECTED, _WRITE_INJECTED, _PROTOCOL = range(5)
_IDS = 32
_WORD = (1 << 64) - 1
_FOREVER = 1 << 62
_LOOK_AHEAD = 8
"""Cycles that must lie ahead for sleeping to be worth its triggers."""


@dataclass
class _Read:
    address: int
    due: int
    beats: int
    resp: int


@dataclass
class _Write:
    address: int
    beats: int
    id: int
    resp: int


@dataclass
class _Response:
    id: int
    resp: int
    extra: int
    """Drawn latency."""
    due: int = _FOREVER


@dataclass
class _Beat:
    """A beat on its way to the memory."""

    at: int
    address: int
    data: int
    strb: int
    credit: bool
    """It came while ready stood open, so it may go into the overdraft."""
    response: _Response | None = None
    """Of the burst whose last beat it is."""


@dataclass
class _Port:
    """What is under way; `Port` of port.h, with queues instead of counts of what went through them."""

    reads: list[deque[_Read]] = field(default_factory=lambda: [deque() for _ in range(_IDS)])
    read_last_due: list[int] = field(default_factory=lambda: [0] * _IDS)
    reads_open: int = 0
    read_ids_full: int = 0
    current: int = -1
    beat: int = 0
    burst_faulted: bool = False

    given: list[int] = field(default_factory=lambda: [0] * _IDS)
    """Bursts at the front of each queue whose beats the controller has all given."""
    serving: int = -1
    serving_beat: int = 0
    next_id: int = 0
    coming: deque[tuple[int, int, int]] = field(default_factory=deque)
    """(id, resp, data) of beats on their way to the core."""
    taken: deque[int] = field(default_factory=deque)
    """When the bus took beats that the controller does not know to be taken."""

    writes: deque[_Write] = field(default_factory=deque)
    going: deque[_Beat] = field(default_factory=deque)
    responses: deque[_Response] = field(default_factory=deque)
    response_last_due: int = 0
    writes_open: int = 0
    write_ids_full: int = 0
    writes_open_of: list[int] = field(default_factory=lambda: [0] * 16)
    write_beat: int = 0
    write_faulted: bool = False
    early: tuple[int, int, bool, bool] | None = None
    """(data, strb, last, credit) of a beat that came before its address."""
    prepaid: bool = False
    want_write: bool = False


class DramSlave:
    """AXI4 memory on the `m_axi` port of a core.

    Parameters
    ----------
    dut
        handle of the core.
    clocking
        its clock.
    config
        timing; the engines' default if None.

    Members
    -------
    memory : `cosim.engines.memory.DeviceMemory`: map, read, write, view; empty at first.  Bursts outside
        what is mapped end in DECERR, as on the engines.
    faults : accesses that were refused.
    on_fault : functions that are called with each of them.
    bytes_read, bytes_written : by name of the AXI client.
    """

    def __init__(self, dut: Any, clocking: Clocking, config: DramConfig | None = None) -> None:
        self._dut, self._clocking = dut, clocking
        self.config = config or DramConfig()
        self._random = self.config.seed * 2 + 1
        self._mapped: set[int] = set()
        self.memory = DeviceMemory(self._mapping_changed)
        self.faults: list[Fault] = []
        self.bytes_read: dict[str, int] = {}
        self.bytes_written: dict[str, int] = {}
        self.on_fault: list[Callable[[Fault], None]] = []
        c = self.config
        self._gain = int(c.peak_bytes_per_cycle * c.efficiency * _UNIT)
        self._port_gain = int(c.port_bytes_per_cycle * _UNIT)
        self._write_gain = min(self._gain, self._port_gain)
        self._lookahead = c.lookahead
        self._depth = c.lookahead + 2
        self._budget = self._gain
        self._turn = 0
        self._read_count = self._write_count = 0
        self._last_cycle = 0
        self._pins(dut)
        self._clear()
        cocotb.start_soon(self._run())

    def _pins(self, dut: Any) -> None:
        self._m = Bundle(dut, "m_axi_")
        if len(self._m.araddr) != AXI_ADDRESS_BITS:
            raise ValueError(
                f"m_axi_araddr has {len(self._m.araddr)} bits, not {AXI_ADDRESS_BITS}: is this a core?"
            )

    def _clear(self) -> None:
        self._port = _Port()
        self._read_budget, self._write_budget = self._port_gain, self._write_gain
        # What the pins show; they are written only when they change.
        self._out = {"arready": 1, "awready": 1, "wready": 1, "rvalid": 0, "bvalid": 0}
        for name, value in self._out.items():
            getattr(self._m, name).value = value

    def reset(self) -> None:
        """Write what the core has sent and forget what else is under way, at both ends of a core's reset."""
        for beat in self._port.going:
            self._land(beat)
        self._clear()

    @property
    def open_bursts(self) -> dict[str, int]:
        """Bursts under way: "reads of FEATURE" -> number."""
        port = self._port
        found = {f"reads of {client_name(n, write=False)}": len(q) for n, q in enumerate(port.reads) if q}
        for n, count in enumerate(port.writes_open_of):
            if count:
                found[f"writes of {client_name(n, write=True)}"] = count
        return found

    # One cycle

    async def _run(self) -> None:
        wake = [RisingEdge(self._m.arvalid), RisingEdge(self._m.awvalid), RisingEdge(self._m.wvalid)]
        edge = RisingEdge(self._dut.clk)
        await edge
        while True:
            now = self._clocking.cycle
            self._idle(now - self._last_cycle)
            self._last_cycle = now
            self._step(now)
            ahead = self._quiet_for(now)
            if ahead >= _LOOK_AHEAD:
                # Half a cycle early, so that the edge itself is seen.
                alarm = (
                    []
                    if ahead == _FOREVER
                    else [Timer(self._clocking.time_ps(ahead) - self._clocking.period_ps // 2, "ps")]
                )
                await First(*wake, *alarm)
            await edge

    def _quiet_for(self, now: int) -> int:
        """Cycles from now on in which nothing can happen unless the core moves."""
        port, out = self._port, self._out
        if out["rvalid"] or out["bvalid"] or port.want_write or port.prepaid or port.serving >= 0:
            return 0
        if port.going or port.coming:
            return 0
        if not (out["arready"] and out["awready"] and out["wready"]):
            return 0
        if high(self._m.arvalid) or high(self._m.awvalid) or high(self._m.wvalid):
            return 0
        due = [queue[n].due for queue, n in zip(port.reads, port.given, strict=True) if len(queue) > n]
        if port.responses:
            due.append(port.responses[0].due)
        # A burst due in cycle d is on the pins from the edge at the end of cycle d - 1 on.
        return min(due) - 1 - now if due else _FOREVER

    def _idle(self, cycles: int) -> None:
        self._budget = min(self._gain, self._budget + cycles * self._gain)
        self._read_budget = min(self._port_gain, self._read_budget + cycles * self._port_gain)
        self._write_budget = min(self._write_gain, self._write_budget + cycles * self._write_gain)

    def _step(self, now: int) -> None:
        self._accept(now)
        self._arbitrate(now)
        self._answer(now)

    def _drive(self, name: str, value: int) -> None:
        if self._out[name] != value:
            self._out[name] = value
            getattr(self._m, name).value = value

    def _accept(self, now: int) -> None:
        """Handshakes of the cycle that ends at this edge."""
        port, out, config = self._port, self._out, self.config
        if out["rvalid"] and high(self._m.rready):
            self._drive("rvalid", 0)
        if out["bvalid"] and high(self._m.bready):
            self._drive("bvalid", 0)
        self._ar_held = high(self._m.arvalid)
        if self._ar_held and out["arready"]:
            self._ar_held = False
            client, address = int(self._m.arid.value), int(self._m.araddr.value)
            beats = int(self._m.arlen.value) + 1
            resp = self._check(now, client, address, beats, self._m.arsize, self._m.arburst, False)
            self._read_count += 1
            if self._read_count == config.fault_read:
                self._fault(now, client, address, _READ_INJECTED)
                resp = Response.SLVERR
            due = max(now + config.read_latency + self._draw(), port.read_last_due[client])
            port.read_last_due[client] = due
            port.reads[client].append(_Read(address & -BEAT_BYTES, due, beats, resp))
            port.reads_open += 1
            port.read_ids_full += len(port.reads[client]) == config.client_read_outstanding
        self._aw_held = high(self._m.awvalid)
        if self._aw_held and out["awready"]:
            self._aw_held = False
            client, address = int(self._m.awid.value), int(self._m.awaddr.value)
            beats = int(self._m.awlen.value) + 1
            resp = self._check(now, client, address, beats, self._m.awsize, self._m.awburst, True)
            self._write_count += 1
            if self._write_count == config.fault_write:
                self._fault(now, client, address, _WRITE_INJECTED)
                resp = Response.SLVERR
            port.writes.append(_Write(address & -BEAT_BYTES, beats, client, resp))
            port.writes_open += 1
            port.writes_open_of[client] += 1
            port.write_ids_full += port.writes_open_of[client] == config.client_write_outstanding
            if port.early is not None:
                data, strb, last, credit = port.early
                port.early = None
                self._send(now, data, strb, last, credit)
        port.want_write = False
        if high(self._m.wvalid):
            port.want_write = True
            if out["wready"]:
                credit = not port.prepaid
                if credit:
                    self._write_budget -= _BEAT_COST
                port.prepaid = False
                data, strb, last = int(self._m.wdata.value), int(self._m.wstrb.value), high(self._m.wlast)
                if port.writes:
                    self._send(now, data, strb, last, credit)
                else:
                    port.early = (data, strb, last, credit)
                if last:
                    port.want_write = False
        if port.prepaid:
            self._write_budget += _BEAT_COST
            port.prepaid = False

    def _check(
        self, now: int, client: int, address: int, beats: int, size: Any, burst: Any, write: bool
    ) -> int:
        """The response of a burst that the core may not send: INCR, full width, inside one page."""
        inside = address % PAGE // BEAT_BYTES + beats <= PAGE // BEAT_BYTES
        if int(burst.value) == Burst.INCR and 1 << int(size.value) == BEAT_BYTES and inside:
            return Response.OKAY
        self._fault(now, client, address, _PROTOCOL)
        return Response.SLVERR

    def _send(self, now: int, data: int, strb: int, last: bool, credit: bool) -> None:
        """A beat whose address is known goes to the controller."""
        port = self._port
        burst = port.writes[0]
        address = burst.address + port.write_beat * BEAT_BYTES
        if address // PAGE not in self._mapped:
            if not port.write_faulted:
                self._fault(now, burst.id, address, _WRITE_UNMAPPED)
            port.write_faulted = True
            burst.resp = Response.DECERR
        beat = _Beat(now, address, data, strb if burst.resp == Response.OKAY else 0, credit)
        port.going.append(beat)
        name = client_name(burst.id, write=True)
        self.bytes_written[name] = self.bytes_written.get(name, 0) + strb.bit_count()
        port.write_beat += 1
        if last != (port.write_beat == burst.beats):
            self._fault(now, burst.id, address, _PROTOCOL)
        if port.write_beat == burst.beats:
            beat.response = _Response(burst.id, burst.resp, self._draw())
            port.responses.append(beat.response)
            port.writes.popleft()
            port.write_beat, port.write_faulted = 0, False

    # The memory controller

    def _arbitrate(self, now: int) -> None:
        """What it does in a cycle; it sees what the core did `lookahead` cycles ago."""
        going = self._port.going
        if going and going[0].credit and going[0].at + self._lookahead == now and self._budget > -_OVERDRAFT:
            self._write(now)
        for who in (self._turn, 1 - self._turn):
            served = self._grant_write(now) if who else self._give_read(now)
            if served:
                self._turn = 1 - who

    def _give_read(self, now: int) -> bool:
        port = self._port
        while port.taken and port.taken[0] + self._lookahead <= now:
            port.taken.popleft()
        if len(port.coming) + len(port.taken) >= self._depth:
            return False
        if port.serving < 0:
            for n in range(_IDS):
                client = (port.next_id + n) % _IDS
                queue, given = port.reads[client], port.given[client]
                if len(queue) > given and queue[given].due <= now + 1:
                    port.serving, port.serving_beat = client, 0
                    break
            else:
                return False
        if self._budget <= 0 or self._read_budget <= 0:
            return False
        self._budget -= _BEAT_COST
        self._read_budget -= _BEAT_COST
        client = port.serving
        burst = port.reads[client][port.given[client]]
        address = burst.address + port.serving_beat * BEAT_BYTES
        resp = burst.resp if address // PAGE in self._mapped else int(Response.DECERR)
        data = 0
        if resp == Response.OKAY:
            data = int.from_bytes(self.memory.view(address, BEAT_BYTES).tobytes(), "little")
        port.coming.append((client, int(resp), data))
        port.serving_beat += 1
        if port.serving_beat == burst.beats:
            port.given[client] += 1
            port.serving = -1
            port.next_id = (client + 1) % _IDS
        return True

    def _grant_write(self, now: int) -> bool:
        going = self._port.going
        if not going or going[0].at + self._lookahead > now or self._budget <= 0:
            return False
        self._write(now)
        return True

    def _write(self, now: int) -> None:
        self._budget -= _BEAT_COST
        beat = self._port.going.popleft()
        self._land(beat)
        response = beat.response
        if response is not None:
            due = now - self._lookahead + self.config.write_latency + response.extra
            response.due = self._port.response_last_due = max(due, self._port.response_last_due)

    def _land(self, beat: _Beat) -> None:
        if not beat.strb:
            return
        raw = beat.data.to_bytes(BEAT_BYTES, "little")
        view = self.memory.view(beat.address, BEAT_BYTES)
        if beat.strb == (1 << BEAT_BYTES) - 1:
            view[:] = memoryview(raw)
        else:
            for n in range(BEAT_BYTES):
                if beat.strb >> n & 1:
                    view[n] = raw[n]

    # What the core sees next

    def _deliver(self, now: int) -> None:
        port = self._port
        client, resp, data = port.coming.popleft()
        port.taken.append(now)
        burst = port.reads[client][0]
        if port.current < 0:
            port.current, port.beat, port.burst_faulted = client, 0, False
        if resp == Response.DECERR:
            if not port.burst_faulted:
                self._fault(now, client, burst.address + port.beat * BEAT_BYTES, _READ_UNMAPPED)
            port.burst_faulted = True
        name = client_name(client, write=False)
        self.bytes_read[name] = self.bytes_read.get(name, 0) + BEAT_BYTES
        port.beat += 1
        last = port.beat == burst.beats
        self._m.rdata.value = data
        self._m.rid.value = client
        self._m.rresp.value = resp
        self._m.rlast.value = int(last)
        self._drive("rvalid", 1)
        if last:
            port.read_ids_full -= len(port.reads[client]) == self.config.client_read_outstanding
            port.reads[client].popleft()
            port.given[client] -= 1
            port.reads_open -= 1
            port.current = -1

    def _take_writes(self) -> None:
        """Ready for a waiting write beat, its bytes reserved; without one it stands open on credit."""
        port = self._port
        early = port.early is not None
        room = (bool(port.writes) or not early) and len(port.going) + early < self._depth
        if not port.want_write:
            self._drive("wready", int(room and self._write_budget > -_OVERDRAFT))
            return
        if not room or self._write_budget <= 0:
            self._drive("wready", 0)
            return
        self._write_budget -= _BEAT_COST
        port.prepaid = True
        self._drive("wready", 1)

    def _answer(self, now: int) -> None:
        port, config = self._port, self.config
        if not self._out["rvalid"] and port.coming:
            self._deliver(now)
        self._take_writes()
        if not self._out["bvalid"] and port.responses and port.responses[0].due <= now + 1:
            response = port.responses.popleft()
            client = response.id
            self._m.bid.value = client
            self._m.bresp.value = int(response.resp)
            self._drive("bvalid", 1)
            port.writes_open -= 1
            port.write_ids_full -= port.writes_open_of[client] == config.client_write_outstanding
            port.writes_open_of[client] -= 1
        # Whose request comes next is not known before it asks, so while some id is at its limit
        # ready only answers a request that is held.
        room = not port.read_ids_full
        if self._ar_held:
            room = len(port.reads[int(self._m.arid.value)]) < config.client_read_outstanding
        self._drive("arready", int(room and port.reads_open < config.read_outstanding))
        room = not port.write_ids_full
        if self._aw_held:
            room = port.writes_open_of[int(self._m.awid.value)] < config.client_write_outstanding
        self._drive("awready", int(room and port.writes_open < config.write_outstanding))

    # Around it

    def _mapping_changed(self, first: int, pages: int, on: bool) -> None:
        change = self._mapped.update if on else self._mapped.difference_update
        change(range(first, first + pages))

    def _draw(self) -> int:
        """Added latency; the same numbers as the engine's (xorshift64*)."""
        if not self.config.jitter:
            return 0
        x = self._random
        x ^= x >> 12
        x = (x ^ x << 25) & _WORD
        x ^= x >> 27
        self._random = x
        return ((x * 0x2545F4914F6CDD1D & _WORD) >> 33) % (self.config.jitter + 1)

    def _fault(self, now: int, client: int, address: int, kind: int) -> None:
        found = make_fault(now, 0, client, address, kind)
        self.faults.append(found)
        for call in self.on_fault:
            call(found)
