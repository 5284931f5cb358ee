"""Transpositions as moves of atoms put every atom where numpy puts it, within the limits of the registers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rkcosim.compiler.limits import MAX_NOTCH, MOST_MOVES
from rkcosim.compiler.permutation import MOST_SURFACES, loops, moves
from tests import seeds


def _surfaces(memory: np.ndarray, channels: int, per_atom: int) -> np.ndarray:
    """Return the atoms of an array (pixels before channels) as the NPU stores them, -1 in unused lanes."""
    pixels = memory.reshape(-1, channels)
    count = -(-channels // per_atom)
    whole = np.full((len(pixels), count * per_atom), -1)
    whole[:, :channels] = pixels
    return whole.reshape(len(pixels), count, per_atom).swapaxes(0, 1).reshape(-1, per_atom)


def _moved(atoms: np.ndarray, tasks: list, count: int) -> np.ndarray:
    result = np.full((count, atoms.shape[1]), -2)
    for task in tasks:
        surface, row, column = np.indices((task.surfaces.count, task.rows.count, task.columns))
        ends = [
            getattr(task, end)
            + column
            + row * getattr(task.rows, end)
            + surface * getattr(task.surfaces, end)
            for end in ("source", "target")
        ]
        result[ends[1]] = atoms[ends[0]]
    return result


@pytest.mark.parametrize("per_atom", [8, 16])
def test_against_numpy(per_atom: int):
    seed = seeds.seed(__name__)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    done = 0
    for _ in range(400):
        rank = int(rng.integers(2, 6))
        stored = [int(n) for n in rng.choice([1, 2, 3, 4, 7], rank)]
        stored[-1] = int(rng.choice([1, 5, 8, 16, 32]))
        order = [int(n) for n in rng.permutation(rank)]
        if rng.random() < 0.7:  # the last axis stays
            order.remove(rank - 1)
            order.append(rank - 1)
        inner = [int(rng.integers(0, rank)) for _ in range(2)]
        channels = (math.prod(stored[inner[0] :]), math.prod(stored[axis] for axis in order[inner[1] :]))
        found = loops(stored, order, channels, per_atom)
        if found is None or (tasks := moves(found)) is None:
            continue
        done += 1
        memory = np.arange(math.prod(stored)).reshape(stored)
        wanted = _surfaces(memory.transpose(order), channels[1], per_atom)
        assert np.array_equal(_moved(_surfaces(memory, channels[0], per_atom), tasks, len(wanted)), wanted)
    assert done > 40


def test_limits():
    """Windows of a large map: each task has as many surfaces, rows and distances as the registers hold."""
    stored, order = (1, 8, 1100, 8, 1200, 8), (0, 1, 3, 2, 4, 5)
    found = loops(stored, order, (8, 8), 8)
    assert found is not None
    tasks = moves(found)
    assert tasks is not None and len(tasks) <= MOST_MOVES
    for task in tasks:
        assert task.surfaces.count <= MOST_SURFACES and max(task.rows.count, task.columns) <= 8192
        assert max(task.rows.source, task.rows.target) - task.columns <= MAX_NOTCH or task.rows.count == 1
    assert sum(t.columns * t.rows.count * t.surfaces.count for t in tasks) == math.prod(stored) // 8
    assert loops((4, 6), (1, 0), (6, 4), 8) is None  # lanes become pixels
