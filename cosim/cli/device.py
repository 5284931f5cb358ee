"""`rkcosim device` and `rkcosim serve`: run unmodified programs on the simulated device."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rkcosim.cli.app import command, option
from rkcosim.cli.options import BoardName, Cores, MachineName, Program, RecordedOptions

if TYPE_CHECKING:
    from rkcosim.devices.simulated import SimulatedMachine
    from rkcosim.driver.kernel.trouble import Kind
    from rkcosim.waves.spec import TraceSpec


MOST_SRAM = 956
"""KiB of SRAM that the NPU of an RK3588 can have; rockchip-linux/rknpu2's guide on it shows 0xef000 bytes."""


@dataclass(frozen=True, kw_only=True)
class MachineOptions(RecordedOptions):
    """Options of the simulated machine."""

    drivers: str | None = option(
        "Kernel drivers that provide device nodes; default: both.",
        metavar="rknpu|rocket|both",
        words="rkcosim.devices.simulated:DRIVERS",
    )
    rocket_interface: str | None = option(
        "Version of the Rocket uapi that the driver implements (docs/kernel.md); default: 1.0.",
        metavar="0.0|1.0|1.1|1.3|1.5",
        words="rkcosim.driver.kernel.rocket_interface:INTERFACES",
    )
    soft_reset: str | None = option(
        "What a soft reset of rknpu does to registers of idle cores (docs/board.md); default: clears.",
        metavar="clears|keeps",
        words="rkcosim.driver.kernel.rknpu_jobs:SOFT_RESETS",
    )
    board: BoardName = None
    sram: int = option(
        "KiB of on-chip memory of the NPU, as on boards that have the file mm in debugfs (docs/device.md).",
        default=0,
        low=0,
        high=MOST_SRAM,
    )
    fault: tuple[str, ...] = option(
        "Inject a fault of boards, so that a program's recovery can be tried (docs/device.md); repeatable.",
        metavar="NAME",
        words="rkcosim.devices.faults:FAULTS",
        default=(),
    )
    fault_each: int = option("Faults of single jobs happen to each N-th job.", metavar="N", default=2, low=1)
    log: str | None = option(
        "Write the kernel's log (as dmesg prints it) to this file; - for standard error.", metavar="FILE"
    )
    verbose: bool = option("Also log every failing ioctl.", default=False)
    report: bool = option("Print jobs, tasks, cycles and host time at the end.", default=False)

    def machine(self, cores: int, log: TextIO | None, trace: TraceSpec | None) -> SimulatedMachine:
        """Make the machine that the options describe.

        Raises
        ------
        ValueError
            for an unknown name, or options that exclude each other.
        """
        from rkcosim.devices.simulated import DRIVERS, SimulatedMachine
        from rkcosim.driver.kernel.rknpu_jobs import CLEARS
        from rkcosim.driver.kernel.rocket_interface import DEFAULT

        if self.drivers is not None and self.drivers not in DRIVERS:
            raise ValueError(f"--drivers must be one of {', '.join(DRIVERS)}, not {self.drivers}")
        chosen = self.drivers or "both"
        if self.rocket_interface is not None and chosen == "rknpu":
            raise ValueError("--rocket-interface needs the driver rocket, which --drivers rknpu excludes")
        if self.sram and chosen == "rocket":
            raise ValueError("--sram needs the driver rknpu, which --drivers rocket excludes")
        if self.soft_reset is not None and chosen == "rocket":
            raise ValueError("--soft-reset needs the driver rknpu, which --drivers rocket excludes")
        return SimulatedMachine(
            self.engine,
            cores=cores,
            exact=self.exact,
            dram=self.memory,
            log=log,
            verbose=self.verbose,
            trace=trace,
            drivers=DRIVERS[chosen],
            rocket_interface=self.rocket_interface or DEFAULT,
            soft_reset=self.soft_reset or CLEARS,
            board=self.board,
            sram=self.sram * 1024,
            faults=self.fault,
            fault_each=self.fault_each,
        )

    def give_account(self, account: Any, **more: object) -> None:
        """Print the account of what happened (--report) and write it to a file (--json)."""
        if self.report:
            print(account.text(), file=sys.stderr)
        self.write(account.as_json() | more)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(MachineOptions):
    """Options of `rkcosim device`."""

    program: Program = ()
    socket: Path | None = option(
        "Use the server (rkcosim serve) that listens at this socket; default: a device of the program alone."
    )
    cores: int | None = option("Cores of the simulated NPU; default: 3.", low=1, high=3)
    machine_: MachineName = None

    @property
    def of_server(self) -> list[str]:
        """Return the given options that only the server accepts."""
        names = "engine cores exact log verbose trace report dram json".split()
        given = {f"--{name}": getattr(self, name) for name in names}
        given["--events or --timeline"] = self.events or self.timeline
        given |= {"--drivers": self.drivers, "--rocket-interface": self.rocket_interface}
        given |= {"--soft-reset": self.soft_reset, "--fault": self.fault, "--board": self.board}
        given["--sram"] = self.sram
        return [name for name, value in given.items() if value]


@dataclass(frozen=True, kw_only=True)
class ServeOptions(MachineOptions):
    """Options of `rkcosim serve`."""

    socket: Path | None = option("Unix socket to listen at; default: a path in the user's runtime folder.")
    cores: Cores = 3


