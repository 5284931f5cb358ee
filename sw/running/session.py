"""A model on a device, run through the calls of the C interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from rkcosim import rknn_api as api
from rkcosim.base import BAD_INPUT, Error, progress
from rkcosim.base.files import is_container
from rkcosim.compiler import keeping_tensors, using_cores
from rkcosim.engines.engine import open_engine
from rkcosim.engines.library import DramConfig
from rkcosim.rknn_api.custom_graph import leaving_out_custom
from rkcosim.rknn_api.session import Model, RknnError
from rkcosim.rknn_file.opening import network_only
from rkcosim.running.meter import meter

if TYPE_CHECKING:
    from rkcosim.waves.spec import TraceSpec


class RunError(Error):
    """A call of `rknn_api` failed.

    Parameters
    ----------
    error : the call, its error code, and the library's reason if known.
    path : the file that it is about, if any.
    """

    exit_code = BAD_INPUT

    def __init__(self, error: RknnError, path: Path | None = None) -> None:
        self.code, self.cause = error.code, error.reason
        text = str(error.reason) if error.reason else f"{error.call} returned {error.code}"
        super().__init__(text if path is None else f"{path}: {text}")


@contextmanager
def _calls(path: Path | None = None) -> Iterator[None]:
    """Context manager that raises RunError for failing calls of `rknn_api`."""
    try:
        yield
    except RknnError as error:
        raise RunError(error, path) from error


class Checker(Protocol):
    """Compares the device's tensors with those of the golden models after an inference.

    The objects of `rkcosim.verify.crosscheck.checks.checker_for` have these methods.
    """

    def begin(self, inputs: Sequence[Any]) -> None:
        """Announce the inputs of the run that follows."""
        ...

    def check(self, inputs: list[Any]) -> Any:
        """Return the verdict: `match`, and `first`, the first difference."""
        ...

    def check_memory(self) -> int | None:
        """Return the first address of the activations that differs."""
        ...

    def levels(self) -> dict[str, Any]:
        """Return the members of a verdict that all is equal."""
        ...

    def taken(self) -> float:
        """Return the seconds that checks took within the last run, once."""
        ...

    def close(self) -> None:
        """Release the golden device's memory."""
        ...


MakeChecker = Callable[[Any, str], Any]
"""Makes a `Checker` for a model on a device (`rkcosim.compiler.LoadedModel`) with a name for messages."""


class Session:
    """A model on a device, run one inference at a time through the calls of the C interface.

    Parameters
    ----------
    model : path of the model file.
    engine : "verilator", "cxxrtl", "amaranth", "changes", "fast", "golden", or None for Verilator, and CXXRTL
        without it.
    exact : simulate the array cell's RTL instead of its C++ model.
    checker : makes the object that compares every tensor of every inference; None: nothing is compared.
    trace : a waveform to write, or None.
    cores : number of cores that share the model's large layers.
    dram : timing of the memory; None for the RK3588's.

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
        checker: MakeChecker | None = None,
        trace: TraceSpec | None = None,
        cores: int = 1,
        dram: DramConfig | None = None,
    ) -> None:
        self.path = Path(model)
        self.cores = max(cores, cores_of(self.path))
        self.dram = dram
        self.device: Any = None
        self.model: Model | None = None
        self.run_seconds = 0.0
        self.checker: Any = None
        try:
            self._connect(engine, exact, trace)
            with (
                progress.step("compiling the model"),
                keeping_tensors(checker is not None),
                using_cores(cores),
            ):
                with _calls(self.path), leaving_out_custom(), network_only():
                    self.model = Model(self.path)
            samples = getattr(getattr(api.compiled_model(self.model.context), "file", None), "batch", 1)
            if samples > 1:
                progress.say(f"{self.path.name} is for batches of {samples}; an inference here is one sample")
            self.context, self.inputs, self.outputs = (
                self.model.context,
                self.model.inputs,
                self.model.outputs,
            )
            if checker is not None:
                self.checker = checker(api.loaded_model(self.context), self._name)
        except BaseException:
            self.close()
            raise

    @property
    def _name(self) -> str:
        """Name of the device in messages."""
        return self.device.name

    def _connect(self, engine: str | None, exact: bool, trace: TraceSpec | None) -> None:
        """Open the device and make the library use it."""
        self.device = open_engine(engine, exact=exact, cores=self.cores, dram=self.dram, trace=trace)
        measures = meter(self.device) if self.device.has_cycles else None
        api.use_device(self.device, meter=measures, quiet=True)

    def fits(self, batch: Sequence[Sequence[npt.NDArray[Any]]]) -> None:
        """Raise ValueError if the arrays of an inference are not the model's inputs, or there is none."""
        if not batch:
            raise ValueError("no input was given")
        for values in batch:
            if len(values) != len(self.inputs):
                names = ", ".join(info.name for info in self.inputs)
                raise ValueError(f"{len(values)} inputs given, but the model has {len(self.inputs)}: {names}")
            for info, value in zip(self.inputs, values, strict=True):
                if tuple(value.shape) != info.shape:
                    raise ValueError(
                        f"input '{info.name}' must have shape {list(info.shape)}, not {list(value.shape)}"
                    )

    def expect(self, batch: Sequence[Sequence[npt.NDArray[Any]]]) -> None:
        """Announce the inferences that will be requested, in this order; this class ignores it."""

    def shards(self) -> list[dict[str, Any]]:
        """Parts in which the inferences were simulated; this class has none."""
        return []

    def infer(self, values: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[np.float32]]:
        """Run one inference.

        Parameters
        ----------
        values : float32 arrays of real values in the model's shapes.

        Returns
        -------
        float32 arrays in the model's shapes.
        """
        assert self.model is not None
        with _calls():
            self.model.inputs_set(*values)
            if self.checker is not None:
                self.checker.begin(values)
            started = time.perf_counter()
            self.model.execute()
            self.run_seconds += time.perf_counter() - started
            if self.checker is not None:
                self.run_seconds -= self.checker.taken()
            return self.model.outputs_get()

    @property
    def report(self) -> Any:
        """`RunReport` of the last inference."""
        return api.run_report(self.context)

    def close(self) -> None:
        """Free context and device."""
        if self.checker is not None:
            self.checker.close()
        if self.model is not None:
            self.model.close()
        api.use_device(None)
        if self.device is not None:
            self.device.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cores_of(path: Path) -> int:
    """Number of cores that a compiled model was compiled for; 1 for any other file."""
    from rkcosim.compiler.model import naming_model
    from rkcosim.rknn_file import is_rknn

    with path.open("rb") as file:
        begin = file.read(8)
    with naming_model(path):
        if is_rknn(begin):
            from rkcosim.rknn_file.reader import read_rknn

            return min(read_rknn(path.read_bytes()).plans, default=1)
        if not is_container(begin):
            return 1
        from rkcosim.compiler.container import load_plan

        return load_plan(path.read_bytes()).cores
