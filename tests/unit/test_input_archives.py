"""An .npz with arrays named as the inputs means the same to every command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rkcosim.compiler.model import TensorInfo
from rkcosim.compiler.quantization import ModelInput
from rkcosim.measure.models.calibration import Reading, load_samples
from rkcosim.measure.models.input_files import InputError, load_batch
from rkcosim.measure.models.open_shapes import shapes_of_arrays

SHAPES = {"image": (1, 3, 4, 5), "state": (1, 7)}
INFOS = [TensorInfo(name, shape, np.dtype(np.float32), 1.0, 0) for name, shape in SHAPES.items()]


def saved(folder: Path, count: int = 3, **more: np.ndarray) -> Path:
    rng = np.random.default_rng(3)
    drawn = {name: rng.normal(size=(count, *shape[1:])) for name, shape in SHAPES.items()}
    path = folder / "inputs.npz"
    np.savez(path, **drawn | more)
    return path


def test_a_run_reads_what_quantisation_reads(tmp_path: Path) -> None:
    path = saved(tmp_path, labels=np.array([4, 1, 2]))
    batch = load_batch([path], INFOS, None)
    samples = load_samples(
        path, [ModelInput(name, shape, np.dtype(np.float32)) for name, shape in SHAPES.items()], Reading()
    )
    assert batch.labels == [4, 1, 2] and len(batch.items) == len(samples) == 3
    for values, sample in zip(batch.items, samples, strict=True):
        for info, value in zip(INFOS, values, strict=True):
            assert value.shape == info.shape and np.array_equal(value, sample[info.name])
    assert len(load_batch([path], INFOS, 2).items) == 2


def test_arrays_of_different_lengths_and_missing_ones_are_named(tmp_path: Path) -> None:
    path = saved(tmp_path, state=np.zeros((2, 7)))
    with pytest.raises(InputError, match="different numbers of samples: image 3, state 2"):
        load_batch([path], INFOS, None)
    other = tmp_path / "other.npz"
    np.savez(other, images=np.zeros((3, 3, 4, 5)))
    with pytest.raises(InputError, match=r"has no array for the input 'image' \(it has: images\)"):
        load_batch([other], INFOS, None)
    assert len(load_batch([other], INFOS[:1], None).items) == 3


def test_named_arrays_give_open_dimensions_their_sizes(tmp_path: Path) -> None:
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, "h", "w"])
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, 7])
    made = [helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, None) for n in range(2)]
    nodes = [helper.make_node("Relu", ["image"], ["y0"]), helper.make_node("Relu", ["state"], ["y1"])]
    model = tmp_path / "open.onnx"
    onnx.save(helper.make_model(helper.make_graph(nodes, "open", [image, state], made)), model)
    assert shapes_of_arrays(model, [saved(tmp_path)]) == {"image": (1, 3, 4, 5)}
