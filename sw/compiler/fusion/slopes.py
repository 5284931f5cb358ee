"""LeakyRelu and PRelu behind a convolution in the convolution's own task.

Of bytes the arithmetic is that of two tasks: BS rounds sums to codes of the convolution's own output
(`sw.compiler.fusion.own_codes`), BN brings them to steps of 2^-14, EW multiplies the negative ones, OUT_CVT
rounds once more.  No stage is left that could end those codes where int8 does, so the output has to end
there too.  Of floats BN multiplies the sums, which are not rounded to fp16 in between.
"""

from __future__ import annotations

from dataclasses import replace

from sw.compiler.float_lower import lower_float
from sw.compiler.fusion.own_codes import conv_to_codes, fuse_behind, join
from sw.compiler.graph import Clamp, Conv, ConvSlope, Graph, ModelError, Slope, Tensor
from sw.compiler.requant import BS_SHIFT, fixed_slopes, output_scale
from sw.compiler.steps import Converter, Slopes, Step


def fuse_slopes(graph: Graph) -> list[str]:
    """Put slopes into the convolution before them, where nothing else reads what that computes.

    Returns
    -------
    one line for each slope behind a convolution that stays on its own, with the reason.
    """
    return fuse_behind(graph, Slope, _fuse)


def _fuse(graph: Graph, op: Slope, conv: Conv) -> str | None:
    """Replace both by a `ConvSlope` at the slope's place; the reason where that cannot be done."""
    between, output = graph.tensors[conv.output], graph.tensors[op.output]
    if not graph.read_once(between.name):
        return "something else reads the convolution's result"
    if between.cube != output.cube or between.real != output.real:
        return "the shapes or types differ"
    if conv.clamp != Clamp() or op.clamp != Clamp():
        return "there is a clamp as well"
    fused = ConvSlope(op.name, conv.inputs, op.output, conv, between, op.slopes)
    return join(graph, conv, op, fused, conv_slope)


def conv_slope(op: ConvSlope, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    """The step of a convolution with slopes.

    Raises
    ------
    ModelError
        where one task cannot do it, with the reason.
    """
    if output.real:
        return lower_float(op, inputs, output)
    conv, between, x, what = op.conv, op.between, inputs[0], f"{op.kind} '{op.name}'"
    if conv.insert != (1, 1):
        raise ModelError("a transposed convolution needs EW itself")
    if op.slopes.size > 1:
        raise ModelError("EW has one slope for all channels of bytes")
    _check_ends(between, output, float(op.slopes[0]))
    codes = conv_to_codes(conv, x, between, what)
    factors, bits = fixed_slopes(op.slopes, what)
    scale, shift = output_scale(between.scale / 2**BS_SHIFT / output.scale, what)
    step = codes.step(op, inputs[:1], output, None, Converter(scale, shift, output.zero_point))
    return [replace(step, slopes=Slopes(factors, bits, between, 2**BS_SHIFT))]


def _check_ends(between: Tensor, output: Tensor, slope: float) -> None:
    """Refuse an output that holds what the codes of `between` cannot become, by more than a step."""
    (low, high), (bottom, top) = (
        [(code - tensor.zero_point) * tensor.scale for code in (-128, 127)] for tensor in (between, output)
    )
    if slope < 0 or top > high + output.scale or bottom < low * slope - output.scale:
        raise ModelError("the tensor between ends where the output does not")
