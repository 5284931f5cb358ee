"""DPU_RDMA of the task-level golden model: main data, stage operands and element-wise operand.

Everything here follows docs/hardware.md section 5.  All elements leave it as 32 bits, signed in int64:
sign-extended integers, or the bits of binary32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task import dpu_float as fp
from cosim.golden.task.context import Context
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.memory import ATOM, Bytes
from cosim.golden.task.registers import View

Ints = NDArray[np.int64]
DEPTHWISE = 3
FLOAT_CODES = (2, 3, 5)
"""DPU codes of the float types (docs/hardware.md 0.4)."""
ELEMENT_BITS = {0: 8, 1: 16, 2: 16, 3: 16, 4: 32, 5: 32, 6: 4}
"""Bits of an element by DPU code."""
_INT16, _FP16, _BF16, _FP32 = 1, 2, 3, 5
_ERDMA_BITS = (4, 8, 16, 32)
_TYPES = {8: np.int8, 16: np.int16, 32: np.int32}
_UNPOOLING = (
    "UNPOOLING_EN",
    "POOLING_METHOD",
    "KERNEL_STRIDE_HEIGHT",
    "KERNEL_STRIDE_WIDTH",
    "KERNEL_HEIGHT",
    "KERNEL_WIDTH",
)
RESIDUAL = 5
"""COMB_USE that splits the element-wise operand between both readers."""


def group_channels(view: View, register: str, precision_register: str) -> int:
    """Channels of a group as DPU and DPU_RDMA see it (docs/hardware.md 4.1, 5.1)."""
    if view.get(register, "CONV_MODE") == DEPTHWISE:
        return 64
    return {6: 64, 0: 32}.get(view.get(precision_register, "IN_PRECISION"), 16)


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
    group: int = 0
    """Channels of a group, which sets the order of main and ew."""
    bits: int = 0
    """Bits of a main element."""
    main: Ints | None = None
    """int64 [pixels, channels]."""
    bs: StageOperands | None = None
    bn: StageOperands | None = None
    ew: Ints | None = None
    """int64 [pixels, channels]."""
    copies: int = 0
    """Copies of each row that unpooling makes of the main data; 0 without it."""
    residual_missing: str = ""
    """The reader that the shared operand (COMB_USE 5) waits for in vain."""
    endless: GoldenHang | None = None
    """Why DPU_RDMA never ends, although it gives everything."""


@dataclass(frozen=True)
class _Cube:
    width: int
    height: int
    channels: int

    def surfaces(self, bits: int) -> int:
        return -(-self.channels * bits // (8 * ATOM))

    def surface(self, line: int, notch: int) -> int:
        """Surface pitch in atoms: the notch counts from the end of the last line (docs/hardware.md 5.2)."""
        return (self.height - 1) * line + self.width + notch

    def elements(self, atoms: Bytes, bits: int) -> Ints:
        """Raw atoms [surface, pixel or 1, 16] to sign-extended elements, int64 [pixels, channels]."""
        surfaces = atoms.shape[0]
        if bits == 4:
            nibbles = np.stack((atoms & 0xF, atoms >> 4), axis=-1).astype(np.int64)
            elements = ((nibbles ^ 8) - 8).reshape(surfaces, atoms.shape[1], 2 * ATOM)
        else:
            elements = atoms.view(_TYPES[bits]).astype(np.int64)
        elements = elements.transpose(1, 0, 2).reshape(elements.shape[1], -1)[:, : self.channels]
        return np.broadcast_to(elements, (self.width * self.height, self.channels))


def fetch(ctx: Context, rdma: View) -> RdmaData:
    """Run all clients of DPU_RDMA that the registers turn on."""
    mode = "FEATURE_MODE_CFG"
    cube = _Cube(
        rdma.get("DATA_CUBE_WIDTH", "WIDTH") + 1,
        rdma.get("DATA_CUBE_HEIGHT", "HEIGHT") + 1,
        rdma.get("DATA_CUBE_CHANNEL", "CHANNEL") + 1,
    )
    main_on, ew_on = not rdma.get(mode, "MRDMA_DISABLE"), not rdma.get("ERDMA_CFG", "ERDMA_DISABLE")
    main = ew = None
    missing = ""
    if _shared(rdma):
        if main_on and ew_on:
            ew = _residual(ctx, rdma, cube)
        elif main_on or ew_on:
            missing = "ERDMA" if main_on else "MRDMA"
    else:
        if main_on:  # unpooling moves whole atoms
            whole = _Cube(cube.width, cube.height, -(-cube.channels // 8) * 8)
            main = _main(ctx, rdma, cube if unpooling(rdma) is None else whole)
        if ew_on:
            ew = _element(ctx, rdma, cube)
    bs = _stage(ctx, rdma, "BRDMA", "BS_BASE_ADDR", cube.channels)
    bn = _stage(ctx, rdma, "NRDMA", "BN_BASE_ADDR", cube.channels)
    group = group_channels(rdma, mode, mode)
    endless = _endless(ctx, rdma)
    width, copies = cube.width, 0
    kernel = unpooling(rdma)
    if kernel is not None and main is not None:
        copies, times = kernel
        width *= times
        main = np.repeat(main, times, axis=0)
    bits = ELEMENT_BITS.get(rdma.get(mode, "IN_PRECISION"), 8)
    return RdmaData(
        width, cube.height, cube.channels, group, bits, main, bs, bn, ew, copies, missing, endless
    )


def unpooling(rdma: View) -> tuple[int, int] | None:
    """Return how often unpooling repeats rows and columns; None without it (docs/hardware.md 5.7)."""
    mode, source, pad = "FEATURE_MODE_CFG", "SRC_DMA_CFG", "PAD_CFG"
    height, width = rdma.get(source, "KERNEL_HEIGHT"), rdma.get(source, "KERNEL_WIDTH")
    strides = rdma.get(source, "KERNEL_STRIDE_HEIGHT"), rdma.get(source, "KERNEL_STRIDE_WIDTH")
    known = (
        rdma.get(source, "UNPOOLING_EN")
        and not rdma.get(source, "POOLING_METHOD")
        and strides == (height, width)
        and not any(rdma.get(pad, name) for name in ("PAD_VALUE", "PAD_TOP", "PAD_LEFT"))
        and rdma.get(mode, "FLYING_MODE")
        and not rdma.get(mode, "MRDMA_DISABLE")
        and rdma.get("ERDMA_CFG", "ERDMA_DISABLE")
        and rdma.get(mode, "CONV_MODE") != DEPTHWISE
        and rdma.get(mode, "IN_PRECISION") == _INT16
    )
    return (height + 1, width + 1) if known else None


def _endless(ctx: Context, rdma: View) -> GoldenHang | None:
    """Settings with which DPU_RDMA gives everything and never ends (docs/hardware.md 5.5)."""
    mode, name = "FEATURE_MODE_CFG", "COMB_USE"
    value = rdma.get(mode, name)
    if not rdma.get(mode, "FLYING_MODE") or not value & 1:
        return None
    message, task = "flying with bit 0 of COMB_USE never ends", ctx.report.index
    return GoldenHang(message, task=task, block=rdma.block, register=f"{mode}.{name}", value=value)


def check_rdma(ctx: Context, rdma: View) -> None:
    """Diagnose everything that is known before the first datum."""
    mode = "FEATURE_MODE_CFG"
    comb = rdma.get(mode, "COMB_USE")
    ok = comb == 0 or _shared(rdma)
    ctx.require(ok, "RESERVED_MODE", rdma, mode, "COMB_USE", "counts as 0")
    ctx.require(
        rdma.get(mode, "CONV_MODE") in (0, DEPTHWISE),
        "RESERVED_MODE",
        rdma,
        mode,
        "CONV_MODE",
        "counts as direct",
    )
    for name in ("IN_PRECISION", "PROC_PRECISION"):
        ok = rdma.get(mode, name) in ELEMENT_BITS
        ctx.require(ok, "RESERVED_MODE", rdma, mode, name, "no such type, counts as int8")
    for register, names in (
        ("ERDMA_CFG", ("ERDMA_SURF_MODE", "ERDMA_NONALIGN")),
        ("SRC_DMA_CFG", _UNPOOLING if unpooling(rdma) is None else ()),
        ("PAD_CFG", ("PAD_VALUE", "PAD_TOP", "PAD_LEFT")),
    ):
        for name in names:
            ok = rdma.get(register, name) == 0
            ctx.require(ok, "RESERVED_MODE", rdma, register, name, "mode is not supported")

    _check_main(ctx, rdma)
    _check_stages(ctx, rdma)
    _check_element(ctx, rdma)


def _check_main(ctx: Context, rdma: View) -> None:
    mode = "FEATURE_MODE_CFG"
    if not rdma.get(mode, "MRDMA_DISABLE"):
        half = rdma.get(mode, "IN_PRECISION") in (_FP16, _BF16)
        ok = not half or not rdma.get(mode, "FLYING_MODE") or bool(rdma.get(mode, "MRDMA_FP16TOFP32_EN"))
        ctx.require(ok, "RESERVED_MODE", rdma, mode, "MRDMA_FP16TOFP32_EN", "widened all the same")
        ctx.check_address(rdma, "SRC_BASE_ADDR")


def _check_stages(ctx: Context, rdma: View) -> None:
    for client, base, known in (("BRDMA", "BS_BASE_ADDR", 0b111), ("NRDMA", "BN_BASE_ADDR", 0b101)):
        register, name = f"{client}_CFG", f"{client}_DATA_USE"
        use = rdma.get(register, name)
        if use and not rdma.get(register, f"{client}_DISABLE"):
            ctx.require(use & ~known == 0, "RESERVED_MODE", rdma, register, name, "operand without a meaning")
            ctx.check_address(rdma, base)


def _check_element(ctx: Context, rdma: View) -> None:
    register = "ERDMA_CFG"
    if rdma.get(register, "ERDMA_DISABLE"):
        return
    mode = rdma.get(register, "ERDMA_DATA_MODE")
    ok = mode == 1 or (mode == 0 and not _shared(rdma))
    ctx.require(ok, "RESERVED_MODE", rdma, register, "ERDMA_DATA_MODE", "treated as per pixel")
    bits = _ERDMA_BITS[rdma.get(register, "ERDMA_DATA_SIZE")]
    ok = bits >= 16 or rdma.get("FEATURE_MODE_CFG", "PROC_PRECISION") not in FLOAT_CODES
    ctx.require(ok, "RESERVED_MODE", rdma, register, "ERDMA_DATA_SIZE", "no float of this size")
    ctx.check_address(rdma, "EW_BASE_ADDR")


def _shared(rdma: View) -> bool:
    """Tell whether MRDMA and ERDMA together deliver the element-wise operand (docs/hardware.md 5.5)."""
    mode = "FEATURE_MODE_CFG"
    return rdma.get(mode, "COMB_USE") == RESIDUAL and not rdma.get(mode, "FLYING_MODE")


def _read_cube(
    ctx: Context,
    client: str,
    places: tuple[View, str],
    shape: tuple[int, int, int],
    pitch: tuple[int, int],
) -> Bytes:
    """Read a cube: `shape` surfaces, rows, columns; `pitch` surface, line in atoms.

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
    """Elements of a DPU code as 32 bits: the 16-bit floats become binary32."""
    if code == _FP16:
        return fp.widen16(elements).view(np.int32).astype(np.int64)
    return fp.widen_bf16(elements).view(np.int32).astype(np.int64) if code == _BF16 else elements


