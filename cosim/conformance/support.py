"""Support matrix: which type ran through which operator, up to which limits."""

from __future__ import annotations

from collections.abc import Iterable

from cosim.conformance.case import Fact

TYPES = ("int4", "int8", "int16", "int32", "fp16", "bf16", "tf32", "fp32")


class Support:
    """Collects facts of tasks that matched."""

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, str], int] = {}
        self.limits: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}

    def add(self, facts: Iterable[Fact]) -> None:
        """Note what a case was."""
        for operator, kind, limits in facts:
            key = (operator, kind)
            self.tasks[key] = self.tasks.get(key, 0) + 1
            held = self.limits.setdefault(key, {})
            for name, value in limits.items():
                low, high = held.get(name, (value, value))
                held[name] = (min(low, value), max(high, value))

    def markdown(self, what: str) -> str:
        """The page docs/support.md."""
        operators = sorted({operator for operator, _ in self.tasks})
        lines = [
            "# What is supported, by type",
            "",
            f"Written by {what}: only what ran on the RTL and matched the golden model bit for bit. "
            "The numbers are tasks.",
            "",
            f"| Operator | {' | '.join(TYPES)} |",
            f"| --- |{' --- |' * len(TYPES)}",
        ]
        for operator in operators:
            counts = [str(self.tasks.get((operator, kind), "")) for kind in TYPES]
            lines.append(f"| {operator} | {' | '.join(counts)} |")
        lines += [
            "",
            "## Limits reached",
            "",
            "| Operator | Type | Limits (least .. greatest value that ran) |",
        ]
        lines.append("| --- | --- | --- |")
        for operator in operators:
            for kind in TYPES:
                held = self.limits.get((operator, kind))
                if held:
                    text = ", ".join(f"{name} {low}..{high}" for name, (low, high) in held.items())
                    lines.append(f"| {operator} | {kind} | {text} |")
        return "\n".join(lines) + "\n"
