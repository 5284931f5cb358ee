"""Changes that make the outputs of an int8 model better, each of them followed on a copy and measured.

A model is quantised on some samples, with a change and without it, and both are compared with the float
model on other samples.  A change is advised only if the error of the outputs falls by more than its noise:
the limit that a change without a gain exceeds with the chance `CHANCE` (Student's t of the differences of
the samples).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rkcosim.base import progress
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.quantization.accuracy import MOVEMENTS, Accuracy
from rkcosim.compiler.quantization.channels import CONCATS
from rkcosim.compiler.quantization.cuts import before_concat, behind, runs_of_cut
from rkcosim.compiler.quantization.figures import order, worst_of
from rkcosim.compiler.quantization.forms import FloatModel, OnnxModel, Sample
from rkcosim.compiler.quantization.quantizer import Method, Settings
from rkcosim.compiler.quantization.scores import Outputs, Score
from rkcosim.compiler.quantization.selection import FEWEST, METHODS, method_text, range_options
from rkcosim.compiler.quantization.trials import Advice, Trial

LAYERS = 3
"""Layers that are tried in floating point, one at a time and together."""

CONCATS_TRIED = 3
"""Concats before which the model is cut, or that are kept in floating point."""

MSE: tuple[Method, float] = ("mse", 99.99)
"""Method of ranges that is tried beside `METHODS`."""

RATIO = 4.0
"""Ratio of the ranges of a Concat's inputs from which on it is tried without a common step."""


@dataclass(frozen=True)
class _Change:
    """A change: words, options, and the function that returns the outputs with it on the held-out samples."""

    text: str
    options: list[str]
    outputs: Callable[[], Outputs]


def divided(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Return the samples at even places, to calibrate with, and those at odd places, to measure on.

    Raises
    ------
    ModelError
        If there are fewer than `FEWEST` of one of them.
    """
    learnt, fresh = samples[0::2], samples[1::2]
    if len(fresh) < FEWEST:
        raise ModelError(
            f"advice needs at least {2 * FEWEST} samples, half of them to measure on, not {len(samples)}"
        )
    return learnt, fresh


def advise(
    model: FloatModel,
    learnt: Sequence[Sample],
    fresh: Sequence[Sample],
    settings: Settings,
    given: bytes = b"",
) -> Advice:
    """Try changes of a quantised model.

    Parameters
    ----------
    model
        The float model.
    learnt, fresh
        Samples to calibrate with, and others to measure on.
    settings
        How the model without a change is quantised.
    given
        A quantised model that was made elsewhere; changes must be better than it as well. Empty for none.

    Raises
    ------
    ModelError
        If there are fewer than `FEWEST` samples of one kind, or as `FloatModel.quantize`.
    """
    for who, samples in (("calibrate with", learnt), ("measure on", fresh)):
        if len(samples) < FEWEST:
            raise ModelError(f"advice needs at least {FEWEST} samples to {who}, not {len(samples)}")
    right = model.run(fresh)
    made = model.quantize(learnt, settings)
    own = Score(right, model.run_quantised(made, fresh))
    start, found = own, model.measure(made, learnt, gains=True)
    before = Trial("quantised as it is", [], own.error, own.sqnr)
    trials, failed = [], list[str]()
    if given:
        theirs = Score(right, model.run_quantised(given, fresh))
        before = Trial("the given model", [], theirs.error, theirs.sqnr)
        again = own.against(theirs, Trial("quantise the float model again", _options(settings), 0.0, None))
        trials.append(again)
        start = own if again.advised else theirs
        before = again if again.advised else before
    changes = list(_changes(model, learnt, fresh, settings, found))
    with progress.step("trying changes", len(changes), "changes") as shown:
        for change in changes:
            try:
                score = Score(right, change.outputs())
            except ModelError as error:
                failed.append(f"{change.text}: {error}")
            else:
                trials.append(score.against(start, Trial(change.text, change.options, 0.0, None)))
            shown.advance()
    trials.sort(key=lambda trial: trial.error)
    return Advice(len(learnt), len(fresh), before, trials, failed)


def _changes(
    model: FloatModel,
    learnt: Sequence[Sample],
    fresh: Sequence[Sample],
    settings: Settings,
    found: Accuracy,
) -> Iterator[_Change]:
    """Yield the changes to try."""

    def kept(*names: str) -> Callable[[], Outputs]:
        changed = replace(settings, keep=(*settings.keep, *names))
        return lambda: model.run_quantised(model.quantize(learnt, changed), fresh)

    def other(changed: Settings) -> Callable[[], Outputs]:
        return lambda: model.run_quantised(model.quantize(learnt, changed), fresh)

    if isinstance(model, OnnxModel):
        for name in _uneven_concats(found):
            if cut := before_concat(model.proto, name):
                text = f"cut the model before the Concat '{name}', and join its parts in floating point"
                run = partial(runs_of_cut, model, cut, learnt, fresh, settings)
                yield _Change(text, ["--outputs", ",".join(cut)], run)
            movements = [name, *behind(model.proto, name, MOVEMENTS)]
            text = f"keep the Concat '{name}' and what moves its result in floating point, on the host"
            yield _Change(text, _keep(movements), kept(*movements))
    now = order(worst_of(found.outputs))
    names = [
        layer.name
        for layer in found.worst(len(found.layers))
        if layer.output is None or order(layer.output) > now
    ][:LAYERS]
    for name in names:
        yield _Change(f"keep the layer '{name}' in floating point", _keep([name]), kept(name))
    if len(names) > 1:
        text = f"keep the layers {', '.join(names)} in floating point"
        yield _Change(text, _keep(names), kept(*names))
    if isinstance(model, OnnxModel):
        for method, percentile in (*METHODS, MSE):
            if method == settings.method and (method != "percentile" or percentile == settings.percentile):
                continue
            changed = replace(settings, method=method, percentile=percentile)
            yield _Change(f"use ranges by {method_text(changed)}", range_options(changed), other(changed))
    if not settings.per_channel:
        changed = replace(settings, per_channel=True)
        yield _Change("give weights a scale for each channel", ["--per-channel"], other(changed))


def _uneven_concats(found: Accuracy) -> list[str]:
    """Return the names of the Concats whose inputs have very different ranges, the most different first."""
    ratios = {}
    for layer in found.layers:
        if layer.op in CONCATS and layer.codes is not None:
            widths = [max(abs(part.low), abs(part.high)) for part in layer.codes.parts]
            widths = [width for width in widths if width > 0]
            if len(widths) > 1 and max(widths) > RATIO * min(widths):
                ratios[layer.name] = max(widths) / min(widths)
    return sorted(ratios, key=lambda name: -ratios[name])[:CONCATS_TRIED]


def _keep(names: Sequence[str]) -> list[str]:
    return [word for name in names for word in ("--keep", name)]


def _options(settings: Settings) -> list[str]:
    """Return the options of `rkcosim quantize` that settings stand for."""
    weights = [] if settings.per_channel else ["--per-tensor"]
    return [*range_options(settings), *weights, *_keep(settings.keep)]
