"""Enumerations and structs of rknn_matmul_api.h with their C values and layouts (64-bit)."""

from __future__ import annotations

import ctypes as ct
from enum import IntEnum
from typing import TYPE_CHECKING

from rkcosim.driver.kernel.structs import c_fields
from rkcosim.rknn_api.types import RKNN_MAX_DIMS, RKNN_MAX_NAME_LEN, global_names, rknn_context

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
    """Quantisation of a matrix."""

    RKNN_QUANT_TYPE_PER_LAYER_SYM = 0
    RKNN_QUANT_TYPE_PER_LAYER_ASYM = 1
    RKNN_QUANT_TYPE_PER_CHANNEL_SYM = 2
    RKNN_QUANT_TYPE_PER_CHANNEL_ASYM = 3
    RKNN_QUANT_TYPE_PER_GROUP_SYM = 4
    RKNN_QUANT_TYPE_PER_GROUP_ASYM = 5


class rknn_matmul_layout(IntEnum):
    """Order of a matrix in memory; `TP_NORM` is only for B (N x K)."""

    RKNN_MM_LAYOUT_NORM = 0
    RKNN_MM_LAYOUT_NATIVE = 1
    RKNN_MM_LAYOUT_TP_NORM = 2


class rknn_matmul_info(ct.Structure):
    """Argument of `rknn_matmul_create`: C (M x N) = A (M x K) * B (K x N)."""

    _fields_ = c_fields(
        "s32 M, K, N; int type; s16 B_layout, B_quant_type, AC_layout, AC_quant_type; "
        "s32 iommu_domain_id; s16 group_size; s8 reserved[34]"
    )


class rknn_matmul_tensor_attr(ct.Structure):
    """Shape, size in bytes and type of one matrix."""

    _fields_ = c_fields(f"char name[{RKNN_MAX_NAME_LEN}]; u32 n_dims, dims[{RKNN_MAX_DIMS}], size; int type")


class rknn_matmul_io_attr(ct.Structure):
    """The three matrices."""

    _fields_ = [
        ("A", rknn_matmul_tensor_attr),
        ("B", rknn_matmul_tensor_attr),
        ("C", rknn_matmul_tensor_attr),
    ]


class rknn_quant_params(ct.Structure):
    """Scales and zero points of one matrix, which is selected by name."""

    _fields_ = [
        ("name", ct.c_char * RKNN_MAX_NAME_LEN),
        ("scale", ct.POINTER(ct.c_float)),
        ("scale_len", ct.c_int32),
        ("zp", ct.POINTER(ct.c_int32)),
        ("zp_len", ct.c_int32),
    ]


class rknn_matmul_shape(ct.Structure):
    """One shape of a dynamic product."""

    _fields_ = c_fields("s32 M, K, N")


def get_matmul_type_string(kind: int) -> str:
    """Name of a type of product, as returned by the header's inline function."""
    try:
        return rknn_matmul_type(kind).name
    except ValueError:
        return "UNKNOW"


__all__ = global_names(globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> int: ...
