"""Naive model of the array cell: the same inputs in every cycle, with plain numpy and Python numbers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from tests.twins import tile_model

ACC_BITS = 48
LATENCY = 4
"""Cycles until a pixel is in its accumulator, counted as in `rkcosim.rtl.npu.array.CELL_LATENCY`; the integer
types are one cycle faster.
"""

INT8, INT16, FP16, BF16, INT4, TF32 = 0, 1, 2, 3, 6, 7
"""Codes of the types [HW 3]."""

FLOATS = {FP16: tile_model.FP16, BF16: tile_model.BF16, TF32: tile_model.TF32}
KERNELS = {INT4: 64, INT8: 32, INT16: 16, FP16: 16, BF16: 16, TF32: 16}
ROW_BYTES = {INT4: 16, INT8: 32, INT16: 64, FP16: 64, BF16: 64, TF32: 64}


@dataclass(kw_only=True)
class CellInputs:
    """Inputs of the cell in one cycle; `w_data` has 64 bytes, `f_data` 128, both int8 arrays."""

    precision: int = 0
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


def elements(raw: np.ndarray, precision: int) -> np.ndarray:
    """Return bytes as the elements of a type: int64 numbers, or for floats their bits."""
    raw = np.ascontiguousarray(raw).view(np.uint8)
    if precision == INT4:
        nibbles = np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], -1).astype(np.int64)
        return (nibbles ^ 8) - 8
    kinds = {INT16: "<i2", FP16: "<u2", BF16: "<u2", TF32: "<u4"}
    return raw.view(kinds.get(precision, "<i1")).astype(np.int64)


def wrapped(value: np.ndarray) -> np.ndarray:
    """Wrap int64 values to `ACC_BITS` bits."""
    return ((value & ((1 << ACC_BITS) - 1)) ^ (1 << (ACC_BITS - 1))) - (1 << (ACC_BITS - 1))


@dataclass
class _Pixel:
    """A pixel in the pipeline: values to be added to `acc` and `sum` of a slot (`sum` is None for floats)."""

    first: int
    slot: tuple[int, int]
    acc: np.ndarray
    sum: np.ndarray | None


class ArrayModel:
    """State of one cell.

    Attributes
    ----------
    acc : int64 array of shape (2 banks, 16 slots, 64 lanes), wrapped to 48 bits; for floats their bits.
    sum : int64 array of the same shape, modulo 2**32.
    o_acc, o_sum : 8 values each, the outputs after the last `step`.
    """

    def __init__(self) -> None:
        self.acc = np.zeros((2, 16, 64), np.int64)
        self.sum = np.zeros((2, 16, 64), np.int64)
        self.o_acc = np.zeros(8, np.int64)
        self.o_sum = np.zeros(8, np.int64)
        self._shadow = np.zeros(1024, np.uint8)
        self._active = np.zeros(1024, np.uint8)
        self._under_way: deque[_Pixel | None] = deque([None] * (LATENCY - 1))

    def reset(self) -> None:
        """Do a clock edge with the reset active, after `step`: pixels in the pipeline are dropped."""
        self._under_way = deque([None] * (LATENCY - 1))

    def step(self, i: CellInputs) -> None:
        """One clock edge."""
        if i.d_valid:
            lanes = slice(8 * i.d_octet, 8 * i.d_octet + 8)
            self.o_acc = self.acc[i.d_bank, i.d_slot, lanes].copy()
            self.o_sum = self.sum[i.d_bank, i.d_slot, lanes].copy()
        if i.f_valid and i.f_swap:
            self._active = self._shadow.copy()
        self._under_way.append(self._pixel(i) if i.f_valid else None)
        self._accumulate(self._under_way.popleft())
        quick = self._under_way[0]
        if quick is not None and quick.sum is not None:
            self._accumulate(quick)
            self._under_way[0] = None
        if i.w_valid:
            self._write(i)

    def _write(self, i: CellInputs) -> None:
        chunk = np.asarray(i.w_data).astype(np.int8).view(np.uint8)
        row = ROW_BYTES.get(i.precision, 32)
        given = min(16 << i.w_stride, row)
        rows = chunk.reshape(-1, given)
        padded = np.concatenate([rows, np.zeros((len(rows), row - given), np.uint8)], axis=1).reshape(-1)
        self._shadow[len(padded) * i.w_index :][: len(padded)] = padded

    def _pixel(self, i: CellInputs) -> _Pixel:
        precision, kernels = i.precision, KERNELS.get(i.precision, 32)
        raw = np.asarray(i.f_data).astype(np.int8)
        where = (i.f_bank, i.f_slot)
        if i.depthwise and precision not in (INT4, TF32):
            features = elements(raw, precision)[:64]
            weights = elements(self._active, precision)[:64]
            groups = [(features[n : n + 1], weights[n : n + 1]) for n in range(64)]
            acc, total = features * weights, features
        else:
            weights = elements(self._active, precision).reshape(kernels, -1)
            features = elements(raw, precision)[: weights.shape[1]]
            groups = [(features, row) for row in weights]
            acc, total = (weights * features).sum(axis=1), np.full(kernels, features.sum())
        if precision in FLOATS:
            kind = FLOATS[precision]
            sums = [tile_model.tile_sum(kind, f.tolist(), w.tolist()) for f, w in groups]
            return _Pixel(i.f_first, where, np.array(sums, np.int64), None)
        return _Pixel(i.f_first, where, acc, total)

    def _accumulate(self, pixel: _Pixel | None) -> None:
        if pixel is None:
            return
        lanes = slice(0, len(pixel.acc))
        acc, total = self.acc[pixel.slot][lanes], self.sum[pixel.slot][lanes]
        if pixel.first:
            acc[:] = 0
            total[:] = 0
        if pixel.sum is None:
            acc[:] = [
                tile_model.add(int(a) & 0xFFFFFFFF, int(t)) for a, t in zip(acc, pixel.acc, strict=True)
            ]
            total[:] = 0
        else:
            acc[:] = wrapped(acc + pixel.acc)
            total[:] = (total + pixel.sum) % (1 << 32)
