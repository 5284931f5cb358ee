"""DIOPI's operators against values that PyTorch printed (torch 2.13.0 for the CPU), and what it refuses.

The operators of this project and their comparison with the host (`RKCOSIM_DIOPI_COMPARE`) have one author;
the numbers here are PyTorch's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.apis.diopi import runtime
from rkcosim.apis.diopi.enums import Device, Dtype, Error, RoundMode
from rkcosim.apis.diopi.operators import OPERATORS
from rkcosim.apis.diopi.runtime import NPU
from rkcosim.apis.diopi.tensor import TensorP, diopiTensor
from rkcosim.apis.diopi.values import DiopiError
from tests.makers.diopi_tensors import Calls, scalar, size
from tests.makers.torch_values import FILE, array_of, cases

ROOT = Path(__file__).resolve().parents[2]

H, F, D = np.float16, np.float32, np.float64
NONE, TRUNC, FLOOR = RoundMode.RoundModeNone, RoundMode.RoundModeTrunc, RoundMode.RoundModeFloor


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    """Calls in a library that is initialised, on the golden engine."""
    monkeypatch.setenv("RKCOSIM_DIOPI", "engine=golden")
    runtime.init_library()
    yield Calls()
    runtime.finalize_library()


DIVIDED = [1, 0.3, 0.1, 0.7, 1.4, -0.7, 2**24 + 2]
HALVES = [1, 100, 1000, 0.1, -3]
LONGS = [2**60 + 1, 7, -7, 2**31]

VALUES: list[tuple[str, list, Any, tuple, Any, list]] = [
    ("Sigmoid", [-88, -30, -5, 0, 17], F, (), F,
     [6.054601485195952e-39, 9.357623589846195e-14, 0.006692850962281227, 0.5, 1.0]),
    ("Sigmoid", [-100, -87, -17, 17], D, (), D,
     [3.7200759760208356e-44, 1.6458114310822737e-38, 4.1399375473943306e-08, 0.9999999586006244]),
    ("Silu", [-30, -87, 5], F, (), F, [-2.807286954981114e-12, -1.4318559185234732e-36, 4.966535568237305]),
    ("DivScalar", DIVIDED, F, (scalar(0.7), FLOOR), F, [1, 0, 0, 1, 2, -1, 23967454]),
    ("DivScalar", DIVIDED, F, (scalar(0.7), TRUNC), F, [1, 0, 0, 1, 2, -1, 23967454]),
    ("DivScalar", DIVIDED, F, (scalar(0.1), FLOOR), F, [9, 3, 1, 6, 13, -7, 167772176]),
    ("DivScalar", DIVIDED, F, (scalar(0.1), TRUNC), F, [10, 3, 1, 7, 14, -7, 167772176]),
    ("DivScalar", HALVES, H, (scalar(0.1), NONE), H, [10, 1000, 10000, 1, -30]),
    ("DivScalar", HALVES, H, (scalar(0.1), FLOOR), H, [9, 999, 10000, 0, -30]),
    ("DivScalar", HALVES, H, (scalar(0.1), TRUNC), H, [10, 1000, 10000, 0, -30]),
    ("DivScalar", HALVES, H, (scalar(1e6), NONE), H,
     [1.0132789611816406e-06, 0.00010001659393310547, 0.0010004043579101562, 1.1920928955078125e-07,
      -2.9802322387695312e-06]),
    ("DivScalar", LONGS, np.int64, (scalar(2), TRUNC), np.int64, [576460752303423488, 3, -3, 1073741824]),
    ("DivScalar", LONGS, np.int64, (scalar(2), FLOOR), np.int64, [576460752303423488, 3, -4, 1073741824]),
    ("DivScalar", LONGS, np.int64, (scalar(-2), FLOOR), np.int64,
     [-576460752303423489, -4, 3, -1073741824]),
    ("DivScalar", LONGS, np.int64, (scalar(1), TRUNC), np.int64, LONGS),
    ("DivScalar", LONGS, np.int64, (scalar(3), NONE), F,
     [3.8430716797555245e17, 2.3333332538604736, -2.3333332538604736, 715827904]),
    ("DivScalar", LONGS, np.int64, (scalar(0.7), TRUNC), F, [1.6470307601351967e18, 10, -10, 3067833856]),
    ("DivScalar", [-128, 127, 7], np.int8, (scalar(-1), TRUNC), np.int8, [-128, -127, -7]),
    ("Threshold", DIVIDED, F, (scalar(0.1), scalar(-1.0)), F, [1, 0.3, -1, 0.7, 1.4, -1, 2**24 + 2]),
    ("Threshold", HALVES, H, (scalar(0.1), scalar(-1.0)), H, [1, 100, 1000, -1, -1]),
    ("Hardtanh", DIVIDED, F, (scalar(-0.1), scalar(0.1)), F, [0.1, 0.1, 0.1, 0.1, 0.1, -0.1, 0.1]),
    ("ClampScalar", DIVIDED, F, (scalar(0.1), scalar(0.3)), F, [0.3, 0.3, 0.1, 0.3, 0.3, 0.1, 0.3]),
    ("AddScalar", DIVIDED, F, (scalar(16777217), scalar(1)), F,
     [16777216, 16777216, 16777216, 16777216, 16777218, 16777215, 33554432]),
    ("MulScalar", DIVIDED, F, (scalar(16777217),), F,
     [16777216, 5033165, 1677721.625, 11744051, 23488102, -11744051, 281475010265088]),
    ("MulScalar", DIVIDED, F, (scalar(0.1),), F,
     [0.10000000149011612, 0.030000001192092896, 0.010000000707805157, 0.07000000029802322,
      0.14000000059604645, -0.07000000029802322, 1677721.875]),
    ("MulScalar", HALVES, H, (scalar(1e-6),), H,
     [1.0132789611816406e-06, 0.00010001659393310547, 0.0010004043579101562, 1.1920928955078125e-07,
      -2.9802322387695312e-06]),
    ("MulScalar", [0.001], H, (scalar(1e7),), H, [10008]),
    ("AddScalar", [-60000, 100], H, (scalar(1e5), scalar(1)), H, [np.inf, np.inf]),
    ("LeakyRelu", [-3, -1000], H, (scalar(1e-6),), H, [-2.9802322387695312e-06, -0.0010004043579101562]),
    ("LeakyRelu", [-0.001], H, (scalar(1e7),), H, [-10008]),
    ("EqScalar", DIVIDED, F, (scalar(0.1),), np.bool_, [0, 0, 1, 0, 0, 0, 0]),
    ("GeScalar", DIVIDED, F, (scalar(0.7),), np.bool_, [1, 0, 0, 1, 1, 0, 1]),
    ("LeScalar", HALVES, H, (scalar(0.1),), np.bool_, [0, 0, 0, 1, 1]),
    ("LtScalar", HALVES, H, (scalar(0.1),), np.bool_, [0, 0, 0, 0, 1]),
    ("EqScalar", [44, 43], np.uint8, (scalar(300),), np.bool_, [1, 0]),
    ("Sign", [np.nan, -0.0, 2, -3], F, (), F, [0, 0, 1, -1]),
]  # fmt: skip
"""Operator, elements of the input, their type, further arguments, type of the result, PyTorch's result."""


