"""`rkcosim estimate`: times of a model's layers from the fitted model, what-ifs, and the roofline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim import progress
from cosim.cli.exits import BAD_INPUT, fail, reported, write_json, write_text

if TYPE_CHECKING:
    from cosim.perf.estimator import Estimate
    from cosim.perf.estimator.whatif import Variant

SCHEMA_VERSION = 1
TABLE_WIDTH = 104
PAGE_SECTION = "estimator"


def estimate_command(
    model: Path,
    clock: float,
    cores: int,
    ddr: str | None,
    what_if: bool,
    roofline: Path | None,
    json: Path | None,
    page: Path | None,
) -> None:
    """Estimate, print, and write what was asked for."""
    if not model.is_file():
        fail(f"{model}: no such file", BAD_INPUT)
    with reported():
        from cosim.perf.estimator import estimate_model
        from cosim.perf.estimator.coefficients import said_error, stored_fit, warning
        from cosim.perf.estimator.whatif import memory_at, parse_speed, variants

        if page is not None:
            from cosim.perf.page import read_section

            if page.exists():
                read_section(PAGE_SECTION, page)
        speed = parse_speed(ddr) if ddr else None
        dram = memory_at(clock, speed)
        data = model.read_bytes()
        with progress.step(f"estimating {model.name}"):
            found = estimate_model(data, dram=dram, cores=cores)
        others: list[Variant] = []
        if what_if:
            with progress.step("other memory, clocks, cores and splits"):
                others = list(variants(data, clock, speed, cores, found))
        result = as_json(model.name, found, clock, others)
        result["error"] = stored_fit().errors["held out"]
        result["warning"] = warning()
        print_estimate(result)
        print(said_error())
        if result["warning"]:
            print(f"warning: {result['warning']}")
        if roofline:
            from cosim.report.rooffile import draw

            subtitle = (
                f"estimated, {result['milliseconds']:.3g} ms on {found.cores} "
                f"core{'s' if found.cores > 1 else ''} at {clock:g} MHz"
            )
            write_text(roofline, draw(as_run(result), clock / 1000, subtitle))
            print(f"roofline: {roofline}")
        if json:
            write_json(json, result)
            print(f"JSON: {json}")
        if page:
            from cosim.perf.estimator.page import section
            from cosim.perf.page import write_section

            write_section(PAGE_SECTION, section(result), page)
            print(f"page: {page}")


def as_json(name: str, found: Estimate, clock: float, others: list[Variant]) -> dict[str, Any]:
    """The result in plain values."""
    total = sum(layer.cycles or 0 for layer in found.layers)
    layers = []
    for layer in found.layers:
        members = {
            "name": layer.name,
            "op": layer.op,
            "target": layer.target,
            "tasks": layer.tasks,
            "cycles": layer.cycles,
            "milliseconds": None if layer.cycles is None else layer.cycles / clock / 1000,
            "share": None if layer.cycles is None else round(layer.cycles / max(total, 1), 5),
            "bound": layer.bound,
            "macs": layer.macs,
            "bytes_read": layer.bytes_read,
            "bytes_written": layer.bytes_written,
            "peak": layer.peak,
        }
        layers.append(members)
    return {
        "model": name,
        "schema_version": SCHEMA_VERSION,
        "engine": "estimate",
        "clock_mhz": clock,
        "cores": found.cores,
        "dram": {
            "peak_bytes_per_cycle": found.dram.peak_bytes_per_cycle,
            "gigabytes_per_second": found.dram.peak_bytes_per_cycle * clock / 1000,
            "read_latency": found.dram.read_latency,
            "write_latency": found.dram.write_latency,
        },
        "cycles": found.cycles,
        "milliseconds": found.cycles / clock / 1000,
        "jobs": len(found.jobs),
        "macs": sum(layer.macs for layer in found.layers),
        "layers": layers,
        "host_layers": found.host,
        "what_if": [variant.__dict__ for variant in others],
    }


def as_run(result: dict[str, Any]) -> Any:
    """What the report's charts draw."""
    from cosim.report.data import from_json

    run = from_json(result)
    for row in run.rows:
        row.cores = list(range(result["cores"])) if row.peak else []
    return run


def print_estimate(result: dict[str, Any]) -> None:
    """Tables for people."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.width = max(console.width, TABLE_WIDTH)
    table = Table(title=f"{result['model']}: estimate of one inference", title_justify="left", box=None)
    for heading in ("#", "layer", "op", "tasks", "cycles", "ms", "share", "bound by", "MACs", "KB"):
        left = heading in ("layer", "op", "bound by")
        table.add_column(heading, justify="left" if left else "right")
    for number, row in enumerate(result["layers"]):
        if row["cycles"] is None:
            continue
        name = row["name"]
        table.add_row(
            str(number),
            name if len(name) < 29 else f"…{name[-27:]}",
            row["op"],
            str(row["tasks"]),
            f"{row['cycles']:,}",
            f"{row['milliseconds']:.4f}",
            f"{row['share']:.1%}",
            row["bound"],
            f"{row['macs']:,}",
            f"{(row['bytes_read'] + row['bytes_written']) / 1024:.1f}",
        )
    console.print(table)
    cores = f"{result['cores']} core{'s' if result['cores'] > 1 else ''}"
    console.print(
        f"{result['cycles']:,} cycles = {result['milliseconds']:.3f} ms on {cores} at "
        f"{result['clock_mhz']:g} MHz, DRAM {result['dram']['gigabytes_per_second']:.4g} GB/s, "
        f"{result['jobs']} job{'s' if result['jobs'] != 1 else ''}"
    )
    if result["host_layers"]:
        console.print(f"on the host, not counted: {', '.join(result['host_layers'])}")
    if not result["what_if"]:
        return
    table = Table(title="what if", title_justify="left", box=None)
    for heading in ("", "", "cycles", "ms", "time", ""):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_row("as above", "", f"{result['cycles']:,}", f"{result['milliseconds']:.3f}", "100.0%", "")
    for row in result["what_if"]:
        table.add_row(
            row["group"],
            row["name"],
            f"{row['cycles']:,}",
            f"{row['milliseconds']:.3f}",
            f"{row['milliseconds'] / result['milliseconds']:.1%}",
            row["note"],
        )
    console.print(table)
