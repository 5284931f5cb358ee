"""Models on the device: memory, shared weights, plans for one core or several."""

from __future__ import annotations

import functools
from typing import Any

from rkcosim.compiler import CompiledModel, LoadedModel, ModelError
from rkcosim.compiler.batch import BatchLoaded, BatchModel
from rkcosim.driver import DriverError
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.custom_graph import TailLoaded, TailModel
from rkcosim.rknn_api.native import native_input, native_output
from rkcosim.rknn_api.state import Context, Refusal, log, runtime

OWN_MEMORY = t.RKNN_FLAG_MEM_ALLOC_OUTSIDE | t.RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE | t.RKNN_FLAG_SHARE_WEIGHT_MEM
"""Flags of contexts whose memory was measured for a single plan."""


ONE_CORE = (t.RKNN_NPU_CORE_0, t.RKNN_NPU_CORE_1, t.RKNN_NPU_CORE_2)


def place(model: Any, share: Any = None, outside: list[str] | None = None) -> Any:
    """Load a model on the current device; `share` and `outside` as in `LoadedModel`.

    Raises
    ------
    DriverError, ModelError
    """
    with runtime.lock:
        if isinstance(model, TailModel):
            inner = share.inner if isinstance(share, TailLoaded) else share
            return TailLoaded(model, place(model.head, inner, outside))
        assert runtime.driver is not None
        if isinstance(model, BatchModel):
            first = place(model.one, share.first if isinstance(share, BatchLoaded) else share, outside)
            count = range(len(model.inputs)), range(len(model.outputs))
            natives = [native_input(model.one, n) for n in count[0]]
            natives += [native_output(model.one, n) for n in count[1]]
            sizes = {native.tensor: native.stored for native in natives if native.tensor is not None}
            copy = None if outside else functools.partial(place, model.one)
            together = not isinstance(model.one, TailModel)
            return BatchLoaded(model, first, copy, runtime.driver.device.cores, sizes, together)
        loaded = LoadedModel(model, runtime.driver, share=share, outside=outside or ())
        loaded.on_host = runtime.lock.given_up  # other programs use the device meanwhile
        return loaded


def connect(state: Context) -> None:
    """Use the custom operators of the context for its model."""
    loaded = state.loaded.first if isinstance(state.loaded, BatchLoaded) else state.loaded
    if isinstance(loaded, TailLoaded):
        from rkcosim.rknn_api.custom import compute

        loaded.compute = functools.partial(compute, state)


def spread(state: Context) -> None:
    """Tell a model of batches on which cores its samples may run."""
    if isinstance(state.loaded, BatchLoaded):
        state.loaded.pinned = state.core_mask in ONE_CORE
        state.loaded.limit = state.batch_cores


def _planned(model: Any, cores: int) -> Any:
    """Return a model planned for a number of cores: the same one if it is or if its samples are spread.

    None for a model whose plan cannot be made again.

    Raises
    ------
    Refusal
        RKNN_ERR_MODEL_INVALID.
    """
    head = model.head if isinstance(model, TailModel) else model
    if isinstance(model, BatchModel) or getattr(head.plan, "cores", 1) == cores:
        return model
    if not isinstance(head, CompiledModel):
        return None
    with Refusal.instead_of(t.RKNN_ERR_MODEL_INVALID, ModelError):
        planned = head.replanned(cores)
    return TailModel(planned, model.tail, model.outputs) if isinstance(model, TailModel) else planned


def plan_for(state: Context, cores: int) -> None:
    """Plan and load a context's model again for `cores` cores, unless it is already planned so.

    Of a model of several shapes the other shapes follow when they are selected.

    Raises
    ------
    Refusal
        RKNN_ERR_MALLOC_FAIL if memory runs out; the context is unchanged then.
    """
    several = state.variants
    fixed = state.flag & OWN_MEMORY or state.custom
    planned = _planned(state.model, cores)
    if planned is None or (fixed and planned is not state.model):
        log.warning("rknn_set_core_mask: the model of this context always runs on one core")
        return
    if planned is not state.model:
        with Refusal.instead_of(t.RKNN_ERR_MALLOC_FAIL, DriverError):
            loaded = place(planned)
        loaded.meter = state.loaded.meter
        with runtime.lock:
            state.loaded.close()
        if several is not None:
            number = several.models.index(state.model)
            several.models[number], several.loaded[number] = planned, loaded
        state.model, state.loaded, state.report = planned, loaded, None
        connect(state)
    if several is not None and several.cores != cores:
        several.cores = cores
        with runtime.lock:
            for number in [number for number, one in several.loaded.items() if one is not state.loaded]:
                several.loaded.pop(number).close()


def choose_shape(state: Context, number: int) -> None:
    """Select one of the shapes of a context; each shape is loaded when it is first selected.

    Raises
    ------
    Refusal
        RKNN_ERR_MALLOC_FAIL if memory runs out; RKNN_ERR_FAIL if the program provided memory.
    """
    if state.flag & OWN_MEMORY:
        raise Refusal(t.RKNN_ERR_FAIL, "not possible with memory of the program")
    state.finish()
    several = state.variants
    several.loaded.setdefault(several.models.index(state.model), state.loaded)
    if number not in several.loaded:
        several.models[number] = _planned(several.models[number], several.cores) or several.models[number]
        with Refusal.instead_of(t.RKNN_ERR_MALLOC_FAIL, DriverError):
            several.loaded[number] = place(several.models[number])
        several.loaded[number].meter = state.loaded.meter
    if several.chosen != number:
        state.inputs_set.clear()
        state.held.clear()
        state.io.clear()
        state.frame = state.previous = state.report = None
    several.chosen = number
    state.model, state.loaded = several.models[number], several.loaded[number]
    connect(state)
    spread(state)
