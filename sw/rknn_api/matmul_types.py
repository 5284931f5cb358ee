"""Enumerations and structs of rknn_matmul_api.h with their C values and layouts (64-bit)."""

from __future__ import annotations

import ctypes as ct
from enum import IntEnum

from sw.rknn_api.types import RKNN_MAX_DIMS, RKNN_MAX_NAME_LEN, rknn_context

rknn_matmul_ctx = rknn_context


class rknn_matmul_type(IntEnum):
    """Types of A, B and C."""

    RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32 = 1
    RKNN_INT8_MM_INT8_TO_INT32 = 2
    RKNN_INT8_MM_INT8_TO_INT8 = 3
    RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16 = 4
    RKNN_FLOAT16_MM_INT8_TO_FLOAT32 = 5
    RKNN_FLOAT16_MM_INT8_TO_FLOAT16 = 6
    RKNN_FLOAT16_MM_INT4_TO_FLOAT32 = 7
    RKNN_FLOAT16_MM_INT4_TO_FLOAT16 = 8
    RKNN_INT8_MM_INT8_TO_FLOAT32 = 9
    RKNN_INT4_MM_INT4_TO_INT16 = 10
    RKNN_INT8_MM_INT4_TO_INT32 = 11
    RKNN_FLOAT16_MM_INT4_TO_BFLOAT16 = 12
    RKNN_INT8_MM_INT4_TO_FLOAT16 = 15


class rknn_matmul_quant_type(IntEnum):
    """How the numbers of a matrix are quantised."""

    RKNN_QUANT_TYPE_PER_LAYER_SYM = 0
    RKNN_QUANT_TYPE_PER_LAYER_ASYM = 1
    RKNN_QUANT_TYPE_PER_CHANNEL_SYM = 2
    RKNN_QUANT_TYPE_PER_CHANNEL_ASYM = 3
    RKNN_QUANT_TYPE_PER_GROUP_SYM = 4
    RKNN_QUANT_TYPE_PER_GROUP_ASYM = 5


class rknn_matmul_layout(IntEnum):
    """Order of a matrix in memory; `TP_NORM` is for B alone (N x K)."""

    RKNN_MM_LAYOUT_NORM = 0
    RKNN_MM_LAYOUT_NATIVE = 1
    RKNN_MM_LAYOUT_TP_NORM = 2


class rknn_matmul_info(ct.Structure):
    """What `rknn_matmul_create` is asked for: C (M x N) = A (M x K) * B (K x N)."""

    _fields_ = [
        ("M", ct.c_int32),
        ("K", ct.c_int32),
        ("N", ct.c_int32),
        ("type", ct.c_int),
        ("B_layout", ct.c_int16),
        ("B_quant_type", ct.c_int16),
        ("AC_layout", ct.c_int16),
        ("AC_quant_type", ct.c_int16),
        ("iommu_domain_id", ct.c_int32),
        ("group_size", ct.c_int16),
        ("reserved", ct.c_int8 * 34),
    ]


class rknn_matmul_tensor_attr(ct.Structure):
    """Shape, size in bytes and type of one matrix."""

    _fields_ = [
        ("name", ct.c_char * RKNN_MAX_NAME_LEN),
        ("n_dims", ct.c_uint32),
        ("dims", ct.c_uint32 * RKNN_MAX_DIMS),
        ("size", ct.c_uint32),
        ("type", ct.c_int),
    ]


class rknn_matmul_io_attr(ct.Structure):
    """The three matrices."""

    _fields_ = [
        ("A", rknn_matmul_tensor_attr),
        ("B", rknn_matmul_tensor_attr),
        ("C", rknn_matmul_tensor_attr),
    ]


class rknn_quant_params(ct.Structure):
    """Scales and zero points of one matrix, chosen by name."""

    _fields_ = [
        ("name", ct.c_char * RKNN_MAX_NAME_LEN),
        ("scale", ct.POINTER(ct.c_float)),
        ("scale_len", ct.c_int32),
        ("zp", ct.POINTER(ct.c_int32)),
        ("zp_len", ct.c_int32),
    ]


