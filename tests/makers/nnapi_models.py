"""Small models of NNAPI for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.nnapi.model import (
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
)
from rkcosim.apis.nnapi.operations import OperationType

L, T = OperandLifeTime, OperandType
Array = npt.NDArray[Any]

U8, S8, F32, F16, I32 = (
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
    T.TENSOR_FLOAT32,
    T.TENSOR_FLOAT16,
    T.TENSOR_INT32,
)


class Builder:
    """A subgraph that grows; methods return the index of the new operand."""

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.operations: list[Operation] = []
        self.data = bytearray()
        self.referenced: list[Subgraph] = []

    def operand(self, operand: Operand) -> int:
        """Add an operand."""
        self.operands.append(operand)
        return len(self.operands) - 1

    def input(self, kind: T, dimensions: Sequence[int] = (), scale: float = 0.0, zero: int = 0) -> int:
        """Add an input of the subgraph."""
        return self.operand(Operand(kind, tuple(dimensions), scale, zero, L.SUBGRAPH_INPUT))

    def output(self, kind: T, dimensions: Sequence[int] = (), scale: float = 0.0, zero: int = 0) -> int:
        """Add an output of the subgraph."""
        return self.operand(Operand(kind, tuple(dimensions), scale, zero, L.SUBGRAPH_OUTPUT))

    def between(self, kind: T, dimensions: Sequence[int] = (), scale: float = 0.0, zero: int = 0) -> int:
        """Add a temporary operand."""
        return self.operand(Operand(kind, tuple(dimensions), scale, zero))

    def constant(
        self,
        kind: T,
        values: npt.ArrayLike,
        scale: float = 0.0,
        zero: int = 0,
        scales: tuple[Sequence[float], int] | None = None,
    ) -> int:
        """Add a constant tensor; `scales` are those per channel, with their dimension."""
        array = np.asarray(values, kind.dtype)
        extra = SymmPerChannelQuantParams(tuple(scales[0]), scales[1]) if scales else None
        place = self._place(array)
        return self.operand(Operand(kind, array.shape, scale, zero, L.CONSTANT_COPY, place, extra))

    def scalar(self, value: float | bool, kind: T | None = None) -> int:
        """Add a constant scalar: BOOL, INT32 or FLOAT32 unless the type is given."""
        if kind is None:
            kind = T.BOOL if isinstance(value, bool) else T.INT32 if isinstance(value, int) else T.FLOAT32
        place = self._place(np.asarray(value, kind.dtype))
        return self.operand(Operand(kind, (), lifetime=L.CONSTANT_COPY, location=place))

    def omitted(self, kind: T) -> int:
        """Add an omitted operand."""
        return self.operand(Operand(kind, lifetime=L.NO_VALUE))

    def subgraph(self, other: Builder) -> int:
        """Add a subgraph, and an operand that names it; its constants must be in this builder."""
        self.referenced.append(other.graph())
        place = DataLocation(offset=len(self.referenced) - 1)
        return self.operand(Operand(T.SUBGRAPH, lifetime=L.SUBGRAPH, location=place))

    def _place(self, array: Array) -> DataLocation:
        self.data += bytes(-len(self.data) % 8)
        place = DataLocation(offset=len(self.data), length=array.nbytes)
        self.data += array.tobytes()
        return place

    def add(self, kind: str, inputs: Sequence[int], *outputs: int) -> None:
        """Add an operation."""
        self.operations.append(Operation(OperationType[kind].value, tuple(inputs), outputs))

    def graph(self) -> Subgraph:
        """Return the subgraph."""
        ends = [
            tuple(n for n, operand in enumerate(self.operands) if operand.lifetime is lifetime)
            for lifetime in (L.SUBGRAPH_INPUT, L.SUBGRAPH_OUTPUT)
        ]
        return Subgraph(tuple(self.operands), tuple(self.operations), *ends)

    def model(self, relaxed: bool = False) -> Model:
        """Return the model."""
        return Model(
            self.graph(),
            tuple(self.referenced),
            bytes(self.data),
            relax_computation_float32_to_float16=relaxed,
        )


def nested(parent: Builder) -> Builder:
    """Return a builder for a subgraph whose constants are among those of its parent."""
    made = Builder()
    made.data = parent.data
    return made


def changed(model: Model, operand: int, **members: Any) -> Model:
    """Return a model with other members of an operand of the main subgraph."""
    operands = list(model.main.operands)
    operands[operand] = replace(operands[operand], **members)
    return replace(model, main=replace(model.main, operands=tuple(operands)))


def conv_model(
    kind: T = U8,
    *,
    size: tuple[int, int, int, int] = (1, 5, 4, 3),
    kernels: int = 4,
    pads: tuple[int, int, int, int] = (1, 0, 0, 1),
    nchw: bool = False,
    relaxed: bool = False,
    seed: int = 1,
) -> tuple[Model, Array, dict[str, Any]]:
    """Return a convolution of 3 x 2 pixels with stride 1, its input, and its numbers for `naive_conv`.

    Parameters
    ----------
    pads : left, right, top, bottom.
    size : (N, H, W, C), also for NCHW.
    """
    random = np.random.default_rng(seed)
    b = Builder()
    n, h, w, c = size
    dimensions = (n, c, h, w) if nchw else size
    height, width = h + pads[2] + pads[3] - 2, w + pads[0] + pads[1] - 1
    result = (n, kernels, height, width) if nchw else (n, height, width, kernels)
    if kind in (U8, S8):
        shift = 128 if kind is S8 else 0
        x = random.integers(0, 256, dimensions) - shift
        weights = random.integers(0, 256, (kernels, 3, 2, c)) - shift
        bias = random.integers(-3000, 3000, kernels)
        scales, zeros = (0.5, 0.25, 32.0), (120 - shift, 131 - shift, 127 - shift)
        ends = [
            b.input(kind, dimensions, scales[0], zeros[0]),
            b.constant(kind, weights, scales[1], zeros[1]),
            b.constant(I32, bias, 0.125),
        ]
    else:
        x, weights = random.normal(size=dimensions), random.normal(size=(kernels, 3, 2, c))
        bias, scales, zeros = random.normal(size=kernels), (1.0, 1.0, 0.0), (0, 0, 0)
        ends = [b.input(kind, dimensions), b.constant(kind, weights), b.constant(kind, bias)]
    ends += [b.scalar(n) for n in (*pads, 1, 1, 0)] + [b.scalar(nchw)]
    b.add("CONV_2D", ends, b.output(kind, result, scales[2], zeros[2]))
    facts = {"x": x, "weights": weights, "bias": bias, "pads": pads, "scales": scales, "zeros": zeros}
    return b.model(relaxed), x.astype(kind.dtype), {**facts, "nchw": nchw}


def naive_conv(facts: dict[str, Any]) -> Array:
    """Return the real results of `conv_model` before they are rounded, pixel by pixel."""
    x, weights = np.asarray(facts["x"], np.float64), np.asarray(facts["weights"], np.float64)
    zeros, scales, (left, right, top, bottom) = facts["zeros"], facts["scales"], facts["pads"]
    x = x.transpose(0, 2, 3, 1) if facts["nchw"] else x
    x, weights = x - zeros[0], weights - zeros[1]
    n, h, w, _ = x.shape
    count, kh, kw, _ = weights.shape
    made = np.zeros((n, h + top + bottom - kh + 1, w + left + right - kw + 1, count))
    for place in np.ndindex(*made.shape):
        sample, row, column, kernel = place
        total = float(facts["bias"][kernel])
        for i, j in np.ndindex(kh, kw):
            y, z = row + i - top, column + j - left
            if 0 <= y < h and 0 <= z < w:
                total += float(x[sample, y, z] @ weights[kernel, i, j])
        made[place] = total * scales[0] * scales[1]
    return made.transpose(0, 3, 1, 2) if facts["nchw"] else made


def codes(reals: Array, scale: float, zero: int, kind: T) -> Array:
    """Return real numbers as codes."""
    limits = np.iinfo(kind.dtype)
    return np.clip(np.rint(reals / scale) + zero, limits.min, limits.max).astype(np.int64)
