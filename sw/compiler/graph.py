"""The network as the loaders hand it to the compiler: quantised tensors and operations.

Values are real numbers `scale * (q - zero_point)` with q a signed byte: models in unsigned bytes are
shifted by 128 on loading, so that only `GraphInput.unsigned` remembers them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

MAX_ELEMENTS = 2**26
"""Elements of one tensor that are taken for a network and not for a mistake in a file."""


class ModelError(ValueError):
    """A model that cannot be read or run; the message names node and tensor."""


@dataclass(frozen=True)
class Tensor:
    """A quantised activation.

    `shape` is the model's; `cube` is (C, H, W) as the NPU stores it, which differs after a Flatten:
    then the elements of `shape` are those of the cube in C, H, W order, or in H, W, C order when
    `channels_last` is set (a TFLite tensor flattened).  Four dimensions are always N, C, H, W.
    """

    name: str
    shape: tuple[int, ...]
    scale: float
    zero_point: int
    cube: tuple[int, int, int]
    unsigned: bool = False
    channels_last: bool = False
    real: bool = False
    """Whether elements are fp16 numbers, not codes (scale 1, zero point 0 then)."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element in device memory."""
        return 2 if self.real else 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of an element of the cube: float16 or int8."""
        return np.dtype(np.float16 if self.real else np.int8)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.cube)

    def same_values(self, other: Tensor) -> bool:
        """Whether equal bytes mean equal numbers in both tensors."""
        return self.scale == other.scale and self.zero_point == other.zero_point


@dataclass(frozen=True)
class Clamp:
    """Limits put on the real result of an operation before it is quantised (Relu, Clip)."""

    low: float = -math.inf
    high: float = math.inf

    def then(self, other: Clamp) -> Clamp:
        """This clamp followed by another."""
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
        """Output size for an input of (height, width); zero or negative when nothing fits."""
        result = []
        for axis, size in enumerate((height, width)):
            reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1
            room = size + self.pads[axis] + self.pads[axis + 2] - reach
            steps = -(-room // self.strides[axis]) if ceil else room // self.strides[axis]
            if ceil and steps * self.strides[axis] >= size + self.pads[axis]:
                steps -= 1  # a window that starts in the trailing pad is left out
            result.append(steps + 1)
        return result[0], result[1]

    def used(self, output: Tensor) -> Window:
        """The window with stride 1 along an axis of one output, where any stride does."""
        (down, across), (_, rows, columns) = self.strides, output.cube
        return replace(self, strides=(1 if rows == 1 else down, 1 if columns == 1 else across))


@dataclass(frozen=True)
class Op:
    """What all operations have: a name, input tensors, one output tensor, a clamp."""

    name: str
    inputs: tuple[str, ...]
    output: str
    clamp: Clamp = field(default=Clamp(), kw_only=True)

    @property
    def kind(self) -> str:
        """Name of the operation as reports print it."""
        return type(self).__name__


@dataclass(frozen=True)
class Conv(Op):
    """A convolution; also Gemm and MatMul (`window.kernel` covers the whole cube or is 1x1).

    `weights` int8 (OC, IC/groups, kh, kw) with `weight_scales` float64 (OC,) and one zero point;
    `bias` int64 (OC,) in units of input scale * weight scale of its channel.  `insert` (rows, columns)
    above 1 makes it a transposed one: insert - 1 zeros are put between the input's pixels, and
    `window` slides over the result (kernel already turned round, HARDWARE 3.12).
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
        """Conv, DepthwiseConv, or what `source` says (Gemm, MatMul, ConvTranspose)."""
        if self.source != "Conv":
            return self.source
        return "DepthwiseConv" if self.depthwise else "Conv"

    @property
    def depthwise(self) -> bool:
        """Whether each channel has exactly one kernel of its own."""
        return self.groups > 1 and self.groups == self.weights.shape[0] and self.weights.shape[1] == 1

    @property
    def npu_weights(self) -> npt.NDArray[np.int8]:
        """Weights with the groups spread over all channels, others at the weight zero point."""
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
    """LeakyRelu with one slope, PRelu with one a channel."""
    return "LeakyRelu" if slopes.size == 1 else "PRelu"


BinaryMethod = Literal["add", "sub", "mul", "max", "min"]


@dataclass(frozen=True)
class Binary(Op):
    """Element by element on two tensors of the same cube.

    The second may also be of cube (C, 1, 1) or (1, 1, 1): a value a channel, or one for all.
    """

    method: BinaryMethod = "add"

    @property
    def kind(self) -> str:
        """Add, Sub, Mul, Max or Min."""
        return self.method.capitalize()


