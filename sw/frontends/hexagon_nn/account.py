"""What graphs did until the program ended: for the summary and the JSON document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rkcosim.frontends.hexagon_nn.execution import Outcome
from rkcosim.frontends.hexagon_nn.graph import CONST, Graph


@dataclass
class _Record:
    executions: int = 0
    failed: int = 0
    cycles: int = 0
    nodes: int = 0
    npu: tuple[str, ...] = ()
    host: tuple[str, ...] = ()


class Account:
    """The executions of each graph."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}
        self._open: dict[int, Graph] = {}

    def executed(self, graph: Graph, outcome: Outcome) -> None:
        """Record an execution."""
        record = self._records.setdefault(graph.number, _Record())
        record.executions += 1
        record.failed += bool(outcome.result)
        record.cycles += graph.last_cycles
        self._open[graph.number] = graph

    def add(self, graph: Graph) -> None:
        """Record where the nodes of a graph ran, before it is torn down."""
        record = self._records.get(graph.number)
        if record is None:
            return
        nodes = [node for node in graph.nodes if node.operation != CONST]
        record.nodes = len(nodes)
        for place in ("npu", "host"):
            names = tuple(sorted({node.name for node in nodes if node.place == place}))
            setattr(record, place, names)
        self._open.pop(graph.number, None)

    def finish(self) -> tuple[dict[str, Any], list[str]]:
        """Return a document for the JSON file, and lines for the summary."""
        for graph in list(self._open.values()):
            self.add(graph)
        lines = []
        for number, record in self._records.items():
            text = f"graph {number}: {record.executions} executions"
            text += f" ({record.failed} failed)" if record.failed else ""
            lines.append(f"{text}, {record.cycles:,} cycles, {record.nodes} nodes")
            lines += [
                f"  on the {name}: {', '.join(kinds)}"
                for name, kinds in (("NPU", record.npu), ("host", record.host))
                if kinds
            ]
        return {"graphs": [{"graph": n, **vars(r)} for n, r in self._records.items()]}, lines
