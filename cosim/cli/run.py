"""`rkcosim run`: run a model on the simulated NPU; table per layer and verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rkcosim.cli import results
from rkcosim.cli.app import command, needs, option
from rkcosim.cli.exits import MISMATCH, NOTHING, OK
from rkcosim.cli.options import (
    Csv,
    Html,
    InputOptions,
    Plan,
    RecordedOptions,
    Scheduler,
    Share,
    Workers,
    one_cluster,
    planning,
)
from rkcosim.cli.results import write_csv
from rkcosim.cli.snapshots import SnapshotOptions

if TYPE_CHECKING:
    from rkcosim.cli.snapshots import SavedRun
    from rkcosim.waves.spec import TraceSpec


@dataclass(frozen=True, kw_only=True)
class RunOptions(InputOptions, RecordedOptions, SnapshotOptions):
    """Options of `rkcosim run`."""

    check: bool = option("Compare every tensor bit for bit with both golden models.", default=False)
    cores: Share = 1
    plan: Plan = "ours"
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

    The run uses rknn_api. With --check the exit code is 1 if a tensor differs from the golden models, and
    4 if nothing was compared, because no layer ran on the NPU.
    """
    from rkcosim.cli.snapshots import SavedRun

    names = ("engine", "exact", "check", "seed", "cores", "plan", "dram", "jobs_by", *asked.READING)
    with asked.recording() as trace:
        asked.sharded(trace)  # options that exclude each other are reported before a snapshot is read
        saving = SavedRun(asked, "run", asked.model, names, trace)
        with asked.reading(saving.values), planning(saving.values.get("plan", "ours")):
            _run(asked, trace, saving)


def _run(asked: RunOptions, trace: TraceSpec | None, saving: SavedRun) -> None:
    from rkcosim.base.files import read_model
    from rkcosim.measure.models.run import run_model
    from rkcosim.measure.models.summary import print_summary
    from rkcosim.rknn_file import is_rknn
    from rkcosim.rknn_file.opening import jobs_by

    console = results.console()
    sharded = asked.sharded(trace)
    values = {name: value for name, value in saving.values.items() if name not in asked.READING}
    asked_jobs = values.pop("jobs_by")
    values.pop("plan", None)  # the context in which this runs
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
    with _keeping(asked.html if sharded is None else None) as log, saving.running(), jobs_by(how):
        result = run(
            asked.model,
            batch.items if batch else None,
            **values,
            labels=labels,
            reference=True,
            each=each,
            **options,
        )
    print_summary(console, result)
    if sharded is not None:
        print_shards(console, result)
    if asked.csv:
        write_csv(asked.csv, [row.flat() for row in result.layers])
        console.print(f"CSV: {asked.csv}")
    asked.write(result.as_json(), say=True)
    if asked.html:
        from rkcosim.measure.report.kept import write_page

        write_page(asked.html, result.as_json(), log())
    saving.finish()
    if result.verdict["match"] and result.host.alone:
        raise SystemExit(NOTHING)
    raise SystemExit(MISMATCH if result.verdict["match"] is False else OK)


@contextmanager
def _keeping(html: Path | None) -> Iterator[Callable[[], Any]]:
    """Keep the events of the run in the block for the page `html`; yields what returns them afterwards."""
    if html is None:
        yield lambda: None
        return
    from rkcosim.measure.report.kept import keeping

    with keeping(html) as kept:
        yield lambda: kept.log


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
    if trace is None and asked.border is None:
        return
    from rkcosim.cli.moments import Work, check_layer, check_trace, work_of_model

    kinds = {when.kind for when in (trace.start, trace.stop) if when} if trace else set()
    at = asked.border
    work = Work(None, cores=values["cores"])
    if kinds & {"layer", "task"} or (at is not None and at.layer):
        work = work_of_model(asked.model, values["cores"], values["check"], inferences)
    check_trace(trace, work)
    if at is not None and at.layer:
        check_layer(at.text, at.layer, work)
