"""MRDMA and ERDMA: reads a cube stripe by stripe in the order of the DPU (docs 5.2, 5.4, 5.5)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, ElementOctet, ReadPort
from rtl.npu.dpu_rdma_elements import Half, unpack
from rtl.npu.dpu_types import Width, atoms_of
from rtl.npu.float32 import IDLE
from rtl.regs.counters import LEVEL_BITS

RING_ATOMS = 1024
"""Atoms of the ring of stripes: 16 KiB cover 500 cycles of latency at 32 bytes a cycle."""

RUNS = 64
"""Runs that may be under way."""

ATOMS = 28
"""Bits of an address counted in atoms."""


class CubeShape(data.Struct):
    """The cube a StripeReader reads; addresses and pitches in atoms.

    `octets` of a full channel group, `last_octet` of the cube (octets minus one), `surfaces` of the
    cube, `kind` and `half` the type of the elements, `per_channel` one atom per surface for all
    pixels.  With `shared` only the surfaces whose number has `parity` as its last bit are read, and
    `surface_pitch` goes from one of them to the next.  Each pixel is delivered `times_m1` + 1 times.
    """

    base: ATOMS
    line_pitch: 15
    surface_pitch: ATOMS
    width: 14
    pixels_m1: 26
    octets: 4
    last_octet: 10
    surfaces: 12
    kind: Width
    half: Half
    per_channel: 1
    shared: 1
    parity: 1
    times_m1: 3


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
    Two groups of 16 channels share a surface of int4, which is then read for each of them.

    Members
    -------
    start : 1, in
        Begin with `cube`, which is looked at in this cycle only.
    cube : CubeShape, in
    port : ReadPort, out
    octets : stream of ElementOctet, out
    mine : 2, out
        Of a shared cube, with `octets`: its lower and its upper four lanes are of this reader.
    idle : 1, out
        Everything has been taken.
    stripes : 16, out
        Complete stripes that wait.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "cube": In(CubeShape),
                "port": Out(ReadPort()),
                "octets": Out(stream.Signature(ElementOctet)),
                "mine": Out(2),
                "idle": Out(1),
                "stripes": Out(LEVEL_BITS),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self.shape = Signal(CubeShape, reset_less=True)
        self.slot = Signal(9, reset_less=True)  # atoms of a stripe: 16 per surface of the group
        self.group = Signal(5, reset_less=True)  # surfaces of a full group
        self.thin = Signal(reset_less=True)  # two groups to a surface
        self.many = Signal(reset_less=True)  # several surfaces to a group
        self.first = Signal(reset_less=True)  # first surface of a group that is read
        self.opening = Signal()  # its value at the start
        self.free = Signal(7)  # stripes that may still be asked for
        self.ready = Signal(7)  # stripes that are complete
        self.release = Signal()
        self.reserve = Signal()
        self.complete = Signal()
        surfaces, thin = Signal(5), Signal()
        m.d.comb += [
            thin.eq((self.cube.kind == Width.BITS4) & ~self.cube.octets[2] & ~self.cube.octets[3]),
            surfaces.eq(atoms_of(self.cube.octets, self.cube.kind) | thin),
            self.opening.eq(self.cube.shared & ~surfaces[0] & self.cube.parity),
        ]
        with m.If(self.start):
            m.d.sync += [
                self.shape.eq(self.cube),
                self.thin.eq(thin),
                self.many.eq(~surfaces[0]),
                self.first.eq(self.opening),
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
        m.d.comb += self.stripes.eq(self.ready)
        self._ask(m)
        self._store(m)
        self._deliver(m)
        return m

    def _ask(self, m: Module) -> None:
        """Walk groups, stripes, surfaces and runs; one request and one `Run` a step."""
        shape, req = self.shape, self.port.req
        asking, opened = Signal(), Signal()
        surface, phase = Signal(5), Signal(2)  # surface in the group; number of the group
        base = Signal(10)  # octets before this group
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
        own, stride, skip = Signal(), Signal(2), Signal()
        m.d.comb += [
            own.eq(self._owns(phase, left)),
            stride.eq(Mux(shape.shared & self.many, 2, 1)),
            skip.eq(asking & ~own),
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
            step.eq(
                asking & own & (opened | (self.free != 0)) & self.runs.w_rdy & (~request_valid | req.ready)
            ),
            self.reserve.eq(step & ~opened),
            ends_surface.eq(shape.per_channel | (pixel + atoms == pixels)),
            ends_stripe.eq(ends_surface & (surface + stride >= here)),
            ends_group.eq(step & ends_stripe & (rest <= 15)),
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
                m.d.sync += [surface.eq(surface + stride), offset.eq(next_offset)]
                m.d.sync += [pixel.eq(0), x.eq(x0), line.eq(line0)]
            with m.If(ends_stripe):
                m.d.sync += [
                    surface.eq(self.first),
                    offset.eq(offset0),
                    done.eq(done + 16),
                    place.eq(place + self.slot),
                    x.eq(next_x),
                    line.eq(next_line),
                    x0.eq(next_x),
                    line0.eq(next_line),
                ]
            with m.If(ends_group):
                m.d.sync += done.eq(0)
                with m.If(~self.thin | phase[0]):
                    m.d.sync += [offset.eq(next_offset), offset0.eq(next_offset)]
                m.d.sync += [signal.eq(0) for signal in (x, line, x0, line0)]
        with m.If(ends_group | skip):
            m.d.sync += [phase.eq(phase + 1), base.eq(base + shape.octets)]
            m.d.sync += left.eq(left - self.group)  # of no use where two groups share a surface
            with m.If(base + shape.octets > shape.last_octet):
                m.d.sync += asking.eq(0)
        with m.If(self.start):
            m.d.sync += [asking.eq(1), opened.eq(0), left.eq(self.cube.surfaces)]
            m.d.sync += surface.eq(self.opening)
            m.d.sync += [signal.eq(0) for signal in (phase, base, done, pixel, place)]
            m.d.sync += [signal.eq(0) for signal in (x, x0, line, line0, offset, offset0)]

    def _owns(self, phase: Signal, left: Signal) -> Value:
        """Whether a group has surfaces of this reader; `left` surfaces of the cube from the group on."""
        several = ~self.shape.parity | (left != 1)
        single = Mux(self.thin, phase[1], phase[0]) == self.shape.parity
        return ~self.shape.shared | Mux(self.many, several, single)

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
        phase, surfaces = Signal(2), Signal(12)  # number of the group; surfaces from it on
        here, last_octet, last_pixel, step = Signal(11), Signal(), Signal(), Signal()
        valid, own = Signal(), Signal()
        again, last_time = Signal(3), Signal()  # how often the pixel was delivered before
        m.d.comb += [
            last_time.eq(again == shape.times_m1),
            own.eq(self._owns(phase, surfaces)),
            here.eq(base + octet),
            last_octet.eq((octet == shape.octets - 1) | (here == shape.last_octet)),
            last_pixel.eq((pixel == 15) | (left == 0)),
            step.eq(delivering & (~own | (self.ready != 0)) & (~valid | out.ready)),
            self.release.eq(step & own & last_octet & last_time & last_pixel),
            self.idle.eq(~delivering & ~valid),
            out.valid.eq(valid),
        ]
        with m.If(out.ready):
            m.d.sync += valid.eq(0)
        with m.If(step):
            m.d.sync += [valid.eq(1), octet.eq(octet + 1)]
            with m.If(last_octet):
                m.d.sync += [octet.eq(0), again.eq(Mux(last_time, 0, again + 1))]
            with m.If(last_octet & last_time):
                m.d.sync += [pixel.eq(pixel + 1), left.eq(left - 1)]
                with m.If(last_pixel):
                    m.d.sync += pixel.eq(0)
                    with m.If(own):
                        m.d.sync += place.eq(place + self.slot)
                with m.If(left == 0):
                    m.d.sync += [
                        left.eq(shape.pixels_m1),
                        base.eq(base + shape.octets),
                        phase.eq(phase + 1),
                    ]
                    with m.If(~self.thin | phase[0]):
                        m.d.sync += surfaces.eq(surfaces - self.group)
                    with m.If(base + shape.octets > shape.last_octet):
                        m.d.sync += delivering.eq(0)

        column = Signal(4)
        m.d.comb += column.eq(Mux(shape.per_channel, 0, pixel))
        swap, swap_now = Signal(reset_less=True), Signal()
        part, odd = Signal(2, reset_less=True), Signal(reset_less=True)
        words = []
        for bank, memory in enumerate(self.memories):
            port = memory.read_port()
            surface, at = Signal(5), Signal(10)
            with m.Switch(shape.kind):
                with m.Case(Width.BITS8):
                    m.d.comb += surface.eq(octet[1:])
                with m.Case(Width.BITS16):
                    m.d.comb += surface.eq(octet)
                with m.Case(Width.BITS32):
                    m.d.comb += surface.eq(Cat(column[0] ^ bank, octet))
                with m.Case(Width.BITS4):
                    m.d.comb += surface.eq(octet[2])
            m.d.comb += [at.eq(place + (surface << 4) + column), port.addr.eq(at[1:]), port.en.eq(step)]
            if bank == 0:
                # Two atoms: the even surface lies in memory column[0]; one: in the memory of its place.
                m.d.comb += swap_now.eq(Mux(shape.kind == Width.BITS32, column[0], at[0] ^ at[4]))
                # Whose surface it is goes by its number in the cube.
                number = Mux(self.many, surface[0], Mux(self.thin, phase[1], phase[0]))
            words.append(port.data)
        with m.If(step):
            m.d.sync += [swap.eq(swap_now), part.eq(octet | Cat(Const(0, 1), self.thin & phase[0]))]
            with m.If(shape.shared):
                m.d.sync += odd.eq(number)
        with m.If(shape.shared):
            upper = odd | (shape.kind == Width.BITS32)
            lower = odd & (shape.kind != Width.BITS32)
            m.d.comb += self.mine.eq(Cat(lower == shape.parity, upper == shape.parity))

        lanes = [Signal(32, name=f"lane{lane}", init=IDLE) for lane in range(LANES)]
        atom, other = Signal(128, init=IDLE), Signal(128, init=IDLE)
        with m.If(valid):
            m.d.comb += [
                atom.eq(Mux(swap, words[1], words[0])),
                other.eq(Mux(swap, words[0], words[1])),
            ]
            unpack(m, lanes, atom, other, shape.kind, shape.half, part)
        m.d.comb += out.payload.eq(Cat(*lanes))
        with m.If(self.start):
            m.d.sync += [delivering.eq(1), left.eq(self.cube.pixels_m1), surfaces.eq(self.cube.surfaces)]
            m.d.sync += [signal.eq(0) for signal in (place, pixel, octet, again, base, phase)]
