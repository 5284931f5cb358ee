"""Constants, enumerations and structs of rknn_api.h with their C values and layouts (64-bit).

The last member of most enumerations (`..._MAX`, `..._UNDEFINED`) only marks its end.
"""

from __future__ import annotations

import ctypes as ct
from enum import IntEnum

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
"""For `rknn_create_mem2` alone."""

rknn_context = ct.c_uint64


class rknn_query_cmd(IntEnum):
    """What `rknn_query` is asked for."""

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
    """Where the memory of a `rknn_tensor_mem` comes from."""

    RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE = 1
    RKNN_TENSOR_MEMORY_FLAGS_FROM_FD = 2
    RKNN_TENSOR_MEMORY_FLAGS_FROM_PHYS = 3
    RKNN_TENSOR_MEMORY_FLAGS_UNKNOWN = 4


class rknn_mem_alloc_flags(IntEnum):
    """How `rknn_create_mem2` allocates; bits."""

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

    _fields_ = [("n_input", ct.c_uint32), ("n_output", ct.c_uint32)]


class rknn_tensor_attr(ct.Structure):
    """Shape, type and quantisation of a tensor."""

    _fields_ = [
        ("index", ct.c_uint32),
        ("n_dims", ct.c_uint32),
        ("dims", ct.c_uint32 * RKNN_MAX_DIMS),
        ("name", ct.c_char * RKNN_MAX_NAME_LEN),
        ("n_elems", ct.c_uint32),
        ("size", ct.c_uint32),
        ("fmt", ct.c_int),
        ("type", ct.c_int),
        ("qnt_type", ct.c_int),
        ("fl", ct.c_int8),
        ("zp", ct.c_int32),
        ("scale", ct.c_float),
        ("w_stride", ct.c_uint32),
        ("size_with_stride", ct.c_uint32),
        ("pass_through", ct.c_uint8),
        ("h_stride", ct.c_uint32),
    ]


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
    """Text of a run's layers; the library owns it."""

    _fields_ = [("perf_data", ct.c_char_p), ("data_len", ct.c_uint64)]


class rknn_perf_run(ct.Structure):
    """Duration of the last run in microseconds."""

    _fields_ = [("run_duration", ct.c_int64)]


class rknn_sdk_version(ct.Structure):
    """Versions of library and driver."""

    _fields_ = [("api_version", ct.c_char * 256), ("drv_version", ct.c_char * 256)]


class rknn_mem_size(ct.Structure):
    """Memory of a context in bytes."""

    _fields_ = [
        ("total_weight_size", ct.c_uint32),
        ("total_internal_size", ct.c_uint32),
        ("total_dma_allocated_size", ct.c_uint64),
        ("total_sram_size", ct.c_uint32),
        ("free_sram_size", ct.c_uint32),
        ("reserved", ct.c_uint32 * 10),
    ]


class rknn_custom_string(ct.Structure):
    """Text stored in a model by its author."""

    _fields_ = [("string", ct.c_char * 1024)]


class rknn_tensor_mem(ct.Structure):
    """A piece of device memory."""

    _fields_ = [
        ("virt_addr", ct.c_void_p),
        ("phys_addr", ct.c_uint64),
        ("fd", ct.c_int32),
        ("offset", ct.c_int32),
        ("size", ct.c_uint32),
        ("flags", ct.c_uint32),
        ("priv_data", ct.c_void_p),
    ]


class rknn_input(ct.Structure):
    """One input handed to `rknn_inputs_set`."""

    _fields_ = [
        ("index", ct.c_uint32),
        ("buf", ct.c_void_p),
        ("size", ct.c_uint32),
        ("pass_through", ct.c_uint8),
        ("type", ct.c_int),
        ("fmt", ct.c_int),
    ]


class rknn_output(ct.Structure):
    """One output asked of `rknn_outputs_get`."""

    _fields_ = [
        ("want_float", ct.c_uint8),
        ("is_prealloc", ct.c_uint8),
        ("index", ct.c_uint32),
        ("buf", ct.c_void_p),
        ("size", ct.c_uint32),
    ]


class rknn_init_extend(ct.Structure):
    """More about the model of `rknn_init`."""

    _fields_ = [
        ("ctx", rknn_context),
        ("real_model_offset", ct.c_int32),
        ("real_model_size", ct.c_uint32),
        ("model_buffer_fd", ct.c_int32),
        ("model_buffer_flags", ct.c_uint32),
        ("reserved", ct.c_uint8 * 112),
    ]


