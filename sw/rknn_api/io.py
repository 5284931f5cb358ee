"""Inputs and outputs: rknn_inputs_set, rknn_outputs_get and _release, rknn_set_io_mem and others."""

from __future__ import annotations

import ctypes as ct
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import ModelError
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.convert import (
    ConversionError,
    input_array,
    input_bytes,
    input_dtypes,
    output_bytes,
    shown_dtype,
    tensor_type,
)
from rkcosim.rknn_api.memory import Memory, memory_of
from rkcosim.rknn_api.native import Native, native_input, native_output
from rkcosim.rknn_api.state import (
    Binding,
    Context,
    Refusal,
    Verbatim,
    api,
    array_of,
    loaded_context,
    log,
    runtime,
    target_of,
)

OUTPUT_DTYPES: dict[int, Any] = {
    t.RKNN_TENSOR_FLOAT32: np.float32,
    t.RKNN_TENSOR_FLOAT16: np.float16,
}
"""Types in which an output may be requested, in addition to its element type."""


@api
def rknn_inputs_set(context: Any, n_inputs: int, inputs: Any) -> int:
    """Convert inputs and write them to device memory.

    Without `pass_through` the numbers of a buffer are real values, whatever their type; they are quantised
    with the model's scale and zero point.  With it the buffer is the native input, byte for byte.
    """
    state = loaded_context(context)
    count = len(state.model.inputs)
    items = array_of(inputs, t.rknn_input, n_inputs) if 0 < n_inputs <= count else None
    if count == n_inputs == 0:  # a model of constants
        items = []
    if items is None:
        few = 0 < n_inputs <= count
        raise Refusal.invalid("inputs is null" if few else f"{n_inputs} inputs given, the model has {count}")
    state.finish()
    for item in items:
        _set_input(state, item)
    return t.RKNN_SUCC


def _set_input(state: Context, item: t.rknn_input) -> None:
    infos = state.model.inputs
    if item.index >= len(infos):
        raise Refusal(t.RKNN_ERR_INPUT_INVALID, f"index {item.index}, but the model has {len(infos)} inputs")
    info, index = infos[item.index], int(item.index)
    if not item.buf and math.prod(info.shape):
        raise Verbatim.invalid(f"input '{info.name}': buf is null")
    native = native_input(state.model, index) if item.pass_through else None
    with Verbatim.instead_of(t.RKNN_ERR_INPUT_INVALID, ConversionError, ModelError):
        needed = input_bytes(info, item.type, bool(item.pass_through), native)
        if item.size < needed:
            message = f"param input size({item.size}) < model input size({needed})"
            raise Verbatim.invalid(f"input '{info.name}': {message}")
        data: npt.NDArray[Any] = np.zeros(0, np.uint8)
        if needed:
            data = np.frombuffer(memoryview((ct.c_uint8 * needed).from_address(item.buf)), np.uint8)
        if native is not None:
            if np.dtype(input_dtypes(info)[item.type]) != native.dtype:
                raise ConversionError(f"input '{info.name}': pass_through requires {native.dtype}")
        if native is not None and native.kept is None:
            state.loaded.memory(native.tensor)[: native.bytes] = data
        else:
            fmt = item.fmt if native is None else native.fmt
            state.loaded.set_input(index, input_array(info, data, item.type, fmt))
    tensor = native_input(state.model, index).tensor
    state.held[index] = state.loaded.memory(tensor).copy()
    state.io.pop((True, index), None)
    state.inputs_set.add(index)


