"""Random elements as bytes: integers of chosen magnitude, floats with exact sums, spreads and specials."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.spec.types import ElementType
from rkcosim.verify.conformance.choices import Chooser

Bytes = NDArray[np.uint8]

STYLES = ("small", "normal", "normal", "normal", "spread", "wide", "special", "special", "tiny", "bits")
"""Ways to draw floats; see `floats`."""

_SPECIALS = {
    "fp16": (
        *(0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF),
        *(0x7C00, 0xFC00, 0x7E00, 0x7D55, 0xFE01, 0x7C01, 0xFC01),
    ),
    "bf16": (0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFD5),
    "fp32": (
        *(0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF),
        *(0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFD55555, 0x4F000000, 0xCF000001, 0x477FF000),
    ),
}
"""Zeros, subnormals, smallest and largest numbers, infinities, NaNs, limits of conversions."""


def integers(ch: Chooser, label: str, kind: ElementType, count: int) -> Bytes:
    """Draw integers of a type: full range, few bits, only the two ends, or in all data of a case the two
    greatest ones, whose sums grow longest."""
    rng = ch.rng(label)
    size = -(-count * kind.bits // 8)
    if ch.shared("greatest integers", 0.05):
        if kind.bits == 4:
            return rng.choice(np.array([0x77, 0x76, 0x67, 0x66], np.uint8), size)
        top = (1 << kind.bits - 1) - 1
        return (top - rng.integers(0, 2, count)).astype(f"<i{kind.bits // 8}").view(np.uint8)
    style = ch.integer(f"{label} style", 0, 9)
    if style == 0:
        style = 9
    if kind.bits == 4:
        return (
            rng.choice(np.array([0x77, 0x88, 0x87, 0x78], np.uint8), size) if style == 9 else _raw(rng, size)
        )
    dtype = {8: np.int8, 16: np.int16, 32: np.int32}[kind.bits]
    if style == 9:
        ends = np.array([-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1], dtype)
        return rng.choice(ends, count).view(np.uint8)
    values = _raw(rng, size).view(dtype)
    if kind.bits > 8 or style > 6:
        values = values >> ch.integer(f"{label} shift", 0, kind.bits - 2)
    return np.ascontiguousarray(values).view(np.uint8)


def _raw(rng: np.random.Generator, size: int) -> Bytes:
    return np.frombuffer(rng.bytes(size), np.uint8).copy()


def floats(ch: Chooser, label: str, kind: ElementType, count: int, scale: float = 1.0) -> Bytes:
    """Draw floats.

    Parameters
    ----------
    ch, label : source of the choices.
    kind : fp16, bf16, tf32 or fp32.
    count : number of elements.
    scale : typical magnitude.

    Returns
    -------
    uint8 [count * bits / 8]. Styles: ``small`` numbers with few bits, whose sums are exact and often tie;
    ``normal``; ``powers`` few powers of two among zeros, in all data of a case, whose sums tie with and
    without a remainder far below; ``spread`` exponents over 2^+-12, ``wide`` over most of the type;
    ``special`` normal with a few zeros, subnormals, infinities and NaNs; ``specials`` nothing but these, in
    all data of a case, so that they meet each other; ``tiny`` around the smallest normal number; ``bits`` any
    patterns.
    """
    rng = ch.rng(label)
    style = ch.pick(f"{label} style", STYLES)
    if ch.shared("powers of two", 0.08):
        style = "powers"
    elif ch.shared("specials only", 0.08):
        style = "specials"
    if style == "bits":
        raw = _raw(rng, count * kind.bits // 8)
        return _calm(raw, kind) if ch.chance(f"{label} finite", 0.7) else raw
    if style == "specials":
        patterns = np.array(_SPECIALS["fp32" if kind.bits == 32 else kind.name], np.uint32)
        return rng.choice(patterns, count).astype(np.uint32 if kind.bits == 32 else np.uint16).view(np.uint8)
    if style == "small":
        values = rng.integers(-8, 9, count) * 2.0 ** ch.integer(f"{label} unit", -4, 4, 0)
    elif style == "powers":
        low = {"fp16": -24, "bf16": -40}.get(kind.name, -30)
        values = rng.choice([-1.0, 1.0], count) * 2.0 ** rng.integers(low, 16, count)
        values *= rng.random(count) < rng.choice([0.15, 0.4, 0.9])
    elif style in ("normal", "special"):
        values = rng.normal(0, scale, count)
    elif style == "tiny":
        least = -14 if kind.name == "fp16" else -126
        values = rng.normal(0, 1, count) * 2.0 ** (least + ch.integer(f"{label} above", 0, 12))
    else:
        reach = 12 if style == "spread" else 14 if kind.name == "fp16" else 60
        values = rng.choice([-1.0, 1.0], count) * rng.uniform(1, 2, count)
        values *= 2.0 ** rng.integers(-reach, reach + 1, count)
    raw = narrow(values, kind, rng)
    if style == "special" and count:
        patterns = np.array(_SPECIALS["fp32" if kind.bits == 32 else kind.name], np.uint32)
        use = patterns if ch.chance(f"{label} nan", 0.4) else patterns[:7]
        words = raw.view(np.uint32 if kind.bits == 32 else np.uint16)
        hits = rng.integers(0, count, ch.integer(f"{label} hits", 1, max(1, min(count, 6))))
        words[hits] = rng.choice(use, hits.size).astype(words.dtype)
    return raw


def alike(ch: Chooser, label: str, kind: ElementType, count: int) -> tuple[Bytes, list[int]]:
    """Draw elements with few different values, so that two of them are often equal.

    Parameters
    ----------
    ch, label : source of the choices.
    kind : fp16, bf16, fp32 or a type of integers.
    count : number of elements.

    Returns
    -------
    uint8 [count * bits / 8], and eight words of 32 bits (binary32 of floats) with values from the same few.
    """
    rng = ch.rng(label)
    if kind.is_float:
        signs = np.array([1.0, -1.0])
        few = np.concatenate([signs * 0.0, signs * np.inf, rng.integers(-3, 4, 2)]).astype(np.float32)
        raw, words = narrow(few, kind), few.view(np.uint32)
    else:
        top = 1 << kind.bits - 1
        few = np.array([-top, 1 - top, -1, 0, 1, top - 1], np.int64)
        raw, words = few.astype(f"<i{kind.bits // 8}").view(np.uint8), few.astype(np.int32).view(np.uint32)
    data = raw.reshape(few.size, -1)[rng.integers(0, few.size, count)].reshape(-1)
    return data, [int(word) for word in rng.choice(words, 8)]


def narrow(values: NDArray[Any], kind: ElementType, rng: np.random.Generator | None = None) -> Bytes:
    """Return the bits of real numbers in a float type; the ignored low bits of tf32 are random."""
    with np.errstate(over="ignore"):
        if kind.name == "fp16":
            return values.astype(np.float16).view(np.uint8)
        words = values.astype(np.float32).view(np.uint32)
    if kind.name == "bf16":
        return (words >> 16).astype(np.uint16).view(np.uint8)
    if kind.name == "tf32" and rng is not None:
        words ^= rng.integers(0, 1 << 13, words.size, np.uint32)
    return words.view(np.uint8)


def _calm(raw: Bytes, kind: ElementType) -> Bytes:
    """Clear a bit of the exponent where it encodes infinity or NaN."""
    words: NDArray[Any] = raw.view(np.uint32 if kind.bits == 32 else np.uint16)
    exponent = 0x7F800000 if kind.bits == 32 else 0x7C00 if kind.name == "fp16" else 0x7F80
    words[(words & exponent) == exponent] &= (1 << kind.bits) - 1 - (exponent & -exponent)
    return raw


def elements(ch: Chooser, label: str, kind: ElementType, count: int, scale: float = 1.0) -> Bytes:
    """Draw elements of any type (`integers` or `floats`), padded with zeros to whole atoms."""
    raw = floats(ch, label, kind, count, scale) if kind.is_float else integers(ch, label, kind, count)
    return np.concatenate([raw, np.zeros(-raw.size % 16, np.uint8)])


def float_bits(ch: Chooser, label: str, kind: ElementType, scale: float = 1.0) -> int:
    """Draw one float as a bit pattern."""
    raw = floats(ch, label, kind, 1, scale)
    return int.from_bytes(raw.tobytes(), "little")