@pytest.mark.parametrize(
    ("name", "values", "dtype", "more", "made", "want"),
    VALUES,
    ids=[f"{n}-{v[0]}" for n, v in enumerate(VALUES)],
)
def test_value(calls: Calls, name: str, values: list, dtype: Any, more: tuple, made: Any, want: list) -> None:
    """One unit in the last place for functions of float32; everything else is the same number."""
    x = np.array(values, dtype)
    found = calls.compute(name, x.shape, x, *more, dtype=made)
    expected = np.array(want, made)
    if name in ("Sigmoid", "Silu"):
        np.testing.assert_allclose(found, expected, 2e-7 if made is F else 1e-15)
    else:
        np.testing.assert_array_equal(found, expected)


def test_quotients_of_tensors(calls: Calls) -> None:
    """torch.div of two tensors, rounding_mode trunc: 1 / 0.1f is 10, as the quotient is rounded first."""
    a, b = np.array([1, 0.3], F), np.array([0.1, 0.1], F)
    np.testing.assert_array_equal(calls.compute("Div", (2,), a, b, TRUNC, dtype=F), [10, 3])
    a, b = np.array([2**60 + 1, -7]), np.array([1, 2])
    np.testing.assert_array_equal(calls.compute("Div", (2,), a, b, TRUNC, dtype=np.int64), [2**60 + 1, -3])


def test_sums_of_halves(calls: Calls) -> None:
    """PyTorch rounds alpha and alpha * b to float16: -60000 + 1000 * 100 is infinite, as on the NPU."""
    a, b = np.full(8, -60000, H), np.full(8, 100, H)
    assert np.isinf(calls.compute("Add", (8,), a, b, scalar(1000.0))).all()
    a, b = np.zeros(8, H), np.full(8, 1000, H)
    np.testing.assert_array_equal(
        calls.compute("Add", (8,), a, b, scalar(1e-6)), np.full(8, 0.0010128021240234375, H)
    )


