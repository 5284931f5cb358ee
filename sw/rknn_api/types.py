"""Constants, enumerations and structs of rknn_api.h with their C values and layouts (64-bit).

The last member of most enumerations (`..._MAX`, `..._UNDEFINED`) only marks its end.
"""

from __future__ import annotations

import ctypes as ct
from enum import EnumType, IntEnum
from typing import TYPE_CHECKING, Any

from rkcosim.driver.kernel.structs import c_fields

VERSION = "2.3.2"
"""Version of the interface that is implemented."""

RKNN_MAX_DIMS = 16
RKNN_MAX_NUM_CHANNEL = 15
RKNN_MAX_NAME_LEN = 256
RKNN_MAX_DYNAMIC_SHAPE_NUM = 512

RKNN_SUCC = 0
RKNN_ERR_FAIL = -1
RKNN_ERR_TIMEOUT = -2
RKNN_ERR_DEVICE_UNAVAILABLE = -3
RKNN_ERR_MALLOC_FAIL = -4
RKNN_ERR_PARAM_INVALID = -5
RKNN_ERR_MODEL_INVALID = -6
RKNN_ERR_CTX_INVALID = -7
RKNN_ERR_INPUT_INVALID = -8
RKNN_ERR_OUTPUT_INVALID = -9
RKNN_ERR_DEVICE_UNMATCH = -10
RKNN_ERR_INCOMPATILE_PRE_COMPILE_MODEL = -11
RKNN_ERR_INCOMPATILE_OPTIMIZATION_LEVEL_VERSION = -12
RKNN_ERR_TARGET_PLATFORM_UNMATCH = -13

RKNN_FLAG_PRIOR_HIGH = 0x00000000
RKNN_FLAG_PRIOR_MEDIUM = 0x00000001
RKNN_FLAG_PRIOR_LOW = 0x00000002
RKNN_FLAG_ASYNC_MASK = 0x00000004
RKNN_FLAG_COLLECT_PERF_MASK = 0x00000008
RKNN_FLAG_MEM_ALLOC_OUTSIDE = 0x00000010
RKNN_FLAG_SHARE_WEIGHT_MEM = 0x00000020
RKNN_FLAG_FENCE_IN_OUTSIDE = 0x00000040
RKNN_FLAG_FENCE_OUT_OUTSIDE = 0x00000080
RKNN_FLAG_COLLECT_MODEL_INFO_ONLY = 0x00000100
RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE = 0x00000200
RKNN_FLAG_EXECUTE_FALLBACK_PRIOR_DEVICE_GPU = 0x00000400
RKNN_FLAG_ENABLE_SRAM = 0x00000800
RKNN_FLAG_SHARE_SRAM = 0x00001000
RKNN_FLAG_DISABLE_PROC_HIGH_PRIORITY = 0x00002000
RKNN_FLAG_DISABLE_FLUSH_INPUT_MEM_CACHE = 0x00004000
RKNN_FLAG_DISABLE_FLUSH_OUTPUT_MEM_CACHE = 0x00008000
RKNN_FLAG_MODEL_BUFFER_ZERO_COPY = 0x00010000

RKNN_MEM_FLAG_ALLOC_NO_CONTEXT = 0x00020000
"""Only for `rknn_create_mem2`."""

rknn_context = ct.c_uint64


class rknn_query_cmd(IntEnum):
    """Commands of `rknn_query`."""

    RKNN_QUERY_IN_OUT_NUM = 0
    RKNN_QUERY_INPUT_ATTR = 1
    RKNN_QUERY_OUTPUT_ATTR = 2
    RKNN_QUERY_PERF_DETAIL = 3
    RKNN_QUERY_PERF_RUN = 4
    RKNN_QUERY_SDK_VERSION = 5
    RKNN_QUERY_MEM_SIZE = 6
    RKNN_QUERY_CUSTOM_STRING = 7
    RKNN_QUERY_NATIVE_INPUT_ATTR = 8
    RKNN_QUERY_NATIVE_NC1HWC2_INPUT_ATTR = 8
    RKNN_QUERY_NATIVE_OUTPUT_ATTR = 9
    RKNN_QUERY_NATIVE_NC1HWC2_OUTPUT_ATTR = 9
    RKNN_QUERY_NATIVE_NHWC_INPUT_ATTR = 10
    RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR = 11
    RKNN_QUERY_DEVICE_MEM_INFO = 12
    RKNN_QUERY_INPUT_DYNAMIC_RANGE = 13
    RKNN_QUERY_CURRENT_INPUT_ATTR = 14
    RKNN_QUERY_CURRENT_OUTPUT_ATTR = 15
    RKNN_QUERY_CURRENT_NATIVE_INPUT_ATTR = 16
    RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR = 17
    RKNN_QUERY_CMD_MAX = 18


