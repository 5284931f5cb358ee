"""Functions of one tensor that are written as several operations, as one table.

Swish, for one, comes as Sigmoid and Mul.  Each operation is done here on all 256 codes by the arithmetic
of its own step, roundings included, so that the table gives the bytes that the operations would.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import Binary, Graph, Lookup, ModelError, Op, Rescale, Slope
from sw.compiler.lower import steps_of
from sw.compiler.steps import BinaryStep, Converter, Limits, LookupStep, RescaleStep, SlopeStep, Step

Codes = npt.NDArray[np.int64]

EVERY = np.arange(-128, 128)
"""All codes of a byte."""


@dataclass(frozen=True)
class _Function:
    """What an operation makes of `source`: int64 (256,) by code + 128; `ops` make it, in order."""

    source: str
    table: Codes
    ops: tuple[Op, ...]


def fold_byte_functions(graph: Graph) -> None:
    """Replace operations that together are a function of one tensor by a `Lookup`.

    Only where a table is among them already (it sets the pace then), and nothing else reads what lies
    between them.
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
        if name in gone or not between or not tables or not _hidden(graph, made.ops, name):
            continue
        table = made.table.astype(np.int8)
        op = made.ops[-1]
        replaced[name] = Lookup(op.name, (made.source,), name, table, _name(made))
        gone |= {op.output for op in between}
    graph.ops = [replaced.get(op.output, op) for op in graph.ops if op.output not in gone]
    for name in gone:
        del graph.tensors[name]


def _name(made: _Function) -> str:
    """Of the whole function: what it is commonly called, or its operations."""
    kinds = [op.kind for op in made.ops]
    if kinds == ["Sigmoid", "Mul"] and made.source in made.ops[1].inputs:
        return "Silu"
    return "+".join(kinds)


def _hidden(graph: Graph, ops: tuple[Op, ...], output: str) -> bool:
    """Whether what lies between is read by these operations alone."""
    inner = {op.output for op in ops} - {output}
    ends = {o.value for o in graph.outputs} | {o.input for o in graph.host_ops} | set(graph.aliases.values())
    outside = [op for op in graph.ops if inner & set(op.inputs) and not any(op is o for o in ops)]
    return not outside and not inner & ends


def _function(graph: Graph, op: Op, known: dict[str, _Function]) -> _Function | None:
    """What `op` is as a function of one tensor; None where it is none."""
    output = graph.tensors[op.output]
    if not isinstance(op, Binary | Lookup | Rescale | Slope) or output.real or op.output in graph.aliases:
        return None
    if isinstance(op, Slope) and op.slopes.size != 1:
        return None
    if any(name in graph.aliases or graph.tensors[name].cube != output.cube for name in op.inputs):
        return None
    sources = {known[name].source if name in known else name for name in op.inputs}
    if len(sources) != 1 or sources & graph.constants.keys():
        return None
    try:
        steps = steps_of(op, tuple(graph.tensors[name] for name in op.inputs), output)
    except ModelError:
        return None  # `lower` will say why
    source = sources.pop()
    values = {name: known[name].table if name in known else EVERY for name in op.inputs}
    for step in steps:
        made = _apply(step, [values[tensor.name] for tensor in step.inputs])
        if made is None:
            return None
        values[step.output.name] = made
    before: list[Op] = []
    for name in op.inputs:
        before += [o for o in known[name].ops if not any(o is b for b in before)] if name in known else []
    return _Function(source, values[op.output], (*before, op))


def _apply(step: Step, codes: list[Codes]) -> Codes | None:
    """The output's codes by the arithmetic of `sw.compiler.lower`; None for a step of another kind."""
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
    return np.clip(_rne(v * converter.scale, converter.shift) + converter.zero, -128, 127)


def _rne(v: Codes, shift: int) -> Codes:
    """v / 2^shift, half to even."""
    if shift == 0:
        return v
    return (v + (1 << (shift - 1)) - 1 + ((v >> shift) & 1)) >> shift
