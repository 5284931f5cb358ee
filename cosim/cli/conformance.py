"""`rkcosim conformance`: random tasks of every mode, RTL against the golden model."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

from cosim import progress
from cosim.cli.exits import MISMATCH, OK, reported, write_json, write_text

SHARE = 20
"""Tasks per group by default."""


def conformance_command(
    seed: int | None,
    tasks: int | None,
    only: list[str],
    engine: str | None,
    exact: bool,
    json: Path | None,
    plans: Path | None,
    coverage: Path | None,
    case: int | None,
    failures: Path,
    shrink: bool,
) -> None:
    """Run groups (or the vendor's plans) and report."""
    with reported():
        from cosim.conformance.campaign import Campaign
        from cosim.conformance.groups import GROUPS
        from cosim.conformance.runner import Runner

        if plans is not None:
            _plans(plans, engine, exact, seed or 0, json)
            return
        names = _select(list(GROUPS), only)
        seed = secrets.randbits(32) if seed is None else seed
        print(f"seed {seed}", flush=True)
        with closing(_device(engine, exact)) as device:
            runner = Runner(device)
            campaign = Campaign(
                runner,
                seed,
                folder=failures,
                say=lambda text: print(text, flush=True),
                shrinking=250 if shrink else 0,
            )
            if case is not None:
                if len(names) != 1:
                    raise ValueError("--case needs --only with one group")
                report = _single(campaign, names[0], case)
            else:
                report = campaign.run(names, tasks or SHARE * len(names))
        _show(report)
        if json:
            write_json(json, report.as_json())
        if coverage is not None:
            wanted = tasks or SHARE * len(names)
            what = f"`rkcosim conformance --coverage docs/coverage.md --seed {seed} --tasks {wanted}`"
            write_text(coverage, report.coverage.markdown(f"{what} ({report.tasks} tasks)"))
            support = coverage.with_name("support.md")
            write_text(support, report.support.markdown(f"{what} ({report.tasks} tasks)"))
            print(f"wrote {coverage} and {support}")
        raise SystemExit(OK if report.ok else MISMATCH)


def _select(names: list[str], only: list[str]) -> list[str]:
    """Groups whose names contain one of the given texts."""
    if not only:
        return names
    chosen = [n for n in names if n in only] or [n for n in names if any(text in n for text in only)]
    if not chosen:
        raise ValueError(f"no group matches {', '.join(only)}; groups: {', '.join(names)}")
    return chosen


def _device(engine: str | None, exact: bool) -> Any:
    if engine == "golden":  # the model against itself: tries the draws alone
        from cosim.golden.task import GoldenNpu

        return GoldenNpu(1, strict=False)
    from cosim.engines.engine import open_engine

    return open_engine(engine, exact=exact, cores=1, on_diagnostic="go on")


def _single(campaign: Any, name: str, case: int) -> Any:
    from cosim.conformance.campaign import GroupResult, Report

    result = GroupResult(name)
    outcome = campaign.case(name, case, result)
    print(outcome.text())
    device = campaign.runner.device
    return Report(
        campaign.seed, device.name, getattr(device, "cell", ""), [result], campaign.coverage, campaign.support
    )


def _plans(folder: Path, engine: str | None, exact: bool, seed: int, json: Path | None) -> None:
    """Run tile plans as jobs on as many cores as they name."""
    from cosim.conformance.plan_tables import read_plans
    from cosim.conformance.plans import run_plans
    from sw.driver import Driver

    plans = read_plans(folder)
    if engine == "golden":
        from cosim.golden.task import GoldenNpu

        device: Any = GoldenNpu(3)
    else:
        from cosim.engines.engine import open_engine

        device = open_engine(engine, exact=exact, cores=3)
    results = []
    shown = progress.step("plans", len(plans), "plans")
    with closing(device), Driver(device) as driver, shown as step:
        for result in run_plans(plans, driver, seed):
            results.append(result)
            step.advance()
            said = "equal" if result.good else result.error or f"{result.mismatches} elements differ"
            print(f"{result.plan.name}: {said}, {result.cycles:,} cycles", flush=True)
    bad = sum(not result.good for result in results)
    left_out = [text for plan in plans for text in plan.left_out]
    for text in left_out:
        print(f"left out: {text}")
    print(f"{len(results)} plans, {bad} differ")
    if json:
        items = [
            {
                "plan": result.plan.name,
                "cores": result.plan.cores,
                "cycles": result.cycles,
                "mismatches": result.mismatches,
                "error": result.error,
            }
            for result in results
        ]
        write_json(json, {"schema_version": 1, "plans": items, "left_out": left_out, "match": not bad})
    raise SystemExit(MISMATCH if bad else OK)


def _show(report: Any) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"conformance, engine {report.engine}, seed {report.seed}")
    for name in ("group", "tasks", "refused", "fields", "cycles", "mismatches"):
        table.add_column(name, justify="left" if name == "group" else "right")
    for g in report.groups:
        style = "bold red" if g.mismatches or not g.tasks else None
        table.add_row(
            g.group,
            str(g.tasks),
            str(g.refused),
            str(g.fields_covered),
            f"{g.cycles:,}",
            str(g.mismatches),
            style=style,
        )
    Console(width=100).print(table)
    fields = report.coverage.as_json()
    rate = report.tasks / report.seconds if report.seconds else 0
    print(
        f"{report.tasks} tasks in {len(report.groups)} groups, {report.mismatches} mismatches, "
        f"{rate:.1f} tasks/s; {fields['exercised']} of {fields['fields']} fields exercised"
    )
