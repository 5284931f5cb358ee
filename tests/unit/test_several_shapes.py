"""Models of several shapes: the list, the file, the compiler's choice, scales in common, the commands."""

from __future__ import annotations

import ctypes as ct
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import rkcosim.rknn_api as rk
from rkcosim.cli.main import app
from rkcosim.compiler import ModelError, compile_model, several
from rkcosim.compiler.options import using_options
from rkcosim.compiler.quantization import Settings, open_float_model
from rkcosim.compiler.quantization.quantizer import activation_scales
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.state import runtime
from tests import seeds
from tests.makers.rknn_models import open_model, set_float
from tests.makers.shape_models import by_onnxruntime, enlarging, free

SETS = [[[1, 3, 16, 16]], [[1, 3, 24, 40]], [[1, 3, 20, 12]]]


def picture(*size: int) -> np.ndarray:
    return np.random.default_rng(seeds.number()).standard_normal((1, 3, *size)).astype(np.float32)


def packed() -> bytes:
    parts = []
    for shapes in several.sets_of(SETS):
        with using_options(input_shapes=shapes):
            parts.append(compile_model(enlarging()).save())
    return several.pack(several.sets_of(SETS), parts)


def run(context: rk.rknn_context, x: np.ndarray) -> np.ndarray:
    attr = rk.rknn_tensor_attr(index=0, name=b"x", n_dims=4, fmt=int(rk.RKNN_TENSOR_NCHW))
    attr.dims[:4] = list(x.shape)
    assert rk.rknn_set_input_shapes(context, 1, attr) == rk.RKNN_SUCC, rk.last_error(context)
    set_float(context, x)
    assert rk.rknn_run(context) == rk.RKNN_SUCC, rk.last_error(context)
    item = rk.rknn_output(want_float=1)
    assert rk.rknn_outputs_get(context, 1, [item]) == rk.RKNN_SUCC
    found = np.frombuffer(ct.string_at(item.buf, item.size), np.float32).copy()
    assert rk.rknn_outputs_release(context, 1, [item]) == rk.RKNN_SUCC
    return found.reshape(x.shape[0], 4, *x.shape[2:])


@pytest.mark.parametrize("kind", ["metadata", "fixed sizes in the file", "compiled"])
def test_every_shape_gives_the_values_of_onnxruntime(kind: str) -> None:
    """A size that the graph itself computes must be that of the shape, not that of another one."""
    size = (16, 16) if kind.startswith("fixed") else ("h", "w")
    model = packed() if kind == "compiled" else enlarging(SETS, size)
    rk.use_device(GoldenNpu(1))
    context = open_model(model)
    try:
        for (shape,) in (*SETS, SETS[0]):
            x = picture(*shape[2:])
            wanted = by_onnxruntime(enlarging(), x)
            np.testing.assert_allclose(run(context, x), wanted, rtol=4e-3, atol=1e-2)
    finally:
        rk.rknn_destroy(context)
        rk.use_device(None)


@pytest.mark.usefixtures("cycles_only")
def test_shapes_are_spread_over_the_cores() -> None:
    """A core mask holds for the shapes that are selected later, and for those that were selected before."""
    rk.use_device(GoldenNpu(3))
    context = open_model(packed())
    try:
        first, second = picture(16, 16), picture(24, 40)
        wanted = run(context, first), run(context, second)
        for mask, cores in ((rk.RKNN_NPU_CORE_0_1_2, 3), (rk.RKNN_NPU_CORE_1, 1), (rk.RKNN_NPU_CORE_ALL, 3)):
            assert rk.rknn_set_core_mask(context, mask) == rk.RKNN_SUCC
            for x, there in zip((first, second, first), (*wanted, wanted[0]), strict=True):
                assert np.array_equal(run(context, x), there)
                assert runtime.contexts[context.value].model.plan.cores == cores
    finally:
        rk.rknn_destroy(context)
        assert runtime.driver is not None and list(runtime.driver.buffers) == []
        rk.use_device(None)


def test_shapes_with_batches() -> None:
    """Sets that differ in the first dimension: one sample, and batches whose samples several cores share."""
    sets = [[[1, 3, 16, 16]], [[3, 3, 16, 16]], [[2, 3, 24, 24]]]
    rk.use_device(GoldenNpu(3))
    context = open_model(enlarging(sets, batch="n"))
    try:
        for mask in (rk.RKNN_NPU_CORE_AUTO, rk.RKNN_NPU_CORE_2):
            assert rk.rknn_set_core_mask(context, mask) == rk.RKNN_SUCC
            for (shape,) in sets:
                x = np.random.default_rng(seeds.number()).standard_normal(shape).astype(np.float32)
                wanted = by_onnxruntime(enlarging(batch="n"), x)
                np.testing.assert_allclose(run(context, x), wanted, rtol=4e-3, atol=1e-2)
    finally:
        rk.rknn_destroy(context)
        rk.use_device(None)


