"""Element types of the DPU and the sizes that follow from them (docs 0, 4.1, 4.10)."""

from amaranth.hdl import Mux, Value
from amaranth.lib import enum


class Precision(enum.IntEnum, shape=3):
    """IN_, PROC_ and OUT_PRECISION of DPU and DPU_RDMA; code 7 is reserved."""

    INT8 = 0
    INT16 = 1
    FP16 = 2
    BF16 = 3
    INT32 = 4
    FP32 = 5
    INT4 = 6
    RESERVED = 7


DEPTHWISE = 3
"""CONV_MODE of a depthwise convolution (H 2.4)."""


class Width(enum.IntEnum, shape=2):
    """Bits of an element, as coded inside the DPU family: log2 of its bytes, and int4."""

    BITS8 = 0
    BITS16 = 1
    BITS32 = 2
    BITS4 = 3


def is_float(code: Value) -> Value:
    """Whether a precision is a floating-point one (as PROC_PRECISION: the float domain, docs 0.4)."""
    return (code == Precision.FP16) | (code == Precision.BF16) | (code == Precision.FP32)


def is_16_bit(code: Value) -> Value:
    """Whether elements of a precision take 16 bits."""
    return (code == Precision.INT16) | (code == Precision.FP16) | (code == Precision.BF16)


def width_of(code: Value) -> Value:
    """The `Width` of a precision; the reserved code counts as int8."""
    wide = (code == Precision.INT32) | (code == Precision.FP32)
    return Mux(
        wide, Width.BITS32, Mux(is_16_bit(code), Width.BITS16, Mux(code == Precision.INT4, Width.BITS4, 0))
    )


def group_octets(depthwise: Value, precision: Value) -> Value:
    """Octets of a channel group as they come: 8 depthwise and int4, 4 int8, else 2 (docs 4.1)."""
    return Mux(depthwise | (precision == Precision.INT4), 8, Mux(precision == Precision.INT8, 4, 2))


def atoms_of(octets: Value, width: Value) -> Value:
    """Surfaces (atoms of a pixel) that `octets` octets take, rounded down: 0 for less than an atom."""
    return Mux(
        width == Width.BITS32,
        octets << 1,
        Mux(width == Width.BITS16, octets, Mux(width == Width.BITS8, octets >> 1, octets >> 2)),
    )


def written_surfaces(depthwise: Value, in_precision: Value, out_precision: Value) -> Value:
    """Gw / C2' of docs 4.10, at least 1: what SIZE_E_1 + 1 has to be with a live converter."""
    octets = Mux(depthwise & is_16_bit(in_precision), 4, group_octets(depthwise, in_precision))
    atoms = atoms_of(octets, width_of(out_precision))
    return Mux(atoms == 0, 1, atoms)
