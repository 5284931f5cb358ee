"""The simulated device of a programming interface: it loads models, runs them and calls listeners."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from rkcosim.compiler import (
    CompiledModel,
    LoadedModel,
    RunReport,
    compile_model,
    keeping_tensors,
    using_cores,
)
from rkcosim.compiler.batch import BatchModel, compile_divided, load
from rkcosim.compiler.options import using_options
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.engines.protocol import require
from rkcosim.running.meter import meter
from rkcosim.running.settings import Settings

Array = npt.NDArray[Any]
AnyModel = CompiledModel | BatchModel
Ending = tuple[dict[str, Any], list[str]]
"""What an interface says at the end: members of the JSON document, and lines of the summary."""


class Mismatch(Exception):
    """A tensor differs from the golden models (option check)."""


@dataclass(frozen=True)
class Left:
    """An operator that remains with the runtime, and the reason."""

    name: str
    kind: str
    reason: str


@dataclass
class GraphCount:
    """Operators of a graph of the runtime, and how many of them are in parts of the NPU."""

    operators: int
    taken: int = 0


MOST_MODELS = 256
"""Models, graphs and operators that are listed at the end, the first ones; others are only counted."""


class Listener:
    """The machine calls these functions when something happens to a model; here they do nothing.

    Members
    -------
    needs_inputs
        Whether `inference` gets the inputs, also those whose bytes a program wrote to the device's memory.
    """

    needs_inputs = False

    def loaded(self, model: RunningModel) -> None:
        """A model is in the device's memory."""

    def inference(
        self, model: RunningModel, inputs: Sequence[Array], report: RunReport, seconds: float
    ) -> None:
        """An inference has ended; its tensors are still in the device's memory.

        Parameters
        ----------
        inputs
            Arrays in the shapes of the model's inputs, codes or real numbers; empty if nobody needs them.
        report
            Cycles and layers.
        seconds
            How long the driver's jobs and the host's steps took.

        Raises
        ------
        Mismatch
            If a listener that checks finds a difference; the listeners behind it are not told.
        """

    def unloading(self, model: RunningModel) -> None:
        """The memory of a model is about to be freed."""

    def end(self, machine: Machine, endings: Sequence[Ending]) -> None:
        """All models are freed, and the engine is closed.

        Parameters
        ----------
        endings
            What the interface says (`Machine.finish`).
        """


class RunningModel:
    """A compiled model in the device's memory.

    Parameters
    ----------
    machine : the device.
    name : for the summary.
    model : the compiled model.
    data : its file, for listeners that keep it.

    Members
    -------
    inferences : number of inferences up to now.
    last_cycles : cycles of the last inference, 0 before the first.
    verdict : what checks found; `match` is None without checks.
    """

    def __init__(self, machine: Machine, name: str, model: AnyModel, data: bytes | None = None) -> None:
        self.machine, self.name, self.model, self.data = machine, name, model, data
        self.inferences = 0
        self.last_cycles = 0
        self.verdict: dict[str, Any] = {"match": None}
        self._loaded: Any = load(model, machine.driver, machine.meter)
        for listener in machine.listeners:
            listener.loaded(self)

    def run(self, values: Sequence[Array | None], codes: Sequence[bool | None]) -> list[Array]:
        """Run one inference.

        Parameters
        ----------
        values : arrays in the shapes of the model's inputs, with codes or real numbers; None for an input
            whose bytes are in the device's memory already (`loaded`).
        codes : for each output, whether codes are wanted if it is quantised; None for an output that is not
            read.

        Returns
        -------
        Arrays in the shapes of the outputs that are read: codes in their type, float32, or float16.

        Raises
        ------
        Mismatch
            if a tensor differs from the golden models.
        DriverError, ModelError
            if the device reports an error, or an input is wrong.
        """
        for index, array in enumerate(values):
            if array is not None:
                self._loaded.set_input(index, array)
        listeners = self.machine.listeners
        inputs = self._inputs(values) if any(listener.needs_inputs for listener in listeners) else []
        begun = time.perf_counter()
        report = self._loaded.run()
        seconds = time.perf_counter() - begun
        self.inferences += 1
        self.last_cycles = report.cycles
        for listener in listeners:
            listener.inference(self, inputs, report, seconds)
        wanted = [(index, raw) for index, raw in enumerate(codes) if raw is not None]
        return [self._loaded.get_output(index, raw=raw) for index, raw in wanted]

    @property
    def loaded(self) -> LoadedModel:
        """The model in the device's memory."""
        return self._loaded

    def _inputs(self, values: Sequence[Array | None]) -> list[Array]:
        """Return the inputs, those without an array as they are in the device's memory."""
        tensors = [item.tensor for item in self.model.graph.inputs]
        shapes = [info.shape for info in self.model.inputs]
        return [
            self._loaded.tensor(name).reshape(shape) if array is None else array
            for array, name, shape in zip(values, tensors, shapes, strict=True)
        ]

    def close(self) -> None:
        """Tell the listeners, and free the memory."""
        for listener in self.machine.listeners:
            listener.unloading(self)
        self._loaded.close()


