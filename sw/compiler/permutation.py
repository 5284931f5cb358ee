"""Axes of a tensor in another order, as moves of whole atoms.

Memory holds surfaces of atoms, one for each pixel, of 16 bytes: 8 channels of fp16, 16 of bytes.  If the
elements of an atom stay together, a transposition is a set of loops over atoms with constant distances, and
the DPU moves them without changing a bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rkcosim.compiler.graph import Op
from rkcosim.compiler.limits import MAX_NOTCH, MOST_MOVES

MOST_SURFACES = 1024
"""Surfaces of a task: its channels have 13 bits, and a surface has eight of 16 bits."""
MOST_PIXELS = 8192
"""Rows and columns of a task."""


@dataclass(frozen=True)
class Permute(Op):
    """The array of a tensor in memory, pixels before channels, with its axes in another order.

    Members
    -------
    stored
        Sizes of the axes in the input's memory.
    order
        These axes in the order of the output's memory.
    """

    stored: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def kind(self) -> str:
        """Transpose."""
        return "Transpose"


@dataclass(frozen=True)
class Loop:
    """A loop over atoms: how often, and the distances of two atoms that are read and that are written."""

    count: int
    source: int
    target: int


@dataclass(frozen=True)
class AtomMove:
    """The atoms of one task.

    Members
    -------
    source, target
        The first atoms.
    columns, rows, surfaces
        The loops of the task; columns follow each other at both ends.
    """

    source: int
    target: int
    columns: int
    rows: Loop
    surfaces: Loop


def loops(
    stored: Sequence[int], order: Sequence[int], channels: tuple[int, int], per_atom: int
) -> list[Loop] | None:
    """Return a transposition as loops over atoms, the outermost first; None if atoms would be divided.

    Parameters
    ----------
    stored, order
        As in `Permute`.
    channels
        Channels of input and output.
    per_atom
        Channels of an atom.
    """
    axes = [axis for axis in order if stored[axis] > 1]
    sources = _distances([*range(len(stored))], stored)
    targets = _distances(order, stored)
    elements = math.prod(stored)
    pixels = tuple(elements // count for count in channels)
    found: list[Loop] = []
    for axis in axes:
        count, ends = stored[axis], (sources[axis], targets[axis])
        if not all(_within(distance, count, n) for distance, n in zip(ends, channels, strict=True)):
            return None
        if ends == (1, 1) and min(channels) > 1:  # the lanes of atoms
            whole = count == channels[0] == channels[1]
            if count % per_atom and not whole:
                return None
            found.append(Loop(-(-count // per_atom), *pixels))
            continue
        atoms = [
            distance // n if distance >= n else distance // per_atom * rest
            for distance, n, rest in zip(ends, channels, pixels, strict=True)
        ]
        if any(distance < n and distance % per_atom for distance, n in zip(ends, channels, strict=True)):
            return None
        found.append(Loop(count, atoms[0], atoms[1]))
    found = [loop for loop in found if loop.count > 1]
    return _merged(sorted(found, key=lambda loop: loop.target, reverse=True))


def _within(distance: int, count: int, channels: int) -> bool:
    """Whether an axis with this distance of its elements lies in the pixels or in the channels alone."""
    return distance % channels == 0 or channels % (distance * count) == 0


def _distances(order: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """Return for each axis the elements between two of its neighbours, in an array of this order."""
    distance, found = 1, dict[int, int]()
    for axis in reversed(order):
        found[axis] = distance
        distance *= sizes[axis]
    return found


def _merged(found: list[Loop]) -> list[Loop]:
    """Join loops that are one behind the other at both ends."""
    result: list[Loop] = []
    for loop in found:
        if result:
            outer, size = result[-1], loop.count
            if (outer.source, outer.target) == (size * loop.source, size * loop.target):
                result[-1] = Loop(outer.count * size, loop.source, loop.target)
                continue
        result.append(loop)
    return result


def moves(found: Sequence[Loop]) -> list[AtomMove] | None:
    """Return the tasks of loops, as few as possible; None if they are more than `MOST_MOVES`."""
    best: list[AtomMove] | None = None
    inner = next((loop for loop in found if (loop.source, loop.target) == (1, 1)), Loop(1, 1, 1))
    rest = [loop for loop in found if loop is not inner]
    one = Loop(1, 0, 0)
    for rows, surfaces in itertools.permutations([*rest, one, one], 2):
        others = [loop for loop in rest if loop is not rows and loop is not surfaces]
        count = math.prod(loop.count for loop in others)
        if count > MOST_MOVES or not _fits(inner, rows, surfaces):
            continue
        parts = list(_parts(inner, rows, surfaces))
        if count * len(parts) > MOST_MOVES or (best is not None and len(best) <= count * len(parts)):
            continue
        best = [
            replace(part, source=part.source + source, target=part.target + target)
            for source, target in _starts(others)
            for part in parts
        ]
    return best


def _fits(columns: Loop, rows: Loop, surfaces: Loop) -> bool:
    """Whether registers hold the distances of rows and surfaces; those of surfaces that are read grow."""
    line = rows.count == 1 or max(rows.source, rows.target) - min(columns.count, MOST_PIXELS) <= MAX_NOTCH
    reach = (rows.count - 1) * rows.source + columns.count
    return line and (surfaces.count == 1 or surfaces.source >= reach)


def _parts(columns: Loop, rows: Loop, surfaces: Loop) -> Iterator[AtomMove]:
    """Yield the tasks of three loops, whose counts the registers may not hold."""
    limits = ((columns, MOST_PIXELS), (rows, MOST_PIXELS), (surfaces, MOST_SURFACES))
    ranges = [
        [(first, min(most, loop.count - first)) for first in range(0, loop.count, most)]
        for loop, most in limits
    ]
    for column, row, surface in itertools.product(*ranges):
        at = [
            column[0] + row[0] * getattr(rows, end) + surface[0] * getattr(surfaces, end)
            for end in ("source", "target")
        ]
        yield AtomMove(
            at[0],
            at[1],
            column[1],
            replace(rows, count=row[1]),
            replace(surfaces, count=surface[1]),
        )


def _starts(others: Sequence[Loop]) -> Iterator[tuple[int, int]]:
    """Yield the first atoms of each round of loops."""
    for places in itertools.product(*(range(loop.count) for loop in others)):
        pairs = list(zip(places, others, strict=True))
        yield (
            sum(place * loop.source for place, loop in pairs),
            sum(place * loop.target for place, loop in pairs),
        )
