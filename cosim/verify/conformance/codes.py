"""Reserved codes and combinations: reported, and replaced by defined behaviour (docs/reference)."""

from __future__ import annotations

from rkcosim.spec.types import BANK_BYTES, BF16, DPU_TYPES, FP16, FP32, INT4, INT8, INT16, INT32, TF32
from rkcosim.verify.conformance import values
from rkcosim.verify.conformance.arena import UNMAPPED
from rkcosim.verify.conformance.case import Plan
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.dpu import in_floats
from rkcosim.verify.conformance.draw_dpu import DpuWish
from rkcosim.verify.conformance.draws import COMMON, PLAIN, Draw, Kinds, conv_of, fly, small_conv

OCTETS = 1 << 11 | 1 << 23
"""Bits of MAC_GATING without which octets of the array are not clocked (3.8)."""

CODES = Kinds("reserved code: ", diagnostics=True)


@CODES.add()
def _proc(d: Draw, plan: Plan) -> None:
    code = plan.task.get("CNA", "IN_PRECISION") + d.ch.integer("codes.proc", 1, 7)
    plan.task.set("CNA", PROC_PRECISION=code % 8)


@CODES.add()
def _core(d: Draw, plan: Plan) -> None:
    code = plan.task.get("CNA", "IN_PRECISION")
    # Another type with the same octets, so that the DPU's group is still CORE's.
    plan.task.set("CORE", PROC_PRECISION=d.ch.pick("codes.core", (3 - code, 3) if code else (4, 5)))


@CODES.add(conv_of((INT8,), PLAIN, budget=400))
def _unknown_type(d: Draw, plan: Plan) -> None:
    code = d.ch.pick("codes.type", (4, 5))
    plan.task.set("CNA", IN_PRECISION=code, PROC_PRECISION=code)
    if d.ch.chance("codes.core_too", 0.5):
        plan.task.set("CORE", PROC_PRECISION=code)


CODES.sets("mode", small_conv, "CNA", CONV_MODE=lambda ch: ch.pick("codes.mode", (1, 2, 4, 5, 8, 12, 15)))


@CODES.add()
def _argb(d: Draw, plan: Plan) -> None:
    others = (12, 7, 1, 2, 3, 4, 5, 6, 13, 14, 15)
    plan.task.set("CNA", ARGB_IN=others[d.turn % len(others)])


@CODES.add()
def _stride(d: Draw, plan: Plan) -> None:
    name = ("CONV_Y_STRIDE", "CONV_X_STRIDE")[d.turn % 2]
    if plan.task.get("CNA", name) != 1:
        raise Refused("the stride is not 1")
    plan.task.set("CNA", **{name: 0})


CODES.sets("converter", conv_of((INT16, FP16, INT4, BF16, TF32), PLAIN, budget=400), "CNA", CVT_BYPASS=0)


@CODES.add()
def _algorithm(d: Draw, plan: Plan) -> None:
    stage = ("BS", "BN")[d.turn % 2]
    if plan.task.get("DPU", f"{stage}_BYPASS"):
        raise Refused("the stage is bypassed")
    codes = (15, 0, 1, 3, 5, 6, 7, 8, 12, 15) if d.turn > 1 else (15,)  # every bit in early turns
    plan.task.set("DPU", **{f"{stage}_ALU_ALGO": d.ch.pick("codes.algo", codes)})


@CODES.add(conv_of((INT8, FP16), DpuWish(element="register"), budget=400))
def _element(d: Draw, plan: Plan) -> None:
    codes = (9, 10, 12, 15) if in_floats(plan.task) else (3, 7, 8, 9, 15)
    plan.task.set("DPU", EW_ALU_ALGO=d.ch.pick("codes.ew", codes))


@CODES.add(fly((FP16, FP32, BF16), "register"))
def _narrowed_quotient(d: Draw, plan: Plan) -> None:
    """A division whose result is narrowed as if it were binary32 (7.10)."""
    task = plan.task
    if task.get("DPU", "OUT_PRECISION") != FP16.dpu_code:
        raise Refused("the output is not fp16")
    task.set("DPU", EW_BYPASS=0, EW_OP_BYPASS=0, EW_OP_TYPE=0, EW_ALU_ALGO=3, EW_BINARY_EN=0, FP32TOFP16_EN=1)


@CODES.add(fly((INT8, INT32, FP16, BF16, FP32), "register"))
def _binary(d: Draw, plan: Plan) -> None:
    """EW_BINARY_EN of an operation other than a comparison, and of floats (7.8)."""
    task = plan.task
    if task.get("DPU", "EW_BYPASS") or task.get("DPU", "EW_OP_BYPASS"):
        raise Refused("no operation")
    algorithm = d.ch.integer("codes.comparison", 0, 1) if in_floats(task) else 2
    task.set("DPU", EW_OP_TYPE=d.ch.integer("codes.product", 0, 1), EW_BINARY_EN=1)
    task.set("DPU", EW_ALU_ALGO=algorithm, EW_TRUNCATE=0, EW_TRUNCATE_NEG=0)
    if task.get("DPU", "OUT_PRECISION") == FP16.dpu_code:
        task.set("DPU", FP32TOFP16_EN=1)


