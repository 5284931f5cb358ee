"""Advice in words, for the terminal and for notebooks."""

from __future__ import annotations

from collections.abc import Iterator

from rkcosim.compiler.quantization.figures import Figures
from rkcosim.measure.advice.advise import Advice, Combination, Tried
from rkcosim.measure.advice.change import SAID, Section
from rkcosim.measure.advice.timing import Timed
from rkcosim.measure.perf.attribution import CAUSES

HEADS = ("#|", "change", "saves cycles|,", "saves ms|.4f", "time|.1%", "cycles|,", "ms|.4f", "results")
"""Headings of the table of changes."""


PART = 0.05
"""Share of the cycles from which on a cause is named."""

SHOWN = 3
"""Causes that are named of a change."""

APART_SAID: dict[Section, str] = {
    "sizes": "other sizes of the input (how good the network is at them has to be found out):",
    "together": "several inferences at the same time (each takes as long as before):",
    "board": "what if (another board, to see what bounds the network):",
}
"""Headings of what is listed apart."""


def row(number: int, one: Tried, advice: Advice) -> tuple[object, ...]:
    """Return the cells of a change that was timed."""
    assert one.time is not None
    share = one.time.milliseconds / advice.before.milliseconds
    figures = one.saved, one.saved_milliseconds, share, one.time.cycles, one.time.milliseconds
    return (number, one.change.name, *figures, SAID[one.change.meaning])


def sentence(number: int, one: Tried, advice: Advice) -> str:
    """Return what a change does, and what else changes with it."""
    assert one.time is not None
    parts = [f"{number}. {one.change.name}: {one.change.text}"]
    parts += [text] if (text := _causes(one, advice)) else []
    parts += _beside(one.time, advice.before)
    if one.error is not None:
        without = " without training" if one.change.meaning == "retraining" else ""
        parts.append(f"outputs on the given inputs{without}: {error_text(one.error)}")
    return "; ".join(parts)


def _causes(one: Tried, advice: Advice) -> str:
    """Return what the cycles that a change saves went into, the most first."""
    if one.time is None or not one.change.network or not one.saved:
        return ""
    before, now = advice.before.spent, one.time.spent
    fewer = {cause: before.get(cause, 0) - now.get(cause, 0) for cause in CAUSES}
    worth = [cause for cause in CAUSES if abs(fewer[cause]) > PART * abs(one.saved)]
    worth.sort(key=lambda cause: -abs(fewer[cause]))
    return "cycles: " + ", ".join(f"{cause.label} {-fewer[cause]:+,}" for cause in worth[:SHOWN])


def spent_text(found: Timed) -> str:
    """Return what the cycles of a network go into, the most first."""
    total = sum(found.spent.values())
    parts = {cause: found.spent.get(cause, 0) / max(total, 1) for cause in CAUSES}
    shown = sorted((cause for cause in CAUSES if parts[cause] > PART), key=lambda cause: -parts[cause])
    return ", ".join(f"{cause.label} {parts[cause]:.0%}" for cause in shown)


def _beside(now: Timed, before: Timed) -> Iterator[str]:
    """Yield changes of the host's part and of the submits."""
    if len(now.hosted) != len(before.hosted):
        yield f"{len(now.hosted)} operators on the host instead of {len(before.hosted)}"
    if now.submits != before.submits:
        yield f"{now.submits:.3g} submits instead of {before.submits:.3g}"


def error_text(figures: Figures) -> str:
    """Return how far outputs are from each other."""
    ratio = "no difference" if figures.sqnr is None else f"signal to error {figures.sqnr:.1f} dB"
    return f"cosine {figures.cosine:.5f}, {ratio}"


def combination(one: Combination, advice: Advice) -> str:
    """Return a line about changes that were made together."""
    saved = advice.before.cycles - one.time.cycles
    share = one.time.milliseconds / advice.before.milliseconds
    text = (
        f"{' + '.join(one.names)}: {one.time.cycles:,} cycles, {one.time.milliseconds:.4f} ms "
        f"({share:.1%} of the time, {saved:,} cycles less; {SAID[one.meaning]})"
    )
    return text if one.error is None else f"{text}; outputs: {error_text(one.error)}"


def lines(advice: Advice) -> Iterator[str]:
    """Yield everything but the table of changes."""
    for number, one in enumerate(advice.advised, 1):
        yield sentence(number, one, advice)
    if advice.combined:
        yield "together, each change made after the ones before it:"
        yield from (f"  {combination(one, advice)}" for one in advice.combined)
    for section, words in APART_SAID.items():
        if found := advice.of(section):
            yield words
            yield from (f"  {_short(one, advice)}" for one in found)
    if advice.not_faster:
        yield "tried, and not faster: " + ", ".join(
            f"{one.change.name} ({-one.saved_milliseconds:+.4f} ms)" for one in advice.not_faster
        )
    if advice.untried:
        yield "not tried:"
        yield from (f"  {one.change.name}: {one.why}" for one in advice.untried)


def _short(one: Tried, advice: Advice) -> str:
    assert one.time is not None
    share = one.time.milliseconds / advice.before.milliseconds
    return (
        f"{one.change.name}: {one.change.text}: {one.time.cycles:,} cycles, {one.time.milliseconds:.4f} ms "
        f"({share:.1%} of the time)"
    )


def head(advice: Advice) -> str:
    """Return a line about the network as it is."""
    now = advice.before
    return (
        f"{advice.model}: {now.cycles:,} cycles, {now.milliseconds:.4f} ms with a driver in "
        f"{now.submits:g} submit{'s' if now.submits != 1 else ''}, {len(now.hosted)} operators on the host"
        + (f"; cycles: {causes}" if (causes := spent_text(now)) else "")
    )
