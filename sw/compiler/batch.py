"""Models of batches: compiled for one sample, run once for each.

The compiler's networks have a batch of one.  A first dimension above 1 is a batch only if every operator is
proven to treat the samples one by one (`rkcosim.compiler.loaders.onnx_batch` and `tflite_batch`); a model of
which that is not known is compiled whole, and its first dimension is as good as any other.
`compile_divided` is the one place where that is decided.

Samples go to several cores at a time, as in the vendor's library, each with its own memory and the same copy
of the weights: as many as the device has, or as `rknn_set_batch_core_num` says.  Sample i lies at
i * size / batch of a buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rkcosim.base.files import is_container
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_runtimes import NotBoundedError
from rkcosim.compiler.interpreters import interpreter_of
from rkcosim.compiler.model import CompiledModel, TensorInfo, compile_model, compile_source
from rkcosim.compiler.plan import Plan
from rkcosim.compiler.runtime import LoadedModel, Meter, NpuDriver, RunReport, run_together

Array = npt.NDArray[Any]


def samples_of(model: CompiledModel | BatchModel, values: Sequence[Array]) -> list[list[Array]]:
    """Return the inputs of each sample of a model; those of a model without a batch are one sample.

    Parameters
    ----------
    model
        The model.
    values
        Arrays in the shapes of its inputs.
    """
    if not isinstance(model, BatchModel):
        return [list(values)]
    return [[np.asarray(array)[n : n + 1] for array in values] for n in range(model.batch)]


def load(model: CompiledModel | BatchModel, driver: NpuDriver, meter: Meter | None = None) -> Loaded:
    """Put a model into a device's memory; the samples of a batch run one after the other on core 0.

    Raises
    ------
    DriverError
        If memory runs out.
    """
    loaded = LoadedModel(one_of(model), driver, meter=meter)
    return BatchLoaded(model, loaded, None, 1) if isinstance(model, BatchModel) else loaded


def batch_size(model: Any) -> int:
    """Return the number of samples of a model's inputs; 1 for a model without a batch."""
    return model.batch if isinstance(model, BatchModel) else 1


def one_of(model: CompiledModel | BatchModel) -> CompiledModel:
    """Return the network of one sample, or the model itself."""
    return cast(CompiledModel, model.one) if isinstance(model, BatchModel) else model


