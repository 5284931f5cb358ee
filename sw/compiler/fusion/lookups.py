"""Tables behind a convolution in the convolution's own task: BS, BN, then the LUT in EW.

BS rounds sums to codes of the convolution's own output (`sw.compiler.fusion.own_codes`), BN ends them where
int8 or a clamp does, and the LUT has an entry for each code that is left.  The LUT does two elements a
cycle, as it would in a task of its own, but the result of the convolution need not go through memory.
"""

from __future__ import annotations

from sw.compiler.fusion.own_codes import conv_to_codes, join
from sw.compiler.graph import Conv, ConvLookup, Graph, Lookup, ModelError, Tensor
from sw.compiler.steps import Activation, Converter, ConvStep, Step


def fuse_lookups(graph: Graph) -> list[str]:
    """Put tables into the convolution before them, where nothing else reads what that computes.

    Returns
    -------
    one line for each table behind a convolution that stays on its own, with the reason.
    """
    notes: list[str] = []
    makers = {o.output: o for o in graph.ops if isinstance(o, Conv)}
    for op in list(graph.ops):
        if not isinstance(op, Lookup) or op.inputs[0] not in makers:
            continue
        conv = makers[op.inputs[0]]
        reason = _fuse(graph, op, conv)
        if reason is not None:
            notes.append(f"{op.kind} '{op.name}' apart from {conv.kind} '{conv.name}': {reason}")
    return notes


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
    step = ConvStep(
        op.name,
        op.kind,
        inputs[:1],
        output,
        codes.weights,
        conv.weight_zero_point,
        codes.bias,
        codes.multipliers,
        conv.window.used(output),
        conv.depthwise,
        codes.limits,
        Converter(1, 0, 0),
        x.zero_point,
        shift=codes.shift,
        activation=Activation(between, codes.limits, op.table[first : last + 1]),
    )
    return [step]
