"""Operations of Hexagon NN on the host, against results that were computed by hand from their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rkcosim.apis.hexagon.arithmetic import Adder, Quotient, Range, with_zero, with_zero_between
from rkcosim.apis.hexagon.geometry import Padding, geometry
from rkcosim.apis.hexagon.tensors import Failure, value
from tests.makers.hexagon_graphs import run_node, scalar, shape_only, whole

F, U, WIDE = np.float32, np.uint8, np.int32


def reals(found: object) -> list[float]:
    """Return the float32 of a tensor as a list."""
    return [float(n) for n in found.reals.reshape(-1)]  # type: ignore[attr-defined]


# -- ranges -----------------------------------------------------------------------------------------------


def test_range_of_a_byte() -> None:
    limits = Range(-1.0, 1.55)
    assert limits.zero == 100
    assert limits.step == pytest.approx(0.01)
    assert list(limits.codes(np.array([0, 0.014, 0.016, -9, 9], F))) == [100, 101, 102, 0, 255]


def test_range_includes_zero() -> None:
    assert with_zero(0.5, 1.0) == Range(0.0, 1.0)
    assert with_zero(-2.0, -1.0) == Range(-2.0, 0.0)


def test_range_moves_the_end_that_moves_less() -> None:
    """Of -100.2 and 100, the zero point 127.63 becomes 128 by a lower minimum, -100.787."""
    limits = with_zero(-100.2, 100.0)
    assert limits.high == 100.0
    assert limits.low == pytest.approx(100 * 128 / (127 - 254), rel=1e-6)
    assert -limits.low / limits.step == pytest.approx(128, abs=1e-3)
    raised = with_zero(-100.0, 99.8)  # zero point 127.63: 127 would move the maximum by 0.99
    assert (raised.low, raised.high) == (pytest.approx(99.8 * 128 / -127, rel=1e-6), pytest.approx(99.8))


@given(st.floats(-1e4, 0), st.floats(1e-3, 1e4))
@settings(deadline=None, max_examples=200)
def test_zero_has_a_code(low: float, high: float) -> None:
    limits = with_zero(low, high)
    assert limits.low <= np.float32(low) and limits.high >= np.float32(high)
    zero = -limits.low * 255 / (limits.high - limits.low)
    assert abs(zero - round(zero)) < 2.0**-12


def test_quotient_by_hand() -> None:
    """A range of 0 to 2.55 in steps of 0.001 has 2550 steps: the code is the sum / 10, rounded."""
    codes = Quotient(0.001, Range(0.0, 2.55)).codes(np.array([-50, 0, 4, 6, 14, 16, 2550, 9999]))
    assert list(codes) == [0, 0, 0, 1, 1, 2, 255, 255]


# -- windows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("padding", "size", "kernel", "stride", "output", "before"),
    [
        (Padding.VALID, 7, 3, 2, 3, 0),
        (Padding.SAME, 7, 3, 2, 4, 1),
        (Padding.SAME, 8, 3, 2, 4, 0),  # one element of padding, after
        (Padding.SAME_CAFFE, 8, 3, 2, 4, 1),  # the same, before
        (Padding.NA, 9, 3, 2, 4, 0),
        (Padding.SAME, 5, 1, 2, 3, 0),
    ],
)
def test_padding(padding: Padding, size: int, kernel: int, stride: int, output: int, before: int) -> None:
    found = geometry(value(np.zeros((1, size, size, 1), U)), (kernel, kernel), (stride, stride), padding)
    assert found.output == (output, output)
    assert found.pads[:2] == (before, before)


def test_padding_that_does_not_fit() -> None:
    small = value(np.zeros((1, 2, 2, 1), U))
    with pytest.raises(Failure, match="too small"):
        geometry(small, (3, 3), (1, 1), Padding.VALID)
    with pytest.raises(Failure, match="MIRROR_REFLECT"):
        geometry(small, (3, 3), (1, 1), Padding.MIRROR_REFLECT)


# -- operations on bytes ----------------------------------------------------------------------------------


def test_quantize_and_back() -> None:
    codes, low, high = run_node("Quantize", [np.array([-1, 0, 0.5, 3], F), scalar(-1), scalar(1.55)], 3)
    assert list(codes.codes.reshape(-1)) == [0, 100, 150, 255]
    back = run_node("Dequantize", [codes, low, high])[0]
    assert reals(back) == pytest.approx([-1, 0, 0.5, 1.55], abs=1e-6)


def test_auto_quantize() -> None:
    codes, low, high = run_node("AutoQuantize", [np.array([0.0, 5.1, 2.0], F)], 3)
    assert (low.scalar, high.scalar) == (0.0, pytest.approx(5.1))
    assert list(codes.codes.reshape(-1)) == [0, 255, 100]


def test_convolution_by_hand() -> None:
    """2x2 windows of 3x3 codes 0..8 with zero point 1, weights 1, 2, 3, 4 with zero point 2."""
    x = np.arange(9, dtype=U).reshape(1, 3, 3, 1)
    w = np.array([1, 2, 3, 4], U).reshape(2, 2, 1, 1)
    inputs = [x, w, scalar(-1), scalar(254), scalar(-4), scalar(506), shape_only(1, 1, 1, 1)]
    sums, low, high = run_node("QuantizedConv2d_8x8to32", inputs, 3, Padding.VALID)
    # (a - 1) * -1 + (b - 1) * 0 + (c - 1) * 1 + (d - 1) * 2 for the first window 0, 1, 3, 4: 1 + 0 + 2 + 6
    assert list(sums.ints.reshape(-1)) == [9, 11, 15, 17]
    assert sums.shape == (1, 2, 2, 1)
    assert high.scalar == pytest.approx(2.0 * 2**31)  # steps of 1 and 2
    assert low.scalar == pytest.approx(-2.0 * 2**31)
    padded = run_node("QuantizedConv2d_8x8to32", inputs, 3, Padding.SAME)[0]
    assert padded.shape == (1, 3, 3, 1)
    assert padded.ints[0, 2, 2, 0] == -7  # only the input 8 is inside, with the weight -1


def test_depthwise_by_hand() -> None:
    """Two channels with two kernels of one element each: weights 3, 4 and 5, 6 less the zero point 1."""
    x = np.array([10, 20], U).reshape(1, 1, 1, 2)
    w = np.array([3, 4, 5, 6], U).reshape(1, 1, 2, 2)
    inputs = [x, w, scalar(0), scalar(255), scalar(-1), scalar(254), shape_only(1, 1, 1, 1)]
    sums = run_node("QuantizedDepthwiseConv2d_8x8to32", inputs, 3, Padding.SAME)[0]
    assert list(sums.ints.reshape(-1)) == [20, 30, 80, 100]


def test_matrix_product_by_hand() -> None:
    a, b = np.array([[1, 2], [3, 4]], U), np.array([[5, 6], [7, 8]], U)
    inputs = [a, b, scalar(0), scalar(255), scalar(-5), scalar(250)]
    sums = run_node("QuantizedMatMul_8x8to32", inputs, 3)[0]
    assert sums.ints.reshape(2, 2).tolist() == [[4, 7], [8, 15]]


def test_biases_by_hand() -> None:
    """A bias of 0.5 and -0.25 in steps of 2^-10, added to sums with steps of 2^-8."""
    wide = [scalar(-(2.0**23)), scalar(2.0**23)]
    bias = [scalar(-(2.0**21)), scalar(2.0**21)]
    x, b = np.array([100, 100], WIDE), np.array([512, -256], WIDE)
    found = run_node("QuantizedBiasAdd_32p32to32", [x, b, *wide, *bias], 3)
    assert list(found[0].ints.reshape(-1)) == [228, 36]
    assert (found[1].scalar, found[2].scalar) == (-(2.0**23), 2.0**23)
    bytes_ = [np.array([3, 5], U), np.array([7, 9], U), scalar(0), scalar(255), scalar(0), scalar(255)]
    total, low, high = run_node("QuantizedBiasAdd_8p8to32", bytes_, 3)
    step = (high.scalar - low.scalar) / 2.0**32
    assert [n * step for n in total.ints.reshape(-1)] == pytest.approx([10, 14], abs=step)


def test_requantize_by_hand() -> None:
    """Sums with a step of 0.01 to a range of -1 to 1.55: code = sum + 100."""
    wide = [scalar(-0.01 * 2**31), scalar(0.01 * 2**31)]
    inputs = [np.array([-200, -100, 0, 7, 155, 300], WIDE), *wide, scalar(-1), scalar(1.55)]
    codes, low, high = run_node("Requantize_32to8", inputs, 3)
    assert list(codes.codes.reshape(-1)) == [0, 0, 100, 107, 255, 255]
    assert (low.scalar, high.scalar) == (-1.0, pytest.approx(1.55))


def test_ranges_found_in_the_data() -> None:
    wide = [scalar(-0.01 * 2**31), scalar(0.01 * 2**31)]
    x = np.array([-100, 0, 155], WIDE)
    low, high = run_node("RequantizationRange_32", [x, *wide], 2)
    assert (low.scalar, high.scalar) == (pytest.approx(-1), pytest.approx(1.55))
    codes, low, high = run_node("QuantizeDownAndShrinkRange_32to8", [x, *wide], 3)
    assert list(codes.codes.reshape(-1)) == [0, 100, 255]
    positive = run_node("QuantizeDownAndShrinkRange_32to8", [np.array([50, 100], WIDE), *wide], 3)
    assert positive[1].scalar == 0.0  # the range includes 0
    assert list(positive[0].codes.reshape(-1)) == [128, 255]


def test_activations() -> None:
    x, limits = np.array([0, 99, 100, 180, 255], U), [scalar(-1), scalar(1.55)]
    assert list(run_node("QuantizedRelu_8", [x, *limits], 3)[0].codes.reshape(-1)) == [
        100,
        100,
        100,
        180,
        255,
    ]
    capped = run_node("QuantizedReluX_8", [x, *limits, scalar(0.5)], 3)[0]
    assert list(capped.codes.reshape(-1)) == [100, 100, 100, 150, 150]
    clamped = run_node("QuantizedClamp_8", [x, *limits, scalar(-0.5), scalar(0.5)], 3)[0]
    assert list(clamped.codes.reshape(-1)) == [50, 99, 100, 150, 150]


def test_pooling_by_hand() -> None:
    x = np.arange(1, 10, dtype=U).reshape(1, 3, 3, 1)
    rest = [scalar(0), scalar(1), shape_only(1, 2, 2, 1), shape_only(1, 2, 2, 1)]
    largest = run_node("QuantizedMaxPool_8", [x, *rest], 3, Padding.SAME)[0]
    assert largest.codes.reshape(-1).tolist() == [5, 6, 8, 9]
    mean = run_node("QuantizedAvgPool_8", [x, *rest], 3, Padding.SAME)[0]
    # of 1 2 4 5, 3 6, 7 8, and 9 alone: valid elements only, halves up; 32768 is limited to 32767
    assert mean.codes.reshape(-1).tolist() == [3, 5, 8, 9]


def test_concat_of_two_ranges() -> None:
    """The codes of 0..1 become those of 0..2: half of them, rounded."""
    a, b = np.array([0, 100, 255], U), np.array([0, 100, 255], U)
    inputs = [whole(3), a, b, scalar(0), scalar(0), scalar(1), scalar(2)]
    found = run_node("QuantizedConcat_8", inputs, 3)
    assert found[0].codes.reshape(-1).tolist() == [0, 50, 128, 0, 100, 255]
    assert (found[1].scalar, found[2].scalar) == (0.0, 2.0)


def test_elementwise_by_hand() -> None:
    limits = [scalar(0), scalar(255)] * 2
    a, b = np.array([10, 200], U), np.array([20, 3], U)
    total, low, high = run_node("QuantizedAdd_8p8to8", [a, b, *limits], 3)
    assert (low.scalar, high.scalar) == (0.0, 510.0)
    assert total.codes.reshape(-1).tolist() == [15, 102]  # 30 and 203 in steps of 2: halves up
    given_range = run_node("QuantizedAdd_8p8to8", [a, b, *limits, scalar(0), scalar(255)], 3)[0]
    assert given_range.codes.reshape(-1).tolist() == [30, 203]
    product, low, high = run_node("QuantizedMul_8x8to32", [a, b, *limits], 3)
    assert product.ints.reshape(-1).tolist() == [200 * 128, 600 * 128]
    assert product.ints.reshape(-1)[0] * high.scalar / 2**31 == pytest.approx(200)
    wide, low, high = run_node("QuantizedSub_8p8to32", [a, b, *limits], 3)
    assert wide.ints.reshape(-1).tolist() == [-10 * 0x7F80, 197 * 0x7F80]
    assert wide.ints.reshape(-1)[0] * high.scalar / 2**31 == pytest.approx(-10)


def test_both_ends_are_kept() -> None:
    """A zero point of 127.63 becomes 128 by moving both ends; one of 20.4 becomes 20 by the lower end."""
    moved = with_zero_between(-100.2, 100.0)
    assert moved.high - moved.low == pytest.approx(200.2, rel=1e-6)
    assert -moved.low * 255 / 200.2 == pytest.approx(128, abs=1e-3)
    lower = with_zero_between(-20.4, 234.6)
    assert (lower.low, lower.high) == (pytest.approx(-234.6 * 20 / 235, rel=1e-6), pytest.approx(234.6))
    assert with_zero_between(-1.0, 1.55) == Range(-1.0, pytest.approx(1.55))


def test_sums_in_integers_by_hand() -> None:
    """Steps of 1 and 2 to steps of 3: factors 1/3 and 2/3 of 2^13, rounded, with 5 fraction bits."""
    adder = Adder.of(Range(0, 255), Range(0, 510), Range(0, 765), 1)
    assert adder is not None
    assert (adder.first, adder.second, adder.early, adder.late, adder.offset) == (2731, 5461, 8, 5, 0)
    a, b = np.array([3, 1, 255], U), np.array([3, 1, 255], U)
    # (3 * 2731 + 3 * 5461) >> 8 = 96, (96 + 16) >> 5 = 3
    assert adder.codes(a, b).tolist() == [3, 1, 255]
    inputs = [a, b, scalar(0), scalar(255), scalar(0), scalar(510), scalar(0), scalar(765)]
    assert run_node("QuantizedAdd_8p8to8", inputs, 3)[0].codes.reshape(-1).tolist() == [3, 1, 255]
    assert Adder.of(Range(0, 255), Range(0, 255), Range(0, 0.01), 1) is None


@given(st.integers(0, 2**31 - 1), st.sampled_from([-1, 1]))
@settings(deadline=None, max_examples=100)
def test_sums_in_integers_are_near_the_real_ones(seed: int, sign: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = (with_zero(-rng.uniform(0.1, 5), rng.uniform(0.1, 5)) for _ in range(2))
    wanted = with_zero(-rng.uniform(1, 12), rng.uniform(1, 12))
    a, b = rng.integers(0, 256, (2, 500), dtype=U)
    adder = Adder.of(first, second, wanted, sign)
    assert adder is not None
    assume(abs(adder.offset) < 2**15 - 1)  # nnlib saturates it to 16 bits, for very lopsided ranges
    real = wanted.codes(first.reals(a) + sign * second.reals(b))
    assert np.abs(adder.codes(a, b).astype(int) - real.astype(int)).max() <= 1


def test_softmax_and_curves() -> None:
    limits = [scalar(0), scalar(2.55)]
    codes = run_node("QuantizedSoftmax_8", [np.array([0, 0, 100], U), *limits], 3)[0]
    parts = np.array([1, 1, np.e]) / (2 + np.e)
    assert codes.codes.reshape(-1).tolist() == [round(255 * n) for n in parts]
    curve, low, high = run_node("QuantizedSigmoid_8", [np.array([0, 100], U), *limits], 3)
    assert curve.codes.reshape(-1).tolist() == [128, round(255 / (1 + np.exp(-1)))]
    assert (low.scalar, high.scalar) == (0.0, 1.0)
    tanh, low, high = run_node("QuantizedTanh_8", [np.array([0, 100], U), *limits], 3)
    assert tanh.codes.reshape(-1).tolist() == [127, round((np.tanh(1) + 1) * 127)]
    assert (low.scalar, high.scalar) == (-1.0, pytest.approx(128 / 127))


def test_fused_convolution_by_hand() -> None:
    """x = 10, 20 with weights 3 and a bias of 5 in steps of 1, to 0..255."""
    x = np.array([10, 20], U).reshape(1, 1, 2, 1)
    w = np.array([3], U).reshape(1, 1, 1, 1)
    bias = [np.array([5], WIDE), scalar(-(2.0**31)), scalar(2.0**31)]
    inputs = [x, w, *[scalar(0), scalar(255)] * 2, shape_only(1, 1, 1, 1), *bias, scalar(0), scalar(255)]
    codes, low, high = run_node("Supernode_8x8p32to8", inputs, 3, Padding.SAME)
    assert codes.codes.reshape(-1).tolist() == [35, 65]
    assert (low.scalar, high.scalar) == (0.0, 255.0)
    halved = run_node("Supernode_8x8p32to8", [*inputs, scalar(0.5)], 3, Padding.SAME)[0]
    assert halved.codes.reshape(-1).tolist() == [20, 35]
    automatic = [*inputs[:10], scalar(-np.inf), scalar(np.inf)]
    found = run_node("Supernode_8x8p32to8", automatic, 3, Padding.SAME)
    assert found[2].scalar == 65.0


def ranges(*steps: float) -> list[np.ndarray]:
    """Scalars of tensors of bytes with the zero point 0, by their steps."""
    return [scalar(end * step) for step in steps for end in (0, 255)]


def test_fused_product_by_hand() -> None:
    """(1 2) * ((3 5) (4 6)) + (7 -20), to 0..255."""
    bias = [np.array([7, -20], WIDE), scalar(-(2.0**31)), scalar(2.0**31)]
    inputs = [
        np.array([1, 2], U),
        np.array([[3, 5], [4, 6]], U),
        *ranges(1, 1),
        *bias,
        scalar(0),
        scalar(255),
    ]
    assert run_node("SuperFC_8x8p32to8", inputs, 3)[0].codes.reshape(-1).tolist() == [18, 0]


def test_groups_and_dilations_by_hand() -> None:
    x = np.array([1, 10, 2, 20], U).reshape(1, 1, 2, 2)
    w, bias = np.array([2, 3], U).reshape(1, 1, 1, 2), np.zeros(2, WIDE)
    rest = [scalar(-1), scalar(1), shape_only(1, 1, 1, 1)]
    ends = [scalar(0), scalar(255)]
    grouped = [x, w, bias, *ranges(1, 1), *rest, whole(2), *ends]
    found = run_node("QuantizedGroupedConv2d_8x8p32to8", grouped, 3, Padding.SAME)[0]
    assert found.codes.reshape(2, 2).tolist() == [[2, 30], [4, 60]]
    row, ones = np.arange(1, 6, dtype=U).reshape(1, 1, 5, 1), np.ones((1, 2, 1, 1), U)
    dilated = [row, ones, np.zeros(1, WIDE), *ranges(1, 1), *rest, whole(1, 3), *ends]
    found = run_node("QuantizedDilatedConv2d_8x8p32to8", dilated, 3, Padding.VALID)[0]
    assert found.codes.reshape(-1).tolist() == [5, 7]  # 1 + 4 and 2 + 5


def test_transposed_convolution_by_hand() -> None:
    """Pixels 1 and 2, two apart, times the kernel 3 4 5: 3 4 5+6 8 10, of which both ends are cut off."""
    x, w = np.array([1, 2], U).reshape(1, 1, 2, 1), np.array([3, 4, 5], U).reshape(1, 1, 3, 1)
    bias = [np.zeros(1, WIDE), scalar(-1), scalar(1)]
    head = [x, w, *ranges(1, 1), whole(0, 0, 1, 1).reshape(2, 2), shape_only(1, 1, 2, 1)]
    inputs = [*head, *bias, scalar(0), scalar(255)]
    found = run_node("QuantizedTransposeConv2d_8x8p32to8", inputs, 3)[0]
    assert found.codes.reshape(-1).tolist() == [4, 11, 8]
    assert found.shape == (1, 1, 3, 1)


def test_reductions_of_bytes() -> None:
    x = np.array([[10, 20], [30, 50]], U)
    mean = run_node("QuantizedMean_8", [x, *ranges(1), whole(2)], 3)[0]
    assert mean.codes.reshape(-1).tolist() == [20, 35]
    total, _, high = run_node("QuantizedSum_8to32", [x, *ranges(2), whole(2, 3)], 3)
    assert total.ints.item() * high.scalar / 2**31 == pytest.approx(220)
    places = [x, whole(3), *ranges(1)]
    assert run_node("ArgMax_8toInt32", places)[0].ints.reshape(-1).tolist() == [1, 1]
    assert run_node("ArgMin_8", places)[0].ints.reshape(-1).tolist() == [0, 0]
    assert run_node("ArgMax_8", places, 3)[0].codes.reshape(-1).tolist() == [1, 1]


def test_joined_and_repeated() -> None:
    a, b = np.array([[1, 2]], U).reshape(1, 1, 1, 2), np.array([[3, 4]], U).reshape(1, 1, 1, 2)
    packed = run_node("QuantizedPack_8", [whole(2), a, b, scalar(0), scalar(0), scalar(255), scalar(255)], 3)[
        0
    ]
    assert packed.shape == (1, 1, 2, 2)
    assert packed.codes.reshape(-1).tolist() == [1, 2, 3, 4]
    tiled = run_node("QuantizedTile_8", [a, whole(2, 1), *ranges(1)], 3)[0]
    assert tiled.codes.reshape(2, 2).tolist() == [[1, 2], [1, 2]]
    quotient = [np.array([6, 9], U), np.array([3], U), *ranges(1, 1), scalar(0), scalar(255)]
    assert run_node("QuantizedDiv_8", quotient, 3)[0].codes.reshape(-1).tolist() == [2, 3]
    chosen = [np.array([1, 0], U), np.array([1, 2], F), np.array([3, 4], F)]
    assert reals(run_node("Select_f", chosen)[0]) == [1, 4]


# -- floats, int32 and movements --------------------------------------------------------------------------


def test_floats() -> None:
    a = np.array([1, -2, 3], F)
    assert reals(run_node("Relu_f", [a])[0]) == [1, 0, 3]
    assert reals(run_node("ReluX_f", [a, scalar(2)])[0]) == [1, 0, 2]
    assert reals(run_node("Mul_f", [a, scalar(2)])[0]) == [2, -4, 6]
    assert reals(run_node("Softmax_f", [np.zeros(4, F)])[0]) == [0.25] * 4
    assert reals(run_node("MatMul_f", [a.reshape(1, 3), np.ones((3, 1), F)])[0]) == [2]
    x, w = np.arange(4, dtype=F).reshape(1, 2, 2, 1), np.ones((2, 2, 1, 1), F)
    assert reals(run_node("Conv2d_f", [x, w, shape_only(1, 1, 1, 1)], 1, Padding.SAME)[0]) == [6, 4, 5, 3]
    pool = [x, shape_only(1, 2, 2, 1), shape_only(1, 1, 1, 1)]
    assert reals(run_node("AvgPool_f", pool, 1, Padding.SAME)[0]) == [1.5, 2, 2.5, 3]
    assert reals(run_node("MaxPool_f", pool, 1, Padding.VALID)[0]) == [3]


def test_lrn_by_hand() -> None:
    """1, 2, 3 in a window of three channels: x / (1 + 2 / 2 * (sum of squares))."""
    sizes = value(np.full((1, 1, 1, 3), 2, F))
    found = run_node("LRN_f", [np.array([1, 2, 3], F), sizes, scalar(1), scalar(2), scalar(1)])[0]
    assert reals(found) == pytest.approx([1 / 6, 2 / 15, 3 / 14])


def lrn_by_loops(x: np.ndarray, window: tuple[int, ...], n: float, *numbers: float) -> np.ndarray:
    """nnlib's op_lrn_f.c, element by element: (size - 1) / 2 neighbours on each side, whatever the size."""
    bias, alpha, beta = numbers
    made, reach = np.zeros_like(x, np.float64), [(size - 1) // 2 for size in window]
    for b, *at in np.ndindex(*x.shape):
        block = tuple(slice(max(p - r, 0), p + r + 1) for p, r in zip(at, reach, strict=True))
        made[(b, *at)] = x[(b, *at)] * (bias + alpha / n * (x[(b, *block)] ** 2).sum()) ** -beta
    return made


@pytest.mark.parametrize(
    "window", [(1, 1, 1), (1, 1, 2), (1, 1, 4), (2, 2, 1), (3, 4, 2), (1, 5, 6), (9, 9, 9)], ids=str
)
def test_lrn_of_any_window(window: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    x, n = rng.normal(size=(2, 3, 4, 6)).astype(F), float(np.prod(window))
    x[0, 0, 0, :2] = 0
    sizes = value(np.full((1, *window), n, F))
    found = run_node("LRN_f", [x, sizes, scalar(1.5), scalar(2), scalar(0.75)])[0]
    np.testing.assert_allclose(found.reals, lrn_by_loops(x, window, n, 1.5, 2, 0.75), 1e-5)
    codes = rng.integers(0, 256, x.shape).astype(np.uint8)
    given = [codes, scalar(-1), scalar(2), sizes, scalar(1.5), scalar(2), scalar(0.75)]
    found, low, high = run_node("QuantizedLRN_8", given, 3)
    want = lrn_by_loops(-1 + 3 / 255 * codes.astype(F), window, n, 1.5, 2, 0.75)
    assert (low.scalar, high.scalar) == pytest.approx((min(want.min(), 0), max(want.max(), 0)), rel=1e-5)
    step = (high.scalar - low.scalar) / 255
    assert np.abs(found.raw * step + low.scalar - want).max() < 0.51 * step


def test_lrn_of_zeros_and_logarithms() -> None:
    """A zero stays one, and the power of a negative number is NaN, as in op_lrn_f.c."""
    sizes = value(np.full((1, 1, 1, 1), 1, F))
    found = run_node("LRN_f", [np.array([0, 2], F), sizes, scalar(0), scalar(-1), scalar(2)])[0]
    assert reals(found)[0] == 0 and np.isnan(reals(found)[1])


def test_quantised_lrn_refuses_what_nnlib_refuses() -> None:
    """op_lrn.c: a bias below 1, a negative alpha or beta, a window whose number is below 1."""
    for number, wrong in ((3, 0.5), (4, 0.5), (5, -1.0), (6, -1.0)):
        sizes = value(np.full((1, 1, 1, 3), wrong if number == 3 else 3, F))
        given = [np.zeros(4, np.uint8), scalar(0), scalar(1), sizes, scalar(1), scalar(1), scalar(1)]
        given[number] = sizes if number == 3 else scalar(wrong)
        with pytest.raises(AssertionError, match="a window of"):
            run_node("QuantizedLRN_8", given, 3)


def test_expand_dims_copies() -> None:
    """op_expanddims.c copies the tensor with its shape, whatever is declared, as long as there is room."""
    x = np.arange(6, dtype=F).reshape(1, 1, 2, 3)
    found = run_node("ExpandDims_f", [x, whole(0)])[0]
    assert found.shape == (1, 1, 2, 3) and reals(found) == list(range(6))


def test_reductions() -> None:
    x = np.arange(6, dtype=F).reshape(1, 1, 2, 3)
    assert reals(run_node("Min_f", [x])[0]) == [0]
    assert reals(run_node("Sum_f", [x, whole(2)])[0]) == [3, 5, 7]
    assert reals(run_node("Max_f", [x, whole(1), whole(2)])[0]) == [2, 5]  # rank 2: axis 1 is the depth
    squeezed = run_node("Sum_f", [x, whole(3)], 1, Padding.VALID)[0]
    assert squeezed.shape == (1, 1, 1, 2)
    assert reals(run_node("Max_f", [x, whole(-1)])[0]) == [5]


def test_movements() -> None:
    x = np.arange(6, dtype=WIDE).reshape(1, 1, 2, 3)
    assert run_node("Transpose_int32", [x, whole(1, 0)])[0].ints.reshape(3, 2).tolist() == [
        [0, 3],
        [1, 4],
        [2, 5],
    ]
    assert run_node("Reshape", [x, whole(3, -1)])[0].shape == (1, 1, 3, 2)
    assert run_node("Slice_int32", [x, whole(1, 0), whole(-1, 2)])[0].ints.reshape(-1).tolist() == [3, 4]
    strided = run_node("StridedSlice_int32", [x, whole(0, 2), whole(2, -1), whole(1, -2)])[0]
    assert strided.ints.reshape(-1).tolist() == [2, 0, 5, 3]
    parts = run_node("Split_int32", [whole(2), x], 2)
    assert parts[1].ints.reshape(-1).tolist() == [3, 4, 5]
    assert run_node("Shape_int32", [x])[0].ints.reshape(-1).tolist() == [1, 1, 2, 3]
    pixels = np.arange(16, dtype=U).reshape(1, 4, 4, 1)
    deep = run_node("SpaceToDepth_8", [pixels, whole(2), scalar(0), scalar(1)], 3)[0]
    assert deep.shape == (1, 2, 2, 4)
    assert deep.codes[0, 0, 1].tolist() == [2, 3, 6, 7]
    back = run_node("DepthToSpace_8", [deep, whole(2), scalar(0), scalar(1)], 3)[0]
    assert (back.codes == pixels).all()
    padded = run_node(
        "QuantizedPad_8", [pixels, scalar(-1), scalar(1.55), whole(1, 0, 0, 0).reshape(2, 2)], 3
    )[0]
    assert padded.shape == (1, 4, 5, 1)  # two pairs are those of the last two axes
    assert (padded.codes[0, :, 0] == 100).all()
    blocks = run_node("SpaceToBatchND_f", [pixels.astype(F), whole(2, 2), whole(0, 0, 0, 0)])[0]
    assert blocks.shape == (4, 2, 2, 1)
    assert (run_node("BatchToSpaceND_f", [blocks, whole(2, 2), whole(0, 0, 0, 0)])[0].reals == pixels).all()


def pairs(*numbers: int) -> np.ndarray:
    """Return paddings as a tensor (1, 1, n, 2)."""
    return whole(*numbers).reshape(1, 1, -1, 2)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_paddings_belong_to_the_last_axes(count: int) -> None:
    """op_pad.c fills the missing pairs in front: n pairs are those of the last n axes."""
    x = np.arange(24, dtype=F).reshape(1, 2, 3, 4)
    given = [(1, 2), (0, 1), (2, 0), (1, 1)][:count]
    full = [(0, 0)] * (4 - count) + given
    control = pairs(*(n for pair in given for n in pair))
    np.testing.assert_array_equal(run_node("Pad_f", [x, control])[0].reals, np.pad(x, full))
    found = run_node("QuantizedPad_V2_8", [x.astype(U), scalar(0), scalar(1), control, np.array([7], U)], 3)
    np.testing.assert_array_equal(found[0].codes, np.pad(x.astype(U), full, constant_values=7))


@pytest.mark.parametrize(
    ("fill", "strict", "code"),
    [(0.0, 0, 100), (1.552, 0, 255), (np.inf, 0, 255), (-np.inf, 1, 0), (1.5, 1, 250)],
)
def test_fill_of_a_padding(fill: float, strict: int, code: int) -> None:
    """op_pad.c allows two steps beyond the range, infinities, and nothing beyond it if input 5 says so."""
    given = [np.zeros(1, U), scalar(-1), scalar(1.55), pairs(1, 0), scalar(fill), whole(strict)]
    assert run_node("QuantizedPad_8", given, 3)[0].codes.reshape(-1).tolist() == [code, 0]
    for fill, strict in ((1.6, 0), (1.552, 1), (-1.04, 0)):
        with pytest.raises(AssertionError, match="padding by"):
            run_node("QuantizedPad_8", [*given[:4], scalar(fill), whole(strict)], 3)


@pytest.mark.parametrize(
    ("mode", "name"), [(Padding.MIRROR_REFLECT, "reflect"), (Padding.MIRROR_SYMMETRIC, "symmetric")]
)
def test_mirrors(mode: Padding, name: str) -> None:
    """op_mirrorpad.c: four pairs, each smaller than its axis."""
    x = np.arange(24, dtype=F).reshape(1, 2, 3, 4)
    full, control = [(0, 0), (1, 0), (2, 1), (0, 3)], pairs(0, 0, 1, 0, 2, 1, 0, 3)
    want = np.pad(x, full, mode=name)  # type: ignore[call-overload]
    np.testing.assert_array_equal(run_node("MirrorPad_f", [x, control], 1, mode)[0].reals, want)
    found = run_node("MirrorPad_8", [x.astype(U), control, scalar(0), scalar(1)], 3, mode)[0]
    np.testing.assert_array_equal(found.codes, want.astype(U))
    for wrong in (pairs(0, 0, 2, 0, 0, 0, 0, 0), pairs(0, 0, 0, 1)):
        with pytest.raises(AssertionError, match="a mirror of"):
            run_node("MirrorPad_f", [x, wrong], 1, mode)


def test_moved_elements() -> None:
    """Transposes, slices, parts and joins of each type are numpy's."""
    x = np.arange(48).reshape(2, 2, 3, 4)
    codes, limits = x.astype(U), [scalar(0), scalar(1)]
    order = whole(0, 3, 1, 2)
    found = run_node("Transpose_8", [codes, order, *limits], 3)[0]
    np.testing.assert_array_equal(found.codes, codes.transpose(0, 3, 1, 2))
    begin, size = whole(0, 1, 0, 1), whole(2, -1, 2, 3)
    np.testing.assert_array_equal(run_node("Slice_8", [codes, begin, size])[0].codes, codes[:, 1:, :2, 1:])
    found = run_node("QuantizedSlice_8", [codes, begin, size, *limits], 3)[0]
    np.testing.assert_array_equal(found.codes, codes[:, 1:, :2, 1:])
    masks = [whole(0)] * 3
    given = [codes, whole(0, 0, 0, 3), whole(2, 2, 3, 0), whole(1, 1, 2, -2), *masks, *limits]
    found = run_node("QuantizedStridedSlice_8", given, 3)[0]
    np.testing.assert_array_equal(found.codes, codes[:, :, ::2, 3:0:-2])
    for axis in (0, 1, 3):
        parts = run_node("Split_f", [whole(axis), x.astype(F)], 2)
        for part, want in zip(parts, np.split(x, 2, axis), strict=True):
            np.testing.assert_array_equal(part.reals, want)
        parts = run_node("QuantizedSplit_8", [whole(axis), codes, *limits], 4)[:2]
        for part, want in zip(parts, np.split(codes, 2, axis), strict=True):
            np.testing.assert_array_equal(part.codes, want)
        joined = run_node("ConcatV2_f", [x.astype(F), 2 * x.astype(F), whole(axis)])[0]
        np.testing.assert_array_equal(joined.reals, np.concatenate([x, 2 * x], axis))
        joined = run_node("ConcatV2_int32", [x.astype(WIDE), x.astype(WIDE), whole(axis)])[0]
        np.testing.assert_array_equal(joined.ints, np.concatenate([x, x], axis))
    assert run_node("QuantizedFlatten", [codes, *limits], 3)[0].shape == (1, 1, 1, 48)
    assert run_node("Rank_int32", [x.astype(F), whole(3)])[0].whole == 3


def test_pack_of_nnlib_s_text() -> None:
    """docs/ops.txt of nnlib: four tensors of [1, 1, 9, 32] become [1, 4, 9, 32]."""
    x = np.arange(288, dtype=F).reshape(1, 1, 9, 32)
    found = run_node("Pack_f", [x, x + 1, x + 2, x + 3])[0]
    np.testing.assert_array_equal(found.reals, np.concatenate([x, x + 1, x + 2, x + 3], 1))
    found = run_node("Pack_int32", [whole(1, 2), whole(3, 4)])[0]
    assert found.shape == (1, 1, 2, 2) and found.ints.reshape(-1).tolist() == [1, 2, 3, 4]


def test_blocks() -> None:
    """Blocks of 2 x 2 pixels to the depth and back, rows first, and to batches."""
    x = np.arange(48).reshape(1, 4, 4, 3)
    deep = x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 2, 12)
    np.testing.assert_array_equal(run_node("SpaceToDepth_f", [x.astype(F), whole(2)])[0].reals, deep)
    np.testing.assert_array_equal(run_node("DepthToSpace_f", [deep.astype(F), whole(2)])[0].reals, x)
    limits = [scalar(-1), scalar(1.55)]
    given = [x.astype(U), whole(2, 2), pairs(0, 0, 0, 2), *limits]
    found = run_node("SpaceToBatchND_8", given, 3)[0]
    wide = np.pad(x, [(0, 0), (0, 0), (0, 2), (0, 0)], constant_values=100).reshape(2, 2, 3, 2, 3)
    want = wide.transpose(1, 3, 0, 2, 4).reshape(4, 2, 3, 3)
    np.testing.assert_array_equal(found.codes, want)
    back = run_node("BatchToSpaceND_8", [want.astype(U), whole(2, 2), pairs(0, 0, 0, 2), *limits], 3)[0]
    np.testing.assert_array_equal(back.codes, x)
    near = run_node("ResizeNearestNeighbor_8", [x.astype(U), whole(7, 2), *limits], 3)[0]
    np.testing.assert_array_equal(near.codes, x[:, [0, 0, 1, 1, 2, 2, 3]][:, :, [0, 2]])
    corners = run_node("ResizeNearestNeighbor_8", [x.astype(U), whole(6, 2), *limits, whole(1)], 3)[0]
    np.testing.assert_array_equal(corners.codes, x[:, [0, 1, 1, 2, 2, 3]][:, :, [0, 3]])


@pytest.mark.parametrize(
    ("start", "limit", "step", "want"),
    [(2, 9, 3, [2, 5, 8]), (2, 5, 0, [2, 3, 4]), (2, 5, -4, [2, 3, 4]), (5, 1, -3, [5, 2]), (3, 1, 2, [3, 2]),
     (4, 4, 7, [4])],
)  # fmt: skip
def test_range(start: int, limit: int, step: int, want: list[int]) -> None:
    """op_range.c takes 1 or -1 for a step of the wrong sign, and one number if both ends are equal."""
    found = run_node("Range_int32", [whole(start), whole(limit), whole(step)])[0]
    assert found.ints.reshape(-1).tolist() == want


def test_functions_of_floats() -> None:
    x = np.array([[-2, 0.5], [3, -0.25]], F).reshape(1, 2, 1, 2)
    assert reals(run_node("Clamp_f", [x, scalar(-1), scalar(2)])[0]) == [-1, 0.5, 2, -0.25]
    for high in (-1.0, -2.0):
        with pytest.raises(AssertionError, match="bounds of"):
            run_node("Clamp_f", [x, scalar(-1), scalar(high)])
    assert reals(run_node("PRelu_f", [x, np.array([0.5, -2], F)])[0]) == [-1, 0.5, 3, 0.5]
    assert reals(run_node("PRelu_f", [x, scalar(3)])[0]) == [-6, 0.5, 3, -0.75]
    with pytest.raises(AssertionError, match="3 slopes"):
        run_node("PRelu_f", [x, np.ones(3, F)])
    assert reals(run_node("BiasAdd_f", [x, np.array([1, 2], F)])[0]) == [-1, 2.5, 4, 1.75]
    assert run_node("ArgMax_ftoInt32", [x, whole(1)])[0].ints.reshape(-1).tolist() == [1, 0]
    window, stride = shape_only(1, 2, 1, 1), shape_only(1, 1, 1, 1)
    pooled = reals(run_node("L2Pool_f", [x, window, stride], 1, Padding.VALID)[0])
    assert pooled == pytest.approx([6.5**0.5, (0.3125 / 2) ** 0.5])


@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-4])
def test_instance_norm_has_an_epsilon(spread: float) -> None:
    """op_instancenorm.c: (x - mean) / sqrt(variance + 1e-5) of each channel."""
    x = (np.random.default_rng(6).normal(size=(2, 4, 5, 3)) * spread).astype(F)
    mean, variance = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    want = (x - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(run_node("InstanceNorm_f", [x])[0].reals, want, 1e-4, 1e-5)


def test_roots_of_codes() -> None:
    """op_sqrt.c has a table of 255 sqrt(code / 255), whatever the range, whose ends become their roots."""
    codes = np.array([0, 1, 2, 3, 71, 72, 128, 254, 255], U)
    found, low, high = run_node("QuantizedSqrt_8", [codes, scalar(4), scalar(9)], 3)
    assert found.codes.reshape(-1).tolist() == [0, 16, 23, 28, 135, 135, 181, 254, 255]
    assert (low.scalar, high.scalar) == (2, 3)


def test_softmax_of_codes() -> None:
    """op_softmax_f.c: the exponentials of beta * step * (code - largest), over their sum, in float32."""
    codes = np.array([0, 100, 255, 255], U)
    found = run_node("Softmax_uint8", [codes, scalar(-1), scalar(1.55), scalar(2)])[0]
    parts = np.exp(2 * 0.01 * (codes.astype(float) - 255))
    assert reals(found) == pytest.approx(list(parts / parts.sum()), rel=1e-5)


def test_functions_of_codes() -> None:
    """Real numbers by hand: ranges of -1 to 1.55 in steps of 0.01, with 0 at the code 100."""
    limits = [scalar(-1), scalar(1.55)]
    codes = np.array([0, 90, 100, 110, 255], U)
    found, low, high = run_node("QuantizedNeg_8", [codes, *limits], 3)
    assert found.codes.reshape(-1).tolist() == [255, 165, 155, 145, 0]
    assert (low.scalar, high.scalar) == pytest.approx((-1.55, 1))
    found = run_node("QuantizedPRelu_8", [codes, *limits, scalar(0.5)], 3)[0]
    assert found.codes.reshape(-1).tolist() == [50, 95, 100, 110, 255]
    length = run_node("L2Normalize_8", [np.array([130, 140, 100], U), *limits], 3)
    step = (length[2].scalar - length[1].scalar) / 255
    found = length[0].codes.reshape(-1) * step + length[1].scalar
    assert found == pytest.approx([0.6, 0.8, 0.0], abs=step)
    made, low, high = run_node("QuantizedMul_8x8to8", [codes, np.array([200], U), *limits, *limits], 3)
    step = (high.scalar - low.scalar) / 255
    want = [-1, -0.1, 0, 0.1, 1.55]
    assert made.codes.reshape(-1) * step + low.scalar == pytest.approx(want, abs=0.51 * step)
    made, low, high = run_node("QuantizedSub_8p8to8", [codes, np.array([150], U), *limits, *limits], 3)
    step = (high.scalar - low.scalar) / 255
    want = [-1.5, -0.6, -0.5, -0.4, 1.05]
    assert made.codes.reshape(-1) * step + low.scalar == pytest.approx(want, abs=1.01 * step)
    x = np.array([0, 40, 80, 120], U).reshape(1, 2, 2, 1)
    wide = run_node("QuantizedResizeBilinear_8", [x, whole(4, 2), *limits], 3)[0]
    assert wide.codes.reshape(-1).tolist() == [0, 40, 40, 80, 80, 120, 80, 120]
    shuffled = run_node("QuantizedChannelShuffle_8", [whole(2), np.arange(6, dtype=U), *limits], 3)[0]
    assert shuffled.codes.reshape(-1).tolist() == [0, 3, 1, 4, 2, 5]


def test_numbers_of_32_bits() -> None:
    """A range of -2 to 2 of 32 bits has steps of 2^-30; Quantize_int32 leaves eight bits above its range."""
    limits = [scalar(-2), scalar(2)]
    sums = np.array([1 << 30, -(1 << 29), 3], WIDE)
    assert reals(run_node("Dequantize_qint32_f", [sums, *limits])[0]) == [1, -0.5, 3 * 2.0**-30]
    found, low, high = run_node("Quantize_int32", [np.array([1, -0.5, 0], F), *limits], 3)
    back = run_node("Dequantize_qint32_f", [found.ints, low.reals, high.reals])[0]
    assert reals(back) == pytest.approx([1, -0.5, 0], abs=2.0**-22)


def test_depthwise_convolution_of_floats() -> None:
    """Each channel has two kernels; their results follow each other."""
    x = np.arange(8, dtype=F).reshape(1, 2, 2, 2)
    w = np.arange(16, dtype=F).reshape(2, 2, 2, 2)
    found = run_node("DepthwiseConv2d_f", [x, w, shape_only(1, 1, 1, 1)], 1, Padding.VALID)[0]
    want = [(x[0, :, :, c] * w[:, :, c, k]).sum() for c in range(2) for k in range(2)]
    assert reals(found) == want


def test_resizing() -> None:
    x = np.array([0, 10], F).reshape(1, 1, 2, 1)
    assert reals(run_node("ResizeBilinear_f", [x, whole(1, 4)])[0]) == [0, 5, 10, 10]
    assert reals(run_node("ResizeNearestNeighbor_f", [x, whole(1, 4)])[0]) == [0, 0, 10, 10]


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "text"),
    [
        ("Reshape", [np.zeros(6, F), whole(4)], 1, "cannot have the shape"),
        ("Transpose_f", [np.zeros(6, F), whole(0, 0)], 1, "order of axes"),
        ("Concat_f", [whole(5), np.zeros(2, F)], 1, "no axis 5"),
        ("Add_f", [np.zeros(2, F), np.zeros(3, F)], 1, "cannot be combined"),
        ("Relu_f", [np.zeros(3, U)], 1, "3 bytes, not 12"),
        ("Quantize", [np.zeros(2, F), scalar(2), scalar(1)], 3, "a range from"),
        ("QuantizedRelu_8", [np.zeros(2, U), scalar(np.nan), scalar(1)], 3, "a range from"),
        (
            "Requantize_8to8",
            [np.zeros(1, U), *[scalar(0), scalar(1)], scalar(-0.3), scalar(1)],
            3,
            "no exact code",
        ),
        ("Slice_f", [np.zeros(4, F), whole(3), whole(2)], 1, "a slice from"),
        ("QuantizedConcat_8", [whole(3), *[np.zeros(4, U)] * 4], 3, "three for each tensor"),
        ("Close_f", [np.zeros(2, F), np.ones(2, F)], 0, "element 0 is 0, but 1 is wanted"),
        ("Check", [np.zeros(2, U), np.array([0, 1], U)], 0, "byte 1 is 0, but 1 is wanted"),
    ],
)
def test_errors_name_what_is_wrong(name: str, inputs: list[np.ndarray], outputs: int, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        run_node(name, inputs, outputs)
