"""How a convolution is cut into tasks that fit CBUF (HARDWARE 3.8, docs/hardware.md 2).

Tiles are ranges of kernels (outer) and of output rows (inner).  Among all splits of the twelve banks
the one with the least DRAM traffic is taken; fewer tasks break a tie.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

from sw.compiler.graph import ModelError, Window
from sw.compiler.npu_limits import CONV_DILATION, CONV_KERNEL, CONV_PAD, CONV_STRIDE
from sw.layouts import depthwise_bytes, padded_channels

BANKS = 12
BANK_BYTES = 32 * 1024
ENTRY_BYTES = 64
BANK_ENTRIES = BANK_BYTES // ENTRY_BYTES
STRIPE = 16
"""Output pixels computed with one set of weights (HARDWARE Q21)."""
SLAB_LIMIT = 2048
"""(slabs - 1) * width must stay below: the slab base has 11 bits (HARDWARE 3.8)."""
MAX_SIZE = 2047
"""Largest width and height of one task (HARDWARE 3.11)."""
MAX_ENTRIES = 2**15 - 1
DDR_BYTES = 23
"""Bytes that DRAM moves a cycle, all cores together (HARDWARE 9.6)."""
JOB_CYCLES = 1500
"""Cycles that a layer must win to be worth a job on several cores (our estimate)."""
TASK_BYTES = 32768
"""What a task is worth in DRAM bytes when splits are compared (about 1000 cycles)."""


@dataclass(frozen=True)
class ConvShape:
    """What tiling needs to know of a convolution (int8).

    `argb` counts the interleaved channels of a first layer, 0 for NC1HWC2; `pitch` is its row pitch
    in pixels.  `channels` are real ones; `stored_channels` whole atoms.
    """

    channels: int
    height: int
    width: int
    kernels: int
    out_height: int
    out_width: int
    window: Window
    depthwise: bool
    argb: int = 0
    pitch: int = 0
    insert: int = 1
    """Distance of the input's rows in a transposed convolution."""
    itemsize: int = 1
    """Bytes of an element: int8 or fp16."""

    @property
    def stored_channels(self) -> int:
        """Input channels in whole atoms."""
        return self.atoms * (16 // self.itemsize)

    @property
    def atoms(self) -> int:
        """Atoms of a pixel."""
        return -(-self.channels * self.itemsize // 16)

    @property
    def taps(self) -> int:
        """Kernel elements."""
        return self.window.kernel[0] * self.window.kernel[1]

    @property
    def pixel_cycles(self) -> int:
        """Cycles of a pixel and kernel group: tiles of the array, or elements drained (HARDWARE 9.6)."""
        if self.depthwise:
            return self.taps
        return max(self.taps * -(-self.channels // 32), 4 // self.itemsize)

    @property
    def row_entries(self) -> int:
        """CBUF entries of one row: slabs of four atoms, three atoms stored as four."""
        if self.argb:
            return -(-self.pitch * argb_pixel_bytes(self.argb) // ENTRY_BYTES)
        full, rest = divmod(self.atoms, 4)
        if rest == 3:
            full, rest = full + 1, 0
        return full * self.width + -(-rest * self.width // 4)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row in DRAM."""
        return self.pitch * self.argb if self.argb else self.width * self.atoms * 16

    def weight_bytes(self, kernels: int) -> int:
        """Bytes of the weights of `kernels` kernels (channels, when depthwise)."""
        if self.depthwise:
            return depthwise_bytes((kernels, *self.window.kernel), self.itemsize)
        if self.itemsize > 1:
            return kernels * padded_channels(self.channels, self.itemsize) * self.itemsize * self.taps
        return (kernels + kernels % 2) * self.stored_channels * self.taps

    def rows_in(self, first: int, rows: int) -> tuple[int, int, int]:
        """First input row, number of input rows and padding above of `rows` output rows from `first`."""
        stride, pad = self.window.strides[0], self.window.pads[0]
        reach = (self.window.kernel[0] - 1) * self.window.dilations[0] + 1
        top = first * stride - pad
        bottom = (first + rows - 1) * stride - pad + reach
        if self.insert > 1:  # rows between the real ones need nothing
            start = min(max(top, 0) // self.insert, self.height - 1)
            end = max(min((bottom - 1) // self.insert + 1, self.height), start + 1)
            return start, end - start, start * self.insert - top
        start = min(max(top, 0), self.height - 1)
        end = max(min(bottom, self.height), start + 1)
        return start, end - start, start - top


def argb_pixel_bytes(channels: int) -> int:
    """CBUF bytes of a first-layer int8 pixel: classes of 1, 2 and 4 channels (docs/hardware.md 2.3)."""
    return 4 * (1, 2, 4, 4)[channels - 1]


@dataclass(frozen=True)
class Tile:
    """One task: output rows and kernels, the input rows they need, and its CBUF split."""

    first_row: int
    rows: int
    in_first: int
    in_rows: int
    pad_top: int
    first_kernel: int
    kernels: int
    data_banks: int
    weight_banks: int
    weight_reuse: bool
    core: int = 0


@dataclass(frozen=True)
class _Choice:
    cost: int
    tasks: int
    kernels: int
    weight_banks: int
    rows: tuple[tuple[int, int], ...]
    resident: bool


_WEIGHT_BANKS: ContextVar[int | None] = ContextVar("weight_banks", default=None)


@contextmanager
def fixed_weight_banks(banks: int) -> Iterator[None]:
    """Give weights so many banks, 1 to 11, and features the rest, in convolutions planned inside that fit."""
    if not 1 <= banks < BANKS:
        raise ValueError(f"weights take 1 to {BANKS - 1} banks, not {banks}")
    token = _WEIGHT_BANKS.set(banks)
    try:
        yield
    finally:
        _WEIGHT_BANKS.reset(token)


def plan_tiles(shape: ConvShape, what: str, cores: int = 1) -> list[Tile]:
    """Cut a convolution into tiles.

    With several cores rows or kernels are shared out where that is worth a job of its own; the tiles
    of a core follow each other.

    Raises
    ------
    ModelError
        if no split fits; `what` names the layer.
    """
    _check_limits(shape, what)
    group = _group(shape)
    best = _best(shape, shape.out_height, shape.kernels)
    if best is None:
        raise ModelError(
            f"{what}: {shape.window.kernel} window of rows of {shape.row_entries} CBUF entries and "
            f"kernel groups of {shape.weight_bytes(min(group, shape.kernels))} bytes do not fit CBUF"
        )
    tiles = _tiles(shape, best)
    for row_parts, kernel_parts in ((cores, 1), (1, cores)) if cores > 1 else ():
        rows = -(-shape.out_height // row_parts)
        kernels = -(-shape.kernels // group // kernel_parts) * group
        if rows == shape.out_height and kernels >= shape.kernels:
            continue
        choice = _best(shape, rows, min(kernels, shape.kernels))
        if choice is None:
            continue
        shared = _share(_tiles(shape, choice), cores)
        if _longest(shape, shared) + JOB_CYCLES < _longest(shape, tiles):
            tiles = shared
    return tiles


def _group(shape: ConvShape) -> int:
    return 64 if shape.depthwise else 32 // shape.itemsize


def _best(shape: ConvShape, rows: int, kernels: int) -> _Choice | None:
    """The cheapest tiling with at most so many output rows and kernels a tile."""
    fixed = _WEIGHT_BANKS.get()
    found = _cheapest(shape, rows, kernels, range(fixed, fixed + 1)) if fixed else None
    return found or _cheapest(shape, rows, kernels, range(1, BANKS))


def _cheapest(shape: ConvShape, rows: int, kernels: int, splits: range) -> _Choice | None:
    """The cheapest one with one of these numbers of banks of weights."""
    group = _group(shape)
    best: _Choice | None = None
    for count in _kernel_tiles(shape, group):
        if count > kernels:
            continue
        for weight_banks in splits:
            choice = _try(shape, count, weight_banks, min(count, group), rows)
            if choice and (best is None or (choice.cost, choice.tasks) < (best.cost, best.tasks)):
                best = choice
    return best


def _share(tiles: list[Tile], cores: int) -> list[Tile]:
    """Give every core a part of the rows, or of the kernels where rows are not cut."""
    by_rows = len({tile.first_row for tile in tiles}) >= cores
    keys = sorted({tile.first_row if by_rows else tile.first_kernel for tile in tiles})
    core_of = {key: index * cores // len(keys) for index, key in enumerate(keys)}
    placed = [replace(tile, core=core_of[tile.first_row if by_rows else tile.first_kernel]) for tile in tiles]
    result: list[Tile] = []
    for tile in sorted(placed, key=lambda t: t.core):  # stable: a core's tiles keep their order
        before = result[-1] if result and result[-1].core == tile.core else None
        same = before is not None and before.first_kernel == tile.first_kernel
        result.append(replace(tile, weight_reuse=tile.weight_reuse and same))
    return result


def _longest(shape: ConvShape, tiles: list[Tile]) -> int:
    """Cycles that the busiest core needs at least: the array's, or those of its share of DRAM."""
    array: dict[int, int] = {}
    moved: dict[int, int] = {}
    group = _group(shape)
    for tile in tiles:
        pixels = -(-tile.rows * shape.out_width // STRIPE) * STRIPE
        taps = shape.pixel_cycles
        groups = -(-tile.kernels // group)
        array[tile.core] = array.get(tile.core, 0) + pixels * groups * taps
        weights = 0 if tile.weight_reuse else shape.weight_bytes(tile.kernels)
        total = tile.in_rows * shape.row_bytes + weights + tile.rows * shape.out_width * groups * group
        moved[tile.core] = moved.get(tile.core, 0) + total
    cores = len(moved)
    return max(max(array[c], moved[c] * cores // DDR_BYTES) for c in array)


def _check_limits(shape: ConvShape, what: str) -> None:
    if max(shape.width, shape.out_width) > MAX_SIZE:
        raise ModelError(f"{what}: width {shape.width} is past the limit of {MAX_SIZE}")
    window, most = shape.window, (CONV_KERNEL, CONV_STRIDE, CONV_DILATION)
    if any(
        max(has) > m for has, m in zip((window.kernel, window.strides, window.dilations), most, strict=True)
    ):
        raise ModelError(
            f"{what}: kernel up to {most[0]}, stride up to {most[1]}, dilation up to {most[2]}; not {window}"
        )
    if max(window.pads[:2]) > CONV_PAD:
        raise ModelError(f"{what}: padding {window.pads} is past the limit of {CONV_PAD}")
    if not shape.argb and (-(-shape.atoms // 4) - 1) * shape.width >= SLAB_LIMIT:
        raise ModelError(f"{what}: {shape.channels} channels of rows {shape.width} wide exceed CBUF's slabs")


def _kernel_tiles(shape: ConvShape, group: int) -> list[int]:
    """Kernel counts of a tile worth trying, largest first."""
    if shape.depthwise:
        return [shape.kernels]
    counts = {shape.kernels, min(16, shape.kernels)}
    groups = -(-shape.kernels // group)
    counts |= {group * -(-groups // parts) for parts in range(2, groups + 1)}
    return sorted((n for n in counts if n <= shape.kernels), reverse=True)


def _try(shape: ConvShape, kernels: int, weight_banks: int, group: int, most: int) -> _Choice | None:
    """The tiling with this many kernels a tile and this split of the banks, or None."""
    capacity = (BANKS - weight_banks) * BANK_ENTRIES
    max_rows = min(capacity // shape.row_entries if shape.row_entries else MAX_SIZE, MAX_SIZE)
    if shape.argb:
        max_rows = min(max_rows, MAX_ENTRIES // shape.pitch)
    rows = _row_tiles(shape, max_rows, most)
    if rows is None:
        return None
    space = weight_banks * BANK_BYTES
    whole = shape.weight_bytes(kernels)
    resident = whole <= space
    stripes = max(-(-count * shape.out_width // STRIPE) for _, count in rows)
    if not resident and stripes > 1 and shape.weight_bytes(group) > space:
        return None
    tiles = -(-shape.kernels // kernels)
    features = sum(shape.rows_in(first, count)[1] for first, count in rows) * shape.row_bytes
    weights = shape.weight_bytes(shape.kernels) * (1 if resident else len(rows))
    tasks = tiles * len(rows)
    cost = tiles * features + weights + tasks * TASK_BYTES
    return _Choice(cost, tasks, kernels, weight_banks, tuple(rows), resident)


def _row_tiles(shape: ConvShape, max_rows: int, most: int) -> list[tuple[int, int]] | None:
    """(first, count) ranges of output rows, evenly sized: at most `max_rows` rows read, `most` made."""
    whole = shape.out_height <= min(MAX_SIZE, most)
    if whole and shape.rows_in(0, shape.out_height)[1] <= max_rows:
        return [(0, shape.out_height)]
    if shape.insert > 1:
        return _aligned_row_tiles(shape, max_rows, most)
    for parts in range(2, shape.out_height + 1):
        size = -(-shape.out_height // parts)
        if size > most:
            continue
        if size * parts - size >= shape.out_height:
            continue
        ranges = [(first, min(size, shape.out_height - first)) for first in range(0, shape.out_height, size)]
        if all(shape.rows_in(first, count)[1] <= max_rows for first, count in ranges):
            return ranges
    return None


def _aligned_row_tiles(shape: ConvShape, max_rows: int, most: int) -> list[tuple[int, int]] | None:
    """Row ranges of a transposed convolution: each but the first begins its window at a real row."""
    first = shape.window.pads[0] % shape.insert
    for size in range(-(-shape.out_height // shape.insert) * shape.insert, 0, -shape.insert):
        starts = sorted({0, *range(first, shape.out_height, size)})
        ends = [*starts[1:], shape.out_height]
        ranges = [(a, b - a) for a, b in zip(starts, ends, strict=True)]
        if max(count for _, count in ranges) > max(most, shape.insert):
            continue
        if all(shape.rows_in(a, count)[1] <= max_rows for a, count in ranges):
            return ranges
    return None


def _tiles(shape: ConvShape, choice: _Choice) -> list[Tile]:
    tiles = []
    used = max(shape.rows_in(first, count)[1] for first, count in choice.rows) * shape.row_entries
    needed = max(1, -(-used // BANK_ENTRIES))
    data_banks = BANKS - choice.weight_banks
    if choice.weight_banks != _WEIGHT_BANKS.get():
        data_banks = min(data_banks, needed)
    for kernel in range(0, shape.kernels, choice.kernels):
        for index, (first, count) in enumerate(choice.rows):
            in_first, in_rows, pad_top = shape.rows_in(first, count)
            tiles.append(
                Tile(
                    first_row=first,
                    rows=count,
                    in_first=in_first,
                    in_rows=in_rows,
                    pad_top=pad_top,
                    first_kernel=kernel,
                    kernels=min(choice.kernels, shape.kernels - kernel),
                    data_banks=data_banks,
                    weight_banks=BANKS - data_banks,
                    weight_reuse=choice.resident and index > 0,
                )
            )
    return tiles
