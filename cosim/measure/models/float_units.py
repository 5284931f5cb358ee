"""Units in which layers of floats are compared: places of fp16 of the largest partial sum of each element.

The NPU rounds inputs and weights to fp16, sums in binary32 and rounds the result to fp16.  A sum whose terms
cancel therefore has an error in the order of the last place of its largest partial sum, not of its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import from_cube, to_cube
from rkcosim.compiler.steps import (
    BinaryStep,
    ConvStep,
    FloatStep,
    HostStep,
    PoolStep,
    ProductStep,
    Step,
    TableStep,
)
from rkcosim.golden.graph import run
from rkcosim.verify.crosscheck.graph_nodes import graph_nodes

Array = npt.NDArray[Any]

BOUND = 4
"""Largest accepted difference of an element of a layer, in these units."""

SMALLEST = 2.0**-14
"""Smallest normal number of fp16; smaller ones have the same last place."""
LARGEST = 65504.0
"""Largest number of fp16."""


def last_place(values: Array) -> npt.NDArray[np.float64]:
    """Return the distance of neighbouring fp16 numbers at each value; that at the largest one beyond it."""
    sizes = np.clip(np.abs(np.asarray(values, np.float64)), SMALLEST, LARGEST)
    return 2.0 ** (np.floor(np.log2(sizes)) - 10)


def units(
    step: Step,
    tensors: Mapping[str, Array],
    result: Array,
    inexact: Mapping[str, npt.NDArray[np.float64]] = MappingProxyType({}),
) -> npt.NDArray[np.float64]:
    """Return the unit of each element of a layer's result.

    Parameters
    ----------
    step
        A step whose output is fp16.
    tensors
        Its inputs, cubes (C, H, W) of float16.
    result
        Its output for these inputs.
    inexact
        Units of those inputs that are results of earlier steps instead of the reference's tensors.

    Returns
    -------
    An array of the output's cube: the last place of the largest partial sum of convolutions, sums and
    averages; a step of the entries of a table; for other functions the last place of the result, or the
    difference that the last place of the input makes, if that is larger.  A factor below the normal numbers
    of fp16 counts with its own last place: weights of convolutions there are rounded to multiples of 2**-24,
    so that the unit is at least 2**-25 times the sum of their inputs.  It is not smaller than the
    difference that the units of inexact inputs make.
    """
    made = _own_units(step, tensors, result)
    for sign in (1, -1) if inexact else ():
        moved = dict(tensors)
        for name, unit in inexact.items():
            with np.errstate(over="ignore"):
                moved[name] = (tensors[name] + sign * unit.reshape(tensors[name].shape)).astype(np.float16)
        made = np.maximum(made, _change(step, moved, result))
    return made


def _own_units(step: Step, tensors: Mapping[str, Array], result: Array) -> npt.NDArray[np.float64]:
    sizes = {name: np.abs(values) for name, values in tensors.items()}
    if isinstance(step, ConvStep):
        x, weights = _finite(sizes[step.inputs[0].name]).astype(np.float32), np.abs(step.weights)
        largest = _sums(step, x, weights) + np.abs(step.bias.astype(np.float32)).reshape(-1, 1, 1)
        own = last_place(np.maximum(largest, np.abs(_finite(result))))
        return np.maximum(own, _lost_weights(step, x))
    elif isinstance(step, BinaryStep):
        a, b = (sizes[tensor.name].astype(np.float64) for tensor in step.inputs)
        largest = np.broadcast_to(a * b if step.method == "mul" else a + b, result.shape)
        if step.method == "mul":  # a factor below the normal numbers has lost places when it was rounded
            lost = np.maximum(np.where(b < SMALLEST, a, 0.0), np.where(a < SMALLEST, b, 0.0)) * 2.0**-24
            return np.maximum(last_place(np.maximum(largest, np.abs(_finite(result)))), lost)
    elif isinstance(step, FloatStep) and step.method in ("add", "sub") and _unscaled(step):
        a, b = (np.abs(_finite(tensors[tensor.name])) for tensor in step.inputs)  # terms may cancel
        own = last_place(np.broadcast_to(a + b, result.shape))
        return np.maximum(np.maximum(own, last_place(result)), _sensitivity(step, tensors, result))
    elif isinstance(step, HostStep) and step.kind == "Softmax":
        source, axis = step.inputs[0], int(step.attributes["axis"])  # the largest error of a sum's terms
        places = last_place(from_cube(tensors[source.name], source)).max(axis=axis, keepdims=True)
        moved = to_cube(np.abs(_finite(from_cube(result, step.output))) * places, step.output)
        return np.maximum(last_place(result), moved)
    elif isinstance(step, PoolStep | ProductStep) or "Pool" in step.kind:
        largest = _finite(run(graph_nodes(step), sizes)[step.output.name])
    elif isinstance(step, TableStep):
        entry = 2.0**-step.fraction  # interpolation and rounding of the entries
        return np.maximum(np.maximum(last_place(result), entry), _sensitivity(step, tensors, result))
    else:
        return np.maximum(last_place(result), _sensitivity(step, tensors, result))
    return last_place(np.maximum(largest, np.abs(_finite(result))))


def _sums(step: ConvStep, x: Array, weights: Array) -> Array:
    """Return the sums of a convolution of `x` (C, H, W) in binary32, without bias."""
    (fy, fx), (sy, sx), (dy, dx) = step.insert, step.window.strides, step.window.dilations
    _, rows, columns = step.output.cube
    spread = np.zeros((len(x), (x.shape[1] - 1) * fy + 1, (x.shape[2] - 1) * fx + 1), np.float32)
    spread[:, ::fy, ::fx] = x
    top, left = step.window.pads[:2]
    kh, kw = weights.shape[2:]
    ends = (rows - 1) * sy + (kh - 1) * dy + 1, (columns - 1) * sx + (kw - 1) * dx + 1
    size = max(ends[0], top + spread.shape[1]), max(ends[1], left + spread.shape[2])
    wide = np.zeros((len(x), *size), np.float32)
    wide[:, top : top + spread.shape[1], left : left + spread.shape[2]] = spread
    total = np.zeros((len(weights), rows * columns), np.float32)
    for row, column in np.ndindex(kh, kw):
        part = wide[:, row * dy :: sy, column * dx :: sx][:, :rows, :columns].reshape(len(x), -1)
        tap = weights[:, :, row, column].astype(np.float32)
        total += tap * part if step.depthwise else tap @ part
    return total.reshape(step.output.cube)


def _lost_weights(step: ConvStep, x: Array) -> npt.NDArray[np.float64]:
    """Return how much the weights below the normal numbers of fp16 can have changed sums by their rounding.

    `x` are absolute inputs.  Zeros count, since weights below 2**-25 have become zeros.
    """
    small = np.abs(step.weights) < SMALLEST
    if not small.any():
        return np.zeros(step.output.cube)
    return _sums(step, x, small) * 2.0**-25


def _unscaled(step: FloatStep) -> bool:
    """Whether both inputs of a step enter its sum as they are, or with the other sign."""
    factors = [stage.mul for stage in (step.first, step.second, step.last) if stage.mul is not None]
    return len(step.inputs) == 2 and all((np.abs(factor) == 1).all() for factor in factors)


def _finite(values: Array) -> npt.NDArray[np.float64]:
    return np.nan_to_num(values.astype(np.float64), nan=LARGEST, posinf=LARGEST, neginf=-LARGEST)


def _change(step: Step, tensors: Mapping[str, Array], result: Array) -> npt.NDArray[np.float64]:
    """Return how much a result differs from that of other inputs."""
    return np.abs(_finite(run(graph_nodes(step), tensors)[step.output.name]) - _finite(result))


def _sensitivity(step: Step, tensors: Mapping[str, Array], result: Array) -> npt.NDArray[np.float64]:
    """Return how much the result changes if every input becomes the next larger or smaller fp16 number."""
    changes = np.zeros(result.shape)
    for end in (np.inf, -np.inf):
        with np.errstate(over="ignore"):
            moved = {
                name: np.nextafter(values, np.float16(end)) if values.dtype == np.float16 else values
                for name, values in tensors.items()
            }
        changes = np.maximum(changes, _change(step, moved, result))
    return changes
