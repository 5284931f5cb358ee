"""Operations on fp16 tensors to steps.

The same steps as for bytes, with other meanings of their numbers: weights are float16, biases
float32, limits the patterns of binary32 numbers, and no converter takes part.

ConvStep      v = fp32 sums of tiles of 32 products (docs/hardware.md 3.7), + bias, clamp, to fp16
BinaryStep    v = a op b in fp32, clamp, to fp16
RescaleStep   v = x, clamp, to fp16 (exact)
PoolStep      maximum, or the average of docs/hardware.md 6.3
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sw.compiler.float_programs import single_bits
from sw.compiler.graph import (
    Binary,
    Clamp,
    Concat,
    Conv,
    ModelError,
    OnHost,
    Op,
    Pad,
    Pool,
    Rescale,
    Slice,
    Slope,
    Tensor,
    Upsample,
    Window,
)
from sw.compiler.steps import (
    BinaryStep,
    Converter,
    ConvStep,
    CopyStep,
    HostStep,
    Limits,
    PoolStep,
    RescaleStep,
    Step,
)

PLAIN = Converter(1, 0, 0)
PPU_KERNEL = 16
PPU_PAD = 7
PPU_OPEN_RESULTS = 2048
CONV_KERNEL = 31
CONV_STRIDE = 7
INSERTS = (1, 2, 4, 8)
ATOM_CHANNELS = 8


def lower_float(op: Op, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    """Steps of one operation.

    Raises
    ------
    ModelError
        for an operation that neither NPU nor host can do, naming it.
    """
    table: dict[type[Op], Callable[..., list[Step]]] = {
        Conv: _conv,
        Binary: _binary,
        Pool: _pool,
        Rescale: _rescale,
        Slope: _slope,
        Concat: _concat,
        Slice: _slice,
        Pad: _pad,
        Upsample: _upsample,
        OnHost: _on_host,
    }
    if type(op) not in table:
        raise ModelError(f"{op.kind} '{op.name}' is not supported on floats")
    limits = _limits(op.clamp)
    if limits == "host":  # the clamps that the float stages do not have
        between = replace(output, name=f"{output.name}.unclamped")
        attributes = {"function": "Clip", "alpha": op.clamp.low, "beta": op.clamp.high}
        clip = HostStep(op.name, "Clip", (between,), output, "Function", attributes)
        return [*lower_float(replace(op, clamp=Clamp()), inputs, between), clip]
    return table[type(op)](op, inputs, output)


def _limits(clamp: Clamp) -> Limits | str:
    """Patterns for ReLU and ReLUX, "host" for a clamp that they cannot do."""
    if clamp == Clamp():
        return None
    if clamp.low != 0.0 or clamp.high <= 0.0:
        return "host"
    return 0, None if math.isinf(clamp.high) else single_bits(clamp.high)


def _own_limits(op: Op) -> Limits:
    limits = _limits(op.clamp)
    assert not isinstance(limits, str)
    return limits


def _conv(op: Conv, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    x, what = inputs[0], f"{op.kind} '{op.name}'"
    if op.insert[0] not in INSERTS or op.insert[1] not in INSERTS:
        channels, height, width = x.cube
        cube = (channels, (height - 1) * op.insert[0] + 1, (width - 1) * op.insert[1] + 1)
        wide = replace(x, name=f"{op.output}.spread", shape=(1, *cube), cube=cube, channels_last=False)
        first = HostStep(op.name, op.kind, (x,), wide, "Insert", {"factors": op.insert})
        return [first, *_conv(replace(op, inputs=(wide.name,), insert=(1, 1)), (wide,), output)]
    weights = np.asarray(op.weights)
    if not op.depthwise and op.groups > 1:
        kernels, depth, *size = weights.shape
        full = np.zeros((kernels, depth * op.groups, *size), dtype=weights.dtype)
        for kernel in range(kernels):
            first = kernel // (kernels // op.groups) * depth
            full[kernel, first : first + depth] = weights[kernel]
        weights = full
    with np.errstate(over="ignore"):
        halves = weights.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ModelError(f"{what}: a weight is beyond fp16")
    return [
        _conv_step(op, x, output, halves, np.asarray(op.bias, np.float32), op.window, op.depthwise, op.insert)
    ]


def _conv_step(
    op: Op,
    x: Tensor,
    output: Tensor,
    weights: np.ndarray,
    bias: np.ndarray,
    window: Window,
    depthwise: bool,
    insert: tuple[int, int] = (1, 1),
) -> ConvStep:
    strides = tuple(1 if size == 1 else s for s, size in zip(window.strides, output.cube[1:], strict=True))
    return ConvStep(
        op.name,
        op.kind,
        (x,),
        output,
        weights,
        0,
        bias,
        np.zeros(len(bias), dtype=np.int64),
        replace(window, strides=strides),  # type: ignore[arg-type]
        depthwise,
        _own_limits(op),
        PLAIN,
        0,
        insert,
    )


def _binary(op: Binary, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    a, b = inputs
    if b.cube != a.cube and b.cube != (a.cube[0], 1, 1):
        raise ModelError(f"{op.kind} '{op.name}': operands {a.shape} and {b.shape} cannot be combined")
    return [BinaryStep(op.name, op.kind, inputs, output, op.method, (1, 1), _own_limits(op), PLAIN)]


def _rescale(op: Rescale, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    return [RescaleStep(op.name, op.kind, inputs, output, 1, _own_limits(op), PLAIN)]


def _pool(op: Pool, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    x, what = inputs[0], f"{op.kind} '{op.name}'"
    window = op.window
    if _own_limits(op) is not None:
        between = replace(output, name=f"{output.name}.pooled")
        rescale = Rescale(op.name, (between.name,), op.output, clamp=op.clamp)
        return [*_pool(replace(op, clamp=Clamp()), inputs, between), *_rescale(rescale, (between,), output)]
    fits = (
        max(window.kernel) <= PPU_KERNEL
        and max(window.pads) <= PPU_PAD
        and (max(window.strides) <= PPU_KERNEL or op.whole)
        and window.kernel[0] * output.cube[2] <= PPU_OPEN_RESULTS
    )
    ends = [
        (output.cube[1 + n] - 1) * window.strides[n] + window.kernel[n] - window.pads[n] for n in range(2)
    ]
    outside = any(window.pads[:2]) or any(end > size for end, size in zip(ends, x.cube[1:], strict=True))
    if op.method == "average" and outside and not op.count_pad:
        return [HostStep(op.name, op.kind, inputs, output, "AveragePool", {"window": window})]
    if fits:
        return [PoolStep(op.name, op.kind, inputs, output, op.method, window, 0)]
    if op.method == "max":
        return [HostStep(op.name, op.kind, inputs, output, "MaxPool", {"window": window})]
    used = [1 if size == 1 else s for s, size in zip(window.strides, output.cube[1:], strict=True)]
    if max(window.kernel) > CONV_KERNEL or max(used) > CONV_STRIDE:
        if op.count_pad and outside:
            raise ModelError(f"{what}: window {window.kernel} over padding is too large for floats")
        return [HostStep(op.name, op.kind, inputs, output, "AveragePool", {"window": window})]
    taps = window.kernel[0] * window.kernel[1]
    weights = np.full((x.cube[0], 1, *window.kernel), 1 / taps, dtype=np.float16)
    return [_conv_step(op, x, output, weights, np.zeros(x.cube[0], np.float32), window, True)]


def _slope(op: Slope, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    slopes = tuple(float(s) for s in op.slopes)
    attributes = {"function": "LeakyRelu", "alpha": slopes if len(slopes) > 1 else slopes[0]}
    return [HostStep(op.name, op.kind, inputs, output, "Function", attributes)]


def _copy(
    op: Op, x: Tensor, y: Tensor, source: tuple[int, ...], target: tuple[int, ...], size: tuple[int, ...]
) -> Step:
    return CopyStep(op.name, op.kind, (x,), y, source, target, size, 1, PLAIN)  # type: ignore[arg-type]


def _concat(op: Concat, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    steps: list[Step] = []
    at = 0
    for x in inputs:
        if op.axis == 0 and at % ATOM_CHANNELS:
            return [HostStep(op.name, op.kind, inputs, output, "Concat", {"axis": op.axis})]
        target = tuple(at if axis == op.axis else 0 for axis in range(3))
        steps.append(_copy(op, x, output, (0, 0, 0), target, x.cube))
        at += x.cube[op.axis]
    return steps


def _slice(op: Slice, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    if op.begin[0] % ATOM_CHANNELS:
        return [HostStep(op.name, op.kind, inputs, output, "Slice", {"begin": op.begin})]
    return [_copy(op, inputs[0], output, op.begin, (0, 0, 0), output.cube)]


def _pad(op: Pad, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    return [HostStep(op.name, op.kind, inputs, output, "Pad", {"pads": op.pads})]


def _upsample(op: Upsample, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    picks = [tuple(i // f for i in range(n)) for f, n in zip(op.factors, output.cube[1:], strict=True)]
    attributes = {"rows": picks[0], "columns": picks[1]}
    return [HostStep(op.name, op.kind, inputs, output, "Pick", attributes)]


def _on_host(op: OnHost, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    return [HostStep(op.name, op.kind, inputs, output, op.function, op.attributes)]
