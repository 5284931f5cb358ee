"""`rkcosim run`: run a model on the simulated NPU; table per layer and verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rkcosim.cli import results
from rkcosim.cli.app import command, needs, option
from rkcosim.cli.exits import MISMATCH, OK
from rkcosim.cli.options import (
    IN_FP16,
    Csv,
    Html,
    InputOptions,
    RecordedOptions,
    Scheduler,
    Share,
    Workers,
    one_cluster,
)
from rkcosim.cli.results import write_csv
from rkcosim.cli.snapshots import SnapshotOptions

if TYPE_CHECKING:
    from rkcosim.cli.snapshots import Run
    from rkcosim.waves.spec import TraceSpec

KEPT = (
    "no tensors shared memory, because of --check; where tensors share memory (without --check) the cycles "
    "differ a little"
)
"""Line of the summary for cycles that were measured with another memory layout than the default."""

SHOWN = 5
"""Nodes without a judgement that are named one by one."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(InputOptions, RecordedOptions, SnapshotOptions):
    """Options of `rkcosim run`."""

    check: bool = option("Compare every tensor bit for bit with both golden models.", default=False)
    cores: Share = 1
    jobs_by: Literal["auto", "chain", "node"] = option(
        "Jobs of a .rknn file: one for each chain of linked tasks (chain), or one for each node (node); "
        "auto is chain.",
        default="auto",
    )
    csv: Csv = None
    html: Html = None
    shards: str | None = option(
        "Divide an inference into N parts that are simulated in parallel and each checked; auto: choose N "
        "from the number of workers and the cost of tasks.",
        metavar="N|auto",
    )
    scheduler: Scheduler = None
    workers: Workers = None

    def sharded(self, trace: TraceSpec | None) -> dict[str, Any] | None:
        """Return the options of `rkcosim.measure.shards.run_sharded`; None without shards.

        Raises
        ------
        ValueError
            for options that exclude each other.
        """
        if self.shards is None:
            needs("--shards N or --shards auto", scheduler=self.scheduler, workers=self.workers)
            return None
        one_cluster(self.scheduler, self.workers)
        if self.shards != "auto" and not (self.shards.isdecimal() and int(self.shards)):
            raise ValueError(f"--shards must be a positive number or auto, not '{self.shards}'")
        several, leave = "--shards simulates in several engines in parallel, so it", "leave out --shards, or"
        if trace is not None or self.events or self.timeline:
            text = f"writes no waveform and no event log; {leave} --trace, --events and --timeline"
            raise ValueError(f"{several} {text}")
        if self.save or self.resume:
            text = f"cannot save or resume a snapshot; {leave} --save and --resume"
            raise ValueError(f"{several} {text}")
        count = self.shards if self.shards == "auto" else int(self.shards)
        return {"shards": count, "scheduler": self.scheduler, "workers": self.workers}


@command(
    "rkcosim run examples/digits/digits_int8.onnx -i examples/digits/held_back.npz --limit 3 --check",
    "rkcosim run model.tflite --input cat.png --cores 3 --html run.html",
    "rkcosim run model.onnx --trace build/run.fst --from layer:conv3 --scope 'core0.CNA'",
    "rkcosim run model.onnx --shards auto --scheduler tcp://farm:8786",
    "rkcosim run model.onnx --engine golden --json - | jq .verdict",
    "rkcosim run model.onnx --dram core_bytes_per_cycle=8 --dram read_latency=200",
    "rkcosim run model.onnx --save build/conv3.snap --at layer:conv3",
    "rkcosim run model.onnx --resume build/conv3.snap",
)
def run_command(asked: RunOptions) -> None:
    """Run a model on the simulated NPU and report cycles per layer.

    The run uses rknn_api. With --check the exit code is 1 if a tensor differs from the golden models.
    """
    from rkcosim.cli.snapshots import Run

    names = ("engine", "exact", "check", "seed", "cores", "dram", "jobs_by", *asked.READING)
    with asked.recording() as trace:
        asked.sharded(trace)  # options that exclude each other are reported before a snapshot is read
        saving = Run(asked, "run", asked.model, names, trace)
        with asked.reading(saving.values):
            _run(asked, trace, saving)


