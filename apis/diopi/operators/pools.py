"""Pools and the normalisation of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.npu import EmittedNode, Network
from rkcosim.apis.diopi.operators.registry import OperatorCall, operator
from rkcosim.apis.diopi.operators.types import LARGEST, TOO_FINE, fits_half, wide
from rkcosim.apis.diopi.tensor import diopiTensor
from rkcosim.apis.diopi.values import DiopiError, diopiSize
from rkcosim.hostops import resize
from rkcosim.hostops.geometry import Sliding
from rkcosim.hostops.pooling import adaptive_largest, adaptive_means, largest_with_places, means, sums
from rkcosim.hostops.resize import Coordinates

Array = npt.NDArray[Any]
Ints = Sequence[int]


def _check_pool(x: Array, axes: int, *sizes: diopiSize) -> None:
    """Raise DiopiError for a window that does not fit."""
    if x.ndim not in (axes + 1, axes + 2):
        raise DiopiError(f"input {x.shape} of a pool over {axes} axes")
    for place, size in enumerate(sizes):
        if size.len not in (0, axes) or min(size.data, default=1) < (place != 2):
            raise DiopiError(f"{size.data} is not {axes} numbers of a window")
    kernel, padding = sizes[0].data, sizes[2].data
    steps = sizes[3].data if len(sizes) > 3 and sizes[3].len else [1] * axes
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, steps, strict=True)]
    if any(2 * pad > span for pad, span in zip(padding, spans, strict=False)):
        raise DiopiError(f"padding {padding} is more than half of the window {kernel}")


def _pool_node(kind: str, kernel: list[int], strides: list[int], pads: list[int], **more: Any) -> EmittedNode:
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, **more}
    return EmittedNode(kind, ("x",), "y", attributes)


def _network(
    out: diopiTensor, x: Array, node: EmittedNode, constants: Mapping[str, Array] | None = None
) -> Network:
    """Return an operator on each channel of maps; the channels of all samples are those of one map."""
    shape = out.array().shape
    data = x.reshape(1, -1, *x.shape[-2:])
    return Network({"x": data}, [node], (*data.shape[:2], *shape[-2:]), shape, constants or {})


def average_pool(
    x: Array, kernel: Ints, strides: Ints, padding: Ints, ceil: bool, include: bool, divisor: int | None
) -> Array:
    """Return the mean of each window, float64; `include` counts the padding, `divisor` replaces the count."""
    sliding, axis = _sliding(x, kernel, strides, padding, None, ceil), x.ndim - len(kernel)
    if divisor:
        return np.asarray(sums(x.astype(np.float64), sliding, axis) / divisor)
    return means(x, sliding, axis, padding if include else None)


def max_pool(
    x: Array, kernel: Ints, strides: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> tuple[Array, Array]:
    """Return the largest element of each window, float64, and its index in the flattened axes."""
    return largest_with_places(x, _sliding(x, kernel, strides, padding, dilation, ceil))


def _sliding(
    x: Array, kernel: Ints, strides: Ints, padding: Ints, dilation: Ints | None, ceil: bool
) -> Sliding:
    """Return the windows along the last axes; raises DiopiError if they do not fit."""
    inside = x.shape[x.ndim - len(kernel) :]
    found = Sliding.over(inside, kernel, strides, padding, padding, dilation, ceil)
    if min(found.counts) < 0:
        raise DiopiError(f"windows of {list(found.reaches)} do not fit {inside} padded by {list(padding)}")
    return found


@operator("AvgPool2d")
def _avg_pool2d(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    kernel_size: diopiSize,
    stride: diopiSize,
    padding: diopiSize,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> None:
    """The mean of each window."""
    x = input.array()
    _check_pool(x, 2, kernel_size, stride, padding)
    kernel, strides, pads = kernel_size.data, stride.data or kernel_size.data, padding.data or [0, 0]

    def host(x: Array) -> Array:
        return average_pool(x, kernel, strides, pads, ceil_mode, count_include_pad, divisor_override)

    def network() -> Network | str:
        if divisor_override and divisor_override != kernel[0] * kernel[1]:
            return "a divisor that is not the window's size"
        include = count_include_pad or bool(divisor_override)
        if divisor_override and ceil_mode:
            return "a divisor with windows that are cut"
        more = {"ceil_mode": int(ceil_mode), "count_include_pad": int(include)}
        return _network(out, x, _pool_node("AveragePool", kernel, strides, pads * 2, **more))

    call.compute(out, [x], host, network)


def _max_pool(
    input: diopiTensor, kernel_size: diopiSize, stride: diopiSize, padding: diopiSize, dilation: diopiSize
) -> tuple[Array, list[int], list[int], list[int], list[int]]:
    x = input.array()
    _check_pool(x, 2, kernel_size, stride, padding, dilation)
    return (
        x,
        kernel_size.data,
        stride.data or kernel_size.data,
        padding.data or [0, 0],
        dilation.data or [1, 1],
    )


@operator("MaxPool2d")
def _max_pool2d(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    kernel_size: diopiSize,
    stride: diopiSize,
    padding: diopiSize,
    dilation: diopiSize,
    ceil_mode: bool,
) -> None:
    """The largest element of each window."""
    x, kernel, strides, pads, steps = _max_pool(input, kernel_size, stride, padding, dilation)

    def network() -> Network:
        more = {"ceil_mode": int(ceil_mode), "dilations": steps}
        return _network(out, x, _pool_node("MaxPool", kernel, strides, pads * 2, **more))

    call.compute(out, [x], lambda x: max_pool(x, kernel, strides, pads, steps, ceil_mode)[0], network)


@operator("MaxPool2dWithIndices")
def _max_pool2d_indices(
    call: OperatorCall,
    out: diopiTensor,
    indices: diopiTensor,
    input: diopiTensor,
    kernel_size: diopiSize,
    stride: diopiSize,
    padding: diopiSize,
    dilation: diopiSize,
    ceil_mode: bool,
) -> None:
    """The largest element of each window, and its index in the map."""
    x, kernel, strides, pads, steps = _max_pool(input, kernel_size, stride, padding, dilation)
    best, found = max_pool(x, kernel, strides, pads, steps, ceil_mode)
    call.on_host(out, lambda: best)
    call.put(indices, found)


def _adaptive(input: diopiTensor, size: diopiSize) -> Array:
    x = input.array()
    if x.ndim not in (3, 4) or size.len != 2 or min(size.data) < 0:
        raise DiopiError(f"an adaptive pool of {x.shape} to {size.data}")
    return x


def _adaptive_network(out: diopiTensor, x: Array, wanted: list[int], kind: str) -> Network | str:
    sizes = x.shape[-2:]
    if any(size % new for size, new in zip(sizes, wanted, strict=True)):
        return "windows of several sizes"
    kernel = [size // new for size, new in zip(sizes, wanted, strict=True)]
    return _network(out, x, _pool_node(kind, kernel, kernel, [0] * 4))


@operator("AdaptiveAvgPool2d")
def _adaptive_avg(call: OperatorCall, out: diopiTensor, input: diopiTensor, output_size: diopiSize) -> None:
    """The means of windows that divide the map evenly."""
    x, wanted = _adaptive(input, output_size), output_size.data
    call.compute(
        out,
        [x],
        lambda x: adaptive_means(x, wanted),
        lambda: _adaptive_network(out, x, wanted, "AveragePool"),
    )


@operator("AdaptiveMaxPool2d")
def _adaptive_max(call: OperatorCall, out: diopiTensor, input: diopiTensor, output_size: diopiSize) -> None:
    """The largest elements of windows that divide the map evenly."""
    x, wanted = _adaptive(input, output_size), output_size.data
    call.compute(
        out,
        [x],
        lambda x: adaptive_largest(x, wanted)[0],
        lambda: _adaptive_network(out, x, wanted, "MaxPool"),
    )


@operator("AdaptiveMaxPool2dWithIndices")
def _adaptive_max_indices(
    call: OperatorCall, out: diopiTensor, indices: diopiTensor, input: diopiTensor, output_size: diopiSize
) -> None:
    """The largest elements of windows that divide the map evenly, and their indices in the map."""
    best, found = adaptive_largest(_adaptive(input, output_size), output_size.data)
    call.on_host(out, lambda: best)
    call.put(indices, found)


@operator("BatchNorm")
def _batch_norm(
    call: OperatorCall,
    out: diopiTensor,
    save_mean: diopiTensor,
    save_invstd: diopiTensor,
    input: diopiTensor,
    weight: diopiTensor | None,
    bias: diopiTensor | None,
    running_mean: diopiTensor | None,
    running_var: diopiTensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> None:
    """The normalisation of each channel, in training with the batch's own mean and variance."""
    x = input.array()
    if x.ndim < 2:
        raise DiopiError(f"input {x.shape} has no channels")
    channels, axes = x.shape[1], (0, *range(2, x.ndim))
    column = (-1, *(1,) * (x.ndim - 2))
    scale = np.ones(channels) if weight is None else weight.array().astype(np.float64)
    offset = np.zeros(channels) if bias is None else bias.array().astype(np.float64)
    if training:
        real = x.astype(np.float64)
        mean, variance = real.mean(axes), real.var(axes)
        count = x.size // channels
        unbiased = variance * count / (count - 1) if count > 1 else variance
        for running, found in ((running_mean, mean), (running_var, unbiased)):
            if running is not None:
                call.put(running, running.array().astype(np.float64) * (1 - momentum) + found * momentum)
    elif running_mean is None or running_var is None:
        raise DiopiError("running_mean and running_var are needed without training")
    else:
        mean = running_mean.array().astype(np.float64)
        variance = running_var.array().astype(np.float64)

    def host(x: Array) -> Array:
        factor = scale / np.sqrt(variance + eps)
        return np.asarray((wide(x) - mean.reshape(column)) * factor.reshape(column) + offset.reshape(column))

    def network() -> Network | str:
        if training:
            return "training"
        with np.errstate(all="ignore"):
            factors = scale / np.sqrt(variance + eps)
            offsets = offset - mean * factors
        if not all(fits_half(one) for one in factors) or not np.all(np.abs(offsets) <= LARGEST):
            return TOO_FINE
        names = ("scale", "offset", "mean", "variance")
        figures = (np.tile(figure, len(x)) for figure in (scale, offset, mean, variance))
        constants = dict(zip(names, figures, strict=True))
        node = EmittedNode("BatchNormalization", ("x", *names), "y", {"epsilon": eps})
        data = x.reshape(1, len(x) * channels, -1, 1) if x.ndim != 4 else x.reshape(1, -1, *x.shape[2:])
        return Network({"x": data}, [node], data.shape, x.shape, constants)

    def sums(x: Array) -> Array:
        factor = np.abs(scale) / np.sqrt(variance + eps)
        figures = (np.abs(mean), factor, np.abs(offset))
        means, factors, offsets = (figure.reshape(column) for figure in figures)
        return np.asarray((wide(x) + means) * factors + offsets)

    call.compute(out, [x], host, network, sums)
    if training:
        with np.errstate(all="ignore"):
            call.put(save_mean, mean)
            call.put(save_invstd, 1 / np.sqrt(variance + eps))


