"""Tasks in which a block waits for ever for what another one does not give (docs/hardware.md 2.4, 4 to 7)."""

from __future__ import annotations

from collections.abc import Callable

from cosim.conformance.case import Plan
from cosim.conformance.choices import Refused
from cosim.conformance.draw_conv import ConvWish
from cosim.conformance.draw_dpu import DpuWish
from cosim.conformance.draws import Draw
from cosim.conformance.types import BF16, FP16, INT8, INT16
from cosim.crosscheck.program import Task
from rtl.regs import registers
from sw.layouts import depthwise_bytes

PLAIN = DpuWish(element="none")
SIZES = (
    ("DATA_SIZE0", "DATAIN_WIDTH"),
    ("DATA_SIZE0", "DATAIN_HEIGHT"),
    ("DATA_SIZE1", "DATAIN_CHANNEL"),
    ("DATA_SIZE2", "DATAOUT_WIDTH"),
    ("DATA_SIZE3", "DATAOUT_ATOMICS"),
    ("WEIGHT_SIZE0", "WEIGHT_BYTES"),
    ("WEIGHT_SIZE2", "WEIGHT_WIDTH"),
    ("WEIGHT_SIZE2", "WEIGHT_HEIGHT"),
    ("WEIGHT_SIZE2", "WEIGHT_KERNELS"),
)


def small_conv(d: Draw, dpu: DpuWish = PLAIN) -> Plan:
    return d.conv(ConvWish(d.any_type((INT8, FP16, INT16)), budget=400), dpu)


def _empty(d: Draw) -> Plan:
    depthwise = d.ch.chance("hang.depthwise", 0.3)
    kind = d.any_type((INT8, FP16, INT16))
    plan = d.conv(ConvWish(kind, depthwise=depthwise, budget=400), PLAIN)
    for register, name in SIZES:
        if d.ch.chance("hang.zero", 0.2) and not (depthwise and name == "WEIGHT_KERNELS"):
            plan.tasks[0].set("CNA", register, **{name: 0})
            plan.note += f"{name} is 0 "
    if not plan.note:
        raise Refused("no size is 0")
    return plan


def _no_banks(d: Draw) -> Plan:
    plan = small_conv(d)
    plan.tasks[0].set("CNA", "CBUF_CON0", WEIGHT_BANK=0)
    plan.note = "no banks for weights"
    return plan


def _long_halves(d: Draw) -> Plan:
    """Half a depthwise group of 16-bit weights that is larger than its bank, with one stripe."""
    plan = d.conv(ConvWish(d.any_type((INT16, FP16, BF16)), depthwise=True, budget=400), PLAIN)
    task = plan.tasks[0]
    channels = task.fields["CNA", "DATA_SIZE1"]["DATAIN_CHANNEL"]
    if channels <= 32 or task.fields["CNA", "DATA_SIZE3"]["DATAOUT_ATOMICS"] > 16:
        raise Refused("one half, or more than one stripe")
    rows = d.ch.pick("hang.rows", (17, 31))
    task.set("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=31, WEIGHT_HEIGHT=rows)
    task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=depthwise_bytes((channels, 31, rows), 2))
    task.set("CNA", "CBUF_CON0", WEIGHT_BANK=1)
    plan.note = "half a depthwise group is larger than its bank"
    return plan


def _footprint(d: Draw) -> Plan:
    """Features that overlap in CBUF: what is read is a matter of time, so the task is kept from ending."""
    plan = small_conv(d)
    task = plan.tasks[0]
    rows = task.fields["CNA", "DATA_SIZE0"]["DATAIN_HEIGHT"]
    entries = task.fields["CNA", "CBUF_CON1"]["DATA_ENTRIES"]
    if rows < 2:
        raise Refused("one row")
    short = d.ch.chance("hang.short", 0.6)
    entries = entries - 1 if short else 512 * 11 // (rows - 1) + d.ch.integer("hang.entries", 0, 1)
    task.set("CNA", "CBUF_CON1", DATA_ENTRIES=max(0, entries))
    task.set("CORE", "MAC_GATING", SLCG_OP_EN=d.ch.word("hang.gating", 27) & ~(1 << 24))
    plan.note = f"{rows} rows of {entries} entries, MAC_GATING bit 24 clear"
    return plan


