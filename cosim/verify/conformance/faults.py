"""Faulty kicks: tasks that never end, addresses that are not mapped, malformed lists."""

from __future__ import annotations

from rkcosim.golden.task.rules_conv import SIZES
from rkcosim.regcmd import pack_word, register_word
from rkcosim.spec.layouts import depthwise_bytes
from rkcosim.spec.regs import registers
from rkcosim.spec.types import ALTERNATE, BF16, DEPTHWISE, FP16, FP32, INT8, INT16, INT32
from rkcosim.verify.conformance.arena import UNMAPPED
from rkcosim.verify.conformance.case import (
    CLEAR,
    PING_PONG,
    Plan,
    enable_write,
    pointer_write,
    register_writes,
)
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.dpu import dpu_blocks, in_floats, size_e
from rkcosim.verify.conformance.draw_dpu import DpuWish
from rkcosim.verify.conformance.draws import COMMON, PLAIN, Draw, conv_of, endless, fly, small_conv

SMALL = (INT8, FP16, INT16)


def _fed(d: Draw) -> Plan:
    """Draw a flying task that feeds the PPU."""
    kind = d.any_type(COMMON)
    return d.flying(kind, DpuWish(out=(kind,), to_ppu=True, element="none"))


def _either_half(d: Draw) -> Plan:
    """Draw a convolution of fp16 or a flying task of fp16 or fp32, with an operand in memory."""
    wish = DpuWish(element="memory")
    if d.ch.chance("hang.conv", 0.4):
        return conv_of((FP16,), wish, budget=400)(d)
    return d.flying(d.any_type((FP16, FP32)), wish)


def _resized(d: Draw, plan: Plan, block: str, name: str, step: int) -> int:
    """Change a size that is stored as one less by `step`; return the field's value."""
    value = plan.task.get(block, name) + d.ch.pick("hang.change", (1, -1)) * step
    if not 0 <= value < 8192:
        raise Refused("no such size")
    plan.task.set(block, **{name: value})
    return value


# -- waits: a block does not get what it needs ([HW 4.8], [HW 7] to [HW 9], [HW 1]) -------------------------

WAITS = endless()


@WAITS.draws
def _empty(d: Draw) -> Plan:
    depthwise = d.ch.chance("hang.depthwise", 0.3)
    plan = conv_of(SMALL, PLAIN, depthwise=depthwise, budget=400)(d)
    alone = SIZES[d.turn % len(SIZES)][1] if d.ch.chance("hang.zero_alone", 0.6) else None
    for _, name in SIZES:
        drawn = name == alone if alone else d.ch.chance("hang.zero", 0.2)
        if drawn and not (depthwise and name == "WEIGHT_KERNELS"):
            plan.task.set("CNA", **{name: 0})
            plan.note += f"{name} is 0 "
    if not plan.note:
        raise Refused("no size is 0")
    return plan


WAITS.sets("no banks for weights", small_conv, "CNA", WEIGHT_BANK=0)


@WAITS.add(
    conv_of((INT16, FP16, BF16), PLAIN, depthwise=True, budget=400),
    "half a depthwise group is larger than its bank",
)
def _long_halves(d: Draw, plan: Plan) -> None:
    """Half a depthwise group of 16-bit weights is larger than its bank, with one stripe."""
    task = plan.task
    channels = task.get("CNA", "DATAIN_CHANNEL")
    if channels <= 32 or task.get("CNA", "DATAOUT_ATOMICS") > 16:
        raise Refused("one half, or more than one stripe")
    rows = d.ch.pick("hang.rows", (17, 31))
    size = depthwise_bytes((channels, 31, rows), 2)
    task.set("CNA", WEIGHT_WIDTH=31, WEIGHT_HEIGHT=rows, WEIGHT_BYTES=size, WEIGHT_BANK=1)


