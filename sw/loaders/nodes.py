"""ONNX nodes to pending operations: attributes, shapes and quantised constants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx

from sw.compiler.graph import Clamp, Conv, Graph, ModelError, OnHost, Pool, Tensor, Window
from sw.loaders.values import Constant, Cube, Pending, Real, Shape, Value, natural_cube

BIAS_TOLERANCE = 1e-5
"""Relative difference up to which a bias scale counts as input scale * weight scale (float32)."""


@dataclass(frozen=True)
class NodeContext:
    """One node with its resolved inputs (None where an optional input is left out)."""

    label: str
    node: onnx.NodeProto
    attributes: dict[str, Any]
    names: list[str]
    values: list[Value | None]
    graph: Graph
    floats: bool = False
    """Whether the model computes on real numbers throughout."""

    @property
    def name(self) -> str:
        """Name of the operation in the graph."""
        return self.node.name or self.node.output[0]

    def real(self, index: int) -> Real:
        """Input `index`, which must be an activation."""
        value = self.values[index] if index < len(self.values) else None
        if not isinstance(value, Real):
            raise ModelError(f"{self.label}: input {index} must be a quantised activation")
        return value

    def tensor(self, index: int) -> Tensor:
        """Tensor behind activation `index`."""
        return self.graph.tensors[self.real(index).tensor]

    def constant(self, index: int) -> Constant | None:
        """Input `index`, which must be a constant or left out."""
        value = self.values[index] if index < len(self.values) else None
        if value is None or isinstance(value, Constant):
            return value
        raise ModelError(f"{self.label}: '{self.names[index]}' must be a constant")

    def view(self, index: int) -> str:
        """Name of activation `index` under the shape in which the node sees it."""
        value, tensor = self.real(index), self.tensor(index)
        if (value.shape, value.cube) == (tensor.shape, tensor.cube):
            return tensor.name
        name = f"{tensor.name}@{'x'.join(map(str, value.shape))}"
        self.graph.tensors[name] = replace(tensor, name=name, shape=value.shape, cube=value.cube)
        self.graph.aliases[name] = tensor.name
        return name

    def settled(self, index: int) -> str:
        """Name of activation `index` with its bytes where its shape alone would put them."""
        value, seen = self.real(index), self.view(index)
        cube = natural_cube(value.shape, self.label)
        if cube == value.cube:
            return seen
        name = f"{seen}@settled"
        if name not in self.graph.tensors:
            tensor = self.graph.tensors[seen]
            self.graph.tensors[name] = replace(tensor, name=name, cube=cube)
            attributes = {"shape": value.shape}
            self.graph.ops.append(OnHost(name, (seen,), name, function="Rearrange", attributes=attributes))
        return name

    def map_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of input 0, which must have the shape (1, C, H, W)."""
        value = self.real(0)
        if len(value.shape) != 4 or value.shape[0] != 1 or value.cube != value.shape[1:]:
            raise ModelError(f"{self.label}: input '{self.names[0]}' {value.shape} is not (1, C, H, W)")
        return value.cube


def _float_weights(context: NodeContext, axis: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64], int]:
    """Real weights, with scales of 1."""
    constant = context.constant(1)
    if constant is None:
        raise ModelError(f"{context.label}: the weights are missing")
    weights = np.asarray(constant.real(), dtype=np.float32)
    if not weights.ndim > axis or not np.isfinite(weights).all():
        raise ModelError(f"{context.label}: weights '{context.names[1]}' {weights.shape} are not all finite")
    return weights, np.ones(weights.shape[axis]), 0


def weight_codes(context: NodeContext, axis: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64], int]:
    """Signed weights, one scale per entry of `axis`, and the zero point in the signed domain."""
    constant = context.constant(1)
    name = context.names[1]
    if context.floats:
        return _float_weights(context, axis)
    if constant is None or constant.scale is None or constant.zero is None:
        raise ModelError(f"{context.label}: weights '{name}' are not quantised")
    if constant.array.dtype not in (np.int8, np.uint8):
        raise ModelError(f"{context.label}: weights '{name}' are {constant.array.dtype}, not 8 bit")
    codes = constant.array.astype(np.int64)
    zeros = constant.zero.astype(np.int64).reshape(-1)
    if constant.array.dtype == np.uint8:
        codes, zeros = codes - 128, zeros - 128
    if np.unique(zeros).size != 1:
        raise ModelError(f"{context.label}: weights '{name}' have several zero points")
    count = codes.shape[axis]
    if constant.scale.size == 1:
        scales = np.repeat(constant.scale.reshape(-1), count)
    elif constant.axis % codes.ndim == axis and constant.scale.size == count:
        scales = constant.scale.reshape(-1)
    else:
        raise ModelError(f"{context.label}: weights '{name}' have scales on axis {constant.axis}, not {axis}")
    return codes.astype(np.int8), scales, int(zeros[0])


