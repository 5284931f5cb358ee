"""Element types of the DPU and the sizes that follow from them ([HW 3], [HW 7.2], [HW 7.11])."""

from amaranth.hdl import Mux, Value
from amaranth.lib import enum

from rkcosim.spec import types
from rkcosim.spec.types import DEPTHWISE as DEPTHWISE


class Precision(enum.IntEnum, shape=3):
    """IN_, PROC_ and OUT_PRECISION of DPU and DPU_RDMA; code 7 is reserved."""

    INT8 = types.INT8.dpu_code
    INT16 = types.INT16.dpu_code
    FP16 = types.FP16.dpu_code
    BF16 = types.BF16.dpu_code
    INT32 = types.INT32.dpu_code
    FP32 = types.FP32.dpu_code
    INT4 = types.INT4.dpu_code
    RESERVED = 7


class Width(enum.IntEnum, shape=2):
    """Width of an element, as coded inside the DPU blocks: log2 of its bytes, or the code of int4."""

    BITS8 = 0
    BITS16 = 1
    BITS32 = 2
    BITS4 = 3


def is_float(code: Value) -> Value:
    """Whether a precision is a floating-point one (for PROC_PRECISION: the float domain, [HW 7.3])."""
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


def lanes_log(width: Value) -> Value:
    """Log2 of the elements of a `Width` that an atom holds."""
    return Mux(width == Width.BITS32, 2, Mux(width == Width.BITS16, 3, Mux(width == Width.BITS8, 4, 5)))


def group_octets(depthwise: Value, precision: Value) -> Value:
    """Octets of a delivered channel group: 8 for depthwise and int4, 4 for int8, otherwise 2 [HW 7.2]."""
    return Mux(depthwise | (precision == Precision.INT4), 8, Mux(precision == Precision.INT8, 4, 2))


def atoms_of(octets: Value, width: Value) -> Value:
    """Number of surfaces (atoms of a pixel) for `octets` octets, rounded down: 0 for less than an atom."""
    return Mux(
        width == Width.BITS32,
        octets << 1,
        Mux(width == Width.BITS16, octets, Mux(width == Width.BITS8, octets >> 1, octets >> 2)),
    )


def written_surfaces(depthwise: Value, in_precision: Value, out_precision: Value) -> Value:
    """Gw / C2' of [HW 7.11], at least 1: the required value of SIZE_E_1 + 1 with an active converter."""
    octets = Mux(depthwise & is_16_bit(in_precision), 4, group_octets(depthwise, in_precision))
    atoms = atoms_of(octets, width_of(out_precision))
    return Mux(atoms == 0, 1, atoms)
