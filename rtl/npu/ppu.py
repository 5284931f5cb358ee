"""PPU: pooling over separable windows [HW 9].

An input atom takes max(1, windows open in x, windows open in y) cycles and an output atom two
(the last step processes 64 bits per cycle). Both rates are assumptions: no speed of the PPU has been
published.
"""

# No postponed annotations here: Amaranth reads the members of a component from the annotations.
from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.counters import activity_layout, drive_activity
from rkcosim.rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, PpuAtom, WritePort
from rkcosim.rtl.npu.arith import held
from rkcosim.rtl.npu.checks import Check, add_checker
from rkcosim.rtl.npu.dpu_modes import atom_width, surfaces_m1
from rkcosim.rtl.npu.dpu_types import DEPTHWISE, Width, atoms_of, group_octets, width_of
from rkcosim.rtl.npu.ppu_finish import PpuFinish
from rkcosim.rtl.npu.ppu_lanes import Lanes, PoolTask
from rkcosim.rtl.npu.ppu_rdma import Kind, paired
from rkcosim.rtl.npu.ppu_stripes import PpuStripes
from rkcosim.rtl.npu.ppu_windows import ROW_CAPACITY, Axis, ColumnWindows, Part, RowWindows
from rkcosim.rtl.npu.ppu_writer import PpuWriter
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.types import POOL_SURFACES

_AVERAGE, _MAX, _MIN = range(3)


