"""DPU_RDMA of the task-level golden model: main data, stage operands and element-wise operand.

Everything here follows docs/hardware.md section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.context import Context
from cosim.golden.task.memory import ATOM
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]
_MAIN_BYTES = {0: 1, 1: 2, 4: 4}
_ERDMA_BYTES = {1: 1, 2: 2, 3: 4}
_TYPES = {1: np.int8, 2: np.int16, 4: np.int32}


@dataclass(frozen=True)
class StageOperands:
    """Per-channel operands of BS or BN, int64 [channels] each; zero where not fetched."""

    alu: Ints
    cpend: Ints
    mul: Ints


@dataclass(frozen=True)
class RdmaData:
    """What DPU_RDMA offers the DPU in one task; None where a client is off."""

    width: int = 0
    height: int = 0
    channels: int = 0
    main: Ints | None = None
    """int64 [pixels, channels]."""
    bs: StageOperands | None = None
    bn: StageOperands | None = None
    ew: Ints | None = None
    """int64 [pixels, channels]."""


def fetch(ctx: Context, rdma: View) -> RdmaData:
    """Run all clients of DPU_RDMA that the registers turn on."""
    mode = "FEATURE_MODE_CFG"
    for register, name in ((mode, "COMB_USE"), ("SRC_DMA_CFG", "UNPOOLING_EN")):
        ctx.require(
            rdma.get(register, name) == 0, "RESERVED_MODE", rdma, register, name, "mode is not supported"
        )
    width, height = rdma.get("DATA_CUBE_WIDTH", "WIDTH") + 1, rdma.get("DATA_CUBE_HEIGHT", "HEIGHT") + 1
    channels = rdma.get("DATA_CUBE_CHANNEL", "CHANNEL") + 1
    main = None
    if not rdma.get(mode, "MRDMA_DISABLE"):
        main = _main(ctx, rdma, width, height, channels)
    bs = _stage(ctx, rdma, "BRDMA", "BS_BASE_ADDR", channels)
    bn = _stage(ctx, rdma, "NRDMA", "BN_BASE_ADDR", channels)
    ew = None
    if not rdma.get("ERDMA_CFG", "ERDMA_DISABLE"):
        ew = _element(ctx, rdma, width, height, channels)
    return RdmaData(width, height, channels, main, bs, bn, ew)


def _cube(atoms: NDArray[np.uint8], size: int, shape: tuple[int, int], channels: int) -> Ints:
    """Atoms [surface, pixel or 1, 16] to elements int64 [pixels, channels]."""
    surfaces = atoms.shape[0]
    elements = atoms.reshape(surfaces, -1, ATOM).view(_TYPES[size]).astype(np.int64)
    elements = elements.transpose(1, 0, 2).reshape(elements.shape[1], -1)[:, :channels]
    return np.broadcast_to(elements, (shape[0] * shape[1], channels))


def _main(ctx: Context, rdma: View, width: int, height: int, channels: int) -> Ints:
    code = rdma.get("FEATURE_MODE_CFG", "IN_PRECISION")
    ctx.require(
        code in _MAIN_BYTES, "RESERVED_MODE", rdma, "FEATURE_MODE_CFG", "IN_PRECISION", "type not supported"
    )
    size = _MAIN_BYTES.get(code, 1)
    line = width + rdma.get("SRC_DMA_CFG", "LINE_NOTCH_ADDR")
    surface = line * height + rdma.get("SURF_NOTCH", "SURF_NOTCH_ADDR")
    base = ctx.address(rdma, "SRC_BASE_ADDR")
    surfaces = -(-channels * size // ATOM)
    atoms = ctx.read(
        "mrdma", "DPU_RDMA", "SRC_BASE_ADDR", _addresses(base, surfaces, height, width, surface, line)
    )
    return _cube(atoms.reshape(surfaces, -1, ATOM), size, (height, width), channels)


def _addresses(base: int, surfaces: int, height: int, width: int, surface: int, line: int) -> Ints:
    """Address of every atom of a cube, int64 [surface, row, column]; pitches in atoms."""
    c1 = np.arange(surfaces, dtype=np.int64)[:, None, None]
    y = np.arange(height, dtype=np.int64)[None, :, None]
    x = np.arange(width, dtype=np.int64)[None, None, :]
    return base + ATOM * (c1 * surface + y * line + x)


def _stage(ctx: Context, rdma: View, client: str, base: str, channels: int) -> StageOperands | None:
    """BRDMA or NRDMA: blocks of eight channels (docs/hardware.md 5.3)."""
    register = f"{client}_CFG"
    use = rdma.get(register, f"{client}_DATA_USE")
    if use == 0 or rdma.get(register, f"{client}_DISABLE"):
        return None
    ctx.require(
        use < 8, "RESERVED_MODE", rdma, register, f"{client}_DATA_USE", "the fourth operand has no meaning"
    )
    parts = [(0, np.int32), (1, np.int16), (2, np.int16)]
    block = sum(8 * np.dtype(kind).itemsize for bit, kind in parts if use >> bit & 1)
    blocks = -(-channels // 8)
    raw = ctx.read_run(client.lower(), "DPU_RDMA", base, ctx.address(rdma, base), blocks * block)
    table = raw.reshape(blocks, block)
    out, at = [], 0
    for bit, kind in parts:
        size = 8 * np.dtype(kind).itemsize
        if use >> bit & 1:
            values = np.ascontiguousarray(table[:, at : at + size]).view(kind).astype(np.int64)
            out.append(values.reshape(-1)[:channels])
            at += size
        else:
            out.append(np.zeros(channels, np.int64))
    return StageOperands(*out)


def _element(ctx: Context, rdma: View, width: int, height: int, channels: int) -> Ints:
    """ERDMA: one element per pixel and channel, or per channel (docs/hardware.md 5.4)."""
    code, mode = rdma.get("ERDMA_CFG", "ERDMA_DATA_SIZE"), rdma.get("ERDMA_CFG", "ERDMA_DATA_MODE")
    ctx.require(
        code in _ERDMA_BYTES, "RESERVED_MODE", rdma, "ERDMA_CFG", "ERDMA_DATA_SIZE", "type not supported"
    )
    ctx.require(mode in (0, 1), "RESERVED_MODE", rdma, "ERDMA_CFG", "ERDMA_DATA_MODE", "treated as per pixel")
    size = _ERDMA_BYTES.get(code, 1)
    surfaces = -(-channels * size // ATOM)
    stride = rdma.get("EW_SURF_STRIDE")
    base = ctx.address(rdma, "EW_BASE_ADDR")
    if mode == 0:
        addresses = _addresses(base, surfaces, 1, 1, stride, 0)
    else:
        line = width + rdma.get("DATA_CUBE_HEIGHT", "EW_LINE_NOTCH_ADDR")
        surface = stride + rdma.get("EW_SURF_NOTCH")
        addresses = _addresses(base, surfaces, height, width, surface, line)
    atoms = ctx.read("erdma", "DPU_RDMA", "EW_BASE_ADDR", addresses)
    return _cube(atoms.reshape(surfaces, -1, ATOM), size, (height, width), channels)
