"""Rounding of the host's kernels: exact fractions of Python are the judge."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rkcosim.hostops.rounding import Halves, nearest, shifted


def exact(value: Fraction, halves: Halves) -> int:
    """Return a fraction rounded by the definition: `round` of Python rounds halves to even."""
    if halves is Halves.EVEN:
        return round(value)
    whole = abs(value) + Fraction(1, 2)
    return (-1 if value < 0 else 1) * (whole.numerator // whole.denominator)


@pytest.mark.parametrize("halves", Halves)
@given(values=st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1), shift=st.integers(0, 61))
def test_shifts_are_exact_quotients(halves: Halves, values: list[int], shift: int):
    middle = [(value >> shift << shift) + (1 << shift >> 1) for value in values if abs(value) < 2**61]
    all_values = values + middle
    wanted = [exact(Fraction(value, 2**shift), halves) for value in all_values]
    assert shifted(np.array(all_values), shift, halves).tolist() == wanted


@pytest.mark.parametrize("shift", [-1, 63])
def test_other_shifts_are_errors(shift: int):
    with pytest.raises(ValueError, match=f"a shift of {shift} bits"):
        shifted(np.zeros(1), shift, Halves.EVEN)


@pytest.mark.parametrize(("halves", "rule"), [(Halves.EVEN, ROUND_HALF_EVEN), (Halves.AWAY, ROUND_HALF_UP)])
@given(quarters=st.lists(st.integers(-(2**40), 2**40), min_size=1))
def test_reals_are_rounded_as_decimals(halves: Halves, rule: str, quarters: list[int]):
    found = nearest(np.array(quarters) / 4, halves)
    assert found.tolist() == [int((Decimal(one) / 4).to_integral_value(rule)) for one in quarters]


def test_reals_that_are_not_finite_are_kept():
    for halves in Halves:
        found = nearest([np.inf, -np.inf, np.nan], halves)
        assert found[0] == np.inf and found[1] == -np.inf and np.isnan(found[2])
