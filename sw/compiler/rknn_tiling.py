"""How RKNN divides a convolution into tasks, as its own plans show.

The rules were read off plans of the vendor's compiler and reproduce them (tests/unit/test_rknn_tiling.py has
the numbers and their sources).  They are facts about that compiler, not a good choice: they are used
to estimate what RKNN's plan of a layer takes (`rkcosim estimate --plan rknn`) and to run such a plan.

1. Banks: the features keep the banks of the whole map if the weights fit beside them or can pass through the
   rest in two kernel groups at a time.  If not, the weights keep the banks that they need, and if they do not
   fit CBUF, those of two kernel groups.
2. Rows: on one core, and on cores that divide the kernels, each task takes as many input rows as fit, and the
   last one the rest.  Cores that divide the rows, and their tasks, take equal shares.
3. Depthwise layers on one core take all rows of as many channels as fit; if not even one group of channels
   fits, the tasks are ranges of rows, and the groups of channels follow each other within a range.
4. Cores divide the kernels if there is a whole group for each, and the number of groups is a multiple of
   that of the cores, or the weights do not stay in CBUF, or there are fewer rows than cores.  Otherwise
   they divide the rows; all have the same number of tasks.
5. Layers with an activation from the DPU's tables stay on one core (profiles show ConvExSwish with a work
   load of 100 %, 0 %, 0 %: key `vendor-profile-cores` of [HW 15]).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

from rkcosim.compiler.limits import MAX_SIZE
from rkcosim.compiler.tiling import MAX_ENTRIES, ConvShape, Tile, planned_by
from rkcosim.spec.types import BANK_BYTES, BANK_ENTRIES, BANKS

GRAINS_ENTRIES = 1024
"""CBUF entries of rows after which FEATURE_GRAINS lets a task begin."""

GRAINS_PIXELS = 2400
"""Input pixels of a task above which FEATURE_GRAINS has only the rows of the task."""

Range = tuple[int, int]
"""First element and number of elements."""


def rknn_plans() -> AbstractContextManager[None]:
    """Return a context in which convolutions are planned as RKNN plans them, where its rules are known."""
    return planned_by(rknn_tiles)


def rknn_tiles(shape: ConvShape, cores: int = 1) -> list[Tile] | None:
    """Return the tasks of RKNN's plan; None where its rules are not known.

    Not known are transposed convolutions, and layers of which the rows of a window do not fit CBUF.
    """
    if shape.insert > 1 or shape.insert_columns > 1 or max(shape.width, shape.out_width) > MAX_SIZE:
        return None
    group = (64 if shape.depthwise else 32) // shape.itemsize
    cores = 1 if shape.table else cores
    if shape.depthwise and cores == 1:
        return _by_channels(shape, group)
    banks, resident = _banks(shape, group)
    most = _most_rows(shape, banks)
    if shape.rows_in(shape.out_height // 2, 1)[1] > most:
        return None
    groups = -(-shape.kernels // group)
    if cores > 1 and not shape.depthwise and _divides_kernels(shape, group, cores, resident):
        return [
            tile
            for core, (first, count) in enumerate(_kernel_shares(shape.kernels % group > 0, groups, cores))
            for tile in _tiles(
                shape,
                _full_rows(shape, most),
                (first * group, min(count * group, shape.kernels - first * group)),
                banks,
                False,
                core,
            )
        ]
    if cores > 1:
        parts = _shares(shape.out_height, cores)
        count = max(_row_tasks(shape, part, most) for part in parts)
        return [
            tile
            for core, (first, rows) in enumerate(parts)
            for tile in _tiles(
                shape,
                [(first + start, size) for start, size in _shares(rows, count)],
                (0, shape.kernels),
                banks,
                resident,
                core,
            )
        ]
    return _tiles(shape, _full_rows(shape, most), (0, shape.kernels), banks, resident)


def _by_channels(shape: ConvShape, group: int) -> list[Tile] | None:
    """Return the tasks of a depthwise layer on one core."""
    count = shape.kernels
    while count > group and _map_banks(_channels(shape, count)) > BANKS - 1:
        count = (-(-count // group) - 1) * group
    part = _channels(shape, count)
    banks, resident = _banks(part, group)
    most = _most_rows(part, banks)
    if part.rows_in(part.out_height // 2, 1)[1] > most:
        return None
    rows = _full_rows(part, most)
    ranges = [(first, min(count, shape.kernels - first)) for first in range(0, shape.kernels, count)]
    tiles = []
    for row in rows:
        for channels in ranges:
            size = banks if len(rows) > 1 else min(_map_banks(_channels(shape, channels[1])), BANKS - 1)
            tiles += _tiles(part, [row], channels, max(size, 1) if len(ranges) == 1 else banks, False)
    if len(ranges) == 1 and resident:
        return [replace(tile, weight_reuse=index > 0) for index, tile in enumerate(tiles)]
    return tiles


def _channels(shape: ConvShape, count: int) -> ConvShape:
    """Return a depthwise layer of some of its channels."""
    return replace(shape, channels=min(count, shape.kernels), kernels=min(count, shape.kernels))


def _map_banks(shape: ConvShape) -> int:
    """Return the banks of all input rows."""
    return -(-shape.height * shape.row_entries // BANK_ENTRIES)


def _banks(shape: ConvShape, group: int) -> tuple[int, bool]:
    """Return the banks for features, and whether the weights of all kernels stay in CBUF."""
    features = _map_banks(shape)
    weights = -(-shape.weight_bytes(shape.kernels) // BANK_BYTES)
    passing = -(-2 * shape.weight_bytes(min(group, shape.kernels)) // BANK_BYTES)
    if features + min(weights, passing) <= BANKS:
        return features, features + weights <= BANKS
    if weights < BANKS and weights <= features:
        return BANKS - weights, True
    return max(BANKS - passing, 1), weights <= passing


def _most_rows(shape: ConvShape, banks: int) -> int:
    """Return the largest number of input rows of a task."""
    most = min(banks * BANK_ENTRIES // max(shape.row_entries, 1), MAX_SIZE)
    return min(most, MAX_ENTRIES // shape.pitch) if shape.argb else most


def _divides_kernels(shape: ConvShape, group: int, cores: int, resident: bool) -> bool:
    """Return whether cores divide the kernels instead of the rows."""
    groups = -(-shape.kernels // group)
    if shape.kernels // group < cores:
        return False
    return groups % cores == 0 or not resident or shape.out_height < cores


def _kernel_shares(partial: bool, groups: int, cores: int) -> list[Range]:
    """Return each core's groups; if they divide evenly and the last is partial, the last core takes more."""
    if not partial or groups % cores:
        return _shares(groups, cores)
    size = groups // cores - 1
    return [(core * size, size if core < cores - 1 else groups - core * size) for core in range(cores)]


