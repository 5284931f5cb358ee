"""Programs of the DPU on parts of tensors, where the sizes of whole tensors exceed the registers.

The pixels of a surface lie one after another, so that rows and columns of a task that treats all of them
alike need not be those of the tensor: a surface of any size is a rectangle of whole lines and a rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from rkcosim.compiler.limits import MAX_NOTCH
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.programs.task import Ref, Settings
from rkcosim.spec.layouts import ATOM_BYTES

MOST_PIXELS = 8192
"""Largest number of columns, of rows and of channels of a task on DPU and DPU_RDMA (13 bits, less 1)."""
CHANNEL_STEP = 4096
"""Channels of a task of a tensor with too many: whole groups of 32, as the tables of NRDMA need."""


@dataclass(frozen=True)
class CubePart:
    """The pixels and channels of one task.

    Members
    -------
    atom
        The first pixel, counted from that of the surface.
    rows, columns
        Lines of the task and their pixels.
    channel, channels
        The first channel, and how many there are.
    """

    atom: int
    rows: int
    columns: int
    channel: int
    channels: int


def parts(place: Place) -> list[CubePart]:
    """Divide a whole tensor into parts whose sizes fit the registers, as few as possible."""
    channels, rows, columns = place.aligned_channels, *place.cube[1:]
    shapes = [(0, rows, columns)]
    if max(rows, columns) > MOST_PIXELS:
        lines, rest = divmod(rows * columns, MOST_PIXELS)
        shapes = [
            (line * MOST_PIXELS, min(lines - line, MOST_PIXELS), MOST_PIXELS)
            for line in range(0, lines, MOST_PIXELS)
        ]
        shapes += [(lines * MOST_PIXELS, 1, rest)] if rest else []
    step = CHANNEL_STEP if channels > MOST_PIXELS else channels
    return [
        CubePart(*shape, first, min(step, channels - first))
        for first in range(0, channels, step)
        for shape in shapes
    ]


def on_parts(settings: Settings, place: Place) -> list[Settings]:
    """Return the programs of an element-wise task on the parts of a tensor.

    Parameters
    ----------
    settings
        The program for the whole tensor: DPU and DPU_RDMA, without notches.
    place
        The tensor that is written; those that are read have the same cube, but for an operand with one number
        for each channel.
    """
    found = parts(place)
    return [settings] if len(found) == 1 else [_on_part(settings, place, part) for part in found]


def _on_part(whole: Settings, place: Place, part: CubePart) -> Settings:
    settings = Settings(list(whole.items))
    surface, rows, columns = place.surface, part.rows - 1, part.columns - 1
    last, first = part.channels - 1, part.channel // place.c2
    settings.change("DPU", "DATA_CUBE_WIDTH", WIDTH=columns)
    settings.change("DPU", "DATA_CUBE_HEIGHT", HEIGHT=rows)
    settings.change("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=last, CHANNEL=last)
    settings.change("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=last)
    settings.change("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=rows, WIDTH_WDMA=columns)
    settings.change("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=columns)
    settings.change("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=rows)
    settings.change("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=last)
    ahead = (first * surface + part.atom) * ATOM_BYTES
    _ahead(settings, "DPU", "DST_BASE_ADDR", ahead)
    _ahead(settings, "DPU_RDMA", "SRC_BASE_ADDR", ahead)
    notch = surface - part.rows * part.columns
    settings.change("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=notch)
    if settings.last("DPU_RDMA", "ERDMA_CFG").get("ERDMA_DATA_MODE"):
        _ahead(settings, "DPU_RDMA", "EW_BASE_ADDR", ahead)
        settings.change("DPU_RDMA", "EW_SURF_NOTCH", EW_SURF_NOTCH=notch)
    else:
        stride = settings.last("DPU_RDMA", "EW_SURF_STRIDE").get("EW_SURF_STRIDE", 0)
        assert isinstance(stride, int)
        _ahead(settings, "DPU_RDMA", "EW_BASE_ADDR", first * stride * ATOM_BYTES)
    use = settings.last("DPU_RDMA", "NRDMA_CFG").get("NRDMA_DATA_USE", 0)
    assert isinstance(use, int)
    _ahead(settings, "DPU_RDMA", "BN_BASE_ADDR", part.channel * ((use & 1) * 4 + (use >> 2 & 1) * 2))
    return settings


def _ahead(settings: Settings, block: str, register: str, count: int) -> None:
    """Move an address `count` bytes on; 0 stands for no address."""
    (name, value), *_ = settings.last(block, register).items()
    if isinstance(value, Ref):
        settings.change(block, register, **{name: value + count})


@dataclass(frozen=True)
class LineRange:
    """Lines and pixels of a task that does not treat whole lines: first row and column, and their numbers."""

    row: int
    rows: int
    column: int
    columns: int


def ranges(size: tuple[int, int], most_columns: int, notch: int, factor: int = 1) -> list[LineRange]:
    """Divide rows and columns of a map into ranges, as few as possible.

    Parameters
    ----------
    size
        Rows and columns.
    most_columns
        Largest number of columns of a range.
    notch
        Atoms between the lines of the widest tensor that do not belong to the map; if they are more than the
        registers hold, each line is a range, which needs no distance to the next one.
    factor
        Atoms of a column in that tensor.
    """
    rows, columns = size
    count = -(-columns // most_columns)
    width = -(-columns // count)
    most_rows = MOST_PIXELS if notch + factor * (columns - width) <= MAX_NOTCH else 1
    return [
        LineRange(row, min(most_rows, rows - row), column, min(width, columns - column))
        for row in range(0, rows, most_rows)
        for column in range(0, columns, width)
    ]
