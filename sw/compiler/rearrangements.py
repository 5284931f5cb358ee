"""Rearrangements of the host that the NPU can do as moves of atoms, of models of all formats."""

from __future__ import annotations

from rkcosim.compiler.graph import Graph, OnHost, Op, Tensor, channels_last
from rkcosim.compiler.graph_products import ByteTiles, KernelAtoms, KernelTiles, Product
from rkcosim.compiler.loaders.views import View
from rkcosim.compiler.permutation import Permute, loops, moves
from rkcosim.spec.layouts.features import atom_channels


def rearranged_on_npu(graph: Graph) -> None:
    """Replace the host's Rearrange functions that move whole atoms.

    The NPU needs less time for them (docs/models.md has the measurements), and they divide no job.  What a
    product of two activations reads stays: the host writes zeros behind its channels, and the NPU does not.
    """
    factors = {
        graph.root(name)
        for op in graph.ops
        if isinstance(op, ByteTiles | KernelAtoms | KernelTiles | Product)
        for name in op.inputs
    }
    graph.ops = [op if graph.root(op.output) in factors else _replaced(graph, op) for op in graph.ops]


def _replaced(graph: Graph, op: Op) -> Op:
    if not isinstance(op, OnHost) or op.function != "Rearrange":
        return op
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.output]
    if x.host or y.host or not x.same_values(y) or x.real != y.real:
        return op
    view = _view(x)
    for name in ("before", "shape", "after"):
        given = op.attributes.get(name)
        if view is None or given is None:
            continue
        view = view.reshaped(tuple(given)) if name == "shape" else view.transposed(given)
    target = None if view is None else _target(view, y)
    if target is None:
        return op
    found = loops(target.stored, target.axes, (x.cube[0], y.cube[0]), atom_channels(x.itemsize))
    if found is None or moves(found) is None:
        return op
    return Permute(op.name, op.inputs, op.output, target.stored, target.axes)


def _view(x: Tensor) -> View | None:
    """Return a tensor as a view with its shape; None if axes of the shape mix pixels and channels."""
    channels, height, width = x.cube
    view = View(x.name, channels, (height, width, channels), (0, 1, 2))
    view = view if channels_last(x) else view.transposed((2, 0, 1))
    return view.reshaped(x.shape)


def _target(view: View, y: Tensor) -> View | None:
    """Return a view whose axes are those of a tensor in memory, pixels before channels; None without one."""
    channels, height, width = y.cube
    if channels_last(y):
        return view.reshaped((height, width, channels))
    cube = view.reshaped((channels, height, width))
    return None if cube is None else cube.transposed((1, 2, 0))
