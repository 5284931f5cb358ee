"""rknn_query with all commands of the header."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.convert import fill_attr
from rkcosim.rknn_api.io import output_shape
from rkcosim.rknn_api.memory import allocated_bytes
from rkcosim.rknn_api.native import fill_native, fill_native_nhwc, native_input, native_output
from rkcosim.rknn_api.perf import detail_text
from rkcosim.rknn_api.signatures import QUERIES, type_named
from rkcosim.rknn_api.state import CLOCK_MHZ, Context, Expected, Refusal, Verbatim, api, context_of, target_of

API_VERSION = f"{t.VERSION} (rkcosim)"
"""What SDK_VERSION reports."""

DRIVER_VERSION = "0.9.8"
"""Version of the vendor driver that is implemented [HW 15]."""

Q = t.rknn_query_cmd


@api
def rknn_query(context: Any, cmd: int, info: Any, size: int) -> int:
    """Fill `info` with the answer to `cmd`; `size` is the size of the struct."""
    state = context_of(context)
    if cmd not in COMMANDS:
        raise Refusal.invalid(f"command {cmd} is not supported")
    kind = type_named(QUERIES[cmd])
    if state.loaded is None and cmd not in (Q.RKNN_QUERY_MEM_SIZE, Q.RKNN_QUERY_SDK_VERSION):
        raise Refusal(
            t.RKNN_ERR_FAIL, "the context was made to collect information only: MEM_SIZE alone works"
        )
    if size < ct.sizeof(kind):
        raise Verbatim.invalid(f"info_len({size}) < sizeof({kind.__name__})({ct.sizeof(kind)})!")
    target = target_of(info, kind)
    if target is None:
        raise Refusal.invalid(f"info must point to a {kind.__name__}")
    COMMANDS[cmd](state, target)
    return t.RKNN_SUCC


def _numbers(state: Context, target: t.rknn_input_output_num) -> None:
    target.n_input, target.n_output = len(state.model.inputs), len(state.model.outputs)


def _attr(is_input: bool, form: str, current: bool = False) -> Callable[[Context, t.rknn_tensor_attr], None]:
    """Answer of an attribute command; `form` is "model", "native" or "nhwc".

    With `current` it describes the selected shape, otherwise the largest one.
    """

    def answer(state: Context, target: t.rknn_tensor_attr) -> None:
        model = state.model
        if state.variants is not None:
            if current and state.variants.chosen is None:
                raise Refusal(t.RKNN_ERR_FAIL, "CURRENT_* before rknn_set_input_shapes")
            if not current:
                model = state.variants.models[state.variants.largest]
        infos = model.inputs if is_input else model.outputs
        index = int(target.index)
        if index >= len(infos):
            which = "inputs" if is_input else "outputs"
            raise Refusal.invalid(f"index {index}, but the model has {len(infos)} {which}")
        info = infos[index]
        if current and not is_input and info.open:
            info = replace(info, shape=output_shape(state, index))
        native = (native_input if is_input else native_output)(model, index)
        if form == "model":
            fill_attr(target, info, is_input=is_input, pitch=native.w_stride, stored=native.bytes)
        else:
            (fill_native if form == "native" else fill_native_nhwc)(target, info, native)

    return answer


def _perf_detail(state: Context, target: t.rknn_perf_detail) -> None:
    """Answer of PERF_DETAIL, valid until the next query; null without RKNN_FLAG_COLLECT_PERF_MASK."""
    state.finish()
    text = detail_text(state) if state.flag & t.RKNN_FLAG_COLLECT_PERF_MASK else ""
    state.perf_text = ct.create_string_buffer(text.encode()) if text else None
    target.perf_data = ct.cast(state.perf_text, ct.c_char_p) if state.perf_text is not None else None
    target.data_len = len(text.encode())


def _perf_run(state: Context, target: t.rknn_perf_run) -> None:
    state.finish()
    if state.report is None:
        raise Refusal(t.RKNN_ERR_FAIL, "PERF_RUN before the first rknn_run")
    target.run_duration = -(-state.report.cycles // CLOCK_MHZ)


def _version(state: Context, target: t.rknn_sdk_version) -> None:
    target.api_version = API_VERSION.encode()
    target.drv_version = DRIVER_VERSION.encode()


def _mem_size(state: Context, target: t.rknn_mem_size) -> None:
    """Answer of MEM_SIZE; the model has no SRAM."""
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
    """Answer of CUSTOM_STRING; empty for a model without one."""
    graph = getattr(state.model, "graph", None)
    target.string = getattr(graph, "custom_string", "").encode()


def _device_mem(state: Context, target: t.rknn_tensor_mem) -> None:
    """Memory of the model's weights."""
    buffer = state.loaded.buffers.get("weights")
    if buffer is None:
        raise Refusal(t.RKNN_ERR_FAIL, "the weights have no memory yet")
    data = buffer.view()
    target.virt_addr = data.ctypes.data
    target.phys_addr = buffer.iova
    target.fd, target.offset = -1, 0
    target.size = data.size
    target.flags = int(t.RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE)
    target.priv_data = None


