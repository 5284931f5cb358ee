"""`rkcosim estimate`: a model's time per layer from the fitted model, what-if variants, the roofline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.base import progress
from rkcosim.cli import results
from rkcosim.cli.app import command, option
from rkcosim.cli.options import ModelOptions, Page, Plan, Share
from rkcosim.cli.results import write_text

if TYPE_CHECKING:
    from rkcosim.measure.perf.estimator import Estimate
    from rkcosim.measure.perf.estimator.whatif import Variant

LAYER = "name op target tasks cycles bound macs bytes_read bytes_written peak".split()
"""Members of a layer's estimate that are copied into the JSON form."""

MEMORY = ("peak_bytes_per_cycle", "core_bytes_per_cycle", "read_latency", "write_latency")
"""Settings of the memory that are copied into the JSON form."""

PAGE_SECTION = "estimator"


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(ModelOptions):
    """Options of `rkcosim estimate`."""

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
        "Also estimate other bandwidths, clocks, numbers of cores and CBUF splits.", default=False
    )
    roofline: Path | None = option("Draw the roofline with the layers to this SVG file.", writes=True)
    page: Page = None


@command(
    "rkcosim estimate examples/digits/digits_int8.onnx",
    "rkcosim estimate model.tflite --clock 600 --cores 3 --ddr 3200MT/s",
    "rkcosim estimate model.onnx --plan rknn --cores 3",
    "rkcosim estimate model.onnx --what-if --roofline roofline.svg",
)
def estimate_command(asked: EstimateOptions) -> None:
    """Estimate the time of each layer without simulating.

    It takes about a second and prints the error of the estimate against the RTL. The last lines compare two
    times: that of the RTL with the plan of this compiler, and that of a board with RKNN's plan.
    """
    from rkcosim.base.files import read_model
    from rkcosim.compiler.model import naming_model
    from rkcosim.measure.perf.boards.expected import board_json, published_line, time_line
    from rkcosim.measure.perf.estimator.coefficients import said_error, stored_fit, warning
    from rkcosim.measure.perf.estimator.plans import PLANS, SAID, estimate_plan
    from rkcosim.measure.perf.estimator.whatif import memory_at, parse_speed, variants
    from rkcosim.measure.perf.page import check_section, write_section

    if asked.page is not None:
        check_section(PAGE_SECTION, asked.page)
    speed = parse_speed(asked.ddr) if asked.ddr else None
    dram = memory_at(asked.clock, speed)
    data = read_model(asked.model)
    with progress.step(f"estimating {asked.model.name}"), naming_model(asked.model), asked.reading():
        both = {plan: estimate_plan(data, plan, dram=dram, cores=asked.cores) for plan in PLANS}
    found = both[asked.plan].estimate
    others: list[Variant] = []
    if asked.what_if:
        if asked.plan != "ours":
            raise ValueError("--what-if varies the plan of this compiler: leave out --plan rknn")
        with progress.step("what if: other memory, clocks, cores and splits"), asked.reading():
            others = list(variants(data, asked.clock, speed, asked.cores, found))
    result = as_json(asked.model.name, found, asked.clock, others)
    result["plan"] = asked.plan
    result["plans"] = {
        plan: board_json(one.estimate.cycles, one.submits, asked.clock, plan) for plan, one in both.items()
    }
    result["board"] = result["plans"][asked.plan]
    result["error"] = stored_fit().errors["held out"]
    result["warning"] = warning()
    print_estimate(result)
    for plan, one in both.items():
        print(f"{SAID[plan]}: {time_line(one.estimate.cycles, one.submits, asked.clock)}")
        print(f"  {published_line(plan)}")
    print(said_error())
    if result["warning"]:
        print(f"warning: {result['warning']}")
    if asked.roofline:
        from rkcosim.measure.report.rooffile import draw

        cores = results.counted(found.cores, "core")
        subtitle = f"estimated, {result['milliseconds']:.3g} ms on {cores} at {asked.clock:g} MHz"
        write_text(asked.roofline, draw(as_run(result), asked.clock / 1000, subtitle))
        print(f"roofline: {asked.roofline}")
    asked.write(result, say=True)
    if asked.page:
        from rkcosim.measure.perf.estimator.page import section

        write_section(PAGE_SECTION, section(result), asked.page)
        print(f"page: {asked.page}")


def as_json(name: str, found: Estimate, clock: float, others: list[Variant]) -> dict[str, Any]:
    """Return the result as plain values for JSON."""
    from rkcosim.measure.perf.boards.expected import board_json

    total = sum(layer.cycles or 0 for layer in found.layers)
    layers = []
    for layer in found.layers:
        cycles = layer.cycles
        times = {
            "milliseconds": None if cycles is None else cycles / clock / 1000,
            "share": None if cycles is None else round(cycles / max(total, 1), 5),
        }
        layers.append({name: getattr(layer, name) for name in LAYER} | times)
    return {
        "model": name,
        "schema_version": 1,
        "engine": "estimate",
        "clock_mhz": clock,
        "cores": found.cores,
        "dram": {name: getattr(found.dram, name) for name in MEMORY}
        | {"gigabytes_per_second": found.dram.bandwidth(found.cores) * clock / 1000},
        "cycles": found.cycles,
        "milliseconds": found.cycles / clock / 1000,
        "jobs": len(found.jobs),
        "samples": found.samples,
        "macs": sum(layer.macs for layer in found.layers),
        "layers": layers,
        "host_layers": found.host,
        "board": board_json(found.cycles, len(found.jobs), clock),
        "what_if": [variant.__dict__ for variant in others],
    }


def as_run(result: dict[str, Any]) -> Any:
    """Return the data for the charts of the report."""
    from rkcosim.measure.report.data import from_json

    run = from_json(result)
    for row in run.rows:
        row.cores = list(range(result["cores"])) if row.peak else []
    return run


def print_estimate(result: dict[str, Any]) -> None:
    """Print the tables."""
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
    console.print(results.table(f"{result['model']}: estimate of {of}", heads, rows))
    cores = results.counted(result["cores"], "core")
    console.print(
        f"{result['cycles']:,} cycles = {result['milliseconds']:.3f} ms on {cores} at "
        f"{result['clock_mhz']:g} MHz, DRAM {result['dram']['gigabytes_per_second']:.4g} GB/s, "
        f"{results.counted(result['jobs'], 'job')}"
    )
    if result["host_layers"]:
        console.print(f"computed on the host, not included:  {', '.join(result['host_layers'])}")
    if not result["what_if"]:
        return
    whole = result["milliseconds"]
    others = (
        (row["group"], row["name"], row["cycles"], (ms := row["milliseconds"]), ms / whole, row["note"])
        for row in ({"group": "as above", "name": "", "note": "", **result}, *result["what_if"])
    )
    console.print(results.table("what if", ("", "", "cycles|,", "ms|.3f", "time|.1%", ""), others))
