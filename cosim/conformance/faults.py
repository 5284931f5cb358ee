"""Faulty kicks: configurations that hang, addresses that are not mapped, malformed lists."""

from __future__ import annotations

from collections.abc import Callable

from cosim.conformance.case import Plan
from cosim.conformance.choices import Refused
from cosim.conformance.draw_conv import ConvWish
from cosim.conformance.draw_dpu import DpuWish
from cosim.conformance.draws import Draw
from cosim.conformance.types import INT8
from cosim.conformance.waits import small_conv, without_end
from cosim.crosscheck.program import Task
from rtl.regs import registers
from sw.regcmd import pack_word, register_word

UNMAPPED = 0x7000_0000


def _with_rdma(d: Draw) -> tuple[Plan, Task]:
    """A small convolution whose task has DPU_RDMA."""
    plan = small_conv(d)
    task = plan.tasks[0]
    if "DPU_RDMA" not in task.blocks:
        raise Refused("the draw has no DPU_RDMA")
    return plan, task


# -- hangs -----------------------------------------------------------------------------------------


def _hang_mrdma(d: Draw) -> Plan:
    plan, task = _with_rdma(d)
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_DISABLE=0)
    task.address("DPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(1 << 17, "MRDMA not needed"))
    plan.note = "MRDMA left on in a plain convolution"
    return plan


def _hang_erdma(d: Draw) -> Plan:
    plan, task = _with_rdma(d)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=0, ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=1)
    task.address("DPU_RDMA", "EW_BASE_ADDR", d.arena.alloc(1 << 15, "ERDMA not needed"))
    task.fields.get(("DPU_RDMA", "DATA_CUBE_HEIGHT"), {}).pop("EW_LINE_NOTCH_ADDR", None)
    plan.note = "ERDMA left on without an operation that takes its data"
    return plan


def _hang_weights(d: Draw) -> Plan:
    plan = small_conv(d)
    size = plan.tasks[0].fields["CNA", "WEIGHT_SIZE0"]["WEIGHT_BYTES"]
    plan.tasks[0].set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=max(0, size - 64))
    plan.note = "fewer weights than the loops take"
    return plan


def _hang_group(d: Draw) -> Plan:
    plan = d.conv(ConvWish(INT8, streamed=True, budget=4000), DpuWish(element="none"))
    task = plan.tasks[0]
    pixels = task.fields["CNA", "DATA_SIZE3"]["DATAOUT_ATOMICS"]
    kernel = task.fields["CNA", "WEIGHT_SIZE2"]
    taps = kernel["WEIGHT_WIDTH"] * kernel["WEIGHT_HEIGHT"]
    channels = -(-task.fields["CNA", "DATA_SIZE1"]["DATAIN_CHANNEL"] // 16) * 16
    if pixels <= 16 or 32 * taps * channels <= 32768:
        raise Refused("a kernel group fits one bank, or there is one stripe only")
    task.set("CNA", "CBUF_CON0", WEIGHT_BANK=1)
    plan.note = "a kernel group larger than its banks, more than one stripe"
    return plan


def _hang_type(d: Draw) -> Plan:
    plan = small_conv(d)
    task = plan.tasks[0]
    now = task.fields["DPU", "DATA_FORMAT"]["IN_PRECISION"]
    task.set("DPU", "DATA_FORMAT", IN_PRECISION=1 if now == 0 else 0, PROC_PRECISION=0)
    task.set("DPU", "FEATURE_MODE_CFG", CONV_MODE=0)
    plan.note = "the DPU's group is not CORE's"
    return plan


def _hang_size_e(d: Draw) -> Plan:
    plan = small_conv(d)
    task = plan.tasks[0]
    now = task.fields["DPU", "BS_OW_CFG"]
    if now["OD_BYPASS"]:
        raise Refused("the converter is bypassed")
    value = (now["SIZE_E_1"] + 1) % 8
    task.set("DPU", "BS_OW_CFG", SIZE_E_0=value, SIZE_E_1=value, SIZE_E_2=value)
    # Strides may be negative: room on both sides for what is written in other places.
    task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "output") + (1 << 16))
    plan.note = "SIZE_E is not the group's with a live converter"
    return plan


def _most(d: Draw, low: int, high: int) -> int:
    """A number of a range, the greatest in the first round of kinds."""
    return d.ch.corner("hang.size", high if d.index < len(_HANGS) else low, high)


def _hang_gating(d: Draw) -> Plan:
    plan = small_conv(d)
    plan.tasks[0].set("CORE", "MAC_GATING", SLCG_OP_EN=d.ch.word("hang.gating", 27) & ~(1 << 24))
    plan.note = "MAC_GATING bit 24 clear"
    return plan


def _hang_pixels(d: Draw) -> Plan:
    plan = _hang_gating(d)
    plan.tasks[0].set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=_most(d, 17, (1 << 22) - 1))
    plan.tasks[0].set("CNA", "DATA_SIZE2", DATAOUT_WIDTH=d.ch.corner("hang.width", 1, 2047))
    plan.tasks[0].set("CNA", "WEIGHT_SIZE2", WEIGHT_KERNELS=_most(d, 1, (1 << 14) - 1))
    plan.note = "MAC_GATING bit 24 clear, more pixels than the DPU wants"
    return plan


