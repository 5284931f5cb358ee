"""Element types of the NPU, and the sizes and codes that RTL, golden model and tools share.

Codes are taken from the enumerations of the register description (spec/regs/types.rdl); sizes of groups from
[HW 3], [HW 5.2], [HW 7.2].
"""

from __future__ import annotations

from dataclasses import dataclass

from rkcosim.spec.config import ATOM_BYTES, ENTRY_BYTES, RK3588
from rkcosim.spec.regs import registers

ATOM = ATOM_BYTES
"""Bytes of an atom."""
ENTRY_ATOMS = ENTRY_BYTES // ATOM
"""Atoms of a CBUF entry."""
BANKS, BANK_ENTRIES = RK3588.cbuf_banks, RK3588.bank_entries
"""Banks of CBUF, and entries of a bank."""
BANK_BYTES = RK3588.cbuf_bank_bytes
STRIPE = RK3588.stripe_pixels
"""Output pixels of a stripe."""
LANES = 8
"""Channels that the DPU processes together."""
PACKET = 8
"""Atoms of a packet [HW 7.12]."""
MAXIMUM = 7
"""Code of MINMAX_CTL for the maximum over the channels: enabled, maximum, values alone [HW 7.16]."""
DEPTHWISE_GROUP = 64
"""Channels of a depthwise group [HW 5.2]."""
SURFACES_NAMED = 8
"""Maximum number of surfaces of a kernel group that SIZE_E can express [HW 7.11]."""
RESIDUAL = 5
"""COMB_USE that splits the element-wise operand between both readers [HW 8.5]."""
ALTERNATE = 3
"""COMB_USE that splits the main data of a flying task between both readers [HW 8.5]."""
LUT_ENTRIES = 513
"""Entries of a table of the DPU [HW 7.9]."""
LUT_MAX_STEP = 22
"""Largest log2 of the step between two entries [HW 7.9]."""
OPEN_RESULTS = 2048
"""Capacity of the PPU in results of open rows [HW 9.9]."""
POOL_RUN = 32
"""Atoms of the longest run that the PPU writes: pieces of values and of positions alternate (assumed)."""
POOL_ATOM_CYCLES = 4
"""Cycles in which the PPU takes an atom of its input: 32 bits a cycle, of every type [HW 9.10]."""
POOL_RESULT_CYCLES = 1
"""Cycles of an atom of results, which the PPU does not overlap with its input [HW 9.10]."""
POOL_SURFACES = 8
"""Maximum number of surfaces of the DPU's group that the PPU takes [HW 9.9]."""
SPREADS = {0: 1, 1: 2, 3: 4, 7: 8}
"""Distance of input pixels, by the stride field of a transposed convolution [HW 5.4]."""


def _codes(block: str, register: str, field: str) -> dict[str, int]:
    found = registers()[block][register].fields[field].enum
    assert found is not None
    return {name.lower(): code for name, code in found.items()}


_CNA = _codes("CNA", "CONV_CON1", "IN_PRECISION")
_DPU = _codes("DPU", "DATA_FORMAT", "OUT_PRECISION")
PPU_CODES = _codes("PPU", "DATA_FORMAT", "PROC_PRECISION")
"""Codes of the PPU by the name of the type."""

DEPTHWISE = _codes("CNA", "CONV_CON1", "CONV_MODE")["depthwise"]
"""CONV_MODE of a depthwise convolution, in every block."""


