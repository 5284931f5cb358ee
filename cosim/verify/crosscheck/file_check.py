"""Checks of a `.rknn` file's run: bytes against the task-level model, nodes against their exact values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import LoadedModel
from rkcosim.compiler.host_calls import call
from rkcosim.compiler.host_steps import compute
from rkcosim.compiler.steps import CallStep, HostStep, Step
from rkcosim.driver import Job, JobResult
from rkcosim.rknn_file.check import own_inputs
from rkcosim.rknn_file.model import FileModel
from rkcosim.verify.crosscheck.file_meaning import NotJudged, judge
from rkcosim.verify.crosscheck.model_check import (
    Difference,
    GoldenDriver,
    ModelChecker,
    SecondLevel,
    Verdict,
    first_difference,
)

MEANING = "the node's meaning"
"""Name of the mathematical value in messages."""


@dataclass
class NodeJudgement:
    """Result of the comparison of a node's output with its mathematical value.

    Members
    -------
    step : index of the step.
    name, kind : name and type of the node.
    right : whether all elements are within their bounds; None if the node was not compared.
    reason : reason for which it was not compared.
    wrong, elements : number of elements outside of their bounds, and of all elements.
    worst : largest distance in units of the bound.
    cancelled : see `rkcosim.verify.crosscheck.file_meaning.Judgement`.
    """

    step: int
    name: str
    kind: str
    right: bool | None = None
    reason: str = ""
    wrong: int = 0
    elements: int = 0
    worst: float = 0.0
    cancelled: int = 0


@dataclass(frozen=True)
class Unordered:
    """Bytes whose value depends on the order of a task's reads and writes, so that they cannot be compared.

    Members
    -------
    tasks : node and number of each task that reads memory which it writes itself.
    depend : number of bytes that differ between the two orders.
    differ : number of bytes of the device that are those of the other order than the golden model's.
    """

    tasks: list[str]
    depend: int
    differ: int


class _Watching(GoldenDriver):
    """The golden driver, which calls a function before the first task of some steps.

    A job of one core is divided there; jobs of several cores, which wait for each other, are not.

    Parameters
    ----------
    places : see `GoldenDriver`.
    watched : indices of the steps.
    """

    def __init__(self, places: dict[str, int], watched: Collection[int]) -> None:
        super().__init__(places)
        self.watched = set(watched)
        self.before: Callable[[int], None] = lambda index: None

    def submit(self, job: Job) -> JobResult:
        """Run a job in parts, see `Driver.submit`."""
        if len(job.cores) > 1:
            return super().submit(job)
        layers = [task.op_idx for task in job.tasks]
        marks = [n for n, layer in enumerate(layers) if layer in self.watched and layer not in layers[:n]]
        for start, end in pairwise(sorted({0, *marks, len(layers)})):
            if start in marks:
                self.before(layers[start])
            result = super().submit(replace(job, tasks=job.tasks[start:end]))
        return result


class FileChecker(ModelChecker):
    """Check the runs of a loaded `.rknn` file; for the parameters see `ModelChecker`.

    Members
    -------
    nodes : judgements of the last check, in the order of the steps.
    unordered : padding that the last `check_memory` could not compare; None if all bytes are equal.
    """

    def __init__(self, loaded: LoadedModel, device: str = "RTL") -> None:
        super().__init__(loaded, device)
        self.nodes: list[NodeJudgement] = []
        self.unordered: Unordered | None = None
        self._kept: dict[int, list[npt.NDArray[Any]]] = {}
        self._inputs: list[npt.ArrayLike] = []
        self._before: npt.NDArray[np.uint8] | None = None

    def begin(self, inputs: Sequence[npt.ArrayLike]) -> None:
        """Do nothing: `check` needs the golden model's memory as it was before its run."""

    def check(self, inputs: list[npt.ArrayLike]) -> Verdict:
        """Compare tensors and nodes, see `ModelChecker.check`."""
        self._inputs, self._before = inputs, self.golden.buffers["activations"].view().copy()
        return super().check(inputs)

    def check_memory(self) -> int | None:
        """Return the first address of the activations at which the device differs from the golden model.

        A task that reads memory which it writes itself may read before or after its writes. If the memory
        differs and there are such tasks, the golden model also runs the network with their reads after their
        writes. Bytes that have one of these two values are `unordered`, not different; `check` compares
        tensors with the first value alone.
        """
        self.unordered = None
        address = super().check_memory()
        model = self.loaded.model
        assert isinstance(model, FileModel)
        tasks = {} if address is None else own_inputs(model.file_plan, self.loaded.bases)
        if not tasks or self._before is None:
            return address
        driver = GoldenDriver(dict(self.loaded.bases))
        for device in driver.cores:
            device.late = frozenset(tasks)
        late = LoadedModel(model, driver)
        try:
            late.buffers["activations"].view()[:] = self._before
            for index, values in enumerate(self._inputs):
                late.set_input(index, values)
            late.run()
            first, last = self.golden.buffers["activations"].view(), late.buffers["activations"].view()
            ours = self.loaded.buffers["activations"]
            neither = np.flatnonzero((ours.view() != first) & (ours.view() != last))
            if neither.size:
                return int(ours.iova + neither[0])
            depend, differ = int((first != last).sum()), int((ours.view() != first).sum())
            self.unordered = Unordered(list(tasks.values()), depend, differ)
            return None
        finally:
            late.close()

    def _driver(self, places: dict[str, int]) -> GoldenDriver:
        """Return a driver that keeps the inputs of steps whose inputs are overwritten later."""
        model = self.loaded.model
        assert isinstance(model, FileModel)
        plan = model.plan
        watched = [
            index
            for index, step in enumerate(plan.steps)
            if not isinstance(step, HostStep)
            and any(model.graph.root(tensor.name) in plan.lost for tensor in step.inputs)
        ]
        driver = _Watching(places, watched)
        driver.before = self._keep
        return driver

    def _keep(self, index: int) -> None:
        self._kept[index] = [
            self.golden.tensor(tensor.name).copy() for tensor in self.loaded.model.plan.steps[index].inputs
        ]

    def _second_level(self, inputs: list[npt.ArrayLike]) -> SecondLevel:
        """Return the function that compares a step's output with its value for the device's inputs."""
        model = self.loaded.model
        assert isinstance(model, FileModel)
        self.nodes = []

        def compare(index: int, ours: tuple[str, npt.NDArray[Any]]) -> Difference | None:
            step = model.plan.steps[index]
            cubes = [self.loaded.tensor(tensor.name) for tensor in step.inputs]
            if index in self._kept:
                return self._judged(model, index, step, self._kept[index], [], ours)
            lost = [t.name for t in step.inputs if model.graph.root(t.name) in model.plan.lost]
            if isinstance(step, HostStep) and not lost:
                made = call(step, cubes)[0] if isinstance(step, CallStep) else compute(step, cubes)
                return first_difference(self.loaded, step, ours, ("the host's function", made))
            return self._judged(model, index, step, cubes, lost, ours)

        return compare

    def summary(self) -> dict[str, tuple[int, int]]:
        """Return (number of right nodes, number of nodes) of the last check by the node's type."""
        found: dict[str, tuple[int, int]] = {}
        for row in self.nodes:
            right, every = found.get(row.kind, (0, 0))
            found[row.kind] = right + (row.right is True), every + 1
        return found

    def _judged(
        self,
        model: FileModel,
        index: int,
        step: Step,
        cubes: list[npt.NDArray[Any]],
        lost: list[str],
        ours: tuple[str, npt.NDArray[Any]],
    ) -> Difference | None:
        row = NodeJudgement(index, step.name, step.kind)
        self.nodes.append(row)
        try:
            if lost:
                raise NotJudged("a later task has overwritten one of its inputs")
            found = judge(model.file_plan, index, cubes, ours[1])
        except NotJudged as error:
            row.reason = str(error)
            return None
        except (ValueError, ArithmeticError, LookupError, MemoryError) as error:  # a file is hostile input
            row.reason = f"its value cannot be computed ({type(error).__name__}: {error})"
            return None
        apart = np.abs(ours[1].astype(np.float64) - found.meaning.values) / found.meaning.bound
        row.right, row.wrong, row.elements = found.right, int(found.wrong.sum()), found.wrong.size
        row.worst = float(np.nanmax(np.where(np.isfinite(apart), apart, 0.0), initial=0.0))
        row.cancelled = found.cancelled
        if found.right:
            return None
        channel, line, column = (int(n) for n in np.argwhere(found.wrong)[0])
        at = channel, line, column
        place = model.plan.place(step.output.name)
        address = place.ref.address(self.loaded.bases) + place.offset_of(*at)
        expected = float(found.meaning.values[at])
        return Difference(
            step.name,
            step.output.name,
            at,
            address,
            ours[0],
            ours[1][at].item(),
            MEANING,
            expected,
            row.wrong,
        )

    def levels(self) -> dict[str, Any]:
        """Return the members of a verdict without differences: levels and numbers of compared nodes."""
        missing = [
            {"node": row.name, "kind": row.kind, "why": row.reason} for row in self.nodes if row.right is None
        ]
        return {
            "levels": [self.device, "task golden"],
            "nodes": len(self.nodes),
            "nodes_right": sum(row.right is True for row in self.nodes),
            "nodes_not_judged": missing,
            "cancelled_elements": sum(row.cancelled for row in self.nodes),
            "bytes_not_compared": None if self.unordered is None else asdict(self.unordered),
        }