@api
def rknn_outputs_get(context: Any, n_outputs: int, outputs: Any, extend: Any = None) -> int:
    """Fetch results: float32 with `want_float`, otherwise in the type of OUTPUT_ATTR; 4-D is NCHW.

    The call waits for the running frame. With RKNN_FLAG_ASYNC_MASK the results of the previous frame, if any,
    are returned without waiting.  Without `is_prealloc` the library allocates memory, which
    `rknn_outputs_release` frees.
    """
    state = loaded_context(context)
    count = len(state.model.outputs)
    items = array_of(outputs, t.rknn_output, n_outputs) if 0 < n_outputs <= count else None
    if items is None:
        few = 0 < n_outputs <= count
        raise Refusal.invalid(
            "outputs is null" if few else f"{n_outputs} outputs requested, the model has {count}"
        )
    previous = state.previous
    frame_id = previous[0] if previous else 0
    if previous is None:
        frame = state.finish()
        if frame is None:
            raise Refusal(t.RKNN_ERR_FAIL, "before the first rknn_run")
        if frame.failure is not None:
            raise Verbatim(frame.failure.code, str(frame.failure), frame.failure.cause)
        frame_id = frame.number
    for item in items:
        if item.index >= count:
            raise Refusal(t.RKNN_ERR_OUTPUT_INVALID, f"index {item.index}, but the model has {count} outputs")
    for item in items:
        codes = previous[1][item.index] if previous else None
        _get_output(state, item, codes)
    more = target_of(extend, t.rknn_output_extend)
    if more is not None:
        more.frame_id = frame_id
    return t.RKNN_SUCC


def _get_output(state: Context, item: t.rknn_output, kept: Any) -> None:
    info = state.model.outputs[item.index]
    if kept is None:
        values = np.ascontiguousarray(state.loaded.get_output(item.index, raw=not item.want_float))
    else:
        values = kept[0 if item.want_float else 1]
    values = _as(values, np.float32 if item.want_float else shown_dtype(info))
    if item.is_prealloc:
        if not item.buf or item.size < values.nbytes:
            raise Verbatim(
                t.RKNN_ERR_OUTPUT_INVALID,
                f"output '{info.name}': buf of {item.size} bytes, {values.nbytes} needed",
            )
        ct.memmove(item.buf, values.ctypes.data, values.nbytes)
        return
    memory = ct.create_string_buffer(values.tobytes(), max(values.nbytes, 1))
    item.buf = ct.addressof(memory)
    item.size = values.nbytes
    state.buffers[ct.addressof(memory)] = memory


