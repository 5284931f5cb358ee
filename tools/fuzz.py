"""`python -m tools.fuzz`: hostile programs for the kernel model, damaged files for the commands."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rkcosim.base import progress
from rkcosim.cli.app import command, option, run_alone
from rkcosim.cli.exits import MISMATCH, OK
from rkcosim.cli.options import EngineOptions
from rkcosim.cli.results import table, write_text
from tools.file_fuzz import fuzz_files
from tools.kernel_fuzz import fuzz
from tools.kernel_fuzz.packets import fuzz_protocol


@dataclass(frozen=True, kw_only=True)
class FuzzOptions(EngineOptions):
    """Options of `python -m tools.fuzz`."""

    inputs: int = option("Number of hostile inputs.", low=1, default=500)
    files: bool = option(
        "Test the commands' file readers with damaged files, instead of the kernel model with hostile calls.",
        default=False,
    )
    protocol: bool = option(
        "Test the server with hostile packets, instead of the kernel model with hostile calls.", default=False
    )
    sample: tuple[Path, ...] = option(
        "With --files, damage copies of this valid file instead of the built-in ones; repeatable.", default=()
    )
    seed: int | None = option("Seed of the random inputs; default: a new one, which is printed.")
    log: Path | None = option("Write the kernel's log to this file.", writes=True)


@command(
    "python -m tools.fuzz --engine golden --inputs 20000 --seed 1",
    "python -m tools.fuzz --protocol --engine golden --inputs 20000",
    "python -m tools.fuzz --files --inputs 20000",
    "python -m tools.fuzz --files --sample model.tflite",
)
def fuzz_command(asked: FuzzOptions) -> None:
    """Send hostile input to the kernel model or to commands.

    Hostile ioctls and command lists go to the kernel model, hostile packets to its server, damaged files to
    the commands' file readers. The exit code is 1 if one of them fails.
    """
    if asked.files and asked.protocol:
        raise ValueError("--files and --protocol exclude each other")
    if asked.sample and not asked.files:
        raise ValueError("--sample needs --files")
    if asked.files:
        _files(asked)
    else:
        _programs(asked)


def _seed(asked: FuzzOptions) -> int:
    """Return the seed and print it; a new one if none is given."""
    seed = random.SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    print(f"seed {seed}")
    return seed


@contextmanager
def _counted(what: str, inputs: int) -> Iterator[Callable[[int], None]]:
    """Show a step of `inputs` inputs; yields a function that takes the number done."""
    with progress.step(what, inputs, "inputs") as step:

        def count(done: int) -> None:
            step.done = done

        yield count


def _programs(asked: FuzzOptions) -> None:
    """Send hostile calls to the kernel model, or packets to its server, and print the result."""
    from rkcosim.devices.program import private_server
    from rkcosim.devices.simulated import SimulatedMachine

    seed = _seed(asked)
    with SimulatedMachine(asked.engine, exact=asked.exact) as machine:
        if asked.protocol:
            with private_server(machine) as server, _counted("hostile packets", asked.inputs) as count:
                report = fuzz_protocol(server, seed, asked.inputs, progress=count)
        else:
            with _counted("hostile inputs", asked.inputs) as count:
                report = fuzz(machine.kernel, seed, asked.inputs, progress=count)
        if asked.log is not None:
            write_text(asked.log, machine.kernel.log.text())
    print(report)
    names = {"bystander_jobs": "runs", "bystander_disturbed": "disturbed", "canaries_changed": "trampled"}
    names |= {"writes_beside": "beside", "late_answers": "late", "internal_errors": "internal"}
    names |= {name: name for name in ("ioctls", "errors", "leaks", "seconds", "good")}
    figures = {name: getattr(report, member) for name, member in names.items()}
    asked.write({"seed": seed, "inputs": asked.inputs, "past_first_check": report.share, **figures})
    raise SystemExit(OK if report.good else MISMATCH)


def _files(asked: FuzzOptions) -> None:
    """Give damaged files to the commands' file readers and print a table."""
    from rich.console import Console

    seed = _seed(asked)
    with _counted("damaged files", asked.inputs) as count:
        reports = fuzz_files(seed, asked.inputs, samples=asked.sample, progress=count)
    heads = ("file", "inputs|,", "taken|,", "refused|,", "wrong|,", "slowest s|.2f")
    rows = [
        (name, found.inputs, found.taken, found.refused.total(), len(found.wrong), found.slowest)
        for name, found in reports.items()
    ]
    Console(highlight=False).print(table(None, heads, rows, pad_edge=False))
    for name, found in reports.items():
        for text in found.wrong[:10]:
            print(f"{name}: {text}")
    good = not any(found.wrong for found in reports.values())
    files = {
        name: {
            "inputs": found.inputs,
            "taken": found.taken,
            "refused": found.refused,
            "wrong": found.wrong,
            "slowest_seconds": round(found.slowest, 3),
        }
        for name, found in reports.items()
    }
    asked.write({"seed": seed, "inputs": asked.inputs, "files": files, "good": good})
    raise SystemExit(OK if good else MISMATCH)


if __name__ == "__main__":
    run_alone(fuzz_command, "python -m tools.fuzz")
