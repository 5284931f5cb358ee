"""Declarations of `rkcosim regcmd ...`: register-command streams as text and back, and on RTL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosim.cli import complete
from cosim.cli.app import App, examples
from cosim.cli.options import (
    CoresOption,
    DramOption,
    EngineOption,
    ExactOption,
    JsonOption,
    ShareOption,
    recorded,
    saved,
    threaded,
    traced,
)
from cosim.cli.report_app import HtmlOption

if TYPE_CHECKING:
    from waves.spec import TraceSpec

regcmd_app = App(help="Register-command streams as text and back, and on RTL.")


InputsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INPUT",
        help="A stream file, a capture's manifest, a model (.onnx, .tflite, compiled), a text, a binary file "
        "of words or of a whole buffer, words themselves, or - for standard input.",
    ),
]
AddressOption = Annotated[
    str | None, typer.Option("--address", help="Device address of a binary file's first byte.")
]
OffsetOption = Annotated[int, typer.Option(min=0, help="Bytes of a binary file to leave out.")]
CountOption = Annotated[int | None, typer.Option(min=1, help="Words of a binary file to take.")]
RecordsOption = Annotated[bool, typer.Option("--records", help="The file holds struct rknpu_task records.")]
MemoryOption = Annotated[
    list[str] | None,
    typer.Option("--memory", metavar="FILE@ADDRESS", help="Where the lists of --records lie."),
]


@regcmd_app.command(
    epilog=examples(
        "rkcosim regcmd dump task.bin",
        "rkcosim regcmd dump stream.json --diff other.json",
        "rkcosim regcmd dump model.tflite -o model.txt",
        "rkcosim regcmd dump stream.json --events run.parquet --at 1200",
        "rkcosim regcmd dump 0x020100000000100c",
    )
)
def dump(
    inputs: InputsArgument = None,
    output: Annotated[Path | None, typer.Option("-o", help="Write here instead of the screen.")] = None,
    json: JsonOption = None,
    diff: Annotated[
        str | None, typer.Option("--diff", metavar="OTHER", help="Print two inputs side by side.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="With --diff: what is the same too.")] = False,
    with_memory: Annotated[
        bool, typer.Option("--with-memory", help="Of a stream: its memory too, so that asm makes it whole.")
    ] = False,
    events: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Event log or waveform of a run: a cycle for each line."),
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", help="With --events: the lines around this cycle.")
    ] = None,
    job: Annotated[int, typer.Option(min=0, help="With --events: which job of the run, from 0.")] = 0,
    context: Annotated[int, typer.Option(min=0, help="With --at: lines on both sides.")] = 3,
    address: AddressOption = None,
    offset: OffsetOption = 0,
    count: CountOption = None,
    records: RecordsOption = False,
    memory: MemoryOption = None,
    cores: ShareOption = 1,
) -> None:
    """Print command lists as text, register by register and field by field."""
    from cosim.cli.regcmd_dump import dump_command

    part = {"address": address, "offset": offset, "count": count, "records": records, "memory": memory}
    dump_command(
        inputs or [], output, json, diff, all_, with_memory, events, at, job, context, **part, cores=cores
    )


@regcmd_app.command(
    epilog=examples(
        "rkcosim regcmd asm task.txt -o task.bin",
        "rkcosim regcmd asm edited.txt --into stream.json -o changed.json",
    )
)
def asm(
    file: Annotated[Path, typer.Argument(help="Text form, as `dump` prints it.")],
    output: Annotated[Path, typer.Option("-o", help="Binary file to write, or a stream file (.json).")],
    into: Annotated[
        Path | None, typer.Option(metavar="STREAM", help="Put the words into a copy of this stream file.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Turn the text form back into the same words, or into the same stream."""
    from cosim.cli.regcmd_dump import asm_command

    asm_command(file, output, into, json)


