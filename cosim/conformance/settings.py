"""Settings that contradict each other or name nothing, and all the same give something defined."""

from __future__ import annotations

from collections.abc import Callable

from cosim.conformance.case import Plan
from cosim.conformance.choices import Refused
from cosim.conformance.draw_conv import ConvWish
from cosim.conformance.draw_dpu import DpuWish
from cosim.conformance.draw_writer import settings_packets, settings_unpooling
from cosim.conformance.draws import Draw
from cosim.conformance.types import BF16, CONV_TYPES, FP16, FP32, INT4, INT8, INT16, INT32
from cosim.conformance.waits import small_conv
from cosim.crosscheck.program import Task
from cosim.golden.task.rdma import ELEMENT_BITS

PLAIN = DpuWish(element="none")


def _argb_bits(d: Draw) -> Plan:
    plan = d.conv(ConvWish(d.any_type((INT8, INT16, FP16)), argb=True, budget=400), PLAIN)
    name = d.ch.pick("settings.argb", ("NONALIGN_DMA", "GROUP_LINE_OFF"))
    plan.tasks[0].set("CNA", "CONV_CON1", **{name: 0})
    return plan


def _line_stride(d: Draw) -> Plan:
    """A pitch that is no multiple of four lines: the quotient is floored (1.1)."""
    plan = small_conv(d)
    task = plan.tasks[0]
    if task.fields["CNA", "CONV_CON1"].get("GROUP_LINE_OFF"):
        raise Refused("the pitch is in atoms")
    rest = d.ch.integer("settings.rest", 1, 3)
    task.fields["CNA", "DMA_CON1"]["LINE_STRIDE"] += rest
    store = task.fields["CNA", "DMA_CON2"]
    store["SURF_STRIDE"] = (store["SURF_STRIDE"] - rest) % (1 << 28)
    return plan


def _few_banks(d: Draw) -> Plan:
    """Features over more banks than said, which nothing else uses (2.4)."""
    wish = ConvWish(d.any_type(), wide=True, budget=10000)
    if d.ch.chance("settings.argb", 0.4):
        wish = ConvWish(d.any_type((INT8, INT16, FP16)), argb=True, budget=5000)
    plan = d.conv(wish, PLAIN)
    store = plan.tasks[0].fields["CNA", "CBUF_CON0"]
    if store["DATA_BANK"] < 2:
        raise Refused("one bank")
    most = store["DATA_BANK"] - 1
    store["DATA_BANK"] = (
        most if d.ch.chance("settings.nearly", 0.6) else d.ch.integer("settings.banks", 0, most)
    )
    return plan


