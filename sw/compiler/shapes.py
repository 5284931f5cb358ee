"""Between arrays in a tensor's own shape and the cube (C, H, W) that the NPU keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import Tensor


def to_cube(codes: npt.NDArray[Any], tensor: Tensor) -> npt.NDArray[Any]:
    """The cube (C, H, W) of an array of the tensor's own shape."""
    if channels_last(tensor):
        channels, height, width = tensor.cube
        return np.ascontiguousarray(codes.reshape(height, width, channels).transpose(2, 0, 1))
    return codes.reshape(tensor.cube)


def from_cube(cube: npt.NDArray[Any], tensor: Tensor) -> npt.NDArray[Any]:
    """The array of the tensor's own shape; the inverse of `to_cube`."""
    if channels_last(tensor):
        return np.ascontiguousarray(cube.reshape(tensor.cube).transpose(1, 2, 0)).reshape(tensor.shape)
    return cube.reshape(tensor.shape)


def channels_last(tensor: Tensor) -> bool:
    """Whether channels run fastest: a flattened TFLite tensor, or (M, K) as K channels of M rows."""
    matrix = len(tensor.shape) in (2, 3) and tensor.shape[-1] == tensor.cube[0] and tensor.cube[1] > 1
    return tensor.channels_last or matrix
