"""Ranges of activations by the method that leaves the smallest error of the outputs on held-out samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rkcosim.base import progress
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.quantization.forms import FloatModel, OnnxModel, Sample
from rkcosim.compiler.quantization.quantizer import Method, Settings
from rkcosim.compiler.quantization.scores import Score
from rkcosim.compiler.quantization.trials import Trial

FEWEST = 4
"""Fewest samples to calibrate with, and fewest to measure on."""

METHODS: tuple[tuple[Method, float], ...] = (("minmax", 99.99), ("percentile", 99.99), ("percentile", 99.9))
"""Ranges that are tried: method and, for "percentile", the percentage.  The others take longer."""


@dataclass(frozen=True)
class Selection:
    """Result of `select_ranges`.

    Members
    -------
    settings
        The settings with the method that was chosen.
    trials
        The methods that were tried, the best first; the chosen one is `advised`.
    """

    settings: Settings
    trials: list[Trial]


def select_ranges(model: FloatModel, samples: Sequence[Sample], settings: Settings) -> Selection:
    """Choose the method by which ranges of activations are found.

    The model is quantised with each method on every second sample and compared with the float model on the
    others, and the other way round.  The method with the smallest mean error is chosen; one that onnxruntime
    cannot compute for this model, such as the percentiles of values that are nearly 0, is left out.

    Parameters
    ----------
    model
        A float ONNX model.
    samples
        Calibration data, at least twice `FEWEST` samples.
    settings
        How the model is quantised otherwise.

    Raises
    ------
    ModelError
        If there are too few samples, the model is no ONNX model, or as `FloatModel.quantize`.
    """
    if not isinstance(model, OnnxModel):
        raise ModelError("the method 'auto' is not available for TFLite models, only minmax")
    if len(samples) < 2 * FEWEST:
        raise ModelError(
            f"the method 'auto' needs at least {2 * FEWEST} samples, half of them to measure on, not "
            f"{len(samples)}"
        )
    halves = samples[0::2], samples[1::2]
    turns = ((halves[0], halves[1]), (halves[1], halves[0]))
    right = [outputs for _, fresh in turns for outputs in model.run(fresh)]
    found: list[tuple[Settings, Score, Trial]] = []
    with progress.step("trying ranges", len(METHODS), "methods") as shown:
        for method, percentile in METHODS:
            tried = replace(settings, method=method, percentile=percentile)
            try:
                ours = [
                    outputs
                    for learnt, fresh in turns
                    for outputs in model.run_quantised(model.quantize(learnt, tried), fresh)
                ]
            except ModelError:
                if not found:  # the first method must be possible
                    raise
                continue
            score = Score(right, ours)
            start = found[0][1] if found else score
            trial = score.against(start, Trial(method_text(tried), range_options(tried), 0.0, None))
            found.append((tried, score, trial))
            shown.advance()
    chosen = min(found, key=lambda item: item[2].error)
    for item in found:
        item[2].advised = item is chosen
    trials = sorted((trial for _, _, trial in found), key=lambda trial: trial.error)
    return Selection(chosen[0], trials)


def method_text(settings: Settings) -> str:
    """Return the name of a method, with its percentage."""
    return f"percentile of {settings.percentile:g} %" if settings.method == "percentile" else settings.method


def range_options(settings: Settings) -> list[str]:
    """Return the options of `rkcosim quantize` for the ranges of settings."""
    more = ["--percentile", f"{settings.percentile:g}"] if settings.method == "percentile" else []
    return ["--method", settings.method, *more]
