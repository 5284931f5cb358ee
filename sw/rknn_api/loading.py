"""Models on the device: memory, shared weights, plans for one core or several."""

from __future__ import annotations

import functools
from typing import Any

from rkcosim.compiler import CompiledModel, LoadedModel, ModelError
from rkcosim.compiler.batch import BatchLoaded, BatchModel
from rkcosim.driver import DriverError
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.custom import compute
from rkcosim.rknn_api.custom_graph import TailLoaded, TailModel
from rkcosim.rknn_api.native import native_input, native_output
from rkcosim.rknn_api.state import Context, Refusal, log, runtime

OWN_MEMORY = t.RKNN_FLAG_MEM_ALLOC_OUTSIDE | t.RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE | t.RKNN_FLAG_SHARE_WEIGHT_MEM
"""Flags of contexts whose memory was measured for a single plan."""


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
            sizes = {native.tensor: native.bytes for native in natives if native.tensor is not None}
            copy = None if outside else functools.partial(place, model.one)
            together = not isinstance(model.one, TailModel)
            return BatchLoaded(model, first, copy, runtime.driver.device.cores, sizes, together)
        return LoadedModel(model, runtime.driver, share=share, outside=outside or ())


def connect(state: Context) -> None:
    """Use the custom operators of the context for its model."""
    loaded = state.loaded.first if isinstance(state.loaded, BatchLoaded) else state.loaded
    if isinstance(loaded, TailLoaded):
        loaded.compute = functools.partial(compute, state)


def plan_for(state: Context, cores: int) -> None:
    """Plan and load a context's model again for `cores` cores, unless it is already planned so.

    Raises
    ------
    Refusal
        RKNN_ERR_MALLOC_FAIL if memory runs out; the context is unchanged then.
    """
    model = state.model
    if isinstance(model, BatchModel):  # its samples are spread, not its layers
        return
    head = model.head if isinstance(model, TailModel) else model
    if getattr(head.plan, "cores", 1) == cores:
        return
    if (
        state.variants is not None
        or state.flag & OWN_MEMORY
        or not isinstance(head, CompiledModel)
        or state.custom
    ):
        log.warning("rknn_set_core_mask: the model of this context always runs on one core")
        return
    with Refusal.instead_of(t.RKNN_ERR_MODEL_INVALID, ModelError):
        planned: Any = head.replanned(cores)
    if isinstance(model, TailModel):
        planned = TailModel(planned, model.tail, model.outputs)
    with Refusal.instead_of(t.RKNN_ERR_MALLOC_FAIL, DriverError):
        loaded = place(planned)
    loaded.meter = state.loaded.meter
    with runtime.lock:
        state.loaded.close()
    state.model, state.loaded, state.report = planned, loaded, None
    connect(state)


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
