"""Rounding to binary32 and the accumulators' adder of the array cell.

As `rtl.npu.float32`, but for 64 lanes: what finds the top bit is small rather than quick.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Value

from rtl.npu.float32 import INFINITY, OFFSET, Exact, exact_sum, normalised, wire


def rounded(m: Module, sign: Value, exponent: Value, mantissa: Value, zero_sign: Value) -> Value:
    """The binary32 nearest to a value of any magnitude, ties to even.

    Parameters
    ----------
    sign, zero_sign : Value
        of the result; the latter if it is not zero before rounding, and if it is.
    exponent : Value
        unsigned, 11 bits: biased exponent plus `OFFSET` if the top bit of the mantissa is set; at least 64.
    mantissa : Value
        unsigned, 64 bits.  Its lowest bit may stand for anything below it.
    """
    whole, count = normalised(m, mantissa, 64)
    place = wire(m, exponent - count, 11)
    # A subnormal is shifted down; what is lost stays as the lowest bit.
    down = wire(m, Mux(place > OFFSET, 0, Mux(place < OFFSET - 62, 63, OFFSET + 1 - place)), 6)
    cut = wire(m, whole >> down, 64)
    kept = wire(m, cut | ((cut << down)[:64] != whole), 64)
    up = kept[39] & (kept[:39].any() | kept[40])
    # The hidden bit adds one to the exponent below it; a carry out of the fraction does the same.
    below = Mux(place > OFFSET, place - (OFFSET + 1), 0)[:8]
    magnitude = Mux(place > OFFSET + 254, INFINITY, Cat(Const(0, 23), below) + kept[40:] + up)
    return wire(m, Mux(whole[63], Cat(magnitude[:31], sign), Cat(Const(0, 31), zero_sign)), 32)


def add(m: Module, a: Value, b: Value) -> Value:
    """`a + b`."""
    total: Exact = exact_sum(m, a, b)
    finite = rounded(m, total.sign, total.exponent, total.mantissa, total.zero_sign)
    return wire(m, Mux(total.special, total.instead, finite), 32)
