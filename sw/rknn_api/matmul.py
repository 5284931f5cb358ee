"""The matrix product interface of rknn_matmul_api.h, run as register tasks (`rkcosim.compiler.matmul`).

A and C are read and written where the program put them, in either layout.  B is converted to the native
layout by `rknn_matmul_set_io_mem`, unless the program provides it in this layout.
"""

from __future__ import annotations

import ctypes as ct
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.matmul import Matmul, MatmulError, Requant, unpack_b
from rkcosim.driver import DriverError, Job, Task
from rkcosim.regcmd import build_task_list, task_list_bytes
from rkcosim.rknn_api import matmul_types as mt
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.matmul_state import (
    QUANTISED,
    TYPES,
    MatmulContext,
    Quant,
    native_b,
    product_context,
    read_b,
    requant_of,
)
from rkcosim.rknn_api.matmul_support import CREATE, VERSION, Board, line_of, row_of, rows_of
from rkcosim.rknn_api.memory import Memory, address_of, forget_all_of, memory_of
from rkcosim.rknn_api.run import CORES, check_core_mask
from rkcosim.rknn_api.state import Refusal, Verbatim, api, array_of, log, runtime, target_of

PER_CHANNEL = (mt.RKNN_QUANT_TYPE_PER_CHANNEL_SYM, mt.RKNN_QUANT_TYPE_PER_CHANNEL_ASYM)


@api
def rknn_matmul_create(ctx: Any, info: Any, io_attr: Any) -> int:
    """Create a product of one shape and fill the attributes of its matrices."""
    given = target_of(info, mt.rknn_matmul_info)
    if given is None:
        raise Refusal.invalid("info must point to a rknn_matmul_info")
    return _create(ctx, given, [(given.M, given.K, given.N)], [io_attr])


@api
def rknn_matmul_create_dynamic_shape(
    ctx: Any, info: Any, shape_num: int, dynamic_shapes: Any, io_attrs: Any
) -> int:
    """Create a product of several shapes (M, K and N of `info` have no effect); the first one is selected."""
    given = target_of(info, mt.rknn_matmul_info)
    shapes = array_of(dynamic_shapes, mt.rknn_matmul_shape, shape_num) if shape_num > 0 else None
    attrs = array_of(io_attrs, mt.rknn_matmul_io_attr, shape_num) if shape_num > 0 else None
    if given is None or shapes is None or attrs is None:
        raise Refusal.invalid("info, shapes and attributes are needed")
    return _create(ctx, given, [(s.M, s.K, s.N) for s in shapes], attrs)


rknn_matmul_create_dyn_shape = rknn_matmul_create_dynamic_shape
"""Name in versions 2.0 and 2.1."""


def _create(ctx: Any, info: mt.rknn_matmul_info, shapes: list[tuple[int, int, int]], attrs: list[Any]) -> int:
    handle = target_of(ctx, mt.rknn_matmul_ctx)
    targets = [target_of(attr, mt.rknn_matmul_io_attr) for attr in attrs]
    if handle is None or None in targets:
        raise Refusal.invalid("ctx and io_attr must not be null")
    handle.value = 0
    if runtime.driver is None:
        raise Refusal(t.RKNN_ERR_DEVICE_UNAVAILABLE, "no device: call use_device first")
    _check(info, CREATE)
    kept = mt.rknn_matmul_info.from_buffer_copy(info)
    state = MatmulContext(kept, TYPES[info.type][0], shapes, shapes[0])
    with Refusal.instead_of(t.RKNN_ERR_PARAM_INVALID, MatmulError):
        for shape in shapes:
            state.product_of(shape)
    for target, shape in zip(targets, shapes, strict=True):
        _describe(state, shape, target)
    if row_of("B_quant_type", kept).board is Board.ZEROS:
        log.warning(
            "%s: %s writes zeros for B per channel of this type; here the product is computed",
            CREATE,
            VERSION,
        )
    state.handle = next(runtime.handles)
    runtime.contexts[state.handle] = state
    handle.value = state.handle
    return t.RKNN_SUCC


def _check(info: mt.rknn_matmul_info, function: str) -> None:
    """Check the members of `info` that `rkcosim.rknn_api.matmul_support` judges at the creation."""
    for row in rows_of(info):
        if row.code and row.call == CREATE:
            text = f"{function}, {line_of(row, info)}"
            if row.field == "type":
                known = ", ".join(mt.get_matmul_type_string(kind) for kind in TYPES)
                text += f"\n{function}: the RK3588 has {known}"
            elif row.board is Board.ZEROS:
                text += f"\n{function}: {VERSION} {row.board.value} for it"
            raise Verbatim(row.code, text)


