"""mean, std, rgb2bgr and batch of `.rknn` files: in rknn_api, in the command line, and as text."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import rkcosim.rknn_api as rk
from rkcosim.compiler import compile_model
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.models.input_files import InputError, load_batch
from rkcosim.measure.perf import layer_models
from rkcosim.rknn_api.native import native_input
from rkcosim.rknn_api.session import Model
from rkcosim.rknn_api.state import runtime
from rkcosim.rknn_file import RknnFileError, read_rknn
from rkcosim.rknn_file.opening import open_model
from rkcosim.rknn_file.writer import write_rknn
from rkcosim.running.session import Session
from rkcosim.verify.crosscheck.checks import checker_for
from tests.makers.rknn_containers import as_version_6
from tests.makers.rknn_files import as_version_2

IMAGENET = "'mean': [123.675, 116.28, 103.53], 'std': [58.395, 57.12, 57.375]"
"""Numbers of the attributes in swdee/go-rknnlite-data c58e7b3b, models/rk3588/mobilenetv2-rk3588.rknn."""

MEAN, STD = np.float32([123.675, 116.28, 103.53]), np.float32([58.395, 57.12, 57.375])
SCALE, ZERO = np.float32(0.0186584), -14
"""Quantisation of that file's input: the range of the preprocessed value, [-2.1179, 2.64] / 255."""

HEIGHT, WIDTH = 8, 16


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(3), quiet=True)
    yield
    rk.use_device(None)


def text(own: str, name: str = "x") -> str:
    """Attributes as the toolkit writes them."""
    rest = "'idx': 0, 'shape': [1, 3, 8, 16], 'layout': 'nchw', 'layout_ori': 'nchw', 'is_output': False"
    return f"{{'attrs': {{'{name}': {{{rest}, {own}}}}}, 'quant_tab': {{'min': [nan, -inf]}}}}"


@pytest.fixture(scope="module")
def plain() -> bytes:
    """A convolution of 3 channels by our writer."""
    layer = layer_models.conv(3, 16, (HEIGHT, WIDTH), int8=True, kernel=3, pad=1)
    return write_rknn(compile_model(layer, reuse=True))


@pytest.fixture(scope="module")
def half() -> bytes:
    layer = layer_models.conv(3, 16, (HEIGHT, WIDTH), int8=False, kernel=3, pad=1)
    return write_rknn(compile_model(layer, reuse=True))


def file(data: bytes, own: str, batch: str = "0", scale: float = float(SCALE), zero: int = ZERO) -> bytes:
    """The file with attributes of its input, and the quantisation of the public file."""
    given = read_rknn(data)
    index = given.inputs[0]
    tensors = list(given.tensors)
    tensors[index] = replace(tensors[index], name="x", scale=scale, zero_point=zero)
    return as_version_6(replace(given, tensors=tensors), attributes=text(own) if own else "", batch=batch)


def expected(pixels: npt.NDArray[Any], mean: Any = MEAN, std: Any = STD) -> npt.NDArray[np.int8]:
    """`rne(((x - mean) / std) / scale) + zp` of NHWC, in binary64."""
    real = (pixels.astype(np.float64) - np.float64(mean)) / np.float64(std)
    return np.clip(np.rint(real / np.float64(SCALE)) + ZERO, -128, 127).astype(np.int8)


def stored(model: Model, array: npt.NDArray[Any], kind: int, fmt: int = int(rk.RKNN_TENSOR_NHWC)) -> Any:
    """Native codes (NHWC) of the input after rknn_inputs_set."""
    data = np.ascontiguousarray(array)
    item = rk.rknn_input(index=0, buf=data.ctypes.data, size=data.nbytes, type=kind, fmt=fmt)
    assert rk.rknn_inputs_set(model.context, 1, (rk.rknn_input * 1)(item)) == rk.RKNN_SUCC, rk.last_error()
    return codes(model)


