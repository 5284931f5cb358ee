"""DPU_RDMA of the task-level golden model: main data, stage operands and element-wise operand.

The model follows [HW 8].  All output elements have 32 bits, signed in int64:
sign-extended integers, or the bits of binary32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task import dpu_float as fp
from rkcosim.golden.task.context import Context
from rkcosim.golden.task.errors import GoldenHang
from rkcosim.golden.task.memory import Bytes
from rkcosim.golden.task.registers import View
from rkcosim.golden.task.shapes import RdmaCube, ceil
from rkcosim.spec.types import ATOM, BF16, ERDMA_BITS, FLOAT_CODES, FP16, INT8, LANES, bits_of

Ints = NDArray[np.int64]
_TYPES = {8: np.int8, 16: np.int16, 32: np.int32}


@dataclass(frozen=True)
class StageOperands:
    """Per-channel operands of BS or BN, int64 [channels] each; zero where they are not fetched."""

    alu: Ints
    cpend: Ints
    mul: Ints


@dataclass(frozen=True)
class RdmaData:
    """Data that DPU_RDMA offers to the DPU in one task; None for a client that is off."""

    width: int = 0
    height: int = 0
    channels: int = 0
    group: int = 0
    """Number of channels of a group, which determines the order of main and ew."""
    bits: int = 0
    """Bits of a main element."""
    main: Ints | None = None
    """int64 [pixels, channels]."""
    bs: StageOperands | None = None
    bn: StageOperands | None = None
    ew: Ints | None = None
    """int64 [pixels, channels]."""
    missing: tuple[int, str] = (0, "")
    """Of a cube that both readers deliver: COMB_USE, and the reader that is off; "" if none."""
    endless: GoldenHang | None = None
    """Why DPU_RDMA never ends; it delivers no main data then."""


@dataclass(frozen=True)
class _Cube:
    width: int
    height: int
    channels: int

    def surfaces(self, bits: int) -> int:
        return -(-self.channels * bits // (8 * ATOM))

    def surface(self, line: int, notch: int) -> int:
        """Surface pitch in atoms: the notch starts at the end of the last line [HW 8.2]."""
        return (self.height - 1) * line + self.width + notch

    def elements(self, atoms: Bytes, bits: int) -> Ints:
        """Convert raw atoms [surface, pixel or 1, 16] to sign-extended elements, int64 [pixels, channels]."""
        surfaces = atoms.shape[0]
        if bits == 4:
            nibbles = np.stack((atoms & 0xF, atoms >> 4), axis=-1).astype(np.int64)
            elements = ((nibbles ^ 8) - 8).reshape(surfaces, atoms.shape[1], 2 * ATOM)
        else:
            elements = atoms.view(_TYPES[bits]).astype(np.int64)
        elements = elements.transpose(1, 0, 2).reshape(elements.shape[1], -1)[:, : self.channels]
        return np.broadcast_to(elements, (self.width * self.height, self.channels))


def fetch(ctx: Context, rdma: View, dpu: View | None = None) -> RdmaData:
    """Run all clients of DPU_RDMA that the registers enable; `dpu` are the registers of the DPU."""
    sizes = RdmaCube(rdma, dpu)
    cube = _Cube(sizes.width, sizes.height, sizes.channels)
    main = ew = None
    missing = (0, "")
    if sizes.shared:
        if sizes.main and sizes.element:
            if sizes.alternate:
                main = _as_main(rdma, _alternating(ctx, rdma, cube, sizes.main_bits))
            else:
                bits, code = _element_type(rdma)
                ew = _widened(_alternating(ctx, rdma, cube, bits), code)
        elif sizes.main or sizes.element:
            missing = rdma("FEATURE_MODE_CFG", "COMB_USE"), "ERDMA" if sizes.main else "MRDMA"
    else:
        if sizes.main:  # unpooling moves whole atoms
            whole = _Cube(cube.width, cube.height, -(-cube.channels // 8) * 8)
            main = _main(ctx, rdma, cube if sizes.unpooled is None else whole)
        if sizes.element:
            ew = _element(ctx, rdma, cube)
    bs, bn = (
        _beats(ctx, rdma, sizes, client, base)
        for client, base in (("BRDMA", "BS_BASE_ADDR"), ("NRDMA", "BN_BASE_ADDR"))
    )
    width = cube.width
    if sizes.unpooled is not None and main is not None:
        _, times = sizes.unpooled
        width *= times
        main = np.repeat(main, times, axis=0)
    endless = None if sizes.alternate else _endless(ctx, rdma)
    size = width, cube.height, cube.channels
    return RdmaData(*size, sizes.group, sizes.main_bits, main, bs, bn, ew, missing, endless)


def _endless(ctx: Context, rdma: View) -> GoldenHang | None:
    """Settings for which DPU_RDMA delivers no main data and never ends [HW 8.5]."""
    mode, name = "FEATURE_MODE_CFG", "COMB_USE"
    if not rdma(mode, "FLYING_MODE") or not rdma(mode, name) & 1:
        return None
    return ctx.hang(rdma, mode, name, "flying with bit 0 of COMB_USE never ends")


def _read_cube(
    ctx: Context,
    client: str,
    places: tuple[View, str],
    shape: tuple[int, int, int],
    pitch: tuple[int, int],
) -> Bytes:
    """Read a cube; `shape` is (surfaces, rows, columns), `pitch` (surface, line) in atoms.

    Returns
    -------
    uint8 [surface, row * column, 16].
    """
    c1 = np.arange(shape[0], dtype=np.int64)[:, None, None]
    y = np.arange(shape[1], dtype=np.int64)[None, :, None]
    x = np.arange(shape[2], dtype=np.int64)[None, None, :]
    addresses = ctx.place(*places) + ATOM * (c1 * pitch[0] + y * pitch[1] + x)
    return ctx.read(client, "DPU_RDMA", places[1], addresses).reshape(shape[0], -1, ATOM)


def _widened(elements: Ints, code: int) -> Ints:
    """Elements of a DPU code as 32 bits: 16-bit floats are converted to binary32."""
    if code == FP16.dpu_code:
        return fp.widen16(elements).view(np.int32).astype(np.int64)
    return fp.widen_bf16(elements).view(np.int32).astype(np.int64) if code == BF16.dpu_code else elements


def _main(ctx: Context, rdma: View, cube: _Cube) -> Ints:
    """MRDMA [HW 8.2]."""
    bits = bits_of(rdma("FEATURE_MODE_CFG", "IN_PRECISION"))
    line = cube.width + rdma("SRC_DMA_CFG", "LINE_NOTCH_ADDR")
    surface = cube.surface(line, rdma("SURF_NOTCH", "SURF_NOTCH_ADDR"))
    shape = (cube.surfaces(bits), cube.height, cube.width)
    atoms = _read_cube(ctx, "mrdma", (rdma, "SRC_BASE_ADDR"), shape, (surface, line))
    return _as_main(rdma, cube.elements(atoms, bits))


def _as_main(rdma: View, elements: Ints) -> Ints:
    """Elements of main data as IN_PRECISION has them."""
    code = rdma("FEATURE_MODE_CFG", "IN_PRECISION")
    if code == FP16.dpu_code and not rdma("FEATURE_MODE_CFG", "MRDMA_FP16TOFP32_EN"):
        return elements & 0xFFFF  # as the divider takes them
    return _widened(elements, code)


def _beats(ctx: Context, rdma: View, sizes: RdmaCube, client: str, base: str) -> StageOperands | None:
    """BRDMA or NRDMA: the operands of each channel, of whose blocks a beat takes one [HW 8.3]."""
    per, channels = sizes.block_channels, sizes.channels
    blocks = ceil(channels, per)
    operands = _stage(ctx, rdma, client, base, blocks * LANES if per < LANES else channels)
    if operands is None:
        return None
    if per < LANES:
        kept = (np.arange(blocks)[:, None] * LANES + np.arange(per)[None, :]).ravel()[:channels]
        operands = StageOperands(operands.alu[kept], operands.cpend[kept], operands.mul[kept])
    if sizes.drops_rest(client):
        operands.mul[channels // LANES * LANES :] = 0
    return operands


def _stage(ctx: Context, rdma: View, client: str, base: str, channels: int) -> StageOperands | None:
    """BRDMA or NRDMA: blocks of eight channels [HW 8.3]."""
    register = f"{client}_CFG"
    use = rdma(register, f"{client}_DATA_USE")
    if rdma(register, f"{client}_DISABLE") or use & 0b111 == 0:
        return None
    floats = rdma("FEATURE_MODE_CFG", "PROC_PRECISION") in FLOAT_CODES
    if client == "NRDMA" and use & 0b010 and not floats:
        return None  # it reads nothing, and the stage waits forever
    parts = [(0, np.int32), (1, np.int16), (2, np.int16)]
    block = sum(8 * np.dtype(kind).itemsize for bit, kind in parts if use >> bit & 1)
    blocks = -(-channels // 8)
    raw = ctx.read_run(client.lower(), "DPU_RDMA", base, ctx.place(rdma, base), blocks * block)
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


def _element_type(rdma: View) -> tuple[int, int]:
    """Bits of an element of the operand, and the DPU code that determines how it is extended: an integer's,
    because the DPU alone makes floats of it."""
    return ERDMA_BITS[rdma("ERDMA_CFG", "ERDMA_DATA_SIZE")], INT8.dpu_code


def _element(ctx: Context, rdma: View, cube: _Cube) -> Ints:
    """ERDMA: one element per pixel and channel, or per channel [HW 8.4]."""
    bits, code = _element_type(rdma)
    surfaces = cube.surfaces(bits)
    if rdma("ERDMA_CFG", "ERDMA_DATA_MODE") == 0:
        stride = rdma("EW_SURF_STRIDE")
        shape, pitch = (surfaces, 1, 1), (stride, stride)  # of one line
    else:
        line = cube.width + rdma("DATA_CUBE_HEIGHT", "EW_LINE_NOTCH_ADDR")
        pitch = cube.surface(line, rdma("EW_SURF_NOTCH")), line
        shape = (surfaces, cube.height, cube.width)
    atoms = _read_cube(ctx, "erdma", (rdma, "EW_BASE_ADDR"), shape, pitch)
    return _widened(cube.elements(atoms, bits), code)


def _alternating(ctx: Context, rdma: View, cube: _Cube, bits: int) -> Ints:
    """Elements of a cube whose surfaces both readers deliver alternately [HW 8.5]."""
    surfaces = cube.surfaces(bits)
    atoms = np.zeros((surfaces, cube.width * cube.height, ATOM), np.uint8)
    for first, client, base, notch, end in (
        (0, "mrdma", "SRC_BASE_ADDR", ("SRC_DMA_CFG", "LINE_NOTCH_ADDR"), ("SURF_NOTCH", "SURF_NOTCH_ADDR")),
        (
            1,
            "erdma",
            "EW_BASE_ADDR",
            ("DATA_CUBE_HEIGHT", "EW_LINE_NOTCH_ADDR"),
            ("EW_SURF_NOTCH", "EW_SURF_NOTCH"),
        ),
    ):
        count = len(range(first, surfaces, 2))
        if count:
            line = cube.width + rdma(*notch)
            surface = cube.surface(line, rdma(*end))
            shape = (count, cube.height, cube.width)
            atoms[first::2] = _read_cube(ctx, client, (rdma, base), shape, (surface, line))
    return cube.elements(atoms, bits)
