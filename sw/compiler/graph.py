"""The network as the loaders pass it to the compiler: quantised tensors and operations.

A tensor holds real numbers `scale * (q - zero_point)`, where q is a signed byte.  The loaders shift
unsigned bytes of a model by 128; only `Tensor.unsigned` keeps the fact that the model's bytes are unsigned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rkcosim.base import Error
from rkcosim.hostops.geometry import Sliding

MAX_ELEMENTS = 2**26
"""Largest number of elements of a tensor; a larger shape is taken for an error in the file."""


MOST_CUSTOM = 1023
"""Bytes of `Graph.custom_string`: rknn_custom_string of rknn_api.h has 1024 with the null at the end."""


class ModelError(Error, ValueError):
    """The model cannot be read or run; the message names node and tensor."""


@dataclass(frozen=True)
class Tensor:
    """A quantised activation.

    `shape` is the model's shape; `cube` is (C, H, W) as the NPU stores it.  They differ after a Flatten:
    then the elements of `shape` are those of the cube in C, H, W order, or in H, W, C order if
    `channels_last` is set (a flattened TFLite tensor).  Four dimensions are N, C, H, W, unless all but the
    last one are rows of matrices (`in_rows`).
    """

    name: str
    shape: tuple[int, ...]
    scale: float
    zero_point: int
    cube: tuple[int, int, int]
    unsigned: bool = False
    channels_last: bool = False
    real: bool = False
    """Whether elements are fp16 numbers instead of codes (scale is 1 and zero point 0)."""
    host: str = ""
    """Element type of a tensor that only the host keeps, as an array of `shape`; "" for all others.

    Such a tensor may have any number of dimensions; its cube is (elements, 1, 1)."""
    open: bool = False
    """Whether the shape of a tensor of the host depends on the data; `shape` is then that of one run."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element in device memory, or of the host's array."""
        return self.dtype.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element of the cube: float16 or int8; for a tensor of the host, that of its array."""
        return np.dtype(self.host or (np.float16 if self.real else np.int8))

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """Shape in which its elements are kept: the cube, or `shape` for a tensor of the host."""
        return self.shape if self.host else self.cube

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.cube)

    def same_values(self, other: Tensor) -> bool:
        """Whether equal bytes mean equal numbers in both tensors."""
        return self.scale == other.scale and self.zero_point == other.zero_point


def host_tensor(
    name: str,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    scale: float = 1.0,
    zero_point: int = 0,
    open: bool = False,
) -> Tensor:
    """Return a tensor that only the host keeps; scale and zero point are those of codes.

    Raises
    ------
    ModelError
        If a dimension is negative or the tensor is too large.
    """
    elements = math.prod(shape)
    if min(shape, default=0) < 0 or elements > MAX_ELEMENTS:
        raise ModelError(f"tensor '{name}': shape {shape} is not supported")
    kind = np.dtype(dtype).name
    return Tensor(name, tuple(shape), scale, zero_point, (elements, 1, 1), host=kind, open=open)


def to_cube(codes: npt.NDArray[Any], tensor: Tensor) -> npt.NDArray[Any]:
    """Return the cube (C, H, W) of an array in the tensor's shape; the array itself for one of the host."""
    if tensor.host:
        return codes if tensor.open else codes.reshape(tensor.shape)
    if channels_last(tensor):
        channels, height, width = tensor.cube
        return np.ascontiguousarray(codes.reshape(height, width, channels).transpose(2, 0, 1))
    return codes.reshape(tensor.cube)


def from_cube(cube: npt.NDArray[Any], tensor: Tensor) -> npt.NDArray[Any]:
    """Return the array in the tensor's shape; the inverse of `to_cube`."""
    if tensor.host:
        return cube if tensor.open else cube.reshape(tensor.shape)
    if channels_last(tensor):
        return np.ascontiguousarray(cube.reshape(tensor.cube).transpose(1, 2, 0)).reshape(tensor.shape)
    return cube.reshape(tensor.shape)