def _as(values: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Convert numbers; those that are too large for float16 become infinite."""
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False)


def output_shape(state: Context, index: int) -> tuple[int, ...]:
    """Return the shape of an output: that of the last successful run if it depends on data."""
    info = state.model.outputs[index]
    frame = state.finish() if info.open and state.loaded is not None else None
    if frame is None or frame.failure is not None:
        return tuple(info.shape)
    return tuple(state.loaded.get_output(index).shape)


def keep_outputs(state: Context) -> list[Any]:
    """Results of the last frame, (real numbers, codes) for each output, before the next frame starts."""
    count = len(state.model.outputs)
    return [
        (
            np.ascontiguousarray(state.loaded.get_output(n)),
            np.ascontiguousarray(state.loaded.get_output(n, True)),
        )
        for n in range(count)
    ]


@api
def rknn_outputs_release(context: Any, n_ouputs: int, outputs: Any) -> int:
    """Free the memory that `rknn_outputs_get` allocated."""
    state = loaded_context(context)
    items = array_of(outputs, t.rknn_output, n_ouputs) if n_ouputs >= 0 else None
    if items is None:
        raise Refusal.invalid("no outputs given")
    for item in items:
        if not item.is_prealloc and item.buf and state.buffers.pop(item.buf, None) is not None:
            item.buf = None
            item.size = 0
    return t.RKNN_SUCC


@api
def rknn_set_io_mem(ctx: Any, mem: Any, attr: Any) -> int:
    """Read an input from, or write an output to, memory of `rknn_create_mem` at every run.

    `attr` is the result of a query; its name tells whether it is an input or an output. Its `type` or `fmt`
    may have been changed: then the library converts.  An input of the model's element type holds
    codes; an input of another type, real numbers.
    """
    state = loaded_context(ctx)
    memory = memory_of(mem)
    given = target_of(attr, t.rknn_tensor_attr)
    if given is None:
        raise Refusal.invalid("attr must point to a rknn_tensor_attr")
    is_input, index = _which(state, given, memory)
    kept = t.rknn_tensor_attr.from_buffer_copy(given)
    info = (state.model.inputs if is_input else state.model.outputs)[index]
    if not is_input and info.open:
        raise Refusal(
            t.RKNN_ERR_OUTPUT_INVALID,
            f"the size of output '{info.name}' depends on data: only rknn_outputs_get gives it, after a run",
        )
    native = (native_input if is_input else native_output)(state.model, index)
    try:
        needed = _needed(info, native, kept, is_input)
    except ConversionError as error:
        code = t.RKNN_ERR_INPUT_INVALID if is_input else t.RKNN_ERR_OUTPUT_INVALID
        raise Refusal(code, f"{error}", error) from error
    what = "input" if is_input else "output"
    if memory.size < needed:
        message = f"{what} memory size({memory.size}) < model {what} size({needed})"
        raise Verbatim.invalid(f"{what} '{info.name}': {message}")
    if not is_input and memory.size < native.bytes and _is_native(native, kept):
        log.warning("output '%s': memory is below size_with_stride, converted on the CPU", info.name)
    state.finish()
    state.io[is_input, index] = Binding(memory, kept)
    if is_input:
        state.inputs_set.add(index)
    return t.RKNN_SUCC


def _which(state: Context, attr: t.rknn_tensor_attr, memory: Memory) -> tuple[bool, int]:
    """Return whether attributes are those of an input, and its index.

    An output that is an input has its name, and may have its index.  Memory that is bound to one of them
    stays there; other memory goes to the input first and then to the output.
    """
    found = [
        (is_input, index)
        for is_input, infos in ((True, state.model.inputs), (False, state.model.outputs))
        for index, info in enumerate(infos)
        if info.name.encode()[: t.RKNN_MAX_NAME_LEN - 1] == attr.name and index == attr.index
    ]
    if not found:
        name = attr.name.decode(errors="replace")
        raise Refusal.invalid(f"no input or output {attr.index} named '{name}'")
    bound = [place for place in found if place in state.io and state.io[place].memory is memory]
    return [*bound, *(place for place in found if place not in state.io), *found][0]


def _is_native(native: Native, attr: t.rknn_tensor_attr) -> bool:
    return bool(attr.fmt == native.fmt and attr.type == tensor_type(native.dtype))


def _blocks(native: Native) -> tuple[int, int] | None:
    if native.fmt != t.RKNN_TENSOR_NC1HWC2:
        return None
    return native.dims[1], native.dims[-1]


def _pitch(info: Any, native: Native) -> int:
    return native.w_stride or (int(info.shape[3]) if len(info.shape) == 4 else 0)


def _needed(info: Any, native: Native, attr: t.rknn_tensor_attr, is_input: bool) -> int:
    """Number of bytes that the memory of a binding must have."""
    own = shown_dtype(info)
    dtypes = input_dtypes(info) if is_input else {**OUTPUT_DTYPES, int(tensor_type(own)): own}
    if attr.type == tensor_type(native.dtype):
        size = native.dtype.itemsize
    elif attr.type in dtypes:
        size = np.dtype(dtypes[attr.type]).itemsize
    else:
        raise ConversionError(f"'{info.name}': type {t.get_type_string(attr.type)} is not possible")
    shape = tuple(int(n) for n in info.shape)
    elements = int(np.prod(shape))
    if len(shape) == 4 and attr.fmt == t.RKNN_TENSOR_NC1HWC2:
        if native.fmt != t.RKNN_TENSOR_NC1HWC2:
            raise ConversionError(f"'{info.name}': its native layout is not NC1HWC2")
        elements = native.elements
    elif len(shape) == 4 and is_input and attr.fmt == t.RKNN_TENSOR_NHWC:
        elements = shape[0] * shape[2] * _pitch(info, native) * shape[1]
    elif attr.fmt == t.RKNN_TENSOR_NC1HWC2:
        if native.fmt != t.RKNN_TENSOR_NC1HWC2 or attr.type != tensor_type(native.dtype):
            raise ConversionError(f"'{info.name}': NC1HWC2 does not fit {len(shape)} dimensions")
        elements = native.elements
    elif attr.fmt not in (t.RKNN_TENSOR_NCHW, t.RKNN_TENSOR_NHWC, t.RKNN_TENSOR_UNDEFINED):
        raise ConversionError(f"'{info.name}': format {attr.fmt} is unknown")
    return elements * size


def _shifted(info: Any, native: Native, kind: int) -> bool:
    """Whether the numbers are signed bytes, which the device uses for a model of unsigned ones."""
    return native.dtype != shown_dtype(info) and kind == tensor_type(native.dtype)


def check_regions(state: Context) -> None:
    """Before a run: raise Refusal if the memory of the weights or activations was destroyed.

    Other memory may be at its address now, that of another program too.
    """
    for region, memory in state.regions.items():
        if memory.allocation.buffer.freed:
            raise Refusal(t.RKNN_ERR_FAIL, f"the memory of the {region} was destroyed")


def take_inputs(state: Context) -> None:
    """Before a run: copy data from bound memory to the place where the model reads them.

    Raises
    ------
    Refusal
        For numbers that cannot be converted.
    """
    for index, data in state.held.items():
        if (True, index) not in state.io:
            state.loaded.memory(native_input(state.model, index).tensor)[:] = data
    for (is_input, index), binding in state.io.items():
        binding.memory.to_device()
        if not is_input:
            continue
        info, native, attr = state.model.inputs[index], native_input(state.model, index), binding.attr
        kind = int(attr.type)
        raw = binding.memory.view()
        if native.kept is None and (_is_native(native, attr) or attr.pass_through):
            count = min(native.bytes, raw.size)
            state.loaded.memory(native.tensor)[:count] = raw[:count]
            continue
        with Verbatim.instead_of(t.RKNN_ERR_INPUT_INVALID, ConversionError, ModelError):
            pitch = _pitch(info, native)
            if _shifted(info, native, kind):
                raw, kind = raw ^ 0x80, int(t.RKNN_TENSOR_UINT8)
            codes = kind == tensor_type(shown_dtype(info))
            state.loaded.set_input(
                index,
                input_array(
                    info, raw.tobytes(), kind, attr.fmt, codes=codes, pitch=pitch, blocks=_blocks(native)
                ),
            )


def give_outputs(state: Context) -> None:
    """After a run: copy results to bound memory."""
    for (is_input, index), binding in state.io.items():
        if is_input:
            continue
        info, native, attr = state.model.outputs[index], native_output(state.model, index), binding.attr
        target = binding.memory.view()
        if native.tensor is not None and native.kept is None and _is_native(native, attr):
            source = state.loaded.memory(native.tensor)[: native.bytes]
        else:
            shifted = _shifted(info, native, attr.type)
            dtype = shown_dtype(info)
            own = shifted or attr.type == tensor_type(dtype)
            values = np.ascontiguousarray(state.loaded.get_output(index, raw=own))
            values = _as(values, dtype if own else OUTPUT_DTYPES[attr.type])
            if shifted:
                values = values ^ 0x80
            source = np.frombuffer(output_bytes(info, values, attr.fmt, _blocks(native)), np.uint8)
        count = min(source.size, target.size)
        target[:count] = source[:count]
        binding.memory.from_device()


def _set_region(ctx: Any, mem: Any, region: str) -> int:
    state = loaded_context(ctx)
    memory = memory_of(mem)
    plan = state.model.plan
    needed = max(len(plan.weights) if region == "weights" else plan.activation_bytes, 1)
    if memory.size < needed:
        raise Refusal.invalid(f"memory size({memory.size}) < model {region} size({needed})")
    state.finish()
    with Refusal.instead_of(t.RKNN_ERR_PARAM_INVALID, ModelError), runtime.lock:
        state.loaded.use_region(region, memory)
        state.regions[region] = memory
    return t.RKNN_SUCC


@api
def rknn_set_weight_mem(ctx: Any, mem: Any) -> int:
    """Keep the weights in memory of the program, which needs `total_weight_size` bytes."""
    return _set_region(ctx, mem, "weights")


@api
def rknn_set_internal_mem(ctx: Any, mem: Any) -> int:
    """Keep the tensors in memory of the program, which needs `total_internal_size` bytes."""
    return _set_region(ctx, mem, "activations")
