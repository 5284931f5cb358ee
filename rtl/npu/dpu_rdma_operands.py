"""BRDMA and NRDMA: sequential reader of per-channel operands ([HW 3.7], [HW 8.3])."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import AXI_BITS, BsOctet, ReadPort
from rkcosim.spec.regs.counters import LEVEL_BITS

FIFO_BEATS = 64
BURST_BEATS = 16


class OperandReader(wiring.Component):
    """Read `blocks` blocks of the chosen kinds of operands and deliver each as one octet, or two as one.

    One atom is unpacked per cycle: an octet takes at most five cycles for eight channels.

    Members
    -------
    start : begin; `base`, `blocks`, `use`, `quads` and `void` are sampled in this cycle only.
    base : address in atoms.
    blocks : number of blocks of eight channels, at least one.
    use : kinds that are in memory: bit 0 ALU, 1 CPEND, 2 MUL; at least one.
    quads : only the first four channels of each block count; two blocks make an octet.
    void : the multipliers of the last block are 0.
    port : requests and data.
    octets : the operands, in the order of the channels.
    idle : everything has been delivered.
    beats : number of beats that are requested or buffered.
    """

    start: In(1)
    base: In(28)
    blocks: In(12)
    use: In(3)
    quads: In(1)
    void: In(1)
    port: Out(ReadPort())
    octets: Out(stream.Signature(BsOctet))
    idle: Out(1)
    beats: Out(LEVEL_BITS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=AXI_BITS, depth=FIFO_BEATS)
        req = self.port.req
        use = Signal(3, reset_less=True)
        addr = Signal(27, reset_less=True)
        beats = Signal(13)
        room = Signal(range(FIFO_BEATS + 1), init=FIFO_BEATS)
        burst = Signal(5)
        pop, asked = Signal(), Signal()
        atoms = Signal(14)
        per_block = (self.use[0] << 1) + self.use[1] + self.use[2]
        m.d.comb += [
            atoms.eq(self.blocks * per_block),
            burst.eq(Mux(beats > BURST_BEATS, BURST_BEATS, beats)),
            req.valid.eq((beats != 0) & (room >= burst)),
            req.payload.addr.eq(Cat(Const(0, 5), addr)),
            req.payload.beats_m1.eq(burst - 1),
            asked.eq(req.valid & req.ready),
            fifo.w_en.eq(self.port.rsp.valid),
            fifo.w_data.eq(self.port.rsp.payload.data),
            fifo.r_en.eq(pop),
        ]
        with m.If(asked):
            m.d.sync += [addr.eq(addr + burst), beats.eq(beats - burst)]
        with m.If(asked | pop):
            m.d.sync += room.eq(room - Mux(asked, burst, 0) + pop)

        # Unpacking: `kind` is the place of the next atom in the octet (two of ALU, CPEND, MUL).
        left = Signal(14)
        upper = Signal()
        quads, void = Signal(reset_less=True), Signal(reset_less=True)
        second = Signal()  # the block is the second one of its octet
        kind, first, following = Signal(2), Signal(2), Signal(2)
        full, take, ends = Signal(), Signal(), Signal()
        atom = Mux(upper, fifo.r_data[128:], fifo.r_data[:128])
        octet = Signal(512, reset_less=True)
        m.d.comb += [
            first.eq(Mux(use[0], 0, Mux(use[1], 2, 3))),
            take.eq(fifo.r_rdy & ~full),
            pop.eq(take & (upper | (left == 1))),
        ]
        with m.Switch(kind):
            with m.Case(0):
                m.d.comb += following.eq(1)
            with m.Case(1):
                m.d.comb += [following.eq(Mux(use[1], 2, 3)), ends.eq(~use[1] & ~use[2])]
            with m.Case(2):
                m.d.comb += [following.eq(3), ends.eq(~use[2])]
            with m.Case(3):
                m.d.comb += ends.eq(1)
        with m.If(take):
            m.d.sync += [
                upper.eq(~upper),
                left.eq(left - 1),
                kind.eq(Mux(ends, first, following)),
                full.eq(ends & (~quads | second | (left == 1))),
                second.eq(second ^ (ends & quads)),
            ]
            with m.If(~quads):
                with m.Switch(kind):
                    for place in range(4):
                        with m.Case(place):
                            given = Mux(void & (left == 1), 0, atom) if place == 3 else atom
                            m.d.sync += octet[128 * place : 128 * (place + 1)].eq(given)
            with m.Else():
                # The first atom of the ALU operands has four channels, the others have eight.
                for half in range(2):
                    with m.If(second == half), m.Switch(kind):
                        with m.Case(0):
                            m.d.sync += octet[128 * half : 128 * (half + 1)].eq(atom)
                        for place in (2, 3):
                            start = 128 * place + 64 * half
                            with m.Case(place):
                                m.d.sync += octet[start : start + 64].eq(atom[:64])
        m.d.comb += [
            self.octets.valid.eq(full),
            self.beats.eq(FIFO_BEATS - room),
            self.octets.payload.eq(octet),
            self.idle.eq(~full & (left == 0) & (beats == 0)),
        ]
        with m.If(full & self.octets.ready):
            m.d.sync += full.eq(0)
        with m.If(self.start):
            m.d.sync += [
                use.eq(self.use),
                addr.eq(self.base[1:]),
                beats.eq((atoms + self.base[0] + 1) >> 1),
                left.eq(atoms),
                upper.eq(self.base[0]),
                kind.eq(Mux(self.use[0], 0, Mux(self.use[1], 2, 3))),
                quads.eq(self.quads),
                void.eq(self.void),
                second.eq(0),
                octet.eq(0),
            ]
        assertions.has_room(m, platform, fifo, "OperandReader.fifo")
        assertions.has_value(m, platform, fifo, "OperandReader.fifo")
        reserved = Mux(asked, burst, 0)
        assertions.bounded(m, platform, room, "OperandReader.room", up=pop, down=reserved, most=FIFO_BEATS)
        assertions.ports(m, platform, self)
        return m
