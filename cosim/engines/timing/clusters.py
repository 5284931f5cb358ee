"""Clusters: nodes that are evaluated together whenever something changes on which one of them depends.

The clusters are parts of one order in which every node follows the nodes on which it depends in the same
cycle, so each is evaluated at most once in a cycle.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rkcosim.engines.protocol import BuildError
from rkcosim.engines.timing.nodes import Node, Program, Variable

MOST_NODES = 48
"""Largest number of nodes of a cluster."""


@dataclass
class Cluster:
    """Nodes in the order of their evaluation.

    Members
    -------
    number : place among the clusters, which is also the order of their evaluation.
    module : path of the module of its nodes.
    """

    number: int
    module: str
    nodes: list[Node] = field(default_factory=list)


@dataclass
class Clusters:
    """The clusters of a program.

    Members
    -------
    readers : by number of a variable, the clusters that use it (without those that compute it).
    row_readers : by number of a memory, the clusters that read it.
    """

    clusters: list[Cluster]
    readers: dict[int, set[int]]
    row_readers: dict[int, set[int]]


def clusters_of(program: Program, most: int = MOST_NODES) -> Clusters:
    """Divide a program into clusters of at most `most` nodes.

    Raises
    ------
    BuildError
        if nodes depend on each other in a circle.
    """
    order = _order(program)
    clusters: list[Cluster] = []
    for node in order:
        if not clusters or clusters[-1].module != node.module or len(clusters[-1].nodes) >= most:
            clusters.append(Cluster(len(clusters), node.module))
        clusters[-1].nodes.append(node)
    readers: dict[int, set[int]] = defaultdict(set)
    row_readers: dict[int, set[int]] = defaultdict(set)
    for cluster in clusters:
        for node in cluster.nodes:
            for variable in used(node):
                readers[variable.number].add(cluster.number)
            if node.kind in ("read", "registered read"):
                row_readers[node.extra[0].number].add(cluster.number)
    for cluster in clusters:
        for node in cluster.nodes:
            if node.out is not None and not node.out.state:
                readers[node.out.number].discard(cluster.number)
    return Clusters(clusters, readers, row_readers)


def used(node: Node) -> list[Variable]:
    """Return the variables that a node uses, each once."""
    found = {run.variable.number: run.variable for term in node.terms for run in term if run.variable}
    return list(found.values())


def _order(program: Program) -> list[Node]:
    """Return the nodes so that each follows those that it needs, and nodes of a module are together."""
    maker = {node.out.number: at for at, node in enumerate(program.nodes) if node.out and not node.out.state}
    needs = [0] * len(program.nodes)
    users: dict[int, list[int]] = defaultdict(list)
    for at, node in enumerate(program.nodes):
        for variable in used(node):
            if variable.number in maker:
                needs[at] += 1
                users[maker[variable.number]].append(at)
    ready: dict[str, list[int]] = defaultdict(list)
    for at, node in enumerate(program.nodes):
        if not needs[at]:
            ready[node.module].append(at)
    order: list[Node] = []
    while ready:
        module = max(ready, key=lambda name: len(ready[name]))
        stack = ready.pop(module)[::-1]
        while stack:
            at = stack.pop()
            order.append(program.nodes[at])
            for user in users[at]:
                needs[user] -= 1
                if not needs[user]:
                    other = program.nodes[user].module
                    (stack if other == module else ready[other]).append(user)
    if len(order) < len(program.nodes):
        left = [node for at, node in enumerate(program.nodes) if needs[at]]
        places = sorted({node.module for node in left})
        raise BuildError(f"{len(left)} parts of the logic of {', '.join(places[:5])} depend on each other")
    return order