class Machine:
    """An engine with a driver.

    Parameters
    ----------
    settings : options of the interface.
    listeners : told of what happens; `rkcosim.apis.link.instruments.open_machine` adds those that the options
        ask for.

    Members
    -------
    left : operators that remain with the runtime; the first `MOST_MODELS`.
    graphs : counts of the first `MOST_MODELS` graphs that the runtime gave.

    Raises
    ------
    ValueError, EngineError
        for invalid options, and if the engine cannot be opened.
    """

    def __init__(self, settings: Settings, listeners: Sequence[Listener]) -> None:
        self.settings = settings
        self.listeners = tuple(listeners)
        self.left: dict[tuple[str, str], Left] = {}
        self.graphs: list[GraphCount] = []
        self._open: list[RunningModel] = []
        self._finishing: list[Callable[[], Ending]] = []
        with _recording(settings) as trace:
            self.engine = open_engine(
                settings.engine, exact=settings.exact, cores=settings.cores, trace=trace
            )
        self.driver = Driver(self.engine)
        self.meter = meter(self.engine) if self.engine.has_cycles else None

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Compile the models within the block as the options say."""
        settings = self.settings
        with keeping_tensors(settings.check), using_cores(settings.cores):
            with using_options(floats=settings.float, fallback=True):
                yield

    def compile(self, data: bytes) -> CompiledModel:
        """Compile a model; raises ModelError."""
        with self.reading():
            return compile_model(data)

    def compile_divided(self, data: bytes) -> AnyModel:
        """Compile a model for one sample if its inputs are proven to be a batch; raises ModelError."""
        with self.reading():
            return compile_divided(data)

    def load(self, name: str, model: AnyModel, data: bytes | None = None) -> RunningModel:
        """Load a model (and its file, for the option `parts`) into the device's memory.

        Raises
        ------
        DriverError
            if memory runs out.
        """
        made = RunningModel(self, name, model, data)
        self._open.append(made)
        return made

    def unload(self, model: RunningModel) -> None:
        """Free a model."""
        self._open.remove(model)
        model.close()

    def leave(self, left: Left) -> None:
        """Record an operator that remains with the runtime; the first reason counts."""
        if len(self.left) < MOST_MODELS:
            self.left.setdefault((left.kind, left.name), left)

    def count_graph(self, count: GraphCount) -> None:
        """Add the counts of a graph that the runtime gave."""
        if len(self.graphs) < MOST_MODELS:
            self.graphs.append(count)

    def finish(self, function: Callable[[], Ending]) -> None:
        """Call a function at the end, for members of the JSON document, and for the lines of the summary.

        These lines are printed instead of the tables of the models.
        """
        self._finishing.append(function)

    def close(self) -> None:
        """Free everything, and tell the listeners."""
        endings = [function() for function in self._finishing]
        for model in list(self._open):
            self.unload(model)
        self.engine.close()
        for listener in self.listeners:
            listener.end(self, endings)


@contextlib.contextmanager
def _recording(settings: Settings) -> Iterator[Any]:
    """Let the engine that is opened within the block write the waveform and events that the options ask for.

    Yields
    ------
    The waveform (`rkcosim.waves.spec.TraceSpec`), or None.
    """
    paths = [path for path in (settings.trace, settings.events, settings.timeline) if path is not None]
    if not paths:
        yield None
        return
    from rkcosim.engines.event_files import EventFiles, beside, take, writing
    from rkcosim.waves.spec import TraceSpec

    trace = TraceSpec.of(settings.trace) if settings.trace is not None else None
    files = []
    if settings.events or settings.timeline:
        require(settings.engine, "has_events", "an event log")
        files.append(EventFiles(settings.events, settings.timeline))
    if trace is not None:
        require(settings.engine, "can_trace", "a waveform")
        if settings.events is None and (log := beside(trace)) is not None:
            files.append(log)
    with writing([*take(), *files]):
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield trace
