"""The plan of a network: memory, tiles and tasks, as one or several jobs.

`rkcosim.compiler.planner` makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rkcosim.compiler.graph import Graph, ModelError
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.programs.task import Task
from rkcosim.compiler.steps import (
    HostStep,
    Step,
)
from rkcosim.compiler.tiling import Tile
from rkcosim.regcmd import PlacedTasks, RegcmdError, TaskBuilder, TaskEntry, build_task_list, task_list_bytes
from rkcosim.regcmd.job import Task as JobTask

ALIGN = 64
"""Alignment of everything that is placed in a region, in bytes."""

MAX_BYTES = 2**32 - 2**28
"""Largest size of weights and activations together: the address space less room for commands."""

MAX_TASKS = 4095
"""Largest number of tasks of one job ([HW 2.1], TASK_NUMBER)."""


@dataclass(frozen=True)
class Segment:
    """A job of `count` tasks from `first` on, or a step that the host computes (`host` is its index).

    `parts` has (first, count) for each core, relative to the segment.
    """

    host: int | None
    first: int
    count: int
    parts: tuple[tuple[int, int], ...] = ()


@dataclass
class Plan:
    """Everything needed to run a network, except the addresses of its three regions.

    `places` maps root tensors to memory; `weights` is the content of the weights region;
    `activation_bytes` is the size of the activations region; `tiles` has the tiles of each convolution.
    """

    graph: Graph
    steps: list[Step]
    places: dict[str, Place] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    tiles: dict[int, list[Tile]] = field(default_factory=dict)
    weights: bytearray = field(default_factory=bytearray)
    activation_bytes: int = 0
    shared_bytes: int = 0
    separate_bytes: int = 0
    """Sizes of the activations with shared memory and without; only one of the two layouts is used."""
    reuse: bool = False
    cores: int = 1
    on_one_core: str = ""
    """Why the planner has divided no layer among several cores; empty if it has, or if there is one core."""
    lost: set[str] = field(default_factory=set)
    """Root tensors whose memory another tensor has overwritten by the end of a run."""
    notes: list[str] = field(default_factory=list)
    """Reasons why operations were not merged into one task, and warnings of inexact channels."""

    def builders(self, bases: Mapping[str, int]) -> list[TaskBuilder]:
        """Return the tasks as unlinked command lists for regions that start at `bases`.

        Raises
        ------
        ModelError
            If a value of a layer does not fit a register field; the message names layer and field.
        """
        result = []
        for task in self.tasks:
            step = self.steps[task.layer]
            builder = TaskBuilder(f"{step.name}{task.note}")
            try:
                for setting in task.settings:
                    builder.set_word(setting.block, setting.register, setting.word_value(bases))
            except (ValueError, RegcmdError) as error:
                raise ModelError(f"{step.kind} '{step.name}' is too large for the NPU: {error}") from error
            result.append(builder.enable(*task.blocks))
        return result

    def tasks_by_step(self) -> list[list[Task]]:
        """Return the tasks of each step, in their order."""
        result: list[list[Task]] = [[] for _ in self.steps]
        for task in self.tasks:
            result[task.layer].append(task)
        return result

    def segments(self) -> list[Segment]:
        """Return the jobs and the host's steps between them, in order."""
        result: list[Segment] = []
        at, tasks = 0, self.tasks_by_step()
        for index, step in enumerate(self.steps):
            cores = [task.core for task in tasks[index]]
            count, last = len(cores), result[-1] if result else None
            if isinstance(step, HostStep):
                result.append(Segment(index, 0, 0))
            elif any(cores):  # cores synchronise between layers, so this layer is a separate job
                parts = tuple((cores.index(c), cores.count(c)) for c in range(max(cores) + 1))
                result.append(Segment(None, at, count, parts))
            elif last is not None and last.host is None and len(last.parts) == 1:
                total = last.count + count
                result[-1] = Segment(None, last.first, total, ((0, total),))
            else:
                result.append(Segment(None, at, count, ((0, count),)))
            at += count
        return result

    @property
    def jobs(self) -> int:
        """Number of jobs of one inference, that is, segments that do not run on the host."""
        return sum(segment.host is None for segment in self.segments())

    @property
    def chains(self) -> int:
        """Number of groups of jobs without a step of the host between them.

        RKNN links the tasks of such a group, also on several cores, to one submit.
        """
        npu = [segment.host is None for segment in self.segments()]
        return sum(here and not before for before, here in zip([False, *npu], npu, strict=False))

    def regcmd_bytes(self) -> int:
        """Size of the command region in bytes."""
        builders = self.builders(dict.fromkeys(("regcmd", "weights", "activations"), 0))
        return task_list_bytes(builders) if builders else ALIGN

    def task_list(self, bases: Mapping[str, int]) -> PlacedTasks:
        """Return all tasks from `bases["regcmd"]` on; those of one segment are linked to a chain."""
        builders = self.builders(bases)
        address, data = bases["regcmd"], b""
        entries: list[TaskEntry] = []
        for segment in self.segments():
            for first, count in segment.parts:
                data = data.ljust(aligned(len(data)), b"\0")
                part = builders[segment.first + first : segment.first + first + count]
                chain = build_task_list(part, address + len(data))
                data += chain.data
                entries += chain.tasks
        return PlacedTasks(address, data, entries)

    def job_tasks(self, entries: Sequence[TaskEntry]) -> list[JobTask]:
        """The driver's records of all tasks, in their order, for the lists that `task_list` has placed."""
        return [JobTask.of_entry(entry, t.layer) for entry, t in zip(entries, self.tasks, strict=True)]

    def place(self, tensor: str) -> Place:
        """Memory of a tensor or of the tensor it is an alias of, with the tensor's own rows and columns."""
        place = self.places[self.graph.root(tensor)]
        cube = self.graph.tensors[tensor].cube
        return place if cube == place.cube else replace(place, cube=cube)

    def __str__(self) -> str:
        lines = [
            f"{self.graph.name}: {len(self.tasks)} tasks, weights {len(self.weights)} bytes, "
            f"activations {self.activation_bytes} bytes ({self.shared_bytes} sharing memory, "
            f"{self.separate_bytes} not)"
        ]
        by_step = self.tasks_by_step()
        for index, step in enumerate(self.steps):
            tasks = by_step[index]
            shapes = " + ".join("x".join(map(str, t.cube)) for t in step.inputs)
            lines.append(
                f"  {index:3} {step.kind:18} {step.name:28} {shapes} -> "
                f"{'x'.join(map(str, step.output.cube))}  "
                + (
                    "on the host"
                    if isinstance(step, HostStep)
                    else f"tasks {len(tasks)}  formula {sum(task.formula_npu for task in tasks)}"
                )
            )
            for tile in self.tiles.get(index, []):
                lines.append(
                    f"        rows {tile.first_row}+{tile.rows} (in {tile.in_first}+{tile.in_rows}), "
                    f"{f'columns {tile.first_column}+{tile.columns}, ' if tile.columns else ''}"
                    f"kernels {tile.first_kernel}+{tile.kernels}, banks {tile.data_banks}/"
                    f"{tile.weight_banks}{', weights reused' if tile.weight_reuse else ''}"
                    f"{f', core {tile.core}' if self.cores > 1 else ''}"
                )
        lines += [f"  {note}" for note in self.notes]
        for name, place in self.places.items():
            form = (
                f"pixels of {place.argb}"
                if place.argb
                else f"{place.surface_count} surfaces{' of fp16' if place.itemsize > 1 else ''}"
            )
            lines.append(
                f"  {place.ref.region}+0x{place.ref.offset:06X} {place.size:8} bytes  {name} ({form})"
            )
        return "\n".join(lines)


def aligned(size: int) -> int:
    """Return a size rounded up to a multiple of `ALIGN`."""
    return -(-size // ALIGN) * ALIGN
