"""Running: rknn_run, rknn_wait, cores, and shapes.

A non-blocking frame runs in a separate thread; the device serves one frame at a time.  Times
are those of the device: `timeout_ms` counts its cycles at the nominal clock, independent of the host's speed.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from typing import Any

from rkcosim.driver import DriverTimeout
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.dynamic import Shape, shown
from rkcosim.rknn_api.io import check_regions, give_outputs, keep_outputs, take_inputs
from rkcosim.rknn_api.loading import choose_shape, plan_for, spread
from rkcosim.rknn_api.perf import detail_text
from rkcosim.rknn_api.state import (
    CYCLES_PER_MS,
    Context,
    Frame,
    Refusal,
    Verbatim,
    api,
    array_of,
    detail,
    loaded_context,
    log,
    runtime,
    target_of,
)

CORES = {1: (0,), 2: (1,), 4: (2,), 3: (0, 1), 7: (0, 1, 2)}
"""Core masks that select particular cores."""

FENCE_SECONDS = 10.0
"""Host time within which an input fence must be signalled."""


@api
def rknn_run(context: Any, extend: Any = None) -> int:
    """Run the model once.

    With `extend.non_block` (or RKNN_FLAG_ASYNC_MASK, or RKNN_FLAG_FENCE_OUT_OUTSIDE) the call returns
    immediately; `timeout_ms` above 0 limits the run in device time; `frame_id` is returned; the call waits
    for `fence_fd` with RKNN_FLAG_FENCE_IN_OUTSIDE and returns a fence in it with RKNN_FLAG_FENCE_OUT_OUTSIDE.
    """
    state = loaded_context(context)
    more = target_of(extend, t.rknn_run_extend)
    missing = [info.name for n, info in enumerate(state.model.inputs) if n not in state.inputs_set]
    if missing:
        raise Refusal(t.RKNN_ERR_INPUT_INVALID, f"inputs not set: {', '.join(missing)}")
    timeout_ms = max(int(more.timeout_ms), 0) if more is not None else 0
    fence_in = _input_fence(state, more)
    background = bool(state.flag & (t.RKNN_FLAG_ASYNC_MASK | t.RKNN_FLAG_FENCE_OUT_OUTSIDE))
    background |= more is not None and more.non_block != 0
    background &= not state.foreground
    before = state.finish()
    if state.flag & t.RKNN_FLAG_ASYNC_MASK and before is not None and before.failure is None:
        state.previous = before.number, keep_outputs(state)
    state.frame_id += 1
    frame = Frame(state.frame_id)
    state.frame = frame
    signal = -1
    if state.flag & t.RKNN_FLAG_FENCE_OUT_OUTSIDE:
        fence, signal = os.pipe()
        if more is None:
            os.close(fence)
            log.warning("rknn_run: RKNN_FLAG_FENCE_OUT_OUTSIDE, but no extend takes the fence")
        else:
            more.fence_fd = fence
    if more is not None:
        more.frame_id = frame.number
    bound = timeout_ms * CYCLES_PER_MS or None
    if background:
        arguments = (state, frame, bound, fence_in, signal)
        # A server's end does not wait for a program whose file system never answers.
        daemon = runtime.failures is not None
        name = f"rknn frame {frame.number}"
        frame.thread = threading.Thread(target=_work, args=arguments, name=name, daemon=daemon)
        frame.thread.start()
        return t.RKNN_SUCC
    _work(state, frame, bound, fence_in, signal)
    if frame.failure is not None:
        raise frame.failure
    return t.RKNN_SUCC


def _input_fence(state: Context, more: Any) -> int:
    if not state.flag & t.RKNN_FLAG_FENCE_IN_OUTSIDE:
        return -1
    fence = int(more.fence_fd) if more is not None else -1
    try:
        return os.dup(fence)  # the program may close its descriptor as soon as the call returns
    except OSError as error:
        raise Refusal(t.RKNN_ERR_PARAM_INVALID, f"fence fd = {fence} is invalid", error) from error


def _work(state: Context, frame: Frame, bound: int | None, fence_in: int, signal: int) -> None:
    """Execute the frame; never raises."""
    try:
        if fence_in >= 0:
            _await_fence(fence_in)
        with state.running, runtime.lock:
            check_regions(state)
            take_inputs(state)
            state.loaded.core = core_of(state)
            frame.report = state.loaded.run(bound)
            give_outputs(state)
        state.report = frame.report
        if detail() >= 4:
            log.debug("%s", detail_text(state))
    except Refusal as refusal:
        frame.failure = refusal
    except DriverTimeout as error:
        code = t.RKNN_ERR_FAIL if bound is None else t.RKNN_ERR_TIMEOUT
        frame.failure = Verbatim(code, f"failed to submit!, {error}", error)
    except Exception as error:  # devices raise exceptions of various classes; see last_error
        frame.failure = Verbatim(t.RKNN_ERR_FAIL, f"failed to submit!, {error}", error)
        runtime.failed("rknn_run", error)
    finally:
        if signal >= 0:
            with contextlib.suppress(OSError):  # the program may have closed its end
                os.write(signal, b"1")
            os.close(signal)


def _await_fence(fence: int) -> None:
    try:
        poller = select.poll()
        poller.register(fence, select.POLLIN)
        if not poller.poll(FENCE_SECONDS * 1000):
            text = f"rknn_run: the input fence was not signalled within {FENCE_SECONDS:g} s"
            raise Verbatim(t.RKNN_ERR_TIMEOUT, text)
    finally:
        os.close(fence)


@api
def rknn_wait(context: Any, extend: Any = None) -> int:
    """Wait for the last frame.

    `extend.timeout_ms` above 0 limits the wait in device time, counted from the
    frame's start or the last timed wait; `extend.frame_id` (0: the last frame) may name an older frame,
    which has ended.
    """
    state = loaded_context(context)
    more = target_of(extend, t.rknn_run_extend)
    frame = state.frame
    if frame is None:
        raise Refusal(t.RKNN_ERR_FAIL, "before the first rknn_run")
    wanted = int(more.frame_id) if more is not None and more.frame_id else frame.number
    if wanted > frame.number:
        raise Refusal.invalid(f"there is no frame {wanted} yet")
    if wanted < frame.number:
        return t.RKNN_SUCC
    state.finish()
    if more is not None and more.timeout_ms > 0 and frame.report is not None:
        frame.waited += more.timeout_ms * CYCLES_PER_MS
        if frame.waited < frame.report.cycles:
            raise Refusal(t.RKNN_ERR_TIMEOUT, f"frame {frame.number} takes longer than {more.timeout_ms} ms")
    if frame.failure is not None:
        raise Verbatim(frame.failure.code, str(frame.failure), frame.failure.cause)
    if more is not None:
        more.frame_id = frame.number
    return t.RKNN_SUCC


def device_cores() -> int:
    """Number of cores of the current device."""
    return int(runtime.driver.device.cores) if runtime.driver is not None else 0


def check_core_mask(mask: int) -> None:
    """Reject masks that the vendor's library rejects, and cores that the device does not have.

    Raises
    ------
    Refusal
    """
    known = (t.RKNN_NPU_CORE_AUTO, t.RKNN_NPU_CORE_ALL, *CORES)
    if mask not in known:
        raise Refusal.invalid(f"the core mode {mask} is not supported currently")
    if mask in CORES and max(CORES[mask]) >= device_cores():
        raise Refusal(
            t.RKNN_ERR_TARGET_PLATFORM_UNMATCH, f"core mask {mask}, but the device has {device_cores()} cores"
        )


def core_of(state: Context) -> int:
    """The core for a context's layers that run on one core: the lowest of its mask."""
    return CORES.get(state.core_mask, (0,))[0]


