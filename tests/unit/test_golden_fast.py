"""Fast paths of the golden models compared with the plain computation, at their limits of exactness."""

from __future__ import annotations

import importlib
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from rkcosim.golden import graph as g
from rkcosim.golden.graph import floats
from rkcosim.golden.task import core
from rkcosim.golden.task.arith import shift_even
from rkcosim.golden.task.errors import MemoryFault
from rkcosim.golden.task.memory import Memory, atom_ranges
from rkcosim.spec.types import ATOM
from tests import seeds

integers = importlib.import_module("rkcosim.golden.graph.run")  # the package has a function of that name

EDGES = [0, 1, 2, 3, 5, 2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**47, 2**53 + 1, 2**61, 2**62 - 1]


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 7, 24, 31, 47, 61, 62, 63])
def test_shifts_round_ties_to_even(shift: int):
    half = 1 << shift >> 1
    numbers = {
        sign * (edge + d * half + e)
        for edge in EDGES
        for d in (0, 1, 3)
        for e in (-1, 0, 1)
        for sign in (1, -1)
    }
    values = np.array(sorted(n for n in numbers if abs(n) < 2**62), np.int64)
    exact = [round(Fraction(int(n), 1 << shift)) for n in values]
    assert shift_even(values, shift).tolist() == exact
    if shift < 62:
        assert integers.divide(values, shift).tolist() == exact
        away = [
            int(abs(Fraction(int(n), 1 << shift)) + Fraction(1, 2)) * (1 if n >= 0 else -1) for n in values
        ]
        assert integers.divide(values, shift, half_away=True).tolist() == away


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("lanes", [16, 341, 342, 1024, 1040])
@pytest.mark.parametrize("extreme", [True, False])
def test_convolutions_add_taps_in_exact_products(bits: int, lanes: int, extreme: bool):
    """Three taps of 341 products of -128 by -128 are below 2^24, three of 342 are not."""
    seed = seeds.seed(__name__)
    print("seed", seed)
    rng, low = np.random.default_rng(seed), -(1 << bits - 1)
    draw = (lambda size: rng.choice([low, low + 1, -low - 1], size)) if extreme else rng_ints(rng, low)
    taps, pixels, count = 3, 7, 5
    values, kernels = draw((11, lanes)), draw((1, taps, lanes, count))
    places = rng.integers(0, 11, (taps, pixels))
    shape = SimpleNamespace(taps=taps, pixels=pixels)
    acc, total = core._direct(values.astype(np.int32), kernels.astype(np.int32), places, shape)
    operands = values[places]  # [taps, pixels, lanes]
    assert np.array_equal(acc, np.einsum("tpl,tlk->pk", operands, kernels[0]))
    assert np.array_equal(total[:, 0], operands.sum(axis=(0, 2)))


def rng_ints(rng: np.random.Generator, low: int):
    return lambda size: rng.integers(low, -low, size)


def test_the_float_of_a_sum():
    assert integers._exact_type(1024) is np.float32
    assert integers._exact_type(1025) is np.float64


@pytest.mark.parametrize("channels", [1023, 1024, 1025])
@pytest.mark.parametrize("fill", [-128, 127, None])
def test_sums_of_int8_at_the_border_of_float32(channels: int, fill: int | None):
    """1024 products of -128 by -128 are 2^24, the limit up to which float32 has every whole number."""
    rng = np.random.default_rng(channels)
    x = np.full((channels, 1, 3), fill or 0, np.int8)
    weights = np.full((3, channels, 1, 1), fill or 0, np.int8)
    if fill is None:
        x = rng.choice(np.array([-128, -127, 127], np.int8), x.shape)
        weights = rng.choice(np.array([-128, -127, 127], np.int8), weights.shape)
    node = g.QConv(x="x", y="y", weights=weights, size=(1, 3), output=g.Output(bits=32))
    exact = np.einsum("kc,cp->kp", weights[:, :, 0, 0].astype(np.int64), x[:, 0].astype(np.int64))
    assert np.array_equal(g.evaluate(node, {"x": x})[:, 0], exact)


