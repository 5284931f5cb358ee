"""Synchronisation of co-working cores: the logic of each core and the unit that connects them [HW 1.9].

Each core counts the steps of its kick. A co-working task counts as one step when the core reaches it and as
a second step when the task has ended and its output is written. A core continues when the smallest step of
the other cores of its group is not smaller than its own step.
"""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import DiagnosticCode, DiagnosticPort
from rkcosim.spec.co_work import (
    ALONE,
    EXCHANGE_CYCLES,
    GROUP_SIZES,
    JOIN_CYCLES,
    PATIENCE_CYCLES,
    SIZE_BITS,
    STEP_BITS,
)
from rkcosim.spec.regs import registers

MODE_BITS = 4


class StepReport(data.Struct):
    """State that a core reports to `StepUnit`.

    Members
    -------
    step : number of steps that the kick has completed.
    size : number of cores of the group; 0 if the core does not co-work.
    kick : bit that is inverted with each kick.
    """

    step: STEP_BITS
    size: SIZE_BITS
    kick: 1


class StepAnswer(data.Struct):
    """Answer of `StepUnit` to a core.

    Members
    -------
    floor : smallest step of the other cores of the group.
    kick : `StepReport.kick` of the kick to which the answer refers.
    present : 1 if the SoC has a `StepUnit`.
    missing : mask of the cores for which this core no longer waits.
    """

    floor: STEP_BITS
    kick: 1
    present: 1
    missing: 3


class CoreSteps(wiring.Component):
    """Count the steps of one core's kick and decide whether its next task may start.

    Members
    -------
    mode : In(4)          : NN_MODE of the convolution that the current op-enable word starts; 0 if it starts
        none.
    ready : In(1)         : the current word is an op-enable word, and the core itself could execute it.
    may_go : Out(1)       : the other cores of the group permit the next task as well.
    begins, ends : In(1)  : pulses, the kick begins or ends.
    starts : In(1)        : pulse, the op-enable word is executed.
    finishes : In(1)      : pulse, the running task has ended and its output is written.
    report : Out(StepReport)
    answer : In(StepAnswer)
    arrives : Out(1)      : the core reaches a co-working task, which counts as a step.
    lost : Out(1)         : the core stops waiting for another core.
    diag : Out(DiagnosticPort()) : CORE_MISSING.
    """

    mode: In(MODE_BITS)
    ready: In(1)
    may_go: Out(1)
    begins: In(1)
    ends: In(1)
    starts: In(1)
    finishes: In(1)
    report: Out(StepReport)
    answer: In(StepAnswer)
    arrives: Out(1)
    lost: Out(1)
    diag: Out(DiagnosticPort())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        mine = self.report
        # The answer is held here, so that nothing in the PC follows an input of the core in the same cycle.
        other = Signal(StepAnswer, name="held")
        m.d.sync += other.eq(self.answer)
        size = Signal(SIZE_BITS)
        works = Signal()  # the running task is a co-working task
        heard, alone = Signal(), Signal()
        told = Signal(3)
        with m.Switch(self.mode):
            for mode, cores in GROUP_SIZES.items():
                with m.Case(mode):
                    m.d.comb += size.eq(cores)
        co_works, reached = size != 0, mine.step[0]
        m.d.comb += [
            heard.eq(other.kick == mine.kick),
            alone.eq(~other.present | (heard & (other.floor == ALONE))),
            self.arrives.eq(self.ready & co_works & (mine.step != 0) & ~reached),
            self.may_go.eq(
                (mine.step == 0) | alone | (heard & (other.floor >= mine.step) & (~co_works | reached))
            ),
            self.lost.eq(heard & (other.missing & ~told).any()),
        ]
        with m.If(self.arrives | (self.finishes & works)):
            m.d.sync += mine.step.eq(mine.step + 1)
        with m.If(self.finishes):
            m.d.sync += works.eq(0)
        with m.If(self.starts):
            m.d.sync += works.eq(co_works)
            with m.If(co_works & (mine.step == 0)):
                m.d.sync += [mine.step.eq(1), mine.size.eq(size)]
        with m.If(self.begins | self.ends):
            m.d.sync += [mine.step.eq(0), mine.size.eq(0), works.eq(0)]
        with m.If(self.begins):
            m.d.sync += [mine.kick.eq(~mine.kick), told.eq(0)]
        with m.If(self.lost):
            m.d.sync += told.eq(told | other.missing)
        task = mine.step[1:] + reached
        m.d.comb += [
            self.diag.valid.eq(self.lost),
            self.diag.payload.code.eq(DiagnosticCode.CORE_MISSING),
            self.diag.payload.register.eq(registers()["CNA"]["CONV_CON2"].offset),
            self.diag.payload.value.eq(Cat(other.missing, Const(0, 5), task)),
        ]
        return m


class _Known(data.Struct):
    """State of a core's kick in the unit.

    Members
    -------
    here : the core has begun a co-working task.
    kick : `StepReport.kick` at the previous exchange.
    formed : the core belongs to a group.
    mates : mask of the other cores of the group, valid when `formed` is 1.
    missing : mask of the cores for which this core no longer waits.
    waits : number of exchanges since the core started to wait for its group to form, or for other cores of
        it.
    """

    here: 1
    kick: 1
    formed: 1
    mates: 3
    missing: 3
    waits: 32


