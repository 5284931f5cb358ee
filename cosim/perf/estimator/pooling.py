"""Cycles of a task of the PPU whose input is there: windows open at each position of it."""

from __future__ import annotations

from cosim.perf.estimator.features import TaskShape

SURFACE_CYCLES = 1.0
"""Of each surface, beside its rows."""
FINISH_CYCLES = 2
"""Of an output atom in the last step, which serves 64 bits a cycle."""


def steps_of_rows(s: TaskShape) -> float:
    """Cycles of all rows of all surfaces, were the input there."""
    rows: dict[tuple[bool, int, bool], float] = {}
    total = SURFACE_CYCLES
    for key in _axis(s.kernel_y, s.stride, s.pad, s.in_height, s.rows):
        if key not in rows:
            rows[key] = _pool_row(s, *key)
        total += rows[key]
    return s.groups * max(total, FINISH_CYCLES * s.pixels)


def _axis(kernel: int, stride: int, pad: int, size: int, out: int) -> list[tuple[bool, int, bool]]:
    """Positions that the PPU walks: inside the input, windows open, one closes (rtl/npu/ppu_windows.py)."""
    found = []
    at, begun, lowest, open_ = -pad, 0, 0, 0
    while True:
        opens = at == begun * stride - pad and begun < out
        now = open_ + opens
        closes = now > 0 and at == lowest * stride - pad + kernel - 1
        found.append((0 <= at < size, now, closes))
        if at >= size - 1 and lowest + closes >= out:
            return found
        open_ = now - closes
        begun += opens
        lowest += closes
        at += 1


def _pool_row(s: TaskShape, inside: bool, open_rows: int, closes_row: bool) -> float:
    """Cycles of a row (rtl/npu/ppu.py).

    Each position serves its open windows, the one that closes first; it goes to the open rows, one a cycle,
    and where a row of windows closes too, to the last step.  The next row begins when all have gone.
    """
    if inside:
        columns = _axis(s.kernel_x, s.stride_x, s.pad_x, s.in_width, s.row_pixels)
        positions = [(max(windows, 1), closes and open_rows > 0) for _, windows, closes in columns]
    else:
        positions = [(1, True)] * s.row_pixels if open_rows else [(1, False)]
    now = free = 0
    finished = -FINISH_CYCLES
    for windows, closes in positions:
        if closes:
            now = max(now, free)
            gone = now + 1
            if closes_row:
                gone = finished = max(gone, finished + FINISH_CYCLES)
            free = gone + open_rows - 1
        now += windows
    return max(now, free + 1) + 1
