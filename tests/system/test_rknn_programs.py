"""The programs of `examples/rknn` for `.rknn` files, on files of our writer and pictures that are drawn here.

With the public files that docs/rknn_files.md names they give what boards gave; see "Programs" on that page.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rkcosim.rknn_api as rk
from rkcosim.compiler import compile_model
from rkcosim.compiler.preprocessing import Preprocessing
from rkcosim.devices.native_library import c_compiler
from rkcosim.devices.rknn_library import environment, lay_out, rknn_library
from rkcosim.driver import Driver
from rkcosim.engines import BuildError
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.server import RknnServer
from rkcosim.rknn_file.writer import write_rknn
from tests.makers.archives import arrays_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "rknn"
DIGITS = ROOT / "examples" / "digits"
CORES = (1, 2, 3)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library, its header and the rknnlite module."""
    folder = tmp_path_factory.mktemp("prefix")
    try:
        lay_out(folder, rknn_library(), copy=True)
    except BuildError as error:
        pytest.skip(str(error))
    for name in ("plate", "classes"):
        command = [*c_compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{folder / 'include'}"]
        linked = [f"-L{folder / 'lib'}", "-lrknnrt"]
        subprocess.run([*command, "-o", folder / name, EXAMPLES / f"{name}.c", *linked], check=True)
    return folder


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(Driver(GoldenNpu(3), shared=True), quiet=True)
    yield
    rk.use_device(None)


def run(prefix: Path, *words: object) -> str:
    with RknnServer(prefix / "socket") as server:
        done = subprocess.run(
            [str(word) for word in words],
            env=environment(prefix, server.path),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def network(shape: tuple[int, ...], nodes: list[onnx.NodeProto], tensors: dict[str, np.ndarray]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made).SerializeToString()


PLATE, LETTERS = "Q7ZZK-42", "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789-"


@pytest.fixture(scope="module")
def plate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A network whose classes are patterns of 24 x 5 pixels, and a plate (24, 90, 3) drawn with them.

    The same character twice needs a blank between, as in the real network.
    """
    rng = np.random.default_rng(11)
    patterns = rng.choice([-1.0, 1.0], (len(LETTERS) + 1, 3, 24, 5)).astype(np.float32)
    patterns[-1] = -1.0  # blank: black
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", kernel_shape=[24, 5], strides=[24, 5]),
        helper.make_node("Reshape", ["c", "s"], ["y"], name="reshape"),
    ]
    count = len(patterns)
    data = network((1, 3, 24, 90), nodes, {"w": patterns / 360, "s": np.int64([1, count, 18])})
    folder = tmp_path_factory.mktemp("plate")
    before = [Preprocessing((127.5,) * 3, (127.5,) * 3)]
    for cores in CORES:
        path = folder / f"{cores}.rknn"
        path.write_bytes(write_rknn(compile_model(data, reuse=True, cores=cores), before))
    (folder / "letters.txt").write_text(" ".join(LETTERS))
    shown = np.full((18, 3, 24, 5), -1.0)
    for at, letter in zip((0, 2, 3, 5, 7, 9, 12, 17), PLATE, strict=True):
        shown[at] = patterns[LETTERS.index(letter)]
    shown[1] = shown[0]  # a character over two positions counts once
    pixels = np.rint(shown.transpose(2, 0, 3, 1).reshape(24, 90, 3) * 120 + 127.5)
    return folder, pixels.astype(np.uint8)


@pytest.mark.parametrize("cores", CORES)
def test_a_plate_is_read(plate: tuple[Path, np.ndarray], prefix: Path, cores: int):
    folder, pixels = plate
    pixels.tofile(folder / "plate.bytes")
    words = (folder / f"{cores}.rknn", folder / "letters.txt", cores, folder / "plate.bytes")
    text = run(prefix, prefix / "plate", *words)
    assert "input x: dims [1, 24, 90, 3], n_elems 6480" in text
    assert f"dims [1, {len(LETTERS) + 1}, 18]" in text
    assert text.endswith(f"plate.bytes: {PLATE}\n")


@pytest.mark.parametrize("cores", CORES)
def test_digits_are_classified_four_at_once(prefix: Path, tmp_path: Path, cores: int):
    """uint8 pictures with mean 0 and std 255, as the network was trained on 0 to 1; six fill one and a half
    batches. The labels are those of the data set."""
    held = arrays_of(DIGITS / "held_back.npz")
    model = compile_model((DIGITS / "digits_int8.onnx").read_bytes(), reuse=True)
    path = tmp_path / "digits.rknn"
    path.write_bytes(write_rknn(model, [Preprocessing((0.0,), (255.0,))], batch=4))
    names = []
    for number in range(6):
        names.append(tmp_path / f"{number}")
        codes = np.rint(held["images"][number].astype(np.float64) * float(held["scale"]) * 255)
        codes.astype(np.uint8).tofile(names[-1])
    text = run(prefix, prefix / "classes", path, cores, *names)
    first, *lines = text.splitlines()
    assert first == "input dims [4, 16, 16, 1], n_elems 1024; output dims [4, 10], n_elems 40"
    assert [int(line.split(": ")[1].split()[0]) for line in lines] == held["labels"][:6].tolist()


LINES = ((6, 4, 60, 14), (20, 24, 90, 33), (8, 44, 50, 56))
"""Left, top, right, bottom of the lines of text in the picture."""


@pytest.mark.parametrize("cores", CORES)
def test_lines_of_text_are_found(prefix: Path, tmp_path: Path, cores: int):
    """Bright lines on a dark ground, through a smoothing convolution and a Sigmoid."""
    weights = np.full((1, 3, 3, 3), 12 / 27, np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Sigmoid", ["c"], ["y"], name="sigmoid"),
    ]
    data = network((1, 3, 64, 96), nodes, {"w": weights, "b": np.float32([0.0])})
    before = [Preprocessing((127.5,) * 3, (127.5,) * 3, True)]
    (tmp_path / "text.rknn").write_bytes(write_rknn(compile_model(data, reuse=True, cores=cores), before))
    picture = np.full((64, 96, 3), 10, np.uint8)
    for left, top, right, bottom in LINES:
        picture[top:bottom, left:right] = 245
    np.save(tmp_path / "text.npy", picture)
    words = (tmp_path / "text.rknn", tmp_path / "text.npy", "--size", 64, 96, "--cores", cores)
    count, *lines = run(prefix, sys.executable, EXAMPLES / "text_boxes.py", *words).splitlines()
    assert count == f"{len(LINES)} boxes"
    for line, (left, top, right, bottom) in zip(lines[::-1], LINES, strict=True):
        numbers = [int(word) for word in line.partition(": ")[2].translate(CLEAR).split()[:4]]
        grown = 1.5 * (right - left - 1) * (bottom - top - 1) / (2 * (right - left + bottom - top - 2))
        wanted = [left - grown, top - grown, right - 1 + grown, bottom - 1 + grown]
        limits = np.clip(wanted, 0, [95, 63, 95, 63])
        assert np.abs(np.array(numbers) - limits).max() <= 1.5, (line, limits)
        assert float(line.split()[-1]) > 0.95


CLEAR = str.maketrans("(),", "   ")
