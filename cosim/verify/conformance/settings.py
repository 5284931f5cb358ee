"""Contradictory or reserved settings whose result is nevertheless defined."""

from __future__ import annotations

from rkcosim.spec.types import (
    BANK_BYTES,
    BANKS,
    BF16,
    CONV_TYPES,
    DPU_TYPES,
    FP16,
    FP32,
    INT4,
    INT8,
    INT16,
    INT32,
    bits_of,
)
from rkcosim.verify.conformance import values
from rkcosim.verify.conformance.case import Plan
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.dpu import in_floats, input_surface, size_e, surfaces_made
from rkcosim.verify.conformance.draw_conv import ConvWish
from rkcosim.verify.conformance.draw_dpu import DpuWish
from rkcosim.verify.conformance.draw_writer import other_maxima, settings_packets, settings_unpooling
from rkcosim.verify.conformance.draws import COMMON, PLAIN, Draw, Kinds, conv_of, fly
from rkcosim.verify.crosscheck.program import Task

SETTINGS = Kinds(diagnostics=True)
SETTINGS.draws(settings_packets)
SETTINGS.draws(settings_unpooling)
SETTINGS.draws(other_maxima)


@SETTINGS.add(conv_of(COMMON, PLAIN, argb=True, budget=400))
def _argb_bits(d: Draw, plan: Plan) -> None:
    plan.task.set("CNA", **{d.ch.pick("settings.argb", ("NONALIGN_DMA", "GROUP_LINE_OFF")): 0})


@SETTINGS.add()
def _line_stride(d: Draw, plan: Plan) -> None:
    """A pitch that is not a multiple of four lines: the quotient is floored (1.1)."""
    task = plan.task
    if task.get("CNA", "GROUP_LINE_OFF"):
        raise Refused("the pitch is in atoms")
    rest = d.ch.integer("settings.rest", 1, 3)
    task.set("CNA", LINE_STRIDE=task.get("CNA", "LINE_STRIDE") + rest)


@SETTINGS.draws
def _few_banks(d: Draw) -> Plan:
    """Features in more banks than configured; nothing else uses them (2.4)."""
    if d.turn % 2:  # of a first layer, whose pitch of rows in memory is that in CBUF
        kind = d.any_type(COMMON)
        plan = d.conv(ConvWish(kind, argb=True, budget=2000), PLAIN)
        channels, weights = plan.task.get("CNA", "ARGB_IN") - 7, plan.task.get("CNA", "WEIGHT_BANK")
        lines = plan.task.get("CNA", "DATAIN_HEIGHT")
        column = lines * kind.bits // 2 * (4 if channels == 3 else channels)
        pitch = BANK_BYTES // column + 1  # a little more than one bank
        if pitch < plan.task.get("CNA", "LINE_STRIDE") or weights > BANKS - 2:
            raise Refused("longer rows, or no bank is free")
        plan.task.set("CNA", DATA_BANK=1, LINE_STRIDE=pitch)
        pixels = values.elements(d.ch, "features of long rows", kind, lines * pitch * channels)
        plan.task.address("CNA", "FEATURE_DATA_ADDR", d.arena.place(pixels, "features"))
        return plan
    plan = d.conv(ConvWish(d.any_type(), wide=True, budget=10000), PLAIN)
    most = plan.task.get("CNA", "DATA_BANK") - 1
    if most < 1:
        raise Refused("one bank")
    nearly = d.ch.chance("settings.nearly", 0.6)
    plan.task.set("CNA", DATA_BANK=most if nearly else d.ch.integer("settings.banks", 0, most))
    return plan


