"""Draws at the limits of fields: the longest cubes, the most channels, long chains, and registers alone."""

from __future__ import annotations

from cosim.conformance.case import Plan
from cosim.conformance.choices import Refused
from cosim.conformance.conv import BANK_BYTES, BANKS, Conv
from cosim.conformance.draw_dpu import DpuWish, draw_dpu
from cosim.conformance.draw_pool import Pool, emit_pool
from cosim.conformance.draws import Draw
from cosim.conformance.types import FP16, INT8, INT16, INT32
from cosim.crosscheck.program import Task
from rtl.regs import registers


def draw(d: Draw) -> Plan:
    """One task with an extreme size."""
    kinds = (
        _flat_cube,
        _tall_cube,
        _many_channels,
        _long_pool,
        _deep_conv,
        _wide_conv,
        _many_kernels,
        _chain,
    )
    return kinds[d.ch.integer("limits.kind", 0, len(kinds) - 1)](d)


def _cube(d: Draw, size: tuple[int, int, int]) -> Plan:
    kind = d.any_type((INT8, INT16, FP16))
    dpu = draw_dpu(d.ch, d.arena, size, kind, 100.0, DpuWish(element="none"), flying=True)
    task = Task(("DPU", "DPU_RDMA"))
    dpu.emit(task)
    task.description = dpu.text()
    d.facts.append(("flying", kind.name, dict(zip(("width", "height", "channels"), size, strict=True))))
    return Plan([task], d.facts)


def _flat_cube(d: Draw) -> Plan:
    return _cube(d, (d.ch.corner("limits.width", 1, 8192), 1, d.ch.integer("limits.channels", 1, 8)))


def _tall_cube(d: Draw) -> Plan:
    return _cube(d, (1, d.ch.corner("limits.height", 1, 8192), d.ch.integer("limits.channels", 1, 8)))


def _many_channels(d: Draw) -> Plan:
    return _cube(d, (1, 1, d.ch.corner("limits.channels", 1, 8192)))


def _long_pool(d: Draw) -> Plan:
    ch = d.ch
    length = ch.corner("limits.length", 1, 8192)
    upright = ch.chance("limits.upright", 0.5)
    size = (length, 1) if upright else (1, length)
    channels = ch.integer("limits.channels", 1, 16)
    if ch.chance("limits.deep", 0.3):
        size, channels = (1, 1), ch.corner("limits.pool_channels", 1, 8192)
    p = Pool(1, (1, 1), (1, 1), (0, 0), (0, 0), size)
    task = Task(("PPU", "PPU_RDMA"))
    surfaces = INT8.surfaces(channels)
    for axis, value in (("WIDTH", size[1]), ("HEIGHT", size[0]), ("CHANNEL", channels)):
        task.put("PPU_RDMA", f"CUBE_IN_{axis}", value - 1)
    span = surfaces * size[0] * size[1] * 16
    task.address("PPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(span, "pool input"))
    task.put("PPU_RDMA", "SRC_LINE_STRIDE", size[1])
    task.put("PPU_RDMA", "SRC_SURF_STRIDE", size[0] * size[1])
    task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=1)
    emit_pool(ch, d.arena, task, INT8, p, (channels, size[0], size[1]), False)
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1)
    task.description = f"pool {channels}x{size[0]}x{size[1]}"
    d.facts.append(("pool max", "int8", {"width": size[1], "height": size[0], "channels": channels}))
    return Plan([task], d.facts)


def _conv(d: Draw, channels: int, kernels: int, height: int, width: int) -> Plan:
    """A 1 x 1 convolution of given sizes with one row or column."""
    ch = d.ch
    c = Conv(INT8, False, 0, height, width, channels, kernels, (1, 1), out=(height, width))
    c.line, c.surface, c.entries = width, width * height, c.row_entries
    c.data_bank = c.data_banks
    c.weight_bank = BANKS - c.data_bank
    size = c.weight_bytes(kernels)
    if c.data_bank > BANKS - 1 or c.entries >= 1 << 15 or c.group_bytes > c.weight_bank * BANK_BYTES:
        raise Refused("too large for CBUF")
    c.data = d.arena.alloc(c.surfaces * c.surface * 16, "features")
    c.weights = d.arena.alloc(size, "weights")
    c.grains, c.spread = ch.corner("limits.grains", 0, 1023), 5000.0 * channels**0.5
    settings = d.dpu_of(c, DpuWish(element="none"))
    return Plan([d.task(c, settings)], d.facts)


def _deep_conv(d: Draw) -> Plan:
    return _conv(
        d, d.ch.corner("limits.channels", 1, 65535 // 32 * 32), d.ch.integer("limits.kernels", 1, 2), 1, 1
    )


def _wide_conv(d: Draw) -> Plan:
    length = d.ch.corner("limits.length", 1, 2047)
    size = (length, 1) if d.ch.chance("limits.upright", 0.5) else (1, length)
    return _conv(d, 16, d.ch.integer("limits.kernels", 1, 32), *size)


def _many_kernels(d: Draw) -> Plan:
    return _conv(d, 16, d.ch.corner("limits.many_kernels", 1, 8192), 1, 1)


def _chain(d: Draw) -> Plan:
    """A task linked to itself, so that only TASK_NUMBER stops it."""
    size = (1, 1, d.ch.integer("limits.channels", 1, 8))
    dpu = draw_dpu(d.ch, d.arena, size, INT32, 1e6, DpuWish(element="none"), flying=True)
    task = Task(("DPU", "DPU_RDMA"))
    dpu.emit(task)
    number = d.ch.pick("limits.tasks", (3, 16, 40, 100, 200))
    task.description = f"{number} times the same task"
    d.facts.append(("chain", "int32", {"tasks": number}))
    return Plan([task], d.facts, number=number, loop=True, delta=False, note="linked to itself")


def registers_draw(d: Draw) -> Plan:
    """A task among writes of registers that it does not need, read back afterwards."""
    plan = d.any_task()
    regs = registers()
    used = {block for task in plan.tasks for block in task.blocks}
    choose = d.ch.integer
    for n in range(choose("registers.count", 1, 24, 1)):
        block = d.ch.pick(
            f"registers.block{n}", ("DDMA", "SDMA", "CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
        )
        names = [r for r in regs[block] if r.writable and (r.shadowed or block in ("DDMA", "SDMA"))]
        register = names[choose(f"registers.register{n}", 0, len(names) - 1)]
        if block in used or register.name == "MAC_GATING":
            continue
        value = d.ch.word(f"registers.value{n}", 32) & register.mask
        plan.writes.append((register.offset, value))
        plan.reads.append(register.offset)
    plan.reads += [
        regs[b][r].offset for b, r in (("PC", "VERSION"), ("PC", "VERSION_NUM"), ("DDMA", "CFG_STATUS"))
    ]
    return plan
