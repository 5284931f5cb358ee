"""The functions of rknn_api.h on the simulated device.

They take ctypes objects where C takes pointers (the object, `byref` of it, a pointer or an address)
and return the header's codes.  What a code cannot say goes to the log `rkcosim.rknn_api` and to
`last_error`.
"""

from __future__ import annotations

import ctypes as ct
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sw.driver import DriverError
from sw.rknn_api import types as t
from sw.rknn_api.convert import ConversionError, fill_attr, input_array, input_bytes
from sw.rknn_api.state import Context, context_of, handle_value, log, runtime, target_of

API_VERSION = "2.3.2 (rkcosim)"
"""Version of the header that is followed, as SDK_VERSION reports it."""

DRIVER_VERSION = "0.9.8"
"""Version of the vendor driver that is followed (H 0.2)."""

CLOCK_MHZ = 1000
"""Nominal clock, turns cycles into microseconds (H 9.1)."""

VENDOR_MAGICS = (b"RKNN", b"CYPTRKNN")
"""How files of the vendor's compiler begin."""


def rknn_init(context: Any, model: Any, size: int, flag: int = 0, extend: Any = None) -> int:
    """Load a model.

    Parameters
    ----------
    context
        `rknn_context` that takes the handle.
    model
        a path (`size` 0), or bytes, or the address of `size` bytes.
    size
        bytes of the model, 0 for a path.
    flag
        RKNN_FLAG_*; accepted and without effect.
    extend
        `rknn_init_extend`; `real_model_offset` and `real_model_size` choose a part of a file.
    """
    handle = target_of(context, t.rknn_context)
    if handle is None or size < 0:
        return _init_failure(t.RKNN_ERR_PARAM_INVALID, "rknn_init: context must be a rknn_context")
    handle.value = 0
    if runtime.driver is None:
        return _init_failure(t.RKNN_ERR_DEVICE_UNAVAILABLE, "no device: call use_device first")
    try:
        data = _model_bytes(model, size, target_of(extend, t.rknn_init_extend))
    except OSError as error:
        return _init_failure(t.RKNN_ERR_FAIL, f"cannot read the model: {error}", error)
    if data is None:
        return _init_failure(t.RKNN_ERR_PARAM_INVALID, "model must be a path, or bytes with their size")
    if data.startswith(VENDOR_MAGICS):
        return _init_failure(
            t.RKNN_ERR_MODEL_INVALID,
            "this is a .rknn file of the vendor's compiler; its format is not public. "
            "Give the ONNX model it was made from (quantised, QDQ form)",
        )
    import sw.compiler

    try:
        compiled = sw.compiler.compile_model(data)
    except ValueError as error:
        return _init_failure(t.RKNN_ERR_MODEL_INVALID, f"invalid model: {error}", error)
    try:
        loaded = compiled.load(runtime.driver)
    except DriverError as error:
        return _init_failure(t.RKNN_ERR_MALLOC_FAIL, f"cannot load the model: {error}", error)
    if runtime.meter is not None:
        loaded.meter = runtime.meter
    handle.value = next(runtime.handles)
    runtime.contexts[handle.value] = Context(compiled, loaded, flag)
    return t.RKNN_SUCC


def rknn_destroy(context: Any) -> int:
    """Free a context and everything it gave out."""
    state = runtime.contexts.pop(handle_value(context), None)
    if state is None:
        return _no_context("rknn_destroy")
    state.loaded.close()
    return t.RKNN_SUCC


