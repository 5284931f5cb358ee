"""Writes runs of 16-byte atoms as AXI bursts; shared by the DPU and the PPU."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import AXI_BITS, WritePort

ATOM_BITS = AXI_BITS // 2
BURST_BEATS = 16
"""Beats of the longest burst that a `WriteRequest` can express."""


class AtomRun(data.Struct):
    """Consecutive atoms in memory.

    Members
    -------
    addr : byte address of the first one, a multiple of 16.
    atoms : their number, 1..32.
    masked : bytes of each atom that are not written; never all of them.
    """

    addr: 32
    atoms: 6
    masked: ATOM_BITS // 8


class AtomPair(data.Struct):
    """One atom of a run, or two consecutive atoms if `two` is set; the first one in the low half of `data`.

    A pair never extends beyond the end of its run.
    """

    data: AXI_BITS
    two: 1


class AtomWriter(wiring.Component):
    """Pack runs of atoms into bursts of 32-byte beats with byte strobes.

    Runs and atoms are independent streams: a run may arrive before, together with or after its first atoms.
    One beat per cycle is written as long as two atoms per cycle arrive. A run that starts in the upper half
    of a beat takes one beat more, as on the bus.

    Members
    -------
    run : destination of the next atoms.
    atoms : the atoms of the runs, in order; one or two per cycle in any mixture.
    write : requests and their beats, which may be offered before the request is accepted.
    idle : no run is open, nothing is buffered and every write response has arrived.
    """

    run: In(stream.Signature(AtomRun))
    atoms: In(stream.Signature(AtomPair))
    write: Out(WritePort())
    idle: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        opened, flush = Signal(), Signal()
        asking, pending = self._requests(m, opened, flush, platform)
        out_valid = self._beats(m, opened, flush)
        working = Signal()
        m.d.comb += [
            working.eq(opened | flush | asking | out_valid),
            self.idle.eq(~working & (pending == 0)),
        ]
        assertions.ports(m, platform, self)
        return m

    def _requests(self, m: Module, opened: Signal, flush: Signal, platform: object) -> tuple[Signal, Signal]:
        """Send one request per run, or two if it takes more than 16 beats.

        Returns whether a request is open, and the number of requests whose response is outstanding.
        """
        req, run = self.write.req, self.run
        asking, long = Signal(), Signal()
        addr, beats = Signal(27, reset_less=True), Signal(5, reset_less=True)
        m.d.comb += [
            long.eq(beats > BURST_BEATS),
            req.valid.eq(asking),
            req.payload.addr.eq(Cat(Const(0, 5), addr)),
            req.payload.beats_m1.eq(Mux(long, BURST_BEATS - 1, beats - 1)),
            run.ready.eq(~opened & ~flush & (~asking | (req.ready & ~long))),
        ]
        with m.If(asking & req.ready):
            m.d.sync += [asking.eq(long), addr.eq(addr + BURST_BEATS), beats.eq(beats - BURST_BEATS)]
        with m.If(run.valid & run.ready):
            m.d.sync += [asking.eq(1), addr.eq(run.payload.addr[5:])]
            m.d.sync += beats.eq((run.payload.atoms + run.payload.addr[4] + 1) >> 1)

        pending = Signal(10)  # the DMA keeps their number small
        asked = Signal()
        m.d.comb += asked.eq(req.valid & req.ready)
        with m.If(asked & ~self.write.done):
            m.d.sync += pending.eq(pending + 1)
        with m.Elif(~asked & self.write.done):
            m.d.sync += pending.eq(pending - 1)
        done = self.write.done
        assertions.bounded(m, platform, pending, "AtomWriter.pending", up=asked, down=done, given=True)
        return asking, pending

    def _beats(self, m: Module, opened: Signal, flush: Signal) -> Signal:
        """Align atoms to beats; returns whether a beat is offered.

        `hold` is the lower half of a beat whose upper half has not arrived yet.
        """
        out, atoms, run = self.write.data, self.atoms, self.run
        left_r = Signal(6, reset_less=True)
        odd_r = Signal(reset_less=True)
        count_r = Signal(4, reset_less=True)
        held = Signal()
        hold = Signal(ATOM_BITS, reset_less=True)
        out_valid, out_data = Signal(), Signal(AXI_BITS, reset_less=True)
        out_low, out_high = Signal(reset_less=True), Signal(reset_less=True)
        out_last = Signal(reset_less=True)
        written_r, out_written = Signal(16, reset_less=True), Signal(16, reset_less=True)
        m.d.comb += [
            out.valid.eq(out_valid),
            out.payload.data.eq(out_data),
            out.payload.strb.eq(Cat(Mux(out_low, out_written, 0), Mux(out_high, out_written, 0))),
            out.payload.last.eq(out_last),
        ]

        # A run is active from the cycle in which it is accepted.
        left, odd, count, written = Signal(6), Signal(), Signal(4), Signal(16)
        given, start = Signal(), Signal()
        m.d.comb += [
            start.eq(run.valid & run.ready),
            given.eq(opened | start),
            left.eq(Mux(opened, left_r, run.payload.atoms)),
            odd.eq(Mux(opened, odd_r, run.payload.addr[4])),
            count.eq(Mux(opened, count_r, 0)),
            written.eq(Mux(start, ~run.payload.masked, written_r)),
        ]
        room, take, final, emit = Signal(), Signal(), Signal(), Signal()
        two = atoms.payload.two
        low, high = atoms.payload.data[:ATOM_BITS], atoms.payload.data[ATOM_BITS:]
        m.d.comb += [
            room.eq(~out_valid | out.ready),
            atoms.ready.eq(given & room & ~flush),
            take.eq(atoms.valid & atoms.ready),
            final.eq(left == Mux(two, 2, 1)),
        ]
        with m.If(start):
            m.d.sync += [opened.eq(1), left_r.eq(left), odd_r.eq(odd), count_r.eq(0), written_r.eq(written)]
        with m.If(out.ready):
            m.d.sync += out_valid.eq(0)
        with m.If(take):
            spill = Signal()  # two atoms, and the second one starts a new beat
            m.d.comb += spill.eq(odd & two)
            m.d.comb += emit.eq(odd | two | final)
            m.d.sync += [
                left_r.eq(left - Mux(two, 2, 1)),
                odd_r.eq(odd ^ ~two),
                opened.eq(~final),
                flush.eq(final & spill),
            ]
            with m.If(spill | ~odd):
                m.d.sync += hold.eq(Mux(spill, high, low))
            m.d.sync += held.eq((spill | ~emit) & ~final)
            with m.If(emit):
                m.d.sync += [
                    out_data.eq(Cat(Mux(odd, hold, low), Mux(odd, low, high))),
                    out_low.eq(~odd | held),
                    out_high.eq(odd | two),
                    out_last.eq((final & ~spill) | (count == BURST_BEATS - 1)),
                ]
        with m.Elif(flush & room):
            m.d.comb += emit.eq(1)
            m.d.sync += [out_data.eq(hold), out_low.eq(1), out_high.eq(0), out_last.eq(1)]
            m.d.sync += flush.eq(0)
        with m.If(emit):
            m.d.sync += [out_valid.eq(1), count_r.eq(count + 1), out_written.eq(written)]
        return out_valid
