"""Configurations of models and networks, with TNN's members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rkcosim.apis.tnn.enums import (
    DataFormat,
    DeviceType,
    ModelType,
    NetworkType,
    Precision,
    ShareMemoryMode,
)


@dataclass(frozen=True)
class ModelConfig:
    """A model.

    Members
    -------
    model_type
        Its kind; MODEL_TYPE_TNN.
    params
        Contents of the `.tnnproto` file (text or bytes) and of the `.tnnmodel` file (bytes).
    """

    model_type: ModelType = ModelType.MODEL_TYPE_TNN
    params: Sequence[str | bytes] = ()


@dataclass(frozen=True)
class NetworkConfig:
    """How a network runs.

    Members
    -------
    device_type
        DEVICE_NAIVE or DEVICE_RK3588.
    device_id
        Number of the device; instances with the same number use the same one.
    data_format
        DATA_FORMAT_AUTO or DATA_FORMAT_NCHW.
    network_type
        AUTO, DEFAULT (layer by layer) or, for RK3588, RK_NPU (the whole network as one plan).
    share_memory_mode
        How the forward memory is shared.
    precision
        Has no effect: layers of floats run in fp16 on the NPU and in float32 on the host.
    engine
        Engine of the RK3588 by name, not a member of TNN: None for the default, "golden" for the model of
        the hardware's arithmetic without cycles.
    """

    device_type: DeviceType = DeviceType.DEVICE_NAIVE
    device_id: int = 0
    data_format: DataFormat = DataFormat.DATA_FORMAT_AUTO
    network_type: NetworkType = NetworkType.NETWORK_TYPE_AUTO
    share_memory_mode: ShareMemoryMode = ShareMemoryMode.SHARE_MEMORY_MODE_DEFAULT
    precision: Precision = Precision.PRECISION_AUTO
    engine: str | None = None
