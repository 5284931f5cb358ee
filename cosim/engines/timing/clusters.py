"""Clusters: nodes that are evaluated together whenever something changes on which one of them depends.

The clusters are parts of one order in which every node follows the nodes on which it depends in the same
cycle, so each is evaluated at most once in a cycle.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from rkcosim.engines.protocol import BuildError
from rkcosim.engines.timing.nodes import LogicNode, Program, Variable

MOST_NODES = 32
"""Number of nodes at which a cluster takes no further cone."""

MOST_DATA_NODES = 400
"""The same for data, which mostly change together."""

FEWEST_NODES = 6
"""Number of nodes below which a cluster also takes a cone with other inputs."""

LEAST_ALIKE = 0.3
"""Part of the inputs of two cones that both must have so that they are evaluated together."""


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
    nodes: list[LogicNode] = field(default_factory=list)


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
    clusters = [
        Cluster(number, nodes[0].module, nodes)
        for number, nodes in enumerate(_Divider(program, most).parts())
    ]
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


def used(node: LogicNode) -> list[Variable]:
    """Return the variables that a node uses, each once."""
    found = {run.variable.number: run.variable for term in node.terms for run in term if run.variable}
    return list(found.values())


class _Divider:
    """Divides nodes into clusters: cones of logic in front of a register or output that share inputs."""

    def __init__(self, program: Program, most: int) -> None:
        self._nodes, self._most = program.nodes, most
        self._most_data = max(most, MOST_DATA_NODES)
        maker = {
            node.out.number: at for at, node in enumerate(program.nodes) if node.out and not node.out.state
        }
        self._inputs = [[variable.number for variable in used(node)] for node in program.nodes]
        self._needs = [[maker[number] for number in found if number in maker] for found in self._inputs]
        self._states = [[number for number in found if number not in maker] for found in self._inputs]
        for at, node in enumerate(program.nodes):
            if node.kind in ("read", "registered read"):  # the rows are an input as well
                self._states[at].append(-1 - node.extra[0].number)
        self._users: list[list[int]] = [[] for _ in program.nodes]
        for at, needs in enumerate(self._needs):
            for need in needs:
                self._users[need].append(at)
        self._done = [False] * len(program.nodes)

    def parts(self) -> list[list[LogicNode]]:
        """Return the nodes of each cluster, in order."""
        missing = [len(needs) for needs in self._needs]
        ready: dict[str, list[int]] = defaultdict(list)
        for at, node in enumerate(self._nodes):
            if not missing[at]:
                ready[node.module].append(at)
        out: list[list[LogicNode]] = []
        count = 0
        while ready:
            module = max(ready, key=lambda name: len(ready[name]))
            closure, stack = [], ready.pop(module)
            while stack:
                at = stack.pop()
                closure.append(at)
                for user in self._users[at]:
                    missing[user] -= 1
                    if not missing[user]:
                        other = self._nodes[user].module
                        (stack if other == module else ready[other]).append(user)
            count += len(closure)
            out += [[self._nodes[at] for at in part] for part in self._divide(closure)]
        if count < len(self._nodes):
            left = [node for at, node in enumerate(self._nodes) if missing[at]]
            places = sorted({node.module for node in left})
            raise BuildError(
                f"{len(left)} parts of the logic of {', '.join(places[:5])} depend on each other"
            )
        return out

    def _divide(self, closure: list[int]) -> list[list[int]]:
        """Divide nodes of one module, of which everything else that they need is computed before."""
        inside = set(closure)
        ends = [at for at in closure if not any(user in inside for user in self._users[at])]
        cones = {end: self._cone(end, inside) for end in ends}
        seen = {end: self._seen(cone, inside) for end, cone in cones.items()}
        left = sorted(ends, key=lambda end: (-len(cones[end]), end))
        parts: list[list[int]] = []
        while left:
            part: list[int] = []
            inputs: set[int] = set()
            end: int | None = left[0]
            out = self._nodes[left[0]].out
            data = out is not None and out.data
            most, least = (self._most_data, 0.0) if data else (self._most, LEAST_ALIKE)
            while end is not None:
                left.remove(end)
                fresh = [at for at in cones[end] if not self._done[at]]
                for at in fresh:
                    self._done[at] = True
                part += fresh
                inputs |= seen[end]
                end = None
                if len(part) < most:
                    best = 0.0
                    for other in left[:400]:
                        union = len(inputs | seen[other])
                        alike = len(inputs & seen[other]) / union if union else 1.0
                        if alike > best and len(part) + len(cones[other]) <= most + 8:
                            best, end = alike, other
                    if best < least and len(part) >= FEWEST_NODES:
                        end = None
            for first in range(0, len(part), most * 2):
                parts.append(part[first : first + most * 2])
        return [part for part in parts if part]

    def _cone(self, end: int, inside: set[int]) -> list[int]:
        """Return the nodes that `end` needs, each behind those that it needs itself."""
        order: list[int] = []
        known = set()
        stack = [(end, iter(self._needs[end]))]
        known.add(end)
        while stack:
            at, needs = stack[-1]
            for need in needs:
                if need in inside and need not in known:
                    known.add(need)
                    stack.append((need, iter(self._needs[need])))
                    break
            else:
                stack.pop()
                order.append(at)
        return order

    def _seen(self, cone: list[int], inside: set[int]) -> set[int]:
        """Return what a cone depends on from outside of it: registers, memories, and other logic."""
        found: set[int] = set()
        for at in cone:
            found.update(self._states[at])
            found.update(~(need << 32) for need in self._needs[at] if need not in inside)
        return found
