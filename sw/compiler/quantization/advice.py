"""Changes that make the outputs of an int8 model better, each of them followed on a copy and measured.

A model is quantised on some samples, with a change and without it, and both are compared with the float
model on other samples.  A change is advised only if the error of the outputs falls by more than its noise:
the limit that a change without a gain exceeds with the chance `CHANCE` (Student's t of the differences of
the samples).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

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
from rkcosim.compiler.quantization.trials import Advice, Cost, Trial

LAYERS = 3
"""Layers that are tried in floating point, one at a time and together."""

CONCATS_TRIED = 3
"""Concats before which the model is cut, that are kept in floating point, or whose inputs share a range."""

MSE: tuple[Method, float] = ("mse", 99.99)
"""Method of ranges that is tried beside `METHODS`."""

RATIO = 4.0
"""Ratio of the ranges of a Concat's inputs from which on it is tried without a common step, and up to which
its inputs are tried with the range of the result."""

COMBINED = 4
"""Largest number of changes that are made together."""

T = TypeVar("T")

CostOf = Callable[[bytes], Cost | None]
"""Returns what an inference of a quantised model takes."""


@dataclass(frozen=True)
class _Change:
    """A change of how a model is quantised.

    Members
    -------
    text
        What is done, in words.
    options
        Options of `rkcosim quantize` that do it, each with its value.
    keep, share
        Names that are added to those of `Settings`.
    others
        Other members of `Settings` that it sets.
    cut
        Outputs of the model that is cut; empty if it is not.
    subject
        What it is about; changes of the same subject exclude each other.
    """

    text: str
    options: tuple[tuple[str, ...], ...]
    keep: tuple[str, ...] = ()
    share: tuple[str, ...] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    cut: tuple[str, ...] = ()
    subject: str = ""

    def trial(self, cost: Cost | None) -> Trial:
        """Return a trial of the change whose errors are not known yet."""
        return Trial(self.text, [word for option in self.options for word in option], 0.0, None, cost=cost)

    def of(self, settings: Settings) -> Settings:
        """Return settings with the change."""
        keep, share = _joined(settings.keep, self.keep), _joined(settings.share, self.share)
        return replace(settings, keep=keep, share=share, **self.others)

    def with_(self, other: _Change) -> _Change:
        """Return both changes as one."""
        return _Change(
            f"{self.text}; {other.text}",
            _joined(self.options, other.options),
            _joined(self.keep, other.keep),
            _joined(self.share, other.share),
            {**self.others, **other.others},
            self.cut or other.cut,
        )


class _Work:
    """The model, its samples, and the settings without a change."""

    def __init__(
        self,
        model: FloatModel,
        learnt: Sequence[Sample],
        fresh: Sequence[Sample],
        settings: Settings,
        cost: CostOf | None,
    ) -> None:
        self.model, self.learnt, self.fresh, self.settings = model, learnt, fresh, settings
        self._cost = cost
        self.right: Outputs = model.run(fresh)

    def score(self, data: bytes) -> Score:
        """Return the errors of a quantised model."""
        return Score(self.right, self.model.run_quantised(data, self.fresh))

    def cost(self, data: bytes) -> Cost | None:
        """Return what an inference takes."""
        return self._cost(data) if self._cost is not None else None

    def make(self, change: _Change) -> tuple[Score, Cost | None]:
        """Make a change; return the errors that it leaves and what it costs. Raises ModelError."""
        settings = change.of(self.settings)
        if change.cut:
            assert isinstance(self.model, OnnxModel)
            found, made = runs_of_cut(self.model, change.cut, self.learnt, self.fresh, settings)
            return Score(self.right, found), self.cost(made)
        made = self.model.quantize(self.learnt, settings)
        return self.score(made), self.cost(made)


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
    cost: CostOf | None = None,
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
    cost
        Returns what an inference of a quantised model takes; None if that is not to be said.

    Raises
    ------
    ModelError
        If there are fewer than `FEWEST` samples of one kind, or as `FloatModel.quantize`.
    """
    for who, samples in (("calibrate with", learnt), ("measure on", fresh)):
        if len(samples) < FEWEST:
            raise ModelError(f"advice needs at least {FEWEST} samples to {who}, not {len(samples)}")
    work = _Work(model, learnt, fresh, settings, cost)
    made = model.quantize(learnt, settings)
    own = work.score(made)
    start, found = own, model.measure(made, learnt, gains=True)
    before = Trial("quantised as it is", [], own.error, own.sqnr, cost=work.cost(made))
    trials, failed = [], list[str]()
    if given:
        theirs = work.score(given)
        cost_of_given = work.cost(given)
        again = Trial("quantise the float model again", _options(settings), 0.0, None, cost=before.cost)
        before = Trial("the given model", [], theirs.error, theirs.sqnr, cost=cost_of_given)
        again = own.against(theirs, again)
        trials.append(again)
        start = own if again.advised else theirs
        before = again if again.advised else before
    changes = list(_changes(model, settings, found))
    scores: list[tuple[_Change, Score, Trial]] = []
    with progress.step("trying changes", len(changes), "changes") as shown:
        for change in changes:
            try:
                score, takes = work.make(change)
            except ModelError as error:
                failed.append(f"{change.text}: {error}")
            else:
                trial = score.against(start, change.trial(takes))
                scores.append((change, score, trial))
            shown.advance()
    scores.sort(key=lambda item: item[2].error)
    trials = sorted([*trials, *(trial for *_, trial in scores)], key=lambda trial: trial.error)
    return Advice(len(learnt), len(fresh), before, trials, failed, _together(work, start, scores))


