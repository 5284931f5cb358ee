"""What a bench found, as rows, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cosim.perf.bench.engines import BOUND, BOUND_CYCLES, BOUND_FLAGS, ENGINES
from cosim.perf.bench.jobs import JOBS, Pass
from cosim.perf.bench.threads import CORES, ThreadRow

SCHEMA_VERSION = 1
BUSY_TARGET = 1_000_000
"""Cycles a second with the array busy that the default engine is to reach."""

PLAIN_TARGET = 5.0
"""How many times as fast as plain Verilog it is to be."""

REFERENCES = ("plain", BOUND, "amaranth")
"""Engines that others are compared with; the bound only where the array is busy."""


@dataclass(frozen=True)
class Row:
    """One workload in one engine.

    Members
    -------
    cycles : of one pass over the work, or of its first part where that is all that was run.
    complete : whether a pass was run to its end; the cycles of complete passes are equal in all engines.
    passes : how many were run.
    seconds : processor time of all passes.
    cycles_per_second : of the best pass.
    mac_busy : share of the cycles in which the array worked.
    jump_cycles_per_second : of the workload idle, where the cores may sleep and the clock jumps.
    ratios : to the reference engines in the same workload, by name; those that were not run are missing.
    """

    engine: str
    workload: str
    cycles: int
    complete: bool
    passes: int
    seconds: float
    cycles_per_second: float
    mac_busy: float | None = None
    jump_cycles_per_second: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineFacts:
    """An engine: what it is, its flags, and the most memory that its process took (bytes)."""

    name: str
    title: str
    flags: str
    peak_bytes: int | None = None


def row_of(engine: str, workload: str, passes: Sequence[Pass], jump: float | None = None) -> Row:
    """Sum up passes over a workload.

    Raises
    ------
    RuntimeError
        when complete passes differ in their cycles, or nothing was timed.
    """
    whole = {one.cycles for one in passes if one.complete}
    if len(whole) > 1:
        raise RuntimeError(f"{engine}, {workload}: passes of {sorted(whole)} cycles")
    cycles, seconds = sum(one.cycles for one in passes), sum(one.seconds for one in passes)
    if not cycles or not seconds:
        raise RuntimeError(f"{engine}, {workload}: nothing was timed")
    best = max(one.cycles / one.seconds for one in passes if one.seconds)
    return Row(
        engine,
        workload,
        whole.pop() if whole else cycles,
        any(one.complete for one in passes),
        len(passes),
        round(seconds, 3),
        round(best, 1),
        round(sum(one.slots for one in passes) / cycles, 4),
        round(jump) if jump is not None else None,
    )


def bound_row(rate: float) -> Row:
    """The loop that does nothing but the multiply-accumulates, as a row."""
    cycles = BOUND_CYCLES
    return Row(BOUND, "busy", cycles, True, 1, round(cycles / rate, 3), round(rate, 1), 1.0)


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """The rows with their ratios to the reference engines."""
    rates = {(row.engine, row.workload): row.cycles_per_second for row in rows}
    found = []
    for row in rows:
        ratios = {
            name: _digits(row.cycles_per_second / rates[name, row.workload])
            for name in REFERENCES
            if name != row.engine and (name, row.workload) in rates
        }
        found.append(Row(**{**asdict(row), "ratios": ratios}))
    return found


def _digits(value: float, count: int = 4) -> float:
    return float(f"{value:.{count}g}")


@dataclass(frozen=True)
class Bench:
    """Everything that one run of `rkcosim bench` found."""

    machine: dict[str, str | int]
    engines: list[EngineFacts]
    rows: list[Row]
    threads: list[ThreadRow] = field(default_factory=list)

    def row(self, engine: str, workload: str) -> Row | None:
        """The row of an engine and a workload, if it was measured."""
        return next((r for r in self.rows if (r.engine, r.workload) == (engine, workload)), None)

    def targets(self) -> list[dict[str, Any]]:
        """What the default engine is to reach beside what it does, as far as it was measured."""
        busy = self.row("verilator", "busy")
        if busy is None:
            return []
        found = [_target("busy cycles a second", BUSY_TARGET, busy.cycles_per_second)]
        if "plain" in busy.ratios:
            found.append(_target("times plain Verilog, array busy", PLAIN_TARGET, busy.ratios["plain"]))
        return found

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "command": "bench",
            "machine": self.machine,
            "engines": [asdict(engine) for engine in self.engines],
            "rows": [asdict(row) for row in self.rows],
            "targets": self.targets(),
            "threads": [asdict(row) for row in self.threads],
        }

    def markdown(self) -> str:
        """The section "bench" of docs/performance.md."""
        lines = [*self._rate_table(), "", *self._ratio_table(), "", *self._engine_table(), ""]
        for target in self.targets():
            met = "reached" if target["met"] else "missed"
            wanted, found = (f"{target[key]:,.7g}" for key in ("wanted", "is"))
            lines.append(f"- Target, {target['what']}: {wanted}; measured {found}: {met}.")
        cut = [row for row in self.rows if not row.complete]
        if cut:
            parts = ", ".join(f"{row.engine} {row.workload} {row.cycles:,}" for row in cut)
            lines.append(f"- Only the first cycles of the work were run in: {parts}.")
        jump = next((r.jump_cycles_per_second for r in self.rows if r.jump_cycles_per_second), None)
        if jump:
            lines.append(
                "- Idle cores are not evaluated unless told to, and the clock jumps to the next event: "
                f"{jump:.1e} idle cycles a second."
            )
        if len(self.threads) > 1:
            times = ", ".join(f"{row.speedup:.2f} in {row.threads}" for row in self.threads[1:])
            rate = f"{self.threads[0].core_cycles_per_second:,.0f} core cycles a second by the clock"
            lines.append(f"- {CORES} busy cores: {rate} in one thread, times {times}.")
        lines.append(f"- Measured on {machine_line(self.machine)}.")
        return "\n".join(lines)

    def _workloads(self) -> list[str]:
        return [name for name in JOBS if any(row.workload == name for row in self.rows)]

    def _rate_table(self) -> list[str]:
        names = self._workloads()
        lines = [
            f"| cycles a second | {' | '.join(names)} |",
            f"| --- | {' | '.join('---' for _ in names)} |",
        ]
        for engine in self.engines:
            cells = [self.row(engine.name, name) for name in names]
            rates = [f"{cell.cycles_per_second:,.0f}" if cell else "" for cell in cells]
            lines.append(f"| {engine.title} | {' | '.join(rates)} |")
        return lines

    def _ratio_table(self) -> list[str]:
        first = self.engines[0].name if self.engines else ""
        rows = [row for row in self.rows if row.engine == first and row.ratios]
        if not rows:
            return []
        lines = [f"| ratios of {first} | {' | '.join(row.workload for row in rows)} |"]
        lines.append("| --- " * (len(rows) + 1) + "|")
        for name in REFERENCES:
            if any(name in row.ratios for row in rows):
                cells = [f"{row.ratios[name]:,.4g}" if name in row.ratios else "" for row in rows]
                lines.append(f"| to {title_of(name)} | {' | '.join(cells)} |")
        return lines

    def _engine_table(self) -> list[str]:
        lines = ["| engine | built with | peak memory |", "| --- | --- | --- |"]
        for engine in self.engines:
            peak = f"{engine.peak_bytes / 2**20:,.0f} MiB" if engine.peak_bytes else ""
            lines.append(f"| {engine.name} | {engine.flags} | {peak} |")
        return lines


def _target(what: str, wanted: float, found: float) -> dict[str, Any]:
    return {"what": what, "wanted": wanted, "is": found, "met": found >= wanted}


def title_of(name: str) -> str:
    """What an engine of the bench is, for people."""
    return "the bound, the multiply-accumulates alone" if name == BOUND else ENGINES[name].title


def facts_of(name: str, peak: int | None = None) -> EngineFacts:
    """Facts of an engine, with the peak memory of its process."""
    flags = " ".join(BOUND_FLAGS) if name == BOUND else ENGINES[name].flags
    return EngineFacts(name, title_of(name), flags, peak)


def machine_line(machine: dict[str, str | int]) -> str:
    """The machine in one line."""
    skip = ("cpu", "processors", "system")
    tools = {name: str(value) for name, value in machine.items() if name not in skip}
    versions = [value if name in value.lower() else f"{name} {value}" for name, value in tools.items()]
    place = f"{machine['cpu']}, {machine['processors']} processors, {machine['system']}"
    return f"{place}; {', '.join(versions)}"
