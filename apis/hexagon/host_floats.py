"""Operations on float32 and int32, computed by the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.arithmetic import half_away
from rkcosim.apis.hexagon.geometry import Geometry, Padding, geometry, window_of
from rkcosim.apis.hexagon.host_moves import axis_of
from rkcosim.apis.hexagon.operations import NodeCall, operation
from rkcosim.apis.hexagon.tensors import Failure, Value, check_size, value
from rkcosim.hostops import resize
from rkcosim.hostops.convolution import convolved
from rkcosim.hostops.pooling import largest, means
from rkcosim.hostops.softmax import softmax

Array = npt.NDArray[Any]
MANY = None


def broadcast(a: Array, b: Array) -> None:
    """Raise Failure if the sizes of two arrays do not match, except where one of them is 1."""
    if any(m != n and 1 not in (m, n) for m, n in zip(a.shape, b.shape, strict=True)):
        raise Failure(f"tensors of {a.shape} and {b.shape} cannot be combined")


def _binary(name: str, dtype: type[Any], function: Callable[[Array, Array], Array]) -> None:
    @operation(name, ins=2, outs=1)
    def binary(call: NodeCall) -> list[Value]:
        a, b = (x.array(dtype) for x in call.inputs)
        broadcast(a, b)
        return [value(function(a, b).astype(dtype))]


_FLOATS: dict[str, Callable[[Array, Array], Array]] = {
    "Add_f": np.add,
    "Sub_f": np.subtract,
    "Mul_f": np.multiply,
    "Minimum_f": np.minimum,
    "Maximum_f": np.maximum,
}
_INTS: dict[str, Callable[[Array, Array], Array]] = {
    "Add_int32": np.add,
    "Sub_int32": np.subtract,
    "Mul_int32": np.multiply,
    "BitwiseAnd_int32": np.bitwise_and,
    "BitwiseOr_int32": np.bitwise_or,
    "BitwiseXor_int32": np.bitwise_xor,
}
for _name, _function in _FLOATS.items():
    _binary(_name, np.float32, _function)
for _name, _function in _INTS.items():
    _binary(_name, np.int32, _function)


def _unary(name: str, dtype: type[Any], function: Callable[[Array], Array]) -> None:
    @operation(name, ins=1, outs=1)
    def unary(call: NodeCall) -> list[Value]:
        return [value(function(call.inputs[0].array(dtype)).astype(dtype))]


def softmax_of_depth(x: Array) -> Array:
    """Return softmax along the depth, float64."""
    return softmax(x.astype(np.float64), -1)


_UNARY: dict[str, Callable[[Array], Array]] = {
    "Relu_f": lambda x: np.maximum(x, 0),
    "Tanh_f": np.tanh,
    "Sigmoid_f": lambda x: 0.5 * (1 + np.tanh(0.5 * x)),
    "Neg_f": np.negative,
    "Abs_f": np.abs,
    "Ceil_f": np.ceil,
    "Floor_f": np.floor,
    "Round_f": half_away,
    "LogSoftmax_f": lambda x: np.log(softmax_of_depth(x)),
}
for _name, _one in _UNARY.items():
    _unary(_name, np.float32, _one)
for _name, _one in {
    "Neg_int32": np.negative,
    "Abs_int32": np.abs,
    "BitwiseNot_int32": np.bitwise_not,
}.items():
    _unary(_name, np.int32, _one)


@operation("Softmax_f", ins=(1, 2), outs=1)
def softmax_f(call: NodeCall) -> list[Value]:
    beta = call.inputs[1].scalar if len(call.inputs) > 1 else 1.0
    return [value(softmax_of_depth(call.inputs[0].reals * np.float32(beta)).astype(np.float32))]


@operation("ReluX_f", ins=2, outs=1)
def relu_x(call: NodeCall) -> list[Value]:
    return [value(np.clip(call.inputs[0].reals, 0, np.float32(call.inputs[1].scalar)))]


@operation("Clamp_f", ins=3, outs=1)
def clamp(call: NodeCall) -> list[Value]:
    low, high = (np.float32(x.scalar) for x in call.inputs[1:])
    if not high > low:
        raise Failure(f"bounds of {low:g} and {high:g}")
    return [value(np.minimum(np.maximum(call.inputs[0].reals, low), high))]


@operation("Select_f", ins=3, outs=1)
def select(call: NodeCall) -> list[Value]:
    chosen, a, b = call.inputs
    if not chosen.shape == a.shape == b.shape:
        raise Failure(f"tensors of {chosen.shape}, {a.shape} and {b.shape}")
    return [value(np.where(chosen.raw != 0, a.reals, b.reals))]


@operation("AddN_f", ins=(1, MANY), outs=1)
def add_n(call: NodeCall) -> list[Value]:
    total = call.inputs[0].reals
    for x in call.inputs[1:]:
        if x.shape != call.inputs[0].shape:
            raise Failure(f"tensors of {call.inputs[0].shape} and {x.shape}")
        total = total + x.reals
    return [value(total)]


@operation("BiasAdd_f", ins=2, outs=1)
def bias_add(call: NodeCall) -> list[Value]:
    x, bias = call.inputs[0].reals, call.inputs[1].reals
    if bias.shape != (1, 1, 1, x.shape[3]):
        raise Failure(f"a bias of {bias.shape} for a depth of {x.shape[3]}")
    return [value(x + bias)]


@operation("PRelu_f", ins=2, outs=1)
def p_relu(call: NodeCall) -> list[Value]:
    x, depth = call.inputs[0].reals, call.inputs[1].shape[3]
    if depth not in (1, x.shape[3]) or not call.inputs[1].elements:
        raise Failure(f"{depth} slopes for a depth of {x.shape[3]}")
    slopes = call.inputs[1].reals.reshape(-1)[:depth]
    return [value(np.where(x < 0, x * slopes, x).astype(np.float32))]


def reduced_axes(call: NodeCall) -> tuple[int, ...]:
    """Return the axes over which inputs 1 (list of axes) and 2 (rank) of a node reduce.

    A negative axis means all of them; axes that the rank does not have are left out, as nnlib does.
    """
    if len(call.inputs) < 2:
        return (0, 1, 2, 3)
    axes = call.inputs[1].list[: call.inputs[1].elements]
    rank = call.inputs[2].whole if len(call.inputs) > 2 else 4
    if min(axes, default=-1) < 0:
        return (0, 1, 2, 3)
    return tuple(sorted({axis + 4 - rank for axis in axes if 0 <= axis + 4 - rank < 4}))


def squeezed(array: Array, axes: tuple[int, ...], padding: Padding) -> Value:
    """Return a reduced array; with padding VALID the reduced axes move to the front."""
    if padding != Padding.VALID:
        return value(array)
    return value(array.reshape([n for axis, n in enumerate(array.shape) if axis not in axes]))


def _reduction(name: str, dtype: type[Any], function: Callable[..., Array]) -> None:
    @operation(name, ins=(1, 3), outs=1)
    def reduction(call: NodeCall) -> list[Value]:
        axes = reduced_axes(call)
        found = function(call.inputs[0].array(dtype), axis=axes, keepdims=True).astype(dtype)
        return [squeezed(found, axes, call.padding)]


_reduction("Min_f", np.float32, np.min)
_reduction("Max_f", np.float32, np.max)
_reduction("Sum_f", np.float32, np.sum)
_reduction("Prod_f", np.float32, np.prod)
_reduction("Prod_int32", np.int32, np.prod)


@operation("Range_int32", ins=3, outs=1)
def range_(call: NodeCall) -> list[Value]:
    """Numbers from start to before limit; a step of the wrong sign is 1 or -1, equal ends are one number."""
    start, limit, step = (x.whole for x in call.inputs)
    step = max(step, 1) if start < limit else min(step, -1)
    numbers = range(start, limit, step) if start != limit else range(start, start + 1)
    check_size(len(numbers))
    return [value(np.array(numbers, dtype=np.int32))]


def convolution(x: Array, w: Array, window: Geometry) -> Array:
    """Return the sums of an input (B, H, W, D) and weights (kh, kw, D, OC), float64 (B, OH, OW, OC)."""
    made = convolved(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), window.sliding)
    return made.transpose(0, 2, 3, 1)


def depthwise(x: Array, w: Array, window: Geometry) -> Array:
    """Return the sums of an input (B, H, W, D) and weights (kh, kw, D, M), float64 (B, OH, OW, D * M)."""
    filters = w.transpose(2, 3, 0, 1).reshape(-1, 1, *w.shape[:2])
    return convolved(x.transpose(0, 3, 1, 2), filters, window.sliding, w.shape[2]).transpose(0, 2, 3, 1)


def kernel_window(call: NodeCall, x: Value, w: Value, stride: Value) -> Geometry:
    """Return the window of a convolution; raises Failure if the depths differ."""
    if x.shape[3] != w.shape[2]:
        raise Failure(f"an input with a depth of {x.shape[3]} for weights with a depth of {w.shape[2]}")
    return geometry(x, w.shape[:2], window_of(stride, "strides"), call.padding)


@operation("Conv2d_f", ins=3, outs=1)
def conv2d(call: NodeCall) -> list[Value]:
    x, w, stride = call.inputs
    made = convolution(
        x.reals.astype(np.float64), w.reals.astype(np.float64), kernel_window(call, x, w, stride)
    )
    return [value(made.astype(np.float32))]


@operation("DepthwiseConv2d_f", ins=3, outs=1)
def depthwise_conv2d(call: NodeCall) -> list[Value]:
    x, w, stride = call.inputs
    made = depthwise(
        x.reals.astype(np.float64), w.reals.astype(np.float64), kernel_window(call, x, w, stride)
    )
    return [value(made.astype(np.float32))]


def matrix_rows(a: Value, b: Value) -> tuple[int, int, int]:
    """Return the batches, rows and columns in which a tensor is multiplied by a matrix (1, 1, K, N).

    Raises
    ------
    Failure
        if `b` is not a matrix, or the elements of `a` cannot be rows of K.
    """
    if b.shape[:2] != (1, 1) or b.shape[2] < 1 or a.elements % b.shape[2]:
        raise Failure(f"matrices of {a.shape} and {b.shape}")
    if a.shape[3] == b.shape[2]:
        return a.shape[0], a.shape[1], a.shape[2]
    return 1, 1, a.elements // b.shape[2]


@operation("MatMul_f", ins=2, outs=1)
def mat_mul(call: NodeCall) -> list[Value]:
    a, b = call.inputs
    rows = matrix_rows(a, b)
    x = a.reals.reshape(*rows, b.shape[2]).astype(np.float64)
    return [value((x @ b.reals[0, 0].astype(np.float64)).astype(np.float32))]


def pool_window(call: NodeCall, x: Value, window: Value, stride: Value) -> Geometry:
    """Return the window of a pooling operation of floats or bytes."""
    if call.padding == Padding.NA:
        raise Failure("pooling needs padding SAME or VALID")
    return geometry(x, window_of(window, "a window"), window_of(stride, "strides"), call.padding)


@operation("MaxPool_f", ins=3, outs=1)
def max_pool(call: NodeCall) -> list[Value]:
    x = call.inputs[0]
    return [value(largest(x.reals, pool_window(call, *call.inputs).sliding, 1))]


def _mean(call: NodeCall, x: Array) -> Array:
    return means(x, pool_window(call, *call.inputs).sliding, 1)


@operation("AvgPool_f", ins=3, outs=1)
def avg_pool(call: NodeCall) -> list[Value]:
    return [value(_mean(call, call.inputs[0].reals).astype(np.float32))]


@operation("L2Pool_f", ins=3, outs=1)
def l2_pool(call: NodeCall) -> list[Value]:
    squares = call.inputs[0].reals.astype(np.float64) ** 2
    return [value(np.sqrt(_mean(call, squares)).astype(np.float32))]


def normalised(x: Array, sizes: Value, n: float, bias: float, alpha: float, beta: float) -> Array:
    """Return x / (bias + alpha / n * (sum of squares of its neighbours))^beta, float64.

    The neighbours are a block around the element, (size - 1) / 2 whole elements on each side of it for the
    `sizes`, so that an even window has one element less.  The power of
    a negative number is NaN, as nnlib has it as an exponential of a logarithm (hexagon/ops/src/op_lrn_f.c).
    """
    if sizes.shape[0] != 1:
        raise Failure(f"a window of {sizes.shape}")
    squares = x.astype(np.float64) ** 2
    for axis in range(1, 4):
        reach = min((max(sizes.shape[axis], 1) - 1) // 2, x.shape[axis])
        pads = [(0, 0)] * 4
        pads[axis] = (reach, reach)
        full = np.pad(squares, pads)
        squares = np.lib.stride_tricks.sliding_window_view(full, 2 * reach + 1, axis).sum(axis=-1)
    with np.errstate(all="ignore"):
        share = np.float64(alpha) / np.float64(n)
        total: Array = np.exp(np.log(bias + share * squares) * -beta) * x
    return total


@operation("LRN_f", ins=5, outs=1)
def lrn(call: NodeCall) -> list[Value]:
    x, sizes, *rest = call.inputs
    bias, alpha, beta = (one.scalar for one in rest)
    made = normalised(x.reals, sizes, sizes.scalar, bias, alpha, beta)
    return [value(np.where(x.reals == 0, 0, made).astype(np.float32))]


def bilinear(x: Array, sizes: Value, corners: bool) -> Array:
    """Return an image (B, H, W, D) with other numbers of rows and columns, float64.

    It adds a share of the difference of two elements, as nnlib does: the last bits decide halves of bytes.
    """
    wanted = sizes.list[:2]
    if len(wanted) != 2 or min(wanted) < 1:
        raise Failure(f"an output of {wanted}")
    check_size(x.shape[0], *wanted, x.shape[3])
    found = x.astype(np.float64)
    for axis, new in zip((1, 2), wanted, strict=True):
        old = x.shape[axis]
        step = resize.step_of(old, new, corners and new > 1)
        at = resize.places(new, step, resize.Coordinates.ASYMMETRIC)
        first = np.minimum(at.astype(np.int64), old - 1)
        part = (at - first).reshape([-1 if n == axis else 1 for n in range(4)])
        low, high = np.take(found, first, axis), np.take(found, np.minimum(first + 1, old - 1), axis)
        found = low + (high - low) * part
    return found


@operation("ResizeBilinear_f", ins=(2, 3), outs=1)
def resize_bilinear(call: NodeCall) -> list[Value]:
    corners = len(call.inputs) > 2 and bool(call.inputs[2].whole)
    return [value(bilinear(call.inputs[0].reals, call.inputs[1], corners).astype(np.float32))]


EPSILON = 1e-5
"""What InstanceNorm_f adds to a variance (op_instancenorm.c)."""


@operation("InstanceNorm_f", ins=1, outs=1)
def instance_norm(call: NodeCall) -> list[Value]:
    x = call.inputs[0].reals.astype(np.float64)
    if not x.size:
        raise Failure("an empty tensor")
    mean, variance = x.mean(axis=(1, 2), keepdims=True), x.var(axis=(1, 2), keepdims=True)
    return [value(((x - mean) / np.sqrt(variance + EPSILON)).astype(np.float32))]


def _cast(name: str, given: type[Any], wanted: type[Any]) -> None:
    limits = (0, 255) if wanted is np.uint8 else (-(2**31), 2**31 - 1)

    @operation(name, ins=1, outs=1)
    def cast(call: NodeCall) -> list[Value]:
        x = call.inputs[0].array(given).astype(np.float64)
        kept = x if wanted is np.float32 else np.clip(np.trunc(x), *limits)
        return [value(kept.astype(wanted))]


_cast("CastFloat32ToInt32", np.float32, np.int32)
_cast("CastFloat32ToUInt8", np.float32, np.uint8)
_cast("CastInt32ToFloat32", np.int32, np.float32)
_cast("CastInt32ToUInt8", np.int32, np.uint8)
_cast("CastUInt8ToFloat32", np.uint8, np.float32)
_cast("CastUInt8ToInt32", np.uint8, np.int32)
_cast("Convert_int32_f", np.int32, np.float32)


@operation("ArgMax_ftoInt32", ins=2, outs=1)
def arg_max(call: NodeCall) -> list[Value]:
    axis = axis_of(call.inputs[1].whole)
    found = call.inputs[0].reals.argmax(axis=axis)
    return [value(np.expand_dims(found, axis).astype(np.int32))]
