"""PPU: pooling over separable windows (docs/hardware.md 6, H6).

An input atom takes max(1, windows open in x, windows open in y) cycles and an output atom two
(the final multiplication serves eight lanes a cycle).  Both rates are assumptions: nothing about the
PPU's speed is published.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.config import NpuConfig
from rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, PpuAtom, WritePort
from rtl.npu.atom_writer import AtomWriter
from rtl.npu.ppu_finish import PpuFinish
from rtl.npu.ppu_windows import H_BITS, LANES, TAP_BITS, V_BITS, Axis, reduce_lanes
from rtl.regfile import config_signature
from rtl.regs import registers

ROW_CAPACITY = 2048
"""Partial results of open rows the PPU holds (kernel height x output width).  Our choice, well above
the widths that silicon takes without column tiles (34 columns at 3x3, H6.2; Q31)."""

_METHOD_AVERAGE = 0
_METHOD_MAX = 1


class Ppu(wiring.Component):
    """Pool a cube of int8 atoms and write the result.

    Members
    -------
    cfg : In(config_signature("PPU"))  : stable from start to done.
    control : In(ControlPort)          : done after the last write response.
    atoms : In(stream of PpuAtom)      : input cube, surface by surface, row by row.
    write : Out(WritePort)             : towards the DMA.
    diag : Out(DiagnosticPort)
    busy_atom : Out(1)                 : an input atom was taken (for counters).
    """

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("PPU")),
                "control": In(ControlPort()),
                "atoms": In(stream.Signature(PpuAtom)),
                "write": Out(WritePort()),
                "diag": Out(DiagnosticPort()),
                "busy_atom": Out(1),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        cfg = self.cfg
        kernel = cfg.POOLING_KERNEL_CFG
        pads = cfg.POOLING_PADDING_CFG
        method = cfg.OPERATION_MODE_CFG.POOLING_METHOD
        average = Signal()
        use_max = Signal()
        m.d.comb += [average.eq(method == _METHOD_AVERAGE), use_max.eq(method == _METHOD_MAX)]
        pad = Signal(TAP_BITS)
        m.d.comb += pad.eq(cfg.PADDING_VALUE_1_CFG.PAD_VALUE_0)
        pad_signed = pad.as_signed()

        running = Signal()
        surfaces_left = Signal(10, reset_less=True)

        # 1. Columns: walk x over one row, keep up to sixteen open windows.
        cols = Axis(
            m,
            "x",
            kernel.KERNEL_WIDTH,
            kernel.KERNEL_STRIDE_WIDTH,
            pads.PAD_LEFT,
            cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH,
            cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH,
        )
        rows = Axis(
            m,
            "y",
            kernel.KERNEL_HEIGHT,
            kernel.KERNEL_STRIDE_HEIGHT,
            pads.PAD_TOP,
            cfg.DATA_CUBE_IN_HEIGHT.DATA_CUBE_IN_HEIGHT,
            cfg.DATA_CUBE_OUT_HEIGHT.DATA_CUBE_OUT_HEIGHT,
        )
        out_width = Signal(14)
        m.d.comb += out_width.eq(cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH + 1)

        hacc = Memory(shape=LANES * H_BITS, depth=16, init=[])
        m.submodules.hacc = hacc
        h_read = hacc.read_port(domain="comb")
        h_write = hacc.write_port()
        op_index = Signal(5)  # which of the open windows this cycle serves
        tap = Signal(data.ArrayLayout(H_BITS, LANES))
        real_x = Signal()
        m.d.comb += real_x.eq(cols.inside)
        for lane in range(LANES):
            value = self.atoms.payload.data.word_select(lane, 8).as_signed()
            m.d.comb += tap[lane].eq(Mux(real_x, value, pad_signed))
        slot = Signal(4)
        m.d.comb += [slot.eq(cols.lowest + op_index), h_read.addr.eq(slot)]
        op_first = Signal()
        op_last = Signal()
        serves = Signal()
        m.d.comb += [
            serves.eq(cols.open_now != 0),
            op_first.eq(cols.opens & (op_index == cols.open_now - 1)),
            op_last.eq(cols.closes & (op_index == 0)),
        ]
        h_new = Signal(LANES * H_BITS)
        reduced = reduce_lanes(h_read.data, tap.as_value(), H_BITS, average, use_max)
        m.d.comb += h_new.eq(Mux(op_first, tap.as_value(), reduced))

        # 2. Rows: each finished column window meets the open rows.
        h_valid = Signal()
        h_data = Signal(LANES * H_BITS, reset_less=True)
        h_column = Signal(13, reset_less=True)
        h_done = Signal()
        h_free = Signal()
        m.d.comb += h_free.eq(~h_valid | h_done)

        row_real = Signal()
        row_open = Signal()
        m.d.comb += [row_real.eq(rows.inside), row_open.eq(rows.open_now != 0)]
        emit = Signal()
        emit_data = Signal(LANES * H_BITS)
        emit_column = Signal(13)
        pad_row = Signal(data.ArrayLayout(H_BITS, LANES))
        pad_sum = Signal(H_BITS)
        m.d.comb += pad_sum.eq(Mux(average, pad_signed * (kernel.KERNEL_WIDTH + 1), pad_signed))
        for lane in range(LANES):
            m.d.comb += pad_row[lane].eq(pad_sum)

        flat_column = Signal(13)
        step_ok = Signal()  # this cycle's column operation happens
        column_end = Signal()  # and it is the last of its column
        row_end = Signal()

        line_base = Signal(
            range(ROW_CAPACITY), reset_less=True
        )  # place of the lowest open row among the partial rows
        row_span = Signal(
            range(ROW_CAPACITY + 1), reset_less=True
        )  # kernel height x output width: where the places wrap

        with m.FSM(name="state"):
            with m.State("IDLE"):
                with m.If(self.control.start):
                    m.d.sync += surfaces_left.eq(cfg.DATA_CUBE_IN_CHANNEL.DATA_CUBE_IN_CHANNEL[4:] + 1)
                    m.next = "CHECK"
            with m.State("CHECK"):
                span = Signal(18)
                m.d.comb += span.eq((kernel.KERNEL_HEIGHT + 1) * out_width)
                m.d.sync += row_span.eq(span)
                with m.If(span > ROW_CAPACITY):
                    # Wider inputs hang on silicon too (H6.2); here with a diagnostic.
                    self._report(m, "DATA_CUBE_OUT_WIDTH", DiagnosticCode.FEATURE_FOOTPRINT)
                    m.next = "HANG"
                with m.Elif(
                    (cfg.DATA_FORMAT.PROC_PRECISION != 0)
                    | ~cfg.OPERATION_MODE_CFG.FLYING_MODE
                    | cfg.OPERATION_MODE_CFG.INDEX_EN
                    | (method == 3)
                ):
                    with m.If(cfg.DATA_FORMAT.PROC_PRECISION != 0):
                        self._report(m, "DATA_FORMAT", DiagnosticCode.RESERVED_MODE)
                    with m.Else():
                        self._report(m, "OPERATION_MODE_CFG", DiagnosticCode.RESERVED_MODE)
                    m.next = "SURFACE"
                with m.Else():
                    m.next = "SURFACE"
            with m.State("HANG"):
                pass
            with m.State("SURFACE"):
                rows.begin(m)
                cols.begin(m)
                m.d.sync += [line_base.eq(0), flat_column.eq(0), op_index.eq(0)]
                m.next = "ROW"
            with m.State("ROW"):
                with m.If(row_real):
                    # A column step: its operations one after the other, the atom leaves with the last.
                    needs_emit = Signal()
                    m.d.comb += [
                        needs_emit.eq(serves & op_last & row_open),
                        step_ok.eq((~real_x | self.atoms.valid) & (~needs_emit | h_free)),
                        column_end.eq(step_ok & (~serves | (op_index == cols.open_now - 1))),
                        emit.eq(step_ok & needs_emit),
                        emit_data.eq(h_new),
                        emit_column.eq(cols.lowest),
                        h_write.addr.eq(slot),
                        h_write.data.eq(h_new),
                        h_write.en.eq(step_ok & serves),
                        self.atoms.ready.eq(column_end & real_x),
                        self.busy_atom.eq(column_end & real_x),
                        row_end.eq(column_end & cols.finishes),
                    ]
                    with m.If(step_ok):
                        m.d.sync += op_index.eq(Mux(column_end, 0, op_index + 1))
                    with m.If(column_end):
                        cols.advance(m)
                with m.Else():
                    # A row of padding: every window sees the same constant.
                    m.d.comb += [
                        emit.eq(h_free & row_open),
                        emit_data.eq(pad_row.as_value()),
                        emit_column.eq(flat_column),
                        row_end.eq((emit & (flat_column == out_width - 1)) | ~row_open),
                    ]
                    with m.If(emit):
                        m.d.sync += flat_column.eq(flat_column + 1)
                with m.If(row_end):
                    m.next = "ROW_END"
            with m.State("ROW_END"):
                with m.If(~h_valid):
                    m.d.sync += [flat_column.eq(0), op_index.eq(0)]
                    cols.begin(m)
                    with m.If(rows.closes & row_open):
                        next_base = Signal(15)
                        m.d.comb += next_base.eq(line_base + out_width)
                        m.d.sync += line_base.eq(Mux(next_base >= row_span, next_base - row_span, next_base))
                    with m.If(rows.finishes):
                        m.d.sync += surfaces_left.eq(surfaces_left - 1)
                        m.next = "SURFACE"
                        with m.If(surfaces_left == 1):
                            m.next = "DRAIN"
                    with m.Else():
                        rows.advance(m)
                        m.next = "ROW"
            with m.State("DRAIN"):
                with m.If(~running):
                    m.d.comb += self.control.done.eq(1)
                    m.next = "IDLE"

        with m.If(emit):
            m.d.sync += [h_valid.eq(1), h_data.eq(emit_data), h_column.eq(emit_column)]
        with m.Elif(h_done):
            m.d.sync += h_valid.eq(0)

        # 3. One read-modify-write of a partial row a cycle.
        vacc = Memory(shape=LANES * V_BITS, depth=ROW_CAPACITY, init=[])
        m.submodules.vacc = vacc
        v_read = vacc.read_port()
        v_write = vacc.write_port()
        v_index = Signal(5)
        v_base = Signal(14, reset_less=True)
        v_place = Signal(14)
        v_addr = Signal(range(ROW_CAPACITY))
        base_now = Signal(14)
        m.d.comb += [
            base_now.eq(Mux(v_index == 0, line_base, v_base)),
            v_place.eq(base_now + h_column),
            v_addr.eq(v_place),
        ]
        o_ready = Signal()
        v1_valid = Signal()
        v1_first = Signal(reset_less=True)
        v1_last = Signal(reset_less=True)
        v1_addr = Signal(range(ROW_CAPACITY), reset_less=True)
        v1_data = Signal(LANES * H_BITS, reset_less=True)
        v1_go = Signal()
        clash = Signal()
        issue = Signal()
        m.d.comb += [
            v1_go.eq(v1_valid & (~v1_last | o_ready)),
            clash.eq(v1_valid & ~v1_last & (v1_addr == v_addr)),
            issue.eq(h_valid & (~v1_valid | v1_go) & ~clash),
            v_read.addr.eq(v_addr),
            v_read.en.eq(issue),
            h_done.eq(issue & (v_index == rows.open_now - 1)),
        ]
        with m.If(issue):
            above = Signal(15)
            m.d.comb += above.eq(base_now + out_width)
            m.d.sync += [
                v1_valid.eq(1),
                v1_first.eq(rows.opens & (v_index == rows.open_now - 1)),
                v1_last.eq(rows.closes & (v_index == 0)),
                v1_addr.eq(v_addr),
                v1_data.eq(h_data),
                v_index.eq(Mux(h_done, 0, v_index + 1)),
                v_base.eq(Mux(above >= row_span, above - row_span, above)),
            ]
        with m.Elif(v1_go):
            m.d.sync += v1_valid.eq(0)
        wide = Signal(data.ArrayLayout(V_BITS, LANES))
        for lane in range(LANES):
            m.d.comb += wide[lane].eq(v1_data.word_select(lane, H_BITS).as_signed())
        v_new = Signal(LANES * V_BITS)
        v_reduced = reduce_lanes(v_read.data, wide.as_value(), V_BITS, average, use_max)
        m.d.comb += [
            v_new.eq(Mux(v1_first, wide.as_value(), v_reduced)),
            v_write.addr.eq(v1_addr),
            v_write.data.eq(v_new),
            v_write.en.eq(v1_go & ~v1_last),
        ]

        # 4. Division, then the writer.
        m.submodules.finish = finish = PpuFinish()
        m.d.comb += [
            finish.average.eq(average),
            finish.recip_width.eq(cfg.RECIP_KERNEL_WIDTH.RECIP_KERNEL_WIDTH),
            finish.recip_height.eq(cfg.RECIP_KERNEL_HEIGHT.RECIP_KERNEL_HEIGHT),
            finish.kernel_width.eq(kernel.KERNEL_WIDTH + 1),
            finish.kernel_height.eq(kernel.KERNEL_HEIGHT + 1),
            finish.i.valid.eq(v1_valid & v1_last),
            finish.i.payload.eq(v_new),
            o_ready.eq(finish.i.ready),
        ]
        m.submodules.writer = writer = AtomWriter()
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        m.submodules.out = out = SyncFIFOBuffered(width=128, depth=64)
        m.d.comb += [
            out.w_data.eq(finish.o.payload.data),
            out.w_en.eq(finish.o.valid),
            finish.o.ready.eq(out.w_rdy),
            writer.atoms.payload.data.eq(out.r_data),
            writer.atoms.payload.two.eq(0),
            writer.atoms.valid.eq(out.r_rdy),
            out.r_en.eq(writer.atoms.ready),
        ]
        self._runs(m, writer, running, out_width)
        return m

    def _runs(self, m: Module, writer: AtomWriter, running: Signal, out_width: Signal) -> None:
        """Drive the writer's runs: every output row (or surface, without a notch) in pieces of 32."""
        cfg = self.cfg
        notch = cfg.OPERATION_MODE_CFG.NOTCH_ADDR
        out_height = Signal(14)
        line_atoms = Signal(26, reset_less=True)
        lines = Signal(14, reset_less=True)
        line = Signal(14, reset_less=True)
        left = Signal(26, reset_less=True)
        surfaces = Signal(10, reset_less=True)
        addr = Signal(32, reset_less=True)
        line_addr = Signal(32, reset_less=True)
        surf_addr = Signal(32, reset_less=True)
        piece = Signal(6)
        m.d.comb += [
            out_height.eq(cfg.DATA_CUBE_OUT_HEIGHT.DATA_CUBE_OUT_HEIGHT + 1),
            piece.eq(Mux(left < 32, left, 32)),
            writer.run.payload.addr.eq(addr),
            writer.run.payload.atoms.eq(piece),
        ]
        with m.FSM(name="runs"):
            with m.State("IDLE"):
                with m.If(self.control.start):
                    base = Cat(line_addr[:4] & 0, cfg.DST_BASE_ADDR.DST_BASE_ADDR)
                    first = Mux(notch == 0, out_width * out_height, out_width)
                    m.d.sync += [
                        running.eq(1),
                        line_atoms.eq(first),
                        left.eq(first),
                        lines.eq(Mux(notch == 0, 1, out_height)),
                        line.eq(1),
                        surfaces.eq(cfg.DATA_CUBE_OUT_CHANNEL.DATA_CUBE_OUT_CHANNEL[4:] + 1),
                        addr.eq(base),
                        line_addr.eq(base),
                        surf_addr.eq(base),
                    ]
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += writer.run.valid.eq(1)
                with m.If(writer.run.ready):
                    m.d.sync += [left.eq(left - piece), addr.eq(addr + (piece << 4))]
                    with m.If(left == piece):
                        next_line = Signal(32)
                        next_surf = Signal(32)
                        m.d.comb += [
                            next_line.eq(line_addr + ((out_width + notch) << 4)),
                            next_surf.eq(surf_addr + (cfg.DST_SURF_STRIDE.DST_SURF_STRIDE << 4)),
                        ]
                        m.d.sync += left.eq(line_atoms)
                        with m.If(line != lines):
                            m.d.sync += [line.eq(line + 1), addr.eq(next_line), line_addr.eq(next_line)]
                        with m.Else():
                            m.d.sync += [
                                line.eq(1),
                                surfaces.eq(surfaces - 1),
                                addr.eq(next_surf),
                                line_addr.eq(next_surf),
                                surf_addr.eq(next_surf),
                            ]
                            with m.If(surfaces == 1):
                                m.next = "WAIT"
            with m.State("WAIT"):
                with m.If(writer.idle):
                    m.d.sync += running.eq(0)
                    m.next = "IDLE"

    def _report(self, m: Module, register: str, code: DiagnosticCode) -> None:
        described = registers()["PPU"][register]
        m.d.comb += [
            self.diag.valid.eq(1),
            self.diag.payload.code.eq(code),
            self.diag.payload.register.eq(described.offset),
            self.diag.payload.value.eq(getattr(self.cfg, register).as_value()),
        ]
