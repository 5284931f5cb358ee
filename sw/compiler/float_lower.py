"""Operations on fp16 tensors to steps.

The same steps as for bytes, with other meanings of their numbers: weights are float16, biases
float32, limits the patterns of binary32 numbers, and no converter takes part.

ConvStep      v = fp32 sums of tiles of 32 products (docs/hardware.md 3.7), + bias, clamp or slopes, to fp16
BinaryStep    v = a op b in fp32, clamp, to fp16
RescaleStep   v = x, clamp, to fp16 (exact)
SlopeStep     v = x, negative ones times a slope of fp16, to fp16
PoolStep      maximum, or the average of docs/hardware.md 6.3
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from sw.compiler.graph import (
    Binary,
    Clamp,
    Concat,
    Conv,
    ConvSlope,
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
from sw.compiler.movement import (
    Place,
    concat_steps,
    insert_on_host,
    on_host,
    pad_on_host,
    slice_steps,
    upsample_on_host,
)
from sw.compiler.npu_limits import CONV_KERNEL, CONV_STRIDE, INSERTS, ppu_does, reaches_outside
from sw.compiler.programs.floats import single_bits
from sw.compiler.steps import (
    BinaryStep,
    Converter,
    ConvStep,
    CopyStep,
    HostStep,
    Limits,
    PoolStep,
    RescaleStep,
    Slopes,
    SlopeStep,
    Step,
)

Clamped = TypeVar("Clamped", Pool, Slope)

PLAIN = Converter(1, 0, 0)
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
        ConvSlope: _conv_slope,
        Binary: _binary,
        Pool: _pool,
        Rescale: _rescale,
        Slope: _slope,
        Concat: partial(concat_steps, atom_channels=ATOM_CHANNELS, copy=_copy),
        Slice: partial(slice_steps, atom_channels=ATOM_CHANNELS, copy=_copy),
        Pad: pad_on_host,
        Upsample: upsample_on_host,
        OnHost: on_host,
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
        plain, first = insert_on_host(op, x)
        return [first, *_conv(plain, (first.output,), output)]
    with np.errstate(over="ignore"):
        halves = op.npu_weights.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ModelError(f"{what}: a weight is beyond fp16")
    bias = np.asarray(op.bias, np.float32)
    step = _conv_step(op, x, output, halves, bias, op.window, op.depthwise, op.insert)
    return [step]


def _conv_slope(op: ConvSlope, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    conv, what = op.conv, f"{op.kind} '{op.name}'"
    if conv.insert[0] not in INSERTS or conv.insert[1] not in INSERTS:
        raise ModelError("the host inserts pixels first")
    (step,) = _conv(conv, inputs, output)
    assert isinstance(step, ConvStep)
    return [replace(step, name=op.name, kind=op.kind, slopes=_slopes(op.slopes, what))]


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
    return ConvStep(
        op.name,
        op.kind,
        (x,),
        output,
        weights,
        0,
        bias,
        np.zeros(len(bias), dtype=np.int64),
        window.used(output),
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


def _clamped_apart(
    op: Clamped,
    inputs: tuple[Tensor, ...],
    output: Tensor,
    suffix: str,
    lower: Callable[[Clamped, tuple[Tensor, ...], Tensor], list[Step]],
) -> list[Step]:
    """The operation without its clamp, and that as a step of its own."""
    between: Tensor = replace(output, name=f"{output.name}.{suffix}")
    rescale: Rescale = Rescale(op.name, (between.name,), op.output, clamp=op.clamp)
    return [*lower(replace(op, clamp=Clamp()), inputs, between), *_rescale(rescale, (between,), output)]


def _pool(op: Pool, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    x, what = inputs[0], f"{op.kind} '{op.name}'"
    window = op.window
    if _own_limits(op) is not None:
        return _clamped_apart(op, inputs, output, "pooled", _pool)
    outside = reaches_outside(window, x, output)
    if op.method == "average" and outside and not op.count_pad:
        return [HostStep(op.name, op.kind, inputs, output, "AveragePool", {"window": window})]
    if ppu_does(op, output):
        return [PoolStep(op.name, op.kind, inputs, output, op.method, window, 0)]
    if op.method == "max":
        return [HostStep(op.name, op.kind, inputs, output, "MaxPool", {"window": window})]
    if max(window.kernel) > CONV_KERNEL or max(window.used(output).strides) > CONV_STRIDE:
        if op.count_pad and outside:
            raise ModelError(f"{what}: window {window.kernel} over padding is too large for floats")
        return [HostStep(op.name, op.kind, inputs, output, "AveragePool", {"window": window})]
    taps = window.kernel[0] * window.kernel[1]
    weights = np.full((x.cube[0], 1, *window.kernel), 1 / taps, dtype=np.float16)
    return [_conv_step(op, x, output, weights, np.zeros(x.cube[0], np.float32), window, True)]


def _slope(op: Slope, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    if _own_limits(op) is not None:
        return _clamped_apart(op, inputs, output, "unclamped", _slope)
    slopes = _slopes(op.slopes, f"{op.kind} '{op.name}'")
    return [SlopeStep(op.name, op.kind, inputs, output, slopes, 1, PLAIN)]


def _slopes(slopes: np.ndarray, what: str) -> Slopes:
    with np.errstate(over="ignore"):
        halves = slopes.astype(np.float16)
    if not np.isfinite(halves).all():
        raise ModelError(f"{what}: a slope is beyond fp16")
    return Slopes(halves, 0)


def _copy(op: Op, x: Tensor, y: Tensor, source: Place, target: Place, size: Place) -> Step:
    return CopyStep(op.name, op.kind, (x,), y, source, target, size, 1, PLAIN)
