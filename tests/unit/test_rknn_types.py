"""rknn_api: sizes, offsets and values of the three C headers, written here from their reference."""

from __future__ import annotations

import ctypes as ct
from enum import IntEnum

import pytest

import rkcosim.rknn_api as rk

U = 4
LAYOUTS: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {
    "rknn_input_output_num": (8, {"n_input": (0, U), "n_output": (4, U)}),
    "rknn_tensor_attr": (
        376,
        {
            "index": (0, U),
            "n_dims": (4, U),
            "dims": (8, 64),
            "name": (72, 256),
            "n_elems": (328, U),
            "size": (332, U),
            "fmt": (336, U),
            "type": (340, U),
            "qnt_type": (344, U),
            "fl": (348, 1),
            "zp": (352, U),
            "scale": (356, U),
            "w_stride": (360, U),
            "size_with_stride": (364, U),
            "pass_through": (368, 1),
            "h_stride": (372, U),
        },
    ),
    "rknn_input_range": (
        33040,
        {
            "index": (0, U),
            "shape_number": (4, U),
            "fmt": (8, U),
            "name": (12, 256),
            "dyn_range": (268, 32768),
            "n_dims": (33036, U),
        },
    ),
    "rknn_perf_detail": (16, {"perf_data": (0, 8), "data_len": (8, 8)}),
    "rknn_perf_run": (8, {"run_duration": (0, 8)}),
    "rknn_sdk_version": (512, {"api_version": (0, 256), "drv_version": (256, 256)}),
    "rknn_mem_size": (
        64,
        {
            "total_weight_size": (0, U),
            "total_internal_size": (4, U),
            "total_dma_allocated_size": (8, 8),
            "total_sram_size": (16, U),
            "free_sram_size": (20, U),
            "reserved": (24, 40),
        },
    ),
    "rknn_custom_string": (1024, {"string": (0, 1024)}),
    "rknn_tensor_mem": (
        40,
        {
            "virt_addr": (0, 8),
            "phys_addr": (8, 8),
            "fd": (16, U),
            "offset": (20, U),
            "size": (24, U),
            "flags": (28, U),
            "priv_data": (32, 8),
        },
    ),
    "rknn_input": (
        32,
        {
            "index": (0, U),
            "buf": (8, 8),
            "size": (16, U),
            "pass_through": (20, 1),
            "type": (24, U),
            "fmt": (28, U),
        },
    ),
    "rknn_output": (
        24,
        {"want_float": (0, 1), "is_prealloc": (1, 1), "index": (4, U), "buf": (8, 8), "size": (16, U)},
    ),
    "rknn_init_extend": (
        136,
        {
            "ctx": (0, 8),
            "real_model_offset": (8, U),
            "real_model_size": (12, U),
            "model_buffer_fd": (16, U),
            "model_buffer_flags": (20, U),
            "reserved": (24, 112),
        },
    ),
    "rknn_run_extend": (
        24,
        {"frame_id": (0, 8), "non_block": (8, U), "timeout_ms": (12, U), "fence_fd": (16, U)},
    ),
    "rknn_output_extend": (8, {"frame_id": (0, 8)}),
}

