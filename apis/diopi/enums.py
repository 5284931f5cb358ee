"""Numbers of DIOPI's interface (DeepLink-org/DIOPI b179d617, proto/include/diopi/diopirt.h)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Error(IntEnum):
    """Results of calls, `diopiError` in Python."""

    diopi_success = 0
    diopi_error_occurred = 1
    diopi_not_inited = 2
    diopi_no_registered_stream_create_function = 3
    diopi_no_registered_stream_destory_function = 4
    diopi_no_registered_stream_sync_function = 5
    diopi_no_registered_device_memory_malloc_function = 6
    diopi_no_registered_device_memory_free_function = 7
    diopi_no_registered_device2device_memory_copy_function = 8
    diopi_no_registered_device2host_memory_copy_function = 9
    diopi_no_registered_host2device_memory_copy_function = 10
    diopi_no_registered_get_last_error_function = 11
    diopi_5d_not_supported = 12
    diopi_no_implement = 13
    diopi_force_fallback_to_cpu = 14
    diopi_dtype_not_supported = 1000


class Device(IntEnum):
    """Where a tensor lies."""

    Host = 0
    AIChip = 1


class Dtype(IntEnum):
    """Types of elements."""

    int8 = 0
    uint8 = 1
    int16 = 2
    uint16 = 3
    int32 = 4
    uint32 = 5
    int64 = 6
    uint64 = 7
    float16 = 8
    float32 = 9
    float64 = 10
    bool = 11
    bfloat16 = 12
    tfloat32 = 13
    complex32 = 14
    complex64 = 15
    complex128 = 16


class Layout(IntEnum):
    """Layouts of tensors, `diopiLayout` in Python."""

    Strided = 0
    Sparse = 1
    SparseCsr = 2
    SparseCsc = 3
    SparseBsr = 4
    SparseBsc = 5


class Reduction(IntEnum):
    """Reductions of losses, `diopiReduction` in Python."""

    ReductionNone = 0
    ReductionMean = 1
    ReductionSum = 2
    ReductionEND = 3


class RoundMode(IntEnum):
    """Rounding of quotients, `diopiRoundMode` in Python."""

    RoundModeNone = 0
    RoundModeTrunc = 1
    RoundModeFloor = 2
    RoundModeEND = 3


NUMPY: dict[Dtype, np.dtype] = {
    Dtype[name]: np.dtype(name)
    for name in (
        *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
        *("float16", "float32", "float64", "bool", "complex64", "complex128"),
    )
}
"""Types of numpy; the others have none."""

ITEM_SIZES = {Dtype.bfloat16: 2, Dtype.tfloat32: 4, Dtype.complex32: 4} | {
    dtype: made.itemsize for dtype, made in NUMPY.items()
}
"""Bytes of an element."""
