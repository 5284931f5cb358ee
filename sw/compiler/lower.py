"""Graph operations to steps: everything that a layer computes, as exact integers.

A step says what bytes a layer makes without saying how the NPU is programmed; the register programs
(`sw.compiler.programs`) and the graph-level check both start from it.  `rne` is division by a power
of two, half to even; x, y are signed bytes.

ConvStep      acc = sum((x - x_zero) * (w - w_zero)) + bias      (x = x_zero outside the image)
              v = clamp(rne(acc * multiplier[c] / 2^14) + correction)
              y = sat8(rne(v * scale / 2^shift) + zero)
              With `insert` above 1 zeros lie between the pixels of x; x_zero is 0 then.
              With an `addend` v = clamp(a * own_scale + (b - b_zero) * scale),
              a = own_limits(rne(acc * multiplier[c] / 2^shift)), the convolution's own code
              With `slopes` v = a * own_scale, a negative one rne(v * slope / 2^slope shift)
              With an `activation` y = table[v - low], v = limits(rne(acc * multiplier[c] / 2^shift))
BinaryStep    v = clamp(a' op b'), a' = (a - a_zero) * a_scale, b' likewise; y as above
RescaleStep   v = clamp((x - x_zero) * 2^14); y as above
SlopeStep     v = (x - x_zero) * 2^14, a negative one rne(v * slope[c] / 2^shift); y as above
LookupStep    y = table[x + 128]
CopyStep      a part of x, rescaled, to a part of y
PoolStep      max, or the average over kh * kw taps of HARDWARE 6.1, on the bytes themselves
HostStep      a function of `sw.compiler.host` between two jobs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from sw.compiler.float_lower import lower_float
from sw.compiler.fusion.adds import conv_add
from sw.compiler.fusion.lookups import conv_lookup
from sw.compiler.fusion.slopes import conv_slope
from sw.compiler.graph import (
    MAX_ELEMENTS,
    Binary,
    Clamp,
    Concat,
    Conv,
    ConvAdd,
    ConvLookup,
    ConvSlope,
    Graph,
    Lookup,
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
from sw.compiler.npu_limits import CONV_KERNEL, CONV_PAD, CONV_STRIDE, INSERTS, ppu_does, reaches_outside
from sw.compiler.requant import (
    BS_SHIFT,
    balanced_channels,
    channel_multipliers,
    check_sums,
    clamp_in_unit,
    fixed_slopes,
    output_scale,
    saturating_clamp,
)
from sw.compiler.steps import (
    BinaryStep,
    Converter,
    ConvStep,
    CopyStep,
    HostStep,
    LookupStep,
    PoolStep,
    RescaleStep,
    Slopes,
    SlopeStep,
    Step,
)

ATOM_CHANNELS = 16


def lower(graph: Graph) -> list[Step]:
    """Turn a graph's operations into steps, in order.

    An operation that the NPU does in two passes (a max pool that also changes scale, say) becomes
    two steps; the tensor between them is added to the graph.  What it cannot do becomes a HostStep
    where `sw.compiler.host` has a function for it.

    Raises
    ------
    ModelError
        for operations that neither can do, naming all of them.
    """
    steps: list[Step] = []
    wrong = [
        f"tensor '{t.name}' {t.shape} is too large"
        for t in graph.tensors.values()
        if t.elements > MAX_ELEMENTS
    ]
    if wrong:
        raise ModelError("; ".join(wrong))
    for op in graph.ops:
        inputs = tuple(graph.tensors[name] for name in op.inputs)
        try:
            output = graph.tensors[op.output]
            made = steps_of(op, inputs, output)
        except ModelError as error:
            wrong.append(str(error))
            continue
        steps += made
        for step in made:
            graph.tensors.setdefault(step.output.name, step.output)
    if wrong:
        raise ModelError("; ".join(wrong))
    return steps


def steps_of(op: Op, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    """The steps of one operation.

    Raises
    ------
    ModelError
        where neither the NPU nor the host can do it, with the reason.
    """
    if output.real:
        return lower_float(op, inputs, output)
    lowering: dict[type[Op], Callable[..., list[Step]]] = {
        Conv: _conv,
        ConvAdd: conv_add,
        ConvLookup: conv_lookup,
        ConvSlope: conv_slope,
        Binary: _binary,
        Pool: _pool,
        Rescale: _rescale,
        Slope: _slope,
        Lookup: _lookup,
        Concat: partial(concat_steps, atom_channels=ATOM_CHANNELS, copy=_copy),
        Slice: partial(slice_steps, atom_channels=ATOM_CHANNELS, copy=_copy),
        Pad: _pad,
        Upsample: _upsample,
        OnHost: on_host,
    }
    return lowering[type(op)](op, inputs, output)


def _between(output: Tensor, suffix: str, like: Tensor | None = None) -> Tensor:
    """A tensor of the output's cube between two passes, in the quantisation of `like`."""
    like = like or output
    return replace(
        output,
        name=f"{output.name}.{suffix}",
        scale=like.scale,
        zero_point=like.zero_point,
        unsigned=like.unsigned,
    )


