"""Draws of what the DPU's writer makes beside surfaces: packets, unpooled rows, sizes that hang."""

from __future__ import annotations

from collections.abc import Callable

from cosim.conformance import values
from cosim.conformance.case import Plan
from cosim.conformance.choices import Chooser, Refused
from cosim.conformance.dpu import Dpu
from cosim.conformance.draw_conv import ConvWish
from cosim.conformance.draw_dpu import DpuWish, draw_dpu, place_operand
from cosim.conformance.draws import Draw
from cosim.conformance.types import ATOM, FP16, INT4, INT8, INT16, INT32
from cosim.crosscheck.program import Task
from cosim.golden.task.rdma import ELEMENT_BITS

PACKET = 8
"""Atoms of a packet."""
KEPT, WIDE, NARROW = range(3)
"""Packets as they are, of 16-bit elements, of bytes."""


def _split(ch: Chooser, count: int) -> tuple[int, int, int]:
    """Sizes of WDMA (surfaces, height, width) that name `count` packets."""

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
    if ch.chance("packets.planes", 0.4):  # each atom of a packet in a plane of its own
        line = sizes[2] + ch.integer("packets.notch", 0, 5)
        jump = line * sizes[1] + ch.integer("packets.more", 0, 9)
        apart = jump * sizes[0] + ch.integer("packets.gap", 0, 9)
    span = jump * sizes[0] + PACKET * apart + line
    if span * ATOM > 1 << 17:
        raise Refused("packets too far apart")
    task.set("DPU", "FEATURE_MODE_CFG", TP_EN=int(form == KEPT), OUTPUT_MODE=2)
    task.set("DPU", "BS_OW_CFG", TP_ORG_EN=int(form != KEPT), SIZE_E_0=7, SIZE_E_1=7, SIZE_E_2=7)
    task.set("DPU", "WDMA_SIZE_0", TP_PRECISION=int(form != NARROW), SIZE_C_WDMA=sizes[0] - 1)
    task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=sizes[1] - 1, WIDTH_WDMA=sizes[2] - 1)
    notch = line - sizes[2]
    task.set("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=notch, NOTCH_ADDR_1=notch)
    task.set("DPU", "SURFACE_ADD", SURF_ADD=jump)
    task.put("DPU", "DST_SURF_STRIDE", apart)
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(span * ATOM, "packets"))
    if form != KEPT and ch.chance("packets.length", 0.3):
        task.set("DPU", "FEATURE_MODE_CFG", SURF_LEN=ch.word("packets.surf_len", 16))
    task.description += f"; packets {('kept', '16 bit', '8 bit')[form]} {sizes}"


def _flying(d: Draw, form: int) -> tuple[Task, int]:
    """A task of int16 whose surfaces make whole blocks, and its packets."""
    ch, block = d.ch, 16 if form == NARROW else PACKET
    pixels = block * ch.integer("packets.blocks", 1, 8)
    width = ch.pick("packets.columns", [n for n in range(1, pixels + 1) if pixels % n == 0])
    channels = ch.integer("packets.channels", 1, 44)
    wish = DpuWish(out=(INT16,), element="none")
    size = (width, pixels // width, channels)
    dpu = draw_dpu(ch, d.arena, size, INT16, 2.0**14.5, wish, flying=True)
    task = Task(("DPU", "DPU_RDMA"))
    dpu.emit(task)
    task.description = dpu.text()
    d.facts.append(("packets, flying", "int16", {"width": width, "channels": channels}))
    return task, INT16.surfaces(channels) * pixels // PACKET


def packets(d: Draw) -> Plan:
    """TP_EN or TP_ORG_EN of data from memory (4.11)."""
    form = d.ch.integer("packets.form", KEPT, NARROW)
    task, count = _flying(d, form)
    _packets(d, task, form, count)
    return Plan([task], d.facts)


def products(d: Draw) -> Plan:
    """TP_ORG_EN of int16 convolutions (4.11)."""
    form = d.ch.integer("packets.form", WIDE, NARROW)
    plan = d.conv(ConvWish(INT16, budget=800), DpuWish(out=(INT32,), element="none"))
    task = plan.tasks[0]
    pixels = 1
    for axis in ("WIDTH", "HEIGHT"):
        pixels *= task.fields["DPU", f"DATA_CUBE_{axis}"][axis] + 1
    channels = task.fields["DPU", "DATA_CUBE_CHANNEL"]["CHANNEL"] + 1
    if channels % 16 or pixels * 4 % (16 if form == NARROW else PACKET):
        raise Refused("no whole groups, or no whole blocks")
    _packets(d, task, form, channels // 4 * pixels // PACKET)
    d.facts.append(("packets of a convolution", "int16", {"channels": channels}))
    return plan


def unpooling(d: Draw) -> Plan:
    """Rows and columns of a cube repeated (5.7)."""
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
        s.set("DPU", f"{stage}_CFG", **{f"{stage}_BYPASS": 1})
    s.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=ch.word("unpool.scale", 16))
    s.set("DPU", "OFFSET_PEND", OFFSET_PEND=ch.word("unpool.pend", 16))
    line = wide + ch.integer("unpool.gap", 0, 3)
    s.notch = line * rows - wide  # the copies lie between the rows
    if ch.chance("unpool.planes", 0.3):  # or behind them
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
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_DISABLE=0)
    task.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=notch % (1 << 28))
    kernel = {"KERNEL_HEIGHT": rows - 1, "KERNEL_WIDTH": times - 1}
    strides = {f"KERNEL_STRIDE_{name[7:]}": value for name, value in kernel.items()}
    gap = main.line - width
    task.set("DPU_RDMA", "SRC_DMA_CFG", LINE_NOTCH_ADDR=gap, UNPOOLING_EN=1, **kernel, **strides)
    task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=source.channels - 1)
    task.description = f"{s.text()} from {width} columns, {rows} x {times}"
    d.facts.append(("unpooling", out.name, {"rows": rows, "columns": times, "width": width}))
    return task


