"""Declaration of `rkcosim counters`: what every block of the hardware does in each cycle of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosim.cli.app import App, examples
from cosim.cli.options import (
    INPUT_HELP,
    DramOption,
    EngineOption,
    ExactOption,
    JsonOption,
    PageOption,
    ShareOption,
)


def declare(app: App) -> None:
    """Add the command to an application."""
    app.command(
        epilog=examples(
            "rkcosim counters examples/digits/digits_int8.onnx",
            "rkcosim counters model.tflite --cores 3 --json - | jq '.cores[0].states.DPU'",
        )
    )(counters)


def counters(
    model: Annotated[Path, typer.Argument(help="TFLite or ONNX model.")],
    input: Annotated[list[Path] | None, typer.Option("--input", "-i", help=INPUT_HELP)] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Inferences at most.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of random inputs, used where no --input is given.")] = 0,
    engine: EngineOption = None,
    exact: ExactOption = False,
    cores: ShareOption = 1,
    dram: DramOption = None,
    json: JsonOption = None,
    page: PageOption = None,
) -> None:
    """Run a model with the hardware's performance counters on and print what they hold."""
    from cosim.cli.counters import counters_command
    from cosim.engines.settings import dram_of

    memory = dram_of(dram, engine)
    counters_command(model, input or [], limit, seed, engine, exact, cores, json, page, memory)
