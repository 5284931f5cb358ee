"""Draws of pooling tasks: PPU with PPU_RDMA, or fed by the DPU [HW 9]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rkcosim.spec.types import ATOM, FP16, ElementType
from rkcosim.verify.conformance import values
from rkcosim.verify.conformance.arena import Arena
from rkcosim.verify.conformance.choices import Chooser, Refused
from rkcosim.verify.conformance.dpu import STORAGE, Dpu
from rkcosim.verify.crosscheck.program import Task

METHODS = ("average", "max", "min")


@dataclass
class Pool:
    """Window of a pooling task, each member as (rows, columns); `out` includes trailing padding."""

    method: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    after: tuple[int, int]
    out: tuple[int, int]


def draw_window(ch: Chooser, size: tuple[int, int], large: bool, method: int) -> Pool:
    """Draw a window for an input of `size` rows and columns.

    Raises
    ------
    Refused
        if the window does not fit.
    """
    sides: list[tuple[int, ...]] = []
    square = ch.chance("pool.square", 0.4)
    for axis, name in enumerate("yx"):
        if axis and square:
            k, s, *_ = sides[0]
        else:
            k = ch.corner(f"pool.kernel_{name}", 1, 16) if large else ch.integer(f"pool.kernel_{name}", 1, 4)
            s = ch.corner(f"pool.stride_{name}", 1, 16) if large else ch.integer(f"pool.stride_{name}", 1, 3)
        if ch.chance(f"pool.no_overlap_{name}", 0.2):
            s = k
        p = ch.integer(f"pool.pad_{name}", 0, min(7, k - 1)) if ch.chance(f"pool.padded_{name}", 0.5) else 0
        tailed = ch.chance(f"pool.tailed_{name}", 0.5)
        tail = ch.integer(f"pool.tail_{name}", 0, min(7, k - 1)) if tailed else 0
        if large and ch.chance(f"pool.any_pad_{name}", 0.2):
            p = ch.integer(f"pool.wide_pad_{name}", 0, 7)
        if size[axis] + p + tail < k:
            raise Refused("the pooling window does not fit")
        count = (size[axis] + p + tail - k) // s + 1
        sides.append((k, s, p, min(7, max(0, (count - 1) * s + k - p - size[axis])), count))
    return Pool(method, *zip(*sides, strict=True))


def reciprocal(kind: ElementType, size: int) -> int:
    """Return RECIP_KERNEL for a window side: 16.16 for integers, 1-6-10 float with bias 31 for fp16 (6.3)."""
    if not kind.is_float:
        return round(65536 / size)
    bits = int(np.float16(1.0 / size).view(np.uint16))
    return (bits + (16 << 10)) if size > 1 else 31 << 10


def emit_pool(
    ch: Chooser, arena: Arena, task: Task, kind: ElementType, p: Pool, size: tuple[int, int, int], index: bool
) -> None:
    """Write the PPU's registers for an input of `size` channels, rows and columns."""
    channels, height, width = size
    surfaces = kind.surfaces(channels)
    notch = ch.integer("pool.notch", 0, 3) if ch.chance("pool.notched", 0.3) else 0
    more = ch.integer("pool.gap", 0, 5) if ch.chance("pool.gaps", 0.4) else 0
    surface = (p.out[1] + notch) * p.out[0] + more
    task.set("PPU", POOLING_METHOD=p.method, NOTCH_ADDR=notch, INDEX_EN=int(index))
    for axis, value in (("WIDTH", width), ("HEIGHT", height), ("CHANNEL", channels)):
        task.put("PPU", f"DATA_CUBE_IN_{axis}", value - 1)
    for axis, value in (("WIDTH", p.out[1]), ("HEIGHT", p.out[0]), ("CHANNEL", channels)):
        task.put("PPU", f"DATA_CUBE_OUT_{axis}", value - 1)
    task.set(
        "PPU",
        KERNEL_HEIGHT=p.kernel[0] - 1,
        KERNEL_WIDTH=p.kernel[1] - 1,
        KERNEL_STRIDE_HEIGHT=p.stride[0] - 1,
        KERNEL_STRIDE_WIDTH=p.stride[1] - 1,
    )
    for side, name in enumerate(("HEIGHT", "WIDTH")):
        value = reciprocal(kind, p.kernel[side])
        if ch.chance(f"pool.any_recip_{name}", 0.15 if kind.is_float else 0.06):
            value = ch.word(f"pool.recip_{name}", 17)
        elif ch.chance(f"pool.near_recip_{name}", 0.12):  # a tie that the product misses
            value += ch.pick(f"pool.recip_off_{name}", (-1, 1))
        task.put("PPU", f"RECIP_KERNEL_{name}", value)
    task.set("PPU", PAD_TOP=p.pad[0], PAD_LEFT=p.pad[1], PAD_BOTTOM=p.after[0], PAD_RIGHT=p.after[1])
    _pad_value(ch, task, kind, p.method)
    tensors = 2 if index else 1
    target = arena.alloc(tensors * surfaces * surface * ATOM, "pool output")
    if surfaces > 1 and not index and ch.chance("pool.descending", 0.12):
        target += ATOM * (surfaces - 1) * surface
        surface = -surface
    task.address("PPU", "DST_BASE_ADDR", target)
    far = surfaces == 1 and ch.chance("pool.far_out", 0.15)
    task.set("PPU", DST_SURF_STRIDE=ch.word("pool.far_out_surface", 28) if far else surface)
    add = surfaces * surface if index else surface
    if not index and ch.chance("pool.idle_add", 0.1):
        add = ch.word("pool.index_add", 28)
    task.set("PPU", INDEX_ADD=add, PROC_PRECISION={8: 0, 16: 1}[kind.bits] + kind.is_float, BURST_LEN=3)


