"""Proofs of the buffers that give values in another order than they take them."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib import data

from rkcosim.rtl.npu import dpu_table, dpu_writer, ppu_stripes
from rkcosim.rtl.npu.atom_writer import ATOM_BITS
from rkcosim.rtl.npu.dpu_table import OperandTable
from rkcosim.rtl.npu.dpu_types import Width
from rkcosim.rtl.npu.dpu_writer import StripeBuffer
from rkcosim.rtl.npu.ppu_stripes import PpuStripes
from tools.proofs.bench import Bench, in_order, offers

PIXEL_BITS, SURFACE_BITS = 3, 3
"""Widths of the numbers of pixels and surfaces, which are 26 and 10 in the RTL."""

STRIPE = 2
"""Pixels of a stripe, of which there are 16 in the RTL."""

CUBE = data.StructLayout({"pixels": PIXEL_BITS, "surfaces": SURFACE_BITS, "left": 1})
"""What is left of a cube: pixels of this group of surfaces, surfaces from this group on, anything."""


class Walk:
    """Position in a cube that is walked group by group and stripe by stripe; one step for each atom.

    Members
    -------
    surface, pixel : place in the stripe.
    cube : what is left, from this stripe on.
    shape : pixels of this stripe and surfaces of this group, each minus one.
    ends : the step is the last one of a stripe.
    parity : lowest bit of the number of stripes before this one, those of earlier tasks included.
    """

    def __init__(
        self,
        bench: Bench,
        name: str,
        size: tuple[Value, Value, Value],
        step: Value,
        start: Value,
        *,
        by_pixel: bool,
    ) -> None:
        m = bench.m
        self._bench, self._name, self._size = bench, name, size
        self.surface, self.pixel = Signal(3, name=f"{name}_surface"), Signal(4, name=f"{name}_pixel")
        self.cube, self.parity = Signal(CUBE, name=f"{name}_cube"), Signal(name=f"{name}_parity")
        self.ends = Signal(name=f"{name}_ends")
        self.shape = self.shape_of(self.cube)
        last_pixel, last_surface = self.pixel == self.shape[:4], self.surface == self.shape[4:7]
        m.d.comb += self.ends.eq(last_pixel & last_surface)
        inner, outer = (self.surface, self.pixel) if by_pixel else (self.pixel, self.surface)
        with m.If(start):
            m.d.sync += [self.cube.pixels.eq(size[0]), self.cube.surfaces.eq(size[1]), self.cube.left.eq(1)]
            m.d.sync += [inner.eq(0), outer.eq(0)]
        with m.Elif(step):
            m.d.sync += inner.eq(inner + 1)
            with m.If(last_surface if by_pixel else last_pixel):
                m.d.sync += [inner.eq(0), outer.eq(outer + 1)]
            with m.If(self.ends):
                m.d.sync += [outer.eq(0), self.parity.eq(~self.parity), self.cube.eq(self.after(self.cube))]

    def shape_of(self, cube: data.View) -> Value:
        """Shape of the first stripe that is left."""
        _, _, group = self._size
        pixels = Mux(cube.pixels < STRIPE, cube.pixels - 1, STRIPE - 1)[:4]
        return Cat(pixels, (Mux(cube.surfaces < group, cube.surfaces, group) - 1)[:4])

    def after(self, cube: data.View) -> data.View:
        """Return what is left behind the first stripe."""
        pixels, _, group = self._size
        m, out = self._bench.m, Signal(CUBE, name=f"{self._name}_after")
        m.d.comb += [out.eq(cube), out.pixels.eq(cube.pixels - STRIPE)]
        with m.If(cube.pixels <= STRIPE):
            m.d.comb += [
                out.pixels.eq(pixels),
                out.surfaces.eq(cube.surfaces - group),
                out.left.eq(cube.surfaces > group),
            ]
            with m.If(cube.surfaces < group):
                m.d.comb += out.surfaces.eq(0)
        return out


def follow(
    bench: Bench, stored: Value, value: Value, inside: Value, leaves: Value
) -> tuple[Value, Signal, Signal]:
    """Follow one of the values that are stored, as the solver chooses, until its stripe or group leaves.

    Parameters
    ----------
    bench : the environment.
    stored : a value that may be followed is stored now.
    value : this value.
    inside : number of whole stripes or groups in the buffer.
    leaves : the oldest one leaves.

    Returns
    -------
    oldest : a value is followed and is in the oldest stripe or group.
    kept : the value.
    marked : a value is followed.
    """
    m = bench.m
    mark, marked, ahead = bench.free("mark"), Signal(name="marked"), Signal(2, name="ahead")
    now = stored & mark & ~marked
    with m.If(now):
        m.d.sync += [marked.eq(1), ahead.eq(inside - leaves)]
    with m.Elif(marked & leaves):
        m.d.sync += [marked.eq(ahead != 0), ahead.eq(ahead - (ahead != 0))]
    return marked & (ahead == 0), bench.when(now, value, "kept"), marked


def stripes_of_pool(bench: Bench) -> None:
    """Each atom that the DPU sends leaves once, at its place in the order by pixels."""
    row = bench.constant("row", 8)
    made = PpuStripes()
    elaborated, inner = bench.inside(
        made, ppu_stripes, {26: PIXEL_BITS, 10: SURFACE_BITS}, _STRIPE=STRIPE, Memory=bench.one_row(row, 128)
    )
    skip = ("pixels", "surfaces", "group", "start", "i.payload")
    block = bench.drive("block", made, skip=skip, elaborated=elaborated)
    m, given, out = bench.m, block.i, block.o
    size = (
        bench.constant("pixels", PIXEL_BITS),
        bench.constant("surfaces", SURFACE_BITS),
        bench.constant("group", 4),
    )
    bench.assume((size[0] != 0) & (size[1] != 0) & (size[2] != 0) & (size[2] <= 2))
    value = bench.free("value", 4)
    start = bench.free("start")
    m.d.comb += [
        block.pixels.eq(size[0]),
        block.surfaces.eq(size[1]),
        block.group.eq(size[2]),
        given.payload.data[:4].eq(value),
        block.start.eq(start),
    ]
    taken, sent = given.valid & given.ready, out.valid & out.ready
    enters = Walk(bench, "enters", size, taken, start, by_pixel=False)
    leaves = Walk(bench, "leaves", size, sent, start, by_pixel=True)
    inside = bench.count("inside", 2, up=taken & enters.ends, down=sent & leaves.ends)
    # A task starts when the one before has ended.
    bench.assume(~start | (~enters.cube.left & ~leaves.cube.left))
    # What the registers inside mean, with which the solver finds the other claims.
    full, shapes = inner["full"], Array([inner["shape0"], inner["shape1"]])
    second = leaves.after(leaves.cube)
    third = leaves.after(second)
    bench.claim("stripes inside are marked", inside == full[0] + full[1])
    bench.claim("the oldest stripe is sent", (inside == 0) | full.bit_select(leaves.parity, 1))
    bench.claim("the next stripe is filled", enters.parity == leaves.parity ^ inside[0])
    bench.claim(
        "what is left follows the stripes inside",
        enters.cube.as_value() == Mux(inside == 0, leaves.cube, Mux(inside == 1, second, third)),
    )
    bench.claim("the oldest stripe has its shape", (inside == 0) | (shapes[leaves.parity] == leaves.shape))
    bench.claim(
        "the stripe behind it, too", (inside != 2) | (shapes[~leaves.parity] == leaves.shape_of(second))
    )
    bench.claim("at most two stripes are inside", inside <= 2)
    bench.claim("an atom is offered when a whole stripe is inside", out.valid == (inside != 0))
    bench.claim("no more atoms are taken than the cube has", ~taken | enters.cube.left)
    bench.claim(
        "atoms are taken unless two stripes are inside", given.ready == (enters.cube.left & (inside != 2))
    )

    # One atom, the one at the kept row in one stripe, is followed.
    stored = taken & (row == Cat(enters.pixel, enters.surface, enters.parity))
    oldest, kept, _ = follow(bench, stored, value, inside, sent & leaves.ends)
    due = oldest & (row[:7] == Cat(leaves.pixel, leaves.surface))
    bench.claim("an atom leaves at its place", ~(out.valid & due) | (out.payload.data[:4] == kept))
    waiting = bench.past(out.valid & ~out.ready, name="waiting")
    bench.claim("an offer stays until it is taken", ~waiting | out.valid)
    bench.reach(out.valid & due & (kept == 5))
    bench.reach(inside == 2)


def operand_table(bench: Bench) -> None:
    """A look-up gives what was loaded for the octet in its channel group; no group is overwritten."""
    row = bench.constant("row", 4)
    bench.patch(dpu_table, "Memory", bench.one_row(row, 512))
    block = bench.drive("block", OperandTable(), skip=("octets", "load.payload", "clear", "release"))
    m, load = bench.m, block.load
    log, value = bench.constant("log", 2), bench.free("value", 4)
    octets = Signal(4, name="octets")
    m.d.comb += [octets.eq(1 << log), block.octets.eq(octets), load.payload.as_value()[:4].eq(value)]
    bench.assume(bench.first | (block.wanted == bench.past(block.wanted, name="wanted_before")))
    bench.assume(block.octet < octets)
    bench.assume(~block.take | block.available)
    loaded, looked_up = load.valid & load.ready & block.wanted, block.take & block.wanted

    # Octets and groups that have been loaded; groups that have been released.
    place = Signal(3, name="place")
    fills = Signal(name="fills")
    group_ends = loaded & (place == octets - 1)
    groups = Signal(2, name="groups")  # whole groups in the table
    release = bench.free("release")
    bench.assume(~release | (groups != 0))  # the last look-up of a group is behind those of its octets
    leaves = looked_up & release
    m.d.comb += block.release.eq(release)
    m.d.sync += groups.eq(groups + group_ends - leaves)
    with m.If(loaded):
        m.d.sync += place.eq(Mux(group_ends, 0, place + 1))
    with m.If(group_ends):
        m.d.sync += fills.eq(~fills)
    there = (groups != 0) | (block.octet < place)
    bench.claim("an octet is available when it has been loaded", block.available == (~block.wanted | there))
    bench.claim("octets are loaded unless two groups are in the table", ~loaded | (groups != 2))
    bench.claim("octets that are not wanted are dropped", block.wanted | (load.ready == block.active))
    bench.claim("at most two groups are in the table", groups <= 2)

    # The octet at the kept row of one group is followed.
    oldest, kept, _ = follow(bench, loaded & (row == Cat(place, fills)), value, groups, leaves)
    asked = bench.past(looked_up & oldest & (block.octet == row[:3]), name="asked")
    given = block.operands.as_value()[:4]
    bench.claim("a look-up gives what was loaded", ~asked | (given == bench.past(kept, name="kept_before")))
    idle = bench.past(~looked_up, name="idle")
    bench.claim("the result stays until the next look-up", ~idle | (given == bench.past(given, name="given")))
    bench.reach(asked & (given == 3))
    bench.reach((groups == 2) & (octets == 2))


def stripe_buffer(bench: Bench) -> None:
    """An atom of a stripe is read as its octets were written; no stripe is overwritten before its release."""
    atom_surface, atom_pixel = bench.constant("atom_surface", 4), bench.constant("atom_pixel", 4)
    atom_bank = bench.constant("atom_bank")
    # The row of both memories in which one of them has the followed atom.
    row = Cat(atom_pixel[1:], atom_surface, atom_bank)
    bench.patch(dpu_writer, "Memory", bench.one_row(row, ATOM_BITS, reads=2))
    skip = ("cfg", "start", "octets", "kind", "enabled", "source.payload")
    block = bench.drive("block", StripeBuffer(), skip=skip)
    m, source, stripe = bench.m, block.source, block.stripe
    kind = bench.constant("kind", 2)
    octet, slot, last = bench.free("octet", 3), bench.free("slot", 4), bench.free("last", 3)
    values = [bench.free(f"value_{n}", 4) for n in range(2)]
    tag = source.payload.tag
    m.d.comb += [
        block.kind.eq(kind),
        block.octets.eq(8),
        block.enabled.eq(1),
        tag.octet.eq(octet),
        tag.slot.eq(slot),
        Cat(tag.stripe_last, tag.group_last, tag.task_last).eq(last),
        *(source.payload.data[4 * n][:4].eq(value) for n, value in enumerate(values)),
    ]
    offers(bench, source.valid, source.ready, Cat(octet, slot, last, *values))
    taken = source.valid & source.ready
    ends, done = taken & tag.stripe_last, stripe.done
    bench.assume(~stripe.done | stripe.valid)
    bench.assume(~stripe.read | stripe.valid)
    inside = in_order(
        bench,
        "stripes",
        ends,
        Cat(slot, tag.group_last, tag.task_last),
        done,
        Cat(stripe.pixels_m1, stripe.group_last, block.ends),
        2,
    )
    bench.claim("a stripe can be read when all its octets have been taken", stripe.valid == (inside != 0))
    bench.claim("octets are taken unless two stripes are inside", source.ready == (inside != 2))

    # The first octet of one atom in one stripe is followed; lanes 0 to 3 or 4 to 7 of 32 bits are an atom.
    number, value = Signal(3, name="number"), Signal(4, name="value")
    m.d.comb += value.eq(values[0])
    with m.Switch(kind):
        with m.Case(Width.BITS8):
            m.d.comb += number.eq(atom_surface << 1)
        with m.Case(Width.BITS16):
            m.d.comb += number.eq(atom_surface)
        with m.Case(Width.BITS32):
            m.d.comb += [number.eq(atom_surface >> 1), value.eq(Mux(atom_surface[0], values[1], values[0]))]
    fits = Mux(kind == Width.BITS8, atom_surface < 4, Mux(kind == Width.BITS16, atom_surface < 8, 1))
    bench.assume((kind != Width.BITS4) & (block.out == kind) & fits)  # atoms of one type, not partly filled
    fills = Signal(name="fills")  # lowest bit of the number of stripes before the one that is filled
    with m.If(ends):
        m.d.sync += fills.eq(~fills)
    here = taken & (octet == number) & (slot == atom_pixel) & (fills == atom_bank)
    oldest, kept, marked = follow(bench, here, value, inside, done)
    bench.assume(~(here & marked))  # an octet of a stripe is given once
    wanted = stripe.read & oldest
    first = bench.past(
        wanted & (stripe.surface == atom_surface) & (stripe.pixel == atom_pixel), name="read_first"
    )
    beside = Mux(stripe.upward, stripe.surface + 1, stripe.surface)[:4] == atom_surface
    beside &= Mux(stripe.upward, stripe.pixel, stripe.pixel + 1)[:4] == atom_pixel
    second = bench.past(wanted & beside, name="read_second")
    expected = bench.past(kept, name="kept_before")
    words = [Mux(block.swap ^ n, block.words[1], block.words[0])[:4] for n in range(2)]
    bench.claim("a read gives the atom", ~first | (words[0] == expected))
    bench.claim("a read gives the next atom, too", ~second | (words[1] == expected))
    bench.reach(first & (expected == 3) & (kind == Width.BITS32))
    bench.reach(second & (inside == 2))