# -- hangs -------------------------------------------------------------------------------------------


def _size_e(d: Draw) -> Plan:
    """A number of surfaces that is not the kernel group's; a part is written."""
    depthwise = d.ch.chance("writer.depthwise", 0.2)
    kind = d.any_type((INT8, FP16, INT16) if depthwise else (INT8, FP16, INT16, INT4))
    plan = d.conv(ConvWish(kind, depthwise=depthwise, budget=600), DpuWish(element="none"))
    task = plan.tasks[0]
    group = 64 if kind is INT4 or (depthwise and kind is INT8) else 32 if kind is INT8 or depthwise else 16
    surfaces = group * ELEMENT_BITS[task.fields["DPU", "DATA_FORMAT"]["OUT_PRECISION"]] // 128
    if surfaces > 8 and task.fields["DPU", "BS_OW_CFG"]["OD_BYPASS"]:
        raise Refused("SIZE_E is not looked at")
    now = task.fields["DPU", "BS_OW_CFG"]["SIZE_E_1"]
    value = (now + d.ch.integer("writer.size_e", 1, 7)) % 8
    task.set("DPU", "BS_OW_CFG", SIZE_E_0=value, SIZE_E_1=value, SIZE_E_2=value)
    plan.note = f"SIZE_E {value} for {now}"
    return plan


def _open_group(d: Draw) -> Plan:
    """A live converter and a cube that ends inside a kernel group, whose surfaces stay unwritten."""
    depthwise = d.ch.chance("writer.depthwise", 0.3)
    plan = d.conv(ConvWish(INT8, depthwise=depthwise, budget=600), DpuWish(out=(INT8,), element="none"))
    task = plan.tasks[0]
    if task.fields["DPU", "BS_OW_CFG"]["OD_BYPASS"]:
        raise Refused("the converter is bypassed")
    cube = task.fields["DPU", "DATA_CUBE_CHANNEL"]
    cube["CHANNEL"] -= 16 * d.ch.integer("writer.less", 1, 3 if depthwise else 1)
    if cube["CHANNEL"] < 0:
        raise Refused("no channels")
    cube["ORIG_CHANNEL"] = min(cube["ORIG_CHANNEL"], cube["CHANNEL"])
    task.fields["DPU", "WDMA_SIZE_0"]["CHANNEL_WDMA"] = cube["CHANNEL"]
    if "DPU_RDMA" in task.blocks:
        task.fields["DPU_RDMA", "DATA_CUBE_CHANNEL"]["CHANNEL"] = cube["CHANNEL"]
    plan.note = "half a kernel group"
    return plan


