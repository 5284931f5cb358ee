"""Passes over the graph before it becomes steps."""

from __future__ import annotations

from dataclasses import replace

from sw.compiler.graph import Clamp, Conv, Graph, Op, Pad
from sw.compiler.npu_limits import CONV_PAD


def fold_pads(graph: Graph) -> None:
    """Let a convolution pad by itself where a Pad stands in front of it and serves nothing else."""
    used = {graph.root(o.value) for o in graph.outputs} | {graph.root(o.input) for o in graph.host_ops}
    folded: set[str] = set()
    result: list[Op] = []
    makers = {op.output: op for op in graph.ops if isinstance(op, Pad)}
    for op in graph.ops:
        source = graph.root(op.inputs[0])
        pad = makers.get(source)
        readers = [o for o in graph.ops if any(graph.root(name) == source for name in o.inputs)]
        if pad is None or not isinstance(op, Conv) or len(readers) > 1 or source in used:
            result.append(op)
            continue
        before, after = graph.tensors[pad.inputs[0]], graph.tensors[op.inputs[0]]
        pads = tuple(a + b for a, b in zip(pad.pads, op.window.pads, strict=True))
        same_map = after.cube == graph.tensors[pad.output].cube
        plain = pad.clamp == Clamp() and op.insert == (1, 1) and before.same_values(after)
        if not plain or not same_map or max(pads[:2]) > CONV_PAD:
            result.append(op)
            continue
        window = replace(op.window, pads=(pads[0], pads[1], pads[2], pads[3]))
        result.append(replace(op, inputs=(pad.inputs[0],), window=window))
        folded.add(pad.output)
    graph.ops = [op for op in result if op.output not in folded]
    for name in [n for n in graph.tensors if graph.root(n) in folded]:
        del graph.tensors[name]
        graph.aliases.pop(name, None)
