"""Whether the NPU can do operations, found out before the rest of the model is read.

A loader that has built an operation for the NPU learns here whether its steps and tiles exist; if not, it
lets the host compute the operator of the file instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rkcosim.compiler.graph import Graph, HostCall, HostPart, ModelError, Op
from rkcosim.compiler.lowering.lower import steps_of
from rkcosim.compiler.programs.products import product_tiles
from rkcosim.compiler.steps import ConvStep, ProductStep, Step
from rkcosim.compiler.tiling import ConvShape, plan_tiles


def check_operations(graph: Graph, ops: Sequence[Op]) -> None:
    """Check that operations can be lowered and that their convolutions and products have tiles.

    Parameters
    ----------
    graph
        The network with the tensors of the operations.
    ops
        The operations; parts for the host are passed over.

    Raises
    ------
    ModelError
        If one of them cannot be done by the NPU or by the host's own functions; the message gives the reason.
    """
    for op in ops:
        if isinstance(op, HostPart | HostCall):
            continue
        inputs = tuple(graph.tensors[name] for name in op.inputs)
        for step in steps_of(op, inputs, graph.tensors[op.output]):
            _check_tiles(step)


def _check_tiles(step: Step) -> None:
    if isinstance(step, ConvStep):
        x, y = step.inputs[0], step.output
        sizes = (*x.cube, *y.cube, step.window, step.depthwise)
        shape = ConvShape(*sizes, insert=step.insert[0], itemsize=y.itemsize)
        plan_tiles(shape, f"{step.kind} '{step.name}'")
    elif isinstance(step, ProductStep):
        product_tiles(step)


@contextmanager
def undone_on_error(graph: Graph) -> Iterator[None]:
    """Undo all additions to a graph that are made inside, if a ModelError leaves the block."""
    ops, host_ops = len(graph.ops), len(graph.host_ops)
    tensors, aliases, constants = dict(graph.tensors), dict(graph.aliases), dict(graph.constants)
    origin, makers = dict(graph.origin), dict(graph.makers)
    try:
        yield
    except ModelError:
        del graph.ops[ops:], graph.host_ops[host_ops:]
        graph.tensors, graph.aliases, graph.constants = tensors, aliases, constants
        graph.origin, graph.makers = origin, makers
        raise