def codes(model: Model) -> Any:
    state = runtime.contexts[int(model.context.value)]
    native = native_input(state.model, 0)
    held = state.loaded.memory(native.tensor)[: native.bytes].view(native.dtype)
    if len(native.dims) == 5:
        return held.reshape(native.dims)[:, 0, :, :, :3].copy()
    return held.reshape(-1, HEIGHT, native.w_stride, 3)[:, :, :WIDTH].copy()


def pixels(batch: int = 1) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(5).integers(0, 256, (batch, HEIGHT, WIDTH, 3), np.uint8)


@pytest.mark.parametrize("order", ["nhwc", "nchw"])
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float16])
def test_inputs_set_applies_mean_and_std(plain: bytes, kind: type, order: str):
    given = pixels().astype(kind)
    code = {np.uint8: rk.RKNN_TENSOR_UINT8, np.float32: rk.RKNN_TENSOR_FLOAT32}.get(
        kind, rk.RKNN_TENSOR_FLOAT16
    )
    fmt = rk.RKNN_TENSOR_NHWC if order == "nhwc" else rk.RKNN_TENSOR_NCHW
    with Model(file(plain, IMAGENET + ", 'rgb2bgr': False")) as model:
        moved = given if order == "nhwc" else given.transpose(0, 3, 1, 2)
        assert np.array_equal(stored(model, moved, int(code), int(fmt)), expected(given))


def test_channels_are_reversed_before_mean_and_std(plain: bytes):
    with Model(file(plain, IMAGENET + ", 'rgb2bgr': True")) as model:
        found = stored(model, pixels(), int(rk.RKNN_TENSOR_UINT8))
    assert np.array_equal(found, expected(pixels()[..., ::-1]))
    notes = open_model(file(plain, IMAGENET + ", 'rgb2bgr': True")).plan.notes
    assert any("rgb2bgr" in note for note in notes)


def test_int8_and_pass_through_are_taken_as_they_are(plain: bytes):
    raw = pixels().view(np.int8)
    with Model(file(plain, IMAGENET)) as model:
        assert np.array_equal(stored(model, raw, int(rk.RKNN_TENSOR_INT8)), raw)
        item = rk.rknn_input(index=0, buf=raw.ctypes.data, size=raw.nbytes, pass_through=1)
        item.type = rk.RKNN_TENSOR_INT8
        assert rk.rknn_inputs_set(model.context, 1, (rk.rknn_input * 1)(item)) == rk.RKNN_SUCC
        assert np.array_equal(codes(model), raw)


@pytest.mark.parametrize("pass_through", [0, 1])
def test_memory_of_the_program_is_converted_unless_passed_through(plain: bytes, pass_through: int):
    with Model(file(plain, IMAGENET)) as model:
        attr = rk.rknn_tensor_attr(index=0)
        size = ct.sizeof(attr)
        assert not rk.rknn_query(model.context, rk.RKNN_QUERY_NATIVE_INPUT_ATTR, ct.byref(attr), size)
        memory = rk.rknn_create_mem(model.context, int(attr.size_with_stride))
        attr.type, attr.fmt = rk.RKNN_TENSOR_UINT8, rk.RKNN_TENSOR_NHWC
        attr.pass_through = pass_through
        assert rk.rknn_set_io_mem(model.context, memory, ct.byref(attr)) == rk.RKNN_SUCC, rk.last_error()
        rows = np.zeros((HEIGHT, int(attr.w_stride), 3), np.uint8)
        rows[:, :WIDTH] = pixels()[0]
        ct.memmove(memory.contents.virt_addr, rows.ctypes.data, rows.nbytes)
        assert rk.rknn_run(model.context, None) == rk.RKNN_SUCC, rk.last_error()
        wanted = pixels().view(np.int8) if pass_through else expected(pixels())
        assert np.array_equal(codes(model), wanted)