@dataclass(frozen=True)
class ElementType:
    """Element type: one row of the table in [HW 3].

    Parameters
    ----------
    name
        Name in the register description, in lower case.
    bits
        Bits of an element in memory.
    kernels, channels
        Kg and Cg: kernels of a kernel group, channels of a channel group; 0 for types without convolutions.
    mantissa
        Bits of a float's significand with the hidden bit; 0 for integers.
    """

    name: str
    bits: int
    kernels: int = 0
    channels: int = 0
    mantissa: int = 0

    @property
    def code(self) -> int:
        """Code in IN_PRECISION and PROC_PRECISION of CNA and CORE."""
        return _CNA[self.name]

    @property
    def dpu_code(self) -> int:
        """Code in the precision fields of DPU and DPU_RDMA; tf32 results leave the array as binary32."""
        return _DPU["fp32" if self.name == "tf32" else self.name]

    @property
    def is_float(self) -> bool:
        """Whether elements are floating-point numbers."""
        return self.mantissa > 0

    @property
    def per_atom(self) -> int:
        """C2, the number of channels of an atom."""
        return 8 * ATOM // self.bits

    @property
    def tile_atoms(self) -> int:
        """Number of atoms of a kernel in a full weight tile."""
        return self.channels // self.per_atom

    @property
    def flying_group(self) -> int:
        """Number of channels of a group that the DPU reads from memory [HW 7.2]."""
        return dpu_group(False, self.dpu_code)

    def surfaces(self, channels: int) -> int:
        """Number of atoms of a pixel with `channels` channels."""
        return -(-channels // self.per_atom)

    @property
    def octets(self) -> int:
        """Number of octets of a kernel group."""
        return self.kernels // 8


INT8 = ElementType("int8", 8, 32, 32)
INT16 = ElementType("int16", 16, 16, 32)
FP16 = ElementType("fp16", 16, 16, 32, 11)
BF16 = ElementType("bf16", 16, 16, 32, 8)
INT4 = ElementType("int4", 4, 64, 32)
TF32 = ElementType("tf32", 32, 16, 16, 11)
INT32 = ElementType("int32", 32)
FP32 = ElementType("fp32", 32, mantissa=24)

CONV_TYPES = (INT8, INT4, INT16, FP16, BF16, TF32)
"""Types of convolutions."""
CONV_CODES = {t.code: t for t in CONV_TYPES}
"""Types of convolutions by the code of CNA and CORE."""
INTEGERS = (INT8, INT4, INT16, INT32)
FLOATS = (FP16, BF16, FP32)
"""Types of the DPU in the integer domain (`INTEGERS`) and in the float domain (`FLOATS`)."""
BY_NAME = {t.name: t for t in (INT4, INT8, INT16, FP16, BF16, TF32, INT32, FP32)}
PLAIN_ONLY = (INT4.code, TF32.code)
"""CNA codes of types without depthwise and first-layer modes ([HW 4.2], [HW 5.2])."""
DPU_TYPES = {t.dpu_code: t for t in (INT8, INT16, FP16, BF16, INT32, FP32, INT4)}
"""Types by the code of DPU and DPU_RDMA."""
ELEMENT_BITS = {code: t.bits for code, t in DPU_TYPES.items()}
"""Bits of an element by the code of the DPU."""
FLOAT_CODES = tuple(code for code, t in DPU_TYPES.items() if t.is_float)
"""Codes of the DPU whose types are floating-point numbers [HW 7.3]."""
SIXTEEN_BITS = tuple(code for code, t in DPU_TYPES.items() if t.bits == 16)
"""Codes of the DPU whose elements have 16 bits."""
ERDMA_BITS = (4, 8, 16, 32)
"""Bits of an element by ERDMA_DATA_SIZE."""
POOL_BITS = {PPU_CODES[t.name]: t.bits for t in (INT8, INT16, FP16)}
"""Bits of an element by PROC_PRECISION of the PPU."""
POOL_STORED = {(code, ERDMA_BITS.index(bits)) for code, bits in POOL_BITS.items()}
"""Pairs of PROC_PRECISION of the PPU and matching IN_PRECISION of PPU_RDMA [HW 9.1]."""


def conv_type(code: int) -> ElementType:
    """Type of a precision code of CNA or CORE; reserved codes count as int8 [HW 3.1.2]."""
    return CONV_CODES.get(code, INT8)


def dpu_group(depthwise: bool, code: int) -> int:
    """Channels of a group according to DPU and DPU_RDMA ([HW 7.2], [HW 8.1])."""
    return DEPTHWISE_GROUP if depthwise else {INT4.dpu_code: 64, INT8.dpu_code: 32}.get(code, 16)


def bits_of(code: int) -> int:
    """Bits of an element by the code of the DPU; the reserved code counts as int8 [HW 7.3]."""
    return ELEMENT_BITS.get(code, INT8.bits)
