"""Table of the signatures of all functions of the three C headers.

The table is used by `rkcosim.rknn_api.state.api` (value that a function returns when it fails), by the
generator of C declarations and of the shared library (`rkcosim.rknn_api.declarations`), and by the server of
that library (`rkcosim.rknn_api.server`). The layouts of structs are those of the ctypes classes in `types`,
`matmul_types` and `custom_types`.
"""

from __future__ import annotations

import ctypes as ct
import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

from rkcosim.rknn_api import custom_types, matmul_types, types

TABLE = """
code rknn_init(rknn_context *context out, bytes *model in[size], u32 size, u32 flag, rknn_init_extend *extend in)
code rknn_dup_context(rknn_context *context_in in, rknn_context *context_out out)
code rknn_destroy(rknn_context context)
code rknn_query(rknn_context context, rknn_query_cmd cmd, bytes *info inout[size], u32 size)
code rknn_inputs_set(rknn_context context, u32 n_inputs, rknn_input *inputs in[n_inputs])
code rknn_set_batch_core_num(rknn_context context, s32 core_num)
code rknn_set_core_mask(rknn_context context, rknn_core_mask core_mask)
code rknn_run(rknn_context context, rknn_run_extend *extend inout)
code rknn_wait(rknn_context context, rknn_run_extend *extend inout)
code rknn_outputs_get(rknn_context context, u32 n_outputs, rknn_output *outputs inout[n_outputs], rknn_output_extend *extend inout)
code rknn_outputs_release(rknn_context context, u32 n_ouputs, rknn_output *outputs inout[n_ouputs])
rknn_tensor_mem* rknn_create_mem_from_phys(rknn_context ctx, u64 phys_addr, bytes *virt_addr address, u32 size)
rknn_tensor_mem* rknn_create_mem_from_fd(rknn_context ctx, s32 fd, bytes *virt_addr address, u32 size, s32 offset)
rknn_tensor_mem* rknn_create_mem_from_mb_blk(rknn_context ctx, bytes *mb_blk address, s32 offset)
rknn_tensor_mem* rknn_create_mem(rknn_context ctx, u32 size)
rknn_tensor_mem* rknn_create_mem2(rknn_context ctx, u64 size, u64 alloc_flags)
code rknn_destroy_mem(rknn_context ctx, rknn_tensor_mem *mem in)
code rknn_set_weight_mem(rknn_context ctx, rknn_tensor_mem *mem in)
code rknn_set_internal_mem(rknn_context ctx, rknn_tensor_mem *mem in)
code rknn_set_io_mem(rknn_context ctx, rknn_tensor_mem *mem in, rknn_tensor_attr *attr in)
code rknn_set_input_shape(rknn_context ctx, rknn_tensor_attr *attr in)
code rknn_set_input_shapes(rknn_context ctx, u32 n_inputs, rknn_tensor_attr *attr in[n_inputs])
code rknn_mem_sync(rknn_context context, rknn_tensor_mem *mem in, rknn_mem_sync_mode mode)
code rknn_matmul_create(rknn_context *ctx out, rknn_matmul_info *info in, rknn_matmul_io_attr *io_attr out)
code rknn_matmul_create_dynamic_shape(rknn_context *ctx out, rknn_matmul_info *info in, s32 shape_num, rknn_matmul_shape *dynamic_shapes in[shape_num], rknn_matmul_io_attr *io_attrs out[shape_num])
code rknn_matmul_set_io_mem(rknn_context ctx, rknn_tensor_mem *mem in, rknn_matmul_tensor_attr *attr in)
code rknn_matmul_set_core_mask(rknn_context context, rknn_core_mask core_mask)
code rknn_matmul_set_quant_params(rknn_context context, rknn_quant_params *params in)
code rknn_matmul_get_quant_params(rknn_context ctx, rknn_quant_params *params in, float *scale out)
code rknn_matmul_set_dynamic_shape(rknn_context ctx, rknn_matmul_shape *shape in)
code rknn_matmul_run(rknn_context ctx)
code rknn_matmul_destroy(rknn_context ctx)
code rknn_B_normal_layout_to_native_layout(bytes *B_input in[unpacked], bytes *B_output out[matrix], s32 K, s32 N, rknn_matmul_info *info in)
code rknn_register_custom_ops(rknn_context ctx, rknn_custom_op *op in[custom_op_num], u32 custom_op_num)
void rknn_custom_op_get_op_attr(rknn_custom_op_context *op_ctx in, text *attr_name in, rknn_custom_op_attr *op_attr inout)
"""  # noqa: E501  (a line for each function)
"""Result, name and arguments of each function.

A result is an error `code`, `void` or a pointer. After the name of a pointer follows the direction in which
its target is copied: `in` to the library, `out` to the program, `inout` both, or `address` if only the
pointer itself is used. Brackets contain the number of elements of the target (1 without brackets): the name
of another argument, or `matrix` for the bytes of a matrix of K rows and N columns of the type in `info`, or
`unpacked` for the same with at least one byte for each number.
"""