@SETTINGS.draws
def _past_banks(d: Draw) -> Plan:
    """Features that continue into the weights' banks and beyond: these are not stored (2.7)."""
    wish = ConvWish(d.any_type(), budget=2000)
    if d.ch.chance("settings.depthwise", 0.4):
        wish = ConvWish(d.any_type((INT8, INT16, FP16, BF16)), depthwise=True, budget=2000)
    if d.ch.chance("settings.argb", 0.2):
        wish = ConvWish(d.any_type(COMMON), argb=True, budget=5000)
    plan = d.conv(wish, PLAIN)
    task = plan.task
    least, rows = task.get("CNA", "WEIGHT_BANK"), task.get("CNA", "DATAIN_HEIGHT")
    weights = 11 if d.ch.chance("settings.most", 0.7) else d.ch.integer("settings.weights", least, 11)
    task.set("CNA", WEIGHT_BANK=weights, DATA_BANK=12 - weights)
    if wish.argb:
        if weights == least:
            raise Refused("as many banks as before")
        return plan
    if rows < 2:
        raise Refused("one row")
    border, used = 512 * (12 - weights), task.get("CNA", "DATA_ENTRIES")
    far = d.ch.chance("settings.far", 0.2)
    most = (1 << 15) - 1 if far else 2 * max(-(-border // (rows - 1)), used)
    across = [  # pitches with which a row crosses the border
        (border - entry) // row
        for row in range(1, rows)
        for entry in range(min(used, 64))
        if (border - entry) % row == 0 and used <= (border - entry) // row < 1 << 15
    ]
    if across and d.ch.chance("settings.across", 0.5):
        task.set("CNA", DATA_ENTRIES=d.ch.pick("settings.border", across))
    else:
        task.set("CNA", DATA_ENTRIES=d.ch.integer("settings.pitch", used, most))
    return plan


@SETTINGS.add(conv_of(dpu=PLAIN, budget=800))
def _exact_fit(d: Draw, plan: Plan) -> None:
    """Row pitches such that the features end with a bank, or one entry after it (2.4)."""
    names = ("DATAIN_HEIGHT", "DATA_ENTRIES", "WEIGHT_BANK")
    rows, used, weights = (plan.task.get("CNA", name) for name in names)
    fits = []
    for more in (0, 1):  # the next entry must not belong to the weights
        for count in range(1, 13 - weights - more):
            apart, rest = divmod(512 * count + more - used, max(1, rows - 1))
            if rows > 1 and not rest and used <= apart < 1 << 15:
                fits.append((more, count, apart))
    if not fits:
        raise Refused("the rows do not fill the banks")
    # One entry too many is what the diagnostic is about; it is rarely possible.
    _, count, apart = d.ch.pick("settings.fit", [fit for fit in fits if fit[0]] or fits)
    plan.task.set("CNA", DATA_ENTRIES=apart, DATA_BANK=count)


@SETTINGS.add()
def _bank_sum(d: Draw, plan: Plan) -> None:
    """More banks than exist: this is only reported, since the features fit anyway (2.4)."""
    least = 13 - plan.task.get("CNA", "WEIGHT_BANK")
    plan.task.set("CNA", DATA_BANK=d.ch.integer("settings.banks", least, 15))


@SETTINGS.add()
def _weight_bytes(d: Draw, plan: Plan) -> None:
    """Less than the loops read, but as much as is fetched, since that is rounded up (2.5)."""
    less = d.ch.integer("settings.less", 1, 15)
    plan.task.set("CNA", WEIGHT_BYTES=plan.task.get("CNA", "WEIGHT_BYTES") - less)


def _regroup(d: Draw, task: Task) -> None:
    """What a flying task says of its atoms, for the element that the DPU now reads (7.2.1)."""
    group, surfaces = input_surface(task), surfaces_made(task)
    stride, room = task.get("DPU", "DST_SURF_STRIDE"), 1 << 17
    atoms = surfaces * -(-(task.get("DPU", "CHANNEL") + 1) // group)
    area = (task.get("DPU", "HEIGHT") + 1) * (task.get("DPU", "WIDTH") + 1 + task.get("DPU", "NOTCH_ADDR_0"))
    if 16 * (atoms * stride + area) > room:  # also a stride towards lower addresses
        raise Refused("more surfaces than the output has room for")
    task.set("DPU", SURF_ADD=surfaces * stride % (1 << 28), **size_e(min(surfaces, 8) - 1))
    if (
        task.get("DPU", "OUT_PRECISION") == INT8.dpu_code and group < 16
    ):  # as many atoms as are made, partly filled
        task.set("DPU", CHANNEL_WDMA=16 * -(-(task.get("DPU", "CHANNEL") + 1) // group) - 1)
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(room, "output"))


@SETTINGS.add(fly((INT8, INT16, FP16, FP32)))
def _types(d: Draw, plan: Plan) -> None:
    """Undefined type codes of the DPU, or codes of the other domain (0.4)."""
    task, kind = plan.task, (d.turn + 2) % 5
    if kind >= 2 and (task.get("DPU", "CHANNEL") + 1) % 8:
        raise Refused("groups that differ, with lanes without a channel in them")
    block, name, code = (
        ("DPU", "OUT_PRECISION", 7),
        ("DPU_RDMA", "PROC_PRECISION", 7),
        ("DPU", "IN_PRECISION", 1 if in_floats(task) else 2),
        ("DPU", "IN_PRECISION", 7),
        ("DPU_RDMA", "IN_PRECISION", 7),
    )[kind]
    task.set(block, **{name: code})
    if kind in (0, 3, 4):  # nothing may depend on the size of what is read or written
        task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "output"))
        task.address("DPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(1 << 17, "input"))
    if kind in (0, 2, 3):
        _regroup(d, task)


@SETTINGS.draws
def _two_groups(d: Draw) -> Plan:
    """DPU and DPU_RDMA disagree about the channels of a group (5.1)."""
    kind = d.any_type((INT8, INT16, INT32))
    plan = d.flying(kind, DpuWish(element=d.ch.pick("settings.ew", ("none", "memory"))))
    if (plan.task.get("DPU", "CHANNEL") + 1) % 8:
        raise Refused("lanes without a channel, of no known content, would take the places of others")
    others = tuple({0, 1, 6} - {plan.task.get("DPU", "IN_PRECISION")})
    plan.task.set("DPU", IN_PRECISION=d.ch.pick("settings.group", others))
    _regroup(d, plan.task)
    return plan


# Elements of 4 and 8 bits in the float domain (5.4).
SETTINGS.sets(
    "float_elements",
    fly((FP16, BF16), "memory"),
    "DPU_RDMA",
    ERDMA_DATA_SIZE=lambda ch: ch.integer("settings.bits", 0, 1),
)


@SETTINGS.add(fly(COMMON))
def _modes(d: Draw, plan: Plan) -> None:
    """Modes of convolution that are undefined for DPU and DPU_RDMA (5.1)."""
    block = d.ch.pick("settings.block", ("DPU", "DPU_RDMA"))
    plan.task.set(block, CONV_MODE=d.ch.integer("settings.mode", 1, 2))


@SETTINGS.add()
def _nowhere(d: Draw, plan: Plan) -> None:
    """Nothing leaves the DPU, which then ignores the surfaces of a group (4.10)."""
    plan.task.set("DPU", OUTPUT_MODE=0)
    if d.ch.chance("settings.size_e", 0.5):
        plan.task.set("DPU", **size_e(d.ch.integer("settings.size_e.value", 0, 7)))


@SETTINGS.add(fly((FP16, BF16)))
def _float_shift(d: Draw, plan: Plan) -> None:
    """A shift of OUT_CVT on floats, which has no effect.

    0 in its low six bits is the value without shift (4.9).
    """
    shift = 64 * d.ch.integer("settings.shift", 1, 63) + d.ch.pick("settings.shift.low", (0, 0, 0, 1, 63))
    plan.task.set("DPU", OUT_CVT_SHIFT=shift)


@SETTINGS.draws
def _fed(d: Draw) -> Plan:
    kind = d.any_type(COMMON)
    plan = d.flying(kind, DpuWish(out=(kind,), to_ppu=True, element="none"))
    plan.task.set("PPU", DPU_FLYIN=1 - plan.task.get("PPU", "DPU_FLYIN"))
    return plan


@SETTINGS.add()
def _combined_alone(d: Draw, plan: Plan) -> None:
    """COMB_USE of the DPU, which repeats nothing if DPU_RDMA does not run (4.13)."""
    if "DPU_RDMA" in plan.task.blocks:
        raise Refused("DPU_RDMA runs")
    plan.task.set("DPU", COMB_USE=1)


@SETTINGS.add(fly((INT8, INT16, FP16, INT4)))
def _fewer_surfaces(d: Draw, plan: Plan) -> None:
    """Fewer surfaces than an input surface makes; the others are not written (4.10)."""
    made = plan.task.get("DPU", "SIZE_E_1")
    if not made:
        raise Refused("one surface")
    plan.task.set("DPU", **size_e(d.ch.integer("settings.fewer_surfaces", 0, made - 1)))


SETTINGS.sets("index", lambda d: d.pool(d.any_type(COMMON)), "PPU", POOLING_METHOD=0, INDEX_EN=1)


def _gates(d: Draw, plan: Plan) -> None:
    """Octets that are not clocked, of any type; the correction shows their sums (3.8, 4.2)."""
    gates = d.ch.pick("settings.gates", (1 << 11, 1 << 23))
    plan.task.set("CORE", SLCG_OP_EN=((1 << 27) - 1) & ~gates)
    plan.reset = True
    short = bits_of(plan.task.get("DPU", "OUT_PRECISION")) < 32  # SIZE_E names all surfaces of a group
    if short and not in_floats(plan.task) and not _cut_group(plan.task):
        plan.task.set("CORE", QD_EN=1)
        plan.task.set("DPU", OD_BYPASS=0, OW_SRC=0, OW_OP=d.ch.corner("settings.correction", 0, 65535))


def _cut_group(task: Task) -> bool:
    """Whether the cube ends inside a kernel group, which hangs with a live converter (4.10)."""
    bits = bits_of(task.get("DPU", "OUT_PRECISION"))
    return bool(-(-(task.get("DPU", "CHANNEL") + 1) * bits // 128) % (task.get("DPU", "SIZE_E_1") + 1))


SETTINGS.add(conv_of(CONV_TYPES, PLAIN, budget=800), "gates_and_type")(_gates)
SETTINGS.add(conv_of(COMMON, PLAIN, depthwise=True, budget=800), "depthwise_gates")(_gates)


@SETTINGS.draws
def _missing_groups(d: Draw) -> Plan:
    """CORE counts more groups than there are kernels for, and the DPU uses them (3.8)."""
    depthwise = d.ch.chance("settings.depthwise", 0.3)
    kind = d.any_type(COMMON if depthwise else CONV_TYPES)
    return d.conv(ConvWish(kind, depthwise=depthwise, missing_groups=True, budget=800))


@SETTINGS.add(conv_of((INT8, INT4, FP16), PLAIN, budget=400))
def _unaligned_conv(d: Draw, plan: Plan) -> None:
    """Addresses whose lower bits are dropped (the bus has atoms)."""
    plan.task.addresses["CNA", "FEATURE_DATA_ADDR"] += d.ch.pick("settings.low", (1, 8, 15))


@SETTINGS.add(fly((INT8, INT16, INT32), "register"))
def _extremes(d: Draw, plan: Plan) -> None:
    """Sums at the ends of 32 bits that PReLU passes, then operations at these ends (4.4, 4.7)."""
    ch, task = d.ch, plan.task
    lowest = d.turn % 2 == 0  # half of the sums are -2^31, whose magnitude and negative do not exist
    task.set("DPU", BS_BYPASS=0, BS_ALU_BYPASS=0, BS_ALU_SRC=0)
    task.set("DPU", BS_ALU_ALGO=2 if lowest else ch.pick("settings.algorithm", (2, 4)))
    task.set("DPU", BS_ALU_OPERAND=1 << 31 if lowest else ch.pick("settings.end", (1 << 31, (1 << 31) - 1)))
    task.set("DPU", BS_MUL_BYPASS=ch.integer("settings.no_factor", 0, 1), BS_MUL_PRELU=1, BS_MUL_SRC=0)
    task.set("DPU", BS_MUL_SHIFT_VALUE=ch.integer("settings.shift", 0, 15), BS_RELU_BYPASS=1, BS_RELUX_EN=0)
    operations = (5, 6) if lowest else (5, 6, 5, 6, 2, 4)
    task.set("DPU", BN_BYPASS=1, EW_OP_TYPE=0, EW_ALU_ALGO=ch.pick("settings.operation", operations))


@SETTINGS.add(fly((INT8, INT16), "lut"))
def _steps(d: Draw, plan: Plan) -> None:
    """The first step between entries that is too large for a table (4.12)."""
    plan.task.set("DPU", **{f"LUT_{d.ch.pick('settings.table', ('LE', 'LO'))}_INDEX_SELECT": 23})


@SETTINGS.add(fly((INT8, INT16), "lut"))
def _slopes(d: Draw, plan: Plan) -> None:
    """Nearly all data lie outside of short tables, and half of the products with slopes tie (4.12)."""
    ch, task = d.ch, plan.task
    for table in ("LE", "LO"):
        start = ch.integer(f"settings.{table}_start", -40, 40)
        end = start + ch.integer(f"settings.{table}_more", 0, 3)
        task.set("DPU", **{f"LUT_{table}_START": start, f"LUT_{table}_END": end})
        for kind in ("OFLOW", "UFLOW"):
            scale = 2 * ch.integer(f"settings.{table}_{kind}", -50, 50) + 1
            task.set("DPU", f"LUT_{table}_SLOPE_SCALE", **{f"{kind}_SCALE": scale})
            task.set("DPU", f"LUT_{table}_SLOPE_SHIFT", **{f"{kind}_SHIFT": 1})


@SETTINGS.add(fly((INT16, FP16, BF16)))
def _part_factors(d: Draw, plan: Plan) -> None:
    """Factors alone from memory for a last block used in part, behind whole ones: they are 0 (5.3)."""
    ch, task = d.ch, plan.task
    if task.get("DPU_RDMA", "COMB_USE") or not all(divmod(task.get("DPU", "CHANNEL") + 1, 8)):
        raise Refused("two readers, or no such block")
    stage, client = (("BS", "BRDMA"), ("BN", "NRDMA"))[d.turn % 2]
    kind = DPU_TYPES[task.get("DPU", "PROC_PRECISION")]
    factors = values.elements(ch, "settings.factors", kind if kind.bits == 16 else INT16, 8 * 512)
    bypasses = {f"{stage}_{part}_BYPASS": int(part != "MUL") for part in ("ALU", "MUL", "RELU")}
    task.set("DPU", **bypasses, **{f"{stage}_BYPASS": 0, f"{stage}_MUL_SRC": 1, f"{stage}_MUL_PRELU": 0})
    task.set("DPU", **{f"{stage}_RELUX_EN": 0}, ORIG_CHANNEL=task.get("DPU", "CHANNEL"))
    task.set("DPU_RDMA", **{f"{client}_DISABLE": 0, f"{client}_DATA_USE": 4})
    task.address("DPU_RDMA", f"{stage}_BASE_ADDR", d.arena.place(factors, f"{client} table"))


@SETTINGS.add(fly(COMMON, "memory"))
def _left_element(d: Draw, plan: Plan) -> None:
    """Data of ERDMA that no operation of a flying task uses: they are dropped (4.7)."""
    off = d.ch.pick("settings.off", ("EW_BYPASS", "EW_OP_BYPASS"))
    plan.task.set("DPU", **{off: 1, "EW_OP_SRC": d.ch.integer("settings.source", 0, 1)})


@SETTINGS.draws
def _unpredictable(d: Draw) -> Plan:
    """Sums whose operand does not take the path that silicon needs (4.7)."""
    plan = d.flying(d.any_type((INT8, INT16)), DpuWish(element="memory"))
    plan.task.set("DPU", EW_OP_TYPE=0, EW_ALU_ALGO=2, EW_MUL_PRELU=0, EW_OP_CVT_BYPASS=0, EDATA_SIZE=3)
    return plan


@SETTINGS.add()
def _cut(d: Draw, plan: Plan) -> None:
    """CLIP_TRUNCATE on ties, on sums that exceed 32 bits, and on the correction (4.2, 3.9)."""
    ch, task = d.ch, plan.task
    if in_floats(task):
        raise Refused("floats")
    if _cut_group(task):
        raise Refused("a kernel group that is not whole hangs with a live converter (4.10)")
    shift = ch.pick("settings.cut", (1, 1, 2, 3, 31))
    task.set("CORE", CLIP_TRUNCATE=shift, ROUND_TYPE=ch.integer("settings.up", 0, 1))
    task.set("DPU", OD_BYPASS=0, OW_SRC=0, OW_OP=ch.corner("settings.correction", 0, 65535))


@SETTINGS.draws
def _ties(d: Draw) -> Plan:
    """Products by powers of two that lie exactly between two results, with shifts up to 32 (4.3, 4.8)."""
    ch = d.ch
    plan = d.flying(d.any_type((INT8, INT16)), PLAIN)
    first = ch.pick("settings.first", (14, 14, ch.integer("settings.first_bits", 0, 14)))
    second = ch.pick("settings.second", (14, 14, ch.integer("settings.second_bits", 0, 14)))
    shift = first + second + ch.integer("settings.rest", 1, 4)
    plan.task.set("DPU", BS_BYPASS=0, BS_ALU_BYPASS=1, BS_MUL_BYPASS=0, BS_MUL_SRC=0, BS_MUL_PRELU=0)
    plan.task.set("DPU", BS_RELU_BYPASS=1, BS_RELUX_EN=0, BS_MUL_OPERAND=1 << first, BS_MUL_SHIFT_VALUE=0)
    plan.task.set("DPU", BS_MUL_SHIFT_VALUE_NEG=0, OUT_CVT_SCALE=1 << second, OUT_CVT_SHIFT=shift)
    plan.task.set("DPU", CVT_ROUND=ch.integer("settings.away", 0, 1), CVT_TYPE=0)
    return plan
