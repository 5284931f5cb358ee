"""Coral's decoder of poses: key points of several persons from the maps of PoseNet and BodyPix.

The definition is google-coral/libcoral, commit 6589d0b, coral/pose_estimation/posenet_decoder.cc and
posenet_decoder_op.cc.  (Until commit 9824265 the edge from the left eye to the nose read wrong offsets.)
Entries of the outputs behind the last pose are 0 here; the definition leaves them as they are.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.custom_operators.options import number, shaped

Array = npt.NDArray[Any]

KEY_POINTS = 17
_TREE = (
    *((0, 1), (1, 3), (0, 2), (2, 4), (0, 5), (5, 7), (7, 9), (5, 11), (11, 13), (13, 15)),
    *((0, 6), (6, 8), (8, 10), (6, 12), (12, 14), (14, 16)),
)
"""Parents and children among the key points: nose, eyes, ears, shoulders, elbows, wrists, hips, knees and
ankles, the left one of each pair first."""
EDGES = (*_TREE, *((child, parent) for parent, child in _TREE))

REFINEMENTS, MASK_REFINEMENTS = 5, 2
"""Steps by which a position follows the short offsets, and by which an embedding follows the long ones."""

MASK = 33
"""Height and width of a mask and of the long offsets; the definition has no other size."""

MOST_POSES = 1000


@dataclass(frozen=True)
class _Maps:
    """The three maps, in blocks of `stride` pixels: scores (h, w, 17) in log-odds, offsets (h, w, 34, 64)."""

    scores: Array
    near: Array
    middle: Array

    @property
    def limits(self) -> Array:
        """The largest coordinates (y, x)."""
        return np.array(self.scores.shape[:2], np.float32) - np.float32(1)


@dataclass
class _Pose:
    """Positions (17, 2) in blocks as (y, x), and scores (17,) of the key points."""

    points: Array
    scores: Array
    total: float = 0.0


def decode(options: Mapping[str, Any], arrays: Sequence[Array]) -> list[Array]:
    """Return the poses of an image.

    Parameters
    ----------
    options
        `max_detections`, `score_threshold`, `stride` in pixels, `nms_radius` in pixels.
    arrays
        Log-odds of key points (1, h, w, 17); their short offsets (1, h, w, 34) and the offsets between key
        points (1, h, w, 64), in pixels; for masks also the long offsets (1, 33, 33, 34).

    Returns
    -------
    Key points (1, n, 17, 2) in pixels as (y, x), their scores (1, n, 17), the scores of the poses (1, n), the
    number of poses (1,), and for masks (1, n, 33, 33), with n = `max_detections`.

    Raises
    ------
    ValueError
        For other options and shapes.
    """
    kinds: list[tuple[int | None, ...]] = [(1, None, None, depth) for depth in (17, 34, 64)]
    kinds.append((1, MASK, MASK, 34))
    heat, near, middle, *longs = shaped(arrays, *kinds[: max(len(arrays), 3)])
    most = int(number(options, "max_detections", 1, MOST_POSES))
    stride = np.float32(number(options, "stride", 1, 4096))
    threshold = number(options, "score_threshold", 0, 1)
    radius = np.float32(number(options, "nms_radius", 0, 1e6)) / stride
    if near.shape[1:3] != heat.shape[1:3] or middle.shape[1:3] != heat.shape[1:3]:
        raise ValueError("the maps have different sizes")
    maps = _Maps(heat[0], near[0] / stride, middle[0] / stride)
    found = _poses(maps, most, threshold, radius * radius)
    points, scores = (
        np.zeros((1, most, KEY_POINTS, 2), np.float32),
        np.zeros((1, most, KEY_POINTS), np.float32),
    )
    totals = np.zeros((1, most), np.float32)
    for place, pose in enumerate(found):
        points[0, place], scores[0, place], totals[0, place] = pose.points * stride, pose.scores, pose.total
    results = [points, scores, totals, np.array([len(found)], np.float32)]
    if longs:
        results.append(_masks(longs[0][0] / stride, points[0, : len(found)], stride, most))
    return results


def _poses(maps: _Maps, most: int, threshold: float, radius: np.float32) -> list[_Pose]:
    """Return the poses with the largest scores first; `radius` is squared, in blocks."""
    found: list[_Pose] = []
    for _, point, key in _roots(maps, threshold):
        if len(found) == most:
            break
        if any(_squared(point, pose.points[key]) <= radius for pose in found):
            continue
        pose = _follow(maps, point, key)
        pose.scores = (1 / (1 + np.exp(-pose.scores))).astype(np.float32)
        pose.total = float(np.sort(pose.scores)[::-1].sum(dtype=np.float32) / KEY_POINTS)
        if pose.total >= threshold:
            found.append(pose)
    ranked = sorted(found, key=lambda pose: -pose.total)
    for place, pose in enumerate(ranked):  # key points near those of better poses do not count
        hidden = np.zeros(KEY_POINTS, bool)
        for better in ranked[:place]:
            hidden |= _squared(pose.points, better.points) <= radius
        pose.total = float(pose.scores[~hidden].sum(dtype=np.float32) / KEY_POINTS)
    ranked = sorted(found, key=lambda pose: -pose.total)
    return [pose for pose in ranked if pose.total >= threshold]


def _roots(maps: _Maps, threshold: float) -> Iterator[tuple[float, Array, int]]:
    """Yield (score, position, key point) of the local maxima of the scores, the largest score first."""
    ratio = 1 / (threshold + 1e-6) - 1
    lowest = -math.log(ratio) if ratio > 0 else math.inf
    scores = maps.scores
    padded = np.pad(scores, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    height, width = scores.shape[:2]
    best = np.max([padded[y : y + height, x : x + width] for y in range(3) for x in range(3)], axis=0)
    places = np.argwhere((scores >= np.float32(lowest)) & (scores >= best))
    for at in np.argsort(-scores[tuple(places.T)], kind="stable"):
        y, x, key = places[at]
        offset = maps.near[y, x, [key, KEY_POINTS + key]]
        point = np.clip(np.array([y, x], np.float32) + offset, 0, maps.limits).astype(np.float32)
        yield float(scores[y, x, key]), point, int(key)


def _follow(maps: _Maps, point: Array, key: int) -> _Pose:
    """Return the pose of one key point: others are found along the edges, those with large scores first."""
    pose = _Pose(np.full((KEY_POINTS, 2), -1, np.float32), np.full(KEY_POINTS, -1e5, np.float32))
    known: set[int] = set()
    order = count()
    waiting = [(-float(_sample(maps.scores, point, [key])[0]), next(order), key, point)]
    while waiting:
        score, _, key, point = heapq.heappop(waiting)
        if key in known:
            continue
        known.add(key)
        pose.points[key], pose.scores[key] = point, -score
        for edge, (parent, child) in enumerate(EDGES):
            if parent != key or child in known:
                continue
            target = _displaced(maps, point, edge, child)
            heapq.heappush(
                waiting, (-float(_sample(maps.scores, target, [child])[0]), next(order), child, target)
            )
    return pose


def _displaced(maps: _Maps, point: Array, edge: int, child: int) -> Array:
    """Return the position of a key point at the other end of an edge."""
    # The map has Y and X of the edges away from the nose, then Y and X of those towards it.
    place = edge + len(_TREE) if edge >= len(_TREE) else edge
    target = _moved(maps.middle, point, [place, len(_TREE) + place], maps.limits)
    for _ in range(REFINEMENTS):
        target = _moved(maps.near, target, [child, KEY_POINTS + child], maps.limits)
    return target


def _moved(offsets: Array, point: Array, channels: list[int], limits: Array) -> Array:
    moved: Array = np.clip(point + _sample(offsets, point, channels), 0, limits).astype(np.float32)
    return moved


def _sample(data: Array, points: Array, channels: Sequence[int]) -> Array:
    """Return bilinear samples (..., n) of n channels of a map (h, w, c) at positions (..., 2) inside it."""
    low, high = np.floor(points).astype(int), np.ceil(points).astype(int)
    down, across = np.moveaxis((points - low).astype(np.float32), -1, 0)[..., None]
    one = np.float32(1)
    part = data[:, :, channels]
    upper = (one - across) * part[low[..., 0], low[..., 1]] + across * part[low[..., 0], high[..., 1]]
    lower = (one - across) * part[high[..., 0], low[..., 1]] + across * part[high[..., 0], high[..., 1]]
    result: Array = ((one - down) * upper + down * lower).astype(np.float32)
    return result


def _squared(one: Array, other: Array) -> Any:
    return ((one - other) ** 2).sum(axis=-1, dtype=np.float32)


def _masks(longs: Array, poses: Array, stride: np.float32, most: int) -> Array:
    """Return masks (1, `most`, 33, 33): each position belongs to the pose whose key points it points at."""
    size = longs.shape[0]
    masks = np.zeros((1, most, size, size), np.float32)
    if not len(poses):
        return masks
    limits = np.full(2, size - 1, np.float32)
    starts = np.moveaxis(np.mgrid[:size, :size], 0, -1).astype(np.float32)
    apart = np.zeros((size, size, len(poses)), np.float32)
    for key in range(KEY_POINTS):
        ends = starts
        for _ in range(MASK_REFINEMENTS + 1):
            ends = _moved(longs, ends, [key, KEY_POINTS + key], limits)
        apart += _squared((ends * stride)[:, :, None], poses[:, key])
    nearest = np.argmin(apart, axis=-1)
    masks[0, nearest, starts[..., 0].astype(int), starts[..., 1].astype(int)] = 1
    return masks
