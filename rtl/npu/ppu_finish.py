"""Last step of the PPU: pad value, averages by reciprocals with silicon's tie rule, type conversion."""

# No postponed annotations here: Amaranth reads the fields of a Struct from the annotations.
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import IDLE
from rkcosim.rtl.npu import float32
from rkcosim.rtl.npu.arith import extend, wire
from rkcosim.rtl.npu.ppu_lanes import (
    FIXED_BITS,
    FLOAT_BITS,
    INDEX_AT,
    INDEX_BITS,
    Lanes,
    fixed_of_half,
    half_of_key,
    key_of_half,
    partial_of,
)

STEP_BITS = 64
"""Output bits per cycle: an atom takes two cycles."""
PAD_BITS = 19
"""Width of an integer pad value [HW 9.2]."""
SUM_BITS = 27
"""Width of the sum of 256 taps of `PAD_BITS`."""
_EVERY = 8
_HALF = 4
STAGES = 3


class Pooled(data.Struct):
    """An output atom and the atom of its positions (which are undefined without INDEX_EN)."""

    data: 128
    index: 128


class Constants(data.Struct):
    """Constants of the last step, derived from a task's settings.

    Members
    -------
    factors : the reciprocals as binary32.
    pad_key, pad_value : the pad value as an extremum, and for a tap in sums.
    pad_flags : the pad value, as fp16, is NaN, +infinity, -infinity.
    high : the greatest integer of the type.
    taps : number of taps of a window.
    exact : both kernel sizes are powers of two.
    """

    factors: data.ArrayLayout(32, 2)
    pad_key: 16
    high: signed(16)
    pad_value: signed(41)
    pad_flags: 3
    taps: 9
    exact: 1


