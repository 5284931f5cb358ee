"""Tables behind a convolution in the convolution's own task: BS, BN, then the LUT in EW.

BS rounds sums to codes of the convolution's own output (`sw.compiler.fusion.own_codes`), BN ends them where
int8 or a clamp does, and the LUT has an entry for each code that is left.  The LUT does two elements a
cycle, as it would in a task of its own, but the result of the convolution need not go through memory.
"""

from __future__ import annotations

from dataclasses import replace

from sw.compiler.fusion.own_codes import conv_to_codes, fuse_behind, join
from sw.compiler.graph import Conv, ConvLookup, Graph, Lookup, ModelError, Tensor
from sw.compiler.steps import Activation, Converter, Step


def fuse_lookups(graph: Graph) -> list[str]:
    """Put tables into the convolution before them, where nothing else reads what that computes.

    Returns
    -------
    one line for each table behind a convolution that stays on its own, with the reason.
    """
    return fuse_behind(graph, Lookup, _fuse)


def _fuse(graph: Graph, op: Lookup, conv: Conv) -> str | None:
    """Replace both by a `ConvLookup` at the table's place; the reason where that cannot be done."""
    between, output = graph.tensors[conv.output], graph.tensors[op.output]
    if between.real or output.real:
        return "the LUT gives integers"
    if not graph.read_once(between.name):
        return "something else reads the convolution's result"
    if between.cube != output.cube:
        return "the shapes differ"
    fused = ConvLookup(op.name, conv.inputs, op.output, conv, between, op.table, op.source)
    return join(graph, conv, op, fused, conv_lookup)


def conv_lookup(op: ConvLookup, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    """The step of a convolution with a table.

    Raises
    ------
    ModelError
        where one task cannot do it, with the reason.
    """
    conv, between, x, what = op.conv, op.between, inputs[0], f"{op.kind} '{op.name}'"
    if conv.insert != (1, 1):
        raise ModelError("a transposed convolution needs EW itself")
    codes = conv_to_codes(conv, x, between, what)
    first, last = (limit + between.zero_point + 128 for limit in codes.limits)
    step = codes.step(op, inputs[:1], output, codes.limits, Converter(1, 0, 0))
    return [replace(step, activation=Activation(between, codes.limits, op.table[first : last + 1]))]
