"""Instances: networks that take and give matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ParamSpec

from rkcosim.apis.tnn.blob import Blob
from rkcosim.apis.tnn.config import NetworkConfig
from rkcosim.apis.tnn.device import get_device
from rkcosim.apis.tnn.enums import DeviceType, MatType
from rkcosim.apis.tnn.loader.bound import Dims
from rkcosim.apis.tnn.loader.network import TnnNetwork
from rkcosim.apis.tnn.mat import BlobConverter, Mat, MatConvertParam
from rkcosim.apis.tnn.network import AbstractNetwork, MemoryUse, create_network
from rkcosim.apis.tnn.status import TNN_OK, Status, StatusCode, TnnError
from rkcosim.compiler.graph import ModelError

P = ParamSpec("P")


ARGUMENTS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError)
"""Errors of arguments that TNN's interface in C++ would not compile, or of sizes that do not fit."""

FAILURES = (ValueError, RuntimeError, OSError, *ARGUMENTS)
"""Errors that calls of TNN's interface return as a `Status`: of this package, the compiler, the driver, the
engines, and of arguments."""


def as_status(error: Exception) -> Status:
    """Return the status of an error of this package, the compiler or the driver."""
    if isinstance(error, TnnError):
        return error.status
    code = StatusCode.TNNERR_INVALID_MODEL if isinstance(error, ModelError) else StatusCode.TNNERR_INST_ERR
    if isinstance(error, ARGUMENTS):
        code = StatusCode.TNNERR_PARAM_ERR
    return Status(code, str(error) or type(error).__name__)


def returns_status(call: Callable[P, None]) -> Callable[P, Status]:
    """Let a call return a `Status`: TNN_OK, or that of the error that it raised."""

    @functools.wraps(call)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Status:
        try:
            call(*args, **kwargs)
        except FAILURES as error:
            return as_status(error)
        return TNN_OK

    return wrapped


class Instance:
    """A network that runs.  Use as a context manager, or call `DeInit`.

    Parameters
    ----------
    net
        The network.
    config
        How it runs.
    shapes
        Shapes of inputs, for others than those of the file.

    Raises
    ------
    TnnError, ModelError, DriverError
        If it cannot be created (`TNN.CreateInst` returns a `Status` instead).
    """

    def __init__(self, net: TnnNetwork, config: NetworkConfig, shapes: Mapping[str, Dims]) -> None:
        self._net, self._config = net, config
        with self._device():
            self.network: AbstractNetwork = create_network(net, config, shapes)

    def _device(self) -> AbstractContextManager[Any]:
        """Return what this thread holds while it uses the device, which other threads may use, too."""
        config = self._config
        return get_device(config.device_type).guard(config.device_id, config.engine)

    def __enter__(self) -> Instance:
        return self

    def __exit__(self, *_: object) -> None:
        self.DeInit()

    @returns_status
    def DeInit(self) -> None:
        """Release everything; a second call does nothing."""
        with self._device():
            self.network.DeInit()

    def GetForwardMemorySize(self) -> tuple[Status, int]:
        """Return the bytes of the forward memory."""
        return TNN_OK, self.network.GetForwardMemorySize()

    @returns_status
    def SetForwardMemory(self, memory: Any) -> None:
        """Use memory of the caller (SHARE_MEMORY_MODE_SET_FROM_EXTERNAL).

        Parameters
        ----------
        memory
            uint8 (n,) for NAIVE; for RK3588 a buffer of the driver, or a tuple of buffer and offset.
        """
        given, offset = memory if isinstance(memory, tuple) else (memory, 0)
        with self._device():
            self.network.SetForwardMemory(given, offset)

    @returns_status
    def Reshape(self, inputs: Mapping[str, Dims]) -> None:
        """Give the inputs other shapes; blobs are new afterwards."""
        with self._device():
            made = create_network(self._net, self._config, inputs)
            self.network.DeInit()
            self.network = made

    @returns_status
    def Forward(self) -> None:
        """Compute the outputs."""
        with self._device():
            self.network.Forward()

    def ForwardAsync(self, callback: Callable[[], None] | None = None) -> Status:
        """Compute the outputs, then call the function; the call returns after both."""
        status = self.Forward()
        if status and callback is not None:
            callback()
        return status

    def GetAllInputBlobs(self) -> tuple[Status, dict[str, Blob]]:
        """Return the inputs by name."""
        return TNN_OK, dict(self.network.inputs)

    def GetAllOutputBlobs(self) -> tuple[Status, dict[str, Blob]]:
        """Return the outputs by name."""
        return TNN_OK, dict(self.network.outputs)

    def SetInputMat(self, mat: Mat, param: MatConvertParam | None = None, name: str = "") -> Status:
        """Set an input to a matrix times scale plus bias; without a name, the first one."""
        blob = _named(self.network.inputs, name)
        if isinstance(blob, Status):
            return blob
        try:
            with self._device():
                return BlobConverter(blob, get_device(blob.desc.device_type)).ConvertFromMat(mat, param)
        except FAILURES as error:
            return as_status(error)

    def GetOutputMat(
        self,
        param: MatConvertParam | None = None,
        name: str = "",
        device: DeviceType = DeviceType.DEVICE_NAIVE,
        mat_type: MatType = MatType.NCHW_FLOAT,
    ) -> tuple[Status, Mat | None]:
        """Return an output times scale plus bias as a matrix; without a name, the first one."""
        blob = _named(self.network.outputs, name)
        if isinstance(blob, Status):
            return blob, None
        try:
            mat = Mat(device, mat_type, blob.desc.dims)
        except (ValueError, *ARGUMENTS) as error:
            return Status(StatusCode.TNNERR_PARAM_ERR, str(error)), None
        try:
            with self._device():
                status = BlobConverter(blob, get_device(blob.desc.device_type)).ConvertToMat(mat, param)
        except FAILURES as error:
            return as_status(error), None
        return status, mat if status else None

    def memory(self) -> MemoryUse:
        """Return how much memory the blobs have; not a call of TNN."""
        return self.network.memory()

    @property
    def cycles(self) -> int | None:
        """Cycles of all jobs so far; None for NAIVE; not a member of TNN."""
        return self.network.cycles


def _named(blobs: Mapping[str, Blob], name: str) -> Blob | Status:
    if not name:
        return next(iter(blobs.values()))
    if name not in blobs:
        text = f"there is no blob '{name}', only {', '.join(blobs)}"
        return Status(StatusCode.TNNERR_INVALID_INPUT, text)
    return blobs[name]
