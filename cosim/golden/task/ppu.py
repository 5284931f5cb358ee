"""PPU and PPU_RDMA of the task-level golden model: int8 pooling (docs/hardware.md section 6)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.arith import saturate, signed
from cosim.golden.task.context import Context
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.memory import ATOM
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]


def pool(ctx: Context, ppu: View, rdma: View) -> None:
    """Run one pooling task."""
    mode = "OPERATION_MODE_CFG"
    ctx.require(
        ppu.get(mode, "FLYING_MODE") == 1,
        "RESERVED_MODE",
        ppu,
        mode,
        "FLYING_MODE",
        "no path from the DPU yet",
    )
    ctx.require(
        ppu.get(mode, "INDEX_EN") == 0, "RESERVED_MODE", ppu, mode, "INDEX_EN", "mode is not supported"
    )
    method = ppu.get(mode, "POOLING_METHOD")
    ctx.require(method < 3, "RESERVED_MODE", ppu, mode, "POOLING_METHOD", "unknown method")
    for name in ("NONALIGN", "MC_SURF_OUT"):
        ctx.require(
            ppu.get("MISC_CTRL", name) == 0, "RESERVED_MODE", ppu, "MISC_CTRL", name, "mode is not supported"
        )
    ctx.require(
        ppu.get("DATA_FORMAT", "DPU_FLYIN") == 0, "RESERVED_MODE", ppu, "DATA_FORMAT", "DPU_FLYIN", "reserved"
    )
    ok = ppu.get("DATA_FORMAT", "PROC_PRECISION") == 0 and rdma.get("DATA_FORMAT", "IN_PRECISION") == 1
    ctx.require(ok, "RESERVED_MODE", rdma, "DATA_FORMAT", "IN_PRECISION", "only the pair (0, 1), int8")
    size = {axis: ppu.get(f"DATA_CUBE_IN_{axis}") + 1 for axis in ("WIDTH", "HEIGHT", "CHANNEL")}
    for axis, want in size.items():
        got = rdma.get(f"CUBE_IN_{axis}") + 1
        if got != want:
            raise GoldenHang(
                f"PPU_RDMA reads {got}, the PPU wants {want}",
                task=ctx.report.index,
                block="PPU_RDMA",
                register=f"CUBE_IN_{axis}",
                value=got - 1,
            )
    ctx.require(
        ppu.get("DATA_CUBE_OUT_CHANNEL") == ppu.get("DATA_CUBE_IN_CHANNEL"),
        "SIZE_MISMATCH",
        ppu,
        "DATA_CUBE_OUT_CHANNEL",
        None,
        "differs from the input's",
    )
    surfaces = -(-size["CHANNEL"] // ATOM)
    cube = _read(ctx, rdma, surfaces, size["HEIGHT"], size["WIDTH"])
    windows = Windows(ppu, size["HEIGHT"], size["WIDTH"])
    out = windows.average(cube) if method == 0 else windows.extreme(cube, method == 1)
    _write(ctx, ppu, saturate(out, 8).astype(np.int8))


def _read(ctx: Context, rdma: View, surfaces: int, height: int, width: int) -> Ints:
    """Read the input cube: int64 [surface, row, column, 16]."""
    line, surface = rdma.get("SRC_LINE_STRIDE"), rdma.get("SRC_SURF_STRIDE")
    s = np.arange(surfaces, dtype=np.int64)[:, None, None]
    y = np.arange(height, dtype=np.int64)[None, :, None]
    x = np.arange(width, dtype=np.int64)[None, None, :]
    places = ctx.address(rdma, "SRC_BASE_ADDR") + ATOM * (s * surface + y * line + x)
    atoms = ctx.read("ppu_rdma", "PPU_RDMA", "SRC_BASE_ADDR", places)
    return atoms.reshape(surfaces, height, width, ATOM).view(np.int8).astype(np.int64)


def _write(ctx: Context, ppu: View, out: NDArray[np.int8]) -> None:
    """Write the output cube, int8 [surface, row, column, 16] (docs/hardware.md 6.4)."""
    surfaces, height, width, _ = out.shape
    line = width + ppu.get("OPERATION_MODE_CFG", "NOTCH_ADDR")
    s = np.arange(surfaces, dtype=np.int64)[:, None, None]
    y = np.arange(height, dtype=np.int64)[None, :, None]
    x = np.arange(width, dtype=np.int64)[None, None, :]
    places = ctx.address(ppu, "DST_BASE_ADDR") + ATOM * (s * ppu.get("DST_SURF_STRIDE") + y * line + x)
    ctx.write("ppu", "PPU", "DST_BASE_ADDR", places, out.view(np.uint8).reshape(-1, ATOM))


class Windows:
    """Window geometry of a pooling task, and the two reductions over it.

    Parameters
    ----------
    ppu
        registers in force.
    height, width
        rows and columns of the input cube.
    """

    def __init__(self, ppu: View, height: int, width: int) -> None:
        get = ppu.get
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
        # 35 bits in two registers, of which int8 uses the low 19.
        low = get("PADDING_VALUE_1_CFG", "PAD_VALUE_0")
        self.pad = signed(low, 19)
        self.reciprocal = (get("RECIP_KERNEL_WIDTH"), get("RECIP_KERNEL_HEIGHT"))

    def _taps(self, cube: Ints) -> Iterator[tuple[Ints, NDArray[np.bool_]]]:
        """Yield each tap for all windows: values [surface, row, column, 16], inside [row, column, 1]."""
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                y, x = self.top + ky, self.left + kx
                inside = ((y >= 0) & (y < self.height))[:, None] & ((x >= 0) & (x < self.width))[None, :]
                rows, columns = np.clip(y, 0, self.height - 1), np.clip(x, 0, self.width - 1)
                yield cube[:, rows[:, None], columns[None, :]], inside[:, :, None]

    def extreme(self, cube: Ints, largest: bool) -> Ints:
        """Maximum or minimum, the pad value counting where a tap is outside."""
        pick = np.maximum if largest else np.minimum
        taps = (np.where(inside, values, self.pad) for values, inside in self._taps(cube))
        return reduce(pick, taps)

    def average(self, cube: Ints) -> Ints:
        """Average by reciprocals, with the tie rule of docs/hardware.md 6.3."""
        total = np.zeros(1, np.int64)
        for values, inside in self._taps(cube):
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
        return np.sign(total) * m
