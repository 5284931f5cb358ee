"""Open contexts, the device that they run on, and access to C-like arguments."""

from __future__ import annotations

import contextlib
import ctypes as ct
import functools
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeGuard, TypeVar

from rkcosim.base.failures import Failures, is_internal
from rkcosim.driver import Device, Driver
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.signatures import SIGNATURES

# Messages go to the logger `rkcosim.rknn_api`. Its handler prints `E RKNN: [12:34:56.789] text` to
# stderr according to the environment variable RKNN_LOG_LEVEL: 0 errors, 1 also warnings, 2 also information,
# 3 and more also debug lines. If the variable is not set, only errors are printed.

log = logging.getLogger("rkcosim.rknn_api")

LETTERS = {logging.ERROR: "E", logging.WARNING: "W", logging.INFO: "I", logging.DEBUG: "D"}
LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)

CLOCK_MHZ = 1000
"""Nominal clock, which converts cycles to microseconds [HW 12.1]."""

FIRST_ADDRESS = 1 << 12
END_ADDRESS = 1 << 48
"""Larger addresses are treated as null pointers."""

MAX_ITEMS = 1 << 16
"""Larger numbers of structs are not accepted as an array."""

CYCLES_PER_MS = CLOCK_MHZ * 1000


class Refusal(Exception):
    """Ends a call with a code of the header; the text goes to the log and to `last_error`.

    `api` puts the name of the called function before the text.

    Members
    -------
    level : level of the line in the log.
    """

    level = logging.ERROR

    def __init__(self, code: int, message: str, cause: BaseException | None = None) -> None:
        self.code = code
        self.cause = cause
        super().__init__(message)

    @classmethod
    def invalid(cls, message: str) -> Self:
        """Create a refusal with RKNN_ERR_PARAM_INVALID."""
        return cls(t.RKNN_ERR_PARAM_INVALID, message)

    @classmethod
    @contextlib.contextmanager
    def instead_of(cls, code: int, *errors: type[Exception], text: str = "") -> Iterator[None]:
        """Convert these exceptions of a `with` block to refusals; `text` precedes their message."""
        try:
            yield
        except errors as error:
            raise cls(code, f"{text}{error}", error) from error


class Verbatim(Refusal):
    """A refusal whose text is not changed: a text of the vendor, or of a frame that ran before the call."""


class Expected(Verbatim):
    """A refusal that programs provoke to learn something: its line is a warning."""

    level = logging.WARNING


@dataclass
class Frame:
    """One run of a context: its number, its thread, and its result."""

    number: int
    thread: threading.Thread | None = None
    report: Any = None
    failure: Refusal | None = None
    waited: int = 0
    """Cycles that have passed in timed waits."""

    def join(self) -> None:
        """Wait for the end (a run is bounded by the driver)."""
        if self.thread is not None:
            self.thread.join()


@dataclass
class Binding:
    """Memory that `rknn_set_io_mem` has set for an input or output, and how it is read or written."""

    memory: Any
    attr: t.rknn_tensor_attr


@dataclass
class Context:
    """State behind the `rknn_context` of a model."""

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
    """Native bytes of inputs that were set, because a run may use their memory for other data."""
    io: dict[tuple[bool, int], Binding] = field(default_factory=dict)
    """Bindings by (is input, index)."""
    regions: dict[str, Any] = field(default_factory=dict)
    """Memory of the program in which the weights or the activations are, by the name of the region."""
    frame: Frame | None = None
    """The frame that was started last."""
    previous: tuple[int, list[Any]] | None = None
    """Frame number and outputs (codes) that are returned with RKNN_FLAG_ASYNC_MASK."""
    report: Any = None
    buffers: dict[int, Any] = field(default_factory=dict)
    """Memory given to the program by `rknn_outputs_get`, by address."""
    perf_text: Any = None
    weightless: bool = False
    """Whether the model's file has no weights, so that they are those of another model."""
    variants: Any = None
    """`Variants` of a model of several shapes, otherwise None."""
    custom: dict[str, Any] = field(default_factory=dict)
    """Registered custom operators by type."""
    foreground: bool = False
    """Whether frames run within `rknn_run`, since functions of the program's can be called only there."""
    error: BaseException | None = None
    running: Any = field(default_factory=threading.RLock)
    """Held during a run, also while that has given up the device's lock for a part that the host computes."""

    def uses(self, memory: Any) -> bool:
        """Return whether a run reads or writes a memory of the create functions."""
        # Copies, since another thread may be setting memory of this context.
        bound = [binding.memory for binding in list(self.io.values())] + list(self.regions.values())
        return any(one.allocation is memory.allocation for one in bound)

    def finish(self) -> Frame | None:
        """Wait for the running frame, if there is one, and return it."""
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


class DeviceLock:
    """A lock that a thread may take several times, and that it can give up for a while."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._own = threading.local()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._own.depth = getattr(self._own, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        self._own.depth -= 1
        self._lock.release()

    @contextlib.contextmanager
    def given_up(self) -> Iterator[None]:
        """Let other threads have the lock in this context, however often this thread has taken it."""
        depth, self._own.depth = getattr(self._own, "depth", 0), 0
        for _ in range(depth):
            self._lock.release()
        try:
            yield
        finally:
            for _ in range(depth):
                self._lock.acquire()
            self._own.depth = depth


class Runtime:
    """Device, contexts and memory of the process."""

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self.meter: Any = None
        self.contexts: dict[int, Any] = {}
        """Contexts of models and of matrix products, by handle."""
        self.memories: dict[int, Any] = {}
        """Memory of the create functions, by the number in its `priv_data`."""
        self.handles = itertools.count(1)
        self.error: BaseException | None = None
        self.quiet = False
        """Print nothing unless RKNN_LOG_LEVEL is set: for callers that report errors on their own."""
        self.backing_of: Callable[[int], Any] | None = None
        """Returns the pages of a dma-buf of the simulated kernel from its descriptor; None for others."""
        self.failures: Failures | None = None
        """Takes the unforeseen errors of a server's calls; None: the caller has `last_error`."""
        self.lock = DeviceLock()
        """Held while the device runs or its memory map changes, but not while the host computes a part of a
        model or a program's function does."""

    def failed(self, what: str, error: BaseException) -> bool:
        """Record an error of the call `what` if it is an unforeseen one; return whether that was done."""
        if self.failures is None or not is_internal(error):
            return False
        self.failures.add(what, error)
        return True