class Ppu(wiring.Component):
    """Pool a cube and write the result.

    Members
    -------
    cfg : registers of the block, stable from start to done.
    rdma_cfg, dpu_cfg : registers of the block that feeds the PPU; sampled when the first atom has arrived.
    control : start and end of a task; done after the last write response.
    atoms : input cube, surface by surface, row by row (FLYING_MODE 1).
    dpu : input cube in the DPU's order (FLYING_MODE 0).
    write : port towards the DMA.
    diag : reports on the settings.
    busy_atom : an input atom was accepted (for counters).
    stall : the task waits for atoms of PPU_RDMA.
    activity : for the counters (spec/regs/counters.rdl).
    """

    cfg: In(config_signature("PPU"))
    rdma_cfg: In(config_signature("PPU_RDMA"))
    dpu_cfg: In(config_signature("DPU"))
    control: In(ControlPort())
    atoms: In(stream.Signature(PpuAtom))
    dpu: In(stream.Signature(PpuAtom))
    write: Out(WritePort())
    diag: Out(DiagnosticPort())
    busy_atom: Out(1)
    stall: Out(1)
    activity: Out(activity_layout("PPU"))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, flying = self.cfg, self.cfg.OPERATION_MODE_CFG.FLYING_MODE
        kernel, pads = cfg.POOLING_KERNEL_CFG, cfg.POOLING_PADDING_CFG
        in_width = cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH
        in_height = cfg.DATA_CUBE_IN_HEIGHT.DATA_CUBE_IN_HEIGHT
        out_width = cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH
        m.submodules.rows = rows = Axis()
        m.submodules.stripes = stripes = PpuStripes()
        m.submodules.column_windows = columns = ColumnWindows()
        m.submodules.row_windows = row_windows = RowWindows()
        m.submodules.finish = finish = PpuFinish()
        m.submodules.writer = writer = PpuWriter()
        wiring.connect(m, wiring.flipped(cfg), writer.cfg)
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        wiring.connect(m, wiring.flipped(self.dpu), stripes.i)
        wiring.connect(m, row_windows.o, finish.i)
        wiring.connect(m, finish.o, writer.i)

        from_dpu, fed = Signal(reset_less=True), Signal()
        atom = columns.atom
        m.d.comb += [
            atom.payload.eq(Mux(from_dpu, stripes.o.payload, self.atoms.payload)),
            atom.valid.eq(Mux(from_dpu, stripes.o.valid, self.atoms.valid)),
            self.atoms.ready.eq(atom.ready & ~from_dpu),
            stripes.o.ready.eq(atom.ready & from_dpu),
            self.busy_atom.eq(atom.ready),
            fed.eq(Mux(flying, self.atoms.valid, self.dpu.valid)),
        ]

        # Sizes.  `group` surfaces are processed together: those of a group of the DPU, otherwise one.
        check, begin = Signal(), Signal()
        surfaces_left = Signal(10, reset_less=True)
        group = Signal(4, reset_less=True)
        here = Signal(4)  # number of surfaces of the current group
        row_places = Signal(16, reset_less=True)
        row_span = Signal(range(ROW_CAPACITY + 1), reset_less=True)  # places wrap here
        # One product of sizes per cycle.
        pixels = held(m, self.control.start, (in_width + 1) * (in_height + 1), 26)
        open_columns = held(m, self.control.start, (kernel.KERNEL_HEIGHT + 1) * (out_width + 1))
        span = Signal(22)
        task, hang, checks = self._judge(m, check, group, surfaces_left, span)
        add_checker(m, "PPU", cfg, check, self.diag, checks)
        m.d.comb += [
            here.eq(Mux(surfaces_left < group, surfaces_left, group)),
            span.eq(open_columns * here),
            stripes.start.eq(begin & from_dpu),
            stripes.pixels.eq(pixels),
            stripes.surfaces.eq(surfaces_left),
            stripes.group.eq(group),
            writer.start.eq(begin),
            writer.surfaces.eq(surfaces_left),
            writer.group.eq(group),
            writer.indexed.eq(task.indexed),
            finish.start.eq(begin),
            finish.kind.eq(task.kind),
            finish.flip.eq(task.flip),
            finish.fp16.eq(task.fp16),
            finish.indexed.eq(task.indexed),
            finish.pad.eq(cfg.PADDING_VALUE_1_CFG.PAD_VALUE_0),
            finish.recip_width.eq(cfg.RECIP_KERNEL_WIDTH.RECIP_KERNEL_WIDTH),
            finish.recip_height.eq(cfg.RECIP_KERNEL_HEIGHT.RECIP_KERNEL_HEIGHT),
            finish.kernel_width.eq(kernel.KERNEL_WIDTH + 1),
            finish.kernel_height.eq(kernel.KERNEL_HEIGHT + 1),
        ]

        # Finished column windows of one surface each, for the open rows.
        part = row_windows.part
        part_valid, part_free = Signal(), Signal()
        part_now = Signal(Part, reset_less=True)
        place = Signal(range(ROW_CAPACITY))  # column window x surface, counted along the row
        emit, row_open, row_end = Signal(), Signal(), Signal()
        row_start, rows_start, rows_advance = Signal(), Signal(), Signal()
        line_base = Signal(range(ROW_CAPACITY), reset_less=True)  # first place of the lowest open row
        m.d.comb += [
            rows.begin.eq(rows_start),
            rows.advance.eq(rows_advance),
            rows.settings.kernel_m1.eq(kernel.KERNEL_HEIGHT),
            rows.settings.stride_m1.eq(kernel.KERNEL_STRIDE_HEIGHT),
            rows.settings.pad.eq(pads.PAD_TOP),
            rows.settings.in_m1.eq(in_height),
            rows.settings.out_m1.eq(cfg.DATA_CUBE_OUT_HEIGHT.DATA_CUBE_OUT_HEIGHT),
            columns.settings.kernel_m1.eq(kernel.KERNEL_WIDTH),
            columns.settings.stride_m1.eq(kernel.KERNEL_STRIDE_WIDTH),
            columns.settings.pad.eq(pads.PAD_LEFT),
            columns.settings.in_m1.eq(in_width),
            columns.settings.out_m1.eq(out_width),
            columns.task.eq(task),
            columns.here.eq(here),
            columns.row.eq(rows.at),
            columns.wanted.eq(row_open),
            columns.begin.eq(row_start),
            columns.free.eq(part_free),
            row_windows.task.eq(task),
            row_windows.opens.eq(rows.opens),
            row_windows.closes.eq(rows.closes),
            row_windows.open_now.eq(rows.open_now),
            row_windows.base.eq(line_base),
            row_windows.places.eq(row_places),
            row_windows.span.eq(row_span),
            part.valid.eq(part_valid),
            part.payload.eq(part_now),
            part_free.eq(~part_valid | part.ready),
            row_open.eq(rows.open_now != 0),
        ]

        with m.FSM(name="state") as fsm:
            with m.State("IDLE"):
                with m.If(self.control.start):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += self.stall.eq(flying & ~fed)
                with m.If(fed):
                    m.d.sync += from_dpu.eq(~flying)
                    m.d.comb += check.eq(1)
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(hang | (span > ROW_CAPACITY)):
                    # Input that is too wide hangs on silicon as well [HW 9.9].
                    m.next = "HANG"
                with m.Else():
                    m.d.comb += begin.eq(1)
                    m.next = "GROUP"
            with m.State("HANG"):
                pass
            with m.State("GROUP"):
                m.d.sync += [row_places.eq((out_width + 1) * here), row_span.eq(span)]
                m.d.sync += [line_base.eq(0), place.eq(0)]
                m.d.comb += [rows_start.eq(1), row_start.eq(1)]
                m.next = "ROW"
            with m.State("ROW"):
                with m.If(rows.inside):
                    m.d.comb += [
                        columns.run.eq(1),
                        self.stall.eq(columns.starved & ~from_dpu),
                        emit.eq(columns.emit),
                        row_end.eq(columns.ends),
                    ]
                    with m.If(emit):
                        m.d.sync += part_now.window.eq(columns.part)
                with m.Else():
                    # A row of padding: every window has the same number of padded taps.
                    m.d.comb += [
                        emit.eq(part_free & row_open),
                        row_end.eq((emit & (place == row_places - 1)) | ~row_open),
                    ]
                    with m.If(emit):
                        m.d.sync += part_now.window.real.eq(0)
                        m.d.sync += part_now.window.padded.eq(kernel.KERNEL_WIDTH + 1)
                with m.If(emit):
                    m.d.sync += [part_now.place.eq(place), place.eq(place + 1)]
                with m.If(row_end):
                    m.next = "ROW_END"
            with m.State("ROW_END"):
                with m.If(~part_valid):
                    m.d.sync += place.eq(0)
                    m.d.comb += row_start.eq(1)
                    with m.If(rows.closes & row_open):
                        next_base = Signal(17)
                        m.d.comb += next_base.eq(line_base + row_places)
                        m.d.sync += line_base.eq(Mux(next_base >= row_span, next_base - row_span, next_base))
                    with m.If(rows.finishes):
                        m.d.sync += surfaces_left.eq(surfaces_left - here)
                        m.next = "GROUP"
                        with m.If(surfaces_left == here):
                            m.next = "DRAIN"
                    with m.Else():
                        m.d.comb += rows_advance.eq(1)
                        m.next = "ROW"
            with m.State("DRAIN"):
                with m.If(~writer.running):
                    m.d.comb += self.control.done.eq(1)
                    m.next = "IDLE"

        with m.If(emit):
            m.d.sync += part_valid.eq(1)
        with m.Elif(part.ready):
            m.d.sync += part_valid.eq(0)
        # If bursts are refused, a column or row that waits for the next stage is waiting for memory.
        refused = Cat(port.valid & ~port.ready for port in (self.write.req, self.write.data)).any()
        in_row, row_ends = fsm.ongoing("ROW"), fsm.ongoing("ROW_END")
        drive_activity(
            m,
            self.activity,
            fsm.ongoing("IDLE"),
            WRITE=(part_valid & refused & ((in_row & ~part.ready) | row_ends))
            | (fsm.ongoing("DRAIN") & writer.running),
            INPUT=fsm.ongoing("WAIT") | fsm.ongoing("HANG") | (in_row & columns.starved),
            BUSY=fsm.ongoing("CHECK") | fsm.ongoing("GROUP") | in_row | row_ends | self.control.done,
        )
        return m

    def _judge(
        self, m: Module, check: Signal, group: Signal, surfaces: Signal, span: Signal
    ) -> tuple[data.View, Signal, list[Check]]:
        """The `PoolTask`, whether the task hangs (both in registers), and the diagnostics."""
        cfg, rdma, dpu = self.cfg, self.rdma_cfg, self.dpu_cfg
        mode, misc = cfg.OPERATION_MODE_CFG, cfg.MISC_CTRL
        method, proc = mode.POOLING_METHOD, cfg.DATA_FORMAT.PROC_PRECISION
        task = Signal(PoolTask, reset_less=True)
        hang, odd_flyin = Signal(reset_less=True), Signal(reset_less=True)
        from_dpu = ~mode.FLYING_MODE
        octets = group_octets(dpu.FEATURE_MODE_CFG.CONV_MODE == DEPTHWISE, dpu.DATA_FORMAT.IN_PRECISION)
        given = atom_width(dpu)  # by which the DPU's channels are laid out
        wide, half, average, wrong = Signal(), Signal(), Signal(), Signal()
        m.d.comb += average.eq(method == _AVERAGE)
        # The settings are evaluated once.
        with m.If(check):
            known = Signal()
            m.d.comb += known.eq(
                Mux(from_dpu, proc <= Kind.FP16, paired(proc, rdma.DATA_FORMAT.IN_PRECISION))
            )
            m.d.comb += [
                wide.eq(known & (proc != Kind.INT8)),
                half.eq(known & (proc == Kind.FP16)),
            ]
            channel = cfg.DATA_CUBE_IN_CHANNEL.DATA_CUBE_IN_CHANNEL
            atoms = _surfaces_m1(channel, wide)
            with m.If(from_dpu):
                m.d.comb += wrong.eq(
                    (dpu.DATA_CUBE_WIDTH.WIDTH != cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH)
                    | (dpu.DATA_CUBE_HEIGHT.HEIGHT != cfg.DATA_CUBE_IN_HEIGHT.DATA_CUBE_IN_HEIGHT)
                    | (surfaces_m1(dpu.DATA_CUBE_CHANNEL.CHANNEL, given) != atoms)
                    | (atoms_of(octets, given) > POOL_SURFACES)
                    | (width_of(dpu.DATA_FORMAT.OUT_PRECISION) != Mux(wide, Width.BITS16, Width.BITS8))
                )
                m.d.sync += group.eq(atoms_of(octets, given))
            with m.Else():
                m.d.comb += wrong.eq(
                    (rdma.CUBE_IN_WIDTH.CUBE_IN_WIDTH != cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH)
                    | (rdma.CUBE_IN_HEIGHT.CUBE_IN_HEIGHT != cfg.DATA_CUBE_IN_HEIGHT.DATA_CUBE_IN_HEIGHT)
                    | (_surfaces_m1(rdma.CUBE_IN_CHANNEL.CUBE_IN_CHANNEL, wide) != atoms)
                )
                m.d.sync += group.eq(1)
            m.d.sync += [
                surfaces.eq(atoms + 1),
                task.flip.eq(~average & (method != _MAX)),
                task.fp16.eq(half),
                task.indexed.eq(mode.INDEX_EN & ~average),
                hang.eq(wrong),
                odd_flyin.eq(from_dpu & (cfg.DATA_FORMAT.DPU_FLYIN != dpu.FEATURE_MODE_CFG.FLYING_MODE)),
            ]
            with m.If(average):
                m.d.sync += task.kind.eq(Mux(half, Lanes.SUM_FP16, Mux(wide, Lanes.SUM16, Lanes.SUM8)))
            with m.Else():
                m.d.sync += task.kind.eq(Mux(wide, Lanes.BEST16, Lanes.BEST8))
        size = DiagnosticCode.SIZE_MISMATCH
        out_channel = cfg.DATA_CUBE_OUT_CHANNEL.DATA_CUBE_OUT_CHANNEL
        checks = [
            Check("DATA_CUBE_IN_WIDTH", hang, size),
            Check(
                "DATA_CUBE_OUT_CHANNEL", out_channel != cfg.DATA_CUBE_IN_CHANNEL.DATA_CUBE_IN_CHANNEL, size
            ),
            Check("DATA_CUBE_OUT_WIDTH", ~hang & (span > ROW_CAPACITY), DiagnosticCode.FEATURE_FOOTPRINT),
            Check("OPERATION_MODE_CFG", (method > _MIN) | (mode.INDEX_EN & average)),
            Check("DATA_FORMAT", (proc > Kind.FP16) | odd_flyin),
            Check("MISC_CTRL", misc.NONALIGN | misc.MC_SURF_OUT | (misc.SURF_LEN != 0)),
        ]
        return task, hang, checks


def _surfaces_m1(channel_m1: Value, wide: Value) -> Value:
    """Number of surfaces, minus one, of a cube of 16-bit (`wide`) or 8-bit elements."""
    return Mux(wide, channel_m1 >> 3, channel_m1 >> 4)