PLAIN = {
    "u32": ct.c_uint32,
    "s32": ct.c_int32,
    "u64": ct.c_uint64,
    "float": ct.c_float,
    "rknn_context": types.rknn_context,
    "bytes": ct.c_uint8,
    "text": ct.c_char,
}
"""Types in the table that are neither structs nor enumerations."""

WAYS = ("value", "in", "out", "inout", "address")


@dataclass(frozen=True)
class Argument:
    """An argument of a function.

    Members
    -------
    name : name in the header.
    kind : name of its type in the table, without the asterisk of a pointer.
    way : one of `WAYS`; "value" for an argument that is not a pointer.
    count : name of the argument with the number of elements of a pointer's target, "matrix", "unpacked", or
        "" for one element.
    """

    name: str
    kind: str
    way: str
    count: str

    @cached_property
    def ctype(self) -> Any:
        """The ctypes type of the value, or of what a pointer points to; enumerations are `c_int`."""
        return type_named(self.kind)


@dataclass(frozen=True)
class Signature:
    """A function.

    Members
    -------
    name : name of the function.
    result : "code", "void", or the name of the struct to which the result points.
    arguments : arguments in order.
    """

    name: str
    result: str
    arguments: tuple[Argument, ...]

    def failure(self, code: int) -> Any:
        """Return the value that the function returns when it fails with an error code."""
        if self.result == "code":
            return code
        return None if self.result == "void" else ct.POINTER(type_named(self.result))()

    def place(self, name: str) -> int:
        """Return the position of an argument; `ValueError` if the function does not have it."""
        return [argument.name for argument in self.arguments].index(name)


@dataclass(frozen=True)
class Nested:
    """A pointer in a struct.

    Members
    -------
    member : name of the pointer.
    length : name of the member with the number of elements.
    unit : size of an element in bytes.
    """

    member: str
    length: str
    unit: int


NESTED = {
    "rknn_input": (Nested("buf", "size", 1),),
    "rknn_output": (Nested("buf", "size", 1),),
    "rknn_quant_params": (Nested("scale", "scale_len", 4), Nested("zp", "zp_len", 4)),
}
"""Pointers to memory of the program in structs, by name of the struct."""

ALIASES = {
    "rknn_matmul_create_dyn_shape": "rknn_matmul_create_dynamic_shape",
    "rknn_destory_mem": "rknn_destroy_mem",
}
"""Names of functions in older versions of the headers, and their current names."""

_Q = types.rknn_query_cmd
QUERIES: dict[int, str] = {
    **{int(number): "rknn_tensor_attr" for number in _Q if _Q(number).name.endswith("_ATTR")},
    int(_Q.RKNN_QUERY_IN_OUT_NUM): "rknn_input_output_num",
    int(_Q.RKNN_QUERY_PERF_DETAIL): "rknn_perf_detail",
    int(_Q.RKNN_QUERY_PERF_RUN): "rknn_perf_run",
    int(_Q.RKNN_QUERY_SDK_VERSION): "rknn_sdk_version",
    int(_Q.RKNN_QUERY_MEM_SIZE): "rknn_mem_size",
    int(_Q.RKNN_QUERY_CUSTOM_STRING): "rknn_custom_string",
    int(_Q.RKNN_QUERY_DEVICE_MEM_INFO): "rknn_tensor_mem",
    int(_Q.RKNN_QUERY_INPUT_DYNAMIC_RANGE): "rknn_input_range",
}
"""Name of the struct that each command of `rknn_query` fills."""

MODULES = (types, matmul_types, custom_types)


def type_named(kind: str) -> Any:
    """Return the ctypes type of a name in the table.

    Raises
    ------
    LookupError
        if there is no type of this name.
    """
    if kind in PLAIN:
        return PLAIN[kind]
    for module in MODULES:
        found = vars(module).get(kind)
        if found is not None:
            return ct.c_int if issubclass(found, IntEnum) else found
    raise LookupError(f"no type is named {kind}")


def _argument(text: str) -> Argument:
    match = re.fullmatch(r"(\w+) (\*?)(\w+)(?: (\w+)(?:\[(\w+)\])?)?", text.strip())
    if match is None or bool(match[2]) != bool(match[4]) or match[4] not in (None, *WAYS[1:]):
        raise ValueError(f"'{text}' is not a valid argument")
    return Argument(match[3], match[1], match[4] or "value", match[5] or "")


def _signature(line: str) -> Signature:
    match = re.fullmatch(r"(\w+)\*? (\w+)\((.*)\)", line)
    if match is None:
        raise ValueError(f"'{line}' is not a valid function")
    return Signature(match[2], match[1], tuple(_argument(text) for text in match[3].split(",")))


SIGNATURES = {one.name: one for one in map(_signature, TABLE.strip().splitlines())}
"""Every function of `rknn_api.h`, `rknn_matmul_api.h` and `rknn_custom_op.h` by its name."""
