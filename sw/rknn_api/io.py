"""Inputs and outputs: rknn_inputs_set, rknn_outputs_get and _release, rknn_set_io_mem and its kin."""

from __future__ import annotations

import ctypes as ct
from typing import Any

import numpy as np

from sw.compiler import ModelError
from sw.rknn_api import types as t
from sw.rknn_api.convert import (
    INPUT_DTYPES,
    ConversionError,
    input_array,
    input_bytes,
    output_bytes,
    tensor_type,
)
from sw.rknn_api.log import log
from sw.rknn_api.memory import memory_of
from sw.rknn_api.native import Native, native_input, native_output
from sw.rknn_api.state import Binding, Context, Refusal, api, array_of, loaded_context, runtime, target_of

OUTPUT_DTYPES: dict[int, Any] = {
    t.RKNN_TENSOR_FLOAT32: np.float32,
    t.RKNN_TENSOR_FLOAT16: np.float16,
}
"""Types that an output may be asked for besides its own."""


@api()
def rknn_inputs_set(context: Any, n_inputs: int, inputs: Any) -> int:
    """Convert inputs and write them to device memory.

    Without `pass_through` a buffer's numbers are real values, whatever their type; they are quantised
    with the model's scale and zero point.  With it the buffer is the native input, byte for byte.
    """
    function = "rknn_inputs_set"
    state = loaded_context(context, function)
    count = len(state.model.inputs)
    items = array_of(inputs, t.rknn_input, n_inputs) if 0 < n_inputs <= count else None
    if items is None:
        message = f"{function}: {n_inputs} inputs given, the model has {count}"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    state.finish()
    for item in items:
        _set_input(state, item)
    return t.RKNN_SUCC


def _set_input(state: Context, item: t.rknn_input) -> None:
    infos = state.model.inputs
    if item.index >= len(infos):
        message = f"rknn_inputs_set: index {item.index}, but the model has {len(infos)} inputs"
        raise Refusal(t.RKNN_ERR_INPUT_INVALID, message)
    info, index = infos[item.index], int(item.index)
    if not item.buf:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"input '{info.name}': buf is null")
    native = native_input(state.model, index) if item.pass_through else None
    try:
        needed = input_bytes(info, item.type, bool(item.pass_through), native)
        if item.size < needed:
            message = f"param input size({item.size}) < model input size({needed})"
            raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"input '{info.name}': {message}")
        data = ct.string_at(item.buf, needed)
        if native is not None:
            if np.dtype(INPUT_DTYPES[item.type]) != native.dtype:
                raise ConversionError(f"input '{info.name}': pass_through wants {native.dtype}")
            state.loaded.memory(native.tensor)[: native.bytes] = np.frombuffer(data, np.uint8)
        else:
            state.loaded.set_input(index, input_array(info, data, item.type, item.fmt))
    except (ConversionError, ModelError) as error:
        raise Refusal(t.RKNN_ERR_INPUT_INVALID, str(error), error) from error
    tensor = native_input(state.model, index).tensor
    state.held[index] = state.loaded.memory(tensor).copy()
    state.io.pop((True, index), None)
    state.inputs_set.add(index)


