"""MRDMA and ERDMA: reads a cube stripe by stripe in the order of the DPU (docs 5.2, 5.4)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, ElementOctet, ReadPort

RING_ATOMS = 1024
"""Atoms of the ring of stripes: 16 KiB cover 500 cycles of latency at 32 bytes a cycle."""

RUNS = 64
"""Runs that may be under way."""

ATOMS = 28
"""Bits of an address counted in atoms."""


class CubeShape(data.Struct):
    """The cube a StripeReader reads; addresses and pitches in atoms.

    `octets` of a full channel group, `last_octet` of the cube (octets minus one), `surfaces` of the
    cube, `wide` log2 of the bytes of an element, `per_channel` one atom per surface for all pixels.
    """

    base: ATOMS
    line_pitch: 15
    surface_pitch: ATOMS
    width: 14
    pixels_m1: 26
    octets: 4
    last_octet: 10
    surfaces: 12
    wide: 2
    per_channel: 1


class Run(data.Struct):
    """Where the atoms of one request go: ring place of the first, how many, stripe complete after."""

    place: 10
    odd: 1
    atoms: 5
    closes: 1


class StripeReader(wiring.Component):
    """Prefetches stripes of 16 pixels into a ring and delivers them as octets, one a cycle.

    A stripe of a channel group takes 16 atoms per surface of the group.  Atom `i` of the ring lies
    in memory `i[0] ^ i[4]`, so that neighbours along a line and along surfaces can move together.

    Members
    -------
    start : 1, in
        Begin with `cube`, which is looked at in this cycle only.
    cube : CubeShape, in
    port : ReadPort, out
    octets : stream of ElementOctet, out
    idle : 1, out
        Everything has been taken.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "cube": In(CubeShape),
                "port": Out(ReadPort()),
                "octets": Out(stream.Signature(ElementOctet)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.shape = Signal(CubeShape, reset_less=True)
        self.slot = Signal(9, reset_less=True)  # atoms of a stripe: 16 per surface of the group
        self.group = Signal(5, reset_less=True)  # surfaces of a full group
        self.free = Signal(7)  # stripes that may still be asked for
        self.ready = Signal(7)  # stripes that are complete
        self.release = Signal()
        self.reserve = Signal()
        self.complete = Signal()
        surfaces = Signal(5)
        m.d.comb += surfaces.eq((self.cube.octets << self.cube.wide) >> 1)
        with m.If(self.start):
            m.d.sync += [
                self.shape.eq(self.cube),
                self.group.eq(surfaces),
                self.slot.eq(surfaces << 4),
                self.ready.eq(0),
            ]
            with m.Switch(surfaces):
                for log in range(5):
                    with m.Case(1 << log):
                        m.d.sync += self.free.eq(RING_ATOMS // 16 >> log)
        with m.Else():
            with m.If(self.reserve ^ self.release):
                m.d.sync += self.free.eq(self.free + Mux(self.release, 1, -1))
            with m.If(self.complete ^ self.release):
                m.d.sync += self.ready.eq(self.ready + Mux(self.complete, 1, -1))
        m.submodules.runs = self.runs = SyncFIFOBuffered(width=Run.as_shape().size, depth=RUNS)
        self.memories = []
        for bank in range(2):
            memory = Memory(shape=128, depth=RING_ATOMS // 2, init=[])
            m.submodules[f"memory{bank}"] = memory
            self.memories.append(memory)
        self._ask(m)
        self._store(m)
        self._deliver(m)
        return m

    def _ask(self, m: Module) -> None:
        """Walk groups, stripes, surfaces and runs; one request and one `Run` a step."""
        shape, req = self.shape, self.port.req
        asking, opened = Signal(), Signal()
        surface = Signal(4)
        done, pixel = Signal(26), Signal(4)  # pixels before this stripe; pixel in it
        x, x0 = Signal(26), Signal(26)
        line, line0 = Signal(ATOMS), Signal(ATOMS)
        offset, offset0 = Signal(ATOMS), Signal(ATOMS)
        left = Signal(12)  # surfaces from this group on
        place = Signal(10)

        pixels, here = Signal(5), Signal(5)
        notched, in_line, at_most, atoms = Signal(), Signal(26), Signal(5), Signal(5)
        rest = Signal(26)
        m.d.comb += [
            rest.eq(shape.pixels_m1 - done),
            pixels.eq(Mux(rest > 15, 16, rest[:4] + 1)),
            here.eq(Mux(left < self.group, left, self.group)),
            notched.eq(shape.line_pitch != shape.width),
            in_line.eq(Mux(notched, shape.width - x, 16)),
            at_most.eq(pixels - pixel),
            atoms.eq(Mux(shape.per_channel, 1, Mux(in_line < at_most, in_line, at_most))),
        ]
        address = Signal(ATOMS)
        request_valid, request_addr = Signal(), Signal(27, reset_less=True)
        request_beats = Signal(4, reset_less=True)
        run = Signal(Run)
        step, ends_surface, ends_stripe, ends_group = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            address.eq(shape.base + offset + Mux(shape.per_channel, 0, line + x)),
            run.place.eq(place + (surface << 4) + pixel),
            run.odd.eq(address[0]),
            run.atoms.eq(atoms),
            run.closes.eq(ends_stripe),
            self.runs.w_data.eq(run),
            self.runs.w_en.eq(step),
            step.eq(asking & (opened | (self.free != 0)) & self.runs.w_rdy & (~request_valid | req.ready)),
            self.reserve.eq(step & ~opened),
            ends_surface.eq(shape.per_channel | (pixel + atoms == pixels)),
            ends_stripe.eq(ends_surface & (surface == here - 1)),
            ends_group.eq(ends_stripe & (rest <= 15)),
            req.valid.eq(request_valid),
            req.payload.addr.eq(Cat(Const(0, 5), request_addr)),
            req.payload.beats_m1.eq(request_beats),
        ]
        with m.If(req.ready):
            m.d.sync += request_valid.eq(0)
        with m.If(step):
            next_x, next_line = Signal(26), Signal(ATOMS)
            m.d.comb += [next_x.eq(x + atoms), next_line.eq(line)]
            with m.If(notched & (x + atoms == shape.width)):
                m.d.comb += [next_x.eq(0), next_line.eq(line + shape.line_pitch)]
            next_offset = offset + shape.surface_pitch
            m.d.sync += [
                request_valid.eq(1),
                request_addr.eq(address[1:]),
                request_beats.eq((atoms + address[0] - 1) >> 1),
                opened.eq(~ends_stripe),
                pixel.eq(pixel + atoms),
                x.eq(next_x),
                line.eq(next_line),
            ]
            with m.If(ends_surface):
                m.d.sync += [surface.eq(surface + 1), offset.eq(next_offset)]
                m.d.sync += [pixel.eq(0), x.eq(x0), line.eq(line0)]
            with m.If(ends_stripe):
                m.d.sync += [
                    surface.eq(0),
                    offset.eq(offset0),
                    done.eq(done + 16),
                    place.eq(place + self.slot),
                    x.eq(next_x),
                    line.eq(next_line),
                    x0.eq(next_x),
                    line0.eq(next_line),
                ]
            with m.If(ends_group):
                m.d.sync += [done.eq(0), left.eq(left - self.group)]
                m.d.sync += [offset.eq(next_offset), offset0.eq(next_offset)]
                m.d.sync += [signal.eq(0) for signal in (x, line, x0, line0)]
                with m.If(left <= self.group):
                    m.d.sync += asking.eq(0)
        with m.If(self.start):
            m.d.sync += [asking.eq(1), opened.eq(0), left.eq(self.cube.surfaces)]
            m.d.sync += [signal.eq(0) for signal in (surface, done, pixel, place)]
            m.d.sync += [signal.eq(0) for signal in (x, x0, line, line0, offset, offset0)]

    def _store(self, m: Module) -> None:
        """Put the atoms of each beat into the ring."""
        rsp = self.port.rsp
        run = data.View(Run, self.runs.r_data)
        inside = Signal()  # not the first beat of its run
        place_r, left_r = Signal(10, reset_less=True), Signal(5, reset_less=True)
        place, left, skip, both, ends = Signal(10), Signal(5), Signal(), Signal(), Signal()
        m.d.comb += [
            place.eq(Mux(inside, place_r, run.place)),
            left.eq(Mux(inside, left_r, run.atoms)),
            skip.eq(~inside & run.odd),
            both.eq(~skip & (left > 1)),
            ends.eq(left <= Mux(both, 2, 1)),
            self.runs.r_en.eq(rsp.valid & ends),
            self.complete.eq(rsp.valid & ends & run.closes),
        ]
        with m.If(rsp.valid):
            m.d.sync += [
                inside.eq(~ends),
                place_r.eq(place + Mux(both, 2, 1)),
                left_r.eq(left - Mux(both, 2, 1)),
            ]
        low, high = rsp.payload.data[:128], rsp.payload.data[128:]
        after = Signal(10)
        m.d.comb += after.eq(place + 1)
        for bank, memory in enumerate(self.memories):
            port = memory.write_port()
            first = Signal()
            m.d.comb += [
                first.eq(place[0] ^ place[4] == bank),
                port.addr.eq(Mux(first, place[1:], after[1:])),
                port.data.eq(Mux(first & ~skip, low, high)),
                port.en.eq(rsp.valid & (first | both)),
            ]

    def _deliver(self, m: Module) -> None:
        """Read complete stripes pixel by pixel, octet by octet."""
        shape, out = self.shape, self.octets
        delivering = Signal()
        place, pixel, octet = Signal(10), Signal(4), Signal(3)
        base, left = Signal(10), Signal(26)  # octets before this group; pixels of it still to come, minus one
        here, last_octet, last_pixel, step = Signal(11), Signal(), Signal(), Signal()
        valid = Signal()
        m.d.comb += [
            here.eq(base + octet),
            last_octet.eq((octet == shape.octets - 1) | (here == shape.last_octet)),
            last_pixel.eq((pixel == 15) | (left == 0)),
            step.eq(delivering & (self.ready != 0) & (~valid | out.ready)),
            self.release.eq(step & last_octet & last_pixel),
            self.idle.eq(~delivering & ~valid),
        ]
        with m.If(out.ready):
            m.d.sync += valid.eq(0)
        with m.If(step):
            m.d.sync += [valid.eq(1), octet.eq(octet + 1)]
            with m.If(last_octet):
                m.d.sync += [octet.eq(0), pixel.eq(pixel + 1), left.eq(left - 1)]
                with m.If(last_pixel):
                    m.d.sync += [pixel.eq(0), place.eq(place + self.slot)]
                with m.If(left == 0):
                    m.d.sync += [left.eq(shape.pixels_m1), base.eq(base + shape.octets)]
                    with m.If(base + shape.octets > shape.last_octet):
                        m.d.sync += delivering.eq(0)

        column = Signal(4)
        m.d.comb += column.eq(Mux(shape.per_channel, 0, pixel))
        swap, upper = Signal(reset_less=True), Signal(reset_less=True)
        swap_now = Signal()
        words = []
        for bank, memory in enumerate(self.memories):
            port = memory.read_port()
            surface, at = Signal(5), Signal(10)
            with m.Switch(shape.wide):
                with m.Case(0):
                    m.d.comb += surface.eq(octet[1:])
                with m.Case(1):
                    m.d.comb += surface.eq(octet)
                with m.Default():
                    m.d.comb += surface.eq(Cat(column[0] ^ bank, octet))
            m.d.comb += [at.eq(place + (surface << 4) + column), port.addr.eq(at[1:]), port.en.eq(step)]
            if bank == 0:
                # Two atoms: the even surface lies in memory column[0]; one: in the memory of its place.
                m.d.comb += swap_now.eq(Mux(shape.wide == 2, column[0], at[0] ^ at[4]))
            words.append(port.data)
        with m.If(step):
            m.d.sync += [swap.eq(swap_now), upper.eq(octet[0])]

        atom = Signal(128)
        half = Signal(64)
        m.d.comb += [
            atom.eq(Mux(swap, words[1], words[0])),
            half.eq(Mux(upper, atom[64:], atom[:64])),
            out.valid.eq(valid),
        ]
        quad = Cat(atom, Mux(swap, words[0], words[1]))
        for lane in range(LANES):
            target = out.payload.data[lane]
            with m.Switch(shape.wide):
                with m.Case(0):
                    m.d.comb += target.eq(half.word_select(lane, 8).as_signed())
                with m.Case(1):
                    m.d.comb += target.eq(atom.word_select(lane, 16).as_signed())
                with m.Default():
                    m.d.comb += target.eq(quad.word_select(lane, 32))
        with m.If(self.start):
            m.d.sync += [delivering.eq(1), left.eq(self.cube.pixels_m1)]
            m.d.sync += [signal.eq(0) for signal in (place, pixel, octet, base)]
