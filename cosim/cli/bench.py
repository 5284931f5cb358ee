"""`rkcosim bench`: measure, print tables, write JSON and the page's sections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.cli.exits import MISMATCH, OK, write_json

if TYPE_CHECKING:
    from cosim.engines.library import DramConfig

TABLE_WIDTH = 104


def bench_command(
    engines: str,
    workloads: str,
    seconds: float,
    layers: bool,
    check: bool,
    models: list[Path],
    json: Path | None,
    page: Path | None,
    dram: DramConfig | None = None,
) -> None:
    """One of the three tables; exit 1 where a check found a difference.

    Raises
    ------
    ValueError
        for names that do not exist, options that do not go together, or a page without the section.
    """
    if layers and models:
        raise ValueError("--layers and --model are two commands: give one of them")
    if (layers or models) and (engines or workloads):
        raise ValueError("--engines and --workloads have no effect with --layers or --model")
    if check and not layers:
        raise ValueError("--check goes with --layers (a --model is always checked)")
    if page is not None and dram is not None:
        raise ValueError("--page is for the default memory's figures: leave out --dram, or --page")
    from cosim.perf.page import check_section, write_section

    section = "layers" if layers else "networks" if models else "bench"
    if page is not None:
        check_section(section, page)
    if layers:
        code, document, text = _layers(check)
    elif models:
        code, document, text = _models(models, dram)
    else:
        code, document, text = _engines(_names(engines), _names(workloads), seconds)
    if json is not None:
        write_json(json, document)
    if page is not None:
        write_section(section, text, page)
        print(f"{page}: section {section}")
    raise SystemExit(code)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    return console


def _table(title: str, heads: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left")
    return table


def _engines(engines: list[str], workloads: list[str], seconds: float) -> tuple[int, dict[str, Any], str]:
    from cosim.perf.bench.engines import DEFAULT_ENGINES
    from cosim.perf.bench.jobs import JOBS
    from cosim.perf.bench.rows import REFERENCES, machine_line
    from cosim.perf.bench.run import run_bench

    found = run_bench(engines or DEFAULT_ENGINES, workloads or list(JOBS), seconds=seconds)
    heads = ("engine", "workload", "cycles", "", "cycles/s", "array busy", *(f"x {n}" for n in REFERENCES))
    table = _table("Simulated cycles a second of processor time, one thread", heads)
    for row in found.rows:
        table.add_row(
            row.engine,
            row.workload,
            f"{row.cycles:,}",
            "" if row.complete else "cut",
            f"{row.cycles_per_second:,.0f}",
            "" if row.mac_busy is None else f"{row.mac_busy:.1%}",
            *(f"{row.ratios[name]:,.4g}" if name in row.ratios else "-" for name in REFERENCES),
        )
    console = _console()
    console.print(table)
    for engine in found.engines:
        peak = f", peak memory {engine.peak_bytes / 2**20:,.0f} MiB" if engine.peak_bytes else ""
        console.print(f"{engine.name}: {engine.title} ({engine.flags}){peak}")
    for thread in found.threads:
        rate = f"{thread.core_cycles_per_second:,.0f} core cycles/s by the clock, x {thread.speedup}"
        console.print(f"three busy cores, threads {thread.threads}: {rate}")
    for target in found.targets():
        met = "reached" if target["met"] else "MISSED"
        console.print(f"target {target['what']}: {target['wanted']:,}, measured {target['is']:,}: {met}")
    console.print(f"on {machine_line(found.machine)}")
    return OK, found.as_json(), found.markdown()


def _layers(check: bool) -> tuple[int, dict[str, Any], str]:
    from cosim.perf.bench import layers

    table = _table(
        "Cycles of layers beside the formula", ("layer", "cycles", "npu", "ddr", "ratio", "busy", "")
    )

    rows = layers.measure_layers(check=check)
    for row in rows:
        found = row.measured
        verdict = {None: "", True: "bytes equal", False: "BYTES DIFFER"}[found.match]
        table.add_row(
            found.name,
            f"{found.cycles:,}",
            f"{found.formula_npu:,}",
            f"{found.formula_ddr:,}",
            f"{found.ratio:.3f}",
            f"{found.mac_busy:.1%}",
            verdict if row.good or not verdict else f"{verdict}, target missed",
        )
    console = _console()
    console.print(table)
    for row in rows:
        if row.why:
            console.print(f"{row.measured.name}: {row.why}")
    code = MISMATCH if any(row.measured.match is False for row in rows) else OK
    return code, layers.document(rows), layers.markdown(rows)


def _models(paths: list[Path], dram: DramConfig | None) -> tuple[int, dict[str, Any], str]:
    from cosim.engines.settings import timing_line
    from cosim.perf.bench import whole

    runs = whole.run_models(paths, dram)
    table = _table("Whole models on the default engine, checked, one core, processor time", whole.HEADS)
    for run in runs:
        table.add_row(*whole.cells(run))
    _console().print(table)
    if timing := timing_line(dram):
        print(timing)
    code = OK if all(run.match for run in runs) else MISMATCH
    return code, whole.document(runs, dram), whole.markdown(runs)
