"""Register programs of transpositions, which move whole atoms through the DPU."""

from __future__ import annotations

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.permutation import loops, moves
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.programs.products import Move, moved
from rkcosim.compiler.programs.task import Settings
from rkcosim.compiler.steps import PermuteStep
from rkcosim.spec.layouts import ATOM_BYTES


def permute(step: PermuteStep, x: Place, y: Place) -> list[Settings]:
    """Return the programs of a `PermuteStep`.

    Raises
    ------
    ModelError
        If atoms would be divided, or there are too many tasks.
    """
    found = loops(step.stored, step.order, (x.cube[0], y.cube[0]), x.c2)
    tasks = None if found is None else moves(found)
    if tasks is None:
        raise ModelError(f"{step.kind} '{step.name}': {step.stored} in the order {step.order} has no moves")
    result = []
    for task in tasks:
        rows, surfaces = task.rows, task.surfaces
        line = rows.target if rows.count > 1 else task.columns
        skip = rows.source - task.columns if rows.count > 1 else 0
        reach = (rows.count - 1) * (task.columns + skip) + task.columns
        result.append(
            moved(
                Move(
                    x.ref + task.source * ATOM_BYTES,
                    y.ref + task.target * ATOM_BYTES,
                    task.columns,
                    rows.count,
                    surfaces.count,
                    apart=surfaces.source if surfaces.count > 1 else reach,
                    line=line,
                    step=surfaces.target if surfaces.count > 1 else line * rows.count,
                    series=1,
                    add=surfaces.target if surfaces.count > 1 else line * rows.count,
                    skip=skip,
                )
            )
        )
    return result
