"""Memory behind a core's AXI port with the timing of the engines' DRAM model (cosim/harness/dram.h).

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
class _Port:
    """What is under way; `Port` of dram.h."""

    reads: list[deque[_Read]] = field(default_factory=lambda: [deque() for _ in range(_IDS)])
    read_last_due: list[int] = field(default_factory=lambda: [0] * _IDS)
    reads_open: int = 0
    read_ids_full: int = 0
    current: int = -1
    next_id: int = 0
    beat: int = 0
    burst_faulted: bool = False

    writes: deque[_Write] = field(default_factory=deque)
    responses: deque[tuple[int, int, int]] = field(default_factory=deque)
    """(due, id, resp)."""
    response_last_due: int = 0
    writes_open: int = 0
    write_ids_full: int = 0
    writes_open_of: list[int] = field(default_factory=lambda: [0] * 16)
    write_beat: int = 0
    write_faulted: bool = False
    early: tuple[int, int, bool] | None = None
    """(data, strb, last) of a beat that came before its address."""
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
        self._read_budget = self._write_budget = self._port_gain
        # What the pins show; they are written only when they change.
        self._out = {"arready": 1, "awready": 1, "wready": 1, "rvalid": 0, "bvalid": 0}
        for name, value in self._out.items():
            getattr(self._m, name).value = value

    def reset(self) -> None:
        """Forget what is under way, at the begin and at the end of a core's reset."""
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
            self._idle(now - self._last_cycle)  # `step` of dram.h refills first
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
        if out["rvalid"] or out["bvalid"] or port.want_write or port.prepaid or port.current >= 0:
            return 0
        if not (out["arready"] and out["awready"] and out["wready"]):
            return 0
        if high(self._m.arvalid) or high(self._m.awvalid) or high(self._m.wvalid):
            return 0
        due = [queue[0].due for queue in port.reads if queue]
        if port.responses:
            due.append(port.responses[0][0])
        # A burst due in cycle d is on the pins from the edge at the end of cycle d - 1 on.
        return min(due) - 1 - now if due else _FOREVER

    def _idle(self, cycles: int) -> None:
        self._budget = min(self._gain, self._budget + cycles * self._gain)
        self._read_budget = min(self._port_gain, self._read_budget + cycles * self._port_gain)
        self._write_budget = min(self._port_gain, self._write_budget + cycles * self._port_gain)

    def _step(self, now: int) -> None:
        self._accept(now)
        for who in (self._turn, 1 - self._turn):
            served = self._grant_write() if who else self._serve_read(now)
            if served:
                self._turn = 1 - who
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
                data, strb, last = port.early
                port.early = None
                self._land(now, data, strb, last)
        port.want_write = False
        if high(self._m.wvalid):
            port.want_write = True
            if out["wready"]:
                if not port.prepaid:
                    self._pay_write(_BEAT_COST)
                port.prepaid = False
                data, strb, last = int(self._m.wdata.value), int(self._m.wstrb.value), high(self._m.wlast)
                if port.writes:
                    self._land(now, data, strb, last)
                else:
                    port.early = (data, strb, last)
                if last:
                    port.want_write = False
        if port.prepaid:
            self._pay_write(-_BEAT_COST)
            port.prepaid = False

    def _pay_write(self, cost: int) -> None:
        self._budget -= cost
        self._write_budget -= cost

    def _check(
        self, now: int, client: int, address: int, beats: int, size: Any, burst: Any, write: bool
    ) -> int:
        """The response of a burst that the core may not send: INCR, full width, inside one page."""
        inside = address % PAGE // BEAT_BYTES + beats <= PAGE // BEAT_BYTES
        if int(burst.value) == Burst.INCR and 1 << int(size.value) == BEAT_BYTES and inside:
            return Response.OKAY
        self._fault(now, client, address, _PROTOCOL)
        return Response.SLVERR

    def _land(self, now: int, data: int, strb: int, last: bool) -> None:
        port = self._port
        burst = port.writes[0]
        address = burst.address + port.write_beat * BEAT_BYTES
        if address // PAGE not in self._mapped:
            if not port.write_faulted:
                self._fault(now, burst.id, address, _WRITE_UNMAPPED)
            port.write_faulted = True
            burst.resp = Response.DECERR
        elif burst.resp == Response.OKAY:
            raw = data.to_bytes(BEAT_BYTES, "little")
            view = self.memory.view(address, BEAT_BYTES)
            if strb == (1 << BEAT_BYTES) - 1:
                view[:] = memoryview(raw)
            else:
                for n in range(BEAT_BYTES):
                    if strb >> n & 1:
                        view[n] = raw[n]
        name = client_name(burst.id, write=True)
        self.bytes_written[name] = self.bytes_written.get(name, 0) + strb.bit_count()
        port.write_beat += 1
        if last != (port.write_beat == burst.beats):
            self._fault(now, burst.id, address, _PROTOCOL)
        if port.write_beat == burst.beats:
            due = max(now + self.config.write_latency + self._draw(), port.response_last_due)
            port.response_last_due = due
            port.responses.append((due, burst.id, burst.resp))
            port.writes.popleft()
            port.write_beat, port.write_faulted = 0, False

    def _serve_read(self, now: int) -> bool:
        port = self._port
        if not port.reads_open or self._out["rvalid"]:
            return False
        if port.current < 0:
            for n in range(_IDS):
                queue = port.reads[(port.next_id + n) % _IDS]
                if queue and queue[0].due <= now + 1:
                    port.current = (port.next_id + n) % _IDS
                    break
            if port.current < 0:
                return False
            port.beat, port.burst_faulted = 0, False
        if self._budget <= 0 or self._read_budget <= 0:
            return False
        self._budget -= _BEAT_COST
        self._read_budget -= _BEAT_COST
        client = port.current
        burst = port.reads[client][0]
        address = burst.address + port.beat * BEAT_BYTES
        resp = burst.resp
        if address // PAGE not in self._mapped:
            if not port.burst_faulted:
                self._fault(now, client, address, _READ_UNMAPPED)
            port.burst_faulted = True
            resp = Response.DECERR
        data = 0
        if resp == Response.OKAY:
            data = int.from_bytes(self.memory.view(address, BEAT_BYTES).tobytes(), "little")
        name = client_name(client, write=False)
        self.bytes_read[name] = self.bytes_read.get(name, 0) + BEAT_BYTES
        port.beat += 1
        last = port.beat == burst.beats
        self._m.rdata.value = data
        self._m.rid.value = client
        self._m.rresp.value = int(resp)
        self._m.rlast.value = int(last)
        self._drive("rvalid", 1)
        if last:
            port.read_ids_full -= len(port.reads[client]) == self.config.client_read_outstanding
            port.reads[client].popleft()
            port.reads_open -= 1
            port.current = -1
            port.next_id = (client + 1) % _IDS
        return True

    def _grant_write(self) -> bool:
        """Ready for a waiting write beat, its bytes reserved; without one it stands open on credit."""
        port = self._port
        room = bool(port.writes) or port.early is None
        if not port.want_write:
            self._drive(
                "wready", int(room and self._budget > -_OVERDRAFT and self._write_budget > -_OVERDRAFT)
            )
            return False
        if not room or self._budget <= 0 or self._write_budget <= 0:
            self._drive("wready", 0)
            return False
        self._pay_write(_BEAT_COST)
        port.prepaid = True
        self._drive("wready", 1)
        return True

    def _answer(self, now: int) -> None:
        port, config = self._port, self.config
        if not self._out["bvalid"] and port.responses and port.responses[0][0] <= now + 1:
            _, client, resp = port.responses.popleft()
            self._m.bid.value = client
            self._m.bresp.value = int(resp)
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
