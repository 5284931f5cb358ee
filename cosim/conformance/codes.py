"""Reserved codes and combinations: reported, and something defined counts instead (docs/hardware.md)."""

from __future__ import annotations

from collections.abc import Callable

from cosim.conformance.case import Plan
from cosim.conformance.choices import Refused
from cosim.conformance.draw_conv import ConvWish
from cosim.conformance.draw_dpu import DpuWish
from cosim.conformance.draws import Draw
from cosim.conformance.types import BF16, FP16, INT4, INT8, INT16
from cosim.conformance.waits import small_conv
from cosim.crosscheck.program import Task

PLAIN = DpuWish(element="none")


def _conv(d: Draw) -> tuple[Plan, Task, int]:
    """A small convolution, its task and its type's code."""
    plan = small_conv(d)
    task = plan.tasks[0]
    return plan, task, task.fields["CNA", "CONV_CON1"]["IN_PRECISION"]


def _proc(d: Draw) -> Plan:
    plan, task, code = _conv(d)
    task.set("CNA", "CONV_CON1", PROC_PRECISION=(code + d.ch.integer("codes.proc", 1, 7)) % 8)
    return plan


def _core(d: Draw) -> Plan:
    plan, task, code = _conv(d)
    if code:  # another type of the same octets, so that the DPU's group stays CORE's
        task.set("CORE", "MISC_CFG", PROC_PRECISION=d.ch.pick("codes.core", (3 - code, 3)))
    else:
        task.set("CORE", "MISC_CFG", PROC_PRECISION=d.ch.pick("codes.core", (4, 5)))
    return plan


def _unknown_type(d: Draw) -> Plan:
    plan = d.conv(ConvWish(INT8, budget=400), PLAIN)
    code = d.ch.pick("codes.type", (4, 5))
    plan.tasks[0].set("CNA", "CONV_CON1", IN_PRECISION=code, PROC_PRECISION=code)
    if d.ch.chance("codes.core_too", 0.5):
        plan.tasks[0].set("CORE", "MISC_CFG", PROC_PRECISION=code)
    return plan


def _mode(d: Draw) -> Plan:
    plan, task, _ = _conv(d)
    task.set("CNA", "CONV_CON1", CONV_MODE=d.ch.pick("codes.mode", (1, 2, 4, 5, 8, 12, 15)))
    return plan


