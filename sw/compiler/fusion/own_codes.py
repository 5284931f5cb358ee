"""A convolution that BS alone brings to its own output's codes, and what follows it joined to its task."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import Clamp, Conv, ConvAdd, ConvLookup, ConvSlope, Graph, ModelError, Op, Tensor
from sw.compiler.requant import MAX_SHIFT, balanced_channels, check_sums
from sw.compiler.steps import Converter, ConvStep, Limits, Step

Own = TypeVar("Own", bound=Op)
F = TypeVar("F", ConvAdd, ConvLookup, ConvSlope)

MULTIPLIER_LIMIT = 2**15 - 1
"""Largest multiplier of a channel (signed 16 bits)."""


@dataclass(frozen=True)
class OwnCodes:
    """v = limits(rne(acc * multipliers[c] / 2^shift)): a code of the output, less its zero point."""

    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int64]
    multipliers: npt.NDArray[np.int64]
    shift: int
    limits: tuple[int, int]

    def step(
        self,
        op: F,
        inputs: tuple[Tensor, ...],
        output: Tensor,
        limits: Limits,
        converter: Converter,
    ) -> ConvStep:
        """The step of the convolution in `op`, with what follows v still to be put in."""
        conv = op.conv
        return ConvStep(
            op.name,
            op.kind,
            inputs,
            output,
            self.weights,
            conv.weight_zero_point,
            self.bias,
            self.multipliers,
            conv.window.used(output),
            conv.depthwise,
            limits,
            converter,
            inputs[0].zero_point,
            shift=self.shift,
        )


def conv_to_codes(conv: Conv, x: Tensor, between: Tensor, what: str) -> OwnCodes:
    """How a convolution of `x` makes the codes of `between`, with multipliers of 15 bits a channel.

    Raises
    ------
    ModelError
        where that cannot be done, with the reason.
    """
    factor = x.scale / between.scale
    largest = float(conv.weight_scales.max()) * factor
    if not MULTIPLIER_LIMIT / 2.0**MAX_SHIFT < largest <= MULTIPLIER_LIMIT:
        raise ModelError(f"the scale factor {largest:g} is beyond the channel multipliers")
    shift = math.floor(math.log2(MULTIPLIER_LIMIT / largest))
    weights, scales, bias = balanced_channels(
        conv.npu_weights,
        conv.weight_scales,
        conv.weight_zero_point,
        conv.bias,
        factor,
        largest * 2.0**shift,
    )
    check_sums(weights, conv.weight_zero_point, bias, what)
    multipliers = np.rint(scales * (factor * 2.0**shift)).astype(np.int64)
    return OwnCodes(weights, bias, multipliers, shift, _ends(conv.clamp, between))


def fuse_behind(graph: Graph, kind: type[Own], fuse: Callable[[Graph, Own, Conv], str | None]) -> list[str]:
    """Put operations of a kind into the convolution before them, by `fuse`.

    Returns
    -------
    one line for each that stays on its own behind a convolution, with the reason that `fuse` gave.
    """
    notes: list[str] = []
    makers = {op.output: op for op in graph.ops if isinstance(op, Conv)}
    for op in list(graph.ops):
        if not isinstance(op, kind) or op.inputs[0] not in makers:
            continue
        conv = makers[op.inputs[0]]
        reason = fuse(graph, op, conv)
        if reason is not None:
            notes.append(f"{op.kind} '{op.name}' apart from {conv.kind} '{conv.name}': {reason}")
    return notes


def join(
    graph: Graph,
    conv: Conv,
    op: Op,
    fused: F,
    lower: Callable[[F, tuple[Tensor, ...], Tensor], list[Step]],
) -> str | None:
    """Replace a convolution and what reads its result by one operation, at the latter's place.

    Parameters
    ----------
    graph : left as it is where that cannot be done.
    conv : its result goes away; nothing but `op` reads it.
    op : what follows.
    fused : what stands for both.
    lower : the steps of `fused`; a `ModelError` where there are none.

    Returns
    -------
    the reason why one task cannot do it, None where the graph has changed.
    """
    try:
        lower(fused, tuple(graph.tensors[name] for name in fused.inputs), graph.tensors[fused.output])
    except ModelError as error:
        return str(error)
    kept: list[Op] = [fused if o is op else o for o in graph.ops if o is not conv]
    graph.ops = kept
    del graph.tensors[conv.output]
    return None


def _ends(clamp: Clamp, tensor: Tensor) -> tuple[int, int]:
    """First and last code, less the zero point, that a clamp and int8 leave of a tensor."""
    codes = []
    for real, end in ((clamp.low, -128), (clamp.high, 127)):
        code = round(real / tensor.scale) + tensor.zero_point if math.isfinite(real) else end
        codes.append(min(max(code, -128), 127) - tensor.zero_point)
    return codes[0], codes[1]
