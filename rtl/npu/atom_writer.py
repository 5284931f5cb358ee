"""Turns runs of 16-byte atoms into AXI write bursts; shared by the DPU and the PPU."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import AXI_BITS, WritePort

ATOM_BITS = AXI_BITS // 2
BURST_BEATS = 16
"""Longest burst a `WriteRequest` can express."""


class AtomRun(data.Struct):
    """`atoms` (1..32) consecutive atoms from byte address `addr`, a multiple of 16.

    Bytes of each atom whose bit in `masked` is set stay as they are in memory; never all of them.
    """

    addr: 32
    atoms: 6
    masked: ATOM_BITS // 8


class AtomPair(data.Struct):
    """One or, with `two`, two consecutive atoms of a run; the first in the low half of `data`.

    A pair never reaches over the end of its run.
    """

    data: AXI_BITS
    two: 1


class AtomWriter(wiring.Component):
    """Packs runs of atoms into bursts of 32-byte beats with byte strobes.

    Runs and atoms are independent streams: a run may be given before, with or after its first atoms
    are offered.  A beat a cycle leaves as long as two atoms a cycle come; a run that starts in the
    upper half of a beat costs one beat more, as on the bus.

    Members
    -------
    run : stream of AtomRun, in
    atoms : stream of AtomPair, in
        The atoms of the runs, in order; one or two a cycle, mixed as the sender likes.
    write : WritePort, out
        Requests and their beats, which may be offered before the request is taken.
    idle : 1, out
        No run is open, nothing is buffered and every write response has arrived.
    moves : 1, out
        A register in here may change without a new run (rtl/clock_groups.py).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "run": In(stream.Signature(AtomRun)),
                "atoms": In(stream.Signature(AtomPair)),
                "write": Out(WritePort()),
                "idle": Out(1),
                "moves": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._requests(m)
        self._beats(m)
        working = Signal()
        m.d.comb += [
            working.eq(self._open | self._flush | self._asking | self._out_valid),
            self.idle.eq(~working & (self._pending == 0)),
            self.moves.eq(working | self.write.done),
        ]
        return m

    def _requests(self, m: Module) -> None:
        """One request per run, two where it takes more than 16 beats."""
        req = self.write.req
        self._open = Signal()
        self._flush = Signal()
        self._asking = asking = Signal()
        addr = Signal(27, reset_less=True)
        beats = Signal(5, reset_less=True)
        long = Signal()
        m.d.comb += [
            long.eq(beats > BURST_BEATS),
            req.valid.eq(asking),
            req.payload.addr.eq(Cat(Const(0, 5), addr)),
            req.payload.beats_m1.eq(Mux(long, BURST_BEATS - 1, beats - 1)),
        ]
        with m.If(asking & req.ready):
            m.d.sync += asking.eq(long)
            m.d.sync += addr.eq(addr + BURST_BEATS)
            m.d.sync += beats.eq(beats - BURST_BEATS)
        m.d.comb += self.run.ready.eq(~self._open & ~self._flush & (~asking | (req.ready & ~long)))
        with m.If(self.run.valid & self.run.ready):
            m.d.sync += asking.eq(1)
            m.d.sync += addr.eq(self.run.payload.addr[5:])
            m.d.sync += beats.eq((self.run.payload.atoms + self.run.payload.addr[4] + 1) >> 1)

        # Requests accepted whose response is still to come; the DMA keeps them few.
        self._pending = pending = Signal(10)
        asked = Signal()
        m.d.comb += asked.eq(req.valid & req.ready)
        with m.If(asked & ~self.write.done):
            m.d.sync += pending.eq(pending + 1)
        with m.Elif(~asked & self.write.done):
            m.d.sync += pending.eq(pending - 1)

    def _beats(self, m: Module) -> None:
        """Align atoms to beats: `hold` is the lower half of a beat whose upper half is to come."""
        out, atoms, opened = self.write.data, self.atoms, self._open
        left_r = Signal(6, reset_less=True)
        odd_r = Signal(reset_less=True)
        count_r = Signal(4, reset_less=True)
        held = Signal()
        hold = Signal(ATOM_BITS, reset_less=True)
        self._out_valid = out_valid = Signal()
        out_data = Signal(AXI_BITS, reset_less=True)
        out_low = Signal(reset_less=True)
        out_high = Signal(reset_less=True)
        out_last = Signal(reset_less=True)
        written_r, out_written = Signal(16, reset_less=True), Signal(16, reset_less=True)
        m.d.comb += [
            out.valid.eq(out_valid),
            out.payload.data.eq(out_data),
            out.payload.strb.eq(Cat(Mux(out_low, out_written, 0), Mux(out_high, out_written, 0))),
            out.payload.last.eq(out_last),
        ]

        # A run is in use from the cycle in which it is taken.
        left = Signal(6)
        odd = Signal()
        count = Signal(4)
        written = Signal(16)
        given, start = Signal(), Signal()
        m.d.comb += [
            start.eq(self.run.valid & self.run.ready),
            given.eq(opened | start),
            left.eq(Mux(opened, left_r, self.run.payload.atoms)),
            odd.eq(Mux(opened, odd_r, self.run.payload.addr[4])),
            count.eq(Mux(opened, count_r, 0)),
            written.eq(Mux(start, ~self.run.payload.masked, written_r)),
        ]
        room, take, final, emit = Signal(), Signal(), Signal(), Signal()
        two = atoms.payload.two
        low, high = atoms.payload.data[:ATOM_BITS], atoms.payload.data[ATOM_BITS:]
        m.d.comb += [
            room.eq(~out_valid | out.ready),
            atoms.ready.eq(given & room & ~self._flush),
            take.eq(atoms.valid & atoms.ready),
            final.eq(left == Mux(two, 2, 1)),
        ]
        with m.If(start):
            m.d.sync += [opened.eq(1), left_r.eq(left), odd_r.eq(odd), count_r.eq(0), written_r.eq(written)]
        with m.If(out.ready):
            m.d.sync += out_valid.eq(0)
        with m.If(take):
            spill = Signal()  # two atoms of which the second opens a new beat
            m.d.comb += spill.eq(odd & two)
            m.d.comb += emit.eq(odd | two | final)
            m.d.sync += [
                left_r.eq(left - Mux(two, 2, 1)),
                odd_r.eq(odd ^ ~two),
                opened.eq(~final),
                self._flush.eq(final & spill),
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
        with m.Elif(self._flush & room):
            m.d.comb += emit.eq(1)
            m.d.sync += [out_data.eq(hold), out_low.eq(1), out_high.eq(0), out_last.eq(1)]
            m.d.sync += self._flush.eq(0)
        with m.If(emit):
            m.d.sync += [out_valid.eq(1), count_r.eq(count + 1), out_written.eq(written)]
