"""`rkcosim`: the one command of the project.  Heavy imports wait until a command needs them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosim.cli import complete
from cosim.cli.app import App, examples
from cosim.cli.bench_app import declare as declare_bench
from cosim.cli.counters_app import declare as declare_counters
from cosim.cli.estimate_app import declare as declare_estimate
from cosim.cli.options import (
    INPUT_HELP,
    CoresOption,
    DramOption,
    EngineOption,
    ExactOption,
    JsonOption,
    LogOption,
    ReportOption,
    ShareOption,
    VerboseOption,
    recorded,
    saved,
    threaded,
    traced,
)
from cosim.cli.regcmd_app import regcmd_app
from cosim.cli.report_app import HtmlOption
from cosim.cli.report_app import declare as declare_report
from cosim.cli.shards_app import SchedulerOption, Shards, ShardsOption, WorkersOption
from cosim.cli.shards_app import declare as declare_sweep
from cosim.cli.timeline_app import declare as declare_timeline
from cosim.cli.validate_app import declare as declare_validate
from cosim.cli.verilog_app import declare as declare_verilog
from cosim.cli.waves_app import declare as declare_waves
from rtl.regs.options import VARIABLE, chosen_options

if TYPE_CHECKING:
    from waves.spec import TraceSpec

app = App(
    help="The RK3588 NPU as cycle-accurate RTL: run models and register-command streams without a board."
)


@app.callback()
def root(
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME",
            help="Use the other reading of the hardware where boards do not decide (docs/hardware.md); "
            "repeatable, before the command.",
        ),
    ] = None,
) -> None:
    """Set what holds for every command."""
    if option:
        try:
            chosen = chosen_options(option)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--option") from None
        os.environ[VARIABLE] = ",".join(sorted(chosen))


app.add_typer(regcmd_app, name="regcmd")
declare_waves(app)
declare_timeline(app)
declare_report(app)
declare_counters(app)
declare_sweep(app)
declare_validate(app)
declare_verilog(app)
declare_bench(app)
declare_estimate(app)


@app.command(
    epilog=examples(
        "rkcosim run examples/digits/digits_int8.onnx -i examples/digits/held_back.npz --limit 3 --check",
        "rkcosim run model.tflite --input cat.bmp --cores 3 --html run.html",
        "rkcosim run model.onnx --trace build/run.fst --from layer:conv3 --scope 'core0.CNA'",
        "rkcosim run model.onnx --shards auto --scheduler tcp://farm:8786",
        "rkcosim run model.onnx --engine golden --json - | jq .verdict",
        "rkcosim run model.onnx --dram peak_bytes_per_cycle=11.75 --dram read_latency=200",
        "rkcosim run model.onnx --save build/conv3.snap --at layer:conv3",
        "rkcosim run model.onnx --resume build/conv3.snap",
    )
)
@traced
@recorded
@saved
@threaded
def run(
    model: Annotated[Path, typer.Argument(help="ONNX (int8 in QDQ form) or TFLite (full-integer) model.")],
    input: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", help=INPUT_HELP),
    ] = None,
    engine: EngineOption = None,
    exact: ExactOption = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compare every tensor with both golden models.")
    ] = False,
    json: JsonOption = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Inferences at most."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of random inputs, used where no --input is given.")] = 0,
    trace: TraceSpec | None = None,
    cores: ShareOption = 1,
    dram: DramOption = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the table of layers to this file.")] = None,
    html: HtmlOption = None,
    shards: ShardsOption = None,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    snapshot: Any = None,
) -> None:
    """Run a model through rknn_api on the simulated NPU and report cycles per layer."""
    from cosim.cli.run import run_command
    from cosim.engines.settings import dram_of

    memory = dram_of(dram, engine)
    parts = Shards.of(shards, scheduler, workers)
    out = json, limit, seed, trace, cores, csv, html
    run_command(model, input or [], engine, exact, check, *out, parts, snapshot, memory)


@app.command(
    "compile",
    epilog=examples(
        "rkcosim compile examples/digits/digits_int8.onnx --explain",
        "rkcosim compile model.tflite -o model.rkc --cores 3",
    ),
)
def compile_(
    model: Annotated[Path, typer.Argument(help="TFLite or ONNX model.")],
    output: Annotated[Path | None, typer.Option("-o", help="Write the compiled model to this file.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print tasks, tiles, banks and places.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Give each tensor memory of its own.")] = False,
    cores: ShareOption = 1,
    json: JsonOption = None,
) -> None:
    """Compile a model: its tasks and memory, and a file that runs without the original."""
    from cosim.cli.compile import compile_command

    compile_command(model, output, explain, keep, cores, json)


@app.command(
    epilog=examples(
        "rkcosim compare examples/digits/digits_int8.onnx --input examples/digits/held_back.npz --limit 5",
        "rkcosim compare model.tflite --input cat.bmp --reference litert",
    )
)
def compare(
    model: Annotated[Path, typer.Argument(help="TFLite or ONNX model.")],
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=complete.references,
            help="litert or onnxruntime; default: that of the model's format.",
        ),
    ] = None,
    input: Annotated[list[Path] | None, typer.Option("--input", "-i", help=INPUT_HELP)] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Inferences at most.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of random inputs, used where no --input is given.")] = 0,
    json: JsonOption = None,
) -> None:
    """Compare every layer with another runtime, each layer fed with that runtime's inputs."""
    from cosim.cli.compare import compare_command

    compare_command(model, reference, input or [], limit, seed, json)