def _shares(count: int, parts: int) -> list[Range]:
    """Divide a range into equal parts; the first ones are larger by one if it does not divide evenly."""
    size, more = divmod(count, parts)
    found, first = [], 0
    for part in range(parts):
        here = size + (part < more)
        found.append((first, here))
        first += here
    return [part for part in found if part[1]]


def _full_rows(shape: ConvShape, most: int) -> list[Range]:
    """Return ranges of output rows that read as many input rows as fit."""
    found, first = [], 0
    while first < shape.out_height:
        count = 1
        while first + count < shape.out_height and shape.rows_in(first, count + 1)[1] <= most:
            count += 1
        found.append((first, count))
        first += count
    return found


def _row_tasks(shape: ConvShape, part: Range, most: int) -> int:
    """Return the smallest number of equal ranges of a core's output rows that fit."""
    for count in range(1, part[1] + 1):
        ranges = ((part[0] + first, rows) for first, rows in _shares(part[1], count))
        if all(shape.rows_in(*rows)[1] <= most for rows in ranges):
            break
    return count


def _tiles(
    shape: ConvShape, rows: list[Range], kernels: Range, banks: int, resident: bool, core: int = 0
) -> list[Tile]:
    """Return the tasks of a range of kernels."""
    found = []
    for index, (first, count) in enumerate(rows):
        in_first, in_rows, pad_top = shape.rows_in(first, count)
        found.append(
            Tile(
                first,
                count,
                in_first,
                in_rows,
                pad_top,
                *kernels,
                banks,
                BANKS - banks,
                resident and index > 0,
                core,
                grains=_grains(shape, in_rows, pad_top),
            )
        )
    return found


def _grains(shape: ConvShape, rows: int, pad_top: int) -> int:
    """Return FEATURE_GRAINS: the rows of the task and of its window, up to those of a number of entries.

    It has no effect on results.  The smallest limit and `GRAINS_PIXELS` are read off the plans; nine of
    ten tabulated tasks have exactly this number, the others one that differs by a few rows.
    """
    height = (shape.window.kernel[0] - 1) * shape.window.dilations[0] + 1
    width = shape.pitch if shape.argb else shape.width
    wanted = rows + (height + pad_top if rows * width <= GRAINS_PIXELS else 0)
    if shape.argb:
        return min(wanted, 1023)
    limit = -(-GRAINS_ENTRIES // max(shape.row_entries, 1))
    least = 4 * height - (pad_top == 0 and shape.row_entries >= 256)
    return min(wanted, max(limit, least), 1023)
