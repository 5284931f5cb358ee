"""One network three ways: the device, the task-level golden model, the graph-level golden model.

Only this module connects compiler and golden models. It converts the compiler's steps (exact integers of each
layer) to nodes of the graph-level model, runs the same command lists on the task-level model, and compares
every layer's tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import CompiledModel, LoadedModel
from rkcosim.compiler.graph import Tensor
from rkcosim.compiler.host_calls import call, initial_states
from rkcosim.compiler.steps import AtomsStep, CallStep, Step, TilesStep
from rkcosim.driver import Buffer, Driver
from rkcosim.golden.graph import run
from rkcosim.golden.task import GoldenNpu
from rkcosim.verify.crosscheck.beside import Beside
from rkcosim.verify.crosscheck.graph_nodes import graph_nodes


class GoldenDriver(Driver):
    """The driver on the task-level golden model, with three cores.

    Parameters
    ----------
    places : addresses of buffers by name, for those that must have the same address as on another device.
    """

    def __init__(self, places: dict[str, int] | None = None) -> None:
        npu = GoldenNpu(3)
        super().__init__(npu)
        self.cores = npu.devices
        """The golden model of each core."""
        self._places = places or {}

    def alloc(self, size: int, name: str = "buffer", at: int | None = None) -> Buffer:
        """Allocate a zeroed buffer of device memory, see `Driver.alloc`."""
        return super().alloc(size, name, self._places.get(name, at))


@dataclass(frozen=True)
class Difference:
    """First position at which two results of a tensor differ; `a` and `b` name the sources of the bytes."""

    layer: str
    tensor: str
    coordinate: tuple[int, int, int]
    address: int
    a: str
    a_value: float
    b: str
    b_value: float
    count: int

    def __str__(self) -> str:
        channel, row, column = self.coordinate
        return (
            f"layer '{self.layer}', tensor '{self.tensor}': {self.count} bytes differ, first at channel "
            f"{channel}, row {row}, column {column} (0x{self.address:08X}): "
            f"{self.a} {self.a_value}, {self.b} {self.b_value}"
        )


SecondLevel = Callable[[int, tuple[str, npt.NDArray[Any]]], Difference | None]
"""(index of a step, who gave its output and the cube) -> the first difference from the graph level."""


@dataclass(frozen=True)
class Verdict:
    """Result of a check: `first` is the first difference, None if everything is equal."""

    layers: int
    first: Difference | None

    @property
    def match(self) -> bool:
        """Whether all results agree."""
        return self.first is None


def graph_tensors(
    model: CompiledModel,
    inputs: list[npt.NDArray[Any]],
    states: Mapping[str, npt.NDArray[Any]] | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Compute every tensor of a network at graph level.

    Parameters
    ----------
    model : the compiled network.
    inputs : int8 cubes (C, H, W) as returned by `CompiledModel.encode_input`.
    states : values of the model's states, as `LoadedModel.states` has them; None for the initial ones.

    Returns
    -------
    Cube of each root tensor by name (int8 or float16), or the array of a tensor that only the host keeps.
    """
    graph = model.graph
    tensors: dict[str, npt.NDArray[Any]] = {**graph.constants}
    tensors |= initial_states(graph) if states is None else states
    for item, cube in zip(graph.inputs, inputs, strict=True):
        tensors[item.tensor] = cube
    for alias in graph.aliases:  # aliases of inputs are known from the start
        if graph.root(alias) in tensors:
            tensors[alias] = tensors[graph.root(alias)]
    for step in model.graph_nodes():
        for tensor in step.inputs:
            root = tensors[graph.root(tensor.name)]
            tensors[tensor.name] = root.reshape(tensor.kept_shape)
        if isinstance(step, CallStep):  # both levels see the results of the same runtime
            results = call(step, [tensors[tensor.name] for tensor in step.inputs])
            tensors.update({t.name: result for t, result in zip(step.outputs, results, strict=True)})
            continue
        tensors.update({step.output.name: run(graph_nodes(step), tensors)[step.output.name]})
    return tensors


def first_difference(
    loaded: LoadedModel,
    step: Step,
    a: tuple[str, npt.NDArray[Any]],
    b: tuple[str, npt.NDArray[Any]],
    output: Tensor | None = None,
) -> Difference | None:
    """Return the first position at which two results of a step's output differ, None if they are equal.

    Parameters
    ----------
    loaded : the model, whose addresses the difference names.
    step : the step that makes the output.
    a, b : source of a result, and the cube (C, H, W): int8, or fp16 if the output is real; or the array of a
        tensor that only the host keeps (its elements are counted as channels, and its address is 0).
    output : which output of the step; None for the first.
    """
    output = output or step.output
    cube = output.cube
    if output.open:  # its shape depends on the data
        if a[1].shape != b[1].shape:
            counts = float(a[1].size), float(b[1].size)
            return Difference(step.name, output.name, (0, 0, 0), 0, a[0], counts[0], b[0], counts[1], 1)
        cube = (a[1].size, 1, 1)
    ours, theirs = (np.ascontiguousarray(array).reshape(cube) for _, array in (a, b))
    bits = (*cube, output.itemsize)
    wrong = np.argwhere((ours.view(np.uint8).reshape(bits) != theirs.view(np.uint8).reshape(bits)).any(-1))
    if not wrong.size:
        return None
    channel, row, column = (int(v) for v in wrong[0])
    address = 0
    if not output.host:
        place = loaded.model.plan.place(output.name)
        address = place.ref.address(loaded.bases) + place.offset_of(channel, row, column)
    values = ours[channel, row, column].item(), theirs[channel, row, column].item()
    return Difference(
        step.name,
        output.name,
        (channel, row, column),
        address,
        a[0],
        values[0],
        b[0],
        values[1],
        len(wrong),
    )


