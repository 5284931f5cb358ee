"""What public clients use of rknnlite beyond its class RKNNLite, and models of several shapes.

The uses are those of immich-app/immich, machine-learning/immich_ml/sessions/rknn (its session of 2026), of
blakeblackshear/frigate, frigate/detectors/detection_runners.py, and of programs that set the inputs of one
frame while they read the outputs of another.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from packaging.specifiers import SpecifierSet
from packaging.version import Version

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime as ort

import rkcosim.rknn_api as rk
from rkcosim.devices.rknn_library import environment, lay_out, rknn_library
from rkcosim.driver import Driver
from rkcosim.engines import BuildError
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.server import RknnServer
from tests import seeds
from tests.makers.archives import arrays_of
from tests.makers.rknn_models import float_model

Dims = Sequence[int | str]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library and the module rknnlite."""
    folder = tmp_path_factory.mktemp("prefix")
    try:
        lay_out(folder, rknn_library(), copy=True)
    except BuildError as error:
        pytest.skip(str(error))
    return folder


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(Driver(GoldenNpu(3), shared=True))
    yield
    rk.use_device(None)  # raises if a context is left


def run(prefix: Path, folder: Path, script: str, *words: object) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    with RknnServer(folder / "socket") as server:
        done = subprocess.run(
            [sys.executable, "script.py", *map(str, words)],
            cwd=folder,
            env=environment(prefix, server.path),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


INNER = """
import ctypes
import logging
import sys

import numpy as np
from rknnlite.api import RKNNLite, rknn_runtime
from rknnlite.api.rknn_runtime import RKNNRuntime

lite = RKNNLite()
lite.rknn_log.logger.setLevel(logging.CRITICAL)
assert lite.load_rknn("nothing.rknn") == -1  # not told
lite.rknn_log.logger.setLevel(logging.ERROR)
assert lite.rknn_runtime is None and lite.load_rknn(sys.argv[1]) == 0
assert lite.init_runtime(core_mask=RKNNLite.NPU_CORE_AUTO) == 0
runtime = lite.rknn_runtime
assert isinstance(runtime, RKNNRuntime) and isinstance(runtime.context, int) and not runtime.is_dynamic_shape
assert runtime.get_in_out_num() == (1, 1)
given, made = runtime.get_tensor_attr(0), runtime.get_tensor_attr(0, is_output=True)
assert (given.name.decode(), given.dims[: given.n_dims]) == ("x", [1, 6, 10, 3])
assert (made.name.decode(), made.dims[: made.n_dims], made.type) == ("y", [1, 20, 6, 10], 1)
assert given.stride_with_stride == given.size_with_stride

# the outputs in the NPU's precision, by a handle whose functions know the types of their arguments
x = np.load("x.npy")
runtime.set_inputs([x], None, "nchw")
assert runtime.run(False)[0] == 0
count = runtime.get_in_out_num()[1]
buffers = (rknn_runtime.RKNNOutput * count)()
for index, buffer in enumerate(buffers):
    buffer.index = index
assert runtime.lib.rknn_outputs_get(runtime.context, count, buffers, None) == 0
data = ctypes.cast(buffers[0].buf, ctypes.POINTER(ctypes.c_char * buffers[0].size)).contents
np.save("half.npy", np.frombuffer(data, np.float16).reshape(1, 20, 6, 10).copy())
assert runtime.lib.rknn_outputs_release(runtime.context, count, buffers) == 0
text = ctypes.create_string_buffer(b"?" * 1023)
assert runtime.lib.rknn_query(runtime.context, 7, ctypes.byref(text), 1024) == 0 and text.value == b""

(whole,) = lite.inference(inputs=[x], data_format="nchw")
np.save("whole.npy", whole)
(again,) = runtime.get_outputs(False)
assert (again == whole).all()
*_, first = lite.inference([x], data_format=["nchw"], get_frame_id=True)
*_, second = lite.inference([x], data_format=["nchw"], get_frame_id=True)
assert second == first + 1

# another context on the same weights, opened through the handle
twin = ctypes.c_uint64()
context = ctypes.c_uint64(runtime.context)
assert runtime.lib.rknn_dup_context(ctypes.byref(context), ctypes.byref(twin)) == 0
other = RKNNLite()
other.rknn_runtime = RKNNRuntime(root_dir=lite.root_dir, target=None, device_id=None, async_mode=False)
other.rknn_runtime.context = int(twin.value)
(same,) = other.inference([x], data_format="nchw")
assert (same == whole).all()
other.release()

for wrong in ([], [x, x], [x[:, :, :4]], "x"):
    try:
        runtime.set_inputs(wrong)
    except Exception as error:
        print(error)
    else:
        raise AssertionError(wrong)
try:
    runtime.get_tensor_attr(1)
except Exception as error:
    print(error)
lite.release()
assert lite.rknn_runtime is None
"""


def test_the_toolkits_are_installed_packages(prefix: Path) -> None:
    """Ultralytics asks for both by name and version, and installs the vendor's if they are missing.

    Its conditions: rknn-toolkit-lite2 (nn/backends/rknn.py), and rknn-toolkit2>=2.3.2,<2.5
    (utils/export/rknn.py), of the package ultralytics 8.4.190.
    """
    found = {one.name: one.version for one in distributions(path=[str(prefix / "python")])}
    assert set(found) == {"rknn-toolkit-lite2", "rknn-toolkit2"}
    condition = SpecifierSet(">=2.3.2,<2.5")
    assert all(Version(number) in condition for number in found.values()), found


def test_inner_objects(prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = float_model(3, 20, (6, 10))
    (tmp_path / "model.onnx").write_bytes(model)
    x = np.random.default_rng(seeds.number()).standard_normal((1, 3, 6, 10)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    done = run(prefix, tmp_path, INNER, "model.onnx")
    (wanted,) = ort.InferenceSession(model).run(None, {"x": x})
    half, whole = np.load(tmp_path / "half.npy"), np.load(tmp_path / "whole.npy")
    np.testing.assert_allclose(whole, wanted, rtol=2e-3, atol=2e-2)
    assert np.array_equal(half.astype(np.float32), whole)
    assert done.stdout.splitlines() == [
        *["inputs must be a list of 1 arrays"] * 2,
        "input 0 has shape [1, 3, 4, 10], the model takes [1, 6, 10, 3]",
        "inputs must be a list of 1 arrays",
        "Query tensor attribute of input node(s) failed, error code: RKNN_ERR_PARAM_INVALID",
    ]
    assert done.stderr == ""
    (line,) = (
        capsys.readouterr().err.splitlines()
    )  # the question whether there are several shapes is no error
    assert "rknn_query: index 1, but the model has 1 inputs" in line


def several(
    nodes: list[onnx.NodeProto], inputs: dict[str, Dims], sets: object, **tensors: np.ndarray
) -> bytes:
    """Return a model with free dimensions, whose metadata lists the shapes."""
    graph = helper.make_graph(
        nodes,
        "several",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(next(iter(inputs.values()))))],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    helper.set_model_props(made, {"dynamic_input": json.dumps(sets)})
    return made.SerializeToString()


def maps() -> bytes:
    """Return a network on pictures of free height and width."""
    rng = np.random.default_rng(seeds.number())
    first, second = (
        rng.standard_normal(shape).astype(np.float32) / 4 for shape in ((8, 3, 3, 3), (5, 8, 3, 3))
    )
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "l"], ["y"], pads=[1] * 4),
    ]
    sets = [[[1, 3, *size]] for size in ((16, 16), (32, 48), (24, 24))]
    return several(nodes, {"x": [1, 3, "h", "w"]}, sets, k=first, l=second)


