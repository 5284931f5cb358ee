"""The control part of a core with model blocks: PC, fabric, interrupts, DDMA, AXI-Lite slave."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.bus import AxiLiteSlave
from rkcosim.rtl.interrupt import Event, InterruptUnit
from rkcosim.rtl.layouts import DiagnosticCode, DiagnosticPort, ReadClient, RegisterPort
from rkcosim.rtl.npu.ddma import Ddma
from rkcosim.rtl.pc_dma import PcDma
from rkcosim.rtl.regbus import RegisterFabric, op_enable_fields
from rkcosim.rtl.regfile import RegisterFile
from rkcosim.spec.regs import registers
from tests.simulation import shared, simulation
from tests.twins.axi_model import AxiMemory, axil_read, axil_write

R = registers()
PC = R["PC"]
FAKES = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
BITS = op_enable_fields()
ALL_EVENTS = PC["INTERRUPT_MASK"].reset


class FakeBlock(wiring.Component):
    """Two groups' enables and pointers, and `length` cycles of work; the bench has the storage.

    Offset 0 reads 0xB10C; with `toggle` low the pointer does not change, as without POINTER_PP_EN.
    """

    def __init__(self):
        super().__init__(
            {
                "port": In(RegisterPort()),
                "op_enable": In(1),
                "length": In(16, init=20),
                "toggle": In(1, init=1),
                "busy": Out(1),
                "done": Out(1),
                "pointer": Out(1),
                "group": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        enable = Signal(2)
        left = Signal(16)
        running = Signal()
        m.d.comb += [
            self.busy.eq(enable.any() | running),
            self.port.ready.eq(
                self.port.read
                | (self.port.write & ~((self.port.offset >= 8) & enable.bit_select(self.pointer, 1)))
            ),
            self.port.rdata.eq(0xB10C),
            self.done.eq(running & (left == 0)),
        ]
        with m.If(self.op_enable):
            m.d.sync += enable.bit_select(self.pointer, 1).eq(1)
            with m.If(self.toggle):
                m.d.sync += self.pointer.eq(~self.pointer)
        with m.If(running):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 0):
                m.d.sync += [running.eq(0), enable.bit_select(self.group, 1).eq(0)]
                with m.If(self.toggle):
                    m.d.sync += self.group.eq(~self.group)
        with m.Elif(enable.bit_select(self.group, 1)):
            m.d.sync += [running.eq(1), left.eq(self.length)]
        return m


class RealBlock(wiring.Component):
    """The block's register file, followed by `length` cycles of work; members as in `FakeBlock`."""

    def __init__(self, name: str):
        super().__init__(
            {
                "port": In(RegisterPort()),
                "op_enable": In(1),
                "length": In(16, init=20),
                "busy": Out(1),
                "done": Out(1),
                "pointer": Out(1),
                "group": Out(1),
                "start": Out(1),
                "core": In(2, init=2),
                "diag": Out(DiagnosticPort()),
            }
        )
        self.file = RegisterFile(name)

    def elaborate(self, platform):
        m = Module()
        m.submodules.file = file = self.file
        left, running = Signal(16), Signal()
        wiring.connect(m, wiring.flipped(self.port), file.port)
        wiring.connect(m, wiring.flipped(self.diag), file.diag)
        m.d.comb += [
            file.op_enable.eq(self.op_enable),
            file.core.eq(self.core),
            self.busy.eq(file.busy),
            self.group.eq(file.control.group),
            self.start.eq(file.control.start),
            self.done.eq(running & (left == 0)),
            file.control.done.eq(self.done),
        ]
        m.d.sync += left.eq(left - 1)
        with m.If(self.done):
            m.d.sync += running.eq(0)
        with m.If(file.control.start):
            m.d.sync += [running.eq(1), left.eq(self.length)]
        return m


