"""Data movement and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.host import moves
from rkcosim.apis.diopi.npu import EmittedNode, Network
from rkcosim.apis.diopi.operators.registry import OperatorCall, axes_of, axis_of, operator, tensors_of
from rkcosim.apis.diopi.operators.types import real
from rkcosim.apis.diopi.tensor import diopiTensor
from rkcosim.apis.diopi.values import DiopiError, diopiScalar, diopiSize

Array = npt.NDArray[Any]


@operator("Slice")
def _slice(
    call: OperatorCall, null_out: diopiTensor, input: diopiTensor, dim: int, start: int, end: int, step: int
) -> None:
    """Every `step`-th index of an axis, from `start` to before `end`."""
    x = input.array()
    axis = axis_of(dim, x.ndim)
    if step < 1:
        raise DiopiError(f"step {step}")
    call.put(null_out, x[(slice(None),) * axis + (slice(start, end, step),)])


@operator("Cat")
def _cat(call: OperatorCall, out: diopiTensor, tensors: list, num_inputs: int, dim: int) -> None:
    """Tensors one behind the other on an axis."""
    arrays = [tensor.array() for tensor in tensors_of(tensors, num_inputs)]
    rank = max((array.ndim for array in arrays), default=0)
    arrays = [array for array in arrays if array.ndim == rank or array.size]
    if not arrays:
        raise DiopiError("no tensors")
    call.put(out, np.concatenate(arrays, axis_of(dim, rank)))


@operator("SplitWithSizes")
def _split(
    call: OperatorCall, outs: list, num_outs: int, input: diopiTensor, splitSizes: diopiSize, dim: int
) -> None:
    """Parts of a tensor on an axis, of the given sizes."""
    x, sizes = input.array(), splitSizes.data
    axis = axis_of(dim, x.ndim)
    if len(sizes) != num_outs or sum(sizes) != x.shape[axis]:
        raise DiopiError(f"{num_outs} parts of the sizes {sizes} of axis {axis} of {x.shape}")
    for tensor, part in zip(
        tensors_of(outs, num_outs), np.split(x, np.cumsum(sizes)[:-1], axis), strict=True
    ):
        call.put(tensor, part)


@operator("Stack")
def _stack(call: OperatorCall, out: diopiTensor, tensors: list, numTensors: int, dim: int) -> None:
    """Tensors of one shape on a new axis."""
    arrays = [tensor.array() for tensor in tensors_of(tensors, numTensors)]
    call.put(out, np.stack(arrays, axis_of(dim, arrays[0].ndim + 1) if arrays else 0))


@operator("Transpose")
def _transpose(call: OperatorCall, out: diopiTensor, input: diopiTensor, dim0: int, dim1: int) -> None:
    """Two axes exchanged."""
    x = input.array()
    if not x.ndim:
        call.put(out, x)
        return
    call.put(out, x.swapaxes(axis_of(dim0, x.ndim), axis_of(dim1, x.ndim)))


@operator("Permute")
def _permute(call: OperatorCall, out: diopiTensor, input: diopiTensor, dims: diopiSize) -> None:
    """The axes in another order."""
    x = input.array()
    order = axes_of(dims.data, x.ndim)
    if dims.len != x.ndim:
        raise DiopiError(f"the order {dims.data} of {x.ndim} axes")
    call.put(out, x.transpose(order))


@operator("Pad")
def _pad(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    pad: diopiSize,
    mode: str | bytes,
    value: float | None = None,
) -> None:
    """A padded tensor; modes constant, reflect, replicate and circular."""
    form = mode.decode() if isinstance(mode, bytes) else mode
    call.put(out, moves.padded(input.array(), pad.data, form, value or 0))


@operator("Unfold")
def _unfold(call: OperatorCall, out: diopiTensor, input: diopiTensor, dim: int, size: int, step: int) -> None:
    """The windows of an axis, as a new last axis."""
    x = input.array()
    axis = axis_of(dim, x.ndim)
    if step < 1 or size < 0 or (x.ndim and size > x.shape[axis]):
        raise DiopiError(f"windows of {size} at steps of {step} of axis {axis} of {x.shape}")
    call.put(out, moves.windows(x, axis, size, step))


@operator("Expand")
def _expand(call: OperatorCall, out: diopiTensor, input: diopiTensor) -> None:
    """A tensor repeated to the shape of `out`."""
    call.put(out, np.broadcast_to(input.array(), out.array().shape))


@operator("Repeat")
def _repeat(call: OperatorCall, out: diopiTensor, input: diopiTensor, repeats_size: diopiSize) -> None:
    """A tensor repeated on each axis."""
    call.put(out, np.tile(input.array(), repeats_size.data))


@operator("Flip")
def _flip(call: OperatorCall, out: diopiTensor, input: diopiTensor, dims: diopiSize) -> None:
    """Axes in reverse order."""
    x = input.array()
    call.put(out, np.flip(x, axes_of(dims.data, x.ndim)) if dims.len else x)


@operator("Roll")
def _roll(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, shifts: diopiSize, dims: diopiSize
) -> None:
    """Elements shifted around on axes; without axes, on the flattened tensor."""
    x = input.array()
    if not dims.len:
        call.put(out, np.roll(x.reshape(-1), shifts.data).reshape(x.shape))
        return
    call.put(out, np.roll(x, shifts.data, [axis_of(dim, x.ndim) for dim in dims.data]))


@operator("Select")
def _select(call: OperatorCall, out: diopiTensor, input: diopiTensor, dim: int, index: int) -> None:
    """One index of an axis."""
    x = input.array()
    call.put(out, np.take(x, index, axis_of(dim, x.ndim)))


@operator("IndexSelect")
def _index_select(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, dim: int, index: diopiTensor
) -> None:
    """Some indices of an axis."""
    x, places = input.array(), index.array().reshape(-1)
    axis = axis_of(dim, x.ndim)
    _not_negative(places)
    call.put(out, np.take(x, places, axis))


def _not_negative(places: Array) -> None:
    """Raise DiopiError for a negative index in a tensor, which PyTorch has not either."""
    if places.size and places.min() < 0:
        raise DiopiError(f"the index {places.min()}")


@operator("Gather")
def _gather(call: OperatorCall, out: diopiTensor, input: diopiTensor, dim: int, index: diopiTensor) -> None:
    """For each element of an index tensor, the element at that place of an axis."""
    x, places = np.atleast_1d(input.array()), np.atleast_1d(index.array())
    axis, shape = axis_of(dim, x.ndim), index.array().shape
    if x.ndim != places.ndim:
        raise DiopiError(f"an index of shape {shape} of a tensor of shape {input.array().shape}")
    if not places.size:
        call.put(out, np.zeros(shape))
        return
    _not_negative(places)
    whole = tuple(slice(0, n if i != axis else None) for i, n in enumerate(places.shape))
    call.put(out, np.take_along_axis(x[whole], places, axis).reshape(shape))


@operator("Where")
def _where(
    call: OperatorCall, out: diopiTensor, condition: diopiTensor, input: diopiTensor, other: diopiTensor
) -> None:
    """One of two elements, by a condition."""
    call.put(out, np.where(condition.array(), input.array(), other.array()))


@operator("MaskedFill", inplace=True)
def _masked_fill(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, mask: diopiTensor, value: diopiTensor
) -> None:
    """A value where a mask is set."""
    call.put(out, np.where(mask.array(), value.array(), input.array()))


@operator("MaskedFillScalar", inplace=True)
def _masked_fill_scalar(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, mask: diopiTensor, value: diopiScalar
) -> None:
    """A number where a mask is set."""
    x = input.array()
    call.put(out, np.where(mask.array(), np.array(value.value).astype(x.dtype), x))


def _triangle(kind: str, keep: Callable[..., Any], inplace: bool) -> None:
    def function(call: OperatorCall, out: diopiTensor, input: diopiTensor, diagonal: int) -> None:
        call.put(out, keep(input.array(), diagonal))

    function.__doc__ = f"The {kind} triangle of matrices."
    operator("Tril" if kind == "lower" else "Triu", inplace=inplace)(function)


_triangle("lower", np.tril, False)
_triangle("upper", np.triu, True)


@operator("Fill")
def _fill(call: OperatorCall, input: diopiTensor, value: diopiScalar) -> None:
    """Every element set to a number."""
    target = input.array()
    call.put(input, np.full(target.shape, value.value))


@operator("ZeroInp")
def _zero(call: OperatorCall, self: diopiTensor) -> None:
    """Every element set to 0."""
    call.put(self, np.zeros(self.array().shape))


@operator("Ones")
def _ones(call: OperatorCall, out: diopiTensor, size: diopiSize) -> None:
    """Every element set to 1."""
    call.put(out, np.ones(size.data))


@operator("Zeros")
def _zeros(call: OperatorCall, out: diopiTensor, size: diopiSize) -> None:
    """Every element set to 0."""
    call.put(out, np.zeros(size.data))


@operator("CopyInp")
def _copy(call: OperatorCall, src: diopiTensor, dest: diopiTensor) -> None:
    """One tensor copied to another, repeated and converted."""
    call.put(dest, np.broadcast_to(src.array(), dest.array().shape).copy())


@operator("CastDtype")
def _cast(call: OperatorCall, out: diopiTensor, input: diopiTensor) -> None:
    """Elements converted to another type."""
    call.put(out, input.array())


def _reduction(call: OperatorCall, out: diopiTensor, input: diopiTensor, dim: diopiSize, kind: str) -> None:
    x = input.array()
    axes = axes_of(dim.data, x.ndim)
    shape = out.array().shape

    def host(x: Array) -> Array:
        values = real(x) if kind == "ReduceMean" or x.dtype.kind == "f" else x
        made = np.mean(values, axes) if kind == "ReduceMean" else np.sum(values, axes)
        return np.asarray(made).reshape(shape)

    def network() -> Network | str:
        if not x.ndim:
            return "a tensor of one element"
        # Sums run over the channels of maps (1, C, H, 1): reduced axes first.
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        count = int(np.prod([x.shape[axis] for axis in axes]))
        data = x.transpose(*axes, *kept).reshape(1, count, -1, 1)
        node = EmittedNode(kind, ("x", "axes"), "y", {"keepdims": 1})
        made = (1, 1, data.shape[2], 1)
        return Network({"x": data}, [node], made, shape, {"axes": np.array([1], np.int64)})

    call.compute(out, [x], host, network, host)


@operator("Mean")
def _mean(call: OperatorCall, out: diopiTensor, input: diopiTensor, dim: diopiSize) -> None:
    """The mean over some axes, over all without any."""
    _reduction(call, out, input, dim, "ReduceMean")


@operator("Sum")
def _sum(call: OperatorCall, out: diopiTensor, input: diopiTensor, dim: diopiSize) -> None:
    """The sum over some axes, over all without any."""
    _reduction(call, out, input, dim, "ReduceSum")
