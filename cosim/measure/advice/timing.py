"""The time of a network as it would run: with the timing of the RTL, or estimated."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.batch import BatchModel, batch_size, one_of
from rkcosim.compiler.batch import load as place
from rkcosim.compiler.model import using_cores
from rkcosim.compiler.runtime import LoadedModel, plan_layers, run_together
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.engines.protocol import FAST
from rkcosim.measure.advice.change import NotApplicable, Subject
from rkcosim.measure.models.draw import random_reals
from rkcosim.measure.models.hosted import host_work
from rkcosim.measure.models.rows import layer_row
from rkcosim.measure.perf.attribution import add
from rkcosim.measure.perf.boards.expected import board_milliseconds
from rkcosim.measure.perf.estimator.estimate import estimate_model
from rkcosim.rknn_file.opening import open_model
from rkcosim.running.meter import meter

SEED = 0


@dataclass(frozen=True)
class Timed:
    """The time of one inference.

    Members
    -------
    cycles
        Cycles of the NPU.
    submits
        Jobs of the driver; less than one for each inference if several run in one.
    milliseconds
        Time at the clock, with what the vendor's driver adds to each submit.
    hosted
        Operators that the host computes, by name, with the reason of each.
    layers
        Cycles of the layers by the name of the node of which they are.
    spent
        Cycles of all layers and cores by cause (`rkcosim.measure.perf.attribution.Cause`).
    engine
        What has found the cycles: an engine, or "estimate".
    seconds
        Seconds that it took.
    """

    cycles: int
    submits: float
    milliseconds: float
    hosted: dict[str, str]
    layers: dict[str, int] = field(repr=False)
    spent: dict[str, int] = field(repr=False)
    engine: str
    seconds: float = field(compare=False, repr=False, default=0.0)


def timed(
    subject: Subject,
    values: Mapping[str, npt.NDArray[Any]] | None = None,
    *,
    engine: str | None = FAST,
    clock: float = 1000.0,
) -> Timed:
    """Run an inference and return its time.

    The engine is opened for it, so that its first cycles after a reset are included, as in
    `rkcosim run`.

    Parameters
    ----------
    subject
        The network, and how it is run.
    values
        Arrays for the inputs by name, of which those that fit are used; the others are random.  Times depend
        on them only if the host's part does.
    engine
        Engine with the cycles of the RTL.
    clock
        Clock in MHz, for the milliseconds.

    Raises
    ------
    ModelError
        If the network cannot be compiled.
    DriverError, EngineError
        If it cannot be run.
    NotApplicable
        If several inferences at a time are asked for and the file has a batch of its own.
    """
    begun = time.perf_counter()
    with using_cores(subject.cores):
        model = open_model(subject.model)
    if subject.together > 1 and isinstance(model, BatchModel):
        raise NotApplicable("the file has a batch of its own")
    cores = max(subject.cores, subject.together)
    reals = random_reals(model.inputs, SEED)
    for number, info in enumerate(model.inputs):
        array = (values or {}).get(info.name)
        if array is not None and array.shape == info.shape:
            reals[number] = array
        elif info.dtype.kind in "iub" and not info.quantised:
            reals[number] = reals[number].astype(info.dtype)
    with ExitStack() as stack:
        device = open_engine(engine, cores=cores, dram=subject.dram)
        stack.callback(device.close)
        driver, measures = Driver(device), meter(device)
        if subject.together == 1:
            loaded = place(model, driver, measures)
            stack.callback(loaded.close)
            _set(loaded, reals)
            report = loaded.run()
        else:
            copies: list[LoadedModel] = []
            for core in range(subject.together):
                copies.append(
                    LoadedModel(
                        one_of(model), driver, core=core, meter=measures, share=copies[0] if copies else None
                    )
                )
                stack.callback(copies[-1].close)
                _set(copies[-1], reals)
            report = run_together(copies)
        name = device.name
    layers = _by_node(report.layers)
    spent = add(*(layer_row(layer, subject.dram).spent for layer in report.layers))
    cycles = report.cycles * subject.runs / subject.together
    return _result(subject, model, cycles, layers, spent, name, clock, begun)


def estimated(subject: Subject, *, clock: float = 1000.0) -> Timed:
    """Return the estimated time of an inference; parameters and errors are those of `timed`.

    Raises
    ------
    ValueError
        If a task cannot be estimated.
    """
    begun = time.perf_counter()
    with using_cores(subject.cores):
        model = open_model(subject.model)
    if subject.together > 1 and isinstance(model, BatchModel):
        raise NotApplicable("the file has a batch of its own")
    found = estimate_model(model, dram=subject.dram, copies=subject.together)
    layers = _by_node(found.layers)
    spent = add(*(layer.spent for layer in found.layers))
    cycles = found.cycles * subject.runs / subject.together
    return _result(subject, model, cycles, layers, spent, "estimate", clock, begun)


def _by_node(layers: Sequence[Any]) -> dict[str, int]:
    """Return the cycles of the layers by the name of the node; "name.2" is another layer of the same node."""
    found: dict[str, int] = {}
    for layer in layers:
        node, _, number = layer.name.rpartition(".")
        name = node if number.isdecimal() and node in found else layer.name
        found[name] = found.get(name, 0) + (layer.cycles or 0)
    return found


def _set(loaded: Any, reals: Sequence[npt.NDArray[Any]]) -> None:
    for number, array in enumerate(reals):
        loaded.set_input(number, np.asarray(array))


def _result(
    subject: Subject,
    model: Any,
    cycles: float,
    layers: dict[str, int],
    spent: dict[str, int],
    engine: str,
    clock: float,
    begun: float,
) -> Timed:
    submits = model.plan.jobs * batch_size(model) * subject.runs / subject.together
    hosted = {item.name: item.reason for item in host_work(model).operators}
    for layer in plan_layers(one_of(model)):
        if layer.target == "host":
            hosted.setdefault(layer.name, getattr(layer, "reason", "") or "")
    milliseconds = board_milliseconds(1, 0, clock) * cycles + board_milliseconds(0, 1, clock) * submits
    seconds = time.perf_counter() - begun
    return Timed(round(cycles), submits, round(milliseconds, 6), hosted, layers, spent, engine, seconds)
