"""`rkcosim counters`: print the performance counters of a model's run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from rkcosim.cli import results
from rkcosim.cli.app import command
from rkcosim.cli.exits import MISMATCH, OK
from rkcosim.cli.options import DramOptions, InputOptions, Page, Share


@dataclass(frozen=True, kw_only=True)
class CountersOptions(InputOptions, DramOptions):
    """Options of `rkcosim counters`."""

    cores: Share = 1
    page: Page = None


@command(
    "rkcosim counters examples/digits/digits_int8.onnx",
    "rkcosim counters model.tflite --cores 3 --json - | jq '.cores[0].states.DPU'",
)
def counters_command(asked: CountersOptions) -> None:
    """Run a model and print the hardware's performance counters.

    The exit code is 1 if the states of a block do not add up to the cycles.
    """
    with asked.reading():
        _counters(asked)


def _counters(asked: CountersOptions) -> NoReturn:
    from rkcosim.measure.perf.counted import count_model, markdown
    from rkcosim.measure.perf.page import check_section, write_section
    from rkcosim.rknn_file.opening import open_file

    page, dram = asked.page, asked.memory
    if page is not None and dram is not None:
        raise ValueError("--page takes figures of the default memory timing only: leave out --dram or --page")
    if page is not None:
        check_section("counters", page)
    console = results.console()
    open_file(asked.model)  # bad input is reported before any build
    batch = asked.batch()
    run = count_model(
        asked.model,
        batch.items if batch else None,
        engine=asked.engine,
        exact=asked.exact,
        cores=asked.cores,
        dram=dram,
        seed=asked.seed,
    )
    print_counters(console, run)
    asked.write(run.as_json(), say=True)
    if page is not None:
        write_section("counters", markdown(run), page)
        console.print(f"page: {page}")
    raise SystemExit(MISMATCH if any(core.unaccounted() for core in run.cores) else OK)


def print_counters(console: Any, run: Any) -> None:
    """Print one table of blocks per core, and lines for the counters that are not cycles."""
    from rkcosim.engines.settings import timing_line
    from rkcosim.measure.perf.counted import shares

    for number, core in enumerate(run.cores):
        title = f"{run.model}, core {number}: {core.cycles:,} cycles counted"
        rows = (
            (block, idle, busy, 1 - idle - busy, ", ".join(f"{state} {share:.1%}" for state, share in waits))
            for block, idle, busy, waits in shares(core)
        )
        console.print(results.table(title, ("block", "idle|.1%", "busy|.1%", "waits|.1%", "for"), rows))
        counts = {
            "bytes": core.bytes,
            "MACs": core.macs,
            "high-water marks": core.levels,
            "tasks": core.tasks,
        }
        for what, found in counts.items():
            words = ", ".join(f"{name} {n:,}" for name, n in found.items() if n)
            console.print(f"{what}: {words or 'none'}")
        for block, missing in core.unaccounted().items():
            console.print(f"{block}: {missing:,} cycles belong to no state")
    console.print(
        f"{run.inferences} inferences, {run.cycles:,} cycles, {run.macs:,} MACs of the layers; "
        f"{run.engine}, {run.cell} cell"
    )
    if run.causes_line:
        console.print(run.causes_line)
    if timing := timing_line(run.dram):
        console.print(timing)
