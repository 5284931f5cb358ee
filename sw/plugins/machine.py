"""The simulated device of a plug-in: models on it, their inferences, and what is written at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rkcosim.base import versioned
from rkcosim.base.tables import console
from rkcosim.compiler import CompiledModel, LoadedModel, compile_model, keeping_tensors, using_cores
from rkcosim.compiler.batch import BatchModel, compile_divided, load
from rkcosim.compiler.options import using_options
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_named
from rkcosim.engines.event_files import EventFiles, beside, writing
from rkcosim.engines.protocol import require
from rkcosim.measure.models.run import ModelRun, run_of_frame
from rkcosim.measure.models.summary import print_summary
from rkcosim.measure.perf.measure import meter
from rkcosim.measure.report.kept import keeping, write_page
from rkcosim.plugins.part_files import PartFiles
from rkcosim.plugins.settings import Settings
from rkcosim.verify.crosscheck.batch_check import BatchChecker, checker_of
from rkcosim.verify.crosscheck.model_check import ModelChecker
from rkcosim.waves.spec import TraceSpec

Array = npt.NDArray[Any]
AnyModel = CompiledModel | BatchModel

SHOWN = 12
"""Operators that remain with the runtime and are named in the summary; the JSON has all."""


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

MOST_INFERENCES = 100_000
"""Inferences of a model of which the documents have times, the first ones; others are only counted."""


@dataclass
class _Record:
    """What is known of a model's inferences; `seconds` and `cycles` are lists for documents."""

    name: str
    listed: bool
    seconds: list[float] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    inferences: int = 0
    all_seconds: float = 0.0
    all_cycles: int = 0
    last_cycles: int = 0
    first: Any = None
    verdict: dict[str, Any] = field(default_factory=lambda: {"match": None})

    def add(self, report: Any, seconds: float) -> None:
        """Count an inference."""
        self.first = self.first or report
        self.inferences += 1
        self.last_cycles = report.cycles
        self.all_cycles += report.cycles
        self.all_seconds += seconds
        if self.listed and len(self.cycles) < MOST_INFERENCES:
            self.cycles.append(report.cycles)
            self.seconds.append(seconds)


class RunningModel:
    """A compiled model in the device's memory.

    Parameters
    ----------
    machine : the device.
    name : for the summary.
    model : the compiled model.
    data : its file, which is written after the first inference if the option `parts` asks for it.
    """

    def __init__(self, machine: Machine, name: str, model: AnyModel, data: bytes | None = None) -> None:
        self._machine, self._model, self._data = machine, model, data
        settings = machine.settings
        self._record = _Record(name, settings.json is not None or settings.report is not None)
        self._loaded: Any = load(model, machine.driver, machine.meter)
        self._checker: ModelChecker | BatchChecker | None = None
        if machine.settings.check:
            self._checker = checker_of(self._loaded, machine.engine.name)

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
        record = self._record
        for index, array in enumerate(values):
            if array is not None:
                self._loaded.set_input(index, array)
        checked = self._values(values) if self._checker is not None else []
        begun = time.perf_counter()
        report = self._loaded.run()
        record.add(report, time.perf_counter() - begun)
        if self._checker is not None:
            self._check(checked)
        if self._data is not None and self._machine.part_files is not None:
            self._machine.part_files.write(self._data, self._loaded, self._values(values))
            self._data = None
        wanted = [(index, raw) for index, raw in enumerate(codes) if raw is not None]
        return [self._loaded.get_output(index, raw=raw) for index, raw in wanted]

    @property
    def loaded(self) -> LoadedModel:
        """The model in the device's memory."""
        return self._loaded

    def _values(self, values: Sequence[Array | None]) -> list[Array]:
        """Return the inputs, those without an array as they are in the device's memory."""
        tensors = [item.tensor for item in self._model.graph.inputs]
        shapes = [info.shape for info in self._model.inputs]
        return [
            self._loaded.tensor(name).reshape(shape) if array is None else array
            for array, name, shape in zip(values, tensors, shapes, strict=True)
        ]

    @property
    def last_cycles(self) -> int:
        """Cycles of the last inference, 0 before the first."""
        return self._record.last_cycles

    def _check(self, values: Sequence[Array]) -> None:
        assert self._checker is not None
        found, record = self._checker.check(list(values)), self._record
        address = self._checker.check_memory()
        if found.match and address is None:
            if record.verdict["match"] is None:
                lost = len(self._model.plan.lost)
                record.verdict = {"match": True, **self._checker.levels(), "overwritten": lost}
            return
        where = str(found.first) if found.first else f"padding at 0x{address:08X}"
        number = record.inferences - 1
        if record.verdict["match"] is not False:
            record.verdict = {"match": False, "inference": number, "first_difference": where}
        raise Mismatch(f"inference {number} differs from the golden models: {where}")

    def close(self) -> None:
        """Free the memory, and keep the record for the summary."""
        record = self._record
        if record.first is not None and len(self._machine.runs) >= MOST_MODELS:
            self._machine.unlisted += 1
        elif record.first is not None:
            self._machine.seconds.append(record.seconds)
            run = run_of_frame(record.name, self._machine.engine, self._model, self._loaded, record.first)
            self._machine.runs.append(
                replace(
                    run,
                    cores=self._machine.settings.cores,
                    inferences=record.inferences,
                    cycles=record.all_cycles,
                    inference_cycles=record.cycles,
                    verdict=record.verdict,
                    floats_in_fp16=self._model.floats_in_fp16,
                    fp16_layers=self._model.fp16_layers,
                    simulated_seconds=round(record.all_seconds, 3),
                    host_seconds=round(time.perf_counter() - self._machine.begun, 3),
                )
            )
        if self._checker is not None:
            self._checker.close()
        self._loaded.close()


