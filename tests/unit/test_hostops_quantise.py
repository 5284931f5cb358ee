"""Codes of the host's kernels, against exact fractions, gemmlowp's definitions and onnxruntime."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from rkcosim.hostops.quantise import coded, dequantize, multiplied, multiplied_twice, quantize, recoded
from rkcosim.hostops.rounding import Halves


def rounded(value: Fraction, halves: Halves) -> int:
    """Return a fraction rounded by the definition."""
    if halves is Halves.EVEN:
        return round(value)
    whole = abs(value) + Fraction(1, 2)
    return (-1 if value < 0 else 1) * (whole.numerator // whole.denominator)


@pytest.mark.parametrize("halves", Halves)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@settings(max_examples=25)
@given(st.lists(st.integers(-(2**20), 2**20), min_size=1), st.integers(-128, 255), st.integers(-9, 9))
def test_codes_are_rounded_fractions(
    halves: Halves, dtype: type, quarters: list[int], zero: int, new_zero: int
):
    limits = np.iinfo(dtype)
    wanted = [rounded(Fraction(one, 4), halves) + zero for one in quarters]
    found = coded(np.array(quarters) / 4, zero, dtype, halves)
    assert found.dtype == dtype
    assert found.tolist() == [min(max(one, limits.min), limits.max) for one in wanted]
    again = [rounded((code - zero) * Fraction(3, 2), halves) + new_zero for code in found.tolist()]
    assert recoded(found, zero, 1.5, new_zero, dtype, halves).tolist() == [
        min(max(one, limits.min), limits.max) for one in again
    ]


def high_mul(a: int, b: int) -> int:
    """gemmlowp's SaturatingRoundingDoublingHighMul of numbers that do not saturate."""
    product = a * b
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return nudged // 2**31 if nudged >= 0 else -(-nudged // 2**31)  # C++ divides towards zero


def divide_by_power(value: int, exponent: int) -> int:
    """gemmlowp's RoundingDivideByPOT."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (value < 0)
    return (value >> exponent) + ((value & mask) > threshold)


@settings(max_examples=50)
@given(st.lists(st.integers(-(2**24), 2**24), min_size=1), st.integers(2**30, 2**31 - 1), st.integers(-20, 7))
def test_double_rounding_is_gemmlowps(values: list[int], whole: int, exponent: int):
    values += [1 << max(-exponent - 1, 0), -(1 << max(-exponent - 1, 0))]
    found = multiplied_twice(np.array(values), np.array(whole), np.array(exponent))
    left, right = max(exponent, 0), max(-exponent, 0)
    assert found.tolist() == [divide_by_power(high_mul(one << left, whole), right) for one in values]


def test_products_by_hand():
    """1.5 is a half of the product, which goes up; 25.5 is one of the shift, which goes away from zero."""
    assert multiplied(np.array([3, -3]), 0.5).tolist() == [2, -1]
    assert multiplied(np.array([100, -100]), 0.255).tolist() == [26, -26]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_codes_in_float32_are_onnxruntimes(dtype: Any):
    """Also for arrays larger than a part, and for those that are not in the order of memory."""
    rng = np.random.default_rng(3)
    x = (np.round(rng.normal(size=(3, 150, 151)) * 300) / 4).astype(np.float32)
    limits, scale, zero = np.iinfo(dtype), np.float32(0.5), 7
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["codes"]),
            helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["reals"]),
        ],
        "codes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [
            helper.make_tensor_value_info("codes", kind, None),
            helper.make_tensor_value_info("reals", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor("scale", TensorProto.FLOAT, [], [scale]),
            helper.make_tensor("zero", kind, [], [zero]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    codes, reals = session.run(None, {"x": x})
    assert codes.min() >= limits.min and np.array_equal(quantize(x, 0.5, zero, dtype), codes)
    assert np.array_equal(dequantize(codes, 0.5, zero), reals)
    turned = x.transpose(2, 0, 1)[::2]
    assert np.array_equal(quantize(turned, 0.5, zero, dtype), codes.transpose(2, 0, 1)[::2])


def test_32_bits_lose_nothing_before_the_zero_point():
    assert dequantize(np.array([2**24 + 1], np.int32), 2.0, 2**24).tolist() == [2.0]
