"""Results of a bench, as rows, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rkcosim.measure.perf.bench.engines import BOUND, BOUND_CYCLES, BOUND_FLAGS, ENGINES
from rkcosim.measure.perf.bench.jobs import CORES, JOBS, Pass, ThreadRow
from rkcosim.measure.perf.bench.machine import machine_line
from rkcosim.measure.perf.page import table

SCHEMA_VERSION = 1
BUSY_TARGET = 1_000_000
"""Cycles per second with the array busy that the default engine should reach."""

PLAIN_TARGET = 5.0
"""Speed relative to plain Verilog that it should reach."""

REFERENCES = ("plain", BOUND, "amaranth")
"""Engines that others are compared with; the bound only if the array is busy."""


@dataclass(frozen=True)
class BenchRow:
    """One workload in one engine.

    Members
    -------
    cycles : cycles of one pass over the work, or of its first part if only that was run.
    complete : whether a pass was run to its end; complete passes have the same cycles in all engines.
    passes : number of passes.
    seconds : processor time of all passes.
    cycles_per_second : speed of the best pass.
    mac_busy : share of the cycles in which the array worked.
    jump_cycles_per_second : for the workload idle, the speed if cores may sleep and the clock jumps.
    ratios : speed relative to the reference engines in the same workload, by name, as far as they were run.
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
    """An engine: its description, its flags, and the peak memory of its process in bytes."""

    name: str
    title: str
    flags: str
    peak_bytes: int | None = None


def row_of(engine: str, workload: str, passes: Sequence[Pass], jump: float | None = None) -> BenchRow:
    """Summarise passes over a workload.

    Raises
    ------
    RuntimeError
        If complete passes differ in their cycles, or nothing was timed.
    """
    whole = {one.cycles for one in passes if one.complete}
    if len(whole) > 1:
        raise RuntimeError(f"{engine}, {workload}: passes have different cycles: {sorted(whole)}")
    cycles, seconds = sum(one.cycles for one in passes), sum(one.seconds for one in passes)
    if not cycles or not seconds:
        raise RuntimeError(f"{engine}, {workload}: nothing was timed")
    best = max(one.cycles / one.seconds for one in passes if one.seconds)
    return BenchRow(
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


def bound_row(rate: float) -> BenchRow:
    """Return the row of the program that only does the multiply-accumulates."""
    cycles = BOUND_CYCLES
    return BenchRow(BOUND, "busy", cycles, True, 1, round(cycles / rate, 3), round(rate, 1), 1.0)


def with_ratios(rows: Sequence[BenchRow]) -> list[BenchRow]:
    """Return the rows with their ratios to the reference engines."""
    rates = {(row.engine, row.workload): row.cycles_per_second for row in rows}
    found = []
    for row in rows:
        ratios = {
            name: float(f"{row.cycles_per_second / rates[name, row.workload]:.4g}")
            for name in REFERENCES
            if name != row.engine and (name, row.workload) in rates
        }
        found.append(replace(row, ratios=ratios))
    return found


@dataclass(frozen=True)
class Bench:
    """Result of one run of `rkcosim bench`."""

    machine: dict[str, str | int]
    engines: list[EngineFacts]
    rows: list[BenchRow]
    threads: list[ThreadRow] = field(default_factory=list)

    def row(self, engine: str, workload: str) -> BenchRow | None:
        """Return the row of an engine and a workload, if it was measured."""
        return next((r for r in self.rows if (r.engine, r.workload) == (engine, workload)), None)

    def targets(self) -> list[dict[str, Any]]:
        """Return targets and results of the default engine, as far as they were measured."""
        busy = self.row("verilator", "busy")
        if busy is None:
            return []
        found = [_target("busy cycles a second", BUSY_TARGET, busy.cycles_per_second)]
        if "plain" in busy.ratios:
            found.append(_target("times plain Verilog, array busy", PLAIN_TARGET, busy.ratios["plain"]))
        return found

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        plain = asdict(self)
        threads = plain.pop("threads")
        head = {"schema_version": SCHEMA_VERSION, "command": "bench"}
        return {**head, **plain, "targets": self.targets(), "threads": threads}

    def markdown(self) -> str:
        """Return the section "bench" of docs/results/performance.md."""
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
                "- Idle cores are by default not evaluated, and the clock jumps to the next event: "
                f"{jump:.1e} idle cycles a second."
            )
        if len(self.threads) > 1:
            times = ", ".join(f"{row.speedup:.2f} in {row.threads}" for row in self.threads[1:])
            rate = f"{self.threads[0].core_cycles_per_second:,.0f} core cycles a second of wall-clock time"
            lines.append(f"- {CORES} busy cores: {rate} in one thread, times {times}.")
        lines.append(f"- Measured on {machine_line(self.machine)}.")
        return "\n".join(lines)

    def _rate_table(self) -> list[str]:
        names = [name for name in JOBS if any(row.workload == name for row in self.rows)]
        rows = []
        for engine in self.engines:
            found = [self.row(engine.name, name) for name in names]
            rows.append([engine.title, *(f"{row.cycles_per_second:,.0f}" if row else "" for row in found)])
        return table(["cycles a second", *names], rows)

    def _ratio_table(self) -> list[str]:
        first = self.engines[0].name if self.engines else ""
        rows = [row for row in self.rows if row.engine == first and row.ratios]
        names = [name for name in REFERENCES if any(name in row.ratios for row in rows)]
        cells = [
            [
                f"to {title_of(name)}",
                *(f"{row.ratios[name]:,.4g}" if name in row.ratios else "" for row in rows),
            ]
            for name in names
        ]
        return table([f"ratios of {first}", *(row.workload for row in rows)], cells) if rows else []

    def _engine_table(self) -> list[str]:
        peaks = [f"{one.peak_bytes / 2**20:,.0f} MiB" if one.peak_bytes else "" for one in self.engines]
        rows = [(one.name, one.flags, peak) for one, peak in zip(self.engines, peaks, strict=True)]
        return table(["engine", "built with", "peak memory"], rows)


def _target(what: str, wanted: float, found: float) -> dict[str, Any]:
    return {"what": what, "wanted": wanted, "is": found, "met": found >= wanted}


def title_of(name: str) -> str:
    """Description of an engine of the bench."""
    return "the bound, the multiply-accumulates alone" if name == BOUND else ENGINES[name].title


def facts_of(name: str, peak: int | None = None) -> EngineFacts:
    """Return the facts of an engine, with the peak memory of its process."""
    flags = " ".join(BOUND_FLAGS) if name == BOUND else ENGINES[name].flags
    return EngineFacts(name, title_of(name), flags, peak)