def channels_last(tensor: Tensor) -> bool:
    """Whether channels vary fastest: a flattened TFLite tensor, or (..., M, K) as K channels of all rows."""
    shape, cube = tensor.shape, tensor.cube
    matrix = len(shape) in (2, 3) and shape[-1] == cube[0] and cube[1] > 1
    return tensor.channels_last or matrix or in_rows(shape, cube)


def in_rows(shape: tuple[int, ...], cube: tuple[int, int, int]) -> bool:
    """Whether the last of four or more axes are the channels of a cube, and all others are its rows."""
    rows = len(shape) > 3 and cube == (shape[-1], math.prod(shape[:-1]), 1)
    return rows and shape != (1, *cube)


@dataclass(frozen=True)
class Clamp:
    """Limits of the real result of an operation before it is quantised (Relu, Clip)."""

    low: float = -math.inf
    high: float = math.inf

    def then(self, other: Clamp) -> Clamp:
        """Return this clamp followed by another."""
        low = min(max(self.low, other.low), other.high)
        return Clamp(low, max(min(self.high, other.high), low))


@dataclass(frozen=True)
class Window:
    """A sliding window: kernel, strides, dilations, and pads (top, left, bottom, right)."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)

    def output(self, height: int, width: int, ceil: bool = False) -> tuple[int, int]:
        """Output size for an input of (height, width); zero or negative if the window does not fit."""
        rows, columns = self.over(height, width, ceil).counts
        return rows, columns

    def over(self, height: int, width: int, ceil: bool = False) -> Sliding:
        """Return the windows over an input of (height, width)."""
        size = (height, width)
        return Sliding.over(
            size, self.kernel, self.strides, self.pads[:2], self.pads[2:], self.dilations, ceil
        )

    def used(self, output: Tensor) -> Window:
        """Return the window with stride 1 along each axis that has one output (any stride is valid there)."""
        (down, across), (_, rows, columns) = self.strides, output.cube
        return replace(self, strides=(1 if rows == 1 else down, 1 if columns == 1 else across))


@dataclass(frozen=True)
class Op:
    """Base of all operations: a name, input tensors, one output tensor, a clamp."""

    name: str
    inputs: tuple[str, ...]
    output: str
    clamp: Clamp = field(default=Clamp(), kw_only=True)

    @property
    def kind(self) -> str:
        """Name of the operation in reports."""
        return type(self).__name__


@dataclass(frozen=True)
class Conv(Op):
    """A convolution; also Gemm and MatMul (`window.kernel` covers the whole cube or is 1x1).

    `weights` is int8 (OC, IC/groups, kh, kw) with `weight_scales` float64 (OC,) and one zero point;
    `bias` is int64 (OC,) in units of input scale * weight scale of its channel.  `insert` (rows, columns)
    above 1 makes it a transposed convolution: insert - 1 zeros are put between the input's pixels, and
    `window` slides over the result (kernel already rotated, [HW 5.6]).
    """

    weights: npt.NDArray[np.int8]
    weight_scales: npt.NDArray[np.float64]
    weight_zero_point: int
    bias: npt.NDArray[np.int64]
    window: Window
    groups: int = 1
    source: str = "Conv"
    insert: tuple[int, int] = (1, 1)

    @property
    def kind(self) -> str:
        """Conv, DepthwiseConv, or the value of `source` (Gemm, MatMul, ConvTranspose)."""
        if self.source != "Conv":
            return self.source
        return "DepthwiseConv" if self.depthwise else "Conv"

    @property
    def depthwise(self) -> bool:
        """Whether there is exactly one kernel per channel."""
        return self.groups > 1 and self.groups == self.weights.shape[0] and self.weights.shape[1] == 1

    @property
    def npu_weights(self) -> npt.NDArray[np.int8]:
        """Weights of all groups as one dense array; positions outside a group have the weight zero point."""
        if self.groups == 1 or self.depthwise:
            return self.weights
        kernels, depth, height, width = self.weights.shape
        full = np.full(
            (kernels, depth * self.groups, height, width), self.weight_zero_point, self.weights.dtype
        )
        for kernel in range(kernels):
            first = kernel // (kernels // self.groups) * depth
            full[kernel, first : first + depth] = self.weights[kernel]
        return full


def slope_kind(slopes: npt.NDArray[np.float64]) -> str:
    """LeakyRelu for one slope, PRelu for one slope per channel."""
    return "LeakyRelu" if slopes.size == 1 else "PRelu"


BinaryMethod = Literal["add", "sub", "mul", "max", "min", "rsub", "div"]
"""Operations on two operands; "rsub" subtracts the first one from the second."""


@dataclass(frozen=True)
class Binary(Op):
    """An element-wise operation on two tensors of the same cube.

    The second tensor may also have the cube (C, 1, 1) or (1, 1, 1): one value per channel, or one for all.
    """

    method: BinaryMethod = "add"

    @property
    def kind(self) -> str:
        """Add, Sub, Mul, Max or Min."""
        return self.method.capitalize()


@dataclass(frozen=True)
class _Joined(Op):
    """A convolution and the operation after it in the same task (`rkcosim.compiler.fusion`).

    `between` is the convolution's output, which is not stored in memory.
    """

    conv: Conv
    between: Tensor


@dataclass(frozen=True)
class ConvAdd(_Joined):
    """A convolution whose result is added to the second input in the same task."""

    @property
    def kind(self) -> str:
        """Kind of the convolution, followed by "+Add"."""
        return f"{self.conv.kind}+Add"


@dataclass(frozen=True)
class ConvLookup(_Joined):
    """A convolution whose result passes a table in the same task; `table` and `source` as in `Lookup`."""

    table: npt.NDArray[np.int8]
    source: str

    @property
    def kind(self) -> str:
        """Kind of the convolution and name of the function, for example "Conv+Silu"."""
        return f"{self.conv.kind}+{self.source}"


@dataclass(frozen=True)
class ConvSlope(_Joined):
    """A convolution whose negative results are multiplied in the same task; `slopes` as in `Slope`."""

    slopes: npt.NDArray[np.float64]

    @property
    def kind(self) -> str:
        """Kind of the convolution, followed by "+LeakyRelu" or "+PRelu"."""
        return f"{self.conv.kind}+{slope_kind(self.slopes)}"


@dataclass(frozen=True)
class Lookup(Op):
    """A function of one byte: `table` int8 (256,) gives the output byte of input byte i - 128."""

    table: npt.NDArray[np.int8]
    source: str

    @property
    def kind(self) -> str:
        """Name of the function (Sigmoid, Tanh, ...)."""
        return self.source


@dataclass(frozen=True)
class Slope(Op):
    """Multiplies negative numbers by a slope: `slopes` is float64 (1,) (LeakyRelu) or (C,) (PRelu)."""

    slopes: npt.NDArray[np.float64]

    @property
    def kind(self) -> str:
        """LeakyRelu or PRelu."""
        return slope_kind(self.slopes)


@dataclass(frozen=True)
class Concat(Op):
    """Concatenates tensors along `axis` of the cube (0 channels, 1 rows, 2 columns)."""

    axis: int


@dataclass(frozen=True)
class Slice(Op):
    """The part of a cube that starts at `begin` and has the output's size; every `strides`-th element."""

    begin: tuple[int, int, int]
    strides: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True)
