"""The page of a comparison of a quantised model with its float original: outputs, codes in use, layers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from rkcosim.compiler.quantization.channels import CODES, FEW
from rkcosim.compiler.quantization.figures import order
from rkcosim.measure.models.accuracy_words import advised, code_rows, cost_text, layer_line, trial_text
from rkcosim.measure.report import page
from rkcosim.measure.report.figures import NOTHING
from rkcosim.measure.report.table import Cell, Column, groups
from rkcosim.waves.drawing import clip

if TYPE_CHECKING:
    from rkcosim.compiler.quantization import Accuracy, Figures, Layer

MOST_DB = 60.0
"""SQNR in dB that fills a cell's bar."""


def render(name: str, found: Accuracy) -> str:
    """Return the page as text.

    Parameters
    ----------
    name
        Name of the quantised model.
    found
        The comparison.

    Raises
    ------
    ReportError
        If Jinja2 is missing.
    """
    columns = _columns(found)
    codes = [
        (
            row.name,
            row.layer.op,
            row.range,
            f"{row.step:.4g}",
            str(row.channels),
            str(row.lost),
            NOTHING if row.fewest is None else str(row.fewest),
            NOTHING if row.median is None else str(row.median),
            *_inputs(row.layer),
        )
        for row in code_rows(found)
    ]
    outputs = [
        (
            output,
            who,
            decibels(figures),
            f"{figures.cosine:.6f}",
            f"{figures.worst:.4g}",
            _steps(figures),
            NOTHING if figures.channels is None else f"{100 * figures.channels:.2f} %",
        )
        for output in found.outputs
        for who, several in ((found.runtime, found.outputs), ("NPU arithmetic", found.npu))
        if (figures := several.get(output)) is not None
    ]
    return str(
        page.template("accuracy.html.j2").render(
            css=Markup(page.content("style.css")),
            js=Markup(page.content("script.js")),
            name=name,
            found=found,
            outputs=outputs,
            codes=codes,
            few=FEW,
            all_codes=CODES,
            findings=found.findings(),
            important=layer_line(found),
            advice=found.advice,
            trials=[
                (trial_text(trial) + cost_text(trial), trial.text, shlex.join(trial.options))
                for trial in advised(found)
            ],
            columns=columns,
            groups=groups(columns),
            rows=range(len(found.layers)),
        )
    )


def write(path: Path, name: str, found: Accuracy) -> None:
    """Write the page of a comparison; raises the errors of `render`."""
    page.put(path, render(name, found))


def _inputs(layer: Layer) -> tuple[str]:
    """Return range and number of codes of each input of a Concat as one text."""
    parts = layer.codes.parts if layer.codes is not None else []
    return ("; ".join(f"{part.name} {part.low:.4g}..{part.high:.4g}: {part.codes}" for part in parts),)


def decibels(figures: Figures) -> str:
    """Return the SQNR as text."""
    return "exact" if figures.sqnr is None else f"{figures.sqnr:.1f} dB"


def _steps(figures: Figures) -> str:
    return NOTHING if figures.steps is None else f"{figures.steps:.1f}"


def _columns(found: Accuracy) -> list[Column]:
    layers = found.layers
    places = {id(layer): number for number, layer in enumerate(found.ranked(), 1)}
    columns = [
        Column("#", "", "place in the model", [Cell(str(n), n) for n, _ in enumerate(layers)]),
        Column(
            "layer",
            "",
            "name of the layer",
            [Cell(clip(one.name, 40), one.name, css="words", hover=one.tensor) for one in layers],
        ),
        Column("op", "", "operator", [Cell(one.op, one.op, css="words") for one in layers]),
        Column(
            "rank",
            "",
            "place by the error of the worst output with this layer in floating point, else by its own error",
            [Cell(str(places.get(id(one), NOTHING)), places.get(id(one))) for one in layers],
        ),
    ]
    if any(one.output for one in layers):
        columns.append(
            Column(
                "output",
                "",
                "SQNR of the worst output in dB when this layer alone is in floating point",
                [
                    Cell(decibels(f), order(f), _bar(f), "num share p-array") if f else Cell(NOTHING, None)
                    for f in (one.output for one in layers)
                ],
            )
        )
    for group, own in (("alone", "alone"), ("accumulated", "accumulated")):
        figures = [getattr(one, own) for one in layers]
        columns += [
            Column(
                "SQNR",
                group,
                "signal to quantisation noise in dB",
                [
                    Cell(decibels(f), 999.0 if f.sqnr is None else f.sqnr, _bar(f), "num share p-array")
                    for f in figures
                ],
            ),
            Column("cosine", group, "cosine", [Cell(f"{f.cosine:.6f}", f.cosine) for f in figures]),
            Column(
                "largest", group, "largest difference", [Cell(f"{f.worst:.4g}", f.worst) for f in figures]
            ),
            Column("steps", group, "the same in steps", [Cell(_steps(f), f.steps) for f in figures]),
        ]
    return columns


def _bar(figures: Figures) -> float:
    return 1.0 if figures.sqnr is None else min(max(figures.sqnr / MOST_DB, 0.0), 1.0)