def _more_pixels(d: Draw) -> Plan:
    plan = small_conv(d)
    task = plan.tasks[0]
    axis = d.ch.pick("hang.axis", ("WIDTH", "HEIGHT"))
    task.fields["DPU", f"DATA_CUBE_{axis}"][axis] += 1
    if "DPU_RDMA" in task.blocks:
        task.fields["DPU_RDMA", f"DATA_CUBE_{axis}"][axis] += 1
    plan.note = "the DPU wants more pixels than CORE has"
    return plan


def _more_groups(d: Draw) -> Plan:
    plan = small_conv(d)
    task = plan.tasks[0]
    for block in ("DPU", "DPU_RDMA"):
        if block in task.blocks:
            task.fields[block, "DATA_CUBE_CHANNEL"]["CHANNEL"] += 64
    plan.note = "the DPU wants more groups than CORE has"
    return plan


def _reader_cube(d: Draw) -> Plan:
    plan = d.flying(d.any_type((INT8, FP16, INT16)), PLAIN)
    register, name = d.ch.pick(
        "hang.axis", (("WIDTH", "WIDTH"), ("HEIGHT", "HEIGHT"), ("CHANNEL", "CHANNEL"))
    )
    store = plan.tasks[0].fields["DPU_RDMA", f"DATA_CUBE_{register}"]
    change = d.ch.pick("hang.change", (1, -1)) * (64 if name == "CHANNEL" else 1)
    if not 0 <= store[name] + change < 8192:
        change = abs(change)
    store[name] += change
    # Pitches may be negative: room on both sides for what is read too much.
    plan.tasks[0].address("DPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(1 << 17, "input") + (1 << 16))
    plan.note = f"the cubes of DPU and DPU_RDMA differ in {name}"
    return plan


def _no_element(d: Draw) -> Plan:
    wish = DpuWish(element="memory")
    plan = small_conv(d, wish) if d.ch.chance("hang.conv", 0.5) else d.flying(INT16, wish)
    plan.tasks[0].set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
    plan.note = "the operation's operand is not read"
    return plan


def _no_main(d: Draw) -> Plan:
    plan = d.flying(d.any_type((INT8, FP16, INT16)), PLAIN)
    plan.tasks[0].set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_DISABLE=1)
    plan.note = "the main data are not read"
    return plan


def _no_operands(d: Draw) -> Plan:
    """A stage that takes operands from memory, which nothing reads."""
    plan = small_conv(d)
    task = plan.tasks[0]
    stage, client = d.ch.pick("hang.stage", (("BS", "BRDMA"), ("BN", "NRDMA")))
    store = task.fields.setdefault(("DPU", f"{stage}_CFG"), {})
    if store.get(f"{stage}_BYPASS") or ("DPU_RDMA", f"{stage}_BASE_ADDR") in task.addresses:
        raise Refused("the stage is bypassed, or its operands are read")
    if d.ch.chance("hang.multiplier", 0.5):
        store[f"{stage}_MUL_BYPASS"] = 0
        task.fields.setdefault(("DPU", f"{stage}_MUL_CFG"), {})[f"{stage}_MUL_SRC"] = 1
    else:
        store |= {f"{stage}_ALU_BYPASS": 0, f"{stage}_ALU_SRC": 1}
    plan.note = f"nothing reads the operands of {client}"
    return plan


def _half_product(d: Draw) -> Plan:
    """A product of fp16 whose operand goes through the converter (4.7)."""
    wish = DpuWish(element="memory")
    plan = d.conv(ConvWish(FP16, budget=400), wish) if d.ch.chance("hang.conv", 0.5) else d.flying(FP16, wish)
    if plan.tasks[0].fields["DPU", "DATA_FORMAT"]["PROC_PRECISION"] != FP16.dpu:
        raise Refused("another type")
    plan.tasks[0].set("DPU", "EW_CFG", EW_OP_TYPE=1, EW_OP_CVT_BYPASS=0, EW_MUL_PRELU=0)
    plan.note = "a product of fp16 with a live converter"
    return plan


