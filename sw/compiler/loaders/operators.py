"""Operators that both file formats have, as operations of the graph.

A `Node` reads attributes and constants in its format's notation; the operators built from them are common
to both formats.  Shapes of activations have the channels first, also for TFLite: (1, C, H, W), (M, K),
(1, M, K) or (K,).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import MAX_ELEMENTS, BinaryMethod, Clamp, Graph, ModelError, Op, Tensor, Window
from rkcosim.compiler.host_steps import PARAMETERS, REAL_FUNCTIONS

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Cube = tuple[int, int, int]
Weights = tuple[Array, npt.NDArray[np.float64], int]
"""Signed codes (or floats), one scale per kernel, and the zero point in the signed domain."""


@dataclass(frozen=True)
class Constant:
    """A constant array with its quantisation: scales and zero points along `axis`, or one of each."""

    array: Array
    scale: npt.NDArray[np.float64] | None = None
    zero: Array | None = None
    axis: int = 0

    def _spread(self, values: Array) -> Array:
        if values.size == 1:
            return values.reshape(())
        dimensions = self.array.shape
        if not -len(dimensions) <= self.axis < len(dimensions) or values.size != dimensions[self.axis]:
            raise ModelError(
                f"{values.size} scales or zero points along axis {self.axis} do not fit a constant of shape "
                f"{list(dimensions)}"
            )
        shape = [1] * len(dimensions)
        shape[self.axis] = -1
        return values.reshape(shape)

    def real(self) -> Array:
        """Return the real numbers (the array itself if it is not quantised)."""
        if self.scale is None or self.zero is None:
            return self.array
        codes = self.array.astype(np.int64) - self._spread(self.zero).astype(np.int64)
        return codes * self._spread(self.scale)


@dataclass(frozen=True)
class Pending:
    """An operation whose output tensor is not known yet: an op to complete, or a function that makes it."""

    op: Op | Callable[[Tensor, Clamp], Op]
    shape: Shape
    cube: Cube
    clamp: Clamp = field(default=Clamp())
    clampable: bool = True
    """Whether a following Relu or Clip can be merged into it."""
    real: bool = False
    """Whether it computes fp16 numbers, so that its result needs no quantisation."""

    def finish(self, output: Tensor) -> Op:
        """Return the operation, writing the tensor `output`."""
        if isinstance(self.op, Op):
            return replace(self.op, output=output.name, clamp=self.clamp)
        return self.op(output, self.clamp)


@dataclass(frozen=True)
class Kernel:
    """Weights (OC, IC/groups, kh, kw), scales (OC,), window, and size (rows, columns) of the result."""

    weights: Array
    scales: npt.NDArray[np.float64]
    zero: int
    window: Window
    size: tuple[int, int]
    groups: int = 1
    insert: tuple[int, int] = (1, 1)


class Node(ABC):
    """One operator of a file: its name in messages, the graph, and the names of its inputs."""

    layout = "(1, C, H, W)"
    floats = False
    """Whether the node computes in floating point."""
    data = 0
    """Index of the activation among the inputs."""

    def __init__(self, label: str, name: str, kind: str, graph: Graph, names: list[str]) -> None:
        self.label, self.name, self.kind, self.graph, self.names = label, name, kind, graph, names
        self.attributes: dict[str, Any] = {}
        self.outputs: Sequence[object] = ()

    def wrong(self, text: str) -> ModelError:
        """Return an error that names this node."""
        return ModelError(f"{self.label}: {text}")

    @abstractmethod
    def input(self, index: int = 0) -> Tensor:
        """Return input `index`, which must be an activation, with the shape that the node sees."""

    @abstractmethod
    def constant(self, index: int) -> Constant | None:
        """Return input `index`, which must be a constant or absent (None)."""

    @abstractmethod
    def is_constant(self, index: int) -> bool:
        """Whether input `index` is not an activation."""

    @abstractmethod
    def made(self, index: int, shape: Shape) -> Tensor:
        """Add output `index` of a node that moves elements to the graph."""

    @abstractmethod
    def kernel(self, x: Tensor) -> Kernel:
        """Return weights and window of a convolution of `x`, plain or transposed."""

    @abstractmethod
    def matrix(self) -> tuple[Tensor, Weights]:
        """Return input and weights (N, K) of a matrix product; elements of maps are in C, H, W order."""

    @abstractmethod
    def bias(self, unit: npt.NDArray[np.float64]) -> Array:
        """Return the bias of each channel in units of input scale * weight scale."""

    @abstractmethod
    def second(self, index: int, first: Tensor) -> str:
        """Return the name of activation `index`, which is combined element by element with `first`."""

    @abstractmethod
    def pooling(self, x: Tensor, average: bool, whole: bool) -> tuple[Window, tuple[int, int], bool, bool]:
        """Return window, output size, whether padding counts, and whether the window is the whole map."""

    @abstractmethod
    def reduced(self, shape: Shape) -> tuple[set[int], bool]:
        """Return the axes of a reduction, and whether they remain as dimensions of size 1.

        TFLite's output has its own shape, with the same bytes.
        """

    @abstractmethod
    def slopes(self, x: Tensor) -> Array:
        """Return the slopes of negative numbers: one, or one per channel."""

    @abstractmethod
    def axis(self, shape: Shape) -> int:
        """Return the axis of a concatenation, in 0 .. len(shape) - 1."""

    @abstractmethod
    def parts(self) -> tuple[int, int, list[int]]:
        """Return input, axis and sizes of a split."""

    @abstractmethod
    def bounds(self, shape: Shape) -> tuple[list[int], list[int], Shape]:
        """Return first elements, steps and sizes of a slice along each axis."""

    @abstractmethod
    def padding(self, x: Tensor) -> tuple[list[int], list[int], float | None]:
        """Return the padding before and after each axis, and its code or number (None: real zero)."""

    @abstractmethod
    def order(self, shape: Shape) -> tuple[dict[str, Any], Shape]:
        """Return attributes of the host's Rearrange for a transposition, and the shape of its result."""

    @abstractmethod
    def picks(self, x: Tensor) -> tuple[list[tuple[int, ...]], Shape]:
        """Return the rows and columns that a nearest resize takes, and the shape of its result."""

    def blocks(self) -> tuple[int, bool]:
        """Return the side of the blocks of DepthToSpace or SpaceToDepth, and whether channels vary slowest.

        The attributes have the same names in both formats' documentation.
        """
        mode = self.attributes.get("mode", b"DCR")
        return int(self.attributes.get("blocksize", self.attributes.get("BlockSize", 0))), mode == b"CRD"

    def approximate(self) -> bool:
        """Whether a Gelu is the approximation with tanh."""
        value = self.attributes.get("approximate", self.attributes.get("Approximate", b"none"))
        return value in (b"tanh", True, 1)

    @abstractmethod
    def linear(self, x: Tensor) -> tuple[g.BilinearForm, Shape] | None:
        """Return coordinate mode and result's shape of a bilinear resize; None for a nearest one."""

    def view(self, index: int = 0) -> str:
        """Return the name of activation `index` with the shape that the node sees."""
        return self.input(index).name

    def settled(self, index: int = 0) -> str:
        """Return the name of activation `index`, stored in the natural cube of its shape."""
        return self.input(index).name

    def map_input(self) -> Tensor:
        """Return the activation, which must be a map of four dimensions."""
        x = self.input(self.data)
        if len(x.shape) != 4 or x.shape != (1, *x.cube):
            raise self.wrong(f"input '{self.names[self.data]}' {x.shape} is not {self.layout}")
        return x

    def map_shape(self, cube: Cube) -> Shape:
        """Return the shape of a map that an operator computes from `map_input`."""
        return (1, *cube)

    def weights(self, axis: int) -> Weights:
        """Return input 1 as weights, with one scale per entry of `axis`."""
        constant, name = self.constant(1), self.names[1]
        if constant is None or constant.scale is None or constant.zero is None:
            raise self.wrong(f"weights '{name}' are not quantised")
        if constant.array.dtype not in (np.int8, np.uint8):
            raise self.wrong(f"weights '{name}' are {constant.array.dtype}, not 8 bit")
        codes, zeros, _ = _signed(constant)
        if np.unique(zeros).size != 1 or not -128 <= zeros[0] <= 127:
            raise self.wrong(
                f"weights '{name}' have the zero points {constant.zero.reshape(-1).tolist()[:8]}"
            )
        if codes.ndim <= axis:
            raise self.wrong(f"weights '{name}' {codes.shape} have too few dimensions")
        count, along = codes.shape[axis], constant.axis in (axis, axis - codes.ndim)
        if constant.scale.size != 1 and not (along and constant.scale.size == count):
            raise self.wrong(f"weights '{name}' have scales on axis {constant.axis}, not {axis}")
        return codes, np.broadcast_to(constant.scale.reshape(-1), (count,)).copy(), int(zeros[0])

    def real_weights(self, axis: int) -> Weights:
        """Return input 1 as float32 weights; quantised ones are converted to real numbers."""
        constant, name = self.constant(1), self.names[1]
        if constant is None:
            raise self.wrong("the weights are missing")
        weights = np.asarray(constant.real(), dtype=np.float32)
        if not weights.ndim > axis or not np.isfinite(weights).all():
            raise self.wrong(f"weights '{name}' {weights.shape} are not all finite")
        return weights, np.ones(weights.shape[axis]), 0

    def real_codes(self, index: int) -> npt.NDArray[np.float16]:
        """Return a constant operand as fp16 numbers."""
        constant, name = self.constant(index), self.names[index]
        if constant is None:
            raise self.wrong(f"input {index} is missing")
        with np.errstate(over="ignore"):
            halves = np.asarray(constant.real()).astype(np.float16)
        if not np.isfinite(halves).all():
            raise self.wrong(f"constant '{name}' is outside the range of fp16")
        return halves

    def codes(self, index: int) -> tuple[Array, float, int, bool]:
        """Return a constant operand: elements, scale, signed zero point, and whether it was unsigned."""
        constant, name = self.constant(index), self.names[index]
        if constant is None or constant.scale is None or constant.zero is None or constant.scale.size != 1:
            raise self.wrong(f"constant '{name}' is not quantised with one scale")
        if constant.array.dtype not in (np.int8, np.uint8):
            raise self.wrong(f"constant '{name}' is {constant.array.dtype}, not 8 bit")
        codes, zeros, unsigned = _signed(constant)
        return codes, float(constant.scale.reshape(-1)[0]), int(zeros[0]), unsigned

    def operand(self, index: int, first: Tensor) -> str:
        """Return the name of the second operand of an element-wise operation; add a constant to the graph."""
        if not self.is_constant(index):
            return self.second(index, first)
        codes, scale, zero, unsigned = self.codes(index)
        return self.add_constant(index, self.spread(codes, index, first), scale, zero, unsigned)

    def add_constant(
        self, index: int, cube: Array, scale: float, zero: int = 0, unsigned: bool = False
    ) -> str:
        """Add a constant cube that stands for input `index` to the graph and return its name."""
        key = f"{self.names[index]}@{self.name}"
        size = (cube.shape[0], cube.shape[1], cube.shape[2])
        self.graph.tensors[key] = Tensor(key, (1, *size), scale, zero, size, unsigned, real=self.floats)
        self.graph.constants[key] = np.ascontiguousarray(cube)
        return key

    def spread(self, codes: Array, index: int, like: Tensor) -> Array:
        """Broadcast a constant to the cube of `like`, or to (C, 1, 1) if it has one value per channel."""
        if is_line(like):
            like = replace(like, shape=(1, *like.cube))
            codes = np.expand_dims(codes, -2) if codes.ndim > 1 else codes
        channels, height, _ = like.cube
        axis = _channel_axis(like)
        try:
            wide = codes.reshape((1,) * (len(like.shape) - codes.ndim) + codes.shape)
            if wide.ndim != len(like.shape):
                raise ValueError("more dimensions")
            spread = np.broadcast_to(wide, like.shape)
            if wide.size == wide.shape[axis] and wide.size in (1, channels):
                return np.broadcast_to(wide.reshape(-1), (channels,)).reshape(channels, 1, 1)
            if g.in_rows(like.shape, like.cube):
                return g.to_cube(spread, like)
            if like.cube == natural_cube(like.shape, self.label) and len(like.shape) < 4:
                spread = spread.reshape(height, channels).T
            return spread.reshape(like.cube)
        except ValueError as error:
            raise self.wrong(f"'{self.names[index]}' {codes.shape} does not fit {like.shape}") from error

    def on_host(self, function: str, x: str, y: Tensor, name: str = "", **attributes: Any) -> Tensor:
        """Append an operation in which the host computes `y`."""
        op = g.OnHost(name or self.name, (x,), y.name, function=function, attributes=attributes)
        self.graph.ops.append(op)
        return y


