"""Comparison with another runtime layer by layer; each layer gets the reference's inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from rkcosim.base import progress
from rkcosim.base.files import read_model
from rkcosim.compiler import CompiledModel
from rkcosim.compiler.batch import BatchModel, batch_size, one_of, samples_of
from rkcosim.compiler.host_calls import call, following_states, initial_states
from rkcosim.compiler.model import naming_model
from rkcosim.compiler.steps import (
    BinaryStep,
    CallStep,
    ConvStep,
    LookupStep,
    PoolStep,
    ProductStep,
    RescaleStep,
    SlopeStep,
    Step,
)
from rkcosim.golden.graph import run
from rkcosim.measure.models import float_units
from rkcosim.measure.models.draw import random_reals
from rkcosim.measure.models.hosted import HostWork, host_work
from rkcosim.measure.models.outputs import (
    Agreement,
    agreement,
    class_outputs,
    differences,
    largest,
)
from rkcosim.measure.models.references import (
    Reference,
    ReferenceName,
    ReferenceProblem,
    default_reference,
    open_reference,
)
from rkcosim.rknn_file.opening import open_model
from rkcosim.verify.crosscheck.graph_nodes import graph_nodes
from rkcosim.verify.crosscheck.model_check import graph_tensors

SCHEMA_VERSION = 1

BOUNDS = {
    "convolution": 1,
    "product": 1,
    "pooling": 1,
    "element-wise": 1,
    "table": 1,
    "movement": 1,
    "softmax": 1,
}
"""Largest accepted difference of a layer of each class, in steps (LSB) of the output.

A convolution with an addition has a larger bound (`bound_of`): one step of its convolution
may be several steps of the sum.
"""

FLOAT_BOUND = 3e-3
"""Largest accepted difference of an output of a network of floats from the reference's
binary32, relative to the reference's largest value, if the reference keeps no inner tensors of floats."""

ROUNDED_BOUND = 3e-2
"""The same for a reference that quantises the inputs of layers to 8 bits (LiteRT, dynamic-range weights)."""

FAR = 10**6
"""Difference that is counted for an element that is infinite or not a number on one side only."""


@dataclass(frozen=True)
class Extreme:
    """An element of a tensor: its index in the cube (C, H, W), its code or number on both sides, and how far
    these are apart in the layer's unit."""

    tensor: str
    place: tuple[int, ...]
    ours: float
    theirs: float
    apart: float

    def __str__(self) -> str:
        return f"element {list(self.place)} of tensor '{self.tensor}' is {self.ours:g}, not {self.theirs:g}"


@dataclass
class LayerDifference:
    """One layer; `histogram` counts elements by our code minus the reference's code.

    A layer of floats has the difference in units of `rkcosim.measure.models.float_units`, rounded.
    """

    name: str
    op: str
    kind: str
    elements: int
    differing: int = 0
    worst: int = 0
    bound: int = 1
    histogram: dict[int, int] = field(default_factory=dict)
    unit: Literal["step", "fp16"] = "step"
    """Steps of the output, or places of fp16 of the largest partial sum."""
    tensor: str = ""
    """Name of the layer's result."""
    extreme: Extreme | None = None
    """The element with the largest difference; None if nothing differs."""

    @property
    def good(self) -> bool:
        """Whether no element differs by more than the bound."""
        return self.worst <= self.bound

    def add(self, ours: npt.NDArray[np.int8], theirs: npt.NDArray[np.int8]) -> None:
        """Add the elements of one inference."""
        steps = ours.astype(np.int64).reshape(-1) - theirs.astype(np.int64).reshape(-1)
        self._see(ours, theirs, np.abs(steps).astype(np.float64))
        self._count(steps)

    def add_floats(
        self, ours: npt.NDArray[Any], theirs: npt.NDArray[Any], unit: npt.NDArray[np.float64]
    ) -> None:
        """Add the elements of one inference of floats, in units of `unit`."""
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = (a - b) / unit
        apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
        apart = np.nan_to_num(apart, nan=FAR, posinf=FAR, neginf=-FAR).clip(-FAR, FAR)
        self._see(ours, theirs, np.abs(apart))
        self._count((np.sign(apart) * np.ceil(np.abs(apart) - 0.5)).astype(np.int64).reshape(-1))
        self.worst = max(self.worst, int(np.ceil(np.abs(apart).max(initial=0.0) - 1e-9)))

    def _see(self, ours: npt.NDArray[Any], theirs: npt.NDArray[Any], apart: npt.NDArray[np.float64]) -> None:
        """Keep the element with the largest difference."""
        at = int(apart.argmax()) if apart.size else 0
        most = float(apart.reshape(-1)[at]) if apart.size else 0.0
        if most > (self.extreme.apart if self.extreme is not None else 0.0):
            place = tuple(int(n) for n in np.unravel_index(at, ours.shape))
            sides = float(ours.reshape(-1)[at]), float(theirs.reshape(-1)[at])
            self.extreme = Extreme(self.tensor, place, *sides, apart=most)

    def _count(self, steps: npt.NDArray[np.int64]) -> None:
        counts = Counter(steps.tolist())
        for step, count in counts.items():
            self.histogram[step] = self.histogram.get(step, 0) + count
        self.differing += int(np.count_nonzero(steps))
        self.worst = max(self.worst, int(np.abs(steps).max()))