class PpuFinish(wiring.Component):
    """Convert windows to atoms ([HW 9.2], [HW 9.3], [HW 9.5]).

    Parameters
    ----------
    floats : bool
        Whether there are tasks of fp16.

    Members
    -------
    start : load the settings below, which are constant from then on.
    kind, flip, fp16, indexed : type and method, see `rkcosim.rtl.npu.ppu_lanes.PoolTask`.
    pad : pad value; its low 16 bits for fp16.
    recip_width, recip_height : reciprocals of the kernel's sizes.
    kernel_width, kernel_height : the kernel's sizes.
    i : windows.
    o : output atoms.
    """

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        partial = partial_of(floats)
        super().__init__(
            {
                "start": In(1),
                "kind": In(Lanes),
                "flip": In(1),
                "fp16": In(1),
                "indexed": In(1),
                "pad": In(PAD_BITS),
                "recip_width": In(17),
                "recip_height": In(17),
                "kernel_width": In(5),
                "kernel_height": In(5),
                "i": In(stream.Signature(partial)),
                "o": Out(stream.Signature(Pooled)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        constants = self._constants(m)
        best = (self.kind == Lanes.BEST8) | (self.kind == Lanes.BEST16)

        # 1. Hold a window and pass on half of its lanes per cycle.
        busy, step = Signal(), Signal()
        held = Signal(partial_of(self._floats), reset_less=True)
        pad_sum = Signal(signed(FIXED_BITS + 1 if self._floats else SUM_BITS), reset_less=True)
        valid = [Signal(name=f"stage{n}") for n in range(STAGES)]
        full, go, feed, last = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            go.eq(~full | self.o.ready),
            feed.eq(busy & go),
            last.eq(feed & step),
            self.i.ready.eq(~busy | last),
        ]
        with m.If(feed):
            m.d.sync += step.eq(1)
            rest = held.lanes
            with m.Switch(self.kind):
                with m.Case(Lanes.BEST8):
                    m.d.sync += rest.eq(Cat(rest[64:INDEX_AT], Const(0, 64), rest[INDEX_AT + 48 :]))
                with m.Case(Lanes.BEST16):
                    m.d.sync += rest.eq(Cat(rest[64:INDEX_AT], Const(0, 64), rest[INDEX_AT + 24 :]))
                if self._floats:
                    with m.Case(Lanes.SUM_FP16):
                        m.d.sync += rest.eq(rest[_HALF * FLOAT_BITS :])
                with m.Default():
                    m.d.sync += rest.eq(rest[128:])
        with m.If(self.i.ready):
            m.d.sync += busy.eq(self.i.valid)
            with m.If(self.i.valid):
                m.d.sync += [held.eq(self.i.payload), step.eq(0)]
                with m.If(~self.i.payload.real):
                    m.d.sync += held.lanes.eq(0)
                with m.If(~best):
                    pad = constants.pad_value if self._floats else constants.pad_value[:PAD_BITS].as_signed()
                    m.d.sync += pad_sum.eq(pad * self.i.payload.padded)
        with m.If(go):
            m.d.sync += [valid[0].eq(feed), valid[1].eq(valid[0]), valid[2].eq(valid[1])]

        # 2. Three stages; each kind has separate registers, and only those of the active kind change.
        out, index_out = Signal(STEP_BITS, reset_less=True), Signal(STEP_BITS, reset_less=True)
        steps = [feed, *valid]
        with m.If(go):
            with m.If(best):
                self._extremum(m, steps, held, constants, out, index_out)
            if self._floats:
                with m.Elif(self.kind == Lanes.SUM_FP16):
                    self._float_average(m, steps, held, pad_sum, constants, out)
            with m.Else():
                self._average(m, steps, held, pad_sum, constants, out)

        # 3. Combine the halves of an atom.
        place = Signal()
        part, part_index = Signal(STEP_BITS, reset_less=True), Signal(STEP_BITS, reset_less=True)
        atom = Signal(Pooled, reset_less=True)
        m.d.comb += [self.o.valid.eq(full), self.o.payload.eq(atom)]
        with m.If(go):
            m.d.sync += full.eq(0)
            with m.If(valid[2]):
                m.d.sync += [place.eq(~place), part.eq(out), part_index.eq(index_out)]
                with m.If(place):
                    m.d.sync += [
                        full.eq(1),
                        atom.data.eq(Cat(part, out)),
                        atom.index.eq(Cat(part_index, index_out)),
                    ]
        assertions.ports(m, platform, self)
        return m

    def _constants(self, m: Module) -> data.View:
        """The `Constants` of the task, held from its start on."""
        constants = Signal(Constants, reset_less=True)
        pad = self.pad.as_signed()
        with m.If(self.start):
            high = wire(m, Mux((self.kind == Lanes.BEST8) | (self.kind == Lanes.SUM8), 127, 32767))
            low = -1 - high.as_unsigned()
            near = Mux(pad > high, high, Mux(pad < low, low, pad))
            m.d.sync += [
                constants.taps.eq(self.kernel_width * self.kernel_height),
                constants.exact.eq(_power_of_two(self.kernel_width) & _power_of_two(self.kernel_height)),
                constants.high.eq(high),
                constants.pad_flags.eq(0),
                constants.pad_value.eq(pad),
                constants.pad_key.eq(near[:16] ^ self.flip.replicate(16)),
            ]
            with m.If(self.fp16 if self._floats else Const(0)):
                fixed = wire(m, fixed_of_half(self.pad[:16]), FLOAT_BITS)
                m.d.sync += [
                    constants.pad_value.eq(fixed[:41].as_signed()),
                    constants.pad_flags.eq(fixed[FIXED_BITS:]),
                    constants.pad_key.eq(key_of_half(self.pad[:16], self.flip)),
                ]
                for factor, code in zip(
                    constants.factors, (self.recip_width, self.recip_height), strict=True
                ):
                    m.d.sync += factor.eq(_widen_reciprocal(m, code))
        return constants

    def _extremum(
        self,
        m: Module,
        steps: list[Signal],
        held: data.View,
        constants: data.View,
        out: Signal,
        index_out: Signal,
    ) -> None:
        """The extremum of the real taps, or the pad value for a window without any, and the positions."""
        rest, index = [], []
        for n in range(STAGES - 1):
            rest.append(Signal(STEP_BITS, name=f"best{n}", reset_less=True))
            index.append(Signal(STEP_BITS, name=f"index{n}", reset_less=True))
        with m.If(steps[0]):
            for case, bits in ((Lanes.BEST8, 8), (Lanes.BEST16, 16)):
                with m.If(self.kind == case):
                    count = STEP_BITS // bits
                    pad = constants.pad_key[:bits]
                    real = held.lanes[: count * bits]
                    places = [
                        Cat(held.lanes[INDEX_AT:].word_select(lane, INDEX_BITS), Const(0, bits - INDEX_BITS))
                        for lane in range(count)
                    ]
                    m.d.sync += rest[0].eq(Mux(held.real, real, pad.replicate(count)))
                    with m.If(self.indexed):
                        m.d.sync += index[0].eq(Cat(*places))
        with m.If(steps[1]):
            m.d.sync += rest[1].eq(rest[0])
            with m.If(self.indexed):
                m.d.sync += index[1].eq(index[0])
        with m.If(steps[2]):
            with m.If(self.fp16 if self._floats else Const(0)):
                halves = [half_of_key(rest[1].word_select(lane, 16), self.flip) for lane in range(_HALF)]
                m.d.sync += out.eq(Cat(*halves))
            with m.Else():
                m.d.sync += out.eq(rest[1] ^ self.flip.replicate(STEP_BITS))
            with m.If(self.indexed):
                m.d.sync += index_out.eq(index[1])

    def _float_average(
        self,
        m: Module,
        steps: list[Signal],
        held: data.View,
        pad_sum: Signal,
        constants: data.View,
        out: Signal,
    ) -> None:
        """Exact sum to binary32, times both reciprocals, to fp16."""
        narrow = []
        for lane in range(_HALF):
            total0 = Signal(32, name=f"float0_{lane}", reset_less=True)
            total1 = Signal(32, name=f"float1_{lane}", reset_less=True)
            with m.If(steps[0]):
                slot = held.lanes.word_select(lane, FLOAT_BITS)
                flags = wire(
                    m, slot[FIXED_BITS:] | (constants.pad_flags & (held.padded != 0).replicate(3)), 3
                )
                total = wire(m, (slot[:FIXED_BITS] + pad_sum.as_unsigned())[:FIXED_BITS])
                sign = total[-1]
                magnitude = wire(m, Mux(sign, -total, total)[:48], 48)
                # The top bit of the mantissa has the weight 2^47 in units of 2^-24.
                finite = float32.rounded(
                    m, sign, Const(float32.OFFSET + 127 + 23, 11), Cat(Const(0, 16), magnitude)
                )
                with m.If(flags[0] | (flags[1] & flags[2])):
                    m.d.sync += total0.eq(float32.NAN)
                with m.Elif(flags[1] | flags[2]):
                    m.d.sync += total0.eq(Cat(Const(float32.INFINITY, 31), flags[2]))
                with m.Else():
                    m.d.sync += total0.eq(finite)
            with m.If(steps[1]):
                m.d.sync += total1.eq(float32.multiply(m, total0, constants.factors[0]))
            with m.If(steps[2]):
                narrow.append(float32.narrow_fp16(m, float32.multiply(m, total1, constants.factors[1])))
        with m.If(steps[2]):
            m.d.sync += out.eq(Cat(*narrow))

    def _average(
        self,
        m: Module,
        steps: list[Signal],
        held: data.View,
        pad_sum: Signal,
        constants: data.View,
        out: Signal,
    ) -> None:
        """Sum times both reciprocals, rounded with the tie rule, saturated."""
        results = []
        wide = self.kind == Lanes.SUM16
        taps = constants.taps
        for lane in range(_EVERY):
            # stage 0: magnitude times 1/width
            negative0 = Signal(name=f"negative0_{lane}", reset_less=True)
            sum0 = Signal(SUM_BITS, name=f"sum0_{lane}", reset_less=True)
            part0 = Signal(44, name=f"part0_{lane}", reset_less=True)
            # stage 1: times 1/height
            negative1 = Signal(name=f"negative1_{lane}", reset_less=True)
            sum1 = Signal(SUM_BITS, name=f"sum1_{lane}", reset_less=True)
            part1 = Signal(61, name=f"part1_{lane}", reset_less=True)
            with m.If(steps[0]):
                slot = extend(held.lanes.word_select(lane, 16).as_signed(), SUM_BITS)[:SUM_BITS]
                if lane < _HALF:
                    slot = Mux(wide, held.lanes.word_select(lane, 32)[:SUM_BITS], slot)
                value = wire(m, (slot + pad_sum.as_unsigned())[:SUM_BITS])
                magnitude = wire(m, Mux(value[-1], -value, value)[:SUM_BITS])
                m.d.sync += [
                    negative0.eq(value[-1]),
                    sum0.eq(magnitude),
                    part0.eq(magnitude * self.recip_width),
                ]
            with m.If(steps[1]):
                m.d.sync += [
                    negative1.eq(negative0),
                    sum1.eq(sum0),
                    part1.eq(part0 * self.recip_height),
                ]
            with m.If(steps[2]):
                # stage 2: round, detect a tie
                nearest = wire(m, (part1 + (1 << 31))[32:], 30)
                below = wire(m, nearest - 1, 30)
                twice = wire(m, sum1 << 1, SUM_BITS + 1)
                tie_below = wire(m, ~taps[0] & (nearest != 0) & (twice == ((below << 1) + 1) * taps), 1)
                tie_here = ~taps[0] & (twice == ((nearest << 1) + 1) * taps)
                lower = wire(m, Mux(tie_below, below, nearest), 30)
                chosen = wire(m, Mux(tie_below | tie_here, lower + (constants.exact & lower[0]), nearest), 30)
                high = constants.high.as_unsigned()
                limit = wire(m, high + negative1, 17)
                near = wire(m, Mux(chosen > limit, limit, chosen), 17)
                results.append(wire(m, Mux(negative1, -near, near)[:16], 16))
        with m.If(steps[2]):
            with m.If(wide):
                m.d.sync += out.eq(Cat(*results[:_HALF]))
            with m.Else():
                m.d.sync += out.eq(Cat(*(result[:8] for result in results)))


def _power_of_two(kernel: Value) -> Value:
    return Cat(*(kernel == 1 << n for n in range(5))).any()


def _widen_reciprocal(m: Module, code: Value) -> Signal:
    """Convert a factor of fp16 averages to binary32: sign, 6 exponent bits with bias 31, 10 fraction bits."""
    sign, biased, fraction = code[16], code[10:16], code[:10]
    shifted, count = float32.normalised(m, wire(m, Cat(Const(0, 6), fraction), 16), 16)
    result = Signal(32, init=IDLE)
    with m.If(biased != 0):
        m.d.comb += result.eq(Cat(Const(0, 13), fraction, (biased + 96)[:8], sign))
    with m.Elif(fraction == 0):
        m.d.comb += result.eq(Cat(Const(0, 31), sign))
    with m.Else():
        m.d.comb += result.eq(Cat(Const(0, 8), shifted[:15], (96 - count)[:8], sign))
    return result