def nearest(x: Array, sizes: Ints) -> Array:
    """Return maps of other sizes; each element is the one at floor(index * size / new size)."""
    for axis, size in enumerate(sizes, x.ndim - len(sizes)):
        step = resize.step_of(x.shape[axis], size, dtype=np.float32)
        x = resize.nearest(x, axis, resize.places(size, step, Coordinates.ASYMMETRIC, np.float32))
    return x


def interpolated(x: Array, sizes: Ints, align: bool, cubic: bool) -> Array:
    """Return maps of other sizes, interpolated axis by axis, float64.

    Places are computed in the type of the arithmetic, float32 also for float16, as PyTorch does.

    Parameters
    ----------
    x : (N, C, ...).
    sizes : new sizes of the last axes.
    align : the corners' elements lie at the corners.
    cubic : cubic convolution with -0.75 instead of linear interpolation.
    """
    made, real = x.astype(np.float64), np.float64 if x.dtype == np.float64 else np.float32
    rule = Coordinates.ASYMMETRIC if align else Coordinates.HALF_PIXEL
    for axis, size in enumerate(sizes, x.ndim - len(sizes)):
        at = resize.places(size, resize.step_of(made.shape[axis], size, align, real), rule, real)
        made = resize.cubic(made, axis, at) if cubic else resize.linear(made, axis, np.maximum(at, 0))
    return made + 0.0  # no zero is negative