class Pad(Op):
    """Adds elements around the rows and columns, `pads` is (top, left, bottom, right), and the channels.

    `value` is the code of the elements, or of fp16 tensors the number (None: real zero).
    """

    pads: tuple[int, int, int, int]
    channels: tuple[int, int] = (0, 0)
    value: float | None = None


@dataclass(frozen=True)
class Upsample(Op):
    """Repeats every pixel `factors` times (rows, columns): a nearest Resize by whole numbers."""

    factors: tuple[int, int]

    @property
    def kind(self) -> str:
        """Resize."""
        return "Resize"


@dataclass(frozen=True)
class RealFunction(Op):
    """A function of one fp16 number; `function` is a key of `rkcosim.compiler.host_steps.REAL_FUNCTIONS`."""

    function: str
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def kind(self) -> str:
        """Name of the function."""
        return self.function


@dataclass(frozen=True)
class Affine(Op):
    """x * scale + shift on fp16 numbers, with one number or one per channel (C,), then the clamp.

    With `gated` the result is multiplied by x, and that product by `gain`: HardSwish.
    """

    scale: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]
    gated: bool = False
    gain: float = 1.0


BilinearForm = Literal["half_pixel", "align_corners", "asymmetric"]


@dataclass(frozen=True)
class Bilinear(Op):
    """A bilinear Resize; `form` is ONNX's name of the coordinate transformation."""

    form: BilinearForm

    @property
    def kind(self) -> str:
        """Resize."""
        return "Resize"


