"""Convolutions and products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.npu import EmittedNode, Network
from rkcosim.apis.diopi.operators.registry import OperatorCall, operator
from rkcosim.apis.diopi.operators.types import TOO_FINE, fits_half, wide
from rkcosim.apis.diopi.tensor import diopiTensor
from rkcosim.apis.diopi.values import DiopiError, diopiScalar, diopiSize
from rkcosim.hostops.convolution import convolved, transposed
from rkcosim.hostops.geometry import Sliding, reach

Array = npt.NDArray[Any]
Ints = Sequence[int]


def _arrays(bias: diopiTensor | None) -> list[Array]:
    return [] if bias is None else [bias.array()]


def _attributes(stride: diopiSize, padding: diopiSize, dilation: diopiSize, groups: int) -> dict[str, Any]:
    """Return the attributes of ONNX's Conv and ConvTranspose."""
    return {
        "strides": stride.data,
        "pads": padding.data * 2,
        "dilations": dilation.data,
        "group": groups,
    }


def _filtered(
    call: OperatorCall,
    out: diopiTensor,
    arrays: list[Array],
    function: Callable[[Array, Array], Array],
    kind: str,
    attributes: Mapping[str, Any],
) -> None:
    """Compute a convolution, or a transposed one, of input, weight and perhaps bias."""
    x, *parameters = arrays

    def host(x: Array, w: Array, b: Array | None = None) -> Array:
        made = function(wide(x), wide(w))
        return made if b is None else made + wide(b).reshape(-1, *(1,) * (made.ndim - 2))

    def network() -> Network | str:
        if x.ndim != 4:
            return "a convolution over three axes"
        constants = dict(zip("wb", parameters, strict=False))
        nodes = [EmittedNode(kind, ("x", *constants), "y", attributes)]
        shape = out.array().shape
        return Network({"x": x}, nodes, (1, *shape[1:]), shape, constants, len(x))

    call.compute(out, arrays, host, network, host)


def _check_filters(x: Array, weight: Array, inputs: int, groups: int, rank: int, *sizes: diopiSize) -> None:
    """Raise DiopiError for operands of a convolution that do not fit."""
    if x.ndim != rank or weight.ndim != rank:
        raise DiopiError(f"input {x.shape} and weight {weight.shape} are not of rank {rank}")
    if groups < 1 or x.shape[1] % groups or weight.shape[0] % groups or inputs != x.shape[1]:
        raise DiopiError(f"input {x.shape}, weight {weight.shape} and {groups} groups do not fit")
    for size in sizes:
        if size.len != rank - 2 or min(size.data) < 0:
            raise DiopiError(f"{size.data} is not {rank - 2} numbers of a window")
    for size in (sizes[0], sizes[-1]):
        if min(size.data) < 1:
            raise DiopiError(f"{size.data} has a stride or dilation below 1")


def convolution(x: Array, weight: Array, strides: Ints, padding: Ints, dilation: Ints, groups: int) -> Array:
    """Return a convolution of (N, C, ...) with (OC, C / groups, ...), float64."""
    sliding = Sliding.over(x.shape[2:], weight.shape[2:], strides, padding, padding, dilation)
    return convolved(x, weight, sliding, groups)


def transposed_convolution(
    x: Array, weight: Array, strides: Ints, padding: Ints, more: Ints, groups: int, dilation: Ints
) -> Array:
    """Return a transposed convolution of (N, C, ...) with (C, OC / groups, ...), float64."""
    counts = [
        max((n - 1) * s + reach(k, d) + o - 2 * p, 0)
        for n, s, k, d, o, p in zip(
            x.shape[2:], strides, weight.shape[2:], dilation, more, padding, strict=True
        )
    ]
    return transposed(x, weight, strides, dilation, padding, counts, groups)


def _convolution(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    weight: diopiTensor,
    bias: diopiTensor | None,
    stride: diopiSize,
    padding: diopiSize,
    dilation: diopiSize,
    groups: int,
    rank: int,
) -> None:
    x, w = input.array(), weight.array()
    _check_filters(x, w, w.shape[1] * groups, groups, rank, stride, padding, dilation)

    def made(x: Array, w: Array) -> Array:
        return convolution(x, w, stride.data, padding.data, dilation.data, groups)

    attributes = _attributes(stride, padding, dilation, groups)
    _filtered(call, out, [x, w, *_arrays(bias)], made, "Conv", attributes)


