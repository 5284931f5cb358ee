"""Words of task lists: what each one is, and its execution ([HW 1.4], [HW 1.5])."""

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.bus import RegisterBus
from rkcosim.rtl.layouts import DiagnosticCode, DiagnosticPort
from rkcosim.rtl.list_fetch import WORDS
from rkcosim.rtl.regbus import OP_ENABLE_BITS
from rkcosim.rtl.regfile import pack_fields, register_layout
from rkcosim.spec.regs import registers

_R = registers()
_PC = _R["PC"]
_TARGETS = _R.word.fields["TARGET"].enum
_PRESENT = 0x0001
"""Bit of the target code that is set in every valid word and ignored by the decoder [HW 1.4]."""

WORD = register_layout(_R.word)
"""Fields of a word: TARGET, VALUE, OFFSET."""


def _code(target: str) -> int:
    return _TARGETS[target] & ~_PRESENT


class WordDecoder(wiring.Component):
    """What a word is; a word of none of these kinds is a no-op [HW 1.4]. Combinational.

    Members
    -------
    word : In(WORD)
    enable : Out(1)    : op-enable word.
    write : Out(1)     : write of a register outside of the PC, or of the PC without an effect on the list.
    base, amount : Out(1) : link: address, or length, of the next list.
    malformed : Out(1) : the word is not allowed.
    table : Out(1)     : it names LUT_ACCESS, which has no register groups.
    """

    word: In(WORD)
    enable: Out(1)
    write: Out(1)
    base: Out(1)
    amount: Out(1)
    malformed: Out(1)
    table: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = self.word
        target, window = Signal(16), word.OFFSET[12:]
        m.d.comb += [target.eq(word.TARGET & ~_PRESENT), self.malformed.eq(0)]
        with m.Switch(word.OFFSET):
            with m.Case(*(r.offset for r in _R["DPU"] if r.name.startswith("LUT_ACCESS"))):
                m.d.comb += self.table.eq(1)
        with m.Switch(target):
            with m.Case(0, _code("CONFIG_END")):
                pass
            with m.Case(_code("OP_ENABLE")):
                right = word.OFFSET == _PC["OPERATION_ENABLE"].offset
                m.d.comb += [self.enable.eq(right), self.malformed.eq(~right)]
            with m.Case(_code("PC")):
                here = window == _PC.base >> 12
                with m.If(word.OFFSET == _PC["BASE_ADDRESS"].offset):
                    slave = word.VALUE[_PC["BASE_ADDRESS"].fields["PC_SEL"].lsb]
                    m.d.comb += [self.base.eq(~slave), self.malformed.eq(slave)]
                with m.Elif(word.OFFSET == _PC["REGISTER_AMOUNTS"].offset):
                    m.d.comb += self.amount.eq(1)
                with m.Else():
                    m.d.comb += [self.write.eq(here), self.malformed.eq(~here)]
            for name in _TARGETS:
                if name in ("NOP", "CONFIG_END", "OP_ENABLE", "PC"):
                    continue
                windows = [b.base >> 12 for b in _R if b.target == _TARGETS[name]]
                with m.Case(_code(name)):
                    here = Signal(name=f"in_{name.lower()}")
                    with m.Switch(window):
                        with m.Case(*windows):
                            m.d.comb += here.eq(1)
                    m.d.comb += [self.write.eq(here), self.malformed.eq(~here)]
            with m.Default():
                m.d.comb += self.malformed.eq(1)
        return m


class WordExecution(wiring.Component):
    """Take the words of a list one by one and execute each before the next one is taken.

    Members
    -------
    words : In(stream)     : words of the lists, with `last` at the last one of each.
    open : In(1)           : words may be taken.
    settled : In(1)        : words may be executed: the effects of the last op-enable are visible.
    may_enable : In(1)     : an op-enable word with the mask `value` may be executed.
    dpu_busy : In(1)       : the DPU is enabled or active, so a write of LUT_ACCESS waits.
    bus : Out(RegisterBus()) : register writes, for the fabric.
    valid : Out(1)         : a word has been taken and is not executed yet.
    value : Out(32)        : its value.
    enable, write : Out(1) : what it is, whether valid or not (`WordDecoder`).
    held : Out(1)          : an op-enable word could be executed but for `may_enable`.
    accept : Out(1)        : pulse, it is executed.
    last : Out(1)          : with `accept`: it is the last one of its list.
    enables, links_base, links_amount : Out(1) : pulses, an op-enable word or a part of a link is executed.
    diag : Out(DiagnosticPort()) : BAD_COMMAND.
    """

    words: In(stream.Signature(WORDS))
    open: In(1)
    settled: In(1)
    may_enable: In(1)
    dpu_busy: In(1)
    bus: Out(RegisterBus())
    valid: Out(1)
    value: Out(32)
    enable: Out(1)
    write: Out(1)
    held: Out(1)
    accept: Out(1)
    last: Out(1)
    enables: Out(1)
    links_base: Out(1)
    links_amount: Out(1)
    diag: Out(DiagnosticPort())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.decoder = decoder = WordDecoder()
        word, last = Signal(WORD, reset_less=True), Signal(reset_less=True)
        ready = Signal()
        m.d.comb += [
            decoder.word.eq(word),
            self.value.eq(word.VALUE),
            self.last.eq(last),
            self.enable.eq(decoder.enable),
            self.write.eq(decoder.write),
            ready.eq(self.valid & self.settled),
            self.held.eq(ready & decoder.enable),
            self.bus.write.eq(ready & decoder.write & (~decoder.table | ~self.dpu_busy)),
            self.bus.offset.eq(word.OFFSET),
            self.bus.wdata.eq(word.VALUE),
            self.accept.eq(
                ready & Mux(decoder.write, self.bus.write & self.bus.ready, ~decoder.enable | self.may_enable)
            ),
            self.enables.eq(self.accept & decoder.enable),
            self.links_base.eq(self.accept & decoder.base),
            self.links_amount.eq(self.accept & decoder.amount),
            self.diag.valid.eq(
                self.accept & (decoder.malformed | (decoder.enable & ~word.VALUE[:OP_ENABLE_BITS].any()))
            ),
            self.diag.payload.code.eq(DiagnosticCode.BAD_COMMAND),
            self.diag.payload.register.eq(word.OFFSET),
            self.diag.payload.value.eq(word.VALUE),
            self.words.ready.eq(self.open & (~self.valid | (self.accept & ~last))),
        ]
        with m.If(self.accept):
            m.d.sync += self.valid.eq(0)
        with m.If(self.words.valid & self.words.ready):
            m.d.sync += [
                self.valid.eq(1),
                Value.cast(word).eq(pack_fields(_R.word, self.words.payload.word)),
                last.eq(self.words.payload.last),
            ]
        taken = self.words.valid & self.words.ready
        assertions.stable(m, platform, {"decoder.table": decoder.table}, "WordExecution", after=taken)
        assertions.ports(m, platform, self)
        return m
