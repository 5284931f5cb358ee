"""`rkcosim fuzz`: hostile programs against the kernel's model."""

from __future__ import annotations

import random
from pathlib import Path

from cosim import progress
from cosim.cli.exits import MISMATCH, reported, write_json, write_text

SCHEMA_VERSION = 1


def fuzz_command(
    inputs: int, seed: int | None, engine: str | None, exact: bool, log: Path | None, json: Path | None
) -> None:
    """Run the fuzzer, print its account, and end with 1 if the kernel did not hold."""
    with reported():
        from cosim.devices.simulated import SimulatedMachine
        from sw.driver.kernel.fuzz import fuzz

        if seed is None:
            seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}")
        with SimulatedMachine(engine, exact=exact) as machine:
            with progress.step("hostile inputs", inputs, "inputs") as step:

                def count(done: int) -> None:
                    step.done = done

                report = fuzz(machine.kernel, seed, inputs, progress=count)
            if log is not None:
                write_text(log, machine.kernel.log.text())
        print(report)
        if json is not None:
            write_json(
                json,
                {
                    "schema_version": SCHEMA_VERSION,
                    "seed": seed,
                    "inputs": inputs,
                    "ioctls": report.ioctls,
                    "past_first_check": report.share,
                    "errors": dict(report.errors),
                    "bystander_jobs": report.runs,
                    "bystander_disturbed": report.disturbed,
                    "internal_errors": report.internal,
                    "leaks": report.leaks,
                    "seconds": report.seconds,
                    "good": report.good,
                },
            )
        if not report.good:
            raise SystemExit(MISMATCH)
