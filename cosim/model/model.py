"""A network as one object: compiled when it is loaded, run on an engine that it opens itself.

    model = rkcosim.load("model.onnx")
    y = model(x)
    print(model.profile(x))

Arrays have the names, shapes and element types of the model's file.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, overload

import numpy as np
import numpy.typing as npt

from rkcosim.base import Error, progress
from rkcosim.base.files import identify, read_model
from rkcosim.base.progress_display import shown_once
from rkcosim.compiler import ModelError, keeping_tensors, using_cores
from rkcosim.compiler.batch import load as place
from rkcosim.compiler.model import naming_model
from rkcosim.compiler.options import using_options
from rkcosim.compiler.runtime import plan_layers
from rkcosim.hostops.quantise import dequantize
from rkcosim.model.outputs import Outputs
from rkcosim.model.signature import given, inner, outer, signature
from rkcosim.rknn_file.opening import open_model

if TYPE_CHECKING:
    import onnx

    from rkcosim.driver import Driver
    from rkcosim.engines.engine import AnyEngine
    from rkcosim.engines.library import DramConfig
    from rkcosim.measure.advice.advise import Kind
    from rkcosim.measure.models.rows import LayerRow
    from rkcosim.model.advice import AdviceReport
    from rkcosim.model.reports import AccuracyReport, Check, ComparisonReport, EstimateReport, Profile
    from rkcosim.model.tables import Table
    from rkcosim.verify.streams.stream import Stream
    from rkcosim.waves.spec import TraceSpec, When

Array = npt.NDArray[Any]

Runtime = Literal["onnxruntime", "litert", "naive"]
"""Other runtimes with which a model is compared."""

Floats = Literal["fp16", "host", "refuse"]
Method = Literal["minmax", "percentile", "entropy", "mse"]
PlanName = Literal["ours", "rknn"]

Inputs = npt.ArrayLike | Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike]
"""The inputs of an inference: an array, a mapping from names to arrays, or a sequence of arrays."""

Samples = str | os.PathLike[str] | npt.ArrayLike | Mapping[str, npt.ArrayLike] | Iterable[Inputs]
"""Samples for quantisation: an array or mapping with one sample more in front, samples, or a path."""


class _Shared:
    """What all models of an engine have together.

    Members
    -------
    driver
        Knows which memory of the device is in use.
    lock
        Held during an inference: the cores do one job at a time.
    """

    def __init__(self, engine: AnyEngine, lock: threading.RLock) -> None:
        from rkcosim.driver import Driver

        self.driver, self.lock = Driver(engine), lock

    @classmethod
    def of(cls, engine: AnyEngine, lock: threading.RLock | None = None) -> _Shared:
        """Return that of an engine; the first call makes it, with `lock` if one is given.

        It is a member of the engine, so that both end together.
        """
        with _SHARED_LOCK:
            members = vars(engine)
            if "_models" not in members:
                members["_models"] = cls(engine, lock or threading.RLock())
            shared: _Shared = members["_models"]
            return shared


_SHARED_LOCK = threading.Lock()


class ClosedError(Error):
    """A model or an engine was used after its end."""


class _Device:
    """The engine of a model and what is loaded on it; `close` may be called again."""

    def __init__(self) -> None:
        self.engine: AnyEngine | None = None
        self.driver: Driver | None = None
        self.own = True
        self.meter: Any = None
        self.loaded: dict[bool, Any] = {}
        """The model in the device's memory, by whether tensors keep their memory."""

    def close(self) -> None:
        """Free the memory of the model, and the engine if the model opened it."""
        for one in self.loaded.values():
            one.close()
        self.loaded.clear()
        engine, self.engine = self.engine, None
        if engine is not None and self.own:
            engine.close()


