"""MRDMA and ERDMA: read a cube stripe by stripe in the order of the DPU ([HW 8.2], [HW 8.4], [HW 8.5])."""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import IDLE, LANES, ElementOctet, ReadPort, ReadRequest
from rkcosim.rtl.npu.dpu_types import Precision, Width
from rkcosim.rtl.npu.float32 import widen_bf16, widen_fp16
from rkcosim.spec.regs.counters import LEVEL_BITS

RING_ATOMS = 1024
"""Capacity of the ring of stripes in atoms: 16 KiB cover 500 cycles of latency at 32 bytes per cycle."""

RUNS = 64
"""Runs that may be outstanding."""

ATOMS = 28
"""Width of an address in atoms."""


class Half(enum.IntEnum, shape=2):
    """Type of 16-bit elements."""

    INTEGER = 0
    FP16 = 1
    BF16 = 2
    BITS = 3
    """fp16 that is not widened: its bits in the lower half of the element."""


def half_of(code: Value, widens: Value) -> Value:
    """The `Half` of a precision; integer for those of other widths. fp16 is widened if `widens` is set."""
    fp16 = Mux(widens, Half.FP16, Half.BITS)
    return Mux(code == Precision.FP16, fp16, Mux(code == Precision.BF16, Half.BF16, Half.INTEGER))


