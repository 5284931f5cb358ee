"""`rkcosim conformance`: random tasks of every mode, on the RTL and the golden model."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rkcosim.base import progress
from rkcosim.cli import results
from rkcosim.cli.app import command, option
from rkcosim.cli.exits import MISMATCH, OK
from rkcosim.cli.options import EngineOptions
from rkcosim.cli.results import write_text

SHARE = 20
"""Default number of tasks per group."""


@dataclass(frozen=True, kw_only=True)
class ConformanceOptions(EngineOptions):
    """Options of `rkcosim conformance`."""

    seed: int | None = option("Seed of the random tasks; default: a new one, which is printed.")
    tasks: int | None = option(
        "Minimum number of tasks, divided among the groups; default: 20 per group.", low=1
    )
    only: tuple[str, ...] = option(
        "Run only groups with this name, or whose names contain this text; repeatable.",
        metavar="TEXT",
        words="rkcosim.verify.conformance.groups:GROUPS",
        default=(),
    )
    plans: Path | None = option(
        "Instead of random tasks, run the tile plans (*.csv) in this folder.", metavar="DIR"
    )
    coverage: Path | None = option(
        "Write the field coverage to this file, and support.md into the same folder.", writes=True
    )
    case: int | None = option("Run only the case with this number; needs --only with one group.", low=0)
    failures: Path = option(
        "Folder for the stream files of failing tasks.", metavar="DIR", default=Path("build/conformance")
    )
    shrink: bool = option(
        "Reduce failing tasks to smaller ones that still fail.", "--shrink/--no-shrink", default=True
    )


@command(
    "rkcosim conformance --only fp16 --tasks 200",
    "rkcosim conformance --seed 7 --only 'conv int8' --case 12",
    "rkcosim conformance --tasks 2000 --coverage build/coverage.md --json build/conformance.json",
)
def conformance_command(asked: ConformanceOptions) -> None:
    """Compare the RTL with the golden model on random tasks.

    The tasks cover every type and mode. All memory, registers and interrupts are compared. The exit code is 1
    if anything differs.
    """
    from rkcosim.engines.engine import open_engine
    from rkcosim.verify.conformance.campaign import Campaign
    from rkcosim.verify.conformance.groups import GROUPS
    from rkcosim.verify.conformance.runner import Runner

    if asked.plans is not None:
        _plans(asked, asked.plans)
    names = _select(list(GROUPS), asked.only)
    seed = secrets.randbits(32) if asked.seed is None else asked.seed
    wanted = asked.tasks or SHARE * len(names)
    print(f"seed {seed}", flush=True)
    with closing(open_engine(asked.engine, exact=asked.exact, cores=1, on_diagnostic="go on")) as device:
        runner = Runner(device)
        campaign = Campaign(
            runner,
            seed,
            folder=asked.failures,
            say=lambda text: print(text, flush=True),
            shrinking=250 if asked.shrink else 0,
        )
        if asked.case is not None:
            if len(names) != 1:
                raise ValueError("--case needs --only with one group")
            report = _single(campaign, names[0], asked.case)
        else:
            report = campaign.run(names, wanted)
    _show(report, report.tasks if asked.case is not None else wanted)
    asked.write(report.as_json())
    if asked.coverage is not None:
        what = f"`rkcosim conformance --coverage docs/results/coverage.md --seed {seed} --tasks {wanted}`"
        what += f" ({report.tasks} tasks)"
        write_text(asked.coverage, report.coverage.markdown(what))
        support = asked.coverage.with_name("support.md")
        write_text(support, report.support.markdown(what))
        print(f"wrote {asked.coverage} and {support}")
    raise SystemExit(OK if report.ok else MISMATCH)


def _select(names: list[str], only: Sequence[str]) -> list[str]:
    """Return the groups with one of the given names, or whose names contain one of the texts."""
    if not only:
        return names
    chosen = [n for n in names if n in only] or [n for n in names if any(text in n for text in only)]
    if not chosen:
        raise ValueError(f"no group matches {', '.join(only)}; the groups are {', '.join(names)}")
    return chosen


def _single(campaign: Any, name: str, case: int) -> Any:
    from rkcosim.verify.conformance.campaign import GroupResult, Report

    result = GroupResult(name, measured=campaign.runner.device.has_cycles)
    outcome = campaign.case(name, case, result)
    print(outcome.text())
    device = campaign.runner.device
    counts = campaign.coverage, campaign.support, campaign.touched
    return Report(campaign.seed, device.name, device.cell, [result], *counts)


def _plans(asked: ConformanceOptions, folder: Path) -> NoReturn:
    """Run tile plans as jobs, on the number of cores that each plan names."""
    from rkcosim.driver import Driver
    from rkcosim.engines.engine import open_engine
    from rkcosim.engines.settings import cycles_text
    from rkcosim.verify.conformance.plan_tables import read_plans
    from rkcosim.verify.conformance.plans import run_plans

    plans = read_plans(folder)
    device = open_engine(asked.engine, exact=asked.exact, cores=3)
    results = []
    shown = progress.step("plans", len(plans), "plans")
    with closing(device), Driver(device) as driver, shown as step:
        for result in run_plans(plans, driver, asked.seed or 0):
            results.append(result)
            step.advance()
            said = "equal" if result.good else result.error or f"{result.mismatches} elements differ"
            print(f"{result.plan.name}: {said}, {cycles_text(result.cycles, device.name)} cycles", flush=True)
    bad = sum(not result.good for result in results)
    left_out = [text for plan in plans for text in plan.left_out]
    for text in left_out:
        print(f"left out: {text}")
    print(f"{len(results)} plans, {bad} differ")
    items = [
        {"plan": result.plan.name, "cores": result.plan.cores, "mismatches": result.mismatches}
        | {"cycles": result.cycles if device.has_cycles else None, "error": result.error}
        for result in results
    ]
    asked.write({"plans": items, "left_out": left_out, "match": not bad})
    raise SystemExit(MISMATCH if bad else OK)


def _show(report: Any, asked: int) -> None:
    """Print the table of groups and the totals."""
    from rich.box import HEAVY_HEAD
    from rich.console import Console

    from rkcosim.engines.settings import cycles_text

    title = f"conformance, engine {report.engine}, seed {report.seed}"
    heads = ("group", "tasks|", "refused|", "fields|", "cycles|", "mismatches|")
    rows = [
        (g.group, g.tasks, g.refused, g.fields_covered, cycles_text(g.cycles, report.engine), g.mismatches)
        for g in report.groups
    ]
    table = results.table(title, heads, rows, title_justify="center", box=HEAVY_HEAD)
    for row, group in zip(table.rows, report.groups, strict=True):
        row.style = "bold red" if group.mismatches or not group.tasks else None
    Console(width=100).print(table)
    columns = ("rule", "HW", "", "tasks|")
    rules = report.touched.rows()
    if any(row[3] for row in rules):
        title = "tasks that matched, by rules of boards that they touch"
        Console(width=100).print(results.table(title, columns, rules, title_justify="center", box=HEAVY_HEAD))
    fields = report.coverage.as_json()
    whole = f" ({asked} requested; every group runs at least one task, and chains are not cut)"
    more = whole if report.tasks > asked else ""
    rate = report.tasks / report.seconds if report.seconds else 0
    print(
        f"{report.tasks} tasks{more} in {len(report.groups)} groups, {report.mismatches} mismatches, "
        f"{rate:.1f} tasks/s; {fields['exercised']} of {fields['fields']} fields exercised"
    )