def _main(ctx: Context, rdma: View, cube: _Cube) -> Ints:
    """MRDMA (docs/hardware.md 5.2)."""
    code = rdma.get("FEATURE_MODE_CFG", "IN_PRECISION")
    bits = ELEMENT_BITS.get(code, 8)
    line = cube.width + rdma.get("SRC_DMA_CFG", "LINE_NOTCH_ADDR")
    surface = cube.surface(line, rdma.get("SURF_NOTCH", "SURF_NOTCH_ADDR"))
    shape = (cube.surfaces(bits), cube.height, cube.width)
    atoms = _read_cube(ctx, "mrdma", (rdma, "SRC_BASE_ADDR"), shape, (surface, line))
    return _widened(cube.elements(atoms, bits), code)


def _stage(ctx: Context, rdma: View, client: str, base: str, channels: int) -> StageOperands | None:
    """BRDMA or NRDMA: blocks of eight channels (docs/hardware.md 5.3)."""
    register = f"{client}_CFG"
    use = rdma.get(register, f"{client}_DATA_USE")
    if rdma.get(register, f"{client}_DISABLE") or use & 0b111 == 0:
        return None
    floats = rdma.get("FEATURE_MODE_CFG", "PROC_PRECISION") in FLOAT_CODES
    if client == "NRDMA" and use & 0b010 and not floats:
        return None  # reads nothing, and the stage waits for ever
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
    """Bits of an element of the operand and the DPU code that says how it is widened."""
    bits = _ERDMA_BITS[rdma.get("ERDMA_CFG", "ERDMA_DATA_SIZE")]
    precision = rdma.get("FEATURE_MODE_CFG", "PROC_PRECISION")
    if precision not in FLOAT_CODES or bits != 16:
        return bits, 0
    return bits, _BF16 if precision == _BF16 else _FP16


