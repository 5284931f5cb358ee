"""Simulator-side partners of the DPU family's ports: stalling sources and sinks, memory models."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from amaranth.hdl import Elaboratable

from tests.simulation import Run, simulation


class Bench:
    """A simulation of one component with random stalls.

    Parameters
    ----------
    dut : Elaboratable
    seed : int
        seed of all random choices; it is printed, so that a failing run can be repeated.
    stall : float
        probability that a source or sink pauses in a cycle.
    """

    def __init__(self, dut: Elaboratable, seed: int, stall: float = 0.3) -> None:
        print(f"seed {seed} stall {stall}")
        self._simulation = simulation(dut)
        self._background: list[Run] = []
        self.random = random.Random(seed)
        self.stall = stall
        self.cycle = 0
        self.add(self._count())

    def add(self, run: Run) -> None:
        """Add a testbench that runs in parallel to the main one."""
        self._background.append(run)

    def _count(self) -> Callable[[Any], Any]:
        async def run(ctx: Any) -> None:
            while True:
                await ctx.tick()
                self.cycle += 1

        return run

    def flows(self) -> bool:
        """Whether a partner transfers in this cycle."""
        return self.stall == 0 or self.random.random() >= self.stall

    def source(self, port: Any, items: Iterable[Any], after: Any = None) -> None:
        """Feed `items` (payload values) into the stream `port`, when the signal `after` is high."""

        async def run(ctx: Any) -> None:
            while after is not None and not ctx.get(after):
                await ctx.tick()
            for item in items:
                while not self.flows():
                    await ctx.tick()
                ctx.set(port.payload, item)
                ctx.set(port.valid, 1)
                taken = False
                while not taken:  # `until` leaves an open generator when the simulation ends first
                    _, _, taken = await ctx.tick().sample(port.ready)
                ctx.set(port.valid, 0)

        self.add(run)

    def sink(self, port: Any, take: Callable[[Any], None]) -> None:
        """Call `take` with each payload that the component sends; what it offers stays until it is taken."""

        async def run(ctx: Any) -> None:
            waiting = None
            while True:
                ready = self.flows()
                ctx.set(port.ready, ready)
                _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
                assert waiting is None or (valid and payload == waiting), f"{port} changed while it waited"
                waiting = payload if valid and not ready else None
                if valid and ready:
                    take(payload)

        self.add(run)

    def write_memory(self, port: Any, memory: bytearray, latency: tuple[int, int] = (3, 20)) -> WriteModel:
        """Serve a WritePort from `memory`; latency of the response in cycles, drawn from the range."""
        model = WriteModel(self, memory, latency)
        self.sink(port.req, model.request)
        self.sink(port.data, model.beat)

        async def run(ctx: Any) -> None:
            while True:
                ctx.set(port.done, model.due())
                await ctx.tick()

        self.add(run)
        return model

    def read_memory(self, port: Any, memory: bytearray, latency: tuple[int, int] = (3, 60)) -> ReadModel:
        """Serve a ReadPort from `memory`, in order, with a random latency for each request."""
        model = ReadModel(self, memory, latency)
        self.sink(port.req, model.request)

        async def run(ctx: Any) -> None:
            while True:
                beat = model.due()
                ctx.set(port.rsp.valid, beat is not None)
                if beat is not None:
                    ctx.set(port.rsp.payload, {"data": beat[0], "last": beat[1]})
                await ctx.tick()

        self.add(run)
        return model

    def collect(self, port: Any, into: list[tuple[int, int, int]]) -> None:
        """Append (code, register, value) of every diagnostic to `into`."""

        async def run(ctx: Any) -> None:
            async for _, _, valid, payload in ctx.tick().sample(port.valid, port.payload):
                if valid:
                    into.append((payload.code, payload.register, payload.value))

        self.add(run)

    def run(self, main: Run) -> None:
        """Run until the testbench `main` ends."""
        self._simulation.run(main, self._background)


class WriteModel:
    """Memory side of a WritePort: checks the protocol, applies strobes, delays the responses."""

    def __init__(self, bench: Bench, memory: bytearray, latency: tuple[int, int]) -> None:
        self.bench, self.memory, self.latency = bench, memory, latency
        self.requests: deque[tuple[int, int]] = deque()
        self.beats: deque[tuple[int, int, int]] = deque()
        self.responses: deque[int] = deque()
        self.bursts = 0
        self.written = 0

    def request(self, payload: Any) -> None:
        assert payload.addr % 32 == 0, f"write burst at {payload.addr:#x}"
        self.requests.append((payload.addr, payload.beats_m1 + 1))
        self.bursts += 1
        self._match()

    def beat(self, payload: Any) -> None:
        self.beats.append((payload.data, payload.strb, payload.last))
        self._match()

    def _match(self) -> None:
        while self.requests and len(self.beats) >= self.requests[0][1]:
            addr, count = self.requests.popleft()
            for index in range(count):
                value, strobe, last = self.beats.popleft()
                assert last == (index == count - 1), f"last flag of beat {index} of {count} at {addr:#x}"
                assert strobe, f"beat without a byte at {addr + 32 * index:#x}"
                for lane, byte in enumerate(value.to_bytes(32, "little")):
                    if strobe >> lane & 1:
                        self.memory[addr + 32 * index + lane] = byte
                        self.written += 1
            self.responses.append(self.bench.cycle + self.bench.random.randint(*self.latency))

    def due(self) -> bool:
        if self.responses and self.responses[0] <= self.bench.cycle:
            self.responses.popleft()
            return True
        return False

    @property
    def quiet(self) -> bool:
        return not (self.requests or self.beats or self.responses)


class ReadModel:
    """Memory side of a ReadPort: answers the requests in order after a random latency."""

    def __init__(self, bench: Bench, memory: bytearray, latency: tuple[int, int]) -> None:
        self.bench, self.memory, self.latency = bench, memory, latency
        self.queue: deque[list[int]] = deque()
        self.touched: set[int] = set()
        self.beats = 0

    def request(self, payload: Any) -> None:
        assert payload.addr % 32 == 0, f"read burst at {payload.addr:#x}"
        count = payload.beats_m1 + 1
        self.touched.update(range(payload.addr, payload.addr + 32 * count, 32))
        assert payload.addr + 32 * count <= len(self.memory), f"read outside memory at {payload.addr:#x}"
        self.queue.append([payload.addr, count, self.bench.cycle + self.bench.random.randint(*self.latency)])

    def due(self) -> tuple[int, bool] | None:
        if not self.queue or self.queue[0][2] > self.bench.cycle or not self.bench.flows():
            return None
        entry = self.queue[0]
        addr = entry[0]
        entry[0] += 32
        entry[1] -= 1
        if not entry[1]:
            self.queue.popleft()
        self.beats += 1
        return int.from_bytes(self.memory[addr : addr + 32], "little"), not entry[1]
