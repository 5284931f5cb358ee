"""ONNX nodes that compute: element by element, tables, slopes, transposed convolutions, reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import (
    Binary,
    BinaryMethod,
    Clamp,
    Conv,
    ModelError,
    OnHost,
    Op,
    Pool,
    Slope,
    Tensor,
    Window,
)
from sw.loaders.functions import lookup
from sw.loaders.nodes import NodeContext, bias_codes, weight_codes
from sw.loaders.values import Constant, Pending, Real, natural_cube


def _quantised(constant: Constant, what: str) -> Constant:
    reals = constant.array.astype(np.float64)
    largest = float(np.abs(reals).max(initial=0.0))
    if not math.isfinite(largest):
        raise ModelError(f"{what} is not all finite")
    scale = largest / 127 if largest > 0 else 1.0
    codes = np.rint(reals / scale).astype(np.int8)
    return Constant(codes, np.array(scale), np.zeros((), np.int8))


def _operand_cube(context: NodeContext, codes: npt.NDArray[Any], name: str, like: Real) -> npt.NDArray[Any]:
    """A constant spread to the cube of `like`, or to one value a channel where that is all it has."""
    channels, height, _ = like.cube
    axis = 1 if len(like.shape) == 4 else len(like.shape) - 1
    try:
        wide = codes.reshape((1,) * (len(like.shape) - codes.ndim) + codes.shape)
        if wide.ndim != len(like.shape):
            raise ValueError("more dimensions")
        np.broadcast_to(wide, like.shape)
        if wide.size == wide.shape[axis] and wide.size in (1, channels):
            return np.broadcast_to(wide.reshape(-1), (channels,)).reshape(channels, 1, 1)
        spread = np.broadcast_to(wide, like.shape)
        if like.cube == natural_cube(like.shape, context.label) and len(like.shape) < 4:
            spread = spread.reshape(height, channels).T
        return spread.reshape(like.cube)
    except ValueError as error:
        raise ModelError(f"{context.label}: '{name}' {codes.shape} does not fit {like.shape}") from error


def _constant_floats(context: NodeContext, constant: Constant, name: str, like: Real) -> str:
    """A constant operand as fp16."""
    with np.errstate(over="ignore"):
        halves = np.asarray(constant.real()).astype(np.float16)
    if not np.isfinite(halves).all():
        raise ModelError(f"{context.label}: constant '{name}' is beyond fp16")
    cube = np.ascontiguousarray(_operand_cube(context, halves, name, like))
    key = f"{name}@{context.name}"
    context.graph.tensors[key] = Tensor(key, (1, *cube.shape), 1.0, 0, cube.shape, real=True)
    context.graph.constants[key] = cube
    return key


def _constant_operand(context: NodeContext, index: int, like: Real) -> str:
    """Add a constant operand of an element-wise operation to the graph; return its tensor name.

    A constant that the model leaves in floating point gets 8 bits around zero.
    """
    constant = context.constant(index)
    name = context.names[index]
    if context.floats and constant is not None:
        return _constant_floats(context, constant, name, like)
    if constant is not None and constant.scale is None and constant.array.dtype.kind == "f":
        constant = _quantised(constant, f"{context.label}: constant '{name}'")
    if constant is None or constant.scale is None or constant.zero is None or constant.scale.size != 1:
        raise ModelError(f"{context.label}: constant '{name}' is not quantised with one scale")
    if constant.array.dtype not in (np.int8, np.uint8):
        raise ModelError(f"{context.label}: constant '{name}' is {constant.array.dtype}, not 8 bit")
    shift = 128 if constant.array.dtype == np.uint8 else 0
    codes = (constant.array.astype(np.int64) - shift).astype(np.int8)
    cube = _operand_cube(context, codes, name, like)
    key = f"{name}@{context.name}"
    zero = int(constant.zero.reshape(-1)[0]) - shift
    scale = float(constant.scale.reshape(-1)[0])
    shape = (1, *cube.shape)
    context.graph.tensors[key] = Tensor(key, shape, scale, zero, cube.shape, bool(shift))
    context.graph.constants[key] = np.ascontiguousarray(cube)
    return key


def binary(method: BinaryMethod) -> Callable[[NodeContext], Pending]:
    """Add, Sub, Mul, Max, Min of two operands; one may be smaller or constant."""

    def build_node(context: NodeContext) -> Pending:
        if len(context.values) != 2:
            raise ModelError(f"{context.label}: {len(context.values)} operands; two are supported")
        values = list(enumerate(context.values))
        reals = [value for _, value in values if isinstance(value, Real)]
        if not reals:
            raise ModelError(f"{context.label}: both operands are constants")
        first = max(reals, key=lambda value: math.prod(value.shape))
        ordered = sorted(values, key=lambda pair: pair[1] is not first)
        if ordered[0][0] != 0 and method == "sub":
            raise ModelError(f"{context.label}: '{context.names[0]}' is smaller than what is taken off it")
        names: list[str] = []
        for index, value in ordered:
            if not isinstance(value, Real):
                names.append(_constant_operand(context, index, first))
            elif (value.shape, value.cube) == (first.shape, first.cube):
                names.append(value.tensor)
            elif value.cube == (first.cube[0], 1, 1) and len(value.shape) == len(first.shape):
                names.append(context.view(index))
            else:
                raise ModelError(f"{context.label}: operands {first.shape} and {value.shape} differ")
        label = (names[0], names[1])

        def build(output: str, clamp: Clamp) -> Binary:
            return Binary(context.name, label, output, method, clamp=clamp)

        return Pending(build, first.shape, first.cube)

    return build_node


def function(kind: str) -> Callable[[NodeContext], Pending]:
    """A function of one number as a table; HardSigmoid takes its slope and offset along."""

    def build_node(context: NodeContext) -> Pending:
        value, x = context.real(0), context.tensor(0)
        made = None
        if kind == "HardSigmoid":
            slope = float(context.attributes.get("alpha", 0.2))
            offset = float(context.attributes.get("beta", 0.5))

            def made(reals: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
                return np.clip(reals * slope + offset, 0.0, 1.0)

        def build(output: str, clamp: Clamp) -> Op:
            if context.floats:
                attributes = {"function": kind, "alpha": context.attributes.get("alpha", 0.2)}
                attributes["beta"] = context.attributes.get("beta", 0.5)
                return OnHost(
                    context.name, (x.name,), output, function="Function", attributes=attributes, clamp=clamp
                )
            return lookup(context.name, kind, x, context.graph.tensors[output], made, clamp)

        return Pending(build, value.shape, value.cube)

    return build_node


def slope(context: NodeContext) -> Pending:
    """LeakyRelu and PRelu (a slope for all, or one a channel)."""
    value, x = context.real(0), context.tensor(0)
    if context.node.op_type == "LeakyRelu":
        slopes = np.array([float(context.attributes.get("alpha", 0.01))])
    else:
        constant = context.constant(1)
        if constant is None:
            raise ModelError(f"{context.label}: the slope is missing")
        slopes = np.asarray(constant.real(), np.float64)
        axis = len(value.shape) - slopes.ndim
        per_channel = slopes.ndim <= len(value.shape) and slopes.shape[1 - axis : 2 - axis] == (slopes.size,)
        if slopes.size != 1 and not (per_channel and slopes.size == value.cube[0]):
            raise ModelError(
                f"{context.label}: slopes '{context.names[1]}' {slopes.shape} are not per channel"
            )
        slopes = slopes.reshape(-1)
    if not np.isfinite(slopes).all():
        raise ModelError(f"{context.label}: slopes are not all finite")

    def build(output: str, clamp: Clamp) -> Slope:
        return Slope(context.name, (x.name,), output, slopes, clamp=clamp)

    return Pending(build, value.shape, value.cube)


def conv_transpose(context: NodeContext) -> Pending:
    """ConvTranspose: the kernel turned round, over the input with zeros inserted."""
    channels, height, width = context.map_shape()
    groups = int(context.attributes.get("group", 1))
    weights, scales, zero = weight_codes(context, 1)
    if weights.ndim != 4 or weights.shape[0] != channels or channels % groups:
        raise ModelError(f"{context.label}: weights {weights.shape} in {groups} groups, {channels} channels")
    if context.attributes.get("output_shape") or context.attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise ModelError(f"{context.label}: output_shape and auto_pad are not supported; give pads")
    kernels = weights.shape[1] * groups
    if scales.size != kernels:
        if np.unique(scales).size > 1:
            raise ModelError(f"{context.label}: weights have {scales.size} scales for {kernels} channels")
        scales = np.repeat(scales[:1], kernels)
    # (IC, OC / groups, ...) to (OC, IC / groups, ...)
    split = weights.reshape(groups, channels // groups, weights.shape[1], *weights.shape[2:])
    turned = split.transpose(0, 2, 1, 3, 4)[..., ::-1, ::-1].reshape(kernels, -1, *weights.shape[2:])
    get = context.attributes.get
    strides = tuple(int(n) for n in get("strides", (1, 1)))
    dilations = tuple(int(n) for n in get("dilations", (1, 1)))
    pads = [int(n) for n in get("pads", (0, 0, 0, 0))]
    more = [int(n) for n in get("output_padding", (0, 0))]
    sizes, edges = [], [0, 0, 0, 0]
    for axis, size in enumerate((height, width)):
        reach = (weights.shape[2 + axis] - 1) * dilations[axis]
        edges[axis] = reach - pads[axis]
        edges[axis + 2] = reach - pads[axis + 2] + more[axis]
        sizes.append((size - 1) * strides[axis] + reach + 1 - pads[axis] - pads[axis + 2] + more[axis])
    if min(edges) < 0 or min(sizes) < 1 or min(strides) < 1:
        raise ModelError(f"{context.label}: pads {pads} leave out whole pixels of '{context.names[0]}'")
    tensor = context.tensor(0)
    bias = bias_codes(context, 2, kernels, tensor.scale * scales)
    window = Window(
        (weights.shape[2], weights.shape[3]),
        pads=(edges[0], edges[1], edges[2], edges[3]),
        dilations=(dilations[0], dilations[1]),
    )
    cube = (kernels, sizes[0], sizes[1])

    def build(output: str, clamp: Clamp) -> Conv:
        return Conv(
            context.name,
            (tensor.name,),
            output,
            np.ascontiguousarray(turned),
            scales,
            zero,
            bias,
            window,
            groups,
            source="ConvTranspose",
            insert=(strides[0], strides[1]),
            clamp=clamp,
        )

    return Pending(build, (1, *cube), cube)


def reduce_mean(context: NodeContext) -> Pending:
    """ReduceMean over rows and columns."""
    channels, height, width = context.map_shape()
    given = context.constant(1)
    axes = context.attributes.get("axes", [])
    if given is not None:
        axes = np.asarray(given.real()).reshape(-1)
    if sorted(int(a) % 4 for a in axes) != [2, 3]:
        raise ModelError(f"{context.label}: a mean over the axes {list(axes)}; only [2, 3] is supported")
    tensor = context.tensor(0)
    keep = int(context.attributes.get("keepdims", 1))

    def build(output: str, clamp: Clamp) -> Op:
        window = Window((height, width))
        return Pool(context.name, (tensor.name,), output, "average", window, False, True, clamp=clamp)

    return Pending(build, (1, channels, 1, 1) if keep else (1, channels), (channels, 1, 1))