def rows() -> bytes:
    """Return a network on two inputs of different ranks, which have a free length in common."""
    rng = np.random.default_rng(seeds.number() + 1)
    weights = rng.standard_normal((8, 6)).astype(np.float32) / 3
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "bias"], ["y"]),
    ]
    sets = [[[1, n, 8], [n, 6]] for n in (4, 7)]
    return several(nodes, {"x": [1, "n", 8], "bias": ["n", 6]}, sets, w=weights)


SHAPES = """
import sys

import numpy as np
from rknnlite.api import RKNNLite

lite = RKNNLite()
assert lite.load_rknn(sys.argv[1]) == 0 and lite.init_runtime() == 0
assert lite.rknn_runtime.is_dynamic_shape
given = np.load("given.npz")
count = lite.rknn_runtime.get_in_out_num()[0]
made = {}
for number in range(len(given.files) // count):
    inputs = [given[f"{number}.{place}"] for place in range(count)]
    outputs = lite.inference(inputs, data_format=sys.argv[2])
    if outputs is not None:
        made[str(number)] = outputs[0]
np.savez("made.npz", **made)
"""


@pytest.mark.parametrize("order", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    ("model", "shapes", "refused"),
    [
        (
            maps(),
            [[(1, 3, 16, 16)], [(1, 3, 32, 48)], [(1, 3, 24, 24)], [(1, 3, 16, 16)], [(1, 3, 8, 8)]],
            [4],
        ),
        (rows(), [[(1, 7, 8), (7, 6)], [(1, 4, 8), (4, 6)], [(1, 4, 8), (7, 6)], [(1, 7, 8), (7, 6)]], [2]),
    ],
    ids=["maps", "rows"],
)
def test_the_inputs_select_the_shape(
    model: bytes,
    shapes: list[list[tuple[int, ...]]],
    refused: list[int],
    order: str,
    prefix: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    (tmp_path / "model.onnx").write_bytes(model)
    rng = np.random.default_rng(seeds.number())
    frames = [[rng.standard_normal(shape).astype(np.float32) for shape in frame] for frame in shapes]
    turned = [
        [x.transpose(0, 2, 3, 1) if x.ndim == 4 and order == "nhwc" else x for x in frame] for frame in frames
    ]
    arrays = {f"{n}.{place}": x for n, frame in enumerate(turned) for place, x in enumerate(frame)}
    np.savez(tmp_path / "given.npz", **arrays)
    done = run(prefix, tmp_path, SHAPES, "model.onnx", order)
    made = arrays_of(tmp_path / "made.npz")
    session = ort.InferenceSession(model)
    names = [item.name for item in session.get_inputs()]
    assert set(list(made)) == {str(n) for n in range(len(frames)) if n not in refused}
    for number in map(int, list(made)):
        (wanted,) = session.run(None, dict(zip(names, frames[number], strict=True)))
        assert made[str(number)].shape == wanted.shape
        np.testing.assert_allclose(made[str(number)], wanted, rtol=4e-3, atol=1e-2)
    said = capsys.readouterr().err
    assert done.stderr.count("Set input shape failed. error code: RKNN_ERR_FAIL") == len(refused)
    assert "rknn_set_input_shapes error, input name = x supported input shapes are as follows:" in said
    if model == maps():
        assert " shape = [1,32,48,3], layout = NHWC" in said and "dims = [1, 8, 8, 3], fmt = NHWC" in said
    else:
        assert "each shape is in the list, but not in one set with the others" in said
        assert " shape = [4,6], layout = UNDEFINED" in said


EXACT = """
import sys
import numpy as np
from rknnlite.api import RKNNLite

for number in range(2):
    lite = RKNNLite()
    assert lite.load_rknn(f"{number}.onnx") == 0 and lite.init_runtime() == 0
    (found,) = lite.inference(inputs=[np.load(f"{number}.npy")])
    np.save(f"{number}.out.npy", found)
    lite.release()
"""


def test_large_integers_and_sizes_that_depend_on_data(prefix: Path, tmp_path: Path) -> None:
    """Integers beyond those of float32 reach an int64 input; NonZero has the shape of onnxruntime."""
    base = numpy_helper.from_array(np.int64(1 << 40), "base")
    cases = [
        ([helper.make_node("Sub", ["x", "base"], ["y"])], (1 << 40) + np.arange(5, dtype=np.int64)),
        ([helper.make_node("NonZero", ["x"], ["y"])], np.array([[0, 3, 0], [1, 0, 2]], np.int64)),
    ]
    wanted = []
    for number, (nodes, x) in enumerate(cases):
        ends = [
            helper.make_tensor_value_info(n, TensorProto.INT64, s) for n, s in (("x", x.shape), ("y", None))
        ]
        graph = helper.make_graph(nodes, "exact", ends[:1], ends[1:], [base] * (number == 0))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), tmp_path / f"{number}.onnx")
        np.save(tmp_path / f"{number}.npy", x)
        wanted += ort.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    run(prefix, tmp_path, EXACT)
    for number, array in enumerate(wanted):
        found = np.load(tmp_path / f"{number}.out.npy")
        assert found.shape == array.shape and np.array_equal(found, array.astype(np.float32))