@CODES.add(fly((FP16, BF16, FP32, FP16, BF16, FP32, INT8, INT16, INT32), "register"))
def _equal_operands(d: Draw, plan: Plan) -> None:
    """Comparisons of values with operands that they often equal (7.8)."""
    task = plan.task
    if task.get("DPU_RDMA", "COMB_USE"):
        raise Refused("two readers")
    kind = DPU_TYPES[task.get("DPU", "IN_PRECISION")]
    place = task.addresses["DPU_RDMA", "SRC_BASE_ADDR"]
    address, size = next((at, size) for at, size, _ in d.arena.names if at <= place < at + size)
    data, words = values.alike(d.ch, "codes.alike", kind, size * 8 // kind.bits)
    d.arena.placed.append((address, data))
    for number, word in enumerate(words):
        task.set("DPU", **{f"EW_OPERAND_{number}": word})
    task.set("DPU", BS_BYPASS=1, BN_BYPASS=1, EW_BYPASS=0, EW_OP_BYPASS=0, EW_LUT_BYPASS=1, EW_OP_SRC=0)
    task.set("DPU", EW_OP_TYPE=0, EW_ALU_ALGO=d.ch.integer("codes.compared", 0, 1), EW_BINARY_EN=1)
    task.set("DPU", EW_RELU_BYPASS=1, EW_RELUX_EN=0)
    if in_floats(task):
        task.set("DPU_RDMA", MRDMA_FP16TOFP32_EN=int(kind is not FP32))
        if task.get("DPU", "OUT_PRECISION") == FP16.dpu_code:
            task.set("DPU", FP32TOFP16_EN=1)


@CODES.add(fly((FP16, BF16, FP32), "memory"))
def _raw_operand(d: Draw, plan: Plan) -> None:
    """16-bit operands of floats that do not pass the converter: their bits are taken as they are (7.8)."""
    task = plan.task
    task.set("DPU", EW_OP_TYPE=0, EW_ALU_ALGO=d.ch.pick("codes.pair", (0, 1, 2, 4)), EDATA_SIZE=2)
    task.set("DPU", EW_OP_CVT_BYPASS=1, FP32TOFP16_EN=1)


@CODES.add(conv_of((FP16, BF16), PLAIN, budget=400))
def _float_converter(d: Draw, plan: Plan) -> None:
    settings = {"OUT_CVT_SCALE": 16, "OUT_CVT_OFFSET": 32, "OUT_CVT_SHIFT": 6}
    turn = d.turn % (len(settings) + 1)
    for number, (name, bits) in enumerate(settings.items()):  # one at a time: two are in one register
        if turn in (number, len(settings)):
            plan.task.set("DPU", **{name: d.ch.word(f"codes.{name}_value", bits)})


@CODES.add(fly((FP16, BF16), "memory"))
def _float_operand(d: Draw, plan: Plan) -> None:
    task = plan.task
    if task.get("DPU", "PROC_PRECISION") != BF16.dpu_code and task.get("DPU", "EW_OP_TYPE"):
        raise Refused("such a product never ends")
    scale, offset = d.ch.word("codes.scale", 16), d.ch.word("codes.offset", 32)
    task.set("DPU", EW_OP_CVT_BYPASS=0, EW_OP_CVT_SCALE=scale, EW_OP_CVT_OFFSET=offset)


@CODES.add()
def _gates(d: Draw, plan: Plan) -> None:
    gates = d.ch.pick("codes.gates", (1 << 11, 1 << 23, OCTETS, 0))
    others = d.ch.integer("codes.other_gates", 0, (1 << 27) - 1)
    plan.task.set("CORE", SLCG_OP_EN=(others | 1 << 24 | OCTETS) & ~gates)
    plan.reset = True


@CODES.add(fly((FP16, INT8)))
def _combined(d: Draw, plan: Plan) -> None:
    plan.task.set("DPU_RDMA", COMB_USE=2 * d.ch.integer("codes.comb", 1, 3))
    plan.task.set("DPU", COMB_USE=d.ch.integer("codes.comb_dpu", 0, 1))


CODES.sets("widen", fly((BF16,)), "DPU_RDMA", MRDMA_FP16TOFP32_EN=0)


@CODES.add(conv_of((INT8, INT4, FP16), PLAIN, deconv=True, budget=400))
def _deconv(d: Draw, plan: Plan) -> None:
    name = d.ch.pick("codes.deconv", ("DECONV_Y_STRIDE", "DECONV_X_STRIDE"))
    plan.task.set("CNA", **{name: d.ch.pick("codes.zeros", (2, 4, 5, 6))})


@CODES.add(fly(COMMON))
def _tables(d: Draw, plan: Plan) -> None:
    client, stage = (("BRDMA", "BS"), ("NRDMA", "BN"))[d.turn % 2]
    base = ("DPU_RDMA", f"{stage}_BASE_ADDR")
    if base in plan.task.addresses:
        raise Refused("the reader has work to do")
    use = d.ch.pick("codes.use", (15, 8, *range(1, 16)) if d.turn > 1 else (15,))  # every bit in early turns
    disable = d.ch.integer("codes.disable", int(d.turn < 2), 1)
    plan.task.set("DPU_RDMA", **{f"{client}_DATA_USE": use, f"{client}_DISABLE": disable})
    # If nothing is read, the data need not exist.
    nowhere = (disable or not use & 7) and d.ch.chance("codes.nowhere", 0.5)
    plan.task.address(*base, UNMAPPED if nowhere else d.arena.alloc(64 * 64, f"{client} not needed"))


@CODES.add(Draw.weight_reuse)
def _reuse(d: Draw, plan: Plan) -> None:
    """More weights than the ring holds; all of them count as present (2.6)."""
    task = plan.tasks[1]
    size = task.get("CNA", "WEIGHT_BYTES")
    if d.ch.chance("codes.ring", 0.4):  # exactly what the ring holds, or a byte more
        ring = BANK_BYTES * task.get("CNA", "WEIGHT_BANK")
        task.set("CNA", WEIGHT_BYTES=max(size, ring + d.ch.integer("codes.more", 0, 1)))
    else:
        task.set("CNA", WEIGHT_BYTES=d.ch.corner("codes.bytes", size, (1 << 32) - 1))


@CODES.add(fly((INT8, INT16), "memory"))
def _operand_mode(d: Draw, plan: Plan) -> None:
    if plan.task.get("DPU_RDMA", "ERDMA_DATA_MODE") != 1:
        raise Refused("not per pixel")
    plan.task.set("DPU_RDMA", ERDMA_DATA_MODE=d.ch.integer("codes.operand_mode", 2, 3))


@CODES.add(fly((INT8, INT16), "lut"))
def _lut(d: Draw, plan: Plan) -> None:
    ch = d.ch
    kind = ch.integer("codes.lut", 0, 4)
    if kind < 3:
        plan.task.set("DPU", **{("LUT_CAL_SEL", "LUT_EXPAND_EN", "LUT_ROAD_SEL")[kind]: 1})
    elif kind == 3:
        plan.task.set("DPU", LUT_LO_LE_MUX=ch.pick("codes.mux", (0, 1, 3)))
    else:
        table = ch.pick("codes.table", ("LE", "LO"))
        plan.task.set("DPU", **{f"LUT_{table}_INDEX_SELECT": ch.corner("codes.select", 23, 255)})


@CODES.draws
def _unaligned(d: Draw) -> Plan:
    plan = d.any_task()
    if d.ch.chance("codes.operands", 0.5):
        plan = fly((INT8, FP16), "memory")(d)
    places = plan.task.addresses
    names = [("CNA", "FEATURE_DATA_ADDR"), ("DPU_RDMA", "SRC_BASE_ADDR"), ("DPU_RDMA", "BS_BASE_ADDR")]
    names += [("DPU_RDMA", "BN_BASE_ADDR"), ("DPU_RDMA", "EW_BASE_ADDR"), ("PPU_RDMA", "SRC_BASE_ADDR")]
    names = [name for name in names if name in places]
    if not names:
        raise Refused("no address of that width")
    for name in names:
        if len(names) == 1 or d.ch.chance("codes.address", 0.7):
            places[name] += 15 if d.ch.chance("codes.last", 0.5) else d.ch.integer("codes.low", 1, 15)
    return plan


@CODES.add(Draw.any_task)
def _base(d: Draw, plan: Plan) -> None:
    plan.dma_base = 32 * d.ch.word("codes.base", 27) + 16


@CODES.add(lambda d: d.pool(INT8))
def _pool(d: Draw, plan: Plan) -> None:
    task, ch = plan.task, d.ch
    kind = ch.integer("codes.pool", 0, 3)
    if kind == 0:
        task.set("PPU", POOLING_METHOD=3)
    elif kind == 1:
        task.set("PPU", PROC_PRECISION=ch.integer("codes.ppu_type", 3, 7))
    elif kind == 2:
        task.set("PPU_RDMA", IN_PRECISION=ch.pick("codes.ppu_width", (0, 3)))
    else:
        task.set("PPU", DATA_CUBE_OUT_CHANNEL=ch.word("codes.ppu_channels", 13))
