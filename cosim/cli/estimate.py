"""`rkcosim estimate`: a model's time per layer from the fitted model, what-if variants, the roofline."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.base import progress
from rkcosim.cli import results
from rkcosim.cli.app import argument, command, option
from rkcosim.cli.options import ModelOptions, Page, Plan, Share
from rkcosim.cli.results import write_text

if TYPE_CHECKING:
    from rkcosim.verify.streams.sources import Source

PAGE_SECTION = "estimator"

STREAMS = ("stream file", "capture's manifest", "text of a register-command stream")
"""Kinds of files whose tasks are estimated from their registers."""


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(ModelOptions):
    """Options of `rkcosim estimate`."""

    model: Path = argument(
        "A model (ONNX, TFLite, TNN, .rknn or compiled), or a command stream (a stream file, a capture's "
        "manifest, a listing, or a binary file of words)."
    )
    clock: float = option(
        "Clock of the NPU in MHz; the DRAM's clock does not change.", metavar="MHZ", default=1000.0
    )
    cores: Share = 1
    plan: Plan = "ours"
    ddr: str | None = option(
        "DRAM speed for all cores: a transfer rate as 4224MT/s (the RK3588's LPDDR4X, 70 % of which is "
        "achieved), or an achieved bandwidth as 23.65GB/s. The bandwidth of one core scales with it.",
        metavar="SPEED",
    )
    what_if: bool = option(
        "Also estimate other bandwidths, clocks, numbers of cores and CBUF splits, and NPUs with twice the "
        "array, CBUF, rate of tables, lanes of the DPU or cores.",
        default=False,
    )
    energy: bool = option(
        "Also estimate the energy of NPU and DRAM by layer and block (an order of magnitude).", default=False
    )
    roofline: Path | None = option("Draw the roofline with the layers to this SVG file.", writes=True)
    page: Page = None


@command(
    "rkcosim estimate examples/digits/digits_int8.onnx",
    "rkcosim estimate model.tflite --clock 600 --cores 3 --ddr 3200MT/s",
    "rkcosim estimate model.onnx --plan rknn --cores 3",
    "rkcosim estimate model.onnx --what-if --roofline roofline.svg",
    "rkcosim estimate model.onnx --energy",
    "rkcosim estimate examples/streams/digits.json",
)
def estimate_command(asked: EstimateOptions) -> None:
    """Estimate the time of each layer or task without simulating.

    It takes about a second and prints the error of the estimate against the RTL. The last lines compare two
    times: that of the RTL with the plan of this compiler, and that of a board with RKNN's plan. For a command
    stream, the rows are its tasks, estimated from the registers that they set.
    """
    if (source := _stream_of(asked.model)) is not None:
        _estimate_stream(asked, source)
        return
    from rkcosim.base.files import read_model
    from rkcosim.compiler.model import naming_model
    from rkcosim.measure.perf.boards.expected import published_line, time_line
    from rkcosim.measure.perf.estimator.files import estimate_file
    from rkcosim.measure.perf.estimator.whatif import CLOCK_MHZ, memory_at, parse_speed
    from rkcosim.measure.perf.page import check_section, write_section

    if asked.page is not None:
        check_section(PAGE_SECTION, asked.page)
    if asked.what_if and asked.plan != "ours":
        raise ValueError("--what-if varies the plan of this compiler: leave out --plan rknn")
    memory = memory_at(CLOCK_MHZ, parse_speed(asked.ddr) if asked.ddr else None)
    data = read_model(asked.model)
    with progress.step(f"estimating {asked.model.name}"), naming_model(asked.model), asked.reading():
        found = estimate_file(
            asked.model.name,
            data,
            clock=asked.clock,
            memory=memory,
            cores=asked.cores,
            plan=asked.plan,
            what_if=asked.what_if,
        )
    result = found.document
    print_estimate(result)
    for plan, one in found.plans.items():
        print(f"{result['plans'][plan]['said']}: {time_line(one.estimate.cycles, one.submits, asked.clock)}")
        print(f"  {published_line(plan)}")
    _finish(asked, result)
    if asked.page:
        from rkcosim.measure.perf.estimator.page import section

        write_section(PAGE_SECTION, section(result), asked.page)
        print(f"page: {asked.page}")


def _stream_of(path: Path) -> Source | None:
    """Open a file that contains command words and no model; None for a model, or a file of another kind."""
    from rkcosim.base.files import UNKNOWN, identify, read_given
    from rkcosim.verify.streams.sources import MODEL_SUFFIXES, open_source

    kind = identify(read_given(path))
    if kind in STREAMS:
        return open_source([str(path)])
    if kind != UNKNOWN or path.suffix in MODEL_SUFFIXES:
        return None
    try:
        source = open_source([str(path)])
    except ValueError:
        return None
    commands = [c for program in source.programs for task in program.tasks for c in task.commands]
    return source if any(command.kind == "op_enable" for command in commands) else None


def _estimate_stream(asked: EstimateOptions, source: Source) -> None:
    """Estimate a command stream, task by task."""
    from rkcosim.measure.perf.estimator.coefficients import stored_fit, warning
    from rkcosim.measure.perf.estimator.document import as_json
    from rkcosim.measure.perf.estimator.streams import estimate_programs
    from rkcosim.measure.perf.estimator.whatif import memory_at, parse_speed

    default = {item.name: item.default for item in fields(asked)}
    for name in ("cores", "plan", "what_if", "page", *ModelOptions.READING):
        if getattr(asked, name) != default[name]:
            option = f"--{name.strip('_').replace('_', '-')}"
            raise ValueError(f"{option} is for models, and {source.name} is a command stream")
    dram = memory_at(asked.clock, parse_speed(asked.ddr) if asked.ddr else None)
    with progress.step(f"estimating {source.name}"):
        found = estimate_programs(source.programs, dram=dram)
    result = as_json(source.name, found.estimate, asked.clock, [])
    for name in ("board", "what_if", "host", "host_layers", "samples"):
        del result[name]
    result["kind"] = "stream"
    result["cycles_after_reset"] = found.estimate.cycles + found.after_reset
    result["not_estimated"] = [
        {"task": task.name, "blocks": list(task.blocks), "why": task.why} for task in found.missing
    ]
    result["warnings"] = found.warnings
    result["error"] = stored_fit().errors["held out"]
    result["warning"] = warning()
    print_tasks(result)
    for task in found.missing:
        print(f"not estimated: {task.name}: {task.why}")
    for text in found.warnings:
        print(f"warning: the RTL may take other cycles, or not end: {text}")
    _finish(asked, result)


def _finish(asked: EstimateOptions, result: dict[str, Any]) -> None:
    """Print how far estimates are from boards, draw the roofline, and write the document."""
    from rkcosim.measure.perf.estimator.coefficients import said_error

    print(said_error())
    if result["warning"]:
        print(f"warning: {result['warning']}")
    if asked.energy:
        from rkcosim.measure.energy import energy_of
        from rkcosim.measure.energy.text import print_energy
        from rkcosim.measure.report.data import from_json

        found = energy_of(from_json(result), asked.clock)
        print_energy(results.console(), found)
        result["energy"] = found.as_json()
    if asked.roofline:
        _draw_roofline(asked.roofline, result, asked.clock)
    asked.write(result, say=True)


def _draw_roofline(path: Path, result: dict[str, Any], clock: float) -> None:
    from rkcosim.measure.perf.estimator.document import as_run
    from rkcosim.measure.report.rooffile import draw

    cores = results.counted(result["cores"], "core")
    subtitle = f"estimated, {result['milliseconds']:.3g} ms on {cores} at {clock:g} MHz"
    write_text(path, draw(as_run(result), clock / 1000, subtitle))
    print(f"roofline: {path}")


def print_tasks(result: dict[str, Any]) -> None:
    """Print the table of a command stream."""
    console = results.console()
    heads = ("#|", "task", "blocks", "cycles|,", "ms|.4f", "share|.1%", "bound by", "MACs|,", "KB|.1f")
    members = ("op", "cycles", "milliseconds", "share", "bound", "macs")
    rows = []
    for number, row in enumerate(result["layers"]):
        kilobytes = (row["bytes_read"] + row["bytes_written"]) / 1024
        name = results.shortened(row["name"], console)
        rows.append((number, name, *(row[member] for member in members), kilobytes))
    console.print(results.table(f"{result['model']}: estimate", heads, rows))
    console.print(
        f"{result['cycles']:,} cycles = {result['milliseconds']:.3f} ms from the kick to the interrupt at "
        f"{result['clock_mhz']:g} MHz, DRAM {result['dram']['gigabytes_per_second']:.4g} GB/s, "
        f"{results.counted(result['jobs'], 'job')}"
    )
    if result["cycles_after_reset"] > result["cycles"]:
        console.print(
            f"{result['cycles_after_reset']:,} cycles directly after a reset, as rkcosim regcmd run starts it"
        )


def print_estimate(result: dict[str, Any]) -> None:
    """Print the tables."""
    from rkcosim.measure.perf.estimator.document import host_line
    from rkcosim.measure.perf.estimator.whatif import said_judgement

    console = results.console()
    heads = ("#|", "layer", "op", "tasks|", "cycles|,", "ms|.4f", "share|.1%", "bound by", "MACs|,", "KB|.1f")
    members = ("op", "tasks", "cycles", "milliseconds", "share", "bound", "macs")
    rows = []
    for number, row in enumerate(result["layers"]):
        if row["cycles"] is not None:
            kilobytes = (row["bytes_read"] + row["bytes_written"]) / 1024
            name = results.shortened(row["name"], console)
            rows.append((number, name, *(row[member] for member in members), kilobytes))
    of = f"one sample of {result['samples']}" if result["samples"] > 1 else "one inference"
    said = result["plans"][result["plan"]]["said"]
    console.print(results.table(f"{result['model']}: estimate of {of}; {said}", heads, rows))
    cores = results.counted(result["cores"], "core")
    console.print(
        f"{result['cycles']:,} cycles = {result['milliseconds']:.3f} ms on {cores} at "
        f"{result['clock_mhz']:g} MHz, DRAM {result['dram']['gigabytes_per_second']:.4g} GB/s, "
        f"{results.counted(result['jobs'], 'job')}"
    )
    if result["on_one_core"]:
        console.print(result["on_one_core"])
    if result["host"]:
        console.print(host_line(result["host"]))
    if not result["what_if"]:
        return
    whole = result["milliseconds"]
    others = (
        (row["group"], row["name"], row["cycles"], (ms := row["milliseconds"]), ms / whole, row["note"])
        for row in ({"group": "as above", "name": "", "note": "", **result}, *result["what_if"])
    )
    console.print(results.table("what if", ("", "", "cycles|,", "ms|.3f", "time|.1%", ""), others))
    console.print(said_judgement(), markup=False)
