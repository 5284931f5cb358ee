"""The DPU's write side: a reorder buffer of two stripes and the surface addresses (docs 4.10)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, WritePort
from rtl.npu.atom_writer import AtomWriter
from rtl.npu.dpu_pipe import PipeOut, Precision
from rtl.regfile import config_signature

SURFACES = 16
"""Surfaces of the widest channel group: 64 channels of 4 bytes."""

ATOMS = 28
"""Bits of an address counted in atoms."""


class StripeWriter(wiring.Component):
    """Collects a stripe of 16 pixels and writes it surface by surface as runs of atoms.

    Where the surfaces lie side by side (cube of width one, surface stride of one atom: row-major
    matrices), the stripe is written pixel by pixel, so that a run covers the surfaces of a pixel.

    Members
    -------
    cfg : configuration of the DPU
    start : 1, in
    octets : 4, in
        Octets of a full channel group.
    source : stream of PipeOut, in
    write : WritePort, out
    finished : 1, out
        The last stripe of the task is in memory (every response has come).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "start": In(1),
                "octets": In(4),
                "source": In(stream.Signature(PipeOut)),
                "write": Out(WritePort()),
                "finished": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.writer = self.writer = AtomWriter()
        wiring.connect(m, self.writer.write, wiring.flipped(self.write))
        # Two memories of 16-byte words: atom (surface s, pixel p) lies in memory (s + p) mod 2, so that
        # neighbours in either direction are written and read together.
        layout = data.ArrayLayout(64, 2)
        self.memories = []
        for bank in range(2):
            memory = Memory(shape=layout, depth=2 * SURFACES * 8, init=[])
            m.submodules[f"memory{bank}"] = memory
            self.memories.append(memory)
        self.full = [Signal(name=f"full{bank}") for bank in range(2)]
        self.tags = [Signal(6, name=f"stripe{bank}", reset_less=True) for bank in range(2)]
        self.drained = [Signal(name=f"drained{bank}") for bank in range(2)]
        self.enabled = Signal(reset_less=True)
        self.wide = Signal(2, reset_less=True)  # log2 of the bytes of an element
        with m.If(self.start):
            m.d.sync += self.enabled.eq(self.cfg.FEATURE_MODE_CFG.OUTPUT_MODE[1])
            with m.Switch(self.cfg.DATA_FORMAT.OUT_PRECISION):
                with m.Case(Precision.INT32):
                    m.d.sync += self.wide.eq(2)
                with m.Case(Precision.INT16):
                    m.d.sync += self.wide.eq(1)
                with m.Default():
                    m.d.sync += self.wide.eq(0)
        self._fill(m)
        self._drain(m)
        return m

    def _fill(self, m: Module) -> None:
        """Place each octet in the buffer of its stripe."""
        source, tag, lanes = self.source, self.source.payload.tag, self.source.payload.data
        bank, take = Signal(), Signal()
        blocked = Mux(bank, self.full[1], self.full[0])
        m.d.comb += [source.ready.eq(~self.enabled | ~blocked), take.eq(source.valid & source.ready)]
        pend = Signal(8, reset_less=True)
        with m.If(self.start):
            m.d.sync += pend.eq(self.cfg.OFFSET_PEND.OFFSET_PEND[:8])

        bytes_ = Cat(lanes[lane][:8] for lane in range(LANES))
        words = Cat(lanes[lane][:16] for lane in range(LANES))
        for index, memory in enumerate(self.memories):
            port = memory.write_port(granularity=1)
            surface, content, mine = Signal(4), Signal(128, init=1), Signal(2)
            with m.If(take & self.enabled):
                with m.Switch(self.wide):
                    with m.Case(0):
                        # The lower half also fills the upper one, in case no octet comes for it.
                        m.d.comb += surface.eq(tag.octet[1:])
                        m.d.comb += content.eq(Cat(bytes_, Mux(tag.octet[0], bytes_, pend.replicate(8))))
                        m.d.comb += mine.eq(
                            Mux(tag.slot[0] ^ surface[0] == index, Mux(tag.octet[0], 0b10, 0b11), 0)
                        )
                    with m.Case(1):
                        m.d.comb += surface.eq(tag.octet)
                        m.d.comb += content.eq(words)
                        m.d.comb += mine.eq(Mux(tag.slot[0] ^ surface[0] == index, 0b11, 0))
                    with m.Default():
                        upper = Signal()
                        m.d.comb += upper.eq(tag.slot[0] ^ index)
                        m.d.comb += surface.eq(Cat(upper, tag.octet))
                        m.d.comb += content.eq(Mux(upper, Cat(*lanes)[128:], Cat(*lanes)[:128]))
                        m.d.comb += mine.eq(0b11)
            m.d.comb += [
                port.addr.eq(Cat(tag.slot[1:], surface, bank)),
                port.data.eq(content),
                port.en.eq(mine),
            ]
        self.last_dropped = Signal()
        m.d.comb += self.last_dropped.eq(take & ~self.enabled & tag.task_last)
        for index in range(2):
            ends = take & self.enabled & tag.stripe_last & (bank == index)
            with m.If(ends):
                m.d.sync += self.full[index].eq(1)
                m.d.sync += self.tags[index].eq(Cat(tag.slot, tag.group_last, tag.task_last))
            with m.Elif(self.drained[index]):
                m.d.sync += self.full[index].eq(0)
        with m.If(take & tag.stripe_last):
            m.d.sync += bank.eq(~bank)
        with m.If(self.start):
            m.d.sync += bank.eq(0)

    def _settings(self, m: Module) -> None:
        """What the drain needs, copied and derived at the start of a task."""
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
        kind = cfg.DATA_FORMAT.OUT_PRECISION
        channel = cfg.DATA_CUBE_CHANNEL.CHANNEL
        group, series, surfaces = Signal(5), Signal(5), Signal(12)
        with m.If(kind == Precision.INT32):
            m.d.comb += [group.eq(self.octets << 1), surfaces.eq((channel >> 2) + 1)]
        with m.Elif(kind == Precision.INT16):
            m.d.comb += [group.eq(self.octets), surfaces.eq((channel >> 3) + 1)]
        with m.Else():
            m.d.comb += [group.eq(self.octets >> 1), surfaces.eq((channel >> 4) + 1)]
        raw = cfg.BS_OW_CFG.OD_BYPASS & ~cfg.FEATURE_MODE_CFG.FLYING_MODE
        m.d.comb += series.eq(Mux(raw, group, cfg.BS_OW_CFG.SIZE_E_1 + 1))
        with m.If(self.start):
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
                self.by_pixel.eq(
                    (cfg.DST_SURF_STRIDE.DST_SURF_STRIDE == 1)
                    & (cfg.DATA_CUBE_WIDTH.WIDTH == 0)
                    & (series == group)
                ),
            ]

    def _drain(self, m: Module) -> None:
        """Walk a full stripe: surfaces, runs of pixels in them, one or two atoms a step."""
        self.surfaces = Signal(12, reset_less=True)  # still to write from this group on
        self._settings(m)
        writer = self.writer
        bank, done = Signal(), Signal()
        stripe = Mux(bank, self.tags[1], self.tags[0])
        pixels = Signal(5)
        group_last, task_last = stripe[4], stripe[5]
        m.d.comb += pixels.eq(stripe[:4] + 1)
        here = Signal(5)  # surfaces of this group
        m.d.comb += here.eq(Mux(self.surfaces < self.group, self.surfaces, self.group))

        # Place of the walk; the `0` twins keep where the stripe or the group began.
        pixel, surface = Signal(4), Signal(4)
        x, x0 = Signal(26), Signal(26)
        line, line0 = Signal(ATOMS), Signal(ATOMS)
        offset, offset0 = Signal(ATOMS), Signal(ATOMS)
        series_at, series_at0 = Signal(ATOMS), Signal(ATOMS)
        step_in, step_in0 = Signal(4), Signal(4)

        # Run and atoms on their way to the writer.
        run_valid, run_addr, run_atoms = (
            Signal(),
            Signal(ATOMS, reset_less=True),
            Signal(6, reset_less=True),
        )
        pair_valid, pair_two, pair_swap = Signal(), Signal(reset_less=True), Signal(reset_less=True)
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
            step.eq(
                Mux(bank, self.full[1], self.full[0])
                & (~pair_valid | writer.atoms.ready)
                & (open_ | ~run_valid | writer.run.ready)
            ),
        ]
        forward = Signal(2)
        m.d.comb += forward.eq(Cat(~two, two))

        with m.If(writer.run.ready):
            m.d.sync += run_valid.eq(0)
        with m.If(writer.atoms.ready):
            m.d.sync += pair_valid.eq(0)
        for index, memory in enumerate(self.memories):
            port = memory.read_port()
            # The first atom of the pair lies in memory (surface + pixel) mod 2, the second in the other.
            other = Signal()
            m.d.comb += other.eq(surface[0] ^ pixel[0] ^ index)
            row_pixel, row_surface = Signal(4), Signal(4)
            m.d.comb += [
                row_pixel.eq(pixel + (other & ~self.by_pixel)),
                row_surface.eq(surface + (other & self.by_pixel)),
                port.addr.eq(Cat(row_pixel[1:], row_surface, bank)),
                port.en.eq(step),
            ]
        read0, read1 = (memory.read_ports[0].data.as_value() for memory in self.memories)
        m.d.comb += [
            writer.run.valid.eq(run_valid),
            writer.run.payload.addr.eq(Cat(Const(0, 4), run_addr)),
            writer.run.payload.atoms.eq(run_atoms),
            writer.atoms.valid.eq(pair_valid),
            writer.atoms.payload.two.eq(pair_two),
            writer.atoms.payload.data.eq(Mux(pair_swap, Cat(read1, read0), Cat(read0, read1))),
        ]
        with m.If(step):
            m.d.sync += [
                pair_valid.eq(1),
                pair_two.eq(two),
                pair_swap.eq(surface[0] ^ pixel[0]),
                open_.eq(~ends),
                left.eq(run - forward),
            ]
            with m.If(~open_):
                m.d.sync += [
                    run_valid.eq(1),
                    run_addr.eq(self.base + offset + line + x),
                    run_atoms.eq(remaining),
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
            last_pixel, last_surface = Signal(), Signal()
            m.d.comb += last_pixel.eq(pixel + along == pixels)
            m.d.comb += last_surface.eq(surface == here - 1)

            with m.If(self.by_pixel):
                # The surfaces of a pixel are one run and one series: `offset` only moves by groups.
                m.d.sync += surface.eq(surface + forward)
                m.d.sync += [x.eq(next_x), line.eq(next_line)]
                with m.If(ends):
                    m.d.sync += [surface.eq(0), pixel.eq(pixel + 1)]
                    with m.If(last_pixel):
                        m.d.comb += done.eq(1)
                        with m.If(group_last):
                            m.d.sync += offset.eq(offset + self.jump)
            with m.Else():
                m.d.sync += [pixel.eq(pixel + forward), x.eq(next_x), line.eq(next_line)]
                with m.If(last_pixel):
                    m.d.sync += [
                        pixel.eq(0),
                        x.eq(x0),
                        line.eq(line0),
                        surface.eq(surface + 1),
                        offset.eq(next_offset),
                        series_at.eq(next_series),
                        step_in.eq(next_step),
                    ]
                    with m.If(last_surface):
                        m.d.comb += done.eq(1)
                        m.d.sync += [surface.eq(0), x.eq(next_x), line.eq(next_line)]
                        m.d.sync += [x0.eq(next_x), line0.eq(next_line)]
                        with m.If(group_last):
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
            with m.If(done):
                m.d.sync += bank.eq(~bank)
                m.d.sync += pixel.eq(0)
                with m.If(group_last):
                    m.d.sync += [x.eq(0), line.eq(0), x0.eq(0), line0.eq(0)]
                    m.d.sync += self.surfaces.eq(self.surfaces - self.group)

        m.d.comb += [self.drained[0].eq(done & ~bank), self.drained[1].eq(done & bank)]
        over = Signal()
        with m.If((done & task_last) | self.last_dropped):
            m.d.sync += over.eq(1)
        m.d.comb += self.finished.eq(over & ~run_valid & ~pair_valid & writer.idle)
        with m.If(self.start):
            m.d.sync += [signal.eq(0) for signal in (over, bank, open_, pixel, surface, x, x0, line, line0)]
            m.d.sync += [
                signal.eq(0) for signal in (offset, offset0, series_at, series_at0, step_in, step_in0)
            ]
