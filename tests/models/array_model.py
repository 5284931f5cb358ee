"""Naive twin of the array cell: the same inputs cycle by cycle, plain numpy inside."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

ACC_BITS = 40
LATENCY = 3
"""Cycles until a pixel is in its accumulator, counted as in `rtl.npu.array.CELL_LATENCY`."""


@dataclass(kw_only=True)
class CellInputs:
    """What the cell sees in one cycle; `w_data` has 64 bytes, `f_data` 128, both int8 arrays."""

    depthwise: int = 0
    w_valid: int = 0
    w_index: int = 0
    w_stride: int = 1
    w_data: np.ndarray | None = None
    f_valid: int = 0
    f_swap: int = 0
    f_first: int = 0
    f_bank: int = 0
    f_slot: int = 0
    f_data: np.ndarray | None = None
    d_valid: int = 0
    d_bank: int = 0
    d_slot: int = 0
    d_octet: int = 0


class ArrayModel:
    """State of one cell.

    Attributes
    ----------
    acc : int64 array of shape (2 banks, 16 slots, 64 lanes), wrapped to 40 bits.
    sum : int64 array of the same shape, modulo 2**32.
    o_acc, o_sum : 8 values each, what the outputs show after the last `step`.
    """

    def __init__(self) -> None:
        self.acc = np.zeros((2, 16, 64), np.int64)
        self.sum = np.zeros((2, 16, 64), np.int64)
        self.o_acc = np.zeros(8, np.int64)
        self.o_sum = np.zeros(8, np.int64)
        self._shadow = np.zeros((32, 32), np.int64)
        self._active = np.zeros((32, 32), np.int64)
        self._under_way: deque = deque([None] * (LATENCY - 1))

    def step(self, i: CellInputs) -> None:
        """One clock edge."""
        if i.d_valid:
            lanes = slice(8 * i.d_octet, 8 * i.d_octet + 8)
            self.o_acc = self.acc[i.d_bank, i.d_slot, lanes].copy()
            self.o_sum = self.sum[i.d_bank, i.d_slot, lanes].copy()
        if i.f_valid and i.f_swap:
            self._active = self._shadow.copy()
        self._under_way.append(self._products(i) if i.f_valid else None)
        self._accumulate(self._under_way.popleft())
        if i.w_valid:
            chunk = np.asarray(i.w_data, np.int64)
            if i.w_stride == 0:
                self._shadow[4 * i.w_index : 4 * i.w_index + 4, :16] = chunk.reshape(4, 16)
            else:
                self._shadow[2 * i.w_index : 2 * i.w_index + 2] = chunk.reshape(2, 32)

    def _products(self, i: CellInputs) -> tuple:
        features = np.asarray(i.f_data, np.int64)
        if i.depthwise:
            acc = features[:64] * self._active[:2].reshape(64)
            total = features[:64].copy()
        else:
            acc = self._active @ features[:32]
            total = np.full(32, features[:32].sum())
        return i.f_first, i.f_bank, i.f_slot, acc, total

    def _accumulate(self, pixel: tuple | None) -> None:
        if pixel is None:
            return
        first, bank, slot, acc, total = pixel
        lanes = slice(0, len(acc))
        if first:
            self.acc[bank, slot, lanes] = 0
            self.sum[bank, slot, lanes] = 0
        wrapped = (self.acc[bank, slot, lanes] + acc) & ((1 << ACC_BITS) - 1)
        self.acc[bank, slot, lanes] = (wrapped ^ (1 << (ACC_BITS - 1))) - (1 << (ACC_BITS - 1))
        self.sum[bank, slot, lanes] = (self.sum[bank, slot, lanes] + total) % (1 << 32)
