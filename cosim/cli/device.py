"""`rkcosim device` and `rkcosim serve`: unmodified programs on the simulated device."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cosim.cli.exits import BAD_INPUT, fail, reported, write_json

if TYPE_CHECKING:
    from cosim.engines.library import DramConfig
    from waves.spec import TraceSpec


@contextlib.contextmanager
def _log_stream(log: str | None) -> Iterator[TextIO | None]:
    """Where the kernel's log goes: nowhere, standard error ("-"), or a file."""
    if log is None:
        yield None
    elif log == "-":
        yield sys.stderr
    else:
        Path(log).parent.mkdir(parents=True, exist_ok=True)
        with open(log, "w") as stream:
            yield stream


def _give_account(account: Any, report: bool, json: Path | None, **more: object) -> None:
    """Print what happened, and write it to a file, as far as either is wanted."""
    if report:
        print(account.text(), file=sys.stderr)
    if json is not None:
        write_json(json, account.as_json() | more)


def device_command(
    program: list[str],
    socket: Path | None,
    engine: str | None,
    cores: int | None,
    exact: bool,
    log: str | None,
    verbose: bool,
    trace: TraceSpec | None,
    report: bool,
    json: Path | None,
    dram: DramConfig | None = None,
) -> None:
    """Run a program and end with its exit code."""
    with reported():
        from cosim.devices import program as run
        from cosim.devices.simulated import SimulatedMachine
        from cosim.engines import event_files

        if not program:
            fail("device: name a program: rkcosim device -- PROGRAM ARGUMENTS...", BAD_INPUT)
        if socket is not None:
            own: dict[str, object] = {"--engine": engine, "--cores": cores, "--exact": exact or None}
            own |= {"--log": log, "--verbose": verbose or None, "--trace": trace, "--report": report or None}
            own |= {"--dram": dram, "--json": json, "--events or --timeline": event_files.asked() or None}
            given = [name for name, value in own.items() if value is not None]
            if given:
                fail(f"device: {given[0]} belongs to the server (rkcosim serve), not to --socket", BAD_INPUT)
            run.check_server(socket)
            raise SystemExit(run.run_program(program, run.environment(socket)))
        run.many_descriptors()
        with (
            _log_stream(log) as stream,
            SimulatedMachine(
                engine, cores=cores or 3, exact=exact, dram=dram, log=stream, verbose=verbose, trace=trace
            ) as machine,
        ):
            with run.private_server(machine) as server:
                env = run.environment(server.path)
                machine.start_clock()
                code = run.run_program(program, env)
                account = machine.report()
            _give_account(account, report, json, exit_code=code)
        raise SystemExit(code)


def serve_command(
    socket: Path | None,
    engine: str | None,
    cores: int,
    exact: bool,
    log: str | None,
    verbose: bool,
    trace: TraceSpec | None,
    report: bool,
    json: Path | None,
    dram: DramConfig | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM."""
    with reported():
        from cosim.devices.program import default_socket, environment, many_descriptors
        from cosim.devices.simulated import SimulatedMachine
        from sw.driver.server import Server, ServerError

        path = socket or default_socket()
        stop = threading.Event()
        many_descriptors()
        try:
            with (
                _log_stream(log) as stream,
                SimulatedMachine(
                    engine, cores=cores, exact=exact, dram=dram, log=stream, verbose=verbose, trace=trace
                ) as machine,
            ):
                environment(path)  # compiles the library now rather than at the first program
                with Server(machine.kernel, path) as server:
                    for number in (signal.SIGINT, signal.SIGTERM):
                        signal.signal(number, lambda *_: stop.set())
                    machine.start_clock()
                    print(f"serving {machine.device.name} at {server.path}", flush=True)
                    print(f"run programs with: rkcosim device --socket {server.path} -- PROGRAM", flush=True)
                    while not stop.wait(1.0):
                        pass
                    account = machine.report()
                _give_account(account, report, json)
        except ServerError as error:
            fail(str(error), BAD_INPUT)
