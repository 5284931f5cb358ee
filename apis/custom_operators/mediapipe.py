"""MediaPipe's operators of face landmarks with attention, in the forms of their version 2.

The definitions are those of google-ai-edge/mediapipe, folder mediapipe/util/tflite/operations, commit 24ab0a1
(landmarks_to_transform_matrix.cc, transform_tensor_bilinear.cc) and commit 1cf0434 (transform_landmarks.cc).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.custom_operators.options import number, shaped

Array = npt.NDArray[Any]

LARGEST = 4096
"""Largest height and width of a region."""


def landmarks_to_transform_matrix(options: Mapping[str, Any], arrays: Sequence[Array]) -> list[Array]:
    """Return the matrix (1, 4, 4) that maps the pixels of an output region to the input's coordinates.

    The region is the box around a subset of the landmarks, turned so that the line between two landmarks is
    at a given angle, and enlarged by a factor in each direction.

    Parameters
    ----------
    options
        `left_rotation_idx`, `right_rotation_idx`, `target_rotation_radians`, `subset_idxs`, `scale_x`,
        `scale_y`, `output_width`, `output_height`.
    arrays
        Landmarks of shape (1, n, 3).

    Raises
    ------
    ValueError
        For other options and shapes.
    """
    (landmarks,) = shaped(arrays, (1, None, 3))
    points = landmarks[0, :, :2]
    left, right = (
        points[int(number(options, f"{side}_rotation_idx", 0, len(points) - 1))] for side in ("left", "right")
    )
    width, height = (number(options, f"output_{side}", 1, LARGEST) for side in ("width", "height"))
    scales = [number(options, f"scale_{axis}", 1e-6, 1e6) for axis in "xy"]
    chosen = np.asarray(options.get("subset_idxs", []))
    if chosen.size < 2 or chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= len(points):
        raise ValueError(f"the option 'subset_idxs' does not name landmarks 0 to {len(points) - 1}")
    chosen = chosen.reshape(-1)[: chosen.size // 2 * 2]  # the definition reads pairs
    target = np.float32(number(options, "target_rotation_radians", -100, 100))
    turn = target - np.arctan2(right[1] - left[1], right[0] - left[0], dtype=np.float32)
    rotation = _rotation(turn)
    turned = points[chosen] @ rotation.T
    low, high = turned.min(axis=0), turned.max(axis=0)
    centre = _rotation(-turn) @ ((low + high) / np.float32(2))
    steps = np.array(scales, np.float32) * (high - low) / np.array([width, height], np.float32)
    matrix = np.eye(4, dtype=np.float32)
    matrix[:2, :2] = _rotation(-turn) * steps
    matrix[:2, 3] = centre - matrix[:2, :2] @ np.array([width / 2, height / 2], np.float32)
    return [matrix[None]]


def transform_tensor_bilinear(options: Mapping[str, Any], arrays: Sequence[Array]) -> list[Array]:
    """Sample a map at transformed positions: (1, `output_height`, `output_width`, c).

    Pixels have their centres at half numbers.  A position outside the centres of the outer pixels gives 0.

    Parameters
    ----------
    options
        `output_height`, `output_width`.
    arrays
        The map (1, h, w, c), and the matrix (1, 4, 4) from output to input.

    Raises
    ------
    ValueError
        For other options and shapes.
    """
    data, matrix = shaped(arrays, (1, None, None, None), (1, 4, 4))
    height, width = (int(number(options, f"output_{side}", 1, LARGEST)) for side in ("height", "width"))
    rows = matrix[0, :2]
    offsets = rows[:, 3] + rows[:, 0] * np.float32(0.5) + rows[:, 1] * np.float32(0.5) - np.float32(0.5)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    x, y = (rows[n, 0] * x + rows[n, 1] * y + offsets[n] for n in range(2))
    inside = (x >= 0) & (x <= data.shape[2] - 1) & (y >= 0) & (y <= data.shape[1] - 1)
    x, y = np.where(inside, x, np.float32(0)), np.where(inside, y, np.float32(0))
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    across, down = (x - left).astype(np.float32)[..., None], (y - top).astype(np.float32)[..., None]
    padded = np.pad(data[0], ((0, 1), (0, 1), (0, 0)))
    one = np.float32(1)
    upper = (one - across) * padded[top, left] + across * padded[top, left + 1]
    lower = (one - across) * padded[top + 1, left] + across * padded[top + 1, left + 1]
    result = down * lower + (one - down) * upper
    return [np.where(inside[..., None], result, np.float32(0)).astype(np.float32)[None]]


def transform_landmarks(options: Mapping[str, Any], arrays: Sequence[Array]) -> list[Array]:
    """Transform the first two coordinates of landmarks (1, n, 2 or 3); the third stays as it is.

    Parameters
    ----------
    options
        None are read.
    arrays
        The landmarks, and the matrix (1, 4, 4).

    Raises
    ------
    ValueError
        For other shapes.
    """
    del options
    landmarks, matrix = shaped(arrays, (1, None, None), (1, 4, 4))
    if landmarks.shape[2] not in (2, 3):
        raise ValueError(f"landmarks have {landmarks.shape[2]} coordinates, not 2 or 3")
    result = landmarks.copy()
    x, y = landmarks[..., 0], landmarks[..., 1]
    for n in range(2):
        result[..., n] = matrix[0, n, 0] * x + matrix[0, n, 1] * y + matrix[0, n, 3]
    return [result]


def _rotation(angle: np.float32) -> Array:
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[cosine, -sine], [sine, cosine]], np.float32)