class rknn_run_extend(ct.Structure):
    """More about a run."""

    _fields_ = [
        ("frame_id", ct.c_uint64),
        ("non_block", ct.c_int32),
        ("timeout_ms", ct.c_int32),
        ("fence_fd", ct.c_int32),
    ]


class rknn_output_extend(ct.Structure):
    """More about fetched outputs."""

    _fields_ = [("frame_id", ct.c_uint64)]


def get_type_string(kind: int) -> str:
    """Short name of an element type, as the header's inline function gives it."""
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


# In C the members of an enumeration are global names.
RKNN_QUERY_IN_OUT_NUM = rknn_query_cmd.RKNN_QUERY_IN_OUT_NUM
RKNN_QUERY_INPUT_ATTR = rknn_query_cmd.RKNN_QUERY_INPUT_ATTR
RKNN_QUERY_OUTPUT_ATTR = rknn_query_cmd.RKNN_QUERY_OUTPUT_ATTR
RKNN_QUERY_PERF_DETAIL = rknn_query_cmd.RKNN_QUERY_PERF_DETAIL
RKNN_QUERY_PERF_RUN = rknn_query_cmd.RKNN_QUERY_PERF_RUN
RKNN_QUERY_SDK_VERSION = rknn_query_cmd.RKNN_QUERY_SDK_VERSION
RKNN_QUERY_MEM_SIZE = rknn_query_cmd.RKNN_QUERY_MEM_SIZE
RKNN_QUERY_CUSTOM_STRING = rknn_query_cmd.RKNN_QUERY_CUSTOM_STRING
RKNN_QUERY_NATIVE_INPUT_ATTR = rknn_query_cmd.RKNN_QUERY_NATIVE_INPUT_ATTR
RKNN_QUERY_NATIVE_NC1HWC2_INPUT_ATTR = rknn_query_cmd.RKNN_QUERY_NATIVE_NC1HWC2_INPUT_ATTR
RKNN_QUERY_NATIVE_OUTPUT_ATTR = rknn_query_cmd.RKNN_QUERY_NATIVE_OUTPUT_ATTR
RKNN_QUERY_NATIVE_NC1HWC2_OUTPUT_ATTR = rknn_query_cmd.RKNN_QUERY_NATIVE_NC1HWC2_OUTPUT_ATTR
RKNN_QUERY_NATIVE_NHWC_INPUT_ATTR = rknn_query_cmd.RKNN_QUERY_NATIVE_NHWC_INPUT_ATTR
RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR = rknn_query_cmd.RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR
RKNN_QUERY_DEVICE_MEM_INFO = rknn_query_cmd.RKNN_QUERY_DEVICE_MEM_INFO
RKNN_QUERY_INPUT_DYNAMIC_RANGE = rknn_query_cmd.RKNN_QUERY_INPUT_DYNAMIC_RANGE
RKNN_QUERY_CURRENT_INPUT_ATTR = rknn_query_cmd.RKNN_QUERY_CURRENT_INPUT_ATTR
RKNN_QUERY_CURRENT_OUTPUT_ATTR = rknn_query_cmd.RKNN_QUERY_CURRENT_OUTPUT_ATTR
RKNN_QUERY_CURRENT_NATIVE_INPUT_ATTR = rknn_query_cmd.RKNN_QUERY_CURRENT_NATIVE_INPUT_ATTR
RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR = rknn_query_cmd.RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR
RKNN_QUERY_CMD_MAX = rknn_query_cmd.RKNN_QUERY_CMD_MAX
RKNN_TENSOR_FLOAT32 = rknn_tensor_type.RKNN_TENSOR_FLOAT32
RKNN_TENSOR_FLOAT16 = rknn_tensor_type.RKNN_TENSOR_FLOAT16
RKNN_TENSOR_INT8 = rknn_tensor_type.RKNN_TENSOR_INT8
RKNN_TENSOR_UINT8 = rknn_tensor_type.RKNN_TENSOR_UINT8
RKNN_TENSOR_INT16 = rknn_tensor_type.RKNN_TENSOR_INT16
RKNN_TENSOR_UINT16 = rknn_tensor_type.RKNN_TENSOR_UINT16
RKNN_TENSOR_INT32 = rknn_tensor_type.RKNN_TENSOR_INT32
RKNN_TENSOR_UINT32 = rknn_tensor_type.RKNN_TENSOR_UINT32
RKNN_TENSOR_INT64 = rknn_tensor_type.RKNN_TENSOR_INT64
RKNN_TENSOR_BOOL = rknn_tensor_type.RKNN_TENSOR_BOOL
RKNN_TENSOR_INT4 = rknn_tensor_type.RKNN_TENSOR_INT4
RKNN_TENSOR_BFLOAT16 = rknn_tensor_type.RKNN_TENSOR_BFLOAT16
RKNN_TENSOR_TYPE_MAX = rknn_tensor_type.RKNN_TENSOR_TYPE_MAX
RKNN_TENSOR_QNT_NONE = rknn_tensor_qnt_type.RKNN_TENSOR_QNT_NONE
RKNN_TENSOR_QNT_DFP = rknn_tensor_qnt_type.RKNN_TENSOR_QNT_DFP
RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC = rknn_tensor_qnt_type.RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC
RKNN_TENSOR_QNT_MAX = rknn_tensor_qnt_type.RKNN_TENSOR_QNT_MAX
RKNN_TENSOR_NCHW = rknn_tensor_format.RKNN_TENSOR_NCHW
RKNN_TENSOR_NHWC = rknn_tensor_format.RKNN_TENSOR_NHWC
RKNN_TENSOR_NC1HWC2 = rknn_tensor_format.RKNN_TENSOR_NC1HWC2
RKNN_TENSOR_UNDEFINED = rknn_tensor_format.RKNN_TENSOR_UNDEFINED
RKNN_TENSOR_FORMAT_MAX = rknn_tensor_format.RKNN_TENSOR_FORMAT_MAX
RKNN_NPU_CORE_AUTO = rknn_core_mask.RKNN_NPU_CORE_AUTO
RKNN_NPU_CORE_0 = rknn_core_mask.RKNN_NPU_CORE_0
RKNN_NPU_CORE_1 = rknn_core_mask.RKNN_NPU_CORE_1
RKNN_NPU_CORE_2 = rknn_core_mask.RKNN_NPU_CORE_2
RKNN_NPU_CORE_0_1 = rknn_core_mask.RKNN_NPU_CORE_0_1
RKNN_NPU_CORE_0_1_2 = rknn_core_mask.RKNN_NPU_CORE_0_1_2
RKNN_NPU_CORE_ALL = rknn_core_mask.RKNN_NPU_CORE_ALL
RKNN_NPU_CORE_UNDEFINED = rknn_core_mask.RKNN_NPU_CORE_UNDEFINED
RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE = rknn_tensor_mem_flags.RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE
RKNN_TENSOR_MEMORY_FLAGS_FROM_FD = rknn_tensor_mem_flags.RKNN_TENSOR_MEMORY_FLAGS_FROM_FD
RKNN_TENSOR_MEMORY_FLAGS_FROM_PHYS = rknn_tensor_mem_flags.RKNN_TENSOR_MEMORY_FLAGS_FROM_PHYS
RKNN_TENSOR_MEMORY_FLAGS_UNKNOWN = rknn_tensor_mem_flags.RKNN_TENSOR_MEMORY_FLAGS_UNKNOWN
RKNN_FLAG_MEMORY_FLAGS_DEFAULT = rknn_mem_alloc_flags.RKNN_FLAG_MEMORY_FLAGS_DEFAULT
RKNN_FLAG_MEMORY_CACHEABLE = rknn_mem_alloc_flags.RKNN_FLAG_MEMORY_CACHEABLE
RKNN_FLAG_MEMORY_NON_CACHEABLE = rknn_mem_alloc_flags.RKNN_FLAG_MEMORY_NON_CACHEABLE
RKNN_FLAG_MEMORY_TRY_ALLOC_SRAM = rknn_mem_alloc_flags.RKNN_FLAG_MEMORY_TRY_ALLOC_SRAM
RKNN_MEMORY_SYNC_TO_DEVICE = rknn_mem_sync_mode.RKNN_MEMORY_SYNC_TO_DEVICE
RKNN_MEMORY_SYNC_FROM_DEVICE = rknn_mem_sync_mode.RKNN_MEMORY_SYNC_FROM_DEVICE
RKNN_MEMORY_SYNC_BIDIRECTIONAL = rknn_mem_sync_mode.RKNN_MEMORY_SYNC_BIDIRECTIONAL

__all__ = [name for name in dir() if name.startswith(("RKNN_", "rknn_", "get_"))]