Made = Pending | Tensor | list[Tensor]


def _signed(constant: Constant) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64], bool]:
    """Return codes and zero points in the signed domain, and whether those of the file are unsigned."""
    assert constant.zero is not None
    unsigned = constant.array.dtype == np.uint8
    shift = 128 if unsigned else 0
    codes = (constant.array.astype(np.int64) - shift).astype(np.int8)
    return codes, constant.zero.astype(np.int64).reshape(-1) - shift, unsigned


def natural_cube(shape: Shape, what: str) -> Cube:
    """Return the cube (C, H, W) in which the NPU keeps a tensor of `shape`.

    (1, C, H, W) has the cube (C, H, W); (M, K) and (1, M, K) have K channels of M rows of one pixel.

    Raises
    ------
    ModelError
        If the batch is larger than one or the number of dimensions is unsupported; `what` names the tensor.
    """
    if min(shape, default=1) < 1 or math.prod(shape) > MAX_ELEMENTS:
        raise ModelError(f"{what}: shape {shape} is not supported")
    if len(shape) == 4 and shape[0] == 1:
        return shape[1], shape[2], shape[3]
    if len(shape) == 3 and shape[0] == 1:
        return shape[2], shape[1], 1
    if len(shape) == 2:
        return shape[1], shape[0], 1
    if len(shape) == 1:
        return shape[0], 1, 1
    raise ModelError(f"{what}: shape {shape} is not supported; use (1, C, H, W) or (M, K)")