@operator("Convolution2d")
def _convolution2d(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    weight: diopiTensor,
    bias: diopiTensor | None,
    stride: diopiSize,
    padding: diopiSize,
    dilation: diopiSize,
    groups: int,
) -> None:
    """A convolution of (N, C, H, W) with (OC, C / groups, kh, kw)."""
    _convolution(call, out, input, weight, bias, stride, padding, dilation, groups, 4)


@operator("Convolution3d")
def _convolution3d(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    weight: diopiTensor,
    bias: diopiTensor | None,
    stride: diopiSize,
    padding: diopiSize,
    dilation: diopiSize,
    groups: int,
) -> None:
    """A convolution of (N, C, D, H, W) with (OC, C / groups, kd, kh, kw)."""
    _convolution(call, out, input, weight, bias, stride, padding, dilation, groups, 5)


def _transposed(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    weight: diopiTensor,
    bias: diopiTensor | None,
    stride: diopiSize,
    padding: diopiSize,
    output_padding: diopiSize,
    groups: int,
    dilation: diopiSize,
    rank: int,
) -> None:
    x, w = input.array(), weight.array()
    _check_filters(x, w, w.shape[0], groups, rank, stride, padding, output_padding, dilation)
    sizes = (stride.data, padding.data, output_padding.data)
    larger = [max(pair) for pair in zip(stride.data, dilation.data, strict=True)]
    if any(more >= most for more, most in zip(output_padding.data, larger, strict=True)):
        raise DiopiError(f"output padding {output_padding.data} is not smaller than stride or dilation")

    def made(x: Array, w: Array) -> Array:
        return transposed_convolution(x, w, *sizes, groups, dilation.data)

    attributes = _attributes(stride, padding, dilation, groups) | {"output_padding": output_padding.data}
    _filtered(call, out, [x, w, *_arrays(bias)], made, "ConvTranspose", attributes)


@operator("ConvTranspose2d")
def _transposed2d(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    weight: diopiTensor,
    bias: diopiTensor | None,
    stride: diopiSize,
    padding: diopiSize,
    output_padding: diopiSize,
    groups: int,
    dilation: diopiSize,
) -> None:
    """A transposed convolution of (N, C, H, W) with (C, OC / groups, kh, kw)."""
    _transposed(call, out, input, weight, bias, stride, padding, output_padding, groups, dilation, 4)


@operator("ConvTranspose3d")
def _transposed3d(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    weight: diopiTensor,
    bias: diopiTensor | None,
    stride: diopiSize,
    padding: diopiSize,
    output_padding: diopiSize,
    groups: int,
    dilation: diopiSize,
) -> None:
    """A transposed convolution of (N, C, D, H, W) with (C, OC / groups, kd, kh, kw)."""
    _transposed(call, out, input, weight, bias, stride, padding, output_padding, groups, dilation, 5)


