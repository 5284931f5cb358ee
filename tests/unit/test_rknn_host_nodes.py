"""Nodes of `.rknn` files that the host computes after the network, and inputs whose rows are padded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.perf import layer_models
from rkcosim.regcmd.word import register_word
from rkcosim.rknn_api.custom_graph import leaving_out_custom
from rkcosim.rknn_api.session import Model, RknnError
from rkcosim.rknn_file import RknnFileError, read_rknn, version6
from rkcosim.rknn_file.container import FileNode, FileTensor, RknnFile
from rkcosim.rknn_file.model import FileModel
from rkcosim.rknn_file.schema import Kind, Layout, LayoutSlot
from rkcosim.rknn_file.writer import write_rknn
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from tests.makers.rknn_files import as_version_2


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(3), quiet=True)
    yield
    rk.use_device(None)


@pytest.fixture(scope="module")
def data() -> bytes:
    """A convolution of 16 to 8 channels, 8 x 12 pixels, in the form of the vendor's toolkit 1."""
    compiled = compile_model(layer_models.conv(16, 8, (8, 12), int8=True, kernel=3, pad=1), reuse=True)
    return as_version_2(write_rknn(compiled))


def followed_by(
    file: RknnFile, kind: str, results: list[tuple[tuple[int, ...], type]], **attributes: Any
) -> RknnFile:
    """The file with one more node of the host after its output."""
    first = len(file.tensors)
    made = [
        FileTensor(
            first + n, f"made {n}", np.dtype(dtype), Layout.ROW_MAJOR, Kind.OUTPUT, shape, shape, size=64
        )
        for n, (shape, dtype) in enumerate(results)
    ]
    numbers = tuple(tensor.index for tensor in made)
    node = FileNode(len(file.nodes), kind, "last", False, file.outputs, numbers, attributes=attributes)
    return replace(file, tensors=[*file.tensors, *made], nodes=[*file.nodes, node], outputs=numbers)


def picture() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(1, 16, 8, 12)).astype(np.float32)


def run(model: FileModel) -> list[np.ndarray]:
    with LoadedModel(model, GoldenDriver()) as loaded:
        loaded.set_input(0, picture())
        loaded.run()
        return [loaded.get_output(n) for n in range(len(model.outputs))]


def test_argmax_names_the_first_of_the_largest_channels(data: bytes):
    file = read_rknn(data)
    (values,) = run(FileModel(file, data))
    largest = followed_by(file, "ArgMax", [((1, 1, 8, 12), np.int64)])
    (found,) = run(FileModel(largest, b"argmax"))
    assert found.shape == (1, 1, 8, 12) and len(np.unique(found)) > 2
    assert np.array_equal(found, values.argmax(1, keepdims=True))
    flat = followed_by(largest, "Reshape", [((1, 8, 12), np.int64)])
    (same,) = run(FileModel(flat, b"flat"))
    assert np.array_equal(same, found[0])


def test_argmax_of_other_shapes_is_refused(data: bytes):
    wrong = followed_by(read_rknn(data), "ArgMax", [((1, 1, 8, 1), np.int64)])
    with pytest.raises(RknnFileError, match=r"ArgMax 'last' from .* one axis must become 1"):
        FileModel(wrong, b"")


@pytest.mark.parametrize("axis", [1, -3])
def test_argmax_with_its_attributes(data: bytes, axis: int):
    shape: list[tuple[tuple[int, ...], type]] = [((1, 1, 8, 12), np.int64)]
    file = read_rknn(data)
    assert FileModel(followed_by(file, "ArgMax", shape, axis=axis, keepdims=1), b"").outputs
    with pytest.raises(RknnFileError, match=r"the axis 2, but axis 1 of its result is 1"):
        FileModel(followed_by(file, "ArgMax", shape, axis=2), b"")
    with pytest.raises(RknnFileError, match="select_last_index"):
        FileModel(followed_by(file, "ArgMax", shape, axis=1, select_last_index=1), b"")


RESULTS: list[tuple[tuple[int, ...], type]] = [((1, 8, 8, 12), np.float16), ((8,), np.int64)]