def _left_element(d: Draw) -> Plan:
    """Data of ERDMA that no operation of a convolution takes (4.7)."""
    plan = small_conv(d, DpuWish(element="memory"))
    plan.tasks[0].set("DPU", "EW_CFG", EW_OP_BYPASS=1)
    plan.note = "nothing takes the operand"
    return plan


def _combined(d: Draw) -> Plan:
    """COMB_USE of a flying task with bit 0: everything is there, and DPU_RDMA does not end (5.5)."""
    plan = d.flying(d.any_type((FP16, INT8)), PLAIN)
    plan.tasks[0].set("DPU_RDMA", "FEATURE_MODE_CFG", COMB_USE=d.ch.pick("hang.comb", (1, 3, 5, 7)))
    plan.note = "COMB_USE while flying"
    return plan


def _no_correction(d: Draw) -> Plan:
    """A flying task of integers that waits for the correction's operands (4.2)."""
    plan = d.flying(d.any_type((INT8, INT16)), PLAIN)
    task = plan.tasks[0]
    if ("DPU_RDMA", "BS_BASE_ADDR") in task.addresses:
        raise Refused("BRDMA reads something")
    task.set("DPU", "BS_OW_CFG", OW_SRC=1, OD_BYPASS=0)
    plan.note = "nothing reads the correction"
    return plan


def _other_factors(d: Draw) -> Plan:
    """NRDMA that reads nothing, for its use names an operand that BN does not have (5.3)."""
    plan = small_conv(d)
    task = plan.tasks[0]
    code = task.fields.get(("DPU_RDMA", "FEATURE_MODE_CFG"), {}).get("PROC_PRECISION", 2)
    use = task.fields.get(("DPU_RDMA", "NRDMA_CFG"), {}).get("NRDMA_DATA_USE", 0)
    if code in (2, 3, 5) or not use or task.fields["DPU", "BN_CFG"].get("BN_BYPASS"):
        raise Refused("floats, or no table")
    bn = task.fields["DPU", "BN_CFG"]
    if not bn.get("BN_ALU_SRC") and not task.fields.get(("DPU", "BN_MUL_CFG"), {}).get("BN_MUL_SRC"):
        raise Refused("BN does not wait")
    task.set("DPU_RDMA", "NRDMA_CFG", NRDMA_DATA_USE=use | 2)
    plan.note = "bit 1 of NRDMA_DATA_USE"
    return plan


def _fed(d: Draw) -> tuple[Plan, Task]:
    kind = d.any_type((INT8, INT16, FP16))
    plan = d.flying(kind, DpuWish(out=(kind,), to_ppu=True, element="none"))
    return plan, plan.tasks[0]


def _fed_cube(d: Draw) -> Plan:
    """The PPU waits for another cube than the DPU gives, or for another type."""
    plan, task = _fed(d)
    kind = d.ch.integer("hang.fed", 0, 3)
    if kind < 3:
        axis = ("WIDTH", "HEIGHT", "CHANNEL")[kind]
        store = task.fields["PPU", f"DATA_CUBE_IN_{axis}"]
        name = f"DATA_CUBE_IN_{axis}"
        store[name] += d.ch.pick("hang.change", (1, -1)) * (16 if axis == "CHANNEL" else 1)
        if not 0 <= store[name] < 8192:
            raise Refused("no such size")
        if axis == "CHANNEL":
            task.fields["PPU", "DATA_CUBE_OUT_CHANNEL"]["DATA_CUBE_OUT_CHANNEL"] = store[name]
    else:
        store = task.fields["PPU", "DATA_FORMAT"]
        store["PROC_PRECISION"] = 0 if store["PROC_PRECISION"] else d.ch.pick("hang.type", (1, 2))
    plan.note = "the PPU waits for another cube than the DPU's"
    return plan


def _no_ppu(d: Draw) -> Plan:
    plan, task = _fed(d)
    task.blocks = tuple(b for b in task.blocks if b != "PPU")
    for store in (task.fields, task.addresses):
        for key in [key for key in store if key[0] == "PPU"]:
            del store[key]
    plan.mask, plan.note = 0x300, "the PPU is not started"
    return plan


