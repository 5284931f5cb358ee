"""What graphs did until the program ended: for the summary and the JSON document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rkcosim.apis.hexagon.execution import Outcome
from rkcosim.apis.hexagon.graph import CONST, Graph
from rkcosim.running.machine import MOST_MODELS


@dataclass
class _Record:
    executions: int = 0
    failed: int = 0
    cycles: int = 0
    nodes: list[dict[str, Any]] = field(default_factory=list)

    def lines(self, number: int) -> list[str]:
        """Return the lines of the summary."""
        text = f"graph {number}: {self.executions} execution{'s' * (self.executions != 1)}"
        text += f" ({self.failed} failed)" if self.failed else ""
        found = [f"{text}, {self.cycles:,} cycles, {len(self.nodes)} nodes"]
        for node in self.nodes:
            if node["on"] == "npu":
                counts = f"{node['cycles']:,} cycles, {node['bytes']:,} bytes, {node['busy']:,} busy"
                found.append(f"  0x{node['node']:x} {node['operation']}: {counts}")
        hosted = sorted({node["operation"] for node in self.nodes if node["on"] == "host"})
        return [*found, f"  on the host: {', '.join(hosted)}"] if hosted else found


class Account:
    """The executions of each graph.

    Parameters
    ----------
    checked : whether layers and sums are compared.
    """

    def __init__(self, checked: bool) -> None:
        self._checked = checked
        self._records: dict[int, _Record] = {}
        self._open: dict[int, Graph] = {}
        self._more: set[int] = set()
        self._count = 0
        self.mismatch = ""
        """The first difference that was found."""

    def executed(self, graph: Graph, outcome: Outcome) -> None:
        """Record an execution."""
        if graph.number not in self._records and len(self._records) >= MOST_MODELS:
            self._more.add(graph.number)
            return
        record = self._records.setdefault(graph.number, _Record())
        record.executions += 1
        record.failed += bool(outcome.result)
        record.cycles += graph.last_cycles
        self._open[graph.number] = graph

    def add(self, graph: Graph) -> None:
        """Record where the nodes of a graph ran, before it is torn down."""
        record = self._records.get(graph.number)
        if record is None:
            self._count += graph.number in self._more
            self._more.discard(graph.number)
            return
        record.nodes = [
            {
                "node": node.number,
                "operation": node.name,
                "on": node.place,
                **dict(zip(("cycles", "bytes", "busy"), node.totals, strict=True)),
            }
            for node in graph.nodes
            if node.operation != CONST
        ]
        self._open.pop(graph.number, None)

    def finish(self) -> tuple[dict[str, Any], list[str]]:
        """Return members of the JSON document, and lines of the summary."""
        for graph in list(self._open.values()):
            self.add(graph)
        lines = [line for number, record in self._records.items() for line in record.lines(number)]
        if more := self._count + len(self._more):
            lines.append(f"{more} more graphs")
        if self._checked and self._records:
            equal = "MATCH: every layer and every sum of the NPU, bit for bit"
            lines.append(f"MISMATCH: {self.mismatch}" if self.mismatch else equal)
        match = None if not self._checked else not self.mismatch
        graphs = [{"graph": number, **vars(record)} for number, record in self._records.items()]
        return {"graphs": graphs, "match": match}, lines