@dataclass(frozen=True)
class ConvAdd(Op):
    """A convolution whose result is added to the second input at once (`sw.compiler.fusion.adds`).

    `between` is the convolution's output, which is nowhere in memory.
    """

    conv: Conv
    between: Tensor

    @property
    def kind(self) -> str:
        """Kind of the convolution, "+Add"."""
        return f"{self.conv.kind}+Add"


@dataclass(frozen=True)
class ConvLookup(Op):
    """A convolution whose result goes through a table at once (`sw.compiler.fusion.lookups`).

    `between` is the convolution's output, which is nowhere in memory; `table` and `source` as `Lookup`.
    """

    conv: Conv
    between: Tensor
    table: npt.NDArray[np.int8]
    source: str

    @property
    def kind(self) -> str:
        """Kind of the convolution and name of the function, as "Conv+Silu"."""
        return f"{self.conv.kind}+{self.source}"


@dataclass(frozen=True)
class ConvSlope(Op):
    """A convolution whose negative results are multiplied at once (`sw.compiler.fusion.slopes`).

    `between` is the convolution's output, which is nowhere in memory; `slopes` as `Slope`.
    """

    conv: Conv
    between: Tensor
    slopes: npt.NDArray[np.float64]

    @property
    def kind(self) -> str:
        """Kind of the convolution, "+LeakyRelu" or "+PRelu"."""
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
    """Negative numbers times a slope: `slopes` float64 (1,) (LeakyRelu) or (C,) (PRelu)."""

    slopes: npt.NDArray[np.float64]

    @property
    def kind(self) -> str:
        """LeakyRelu or PRelu."""
        return slope_kind(self.slopes)


@dataclass(frozen=True)
class Concat(Op):
    """Tensors one behind the other along `axis` of the cube (0 channels, 1 rows, 2 columns)."""

    axis: int


@dataclass(frozen=True)
class Slice(Op):
    """The part of a cube that starts at `begin` and has the output's size."""

    begin: tuple[int, int, int]


@dataclass(frozen=True)
class Pad(Op):
    """Real zeros around the rows and columns: `pads` is (top, left, bottom, right)."""

    pads: tuple[int, int, int, int]


@dataclass(frozen=True)
class Upsample(Op):
    """Every pixel repeated `factors` times (rows, columns): Resize nearest by whole numbers."""

    factors: tuple[int, int]

    @property
    def kind(self) -> str:
        """Resize."""
        return "Resize"


@dataclass(frozen=True)
class OnHost(Op):
    """A function of quantised tensors that the host computes between jobs (`sw.compiler.host`)."""

    function: str
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Name of the function."""
        return self.function


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
    """The same numbers in another quantisation, with a clamp: Relu, Clip, or a pair of Q and DQ."""

    source: str = "Rescale"

    @property
    def kind(self) -> str:
        """Relu, Clip or Rescale."""
        return self.source


@dataclass(frozen=True)
class HostOp:
    """An operation on real numbers after the NPU: Softmax, Quantize, Dequantize, Reshape.

    `input` and `output` are value names; `attributes` are those of `sw.compiler.host`.
    """

    name: str
    kind: Literal["Softmax", "Quantize", "Dequantize", "Reshape"]
    input: str
    output: str
    attributes: dict[str, object]


@dataclass(frozen=True)
class GraphInput:
    """A model input: its own name and shape, and the tensor it is quantised to (elements in order)."""

    name: str
    tensor: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class GraphOutput:
    """A model output: its own name, shape, and where its values come from.

    `value` is a tensor name when `real` is false (bytes are then dequantised on request), or the
    name of a host value.
    """

    name: str
    shape: tuple[int, ...]
    value: str
    real: bool


@dataclass
class Graph:
    """A whole network in execution order.

    `aliases` map a tensor that only renames or reshapes another to that one; `constants` are
    activations known beforehand (int8, shape of the tensor's cube); `origin` numbers the tensors
    that the file numbers.
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

    def read_once(self, name: str) -> bool:
        """Whether a tensor is read in exactly one place, under its own name, and nobody outside reads it."""
        ends = {o.value for o in self.outputs} | {o.input for o in self.host_ops}
        readers = [o for o in self.ops for source in o.inputs if self.root(source) == name]
        return len(readers) == 1 and name not in self.aliases.values() and name not in ends

    def root(self, name: str) -> str:
        """Name of the tensor that holds the bytes of `name`."""
        while name in self.aliases:
            name = self.aliases[name]
        return name