class rknn_tensor_type(IntEnum):
    """Element types."""

    RKNN_TENSOR_FLOAT32 = 0
    RKNN_TENSOR_FLOAT16 = 1
    RKNN_TENSOR_INT8 = 2
    RKNN_TENSOR_UINT8 = 3
    RKNN_TENSOR_INT16 = 4
    RKNN_TENSOR_UINT16 = 5
    RKNN_TENSOR_INT32 = 6
    RKNN_TENSOR_UINT32 = 7
    RKNN_TENSOR_INT64 = 8
    RKNN_TENSOR_BOOL = 9
    RKNN_TENSOR_INT4 = 10
    RKNN_TENSOR_BFLOAT16 = 11
    RKNN_TENSOR_TYPE_MAX = 12


class rknn_tensor_qnt_type(IntEnum):
    """Kinds of quantisation."""

    RKNN_TENSOR_QNT_NONE = 0
    RKNN_TENSOR_QNT_DFP = 1
    RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC = 2
    RKNN_TENSOR_QNT_MAX = 3


class rknn_tensor_format(IntEnum):
    """Orders of dimensions."""

    RKNN_TENSOR_NCHW = 0
    RKNN_TENSOR_NHWC = 1
    RKNN_TENSOR_NC1HWC2 = 2
    RKNN_TENSOR_UNDEFINED = 3
    RKNN_TENSOR_FORMAT_MAX = 4


class rknn_core_mask(IntEnum):
    """Cores that may run a context."""

    RKNN_NPU_CORE_AUTO = 0
    RKNN_NPU_CORE_0 = 1
    RKNN_NPU_CORE_1 = 2
    RKNN_NPU_CORE_2 = 4
    RKNN_NPU_CORE_0_1 = 3
    RKNN_NPU_CORE_0_1_2 = 7
    RKNN_NPU_CORE_ALL = 0xFFFF
    RKNN_NPU_CORE_UNDEFINED = 0x10000


class rknn_tensor_mem_flags(IntEnum):
    """Origin of the memory of a `rknn_tensor_mem`."""

    RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE = 1
    RKNN_TENSOR_MEMORY_FLAGS_FROM_FD = 2
    RKNN_TENSOR_MEMORY_FLAGS_FROM_PHYS = 3
    RKNN_TENSOR_MEMORY_FLAGS_UNKNOWN = 4


class rknn_mem_alloc_flags(IntEnum):
    """Options of `rknn_create_mem2`; bits."""

    RKNN_FLAG_MEMORY_FLAGS_DEFAULT = 0
    RKNN_FLAG_MEMORY_CACHEABLE = 1
    RKNN_FLAG_MEMORY_NON_CACHEABLE = 2
    RKNN_FLAG_MEMORY_TRY_ALLOC_SRAM = 4


class rknn_mem_sync_mode(IntEnum):
    """Direction of `rknn_mem_sync`."""

    RKNN_MEMORY_SYNC_TO_DEVICE = 1
    RKNN_MEMORY_SYNC_FROM_DEVICE = 2
    RKNN_MEMORY_SYNC_BIDIRECTIONAL = 3


class rknn_input_output_num(ct.Structure):
    """Number of inputs and outputs."""

    _fields_ = c_fields("u32 n_input, n_output")


