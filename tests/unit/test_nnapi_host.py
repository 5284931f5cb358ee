"""Operations of NNAPI on the host, against numbers computed by hand or by plain loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rkcosim.apis.nnapi import fixed_point
from rkcosim.apis.nnapi.prepared import Unsupported, prepare
from rkcosim.apis.nnapi.values import ExecutionError, MissedDeadline
from tests.makers.nnapi_models import F16, F32, I32, S8, U8, Builder, T, nested

Array = npt.NDArray[Any]
Given = tuple[T, npt.ArrayLike] | tuple[T, npt.ArrayLike, float, int] | int | float | bool | None


def run(
    kind: str,
    inputs: Sequence[Given],
    *outputs: tuple[T, float, int] | T,
    const: Sequence[int] = (),
    omitted: Sequence[T] = (),
) -> list[Array]:
    """Execute one operation: tensors are inputs of the model, except those at the places `const`.

    `omitted` has the type of each input, which those that are None need.
    """
    b = Builder()
    ends, arrays = [], []
    for place, item in enumerate(inputs):
        if item is None:
            plain = I32 if kind == "SQUEEZE" else F32
            ends.append(b.omitted(omitted[place] if omitted else plain))
        elif not isinstance(item, tuple):
            ends.append(b.scalar(item))
        elif place in const:
            ends.append(b.constant(*item))
        else:
            array = np.asarray(item[1], item[0].dtype)
            ends.append(b.input(item[0], array.shape, *item[2:]))
            arrays.append(array)
    made = [b.output(o) if isinstance(o, T) else b.output(o[0], (), o[1], o[2]) for o in outputs]
    b.add(kind, ends, *made)
    with prepare(b.model(), npu=False) as prepared:
        return prepared.execute(arrays)


def f(*values: Any) -> tuple[T, npt.ArrayLike]:
    """Return a float32 tensor."""
    return F32, values[0] if len(values) == 1 else list(values)


def i(*values: Any) -> tuple[T, npt.ArrayLike]:
    """Return an int32 tensor."""
    return I32, values[0] if len(values) == 1 else list(values)


def check(found: Array, expected: npt.ArrayLike, tolerance: float = 1e-6) -> None:
    """Compare shapes and numbers."""
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=tolerance)


# -- elements ---------------------------------------------------------------------------------------------


def test_sums() -> None:
    check(run("ADD", [f([[1.5], [-4.0]]), f(1.0, 2.0), 1], F32)[0], [[2.5, 3.5], [0.0, 0.0]])
    check(run("SUB", [f(3.0, 9.0), f(1.0, 1.0), 3], F32)[0], [2.0, 6.0])
    check(run("MUL", [f(3.0, -9.0), f(0.5, 1.0), 2], F32)[0], [1.0, -1.0])
    check(run("DIV", [f(3.0, -9.0), f(2.0, 3.0), 0], F32)[0], [1.5, -3.0])
    assert run("ADD", [i(2**31 - 1), i(1), 0], I32)[0].tolist() == -(2**31)


def test_integers_divide_downwards() -> None:
    assert run("DIV", [i(7, -7, 5), i(2, 2, 0), 0], I32)[0].tolist() == [3, -4, 0]


def test_sum_of_codes() -> None:
    """(10 - 2) * 0.5 + (200 - 100) * 0.25 = 29, in steps of 2.0: 14.5, to the even 14, above 7."""
    made = run("ADD", [(U8, [10], 0.5, 2), (U8, [200], 0.25, 100), 0], (U8, 2.0, 7))
    assert made[0].tolist() == [21]


def test_codes_saturate() -> None:
    made = run("MUL", [(S8, [100, -100], 1.0, 0), (S8, [50, 50], 1.0, 0), 0], (S8, 1.5, 0))
    assert made[0].tolist() == [127, -128]


def test_functions() -> None:
    x = [-2.5, -0.5, 0.0, 7.0]
    check(run("FLOOR", [f(x)], F32)[0], [-3, -1, 0, 7])
    check(run("RELU", [f(x)], F32)[0], [0, 0, 0, 7])
    check(run("RELU1", [f(x)], F32)[0], [-1, -0.5, 0, 1])
    check(run("RELU6", [f(x)], F32)[0], [0, 0, 0, 6])
    check(run("ABS", [f(x)], F32)[0], [2.5, 0.5, 0, 7])
    check(run("NEG", [i(-3, 4)], I32)[0], [3, -4])
    check(run("ELU", [f(x), 0.5], F32)[0], [0.5 * math.expm1(-2.5), 0.5 * math.expm1(-0.5), 0, 7])
    check(run("HARD_SWISH", [f(-4.0, -1.0, 1.0, 5.0)], F32)[0], [0, -1 / 3, 2 / 3, 5])
    check(run("LOGISTIC", [f(x)], F32)[0], [1 / (1 + math.exp(-n)) for n in x])
    check(run("TANH", [f(x)], F32)[0], [math.tanh(n) for n in x])
    check(run("SQRT", [f(4.0, 2.25)], F32)[0], [2, 1.5])
    check(run("RSQRT", [f(4.0, 0.25)], F32)[0], [0.5, 2])
    check(run("EXP", [f(0.0, 1.0)], F32)[0], [1, math.e])
    check(run("LOG", [f(1.0, math.e)], F32)[0], [0, 1])
    check(run("SIN", [f(0.0, math.pi / 2)], F32)[0], [0, 1])
    check(run("POW", [f(2.0, 9.0), f(3.0, 0.5)], F32)[0], [8, 3])


def test_logistic_of_codes() -> None:
    """sigmoid(2) = 0.8808: code 225.5 of 1/256, which is 225 or 226."""
    made = run("LOGISTIC", [(U8, [129], 2.0, 128)], (U8, 1 / 256, 0))
    assert made[0].tolist() in ([225], [226])


def test_comparisons() -> None:
    assert run("LESS", [f([[1.0], [3.0]]), f(2.0, 3.0)], T.TENSOR_BOOL8)[0].tolist() == [
        [True, True],
        [False, False],
    ]
    made = run("EQUAL", [(U8, [12], 0.5, 2), (U8, [30], 0.25, 10)], T.TENSOR_BOOL8)
    assert made[0].tolist() == [True]  # both are 5.0
    assert run("GREATER_EQUAL", [i(1, 2), i(2, 2)], T.TENSOR_BOOL8)[0].tolist() == [False, True]


def test_logic_and_choice() -> None:
    flags = (T.TENSOR_BOOL8, [True, False])
    assert run("LOGICAL_AND", [flags, (T.TENSOR_BOOL8, [True])], T.TENSOR_BOOL8)[0].tolist() == [True, False]
    assert run("LOGICAL_NOT", [flags], T.TENSOR_BOOL8)[0].tolist() == [False, True]
    assert run("SELECT", [flags, i(1, 2), i(3, 4)], I32)[0].tolist() == [1, 4]


def test_minimum_prelu() -> None:
    check(run("MINIMUM", [f(1.0, 5.0), f(3.0)], F32)[0], [1, 3])
    check(run("MAXIMUM", [i(1, 5), i(3, 3)], I32)[0], [3, 5])
    check(run("PRELU", [f([[-2.0, -2.0], [1.0, 3.0]]), f(0.5, 2.0)], F32)[0], [[-1, -4], [1, 3]])


def test_conversions() -> None:
    assert run("QUANTIZE", [f(-1.0, 0.3, 99.0)], (S8, 0.5, -3))[0].tolist() == [-5, -2, 127]
    check(run("DEQUANTIZE", [(U8, [0, 130], 0.5, 128)], F32)[0], [-64, 1])
    per = (T.TENSOR_QUANT8_SYMM_PER_CHANNEL, [[2, 2], [4, 4]], 0.0, 0, ((0.5, 0.25), 0))
    check(run("DEQUANTIZE", [per], F32, const=(0,))[0], [[1, 1], [1, 1]])  # type: ignore[list-item]
    assert run("CAST", [f(-1.5, 2.7, 300.0)], (U8, 1.0, 0))[0].tolist() == [0, 2, 255]
    assert run("CAST", [i(3)], F16)[0].dtype == np.float16
    check(run("FILL", [i(2, 2), 1.5], F32)[0], [[1.5, 1.5]] * 2)


# -- movements --------------------------------------------------------------------------------------------

CUBE = np.arange(24).reshape(2, 3, 4)


def test_shapes() -> None:
    assert run("RESHAPE", [f(CUBE), i(4, -1)], F32)[0].shape == (4, 6)
    assert run("SQUEEZE", [f(CUBE.reshape(1, 2, 1, 12)), i(0)], F32)[0].shape == (2, 1, 12)
    assert run("SQUEEZE", [f(CUBE.reshape(1, 2, 1, 12)), None], F32)[0].shape == (2, 12)
    assert run("EXPAND_DIMS", [f(CUBE), -1], F32)[0].shape == (2, 3, 4, 1)
    moved = run("TRANSPOSE", [f(CUBE), i(2, 0, 1)], F32)[0]
    assert all(moved[c, a, b] == 12 * a + 4 * b + c for a, b, c in np.ndindex(2, 3, 4))
    assert run("RANK", [f(CUBE)], T.INT32)[0].tolist() == 3


def test_reshape_of_another_size_fails() -> None:
    with pytest.raises(ExecutionError, match="operation 0: RESHAPE: 24 elements"):
        run("RESHAPE", [f(CUBE), i(5, 5)], F32)


def test_padding() -> None:
    check(run("PAD", [f([[1.0, 2.0]]), i([[1, 0], [0, 1]])], F32)[0], [[0, 0, 0], [1, 2, 0]])
    assert run("PAD", [(U8, [[5]], 0.5, 9), i([[0, 0], [1, 1]])], (U8, 0.5, 9))[0].tolist() == [[9, 5, 9]]
    check(run("PAD_V2", [f(1.0, 2.0), i([[1, 1]]), 7.5], F32)[0], [7.5, 1, 2, 7.5])
    check(run("MIRROR_PAD", [f(1.0, 2.0, 3.0), i([[2, 1]]), 0], F32)[0], [3, 2, 1, 2, 3, 2])
    check(run("MIRROR_PAD", [f(1.0, 2.0, 3.0), i([[2, 1]]), 1], F32)[0], [2, 1, 1, 2, 3, 3])


def test_blocks() -> None:
    x = np.arange(16).reshape(1, 4, 4, 1)
    deep = run("SPACE_TO_DEPTH", [f(x), 2], F32)[0]
    assert deep.shape == (1, 2, 2, 4) and deep[0, 0, 1].tolist() == [2, 3, 6, 7]
    check(run("DEPTH_TO_SPACE", [f(deep), 2, False], F32)[0], x)
    batch = run("SPACE_TO_BATCH_ND", [f(x), i(2, 2), i([[0, 0], [0, 0]])], F32)[0]
    assert batch.shape == (4, 2, 2, 1) and batch[1].ravel().tolist() == [1, 3, 9, 11]
    check(run("BATCH_TO_SPACE_ND", [f(batch), i(2, 2)], F32)[0], x)
    nchw = run("SPACE_TO_DEPTH", [f(x.reshape(1, 1, 4, 4)), 2, True], F32)[0]
    check(nchw, deep.transpose(0, 3, 1, 2))


def test_slices() -> None:
    check(run("SLICE", [f(CUBE), i(0, 1, 2), i(1, -1, 2)], F32)[0], [[[6, 7], [10, 11]]])
    ends = [i(0, 2, 1), i(2, 0, 4), i(1, -1, 2)]
    check(run("STRIDED_SLICE", [f(CUBE), *ends, 0, 0, 0], F32)[0],
          [[[9, 11], [5, 7]], [[21, 23], [17, 19]]])  # fmt: skip
    shrunk = run("STRIDED_SLICE", [f(CUBE), i(1, 0, 0), i(2, 3, 4), i(1, 1, 1), 0, 6, 1], F32)[0]
    check(shrunk, CUBE[1])
    with pytest.raises(ExecutionError, match="2 elements, not one"):
        run("STRIDED_SLICE", [f(CUBE), i(0, 0, 0), i(2, 3, 4), i(1, 1, 1), 0, 0, 1], F32)


@pytest.mark.parametrize(
    ("begin", "end", "stride", "masks", "taken"),
    [(-9, 1, 1, 0, 0), (1, 9, 5, 0, 1), (-9, 9, 7, 0, 0), (2, 0, 1, 2, 2), (0, 0, 3, 3, 0), (-1, 3, 1, 0, 2),
     (3, 9, 1, 0, None), (0, 0, 1, 2, None), (0, 2, 1, 0, None), (2, 1, -1, 0, None)],
)  # fmt: skip
def test_a_shrunk_axis_is_clamped(begin: int, end: int, stride: int, masks: int, taken: int | None) -> None:
    """AOSP's StridedSlice.cpp clamps begin and end to the axis, and then wants exactly one element."""
    given = [i(0, begin, 0), i(2, end, 4), i(1, stride, 1)]
    arguments = [f(CUBE), *given, (masks & 1) << 1, (masks >> 1) << 1, 2]
    if taken is None:
        with pytest.raises(ExecutionError, match=r"not one|stride"):
            run("STRIDED_SLICE", arguments, F32)
    else:
        check(run("STRIDED_SLICE", arguments, F32)[0], CUBE[:, taken])


