"""`rkcosim run`: a model on the simulated NPU, with a table per layer and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.cli.exits import BAD_INPUT, MISMATCH, OK, fail, reported, write_json

if TYPE_CHECKING:
    from cosim.cli.shards_app import Shards
    from cosim.cli.snapshots import SnapshotOptions
    from cosim.engines.library import DramConfig
    from waves.spec import TraceSpec

TABLE_WIDTH = 104
"""Columns of the layer table; narrower terminals wrap its lines rather than lose text."""

DEFAULTS = {"engine": None, "exact": False, "check": False, "seed": 0, "cores": 1, "dram": None}
"""Options that decide what a run does, as they are where nothing is given."""


def run_command(
    model: Path,
    inputs: list[Path],
    engine: str | None,
    exact: bool,
    check: bool,
    json: Path | None,
    limit: int | None,
    seed: int,
    trace: TraceSpec | None,
    cores: int = 1,
    csv: Path | None = None,
    html: Path | None = None,
    shards: Shards | None = None,
    snapshot: SnapshotOptions | None = None,
    dram: DramConfig | None = None,
) -> None:
    """Run, print, write JSON, and end with the exit code of DESIGN 11."""
    if not model.is_file():
        fail(f"{model}: no such file", BAD_INPUT)
    with reported():
        from rich.console import Console

        from cosim.cli.inputs import load_batch
        from cosim.cli.report import keeping, write_page
        from cosim.cli.snapshots import Run, SnapshotOptions
        from cosim.models.run import run_model

        console = Console(highlight=False)
        console.width = max(console.width, TABLE_WIDTH)
        given: dict[str, Any] = {"engine": engine, "exact": exact, "check": check, "seed": seed}
        given |= {"cores": cores, "dram": dram}
        saving = Run(snapshot or SnapshotOptions(), "run", model, given, DEFAULTS, trace)
        values = dict(saving.values)
        batch = saving.batch(load_batch(inputs, _inputs(model), limit) if inputs else None)
        labels = batch.labels if batch else None
        count = len(batch.items) if batch else 1

        def each(number: int, outputs: list[Any], good: bool | None) -> None:
            said = "" if good is None else ("  bit for bit" if good else "  MISMATCH")
            guess = int(outputs[0].argmax())
            truth = f"  truth {labels[number]}" if labels else ""
            mark = " " if labels is None or labels[number] == guess else "*"
            console.print(f"[{number + 1:3}/{count}] label {guess}{truth} {mark}{said}")

        options: dict[str, Any] = {"check": values.pop("check"), "trace": trace}
        run = run_model
        if shards is not None:
            from cosim.cli.shards import sharded

            if saving:
                raise ValueError(
                    "--shards simulates in several engines at once, so it saves no snapshot and goes on from "
                    "none; leave out --shards, or --save and --resume"
                )
            run, options = sharded(shards, trace)
        with keeping(html if shards is None else None) as kept, saving.running(json):
            result = run(
                model,
                batch.items if batch else None,
                **values,
                labels=labels,
                reference=True,
                each=each,
                **options,
            )
        print_report(console, result)
        if shards is not None:
            from cosim.cli.shards import print_shards

            print_shards(console, result)
        if csv:
            write_csv(csv, result)
            console.print(f"CSV: {csv}")
        if json:
            write_json(json, result.as_json())
            console.print(f"JSON: {json}")
        if html:
            write_page(html, result.as_json(), kept.log)
        saving.finish()
        raise SystemExit(MISMATCH if result.verdict["match"] is False else OK)


def print_report(console: Any, result: Any) -> None:
    """Print the table of layers and the summary."""
    from rich.table import Table

    from cosim.engines.settings import timing_line

    table = Table(title=f"{result.model}: layers of one inference", title_justify="left", box=None)
    for heading in (
        "layer",
        "op",
        "on",
        "tasks",
        "cycles",
        "formula",
        "MACs",
        "MAC use",
        "array busy",
        "KB",
        "bound by",
    ):
        table.add_column(heading, justify="left" if heading in ("layer", "op", "on") else "right")
    for row in result.layers:
        table.add_row(
            row.name if len(row.name) < 29 else f"…{row.name[-27:]}",
            row.op,
            row.target,
            str(row.tasks),
            "-" if row.cycles is None else f"{row.cycles:,}",
            f"{row.formula_cycles:,}",
            f"{row.macs:,}",
            "-" if row.utilisation is None else f"{row.utilisation:.1%}",
            "-" if row.mac_busy is None else f"{row.mac_busy:.1%}",
            f"{(row.bytes_read + row.bytes_written) / 1024:.1f}",
            row.bound,
        )
    console.print(table)
    for output in result.outputs:
        beside = f", {result.reference} {output['reference_top1']}" if "reference_top1" in output else ""
        console.print(f"output {output['name']} {output['shape']}, top-1 {output['top1']}{beside}")
    per = result.cycles // result.inferences
    console.print(
        f"{result.inferences} inferences, {result.cycles:,} cycles ({per:,} each, {per / 1e6:.3f} ms "
        f"at 1 GHz); {result.engine}, {result.cell} cell: {result.cycles_per_second:,.0f} cycles/s"
    )
    if timing := timing_line(result.dram):
        console.print(timing)
    if result.memory:
        memory = result.memory
        console.print(
            f"memory: weights {memory['weights']:,}, commands {memory['commands']:,}, activations "
            f"{memory['activations']:,} bytes (sharing {memory['activations_shared']:,}, not sharing "
            f"{memory['activations_separate']:,}); the host computed {result.host_share:.2%} of all elements"
        )
    if result.top1 is not None:
        beside = (
            f", {result.reference} {result.reference_top1:.1%}" if result.reference_top1 is not None else ""
        )
        console.print(f"top-1: {result.top1:.1%}{beside}")
    if result.reference_agrees is not None:
        agrees = f"{result.reference_agrees} of {result.inferences}"
        console.print(f"same label as {result.reference}: {agrees}")
    match = result.verdict["match"]
    if match is None:
        console.print("not checked (--check compares with the golden models)")
    elif match:
        gone = result.verdict.get("overwritten", 0)
        what = f"every tensor but {gone} overwritten ones" if gone else "every tensor"
        console.print(f"MATCH: {' = '.join(result.verdict['levels'])}, {what}, bit for bit")
    else:
        console.print(
            f"MISMATCH at inference {result.verdict['inference']}: {result.verdict['first_difference']}"
        )


def write_csv(path: Path, result: Any) -> None:
    """Write one line per layer, with what bounds it."""
    import csv

    from waves.whole_file import whole_file

    with whole_file(path) as part, part.open("w", newline="") as file:
        rows = [row.flat() for row in result.layers]
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), restval=0)
        writer.writeheader()
        writer.writerows(rows)


def _inputs(model: Path) -> list[Any]:
    """Inputs of a model, from the compiler, so that bad input is reported before any build."""
    from sw.compiler import compile_model

    return list(compile_model(model.read_bytes()).inputs)
