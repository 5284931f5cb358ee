"""`rkcosim advise`: changes that make a network faster, each of them made on a copy and timed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rkcosim.cli import results
from rkcosim.cli.app import command, needs, option
from rkcosim.cli.options import DramOptions, Html, InputOptions, Share

if TYPE_CHECKING:
    from rkcosim.measure.advice.advise import Advice


@dataclass(frozen=True, kw_only=True)
class AdviseOptions(InputOptions, DramOptions):
    """Options of `rkcosim advise`."""

    cores: Share = 1
    seconds: float = option(
        "Seconds after which no further change is tried; one that has begun is finished. What was not tried "
        "is listed.",
        default=60.0,
        low=0.0,
        metavar="SECONDS",
    )
    only: tuple[str, ...] = option(
        "Try only changes of this kind: activations, orders, channels, kernels, hosts (operators of the "
        "host), outputs, inputs, quantisation, cores or what-if (memory); repeatable.",
        metavar="KIND",
        words="rkcosim.measure.advice.advise:KINDS",
        default=(),
    )
    take: tuple[str, ...] = option(
        "Make the change of this name, as the table shows it, and try no others; repeatable, they are made "
        "in the given order.",
        metavar="NAME",
        default=(),
    )
    meaning: Literal["same", "program", "approximate", "retraining"] = option(
        "The strongest effect on the results that a change may have: none (same), none if the program around "
        "the network does something for it (program), small differences (approximate), or another network "
        "that must be trained (retraining).",
        default="retraining",
    )
    output: Path | None = option(
        "Write the changed ONNX model: with the changes of --take, otherwise with the last of the printed "
        "combinations.",
        "-o",
        "--output",
        writes=True,
    )
    workers: int = option("Processes that time changes side by side.", default=1, low=1)
    html: Html = None
    clock: float = option("Clock of the NPU in MHz, for milliseconds.", metavar="MHZ", default=1000.0, low=1)


@command(
    "rkcosim advise model.onnx",
    "rkcosim advise model.onnx --input pictures.npz --seconds 120",
    "rkcosim advise model.onnx --meaning program --json advice.json",
    "rkcosim advise model.onnx --take silu-to-relu --take outputs -o faster.onnx",
)
def advise_command(asked: AdviseOptions) -> None:
    """Print what would make a network faster, and by how much.

    Each change is made on a copy of the network, which is compiled and run with the timing of the RTL (the
    engine fast): the cycles of a row are those of a run. With --input, the outputs of a changed network are
    compared with the original's in onnxruntime. Networks that are not ONNX are only run in other ways.
    """
    from rkcosim.base import progress
    from rkcosim.base.files import identify, read_model
    from rkcosim.compiler.model import naming_model
    from rkcosim.engines.protocol import FAST, require
    from rkcosim.measure.advice.advise import advise

    engine = asked.engine or FAST
    require(engine, "has_cycles", "advice")
    data = read_model(asked.model)
    is_onnx = identify(data) == "ONNX model"
    if not is_onnx:
        needs("an ONNX model", output=asked.output)
    with naming_model(asked.model), asked.reading(), progress.step(f"looking at {asked.model.name}"):
        found = advise(
            data,
            asked.model.name,
            seconds=asked.seconds,
            only=asked.only,
            take=asked.take,
            meaning=asked.meaning,
            samples=_samples(asked),
            cores=asked.cores,
            dram=asked.memory,
            clock=asked.clock,
            engine=engine,
            workers=asked.workers,
        )
    print_advice(found, is_onnx)
    if asked.output is not None:
        chosen = found.taken or (found.combined[-1] if found.combined else None)
        if chosen is None:
            raise ValueError("no change saves time, so there is nothing to write to --output")
        results.write_bytes(asked.output, chosen.subject.model)
        print(f"{asked.output}: with {', '.join(chosen.names)}")
    if asked.html is not None:
        from rkcosim.model.advice import AdviceReport

        AdviceReport(found).save(asked.html)
        print(f"report: {asked.html}")
    asked.write(found.as_json(), say=True)


def _samples(asked: AdviseOptions) -> list[dict[str, Any]]:
    """Return the given inputs by name; raises as `InputOptions.batch`."""
    import numpy as np

    from rkcosim.rknn_file.opening import open_file

    batch = asked.batch()
    if batch is None:
        return []
    infos = open_file(asked.model).inputs
    return [
        {
            info.name: np.asarray(array).astype(np.float32)
            if info.dtype.kind == "f" or info.quantised
            else np.asarray(array)
            for info, array in zip(infos, item, strict=True)
        }
        for item in batch.items
    ]


def print_advice(found: Advice, is_onnx: bool = True) -> None:
    """Print the table of changes and the lines below it."""
    from rkcosim.measure.advice.words import HEADS, combination, head, lines, row

    console = results.console()
    console.print(head(found))
    if found.taken is not None:
        console.print(combination(found.taken, found))
        return
    if not is_onnx:
        console.print("only ONNX files can be changed: what follows is about how this one is run")
    rows = [row(number, one, found) for number, one in enumerate(found.advised, 1)]
    if rows:
        console.print(results.table("advice", HEADS, rows))
    else:
        console.print("nothing that was tried makes it faster")
    for line in lines(found):
        console.print(line)
