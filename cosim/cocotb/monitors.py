"""What a core does, seen on its pins: each monitor a coroutine with a list, a queue and callbacks.

A monitor that has nothing to see costs nothing: it sleeps until its pin stirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import RisingEdge, ValueChange

from cosim.cocotb.agent import NpuAgent, event_samples
from cosim.cocotb.pins import high, pulses
from cosim.engines.diagnostics import client_name, register_name
from cosim.engines.soc import EVENT_NAMES
from rtl.regs import registers
from sw.regcmd import blocks_of_mask


@dataclass(frozen=True)
class Event:
    """Something seen; the fields are the columns of the engines' event log.

    Members
    -------
    kind : "write" (of a register), "burst", "stripe", "task", "irq", "diagnostic" or "busy".
    cycle, end : first cycle, and the one after the last (`cycle` + 1 for instants).
    task : index in the kick of the task at work.
    block, client : name in the TRM, name of the AXI client; "" where there is none.
    address, value, bytes : what is moved or written; `address` of a register is its offset.
    direction : "read", "write" or "".
    reason : for people: the register's name, the events, the text of a diagnostic.
    fields : fields of a register that was written.
    data : bytes of a burst.
    """

    kind: str
    cycle: int
    end: int
    core: int = 0
    task: int = 0
    block: str = ""
    client: str = ""
    address: int = 0
    value: int = 0
    bytes: int = 0
    direction: str = ""
    reason: str = ""
    fields: dict[str, int] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)


class Monitor:
    """Base of the monitors.

    Parameters
    ----------
    agent
        of the core to watch.
    call
        called with each event, from the simulation.

    Members
    -------
    events : all so far, in the order in which they ended.
    """

    def __init__(self, agent: NpuAgent, call: Callable[[Event], None] | None = None) -> None:
        self.agent, self.dut = agent, agent.dut
        self.events: list[Event] = []
        self._calls = [call] if call is not None else []
        self._queue: Queue[Event] = Queue()
        self._queued = False
        for watcher in self._watchers():
            cocotb.start_soon(watcher)

    def __len__(self) -> int:
        return len(self.events)

    def subscribe(self, call: Callable[[Event], None]) -> None:
        """Call a function with each event from now on."""
        self._calls.append(call)

    async def next(self) -> Event:
        """Wait for the next event that no earlier call of `next` has given."""
        if not self._queued:
            self._queued = True
            for event in self.events:
                self._queue.put_nowait(event)
        return await self._queue.get()

    def clear(self) -> None:
        """Forget the events so far."""
        self.events.clear()

    def _watchers(self) -> list[Any]:
        return [self._watch()]

    async def _watch(self) -> None:
        """Look on for ever; each monitor has its own (those with several override `_watchers`)."""
        raise NotImplementedError

    def _tell(self, kind: str, cycle: int, end: int | None = None, **rest: Any) -> None:
        rest.setdefault("task", int(self.dut.task_index.value))
        event = Event(kind, cycle, cycle + 1 if end is None else end, self.agent.core, **rest)
        self.events.append(event)
        if self._queued:
            self._queue.put_nowait(event)
        for call in self._calls:
            call(event)


class CommandMonitor(Monitor):
    """Register writes, by the host and by the command stream, decoded.

    `cycle` is the one in which the register takes the value; `block`, `address` (offset), `value` and
    `fields`; `reason` is "host" or "stream".
    """

    async def _watch(self) -> None:
        dut = self.dut
        async for _ in pulses(dut.watch_valid, dut.clk):
            offset, value = int(dut.watch_offset.value), int(dut.watch_value.value)
            register = registers().at(offset)
            self._tell(
                "write",
                self.agent.cycle - 1,  # the watch port is a register behind
                block=register.block if register is not None else "",
                address=offset,
                value=value,
                bytes=4,
                direction="write",
                reason="stream" if high(dut.watch_fetched) else "host",
                fields=register.decode(value) if register is not None else {},
            )

    def writes(self, register: str) -> list[Event]:
        """The writes of one register, by name."""
        return [event for event in self.events if register_name(event.address) == register]


class TaskMonitor(Monitor):
    """Tasks from start to end."""

    async def _watch(self) -> None:
        start, done = (1 << EVENT_NAMES.index(name) for name in ("task_start", "task_done"))
        began: tuple[int, int] | None = None
        async for value in event_samples(self.dut):
            if value & done and began is not None:
                self._tell("task", began[0], self.agent.cycle, task=began[1])
                began = None
            if value & start:
                began = self.agent.cycle, int(self.dut.task_index.value)


class StripeMonitor(Monitor):
    """Stripes: CNA hands 16 finished output pixels (of one kernel group) to CORE."""

    async def _watch(self) -> None:
        stripe = 1 << EVENT_NAMES.index("stripes")
        async for value in event_samples(self.dut):
            if value & stripe:
                self._tell("stripe", self.agent.cycle, block="CNA")


class BurstMonitor(Monitor):
    """Bursts on the AXI port; `cycle` of the request, `end` after the last beat (of a write: the response).

    Parameters
    ----------
    direction
        "read", "write" or "" for both.
    clients
        names of AXI clients (`rtl.layouts.ReadClient`, `WriteClient`); None: all.
    """

    def __init__(
        self,
        agent: NpuAgent,
        call: Callable[[Event], None] | None = None,
        *,
        direction: str = "",
        clients: tuple[str, ...] | None = None,
    ) -> None:
        if direction not in ("", "read", "write"):
            raise ValueError(f"direction must be 'read', 'write' or '', not {direction!r}")
        self.direction, self.clients = direction, clients
        super().__init__(agent, call)

    def _watchers(self) -> list[Any]:
        out: list[Any] = []
        if self.direction != "write":
            self._reads: dict[int, deque[tuple[int, int, int]]] = {}
            self._data: dict[int, bytearray] = {}
            out += [self._read_requests(), self._read_data()]
        if self.direction != "read":
            self._asked: deque[tuple[int, int, int, int]] = deque()
            self._beats: deque[list[tuple[int, int]]] = deque([[]])
            self._written: dict[int, deque[tuple[int, int, int, list[tuple[int, int]]]]] = {}
            out += [self._write_requests(), self._write_data(), self._write_responses()]
        return out

    def _wanted(self, client: str) -> bool:
        return self.clients is None or client in self.clients

    async def _read_requests(self) -> None:
        dut = self.dut
        async for _ in pulses(dut.m_axi_arvalid, dut.clk):
            if high(dut.m_axi_arready):
                asked = self.agent.cycle, int(dut.m_axi_araddr.value), int(dut.task_index.value)
                self._reads.setdefault(int(dut.m_axi_arid.value), deque()).append(asked)

    async def _read_data(self) -> None:
        dut = self.dut
        async for _ in pulses(dut.m_axi_rvalid, dut.clk):
            if not high(dut.m_axi_rready):
                continue
            number = int(dut.m_axi_rid.value)
            beats = self._data.setdefault(number, bytearray())
            beats += int(dut.m_axi_rdata.value).to_bytes(32, "little")
            if not high(dut.m_axi_rlast) or not self._reads.get(number):
                continue
            began, address, task = self._reads[number].popleft()
            data = self._data.pop(number)
            client = client_name(number, write=False)
            if self._wanted(client):
                self._tell(
                    "burst",
                    began,
                    self.agent.cycle + 1,
                    task=task,
                    client=client,
                    address=address,
                    bytes=len(data),
                    direction="read",
                    data=data,
                )

    async def _write_requests(self) -> None:
        dut = self.dut
        async for _ in pulses(dut.m_axi_awvalid, dut.clk):
            if high(dut.m_axi_awready):
                number, address = int(dut.m_axi_awid.value), int(dut.m_axi_awaddr.value)
                self._asked.append((self.agent.cycle, number, address, int(dut.task_index.value)))
                self._pair()

    async def _write_data(self) -> None:
        dut = self.dut
        async for _ in pulses(dut.m_axi_wvalid, dut.clk):
            if high(dut.m_axi_wready):
                self._beats[-1].append((int(dut.m_axi_wdata.value), int(dut.m_axi_wstrb.value)))
                if high(dut.m_axi_wlast):
                    self._beats.append([])
                    self._pair()

    def _pair(self) -> None:
        """Requests and their data come apart, in the same order."""
        while self._asked and len(self._beats) > 1:
            cycle, number, address, task = self._asked.popleft()
            whole = cycle, address, task, self._beats.popleft()
            self._written.setdefault(number, deque()).append(whole)

    async def _write_responses(self) -> None:
        dut = self.dut
        async for _ in pulses(dut.m_axi_bvalid, dut.clk):
            number = int(dut.m_axi_bid.value)
            if not high(dut.m_axi_bready) or not self._written.get(number):
                continue
            began, address, task, beats = self._written[number].popleft()
            client = client_name(number, write=True)
            if self._wanted(client):
                self._tell(
                    "burst",
                    began,
                    self.agent.cycle + 1,
                    task=task,
                    client=client,
                    address=address,
                    bytes=sum(strb.bit_count() for _, strb in beats),
                    direction="write",
                    data=bytearray().join(data.to_bytes(32, "little") for data, _ in beats),
                )


class PacketMonitor(BurstMonitor):
    """Packets: what the DPU and the PPU write to memory, burst by burst."""

    def __init__(self, agent: NpuAgent, call: Callable[[Event], None] | None = None) -> None:
        super().__init__(agent, call, direction="write", clients=("DPU", "PPU"))


class IrqMonitor(Monitor):
    """Times in which the interrupt line is high; `reason` names the blocks still at work at its rise."""

    async def _watch(self) -> None:
        pin, edge = self.dut.irq, RisingEdge(self.dut.clk)
        while True:
            if not high(pin):
                await ValueChange(pin)
                await edge
                continue
            began = self.agent.cycle
            busy = blocks_of_mask(int(self.dut.busy_blocks.value))
            while high(pin):
                await ValueChange(pin)
                await edge
            self._tell("irq", began, self.agent.cycle, reason=", ".join(busy))


class DiagnosticMonitor(Monitor):
    """Diagnostics; `reason` is the sentence of `cosim.engines.diagnostics`."""

    async def _watch(self) -> None:
        dut, agent = self.dut, self.agent
        async for _ in pulses(dut.diag_valid, dut.clk):
            found = agent.diagnostic()
            self._tell(
                "diagnostic",
                agent.cycle,
                block=found.block,
                address=found.offset,
                value=found.value,
                reason=str(found),
            )


class BusyMonitor(Monitor):
    """Intervals in which a block is at work (its bit in `busy_blocks`)."""

    async def _watch(self) -> None:
        pin, edge = self.dut.busy_blocks, RisingEdge(self.dut.clk)
        since: dict[str, int] = {}
        while True:
            await ValueChange(pin)
            await edge
            busy = blocks_of_mask(int(pin.value))
            for block in [name for name in since if name not in busy]:
                self._tell("busy", since.pop(block), self.agent.cycle, block=block)
            for block in busy:
                since.setdefault(block, self.agent.cycle)


class Monitors:
    """All monitors of a core at once.

    Members
    -------
    commands, tasks, stripes, packets, reads, irq, diagnostics, busy : one of each kind.
    """

    def __init__(self, agent: NpuAgent) -> None:
        self.commands = CommandMonitor(agent)
        self.tasks = TaskMonitor(agent)
        self.stripes = StripeMonitor(agent)
        self.packets = PacketMonitor(agent)
        self.reads = BurstMonitor(agent, direction="read")
        self.irq = IrqMonitor(agent)
        self.diagnostics = DiagnosticMonitor(agent)
        self.busy = BusyMonitor(agent)

    @property
    def events(self) -> list[Event]:
        """Everything seen, in order of cycles."""
        return sorted(
            (event for monitor in vars(self).values() for event in monitor.events), key=lambda e: e.cycle
        )