def is_line(tensor: Tensor) -> bool:
    """Whether a tensor (1, C, L) is stored as C channels of one row, as convolutions along a line use it."""
    shape = tensor.shape
    return len(shape) == 3 and tensor.cube == (shape[1], 1, shape[2]) and shape[1] > 1


def same_pads(
    size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[int, int, int, int]:
    """Padding for an output of ceil(size / stride); an odd row or column goes below or to the right."""
    total = [
        max((-(-n // step) - 1) * step + (taps - 1) * dilation + 1 - n, 0)
        for n, taps, step, dilation in zip(size, kernel, strides, dilations, strict=True)
    ]
    return total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2


def lookup(
    name: str,
    kind: str,
    x: Tensor,
    y: Tensor,
    clamp: Clamp | None = None,
    slope: float = 0.2,
    offset: float = 0.5,
) -> g.Lookup:
    """Table of a function from x's codes to y's codes: `sat8(rint(f(real) / scale) + zero)`.

    Parameters
    ----------
    name, kind
        Name and kind of the operation; `kind` is a key of `rkcosim.compiler.host_steps.REAL_FUNCTIONS`.
    x, y
        Input and output tensor; their scales and zero points are used.
    clamp
        Limits of the function's value.
    slope, offset
        Parameters of the function.
    """
    limits = clamp or Clamp()
    with np.errstate(all="ignore"):
        values = REAL_FUNCTIONS[kind]((np.arange(-128, 128) - x.zero_point) * x.scale, slope, offset)
        values = np.clip(np.nan_to_num(values, posinf=np.inf, neginf=-np.inf), limits.low, limits.high)
    table = np.clip(np.rint(values / y.scale) + y.zero_point, -128, 127).astype(np.int8)
    return g.Lookup(name, (x.name,), y.name, table, kind)


def _conv(node: Node, source: str = "Conv") -> Pending:
    x = node.map_input()
    k = node.kernel(x)
    bias = node.bias(x.scale * k.scales)
    op = g.Conv(
        node.name, (x.name,), "", k.weights, k.scales, k.zero, bias, k.window, k.groups, source, k.insert
    )
    cube = (len(k.weights), *k.size)
    return Pending(op, node.map_shape(cube), cube)


def _product(node: Node, source: str) -> Pending:
    """Product with a matrix (N, K): a 1x1 convolution, or one whose kernel covers the whole map."""
    x, (matrix, scales, zero) = node.matrix()
    count, depth = matrix.shape
    channels, height, width = x.cube
    if depth not in (channels, x.elements):
        raise node.wrong(f"input '{node.names[0]}' {x.shape} times depth {depth}")
    kernel, rows = ((1, 1), (height, width)) if depth == channels else ((height, width), (1, 1))
    weights = np.ascontiguousarray(matrix).reshape(count, channels, *kernel)
    bias = node.bias(x.scale * scales)
    op = g.Conv(node.name, (x.name,), "", weights, scales, zero, bias, Window(kernel), source=source)
    return Pending(op, (*x.shape[:-1], count), (count, *rows))


def _binary(node: Node, method: BinaryMethod) -> Pending:
    """Element-wise operation on two operands; one may be smaller or constant."""
    if len(node.names) != 2:
        raise node.wrong(f"{len(node.names)} operands; two are supported")
    sizes = [-1 if node.is_constant(index) else math.prod(node.input(index).shape) for index in range(2)]
    if max(sizes) < 0:
        raise node.wrong("both operands are constants")
    first = sizes.index(max(sizes))
    x = node.input(first)
    if node.floats and method in ("add", "sub", "mul") and node.is_constant(1 - first):
        affine = _affine(node, method, x, first)
        if affine is not None:
            return affine
    if first and method in ("sub", "div"):
        method = _turned(node, method)
    return Pending(
        g.Binary(node.name, (x.name, node.operand(1 - first, x)), "", method=method), x.shape, x.cube
    )


def _turned(node: Node, method: BinaryMethod) -> BinaryMethod:
    """Return the method with its operands exchanged."""
    if method == "sub":
        return "rsub"
    raise node.wrong(f"'{node.names[0]}' is smaller than the operand that divides it")


def _affine(node: Node, method: BinaryMethod, x: Tensor, first: int) -> Pending | None:
    """Sum or product with constant real numbers, one or one per channel; None for other constants."""
    constant = node.constant(1 - first)
    if constant is None:
        return None
    numbers = np.asarray(constant.real(), dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise node.wrong(f"constant '{node.names[1 - first]}' is not all finite")
    spread = node.spread(numbers, 1 - first, x)
    if spread.shape != (x.cube[0], 1, 1):
        return None
    values = np.unique(spread) if np.unique(spread).size == 1 else spread.reshape(-1)
    one, zero = np.ones(1), np.zeros(1)
    scale, shift = (values, zero) if method == "mul" else (one, values)
    if method == "sub":
        scale, shift = (-one, values) if first else (one, -values)
    return Pending(g.Affine(node.name, (x.name,), "", scale, shift), x.shape, x.cube)


def _divide(node: Node) -> Pending:
    """Division: by a constant as a product with its reciprocals, of floats also by a tensor."""
    if len(node.names) != 2 or not node.is_constant(1):
        if not node.floats:
            raise node.wrong("bytes can be divided only by a constant")
        return _binary(node, "div")
    x, constant = node.input(0), node.constant(1)
    assert constant is not None
    numbers = np.asarray(constant.real(), dtype=np.float64)
    if not np.isfinite(numbers).all() or not numbers.all():
        raise node.wrong(f"'{node.names[1]}' has zeros or is not all finite")
    spread = node.spread(1.0 / numbers, 1, x)
    values = np.unique(spread)
    if node.floats:
        if spread.shape != (x.cube[0], 1, 1):
            raise node.wrong("floats can be divided by a tensor, a number, or one for each channel")
        scale = values if values.size == 1 else spread.reshape(-1)
        return Pending(g.Affine(node.name, (x.name,), "", scale, np.zeros(1)), x.shape, x.cube)
    if values.size != 1:
        raise node.wrong("bytes can be divided only by one number")
    name = node.add_constant(
        *(1, np.full((x.cube[0], 1, 1), 127 * np.sign(values[0]), np.int8), abs(values[0]) / 127)
    )
    return Pending(g.Binary(node.name, (x.name, name), "", method="mul"), x.shape, x.cube)


def _pool(node: Node, method: Literal["max", "average"], whole: bool = False) -> Pending:
    x = node.map_input()
    window, size, count_pad, whole = node.pooling(x, method == "average", whole)
    cube = (x.cube[0], *size)
    op = g.Pool(node.name, (x.name,), "", method, window, count_pad, whole)
    return Pending(op, node.map_shape(cube), cube)


def _reduce(node: Node, method: Literal["mean", "sum", "max"]) -> Pending:
    """Mean or maximum over rows, columns or both; mean or sum over channels as a product with ones."""
    x = node.input()
    axes, keep = node.reduced(x.shape)
    if axes == {_channel_axis(x)} and method != "max":
        if not keep or x.cube != natural_cube(x.shape, node.label):
            raise node.wrong("a reduction of the channels that removes their dimension is not supported")
        return _channel_sum(node, x, 1.0 if method == "sum" else 1.0 / x.cube[0])
    x = node.map_input()
    if not axes or not axes <= {2, 3} or method == "sum":
        raise node.wrong(f"a {method} over the axes {sorted(axes)} of {x.shape} is not supported")
    if not keep and axes != {2, 3}:
        raise node.wrong(f"a {method} that removes one of the axes {sorted(axes)} is not supported")
    channels, *size = x.cube
    kernel = tuple(n if axis in axes else 1 for axis, n in zip((2, 3), size, strict=True))
    whole = axes == {2, 3}
    cube = (channels, size[0] // kernel[0], size[1] // kernel[1])
    pooled: Literal["max", "average"] = "max" if method == "max" else "average"
    op = g.Pool(node.name, (x.name,), "", pooled, Window((kernel[0], kernel[1])), whole=whole)
    return Pending(op, (1, *cube) if keep else (1, channels), cube)


def _channel_axis(tensor: Tensor) -> int:
    rows = g.in_rows(tensor.shape, tensor.cube)
    return 1 if len(tensor.shape) == 4 and not rows else len(tensor.shape) - 1


def _channel_sum(node: Node, x: Tensor, factor: float) -> Pending:
    """Sum of the channels times a factor: a convolution with one kernel of ones."""
    shape, axis = list(x.shape), _channel_axis(x)
    shape[axis] = 1
    cube = (1, *x.cube[1:])
    weights: Array = np.ones((1, x.cube[0], 1, 1), dtype=np.int8)
    bias: Array = np.zeros(1, dtype=np.int64)
    scales = np.full(1, factor)
    if node.floats:
        weights, bias = weights.astype(np.float32) * np.float32(factor), bias.astype(np.float32)
    op = g.Conv(node.name, (x.name,), "", weights, scales, 0, bias, Window((1, 1)), source=node.kind)
    return Pending(op, tuple(shape), cube)


def _function(node: Node, kind: str) -> Pending:
    """Function of one number: a table for bytes, tables and stages of the DPU for floats."""
    x = node.input()
    named = PARAMETERS.get(kind, (("", 0.0), ("", 0.0)))
    alpha, beta = (float(node.attributes.get(name, default)) for name, default in named)
    if kind == "Gelu" and node.approximate():
        alpha = 1.0
    if node.floats:
        return Pending(g.RealFunction(node.name, (x.name,), "", kind, alpha, beta), x.shape, x.cube)

    def table(output: Tensor, clamp: Clamp) -> Op:
        return lookup(node.name, kind, x, output, clamp, alpha, beta)

    return Pending(table, x.shape, x.cube)


def _slope(node: Node) -> Pending:
    x = node.input()
    slopes = node.slopes(x)
    if not np.isfinite(slopes).all():
        raise node.wrong("slopes are not all finite")
    return Pending(g.Slope(node.name, (x.name,), "", slopes.reshape(-1)), x.shape, x.cube)


def _cube_axis(node: Node, shape: Shape, axis: int) -> int:
    """Axis of the cube (0 channels, 1 rows, 2 columns) for an axis of a shape; the batch axis is an error."""
    places = {4: {1: 0, 2: 1, 3: 2}, 3: {1: 1, 2: 0}, 2: {0: 1, 1: 0}, 1: {0: 0}}.get(len(shape), {})
    if axis not in places:
        raise node.wrong(f"axis {axis} of {shape} is not supported")
    return places[axis]


def _concat(node: Node) -> Pending:
    shapes = [node.input(index).shape for index in range(len(node.names))]
    if not shapes:
        raise node.wrong("it has no inputs")
    whole = list(shapes[0])
    axis = node.axis(shapes[0])
    place = _cube_axis(node, shapes[0], axis)
    names = []
    for index, shape in enumerate(shapes):
        if len(shape) != len(whole) or (*shape[:axis], *shape[axis + 1 :]) != (
            *whole[:axis],
            *whole[axis + 1 :],
        ):
            raise node.wrong(f"'{node.names[index]}' {shape} does not fit {shapes[0]}")
        names.append(node.settled(index))
    whole[axis] = sum(shape[axis] for shape in shapes)
    cube = natural_cube(tuple(whole), node.label)
    return Pending(g.Concat(node.name, tuple(names), "", place), tuple(whole), cube, clampable=False)


def _part(
    node: Node, source: int, index: int, starts: Sequence[int], steps: Sequence[int], shape: Shape
) -> Tensor:
    """Make output `index`: elements of input `source` from `starts` on, `steps` apart along each axis."""
    x, settled, y = node.input(source), node.settled(source), node.made(index, shape)
    begin, strides = [0, 0, 0], [1, 1, 1]
    for axis, (start, step, size, count) in enumerate(zip(starts, steps, x.shape, shape, strict=True)):
        if start < 0 or start + (count - 1) * step >= size:
            raise node.wrong(f"'{y.name}' reaches past '{x.name}' {x.shape}")
        if size != count or start or step != 1:
            place = _cube_axis(node, x.shape, axis)
            begin[place], strides[place] = start, step
    name = node.name if len(node.outputs) == 1 else y.name
    steps = (strides[0], strides[1], strides[2])
    node.graph.ops.append(g.Slice(name, (settled,), y.name, (begin[0], begin[1], begin[2]), steps))
    return y


def _split(node: Node) -> list[Tensor]:
    source, axis, sizes = node.parts()
    shape = node.input(source).shape
    if len(sizes) != len(node.outputs) or min(sizes) < 1 or sum(sizes) != shape[axis]:
        raise node.wrong(f"{sizes} of {shape} along axis {axis}")
    made: list[Tensor] = []
    for index, size in enumerate(sizes):
        starts, part = [0] * len(shape), list(shape)
        starts[axis], part[axis] = sum(sizes[:index]), size
        made.append(_part(node, source, index, starts, [1] * len(shape), tuple(part)))
    return made


def _slice(node: Node) -> Tensor:
    return _part(node, 0, 0, *node.bounds(node.input().shape))


def _pad(node: Node) -> Tensor:
    x = node.map_input()
    before, after, code = node.padding(x)
    if min(*before, *after) < 0 or before[0] or after[0]:
        raise node.wrong(f"pads {before + after} are not supported")
    source = node.settled()
    y = node.made(0, tuple(n + a + b for n, a, b in zip(x.shape, before, after, strict=True)))
    pads = (before[2], before[3], after[2], after[3])
    node.graph.ops.append(g.Pad(node.name, (source,), y.name, pads, (before[1], after[1]), code))
    return y


def _transpose(node: Node) -> Tensor:
    attributes, shape = node.order(node.input().shape)
    return node.on_host("Rearrange", node.view(), node.made(0, shape), **attributes)


def _resize(node: Node) -> Tensor:
    """Nearest resize (whole factors on the NPU, others on the host) or bilinear resize by whole factors."""
    x = node.map_input()
    linear = node.linear(x)
    if linear is not None:
        form, shape = linear
        source, y = node.settled(), node.made(0, shape)
        node.graph.ops.append(g.Bilinear(node.name, (source,), y.name, form))
        return y
    picks, shape = node.picks(x)
    source, y = node.settled(), node.made(0, shape)
    factors = y.cube[1] // x.cube[1], y.cube[2] // x.cube[2]
    if picks == [tuple(np.arange(n).repeat(f).tolist()) for n, f in zip(x.cube[1:], factors, strict=True)]:
        node.graph.ops.append(g.Upsample(node.name, (source,), y.name, factors))
        return y
    return node.on_host("Pick", source, y, rows=picks[0], columns=picks[1])


def _blocks(node: Node, inward: bool) -> Tensor:
    """DepthToSpace or SpaceToDepth (`inward`)."""
    x = node.map_input()
    size, channel_first = node.blocks()
    channels, height, width = x.cube
    area = size * size
    if size < 1 or (inward and (height % size or width % size)) or (not inward and channels % area):
        raise node.wrong(f"blocks of {size} x {size} do not divide {x.cube}")
    cube = (channels * area, height // size, width // size)
    if not inward:
        cube = (channels // area, height * size, width * size)
    source, y = node.settled(), node.made(0, (1, *cube))
    node.graph.ops.append(g.Blocks(node.name, (source,), y.name, size, inward, channel_first))
    return y


Builder = Callable[[Any], Made]
OPERATORS: dict[str, Builder] = {
    "Conv": _conv,
    "ConvTranspose": partial(_conv, source="ConvTranspose"),
    **{kind: partial(_product, source=kind) for kind in ("Gemm", "MatMul", "FullyConnected")},
    **{method.capitalize(): partial(_binary, method=method) for method in get_args(BinaryMethod)[:5]},
    "MaxPool": partial(_pool, method="max"),
    "AveragePool": partial(_pool, method="average"),
    "GlobalMaxPool": partial(_pool, method="max", whole=True),
    "GlobalAveragePool": partial(_pool, method="average", whole=True),
    **{f"Reduce{how.capitalize()}": partial(_reduce, method=how) for how in ("mean", "sum", "max")},
    "LeakyRelu": _slope,
    "PRelu": _slope,
    **{kind: partial(_function, kind=kind) for kind in REAL_FUNCTIONS if kind not in ("LeakyRelu", "Clip")},
    "Div": _divide,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Transpose": _transpose,
    "Resize": _resize,
    "Upsample": _resize,
    "DepthToSpace": partial(_blocks, inward=False),
    "SpaceToDepth": partial(_blocks, inward=True),
}
"""Operators by ONNX's name; "FullyConnected" is TFLite's."""
