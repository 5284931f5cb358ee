"""Class RKNNLite of RKNN-Toolkit Lite2 (vendor's user guide, chapter 3.4), implemented with librknnrt.so.

Scripts that are started by `rkcosim rknn -- python SCRIPT` import this module by `from rknnlite.api import
RKNNLite`. It depends only on numpy; constants and layouts are in `declarations.json` in the same folder.
"""

from __future__ import annotations

import ctypes as ct
import json
import os
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

SUCCESS, FAILED = 0, -1
"""Results of load_rknn and init_runtime."""

PLATFORM = "rk3588"
"""The simulated platform."""

_LAYOUTS = json.loads(Path(__file__).with_name("declarations.json").read_text())
NUMBERS: dict[str, int] = _LAYOUTS["numbers"]
_C_TYPES: dict[str, Any] = {
    **{f"{name}_t": getattr(ct, f"c_{name}") for name in ("int8", "uint8", "int16", "int32", "uint32")},
    **{f"{name}_t": getattr(ct, f"c_{name}") for name in ("int64", "uint64")},
    **{"float": ct.c_float, "char": ct.c_char, "void *": ct.c_void_p, "char *": ct.c_char_p},
}

_TYPES = {
    name: NUMBERS[f"RKNN_TENSOR_{name.upper()}"] for name in ("float32", "float16", "int8", "uint8", "int16")
}
"""Codes of the element types that rknn_inputs_set accepts; other arrays are converted to float32."""


def struct(name: str) -> Any:
    """Return a struct of the header as a ctypes class."""
    fields = []
    for member, kind, *lengths in _LAYOUTS["structs"][name]:
        made = _C_TYPES[kind]
        for length in reversed(lengths):
            made = made * length
        fields.append((member, made))
    return type(name, (ct.Structure,), {"_fields_": fields})


_Counts, _Attr = struct("rknn_input_output_num"), struct("rknn_tensor_attr")
_Version, _Input, _Output = struct("rknn_sdk_version"), struct("rknn_input"), struct("rknn_output")


def _library() -> Any:
    library = ct.CDLL("librknnrt.so")
    library.rknn_destroy.argtypes = [ct.c_uint64]
    library.rknn_query.argtypes = [ct.c_uint64, ct.c_int, ct.c_void_p, ct.c_uint32]
    library.rknn_set_core_mask.argtypes = [ct.c_uint64, ct.c_int]
    library.rknn_init.argtypes = [ct.c_void_p, ct.c_char_p, ct.c_uint32, ct.c_uint32, ct.c_void_p]
    library.rknn_inputs_set.argtypes = [ct.c_uint64, ct.c_uint32, ct.c_void_p]
    library.rknn_outputs_get.argtypes = [ct.c_uint64, ct.c_uint32, ct.c_void_p, ct.c_void_p]
    library.rknn_run.argtypes = [ct.c_uint64, ct.c_void_p]
    return library


