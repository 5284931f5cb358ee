"""Functions of one tensor that a model writes as several operations, merged into one table.

For example, a model may write Swish as Sigmoid and Mul.  Each operation is evaluated here for all 256 codes
with the arithmetic and roundings of its step, so that the table gives the same bytes as the operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Binary, Graph, Lookup, ModelError, Op, Rescale, Slope
from rkcosim.compiler.lowering.lower import steps_of
from rkcosim.compiler.steps import BinaryStep, Converter, Limits, LookupStep, RescaleStep, SlopeStep, Step
from rkcosim.spec.regs.options import chosen_options

Codes = npt.NDArray[np.int64]

LONG_CHAIN = 3
"""Number of operations that take longer than a table."""

EVERY = np.arange(-128, 128)
"""All codes of a byte."""


@dataclass(frozen=True)
class _Function:
    """The composition `ops` as a function of `source`: `table` is int64 (256,), indexed by code + 128."""

    source: str
    table: Codes
    ops: tuple[Op, ...]


def fold_byte_functions(graph: Graph) -> None:
    """Replace operations that together are a function of one tensor by a `Lookup`.

    This is done only if one of them is a table already (a table limits the speed anyway) or if there are at
    least three (a written-out HardSwish), and if nothing else reads the tensors between them.
    """
    known: dict[str, _Function] = {}
    for op in graph.ops:
        made = _function(graph, op, known)
        if made is not None:
            known[op.output] = made
    replaced: dict[str, Lookup] = {}
    gone: set[str] = set()
    for name, made in reversed(known.items()):
        between = [op for op in made.ops if op.output != name]
        tables = [op for op in made.ops if isinstance(op, Lookup)]
        long_enough = tables or len(made.ops) >= LONG_CHAIN
        if name in gone or not between or not long_enough or not _hidden(graph, made.ops, name):
            continue
        table = made.table.astype(np.int8)
        op = made.ops[-1]
        replaced[name] = Lookup(op.name, (made.source,), name, table, _name(made))
        gone |= {op.output for op in between}
    graph.ops = [replaced.get(op.output, op) for op in graph.ops if op.output not in gone]
    for name in gone:
        del graph.tensors[name]


def _name(made: _Function) -> str:
    """Return the common name of the whole function, or the names of its operations."""
    kinds = [op.kind for op in made.ops]
    if kinds == ["Sigmoid", "Mul"] and made.source in made.ops[1].inputs:
        return "Silu"
    return "+".join(kinds)


def _hidden(graph: Graph, ops: tuple[Op, ...], output: str) -> bool:
    """Whether only these operations read the tensors between them."""
    inner = {op.output for op in ops} - {output}
    ends = {o.value for o in graph.outputs} | {o.input for o in graph.host_ops} | set(graph.aliases.values())
    outside = [op for op in graph.ops if inner & set(op.inputs) and not any(op is o for o in ops)]
    return not outside and not inner & ends


def _function(graph: Graph, op: Op, known: dict[str, _Function]) -> _Function | None:
    """Return `op` as a function of one tensor, or None if it is not such a function."""
    output = graph.tensors[op.output]
    if not isinstance(op, Binary | Lookup | Rescale | Slope) or output.real or op.output in graph.aliases:
        return None
    if isinstance(op, Slope) and op.slopes.size != 1:
        return None
    fixed = _uniform(graph, op)
    moving = [name for name in op.inputs if name not in fixed]
    if any(name in graph.aliases or graph.tensors[name].cube != output.cube for name in moving):
        return None
    sources = {known[name].source if name in known else name for name in moving}
    if len(sources) != 1 or sources & graph.constants.keys():
        return None
    try:
        steps = steps_of(op, tuple(graph.tensors[name] for name in op.inputs), output)
    except ModelError:
        return None  # `lower` reports the reason
    source = sources.pop()
    values = {name: known[name].table if name in known else EVERY for name in moving} | fixed
    for step in steps:
        made = _apply(step, [values[tensor.name] for tensor in step.inputs])
        if made is None:
            return None
        values[step.output.name] = made
    before: list[Op] = []
    for name in moving:
        before += [o for o in known[name].ops if not any(o is b for b in before)] if name in known else []
    return _Function(source, values[op.output], (*before, op))


def _uniform(graph: Graph, op: Op) -> dict[str, Codes]:
    """Return the constant inputs with the same code everywhere, as that code for every code of the source."""
    found = {}
    for name in op.inputs:
        values = np.unique(graph.constants[name]) if name in graph.constants else np.zeros(0)
        if values.size == 1:
            found[name] = np.full(EVERY.size, int(values[0]), np.int64)
    return found


def _apply(step: Step, codes: list[Codes]) -> Codes | None:
    """Return the output's codes with the arithmetic of `rkcosim.compiler.lowering`; None for other steps."""
    x = codes[0] - step.inputs[0].zero_point
    match step:
        case LookupStep():
            return step.table.astype(np.int64)[codes[0] + 128]
        case RescaleStep():
            return _code(x * step.scale, step.limits, step.converter)
        case SlopeStep():
            v = x * step.scale
            return _code(
                np.where(v < 0, _rne(v * int(step.slopes.words[0]), step.slopes.shift), v),
                None,
                step.converter,
            )
        case BinaryStep():
            a, b = x * step.scales[0], (codes[1] - step.inputs[1].zero_point) * step.scales[1]
            results = {
                "add": a + b,
                "sub": a + b,  # the second scale is negative
                "mul": a * b,
                "max": np.maximum(a, b),
                "min": np.minimum(a, b),
            }
            return _code(results[step.method], step.limits, step.converter)
    return None


def _code(v: Codes, limits: Limits, converter: Converter) -> Codes:
    if limits is not None:
        v = np.clip(v, limits[0], limits[1])
    product, zero = v * converter.scale, converter.zero
    if "q1_zero_point_after_rounding" in chosen_options():
        return np.clip(_rne(product, converter.shift) + zero, -128, 127)
    # The zero point is included when a tie is rounded [HW 7.10].
    return np.clip(_rne(product + (zero << converter.shift), converter.shift), -128, 127)


def _rne(v: Codes, shift: int) -> Codes:
    """Return v / 2^shift, rounded half to even."""
    if shift == 0:
        return v
    return (v + (1 << (shift - 1)) - 1 + ((v >> shift) & 1)) >> shift
