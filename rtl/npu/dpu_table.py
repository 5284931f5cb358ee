"""Operand table of a DPU stage: the values of a channel group, double-buffered ([HW 3.7], [HW 7.5])."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import BsOctet

GROUP_OCTETS = 8
"""Octets of the largest channel group: 64 channels depthwise."""


class OperandTable(wiring.Component):
    """Hold the operands of the current and the next channel group; one octet is looked up per cycle.

    Members
    -------
    clear : empties the table (start of a task).
    active : a task runs; `load` is not read outside of a task.
    wanted : the stage uses operands; otherwise `load` is read and dropped.
    octets : octets of a full channel group: 1, 2, 4 or 8.
    load : the operands in the order of the channels.
    octet : number in the group of the octet to look up.
    available : the operands of `octet` are in the table, or none are wanted.
    take : look up; `operands` holds the result from the next cycle until the next `take`.
    release : with `take`, this is the last look-up of the group.
    operands : the result.
    """

    clear: In(1)
    active: In(1)
    wanted: In(1)
    octets: In(4)
    load: In(stream.Signature(BsOctet))
    octet: In(3)
    available: Out(1)
    take: In(1)
    release: In(1)
    operands: Out(BsOctet)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = Memory(shape=512, depth=16, init=[])
        write = memory.write_port()
        read = memory.read_port()
        count = [Signal(4, name=f"count{bank}") for bank in range(2)]
        fill, use = Signal(), Signal()
        filled, used = Signal(4), Signal(4)
        m.d.comb += [
            filled.eq(Array(count)[fill]),
            used.eq(Array(count)[use]),
            self.load.ready.eq(self.active & (~self.wanted | (filled != self.octets))),
            write.addr.eq(Cat(filled[:3], fill)),
            write.data.eq(self.load.payload.as_value()),
            write.en.eq(self.load.valid & self.load.ready & self.wanted),
            self.available.eq(~self.wanted | (used > self.octet)),
            read.addr.eq(Cat(self.octet, use)),
            read.en.eq(self.take & self.wanted),
            self.operands.eq(read.data),
        ]
        with m.If(write.en):
            for bank in range(2):
                with m.If(fill == bank):
                    m.d.sync += count[bank].eq(filled + 1)
            m.d.sync += fill.eq(Mux(filled + 1 == self.octets, ~fill, fill))
        with m.If(self.take & self.release & self.wanted):
            for bank in range(2):
                with m.If(use == bank):
                    m.d.sync += count[bank].eq(0)
            m.d.sync += use.eq(~use)
        with m.If(self.clear):
            m.d.sync += [fill.eq(0), use.eq(0), count[0].eq(0), count[1].eq(0)]
        assertions.ports(m, platform, self)
        return m