def unpack(
    m: Module,
    lanes: Sequence[Value],
    low: Value,
    high: Value,
    width: Value,
    half: Value,
    part: Value,
    *,
    floats: bool = True,
) -> None:
    """Drive eight lanes of 32 bits from atoms, gated by the conditions around the call.

    Parameters
    ----------
    lanes : sequence of 8 Value, 32 bits each
    low, high : Value
        128 bits each; `high` is the next surface's atom, for elements of 32 bits.
    width, half : Value
        `Width` and `Half` of the elements.
    part : Value
        2 bits: the octet's place in the atom, for elements of 8 bits (0, 1) and 4 bits (0..3).
    floats : bool
        Whether `half` has an effect; otherwise all elements of 16 bits are integers.
    """
    with m.Switch(width):
        with m.Case(Width.BITS8):
            octet = Signal(64, init=IDLE)
            m.d.comb += octet.eq(Mux(part[0], low[64:], low[:64]))
            for lane, target in enumerate(lanes):
                m.d.comb += target.eq(octet.word_select(lane, 8).as_signed())
        with m.Case(Width.BITS16):
            with m.Switch(half if floats else Const(Half.INTEGER.value, 2)):
                with m.Case(Half.FP16):
                    for lane, target in enumerate(lanes):
                        m.d.comb += target.eq(widen_fp16(m, low.word_select(lane, 16)))
                with m.Case(Half.BF16):
                    for lane, target in enumerate(lanes):
                        m.d.comb += target.eq(widen_bf16(low.word_select(lane, 16)))
                with m.Case(Half.BITS):
                    for lane, target in enumerate(lanes):
                        m.d.comb += target.eq(low.word_select(lane, 16))
                with m.Default():
                    for lane, target in enumerate(lanes):
                        m.d.comb += target.eq(low.word_select(lane, 16).as_signed())
        with m.Case(Width.BITS32):
            for lane, target in enumerate(lanes):
                word = (low if lane < LANES // 2 else high).word_select(lane % (LANES // 2), 32)
                m.d.comb += target.eq(word)
        with m.Case(Width.BITS4):
            nibbles = Signal(32, init=IDLE)
            m.d.comb += nibbles.eq(low.word_select(part, 32))
            for lane, target in enumerate(lanes):
                m.d.comb += target.eq(nibbles.word_select(lane, 4).as_signed())


class CubeShape(data.Struct):
    """The cube that a StripeReader reads; addresses and pitches are in atoms.

    Members
    -------
    octets, group : octets and surfaces of a full channel group.
    last_octet, surfaces : octets (minus one) and surfaces of the cube.
    thin : two groups share a surface.
    kind, half : type of the elements.
    per_channel : one atom per surface for all pixels.
    shared, parity : only surfaces whose number has `parity` as its lowest bit are read; `surface_pitch` is
        the distance between two of them.
    times_m1 : each pixel is delivered this often, minus one.
    """

    base: ATOMS
    line_pitch: 15
    surface_pitch: ATOMS
    width: 14
    pixels_m1: 26
    octets: 4
    last_octet: 10
    surfaces: 12
    group: 5
    thin: 1
    kind: Width
    half: Half
    per_channel: 1
    shared: 1
    parity: 1
    times_m1: 3


class RingRun(data.Struct):
    """Place in the ring for the atoms of one request, their number, and whether they complete a stripe."""

    place: 10
    odd: 1
    atoms: 5
    closes: 1


def _owns(shape: data.View, phase: Value, left: Value) -> Value:
    """Whether group number `phase`, from which `left` surfaces remain, has surfaces of this reader."""
    several = ~shape.parity | (left != 1)
    single = Mux(shape.thin, phase[1], phase[0]) == shape.parity
    return ~shape.shared | Mux(shape.group[0], single, several)


class RequestWalk(wiring.Component):
    """Walk through groups, stripes, surfaces and runs of a cube; one request and one `RingRun` per step.

    Members
    -------
    start : begin.
    shape : the cube, stable from the start on.
    free : there is room for another stripe.
    reserve : reserve the room for a stripe.
    req : requests to memory.
    run : place in the ring for the atoms of each request.
    """

    start: In(1)
    shape: In(CubeShape)
    free: In(1)
    reserve: Out(1)
    req: Out(stream.Signature(ReadRequest))
    run: Out(stream.Signature(RingRun))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape, req = self.shape, self.req
        several = shape.shared & ~shape.group[0]  # only every second surface of a group is read
        first = several & shape.parity
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
            here.eq(Mux(left < shape.group, left, shape.group)),
            notched.eq(shape.line_pitch != shape.width),
            in_line.eq(Mux(notched, shape.width - x, 16)),
            at_most.eq(pixels - pixel),
            atoms.eq(Mux(shape.per_channel, 1, Mux(in_line < at_most, in_line, at_most))),
        ]
        own, stride, skip = Signal(), Signal(2), Signal()
        m.d.comb += [
            own.eq(_owns(shape, phase, left)),
            stride.eq(Mux(several, 2, 1)),
            skip.eq(asking & ~own),
        ]
        address = Signal(ATOMS)
        request_valid, request_addr = Signal(), Signal(27, reset_less=True)
        request_beats = Signal(4, reset_less=True)
        run = Signal(RingRun)
        step, ends_surface, ends_stripe, ends_group = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            address.eq(shape.base + offset + Mux(shape.per_channel, 0, line + x)),
            run.place.eq(place + (surface << 4) + pixel),
            run.odd.eq(address[0]),
            run.atoms.eq(atoms),
            run.closes.eq(ends_stripe),
            self.run.payload.eq(run),
            self.run.valid.eq(step),
            step.eq(asking & own & (opened | self.free) & self.run.ready & (~request_valid | req.ready)),
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
                    surface.eq(first),
                    offset.eq(offset0),
                    done.eq(done + 16),
                    place.eq(place + (shape.group << 4)),
                    x.eq(next_x),
                    line.eq(next_line),
                    x0.eq(next_x),
                    line0.eq(next_line),
                ]
            with m.If(ends_group):
                m.d.sync += done.eq(0)
                with m.If(~shape.thin | phase[0]):
                    m.d.sync += [offset.eq(next_offset), offset0.eq(next_offset)]
                m.d.sync += [signal.eq(0) for signal in (x, line, x0, line0)]
        with m.If(ends_group | skip):
            m.d.sync += [phase.eq(phase + 1), base.eq(base + shape.octets)]
            m.d.sync += left.eq(left - shape.group)  # not used where two groups share a surface
            with m.If(base + shape.octets > shape.last_octet):
                m.d.sync += asking.eq(0)
        with m.If(self.start):
            m.d.sync += [asking.eq(1), opened.eq(0), left.eq(shape.surfaces)]
            m.d.sync += surface.eq(first)
            m.d.sync += [signal.eq(0) for signal in (phase, base, done, pixel, place)]
            m.d.sync += [signal.eq(0) for signal in (x, x0, line, line0, offset, offset0)]
        assertions.ports(m, platform, self)
        return m


