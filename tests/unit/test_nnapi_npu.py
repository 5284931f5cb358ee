"""Operations of NNAPI on the NPU (golden model): where they run, and their results against plain loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.nnapi.emit import DATA, EMITTERS
from rkcosim.apis.nnapi.model import Model
from rkcosim.apis.nnapi.native import NativeTensor
from rkcosim.apis.nnapi.npu import MOST_KEPT
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.apis.nnapi.prepared import Prepared, prepare
from rkcosim.apis.nnapi.segments import View, natural
from rkcosim.apis.nnapi.values import ExecutionError
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings
from tests.makers.nnapi_models import F16, F32, I32, S8, U8, Builder, T, codes, conv_model, naive_conv

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def golden() -> Iterator[Machine]:
    """A device of the golden model."""
    machine = open_machine(Settings(engine="golden"))
    yield machine
    machine.close()


def places(prepared: Prepared) -> list[str]:
    """Return where each operation ran."""
    return [record.place for record in prepared.account.operations]


def run(machine: Machine, model: Model, *arrays: Array) -> Array:
    """Execute a model of which every operation must be on the NPU; return the first output."""
    with prepare(model, machine=machine) as prepared:
        made = prepared.execute(arrays)
        reasons = [record.reason for record in prepared.account.operations]
        assert set(places(prepared)) == {"npu"}, reasons
        return np.asarray(made[0])


def check(found: Array, reals: Array, scale: float, zero: int, kind: T) -> None:
    """Compare codes with real numbers; one step is allowed."""
    expected = codes(reals, scale, zero, kind)
    assert found.shape == expected.shape and found.dtype == kind.dtype
    assert np.abs(found.astype(np.int64) - expected).max() <= 1


# -- products ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [U8, S8])
@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
def test_convolution(golden: Machine, kind: T, nchw: bool, samples: int) -> None:
    model, x, facts = conv_model(kind, size=(samples, 5, 4, 3), nchw=nchw)
    check(run(golden, model, x), naive_conv(facts), facts["scales"][2], facts["zeros"][2], kind)


@given(
    st.tuples(st.integers(1, 2), st.integers(3, 6), st.integers(3, 6), st.integers(1, 20)),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.integers(1, 20),
    st.booleans(),
    st.integers(0, 2**16),
)
@settings(deadline=None, max_examples=25)
def test_convolutions(
    size: tuple[int, int, int, int], pads: tuple[int, int, int, int], kernels: int, nchw: bool, seed: int
) -> None:
    machine = open_machine(Settings(engine="golden"))
    try:
        model, x, facts = conv_model(S8, size=size, pads=pads, kernels=kernels, nchw=nchw, seed=seed)
        check(run(machine, model, x), naive_conv(facts), facts["scales"][2], facts["zeros"][2], S8)
    finally:
        machine.close()


@pytest.mark.parametrize(("kind", "relaxed"), [(F16, False), (F32, True)])
def test_convolution_in_fp16(golden: Machine, kind: T, relaxed: bool) -> None:
    """4 units in the last place of the largest partial sum, which is below that of all magnitudes."""
    model, x, facts = conv_model(kind, relaxed=relaxed)
    found = run(golden, model, x)
    bounds = naive_conv({**facts, **{key: np.abs(facts[key]) for key in ("x", "weights", "bias")}})
    assert found.dtype == kind.dtype
    assert (np.abs(found - naive_conv(facts)) <= 4 * 2.0**-10 * bounds).all()


def test_float32_stays_on_the_host(golden: Machine) -> None:
    model, x, facts = conv_model(F32)
    with prepare(model, machine=golden) as prepared:
        (found,) = prepared.execute([x])
        assert places(prepared) == ["host"]
        assert "float32" in prepared.account.operations[0].reason
    np.testing.assert_allclose(found, naive_conv(facts), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("options", [{"npu": False}, {"float_npu": False}])
def test_the_host_alone(golden: Machine, options: dict[str, bool]) -> None:
    model, x, facts = conv_model(F16)
    with prepare(model, machine=golden, **options) as prepared:  # type: ignore[arg-type]
        (found,) = prepared.execute([x])
        assert places(prepared) == ["host"]
    np.testing.assert_allclose(found, naive_conv(facts), atol=0.05)


def test_scales_per_channel(golden: Machine) -> None:
    random = np.random.default_rng(3)
    x, w = random.integers(0, 256, (1, 4, 4, 2)), random.integers(-127, 128, (3, 1, 1, 2))
    scales = (0.5, 0.25, 0.125)
    b = Builder()
    ends = [
        b.input(U8, x.shape, 0.5, 128),
        b.constant(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, w, scales=(scales, 0)),
        b.constant(I32, [100, -100, 0]),
        *(b.scalar(n) for n in (2, 1, 1, 1)),
    ]
    b.add("CONV_2D", ends, b.output(U8, (1, 4, 4, 3), 16.0, 3))
    sums = (x - 128) @ w[:, 0, 0].T + np.array([100, -100, 0])
    reals = np.maximum(sums * 0.5 * np.array(scales), 0)
    check(run(golden, b.model(), x.astype(np.uint8)), reals, 16.0, 3, U8)


def test_depthwise_with_two_kernels_for_each_channel(golden: Machine) -> None:
    random = np.random.default_rng(4)
    x, w = random.integers(-128, 128, (2, 3, 3, 2)), random.integers(-128, 128, (1, 2, 2, 4))
    b = Builder()
    ends = [
        b.input(S8, x.shape, 0.5, 1),
        b.constant(S8, w, 0.5, -2),
        b.constant(I32, [0, 1, 2, 3], 0.25),
        *(b.scalar(n) for n in (0, 0, 0, 0, 1, 1, 2, 0)),
    ]
    b.add("DEPTHWISE_CONV_2D", ends, b.output(S8, (2, 2, 2, 4), 64.0, 0))
    reals = np.zeros((2, 2, 2, 4))
    for n, row, column, kernel in np.ndindex(*reals.shape):
        window = x[n, row : row + 2, column : column + 2, kernel // 2] - 1
        reals[n, row, column, kernel] = ((window * (w[0, :, :, kernel] + 2)).sum() + kernel) * 0.25
    check(run(golden, b.model(), x.astype(np.int8)), reals, 64.0, 0, S8)


def test_groups(golden: Machine) -> None:
    random = np.random.default_rng(5)
    x, w = random.integers(-128, 128, (1, 2, 2, 4)), random.integers(-128, 128, (4, 1, 1, 2))
    b = Builder()
    ends = [b.input(S8, x.shape, 0.5), b.constant(S8, w, 0.5), b.constant(I32, [0] * 4, 0.25)]
    ends += [b.scalar(n) for n in (2, 1, 1, 2, 0)] + [b.scalar(False)]
    b.add("GROUPED_CONV_2D", ends, b.output(S8, (1, 2, 2, 4), 64.0, 5))
    parts = [x[..., 2 * g : 2 * g + 2] @ w[2 * g : 2 * g + 2, 0, 0].T for g in (0, 1)]
    check(run(golden, b.model(), x.astype(np.int8)), np.concatenate(parts, -1) * 0.25, 64.0, 5, S8)


def test_transposed_convolution(golden: Machine) -> None:
    random = np.random.default_rng(6)
    x, w = random.integers(-128, 128, (1, 3, 3, 2)), random.integers(-128, 128, (3, 3, 3, 2))
    b = Builder()
    ends = [b.input(S8, x.shape, 0.5), b.constant(S8, w, 0.5), b.constant(I32, [10, 0, -10], 0.25)]
    ends += [b.scalar(n) for n in (1, 0, 0, 1, 2, 2, 0)] + [b.scalar(False)]
    b.add("TRANSPOSE_CONV_2D", ends, b.output(S8, (1, 6, 6, 3), 64.0, 0))
    full = np.zeros((7, 7, 3))
    for i, j in np.ndindex(3, 3):
        full[2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += np.einsum("c,okmc->kmo", x[0, i, j], w)
    reals = (full[:6, 1:] + np.array([10, 0, -10])) * 0.25  # left and bottom are cut
    check(run(golden, b.model(), x.astype(np.int8)), reals[None], 64.0, 0, S8)


def test_weights_as_inputs(golden: Machine) -> None:
    """Other weights give other results; the same ones are not compiled again."""
    b = Builder()
    ends = [b.input(U8, (2, 8), 0.5, 128), b.input(U8, (4, 8), 0.25, 100), b.input(I32, (4,), 0.125)]
    b.add("FULLY_CONNECTED", [*ends, b.scalar(0)], b.output(U8, (2, 4), 32.0, 128))
    random = np.random.default_rng(7)
    x = random.integers(0, 256, (2, 8))
    with prepare(b.model(), machine=golden) as prepared:
        for seed in (1, 2, 1):
            w = np.random.default_rng(seed).integers(0, 256, (4, 8))
            (found,) = prepared.execute(
                [x.astype(np.uint8), w.astype(np.uint8), np.arange(4, dtype=np.int32)]
            )
            reals = ((x - 128) @ (w - 100).T + np.arange(4)) * 0.125
            check(found, reals, 32.0, 128, U8)
        assert places(prepared) == ["npu"]
        assert len(golden._open) == 2
        for seed in range(3, 9):
            w = np.random.default_rng(seed).integers(0, 256, (4, 8))
            prepared.execute([x.astype(np.uint8), w.astype(np.uint8), np.arange(4, dtype=np.int32)])
        assert len(golden._open) == MOST_KEPT
    assert not golden._open


# -- elements, pools, movements ---------------------------------------------------------------------------


def single(
    kind: str,
    x: Array,
    more: list[Any],
    scale: float,
    zero: int,
    result: tuple[float, int],
    shape: tuple[int, ...],
) -> Model:
    """Return a model with one operation on signed bytes with further scalars."""
    b = Builder()
    ends = [b.input(S8, x.shape, scale, zero)]
    ends += [n if callable(n) else b.scalar(n) for n in more]
    ends = [end(b) if callable(end) else end for end in ends]
    b.add(kind, ends, b.output(S8, shape, *result))
    return b.model()


X = np.random.default_rng(8).integers(-128, 128, (1, 4, 4, 3)).astype(np.int8)
REAL = (X.astype(np.float64) - 3) * 0.0625


@pytest.mark.parametrize(
    ("kind", "function", "result"),
    [
        ("RELU", lambda x: np.maximum(x, 0), (0.0625, -100)),
        ("RELU1", lambda x: np.clip(x, -1, 1), (0.0625, 3)),
        ("RELU6", lambda x: np.clip(x, 0, 6), (0.0625, 3)),
        ("LOGISTIC", lambda x: 1 / (1 + np.exp(-x)), (1 / 256, -128)),
        ("TANH", np.tanh, (1 / 128, 0)),
        ("HARD_SWISH", lambda x: x * np.clip(x + 3, 0, 6) / 6, (0.0625, 3)),
    ],
)
def test_functions(golden: Machine, kind: str, function: Any, result: tuple[float, int]) -> None:
    found = run(golden, single(kind, X, [], 0.0625, 3, result, X.shape), X)
    check(found, function(REAL), *result, S8)


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"])
@pytest.mark.parametrize("shape", [(2, 4, 4, 3), (1, 1, 1, 3), (3,), (1,), (2, 1, 1, 1)])
def test_two_operands(golden: Machine, kind: str, shape: tuple[int, ...]) -> None:
    """The smaller operand is the first one too, and a batch of 2."""
    big = np.random.default_rng(9).integers(0, 256, (2, 4, 4, 3))
    small = np.random.default_rng(10).integers(0, 256, shape)
    function = {
        "ADD": np.add,
        "SUB": np.subtract,
        "MUL": np.multiply,
        "MAXIMUM": np.maximum,
        "MINIMUM": np.minimum,
    }
    for first, second in ((big, small), (small, big)):
        b = Builder()
        ends = [b.input(U8, first.shape, 0.125, 128), b.input(U8, second.shape, 0.0625, 100)]
        ends += [b.scalar(0)] if kind in ("ADD", "SUB", "MUL") else []
        b.add(kind, ends, b.output(U8, (2, 4, 4, 3), 0.5, 120))
        found = run(golden, b.model(), first.astype(np.uint8), second.astype(np.uint8))
        reals = function[kind]((first - 128) * 0.125, (second - 100) * 0.0625)
        check(found, reals, 0.5, 120, U8)


def test_pools(golden: Machine) -> None:
    pads = [1, 0, 0, 1, 2, 2, 2, 2, 0]
    model = single("MAX_POOL_2D", X, pads, 0.0625, 3, (0.0625, 3), (1, 2, 2, 3))
    padded = np.pad(X.astype(int), [(0, 0), (0, 1), (1, 0), (0, 0)], constant_values=-999)
    expected = [
        [padded[0, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max(axis=(0, 1)) for j in range(2)] for i in range(2)
    ]
    np.testing.assert_array_equal(run(golden, model, X)[0], expected)
    model = single("AVERAGE_POOL_2D", X, [2, 2, 2, 2, 2, 0], 0.0625, 3, (0.0625, 3), (1, 2, 2, 3))
    check(run(golden, model, X), REAL.reshape(1, 2, 2, 2, 2, 3).mean(axis=(2, 4)), 0.0625, 3, S8)


def test_movements(golden: Machine) -> None:
    b = Builder()
    ends = [b.input(S8, X.shape, 0.0625, 3), b.scalar(2)]
    b.add("SPACE_TO_DEPTH", ends, b.output(S8, (1, 2, 2, 12), 0.0625, 3))
    expected = X.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 2, 12)
    np.testing.assert_array_equal(run(golden, b.model(), X), expected)
    b = Builder()
    ends = [b.input(S8, X.shape, 0.0625, 3)] + [
        b.constant(I32, n) for n in ((0, 1, 0, 1), (1, 4, 4, 3), (1, 2, 1, 1))
    ]
    b.add("STRIDED_SLICE", ends + [b.scalar(0)] * 3, b.output(S8, (1, 2, 4, 2), 0.0625, 3))
    np.testing.assert_array_equal(run(golden, b.model(), X), X[:, 1::2, :, 1:])
    b = Builder()
    ends = [b.input(S8, X.shape, 0.0625, 3), b.scalar(8), b.scalar(8), b.scalar(False)]
    b.add("RESIZE_NEAREST_NEIGHBOR", ends, b.output(S8, (1, 8, 8, 3), 0.0625, 3))
    np.testing.assert_array_equal(run(golden, b.model(), X), X.repeat(2, 1).repeat(2, 2))
    b = Builder()
    ends = [b.input(S8, X.shape, 0.0625, 3), b.input(S8, X.shape, 0.125, 0), b.scalar(3)]
    b.add("CONCATENATION", ends, b.output(S8, (1, 4, 4, 6), 0.0625, 3))
    half = (X // 4).astype(np.int8)
    check(run(golden, b.model(), X, half), np.concatenate([REAL, half * 0.125], -1), 0.0625, 3, S8)


# -- runs of operations -----------------------------------------------------------------------------------


def chain(samples: int = 1) -> tuple[Model, list[Array], Array]:
    """Return convolution, ReLU6, pool, addition, and SOFTMAX on the host; its input; the reals of the sum."""
    random = np.random.default_rng(11)
    x, w = random.integers(-128, 128, (samples, 4, 4, 8)), random.integers(-128, 128, (8, 1, 1, 8))
    b = Builder()
    a = [b.between(S8, (samples, 4, 4, 8), 0.0625, -20) for _ in range(2)]
    pooled = b.between(S8, (samples, 2, 2, 8), 0.0625, -20)
    ends = [b.input(S8, x.shape, 0.125), b.constant(S8, w, 0.015625), b.constant(I32, [0] * 8, 0.001953125)]
    b.add("CONV_2D", ends + [b.scalar(n) for n in (1, 1, 1, 0)], a[0])
    b.add("RELU6", [a[0]], a[1])
    b.add("MAX_POOL_2D", [a[1], *(b.scalar(n) for n in (2, 2, 2, 2, 2, 0))], pooled)
    total = b.output(S8, (samples, 2, 2, 8), 0.125, 0)
    b.add("ADD", [pooled, pooled, b.scalar(0)], total)
    b.add("SOFTMAX", [total, b.scalar(1.0)], b.output(S8, (samples, 2, 2, 8), 1 / 256, -128))
    reals = np.clip((x @ w[:, 0, 0].T) * 0.001953125, 0, 6)
    reals = reals.reshape(samples, 2, 2, 2, 2, 8).max(axis=(2, 4)) * 2
    return b.model(), [x.astype(np.int8)], reals


@pytest.mark.parametrize("samples", [1, 2])
def test_a_run_of_operations_is_one_network(golden: Machine, samples: int) -> None:
    model, inputs, reals = chain(samples)
    with prepare(model, machine=golden) as prepared:
        for _ in range(2):
            total, chances = prepared.execute(inputs)
        assert places(prepared) == ["npu"] * 4 + ["host"]
        assert "no such operation" in prepared.account.operations[4].reason
        assert [record.executions for record in prepared.account.operations] == [2] * 5
        assert len(golden._open) == 1
        said = prepared.account.lines()
        assert said[0].startswith("2 executions, ") and said[1].startswith("  0 CONV_2D: NPU, ")
        assert said[5] == "  4 SOFTMAX: host, the NPU has no such operation"
        assert prepared.account.as_json()["operations"][1]["place"] == "npu"
        bytes_of_one = samples * (4 * 4 * 16 + 2 * 2 * 16)
        assert prepared.account.bytes_converted == 2 * bytes_of_one
    assert np.abs(total - codes(reals, 0.125, 0, S8)).max() <= 1
    assert chances.shape == (samples, 2, 2, 8)
    assert not golden._open


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("flat", [False, True])
def test_a_classifier_is_one_network(golden: Machine, nchw: bool, samples: int, flat: bool) -> None:
    """Pool, RESHAPE to rows (of one pixel, or of a whole map), matrix, and RELU."""
    random = np.random.default_rng(13)
    size = 4 if flat else 2
    x = random.integers(-128, 128, (samples, 5, size, size) if nchw else (samples, size, size, 5))
    side = size // 2
    depth = 5 * side * side
    w = random.integers(-128, 128, (7, depth))
    b = Builder()
    pooled = b.between(S8, (samples, 5, side, side) if nchw else (samples, side, side, 5), 0.5, 1)
    rows, product = b.between(S8, (samples, depth), 0.5, 1), b.between(S8, (samples, 7), 32.0, 2)
    ends = [b.input(S8, x.shape, 0.5, 1), *(b.scalar(n) for n in (2, 2, 2, 2, 2, 0)), b.scalar(nchw)]
    b.add("MAX_POOL_2D", ends, pooled)
    b.add("RESHAPE", [pooled, b.constant(I32, [samples, depth])], rows)
    ends = [rows, b.constant(S8, w, 0.25), b.constant(I32, range(7), 0.125), b.scalar(0)]
    b.add("FULLY_CONNECTED", ends, product)
    b.add("RELU", [product], b.output(S8, (samples, 7), 32.0, 2))
    cut = x.reshape(samples, 5, side, 2, side, 2) if nchw else x.reshape(samples, side, 2, side, 2, 5)
    flattened = cut.max(axis=(3, 5) if nchw else (2, 4)).reshape(samples, depth)
    reals = np.maximum(((flattened - 1) @ w.T + np.arange(7)) * 0.125, 0)
    check(run(golden, b.model(), x.astype(np.int8)), reals, 32.0, 2, S8)
    assert not golden._open


@pytest.mark.parametrize("samples", [1, 2])
def test_mean_without_its_axes(golden: Machine, samples: int) -> None:
    """The mean of maps is a matrix (samples, channels) for the operations behind it."""
    x = np.random.default_rng(14).integers(-128, 128, (samples, 4, 4, 6))
    b = Builder()
    mean, total = b.between(S8, (samples, 6), 0.5), b.between(S8, (samples, 6), 0.5)
    b.add("MEAN", [b.input(S8, x.shape, 0.5), b.constant(I32, [1, 2]), b.scalar(0)], mean)
    b.add("ADD", [mean, b.constant(S8, [[8]], 0.5), b.scalar(0)], total)
    b.add("RELU", [total], b.output(S8, (samples, 6), 0.5))
    reals = np.maximum(x.mean(axis=(1, 2)) * 0.5 + 4, 0)
    check(run(golden, b.model(), x.astype(np.int8)), reals, 0.5, 0, S8)


def test_shapes_decide_unknown_dimensions(golden: Machine) -> None:
    b = Builder()
    b.add("RELU", [b.input(S8, (0, 0, 0, 3), 0.5, 1)], b.output(S8, (0, 0, 0, 3), 0.5, 1))
    with prepare(b.model(), machine=golden) as prepared:
        for shape in ((1, 2, 2, 3), (2, 1, 5, 3)):
            x = np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)
            (found,) = prepared.execute([x])
            np.testing.assert_array_equal(found, np.maximum(x, 1))
        assert places(prepared) == ["npu"]


# -- native tensors ---------------------------------------------------------------------------------------


def relu(channels: int) -> Model:
    """Return RELU of signed bytes."""
    b = Builder()
    b.add("RELU", [b.input(S8, (1, 3, 3, channels), 0.5, 1)], b.output(S8, (1, 3, 3, channels), 0.5, 1))
    return b.model()


def test_native_tensors_are_not_converted(golden: Machine) -> None:
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 3, 20)).astype(np.int8)
    with prepare(relu(20), machine=golden) as first, prepare(relu(20), machine=golden) as second:
        (native,) = first.execute([x], native=[0])
        assert isinstance(native, NativeTensor)
        assert (native.shape, native.dtype, native.nbytes) == ((1, 3, 3, 20), np.int8, 2 * 9 * 16)
        np.testing.assert_array_equal(native.to_numpy(), np.maximum(x, 1))
        assert (first.account.bytes_converted, first.account.bytes_unconverted) == (288, 288)
        (made,) = second.execute([native])
        np.testing.assert_array_equal(made, np.maximum(x, 1))
        assert (second.account.bytes_converted, second.account.bytes_unconverted) == (288, 288)
        native.free()


def test_native_tensor_for_the_host(golden: Machine) -> None:
    """An operation of the host gets the array; an input of another quantisation is refused."""
    model, inputs, _ = chain()
    b = Builder()
    ends = [b.input(S8, (1, 2, 2, 8), 0.125, 0), b.constant(I32, [0, 3, 1, 2])]
    b.add("TRANSPOSE", ends, b.output(S8, (1, 8, 2, 2), 0.125, 0))
    with prepare(model, machine=golden) as first, prepare(b.model(), machine=golden) as second:
        total, _ = first.execute(inputs, native=[0])
        assert not isinstance(total, NativeTensor)  # SOFTMAX reads it on the host
        with prepare(relu(8), machine=golden) as other:
            (native,) = other.execute([np.zeros((1, 3, 3, 8), np.int8)], native=[0])
            with pytest.raises(ExecutionError, match="another quantisation"):
                second.execute([native])
            native.free()
        np.testing.assert_array_equal(second.execute([total])[0], total.transpose(0, 3, 1, 2))


# -- views ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.booleans())
@settings(deadline=None, max_examples=60)
def test_views_are_reversible(shape: list[int], nchw: bool) -> None:
    array = np.arange(np.prod(shape)).reshape(shape)
    view = View(array.shape, "nchw") if nchw and array.ndim == 4 else natural(array.shape)
    cubes = view.cubes(array)
    assert cubes.shape == (view.samples, *view.cube)
    np.testing.assert_array_equal(view.array(cubes), array)


def test_emitters_are_operations() -> None:
    assert set(EMITTERS) <= {kind.name for kind in OperationType}
    assert set(DATA) == set(EMITTERS)
