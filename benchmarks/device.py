"""What the way from a program to the device costs: a native program that loops over small jobs.

    python -m benchmarks.device [--engines NAME ...] [--jobs N] [--sides N ...] [--json FILE]

The program (examples/device/rknpu_program.c) waits for every job before it submits the next.  A job is
one 3x3 convolution of int8, 32 to 32 channels, on `side` x `side` pixels (0: 1x1 on 4 x 4).  Inside the
simulator means inside the engine's calls: cycles and register accesses of the RTL, or the golden model.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from cosim.devices import SimulatedMachine
from cosim.devices.preload import c_compiler
from cosim.devices.program import environment, private_server
from cosim.engines.errors import BuildError
from rtl.regs.cheader import header

SCHEMA_VERSION = 1
TARGET = 0.20
"""Share of the time that may pass outside the RTL simulation."""

SOURCE = Path(__file__).resolve().parents[1] / "examples" / "device" / "rknpu_program.c"


@dataclass(frozen=True)
class Row:
    """One run: `outside` is the share of `seconds` that was not spent in the engine."""

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
        without a compiler; subprocess.CalledProcessError if it fails.
    """
    (folder / "npu_registers.h").write_text(header())
    target = folder / "program"
    subprocess.run([*c_compiler(), "-O1", "-w", "-I", folder, "-o", target, SOURCE], check=True)
    return target


def measure(engine: str | None, program: Path, jobs: int, side: int) -> Row:
    """Run the loop once on a machine of its own."""
    with SimulatedMachine(engine) as machine, private_server(machine) as server:
        env = environment(server.path)
        machine.start_clock()
        subprocess.run(
            [program, "loop", str(jobs), str(side)], env=env, check=True, stdout=subprocess.DEVNULL
        )
        report = machine.report()
    cycles = report.cycles / report.jobs
    return Row(
        report.engine, side, report.jobs, cycles, report.seconds, jobs / report.seconds, report.outside
    )


def main() -> int:
    """Measure, print, and say whether the default engine reaches the target."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--engines", nargs="+", default=["verilator", "golden"])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--sides", type=int, nargs="+", default=[0, 8, 16])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    print("engine      side  jobs  cycles/job  seconds  jobs/s  outside")
    try:
        with tempfile.TemporaryDirectory() as folder:
            program = build_program(Path(folder))
            for engine in options.engines:
                for side in options.sides:
                    row = measure(engine, program, options.jobs, side)
                    rows.append(row)
                    print(
                        f"{row.engine:10} {row.side:5} {row.jobs:5} {row.cycles_per_job:11.0f} "
                        f"{row.seconds:8.2f} {row.jobs_per_second:7.0f} {row.outside:8.1%}",
                        flush=True,
                    )
    except (BuildError, ValueError) as error:
        print(f"benchmarks.device: {error}", file=sys.stderr)
        return 2
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        data = {"schema_version": SCHEMA_VERSION, "target": TARGET, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(data, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
