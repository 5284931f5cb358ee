"""Draws at the limits of fields: the longest cubes, the most channels, long chains, and only registers."""

from __future__ import annotations

from collections.abc import Callable

from rkcosim.spec.types import BANK_BYTES, BANKS, FP16, INT8, INT16, INT32
from rkcosim.verify.conformance.case import Plan
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.conv import Conv
from rkcosim.verify.conformance.draw_pool import Pool, emit_pool
from rkcosim.verify.conformance.draws import PLAIN, Draw
from rkcosim.verify.crosscheck.program import Task


def _size(d: Draw, greatest: int) -> int:
    """Draw a size; the first case of a kind uses the greatest."""
    return d.ch.corner("limits.size", 1 if d.turn else greatest, greatest)


def _cube(d: Draw, size: tuple[int, int, int]) -> Plan:
    kind = d.any_type((INT8, INT16, FP16))
    task, _ = d.flying_task(size, kind, 100.0, PLAIN)
    d.facts.append(("flying", kind.name, dict(zip(("width", "height", "channels"), size, strict=True))))
    return Plan([task], d.facts)


def _flat_pool(d: Draw) -> Plan:
    """The PPU holds 2048 results of open rows [HW 9.9]: a stride makes the rest fit."""
    width = _size(d, 8192)
    return _pool(d, (1, width), 1 if width <= 2048 else d.ch.integer("limits.stride", 4, 16), 16)


def _pool(d: Draw, size: tuple[int, int], stride: int, channels: int) -> Plan:
    out = (size[0], (size[1] - 1) // stride + 1)
    p = Pool(1, (1, 1), (1, stride), (0, 0), (0, 0), out)
    task = Task(("PPU", "PPU_RDMA"))
    surfaces = INT8.surfaces(channels)
    for axis, value in (("WIDTH", size[1]), ("HEIGHT", size[0]), ("CHANNEL", channels)):
        task.put("PPU_RDMA", f"CUBE_IN_{axis}", value - 1)
    span = surfaces * size[0] * size[1] * 16
    task.address("PPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(span, "pool input"))
    task.set("PPU_RDMA", SRC_LINE_STRIDE=size[1], SRC_SURF_STRIDE=size[0] * size[1], IN_PRECISION=1)
    emit_pool(d.ch, d.arena, task, INT8, p, (channels, size[0], size[1]), False)
    task.set("PPU", FLYING_MODE=1)
    task.description = f"pool {channels}x{size[0]}x{size[1]} stride {stride}"
    d.facts.append(("pool max", "int8", {"width": size[1], "height": size[0], "channels": channels}))
    return Plan([task], d.facts)


def _conv(d: Draw, channels: int, kernels: int, height: int, width: int) -> Plan:
    """Draw a 1 x 1 convolution of given sizes with one row or column."""
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
    return Plan([d.task(c, d.dpu_of(c, PLAIN))], d.facts)


def _chain(d: Draw) -> Plan:
    """Draw a task linked to itself, so that only TASK_NUMBER stops it."""
    size = (1, 1, d.ch.integer("limits.channels", 1, 8))
    task, _ = d.flying_task(size, INT32, 1e6, PLAIN)
    number = d.ch.integer("limits.tasks", 2, 64) if d.turn else 4095
    task.description = f"{number} times the same task"
    d.facts.append(("chain", "int32", {"tasks": number}))
    return Plan([task], d.facts, number=number, loop=True, delta=False, note="linked to itself")


def _rewritten_amount(d: Draw) -> Plan:
    """Draw a task whose last words link to a list of the greatest size, which nothing starts."""
    plan = d.any_task()
    plan.tail = (0xFFFFFFF0, 0xFFFF)
    return plan


def _small(d: Draw, name: str, most: int) -> int:
    return d.ch.integer(f"limits.{name}", 1, most)


_KINDS: tuple[Callable[[Draw], Plan], ...] = (
    lambda d: _cube(d, (_size(d, 8192), 1, _small(d, "channels", 8))),
    lambda d: _cube(d, (1, _size(d, 8192), _small(d, "channels", 8))),
    lambda d: _cube(d, (1, 1, _size(d, 8192))),
    _flat_pool,
    lambda d: _pool(d, (_size(d, 8192), 1), 1, 16),
    lambda d: _pool(d, (1, 1), 1, _size(d, 8192)),
    lambda d: _conv(d, _size(d, 65535), _small(d, "kernels", 2), 1, 1),
    lambda d: _conv(d, 16, _small(d, "kernels", 32), 1, _size(d, 2047)),
    lambda d: _conv(d, 16, _small(d, "kernels", 32), _size(d, 2047), 1),
    lambda d: _conv(d, 16, _size(d, 8192), 1, 1),
    _chain,
    _rewritten_amount,
)


def draw(d: Draw) -> Plan:
    """Draw one task with an extreme size: every kind in turn, with the greatest size first."""
    d.turn, kind = divmod(d.index, len(_KINDS))
    return _KINDS[kind](d)
