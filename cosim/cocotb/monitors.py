"""Monitors of a core's pins: each one is a coroutine with a list, a queue and callbacks.

A monitor without activity costs nothing: it sleeps until its pin changes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import RisingEdge, ValueChange

from rkcosim.cocotb.agent import NpuAgent
from rkcosim.cocotb.pins import EVENT_BITS, event_samples, high, pulses
from rkcosim.engines.diagnostics import register_name
from rkcosim.regcmd import blocks_of_mask
from rkcosim.spec.port_codes import client_name
from rkcosim.spec.regs import registers
from rkcosim.waves.pins import BEAT_BYTES


@dataclass(frozen=True)
class Event:
    """An observed event; the fields are the columns of the engines' event log.

    Members
    -------
    kind : "write" (of a register), "burst", "stripe", "task", "irq", "diagnostic" or "busy".
    cycle, end : first cycle, and the cycle after the last one (`cycle` + 1 for instants).
    task : index in the kick of the running task.
    block, client : name in the TRM, name of the AXI client; "" if there is none.
    address, value, bytes : what is moved or written; `address` of a register is its offset.
    direction : "read", "write" or "".
    reason : text: the register's name, the events, the text of a diagnostic.
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
    agent : agent of the core to watch.
    call : called with each event, from the simulation.

    Members
    -------
    events : all events so far, in the order of their ends.
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
        """Wait for the next event that no earlier call of `next` has returned."""
        if not self._queued:
            self._queued = True
            for event in self.events:
                self._queue.put_nowait(event)
        return await self._queue.get()

    def clear(self) -> None:
        """Discard the events so far."""
        self.events.clear()

    def _watchers(self) -> list[Any]:
        return [self._watch()]

    async def _watch(self) -> None:
        """Observe without end.

        Implemented by each monitor (those with several coroutines override `_watchers`).
        """
        raise NotImplementedError

    def _report(self, kind: str, cycle: int, end: int | None = None, **rest: Any) -> None:
        rest.setdefault("task", int(self.dut.task_index.value))
        self._add(Event(kind, cycle, cycle + 1 if end is None else end, self.agent.core, **rest))

    def _add(self, event: Event) -> None:
        self.events.append(event)
        if self._queued:
            self._queue.put_nowait(event)
        for call in self._calls:
            call(event)


class CommandMonitor(Monitor):
    """Register writes, by the host and by the command stream, decoded.

    `cycle` is the one in which the register takes the value. Further fields: `block`, `address` (offset),
    `value` and `fields`; `reason` is "host" or "stream".
    """

    async def _watch(self) -> None:
        dut = self.dut
        async for _ in pulses(dut.watch_valid, dut.clk):
            offset, value = int(dut.watch_offset.value), int(dut.watch_value.value)
            register = registers().at(offset)
            self._report(
                "write",
                self.agent.cycle - 1,  # the watch port is one register later
                block=register.block if register is not None else "",
                address=offset,
                value=value,
                bytes=4,
                direction="write",
                reason="stream" if high(dut.watch_fetched) else "host",
                fields=register.decode(value) if register is not None else {},
            )

    def writes(self, register: str) -> list[Event]:
        """Return the writes of one register, by name."""
        return [event for event in self.events if register_name(event.address) == register]


class TaskMonitor(Monitor):
    """Tasks from start to end."""

    async def _watch(self) -> None:
        began: tuple[int, int] | None = None
        async for value in event_samples(self.dut):
            if value & EVENT_BITS["task_done"] and began is not None:
                self._report("task", began[0], self.agent.cycle, task=began[1])
                began = None
            if value & EVENT_BITS["task_start"]:
                began = self.agent.cycle, int(self.dut.task_index.value)


class StripeMonitor(Monitor):
    """Stripes: CNA passes 16 finished output pixels (of one kernel group) to CORE."""

    async def _watch(self) -> None:
        async for value in event_samples(self.dut):
            if value & EVENT_BITS["stripes"]:
                self._report("stripe", self.agent.cycle, block="CNA")


