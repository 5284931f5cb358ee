"""Open dimensions that get their sizes from the arrays given as inputs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from rkcosim.cli.main import app
from rkcosim.measure.models.open_shapes import shapes_of_arrays


@pytest.fixture
def model(tmp_path: Path) -> Path:
    rng = np.random.default_rng(5)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", count, "h", "w"))
        for name, count in (("x", 3), ("y", 4))
    )
    weights = numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "k")
    node = helper.make_node("Conv", ["x", "k"], ["y"], "conv", pads=[1] * 4)
    graph = helper.make_graph([node], "g", [x], [y], [weights])
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_samples_of_any_size_are_compared_with_onnxruntime(model: Path, tmp_path: Path):
    """Two samples of 10 x 14, which is no usual size, without --shape."""
    given = tmp_path / "x.npy"
    np.save(given, np.random.default_rng(6).normal(size=(2, 3, 10, 14)).astype(np.float32))
    done = CliRunner().invoke(app, ["compare", str(model), "--input", str(given)])
    assert done.exit_code == 0 and "2 inferences" in done.output, done.output
    assert f"{2 * 4 * 10 * 14:,} elements differ" in done.output


def test_what_gives_no_sizes(model: Path, tmp_path: Path):
    """Other channels, other ranks, damaged arrays and other files: the commands say what is wrong."""
    files = [tmp_path / name for name in ("a.npy", "b.npy", "c.npy", "d.npz")]
    np.save(files[0], np.zeros((1, 5, 8, 8), np.float32))
    np.save(files[1], np.zeros((3, 8, 8), np.float32))
    files[2].write_bytes(b"no array")
    np.savez(files[3], other=np.zeros((1, 3, 8, 8), np.float32))
    assert [shapes_of_arrays(model, [file]) for file in files] == [{}] * 4
    np.save(files[0], np.zeros((7, 3, 8, 9), np.float32))
    assert shapes_of_arrays(model, files[:1]) == {"x": (1, 3, 8, 9)}
    assert shapes_of_arrays(model, files[:2]) == {}
