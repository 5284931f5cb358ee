"""Class RKNNLite of RKNN-Toolkit Lite2 (vendor's user guide, chapter 3.4), implemented with librknnrt.so.

Scripts that are started by `rkcosim rknn -- python SCRIPT` import this module by `from rknnlite.api import
RKNNLite`. It depends only on numpy.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rkcosim.rknn_api.lite.rknn_log import RKNNLog
    from rkcosim.rknn_api.lite.rknn_runtime import NUMBERS, RKNNRuntime
else:
    from rknnlite.api.rknn_log import RKNNLog
    from rknnlite.api.rknn_runtime import NUMBERS, RKNNRuntime

SUCCESS, FAILED = 0, -1
"""Results of load_rknn and init_runtime."""

PLATFORM = "rk3588"
"""The simulated platform."""


class RKNNLite:
    """A model on the NPU.

    Parameters
    ----------
    verbose : print messages about each call on standard error.
    verbose_file : also write them to this file, if `verbose` is set.

    Members
    -------
    rknn_log : `RKNNLog` with the messages.
    rknn_data : the bytes of the model, None before `load_rknn`.
    rknn_runtime : `RKNNRuntime` of the open model, None before `init_runtime` and after `release`.
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
        self.rknn_log = RKNNLog(self.NAME, verbose, verbose_file)
        self.root_dir = os.path.dirname(os.path.abspath(__file__))
        self.load_model_in_npu = False
        self.rknn_data: bytes | None = None
        self.rknn_runtime: RKNNRuntime | None = None
        self.flags = 0

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
        self._close()
        try:
            runtime = RKNNRuntime(self.root_dir, target, device_id, async_mode, core_mask)
            runtime.build_graph(self.rknn_data, self.load_model_in_npu, self.flags)
        except Exception as error:
            return self._failed(f"init_runtime: {error}")
        self.rknn_runtime = runtime
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
            `data_format`. Their shapes select one of a model of several shapes.
        data_type : no effect.
        data_format : "nhwc" (the default) or "nchw", for each input.
        inputs_pass_through : for each input, 1 if it already has the NPU's layout and type.
        get_frame_id : append the number of the frame to the results.

        Returns
        -------
        A float32 array for each output (four dimensions: N, C, H, W), or None after an error.
        """
        if self.rknn_runtime is None:
            self._failed("inference: call init_runtime first")
            return None
        try:
            self.rknn_runtime.set_inputs(inputs, data_type, data_format, inputs_pass_through)
            _, frame = self.rknn_runtime.run(get_frame_id)
            outputs = self.rknn_runtime.get_outputs(get_frame_id)
        except Exception as error:
            self._failed(f"inference: {error}")
            return None
        return [*outputs, frame] if get_frame_id else outputs

    def get_sdk_version(self) -> str | None:
        """Return the versions of library and driver as text; None before init_runtime."""
        if self.rknn_runtime is None:
            self._failed("get_sdk_version: call init_runtime first")
            return None
        try:
            api, driver = self.rknn_runtime.get_sdk_version()
        except Exception as error:
            self._failed(f"get_sdk_version: {error}")
            return None
        rule = "=" * 46
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
        if self.rknn_runtime is not None:
            self.rknn_runtime.release()
            self.rknn_runtime = None

    def _query(self, command: str, info: Any) -> int:
        """Fill a struct by rknn_query; return its code, after a message for an error."""
        if self.rknn_runtime is None:
            return self._failed("rknn_query: call init_runtime first")
        code = self.rknn_runtime.query(command, info)
        if code:
            self._failed(f"rknn_query: the library returned {code}")
        return code

    def _failed(self, text: str) -> int:
        self.rknn_log.e(text)
        return FAILED

    def _say(self, text: str) -> None:
        self.rknn_log.i(text)
