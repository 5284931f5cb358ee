"""Draws of a task among host accesses to registers that it does not need, tables, unknown offsets."""

from __future__ import annotations

from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.case import Plan
from rkcosim.verify.conformance.draws import Draw
from rkcosim.verify.crosscheck.program import BLOCKS

DMA = ("DDMA", "SDMA")

READS_0 = ("OPERATION_ENABLE",)
"""Registers that only writes have an effect on, and that are read all the same."""


def draw(d: Draw) -> Plan:
    """Draw a task among writes of registers that it does not need, which are read back afterwards."""
    plan = d.any_task()
    ch, regs = d.ch, registers()
    used = {block for task in plan.tasks for block in task.blocks}
    spare = [b for b in BLOCKS if b not in used]
    for n in range(ch.integer("registers.count", 1, 40, 1)):
        block = ch.pick(f"registers.block{n}", (*DMA, *DMA, *spare))
        names = [r for r in regs[block] if r.writable and (r.shadowed or block in DMA)]
        register = ch.pick(f"registers.register{n}", names)
        if register.name == "MAC_GATING":
            continue
        plan.writes.append((register.offset, ch.word(f"registers.value{n}", 32) & register.mask))
        plan.reads.append(register.offset)
    _host_writes(d, plan, used)
    _probes(d, plan, spare)
    if ch.chance("registers.unknown", 0.3):
        _unknown(d, plan)
    for n in range(ch.integer("registers.any", 0, 8)):
        block = ch.pick(f"registers.any_block{n}", (*spare, *sorted(used)))
        names = [r for r in regs[block] if (r.readable or r.name in READS_0) and r.name != "S_STATUS"]
        names = [r for r in names if not r.name.startswith("LUT_ACCESS")]
        plan.reads.append(ch.pick(f"registers.any_register{n}", names).offset)
    plan.reads += [regs["PC"][name].offset for name in ("VERSION", "VERSION_NUM")]
    plan.reads += [regs[block][name].offset for name in ("CFG_STATUS", "CFG_ID_ERROR") for block in DMA]
    return plan


def _host_writes(d: Draw, plan: Plan, used: set[str]) -> None:
    """Write registers outside of the groups: those without effect, and tables that are read back."""
    ch, regs = d.ch, registers()
    for block, name in (("CORE", "UNDOC_3030"), ("DPU", "UNDOC_40C4")):
        if ch.chance(f"registers.{name}", 0.4):
            plan.writes.append((regs[block][name].offset, ch.word(f"registers.{name}_value", 32)))
    for block in (*BLOCKS, "PC"):
        if ch.chance(f"registers.no_start_{block}", 0.2):  # a zero starts nothing
            plan.writes.append((regs[block]["OPERATION_ENABLE"].offset, 0))
    if ch.chance("registers.clear", 0.5):
        plan.writes.append((regs["PC"]["INTERRUPT_CLEAR"].offset, ch.word("registers.clear_bits", 17)))
    if ch.chance("registers.control", 0.5):  # without the bits that drivers always set
        control = regs["PC"]["TASK_CON"]
        value = control.encode(TASK_NUMBER=len(plan.tasks), TASK_PP_EN=ch.integer("registers.pp_en", 0, 1))
        plan.writes.append((control.offset, value))
    if ch.chance("registers.lut", 0.5):
        access, data = regs["DPU"]["LUT_ACCESS_CFG"], regs["DPU"]["LUT_ACCESS_DATA"]
        table, first = ch.integer("registers.table", 0, 1), ch.corner("registers.entry", 0, 500)
        count = ch.integer("registers.entries", 1, 6)
        plan.writes.append(
            (access.offset, access.encode(LUT_ACCESS_TYPE=1, LUT_TABLE_ID=table, LUT_ADDR=first))
        )
        plan.writes += [(data.offset, ch.word(f"registers.lut{n}", 16)) for n in range(count)]
        plan.writes.append((access.offset, access.encode(LUT_TABLE_ID=table, LUT_ADDR=first)))
        if "DPU" not in used or not plan.tasks[0].uploads:
            plan.reads += [access.offset, *[data.offset] * count, access.offset]
    elif ch.chance("registers.lut_wrong", 0.4) and not any(task.uploads for task in plan.tasks):
        _wrong_tables(d, plan)


def _wrong_tables(d: Draw, plan: Plan) -> None:
    """Access the LUT in refused ways: past the end of a table or in the wrong direction (4.12)."""
    ch, regs = d.ch, registers()
    access, data = regs["DPU"]["LUT_ACCESS_CFG"], regs["DPU"]["LUT_ACCESS_DATA"]
    writing, table = ch.integer("registers.type", 0, 1), ch.integer("registers.table", 0, 1)
    place = ch.pick("registers.place", (510, 511, 512, 513, 700, 1020, 1022, 1023))
    for label, first, count in (("first", 0, 6), ("last", 510, 3)):  # so that their contents are known
        known = access.encode(LUT_ACCESS_TYPE=1, LUT_TABLE_ID=table, LUT_ADDR=first)
        plan.writes.append((access.offset, known))
        plan.writes += [(data.offset, ch.word(f"registers.{label}", 16)) for _ in range(count)]
    set_ = access.encode(LUT_ACCESS_TYPE=writing, LUT_TABLE_ID=table, LUT_ADDR=place)
    plan.writes.append((access.offset, set_))
    count = ch.integer("registers.wrong", 1, 6)
    plan.writes += [(data.offset, ch.word(f"registers.wrong{n}", 16)) for n in range(count)]
    plan.reads.append(access.offset)
    plan.reads += [data.offset] * ch.integer("registers.wrong_reads", 0, 5)
    plan.reads.append(access.offset)
    plan.diagnostics = True


def _probes(d: Draw, plan: Plan, spare: list[str]) -> None:
    """Let the host access unused registers while the PC fetches and the blocks work."""
    ch, regs = d.ch, registers()
    calm = [regs["PC"][n].offset for n in ("VERSION", "INTERRUPT_MASK", "TASK_CON", "TASK_DMA_BASE_ADDR")]
    calm += [r.offset for block in DMA for r in regs[block] if r.writable]
    for n in range(ch.integer("probes.count", 0, 40) if ch.chance("probes", 0.6) else 0):
        if spare and ch.chance("probes.spare", 0.6):
            names = [r for r in regs[ch.pick("probes.block", spare)] if r.writable and r.shadowed]
            register = ch.pick("probes.register", names)
            if register.name != "MAC_GATING" and ch.chance("probes.write", 0.6):
                plan.probes.append((register.offset, ch.word("probes.value", 32) & register.mask))
            plan.probes.append((register.offset, None))
        else:
            plan.probes.append((ch.pick(f"probes.calm{n}", calm), None))


def _unknown(d: Draw, plan: Plan) -> None:
    """Access offsets without a register: writes are reported, reads return 0 (7.8)."""
    ch = d.ch
    for n in range(ch.integer("unknown.count", 1, 6)):
        offset = 4 * ch.integer(f"unknown.offset{n}", 0, 0x9FFF // 4)
        if registers().at(offset) is not None or 0x2000 <= offset < 0x3000 or offset in (0x3030, 0x40C4):
            continue
        if ch.chance("unknown.write", 0.6):
            plan.writes.append((offset, ch.word("unknown.value", 32)))
            plan.diagnostics = True
        plan.reads.append(offset)