class rknn_tensor_attr(ct.Structure):
    """Shape, type and quantisation of a tensor."""

    _fields_ = c_fields(
        f"u32 index, n_dims, dims[{RKNN_MAX_DIMS}]; char name[{RKNN_MAX_NAME_LEN}]; "
        "u32 n_elems, size; int fmt, type, qnt_type; s8 fl; s32 zp; float scale; "
        "u32 w_stride, size_with_stride; u8 pass_through; u32 h_stride"
    )


class rknn_input_range(ct.Structure):
    """Shapes that an input of a dynamic model may take."""

    _fields_ = [
        ("index", ct.c_uint32),
        ("shape_number", ct.c_uint32),
        ("fmt", ct.c_int),
        ("name", ct.c_char * RKNN_MAX_NAME_LEN),
        ("dyn_range", (ct.c_uint32 * RKNN_MAX_DIMS) * RKNN_MAX_DYNAMIC_SHAPE_NUM),
        ("n_dims", ct.c_uint32),
    ]


class rknn_perf_detail(ct.Structure):
    """Text about the layers of a run; the library owns it."""

    _fields_ = c_fields("string perf_data; u64 data_len")


class rknn_perf_run(ct.Structure):
    """Duration of the last run in microseconds."""

    _fields_ = c_fields("s64 run_duration")


class rknn_sdk_version(ct.Structure):
    """Versions of library and driver."""

    _fields_ = c_fields("char api_version[256], drv_version[256]")


class rknn_mem_size(ct.Structure):
    """Memory of a context in bytes."""

    _fields_ = c_fields(
        "u32 total_weight_size, total_internal_size; u64 total_dma_allocated_size; "
        "u32 total_sram_size, free_sram_size, reserved[10]"
    )


class rknn_custom_string(ct.Structure):
    """Text stored in a model by its author."""

    _fields_ = c_fields("char string[1024]")


class rknn_tensor_mem(ct.Structure):
    """A piece of device memory."""

    _fields_ = c_fields(
        "pointer virt_addr; u64 phys_addr; s32 fd, offset; u32 size, flags; pointer priv_data"
    )


class rknn_input(ct.Structure):
    """One input for `rknn_inputs_set`."""

    _fields_ = c_fields("u32 index; pointer buf; u32 size; u8 pass_through; int type, fmt")


class rknn_output(ct.Structure):
    """One output requested from `rknn_outputs_get`."""

    _fields_ = c_fields("u8 want_float, is_prealloc; u32 index; pointer buf; u32 size")


class rknn_init_extend(ct.Structure):
    """Further arguments of `rknn_init`."""

    _fields_ = c_fields(
        "u64 ctx; s32 real_model_offset; u32 real_model_size; s32 model_buffer_fd; "
        "u32 model_buffer_flags; u8 reserved[112]"
    )


class rknn_run_extend(ct.Structure):
    """Further arguments of a run."""

    _fields_ = c_fields("u64 frame_id; s32 non_block, timeout_ms, fence_fd")


class rknn_output_extend(ct.Structure):
    """Further arguments of fetching outputs."""

    _fields_ = c_fields("u64 frame_id")


def get_type_string(kind: int) -> str:
    """Short name of an element type, as returned by the header's inline function."""
    names = "FP32 FP16 INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 BOOL INT4 BF16".split()
    return names[kind] if 0 <= kind < len(names) else "UNKNOW"


def get_qnt_type_string(kind: int) -> str:
    """Short name of a kind of quantisation."""
    names = "NONE DFP AFFINE".split()
    return names[kind] if 0 <= kind < len(names) else "UNKNOW"


def get_format_string(fmt: int) -> str:
    """Short name of an order of dimensions."""
    names = "NCHW NHWC NC1HWC2 UNDEFINED".split()
    return names[fmt] if 0 <= fmt < len(names) else "UNKNOW"


def global_names(module: dict[str, Any]) -> list[str]:
    """Make the members of a header's enumerations global names, as in C, and return the header's names.

    Parameters
    ----------
    module
        `globals()` of the module with the enumerations.
    """
    for enumeration in [kind for kind in module.values() if isinstance(kind, EnumType)]:
        module.update(enumeration.__members__)
    return [name for name in module if name.startswith(("RKNN_", "rknn_", "get_"))]


__all__ = global_names(globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> int: ...
