"""Per-channel operand tables that BRDMA and NRDMA read [HW 3.7]."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BLOCK = np.dtype([("alu", "<i4", (8,)), ("cpend", "<i2", (8,)), ("mul", "<i2", (8,))])
"""Operands of eight channels for data use 7: 64 bytes."""


def _narrow(values: npt.ArrayLike, dtype: str, channels: int, what: str) -> npt.NDArray[np.signedinteger]:
    wide = np.asarray(values, dtype=np.int64)
    if wide.shape != (channels,):
        raise ValueError(f"{what}: needs one value per channel, {channels}, not shape {wide.shape}")
    limits = np.iinfo(dtype)
    bad = np.flatnonzero((wide < limits.min) | (wide > limits.max))
    if bad.size:
        raise ValueError(f"{what} of channel {bad[0]} is {wide[bad[0]]}, above {limits.bits} bits")
    return wide.astype(dtype)


def pack_alu_table(alu: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Pack int32 operands for data use 1: four bytes per channel, in whole blocks of eight channels.

    Parameters
    ----------
    alu
        Operand A of each channel, shape (channels,).

    Returns
    -------
    uint8 array of ceil(channels/8) * 32 bytes; unused channels are zero.

    Raises
    ------
    ValueError
        If a value does not fit 32 bits.
    """
    count = np.asarray(alu).size
    table = np.zeros(-(-count // 8) * 8, dtype="<i4")
    table[:count] = _narrow(alu, "<i4", count, "ALU operand")
    return table.view(np.uint8)


def unpack_alu_table(memory: npt.NDArray[np.uint8], channels: int) -> npt.NDArray[np.int32]:
    """Return the int32 operands of `channels` channels; the inverse of `pack_alu_table`."""
    return np.ascontiguousarray(memory[: channels * 4]).view("<i4").astype(np.int32)


def pack_bs_table(alu: npt.ArrayLike, cpend: npt.ArrayLike, mul: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Pack bias A, CPEND operand B and multiplier C for data use 7: 64 bytes per eight channels.

    Parameters
    ----------
    alu, cpend, mul
        Arrays of shape (channels,); A has 32 bits, B and C have 16 bits, all signed.

    Returns
    -------
    uint8 array of ceil(channels/8) * 64 bytes; unused channels are zero.

    Raises
    ------
    ValueError
        If the lengths differ or a value does not fit; the message names the table and the channel.
    """
    count = np.asarray(alu).size
    rows = -(-count // 8)
    blocks = np.zeros(rows, dtype=_BLOCK)
    for name, values, dtype in (("alu", alu, "<i4"), ("cpend", cpend, "<i2"), ("mul", mul, "<i2")):
        flat = np.zeros(rows * 8, dtype=dtype)
        flat[:count] = _narrow(values, dtype, count, f"{name} operand")
        blocks[name] = flat.reshape(rows, 8)
    return blocks.view(np.uint8)


def unpack_bs_table(
    memory: npt.NDArray[np.uint8], channels: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    """Return (A, B, C) of `channels` channels; the inverse of `pack_bs_table`."""
    rows = -(-channels // 8)
    blocks = np.ascontiguousarray(memory[: rows * _BLOCK.itemsize]).view(_BLOCK)
    return (
        blocks["alu"].reshape(-1)[:channels].astype(np.int32),
        blocks["cpend"].reshape(-1)[:channels].astype(np.int16),
        blocks["mul"].reshape(-1)[:channels].astype(np.int16),
    )
