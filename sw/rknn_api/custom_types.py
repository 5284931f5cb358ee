"""Constants and structs of rknn_custom_op.h with their C values and layouts (64-bit)."""

from __future__ import annotations

import ctypes as ct
from enum import IntEnum
from typing import TYPE_CHECKING

from rkcosim.driver.kernel.structs import c_fields
from rkcosim.rknn_api.types import RKNN_MAX_NAME_LEN, global_names, rknn_tensor_attr, rknn_tensor_mem

RKNN_CUSTOM_OP_MAX_STR_LEN = 64
RKNN_CUSTOM_OP_MAX_VALUE_LEN = 32
RKNN_WARNING_SKIP_CUSTOM_OP_COMPUTE = -14

rknn_custom_op_interal_context = ct.c_uint64
"""Spelled as in the header."""


class rknn_target_type(IntEnum):
    """Processor that runs a custom operator."""

    RKNN_TARGET_TYPE_CPU = 1
    RKNN_TARGET_TYPE_GPU = 2
    RKNN_TARGET_TYPE_MAX = 3


class rknn_gpu_op_context(ct.Structure):
    """OpenCL handles of an operator on the GPU; always null here."""

    _fields_ = c_fields("pointer cl_context, cl_command_queue, cl_kernel")


class rknn_custom_op_context(ct.Structure):
    """First argument of every callback; `priv_data` belongs to the program."""

    _fields_ = [
        ("target", ct.c_int),
        ("internal_ctx", rknn_custom_op_interal_context),
        ("gpu_ctx", rknn_gpu_op_context),
        ("priv_data", ct.c_void_p),
    ]


class rknn_custom_op_tensor(ct.Structure):
    """One input or output of an operator."""

    _fields_ = [("attr", rknn_tensor_attr), ("mem", rknn_tensor_mem)]


class rknn_custom_op_attr(ct.Structure):
    """An attribute of the operator's node; `data` has `n_elems` elements of `dtype`."""

    _fields_ = c_fields(f"char name[{RKNN_MAX_NAME_LEN}]; int dtype; u32 n_elems; pointer data")


rknn_custom_op_callback = ct.CFUNCTYPE(
    ct.c_int,
    ct.POINTER(rknn_custom_op_context),
    ct.POINTER(rknn_custom_op_tensor),
    ct.c_uint32,
    ct.POINTER(rknn_custom_op_tensor),
    ct.c_uint32,
)
"""C type of init, prepare, compute and compute_native (not a name of the header)."""

rknn_custom_op_destroy = ct.CFUNCTYPE(ct.c_int, ct.POINTER(rknn_custom_op_context))
"""C type of destroy (not a name of the header)."""


class rknn_custom_op(ct.Structure):
    """One type of operator: its callbacks."""

    _fields_ = [
        ("version", ct.c_uint32),
        ("target", ct.c_int),
        ("op_type", ct.c_char * RKNN_MAX_NAME_LEN),
        ("cl_kernel_name", ct.c_char * RKNN_MAX_NAME_LEN),
        ("cl_kernel_source", ct.c_char_p),
        ("cl_source_size", ct.c_uint64),
        ("cl_build_options", ct.c_char * RKNN_MAX_NAME_LEN),
        ("init", rknn_custom_op_callback),
        ("prepare", rknn_custom_op_callback),
        ("compute", rknn_custom_op_callback),
        ("compute_native", rknn_custom_op_callback),
        ("destroy", rknn_custom_op_destroy),
    ]


get_custom_op_func = ct.CFUNCTYPE(ct.POINTER(rknn_custom_op))

__all__ = global_names(globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> int: ...
