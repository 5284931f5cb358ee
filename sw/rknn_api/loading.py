"""Models on the device: memory, shared weights, plans for one core or several."""

from __future__ import annotations

import functools
from typing import Any

from sw.compiler import CompiledModel, LoadedModel
from sw.driver import DriverError
from sw.rknn_api import types as t
from sw.rknn_api.custom import compute
from sw.rknn_api.custom_graph import TailLoaded, TailModel
from sw.rknn_api.log import log
from sw.rknn_api.state import Context, Refusal, runtime

OWN_MEMORY = t.RKNN_FLAG_MEM_ALLOC_OUTSIDE | t.RKNN_FLAG_INTERNAL_ALLOC_OUTSIDE | t.RKNN_FLAG_SHARE_WEIGHT_MEM
"""Flags of contexts whose memory was measured for one plan."""


def place(model: Any, share: Any = None, outside: list[str] | None = None) -> Any:
    """Put a model on the device in use; `share` and `outside` as in `LoadedModel`.

    Raises
    ------
    DriverError, ModelError
    """
    with runtime.lock:
        if isinstance(model, TailModel):
            inner = share.inner if share is not None else None
            return TailLoaded(model, place(model.head, inner, outside))
        if share is None and not outside:
            return model.load(runtime.driver)
        assert runtime.driver is not None
        return LoadedModel(model, runtime.driver, share=share, outside=outside or ())


def connect(state: Context) -> None:
    """Let a model's custom operators be those of its context."""
    if isinstance(state.loaded, TailLoaded):
        state.loaded.compute = functools.partial(compute, state)


def plan_for(state: Context, cores: int) -> None:
    """Plan and load a context's model again for so many cores, if it is not planned so.

    Raises
    ------
    Refusal
        RKNN_ERR_MALLOC_FAIL when memory runs out; the context is then as it was.
    """
    model = state.model
    head = model.head if isinstance(model, TailModel) else model
    if getattr(head.plan, "cores", 1) == cores:
        return
    if (
        state.variants is not None
        or state.flag & OWN_MEMORY
        or not isinstance(head, CompiledModel)
        or state.custom
    ):
        log.warning("rknn_set_core_mask: this context's model stays on one core")
        return
    planned: Any = CompiledModel(head.graph, reuse=head.plan.reuse, cores=cores)
    if isinstance(model, TailModel):
        planned = TailModel(planned, model.tail, model.outputs)
    try:
        loaded = place(planned)
    except DriverError as error:
        raise Refusal(t.RKNN_ERR_MALLOC_FAIL, f"rknn_set_core_mask: {error}", error) from error
    loaded.meter = state.loaded.meter
    with runtime.lock:
        state.loaded.close()
    state.model, state.loaded, state.report = planned, loaded, None
    connect(state)


def choose_shape(state: Context, number: int) -> None:
    """Let a context of several shapes use one of them; each is loaded when it is first chosen.

    Raises
    ------
    Refusal
        RKNN_ERR_MALLOC_FAIL when memory runs out; RKNN_ERR_FAIL where the program gave memory.
    """
    if state.flag & OWN_MEMORY:
        raise Refusal(t.RKNN_ERR_FAIL, "rknn_set_input_shapes: not possible with memory of the program's")
    state.finish()
    several = state.variants
    several.loaded.setdefault(several.models.index(state.model), state.loaded)
    if number not in several.loaded:
        try:
            several.loaded[number] = place(several.models[number])
        except DriverError as error:
            raise Refusal(t.RKNN_ERR_MALLOC_FAIL, f"rknn_set_input_shapes: {error}", error) from error
        several.loaded[number].meter = state.loaded.meter
    if several.chosen != number:
        state.inputs_set.clear()
        state.held.clear()
        state.io.clear()
        state.frame = state.previous = state.report = None
    several.chosen = number
    state.model, state.loaded = several.models[number], several.loaded[number]
