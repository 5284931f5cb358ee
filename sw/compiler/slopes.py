"""LeakyRelu and PRelu behind a convolution in the convolution's own task: BN multiplies negative numbers.

Of bytes, the sums are brought to the output's codes behind the slope; codes of what lay between are not
made.  The result ends where those would have ended: at the bottom EW takes the maximum with what the
lowest of them becomes, at the top the output must end there by itself, else the two stay apart.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sw.compiler.graph import Clamp, Conv, Graph, Slope, Tensor
from sw.compiler.lower import steps_of
from sw.compiler.own_codes import join


def fuse_slopes(graph: Graph) -> list[str]:
    """Put slopes into the convolution before them, where nothing else reads what that computes.

    Returns
    -------
    one line for each slope behind a convolution that stays on its own, with the reason.
    """
    notes: list[str] = []
    makers = {op.output: op for op in graph.ops if isinstance(op, Conv)}
    for op in list(graph.ops):
        if not isinstance(op, Slope) or op.inputs[0] not in makers:
            continue
        conv = makers[op.inputs[0]]
        reason = _fuse(graph, op, conv)
        if reason is not None:
            notes.append(f"{op.kind} '{op.name}' apart from {conv.kind} '{conv.name}': {reason}")
    return notes


def _fuse(graph: Graph, op: Slope, conv: Conv) -> str | None:
    """Replace both by a `Conv` with slopes at the slope's place; the reason where that cannot be done."""
    between, output = graph.tensors[conv.output], graph.tensors[op.output]
    if not graph.read_once(between.name):
        return "something else reads the convolution's result"
    if between.cube != output.cube or between.real != output.real:
        return "the shapes or types differ"
    if conv.clamp != Clamp() or op.clamp != Clamp() or conv.slopes is not None:
        return "there is a clamp as well"
    if conv.insert != (1, 1):
        return "a transposed convolution adds behind BN"
    clamp = Clamp()
    if not between.real:
        if np.any(op.slopes < 0):
            return "a slope is below 0"
        low, high = _ends(between)
        if high < _ends(output)[1] - output.scale:
            return "the tensor between ends where the output does not"
        floors = op.slopes * low
        if floors.max() > _ends(output)[0]:
            if floors.min() < floors.max():
                return "where the tensor between ends differs from channel to channel"
            clamp = Clamp(low=float(floors[0]))
    fused = replace(conv, name=op.name, output=op.output, slopes=op.slopes, clamp=clamp)
    return join(graph, conv, op, fused, steps_of)


def _ends(tensor: Tensor) -> tuple[float, float]:
    """The lowest and the highest number of a tensor's codes."""
    low, high = ((code - tensor.zero_point) * tensor.scale for code in (-128, 127))
    return low, high