@api()
def rknn_outputs_get(context: Any, n_outputs: int, outputs: Any, extend: Any = None) -> int:
    """Fetch results: float32 with `want_float`, else in the type OUTPUT_ATTR tells; 4-D is NCHW.

    Waits for the frame under way; with RKNN_FLAG_ASYNC_MASK the previous frame's results are given
    without waiting, where there is one.  Without `is_prealloc` the library allocates;
    `rknn_outputs_release` gives that memory back.
    """
    function = "rknn_outputs_get"
    state = loaded_context(context, function)
    count = len(state.model.outputs)
    items = array_of(outputs, t.rknn_output, n_outputs) if 0 < n_outputs <= count else None
    if items is None:
        message = f"{function}: {n_outputs} outputs asked, the model has {count}"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    previous = state.previous
    frame_id = previous[0] if previous else 0
    if previous is None:
        frame = state.finish()
        if frame is None:
            raise Refusal(t.RKNN_ERR_FAIL, f"{function}: before the first rknn_run")
        if frame.failure is not None:
            raise Refusal(frame.failure.code, str(frame.failure), frame.failure.cause)
        frame_id = frame.number
    for item in items:
        if item.index >= count:
            message = f"{function}: index {item.index}, but the model has {count} outputs"
            raise Refusal(t.RKNN_ERR_OUTPUT_INVALID, message)
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
    values = values.astype(np.float32 if item.want_float else info.dtype, copy=False)
    if item.is_prealloc:
        if not item.buf or item.size < values.nbytes:
            message = f"output '{info.name}': buf of {item.size} bytes, {values.nbytes} needed"
            raise Refusal(t.RKNN_ERR_OUTPUT_INVALID, message)
        ct.memmove(item.buf, values.ctypes.data, values.nbytes)
        return
    memory = ct.create_string_buffer(values.tobytes(), max(values.nbytes, 1))
    item.buf = ct.addressof(memory)
    item.size = values.nbytes
    state.buffers[ct.addressof(memory)] = memory


def keep_outputs(state: Context) -> list[Any]:
    """Results of the last frame, (real numbers, codes) of each output, before the next one starts."""
    count = len(state.model.outputs)
    return [
        (
            np.ascontiguousarray(state.loaded.get_output(n)),
            np.ascontiguousarray(state.loaded.get_output(n, True)),
        )
        for n in range(count)
    ]


@api()
def rknn_outputs_release(context: Any, n_ouputs: int, outputs: Any) -> int:
    """Free the memory that `rknn_outputs_get` allocated."""
    function = "rknn_outputs_release"
    state = loaded_context(context, function)
    items = array_of(outputs, t.rknn_output, n_ouputs) if n_ouputs >= 0 else None
    if items is None:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: no outputs given")
    for item in items:
        if not item.is_prealloc and item.buf and state.buffers.pop(item.buf, None) is not None:
            item.buf = None
            item.size = 0
    return t.RKNN_SUCC


@api()
def rknn_set_io_mem(ctx: Any, mem: Any, attr: Any) -> int:
    """Let an input be read from, or an output written to, memory of `rknn_create_mem` at every run.

    `attr` is that of a query, which says whether it is an input or an output (by its name), perhaps
    with another `type` or `fmt`: then the library converts.  An input of the model's own type holds
    codes; of another type, real numbers.
    """
    function = "rknn_set_io_mem"
    state = loaded_context(ctx, function)
    memory = memory_of(mem, function)
    given = target_of(attr, t.rknn_tensor_attr)
    if given is None:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: attr must point to a rknn_tensor_attr")
    is_input, index = _which(state, given, function)
    kept = t.rknn_tensor_attr.from_buffer_copy(given)
    info = (state.model.inputs if is_input else state.model.outputs)[index]
    native = (native_input if is_input else native_output)(state.model, index)
    try:
        needed = _needed(info, native, kept, is_input)
    except ConversionError as error:
        code = t.RKNN_ERR_INPUT_INVALID if is_input else t.RKNN_ERR_OUTPUT_INVALID
        raise Refusal(code, f"{function}: {error}", error) from error
    what = "input" if is_input else "output"
    if memory.size < needed:
        message = f"{what} memory size({memory.size}) < model {what} size({needed})"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{what} '{info.name}': {message}")
    if not is_input and memory.size < native.bytes and _is_native(native, kept):
        log.warning("output '%s': memory is below size_with_stride, converted on the CPU", info.name)
    state.finish()
    state.io[is_input, index] = Binding(memory, kept)
    if is_input:
        state.inputs_set.add(index)
    return t.RKNN_SUCC


def _which(state: Context, attr: t.rknn_tensor_attr, function: str) -> tuple[bool, int]:
    for is_input, infos in ((True, state.model.inputs), (False, state.model.outputs)):
        for index, info in enumerate(infos):
            if info.name.encode()[: t.RKNN_MAX_NAME_LEN - 1] == attr.name and index == attr.index:
                return is_input, index
    name = attr.name.decode(errors="replace")
    raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: no input or output {attr.index} named '{name}'")