@app.command(
    epilog=examples(
        'rkcosim explain "failed to submit, int status: 0x100"',
        "rkcosim explain 0x15",
        "dmesg | rkcosim explain",
    ),
    context_settings={"ignore_unknown_options": True},
)
def explain(
    words: Annotated[
        list[str] | None, typer.Argument(help="Log line, code, status or register; default: standard input.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Say in words what lines of the driver's or runtime's log, codes and status values mean."""
    from cosim.cli.explain import explain_command

    explain_command(words or [], json)


@app.command(
    epilog=examples(
        "rkcosim diff examples/streams/pool.json --against examples/streams/pool.json --engine golden",
        "rkcosim diff stream.json --against capture.json",
        "rkcosim diff before.fst after.fst",
        "rkcosim diff before.parquet after.parquet",
        "rkcosim diff before.json after.json",
    )
)
def diff(
    file: Annotated[
        Path,
        typer.Argument(help="A stream to run, a capture, a waveform, an event log, or a report (--json)."),
    ],
    other: Annotated[Path | None, typer.Argument(help="Another of the same kind.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="A capture's manifest or another stream; default: what the stream file expects."),
    ] = None,
    engine: EngineOption = None,
    exact: ExactOption = False,
    max_cycles: Annotated[int, typer.Option(min=1, help="Bound of the wait for the interrupt.")] = 10_000_000,
    json: JsonOption = None,
) -> None:
    """Name the first difference of two runs: register, surface, signal and cycle, event or layer."""
    from cosim.cli.diff import diff_command

    diff_command(file, other, against, engine, exact, max_cycles, json)


@app.command(epilog=examples("rkcosim fuzz --engine golden --inputs 20000 --seed 1"))
def fuzz(
    inputs: Annotated[int, typer.Option(min=1, help="Hostile inputs to send.")] = 500,
    seed: Annotated[int | None, typer.Option(help="Seed of all draws; default: a fresh one.")] = None,
    engine: EngineOption = None,
    exact: ExactOption = False,
    log: Annotated[Path | None, typer.Option(help="Write the kernel's log here.")] = None,
    json: JsonOption = None,
) -> None:
    """Send hostile ioctls and command lists to the kernel's model and check that it holds."""
    from cosim.cli.fuzz import fuzz_command

    fuzz_command(inputs, seed, engine, exact, log, json)


@app.command(epilog=examples("rkcosim doctor", "rkcosim doctor --json - --quiet"))
def doctor(json: JsonOption = None) -> None:
    """Say what is missing on this machine and how to get it."""
    from cosim.cli.doctor_command import doctor_command

    doctor_command(json)


@app.command(
    epilog=examples(
        "rkcosim conformance --only fp16 --tasks 200",
        "rkcosim conformance --seed 7 --only 'conv int8' --case 12",
        "rkcosim conformance --tasks 2000 --coverage build/coverage.md --json build/conformance.json",
    )
)
def conformance(
    seed: Annotated[int | None, typer.Option(help="Seed of all draws; default: a fresh one.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Tasks to run, shared among groups.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", autocompletion=complete.groups, help="Groups whose name is or contains this."
        ),
    ] = None,
    engine: EngineOption = None,
    exact: ExactOption = False,
    json: JsonOption = None,
    plans: Annotated[
        Path | None, typer.Option(help="Run the tile plans in this folder (*.csv) instead.")
    ] = None,
    coverage: Annotated[
        Path | None, typer.Option(help="Write the field coverage here, and support.md beside it.")
    ] = None,
    case: Annotated[int | None, typer.Option(min=0, help="Only this case of one group.")] = None,
    failures: Annotated[Path, typer.Option(help="Folder for streams of failing tasks.")] = Path(
        "build/conformance"
    ),
    shrink: Annotated[bool, typer.Option("--shrink/--no-shrink", help="Make failing tasks small.")] = True,
) -> None:
    """Run random tasks of every type and mode on RTL and golden model and compare everything."""
    from cosim.cli.conformance import conformance_command

    conformance_command(seed, tasks, only or [], engine, exact, json, plans, coverage, case, failures, shrink)


@app.command(
    epilog=examples(
        "rkcosim device --engine golden --report -- python examples/device/program.py rknpu",
        "rkcosim device --log - --trace build/program.fst -- ./program arguments",
        "rkcosim device --socket /run/user/1000/rkcosim.sock -- ./program",
    ),
    context_settings={"allow_interspersed_args": False},
)
@traced
@recorded
@threaded
def device(
    program: Annotated[list[str] | None, typer.Argument(help="Program and its arguments, after --.")] = None,
    socket: Annotated[
        Path | None, typer.Option(help="Use the server (rkcosim serve) that listens at this path.")
    ] = None,
    engine: EngineOption = None,
    cores: Annotated[
        int | None, typer.Option(min=1, max=3, help="Cores of the simulated NPU (default 3).")
    ] = None,
    exact: ExactOption = False,
    dram: DramOption = None,
    log: LogOption = None,
    verbose: VerboseOption = False,
    trace: TraceSpec | None = None,
    report: ReportOption = False,
    json: JsonOption = None,
) -> None:
    """Run an unmodified program that uses the NPU's device nodes; the exit code is the program's."""
    from cosim.cli.device import device_command
    from cosim.engines.settings import dram_of

    memory = dram_of(dram, engine)
    device_command(program or [], socket, engine, cores, exact, log, verbose, trace, report, json, memory)


@app.command(
    epilog=examples("rkcosim serve --engine golden --log -", "rkcosim serve --socket /tmp/npu.sock --report")
)
@traced
@recorded
@threaded
def serve(
    socket: Annotated[
        Path | None, typer.Option(help="Unix socket to listen at; default: in the user's runtime folder.")
    ] = None,
    engine: EngineOption = None,
    cores: CoresOption = 3,
    exact: ExactOption = False,
    dram: DramOption = None,
    log: LogOption = None,
    verbose: VerboseOption = False,
    trace: TraceSpec | None = None,
    report: ReportOption = False,
    json: JsonOption = None,
) -> None:
    """Serve one simulated NPU to several programs (`rkcosim device --socket`) until stopped."""
    from cosim.cli.device import serve_command
    from cosim.engines.settings import dram_of

    memory = dram_of(dram, engine)
    serve_command(socket, engine, cores, exact, log, verbose, trace, report, json, memory)


def main() -> None:
    """Entry point of the `rkcosim` command."""
    app()


if __name__ == "__main__":
    main()
