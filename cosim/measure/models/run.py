"""Run a network through `rknn_api` on a simulated device, with checks and a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rkcosim import rknn_api as api
from rkcosim.base import progress
from rkcosim.compiler.batch import batch_size
from rkcosim.driver import DriverError
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import capabilities
from rkcosim.engines.settings import changed
from rkcosim.measure.models.hosted import HostWork, host_work
from rkcosim.measure.models.outputs import (
    add_agreement,
    class_outputs,
    output_row,
)
from rkcosim.measure.models.progress import Inferences
from rkcosim.measure.models.rows import LayerRow, buffers, layer_row, task_rows
from rkcosim.running.session import Session
from rkcosim.spec.config import RK3588
from rkcosim.verify.crosscheck.checks import checker_for, first_wrong

if TYPE_CHECKING:
    from rkcosim.waves.spec import TraceSpec

SCHEMA_VERSION = 1
"""Version of the JSON form of `ModelRun`."""

Progress = Callable[[str], None]


@dataclass
class ModelRun:
    """Result of a run; `as_json` has the fields of `rkcosim run --json`.

    The engine golden has no time: its `cycles`, `inference_cycles` and `cycles_per_second` count register
    accesses.  `measured` is then false, and the JSON has null in their place.
    """

    model: str
    engine: str
    cell: str
    geometry: str
    cores: int
    inferences: int
    cycles: int
    verdict: dict[str, Any]
    outputs: list[dict[str, Any]]
    layers: list[LayerRow]
    host_seconds: float
    simulated_seconds: float
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes of weights, commands and activations; of the latter also with and without shared memory."""
    host: HostWork = field(default_factory=lambda: HostWork([], 0.0, 0.0))
    """What the host computed; the JSON has its members."""
    floats_in_fp16: bool = False
    """Whether the NPU computed float32 operators in fp16 (`rkcosim.compiler.options`)."""
    fp16_layers: list[str] = field(default_factory=list)
    """The layers that the NPU computed in fp16, if it computed others in int8."""
    inference_cycles: list[int] = field(default_factory=list)
    """Cycles of each inference; `layers`, `tasks` and `buffers` are of the first."""
    tasks: list[dict[str, Any]] = field(default_factory=list)
    """`rkcosim.measure.models.rows.task_rows`."""
    buffers: list[dict[str, Any]] = field(default_factory=list)
    """`rkcosim.measure.models.rows.buffers`."""
    submits: int = 0
    """Jobs of one inference; host steps and layers shared by several cores divide it into jobs."""
    on_one_core: str = ""
    """Why no layer is divided among several cores; empty if one is, or if there is one core."""
    samples: int = 1
    """Samples of one inference of a model of batches; `layers`, `tasks` and `buffers` are those of one."""
    dram: dict[str, Any] = field(default_factory=dict)
    """Timing of the memory (`rkcosim.engines.DramConfig`); the JSON lists changed settings separately."""
    shards: list[dict[str, Any]] = field(default_factory=list)
    """Parts in which the inferences were simulated, if there were any (`rkcosim.measure.shards`)."""
    peak: int = RK3588.macs_int8
    """Largest number of int8 MACs per cycle of one core's array."""
    top1: float | None = None
    reference: str | None = None
    reference_source: str | None = None
    """File that the reference ran: the model's, or the ONNX file beside a `.rknn` file."""
    reference_top1: float | None = None
    reference_agrees: int | None = None
    tensors_kept: bool = False
    """Whether no tensors shared memory, as in a run with checks; sharing changes addresses and therefore,
    slightly, the cycles of the transfers."""
    resumed_at: int = 0
    """Cycle of the engine at which the run was resumed from a snapshot; 0 if it was not."""
    predictions: list[int] = field(default_factory=list)
    """Class of each inference; empty if the first output has no scores of classes."""
    results: list[list[npt.NDArray[np.float32]]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return everything except the raw results, in a form for `json.dump`."""
        data = {k: v for k, v in self.__dict__.items() if k not in ("results", "layers", "host")}
        data |= self.host.as_json()
        data["schema_version"] = SCHEMA_VERSION
        data["dram_changed"] = changed(self.dram)
        data["images"] = self.inferences
        data["layers"] = [row.as_json() for row in self.layers]
        data["cycles_per_second"] = round(self.cycles_per_second)
        data["board"] = self._board() if self.measured else None
        if not self.measured:
            data |= {"cycles": None, "cycles_per_second": None}
            data["inference_cycles"] = [None] * len(self.inference_cycles)
        return data

    def _board(self) -> dict[str, Any]:
        """Return the time on a board, with the errors of such times."""
        from rkcosim.measure.perf.boards.expected import board_json

        return board_json(self.cycles_each, self.submits)

    @property
    def cycles_each(self) -> int:
        """Mean number of cycles per inference."""
        return self.cycles // max(self.inferences, 1)

    @property
    def measured(self) -> bool:
        """Whether cycles are those of the hardware."""
        return capabilities(self.engine).has_cycles

    @property
    def cycles_per_second(self) -> float:
        """Cycles simulated in this process (without those before a snapshot), per second."""
        return max(self.cycles - self.resumed_at, 0) / max(self.simulated_seconds, 1e-9)


def run_of_frame(name: str, device: Any, model: Any, loaded: Any, report: Any) -> ModelRun:
    """One frame of a model that a program ran, as a run that was not checked.

    Parameters
    ----------
    name : of the model.
    device : the engine.
    model, loaded, report : the compiled model, the one on the device, and the frame's `RunReport`.
    """
    outputs: list[dict[str, Any]] = []
    classes = class_outputs(model)
    with suppress(DriverError):  # the program may have freed memory that it gave to the model
        for number, info in enumerate(model.outputs):
            values = np.asarray(loaded.get_output(number))
            outputs.append(output_row(info.name, values, classes[number]))
    return ModelRun(
        model=name,
        engine=device.name,
        cell=device.cell,
        geometry=RK3588.name,
        cores=getattr(model.plan, "cores", 1),
        memory=_memory(model),
        tensors_kept=not getattr(model.plan, "reuse", True),
        host=_host(model),
        inferences=1,
        cycles=report.cycles,
        verdict={"match": None},
        outputs=outputs,
        layers=[layer_row(layer, device.dram) for layer in report.layers],
        inference_cycles=[report.cycles],
        tasks=task_rows(report.layers),
        buffers=buffers(loaded),
        submits=model.plan.jobs * batch_size(model),
        on_one_core=getattr(model.plan, "on_one_core", ""),
        samples=batch_size(model),
        dram=asdict(device.dram or DramConfig()),
        host_seconds=0.0,
        simulated_seconds=0.0,
    )


def run_model(
    model: str | Path,
    batch: Sequence[Sequence[npt.NDArray[Any]]] | Mapping[str, npt.ArrayLike] | npt.ArrayLike | None = None,
    *,
    engine: str | None = None,
    exact: bool = False,
    check: bool = True,
    labels: Sequence[int] | None = None,
    reference: bool = False,
    seed: int = 0,
    trace: TraceSpec | None = None,
    cores: int = 1,
    dram: DramConfig | None = None,
    each: Callable[[int, int | None, bool | None], None] | None = None,
    session_of: Callable[..., Session] = Session,
) -> ModelRun:
    """Run a model on each element of `batch` and collect the report.

    Parameters
    ----------
    model : path of the model.
    batch : for each inference one real-valued array per input; or the inputs of one inference: a mapping from
        names to arrays, or the array of the only input. None: one inference on random values.
    engine, exact, trace, cores, dram : see `Session`.
    check : compare every tensor of every inference with both golden models.
    labels : true class of each inference, for the accuracy.
    reference : whether to run the runtime of the model's format too, if it is installed.
    seed : seed of the random inputs.
    each : called after each inference with its number, its class (None if the first output has no scores of
        classes, see `rkcosim.measure.models.outputs.class_outputs`) and its verdict (None if unchecked).
    session_of : function that makes the session from the options above; by default `Session`.

    Raises
    ------
    RunError, EngineError, ValueError
    """
    begun = time.perf_counter()
    later = False
    if trace is not None:
        from rkcosim.verify.crosscheck.mismatch_trace import wants_mismatch

        later = wants_mismatch(trace, check)

    def open_session(spec: TraceSpec | None) -> Session:
        checker = checker_for if check else None
        options = {"engine": engine, "exact": exact, "checker": checker, "cores": cores, "dram": dram}
        return session_of(model, trace=spec, **options)

    with open_session(None if later else trace) as session:
        if batch is None:
            from rkcosim.measure.models.draw import random_inputs

            batch = [random_inputs(session, seed)]
        batch = _inferences(batch, session)
        session.fits(batch)
        session.expect(batch)
        results, cycles, first_report = [], [], None
        classes = class_outputs(api.compiled_model(session.context), labels is not None)
        if labels is not None and not classes[0]:
            info = session.outputs[0]
            progress.say(
                f"labels are not used: output '{info.name}' of shape {list(info.shape)} is not one score for "
                "each class"
            )
            labels = None
        verdict: dict[str, Any] = {"match": None}
        plan = getattr(api.compiled_model(session.context), "plan", None)
        shown = Inferences(plan, session.device, len(batch), session.checker is not None)
        for number, values in enumerate(batch):
            with shown.running(number):
                results.append(session.infer(values))
            report = session.report
            cycles.append(report.cycles)
            first_report = first_report or report
            good = None
            if session.checker is not None:
                with shown.checking():
                    wrong = first_wrong(session.checker, values)
                good = wrong is None
                if wrong is not None and verdict["match"] is not False:
                    verdict = {"match": False, "inference": number, "first_difference": wrong.where}
                    verdict["address"] = wrong.address
                elif verdict["match"] is None:
                    verdict = {
                        "match": True,
                        **session.checker.levels(),
                        "overwritten": _overwritten(session),
                    }
            if each:
                each(number, int(results[-1][0].argmax()) if classes[0] else None, good)
        assert first_report is not None
        compiled = api.compiled_model(session.context)
        samples = batch_size(compiled)
        rows = zip(session.outputs, results[-1], classes, strict=True)
        outputs = [output_row(info.name, last, scores) for info, last, scores in rows]
        run = ModelRun(
            model=session.path.name,
            engine=session.device.name,
            cell=session.device.cell,
            geometry=RK3588.name,
            cores=session.cores,
            memory=_memory(compiled),
            tensors_kept=not getattr(getattr(compiled, "plan", None), "reuse", True),
            host=_host(compiled),
            floats_in_fp16=getattr(compiled, "floats_in_fp16", False),
            fp16_layers=getattr(compiled, "fp16_layers", []),
            inferences=len(results),
            cycles=sum(cycles),
            verdict=verdict,
            outputs=outputs,
            layers=[layer_row(layer, dram) for layer in first_report.layers],
            inference_cycles=cycles,
            tasks=task_rows(first_report.layers),
            buffers=buffers(api.loaded_model(session.context)),
            resumed_at=session.device.resumed_at,
            submits=compiled.plan.jobs * samples,
            on_one_core=getattr(compiled.plan, "on_one_core", ""),
            samples=samples,
            dram=asdict(session.device.dram or DramConfig()),
            host_seconds=0.0,
            simulated_seconds=session.run_seconds,
            results=results,
            predictions=[int(result[0].argmax()) for result in results] if classes[0] else [],
            shards=session.shards(),
        )
    if trace is not None and later:
        wrong_up_to = batch[: run.verdict.get("inference", 0) + 1]

        @contextmanager
        def repeat(spec: TraceSpec | None) -> Iterator[tuple[Any, Callable[[], object]]]:
            with open_session(spec) as again:
                yield again.device, lambda: [again.infer(values) for values in wrong_up_to]

        from rkcosim.verify.crosscheck.mismatch_trace import trace_mismatch

        run.verdict |= trace_mismatch(trace, run.verdict, repeat)
    if labels is not None:
        run.top1 = float(np.mean(np.array(run.predictions) == np.array(labels)))
    if reference:
        with progress.step("running the same inferences on the reference runtime"):
            _add_reference(run, Path(model), compiled, batch, labels)
    run.host_seconds = round(time.perf_counter() - begun, 3)
    run.simulated_seconds = round(run.simulated_seconds, 3)
    return run


def _inferences(batch: Any, session: Session) -> list[list[npt.NDArray[Any]]]:
    """Return the arrays of each inference in the order of the inputs; raises ValueError for unknown names."""
    names = [info.name for info in session.inputs]
    if isinstance(batch, Mapping):
        if batch.keys() != set(names):
            raise ValueError(f"inputs {', '.join(batch)} given, but the model has {', '.join(names)}")
        return [[np.asarray(batch[name]) for name in names]]
    if isinstance(batch, np.ndarray):
        return [[batch]]
    return [[np.asarray(array) for array in values] for values in batch]


def _overwritten(session: Session) -> int:
    """Number of tensors that could not be compared because later ones overwrote them (compiled models)."""
    plan = getattr(api.compiled_model(session.context), "plan", None)
    return len(plan.lost) if plan is not None else 0


def _memory(compiled: Any) -> dict[str, int]:
    plan = getattr(compiled, "plan", None)
    if plan is None:
        return {}
    return {
        "weights": len(plan.weights),
        "commands": plan.regcmd_bytes(),
        "activations": plan.activation_bytes,
        "activations_shared": plan.shared_bytes,
        "activations_separate": plan.separate_bytes,
    }


def _host(compiled: Any) -> HostWork:
    return host_work(compiled) if hasattr(compiled, "plan") else HostWork([], 0.0, 0.0)


def _add_reference(
    run: ModelRun,
    model: Path,
    compiled: Any,
    batch: Sequence[Sequence[npt.NDArray[Any]]],
    labels: Sequence[int] | None,
) -> None:
    """Set the fields of the comparison with the format's runtime; do nothing if it is not installed."""
    from rkcosim.base.files import read_model
    from rkcosim.measure.models.references import (
        ReferenceProblem,
        default_reference,
        open_reference,
        source_beside,
    )

    source = source_beside(model)
    try:
        reference = open_reference(default_reference(read_model(source)), source, compiled)
    except ReferenceProblem as error:
        if isinstance(error.__cause__, ImportError):
            progress.say(f"no other results to compare with: {error}")
        return
    theirs = []
    try:
        for number, values in enumerate(batch):
            results = reference.run([np.asarray(v, np.float32) for v in values])
            theirs.append(int(results[0].argmax()))
            add_agreement(run.outputs, compiled.outputs, run.results[number], results)
    except ReferenceProblem as error:
        progress.say(f"{model}: not compared: {error}")
        return
    run.reference, run.reference_source = reference.name, source.name
    for output, last in zip(run.outputs, results, strict=True):
        output["reference_top1"] = int(last.argmax()) if output["top1"] is not None else None
    if run.predictions:
        run.reference_agrees = int(np.sum(np.array(theirs) == np.array(run.predictions)))
    if labels is not None:
        run.reference_top1 = float(np.mean(np.array(theirs) == np.array(labels)))
