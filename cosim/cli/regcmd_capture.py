"""`rkcosim regcmd capture` and `import`: the jobs of a program, or a board's capture, as stream files."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.cli.app import Options, argument, command, option
from rkcosim.cli.options import Cores, DramOptions, Program

if TYPE_CHECKING:
    from rkcosim.devices.recorder import Captured


@dataclass(frozen=True, kw_only=True)
class ImportOptions(Options):
    """Options of `rkcosim regcmd import`."""

    manifest: Path = argument("Manifest of a capture (docs/capture.md).")
    output: Path = option("Stream file to write.", "-o", "--output", default=MISSING, writes=True)


@command("rkcosim regcmd import capture.json -o stream.json")
def import_command(asked: ImportOptions) -> None:
    """Convert a capture of a board into a stream file.

    A capture consists of files of command words, buffers and outputs, and a manifest.
    """
    from rkcosim.verify.differences.streams import walked
    from rkcosim.verify.streams.capture import import_capture, save

    stream, expected = import_capture(asked.manifest)
    words, broken, _ = walked(stream)
    save(stream, expected, asked.output)
    total = sum(region.data.size for region in stream.regions)
    print(
        f"{len(words)} tasks, {len(stream.regions)} regions with {total} bytes, "
        f"{len(expected.outputs)} outputs to compare -> {asked.output}"
    )
    if broken is not None:
        print(broken.place)
    figures = {"tasks": len(words), "regions": len(stream.regions), "outputs": len(expected.outputs)}
    chain = {} if broken is None else {"chain": broken.place}
    asked.write({"output": str(asked.output), **figures, "bytes": total, **chain})


@dataclass(frozen=True, kw_only=True)
class CaptureOptions(DramOptions):
    """Options of `rkcosim regcmd capture`."""

    program: Program = ()
    output: Path = option(
        "Write the first job to this stream file; later jobs are written to files next to it, named by job.",
        "-o",
        "--output",
        default=Path("capture.json"),
        writes=True,
    )
    job: int | None = option("Write only this job, counted from 1.", low=1)
    cores: Cores = 3


@command(
    "rkcosim regcmd capture -o job.json -- python examples/device/program.py rknpu",
    "rkcosim regcmd capture -o conv.json --job 3 --engine golden -- ./program arguments",
    context={"allow_interspersed_args": False},
    waits=True,
)
def capture_command(asked: CaptureOptions) -> None:
    """Run a program and write each of its jobs as a stream file.

    The program runs on a simulated device. `rkcosim regcmd run` replays the files. The exit code is the
    program's; 70 if it is 0 and an internal error occurred behind a call.
    """
    from rkcosim.devices import program as run
    from rkcosim.devices.simulated import SimulatedMachine

    if not asked.program:
        raise ValueError("capture: no program given: rkcosim regcmd capture -o FILE -- PROGRAM ARGUMENTS...")
    writer = _Writer(asked.output, asked.job)
    run.many_descriptors()
    with SimulatedMachine(
        asked.engine, cores=asked.cores, exact=asked.exact, dram=asked.memory, capture=writer
    ) as machine:
        with machine.failures.watching(), run.private_server(machine) as server:
            code = run.run_program(list(asked.program), run.environment(server.path))
    code = machine.failures.code(code)
    asked.write({"exit_code": code, "jobs": writer.jobs, "files": writer.files})
    if writer.failures:
        raise ValueError(f"capture: {'; '.join(writer.failures)}")
    if not writer.files and not code:
        which = "no job" if asked.job is None else f"{writer.jobs} jobs, none of them number {asked.job}"
        raise ValueError(f"capture: the program started {which}")
    raise SystemExit(code)


class _Writer:
    """Writes each job when it ends: the first one to the given file, later ones next to it."""

    def __init__(self, output: Path, job: int | None) -> None:
        self.output, self.job = output, job
        self.files: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.jobs = 0

    def __call__(self, captured: Captured) -> None:
        from rkcosim.verify.streams.stream import StreamError

        self.jobs = max(self.jobs, captured.job)
        if self.job is not None and captured.job != self.job:
            return
        path = self.output
        if self.files or self.failures:
            name = f"{path.stem}-job{captured.job}"
            name += f"-core{captured.core}" if captured.core else ""
            name += f"-kick{captured.kick}" if captured.kick > 1 else ""
            path = path.with_name(name + (path.suffix or ".json"))
        try:
            captured.save(path)
        except (OSError, StreamError) as error:
            why = f" to {path}: {error.strerror}" if isinstance(error, OSError) else f": {error}"
            self.failures.append(f"job {captured.job} could not be written{why}")
            return
        print(f"{captured.text()} -> {path}", flush=True)
        numbers = {name: getattr(captured, name) for name in ("job", "kick", "core", "driver")}
        figures: dict[str, int | None] = {
            "tasks": captured.stream.kick.tasks,
            "outputs": len(captured.expected.outputs),
        }
        figures["cycles"] = captured.cycles if captured.measured else None
        self.files.append({"file": str(path), **numbers, **figures})
