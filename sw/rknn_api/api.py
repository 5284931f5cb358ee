"""Contexts: rknn_init, rknn_dup_context, rknn_destroy.

All functions accept ctypes objects where C takes pointers (the object, `byref` of it, a pointer or an
address) and return the header's codes. Details of an error are written to the log `rkcosim.rknn_api` and
returned by `last_error`.
"""

from __future__ import annotations

import ctypes as ct
import os
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.base.files import GivenFileError, read_given, with_weights
from rkcosim.compiler import compile_model
from rkcosim.compiler.batch import BatchModel, compile_divided
from rkcosim.compiler.options import using_options
from rkcosim.driver import DriverError
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.convert import TENSOR_TYPES, shown_dtype
from rkcosim.rknn_api.custom_graph import TailModel, split, tail_of_file
from rkcosim.rknn_api.dynamic import variants
from rkcosim.rknn_api.loading import connect, place
from rkcosim.rknn_api.memory import forget_all_of
from rkcosim.rknn_api.state import (
    Context,
    Refusal,
    api,
    context_of,
    handle_value,
    is_address,
    log,
    runtime,
    target_of,
)

ALL_FLAGS = 0x1FFFF
"""All RKNN_FLAG_* of the header."""


@api
def rknn_init(context: Any, model: Any, size: int, flag: int = 0, extend: Any = None) -> int:
    """Load a model.

    Parameters
    ----------
    context
        `rknn_context` that receives the handle.
    model
        A path (`size` 0), or bytes, or the address of `size` bytes.
    size
        Bytes of the model, 0 for a path.
    flag
        RKNN_FLAG_*.
    extend
        `rknn_init_extend`; `real_model_offset` and `real_model_size` select a part of a file or
        buffer, `ctx` is the context whose weights RKNN_FLAG_SHARE_WEIGHT_MEM uses.
    """
    handle = target_of(context, t.rknn_context)
    if handle is None or size < 0:
        raise Refusal.invalid("context must be a rknn_context")
    handle.value = 0
    if flag & ~ALL_FLAGS:
        raise Refusal.invalid(f"unknown flags 0x{flag & ~ALL_FLAGS:X}")
    if runtime.driver is None:
        raise Refusal(t.RKNN_ERR_DEVICE_UNAVAILABLE, "no device: call use_device first")
    more = target_of(extend, t.rknn_init_extend)
    with Refusal.instead_of(t.RKNN_ERR_FAIL, OSError, GivenFileError, text="cannot read the model: "):
        data = _model_bytes(model, size, more)
    if data is None:
        raise Refusal.invalid("model must be a path, or bytes with their size")
    full = _full_model(more) if flag & t.RKNN_FLAG_SHARE_WEIGHT_MEM else None
    with using_options(open_dimensions="batches"):
        state = _compile(data, flag, full)
    _check_types(state)
    if not flag & t.RKNN_FLAG_COLLECT_MODEL_INFO_ONLY:
        state.loaded = _load(state, full)
    _open(state, handle)
    return t.RKNN_SUCC


def _check_types(state: Context) -> None:
    """Refuse a model with an input or output of a type that the header has no number for."""
    for what, infos in (("input", state.model.inputs), ("output", state.model.outputs)):
        for info in infos:
            if (name := shown_dtype(info).name) not in TENSOR_TYPES:
                raise Refusal(
                    t.RKNN_ERR_MODEL_INVALID,
                    f"invalid model: {what} '{info.name}' is {name}, and rknn_tensor_type has no such type; "
                    "give the model a Cast to int64 or float32",
                )


def _open(state: Context, handle: Any) -> None:
    connect(state)
    state.handle = next(runtime.handles)
    runtime.contexts[state.handle] = state
    handle.value = state.handle


def _full_model(more: t.rknn_init_extend | None) -> Context:
    """Return the context whose weights a model is to use."""
    full = runtime.contexts.get(int(more.ctx)) if more is not None else None
    if not isinstance(full, Context) or full.loaded is None:
        raise Refusal.invalid("RKNN_FLAG_SHARE_WEIGHT_MEM needs extend.ctx, the context of the full model")
    return full


def _compile(data: bytes, flag: int, full: Context | None) -> Context:
    """Create a context with the model, or with the models of all its shapes.

    `full` is the context whose weights a model without weights gets.
    """
    from rkcosim.compiler.container import is_without_weights
    from rkcosim.rknn_file import is_rknn

    try:
        if is_without_weights(data):
            whole = getattr(full.model, "head", full.model).plan if full is not None else None
            return Context(compile_divided(data, full=whole), None, flag, weightless=True)
        if is_rknn(data):
            from rkcosim.rknn_file.model import FileModel
            from rkcosim.rknn_file.opening import open_model

            model: Any = open_model(data)
            if not isinstance(model, FileModel):
                return Context(model, None, flag)
            batch, custom = model.samples, tail_of_file(model)
            if custom is not None:
                model = TailModel(model, *custom)
            return Context(model if batch == 1 else BatchModel(model, batch), None, flag)
        several = variants(data, compile_divided)
        if several is not None:
            if flag & t.RKNN_FLAG_SHARE_WEIGHT_MEM:
                raise ValueError("RKNN_FLAG_SHARE_WEIGHT_MEM does not support a model of several shapes")
            return Context(several.models[several.largest], None, flag, variants=several)
        parts = split(data)
        if parts is None:
            return Context(compile_divided(data), None, flag)
        head, tail, outputs = parts
        return Context(TailModel(compile_model(head), tail, outputs), None, flag)
    except ValueError as error:
        raise Refusal(t.RKNN_ERR_MODEL_INVALID, f"invalid model: {error}", error) from error


