"""Settings of a PPU task that follow from the registers of the PPU and of the block that feeds it [HW 9]."""

# No postponed annotations here: Amaranth reads the members of a component from the annotations.
from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.npu.dpu_modes import atom_width, surfaces_m1
from rkcosim.rtl.npu.dpu_types import DEPTHWISE, Width, atoms_of, group_octets, width_of
from rkcosim.rtl.npu.ppu_lanes import Lanes, PoolTask
from rkcosim.rtl.npu.ppu_rdma import Kind, paired
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.types import POOL_SURFACES


class Method(enum.IntEnum):
    """POOLING_METHOD [HW 9.3]."""

    AVERAGE = 0
    MAX = 1
    MIN = 2


class PoolSettings(wiring.Component):
    """Evaluate the settings once, when the first atom has arrived.

    Parameters
    ----------
    floats : bool
        Whether there are tasks of fp16; otherwise fp16 counts as int16.

    Members
    -------
    cfg, rdma_cfg, dpu_cfg : registers of the PPU, and of the two blocks that may feed it.
    check : pulse, the settings are evaluated; all outputs but `surfaces` are registers, valid from the next
        cycle to the next pulse.
    surfaces : number of surfaces of the cube; valid in the cycle of `check`.
    group : number of surfaces that are processed together: those of a group of the DPU, otherwise one.
    task : type and method.
    hang : the sizes of the two blocks differ, so the task does not end.
    odd_flyin : DPU_FLYIN differs from the mode of the DPU, which has no effect.
    """

    cfg: In(config_signature("PPU"))
    rdma_cfg: In(config_signature("PPU_RDMA"))
    dpu_cfg: In(config_signature("DPU"))
    check: In(1)
    surfaces: Out(10)
    group: Out(4)
    task: Out(PoolTask)
    hang: Out(1)
    odd_flyin: Out(1)

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, rdma, dpu = self.cfg, self.rdma_cfg, self.dpu_cfg
        mode, proc = cfg.OPERATION_MODE_CFG, cfg.DATA_FORMAT.PROC_PRECISION
        in_width = cfg.DATA_CUBE_IN_WIDTH.DATA_CUBE_IN_WIDTH
        in_height = cfg.DATA_CUBE_IN_HEIGHT.DATA_CUBE_IN_HEIGHT
        group, task = Signal(4, reset_less=True), Signal(PoolTask, reset_less=True)
        hang, odd_flyin = Signal(reset_less=True), Signal(reset_less=True)
        m.d.comb += [
            self.group.eq(group),
            self.task.eq(task),
            self.hang.eq(hang),
            self.odd_flyin.eq(odd_flyin),
        ]
        from_dpu = ~mode.FLYING_MODE
        given = atom_width(dpu)  # by which the DPU's channels are laid out
        octets = group_octets(dpu.FEATURE_MODE_CFG.CONV_MODE == DEPTHWISE, dpu.DATA_FORMAT.IN_PRECISION)
        known, wide, half, average, wrong = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += average.eq(mode.POOLING_METHOD == Method.AVERAGE)
        with m.If(self.check):
            m.d.comb += [
                known.eq(Mux(from_dpu, proc <= Kind.FP16, paired(proc, rdma.DATA_FORMAT.IN_PRECISION))),
                wide.eq(known & (proc != Kind.INT8)),
                half.eq(known & (proc == Kind.FP16) if self._floats else 0),
            ]
            atoms = _surfaces_m1(cfg.DATA_CUBE_IN_CHANNEL.DATA_CUBE_IN_CHANNEL, wide)
            m.d.comb += self.surfaces.eq(atoms + 1)
            with m.If(from_dpu):
                m.d.comb += wrong.eq(
                    (dpu.DATA_CUBE_WIDTH.WIDTH != in_width)
                    | (dpu.DATA_CUBE_HEIGHT.HEIGHT != in_height)
                    | (surfaces_m1(dpu.DATA_CUBE_CHANNEL.CHANNEL, given) != atoms)
                    | (atoms_of(octets, given) > POOL_SURFACES)
                    | (width_of(dpu.DATA_FORMAT.OUT_PRECISION) != Mux(wide, Width.BITS16, Width.BITS8))
                )
                m.d.sync += group.eq(atoms_of(octets, given))
            with m.Else():
                m.d.comb += wrong.eq(
                    (rdma.CUBE_IN_WIDTH.CUBE_IN_WIDTH != in_width)
                    | (rdma.CUBE_IN_HEIGHT.CUBE_IN_HEIGHT != in_height)
                    | (_surfaces_m1(rdma.CUBE_IN_CHANNEL.CUBE_IN_CHANNEL, wide) != atoms)
                )
                m.d.sync += group.eq(1)
            m.d.sync += [
                task.flip.eq(~average & (mode.POOLING_METHOD != Method.MAX)),
                task.fp16.eq(half),
                task.indexed.eq(mode.INDEX_EN & ~average),
                hang.eq(wrong),
                odd_flyin.eq(from_dpu & (cfg.DATA_FORMAT.DPU_FLYIN != dpu.FEATURE_MODE_CFG.FLYING_MODE)),
            ]
            with m.If(average):
                m.d.sync += task.kind.eq(Mux(half, Lanes.SUM_FP16, Mux(wide, Lanes.SUM16, Lanes.SUM8)))
            with m.Else():
                m.d.sync += task.kind.eq(Mux(wide, Lanes.BEST16, Lanes.BEST8))
        return m


def _surfaces_m1(channel_m1: Value, wide: Value) -> Value:
    """Number of surfaces, minus one, of a cube of 16-bit (`wide`) or 8-bit elements."""
    return Mux(wide, channel_m1 >> 3, channel_m1 >> 4)