def _past_banks(d: Draw) -> Plan:
    """Features that go on where the weights begin, and far behind: they are not stored (2.7)."""
    wish = ConvWish(d.any_type(), budget=2000)
    if d.ch.chance("settings.depthwise", 0.2):
        wish = ConvWish(d.any_type((INT8, INT16, FP16, BF16)), depthwise=True, budget=2000)
    if d.ch.chance("settings.argb", 0.3):
        wish = ConvWish(d.any_type((INT8, INT16, FP16)), argb=True, budget=5000)
    plan = d.conv(wish, PLAIN)
    task = plan.tasks[0]
    store, pitch = task.fields["CNA", "CBUF_CON0"], task.fields["CNA", "CBUF_CON1"]
    rows = task.fields["CNA", "DATA_SIZE0"]["DATAIN_HEIGHT"]
    least = store["WEIGHT_BANK"]
    store["WEIGHT_BANK"] = (
        11 if d.ch.chance("settings.most", 0.7) else d.ch.integer("settings.weights", least, 11)
    )
    store["DATA_BANK"] = 12 - store["WEIGHT_BANK"]
    if wish.argb:
        if store["WEIGHT_BANK"] == least:
            raise Refused("as many banks as before")
    elif rows < 2:
        raise Refused("one row")
    else:
        full = -(-512 * store["DATA_BANK"] // (rows - 1))
        far = d.ch.chance("settings.far", 0.2)
        most = (1 << 15) - 1 if far else 2 * max(full, pitch["DATA_ENTRIES"])
        pitch["DATA_ENTRIES"] = d.ch.integer("settings.pitch", pitch["DATA_ENTRIES"], most)
    return plan


def _exact_fit(d: Draw) -> Plan:
    """Rows apart so far that the features end with a bank, or one entry behind it (2.4)."""
    plan = d.conv(ConvWish(d.any_type(), budget=800), PLAIN)
    task = plan.tasks[0]
    banks, rows = task.fields["CNA", "CBUF_CON0"], task.fields["CNA", "DATA_SIZE0"]["DATAIN_HEIGHT"]
    used = task.fields["CNA", "CBUF_CON1"]["DATA_ENTRIES"]
    fits = []
    for more in (0, 1):  # the entry behind must not be one of the weights'
        for count in range(1, 13 - banks["WEIGHT_BANK"] - more):
            apart, rest = divmod(512 * count + more - used, max(1, rows - 1))
            if rows > 1 and not rest and used <= apart < 1 << 15:
                fits.append((more, count, apart))
    if not fits:
        raise Refused("the rows do not fill the banks")
    # One entry too many is what the diagnostic is about, and seldom possible.
    _, count, apart = d.ch.pick("settings.fit", [fit for fit in fits if fit[0]] or fits)
    task.set("CNA", "CBUF_CON1", DATA_ENTRIES=apart)
    banks["DATA_BANK"] = count
    return plan


def _bank_sum(d: Draw) -> Plan:
    """More banks than there are: only said, for the features fit all the same (2.4)."""
    plan = small_conv(d)
    store = plan.tasks[0].fields["CNA", "CBUF_CON0"]
    store["DATA_BANK"] = d.ch.integer("settings.banks", 13 - store["WEIGHT_BANK"], 15)
    return plan


def _weight_bytes(d: Draw) -> Plan:
    """Less than the loops read, but as much as is fetched, since that is rounded up (2.5)."""
    plan = small_conv(d)
    plan.tasks[0].fields["CNA", "WEIGHT_SIZE0"]["WEIGHT_BYTES"] -= d.ch.integer("settings.less", 1, 15)
    return plan


def _types(d: Draw) -> Plan:
    """Codes of the DPU that are none, or of the other domain (0.4)."""
    plan = d.flying(d.any_type((INT8, INT16, FP16, FP32)), PLAIN)
    task = plan.tasks[0]
    kind = d.ch.integer("settings.types", 0, 4)
    if kind >= 2 and (task.fields["DPU", "DATA_CUBE_CHANNEL"]["CHANNEL"] + 1) % 8:
        raise Refused("groups that differ, with lanes without a channel in them")
    if kind == 0:
        task.set("DPU", "DATA_FORMAT", OUT_PRECISION=7)
    elif kind == 1:
        task.set("DPU_RDMA", "FEATURE_MODE_CFG", PROC_PRECISION=7)
    elif kind == 2:
        floats = task.fields["DPU", "DATA_FORMAT"]["PROC_PRECISION"] in (2, 3, 5)
        task.set("DPU", "DATA_FORMAT", IN_PRECISION=1 if floats else 2)
    elif kind == 3:
        task.set("DPU", "DATA_FORMAT", IN_PRECISION=7)
    else:
        task.set("DPU_RDMA", "FEATURE_MODE_CFG", IN_PRECISION=7)
    if kind in (0, 3, 4):  # nothing may depend on the size of what is read or written
        task.address("DPU", "DST_BASE_ADDR", d.arena.alloc(1 << 17, "output"))
        task.address("DPU_RDMA", "SRC_BASE_ADDR", d.arena.alloc(1 << 17, "input"))
    return plan


def _two_groups(d: Draw) -> Plan:
    """DPU and DPU_RDMA that disagree about the channels of a group (5.1)."""
    plan = d.flying(
        d.any_type((INT8, INT16, INT32)), DpuWish(element=d.ch.pick("settings.ew", ("none", "memory")))
    )
    task = plan.tasks[0]
    if (task.fields["DPU", "DATA_CUBE_CHANNEL"]["CHANNEL"] + 1) % 8:
        raise Refused("lanes without a channel, of no known content, would take the places of others")
    now = task.fields["DPU", "DATA_FORMAT"]["IN_PRECISION"]
    task.set("DPU", "DATA_FORMAT", IN_PRECISION=d.ch.pick("settings.group", tuple({0, 1, 6} - {now})))
    return plan


def _float_elements(d: Draw) -> Plan:
    """Elements of 4 and 8 bits in the float domain (5.4)."""
    plan = d.flying(d.any_type((FP16, BF16)), DpuWish(element="memory"))
    task = plan.tasks[0]
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_SIZE=d.ch.integer("settings.bits", 0, 1))
    return plan


def _modes(d: Draw) -> Plan:
    """Modes of convolution that DPU and DPU_RDMA do not know (5.1)."""
    plan = d.flying(d.any_type((INT8, INT16, FP16)), PLAIN)
    block = d.ch.pick("settings.block", ("DPU", "DPU_RDMA"))
    plan.tasks[0].set(block, "FEATURE_MODE_CFG", CONV_MODE=d.ch.integer("settings.mode", 1, 2))
    return plan


