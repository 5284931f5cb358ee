"""ONNX models with tensors in other files: read as onnxruntime reads them, in the model's folder only."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rkcosim
from rkcosim.base.files import GivenFileError, read_model


def _saved(folder: Path, *, one_file: bool = True) -> Path:
    rng = np.random.default_rng(0)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
            helper.make_node("Add", ["a", "b"], ["y"], name="add"),
        ],
        "apart",
        [value("x", TensorProto.FLOAT, [1, 16, 4, 4])],
        [value("y", TensorProto.FLOAT, [1, 32, 4, 4])],
        [
            numpy_helper.from_array(rng.normal(size=(32, 16, 1, 1)).astype(np.float32), "w"),
            numpy_helper.from_array(rng.normal(size=(1, 32, 1, 1)).astype(np.float32), "b"),
        ],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path = folder / "model.onnx"
    onnx.save_model(
        proto, path, save_as_external_data=True, all_tensors_to_one_file=one_file,
        location="weights.bin" if one_file else None, size_threshold=0,
    )  # fmt: skip
    return path


def _changed(path: Path, **entries: str) -> None:
    proto = onnx.load_model(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = entries.get(entry.key, entry.value)
    path.write_bytes(proto.SerializeToString())


@pytest.mark.parametrize("one_file", [True, False])
def test_a_model_in_several_files_is_read(tmp_path: Path, one_file: bool):
    import onnxruntime

    path = _saved(tmp_path, one_file=one_file)
    assert len(list(tmp_path.iterdir())) == (2 if one_file else 3)
    x = np.random.default_rng(1).normal(size=(1, 16, 4, 4)).astype(np.float32)
    right = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    with rkcosim.load(path, engine="golden") as model:
        np.testing.assert_allclose(model(x), right, atol=0.02)
        assert model.mac_share == 1 and model.compare(x)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"location": "../weights.bin"}, "not a file inside of the model's folder"),
        ({"location": "/etc/hostname"}, "not a file inside of the model's folder"),
        ({"location": "C:\\weights.bin"}, "not a file inside of the model's folder"),
        ({"location": "missing.bin"}, r"missing\.bin: No such file"),
        ({"location": "."}, "'w'"),
        ({"length": "99999999"}, "99,999,999 bytes from 0 are not in 'weights.bin'"),
        ({"offset": "-4"}, "must not be negative"),
        ({"length": "many"}, "must be whole numbers"),
    ],
)
def test_a_wrong_place_is_named(tmp_path: Path, entries: dict[str, str], text: str):
    path = _saved(tmp_path)
    _changed(path, **entries)
    with pytest.raises(GivenFileError, match=text) as found:
        read_model(path)
    assert "model.onnx: tensor 'w'" in str(found.value)


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path):
    inside = tmp_path / "inside"
    inside.mkdir()
    path = _saved(inside)
    (inside / "weights.bin").rename(tmp_path / "weights.bin")
    os.symlink(tmp_path / "weights.bin", inside / "weights.bin")
    with pytest.raises(GivenFileError, match="leads out of the model's folder"):
        read_model(path)


def test_bytes_without_a_folder_are_refused(tmp_path: Path):
    with pytest.raises(rkcosim.ModelError, match="tensor 'w' is in another file"):
        rkcosim.load(_saved(tmp_path).read_bytes(), engine="golden")
