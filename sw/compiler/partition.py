"""Parts of a model between NPU and host: operators for the host are joined to few large programs.

Every operation has a stage: an operation of the NPU has a later stage than the host's operators that it
depends on, and the other way round.  All operators of the host in one stage become one program.  No path
leads from such a program over the NPU back into it, so the program can be computed at once, and the
operations of the NPU between two stages form jobs that are as large as possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rkcosim.compiler.graph import Graph, HostCall, HostPart, ModelError, Op, Program

Build = Callable[[Sequence[HostPart], Sequence[str], Sequence[str]], Program]
"""Makes the program of several parts in order, from the names of the tensors that it takes and gives."""


def join_parts(graph: Graph, build: Build) -> None:
    """Replace the `HostPart`s of a graph by `HostCall`s, as few as possible.

    The order of operations changes only in a graph with such parts.  Tensors that only the operators inside a
    program see are removed from the graph.

    Parameters
    ----------
    graph
        The network; each tensor is written by one operation.
    build
        Makes a program; all parts that it gets have the same `runtime`.
    """
    if not any(isinstance(op, HostPart) for op in graph.ops):
        return
    stages = _stages(graph)
    groups: dict[tuple[int, str], list[HostPart]] = {}
    for op, stage in zip(graph.ops, stages, strict=True):
        if isinstance(op, HostPart):
            groups.setdefault((stage, op.runtime), []).append(op)
    calls = {key: _joined(graph, parts, build) for key, parts in groups.items()}
    order = sorted(range(len(graph.ops)), key=lambda n: stages[n])
    ops: list[Op] = []
    for number in order:
        op = graph.ops[number]
        if not isinstance(op, HostPart):
            ops.append(op)
        elif (made := calls.pop((stages[number], op.runtime), None)) is not None:
            ops.append(made)
    inner = {name for op in graph.ops if isinstance(op, HostPart) for name in op.outputs}
    graph.ops = ops
    kept = {name for op in ops for name in (*op.inputs, *_outputs(op))} | graph.ends()
    kept |= set(graph.aliases) | {graph.root(name) for name in kept}
    for name in inner - kept:
        graph.tensors.pop(name, None)


def _outputs(op: Op) -> tuple[str, ...]:
    return op.outputs if isinstance(op, HostPart | HostCall) else (op.output,)


def _stages(graph: Graph) -> list[int]:
    """Return the stage of each operation: odd for the host, even for the NPU."""
    at: dict[str, tuple[int, str]] = {}
    stages = []
    for op in graph.ops:
        runtime = op.runtime if isinstance(op, HostPart) else ""
        stage = 1 if runtime else 0
        for name in op.inputs:
            before, where = at.get(graph.root(name), (0, ""))
            if where == runtime and runtime and name in graph.aliases:  # the bytes, in another form
                stage = max(stage, before + 2)
            elif where == runtime:
                stage = max(stage, before)
            elif runtime and where:  # two runtimes: the second one comes after the first
                stage = max(stage, before + 2)
            else:
                stage = max(stage, before + 1)
        stages.append(stage)
        for name in _outputs(op):
            at[graph.root(name)] = (stage, runtime)
    return stages


def _joined(graph: Graph, parts: list[HostPart], build: Build) -> HostCall:
    made = {name for part in parts for name in part.outputs}
    inputs = list(dict.fromkeys(n for part in parts for n in part.inputs if n not in made))
    ours = {id(part) for part in parts}
    read = {name for op in graph.ops if id(op) not in ours for name in op.inputs}
    read |= {graph.root(name) for name in read} | graph.ends() | {item.value for item in graph.outputs}
    outputs = [name for part in parts for name in part.outputs if name in read and name in graph.tensors]
    if not outputs:  # results that nothing uses; the program still has one
        outputs = [parts[-1].output]
    if unknown := [name for name in inputs if name not in graph.tensors]:
        raise ModelError(f"'{unknown[0]}' has a shape that depends on the data, which the NPU's part needs")
    program = build(parts, inputs, outputs)
    program = replace(program, operators=tuple(part.operator for part in parts if part.operator.kind))
    return HostCall(parts[0].name, tuple(inputs), outputs[0], program=program, more=tuple(outputs[1:]))
