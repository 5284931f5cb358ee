"""Boards: layouts that they describe, and what the server takes from memory that a program has written."""

from __future__ import annotations

import ctypes as ct
import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.compiler import compile_model
from rkcosim.driver import Driver
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.server.board import Board, BoardHead, BoardTensor, board_of, strides_of
from rkcosim.rknn_api.session import Model
from rkcosim.rknn_file.opening import open_model
from rkcosim.rknn_file.writer import write_rknn
from tests.makers.rknn_models import float_model, image_model

RNG = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(Driver(GoldenNpu(3), shared=True))
    yield
    rk.use_device(None)


@pytest.mark.parametrize("channels", [1, 3, 4, 20])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("from_file", [False, True])
def test_the_layout_finds_every_element(channels: int, dtype: type, from_file: bool):
    model = compile_model(image_model(channels, size=(5, 7), dtype=dtype))
    if from_file:
        model = open_model(write_rknn(model))
    for name in (model.graph.inputs[0].tensor, model.graph.outputs[0].value):
        place = model.plan.place(name)
        found = strides_of(place)
        assert found is not None
        cube = RNG.integers(-128, 128, place.cube).astype(np.int8)
        memory = place.pack(cube)
        for channel, row, column in np.ndindex(*place.cube):
            at = channel // found.step * found.surface + channel % found.step
            byte = memory[at + row * found.line + column * found.pixel] ^ found.flip
            assert byte == cube.view(np.uint8)[channel, row, column]


def test_floats_have_no_layout():
    model = compile_model(float_model())
    assert strides_of(model.plan.place(model.graph.inputs[0].tensor)) is None


@pytest.fixture
def model() -> Iterator[Model]:
    with Model(image_model(20)) as made:
        made.run(RNG.random((1, 20, 6, 10)).astype(np.float32))
        yield made


@pytest.fixture
def board(model: Model) -> Iterator[Board]:
    made = board_of(model._state)
    assert made is not None and made.pages() is not None and made.pages() is None
    made.leave()
    yield made
    made.close()


def memory_of(board: Board) -> mmap.mmap:
    """The board as the program sees it."""
    return mmap.mmap(board.fd, board.size)


def usable(memory: mmap.mmap) -> list[int]:
    size = ct.sizeof(BoardHead)
    tensors = (BoardTensor * 2).from_buffer_copy(memory[size : size + 2 * ct.sizeof(BoardTensor)])
    return [tensor.usable for tensor in tensors]


def sequence(memory: mmap.mmap) -> int:
    return int.from_bytes(memory[:4], "little")


def test_tensors_are_usable_between_calls(model: Model, board: Board):
    memory = memory_of(board)
    assert usable(memory) == [1, 1] and sequence(memory) % 2 == 0
    before = sequence(memory)
    board.enter()
    assert sequence(memory) % 2 == 1
    board.leave()
    assert sequence(memory) == before + 2
    model._state.frame.failure = ValueError("x")
    board.enter()
    board.leave()
    assert usable(memory) == [1, 0]
    model._state.frame.failure = None
    model.cores(3)  # loads the model again
    board.enter()
    board.leave()
    assert usable(memory) == [0, 0] and not board.fits(model._state)


def test_a_board_cannot_shrink(board: Board):
    with pytest.raises(OSError):
        os.ftruncate(board.fd, 16)


def test_the_server_takes_an_input_once(model: Model, board: Board):
    memory, state = memory_of(board), model._state
    at = ct.sizeof(BoardHead)
    tensor = BoardTensor.from_buffer_copy(memory[at : at + ct.sizeof(BoardTensor)])
    codes = RNG.integers(0, 256, tensor.size).astype(np.uint8)
    memory[tensor.at : tensor.at + tensor.size] = codes.tobytes()
    state.inputs_set.clear()
    board.enter()
    assert not state.inputs_set
    memory[at + 4 : at + 8] = (1).to_bytes(4, "little")  # given
    board.enter()
    assert state.inputs_set == {0} and np.array_equal(state.held[0], codes)
    state.inputs_set.clear()
    board.enter()
    assert not state.inputs_set


def test_anything_may_be_written_to_a_board(model: Model, board: Board):
    """Only the bytes of inputs and the marks of new ones are read; the layout is kept by the server."""
    memory, state = memory_of(board), model._state
    sizes = [held.size for held in state.held.values()]
    for _ in range(200):
        memory[:] = RNG.integers(0, 256, board.size).astype(np.uint8).tobytes()
        board.enter()
        board.leave()
        assert set(state.held) == {0} and [held.size for held in state.held.values()] == sizes
        assert state.inputs_set == {0}
    model.execute()


def test_models_whose_tensors_need_the_server_have_no_usable_tensors():
    with Model(float_model()) as floats:
        floats.run(RNG.random((1, 3, 6, 10)).astype(np.float32))
        made = board_of(floats._state)
        assert made is not None
        made.pages()
        made.leave()
        assert usable(memory_of(made)) == [0, 0]
        made.close()
    assert board_of(None) is None
