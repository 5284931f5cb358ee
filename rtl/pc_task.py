"""The task of the PC that is running: which blocks it has started, and when it ends [HW 1.6]."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.regbus import OP_ENABLE_BITS

SETTLE_CYCLES = 4
"""Cycles after an op-enable until `busy` and the register pointers are evaluated again."""


class ActiveTask(wiring.Component):
    """Start the blocks of an op-enable word, and wait until they are idle and all writes are answered.

    Parameters
    ----------
    relax_serialisation : bool
        As for `rkcosim.rtl.pc_dma.PcDma`.

    Members
    -------
    starts : In(1)        : pulse, the op-enable word is executed.
    mask : In(7)          : mask of the current op-enable word.
    index : In(12)        : index of its task.
    begins : In(1)        : pulse, a kick begins.
    clear_count : In(1)   : pulse, `count` becomes 0.
    busy : In(7)          : blocks that are enabled or active; bits as the op-enable mask.
    writes_pending : In(1) : a write response is outstanding.
    settled : Out(1)      : `busy` shows the effects of the last op-enable.
    may_start : Out(1)    : the task of `mask` may start.
    active : Out(1)       : a task is running.
    ends : Out(1)         : pulse, it ends.
    op_enable : Out(7)    : pulses for the blocks.
    task_start, task_done : Out(1) : pulses, one cycle after `starts` and `ends`.
    task : Out(12)        : index of the task started last.
    count : Out(12)       : tasks that have ended, TASK_STATUS.TASK_COUNTER.
    """

    starts: In(1)
    mask: In(OP_ENABLE_BITS)
    index: In(12)
    begins: In(1)
    clear_count: In(1)
    busy: In(OP_ENABLE_BITS)
    writes_pending: In(1)
    settled: Out(1)
    may_start: Out(1)
    active: Out(1)
    ends: Out(1)
    op_enable: Out(OP_ENABLE_BITS)
    task_start: Out(1)
    task_done: Out(1)
    task: Out(12)
    count: Out(12)

    def __init__(self, relax_serialisation: bool = False) -> None:
        super().__init__()
        self._relax = relax_serialisation

    def elaborate(self, platform: object) -> Module:
        m = Module()
        waited_for = Signal(OP_ENABLE_BITS)
        settle = Signal(range(SETTLE_CYCLES + 1))
        m.d.comb += [
            self.settled.eq(settle == 0),
            self.ends.eq(self.active & self.settled & ~(self.busy & waited_for).any() & ~self.writes_pending),
        ]
        if self._relax:
            m.d.comb += self.may_start.eq(~(self.busy & self.mask).any())
        else:
            m.d.comb += self.may_start.eq(~self.active)
        m.d.sync += [self.task_start.eq(0), self.task_done.eq(self.ends), self.op_enable.eq(0)]
        with m.If(~self.settled):
            m.d.sync += settle.eq(settle - 1)
        with m.If(self.ends):
            m.d.sync += [self.active.eq(0), self.count.eq(self.count + 1)]
        with m.If(self.starts):
            m.d.sync += [
                self.op_enable.eq(self.mask),
                self.task.eq(self.index),
                self.task_start.eq(1),
                settle.eq(SETTLE_CYCLES),
                self.active.eq(1),
                waited_for.eq(self.mask | Mux(self.active & ~self.ends, waited_for, 0)),
            ]
            if self._relax:
                with m.If(self.active):
                    m.d.sync += [self.task_done.eq(1), self.count.eq(self.count + 1)]
        with m.If(self.begins):
            m.d.sync += self.task.eq(0)
        with m.If(self.clear_count):
            m.d.sync += self.count.eq(0)
        return m