def _pad_value(ch: Chooser, task: Task, kind: ElementType, method: int) -> None:
    if kind.is_float:
        typical = (0, 0xFC00, 0x7C00)[method]
        value = values.float_bits(ch, "pool.pad", FP16) if ch.chance("pool.any_pad", 0.4) else typical
        value |= ch.integer("pool.pad_upper", 0, 7) << 16
    else:
        top = 1 << kind.bits - 1
        value = (0, -top, top - 1)[method]
        if ch.chance("pool.any_pad", 0.5):
            value = ch.corner("pool.pad", -top, top - 1, 0)
        if ch.chance("pool.far_pad", 0.1):
            value = ch.corner("pool.pad19", -(1 << 18), (1 << 18) - 1, 0)
        value %= 1 << 19
    if ch.chance("pool.pad_rest", 0.2):  # bits without effect
        value |= ch.integer("pool.pad_more", 0, (1 << 13) - 1) << 19
        task.set("PPU", PAD_VALUE_1=ch.integer("pool.pad_top", 0, 7))
    task.set("PPU", PAD_VALUE_0=value)


def draw_pool(
    ch: Chooser, arena: Arena, kind: ElementType, *, large: bool = False, index: bool = False
) -> Task:
    """Draw one pooling task with PPU_RDMA.

    Raises
    ------
    Refused
        if the window does not fit or the task is too large.
    """
    method = ch.integer("pool.method", 1, 2) if index else ch.integer("pool.method", 0, 2)
    limit = 40 if large else 16
    height, width = ch.integer("pool.height", 1, limit), ch.integer("pool.width", 1, limit)
    channels = ch.integer("pool.channels", 1, 6 * kind.per_atom if not large else 2 * kind.per_atom)
    if large and ch.chance("pool.full_rows", 0.08):  # as many results of open rows as the PPU holds
        height, width, channels = (
            ch.integer("pool.tall", 16, 20),
            128,
            ch.integer("pool.few", 1, kind.per_atom),
        )
        p = Pool(method, (16, 1), (1, 1), (0, 0), (0, 0), (height - 15, width))
    else:
        p = draw_window(ch, (height, width), large, method)
    if p.kernel[0] * p.out[1] > 2048:
        raise Refused("too many open rows")
    if kind.surfaces(channels) * p.out[0] * p.out[1] * p.kernel[0] * p.kernel[1] > 12000:
        raise Refused("too many taps")
    task = Task(("PPU", "PPU_RDMA"))
    surfaces = kind.surfaces(channels)
    line = width + (ch.integer("pool.line_gap", 0, 3) if ch.chance("pool.line_gaps", 0.4) else 0)
    more = ch.integer("pool.surface_gap", 0, 5) if ch.chance("pool.surface_gaps", 0.4) else 0
    surface = line * height + more
    raw = values.elements(ch, "pool", kind, surfaces * surface * kind.per_atom)
    source = arena.place(raw, "pool input")
    if height == 1 and ch.chance("pool.far_lines", 0.3):  # pitches that are not used
        line = ch.word("pool.far_line", 28)
    if surfaces == 1 and ch.chance("pool.far_surfaces", 0.15):
        surface = ch.word("pool.far_surface", 28)
    for axis, value in (("WIDTH", width), ("HEIGHT", height), ("CHANNEL", channels)):
        task.put("PPU_RDMA", f"CUBE_IN_{axis}", value - 1)
    task.address("PPU_RDMA", "SRC_BASE_ADDR", source)
    task.set("PPU_RDMA", SRC_LINE_STRIDE=line, SRC_SURF_STRIDE=surface, IN_PRECISION=STORAGE[kind.bits])
    emit_pool(ch, arena, task, kind, p, (channels, height, width), index)
    task.set("PPU", FLYING_MODE=1)
    task.description = (
        f"{METHODS[method]} pool {kind.name} {channels}x{height}x{width} kernel {p.kernel} stride {p.stride} "
        f"pad {p.pad} out {p.out}{' index' if index else ''}"
    )
    return task


def feed_pool(ch: Chooser, arena: Arena, task: Task, d: Dpu) -> str:
    """Add a PPU fed by the DPU to a task (6.7); return a description."""
    kind = d.out
    method = ch.integer("pool.method", 0, 2)
    p = draw_window(ch, (d.height, d.width), False, method)
    task.blocks = (*task.blocks, "PPU")
    channels = d.surfaces * kind.per_atom
    index = method > 0 and ch.chance("pool.index", 0.2)
    emit_pool(ch, arena, task, kind, p, (channels, d.height, d.width), index)
    task.set("PPU", FLYING_MODE=0, DPU_FLYIN=int(d.flying))
    return f"{METHODS[method]} pool kernel {p.kernel} stride {p.stride} pad {p.pad} out {p.out}"
