"""Cycles of a task of the PPU whose input is there: windows open at each position of it."""

from __future__ import annotations

from cosim.perf.estimator.features import TaskShape
from cosim.perf.estimator.memory import Coefficients


def steps_of_rows(s: TaskShape, c: Coefficients) -> float:
    """Cycles of all rows, were the input there."""
    rows: dict[tuple[bool, int], float] = {}
    total = 0.0
    for inside, open_, _ in _axis(s.kernel_y, s.stride, s.pad, s.in_height, s.rows):
        key = inside, open_
        if key not in rows:
            rows[key] = _pool_row(s, inside, open_, c["pool_row"])
        total += rows[key]
    return s.groups * (max(total, 2 * s.pixels) + c["pool_surface"])


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


def _pool_row(s: TaskShape, inside: bool, open_rows: int, turn: float) -> float:
    """Cycles of a row: each position serves its open windows; what closes goes to the open rows.

    The next row begins `turn` cycles after the last window has closed; positions behind it pass meanwhile.
    """
    if not inside:
        return turn + (s.row_pixels * max(open_rows, 1) if open_rows else 1.0)
    now = free = last = 0.0
    for _, windows, closes in _axis(s.kernel_x, s.stride_x, s.pad_x, s.in_width, s.row_pixels):
        now += max(windows, 1)
        if closes:
            last = now
            if open_rows:
                now = max(now, free + 1)
                last = free = now + open_rows - 1
    return max(now, last + turn)
