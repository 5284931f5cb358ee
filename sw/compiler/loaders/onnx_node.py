"""ONNX nodes: classes of their values, and access to their attributes and constants."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt
import onnx

from rkcosim.compiler.constraints.convolutions import (
    constant_matrix,
    plain_rows,
    product_depth,
    product_rows,
    transposed_attributes,
    transposed_pads,
    window_dimensions,
    window_steps,
)
from rkcosim.compiler.constraints.elements import operand_shapes, slopes_of_channels
from rkcosim.compiler.constraints.movements import (
    nearest_mode,
    pad_mode,
    resize_coordinates,
    resize_mode,
    resize_sizes,
)
from rkcosim.compiler.constraints.placement import one_result
from rkcosim.compiler.constraints.pools import average_inside_padding, pool_dilations
from rkcosim.compiler.constraints.tensors import constant_parameter
from rkcosim.compiler.graph import BilinearForm, Graph, ModelError, Tensor, Window, in_rows
from rkcosim.compiler.loaders.node import (
    Array,
    Constant,
    Cube,
    FileNode,
    Kernel,
    Pending,
    RepeatMode,
    Shape,
    Weights,
    channel_axis,
    is_line,
    line_cube,
    natural_cube,
    on_line,
)
from rkcosim.compiler.loaders.views import View, rows_cube
from rkcosim.compiler.resampling import Sampling
from rkcosim.hostops.geometry import same_pads

BIAS_TOLERANCE = 1e-5
"""Relative difference up to which a bias scale counts as input scale * weight scale (float32)."""


LINES = (
    *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"),
    *("Pad", "InstanceNormalization", "GroupNormalization"),
)
"""Operators that also take lines (1, C, L)."""


@dataclass(frozen=True)
class Input:
    """A model input before its QuantizeLinear."""

    name: str
    shape: Shape
    dtype: str
    given: Shape
    """Shape of the model's input; `shape` is the shape after reshapes."""


@dataclass(frozen=True)
class Quantised:
    """A quantised tensor: its codes."""

    tensor: str


@dataclass(frozen=True)
class Real:
    """A tensor after its DequantizeLinear, possibly reshaped."""

    tensor: str
    shape: Shape
    cube: Cube


@dataclass(frozen=True)
class Host:
    """A value that the host computes in floating point."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Hosted:
    """A value that only the host keeps, in a part for another runtime; shape None if it is not known."""

    name: str
    shape: Shape | None
    dtype: str


@dataclass(frozen=True)
class Broken:
    """The result of a node that could not be read; the node's error is reported at the end."""


Value = Input | Constant | Quantised | Real | View | Pending | Host | Hosted | Broken


def reads(node: onnx.NodeProto) -> list[str]:
    """Return the names of the values that a node reads, also those that only its bodies read."""
    return [*(name for name in node.input if name), *dict.fromkeys(_outer(node))]


def _outer(node: onnx.NodeProto) -> Iterator[str]:
    for item in node.attribute:
        for body in (*([item.g] if item.HasField("g") else []), *item.graphs):
            inner = {*(i.name for i in body.input), *(i.name for i in body.initializer)}
            for part in body.node:
                yield from (name for name in reads(part) if name not in inner)
                inner.update(part.output)
            yield from (i.name for i in body.output if i.name not in inner)


def node_label(node: onnx.NodeProto) -> str:
    """Name of a node in messages."""
    return f"{node.op_type} '{node.name or (node.output[0] if node.output else '?')}'"


