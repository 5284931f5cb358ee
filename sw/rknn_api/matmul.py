"""The matrix product interface of rknn_matmul_api.h, run as register tasks (`sw.compiler.matmul`).

A and C are read and written where the program put them, in either layout.  B is put into the native
layout at `rknn_matmul_set_io_mem`, unless the program brings it so.
"""

from __future__ import annotations

import ctypes as ct
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler.matmul import Matmul, MatmulError, Requant, unpack_b
from sw.driver import DriverError, Job, Task
from sw.regcmd import build_task_list, task_list_bytes
from sw.rknn_api import matmul_types as mt
from sw.rknn_api import types as t
from sw.rknn_api.log import log
from sw.rknn_api.matmul_quant import Quant, requant_of
from sw.rknn_api.matmul_state import (
    QUANTISED,
    TYPES,
    MatmulContext,
    native_b,
    product_context,
    read_b,
)
from sw.rknn_api.memory import Memory, forget_all_of, memory_of
from sw.rknn_api.run import CORES, check_core_mask
from sw.rknn_api.state import Refusal, api, array_of, is_address, runtime, target_of


@api()
def rknn_matmul_create(ctx: Any, info: Any, io_attr: Any) -> int:
    """Make a product of one shape and fill the attributes of its matrices."""
    function = "rknn_matmul_create"
    given = target_of(info, mt.rknn_matmul_info)
    if given is None:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: info must point to a rknn_matmul_info")
    return _create(function, ctx, given, [(given.M, given.K, given.N)], [io_attr])


@api()
def rknn_matmul_create_dynamic_shape(
    ctx: Any, info: Any, shape_num: int, dynamic_shapes: Any, io_attrs: Any
) -> int:
    """Make a product of several shapes (M, K and N of `info` have no effect); the first is in use."""
    function = "rknn_matmul_create_dynamic_shape"
    given = target_of(info, mt.rknn_matmul_info)
    shapes = array_of(dynamic_shapes, mt.rknn_matmul_shape, shape_num) if shape_num > 0 else None
    attrs = array_of(io_attrs, mt.rknn_matmul_io_attr, shape_num) if shape_num > 0 else None
    if given is None or shapes is None or attrs is None:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: info, shapes and attributes are needed")
    return _create(function, ctx, given, [(s.M, s.K, s.N) for s in shapes], attrs)


rknn_matmul_create_dyn_shape = rknn_matmul_create_dynamic_shape
"""Name of versions 2.0 and 2.1."""


def _create(
    function: str, ctx: Any, info: mt.rknn_matmul_info, shapes: list[tuple[int, int, int]], attrs: list[Any]
) -> int:
    handle = target_of(ctx, mt.rknn_matmul_ctx)
    targets = [target_of(attr, mt.rknn_matmul_io_attr) for attr in attrs]
    if handle is None or None in targets:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: ctx and io_attr must not be null")
    handle.value = 0
    if runtime.driver is None:
        raise Refusal(t.RKNN_ERR_DEVICE_UNAVAILABLE, f"{function}: no device: call use_device first")
    _check(function, info)
    kept = mt.rknn_matmul_info.from_buffer_copy(info)
    state = MatmulContext(kept, TYPES[info.type][0], shapes, shapes[0])
    try:
        for shape in shapes:
            state.product_of(shape)
    except MatmulError as error:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: {error}", error) from error
    for target, shape in zip(targets, shapes, strict=True):
        _describe(state, shape, target)
    state.handle = next(runtime.handles)
    runtime.contexts[state.handle] = state
    handle.value = state.handle
    return t.RKNN_SUCC


def _check(function: str, info: mt.rknn_matmul_info) -> None:
    if info.type not in TYPES:
        known = ", ".join(mt.get_matmul_type_string(kind) for kind in TYPES)
        message = f"type {mt.get_matmul_type_string(info.type)} ({info.type}) is not supported: {known}"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: {message}")
    layouts = list(mt.rknn_matmul_layout)
    if info.B_layout not in layouts or info.AC_layout not in layouts[:2]:
        message = f"B_layout {info.B_layout} or AC_layout {info.AC_layout} is not supported"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: {message}")
    channels = (mt.RKNN_QUANT_TYPE_PER_CHANNEL_SYM, mt.RKNN_QUANT_TYPE_PER_CHANNEL_ASYM)
    layers = (mt.RKNN_QUANT_TYPE_PER_LAYER_SYM, mt.RKNN_QUANT_TYPE_PER_LAYER_ASYM)
    if info.B_quant_type not in layers and not (info.B_quant_type in channels and info.type in QUANTISED):
        message = (
            f"B_quant_type {info.B_quant_type} is not supported: per layer, and per channel with "
            + ", ".join(mt.get_matmul_type_string(kind) for kind in QUANTISED)
        )
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: {message}")
    if info.AC_quant_type not in layers:
        message = f"AC_quant_type {info.AC_quant_type} is not supported: per layer only"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: {message}")


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


