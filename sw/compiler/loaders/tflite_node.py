"""TFLite operators: access to their tensors, options and constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.constraints.elements import slopes_of_channels
from rkcosim.compiler.constraints.movements import slice_masks
from rkcosim.compiler.constraints.tensors import constant_parameter, fused_activation, tensor_shape
from rkcosim.compiler.graph import BilinearForm, Clamp, Graph, ModelError, Tensor, Window
from rkcosim.compiler.limits import CONV_KERNEL
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
    natural_cube,
)
from rkcosim.compiler.loaders.tflite_file import ACTIVATIONS, TfModel, TfNode, TfTensor
from rkcosim.hostops.geometry import same_pads
from rkcosim.hostops.resize import Coordinates, picked, places, step_of

TO_FIRST = (0, 3, 1, 2)
"""Axes of (N, H, W, C) in the order N, C, H, W."""
TO_LAST = (0, 2, 3, 1)
"""Axes of (N, C, H, W) in the order N, H, W, C; also the graph's axis for each axis of the file."""
FLOATS = ("float32", "float16")
"""Types whose numbers the NPU keeps as fp16."""
BIAS_TOLERANCE = 1e-4
"""Relative difference up to which a bias scale counts as input scale * weight scale (float32)."""


def first(shape: Shape) -> Shape:
    """Shape with the channels moved to the front if it has four dimensions."""
    return tuple(shape[axis] for axis in TO_FIRST) if len(shape) == 4 else shape


def define(graph: Graph, item: TfTensor, label: str, cube: Cube | None = None) -> Tensor:
    """Add a tensor of the file to the graph, with its natural cube or (for a flattened tensor) `cube`.

    Numbers of float32 or float16 are kept as fp16.

    Raises
    ------
    ModelError
        If the type is neither 8 bit nor a float, quantisation is missing or the NPU cannot store the shape;
        the message names the tensor.
    """
    real, unsigned, scale, zero = item.dtype in FLOATS, item.dtype == "uint8", 1.0, 0
    if not real:
        if item.dtype not in ("int8", "uint8"):
            raise ModelError(f"{label}: tensor '{item.name}' is {item.dtype}, neither 8 bit nor a float")
        if item.scale.size != 1:
            what = "no quantisation" if not item.scale.size else "a scale per channel"
            raise ModelError(f"{label}: tensor '{item.name}' has {what}")
        low, high = (0, 255) if unsigned else (-128, 127)
        scale, zero = float(item.scale[0]), int(item.zero[0]) if item.zero.size else 0
        if not low <= zero <= high:
            raise ModelError(f"{label}: tensor '{item.name}' has the zero point {zero}")
    shape, flat = item.shape, cube is not None
    if shape:
        tensor_shape(f"{label}: '{item.name}'", shape)
    cube = cube or natural_cube(first(shape) or (1,), f"{label}: '{item.name}'")
    zero -= 128 if unsigned else 0
    tensor = Tensor(item.name, first(shape), scale, zero, cube, unsigned, flat, real)
    graph.tensors[item.name] = tensor
    if not item.part:
        graph.origin[item.name] = item.index
    return tensor