@WAITS.add()
def _footprint(d: Draw, plan: Plan) -> None:
    """Features overlap in CBUF: what is read depends on time, so the task is kept from ending."""
    task = plan.task
    rows, entries = task.get("CNA", "DATAIN_HEIGHT"), task.get("CNA", "DATA_ENTRIES")
    if rows < 2:
        raise Refused("one row")
    short = d.ch.chance("hang.short", 0.6)
    entries = entries - 1 if short else 512 * 11 // (rows - 1) + d.ch.integer("hang.entries", 0, 1)
    task.set("CNA", DATA_ENTRIES=max(0, entries))
    task.set("CORE", SLCG_OP_EN=d.ch.word("hang.gating", 27) & ~(1 << 24))
    plan.note = f"{rows} rows of {entries} entries, MAC_GATING bit 24 clear"


@WAITS.add(note="the DPU wants more pixels than CORE has")
def _more_pixels(d: Draw, plan: Plan) -> None:
    axis = d.ch.pick("hang.axis", ("WIDTH", "HEIGHT"))
    for block in dpu_blocks(plan.task):
        plan.task.set(block, **{axis: plan.task.get(block, axis) + 1})


@WAITS.add(note="the DPU wants more groups than CORE has")
def _more_groups(d: Draw, plan: Plan) -> None:
    for block in dpu_blocks(plan.task):
        plan.task.set(block, CHANNEL=plan.task.get(block, "CHANNEL") + 64)


