"""Depthwise tasks of large windows fit CBUF's weight banks: whole-map averages have onnxruntime's values."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import rkcosim
from rkcosim.examples.networks.make import Network


@pytest.mark.parametrize(("channels", "size"), [(192, 30), (160, 31), (320, 24), (96, 30), (33, 31)])
def test_averages_of_whole_maps_in_fp16(channels: int, size: int) -> None:
    """The weights of one stripe pass through CBUF, of which a depthwise block of 32 channels needs 64 bytes a
    tap at the same time: with 192 channels of 30 x 30 one bank was left for 57,600 bytes (PP-OCRv6 det)."""
    n = Network("average", (1, channels, size, size), 3)
    proto = n.model(n.add("GlobalAveragePool", "image"))
    x = np.random.default_rng(1).normal(size=n.shape).astype(np.float16).astype(np.float32) + 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    right = session.run(None, {"image": x})[0]
    with rkcosim.load(proto, engine="golden") as model:
        assert np.abs(model(x) - right).max() < 2e-3 and model.mac_share == 1