class StripeDelivery(wiring.Component):
    """Read complete stripes from the ring, pixel by pixel and octet by octet.

    Parameters
    ----------
    floats : bool
        As for `unpack`.

    Members
    -------
    start : begin.
    shape : the cube, stable from the start on.
    ready : there is a complete stripe.
    release : the last atom of a stripe is read.
    read : read both memories of the ring.
    addr : address for each memory.
    words : the words read, in the next cycle.
    octets : elements in the order of the DPU.
    mine : for a shared cube: the lower and the upper four lanes of the octet belong to this reader.
    idle : everything has been delivered.
    """

    start: In(1)
    shape: In(CubeShape)
    ready: In(1)
    release: Out(1)
    read: Out(1)
    addr: Out(9).array(2)
    words: In(128).array(2)
    octets: Out(stream.Signature(ElementOctet))
    mine: Out(2)
    idle: Out(1)

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shape, out = self.shape, self.octets
        delivering = Signal()
        place, pixel, octet = Signal(10), Signal(4), Signal(3)
        base, left = Signal(10), Signal(26)  # octets before this group; its remaining pixels minus one
        phase, surfaces = Signal(2), Signal(12)  # number of the group; surfaces from this group on
        here, last_octet, last_pixel, step = Signal(11), Signal(), Signal(), Signal()
        valid, own = Signal(), Signal()
        again, last_time = Signal(3), Signal()  # how often the pixel has been delivered before
        m.d.comb += [
            last_time.eq(again == shape.times_m1),
            own.eq(_owns(shape, phase, surfaces)),
            here.eq(base + octet),
            last_octet.eq((octet == shape.octets - 1) | (here == shape.last_octet)),
            last_pixel.eq((pixel == 15) | (left == 0)),
            step.eq(delivering & (~own | self.ready) & (~valid | out.ready)),
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
                        m.d.sync += place.eq(place + (shape.group << 4))
                with m.If(left == 0):
                    m.d.sync += [
                        left.eq(shape.pixels_m1),
                        base.eq(base + shape.octets),
                        phase.eq(phase + 1),
                    ]
                    with m.If(~shape.thin | phase[0]):
                        m.d.sync += surfaces.eq(surfaces - shape.group)
                    with m.If(base + shape.octets > shape.last_octet):
                        m.d.sync += delivering.eq(0)

        column = Signal(4)
        m.d.comb += column.eq(Mux(shape.per_channel, 0, pixel))
        swap, swap_now = Signal(reset_less=True), Signal()
        part, odd = Signal(2, reset_less=True), Signal(reset_less=True)
        m.d.comb += self.read.eq(step)
        for bank in range(2):
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
            m.d.comb += [at.eq(place + (surface << 4) + column), self.addr[bank].eq(at[1:])]
            if bank == 0:
                # Two atoms: the even surface is in memory column[0]; one atom: in the memory of its place.
                m.d.comb += swap_now.eq(Mux(shape.kind == Width.BITS32, column[0], at[0] ^ at[4]))
                # The number of a surface in the cube decides which reader has it.
                number = Mux(shape.group[0], Mux(shape.thin, phase[1], phase[0]), surface[0])
        with m.If(step):
            m.d.sync += [swap.eq(swap_now), part.eq(octet | Cat(Const(0, 1), shape.thin & phase[0]))]
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
                atom.eq(Mux(swap, self.words[1], self.words[0])),
                other.eq(Mux(swap, self.words[0], self.words[1])),
            ]
            unpack(m, lanes, atom, other, shape.kind, shape.half, part, floats=self._floats)
        m.d.comb += out.payload.eq(Cat(*lanes))
        with m.If(self.start):
            m.d.sync += [delivering.eq(1), left.eq(shape.pixels_m1), surfaces.eq(shape.surfaces)]
            m.d.sync += [signal.eq(0) for signal in (place, pixel, octet, again, base, phase)]
        assertions.ports(m, platform, self)
        return m


