"""Draws of the DPU writer's outputs other than surfaces: packets, unpooled rows, sizes that hang."""

from __future__ import annotations

from rkcosim.spec.types import (
    ATOM,
    ELEMENT_BITS,
    FP16,
    INT4,
    INT8,
    INT16,
    INT32,
    LANES,
    MAXIMUM,
    PACKET,
    STRIPE,
)
from rkcosim.verify.conformance import values
from rkcosim.verify.conformance.case import Plan
from rkcosim.verify.conformance.choices import Chooser, Refused
from rkcosim.verify.conformance.dpu import Dpu, dpu_blocks, size_e
from rkcosim.verify.conformance.draw_conv import ConvWish
from rkcosim.verify.conformance.draw_dpu import DpuWish, place_operand
from rkcosim.verify.conformance.draws import PLAIN, Draw, endless
from rkcosim.verify.crosscheck.program import Task

KEPT, WIDE, NARROW = range(3)
"""Forms of packets: unchanged, of 16-bit elements, of bytes."""


def _split(ch: Chooser, count: int) -> tuple[int, int, int]:
    """Draw sizes of WDMA (surfaces, height, width) for `count` packets."""

    def factor(label: str, rest: int) -> int:
        options = [n for n in range(1, min(rest, 64) + 1) if rest % n == 0]
        return ch.pick(label, options)

    width = factor("packets.width", count)
    height = factor("packets.height", count // width)
    surfaces = count // width // height
    if surfaces > 2048 or height > 8192:
        raise Refused("sizes of WDMA beyond their fields")
    return surfaces, height, width


def _packets(d: Draw, task: Task, form: int, count: int) -> None:
    """Let a task write its data as `count` packets."""
    ch = d.ch
    sizes = _split(ch, count)
    joined = sizes[2] == 1 and ch.chance("packets.joined", 0.6)
    apart = 1 if joined else sizes[2] + ch.integer("packets.gap", 0, 3)
    line = PACKET * apart + ch.integer("packets.notch", 0, 5)
    jump = line * sizes[1] + ch.integer("packets.more", 0, 9)
    if ch.chance("packets.planes", 0.4):  # each atom of a packet in a separate plane
        line = sizes[2] + ch.integer("packets.notch", 0, 5)
        jump = line * sizes[1] + ch.integer("packets.more", 0, 9)
        apart = jump * sizes[0] + ch.integer("packets.gap", 0, 9)
    span = jump * sizes[0] + PACKET * apart + line
    if span * ATOM > 1 << 17:
        raise Refused("packets too far apart")
    task.set("DPU", TP_EN=int(form == KEPT), OUTPUT_MODE=2)
    task.set("DPU", TP_ORG_EN=int(form != KEPT), **size_e(7))
    task.set("DPU", TP_PRECISION=int(form != NARROW), SIZE_C_WDMA=sizes[0] - 1)
    task.set("DPU", HEIGHT_WDMA=sizes[1] - 1, WIDTH_WDMA=sizes[2] - 1)
    notch = line - sizes[2]
    task.set("DPU", NOTCH_ADDR_0=notch, NOTCH_ADDR_1=notch, SURF_ADD=jump, DST_SURF_STRIDE=apart)
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(span * ATOM, "packets"))
    if form != KEPT and ch.chance("packets.length", 0.3):
        task.set("DPU", SURF_LEN=ch.word("packets.surf_len", 16))
    task.description += f"; packets {('kept', '16 bit', '8 bit')[form]} {sizes}"


