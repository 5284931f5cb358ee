"""Coverage of the tasks that ran: the values of fields, and the types and limits of operators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rkcosim.regcmd import target_code, unpack_word
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.case import Case, Fact
from rkcosim.verify.conformance.runner import Outcome

QUESTIONS: dict[tuple[str, str, str], str] = {
    ("PC", "INTERRUPT_STATUS", "int_st"): "[HW 13.28]: bits 14 to 16 have no event",
    ("PC", "INTERRUPT_RAW_STATUS", "int_raw_st"): "[HW 13.28]: bits 14 to 16 have no event",
    **{
        ("PC", "TASK_STATUS", name): "[HW 13.12]: meaning of bits 12 to 15; they change while a kick runs"
        for name in ("FIRST_OPERATING", "FIRST_FETCHING", "LAST_OPERATING", "LAST_FETCHING")
    },
    **{
        (block, "CFG_ID_ERROR", name): f"{q}: set by errors only, and there are 8 read ids and 2 write ids"
        for block, q in (("DDMA", "[HW 13.30]"), ("SDMA", "[HW 13.27]"))
        for name in ("RD_RESP_ID", "WR_RESP_ID")
    },
}
"""Fields that cannot be exercised, with the open question of [HW 13] about that field."""

CONSTANT = {("PC", "VERSION"), ("PC", "VERSION_NUM"), ("DDMA", "CFG_STATUS"), ("SDMA", "CFG_STATUS")}
"""Constant registers: they can only be read and compared."""


@dataclass
class Seen:
    """Values of one field: count, minimum, maximum, bits seen as one and as zero."""

    count: int = 0
    low: int = 0
    high: int = 0
    ones: int = 0
    zeros: int = 0

    def add(self, value: int, mask: int) -> None:
        """Add an unsigned value."""
        self.low = min(self.low, value) if self.count else value
        self.high = max(self.high, value)
        self.count += 1
        self.ones |= value
        self.zeros |= ~value & mask


Key = tuple[str, str, str]


@lru_cache(maxsize=1)
def _layout() -> dict[tuple[str, str], tuple[tuple[Key, int, int], ...]]:
    """Return (block, register) -> ((key, lsb, mask) of each field)."""
    return {
        (r.block, r.name): tuple(
            ((r.block, r.name, f.name), f.lsb, (1 << f.width) - 1) for f in r.fields.values()
        )
        for block in registers()
        for r in block
    }


class Coverage:
    """Collects field values; `group` returns how many fields of a group were exercised."""

    def __init__(self) -> None:
        self.seen: dict[Key, Seen] = {key: Seen() for fields in _layout().values() for key, _, _ in fields}
        self.by_group: dict[str, set[Key]] = {}

    def note(self, block: str, register: str, value: int) -> set[Key]:
        """Add a register's value; return the fields that are not zero."""
        live = set()
        for key, lsb, mask in _layout().get((block, register), ()):
            field = value >> lsb & mask
            self.seen[key].add(field, mask)
            if field:
                live.add(key)
        return live

    def add(self, outcome: Outcome) -> None:
        """Add all registers of a case whose tasks ran."""
        live: set[Key] = set()
        if outcome.golden is not None and not outcome.golden.done:  # it ran, and hung as expected
            for task in outcome.case.plan.tasks:
                for offset, (block, value) in task.values(outcome.case.kick.dma_base).items():
                    described = registers().at(offset)
                    live |= self.note(block, described.name if described else "", value)
        for report in outcome.reports:
            for block, values in report.registers.items():
                for register, value in values.items():
                    live |= self.note(block, register, value)
        live |= self._host(outcome.case)
        if outcome.device is not None:
            for path, value in (*outcome.device.registers.items(), *outcome.device.peeked):
                block, _, register = path.rstrip("'").partition(".")
                live |= self.note(block, register, value)
        self.by_group.setdefault(outcome.case.group, set()).update(live)

    def _host(self, case: Case) -> set[Key]:
        """Add registers outside of the groups: those of the PC, pointers, host writes."""
        kick, pc = case.kick, registers()["PC"]
        live = set()
        control = pc["TASK_CON"].encode(
            RESERVED_14=1, TASK_COUNT_CLEAR=1, TASK_PP_EN=kick.pp_en, TASK_NUMBER=kick.tasks
        )
        for name, value in (
            ("BASE_ADDRESS", kick.base | kick.slave),
            ("BASE_ADDRESS", 1),
            ("REGISTER_AMOUNTS", kick.amount),
            ("INTERRUPT_MASK", kick.interrupt_mask),
            ("INTERRUPT_CLEAR", pc["INTERRUPT_CLEAR"].mask),
            ("TASK_CON", control),
            ("TASK_DMA_BASE_ADDR", kick.dma_base),
            ("OPERATION_ENABLE", 1),
            ("OPERATION_ENABLE", 0),
        ):
            live |= self.note("PC", name, value)
        for offset, value in self._words(case):
            register = registers().at(offset)
            if register is not None and not register.shadowed:
                live |= self.note(register.block, register.name, value)
        return live

    @staticmethod
    def _words(case: Case) -> Iterable[tuple[int, int]]:
        yield from case.plan.writes
        for _, words in case.chain.lists:
            for word in words:
                target, value, offset = unpack_word(word)
                if target:
                    enable = registers()["GLOBAL"]["OPERATION_ENABLE"]
                    yield enable.offset if target == target_code("OP_ENABLE") else offset, value

    def exercised(self, key: Key) -> bool:
        """Return whether both values of every bit were seen (for a constant: whether it was read)."""
        seen = self.seen[key]
        if key[:2] in CONSTANT:
            return seen.count > 0
        mask = (1 << registers()[key[0]][key[1]].fields[key[2]].width) - 1
        return seen.ones == seen.zeros == mask

    def missing(self) -> list[Key]:
        """Return the fields with a bit that only had one value."""
        return [key for key in self.seen if not self.exercised(key)]

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a report."""
        return {
            "fields": len(self.seen),
            "exercised": len(self.seen) - len(self.missing()),
            "missing": [".".join(key) for key in self.missing()],
        }

    def markdown(self, what: str) -> str:
        """Return the page docs/results/coverage.md.

        Parameters
        ----------
        what : the command and the number of tasks, for the first line.
        """
        missing = self.missing()
        lines = [
            "# Fields exercised by conformance",
            "",
            f"Written by {what}. Which lines of the RTL run and which bits of its signals move is on "
            "[another page](rtl_coverage.md).",
            "A field counts as exercised when every bit of it was seen as 0 and as 1 in tasks that ran and "
            "were compared (a constant register: when it was read and compared).",
            f"{len(self.seen) - len(missing)} of {len(self.seen)} fields; not exercised: {len(missing)}.",
            "",
        ]
        if missing:
            lines += ["## Not exercised", "", "| Field | Seen | Why |", "| --- | --- | --- |"]
            for key in missing:
                seen = self.seen[key]
                span = f"{seen.low:#x} .. {seen.high:#x}" if seen.count else "never"
                lines.append(f"| {'.'.join(key)} | {span} | {QUESTIONS.get(key, '')} |")
            lines.append("")
        for block in registers():
            lines += [f"## {block.name}", "", "| Register | Field | Bits | Values | Min | Max | Every bit |"]
            lines.append("| --- | --- | --- | --- | --- | --- | --- |")
            for r in block:
                for f in r.fields.values():
                    key = (block.name, r.name, f.name)
                    seen = self.seen[key]
                    bits = f"{f.msb}:{f.lsb}" if f.width > 1 else f"{f.lsb}"
                    low, high = (f"{seen.low:#x}", f"{seen.high:#x}") if seen.count else ("", "")
                    mark = "yes" if self.exercised(key) else "no"
                    lines.append(f"| {r.name} | {f.name} | {bits} | {seen.count} | {low} | {high} | {mark} |")
            lines.append("")
        return "\n".join(lines)


TYPES = ("int4", "int8", "int16", "int32", "fp16", "bf16", "tf32", "fp32")


class Support:
    """Collects facts of tasks that matched."""

    def __init__(self) -> None:
        self.tasks: dict[tuple[str, str], int] = {}
        self.limits: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}

    def add(self, facts: Iterable[Fact]) -> None:
        """Add the facts of a case."""
        for operator, kind, limits in facts:
            key = (operator, kind)
            self.tasks[key] = self.tasks.get(key, 0) + 1
            held = self.limits.setdefault(key, {})
            for name, value in limits.items():
                low, high = held.get(name, (value, value))
                held[name] = (min(low, value), max(high, value))

    def markdown(self, what: str) -> str:
        """Return the page docs/results/support.md."""
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