class ControlSide(wiring.Component):
    """All of the above, connected as in a core; blocks in `real` have their register file."""

    def __init__(self, relax: bool = False, real: tuple[str, ...] = ()):
        super().__init__({"more_writes": In(1)})
        self.pc = PcDma(relax_serialisation=relax)
        self.fabric = RegisterFabric()
        self.interrupt = InterruptUnit()
        self.ddma = Ddma()
        self.slave = AxiLiteSlave()
        self.blocks = {name: RealBlock(name) if name in real else FakeBlock() for name in FAKES}

    def elaborate(self, platform):
        m = Module()
        for name in ("pc", "fabric", "interrupt", "ddma", "slave"):
            m.submodules[name] = getattr(self, name)
        connect = wiring.connect
        connect(m, self.slave.bus, self.fabric.host)
        connect(m, self.pc.bus, self.fabric.fetch)
        connect(m, self.fabric.pc, self.pc.port)
        connect(m, self.fabric.ddma, self.ddma.port)
        connect(m, self.fabric.sdma, self.ddma.sdma_port)
        connect(m, self.pc.interrupts, self.interrupt.port)
        connect(m, self.pc.read, self.ddma.reads[ReadClient.PC])
        for name, block in self.blocks.items():
            m.submodules[name.lower()] = block
            connect(m, getattr(self.fabric, name.lower()), block.port)
            bit = BITS[name]
            m.d.comb += [
                block.op_enable.eq(self.pc.op_enable[bit] | self.fabric.op_enable[bit]),
                self.pc.busy[bit].eq(block.busy),
            ]
        for name, event in (("CORE", Event.CORE), ("DPU", Event.DPU), ("PPU", Event.PPU)):
            block = self.blocks[name]
            pair = self.interrupt.events[event : event + 2]
            m.d.comb += pair.eq(Cat(block.done & ~block.group, block.done & block.group))
        m.d.comb += [
            self.ddma.dma_base.eq(self.pc.dma_base),
            self.pc.writes_pending.eq(self.ddma.writes_pending | self.more_writes),
            self.interrupt.last_task.eq(self.pc.last_task),
        ]
        return m


def word(target: str, offset: int = 0, value: int = 0) -> int:
    """Return a register word; `target` as in the word description ("CNA", "OP_ENABLE", ...)."""
    return R.word.encode(TARGET=target, OFFSET=offset, VALUE=value)


def write_word(register: str, value: int) -> int:
    """A word that writes `BLOCK.REGISTER`."""
    block, name = register.split(".")
    return word(block, R[block][name].offset, value)


def amount(words: list[int]) -> int:
    """REGISTER_AMOUNTS of a list: fetches of two words, minus one."""
    return (len(words) + 1) // 2 - 1


def task(body: list[int], mask: int | None, link: tuple[int, int] | None = (0, 0)) -> list[int]:
    """Return a list: body, link (address, amount) or two zero words, marker, op-enable."""
    tail = (
        [0, 0]
        if link is None
        else [
            write_word("PC.BASE_ADDRESS", link[0]),
            write_word("PC.REGISTER_AMOUNTS", link[1]),
        ]
    )
    tail.append(word("CONFIG_END"))
    if mask is not None:
        tail.append(word("OP_ENABLE", PC["OPERATION_ENABLE"].offset, mask))
    return body + tail


def chain(bodies: list[tuple[list[int], int]], places: list[int], dangling: bool = True) -> list[list[int]]:
    """Return the lists of a chain at `places`; the last one's link points nowhere or is missing."""
    lists: list[list[int]] = []
    for n, (body, mask) in reversed(list(enumerate(bodies))):
        if n + 1 < len(bodies):
            link = (places[n + 1], amount(lists[0]))
        else:
            link = (0xDEAD0, 7) if dangling else None
        lists.insert(0, task(body, mask, link))
    return lists


@dataclass
class Seen:
    """Observations with the cycle of each."""

    writes: list = field(default_factory=list)  # (cycle, block, group, offset, value)
    enables: list = field(default_factory=list)  # (cycle, mask)
    starts: list = field(default_factory=list)  # (cycle, task)
    dones: list = field(default_factory=list)
    diagnostics: list = field(default_factory=list)  # (cycle, code, register, value)
    irq: list = field(default_factory=list)  # cycles of rising edges
    block_done: list = field(default_factory=list)  # (cycle, block)
    end: int = 0