def _nowhere(d: Draw) -> Plan:
    """Nothing leaves the DPU (4.10)."""
    plan = small_conv(d)
    plan.tasks[0].set("DPU", "FEATURE_MODE_CFG", OUTPUT_MODE=0)
    return plan


def _fed(d: Draw) -> Plan:
    kind = d.any_type((INT8, INT16, FP16))
    plan = d.flying(kind, DpuWish(out=(kind,), to_ppu=True, element="none"))
    store = plan.tasks[0].fields["PPU", "DATA_FORMAT"]
    store["DPU_FLYIN"] = 1 - store.get("DPU_FLYIN", 0)
    return plan


def _combined_alone(d: Draw) -> Plan:
    """COMB_USE of the DPU, which repeats nothing when DPU_RDMA does not run (4.13)."""
    plan = small_conv(d)
    if "DPU_RDMA" in plan.tasks[0].blocks:
        raise Refused("DPU_RDMA runs")
    plan.tasks[0].set("DPU", "FEATURE_MODE_CFG", COMB_USE=1)
    return plan


def _index(d: Draw) -> Plan:
    plan = d.pool(d.any_type((INT8, INT16, FP16)))
    plan.tasks[0].set("PPU", "OPERATION_MODE_CFG", POOLING_METHOD=0, INDEX_EN=1)
    return plan


def _gates_and_type(d: Draw) -> Plan:
    """Octets that are not clocked, of any type (3.8)."""
    plan = d.conv(ConvWish(d.any_type(CONV_TYPES), budget=800), PLAIN)
    gates = d.ch.pick("settings.gates", (1 << 11, 1 << 23))
    plan.tasks[0].set("CORE", "MAC_GATING", SLCG_OP_EN=((1 << 27) - 1) & ~gates)
    plan.reset = True
    return plan


def _depthwise_gates(d: Draw) -> Plan:
    plan = d.conv(ConvWish(d.any_type((INT8, INT16, FP16)), depthwise=True, budget=800), PLAIN)
    gates = d.ch.pick("settings.gates", (1 << 11, 1 << 23))
    plan.tasks[0].set("CORE", "MAC_GATING", SLCG_OP_EN=((1 << 27) - 1) & ~gates)
    plan.reset = True
    return plan


def _missing_groups(d: Draw) -> Plan:
    """CORE counts more groups than there are kernels for, and the DPU takes them (3.8)."""
    depthwise = d.ch.chance("settings.depthwise", 0.3)
    kind = d.any_type((INT8, INT16, FP16) if depthwise else CONV_TYPES)
    return d.conv(ConvWish(kind, depthwise=depthwise, missing_groups=True, budget=800))


def _unaligned_conv(d: Draw) -> Plan:
    """Addresses of which the lower bits are dropped (the bus has atoms)."""
    plan = d.conv(ConvWish(d.any_type((INT8, INT4, FP16)), budget=400), PLAIN)
    task: Task = plan.tasks[0]
    task.addresses["CNA", "FEATURE_DATA_ADDR"] += d.ch.pick("settings.low", (1, 8, 15))
    return plan


def _extremes(d: Draw) -> Plan:
    """Sums at the ends of 32 bits that PReLU passes, then operations at these ends (4.4, 4.7)."""
    plan, ch = d.flying(d.any_type((INT8, INT16, INT32)), DpuWish(element="register")), d.ch
    task = plan.tasks[0]
    stage = {
        "ALU_BYPASS": 0,
        "ALU_ALGO": ch.pick("settings.algorithm", (2, 4)),
        "ALU_SRC": 0,
        "MUL_BYPASS": ch.integer("settings.no_factor", 0, 1),
        "MUL_PRELU": 1,
        "RELU_BYPASS": 1,
        "RELUX_EN": 0,
    }
    task.set("DPU", "BS_CFG", BS_BYPASS=0, **{f"BS_{name}": value for name, value in stage.items()})
    task.set("DPU", "BS_ALU_CFG", BS_ALU_OPERAND=ch.pick("settings.end", (1 << 31, (1 << 31) - 1)))
    shift = ch.integer("settings.shift", 0, 15)
    task.set("DPU", "BS_MUL_CFG", BS_MUL_SRC=0, BS_MUL_SHIFT_VALUE=shift)
    task.set("DPU", "BN_CFG", BN_BYPASS=1)
    task.set("DPU", "EW_CFG", EW_OP_TYPE=0, EW_ALU_ALGO=ch.pick("settings.operation", (5, 6, 5, 6, 2, 4)))
    return plan


def _steps(d: Draw) -> Plan:
    """The first step between entries that is too large for a table (4.12)."""
    plan = d.flying(d.any_type((INT8, INT16)), DpuWish(element="lut"))
    table = d.ch.pick("settings.table", ("LE", "LO"))
    plan.tasks[0].set("DPU", "LUT_INFO", **{f"LUT_{table}_INDEX_SELECT": 23})
    return plan