@operator("UpsampleNearest")
def _upsample_nearest(call: OperatorCall, out: diopiTensor, input: diopiTensor, size: diopiSize) -> None:
    """Maps of another size, by the nearest element."""
    x, wanted = input.array(), size.data
    if size.len != x.ndim - 2 or min(wanted, default=0) < 1:
        raise DiopiError(f"a size {wanted} of maps {x.shape}")

    def network() -> Network | str:
        if x.ndim != 4 or any(new % old for new, old in zip(wanted, x.shape[2:], strict=True)):
            return "no whole factor of the sizes"
        scales = np.array([1, 1, wanted[0] / x.shape[2], wanted[1] / x.shape[3]], np.float32)
        attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
        node = EmittedNode("Resize", ("x", "", "scales"), "y", {**attributes, "nearest_mode": "floor"})
        return _network(out, x, node, {"scales": scales})

    call.compute(out, [x], lambda x: nearest(x, wanted), network)


@operator("UpsampleLinear")
def _upsample_linear(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    size: diopiSize,
    align_corners: bool,
    mode: str | bytes,
) -> None:
    """Maps of another size, by linear, bilinear, trilinear or bicubic interpolation."""
    x, wanted = input.array(), size.data
    form = mode.decode() if isinstance(mode, bytes) else mode
    if form not in ("linear", "bilinear", "trilinear", "bicubic"):
        raise DiopiError(f"mode '{form}' of UpsampleLinear")
    if size.len != x.ndim - 2 or min(wanted, default=0) < 1:
        raise DiopiError(f"a size {wanted} of maps {x.shape}")
    call.on_host(out, lambda: interpolated(x, wanted, align_corners, form == "bicubic"))