def _conv(op: Conv, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    x, what = inputs[0], f"{op.kind} '{op.name}'"
    if op.insert[0] not in INSERTS or op.insert[1] not in INSERTS:
        plain, first = insert_on_host(op, x)
        return [first, *_conv(plain, (first.output,), output)]
    weights, scales, bias = balanced_channels(
        op.npu_weights, op.weight_scales, op.weight_zero_point, op.bias, x.scale / output.scale
    )
    unit = x.scale * float(scales.max())
    check_sums(weights, op.weight_zero_point, bias, what)
    scale, shift = output_scale(unit / output.scale, what)
    multipliers = channel_multipliers(scales)
    clamp, x_zero, correction = op.clamp, x.zero_point, None
    if op.insert != (1, 1):  # inserted zeros are bytes 0, whatever the zero point
        x_zero = 0
        if x.zero_point:
            correction = _missing_zeros(op, weights, x, output, multipliers)
    limits = clamp_in_unit(clamp, unit, output, what)
    target, tail = output, list[Step]()
    if correction is not None and limits is not None and limits[0] != 0:
        target = _between(output, "unclamped")
        tail = _rescale(Rescale(op.name, (target.name,), output.name, clamp=clamp), (target,), output)
        limits = None
    step = ConvStep(
        op.name,
        op.kind,
        inputs[:1],
        target,
        weights,
        op.weight_zero_point,
        bias,
        multipliers,
        op.window.used(output),
        op.depthwise,
        limits,
        Converter(scale, shift, output.zero_point),
        x_zero,
        op.insert,
        correction,
    )
    return [step, *tail]


def _missing_zeros(
    op: Conv,
    weights: npt.NDArray[np.int8],
    x: Tensor,
    output: Tensor,
    multipliers: npt.NDArray[np.int64],
) -> npt.NDArray[np.int32]:
    """What -x_zero adds to v at each output of a transposed convolution: only real taps count."""
    _, height, width = x.cube
    kernels, out_height, out_width = output.cube
    sums = (weights.astype(np.int64) - op.weight_zero_point).sum(axis=1)  # (OC, kh, kw)
    total = np.zeros((kernels, out_height, out_width), dtype=np.int64)
    for row in range(op.window.kernel[0]):
        vy = np.arange(out_height) + row * op.window.dilations[0] - op.window.pads[0]
        good_y = (vy % op.insert[0] == 0) & (vy >= 0) & (vy <= (height - 1) * op.insert[0])
        for column in range(op.window.kernel[1]):
            vx = np.arange(out_width) + column * op.window.dilations[1] - op.window.pads[1]
            good_x = (vx % op.insert[1] == 0) & (vx >= 0) & (vx <= (width - 1) * op.insert[1])
            total += sums[:, row, column, None, None] * (good_y[:, None] & good_x[None])
    scaled = np.rint(-x.zero_point * total * multipliers[:, None, None] / 2.0**BS_SHIFT)
    return scaled.astype(np.int32)


def _binary(op: Binary, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    what = f"{op.kind} '{op.name}'"
    a, b = inputs
    if b.cube != a.cube and b.cube[1:] != (1, 1):
        raise ModelError(f"{what}: operands {a.shape} and {b.shape} cannot be combined")
    if b.cube[1:] == (1, 1) and b.cube != a.cube and b.cube[0] != a.cube[0]:
        raise ModelError(f"{what}: '{b.name}' has {b.cube[0]} channels, '{a.name}' {a.cube[0]}")
    if op.method == "mul":
        scales, unit = (1, 1), a.scale * b.scale
    else:
        largest = max(a.scale, b.scale)
        first, second = (max(1, round(2**BS_SHIFT * t.scale / largest)) for t in inputs)
        scales, unit = (first, -second if op.method == "sub" else second), largest / 2**BS_SHIFT
    limits = clamp_in_unit(op.clamp, unit, output, what)
    target, tail = output, list[Step]()
    if limits is not None and limits[0] != 0:
        target = _between(output, "unclamped")
        tail = _rescale(Rescale(op.name, (target.name,), output.name, clamp=op.clamp), (target,), output)
        limits = None
    scale, shift = output_scale(unit / output.scale, what)
    converter = Converter(scale, shift, output.zero_point)
    return [BinaryStep(op.name, op.kind, inputs, target, op.method, scales, limits, converter), *tail]


def _rescale(op: Rescale, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    unit = inputs[0].scale / 2**BS_SHIFT
    what = f"{op.kind} '{op.name}'"
    scale, shift = output_scale(unit / output.scale, what)
    limits = clamp_in_unit(op.clamp, unit, output, what)
    converter = Converter(scale, shift, output.zero_point)
    return [RescaleStep(op.name, op.kind, inputs, output, 2**BS_SHIFT, limits, converter)]


def _pool(op: Pool, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    x, what = inputs[0], f"{op.kind} '{op.name}'"
    kernel = op.window.kernel
    plain = saturating_clamp(op.clamp, output) == Clamp()
    fits = ppu_does(op, output)
    if op.method == "max":
        if not plain or not x.same_values(output):
            between = _between(output, "pooled", like=x)
            first = _pool(replace(op, output=between.name, clamp=Clamp()), inputs, between)
            rescale = Rescale(op.name, (between.name,), op.output, clamp=op.clamp)
            return [*first, *_rescale(rescale, (between,), output)]
        if not fits:
            return [HostStep(op.name, op.kind, inputs, output, "MaxPool", {"window": op.window})]
        return [PoolStep(op.name, op.kind, inputs, output, "max", op.window, -128)]
    if not op.count_pad and reaches_outside(op.window, x, output):
        if not plain:
            between = _between(output, "pooled")
            first = _pool(replace(op, output=between.name, clamp=Clamp()), inputs, between)
            rescale = Rescale(op.name, (between.name,), op.output, clamp=op.clamp)
            return [*first, *_rescale(rescale, (between,), output)]
        return [HostStep(op.name, op.kind, inputs, output, "AveragePool", {"window": op.window})]
    if x.same_values(output) and plain and fits:
        return [PoolStep(op.name, op.kind, inputs, output, "average", op.window, x.zero_point)]
    if op.whole and max(kernel) > CONV_KERNEL:
        return _staged_average(op, x, output)
    if max(kernel) > CONV_KERNEL or max(op.window.used(output).strides) > CONV_STRIDE:
        return [HostStep(op.name, op.kind, inputs, output, "AveragePool", {"window": op.window})]
    # Another output scale, or a map past the PPU's window: a depthwise convolution of ones rounds once.
    channels = x.cube[0]
    taps = kernel[0] * kernel[1]
    unit = x.scale / taps
    scale, shift = output_scale(unit / output.scale, what)
    return [
        ConvStep(
            op.name,
            op.kind,
            inputs,
            output,
            np.ones((channels, 1, *kernel), dtype=np.int8),
            0,
            np.zeros(channels, dtype=np.int64),
            np.full(channels, 2**BS_SHIFT, dtype=np.int64),
            op.window.used(output),
            True,
            clamp_in_unit(op.clamp, unit, output, what),
            Converter(scale, shift, output.zero_point),
            x.zero_point,
        )
    ]


def _staged_average(op: Pool, x: Tensor, output: Tensor) -> list[Step]:
    """A global average past a convolution's kernel: block averages as bytes first, then their average."""
    sides = []
    for size in op.window.kernel:
        blocks = [n for n in range(1, CONV_KERNEL + 1) if size % n == 0 and size // n <= CONV_KERNEL]
        if not blocks:
            raise ModelError(f"{op.kind} '{op.name}': a map of {op.window.kernel} has no even blocks")
        sides.append(blocks[0])
    block = (sides[0], sides[1])
    cube = (x.cube[0], x.cube[1] // block[0], x.cube[2] // block[1])
    between = replace(x, name=f"{op.output}.blocks", shape=(1, *cube), cube=cube)
    first = Pool(op.name, op.inputs, between.name, "average", Window(block, block))
    second = replace(op, inputs=(between.name,), window=Window(cube[1:]))
    return [*_pool(first, (x,), between), *_pool(second, (between,), output)]


def _slope(op: Slope, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    what = f"{op.kind} '{op.name}'"
    if saturating_clamp(op.clamp, output) != Clamp():
        target = _between(output, "unclamped")
        rescale = Rescale(op.name, (target.name,), output.name, clamp=op.clamp)
        return [*_slope(replace(op, clamp=Clamp()), inputs, target), *_rescale(rescale, (target,), output)]
    scale, out_shift = output_scale(inputs[0].scale / 2**BS_SHIFT / output.scale, what)
    converter = Converter(scale, out_shift, output.zero_point)
    slopes = Slopes(*fixed_slopes(op.slopes, what))
    return [SlopeStep(op.name, op.kind, inputs, output, slopes, 2**BS_SHIFT, converter)]


def _lookup(op: Lookup, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    return [LookupStep(op.name, op.kind, inputs, output, op.table)]


def _copy(
    op: Op,
    x: Tensor,
    y: Tensor,
    source: Place,
    target: Place,
    size: Place,
) -> CopyStep:
    scale, shift = output_scale(x.scale / 2**BS_SHIFT / y.scale, f"{op.kind} '{op.name}'")
    converter = Converter(scale, shift, y.zero_point)
    return CopyStep(op.name, op.kind, (x,), y, source, target, size, 2**BS_SHIFT, converter)


def _identity(
    op: Op,
    x: Tensor,
    output: Tensor,
    window: Window,
    insert: tuple[int, int] = (1, 1),
) -> ConvStep:
    """A depthwise convolution of ones whose windows hold one real element each."""
    channels = x.cube[0]
    zero = 0 if insert != (1, 1) else x.zero_point
    scale, shift = output_scale(x.scale / output.scale, f"{op.kind} '{op.name}'")
    return ConvStep(
        op.name,
        op.kind,
        (x,),
        output,
        np.ones((channels, 1, *window.kernel), dtype=np.int8),
        0,
        np.full(channels, zero - x.zero_point, dtype=np.int64),
        np.full(channels, 2**BS_SHIFT, dtype=np.int64),
        window,
        True,
        None,
        Converter(scale, shift, output.zero_point),
        zero,
        insert,
    )


def _pad(op: Pad, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    if max(op.pads[:2]) > CONV_PAD:
        return pad_on_host(op, inputs, output)
    return [_identity(op, inputs[0], output, Window((1, 1), pads=op.pads))]


def _upsample(op: Upsample, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    if not all(factor in INSERTS for factor in op.factors):
        return upsample_on_host(op, inputs, output)
    fy, fx = op.factors
    window = Window(op.factors, pads=(fy - 1, fx - 1, fy - 1, fx - 1))
    return [_identity(op, inputs[0], output, window, op.factors)]
