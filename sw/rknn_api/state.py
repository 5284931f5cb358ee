"""Open contexts, the device they run on, and how C-like arguments are taken apart."""

from __future__ import annotations

import ctypes as ct
import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, TypeVar

from sw.driver import Device, Driver
from sw.rknn_api import log as logs
from sw.rknn_api import types as t
from sw.rknn_api.log import log

CLOCK_MHZ = 1000
"""Nominal clock: turns cycles into microseconds (H 9.1)."""

FIRST_ADDRESS = 1 << 12
END_ADDRESS = 1 << 48
"""Addresses outside these are null pointers in disguise."""

MAX_ITEMS = 1 << 16
"""More structs than that are no array."""

CYCLES_PER_MS = CLOCK_MHZ * 1000


class Refusal(Exception):
    """Ends a call with a code of the header; the text goes to the log and to `last_error`."""

    def __init__(self, code: int, message: str, cause: BaseException | None = None) -> None:
        self.code = code
        self.cause = cause
        super().__init__(message)


@dataclass
class Frame:
    """One run of a context: its number, the thread it runs in, and how it ended."""

    number: int
    thread: threading.Thread | None = None
    report: Any = None
    failure: Refusal | None = None
    waited: int = 0
    """Cycles that timed waits have let pass."""

    def join(self) -> None:
        """Wait for the end (a run is bounded by the driver)."""
        if self.thread is not None:
            self.thread.join()


@dataclass
class Binding:
    """Memory that `rknn_set_io_mem` gave to an input or output, and how it is read or written."""

    memory: Any
    attr: t.rknn_tensor_attr


@dataclass
class Context:
    """What the `rknn_context` of a model stands for."""

    model: Any
    loaded: Any
    """`LoadedModel`, or None with RKNN_FLAG_COLLECT_MODEL_INFO_ONLY."""
    flag: int
    handle: int = 0
    core_mask: int = 0
    batch_cores: int = 0
    frame_id: int = 0
    inputs_set: set[int] = field(default_factory=set)
    held: dict[int, Any] = field(default_factory=dict)
    """Native bytes of inputs that were set: a run may use their memory for something else."""
    io: dict[tuple[bool, int], Binding] = field(default_factory=dict)
    """By (is input, index)."""
    frame: Frame | None = None
    """The last frame that was started."""
    previous: tuple[int, list[Any]] | None = None
    """Frame number and outputs (codes) that RKNN_FLAG_ASYNC_MASK gives out."""
    report: Any = None
    buffers: dict[int, Any] = field(default_factory=dict)
    """Memory given to the program by `rknn_outputs_get`, by address."""
    perf_text: Any = None
    variants: Any = None
    """`Variants` of a model of several shapes, else None."""
    custom: dict[str, Any] = field(default_factory=dict)
    """Registered custom operators by type."""
    error: BaseException | None = None

    def finish(self) -> Frame | None:
        """Wait for the frame under way, if there is one, and return it."""
        if self.frame is not None:
            self.frame.join()
        return self.frame

    def close(self) -> None:
        """Free what the context holds on the device."""
        self.finish()
        for op in self.custom.values():
            op.destroy()
        if self.loaded is not None:
            self.loaded.close()
        if self.variants is not None:
            self.variants.close()


class Runtime:
    """The process's device, contexts and memory."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self.meter: Any = None
        self.contexts: dict[int, Any] = {}
        """Contexts of models and of matrix products, by handle."""
        self.memories: dict[int, Any] = {}
        """Memory given out by the create functions, by the number in its `priv_data`."""
        self.handles = itertools.count(1)
        self.error: BaseException | None = None
        self.lock = threading.RLock()
        """Held while the device runs or its memory map changes."""


runtime = Runtime()


def use_device(device: Device | Driver | None, meter: Any = None, quiet: bool = False) -> None:
    """Choose the device that `rknn_init` loads models on; not part of the C interface.

    Parameters
    ----------
    device
        a device (a driver is opened on it), a driver, or None: no device.
    meter
        measures of single tasks for reports, see `sw.compiler.runtime`.
    quiet
        print no messages unless RKNN_LOG_LEVEL is set; `last_error` has them.

    Raises
    ------
    RuntimeError
        while contexts are open on another device.
    """
    if runtime.contexts:
        raise RuntimeError(f"{len(runtime.contexts)} contexts are still open on the device in use")
    for memory in runtime.memories.values():
        memory.release()
    runtime.memories.clear()
    logs.quiet = quiet
    runtime.driver = device if isinstance(device, Driver) or device is None else Driver(device)
    runtime.meter = meter


Result = TypeVar("Result")


def api(failure: Callable[[], Any] | None = None) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Make a function of the C interface: whatever goes wrong inside becomes its failure value.

    Parameters
    ----------
    failure
        gives the value of a function that returns no code (a null pointer).
    """

    def wrap(function: Callable[..., Result]) -> Callable[..., Result]:
        name = function.__name__

        @functools.wraps(function)
        def call(*args: Any, **more: Any) -> Any:
            try:
                return function(*args, **more)
            except Refusal as refusal:
                code = refusal.code
                error: BaseException = refusal.cause or refusal
                log.error("%s", refusal)
            except Exception as unforeseen:  # a program in C cannot catch what Python raises
                code, error = t.RKNN_ERR_FAIL, unforeseen
                log.error("%s: %s: %s", name, type(unforeseen).__name__, unforeseen)
                log.debug("%s: where", name, exc_info=unforeseen)
            _remember(name, args, error)
            return failure() if failure else code

        return call

    return wrap