class StripeReader(wiring.Component):
    """Prefetch stripes of 16 pixels into a ring and deliver them as octets, one per cycle.

    A stripe of a channel group takes 16 atoms per surface of the group. Atom `i` of the ring is stored
    in memory `i[0] ^ i[4]`, so that neighbours along a line and along surfaces can be accessed together.
    Two groups of 16 channels share a surface of int4, which is therefore read once for each of them.

    Parameters
    ----------
    floats : bool
        As for `unpack`.

    Members
    -------
    start : begin with `cube`.
    cube : the cube to read, stable until `idle`.
    port : requests and data.
    octets : elements in the order of the DPU.
    mine : for a shared cube: the lower and the upper four lanes of the octet belong to this reader.
    idle : everything has been delivered.
    stripes : number of complete stripes in the ring.
    """

    start: In(1)
    cube: In(CubeShape)
    port: Out(ReadPort())
    octets: Out(stream.Signature(ElementOctet))
    mine: Out(2)
    idle: Out(1)
    stripes: Out(LEVEL_BITS)

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.walk = walk = RequestWalk()
        m.submodules.runs = runs = SyncFIFOBuffered(width=RingRun.as_shape().size, depth=RUNS)
        m.submodules.memory0 = memory0 = Memory(shape=128, depth=RING_ATOMS // 2, init=[])
        m.submodules.memory1 = memory1 = Memory(shape=128, depth=RING_ATOMS // 2, init=[])
        m.submodules.delivery = delivery = StripeDelivery(floats=self._floats)
        memories = (memory0, memory1)
        free, ready = Signal(7), Signal(7)  # stripes that may still be requested; stripes that are complete
        complete = Signal()
        wiring.connect(m, walk.req, wiring.flipped(self.port.req))
        wiring.connect(m, walk.run, runs.w_stream)
        wiring.connect(m, delivery.octets, wiring.flipped(self.octets))
        m.d.comb += [
            walk.start.eq(self.start),
            walk.shape.eq(self.cube),
            walk.free.eq(free != 0),
            delivery.start.eq(self.start),
            delivery.shape.eq(self.cube),
            delivery.ready.eq(ready != 0),
            self.mine.eq(delivery.mine),
            self.idle.eq(delivery.idle),
            self.stripes.eq(ready),
        ]
        with m.If(self.start):
            m.d.sync += ready.eq(0)
            with m.Switch(self.cube.group):
                for log in range(5):
                    with m.Case(1 << log):
                        m.d.sync += free.eq(RING_ATOMS // 16 >> log)
        with m.Else():
            with m.If(walk.reserve ^ delivery.release):
                m.d.sync += free.eq(free + Mux(delivery.release, 1, -1))
            with m.If(complete ^ delivery.release):
                m.d.sync += ready.eq(ready + Mux(complete, 1, -1))

        # The atoms of each beat are written to the ring.
        rsp = self.port.rsp
        run = data.View(RingRun, runs.r_data)
        inside = Signal()  # not the first beat of its run
        place_r, left_r = Signal(10, reset_less=True), Signal(5, reset_less=True)
        place, left, skip, both, ends = Signal(10), Signal(5), Signal(), Signal(), Signal()
        m.d.comb += [
            place.eq(Mux(inside, place_r, run.place)),
            left.eq(Mux(inside, left_r, run.atoms)),
            skip.eq(~inside & run.odd),
            both.eq(~skip & (left > 1)),
            ends.eq(left <= Mux(both, 2, 1)),
            runs.r_en.eq(rsp.valid & ends),
            complete.eq(rsp.valid & ends & run.closes),
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
        for bank, memory in enumerate(memories):
            port = memory.write_port()
            first = Signal()
            m.d.comb += [
                first.eq(place[0] ^ place[4] == bank),
                port.addr.eq(Mux(first, place[1:], after[1:])),
                port.data.eq(Mux(first & ~skip, low, high)),
                port.en.eq(rsp.valid & (first | both)),
            ]
        for bank, memory in enumerate(memories):
            port = memory.read_port()
            m.d.comb += [
                port.addr.eq(delivery.addr[bank]),
                port.en.eq(delivery.read),
                delivery.words[bank].eq(port.data),
            ]
        assertions.has_value(m, platform, runs, "StripeReader.runs")
        for count, name, up, down in (
            (free, "free", delivery.release, walk.reserve),
            (ready, "ready", complete, delivery.release),
        ):
            assertions.bounded(
                m,
                platform,
                count,
                f"StripeReader.{name}",
                up=up & ~self.start,
                down=down & ~self.start,
                most=RING_ATOMS // 16,
            )
        assertions.ports(m, platform, self)
        return m
