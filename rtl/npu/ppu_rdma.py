"""PPU_RDMA: reads a cube from memory and sends it to the PPU atom by atom [HW 9]."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.counters import activity_layout, drive_activity, levels_layout
from rkcosim.rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, PpuAtom, ReadPort
from rkcosim.rtl.npu.atom_reader import AtomReader
from rkcosim.rtl.npu.checks import Check, add_checker
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.config import NpuConfig
from rkcosim.spec.types import PPU_CODES


class Kind(enum.IntEnum, shape=3):
    """PROC_PRECISION of the PPU [HW 2.6]."""

    INT8 = PPU_CODES["int8"]
    INT16 = PPU_CODES["int16"]
    FP16 = PPU_CODES["fp16"]


class Stored(enum.IntEnum, shape=2):
    """IN_PRECISION of PPU_RDMA: storage width [HW 2.7]."""

    BITS8 = 1
    BITS16 = 2


def paired(proc: Value, stored: Value) -> Value:
    """Whether PROC_PRECISION and IN_PRECISION match ([HW 9.1], [HW 13.16]); otherwise both count as int8."""
    return Mux(
        proc == Kind.INT8,
        stored == Stored.BITS8,
        ((proc == Kind.INT16) | (proc == Kind.FP16)) & (stored == Stored.BITS16),
    )


class PpuRdma(wiring.Component):
    """Read `CUBE_IN` surface by surface, row by row, and stream its atoms.

    Members
    -------
    cfg : registers of the block, stable from start to done.
    ppu_cfg : registers of the PPU; its PROC_PRECISION is part of the type.
    control : start and end of a task; done when the last atom has been accepted.
    read : port towards the DMA.
    atoms : the cube.
    diag : reports on the settings.
    activity, levels : for the counters (spec/regs/counters.rdl).
    """

    cfg: In(config_signature("PPU_RDMA"))
    ppu_cfg: In(config_signature("PPU"))
    control: In(ControlPort())
    read: Out(ReadPort())
    atoms: Out(stream.Signature(PpuAtom))
    diag: Out(DiagnosticPort())
    activity: Out(activity_layout("PPU_RDMA"))
    levels: Out(levels_layout("PPU_RDMA_BEATS"))

    def __init__(self, config: NpuConfig) -> None:
        super().__init__()
        self._config = config

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.reader = reader = AtomReader(self._config.read_fifo_beats)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        wiring.connect(m, reader.atoms, wiring.flipped(self.atoms))

        cfg = self.cfg
        width, height, line = Signal(14), Signal(14), Signal(28)
        m.d.comb += [
            width.eq(cfg.CUBE_IN_WIDTH.CUBE_IN_WIDTH + 1),
            height.eq(cfg.CUBE_IN_HEIGHT.CUBE_IN_HEIGHT + 1),
            line.eq(cfg.SRC_LINE_STRIDE.SRC_LINE_STRIDE),
        ]
        merged = Signal()  # rows are contiguous: one run per surface
        row = Signal(14, reset_less=True)
        surfaces = Signal(10, reset_less=True)
        run_atoms = Signal(26, reset_less=True)
        line_addr = Signal(32, reset_less=True)
        surf_addr = Signal(32, reset_less=True)
        m.d.comb += [
            reader.run.payload.addr.eq(Cat(Const(0, 4), line_addr[4:])),
            reader.run.payload.atoms.eq(run_atoms),
        ]
        proc, stored = self.ppu_cfg.DATA_FORMAT.PROC_PRECISION, cfg.DATA_FORMAT.IN_PRECISION
        base, channel = cfg.SRC_BASE_ADDR.SRC_BASE_ADDR, cfg.CUBE_IN_CHANNEL.CUBE_IN_CHANNEL
        checks = [
            Check("SRC_BASE_ADDR", base[:4] != 0, DiagnosticCode.UNALIGNED_ADDRESS),
            Check("DATA_FORMAT", (proc <= Kind.FP16) & ~paired(proc, stored)),
        ]
        add_checker(m, "PPU_RDMA", cfg, self.control.start, self.diag, checks)
        with m.FSM(name="state") as fsm:
            with m.State("IDLE"):
                with m.If(self.control.start):
                    m.d.sync += [
                        merged.eq(line == width),
                        surfaces.eq(
                            Mux(paired(proc, stored) & (proc != Kind.INT8), channel >> 3, channel >> 4) + 1
                        ),
                        surf_addr.eq(base),
                        line_addr.eq(base),
                        row.eq(0),
                        run_atoms.eq(Mux(line == width, width * height, width)),
                    ]
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += reader.run.valid.eq(1)
                with m.If(reader.run.ready):
                    next_surf = Signal(32)
                    m.d.comb += next_surf.eq(surf_addr + (cfg.SRC_SURF_STRIDE.SRC_SURF_STRIDE << 4))
                    with m.If(merged | (row == height - 1)):
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
        drive_activity(
            m,
            platform,
            "PpuRdma",
            self.activity,
            fsm.ongoing("IDLE"),
            BUSY=(self.atoms.valid & self.atoms.ready) | self.control.done,
            PPU=self.atoms.valid,
            MEMORY=fsm.ongoing("RUN") | fsm.ongoing("DRAIN"),
        )
        m.d.comb += self.levels.PPU_RDMA_BEATS.eq(reader.beats)
        assertions.ports(m, platform, self)
        return m
