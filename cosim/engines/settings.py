"""Settings as given to commands: memory timing by name, values for a sweep, threads of the engines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from typing import Any

from rkcosim.engines.library import MAX_CORES, DramConfig
from rkcosim.engines.protocol import capabilities, require

Number = int | float

DRAM = "--dram"


def cycles_text(cycles: int, engine: str) -> str:
    """Format cycles, "-" if the engine of this name does not count them."""
    return f"{cycles:,}" if capabilities(engine).has_cycles else "-"


def axis(text: str, known: Mapping[str, type], what: str) -> tuple[str, list[Number]]:
    """Parse a setting and its values, as "peak_bytes_per_cycle=11,23.65".

    Raises
    ------
    ValueError
        for an unknown name, or a value that is not a number of the setting's type.
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
            raise ValueError(f"{what}: {name}: '{value}' is not a {kind}") from None
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
    """Return the settings of the memory and their types."""
    return {entry.name: type(entry.default) for entry in fields(DramConfig)}


def dram_of(texts: Sequence[str] | None, engine: str | None = None) -> DramConfig | None:
    """Return the memory of one run from texts NAME=VALUE; None if there are none.

    Parameters
    ----------
    engine : the engine that runs; the golden model has no memory timing.

    Raises
    ------
    ValueError
        as `axes`; also for more than one value, a value out of range, or the engine golden.
    """
    if not texts:
        return None
    found = axes(texts, dram_settings(), DRAM)
    for name, values in found.items():
        if len(values) > 1:
            raise ValueError(
                f"{DRAM}: {len(values)} values of {name}; rkcosim sweep runs with each of several"
            )
    require(engine, "has_cycles", DRAM)
    try:
        return DramConfig(**{name: values[0] for name, values in found.items()})  # type: ignore[arg-type]
    except ValueError as error:
        raise ValueError(f"{DRAM}: {error}") from None


def changed(dram: DramConfig | Mapping[str, Any] | None) -> dict[str, Number]:
    """Return the members in which a memory differs from the default, by name; None is the default."""
    default = asdict(DramConfig())
    given = asdict(dram) if isinstance(dram, DramConfig) else dict(dram or {})
    return {name: given[name] for name in default if name in given and given[name] != default[name]}


def words(settings: Mapping[str, Number]) -> str:
    """Format settings as NAME=VALUE; "default" if there are none."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "default"


def timing_line(dram: DramConfig | Mapping[str, Any] | None) -> str:
    """Return the line of a report with the memory timing, "" for the default one."""
    found, default = changed(dram), DramConfig()
    parts = [f"{name}={value} (default {getattr(default, name)})" for name, value in found.items()]
    return f"memory timing: {', '.join(parts)}" if parts else ""


# Threads, which change the duration of a simulation but not its results

_chosen: int | None = None


def processors() -> int:
    """Return the number of processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on every system
        return os.cpu_count() or 1


def thread_count(wanted: int | None) -> int:
    """Return the threads of an engine: `wanted`, else that of `using_threads`, else one per processor.

    Raises
    ------
    ValueError
        for a number outside 1..3.
    """
    if wanted is None:
        wanted = _chosen
    if wanted is None:
        return min(MAX_CORES, processors())
    if not isinstance(wanted, int) or not 1 <= wanted <= MAX_CORES:
        raise ValueError(f"threads must be 1..{MAX_CORES}, not {wanted!r}")
    return wanted


def threads_chosen(wanted: int | None) -> bool:
    """Return whether the number was set explicitly.

    Otherwise the engine uses one thread when that is faster.
    """
    return wanted is not None or _chosen is not None


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Engines opened in this process within the context have `count` threads; None: no change."""
    global _chosen
    before = _chosen
    _chosen = thread_count(count) if count is not None else before
    try:
        yield
    finally:
        _chosen = before