class ModelChecker:
    """Checks a loaded model's runs against both golden levels.

    Parameters
    ----------
    loaded : the model on the device under test; the task-level model gets the same addresses, so it runs
        exactly the same command words.
    device : name of the device under test in messages.
    """

    def __init__(self, loaded: LoadedModel, device: str = "RTL") -> None:
        self.loaded = loaded
        self.device = device
        self.golden = LoadedModel(loaded.model, self._driver(dict(loaded.bases)))
        if self.golden.tasks.data != loaded.tasks.data:
            raise RuntimeError("the golden model did not get the device's addresses")
        self._begun: tuple[list[npt.ArrayLike], Beside[SecondLevel]] | None = None

    def _driver(self, places: dict[str, int]) -> GoldenDriver:
        """Return the driver of the task-level model, whose buffers have the addresses `places`."""
        return GoldenDriver(places)

    def begin(self, inputs: Sequence[npt.ArrayLike]) -> None:
        """Begin to compute the tensors of both levels for the inputs of the run that follows.

        They are computed beside the run, on another processor. For models with states, or with operators that
        a runtime computes on the host, nothing is computed before `check`.
        """
        self._wait()
        model = self.loaded.model
        if not model.graph.states and not any(isinstance(step, CallStep) for step in model.graph_nodes()):
            given = list(inputs)
            self._begun = given, Beside(self._expected(given))

    def _wait(self) -> None:
        """Wait until nothing is computed beside a run."""
        if self._begun is not None:
            self._begun[1].wait()
            self._begun = None

    def _expected(self, inputs: list[npt.ArrayLike]) -> Callable[[], SecondLevel]:
        """Set the inputs of the task level; return the function that runs both levels."""
        for index, values in enumerate(inputs):
            self.golden.set_input(index, values)

        def run_both() -> SecondLevel:
            self.golden.run()
            return self._second_level(inputs)

        return run_both

    def check(self, inputs: list[npt.ArrayLike]) -> Verdict:
        """Compare the device's tensors after a run with those of both levels for the same inputs.

        Tensors whose memory was reused by a later one cannot be compared; compile inside `keeping_tensors` to
        compare all of them.
        """
        model = self.loaded.model
        begun = self._begun
        self._wait()
        if begun is not None and all(a is b for a, b in zip(begun[0], inputs, strict=True)):
            second = begun[1].result()
        else:
            second = self._expected(inputs)()
        steps, first = model.graph_nodes(), None
        for index, step in enumerate(steps):
            name = step.output.name
            if model.graph.root(name) in model.plan.lost:
                continue
            ours = self.device, self.loaded.tensor(name)
            found = first_difference(self.loaded, step, ours, ("task golden", self.golden.tensor(name)))
            beside = second(index, ours)
            first = first or found or beside
            for output in step.outputs[1:]:
                ours = self.device, self.loaded.tensor(output.name)
                task_level = "task golden", self.golden.tensor(output.name)
                first = first or first_difference(self.loaded, step, ours, task_level, output)
        return Verdict(len(steps), first)

    def _second_level(self, inputs: list[npt.ArrayLike]) -> SecondLevel:
        """What compares a step's output with the graph-level model's."""
        model = self.loaded.model
        cubes = [model.encode_input(n, values) for n, values in enumerate(inputs)]
        graph = graph_tensors(model, cubes, self.loaded.states)

        def compare(index: int, ours: tuple[str, npt.NDArray[Any]]) -> Difference | None:
            step = model.graph_nodes()[index]
            theirs = graph[step.output.name]
            beside = None
            if isinstance(step, AtomsStep | TilesStep):
                from rkcosim.verify.crosscheck.product_nodes import unread

                beside = unread(step)
            if beside is not None:
                theirs = np.where(beside, np.reshape(ours[1], beside.shape), theirs)
            return first_difference(self.loaded, step, ours, ("graph golden", theirs))

        return compare

    def levels(self) -> dict[str, Any]:
        """Members of a verdict that all is equal: which levels were compared."""
        return {"levels": [self.device, "task golden", "graph golden"]}

    def check_memory(self) -> int | None:
        """Return the first address of the activations (with padding) where device and task golden differ."""
        ours, theirs = self.loaded.buffers["activations"], self.golden.buffers["activations"]
        different = np.flatnonzero(ours.view() != theirs.view())
        return int(ours.iova + different[0]) if different.size else None

    def taken(self) -> float:
        """Return 0: nothing is checked within a run."""
        return 0.0

    def close(self) -> None:
        """Release the golden device's memory, once nothing is computed beside a run that was broken off."""
        if self._begun is None:
            self.golden.close()
        else:
            self._begun[1].then(self.golden.close)