class RKNNLite:
    """A model on the NPU.

    Parameters
    ----------
    verbose : print messages about each call on standard error.
    verbose_file : also write it to this file, if `verbose` is set.
    """

    NAME = "RKNNLite"
    """Name of the class in messages."""

    NPU_CORE_AUTO = NUMBERS["RKNN_NPU_CORE_AUTO"]
    NPU_CORE_0 = NUMBERS["RKNN_NPU_CORE_0"]
    NPU_CORE_1 = NUMBERS["RKNN_NPU_CORE_1"]
    NPU_CORE_2 = NUMBERS["RKNN_NPU_CORE_2"]
    NPU_CORE_0_1 = NUMBERS["RKNN_NPU_CORE_0_1"]
    NPU_CORE_0_1_2 = NUMBERS["RKNN_NPU_CORE_0_1_2"]
    NPU_CORE_ALL = NUMBERS["RKNN_NPU_CORE_ALL"]

    def __init__(self, verbose: bool = False, verbose_file: str | None = None) -> None:
        self.verbose, self.verbose_file = verbose, verbose_file
        self.rknn_data: bytes | None = None
        self.flags = 0
        self._context = ct.c_uint64()
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def load_rknn(self, path: str) -> int:
        """Read a model file; return 0, or -1 if it cannot be read."""
        try:
            self.rknn_data = Path(path).read_bytes()
        except (OSError, TypeError) as error:
            return self._failed(f"load_rknn: {error}")
        self._say(f"load_rknn: {path}, {len(self.rknn_data)} bytes")
        return SUCCESS if self.rknn_data else self._failed(f"load_rknn: {path} is empty")

    def init_runtime(
        self,
        target: str | None = None,
        device_id: str | None = None,
        async_mode: bool = False,
        core_mask: int = NPU_CORE_AUTO,
        **more: Any,
    ) -> int:
        """Open the model on the cores of `core_mask`; return 0, or -1 after an error.

        The other arguments have no effect, since there is only one device.
        """
        if self.rknn_data is None:
            return self._failed("init_runtime: call load_rknn first")
        self._library = _library()
        self._close()
        data = self.rknn_data
        code = self._library.rknn_init(ct.byref(self._context), data, len(data), self.flags, None)
        if code:
            return self._failed(f"init_runtime: rknn_init returned {code}")
        counts = _Counts()
        if self._query("RKNN_QUERY_IN_OUT_NUM", counts):
            return FAILED
        self._inputs = [self._attr("RKNN_QUERY_INPUT_ATTR", n) for n in range(counts.n_input)]
        self._outputs = [self._attr("RKNN_QUERY_OUTPUT_ATTR", n) for n in range(counts.n_output)]
        if core_mask != self.NPU_CORE_AUTO:
            code = self._library.rknn_set_core_mask(self._context, core_mask)
            if code:
                self._close()
                return self._failed(f"init_runtime: rknn_set_core_mask({core_mask}) returned {code}")
        return SUCCESS

    def inference(
        self,
        inputs: list[Any] | np.ndarray,
        data_type: str | None = None,
        data_format: list[str] | str | None = None,
        inputs_pass_through: list[int] | None = None,
        get_frame_id: bool = False,
    ) -> list[Any] | None:
        """Run the model once.

        Parameters
        ----------
        inputs : an array for each input, or the array of the only input; of four dimensions in the order of
            `data_format`.
        data_format : "nhwc" (the default) or "nchw", for each input.
        inputs_pass_through : for each input, 1 if it already has the NPU's layout and type.

        Returns
        -------
        A float32 array for each output (four dimensions: N, C, H, W), or None after an error.
        `data_type` and `get_frame_id` have no effect.
        """
        if not self._context.value:
            self._failed("inference: call init_runtime first")
            return None
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, (list, tuple)) or len(inputs) != len(self._inputs):
            self._failed(f"inference: inputs must be a list of {len(self._inputs)} arrays")
            return None
        formats = (
            [data_format] * len(inputs)
            if data_format is None or isinstance(data_format, str)
            else data_format
        )
        passing = inputs_pass_through or [0] * len(inputs)
        if len(formats) != len(inputs) or len(passing) != len(inputs):
            self._failed("inference: data_format and inputs_pass_through must name every input")
            return None
        items, kept = (_Input * len(inputs))(), []
        for number, (given, order, raw) in enumerate(zip(inputs, formats, passing)):  # noqa: B905
            array = self._checked(number, given, order, bool(raw))
            if array is None:
                return None
            kept.append(array)
            items[number].index = number
            items[number].buf = array.ctypes.data
            items[number].size = array.nbytes
            items[number].pass_through = int(bool(raw))
            items[number].type = _TYPES[array.dtype.name]
            items[number].fmt = NUMBERS[self._format(number, order)]
        call = self._library.rknn_inputs_set(self._context, len(items), items)
        call = call or self._library.rknn_run(self._context, None)
        return None if self._wrong("inference", call) else self._results()

    def _checked(self, number: int, given: Any, order: str | None, raw: bool) -> Any:
        """Return an input as an array that the library accepts, or None after an error."""
        array = np.ascontiguousarray(given)
        attr = self._inputs[number]
        if order is not None and order.lower() not in ("nhwc", "nchw"):
            self._failed(f"inference: data_format '{order}' of input {number} must be nhwc or nchw")
            return None
        if not raw and array.size != attr.n_elems:
            wanted = list(attr.dims[: attr.n_dims])
            self._failed(f"inference: input {number} has shape {list(array.shape)}, the model takes {wanted}")
            return None
        return array if array.dtype.name in _TYPES else array.astype(np.float32)

    def _format(self, number: int, order: str | None) -> str:
        if self._inputs[number].n_dims != 4:
            return "RKNN_TENSOR_UNDEFINED"
        return "RKNN_TENSOR_NCHW" if order is not None and order.lower() == "nchw" else "RKNN_TENSOR_NHWC"

    def _results(self) -> list[Any] | None:
        arrays = [np.zeros(tuple(attr.dims[: attr.n_dims]), np.float32) for attr in self._outputs]
        items = (_Output * len(arrays))()
        for number, array in enumerate(arrays):
            items[number].want_float = items[number].is_prealloc = 1
            items[number].index = number
            items[number].buf = array.ctypes.data
            items[number].size = array.nbytes
        code = self._library.rknn_outputs_get(self._context, len(items), items, None)
        return None if self._wrong("inference", code) else arrays

    def get_sdk_version(self) -> str | None:
        """Return the versions of library and driver as text; None before init_runtime."""
        version = _Version()
        if not self._context.value or self._query("RKNN_QUERY_SDK_VERSION", version):
            self._failed("get_sdk_version: call init_runtime first")
            return None
        rule = "=" * 46
        api, driver = version.api_version.decode(), version.drv_version.decode()
        return f"{rule}\nRKNN VERSION:\n  API: {api}\n  DRV: {driver}\n{rule}\n"

    def list_support_target_platform(
        self, rknn_model: str | None = None
    ) -> OrderedDict[str, list[str]] | None:
        """Print and return the platforms on which a model runs; None if the file does not exist."""
        rule = "*" * 50
        if not rknn_model or not os.path.exists(rknn_model):
            print(f"{rule}\nAll platforms that are simulated: {PLATFORM.upper()}\n{rule}")
            return None
        found = OrderedDict(filled_target_platform=[PLATFORM], support_target_platform=[PLATFORM.upper()])
        print(rule)
        print(f"Target platforms filled in RKNN model:         {found['filled_target_platform']}")
        print(f"Target platforms supported by this RKNN model: {found['support_target_platform']}")
        print(rule)
        return found

    def list_devices(self) -> tuple[list[str], list[str]]:
        """Return the devices connected to a computer: none, since the NPU is in the same system."""
        print("*" * 25 + "\nNone devices connected.\n" + "*" * 25)
        return [], []

    def release(self) -> None:
        """Free the model; may be called repeatedly."""
        self._close()
        self.rknn_data = None

    def _close(self) -> None:
        if self._context.value:
            self._library.rknn_destroy(self._context)
            self._context.value = 0

    def _attr(self, command: str, index: int) -> Any:
        attr = _Attr(index=index)
        self._query(command, attr)
        return attr

    def _query(self, command: str, info: Any) -> int:
        size = ct.sizeof(info)
        code = self._library.rknn_query(self._context, NUMBERS[command], ct.byref(info), size)
        return self._wrong("rknn_query", code)

    def _wrong(self, what: str, code: int) -> int:
        if code:
            self._failed(f"{what}: the library returned {code}")
        return int(code)

    def _failed(self, text: str) -> int:
        print(f"E {self.NAME}: {text}", file=sys.stderr)
        return FAILED

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"I {self.NAME}: {text}", file=sys.stderr)
            if self.verbose_file:
                with open(self.verbose_file, "a") as file:
                    print(text, file=file)