class Machine:
    """An engine with a driver.

    Parameters
    ----------
    settings : options of the plug-in.

    Members
    -------
    runs : record of each model that was closed, if it had inferences; the first `MOST_MODELS`.
    unlisted : number of further ones.
    seconds : for each of them, the seconds of each inference in the driver.
    left : operators that remain with the runtime; the first `MOST_MODELS`.
    graphs : counts of the first `MOST_MODELS` graphs that the runtime gave.
    part_files : writes the parts; None without the option.

    Raises
    ------
    ValueError, EngineError
        for invalid options, and if the engine cannot be opened.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.begun = time.perf_counter()
        self.runs: list[ModelRun] = []
        self.unlisted = 0
        self.seconds: list[list[float]] = []
        self.left: dict[tuple[str, str], Left] = {}
        self.graphs: list[GraphCount] = []
        self._open: list[RunningModel] = []
        self._finishing: list[Callable[[], tuple[dict[str, Any], list[str]]]] = []
        trace = TraceSpec.of(settings.trace) if settings.trace is not None else None
        with writing(_event_files(settings, trace)), contextlib.ExitStack() as stack:
            self._kept = stack.enter_context(keeping(settings.report))
            for path in (settings.trace, settings.json, settings.report, settings.events, settings.timeline):
                if path is not None:
                    path.parent.mkdir(parents=True, exist_ok=True)
            self.part_files = PartFiles(settings.parts) if settings.parts is not None else None
            self.engine = open_named(settings.engine, exact=settings.exact, cores=settings.cores, trace=trace)
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

    def finish(self, function: Callable[[], tuple[dict[str, Any], list[str]]]) -> None:
        """Call a function at the end, for members of the JSON document, and for the lines of the summary.

        These lines are printed instead of the tables of the models.
        """
        self._finishing.append(function)

    def close(self) -> None:
        """Free everything, and write what the options ask for."""
        more = [function() for function in self._finishing]
        for model in list(self._open):
            self.unload(model)
        self.engine.close()
        settings = self.settings
        documents = [
            run.as_json() | {"inference_seconds": [round(value, 6) for value in seconds]}
            for run, seconds in zip(self.runs, self.seconds, strict=True)
        ]
        if settings.summary:
            self._print([line for _, lines in more for line in lines])
        if settings.json is not None:
            written: dict[str, Any] = {
                "models": documents,
                "left": [vars(one) for one in self.left.values()],
                "graphs": [vars(count) for count in self.graphs],
            }
            if self.unlisted:
                written["models_not_listed"] = self.unlisted
            for members, _ in more:
                written |= members
            _write_json(settings.json, written)
        for number, document in enumerate(documents if settings.report is not None else ()):
            assert settings.report is not None
            write_page(
                numbered(settings.report, number), document, self._kept.log if len(documents) == 1 else None
            )

    def _print(self, lines: Sequence[str]) -> None:
        out = console(error=True)
        for line in lines:
            out.print(line, markup=False, highlight=False)
        for run in self.runs if not self._finishing else ():
            print_summary(out, run)
        if self.unlisted:
            out.print(f"{self.unlisted} more models", markup=False, highlight=False)
        for one in list(self.left.values())[:SHOWN]:
            text = f"with the runtime: {one.kind} '{one.name}': {one.reason}"
            out.print(text, markup=False, highlight=False)
        if len(self.left) > SHOWN:
            out.print(f"with the runtime: {len(self.left) - SHOWN} more operators (json has all)")


def numbered(path: Path, number: int) -> Path:
    """Return the path of file `number` (from 0) of several: report.html, report-2.html, ..."""
    return path.with_name(f"{path.stem}-{number + 1}{path.suffix}") if number else path


def _event_files(settings: Settings, trace: TraceSpec | None) -> list[EventFiles]:
    """Return the files of events that the options ask for."""
    files = []
    if settings.events or settings.timeline:
        require(settings.engine, "has_events", "an event log")
        files.append(EventFiles(settings.events, settings.timeline))
    if trace is not None:
        require(settings.engine, "can_trace", "a waveform")
        if settings.events is None and (log := beside(trace)) is not None:
            files.append(log)
    return files


def _write_json(path: Path, data: dict[str, Any]) -> None:
    import json

    from rkcosim.waves.whole_file import whole_file

    with whole_file(path) as part:
        part.write_text(json.dumps(versioned(data), indent=2) + "\n")