class Bench:
    """Run a scenario of the host against `ControlSide`.

    Parameters
    ----------
    lists
        address -> words, written to memory.
    seed
        seed of the memory's random stalls; None for none.
    """

    def __init__(
        self,
        lists: dict[int, list[int]],
        seed: int | None = None,
        relax: bool = False,
        latency: int = 20,
        real: tuple[str, ...] = (),
    ):
        self.dut = shared(ControlSide, relax, real)
        data = bytearray(128 * 1024)
        for address, words in lists.items():
            for n, value in enumerate(words):
                data[address + 8 * n : address + 8 * n + 8] = value.to_bytes(8, "little")
        rng = None if seed is None else random.Random(seed)
        if seed is not None:
            print(f"seed {seed}")
        self.memory = AxiMemory(self.dut.ddma.axi, data, rng, latency)
        self.seen = Seen()
        self.cycle = 0

    async def write(self, ctx, register: str, value: int) -> None:
        block, name = register.split(".")
        assert await axil_write(ctx, self.dut.slave.axil, R[block][name].offset, value) == 0

    async def read(self, ctx, register: str) -> int:
        block, name = register.split(".")
        value, code = await axil_read(ctx, self.dut.slave.axil, R[block][name].offset)
        assert code == 0
        return value

    async def status(self, ctx) -> dict[str, int]:
        return PC["TASK_STATUS"].decode(await self.read(ctx, "PC.TASK_STATUS"))

    async def kick(self, ctx, address: int, words: list[int], tasks: int, prefetch: int = 1, mask=ALL_EVENTS):
        """Do the commit sequence of [HW 10.3]."""
        await self.write(ctx, "PC.BASE_ADDRESS", address)
        await self.write(ctx, "PC.REGISTER_AMOUNTS", amount(words))
        await self.write(ctx, "PC.INTERRUPT_MASK", mask)
        await self.write(ctx, "PC.INTERRUPT_CLEAR", ALL_EVENTS)
        control = PC["TASK_CON"].encode(
            RESERVED_14=1, TASK_COUNT_CLEAR=1, TASK_PP_EN=prefetch, TASK_NUMBER=tasks
        )
        await self.write(ctx, "PC.TASK_CON", control)
        await self.write(ctx, "PC.OPERATION_ENABLE", 1)
        await self.write(ctx, "PC.OPERATION_ENABLE", 0)

    async def until(self, ctx, condition, limit: int = 5000) -> None:
        for _ in range(limit):
            if condition():
                return
            await ctx.tick()
        pytest.fail(f"{limit} cycles have passed")

    async def ended(self, ctx, limit: int = 5000) -> None:
        """Wait until the kick has ended."""
        await self.until(ctx, lambda: not ctx.get(self.dut.pc.running), limit)
        await ctx.tick().repeat(3)

    async def _watch(self, ctx) -> None:
        dut, seen = self.dut, self.seen
        ports = [dut.blocks[name] for name in FAKES]
        blocks = []
        for block in ports:
            port = block.port
            blocks += [port.write & port.ready, block.pointer, port.offset, port.wdata, block.done]
        pc = dut.pc
        rest = (pc.op_enable, pc.task_start, pc.task_done, pc.task, dut.interrupt.irq)
        diags = []
        real = [block.diag for block in dut.blocks.values() if isinstance(block, RealBlock)]
        for port in (pc.diag, dut.fabric.diag, dut.ddma.diag, *real):
            diags += [port.valid, port.payload]
        irq_before = 0
        async for _, _, *values in ctx.tick().sample(*blocks, *rest, *diags):
            for n, name in enumerate(FAKES):
                write, pointer, offset, value, done = values[5 * n : 5 * n + 5]
                if write:
                    seen.writes.append((self.cycle, name, pointer, R[name].base + offset, value))
                if done:
                    seen.block_done.append((self.cycle, name))
            enable, start, done, index, irq = values[5 * len(FAKES) : 5 * len(FAKES) + 5]
            assert start or not enable, "blocks are enabled in the cycle in which a task is told to start"
            if enable:
                seen.enables.append((self.cycle, enable))
            if done:
                seen.dones.append((self.cycle, index))
            if start:
                seen.starts.append((self.cycle, index))
            if irq and not irq_before:
                seen.irq.append(self.cycle)
            irq_before = irq
            reports = values[5 * len(FAKES) + 5 :]
            for valid, payload in zip(reports[::2], reports[1::2], strict=True):
                if valid:
                    code = DiagnosticCode(payload["code"])
                    seen.diagnostics.append((self.cycle, code, payload["register"], payload["value"]))
            self.cycle += 1

    def run(self, host, limit: int = 20_000) -> Seen:
        """Run the coroutine `host(ctx)` to its end."""

        async def watchdog(ctx):
            for _ in range(limit):
                await ctx.tick()
            pytest.fail(f"not finished after {limit} cycles")

        simulation(self.dut).run(host, [self._watch, watchdog], [self.memory.process])
        self.seen.end = self.cycle
        return self.seen


def body(rng: random.Random, count: int, blocks=("CNA", "CORE", "DPU", "PPU")) -> list[int]:
    """Return random register writes, none of which stops or starts anything."""
    words = []
    while len(words) < count:
        register = rng.choice([r for r in R[rng.choice(blocks)] if r.shadowed and r.local > 8])
        if not register.name.startswith("LUT"):
            words.append(word(register.block, register.offset, rng.getrandbits(32)))
    return words


def decoded(words: list[int]) -> list[tuple[str, int, int]]:
    """Return (block, offset, value) of the register writes of a list, without the tail."""
    out = []
    for value in words:
        fields = R.word.decode(value)
        block = R.block_of_target(fields["TARGET"])
        if block is not None and block.name not in ("PC",):
            out.append((block.name, fields["OFFSET"], fields["VALUE"]))
    return out
