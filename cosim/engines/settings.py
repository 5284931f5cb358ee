"""Settings by name, as commands take them: the memory's timing of a run, and lists of values for a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from cosim.engines.library import DramConfig

Number = int | float

DRAM = "--dram"


def axis(text: str, known: Mapping[str, type], what: str) -> tuple[str, list[Number]]:
    """Parse a setting and its values, as "peak_bytes_per_cycle=11,23.65".

    Raises
    ------
    ValueError
        for a name that is not known, or a value that is no number of its kind.
    """
    name, equals, values = text.partition("=")
    if name not in known:
        raise ValueError(f"{what}: no setting '{name}', there are {', '.join(known)}")
    if not equals or not values:
        raise ValueError(f"{what}: '{text}' gives {name} no values, as in {name}=1,2")
    found: list[Number] = []
    for value in values.split(","):
        try:
            found.append(known[name](value))
        except ValueError:
            kind = "whole number" if known[name] is int else "number"
            raise ValueError(f"{what}: {name}: '{value}' is no {kind}") from None
    return name, found


def axes(texts: Sequence[str], known: Mapping[str, type], what: str) -> dict[str, list[Number]]:
    """Parse settings, each given once, as `axis` does.

    Raises
    ------
    ValueError
        also for one that is given twice.
    """
    found = [axis(text, known, what) for text in texts]
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        raise ValueError(f"{what}: a setting is given twice; give all its values at once, as in a=1,2")
    return dict(found)


def dram_settings() -> dict[str, type]:
    """Settings of the memory and their types."""
    return {entry.name: type(entry.default) for entry in fields(DramConfig)}


def dram_of(texts: Sequence[str] | None, engine: str | None = None) -> DramConfig | None:
    """The memory of one run, from NAME=VALUE each; None where nothing is given.

    Parameters
    ----------
    engine : what runs; the golden model has no memory timing.

    Raises
    ------
    ValueError
        as `axes`; for more than one value, one out of range, or the engine golden.
    """
    if not texts:
        return None
    found = axes(texts, dram_settings(), DRAM)
    for name, values in found.items():
        if len(values) > 1:
            raise ValueError(
                f"{DRAM}: {len(values)} values of {name}; rkcosim sweep runs with each of several"
            )
    if engine == "golden":
        raise ValueError(f"{DRAM}: the engine golden has no cycles, so its memory has no timing")
    try:
        return DramConfig(**{name: values[0] for name, values in found.items()})  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{DRAM}: {error}") from None


def changed(dram: DramConfig | Mapping[str, Any] | None) -> dict[str, Number]:
    """What a memory has otherwise than the default, by name; None is the default."""
    default = asdict(DramConfig())
    given = asdict(dram) if isinstance(dram, DramConfig) else dict(dram or {})
    return {name: given[name] for name in default if name in given and given[name] != default[name]}


def words(settings: Mapping[str, Number]) -> str:
    """Settings as they are given, or that there are none."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "default"


def timing_line(dram: DramConfig | Mapping[str, Any] | None) -> str:
    """A line of a run's report: the memory it ran with, "" for the default one."""
    found, default = changed(dram), DramConfig()
    parts = [f"{name}={value} (default {getattr(default, name)})" for name, value in found.items()]
    return f"memory timing: {', '.join(parts)}" if parts else ""
