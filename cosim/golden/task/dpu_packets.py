"""Packets: what TP_EN and TP_ORG_EN make of the DPU's output (docs/hardware.md 4.11)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosim.golden.task.context import Context
from cosim.golden.task.dpu_check import stop
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.memory import ATOM, Bytes
from cosim.golden.task.rdma import DEPTHWISE, FLOAT_CODES
from cosim.golden.task.registers import View

PACKET = 8
"""Atoms of a packet."""
STRIPE = 16
"""Pixels that the writer takes together."""
_INT16, _INT32 = 1, 4
_INT32_ATOMS = 4
"""Atoms of int32 that 16 channels of a pixel take."""


@dataclass(frozen=True)
class PacketMode:
    """How a task makes packets."""

    turned: bool
    """Elements are transposed."""
    element: int
    """Bytes of an element that is moved."""
    flying: bool

    @property
    def block(self) -> int:
        """Atoms that are transposed together."""
        return ATOM // self.element if self.turned else PACKET


def packet_mode(dpu: View) -> PacketMode | None:
    """Return how a task makes packets; None when neither bit has an effect."""
    mode, form = "FEATURE_MODE_CFG", "DATA_FORMAT"
    turned, wide = bool(dpu.get("BS_OW_CFG", "TP_ORG_EN")), bool(dpu.get("WDMA_SIZE_0", "TP_PRECISION"))
    flying = bool(dpu.get(mode, "FLYING_MODE"))
    kept = bool(dpu.get(mode, "TP_EN")) and flying and wide
    direct = dpu.get(mode, "CONV_MODE") != DEPTHWISE
    integers = dpu.get(form, "IN_PRECISION") == _INT16 and dpu.get(form, "PROC_PRECISION") not in FLOAT_CODES
    out = dpu.get(form, "OUT_PRECISION") == (_INT16 if flying else _INT32)
    bypassed = dpu.get("EW_CFG", "EW_BYPASS") or dpu.get("EW_CFG", "EW_OP_BYPASS")
    operand = not bypassed and bool(dpu.get("EW_CFG", "EW_OP_SRC"))
    if not (turned or kept) or not (direct and integers and out) or operand:
        return None
    return PacketMode(turned, 1 + int(wide), flying)


def check_packets(ctx: Context, dpu: View, mode: PacketMode, surfaces: int, pixels: int) -> GoldenHang | None:
    """Diagnose sizes of a task that makes packets; return why it never ends, if it does not."""
    hangs = []
    ctx.require(
        dpu.get("FEATURE_MODE_CFG", "OUTPUT_MODE") & 1 == 0,
        "RESERVED_MODE",
        dpu,
        "FEATURE_MODE_CFG",
        "OUTPUT_MODE",
        "the PPU gets no packets",
    )
    if dpu.get("BS_OW_CFG", "SIZE_E_1") + 1 != PACKET:
        message = f"SIZE_E_1 + 1 must be {PACKET}, the atoms of a packet"
        if pixels >= STRIPE:
            hangs.append(stop(ctx, dpu, message, "BS_OW_CFG", "SIZE_E_1"))
        else:
            ctx.require(False, "SIZE_MISMATCH", dpu, "BS_OW_CFG", "SIZE_E_1", message)
    if not mode.flying and surfaces % _INT32_ATOMS:
        message = "channels must be whole kernel groups"
        hangs.append(stop(ctx, dpu, message, "DATA_CUBE_CHANNEL", "CHANNEL"))
    told = _told(dpu)
    atoms = surfaces * pixels
    if not _aligned(mode, pixels):
        message = f"the atoms of a surface do not make blocks of {mode.block}"
        hangs.append(stop(ctx, dpu, message, "WDMA_SIZE_1", "HEIGHT_WDMA"))
    elif atoms != told * PACKET:
        message = f"the sizes of WDMA name {told} packets, {atoms} atoms make {atoms // PACKET}"
        if atoms < told * PACKET:
            hangs.append(stop(ctx, dpu, message, "WDMA_SIZE_1", "HEIGHT_WDMA"))
        else:
            ctx.require(False, "SIZE_MISMATCH", dpu, "WDMA_SIZE_1", "HEIGHT_WDMA", message)
    return hangs[0] if hangs else None


def _aligned(mode: PacketMode, pixels: int) -> bool:
    run = pixels if mode.flying else pixels * _INT32_ATOMS
    return run % mode.block == 0


def _told(dpu: View) -> int:
    """Packets that the sizes of WDMA name."""
    lines = (dpu.get("WDMA_SIZE_0", "SIZE_C_WDMA") + 1) * (dpu.get("WDMA_SIZE_1", "HEIGHT_WDMA") + 1)
    return lines * (dpu.get("WDMA_SIZE_1", "WIDTH_WDMA") + 1)


def write_packets(ctx: Context, dpu: View, mode: PacketMode, atoms: Bytes) -> None:
    """Write uint8 [surfaces, pixels, 16] as packets of eight atoms."""
    surfaces, pixels, _ = atoms.shape
    if not _aligned(mode, pixels) or (not mode.flying and surfaces % _INT32_ATOMS):
        return
    if not mode.flying:
        grouped = atoms.reshape(surfaces // _INT32_ATOMS, _INT32_ATOMS, pixels, ATOM)
        atoms = grouped.transpose(0, 2, 1, 3)
    stream = np.ascontiguousarray(atoms.reshape(-1, ATOM))
    if mode.turned:
        blocks = stream.reshape(-1, mode.block, mode.block, mode.element)
        stream = np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))
    packets = stream.reshape(-1, PACKET, ATOM)[:, : dpu.get("BS_OW_CFG", "SIZE_E_1") + 1]
    k = np.arange(packets.shape[0], dtype=np.int64)
    width, height = dpu.get("WDMA_SIZE_1", "WIDTH_WDMA") + 1, dpu.get("WDMA_SIZE_1", "HEIGHT_WDMA") + 1
    line = width + dpu.get("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    first = k // (width * height) * dpu.get("SURFACE_ADD", "SURF_ADD")
    first = first + k // width % height * line + k % width
    e = np.arange(packets.shape[1], dtype=np.int64) * dpu.get("DST_SURF_STRIDE")
    places = ctx.address(dpu, "DST_BASE_ADDR") + ATOM * (first[:, None] + e[None, :])
    ctx.write("dpu", "DPU", "DST_BASE_ADDR", places, packets.reshape(-1, ATOM))