def test_fp16_inputs_hold_the_preprocessed_value(half: bytes):
    real = (pixels().astype(np.float32) - MEAN) / STD
    with Model(file(half, IMAGENET, scale=1.0, zero=0)) as model:
        found = stored(model, pixels(), int(rk.RKNN_TENSOR_UINT8))
        assert found.dtype == np.float16 and np.array_equal(found, real.astype(np.float16))
        item = pixels().view(np.int8)
        given = rk.rknn_input(index=0, buf=item.ctypes.data, size=item.nbytes, type=rk.RKNN_TENSOR_INT8)
        given.fmt = rk.RKNN_TENSOR_NHWC
        assert rk.rknn_inputs_set(model.context, 1, (rk.rknn_input * 1)(given)) != rk.RKNN_SUCC
        assert "int8 numbers of an input of float16" in str(rk.last_error())


def test_pictures_and_arrays_of_the_command_line(plain: bytes, tmp_path: Path):
    infos = open_model(file(plain, IMAGENET)).inputs
    picture, array = tmp_path / "a.png", tmp_path / "a.npy"
    Image.fromarray(pixels()[0]).save(picture)
    model = open_model(file(plain, IMAGENET))
    wanted = expected(pixels())[0].transpose(2, 0, 1)

    def coded(path: Path) -> npt.NDArray[np.int8]:
        return model.encode_input(0, load_batch([path], infos, None).items[0][0])

    assert np.array_equal(coded(picture), wanted)
    for kind in (np.uint8, np.float32):
        np.save(array, pixels().transpose(0, 3, 1, 2).astype(kind))
        assert np.array_equal(coded(array), wanted)
    np.save(array, pixels().view(np.int8))
    assert np.array_equal(coded(array), pixels()[0].view(np.int8).transpose(2, 0, 1))
    np.savez(tmp_path / "a.npz", images=pixels().transpose(0, 3, 1, 2))
    assert np.array_equal(coded(tmp_path / "a.npz"), wanted)


@pytest.mark.parametrize("batch", ["0", "8"])
def test_a_run_preprocesses_once_and_matches(plain: bytes, tmp_path: Path, batch: str):
    """`rkcosim run` gives the network's numbers to the library, whose own preprocessing must not apply."""
    path, picture = tmp_path / "x.rknn", tmp_path / "a.png"
    path.write_bytes(file(plain, IMAGENET, batch))
    Image.fromarray(pixels()[0]).save(picture)
    with Session(path, engine="golden", checker=checker_for) as session:
        (values,) = load_batch([picture], open_model(path.read_bytes()).inputs, None).items
        session.infer(values)
        loaded = rk.loaded_model(session.context)
        assert np.array_equal(loaded.tensor("x"), expected(pixels())[0].transpose(2, 0, 1))
        assert session.checker.check(values).match
    rk.use_device(GoldenNpu(3), quiet=True)


def test_int8_numbers_of_an_fp16_input_are_refused(half: bytes, tmp_path: Path):
    np.save(tmp_path / "a.npy", pixels().view(np.int8))
    infos = open_model(file(half, IMAGENET, scale=1.0, zero=0)).inputs
    with pytest.raises(InputError, match="int8 numbers of an input of float16 with mean and std"):
        load_batch([tmp_path / "a.npy"], infos, None)


WRONG = {
    "'mean': [1, 2], 'std': [1, 1, 1]": "input 'x': 2 values of mean for 3 channels",
    "'mean': [0, 0, 0], 'std': [1, 0, 1]": "input 'x': a std is 0",
    "'mean': [0, nan, 0], 'std': [1, 1, 1]": "input 'x': mean is not a list of finite numbers",
    "'mean': array(3), 'std': [1, 1, 1]": "input 'x': mean is not a list of finite numbers",
    "'mean': [0, 0, 0], 'std': [1e39, 1, 1]": "input 'x': std is not a list of finite numbers",
    "'mean': [0, 0, 0], 'rgb2bgr': 'yes'": "input 'x': rgb2bgr is neither True nor False",
    "'mean': [0, 0": "the attributes cannot be read: SyntaxError",
}


