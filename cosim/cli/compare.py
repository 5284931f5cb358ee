"""`rkcosim compare`: every layer beside another runtime's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, get_args

from cosim.cli.exits import BAD_INPUT, MISMATCH, OK, fail, reported, write_json

TABLE_WIDTH = 104


def compare_command(
    model: Path, reference: str | None, inputs: list[Path], limit: int | None, seed: int, json: Path | None
) -> None:
    """Compare, print, write JSON; exit 1 where a layer is past its bound or a class differs."""
    if not model.is_file():
        fail(f"{model}: no such file", BAD_INPUT)
    with reported():
        from rich.console import Console

        from cosim.cli.inputs import load_batch
        from cosim.models.compare import compare
        from cosim.models.references import ReferenceName, ReferenceProblem
        from sw.compiler import compile_model

        if reference is not None and reference not in get_args(ReferenceName):
            fail(f"--reference {reference}: use one of {', '.join(get_args(ReferenceName))}", BAD_INPUT)
        batch = load_batch(inputs, compile_model(model.read_bytes()).inputs, limit).items if inputs else None
        try:
            found = compare(model, batch, reference=cast("ReferenceName | None", reference), seed=seed)
        except ReferenceProblem as error:
            fail(str(error), BAD_INPUT)
        console = Console(highlight=False)
        console.width = max(console.width, TABLE_WIDTH)
        print_comparison(console, found)
        if json:
            write_json(json, found.as_json())
            console.print(f"JSON: {json}")
        raise SystemExit(OK if found.match else MISMATCH)


def print_comparison(console: Any, found: Any) -> None:
    """Print a table of layers and the outputs."""
    from rich.table import Table

    title = (
        f"{found.model} beside {found.reference}: layers fed with its inputs, {found.inferences} inferences"
    )
    table = Table(title=title, title_justify="left", box=None)
    for heading in ("layer", "op", "elements", "differ", "share", "worst", "bound", "difference: elements"):
        table.add_column(heading, justify="left" if heading in ("layer", "op") else "right")
    for row in found.layers:
        shown = sorted(((k, v) for k, v in row.histogram.items() if k), key=lambda pair: abs(pair[0]))[:6]
        table.add_row(
            row.name[-40:],
            row.op,
            f"{row.elements:,}",
            f"{row.differing:,}",
            f"{row.differing / row.elements:.3%}",
            f"{row.worst}" if row.good else f"{row.worst} !",
            str(row.bound),
            ", ".join(f"{k:+}: {v:,}" for k, v in sorted(shown)),
        )
    console.print(table)
    for name in found.skipped:
        console.print(f"not compared: {name} (the reference does not keep its result)")
    for output in found.outputs:
        tie = " (a tie there)" if output.tie else ""
        console.print(
            f"inference {output.inference}, output {output.name}: top-1 {output.top1}, reference "
            f"{output.reference_top1}{tie}; run through, {output.differing} elements differ, "
            f"by {output.worst:.3g} steps at most"
        )
    total, differing = sum(r.elements for r in found.layers), sum(r.differing for r in found.layers)
    verdict = (
        "every layer within its bound, the same classes" if found.match else "PAST A BOUND, or another class"
    )
    console.print(f"{differing:,} of {total:,} elements differ ({differing / total:.4%}); {verdict}")
