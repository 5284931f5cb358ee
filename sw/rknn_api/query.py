"""rknn_query: every command of the header."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable
from typing import Any

from sw.rknn_api import types as t
from sw.rknn_api.convert import fill_attr
from sw.rknn_api.memory import allocated_bytes
from sw.rknn_api.native import fill_native, fill_native_nhwc, native_input, native_output
from sw.rknn_api.perf import detail_text
from sw.rknn_api.state import CLOCK_MHZ, Context, Refusal, api, context_of, target_of

API_VERSION = "2.3.2 (rkcosim)"
"""Version of the header that is followed, as SDK_VERSION reports it."""

DRIVER_VERSION = "0.9.8"
"""Version of the vendor driver that is followed (H 0.2)."""

Q = t.rknn_query_cmd


@api()
def rknn_query(context: Any, cmd: int, info: Any, size: int) -> int:
    """Fill `info` with what `cmd` asks for; `size` is the size of the struct."""
    state = context_of(context, "rknn_query")
    if cmd not in COMMANDS:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"rknn_query: command {cmd} is not supported")
    kind, answer = COMMANDS[cmd]
    if state.loaded is None and cmd not in (Q.RKNN_QUERY_MEM_SIZE, Q.RKNN_QUERY_SDK_VERSION):
        message = "rknn_query: the context was made to collect information only: MEM_SIZE alone works"
        raise Refusal(t.RKNN_ERR_FAIL, message)
    if size < ct.sizeof(kind):
        message = f"info_len({size}) < sizeof({kind.__name__})({ct.sizeof(kind)})!"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    target = target_of(info, kind)
    if target is None:
        message = f"rknn_query: info must point to a {kind.__name__}"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    answer(state, target)
    return t.RKNN_SUCC


def _numbers(state: Context, target: t.rknn_input_output_num) -> None:
    target.n_input, target.n_output = len(state.model.inputs), len(state.model.outputs)


def _attr(is_input: bool, form: str, current: bool = False) -> Callable[[Context, t.rknn_tensor_attr], None]:
    """Answer of an attribute command; `form` is "model", "native" or "nhwc".

    `current` tells of the shape in use; the plain commands of the largest one.
    """

    def answer(state: Context, target: t.rknn_tensor_attr) -> None:
        model = state.model
        if state.variants is not None:
            if current and state.variants.chosen is None:
                raise Refusal(t.RKNN_ERR_FAIL, "rknn_query: CURRENT_* before rknn_set_input_shapes")
            if not current:
                model = state.variants.models[state.variants.largest]
        infos = model.inputs if is_input else model.outputs
        index = int(target.index)
        if index >= len(infos):
            which = "inputs" if is_input else "outputs"
            message = f"rknn_query: index {index}, but the model has {len(infos)} {which}"
            raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
        info = infos[index]
        native = (native_input if is_input else native_output)(model, index)
        if form == "model":
            fill_attr(target, info, is_input=is_input, pitch=native.w_stride, stored=native.bytes)
        else:
            (fill_native if form == "native" else fill_native_nhwc)(target, info, native)

    return answer


def _perf_detail(state: Context, target: t.rknn_perf_detail) -> None:
    """The text stays valid until the next query of it; null without RKNN_FLAG_COLLECT_PERF_MASK."""
    state.finish()
    text = detail_text(state) if state.flag & t.RKNN_FLAG_COLLECT_PERF_MASK else ""
    state.perf_text = ct.create_string_buffer(text.encode()) if text else None
    target.perf_data = ct.cast(state.perf_text, ct.c_char_p) if state.perf_text is not None else None
    target.data_len = len(text.encode())


def _perf_run(state: Context, target: t.rknn_perf_run) -> None:
    state.finish()
    if state.report is None:
        raise Refusal(t.RKNN_ERR_FAIL, "rknn_query: PERF_RUN before the first rknn_run")
    target.run_duration = -(-state.report.cycles // CLOCK_MHZ)


def _version(state: Context, target: t.rknn_sdk_version) -> None:
    target.api_version = API_VERSION.encode()
    target.drv_version = DRIVER_VERSION.encode()


def _mem_size(state: Context, target: t.rknn_mem_size) -> None:
    """The model has no SRAM."""
    plan = state.model.plan
    ct.memset(ct.addressof(target), 0, ct.sizeof(target))
    target.total_weight_size = len(plan.weights)
    target.total_internal_size = plan.activation_bytes
    held = (
        sum(int(getattr(buffer, "size", 0)) for buffer in state.loaded.buffers.values())
        if state.loaded
        else 0
    )
    target.total_dma_allocated_size = held + allocated_bytes(state.handle)


def _custom_string(state: Context, target: t.rknn_custom_string) -> None:
    """Models here carry none."""
    target.string = b""


def _device_mem(state: Context, target: t.rknn_tensor_mem) -> None:
    """Where the model's weights lie."""
    buffer = state.loaded.buffers.get("weights")
    if buffer is None:
        raise Refusal(t.RKNN_ERR_FAIL, "rknn_query: the weights have no memory yet")
    data = buffer.view()
    target.virt_addr = data.ctypes.data
    target.phys_addr = buffer.iova
    target.fd, target.offset = -1, 0
    target.size = data.size
    target.flags = int(t.RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE)
    target.priv_data = None