def _remember(name: str, args: Sequence[Any], error: BaseException) -> None:
    runtime.error = error
    state = runtime.contexts.get(handle_value(args[0])) if args and not name.endswith("init") else None
    if state is not None:
        state.error = error


def context_of(handle: Any, function: str = "rknn") -> Context:
    """The open context of a model.

    Raises
    ------
    Refusal
        with RKNN_ERR_CTX_INVALID.
    """
    state = runtime.contexts.get(handle_value(handle))
    if not isinstance(state, Context):
        raise Refusal(t.RKNN_ERR_CTX_INVALID, f"{function}: invalid context")
    return state


def loaded_context(handle: Any, function: str) -> Context:
    """As `context_of`, for a context that can run.

    Raises
    ------
    Refusal
        RKNN_ERR_FAIL for a context with RKNN_FLAG_COLLECT_MODEL_INFO_ONLY.
    """
    state = context_of(handle, function)
    if state.loaded is None:
        raise Refusal(t.RKNN_ERR_FAIL, f"{function}: the context was made to collect information only")
    return state


def handle_value(handle: Any) -> int:
    """Number of a handle (an int, a `rknn_context` or a pointer to one), 0 if it is none."""
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
    if isinstance(pointer, ct.Array):
        return pointer[0] if len(pointer) and isinstance(pointer[0], kind) else None
    return kind.from_address(pointer) if is_address(pointer) else None


def is_address(value: Any) -> TypeGuard[int]:
    """Whether a number can be the address of something in this process."""
    return isinstance(value, int) and FIRST_ADDRESS <= value < END_ADDRESS


def array_of(pointer: Any, kind: type[Any], count: int) -> list[Any] | None:
    """`count` C objects: of a sequence, an array, a pointer to the first, or its address; None if not."""
    pointer = getattr(pointer, "_obj", pointer)
    if isinstance(pointer, (list, tuple)) or (isinstance(pointer, ct.Array) and pointer._type_ is kind):
        items = list(pointer[:count])
        return items if len(items) == count and all(isinstance(item, kind) for item in items) else None
    if isinstance(pointer, kind):
        return [pointer] if count == 1 else None
    if isinstance(pointer, ct._Pointer):
        return [pointer[n] for n in range(count)] if pointer and pointer._type_ is kind else None
    if isinstance(pointer, ct.c_void_p):
        pointer = pointer.value
    if is_address(pointer) and count < MAX_ITEMS:
        return [kind.from_address(pointer + n * ct.sizeof(kind)) for n in range(count)]
    return None


def last_error(context: Any = None) -> BaseException | None:
    """What made the last call on a context fail, or the last call at all; not part of the C interface."""
    if context is None:
        return runtime.error
    state = runtime.contexts.get(handle_value(context))
    return state.error if state else None


def _of(context: Any, name: str) -> Any:
    return getattr(runtime.contexts.get(handle_value(context)), name, None)


def run_report(context: Any) -> Any:
    """`RunReport` of a context's last run, or None; not part of the C interface."""
    state = runtime.contexts.get(handle_value(context))
    if isinstance(state, Context):
        state.finish()
    return _of(context, "report")


def compiled_model(context: Any) -> Any:
    """`CompiledModel` of a context, or None; not part of the C interface."""
    return _of(context, "model")


def loaded_model(context: Any) -> Any:
    """`LoadedModel` of a context, or None; not part of the C interface."""
    return _of(context, "loaded")
