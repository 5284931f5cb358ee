"""`rkcosim`: the one command of the project.  Heavy imports wait until a command needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="The RK3588 NPU as cycle-accurate RTL: run models and register-command streams without a board.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
regcmd_app = typer.Typer(help="Register-command streams as text and back, and on RTL.", no_args_is_help=True)
app.add_typer(regcmd_app, name="regcmd")

INPUT_HELP = ".npz with images (and labels), pictures (BMP, PPM), or one .npy per model input."
EngineOption = Annotated[
    str | None,
    typer.Option(help="verilator, cxxrtl, amaranth or golden; default: the fastest there is."),
]
ExactOption = Annotated[bool, typer.Option("--exact", help="Simulate the array cell's RTL too (slower).")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")]
ShareOption = Annotated[int, typer.Option(min=1, max=3, help="Cores that share large layers.")]
TraceOption = Annotated[Path | None, typer.Option(help="Write a waveform (VCD) to this file.")]
FromOption = Annotated[int, typer.Option("--from", help="First cycle of the waveform.")]
ToOption = Annotated[int | None, typer.Option("--to", help="Last cycle of the waveform.")]


@app.command(
    epilog="Example: rkcosim run examples/digits/digits_int8.onnx --input examples/digits/held_back.npz "
    "--limit 3 --check"
)
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
    trace: TraceOption = None,
    trace_from: FromOption = 0,
    trace_to: ToOption = None,
    cores: ShareOption = 1,
    csv: Annotated[Path | None, typer.Option(help="Also write the table of layers to this file.")] = None,
) -> None:
    """Run a model through rknn_api on the simulated NPU and report cycles per layer."""
    from cosim.cli.run import run_command

    window = _window(trace, trace_from, trace_to)
    run_command(model, input or [], engine, exact, check, json, limit, seed, window, cores, csv)


@app.command("compile", epilog="Example: rkcosim compile model.tflite -o model.rkc --explain")
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


@app.command(epilog="Example: rkcosim compare model.tflite --input cat.bmp --reference litert")
def compare(
    model: Annotated[Path, typer.Argument(help="TFLite or ONNX model.")],
    reference: Annotated[
        str | None, typer.Option(help="litert or onnxruntime; default: that of the model's format.")
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
    epilog='Example: dmesg | rkcosim explain; or: rkcosim explain "int status 0x15"',
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


@app.command(epilog="Example: rkcosim diff stream.json --against capture.json --engine golden")
def diff(
    file: Annotated[Path, typer.Argument(help="Stream file to run.")],
    against: Annotated[
        Path | None,
        typer.Option(help="A capture's manifest or another stream; default: what the stream file expects."),
    ] = None,
    engine: EngineOption = None,
    exact: ExactOption = False,
    max_cycles: Annotated[int, typer.Option(min=1, help="Bound of the wait for the interrupt.")] = 10_000_000,
    json: JsonOption = None,
) -> None:
    """Run a stream and name the first register or surface that differs from a board's or another run."""
    from cosim.cli.diff import diff_command

    diff_command(file, against, engine, exact, max_cycles, json)


@app.command(epilog="Example: rkcosim fuzz --engine golden --inputs 20000 --seed 1")
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


@app.command(epilog="Example: rkcosim doctor")
def doctor(json: JsonOption = None) -> None:
    """Say what is missing on this machine and how to get it."""
    from cosim.cli.doctor_command import doctor_command

    doctor_command(json)


@app.command(epilog="Example: rkcosim conformance --only fp16 --tasks 200")
def conformance(
    seed: Annotated[int | None, typer.Option(help="Seed of all draws; default: a fresh one.")] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="Tasks to run, shared among groups.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Groups whose name is or contains this.")] = None,
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


CoresOption = Annotated[int, typer.Option(min=1, max=3, help="Cores of the simulated NPU.")]
LogOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="The kernel's log (as dmesg) into a file, - for stderr.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Every ioctl that fails into the log too.")]
ReportOption = Annotated[bool, typer.Option("--report", help="Jobs, tasks, cycles and host time at the end.")]


