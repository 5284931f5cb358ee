"""Tasks of a plan or of a matrix product with their sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from cosim.perf.estimator.features import TaskShape, task_shape
from sw.compiler.matmul import Matmul
from sw.compiler.plan import Plan
from sw.compiler.programs.task import REGIONS
from sw.regcmd import TaskBuilder, build_task_list
from sw.regcmd.disassembler import disassemble
from sw.regcmd.tasks import words_of_amount
from sw.regcmd.word import words_from_bytes

BASES: Mapping[str, int] = {region: 0 for region in REGIONS}
"""Regions begin at whole pages, so any address of a page does."""


@dataclass(frozen=True)
class PlannedTask:
    """A task before it runs: its layer, its name for people, its sizes."""

    layer: int
    name: str
    shape: TaskShape


def planned_tasks(plan: Plan, bases: Mapping[str, int] = BASES) -> list[PlannedTask]:
    """Tasks of a plan in order.

    Raises
    ------
    ValueError
        for a task that is not estimated, naming it.
    """
    found = []
    for task, builder in zip(plan.tasks, plan.builders(bases), strict=True):
        values: dict[str, dict[str, int]] = defaultdict(dict)
        accesses = 0
        for number, (block, register, value) in enumerate(task.values(bases)):
            values[block][register] = value
            if register.startswith("LUT_ACCESS") and not accesses:
                accesses = len(task.settings.items) - number
        name = plan.steps[task.layer].name + task.note
        try:
            shape = task_shape(values, task.blocks, words_of_amount(builder.amount), accesses)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        found.append(PlannedTask(task.layer, name, shape))
    return found


def product_tasks(product: Matmul) -> list[PlannedTask]:
    """Tasks of a matrix product whose operands begin at whole pages."""
    return [
        PlannedTask(0, f"tile {number}", built_shape(builder))
        for number, builder in enumerate(product.builders(0, 0, 0))
    ]


def built_shape(builder: TaskBuilder) -> TaskShape:
    """Sizes of a task from its command words."""
    values: dict[str, dict[str, int]] = defaultdict(dict)
    for command in disassemble(words_from_bytes(build_task_list([builder], 0).data)):
        if command.register is not None:
            block, _, name = command.register.path.partition(".")
            values[block][name] = command.value
    return task_shape(values, tuple(builder.blocks), words_of_amount(builder.amount))
