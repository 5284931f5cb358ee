"""One network three ways: the device, the task-level golden model, the graph-level golden model.

This is the only place where compiler and golden models meet: it turns the compiler's steps (exact
integers of each layer) into nodes of the graph-level model, runs the same command lists on the
task-level model, and compares every layer's tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim.crosscheck.graph_nodes import graph_nodes
from cosim.golden.graph import run
from cosim.golden.task import GoldenDevice, Memory
from sw.compiler import CompiledModel, LoadedModel
from sw.compiler.steps import Step
from sw.driver.job import Job, JobResult


@dataclass
class GoldenBuffer:
    """Memory of a `GoldenDriver`."""

    iova: int
    size: int
    memory: Memory

    def view(self, offset: int = 0, size: int | None = None) -> npt.NDArray[np.uint8]:
        """The bytes themselves."""
        return self.memory.view(self.iova + offset, self.size - offset if size is None else size)

    def free(self) -> None:
        """Unmap the memory."""
        self.memory.unmap(self.iova)


class GoldenDriver:
    """The runtime's driver on a task-level golden device.

    Buffers lie one after the other from `base` with a page between them, so that a stray access
    faults; pass `places` to give buffers of one name the address that they have elsewhere.
    """

    def __init__(self, base: int = 0x1000_0000, places: dict[str, int] | None = None) -> None:
        self.memory = Memory()
        self.device = GoldenDevice(self.memory)
        self._next = base
        self._places = places or {}

    def alloc(self, size: int, name: str) -> GoldenBuffer:
        """Map zeroed memory."""
        rounded = -(-size // 4096) * 4096
        base = self._places.get(name, self._next)
        self._next = max(self._next, base + rounded + 4096)
        self.memory.map(base, rounded)
        return GoldenBuffer(base, size, self.memory)

    def submit(self, job: Job) -> JobResult:
        """Run a job; golden models know no cycles, so they are 0.

        Raises
        ------
        GoldenError, GoldenHang
            where the hardware would raise a diagnostic or hang.
        """
        for core in job.cores:  # cores of a job do not depend on each other: one after the other
            start, count = job.range_of(core)
            first = job.tasks[start]
            reports = self.device.run_kick(first.regcmd_addr, first.amount, count)
            if len(reports) != count:
                raise RuntimeError(f"{len(reports)} of {count} tasks ran")
        return JobResult(0, 0, {})


@dataclass(frozen=True)
class Difference:
    """First place where two results of a tensor differ: `a` and `b` name who gave which byte."""

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


@dataclass(frozen=True)
class Verdict:
    """Result of a check: `first` is the first difference, None when everything is equal."""

    layers: int
    first: Difference | None

    @property
    def match(self) -> bool:
        """Whether all results agree."""
        return self.first is None


def graph_tensors(model: CompiledModel, inputs: list[npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """Compute every tensor of a network at graph level.

    Parameters
    ----------
    model
        the compiled network.
    inputs
        int8 cubes (C, H, W) as `CompiledModel.encode_input` gives them.

    Returns
    -------
    int8 cube of each root tensor by name.
    """
    graph = model.graph
    tensors: dict[str, npt.NDArray[Any]] = {**graph.constants}
    for item, cube in zip(graph.inputs, inputs, strict=True):
        tensors[item.tensor] = cube
    for alias in graph.aliases:  # aliases of inputs are known from the start
        if graph.root(alias) in tensors:
            tensors[alias] = tensors[graph.root(alias)]
    for step in model.graph_nodes():
        for tensor in step.inputs:
            root = tensors[graph.root(tensor.name)]
            tensors[tensor.name] = root.reshape(tensor.cube)
        tensors.update({step.output.name: run(graph_nodes(step), tensors)[step.output.name]})
    return tensors


def first_difference(
    loaded: LoadedModel, step: Step, a: tuple[str, npt.NDArray[Any]], b: tuple[str, npt.NDArray[Any]]
) -> Difference | None:
    """First place where two results of a step's output differ, None when they are equal bit by bit.

    Parameters
    ----------
    loaded
        the model, whose addresses the difference names.
    step
        whose output it is.
    a, b
        who gave a result, and the cube (C, H, W): int8, or fp16 where the output is real.
    """
    bits = np.uint16 if step.output.real else np.int8
    wrong = np.argwhere(np.ascontiguousarray(a[1]).view(bits) != np.ascontiguousarray(b[1]).view(bits))
    if not wrong.size:
        return None
    channel, row, column = (int(v) for v in wrong[0])
    place = loaded.model.plan.place(step.output.name)
    atom = (channel // place.c2 * place.cube[1] + row) * place.cube[2] + column
    byte = channel % place.c2 * place.itemsize
    address = loaded.bases[place.ref.region] + place.ref.offset + atom * 16 + byte
    values = a[1][channel, row, column].item(), b[1][channel, row, column].item()
    return Difference(
        step.name,
        step.output.name,
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
    loaded
        the model on the device under test; the task-level model gets the same addresses, so it runs
        the very same command words.
    device
        how messages name the device under test.
    """

    def __init__(self, loaded: LoadedModel, device: str = "RTL") -> None:
        self.loaded = loaded
        self.device = device
        self.golden = loaded.model.load(GoldenDriver(places=dict(loaded.bases)))
        if self.golden.tasks.data != loaded.tasks.data:
            raise RuntimeError("the golden model did not get the device's addresses")

    def check(self, inputs: list[npt.ArrayLike]) -> Verdict:
        """Compare the device's tensors after a run with both levels' for the same inputs.

        Tensors whose memory a later one has taken cannot be compared; compile inside
        `keeping_tensors` to have all of them.
        """
        model = self.loaded.model
        cubes = [model.encode_input(index, values) for index, values in enumerate(inputs)]
        for index, values in enumerate(inputs):
            self.golden.set_input(index, values)
        self.golden.run()
        graph = graph_tensors(model, cubes)
        steps = model.graph_nodes()
        for step in steps:
            name = step.output.name
            if model.graph.root(name) in model.plan.lost:
                continue
            results = [
                (self.device, self.loaded.tensor(name)),
                ("task golden", self.golden.tensor(name)),
                ("graph golden", graph[name]),
            ]
            for other in results[1:]:
                found = first_difference(self.loaded, step, results[0], other)
                if found:
                    return Verdict(len(steps), found)
        return Verdict(len(steps), None)

    def check_memory(self) -> int | None:
        """First address of the activations where device and task golden differ, padding included."""
        ours, theirs = self.loaded.buffers["activations"], self.golden.buffers["activations"]
        different = np.flatnonzero(ours.view() != theirs.view())
        return int(ours.iova + different[0]) if different.size else None

    def close(self) -> None:
        """Release the golden device's memory."""
        self.golden.close()