@pytest.mark.parametrize("own", WRONG)
def test_attributes_that_are_not_understood_are_refused(plain: bytes, own: str):
    with pytest.raises(RknnFileError, match=WRONG[own]):
        read_rknn(file(plain, own))


def test_equal_values_fit_any_number_of_channels(plain: bytes):
    made = read_rknn(file(plain, "'mean': [127.5], 'std': [128.0, 128.0, 128.0, 128.0]"))
    assert (made.preprocessing[made.inputs[0]].mean, made.preprocessing[made.inputs[0]].std) == (
        (127.5,),
        (128.0,),
    )


def test_the_range_of_pixels_where_the_file_says_no_mean(plain: bytes):
    """Public files of container version 2 have no attributes of inputs; toolkits 1.2 and 1.3 put the version
    of the compiler in their place (cqu20160901/LPRNet_rknn_Cplusplus 2e6f8fca, LPRNet.rknn)."""
    given = read_rknn(plain)
    index = given.inputs[0]
    tensors = list(given.tensors)
    tensors[index] = replace(tensors[index], name="x", scale=1 / 255, zero_point=-128)
    made_by = "Generated from compiler version: 1.3.0 (c193be371@2022-05-04T12:19:38)"
    old = as_version_2(write_rknn_again(replace(given, tensors=tensors)), attributes=made_by)
    model = open_model(old)
    assert any("does not say mean and std of the input 'x'" in note for note in model.plan.notes)
    with Model(old) as one:
        found = stored(one, pixels(), int(rk.RKNN_TENSOR_UINT8))
    assert np.array_equal(found.view(np.uint8) ^ 0x80, pixels())


def write_rknn_again(given: Any) -> bytes:
    return as_version_6(given, compiler="rkcosim")


@pytest.mark.parametrize("mask", [0, 1, 3, 7])
def test_a_batch_runs_the_plan_once_for_each_sample(plain: bytes, mask: int):
    """Slot 14 as in swdee/go-rknnlite-data c58e7b3b, models/rk3588/mobilenetv2-batch8-rk3588.rknn."""
    many = pixels(8)
    with Model(file(plain, IMAGENET)) as model:
        model.run(np.zeros((1, 3, HEIGHT, WIDTH), np.float32))
        wanted = []
        for one in many:
            stored(model, one[None], int(rk.RKNN_TENSOR_UINT8))
            wanted.append(model.run(one[None].transpose(0, 3, 1, 2).astype(np.float32))[0])
    with Model(file(plain, IMAGENET, "8")) as model:
        attr = rk.rknn_tensor_attr(index=0)
        size = ct.sizeof(attr)
        assert not rk.rknn_query(model.context, rk.RKNN_QUERY_INPUT_ATTR, ct.byref(attr), size)
        assert (list(attr.dims[:4]), attr.n_elems) == ([8, HEIGHT, WIDTH, 3], 8 * HEIGHT * WIDTH * 3)
        assert not rk.rknn_query(model.context, rk.RKNN_QUERY_OUTPUT_ATTR, ct.byref(attr), size)
        assert list(attr.dims[:4]) == [8, 16, HEIGHT, WIDTH]
        assert rk.rknn_set_core_mask(model.context, mask) == rk.RKNN_SUCC
        found = model.run(many.transpose(0, 3, 1, 2).astype(np.float32))[0]
        assert np.array_equal(found, np.concatenate(wanted))
        assert np.array_equal(stored(model, many, int(rk.RKNN_TENSOR_UINT8)), expected(many))


@pytest.mark.parametrize("batch", ["-1", "eight", "2000", "8.0"])
def test_a_batch_that_is_no_number_is_refused(plain: bytes, batch: str):
    with pytest.raises(RknnFileError, match="slot 14: the batch is"):
        read_rknn(file(plain, IMAGENET, batch))