def load(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    engine: str | AnyEngine | None = None,
    cores: int = 1,
    exact: bool = False,
    dram: DramConfig | Mapping[str, float] | str | None = None,
    floats: Floats = "fp16",
    fallback: bool = True,
    shapes: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] = (),
    plan: PlanName = "ours",
    calibration: Samples | None = None,
) -> Model:
    """Load and compile a network.

    The engine is opened by the first method that needs it; its model of the hardware is built then if it is
    not in the cache, which takes about a minute, with a progress bar.

    Parameters
    ----------
    model
        Path or bytes of an ONNX, TFLite, TNN, `.rknn` or compiled model, or an `onnx.ModelProto`.
    engine
        "verilator" (the default), "changes", "cxxrtl", "amaranth", "fast" (the timing of the RTL with the
        bytes of the numpy model), or "golden" (bytes without cycles); or an engine that is open, which
        several models may use and which the model does not close.
    cores
        Cores among which large layers are divided, 1 to 3.
    exact
        Simulate the cells (array, DPU) as RTL instead of their C++ equivalents (same cycles, slower).
    dram
        Timing of the memory: `rkcosim.engines.DramConfig`, its members by name, or the speed of the DRAM for
        all cores at 1 GHz, as "4224MT/s" or "23.65GB/s"; None: the RK3588's.
    floats
        Where operators in floating point run: "fp16" (on the NPU), "host", or "refuse" such models.
    fallback
        Whether the host computes operators that the NPU cannot do; if not, such a model is refused.
    shapes
        Shapes of inputs with open dimensions, by name.
    outputs
        Names of values to compute instead of the model's outputs.
    plan
        "ours", or "rknn" for convolutions divided as the vendor's compiler does.
    calibration
        Samples with which a float model is quantised to int8 first, see `Model.quantize`.

    Returns
    -------
    The model.

    Raises
    ------
    ModelError
        If the model cannot be read or compiled; the message names file, node and tensor.
    WrongKindError, GivenFileError, OSError
        If the file is not a model or cannot be read.
    ValueError
        For an unknown option.
    """
    for option, given_as in (("exact", exact), ("fallback", fallback)):
        if not isinstance(given_as, bool):
            raise ValueError(f"{option} must be True or False, not {given_as!r}")
    if isinstance(outputs, str):
        raise ValueError(f"outputs must be a sequence of names, not the text {outputs!r}: give [{outputs!r}]")
    if not all(isinstance(one, str) for one in outputs):
        raise ValueError(f"outputs must be names, not {list(outputs)!r}")
    if shapes is not None and not isinstance(shapes, Mapping):
        raise ValueError(f"shapes must be a mapping from names of inputs to shapes, not {shapes!r}")
    path: Path | None = None
    if isinstance(model, bytes | bytearray | memoryview):
        data, name = bytes(model), "model"
    elif isinstance(model, str | os.PathLike):
        path = Path(model)
        data, name = read_model(path), path.name
    elif hasattr(model, "SerializeToString") and hasattr(model, "graph"):
        data, name = model.SerializeToString(), model.graph.name or "model"
    else:
        raise ValueError(
            f"model must be a path, the bytes of a file or an onnx.ModelProto, not {type(model).__name__}"
        )
    how = dict(engine=engine, cores=cores, exact=exact, dram=dram, plan=plan)
    reading = {
        "floats": floats,
        "fallback": fallback,
        "shapes": {key: tuple(shape) for key, shape in (shapes or {}).items()},
        "outputs": tuple(outputs),
    }
    made = Model(data, name, path=path, reading=reading, **how)  # type: ignore[arg-type]
    return made if calibration is None else made.quantize(calibration)