@pytest.mark.parametrize(
    ("c", "beta", "alpha", "want"),
    [(-60000, 1.0, 1.0, 16800), (40000, 2.0, -1.0, 3200), (0, 0.0, 1e-6, 0.0768)],
)
def test_products_that_overflow_in_between(
    calls: Calls, c: float, beta: float, alpha: float, want: float
) -> None:
    """torch.addmm of halves has sums of float32: 64 * 30 * 40 = 76800 is beyond fp16, the results are not."""
    a, b, added = np.full((4, 64), 30, H), np.full((64, 8), 40, H), np.full((4, 8), c, H)
    found = calls.compute("Addmm", (4, 8), added, a, b, scalar(beta), scalar(alpha))
    np.testing.assert_allclose(found, np.full((4, 8), want), 1e-3)
    account = NPU.accounts["diopiAddmm"]
    assert (account.npu, account.host) == (0, 1)
    found = calls.compute("Baddbmm", (1, 4, 8), added[None], a[None], b[None], beta, alpha)
    np.testing.assert_allclose(found, np.full((1, 4, 8), want), 1e-3)


def test_a_result_that_is_infinite_stays(calls: Calls) -> None:
    a, b = np.full((4, 64), 30, H), np.full((64, 8), 40, H)
    assert np.isinf(calls.compute("Mm", (4, 8), a, b)).all()
    assert NPU.accounts["diopiMm"].npu == 1


def test_softmax_of_nothing(calls: Calls) -> None:
    """torch.softmax of (0, 3) over axis 0 has the shape (0, 3)."""
    for name in ("Softmax", "LogSoftmax"):
        assert calls.compute(name, (0, 3), np.zeros((0, 3), F), 0, dtype=F).shape == (0, 3)


