"""An AXI4 memory and an AXI4-Lite host in Python for the Amaranth simulator, strict about the protocol."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

BEAT = 32


@dataclass
class AxiMemory:
    """Serves an `Axi4` interface from `data`, in per-id order, with ids interleaved at random.

    Parameters
    ----------
    axi
        The master's interface (`component.axi`).
    data
        Memory from address 0 on.
    rng
        Source of stalls; None for a memory that never stalls and answers in order.
    latency
        Smallest number of cycles from an address to its first data or response.
    bad
        Address range whose beats and bursts give the error `bad_code` (2 SLVERR, 3 DECERR).

    The lists `reads` and `writes` have (id, address, beats) of every burst; `cycles_*` the cycle of
    every handshake; `peak_*` the largest number of outstanding bursts.
    """

    axi: Any
    data: bytearray
    rng: random.Random | None = None
    latency: int = 10
    bad: range = range(0)
    bad_code: int = 2
    reads: list = field(default_factory=list)
    writes: list = field(default_factory=list)
    cycles_ar: list = field(default_factory=list)
    cycles_r: list = field(default_factory=list)
    cycles_w: list = field(default_factory=list)
    peak_reads: int = 0
    peak_writes: int = 0
    aw_chance: float = 0.7
    """Probability that a write address is accepted, with `rng`."""

    def _maybe(self, chance: float = 0.7) -> bool:
        return self.rng is None or self.rng.random() < chance

    async def process(self, ctx: Any) -> None:
        """The simulator process (`Simulator.add_process`)."""
        a = self.axi
        names = (
            "arvalid arready arid araddr arlen arsize arburst rvalid rready awvalid awready awid awaddr "
            "awlen awsize awburst wvalid wready wdata wstrb wlast bvalid bready"
        ).split()
        reads: deque = deque()  # [id, address, beats left, earliest cycle]
        writes: deque = deque()  # [id, address, beats, data received]
        responses: deque = deque()  # [id, code, earliest cycle]
        accepted = 0
        held: dict[str, tuple] = {}
        cycle = -1
        async for _, _, *values in ctx.tick().sample(*(getattr(a, name) for name in names)):
            cycle += 1
            v = dict(zip(names, values, strict=True))
            for channel in ("ar", "aw", "w"):
                now = tuple(
                    v[n] for n in names if n.startswith(channel) and not n.endswith(("valid", "ready"))
                )
                if channel in held:
                    assert v[f"{channel}valid"] and held[channel] == now, f"{channel} changed while it waited"
                held.pop(channel, None)
                if v[f"{channel}valid"] and not v[f"{channel}ready"]:
                    held[channel] = now
            for channel in ("ar", "aw"):
                if v[f"{channel}valid"] and v[f"{channel}ready"]:
                    address, beats = v[f"{channel}addr"], v[f"{channel}len"] + 1
                    assert v[f"{channel}size"] == 5 and v[f"{channel}burst"] == 1
                    assert address % BEAT == 0 and beats <= 16
                    assert address // 4096 == (address + beats * BEAT - 1) // 4096, (
                        f"crosses 4 KiB: {address:#x}"
                    )
                    burst = (v[f"{channel}id"], address, beats)
                    if channel == "ar":
                        self.reads.append(burst)
                        self.cycles_ar.append(cycle)
                        reads.append([*burst, cycle + self.latency])
                        self.peak_reads = max(self.peak_reads, len(reads))
                    else:
                        self.writes.append(burst)
                        writes.append([*burst, 0])
                        accepted += 1
                        self.peak_writes = max(self.peak_writes, accepted)
            if v["wvalid"] and v["wready"]:
                self.cycles_w.append(cycle)
                assert writes, "write data before its address"
                burst = writes[0]
                for byte in range(BEAT):
                    if v["wstrb"] >> byte & 1:
                        self.data[burst[1] + burst[3] * BEAT + byte] = v["wdata"] >> 8 * byte & 0xFF
                burst[3] += 1
                assert v["wlast"] == (burst[3] == burst[2]), "wlast is not on the last beat"
                if v["wlast"]:
                    writes.popleft()
                    responses.append(
                        [burst[0], self.bad_code if burst[1] in self.bad else 0, cycle + self.latency]
                    )
            if v["rvalid"] and v["rready"]:
                self.cycles_r.append(cycle)

            ctx.set(a.arready, self._maybe())
            ctx.set(a.awready, self._maybe(self.aw_chance))
            ctx.set(a.wready, self._maybe())
            if not v["rvalid"] or v["rready"]:
                ready: dict[int, list] = {}
                for burst in reads:
                    if burst[0] not in ready and (not ready or self.rng is not None):
                        ready[burst[0]] = burst
                choices = [b for b in ready.values() if b[3] <= cycle]
                ctx.set(a.rvalid, 0)
                if choices and self._maybe():
                    burst = self.rng.choice(choices) if self.rng else choices[0]
                    ctx.set(a.rvalid, 1)
                    ctx.set(a.rid, burst[0])
                    ctx.set(a.rdata, int.from_bytes(self.data[burst[1] : burst[1] + BEAT], "little"))
                    ctx.set(a.rresp, self.bad_code if burst[1] in self.bad else 0)
                    burst[1] += BEAT
                    burst[2] -= 1
                    ctx.set(a.rlast, burst[2] == 0)
                    if burst[2] == 0:
                        reads.remove(burst)
            if not v["bvalid"] or v["bready"]:
                ctx.set(a.bvalid, 0)
                if responses and responses[0][2] <= cycle and self._maybe():
                    answer = responses.popleft()
                    accepted -= 1
                    ctx.set(a.bvalid, 1)
                    ctx.set(a.bid, answer[0])
                    ctx.set(a.bresp, answer[1])


LONGEST_ACCESS = 2_000
"""Cycles after which an AXI-Lite access has failed."""


async def axil_write(ctx, axil, address, value, rng=None, strobe=0xF):
    """Do one AXI-Lite write; address and data are offered at random times; return the response."""
    pending = {"aw", "w"}
    waits = {c: rng.randrange(4) if rng else 0 for c in ("aw", "w", "b")}
    ctx.set(axil.awaddr, address)
    ctx.set(axil.wdata, value)
    ctx.set(axil.wstrb, strobe)
    for _ in range(LONGEST_ACCESS):
        for channel in ("aw", "w"):
            ctx.set(getattr(axil, f"{channel}valid"), channel in pending and waits[channel] <= 0)
            waits[channel] -= 1
        ctx.set(axil.bready, not pending and waits["b"] <= 0)
        waits["b"] -= not pending
        _, _, aw, w, b, code = await ctx.tick().sample(
            axil.awvalid & axil.awready, axil.wvalid & axil.wready, axil.bvalid & axil.bready, axil.bresp
        )
        pending -= {"aw"} if aw else set()
        pending -= {"w"} if w else set()
        if b:
            ctx.set(axil.bready, 0)
            return code
    raise AssertionError(f"no response to a write of {address:#x} in {LONGEST_ACCESS} cycles")


async def axil_read(ctx, axil, address, rng=None):
    """Do one AXI-Lite read; return (data, response)."""
    for _ in range(rng.randrange(4) if rng else 0):
        await ctx.tick()
    ctx.set(axil.araddr, address)
    ctx.set(axil.arvalid, 1)
    await _within(ctx, axil.arready, f"a read of {address:#x} is not accepted")
    ctx.set(axil.arvalid, 0)
    for _ in range(rng.randrange(4) if rng else 0):
        await ctx.tick()
    ctx.set(axil.rready, 1)
    data, code = await _within(ctx, axil.rvalid, f"no data of {address:#x}", axil.rdata, axil.rresp)
    ctx.set(axil.rready, 0)
    return data, code


async def _within(ctx, condition, failure, *values):
    """Wait for a condition at a clock edge; return values of that cycle."""
    for _ in range(LONGEST_ACCESS):
        _, _, done, *found = await ctx.tick().sample(condition, *values)
        if done:
            return found
    raise AssertionError(f"{failure} in {LONGEST_ACCESS} cycles")


class EagerHost:
    """An AXI4-Lite host that offers requests on all channels at once and does not wait for responses.

    Parameters
    ----------
    axil
        The slave's interface.
    writes, reads
        (address, value, strobes) of the writes, and addresses of the reads, in their order.
    rng, stall
        Source of stalls; probability that a channel waits for a cycle before a request or a response.

    `written` has the response code of every write, `read` (data, code) of every read. A response that changes
    or goes while it waits, or that nobody asked for, is an AssertionError.
    """

    def __init__(
        self,
        axil: Any,
        writes: list[tuple[int, int, int]],
        reads: list[int],
        rng: random.Random,
        stall: float,
    ) -> None:
        self._axil, self._writes, self._reads, self._rng, self._stall = axil, writes, reads, rng, stall
        self.written: list[int] = []
        self.read: list[tuple[int, int]] = []

    def benches(self) -> list[Any]:
        """Return the testbenches of the channels; each ends when its requests are accepted or answered."""
        axil = self._axil
        return [
            self._feed("aw", [{"addr": address} for address, _, _ in self._writes]),
            self._feed("w", [{"data": value, "strb": strobes} for _, value, strobes in self._writes]),
            self._feed("ar", [{"addr": address} for address in self._reads]),
            self._collect("b", [axil.bresp], len(self._writes), lambda code: self.written.append(code)),
            self._collect(
                "r", [axil.rdata, axil.rresp], len(self._reads), lambda *answer: self.read.append(answer)
            ),
        ]

    def _feed(self, channel: str, requests: list[dict[str, int]]) -> Any:
        valid, ready = getattr(self._axil, f"{channel}valid"), getattr(self._axil, f"{channel}ready")

        async def run(ctx):
            for request in requests:
                while self._rng.random() < self._stall:
                    await ctx.tick()
                for name, value in request.items():
                    ctx.set(getattr(self._axil, channel + name), value)
                ctx.set(valid, 1)
                await ctx.tick().until(ready)
                ctx.set(valid, 0)

        return run

    def _collect(self, channel: str, members: list[Any], count: int, keep: Any) -> Any:
        valid, ready = getattr(self._axil, f"{channel}valid"), getattr(self._axil, f"{channel}ready")

        async def run(ctx):
            waiting, left = None, count
            async for _, _, shown, taken, *payload in ctx.tick().sample(valid, ready, *members):
                assert waiting is None or (shown and payload == waiting), f"{channel} changed while it waited"
                waiting = payload if shown and not taken else None
                if shown and taken:
                    keep(*payload)
                    left -= 1
                if not left:
                    ctx.set(ready, 0)
                    break
                ctx.set(ready, self._rng.random() >= self._stall)
            await ctx.tick().repeat(20)
            assert not ctx.get(valid), f"{channel}: a response that nobody asked for"

        return run