MATMUL = {
    "rknn_matmul_info": (
        64,
        {
            "M": (0, U),
            "K": (4, U),
            "N": (8, U),
            "type": (12, U),
            "B_layout": (16, 2),
            "B_quant_type": (18, 2),
            "AC_layout": (20, 2),
            "AC_quant_type": (22, 2),
            "iommu_domain_id": (24, U),
            "group_size": (28, 2),
            "reserved": (30, 34),
        },
    ),
    "rknn_matmul_tensor_attr": (
        332,
        {"name": (0, 256), "n_dims": (256, U), "dims": (260, 64), "size": (324, U), "type": (328, U)},
    ),
    "rknn_matmul_io_attr": (996, {"A": (0, 332), "B": (332, 332), "C": (664, 332)}),
    "rknn_quant_params": (
        288,
        {"name": (0, 256), "scale": (256, 8), "scale_len": (264, U), "zp": (272, 8), "zp_len": (280, U)},
    ),
    "rknn_matmul_shape": (12, {"M": (0, U), "K": (4, U), "N": (8, U)}),
}
CUSTOM = {
    "rknn_gpu_op_context": (24, {"cl_context": (0, 8), "cl_command_queue": (8, 8), "cl_kernel": (16, 8)}),
    "rknn_custom_op_context": (
        48,
        {"target": (0, U), "internal_ctx": (8, 8), "gpu_ctx": (16, 24), "priv_data": (40, 8)},
    ),
    "rknn_custom_op_tensor": (416, {"attr": (0, 376), "mem": (376, 40)}),
    "rknn_custom_op_attr": (
        272,
        {"name": (0, 256), "dtype": (256, U), "n_elems": (260, U), "data": (264, 8)},
    ),
    "rknn_custom_op": (
        832,
        {
            "version": (0, U),
            "target": (4, U),
            "op_type": (8, 256),
            "cl_kernel_name": (264, 256),
            "cl_kernel_source": (520, 8),
            "cl_source_size": (528, 8),
            "cl_build_options": (536, 256),
            "init": (792, 8),
            "prepare": (800, 8),
            "compute": (808, 8),
            "compute_native": (816, 8),
            "destroy": (824, 8),
        },
    ),
}
LAYOUTS |= MATMUL | CUSTOM