@regcmd_app.command(
    epilog=examples(
        "rkcosim regcmd lint stream.json",
        "rkcosim regcmd lint model.tflite --notes",
        "rkcosim regcmd lint --explain --rule cbuf.features",
    )
)
def lint(
    inputs: InputsArgument = None,
    rule: Annotated[list[str] | None, typer.Option(help="Ask only this rule; may be repeated.")] = None,
    notes: Annotated[bool, typer.Option("--notes", help="Print notes too.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Print the rules with their reasons.")] = False,
    json: JsonOption = None,
    address: AddressOption = None,
    offset: OffsetOption = 0,
    count: CountOption = None,
    records: RecordsOption = False,
    memory: MemoryOption = None,
    cores: ShareOption = 1,
) -> None:
    """Say what the hardware would choke on in command lists, with the reason; exit code 1 for errors."""
    from cosim.cli.regcmd_dump import lint_command

    part = {"address": address, "offset": offset, "count": count, "records": records, "memory": memory}
    lint_command(inputs or [], rule or [], notes, explain, json, **part, cores=cores)


@regcmd_app.command("import", epilog=examples("rkcosim regcmd import capture.json -o stream.json"))
def regcmd_import(
    manifest: Annotated[Path, typer.Argument(help="Manifest of a capture (docs/capture.md).")],
    output: Annotated[Path, typer.Option("-o", help="Stream file to write.")],
    json: JsonOption = None,
) -> None:
    """Turn a capture of a board (command words, buffers, outputs as files) into a stream file."""
    from cosim.cli.diff import import_command

    import_command(manifest, output, json)


@regcmd_app.command(
    "run",
    epilog=examples(
        "rkcosim regcmd run examples/streams/pool.json --check",
        "rkcosim regcmd run examples/streams/pool.json --trace build/pool.vcd --scope core0.PPU",
        "rkcosim regcmd run stream.json --max-cycles 200000 --trace build/end.fst --from error",
        "rkcosim regcmd run stream.json --save build/task3.snap --at task:3",
    ),
)
@traced
@recorded
@saved
@threaded
def regcmd_run(
    file: Annotated[Path, typer.Argument(help="Stream file: command lists with their memory image (JSON).")],
    engine: EngineOption = None,
    exact: ExactOption = False,
    check: Annotated[bool, typer.Option("--check", help="Compare all memory with the golden model.")] = False,
    on_diagnostic: Annotated[
        str,
        typer.Option(autocompletion=complete.diagnostic_modes, help="'stop', or 'go on' as silicon does."),
    ] = "stop",
    max_cycles: Annotated[int, typer.Option(min=1, help="Bound of the wait for the interrupt.")] = 10_000_000,
    dram: DramOption = None,
    json: JsonOption = None,
    trace: TraceSpec | None = None,
    html: HtmlOption = None,
    snapshot: Any = None,
) -> None:
    """Run a stream with its memory image, on RTL or on the golden model."""
    from cosim.cli.regcmd import run_command
    from cosim.engines.settings import dram_of

    memory = dram_of(dram, engine)
    run_command(file, engine, exact, check, on_diagnostic, max_cycles, json, trace, html, snapshot, memory)


@regcmd_app.command(
    epilog=examples(
        "rkcosim regcmd capture -o job.json -- python examples/device/program.py rknpu",
        "rkcosim regcmd capture -o conv.json --job 3 --engine golden -- ./program arguments",
    ),
    context_settings={"allow_interspersed_args": False},
)
def capture(
    program: Annotated[list[str] | None, typer.Argument(help="Program and its arguments, after --.")] = None,
    output: Annotated[
        Path, typer.Option("-o", help="Stream file; further kicks go beside it, named by job.")
    ] = Path("capture.json"),
    job: Annotated[int | None, typer.Option(min=1, help="Only this job, counted from 1.")] = None,
    engine: EngineOption = None,
    cores: CoresOption = 3,
    exact: ExactOption = False,
    dram: DramOption = None,
    json: JsonOption = None,
) -> None:
    """Run a program on the simulated device and write each job as a stream file that `run` replays."""
    from cosim.cli.regcmd_capture import capture_command
    from cosim.engines.settings import dram_of

    capture_command(program or [], output, job, engine, cores, exact, json, dram_of(dram, engine))