def bias_codes(
    context: NodeContext, index: int, count: int, unit: npt.NDArray[np.float64], factor: float = 1.0
) -> npt.NDArray[Any]:
    """Bias in units of input scale * weight scale."""
    constant = context.constant(index)
    if constant is None:
        return np.zeros(count, dtype=np.int64)
    name = context.names[index]
    if constant.array.size not in (1, count):
        raise ModelError(f"{context.label}: bias '{name}' {constant.array.shape} for {count} channels")
    if constant.scale is not None and factor == 1.0:
        ratio = constant.scale.reshape(-1) / unit
        if np.all(np.abs(ratio - 1) < BIAS_TOLERANCE):
            return np.broadcast_to(constant.array.reshape(-1).astype(np.int64), (count,)).copy()
    real = np.asarray(constant.real(), dtype=np.float64).reshape(-1) * factor
    if context.floats:
        return np.broadcast_to(real, (count,)).astype(np.float32)
    codes = np.rint(np.broadcast_to(real, (count,)) / unit)
    if not (np.abs(codes) < 2**31).all():
        raise ModelError(f"{context.label}: bias '{name}' passes 32 bits of the accumulator's unit")
    return codes.astype(np.int64)


def _window(context: NodeContext, kernel: tuple[int, int], height: int, width: int) -> Window:
    """Strides, dilations and pads of a node with square-free defaults."""
    get = context.attributes.get
    if len(kernel) != 2:
        raise ModelError(f"{context.label}: only two-dimensional windows are supported, not {kernel}")
    strides = tuple(int(s) for s in get("strides", (1, 1)))
    dilations = tuple(int(d) for d in get("dilations", (1, 1)))
    pads = [int(p) for p in get("pads", (0, 0, 0, 0))]
    auto = get("auto_pad", b"NOTSET").decode()
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        for axis, size in enumerate((height, width)):
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            total = max((-(-size // strides[axis]) - 1) * strides[axis] + reach - size, 0)
            first = total // 2 if auto == "SAME_UPPER" else total - total // 2
            pads[axis], pads[axis + 2] = first, total - first
    elif auto == "VALID":
        pads = [0, 0, 0, 0]
    if min(pads) < 0 or min(strides) < 1:
        raise ModelError(f"{context.label}: pads {pads}, strides {strides} are not supported")
    return Window(kernel, strides, (pads[0], pads[1], pads[2], pads[3]), dilations)  # type: ignore[arg-type]


def _sized(context: NodeContext, size: tuple[int, int]) -> tuple[int, int]:
    if min(size) < 1:
        raise ModelError(f"{context.label}: input '{context.names[0]}' is smaller than the window")
    return size


def conv(context: NodeContext) -> Pending:
    """Conv, any group count."""
    channels, height, width = context.map_shape()
    weights, scales, zero = weight_codes(context, 0)
    if weights.ndim != 4:
        raise ModelError(f"{context.label}: only two-dimensional convolutions, weights are {weights.shape}")
    groups = int(context.attributes.get("group", 1))
    if weights.shape[1] * groups != channels or weights.shape[0] % groups:
        raise ModelError(
            f"{context.label}: weights {weights.shape} in {groups} groups do not fit {channels} channels"
        )
    window = _window(context, (weights.shape[2], weights.shape[3]), height, width)
    oh, ow = _sized(context, window.output(height, width))
    tensor = context.tensor(0)
    bias = bias_codes(context, 2, weights.shape[0], tensor.scale * scales)
    cube = (weights.shape[0], oh, ow)

    def build(output: str, clamp: Clamp) -> Conv:
        return Conv(
            context.name, (tensor.name,), output, weights, scales, zero, bias, window, groups, clamp=clamp
        )

    return Pending(build, (1, *cube), cube)


def _matrix(
    context: NodeContext,
    matrix: npt.NDArray[Any],
    scales: npt.NDArray[np.float64],
    zero: int,
    bias: npt.NDArray[np.int64],
    source: Literal["Gemm", "MatMul"],
) -> Pending:
    """A product with `matrix` (N, K): a 1x1 convolution, or one over the whole flattened cube."""
    value, tensor = context.real(0), context.tensor(0)
    channels, height, width = value.cube
    count, depth = matrix.shape
    if value.shape[-1] != depth:
        raise ModelError(f"{context.label}: input '{context.names[0]}' {value.shape} times depth {depth}")
    if channels == depth:
        weights, window, rows = matrix.reshape(count, depth, 1, 1), Window((1, 1)), (height, width)
    else:
        weights = matrix.reshape(count, channels, height, width)
        window, rows = Window((height, width)), (1, 1)
    shape = (*value.shape[:-1], count)
    cube: Cube = (count, *rows)
    natural_cube(shape, context.label)

    def build(output: str, clamp: Clamp) -> Conv:
        return Conv(
            context.name,
            (tensor.name,),
            output,
            weights,
            scales,
            zero,
            bias,
            window,
            source=source,
            clamp=clamp,
        )

    return Pending(build, shape, cube)


def gemm(context: NodeContext) -> Pending:
    """Gemm with constant B and C, alpha and beta folded."""
    get = context.attributes.get
    if int(get("transA", 0)):
        raise ModelError(f"{context.label}: transA is not supported")
    transposed = bool(int(get("transB", 0)))
    matrix, scales, zero = weight_codes(context, 0 if transposed else 1)
    if matrix.ndim != 2:
        raise ModelError(f"{context.label}: weights must be a matrix, not {matrix.shape}")
    matrix = matrix if transposed else np.ascontiguousarray(matrix.T)
    if context.floats:
        matrix = matrix * np.float32(get("alpha", 1.0))
    else:
        scales = scales * float(get("alpha", 1.0))
    unit = context.tensor(0).scale * scales
    bias = bias_codes(context, 2, matrix.shape[0], unit, float(get("beta", 1.0)))
    return _matrix(context, matrix, scales, zero, bias, "Gemm")


def matmul(context: NodeContext) -> Pending:
    """MatMul of an activation with a constant matrix."""
    if isinstance(context.values[1], Real):
        raise ModelError(f"{context.label}: '{context.names[1]}' must be a constant matrix")
    matrix, scales, zero = weight_codes(context, 1)
    if matrix.ndim != 2:
        raise ModelError(f"{context.label}: '{context.names[1]}' must be a matrix, not {matrix.shape}")
    bias = np.zeros(matrix.shape[1], dtype=np.int64)
    return _matrix(context, np.ascontiguousarray(matrix.T), scales, zero, bias, "MatMul")


def pool(context: NodeContext, method: Literal["max", "average"], whole: bool) -> Pending:
    channels, height, width = context.map_shape()
    get = context.attributes.get
    if len(context.node.output) > 1 and context.node.output[1]:
        raise ModelError(f"{context.label}: the index output is not supported")
    kernel = (height, width) if whole else tuple(int(k) for k in get("kernel_shape", ()))
    window = _window(context, kernel, height, width)  # type: ignore[arg-type]
    if window.dilations != (1, 1):
        raise ModelError(f"{context.label}: dilated pooling is not supported")
    ceil = bool(int(get("ceil_mode", 0)))
    oh, ow = _sized(context, window.output(height, width, ceil))
    count_pad = bool(int(get("count_include_pad", 0)))
    last = ((oh - 1) * window.strides[0] + kernel[0], (ow - 1) * window.strides[1] + kernel[1])
    past = (last[0] - window.pads[0] - height, last[1] - window.pads[1] - width)
    if method == "average" and count_pad and (past[0] > window.pads[2] or past[1] > window.pads[3]):
        raise ModelError(f"{context.label}: ceil_mode averages past the padding are not supported")
    tensor = context.tensor(0)
    cube = (channels, oh, ow)

    def build(output: str, clamp: Clamp) -> Pool:
        return Pool(context.name, (tensor.name,), output, method, window, count_pad, whole, clamp=clamp)

    shape: Shape = (1, *cube)
    return Pending(build, shape, cube)
