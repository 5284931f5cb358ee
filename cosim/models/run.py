"""Run a network through `rknn_api` on a simulated device, with checks and a report."""

from __future__ import annotations

import ctypes as ct
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim import progress
from cosim.crosscheck.mismatch import wants_mismatch
from cosim.engines.engine import open_engine
from cosim.engines.library import DramConfig
from cosim.engines.settings import changed
from cosim.models.progress import Inferences
from cosim.models.rows import LayerRow, buffers, layer_row, task_rows
from cosim.models.trace import trace_model_mismatch
from cosim.perf.measure import meter
from rtl.config import RK3588
from sw import rknn_api as api
from sw.compiler import keeping_tensors, using_cores
from sw.rknn_api import types
from waves.spec import TraceSpec

SCHEMA_VERSION = 1
"""Version of the JSON form of `ModelRun`."""

Progress = Callable[[str], None]


class RunError(Exception):
    """A call of `rknn_api` failed.

    Parameters
    ----------
    call : the function's name.
    code : its error code.
    cause : what the library knows about it.
    """

    def __init__(self, call: str, code: int, cause: BaseException | None) -> None:
        self.code = code
        self.cause = cause
        super().__init__(str(cause) if cause else f"{call} returned {code}")


@dataclass
class ModelRun:
    """What a run gave; `as_json` has the fields of `rkcosim run --json`."""

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
    """Bytes of weights, commands and activations; the latter also with and without sharing."""
    host_share: float = 0.0
    """Part of the layers' elements that the host computed."""
    inference_cycles: list[int] = field(default_factory=list)
    """Cycles of each inference; `layers`, `tasks` and `buffers` are of the first."""
    tasks: list[dict[str, Any]] = field(default_factory=list)
    """`cosim.models.rows.task_rows`."""
    buffers: list[dict[str, Any]] = field(default_factory=list)
    """`cosim.models.rows.buffers`."""
    dram: dict[str, Any] = field(default_factory=dict)
    """Timing of the memory (`cosim.engines.DramConfig`); the JSON adds what is not the default."""
    shards: list[dict[str, Any]] = field(default_factory=list)
    """Parts that the inferences were simulated in, where they were (`cosim.shards`)."""
    peak: int = RK3588.macs_int8
    """int8 MACs that one core's array does a cycle at most."""
    top1: float | None = None
    reference: str | None = None
    reference_top1: float | None = None
    reference_agrees: int | None = None
    resumed_at: int = 0
    """Cycle of the engine at which the run went on from a snapshot, 0 for none."""
    predictions: list[int] = field(default_factory=list)
    results: list[list[npt.NDArray[np.float32]]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Everything but the raw results, ready for `json.dump`."""
        data = {k: v for k, v in self.__dict__.items() if k not in ("results", "layers")}
        data["schema_version"] = SCHEMA_VERSION
        data["dram_changed"] = changed(self.dram)
        data["images"] = self.inferences
        data["layers"] = [row.as_json() for row in self.layers]
        data["cycles_per_second"] = round(self.cycles_per_second)
        return data

    @property
    def cycles_per_second(self) -> float:
        """Cycles simulated here, without those before a snapshot, in a second."""
        return max(self.cycles - self.resumed_at, 0) / max(self.simulated_seconds, 1e-9)


class Session:
    """A model on a device, one inference after the other, through the C interface's calls.

    Parameters
    ----------
    model : path of the model file.
    engine : "verilator", "cxxrtl", "amaranth", "golden" or None for the best there is.
    exact : simulate the array cell's RTL instead of its C++ twin.
    check : compare every tensor of every inference with both golden levels.
    trace : a waveform to write, or None.
    cores : cores that share the model's large layers.
    dram : timing of the memory, None for the RK3588's.

    Raises
    ------
    RunError, EngineError
    """

    def __init__(
        self,
        model: str | Path,
        *,
        engine: str | None = None,
        exact: bool = False,
        check: bool = False,
        trace: TraceSpec | None = None,
        cores: int = 1,
        dram: DramConfig | None = None,
    ) -> None:
        self.path = Path(model)
        self.cores = max(cores, cores_of(self.path))
        self.dram = dram
        self.device: Any = None
        self.context = types.rknn_context()
        self.run_seconds = 0.0
        self.checker: Any = None
        try:
            self._connect(engine, exact, trace)
            with progress.step("compiling the model"), keeping_tensors(check), using_cores(cores):
                self._call("rknn_init", api.rknn_init(self.context, str(self.path), 0), init=True)
            counts = types.rknn_input_output_num()
            self._query(types.RKNN_QUERY_IN_OUT_NUM, counts)
            self.inputs = [self._attr(types.RKNN_QUERY_INPUT_ATTR, n) for n in range(counts.n_input)]
            self.outputs = [self._attr(types.RKNN_QUERY_OUTPUT_ATTR, n) for n in range(counts.n_output)]
            if check:
                self.checker = self._checker()
        except BaseException:
            self.close()
            raise

    def _connect(self, engine: str | None, exact: bool, trace: TraceSpec | None) -> None:
        """Open the device and let the library use it."""
        self.device = _open_device(engine, exact, trace, self.cores, self.dram)
        # The golden device knows no cycles, so it measures nothing.
        measures = None if engine == "golden" else meter(self.device)
        api.use_device(self.device, meter=measures, quiet=True)

    def _checker(self) -> Any:
        """What compares the device's tensors with the golden models'."""
        from cosim.crosscheck.model_check import ModelChecker

        return ModelChecker(api.loaded_model(self.context), device=self.device.name)

    def expect(self, batch: Sequence[Sequence[npt.NDArray[Any]]]) -> None:
        """Hear which inferences will be asked for, in this order; nothing depends on it here."""

    def shards(self) -> list[dict[str, Any]]:
        """Parts that the inferences were simulated in; none here."""
        return []

    def infer(self, values: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[np.float32]]:
        """Run once.

        Parameters
        ----------
        values : float32 arrays of real values in the model's shapes.

        Returns
        -------
        float32 arrays in the model's shapes.
        """
        buffers = [np.ascontiguousarray(value, np.float32) for value in values]
        items = [types.rknn_input() for _ in buffers]
        for number, buffer in enumerate(buffers):
            items[number].index = number
            items[number].buf = buffer.ctypes.data
            items[number].size = buffer.nbytes
            items[number].type = types.RKNN_TENSOR_FLOAT32
            items[number].fmt = types.RKNN_TENSOR_NCHW
        self._call("rknn_inputs_set", api.rknn_inputs_set(self.context, len(buffers), items))
        started = time.perf_counter()
        self._call("rknn_run", api.rknn_run(self.context, None))
        self.run_seconds += time.perf_counter() - started
        gotten = [types.rknn_output() for _ in self.outputs]
        for number in range(len(self.outputs)):
            gotten[number].index = number
            gotten[number].want_float = 1
        self._call("rknn_outputs_get", api.rknn_outputs_get(self.context, len(gotten), gotten, None))
        results = []
        for number, attr in enumerate(self.outputs):
            raw = ct.string_at(gotten[number].buf, gotten[number].size)
            results.append(np.frombuffer(raw, np.float32).reshape(tuple(attr.dims[: attr.n_dims])))
        self._call("rknn_outputs_release", api.rknn_outputs_release(self.context, len(gotten), gotten))
        return results

    def shape(self, number: int) -> tuple[int, ...]:
        """Shape of an input as the model file has it (the C interface tells NHWC for 4-D inputs)."""
        attr = self.inputs[number]
        dims = tuple(attr.dims[: attr.n_dims])
        if attr.fmt == types.RKNN_TENSOR_NHWC and len(dims) == 4:
            batch, height, width, channels = dims
            return batch, channels, height, width
        return dims

    def input_name(self, number: int) -> str:
        """Name of an input."""
        return self.inputs[number].name.decode()

    @property
    def report(self) -> Any:
        """`RunReport` of the last inference."""
        return api.run_report(self.context)

    def close(self) -> None:
        """Free context and device."""
        if self.checker is not None:
            self.checker.close()
        if self.context.value:
            api.rknn_destroy(self.context)
        api.use_device(None)
        close = getattr(self.device, "close", None)
        if close:
            close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, name: str, code: int, init: bool = False) -> None:
        if code != types.RKNN_SUCC:
            raise RunError(name, code, api.last_error(None if init else self.context))

    def _query(self, command: int, info: Any) -> None:
        self._call("rknn_query", api.rknn_query(self.context, command, ct.byref(info), ct.sizeof(info)))

    def _attr(self, command: int, number: int) -> Any:
        attr = types.rknn_tensor_attr()
        attr.index = number
        self._query(command, attr)
        return attr


def cores_of(path: Path) -> int:
    """Cores that a compiled model was compiled for; 1 for any other file."""
    from sw.compiler.container import MAGIC, load_container

    with path.open("rb") as file:
        compiled = file.read(len(MAGIC)) == MAGIC
    return load_container(path.read_bytes()).plan.cores if compiled else 1


def _open_device(
    engine: str | None, exact: bool, trace: TraceSpec | None, cores: int, dram: DramConfig | None = None
) -> Any:
    if engine == "golden":
        from cosim.golden.task import GoldenNpu

        if trace is not None:
            raise ValueError("the engine golden has no cycles, so it writes no waveform")
        return GoldenNpu(cores)
    traced = trace is not None and engine != "amaranth"
    device = open_engine(engine, exact=exact, cores=cores, traced=traced, dram=dram)
    if trace is not None:
        device.trace(trace)
    return device


def run_model(
    model: str | Path,
    batch: Sequence[Sequence[npt.NDArray[Any]]] | None = None,
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
    each: Callable[[int, list[npt.NDArray[np.float32]], bool | None], None] | None = None,
    session_of: Callable[..., Session] = Session,
) -> ModelRun:
    """Run a model on each element of `batch` and gather the report.

    Parameters
    ----------
    model : path of the model.
    batch : per inference one real-valued array per input; None: one inference on random values.
    engine, exact, check, trace, cores, dram : see `Session`.
    labels : true class of each inference, for the accuracy.
    reference : also run the runtime of the model's own format, if it is installed.
    seed : of the random inputs.
    each : called after each inference with its number, outputs and verdict (None unchecked).
    session_of : makes the session from the options above, where it is not to be a `Session`.

    Raises
    ------
    RunError, EngineError, ValueError
    """
    begun = time.perf_counter()
    later = wants_mismatch(trace, check)

    def open_session(spec: TraceSpec | None) -> Session:
        options = {"engine": engine, "exact": exact, "check": check, "cores": cores, "dram": dram}
        return session_of(model, trace=spec, **options)

    with open_session(None if later else trace) as session:
        if batch is None:
            batch = [random_inputs(session, seed)]
        _check_batch(session, batch)
        session.expect(batch)
        results, cycles, first_report = [], [], None
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
                    found = session.checker.check(list(values))
                    address = session.checker.check_memory()
                good = found.match and address is None
                if not good and verdict["match"] is not False:
                    where = str(found.first) if found.first else f"padding at 0x{address:08X}"
                    wrong = found.first.address if found.first else address
                    verdict = {"match": False, "inference": number, "first_difference": where}
                    verdict["address"] = wrong
                elif verdict["match"] is None:
                    verdict = {
                        "match": True,
                        "levels": [session.device.name, "task golden", "graph golden"],
                        "overwritten": _overwritten(session),
                    }
            if each:
                each(number, results[-1], good)
        assert first_report is not None
        compiled = api.compiled_model(session.context)
        outputs = []
        for number, attr in enumerate(session.outputs):
            last = results[-1][number]
            shape = [int(n) for n in last.shape]
            outputs.append({"name": attr.name.decode(), "shape": shape, "top1": int(last.argmax())})
        run = ModelRun(
            model=session.path.name,
            engine=session.device.name,
            cell=session.device.cell,
            geometry=RK3588.name,
            cores=session.cores,
            memory=_memory(compiled),
            host_share=_host_share(first_report.layers),
            inferences=len(results),
            cycles=sum(cycles),
            verdict=verdict,
            outputs=outputs,
            layers=[layer_row(layer, dram) for layer in first_report.layers],
            inference_cycles=cycles,
            tasks=task_rows(first_report.layers),
            buffers=buffers(api.loaded_model(session.context)),
            resumed_at=getattr(session.device, "resumed_at", 0),
            dram=asdict(getattr(session.device, "dram", None) or DramConfig()),
            host_seconds=0.0,
            simulated_seconds=session.run_seconds,
            results=results,
            predictions=[int(result[0].argmax()) for result in results],
            shards=session.shards(),
        )
    if trace is not None and later:
        run.verdict |= trace_model_mismatch(trace, run.verdict, batch, open_session)
    if labels is not None:
        run.top1 = float(np.mean(np.array(run.predictions) == np.array(labels)))
    if reference:
        with progress.step("the same inferences on the format's own runtime"):
            _add_reference(run, Path(model), compiled, batch, labels)
    run.host_seconds = round(time.perf_counter() - begun, 3)
    run.simulated_seconds = round(run.simulated_seconds, 3)
    return run


def random_inputs(session: Session, seed: int) -> list[npt.NDArray[np.float32]]:
    """Draw real values that cover the range of each input's codes; of a model of floats, normal ones."""
    rng = np.random.default_rng(seed)
    drawn = []
    for number, attr in enumerate(session.inputs):
        if attr.type in (types.RKNN_TENSOR_FLOAT16, types.RKNN_TENSOR_FLOAT32):
            drawn.append(rng.normal(size=session.shape(number)).astype(np.float32))
            continue
        low, high = (-128, 127) if attr.type == types.RKNN_TENSOR_INT8 else (0, 255)
        codes = rng.integers(low, high + 1, session.shape(number))
        drawn.append(((codes - attr.zp) * attr.scale).astype(np.float32))
    return drawn


def _check_batch(session: Session, batch: Sequence[Sequence[npt.NDArray[Any]]]) -> None:
    if not batch:
        raise ValueError("no input given")
    for values in batch:
        if len(values) != len(session.inputs):
            names = ", ".join(session.input_name(n) for n in range(len(session.inputs)))
            raise ValueError(f"{len(values)} inputs given, the model has {len(session.inputs)}: {names}")
        for number, value in enumerate(values):
            want = session.shape(number)
            if tuple(value.shape) != want:
                raise ValueError(
                    f"input '{session.input_name(number)}' must have shape {list(want)}, "
                    f"not {list(value.shape)}"
                )


def _overwritten(session: Session) -> int:
    """Tensors that could not be compared because later ones took their memory (compiled models)."""
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


def _host_share(layers: Sequence[Any]) -> float:
    every = sum(int(np.prod(layer.output_shape)) for layer in layers)
    hosted = sum(int(np.prod(layer.output_shape)) for layer in layers if layer.target == "host")
    return hosted / max(every, 1)


def _add_reference(
    run: ModelRun,
    model: Path,
    compiled: Any,
    batch: Sequence[Sequence[npt.NDArray[Any]]],
    labels: Sequence[int] | None,
) -> None:
    """Fill the fields that compare with the format's own runtime; nothing happens where there is none."""
    from cosim.models.references import ReferenceProblem, default_reference, open_reference

    try:
        reference = open_reference(default_reference(model.read_bytes()), model, compiled)
    except ReferenceProblem:
        return
    theirs = []
    for values in batch:
        results = reference.run([np.asarray(v, np.float32) for v in values])
        theirs.append(int(results[0].argmax()))
    for output, last in zip(run.outputs, results, strict=True):
        output["reference_top1"] = int(last.argmax())
    run.reference = reference.name
    run.reference_agrees = int(np.sum(np.array(theirs) == np.array(run.predictions)))
    if labels is not None:
        run.reference_top1 = float(np.mean(np.array(theirs) == np.array(labels)))