STATIC = (
    "query RKNN_QUERY_INPUT_DYNAMIC_RANGE error, rknn model is static shape type, please export rknn with "
    "dynamic_shapes"
)
"""The warning of librknnrt 2.3.0, which returns RKNN_ERR_MODEL_INVALID (log in issue 1 of
a15355447898a/mt-photos-ai-rk-all)."""


def _dynamic_range(state: Context, target: t.rknn_input_range) -> None:
    if state.variants is None:
        raise Expected(t.RKNN_ERR_MODEL_INVALID, STATIC)
    if target.index >= len(state.model.inputs):
        raise Refusal.invalid(f"index {target.index}, but the model has {len(state.model.inputs)} inputs")
    state.variants.fill_range(target, state.model.inputs[target.index].name)


COMMANDS: dict[int, Callable[[Context, Any], None]] = {
    Q.RKNN_QUERY_IN_OUT_NUM: _numbers,
    Q.RKNN_QUERY_INPUT_ATTR: _attr(True, "model"),
    Q.RKNN_QUERY_OUTPUT_ATTR: _attr(False, "model"),
    Q.RKNN_QUERY_PERF_DETAIL: _perf_detail,
    Q.RKNN_QUERY_PERF_RUN: _perf_run,
    Q.RKNN_QUERY_SDK_VERSION: _version,
    Q.RKNN_QUERY_MEM_SIZE: _mem_size,
    Q.RKNN_QUERY_CUSTOM_STRING: _custom_string,
    Q.RKNN_QUERY_NATIVE_INPUT_ATTR: _attr(True, "native"),
    Q.RKNN_QUERY_NATIVE_OUTPUT_ATTR: _attr(False, "native"),
    Q.RKNN_QUERY_NATIVE_NHWC_INPUT_ATTR: _attr(True, "nhwc"),
    Q.RKNN_QUERY_NATIVE_NHWC_OUTPUT_ATTR: _attr(False, "nhwc"),
    Q.RKNN_QUERY_DEVICE_MEM_INFO: _device_mem,
    Q.RKNN_QUERY_INPUT_DYNAMIC_RANGE: _dynamic_range,
    Q.RKNN_QUERY_CURRENT_INPUT_ATTR: _attr(True, "model", True),
    Q.RKNN_QUERY_CURRENT_OUTPUT_ATTR: _attr(False, "model", True),
    Q.RKNN_QUERY_CURRENT_NATIVE_INPUT_ATTR: _attr(True, "native", True),
    Q.RKNN_QUERY_CURRENT_NATIVE_OUTPUT_ATTR: _attr(False, "native", True),
}
"""Function of each command; `rkcosim.rknn_api.signatures.QUERIES` names its struct."""
