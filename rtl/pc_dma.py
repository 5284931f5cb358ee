"""PC: fetches task lists, decodes register words, and runs the task chain ([HW 1], [HW 2.1], [HW 10.3]).

Semantics: [HW 1].
"""

from amaranth import Const, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.bus import DiagnosticMerge, RegisterBus
from rkcosim.rtl.co_work import MODE_BITS, CoreSteps, StepAnswer, StepReport
from rkcosim.rtl.counters import activity_layout, drive_activity
from rkcosim.rtl.layouts import DiagnosticPort, ReadPort, RegisterPort
from rkcosim.rtl.list_fetch import ListFetcher
from rkcosim.rtl.pc_lists import ListSequence
from rkcosim.rtl.pc_registers import PcRegisters
from rkcosim.rtl.pc_task import ActiveTask
from rkcosim.rtl.pc_words import WordExecution
from rkcosim.rtl.regbus import OP_ENABLE_BITS, op_enable_fields


class PcDma(wiring.Component):
    """Run a kick: fetch its task lists, write their words to registers, start the blocks, follow the links.

    An op-enable word is held until every block of the previous mask is idle and no write response is
    outstanding. With TASK_PP_EN, the next list is read and written in the meantime. A write that its block
    delays waits at the fabric without blocking the host, and nothing that a block needs in order to finish
    passes through the fabric.

    Invalid words are dropped with a BAD_COMMAND diagnostic that carries the offset and value of the word:
    more than one target bit, an unknown target bit, an offset outside the target's window, an op-enable
    word with another offset or an empty mask (this one is still executed). The same diagnostic reports an
    OP_EN that cannot start a kick, a link in slave mode, a missing link (value: index of the task; the kick
    ends after it) and a list without an op-enable word (the kick never ends).

    Parameters
    ----------
    relax_serialisation : bool
        Hold an op-enable word only for the blocks that it starts, and not for write responses.  A task
        then counts as done when the next one starts, and both pulses coincide.

    Members
    -------
    port : In(RegisterPort())            : PC window.
    interrupts : Out(RegisterPort())     : its INTERRUPT_* part, for `InterruptUnit`.
    bus : Out(RegisterBus())             : register writes, for the fabric.
    read : Out(ReadPort())
    busy : In(7)                         : blocks that are enabled or active; bits as the op-enable mask.
    writes_pending : In(1)               : a write response is outstanding.
    op_enable : Out(7)                   : pulses, from registers.
    dma_base : Out(32)                   : TASK_DMA_BASE_ADDR.
    last_task : Out(1)                   : no kick is running, or its last task is active.
    running : Out(1)                     : a kick is running.
    task_start, task_done : Out(1)       : pulses.
    task : Out(12)                       : index in the kick of the task started last.
    activity : Out(layout)               : state of the PC (spec/regs/counters.rdl).
    next_mode : In(4)                    : NN_MODE of the convolution that the next op-enable word may start.
    report : Out(StepReport)             : progress of the kick, for co-working cores (rtl/co_work.py).
    answer : In(StepAnswer)              : progress of the other cores of the group.
    diag : Out(DiagnosticPort())
    """

    port: In(RegisterPort())
    interrupts: Out(RegisterPort())
    bus: Out(RegisterBus())
    read: Out(ReadPort())
    busy: In(OP_ENABLE_BITS)
    writes_pending: In(1)
    op_enable: Out(OP_ENABLE_BITS)
    dma_base: Out(32)
    last_task: Out(1)
    running: Out(1)
    task_start: Out(1)
    task_done: Out(1)
    task: Out(12)
    activity: Out(activity_layout("PC"))
    next_mode: In(MODE_BITS)
    report: Out(StepReport)
    answer: In(StepAnswer)
    diag: Out(DiagnosticPort())

    def __init__(self, relax_serialisation: bool = False) -> None:
        super().__init__()
        self._relax = relax_serialisation

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = regs = PcRegisters()
        m.submodules.fetcher = fetcher = ListFetcher()
        m.submodules.lists = lists = ListSequence()
        m.submodules.words = words = WordExecution()
        m.submodules.active = active = ActiveTask(self._relax)
        m.submodules.steps = steps = CoreSteps()
        m.submodules.diagnostics = diagnostics = DiagnosticMerge(4)
        wiring.connect(m, wiring.flipped(self.port), regs.port)
        wiring.connect(m, wiring.flipped(self.interrupts), regs.interrupts)
        wiring.connect(m, wiring.flipped(self.read), fetcher.read)
        wiring.connect(m, fetcher.words, words.words)
        wiring.connect(m, words.bus, wiring.flipped(self.bus))
        wiring.connect(m, wiring.flipped(self.diag), diagnostics.o)
        for number, part in enumerate((regs, lists, words, steps)):
            wiring.connect(m, part.diag, diagnostics.i[number])

        # Lists: their words are executed one by one.
        new_mask = words.value[:OP_ENABLE_BITS]
        m.d.comb += [
            lists.kick.eq(regs.kick),
            lists.slave_mode.eq(regs.slave_mode),
            lists.tasks.eq(regs.tasks),
            lists.prefetch.eq(regs.prefetch),
            lists.fetch_ready.eq(fetcher.ready),
            lists.accept.eq(words.accept),
            lists.last.eq(words.last),
            lists.enables.eq(words.enables),
            lists.links_base.eq(words.links_base),
            lists.links_amount.eq(words.links_amount),
            lists.held.eq(words.held),
            lists.settled.eq(active.settled),
            lists.active.eq(active.active),
            fetcher.start.eq(lists.fetch),
            fetcher.base.eq(regs.base),
            fetcher.amount.eq(regs.amount),
            words.open.eq(lists.open),
            words.settled.eq(active.settled),
            words.may_enable.eq(active.may_start & steps.may_go),
            words.dpu_busy.eq(self.busy[op_enable_fields()["DPU"]]),
            regs.link_value.eq(words.value),
            regs.link_base.eq(words.links_base),
            regs.link_amount.eq(words.links_amount),
        ]

        # The running task.
        m.d.comb += [
            active.starts.eq(words.enables),
            active.mask.eq(new_mask),
            active.index.eq(lists.index),
            active.begins.eq(lists.begins),
            active.clear_count.eq(regs.clear_count),
            active.busy.eq(self.busy),
            active.writes_pending.eq(self.writes_pending),
            self.op_enable.eq(active.op_enable),
            self.task_start.eq(active.task_start),
            self.task_done.eq(active.task_done),
            self.task.eq(active.task),
            steps.ready.eq(words.held & ~active.active),
            steps.begins.eq(lists.begins),
            steps.ends.eq(lists.ends),
            steps.starts.eq(words.enables),
            steps.finishes.eq(active.ends),
            steps.answer.eq(self.answer),
            self.report.eq(steps.report),
        ]
        with m.If(words.enable & new_mask[op_enable_fields()["CNA"]]):
            m.d.comb += steps.mode.eq(self.next_mode)

        # What host and counters see.
        first, last = self.task == 0, self.task == lists.final
        status = regs.status
        m.d.comb += [
            self.running.eq(~lists.idle),
            self.last_task.eq(lists.idle | last),
            self.dma_base.eq(regs.dma_base),
            status.TASK_COUNTER.eq(active.count),
            status.FIRST_OPERATING.eq(active.active & first),
            status.LAST_OPERATING.eq(active.active & last),
            status.FIRST_FETCHING.eq(fetcher.fetching & (lists.fetched == 0)),
            status.LAST_FETCHING.eq(fetcher.fetching & (lists.fetched == lists.final)),
        ]
        drive_activity(
            m,
            platform,
            "PcDma",
            self.activity,
            lists.idle,
            BUSY=(lists.open & (words.accept | (~words.valid & fetcher.words.valid)))
            | lists.closes
            | (lists.follows & lists.fetch)
            | lists.ends,
            HELD=lists.open & words.valid & (words.write | ~active.settled),
            TASK=(lists.open & words.valid & words.enable) | lists.follows | lists.drains | lists.stuck,
            FETCH=lists.open & ~words.valid,
        )
        self._assert(m, platform, regs, lists, words, active)
        assertions.ports(m, platform, self)
        return m

    def _assert(
        self,
        m: Module,
        platform: object,
        regs: PcRegisters,
        lists: ListSequence,
        words: WordExecution,
        active: ActiveTask,
    ) -> None:
        """What the parts show each other agrees in every cycle."""
        states = (lists.idle, lists.open, lists.closes, lists.follows, lists.drains, lists.stuck)
        ready = words.valid & active.settled
        written = regs.kick | regs.clear_count | regs.interrupts.write | regs.diag.valid
        for holds, text in (
            (self.port.write | ~written, "registers: an effect without a write"),
            (sum(states) == 1, "lists: a kick is in several states, or in none"),
            (~lists.begins | regs.kick, "lists.begins: there is no kick"),
            (
                lists.begins | ~(lists.idle & lists.fetch),
                "lists.begins: the first list is fetched without it",
            ),
            (lists.drains | ~lists.ends, "lists.ends: the last task is not running"),
            (active.active | ~active.ends, "active.ends: no task is running"),
            (
                Const(self._relax) | (active.may_start ^ active.active),
                "active.may_start: it differs from the end of the task",
            ),
            (words.held == (ready & words.enable), "words.held: it differs from the word that waits"),
            (
                words.bus.write | ~(ready & words.write & ~words.dpu_busy),
                "words.bus: a write waits for nothing",
            ),
        ):
            assertions.always(m, platform, holds, f"PcDma.{text}")
        change = words.enables | active.ends
        assertions.stable(m, platform, {"active.active": active.active}, "PcDma", after=change)
        settings = {"registers.prefetch": regs.prefetch, "registers.slave_mode": regs.slave_mode}
        write = self.port.write | words.links_base
        assertions.stable(m, platform, settings, "PcDma", after=write)