def _few_packets(d: Draw) -> Plan:
    """Fewer packets than the sizes of WDMA name, or atoms that make no blocks."""
    form = d.ch.integer("packets.form", KEPT, NARROW)
    task, count = _flying(d, form)
    _packets(d, task, form, count)
    if d.ch.chance("writer.misaligned", 0.4):
        for block in ("DPU", "DPU_RDMA"):
            task.fields[block, "DATA_CUBE_HEIGHT"]["HEIGHT"] = 0
            task.fields[block, "DATA_CUBE_WIDTH"]["WIDTH"] = 8 * d.ch.integer("writer.eights", 0, 3) + 2
        if ("DPU_RDMA", "SRC_DMA_CFG") in task.fields:
            task.fields["DPU_RDMA", "SRC_DMA_CFG"]["LINE_NOTCH_ADDR"] = 0
        task.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=0)
        task.address("DPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(1 << 14, "input"))
        return Plan([task], note="no whole blocks")
    task.fields["DPU", "WDMA_SIZE_0"]["SIZE_C_WDMA"] += d.ch.integer("writer.more", 1, 3)
    return Plan([task], note="too few packets")


def _copies(d: Draw) -> Plan:
    task = _unpooled(d)
    now = task.fields["DPU", "BS_OW_CFG"]["SIZE_E_1"]
    value = (now + d.ch.integer("writer.copies", 1, 7)) % 8
    task.set("DPU", "BS_OW_CFG", SIZE_E_0=value, SIZE_E_1=value, SIZE_E_2=value)
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "unpooled"))
    return Plan([task], note=f"SIZE_E {value} for {now + 1} copies")


HANGS: tuple[Callable[[Draw], Plan], ...] = (_size_e, _open_group, _few_packets, _copies, _size_e)


# -- contradictions ----------------------------------------------------------------------------------


def settings_packets(d: Draw) -> Plan:
    """More packets than named, fewer atoms of each, the PPU besides, or types that make none."""
    form = d.ch.integer("packets.form", KEPT, NARROW)
    task, count = _flying(d, form)
    kind = d.ch.integer("settings.packets", 0, 4)
    if kind == 0 and count > 1:
        _packets(d, task, form, count)
        wdma = task.fields["DPU", "WDMA_SIZE_0"]
        if not wdma["SIZE_C_WDMA"]:
            raise Refused("one surface")
        wdma["SIZE_C_WDMA"] -= 1
        return Plan([task])
    _packets(d, task, form, count)
    if kind == 1:
        pixels = 1
        for axis in ("WIDTH", "HEIGHT"):
            pixels *= task.fields["DPU", f"DATA_CUBE_{axis}"][axis] + 1
        if pixels >= 16:
            raise Refused("it hangs")
        value = d.ch.integer("settings.size_e", 0, 6)
        task.set("DPU", "BS_OW_CFG", SIZE_E_0=value, SIZE_E_1=value, SIZE_E_2=value)
    elif kind == 2:
        task.set("DPU", "FEATURE_MODE_CFG", OUTPUT_MODE=3)
    elif kind == 3:
        task.set("DPU", "FEATURE_MODE_CFG", TP_EN=1)
        task.set("DPU", "BS_OW_CFG", TP_ORG_EN=1)
        if form == KEPT:
            raise Refused("the form is given twice")
    else:
        task.set("DPU", "DATA_FORMAT", OUT_PRECISION=d.ch.pick("settings.out", (0, 4, 6)))
        task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "surfaces") + (1 << 15))
        task.put("DPU", "DST_SURF_STRIDE", 70)
        task.set("DPU", "SURFACE_ADD", SURF_ADD=600)
        task.set("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=0, NOTCH_ADDR_1=0)
    return Plan([task])


def settings_unpooling(d: Draw) -> Plan:
    """Unpooling in which the DPU works on the data, or feeds the PPU too."""
    task = _unpooled(d)
    if d.ch.chance("settings.both", 0.4):
        task.set("DPU", "FEATURE_MODE_CFG", OUTPUT_MODE=3)
        return Plan([task])
    task.set("DPU", "DATA_FORMAT", OUT_PRECISION=1, PROC_PRECISION=d.ch.pick("settings.proc", (0, 1, 4)))
    channels = task.fields["DPU_RDMA", "DATA_CUBE_CHANNEL"]["CHANNEL"]
    task.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=channels, ORIG_CHANNEL=channels)
    task.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=channels)
    task.set("DPU", "BS_CFG", BS_BYPASS=0, BS_MUL_BYPASS=1, BS_ALU_ALGO=2, BS_RELU_BYPASS=1)
    operand = values.elements(d.ch, "addend", INT16, 8).view("<i2")[0]
    task.set("DPU", "BS_ALU_CFG", BS_ALU_OPERAND=int(operand) % (1 << 32))
    task.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1)
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "unpooled"))
    return Plan([task])