def test_without_a_list_only_batches_are_chosen() -> None:
    rk.use_device(GoldenNpu(1))
    context = rk.rknn_context()
    model = enlarging()
    assert rk.rknn_init(context, model, len(model)) == rk.RKNN_ERR_MODEL_INVALID
    assert "input 'x' has free dimensions [1, 3, h, w], and nobody named their sizes" in str(rk.last_error())
    rk.use_device(None)


def test_the_compiler_takes_the_shapes_of_the_options(capsys) -> None:
    model = packed()
    assert compile_model(model).inputs[0].shape == (1, 3, 24, 40)
    assert (
        "the model has 3 sets of shapes: [1, 3, 24, 40] is used (--shape changes it)"
        in capsys.readouterr().err
    )
    with using_options(shapes={"x": (1, 3, 20, 12)}):
        assert compile_model(model).inputs[0].shape == (1, 3, 20, 12)
    with using_options(input_shapes=((1, 3, 16, 16),)):
        assert compile_model(model).inputs[0].shape == (1, 3, 16, 16)
    for wrong in (
        {"shapes": {"x": (1, 3, 8, 8)}},
        {"shapes": {"z": (1,)}},
        {"input_shapes": ((1, 3, 8, 8),)},
    ):
        with (
            using_options(**wrong),
            pytest.raises(ModelError, match=r"no such shapes, only \[1, 3, 16, 16\]; "),
        ):
            compile_model(model)
    listed = enlarging(SETS)
    assert compile_model(listed).inputs[0].shape == (1, 3, 24, 40)
    with using_options(shapes={"x": (1, 3, 8, 8)}):
        assert compile_model(listed).inputs[0].shape == (1, 3, 8, 8)
    for still, shapes, why in (
        ("refuse", (), "nobody named their sizes"),
        ("batches", (), "nobody named their sizes"),
        ("refuse", ((3, 8, 8),), "has 4 dimensions, not 3"),
        ("refuse", ((1, 3, 8, 8), (1,)), "2 shapes are given, the model has 1 inputs"),
    ):
        with using_options(open_dimensions=still, input_shapes=shapes), pytest.raises(ModelError, match=why):
            compile_model(enlarging())


def test_the_file_is_checked() -> None:
    data = packed()
    sets, models = several.unpack(data)
    assert sets == several.sets_of(SETS) and several.pack(sets, models) == data
    other = compile_model(free(enlarging(size=(8, 8)))).save()
    wrong = several.pack(sets, [models[0], other, models[2]])
    rk.use_device(GoldenNpu(1))
    for file, why in (
        (data[:-1] + bytes([data[-1] ^ 1]), "its checksum does not fit"),
        (data[:-40], "its checksum does not fit"),
        (data[:8] + b"\x63" + data[9:], "compiled model of version 99"),
        (several.pack(sets, models[:2]), "its header makes no sense"),
        (several.pack(sets[:2] + sets[:1], models), "damaged compiled model"),
        (several.pack(sets, [models[0], b"", models[2]]), "a part is no model of one shape"),
        (several.pack(sets, [models[0], data, models[2]]), "a part is no model of one shape"),
        (several.pack(sets, [models[0], models[1][:-1], models[2]]), "its checksum does not fit"),
        (wrong, "its shapes are not those of the list"),
    ):
        code = rk.rknn_init(rk.rknn_context(), file, len(file))
        assert code == rk.RKNN_ERR_MODEL_INVALID and why in str(rk.last_error()), why
    rk.use_device(None)


@pytest.mark.parametrize(
    "listed",
    [
        *(
            "nonsense",
            "[[[1, 3",
            5,
            None,
            [],
            [[]],
            [[1, 3, 4]],
            [[[1, 3], [4]], [[1, 3]]],
            [[[1]], [[1, 2]]],
        ),
        *(np.zeros((1, 1, 0)), [[[float("inf")]]], 9999 * "[", "[[[Infinity]]]"),
        *([[[1, -3]]], [[[0]]], [[[1.5, 2]]], [[[True, 2]]], [[[1 << 20, 1 << 20]]], [[[2]], [[2]]]),
        [[[n]] for n in range(1, 514)],
    ],
)
def test_lists_that_are_none(listed: object) -> None:
    with pytest.raises(ValueError, match="dynamic_input must be a list of sets of shapes"):
        several.sets_of(listed)


