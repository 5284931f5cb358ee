"""Custom operators of public TFLite files: PoseNet's decoder and MediaPipe's regions of a face."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

from flatbuffers import flexbuffers

from rkcosim.apis.custom_operators import mediapipe, posenet
from rkcosim.compiler import compile_model
from rkcosim.compiler.custom_operators import CustomOperators, custom_program, read_options
from rkcosim.compiler.graph import ModelError
from rkcosim.measure.models.run import run_model
from tests.makers.tflite_models import Tf

POSE = {"max_detections": 4, "score_threshold": 0.2, "stride": 16, "nms_radius": 10.0}
REGION = {
    "left_rotation_idx": 1,
    "right_rotation_idx": 4,
    "target_rotation_radians": 0.3,
    "subset_idxs": [0, 1, 4, 6],
    "scale_x": 1.5,
    "scale_y": 2.0,
    "output_width": 16,
    "output_height": 12,
}


def persons(places: list[np.ndarray], height: int = 33, width: int = 33) -> list[np.ndarray]:
    """Return maps of persons, whose key points are given in blocks as (17, 2), as the network would."""
    scores = np.full((1, height, width, 17), -8, np.float32)
    near = np.zeros((1, height, width, 34), np.float32)
    middle = np.zeros((1, height, width, 64), np.float32)
    longs = np.zeros((1, height, width, 34), np.float32)
    y, x = np.mgrid[:height, :width]
    centres = np.array([points.mean(axis=0) for points in places])
    owner = np.argmin([(y - cy) ** 2 + (x - cx) ** 2 for cy, cx in centres], axis=0)
    for number, points in enumerate(places):
        here = owner == number
        for key, (py, px) in enumerate(points):
            block = round(py), round(px)
            scores[0, *block, key] = 4 - number
            near[0, *block, [key, 17 + key]] = (py - block[0]) * 16, (px - block[1]) * 16
            longs[0, here, key], longs[0, here, 17 + key] = (py - y[here]) * 16, (px - x[here]) * 16
        for edge, (parent, child) in enumerate(posenet.EDGES):
            place = edge % 16 + 32 * (edge >= 16)
            way = (points[child] - points[parent]) * 16
            area = (abs(y - points[parent][0]) <= 1) & (abs(x - points[parent][1]) <= 1)
            middle[0, area, place], middle[0, area, place + 16] = way
    return [scores, near, middle, longs]


def figure(top: float, left: float, seed: int) -> np.ndarray:
    """Return key points on a grid of whole blocks, at least two apart."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(20)[:17]
    return np.array([[top + 2 * (cell // 4), left + 2 * (cell % 4)] for cell in cells], np.float32)


def test_poses_of_two_persons_are_found() -> None:
    people = [figure(2, 3, 1), figure(16, 20, 2)]
    points, scores, totals, number, masks = posenet.decode(POSE, persons(people))
    assert number.tolist() == [2] and points.shape == (1, 4, 17, 2) and masks.shape == (1, 4, 33, 33)
    for place, expected in enumerate(people):
        np.testing.assert_allclose(points[0, place], expected * 16, atol=1e-3)
        np.testing.assert_allclose(scores[0, place], 1 / (1 + np.exp(place - 4.0)), rtol=1e-5)
        assert totals[0, place] == pytest.approx(1 / (1 + np.exp(place - 4.0)), rel=1e-5)
    assert not points[0, 2:].any() and not totals[0, 2:].any()
    assert (masks[0, :2].sum(axis=0) == 1).all(), "each position belongs to one person"
    y, x = np.mgrid[:33, :33]
    apart = [(y - p[:, 0].mean()) ** 2 + (x - p[:, 1].mean()) ** 2 for p in people]
    assert (masks[0, 0] == (apart[0] <= apart[1])).all()


def test_limits_of_poses() -> None:
    people = [figure(2, 3, 1), figure(16, 20, 2)]
    maps = persons(people)[:3]
    assert posenet.decode(POSE | {"max_detections": 1}, maps)[3].tolist() == [1]
    assert posenet.decode(POSE | {"score_threshold": 0.97}, maps)[3].tolist() == [1]
    assert posenet.decode(POSE | {"score_threshold": 1}, maps)[3].tolist() == [0]
    assert posenet.decode(POSE | {"nms_radius": 1e5}, maps)[3].tolist() == [1]
    assert len(posenet.decode(POSE, maps)) == 4, "no masks without long offsets"
    for wrong in ({"stride": 0}, {"max_detections": "x"}, {"nms_radius": -1}):
        with pytest.raises(ValueError, match=f"option '{next(iter(wrong))}'"):
            posenet.decode(POSE | wrong, maps)
    with pytest.raises(ValueError, match="input 1 has the shape"):
        posenet.decode(POSE, [maps[0], maps[2], maps[1]])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_any_maps_give_poses_inside_the_image(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [(1, 33, 33, depth) for depth in (17, 34, 64, 34)]
    maps = [rng.normal(size=shape).astype(np.float32) * 30 for shape in shapes]
    maps[0] /= 15
    points, scores, totals, number, masks = posenet.decode(POSE, maps)
    found = int(number[0])
    assert (points >= 0).all() and (points <= 32 * 16).all()
    assert (np.diff(totals[0, :found]) <= 0).all() and (totals[0, :found] >= np.float32(0.2)).all()
    assert ((scores >= 0) & (scores <= 1)).all()
    assert masks[0].sum() == (33 * 33 if found else 0)


def test_the_matrix_of_a_region() -> None:
    rng = np.random.default_rng(3)
    landmarks = rng.uniform(5, 40, (1, 8, 3)).astype(np.float32)
    (matrix,) = mediapipe.landmarks_to_transform_matrix(REGION, [landmarks])
    points = landmarks[0, :, :2].astype(np.float64)
    turn = 0.3 - np.arctan2(*(points[4] - points[1])[::-1])

    def rotation(angle: float) -> np.ndarray:
        made = np.eye(4)
        made[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        return made

    def shift(x: float, y: float) -> np.ndarray:
        made = np.eye(4)
        made[:2, 3] = x, y
        return made

    turned = points[[0, 1, 4, 6]] @ rotation(turn)[:2, :2].T
    low, high = turned.min(axis=0), turned.max(axis=0)
    centre = rotation(-turn)[:2, :2] @ ((low + high) / 2)
    size = (high - low) * [1.5, 2.0] / [16, 12]
    expected = shift(*centre) @ rotation(-turn) @ np.diag([*size, 1, 1]) @ shift(-8, -6)
    np.testing.assert_allclose(matrix[0], expected, rtol=1e-4, atol=1e-4)
    for wrong in ({"output_width": 0}, {"left_rotation_idx": 8}, {"subset_idxs": [0, 9]}, {"scale_x": 0}):
        with pytest.raises(ValueError, match=f"option '{next(iter(wrong))}'"):
            mediapipe.landmarks_to_transform_matrix(REGION | wrong, [landmarks])


def test_bilinear_samples() -> None:
    rng = np.random.default_rng(4)
    data = rng.normal(size=(1, 6, 7, 3)).astype(np.float32)
    eye = np.eye(4, dtype=np.float32)[None]
    options = {"output_height": 6, "output_width": 7}
    np.testing.assert_array_equal(mediapipe.transform_tensor_bilinear(options, [data, eye])[0], data)
    moved = eye.copy()
    moved[0, :2, 3] = 2, -1  # each position reads two columns to the right, one row above
    result = mediapipe.transform_tensor_bilinear(options, [data, moved])[0]
    np.testing.assert_array_equal(result[0, 1:, :5], data[0, :5, 2:])
    assert not result[0, 0].any() and not result[0, :, 5:].any()
    half = eye.copy()
    half[0, 0, 0] = half[0, 1, 1] = 0.5  # twice as large: pixels have their centres at half numbers
    result = mediapipe.transform_tensor_bilinear({"output_height": 12, "output_width": 14}, [data, half])[0]
    a, b = data[0, 2, 3], data[0, 2, 4]
    np.testing.assert_allclose(
        (result[0, 4, 7] + result[0, 5, 7]) / 2,
        0.75 * a
        + 0.25 * b
        + 0.125 * 0.75 * (data[0, 1, 3] + data[0, 3, 3] - 2 * a)
        + 0.125 * 0.25 * (data[0, 1, 4] + data[0, 3, 4] - 2 * b),
        rtol=1e-4,
        atol=1e-5,
    )


def test_landmarks_are_transformed() -> None:
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(1, 4, 4)).astype(np.float32)
    for depth in (2, 3):
        landmarks = rng.normal(size=(1, 9, depth)).astype(np.float32)
        (result,) = mediapipe.transform_landmarks({}, [landmarks, matrix])
        flat = np.concatenate([landmarks[0, :, :2], np.zeros((9, 1)), np.ones((9, 1))], axis=1)
        np.testing.assert_allclose(result[0, :, :2], (flat @ matrix[0].T)[:, :2], rtol=1e-4, atol=1e-5)
        assert depth == 2 or (result[..., 2] == landmarks[..., 2]).all()
    with pytest.raises(ValueError, match="4 coordinates"):
        mediapipe.transform_landmarks({}, [np.zeros((1, 9, 4)), matrix])


def pose_model() -> bytes:
    t = Tf()
    x = t.input((1, 9, 11, 8))
    maps = [t.conv(x, depth, 1) for depth in (17, 34, 64)]
    outputs = [t.tensor((), None, None, dtype="float32") for _ in range(4)]
    options = flexbuffers.Dumps(POSE)
    t.nodes.append(("CUSTOM PosenetDecoderOp", maps, outputs, {"custom": bytes(options)}))
    return t.bytes(*outputs)


def test_a_model_with_the_decoder_runs(tmp_path: Path) -> None:
    file = tmp_path / "pose.tflite"
    file.write_bytes(pose_model())
    model = compile_model(file.read_bytes())
    assert [list(info.shape) for info in model.outputs] == [[1, 2, 4, 17], [1, 4, 17], [1, 4], [1]]
    run = run_model(file, engine="golden", check=True)
    assert run.verdict["match"] is True
    assert [operator.kind for operator in run.host.operators] == ["CUSTOM PosenetDecoderOp"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_options_are_read_or_refused(data: st.DataObject) -> None:
    made = bytearray(flexbuffers.Dumps(REGION))
    for _ in range(data.draw(st.integers(1, 4))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    try:
        options = read_options(bytes(made))
    except ValueError:
        return
    assert all(value is None or isinstance(value, bool | int | float | list) for value in options.values())


def test_damaged_programs_and_options_are_refused() -> None:
    for data in (b"\1\2\3", bytes(range(1, 40)), b"\xff" * 9):
        with pytest.raises(ValueError, match="damaged"):
            read_options(data)
    with pytest.raises(ValueError, match="not a map"):
        read_options(bytes(flexbuffers.Dumps([1, 2])))
    assert read_options(b"") == {}
    mixed = {"a": 1, "b": 2.5, "c": [3, 4], "d": {"e": 1}, "f": "text", "g": True}
    assert read_options(bytes(flexbuffers.Dumps(mixed))) == mixed | {"d": None, "f": None}
    with pytest.raises(ModelError, match="damaged program"):
        CustomOperators().load(b"{}", (), ())
    data = custom_program([("TransformLandmarks", b"", ["a", "m"], ["y"])], {"a": (0.5, 3)})
    run = CustomOperators().load(data, ["a", "m"], ["y"])
    codes = np.array([[[3, 5], [7, 3]]], np.uint8)
    (result,) = run([codes, np.eye(4, dtype=np.float32)[None]])
    np.testing.assert_array_equal(result, [[[0, 1], [2, 0]]])
    with pytest.raises(ModelError, match="TransformLandmarks: input 1 has the shape"):
        run([codes, np.eye(4, dtype=np.float32)])