class rknn_matmul_shape(ct.Structure):
    """One shape of a dynamic product."""

    _fields_ = [("M", ct.c_int32), ("K", ct.c_int32), ("N", ct.c_int32)]


def get_matmul_type_string(kind: int) -> str:
    """Name of a type of product, as the header's inline function gives it."""
    try:
        return rknn_matmul_type(kind).name
    except ValueError:
        return "UNKNOW"


# In C the members of an enumeration are global names.
RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32 = rknn_matmul_type.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32
RKNN_INT8_MM_INT8_TO_INT32 = rknn_matmul_type.RKNN_INT8_MM_INT8_TO_INT32
RKNN_INT8_MM_INT8_TO_INT8 = rknn_matmul_type.RKNN_INT8_MM_INT8_TO_INT8
RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16 = rknn_matmul_type.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16
RKNN_FLOAT16_MM_INT8_TO_FLOAT32 = rknn_matmul_type.RKNN_FLOAT16_MM_INT8_TO_FLOAT32
RKNN_FLOAT16_MM_INT8_TO_FLOAT16 = rknn_matmul_type.RKNN_FLOAT16_MM_INT8_TO_FLOAT16
RKNN_FLOAT16_MM_INT4_TO_FLOAT32 = rknn_matmul_type.RKNN_FLOAT16_MM_INT4_TO_FLOAT32
RKNN_FLOAT16_MM_INT4_TO_FLOAT16 = rknn_matmul_type.RKNN_FLOAT16_MM_INT4_TO_FLOAT16
RKNN_INT8_MM_INT8_TO_FLOAT32 = rknn_matmul_type.RKNN_INT8_MM_INT8_TO_FLOAT32
RKNN_INT4_MM_INT4_TO_INT16 = rknn_matmul_type.RKNN_INT4_MM_INT4_TO_INT16
RKNN_INT8_MM_INT4_TO_INT32 = rknn_matmul_type.RKNN_INT8_MM_INT4_TO_INT32
RKNN_FLOAT16_MM_INT4_TO_BFLOAT16 = rknn_matmul_type.RKNN_FLOAT16_MM_INT4_TO_BFLOAT16
RKNN_INT8_MM_INT4_TO_FLOAT16 = rknn_matmul_type.RKNN_INT8_MM_INT4_TO_FLOAT16
RKNN_QUANT_TYPE_PER_LAYER_SYM = rknn_matmul_quant_type.RKNN_QUANT_TYPE_PER_LAYER_SYM
RKNN_QUANT_TYPE_PER_LAYER_ASYM = rknn_matmul_quant_type.RKNN_QUANT_TYPE_PER_LAYER_ASYM
RKNN_QUANT_TYPE_PER_CHANNEL_SYM = rknn_matmul_quant_type.RKNN_QUANT_TYPE_PER_CHANNEL_SYM
RKNN_QUANT_TYPE_PER_CHANNEL_ASYM = rknn_matmul_quant_type.RKNN_QUANT_TYPE_PER_CHANNEL_ASYM
RKNN_QUANT_TYPE_PER_GROUP_SYM = rknn_matmul_quant_type.RKNN_QUANT_TYPE_PER_GROUP_SYM
RKNN_QUANT_TYPE_PER_GROUP_ASYM = rknn_matmul_quant_type.RKNN_QUANT_TYPE_PER_GROUP_ASYM
RKNN_MM_LAYOUT_NORM = rknn_matmul_layout.RKNN_MM_LAYOUT_NORM
RKNN_MM_LAYOUT_NATIVE = rknn_matmul_layout.RKNN_MM_LAYOUT_NATIVE
RKNN_MM_LAYOUT_TP_NORM = rknn_matmul_layout.RKNN_MM_LAYOUT_TP_NORM

__all__ = [
    name
    for name in dir()
    if name.startswith(("RKNN_", "rknn_", "get_"))
    and name not in ("RKNN_MAX_DIMS", "RKNN_MAX_NAME_LEN", "rknn_context")
]
