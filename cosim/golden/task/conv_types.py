"""Types of CNA and CORE: sizes of their groups, and elements from bytes (docs/hardware.md section 0)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.dpu_float import widen16, widen_bf16

ATOM_BITS = 128
TF32_MASK = np.uint32(0xFFFFE000)
"""The 19 bits of a word that count as tf32."""


@dataclass(frozen=True)
class ConvType:
    """One line of the table in docs/hardware.md section 0.

    Parameters
    ----------
    code
        of IN_PRECISION and PROC_PRECISION.
    bits
        of an element.
    kernels, channels
        Kg and Cg: kernels of a kernel group, channels of a channel group.
    mantissa
        bits of a float's significand with the hidden one; 0 for integers.
    """

    name: str
    code: int
    bits: int
    kernels: int
    channels: int
    mantissa: int = 0

    @property
    def is_float(self) -> bool:
        """Whether products are floating-point numbers."""
        return self.mantissa > 0

    @property
    def per_atom(self) -> int:
        """C2, channels of an atom."""
        return ATOM_BITS // self.bits

    @property
    def tile_atoms(self) -> int:
        """Atoms of a kernel in a full weight tile."""
        return self.channels // self.per_atom

    @property
    def octets(self) -> int:
        """Octets of a kernel group."""
        return self.kernels // 8


INT8 = ConvType("int8", 0, 8, 32, 32)
INT16 = ConvType("int16", 1, 16, 16, 32)
FP16 = ConvType("fp16", 2, 16, 16, 32, 11)
BF16 = ConvType("bf16", 3, 16, 16, 32, 8)
INT4 = ConvType("int4", 6, 4, 64, 32)
TF32 = ConvType("tf32", 7, 32, 16, 16, 11)

BY_CODE = {t.code: t for t in (INT8, INT16, FP16, BF16, INT4, TF32)}


def type_of(code: int) -> ConvType:
    """Type of a precision code; the reserved ones count as int8 (docs/hardware.md 0.2)."""
    return BY_CODE.get(code, INT8)


def decode(kind: ConvType, raw: NDArray[np.uint8]) -> NDArray:
    """Read elements from bytes.

    Parameters
    ----------
    raw
        uint8 [..., n], with n a multiple of the element's bytes.

    Returns
    -------
    [..., n * 8 / bits]: int8 or int16 for integers, binary32 bits in uint32 for floats.
    """
    raw = np.ascontiguousarray(raw)
    if kind is INT4:
        nibbles = np.stack((raw & 15, raw >> 4), axis=-1).reshape(*raw.shape[:-1], -1)
        return ((nibbles ^ 8).astype(np.int8) - 8).astype(np.int8)
    if kind is INT8:
        return raw.view(np.int8)
    if kind is INT16:
        return raw.view("<i2")
    if kind is TF32:
        return raw.view("<u4") & TF32_MASK
    half = raw.view("<u2")
    return widen16(half) if kind is FP16 else widen_bf16(half)
