"""PPU: pooling over separable windows (docs/hardware.md 6, H6).

An input atom takes max(1, windows open in x, windows open in y) cycles and an output atom two
(the last step serves 64 bits a cycle).  Both rates are assumptions: nothing about the PPU's speed is
published.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.activity import activity_layout, tell
from rtl.config import NpuConfig
from rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, PpuAtom, WritePort
from rtl.npu.dpu_checks import Check, emit_checks
from rtl.npu.dpu_types import DEPTHWISE, Width, atoms_of, group_octets, width_of
from rtl.npu.ppu_finish import PpuFinish
from rtl.npu.ppu_lanes import Lanes, Partial, join, tap_lanes
from rtl.npu.ppu_rdma import Kind, paired
from rtl.npu.ppu_stripes import MAX_SURFACES, PpuStripes
from rtl.npu.ppu_windows import Axis
from rtl.npu.ppu_writer import PpuWriter
from rtl.regfile import config_signature

ROW_CAPACITY = 2048
"""Partial results of open rows the PPU holds: kernel height x output width, times the surfaces of a group
when the DPU feeds it (docs 6.9).  Our choice, well above the widths that silicon takes without column tiles
(34 columns at 3x3, H6.2; Q31)."""

_AVERAGE, _MAX, _MIN = range(3)


@dataclass
class _Task:
    """Settings derived once a task's first atom is there; registers."""

    kind: Value
    flip: Value
    fp16: Value
    indexed: Value


