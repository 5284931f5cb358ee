"""How a convolution is divided into tasks that fit CBUF [HW 4.4].

Tiles are ranges of kernels (outer) and of output rows (inner).  Among all divisions of the twelve banks
the one with the least DRAM traffic is used; ties are broken by fewer tasks.  Only if a layer does not fit in
this way it is first divided into ranges of channels (depthwise) and of output columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TypeVar

from rkcosim.compiler.constraints import UnmetError
from rkcosim.compiler.constraints.convolutions import fits_cbuf, task_width, window_limits, window_padding
from rkcosim.compiler.graph import Window
from rkcosim.compiler.limits import MAX_NOTCH, MAX_SIZE
from rkcosim.spec.config import ENTRY_BYTES
from rkcosim.spec.layouts import depthwise_bytes, padded_channels
from rkcosim.spec.types import BANK_BYTES, BANKS, STRIPE

BLOCK_BYTES = 64
"""Bytes of one tap of a whole depthwise block: 64 channels of int8, 32 of fp16."""

T = TypeVar("T")

MOST_KERNELS = 8192
"""Kernels of a task (DATAOUT_CHANNEL and ORIG_CHANNEL have 13 bits, less 1)."""
SLAB_LIMIT = 2048
"""(slabs - 1) * width must be below this: the slab base has 11 bits [HW 4.5.4]."""
MAX_ENTRIES = 2**15 - 1
DDR_BYTES = 23
"""Bytes that DRAM moves per cycle for all cores together [HW 12.6]."""
SHARE_OF_ONE = 2
"""One core has one of so many parts of this bandwidth: additions on three cores are 1.65 times as fast as on
one, concatenations 1.56 times [HW 12.6]."""
JOB_CYCLES = 1500
"""Cycles that a division must save to justify a job on several cores (our estimate), beside what the driver
takes for the submit (`rkcosim.compiler.sharing`)."""
TASK_BYTES = 32768
"""Cost of a task in DRAM bytes when divisions are compared (about 1000 cycles)."""
BANK_SIZES = range(4 * 1024, 64 * 1024 + 1)
"""Bytes of a bank of other CBUFs for which can be planned; the registers count at most 32767 entries."""
MAX_COLUMN_PARTS = 1024
"""Largest number of ranges of output columns."""


@dataclass(frozen=True)
class ConvShape:
    """The dimensions of a convolution that tiling needs.

    `argb` is the number of interleaved channels of a first layer, 0 for NC1HWC2; `pitch` is its row pitch
    in pixels.  `channels` are real channels; `stored_channels` are rounded up to whole atoms.
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
    """Distance of the input's rows in a transposed convolution; 1 otherwise."""
    itemsize: int = 1
    """Bytes of an element: 1 for int8, 2 for fp16."""
    insert_columns: int = 1
    """Distance of the input's columns in a transposed convolution; 1 otherwise."""
    table: bool = False
    """Whether the DPU looks up an activation in its tables."""

    @property
    def stored_channels(self) -> int:
        """Input channels, rounded up to whole atoms."""
        return self.atoms * (16 // self.itemsize)

    @property
    def atoms(self) -> int:
        """Atoms per pixel."""
        return -(-self.channels * self.itemsize // 16)

    @property
    def taps(self) -> int:
        """Number of kernel elements."""
        return self.window.kernel[0] * self.window.kernel[1]

    @property
    def pixel_cycles(self) -> int:
        """Cycles per pixel and kernel group: tiles of the array, or elements drained [HW 12.6]."""
        if self.depthwise:
            return self.taps
        return max(self.taps * -(-self.channels // 32), 4 // self.itemsize)

    @property
    def row_entries(self) -> int:
        """CBUF entries of one row: slabs of four atoms; three atoms are stored as four."""
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
        """Bytes of the weights of `kernels` kernels (channels if depthwise)."""
        if self.depthwise:
            return depthwise_bytes((kernels, *self.window.kernel), self.itemsize)
        if self.itemsize > 1:
            return kernels * padded_channels(self.channels, self.itemsize) * self.itemsize * self.taps
        return (kernels + kernels % 2) * self.stored_channels * self.taps

    def rows_in(self, first: int, rows: int) -> tuple[int, int, int]:
        """First input row, number of input rows and padding above for `rows` output rows from `first` on."""
        return self._inputs(0, first, rows, self.height, self.insert)

    def columns_in(self, first: int, columns: int) -> tuple[int, int, int]:
        """First input column, number of input columns and padding on the left, as `rows_in`."""
        return self._inputs(1, first, columns, self.width, self.insert_columns)

    def _inputs(self, axis: int, first: int, count: int, size: int, insert: int) -> tuple[int, int, int]:
        stride, pad = self.window.strides[axis], self.window.pads[axis]
        reach = (self.window.kernel[axis] - 1) * self.window.dilations[axis] + 1
        low = first * stride - pad
        high = (first + count - 1) * stride - pad + reach
        # Inserted rows or columns of zeros need no input.
        start = min(max(low, 0) // insert, size - 1)
        end = max(min((high - 1) // insert + 1, size), start + 1)
        return start, end - start, start * insert - low

    def part(self, columns: tuple[int, int], kernels: tuple[int, int]) -> ConvShape:
        """Return the convolution of a range (first, count) of columns and, if depthwise, of channels."""
        if columns == (0, self.out_width) and kernels == (0, self.kernels):
            return self
        _, width, left = self.columns_in(*columns)
        top, _, bottom, right = self.window.pads
        window = replace(self.window, pads=(top, left, bottom, right))
        channels = kernels[1] if self.depthwise else self.channels
        return replace(
            self, channels=channels, width=width, kernels=kernels[1], out_width=columns[1], window=window
        )


def argb_pixel_bytes(channels: int) -> int:
    """CBUF bytes of a first-layer int8 pixel: classes of 1, 2 and 4 channels [HW 4.6]."""
    return 4 * (1, 2, 4, 4)[channels - 1]


@dataclass(frozen=True)
class Tile:
    """One task: output rows and kernels, the input rows they need, and its division of CBUF."""

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
    first_column: int = 0
    columns: int = 0
    """Number of output columns; 0 for all."""
    grains: int = 0
    """FEATURE_GRAINS; 0 for the rows of a first stripe."""


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
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Context manager that sets a context variable."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def fixed_weight_banks(banks: int) -> Iterator[None]:
    """Give `banks` banks (1 to 11) to weights and the rest to features in convolutions planned inside.

    A convolution that does not fit with this division uses the best one.
    """
    if not 1 <= banks < BANKS:
        raise ValueError(f"weights take 1 to {BANKS - 1} banks, not {banks}")
    with holding(_WEIGHT_BANKS, banks):
        yield


_BANK_BYTES: ContextVar[int] = ContextVar("bank_bytes", default=BANK_BYTES)


@contextmanager
def banks_of(size: int) -> Iterator[None]:
    """Plan convolutions and products inside for a CBUF whose twelve banks have `size` bytes each.

    This is another NPU than the RK3588's (`rkcosim.spec.config.NpuConfig.cbuf_bank_bytes`).

    Raises
    ------
    ValueError
        If the size is no multiple of two entries, or not one of `BANK_SIZES`.
    """
    if size not in BANK_SIZES or size % (2 * ENTRY_BYTES):
        limits = f"{BANK_SIZES[0]} to {BANK_SIZES[-1]} bytes, a multiple of {2 * ENTRY_BYTES}"
        raise ValueError(f"a bank must have {limits}, not {size}")
    with holding(_BANK_BYTES, size):
        yield


def bank_bytes() -> int:
    """Return the bytes of a bank of the CBUF for which is planned (`banks_of`)."""
    return _BANK_BYTES.get()


def _bank_entries() -> int:
    return _BANK_BYTES.get() // ENTRY_BYTES


Tiler = Callable[["ConvShape", int], "list[Tile] | None"]
"""Divides a convolution for a number of cores; None: it has no division of its own."""

_TILER: ContextVar[Tiler | None] = ContextVar("tiler", default=None)


@contextmanager
def planned_by(tiler: Tiler | None) -> Iterator[None]:
    """Divide the convolutions planned inside by a function; those for which it has None as usual."""
    with holding(_TILER, tiler):
        yield


def is_planned_by_another() -> bool:
    """Whether convolutions planned now are divided as another compiler divides them (`planned_by`)."""
    return _TILER.get() is not None


def plan_tiles(shape: ConvShape, what: str, cores: int = 1) -> list[Tile]:
    """Cut a convolution into tiles.

    With several cores, rows or kernels are divided among them if that saves more cycles than a separate job
    costs; the tiles of a core follow each other.  Whether it is worth a submit is for the planner to decide.

    Raises
    ------
    ModelError
        If no division fits; `what` names the layer.
    """
    _check_window(shape, what)
    tiler = _TILER.get()
    given = tiler(shape, cores) if tiler else None
    if given is not None:
        return given
    problem = _problem(shape, what)
    if problem is None:
        return _whole_tiles(shape, cores)
    for columns, kernels in _divisions(shape):
        tiles: list[Tile] = []
        for some, others in itertools.product(columns, kernels):
            part = shape.part(some, others)
            if _problem(part, what) or (best := _best(part, _most_rows(shape, some), part.kernels)) is None:
                break
            for tile in _tiles(part, best):
                kernel, width = tile.first_kernel + others[0], some[1] if len(columns) > 1 else 0
                tiles.append(replace(tile, first_kernel=kernel, first_column=some[0], columns=width))
        else:
            return tiles
    raise problem


def _most_rows(shape: ConvShape, columns: tuple[int, int]) -> int:
    """Return the rows of a tile of some columns: one if the rest of a line exceeds the writer's notch."""
    return shape.out_height if shape.out_width - columns[1] <= MAX_NOTCH else 1


def _divisions(shape: ConvShape) -> Iterator[tuple[list[tuple[int, int]], list[tuple[int, int]]]]:
    """Divisions into ranges (first, count) of output columns and of kernels; few ranges first."""
    kernel_sizes = [shape.kernels]
    if shape.depthwise:
        groups = -(-shape.kernels // _group(shape))
        kernel_sizes += sorted({_group(shape) * -(-groups // n) for n in range(2, groups + 1)}, reverse=True)
    kernel_sizes = [size for n, size in enumerate(kernel_sizes) if n == 0 or size < shape.kernels]
    column_sizes = [shape.out_width]
    if not shape.argb:
        step = shape.insert_columns
        steps = -(-shape.out_width // step)
        sizes = {-(-steps // n) * step for n in range(2, min(steps, MAX_COLUMN_PARTS) + 1)}
        column_sizes += sorted((n for n in sizes if n < shape.out_width), reverse=True)
    pairs = [(columns, kernels) for columns in column_sizes for kernels in kernel_sizes]
    pairs.sort(key=lambda pair: -(-shape.out_width // pair[0]) * -(-shape.kernels // pair[1]))
    for columns, kernels in pairs:
        # The window of each range but the first begins at a real column.
        first = shape.window.pads[1] % shape.insert_columns if columns < shape.out_width else 0
        starts = sorted({0, *range(first, shape.out_width, columns)})
        ends = [*starts[1:], shape.out_width]
        yield (
            [(a, b - a) for a, b in zip(starts, ends, strict=True)],
            [(k, min(kernels, shape.kernels - k)) for k in range(0, shape.kernels, kernels)],
        )


def _whole_tiles(shape: ConvShape, cores: int) -> list[Tile]:
    """Return the tiles of a convolution that needs no division by columns, for one or several cores."""
    best = _best(shape, shape.out_height, shape.kernels)
    assert best is not None
    tiles = _tiles(shape, best)
    if cores == 1:
        return tiles
    shared = [_share(_tiles(shape, choice), cores) for choice in _divided(shape, cores)]
    best_shared = min(shared, key=lambda one: _longest(shape, one), default=tiles)
    return best_shared if saved_cycles(shape, tiles, best_shared) > 0 else tiles


def saved_cycles(shape: ConvShape, alone: list[Tile], shared: list[Tile]) -> int:
    """Return the cycles that a division among cores saves, less those that a separate job costs the NPU.

    `alone` and `shared` are tiles of one core and of several.
    """
    return _longest(shape, alone) - _longest(shape, shared) - JOB_CYCLES


def _divided(shape: ConvShape, cores: int) -> Iterator[_Choice]:
    """Yield tilings for several cores: divided by rows, and by kernels."""
    if shape.out_height > 1:
        by_rows = _best(shape, -(-shape.out_height // cores), shape.kernels)
        if by_rows is not None:
            yield by_rows
            yield from _with_even_rows(shape, by_rows, cores)
    group = _group(shape)
    kernels = -(-shape.kernels // group // cores) * group
    if kernels < shape.kernels:
        if (best := _best(shape, shape.out_height, kernels)) is not None:
            yield best
        if not shape.depthwise and kernels <= MOST_KERNELS:  # one range of kernels for each core
            fixed = _WEIGHT_BANKS.get()
            splits = range(fixed, fixed + 1) if fixed else range(1, BANKS)
            found = (_try(shape, kernels, banks, group, shape.out_height) for banks in splits)
            if (exact := min(filter(None, found), key=lambda one: one.cost, default=None)) is not None:
                yield exact


def _with_even_rows(shape: ConvShape, choice: _Choice, cores: int) -> Iterator[_Choice]:
    """Yield the tiling with as many ranges of rows for each core, if no range needs more of CBUF."""
    parts = -(-len(choice.rows) // cores) * cores
    if shape.insert > 1 or parts > shape.out_height:
        return
    starts = [number * shape.out_height // parts for number in range(parts + 1)]
    rows = tuple((a, b - a) for a, b in itertools.pairwise(starts))
    both = rows, choice.rows
    written = [max(count for _, count in one) for one in both]
    read = [max(shape.rows_in(first, count)[1] for first, count in one) for one in both]
    if written[0] <= written[1] and read[0] <= read[1]:
        yield replace(choice, rows=rows)


def _group(shape: ConvShape) -> int:
    return 64 if shape.depthwise else 32 // shape.itemsize


def _best(shape: ConvShape, rows: int, kernels: int) -> _Choice | None:
    """Return the cheapest tiling with at most `rows` output rows and `kernels` kernels per tile."""
    fixed = _WEIGHT_BANKS.get()
    found = _cheapest(shape, rows, kernels, range(fixed, fixed + 1)) if fixed else None
    return found or _cheapest(shape, rows, kernels, range(1, BANKS))


def _cheapest(shape: ConvShape, rows: int, kernels: int, splits: range) -> _Choice | None:
    """Return the cheapest tiling with one of these numbers of banks for weights."""
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
    """Give every core a part of the rows, or of the kernels if there are too few ranges of rows."""
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
    """Lower bound of the cycles of the busiest core: those of the array, or of its share of the bandwidth.

    One core does not reach the bandwidth of all, so that a layer that only moves data is faster on several.
    """
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
    sharing = max(len(moved), SHARE_OF_ONE)
    return max(max(array[c], moved[c] * sharing // DDR_BYTES) for c in array)


def _check_window(shape: ConvShape, what: str) -> None:
    """Refuse windows that no division makes smaller."""
    window_limits(what, shape.window)
    window_padding(what, shape.window.pads)


def _problem(shape: ConvShape, what: str) -> UnmetError | None:
    """Return the reason why tiles of rows and kernels cannot compute a convolution, or None."""
    if (width := max(shape.width, shape.out_width)) > MAX_SIZE:
        return task_width.error(what, width)
    if not shape.argb and (-(-shape.atoms // 4) - 1) * shape.width >= SLAB_LIMIT:
        return fits_cbuf.error(
            what, f"{shape.channels} channels in rows of {shape.width} exceed CBUF's slabs"
        )
    rows = shape.rows_in(shape.out_height // 2, 1)[1]
    fits = shape.argb or rows * shape.row_entries <= (BANKS - 1) * _bank_entries()
    if not fits or _best(shape, shape.out_height, shape.kernels) is None:
        least = shape.weight_bytes(min(_group(shape), shape.kernels))
        case = (
            f"a {shape.window.kernel} window over rows of {shape.row_entries} CBUF entries and kernel groups"
        )
        return fits_cbuf.error(what, f"{case} of {least} bytes do not fit CBUF")
    return None


def _kernel_tiles(shape: ConvShape, group: int) -> list[int]:
    """Numbers of kernels per tile to try, largest first."""
    if shape.depthwise:
        return [shape.kernels]
    counts = {shape.kernels, min(16, shape.kernels)}
    groups = -(-shape.kernels // group)
    counts |= {group * -(-groups // parts) for parts in range(2, groups + 1)}
    return sorted((n for n in counts if n <= min(shape.kernels, MOST_KERNELS)), reverse=True)


def _try(shape: ConvShape, kernels: int, weight_banks: int, group: int, most: int) -> _Choice | None:
    """Return the tiling with `kernels` kernels per tile and this division of the banks, or None."""
    capacity = (BANKS - weight_banks) * _bank_entries()
    max_rows = min(capacity // shape.row_entries if shape.row_entries else MAX_SIZE, MAX_SIZE)
    if shape.argb:
        max_rows = min(max_rows, MAX_ENTRIES // shape.pitch)
    rows = _row_tiles(shape, max_rows, most)
    if rows is None:
        return None
    space = weight_banks * bank_bytes()
    whole = shape.weight_bytes(kernels)
    resident = whole <= space
    stripes = max(-(-count * shape.out_width // STRIPE) for _, count in rows)
    if not resident and stripes > 1 and shape.weight_bytes(group) > space:
        # The weights of a tile of one stripe pass through CBUF.
        rows = _row_tiles(shape, max_rows, min(most, STRIPE // shape.out_width))
        if rows is None:
            return None
    if not resident and not _halves_fit(shape, space):
        return None
    tiles = -(-shape.kernels // kernels)
    features = sum(shape.rows_in(first, count)[1] for first, count in rows) * shape.row_bytes
    weights = shape.weight_bytes(shape.kernels) * (1 if resident else len(rows))
    tasks = tiles * len(rows)
    cost = tiles * features + weights + tasks * TASK_BYTES
    return _Choice(cost, tasks, kernels, weight_banks, tuple(rows), resident)


def _halves_fit(shape: ConvShape, space: int) -> bool:
    """Whether the weights of a tile of one stripe can pass through this many bytes of CBUF.

    A depthwise group of more than one byte a channel has two blocks, and CBUF holds a tap of the second one a
    whole block behind that of the first one (the golden model's rule `cbuf.weights`).
    """
    divided = shape.depthwise and shape.itemsize > 1 and shape.channels * shape.itemsize > BLOCK_BYTES
    return not divided or BLOCK_BYTES * shape.taps <= space


def _row_tiles(shape: ConvShape, max_rows: int, most: int) -> list[tuple[int, int]] | None:
    """(first, count) ranges of output rows of even size: at most `max_rows` rows read, `most` written."""
    if most < 1:
        return None
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
    """Row ranges of a transposed convolution; the window of each but the first begins at a real row."""
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
    needed = max(1, -(-used // _bank_entries()))
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