def test_parts() -> None:
    first, second = run("SPLIT", [i([[1, 2, 3, 4]]), 1, 2], I32, I32)
    assert (first.tolist(), second.tolist()) == ([[1, 2]], [[3, 4]])
    check(run("CONCATENATION", [f([[1.0]]), f([[2.0]]), -1], F32)[0], [[1, 2]])
    check(run("PACK", [1, f(1.0, 2.0), f(3.0, 4.0)], F32)[0], [[1, 3], [2, 4]])
    check(run("GATHER", [f([[1.0, 2.0], [3.0, 4.0]]), 1, i(1, 1, 0)], F32)[0], [[2, 2, 1], [4, 4, 3]])
    check(run("EMBEDDING_LOOKUP", [i(1, 0), f([[1.0], [2.0]])], F32)[0], [[2], [1]])
    check(run("TILE", [f([[1.0, 2.0]]), i(2, 2)], F32)[0], [[1, 2, 1, 2]] * 2)
    check(run("REVERSE", [f([[1.0, 2.0], [3.0, 4.0]]), i(0)], F32)[0], [[3, 4], [1, 2]])
    check(run("CHANNEL_SHUFFLE", [f(0.0, 1.0, 2.0, 3.0, 4.0, 5.0), 2, 0], F32)[0], [0, 3, 1, 4, 2, 5])


