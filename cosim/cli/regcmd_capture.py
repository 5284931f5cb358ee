"""`rkcosim regcmd capture`: a program's kicks as stream files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.cli.exits import BAD_INPUT, fail, write_json

if TYPE_CHECKING:
    from cosim.devices.recorder import Captured
    from cosim.engines.library import DramConfig

SCHEMA_VERSION = 1


def capture_command(
    program: list[str],
    output: Path,
    job: int | None,
    engine: str | None,
    cores: int,
    exact: bool,
    json: Path | None,
    dram: DramConfig | None = None,
) -> None:
    """Run a program on a device of its own and write what it starts; the exit code is the program's."""
    from cosim.devices import program as run
    from cosim.devices.simulated import SimulatedMachine

    if not program:
        fail("capture: name a program: rkcosim regcmd capture -o FILE -- PROGRAM ARGUMENTS...", BAD_INPUT)
    writer = _Writer(output, job)
    run.many_descriptors()
    with SimulatedMachine(engine, cores=cores, exact=exact, dram=dram, capture=writer) as machine:
        with run.private_server(machine) as server:
            code = run.run_program(program, run.environment(server.path))
    if json:
        write_json(
            json,
            {"schema_version": SCHEMA_VERSION, "exit_code": code, "jobs": writer.jobs, "files": writer.files},
        )
    if writer.failures:
        fail(f"capture: {'; '.join(writer.failures)}", BAD_INPUT)
    if not writer.files and not code:
        which = "no job" if job is None else f"{writer.jobs} jobs, none of them number {job}"
        fail(f"capture: the program started {which}", BAD_INPUT)
    raise SystemExit(code)


class _Writer:
    """Writes each kick as it ends: the first one to the file itself, others beside it."""

    def __init__(self, output: Path, job: int | None) -> None:
        self.output, self.job = output, job
        self.files: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.jobs = 0

    def __call__(self, captured: Captured) -> None:
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
        except OSError as error:
            self.failures.append(f"job {captured.job} could not be written to {path}: {error.strerror}")
            return
        print(f"{captured.text()} -> {path}", flush=True)
        self.files.append(
            {
                "file": str(path),
                "job": captured.job,
                "kick": captured.kick,
                "core": captured.core,
                "driver": captured.driver,
                "tasks": captured.stream.kick.tasks,
                "cycles": captured.cycles,
                "outputs": len(captured.expected.outputs),
            }
        )