@app.command(
    epilog="Example: rkcosim device --engine golden --report -- ./program",
    context_settings={"allow_interspersed_args": False},
)
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
    log: LogOption = None,
    verbose: VerboseOption = False,
    trace: TraceOption = None,
    trace_from: FromOption = 0,
    trace_to: ToOption = None,
    report: ReportOption = False,
    json: JsonOption = None,
) -> None:
    """Run an unmodified program that uses the NPU's device nodes; the exit code is the program's."""
    from cosim.cli.device import device_command

    window = _window(trace, trace_from, trace_to)
    device_command(program or [], socket, engine, cores, exact, log, verbose, window, report, json)


@app.command(epilog="Example: rkcosim serve --engine golden --log -")
def serve(
    socket: Annotated[
        Path | None, typer.Option(help="Unix socket to listen at; default: in the user's runtime folder.")
    ] = None,
    engine: EngineOption = None,
    cores: CoresOption = 3,
    exact: ExactOption = False,
    log: LogOption = None,
    verbose: VerboseOption = False,
    trace: TraceOption = None,
    trace_from: FromOption = 0,
    trace_to: ToOption = None,
    report: ReportOption = False,
    json: JsonOption = None,
) -> None:
    """Serve one simulated NPU to several programs (`rkcosim device --socket`) until stopped."""
    from cosim.cli.device import serve_command

    window = _window(trace, trace_from, trace_to)
    serve_command(socket, engine, cores, exact, log, verbose, window, report, json)


@regcmd_app.command(epilog="Example: rkcosim regcmd dump task.bin -o task.txt")
def dump(
    file: Annotated[Path, typer.Argument(help="Words as a binary file, 8 bytes each, little-endian.")],
    output: Annotated[Path | None, typer.Option("-o", help="Write here instead of the screen.")] = None,
    json: JsonOption = None,
) -> None:
    """Print a command list as text, register by register and field by field."""
    from cosim.cli.regcmd import dump_command

    dump_command(file, output, json)


@regcmd_app.command(epilog="Example: rkcosim regcmd asm task.txt -o task.bin")
def asm(
    file: Annotated[Path, typer.Argument(help="Text form, as `dump` prints it.")],
    output: Annotated[Path, typer.Option("-o", help="Binary file to write.")],
) -> None:
    """Turn the text form back into the same words."""
    from cosim.cli.regcmd import asm_command

    asm_command(file, output)


@regcmd_app.command("import", epilog="Example: rkcosim regcmd import capture.json -o stream.json")
def regcmd_import(
    manifest: Annotated[Path, typer.Argument(help="Manifest of a capture (docs/capture.md).")],
    output: Annotated[Path, typer.Option("-o", help="Stream file to write.")],
) -> None:
    """Turn a capture of a board (command words, buffers, outputs as files) into a stream file."""
    from cosim.cli.diff import import_command

    import_command(manifest, output)


@regcmd_app.command("run", epilog="Example: rkcosim regcmd run pool.json --engine verilator --check")
def regcmd_run(
    file: Annotated[Path, typer.Argument(help="Stream file: command lists with their memory image (JSON).")],
    engine: EngineOption = None,
    exact: ExactOption = False,
    check: Annotated[bool, typer.Option("--check", help="Compare all memory with the golden model.")] = False,
    on_diagnostic: Annotated[str, typer.Option(help="'stop', or 'go on' as silicon does.")] = "stop",
    max_cycles: Annotated[int, typer.Option(min=1, help="Bound of the wait for the interrupt.")] = 10_000_000,
    json: JsonOption = None,
    trace: TraceOption = None,
    trace_from: FromOption = 0,
    trace_to: ToOption = None,
) -> None:
    """Run a stream with its memory image, on RTL or on the golden model."""
    from cosim.cli.regcmd import run_command

    window = _window(trace, trace_from, trace_to)
    run_command(file, engine, exact, check, on_diagnostic, max_cycles, json, window)


def _window(trace: Path | None, first: int, last: int | None) -> tuple[Path, int, int | None] | None:
    """What to trace, with a folder for the file."""
    if trace is None:
        return None
    trace.parent.mkdir(parents=True, exist_ok=True)
    return trace, first, last


def main() -> None:
    """Entry point of the `rkcosim` command."""
    app()


if __name__ == "__main__":
    main()
