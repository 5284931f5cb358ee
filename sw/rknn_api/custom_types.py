"""Constants and structs of rknn_custom_op.h with their C values and layouts (64-bit)."""

from __future__ import annotations

import ctypes as ct
from enum import IntEnum

from sw.rknn_api.types import RKNN_MAX_NAME_LEN, rknn_tensor_attr, rknn_tensor_mem

RKNN_CUSTOM_OP_MAX_STR_LEN = 64
RKNN_CUSTOM_OP_MAX_VALUE_LEN = 32
RKNN_WARNING_SKIP_CUSTOM_OP_COMPUTE = -14

rknn_custom_op_interal_context = ct.c_uint64
"""Spelt as in the header."""


class rknn_target_type(IntEnum):
    """Where a custom operator runs."""

    RKNN_TARGET_TYPE_CPU = 1
    RKNN_TARGET_TYPE_GPU = 2
    RKNN_TARGET_TYPE_MAX = 3


class rknn_gpu_op_context(ct.Structure):
    """OpenCL handles of an operator on the GPU; always null here."""

    _fields_ = [
        ("cl_context", ct.c_void_p),
        ("cl_command_queue", ct.c_void_p),
        ("cl_kernel", ct.c_void_p),
    ]


class rknn_custom_op_context(ct.Structure):
    """What every callback gets first; `priv_data` is the program's."""

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
    """An attribute of the operator's node; `data` holds `n_elems` elements of `dtype`."""

    _fields_ = [
        ("name", ct.c_char * RKNN_MAX_NAME_LEN),
        ("dtype", ct.c_int),
        ("n_elems", ct.c_uint32),
        ("data", ct.c_void_p),
    ]


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

# In C the members of an enumeration are global names.
RKNN_TARGET_TYPE_CPU = rknn_target_type.RKNN_TARGET_TYPE_CPU
RKNN_TARGET_TYPE_GPU = rknn_target_type.RKNN_TARGET_TYPE_GPU
RKNN_TARGET_TYPE_MAX = rknn_target_type.RKNN_TARGET_TYPE_MAX

__all__ = [
    name
    for name in dir()
    if name.startswith(("RKNN_", "rknn_", "get_"))
    and name not in ("RKNN_MAX_NAME_LEN", "rknn_tensor_attr", "rknn_tensor_mem")
]
