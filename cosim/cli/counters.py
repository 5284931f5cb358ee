"""`rkcosim counters`: the performance counters of a model's run, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.cli.exits import BAD_INPUT, MISMATCH, OK, fail, reported, write_json

if TYPE_CHECKING:
    from cosim.engines.library import DramConfig

TABLE_WIDTH = 104
"""Columns; narrower terminals wrap lines rather than lose text."""


def counters_command(
    model: Path,
    inputs: list[Path],
    limit: int | None,
    seed: int,
    engine: str | None,
    exact: bool,
    cores: int,
    json: Path | None,
    page: Path | None,
    dram: DramConfig | None = None,
) -> None:
    """Run, print, write; exit code 1 if the states of a block do not add up to the cycles."""
    if not model.is_file():
        fail(f"{model}: no such file", BAD_INPUT)
    with reported():
        from rich.console import Console

        from cosim.cli.inputs import load_batch
        from cosim.perf.counted import count_model, markdown
        from cosim.perf.page import read_section, write_section
        from sw.compiler import compile_model

        if page is not None and dram is not None:
            raise ValueError("--page is for the default memory's figures: leave out --dram, or --page")
        if page is not None and page.exists():
            read_section("counters", page)  # a page that cannot be written is known before the work
        console = Console(highlight=False)
        console.width = max(console.width, TABLE_WIDTH)
        # Bad input is reported before any build.
        infos = list(compile_model(model.read_bytes()).inputs)
        batch = load_batch(inputs, infos, limit).items if inputs else None
        run = count_model(model, batch, engine=engine, exact=exact, cores=cores, dram=dram, seed=seed)
        print_counters(console, run)
        if json:
            write_json(json, run.as_json())
            console.print(f"JSON: {json}")
        if page is not None:
            write_section("counters", markdown(run), page)
            console.print(f"page: {page}")
        raise SystemExit(MISMATCH if any(core.unaccounted() for core in run.cores) else OK)


def print_counters(console: Any, run: Any) -> None:
    """One table of blocks for each core, and lines for what is not cycles."""
    from rich.table import Table

    from cosim.engines.settings import timing_line
    from cosim.perf.counted import shares

    for number, core in enumerate(run.cores):
        title = f"{run.model}, core {number}: {core.cycles:,} cycles counted"
        table = Table(title=title, title_justify="left", box=None)
        for heading in ("block", "idle", "busy", "waits", "for"):
            table.add_column(heading, justify="left" if heading in ("block", "for") else "right")
        for block, idle, busy, waits in shares(core):
            reasons = ", ".join(f"{state} {share:.1%}" for state, share in waits)
            table.add_row(block, f"{idle:.1%}", f"{busy:.1%}", f"{1 - idle - busy:.1%}", reasons)
        console.print(table)
        _line(console, "bytes", core.bytes)
        _line(console, "MACs", core.macs)
        _line(console, "most at once", core.levels)
        _line(console, "tasks", core.tasks)
        for block, missing in core.unaccounted().items():
            console.print(f"{block}: {missing:,} cycles are in no state")
    console.print(
        f"{run.inferences} inferences, {run.cycles:,} cycles, {run.macs:,} MACs of the layers; "
        f"{run.engine}, {run.cell} cell"
    )
    if timing := timing_line(run.dram):
        console.print(timing)


def _line(console: Any, what: str, counts: Any) -> None:
    console.print(f"{what}: " + (", ".join(f"{name} {n:,}" for name, n in counts.items() if n) or "none"))
