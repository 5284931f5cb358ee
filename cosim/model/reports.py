"""What a model's methods return: profile, verdict, comparison, estimate, accuracy.

Each report prints itself, shows itself in notebooks (`_repr_html_`), and gives its rows as a table.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from rkcosim.base import Error, versioned
from rkcosim.base.extras import needed
from rkcosim.measure.models.rows import LayerRow
from rkcosim.model.tables import Column, MissingExtraError, Table
from rkcosim.waves.whole_file import whole_file

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from matplotlib.axes import Axes

    from rkcosim.compiler.quantization import Accuracy, Figures, Trial
    from rkcosim.compiler.quantization import Layer as QuantisedLayer
    from rkcosim.measure.energy import RunEnergy
    from rkcosim.measure.models.accuracy_words import CodeRow
    from rkcosim.measure.models.compare import Comparison, LayerDifference
    from rkcosim.measure.models.run import ModelRun
    from rkcosim.measure.report.data import ReportedRun

Array = npt.NDArray[Any]


class SaveError(Error, ValueError):
    """A report cannot be written in the format of a file's ending; the message names those that it has."""


def layer_table(title: str, rows: Sequence[LayerRow]) -> Table[LayerRow]:
    """Return the table of a model's layers; cycles and shares are shown if they are known."""
    columns = [
        Column[LayerRow]("layer", lambda row: row.name),
        Column[LayerRow]("op", lambda row: row.op),
        Column[LayerRow]("on", lambda row: row.target),
        Column[LayerRow]("tasks", lambda row: row.tasks, ","),
    ]
    if any(row.cycles is not None for row in rows):
        total = sum(row.cycles or 0 for row in rows)
        columns += [
            Column("cycles", lambda row: row.cycles, ","),
            Column("share", lambda row: row.cycles / total if row.cycles and total else None, ".1%"),
        ]
    columns += [
        Column("MACs", lambda row: row.macs, ","),
        Column("KB", lambda row: (row.bytes_read + row.bytes_written) / 1024, ",.1f"),
    ]
    if any(row.utilisation is not None for row in rows):
        columns.append(Column("MAC use", lambda row: row.utilisation, ".1%"))
    if any(row.bound for row in rows if row.target != "host"):
        columns.append(Column("bound by", lambda row: row.bound))
    if any(row.reason for row in rows):
        columns.append(Column("why on the host", lambda row: row.reason))
    return Table(title, rows, columns, LayerRow.flat, numbered=True)