class StepUnit(wiring.Component):
    """Form groups of co-working cores and exchange their steps, once in `EXCHANGE_CYCLES` cycles.

    A group consists of cores that have all begun a co-working task of a group of that size; if there are
    more, those with the lowest numbers are taken. After `join` cycles a group is formed of the cores that are
    ready. A core leaves its group when its kick ends. A core for which another one has waited `patience`
    cycles is removed from the group of that core.

    Parameters
    ----------
    cores : int
        Number of cores, 1 to 3.
    join : int
        Cycles that a core waits for its group to form, a multiple of EXCHANGE_CYCLES.
    patience : int
        Cycles that a core waits for others of its group, a multiple of EXCHANGE_CYCLES.

    Members
    -------
    reports : In(StepReport).array(cores)
    answers : Out(StepAnswer).array(cores)

    Raises
    ------
    ValueError
        if `cores` is not 1, 2 or 3.
    """

    def __init__(self, cores: int, join: int = JOIN_CYCLES, patience: int = PATIENCE_CYCLES) -> None:
        if not 1 <= cores <= 3:
            raise ValueError(f"the number of cores must be 1 to 3, not {cores}")
        self._join, self._patience = join // EXCHANGE_CYCLES, patience // EXCHANGE_CYCLES
        super().__init__({"reports": In(StepReport).array(cores), "answers": Out(StepAnswer).array(cores)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cores = range(len(self.reports))
        known = [Signal(_Known, name=f"known_{n}") for n in cores]
        phase = Signal(range(EXCHANGE_CYCLES), reset_less=True)
        m.d.sync += phase.eq(phase + 1)

        # 1. Cores that co-work in the same kick as before. All others leave their groups.
        stays = [Signal(name=f"stays_{n}") for n in cores]
        live = [Signal(name=f"live_{n}") for n in cores]
        for n in cores:
            m.d.comb += live[n].eq(self.reports[n].size != 0)
            m.d.comb += stays[n].eq(known[n].here & live[n] & (known[n].kick == self.reports[n].kick))
        formed = [known[n].formed & stays[n] for n in cores]
        mates = [Mux(stays[n], known[n].mates & Cat(stays), 0) for n in cores]
        waits = [Mux(stays[n], known[n].waits, 0) for n in cores]

        # 2. Formation of groups.
        joins = [Signal(len(self.reports), name=f"joins_{n}") for n in cores]
        for size in sorted(set(GROUP_SIZES.values())):
            open_now = Cat(live[n] & ~formed[n] & (self.reports[n].size == size) for n in cores)
            over = Cat(open_now[n] & (waits[n] >= self._join) for n in cores).any()
            for chosen, found in self._choices(open_now, min(size, len(self.reports)), over):
                with m.If(found):
                    for n in cores:
                        with m.If(chosen[n]):
                            m.d.comb += joins[n].eq(chosen)

        # 3. Steps of the other cores, and the time for which a core has waited for them.
        for n in cores:
            joined = Signal(name=f"joined_{n}")
            now = Signal(3, name=f"mates_{n}")
            behind = Signal(3, name=f"behind_{n}")
            step, others = self.reports[n].step, [k for k in cores if k != n]
            left_out, waiting = Signal(name=f"left_out_{n}"), Signal(name=f"waiting_{n}")
            in_group = formed[n] | joined
            kept = Mux(left_out, now & ~behind, now)
            m.d.comb += [
                joined.eq(joins[n].any()),
                now.eq(Mux(joined, joins[n] & ~Const(1 << n, 3), mates[n])),
                behind.eq(Cat((self.reports[k].step < step) & now[k] for k in cores)),
                waiting.eq(Mux(in_group, behind.any() & (step > 1), live[n])),
                left_out.eq(in_group & waiting & formed[n] & (waits[n] >= self._patience)),
            ]
            floor = Const(ALONE, STEP_BITS)
            for k in others:
                here = self.reports[k].step
                floor = Mux(kept[k] & (here < floor), here, floor)
            missing = Mux(stays[n], known[n].missing, 0) | Mux(left_out, behind, 0)
            with m.If(phase == 0):
                m.d.sync += [
                    known[n].here.eq(live[n]),
                    known[n].kick.eq(self.reports[n].kick),
                    known[n].formed.eq(in_group),
                    known[n].mates.eq(kept),
                    known[n].missing.eq(missing),
                    known[n].waits.eq(Mux(waiting & ~left_out, Mux(joined, 0, waits[n]) + 1, 0)),
                    self.answers[n].floor.eq(Mux(in_group, floor, 0)),
                    self.answers[n].kick.eq(self.reports[n].kick),
                    self.answers[n].missing.eq(missing),
                ]
            m.d.comb += self.answers[n].present.eq(1)
        return m

    def _choices(self, open_now: Value, size: int, over: Value) -> list[tuple[Value, Value]]:
        """Return the sets of cores that can form a group, each with its condition; at most one holds."""
        count = len(self.reports)
        out: list[tuple[Value, Value]] = []
        taken: Value = Const(0, 1)
        whole = [s for s in range(1 << count) if s.bit_count() == size]
        for chosen in sorted(whole, key=lambda s: [n for n in range(count) if s >> n & 1]):
            found = ((open_now & chosen) == chosen) & ~taken
            out.append((Const(chosen, count), found))
            taken = taken | found
        out.append((open_now, over & ~taken))
        return out
