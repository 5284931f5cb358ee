"""Burst reader of the two CNA loaders: reads runs of atoms from memory as a stream of beats."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.counters import activity_layout
from rkcosim.rtl.layouts import AXI_BITS, CbufFill, DiagnosticPort, ReadPort
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.config import NpuConfig
from rkcosim.spec.regs.counters import LEVEL_BITS

ATOM_ADDRESS_BITS = 28
"""Addresses count atoms of 16 bytes and wrap at 4 GiB."""

BURST_ATOMS = 32
"""Atoms of the longest burst. Bursts also end at multiples of it, so that none crosses 4 KiB."""


def loader_members(name: str) -> dict[str, wiring.Member]:
    """Members that both loaders have.

    `cfg` is stable from the pulse `start` to the pulse `done`. `beats` is that of the reader, and `activity`
    is for the counters (spec/regs/counters.rdl).
    """
    return {
        "cfg": In(config_signature("CNA")),
        "start": In(1),
        "done": Out(1),
        "read": Out(ReadPort()),
        "fill": Out(stream.Signature(CbufFill)),
        "diag": Out(DiagnosticPort()),
        "activity": Out(activity_layout(name)),
        "beats": Out(LEVEL_BITS),
    }


class AtomRun(data.Struct):
    """`atoms` (at least 1) consecutive atoms from atom address `addr`."""

    addr: ATOM_ADDRESS_BITS
    atoms: ATOM_ADDRESS_BITS


class AtomBeat(data.Struct):
    """A 32-byte beat; `low` and `high` tell which of its two atoms belong to the run."""

    data: AXI_BITS
    low: 1
    high: 1


class BurstReader(wiring.Component):
    """Fetch runs of atoms in long bursts and deliver their beats in order.

    A run that continues where the previous one ends is joined to it, so that contiguous rows, surfaces and
    whole matrices are fetched in full bursts. Buffer space for every beat is reserved before it is requested.

    Parameters
    ----------
    cfg : NpuConfig
        Geometry; `read_fifo_beats` limits the beats that are requested or buffered, at least 32.

    Members
    -------
    run : In(stream of AtomRun)   : runs offered without a gap are joined.
    burst_m1 : In(4)              : longest burst in beats, minus one (DMA_CON0).
    read : Out(ReadPort)          : towards the DMA.
    beat : Out(stream of AtomBeat): at least one of `low` and `high` is set.
    asked : Out(1)                : everything has been requested; beats may be outstanding.
    beats : Out(16)               : number of beats that are requested or buffered.
    idle : Out(1)                 : nothing to request, nothing outstanding, no beat buffered.

    Raises
    ------
    ValueError
        If `read_fifo_beats` is less than 32.
    """

    run: In(stream.Signature(AtomRun))
    burst_m1: In(4)
    read: Out(ReadPort())
    beat: Out(stream.Signature(AtomBeat))
    asked: Out(1)
    beats: Out(LEVEL_BITS)
    idle: Out(1)

    def __init__(self, cfg: NpuConfig) -> None:
        if cfg.read_fifo_beats < 32:
            raise ValueError(f"read_fifo_beats must be at least 32 (two bursts), not {cfg.read_fifo_beats}")
        self._beats = cfg.read_fifo_beats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.beats = beats = SyncFIFOBuffered(width=AXI_BITS + 2, depth=self._beats)
        m.submodules.borders = borders = SyncFIFO(width=2, depth=self._beats)

        # 1. Collect runs and cut bursts off the front.
        addr = Signal(ATOM_ADDRESS_BITS, reset_less=True)
        left = Signal(ATOM_ADDRESS_BITS + 1)
        room = Signal(range(self._beats + 1), init=self._beats)
        wanted = Signal(range(2 * 16 + 1))  # atoms of a burst of the length that software has set
        to_border = Signal(range(BURST_ATOMS + 1))
        limit = Signal(range(BURST_ATOMS + 1))
        count = Signal(range(BURST_ATOMS + 1))
        burst_beats = Signal(range(BURST_ATOMS // 2 + 1))
        m.d.comb += [
            wanted.eq(Cat(Const(0, 1), self.burst_m1) + 2 - addr[0]),
            to_border.eq(BURST_ATOMS - addr[:5]),
            limit.eq(Mux(wanted < to_border, wanted, to_border)),
            count.eq(Mux(left < limit, left, limit)),
            burst_beats.eq((count + addr[0] + 1) >> 1),
        ]
        run = self.run.payload
        empty = Signal()
        short = Signal()
        joins = Signal()
        asking = Signal()
        asked = Signal()
        end = Signal(ATOM_ADDRESS_BITS)
        free = Signal()
        m.d.comb += [
            empty.eq(left == 0),
            short.eq(left < limit),
            end.eq(addr + left),
            joins.eq(self.run.valid & short & ~empty & (run.addr == end)),
            free.eq(~self.read.req.valid | self.read.req.ready),
            asking.eq(~empty & ~joins),
            asked.eq(asking & free & borders.w_rdy & (room >= burst_beats)),
            self.run.ready.eq(empty | joins | (asked & (left == count))),
        ]
        with m.If(free):
            m.d.sync += self.read.req.valid.eq(asked)
        with m.If(asked):
            m.d.sync += [
                self.read.req.payload.addr.eq(Cat(Const(0, 5), addr[1:])),
                self.read.req.payload.beats_m1.eq(burst_beats - 1),
                addr.eq(addr + count),
                left.eq(left - count),
            ]
        with m.If(self.run.valid & self.run.ready):
            with m.If(joins):
                m.d.sync += left.eq(left + run.atoms)
            with m.Else():
                m.d.sync += [addr.eq(run.addr), left.eq(run.atoms)]

        # 2. Receive beats; the first or last half of a burst may lie outside the run.
        odd_start, odd_end = borders.r_data[0], borders.r_data[1]
        first = Signal(init=1)
        response = self.read.rsp
        m.d.comb += [
            borders.w_en.eq(asked),
            borders.w_data.eq(Cat(addr[0], addr[0] ^ count[0])),
            borders.r_en.eq(response.valid & response.payload.last),
            beats.w_en.eq(response.valid),
            beats.w_data.eq(
                Cat(response.payload.data, ~(first & odd_start), ~(response.payload.last & odd_end))
            ),
        ]
        with m.If(response.valid):
            m.d.sync += first.eq(response.payload.last)

        # 3. Deliver beats and release their buffer space.
        taken = Signal()
        m.d.comb += [
            self.beat.valid.eq(beats.r_rdy),
            self.beat.payload.eq(beats.r_data),
            beats.r_en.eq(self.beat.ready),
            taken.eq(self.beat.valid & self.beat.ready),
            self.asked.eq(empty & ~self.run.valid),
            self.idle.eq(self.asked & (room == self._beats)),
            self.beats.eq(self._beats - room),
        ]
        with m.If(asked | taken):
            m.d.sync += room.eq(room - Mux(asked, burst_beats, 0) + taken)
        assertions.has_room(m, platform, beats, "BurstReader.beats")
        assertions.has_room(m, platform, borders, "BurstReader.borders")
        assertions.has_value(m, platform, borders, "BurstReader.borders")
        reserved = Mux(asked, burst_beats, 0)
        assertions.bounded(m, platform, room, "BurstReader.room", up=taken, down=reserved, most=self._beats)
        assertions.ports(m, platform, self)
        return m
