"""Scales and zero points of a matrix product as integers of the DPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler.matmul import MatmulKind, Requant
from sw.compiler.requant import BS_SHIFT, channel_multipliers, output_scale


@dataclass(frozen=True)
class Quant:
    """Scales and zero points of a matrix: one each, or one a column (B)."""

    scales: npt.NDArray[np.float64]
    zeros: npt.NDArray[np.int64]


_PLAIN = Quant(np.ones(1), np.zeros(1, np.int64))


def requant_of(
    kind: MatmulKind, n: int, quant: Mapping[str, Quant], matrix: Callable[[], npt.NDArray[Any]]
) -> tuple[Requant | None, npt.NDArray[np.float64] | None]:
    """What the DPU does with the sums, and the factor of each column that is left to the host.

    int8: `C = sum (a - za)(b - zb) * sa * sb / sc + zc`, rounded twice (docs/rknn_api.md).  int32: the
    sum, with B per channel brought to the largest scale of its columns.  float32: the sum, times
    `sa * sb` on the host.

    Parameters
    ----------
    kind, n
        the product and its columns.
    quant
        parameters of "A", "B" and "C"; what is missing counts as scale 1, zero point 0.
    matrix
        gives B (K x N); called when A has a zero point.

    Returns
    -------
    (integers or None, factors or None): None where nothing is to be done.

    Raises
    ------
    ValueError
        for a factor or bias that does not fit the DPU.
    """
    a, b, c = (quant.get(name, _PLAIN) for name in "ABC")
    zeros = np.broadcast_to(b.zeros, (n,)).astype(np.int64)
    scales = np.broadcast_to(b.scales, (n,)).astype(np.float64)
    bias = np.zeros(n, np.int64)
    if a.zeros[0]:
        numbers = matrix().astype(np.int64)
        bias = -a.zeros[0] * (numbers.sum(axis=0) - numbers.shape[0] * zeros)
    uneven = b.scales.size > 1
    multipliers = channel_multipliers(scales) if uneven else np.full(n, 1 << BS_SHIFT, np.int64)
    shifted = bool(a.zeros[0]) or bool(zeros.any())
    if kind.out == 0:
        scale, shift = output_scale(float(a.scales[0] * scales.max() / c.scales[0]), "C")
        return Requant(bias, zeros, multipliers, scale, shift, int(c.zeros[0])), None
    if kind.out == 4:
        return (Requant(bias, zeros, multipliers) if uneven or shifted else None), None
    factor = a.scales[0] * scales
    plain = np.full(n, 1 << BS_SHIFT, np.int64)
    return (Requant(bias, zeros, plain) if shifted else None), (None if (factor == 1).all() else factor)
