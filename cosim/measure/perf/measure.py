"""Common parts of measurements: runs on random data, options, alternating timed runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import CompiledModel
from rkcosim.compiler.runtime import LoadedModel
from rkcosim.driver import Driver

SEED = 1


def random_values(model: CompiledModel) -> list[npt.NDArray[Any]]:
    """Draw values for each input of a model in its type: uniformly random codes, or normal numbers."""
    rng = np.random.default_rng(SEED)
    drawn: list[npt.NDArray[Any]] = []
    for info in model.inputs:
        if info.quantised:
            limits = np.iinfo(info.dtype)
            drawn.append(rng.integers(limits.min, limits.max + 1, info.shape).astype(info.dtype))
        else:
            drawn.append(rng.normal(size=info.shape).astype(info.dtype))
    return drawn


@contextmanager
def loaded(
    model: CompiledModel, driver: Driver, values: list[npt.NDArray[Any]] | None = None, **options: Any
) -> Iterator[LoadedModel]:
    """Load a model into a device's memory with its inputs set, ready to run.

    Parameters
    ----------
    values : one array for each input; None: `random_values`.
    options : options of `rkcosim.compiler.LoadedModel`.
    """
    with LoadedModel(model, driver, **options) as ready:
        for number, value in enumerate(random_values(model) if values is None else values):
            ready.set_input(number, value)
        yield ready


def options(text: str | None, given: list[str] | None, **known: Any) -> argparse.Namespace:
    """Parse the options of a module that is run with `python -m`.

    Parameters
    ----------
    text : docstring of the module; its first line is the help.
    given : words to parse instead of the command line.
    known : for each option its help text (the option is then a flag), or the arguments of `add_argument`.
    """
    parser = argparse.ArgumentParser(description=(text or "").split("\n")[0])
    for name, how in known.items():
        more = {"action": "store_true", "help": how} if isinstance(how, str) else how
        parser.add_argument(f"--{name}", **more)
    return parser.parse_args(given)


class Took(Protocol):
    """One timed run: its simulated cycles, and its seconds."""

    @property
    def cycles(self) -> int: ...

    @property
    def seconds(self) -> float: ...


K = TypeVar("K")
T = TypeVar("T", bound=Took)


def fastest(ways: Mapping[K, Callable[[], T]], again: Callable[[int], bool]) -> dict[K, T]:
    """Run several ways of doing the same work in turn, and return the fastest run of each.

    They alternate so that other load on the machine affects all of them equally.

    Parameters
    ----------
    again : called with the number of rounds so far; returns whether to run another one.

    Raises
    ------
    RuntimeError
        If the ways differ in their simulated cycles.
    """
    best: dict[K, T] = {}
    rounds = 0
    while not rounds or again(rounds):
        for name, way in ways.items():
            found = way()
            if name not in best or found.seconds < best[name].seconds:
                best[name] = found
        rounds += 1
    cycles = {str(name): found.cycles for name, found in best.items()}
    if len(set(cycles.values())) > 1:
        raise RuntimeError(f"the same work must take the same cycles in each way, but took {cycles}")
    return best