class BatchModel:
    """A model compiled for one sample; it looks like `CompiledModel` with larger inputs and outputs.

    Members
    -------
    one : the compiled model.
    batch : its number of samples.
    axes : for values of the whole model by name, as far as they are known: the axis along which the samples
        lie, and how many indices each has there.

    Raises
    ------
    ModelError
        for an input or output whose first dimension is no batch.
    """

    def __init__(self, one: Any, batch: int, axes: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.one, self.batch, self.axes = one, batch, dict(axes or {})
        self.inputs = [self._wide(info) for info in one.inputs]
        self.outputs = [self._wide(info) for info in one.outputs]

    def _wide(self, info: TensorInfo) -> TensorInfo:
        if not info.shape or info.shape[0] != 1:
            raise ModelError(f"'{info.name}' of shape {list(info.shape)} has no batch in front")
        return replace(info, shape=(self.batch, *info.shape[1:]))

    def replanned(self, cores: int) -> BatchModel:
        """As `CompiledModel.replanned`."""
        return BatchModel(self.one.replanned(cores), self.batch, self.axes)

    def save(self, weights: bool = True) -> bytes:
        """As `CompiledModel.save`."""
        from rkcosim.compiler.container import save_plan

        return save_plan(self.one.plan, self.batch, weights)

    def __getattr__(self, name: str) -> Any:
        if name == "one":  # not made yet
            raise AttributeError(name)
        return getattr(self.one, name)


def compile_divided(
    data: bytes,
    reuse: bool | None = None,
    cores: int | None = None,
    fuse: bool = True,
    full: Plan | None = None,
) -> CompiledModel | BatchModel:
    """Compile a model for one sample if its inputs are proven to be a batch, else as `compile_model`.

    Parameters and errors are those of `compile_model`.
    """
    if is_container(data):
        from rkcosim.compiler.container import load_batch

        plan, samples = load_batch(data, full)
        one = CompiledModel(plan.graph, plan=plan)
        return one if samples == 1 else BatchModel(one, samples)
    found = interpreter_of(data)
    if found.divided is None:
        return compile_model(data, reuse, cores, fuse)
    parts = found.divided(data)
    if parts.sample is not None:
        try:
            return BatchModel(compile_source(parts.sample, reuse, cores, fuse), parts.samples, parts.axes)
        except NotBoundedError:
            raise
        except ModelError:
            pass  # the whole model may have other operators on the host
    whole = compile_source(parts.whole, reuse, cores, fuse)
    whole.undivided = parts.reason
    return whole


class BatchLoaded:
    """A model of batches on the device; it looks like `LoadedModel` to the rest of this package.

    Parameters
    ----------
    model : the model.
    first : its single sample on the device.
    copy : puts the model there again, with the same weights, for another core; None: never.
    cores : of the device.
    size : bytes of one sample of an input or output, by the name of its tensor; None for those that it has in
        memory.
    together : whether several cores may have a sample each.

    Members
    -------
    core : the core that runs all samples, where `pinned`.
    limit : most cores at a time, 0 for all.
    watch : called after each sample with its number, while its tensors are in the memory of `first`; samples
        then run one after the other.
    """

    def __init__(
        self,
        model: BatchModel,
        first: Any,
        copy: Callable[[Any], Any] | None,
        cores: int,
        size: Mapping[str, int] | None = None,
        together: bool = True,
    ) -> None:
        self.whole, self.core, self.limit, self.pinned = model, 0, 0, False
        self._copies, self._copy, self._cores, self._together = [first], copy, cores, together
        self._given: dict[int, Array] = {}
        self.watch: Callable[[int], object] | None = None
        size = size if size is not None else self._sizes(first)
        self._pages = {name: np.zeros(model.batch * count, np.uint8) for name, count in size.items()}
        self._outputs: list[list[tuple[Array, Array]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._copies[0], name)

    @property
    def model(self) -> BatchModel:
        """The model of all samples."""
        return self.whole

    def sample(self, number: int) -> list[Array]:
        """Return a sample of the inputs, as they were given to `set_input`."""
        return [self._given[index][number : number + 1] for index in range(len(self.whole.inputs))]

    def _sizes(self, first: Any) -> dict[str, int]:
        graph = self.whole.one.graph
        names = [item.tensor for item in graph.inputs] + [o.value for o in graph.outputs if not o.real]
        return {name: first.memory(name).size for name in names}

    @property
    def first(self) -> Any:
        """The copy whose weights the others use."""
        return self._copies[0]

    @property
    def meter(self) -> Any:
        """As of `LoadedModel`."""
        return self._copies[0].meter

    @meter.setter
    def meter(self, meter: Any) -> None:
        self._copies[0].meter = meter

    def memory(self, tensor: str) -> npt.NDArray[np.uint8]:
        """Native bytes of all samples of an input or output."""
        return self._pages[tensor]

    def _sample(self, tensor: str, number: int) -> npt.NDArray[np.uint8]:
        pages = self._pages[tensor]
        size = pages.size // self.whole.batch
        return pages[number * size : (number + 1) * size]

    def set_input(self, index: int, values: npt.ArrayLike) -> None:
        """Quantise the samples of an input; raises as `LoadedModel.set_input`."""
        one, tensor = self._copies[0], self.whole.one.graph.inputs[index].tensor
        self._given[index] = np.asarray(values)
        for number, value in enumerate(np.asarray(values)):
            one.set_input(index, value[None])
            sample = self._sample(tensor, number)
            sample[:] = one.memory(tensor)[: sample.size]

    def get_output(self, index: int, raw: bool = False) -> Array:
        """Samples of an output after a run."""
        return np.concatenate([sample[index][1 if raw else 0] for sample in self._outputs])

    def run(self, max_cycles: int | None = None) -> RunReport:
        """Run all samples; the cycles are those of the whole batch, the layers those of one sample."""
        batch, width = self.whole.batch, self._width()
        while len(self._copies) < width:
            assert self._copy is not None
            self._copies.append(self._copy(self._copies[0]))
        self._outputs, reports = [], []
        for first in range(0, batch, width):
            group = range(first, min(first + width, batch))
            for one, number in zip(self._copies, group, strict=False):
                self._move(one, number, self.whole.one.graph.inputs)
            reports.append(self._run(len(group), max_cycles))
            for one, number in zip(self._copies, group, strict=False):
                count = range(len(self.whole.outputs))
                self._outputs.append([(one.get_output(n), one.get_output(n, True)) for n in count])
                self._keep(one, number)
                if self.watch is not None:
                    self.watch(number)
        return RunReport(sum(report.cycles for report in reports), reports[0].layers)

    def _width(self) -> int:
        """Samples that run at a time: one for each core, where the jobs of a sample are for one core."""
        plan = self.whole.one.plan
        alone = self.pinned or self._copy is None or not self._together or self.watch is not None
        if alone or getattr(plan, "cores", 1) != 1 or any(len(p.parts) > 1 for p in plan.segments()):
            return 1
        if self.whole.one.graph.states:  # a sample starts where the one before it ends
            return 1
        return max(min(self.whole.batch, self._cores, self.limit or self._cores), 1)

    def _move(self, one: Any, number: int, inputs: Any) -> None:
        for item in inputs:
            sample = self._sample(item.tensor, number)
            one.memory(item.tensor)[: sample.size] = sample

    def _keep(self, one: Any, number: int) -> None:
        for item in self.whole.one.graph.outputs:
            if not item.real:
                sample = self._sample(item.value, number)
                sample[:] = one.memory(item.value)[: sample.size]

    def _run(self, count: int, max_cycles: int | None) -> RunReport:
        """Run the first `count` copies, each on a separate core; what the host computes, one by one."""
        first = self._copies[0]
        if count == 1:
            first.core = self.core if self.pinned else 0
            report: RunReport = first.run(max_cycles)
            return report
        copies: Sequence[LoadedModel] = self._copies[:count]
        return run_together(copies, max_cycles)

    def close(self) -> None:
        """Free every copy; may be called again."""
        for one in reversed(self._copies):
            one.close()


Loaded = LoadedModel | BatchLoaded
"""A model in a device's memory."""