class Model:
    """A compiled network; `load` makes it.

    It is a context manager.  Without `with` or `close`, its engine is closed when the object is no longer
    used.  One inference runs at a time; threads wait for each other.

    Members
    -------
    name
        Name of the file.
    inputs, outputs
        Names, shapes and element types, by number and by name.
    cores
        Cores among which large layers are divided.
    accuracy
        How far a model made by `quantize` is from its original (`rkcosim.model.AccuracyReport`); otherwise
        None.
    """

    def __init__(
        self,
        data: bytes,
        name: str,
        *,
        path: Path | None,
        engine: str | AnyEngine | None,
        cores: int,
        exact: bool,
        dram: DramConfig | Mapping[str, float] | str | None,
        plan: PlanName,
        reading: Mapping[str, Any],
    ) -> None:
        _check_plan(plan)
        _check_cores(cores)
        if reading["floats"] not in ("fp16", "host", "refuse"):
            raise ValueError(f"floats must be 'fp16', 'host' or 'refuse', not {reading['floats']!r}")
        self.name, self._data, self._path = name, data, path
        self._engine, self._exact, self._plan, self._reading = engine, exact, plan, dict(reading)
        self._dram = _memory(dram)
        self._asked_cores = cores
        _check_engine(engine)
        shared = not (isinstance(engine, str) or engine is None)
        self._lock = _Shared.of(engine).lock if shared else threading.RLock()  # type: ignore[arg-type]
        self._closed = False
        self.accuracy: AccuracyReport | None = None
        self._compiled: dict[bool, Any] = {}
        compiled = self._model()
        with self._options(), self._naming():
            self.inputs, self.outputs = signature(data, compiled)
        self.cores: int = max(cores, getattr(compiled.plan, "cores", 1))
        self._device = _Device()
        self._end = weakref.finalize(self, self._device.close)

    # What it is.

    def __repr__(self) -> str:
        """Return the kind of the file, inputs and outputs, and how much of it the NPU computes."""
        lines = [f"{self.name}: {identify(self._data)}, {self._host().share()}"]
        for what, tensors in (("input", self.inputs), ("output", self.outputs)):
            lines += [f"  {what} {tensor}" for tensor in tensors]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(repr(self))}</pre>{self.layers._repr_html_()}"

    @property
    def layers(self) -> Table[LayerRow]:
        """The layers in their order: where each runs, why the host computes it if it does, and its work.

        Cycles are in the layers of a `profile`.
        """
        from rkcosim.compiler.batch import one_of
        from rkcosim.measure.models.rows import layer_row
        from rkcosim.model.reports import layer_table

        rows = [layer_row(layer, self._dram) for layer in plan_layers(one_of(self._model()))]
        return layer_table(f"{self.name}: layers", rows)

    @property
    def mac_share(self) -> float:
        """Share of the multiply-accumulates that the NPU computes, 0 to 1."""
        return 1 - self._host().mac_share

    @property
    def engine(self) -> AnyEngine:
        """The engine, which is opened now if it was not yet.

        Raises
        ------
        BuildError
            If its model of the hardware cannot be built; the message says what is missing.
        ClosedError
            If the model is closed.
        """
        engine = self._open().engine
        assert engine is not None
        return engine

    def to_bytes(self) -> bytes:
        """Return the bytes of the model's file."""
        return self._data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, atomically; its ending selects the form.

        Parameters
        ----------
        path
            A file `.rkc` (the compiled model) or `.rknn` (the plan in the vendor's container); with any other
            ending the model's own file.

        Raises
        ------
        RknnFileError
            If the vendor's container cannot express a part of the model.
        OSError
            If the file cannot be written.
        """
        from rkcosim.waves.whole_file import whole_file

        target = Path(path)
        forms = {".rkc": lambda: self._model().save(), ".rknn": self._rknn}
        data = forms.get(target.suffix.lower(), self.to_bytes)()
        with whole_file(target) as part:
            part.write_bytes(data)

    def _rknn(self) -> bytes:
        """Return the plan in the vendor's container; a file in it stays as it is."""
        from rkcosim.compiler.batch import batch_size, one_of
        from rkcosim.rknn_file import is_rknn
        from rkcosim.rknn_file.writer import write_rknn

        if is_rknn(self._data):
            return self._data
        compiled = self._model()
        return write_rknn(one_of(compiled), batch=batch_size(compiled))

    # Runs.

    def __call__(self, /, *arrays: Inputs, **named: npt.ArrayLike) -> Array | Any:
        """Run once, as `run`; return the array of a model with one output, otherwise `Outputs`.

        A type checker does not know the number of outputs, and takes the result for an array or anything; the
        type of `run` is exact.
        """
        results = self.run(*arrays, **named)
        return results[0] if len(results) == 1 else results

    def run(self, /, *arrays: Inputs, **named: npt.ArrayLike) -> Outputs:
        """Run one inference.

        Parameters
        ----------
        arrays
            Arrays (or nested lists) in the order of the inputs, or one mapping from names to arrays.  They
            have the shapes of `inputs`; leading dimensions of 1 may be missing.  Of an input of codes, arrays
            of its element type are codes; floats and other integers are real numbers.
        named
            Arrays by the input's name.

        Returns
        -------
        The outputs, a list that is also indexed by name; `asdict()` makes a dictionary.  Arrays have the
        shapes and the element types of `outputs`.

        Raises
        ------
        ModelError
            If an input is wrong; its member `tensor` names it.
        DriverError
            If the device reports an error or does not end; members `layer`, `task`, `core`.
        EngineError
            If the hardware raises a diagnostic; members `register`, `task`, `core`.
        """
        values = self._given(arrays, named)
        with self._lock, shown_once(), progress.step(f"running {self.name}"):
            loaded = self._loaded()
            self._run(loaded, values)
            return self._outputs_of(loaded)

    def _run(self, loaded: Any, values: Sequence[Array]) -> Any:
        """Set the inputs and run; return the `RunReport`."""
        for number, array in enumerate(values):
            loaded.set_input(number, array)
        return loaded.run()

    def _given(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Array]:
        """Return inputs as the compiled model takes them; raises ModelError."""
        values = given(arrays, named, self.inputs)
        infos = self._model().inputs
        return [inner(v, item, info) for v, item, info in zip(values, self.inputs, infos, strict=True)]

    def _of(self, x: Inputs | None, seed: int) -> list[Array]:
        """Return the inputs of an inference, random ones for None."""
        if x is not None:
            return self._given((x,), {})
        from rkcosim.measure.models.draw import random_reals

        infos = self._model().inputs
        drawn = random_reals(infos, seed)
        return [
            array.astype(info.dtype) if info.dtype.kind in "iub" and not info.quantised else array
            for array, info in zip(drawn, infos, strict=True)
        ]

    def _outputs_of(self, loaded: Any) -> Outputs:
        arrays = [
            outer(np.asarray(loaded.get_output(number, raw=item.quantised)), item)
            for number, item in enumerate(self.outputs)
        ]
        return Outputs(arrays, self.outputs.names)

    # What is known of a run.

    def profile(self, x: Inputs | None = None, *, seed: int = 0) -> Profile:
        """Run one inference and report cycles, bytes, and what bounds each layer.

        The first inference after an engine was opened takes up to 256 cycles more than later ones: after a
        reset, the first register writes wait until the core has cleared its register groups.

        Parameters
        ----------
        x
            The inputs: an array, a mapping from names to arrays, or a sequence of arrays; None: random ones.
        seed
            Seed of the random inputs.

        Raises
        ------
        ModelError, DriverError, EngineError
            As `run`.
        """
        values = self._of(x, seed)
        with self._lock, shown_once(), progress.step(f"running {self.name}"):
            return self._profile(self._loaded(), values)

    def _profile(self, loaded: Any, values: Sequence[Array]) -> Profile:
        from rkcosim.measure.models.run import run_of_frame
        from rkcosim.model.reports import Profile

        report = self._run(loaded, values)
        outputs = self._outputs_of(loaded)
        run = run_of_frame(self.name, self._device.engine, loaded.model, loaded, report)
        return Profile(run, outputs.asdict())

    def check(self, x: Inputs | None = None, *, seed: int = 0) -> Check:
        """Run one inference and compare every tensor bit for bit with both golden models.

        Tensors do not share memory in this run, so that its cycles differ a little from those of `profile`.

        Parameters
        ----------
        x, seed
            As for `profile`.

        Raises
        ------
        ModelError, DriverError, EngineError
            As `run`.
        """
        from rkcosim.model.reports import Check
        from rkcosim.verify.crosscheck.checks import checker_for, first_wrong

        values = self._of(x, seed)
        with self._lock, shown_once(), progress.step(f"checking {self.name}"):
            loaded = self._loaded(keep=True)
            checker = checker_for(loaded, self.engine.name)
            try:
                checker.begin(values)
                profile = self._profile(loaded, values)
                wrong = first_wrong(checker, values)
                if wrong is None:
                    lost = len(getattr(loaded.model.plan, "lost", ()))
                    verdict = {"match": True, **checker.levels(), "overwritten": lost}
                else:
                    verdict = {"match": False, "inference": 0, "first_difference": wrong.where}
                    verdict["address"] = wrong.address
            finally:
                checker.close()
            profile.run.verdict, profile.run.tensors_kept = verdict, True
            return Check(verdict, profile)

    @overload
    def compare(
        self, x: Inputs | None = None, /, *, reference: Runtime | None = None, seed: int = 0
    ) -> ComparisonReport: ...
    @overload
    def compare(
        self, reference: Runtime, x: Inputs | None = None, /, *, seed: int = 0
    ) -> ComparisonReport: ...
    def compare(
        self, first: Any = None, second: Any = None, /, *, reference: Runtime | None = None, seed: int = 0
    ) -> ComparisonReport:
        """Compare the arithmetic of every layer and output with another runtime's.

        The layers run on the graph-level golden model, which `check` compares with the hardware.  Both
        `compare("onnxruntime", x)` and `compare(x)` are possible.

        Parameters
        ----------
        first, second
            The inputs, as for `profile`, and the name of the runtime; both may be left out, and the name may
            be in front.
        reference
            The runtime by name: "onnxruntime" for ONNX models, "litert" for TFLite, "naive" for TNN; None:
            that of the format.
        seed
            Seed of the random inputs.

        Raises
        ------
        ReferenceProblem
            If the runtime is not installed, or does not accept the model.
        ModelError
            If an input is wrong.
        ValueError
            For the name of another runtime, or arguments that are given twice.
        """
        from rkcosim.measure.models.compare import compare
        from rkcosim.measure.models.references import ReferenceProblem
        from rkcosim.model.reports import ComparisonReport

        names = [one for one in (first, second, reference) if isinstance(one, str)]
        given_inputs = [one for one in (first, second) if one is not None and not isinstance(one, str)]
        if len(names) > 1 or len(given_inputs) > 1:
            raise ValueError("compare takes the inputs once and the name of one runtime")
        for unknown in set(names) - set(get_args(Runtime)):
            raise ValueError(f"the runtime must be one of {', '.join(get_args(Runtime))}, not {unknown!r}")
        x = next(iter(given_inputs), None)
        named: Any = next(iter(names), None)
        reals = [
            dequantize(array, info.scale, info.zero_point)
            if info.quantised and array.dtype.kind in "iu"
            else array
            for array, info in zip(self._of(x, seed), self._model().inputs, strict=True)
        ]
        with shown_once(), self._options(), self._file() as path:
            try:
                found = compare(path, [reals], reference=named)
            except ReferenceProblem as error:
                raise ReferenceProblem(str(error).replace(str(path), self.name)) from error
        return ComparisonReport(replace(found, model=self.name))

    def estimate(
        self,
        *,
        clock: float = 1000.0,
        cores: int | None = None,
        dram: DramConfig | Mapping[str, float] | str | None = None,
        plan: PlanName | None = None,
        what_if: bool = False,
    ) -> EstimateReport:
        """Estimate the time of each layer without simulation.

        Parameters
        ----------
        clock
            Clock of the NPU in MHz; the DRAM keeps its own.
        cores
            Cores among which large layers are divided; None: the model's.
        dram
            Timing of the memory as for `load`; None: the model's.
        plan
            "ours" or "rknn"; None: the model's.
        what_if
            Whether the report has other bandwidths, clocks, cores, divisions of CBUF and larger NPUs as well
            (`variants`); for the plan "ours" only.

        Raises
        ------
        ValueError
            For an invalid speed, number of cores or plan, or for a task that cannot be estimated.
        """
        from rkcosim.measure.perf.estimator.files import estimate_file
        from rkcosim.model.reports import EstimateReport

        chosen = self._plan if plan is None else plan
        share = self._asked_cores if cores is None else cores
        _check_plan(chosen)
        _check_cores(share)
        memory = self._dram if dram is None else _memory(dram)
        with shown_once(), progress.step(f"estimating {self.name}"), self._options(), self._naming():
            found = estimate_file(
                self.name,
                self._data,
                clock=clock,
                memory=memory,
                cores=share,
                plan=chosen,
                plans=(chosen,),
                what_if=what_if,
            )
        return EstimateReport(found.document)

    def advise(
        self,
        x: Inputs | None = None,
        *,
        seconds: float = 60.0,
        only: Sequence[Kind] = (),
        take: Sequence[str] = (),
        meaning: Literal["same", "program", "approximate", "retraining"] = "retraining",
        clock: float = 1000.0,
        workers: int = 1,
    ) -> AdviceReport:
        """Find changes that make the model faster, make each of them on a copy, and time it.

        Times are those of the RTL: of the engine "fast" unless the model was loaded for another one.

        Parameters
        ----------
        x
            The inputs, as for `profile`, on which the outputs of changed models are compared; None: they are
            not compared.
        seconds
            Seconds after which no further change is tried; one that has begun is finished.
        only
            Kinds of changes to try; empty for all.
        take
            Names of changes to make together, in this order; no others are tried then.
        meaning
            The strongest effect on the results that a change may have.
        clock
            Clock of the NPU in MHz, for milliseconds.
        workers
            Processes that time changes side by side.

        Returns
        -------
        The changes with what each saves, the best first.  The model itself stays as it is.

        Raises
        ------
        AdviceError
            For a name in `only` or `take` that there is not, or a change that cannot be made.
        DriverError, EngineError
            If the model cannot be run.
        """
        from rkcosim.engines.protocol import FAST, require
        from rkcosim.measure.advice.advise import advise
        from rkcosim.model.advice import AdviceReport

        engine = self._engine if isinstance(self._engine, str | None) else self._engine.name
        require(engine or FAST, "has_cycles", "advice")
        samples = []
        if x is not None:
            names = [info.name for info in self._model().inputs]
            samples = [dict(zip(names, self._of(x, 0), strict=True))]
        with shown_once(), self._options(), self._naming():
            found = advise(
                self._data,
                self.name,
                seconds=seconds,
                only=only,
                take=take,
                meaning=meaning,
                samples=samples,
                cores=self._asked_cores,
                dram=self._dram,
                clock=clock,
                engine=engine or FAST,
                workers=workers,
            )
        return AdviceReport(found)

    def quantize(
        self,
        data: Samples,
        *,
        method: Method | Literal["auto"] = "minmax",
        percentile: float = 99.99,
        per_channel: bool = True,
        keep: Sequence[str] = (),
        share: Sequence[str] = (),
        mixed: int = 0,
        below: float | None = None,
        npu: bool = False,
        advice: bool = False,
        held_out: Samples | None = None,
    ) -> Model:
        """Make an int8 model of this float model, with the same options.

        Parameters
        ----------
        data
            Samples of the inputs: an array with one sample more in front than an input has, a sequence of
            samples (each an array, a mapping from names to arrays, or a sequence of arrays), or the path of a
            folder of pictures or arrays, of an `.npz`, or of a list of files.
        method
            Ranges of activations: the extreme values ("minmax"), without outliers ("percentile"), with the
            smallest loss of information ("entropy"), with the smallest mean squared error ("mse"), or by the
            one of "minmax" and "percentile" whose outputs are best on samples that were not calibrated with
            ("auto", of ONNX models).
        percentile
            Percentage of the values that "percentile" keeps.
        per_channel
            Whether weights have a scale for each channel, or one for the layer.
        keep
            Names of layers that stay in floating point.
        share
            Names of Concats whose inputs get the range of the result, so that no value is rounded again.
        mixed
            Number of further layers that stay in floating point: those that the output gains most from.
        below
            Layers whose cosine alone is below this number stay in floating point; None: no further ones.
        npu
            Whether `accuracy` also has the outputs in the NPU's arithmetic.
        advice
            Whether changes are tried on copies of the model; `accuracy.advice` has those that lower the error
            of the outputs by more than its noise.
        held_out
            Samples on which that is measured; None: half of `data`, which are then not calibrated with for
            the advice.

        Returns
        -------
        The quantised model; its member `accuracy` compares it with this one on the samples.

        Raises
        ------
        ModelError
            If the model has nothing to quantise, or a sample does not fit or has numbers that are not finite.
        ValueError
            For an option out of range, or `held_out` without `advice`.
        MissingExtraError
            If the quantiser is not installed.
        """
        from rkcosim.compiler.quantization import Settings
        from rkcosim.model.quantisation import quantised

        methods = (*get_args(Method), "auto")
        if method not in methods:
            raise ValueError(f"method must be one of {', '.join(methods)}, not {method!r}")
        for name, several in (("keep", keep), ("share", share)):
            if isinstance(several, str):
                raise ValueError(
                    f"{name} must be a sequence of names, not the text {several!r}: give [{several!r}]"
                )
        if not isinstance(mixed, int) or mixed < 0:
            raise ValueError(f"mixed must be a number of layers, not {mixed!r}")
        if not 0 <= percentile <= 100:
            raise ValueError(f"percentile must be 0 to 100, not {percentile!r}")
        if held_out is not None and not advice:
            raise ValueError("held_out has no effect without advice=True")
        auto = method == "auto"
        settings = Settings(
            "minmax" if method == "auto" else method, percentile, per_channel, tuple(keep), tuple(share)
        )
        with shown_once(), self._options(), self._naming():
            made, found = quantised(
                self._data, self.inputs, data, settings, auto, mixed, below, npu, advice, held_out
            )
        from rkcosim.model.reports import AccuracyReport

        stem = Path(self.name)
        name = f"{stem.stem}_int8{stem.suffix}"
        how: dict[str, Any] = dict(
            engine=self._engine, cores=self._asked_cores, exact=self._exact, dram=self._dram
        )
        model = Model(made, name, path=None, plan=self._plan, reading=self._reading, **how)
        model.accuracy = AccuracyReport(name, found)
        return model

    def measure_accuracy(
        self, original: Model, data: Samples, *, npu: bool = False, advice: bool = False
    ) -> AccuracyReport:
        """Compare this quantised model with its float original, on samples that were not used to quantise it.

        Parameters
        ----------
        original
            The float model.
        data
            Samples, as for `quantize`.
        npu
            Whether the report also has the outputs in the NPU's arithmetic.
        advice
            Whether changes are tried, as for `quantize`, on int8 models of `original` that are calibrated
            with half of the samples and compared on the others.

        Raises
        ------
        ModelError
            If the two models do not belong together, or a sample does not fit.
        MissingExtraError
            If the runtime that computes both models is not installed.
        """
        from rkcosim.model.quantisation import measured
        from rkcosim.model.reports import AccuracyReport

        with shown_once(), self._options(), self._naming():
            found = measured(original.to_bytes(), self._data, original.inputs, data, npu, advice)
        return AccuracyReport(self.name, found)

    def trace(
        self,
        x: Inputs | None,
        path: str | os.PathLike[str],
        *,
        start: str | int = 0,
        stop: str | int | None = None,
        scopes: Sequence[str] = (),
        seed: int = 0,
    ) -> Profile:
        """Run one inference on an engine of its own and write a waveform.

        Parameters
        ----------
        x
            The inputs, as for `profile`; None: random ones.
        path
            The file, `.vcd` or `.fst`.
        start, stop
            Moments: a cycle, "task:3", "layer:conv1", "write:DPU.S_POINTER"; None: to the end.
        scopes
            Globs of scopes or signals, as "core0.CNA"; empty: everything.

        Returns
        -------
        The profile of the run.

        Raises
        ------
        WaveformError, SpecError
            If the engine writes no waveforms, or the file or a moment cannot be used.
        """
        from rkcosim.waves.spec import TraceSpec, When

        end: When | None = None if stop is None else When.parse(stop)
        spec = TraceSpec(Path(path), scopes=tuple(scopes), start=When.parse(start), stop=end)
        values = self._of(x, seed)
        device = _Device()
        with shown_once(), progress.step(f"running {self.name} with a waveform"):
            try:
                self._connect(device, spec)
                assert device.driver is not None
                loaded = place(self._model(), device.driver, device.meter)
                device.loaded[False] = loaded
                with self._lock:
                    before, self._device = self._device, device
                    try:
                        return self._profile(loaded, values)
                    finally:
                        self._device = before
            finally:
                device.close()

    def stream(self, x: Inputs | None = None, *, seed: int = 0) -> list[Stream]:
        """Return the command streams of one inference: one for each kick, with the memory before it.

        Parameters
        ----------
        x, seed
            As for `profile`.

        Returns
        -------
        `rkcosim.Stream` objects in the order of their starts, which any engine can run.
        """
        from rkcosim.devices.recorder import Captured, Recorder
        from rkcosim.driver import Driver
        from rkcosim.golden.task import GoldenNpu

        found: list[Captured] = []
        device = Recorder(GoldenNpu(max(self.cores, 1)), found.append)
        driver = Driver(device)
        loaded = place(self._model(), driver)
        try:
            self._run(loaded, self._of(x, seed))
        finally:
            loaded.close()
        return [one.stream for one in found]

    # Its life.

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self.name}: a model is neither copied nor pickled, because it has an engine; "
            "rkcosim.load makes another one of the same file, or of model.to_bytes()"
        )

    def close(self) -> None:
        """Free the device's memory, and close the engine that the model has opened; may be called again."""
        with self._lock:
            self._closed = True
            self._end()

    def __enter__(self) -> Model:
        """Return the model."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the model."""
        self.close()

    # How it does it.

    @contextmanager
    def _options(self, keep: bool = False) -> Iterator[None]:
        """Compile within the block as this model was asked for."""
        with ExitStack() as stack:
            stack.enter_context(using_options(**self._reading))
            stack.enter_context(using_cores(self._asked_cores))
            stack.enter_context(keeping_tensors(keep))
            if self._plan == "rknn":
                from rkcosim.compiler.rknn_tiling import rknn_tiles
                from rkcosim.compiler.tiling import planned_by

                stack.enter_context(planned_by(rknn_tiles))
            yield

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Put the file's name in front of the message of each ModelError."""
        with naming_model(self._path or Path(self.name)):
            yield

    def _model(self, keep: bool = False) -> Any:
        """Return the compiled model; with `keep` the form whose tensors keep their memory."""
        if keep not in self._compiled:
            with self._options(keep), self._naming(), progress.step(f"compiling {self.name}"):
                self._compiled[keep] = open_model(self._data)
        return self._compiled[keep]

    def _host(self) -> Any:
        from rkcosim.measure.models.hosted import host_work

        return host_work(self._model())

    def _connect(self, device: _Device, trace: TraceSpec | None = None) -> None:
        """Open the engine on a device."""
        from rkcosim.engines.engine import open_engine
        from rkcosim.running.meter import meter

        if self._engine is None or isinstance(self._engine, str) or trace is not None:
            name = self._engine if isinstance(self._engine, str | None) else self._engine.name
            device.engine = open_engine(
                name, cores=self.cores, exact=self._exact, dram=self._dram, trace=trace, progress=progress.say
            )
        else:
            device.engine, device.own = self._engine, False
            if self.cores > device.engine.cores:
                have, need = device.engine.cores, self.cores
                raise ModelError(f"{self.name}: the model is for {need} cores, the engine has {have}")
        device.driver = _Shared.of(device.engine, self._lock).driver
        device.meter = meter(device.engine) if device.engine.has_cycles else None

    def _open(self) -> _Device:
        with self._lock:
            if self._closed:
                raise ClosedError(f"{self.name}: the model has been closed")
            if self._device.engine is None:
                with shown_once():
                    self._connect(self._device)
            if getattr(self._device.engine, "closed", False):
                raise ClosedError(f"{self.name}: its engine has been closed")
            return self._device

    def _loaded(self, keep: bool = False) -> Any:
        """Return the model in the device's memory, which is loaded there now if it was not yet."""
        device = self._open()
        if keep not in device.loaded:
            assert device.driver is not None
            device.loaded[keep] = place(self._model(keep), device.driver, device.meter)
        return device.loaded[keep]

    @contextmanager
    def _file(self) -> Iterator[Path]:
        """Yield the path of the model's file, a temporary one if it was loaded from bytes."""
        if self._path is not None:
            yield self._path
            return
        with tempfile.TemporaryDirectory(prefix="rkcosim-") as folder:
            endings = {"TFLite model": ".tflite", ".rknn file": ".rknn", "compiled model": ".rkc"}
            path = Path(folder, f"model{endings.get(identify(self._data), '.onnx')}")
            path.write_bytes(self._data)
            yield path