class TfliteNode(FileNode):
    """One operator with the tensors of its file."""

    layout = "(1, H, W, C)"

    def __init__(
        self, model: TfModel, node: TfNode, graph: Graph, on_npu: Callable[[int, str], Tensor]
    ) -> None:
        names = [model.tensors[number].name if number >= 0 else "" for number in node.inputs]
        super().__init__(model.label(node), model.tensors[node.outputs[0]].name, node.op, graph, names)
        self.numbers = node.inputs
        self.items = [model.tensors[number] if number >= 0 else None for number in node.inputs]
        self.made_items = [model.tensors[number] for number in node.outputs]
        self.outputs, self.attributes, self._on_npu = node.outputs, node.options, on_npu
        self.floats = self.made_items[0].dtype in FLOATS
        self.data = 2 if node.op == "TRANSPOSE_CONV" else 0

    def item(self, index: int) -> TfTensor:
        """Return input `index`, activation or constant."""
        item = self.items[index] if index < len(self.items) else None
        if item is None:
            raise self.wrong(f"input {index} is missing")
        return item

    def input(self, index: int = 0) -> Tensor:
        item = self.item(index)
        if item.data is not None:
            raise self.wrong(f"'{item.name}' must not be a constant")
        if item.name not in self.graph.tensors:
            raise self.wrong(f"'{item.name}' is {item.dtype}, not an activation of 8 bit or of floats")
        tensor = self._on_npu(self.numbers[index], self.label)
        if tensor.real != self.floats:
            raise self.wrong(f"'{item.name}' is {item.dtype} and the result {self.made_items[0].dtype}")
        return tensor

    def constant(self, index: int) -> Constant | None:
        item = self.items[index] if index < len(self.items) else None
        if item is None:
            return None
        if item.data is None:
            raise constant_parameter.error(self.label, item.name, False)
        zero = item.zero if item.zero.size else np.zeros(1, np.int64)
        scaled = item.scale.size and item.data.dtype.kind != "f"
        return Constant(item.data, item.scale if scaled else None, zero, item.axis)

    def weights(self, axis: int) -> Weights:
        return self.real_weights(axis) if self.floats else super().weights(axis)

    def codes(self, index: int) -> tuple[Array, float, int, bool]:
        return (self.real_codes(index), 1.0, 0, False) if self.floats else super().codes(index)

    def is_constant(self, index: int) -> bool:
        return self.item(index).data is not None

    def _numbers(self, index: int) -> list[int]:
        constant = self.constant(index)
        if constant is None:
            raise self.wrong(f"input {index} is missing")
        return [int(n) for n in constant.array.reshape(-1)]

    def _pair(self, *names: str) -> tuple[int, int]:
        height, width = (int(self.attributes.get(name, 1)) for name in names)
        return height, width

    def output(self, index: int = 0) -> Tensor:
        """Return output `index` as a tensor of the graph."""
        return define(self.graph, self.made_items[index], self.label)

    def made(self, index: int, shape: Shape, line: bool = False) -> Tensor:
        y = self.output(index)
        self._check(y, natural_cube(shape, self.label))
        return y

    def _check(self, y: Tensor, cube: Cube) -> None:
        """Refuse an output whose cube differs from the one that its operator computes."""
        if y.cube != cube or min(cube) < 1:
            raise self.wrong(f"output '{y.name}' {y.cube} should be {cube} (C, H, W)")

    def finish(self, made: Pending) -> None:
        """Add an operation to the graph that writes the output, with the fused activation."""
        y = self.output()
        if self.kind == "FULLY_CONNECTED" and y.cube != made.cube:
            count, height, width = made.cube
            if y.elements != math.prod(made.cube) or y.cube[0] != count:
                raise self.wrong(f"output '{y.name}' {y.shape} of {count} units")
            # The rows of a matrix in another shape, with the same bytes.
            rows = replace(
                y, name=f"{y.name}@rows", shape=(height * width, count), cube=made.cube, channels_last=True
            )
            self.graph.tensors[rows.name] = rows
            self.graph.aliases[y.name] = rows.name
            y = rows
        self._check(y, made.cube)
        fused = self.attributes.get("FusedActivationFunction", 0)
        name = {4: "TANH", 5: "SIGN_BIT"}.get(fused, str(fused))
        fused_activation(self.label, name, fused in ACTIVATIONS)
        limits = ACTIVATIONS[fused]
        if limits is not None and not made.clampable:
            raise fused_activation.error(self.label, "behind a function or a movement", False)
        clamp = made.clamp.then(Clamp(*limits) if limits else Clamp())
        self.graph.ops.append(replace(made, clamp=clamp).finish(y))

    def rearrange(self, x: Tensor, y: Tensor, shape: Shape) -> None:
        """Let the host bring x's elements, in the file's order, into `shape`."""
        attributes: dict[str, Any] = {"shape": shape}
        if len(x.shape) == 4:
            attributes["before"] = TO_LAST
        if len(shape) == 4:
            attributes["after"] = TO_FIRST
        self.on_host("Rearrange", x.name, y, **attributes)

    def operand(self, index: int, first: Tensor) -> str:
        self.output()  # tensors are numbered in the order in which they are added to the graph
        return super().operand(index, first)

    def spread(self, codes: Array, index: int, like: Tensor) -> Array:
        if len(like.shape) == 4 >= codes.ndim:
            codes = codes.reshape((1,) * (4 - codes.ndim) + codes.shape).transpose(TO_FIRST)
        return super().spread(codes, index, like)

    def second(self, index: int, first: Tensor) -> str:
        return self.input(index).name

    def bias(self, unit: npt.NDArray[np.float64]) -> Array:
        index = 3 if self.kind == "TRANSPOSE_CONV" else 2
        constant = self.constant(index)
        if constant is None:
            return np.zeros(unit.size, dtype=np.int64)
        item = self.item(index)
        if self.floats:
            reals = np.asarray(constant.real(), np.float32).reshape(-1)
            if reals.size not in (1, unit.size):
                raise self.wrong(f"bias '{item.name}' {item.shape} for {unit.size} channels")
            return np.broadcast_to(reals, (unit.size,)).copy()
        if item.dtype not in ("int32", "int64") or constant.array.size != unit.size:
            raise self.wrong(f"bias '{item.name}' is {item.dtype} {item.shape} for {unit.size} channels")
        codes = constant.array.reshape(-1).astype(np.int64)
        scale = np.broadcast_to(item.scale, unit.shape) if item.scale.size in (1, unit.size) else unit
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            ratio = scale / unit
            if np.all(np.abs(ratio - 1) < BIAS_TOLERANCE):
                return codes
            fresh = np.rint(codes * ratio)
        if not (np.abs(fresh) < 2**31).all():
            raise self.wrong(f"bias '{item.name}' does not fit 32 bits in the accumulator's unit")
        return fresh.astype(np.int64)

    def _window(self, kernel: tuple[int, int], x: Tensor) -> Window:
        """Strides, dilations and padding; SAME puts an odd row or column at the end."""
        strides = self._pair("StrideH", "StrideW")
        dilations = self._pair("DilationHFactor", "DilationWFactor")
        same = self.attributes.get("Padding", 1) == 0
        pads = same_pads(x.cube[1:], kernel, strides, dilations) if same else (0, 0, 0, 0)
        return Window(kernel, strides, pads, dilations)

    def kernel(self, x: Tensor) -> Kernel:
        """Weights (OC, kh, kw, IC/groups), or (1, kh, kw, OC) for a depthwise convolution."""
        depthwise = self.kind == "DEPTHWISE_CONV_2D"
        codes, scales, zero = self.weights(3 if depthwise else 0)
        channels = x.cube[0]
        if codes.ndim == 4 and depthwise:
            fits, groups = codes.shape[0] == 1 and codes.shape[3] % channels == 0, channels
        elif codes.ndim == 4 and self.kind == "TRANSPOSE_CONV":
            fits, groups = codes.shape[3] == channels, 1
        else:
            groups = channels // codes.shape[3] if codes.ndim == 4 else 0
            fits = groups > 0 and channels % codes.shape[3] == 0 and codes.shape[0] % groups == 0
        if not fits:
            raise self.wrong(f"weights {codes.shape} do not fit {channels} channels")
        weights = np.ascontiguousarray(
            codes.transpose(3, 0, 1, 2) if depthwise else codes.transpose(TO_FIRST)
        )
        size = weights.shape[2], weights.shape[3]
        if self.kind == "TRANSPOSE_CONV":
            return self._transposed_kernel(x, weights, scales, zero, size)
        window = self._window(size, x)
        return Kernel(weights, scales, zero, window, window.output(*x.cube[1:]), groups)

    def _transposed_kernel(
        self, x: Tensor, weights: Array, scales: Array, zero: int, kernel: tuple[int, int]
    ) -> Kernel:
        """Return the kernel rotated by 180 degrees, which slides over the input with zeros inserted."""
        y, strides, pads = self.output(), self._pair("StrideH", "StrideW"), [0, 0, 0, 0]
        for axis, (taps, size, out) in enumerate(zip(kernel, x.cube[1:], y.cube[1:], strict=True)):
            full = (size - 1) * strides[axis] + taps
            cut = max(full - out, 0) // 2 if self.attributes["Padding"] == 0 else 0
            pads[axis], pads[axis + 2] = taps - 1 - cut, out - full + cut + taps - 1
            if min(pads) < 0:
                raise self.wrong(f"'{x.name}' {x.cube} to '{y.name}' {y.cube} leaves out whole pixels")
        turned = np.ascontiguousarray(weights[:, :, ::-1, ::-1])
        window = Window(kernel, pads=tuple(pads))  # type: ignore[arg-type]
        return Kernel(turned, scales, zero, window, (y.cube[1], y.cube[2]), insert=strides)

    def matrix(self) -> tuple[Tensor, Weights]:
        x, (codes, scales, zero) = self.input(), self.weights(0)
        if codes.ndim != 2 or self.attributes["WeightsFormat"]:
            raise self.wrong(f"weights {codes.shape}, format {self.attributes['WeightsFormat']}")
        depth, y = codes.shape[1], self.output()
        if depth == x.elements and max(x.cube[1:]) > CONV_KERNEL:
            flat = replace(
                x, name=f"{y.name}@flat", shape=(1, depth), cube=(depth, 1, 1), channels_last=False
            )
            self.graph.tensors[flat.name] = flat
            self.rearrange(x, flat, flat.shape)
            x = flat
        channels, height, width = x.cube
        if depth == x.elements:
            maps = codes.reshape(-1, height, width, channels).transpose(TO_FIRST)
            codes = maps.reshape(-1, depth)
        return x, (codes, scales, zero)

    def pooling(self, x: Tensor, average: bool, whole: bool) -> tuple[Window, tuple[int, int], bool, bool]:
        kernel = self._pair("FilterHeight", "FilterWidth")
        window = self._window(kernel, x)
        whole = kernel == x.cube[1:] and window.pads == (0, 0, 0, 0)
        return window, window.output(*x.cube[1:]), False, whole

    def reduced(self, shape: Shape) -> tuple[set[int], bool]:
        axes = {self._axis(axis, shape) for axis in self._numbers(1)}
        return axes, len(self.made_items[0].shape) == len(shape)

    def slopes(self, x: Tensor) -> Array:
        if self.kind == "LEAKY_RELU":
            return np.array([float(self.attributes["Alpha"])])
        codes, scale, zero, _ = self.codes(1)
        if codes.size not in (1, x.cube[0]) or codes.shape[-1:] not in ((codes.size,), ()):
            raise slopes_of_channels.error(self.label, self.names[1], codes.shape, False)
        return (codes.astype(np.float64) - zero) * scale

    def _axis(self, axis: int, shape: Shape) -> int:
        axis %= max(len(shape), 1)
        return TO_LAST[axis] if len(shape) == 4 else axis

    def axis(self, shape: Shape) -> int:
        return self._axis(int(self.attributes["Axis"]), shape)

    def _result_shape(self, index: int, shape: Shape) -> Shape:
        result = first(self.made_items[index].shape)
        if len(result) != len(shape):
            raise self.wrong(f"'{self.made_items[index].name}' {result} is no part of {shape}")
        return result

    def parts(self) -> tuple[int, int, list[int]]:
        source, axis_at = (1, 0) if self.kind == "SPLIT" else (0, 2)
        shape = self.input(source).shape
        axis = self._axis(self._numbers(axis_at)[0], shape)
        return source, axis, [self._result_shape(n, shape)[axis] for n in range(len(self.outputs))]

    def bounds(self, shape: Shape) -> tuple[list[int], list[int], Shape]:
        """Bounds of SLICE, or of STRIDED_SLICE without masks that change the number of dimensions."""
        starts, strides, get = self._numbers(1), [1] * len(shape), self.attributes.get
        if self.kind == "STRIDED_SLICE":
            names = ("EllipsisMask", "NewAxisMask", "ShrinkAxisMask")
            slice_masks(self.label, tuple(name for name in names if get(name)))
            strides = self._numbers(3)
            starts = [0 if get("BeginMask", 0) >> axis & 1 else n for axis, n in enumerate(starts)]
        if not len(starts) == len(strides) == len(shape) or min(strides) < 1:
            raise self.wrong(f"begin {starts}, strides {strides} for {self.item(0).shape}")
        begin, steps = [0] * len(shape), [1] * len(shape)
        for number, (start, step) in enumerate(zip(starts, strides, strict=True)):
            axis = self._axis(number, shape)
            begin[axis] = start + shape[axis] if start < 0 else start
            steps[axis] = step if shape[axis] > 1 else 1
        return begin, steps, self._result_shape(0, shape)

    def repeated_padding(self) -> tuple[RepeatMode, list[int], list[int]] | None:
        if self.kind != "MIRROR_PAD":
            return None
        edges: list[int] = self._numbers(1)
        if len(edges) != 8:
            raise self.wrong(f"paddings {edges} are not supported")
        before, after = ([edges[2 * axis + end] for axis in TO_FIRST] for end in (0, 1))
        return "symmetric" if self.attributes["Mode"] else "reflect", before, after

    def padding(self, x: Tensor) -> tuple[list[int], list[int], float | None]:
        edges: list[int] = self._numbers(1)
        value: float = x.zero_point
        if len(edges) != 8:
            raise self.wrong(f"paddings {edges} are not supported")
        if len(self.items) > 2 and self.floats:
            value = float(self.real_codes(2).reshape(-1)[0])
        elif len(self.items) > 2:
            value = self._numbers(2)[0] - (128 if self.item(2).dtype == "uint8" else 0)
        before, after = ([edges[2 * axis + end] for axis in TO_FIRST] for end in (0, 1))
        return before, after, None if value == x.zero_point else value

    def order(self, shape: Shape) -> tuple[dict[str, Any], Shape]:
        order, given = self._numbers(1), self.item(0).shape
        if sorted(order) != list(range(len(given))):
            raise self.wrong(f"order {order} of {given}")
        maps, turned = len(order) == 4, tuple(given[n] for n in order)
        before = tuple(TO_LAST[n] if maps else n for n in order)
        after: dict[str, Any] = {"after": TO_FIRST} if maps else {}
        return {"before": before, "shape": turned, **after}, first(turned)

    def linear(self, x: Tensor) -> tuple[BilinearForm, Shape] | None:
        if self.kind != "RESIZE_BILINEAR":
            return None
        y = self._resized(x)
        form: BilinearForm = "half_pixel" if self.attributes["HalfPixelCenters"] else "asymmetric"
        return "align_corners" if self.attributes["AlignCorners"] else form, (1, *y.cube)

    def _resized(self, x: Tensor) -> Tensor:
        """Return the result of a resize, which must have the channels of `x` and the size of input 1."""
        y = self.output()
        if y.cube[0] != x.cube[0]:
            raise self.wrong(f"'{y.name}' {y.shape} has other channels than the input")
        if self.is_constant(1) and (size := tuple(self._numbers(1))) != y.cube[1:]:
            raise self.wrong(f"'{y.name}' {y.shape} is not of the size {size}")
        return y

    def picks(self, x: Tensor) -> tuple[list[tuple[int, ...]], Shape]:
        y, picks = self._resized(x), []
        for size, out in zip(x.cube[1:], y.cube[1:], strict=True):
            corners = self.attributes["AlignCorners"] and out > 1
            rule = Coordinates.CENTRES if self.attributes["HalfPixelCenters"] else Coordinates.ASYMMETRIC
            spots = places(out, step_of(size, out, corners), rule)
            picks.append(tuple(int(n) for n in picked(spots, size, half_up=corners)))
        return picks, (1, *y.cube)