def _pool_cube(d: Draw) -> Plan:
    kind = d.any_type((INT16, FP16, INT8))
    plan = d.pool(kind)
    axis = d.ch.pick("hang.axis", ("WIDTH", "HEIGHT", "CHANNEL"))
    store = plan.tasks[0].fields["PPU_RDMA", f"CUBE_IN_{axis}"]
    store[f"CUBE_IN_{axis}"] += d.ch.pick("hang.change", (1, -1)) * (
        kind.per_atom if axis == "CHANNEL" else 1
    )
    if not 0 <= store[f"CUBE_IN_{axis}"] < 8192:
        raise Refused("no such size")
    plan.note = "the cubes of PPU and PPU_RDMA differ"
    return plan


def _other_group(d: Draw) -> Plan:
    """Slave mode: group 1 is enabled while group 0 is in turn."""
    plan = d.any_task()
    task = plan.tasks[0]
    if len(plan.tasks) > 1 or task.uploads:
        raise Refused("more than one task")
    regs = registers()
    # Not the PPU: PPU_RDMA would tell about its type against settings that the PPU does not have yet.
    # Not DPU_RDMA in a convolution, which may need none of its data and end.
    left = ("PPU", "DPU_RDMA") if "CNA" in task.blocks else ("PPU",)
    turned = d.ch.pick("hang.block", tuple(b for b in task.blocks if b not in left))
    for block in task.blocks:
        pointer = regs[block]["S_POINTER"]
        values = {"POINTER_PP_CLEAR": 1, "EXECUTER_PP_CLEAR": 1}
        plan.writes.append((pointer.offset, pointer.encode(**values)))
        if block == turned:
            plan.writes.append((pointer.offset, pointer.encode(POINTER=1)))
    plan.writes += [(offset, value) for offset, (_, value) in task.values(0).items()]
    enable = regs["GLOBAL"]["OPERATION_ENABLE"]
    plan.writes.append((enable.offset, enable.encode(**{f"{b}_OP_EN": 1 for b in task.blocks})))
    plan.slave, plan.dma_base, plan.note = True, 0, f"group 1 of {turned} is enabled, group 0 is in turn"
    return plan


def _open_rows(d: Draw) -> Plan:
    """More results of open rows than the PPU holds, in one surface or only in several together (6.9)."""
    kind = d.any_type((INT8, INT16, FP16))
    if d.ch.chance("hang.fed", 0.5):
        plan, width = d.flying(kind, DpuWish(out=(kind,), to_ppu=True, element="none")), 100
        if plan.tasks[0].fields["DPU", "DATA_CUBE_CHANNEL"]["CHANNEL"] < kind.per_atom:
            raise Refused("one surface")
    else:
        plan, width = d.pool(kind), d.ch.pick("hang.width", (129, 300, 2048))
    plan.tasks[0].set("PPU", "POOLING_KERNEL_CFG", KERNEL_HEIGHT=15)
    plan.tasks[0].set("PPU", "DATA_CUBE_OUT_WIDTH", DATA_CUBE_OUT_WIDTH=width - 1)
    return plan


KINDS: tuple[Callable[[Draw], Plan], ...] = (
    _empty,
    _no_banks,
    _long_halves,
    _footprint,
    _more_pixels,
    _more_groups,
    _reader_cube,
    _no_element,
    _no_main,
    _no_operands,
    _fed_cube,
    _no_ppu,
    _pool_cube,
    _other_group,
    _open_rows,
    _half_product,
    _left_element,
    _combined,
    _no_correction,
    _other_factors,
)


def without_end(d: Draw, kinds: tuple[Callable[[Draw], Plan], ...]) -> Plan:
    """A task that never ends, every kind in turn."""
    plan = kinds[d.index % len(kinds)](d)
    plan.hang = plan.diagnostics = plan.reset = True
    plan.facts = []
    return plan


def draw(d: Draw) -> Plan:
    """A task that waits for ever for what does not come."""
    return without_end(d, KINDS)
