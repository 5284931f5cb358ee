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


def draw(d: Draw) -> Plan:
    """One task with an extreme size: every kind in turn, with the greatest size first."""
    kinds = (
        _flat_cube,
        _tall_cube,
        _many_channels,
        _flat_pool,
        _tall_pool,
        _deep_pool,
        _deep_conv,
        _wide_conv,
        _tall_conv,
        _many_kernels,
        _chain,
        _rewritten_amount,
    )
    return kinds[d.index % len(kinds)](d)


def _size(d: Draw, greatest: int) -> int:
    """Draw a size; the first case of a kind takes the greatest."""
    greatest_first = d.index < 12
    return d.ch.corner("limits.size", greatest if greatest_first else 1, greatest)


def _cube(d: Draw, size: tuple[int, int, int]) -> Plan:
    kind = d.any_type((INT8, INT16, FP16))
    dpu = draw_dpu(d.ch, d.arena, size, kind, 100.0, DpuWish(element="none"), flying=True)
    task = Task(("DPU", "DPU_RDMA"))
    dpu.emit(task)
    task.description = dpu.text()
    d.facts.append(("flying", kind.name, dict(zip(("width", "height", "channels"), size, strict=True))))
    return Plan([task], d.facts)


def _flat_cube(d: Draw) -> Plan:
    return _cube(d, (_size(d, 8192), 1, d.ch.integer("limits.channels", 1, 8)))


def _tall_cube(d: Draw) -> Plan:
    return _cube(d, (1, _size(d, 8192), d.ch.integer("limits.channels", 1, 8)))


def _many_channels(d: Draw) -> Plan:
    return _cube(d, (1, 1, _size(d, 8192)))


def _flat_pool(d: Draw) -> Plan:
    """The PPU holds 2048 results of open rows (docs/hardware.md 6.9): a stride makes the rest fit."""
    width = _size(d, 8192)
    return _pool(d, (1, width), 1 if width <= 2048 else d.ch.integer("limits.stride", 4, 16), 16)


def _tall_pool(d: Draw) -> Plan:
    return _pool(d, (_size(d, 8192), 1), 1, 16)


def _deep_pool(d: Draw) -> Plan:
    return _pool(d, (1, 1), 1, _size(d, 8192))


def _pool(d: Draw, size: tuple[int, int], stride: int, channels: int) -> Plan:
    out = (size[0], (size[1] - 1) // stride + 1)
    p = Pool(1, (1, 1), (1, stride), (0, 0), (0, 0), out)
    task = Task(("PPU", "PPU_RDMA"))
    surfaces = INT8.surfaces(channels)
    for axis, value in (("WIDTH", size[1]), ("HEIGHT", size[0]), ("CHANNEL", channels)):
        task.put("PPU_RDMA", f"CUBE_IN_{axis}", value - 1)
    span = surfaces * size[0] * size[1] * 16
    task.address("PPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(span, "pool input"))
    task.put("PPU_RDMA", "SRC_LINE_STRIDE", size[1])
    task.put("PPU_RDMA", "SRC_SURF_STRIDE", size[0] * size[1])
    task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=1)
    emit_pool(d.ch, d.arena, task, INT8, p, (channels, size[0], size[1]), False)
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1)
    task.description = f"pool {channels}x{size[0]}x{size[1]} stride {stride}"
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
    return _conv(d, _size(d, 65535), d.ch.integer("limits.kernels", 1, 2), 1, 1)


def _wide_conv(d: Draw) -> Plan:
    return _conv(d, 16, d.ch.integer("limits.kernels", 1, 32), 1, _size(d, 2047))


def _tall_conv(d: Draw) -> Plan:
    return _conv(d, 16, d.ch.integer("limits.kernels", 1, 32), _size(d, 2047), 1)


def _many_kernels(d: Draw) -> Plan:
    return _conv(d, 16, _size(d, 8192), 1, 1)


def _chain(d: Draw) -> Plan:
    """A task linked to itself, so that only TASK_NUMBER stops it."""
    size = (1, 1, d.ch.integer("limits.channels", 1, 8))
    dpu = draw_dpu(d.ch, d.arena, size, INT32, 1e6, DpuWish(element="none"), flying=True)
    task = Task(("DPU", "DPU_RDMA"))
    dpu.emit(task)
    number = 4095 if d.index < 12 else d.ch.integer("limits.tasks", 2, 64)
    task.description = f"{number} times the same task"
    d.facts.append(("chain", "int32", {"tasks": number}))
    return Plan([task], d.facts, number=number, loop=True, delta=False, note="linked to itself")


def _rewritten_amount(d: Draw) -> Plan:
    """A task whose last words name a list of the greatest size, which nothing starts."""
    plan = d.any_task()
    plan.tail = (0xFFFFFFF0, 0xFFFF)
    return plan