def rknn_query(context: Any, cmd: int, info: Any, size: int) -> int:
    """Fill `info` with what `cmd` asks for; `size` is the size of the struct."""
    state = context_of(context)
    if state is None:
        return _no_context("rknn_query")
    queries = t.rknn_query_cmd
    kinds: dict[int, Any] = {
        queries.RKNN_QUERY_IN_OUT_NUM: t.rknn_input_output_num,
        queries.RKNN_QUERY_INPUT_ATTR: t.rknn_tensor_attr,
        queries.RKNN_QUERY_OUTPUT_ATTR: t.rknn_tensor_attr,
        queries.RKNN_QUERY_PERF_RUN: t.rknn_perf_run,
        queries.RKNN_QUERY_SDK_VERSION: t.rknn_sdk_version,
    }
    if cmd not in kinds:
        return _failure(state, t.RKNN_ERR_PARAM_INVALID, f"rknn_query: command {int(cmd)} is not supported")
    kind = kinds[cmd]
    if size < ct.sizeof(kind):
        message = f"info_len({size}) < sizeof({kind.__name__})({ct.sizeof(kind)})!"
        return _failure(state, t.RKNN_ERR_PARAM_INVALID, message)
    target = target_of(info, kind)
    if target is None:
        return _failure(state, t.RKNN_ERR_PARAM_INVALID, f"rknn_query: info must point to a {kind.__name__}")
    if cmd == queries.RKNN_QUERY_IN_OUT_NUM:
        target.n_input, target.n_output = len(state.model.inputs), len(state.model.outputs)
    elif cmd == queries.RKNN_QUERY_SDK_VERSION:
        target.api_version = API_VERSION.encode()
        target.drv_version = DRIVER_VERSION.encode()
    elif cmd == queries.RKNN_QUERY_PERF_RUN:
        if state.report is None:
            return _failure(state, t.RKNN_ERR_FAIL, "rknn_query: PERF_RUN before the first rknn_run")
        target.run_duration = -(-state.report.cycles // CLOCK_MHZ)
    else:
        is_input = cmd == queries.RKNN_QUERY_INPUT_ATTR
        infos = state.model.inputs if is_input else state.model.outputs
        if target.index >= len(infos):
            which = "inputs" if is_input else "outputs"
            message = f"rknn_query: index {target.index}, but the model has {len(infos)} {which}"
            return _failure(state, t.RKNN_ERR_PARAM_INVALID, message)
        fill_attr(target, infos[target.index], is_input=is_input)
    return t.RKNN_SUCC


def rknn_inputs_set(context: Any, n_inputs: int, inputs: Sequence[t.rknn_input]) -> int:
    """Convert inputs and write them to device memory.

    Without `pass_through` a buffer's numbers are real values, whatever their type; they are quantised
    with the model's scale and zero point.
    """
    state = context_of(context)
    if state is None:
        return _no_context("rknn_inputs_set")
    if inputs is None or not 0 < n_inputs <= len(state.model.inputs):
        message = f"rknn_inputs_set: {n_inputs} inputs given, the model has {len(state.model.inputs)}"
        return _failure(state, t.RKNN_ERR_PARAM_INVALID, message)
    for number in range(n_inputs):
        code = _set_input(state, inputs[number])
        if code != t.RKNN_SUCC:
            return code
    return t.RKNN_SUCC


def rknn_run(context: Any, extend: Any = None) -> int:
    """Run the model once and wait for its end (`non_block` has no effect)."""
    state = context_of(context)
    if state is None:
        return _no_context("rknn_run")
    missing = [info.name for n, info in enumerate(state.model.inputs) if n not in state.inputs_set]
    if missing:
        return _failure(state, t.RKNN_ERR_INPUT_INVALID, f"rknn_run: inputs not set: {', '.join(missing)}")
    try:
        state.report = state.loaded.run()
    except Exception as error:  # a device reports trouble with its own classes; see last_error
        return _failure(state, t.RKNN_ERR_FAIL, f"failed to submit!, {error}", error)
    state.frame_id += 1
    more = target_of(extend, t.rknn_run_extend)
    if more is not None:
        more.frame_id = state.frame_id
    return t.RKNN_SUCC


def rknn_outputs_get(
    context: Any, n_outputs: int, outputs: Sequence[t.rknn_output], extend: Any = None
) -> int:
    """Fetch results: float32 with `want_float`, else in the type OUTPUT_ATTR tells; 4-D is NCHW.

    Without `is_prealloc` the library allocates; `rknn_outputs_release` gives that memory back.
    """
    state = context_of(context)
    if state is None:
        return _no_context("rknn_outputs_get")
    if outputs is None or not 0 < n_outputs <= len(state.model.outputs):
        message = f"rknn_outputs_get: {n_outputs} outputs asked, the model has {len(state.model.outputs)}"
        return _failure(state, t.RKNN_ERR_PARAM_INVALID, message)
    if state.report is None:
        return _failure(state, t.RKNN_ERR_FAIL, "rknn_outputs_get: before the first rknn_run")
    for number in range(n_outputs):
        code = _get_output(state, outputs[number])
        if code != t.RKNN_SUCC:
            return code
    more = target_of(extend, t.rknn_output_extend)
    if more is not None:
        more.frame_id = state.frame_id
    return t.RKNN_SUCC


def rknn_outputs_release(context: Any, n_ouputs: int, outputs: Sequence[t.rknn_output]) -> int:
    """Free the memory that `rknn_outputs_get` allocated."""
    state = context_of(context)
    if state is None:
        return _no_context("rknn_outputs_release")
    if outputs is None or n_ouputs < 0:
        return _failure(state, t.RKNN_ERR_PARAM_INVALID, "rknn_outputs_release: no outputs given")
    for number in range(n_ouputs):
        output = outputs[number]
        if not output.is_prealloc and output.buf and state.buffers.pop(output.buf, None) is not None:
            output.buf = None
            output.size = 0
    return t.RKNN_SUCC


def _model_bytes(model: Any, size: int, extend: t.rknn_init_extend | None) -> bytes | None:
    """The model's bytes, or None if the arguments make no sense; OSError if a file cannot be read."""
    if isinstance(model, (str, os.PathLike)) or (isinstance(model, bytes) and size == 0):
        data = Path(os.fsdecode(model)).read_bytes()
        if extend is not None and extend.real_model_size:
            start = max(extend.real_model_offset, 0)
            data = data[start : start + extend.real_model_size]
        return data
    if isinstance(model, (bytes, bytearray, memoryview, np.ndarray)):
        data = bytes(model)
        return data[:size] if 0 < size <= len(data) else None
    if isinstance(model, ct.Array) and 0 < size <= ct.sizeof(model):
        return bytes(model)[:size]
    address = model.value if isinstance(model, ct.c_void_p) else model
    return ct.string_at(address, size) if isinstance(address, int) and address and size else None


def _set_input(state: Context, item: t.rknn_input) -> int:
    infos = state.model.inputs
    if item.index >= len(infos):
        message = f"rknn_inputs_set: index {item.index}, but the model has {len(infos)} inputs"
        return _failure(state, t.RKNN_ERR_INPUT_INVALID, message)
    info = infos[item.index]
    try:
        needed = input_bytes(info, item.type, bool(item.pass_through))
        if not item.buf:
            return _failure(state, t.RKNN_ERR_PARAM_INVALID, f"input '{info.name}': buf is null")
        if item.size < needed:
            message = f"param input size({item.size}) < model input size({needed})"
            return _failure(state, t.RKNN_ERR_PARAM_INVALID, f"input '{info.name}': {message}")
        data = ct.string_at(item.buf, needed)
        codes = input_array(info, data, item.type, item.fmt, bool(item.pass_through))
        state.loaded.set_input(item.index, codes)
    except (ConversionError, ValueError) as error:
        return _failure(state, t.RKNN_ERR_INPUT_INVALID, str(error), error)
    state.inputs_set.add(item.index)
    return t.RKNN_SUCC


def _get_output(state: Context, item: t.rknn_output) -> int:
    infos = state.model.outputs
    if item.index >= len(infos):
        message = f"rknn_outputs_get: index {item.index}, but the model has {len(infos)} outputs"
        return _failure(state, t.RKNN_ERR_OUTPUT_INVALID, message)
    info = infos[item.index]
    values = np.ascontiguousarray(state.loaded.get_output(item.index, raw=not item.want_float))
    values = values.astype(np.float32 if item.want_float else info.dtype, copy=False)
    if item.is_prealloc:
        if not item.buf or item.size < values.nbytes:
            message = f"output '{info.name}': buf of {item.size} bytes, {values.nbytes} needed"
            return _failure(state, t.RKNN_ERR_OUTPUT_INVALID, message)
        ct.memmove(item.buf, values.ctypes.data, values.nbytes)
        return t.RKNN_SUCC
    memory = ct.create_string_buffer(values.tobytes(), max(values.nbytes, 1))
    item.buf = ct.addressof(memory)
    item.size = values.nbytes
    state.buffers[ct.addressof(memory)] = memory
    return t.RKNN_SUCC


def _init_failure(code: int, message: str, error: Exception | None = None) -> int:
    runtime.error = error if error is not None else ValueError(message)
    log.error("rknn_init: %s", message)
    return code


def _failure(state: Context, code: int, message: str, error: Exception | None = None) -> int:
    state.error = error if error is not None else ValueError(message)
    log.error("%s", message)
    return code


def _no_context(function: str) -> int:
    log.error("%s: invalid context", function)
    return t.RKNN_ERR_CTX_INVALID