class Report(ABC):
    """A result with a text, a table for notebooks, and files.

    `print(report)` gives the whole text, `summary` is that without the table, `repr(report)` its first line.
    """

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield what there is to say, the most important first."""

    @property
    @abstractmethod
    def table(self) -> Table[Any]:
        """The rows of the report."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values, in the form of the command's `--json`."""

    @property
    def summary(self) -> str:
        """The text without the table."""
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        """Return the first line."""
        return next(iter(self.lines()))

    def __str__(self) -> str:
        """Return the whole text."""
        return "\n".join([*self.lines(), repr(self.table)])

    def _pictures(self) -> str:
        """Return drawings for a notebook, as HTML."""
        return ""

    def _repr_html_(self) -> str:
        first, *rest = (html.escape(line) for line in self.lines())
        head = f"<div><b>{first}</b>{''.join(f'<br>{line}' for line in rest)}</div>"
        return f"{head}{self.table._repr_html_()}{self._pictures()}"

    def to_pandas(self, *, everything: bool = False) -> pandas.DataFrame:
        """Return the table as a `pandas.DataFrame`, see `Table.to_pandas`."""
        return self.table.to_pandas(everything=everything)

    def to_arrow(self, *, everything: bool = True) -> pyarrow.Table:
        """Return the table as a `pyarrow.Table`, see `Table.to_arrow`."""
        return self.table.to_arrow(everything=everything)

    def _page(self) -> str:
        """Return the report as an HTML page."""
        style = "body{font-family:sans-serif} td,th{padding:0 .6em} caption{font-weight:bold}"
        return (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
            f"<title>{html.escape(repr(self))}</title><style>{style}</style></head>"
            f"<body>{self._repr_html_()}</body></html>\n"
        )

    def save(self, path: str | Path) -> None:
        """Write the report to a file, atomically; its ending selects the format.

        Parameters
        ----------
        path
            A file `.html` (a page that loads nothing), `.json` (as `as_json`) or `.csv` (the table).

        Raises
        ------
        SaveError
            For another ending.
        OSError
            If the file cannot be written.
        """
        path = Path(path)
        writers: dict[str, Callable[[], str]] = {".html": self._page, ".json": self._json, ".csv": self._csv}
        if path.suffix.lower() not in writers:
            raise SaveError(f"{path}: a report is written as {', '.join(writers)}, not as '{path.suffix}'")
        text = writers[path.suffix.lower()]()
        with whole_file(path) as part:
            part.write_text(text, encoding="utf-8", errors="backslashreplace")

    def _json(self) -> str:
        return json.dumps(versioned(self.as_json()), indent=1) + "\n"

    def _csv(self) -> str:
        rows = self.table.to_dicts()
        text = io.StringIO()
        writer = csv.DictWriter(
            text, list(dict.fromkeys(n for row in rows for n in row)), lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()


@dataclass(frozen=True)
class TaskRow:
    """A task of the hardware in one inference.

    Members
    -------
    name
        "task 0" and so on, in the order of the starts.
    layer
        Name of its layer.
    core
        Core that ran it.
    start
        Cycle of its start, from the start of the first task.
    cycles
        Cycles that it took.
    mac_busy
        Cycles in which the array had an operand slot.
    bytes_read, bytes_written
        Bytes from and to DRAM, without command words.
    """

    name: str
    layer: str
    core: int
    start: int
    cycles: int
    mac_busy: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class EstimateRow:
    """A layer of an estimate.

    Members
    -------
    name, op
        Name and operator of the layer.
    target
        "npu" or "host".
    tasks
        Number of its tasks.
    cycles
        Estimated cycles; None for a layer of the host.
    bound
        What limits it: the cause of most cycles in words, or "host".
    macs
        Multiply-accumulates.
    bytes_read, bytes_written
        Bytes from and to DRAM.
    peak
        Largest number of multiply-accumulates per cycle for a layer of this kind and type.
    milliseconds
        Time at the clock of the estimate; None for a layer of the host.
    share
        Part of the cycles of all layers, 0 to 1; None for a layer of the host.
    spent
        Cycles by cause (`rkcosim.measure.perf.attribution.Cause`); empty for a layer of the host.
    slots, loaded
        Operand slots of the arrays, also empty ones; bytes of features and weights that go to CBUF.
    itemsize
        Bytes of an element of its result.
    """

    name: str
    op: str
    target: str
    tasks: int
    cycles: int | None
    bound: str
    macs: int
    bytes_read: int
    bytes_written: int
    peak: int
    milliseconds: float | None
    share: float | None
    spent: dict[str, int]
    slots: int
    loaded: int
    itemsize: int


class Profile(Report):
    """The run of one inference: cycles, bytes, and what bounds each layer.

    Members
    -------
    outputs
        The outputs by name.
    run
        Everything that was measured, in the form of `rkcosim run --json`.
    """

    def __init__(self, run: ModelRun, outputs: dict[str, Array], log: Any = None) -> None:
        self.run, self.outputs, self._log = run, outputs, log

    @property
    def cycles(self) -> int | None:
        """Cycles of the NPU; None if the engine does not count them."""
        return self.run.cycles if self.run.measured else None

    @property
    def bytes_read(self) -> int:
        """Bytes that the NPU read from DRAM, without command words; planned ones if none were measured."""
        return sum(row.bytes_read for row in self.run.layers)

    @property
    def bytes_written(self) -> int:
        """Bytes that the NPU wrote to DRAM; planned ones if none were measured."""
        return sum(row.bytes_written for row in self.run.layers)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the NPU."""
        return sum(row.macs for row in self.run.layers)

    def milliseconds(self, clock: float = 1000.0) -> float | None:
        """Return the time of the NPU at a clock in MHz; None if the engine does not count cycles.

        Raises
        ------
        ValueError
            If the clock is not 10 to 5000 MHz.
        """
        _check_clock(clock)
        return None if self.cycles is None else self.cycles / clock / 1000

    def energy(self, clock: float = 1000.0) -> RunEnergy:
        """Estimate the energy of the NPU and the DRAM from the counted events, in joules.

        Parameters
        ----------
        clock
            Clock of the NPU in MHz.

        Raises
        ------
        ValueError
            If the clock is not 10 to 5000 MHz, or the engine does not count cycles.
        """
        from rkcosim.measure.energy import energy_of
        from rkcosim.measure.report.data import from_json

        _check_clock(clock)
        return energy_of(from_json(self.run.as_json()), clock)

    def board_milliseconds(self, clock: float = 1000.0) -> float | None:
        """Return the time with what a driver adds to each submit, at a clock in MHz; None without cycles.

        Raises
        ------
        ValueError
            If the clock is not 10 to 5000 MHz.
        """
        from rkcosim.measure.perf.boards.expected import board_milliseconds

        _check_clock(clock)
        return None if self.cycles is None else board_milliseconds(self.cycles, self.run.submits, clock)

    @property
    def layers(self) -> Table[LayerRow]:
        """The layers, with cycles, bytes, and what bounds each."""
        return layer_table(f"{self.run.model}: layers of one inference", self.run.layers)

    @property
    def table(self) -> Table[LayerRow]:
        """The layers."""
        return self.layers

    @property
    def tasks(self) -> Table[TaskRow]:
        """The tasks of the hardware in the order of their starts; empty if nothing was measured."""
        names = [row.name for row in self.run.layers]
        rows = [
            TaskRow(**{"name": f"task {number}", **row, "layer": names[row["layer"]]})
            for number, row in enumerate(self.run.tasks)
        ]
        columns: list[Column[TaskRow]] = [
            Column("name", lambda row: row.name),
            Column("layer", lambda row: row.layer),
            Column("core", lambda row: row.core),
            Column("start", lambda row: row.start, ","),
            Column("cycles", lambda row: row.cycles, ","),
            Column("mac busy", lambda row: row.mac_busy, ","),
            Column("bytes read", lambda row: row.bytes_read, ","),
            Column("bytes written", lambda row: row.bytes_written, ","),
        ]
        return Table(f"{self.run.model}: tasks of one inference", rows, columns, asdict)

    def lines(self) -> Iterator[str]:
        """Yield cycles and time, the traffic, the longest layer, and the shares of NPU and host."""
        run = self.run
        if self.cycles is None:
            yield f"{run.model}: no cycles, because the engine {run.engine} does not count them"
        else:
            cores = f"{run.cores} core{'s' if run.cores > 1 else ''}"
            yield f"{run.model}: {self.cycles:,} cycles, {self.milliseconds():.3f} ms at 1 GHz on {cores}"
            many = f"{run.submits} submit{'s' if run.submits != 1 else ''}"
            from rkcosim.measure.perf.boards.expected import without_host

            line = f"with a driver: {self.board_milliseconds():.3f} ms in {many}"
            hosted = len(run.host.operators)
            yield f"{line}; {without_host(hosted)}" if hosted else line
        yield f"{self.macs:,} MACs, {self.bytes_read:,} bytes read, {self.bytes_written:,} bytes written"
        timed = sorted((row for row in run.layers if row.cycles), key=lambda row: -(row.cycles or 0))
        total = sum(row.cycles or 0 for row in timed)
        for row in timed[:1]:
            yield f"longest: {row.name} ({row.op}), {(row.cycles or 0) / total:.1%}, bound by {row.bound}"
        yield run.host.share()

    def as_json(self) -> dict[str, Any]:
        """Return the document of `rkcosim run --json`."""
        return self.run.as_json()

    def _reported(self) -> ReportedRun:
        from rkcosim.measure.report.data import from_json

        return from_json(json.loads(json.dumps(self.as_json())))

    def _pictures(self) -> str:
        return roofline_html(self._reported()) if self.cycles is not None else ""

    def _page(self) -> str:
        """Return the page of `rkcosim report`."""
        from rkcosim.measure.report.page import render

        return render(self._reported(), self._log)

    def roofline(self) -> str:
        """Return the roofline with the layers as the text of an SVG file; empty without cycles and MACs."""
        return roofline_svg(self._reported())

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the cycles of the layers (without cycles, their MACs) as bars; return the `matplotlib` axes.

        Parameters
        ----------
        axes
            Where to draw; None: a new figure.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        """
        known = self.cycles is not None
        values = [(row.name, float((row.cycles or 0) if known else row.macs)) for row in self.run.layers]
        return bars(axes, values, "cycles" if known else "MACs", self.run.model)


def bars(axes: Axes | None, values: Sequence[tuple[str, float]], label: str, title: str) -> Axes:
    """Draw horizontal bars with names; raises MissingExtraError without matplotlib."""
    with needed("matplotlib", "a plot", MissingExtraError):
        from matplotlib import pyplot
    if axes is None:
        _, axes = pyplot.subplots(figsize=(8, 1 + 0.25 * len(values)), layout="constrained")
    axes.barh(range(len(values)), [value for _, value in values])
    axes.set_yticks(range(len(values)), [name for name, _ in values])
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.set_title(title)
    return axes


def roofline_svg(run: ReportedRun) -> str:
    """Return a run's roofline as the text of an SVG file; empty if no row can be drawn."""
    from rkcosim.measure.report import roofline
    from rkcosim.measure.report.rooffile import draw

    return str(draw(run, 1.0)) if roofline.shown(run) else ""


def roofline_html(run: ReportedRun) -> str:
    """Return a run's roofline as an image for a notebook, whose styles do not change it."""
    svg = roofline_svg(run)
    if not svg:
        return ""
    data = base64.b64encode(svg.encode()).decode()
    return f'<div><img alt="roofline" style="max-width: 100%" src="data:image/svg+xml;base64,{data}"></div>'


class Check(Report):
    """Whether every tensor of one inference equals the golden models' bit for bit.

    `bool(check)` is true for a match.  A model of which nothing ran on the NPU has none.

    Members
    -------
    match
        True or False; None if no layer ran on the NPU, so that nothing was compared.
    first_difference
        Where the first difference is; None without one.
    verdict
        Details, in the form of the member `verdict` of `rkcosim run --json`.
    profile
        The run.
    """

    def __init__(self, verdict: dict[str, Any], profile: Profile) -> None:
        self.verdict, self.profile = verdict, profile
        nothing = profile.run.host.alone and verdict["match"]
        self.match: bool | None = None if nothing else bool(verdict["match"])
        self.first_difference: str | None = verdict.get("first_difference")

    def __bool__(self) -> bool:
        """Return whether everything was compared and is equal."""
        return self.match is True

    @property
    def mac_share(self) -> float:
        """Share of the multiply-accumulates that the NPU computes, 0 to 1."""
        return 1 - self.profile.run.host.mac_share

    @property
    def element_share(self) -> float:
        """Share of the elements of all results that the NPU computes, 0 to 1."""
        return 1 - self.profile.run.host.element_share

    @property
    def table(self) -> Table[LayerRow]:
        """The layers."""
        return self.profile.layers

    def lines(self) -> Iterator[str]:
        """Yield the verdict, and how much of the model it is about."""
        name = self.profile.run.model
        if self.match is None:
            yield f"{name}: nothing ran on the NPU, so nothing was compared"
        elif self.match:
            gone = self.verdict.get("overwritten", 0)
            what = f"every tensor except {gone} overwritten ones" if gone else "every tensor"
            yield f"{name}: MATCH: {' = '.join(self.verdict['levels'])}, {what}, bit for bit"
        else:
            yield f"{name}: MISMATCH: {self.first_difference}"
        yield self.profile.run.host.share()

    def as_json(self) -> dict[str, Any]:
        """Return the document of `rkcosim run --check --json`."""
        return {**self.profile.as_json(), "verdict": self.verdict}


class ComparisonReport(Report):
    """A model's arithmetic on the NPU beside another runtime's, layer by layer.

    `bool(comparison)` is true if every layer is within its bound and no class differs, and the NPU computes
    at least one layer.

    Members
    -------
    found
        The comparison, with the differences of each layer and output, and what the host computes.
    """

    def __init__(self, found: Comparison) -> None:
        self.found = found

    def __bool__(self) -> bool:
        """Return whether a layer of the NPU was compared, and everything is within its bound."""
        return self.found.match and not self.found.host.alone

    @property
    def match(self) -> bool:
        """Whether every layer is within its bound, and every class is the same."""
        return self.found.match

    @property
    def worst(self) -> float:
        """Largest difference of an output: in steps of its codes, or relative to its largest value."""
        return max((item.worst for item in self.found.outputs), default=0.0)

    @property
    def table(self) -> Table[LayerDifference]:
        """The layers; steps are those of the layer's output, or places of fp16 of its largest partial sum."""
        columns: list[Column[LayerDifference]] = [
            Column("layer", lambda row: row.name),
            Column("op", lambda row: row.op),
            Column("elements", lambda row: row.elements, ","),
            Column("differ", lambda row: row.differing, ","),
            Column("worst", lambda row: row.worst, ","),
            Column("bound", lambda row: row.bound, ","),
            Column("unit", lambda row: row.unit),
        ]
        title = f"{self.found.model} against {self.found.reference}: layers"
        return Table(title, self.found.layers, columns, _of_difference)

    def lines(self) -> Iterator[str]:
        """Yield the verdict, the outputs, and what exceeds a bound."""
        found = self.found
        said = "within the bounds" if found.match else "NOT within the bounds"
        if found.match and found.host.alone:
            said = "nothing compared, because no layer runs on the NPU"
        yield f"{found.model} against {found.reference}: {said}"
        for item in found.outputs:
            yield f"output {item.name}: {item.agreement.text()}"
        yield from found.reasons()
        if found.skipped:
            yield f"not compared, the reference keeps no such tensor: {', '.join(found.skipped)}"
        yield self.found.host.share()

    def as_json(self) -> dict[str, Any]:
        """Return the document of `rkcosim compare --json`."""
        return self.found.as_json()


def _of_difference(row: LayerDifference) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in ("name", "op", "kind", "elements", "differing", "worst")}
    return {**values, "bound": row.bound, "unit": row.unit, "tensor": row.tensor, "within_bound": row.good}


