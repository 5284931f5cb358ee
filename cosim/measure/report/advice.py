"""Advice about a network, from the file that `rkcosim advise --json` wrote, as a section of a run's page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rkcosim.measure.advice.change import SAID
from rkcosim.measure.report.data import ReportedRun, ReportError, damaged
from rkcosim.measure.report.figures import count, percent

MEMBERS = ("model", "schema_version", "before", "advice", "combined")
"""Members that the file of `rkcosim advise` has."""


@dataclass(frozen=True)
class AdviceSection:
    """Advice for a page.

    Members
    -------
    before
        Cycles of the network without a change, as text.
    rows
        Name, words, cycles that are saved, share of the time, cycles, and what happens to the results.
    together
        Names of changes that were made together, share of the time, cycles, and what happens to the results.
    """

    before: str
    rows: list[tuple[str, ...]]
    together: list[tuple[str, ...]]


def read_advice(path: Path, run: ReportedRun) -> AdviceSection:
    """Read advice about the network of a run.

    Raises
    ------
    ReportError
        If the file has no advice, or advice about another network.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or any(name not in data for name in MEMBERS):
        raise ReportError(f"{path}: not a file that rkcosim advise wrote with --json")
    name = run.raw.get("model")
    if name != data["model"]:
        raise ReportError(f"{path}: advice about {data['model']}, but the run is of {name}")
    with damaged(path):
        return section(data)


def section(data: Mapping[str, Any]) -> AdviceSection:
    """Return the section for the document of `rkcosim advise --json`."""
    whole = data["before"]["milliseconds"]

    def figures(one: Mapping[str, Any]) -> tuple[str, ...]:
        share = percent(one["milliseconds"] / whole)
        return (
            count(data["before"]["cycles"] - one["cycles"]),
            share,
            count(one["cycles"]),
            SAID[one["meaning"]],
        )

    rows = [(one["name"], one["text"], *figures(one)) for one in data["advice"]]
    together = [(" + ".join(one["changes"]), *figures(one)) for one in data["combined"]]
    return AdviceSection(count(data["before"]["cycles"]), rows, together)
