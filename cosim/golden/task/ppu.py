"""PPU and PPU_RDMA of the task-level golden model (docs/hardware.md section 6)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task import dpu_float as fp
from cosim.golden.task.arith import saturate, signed
from cosim.golden.task.context import Context, Finding
from cosim.golden.task.dpu import PpuFeed
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.memory import ATOM, Bytes
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
AVERAGE, MAX = 0, 1
INT8, INT16, FP16 = 0, 1, 2
_PAIRS = {(INT8, 1), (INT16, 2), (FP16, 2)}
"""PROC_PRECISION of the PPU with IN_PRECISION of PPU_RDMA."""
_TYPES = {INT8: np.int8, INT16: np.int16, FP16: np.uint16}
ROW_CAPACITY = 2048
"""Results of open rows that the PPU holds (docs/hardware.md 6.9)."""
_FAR = 1 << 40
"""Beyond every element's place in the order."""


def from_dpu(ppu: View) -> bool:
    """Tell whether a task's input comes from the DPU."""
    return not ppu.get("OPERATION_MODE_CFG", "FLYING_MODE")


def pool(ctx: Context, ppu: View, rdma: View | None, feed: PpuFeed | None = None) -> None:
    """Run one pooling task on what PPU_RDMA reads, or on what the DPU feeds.

    Raises
    ------
    GoldenHang
        when the input's size is not the one that the PPU waits for.
    """
    kind = _kind(ppu, None if feed is not None else rdma)
    size = {axis: ppu.get(f"DATA_CUBE_IN_{axis}") + 1 for axis in ("WIDTH", "HEIGHT", "CHANNEL")}
    width = np.dtype(_TYPES[kind]).itemsize
    surfaces = -(-size["CHANNEL"] * width // ATOM)
    open_surfaces = 1
    if feed is not None:
        here = (surfaces, size["HEIGHT"], size["WIDTH"])
        if feed.atoms.shape[:3] != here or feed.bits != 8 * width:
            given, rows, columns, _ = feed.atoms.shape
            message = f"the DPU gives {given} surfaces of {rows} x {columns}, {feed.bits} bits an element"
            raise _stop(ctx, ppu, "SIZE_MISMATCH", "DATA_CUBE_IN_WIDTH", message)
        open_surfaces = min(surfaces, feed.group_surfaces)
    else:
        assert rdma is not None
        _check_reader(ctx, ppu, rdma, ATOM // width)
    held = (ppu.get("POOLING_KERNEL_CFG", "KERNEL_HEIGHT") + 1) * (ppu.get("DATA_CUBE_OUT_WIDTH") + 1)
    if held * open_surfaces > ROW_CAPACITY:
        message = f"{held * open_surfaces} results of open rows do not fit {ROW_CAPACITY}"
        raise _stop(ctx, ppu, "FEATURE_FOOTPRINT", "DATA_CUBE_OUT_WIDTH", message)
    if feed is not None:
        atoms = feed.atoms
    else:
        assert rdma is not None
        atoms = _read(ctx, rdma, size, width)
    windows = Windows(ppu, kind, size["HEIGHT"], size["WIDTH"])
    cube = np.ascontiguousarray(atoms).view(_TYPES[kind]).astype(np.int64)
    method = ppu.get("OPERATION_MODE_CFG", "POOLING_METHOD")
    index = None
    if method == AVERAGE:
        out = windows.average(cube)
    else:
        out, index = windows.extreme(cube, method == MAX)
    _write(ctx, ppu, out.astype(_TYPES[kind]), 0)
    if index is not None and ppu.get("OPERATION_MODE_CFG", "INDEX_EN"):
        _write(ctx, ppu, index.astype(_TYPES[kind]), ppu.get("DATA_FORMAT", "INDEX_ADD"))


def _kind(ppu: View, rdma: View | None) -> int:
    """PROC_PRECISION of the type in which the task runs (6.1)."""
    kind = ppu.get("DATA_FORMAT", "PROC_PRECISION")
    ok = kind in _TYPES if rdma is None else (kind, rdma.get("DATA_FORMAT", "IN_PRECISION")) in _PAIRS
    return kind if ok else INT8


def check_ppu(ctx: Context, ppu: View, rdma: View | None, dpu_flying: bool | None = None) -> None:
    """Diagnose everything that is known before the first datum.

    Parameters
    ----------
    dpu_flying
        FLYING_MODE of the DPU that feeds the PPU, None when PPU_RDMA does.
    """
    mode = "OPERATION_MODE_CFG"
    method = ppu.get(mode, "POOLING_METHOD")
    ctx.require(method < 3, "RESERVED_MODE", ppu, mode, "POOLING_METHOD", "unknown method, counts as min")
    ok = method != AVERAGE or not ppu.get(mode, "INDEX_EN")
    ctx.require(ok, "RESERVED_MODE", ppu, mode, "INDEX_EN", "an average has no position")
    for name in ("NONALIGN", "SURF_LEN", "MC_SURF_OUT"):
        ok = ppu.get("MISC_CTRL", name) == 0
        ctx.require(ok, "RESERVED_MODE", ppu, "MISC_CTRL", name, "mode is not supported")
    kind = ppu.get("DATA_FORMAT", "PROC_PRECISION")
    ctx.require(kind in _TYPES, "RESERVED_MODE", ppu, "DATA_FORMAT", "PROC_PRECISION", "counts as int8")
    if dpu_flying is not None:
        ok = ppu.get("DATA_FORMAT", "DPU_FLYIN") == int(dpu_flying)
        ctx.require(
            ok, "RESERVED_MODE", ppu, "DATA_FORMAT", "DPU_FLYIN", "differs from the DPU's FLYING_MODE"
        )
    elif rdma is not None:
        ok = kind not in _TYPES or (kind, rdma.get("DATA_FORMAT", "IN_PRECISION")) in _PAIRS
        message = "int8 needs 1, int16 and fp16 need 2; counts as int8"
        ctx.require(ok, "RESERVED_MODE", rdma, "DATA_FORMAT", "IN_PRECISION", message)
        ctx.check_address(rdma, "SRC_BASE_ADDR")
    ctx.require(
        ppu.get("DATA_CUBE_OUT_CHANNEL") == ppu.get("DATA_CUBE_IN_CHANNEL"),
        "SIZE_MISMATCH",
        ppu,
        "DATA_CUBE_OUT_CHANNEL",
        None,
        "differs from the input's",
    )


def _check_reader(ctx: Context, ppu: View, rdma: View, per_atom: int) -> None:
    """Make sure that PPU_RDMA reads the cube that the PPU waits for."""
    for axis in ("WIDTH", "HEIGHT", "CHANNEL"):
        per = per_atom if axis == "CHANNEL" else 1
        got, want = rdma.get(f"CUBE_IN_{axis}") + 1, ppu.get(f"DATA_CUBE_IN_{axis}") + 1
        if -(-got // per) != -(-want // per):
            message = f"PPU_RDMA's CUBE_IN_{axis} says {got}, the PPU wants {want}"
            raise _stop(ctx, ppu, "SIZE_MISMATCH", "DATA_CUBE_IN_WIDTH", message)


def _stop(ctx: Context, ppu: View, code: str, register: str, message: str) -> GoldenHang:
    """Tell what keeps the task from ending and build the error for it."""
    task, value = ctx.report.index, ppu.get(register)
    ctx.findings.append(Finding(task, code, "PPU", register, value, message))
    return GoldenHang(message, task=task, block="PPU", register=register, value=value, code=code)


def _places(start: int, shape: tuple[int, int, int], surface: int, line: int) -> Ints:
    """Addresses of the atoms of `shape` surfaces, rows, columns; pitches in atoms."""
    s = np.arange(shape[0], dtype=np.int64)[:, None, None]
    y = np.arange(shape[1], dtype=np.int64)[None, :, None]
    x = np.arange(shape[2], dtype=np.int64)[None, None, :]
    return start + ATOM * (s * surface + y * line + x)


def _read(ctx: Context, rdma: View, size: dict[str, int], width: int) -> Bytes:
    """Read the input cube: uint8 [surface, row, column, 16]."""
    shape = (-(-size["CHANNEL"] * width // ATOM), size["HEIGHT"], size["WIDTH"])
    places = _places(
        ctx.place(rdma, "SRC_BASE_ADDR"), shape, rdma.get("SRC_SURF_STRIDE"), rdma.get("SRC_LINE_STRIDE")
    )
    return ctx.read("ppu_rdma", "PPU_RDMA", "SRC_BASE_ADDR", places).reshape(*shape, ATOM)


def _write(ctx: Context, ppu: View, out: NDArray, jump: int) -> None:
    """Write a tensor [surface, row, column, lanes], `jump` atoms after the output's start (6.4, 6.5)."""
    line = out.shape[2] + ppu.get("OPERATION_MODE_CFG", "NOTCH_ADDR")
    start = ctx.address(ppu, "DST_BASE_ADDR") + ATOM * jump
    places = _places(start, out.shape[:3], ppu.get("DST_SURF_STRIDE"), line)
    ctx.write(
        "ppu", "PPU", "DST_BASE_ADDR", places, np.ascontiguousarray(out).view(np.uint8).reshape(-1, ATOM)
    )


def reciprocal(code: int) -> float:
    """Value of a 17-bit factor of fp16 averages: sign, 6 exponent bits with bias 31, 10 fraction bits."""
    exponent, fraction = code >> 10 & 0x3F, code & 0x3FF
    value = fraction * 2.0**-40 if exponent == 0 else (1024 + fraction) * 2.0 ** (exponent - 41)
    return -value if code >> 16 & 1 else value


def order_of(half: Ints, nan: int) -> Ints:
    """Place of fp16 bits in the order of the numbers, -0 below +0; every NaN at `nan`."""
    magnitude = half & 0x7FFF
    place = np.where(half >> 15 & 1, ~magnitude, magnitude)
    return np.where(magnitude > 0x7C00, nan, place)


class Windows:
    """Window geometry of a pooling task, and the two reductions over it.

    Parameters
    ----------
    ppu
        registers in force.
    kind
        PROC_PRECISION of the type.
    height, width
        rows and columns of the input cube.
    """

    def __init__(self, ppu: View, kind: int, height: int, width: int) -> None:
        get = ppu.get
        self.kind, self.bits = kind, 8 if kind == INT8 else 16
        self.kernel = (
            get("POOLING_KERNEL_CFG", "KERNEL_HEIGHT") + 1,
            get("POOLING_KERNEL_CFG", "KERNEL_WIDTH") + 1,
        )
        stride_y = get("POOLING_KERNEL_CFG", "KERNEL_STRIDE_HEIGHT") + 1
        stride_x = get("POOLING_KERNEL_CFG", "KERNEL_STRIDE_WIDTH") + 1
        rows, columns = get("DATA_CUBE_OUT_HEIGHT") + 1, get("DATA_CUBE_OUT_WIDTH") + 1
        self.top = np.arange(rows) * stride_y - get("POOLING_PADDING_CFG", "PAD_TOP")
        self.left = np.arange(columns) * stride_x - get("POOLING_PADDING_CFG", "PAD_LEFT")
        self.height, self.width = height, width
        # 35 bits in two registers, of which integers use the low 19 and fp16 the low 16.
        self.pad_word = get("PADDING_VALUE_1_CFG", "PAD_VALUE_0")
        self.pad = signed(self.pad_word, 19)
        self.reciprocal = (get("RECIP_KERNEL_WIDTH"), get("RECIP_KERNEL_HEIGHT"))

    def _taps(self, cube: NDArray) -> Iterator[tuple[NDArray, Mask, NDArray]]:
        """Yield each tap for all windows.

        Values [surface, row, column, lanes], whether inside [row, column, 1], position code of the
        input pixel [row, column, 1].
        """
        for ky in range(self.kernel[0]):
            y = self.top + ky
            rows, row_in = np.clip(y, 0, self.height - 1), (y >= 0) & (y < self.height)
            for kx in range(self.kernel[1]):
                x = self.left + kx
                inside = row_in[:, None] & ((x >= 0) & (x < self.width))[None, :]
                columns = np.clip(x, 0, self.width - 1)
                code = (y % 8 * 8)[:, None] + (x % 8)[None, :]
                yield cube[:, rows[:, None], columns[None, :]], inside[:, :, None], code[:, :, None]

    def extreme(self, cube: Ints, largest: bool) -> tuple[Ints, Ints]:
        """Maximum or minimum of the real taps and its position; the pad value without any (6.2, 6.5)."""
        # The smallest element of minima is the largest of the negated ones.
        sign = 1 if largest else -1
        nan = sign * (1 << 17)
        if self.kind == FP16:
            cube, pad = order_of(cube, nan), int(order_of(np.array(self.pad_word & 0xFFFF), nan))
        else:
            pad = int(saturate(np.array(self.pad), self.bits))
        cube, pad = cube * sign, pad * sign
        best = np.full((cube.shape[0], self.top.size, self.left.size, cube.shape[3]), -_FAR, np.int64)
        index = np.zeros_like(best)
        real = np.zeros((self.top.size, self.left.size, 1), bool)
        for values, inside, code in self._taps(cube):
            better = inside & (values > best)
            best, index = np.where(better, values, best), np.where(better, code, index)
            real |= inside
        best = np.where(real, best, pad) * sign
        if self.kind != FP16:
            return best, index
        half = np.where(best < 0, 0x8000 | (~best & 0x7FFF), best)
        return np.where(best == nan, fp.NAN16, half), index

    def average(self, cube: Ints) -> Ints:
        """Sum of all taps, padded ones included, by the reciprocals (6.3)."""
        if self.kind == FP16:
            return self._float_average(cube)
        total: Ints = np.zeros(1, np.int64)
        for values, inside, _ in self._taps(cube):
            total = total + np.where(inside, values, self.pad)
        size = self.kernel[0] * self.kernel[1]
        magnitude = np.abs(total)
        m = (magnitude * self.reciprocal[0] * self.reciprocal[1] + (1 << 31)) >> 32
        if size % 2 == 0:
            odd, rest = np.divmod(2 * magnitude, size)
            j = (odd - 1) // 2
            tie = (rest == 0) & (odd % 2 == 1) & ((j == m) | (j == m - 1))
            exact = all(k & (k - 1) == 0 for k in self.kernel)
            m = np.where(tie, np.where(j % 2 == 1, j + 1, j) if exact else j, m)
        return saturate(np.sign(total) * m, self.bits)

    def _float_average(self, cube: Ints) -> Ints:
        # 256 fp16 numbers are multiples of 2^-24 below 2^24: binary64 adds them exactly.
        total: NDArray[np.float64] = np.zeros(1)
        with np.errstate(all="ignore"):
            numbers = fp.floats(fp.widen16(cube)).astype(np.float64)
            pad = fp.floats(fp.widen16(self.pad_word & 0xFFFF)).astype(np.float64)
            for values, inside, _ in self._taps(numbers):
                total = total + np.where(inside, values, pad)
            value = total.astype(np.float32)
            for code in self.reciprocal:
                value = value * np.float32(reciprocal(code))
        return fp.narrow16(fp.from_floats(value))