class EstimateReport(Report):
    """The estimated time of a model, without simulation.

    Members
    -------
    document
        Everything, in the form of `rkcosim estimate --json`.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @property
    def cycles(self) -> int:
        """Cycles of the NPU from the kick to the last interrupt."""
        return int(self.document["cycles"])

    @property
    def milliseconds(self) -> float:
        """Time of the NPU at the clock of the estimate."""
        return float(self.document["milliseconds"])

    @property
    def board_milliseconds(self) -> float:
        """Time with what a driver adds to each submit."""
        return float(self.document["board"]["milliseconds"])

    def energy(self) -> RunEnergy:
        """Estimate the energy of the NPU and the DRAM at the clock of the estimate, in joules."""
        from rkcosim.measure.energy import energy_of
        from rkcosim.measure.report.data import from_json

        return energy_of(from_json(self.document), self.document["clock_mhz"])

    @property
    def variants(self) -> list[dict[str, Any]]:
        """Times with other memory, clocks, cores and CBUF splits; empty if they were not asked for."""
        return list(self.document["what_if"])

    @property
    def table(self) -> Table[EstimateRow]:
        """The layers, with estimated cycles and what bounds each."""
        rows = [EstimateRow(**row) for row in self.document["layers"]]
        columns: list[Column[EstimateRow]] = [
            Column("layer", lambda row: row.name),
            Column("op", lambda row: row.op),
            Column("on", lambda row: row.target),
            Column("tasks", lambda row: row.tasks, ","),
            Column("cycles", lambda row: row.cycles, ","),
            Column("share", lambda row: row.share, ".1%"),
            Column("MACs", lambda row: row.macs, ","),
            Column("bound by", lambda row: row.bound),
        ]
        return Table(f"{self.document['model']}: estimate", rows, columns, asdict, numbered=True)

    def lines(self) -> Iterator[str]:
        """Yield cycles and time, the error of such estimates, and the host's part."""
        from rkcosim.measure.perf.estimator.coefficients import said_error
        from rkcosim.measure.perf.estimator.document import host_line

        document = self.document
        cores = f"{document['cores']} core{'s' if document['cores'] > 1 else ''}"
        yield (
            f"{document['model']}: about {self.cycles:,} cycles, {self.milliseconds:.3f} ms at "
            f"{document['clock_mhz']:g} MHz on {cores} (estimated)"
        )
        yield f"with a driver: {self.board_milliseconds:.3f} ms"
        yield said_error()
        if document.get("warning"):
            yield f"warning: {document['warning']}"
        if document["host"]:
            yield host_line(document["host"])

    def as_json(self) -> dict[str, Any]:
        """Return the document of `rkcosim estimate --json`."""
        return self.document

    def roofline(self) -> str:
        """Return the roofline with the layers as the text of an SVG file; empty without MACs."""
        from rkcosim.measure.perf.estimator.document import as_run

        return roofline_svg(as_run(self.document))

    def _pictures(self) -> str:
        from rkcosim.measure.perf.estimator.document import as_run

        return roofline_html(as_run(self.document))

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the cycles of the layers as bars; see `Profile.plot`."""
        values = [(row["name"], float(row["cycles"] or 0)) for row in self.document["layers"]]
        return bars(axes, values, "estimated cycles", self.document["model"])


class AccuracyReport(Report):
    """How far a quantised model is from its float original, layer by layer.

    Members
    -------
    found
        The figures of each layer and output.
    """

    def __init__(self, name: str, found: Accuracy) -> None:
        self.name, self.found = name, found

    @property
    def outputs(self) -> dict[str, Figures]:
        """Figures of the outputs by name: `cosine`, `sqnr` in dB, `worst`, `steps`, `channels`."""
        return self.found.outputs

    def worst(self, count: int = 3) -> list[str]:
        """Return the names of the layers with the largest errors, or that the output gains most from.

        The second if layers were tried in floating point, as `mixed` of `Model.quantize` does.
        """
        return [layer.name for layer in self.found.worst(count)]

    @property
    def findings(self) -> list[str]:
        """What is wrong with the codes of outputs, Concats and inner tensors, in words."""
        return self.found.findings()

    @property
    def advice(self) -> list[Trial]:
        """Changes that lower the error of the outputs by more than its noise, the best first.

        Empty if there is none or `advice` was not asked for.  Each has `text`, `options` of
        `rkcosim quantize`, `error` (mean relative error of the channels), `sqnr` in dB and `noise`;
        `found.advice` has all that were tried.
        """
        return self.found.advice.advised if self.found.advice is not None else []

    @property
    def codes(self) -> Table[CodeRow]:
        """Range, step and codes in use of each quantised tensor, those with lost channels first."""
        from rkcosim.measure.models.accuracy_words import code_rows

        columns: list[Column[CodeRow]] = [
            Column("tensor", lambda row: row.name),
            Column("op", lambda row: row.layer.op),
            Column("range", lambda row: row.range),
            Column("step", lambda row: row.step, ".4g"),
            Column("channels", lambda row: row.channels),
            Column("lost channels", lambda row: row.lost),
            Column("fewest codes", lambda row: row.fewest),
            Column("median codes", lambda row: row.median),
        ]
        return Table(f"{self.name}: codes in use", code_rows(self.found), columns, _of_codes)

    @property
    def table(self) -> Table[QuantisedLayer]:
        """The quantised layers, those that should stay in floating point first."""
        columns: list[Column[QuantisedLayer]] = [
            Column("layer", lambda row: row.name),
            Column("op", lambda row: row.op),
            Column("SQNR alone", lambda row: row.alone.sqnr, ".1f"),
            Column("cosine alone", lambda row: row.alone.cosine, ".5f"),
            Column("SQNR accumulated", lambda row: row.accumulated.sqnr, ".1f"),
            Column("cosine accumulated", lambda row: row.accumulated.cosine, ".5f"),
        ]
        title = f"{self.name} against the float model: largest errors first"
        return Table(title, self.found.ranked(), columns, _of_layer)

    def lines(self) -> Iterator[str]:
        """Yield the figures of the outputs, what is wrong with the codes, and which layers matter."""
        from rkcosim.measure.models.accuracy_words import advice_lines, layer_line, output_lines

        found = self.found
        yield from output_lines(found)
        if found.advice is not None:
            yield from advice_lines(found)
        yield f"on {found.samples} sample{'s' if found.samples != 1 else ''}, with {found.runtime}"
        if line := layer_line(found):
            yield line
        if found.kept:
            yield f"layers with weights in floating point: {', '.join(found.kept)}"

    def _page(self) -> str:
        """Return the page of `rkcosim accuracy --html`."""
        from rkcosim.measure.report.accuracy import render

        return render(self.name, self.found)

    def as_json(self) -> dict[str, Any]:
        """Return the members of the report of `rkcosim accuracy --json`."""
        return {"model": self.name, **self.found.as_json()}


def _of_codes(row: CodeRow) -> dict[str, Any]:
    codes = asdict(row.layer.codes) if row.layer.codes is not None else {}
    return {"name": row.name, "layer": row.layer.name, "op": row.layer.op, **codes}


def _of_layer(row: QuantisedLayer) -> dict[str, Any]:
    figures = {"alone": row.alone, "accumulated": row.accumulated}
    if row.output is not None:
        figures["output_if_float"] = row.output
    parts = {f"{who}.{name}": value for who, one in figures.items() for name, value in asdict(one).items()}
    return {"name": row.name, "op": row.op, "tensor": row.tensor, "scale": row.scale, **parts}


def _check_clock(clock: float) -> None:
    """Raise ValueError for a clock in MHz that an estimate would refuse as well."""
    from rkcosim.measure.perf.estimator.whatif import at_clock

    at_clock(None, clock)
