"""PPU: pooling over separable windows [HW 9].

An input atom takes four cycles, and a fifth if it completes an output atom; more if more windows are open
in x or y, each of which takes a cycle [HW 9.10].  The last step processes 64 bits per cycle.
"""

# No postponed annotations here: Amaranth reads the members of a component from the annotations.
from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.counters import activity_layout, drive_activity
from rkcosim.rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, PpuAtom, WritePort
from rkcosim.rtl.npu.arith import held
from rkcosim.rtl.npu.checks import Check, add_checker
from rkcosim.rtl.npu.ppu_finish import PpuFinish
from rkcosim.rtl.npu.ppu_rdma import Kind
from rkcosim.rtl.npu.ppu_sequence import PartRegister, PoolSequence, RowPlaces
from rkcosim.rtl.npu.ppu_settings import Method, PoolSettings
from rkcosim.rtl.npu.ppu_stripes import PpuStripes
from rkcosim.rtl.npu.ppu_windows import ROW_CAPACITY, Axis, ColumnWindows, RowWindows
from rkcosim.rtl.npu.ppu_writer import PpuWriter
from rkcosim.rtl.regfile import config_signature


class Ppu(wiring.Component):
    """Pool a cube and write the result.

    Parameters
    ----------
    floats : bool
        Whether there are tasks of fp16.  Without them fp16 counts as int16, and its tasks raise NOT_BUILT.

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

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.settings = settings = PoolSettings(floats=self._floats)
        m.submodules.sequence = sequence = PoolSequence()
        m.submodules.rows = rows = Axis()
        m.submodules.places = places = RowPlaces()
        m.submodules.parts = parts = PartRegister(floats=self._floats)
        m.submodules.stripes = stripes = PpuStripes()
        m.submodules.column_windows = columns = ColumnWindows(floats=self._floats)
        m.submodules.row_windows = row_windows = RowWindows(floats=self._floats)
        m.submodules.finish = finish = PpuFinish(floats=self._floats)
        m.submodules.writer = writer = PpuWriter()
        wiring.connect(m, wiring.flipped(self.cfg), settings.cfg, writer.cfg)
        wiring.connect(m, wiring.flipped(self.rdma_cfg), settings.rdma_cfg)
        wiring.connect(m, wiring.flipped(self.dpu_cfg), settings.dpu_cfg)
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        wiring.connect(m, wiring.flipped(self.dpu), stripes.i)
        wiring.connect(m, parts.part, row_windows.part)
        wiring.connect(m, row_windows.o, finish.i)
        wiring.connect(m, finish.o, writer.i)
        fed, from_dpu = self._choose_input(m, sequence.check, stripes, columns)
        self._configure(m, rows, columns, parts, finish)

        # Groups of surfaces that are processed together: `here` surfaces need `span` places in all open rows.
        surfaces_left = Signal(10, reset_less=True)
        here, span = Signal(4), Signal(22)
        pixels, open_columns = self._products(m)
        m.d.comb += [
            here.eq(Mux(surfaces_left < settings.group, surfaces_left, settings.group)),
            span.eq(open_columns * here),
        ]
        with m.If(sequence.check):
            m.d.sync += surfaces_left.eq(settings.surfaces)
        with m.If(sequence.group_done):
            m.d.sync += surfaces_left.eq(surfaces_left - here)
        add_checker(m, "PPU", self.cfg, sequence.check, self.diag, self._checks(settings, span))

        # The course of the task.
        m.d.comb += [
            settings.check.eq(sequence.check),
            sequence.start.eq(self.control.start),
            sequence.fed.eq(fed),
            sequence.refuse.eq(settings.hang | (span > ROW_CAPACITY)),
            sequence.row_ends.eq(parts.ends),
            sequence.emptied.eq(~parts.full),
            sequence.finishes.eq(rows.finishes),
            sequence.last_group.eq(surfaces_left == here),
            sequence.written.eq(~writer.running),
            self.control.done.eq(sequence.done),
        ]
        for part in (stripes, writer):
            m.d.comb += [part.surfaces.eq(surfaces_left), part.group.eq(settings.group)]
        m.d.comb += [
            stripes.start.eq(sequence.begin & from_dpu),
            stripes.pixels.eq(pixels),
            finish.start.eq(sequence.begin),
            finish.kind.eq(settings.task.kind),
            finish.flip.eq(settings.task.flip),
            finish.fp16.eq(settings.task.fp16),
            finish.indexed.eq(settings.task.indexed),
            writer.start.eq(sequence.begin),
            writer.indexed.eq(settings.task.indexed),
        ]

        # The windows of a row of the input, or of a row of padding, and their places in the open rows.
        row_open = Signal()
        m.d.comb += [
            row_open.eq(rows.open_now != 0),
            rows.begin.eq(sequence.group),
            rows.advance.eq(sequence.advance),
            columns.task.eq(settings.task),
            columns.here.eq(here),
            columns.row.eq(rows.at),
            columns.wanted.eq(row_open),
            columns.results.eq(rows.closes),
            columns.begin.eq(sequence.group | sequence.row_done),
            columns.run.eq(sequence.row & rows.inside),
            columns.free.eq(parts.free),
            parts.row.eq(sequence.row),
            parts.inside.eq(rows.inside),
            parts.wanted.eq(row_open),
            parts.columns_emit.eq(columns.emit),
            parts.column.eq(columns.part),
            parts.columns_end.eq(columns.ends),
            parts.place.eq(places.place),
            parts.last.eq(places.last),
            places.group.eq(sequence.group),
            places.windows.eq(self.cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH),
            places.surfaces.eq(here),
            places.new_span.eq(span),
            places.step.eq(parts.emit),
            places.row_done.eq(sequence.row_done),
            places.closes.eq(rows.closes & row_open),
            row_windows.task.eq(settings.task),
            row_windows.opens.eq(rows.opens),
            row_windows.closes.eq(rows.closes),
            row_windows.open_now.eq(rows.open_now),
            row_windows.base.eq(places.base),
            row_windows.places.eq(places.places),
            row_windows.span.eq(places.span),
        ]

        # What the cycle was spent on.  If bursts are refused, what waits for the next stage waits for memory.
        refused = Cat(port.valid & ~port.ready for port in (self.write.req, self.write.data)).any()
        blocked = parts.full & ((sequence.row & ~parts.part.ready) | sequence.completes)
        flying = self.cfg.OPERATION_MODE_CFG.FLYING_MODE
        m.d.comb += self.stall.eq(
            (sequence.waits & flying & ~fed) | (columns.run & columns.starved & ~from_dpu)
        )
        drive_activity(
            m,
            platform,
            "Ppu",
            self.activity,
            sequence.idle,
            WRITE=(blocked & refused) | (sequence.drains & writer.running),
            INPUT=sequence.waits | sequence.hangs | (sequence.row & columns.starved),
            BUSY=sequence.prepares | sequence.row | sequence.completes | sequence.done,
        )
        assertions.ports(m, platform, self)
        return m

    def _choose_input(
        self, m: Module, check: Value, stripes: PpuStripes, columns: ColumnWindows
    ) -> tuple[Signal, Signal]:
        """Connect the atoms of PPU_RDMA, or those of the DPU by stripes.

        Returns whether the first atom has arrived, and whether the DPU sends it; the latter is stored by
        `check`.
        """
        flying = self.cfg.OPERATION_MODE_CFG.FLYING_MODE
        atom, from_dpu, fed = columns.atom, Signal(reset_less=True), Signal()
        m.d.comb += [
            atom.payload.eq(Mux(from_dpu, stripes.o.payload, self.atoms.payload)),
            atom.valid.eq(Mux(from_dpu, stripes.o.valid, self.atoms.valid)),
            self.atoms.ready.eq(atom.ready & ~from_dpu),
            stripes.o.ready.eq(atom.ready & from_dpu),
            self.busy_atom.eq(atom.ready),
            fed.eq(Mux(flying, self.atoms.valid, self.dpu.valid)),
        ]
        with m.If(check):
            m.d.sync += from_dpu.eq(~flying)
        return fed, from_dpu

    def _configure(
        self, m: Module, rows: Axis, columns: ColumnWindows, parts: PartRegister, finish: PpuFinish
    ) -> None:
        """Connect the settings that are taken from registers as they are."""
        cfg, kernel, pads = self.cfg, self.cfg.POOLING_KERNEL_CFG, self.cfg.POOLING_PADDING_CFG
        m.d.comb += [
            rows.settings.kernel_m1.eq(kernel.KERNEL_HEIGHT),
            rows.settings.stride_m1.eq(kernel.KERNEL_STRIDE_HEIGHT),
            rows.settings.pad.eq(pads.PAD_TOP),
            rows.settings.in_m1.eq(cfg.DATA_CUBE_IN_HEIGHT.DATA_CUBE_IN_HEIGHT),
            rows.settings.out_m1.eq(cfg.DATA_CUBE_OUT_HEIGHT.DATA_CUBE_OUT_HEIGHT),
            columns.settings.kernel_m1.eq(kernel.KERNEL_WIDTH),
            columns.settings.stride_m1.eq(kernel.KERNEL_STRIDE_WIDTH),
            columns.settings.pad.eq(pads.PAD_LEFT),
            columns.settings.in_m1.eq(cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH),
            columns.settings.out_m1.eq(cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH),
            parts.taps.eq(kernel.KERNEL_WIDTH + 1),
            finish.pad.eq(cfg.PADDING_VALUE_1_CFG.PAD_VALUE_0),
            finish.recip_width.eq(cfg.RECIP_KERNEL_WIDTH.RECIP_KERNEL_WIDTH),
            finish.recip_height.eq(cfg.RECIP_KERNEL_HEIGHT.RECIP_KERNEL_HEIGHT),
            finish.kernel_width.eq(kernel.KERNEL_WIDTH + 1),
            finish.kernel_height.eq(kernel.KERNEL_HEIGHT + 1),
        ]

    def _products(self, m: Module) -> tuple[Value, Value]:
        """Pixels of a surface of the input, and windows of a surface in all open rows, in registers.

        There is one product of sizes per cycle.
        """
        cfg, start = self.cfg, self.control.start
        in_width = cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH
        in_height = cfg.DATA_CUBE_IN_HEIGHT.DATA_CUBE_IN_HEIGHT
        out_width = cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH
        pixels = held(m, start, (in_width + 1) * (in_height + 1), 26)
        open_columns = held(m, start, (cfg.POOLING_KERNEL_CFG.KERNEL_HEIGHT + 1) * (out_width + 1))
        return pixels, open_columns

    def _checks(self, settings: PoolSettings, span: Value) -> list[Check]:
        cfg, size = self.cfg, DiagnosticCode.SIZE_MISMATCH
        mode, misc, channels = cfg.OPERATION_MODE_CFG, cfg.MISC_CTRL, cfg.DATA_CUBE_IN_CHANNEL
        method = mode.POOLING_METHOD
        indexed_average = mode.INDEX_EN & (method == Method.AVERAGE)
        reserved_type = cfg.DATA_FORMAT.PROC_PRECISION > Kind.FP16
        out_channel = cfg.DATA_CUBE_OUT_CHANNEL.DATA_CUBE_OUT_CHANNEL
        missing = Check("DATA_FORMAT", cfg.DATA_FORMAT.PROC_PRECISION == Kind.FP16, DiagnosticCode.NOT_BUILT)
        too_wide = ~settings.hang & (span > ROW_CAPACITY)
        return [
            *(() if self._floats else (missing,)),
            Check("DATA_CUBE_IN_WIDTH", settings.hang, size),
            Check("DATA_CUBE_OUT_CHANNEL", out_channel != channels.DATA_CUBE_IN_CHANNEL, size),
            Check("DATA_CUBE_OUT_WIDTH", too_wide, DiagnosticCode.FEATURE_FOOTPRINT),
            Check("OPERATION_MODE_CFG", (method > Method.MIN) | indexed_average),
            Check("DATA_FORMAT", reserved_type | settings.odd_flyin),
            Check("MISC_CTRL", misc.NONALIGN | misc.MC_SURF_OUT | (misc.SURF_LEN != 0)),
        ]
