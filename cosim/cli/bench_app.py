"""Declaration of `rkcosim bench`: how fast the engines are, and the table of layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosim.cli.app import App, examples
from cosim.cli.options import DramOption, JsonOption, PageOption

ENGINES = ("verilator", "verilator-exact", "plain", "cxxrtl", "cxxrtl-exact", "amaranth", "bound")
WORKLOADS = ("busy", "dma", "idle", "network")
"""As in `cosim.perf.bench`, which is slow to import."""


def _engines(incomplete: str) -> list[str]:
    return [name for name in ENGINES if name.startswith(incomplete)]


def _workloads(incomplete: str) -> list[str]:
    return [name for name in WORKLOADS if name.startswith(incomplete)]


def declare(app: App) -> None:
    """Add the command to an application."""
    app.command(
        epilog=examples(
            "rkcosim bench --json bench.json",
            "rkcosim bench --engines verilator,plain,bound --workloads busy,dma --seconds 5",
            "rkcosim bench --layers --check --page docs/performance.md",
            "rkcosim bench --model build/networks/resnet50_int8.onnx",
        )
    )(bench)


def bench(
    engines: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            autocompletion=_engines,
            help=f"Engines, with commas: {', '.join(ENGINES)}; default: all but cxxrtl-exact, which takes "
            "very long to build.",
        ),
    ] = "",
    workloads: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            autocompletion=_workloads,
            help=f"Workloads, with commas: {', '.join(WORKLOADS)}; default: all.",
        ),
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=0.01, help="Processor time for each engine and workload.")
    ] = 3.0,
    layers: Annotated[
        bool, typer.Option("--layers", help="Instead: cycles of twelve layers beside the formula's.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="With --layers: compare every byte with the golden models.")
    ] = False,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Instead: time and peak memory of a whole model, checked; may be given several times.",
        ),
    ] = None,
    dram: DramOption = None,
    json: JsonOption = None,
    page: PageOption = None,
) -> None:
    """Measure how fast the engines simulate, side by side on this machine; or what single layers cost."""
    from cosim.cli.bench import bench_command
    from cosim.engines.settings import dram_of

    if dram and not model:
        raise ValueError("--dram goes with --model: the other tables are of the default memory")
    bench_command(engines, workloads, seconds, layers, check, model or [], json, page, dram_of(dram))
