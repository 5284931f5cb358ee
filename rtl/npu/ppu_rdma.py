"""PPU_RDMA: reads a cube from memory and hands it to the PPU atom by atom (docs/hardware.md 6)."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.activity import activity_layout, levels_layout, tell
from rtl.config import NpuConfig
from rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, PpuAtom, ReadPort
from rtl.npu.atom_reader import AtomReader
from rtl.regfile import config_signature
from rtl.regs import registers


class Kind(enum.IntEnum, shape=3):
    """PROC_PRECISION of the PPU (H2.6)."""

    INT8 = 0
    INT16 = 1
    FP16 = 2


class Stored(enum.IntEnum, shape=2):
    """IN_PRECISION of PPU_RDMA: storage width (H2.7)."""

    BITS8 = 1
    BITS16 = 2


def paired(proc: Value, stored: Value) -> Value:
    """Whether PROC_PRECISION and IN_PRECISION belong together (docs 6.1, Q16); else both count as int8."""
    return Mux(
        proc == Kind.INT8,
        stored == Stored.BITS8,
        ((proc == Kind.INT16) | (proc == Kind.FP16)) & (stored == Stored.BITS16),
    )


class PpuRdma(wiring.Component):
    """Read `CUBE_IN` surface by surface, row by row, and stream its atoms.

    Members
    -------
    cfg : In(config_signature("PPU_RDMA")) : stable from start to done.
    ppu_cfg : In(config_signature("PPU"))  : its PROC_PRECISION belongs to the type.
    control : In(ControlPort)              : start and done; done when the last atom has been taken.
    read : Out(ReadPort)                   : towards the DMA.
    atoms : Out(stream of PpuAtom)         : one 16-byte atom per transfer.
    diag : Out(DiagnosticPort)
    activity, levels : Out(layout)         : for the counters (rtl/regs/counters.rdl).
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        super().__init__(
            {
                "cfg": In(config_signature("PPU_RDMA")),
                "ppu_cfg": In(config_signature("PPU")),
                "control": In(ControlPort()),
                "read": Out(ReadPort()),
                "atoms": Out(stream.Signature(PpuAtom)),
                "diag": Out(DiagnosticPort()),
                "activity": Out(activity_layout("PPU_RDMA")),
                "levels": Out(levels_layout("PPU_RDMA_BEATS")),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.reader = reader = AtomReader(self._config.read_fifo_beats)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        wiring.connect(m, reader.atoms, wiring.flipped(self.atoms))

        cfg = self.cfg
        width = Signal(14)
        height = Signal(14)
        line = Signal(28)
        m.d.comb += [
            width.eq(cfg.CUBE_IN_WIDTH.CUBE_IN_WIDTH + 1),
            height.eq(cfg.CUBE_IN_HEIGHT.CUBE_IN_HEIGHT + 1),
            line.eq(cfg.SRC_LINE_STRIDE.SRC_LINE_STRIDE),
        ]
        merged = Signal()  # rows follow each other without a gap: one run a surface
        row = Signal(14, reset_less=True)
        surfaces = Signal(10, reset_less=True)
        run_atoms = Signal(26, reset_less=True)
        line_addr = Signal(32, reset_less=True)
        surf_addr = Signal(32, reset_less=True)
        m.d.comb += [
            reader.run.payload.addr.eq(Cat(line_addr[:4] & 0, line_addr[4:])),
            reader.run.payload.atoms.eq(run_atoms),
        ]
        proc, stored = self.ppu_cfg.DATA_FORMAT.PROC_PRECISION, cfg.DATA_FORMAT.IN_PRECISION
        channel = cfg.CUBE_IN_CHANNEL.CUBE_IN_CHANNEL
        block = registers()["PPU_RDMA"]
        with m.FSM(name="state") as fsm:
            with m.State("IDLE"):
                with m.If(self.control.start):
                    m.d.sync += [
                        merged.eq(line == width),
                        surfaces.eq(
                            Mux(paired(proc, stored) & (proc != Kind.INT8), channel >> 3, channel >> 4) + 1
                        ),
                        surf_addr.eq(cfg.SRC_BASE_ADDR.SRC_BASE_ADDR),
                        line_addr.eq(cfg.SRC_BASE_ADDR.SRC_BASE_ADDR),
                        row.eq(0),
                        run_atoms.eq(Mux(line == width, width * height, width)),
                    ]
                    for bad, code, register in (
                        (cfg.SRC_BASE_ADDR.SRC_BASE_ADDR[:4] != 0, "UNALIGNED_ADDRESS", "SRC_BASE_ADDR"),
                        ((proc <= Kind.FP16) & ~paired(proc, stored), "RESERVED_MODE", "DATA_FORMAT"),
                    ):
                        with m.If(bad):
                            m.d.comb += [
                                self.diag.valid.eq(1),
                                self.diag.payload.code.eq(DiagnosticCode[code]),
                                self.diag.payload.register.eq(block[register].offset),
                                self.diag.payload.value.eq(getattr(cfg, register).as_value()),
                            ]
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += reader.run.valid.eq(1)
                with m.If(reader.run.ready):
                    last_row = Signal()
                    m.d.comb += last_row.eq(merged | (row == height - 1))
                    next_surf = Signal(32)
                    m.d.comb += next_surf.eq(surf_addr + (cfg.SRC_SURF_STRIDE.SRC_SURF_STRIDE << 4))
                    with m.If(last_row):
                        m.d.sync += [
                            row.eq(0),
                            surfaces.eq(surfaces - 1),
                            surf_addr.eq(next_surf),
                            line_addr.eq(next_surf),
                        ]
                        with m.If(surfaces == 1):
                            m.next = "DRAIN"
                    with m.Else():
                        m.d.sync += [row.eq(row + 1), line_addr.eq(line_addr + (line << 4))]
            with m.State("DRAIN"):
                with m.If(reader.idle):
                    m.d.comb += self.control.done.eq(1)
                    m.next = "IDLE"
        tell(
            m,
            self.activity,
            fsm.ongoing("IDLE"),
            BUSY=(self.atoms.valid & self.atoms.ready) | self.control.done,
            PPU=self.atoms.valid,
            MEMORY=fsm.ongoing("RUN") | fsm.ongoing("DRAIN"),
        )
        m.d.comb += self.levels.PPU_RDMA_BEATS.eq(reader.beats)
        return m
