"""Cost of the way from a program to the device: a native program that runs small jobs in a loop.

    python -m benchmarks.device [--engines NAME ...] [--jobs N] [--sides N ...] [--json FILE]

The program (examples/device/rknpu_program.c) waits for every job before it submits the next.  A job is
one 3x3 convolution of int8, 32 to 32 channels, on `side` x `side` pixels (0: 1x1 on 4 x 4).  Time inside the
simulator is time inside the engine's calls: cycles and register accesses of the RTL, or the golden model.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import JSON, write
from rkcosim.devices import SimulatedMachine
from rkcosim.devices.native_library import c_compiler
from rkcosim.devices.program import environment, private_server
from rkcosim.engines.protocol import BuildError
from rkcosim.measure.perf.measure import options
from rkcosim.spec.regs.cheader import header

TARGET = 0.20
"""Largest share of the time that should pass outside of the RTL simulation."""

SOURCE = Path(__file__).resolve().parents[1] / "examples" / "device" / "rknpu_program.c"


@dataclass(frozen=True)
class DeviceRun:
    """One run; `outside` is the share of `seconds` that was not spent in the engine."""

    engine: str
    side: int
    jobs: int
    cycles_per_job: float
    seconds: float
    jobs_per_second: float
    outside: float


def build_program(folder: Path) -> Path:
    """Compile the program.

    Raises
    ------
    BuildError
        If there is no compiler.
    subprocess.CalledProcessError
        If the compiler fails.
    """
    (folder / "npu_registers.h").write_text(header())
    target = folder / "program"
    subprocess.run([*c_compiler(), "-O1", "-w", "-I", folder, "-o", target, SOURCE], check=True)
    return target


def measure(engine: str | None, program: Path, jobs: int, side: int) -> DeviceRun:
    """Run the loop once on a new machine."""
    with SimulatedMachine(engine) as machine, private_server(machine) as server:
        env = environment(server.path)
        machine.start_clock()
        subprocess.run(
            [program, "loop", str(jobs), str(side)], env=env, check=True, stdout=subprocess.DEVNULL
        )
        report = machine.report()
    cycles = report.cycles / report.jobs
    return DeviceRun(
        report.engine, side, report.jobs, cycles, report.seconds, jobs / report.seconds, report.outside
    )


def main(given: list[str] | None = None) -> int:
    """Measure and print; return whether the default engine reaches the target."""
    chosen = options(
        __doc__,
        given,
        json=JSON,
        engines={"nargs": "+", "default": ["verilator", "golden"]},
        jobs={"type": int, "default": 200},
        sides={"type": int, "nargs": "+", "default": [0, 8, 16]},
    )
    rows: list[DeviceRun] = []
    print("engine      side  jobs  cycles/job  seconds  jobs/s  outside")
    try:
        with tempfile.TemporaryDirectory() as folder:
            program = build_program(Path(folder))
            for engine in chosen.engines:
                for side in chosen.sides:
                    row = measure(engine, program, chosen.jobs, side)
                    rows.append(row)
                    print(
                        f"{row.engine:10} {row.side:5} {row.jobs:5} {row.cycles_per_job:11.0f} "
                        f"{row.seconds:8.2f} {row.jobs_per_second:7.0f} {row.outside:8.1%}",
                        flush=True,
                    )
    except (BuildError, ValueError) as error:
        print(f"benchmarks.device: {error}", file=sys.stderr)
        return 2
    write(chosen.json, rows, target=TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