@dataclass
class OutputDifference:
    """One model output of one inference, computed from the model's inputs."""

    inference: int
    name: str
    top1: int
    reference_top1: int
    tie: bool
    """Whether the largest elements differ, but both have the same value in the reference (or are within the
    bound)."""
    agreement: Agreement
    """How far all elements are from the reference's."""
    worst: float
    """Largest difference in steps of the output; for floats relative to the reference's largest value."""
    differing: int
    """Number of elements that differ; for floats, of those that differ by more than the bound."""
    bound: float | None = None
    """Limit of `worst`; None for a network whose layers have bounds instead."""
    unit: float | None = None
    """A step of the output; None for floats."""
    classes: bool = True
    """Whether the elements are scores of classes, so that the largest one counts
    (`rkcosim.measure.models.outputs.class_outputs`)."""

    @property
    def within(self) -> bool:
        """Whether no element differs by more than the bound."""
        return self.bound is None or self.worst <= self.bound

    @property
    def same_class(self) -> bool:
        """Whether the class is the same (ties allowed), or the elements are no scores of classes."""
        return not self.classes or self.top1 == self.reference_top1 or self.tie

    @property
    def same(self) -> bool:
        """Whether the class is the same and no element differs by more than the bound."""
        return self.within and self.same_class


@dataclass
class Comparison:
    """Result of `compare`."""

    model: str
    reference: str
    inferences: int
    layers: list[LayerDifference]
    """Empty for a network of floats whose reference keeps only the outputs."""
    outputs: list[OutputDifference]
    skipped: list[str]
    """Layers whose result the reference does not provide, or computes from quantised inputs."""
    host: HostWork
    """What the host computes; the JSON has its members."""

    @property
    def match(self) -> bool:
        """Whether every layer is within its bound and every class is the same."""
        return all(layer.good for layer in self.layers) and all(o.same for o in self.outputs)

    def reasons(self) -> Iterator[str]:
        """Yield a sentence for each bound that is exceeded and each class that differs."""
        for layer in self.layers:
            if not layer.good:
                what = "steps" if layer.unit == "step" else "places of fp16"
                where = f"layer '{layer.name}' differs by {layer.worst} {what}, its bound is {layer.bound}"
                yield f"{where}: {layer.extreme}" if layer.extreme is not None else where
        for item in self.outputs:
            where = f"output '{item.name}' of inference {item.inference}"
            if not item.within:
                text = f"{where} differs by {item.worst:.3%} of the largest, more than {item.bound:.1%}"
                if item.agreement.unit == "elements":
                    text = f"{where}: {item.agreement.text()}"
                there = item.agreement
                yield f"{text}: element {list(there.place)} is {there.ours:g}, not {there.theirs:g}"
            if not item.same_class:
                yield f"the class of {where} is {item.top1}, that of the reference {item.reference_top1}"

    def as_json(self) -> dict[str, Any]:
        """Return everything in a form for `json.dump`."""
        data = asdict(self)
        del data["host"]
        data |= self.host.as_json()
        data["schema_version"] = SCHEMA_VERSION
        data["match"] = self.match
        for item, layer in zip(data["layers"], self.layers, strict=True):
            item["histogram"] = {str(k): v for k, v in sorted(layer.histogram.items())}
            item["within_bound"] = layer.good
        for item, output in zip(data["outputs"], self.outputs, strict=True):
            item["same"] = output.same
        return cast("dict[str, Any]", _finite(data))


