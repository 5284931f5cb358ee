"""What the host computes of a model: the operators, why the NPU does not, and their share of the work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rkcosim.compiler.constraints import requirement
from rkcosim.compiler.graph import HostOperator
from rkcosim.compiler.runtime import ending_softmax, hosted_operators
from rkcosim.compiler.steps import HostStep

SHOWN = 12
"""Kinds of operators that are printed; the JSON has all."""


@dataclass(frozen=True)
class HostWork:
    """The host's part of a model.

    Members
    -------
    operators
        The operators of the model file, in order.
    element_share, mac_share
        Its share of all elements of results, and of all multiply-accumulates; 0 if there are none.
    undivided
        Why a first dimension above 1 is not taken as a batch; empty without one.
    alone
        Whether no layer runs on the NPU.
    macs
        Multiply-accumulates of NPU and host together.
    """

    operators: list[HostOperator]
    element_share: float
    mac_share: float
    undivided: str = ""
    alone: bool = False
    macs: int = 0

    def share(self) -> str:
        """Return in words how much of the model the NPU computes."""
        if self.alone:
            return "on the NPU: nothing"
        elements = f"{1 - self.element_share:.2%} of the elements"
        macs = f"{1 - self.mac_share:.2%} of the MACs" if self.macs else "the model has no MACs"
        return f"on the NPU: {macs}, {elements}" if self.macs else f"on the NPU: {elements} ({macs})"

    def as_json(self) -> dict[str, Any]:
        """Return the members `host_operators`, `host_share`, `host_mac_share` and `undivided` of a JSON
        document."""
        return {
            "undivided": self.undivided,
            "host_operators": [asdict(item) for item in self.operators],
            "host_share": self.element_share,
            "host_mac_share": self.mac_share,
        }

    def lines(self) -> Iterator[str]:
        """Yield the shares, and a line for each kind of operator and reason."""
        if not self.operators:
            return
        yield (
            f"on the host: {len(self.operators)} operators with {self.element_share:.2%} of all elements and "
            f"{self.mac_share:.2%} of all MACs"
        )
        groups: dict[tuple[str, str], list[HostOperator]] = {}
        for item in self.operators:
            groups.setdefault((item.kind, requirement(item.reason)), []).append(item)
        for (kind, _), items in list(groups.items())[:SHOWN]:
            count = f"{len(items)} times " if len(items) > 1 else ""
            yield f"  {kind} {count}('{items[0].name}'): {items[0].reason}"
        if len(groups) > SHOWN:
            yield f"  {len(groups) - SHOWN} more kinds (--json has all)"
        if self.undivided:
            yield f"  the first dimension is not taken as a batch: {self.undivided}"


def host_work(model: Any) -> HostWork:
    """Return the host's part of a compiled model."""
    return host_work_of_plan(model.plan, getattr(model, "undivided", ""))


def host_work_of_plan(plan: Any, undivided: str = "") -> HostWork:
    """Return the host's part of a plan; `undivided` is the member of the result."""
    steps, graph = plan.steps, plan.graph
    operators = [item for step in steps for item in hosted_operators(step)]
    for op in graph.host_ops:
        if op.kind == "Softmax":
            operators.append(ending_softmax(graph, op))
    elements = sum(item.elements for item in operators)
    others = sum(step.output.elements for step in steps if not isinstance(step, HostStep))
    macs = sum(item.macs for item in operators)
    every = macs + sum(task.macs for task in plan.tasks)
    shares = elements / max(elements + others, 1), macs / max(every, 1)
    alone = all(isinstance(step, HostStep) for step in steps)
    return HostWork(operators, *shares, undivided, alone, every)
