"""What an interface tells at its end: the summary, the JSON document and the HTML report of its models."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rkcosim.base import versioned
from rkcosim.base.tables import console
from rkcosim.compiler import RunReport
from rkcosim.measure.models.run import ModelRun, run_of_frame
from rkcosim.measure.models.summary import print_summary
from rkcosim.measure.report.kept import Kept, write_page
from rkcosim.running.machine import MOST_MODELS, Ending, Listener, Machine, RunningModel
from rkcosim.running.settings import Settings
from rkcosim.waves.whole_file import whole_file

SHOWN = 12
"""Operators that remain with the runtime and are named in the summary; the JSON has all."""

MOST_INFERENCES = 100_000
"""Inferences of a model of which the documents have times, the first ones; others are only counted."""


@dataclass
class _Record:
    """What is known of a model's inferences; `seconds` and `cycles` are lists for documents."""

    seconds: list[float] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    all_seconds: float = 0.0
    all_cycles: int = 0
    first: RunReport | None = None


class Documents(Listener):
    """Records the models of a machine, and writes the documents that the options ask for.

    Parameters
    ----------
    settings : options of the interface.
    kept : the events of the run for the page.
    """

    def __init__(self, settings: Settings, kept: Kept) -> None:
        self._settings, self._kept = settings, kept
        self._begun = time.perf_counter()
        self._records: dict[RunningModel, _Record] = {}
        self._runs: list[ModelRun] = []
        self._seconds: list[list[float]] = []
        self._unlisted = 0
        for path in (settings.json, settings.report):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)

    def loaded(self, model: RunningModel) -> None:
        """See `Listener`."""
        self._records[model] = _Record()

    def inference(
        self, model: RunningModel, inputs: Sequence[npt.NDArray[Any]], report: RunReport, seconds: float
    ) -> None:
        """See `Listener`."""
        record, settings = self._records[model], self._settings
        record.first = record.first or report
        record.all_cycles += report.cycles
        record.all_seconds += seconds
        listed = settings.json is not None or settings.report is not None
        if listed and len(record.cycles) < MOST_INFERENCES:
            record.cycles.append(report.cycles)
            record.seconds.append(seconds)

    def unloading(self, model: RunningModel) -> None:
        """Keep the record of a model, if it had inferences; of the first `MOST_MODELS` models."""
        record = self._records.pop(model)
        if record.first is None:
            return
        if len(self._runs) >= MOST_MODELS:
            self._unlisted += 1
            return
        machine = model.machine
        run = run_of_frame(model.name, machine.engine, model.model, model.loaded, record.first)
        self._seconds.append(record.seconds)
        self._runs.append(
            replace(
                run,
                cores=machine.settings.cores,
                inferences=model.inferences,
                cycles=record.all_cycles,
                inference_cycles=record.cycles,
                verdict=model.verdict,
                floats_in_fp16=model.model.floats_in_fp16,
                fp16_layers=model.model.fp16_layers,
                simulated_seconds=round(record.all_seconds, 3),
                host_seconds=round(time.perf_counter() - self._begun, 3),
            )
        )

    def end(self, machine: Machine, endings: Sequence[Ending]) -> None:
        """Write what the options ask for."""
        settings = self._settings
        documents = [
            run.as_json() | {"inference_seconds": [round(value, 6) for value in seconds]}
            for run, seconds in zip(self._runs, self._seconds, strict=True)
        ]
        if settings.summary:
            self._print(machine, endings)
        if settings.json is not None:
            written: dict[str, Any] = {
                "models": documents,
                "left": [vars(one) for one in machine.left.values()],
                "graphs": [vars(count) for count in machine.graphs],
            }
            if self._unlisted:
                written["models_not_listed"] = self._unlisted
            for members, _ in endings:
                written |= members
            with whole_file(settings.json) as part:
                part.write_text(json.dumps(versioned(written), indent=2) + "\n")
        for number, document in enumerate(documents if settings.report is not None else ()):
            assert settings.report is not None
            log = self._kept.log if len(documents) == 1 else None
            write_page(_numbered(settings.report, number), document, log)

    def _print(self, machine: Machine, endings: Sequence[Ending]) -> None:
        out = console(error=True)
        for _, lines in endings:
            for line in lines:
                out.print(line, markup=False, highlight=False)
        for run in self._runs if not endings else ():
            print_summary(out, run)
        if self._unlisted:
            out.print(f"{self._unlisted} more models", markup=False, highlight=False)
        for one in list(machine.left.values())[:SHOWN]:
            text = f"with the runtime: {one.kind} '{one.name}': {one.reason}"
            out.print(text, markup=False, highlight=False)
        if len(machine.left) > SHOWN:
            more = len(machine.left) - SHOWN
            out.print(f"with the runtime: {more} more operators (json has all)")


def _numbered(path: Path, number: int) -> Path:
    """Return the path of file `number` (from 0) of several: report.html, report-2.html, ..."""
    return path.with_name(f"{path.stem}-{number + 1}{path.suffix}") if number else path