runtime = Runtime()


def threshold() -> int:
    """The `logging` level from which on lines are printed."""
    if runtime.quiet and "RKNN_LOG_LEVEL" not in os.environ:
        return logging.CRITICAL
    return LEVELS[min(max(detail(), 0), len(LEVELS) - 1)]


def detail() -> int:
    """RKNN_LOG_LEVEL (0 if unset or not a number): from 4 on a table of layers is printed after each run."""
    try:
        return int(os.environ.get("RKNN_LOG_LEVEL", "0"))
    except ValueError:
        return 0


class _Vendor(logging.Handler):
    """Print messages in the vendor's form to the current stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < threshold():
            return
        now = time.strftime("%H:%M:%S", time.localtime(record.created))
        letter = LETTERS.get(record.levelno, "E")
        for line in record.getMessage().splitlines():
            print(f"{letter} RKNN: [{now}.{int(record.msecs):03}] {line}", file=sys.stderr)


def _encodable(record: logging.LogRecord) -> bool:
    """Write bytes that are not UTF-8 (of a path) as escapes, so that every handler can encode them."""
    record.msg = record.getMessage().encode(errors="backslashreplace").decode()
    record.args = None
    return True


log.addFilter(_encodable)
log.addHandler(_Vendor())
log.setLevel(logging.DEBUG)


def use_device(device: Device | Driver | None, meter: Any = None, quiet: bool = False) -> None:
    """Set the device on which `rknn_init` loads models; not part of the C interface.

    Parameters
    ----------
    device
        A device (a driver is opened on it), a driver, or None: no device.
    meter
        Measurements of single tasks for reports, see `rkcosim.compiler.runtime`.
    quiet
        Print no messages unless RKNN_LOG_LEVEL is set; `last_error` has them.

    Raises
    ------
    RuntimeError
        If contexts are open on another device.
    """
    if runtime.contexts:
        raise RuntimeError(f"{len(runtime.contexts)} contexts are still open on the device in use")
    for memory in runtime.memories.values():
        memory.release()
    runtime.memories.clear()
    runtime.quiet = quiet
    runtime.driver = device if isinstance(device, Driver) or device is None else Driver(device)
    runtime.meter = meter


Result = TypeVar("Result")


def api(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorator for a function of the C interface: every exception is converted to its failure value.

    The failure value is an error code, a null pointer or nothing, as the function's signature says
    (`rkcosim.rknn_api.signatures.SIGNATURES`).
    """
    name = function.__name__
    signature = SIGNATURES[name]

    @functools.wraps(function)
    def call(*args: Any, **more: Any) -> Any:
        try:
            return function(*args, **more)
        except Refusal as refusal:
            if not isinstance(refusal, Verbatim):
                refusal.args = (f"{name}: {refusal}",)
            code = refusal.code
            error: BaseException = refusal.cause or refusal
            log.log(refusal.level, "%s", refusal)
        except Exception as unforeseen:  # a program in C cannot catch what Python raises
            code, error = t.RKNN_ERR_FAIL, unforeseen
            if not runtime.failed(name, unforeseen):
                log.error("%s: %s: %s", name, type(unforeseen).__name__, unforeseen)
                log.debug("%s: where", name, exc_info=unforeseen)
        _remember(name, args, error)
        return signature.failure(code)

    return call


def _remember(name: str, args: Sequence[Any], error: BaseException) -> None:
    runtime.error = error
    state = runtime.contexts.get(handle_value(args[0])) if args and not name.endswith("init") else None
    if state is not None:
        state.error = error


def context_of(handle: Any) -> Context:
    """The open context of a model.

    Raises
    ------
    Refusal
        RKNN_ERR_CTX_INVALID.
    """
    state = runtime.contexts.get(handle_value(handle))
    if not isinstance(state, Context):
        raise Refusal(t.RKNN_ERR_CTX_INVALID, "invalid context")
    return state


def loaded_context(handle: Any) -> Context:
    """As `context_of`, for a context that can run.

    Raises
    ------
    Refusal
        RKNN_ERR_FAIL for a context with RKNN_FLAG_COLLECT_MODEL_INFO_ONLY.
    """
    state = context_of(handle)
    if state.loaded is None:
        raise Refusal(t.RKNN_ERR_FAIL, "the context was made to collect information only")
    return state


def handle_value(handle: Any) -> int:
    """Number of a handle (an int, a `rknn_context` or a pointer to one); 0 for other objects."""
    if isinstance(handle, int):
        return handle
    target = getattr(handle, "_obj", handle)
    if isinstance(target, ct._Pointer):
        target = target.contents if target else None
    value = getattr(target, "value", None)
    return value if isinstance(value, int) else 0


def target_of(pointer: Any, kind: type[Any]) -> Any:
    """The C object that an argument refers to: the object itself, `byref`, a pointer or an address.

    Returns None for a null pointer and for other objects.
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
    """`count` C objects from a sequence, an array, a pointer to the first, or its address; None otherwise."""
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
    """The error of the last call on a context, or of the last call; not part of the C interface."""
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