@contextlib.contextmanager
def _log_stream(log: str | None) -> Iterator[TextIO | None]:
    """Open the destination of the kernel's log: none, standard error ("-"), or a file."""
    if log is None:
        yield None
    elif log == "-":
        yield sys.stderr
    else:
        from rkcosim.waves.whole_file import make_folder, named

        make_folder(Path(log))
        stream = open(log, "w", encoding="utf-8")
        try:
            yield stream
        finally:
            with named(log):
                stream.close()


def _say_kind(kind: Kind) -> None:
    """Report a kind of device error on standard error, if anyone still reads it."""
    from rkcosim.devices.ending import say_now

    say_now(f"rkcosim: the device found: {kind.text}\n")


def _tell_trouble(machine: SimulatedMachine, *, again: bool = False) -> None:
    """Report the device's errors on standard error, each kind once with its count.

    Parameters
    ----------
    again : True if each kind was reported when it was first seen; then only those that occurred more than
        once are reported.
    """
    kinds = [kind for kind in machine.trouble() if kind.count > 1 or not again]
    if kinds:
        print("rkcosim: the device found:", file=sys.stderr)
    for kind in kinds:
        print("\n".join(f"  {line}" for line in str(kind).splitlines()), file=sys.stderr)
    if kinds and machine.kernel.scheduler.trouble.full:
        print("  (the engine's log of diagnostics is full: more may have occurred)", file=sys.stderr)


@command(
    "rkcosim device --engine golden --report -- python examples/device/program.py rknpu",
    "rkcosim device --log - --trace build/program.fst -- ./program arguments",
    "rkcosim device --socket /run/user/1000/rkcosim.sock -- ./program",
    context={"allow_interspersed_args": False},
    waits=True,
)
def device_command(asked: DeviceOptions) -> None:
    """Run an unmodified program on the simulated NPU.

    The program finds the NPU's device nodes. The exit code is the program's; 70 if it is 0 and an internal
    error occurred behind a call.
    """
    from rkcosim.cli.moments import Work, check_trace
    from rkcosim.devices import program as run
    from rkcosim.devices.ending import Ending

    program = list(asked.program)
    if not program:
        raise ValueError("device: no program given: rkcosim device -- PROGRAM ARGUMENTS...")
    cores = asked.cores or 3
    with asked.recording() as trace, contextlib.ExitStack() as stack:
        if asked.socket is not None:
            if given := asked.of_server:
                raise ValueError(
                    f"device: {given[0]} is an option of the server (rkcosim serve) and has no effect with "
                    "--socket"
                )
            run.check_server(asked.socket)
            raise SystemExit(run.run_program(program, run.environment(asked.socket, machine=asked.machine_)))
        check_trace(trace, Work(None, cores=cores))
        run.many_descriptors()
        machine = asked.machine(cores, stack.enter_context(_log_stream(asked.log)), trace)
        ending = stack.enter_context(Ending(run.ENDING))  # active until the machine is closed
        stack.enter_context(machine)
        stack.enter_context(machine.failures.watching())
        with run.private_server(machine, ending) as server:
            env = run.environment(server.path, machine=asked.machine_)
            machine.start_clock()
            code = run.run_program(program, env, ending)
            account = machine.report()
            _tell_trouble(machine)
        code = machine.failures.code(code)
        asked.give_account(account, exit_code=code, errors=machine.failures.lines)
    raise SystemExit(code)


@command("rkcosim serve --engine golden --log -", "rkcosim serve --socket /tmp/npu.sock --report", waits=True)
def serve_command(asked: ServeOptions) -> None:
    """Serve one simulated NPU to several programs until stopped.

    The programs are started with `rkcosim device --socket`. SIGINT or SIGTERM stops the server. The exit code
    is 0; 70 if an internal error occurred behind a call.
    """
    from rkcosim.cli.moments import Work, check_trace
    from rkcosim.devices.ending import Ending, say_now
    from rkcosim.devices.program import default_socket, environment, many_descriptors
    from rkcosim.driver.server import Server

    with asked.recording() as trace, contextlib.ExitStack() as stack:
        check_trace(trace, Work(None, cores=asked.cores))
        path = asked.socket or default_socket()
        stop = threading.Event()
        many_descriptors()
        machine = asked.machine(asked.cores, stack.enter_context(_log_stream(asked.log)), trace)
        ending = stack.enter_context(Ending((signal.SIGINT, signal.SIGTERM), lambda _: stop.set()))
        stack.enter_context(machine)
        stack.enter_context(machine.failures.watching())
        environment(path)  # compiles the library now instead of at the first program
        with Server(machine.kernel, path) as server:
            ending.at_last(server.remove)
            server.on_trouble = lambda text: say_now(f"rkcosim: {text}\n")
            machine.kernel.scheduler.trouble.on_new = None if asked.log == "-" else _say_kind
            machine.start_clock()
            print(f"serving {machine.device.name} at {server.path}", flush=True)
            print(f"run programs with: rkcosim device --socket {server.path} -- PROGRAM", flush=True)
            stop.wait()
            account = machine.report()
            _tell_trouble(machine, again=True)
        asked.give_account(account, errors=machine.failures.lines)
    if machine.failures.count:
        raise SystemExit(machine.failures.code(0))