@pytest.mark.parametrize("block", [1, 200, 1 << 22])
def test_blocks_of_rows(block: int, monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(3)
    x = rng.integers(-128, 128, (5, 11, 9)).astype(np.int8)
    weights = rng.integers(-128, 128, (4, 5, 3, 2)).astype(np.int8)
    shape = dict(size=(7, 6), stride=(2, 2), dilation=(1, 2), pad=(3, 1))
    node = g.QConv(
        x="x", y="y", weights=weights, pad_value=-7, window_mul=3, output=g.Output(bits=32), **shape
    )
    whole = g.evaluate(node, {"x": x})
    monkeypatch.setattr(integers, "BLOCK", block)
    assert np.array_equal(g.evaluate(node, {"x": x}), whole)
    half, kernel = (rng.normal(size=a.shape).astype(np.float16) for a in (x, weights))
    conv = g.FConv(x="x", y="y", weights=kernel, bias=np.ones(4, np.float32), **shape)
    whole = g.evaluate(conv, {"x": half})
    monkeypatch.setattr(floats, "BLOCK", block)
    assert np.array_equal(g.evaluate(conv, {"x": half}), whole)
    deep = replace(
        conv, weights=kernel[:1].transpose(1, 0, 2, 3), bias=np.ones(5, np.float32), depthwise=True
    )
    monkeypatch.setattr(floats, "BLOCK", 1 << 21)
    whole = g.evaluate(deep, {"x": half})
    monkeypatch.setattr(floats, "BLOCK", block)
    assert np.array_equal(g.evaluate(deep, {"x": half}), whole)


def halves(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> np.ndarray:
    """Finite halves: ordinary, of the whole range, or the extremes of both ends."""
    if kind == "normal":
        return rng.normal(size=shape).astype(np.float16)
    if kind == "extreme":
        ends = np.array([65504, -65504, 2**-24, -(2**-24), 1, 0, -0.0, 0.0625, 0.03125, 1 / 3], np.float16)
        return rng.choice(ends, shape)
    bits = rng.integers(0, 1 << 16, shape).astype(np.uint16)
    found = bits.view(np.float16)
    return np.where(np.isfinite(found), found, np.float16(1.5))


@pytest.mark.parametrize(
    "kinds", [("normal", "normal"), ("any", "any"), ("extreme", "any"), ("extreme", "extreme")]
)
@pytest.mark.parametrize("lanes", [1, 3, 32])
def test_tile_sums_of_halves(kinds: tuple[str, str], lanes: int):
    rng = np.random.default_rng(lanes)
    x = halves(rng, (lanes, 40), kinds[0]).astype(np.float64)
    w = halves(rng, (6, lanes), kinds[1]).astype(np.float64)
    fast, plain = floats.tile_sums(x, w), floats.tile_sums_plainly(x, w)
    assert np.array_equal(fast, plain)
    for k, pixel in ((0, 0), (5, 39), (2, 17)):
        total = sum(
            (Fraction(float(a)) * Fraction(float(b)) for a, b in zip(w[k], x[:, pixel], strict=True)),
            Fraction(),
        )
        down = np.float32(float(total))  # the result is this value or one of its neighbours
        near = [np.nextafter(down, np.float32(s), dtype=np.float32) for s in (-np.inf, np.inf)]
        best = min(abs(Fraction(float(n)) - total) for n in (down, *near))
        assert abs(Fraction(float(fast[k, pixel])) - total) == best


def test_nothing_but_zeros():
    assert not floats.tile_sums(np.zeros((4, 3)), np.ones((2, 4))).any()


def test_atoms_of_several_ranges():
    memory = Memory()
    low, high = memory.map(0x1000, 64), memory.map(0x1040, 64)
    low[:], high[:] = np.arange(64), np.arange(64, 128)
    inside = np.array([0x1000, 0x1030, 0x1010])
    across = np.array([0x1030, 0x1040, 0x1070, 0x1000])
    for addresses in (inside, across, across[:1], across[:0]):
        first = [int(a) - 0x1000 for a in addresses]
        assert memory.gather(addresses)[:, 0].tolist() == first
        memory.scatter(addresses, memory.gather(addresses))
    assert low.tolist() == list(range(64)) and high.tolist() == list(range(64, 128))
    for unaligned in ([0x1078], [0x103F, 0x1048]):  # the low four bits are not looked at
        first = [int(a) // 16 * 16 - 0x1000 for a in unaligned]
        assert memory.gather(np.array(unaligned))[:, 0].tolist() == first
    for wrong in ([0x1000, 0x1080], [0xFF0, 0x1000], [0x1088]):
        with pytest.raises(MemoryFault):
            memory.gather(np.array(wrong))
    memory.unmap(0x1000)
    with pytest.raises(MemoryFault) as caught:
        memory.gather(np.array([0x1040, 0x1030, 0x1050]))
    assert caught.value.address == 0x1030


@pytest.mark.parametrize("order", ["up", "down", "mixed", "twice"])
def test_ranges_of_atoms(order: str):
    atoms = {
        "up": [0, 1, 2, 5, 6, 9],
        "down": [9, 6, 5, 2, 1, 0],
        "mixed": [5, 0, 6, 2, 9, 1],
        "twice": [0, 1, 1, 2, 5, 6, 5, 9],
    }[order]
    assert atom_ranges(np.array(atoms) * ATOM) == [(0, 48), (80, 32), (144, 16)]
