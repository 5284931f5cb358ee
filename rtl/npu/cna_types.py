"""Differences between the types of the CNA: sizes of atoms, groups and tiles [HW 3]."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Mux, Value, ValueLike
from amaranth.lib import enum

from rkcosim.spec import types
from rkcosim.spec.config import NpuConfig
from rkcosim.spec.types import DEPTHWISE as DEPTHWISE

WIDE_GROUP = types.DEPTHWISE_GROUP
"""Channels of a depthwise group for every type [HW 5.2]."""


class Precision(enum.IntEnum, shape=3):
    """Codes of CNA and CORE [HW 3]; 4 and 5 are reserved and count as int8."""

    INT8 = types.INT8.code
    INT16 = types.INT16.code
    FP16 = types.FP16.code
    BF16 = types.BF16.code
    INT4 = types.INT4.code
    TF32 = types.TF32.code


RESERVED = (4, 5)
"""Precision codes without a type."""

FLOATS = (Precision.FP16, Precision.BF16, Precision.TF32)


def one_of(value: Value, *codes: int) -> Value:
    """Whether `value` is one of the codes."""
    return Cat(*(Value.cast(value) == int(code) for code in codes)).any()


@dataclass(frozen=True)
class TypeOf:
    """Sizes of the type that a precision field names; every property is an expression of a few gates.

    Parameters
    ----------
    field : Value
        IN_PRECISION or PROC_PRECISION of CNA or CORE, 3 bits.
    """

    field: Value

    @property
    def code(self) -> Value:
        """The code, with 0 for the reserved codes."""
        return Mux(one_of(self.field, *RESERVED), 0, Value.cast(self.field))

    @property
    def int4(self) -> Value:
        """Whether the type is int4."""
        return Value.cast(self.field) == Precision.INT4.value

    @property
    def int8(self) -> Value:
        """Whether the type is int8, as which the reserved codes count."""
        return one_of(self.field, Precision.INT8, *RESERVED)

    @property
    def tf32(self) -> Value:
        """Whether the type is tf32."""
        return Value.cast(self.field) == Precision.TF32.value

    @property
    def half_word(self) -> Value:
        """Whether the type has 16 bits."""
        return one_of(self.field, Precision.INT16, Precision.FP16, Precision.BF16)

    @property
    def is_float(self) -> Value:
        """Whether the type is a floating-point type."""
        return one_of(self.field, *FLOATS)

    def _choose(self, int4: ValueLike, int8: ValueLike, half_word: ValueLike, tf32: ValueLike) -> Value:
        return Mux(self.int4, int4, Mux(self.tf32, tf32, Mux(self.half_word, half_word, int8)))

    @property
    def element_log2(self) -> Value:
        """log2 of the bits of an element: 2 to 5."""
        return self._choose(2, 3, 4, 5)

    @property
    def tile_log2(self) -> Value:
        """log2 of the atoms of a full tile's kernel: 0 to 2."""
        return self._choose(0, 1, 2, 2)

    @property
    def group_kernels(self) -> Value:
        """Kernels of a kernel group: 16, 32 or 64."""
        return self._choose(64, 32, 16, 16)

    @property
    def group_channels(self) -> Value:
        """Channels of a channel group: 16 or 32."""
        return Mux(self.tf32, 16, 32)

    def atoms(self, channels: Value) -> Value:
        """Number of atoms that hold `channels` channels of a pixel."""
        return self._choose(*((channels + (1 << log2) - 1) >> log2 for log2 in (5, 4, 3, 2)))

    def kernel_groups(self, kernels: Value) -> Value:
        """Number of kernel groups for `kernels` kernels."""
        return self._choose(*((kernels + (1 << log2) - 1) >> log2 for log2 in (6, 5, 4, 4)))

    def channel_groups(self, channels: Value) -> Value:
        """Number of channel groups for `channels` channels."""
        return Mux(self.tf32, (channels + 15) >> 4, (channels + 31) >> 5)


def at_most(value: Value, limit: int | Value) -> Value:
    """The smaller one of `value` and `limit`."""
    return Mux(value > limit, limit, value)


def feature_entries(banks: Any, config: NpuConfig) -> Value:
    """Entries of CBUF that can hold features: those before the banks of weights [HW 4.10]."""
    all_banks = config.cbuf_banks
    before = (all_banks - banks.WEIGHT_BANK)[:4] * config.bank_entries
    return Mux(banks.WEIGHT_BANK < all_banks, before, 0)


def is_argb(con1: Any) -> Value:
    """Whether CONV_CON1 selects first-layer input with a type that supports it [HW 4.2]."""
    of = TypeOf(con1.IN_PRECISION)
    return (Value.cast(con1.ARGB_IN)[2:] == 2) & ~of.int4 & ~of.tf32
