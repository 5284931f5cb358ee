"""Real scale factors as the integers of the DPU [HW 14.2]."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Clamp, ModelError, Tensor

BS_SHIFT = 14
"""Right shift of the per-channel multiplier; the channel with the largest scale has multiplier 2^14."""

SECOND_SHIFT = 14
"""Right shift of a channel's second multiplier (BN)."""

SLOPE_SHIFT = 14
"""Fraction bits of a slope below 2."""

MULTIPLIER_ERROR = 0.125
"""Largest error, in steps of the output, that the rounding of a channel's multiplier may cause."""

SINGLE_ERROR = 0.5
"""Largest error, in steps of the output, of a channel in a task that has no second multiplier."""

UNIT_STEPS = 0.25
"""Largest unit of the scaled sums in steps of the output; a larger one gets fraction bits."""

SATURATING_STEPS = 256.0
"""Steps of the output that saturate it whatever its zero point is."""

EARLY_BITS = 10
"""Largest number of fraction bits between the two roundings to steps of the output."""

HARMLESS_ERROR = 0.05
"""Error, in steps of the output, up to which a channel's weights may be rounded to another scale."""

ACCUMULATOR_LIMIT = 2**31 - 1
MAX_SHIFT = 63
MULTIPLIER_LIMIT = 2**15 - 1
"""Largest multiplier of a channel (signed 16 bits)."""


def output_scale(factor: float, what: str) -> tuple[int, int]:
    """Return (multiplier, shift) with multiplier / 2^shift near `factor` [HW 14.2].

    The multiplier consists of the 14 upper fraction bits of the binary32 factor plus one half step, so it
    is odd; a power of two is kept exact.

    Parameters
    ----------
    factor
        A positive real factor.
    what
        Name for messages.

    Raises
    ------
    ModelError
        If the factor is outside the converter's range.
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
        raise ModelError(f"{what}: scale factor {factor:g} is outside the range of the output converter")
    return multiplier, shift


def channel_multipliers(scales: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return `round(2^14 * scale / largest scale)` of each channel, in the shape of `scales`."""
    return np.rint(scales * (2**BS_SHIFT / scales.max())).astype(np.int64)


def saturating_clamp(clamp: Clamp, tensor: Tensor) -> Clamp:
    """Remove limits that have the same effect as the saturation of the output."""
    low, high = clamp.low, clamp.high
    if math.isfinite(low) and low / tensor.scale + tensor.zero_point <= -128:
        low = -math.inf
    if math.isfinite(high) and high / tensor.scale + tensor.zero_point >= 127:
        high = math.inf
    return Clamp(low, high)


def clamp_in_unit(clamp: Clamp, unit: float, tensor: Tensor, what: str) -> tuple[int, int | None] | None:
    """Return (low, high) of a clamp as integers in units of `unit`; high is None if there is no upper limit.

    Without any limit the result is None.  If only the upper limit exists, the lower one is set to a value
    at which the output saturates anyway.

    Raises
    ------
    ModelError
        If a limit does not fit 32 bits.
    """
    limits = saturating_clamp(clamp, tensor)
    if limits == Clamp():
        return None
    low = limits.low if math.isfinite(limits.low) else (-129.0 - tensor.zero_point) * tensor.scale
    first = round(low / unit)
    last = round(limits.high / unit) if math.isfinite(limits.high) else None
    for value in (first, last):
        if value is not None and abs(value) > ACCUMULATOR_LIMIT:
            raise ModelError(f"{what}: limit {value * unit:g} does not fit 32 bits in the accumulator's unit")
    return first, last


def fixed_slopes(slopes: npt.NDArray[np.float64], what: str) -> tuple[npt.NDArray[np.int64], int]:
    """Return slopes as integers and their number of fraction bits, so that the largest fits 16 signed bits.

    Raises
    ------
    ModelError
        If a slope is 2^15 or more.
    """
    largest = float(np.abs(slopes).max())
    if not largest < 2**15:
        raise ModelError(f"{what}: slope {largest:g} is too large")
    shift = SLOPE_SHIFT if largest < 1.99 else SLOPE_SHIFT - int(np.ceil(np.log2(largest)))
    return np.rint(slopes * 2.0**shift).astype(np.int64).clip(-(2**15), 2**15 - 1), shift


def check_sums(
    weights: npt.NDArray[np.int8], zero_point: int, bias: npt.NDArray[np.int64], what: str
) -> None:
    """Refuse a convolution whose sums can overflow the accumulator.

    Raises
    ------
    ModelError
        If sums can overflow; the message names the layer.
    """
    reach = np.abs(weights.astype(np.int64) - zero_point).reshape(weights.shape[0], -1).sum(1)
    if int((reach * 255 + np.abs(bias)).max()) > ACCUMULATOR_LIMIT:
        raise ModelError(f"{what}: sums can exceed 32 bits")


