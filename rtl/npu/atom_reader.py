"""Reads runs of consecutive atoms from memory as a stream of atoms, one per cycle."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import AXI_BITS, PpuAtom, ReadPort
from rkcosim.spec.regs.counters import LEVEL_BITS


class ReadRun(data.Struct):
    """`atoms` consecutive atoms (16 bytes each) from byte address `addr`, a multiple of 16."""

    addr: 32
    atoms: 26


class AtomReader(wiring.Component):
    """Fetch runs in bursts of up to 16 beats and deliver their atoms in order, one per cycle.

    Parameters
    ----------
    fifo_beats : int
        Number of 32-byte beats that may be requested or buffered; at least 32 (two bursts).

    Members
    -------
    run : In(stream of ReadRun)   : a run is accepted when all its bursts have been requested.
    atoms : Out(stream of PpuAtom): the atoms of the runs, in order.
    read : Out(ReadPort)          : towards the DMA.
    idle : Out(1)                 : no run is open, no beat is requested and no atom is buffered.
    beats : Out(16)               : number of beats that are requested or buffered.

    Raises
    ------
    ValueError
        If `fifo_beats` is less than 32.
    """

    run: In(stream.Signature(ReadRun))
    atoms: Out(stream.Signature(PpuAtom))
    read: Out(ReadPort())
    idle: Out(1)
    beats: Out(LEVEL_BITS)

    def __init__(self, fifo_beats: int) -> None:
        if fifo_beats < 32:
            raise ValueError(f"fifo_beats must be at least 32 (two bursts), not {fifo_beats}")
        self._beats = fifo_beats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.beats = beats = SyncFIFOBuffered(width=AXI_BITS, depth=self._beats)
        m.submodules.bursts = bursts = SyncFIFOBuffered(width=6, depth=max(4, self._beats // 4))

        # 1. Requests: cut the run into bursts while the buffer has room for their beats.
        busy = Signal()
        addr = Signal(32, reset_less=True)
        left = Signal(26, reset_less=True)
        room = Signal(range(self._beats + 1), init=self._beats)
        skip = addr[4]
        count = Signal(6)  # atoms of the next burst, 1..32
        beats_of = Signal(6)
        limit = Signal(6)
        m.d.comb += [
            limit.eq(Mux(skip, 31, 32)),
            count.eq(Mux(left < limit, left, limit)),
            beats_of.eq((count + skip + 1) >> 1),
        ]
        asking = Signal()
        m.d.comb += [
            asking.eq(busy & (room >= 16) & bursts.w_rdy),
            self.read.req.valid.eq(asking),
            self.read.req.payload.addr.eq(Cat(Const(0, 5), addr[5:])),
            self.read.req.payload.beats_m1.eq(beats_of - 1),
        ]
        asked = Signal()
        m.d.comb += asked.eq(asking & self.read.req.ready)
        m.d.comb += [
            bursts.w_data.eq(Cat(skip, (count - 1)[:5])),
            bursts.w_en.eq(asked),
            self.run.ready.eq(~busy),
        ]
        with m.If(~busy):
            with m.If(self.run.valid & (self.run.payload.atoms != 0)):
                m.d.sync += [busy.eq(1), addr.eq(self.run.payload.addr), left.eq(self.run.payload.atoms)]
        with m.Elif(asked):
            m.d.sync += [addr.eq(addr + (count << 4)), left.eq(left - count)]
            with m.If(left == count):
                m.d.sync += busy.eq(0)

        # 2. Buffer the beats; 3. deliver their atoms, dropping the half beats at the borders.
        m.d.comb += [
            beats.w_data.eq(self.read.rsp.payload.data),
            beats.w_en.eq(self.read.rsp.valid),
        ]
        half = Signal()
        opened = Signal()
        remaining = Signal(6)
        first_half = Signal()
        burst_skip = bursts.r_data[0]
        burst_atoms = Signal(6)
        m.d.comb += burst_atoms.eq(bursts.r_data[1:6] + 1)
        now_left = Signal(6)
        m.d.comb += [
            first_half.eq(Mux(opened, half, burst_skip)),
            now_left.eq(Mux(opened, remaining, burst_atoms)),
            self.atoms.valid.eq(beats.r_rdy & bursts.r_rdy),
            self.atoms.payload.data.eq(beats.r_data.word_select(first_half, 128)),
        ]
        took = Signal()
        last = Signal()
        m.d.comb += [
            took.eq(self.atoms.valid & self.atoms.ready),
            last.eq(now_left == 1),
            beats.r_en.eq(took & (first_half | last)),
            bursts.r_en.eq(took & last),
        ]
        with m.If(took):
            m.d.sync += [half.eq(~first_half), remaining.eq(now_left - 1), opened.eq(~last)]

        m.d.sync += room.eq(room - Mux(asked, beats_of, 0) + beats.r_en)
        m.d.comb += self.beats.eq(self._beats - room)
        m.d.comb += self.idle.eq(~busy & ~self.run.valid & ~bursts.r_rdy & (room == self._beats))
        for queue, name in ((beats, "beats"), (bursts, "bursts")):
            assertions.has_room(m, platform, queue, f"AtomReader.{name}")
            assertions.has_value(m, platform, queue, f"AtomReader.{name}")
        reserved = Mux(asked, beats_of, 0)
        assertions.bounded(
            m, platform, room, "AtomReader.room", up=beats.r_en, down=reserved, most=self._beats
        )
        assertions.ports(m, platform, self)
        return m
