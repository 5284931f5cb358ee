"""Run-time functions: the registered functions of the device, contexts, the last error, start and end.

A framework calls the device through functions that the device's library has registered
(`diopiRegister...Func`, the layout of 2023) or exports (`device_...`, today's).  Here both are the same
functions: `initLibrary` registers the `device_...` functions, and a framework may register its own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from rkcosim.apis.diopi.enums import Error
from rkcosim.apis.diopi.memory import Memory, Stream, not_null
from rkcosim.apis.diopi.npu import Npu
from rkcosim.apis.diopi.values import DiopiError

VERSION = "DIOPI Version: 1.0.0"
VENDOR = "RK3588 NPU, simulated by rkcosim"

MEMORY = Memory()
NPU = Npu()

_LAST = threading.local()

REGISTERED: dict[str, Callable[..., Any]] = {}
"""Functions of the device by the part of their registration's name, for example `DeviceMalloc`."""

MISSING = {
    "DeviceMalloc": Error.diopi_no_registered_device_memory_malloc_function,
    "DevMemFree": Error.diopi_no_registered_device_memory_free_function,
    "MemcpyH2DAsync": Error.diopi_no_registered_host2device_memory_copy_function,
    "MemcpyD2HAsync": Error.diopi_no_registered_device2host_memory_copy_function,
    "MemcpyD2DAsync": Error.diopi_no_registered_device2device_memory_copy_function,
    "StreamCreate": Error.diopi_no_registered_stream_create_function,
    "StreamDestroy": Error.diopi_no_registered_stream_destory_function,
    "SynchronizeStream": Error.diopi_no_registered_stream_sync_function,
    "GetLastError": Error.diopi_no_registered_get_last_error_function,
}
"""Result of a call that needs a function that is not registered."""


def set_last_error(text: str) -> None:
    """Set the text of this thread's last error."""
    _LAST.text = text


def get_last_error_string() -> str:
    """Return the text of this thread's last error, empty without one."""
    function = REGISTERED.get("GetLastError", device_get_last_error_string)
    return str(function())


def device_get_last_error_string() -> str:
    """Return the text of this thread's last error, empty without one."""
    return str(getattr(_LAST, "text", ""))


def answered(function: Callable[..., None]) -> Callable[..., Error]:
    """Return a function that answers by code what another one raises."""

    def call(*arguments: Any) -> Error:
        try:
            function(*arguments)
        except DiopiError as error:
            set_last_error(f"{function.__name__}: {error}")
            return error.code
        return Error.diopi_success

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call


def device_malloc(size: int) -> int:
    """Return the address of a new block of device memory, 0 if there is none."""
    try:
        return MEMORY.allocate(size)
    except DiopiError as error:
        set_last_error(f"device_malloc: {error}")
        return 0


@answered
def device_free(address: int) -> None:
    """Free a block of device memory; address 0 is allowed."""
    if address:
        MEMORY.free(address)


@answered
def device_memcpy_h2d_async(stream: Stream, target: int, source: int, size: int) -> None:
    """Copy bytes from the host to the device when the stream gets to it."""
    made = MEMORY.view(target, size)
    not_null(source, size)

    def copy() -> None:
        ctypes.memmove(made.ctypes.data, source, size)

    _stream(stream).add(copy)


@answered
def device_memcpy_d2h_async(stream: Stream, target: int, source: int, size: int) -> None:
    """Copy bytes from the device to the host when the stream gets to it."""
    made = MEMORY.view(source, size)
    not_null(target, size)

    def copy() -> None:
        ctypes.memmove(target, made.ctypes.data, size)

    _stream(stream).add(copy)


@answered
def device_memcpy_d2d_async(stream: Stream, target: int, source: int, size: int) -> None:
    """Copy bytes on the device when the stream gets to it."""
    made, read = MEMORY.view(target, size), MEMORY.view(source, size)

    def copy() -> None:
        made[:] = read.copy()

    _stream(stream).add(copy)


def _stream(stream: Any) -> Stream:
    if not isinstance(stream, Stream):
        raise DiopiError("the stream is null")
    return stream


def device_make_stream() -> Stream:
    """Return a new stream."""
    return Stream()


@answered
def device_destroy_stream(stream: Stream) -> None:
    """Do the stream's work, and take no more of it."""
    _stream(stream).destroy()


@answered
def device_synchronize_stream(stream: Stream) -> None:
    """Do the stream's work."""
    _stream(stream).synchronize()


def registered(name: str) -> Callable[..., Any]:
    """Return a function of the device; raises DiopiError if it is not registered."""
    function = REGISTERED.get(name)
    if function is None:
        raise DiopiError(f"no function is registered by diopiRegister{name}Func", MISSING[name])
    return function


def registration(name: str) -> Callable[[Callable[..., Any] | None], Error]:
    """Return the function that registers a function of the device; None removes it."""

    def register(function: Callable[..., Any] | None) -> Error:
        if function is None:
            REGISTERED.pop(name, None)
        else:
            REGISTERED[name] = function
        return Error.diopi_success

    register.__name__ = f"diopiRegister{name}Func"
    register.__doc__ = f"Register the function {name} of the device; None removes it."
    return register


def checked(result: Any, what: str) -> None:
    """Raise DiopiError for a result that is not success."""
    if result:
        raise DiopiError(get_last_error_string() or f"{what} failed", Error(result))


def init_library() -> Error:
    """Register the functions of the device."""
    REGISTERED.update(
        DeviceMalloc=device_malloc,
        DevMemFree=device_free,
        MemcpyH2DAsync=device_memcpy_h2d_async,
        MemcpyD2HAsync=device_memcpy_d2h_async,
        MemcpyD2DAsync=device_memcpy_d2d_async,
        StreamCreate=device_make_stream,
        StreamDestroy=device_destroy_stream,
        SynchronizeStream=device_synchronize_stream,
        GetLastError=device_get_last_error_string,
    )
    return Error.diopi_success


def finalize_library() -> Error:
    """Close the NPU, free the device's memory and remove the registrations; a second call does nothing."""
    NPU.close()
    MEMORY.clear()
    REGISTERED.clear()
    return Error.diopi_success


def diopi_init() -> Error:
    """Do nothing: the framework's part needs no start."""
    return Error.diopi_success


def diopi_finalize() -> Error:
    """Do nothing: the framework's part needs no end."""
    return Error.diopi_success


class Context:
    """A context: a stream, and the tensors that operators have asked for."""

    def __init__(self) -> None:
        self._stream: Stream | None = None
        self.tensors: list[Any] = []

    @property
    def stream(self) -> Stream:
        """The stream, created on first use; raises DiopiError if no function for that is registered."""
        if self._stream is None:
            made: Stream = registered("StreamCreate")()
            self._stream = made
        return self._stream

    def synchronize(self) -> None:
        """Wait for the stream."""
        if self._stream is not None:
            checked(registered("SynchronizeStream")(self._stream), "diopiRegisterSynchronizeStreamFunc")

    def clear_tensors(self) -> None:
        """Drop the tensors that operators have asked for."""
        self.tensors.clear()
