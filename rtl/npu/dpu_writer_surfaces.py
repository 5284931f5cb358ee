"""Order in which the DPU's writer hands a stripe to memory and PPU, and the surface addresses (docs 4.10)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.npu.atom_writer import AtomRun
from rtl.npu.dpu_modes import (
    fixed_series,
    group_open,
    group_surfaces,
    makes_packets,
    size_e_wrong,
    surfaces_m1,
)
from rtl.npu.dpu_types import Precision, Width, atoms_of
from rtl.regfile import config_signature

ATOMS = 28
"""Bits of an address counted in atoms."""


class StripePort(wiring.Signature):
    """A full stripe of the writer's buffer, seen from the one who empties it.

    While `valid`, `read` fetches the atom of (`surface`, `pixel`) and the next pixel's, or with
    `upward` the next surface's; the buffer shows them from the next cycle until the next read.
    `done`, a pulse with the last read, gives the buffer back.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": In(1),
                "pixels_m1": In(4),
                "group_last": In(1),
                "read": Out(1),
                "pixel": Out(4),
                "surface": Out(4),
                "upward": Out(1),
                "done": Out(1),
            }
        )


class SurfaceWalk(wiring.Component):
    """Walks stripes surface by surface as runs of atoms, one or two atoms a step.

    Where the surfaces lie side by side (cube of width one, surface stride of one atom: row-major
    matrices), the stripe is walked pixel by pixel, so that a run covers the surfaces of a pixel.

    Two groups of 16 channels share a surface of int4; each writes its half of the atoms, the last group
    of the cube also what is left of them.

    A task whose SIZE_E does not fit, which never ends, writes of its first stripe only.

    Members
    -------
    cfg : configuration of the DPU
    start : 1, in
    octets : 4, in
        Octets of a full channel group.
    copies : 4, in
        How often each surface is written in a row; 0: once.
    kind : Width, in
        Of the elements written; looked at with `start` only.
    stripe : StripePort, out
    run : stream of AtomRun, out
    wanted, taken : 1, out and in
        The memory is to take the atoms read, two of them with `two`.
    two : 1, out
    pool, pooled : 1, out and in
        The PPU is to take an atom read, the second of them with `second`.
    second : 1, out
    busy : 1, out
        A run or an atom waits to be taken.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "start": In(1),
                "octets": In(4),
                "copies": In(4),
                "kind": In(Width),
                "stripe": Out(StripePort()),
                "run": Out(stream.Signature(AtomRun)),
                "wanted": Out(1),
                "taken": In(1),
                "two": Out(1),
                "pool": Out(1),
                "pooled": In(1),
                "second": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._settings(m)
        self._send(m)
        self._walk(m)
        return m

    def _settings(self, m: Module) -> None:
        """What the walk needs, copied and derived at the start of a task."""
        cfg = self.cfg
        self.width = Signal(14, reset_less=True)
        self.notched = Signal(reset_less=True)
        self.pitch = Signal(15, reset_less=True)
        self.base = Signal(ATOMS, reset_less=True)
        self.stride = Signal(ATOMS, reset_less=True)
        self.jump = Signal(ATOMS, reset_less=True)
        self.group = Signal(5, reset_less=True)  # surfaces of a channel group
        self.series = Signal(5, reset_less=True)  # surfaces between two jumps (docs: Z)
        self.by_pixel = Signal(reset_less=True)
        self.to_memory = Signal(reset_less=True)
        self.to_ppu = Signal(reset_less=True)
        self.thin = Signal(reset_less=True)  # two groups to a surface
        self.lone = Signal(reset_less=True)  # the last surface has a lower half only
        self.allowed = Signal(12, reset_less=True)  # surfaces from this group on that are written
        self.stalls = Signal(reset_less=True)  # SIZE_E does not fit
        self.one_pixel = Signal(reset_less=True)  # and only a pixel is written
        self.copies_m1 = Signal(3, reset_less=True)
        channel = cfg.DATA_CUBE_CHANNEL.CHANNEL
        feature, ow = cfg.FEATURE_MODE_CFG, cfg.BS_OW_CFG
        group, series, surfaces, allowed = Signal(5), Signal(5), Signal(12), Signal(12)
        thin = Signal()
        plain = ~makes_packets(cfg)
        self.surfaces = Signal(12, reset_less=True)  # still to write from this group on
        with m.If(self.start):
            stalls, want, said = size_e_wrong(cfg), group_surfaces(cfg), ow.SIZE_E_1 + 1
            told = surfaces_m1(cfg.WDMA_SIZE_0.CHANNEL_WDMA, self.kind) + 1
            whole = surfaces & ~(want - 1)[:12]
            first = Mux(thin, 0, Mux(said < want, said, want))  # no atom is whole with half a surface
            m.d.comb += [
                surfaces.eq(surfaces_m1(channel, self.kind) + 1),
                thin.eq((self.kind == Width.BITS4) & (self.octets == 2)),
                group.eq(atoms_of(self.octets, self.kind) | thin),
                series.eq(Mux(fixed_series(cfg), want, said)),
                allowed.eq(Mux(group_open(cfg), whole, Mux(stalls, first, surfaces))),
            ]
            m.d.sync += [
                self.width.eq(cfg.DATA_CUBE_WIDTH.WIDTH + 1),
                self.notched.eq(cfg.DATA_CUBE_NOTCH_ADDR.NOTCH_ADDR_0 != 0),
                self.pitch.eq(cfg.DATA_CUBE_WIDTH.WIDTH + 1 + cfg.DATA_CUBE_NOTCH_ADDR.NOTCH_ADDR_0),
                self.base.eq(cfg.DST_BASE_ADDR.DST_BASE_ADDR),
                self.stride.eq(cfg.DST_SURF_STRIDE.DST_SURF_STRIDE),
                self.jump.eq(cfg.SURFACE_ADD.SURF_ADD),
                self.group.eq(group),
                self.series.eq(series),
                self.surfaces.eq(surfaces),
                self.allowed.eq(Mux(told < allowed, told, allowed)),
                self.stalls.eq(stalls),
                self.one_pixel.eq(stalls & ow.OD_BYPASS & (said > want)),
                self.copies_m1.eq(Mux(self.copies == 0, 0, self.copies - 1)),
                self.thin.eq(thin),
                self.lone.eq(~channel[4]),
                # A result of the code that no type has is not written (docs/hardware.md 4.10).
                self.to_memory.eq(
                    feature.OUTPUT_MODE[1] & plain & (cfg.DATA_FORMAT.OUT_PRECISION != Precision.RESERVED)
                ),
                self.to_ppu.eq(feature.OUTPUT_MODE[0] & plain & (self.copies == 0) & ~stalls),
                self.by_pixel.eq(
                    (cfg.DST_SURF_STRIDE.DST_SURF_STRIDE == 1)
                    & (cfg.DATA_CUBE_WIDTH.WIDTH == 0)
                    & (series == group)
                    & ~thin
                    & ~feature.OUTPUT_MODE[0]
                    & (self.copies == 0)
                    & (allowed == surfaces)
                    & (told >= surfaces)
                ),
            ]

    def _send(self, m: Module) -> None:
        """Run and atoms on their way to memory and PPU."""
        self.run_valid, self.run_payload = Signal(), Signal(AtomRun, reset_less=True)
        two = Signal(reset_less=True)
        self.pair_two = two
        self.to_write = Signal()  # the memory still has to take the pair
        self.to_pool = Signal(2)  # atoms that the PPU still has to take
        self.free = Signal()
        with m.If(self.run.ready):
            m.d.sync += self.run_valid.eq(0)
        with m.If(self.taken):
            m.d.sync += self.to_write.eq(0)
        m.d.comb += [
            self.run.valid.eq(self.run_valid),
            self.run.payload.eq(self.run_payload),
            self.wanted.eq(self.to_write),
            self.two.eq(two),
            self.free.eq(~self.to_write | self.taken),
            self.busy.eq(self.to_write | (self.to_pool != 0)),  # a run waits no longer than its first atom
        ]
        with m.If(self.to_ppu):
            m.d.comb += [self.pool.eq(self.to_pool != 0), self.second.eq(self.to_pool[0] & two)]
            with m.If(self.to_pool[1] | (self.to_pool[0] & ~self.pooled)):
                m.d.comb += self.free.eq(0)
            with m.If(self.pool & self.pooled):
                m.d.sync += self.to_pool.eq(self.to_pool - 1)

    def _walk(self, m: Module) -> None:
        """Surfaces, runs of pixels in them, one or two atoms a step."""
        stripe = self.stripe
        here = Signal(5)  # surfaces of this group
        pixels = Signal(5)
        m.d.comb += [
            here.eq(Mux(self.surfaces < self.group, self.surfaces, self.group)),
            pixels.eq(Mux(self.one_pixel, 1, stripe.pixels_m1 + 1)),
        ]

        # Place of the walk; the `0` twins keep where the stripe or the group began.
        pixel, surface = Signal(4), Signal(4)
        x, x0 = Signal(26), Signal(26)
        line, line0 = Signal(ATOMS), Signal(ATOMS)
        offset, offset0 = Signal(ATOMS), Signal(ATOMS)
        series_at, series_at0 = Signal(ATOMS), Signal(ATOMS)
        step_in, step_in0 = Signal(4), Signal(4)
        copy = Signal(3)
        upper = Signal()  # the group has the upper half of its thin surface
        open_, left = Signal(), Signal(5, reset_less=True)

        remaining = Signal(5)  # of a run that would start here
        in_line = Signal(26)
        m.d.comb += in_line.eq(Mux(self.notched, self.width - x, 16))
        with m.If(self.by_pixel):
            m.d.comb += remaining.eq(here)
        with m.Else():
            at_most = Signal(5)
            m.d.comb += at_most.eq(pixels - pixel)
            m.d.comb += remaining.eq(Mux(in_line < at_most, in_line, at_most))
        run = Signal(5)
        step, two, ends = Signal(), Signal(), Signal()
        m.d.comb += [
            run.eq(Mux(open_, left, remaining)),
            two.eq(run > 1),
            ends.eq(run <= 2),
            step.eq(stripe.valid & self.free & (open_ | ~self.run_valid | self.run.ready)),
            stripe.read.eq(step),
            stripe.pixel.eq(pixel),
            stripe.surface.eq(surface),
            stripe.upward.eq(self.by_pixel),
        ]
        writes = Signal()
        m.d.comb += writes.eq(self.to_memory & (surface < self.allowed))
        forward = Signal(2)
        m.d.comb += forward.eq(Cat(~two, two))
        masked = Signal(16)
        with m.If(self.thin):
            last_half = self.lone & (self.surfaces == 1)
            m.d.comb += masked.eq(Mux(upper, 0x00FF, Mux(last_half, 0, 0xFF00)))

        with m.If(step):
            m.d.sync += [
                self.to_write.eq(writes),
                self.pair_two.eq(two),
                open_.eq(~ends),
                left.eq(run - forward),
            ]
            with m.If(self.to_ppu):
                m.d.sync += self.to_pool.eq(forward)
            with m.If(~open_):
                m.d.sync += [
                    self.run_valid.eq(writes),
                    self.run_payload.addr.eq(Cat(Const(0, 4), (self.base + offset + line + x)[:ATOMS])),
                    self.run_payload.atoms.eq(remaining),
                    self.run_payload.masked.eq(masked),
                ]
            # Next place in the image, for the walk along pixels.
            next_x, next_line = Signal(26), Signal(ATOMS)
            along = Mux(self.by_pixel, ends, forward)
            m.d.comb += [next_x.eq(x + along), next_line.eq(line)]
            with m.If(self.notched & (x + along == self.width)):
                m.d.comb += [next_x.eq(0), next_line.eq(line + self.pitch)]
            # Next surface's place, for the walk along surfaces.
            next_offset, next_series, next_step = Signal(ATOMS), Signal(ATOMS), Signal(4)
            m.d.comb += [
                next_offset.eq(offset + self.stride),
                next_series.eq(series_at),
                next_step.eq(step_in + 1),
            ]
            with m.If(step_in + 1 == self.series):
                m.d.comb += [
                    next_series.eq(series_at + self.jump),
                    next_offset.eq(series_at + self.jump),
                    next_step.eq(0),
                ]
            last_pixel, last_surface, group_ends = Signal(), Signal(), Signal()
            last_copy = Signal()
            m.d.comb += [
                last_pixel.eq(pixel + along == pixels),
                last_copy.eq(copy == self.copies_m1),
                last_surface.eq((surface == here - 1) & last_copy),
                group_ends.eq(stripe.group_last & (~self.thin | upper)),
            ]

            with m.If(self.by_pixel):
                # The surfaces of a pixel are one run and one series: `offset` only moves by groups.
                m.d.sync += surface.eq(surface + forward)
                m.d.sync += [x.eq(next_x), line.eq(next_line)]
                with m.If(ends):
                    m.d.sync += [surface.eq(0), pixel.eq(pixel + 1)]
                    with m.If(last_pixel):
                        m.d.comb += stripe.done.eq(1)
                        with m.If(stripe.group_last):
                            m.d.sync += offset.eq(offset + self.jump)
            with m.Else():
                m.d.sync += [pixel.eq(pixel + forward), x.eq(next_x), line.eq(next_line)]
                with m.If(last_pixel):
                    m.d.sync += [
                        pixel.eq(0),
                        x.eq(x0),
                        line.eq(line0),
                        surface.eq(surface + last_copy),
                        copy.eq(Mux(last_copy, 0, copy + 1)),
                        offset.eq(next_offset),
                        series_at.eq(next_series),
                        step_in.eq(next_step),
                    ]
                    with m.If(last_surface):
                        m.d.comb += stripe.done.eq(1)
                        m.d.sync += [surface.eq(0), x.eq(next_x), line.eq(next_line)]
                        m.d.sync += [x0.eq(next_x), line0.eq(next_line)]
                        with m.If(group_ends):
                            m.d.sync += [
                                offset0.eq(next_offset),
                                series_at0.eq(next_series),
                                step_in0.eq(next_step),
                            ]
                        with m.Else():
                            m.d.sync += [
                                offset.eq(offset0),
                                series_at.eq(series_at0),
                                step_in.eq(step_in0),
                            ]
            with m.If(stripe.done):
                m.d.sync += pixel.eq(0)
                with m.If(stripe.group_last):
                    m.d.sync += [x.eq(0), line.eq(0), x0.eq(0), line0.eq(0)]
                    m.d.sync += upper.eq(~upper & self.thin)
                with m.If(group_ends):
                    m.d.sync += self.surfaces.eq(self.surfaces - self.group)
                    m.d.sync += self.allowed.eq(Mux(self.allowed < self.group, 0, self.allowed - self.group))
                with m.If(self.stalls):
                    m.d.sync += self.allowed.eq(0)
        with m.If(self.start):
            m.d.sync += [signal.eq(0) for signal in (open_, upper, copy, pixel, surface, x, x0, line, line0)]
            m.d.sync += [
                signal.eq(0) for signal in (offset, offset0, series_at, series_at0, step_in, step_in0)
            ]
