"""Interrupt unit: registers, mask, clear, line."""

from __future__ import annotations

import random

from amaranth.sim import Simulator

from rkcosim.rtl.interrupt import Event, InterruptUnit
from rkcosim.spec.regs import registers

PC = registers()["PC"]
ALL = PC["INTERRUPT_MASK"].reset


def run(bench):
    dut = InterruptUnit()
    sim = Simulator(dut)
    sim.add_clock(1e-6)

    async def wrapped(ctx):
        await bench(ctx, dut)

    sim.add_testbench(wrapped)
    sim.run()


async def write(ctx, dut, name, value):
    ctx.set(dut.port.offset, PC[name].local)
    ctx.set(dut.port.wdata, value)
    ctx.set(dut.port.write, 1)
    assert ctx.get(dut.port.ready)
    await ctx.tick()
    ctx.set(dut.port.write, 0)


def read(ctx, dut, name):
    ctx.set(dut.port.offset, PC[name].local)
    return ctx.get(dut.port.rdata)


async def event(ctx, dut, *events, last=1):
    ctx.set(dut.events, sum(1 << e for e in events))
    ctx.set(dut.last_task, last)
    await ctx.tick()
    ctx.set(dut.events, 0)
    ctx.set(dut.last_task, 0)


def state(ctx, dut):
    names = ("RAW_STATUS", "STATUS", "MASK")
    return (*(read(ctx, dut, f"INTERRUPT_{name}") for name in names), ctx.get(dut.irq))


def test_event_mask_clear():
    async def bench(ctx, dut):
        assert state(ctx, dut) == (0, 0, ALL, 0)
        await write(ctx, dut, "INTERRUPT_MASK", 0x300)
        await event(ctx, dut, Event.CORE + 1)
        assert state(ctx, dut) == (0x80, 0, 0x300, 0)
        await event(ctx, dut, Event.DPU)
        assert state(ctx, dut) == (0x180, 0x100, 0x300, 1)
        await ctx.tick().repeat(5)
        assert ctx.get(dut.irq) == 1, "the line is a level"
        await write(ctx, dut, "INTERRUPT_CLEAR", 0x80)
        await ctx.tick()
        assert state(ctx, dut) == (0x100, 0x100, 0x300, 1)
        await write(ctx, dut, "INTERRUPT_CLEAR", ALL)
        await ctx.tick()
        assert state(ctx, dut) == (0, 0, 0x300, 0)
        assert read(ctx, dut, "INTERRUPT_CLEAR") == 0

    run(bench)


def test_only_the_last_task_raises_the_line_which_stays_until_status_is_zero():
    async def bench(ctx, dut):
        await event(ctx, dut, Event.DPU, last=0)
        await ctx.tick()
        assert state(ctx, dut) == (0x100, 0x100, ALL, 0)
        await event(ctx, dut, Event.DPU + 1)
        assert state(ctx, dut) == (0x300, 0x300, ALL, 1)
        await write(ctx, dut, "INTERRUPT_CLEAR", 0x200)
        await ctx.tick().repeat(2)
        assert state(ctx, dut) == (0x100, 0x100, ALL, 1)
        await write(ctx, dut, "INTERRUPT_MASK", 0)
        await ctx.tick()
        assert state(ctx, dut) == (0x100, 0, 0, 0)
        await write(ctx, dut, "INTERRUPT_MASK", ALL)
        await ctx.tick().repeat(2)
        assert state(ctx, dut) == (0x100, 0x100, ALL, 0), "an opened mask does not raise the line"

    run(bench)


def test_an_event_in_the_cycle_of_its_clear_stays():
    async def bench(ctx, dut):
        await event(ctx, dut, Event.PPU)
        ctx.set(dut.events, 1 << Event.PPU)
        ctx.set(dut.last_task, 1)
        await write(ctx, dut, "INTERRUPT_CLEAR", ALL)
        ctx.set(dut.events, 0)
        await ctx.tick()
        assert state(ctx, dut)[0] == 1 << Event.PPU
        assert ctx.get(dut.irq) == 1

    run(bench)


def test_status_registers_ignore_writes():
    async def bench(ctx, dut):
        await event(ctx, dut, Event.DMA_READ_ERROR, Event.DMA_WRITE_ERROR)
        for name in ("INTERRUPT_STATUS", "INTERRUPT_RAW_STATUS"):
            await write(ctx, dut, name, ALL)
        assert state(ctx, dut) == (0x3000, 0x3000, ALL, 1)

    run(bench)


def test_random_events_and_writes():
    """Registers and line in every cycle, against the rules of the line [HW 10]."""
    rng = random.Random(10)
    names = ("INTERRUPT_MASK", "INTERRUPT_CLEAR", "INTERRUPT_STATUS", "INTERRUPT_RAW_STATUS")

    async def bench(ctx, dut):
        raw, mask, line, seen = 0, ALL, 0, []
        for _ in range(800):
            events = sum(1 << bit for bit in range(len(dut.events)) if rng.random() < 0.02)
            last, name = rng.random() < 0.5, rng.choice((*names, "INTERRUPT_CLEAR", "INTERRUPT_CLEAR"))
            value = ALL if rng.random() < 0.7 else rng.getrandbits(17)
            written = rng.random() < 0.6
            for port, given in (("events", events), ("last_task", last)):
                ctx.set(getattr(dut, port), given)
            assert state(ctx, dut) == (raw, raw & mask, mask, line)
            seen.append(line)
            ctx.set(dut.port.offset, PC[name].local)
            ctx.set(dut.port.wdata, value)
            ctx.set(dut.port.write, written)
            assert ctx.get(dut.port.ready)
            await ctx.tick()
            ctx.set(dut.port.write, 0)
            raised = last and events & mask
            line = int(bool(raised) or bool(line and raw & mask))
            raw = raw & ~(value if written and name == "INTERRUPT_CLEAR" else 0) | events
            mask = value if written and name == "INTERRUPT_MASK" else mask
        assert 100 < sum(seen) < 700 and "0, 1, 0" in str(seen)

    run(bench)
