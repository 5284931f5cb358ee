"""The custom operators by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from rkcosim.compiler.custom_operators import mediapipe, posenet

Array = npt.NDArray[Any]
Options = Mapping[str, Any]

OPERATORS: dict[str, Callable[[Options, Sequence[Array]], list[Array]]] = {
    "Landmarks2TransformMatrix": mediapipe.landmarks_to_transform_matrix,
    "TransformTensorBilinear": mediapipe.transform_tensor_bilinear,
    "TransformLandmarks": mediapipe.transform_landmarks,
    "PosenetDecoderOp": posenet.decode,
}
"""Functions of the operator's options and inputs (float32, with the channels last); they return the outputs.

They raise ValueError for options and inputs that the operator does not take.
"""