@dataclass(frozen=True)
class Blocks(Op):
    """Moves blocks of `size` x `size` pixels into channels (`inward`, SpaceToDepth) or back (DepthToSpace).

    A channel of the deep tensor is `(row * size + column) * C + c` with C channels of the flat one, or with
    `channel_first` `(c * size + row) * size + column`, or `channels` has the first of these numbers for each
    channel.
    """

    size: int
    inward: bool = False
    channel_first: bool = False
    channels: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """SpaceToDepth, DepthToSpace, or with blocks of one pixel ChannelShuffle."""
        if self.size == 1 and self.channels:
            return "ChannelShuffle"
        return "SpaceToDepth" if self.inward else "DepthToSpace"


@dataclass(frozen=True)
class OnHost(Op):
    """A function of tensors that the host computes between two jobs (`rkcosim.compiler.host_steps`)."""

    function: str
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Name of the function."""
        return self.function


@dataclass(frozen=True)
class HostOperator:
    """An operator of the model file that the host computes.

    Members
    -------
    name, kind
        Name of the node and of its operator.
    reason
        Why the NPU does not compute it.
    elements
        Elements of its results, 0 if the shapes are not known.
    macs
        Multiply-accumulates, 0 for operators that have none.
    """

    name: str
    kind: str
    reason: str
    elements: int = 0
    macs: int = 0


@dataclass(frozen=True)
class Port:
    """An input or output of a program: how an array of the runtime corresponds to a tensor.

    Members
    -------
    name
        Name in the program.
    dtype
        Element type of the runtime's array.  Codes of a quantised tensor are passed unchanged to integers of
        8 bits (in the model's signedness), and dequantised to floating point.
    order
        Axes of the tensor's shape in the order of the runtime's array; empty if they are in the same order.
    shape
        Shape of the runtime's array; None for that of the tensor after `order`.
    """

    name: str
    dtype: str
    order: tuple[int, ...] = ()
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Program:
    """A part of a model in the format of another runtime (`rkcosim.compiler.host_runtimes`).

    Members
    -------
    runtime
        Key of `rkcosim.compiler.host_runtimes.RUNTIMES`.
    data
        The bytes that the runtime reads, as uint8 (n,).
    takes, gives
        Its inputs and outputs in order.
    operators
        The operators of the model file that it computes.
    """

    runtime: str
    data: npt.NDArray[np.uint8]
    takes: tuple[Port, ...]
    gives: tuple[Port, ...]
    operators: tuple[HostOperator, ...] = ()


@dataclass(frozen=True)
class HostCall(Op):
    """A program that another runtime computes on the host between two jobs.

    `inputs` and `outputs` correspond to the program's `takes` and `gives`; there may be no input.
    """

    program: Program
    more: tuple[str, ...] = ()
    """Names of the outputs after the first."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of all outputs."""
        return (self.output, *self.more)

    @property
    def kind(self) -> str:
        """The operator, or for several the runtime and their number."""
        operators = self.program.operators
        if not operators:
            return "Copy"
        if len(operators) == 1:
            return operators[0].kind
        return f"{self.program.runtime}({len(operators)})"


@dataclass(frozen=True)
class HostPart(Op):
    """One operator of the file for the host, before `rkcosim.compiler.partition` joins it with others.

    `part` is the loader's handle of it; `operator` describes it in reports.
    """

    part: Any
    runtime: str
    operator: HostOperator
    more: tuple[str, ...] = ()
    """Names of the outputs after the first."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of all outputs."""
        return (self.output, *self.more)


@dataclass(frozen=True)
class Pool(Op):
    """Max or average pooling; `count_pad` counts padding (as real zero) in the average."""

    method: Literal["max", "average"]
    window: Window
    count_pad: bool = False
    whole: bool = False
    """Whether the window is the whole map (GlobalAveragePool)."""

    @property
    def kind(self) -> str:
        """MaxPool, AveragePool or GlobalAveragePool."""
        if self.whole:
            return "GlobalAveragePool"
        return "MaxPool" if self.method == "max" else "AveragePool"


@dataclass(frozen=True)
class Rescale(Op):
    """Changes the quantisation, with a clamp: Relu, Clip, or a QuantizeLinear after a DequantizeLinear."""

    source: str = "Rescale"

    @property
    def kind(self) -> str:
        """Relu, Clip or Rescale."""
        return self.source


@dataclass(frozen=True)
class HostOp:
    """An operation on real numbers after the NPU's part: Softmax, ArgMax, Quantize, Dequantize, Reshape.

    `input` and `output` are value names; `rkcosim.compiler.host` defines the `attributes`.
    """

    name: str
    kind: Literal["Softmax", "ArgMax", "Quantize", "Dequantize", "Reshape"]
    input: str
    output: str
    attributes: dict[str, object]


@dataclass(frozen=True)
class GraphInput:
    """A model input: its name and shape, and the tensor to which it is quantised (same element order)."""

    name: str
    tensor: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class GraphOutput:
    """A model output: its name, shape, and the source of its values.

    `value` is a tensor name if `real` is false (the codes are dequantised on request), else the name of a
    value that the host computes.
    """

    name: str
    shape: tuple[int, ...]
    value: str
    real: bool


@dataclass(frozen=True)
class State:
    """A variable that keeps its value between inferences.

    Members
    -------
    tensor
        The tensor that has the value during an inference.
    following
        The tensor that has the value of the next inference; `tensor` itself if the value never changes.
    dtype
        Type of its elements in the model's file.
    initial
        Its value in the first inference, in the shape of `tensor`; codes are those of the file.
    """

    tensor: str
    following: str
    dtype: str
    initial: npt.NDArray[Any]


@dataclass
class Graph:
    """A whole network in execution order.

    `aliases` maps a tensor that only renames or reshapes another one to that one; `constants` are
    activations known at compile time (int8, in the shape of the tensor's cube); `origin` gives the number of
    each tensor that has a number in the file; `states` are the variables that outlive an inference; `makers`
    gives the file's node behind each operation's output, where that is not the operation's name; `samples` is
    how often the operations of a batch are repeated.
    """

    name: str
    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    host_ops: list[HostOp] = field(default_factory=list)
    inputs: list[GraphInput] = field(default_factory=list)
    outputs: list[GraphOutput] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    constants: dict[str, npt.NDArray[np.int8]] = field(default_factory=dict)
    origin: dict[str, int] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    custom_string: str = ""
    """Text of the author for programs, at most `MOST_CUSTOM` bytes of UTF-8."""
    makers: dict[str, str] = field(default_factory=dict)
    samples: int = 1

    def read_once(self, name: str) -> bool:
        """Whether exactly one operation reads a tensor, under its own name, and no output or host op does."""
        ends = {o.value for o in self.outputs} | {o.input for o in self.host_ops}
        ends |= {state.following for state in self.states}
        readers = [o for o in self.ops for source in o.inputs if self.root(source) == name]
        return len(readers) == 1 and name not in self.aliases.values() and name not in ends

    def ends(self) -> set[str]:
        """Root tensors and host values that are needed after the NPU's part.

        These are what the outputs, the host operations after the NPU's part and the next inference read.
        """
        names = [o.value for o in self.outputs] + [o.input for o in self.host_ops]
        names += [state.following for state in self.states]
        return {self.root(name) for name in names}

    def root(self, name: str) -> str:
        """Return the name of the tensor that holds the bytes of `name`."""
        while name in self.aliases:
            name = self.aliases[name]
        return name