VALUES = {
    "RKNN_MAX_DIMS": 16,
    "RKNN_MAX_NUM_CHANNEL": 15,
    "RKNN_MAX_NAME_LEN": 256,
    "RKNN_MAX_DYNAMIC_SHAPE_NUM": 512,
    "RKNN_SUCC": 0,
    "RKNN_ERR_FAIL": -1,
    "RKNN_ERR_TIMEOUT": -2,
    "RKNN_ERR_DEVICE_UNAVAILABLE": -3,
    "RKNN_ERR_MALLOC_FAIL": -4,
    "RKNN_ERR_PARAM_INVALID": -5,
    "RKNN_ERR_MODEL_INVALID": -6,
    "RKNN_ERR_CTX_INVALID": -7,
    "RKNN_ERR_INPUT_INVALID": -8,
    "RKNN_ERR_OUTPUT_INVALID": -9,
    "RKNN_ERR_DEVICE_UNMATCH": -10,
    "RKNN_ERR_INCOMPATILE_PRE_COMPILE_MODEL": -11,
    "RKNN_ERR_INCOMPATILE_OPTIMIZATION_LEVEL_VERSION": -12,
    "RKNN_ERR_TARGET_PLATFORM_UNMATCH": -13,
    "RKNN_WARNING_SKIP_CUSTOM_OP_COMPUTE": -14,
    "RKNN_FLAG_PRIOR_HIGH": 0x0,
    "RKNN_FLAG_PRIOR_MEDIUM": 0x1,
    "RKNN_FLAG_PRIOR_LOW": 0x2,
    "RKNN_FLAG_ASYNC_MASK": 0x4,
    "RKNN_FLAG_COLLECT_PERF_MASK": 0x8,
    "RKNN_FLAG_MEM_ALLOC_OUTSIDE": 0x10,
    "RKNN_FLAG_SHARE_WEIGHT_MEM": 0x20,
    "RKNN_FLAG_FENCE_IN_OUTSIDE": 0x40,
    "RKNN_FLAG_FENCE_OUT_OUTSIDE": 0x80,
    "RKNN_FLAG_COLLECT_MODEL_INFO_ONLY": 0x100,
    "RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE": 0x200,
    "RKNN_FLAG_EXECUTE_FALLBACK_PRIOR_DEVICE_GPU": 0x400,
    "RKNN_FLAG_ENABLE_SRAM": 0x800,
    "RKNN_FLAG_SHARE_SRAM": 0x1000,
    "RKNN_FLAG_DISABLE_PROC_HIGH_PRIORITY": 0x2000,
    "RKNN_FLAG_DISABLE_FLUSH_INPUT_MEM_CACHE": 0x4000,
    "RKNN_FLAG_DISABLE_FLUSH_OUTPUT_MEM_CACHE": 0x8000,
    "RKNN_FLAG_MODEL_BUFFER_ZERO_COPY": 0x10000,
    "RKNN_MEM_FLAG_ALLOC_NO_CONTEXT": 0x20000,
    "RKNN_QUERY_IN_OUT_NUM": 0,
    "RKNN_QUERY_INPUT_ATTR": 1,
    "RKNN_QUERY_OUTPUT_ATTR": 2,
    "RKNN_QUERY_PERF_DETAIL": 3,
    "RKNN_QUERY_PERF_RUN": 4,
    "RKNN_QUERY_SDK_VERSION": 5,
    "RKNN_QUERY_MEM_SIZE": 6,
    "RKNN_QUERY_CUSTOM_STRING": 7,
    "RKNN_QUERY_NATIVE_INPUT_ATTR": 8,
    "RKNN_QUERY_NATIVE_NC1HWC2_INPUT_ATTR": 8,
    "RKNN_QUERY_NATIVE_OUTPUT_ATTR": 9,
    "RKNN_QUERY_NATIVE_NC1HWC2_OUTPUT_ATTR": 9,
    "RKNN_QUERY_NATIVE_NHWC_INPUT_ATTR": 10,
    "RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR": 11,
    "RKNN_QUERY_DEVICE_MEM_INFO": 12,
    "RKNN_QUERY_INPUT_DYNAMIC_RANGE": 13,
    "RKNN_QUERY_CURRENT_INPUT_ATTR": 14,
    "RKNN_QUERY_CURRENT_OUTPUT_ATTR": 15,
    "RKNN_QUERY_CURRENT_NATIVE_INPUT_ATTR": 16,
    "RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR": 17,
    "RKNN_QUERY_CMD_MAX": 18,
    "RKNN_TENSOR_FLOAT32": 0,
    "RKNN_TENSOR_FLOAT16": 1,
    "RKNN_TENSOR_INT8": 2,
    "RKNN_TENSOR_UINT8": 3,
    "RKNN_TENSOR_INT16": 4,
    "RKNN_TENSOR_UINT16": 5,
    "RKNN_TENSOR_INT32": 6,
    "RKNN_TENSOR_UINT32": 7,
    "RKNN_TENSOR_INT64": 8,
    "RKNN_TENSOR_BOOL": 9,
    "RKNN_TENSOR_INT4": 10,
    "RKNN_TENSOR_BFLOAT16": 11,
    "RKNN_TENSOR_TYPE_MAX": 12,
    "RKNN_TENSOR_QNT_NONE": 0,
    "RKNN_TENSOR_QNT_DFP": 1,
    "RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC": 2,
    "RKNN_TENSOR_QNT_MAX": 3,
    "RKNN_TENSOR_NCHW": 0,
    "RKNN_TENSOR_NHWC": 1,
    "RKNN_TENSOR_NC1HWC2": 2,
    "RKNN_TENSOR_UNDEFINED": 3,
    "RKNN_TENSOR_FORMAT_MAX": 4,
    "RKNN_NPU_CORE_AUTO": 0,
    "RKNN_NPU_CORE_0": 1,
    "RKNN_NPU_CORE_1": 2,
    "RKNN_NPU_CORE_2": 4,
    "RKNN_NPU_CORE_0_1": 3,
    "RKNN_NPU_CORE_0_1_2": 7,
    "RKNN_NPU_CORE_ALL": 0xFFFF,
    "RKNN_NPU_CORE_UNDEFINED": 0x10000,
    "RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE": 1,
    "RKNN_TENSOR_MEMORY_FLAGS_FROM_FD": 2,
    "RKNN_TENSOR_MEMORY_FLAGS_FROM_PHYS": 3,
    "RKNN_TENSOR_MEMORY_FLAGS_UNKNOWN": 4,
    "RKNN_FLAG_MEMORY_FLAGS_DEFAULT": 0,
    "RKNN_FLAG_MEMORY_CACHEABLE": 1,
    "RKNN_FLAG_MEMORY_NON_CACHEABLE": 2,
    "RKNN_FLAG_MEMORY_TRY_ALLOC_SRAM": 4,
    "RKNN_MEMORY_SYNC_TO_DEVICE": 1,
    "RKNN_MEMORY_SYNC_FROM_DEVICE": 2,
    "RKNN_MEMORY_SYNC_BIDIRECTIONAL": 3,
    "RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32": 1,
    "RKNN_INT8_MM_INT8_TO_INT32": 2,
    "RKNN_INT8_MM_INT8_TO_INT8": 3,
    "RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT16": 4,
    "RKNN_FLOAT16_MM_INT8_TO_FLOAT32": 5,
    "RKNN_FLOAT16_MM_INT8_TO_FLOAT16": 6,
    "RKNN_FLOAT16_MM_INT4_TO_FLOAT32": 7,
    "RKNN_FLOAT16_MM_INT4_TO_FLOAT16": 8,
    "RKNN_INT8_MM_INT8_TO_FLOAT32": 9,
    "RKNN_INT4_MM_INT4_TO_INT16": 10,
    "RKNN_INT8_MM_INT4_TO_INT32": 11,
    "RKNN_FLOAT16_MM_INT4_TO_BFLOAT16": 12,
    "RKNN_INT8_MM_INT4_TO_FLOAT16": 15,
    "RKNN_QUANT_TYPE_PER_LAYER_SYM": 0,
    "RKNN_QUANT_TYPE_PER_LAYER_ASYM": 1,
    "RKNN_QUANT_TYPE_PER_CHANNEL_SYM": 2,
    "RKNN_QUANT_TYPE_PER_CHANNEL_ASYM": 3,
    "RKNN_QUANT_TYPE_PER_GROUP_SYM": 4,
    "RKNN_QUANT_TYPE_PER_GROUP_ASYM": 5,
    "RKNN_MM_LAYOUT_NORM": 0,
    "RKNN_MM_LAYOUT_NATIVE": 1,
    "RKNN_MM_LAYOUT_TP_NORM": 2,
    "RKNN_CUSTOM_OP_MAX_STR_LEN": 64,
    "RKNN_CUSTOM_OP_MAX_VALUE_LEN": 32,
    "RKNN_TARGET_TYPE_CPU": 1,
    "RKNN_TARGET_TYPE_GPU": 2,
    "RKNN_TARGET_TYPE_MAX": 3,
}