def _together(work: _Work, start: Score, scores: Sequence[tuple[_Change, Score, Trial]]) -> Trial | None:
    """Make the advised changes one after the other, the best first; keep each that gains once more."""
    advised = [(change, score) for change, score, trial in scores if trial.advised]
    if len(advised) < 2:
        return None
    chosen, best = advised[0]
    subjects, together = {chosen.subject}, None
    with progress.step("combining changes", len(advised) - 1, "changes") as shown:
        for change, _ in advised[1:]:
            shown.advance()
            if change.subject in subjects or len(subjects) == COMBINED:
                continue
            both = chosen.with_(change)
            try:
                score, takes = work.make(both)
            except ModelError:
                continue
            if score.against(best, Trial("", [], 0.0, None)).advised:
                chosen, best = both, score
                subjects.add(change.subject)
                together = score.against(start, both.trial(takes))
    return together


def _changes(model: FloatModel, settings: Settings, found: Accuracy) -> Iterator[_Change]:
    """Yield the changes to try."""
    if isinstance(model, OnnxModel):
        yield from _changes_of_concats(model, found)
    now = order(worst_of(found.outputs))
    names = [
        layer.name
        for layer in found.worst(len(found.layers))
        if layer.output is None or order(layer.output) > now
    ][:LAYERS]
    for several in [*([name] for name in names), *([names] if len(names) > 1 else [])]:
        what = f"layer '{several[0]}'" if len(several) == 1 else f"layers {', '.join(several)}"
        text = f"keep the {what} in floating point"
        yield _Change(text, _each("--keep", several), keep=tuple(several), subject="layers")
    if isinstance(model, OnnxModel):
        for method, percentile in (*METHODS, MSE):
            if method == settings.method and (method != "percentile" or percentile == settings.percentile):
                continue
            changed = replace(settings, method=method, percentile=percentile)
            others = {"method": method, "percentile": percentile}
            text = f"use ranges by {method_text(changed)}"
            words = range_options(changed)
            options = tuple(zip(words[0::2], words[1::2], strict=True))
            yield _Change(text, options, others=others, subject="method")
    if not settings.per_channel:
        text = "give weights a scale for each channel"
        yield _Change(text, (("--per-channel",),), others={"per_channel": True}, subject="weights")


def _changes_of_concats(model: OnnxModel, found: Accuracy) -> Iterator[_Change]:
    """Yield the changes of Concats: inputs of very different ranges apart, others with a common range."""
    ratios = _ratios(found)
    for name in sorted((one for one in ratios if ratios[one] > RATIO), key=lambda name: -ratios[name])[
        :CONCATS_TRIED
    ]:
        if cut := before_concat(model.proto, name):
            text = f"cut the model before the Concat '{name}', and join its parts in floating point"
            yield _Change(text, (("--outputs", ",".join(cut)),), cut=tuple(cut), subject=name)
        movements = (name, *behind(model.proto, name, MOVEMENTS))
        text = f"keep the Concat '{name}' and what moves its result in floating point, on the host"
        yield _Change(text, _each("--keep", movements), keep=movements, subject=name)
    near = [name for name, ratio in ratios.items() if ratio <= RATIO]
    for several in [[name] for name in near[:CONCATS_TRIED]] + ([near] if len(near) > 1 else []):
        what = f"Concat '{several[0]}'" if len(several) == 1 else f"Concats {', '.join(several)}"
        text = f"give the inputs of the {what} the range of the result"
        yield _Change(text, _each("--share", several), share=tuple(several), subject="share")


def _ratios(found: Accuracy) -> dict[str, float]:
    """Return the ratio of the largest to the smallest range of the inputs of each quantised Concat."""
    ratios = {}
    for layer in found.layers:
        if layer.op in CONCATS and layer.codes is not None:
            widths = [max(abs(part.low), abs(part.high)) for part in layer.codes.parts]
            widths = [width for width in widths if width > 0]
            if len(widths) > 1:
                ratios[layer.name] = max(widths) / min(widths)
    return ratios


def _each(option: str, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((option, name) for name in names)


def _joined(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _options(settings: Settings) -> list[str]:
    """Return the options of `rkcosim quantize` that settings stand for."""
    weights = [] if settings.per_channel else ["--per-tensor"]
    names = (*_each("--keep", settings.keep), *_each("--share", settings.share))
    return [*range_options(settings), *weights, *(word for option in names for word in option)]