def test_the_inputs_of_a_custom_operator_are_outputs(data: bytes):
    file = read_rknn(data)
    model = FileModel(followed_by(file, "cstTwo", RESULTS), b"two")
    assert [info.name for info in model.outputs] == [file.tensors[file.outputs[0]].name]
    assert any("cstTwo 'last' runs on the host" in note for note in model.plan.notes)
    assert np.array_equal(run(model)[0], run(FileModel(file, data))[0])


def places_of(values: np.ndarray) -> np.ndarray:
    """Place of the largest value of each channel, int64."""
    return values[0].reshape(8, -1).argmax(1).astype(np.int64)


def test_the_program_computes_a_custom_operator(data: bytes, monkeypatch):
    monkeypatch.setattr(
        "rkcosim.rknn_file.model.read_rknn", lambda given: followed_by(read_rknn(given), "cstTwo", RESULTS)
    )
    with Model(data) as model:
        assert [(info.name, info.shape) for info in model.outputs] == [
            (f"made {n}", shape) for n, (shape, _) in enumerate(RESULTS)
        ]
        assert [info.dtype for info in model.outputs] == [np.float32, np.int64]
        with pytest.raises(RknnError, match="no operator of type 'cstTwo' is registered"):
            model.run(picture())

        def compute(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return -values, places_of(values)

        model.register("cstTwo", compute)
        negated, places = model.run(picture())
    with leaving_out_custom(), Model(data) as model:
        (values,) = model.run(picture())
    assert np.array_equal(negated, -values) and np.array_equal(places, places_of(values))


def test_no_node_follows_a_custom_operator(data: bytes):
    file = followed_by(read_rknn(data), "cstTwo", RESULTS)
    after = followed_by(replace(file, outputs=file.outputs[:1]), "Reshape", [((768,), np.float16)])
    with pytest.raises(RknnFileError, match="Reshape 'last #4' reads 'made 0' of a custom operator"):
        FileModel(after, b"")


class Table:
    """The part of a flatbuffer's table that the reader of padded rows uses."""

    where = "layout"

    def __init__(self, **slots: Any) -> None:
        self.slots = slots

    def text(self, slot: int) -> str:
        return self.slots["name"]

    def tables(self, slot: int, where: str) -> list[Table]:
        return self.slots["inner"]

    def has(self, slot: int) -> bool:
        return slot == LayoutSlot.PITCH and "pitch" in self.slots

    def number(self, slot: int, size: int) -> int:
        return self.slots.get("pitch", 0)

    def error(self, text: str) -> RknnFileError:
        return RknnFileError(text)


def stride(pixels: int) -> int:
    line = registers()["CNA"]["DMA_CON1"]
    return register_word(line, line.encode(LINE_STRIDE=pixels))


@pytest.mark.parametrize("size, pitch", [(600, 0), (960, 16), (900, 15), (610, 0), (1920, 0)])
def test_padded_rows_of_pixels_change_the_line_stride(size: int, pitch: int):
    tensor = FileTensor(
        0, "x", np.dtype(np.float16), Layout.NATIVE, Kind.INPUT, (1, 1, 10, 10, 3), (1, 3, 10, 10), size=size
    )
    words = np.array([0, stride(10), stride(7)], np.uint64)
    graph: Any = Table(inner=[Table(name="x", inner=[Table(pitch=10 | 1 << 32), Table()])])
    found = version6._pitches(graph, [tensor], [0], words)
    assert found == ({0: pitch} if pitch else {})
    assert words.tolist() == [0, stride(pitch or 10), stride(7)]


@pytest.mark.parametrize("index", [0, 3, 1 << 31])
def test_a_layout_that_names_another_word_is_refused(index: int):
    tensor = FileTensor(
        0, "x", np.dtype(np.float16), Layout.NATIVE, Kind.INPUT, (1, 1, 10, 10, 3), (1, 3, 10, 10), size=960
    )
    graph: Any = Table(inner=[Table(name="x", inner=[Table(pitch=index << 32)])])
    words = np.array([0, stride(10), stride(7)], np.uint64)
    with pytest.raises(RknnFileError, match=f"word {index} of 3 is not a write of CNA.DMA_CON1"):
        version6._pitches(graph, [tensor], [0], words)
