"""PPU and PPU_RDMA of the task-level golden model [HW 9]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task import dpu_float as fp
from rkcosim.golden.task.arith import saturate, signed
from rkcosim.golden.task.context import Context
from rkcosim.golden.task.dpu import PpuFeed
from rkcosim.golden.task.memory import Bytes
from rkcosim.golden.task.registers import View
from rkcosim.spec.types import ATOM, OPEN_RESULTS, POOL_RUN, POOL_STORED, POOL_SURFACES

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
AVERAGE, MAX = 0, 1
INT8, INT16, FP16 = 0, 1, 2
_TYPES = {INT8: np.int8, INT16: np.int16, FP16: np.uint16}
_FAR = 1 << 40
"""Greater than every element's place in the order."""


def from_dpu(ppu: View) -> bool:
    """Whether the input of a task comes from the DPU."""
    return not ppu("OPERATION_MODE_CFG", "FLYING_MODE")


def pool(ctx: Context, ppu: View, rdma: View | None, feed: PpuFeed | None = None) -> None:
    """Run one pooling task on the data that PPU_RDMA reads, or on those that the DPU sends.

    Raises
    ------
    GoldenHang
        If the size of the input is not the one that the PPU expects.
    """
    kind = _kind(ppu, None if feed is not None else rdma)
    size = {axis: ppu(f"DATA_CUBE_IN_{axis}") + 1 for axis in ("WIDTH", "HEIGHT", "CHANNEL")}
    width = np.dtype(_TYPES[kind]).itemsize
    surfaces = -(-size["CHANNEL"] * width // ATOM)
    group = 1
    if feed is not None:
        here = (surfaces, size["HEIGHT"], size["WIDTH"])
        if feed.atoms.shape[:3] != here or feed.bits != 8 * width:
            given, rows, columns, _ = feed.atoms.shape
            message = f"the DPU sends {given} surfaces of {rows} x {columns}, {feed.bits} bits per element"
            raise ctx.stop("SIZE_MISMATCH", ppu, "DATA_CUBE_IN_WIDTH", None, message)
        if feed.group_surfaces > POOL_SURFACES:
            message = f"the DPU sends {feed.group_surfaces} surfaces of a group, at most {POOL_SURFACES} fit"
            raise ctx.stop("SIZE_MISMATCH", ppu, "DATA_CUBE_IN_WIDTH", None, message)
        group = min(surfaces, feed.group_surfaces)
    else:
        assert rdma is not None
        _check_reader(ctx, ppu, rdma, ATOM // width)
    held = (ppu("POOLING_KERNEL_CFG", "KERNEL_HEIGHT") + 1) * (ppu("DATA_CUBE_OUT_WIDTH") + 1)
    if held * group > OPEN_RESULTS:
        message = f"{held * group} results of open rows do not fit {OPEN_RESULTS}"
        raise ctx.stop("FEATURE_FOOTPRINT", ppu, "DATA_CUBE_OUT_WIDTH", None, message)
    if feed is not None:
        atoms = feed.atoms
    else:
        assert rdma is not None
        atoms = _read(ctx, rdma, size, width)
    windows = Windows(ppu, kind, size["HEIGHT"], size["WIDTH"])
    cube = np.ascontiguousarray(atoms).view(_TYPES[kind]).astype(np.int64)
    method = ppu("OPERATION_MODE_CFG", "POOLING_METHOD")
    if method == AVERAGE:
        tensors = [windows.average(cube)]
    else:
        tensors = list(windows.extreme(cube, method == MAX))
        if not ppu("OPERATION_MODE_CFG", "INDEX_EN"):
            tensors.pop()
    _write(ctx, ppu, [tensor.astype(_TYPES[kind]) for tensor in tensors], group)


def _kind(ppu: View, rdma: View | None) -> int:
    """PROC_PRECISION of the type that the task uses (6.1)."""
    kind = ppu("DATA_FORMAT", "PROC_PRECISION")
    ok = kind in _TYPES if rdma is None else (kind, rdma("DATA_FORMAT", "IN_PRECISION")) in POOL_STORED
    return kind if ok else INT8


def _check_reader(ctx: Context, ppu: View, rdma: View, per_atom: int) -> None:
    """Make sure that PPU_RDMA reads the cube that the PPU expects."""
    for axis in ("WIDTH", "HEIGHT", "CHANNEL"):
        per = per_atom if axis == "CHANNEL" else 1
        got, want = rdma(f"CUBE_IN_{axis}") + 1, ppu(f"DATA_CUBE_IN_{axis}") + 1
        if -(-got // per) != -(-want // per):
            message = f"PPU_RDMA's CUBE_IN_{axis} is {got}, the PPU expects {want}"
            raise ctx.stop("SIZE_MISMATCH", ppu, "DATA_CUBE_IN_WIDTH", None, message)


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
        ctx.place(rdma, "SRC_BASE_ADDR"), shape, rdma("SRC_SURF_STRIDE"), rdma("SRC_LINE_STRIDE")
    )
    return ctx.read("ppu_rdma", "PPU_RDMA", "SRC_BASE_ADDR", places).reshape(*shape, ATOM)


def _write(ctx: Context, ppu: View, tensors: Sequence[NDArray], group: int) -> None:
    """Write values and, if there are two tensors, the positions of extrema (6.4, 6.5).

    Parameters
    ----------
    ctx, ppu
        Memory and registers of the task.
    tensors
        Each [surface, row, column, lanes]; the second starts INDEX_ADD atoms after the first.
    group
        Number of surfaces that arrive together.
    """
    shape = tensors[0].shape[:3]
    notch = ppu("OPERATION_MODE_CFG", "NOTCH_ADDR")
    start = ctx.place(ppu, "DST_BASE_ADDR")
    places = [
        _places(start + ATOM * jump, shape, ppu("DST_SURF_STRIDE"), shape[2] + notch).ravel()
        for jump in (0, ppu("DATA_FORMAT", "INDEX_ADD"))[: len(tensors)]
    ]
    atoms = [np.ascontiguousarray(tensor).view(np.uint8).reshape(-1, ATOM) for tensor in tensors]
    if np.unique(np.concatenate(places)).size < sum(map(len, places)):
        # Atoms overlap: what is written last counts.
        order = _order(shape, len(tensors), group, notch)
        places, atoms = [np.concatenate(places)[order]], [np.concatenate(atoms)[order]]
    for address, data in zip(places, atoms, strict=True):
        ctx.write("ppu", "PPU", "DST_BASE_ADDR", address, data)


def _order(shape: tuple[int, ...], tensors: int, group: int, notch: int) -> Ints:
    """Order in which the PPU writes the atoms of tensors [surface, row, column]: int64 [atoms].

    Each group of surfaces is written row by row (as one row without a notch): one surface alone in runs,
    several together pixel by pixel. Runs and atoms of both tensors alternate.
    """
    tensor, surface, row, column = np.indices((tensors, *shape)).reshape(4, -1)
    if not notch:
        row, column = np.zeros_like(row), row * shape[2] + column
    first = surface // group * group
    together = np.minimum(shape[0] - first, group) > 1
    run = np.where(together, column, column // POOL_RUN)
    return np.lexsort([column, tensor, surface, run, row, first])


def reciprocal(code: int) -> float:
    """Value of a 17-bit factor of fp16 averages: sign, 6 exponent bits with bias 31, 10 fraction bits."""
    exponent, fraction = code >> 10 & 0x3F, code & 0x3FF
    value = fraction * 2.0**-40 if exponent == 0 else (1024 + fraction) * 2.0 ** (exponent - 41)
    return -value if code >> 16 & 1 else value


def order_of(half: Ints, nan: int) -> Ints:
    """Place of fp16 bits in the order of the numbers, -0 below +0; every NaN is at `nan`."""
    magnitude = half & 0x7FFF
    place = np.where(half >> 15 & 1, ~magnitude, magnitude)
    return np.where(magnitude > 0x7C00, nan, place)


class Windows:
    """Window geometry of a pooling task, and the two reductions over windows.

    Parameters
    ----------
    ppu
        Registers of the task.
    kind
        PROC_PRECISION of the type.
    height, width
        Rows and columns of the input cube.
    """

    def __init__(self, ppu: View, kind: int, height: int, width: int) -> None:
        self.kind, self.bits = kind, 8 if kind == INT8 else 16
        self.kernel = (
            ppu("POOLING_KERNEL_CFG", "KERNEL_HEIGHT") + 1,
            ppu("POOLING_KERNEL_CFG", "KERNEL_WIDTH") + 1,
        )
        stride_y = ppu("POOLING_KERNEL_CFG", "KERNEL_STRIDE_HEIGHT") + 1
        stride_x = ppu("POOLING_KERNEL_CFG", "KERNEL_STRIDE_WIDTH") + 1
        rows, columns = ppu("DATA_CUBE_OUT_HEIGHT") + 1, ppu("DATA_CUBE_OUT_WIDTH") + 1
        self.top = np.arange(rows) * stride_y - ppu("POOLING_PADDING_CFG", "PAD_TOP")
        self.left = np.arange(columns) * stride_x - ppu("POOLING_PADDING_CFG", "PAD_LEFT")
        self.height, self.width = height, width
        # 35 bits in two registers; integers use the low 19, fp16 the low 16.
        self.pad_word = ppu("PADDING_VALUE_1_CFG", "PAD_VALUE_0")
        self.pad = signed(self.pad_word, 19)
        self.reciprocal = (ppu("RECIP_KERNEL_WIDTH"), ppu("RECIP_KERNEL_HEIGHT"))

    def _taps(self, cube: NDArray) -> Iterator[tuple[NDArray, Mask, NDArray]]:
        """Yield each tap for all windows.

        Values [surface, row, column, lanes], whether the tap is inside [row, column, 1], position code of the
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
        """Maximum or minimum of the real taps and its position; else the pad value (6.2, 6.5)."""
        # The minimum is the negated maximum of the negated elements.
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
        """Sum of all taps, padded ones included, multiplied by the reciprocals (6.3)."""
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
        # 256 fp16 numbers are multiples of 2^-24 below 2^24: the sum is exact in binary64.
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
