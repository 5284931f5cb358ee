"""What the sequence controller derives from the registers once a task (docs/hardware.md 2, 3)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.config import NpuConfig
from rtl.regfile import config_signature

DEPTHWISE = 3
"""CONV_MODE of a depthwise convolution (HARDWARE 2.2)."""

SLOTS = 16
"""Pixels of a stripe, and the cycles a tile takes at least (DESIGN 4.3)."""

GROUP = 32
"""Kernels of a kernel group and channels of a channel group, int8 (HARDWARE 4.1)."""

WIDE_GROUP = 64
"""Channels of a depthwise group, int8."""

TASK = wiring.Signature(
    {
        "depthwise": Out(1),
        "argb": Out(1),
        "pixel_shift": Out(2),  # ARGB mode: log2 of the 4-byte words of a pixel
        "image_channels": Out(3),  # ARGB mode: 1 to 4
        "atoms": Out(13),  # 16-channel atoms of an input pixel
        "full_slabs": Out(11),  # CBUF entries that hold four of them; three count as four
        "rest_atoms": Out(2),  # atoms of the slab that several pixels share, 0 to 2
        "channel_groups": Out(12),
        "groups": Out(11),
        "stripes": Out(18),
        "stride_y": Out(3),
        "stride_x": Out(3),
        "step_y": Out(6),  # input rows from one kernel row to the next
        "step_x": Out(6),
        "first_rows": Out(11),  # rows that must be in CBUF at the beginning
        "ring_first": Out(13),  # weight ring: first entry, entries
        "ring_entries": Out(13),
    }
)


def at_most(value: Value, limit: int | Value) -> Value:
    """The smaller of both."""
    return Mux(value > limit, limit, value)


class TaskConstants(wiring.Component):
    """Registers that follow from the configuration.

    Members
    -------
    cfg : In(config_signature("CNA"))
    start : In(1)    : pulse; `cfg` is stable from here on.
    go : Out(1)      : pulse two cycles later, `task` is there.  Does not come when there is nothing to
        do: such a task never ends, and the diagnostics say why.
    task : Out(TASK)
    """

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        super().__init__(
            {"cfg": In(config_signature("CNA")), "start": In(1), "go": Out(1), "task": Out(TASK)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, task = self.cfg, self.task
        con1, con3, size, kernel = cfg.CONV_CON1, cfg.CONV_CON3, cfg.DATA_SIZE0, cfg.WEIGHT_SIZE2
        channels = cfg.DATA_SIZE1.DATAIN_CHANNEL
        pixels = cfg.DATA_SIZE3.DATAOUT_ATOMICS
        grains = cfg.CONV_CON2.FEATURE_GRAINS
        banks = cfg.CBUF_CON0.WEIGHT_BANK
        wide = con1.CONV_MODE == DEPTHWISE
        all_atoms = (channels + 15)[4:]
        is_argb = con1.ARGB_IN[2:] == 2

        phase = Signal(2)
        m.d.sync += phase.eq(Cat(self.start, phase[0]))
        with m.If(phase[0]):
            m.d.sync += [
                task.depthwise.eq(wide),
                task.argb.eq(is_argb),
                task.image_channels.eq(con1.ARGB_IN[:2] + 1),
                task.pixel_shift.eq(Mux(con1.ARGB_IN[1], 2, con1.ARGB_IN[0])),
                task.atoms.eq(all_atoms),
                task.channel_groups.eq(Mux(wide, 1, (all_atoms + 1) >> 1)),
                task.groups.eq(Mux(wide, (all_atoms + 3) >> 2, (kernel.WEIGHT_KERNELS + GROUP - 1) >> 5)),
                task.full_slabs.eq((all_atoms + 1) >> 2),
                task.rest_atoms.eq(Mux(all_atoms[:2] == 3, 0, all_atoms[:2])),
                task.stripes.eq((pixels + SLOTS - 1) >> 4),
                task.stride_y.eq(Mux(con3.CONV_Y_STRIDE == 0, 1, con3.CONV_Y_STRIDE)),
                task.stride_x.eq(Mux(con3.CONV_X_STRIDE == 0, 1, con3.CONV_X_STRIDE)),
                task.step_y.eq(con3.ATROUS_Y_DILATION + 1),
                task.step_x.eq(con3.ATROUS_X_DILATION + 1),
                task.first_rows.eq(
                    Mux(grains > size.DATAIN_HEIGHT, size.DATAIN_HEIGHT, Mux(grains == 0, 1, grains))
                ),
                task.ring_first.eq((self._config.cbuf_banks - banks) * self._config.bank_entries),
                task.ring_entries.eq(banks * self._config.bank_entries),
            ]
        nothing = (
            (pixels == 0)
            | (cfg.DATA_SIZE2.DATAOUT_WIDTH == 0)
            | (size.DATAIN_WIDTH == 0)
            | (size.DATAIN_HEIGHT == 0)
            | (channels == 0)
            | (kernel.WEIGHT_WIDTH == 0)
            | (kernel.WEIGHT_HEIGHT == 0)
            | (~wide & (kernel.WEIGHT_KERNELS == 0))
        )
        m.d.comb += self.go.eq(phase[1] & ~nothing)
        return m