def _slopes(d: Draw) -> Plan:
    """Nearly everything lies outside short tables, and half of the products with slopes tie (4.12)."""
    plan, ch = d.flying(d.any_type((INT8, INT16)), DpuWish(element="lut")), d.ch
    task = plan.tasks[0]
    for table in ("LE", "LO"):
        start = ch.integer(f"settings.{table}_start", -40, 40)
        task.set("DPU", f"LUT_{table}_START", **{f"LUT_{table}_START": start % (1 << 32)})
        end = (start + ch.integer(f"settings.{table}_more", 0, 3)) % (1 << 32)
        task.set("DPU", f"LUT_{table}_END", **{f"LUT_{table}_END": end})
        for kind in ("OFLOW", "UFLOW"):
            scale = 2 * ch.integer(f"settings.{table}_{kind}", -50, 50) + 1
            task.set("DPU", f"LUT_{table}_SLOPE_SCALE", **{f"{kind}_SCALE": scale % 65536})
            task.set("DPU", f"LUT_{table}_SLOPE_SHIFT", **{f"{kind}_SHIFT": 1})
    return plan


def _left_element(d: Draw) -> Plan:
    """Data of ERDMA that no operation of a flying task takes: they are dropped (4.7)."""
    plan = d.flying(d.any_type((INT8, INT16, FP16)), DpuWish(element="memory"))
    plan.tasks[0].set("DPU", "EW_CFG", **{d.ch.pick("settings.off", ("EW_BYPASS", "EW_OP_BYPASS")): 1})
    plan.tasks[0].set("DPU", "EW_CFG", EW_OP_SRC=d.ch.integer("settings.source", 0, 1))
    return plan


def _unpredictable(d: Draw) -> Plan:
    """Sums whose operand does not go the way that silicon wants (4.7)."""
    kind = d.any_type((FP16, INT8, INT16))
    plan = d.flying(kind, DpuWish(element="memory"))
    task = plan.tasks[0]
    task.set("DPU", "EW_CFG", EW_OP_TYPE=0, EW_ALU_ALGO=2, EW_MUL_PRELU=0, EW_OP_CVT_BYPASS=int(kind is FP16))
    if kind is not FP16:
        task.set("DPU", "EW_CFG", EDATA_SIZE=3)
    return plan


def _cut(d: Draw) -> Plan:
    """CLIP_TRUNCATE on ties, on sums that do not fit 32 bits, and on the correction (4.2, 3.9)."""
    plan, ch = small_conv(d), d.ch
    task = plan.tasks[0]
    if task.fields["DPU", "DATA_FORMAT"]["PROC_PRECISION"] in (2, 3, 5):
        raise Refused("floats")
    bits = ELEMENT_BITS.get(task.fields["DPU", "DATA_FORMAT"]["OUT_PRECISION"], 8)
    surfaces = -(-(task.fields["DPU", "DATA_CUBE_CHANNEL"]["CHANNEL"] + 1) * bits // 128)
    if surfaces % (task.fields["DPU", "BS_OW_CFG"]["SIZE_E_1"] + 1):
        raise Refused("a kernel group that is not whole hangs with a live converter (4.10)")
    shift = ch.pick("settings.cut", (1, 1, 2, 3, 31))
    task.set("CORE", "CLIP_TRUNCATE", CLIP_TRUNCATE=shift, ROUND_TYPE=ch.integer("settings.up", 0, 1))
    task.set("DPU", "BS_OW_CFG", OD_BYPASS=0, OW_SRC=0)
    task.set("DPU", "BS_OW_OP", OW_OP=ch.corner("settings.correction", 0, 65535))
    return plan


KINDS: tuple[Callable[[Draw], Plan], ...] = (
    settings_packets,
    settings_unpooling,
    _argb_bits,
    _line_stride,
    _few_banks,
    _past_banks,
    _exact_fit,
    _bank_sum,
    _weight_bytes,
    _types,
    _two_groups,
    _float_elements,
    _modes,
    _nowhere,
    _fed,
    _combined_alone,
    _index,
    _gates_and_type,
    _depthwise_gates,
    _missing_groups,
    _unaligned_conv,
    _extremes,
    _steps,
    _slopes,
    _left_element,
    _unpredictable,
    _cut,
)


def draw(d: Draw) -> Plan:
    """A task with a contradiction in it, every kind in turn."""
    kind = KINDS[d.index % len(KINDS)]
    plan = kind(d)
    plan.diagnostics, plan.facts = True, []
    plan.note = f"{kind.__name__.strip('_')} {plan.note}".strip()
    return plan