def _element(ctx: Context, rdma: View, cube: _Cube) -> Ints:
    """ERDMA: one element per pixel and channel, or per channel (docs/hardware.md 5.4)."""
    bits, code = _element_type(rdma)
    surfaces, stride = cube.surfaces(bits), rdma.get("EW_SURF_STRIDE")
    if rdma.get("ERDMA_CFG", "ERDMA_DATA_MODE") == 0:
        shape, pitch = (surfaces, 1, 1), (stride, stride)  # of one line
    else:
        line = cube.width + rdma.get("DATA_CUBE_HEIGHT", "EW_LINE_NOTCH_ADDR")
        shape, pitch = (surfaces, cube.height, cube.width), (stride + rdma.get("EW_SURF_NOTCH"), line)
    atoms = _read_cube(ctx, "erdma", (rdma, "EW_BASE_ADDR"), shape, pitch)
    return _widened(cube.elements(atoms, bits), code)


def _residual(ctx: Context, rdma: View, cube: _Cube) -> Ints:
    """Element-wise operand of both readers, surface by surface in turn (docs/hardware.md 5.5)."""
    bits, code = _element_type(rdma)
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
            line = cube.width + rdma.get(*notch)
            surface = cube.surface(line, rdma.get(*end))
            shape = (count, cube.height, cube.width)
            atoms[first::2] = _read_cube(ctx, client, (rdma, base), shape, (surface, line))
    return _widened(cube.elements(atoms, bits), code)