REFUSED: dict[str, tuple[str, tuple, Any]] = {
    "sub of booleans": ("Sub", (np.ones(2, bool), np.ones(2, bool), scalar(1)), bool),
    "sub of a boolean": ("SubScalar", (np.ones(2, bool), scalar(1), scalar(1)), np.int64),
    "real alpha": ("Add", (np.ones(2, np.int64), np.ones(2, np.int64), scalar(0.5)), np.int64),
    "neg": ("Neg", (np.ones(2, bool),), bool),
    "abs": ("Abs", (np.ones(2, bool),), bool),
    "floor": ("Floor", (np.ones(2, bool),), bool),
    "ceil": ("Ceil", (np.ones(2, bool),), bool),
    "relu": ("Relu", (np.ones(2, bool),), bool),
    "gelu": ("Gelu", (np.ones(2, np.uint8), "none"), F),
    "silu": ("Silu", (np.ones(2, np.int64),), F),
    "leaky relu": ("LeakyRelu", (np.ones(2, np.int64), scalar(0.1)), F),
    "hardswish": ("Hardswish", (np.ones(2, np.int64),), F),
    "softmax": ("Softmax", (np.ones(2, np.int64), 0), F),
    "log softmax": ("LogSoftmax", (np.ones(2, np.int64), 0), F),
    "and": ("BitwiseAnd", (np.ones(2, F), np.ones(2, F)), F),
    "not": ("BitwiseNot", (np.ones(2, F),), F),
    "division by 0": ("Div", (np.ones(2, np.int64), np.zeros(2, np.int64), TRUNC), np.int64),
    "floor division by 0": ("DivScalar", (np.ones(2, np.uint8), scalar(0), FLOOR), np.uint8),
    "floor of booleans": ("Div", (np.ones(2, bool), np.ones(2, bool), FLOOR), bool),
    "index": ("IndexSelect", (np.ones(2, F), 0, np.array([-1, 0])), F),
    "gather": ("Gather", (np.ones(2, F), 0, np.array([-1, 0])), F),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(calls: Calls, name: str) -> None:
    """What PyTorch refuses with an error; the result is not touched."""
    operator, arguments, dtype = REFUSED[name]
    given = [calls.tensor(one) if isinstance(one, np.ndarray) else one for one in arguments]
    out = calls.tensor(np.ones(2, dtype))
    code, text = calls.result(operator, out, *given)
    assert code is Error.diopi_error_occurred and text.startswith(f"diopi{operator}: ")
    assert (out.array() == 1).all()


@pytest.mark.parametrize(
    ("stride", "dilation", "padding", "more"), [(0, 1, 0, 0), (1, 0, 0, 0), (1, 1, 0, 1), (2, 1, 2, 2)]
)
def test_windows_that_torch_refuses(
    calls: Calls, stride: int, dilation: int, padding: int, more: int
) -> None:
    """Strides and dilations below 1, padding over half of a window, output padding as large as a stride."""
    x, w = calls.tensor(np.ones((1, 1, 4, 4), F)), calls.tensor(np.ones((1, 1, 2, 2), F))
    out = calls.empty((1, 1, 1, 1), F)
    s, d, p, m = (size(n, n) for n in (stride, dilation, padding, more))
    code, _ = calls.result("ConvTranspose2d", out, x, w, None, s, p, m, 1, d)
    assert code is Error.diopi_error_occurred
    if not more:
        assert calls.result("Convolution2d", out, x, w, None, s, p, d, 1)[0]
        assert calls.result("MaxPool2d", out, x, size(2, 2), s, p, d, False)[0]
    elif padding:
        assert "more than half" in calls.result("MaxPool2d", out, x, size(2, 2), s, p, d, False)[1]
        assert "more than half" in calls.result("AvgPool2d", out, x, size(2, 2), s, p, False, True)[1]


def test_a_failed_call_changes_nothing(calls: Calls) -> None:
    """BatchNorm with an out of another shape keeps the running figures; SplitWithSizes its first part."""
    x = np.random.default_rng(1).normal(size=(2, 3, 2, 2)).astype(F)
    mean, variance = calls.tensor(np.full(3, 5, F)), calls.tensor(np.full(3, 7, F))
    saved = [calls.empty((3,), F) for _ in range(2)]
    wrong, right = calls.empty((2, 3, 2, 1), F), calls.empty(x.shape, F)
    rest = (calls.tensor(x), None, None, mean, variance, True, 0.1, 1e-5)
    assert calls.result("BatchNorm", wrong, *saved, *rest)[0]
    assert (mean.array() == 5).all() and (variance.array() == 7).all() and not saved[0].array().any()
    assert not calls.result("BatchNorm", right, *saved, *rest)[0]
    assert (mean.array() != 5).all() and saved[0].array().any()
    parts = [calls.empty((1,), F), calls.empty((5,), F)]
    code, _ = calls.result(
        "SplitWithSizes", [TensorP(p) for p in parts], 2, calls.tensor(np.ones(3, F)), size(1, 2), 0
    )
    assert code and not parts[0].array().any()


def test_a_repeated_tensor_keeps_its_shape(calls: Calls) -> None:
    """A tensor with a stride of 0 has not the memory of a dense one of as many elements."""
    x = np.broadcast_to(np.arange(4, dtype=F).reshape(4, 1), (4, 5_000_000))
    repeated = calls.tensor(x)
    assert not repeated.reset_shape(size(20_000_000)) and repeated.shape().data == [4, 5_000_000]
    turned = calls.tensor(np.arange(6, dtype=F).reshape(2, 3).T)
    assert turned.reset_shape(size(6)) and turned.array().tolist() == list(range(6))
    assert not turned.reset_shape(size(7)) and not turned.reset_shape(size(-2, -3))


def test_shapes_beyond_64_bits(calls: Calls) -> None:
    """2^33 x 2^33 elements are not 0 of them."""
    empty = calls.tensor(np.zeros((0, 3), F))
    assert not empty.reset_shape(size(1 << 33, 1 << 33))
    for shape, strides in (((1 << 33, 1 << 33), None), ((1 << 62, 4), None), ((2, 2), (1 << 62, 1 << 62))):
        steps = None if strides is None else size(*strides)
        with pytest.raises(DiopiError, match="no device memory"):
            diopiTensor(size(*shape), steps, Dtype.float32, Device.AIChip, calls.context)


def test_null_addresses_of_the_host(calls: Calls) -> None:
    stream, block = runtime.device_make_stream(), runtime.device_malloc(8)
    for copy, places in (
        (runtime.device_memcpy_h2d_async, (block, 0)),
        (runtime.device_memcpy_d2h_async, (0, block)),
    ):
        assert copy(stream, *places, 8) is Error.diopi_error_occurred
        assert "a null address of the host" in runtime.get_last_error_string()
        assert not copy(stream, *places, 0)
    assert not runtime.device_synchronize_stream(stream)
    for device in (Device.AIChip, Device.Host):
        with pytest.raises(DiopiError, match="a null address"):
            diopiTensor(size(2), None, Dtype.float32, device, calls.context, 0)
        tensor = diopiTensor(size(2), None, Dtype.float32, device, calls.context)
        with pytest.raises(DiopiError, match="a null address"):
            tensor.read(0)


def test_a_destroyed_stream(calls: Calls) -> None:
    """It can neither be destroyed again, nor waited for, nor used."""
    stream, block = runtime.device_make_stream(), runtime.device_malloc(8)
    source = np.zeros(8, np.uint8)
    assert not runtime.device_destroy_stream(stream)
    for call in (
        lambda: runtime.device_destroy_stream(stream),
        lambda: runtime.device_synchronize_stream(stream),
        lambda: runtime.device_memcpy_h2d_async(stream, block, source.ctypes.data, 8),
    ):
        assert call() is Error.diopi_error_occurred
        assert "the stream was destroyed" in runtime.get_last_error_string()


PRINTED = json.loads(FILE.read_text())["cases"]


def test_the_values_belong_to_the_cases() -> None:
    assert [(name, text) for name, _, text in cases()] == [(row[0], row[1]) for row in PRINTED]


@pytest.mark.parametrize(
    "number", range(len(PRINTED)), ids=[f"{n}-{row[0]}" for n, row in enumerate(PRINTED)]
)
def test_printed_value(calls: Calls, number: int) -> None:
    """Moved elements and integers are the same; functions and sums of reals have some units of rounding."""
    name, arguments, _ = cases()[number]
    _, _, dtype, shape, elements = PRINTED[number]
    given: list[Any] = []
    for one in arguments:
        array = array_of(one)
        if array is not None:
            given.append(array)
        elif isinstance(one, list):
            given.append(size(*one))
        else:
            given.append(scalar(one) if name.endswith("Scalar") else one)
    found = calls.compute(name, shape, *given, dtype=np.dtype(dtype))
    want = np.array(elements, dtype).reshape(shape)
    if np.dtype(dtype).kind == "f":
        close = 1e-14 if dtype == "float64" else 2e-6
        largest = float(np.abs(want[np.isfinite(want)]).max(initial=0))
        rounded = close * largest * (1 if name == "UpsampleLinear" else 0.01)
        np.testing.assert_allclose(found, want, close, rounded)
    else:
        np.testing.assert_array_equal(found, want)


def test_every_operator_has_a_value() -> None:
    """No operator is without a number or a definition of somebody else."""
    files = ("tests/unit/test_diopi.py", "tests/system/test_diopi.py", __file__)
    text = "".join((ROOT / name).read_text() for name in files)
    known = {row[0] for row in PRINTED} | {name for name, *_ in VALUES}
    names = {name.removeprefix("diopi") for name in OPERATORS}
    names = {name for name in names if not name.endswith(("Inp", "InpScalar"))}
    assert {name for name in names - known if name not in text} == set()


def test_stacked_and_filled(calls: Calls) -> None:
    """torch.stack, torch.ones, torch.zeros and Tensor.fill_."""
    parts = [TensorP(calls.tensor(np.array(one, F))) for one in ([1, 2], [3, 4], [5, 6])]
    np.testing.assert_array_equal(
        calls.compute("Stack", (2, 3), parts, 3, 1, dtype=F), [[1, 3, 5], [2, 4, 6]]
    )
    np.testing.assert_array_equal(calls.compute("Ones", (2,), size(2), dtype=np.int32), [1, 1])
    np.testing.assert_array_equal(calls.compute("Zeros", (2,), size(2), dtype=F), [0, 0])
    filled = calls.tensor(np.zeros(2, H))
    assert not calls.result("Fill", filled, scalar(0.1))[0]
    assert filled.array().tolist() == [0.0999755859375] * 2


def test_indices_of_pools(calls: Calls) -> None:
    """max_pool2d and adaptive_max_pool2d with return_indices; padding is never the largest element."""
    x = calls.tensor(np.array((np.arange(20) * 37 % 101 - 50).reshape(1, 1, 4, 5) / 8, F))
    out, places = calls.empty((1, 1, 5, 3), F), calls.empty((1, 1, 5, 3), np.int64)
    words = (size(2, 3), size(1, 2), size(1, 1), size(1, 1), False)
    assert not calls.result("MaxPool2dWithIndices", out, places, x, *words)[0]
    assert places.array().reshape(-1).tolist() == [1, 2, 4, 5, 8, 8, 5, 8, 8, 16, 16, 19, 16, 16, 19]
    assert out.array()[0, 0, :2].tolist() == [[-1.625, 3.0, -0.375], [4.25, 5.5, 5.5]]
    out, places = calls.empty((1, 1, 2, 3), F), calls.empty((1, 1, 2, 3), np.int64)
    assert not calls.result("AdaptiveMaxPool2dWithIndices", out, places, x, size(2, 3))[0]
    assert places.array().reshape(-1).tolist() == [5, 8, 8, 16, 16, 19]
    assert out.array().reshape(-1).tolist() == [4.25, 5.5, 5.5, 4.625, 4.625, 5.875]
