"""A part of the node tests of the package onnx (`benchmarks.onnx_nodes` runs all of them)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

from benchmarks.onnx_nodes import Result, bound, cases, difference, run_case, with_constants
from tests.extent import extent

pytestmark = pytest.mark.filterwarnings("ignore")  # the generators of the cases divide by zero on purpose

CORRECTED, PRODUCTS = (1, 22), "test_qlinearmatmul_"
"""First version of the package onnx whose expected products saturate and round, and their tests."""

EVERY = extent(24, 12)
"""The test runs each case whose number is a multiple of this, and those of `NAMES`."""
NAMES = (
    *("conv_with", "maxpool_2d", "averagepool_2d", "globalaveragepool", "gemm_", "matmul_2d"),
    *("layer_normalization_2d", "depthtospace", "concat_2d", "split_equal", "prelu", "qlinear"),
    *("resize_upsample", "lstm_", "if_"),
)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    chosen = [c for n, c in enumerate(cases()) if n % EVERY == 0 or any(name in c.name for name in NAMES)]
    found = {case.name: run_case(case) for case in chosen}
    for case in chosen:
        if any(name in case.name for name in NAMES) and (constant := with_constants(case)) is not None:
            found[f"{case.name}, constants"] = run_case(constant)
    return found


def test_no_result_is_wrong(results: dict[str, Result]) -> None:
    wrong = {name: result.text for name, result in results.items() if result.verdict == "wrong"}
    if tuple(map(int, onnx.__version__.split(".")[:2])) < CORRECTED:
        # Numbers that older versions expect of these tests wrap around or are a code away from onnxruntime's.
        wrong = {name: text for name, text in wrong.items() if not name.startswith(PRODUCTS)}
    assert not wrong


def test_both_npu_and_host_take_part(results: dict[str, Result]) -> None:
    counts = Counter(result.verdict for result in results.values())
    assert counts["npu"] >= 40 and counts["host"] >= 150, counts


def test_refused_models_have_values_that_are_no_plain_tensors(results: dict[str, Result]) -> None:
    words = (
        "only tensors of numbers",
        "inputs may be tensors of",
        "outputs may be tensors of",
        "are not arrays",
        "on the host: onnxruntime refuses",
    )
    for result in results.values():
        if result.verdict == "refused":
            assert any(word in result.text for word in words), result


def test_a_wrong_result_is_found() -> None:
    case = next(cases("test_basic_conv_without_padding"))
    inputs, expected = ([np.asarray(item) for item in items] for items in case.data_sets[0])
    (limit,) = bound(case, inputs, expected)
    assert limit.shape == expected[0].shape and 0 < limit.max() < 0.01 * expected[0].max()
    assert not difference(case, expected[0] + limit, expected[0], limit)
    assert "1 of 9 elements differ" in difference(
        case, expected[0] + 2 * limit * (expected[0] == expected[0].max()), expected[0], limit
    )
    assert "shape (9,)" in difference(case, expected[0].reshape(-1), expected[0], limit)