@api
def rknn_set_core_mask(context: Any, core_mask: int) -> int:
    """Select the cores of the following runs.

    With a mask of several cores the model is planned again so that its large layers are shared among
    them; the others run on core 0.  If the program provided memory, core 0 runs all layers.
    """
    state = loaded_context(context)
    check_core_mask(int(core_mask))
    state.finish()
    wanted = len(CORES.get(int(core_mask), (0,)))
    if core_mask == t.RKNN_NPU_CORE_ALL:
        wanted = device_cores()
    plan_for(state, wanted)
    state.core_mask = int(core_mask)
    spread(state)
    return t.RKNN_SUCC


@api
def rknn_set_batch_core_num(context: Any, core_num: int) -> int:
    """Limit the cores that take samples of a batch at a time; no effect on a model with a batch of one."""
    state = loaded_context(context)
    if not 1 <= core_num <= max(device_cores(), 1):
        raise Refusal.invalid(f"{core_num} cores, the device has {device_cores()}")
    state.finish()
    state.batch_cores = int(core_num)
    spread(state)
    return t.RKNN_SUCC


@api
def rknn_set_input_shapes(ctx: Any, n_inputs: int, attr: Any) -> int:
    """Select the shapes of all inputs; inputs and io memory must be set again afterwards.

    A model with one shape accepts only that shape.
    """
    state = loaded_context(ctx)
    infos = state.model.inputs
    items = array_of(attr, t.rknn_tensor_attr, n_inputs) if n_inputs == len(infos) else None
    if items is None:
        raise Refusal.invalid(f"{n_inputs} inputs given, the model has {len(infos)}; all are needed")
    given: dict[int, tuple[int, ...]] = {}
    for item in items:
        if item.index >= len(infos) or item.n_dims > t.RKNN_MAX_DIMS or item.index in given:
            raise Refusal.invalid(f"index {item.index}, {item.n_dims} dims")
        dims = tuple(item.dims[: item.n_dims])
        if len(dims) == 4 and item.fmt == t.RKNN_TENSOR_NCHW:
            dims = shown(dims)
        given[int(item.index)] = dims
    wanted = tuple(given[n] for n in range(len(infos)))
    sets = state.variants.sets if state.variants is not None else [tuple(info.shape for info in infos)]
    supported = [tuple(shown(tuple(int(n) for n in shape)) for shape in shapes) for shapes in sets]
    if wanted not in supported:
        raise Verbatim(t.RKNN_ERR_FAIL, _unsupported([info.name for info in infos], wanted, supported))
    if state.variants is not None:
        choose_shape(state, supported.index(wanted))
    return t.RKNN_SUCC


