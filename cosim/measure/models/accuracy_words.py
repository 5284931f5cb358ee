"""What the report of a quantised model says in words and in rows about codes, outputs and layers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rkcosim.compiler.quantization import Accuracy, Figures, Layer, Selection, Trial, method_text, worst_of
from rkcosim.compiler.quantization.figures import order

NAMED = 3
"""Layers that a sentence names."""

NO_GAIN = 0.05
"""Smallest gain in dB that is named."""


@dataclass(frozen=True)
class CodeRow:
    """The codes of a quantised tensor.

    Members
    -------
    layer
        The layer that computes it, whose member `codes` is not None.
    channels, lost
        Number of channels, and of those whose values cannot be told apart in int8.
    fewest, median
        Codes in use in the channel with the fewest of them, and in the middle one, of the channels whose
        values differ; None without such a channel.
    """

    layer: Layer
    channels: int
    lost: int
    fewest: int | None
    median: int | None

    @property
    def name(self) -> str:
        """Name of the tensor in the float model."""
        return self.layer.tensor

    @property
    def range(self) -> str:
        """The smallest and the largest real value in the float model."""
        codes = self.layer.codes
        return f"{codes.low:.4g}..{codes.high:.4g}" if codes is not None else ""

    @property
    def step(self) -> float:
        """Difference of the real values of two neighbouring codes."""
        codes = self.layer.codes
        return codes.step if codes is not None else 0.0


def code_rows(found: Accuracy) -> list[CodeRow]:
    """Return a row for each quantised tensor, those with the largest part of lost channels first."""
    rows = []
    for layer in found.layers:
        if (codes := layer.codes) is None:
            continue
        several = zip(codes.lows, codes.highs, codes.used, strict=True)
        used = sorted(count for low, high, count in several if high > low)
        fewest, median = (used[0], int(np.median(used))) if used else (None, None)
        rows.append(CodeRow(layer, len(codes.used), len(codes.lost), fewest, median))
    return sorted(rows, key=lambda row: -row.lost / max(row.channels, 1))


def conspicuous(found: Accuracy) -> list[CodeRow]:
    """Return the rows of the outputs and of tensors with lost channels."""
    return [row for row in code_rows(found) if row.lost or row.layer.tensor in found.outputs]


def output_text(figures: Figures) -> str:
    """Return the figures of an output in one line."""
    sqnr = "exact" if figures.sqnr is None else f"SQNR {figures.sqnr:.1f} dB"
    steps = "" if figures.steps is None else f" ({figures.steps:.1f} steps)"
    channels = (
        "" if figures.channels is None else f", channels off by {100 * figures.channels:.2f} % on average"
    )
    return f"{sqnr}, cosine {figures.cosine:.5f}, at most {figures.worst:.4g} apart{steps}{channels}"


def output_lines(found: Accuracy) -> Iterator[str]:
    """Yield the figures of each output, in the runtime and on the NPU, and what is wrong with the codes."""
    for output, figures in found.outputs.items():
        yield f"output {output}: {output_text(figures)}"
        if output in found.npu:
            yield f"output {output} on the NPU: {output_text(found.npu[output])}"
    for layer in found.float_outputs():
        yield f"output {layer.tensor} is in floating point: {layer.op} '{layer.name}' is not quantised"
    yield from found.remarks
    for finding in found.findings():
        yield f"warning: {finding}"


def layer_line(found: Accuracy) -> str:
    """Return which layers the output gains most from, or only which ones have the largest errors alone.

    A layer with a large error of its own need not matter for the outputs, so that only layers that were tried
    in floating point are proposed.
    """
    layers = found.worst(len(found.layers))
    if not layers:
        return ""
    if not any(layer.output for layer in layers):
        names = ", ".join(layer.name for layer in layers[:NAMED])
        return f"largest errors alone: {names}; what they cost the outputs was not measured"
    now = worst_of(found.outputs)
    gains = [layer for layer in layers if layer.output and order(layer.output) > order(now) + NO_GAIN]
    if not gains:
        return "no layer that is in floating point alone improves the worst output"
    texts = [f"{layer.name} {_decibels(layer.output)}" for layer in gains[:NAMED] if layer.output]
    return f"SQNR of the worst output ({_decibels(now)}) with one layer in floating point: {', '.join(texts)}"


def advice_lines(found: Accuracy) -> Iterator[str]:
    """Yield the changes that make the outputs better by more than the noise, with the errors they leave.

    Without advice there is one line if something is wrong with the codes: how to ask for it.
    """
    advice = found.advice
    if advice is None:
        if found.findings():
            yield "--advice tries changes on copies of the model and measures what they gain"
        return
    samples = f"{advice.measured} samples that were not calibrated with"
    now = f"error {trial_text(advice.before)} on {samples}"
    if not advice.advised:
        yield f"advice: none of {len(advice.trials)} changes lowers the {now} by more than the noise"
    else:
        takes = "" if advice.before.cost is None else ", estimated cycles"
        yield f"advice, measured on {samples}: relative error of the channels (SQNR){takes}"
        for trial in advised(found):
            options = f" ({shlex.join(trial.options)})" if trial.options else ""
            yield f"  {trial_text(trial)}{cost_text(trial)}: {trial.text}{options}"
    for reason in advice.failed:
        yield f"  could not be tried: {reason}"


def selection_text(selection: Selection) -> str:
    """Return which method of ranges was chosen, and the errors of all that were tried."""
    texts = [f"{trial.text} {trial_text(trial)}" for trial in selection.trials]
    chosen = method_text(selection.settings)
    return f"ranges by {chosen}; errors of the channels on held-out samples: {', '.join(texts)}"


def advised(found: Accuracy) -> list[Trial]:
    """Return the model without a change, and the changes that make it better; empty without advice."""
    advice = found.advice
    return [advice.before, *advice.advised] if advice is not None else []


def trial_text(trial: Trial) -> str:
    """Return the error and the SQNR that a change leaves."""
    return f"{100 * trial.error:.2f} % ({_decibels(trial)})"


def cost_text(trial: Trial) -> str:
    """Return the estimated cycles of an inference and the operators on the host, if they are known."""
    if trial.cost is None:
        return ""
    hosted = f" and {trial.cost.host_operators} on the host" if trial.cost.host_operators else ""
    return f", {trial.cost.cycles:,}{hosted}"


def _decibels(figures: Figures | Trial) -> str:
    return "exact" if figures.sqnr is None else f"{figures.sqnr:.1f} dB"
