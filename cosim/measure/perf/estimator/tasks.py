"""Tasks of a plan or of a matrix product, with their sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from rkcosim.compiler.matmul import Matmul
from rkcosim.compiler.plan import Plan
from rkcosim.compiler.programs.task import REGIONS
from rkcosim.measure.perf.estimator.features import TaskShape, task_shape
from rkcosim.regcmd import build_task_list
from rkcosim.regcmd.disassembler import disassemble
from rkcosim.regcmd.tasks import words_of_amount
from rkcosim.regcmd.word import words_from_bytes

BASES: Mapping[str, int] = {region: 0 for region in REGIONS}
"""Addresses of the regions; they begin at a page, so any page-aligned address gives the same result."""


@dataclass(frozen=True)
class PlannedTask:
    """A task before it runs: index and name of its layer, its name for people, its sizes."""

    layer: int
    layer_name: str
    name: str
    shape: TaskShape


def planned_tasks(plan: Plan) -> list[PlannedTask]:
    """Return the tasks of a plan in order.

    Raises
    ------
    ValueError
        If a task cannot be estimated; the message names it.
    """
    found = []
    for task, builder in zip(plan.tasks, plan.builders(BASES), strict=True):
        values: dict[str, dict[str, int]] = defaultdict(dict)
        accesses = 0
        # A task of a .rknn file keeps registers of the one before, which its words do not have.
        for number, (block, register, value) in enumerate(task.values(BASES)):
            values[block][register] = value
            if register.startswith("LUT_ACCESS") and not accesses:
                accesses = len(task.settings.items) - number
        layer = plan.steps[task.layer].name
        try:
            shape = task_shape(values, task.blocks, words_of_amount(builder.amount), accesses)
        except ValueError as error:
            raise ValueError(f"{layer}{task.note}: {error}") from error
        found.append(PlannedTask(task.layer, layer, layer + task.note, shape))
    return found


def product_tasks(product: Matmul) -> list[PlannedTask]:
    """Return the tasks of a matrix product whose operands begin at a page."""
    found = []
    for number, builder in enumerate(product.builders(0, 0, 0)):
        values: dict[str, dict[str, int]] = defaultdict(dict)
        for command in disassemble(words_from_bytes(build_task_list([builder], 0).data)):
            if command.register is not None:
                block, _, name = command.register.path.partition(".")
                values[block][name] = command.value
        shape = task_shape(values, tuple(builder.blocks), words_of_amount(builder.amount))
        found.append(PlannedTask(0, product.kind.name, f"tile {number}", shape))
    return found


def jobs_of(work: Plan | Matmul) -> list[tuple[int, list[list[PlannedTask]]]]:
    """Return, for each job of a plan or product, the index of its first task and the tasks of each core."""
    if isinstance(work, Matmul):
        return [(0, [product_tasks(work)])]
    tasks = planned_tasks(work)
    return [
        (segment.first, [tasks[segment.first + first :][:count] for first, count in segment.parts])
        for segment in work.segments()
        if segment.host is None
    ]