@api()
def rknn_matmul_set_io_mem(ctx: Any, mem: Any, attr: Any) -> int:
    """Choose the memory of the matrix that `attr` names; B is taken over at this call."""
    function = "rknn_matmul_set_io_mem"
    state = product_context(ctx, function)
    memory = memory_of(mem, function)
    given = target_of(attr, mt.rknn_matmul_tensor_attr)
    name = given.name.decode(errors="replace") if given is not None else ""
    if name not in ("A", "B", "C"):
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: attr must be that of A, B or C, not '{name}'")
    needed = _size(state, name)
    if memory.size < needed:
        message = f"{function}: memory size({memory.size}) < matrix {name} size({needed})"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    if memory.iova % 16:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: matrix {name} must start at a multiple of 16")
    state.memories[name] = memory
    if name == "B":
        memory.to_device()
        _take_b(state, memory)
    return t.RKNN_SUCC


def _size(state: MatmulContext, name: str) -> int:
    product = state.product()
    return {"A": product.a_bytes, "B": product.b_bytes, "C": product.c_bytes}[name]


def _buffer(state: MatmulContext, name: str, size: int) -> Any:
    """A buffer of the library's own of at least `size` bytes.

    Raises
    ------
    Refusal
        RKNN_ERR_MALLOC_FAIL.
    """
    old = state.scratch.get(name)
    if old is not None and old.size >= size:
        return old
    assert runtime.driver is not None
    try:
        with runtime.lock:
            buffer = runtime.driver.alloc(max(size, 64), f"matmul {name}")
            if old is not None:
                old.free()
    except DriverError as error:
        raise Refusal(t.RKNN_ERR_MALLOC_FAIL, f"rknn_matmul: {error}", error) from error
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
    """Put B into the library's own buffer as the product's tasks read it."""
    assert state.b_matrix is not None
    state.b = _buffer(state, "B", product.b_bytes)
    packed = product.pack_b(state.b_matrix)
    state.b.view(0, packed.size)[:] = packed
    state.b_parts = product.parts


@api()
def rknn_matmul_set_core_mask(context: Any, core_mask: int) -> int:
    """Choose the core; masks of several are refused and leave the automatic choice."""
    function = "rknn_matmul_set_core_mask"
    state = product_context(context, function)
    check_core_mask(int(core_mask), function)
    if len(CORES.get(int(core_mask), ())) > 1 or core_mask == t.RKNN_NPU_CORE_ALL:
        state.core = 0
        message = f"Not support core mask: {core_mask}, fallback to single core auto mode"
        raise Refusal(t.RKNN_ERR_FAIL, message)
    state.core = CORES.get(int(core_mask), (0,))[0]
    return t.RKNN_SUCC


@api()
def rknn_matmul_set_quant_params(context: Any, params: Any) -> int:
    """Set scales and zero points of the matrix that `params` names."""
    function = "rknn_matmul_set_quant_params"
    state = product_context(context, function)
    given = target_of(params, mt.rknn_quant_params)
    name = given.name.decode(errors="replace") if given is not None else ""
    if name not in ("A", "B", "C"):
        message = f"{function}: params must be those of A, B or C, not '{name}'"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    if state.info.type not in QUANTISED:
        message = f"{function}: type {mt.get_matmul_type_string(state.info.type)} takes no parameters"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    kinds = state.info.B_quant_type if name == "B" else state.info.AC_quant_type
    per_channel = kinds in (mt.RKNN_QUANT_TYPE_PER_CHANNEL_SYM, mt.RKNN_QUANT_TYPE_PER_CHANNEL_ASYM)
    symmetric = kinds in (mt.RKNN_QUANT_TYPE_PER_LAYER_SYM, mt.RKNN_QUANT_TYPE_PER_CHANNEL_SYM)
    length = state.shape[2] if per_channel else 1
    if given.scale_len != length or not given.scale:
        message = f"{function}: {given.scale_len} scales of {name} given, {length} needed"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    zeros = np.zeros(length, np.int64)
    if given.zp and given.zp_len and not symmetric:
        if given.zp_len != length:
            message = f"{function}: {given.zp_len} zero points of {name} given, {length} needed"
            raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
        zeros = np.array([given.zp[n] for n in range(length)], np.int64)
    elif given.zp and any(given.zp[n] for n in range(max(given.zp_len, 0))):
        log.warning("%s: %s is symmetric, its zero points are ignored", function, name)
    scales = np.array([given.scale[n] for n in range(length)], np.float64)
    if not (np.isfinite(scales).all() and (scales > 0).all()):
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: scales of {name} must be positive")
    state.quant[name] = Quant(scales, zeros)
    return t.RKNN_SUCC