def test_table() -> None:
    ends = [i(7, 5, 1), i(1, 5), f([[1.0, 2.0], [3.0, 4.0]])]
    rows, found = run("HASHTABLE_LOOKUP", ends, F32, (U8, 1.0, 0))
    check(rows, [[0, 0], [3, 4], [1, 2]])
    assert found.tolist() == [0, 1, 1]


def test_concatenation_changes_the_quantisation() -> None:
    made = run("CONCATENATION", [(U8, [10], 0.5, 0), (U8, [10], 1.0, 5), 0], (U8, 1.0, 0))
    assert made[0].tolist() == [5, 5]


def test_gather_outside_fails() -> None:
    with pytest.raises(ExecutionError, match="is not below 2"):
        run("GATHER", [f(1.0, 2.0), 0, i(2)], F32)


# -- products ---------------------------------------------------------------------------------------------


def test_convolution_by_hand() -> None:
    """Window 2 x 2 of ones over 1 to 9 with stride 2 and SAME: 12, 9, 15 and 9, with a bias of 100."""
    x = np.arange(1, 10).reshape(1, 3, 3, 1)
    made = run("CONV_2D", [f(x), f(np.ones((1, 2, 2, 1))), f([100.0]), 1, 2, 2, 0], F32)[0]
    check(made.reshape(-1), [112, 109, 115, 109])
    nchw = run(
        "CONV_2D", [f(x.reshape(1, 1, 3, 3)), f(np.ones((1, 2, 2, 1))), f([100.0]), 1, 2, 2, 0, True], F32
    )
    check(nchw[0].reshape(-1), [112, 109, 115, 109])
    spread = run("CONV_2D", [f(x), f(np.ones((1, 2, 2, 1))), f([0.0]), 2, 1, 1, 0, False, 2, 2], F32)[0]
    check(spread.reshape(-1), [1 + 3 + 7 + 9])


