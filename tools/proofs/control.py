"""Proofs of the interrupt unit, register groups, lock step, counters, and CBUF."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Mux, Signal, Value

from rkcosim.rtl import co_work, regfile
from rkcosim.rtl.co_work import CoreSteps, StepUnit
from rkcosim.rtl.counters import CoreCounters
from rkcosim.rtl.interrupt import EVENT_BITS, InterruptUnit
from rkcosim.rtl.npu.cbuf import ATOM_BITS, Cbuf, FillTurn
from rkcosim.rtl.regfile import RegisterFile
from rkcosim.spec.config import NpuConfig
from rkcosim.spec.regs import registers
from rkcosim.spec.regs.counters import counts
from tools.proofs.bench import Bench, offers


def interrupt_unit(bench: Bench) -> None:
    """Events stay until they are cleared, none is lost; the line rises for unmasked events of a last task."""
    unit = bench.drive("unit", InterruptUnit())
    port, block = unit.port, registers()["PC"]
    written = {
        name: port.write & (port.offset == block[f"INTERRUPT_{name}"].local) for name in ("MASK", "CLEAR")
    }
    width = block["INTERRUPT_MASK"].fields["int_mask"].width
    mask = bench.when(
        written["MASK"], port.wdata[:width], "mask", init=block["INTERRUPT_MASK"].fields["int_mask"].reset
    )
    raw = Signal(width, name="raw")
    bench.m.d.sync += raw.eq((raw & ~Mux(written["CLEAR"], port.wdata[:width], 0)) | unit.events)
    at = port.offset == block["INTERRUPT_RAW_STATUS"].local
    bench.claim("RAW_STATUS has every event since its clear", ~at | (port.rdata[:width] == raw))
    at = port.offset == block["INTERRUPT_STATUS"].local
    bench.claim("STATUS has the unmasked ones", ~at | (port.rdata[:width] == (raw & mask)))
    before = bench.past(unit.irq, name="irq_before")
    cause = bench.past(unit.last_task & (unit.events & mask[:EVENT_BITS]).any(), name="cause")
    bench.claim("the line rises for an unmasked event of a last task", ~unit.irq | before | cause)
    bench.claim("such an event always raises it", ~cause | unit.irq)
    empty = bench.past((raw & mask) == 0, name="empty")
    bench.claim("the line falls when STATUS is 0", ~before | unit.irq | empty)
    bench.claim("the line does not stay when STATUS is 0", ~(before & empty & ~cause) | ~unit.irq)
    bench.reach(unit.irq)
    bench.reach(before & ~unit.irq)


BLOCK = "PPU_RDMA"


def _register_file(bench: Bench) -> RegisterFile:
    bench.patch(regfile, "ROW_BITS", 5)
    bench.patch(regfile, "ROWS", 32)
    file = bench.drive("file", RegisterFile(BLOCK))
    # The fabric keeps a read until it is served; it may withdraw a delayed write.
    offers(bench, file.port.read, file.port.ready, file.port.offset)
    bench.assume(~(file.port.write & file.port.read))
    return file


def register_group_stability(bench: Bench) -> None:
    """The settings of a running task do not change, whatever is written."""
    file = _register_file(bench)
    setting = Value.cast(file.cfg.SRC_BASE_ADDR)
    bench.assume(
        ~file.show | file.running
    )  # another block's start shows the next group of an idle block only
    working = Signal(name="working")
    with bench.m.If(file.control.done):
        bench.m.d.sync += working.eq(0)
    with bench.m.Elif(file.control.start):
        bench.m.d.sync += working.eq(1)
    bench.assume(~file.control.done | working | file.control.start)
    before = bench.past(setting[4:8], name="setting_before")
    bench.claim("settings do not change during a task", ~working | (setting[4:8] == before))
    bench.reach(working & file.port.write & file.port.ready)
    bench.reach(setting[4:8] == 5)


def register_groups(bench: Bench) -> None:
    """Tasks start one after another, each for an op-enable; a write to an enabled group waits."""
    file = _register_file(bench)
    control, port, block = file.control, file.port, registers()[BLOCK]
    pointer, enable = block["S_POINTER"].local, block["OPERATION_ENABLE"]
    # Pointers are those of ping-pong operation: both change with each task [HW 1.7].
    bench.assume(~(port.write & (port.offset == pointer)))
    word = port.write & port.ready & (port.offset == enable.local) & port.wdata[enable.fields["OP_EN"].lsb]
    enables = word | file.op_enable
    running = Signal(name="running")
    bench.assume(~control.done | running)
    with bench.m.If(file.starting):
        bench.m.d.sync += running.eq(1)
    with bench.m.Elif(control.done):
        bench.m.d.sync += running.eq(0)
    # Without ping-pong both pointers stay at group 0: one task can be enabled at a time.
    open_task = Signal(name="open_task")
    with bench.m.If(enables):
        bench.m.d.sync += open_task.eq(1)
    with bench.m.Elif(control.done & running):
        bench.m.d.sync += open_task.eq(0)
    bench.assume(~(enables & control.done))
    bench.claim("a task starts only while none runs", ~file.starting | ~running)
    bench.claim("a task starts only after an op-enable", ~file.starting | open_task)
    bench.claim(
        "start follows the decision by a cycle", control.start == bench.past(file.starting, name="decided")
    )
    bench.claim("running is shown", file.running == running)
    bench.claim("busy from the op-enable to the end", file.busy == open_task)
    written = port.write & port.ready & (port.offset > enable.local) & (port.offset < 0x80)
    bench.claim("a write to the enabled group waits", ~written | ~open_task)
    bench.reach(running & (port.write & ~port.ready))
    bench.reach(control.done & running)


def core_steps(bench: Bench) -> None:
    """Steps grow by one, and a core goes on only when the others of its group have reached its step."""
    steps = bench.drive("steps", CoreSteps())
    mine, answer = steps.report, bench.past(Value.cast(steps.answer), name="answer_before")
    bench.assume(~(steps.begins & (steps.starts | steps.finishes | steps.ready)))
    bench.assume(~steps.starts | (steps.ready & steps.may_go))
    before = bench.past(mine.step, name="step_before")
    cleared = bench.past(steps.begins | steps.ends, name="cleared")
    grown = (mine.step == before) | (mine.step == (before + 1)[: len(before)])
    bench.claim("a step number grows by one", bench.first | Mux(cleared, mine.step == 0, grown))
    floor, kick, present = answer[:13], answer[13], answer[14]
    waits = present & (mine.step != 0) & (kick == mine.kick) & (floor < mine.step)
    bench.claim("a core waits for the slowest of its group", bench.first | ~waits | ~steps.may_go)
    other = present & (mine.step != 0) & (kick != mine.kick)
    bench.claim("an answer to an earlier kick lets no task start", bench.first | ~other | ~steps.may_go)
    bench.claim("a core without others never waits", bench.first | present | steps.may_go)
    bench.claim(
        "the kick's bit changes when a kick begins",
        bench.first | (mine.kick == bench.past(mine.kick, name="kick_before")) | cleared,
    )
    bench.reach(~steps.may_go & steps.ready)
    bench.reach((mine.step == 4) & steps.may_go)


def lock_step(bench: Bench) -> None:
    """Two cores of a group: none starts a common task before the other has reached it."""
    bench.patch(co_work, "EXCHANGE_CYCLES", 2)
    unit = StepUnit(2)
    bench.m.submodules.unit = unit
    cores = [CoreSteps() for _ in range(2)]
    other_of = {0: 1, 1: 0}
    begun = []
    for n, core in enumerate(cores):
        bench.drive(f"core{n}", core, skip=("answer", "mode", "begins", "ends"))
        starts_kick = bench.free(f"begins{n}")
        started = Signal(name=f"started{n}")
        with bench.m.If(starts_kick):
            bench.m.d.sync += started.eq(1)
        bench.assume(~(starts_kick & started))  # one kick for each core
        begun.append(started)
        bench.m.d.comb += [
            core.mode.eq(1),  # two cores, by rows
            core.begins.eq(starts_kick),
            core.ends.eq(0),
            Value.cast(core.answer).eq(Value.cast(unit.answers[n])),
            Value.cast(unit.reports[n]).eq(Value.cast(core.report)),
        ]
        at_work = Signal(name=f"at_work{n}")
        with bench.m.If(core.starts):
            bench.m.d.sync += at_work.eq(1)
        with bench.m.Elif(core.finishes):
            bench.m.d.sync += at_work.eq(0)
        bench.assume(~core.ready | (started & ~at_work))
        bench.assume(~core.starts | (core.ready & core.may_go))
        bench.assume(~core.finishes | at_work)
        bench.assume(~core.lost)  # nobody has waited for too long
    for n, core in enumerate(cores):
        other = cores[other_of[n]]
        step = core.report.step
        bench.claim(
            f"core {n} starts a common task when the other has reached it",
            ~(core.starts & (step != 0) & begun[1 - n])
            | (other.report.step >= step)
            | (other.report.step == 0),
        )
        bench.claim(
            f"core {n} is at most two steps ahead", (step <= other.report.step + 2) | (other.report.step == 0)
        )
    bench.reach(cores[0].starts & (cores[0].report.step > 2))


COUNTS = ("BYTES.READS", "BYTES.WRITES", "CONTROL.CYCLES", "MACS.USEFUL")
"""Counts whose sums are claimed; the others are counted in the same way."""


def counters(bench: Bench) -> None:
    """A count grows by what happened while counting, a clear sets it to 0, and a latched value stays."""
    block = bench.drive("counters", CoreCounters(), skip=("local",))
    counting = bench.past(block.enable, name="counting")
    paths = {register.path: register for register in counts()}
    chosen = bench.free("chosen", 2)
    offsets = Array(paths[path].offset for path in COUNTS)
    bench.m.d.comb += block.local.eq(offsets[chosen])
    ups = (
        block.m_axi_arvalid & block.m_axi_arready,
        block.m_axi_awvalid & block.m_axi_awready,
        Const(1),
        block.macs,
    )
    for number, (path, up) in enumerate(zip(COUNTS, ups, strict=True)):
        name = path.split(".")[1]
        count = block.counts[path]
        grown = Mux(block.clear, 0, Mux(counting, count + up, count))
        expected = bench.past(grown, name=f"expected_{name}")
        bench.claim(f"{path} is the sum of what was counted", bench.first | (count == expected[: len(count)]))
        kept = bench.when(block.latch, count, f"kept_{name}")
        bench.claim(f"{path} reads the latched value", (chosen != number) | (block.rdata == kept[:32]))
    bench.reach(block.counts["BYTES.READS"] == 3)
    bench.reach(block.latch & (block.counts["MACS.USEFUL"] > 4096))


def fill_turn(bench: Bench) -> None:
    """Neither loader waits while the other one is served twice."""
    turn = FillTurn()
    bench.m.submodules.turn = turn
    feature, weight = bench.free("feature"), bench.free("weight")
    take = Signal(name="take")
    bench.m.d.comb += [
        take.eq(weight & (turn.weight | ~feature)),
        turn.valid.eq(feature | weight),
        turn.take_weight.eq(take),
    ]
    waits = {"feature": feature & take, "weight": weight & ~take}
    for name, waiting in waits.items():
        again = bench.past(waiting, name=f"{name}_waited")
        bench.claim(f"the {name} loader waits at most one fill", ~again | ~waiting)
    bench.reach(feature & weight & take)


def cbuf_contents(bench: Bench) -> None:
    """What was written last to an atom is what a feature read of its entry gives in the next cycle."""
    cbuf = Cbuf(NpuConfig(name="four entries", cbuf_banks=1, cbuf_bank_bytes=256))
    bench.drive("cbuf", cbuf, skip=("feature_fill.payload", "weight_fill.payload"))
    entries = 4
    fills = (cbuf.feature_fill, cbuf.weight_fill)
    entry, column = bench.constant("entry", 2), bench.constant("column", 2)
    value, known = Signal(name="value"), Signal(name="known")
    for n, fill in enumerate(fills):
        payload = fill.payload
        first, second = bench.free(f"first{n}"), bench.free(f"second{n}")
        place, there = bench.free(f"entry_{n}", 2), bench.free(f"column_{n}", 2)
        two = bench.free(f"two_{n}")
        after = (Cat(there, place) + 1)[:4]
        bench.m.d.comb += [
            payload.data[0].eq(first),
            payload.data[ATOM_BITS].eq(second),
            payload.entry.eq(place),
            payload.column.eq(there),
            payload.two.eq(two),
            payload.entry2.eq(after[2:]),
            payload.column2.eq(after[:2]),
        ]
        offers(bench, fill.valid, fill.ready, Cat(first, second, place, there, two))
        taken = fill.valid & fill.ready
        with bench.m.If(taken & (place == entry) & (there == column)):
            bench.m.d.sync += [value.eq(first), known.eq(1)]
        with bench.m.If(taken & two & (after[2:] == entry) & (after[:2] == column)):
            bench.m.d.sync += [value.eq(second), known.eq(1)]
    bench.claim("one fill in a cycle", ~(fills[0].valid & fills[0].ready & fills[1].valid & fills[1].ready))
    read = cbuf.reads.feature0
    bench.assume(read.entry < entries)
    asked = bench.past(read.en & (read.entry == entry) & known, name="asked")
    expected = bench.past(value, name="value_before")
    bench.claim(
        "a read gives what was written", ~asked | (read.data.word_select(column, ATOM_BITS)[0] == expected)
    )
    bench.reach(asked & expected)
    bench.reach(fills[0].valid & fills[1].valid & fills[1].ready)