def _is_native(native: Native, attr: t.rknn_tensor_attr) -> bool:
    return bool(attr.fmt == native.fmt and attr.type == tensor_type(native.dtype))


def _blocks(native: Native) -> tuple[int, int] | None:
    if native.fmt != t.RKNN_TENSOR_NC1HWC2:
        return None
    return native.dims[1], native.dims[-1]


def _pitch(info: Any, native: Native) -> int:
    return native.w_stride or (int(info.shape[3]) if len(info.shape) == 4 else 0)


def _needed(info: Any, native: Native, attr: t.rknn_tensor_attr, is_input: bool) -> int:
    """Bytes that the memory of a binding must have."""
    dtypes = INPUT_DTYPES if is_input else {**OUTPUT_DTYPES, int(tensor_type(info.dtype)): info.dtype}
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
    """Whether numbers are the signed bytes that the device keeps of a model of unsigned ones."""
    return native.dtype != np.dtype(info.dtype) and kind == tensor_type(native.dtype)


def take_inputs(state: Context) -> None:
    """Before a run: move what the program wrote into bound memory to where the model reads it.

    Raises
    ------
    Refusal
        for numbers that cannot be converted.
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
        if _is_native(native, attr) or attr.pass_through:
            count = min(native.bytes, raw.size)
            state.loaded.memory(native.tensor)[:count] = raw[:count]
            continue
        try:
            pitch = _pitch(info, native)
            if _shifted(info, native, kind):
                raw, kind = raw ^ 0x80, int(t.RKNN_TENSOR_UINT8)
            codes = kind == tensor_type(info.dtype)
            state.loaded.set_input(
                index,
                input_array(
                    info, raw.tobytes(), kind, attr.fmt, codes=codes, pitch=pitch, blocks=_blocks(native)
                ),
            )
        except (ConversionError, ModelError) as error:
            raise Refusal(t.RKNN_ERR_INPUT_INVALID, str(error), error) from error


def give_outputs(state: Context) -> None:
    """After a run: bring results to bound memory."""
    for (is_input, index), binding in state.io.items():
        if is_input:
            continue
        info, native, attr = state.model.outputs[index], native_output(state.model, index), binding.attr
        target = binding.memory.view()
        if native.tensor is not None and _is_native(native, attr):
            source = state.loaded.memory(native.tensor)[: native.bytes]
        else:
            shifted = _shifted(info, native, attr.type)
            own = shifted or attr.type == tensor_type(info.dtype)
            values = np.ascontiguousarray(state.loaded.get_output(index, raw=own))
            values = values.astype(info.dtype if own else OUTPUT_DTYPES[attr.type], copy=False)
            if shifted:
                values = values ^ 0x80
            source = np.frombuffer(output_bytes(info, values, attr.fmt, _blocks(native)), np.uint8)
        count = min(source.size, target.size)
        target[:count] = source[:count]
        binding.memory.from_device()


def _set_region(ctx: Any, mem: Any, function: str, region: str) -> int:
    state = loaded_context(ctx, function)
    memory = memory_of(mem, function)
    plan = state.model.plan
    needed = max(len(plan.weights) if region == "weights" else plan.activation_bytes, 1)
    if memory.size < needed:
        message = f"{function}: memory size({memory.size}) < model {region} size({needed})"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    state.finish()
    try:
        with runtime.lock:
            state.loaded.use_region(region, memory)
    except ModelError as error:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"{function}: {error}", error) from error
    return t.RKNN_SUCC


@api()
def rknn_set_weight_mem(ctx: Any, mem: Any) -> int:
    """Keep the weights in memory of the program's, which takes `total_weight_size` bytes."""
    return _set_region(ctx, mem, "rknn_set_weight_mem", "weights")


@api()
def rknn_set_internal_mem(ctx: Any, mem: Any) -> int:
    """Keep the tensors in memory of the program's, which takes `total_internal_size` bytes."""
    return _set_region(ctx, mem, "rknn_set_internal_mem", "activations")