def test_depthwise_and_grouped_by_hand() -> None:
    x = np.array([[1.0, 10.0], [2.0, 20.0]]).reshape(1, 2, 1, 2)
    kernels = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]]).reshape(1, 2, 1, 4)
    made = run("DEPTHWISE_CONV_2D", [f(x), f(kernels), f(np.zeros(4)), 2, 1, 1, 2, 0], F32)[0]
    check(made.reshape(-1), [1 + 2, 2 + 2, 30 + 20, 40 + 20])
    groups = np.array([[3.0], [5.0]]).reshape(2, 1, 1, 1)
    made = run("GROUPED_CONV_2D", [f(x), f(groups), f(np.zeros(2)), 2, 1, 1, 2, 0, False], F32)[0]
    check(made.reshape(2, 2), [[3, 50], [6, 100]])


def test_transposed_convolution_by_hand() -> None:
    """Pixels 1 and 2, stride 2, kernel (1, 10, 100): 1 10 100+2 20 200; explicit pads cut both ends."""
    x, kernel = np.array([1.0, 2.0]).reshape(1, 1, 2, 1), np.array([1.0, 10.0, 100.0]).reshape(1, 1, 3, 1)
    made = run("TRANSPOSE_CONV_2D", [f(x), f(kernel), f([0.0]), 0, 0, 0, 0, 2, 1, 0, False], F32)[0]
    check(made.reshape(-1), [1, 10, 102, 20, 200])
    made = run("TRANSPOSE_CONV_2D", [f(x), f(kernel), f([0.0]), 1, 1, 0, 0, 2, 1, 0, False], F32)[0]
    check(made.reshape(-1), [10, 102, 20])
    shape = i(1, 1, 4, 1)
    made = run("TRANSPOSE_CONV_2D", [f(x), f(kernel), f([0.0]), shape, 1, 2, 1, 0, False], F32)[0]
    check(made.reshape(-1), [1, 10, 102, 20])


