"""Write side of the PPU: output rows, and the positions of extrema, as runs of atoms ([HW 9.4], [HW 9.5])."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import WritePort
from rkcosim.rtl.npu.atom_writer import AtomWriter
from rkcosim.rtl.npu.ppu_finish import Pooled
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.types import POOL_RUN


class PpuWriter(wiring.Component):
    """Write pooled atoms that arrive group by group: row, column, surface of the group.

    A group of one surface is written in runs along its rows (through the whole surface without a
    notch), a wider group atom by atom.

    Members
    -------
    cfg : registers of the PPU.
    start : load the settings.
    surfaces : surfaces of the cube.
    group : surfaces of a full group, 1..8.
    indexed : also write the positions; constant during a task.
    i : pooled atoms.
    write : port towards the DMA.
    running : from start until the last write response.
    """

    cfg: In(config_signature("PPU"))
    start: In(1)
    surfaces: In(10)
    group: In(4)
    indexed: In(1)
    i: In(stream.Signature(Pooled))
    write: Out(WritePort())
    running: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.writer = writer = AtomWriter()
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        # Each queue holds a piece while that of the other queue is written.
        m.submodules.values = values = SyncFIFOBuffered(width=128, depth=2 * POOL_RUN)
        m.submodules.places = places = SyncFIFOBuffered(width=128, depth=2 * POOL_RUN)
        phase = Signal()  # the run consists of positions
        serves_places = Signal()  # the atoms that the writer accepts now are positions
        left_in_run = Signal(6)
        offered = Signal()
        m.d.comb += [
            values.w_data.eq(self.i.payload.data),
            places.w_data.eq(self.i.payload.index),
            self.i.ready.eq(values.w_rdy & (places.w_rdy | ~self.indexed)),
            values.w_en.eq(self.i.valid & self.i.ready),
            places.w_en.eq(self.i.valid & self.i.ready & self.indexed),
            writer.atoms.payload.two.eq(0),
            offered.eq(~self.indexed | (left_in_run != 0)),
        ]
        with m.If(serves_places):
            m.d.comb += [
                writer.atoms.payload.data.eq(places.r_data),
                writer.atoms.valid.eq(places.r_rdy & offered),
                places.r_en.eq(writer.atoms.ready & offered),
            ]
        with m.Else():
            m.d.comb += [
                writer.atoms.payload.data.eq(values.r_data),
                writer.atoms.valid.eq(values.r_rdy & offered),
                values.r_en.eq(writer.atoms.ready & offered),
            ]
        with m.If(~self.indexed):
            m.d.sync += serves_places.eq(0)
        with m.Elif(writer.run.valid & writer.run.ready):
            m.d.sync += [left_in_run.eq(writer.run.payload.atoms), serves_places.eq(phase)]
        with m.Elif(writer.atoms.valid & writer.atoms.ready):
            m.d.sync += left_in_run.eq(left_in_run - 1)
        self._runs(m, writer, phase)
        assertions.ports(m, platform, self)
        return m

    def _runs(self, m: Module, writer: AtomWriter, phase: Signal) -> None:
        cfg = self.cfg
        notch = cfg.OPERATION_MODE_CFG.NOTCH_ADDR
        out_width, out_height = Signal(14), Signal(14)
        line_atoms = Signal(26, reset_less=True)
        lines, line = Signal(14, reset_less=True), Signal(14, reset_less=True)
        left = Signal(26, reset_less=True)  # columns
        surfaces = Signal(10, reset_less=True)
        here = Signal(4, reset_less=True)  # surfaces of this group
        surface = Signal(4, reset_less=True)
        addr, column_addr = Signal(32, reset_less=True), Signal(32, reset_less=True)
        line_addr, group_addr = Signal(32, reset_less=True), Signal(32, reset_less=True)
        piece, stride = Signal(6), Signal(32)
        index_add = Cat(Const(0, 4), cfg.DATA_FORMAT.INDEX_ADD)
        m.d.comb += [
            out_width.eq(cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH + 1),
            out_height.eq(cfg.DATA_CUBE_OUT_HEIGHT.DATA_CUBE_OUT_HEIGHT + 1),
            stride.eq(Cat(Const(0, 4), cfg.DST_SURF_STRIDE.DST_SURF_STRIDE)),
            piece.eq(Mux(here != 1, 1, Mux(left < POOL_RUN, left, POOL_RUN))),
            writer.run.payload.addr.eq(Mux(phase, addr + index_add, addr)),
            writer.run.payload.atoms.eq(piece),
        ]

        def begin_group(start_addr: ValueLike, remaining: Value) -> list:
            return [
                here.eq(Mux(remaining < self.group, remaining, self.group)),
                surface.eq(1),
                line.eq(1),
                left.eq(line_atoms),
                *(x.eq(start_addr) for x in (addr, column_addr, line_addr, group_addr)),
            ]

        with m.FSM(name="runs"):
            with m.State("IDLE"):
                with m.If(self.start):
                    base = Cat(Const(0, 4), cfg.DST_BASE_ADDR.DST_BASE_ADDR)
                    first = Mux(notch == 0, out_width * out_height, out_width)
                    m.d.sync += [
                        self.running.eq(1),
                        line_atoms.eq(first),
                        lines.eq(Mux(notch == 0, 1, out_height)),
                        surfaces.eq(self.surfaces),
                        phase.eq(0),
                        *begin_group(base, self.surfaces),
                        left.eq(first),
                    ]
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += writer.run.valid.eq(1)  # accepted once all atoms of the previous run are
                with m.If(writer.run.valid & writer.run.ready):
                    with m.If(self.indexed):
                        m.d.sync += phase.eq(~phase)
                    with m.If(~self.indexed | phase):
                        next_column, next_line, next_group = Signal(32), Signal(32), Signal(32)
                        m.d.comb += [
                            next_column.eq(column_addr + (piece << 4)),
                            next_line.eq(line_addr + ((out_width + notch) << 4)),
                            next_group.eq(group_addr + here * stride),
                        ]
                        with m.If(surface != here):
                            m.d.sync += [surface.eq(surface + 1), addr.eq(addr + stride)]
                        with m.Elif(left != piece):
                            m.d.sync += [
                                surface.eq(1),
                                left.eq(left - piece),
                                addr.eq(next_column),
                                column_addr.eq(next_column),
                            ]
                        with m.Elif(line != lines):
                            m.d.sync += [
                                surface.eq(1),
                                line.eq(line + 1),
                                left.eq(line_atoms),
                                *(x.eq(next_line) for x in (addr, column_addr, line_addr)),
                            ]
                        with m.Else():
                            m.d.sync += [
                                *begin_group(next_group, surfaces - here),
                                surfaces.eq(surfaces - here),
                            ]
                            with m.If(surfaces == here):
                                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(writer.idle):
                    m.d.sync += self.running.eq(0)
                    m.next = "IDLE"