def _multiply(
    call: OperatorCall,
    out: diopiTensor,
    a: Array,
    b: Array,
    added: Array | None = None,
    beta: float = 0.0,
    alpha: float = 1.0,
) -> None:
    """Compute alpha * (a @ b) + beta * added; a vector is a matrix of one row or column."""
    left = a.reshape(1, -1) if a.ndim == 1 else a
    right = b.reshape(-1, 1) if b.ndim == 1 else b
    if min(a.ndim, b.ndim) < 1 or left.shape[-1] != right.shape[-2]:
        raise DiopiError(f"matrices {a.shape} and {b.shape} do not fit")
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    whole = (*batch, left.shape[-2], right.shape[-1])

    def product(alpha: float, beta: float, a: Array, b: Array, c: Array | None = None) -> Array:
        made = np.matmul(wide(a.reshape(left.shape)), wide(b.reshape(right.shape)))
        made = made.reshape(out.array().shape)
        if c is None:
            return np.asarray(made if alpha == 1 else made * alpha)
        return np.asarray(made * alpha + (wide(c) * beta if beta else 0))

    host = partial(product, alpha, beta)
    sums = partial(product, abs(alpha), abs(beta))

    def network() -> Network | str:
        if not (fits_half(alpha) and fits_half(beta)):
            return TOO_FINE
        feeds = {
            name: np.broadcast_to(array, (*batch, *array.shape[-2:])).reshape(-1, array.shape[-1])
            for name, array in (("l", left), ("r", right))
        }
        nodes, constants = [EmittedNode("MatMul", ("l", "r"), "y")], {}
        if alpha != 1:
            nodes.append(EmittedNode("Mul", ("y", "alpha"), "scaled"))
            constants["alpha"] = np.array(alpha, np.float32)
        if added is not None and beta:
            feeds["c"] = np.broadcast_to(added, whole).reshape(-1, whole[-1])
            name = "c"
            if beta != 1:
                nodes.append(EmittedNode("Mul", ("c", "beta"), "more"))
                constants["beta"], name = np.array(beta, np.float32), "more"
            nodes.append(EmittedNode("Add", ("scaled" if alpha != 1 else "y", name), "sum"))
        count = int(np.prod(batch, dtype=np.int64))
        return Network(feeds, nodes, whole[-2:], out.array().shape, constants, count)

    call.compute(out, [a, b, *([] if added is None else [added])], host, network, sums)


@operator("Linear")
def _linear(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, weight: diopiTensor, bias: diopiTensor | None
) -> None:
    """x @ weight.T + bias."""
    x, w = input.array(), weight.array()
    arrays = [x, w, *_arrays(bias)]
    if w.ndim != 2 or not x.ndim or x.shape[-1] != w.shape[1]:
        raise DiopiError(f"input {x.shape} and weight {w.shape} do not fit")

    def host(x: Array, w: Array, b: Array | None = None) -> Array:
        made = np.matmul(wide(x), wide(w).T)
        return np.asarray(made if b is None else made + wide(b))

    def network() -> Network:
        rows = x.reshape(-1, w.shape[1])
        constants = dict(zip("wb", arrays[1:], strict=False))
        nodes = [EmittedNode("Gemm", ("x", *constants), "y", {"transB": 1})]
        return Network({"x": rows}, nodes, (len(rows), w.shape[0]), out.array().shape, constants)

    call.compute(out, arrays, host, network, host)


@operator("Matmul")
def _matmul(call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiTensor) -> None:
    """The product of two matrices, of their batches, or of vectors."""
    _multiply(call, out, input.array(), other.array())


@operator("Mm")
def _mm(call: OperatorCall, out: diopiTensor, input: diopiTensor, mat2: diopiTensor) -> None:
    """The product of two matrices."""
    _check_rank(2, input, mat2)
    _multiply(call, out, input.array(), mat2.array())


@operator("Bmm")
def _bmm(call: OperatorCall, out: diopiTensor, input: diopiTensor, mat2: diopiTensor) -> None:
    """The products of two batches of matrices."""
    _check_rank(3, input, mat2)
    _multiply(call, out, input.array(), mat2.array())


@operator("Addmm")
def _addmm(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    mat1: diopiTensor,
    mat2: diopiTensor,
    beta: diopiScalar,
    alpha: diopiScalar,
) -> None:
    """beta * c + alpha * (a @ b) of matrices."""
    _check_rank(2, mat1, mat2)
    _multiply(call, out, mat1.array(), mat2.array(), input.array(), beta.value, alpha.value)


@operator("Baddbmm", inplace=True)
def _baddbmm(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    batch1: diopiTensor,
    batch2: diopiTensor,
    beta: float,
    alpha: float,
) -> None:
    """beta * c + alpha * (a @ b) of batches of matrices."""
    _check_rank(3, batch1, batch2)
    _multiply(call, out, batch1.array(), batch2.array(), input.array(), beta, alpha)


def _check_rank(rank: int, *tensors: diopiTensor) -> None:
    for tensor in tensors:
        if tensor.shape().len != rank:
            raise DiopiError(f"a matrix of shape {tuple(tensor.shape().data)} is not of rank {rank}")