def _run(asked: RunOptions, trace: TraceSpec | None, saving: Run) -> None:
    from rkcosim.base.files import read_model
    from rkcosim.cli.report import keeping, write_page
    from rkcosim.measure.models.run import run_model
    from rkcosim.rknn_file import is_rknn
    from rkcosim.rknn_file.model import jobs_by

    console = results.console()
    sharded = asked.sharded(trace)
    values = {name: value for name, value in saving.values.items() if name not in asked.READING}
    asked_jobs = values.pop("jobs_by")
    how = None if asked_jobs == "auto" else asked_jobs
    data = read_model(asked.model)  # reports the kind of a file that is not a model
    if sharded is not None and is_rknn(data):
        raise ValueError("--shards divides plans of this compiler only: run a .rknn file without it")
    batch = saving.batch(asked.batch())
    labels = batch.labels if batch else None
    count = len(batch.items) if batch else 1
    with jobs_by(how):
        _check_names(asked, trace, values, count)

    def each(number: int, guess: int | None, good: bool | None) -> None:
        said = "" if good is None else ("  bit for bit" if good else "  MISMATCH")
        if guess is None:
            console.print(f"[{number + 1:3}/{count}] done{said}")
            return
        truth = f"  truth {labels[number]}" if labels else ""
        mark = " " if labels is None or labels[number] == guess else "*"
        console.print(f"[{number + 1:3}/{count}] label {guess}{truth} {mark}{said}")

    check, run = values.pop("check"), run_model
    options = {"check": check, "trace": trace}
    if sharded is not None:
        from rkcosim.measure.shards import run_sharded

        run, options = run_sharded, sharded
    with keeping(asked.html if sharded is None else None) as kept, saving.running(), jobs_by(how):
        result = run(
            asked.model,
            batch.items if batch else None,
            **values,
            labels=labels,
            reference=True,
            each=each,
            **options,
        )
    print_report(console, result)
    if sharded is not None:
        print_shards(console, result)
    if asked.csv:
        write_csv(asked.csv, [row.flat() for row in result.layers])
        console.print(f"CSV: {asked.csv}")
    asked.write(result.as_json(), say=True)
    if asked.html:
        write_page(asked.html, result.as_json(), kept.log)
    saving.finish()
    raise SystemExit(MISMATCH if result.verdict["match"] is False else OK)


def print_report(console: Any, result: Any) -> None:
    """Print the table of layers and the summary."""
    from rkcosim.engines.settings import timing_line
    from rkcosim.measure.perf.boards.expected import published_line, time_line

    heads = ("layer", "op", "on", "tasks|", "cycles|,", "formula|,", "MACs|,")
    shares = ("MAC use|.1%", "array busy|.1%", "KB|.1f", "bound by|")
    rows = []
    for row in result.layers:
        figures = (row.tasks, row.cycles, row.formula_cycles, row.macs, row.utilisation, row.mac_busy)
        kilobytes = (row.bytes_read + row.bytes_written) / 1024
        name = results.shortened(row.name, console)
        rows.append((name, row.op, row.target, *figures, kilobytes, row.bound))
    console.print(results.table(f"{result.model}: layers of one inference", heads + shares, rows))
    for output in result.outputs:
        print_output(console, result, output)
    if result.measured:
        per = result.cycles_each
        console.print(
            f"{result.inferences} inferences, {result.cycles:,} cycles ({per:,} each, {per / 1e6:.3f} ms "
            f"at 1 GHz); {result.engine}, {result.cell} cell: {result.cycles_per_second:,.0f} cycles/s"
        )
    else:
        console.print(f"{result.inferences} inferences, - cycles ({result.engine} does not count them)")
    if timing := timing_line(result.dram):
        console.print(timing)
    if result.measured:
        console.print(time_line(per, result.submits))
        console.print(published_line())
        if result.tensors_kept:
            console.print(KEPT)
    if result.memory:
        memory = result.memory
        console.print(
            f"memory: weights {memory['weights']:,}, commands {memory['commands']:,}, activations "
            f"{memory['activations']:,} bytes (if tensors share memory "
            f"{memory['activations_shared']:,}, if not "
            f"{memory['activations_separate']:,})"
        )
    for line in result.host.lines():
        console.print(line, markup=False, highlight=False)
    if result.floats_in_fp16:
        console.print(IN_FP16)
    if result.top1 is not None:
        beside = (
            f", {result.reference} {result.reference_top1:.1%}" if result.reference_top1 is not None else ""
        )
        console.print(f"top-1: {result.top1:.1%}{beside}")
    if result.reference_agrees is not None:
        agrees = f"{result.reference_agrees} of {result.inferences}"
        console.print(f"same label as {result.reference}: {agrees}")
    match = result.verdict["match"]
    if match is None:
        console.print("not checked (--check compares with the golden models)")
    elif match:
        gone = result.verdict.get("overwritten", 0)
        if "nodes" in result.verdict:
            console.print(nodes_line(result.verdict))
        what = f"every tensor except {gone} overwritten ones" if gone else "every tensor"
        console.print(f"MATCH: {' = '.join(result.verdict['levels'])}, {what}, bit for bit")
    else:
        console.print(
            f"MISMATCH at inference {result.verdict['inference']}: {result.verdict['first_difference']}"
        )


