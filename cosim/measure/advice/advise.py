"""Changes of a network, ranked by the time that each saves when it is made, and combined."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from rkcosim.base import Error, progress
from rkcosim.base.files import identify
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.loaders.onnx_file import read_onnx
from rkcosim.compiler.options import load_options, using_options
from rkcosim.compiler.quantization.figures import Figures, Sums, worst_of
from rkcosim.compiler.quantization.session import run_outputs
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import FAST
from rkcosim.measure.advice import (
    activations,
    channels,
    hosts,
    inputs,
    kernels,
    orders,
    outputs,
    quantising,
    running,
)
from rkcosim.measure.advice.change import MEANINGS, SECTIONS, Change, Meaning, NotApplicable, Section, Subject
from rkcosim.measure.advice.net import Net
from rkcosim.measure.advice.processes import FAILURES, times
from rkcosim.measure.advice.timing import SEED, Timed, estimated, timed
from rkcosim.measure.models.draw import random_reals
from rkcosim.rknn_file.opening import open_model

SCHEMA_VERSION = 1
"""Version of the JSON form of `Advice`."""

Kind = Literal[
    "activations",
    "orders",
    "channels",
    "kernels",
    "hosts",
    "outputs",
    "inputs",
    "quantisation",
    "cores",
    "what-if",
]

KINDS: tuple[Kind, ...] = get_args(Kind)

LEAST = 0.002
"""Smallest share of the time that a change must save to be advised."""

FASTER = 3.0
"""How many times faster than a run an estimate must be for changes to be chosen by estimates first."""

SHARE = 0.6
"""Share of the seconds after which no further single change is tried, so that some are left to combine."""

COMBINED = 8
"""Largest number of changes that are tried together."""

Sample = Mapping[str, npt.NDArray[Any]]


APART: tuple[Section, ...] = ("sizes", "together", "board")
"""Sections that are listed apart."""

MEMBERS = ("kind", "name", "text", "meaning", "network", "section")
"""Members of a change that are copied into the JSON form."""

FIGURES = ("cycles", "milliseconds", "submits", "host_operators", "spent", "engine")
"""Members of a time in the JSON form."""


class AdviceError(Error, ValueError):
    """Advice was asked for that cannot be given; the message says why."""


@dataclass
class Tried:
    """A change that was made and timed.

    Members
    -------
    change
        The change.
    time
        The time with it; None if it could not be made, or the seconds did not suffice.
    saved
        Cycles of an inference that it saves; negative if it takes more.
    saved_milliseconds
        The same with the driver's time.
    why
        Why there is no time; empty if there is one.
    error
        How far the outputs are from those without the change, on the given data and without training; None
        if that was not asked for or cannot be compared.
    """

    change: Change
    time: Timed | None = None
    saved: int = 0
    saved_milliseconds: float = 0.0
    why: str = ""
    error: Figures | None = None

    @property
    def name(self) -> str:
        """Name of the change."""
        return self.change.name

    def as_json(self) -> dict[str, Any]:
        """Return everything in a form for `json.dump`."""
        members = {name: getattr(self.change, name) for name in MEMBERS}
        found = dict.fromkeys(FIGURES) if self.time is None else _figures(self.time)
        error = None if self.error is None else asdict(self.error)
        rest = {"saved": self.saved, "saved_milliseconds": round(self.saved_milliseconds, 6), "why": self.why}
        return {**members, **found, **rest, "error": error}


def _figures(found: Timed) -> dict[str, Any]:
    return {
        "cycles": found.cycles,
        "milliseconds": found.milliseconds,
        "submits": found.submits,
        "host_operators": len(found.hosted),
        "spent": found.spent,
        "engine": found.engine,
    }


@dataclass
class Combination:
    """Changes that were made one after the other, each kept if it saved time beside those before it.

    Members
    -------
    names
        Names of the changes.
    meaning
        The strongest of their effects on the results.
    time
        The time with all of them.
    subject
        The changed network.
    error
        As for `Tried`.
    """

    names: list[str]
    meaning: Meaning
    time: Timed
    subject: Subject
    error: Figures | None = None

    def as_json(self) -> dict[str, Any]:
        """Return everything but the network in a form for `json.dump`."""
        error = None if self.error is None else asdict(self.error)
        return {"changes": self.names, "meaning": self.meaning, **_figures(self.time), "error": error}


@dataclass
class Advice:
    """What would make a network faster.

    Members
    -------
    model
        Name of its file.
    before
        Its time as it is.
    tried
        All changes that were made, those that save most first; then those that could not be timed.
    combined
        The best combinations: without a change of the results, and with all changes that were allowed.
    taken
        The changes that were asked for by name, together; None if there are none.
    clock
        Clock in MHz.
    samples
        Number of given inputs, on which errors are measured.
    """

    model: str
    before: Timed
    tried: list[Tried]
    combined: list[Combination] = field(default_factory=list)
    taken: Combination | None = None
    clock: float = 1000.0
    samples: int = 0

    @property
    def advised(self) -> list[Tried]:
        """The changes that make an inference shorter, the best first; without what is listed apart."""
        return [one for one in self.of("advice") if self.saves(one)]

    @property
    def not_faster(self) -> list[Tried]:
        """Changes that were made and save nothing."""
        return [one for one in self.of("advice") if not self.saves(one)]

    def of(self, section: Section) -> list[Tried]:
        """Return the changes of a section that were timed, the shortest time first."""
        return [one for one in self.tried if one.time is not None and one.change.section == section]

    @property
    def untried(self) -> list[Tried]:
        """Changes without a time, with the reason."""
        return [one for one in self.tried if one.time is None]

    def saves(self, one: Tried) -> bool:
        """Whether a change saves more than `LEAST` of the time, or operators of the host."""
        assert one.time is not None
        fewer = len(one.time.hosted) < len(self.before.hosted)
        return fewer or one.saved_milliseconds > LEAST * self.before.milliseconds

    def as_json(self) -> dict[str, Any]:
        """Return everything in a form for `json.dump`."""
        return {
            "model": self.model,
            "schema_version": SCHEMA_VERSION,
            "clock_mhz": self.clock,
            "samples": self.samples,
            "before": _figures(self.before),
            "advice": [one.as_json() for one in self.advised],
            **{section: [one.as_json() for one in self.of(section)] for section in APART},
            "not_faster": [one.as_json() for one in self.not_faster],
            "not_tried": [one.as_json() for one in self.untried],
            "combined": [one.as_json() for one in self.combined],
            "taken": None if self.taken is None else self.taken.as_json(),
        }


def advise(
    data: bytes,
    name: str,
    *,
    seconds: float = 60.0,
    only: Sequence[str] = (),
    take: Sequence[str] = (),
    meaning: Meaning = "retraining",
    samples: Sequence[Sample] = (),
    cores: int = 1,
    dram: DramConfig | None = None,
    clock: float = 1000.0,
    engine: str | None = FAST,
    workers: int = 1,
) -> Advice:
    """Find changes that make a network faster, make each of them, and time it.

    Parameters
    ----------
    data, name
        Bytes and name of the network's file.  Networks in other formats than ONNX stay as they are; for them
        only how they are run is changed.
    seconds
        Seconds after which no further change is tried; one that has begun is finished.
    only
        Kinds of changes to try; empty for all.
    take
        Names of changes to make together, in this order; no others are tried then.
    meaning
        The strongest effect on the results that is allowed: "same", "program", "approximate" or "retraining".
    samples
        Inputs by name; the outputs of changed networks are compared on them in onnxruntime.
    cores, dram
        How the network is run now.
    clock
        Clock in MHz.
    engine
        Engine with the cycles of the RTL.
    workers
        Processes that time changes side by side; changes are combined in this one.

    Raises
    ------
    AdviceError
        For the name of a kind or of a change that there is not, or a change that cannot be made.
    ModelError
        If the network itself cannot be compiled.
    DriverError, EngineError
        If it cannot be run.
    """
    limit = time.monotonic() + seconds
    unknown = sorted(set(only) - set(KINDS))
    if unknown:
        raise AdviceError(
            f"there are no changes of the kind '{unknown[0]}'; the kinds are {', '.join(KINDS)}"
        )
    is_onnx = identify(data) == "ONNX model"
    if is_onnx:
        data = readable(data)
    work = _Work(Subject(data, cores=cores, dram=dram), samples, clock, engine, limit, workers)
    with using_options(outputs=(), shapes={}) if is_onnx else using_options():
        with progress.step(f"timing {name}"):
            before = work.time(work.start)
        found = list(_changes(work, before, is_onnx))
        allowed = MEANINGS[: MEANINGS.index(meaning) + 1]
        wanted = [
            one
            for one in found
            if (not only or one.kind in only) and (one.meaning in allowed or one.meaning == "what-if")
        ]
        advice = Advice(name, before, [], clock=clock, samples=len(samples))
        if take:
            advice.taken = _taken(work, found, take)
            return advice
        advice.tried = _tried(work, before, wanted, begun=limit - seconds)
        advice.combined = list(_combinations(work, advice))
        return advice


def readable(data: bytes) -> bytes:
    """Return an ONNX file in the form in which changes are made: fixed shapes, folded constants, named nodes.

    Raises
    ------
    ModelError
        If it is damaged.
    """
    with using_options(floats="host"):  # as the file has it, without the forms of the NPU
        return bytes(read_onnx(data, load_options()).SerializeToString())


class _Work:
    """What stays the same while changes are tried."""

    def __init__(
        self,
        start: Subject,
        samples: Sequence[Sample],
        clock: float,
        engine: str | None,
        limit: float,
        workers: int,
    ) -> None:
        self.start, self.samples, self.clock, self.engine, self.limit = start, samples, clock, engine, limit
        self.workers = workers
        self._right: list[dict[str, npt.NDArray[Any]]] | None = None

    @property
    def values(self) -> Sample | None:
        """The first of the given inputs, with which networks are run."""
        return self.samples[0] if self.samples else None

    def late(self, until: float | None = None) -> bool:
        """Whether the seconds are over."""
        return time.monotonic() > (self.limit if until is None else until)

    def time(self, subject: Subject) -> Timed:
        """Return the time of a network."""
        return timed(subject, self.values, engine=self.engine, clock=self.clock)

    def error(self, subject: Subject) -> Figures | None:
        """Return how far the outputs are from those of the start; None if they cannot be compared."""
        if not self.samples or subject.model == self.start.model:
            return None
        import onnx

        try:
            if self._right is None:
                proto = onnx.load_model_from_string(self.start.model)
                self._right = run_outputs(proto, self.samples)
            found = run_outputs(onnx.load_model_from_string(subject.model), self.samples)
        except ModelError:
            return None
        names = list(self._right[0])
        if any(
            right[name].shape != got.get(name, np.zeros(0)).shape
            for right, got in zip(self._right, found, strict=True)
            for name in names
        ):
            return None
        sums = {name: Sums() for name in names}
        for right, got in zip(self._right, found, strict=True):
            for name in names:
                sums[name].add(right[name], got[name])
        return worst_of({name: one.figures() for name, one in sums.items()})


def _changes(work: _Work, before: Timed, is_onnx: bool) -> Iterator[Change]:
    """Yield the changes that a network allows."""
    total = float(sum(before.layers.values()))
    if is_onnx:
        net = Net(work.start.model)
        for module in (activations, orders, channels, kernels, outputs, inputs):
            yield from module.candidates(net, before.layers)
        yield from hosts.candidates(net, before.hosted)
        samples = work.samples
        if not samples and not net.quantised:
            infos = open_model(work.start.model).inputs
            drawn = random_reals(infos, SEED)
            samples = [dict(zip((info.name for info in infos), drawn, strict=True))]
        yield from quantising.candidates(net, before.layers, samples, bool(work.samples))
    from rkcosim.compiler.batch import batch_size

    yield from running.candidates(work.start, total, batch_size(open_model(work.start.model)))
    yield from running.what_if(work.start, total)


def _tried(work: _Work, before: Timed, found: Sequence[Change], begun: float) -> list[Tried]:
    """Make changes and time them, those of the largest layers first."""
    until = begun + SHARE * (work.limit - begun)
    order = _order(found)
    tried, made = [], list[tuple[Change, Subject]]()
    for change in order:
        try:
            made.append((change, change.apply(work.start)))
        except FAILURES as problem:
            tried.append(Tried(change, why=str(problem)))
        if work.late(until):
            break
    seen = {one.change.name for one in tried} | {change.name for change, _ in made}
    tried += [Tried(change, why=LATE) for change in order if change.name not in seen]
    made = _chosen(work, before, made, until)
    rows = [Tried(change, why=LATE) for change, _ in made]
    subjects = [subject for _, subject in made]
    with progress.step("timing changes", len(made), "changes") as shown:
        found_times = times(
            subjects, work.values, work.engine, work.clock, work.workers, lambda: work.late(until)
        )
        for number, now in found_times:
            one = rows[number]
            if isinstance(now, str):
                one.why = now
            else:
                one.time, one.why = now, ""
                one.saved = before.cycles - now.cycles
                one.saved_milliseconds = before.milliseconds - now.milliseconds
                one.error = work.error(subjects[number])
            shown.advance()
    tried += rows
    tried.sort(key=lambda one: (one.time is None, -one.saved_milliseconds))
    return tried


def _order(found: Sequence[Change]) -> list[Change]:
    """Return changes in the order in which they are tried.

    The one of the largest layers of each kind comes first, then the second ones; what is listed
    apart is last.
    """
    places: dict[str, int] = {}
    turns = []
    for change in sorted(found, key=lambda one: -one.weight):
        places[change.kind] = turn = places.get(change.kind, -1) + 1
        turns.append((SECTIONS.index(change.section), turn, change))
    return [change for *_, change in sorted(turns, key=lambda one: one[:2])]


LATE = "the seconds did not suffice (--seconds)"
"""Why a change was not tried."""


def _chosen(
    work: _Work, before: Timed, made: list[tuple[Change, Subject]], until: float
) -> list[tuple[Change, Subject]]:
    """Sort changes by estimates of their times if a run takes much longer than an estimate."""
    left = max(until - time.monotonic(), 0.0)
    if before.seconds * len(made) < left:
        return made
    try:
        first = estimated(work.start, clock=work.clock)
    except ValueError:
        return made
    if first.seconds * FASTER > before.seconds:
        return made
    gains = []
    for number, (change, subject) in enumerate(made):
        gain = -float(number)
        if not work.late(until - left / 2):
            try:
                gain = first.milliseconds - estimated(subject, clock=work.clock).milliseconds
            except FAILURES:
                gain = float("-inf")
        gains.append(gain if change.meaning != "what-if" else float("-inf"))
    return [made[number] for number in sorted(range(len(made)), key=lambda number: -gains[number])]


def _combinations(work: _Work, advice: Advice) -> Iterator[Combination]:
    """Yield the changes that save time together: those that leave the results as they are, and all."""
    levels = (("same",), MEANINGS[:-1])
    last: list[str] = []
    for level in levels:
        chosen = [one for one in advice.advised if one.change.meaning in level][:COMBINED]
        if level != levels[0] and not [one for one in chosen if one.change.meaning != "same"]:
            continue
        found = _greedy(work, advice, chosen)
        if found is not None and found.names != last:
            last = found.names
            found.error = work.error(found.subject)
            yield found


def _greedy(work: _Work, advice: Advice, chosen: Sequence[Tried]) -> Combination | None:
    """Make changes one after the other, and keep each that saves time."""
    found: Combination | None = None
    groups = set[str]()
    with progress.step("combining changes", len(chosen), "changes") as shown:
        for one in chosen:
            shown.advance()
            change = one.change
            if change.group and change.group in groups:
                continue
            if found is None:
                assert one.time is not None
                subject, now = change.apply(work.start), one.time
            else:
                if work.late():
                    break
                try:
                    subject = change.apply(found.subject)
                    now = work.time(subject)
                except FAILURES:
                    continue
                least = found.time.milliseconds - LEAST * advice.before.milliseconds
                fewer = len(now.hosted) < len(found.time.hosted)
                if now.milliseconds > least and not fewer:
                    continue
            groups.add(change.group)
            names = [*(found.names if found else []), change.name]
            meaning = max(found.meaning if found else "same", change.meaning, key=MEANINGS.index)
            found = Combination(names, meaning, now, subject)
    return found


def _taken(work: _Work, found: Sequence[Change], take: Sequence[str]) -> Combination:
    """Make the changes that were asked for; raises AdviceError."""
    known = {change.name: change for change in found}
    subject, meaning = work.start, MEANINGS[0]
    for name in take:
        if name not in known:
            from difflib import get_close_matches

            near = get_close_matches(name, known, n=3) or list(known)[:5]
            raise AdviceError(f"this network has no change '{name}'; it has {', '.join(near)}, ...")
        try:
            subject = known[name].apply(subject)
        except (ModelError, NotApplicable) as problem:
            raise AdviceError(f"the change '{name}' cannot be made: {problem}") from problem
        meaning = max(meaning, known[name].meaning, key=MEANINGS.index)
    return Combination(list(take), meaning, work.time(subject), subject, work.error(subject))