def _argb(d: Draw) -> Plan:
    plan, task, _ = _conv(d)
    others = (12, 7, 1, 2, 3, 4, 5, 6, 13, 14, 15)
    task.set("CNA", "CONV_CON1", ARGB_IN=others[d.index // len(_KINDS) % len(others)])
    return plan


def _stride(d: Draw) -> Plan:
    plan, task, _ = _conv(d)
    name = ("CONV_Y_STRIDE", "CONV_X_STRIDE")[d.index // len(_KINDS) % 2]
    if task.fields["CNA", "CONV_CON3"][name] != 1:
        raise Refused("the stride is not 1")
    task.set("CNA", "CONV_CON3", **{name: 0})
    return plan


def _converter(d: Draw) -> Plan:
    plan, task, _ = _conv(d)
    task.set("CNA", "CVT_CON0", CVT_BYPASS=0)
    return plan


def _algorithm(d: Draw) -> Plan:
    plan, task, _ = _conv(d)
    turn = d.index // len(_KINDS)
    stage = ("BS", "BN")[turn % 2]
    if task.fields["DPU", f"{stage}_CFG"].get(f"{stage}_BYPASS"):
        raise Refused("the stage is bypassed")
    codes = (15, 0, 1, 3, 5, 6, 7, 8, 12, 15) if turn > 1 else (15,)  # every bit early on
    task.set("DPU", f"{stage}_CFG", **{f"{stage}_ALU_ALGO": d.ch.pick("codes.algo", codes)})
    return plan


def _element(d: Draw) -> Plan:
    plan = d.conv(ConvWish(d.any_type((INT8, FP16)), budget=400), DpuWish(element="register"))
    integer = plan.tasks[0].fields["DPU", "DATA_FORMAT"]["PROC_PRECISION"] not in (2, 3, 5)
    codes = (3, 7, 8, 9, 15) if integer else (9, 10, 12, 15)
    plan.tasks[0].set("DPU", "EW_CFG", EW_ALU_ALGO=d.ch.pick("codes.ew", codes))
    return plan


def _narrow(d: Draw) -> Plan:
    plan = d.conv(ConvWish(d.any_type((INT8, FP16, BF16)), budget=400), DpuWish(element="none", out=(FP16,)))
    plan.tasks[0].set("DPU", "OUT_CVT_SCALE", FP32TOFP16_EN=0)
    return plan


def _float_converter(d: Draw) -> Plan:
    plan = d.conv(ConvWish(d.any_type((FP16, BF16)), budget=400), PLAIN)
    task = plan.tasks[0]
    settings = (
        ("OUT_CVT_SCALE", "OUT_CVT_SCALE", 16),
        ("OUT_CVT_OFFSET", "OUT_CVT_OFFSET", 32),
        ("OUT_CVT_SHIFT", "OUT_CVT_SHIFT", 6),
    )
    turn = d.index // len(_KINDS) % (len(settings) + 1)
    for number, (register, name, bits) in enumerate(settings):  # one at a time: two are of one register
        if turn in (number, len(settings)):
            task.set("DPU", register, **{name: d.ch.word(f"codes.{name}_value", bits)})
    return plan


def _float_operand(d: Draw) -> Plan:
    plan = d.flying(d.any_type((FP16, BF16)), DpuWish(element="memory"))
    task = plan.tasks[0]
    half = task.fields["DPU", "DATA_FORMAT"]["PROC_PRECISION"] == FP16.dpu
    if half and task.fields["DPU", "EW_CFG"]["EW_OP_TYPE"]:
        raise Refused("such a product never ends")
    task.set("DPU", "EW_CFG", EW_OP_CVT_BYPASS=0)
    task.set("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=d.ch.word("codes.scale", 16))
    task.set("DPU", "EW_CVT_OFFSET_VALUE", EW_OP_CVT_OFFSET=d.ch.word("codes.offset", 32))
    return plan


def _gates(d: Draw) -> Plan:
    plan, task, _ = _conv(d)
    gates = d.ch.pick("codes.gates", (1 << 11, 1 << 23, 1 << 11 | 1 << 23, 0))
    others = d.ch.integer("codes.other_gates", 0, (1 << 27) - 1)
    task.set("CORE", "MAC_GATING", SLCG_OP_EN=(others | 1 << 24 | 1 << 11 | 1 << 23) & ~gates)
    return plan


def _combined(d: Draw) -> Plan:
    plan = d.flying(d.any_type((FP16, INT8)), PLAIN)
    plan.tasks[0].set("DPU_RDMA", "FEATURE_MODE_CFG", COMB_USE=2 * d.ch.integer("codes.comb", 1, 3))
    plan.tasks[0].set("DPU", "FEATURE_MODE_CFG", COMB_USE=d.ch.integer("codes.comb_dpu", 0, 1))
    return plan


def _widen(d: Draw) -> Plan:
    plan = d.flying(d.any_type((FP16, BF16)), PLAIN)
    plan.tasks[0].set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_FP16TOFP32_EN=0)
    return plan


def _deconv(d: Draw) -> Plan:
    plan = d.conv(ConvWish(d.any_type((INT8, INT4, FP16)), deconv=True, budget=400), PLAIN)
    name = d.ch.pick("codes.deconv", ("DECONV_Y_STRIDE", "DECONV_X_STRIDE"))
    plan.tasks[0].set("CNA", "CONV_CON3", **{name: d.ch.pick("codes.zeros", (2, 4, 5, 6))})
    return plan


def _tables(d: Draw) -> Plan:
    plan = d.flying(d.any_type((INT8, INT16, FP16)), PLAIN)
    task = plan.tasks[0]
    clients = (("BRDMA", "BS"), ("NRDMA", "BN"))
    idle = [c for c, a in clients if ("DPU_RDMA", f"{a}_BASE_ADDR") not in task.addresses]
    turn = d.index // len(_KINDS)
    client = ("BRDMA", "NRDMA")[turn % 2]
    if client not in idle:
        raise Refused("the reader has work to do")
    use = d.ch.pick("codes.use", (15, 8, *range(1, 16)) if turn > 1 else (15,))  # every bit early on
    disable = d.ch.integer("codes.disable", int(turn < 2), 1)
    task.set("DPU_RDMA", f"{client}_CFG", **{f"{client}_DATA_USE": use, f"{client}_DISABLE": disable})
    place = d.arena.alloc(64 * 64, f"{client} not needed")
    task.address("DPU_RDMA", "BS_BASE_ADDR" if client == "BRDMA" else "BN_BASE_ADDR", place)
    return plan


def _reuse(d: Draw) -> Plan:
    """More weights than the ring holds, all of which count as present (2.6)."""
    plan = d.weight_reuse()
    size = plan.tasks[1].fields["CNA", "WEIGHT_SIZE0"]["WEIGHT_BYTES"]
    if d.ch.chance("codes.ring", 0.4):  # as much as the ring holds, or a byte more
        ring = 32768 * plan.tasks[1].fields["CNA", "CBUF_CON0"]["WEIGHT_BANK"]
        more = d.ch.integer("codes.more", 0, 1)
        plan.tasks[1].set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=max(size, ring + more))
        return plan
    plan.tasks[1].set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=d.ch.corner("codes.bytes", size, (1 << 32) - 1))
    return plan


def _operand_mode(d: Draw) -> Plan:
    plan = d.flying(d.any_type((INT8, INT16)), DpuWish(element="memory"))
    task = plan.tasks[0]
    if task.fields["DPU_RDMA", "ERDMA_CFG"]["ERDMA_DATA_MODE"] != 1:
        raise Refused("not per pixel")
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=d.ch.integer("codes.operand_mode", 2, 3))
    return plan


