"""The Pythonic layer on rknn_api."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.session import Model, RknnError, matmul, use
from tests.makers.rknn_models import image_model
from tests.unit.test_rknn_custom import scaled_net

RNG = np.random.default_rng(2)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    use(GoldenNpu(2))
    yield
    use(None)


def test_a_model() -> None:
    x = (RNG.integers(-100, 100, (1, 3, 6, 10)) / 2).astype(np.float32)
    with Model(image_model()) as model:
        assert [info.name for info in model.inputs] == ["x"] and model.inputs[0].shape == x.shape
        assert model.outputs[0].shape == (1, 20, 6, 10) and model.outputs[0].dtype == np.int8
        assert list(model.layers()) == []
        (y,) = model.run(x)
        assert y.shape == (1, 20, 6, 10) and y.any()
        assert np.array_equal(model(x=x)[0], y)
        assert [layer.op for layer in model.layers()] == ["Conv"]
        assert model.microseconds > 0 and "Network Layer Information Table" in model.performance
        assert model.memory.total_weight_size > 0
        frame = model.start(x)
        assert np.array_equal(frame.result()[0], y)
        with model.copy() as other:
            other.cores(rk.RKNN_NPU_CORE_1)
            assert np.array_equal(other.run(x)[0], y)
            later = other.start(x)
            other.start(x)
            with pytest.raises(RknnError, match="frame 2 is not the last one"):
                later.result()
    model.close()


def test_errors_are_exceptions(capsys) -> None:
    with pytest.raises(RknnError, match="RKNN_ERR_MODEL_INVALID: not an ONNX model") as caught:
        Model(b"nonsense")
    assert caught.value.code == rk.RKNN_ERR_MODEL_INVALID and caught.value.call == "rknn_init"
    with pytest.raises(RknnError, match=r"RKNN_ERR_FAIL.*No such file"):
        Model("/nowhere/model.onnx")
    with Model(image_model()) as model:
        for wrong in (np.zeros((1, 3, 6, 9)), np.zeros(3)):
            with pytest.raises(RknnError, match=r"input 0 has shape .*: \(1, 3, 6, 10\)"):
                model.run(wrong)
        with pytest.raises(
            RknnError, match=r"channels last, \(1, 6, 10, 3\); the model's shape is \(1, 3, 6"
        ):
            model.run(np.zeros((1, 6, 10, 3)))
        with pytest.raises(RknnError, match="no input 'y'"):
            model.run(y=np.zeros((1, 3, 6, 10)))
        with pytest.raises(RknnError, match="no such input"):
            model.run(np.zeros((1, 3, 6, 10)), np.zeros(1))
        with pytest.raises(RknnError, match="not all finite"):
            model.run(np.full((1, 3, 6, 10), np.nan))
        with pytest.raises(RknnError, match=r"TARGET_PLATFORM_UNMATCH.*the device has 2 cores"):
            model.cores(rk.RKNN_NPU_CORE_2)
        with pytest.raises(RknnError, match="before the first rknn_run"):
            model.outputs_get()
    assert capsys.readouterr().err == "", "with exceptions there is no log"


def test_custom_operators_are_functions() -> None:
    x = (RNG.integers(-40, 40, (1, 3, 4, 5)) / 2).astype(np.float32)
    with Model(scaled_net()) as model:
        with pytest.raises(RknnError, match="no custom operator of this type"):
            model.register("Other", lambda: None)
        seen = {}

        def twist(y: np.ndarray, weights: np.ndarray, **attributes: object) -> np.ndarray:
            seen.update(attributes)
            return y * weights.reshape(1, 8, 1, 1) * attributes["factor"]

        model.register("Twist", twist)
        codes, z = model.run(x)
        assert np.allclose(z, codes * np.arange(1, 9).reshape(1, 8, 1, 1) * 2.5)
        assert seen == {"factor": 2.5, "axis": 1, "steps": [3, 4, 5], "mode": b"fast"}
    with Model(scaled_net()) as model:
        model.register("Twist", lambda *_, **__: 1 / 0)
        with pytest.raises(RknnError, match="compute returned -1"):
            model.run(x)


def test_products() -> None:
    a, b = RNG.integers(-9, 9, (5, 64)).astype(np.int8), RNG.integers(-9, 9, (64, 96)).astype(np.int8)
    exact = a.astype(int) @ b.astype(int)
    assert np.array_equal(matmul(a, b, rk.RKNN_INT8_MM_INT8_TO_INT32), exact)
    got = matmul(a, b, rk.RKNN_INT8_MM_INT8_TO_INT8, scales={"A": 0.5, "B": [0.25] * 96, "C": 1.0})
    assert np.abs(got - np.clip(exact / 8, -128, 127)).max() <= 0.5
    with pytest.raises(RknnError, match="N must be a multiple of 64"):
        matmul(a // 2, b // 2, rk.RKNN_INT4_MM_INT4_TO_INT16)
    half = matmul(a.astype(np.float16), b.astype(np.float16), rk.RKNN_FLOAT16_MM_FLOAT16_TO_FLOAT32)
    assert np.array_equal(half, exact) and half.dtype == np.float32