def _describe(state: MatmulContext, shape: tuple[int, int, int], io: mt.rknn_matmul_io_attr) -> None:
    m, k, n = shape
    kind = state.kind
    _, operand, result = TYPES[state.info.type]
    b_dims = {
        int(mt.RKNN_MM_LAYOUT_NORM): (k, n),
        int(mt.RKNN_MM_LAYOUT_NATIVE): (n // kind.group, k // 32, kind.group, 32),
        int(mt.RKNN_MM_LAYOUT_TP_NORM): (n, k),
    }[state.b_layout]
    a_dims: tuple[int, ...] = (m, k)
    c_dims: tuple[int, ...] = (m, n)
    if state.native:
        a_dims, c_dims = (k // kind.a_step, m, kind.a_step), (n // kind.c_step, m, kind.c_step)
    for attr, name, dims, size, type_ in (
        (io.A, b"A", a_dims, m * k * kind.bits // 8, operand),
        (io.B, b"B", b_dims, k * n * kind.bits // 8, operand),
        (io.C, b"C", c_dims, m * n * kind.out_bits // 8, result),
    ):
        attr.name = name
        attr.n_dims = len(dims)
        attr.dims[:] = [*dims, *[0] * (t.RKNN_MAX_DIMS - len(dims))]
        attr.size = size
        attr.type = int(type_)


@api
def rknn_matmul_set_io_mem(ctx: Any, mem: Any, attr: Any) -> int:
    """Set the memory of the matrix that `attr` names; B is read by this call."""
    state = product_context(ctx)
    memory = memory_of(mem)
    given = target_of(attr, mt.rknn_matmul_tensor_attr)
    name = _matrix(given, "attr must be that")
    if name == "B":
        _check_b_layout(state)
    _check_size(state, name, memory)
    if memory.iova % 16:
        raise Refusal.invalid(f"matrix {name} must start at a multiple of 16")
    state.memories[name] = memory
    if name == "B":
        memory.to_device()
        _take_b(state, memory)
    return t.RKNN_SUCC


def _check_b_layout(state: MatmulContext) -> None:
    row = row_of("B_layout", state.info)
    if row.code:
        note = (
            f"{row.call}: {VERSION} takes B of this type only in the native layout: "
            "rknn_B_normal_layout_to_native_layout converts it"
        )
        raise Verbatim(row.code, f"{line_of(row, state.info)}\n{note}")


def _matrix(given: Any, wanted: str) -> str:
    """The matrix that a struct names."""
    name = given.name.decode(errors="replace") if given is not None else ""
    if name not in ("A", "B", "C"):
        raise Refusal.invalid(f"{wanted} of A, B or C, not '{name}'")
    return name


def _check_size(state: MatmulContext, name: str, memory: Memory) -> None:
    product = state.product()
    needed = {"A": product.a_bytes, "B": product.b_bytes, "C": product.c_bytes}[name]
    if memory.size < needed:
        raise Refusal.invalid(f"memory size({memory.size}) < matrix {name} size({needed})")


def _buffer(state: MatmulContext, name: str, size: int) -> Any:
    """A buffer of the library with at least `size` bytes.

    Raises
    ------
    Refusal
        RKNN_ERR_MALLOC_FAIL.
    """
    old = state.scratch.get(name)
    if old is not None and old.size >= size:
        return old
    assert runtime.driver is not None
    with Verbatim.instead_of(t.RKNN_ERR_MALLOC_FAIL, DriverError, text="rknn_matmul: "), runtime.lock:
        buffer = runtime.driver.alloc(max(size, 64), f"matmul {name}")
        if old is not None:
            old.free()
    state.scratch[name] = buffer
    return buffer


def _take_b(state: MatmulContext, memory: Memory) -> None:
    _, k, n = state.shape
    state.b_matrix = None
    if state.b_in_place:
        state.b = memory
        return
    state.b_matrix = read_b(memory.view(), k, n, state.kind, state.b_layout)
    _pack_b(state, state.product())


def _pack_b(state: MatmulContext, product: Matmul) -> None:
    """Write B into the library's buffer in the layout that the product's tasks read."""
    assert state.b_matrix is not None
    state.b = _buffer(state, "B", product.b_bytes)
    packed = product.pack_b(state.b_matrix)
    state.b.view(0, packed.size)[:] = packed
    state.b_parts = product.parts
    account = state.account
    account.conversions += 1
    account.converted_bytes += product.b_bytes + packed.size


@api
def rknn_matmul_set_core_mask(context: Any, core_mask: int) -> int:
    """Select the core; masks with several cores are rejected and keep the automatic selection."""
    state = product_context(context)
    check_core_mask(int(core_mask))
    if len(CORES.get(int(core_mask), ())) > 1 or core_mask == t.RKNN_NPU_CORE_ALL:
        state.core = 0
        raise Verbatim(
            t.RKNN_ERR_FAIL, f"Not support core mask: {core_mask}, fallback to single core auto mode"
        )
    state.core = CORES.get(int(core_mask), (0,))[0]
    return t.RKNN_SUCC


@api
def rknn_matmul_set_quant_params(context: Any, params: Any) -> int:
    """Set scales and zero points of the matrix that `params` names."""
    state = product_context(context)
    given = target_of(params, mt.rknn_quant_params)
    name = _matrix(given, "params must be those")
    if state.info.type not in QUANTISED:
        raise Refusal.invalid(f"type {mt.get_matmul_type_string(state.info.type)} takes no parameters")
    kinds = state.info.B_quant_type if name == "B" else state.info.AC_quant_type
    symmetric = kinds in (mt.RKNN_QUANT_TYPE_PER_LAYER_SYM, mt.RKNN_QUANT_TYPE_PER_CHANNEL_SYM)
    length = state.shape[2] if kinds in PER_CHANNEL else 1
    if given.scale_len != length or not given.scale:
        raise Refusal.invalid(f"{given.scale_len} scales of {name} given, {length} needed")
    zeros = np.zeros(length, np.int64)
    if given.zp and given.zp_len and not symmetric:
        if given.zp_len != length:
            raise Refusal.invalid(f"{given.zp_len} zero points of {name} given, {length} needed")
        zeros = np.array([given.zp[n] for n in range(length)], np.int64)
    elif given.zp and any(given.zp[n] for n in range(max(given.zp_len, 0))):
        log.warning("rknn_matmul_set_quant_params: %s is symmetric, its zero points are ignored", name)
    scales = np.array([given.scale[n] for n in range(length)], np.float64)
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise Refusal.invalid(f"scales of {name} must be positive")
    state.quant[name] = Quant(scales, zeros)
    return t.RKNN_SUCC


@api
def rknn_matmul_get_quant_params(ctx: Any, params: Any, scale: Any) -> int:
    """Replace the scales of B's columns by one scale: the scale of C is this scale times that of A."""
    state = product_context(ctx)
    target = target_of(scale, ct.c_float)
    quant = state.quant.get("B")
    if target is None:
        raise Refusal.invalid("scale must not be null")
    if state.info.type != mt.RKNN_INT8_MM_INT8_TO_INT32 or state.info.B_quant_type not in PER_CHANNEL:
        raise Refusal.invalid("only for RKNN_INT8_MM_INT8_TO_INT32 with B per channel")
    target.value = float(quant.scales.max()) if quant is not None else 1.0
    return t.RKNN_SUCC


@api
def rknn_matmul_set_dynamic_shape(ctx: Any, shape: Any) -> int:
    """Select one of the shapes given at creation; memory must be set again afterwards."""
    state = product_context(ctx)
    given = target_of(shape, mt.rknn_matmul_shape)
    wanted = (given.M, given.K, given.N) if given is not None else None
    if wanted not in state.shapes:
        listed = ", ".join(str(list(s)) for s in state.shapes)
        raise Refusal.invalid(f"{wanted} is none of {listed}")
    if wanted[1:] != state.shape[1:]:
        state.memories.pop("B", None)
        state.b = None
        state.quant.pop("B", None)
    state.shape = wanted
    return t.RKNN_SUCC


@api
def rknn_matmul_run(ctx: Any) -> int:
    """Multiply, and wait for the end."""
    state = product_context(ctx)
    missing = [name for name in ("A", "B", "C") if name not in state.memories]
    if missing:
        raise Refusal(t.RKNN_ERR_FAIL, f"no memory is set for {', '.join(missing)}")
    for name, memory in state.memories.items():
        _check_size(state, name, memory)
    assert runtime.driver is not None
    requant, factor = _requant(state)
    with state.running:
        _check_memories(state)
        state.memories["A"].to_device()
        with runtime.lock:
            job = _job(state, requant)
            before = len(runtime.meter()) if runtime.meter else 0
            # devices raise exceptions of various classes
            with Verbatim.instead_of(t.RKNN_ERR_FAIL, Exception, text="failed to submit!, "):
                result = runtime.driver.submit(job)
            state.ran(result.cycles, runtime.meter()[before:] if runtime.meter else ())
            if factor is not None:
                _scale(state, factor)
        state.memories["C"].from_device()
    return t.RKNN_SUCC


def _check_memories(state: MatmulContext) -> None:
    for name, memory in state.memories.items():
        if memory.struct.priv_data not in runtime.memories:
            raise Refusal(t.RKNN_ERR_FAIL, f"the memory of {name} was destroyed")


def _requant(state: MatmulContext) -> tuple[Requant | None, npt.NDArray[np.float64] | None]:
    """Integers for the DPU, and the factors by which the host multiplies a float32 result."""
    if not state.quant:
        return None, None
    _, k, n = state.shape

    def matrix() -> npt.NDArray[Any]:
        if state.b_matrix is None:
            return unpack_b(state.b.view(), k, n, state.kind)
        return state.b_matrix

    try:
        return requant_of(state.kind, n, state.quant, matrix)
    except ValueError as error:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{error}", error) from error


def _job(state: MatmulContext, requant: Requant | None) -> Job:
    product = state.product()
    table = 0
    if requant is not None:
        data = requant.table()
        buffer = _buffer(state, "table", data.size + 64 * 32)
        buffer.view(0, data.size)[:] = data
        table = buffer.iova
    if not state.b_in_place and product.parts != state.b_parts:  # of another M, or without parameters
        _pack_b(state, product)
    sums = _buffer(state, "sums", product.sums_bytes).iova if product.sums_bytes else 0
    a, c = state.memories["A"].iova, state.memories["C"].iova
    builders = product.builders(a, state.b.iova, c, requant, table, sums)
    commands = _buffer(state, "regcmd", task_list_bytes(builders))
    tasks = build_task_list(builders, commands.iova)
    commands.view(0, len(tasks.data))[:] = np.frombuffer(tasks.data, np.uint8)
    return Job([Task.of_entry(entry) for entry in tasks.tasks], core_mask=1 << state.core)


def _scale(state: MatmulContext, factor: npt.NDArray[np.float64]) -> None:
    """Multiply the float32 result by the real scales, one per column."""
    m, _, n = state.shape
    result = state.memories["C"].view(0, m * n * 4).view(np.float32)
    wide = factor.astype(np.float32)
    if state.native:
        step = state.kind.c_step
        result.reshape(n // step, m, step)[:] *= wide.reshape(n // step, 1, step)
    else:
        result.reshape(m, n)[:] *= wide


@api
def rknn_matmul_destroy(ctx: Any) -> int:
    """Free a product and everything that was allocated through it."""
    state = product_context(ctx)
    runtime.contexts.pop(state.handle, None)
    forget_all_of(state.handle)
    with state.running, runtime.lock:
        state.close()
    return t.RKNN_SUCC


@api
def rknn_B_normal_layout_to_native_layout(B_input: Any, B_output: Any, K: int, N: int, info: Any) -> int:
    """Convert B (K x N, or N x K with TP_NORM in `info`) to the native layout, including segments.

    int4 is given as one number per byte, K * N bytes ("native-layout-plan" in
    `rkcosim.rknn_api.matmul_support.SOURCES`).
    """
    given = target_of(info, mt.rknn_matmul_info)
    source, target = address_of(B_input), address_of(B_output)
    if given is None or not source or not target or K <= 0 or N <= 0:
        raise Refusal.invalid("two buffers, K, N and info are needed")
    _check(given, "rknn_B_normal_layout_to_native_layout")
    kind = TYPES[given.type][0]
    if K % 32 or N % kind.group:
        raise Refusal.invalid(f"K must be a multiple of 32, N of {kind.group}; not {K} and {N}")
    dtype = np.float16 if kind.is_float else np.int8
    values = np.frombuffer(ct.string_at(source, K * N * np.dtype(dtype).itemsize), dtype)
    transposed = given.B_layout == mt.RKNN_MM_LAYOUT_TP_NORM
    packed = native_b(values.reshape(N, K).T if transposed else values.reshape(K, N), kind)
    ct.memmove(target, packed.ctypes.data, packed.size)
    return t.RKNN_SUCC
