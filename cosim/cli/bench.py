"""`rkcosim bench`: measure the engines, print tables, write JSON and the page's sections."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.cli import results
from rkcosim.cli.app import Options, command, option
from rkcosim.cli.exits import MISMATCH, OK
from rkcosim.cli.options import Dram, Page

if TYPE_CHECKING:
    from rkcosim.engines.library import DramConfig


ENGINES = (
    "verilator",
    "verilator-exact",
    "fast",
    "changes",
    "plain",
    "cxxrtl",
    "cxxrtl-exact",
    "amaranth",
    "bound",
)
WORKLOADS = ("busy", "dma", "idle", "network", "yolov8n")
"""Names for the help and for completion, copied because `rkcosim.measure.perf.bench` is slow to import."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions(Options):
    """Options of `rkcosim bench`."""

    engines: str = option(
        f"Engines to measure, separated by commas: {', '.join(ENGINES)}; default: all but "
        "cxxrtl-exact, which takes very long to build.",
        metavar="NAMES",
        words=ENGINES,
        default="",
    )
    workloads: str = option(
        f"Workloads to run, separated by commas: {', '.join(WORKLOADS)}; default: all.",
        metavar="NAMES",
        words=WORKLOADS,
        default="",
    )
    seconds: float = option("Processor time for each engine and workload, in seconds.", low=0.01, default=3.0)
    layers: bool = option(
        "Instead of engines, measure the cycles of twelve layers and compare them with the vendor's formula.",
        default=False,
    )
    check: bool = option("With --layers, compare every byte with the golden models.", default=False)
    model: tuple[Path, ...] = option(
        "Instead of engines, measure time and peak memory of a whole, checked model; repeatable.", default=()
    )
    dram: Dram = ()
    page: Page = None


@command(
    "rkcosim bench --json bench.json",
    "rkcosim bench --engines verilator,plain,bound --workloads busy,dma --seconds 5",
    "rkcosim bench --layers --check --page docs/results/performance.md",
    "rkcosim bench --model build/networks/resnet50_int8.onnx",
)
def bench_command(asked: BenchOptions) -> None:
    """Measure how fast the engines simulate on this machine.

    With --layers it measures single layers, with --model whole models. The exit code is 1 if a check found a
    difference.
    """
    from rkcosim.engines.settings import dram_of

    if asked.dram and not asked.model:
        raise ValueError("--dram needs --model: the other tables use the default memory timing")
    if asked.layers and asked.model:
        raise ValueError("--layers and --model exclude each other")
    if (asked.layers or asked.model) and (asked.engines or asked.workloads):
        raise ValueError("--engines and --workloads have no effect with --layers or --model")
    if asked.check and not asked.layers:
        raise ValueError("--check needs --layers (a --model is always checked)")
    if asked.page is not None and asked.dram:
        raise ValueError("--page takes figures of the default memory timing only: leave out --dram or --page")
    from rkcosim.measure.perf.page import check_section, write_section

    section = "layers" if asked.layers else "networks" if asked.model else "bench"
    if asked.page is not None:
        check_section(section, asked.page)
    if asked.layers:
        code, document, text = _layers(asked.check)
    elif asked.model:
        code, document, text = _models(list(asked.model), dram_of(asked.dram))
    else:
        code, document, text = _engines(_names(asked.engines), _names(asked.workloads), asked.seconds)
    asked.write(document)
    if asked.page is not None:
        write_section(section, text, asked.page)
        print(f"{asked.page}: section {section} updated")
    raise SystemExit(code)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _engines(engines: list[str], workloads: list[str], seconds: float) -> tuple[int, dict[str, Any], str]:
    from rkcosim.measure.perf.bench.engines import DEFAULT_ENGINES
    from rkcosim.measure.perf.bench.jobs import JOBS
    from rkcosim.measure.perf.bench.rows import REFERENCES, machine_line
    from rkcosim.measure.perf.bench.run import run_bench

    found = run_bench(engines or DEFAULT_ENGINES, workloads or list(JOBS), seconds=seconds)
    heads = ("engine", "workload|", "cycles|,", "|", "cycles/s|,.0f", "array busy|.1%")
    rows = []
    for row in found.rows:
        figures: list[object] = [row.cycles, "" if row.complete else "cut", row.cycles_per_second]
        figures += ["" if row.mac_busy is None else row.mac_busy, *map(row.ratios.get, REFERENCES)]
        rows.append([row.engine, row.workload, *figures])
    title = "Simulated cycles per second of processor time, one thread"
    console = results.console()
    console.print(results.table(title, (*heads, *(f"x {name}|,.4g" for name in REFERENCES)), rows))
    for engine in found.engines:
        peak = f", peak memory {engine.peak_bytes / 2**20:,.0f} MiB" if engine.peak_bytes else ""
        console.print(f"{engine.name}: {engine.title} ({engine.flags}){peak}")
    for thread in found.threads:
        rate = f"{thread.core_cycles_per_second:,.0f} core cycles/s of elapsed time, x {thread.speedup}"
        console.print(f"three busy cores, threads {thread.threads}: {rate}")
    for target in found.targets():
        met = "reached" if target["met"] else "MISSED"
        console.print(f"target {target['what']}: {target['wanted']:,}, measured {target['is']:,}: {met}")
    console.print(f"on {machine_line(found.machine)}")
    return OK, found.as_json(), found.markdown()


def _layers(check: bool) -> tuple[int, dict[str, Any], str]:
    from rkcosim.measure.perf.bench import layers

    heads = ("layer", "cycles|,", "npu|,", "ddr|,", "ratio|.3f", "busy|.1%", "|")
    rows = layers.measure_layers(check=check)
    cells = []
    for row in rows:
        one = row.measured
        verdict = {None: "", True: "bytes equal", False: "BYTES DIFFER"}[one.match]
        verdict += "" if row.good or not verdict else ", target missed"
        formula = (one.formula_npu, one.formula_ddr, one.ratio)
        cells.append((one.name, one.cycles, *formula, one.mac_busy, verdict))
    console = results.console()
    console.print(results.table("Cycles of layers and the vendor's formula", heads, cells))
    for row in rows:
        if row.why:
            console.print(f"{row.measured.name}: {row.why}")
    code = MISMATCH if any(row.measured.match is False for row in rows) else OK
    return code, layers.document(rows), layers.markdown(rows)


def _models(paths: list[Path], dram: DramConfig | None) -> tuple[int, dict[str, Any], str]:
    from rkcosim.engines.settings import timing_line
    from rkcosim.measure.perf.bench import whole

    runs = whole.run_models(paths, dram)
    title = "Whole models on the default engine, checked, one core, processor time"
    heads = (whole.HEADS[0], *(f"{head}|" for head in whole.HEADS[1:]))
    results.console().print(results.table(title, heads, map(whole.cells, runs)))
    if timing := timing_line(dram):
        print(timing)
    code = OK if all(run.match for run in runs) else MISMATCH
    return code, whole.document(runs, dram), whole.markdown(runs)