class Ppu(wiring.Component):
    """Pool a cube and write the result.

    Members
    -------
    cfg : In(config_signature("PPU"))            : stable from start to done.
    rdma_cfg : In(config_signature("PPU_RDMA")), dpu_cfg : In(config_signature("DPU"))
        what feeds the PPU; looked at when the first atom has come.
    control : In(ControlPort)          : done after the last write response.
    atoms : In(stream of PpuAtom)      : input cube, surface by surface, row by row (FLYING_MODE 1).
    dpu : In(stream of PpuAtom)        : input cube in the DPU's order (FLYING_MODE 0).
    write : Out(WritePort)             : towards the DMA.
    diag : Out(DiagnosticPort)
    busy_atom : Out(1)                 : an input atom was taken (for counters).
    lacks : Out(1)                     : waits for atoms of PPU_RDMA.
    activity : Out(layout)             : for the counters (rtl/regs/counters.rdl).
    """

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("PPU")),
                "rdma_cfg": In(config_signature("PPU_RDMA")),
                "dpu_cfg": In(config_signature("DPU")),
                "control": In(ControlPort()),
                "atoms": In(stream.Signature(PpuAtom)),
                "dpu": In(stream.Signature(PpuAtom)),
                "write": Out(WritePort()),
                "diag": Out(DiagnosticPort()),
                "busy_atom": Out(1),
                "lacks": Out(1),
                "activity": Out(activity_layout("PPU")),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        cfg = self.cfg
        kernel, pads = cfg.POOLING_KERNEL_CFG, cfg.POOLING_PADDING_CFG
        columns = Axis(
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
        m.submodules.stripes = stripes = PpuStripes()
        m.submodules.finish = finish = PpuFinish()
        m.submodules.writer = writer = PpuWriter()
        wiring.connect(m, wiring.flipped(cfg), writer.cfg)
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        wiring.connect(m, wiring.flipped(self.dpu), stripes.i)
        wiring.connect(m, finish.o, writer.i)

        from_dpu = Signal(reset_less=True)
        atom = stream.Signature(PpuAtom).create()
        m.d.comb += atom.payload.eq(Mux(from_dpu, stripes.o.payload, self.atoms.payload))
        fed = Signal()
        m.d.comb += [
            atom.valid.eq(Mux(from_dpu, stripes.o.valid, self.atoms.valid)),
            self.atoms.ready.eq(atom.ready & ~from_dpu),
            stripes.o.ready.eq(atom.ready & from_dpu),
            fed.eq(Mux(cfg.OPERATION_MODE_CFG.FLYING_MODE, self.atoms.valid, self.dpu.valid)),
        ]

        # Sizes; `group` surfaces go side by side: those of a group of the DPU's, else one.
        check, begin = Signal(), Signal()
        surfaces_left = Signal(10, reset_less=True)
        group = Signal(4, reset_less=True)
        here = Signal(4)  # surfaces of the current group
        row_places = Signal(16, reset_less=True)
        row_span = Signal(range(ROW_CAPACITY + 1), reset_less=True)  # where the places wrap
        task, hang, checks = self._judge(m, check, group, surfaces_left)
        emit_checks(m, "PPU", cfg, check, self.diag, checks)
        m.d.comb += [
            here.eq(Mux(surfaces_left < group, surfaces_left, group)),
            stripes.start.eq(begin & from_dpu),
            stripes.pixels.eq(
                (cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH + 1)
                * (cfg.DATA_CUBE_IN_HEIGHT.DATA_CUBE_IN_HEIGHT + 1)
            ),
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

        # What leaves the columns: a finished column window of one surface, for the open rows.
        part_valid, part_done, part_free = Signal(), Signal(), Signal()
        part = Signal(Partial, reset_less=True)
        part_place = Signal(range(ROW_CAPACITY), reset_less=True)
        place = Signal(range(ROW_CAPACITY))  # column window x surface, counted along the row
        emit = Signal()
        m.d.comb += part_free.eq(~part_valid | part_done)
        line_base = Signal(range(ROW_CAPACITY), reset_less=True)  # of the lowest open row
        row_open, row_end = Signal(), Signal()
        m.d.comb += row_open.eq(rows.open_now != 0)
        op_index, surface = Signal(5), Signal(4)

        starved = Signal()
        with m.FSM(name="state") as fsm:
            with m.State("IDLE"):
                with m.If(self.control.start):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += self.lacks.eq(cfg.OPERATION_MODE_CFG.FLYING_MODE & ~fed)
                with m.If(fed):
                    m.d.sync += from_dpu.eq(~cfg.OPERATION_MODE_CFG.FLYING_MODE)
                    m.d.comb += check.eq(1)
                    m.next = "CHECK"
            with m.State("CHECK"):
                span = Signal(22)
                m.d.comb += span.eq(
                    (kernel.KERNEL_HEIGHT + 1) * (cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH + 1) * here
                )
                with m.If(hang | (span > ROW_CAPACITY)):
                    # Inputs that are too wide hang on silicon too (H6.2).
                    m.next = "HANG"
                with m.Else():
                    m.d.comb += begin.eq(1)
                    m.next = "GROUP"
            with m.State("HANG"):
                pass
            with m.State("GROUP"):
                places = (cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH + 1) * here
                m.d.sync += [
                    row_places.eq(places),
                    row_span.eq((kernel.KERNEL_HEIGHT + 1) * places),
                    line_base.eq(0),
                    place.eq(0),
                    op_index.eq(0),
                    surface.eq(0),
                ]
                rows.begin(m)
                columns.begin(m)
                m.next = "ROW"
            with m.State("ROW"):
                with m.If(rows.inside):
                    m.d.comb += [starved.eq(columns.inside & ~atom.valid), self.lacks.eq(starved & ~from_dpu)]
                    self._column(
                        m, task, columns, rows, atom, emit, part_free, row_end, part, op_index, surface, here
                    )
                with m.Else():
                    # A row of padding: every window sees as many padded taps.
                    m.d.comb += [
                        emit.eq(part_free & row_open),
                        row_end.eq((emit & (place == row_places - 1)) | ~row_open),
                    ]
                    with m.If(emit):
                        m.d.sync += [part.real.eq(0), part.padded.eq(kernel.KERNEL_WIDTH + 1)]
                with m.If(emit):
                    m.d.sync += [part_place.eq(place), place.eq(place + 1)]
                with m.If(row_end):
                    m.next = "ROW_END"
            with m.State("ROW_END"):
                with m.If(~part_valid):
                    m.d.sync += [place.eq(0), op_index.eq(0), surface.eq(0)]
                    columns.begin(m)
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
                        rows.advance(m)
                        m.next = "ROW"
            with m.State("DRAIN"):
                with m.If(~writer.running):
                    m.d.comb += self.control.done.eq(1)
                    m.next = "IDLE"

        with m.If(emit):
            m.d.sync += part_valid.eq(1)
        with m.Elif(part_done):
            m.d.sync += part_valid.eq(0)
        # A column or row that waits for the rows behind it waits for memory if bursts are refused.
        refused = Cat(port.valid & ~port.ready for port in (self.write.req, self.write.data)).any()
        in_row, row_ends = fsm.ongoing("ROW"), fsm.ongoing("ROW_END")
        tell(
            m,
            self.activity,
            fsm.ongoing("IDLE"),
            WRITE=(part_valid & refused & ((in_row & ~part_done) | row_ends))
            | (fsm.ongoing("DRAIN") & writer.running),
            INPUT=fsm.ongoing("WAIT") | fsm.ongoing("HANG") | (in_row & starved),
            BUSY=fsm.ongoing("CHECK") | fsm.ongoing("GROUP") | in_row | row_ends | self.control.done,
        )
        self._rows(
            m, task, rows, finish, part_valid, part, part_place, part_done, line_base, row_places, row_span
        )
        return m

    def _judge(
        self, m: Module, check: Signal, group: Signal, surfaces: Signal
    ) -> tuple[_Task, Signal, list[Check]]:
        """Settings of the task, whether it hangs (held), and the diagnostics."""
        cfg, rdma, dpu = self.cfg, self.rdma_cfg, self.dpu_cfg
        mode, misc = cfg.OPERATION_MODE_CFG, cfg.MISC_CTRL
        method, proc = mode.POOLING_METHOD, cfg.DATA_FORMAT.PROC_PRECISION
        task = _Task(
            Signal(Lanes, name="kind", reset_less=True),
            Signal(name="flip", reset_less=True),
            Signal(name="fp16", reset_less=True),
            Signal(name="indexed", reset_less=True),
        )
        hang, odd_flyin = Signal(reset_less=True), Signal(reset_less=True)
        from_dpu = ~mode.FLYING_MODE
        octets = group_octets(dpu.FEATURE_MODE_CFG.CONV_MODE == DEPTHWISE, dpu.DATA_FORMAT.IN_PRECISION)
        wide, half, average, wrong = Signal(), Signal(), Signal(), Signal()
        m.d.comb += average.eq(method == _AVERAGE)
        # The settings are looked at once.
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
                    | (_surfaces_m1(dpu.DATA_CUBE_CHANNEL.CHANNEL, wide) != atoms)
                    | (width_of(dpu.DATA_FORMAT.OUT_PRECISION) != Mux(wide, Width.BITS16, Width.BITS8))
                )
                m.d.sync += group.eq(atoms_of(octets, Mux(wide, Width.BITS16, Width.BITS8)))
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
        too_wide = (
            (cfg.POOLING_KERNEL_CFG.KERNEL_HEIGHT + 1) * (cfg.DATA_CUBE_OUT_WIDTH.DATA_CUBE_OUT_WIDTH + 1)
        ) * Mux(surfaces < group, surfaces, group) > ROW_CAPACITY
        checks = [
            Check("DATA_CUBE_IN_WIDTH", hang, size),
            Check(
                "DATA_CUBE_OUT_CHANNEL",
                cfg.DATA_CUBE_OUT_CHANNEL.DATA_CUBE_OUT_CHANNEL
                != cfg.DATA_CUBE_IN_CHANNEL.DATA_CUBE_IN_CHANNEL,
                size,
            ),
            Check("DATA_CUBE_OUT_WIDTH", ~hang & too_wide, DiagnosticCode.FEATURE_FOOTPRINT),
            Check("OPERATION_MODE_CFG", (method > _MIN) | (mode.INDEX_EN & average)),
            Check("DATA_FORMAT", (proc > Kind.FP16) | odd_flyin),
            Check("MISC_CTRL", misc.NONALIGN | misc.MC_SURF_OUT | (misc.SURF_LEN != 0)),
        ]
        return task, hang, checks

    def _column(
        self,
        m: Module,
        task: _Task,
        columns: Axis,
        rows: Axis,
        atom: wiring.PureInterface,
        emit: Signal,
        part_free: Signal,
        row_end: Signal,
        part: Signal,
        op_index: Signal,
        surface: Signal,
        here: Signal,
    ) -> None:
        """One step of a column: an operation on an open window; the atom leaves with the last."""
        m.submodules.windows = windows = Memory(shape=Partial, depth=16 * MAX_SURFACES, init=[])
        read, write = windows.read_port(domain="comb"), windows.write_port()
        real = columns.inside
        serves, first, last, needs_emit, step, op_end, column_end = (Signal() for _ in range(7))
        slot = Signal(4)
        m.d.comb += [
            serves.eq(columns.open_now != 0),
            first.eq(columns.opens & (op_index == columns.open_now - 1)),
            last.eq(columns.closes & (op_index == 0)),
            needs_emit.eq(serves & last & (rows.open_now != 0)),
            step.eq((~real | atom.valid) & (~needs_emit | part_free)),
            op_end.eq(step & (~serves | (op_index == columns.open_now - 1))),
            column_end.eq(op_end & (surface == here - 1)),
            emit.eq(step & needs_emit),
            slot.eq(columns.lowest + op_index),
            read.addr.eq(Cat(slot, surface[:3])),
            write.addr.eq(Cat(slot, surface[:3])),
            write.en.eq(step & serves),
            atom.ready.eq(op_end & real),
            self.busy_atom.eq(op_end & real),
            row_end.eq(column_end & columns.finishes),
        ]
        with m.If(step & serves):
            lanes = Signal.like(part.lanes, init=1)
            with m.If(real):
                index = Cat(columns.at[:3], rows.at[:3])
                m.d.comb += lanes.eq(tap_lanes(m, task.kind, task.flip, task.fp16, atom.payload.data, index))
            joined = join(m, task.kind, task.indexed, first, read.data, lanes, ~real, real)
            m.d.comb += write.data.eq(joined)
            with m.If(emit):
                m.d.sync += part.eq(joined)
        with m.If(step):
            m.d.sync += op_index.eq(Mux(op_end, 0, op_index + 1))
        with m.If(op_end):
            m.d.sync += surface.eq(Mux(column_end, 0, surface + 1))
        with m.If(column_end):
            columns.advance(m)

    def _rows(
        self,
        m: Module,
        task: _Task,
        rows: Axis,
        finish: PpuFinish,
        part_valid: Signal,
        part: Signal,
        part_place: Signal,
        part_done: Signal,
        line_base: Signal,
        row_places: Signal,
        row_span: Signal,
    ) -> None:
        """Each finished column window meets the open rows: one read-modify-write a cycle."""
        m.submodules.partial = partial = Memory(shape=Partial, depth=ROW_CAPACITY, init=[])
        read, write = partial.read_port(), partial.write_port()
        index = Signal(5)
        base = Signal(range(ROW_CAPACITY), reset_less=True)
        base_now, addr = Signal(range(ROW_CAPACITY)), Signal(range(ROW_CAPACITY))
        valid, go, clash, issue = Signal(), Signal(), Signal(), Signal()
        first, last = Signal(reset_less=True), Signal(reset_less=True)
        at = Signal(range(ROW_CAPACITY), reset_less=True)
        held = Signal(Partial, reset_less=True)
        above = Signal(17)
        m.d.comb += [
            base_now.eq(Mux(index == 0, line_base, base)),
            addr.eq(base_now + part_place),
            above.eq(base_now + row_places),
            go.eq(valid & (~last | finish.i.ready)),
            clash.eq(valid & ~last & (at == addr)),
            issue.eq(part_valid & (~valid | go) & ~clash),
            read.addr.eq(addr),
            read.en.eq(issue),
            part_done.eq(issue & (index == rows.open_now - 1)),
            finish.i.valid.eq(valid & last),
            write.addr.eq(at),
            write.en.eq(go & ~last),
        ]
        with m.If(issue):
            m.d.sync += [
                valid.eq(1),
                first.eq(rows.opens & (index == rows.open_now - 1)),
                last.eq(rows.closes & (index == 0)),
                at.eq(addr),
                held.eq(part),
                index.eq(Mux(part_done, 0, index + 1)),
                base.eq(Mux(above >= row_span, above - row_span, above)),
            ]
        with m.Elif(go):
            m.d.sync += valid.eq(0)
        with m.If(valid):
            joined = join(m, task.kind, task.indexed, first, read.data, held.lanes, held.padded, held.real)
            m.d.comb += [finish.i.payload.eq(joined), write.data.eq(joined)]


def _surfaces_m1(channel_m1: Value, wide: Value) -> Value:
    """Surfaces minus one of a cube of 16-bit (`wide`) or 8-bit elements."""
    return Mux(wide, channel_m1 >> 3, channel_m1 >> 4)