@dataclass(frozen=True)
class Scaled:
    """A convolution's weights and biases with the integers that scale its sums.

    The scaled sum is `rne(acc * multipliers / 2^shift)`, with `seconds` followed by
    `rne(that * seconds / 2^SECOND_SHIFT)`; it counts `unit` * input scale.

    Attributes
    ----------
    weights : int8 (OC, ...).
    bias : int64 (OC,).
    multipliers, seconds : int64 (OC,); `seconds` is None if one multiplier is sufficient.
    shift : right shift of the product with `multipliers`.
    unit : real value of one step of the scaled sums / input scale.
    errors : float64 (OC,), estimated error of each channel in steps of the output.
    """

    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int64]
    multipliers: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.int64] | None
    shift: int
    unit: float
    errors: npt.NDArray[np.float64]


@dataclass
class _Channels:
    """Weights, biases and scales of a convolution while they are brought to scales that the DPU can do.

    `top` is the multiplier of the largest scale; `factor` is input scale / output scale.
    """

    weights: npt.NDArray[np.int8]
    scales: npt.NDArray[np.float64]
    zero_point: int
    bias: npt.NDArray[np.int64]
    factor: float
    top: float = 2.0**BS_SHIFT

    def __post_init__(self) -> None:
        self.scales, self.bias = self.scales.copy(), self.bias.copy()  # `move` copies the weights

    @property
    def flat(self) -> npt.NDArray[np.int16]:
        """Weights less their zero point, (OC, elements)."""
        return self.weights.reshape(len(self.scales), -1).astype(np.int16) - np.int16(self.zero_point)

    @property
    def most(self) -> npt.NDArray[np.float64]:
        """Upper bound of the magnitude of each channel's sums."""
        return 255.0 * np.abs(self.flat).sum(axis=1) + np.abs(self.bias)

    @property
    def exact(self) -> npt.NDArray[np.float64]:
        """Multipliers before they are rounded."""
        return self.scales * (self.top / self.scales.max())

    def errors(self, rounded: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Largest error in steps of the output if the multipliers are `rounded` instead of `exact`."""
        exact = self.exact
        return (
            np.minimum(self.most * self.scales * self.factor, SATURATING_STEPS)
            * np.abs(rounded - exact)
            / exact
        )

    def move(self, chosen: npt.NDArray[np.bool_], target: npt.NDArray[np.float64]) -> None:
        """Round weights and biases of the `chosen` channels to multiples of the scales `target`."""
        ratio = self.scales / target
        fresh = np.rint(self.flat[chosen] * ratio[chosen, None]) + self.zero_point
        self.weights = self.weights.copy()
        self.weights.reshape(len(self.scales), -1)[chosen] = np.clip(fresh, -128, 127).astype(np.int8)
        bias = np.clip(self.bias * ratio, -(2.0**30), 2.0**30)
        self.bias[chosen] = np.rint(bias[chosen]).astype(np.int64)
        self.scales[chosen] = target[chosen]

    def settle_constants(self) -> None:
        """Keep channels without weights, whose results are constant, from determining the largest scale.

        A quantiser gives such a channel any scale, often 1, thousands of times above the others.
        """
        constant = ~(self.weights != self.zero_point).reshape(len(self.scales), -1).any(axis=1)
        live = self.scales[~constant]
        largest = float(live.max()) if live.size else float(self.scales.min())
        high = constant & (self.scales > largest)
        if high.any():
            self.move(high, np.full_like(self.scales, largest))

    def settle_saturated(self) -> None:
        """Reduce scales with which every sum other than 0 saturates the output."""
        self.scales = np.minimum(self.scales, SATURATING_STEPS / self.factor)

    def settle_small(self) -> None:
        """Move channels with almost no weights to the largest scale where that does no harm.

        The weights of such a channel become 0, its bias remains.
        """
        largest = np.full_like(self.scales, self.scales.max())
        error = self.errors(np.rint(self.exact))
        if not (error > HARMLESS_ERROR).any():
            return
        fresh = np.rint(self.flat * (self.scales / largest)[:, None])
        apart = np.abs(self.flat * self.scales[:, None] - fresh * largest[:, None]).sum(axis=1)
        chosen = (error > HARMLESS_ERROR) & (255 * self.factor * apart < np.minimum(error, HARMLESS_ERROR))
        if chosen.any():
            self.move(chosen, largest)

    def settle_rounded(self) -> npt.NDArray[np.float64]:
        """Round the weights of channels with small multipliers to scales that these can represent.

        Returns
        -------
        The estimated error of each channel in steps of the output: three standard deviations.
        """
        errors = self.errors(np.rint(self.exact))
        largest = float(self.scales.max())
        target = np.maximum(np.ceil(self.exact), 1) * (largest / self.top)
        ratio = (self.scales / target)[:, None]
        rest = self.flat * ratio - np.rint(self.flat * ratio)
        fresh = 3 * 74 * self.factor * target * np.sqrt((rest**2).sum(axis=1))
        chosen = (errors > MULTIPLIER_ERROR) & (fresh < errors)
        if chosen.any():
            self.move(chosen, target)
        return np.where(chosen, fresh, errors)


def scaled_channels(
    weights: npt.NDArray[np.int8],
    scales: npt.NDArray[np.float64],
    zero_point: int,
    bias: npt.NDArray[np.int64],
    factor: float,
    *,
    second: bool = True,
    codes: bool = False,
) -> Scaled:
    """Find the integers that scale each channel's sums with a small error.

    One multiplier for each channel, relative to the largest scale, is sufficient if the scales are of
    similar size.  A channel with a scale hundreds of times below the largest one has a multiplier of few
    bits, whose rounding changes its results.  Then every channel gets a second multiplier, a power of two,
    so that the first one has its 15 bits.  Where the task has no second stage, the weights of such a
    channel are rounded to the scale that its multiplier can represent.

    Parameters
    ----------
    weights, scales, zero_point, bias
        As in `rkcosim.compiler.graph.Conv`, weights (OC, ...).
    factor
        Input scale / output scale; converts sums of weight * scale to steps of the output.
    second
        Whether a second multiplier may be used.
    codes
        Whether the scaled sums are steps of the output.  Otherwise they are multiples of the largest scale,
        with fraction bits if that is more than a quarter of an output step.

    Raises
    ------
    ModelError
        If the scales of steps of the output are outside the range of the multipliers.
    """
    channels = _Channels(weights, scales, zero_point, bias, factor)
    channels.settle_constants()
    if not codes:
        channels.settle_saturated()
    shift, bits = BS_SHIFT, 0
    if codes:
        largest = float(channels.scales.max()) * factor
        if not MULTIPLIER_LIMIT / 2.0**MAX_SHIFT < largest <= MULTIPLIER_LIMIT:
            raise ModelError(f"the scale factor {largest:g} is outside the range of the channel multipliers")
        shift = math.floor(math.log2(MULTIPLIER_LIMIT / largest))
        channels.top = largest * 2.0**shift
    channels.settle_small()
    unit = float(channels.scales.max()) * 2.0**shift / channels.top
    if not codes:
        bits = _fraction_bits(channels, unit * factor)
    multipliers, seconds = np.rint(channels.exact), None
    errors = channels.errors(multipliers)
    if float(errors.max()) > MULTIPLIER_ERROR and second:
        multipliers, seconds, shift, errors = _best_pair(channels, shift, bits, codes)
    elif float(errors.max()) > MULTIPLIER_ERROR:
        errors = channels.settle_rounded()
        multipliers = np.rint(channels.exact)
    return Scaled(
        channels.weights,
        channels.bias,
        multipliers.astype(np.int64),
        None if seconds is None else seconds.astype(np.int64),
        shift - bits,
        unit / 2.0**bits,
        errors,
    )


def _fraction_bits(channels: _Channels, step: float) -> int:
    """Number of fraction bits that the scaled sums need and can have without leaving 32 bits."""
    wanted = math.ceil(math.log2(step / UNIT_STEPS)) if step > UNIT_STEPS else 0
    ratio = channels.scales / channels.scales.max()
    room = math.floor(math.log2(ACCUMULATOR_LIMIT / max(float((channels.most * ratio).max()), 1.0)))
    return max(0, min(wanted, room, BS_SHIFT))


def _best_pair(
    channels: _Channels, shift: int, bits: int, codes: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], int, npt.NDArray[np.float64]]:
    """Return two multipliers of each channel, `shift` (without `bits`), and the errors.

    Steps of the output that are rounded twice get fraction bits at the first rounding, as many as leave the
    smallest multipliers exact.
    """
    ratios = channels.exact * 2.0 ** (bits - shift)
    best = None
    for early in range(min(EARLY_BITS, shift) if codes else 0, -1, -1):
        pair = _pair(ratios, channels.most, shift - bits - early)
        errors = channels.errors(pair[0] * pair[1] * 2.0 ** (early - SECOND_SHIFT))
        if best is None or float(errors.max()) < float(best[3].max()):
            best = (*pair, shift - early, errors)
        if float(best[3].max()) <= MULTIPLIER_ERROR:
            break
    assert best is not None
    return best


def _pair(
    ratios: npt.NDArray[np.float64], most: npt.NDArray[np.float64], shift: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return two multipliers of each channel whose product is near `ratios` * 2^(shift + SECOND_SHIFT).

    The second one is the smallest power of two with which the first one fits 15 bits and the first product
    fits 32 bits for sums up to `most`.
    """
    room = np.minimum(2.0**15 - 1, ACCUMULATOR_LIMIT / np.maximum(most, 1.0) * 2.0**shift)
    powers = np.ceil(np.log2(np.maximum(ratios * 2.0 ** (shift + SECOND_SHIFT) / room, 1.0)))
    seconds = 2.0 ** np.clip(powers, 0, SECOND_SHIFT)
    firsts = np.minimum(np.rint(ratios * 2.0 ** (shift + SECOND_SHIFT) / seconds), 2.0**15 - 1)
    return firsts, seconds