def print_output(console: Any, result: Any, output: Mapping[str, Any]) -> None:
    """Print an output: its class if its elements are scores, and how far it is from the reference's."""
    line, beside = f"output {output['name']} {output['shape']}", []
    if output["top1"] is not None:
        line += f", top-1 {output['top1']}"
        beside += [f"top-1 {output['reference_top1']}"] if "reference_top1" in output else []
    if "reference_worst" in output:
        worst, mean = output["reference_worst"], output["reference_mean"]
        steps = output["reference_unit"] == "steps"
        far = (
            f"{worst:.3g} steps, mean {mean:.3g}" if steps else f"{worst:.3%} of the largest, mean {mean:.3%}"
        )
        beside.append(f"apart by at most {far}")
        beside += [f"cosine {output['reference_cosine']:.6f}"] if "reference_cosine" in output else []
    if beside:
        file = "" if result.reference_source == result.model else f" on {result.reference_source}"
        line += f"; {result.reference}{file}: {', '.join(beside)}"
    console.print(line)


def nodes_line(verdict: Mapping[str, Any]) -> str:
    """Return a line about the comparison of the nodes of a .rknn file with their mathematical values."""
    missing = verdict["nodes_not_judged"]
    text = (
        f"{verdict['nodes_right']} of {verdict['nodes']} nodes within the bound of their mathematical value"
    )
    if verdict["cancelled_elements"]:
        count = verdict["cancelled_elements"]
        text += f" ({count:,} elements beyond 2 ulp where large terms cancel, within the rounding of sums)"
    for item in missing[:SHOWN]:
        text += f"\nnot compared: {item['node']}: {item['why']}"
    return text + (f"\nnot compared: {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")


def print_shards(console: Any, result: Any) -> None:
    """Print which worker simulated which tasks."""
    rows = result.shards
    if not rows:
        return
    count = len({row["worker"] for row in rows})
    workers = "a worker" if count == 1 else f"{count} workers"
    longest = max(rows, key=lambda row: row["seconds"])
    extra = sum(row["simulated_cycles"] for row in rows) / max(sum(row["cycles"] for row in rows), 1) - 1
    again = sum(row["retries"] for row in rows)
    console.print(
        f"{len(rows)} shard{'s' * (len(rows) > 1)} on {workers}, {extra:.1%} of the cycles simulated twice; "
        f"longest: {longest['seconds']:.1f} s for tasks {longest['first_task']} to {longest['last_task']}"
        + (f"; {again} repeated after a worker was lost" if again else "")
    )


def _check_names(
    asked: RunOptions, trace: TraceSpec | None, values: Mapping[str, Any], inferences: int
) -> None:
    """Check that the layers, tasks and scopes named for a waveform or a snapshot exist."""
    from rkcosim.cli.moments import Work, check_layer, check_trace, work_of_model

    kinds = {when.kind for when in (trace.start, trace.stop) if when} if trace else set()
    at = asked.border
    work = Work(None, cores=values["cores"])
    if kinds & {"layer", "task"} or (at is not None and at.layer):
        work = work_of_model(asked.model, values["cores"], values["check"], inferences)
    check_trace(trace, work)
    if at is not None and at.layer:
        check_layer(at.text, at.layer, work)
