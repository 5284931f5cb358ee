"""Additions behind a convolution in the convolution's own task: BS, BN, operand by ERDMA in EW.

The arithmetic is that of two tasks.  BS rounds sums to steps of the convolution's own output, with a
multiplier of 15 bits a channel; BN ends them where int8 or an activation does, and brings them to the
sum's unit; from there on it is an addition in a task of its own (`sw.compiler.lower`): 2^-14 steps of
the coarser operand, in which either term is below 2^22, the other operand through EW's converter, one
more rounding in OUT_CVT.
"""

from __future__ import annotations

import math

import numpy as np

from sw.compiler.graph import Binary, Clamp, Conv, ConvAdd, Graph, ModelError, Op, Tensor
from sw.compiler.requant import (
    BS_SHIFT,
    MAX_SHIFT,
    balanced_channels,
    check_sums,
    clamp_in_unit,
    output_scale,
)
from sw.compiler.steps import Addend, Converter, ConvStep, Step

MULTIPLIER_LIMIT = 2**15 - 1
"""Largest multiplier of a channel (signed 16 bits)."""


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
    ends = {o.value for o in graph.outputs} | {o.input for o in graph.host_ops}
    readers = [o for o in graph.ops for name in o.inputs if graph.root(name) == between.name]
    if len(readers) != 1 or between.name in graph.aliases.values() or between.name in ends:
        return "something else reads the convolution's result"
    other = graph.tensors[op.inputs[1 - op.inputs.index(between.name)]]
    if between.cube != output.cube or other.cube not in (output.cube, (output.cube[0], 1, 1)):
        return "the shapes differ"
    fused = ConvAdd(op.name, (conv.inputs[0], other.name), op.output, conv, between, clamp=op.clamp)
    try:
        conv_add(fused, (graph.tensors[conv.inputs[0]], other), output)
    except ModelError as error:
        return str(error)
    kept: list[Op] = [fused if o is op else o for o in graph.ops if o is not conv]
    graph.ops = kept
    del graph.tensors[between.name]
    return None


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
    scale, right = output_scale(unit / output.scale, what)
    step = ConvStep(
        op.name,
        op.kind,
        inputs,
        output,
        weights,
        conv.weight_zero_point,
        bias,
        np.rint(scales * (factor * 2.0**shift)).astype(np.int64),
        conv.window.used(output),
        conv.depthwise,
        limits,
        Converter(scale, right, output.zero_point),
        x.zero_point,
        shift=shift,
        addend=Addend(between, _ends(conv.clamp, between), own, other),
    )
    return [step]


def _ends(clamp: Clamp, tensor: Tensor) -> tuple[int, int]:
    """First and last code, less the zero point, that a clamp and int8 leave of a tensor."""
    codes = []
    for real, end in ((clamp.low, -128), (clamp.high, 127)):
        code = round(real / tensor.scale) + tensor.zero_point if math.isfinite(real) else end
        codes.append(min(max(code, -128), 127) - tensor.zero_point)
    return codes[0], codes[1]