def _load(state: Context, full: Context | None) -> Any:
    share = None if full is None else full.loaded
    if state.weightless and share is not None and not _same_weights(share, state.model):
        share = None  # packed in another way for other shapes: the same numbers in memory of their own
    outside = []
    if state.flag & t.RKNN_FLAG_MEM_ALLOC_OUTSIDE:
        outside = ["activations"] if share else ["weights", "activations"]
    elif state.flag & t.RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE:
        outside = ["activations"]
    try:
        loaded = place(state.model, share, outside)
    except ValueError as error:  # ModelError: the weights differ from those to share
        raise Refusal(t.RKNN_ERR_MODEL_INVALID, f"{error}", error) from error
    except DriverError as error:
        raise Refusal(t.RKNN_ERR_MALLOC_FAIL, f"cannot load the model: {error}", error) from error
    if share is not None and full is not None:
        _same_region(state, full)
    if runtime.meter is not None:
        loaded.meter = runtime.meter
    return loaded


def _same_region(state: Context, full: Context) -> None:
    """Note the memory of the program in which the weights are that two contexts share."""
    if "weights" in full.regions:
        state.regions["weights"] = full.regions["weights"]


def _same_weights(loaded: Any, model: Any) -> bool:
    return bytes(loaded.model.plan.weights) == bytes(model.plan.weights)


@api
def rknn_dup_context(context_in: Any, context_out: Any) -> int:
    """Open another context on the same model and the same copy of its weights.

    It has separate tensors, settings and frames, and is destroyed separately.
    """
    source = context_of(context_in)
    handle = target_of(context_out, t.rknn_context)
    if handle is None:
        raise Refusal.invalid("context_out must be a rknn_context")
    handle.value = 0
    state = Context(source.model, None, source.flag, core_mask=source.core_mask)
    if source.loaded is not None:
        if source.variants is not None:
            raise Refusal(t.RKNN_ERR_FAIL, "not possible with a model of several shapes")
        if "weights" not in source.loaded.buffers:
            raise Refusal(t.RKNN_ERR_FAIL, "the context has no weights yet")
        source.finish()
        outside = ["activations"] if _internal_outside(source.flag) else []
        with Refusal.instead_of(t.RKNN_ERR_MALLOC_FAIL, DriverError):
            state.loaded = place(source.model, source.loaded, outside)
        _same_region(state, source)
        state.loaded.meter = source.loaded.meter
    _open(state, handle)
    return t.RKNN_SUCC


def _internal_outside(flag: int) -> bool:
    return bool(flag & (t.RKNN_FLAG_MEM_ALLOC_OUTSIDE | t.RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE))


@api
def rknn_destroy(context: Any) -> int:
    """Free a context and everything that was allocated through it."""
    state = context_of(context)
    if state.frame is not None and state.frame.thread is not None and state.frame.thread.is_alive():
        log.warning("rknn_destroy: a frame is still running, waiting for its end")
    runtime.contexts.pop(handle_value(context), None)
    try:
        state.finish()
        forget_all_of(state.handle)
    finally:
        with state.running, runtime.lock:
            state.close()
    return t.RKNN_SUCC


def _model_bytes(model: Any, size: int, extend: t.rknn_init_extend | None) -> bytes | None:
    """The bytes of the model, None for invalid arguments; raises OSError if a file cannot be read."""
    if isinstance(model, (ct.c_char_p, ct.c_void_p)):
        model = model.value
    if isinstance(model, int) and not is_address(model):
        return None
    if isinstance(model, int) and size == 0:
        model = ct.string_at(model)  # a path in C
    if isinstance(model, (str, os.PathLike)) or (isinstance(model, bytes) and size == 0):
        path = Path(os.fsdecode(model))
        return with_weights(path, _part(read_given(path), extend))
    if isinstance(model, (bytes, bytearray, memoryview, np.ndarray)):
        data = bytes(model)
        return _part(data[:size], extend) if 0 < size <= len(data) else None
    if isinstance(model, ct.Array):
        return _part(bytes(model)[:size], extend) if 0 < size <= ct.sizeof(model) else None
    return _part(ct.string_at(model, size), extend) if isinstance(model, int) and size else None


def _part(data: bytes, extend: t.rknn_init_extend | None) -> bytes:
    if extend is None or not extend.real_model_size:
        return data
    start = max(extend.real_model_offset, 0)
    return data[start : start + extend.real_model_size]
