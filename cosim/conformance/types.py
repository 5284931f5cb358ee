"""Element types: codes, widths and the group sizes that follow from them (docs/hardware.md, section 0)."""

from __future__ import annotations

from dataclasses import dataclass

ATOM = 16


@dataclass(frozen=True)
class ElementType:
    """One type of the table in docs/hardware.md, section 0.

    Parameters
    ----------
    name
        for people.
    cna
        code of CNA and CORE; None where only the DPU knows the type.
    dpu
        code of DPU and DPU_RDMA.
    bits
        of an element.
    is_float
        domain.
    kernels, channels
        kernels of a kernel group and channels of a channel group.
    """

    name: str
    cna: int | None
    dpu: int
    bits: int
    is_float: bool
    kernels: int = 0
    channels: int = 0

    @property
    def per_atom(self) -> int:
        """Channels of an atom."""
        return 128 // self.bits

    @property
    def tile_atoms(self) -> int:
        """Atoms of a kernel in a full weight tile."""
        return self.channels // self.per_atom

    @property
    def flying_group(self) -> int:
        """Channels of a group in flying mode (4.1)."""
        return {"int4": 64, "int8": 32}.get(self.name, 16)

    def surfaces(self, channels: int) -> int:
        """Atoms that so many channels take."""
        return -(-channels // self.per_atom)


INT4 = ElementType("int4", 6, 6, 4, False, 64, 32)
INT8 = ElementType("int8", 0, 0, 8, False, 32, 32)
INT16 = ElementType("int16", 1, 1, 16, False, 16, 32)
FP16 = ElementType("fp16", 2, 2, 16, True, 16, 32)
BF16 = ElementType("bf16", 3, 3, 16, True, 16, 32)
TF32 = ElementType("tf32", 7, 5, 32, True, 16, 16)
INT32 = ElementType("int32", None, 4, 32, False)
FP32 = ElementType("fp32", None, 5, 32, True)

CONV_TYPES = (INT8, INT4, INT16, FP16, BF16, TF32)
INTEGERS = (INT8, INT4, INT16, INT32)
FLOATS = (FP16, BF16, FP32)
BY_NAME = {t.name: t for t in (INT4, INT8, INT16, FP16, BF16, TF32, INT32, FP32)}
