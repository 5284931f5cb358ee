"""Runs of operations as one network of the compiler: tensors, layouts and batches.

The compiler's tensors are cubes (C, H, W) of signed bytes or of fp16.  A segment fixes for each operand in
which layout its elements lie in the cube; an operation that needs another layout ends the segment.  All
tensors of a segment have the same number of samples, and its jobs run once for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from rkcosim.apis.nnapi.model import Operand, OperandType
from rkcosim.apis.nnapi.values import LIMITS, QUANTISED, Array, Value
from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import Clamp, ModelError, Tensor

Layout = Literal["nhwc", "nchw", "rows"]
"""Maps with the channels last or first, or rows of a matrix, whose last axis are the channels."""

SIGN = 128
"""What unsigned codes are moved by."""

T = OperandType
BYTES = (T.TENSOR_QUANT8_ASYMM, T.TENSOR_QUANT8_ASYMM_SIGNED)


@dataclass(frozen=True)
class View:
    """How the elements of an operand lie in cubes.

    Members
    -------
    shape : shape that the operand's array is brought to, by repeating and reshaping, before it is cut.
    layout : meaning of the axes of this shape.
    """

    shape: tuple[int, ...]
    layout: Layout

    @property
    def samples(self) -> int:
        """Number of cubes."""
        return 1 if self.layout == "rows" else self.shape[0]

    @property
    def cube(self) -> tuple[int, int, int]:
        """(C, H, W) of each sample."""
        shape = self.shape
        if self.layout == "rows":
            return shape[-1], math.prod(shape[:-1]), 1
        if self.layout == "nchw":
            return shape[1], shape[2], shape[3]
        return shape[3], shape[1], shape[2]

    def cubes(self, array: Array) -> Array:
        """Return the cubes (samples, C, H, W) of an array."""
        if self.layout == "rows":
            channels, rows, _ = self.cube
            return array.reshape(1, rows, channels, 1).transpose(0, 2, 1, 3)
        array = array.reshape(self.shape)
        return array if self.layout == "nchw" else array.transpose(0, 3, 1, 2)

    def array(self, cubes: Array) -> Array:
        """Return the array in `shape` of cubes (samples, C, H, W)."""
        if self.layout == "rows":
            return np.ascontiguousarray(cubes.transpose(0, 2, 3, 1)).reshape(self.shape)
        return np.ascontiguousarray(cubes if self.layout == "nchw" else cubes.transpose(0, 2, 3, 1))


def natural(shape: tuple[int, ...]) -> View:
    """Return the view of an operand whose axes have no meaning: maps for four axes, else rows.

    Raises
    ------
    ModelError
        If there is no element or no axis.
    """
    if not shape or not math.prod(shape):
        raise ModelError(f"shape {shape} has no elements for the NPU")
    return View(shape, "nhwc" if len(shape) == 4 else "rows")


def signed(array: Array) -> Array:
    """Return codes as signed bytes; floats as they are."""
    return (array ^ np.uint8(0x80)).view(np.int8) if array.dtype == np.uint8 else array


@dataclass
class Segment:
    """A network of the compiler for a run of operations, as it grows.

    Members
    -------
    reals : whether tensors of float32 may be computed in fp16 (relaxed models).
    graph : the network; names of tensors are the operand's indices.
    views : view of each operand that is in the network.
    takes : operands that it takes, in the order of the graph's inputs, by the names of the tensors.
    shapes : shapes of the operands that it computes.
    samples : number of samples; 0 before the first tensor.
    """

    reals: bool
    graph: g.Graph = field(default_factory=lambda: g.Graph("segment"))
    views: dict[str, View] = field(default_factory=dict)
    takes: dict[str, int] = field(default_factory=dict)
    shapes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    samples: int = 0

    def copy(self) -> Segment:
        """Return a copy that may grow on its own."""
        graph = g.Graph(self.graph.name, dict(self.graph.tensors), list(self.graph.ops))
        graph.constants, graph.aliases = dict(self.graph.constants), dict(self.graph.aliases)
        more = (dict(self.views), dict(self.takes), dict(self.shapes), self.samples)
        return Segment(self.reals, graph, *more)

    def tensor(self, name: str, operand: Operand, view: View) -> Tensor:
        """Add a tensor for an operand.

        Raises
        ------
        ModelError
            If the NPU has no such type, or the number of samples differs.
        """
        if self.samples not in (0, view.samples):
            raise ModelError(f"{view.samples} samples in a segment of {self.samples}")
        if not math.prod(view.shape):
            raise ModelError(f"shape {view.shape} has no elements for the NPU")
        self.samples = view.samples
        made = Tensor(name, (1, *view.cube), *self.quantisation(operand), view.cube, real=self.real(operand))
        self.graph.tensors[name], self.views[name] = made, view
        return made

    def real(self, operand: Operand) -> bool:
        """Whether an operand is computed in fp16; raises ModelError if it has no type of the NPU."""
        if operand.type is T.TENSOR_FLOAT16:
            return True
        if operand.type is T.TENSOR_FLOAT32:
            if not self.reals:
                raise ModelError("float32 is computed on the host, unless the model is relaxed")
            return True
        if operand.type not in BYTES:
            raise ModelError(f"the NPU does not compute {operand.type.name}")
        return False

    def quantisation(self, operand: Operand) -> tuple[float, int]:
        """Return scale and zero point of the signed codes."""
        if operand.type not in QUANTISED:
            return 1.0, 0
        return float(operand.scale), operand.zero_point - SIGN * (operand.type is T.TENSOR_QUANT8_ASYMM)

    def data(self, index: int, value: Value, view: View) -> Tensor:
        """Return the tensor of an operand in a view; one that no operation made becomes an input.

        Raises
        ------
        ModelError
            If the segment has the operand in another view.
        """
        name = str(index)
        if index in self.shapes:
            if self.views[name] != view:
                raise ModelError(f"operand {index} lies in another layout")
            return self.graph.tensors[name]
        name = f"{index}@{view.layout}{view.shape}"
        if name not in self.graph.tensors:
            self.tensor(name, value.operand, view)
            self.takes[name] = index
        return self.graph.tensors[name]

    def view_of(self, index: int, value: Value) -> View:
        """Return the view that an operand has in the segment, or its natural one."""
        return self.views[str(index)] if index in self.shapes else natural(value.shape)

    def made(self, index: int, operand: Operand, view: View, shape: tuple[int, ...] | None = None) -> Tensor:
        """Add the tensor of a result; `shape` is that of its array if it differs from the view's."""
        shape = view.shape if shape is None else shape
        known = operand.dimensions
        if known and (
            len(known) != len(shape) or any(k not in (0, n) for k, n in zip(known, shape, strict=True))
        ):
            raise ModelError(f"the result has the shape {shape}, but the operand {known}")
        tensor = self.tensor(str(index), operand, view)
        self.shapes[index] = shape
        return tensor

    def constant(self, name: str, value: Value, cube: Array) -> str:
        """Add codes or numbers (C, H, W) in the type of a value as a constant; return its name."""
        real = self.real(value.operand)
        size = (cube.shape[0], cube.shape[1], cube.shape[2])
        data = cube.astype(np.float16) if real else signed(cube)
        scale, zero = self.quantisation(value.operand)
        self.graph.tensors[name] = Tensor(name, (1, *size), scale, zero, size, real=real)
        self.graph.constants[name] = np.ascontiguousarray(data)
        return name

    def finished(self, outputs: Sequence[int]) -> g.Graph:
        """Return the network with its inputs and outputs."""
        tensors = self.graph.tensors
        self.graph.inputs = [g.GraphInput(name, name, tensors[name].shape) for name in self.takes]
        self.graph.outputs = [g.GraphOutput(str(n), tensors[str(n)].shape, str(n), False) for n in outputs]
        return self.graph

    def given(self, name: str, value: Value) -> Array:
        """Return the cubes (samples, C, H, W) of an input: signed bytes or fp16."""
        view, array = self.views[name], value.array
        if array.size != math.prod(view.shape):
            array = np.broadcast_to(array, view.shape)
        with np.errstate(over="ignore"):
            array = array.astype(np.float16) if array.dtype.kind == "f" else signed(array)
        return view.cubes(array)

    def result(self, index: int, operand: Operand, cubes: Array) -> Array:
        """Return the array of a computed operand, in its type."""
        array = self.views[str(index)].array(cubes).reshape(self.shapes[index])
        if operand.type is T.TENSOR_QUANT8_ASYMM:
            return array.view(np.uint8) ^ np.uint8(0x80)
        return array.astype(operand.type.dtype, copy=False)


def clamp(act: int) -> Clamp:
    """Return the limits of a fused activation."""
    if act not in LIMITS:
        raise ModelError(f"there is no fused activation {act}")
    return Clamp(*LIMITS[act])