FUNCTIONS = """
    rknn_init rknn_dup_context rknn_destroy rknn_query rknn_inputs_set rknn_set_batch_core_num
    rknn_set_core_mask rknn_run rknn_wait rknn_outputs_get rknn_outputs_release rknn_create_mem_from_phys
    rknn_create_mem_from_fd rknn_create_mem_from_mb_blk rknn_create_mem rknn_create_mem2 rknn_destroy_mem
    rknn_set_weight_mem rknn_set_internal_mem rknn_set_io_mem rknn_set_input_shape rknn_set_input_shapes
    rknn_mem_sync
    rknn_matmul_create rknn_matmul_create_dynamic_shape rknn_matmul_create_dyn_shape
    rknn_matmul_set_dynamic_shape rknn_matmul_set_io_mem rknn_matmul_set_core_mask
    rknn_matmul_set_quant_params rknn_matmul_get_quant_params rknn_matmul_run rknn_matmul_destroy
    rknn_B_normal_layout_to_native_layout
    rknn_register_custom_ops rknn_custom_op_get_op_attr
""".split()


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_is_the_headers(name: str) -> None:
    size, fields = LAYOUTS[name]
    kind = getattr(rk, name)
    assert ct.sizeof(kind) == size
    assert [entry[0] for entry in kind._fields_] == list(fields)
    for entry, place in fields.items():
        described = getattr(kind, entry)
        assert (described.offset, described.size) == place, entry


