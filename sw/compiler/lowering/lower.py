"""Graph operations to steps: the complete arithmetic of a layer, as exact integers or in fp16.

A step defines what a layer computes but not how the NPU is programmed; the register programs
(`rkcosim.compiler.programs`) and the graph-level check are both derived from it.  For bytes, `rne` divides by
a power of two and rounds half to even; x, y are signed bytes:

ConvStep      acc = sum((x - x_zero) * (w - w_zero)) + bias      (x = x_zero outside the image)
              v = clamp(rne(acc * multiplier[c] / 2^shift) + correction)
              With `seconds` the product is followed by rne(that * second[c] / 2^14).
              y = sat8(rne(v * scale / 2^shift) + zero)
              With `insert` above 1 zeros lie between the pixels of x; x_zero is 0 then.
              With an `addend` v = clamp(a * own_scale + (b - b_zero) * scale),
              a = own_limits(rne(acc * multiplier[c] / 2^shift)), the convolution's own code
              With `slopes` v = a * own_scale, a negative one rne(v * slope / 2^slope shift)
              With an `activation` y = table[v - low], v = limits(rne(acc * multiplier[c] / 2^shift))
BinaryStep    v = clamp(a' op b'), a' = (a - a_zero) * a_scale, b' likewise; y as above
RescaleStep   v = clamp((x - x_zero) * 2^14); y as above
SlopeStep     v = (x - x_zero) * 2^14, a negative one rne(v * slope[c] / 2^shift); y as above
LookupStep    y = table[x + 128]
CopyStep      a part of x, rescaled, to a part of y
PoolStep      max, or the average over kh * kw taps of [HW 9.3], directly on the bytes
RepeatStep    y = x, each pixel written several times
HostStep      a function of `rkcosim.compiler.host_steps` between two jobs
CallStep      a part of the model in another runtime between two jobs (`rkcosim.compiler.host_runtimes`)

For fp16 the same fields have other contents: weights are float16, biases are float32, limits are the bit
patterns of binary32 numbers, and the output converter is not used:

ConvStep      v = fp32 sums of tiles of 32 products [HW 6.2], + bias, clamp or slopes, to fp16
BinaryStep    v = a op b in fp32, clamp, to fp16
RescaleStep   v = x, clamp, to fp16 (exact)
SlopeStep     v = x, negative ones times a slope of fp16, to fp16
FloatStep     v = (x + add) * mul, limits; v * mul + add, limits; v op operand, limits; to fp16
TableStep     y from two tables with linear interpolation
PoolStep      maximum, or the average of [HW 9.3]
"""

from __future__ import annotations

from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import MAX_ELEMENTS, Graph, ModelError, Op, Tensor
from rkcosim.compiler.lowering.integers import Bytes
from rkcosim.compiler.steps import (
    CallStep,
    Step,
)


def lower(graph: Graph) -> list[Step]:
    """Turn a graph's operations into steps, in order.

    An operation that the NPU does in two passes (for example a max pool that also changes the scale)
    becomes two steps; the tensor between them is added to the graph.  A tensor between steps that an earlier
    operation has made under the same name is not made again.  An operation that the NPU cannot do
    becomes a HostStep if `rkcosim.compiler.host_steps` has a function for it.

    Raises
    ------
    ModelError
        If neither the NPU nor the host can do an operation; the message lists all such operations.
    """
    steps: list[Step] = []
    makers: dict[str, str] = {}
    wrong = [
        f"tensor '{t.name}' {t.shape} is too large"
        for t in graph.tensors.values()
        if t.elements > MAX_ELEMENTS
    ]
    if wrong:
        raise ModelError("; ".join(wrong))
    for op in graph.ops:
        inputs = tuple(graph.tensors[name] for name in op.inputs)
        if isinstance(op, g.HostCall):
            first, *more = (graph.tensors[name] for name in op.outputs)
            steps.append(CallStep(op.name, op.kind, inputs, first, program=op.program, more=tuple(more)))
            continue
        try:
            made = steps_of(op, inputs, graph.tensors[op.output])
        except ModelError as error:
            wrong.append(str(error))
            continue
        for step in made:
            if makers.setdefault(step.output.name, op.output) == op.output:
                steps.append(step)
                graph.tensors.setdefault(step.output.name, step.output)
    if wrong:
        raise ModelError("; ".join(wrong))
    return steps


def steps_of(op: Op, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    """Turn one operation into steps.

    Raises
    ------
    ModelError
        If neither the NPU nor the host can do it; the message gives the reason.
    """
    if not output.real:
        return Bytes(op, inputs, output).steps()
    from rkcosim.compiler.lowering.floats import Floats

    return Floats(op, inputs, output).steps()
