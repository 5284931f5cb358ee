"""Options of `rkcosim run --shards`, and the declaration of `rkcosim sweep`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cosim.cli import complete
from cosim.cli.app import App, examples
from cosim.cli.exits import reported
from cosim.cli.options import EngineOption, ExactOption, JsonOption

ShardsOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        help="Simulate an inference in so many parts at once, each checked; auto: by workers and task costs.",
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Dask scheduler whose workers simulate, as tcp://host:8786; default: processes of this machine.",
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Processes on this machine; default: one for each processor.")
]


@dataclass(frozen=True)
class Shards:
    """How a run is cut and where its shards run."""

    count: int | str
    scheduler: str | None = None
    workers: int | None = None

    @classmethod
    def of(cls, shards: str | None, scheduler: str | None, workers: int | None) -> Shards | None:
        """From the options; None where nothing is to be cut, one line where they make no sense."""
        with reported():
            if shards is None:
                if scheduler is not None or workers is not None:
                    name = "--scheduler" if scheduler is not None else "--workers"
                    raise ValueError(f"{name} needs --shards N or --shards auto")
                return None
            if scheduler is not None and workers is not None:
                raise ValueError("--workers starts processes here, --scheduler uses a cluster that is there")
            if shards == "auto":
                return cls(shards, scheduler, workers)
            if not shards.isdecimal() or not int(shards):
                raise ValueError(f"--shards must be a positive number or auto, not '{shards}'")
            return cls(int(shards), scheduler, workers)


def declare(app: App) -> None:
    """Add the command to an application."""
    app.command(
        epilog=examples(
            "rkcosim sweep examples/digits/digits_int8.onnx --cores 1,2,3",
            "rkcosim sweep a.onnx b.tflite --cores 1,3 --dram peak_bytes_per_cycle=11,23.65 --csv sweep.csv",
            "rkcosim sweep a.onnx --dram read_latency=60,120,240 --scheduler tcp://farm:8786 --json -",
        )
    )(sweep)


def sweep(
    models: Annotated[list[Path], typer.Argument(help="TFLite or ONNX models.", metavar="MODEL...")],
    cores: Annotated[str, typer.Option(metavar="LIST", help="Cores that share large layers, as 1,3.")] = "1",
    dram: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LIST",
            autocompletion=complete.dram,
            help="Setting of the memory and its values; repeatable.",
        ),
    ] = None,
    geometry: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LIST",
            help="Choice of the geometry and its values (others than the RK3588's are marked); repeatable.",
        ),
    ] = None,
    weight_banks: Annotated[
        str, typer.Option(metavar="LIST", help="Banks of CBUF for weights, of 12, as auto,2,4.")
    ] = "auto",
    engine: EngineOption = None,
    exact: ExactOption = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Compare every tensor with both golden models.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    clock: Annotated[float, typer.Option(min=1, metavar="MHZ", help="Clock for the times.")] = 1000,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table as CSV.")] = None,
    json: JsonOption = None,
) -> None:
    """Run models under many settings, in parallel, into one table."""
    from cosim.cli.shards import Sweep, sweep_command

    asked = Sweep(models, cores, dram or [], geometry or [], weight_banks, engine, exact, check, seed, clock)
    sweep_command(asked, scheduler, workers, csv, json)
