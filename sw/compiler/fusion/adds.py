"""Additions behind a convolution in the convolution's own task: BS, BN, operand by ERDMA in EW.

The arithmetic is that of two tasks.  BS rounds sums to steps of the convolution's own output, with a
multiplier of 15 bits a channel; BN ends them where int8 or an activation does, and brings them to the
sum's unit; from there on it is an addition in a task of its own (`sw.compiler.lower`): 2^-14 steps of
the coarser operand, in which either term is below 2^22, the other operand through EW's converter, one
more rounding in OUT_CVT.
"""

from __future__ import annotations

from dataclasses import replace

from sw.compiler.fusion.own_codes import conv_to_codes, join
from sw.compiler.graph import Binary, Conv, ConvAdd, Graph, ModelError, Tensor
from sw.compiler.requant import BS_SHIFT, clamp_in_unit, output_scale
from sw.compiler.steps import Addend, Converter, Step


def fuse_adds(graph: Graph) -> list[str]:
    """Put additions into the convolution before them, where nothing else reads what that computes.

    Returns
    -------
    one line for each addition of a convolution's result that stays on its own, with the reason.
    """
    notes: list[str] = []
    for op in list(graph.ops):
        if not isinstance(op, Binary) or op.method != "add" or graph.tensors[op.output].real:
            continue
        order = {other.output: index for index, other in enumerate(graph.ops)}
        makers = {o.output: o for o in graph.ops if isinstance(o, Conv)}
        reasons: list[str] = []
        for name in sorted(set(op.inputs) & makers.keys(), key=lambda n: order[n], reverse=True):
            reason = _fuse(graph, op, makers[name])
            if reason is None:
                reasons.clear()
                break
            reasons.append(f"Add '{op.name}' apart from {makers[name].kind} '{makers[name].name}': {reason}")
        notes += reasons
    return notes


def _fuse(graph: Graph, op: Binary, conv: Conv) -> str | None:
    """Replace both by a `ConvAdd` at the addition's place; the reason where that cannot be done."""
    between, output = graph.tensors[conv.output], graph.tensors[op.output]
    if not graph.read_once(between.name):
        return "something else reads the convolution's result"
    other = graph.tensors[op.inputs[1 - op.inputs.index(between.name)]]
    if between.cube != output.cube or other.cube not in (output.cube, (output.cube[0], 1, 1)):
        return "the shapes differ"
    fused = ConvAdd(op.name, (conv.inputs[0], other.name), op.output, conv, between, clamp=op.clamp)
    return join(graph, conv, op, fused, conv_add)


def conv_add(op: ConvAdd, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    """The step of a convolution with an addition.

    Raises
    ------
    ModelError
        where one task cannot do it, with the reason.
    """
    conv, between, (x, b), what = op.conv, op.between, inputs, f"{op.kind} '{op.name}'"
    if conv.insert != (1, 1):
        raise ModelError("a transposed convolution needs EW itself")
    unit = max(between.scale, b.scale) / 2**BS_SHIFT
    own, other = (max(1, round(t.scale / unit)) for t in (between, b))
    limits = clamp_in_unit(op.clamp, unit, output, what)
    if limits is not None and limits[0] != 0:
        raise ModelError("EW clamps at 0 only")
    own_codes = conv_to_codes(conv, x, between, what)
    scale, right = output_scale(unit / output.scale, what)
    step = own_codes.step(op, inputs, output, limits, Converter(scale, right, output.zero_point))
    return [replace(step, addend=Addend(between, own_codes.limits, own, other))]