def test_headers_with_a_right_checksum() -> None:
    sets, models = several.unpack(packed())
    whole = {several.KEY: SETS, "sizes": [len(model) for model in models]}
    for fields in (
        [],
        {},
        {**whole, "sizes": 5},
        {**whole, "sizes": [[1]] * 3},
        {**whole, "sizes": [float("inf")] * 3},
        {**whole, "sizes": [-1, *whole["sizes"][1:]]},
        {**whole, "sizes": [whole["sizes"][0] + 1, *whole["sizes"][1:]]},
        {**whole, several.KEY: SETS[:2]},
        {**whole, several.KEY: None},
    ):
        text = json.dumps(fields).encode()
        data = (
            several.HEADER.pack(several.MAGIC, several.VERSION, len(sets), len(text))
            + text
            + b"".join(models)
        )
        with pytest.raises(ValueError, match="damaged compiled model"):
            several.unpack(data + hashlib.sha256(data).digest())


def test_the_largest_set_represents_the_model() -> None:
    assert several.sets_of(json.dumps(SETS), 1) == [tuple(map(tuple, shapes)) for shapes in SETS]
    assert several.largest(several.sets_of(SETS)) == 1
    assert several.largest(several.sets_of([[[1, 9], [4]], [[1, 2], [50]], [[1, 3], [7]]])) == 1
    with pytest.raises(ValueError, match="sets of 2 shapes"):
        several.sets_of(SETS, 2)


def test_scales_of_another_shape() -> None:
    samples = [{"x": picture(24, 40)}]
    with using_options(input_shapes=((1, 3, 24, 40),)):
        large = open_float_model(enlarging()).quantize(samples, Settings())
    with using_options(input_shapes=((1, 3, 16, 16),)):
        small = open_float_model(enlarging())
        made = small.quantize([{"x": np.zeros((1, 3, 16, 16), np.float32)}], Settings(like=large))
        assert activation_scales(made) == activation_scales(large)
        kept = open_float_model(enlarging()).quantize([{"x": picture(16, 16)}], Settings(keep=("first",)))
        with pytest.raises(ModelError, match=r"no scale for the tensor '\w+'"):
            small.quantize([{"x": picture(16, 16)}], Settings(like=kept))
    x = picture(16, 16)
    found, wanted = by_onnxruntime(made, x), by_onnxruntime(enlarging(), x)
    (scale, _) = activation_scales(made)["y"]
    assert np.abs(found - wanted).max() < 6 * scale


def test_commands(tmp_path: Path) -> None:
    model, target = tmp_path / "model.onnx", tmp_path / "model.rkc"
    model.write_bytes(enlarging())

    def call(*words: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(word) for word in words])
        return done.exit_code, done.output

    code, text = call("compile", model, "--dynamic-input", json.dumps(SETS), "-o", target, "--json", "-")
    assert code == 0 and "model.onnx for [1, 3, 24, 40]: " in text
    assert several.unpack(target.read_bytes())[0] == several.sets_of(SETS)
    model.write_bytes(enlarging(SETS[:2]))
    assert call("compile", model, "-o", target)[0] == 0
    assert several.unpack(target.read_bytes())[0] == several.sets_of(SETS[:2])
    words = ["--input-shapes", "[[1,3,8,8]]", "--custom-string", "a text: é"]
    assert call("compile", model, "-o", target, *words)[0] == 0
    compiled = compile_model(target.read_bytes())
    assert compiled.inputs[0].shape == (1, 3, 8, 8) and compiled.graph.custom_string == "a text: é"
    for words, why in (
        (["--dynamic-input", "[[1]]"], "dynamic_input must be a list of sets"),
        (["--dynamic-input", "[[[1]]]", "--shape", "x=1,3,8,8"], "--dynamic-input names all shapes"),
        (["--custom-string", 512 * "é"], "--custom-string has more than 1023 bytes"),
        (["-o", tmp_path / "model.rknn"], "a .rknn file of several shapes is not written"),
        (["--input-shapes", "[1,3]"], "--input-shapes must be a shape for each input"),
    ):
        code, text = call("compile", model, *words)
        assert code == 2 and why in text, text
    model.write_bytes(enlarging())
    code, text = call("compile", model, "--open-dimensions", "refuse")
    assert code == 2 and "nobody named their sizes: --shape names one shape" in text
    code, text = call(
        "quantize", model, "--like", target, "-o", tmp_path / "q.onnx", "--input-shapes", "[[1,3,8,8]]"
    )
    assert code == 2 and "an ONNX model" in text
