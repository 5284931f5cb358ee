"""Tile sums and integer sums of the golden model against Python integers and exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from rkcosim.golden.task.arith import decode, shift_away, shift_by_sign, shift_even, shift_up, sign_extend
from rkcosim.golden.task.core_float import Operands, tile_sums
from rkcosim.spec.types import BF16, FP16, INT4, TF32, ElementType
from tests import seeds
from tests.twins.exact_sums import exact_sum, number, round_to_binary32, special_sum, window_rule

GROUPS = 2400
"""Random product sums for each type and style."""


def draw(rng: np.random.Generator, kind: ElementType, style: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random elements of all bit patterns, int64."""
    width, fraction = (5, 10) if kind is FP16 else (8, kind.mantissa - 1)
    top = (1 << width) - 1
    bits = rng.integers(0, 1 << (1 + width + fraction), shape)
    if style == "any":  # all patterns but infinities and NaNs
        bits &= ~np.where((bits >> fraction & top) == top, 1 << fraction, 0)
    elif style in ("near", "cancel"):
        middle = top // 2 if kind is FP16 or style == "near" else int(rng.integers(64, 190))
        exponent = middle + rng.integers(-3, 4, shape)
        bits = bits & ~(top << fraction) | exponent << fraction
        if style == "cancel":
            half = shape[-1] // 2
            bits[..., half:] = bits[..., :half] ^ (1 << (width + fraction))
            bits[..., -1] ^= rng.integers(0, 8, shape[:-1])
    elif style == "tiny":
        bits &= ~(top << fraction) | rng.integers(0, 3, shape) << fraction
    elif style == "sparse":
        bits &= ~(top - top // 2 << fraction)
        bits[rng.random(shape) < 0.8] = 0
    elif style == "large":
        bits = bits & ~(top << fraction) | (top - 1 - rng.integers(0, 3, shape)) << fraction
    return bits


def widen(kind: ElementType, bits: np.ndarray) -> Operands:
    if kind is TF32:
        noise = np.arange(bits.size).reshape(bits.shape) * 977 % 8192  # the low bits do not count
        raw = (bits << 13 | noise).astype("<u4").view(np.uint8)
    else:
        raw = bits.astype("<u2").view(np.uint8)
    return Operands.of(decode(kind, raw))


STYLES = ("any", "near", "cancel", "tiny", "sparse", "large", "special")


def sums_of(kind: ElementType, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Tile sums of rows x [tiles, pixels, lanes] and w [tiles, kernels, lanes]."""
    weights = widen(kind, w)
    turned = Operands(weights.bits.swapaxes(1, 2), weights.value.swapaxes(1, 2), weights.finite)
    return tile_sums(kind, widen(kind, x), turned)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", [FP16, BF16, TF32], ids=lambda kind: kind.name)
def test_tile_sums_follow_the_rule(kind: ElementType, style: str) -> None:
    seed = seeds.seed(f"{__name__} {kind.name} {style}")
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    lanes = kind.channels
    x, w = draw(rng, kind, style, (5, 16, lanes)), draw(rng, kind, style, (5, GROUPS // 80, lanes))
    if style == "special":
        w = draw(rng, kind, "any", w.shape)
        width = 5 if kind is FP16 else 8
        top = (1 << width) - 1 << (10 if width == 5 else kind.mantissa - 1)
        x = draw(rng, kind, "near", x.shape)
        for values in (x, w):
            hit = rng.random(values.shape) < 0.02
            values[hit] = rng.choice(
                [top, top, top | 1, 0, top | 1 << (width + kind.mantissa - 1)], hit.sum()
            )
    if style in ("tiny", "large") and kind is not FP16:  # products about the ends of binary32
        w = draw(rng, kind, "near", w.shape)
    if style == "cancel":  # the same factors, so that products cancel but for the last ones
        w[..., lanes // 2 :] = w[..., : lanes // 2]
    got = sums_of(kind, x, w)
    seen = set()
    for tile in range(x.shape[0]):
        xs = [[number(kind, int(b)) for b in row] for row in x[tile]]
        ws = [[number(kind, int(b)) for b in row] for row in w[tile]]
        for pixel in range(x.shape[1]):
            for kernel in range(w.shape[1]):
                want = special_sum(xs[pixel], ws[kernel])
                if want is None and kind is FP16:
                    want = exact_sum(xs[pixel], ws[kernel])
                elif want is None:
                    want = window_rule(kind, x[tile, pixel].tolist(), w[tile, kernel].tolist())
                result = float(got[tile, pixel, kernel])
                place = (seed, tile, pixel, kernel)
                assert result == want or (math.isnan(want) and math.isnan(result)), place
                seen.add(want)
    assert len(seen) > (3 if style == "special" else 9)  # of "any" bf16 and tf32 most are infinite


@pytest.mark.parametrize("kind", [BF16, TF32], ids=lambda kind: kind.name)
def test_window_drops_what_lies_far_below(kind: ElementType) -> None:
    one = 127 << (kind.mantissa - 1)
    small = 127 - 60 << (kind.mantissa - 1)
    x = np.zeros((1, 1, kind.channels), np.int64)
    w = np.full((1, 1, kind.channels), one)
    x[..., 0], x[..., 1], x[..., 2] = one, small, one | 1 << (7 + kind.mantissa)
    # 1 + 2^-60 - 1: the small one is below the window and stays as the sticky bit only.
    product = kind.mantissa - 1
    want = 2.0 ** (-35 - 2 * product)
    assert float(sums_of(kind, x, w)[0, 0, 0]) == want
    assert window_rule(kind, x[0, 0].tolist(), w[0, 0].tolist()) == want


def test_reference_rounds_as_numpy_does() -> None:
    rng = np.random.default_rng(1)
    values = np.concatenate((rng.normal(0, 1, 500) * 2.0 ** rng.integers(-150, 128, 500), [2.0**-149 * 1.5]))
    with np.errstate(all="ignore"):
        assert [round_to_binary32(Fraction(v)) for v in values] == values.astype(np.float32).tolist()


def test_shifts_match_exact_fractions() -> None:
    values = np.array([*range(-40, 41), 2**40 + 4, -(2**40) - 4, 2**61, -(2**61)], np.int64)
    for shift in (0, 1, 2, 3, 17, 40, 62, 63):
        exact = [Fraction(int(v), 1 << shift) for v in values]
        assert shift_even(values, shift).tolist() == [round(f) for f in exact]
        up = [(f + Fraction(1, 2)).__floor__() if shift else int(f) for f in exact]
        assert shift_up(values, shift).tolist() == up
        away = [int(abs(f) + Fraction(1, 2)) * (1 if f >= 0 else -1) for f in exact]
        assert shift_away(values, shift).tolist() == away
    assert shift_by_sign(np.array([12, -12]), 3, 2).tolist() == [2, -3]


def test_wrapping_and_nibbles() -> None:
    values = np.array([(1 << 47) - 1, 1 << 47, -(1 << 47), -(1 << 47) - 1, 3 << 48, 5], np.int64)
    assert sign_extend(values, 48).tolist() == [
        *((1 << 47) - 1, -(1 << 47), -(1 << 47)),
        *((1 << 47) - 1, 0, 5),
    ]
    assert decode(INT4, np.array([0x8F, 0x70], np.uint8)).tolist() == [-1, -8, 0, 7]
