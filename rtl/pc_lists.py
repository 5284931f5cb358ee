"""The lists of a kick, one for each task: the first one, and those that the links lead to [HW 1.6]."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import DiagnosticCode, DiagnosticPort
from rkcosim.spec.regs import registers

_PC = registers()["PC"]


class ListSequence(wiring.Component):
    """Start the fetch of each list of a kick, and end the kick behind the last one.

    Members
    -------
    kick : In(1)           : pulse, OP_EN was written with 1.
    slave_mode : In(1), tasks : In(12), prefetch : In(1) : settings of the kick (`PcRegisters`).
    fetch_ready : In(1)    : the fetcher can take a list.
    accept, last : In(1)   : a word is executed; it is the last one of its list.
    enables, links_base, links_amount : In(1) : with `accept`: what it is (`WordExecution`).
    held : In(1)           : an op-enable word waits, or is executed.
    settled, active : In(1) : state of the running task (`ActiveTask`).
    fetch : Out(1)         : pulse, the fetch of a list starts at the address in the registers.
    begins, ends : Out(1)  : pulses, the kick begins or ends.
    index, final : Out(12) : list that is decoded, and last one of the kick.
    fetched : Out(12)      : list that was fetched last.
    idle, open, closes, follows, drains, stuck : Out(1) : levels of the states: no kick; the words of a list
        are executed; its last word was; the next list waits for its fetch; the last task is running; a list
        had no op-enable word.
    diag : Out(DiagnosticPort()) : BAD_COMMAND.
    """

    kick: In(1)
    slave_mode: In(1)
    tasks: In(12)
    prefetch: In(1)
    fetch_ready: In(1)
    accept: In(1)
    last: In(1)
    enables: In(1)
    links_base: In(1)
    links_amount: In(1)
    held: In(1)
    settled: In(1)
    active: In(1)
    fetch: Out(1)
    begins: Out(1)
    ends: Out(1)
    index: Out(12)
    final: Out(12)
    fetched: Out(12)
    idle: Out(1)
    open: Out(1)
    closes: Out(1)
    follows: Out(1)
    drains: Out(1)
    stuck: Out(1)
    diag: Out(DiagnosticPort())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        final, list_index, fetch_index = Signal(12), Signal(12), Signal(12)
        prefetch = Signal()  # the setting of this kick
        enabled = Signal()  # the op-enable word of the list has been executed
        base_seen, amount_seen = Signal(), Signal()
        ahead = Signal()  # the fetch of the next list has been started
        more = Signal()
        m.d.comb += [
            more.eq(list_index != final),
            self.index.eq(list_index),
            self.final.eq(final),
            self.fetched.eq(fetch_index),
            self.diag.payload.code.eq(DiagnosticCode.BAD_COMMAND),
            self.diag.payload.register.eq(_PC["OPERATION_ENABLE"].offset),
        ]
        with m.If(self.links_base):
            m.d.sync += base_seen.eq(1)
        with m.If(self.links_amount):
            m.d.sync += amount_seen.eq(1)
        with m.If(self.enables):
            m.d.sync += enabled.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.idle.eq(1)
                with m.If(self.kick):
                    with m.If(self.slave_mode | (self.tasks == 0)):
                        m.d.comb += self.diag.valid.eq(1)
                    with m.Else():
                        m.d.comb += [self.fetch.eq(1), self.begins.eq(1)]
                        m.d.sync += [
                            final.eq(self.tasks - 1),
                            prefetch.eq(self.prefetch),
                            list_index.eq(0),
                            fetch_index.eq(0),
                        ]
                        m.next = "LIST"
            with m.State("LIST"):
                m.d.comb += self.open.eq(1)
                # Read ahead as soon as the link is known, while the op-enable word is held.
                early = self.held & base_seen & amount_seen & prefetch & more
                with m.If(early & ~ahead & self.fetch_ready):
                    m.d.comb += self.fetch.eq(1)
                    m.d.sync += [ahead.eq(1), fetch_index.eq(fetch_index + 1)]
                with m.If(self.accept & self.last):
                    m.next = "LIST-END"
            with m.State("LIST-END"):
                m.d.comb += self.closes.eq(1)
                m.d.sync += [enabled.eq(0), base_seen.eq(0), amount_seen.eq(0), ahead.eq(0)]
                with m.If(~enabled):
                    m.d.comb += [self.diag.valid.eq(1), self.diag.payload.value.eq(list_index)]
                    m.next = "NEVER-ENDS"
                with m.Elif(~more):
                    m.next = "DRAIN"
                with m.Elif(ahead):
                    m.d.sync += list_index.eq(list_index + 1)
                    m.next = "LIST"
                with m.Elif(base_seen):
                    m.next = "NEXT"
                with m.Else():
                    m.d.comb += [
                        self.diag.valid.eq(1),
                        self.diag.payload.register.eq(_PC["BASE_ADDRESS"].offset),
                        self.diag.payload.value.eq(list_index),
                    ]
                    m.next = "DRAIN"
            with m.State("NEXT"):
                m.d.comb += self.follows.eq(1)
                with m.If((prefetch | (self.settled & ~self.active)) & self.fetch_ready):
                    m.d.comb += self.fetch.eq(1)
                    m.d.sync += [list_index.eq(list_index + 1), fetch_index.eq(fetch_index + 1)]
                    m.next = "LIST"
            with m.State("DRAIN"):
                m.d.comb += self.drains.eq(1)
                with m.If(~self.active):
                    m.d.comb += self.ends.eq(1)
                    m.next = "IDLE"
            with m.State("NEVER-ENDS"):
                m.d.comb += self.stuck.eq(1)
        with m.If(self.kick & ~self.idle):
            m.d.comb += self.diag.valid.eq(1)
        return m