def test_matrices_by_hand() -> None:
    made = run("FULLY_CONNECTED", [f([[1.0, 2.0]]), f([[3.0, 4.0], [5.0, 6.0]]), f(0.5, -99.0), 1], F32)[0]
    check(made, [[11.5, 0]])
    left, right = [[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0], [0.0, 1.0]]
    check(run("BATCH_MATMUL", [f([left]), f([right]), True, False], F32)[0], [[[1, 4], [2, 6]]])


# -- windows ----------------------------------------------------------------------------------------------


def test_pools_by_hand() -> None:
    x = np.arange(1, 5).reshape(1, 2, 2, 1)
    check(run("MAX_POOL_2D", [f(x), 2, 1, 1, 2, 2, 0], F32)[0].reshape(-1), [4])
    check(run("AVERAGE_POOL_2D", [f(x), 1, 1, 1, 2, 2, 0], F32)[0].reshape(-1), [2.5, 3, 3.5, 4])
    check(run("L2_POOL_2D", [f(x), 2, 1, 1, 2, 2, 0], F32)[0].reshape(-1), [math.sqrt(30 / 4)])
    explicit = run("AVERAGE_POOL_2D", [f(x), 1, 0, 0, 0, 1, 1, 2, 2, 3, False], F32)[0]
    check(explicit.reshape(-1), [2, 2.5])


def test_reductions() -> None:
    x = [[1.0, 2.0], [3.0, 5.0]]
    check(run("MEAN", [f(x), i(0), 1], F32)[0], [[2, 3.5]])
    check(run("REDUCE_SUM", [f(x), i(-1), False], F32)[0], [3, 8])
    check(run("REDUCE_PROD", [f(x), i(0, 1), False], F32)[0], [30])
    check(run("REDUCE_MAX", [f(x), i(0), False], F32)[0], [3, 5])
    check(run("REDUCE_MIN", [f(x), i(0), True], F32)[0], [[1, 2]])
    flags = (T.TENSOR_BOOL8, [[True, False], [True, True]])
    assert run("REDUCE_ALL", [flags, i(0), False], T.TENSOR_BOOL8)[0].tolist() == [True, False]
    assert run("REDUCE_ANY", [flags, i(1), False], T.TENSOR_BOOL8)[0].tolist() == [True, True]


def test_order() -> None:
    assert run("ARGMAX", [f([[1.0, 3.0, 3.0]]), -1], I32)[0].tolist() == [1]
    assert run("ARGMIN", [f([[1.0, 3.0], [0.0, 4.0]]), 0], I32)[0].tolist() == [1, 0]
    values, places = run("TOPK_V2", [i([5, 7, 7, 1]), 3], I32, I32)
    assert (values.tolist(), places.tolist()) == ([7, 7, 5], [1, 2, 0])


def test_normalisations() -> None:
    e = math.e
    check(run("SOFTMAX", [f([[0.0, 1.0]]), 1.0], F32)[0], [[1 / (1 + e), e / (1 + e)]])
    check(run("SOFTMAX", [f([[0.0], [0.5]]), 2.0, 0], F32)[0], [[1 / (1 + e)], [e / (1 + e)]])
    check(run("LOG_SOFTMAX", [f([[0.0, 1.0]]), 1.0, -1], F32)[0],
          [[-math.log(1 + e), 1 - math.log(1 + e)]])  # fmt: skip
    check(run("L2_NORMALIZATION", [f([[3.0, 4.0]])], F32)[0], [[0.6, 0.8]])
    made = run("LOCAL_RESPONSE_NORMALIZATION", [f([[1.0, 2.0, 3.0]]), 1, 1.0, 0.5, 1.0], F32)[0]
    check(made, [[1 / 3.5, 2 / 8, 3 / 7.5]])
    x = np.array([0.0, 2.0]).reshape(1, 1, 2, 1)
    made = run("INSTANCE_NORMALIZATION", [f(x), 3.0, 0.5, 0.0, False], F32)[0]
    check(made.reshape(-1), [-2.5, 3.5])