def _check_engine(engine: str | AnyEngine | None) -> None:
    from rkcosim.engines.protocol import ALL_ENGINES

    opened = not isinstance(engine, str) and hasattr(engine, "run_until_irq")
    if engine is not None and not opened and engine not in ALL_ENGINES:
        known = ", ".join(ALL_ENGINES)
        raise ValueError(f"engine must be one of {known}, or an open engine, not {engine!r}")


def _check_cores(cores: int) -> None:
    if isinstance(cores, bool | float) or cores not in (1, 2, 3):
        raise ValueError(f"cores must be 1, 2 or 3, not {cores!r}")


def _check_plan(plan: str) -> None:
    if plan not in ("ours", "rknn"):
        raise ValueError(f"plan must be 'ours' or 'rknn', not {plan!r}")


def _memory(dram: DramConfig | Mapping[str, float] | str | None) -> DramConfig | None:
    """Return a memory timing; raises ValueError for an unknown member or a speed in another form."""
    if isinstance(dram, str):
        from rkcosim.measure.perf.estimator.whatif import CLOCK_MHZ, memory_at, parse_speed

        return memory_at(CLOCK_MHZ, parse_speed(dram))
    if dram is None:
        return None
    from rkcosim.engines.library import DramConfig

    if not isinstance(dram, Mapping | DramConfig):
        raise ValueError(f"dram must be a speed as '4224MT/s', a DramConfig or its members, not {dram!r}")
    if isinstance(dram, DramConfig):
        return dram

    members = [field.name for field in fields(DramConfig)]
    for name in dram:
        if name not in members:
            raise ValueError(f"dram: the memory has no setting {name!r}; it has {', '.join(members)}")
    return DramConfig(**dram)  # type: ignore[arg-type]
