"""Softmax of the host's kernels, against decimal numbers of 40 digits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rkcosim.hostops.softmax import log_softmax, softmax


def exact(row: list[float], beta: float) -> tuple[list[float], list[float]]:
    """Return softmax and its logarithm by their definitions."""
    with localcontext() as context:
        context.prec, context.Emin = 40, -(10**6)
        powers = [(Decimal(one) * Decimal(beta)).exp() for one in row]
        shares = [power / sum(powers) for power in powers]
        return [float(share) for share in shares], [float(share.ln()) for share in shares]


@pytest.mark.parametrize(("dtype", "error"), [(np.float64, 1e-13), (np.float32, 2e-6)])
@pytest.mark.parametrize("beta", [1.0, 0.25, 3.0])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_is_its_definition(dtype: type, error: float, beta: float, axis: int):
    x = (np.random.default_rng(axis + 9).normal(size=(2, 3, 4)) * 20).astype(dtype)
    x[0, 1] += 400  # powers beyond float64
    found, logarithms = softmax(x, axis, beta), log_softmax(x, axis, beta)
    assert found.dtype == logarithms.dtype == dtype
    rows = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis]).astype(np.float64)
    wanted = [exact(row.tolist(), beta) for row in rows]
    for values, place in ((found, 0), (logarithms, 1)):
        made = np.moveaxis(values, axis, -1).reshape(rows.shape)
        right = np.array([one[place] for one in wanted])
        np.testing.assert_allclose(made, right, 40 * error, np.finfo(dtype).tiny if not place else error)


@pytest.mark.parametrize("function", [softmax, log_softmax])
def test_empty_arrays_stay_empty(function: Callable[..., npt.NDArray[Any]]):
    assert function(np.zeros((2, 0, 3)), -1).shape == (2, 0, 3)


def test_a_logarithm_is_finite_where_softmax_is_zero():
    x = np.array([0.0, -2000.0])
    assert softmax(x, 0).tolist() == [1.0, 0.0]
    assert log_softmax(x, 0).tolist() == [0.0, -2000.0]
