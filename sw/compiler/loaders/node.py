"""Nodes of both file formats: their attributes and constants in the notation of the graph.

A `FileNode` reads an operator in its format's notation; `rkcosim.compiler.loaders.operators` makes operations
of nodes of both formats.  Shapes of activations have the channels first, also for TFLite: (1, C, H, W),
(M, K), (1, M, K) or (K,).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.tensors import tensor_shape, tensor_size
from rkcosim.compiler.graph import Clamp, Graph, ModelError, Op, Tensor, Window
from rkcosim.compiler.host_steps import REAL_FUNCTIONS
from rkcosim.compiler.resampling import Sampling
from rkcosim.hostops.quantise import coded

RepeatMode = Literal["reflect", "symmetric", "edge", "wrap"]
"""Elements that a padding repeats, as numpy.pad names them."""

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


class FileNode(ABC):
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
    def made(self, index: int, shape: Shape, line: bool = False) -> Tensor:
        """Add output `index` of a node that moves elements to the graph; `line` is as `is_line`."""

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
    def repeated_padding(self) -> tuple[RepeatMode, list[int], list[int]] | None:
        """Return how a padding repeats elements, and its sizes before and after each axis of a map.

        None for a padding with a constant.
        """

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
        """Return coordinate mode and result's shape of a bilinear resize; None for others."""

    def sampled(self, x: Tensor) -> tuple[Sampling, Sampling, Shape] | None:
        """Return the places of rows and columns and the result's shape of a resize; None for a nearest one.

        It is asked after `linear`.
        """
        return None

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
        constant, name = self.constant(1), self.names[1] if len(self.names) > 1 else "?"
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
        if weights.ndim <= axis:
            raise self.wrong(f"weights '{name}' {weights.shape} have too few dimensions")
        if not np.isfinite(weights).all():
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
        axis = channel_axis(like)
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
    codes = (constant.array.astype(np.int16) - shift).astype(np.int8) if unsigned else constant.array
    return codes, constant.zero.astype(np.int64).reshape(-1) - shift, unsigned


def natural_cube(shape: Shape, what: str) -> Cube:
    """Return the cube (C, H, W) in which the NPU keeps a tensor of `shape`.

    (1, C, H, W) has the cube (C, H, W); (M, K) and (1, M, K) have K channels of M rows of one pixel.

    Raises
    ------
    ModelError
        If the batch is larger than one or the number of dimensions is unsupported; `what` names the tensor.
    """
    tensor_size(what, shape)
    if len(shape) == 4 and shape[0] == 1:
        return shape[1], shape[2], shape[3]
    if len(shape) == 3 and shape[0] == 1:
        return shape[2], shape[1], 1
    if len(shape) == 2:
        return shape[1], shape[0], 1
    if len(shape) == 1:
        return shape[0], 1, 1
    raise tensor_shape.error(what, shape)


def is_line(tensor: Tensor) -> bool:
    """Whether a tensor (1, C, L) is stored as C channels of one row, as convolutions along a line use it."""
    return on_line(tensor.shape, tensor.cube)


def on_line(shape: Shape, cube: Cube) -> bool:
    """Whether a cube has a shape (1, C, L) as C channels of one row of L pixels."""
    plain = len(shape) != 3 or shape[0] != 1 or (shape[2], shape[1], 1) == cube
    return not plain and cube == line_cube(shape)


def line_cube(shape: Shape) -> Cube:
    """Return the cube of a shape (1, C, L) with C channels of one row."""
    return shape[1], 1, shape[2]


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
    table = coded(values / y.scale, y.zero_point, np.int8)
    return g.Lookup(name, (x.name,), y.name, table, kind)


def channel_axis(tensor: Tensor) -> int:
    rows = g.in_rows(tensor.shape, tensor.cube)
    return 1 if is_line(tensor) or (len(tensor.shape) == 4 and not rows) else len(tensor.shape) - 1
