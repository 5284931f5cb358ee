"""Everything that the Python package `diopilib` has: DIOPI's run-time functions and operators.

DIOPI's conformance suite is built on a package of this name, which its own build makes with pybind11 around a
device's C library; this one is the device RK3588 without that layer.  Operators take a context, then the
arguments of their C declarations, and return a `diopiError`; the text of the last error of a thread is that
of `diopiGetLastErrorString`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rkcosim.apis.diopi import enums, runtime, tensor, values
from rkcosim.apis.diopi.enums import Error
from rkcosim.apis.diopi.names import NAMES
from rkcosim.apis.diopi.operators import OPERATORS
from rkcosim.apis.diopi.runtime import MISSING, Context, registration, set_last_error


def not_implemented(name: str) -> Callable[..., Error]:
    """Return the function of an operator that the device lacks; it answers `diopiNoImplement`."""

    def call(context: Context, *arguments: Any) -> Error:
        set_last_error(f"{name}: this device does not implement it")
        return Error.diopi_no_implement

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "An operator that this device does not implement."
    return call


def members() -> dict[str, Any]:
    """Return the members of the package by name."""
    made: dict[str, Any] = {
        "Context": Context,
        "Device": enums.Device,
        "Dtype": enums.Dtype,
        "TensorP": tensor.TensorP,
        "build_generator_state": tensor.build_generator_state,
        "diopiDtype": enums.Dtype,
        "diopiError": enums.Error,
        "diopiGenerator": tensor.diopiGenerator,
        "diopiGetImplVersion": lambda: "rkcosim",
        "diopiGetLastErrorString": runtime.get_last_error_string,
        "diopiGetVendorName": lambda: runtime.VENDOR,
        "diopiGetVersion": lambda: runtime.VERSION,
        "diopiLayout": enums.Layout,
        "diopiReduction": enums.Reduction,
        "diopiRoundMode": enums.RoundMode,
        "diopiScalar": values.diopiScalar,
        "diopiSize": values.diopiSize,
        "diopiSparseCsrTensor": tensor.diopiSparseCsrTensor,
        "diopiTensor": tensor.diopiTensor,
        "diopi_finalize": runtime.diopi_finalize,
        "diopi_init": runtime.diopi_init,
        "diopi_tensor_copy_to_buffer": tensor.diopi_tensor_copy_to_buffer,
        "finalize_library": runtime.finalize_library,
        "get_last_error_string": runtime.get_last_error_string,
        "init_library": runtime.init_library,
    }
    for name in (
        *("device_malloc", "device_free", "device_make_stream", "device_destroy_stream"),
        *("device_synchronize_stream", "device_memcpy_h2d_async", "device_memcpy_d2h_async"),
        *("device_memcpy_d2d_async", "device_get_last_error_string"),
    ):
        made[name] = getattr(runtime, name)
    made["initLibrary"], made["finalizeLibrary"] = runtime.init_library, runtime.finalize_library
    made |= {f"diopiRegister{name}Func": registration(name) for name in MISSING}
    made |= {f"diopi{name}": not_implemented(f"diopi{name}") for name in NAMES}
    return made | OPERATORS
