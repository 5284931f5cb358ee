"""Graph rewrites that merge a Pad, addition, table or slope into a neighbouring convolution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import Clamp, Conv, Graph, ModelError, Op
from rkcosim.compiler.limits import CONV_PAD
from rkcosim.compiler.lowering.lower import steps_of
from rkcosim.compiler.tiling import DDR_BYTES, SHARE_OF_ONE, ConvShape, is_planned_by_another
from rkcosim.spec.config import ATOM_BYTES
from rkcosim.spec.layouts import KERNEL_GROUP
from rkcosim.spec.octets import LUT_CYCLES, OCTET

OVERLAP = 0.3
"""Share of the shorter of memory and computation of a small convolution that does not overlap the longer one;
as `SECOND_TASK`, from runs in RTL (docs/models.md, "Tables apart")."""

SECOND_TASK = 400
"""Cycles that a second task takes for its start and end."""

MARGIN = 1.03
"""By how much two tasks must be faster than one, because the figures above are those of a few shapes."""

Behind = TypeVar("Behind", g.Lookup, g.Slope)


def fold_pads(graph: Graph) -> None:
    """Merge a Pad into the convolution that reads it, if nothing else reads the padded tensor."""
    used = graph.ends()
    folded: set[str] = set()
    result: list[Op] = []
    makers = {op.output: op for op in graph.ops if isinstance(op, g.Pad)}
    for op in graph.ops:
        source = graph.root(op.inputs[0]) if isinstance(op, Conv) else ""
        pad = makers.get(source)
        readers = [o for o in graph.ops if any(graph.root(name) == source for name in o.inputs)]
        if pad is None or not isinstance(op, Conv) or len(readers) > 1 or source in used:
            result.append(op)
            continue
        before, after = graph.tensors[pad.inputs[0]], graph.tensors[op.inputs[0]]
        pads = tuple(a + b for a, b in zip(pad.pads, op.window.pads, strict=True))
        same_map = after.cube == graph.tensors[pad.output].cube
        plain = pad.clamp == Clamp() and op.insert == (1, 1) and before.same_values(after)
        plain = plain and pad.channels == (0, 0) and pad.value is None
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


def fuse_operations(graph: Graph, cores: int = 1) -> list[str]:
    """Merge additions, tables and slopes into the convolution before them, so that one task does both.

    An operation is merged only if nothing else reads the convolution's result, and a table only if one task
    is not slower than two.  `rkcosim.compiler.lowering` describes the arithmetic.

    Parameters
    ----------
    graph
        The network, which is changed.
    cores
        Cores among which convolutions are divided; tasks of tables are not.

    Returns
    -------
    One line for each operation that could not be merged into the convolution before it, with the reason.
    """
    table = _table if cores == 1 and not is_planned_by_another() else _any_table
    return fuse_adds(graph) + _fuse_behind(graph, g.Lookup, table) + _fuse_behind(graph, g.Slope, _slope)


def fuse_adds(graph: Graph) -> list[str]:
    """Merge additions into the convolution before them (into the later one if both operands have one)."""
    notes: list[str] = []
    for op in list(graph.ops):
        if not isinstance(op, g.Binary) or op.method != "add" or graph.tensors[op.output].real:
            continue
        order = {other.output: index for index, other in enumerate(graph.ops)}
        makers = {o.output: o for o in graph.ops if isinstance(o, Conv)}
        reasons: list[str] = []
        for name in sorted(set(op.inputs) & makers.keys(), key=lambda n: order[n], reverse=True):
            reason = _addition(graph, op, makers[name])
            if reason is None:
                reasons.clear()
                break
            reasons.append(
                f"Add '{op.name}' is not merged into {makers[name].kind} '{makers[name].name}': {reason}"
            )
        notes += reasons
    return notes


def _fuse_behind(
    graph: Graph, kind: type[Behind], fuse: Callable[[Graph, Behind, Conv], str | None]
) -> list[str]:
    """Merge operations of one kind into the convolution before them; return the reasons for the others."""
    notes: list[str] = []
    makers = {op.output: op for op in graph.ops if isinstance(op, Conv)}
    for op in list(graph.ops):
        if isinstance(op, kind) and (conv := makers.get(op.inputs[0])) is not None:
            reason = fuse(graph, op, conv)
            if reason is not None:
                notes.append(f"{op.kind} '{op.name}' is not merged into {conv.kind} '{conv.name}': {reason}")
    return notes


def _addition(graph: Graph, op: g.Binary, conv: Conv) -> str | None:
    between, output = graph.tensors[conv.output], graph.tensors[op.output]
    if not graph.read_once(between.name):
        return "something else reads the convolution's result"
    other = graph.tensors[op.inputs[1 - op.inputs.index(between.name)]]
    if between.cube != output.cube or other.cube not in (output.cube, (output.cube[0], 1, 1)):
        return "the shapes differ"
    inputs = (conv.inputs[0], other.name)
    return _join(graph, conv, op, g.ConvAdd(op.name, inputs, op.output, conv, between, clamp=op.clamp))


def apart_is_faster(conv: Conv, x: tuple[int, int, int], y: tuple[int, int, int]) -> bool:
    """Whether a table takes less time as a task of its own than in the task of the convolution before it.

    In the convolution's task the DPU looks up whole groups of 32 channels, two a cycle, also those that the
    layer does not have; a task of its own looks up whole atoms of 16.  The difference pays for the
    convolution's own time only if that is short.

    Parameters
    ----------
    conv
        A convolution of bytes.
    x, y
        Channels, rows and columns of its input and of its result.
    """
    pixels, kernels = y[1] * y[2], y[0]
    whole, atoms = (-(-kernels // size) * size for size in (KERNEL_GROUP, ATOM_BYTES))
    if whole == atoms or conv.groups != 1 or conv.insert != (1, 1):
        return False
    shape = ConvShape(*x, *y, conv.window, depthwise=False)
    work = pixels * shape.pixel_cycles * (whole // KERNEL_GROUP)
    moved = x[1] * shape.row_bytes + atoms * pixels
    memory = SHARE_OF_ONE * moved / DDR_BYTES
    alone = max(work, memory) + OVERLAP * min(work, memory)
    apart = alone + pixels * atoms // OCTET * LUT_CYCLES + SECOND_TASK
    return apart * MARGIN < max(work, pixels * whole // OCTET * LUT_CYCLES)


def _table(graph: Graph, op: g.Lookup, conv: Conv) -> str | None:
    cubes = graph.tensors[conv.inputs[0]].cube, graph.tensors[conv.output].cube
    if not graph.tensors[conv.output].real and apart_is_faster(conv, *cubes):
        return "two tasks take less time, because the layer has few channels"
    return _any_table(graph, op, conv)


def _any_table(graph: Graph, op: g.Lookup, conv: Conv) -> str | None:
    between, output = graph.tensors[conv.output], graph.tensors[op.output]
    if between.real or output.real:
        return "the LUT can output only integers"
    if not graph.read_once(between.name):
        return "something else reads the convolution's result"
    if between.cube != output.cube:
        return "the shapes differ"
    fused = g.ConvLookup(op.name, conv.inputs, op.output, conv, between, op.table, op.source)
    return _join(graph, conv, op, fused)


def _slope(graph: Graph, op: g.Slope, conv: Conv) -> str | None:
    between, output = graph.tensors[conv.output], graph.tensors[op.output]
    if not graph.read_once(between.name):
        return "something else reads the convolution's result"
    if between.cube != output.cube or between.real != output.real:
        return "the shapes or types differ"
    if conv.clamp != Clamp() or op.clamp != Clamp():
        return "one of the two has a clamp"
    return _join(graph, conv, op, g.ConvSlope(op.name, conv.inputs, op.output, conv, between, op.slopes))


def _join(graph: Graph, conv: Conv, op: Op, fused: Op) -> str | None:
    """Replace a convolution and `op`, the only reader of its result, by `fused` at the position of `op`.

    Returns
    -------
    The reason why one task cannot compute `fused`, or None if the graph was changed.
    """
    try:
        steps_of(fused, tuple(graph.tensors[name] for name in fused.inputs), graph.tensors[fused.output])
    except ModelError as error:
        return str(error)
    graph.ops = [fused if o is op else o for o in graph.ops if o is not conv]
    del graph.tensors[conv.output]
    return None