def _unsupported(names: list[str], wanted: tuple[Shape, ...], supported: list[tuple[Shape, ...]]) -> str:
    """The vendor's lines about shapes that are not in the list (marty1885/rknn-superresolution#3).

    They are about the inputs whose shape is in no set, or about all if it is their combination.
    """
    lines = []
    alone = [n for n, shape in enumerate(wanted) if shape not in {shapes[n] for shapes in supported}]
    for number in alone or range(len(names)):
        layout = "NHWC" if len(wanted[number]) == 4 else "UNDEFINED"
        name = names[number]
        lines.append(
            f"rknn_set_input_shapes error, input name = {name} supported input shapes are as follows:"
        )
        for shapes in supported:
            text = ",".join(map(str, shapes[number]))
            kind = "NHWC" if len(shapes[number]) == 4 else "UNDEFINED"
            lines.append(f" shape = [{text}], layout = {kind}")
        dims = list(wanted[number])
        lines.append(f"while get rknn_tensor_attr[{number}].name = {name}, dims = {dims}, fmt = {layout}")
    if not alone:
        lines.append("each shape is in the list, but not in one set with the others")
    return "\n".join(lines)


@api
def rknn_set_input_shape(ctx: Any, attr: Any) -> int:
    """Deprecated; it has not worked in the vendor's library since 1.5.0: always fails."""
    loaded_context(ctx)
    raise Refusal(t.RKNN_ERR_FAIL, "deprecated, use rknn_set_input_shapes")