@api()
def rknn_matmul_get_quant_params(ctx: Any, params: Any, scale: Any) -> int:
    """One scale for B in place of those of its columns: C's scale is this times A's."""
    function = "rknn_matmul_get_quant_params"
    state = product_context(ctx, function)
    target = target_of(scale, ct.c_float)
    quant = state.quant.get("B")
    per_channel = (mt.RKNN_QUANT_TYPE_PER_CHANNEL_SYM, mt.RKNN_QUANT_TYPE_PER_CHANNEL_ASYM)
    if target is None:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: scale must not be null")
    if state.info.type != mt.RKNN_INT8_MM_INT8_TO_INT32 or state.info.B_quant_type not in per_channel:
        message = f"{function}: only for RKNN_INT8_MM_INT8_TO_INT32 with B per channel"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    target.value = float(quant.scales.max()) if quant is not None else 1.0
    return t.RKNN_SUCC


@api()
def rknn_matmul_set_dynamic_shape(ctx: Any, shape: Any) -> int:
    """Choose one of the shapes given at creation; memory must be set again afterwards."""
    function = "rknn_matmul_set_dynamic_shape"
    state = product_context(ctx, function)
    given = target_of(shape, mt.rknn_matmul_shape)
    wanted = (given.M, given.K, given.N) if given is not None else None
    if wanted not in state.shapes:
        listed = ", ".join(str(list(s)) for s in state.shapes)
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: {wanted} is none of {listed}")
    if wanted[1:] != state.shape[1:]:
        state.memories.pop("B", None)
        state.b = None
        state.quant.pop("B", None)
    state.shape = wanted
    return t.RKNN_SUCC


@api()
def rknn_matmul_run(ctx: Any) -> int:
    """Multiply, and wait for the end."""
    function = "rknn_matmul_run"
    state = product_context(ctx, function)
    missing = [name for name in ("A", "B", "C") if name not in state.memories]
    if missing:
        message = f"{function}: no memory is set for {', '.join(missing)}"
        raise Refusal(t.RKNN_ERR_FAIL, message)
    for name, memory in state.memories.items():
        if memory.size < _size(state, name):
            message = f"{function}: memory size({memory.size}) < matrix {name} size({_size(state, name)})"
            raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
        if memory.struct.priv_data not in runtime.memories:
            raise Refusal(t.RKNN_ERR_FAIL, f"{function}: the memory of {name} was destroyed")
    assert runtime.driver is not None
    requant, factor = _requant(state)
    with runtime.lock:
        state.memories["A"].to_device()
        job = _job(state, requant)
        try:
            result = runtime.driver.submit(job)
        except Exception as error:  # a device reports trouble with its own classes
            raise Refusal(t.RKNN_ERR_FAIL, f"failed to submit!, {error}", error) from error
        state.cycles = result.cycles
        if factor is not None:
            _scale(state, factor)
        state.memories["C"].from_device()
    return t.RKNN_SUCC


def _requant(state: MatmulContext) -> tuple[Requant | None, npt.NDArray[np.float64] | None]:
    """Integers for the DPU, and what the host multiplies a float32 result by."""
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
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"rknn_matmul_run: {error}", error) from error


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
    """Multiply the float32 result by the real scales, one a column."""
    m, _, n = state.shape
    result = state.memories["C"].view(0, m * n * 4).view(np.float32)
    wide = factor.astype(np.float32)
    if state.native:
        step = state.kind.c_step
        result.reshape(n // step, m, step)[:] *= wide.reshape(n // step, 1, step)
    else:
        result.reshape(m, n)[:] *= wide


@api()
def rknn_matmul_destroy(ctx: Any) -> int:
    """Free a product and everything it gave out."""
    state = product_context(ctx, "rknn_matmul_destroy")
    runtime.contexts.pop(state.handle, None)
    with runtime.lock:
        forget_all_of(state.handle)
        state.close()
    return t.RKNN_SUCC


@api()
def rknn_B_normal_layout_to_native_layout(B_input: Any, B_output: Any, K: int, N: int, info: Any) -> int:
    """Bring B (K x N, or N x K with TP_NORM in `info`) into the native layout, segments included."""
    function = "rknn_B_normal_layout_to_native_layout"
    given = target_of(info, mt.rknn_matmul_info)
    source, target = _pointer(B_input), _pointer(B_output)
    if given is None or not source or not target or K <= 0 or N <= 0:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: two buffers, K, N and info are needed")
    _check(function, given)
    kind = TYPES[given.type][0]
    if K % 32 or N % kind.group:
        message = f"{function}: K must be a multiple of 32, N of {kind.group}; not {K} and {N}"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    raw = np.frombuffer(ct.string_at(source, K * N * kind.bits // 8), np.uint8)
    transposed = given.B_layout == mt.RKNN_MM_LAYOUT_TP_NORM
    layout = mt.RKNN_MM_LAYOUT_TP_NORM if transposed else mt.RKNN_MM_LAYOUT_NORM
    packed = native_b(read_b(raw, K, N, kind, layout), kind)
    ct.memmove(target, packed.ctypes.data, packed.size)
    return t.RKNN_SUCC


def _pointer(buffer: Any) -> int:
    if buffer is None or isinstance(buffer, int):
        return buffer if is_address(buffer) else 0
    if isinstance(buffer, np.ndarray):
        return int(buffer.ctypes.data)
    return ct.cast(buffer, ct.c_void_p).value or 0
