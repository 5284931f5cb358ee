"""Quantisation of a model with layers kept in floating point, and how far the result is from the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rkcosim.compiler import quantization
from rkcosim.compiler.quantization import (
    Accuracy,
    Cost,
    FloatModel,
    Score,
    Selection,
    Settings,
    method_text,
)
from rkcosim.compiler.quantization.forms import Sample
from rkcosim.measure.models.accuracy import npu_figures
from rkcosim.measure.models.accuracy_words import selection_text
from rkcosim.measure.perf.estimator import estimate_model

MUCH = 1.25
"""Ratio of the errors from which on a method is warned of."""


@dataclass(frozen=True)
class Quantised:
    """A quantised model.

    Members
    -------
    data
        Bytes of its file.
    found
        Its figures on the samples.
    before
        The figures without the layers that `mixed` and `below` have kept; `found` if they kept none.
    kept
        Names of all layers that stay in floating point.
    settings
        How it was quantised, with the method that was chosen.
    selection
        The methods that were tried; None if one was given.
    """

    data: bytes
    found: Accuracy
    before: Accuracy
    kept: tuple[str, ...]
    settings: Settings
    selection: Selection | None = None


def quantise(
    model: FloatModel,
    samples: Sequence[Sample],
    settings: Settings,
    *,
    mixed: int = 0,
    below: float | None = None,
    gains: bool = False,
    npu: bool = False,
    advice: bool = False,
    held_out: Sequence[Sample] = (),
    auto: bool = False,
) -> Quantised:
    """Quantise a model; what sensitive layers would lose is measured first.

    Parameters
    ----------
    model, samples, settings
        As for `FloatModel.quantize`.
    mixed
        Number of layers, beside those of `settings`, that stay in floating point: those that the output gains
        most from.
    below
        Layers whose cosine alone is below this number stay in floating point as well; None: none of them.
    gains
        Whether each layer is also tried in floating point; `mixed` implies it.
    npu
        Whether the figures have the outputs in the NPU's arithmetic.
    advice
        Whether the figures have what was tried to make the model better.
    held_out
        Samples on which that is measured; empty: half of `samples` are measured on and not calibrated with.
    auto
        Whether the method of the ranges is chosen (`select_ranges`); that of `settings` has no effect then.

    Raises
    ------
    ModelError
        If there are too few samples for advice or `auto`, or as `FloatModel.quantize` and
        `FloatModel.measure`.
    """
    selection = quantization.select_ranges(model, samples, settings) if auto else None
    if selection is not None:
        settings = selection.settings
    made = model.quantize(samples, settings)
    remarks = [_method_warning(model, made, samples, settings)] if selection is None else []
    if selection is not None:
        remarks.append(selection_text(selection))
    before = found = model.measure(made, samples, gains=gains or mixed > 0)
    limit = -1.0 if below is None else below
    more = [layer.name for layer in found.worst(len(found.layers)) if layer.alone.cosine < limit]
    kept = settings.keep
    if mixed:
        kept = quantization.keep_most_important(model, samples, settings, mixed, found)
    if mixed or more:
        kept = tuple(dict.fromkeys([*kept, *more]))
        made = model.quantize(samples, replace(settings, keep=kept))
        found = model.measure(made, samples)
    if npu:
        found.npu = npu_figures(model, made, samples)
    if advice:
        learnt, fresh = (samples, held_out) if held_out else quantization.divided(samples)
        found.advice = quantization.advise(model, learnt, fresh, replace(settings, keep=kept), cost=cost_of)
    found.remarks = [remark for remark in remarks if remark]
    return Quantised(made, found, before, kept, settings, selection)


def cost_of(data: bytes) -> Cost | None:
    """Return the estimated cycles and the operators on the host of a model's file; None if there are none."""
    try:
        found = estimate_model(data)
    except ValueError:  # also a ModelError
        return None
    return Cost(found.cycles, len(found.host.operators) if found.host else 0)


def _method_warning(model: FloatModel, made: bytes, samples: Sequence[Sample], settings: Settings) -> str:
    """Return a warning if ranges by the extreme values leave a much smaller error of the outputs."""
    if settings.method == "minmax":
        return ""
    right = model.run(samples)
    plain = model.quantize(samples, replace(settings, method="minmax"))
    ours, theirs = (Score(right, model.run_quantised(data, samples)) for data in (made, plain))
    if ours.error < MUCH * theirs.error:
        return ""
    return (
        f"warning: ranges by {method_text(settings)} leave an error of {100 * ours.error:.2f} % on these "
        f"samples (mean relative error of the channels), those by minmax {100 * theirs.error:.2f} %; use "
        "--method minmax or auto"
    )


def measure(
    model: FloatModel,
    data: bytes,
    samples: Sequence[Sample],
    *,
    gains: bool = False,
    npu: bool = False,
    advice: bool = False,
) -> Accuracy:
    """Compare a quantised model with its float original; parameters as for `quantise`.

    For advice the float model is quantised on half of the samples, and all models are compared on the others.

    Raises
    ------
    ModelError
        If the two do not belong together, or there are too few samples for advice.
    """
    found = model.measure(data, samples, gains=gains)
    if npu:
        found.npu = npu_figures(model, data, samples)
    if advice:
        learnt, fresh = quantization.divided(samples)
        kept = tuple(name for name in found.kept if name in model.layers)
        found.advice = quantization.advise(
            model, learnt, fresh, Settings(keep=kept), given=data, cost=cost_of
        )
    return found