def _flying(d: Draw, form: int) -> tuple[Task, int]:
    """Draw a task of int16 whose atoms make whole blocks, and its packets."""
    ch, block = d.ch, 16 if form == NARROW else PACKET
    pixels = block * ch.integer("packets.blocks", 1, 8)
    channels = ch.integer("packets.channels", 1, 44)
    if ch.chance("packets.across", 0.4):  # blocks run across surfaces
        surfaces = ch.integer("packets.surfaces", 1, 16)
        fits = [n for n in range(1, 129) if n * surfaces % block == 0 and n * surfaces <= 400]
        if not fits:
            raise Refused("too many atoms")
        pixels = ch.pick("packets.pixels", fits)
        channels = 8 * surfaces - ch.integer("packets.less", 0, 7)
    width = ch.pick("packets.columns", [n for n in range(1, pixels + 1) if pixels % n == 0])
    wish = DpuWish(out=(INT16,), element="none")
    size = (width, pixels // width, channels)
    task, _ = d.flying_task(size, INT16, 2.0**14.5, wish)
    d.facts.append(("packets, flying", "int16", {"width": width, "channels": channels}))
    return task, INT16.surfaces(channels) * pixels // PACKET


def _pixels(task: Task) -> int:
    """Return the pixels of the DPU's cube."""
    return (task.get("DPU", "WIDTH") + 1) * (task.get("DPU", "HEIGHT") + 1)


def packets(d: Draw) -> Plan:
    """Draw TP_EN or TP_ORG_EN with data from memory (4.11)."""
    form = d.ch.integer("packets.form", KEPT, NARROW)
    task, count = _flying(d, form)
    _packets(d, task, form, count)
    return Plan([task], d.facts)


def products(d: Draw) -> Plan:
    """Draw TP_ORG_EN with int16 or fp16 convolutions (4.11)."""
    half = d.ch.chance("packets.half", 0.4)
    form = WIDE if half else d.ch.integer("packets.form", WIDE, NARROW)
    kind, out = (FP16, FP16) if half else (INT16, INT32)
    plan = d.conv(ConvWish(kind, budget=800), DpuWish(out=(out,), element="none"))
    task = plan.task
    pixels, channels, each = _pixels(task), task.get("DPU", "CHANNEL") + 1, 2 if half else 4
    if channels % 16 or pixels * each % (16 if form == NARROW else PACKET):
        raise Refused("no whole groups, or no whole blocks")
    if half and task.get("DPU", "PROC_PRECISION") != FP16.dpu_code:
        raise Refused("the DPU works in another type")
    _packets(d, task, form, channels * each // 16 * pixels // PACKET)
    d.facts.append(("packets of a convolution", kind.name, {"channels": channels}))
    return plan


def maximum(d: Draw) -> Plan:
    """Draw the maximum over the channels of each pixel, and forms that are not known (7.16)."""
    ch = d.ch
    width = ch.corner("maximum.width", 1, 128)
    wish = DpuWish(out=(FP16,), element="none")
    size = (width, 1, ch.integer("maximum.channels", 1, 100))
    task, settings = d.flying_task(size, FP16, 1.0, wish)
    if settings.alternate or settings.proc != FP16.dpu_code:
        raise Refused("two readers, or another type")
    for stage in ("BS", "BN"):
        task.set("DPU", **{f"{stage}_BYPASS": 1})
    task.set("DPU", MINMAX_CTL=MAXIMUM, NONALIGN=1, SURF_LEN=-(-width // LANES), FP32TOFP16_EN=0)
    task.set("DPU_RDMA", MRDMA_FP16TOFP32_EN=int(ch.chance("maximum.widened", 0.1)))
    if ch.chance("maximum.apart", 0.7):  # nothing looks at these
        task.set("DPU", DST_SURF_STRIDE=0, SURF_ADD=0)
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(STRIPE * ATOM, "maxima"))
    task.description += "; maximum over the channels"
    d.facts.append(("maximum over channels", "fp16", {"width": width, "channels": settings.channels}))
    return Plan([task], d.facts)


def other_maxima(d: Draw) -> Plan:
    """Draw settings that are like those of a maximum over channels but for one, which have no effect."""
    plan = maximum(d)
    task, kind = plan.task, d.turn % 4
    if kind == 0:
        task.set("DPU", MINMAX_CTL=d.ch.integer("maximum.code", 1, 6))
    elif kind == 1:
        task.set("DPU", NONALIGN=0)
    elif kind == 2:
        task.set("DPU", SURF_LEN=task.get("DPU", "SURF_LEN") + d.ch.integer("maximum.more", 1, 9))
    else:
        task.set("DPU", FP32TOFP16_EN=1)
    pitch = task.get("DPU", "WIDTH") + 1 + d.ch.integer("maximum.pitch", 0, 3)
    task.set("DPU", DST_SURF_STRIDE=pitch, SURF_ADD=pitch, NOTCH_ADDR_0=0, NOTCH_ADDR_1=0)
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(14 * pitch * ATOM, "surfaces"))
    return plan


def other_rows(d: Draw) -> Plan:
    """Draw a cube in memory whose rows are longer or shorter than those of the DPU's cube (8.1)."""
    ch, kind = d.ch, d.any_type((INT8, INT16, FP16, INT32, INT4))
    pixels = ch.integer("rows.pixels", 2, 120)
    sizes = [(n, pixels // n) for n in range(1, pixels + 1) if pixels % n == 0]
    (width, height), (columns, rows) = ch.pick("rows.of_dpu", sizes), ch.pick("rows.of_rdma", sizes)
    channels = ch.integer("rows.channels", 1, 3 * kind.flying_group)
    spread = 1.0 if kind.is_float else 2.0 ** (kind.bits - 1.5)
    wish = DpuWish(element="none")
    task, settings = d.flying_task((width, height, channels), kind, spread, wish)
    if settings.alternate:
        raise Refused("two readers")
    main = place_operand(ch, d.arena, settings, "MRDMA input", kind, columns, rows)
    notch = (main.surface - main.line * (rows - 1) - columns) % (1 << 28)
    task.set("DPU_RDMA", WIDTH=columns - 1, HEIGHT=rows - 1)
    task.set("DPU_RDMA", LINE_NOTCH_ADDR=main.line - columns, SURF_NOTCH_ADDR=notch)
    task.address("DPU_RDMA", "SRC_BASE_ADDR", main.address)
    task.description += f"; from {rows} rows of {columns}"
    d.facts.append(("flying, other rows", kind.name, {"width": width, "columns": columns}))
    return Plan([task], d.facts)


def unpooling(d: Draw) -> Plan:
    """Draw repeated rows and columns of a cube (5.7)."""
    return Plan([_unpooled(d)], d.facts)


def _unpooled(d: Draw) -> Task:
    ch = d.ch
    rows, times = (ch.corner(f"unpool.{name}", 1, 8, 2) for name in ("rows", "columns"))
    width, height = ch.integer("unpool.width", 1, 11), ch.integer("unpool.height", 1, 7)
    surfaces = ch.integer("unpool.surfaces", 1, 3)
    out = ch.pick("unpool.out", (INT8, FP16, INT16, INT4))
    wide, part = width * times, ch.integer("unpool.part", 0, out.per_atom - 1)
    s = Dpu(wide, height, surfaces * out.per_atom - part, INT16, out, flying=True, rdma=True)
    s.proc, s.size_e, s.orig = ch.integer("unpool.proc", 0, 6), rows - 1, s.channels
    for stage in ("BS", "BN", "EW"):
        s.set("DPU", **{f"{stage}_BYPASS": 1})
    s.set("DPU", OUT_CVT_SCALE=ch.word("unpool.scale", 16), OFFSET_PEND=ch.word("unpool.pend", 16))
    line = wide + ch.integer("unpool.gap", 0, 3)
    s.notch = line * rows - wide  # the copies lie between the rows
    if ch.chance("unpool.planes", 0.3):  # or after them
        s.notch = line - wide
        s.surface = line * height + ch.integer("unpool.more", 0, 5)
    else:
        s.surface = line
    s.surface_add = line * rows * height + 8 * ch.integer("unpool.apart", 0, 5) + 5 * rows
    s.address = d.arena.alloc((s.surface_add * surfaces + s.surface) * ATOM, "unpooled")
    task = Task(("DPU", "DPU_RDMA"))
    s.emit(task)
    source = Dpu(width, height, 8 * surfaces - ch.integer("unpool.less", 0, 7), INT16, INT16)
    main = place_operand(ch, d.arena, source, "MRDMA input", INT16, width, height)
    task.address("DPU_RDMA", "SRC_BASE_ADDR", main.address)
    notch = main.surface - main.line * (height - 1) - width
    task.set("DPU_RDMA", MRDMA_DISABLE=0, SURF_NOTCH_ADDR=notch % (1 << 28))
    task.set("DPU_RDMA", KERNEL_HEIGHT=rows - 1, KERNEL_STRIDE_HEIGHT=rows - 1, UNPOOLING_EN=1)
    task.set("DPU_RDMA", KERNEL_WIDTH=times - 1, KERNEL_STRIDE_WIDTH=times - 1)
    task.set("DPU_RDMA", LINE_NOTCH_ADDR=main.line - width, WIDTH=width - 1, CHANNEL=source.channels - 1)
    task.description = f"{s.text()} from {width} columns, {rows} x {times}"
    d.facts.append(("unpooling", out.name, {"rows": rows, "columns": times, "width": width}))
    return task


# -- hangs -------------------------------------------------------------------------------------------


HANGS = endless()


def _other_size_e(d: Draw, label: str, task: Task) -> str:
    """Draw another SIZE_E; return a note."""
    now = task.get("DPU", "SIZE_E_1")
    value = (now + d.ch.integer(label, 1, 7)) % 8
    task.set("DPU", **size_e(value))
    return f"SIZE_E {value} for {now}"


@HANGS.draws
def _wrong_group(d: Draw) -> Plan:
    """Draw a number of surfaces other than the kernel group's; only a part is written."""
    depthwise = d.ch.chance("writer.depthwise", 0.2)
    kind = d.any_type((INT8, FP16, INT16) if depthwise else (INT8, FP16, INT16, INT4))
    plan = d.conv(ConvWish(kind, depthwise=depthwise, budget=600), PLAIN)
    task = plan.task
    group = 64 if kind is INT4 or (depthwise and kind is INT8) else 32 if kind is INT8 or depthwise else 16
    surfaces = group * ELEMENT_BITS[task.get("DPU", "OUT_PRECISION")] // 128
    if surfaces > 8 and task.get("DPU", "OD_BYPASS"):
        raise Refused("SIZE_E is not looked at")
    plan.note, plan.written = _other_size_e(d, "writer.size_e", task), True
    return plan


@HANGS.draws
def _open_group(d: Draw) -> Plan:
    """Draw an active converter and a cube that ends inside a kernel group, which is not written."""
    depthwise = d.ch.chance("writer.depthwise", 0.3)
    plan = d.conv(ConvWish(INT8, depthwise=depthwise, budget=600), DpuWish(out=(INT8,), element="none"))
    task = plan.task
    if task.get("DPU", "OD_BYPASS"):
        raise Refused("the converter is bypassed")
    last = task.get("DPU", "CHANNEL") - 16 * d.ch.integer("writer.less", 1, 3 if depthwise else 1)
    if last < 0:
        raise Refused("no channels")
    for block in dpu_blocks(task):
        task.set(block, CHANNEL=last)
    task.set("DPU", ORIG_CHANNEL=min(task.get("DPU", "ORIG_CHANNEL"), last), CHANNEL_WDMA=last)
    plan.note, plan.written = "half a kernel group", True
    return plan


@HANGS.draws
def _few_packets(d: Draw) -> Plan:
    """Draw fewer packets than the sizes of WDMA give, or atoms that make no whole blocks."""
    form = d.ch.integer("packets.form", KEPT, NARROW)
    task, count = _flying(d, form)
    _packets(d, task, form, count)
    if d.ch.chance("writer.misaligned", 0.4):
        for block in ("DPU", "DPU_RDMA"):
            task.set(block, HEIGHT=0, WIDTH=8 * d.ch.integer("writer.eights", 0, 3) + 2)
        if not (task.get("DPU", "WIDTH") + 1) * (task.get("DPU", "CHANNEL") // 8 + 1) % 8:
            raise Refused("whole blocks")
        task.set("DPU_RDMA", LINE_NOTCH_ADDR=0, SURF_NOTCH_ADDR=0)
        task.address("DPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(1 << 14, "input"))
        return Plan([task], note="no whole blocks", written=True)
    task.set("DPU", SIZE_C_WDMA=task.get("DPU", "SIZE_C_WDMA") + d.ch.integer("writer.more", 1, 3))
    return Plan([task], note="too few packets", written=True)


@HANGS.draws
def _copies(d: Draw) -> Plan:
    task = _unpooled(d)
    note = _other_size_e(d, "writer.copies", task)
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "unpooled"))
    return Plan([task], note=f"{note} of the copies")


HANGS.draws(_wrong_group)


# -- contradictions ----------------------------------------------------------------------------------


def settings_packets(d: Draw) -> Plan:
    """Draw more packets than WDMA gives, fewer atoms per packet, the PPU too, or types without packets."""
    form = d.ch.integer("packets.form", KEPT, NARROW)
    task, count = _flying(d, form)
    kind = d.ch.integer("settings.packets", 0, 4)
    _packets(d, task, form, count)
    if kind == 0 and count > 1:
        surfaces = task.get("DPU", "SIZE_C_WDMA")
        if not surfaces:
            raise Refused("one surface")
        task.set("DPU", SIZE_C_WDMA=surfaces - 1)
    elif kind == 1:
        if _pixels(task) >= 16:
            raise Refused("it hangs")
        task.set("DPU", **size_e(d.ch.integer("settings.size_e", 0, 6)))
    elif kind == 2:
        task.set("DPU", OUTPUT_MODE=3)
    elif kind == 3:
        task.set("DPU", TP_EN=1, TP_ORG_EN=1)
        if form == KEPT:
            raise Refused("the form is given twice")
    else:
        out = d.ch.pick("settings.out", (0, 4, 6))
        task.set("DPU", OUT_PRECISION=out, **size_e(1 if out == INT32.dpu_code else 0))
        task.set("DPU", CHANNEL_WDMA=2 * task.get("DPU", "CHANNEL") + 1)  # not fewer than are made
        task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "surfaces") + (1 << 15))
        task.set("DPU", DST_SURF_STRIDE=70, SURF_ADD=600, NOTCH_ADDR_0=0, NOTCH_ADDR_1=0)
    return Plan([task])


def settings_unpooling(d: Draw) -> Plan:
    """Draw unpooling in which the DPU processes the data or makes 32-bit elements, or feeds the PPU too."""
    task = _unpooled(d)
    kind = d.turn % 3
    if kind == 0:
        task.set("DPU", OUTPUT_MODE=3)
        return Plan([task])
    task.set("DPU", OUT_PRECISION=1, PROC_PRECISION=d.ch.pick("settings.proc", (0, 1, 4)))
    channels = task.get("DPU_RDMA", "CHANNEL")
    task.set("DPU", CHANNEL=channels, ORIG_CHANNEL=channels, CHANNEL_WDMA=channels)
    if kind == 1:
        task.set("DPU", OUT_PRECISION=INT32.dpu_code, OUT_CVT_SCALE=1)
        task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "unpooled"))
        return Plan([task])
    task.set("DPU", BS_BYPASS=0, BS_MUL_BYPASS=1, BS_ALU_ALGO=2, BS_RELU_BYPASS=1)
    operand = values.elements(d.ch, "addend", INT16, 8).view("<i2")[0]
    task.set("DPU", BS_ALU_OPERAND=int(operand) % (1 << 32), OUT_CVT_SCALE=1)
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "unpooled"))
    return Plan([task])
