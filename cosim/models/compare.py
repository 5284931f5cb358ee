"""Layer by layer against another runtime, each layer fed with the reference's own inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim import progress
from cosim.crosscheck.graph_nodes import graph_nodes
from cosim.crosscheck.model_check import graph_tensors
from cosim.golden.graph import run
from cosim.models.references import ReferenceName, ReferenceProblem, default_reference, open_reference
from sw.compiler import CompiledModel, compile_model
from sw.compiler.steps import BinaryStep, ConvStep, LookupStep, PoolStep, RescaleStep, SlopeStep, Step

SCHEMA_VERSION = 1

BOUNDS = {
    "convolution": 1,
    "pooling": 1,
    "element-wise": 1,
    "table": 1,
    "movement": 1,
    "softmax": 1,
}
"""Steps of the output (LSB) that a layer of each class may differ by.

A convolution with an addition counts twice: its own result, a convolution's, and the sum, in which one
step of the former may be several (`bound_of`).
"""


@dataclass
class LayerDifference:
    """One layer: `histogram` counts elements by our code minus the reference's."""

    name: str
    op: str
    kind: str
    elements: int
    differing: int = 0
    worst: int = 0
    bound: int = 1
    histogram: dict[int, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether no element differs by more than the bound."""
        return self.worst <= self.bound

    def add(self, ours: npt.NDArray[np.int8], theirs: npt.NDArray[np.int8]) -> None:
        """Count one inference."""
        steps = ours.astype(np.int64).reshape(-1) - theirs.astype(np.int64).reshape(-1)
        counts = Counter(steps.tolist())
        for step, count in counts.items():
            self.histogram[step] = self.histogram.get(step, 0) + count
        self.differing += int(np.count_nonzero(steps))
        self.worst = max(self.worst, int(np.abs(steps).max()))


@dataclass
class OutputDifference:
    """One model output of one inference, run through from the model's input."""

    inference: int
    name: str
    top1: int
    reference_top1: int
    tie: bool
    """Whether the classes differ, but the reference gives both the same value."""
    worst: float
    differing: int

    @property
    def same(self) -> bool:
        """Whether the class is the same, ties allowed."""
        return self.top1 == self.reference_top1 or self.tie


@dataclass
class Comparison:
    """What `compare` found."""

    model: str
    reference: str
    inferences: int
    layers: list[LayerDifference]
    outputs: list[OutputDifference]
    skipped: list[str]
    """Layers whose result the reference does not keep."""

    @property
    def match(self) -> bool:
        """Whether every layer is within its bound and every class the same."""
        return all(layer.good for layer in self.layers) and all(o.same for o in self.outputs)

    def as_json(self) -> dict[str, Any]:
        """Everything, ready for `json.dump`."""
        data = asdict(self)
        data["schema_version"] = SCHEMA_VERSION
        data["match"] = self.match
        for item, layer in zip(data["layers"], self.layers, strict=True):
            item["histogram"] = {str(k): v for k, v in sorted(layer.histogram.items())}
            item["within_bound"] = layer.good
        for item, output in zip(data["outputs"], self.outputs, strict=True):
            item["same"] = output.same
        return data


def compare(
    path: Path,
    batch: Sequence[Sequence[npt.NDArray[Any]]] | None = None,
    *,
    reference: ReferenceName | None = None,
    seed: int = 0,
) -> Comparison:
    """Compare a model's arithmetic with a reference's.

    The layers run on the graph-level golden model, which `rkcosim run --check` shows to be bit for
    bit what the RTL computes.

    Parameters
    ----------
    path
        the model.
    batch
        per inference one real-valued array per input; None: one inference on random codes.
    reference
        the runtime; None: that of the model's format.
    seed
        of the random codes.

    Raises
    ------
    ModelError, ReferenceProblem
    """
    data = path.read_bytes()
    model = compile_model(data)
    other = open_reference(reference or default_reference(data), path, model)
    items = batch if batch is not None else [random_values(model, seed)]
    layers: dict[str, LayerDifference] = {}
    outputs: list[OutputDifference] = []
    skipped: list[str] = []
    with progress.step("comparing", len(items) * len(model.graph_nodes()), "layers") as shown:
        for number, values in enumerate(items):
            shown.detail = f"inference {number + 1} on {other.name}"
            theirs = other.run(values)
            _layers(model, other, layers, skipped, shown)
            cubes = [model.encode_input(index, value) for index, value in enumerate(values)]
            shown.detail = "the whole model"
            values_of = _reader(model, graph_tensors(model, cubes))
            for index, info in enumerate(model.outputs):
                ours = model.decode_output(index, values_of)
                outputs.append(_output(number, info.name, ours, theirs[index], info.scale))
    if not layers:
        raise ReferenceProblem(
            f"{path}: {other.name} keeps no quantised tensor that could be compared; `rkcosim run` shows the "
            "classes side by side"
        )
    return Comparison(path.name, other.name, len(items), list(layers.values()), outputs, skipped)


def random_values(model: CompiledModel, seed: int) -> list[npt.NDArray[np.float32]]:
    """Real values whose codes are uniformly random."""
    rng = np.random.default_rng(seed)
    drawn = []
    for info in model.inputs:
        if not info.quantised:
            drawn.append(rng.normal(size=info.shape).astype(np.float32))
            continue
        low, high = (0, 256) if info.dtype == np.uint8 else (-128, 128)
        codes = rng.integers(low, high, info.shape)
        drawn.append(((codes - info.zero_point) * info.scale).astype(np.float32))
    return drawn


def _reader(
    model: CompiledModel, tensors: dict[str, npt.NDArray[np.int8]]
) -> Callable[[str], npt.NDArray[np.int8]]:
    def read(name: str) -> npt.NDArray[np.int8]:
        return tensors[model.graph.root(name)].reshape(model.graph.tensors[name].cube)

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
    # Tensors between two passes of ours are in no file.
    wanted = {op.output for op in graph.ops if not graph.origin or op.output in graph.origin}
    names: dict[str, list[str]] = {}
    for alias in graph.aliases:
        names.setdefault(graph.root(alias), []).append(alias)
    own: dict[str, npt.NDArray[np.int8]] = dict(graph.constants)
    for index, step in enumerate(steps):
        shown.detail = step.name
        shown.advance()
        tensors: dict[str, npt.NDArray[np.int8]] = {}
        for tensor in step.inputs:
            cube = other.cube(tensor)
            if cube is None:
                cube = _known(model, other, own, graph.root(tensor.name), names)
            tensors[tensor.name] = cube.reshape(tensor.cube)
        if step.output.name in own:
            tensors[step.output.name] = own[step.output.name]
        result = run(graph_nodes(step), tensors)[step.output.name]
        own[step.output.name] = result
        if last[step.output.name] != index:
            continue
        want = other.cube(step.output)
        for alias in names.get(step.output.name, []):
            want = other.cube(graph.tensors[alias]) if want is None else want
        if want is None:
            if step.output.name in wanted and step.name not in skipped:
                skipped.append(step.name)
            continue
        alone = step.alone if isinstance(step, ConvStep) else step
        between = None if alone is step else other.cube(alone.output)
        if between is not None:
            inner = run(graph_nodes(alone), tensors)[alone.output.name]
            _count(layers, alone, inner, between)
        _count(layers, step, result, want)


def _count(
    layers: dict[str, LayerDifference],
    step: Step,
    ours: npt.NDArray[np.int8],
    theirs: npt.NDArray[np.int8],
) -> None:
    row = layers.setdefault(
        step.output.name,
        LayerDifference(step.name, step.kind, _kind(step), 0, bound=bound_of(step)),
    )
    row.elements += theirs.size
    row.add(ours, theirs.reshape(ours.shape))


def _known(
    model: CompiledModel,
    other: Any,
    own: dict[str, npt.NDArray[np.int8]],
    root: str,
    names: dict[str, list[str]],
) -> npt.NDArray[np.int8]:
    """A tensor that the reference does not have under its own name."""
    for name in (root, *names.get(root, [])):
        cube = other.cube(model.graph.tensors[name])
        if cube is not None:
            return cube
    return own[root]


def bound_of(step: Step) -> int:
    """Steps of the output that a layer may differ by."""
    if isinstance(step, ConvStep) and step.addend is not None:
        # The convolution's own result is one step off at most; that many steps of the sum, rounded.
        return 1 + step.addend.own_scale * step.converter.scale // 2**step.converter.shift
    if isinstance(step, ConvStep) and step.slopes is not None:
        steepest = max(2**step.slopes.shift, int(np.abs(step.slopes.words).max())) * step.slopes.own_scale
        return 1 + steepest * step.converter.scale // 2 ** (step.converter.shift + step.slopes.shift)
    if isinstance(step, ConvStep) and step.activation is not None:
        # Likewise one code of the table's index; and one step that the function itself may be off.
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
    if isinstance(step, LookupStep):
        return "table"
    return "element-wise" if isinstance(step, ConvStep | BinaryStep | RescaleStep | SlopeStep) else "movement"


def _output(
    number: int, name: str, ours: npt.NDArray[Any], theirs: npt.NDArray[Any], scale: float
) -> OutputDifference:
    a, b = ours.reshape(-1).astype(np.float64), theirs.reshape(-1).astype(np.float64)
    first, second = int(a.argmax()), int(b.argmax())
    steps = np.abs(a - b) / scale
    return OutputDifference(
        number,
        name,
        first,
        second,
        first != second and bool(b[first] == b[second]),
        float(steps.max()),
        int((steps > 0.5).sum()),
    )