def test_resizes() -> None:
    x = np.array([[0.0, 10.0]]).reshape(1, 1, 2, 1)
    check(run("RESIZE_BILINEAR", [f(x), 4, 1], F32)[0].reshape(-1), [0, 5, 10, 10])
    check(run("RESIZE_BILINEAR", [f(x), 3, 1, False, True, False], F32)[0].reshape(-1), [0, 5, 10])
    check(run("RESIZE_BILINEAR", [f(x), 4, 1, False, False, True], F32)[0].reshape(-1), [0, 2.5, 7.5, 10])
    check(run("RESIZE_NEAREST_NEIGHBOR", [f(x), 3, 1, False], F32)[0].reshape(-1), [0, 0, 10])
    check(run("RESIZE_NEAREST_NEIGHBOR", [f(x), 1.5, 2.0, False], F32)[0].reshape(-1), [0, 0, 10] * 2)


# -- recurrent networks -----------------------------------------------------------------------------------


def sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(-x))."""
    return 1 / (1 + math.exp(-x))


def test_rnn_by_hand() -> None:
    """State tanh-free: relu(2 * 3 + 0.5 * 4 - 1) = 7."""
    made = run("RNN", [f([[3.0]]), f([[2.0]]), f([[0.5]]), f([-1.0]), f([[4.0]]), 1], F32, F32)
    check(made[0], [[7]])
    check(made[1], [[7]])
    xs = [[[1.0]], [[2.0]]]
    ends = [f(xs), f([[1.0]]), f([[10.0]]), f([0.0]), f([[0.0]]), 0]
    check(run("UNIDIRECTIONAL_SEQUENCE_RNN", [*ends, 1], F32)[0], [[[1]], [[12]]])
    both = [f(xs), *ends[1:5], *ends[1:5], None, None, None, 0, True, True]
    check(run("BIDIRECTIONAL_SEQUENCE_RNN", both, F32)[0], [[[1, 21]], [[12, 2]]])


def test_svdf_by_hand() -> None:
    """One unit of rank 1 and memory 2: state (5, 7 -> 2 * 3), output 5 * 10 + 6 * 100 + 1; then moved."""
    made = run(
        "SVDF", [f([[3.0]]), f([[2.0]]), f([[10.0, 100.0]]), f([1.0]), f([[5.0, 7.0]]), 1, 0], F32, F32
    )
    check(made[0], [[6, 0]])
    check(made[1], [[651]])


def lstm_by_hand(x: float, h: float, c: float, clip: float = 0.0) -> tuple[float, float]:
    """Return output and cell state of a cell with weights 0.1 .. 0.4, recurrent ones 0.5, biases 0.2."""
    gates = [w * x + 0.5 * h + 0.2 for w in (0.1, 0.2, 0.3, 0.4)]
    cell = sigmoid(gates[1]) * c + sigmoid(gates[0]) * math.tanh(gates[2])
    cell = max(min(cell, clip), -clip) if clip else cell
    return sigmoid(gates[3]) * math.tanh(cell), cell


def lstm_inputs(x: npt.ArrayLike, h: float, c: float, clip: float = 0.0) -> list[Given]:
    """Return the inputs of LSTM for `lstm_by_hand`, up to the clipping of the projection."""
    weights: list[Given] = [f([[w]]) for w in (0.1, 0.2, 0.3, 0.4)]
    recurrent: list[Given] = [f([[0.5]])] * 4
    biases: list[Given] = [f([0.2])] * 4
    tail: list[Given] = [f([[h]]), f([[c]]), 4, clip, 0.0]
    return [f(x), *weights, *recurrent, None, None, None, *biases, None, None, *tail]


@pytest.mark.parametrize("clip", [0.0, 0.25])
def test_lstm_by_hand(clip: float) -> None:
    output, cell = lstm_by_hand(1.5, 0.3, 0.7, clip)
    made = run("LSTM", lstm_inputs([[1.5]], 0.3, 0.7, clip), F32, F32, F32, F32)
    check(made[1], [[output]])
    check(made[2], [[cell]])
    check(made[3], [[output]])
    assert made[0].shape == (1, 4)


def test_lstm_with_coupled_gates() -> None:
    ends = lstm_inputs([[1.5]], 0.3, 0.7)
    for place in (1, 5, 12):
        ends[place] = None
    forget, new = sigmoid(0.3 + 0.15 + 0.2), math.tanh(0.45 + 0.15 + 0.2)
    made = run("LSTM", ends, F32, F32, F32, F32)
    check(made[2], [[forget * 0.7 + (1 - forget) * new]])
    assert made[0].shape == (1, 3)


def test_sequences_of_lstm() -> None:
    first, cell = lstm_by_hand(1.0, 0.0, 0.0)
    second, _ = lstm_by_hand(-2.0, first, cell)
    ends = lstm_inputs([[[1.0]], [[-2.0]]], 0.0, 0.0)
    made = run("UNIDIRECTIONAL_SEQUENCE_LSTM", [*ends, True, None, None, None, None], F32)
    check(made[0], [[[first]], [[second]]])
    ends = lstm_inputs([[[1.0], [-2.0]]], 0.0, 0.0)
    made = run("UNIDIRECTIONAL_SEQUENCE_LSTM", [*ends, False, None, None, None, None], F32)
    check(made[0], [[[first], [second]]])


def test_lstm_of_both_directions() -> None:
    ahead, cell = lstm_by_hand(1.0, 0.0, 0.0)
    ahead_2, _ = lstm_by_hand(-2.0, ahead, cell)
    behind, cell = lstm_by_hand(-2.0, 0.0, 0.0)
    behind_2, _ = lstm_by_hand(1.0, behind, cell)
    one = lstm_inputs([[[1.0]], [[-2.0]]], 0.0, 0.0)
    states = [f([[0.0]])] * 4
    ends = [one[0], *one[1:18], *one[1:18], *states, *[None] * 9, 4, 0.0, 0.0, True, True, *[None] * 8]
    made = run("BIDIRECTIONAL_SEQUENCE_LSTM", ends, F32)
    check(made[0], [[[ahead, behind_2]], [[ahead_2, behind]]])


def test_fixed_point_functions() -> None:
    """Both are within 5 of the exact results, and odd or complementary around 0."""
    raw = np.arange(-(2**15), 2**15, 7)
    for bits in (3,):
        x = raw * 2.0 ** (bits - 15)
        exact = np.clip(np.rint(2.0**15 / (1 + np.exp(-x))), 0, 2**15 - 1)
        assert np.abs(fixed_point.sigmoid(raw) - exact).max() <= 20
        assert np.abs(fixed_point.tanh(raw) - np.rint(np.tanh(x) * 2.0**15)).max() <= 20
    assert fixed_point.sigmoid(np.array([0, 4096])).tolist() == [16384, fixed_point.sigmoid(np.array(4096))]
    assert fixed_point.over_root(np.array([6000]), np.array([9])).tolist() == [2000]


def test_quantised_lstm_of_16_bits() -> None:
    """All weights 0 (code 100): gates are the biases; sigmoid(0) = 0.5, tanh(1) = 0.7616.

    The cell is 0.5 * 0.5 + 0.5 * 0.7616 = 0.6308, the output 0.5 * tanh(0.6308) = 0.2794, code 128 + 35.76.
    """
    scale = 1 / 256
    weights: list[Given] = [(U8, [[100]], scale, 100)] * 8
    unit = scale / 128
    biases: list[Given] = [(I32, [round(n / unit)], unit, 0) for n in (0.0, 0.0, 1.0, 0.0)]
    cell = (T.TENSOR_QUANT16_SYMM, [[1024]], 2.0**-11, 0)
    made = run(
        "QUANTIZED_16BIT_LSTM",
        [(U8, [[200]], 1 / 128, 128), *weights, *biases, cell, (U8, [[50]], 1 / 128, 128)],
        *((T.TENSOR_QUANT16_SYMM, 2.0**-11, 0), (U8, 1 / 128, 128)),
    )
    assert abs(int(made[0][0, 0]) - 0.6308 * 2048) <= 2
    assert made[1].tolist() in ([[163]], [[164]])


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("projected", [False, True])
def test_quantised_lstm(coupled: bool, projected: bool) -> None:
    """A step without layer normalisation against the same one on real numbers; states of 2**-12."""
    random = np.random.default_rng(12)
    x, h = random.integers(-128, 128, (2, 3)), random.integers(-128, 128, (2, 4))
    weights = [random.integers(-127, 128, (4, 3)) for _ in range(4)]
    recurrent = [random.integers(-127, 128, (4, 4)) for _ in range(4)]
    cell = random.integers(-4000, 4000, (2, 4))
    k, w = T.TENSOR_QUANT8_SYMM, T.TENSOR_QUANT16_SYMM
    first: list[Given] = [(k, a, 1 / 256, 0) for a in weights] + [(k, a, 1 / 256, 0) for a in recurrent]
    if coupled:
        first[0] = first[4] = None
    projection = random.integers(-127, 128, (4, 4))
    names = [k] * 8 + [w] * 3 + [I32] * 4 + [k, I32]
    given = [
        (S8, x, 1 / 128, 0),
        *first,
        *[None] * 7,
        (k, projection, 1 / 256, 0) if projected else None,
        None,
    ]
    ends: list[Given] = [*given, (S8, h, 1 / 128, 0), (w, cell, 2.0**-12, 0), *[None] * 4]
    ends += [0.0, 0.0, *[2.0**-12] * 4, 0, 1 / 128]
    types = [S8, *names, S8, w, *[w] * 4]
    outputs = ((S8, 1 / 128, 0), (w, 2.0**-12, 0), (S8, 1 / 128, 0))
    made = run("QUANTIZED_LSTM", ends, *outputs, omitted=types)
    sums = [x @ a.T / 2**15 + h @ c.T / 2**15 for a, c in zip(weights, recurrent, strict=True)]
    gates = [1 / (1 + np.exp(-s)) for s in sums]
    enter = 1 - gates[1] if coupled else gates[0]
    reals = gates[1] * cell * 2.0**-12 + enter * np.tanh(sums[2])
    hidden = gates[3] * np.tanh(reals)
    hidden = hidden @ projection.T / 256 if projected else hidden
    assert np.abs(made[1] - reals * 2**12).max() <= 4
    assert np.abs(made[2] - np.clip(hidden * 128, -128, 127)).max() <= 2.5
    np.testing.assert_array_equal(made[0], made[2])


# -- models -----------------------------------------------------------------------------------------------


def test_unknown_dimensions_and_empty_batches() -> None:
    b = Builder()
    b.add("RELU", (b.input(F32, (0, 2)),), b.output(F32, (0, 2)))
    with prepare(b.model(), engine="golden") as prepared:
        assert prepared.output_dimensions == [(0, 2)]
        for rows in (0, 3):
            (made,) = prepared.execute([np.full((rows, 2), -1, np.float32)])
            assert made.shape == (rows, 2)
        with pytest.raises(ExecutionError, match="input 0 has the shape"):
            prepared.execute([np.zeros((3, 3), np.float32)])
        with pytest.raises(ExecutionError, match="input 0 is int32"):
            prepared.execute([np.zeros((3, 2), np.int32)])
        with pytest.raises(ExecutionError, match="1 inputs, 2 are given"):
            prepared.execute([np.zeros((3, 2), np.float32)] * 2)


def test_unsupported_operation() -> None:
    b = Builder()
    ends = (b.input(F32, (1, 2)), b.scalar(3), b.input(I32, (2,)))
    b.add("RANDOM_MULTINOMIAL", ends, b.output(I32, (1, 3)))
    with pytest.raises(Unsupported, match="operation 0: RANDOM_MULTINOMIAL is not supported"):
        prepare(b.model())


def branch(parent: Builder, kind: str) -> Builder:
    """Return a subgraph with one function of a float32 tensor (2,)."""
    made = nested(parent)
    made.add(kind, (made.input(F32, (2,)),), made.output(F32, (2,)))
    return made


def test_if() -> None:
    b = Builder()
    names = [b.subgraph(branch(b, kind)) for kind in ("ABS", "NEG")]
    flag, x = b.input(T.TENSOR_BOOL8, (1,)), b.input(F32, (2,))
    b.add("IF", (flag, *names, x), b.output(F32, (2,)))
    with prepare(b.model(), engine="golden") as prepared:
        for value, expected in ((True, [1, 2]), (False, [1, -2])):
            check(prepared.execute([np.array([value]), np.array([-1, 2], np.float32)])[0], expected)


def loop(limit: float) -> Builder:
    """Return WHILE x < limit: x = x + x."""
    b = Builder()
    condition, body = nested(b), nested(b)
    ends = (condition.input(F32, (1,)), condition.constant(F32, [limit]))
    condition.add("LESS", ends, condition.output(T.TENSOR_BOOL8, (1,)))
    x = body.input(F32, (1,))
    body.add("ADD", (x, x, body.scalar(0)), body.output(F32, (1,)))
    names = b.subgraph(condition), b.subgraph(body)
    b.add("WHILE", (*names, b.input(F32, (1,))), b.output(F32, (1,)))
    return b


def test_while() -> None:
    with prepare(loop(100.0).model(), engine="golden") as prepared:
        check(prepared.execute([np.array([3], np.float32)])[0], [192])
        check(prepared.execute([np.array([300], np.float32)])[0], [300])


def test_endless_while_ends() -> None:
    with prepare(loop(1.0).model(), engine="golden") as prepared:
        prepared.loop_timeout = 0.05
        with pytest.raises(MissedDeadline, match="WHILE needs more than 0"):
            prepared.execute([np.array([0], np.float32)])
