"""Which nodes of a cluster only one case of a choice needs, so that the others do not evaluate them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rkcosim.engines.timing.nodes import AT_EDGE, BitRun, LogicNode

LEAST_WEIGHT = 3
"""Least weight of nodes to be saved in the other cases; a branch for fewer costs more than it saves."""

LEAST_WEIGHT_BY_DATA = 12
"""The same if data determine the case, which no processor predicts."""

Branch = tuple[int, int]
"""A case: `id` of the node that chooses, and the number of the operand that is used in this case only."""


def branches_of(nodes: Sequence[LogicNode], stored: set[int]) -> dict[Branch | None, list[LogicNode]]:
    """Return the nodes that are evaluated in each case, and those that are always evaluated (None).

    Parameters
    ----------
    nodes : nodes of a cluster, each behind those that it needs.
    stored : numbers of the variables that others than the nodes of the cluster use.
    """
    paths = _paths(nodes, stored, None)
    weights: dict[Branch, int] = defaultdict(int)
    for node in nodes:
        for branch in paths[id(node)]:
            weights[branch] += _weight(node)
    by_data = {(id(node), place) for node in nodes for place in _cases(node) if _by_data(node, place)}
    allowed = {
        branch
        for branch, weight in weights.items()
        if weight >= (LEAST_WEIGHT_BY_DATA if branch in by_data else LEAST_WEIGHT)
    }
    paths = _paths(nodes, stored, allowed)
    found: dict[Branch | None, list[LogicNode]] = defaultdict(list)
    for node in nodes:
        path = paths[id(node)]
        found[path[-1] if path else None].append(node)
    return found


def _weight(node: LogicNode) -> int:
    """Return about how many operations a node takes."""
    return 4 * (len(node.terms) - 1) if node.kind == "part" else 1


Path = tuple[Branch, ...]
"""The cases in which a node is needed, the outermost first."""


def _paths(nodes: Sequence[LogicNode], stored: set[int], allowed: set[Branch] | None) -> dict[int, Path]:
    maker = {node.out.number: node for node in nodes if node.out is not None and not node.out.state}
    paths: dict[int, Path] = {}
    uses: dict[int, list[Path]] = defaultdict(list)
    for node in reversed(nodes):
        always = node.kind in AT_EDGE or node.out is None or node.out.number in stored
        path = () if always else _common(uses[id(node)])
        paths[id(node)] = path
        cases = _cases(node)
        for place, term in enumerate(node.terms):
            branch = (id(node), place)
            inner = (*path, branch) if place in cases and (allowed is None or branch in allowed) else path
            for run in term:
                if run.variable is not None and run.variable.number in maker:
                    uses[id(maker[run.variable.number])].append(inner)
    return paths


def _cases(node: LogicNode) -> range | tuple[int, ...]:
    """Return the numbers of the operands that are used in one case only."""
    if node.kind == "m":
        return (1, 2)
    if node.kind == "first":
        return () if node.terms[0] == (BitRun(None, 1, 1),) else (1,)
    if node.kind == "registered read":
        return range(1, len(node.terms))
    if node.kind == "assign":
        conditions = node.terms[1::2]
        return tuple(2 + 2 * k for k, cond in enumerate(conditions) if cond != (BitRun(None, 1, 1),))
    return ()


def _by_data(node: LogicNode, place: int) -> bool:
    """Return whether data determine if an operand is used."""
    condition = node.terms[place - 1] if node.kind == "assign" else node.terms[0]
    return any(run.variable is not None and run.variable.data for run in condition)


def _common(paths: Sequence[Path]) -> Path:
    """Return the cases that several uses of a node have in common."""
    if not paths:
        return ()
    shortest, length = min(paths, key=len), 0
    for length, branch in enumerate(shortest):
        if any(path[length] != branch for path in paths):
            return shortest[:length]
    return shortest