def _finite(item: Any) -> Any:
    """Return a document with None for infinities and NaN, which JSON does not have."""
    if isinstance(item, dict):
        return {key: _finite(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_finite(value) for value in item]
    return None if isinstance(item, float) and not np.isfinite(item) else item


def compare(
    path: Path,
    batch: Sequence[Sequence[npt.NDArray[Any]]] | None = None,
    *,
    reference: ReferenceName | None = None,
    seed: int = 0,
    labelled: bool = False,
) -> Comparison:
    """Compare a model's arithmetic with that of a reference runtime.

    The layers run on the graph-level golden model; `rkcosim run --check` shows that it equals the RTL bit for
    bit.  Layers of floats are compared in units of `rkcosim.measure.models.float_units`, if the reference
    keeps their tensors; if not, only the outputs are compared.

    Parameters
    ----------
    path
        The model.
    batch
        For each inference one real-valued array per input; None: one inference on random codes.
    reference
        The runtime; None: the one of the model's format.
    seed
        Seed of the random codes.
    labelled
        Whether the true classes of the inputs are known; see `rkcosim.measure.models.outputs.class_outputs`.

    Raises
    ------
    ModelError
        If the model cannot be read or compiled.
    ReferenceProblem
        If the reference is not installed, fails, or keeps no tensor that can be compared.
    """
    data = read_model(path)
    with naming_model(path):
        model = open_model(data)
    other = open_reference(reference or default_reference(data), path, model)
    items = batch if batch is not None else [random_reals(model.inputs, seed)]
    layers: dict[str, LayerDifference] = {}
    outputs: list[OutputDifference] = []
    skipped: list[str] = []
    states = initial_states(model.graph)
    floats = not other.keeps_floats and any(tensor.real for tensor in model.graph.tensors.values())
    classes = class_outputs(model, labelled)
    one = one_of(model)
    each = 1 if floats else len(one.graph_nodes()) * batch_size(model)
    total, unit = len(items) * each, "outputs" if floats else "layers"
    with progress.step("comparing", total, unit) as shown:
        for number, values in enumerate(items):
            shown.detail = f"inference {number + 1} on {other.name}"
            try:
                theirs = other.run(values)
            except ReferenceProblem as error:
                raise ReferenceProblem(f"{path}: {error}") from error
            results = list[list[npt.NDArray[Any]]]()
            for place, sample in enumerate(samples_of(model, _typed(model, values))):
                if isinstance(model, BatchModel):
                    other.choose(place, model.axes)
                if not floats:
                    _layers(one, other, layers, skipped, shown)
                cubes = [one.encode_input(index, value) for index, value in enumerate(sample)]
                shown.detail = "the whole model"
                values_of = _reader(one, graph_tensors(one, cubes, states))
                states = following_states(one.graph, values_of)
                results.append([one.decode_output(index, values_of) for index in range(len(one.outputs))])
            for index, info in enumerate(model.outputs):
                parts = [outputs[index] for outputs in results]
                ours = np.concatenate(parts) if len(parts) > 1 else parts[0]
                found = _output(number, info, ours, theirs[index])
                bound = found.bound
                if layers:
                    bound = None
                elif bound is not None:
                    bound = _bound_of_floats(bound, other, info.name, theirs[index])
                outputs.append(replace(found, bound=bound, classes=classes[index]))
            if floats:
                shown.advance()
    if not layers and all(info.quantised for info in model.outputs):
        raise ReferenceProblem(
            f"{path}: {other.name} keeps no quantised tensor that could be compared; `rkcosim run` shows the "
            "classes of both"
        )
    rows, host = list(layers.values()), host_work(model)
    return Comparison(path.name, other.name, len(items), rows, outputs, skipped, host)


def _typed(model: CompiledModel | BatchModel, values: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return inputs as `CompiledModel.encode_input` takes them: real values, or integers in their type."""
    return [
        value if info.quantised or info.dtype.kind == "f" else np.asarray(value).astype(info.dtype)
        for info, value in zip(model.inputs, values, strict=True)
    ]


def _reader(
    model: CompiledModel, tensors: dict[str, npt.NDArray[np.int8]]
) -> Callable[[str], npt.NDArray[np.int8]]:
    def read(name: str) -> npt.NDArray[np.int8]:
        return tensors[model.graph.root(name)].reshape(model.graph.tensors[name].kept_shape)

    return read


def _layers(
    model: CompiledModel,
    other: Any,
    layers: dict[str, LayerDifference],
    skipped: list[str],
    shown: progress.Step,
) -> None:
    """Run each step on the reference's inputs and compare with the reference's output."""
    graph = model.graph
    steps = model.graph_nodes()
    last = {step.output.name: index for index, step in enumerate(steps)}
    # Tensors between two of our passes are not part of the model file.
    wanted = {op.output for op in graph.ops if not graph.origin or op.output in graph.origin}
    names: dict[str, list[str]] = {}
    for alias in graph.aliases:
        names.setdefault(graph.root(alias), []).append(alias)
    own: dict[str, npt.NDArray[Any]] = dict(graph.constants)
    inexact: dict[str, npt.NDArray[np.float64]] = {}  # units of floats that the reference does not have
    for index, step in enumerate(steps):
        shown.detail = step.name
        shown.advance()
        tensors: dict[str, npt.NDArray[Any]] = {}
        coarse: dict[str, npt.NDArray[np.float64]] = {}
        for tensor in step.inputs:
            cube = other.cube(tensor)
            if cube is None:
                if (unit := inexact.get(graph.root(tensor.name))) is not None:
                    coarse[tensor.name] = unit
                cube = _known(model, other, own, graph.root(tensor.name), names)
            tensors[tensor.name] = cube.reshape(tensor.kept_shape)
        if isinstance(step, CallStep):  # the reference itself computes it
            results = call(step, [tensors[tensor.name] for tensor in step.inputs])
            own |= {tensor.name: result for tensor, result in zip(step.outputs, results, strict=True)}
            continue
        if step.output.name in own:
            tensors[step.output.name] = own[step.output.name]
        for tensor in step.inputs:
            if tensor.real:
                with np.errstate(over="ignore"):
                    tensors[tensor.name] = tensors[tensor.name].astype(np.float16)
        result = run(graph_nodes(step), tensors)[step.output.name]
        own[step.output.name] = result
        want = other.cube(step.output)
        for alias in names.get(step.output.name, []):
            want = other.cube(graph.tensors[alias]) if want is None else want
        unknown = want is None or step.output.name in other.rounded
        ends = last[step.output.name] == index
        if step.output.real and (unknown or (coarse and not ends)):  # each of several steps writes a part
            made = float_units.units(step, tensors, result, coarse)
            inexact[step.output.name] = np.maximum(made, inexact.get(step.output.name, 0.0))
        if not ends:
            continue
        if want is None or unknown:
            if step.output.name in wanted and step.name not in skipped:
                skipped.append(step.name)
            continue
        alone = step.alone if isinstance(step, ConvStep) else step
        between = None if alone is step else other.cube(alone.output)
        if between is not None:
            inner = run(graph_nodes(alone), tensors)[alone.output.name]
            _count(layers, alone, inner, between, tensors, coarse)
        _count(layers, step, result, want, tensors, coarse, inexact.get(step.output.name, 0.0))


def _count(
    layers: dict[str, LayerDifference],
    step: Step,
    ours: npt.NDArray[Any],
    theirs: npt.NDArray[Any],
    tensors: Mapping[str, npt.NDArray[Any]],
    coarse: Mapping[str, npt.NDArray[np.float64]],
    least: npt.NDArray[np.float64] | float = 0.0,
) -> None:
    """Add a layer's elements to its row; `least` are the units of parts that earlier steps wrote."""
    real = step.output.real
    bound = float_units.BOUND if real else bound_of(step)
    new = LayerDifference(step.name, step.kind, _kind(step), 0, bound=bound, unit="fp16" if real else "step")
    new.tensor = step.output.name
    row = layers.setdefault(step.output.name, new)
    row.elements += theirs.size
    theirs = theirs.reshape(ours.shape)
    if real:
        unit = np.maximum(float_units.units(step, tensors, ours, coarse), least)
        row.add_floats(ours, theirs, unit)
    else:
        row.add(ours, theirs)


def _known(
    model: CompiledModel,
    other: Any,
    own: dict[str, npt.NDArray[np.int8]],
    root: str,
    names: dict[str, list[str]],
) -> npt.NDArray[np.int8]:
    """Return a tensor that the reference does not have under the tensor's own name."""
    for name in (root, *names.get(root, [])):
        cube = other.cube(model.graph.tensors[name])
        if cube is not None:
            return cube
    return own[root]


def _bound_of_floats(bound: float, other: Reference, name: str, theirs: npt.NDArray[Any]) -> float:
    """Return the accepted difference of an output of floats, relative to the reference's largest value.

    Codes of floats may be neighbours where a float lies half-way between two of them.
    """
    bound = ROUNDED_BOUND if other.rounded else bound
    return max(bound, 1.001 * other.grids.get(name, 0.0) / largest(theirs))


def bound_of(step: Step) -> int:
    """Return the accepted difference of a layer, in steps of the output."""
    if isinstance(step, ConvStep) and step.addend is not None:
        # The convolution may differ by one step; this is the number of steps of the sum, rounded.
        return 1 + step.addend.own_scale * step.converter.scale // 2**step.converter.shift
    if isinstance(step, ConvStep) and step.slopes is not None:
        steepest = max(2**step.slopes.shift, int(np.abs(step.slopes.words).max())) * step.slopes.own_scale
        return 1 + steepest * step.converter.scale // 2 ** (step.converter.shift + step.slopes.shift)
    if isinstance(step, ConvStep) and step.activation is not None:
        # The table's index may differ by one code, and the function itself by one step.
        table = step.activation.table.astype(int)
        return 1 + int(np.abs(np.diff(table)).max(initial=0))
    return BOUNDS[_kind(step)]


def _kind(step: Step) -> str:
    if step.kind == "Softmax":
        return "softmax"
    if isinstance(step, PoolStep) or "Pool" in step.kind:
        return "pooling"
    if isinstance(step, ConvStep) and step.addend is None and step.activation is None and step.slopes is None:
        return "convolution"
    if isinstance(step, ProductStep):
        return "product"
    if isinstance(step, LookupStep):
        return "table"
    return "element-wise" if isinstance(step, ConvStep | BinaryStep | RescaleStep | SlopeStep) else "movement"


def _output(number: int, info: Any, ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> OutputDifference:
    """Compare an output in steps of its scale; floats relative to the reference's largest value."""
    name, scale = info.name, info.scale if info.quantised else None
    whole = scale is None and np.dtype(info.dtype).kind in "iub"
    found = agreement(ours, theirs, scale, whole=whole)
    unit = scale if scale is not None else 1.0 if whole else largest(theirs)
    a, b = ours.reshape(-1).astype(np.float64), theirs.reshape(-1).astype(np.float64)
    parts = differences(ours, theirs, unit)
    first, second = (int(values.argmax()) if values.size else 0 for values in (a, b))
    apart = 0.0 if scale is not None else 2 * FLOAT_BOUND * unit
    return OutputDifference(
        number,
        name,
        first,
        second,
        tie=first != second and bool(b[second] - b[first] <= apart),
        agreement=found,
        worst=found.worst,
        differing=int((parts > (0.5 if scale is not None else FLOAT_BOUND)).sum()),
        bound=None if scale is not None else FLOAT_BOUND,
        unit=scale,
    )