def _lut(d: Draw) -> Plan:
    plan = d.flying(d.any_type((INT8, INT16)), DpuWish(element="lut"))
    task, ch = plan.tasks[0], d.ch
    kind = ch.integer("codes.lut", 0, 4)
    if kind < 3:
        name = ("LUT_CAL_SEL", "LUT_EXPAND_EN", "LUT_ROAD_SEL")[kind]
        task.set("DPU", "LUT_CFG", **{name: 1})
    elif kind == 3:
        task.set("DPU", "LUT_CFG", LUT_LO_LE_MUX=ch.pick("codes.mux", (0, 1, 3)))
    else:
        table = ch.pick("codes.table", ("LE", "LO"))
        task.set("DPU", "LUT_INFO", **{f"LUT_{table}_INDEX_SELECT": ch.corner("codes.select", 23, 255)})
    return plan


def _unaligned(d: Draw) -> Plan:
    plan = d.any_task()
    if d.ch.chance("codes.operands", 0.5):
        plan = d.flying(d.any_type((INT8, FP16)), DpuWish(element="memory"))
    task = plan.tasks[0]
    names = [("CNA", "FEATURE_DATA_ADDR"), ("DPU_RDMA", "SRC_BASE_ADDR"), ("DPU_RDMA", "BS_BASE_ADDR")]
    names += [("DPU_RDMA", "BN_BASE_ADDR"), ("DPU_RDMA", "EW_BASE_ADDR"), ("PPU_RDMA", "SRC_BASE_ADDR")]
    names = [name for name in names if name in task.addresses]
    if not names:
        raise Refused("no address of that width")
    for name in names:
        if len(names) == 1 or d.ch.chance("codes.address", 0.7):
            task.addresses[name] += 15 if d.ch.chance("codes.last", 0.5) else d.ch.integer("codes.low", 1, 15)
    return plan


def _base(d: Draw) -> Plan:
    plan = d.any_task()
    plan.dma_base = 32 * d.ch.word("codes.base", 27) + 16
    return plan


def _pool(d: Draw) -> Plan:
    plan = d.pool(INT8)
    task, ch = plan.tasks[0], d.ch
    kind = ch.integer("codes.pool", 0, 3)
    if kind == 0:
        task.set("PPU", "OPERATION_MODE_CFG", POOLING_METHOD=3)
    elif kind == 1:
        task.set("PPU", "DATA_FORMAT", PROC_PRECISION=ch.integer("codes.ppu_type", 3, 7))
    elif kind == 2:
        task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=ch.pick("codes.ppu_width", (0, 3)))
    else:
        task.set("PPU", "DATA_CUBE_OUT_CHANNEL", DATA_CUBE_OUT_CHANNEL=ch.word("codes.ppu_channels", 13))
    return plan


_KINDS: tuple[Callable[[Draw], Plan], ...] = (
    _proc,
    _core,
    _unknown_type,
    _mode,
    _argb,
    _stride,
    _converter,
    _algorithm,
    _element,
    _narrow,
    _float_converter,
    _float_operand,
    _gates,
    _combined,
    _widen,
    _deconv,
    _tables,
    _reuse,
    _operand_mode,
    _lut,
    _unaligned,
    _base,
    _pool,
)


def draw(d: Draw) -> Plan:
    """A task with a reserved code, every kind in turn."""
    kind = _KINDS[d.index % len(_KINDS)]
    plan = kind(d)
    plan.reset |= kind is _gates
    plan.diagnostics, plan.facts = True, []
    plan.note = f"reserved code: {kind.__name__.strip('_')}"
    return plan