@WAITS.add(fly(SMALL))
def _reader_cube(d: Draw, plan: Plan) -> None:
    name = d.ch.pick("hang.axis", ("WIDTH", "HEIGHT", "CHANNEL"))
    change = d.ch.pick("hang.change", (1, -1)) * (64 if name == "CHANNEL" else 1)
    now = plan.task.get("DPU_RDMA", name)
    plan.task.set("DPU_RDMA", **{name: now + (change if 0 <= now + change < 8192 else abs(change))})
    # Pitches may be negative: there must be room on both sides for excess reads.
    plan.task.address("DPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(1 << 17, "input") + (1 << 16))
    plan.note = f"the cubes of DPU and DPU_RDMA differ in {name}"


@WAITS.draws
def _no_element(d: Draw) -> Plan:
    wish = DpuWish(element="memory")
    plan = small_conv(d, wish) if d.ch.chance("hang.conv", 0.5) else d.flying(INT16, wish)
    plan.task.set("DPU_RDMA", ERDMA_DISABLE=1)
    plan.note = "the operation's operand is not read"
    return plan


WAITS.sets("the main data are not read", fly(SMALL), "DPU_RDMA", MRDMA_DISABLE=1)


@WAITS.add()
def _no_operands(d: Draw, plan: Plan) -> None:
    """A stage takes operands from memory, but nothing reads them."""
    task = plan.task
    stage, client = d.ch.pick("hang.stage", (("BS", "BRDMA"), ("BN", "NRDMA")))
    if task.get("DPU", f"{stage}_BYPASS") or ("DPU_RDMA", f"{stage}_BASE_ADDR") in task.addresses:
        raise Refused("the stage is bypassed, or its operands are read")
    part = "MUL" if d.ch.chance("hang.multiplier", 0.5) else "ALU"
    task.set("DPU", **{f"{stage}_{part}_BYPASS": 0, f"{stage}_{part}_SRC": 1})
    plan.note = f"nothing reads the operands of {client}"


@WAITS.add(_fed, "the PPU waits for another cube than the DPU's")
def _fed_cube(d: Draw, plan: Plan) -> None:
    """The PPU waits for another cube or another type than the DPU delivers."""
    kind = d.ch.integer("hang.fed", 0, 3)
    if kind < 3:
        axis = ("WIDTH", "HEIGHT", "CHANNEL")[kind]
        value = _resized(d, plan, "PPU", f"DATA_CUBE_IN_{axis}", 16 if axis == "CHANNEL" else 1)
        if axis == "CHANNEL":
            plan.task.set("PPU", DATA_CUBE_OUT_CHANNEL=value)
    else:
        now = plan.task.get("PPU", "PROC_PRECISION")
        plan.task.set("PPU", PROC_PRECISION=0 if now else d.ch.pick("hang.type", (1, 2)))


@WAITS.add(_fed, "the PPU is not started")
def _no_ppu(d: Draw, plan: Plan) -> None:
    plan.task.drop("PPU")
    plan.mask = 0x300


@WAITS.add(lambda d: d.flying(INT32, DpuWish(out=(INT8, INT16), to_ppu=True, element="none")))
def _wide_group(d: Draw, plan: Plan) -> None:
    """The PPU gets groups of sixteen surfaces, which it cannot put in order (6.9)."""
    for block in dpu_blocks(plan.task):
        plan.task.set(block, CONV_MODE=DEPTHWISE)
    plan.note = "the PPU gets groups of sixteen surfaces"


@WAITS.draws
def _pool_cube(d: Draw) -> Plan:
    kind = d.any_type((INT16, FP16, INT8))
    plan = d.pool(kind)
    axis = d.ch.pick("hang.axis", ("WIDTH", "HEIGHT", "CHANNEL"))
    _resized(d, plan, "PPU_RDMA", f"CUBE_IN_{axis}", kind.per_atom if axis == "CHANNEL" else 1)
    plan.note = "the cubes of PPU and PPU_RDMA differ"
    return plan


@WAITS.add(Draw.any_task)
def _other_group(d: Draw, plan: Plan) -> None:
    """Slave mode: group 1 is enabled while it is group 0's turn."""
    task = plan.task
    if len(plan.tasks) > 1 or task.uploads:
        raise Refused("more than one task")
    # Not the PPU: PPU_RDMA would compare its type with settings that the PPU does not have yet.
    # Not DPU_RDMA in a convolution, which may need none of its data and end.
    # Not the DPU of a task with two readers, of which DPU_RDMA knows by the DPU's COMB_USE.
    left: tuple[str, ...] = ("PPU", "DPU_RDMA") if "CNA" in task.blocks else ("PPU",)
    if "DPU" in task.blocks and task.get("DPU", "COMB_USE"):
        left = (*left, "DPU")
    turned = d.ch.pick("hang.block", tuple(b for b in task.blocks if b not in left))
    for block in task.blocks:
        plan.writes.append(pointer_write(block, **CLEAR))
        if block == turned:
            plan.writes.append(pointer_write(block, POINTER=1))
    plan.writes += [*register_writes(task, 0), enable_write(task)]
    plan.slave, plan.dma_base, plan.note = True, 0, f"group 1 of {turned} is enabled, group 0 is in turn"


@WAITS.draws
def _open_rows(d: Draw) -> Plan:
    """More results of open rows than the PPU holds, in one surface or only in several together (6.9)."""
    kind = d.any_type(COMMON)
    if d.ch.chance("hang.fed", 0.5):
        plan, width = d.flying(kind, DpuWish(out=(kind,), to_ppu=True, element="none")), 100
        if plan.task.get("DPU", "CHANNEL") < kind.per_atom:
            raise Refused("one surface")
    else:
        plan, width = d.pool(kind), d.ch.pick("hang.width", (129, 300, 2048))
    plan.task.set("PPU", KERNEL_HEIGHT=15, DATA_CUBE_OUT_WIDTH=width - 1)
    plan.note = "more open rows than the PPU holds"
    return plan


@WAITS.add(_either_half, "a product of floats with a live converter")
def _live_product(d: Draw, plan: Plan) -> None:
    """A product of fp16 or fp32 whose operand passes through the converter; nothing is written (7.8)."""
    if plan.task.get("DPU", "PROC_PRECISION") not in (FP16.dpu_code, FP32.dpu_code):
        raise Refused("another type")
    plan.task.set("DPU", EW_OP_TYPE=1, EW_OP_CVT_BYPASS=0, EW_MUL_PRELU=0)
    plan.written = True


# Data of ERDMA that no operation of a convolution uses (4.7).
WAITS.sets(
    "nothing takes the operand", lambda d: small_conv(d, DpuWish(element="memory")), "DPU", EW_OP_BYPASS=1
)


@WAITS.add(fly((FP16, INT8)), "COMB_USE while flying")
def _combination(d: Draw, plan: Plan) -> None:
    """COMB_USE of a flying task with bit 0: all data exist, but none are delivered (5.5)."""
    combination = d.ch.pick("hang.comb", (1, 3, 5, 7))
    plan.task.set("DPU_RDMA", COMB_USE=combination)
    plan.written = True
    if combination == ALTERNATE:
        plan.task.set("DPU", COMB_USE=0)


@WAITS.add(fly((INT8, INT16, FP16, FP32)), "SIZE_E of a flying task")
def _flying_surfaces(d: Draw, plan: Plan) -> None:
    """More surfaces than an input surface makes (4.10)."""
    made = plan.task.get("DPU", "SIZE_E_1")
    if made == 7:
        raise Refused("SIZE_E names no more")
    plan.task.set("DPU", **size_e(d.ch.integer("hang.flying_surfaces", made + 1, 7)))


@WAITS.add(fly((INT16, FP16, BF16, INT32)), "atoms partly filled with bytes")
def _part_bytes(d: Draw, plan: Plan) -> None:
    """Narrowed to int8, with more atoms than CHANNEL_WDMA names (4.10)."""
    task = plan.task
    if task.get("DPU", "COMB_USE"):
        raise Refused("two readers")
    task.set("DPU", OUT_PRECISION=INT8.dpu_code, SIZE_E_0=0, SIZE_E_1=0, SIZE_E_2=0)
    last = d.ch.integer("hang.part_bytes", 8, 15)
    for block in ("DPU", "DPU_RDMA"):
        task.set(block, CHANNEL=last)
    task.set("DPU", ORIG_CHANNEL=last, CHANNEL_WDMA=last)


@WAITS.add(fly((INT8, INT16)), "nothing reads the correction")
def _no_correction(d: Draw, plan: Plan) -> None:
    """A flying task of integers waits for the correction's operands (4.2)."""
    if ("DPU_RDMA", "BS_BASE_ADDR") in plan.task.addresses:
        raise Refused("BRDMA reads something")
    plan.task.set("DPU", OW_SRC=1, OD_BYPASS=0)


@WAITS.add(note="bit 1 of NRDMA_DATA_USE")
def _other_factors(d: Draw, plan: Plan) -> None:
    """NRDMA reads nothing, because its use names an operand that BN does not have (5.3)."""
    task = plan.task
    use = task.get("DPU_RDMA", "NRDMA_DATA_USE")
    if in_floats(task) or not use or task.get("DPU", "BN_BYPASS"):
        raise Refused("floats, or no table")
    if not task.get("DPU", "BN_ALU_SRC") and not task.get("DPU", "BN_MUL_SRC"):
        raise Refused("BN does not wait")
    task.set("DPU_RDMA", NRDMA_DATA_USE=use | 2)


# -- settings that hang ----------------------------------------------------------------------------

HANGS = endless()


def _with_rdma(d: Draw) -> Plan:
    """Draw a small convolution whose task has DPU_RDMA."""
    plan = small_conv(d)
    if "DPU_RDMA" not in plan.task.blocks:
        raise Refused("the draw has no DPU_RDMA")
    return plan


@HANGS.add(_with_rdma, "MRDMA left on in a plain convolution")
def _main_left_on(d: Draw, plan: Plan) -> None:
    plan.task.set("DPU_RDMA", MRDMA_DISABLE=0)
    plan.task.address("DPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(1 << 17, "MRDMA not needed"))


@HANGS.add(_with_rdma, "ERDMA left on without an operation that takes its data")
def _element_left_on(d: Draw, plan: Plan) -> None:
    plan.task.set("DPU_RDMA", ERDMA_DISABLE=0, ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=1, EW_LINE_NOTCH_ADDR=0)
    plan.task.address("DPU_RDMA", "EW_BASE_ADDR", d.arena.alloc(1 << 15, "ERDMA not needed"))


@HANGS.add(note="fewer weights than the loops take")
def _few_weights(d: Draw, plan: Plan) -> None:
    plan.task.set("CNA", WEIGHT_BYTES=max(0, plan.task.get("CNA", "WEIGHT_BYTES") - 64))


@HANGS.add(
    conv_of((INT8,), PLAIN, streamed=True, budget=4000),
    "a kernel group larger than its banks, more than one stripe",
)
def _large_group(d: Draw, plan: Plan) -> None:
    names = ("WEIGHT_WIDTH", "WEIGHT_HEIGHT", "DATAIN_CHANNEL", "DATAOUT_ATOMICS")
    width, height, channels, pixels = (plan.task.get("CNA", name) for name in names)
    if pixels <= 16 or 32 * width * height * (-(-channels // 16) * 16) <= 32768:
        raise Refused("a kernel group fits one bank, or there is one stripe only")
    plan.task.set("CNA", WEIGHT_BANK=1)


@HANGS.add(note="the DPU's group is not CORE's")
def _other_type(d: Draw, plan: Plan) -> None:
    other = 1 if plan.task.get("DPU", "IN_PRECISION") == 0 else 0
    plan.task.set("DPU", IN_PRECISION=other, PROC_PRECISION=0, CONV_MODE=0)


@HANGS.add(note="SIZE_E is not the group's with a live converter")
def _size_e(d: Draw, plan: Plan) -> None:
    if plan.task.get("DPU", "OD_BYPASS"):
        raise Refused("the converter is bypassed")
    plan.task.set("DPU", **size_e((plan.task.get("DPU", "SIZE_E_1") + 1) % 8))
    # Strides may be negative: there must be room on both sides for displaced writes.
    plan.task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "output") + (1 << 16))


def _most(d: Draw, low: int, high: int) -> int:
    """Draw a number of a range; in the first round of kinds, the greatest one."""
    return d.ch.corner("hang.size", low if d.turn else high, high)


@HANGS.add(note="MAC_GATING bit 24 clear")
def _gating(d: Draw, plan: Plan) -> None:
    plan.task.set("CORE", SLCG_OP_EN=d.ch.word("hang.gating", 27) & ~(1 << 24))


@HANGS.add(note="MAC_GATING bit 24 clear, more pixels than the DPU wants")
def _pixels(d: Draw, plan: Plan) -> None:
    _gating(d, plan)
    plan.task.set("CNA", DATAOUT_ATOMICS=_most(d, 17, (1 << 22) - 1))
    plan.task.set("CNA", DATAOUT_WIDTH=d.ch.corner("hang.width", 1, 2047))
    plan.task.set("CNA", WEIGHT_KERNELS=_most(d, 1, (1 << 14) - 1))


@HANGS.add(lambda d: d.pool(INT8), "more open rows than the PPU holds")
def _wide_rows(d: Draw, plan: Plan) -> None:
    plan.task.set("PPU", DATA_CUBE_IN_WIDTH=8191, DATA_CUBE_OUT_WIDTH=_most(d, 2048, 8191))
    plan.task.set("PPU_RDMA", CUBE_IN_WIDTH=8191)


@HANGS.add(note="CNA waits for another core's index")
def _core(d: Draw, plan: Plan) -> None:
    plan.writes.append(pointer_write("CNA", CORE_INDEX=d.ch.integer("hang.core", 1, 2), **PING_PONG))
    if d.ch.chance("hang.core_too", 0.5):
        other = d.ch.integer("hang.core_index", 1, 3)
        plan.writes.append(pointer_write("CORE", CORE_INDEX=other, **PING_PONG))


@HANGS.add()
def _alone(d: Draw, plan: Plan) -> None:
    gone = d.ch.pick("hang.missing", ("CORE", "DPU"))
    plan.task.drop(*((gone, "DPU_RDMA") if gone == "DPU" else (gone,)))
    plan.mask, plan.note = 0x300, f"{gone} is not started"


@HANGS.add(conv_of((INT8,), DpuWish(element="combined"), budget=400), "COMB_USE 5 with one reader off")
def _one_reader(d: Draw, plan: Plan) -> None:
    reader = "MRDMA" if d.ch.chance("hang.mrdma", 0.5) else "ERDMA"
    plan.task.set("DPU_RDMA", **{f"{reader}_DISABLE": 1})


@HANGS.add(fly((INT8, FP16), "alternate"), "COMB_USE 3 with one reader off")
def _one_source(d: Draw, plan: Plan) -> None:
    reader = "MRDMA" if d.ch.chance("hang.mrdma", 0.5) else "ERDMA"
    plan.task.set("DPU_RDMA", **{f"{reader}_DISABLE": 1})


@HANGS.add(lambda d: d.pool(INT8), "PPU_RDMA reads less than the PPU wants")
def _short_cube(d: Draw, plan: Plan) -> None:
    name = f"CUBE_IN_{d.ch.pick('hang.axis', ('WIDTH', 'HEIGHT'))}"
    if not plan.task.get("PPU_RDMA", name):
        raise Refused("more data than the PPU takes")
    plan.task.set("PPU_RDMA", **{name: 0})


# -- memory errors and lists -------------------------------------------------------------------------


def unmapped(d: Draw) -> Plan:
    """Draw a task with one unmapped address."""
    plan = d.any_task()
    task = plan.task
    names = [
        name
        for name, place in task.addresses.items()
        if not name[1].startswith("LUT") and place != UNMAPPED  # the address of a reader that reads nothing
    ]
    block, register = d.ch.pick("unmapped.which", names)
    task.address(block, register, UNMAPPED + 0x1000 * d.ch.integer("unmapped.page", 0, 255))
    plan.diagnostics = plan.reset = plan.fault = True
    plan.reads = [registers()[b]["CFG_ID_ERROR"].offset for b in ("DDMA", "SDMA")]
    if d.ch.chance("unmapped.mask", 0.5):  # the error itself raises the interrupt line
        plan.mask = task.interrupt_mask() | 0x3000
    plan.facts, plan.note = [], f"{block}.{register} is not mapped"
    return plan


def malformed(d: Draw) -> Plan:
    """Draw a command list with an invalid word, too short, or without something it needs."""
    ch, plan = d.ch, d.any_task()
    kind = ch.integer("malformed.kind", 0, 5)
    plan.diagnostics = plan.reset = True
    plan.facts = []
    plan.note = (
        "a link is missing with tasks left",
        "no op-enable word",
        "unknown target bits",
        "offset outside the target's window",
        "TASK_NUMBER 0",
        "a link with PC_SEL = 1",
    )[kind]
    plan.hang = kind in (0, 1, 4)
    uploads = plan.task.uploads
    if kind == 0:
        plan.number = ch.corner("malformed.number", 2, 4095)
    elif kind == 1:
        plan.words.append((0, -1, 0))
    elif kind == 2:
        uploads.append(pack_word(ch.pick("malformed.target", (0x0007, 0x4001, 0x0003)), 5, 0x4050))
    elif kind == 3:
        uploads.append(pack_word(0x1001, ch.word("malformed.value", 32), 0x1010))
    elif kind == 4:
        plan.number = 0
    else:
        uploads.append(register_word(registers()["PC"]["BASE_ADDRESS"], UNMAPPED | 1))
    return plan
