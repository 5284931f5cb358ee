"""Division of onnxruntime's graph into parts that can each be one node.

A part must be convex: no path between two of its nodes leaves it.  Each node has a stage, which grows where a
path returns from a node that is in no part; nodes of one stage that are connected form a part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rkcosim.apis.ort.graph import OrtNode, RuntimeGraph


class Division:
    """Relations of a graph's nodes.

    Parameters
    ----------
    graph : the graph; nodes are named by their place in it.
    """

    def __init__(self, graph: RuntimeGraph) -> None:
        self._graph = graph
        self._makers = {name: n for n, node in enumerate(graph.nodes) for name in node.makes}
        self._readers: dict[str, list[int]] = {}
        for n, node in enumerate(graph.nodes):
            for name in node.reads:
                self._readers.setdefault(name, []).append(n)
        self._outputs = set(graph.outputs)
        self.constant = self._constant_nodes()

    def _constant_nodes(self) -> set[int]:
        """Return the nodes that can be computed from constants alone, as DequantizeLinear of weights."""
        known, found = set(self._graph.constants), set()
        for n, node in enumerate(self._graph.nodes):
            if node.reads and not node.problem and known.issuperset(node.reads):
                found.add(n)
                known.update(node.makes)
        return found

    def parts(self, usable: Collection[int]) -> list[list[int]]:
        """Divide `usable` nodes into parts, in the order of their first nodes.

        Nodes of constants are in the part that uses them, if there is only one.
        """
        stages: dict[int, int] = {}
        for n, node in enumerate(self._graph.nodes):
            if n not in self.constant:
                before = [m for m in self._before(node) if m not in self.constant]
                stages[n] = max((stages[m] + (n in usable and m not in usable) for m in before), default=0)
        group = {n: n for n in stages if n in usable}

        def root(n: int) -> int:
            while group[n] != n:
                group[n] = group[group[n]]
                n = group[n]
            return n

        for n in group:
            for m in self._before(self._graph.nodes[n]):
                if m in group and stages[m] == stages[n]:
                    first, second = sorted((root(m), root(n)))
                    group[second] = first
        for n in sorted(self.constant, reverse=True):
            users = {m for name in self._graph.nodes[n].makes for m in self._readers.get(name, [])}
            if n in usable and users <= group.keys() and not self._outputs & set(self._graph.nodes[n].makes):
                roots = {root(m) for m in users}
                if len(roots) == 1:
                    group[n] = roots.pop()
        parts: dict[int, list[int]] = {}
        for n in sorted(group):
            parts.setdefault(root(n), []).append(n)
        return list(parts.values())

    def _before(self, node: OrtNode) -> list[int]:
        return [self._makers[name] for name in node.reads if name in self._makers]

    def with_constants(self, part: Iterable[int]) -> list[int]:
        """Return the nodes of a part and all nodes of constants that they use, in the graph's order."""
        found, queue = set(part), list(part)
        while queue:
            for m in self._before(self._graph.nodes[queue.pop()]):
                if m in self.constant and m not in found:
                    found.add(m)
                    queue.append(m)
        return sorted(found)

    def results(self, part: Collection[int]) -> list[str]:
        """Return the names of the values that a part gives to other nodes or to the graph's outputs."""
        inside = set(part)
        return [
            name
            for n in part
            for name in self._graph.nodes[n].makes
            if name in self._outputs or set(self._readers.get(name, [])) - inside
        ]
