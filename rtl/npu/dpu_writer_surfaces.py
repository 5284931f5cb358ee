"""Order in which the DPU writes the atoms of a stripe to memory and PPU, and their addresses [HW 7.11]."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import IDLE
from rkcosim.rtl.npu.arith import held
from rkcosim.rtl.npu.atom_writer import AtomRun
from rkcosim.rtl.npu.dpu_modes import (
    PACKET_M1,
    fixed_series,
    flying_series,
    group_open,
    group_surfaces,
    makes_packets,
    reduces,
    size_e_wrong,
    surfaces_m1,
)
from rkcosim.rtl.npu.dpu_types import Precision, Width, atoms_of
from rkcosim.rtl.regfile import config_signature

NAMED = PACKET_M1 + 1
"""Largest number of surfaces that SIZE_E can express."""

ATOMS = 28
"""Width of an address in atoms."""


class StripePort(wiring.Signature):
    """A full stripe of the writer's buffer, seen from the unit that empties it.

    While `valid`, `read` fetches the atom of (`surface`, `pixel`) and that of the next pixel, or with
    `upward` that of the next surface. The buffer shows them from the next cycle until the next read.
    `done`, a pulse with the last read, releases the buffer.
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


class SurfaceSettings(wiring.Component):
    """Settings of the walk along surfaces, stored and derived at the start of a task.

    Members
    -------
    cfg : registers of the DPU.
    start : a task starts.
    octets, copies, kind : as for SurfaceWalk.
    width, notched, pitch : pixels of a line; whether there are gaps between lines; line pitch in atoms.
    base, stride, jump : address of the cube; distance of surfaces; distance of series.
    group, series : number of surfaces of a channel group; number between two jumps ([HW 7.11]: Z).
    kept : surfaces of a series that are written; the others are left out.
    next_group : distance of groups, where a pixel's surfaces are contiguous.
    by_pixel : the surfaces of a pixel are contiguous in memory, and pixels do not overlap.
    to_memory, to_ppu : destinations of the atoms.
    thin, lone : two groups share a surface; the last surface has only a lower half.
    stalls, one_pixel : SIZE_E does not fit; in addition, only one pixel is written.
    copies_m1 : how often each surface is written, minus one.
    surfaces, allowed : surfaces of the cube, and those that are written; valid with `start`.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    octets: In(4)
    copies: In(4)
    kind: In(Width)
    width: Out(14)
    notched: Out(1)
    pitch: Out(15)
    base: Out(ATOMS)
    stride: Out(ATOMS)
    jump: Out(ATOMS)
    group: Out(5)
    series: Out(5)
    kept: Out(5)
    next_group: Out(ATOMS)
    by_pixel: Out(1)
    to_memory: Out(1)
    to_ppu: Out(1)
    thin: Out(1)
    lone: Out(1)
    stalls: Out(1)
    one_pixel: Out(1)
    copies_m1: Out(3)
    surfaces: Out(12, init=IDLE)
    allowed: Out(12, init=IDLE)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, kind = self.cfg, self.kind
        feature, ow, channel = cfg.FEATURE_MODE_CFG, cfg.BS_OW_CFG, cfg.DATA_CUBE_CHANNEL.CHANNEL
        plain, once = ~makes_packets(cfg), self.copies == 0
        stalls, want, said = size_e_wrong(cfg), group_surfaces(cfg), ow.SIZE_E_1 + 1
        group, series, kept = (Signal(5, name=name, init=IDLE) for name in ("group", "series", "kept"))
        surfaces, allowed = Signal(12, init=IDLE), Signal(12, init=IDLE)
        thin, flying, joined, near = (Signal(name=name) for name in ("thin", "flying", "joined", "near"))
        # Pixels do not share the place of an atom.
        apart = (cfg.DATA_CUBE_NOTCH_ADDR.NOTCH_ADDR_0 + 1 >= group) | (cfg.DATA_CUBE_HEIGHT.HEIGHT == 0)
        with m.If(self.start):
            told = surfaces_m1(cfg.WDMA_SIZE_0.CHANNEL_WDMA, kind) + 1
            whole = surfaces & ~(want - 1)[:12]
            row = reduces(cfg)  # of one surface, whose pixels are octets of maxima
            first = Mux(thin, 0, Mux(said < want, said, want))  # no atom is whole with half a surface
            m.d.comb += [
                surfaces.eq(Mux(row, 1, surfaces_m1(channel, kind) + 1)),
                thin.eq((kind == Width.BITS4) & (self.octets == 2)),
                group.eq(atoms_of(self.octets, kind) | thin),
                flying.eq(feature.FLYING_MODE & once),
                series.eq(Mux(flying, flying_series(cfg), Mux(fixed_series(cfg), want, said))),
                kept.eq(Mux(flying & (said < series) & (series <= NAMED), said, 16)),
                near.eq(cfg.DST_SURF_STRIDE.DST_SURF_STRIDE == 1),
                # The series of a flying task may follow one another without a gap.
                joined.eq(
                    flying
                    & (cfg.SURFACE_ADD.SURF_ADD == series)
                    & (near | (series == 1))
                    & (kept == 16)
                    & (group != 1)
                ),
                allowed.eq(Mux(group_open(cfg), whole, Mux(stalls, first, surfaces))),
                self.surfaces.eq(surfaces),
                self.allowed.eq(Mux(told < allowed, told, allowed)),
            ]
        settings = (
            (self.width, cfg.DATA_CUBE_WIDTH.WIDTH + 1),
            (self.notched, (cfg.DATA_CUBE_NOTCH_ADDR.NOTCH_ADDR_0 != 0) & ~reduces(cfg)),
            (self.pitch, cfg.DATA_CUBE_WIDTH.WIDTH + 1 + cfg.DATA_CUBE_NOTCH_ADDR.NOTCH_ADDR_0),
            (self.base, cfg.DST_BASE_ADDR.DST_BASE_ADDR),
            (self.stride, cfg.DST_SURF_STRIDE.DST_SURF_STRIDE),
            (self.jump, cfg.SURFACE_ADD.SURF_ADD),
            (self.group, group),
            (self.series, series),
            (self.kept, kept),
            (self.next_group, Mux(joined, group, cfg.SURFACE_ADD.SURF_ADD)),
            (self.stalls, stalls),
            (self.one_pixel, stalls & ow.OD_BYPASS & (said > want)),
            (self.copies_m1, Mux(once, 0, self.copies - 1)),
            (self.thin, thin),
            (self.lone, ~channel[4]),
            # A result with the reserved type code is not written [HW 7.11].
            (
                self.to_memory,
                feature.OUTPUT_MODE[1] & plain & (cfg.DATA_FORMAT.OUT_PRECISION != Precision.RESERVED),
            ),
            (self.to_ppu, feature.OUTPUT_MODE[0] & plain & once & ~stalls),
            (
                self.by_pixel,
                (cfg.DATA_CUBE_WIDTH.WIDTH == 0)
                & ~reduces(cfg)
                & apart
                & ((near & (series == group) & (kept == 16)) | joined)
                & ~thin
                & ~feature.OUTPUT_MODE[0]
                & once
                & (allowed == surfaces)
                & (told >= surfaces),
            ),
        )
        for port, value in settings:
            m.d.comb += port.eq(held(m, self.start, value, port.shape(), f"{port.name}_held"))
        return m


class SurfaceWalk(wiring.Component):
    """Walk through stripes surface by surface in runs of atoms, one or two atoms per step.

    If the surfaces of a pixel are contiguous (cube of width one, surface stride of one atom: row-major
    matrices), the stripe is walked pixel by pixel, so that a run covers the surfaces of a pixel.

    Two groups of 16 channels share a surface of int4. Each group writes its half of the atoms; the last group
    of the cube also writes the unused rest.

    A task whose SIZE_E does not fit never ends and writes only its first stripe.

    Members
    -------
    cfg : registers of the DPU.
    start : a task starts.
    octets : octets of a full channel group.
    copies : how often each surface is written in succession; 0 counts as once.
    kind : width by which channels are laid out in atoms; sampled with `start` only.
    stripe : the stripe that is being emptied.
    run : destination of the next atoms.
    wanted, taken : the atoms read are offered to memory (two of them with `two`); they are accepted.
    two : two atoms have been read.
    pool, pooled : an atom read is offered to the PPU (the second one with `second`); it is accepted.
    second : the PPU's atom is the second one.
    busy : a run or an atom is waiting.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    octets: In(4)
    copies: In(4)
    kind: In(Width)
    stripe: Out(StripePort())
    run: Out(stream.Signature(AtomRun))
    wanted: Out(1)
    taken: In(1)
    two: Out(1)
    pool: Out(1)
    pooled: In(1)
    second: Out(1)
    busy: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.settings = now = SurfaceSettings()
        wiring.connect(m, wiring.flipped(self.cfg), now.cfg)
        m.d.comb += [
            now.start.eq(self.start),
            now.octets.eq(self.octets),
            now.copies.eq(self.copies),
            now.kind.eq(self.kind),
        ]

        # 1. The current run and atoms for memory and PPU.
        run_valid, run_payload = Signal(), Signal(AtomRun, reset_less=True)
        pair_two = Signal(reset_less=True)
        to_write = Signal()  # memory has not accepted the pair yet
        to_pool = Signal(2)  # number of atoms that the PPU has not accepted yet
        free = Signal()
        with m.If(self.run.ready):
            m.d.sync += run_valid.eq(0)
        with m.If(self.taken):
            m.d.sync += to_write.eq(0)
        m.d.comb += [
            self.run.valid.eq(run_valid),
            self.run.payload.eq(run_payload),
            self.wanted.eq(to_write),
            self.two.eq(pair_two),
            free.eq(~to_write | self.taken),
            self.busy.eq(to_write | (to_pool != 0)),  # a run is accepted no later than its first atom
        ]
        with m.If(now.to_ppu):
            m.d.comb += [self.pool.eq(to_pool != 0), self.second.eq(to_pool[0] & pair_two)]
            with m.If(to_pool[1] | (to_pool[0] & ~self.pooled)):
                m.d.comb += free.eq(0)
            with m.If(self.pool & self.pooled):
                m.d.sync += to_pool.eq(to_pool - 1)

        # 2. Surfaces, runs of pixels in them, one or two atoms per step.
        stripe = self.stripe
        surfaces, allowed = Signal(12, reset_less=True), Signal(12, reset_less=True)  # from this group on
        here = Signal(5)  # number of surfaces of this group
        pixels = Signal(5)
        m.d.comb += [
            here.eq(Mux(surfaces < now.group, surfaces, now.group)),
            pixels.eq(Mux(now.one_pixel, 1, stripe.pixels_m1 + 1)),
        ]

        # Current place; the signals with `0` hold the place at the start of the stripe or the group.
        pixel, surface = Signal(4), Signal(4)
        x, x0 = Signal(26), Signal(26)
        line, line0 = Signal(ATOMS), Signal(ATOMS)
        offset, offset0 = Signal(ATOMS), Signal(ATOMS)
        series_at, series_at0 = Signal(ATOMS), Signal(ATOMS)
        step_in, step_in0 = Signal(4), Signal(4)
        copy = Signal(3)
        upper = Signal()  # this group is the upper half of the shared surface
        open_, left = Signal(), Signal(5, reset_less=True)

        remaining = Signal(5)  # length of a run that would start here
        in_line = Signal(26)
        m.d.comb += in_line.eq(Mux(now.notched, now.width - x, 16))
        with m.If(now.by_pixel):
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
            step.eq(stripe.valid & free & (open_ | ~run_valid | self.run.ready)),
            stripe.read.eq(step),
            stripe.pixel.eq(pixel),
            stripe.surface.eq(surface),
            stripe.upward.eq(now.by_pixel),
        ]
        writes = Signal()
        m.d.comb += writes.eq(now.to_memory & (surface < allowed) & (step_in < now.kept))
        forward = Signal(2)
        m.d.comb += forward.eq(Cat(~two, two))
        masked = Signal(16)
        with m.If(now.thin):
            last_half = now.lone & (surfaces == 1)
            m.d.comb += masked.eq(Mux(upper, 0x00FF, Mux(last_half, 0, 0xFF00)))

        with m.If(step):
            m.d.sync += [
                to_write.eq(writes),
                pair_two.eq(two),
                open_.eq(~ends),
                left.eq(run - forward),
            ]
            with m.If(now.to_ppu):
                m.d.sync += to_pool.eq(forward)
            with m.If(~open_):
                m.d.sync += [
                    run_valid.eq(writes),
                    run_payload.addr.eq(Cat(Const(0, 4), (now.base + offset + line + x)[:ATOMS])),
                    run_payload.atoms.eq(remaining),
                    run_payload.masked.eq(masked),
                ]
            # Next place in the image, for the walk along pixels.
            next_x, next_line = Signal(26), Signal(ATOMS)
            along = Mux(now.by_pixel, ends, forward)
            m.d.comb += [next_x.eq(x + along), next_line.eq(line)]
            with m.If(now.notched & (x + along == now.width)):
                m.d.comb += [next_x.eq(0), next_line.eq(line + now.pitch)]
            # Place of the next surface, for the walk along surfaces.
            next_offset, next_series, next_step = Signal(ATOMS), Signal(ATOMS), Signal(4)
            m.d.comb += [
                next_offset.eq(offset + now.stride),
                next_series.eq(series_at),
                next_step.eq(step_in + 1),
            ]
            with m.If(step_in + 1 == now.series):
                m.d.comb += [
                    next_series.eq(series_at + now.jump),
                    next_offset.eq(series_at + now.jump),
                    next_step.eq(0),
                ]
            last_pixel, last_surface, group_ends = Signal(), Signal(), Signal()
            last_copy = Signal()
            m.d.comb += [
                last_pixel.eq(pixel + along == pixels),
                last_copy.eq(copy == now.copies_m1),
                last_surface.eq((surface == here - 1) & last_copy),
                group_ends.eq(stripe.group_last & (~now.thin | upper)),
            ]

            with m.If(now.by_pixel):
                # The surfaces of a pixel are one run and one series: `offset` only changes between groups.
                m.d.sync += surface.eq(surface + forward)
                m.d.sync += [x.eq(next_x), line.eq(next_line)]
                with m.If(ends):
                    m.d.sync += [surface.eq(0), pixel.eq(pixel + 1)]
                    with m.If(last_pixel):
                        m.d.comb += stripe.done.eq(1)
                        with m.If(stripe.group_last):
                            m.d.sync += offset.eq(offset + now.next_group)
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
                    m.d.sync += upper.eq(~upper & now.thin)
                with m.If(group_ends):
                    m.d.sync += surfaces.eq(surfaces - now.group)
                    m.d.sync += allowed.eq(Mux(allowed < now.group, 0, allowed - now.group))
                with m.If(now.stalls):
                    m.d.sync += allowed.eq(0)
        with m.If(self.start):
            m.d.sync += [surfaces.eq(now.surfaces), allowed.eq(now.allowed)]
            m.d.sync += [signal.eq(0) for signal in (open_, upper, copy, pixel, surface, x, x0, line, line0)]
            m.d.sync += [
                signal.eq(0) for signal in (offset, offset0, series_at, series_at0, step_in, step_in0)
            ]
        settings = {
            f"settings.{name}": Value.cast(getattr(now, name))
            for name, member in now.signature.members.items()
            if member.flow == wiring.Out and name not in ("surfaces", "allowed")
        }
        assertions.stable(m, platform, settings, "SurfaceWalk", after=self.start)
        assertions.ports(m, platform, self)
        return m
