"""Real scale factors as the integers of the DPU (HARDWARE 5.11)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import Clamp, ModelError, Tensor

BS_SHIFT = 14
"""Right shift of the per-channel multiplier; 2^14 is the channel with the largest scale."""

SLOPE_SHIFT = 14
"""Fraction bits of a slope below 2."""

ACCUMULATOR_LIMIT = 2**31 - 1
MAX_SHIFT = 63


def output_scale(factor: float, what: str) -> tuple[int, int]:
    """Return (multiplier, shift) with multiplier / 2^shift near `factor` (HARDWARE 5.11).

    The multiplier is the 14 upper fraction bits of the binary32 factor plus one half step, hence
    odd; a power of two, where that would lose exactness, is kept exact.

    Parameters
    ----------
    factor
        positive real factor.
    what
        name for messages.

    Raises
    ------
    ModelError
        if the factor is beyond the converter's range.
    """
    if not (math.isfinite(factor) and factor > 0):
        raise ModelError(f"{what}: scale factor {factor} is not a positive number")
    narrow = float(np.float32(factor))
    fraction, exponent = math.frexp(narrow) if narrow > 0 else (0.0, 0)
    multiplier, rest = divmod(int(fraction * 2**24), 2**9)
    if rest or multiplier != 2**14:
        multiplier += 1
    shift = 15 - exponent
    if multiplier == 2**15:
        multiplier, shift = 2**14, shift - 1
    if narrow <= 0 or not 0 <= shift <= MAX_SHIFT:
        raise ModelError(f"{what}: scale factor {factor:g} is beyond the output converter")
    return multiplier, shift


def channel_multipliers(scales: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return `round(2^14 * scale / largest scale)` of each channel, shape as `scales`."""
    return np.rint(scales * (2**BS_SHIFT / scales.max())).astype(np.int64)


def saturating_clamp(clamp: Clamp, tensor: Tensor) -> Clamp:
    """Drop the limits that the output's own saturation makes for exactly the same bytes."""
    low, high = clamp.low, clamp.high
    if math.isfinite(low) and low / tensor.scale + tensor.zero_point <= -128:
        low = -math.inf
    if math.isfinite(high) and high / tensor.scale + tensor.zero_point >= 127:
        high = math.inf
    return Clamp(low, high)


def clamp_in_unit(clamp: Clamp, unit: float, tensor: Tensor, what: str) -> tuple[int, int | None] | None:
    """Return (low, high) of a clamp as integers of `unit`, high None when open; None for no clamp.

    An open lower end of a clamp that has an upper one is put where the output saturates anyway.

    Raises
    ------
    ModelError
        if a limit does not fit 32 bits.
    """
    limits = saturating_clamp(clamp, tensor)
    if limits == Clamp():
        return None
    low = limits.low if math.isfinite(limits.low) else (-129.0 - tensor.zero_point) * tensor.scale
    first = round(low / unit)
    last = round(limits.high / unit) if math.isfinite(limits.high) else None
    for value in (first, last):
        if value is not None and abs(value) > ACCUMULATOR_LIMIT:
            raise ModelError(f"{what}: limit {value * unit:g} is beyond 32 bits of the accumulator's unit")
    return first, last


def fixed_slopes(slopes: npt.NDArray[np.float64], what: str) -> tuple[npt.NDArray[np.int64], int]:
    """Slopes as integers, and their fraction bits: as many as leave the largest within 16 signed bits.

    Raises
    ------
    ModelError
        for a slope of 2^15 and more.
    """
    largest = float(np.abs(slopes).max())
    if not largest < 2**15:
        raise ModelError(f"{what}: slope {largest:g} is too large")
    shift = SLOPE_SHIFT if largest < 1.99 else SLOPE_SHIFT - int(np.ceil(np.log2(largest)))
    return np.rint(slopes * 2.0**shift).astype(np.int64).clip(-(2**15), 2**15 - 1), shift


def check_sums(
    weights: npt.NDArray[np.int8], zero_point: int, bias: npt.NDArray[np.int64], what: str
) -> None:
    """Refuse a convolution whose sums can leave the accumulator.

    Raises
    ------
    ModelError
        naming the layer.
    """
    reach = np.abs(weights.astype(np.int64) - zero_point).reshape(weights.shape[0], -1).sum(1)
    if int((reach * 255 + np.abs(bias)).max()) > ACCUMULATOR_LIMIT:
        raise ModelError(f"{what}: sums can pass 32 bits")


def balanced_channels(
    weights: npt.NDArray[np.int8],
    scales: npt.NDArray[np.float64],
    zero_point: int,
    bias: npt.NDArray[np.int64],
    factor: float,
    top: float = 2.0**BS_SHIFT,
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Give channels of a scale too small for the 14-bit multipliers a larger one.

    A channel that quantisation has left with hardly any weights has a scale thousands of times below
    the largest; its multiplier would round to nothing and take the bias along.  Where it costs less,
    such a channel is written in the largest scale: its weights round (mostly to zero), its bias stays.

    Parameters
    ----------
    weights, scales, zero_point, bias
        as in `sw.compiler.graph.Conv`, weights (OC, ...).
    factor
        input scale / output scale: turns sums of weight * scale into steps of the output.
    top
        multiplier of the channel with the largest scale.

    Returns
    -------
    weights, scales and bias, new where something changed.
    """
    largest = float(scales.max())
    flat = weights.reshape(len(scales), -1).astype(np.float64) - zero_point
    exact = scales * (top / largest)
    lost = np.abs(np.rint(exact) - exact) / exact
    most = 255 * np.abs(flat).sum(axis=1) + np.abs(bias)
    error = np.minimum(most * scales * factor, 512) * lost
    fresh = np.rint(flat * (scales / largest)[:, None])
    fresh_error = 255 * factor * np.abs(flat * scales[:, None] - fresh * largest).sum(axis=1)
    move = (error > 0.05) & (fresh_error < error)
    if not move.any():
        return weights, scales, bias
    weights, scales, bias = weights.copy(), scales.copy(), bias.copy()
    weights.reshape(len(scales), -1)[move] = (fresh[move] + zero_point).astype(np.int8)
    bias[move] = np.rint(bias[move] * (scales[move] / largest)).astype(np.int64)
    scales[move] = largest
    return weights, scales, bias