def _hang_open_rows(d: Draw) -> Plan:
    plan = d.pool(INT8)
    task = plan.tasks[0]
    for block, name in (("PPU", "DATA_CUBE_IN_WIDTH"), ("PPU_RDMA", "CUBE_IN_WIDTH")):
        task.put(block, name, 8191)
    task.put("PPU", "DATA_CUBE_OUT_WIDTH", _most(d, 2048, 8191))
    plan.note = "more open rows than the PPU holds"
    return plan


def _hang_core(d: Draw) -> Plan:
    plan = small_conv(d)
    pointer = registers()["CNA"]["S_POINTER"]
    flags = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
    plan.writes.append((pointer.offset, pointer.encode(CORE_INDEX=d.ch.integer("hang.core", 1, 2), **flags)))
    if d.ch.chance("hang.core_too", 0.5):
        pointer = registers()["CORE"]["S_POINTER"]
        other = d.ch.integer("hang.core_index", 1, 3)
        plan.writes.append((pointer.offset, pointer.encode(CORE_INDEX=other, **flags)))
    plan.note = "CNA waits for another core's index"
    return plan


def _hang_alone(d: Draw) -> Plan:
    plan = small_conv(d)
    task = plan.tasks[0]
    gone = d.ch.pick("hang.missing", ("CORE", "DPU"))
    task.blocks = tuple(b for b in task.blocks if b != gone and not (gone == "DPU" and b == "DPU_RDMA"))
    for store in (task.fields, task.addresses):
        for key in [key for key in store if key[0] not in task.blocks]:
            del store[key]
    plan.mask, plan.note = 0x300, f"{gone} is not started"
    return plan


def _hang_combined(d: Draw) -> Plan:
    plan = d.conv(ConvWish(INT8, budget=400), DpuWish(element="combined"))
    task = plan.tasks[0]
    if d.ch.chance("hang.mrdma", 0.5):
        task.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_DISABLE=1)
    else:
        task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
    plan.note = "COMB_USE 5 with one reader off"
    return plan


def _hang_pool(d: Draw) -> Plan:
    plan = d.pool(INT8)
    task = plan.tasks[0]
    axis = d.ch.pick("hang.axis", ("WIDTH", "HEIGHT"))
    task.put(
        "PPU_RDMA",
        f"CUBE_IN_{axis}",
        0 if task.fields["PPU_RDMA", f"CUBE_IN_{axis}"][f"CUBE_IN_{axis}"] else 1,
    )
    if task.fields["PPU_RDMA", f"CUBE_IN_{axis}"][f"CUBE_IN_{axis}"]:
        raise Refused("more data than the PPU takes")
    plan.note = "PPU_RDMA reads less than the PPU wants"
    return plan


_HANGS: tuple[Callable[[Draw], Plan], ...] = (
    _hang_mrdma,
    _hang_erdma,
    _hang_weights,
    _hang_group,
    _hang_type,
    _hang_size_e,
    _hang_gating,
    _hang_pixels,
    _hang_open_rows,
    _hang_core,
    _hang_alone,
    _hang_combined,
    _hang_pool,
)


def hang(d: Draw) -> Plan:
    """A task with settings that silicon hangs on."""
    return without_end(d, _HANGS)


# -- memory errors -----------------------------------------------------------------------------------


def unmapped(d: Draw) -> Plan:
    """A task one of whose addresses is not mapped."""
    plan = d.any_task()
    task = plan.tasks[0]
    names = [name for name in task.addresses if not name[1].startswith("LUT")]
    block, register = names[d.ch.integer("unmapped.which", 0, len(names) - 1)]
    task.address(block, register, UNMAPPED + 0x1000 * d.ch.integer("unmapped.page", 0, 255))
    plan.diagnostics = plan.reset = plan.fault = True
    plan.reads = [registers()[b]["CFG_ID_ERROR"].offset for b in ("DDMA", "SDMA")]
    if d.ch.chance("unmapped.mask", 0.5):  # the error raises the line itself
        plan.mask = task.interrupt_mask() | 0x3000
    plan.facts, plan.note = [], f"{block}.{register} is not mapped"
    return plan


# -- lists -------------------------------------------------------------------------------------------


def malformed(d: Draw) -> Plan:
    """A command list with a bad word, too short, or without what it needs."""
    ch = d.ch
    plan = d.any_task()
    kind = ch.integer("malformed.kind", 0, 5)
    plan.diagnostics = plan.reset = True
    plan.facts = []
    if kind == 0:
        plan.number, plan.hang = ch.corner("malformed.number", 2, 4095), True
        plan.note = "a link is missing with tasks left"
    elif kind == 1:
        plan.words.append((0, -1, 0))
        plan.hang, plan.note = True, "no op-enable word"
    elif kind == 2:
        plan.tasks[0].uploads.append(
            pack_word(ch.pick("malformed.target", (0x0007, 0x4001, 0x0003)), 5, 0x4050)
        )
        plan.note = "unknown target bits"
    elif kind == 3:
        plan.tasks[0].uploads.append(pack_word(0x1001, ch.word("malformed.value", 32), 0x1010))
        plan.note = "offset outside the target's window"
    elif kind == 4:
        plan.number, plan.hang, plan.note = 0, True, "TASK_NUMBER 0"
    else:
        pc = registers()["PC"]
        plan.tasks[0].uploads.append(register_word(pc["BASE_ADDRESS"], UNMAPPED | 1))
        plan.note = "a link with PC_SEL = 1"
    return plan
