"""Values that the sequence controller derives from the registers once per task ([HW 4], [HW 5], [HW 6])."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.npu.cna_types import DEPTHWISE, WIDE_GROUP, TypeOf, feature_entries, is_argb
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.config import NpuConfig

SLOTS = 16
"""Pixels of a stripe, which is also the minimum number of cycles per tile."""

DECONV_SHIFTS = {0: 0, 1: 1, 3: 2, 7: 3}
"""log2 of the distance of input pixels in a transposed convolution, by DECONV stride field [HW 5.6]."""

GO_LATENCY = 3
"""Cycles from the start of a task until its constants are valid."""

LINE_BITS = 42
"""Width of an address in CBUF: row of the input with its inserted pixels, times the row pitch."""

TASK = wiring.Signature(
    {
        "precision": Out(3),  # code of the CNA; reserved codes count as int8
        "depthwise": Out(1),
        "two_blocks": Out(1),  # depthwise 16-bit types: a group has two slabs and two weight blocks
        "argb": Out(1),
        "pixel_shift": Out(2),  # ARGB mode: log2 of the 4-byte words of a pixel
        "image_channels": Out(3),  # ARGB mode: 1 to 4
        "element": Out(3),  # log2 of the bits of an element
        "tile_atoms": Out(2),  # log2 of the atoms of a kernel in a full tile, 0 to 2
        "group_kernels": Out(7),  # 16, 32 or 64
        "group_channels": Out(6),  # channels of a channel group, 16 or 32
        "atoms": Out(15),  # atoms of an input pixel
        "full_slabs": Out(13),  # CBUF entries that hold four of these atoms each; three atoms count as four
        "rest_atoms": Out(2),  # atoms of the slab that several pixels share; 0 and 3: there is no such slab
        "channel_groups": Out(13),
        "groups": Out(11),
        "stripes": Out(18),
        "stride_y": Out(3),
        "stride_x": Out(3),
        "step_y": Out(6),  # input rows from one kernel row to the next
        "step_x": Out(6),
        "spread_y": Out(2),  # log2 of the distance of input rows after pixels have been inserted
        "spread_x": Out(2),
        "last_y": Out(14),  # last row and column of the input after the insertion
        "last_x": Out(14),
        "line_stride": Out(LINE_BITS),  # row pitch of CBUF times stride_y, step_y, padding on top
        "line_step": Out(LINE_BITS),
        "line_pad": Out(LINE_BITS),
        "first_rows": Out(11),  # rows that must be in CBUF before the first slot is issued
        "first_weights": Out(20),  # bytes of the weight stream that must be in CBUF before it
        "feature_entries": Out(13),  # CBUF entries that can hold features
        "ring_first": Out(13),  # weight ring: first entry and number of entries
        "ring_entries": Out(13),
    }
)


class TaskConstants(wiring.Component):
    """Registers that are derived from the configuration.

    Members
    -------
    cfg : In(config_signature("CNA"))
    start : In(1)    : pulse; `cfg` is stable from here on.
    first_stripe : In(1) : the option j8_start_with_first_rows.
    loaded_first : In(1) : the option i5_rows_and_weights_first, which `first_stripe` does not change.
    go : Out(1)      : pulse three cycles later, `task` is valid.  There is no pulse if there is nothing to
        do: such a task never ends, and the diagnostics tell why.
    task : Out(TASK)
    """

    cfg: In(config_signature("CNA"))
    start: In(1)
    first_stripe: In(1)
    loaded_first: In(1)
    go: Out(1)
    task: Out(TASK)

    def __init__(self, config: NpuConfig) -> None:
        self._config = config
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, task = self.cfg, self.task
        con1, con3, size, kernel = cfg.CONV_CON1, cfg.CONV_CON3, cfg.DATA_SIZE0, cfg.WEIGHT_SIZE2
        channels = cfg.DATA_SIZE1.DATAIN_CHANNEL
        pixels = cfg.DATA_SIZE3.DATAOUT_ATOMICS
        grains = cfg.CONV_CON2.FEATURE_GRAINS
        banks = cfg.CBUF_CON0.WEIGHT_BANK
        wide = con1.CONV_MODE == DEPTHWISE
        of = TypeOf(con1.IN_PRECISION)
        colours = con1.ARGB_IN[:2]

        phase = Signal(GO_LATENCY)
        m.d.sync += phase.eq(Cat(self.start, phase))
        # 1. Values that depend on the type, and values that do not depend on others.
        with m.If(phase[0]):
            m.d.sync += [
                task.precision.eq(of.code),
                task.depthwise.eq(wide),
                task.two_blocks.eq(wide & of.half_word),
                task.argb.eq(is_argb(con1)),
                task.image_channels.eq(colours + 1),
                task.pixel_shift.eq(Mux(colours[1], 2, colours[0]) + of.half_word),
                task.element.eq(of.element_log2),
                task.tile_atoms.eq(of.tile_log2),
                task.group_kernels.eq(of.group_kernels),
                task.group_channels.eq(of.group_channels),
                task.atoms.eq(of.atoms(channels)),
                task.stripes.eq((pixels + SLOTS - 1) >> 4),
                task.stride_y.eq(con3.CONV_Y_STRIDE),
                task.stride_x.eq(con3.CONV_X_STRIDE),
                task.step_y.eq(con3.ATROUS_Y_DILATION + 1),
                task.step_x.eq(con3.ATROUS_X_DILATION + 1),
                Cat(task.spread_y, task.spread_x).eq(0),
                task.first_rows.eq(
                    Mux(
                        (grains > size.DATAIN_HEIGHT) & ~self.first_stripe | self.loaded_first,
                        size.DATAIN_HEIGHT,
                        Mux((grains == 0) | self.first_stripe, 1, grains),
                    )
                ),
                task.feature_entries.eq(feature_entries(cfg.CBUF_CON0, self._config)),
                task.ring_first.eq((self._config.cbuf_banks - banks) * self._config.bank_entries),
                task.ring_entries.eq(banks * self._config.bank_entries),
            ]
            for field, spread in (
                (con3.DECONV_Y_STRIDE, task.spread_y),
                (con3.DECONV_X_STRIDE, task.spread_x),
            ):
                with m.If(con1.DECONV):
                    for value, shift in DECONV_SHIFTS.items():
                        with m.If(field == value):
                            m.d.sync += spread.eq(shift)
        # 2. Values that depend on those of step 1.
        with m.If(phase[1]):
            atoms = task.atoms
            pitch = Mux(task.argb, cfg.DMA_CON1.LINE_STRIDE, cfg.CBUF_CON1.DATA_ENTRIES)
            by_kernels = of.kernel_groups(kernel.WEIGHT_KERNELS)
            ring_bytes = task.ring_entries << 6
            weight_bytes = cfg.WEIGHT_SIZE0.WEIGHT_BYTES
            first_weights = Mux(weight_bytes < ring_bytes, weight_bytes, ring_bytes)
            m.d.sync += [
                task.first_weights.eq(Mux(self.loaded_first, first_weights, 0)),
                task.full_slabs.eq((atoms + 1) >> 2),
                task.rest_atoms.eq(atoms[:2]),  # three atoms are a full slab, so no shared slab remains
                task.groups.eq(Mux(wide, (channels + WIDE_GROUP - 1) // WIDE_GROUP, by_kernels)),
                task.line_stride.eq(task.stride_y * pitch),
                task.line_step.eq(task.step_y * pitch),
                task.line_pad.eq(cfg.PAD_CON0.PAD_TOP * pitch),
                task.last_y.eq((size.DATAIN_HEIGHT - 1)[:11] << task.spread_y),
                task.last_x.eq((size.DATAIN_WIDTH - 1)[:11] << task.spread_x),
            ]
            with m.If(wide):
                m.d.sync += task.channel_groups.eq(1)
            with m.Else():
                m.d.sync += task.channel_groups.eq(of.channel_groups(channels))
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
        m.d.comb += self.go.eq(phase[-1] & ~nothing)
        return m
