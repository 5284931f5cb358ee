"""Open contexts, the device they run on, and how C-like arguments are taken apart."""

from __future__ import annotations

import ctypes as ct
import itertools
import logging
from dataclasses import dataclass, field
from typing import Any

from sw.driver import Device, Driver

log = logging.getLogger("rkcosim.rknn_api")


@dataclass
class Context:
    """What a `rknn_context` handle stands for."""

    model: Any
    loaded: Any
    flag: int
    frame_id: int = 0
    inputs_set: set[int] = field(default_factory=set)
    report: Any = None
    buffers: dict[int, Any] = field(default_factory=dict)
    """Memory given to the program by `rknn_outputs_get`, by address."""
    error: Exception | None = None


class _Runtime:
    """The process's device and contexts."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self.meter: Any = None
        self.contexts: dict[int, Context] = {}
        self.handles = itertools.count(1)
        self.error: Exception | None = None


runtime = _Runtime()


def use_device(device: Device | Driver | None, meter: Any = None) -> None:
    """Choose the device that `rknn_init` loads models on; not part of the C interface.

    Parameters
    ----------
    device
        a device (a driver is opened on it), a driver, or None: no device.
    meter
        measures of single tasks for reports, see `sw.compiler.runtime`.

    Raises
    ------
    RuntimeError
        while contexts are open on another device.
    """
    if runtime.contexts:
        raise RuntimeError(f"{len(runtime.contexts)} contexts are still open on the device in use")
    runtime.driver = device if isinstance(device, Driver) or device is None else Driver(device)
    runtime.meter = meter


def context_of(handle: Any) -> Context | None:
    """The open context of a handle (an int, a `rknn_context` or a pointer to one), or None."""
    return runtime.contexts.get(handle_value(handle))


def handle_value(handle: Any) -> int:
    """Number of a handle, 0 if it is none."""
    if isinstance(handle, int):
        return handle
    target = getattr(handle, "_obj", handle)
    if isinstance(target, ct._Pointer):
        target = target.contents if target else None
    value = getattr(target, "value", None)
    return value if isinstance(value, int) else 0


def target_of(pointer: Any, kind: type[Any]) -> Any:
    """The C object that an argument points to: the object itself, `byref`, a pointer or an address.

    Returns None for a null pointer or something else.
    """
    pointer = getattr(pointer, "_obj", pointer)
    if isinstance(pointer, kind):
        return pointer
    if isinstance(pointer, ct._Pointer):
        return pointer.contents if pointer and isinstance(pointer.contents, kind) else None
    if isinstance(pointer, ct.c_void_p):
        pointer = pointer.value
    return kind.from_address(pointer) if isinstance(pointer, int) and pointer else None


def last_error(context: Any = None) -> Exception | None:
    """What made the last call on a context fail, or the last `rknn_init`; not part of the C interface."""
    if context is None:
        return runtime.error
    state = context_of(context)
    return state.error if state else None


def run_report(context: Any) -> Any:
    """`RunReport` of a context's last run, or None; not part of the C interface."""
    state = context_of(context)
    return state.report if state else None


def compiled_model(context: Any) -> Any:
    """`CompiledModel` of a context, or None; not part of the C interface."""
    state = context_of(context)
    return state.model if state else None


def loaded_model(context: Any) -> Any:
    """`LoadedModel` of a context, or None; not part of the C interface."""
    state = context_of(context)
    return state.loaded if state else None
