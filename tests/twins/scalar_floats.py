"""Binary floating point in plain Python: numbers as fractions, one element at a time."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary floating-point format like those of IEEE 754."""

    exponent: int
    fraction: int
    nan: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    def sign(self, bits: int) -> int:
        return bits >> (self.exponent + self.fraction) & 1

    def magnitude(self, bits: int) -> int:
        return bits & ((1 << (self.exponent + self.fraction)) - 1)

    def is_nan(self, bits: int) -> bool:
        return self.magnitude(bits) > self.infinity

    def is_infinite(self, bits: int) -> bool:
        return self.magnitude(bits) == self.infinity

    def number(self, bits: int) -> Fraction:
        """Return the value of finite bits."""
        e, f = divmod(self.magnitude(bits), 1 << self.fraction)
        value = Fraction(f if e == 0 else f + (1 << self.fraction)) * Fraction(2) ** (
            max(e, 1) - self.bias - self.fraction
        )
        return -value if self.sign(bits) else value

    def signed(self, sign: int, magnitude: int) -> int:
        return sign << (self.exponent + self.fraction) | magnitude

    def round(self, value: Fraction, sign: int | None = None) -> int:
        """Return the bits of a value, rounded half to even; `sign` is the sign of a zero result."""
        if value == 0:
            return self.signed(sign or 0, 0)
        sign, value = int(value < 0), abs(value)
        e = value.numerator.bit_length() - value.denominator.bit_length()
        if value < Fraction(2) ** e:
            e -= 1
        e = max(e, 1 - self.bias)
        steps = round(value / Fraction(2) ** (e - self.fraction))  # half to even
        if steps == 0:
            return self.signed(sign, 0)
        # A carry out of the fraction runs into the exponent by itself.
        hidden = 1 << self.fraction
        magnitude = steps if steps < hidden else (e + self.bias) * hidden + steps - hidden
        return self.signed(sign, min(magnitude, self.infinity))


F32, F16, BF16 = Format(8, 23, 0x7FC00000), Format(5, 10, 0x7E00), Format(8, 7, 0x7FC0)


def widen(fmt: Format, bits: int) -> int:
    """Return the exact binary32 of a narrower format; a NaN keeps its bits."""
    if fmt.is_nan(bits) or fmt.is_infinite(bits):
        rest = (fmt.magnitude(bits) - fmt.infinity) << (F32.fraction - fmt.fraction)
        return F32.signed(fmt.sign(bits), F32.infinity + rest)
    return F32.round(fmt.number(bits), fmt.sign(bits))


def narrow(fmt: Format, bits: int) -> int:
    """Return a binary32 rounded to a narrower format."""
    if F32.is_nan(bits):
        return fmt.nan
    if F32.is_infinite(bits):
        return fmt.signed(F32.sign(bits), fmt.infinity)
    return fmt.round(F32.number(bits), F32.sign(bits))


def negate(bits: int) -> int:
    """Flip the sign bit."""
    return bits ^ 1 << 31


def add(a: int, b: int) -> int:
    """Return the binary32 sum."""
    if F32.is_nan(a) or F32.is_nan(b):
        return F32.nan
    if F32.is_infinite(a) or F32.is_infinite(b):
        if F32.is_infinite(a) and F32.is_infinite(b) and a != b:
            return F32.nan
        return a if F32.is_infinite(a) else b
    both_negative = F32.sign(a) & F32.sign(b)
    return F32.round(F32.number(a) + F32.number(b), both_negative)


def multiply(a: int, b: int) -> int:
    """Return the binary32 product."""
    if F32.is_nan(a) or F32.is_nan(b):
        return F32.nan
    sign = F32.sign(a) ^ F32.sign(b)
    if F32.is_infinite(a) or F32.is_infinite(b):
        return F32.nan if 0 in (F32.magnitude(a), F32.magnitude(b)) else F32.signed(sign, F32.infinity)
    return F32.round(F32.number(a) * F32.number(b), sign)


def subtract(a: int, b: int) -> int:
    """Return the binary32 difference of the EW stage, which has its own differences of infinities."""
    if F32.is_infinite(a) and F32.is_infinite(b):
        return F32.infinity if a == b else F32.nan
    return add(a, b if F32.is_nan(b) else negate(b))


def divide(a: int, b: int) -> int:
    """Return the quotient of the fp16 in the low 16 bits, as the DPU's divider has it."""
    a, b = a & 0xFFFF, b & 0xFFFF
    if F16.is_nan(a) or F16.is_nan(b) or a == b == 0:
        return 0x7C01
    if F16.is_infinite(a) or F16.magnitude(b) == 0:
        return F16.signed(F16.sign(a), F16.infinity)
    if F16.is_infinite(b) or F16.magnitude(a) == 0:
        return F16.signed(F16.sign(a), 0)
    return F16.round(F16.number(a) / F16.number(b), F16.sign(a) ^ F16.sign(b))


def greater(a: int, b: int) -> bool:
    """Whether `a` comes after `b` from -NaN over -0 < +0 to NaN."""

    def place(bits: int) -> tuple[bool, int]:
        positive = not F32.sign(bits)
        return positive, F32.magnitude(bits) if positive else -F32.magnitude(bits)

    return place(a) > place(b)


def whole(bits: int, up: bool) -> int:
    """Return floor or ceiling; a zero keeps the sign of the value."""
    if F32.is_nan(bits):
        return F32.nan
    if F32.is_infinite(bits):
        return bits
    value = F32.number(bits)
    return F32.round(Fraction(value.__ceil__() if up else value.__floor__()), F32.sign(bits))


def to_integer(bits: int, width: int) -> int:
    """Return the value rounded half to even and saturated; NaN gives 0."""
    limit = 1 << (width - 1)
    if F32.is_nan(bits):
        return 0
    if F32.is_infinite(bits):
        return -limit if F32.sign(bits) else limit - 1
    return max(-limit, min(limit - 1, round(F32.number(bits))))