def test_every_struct_and_value_is_in_the_tables() -> None:
    structs = {
        n for n in rk.__all__ if isinstance(getattr(rk, n), type) and issubclass(getattr(rk, n), ct.Structure)
    }
    assert structs == set(LAYOUTS)
    constants = {n for n in rk.__all__ if n.startswith("RKNN_")}
    assert constants == set(VALUES)


@pytest.mark.parametrize("name", VALUES)
def test_value_is_the_headers(name: str) -> None:
    assert getattr(rk, name) == VALUES[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_is_there(name: str) -> None:
    assert callable(getattr(rk, name)) and name in rk.__all__


def test_members_of_enumerations_are_four_bytes_and_global() -> None:
    enums = [
        getattr(rk, n)
        for n in rk.__all__
        if isinstance(getattr(rk, n), type) and issubclass(getattr(rk, n), IntEnum)
    ]
    assert len(enums) == 12
    for enum in enums:
        for name, member in enum.__members__.items():
            assert getattr(rk, name) == member == VALUES[name]
    assert ct.sizeof(rk.rknn_context) == ct.sizeof(rk.rknn_matmul_ctx) == 8
    assert ct.sizeof(rk.rknn_custom_op_interal_context) == 8


def test_signedness_is_the_headers() -> None:
    signed = {
        rk.rknn_tensor_attr: ("zp", "fl"),
        rk.rknn_tensor_mem: ("fd", "offset"),
        rk.rknn_init_extend: ("real_model_offset", "model_buffer_fd"),
        rk.rknn_run_extend: ("non_block", "timeout_ms", "fence_fd"),
        rk.rknn_perf_run: ("run_duration",),
        rk.rknn_matmul_info: (
            "M K N B_layout B_quant_type AC_layout AC_quant_type iommu_domain_id group_size".split()
        ),
        rk.rknn_quant_params: ("scale_len", "zp_len"),
        rk.rknn_matmul_shape: ("M", "K", "N"),
    }
    for kind, names in signed.items():
        instance = kind()
        for name in names:
            setattr(instance, name, -1)
            assert getattr(instance, name) == -1, name
    unsigned = {
        rk.rknn_input: ("index", "size"),
        rk.rknn_output: ("index", "size"),
        rk.rknn_tensor_attr: (
            "index",
            "n_dims",
            "n_elems",
            "size",
            "w_stride",
            "size_with_stride",
            "h_stride",
        ),
        rk.rknn_mem_size: ("total_weight_size", "total_internal_size", "total_sram_size", "free_sram_size"),
        rk.rknn_matmul_tensor_attr: ("n_dims", "size"),
        rk.rknn_custom_op: ("version",),
    }
    for kind, names in unsigned.items():
        for name in names:
            assert getattr(kind(**{name: -1}), name) == 0xFFFFFFFF, name


def test_inline_helpers() -> None:
    types = "FP32 FP16 INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 BOOL INT4 BF16".split()
    assert [rk.get_type_string(n) for n in range(12)] == types
    assert [rk.get_qnt_type_string(n) for n in range(3)] == ["NONE", "DFP", "AFFINE"]
    assert [rk.get_format_string(n) for n in range(4)] == ["NCHW", "NHWC", "NC1HWC2", "UNDEFINED"]
    assert {rk.get_type_string(99), rk.get_qnt_type_string(-1), rk.get_format_string(4)} == {"UNKNOW"}
    assert rk.get_matmul_type_string(2) == "RKNN_INT8_MM_INT8_TO_INT32"
    assert rk.get_matmul_type_string(13) == "UNKNOW"