class OnnxNode(FileNode):
    """One node with its resolved inputs (None for an optional input that is absent)."""

    line = False
    """Whether the activation is a line (1, C, L), stored as a map of one row."""

    def __init__(
        self, node: onnx.NodeProto, values: list[Value | None], graph: Graph, floats: bool = False
    ) -> None:
        names = list(node.input)
        super().__init__(node_label(node), node.name or node.output[0], node.op_type, graph, names)
        self.attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        self.values, self.floats = values, floats
        self.outputs = list(node.output)

    def map_input(self) -> Tensor:
        """Return the activation as a map; a line (1, C, L) is a map of one row."""
        x = self.input(self.data)
        if self.kind not in LINES or len(x.shape) != 3 or x.shape[0] != 1:
            return super().map_input()
        self.line = True
        cube = (x.shape[1], 1, x.shape[2])
        if x.cube == cube:
            return replace(x, shape=(1, *cube))
        name = f"{x.name}@line"
        if name not in self.graph.tensors:
            line = replace(x, name=name, shape=(1, *cube), cube=cube, channels_last=False)
            self.graph.tensors[name] = line
            self.on_host("Rearrange", self.view(self.data), line, name, shape=line.shape)
        return self.graph.tensors[name]

    def map_shape(self, cube: Cube) -> Shape:
        return (1, cube[0], cube[2]) if self.line else super().map_shape(cube)

    def _along(self, name: str, default: tuple[int, ...]) -> list[int]:
        """Return numbers for rows and columns; those of a line are for columns."""
        values = self._integers(name, default)
        if self.line and len(values) * 2 == len(default):
            return [number for value in values for number in (default[0], value)]
        return values

    def _kernel_shape(self) -> list[int]:
        return self._along("kernel_shape", (1, 1)) if "kernel_shape" in self.attributes else []

    def _value(self, index: int) -> Value | None:
        return self.values[index] if index < len(self.values) else None

    def _integers(self, name: str, default: tuple[int, ...]) -> list[int]:
        return [int(n) for n in self.attributes.get(name, default)]

    def _numbers(self, index: int, name: str) -> list[int] | None:
        """Integers of input `index`, or of attribute `name` (older opsets); None if both are absent."""
        constant = self.constant(index)
        given = self.attributes.get(name) if constant is None else np.asarray(constant.real()).reshape(-1)
        return None if given is None else [int(n) for n in given]

    def input(self, index: int = 0) -> Tensor:
        value = self._value(index)
        if not isinstance(value, Real):
            raise self.wrong(f"input {index} must be a quantised activation")
        return replace(self.graph.tensors[value.tensor], shape=value.shape, cube=value.cube)

    def constant(self, index: int) -> Constant | None:
        value = self._value(index)
        if value is None or isinstance(value, Constant):
            return value
        raise constant_parameter.error(self.label, self.names[index], False)

    def is_constant(self, index: int) -> bool:
        return not isinstance(self._value(index), Real)

    def view(self, index: int = 0) -> str:
        seen = self.input(index)
        if seen == self.graph.tensors[seen.name]:
            return seen.name
        name = f"{seen.name}@{'x'.join(map(str, seen.shape))}"
        self.graph.tensors[name] = replace(seen, name=name)
        self.graph.aliases[name] = seen.name
        return name

    def settled(self, index: int = 0) -> str:
        seen = self.view(index)
        tensor = self.graph.tensors[seen]
        cube = natural_cube(tensor.shape, self.label)
        if cube == tensor.cube:
            return seen
        name = f"{seen}@settled"
        if name not in self.graph.tensors:
            self.graph.tensors[name] = replace(tensor, name=name, cube=cube)
            self.on_host("Rearrange", seen, self.graph.tensors[name], name, shape=tensor.shape)
        return name

    def made(self, index: int, shape: Shape, line: bool = False) -> Tensor:
        """Add output `index` to the graph, with the quantisation of input 0."""
        name = str(self.outputs[index])
        cube = line_cube(shape) if line else natural_cube(shape, f"{self.label}: '{name}'")
        made = replace(self.input(), name=name, shape=shape, cube=cube, channels_last=False)
        self.graph.tensors[name] = made
        return made

    def weights(self, axis: int) -> Weights:
        return self.real_weights(axis) if self.floats else super().weights(axis)

    def codes(self, index: int) -> tuple[Array, float, int, bool]:
        """Like `Node.codes`; a constant in floating point is quantised to 8 bits with zero point 0."""
        constant, name = self.constant(index), self.names[index]
        if self.floats and constant is not None:
            return self.real_codes(index), 1.0, 0, False
        if constant is None or constant.scale is not None or constant.array.dtype.kind != "f":
            return super().codes(index)
        reals = constant.array.astype(np.float64)
        largest = float(np.abs(reals).max(initial=0.0))
        if not math.isfinite(largest):
            raise self.wrong(f"constant '{name}' is not all finite")
        scale = largest / 127 if largest > 0 else 1.0
        return np.rint(reals / scale).astype(np.int8), scale, 0, False

    def bias(self, unit: npt.NDArray[np.float64]) -> Array:
        factor = float(self.attributes.get("beta", 1.0)) if self.kind == "Gemm" else 1.0
        constant, count = self.constant(2), unit.size
        if constant is None:
            return np.zeros(count, dtype=np.int64)
        name = self.names[2]
        if constant.array.size not in (1, count):
            raise self.wrong(f"bias '{name}' {constant.array.shape} for {count} channels")
        if constant.scale is not None and factor == 1.0 and not self.floats:
            if np.all(np.abs(constant.scale.reshape(-1) / unit - 1) < BIAS_TOLERANCE):
                return np.broadcast_to(constant.array.reshape(-1).astype(np.int64), (count,)).copy()
        real = np.asarray(constant.real(), dtype=np.float64).reshape(-1) * factor
        if self.floats:
            return np.broadcast_to(real, (count,)).astype(np.float32)
        codes = np.rint(np.broadcast_to(real, (count,)) / unit)
        if not (np.abs(codes) < 2**31).all():
            raise self.wrong(f"bias '{name}' does not fit 32 bits in the accumulator's unit")
        return codes.astype(np.int64)

    def _window(self, kernel: list[int], size: tuple[int, ...]) -> Window:
        if len(kernel) != 2:
            raise window_dimensions.error(self.label, tuple(kernel))
        strides, dilations = self._along("strides", (1, 1)), self._along("dilations", (1, 1))
        pads = self._along("pads", (0, 0, 0, 0))
        for name, values, count in (("strides", strides, 2), ("dilations", dilations, 2), ("pads", pads, 4)):
            if len(values) != count:
                raise self.wrong(f"{name} must be {count} numbers, not {values}")
        auto = self.attributes.get("auto_pad", b"NOTSET").decode()
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            pads = list(same_pads(size, kernel, strides, dilations))
            if auto == "SAME_LOWER":
                pads = pads[2:] + pads[:2]
        elif auto == "VALID":
            pads = [0, 0, 0, 0]
        window_steps(self.label, tuple(pads), tuple(strides))
        numbers = (tuple(values) for values in (kernel, strides, pads, dilations))
        return Window(*numbers)  # type: ignore[arg-type]

    def _sized(self, size: tuple[int, int]) -> tuple[int, int]:
        if min(size) < 1:
            raise self.wrong(f"input '{self.names[0]}' is smaller than the window")
        return size

    def kernel(self, x: Tensor) -> Kernel:
        if self.kind == "ConvTranspose":
            return self._transposed_kernel(x)
        weights, scales, zero = self.weights(0)
        if self.line and weights.ndim == 3:
            weights = weights[:, :, None]
        if weights.ndim != 4:
            raise window_dimensions.error(self.label, weights.shape[2:])
        groups, channels = int(self.attributes.get("group", 1)), x.cube[0]
        if weights.shape[1] * groups != channels or weights.shape[0] % groups:
            raise self.wrong(f"weights {weights.shape} in {groups} groups do not fit {channels} channels")
        window = self._window(list(weights.shape[2:]), x.cube[1:])
        return Kernel(weights, scales, zero, window, self._sized(window.output(*x.cube[1:])), groups)

    def _transposed_kernel(self, x: Tensor) -> Kernel:
        """Return the kernel rotated by 180 degrees, which slides over the input with zeros inserted."""
        channels, groups = x.cube[0], int(self.attributes.get("group", 1))
        weights, scales, zero = self.weights(1)
        if self.line and weights.ndim == 3:
            weights = weights[:, :, None]
        if weights.ndim != 4 or weights.shape[0] != channels or channels % groups:
            raise self.wrong(f"weights {weights.shape} in {groups} groups, {channels} channels")
        if self.attributes.get("output_shape") or self.attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
            given = tuple(name for name in ("output_shape", "auto_pad") if name in self.attributes)
            raise transposed_attributes.error(self.label, given)
        kernels, *kernel = weights.shape[1] * groups, *weights.shape[2:]
        if scales.size != kernels:
            if np.unique(scales).size > 1:
                raise self.wrong(f"weights have {scales.size} scales for {kernels} channels")
            scales = np.repeat(scales[:1], kernels)
        # (IC, OC / groups, ...) to (OC, IC / groups, ...)
        split = weights.reshape(groups, channels // groups, weights.shape[1], *kernel)
        turned = split.transpose(0, 2, 1, 3, 4)[..., ::-1, ::-1].reshape(kernels, -1, *kernel)
        strides, dilations = self._along("strides", (1, 1)), self._along("dilations", (1, 1))
        pads, more = self._along("pads", (0, 0, 0, 0)), self._along("output_padding", (0, 0))
        sizes, edges = [], [0, 0, 0, 0]
        for axis, size in enumerate(x.cube[1:]):
            reach = (kernel[axis] - 1) * dilations[axis]
            edges[axis] = reach - pads[axis]
            edges[axis + 2] = reach - pads[axis + 2] + more[axis]
            sizes.append((size - 1) * strides[axis] + reach + 1 - pads[axis] - pads[axis + 2] + more[axis])
        if min(edges) < 0 or min(sizes) < 1 or min(strides) < 1:
            raise transposed_pads.error(self.label, tuple(pads), self.names[0], False)
        window = Window(tuple(kernel), pads=tuple(edges), dilations=tuple(dilations))  # type: ignore[arg-type]
        turned, insert = np.ascontiguousarray(turned), (strides[0], strides[1])
        return Kernel(turned, scales, zero, window, (sizes[0], sizes[1]), groups, insert)

    def matrix(self) -> tuple[Tensor, Weights]:
        get = self.attributes.get
        gemm = self.kind == "Gemm"
        plain_rows(self.label, gemm and bool(int(get("transA", 0))))
        if not gemm and not self.is_constant(1):
            raise constant_matrix.error(self.label, self.names[1], None)
        transposed = gemm and bool(int(get("transB", 0)))
        matrix, scales, zero = self.weights(0 if transposed else 1)
        constant_matrix(self.label, self.names[1], matrix.shape)
        matrix = matrix if transposed else np.ascontiguousarray(matrix.T)
        alpha = float(get("alpha", 1.0)) if gemm else 1.0
        if self.floats:
            matrix = matrix * np.float32(alpha)
        x = self.graph.tensors[self.settled()] if is_line(self.input()) else self.input()
        fits = x.shape[-1] == matrix.shape[1]
        product_depth(self.label, self.names[0], x.shape, matrix.shape[1], fits)
        product_rows(self.label, self.names[0], x.shape, len(x.shape) != 4 or in_rows(x.shape, x.cube))
        if len(x.shape) != 4 and x.cube != rows_cube(x.shape):
            natural_cube((*x.shape[:-1], len(matrix)), self.label)
        return x, (matrix, scales if self.floats else scales * alpha, zero)

    def second(self, index: int, first: Tensor) -> str:
        x = self.input(index)
        if (x.shape, x.cube) == (first.shape, first.cube):
            return x.name
        plain = not in_rows(first.shape, first.cube)
        if plain and x.cube == (first.cube[0], 1, 1) and len(x.shape) == len(first.shape):
            return self.view(index)
        raise operand_shapes.error(self.label, first.shape, x.shape, False)

    def pooling(self, x: Tensor, average: bool, whole: bool) -> tuple[Window, tuple[int, int], bool, bool]:
        one_result(self.label, tuple(str(name) for name in self.outputs[1:] if name))
        kernel = list(x.cube[1:]) if whole else self._kernel_shape()
        window = self._window(kernel, x.cube[1:])
        pool_dilations(self.label, window.dilations)
        size = self._sized(window.output(*x.cube[1:], bool(int(self.attributes.get("ceil_mode", 0)))))
        count_pad = bool(int(self.attributes.get("count_include_pad", 0)))
        for axis in range(2):
            last = (size[axis] - 1) * window.strides[axis] + kernel[axis] - window.pads[axis]
            if average and count_pad and last - x.cube[1 + axis] > window.pads[2 + axis]:
                raise average_inside_padding.error(self.label, size, False)
        return window, size, count_pad, whole

    def reduced(self, shape: Shape) -> tuple[set[int], bool]:
        given = self._numbers(1, "axes")
        if not given and int(self.attributes.get("noop_with_empty_axes", 0)):
            raise self.wrong("without axes nothing is reduced")
        axes = {axis % len(shape) for axis in given} if given else set(range(len(shape)))
        return axes, bool(int(self.attributes.get("keepdims", 1)))

    def slopes(self, x: Tensor) -> Array:
        if self.kind == "LeakyRelu":
            return np.array([float(self.attributes.get("alpha", 0.01))])
        constant = self.constant(1)
        if constant is None:
            raise self.wrong("the slope is missing")
        slopes = np.asarray(constant.real(), np.float64)
        wide = (1,) * (len(x.shape) - slopes.ndim) + slopes.shape
        per_channel = len(wide) == len(x.shape) and wide[channel_axis(x)] == slopes.size
        plain = not in_rows(x.shape, x.cube)
        if slopes.size != 1 and not (plain and per_channel and slopes.size == x.cube[0]):
            raise slopes_of_channels.error(self.label, self.names[1], slopes.shape, False)
        return slopes

    def axis(self, shape: Shape) -> int:
        return int(self.attributes.get("axis", 0)) % len(shape)

    def parts(self) -> tuple[int, int, list[int]]:
        shape = self.input().shape
        axis = self.axis(shape)
        return 0, axis, self.sizes(shape[axis])

    def sizes(self, whole: int) -> list[int]:
        """Return the sizes of a split of `whole` elements."""
        count = len(self.outputs)
        each = -(-whole // count)
        return self._numbers(1, "split") or [min(each, whole - each * n) for n in range(count)]

    def bounds(self, shape: Shape) -> tuple[list[int], list[int], Shape]:
        names = enumerate(("starts", "ends", "axes", "steps"))
        starts, ends, axes, steps = (self._numbers(1 + index, name) for index, name in names)
        if starts is None or ends is None:
            raise self.wrong("starts and ends must be constants")
        axes = list(range(len(starts))) if axes is None else [a % len(shape) for a in axes]
        steps = [1] * len(starts) if steps is None else steps
        first, step, sizes = [0] * len(shape), [1] * len(shape), list(shape)
        if not len(starts) == len(ends) == len(axes) == len(steps) or min(steps, default=1) < 1:
            raise self.wrong(f"starts {starts}, ends {ends}, axes {axes}, steps {steps}")
        for start, end, axis, stride in zip(starts, ends, axes, steps, strict=True):
            size = shape[axis]
            low, high = (min(max(n + size if n < 0 else n, 0), size) for n in (start, end))
            first[axis], step[axis], sizes[axis] = low, stride, -(-(high - low) // stride)
        if min(sizes) < 1:
            raise self.wrong(f"nothing of {shape} is left")
        return first, step, tuple(sizes)

    def repeated_padding(self) -> tuple[RepeatMode, list[int], list[int]] | None:
        mode = self._text("mode", "constant")
        if mode == "constant":
            return None
        if mode not in ("reflect", "edge", "wrap"):
            raise pad_mode.error(self.label, mode, None)
        edges = self._edges()
        return cast(RepeatMode, mode), edges[:4], edges[4:]

    def _edges(self) -> list[int]:
        """Return the sizes before and after each of the four axes of a map, or of a line as one."""
        edges, rank = self._numbers(1, "pads"), 3 if self.line else 4
        axes = self._numbers(3, "axes")
        if edges is not None and axes is not None and len(edges) == 2 * len(axes):
            given, edges = edges, [0] * (2 * rank)
            for at, axis in enumerate(axes):
                edges[axis % rank], edges[axis % rank + rank] = given[at], given[at + len(axes)]
        pad_mode(self.label, self._text("mode", "constant"), None if edges is None else tuple(edges), rank)
        assert edges is not None
        return [*edges[:2], 0, *edges[2:5], 0, edges[5]] if self.line else list(edges)

    def padding(self, x: Tensor) -> tuple[list[int], list[int], float | None]:
        edges = self._edges()
        filling = self.constant(2)
        fill = float(self.attributes.get("value", 0.0))
        if filling is not None and filling.array.size:
            fill = float(np.asarray(filling.real()).reshape(-1)[0])
        code: float | None = None
        if fill and x.real:
            code = float(np.float16(fill))
        elif fill:
            code = int(np.rint(fill / x.scale) + x.zero_point)
            if not -128 <= code <= 127:
                raise self.wrong(f"{fill:g} is no number of a tensor with scale {x.scale:g}")
        return edges[:4], edges[4:], code

    def order(self, shape: Shape) -> tuple[dict[str, Any], Shape]:
        order = tuple(self._integers("perm", tuple(range(len(shape))[::-1])))
        if sorted(order) != list(range(len(shape))):
            raise self.wrong(f"perm {order} for {shape}")
        turned = tuple(shape[n] for n in order)
        return {"before": order, "shape": turned}, turned

    def linear(self, x: Tensor) -> tuple[BilinearForm, Shape] | None:
        if self._text("mode", "nearest") != "linear" or int(self.attributes.get("antialias", 0)):
            return None
        form, out, ratios = self._form(), *self._resized(x)
        if form == "pytorch_half_pixel" and min(out[2:]) > 1:
            form = "half_pixel"
        pairs = zip(x.cube[1:], out[2:], ratios, strict=True)
        if form not in get_args(BilinearForm):
            return None
        if form != "align_corners" and any(n * ratio != m for n, m, ratio in pairs):
            return None
        return cast("BilinearForm", form), tuple(out)

    def sampled(self, x: Tensor) -> tuple[Sampling, Sampling, Shape] | None:
        mode, number = self._text("mode", "nearest"), self.attributes.get
        more = [name for name in ("antialias", "exclude_outside") if int(number(name, 0))]
        resize_mode(self.label, mode, "" if x.real and mode != "nearest" else ", ".join(more))
        if mode == "nearest":
            return None
        resize_coordinates(self.label, self._form(), mode)
        out, ratios = self._resized(x)
        pairs = zip(x.cube[1:], out[2:], ratios, strict=True)
        a = float(number("cubic_coeff_a", -0.75))
        rows, columns = (
            Sampling(
                "cubic" if mode == "cubic" else "linear",
                *self._places(n, m, ratio),
                a=a,
                reach=max(1.0, 1 / ratio) if "antialias" in more else 1.0,
                inside="exclude_outside" in more,
            )
            for n, m, ratio in pairs
        )
        return rows, columns, tuple(out)

    def _places(self, size: int, out: int, ratio: float) -> tuple[float, float]:
        """Return the place of the first result of a resize, and the distance to the next one."""
        form = self._form()
        if form == "align_corners":
            return 0.0, (size - 1) / max(out - 1, 1)
        centred = (1 / ratio - 1) / 2
        starts = {
            "asymmetric": 0.0,
            "half_pixel": centred,
            "pytorch_half_pixel": centred if out > 1 else 0.0,
            "half_pixel_symmetric": size / 2 * (1 - out / (ratio * size)) + centred,
        }
        return starts[form], 1 / ratio

    def _form(self) -> str:
        """Return the coordinate transformation of a resize."""
        return (
            "asymmetric"
            if self.kind == "Upsample"
            else self._text("coordinate_transformation_mode", "half_pixel")
        )

    def _text(self, name: str, default: str) -> str:
        value = self.attributes.get(name, default.encode())
        return value.decode() if isinstance(value, bytes) else str(value)

    def _resized(self, x: Tensor) -> tuple[list[int], list[float]]:
        """Return the shape of a resize's result, and the factors of rows and columns."""
        channels, *size = x.cube
        old = self.kind == "Upsample"
        axes = [int(axis) % 4 for axis in self.attributes.get("axes", range(4))]
        last = self.constant(len(self.values) - 1)
        by_size = not old and len(self.values) == 4 and last is not None and last.array.size == len(axes)
        scales = last if old else self.constant(2) if len(self.values) > 2 and not by_size else None
        if by_size and last is not None:
            policy = self._text("keep_aspect_ratio_policy", "stretch")
            resize_sizes(self.label, x.shape, (1, channels, *size), policy)
            given = dict(zip(axes, last.array.tolist(), strict=True))
            out = [int(given.get(axis, n)) for axis, n in enumerate((1, channels, *size))]
            ratios = [n / m for n, m in zip(out[2:], size, strict=True)]
        elif scales is not None and scales.array.size == len(axes):
            given = dict(zip(axes, scales.array.tolist(), strict=True))
            _, deep, *ratios = [float(given.get(axis, 1.0)) for axis in range(4)]
            out = [1, channels * round(deep), *(int(n * f) for n, f in zip(size, ratios, strict=True))]
        else:
            raise resize_sizes.error(self.label, x.shape, None)
        resize_sizes(self.label, x.shape, tuple(out))
        return out, ratios

    def picks(self, x: Tensor) -> tuple[list[tuple[int, ...]], Shape]:
        get, old = self.attributes.get, self.kind == "Upsample"
        corner = get("coordinate_transformation_mode", b"half_pixel").decode()
        out, ratios = self._resized(x)
        rounding = get("nearest_mode", b"round_prefer_floor").decode()
        if old:
            corner, rounding = "asymmetric", "floor"
        pairs = zip(x.cube[1:], out[2:], ratios, strict=True)
        return [self._picked(n, m, ratio, corner, rounding) for n, m, ratio in pairs], tuple(out)

    def _picked(self, size: int, out: int, ratio: float, corner: str, rounding: str) -> tuple[int, ...]:
        """Return the index of the input element that each output takes along an axis.

        Places are computed in float32 and in onnxruntime's order, since many are whole numbers or halves.
        """
        at, times, half = np.arange(out, dtype=np.float32), np.float32(ratio), np.float32(0.5)
        places = {
            "asymmetric": at / times,
            "half_pixel": (at + half) / times - half,
            "pytorch_half_pixel": (at + half) / times - half if out > 1 else at,
            "align_corners": at * np.float32(size - 1) / np.float32(max(out - 1, 1)),
        }
        if corner not in places:
            raise resize_coordinates.error(self.label, corner, "nearest")
        spots = places[corner]
        rounded = {
            "floor": np.floor(spots),
            "ceil": np.ceil(spots),
            "round_prefer_floor": np.ceil(spots - half),
            "round_prefer_ceil": np.floor(spots + half),
        }
        if rounding not in rounded:
            raise nearest_mode.error(self.label, rounding)
        return tuple(int(n) for n in rounded[rounding].clip(0, size - 1))


def reshaped_cube(cube: Cube, before: Shape, shape: Shape) -> Cube | None:
    """Return the cube in which the same bytes represent the new shape, or None if there is none."""
    elements = math.prod(shape)
    if math.prod(cube) != elements:
        return None
    if (made := _along(cube, before, shape)) is not None:
        return made
    flat = len(shape) == 1 or shape[1:2] == (elements,)
    if _in_rows(cube, before) != (_in_rows(cube, shape) and not flat):
        return None
    if flat:
        return cube
    try:
        return cube if natural_cube(shape, "reshape") == cube else None
    except ModelError:
        return None


def _along(cube: Cube, before: Shape, shape: Shape) -> Cube | None:
    """Return the cube of a map whose rows become a line, or of the map; None for other shapes."""
    maps = before == (1, *cube) or on_line(before, cube)
    if not maps or shape[:2] != before[:2]:
        return None
    if len(shape) == 3 and len(before) == 4:
        return line_cube(shape)
    return (shape[1], shape[2], shape[3]) if len(shape) == 4 and len(before) == 3 else None


def _in_rows(cube: Cube, shape: Shape) -> bool:
    """Whether the elements of a shape lie row by row in a cube: a matrix of more than one row."""
    return (len(shape) in (2, 3) and shape[-1] == cube[0] and cube[1] > 1) or in_rows(shape, cube)