class BurstMonitor(Monitor):
    """Bursts on the AXI port; `cycle` of the request, `end` after the last beat (for a write: the response).

    Parameters
    ----------
    direction : "read", "write" or "" for both.
    clients : names of AXI clients (`rkcosim.rtl.layouts.ReadClient`, `WriteClient`); None: all.
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
        self._reads: dict[int, deque[Event]] = defaultdict(deque)
        """Requested bursts by AXI id; the data of the first one are on the bus."""
        self._asked: deque[tuple[int, Event]] = deque()
        self._filled: deque[tuple[bytes, int]] = deque()
        """Requests of writes with their ids, and the data and number of bytes of write bursts."""
        self._writes: dict[int, deque[Event]] = defaultdict(deque)
        """Writes without a response, by AXI id."""
        super().__init__(agent, call)

    def _watchers(self) -> list[Any]:
        reads = [self._read_requests(), self._read_data()] if self.direction != "write" else []
        if self.direction == "read":
            return reads
        return [*reads, self._write_requests(), self._write_data(), self._write_responses()]

    async def _beats(self, channel: str) -> AsyncIterator[Callable[[str], int]]:
        """Yield, for every beat that a channel transfers, a function that returns its pins by name."""
        dut = self.dut
        ready = getattr(dut, f"m_axi_{channel}ready")
        async for _ in pulses(getattr(dut, f"m_axi_{channel}valid"), dut.clk):
            if high(ready):
                yield lambda name: int(getattr(dut, f"m_axi_{channel}{name}").value)

    def _request(self, pin: Callable[[str], int], direction: str) -> tuple[int, Event]:
        """Return the id of a burst, and the burst without its data and its end."""
        number, cycle, task = pin("id"), self.agent.cycle, int(self.dut.task_index.value)
        client, address = client_name(number, write=direction == "write"), pin("addr")
        burst = Event("burst", cycle, cycle, self.agent.core, task, "", client, address, direction=direction)
        return number, burst

    def _ended(self, burst: Event, **rest: Any) -> None:
        if self.clients is None or burst.client in self.clients:
            self._add(replace(burst, end=self.agent.cycle + 1, **rest))

    async def _read_requests(self) -> None:
        async for pin in self._beats("ar"):
            number, burst = self._request(pin, "read")
            self._reads[number].append(burst)

    async def _read_data(self) -> None:
        async for pin in self._beats("r"):
            bursts = self._reads[pin("id")]
            if bursts:  # none: it was requested before this monitor existed
                bursts[0].data.extend(pin("data").to_bytes(BEAT_BYTES, "little"))
                if pin("last"):
                    burst = bursts.popleft()
                    self._ended(burst, bytes=len(burst.data))

    async def _write_requests(self) -> None:
        async for pin in self._beats("aw"):
            self._asked.append(self._request(pin, "write"))
            self._pair()

    async def _write_data(self) -> None:
        data, strobes = bytearray(), 0
        async for pin in self._beats("w"):
            data += pin("data").to_bytes(BEAT_BYTES, "little")
            strobes += pin("strb").bit_count()
            if pin("last"):
                self._filled.append((bytes(data), strobes))
                data, strobes = bytearray(), 0
                self._pair()

    def _pair(self) -> None:
        """Join requests and their data, which arrive separately in the same order."""
        while self._asked and self._filled:
            (number, burst), (data, strobes) = self._asked.popleft(), self._filled.popleft()
            self._writes[number].append(replace(burst, data=bytearray(data), bytes=strobes))

    async def _write_responses(self) -> None:
        async for pin in self._beats("b"):
            bursts = self._writes[pin("id")]
            if bursts:
                self._ended(bursts.popleft())


class PacketMonitor(BurstMonitor):
    """Packets: what the DPU and the PPU write to memory, burst by burst."""

    def __init__(self, agent: NpuAgent, call: Callable[[Event], None] | None = None) -> None:
        super().__init__(agent, call, direction="write", clients=("DPU", "PPU"))


class IrqMonitor(Monitor):
    """Intervals in which the interrupt line is high.

    `reason` names the blocks still running when it rises.
    """

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
            self._report("irq", began, self.agent.cycle, reason=", ".join(busy))


class DiagnosticMonitor(Monitor):
    """Diagnostics; `reason` is the text of `rkcosim.engines.diagnostics`."""

    async def _watch(self) -> None:
        dut, agent = self.dut, self.agent
        async for _ in pulses(dut.diag_valid, dut.clk):
            found = agent.diagnostic()
            place: dict[str, Any] = {"address": found.offset, "value": found.value}
            self._report("diagnostic", agent.cycle, block=found.block, reason=str(found), **place)


class BusyMonitor(Monitor):
    """Intervals in which a block is running (its bit in `busy_blocks`)."""

    async def _watch(self) -> None:
        pin, edge = self.dut.busy_blocks, RisingEdge(self.dut.clk)
        since: dict[str, int] = {}
        while True:
            await ValueChange(pin)
            await edge
            busy = blocks_of_mask(int(pin.value))
            for block in [name for name in since if name not in busy]:
                self._report("busy", since.pop(block), self.agent.cycle, block=block)
            for block in busy:
                since.setdefault(block, self.agent.cycle)


class Monitors:
    """All monitors of a core.

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
        """Return all events in the order of cycles."""
        return sorted(
            (event for monitor in vars(self).values() for event in monitor.events), key=lambda e: e.cycle
        )