def _dynamic_range(state: Context, target: t.rknn_input_range) -> None:
    if state.variants is None:
        message = "rknn_query: the model has static shapes, there is no dynamic range"
        raise Refusal(t.RKNN_ERR_MODEL_INVALID, message)
    if target.index >= len(state.model.inputs):
        message = f"rknn_query: index {target.index}, but the model has {len(state.model.inputs)} inputs"
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, message)
    state.variants.fill_range(target, state.model.inputs[target.index].name)


COMMANDS: dict[int, tuple[Any, Callable[[Context, Any], None]]] = {
    Q.RKNN_QUERY_IN_OUT_NUM: (t.rknn_input_output_num, _numbers),
    Q.RKNN_QUERY_INPUT_ATTR: (t.rknn_tensor_attr, _attr(True, "model")),
    Q.RKNN_QUERY_OUTPUT_ATTR: (t.rknn_tensor_attr, _attr(False, "model")),
    Q.RKNN_QUERY_PERF_DETAIL: (t.rknn_perf_detail, _perf_detail),
    Q.RKNN_QUERY_PERF_RUN: (t.rknn_perf_run, _perf_run),
    Q.RKNN_QUERY_SDK_VERSION: (t.rknn_sdk_version, _version),
    Q.RKNN_QUERY_MEM_SIZE: (t.rknn_mem_size, _mem_size),
    Q.RKNN_QUERY_CUSTOM_STRING: (t.rknn_custom_string, _custom_string),
    Q.RKNN_QUERY_NATIVE_INPUT_ATTR: (t.rknn_tensor_attr, _attr(True, "native")),
    Q.RKNN_QUERY_NATIVE_OUTPUT_ATTR: (t.rknn_tensor_attr, _attr(False, "native")),
    Q.RKNN_QUERY_NATIVE_NHWC_INPUT_ATTR: (t.rknn_tensor_attr, _attr(True, "nhwc")),
    Q.RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR: (t.rknn_tensor_attr, _attr(False, "nhwc")),
    Q.RKNN_QUERY_DEVICE_MEM_INFO: (t.rknn_tensor_mem, _device_mem),
    Q.RKNN_QUERY_INPUT_DYNAMIC_RANGE: (t.rknn_input_range, _dynamic_range),
    Q.RKNN_QUERY_CURRENT_INPUT_ATTR: (t.rknn_tensor_attr, _attr(True, "model", True)),
    Q.RKNN_QUERY_CURRENT_OUTPUT_ATTR: (t.rknn_tensor_attr, _attr(False, "model", True)),
    Q.RKNN_QUERY_CURRENT_NATIVE_INPUT_ATTR: (t.rknn_tensor_attr, _attr(True, "native", True)),
    Q.RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR: (t.rknn_tensor_attr, _attr(False, "native", True)),
}
"""Struct and answer of each command."""
