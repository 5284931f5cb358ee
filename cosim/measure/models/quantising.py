"""Quantisation of a model with layers kept in floating point, and how far the result is from the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rkcosim.compiler import quantization
from rkcosim.compiler.quantization import Accuracy, FloatModel, Settings
from rkcosim.compiler.quantization.forms import Sample
from rkcosim.measure.models.accuracy import npu_figures


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
    """

    data: bytes
    found: Accuracy
    before: Accuracy
    kept: tuple[str, ...]


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

    Raises
    ------
    ModelError
        If there are too few samples for advice, or as `FloatModel.quantize` and `FloatModel.measure`.
    """
    made = model.quantize(samples, settings)
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
        found.advice = quantization.advise(model, learnt, fresh, replace(settings, keep=kept))
    return Quantised(made, found, before, kept)


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
        kept = tuple(found.kept)
        found.advice = quantization.advise(model, learnt, fresh, Settings(keep=kept), given=data)
    return found
