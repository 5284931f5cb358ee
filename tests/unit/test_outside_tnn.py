"""The tests of TNN's layers in the ledger: grids of GoogleTest, and that a wrong result is seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.apis.tnn import DeviceType, get_device
from tools.outside import suite as ledger
from tools.outside import tnn_layers
from tools.outside.gtest import Grid, definitions, grids
from tools.outside.suites import tnn

MACROS = """
#ifdef BENCHMARK
#define SIZES testing::Values(16), testing::Values(256)
#else
#define SIZES                                      \\
    testing::Values(1, 2), testing::Values(3)  // comment, with a comma
#endif
"""
SOURCE = """
class AbsLayerTest : public UnaryLayerTest {};
INSTANTIATE_TEST_SUITE_P(LayerTest, AbsLayerTest,
    ::testing::Combine(SIZES, /* axes */ testing::Values(std::vector<int>({0}), std::vector<int>({1, -2})),
                       // alpha Values(7)
                       testing::Values(-1.5, 2, 0.5f, -FLT_MAX), testing::Values(DATA_TYPE_FLOAT, true)));
TEST_P(AbsLayerTest, UnaryLayerTest) { Run("Abs", {1, 2}); }
"""


def test_the_grid_of_a_parametrised_test() -> None:
    """GoogleTest numbers the instances with the last parameter changing first."""
    (found,) = grids(SOURCE, definitions(MACROS))
    assert found.name == "LayerTest/AbsLayerTest.UnaryLayerTest"
    largest = float(np.finfo(np.float32).max)
    alphas = [-1.5, 2, 0.5, -largest]
    assert found.axes == [[1, 2], [3], [[0], [1, -2]], alphas, ["DATA_TYPE_FLOAT", True]]
    cases = found.cases()
    assert len(cases) == 32
    assert cases[0] == (1, 3, [0], -1.5, "DATA_TYPE_FLOAT") and cases[1] == (1, 3, [0], -1.5, True)
    assert cases[2][3] == 2 and isinstance(cases[2][3], int) and cases[16][0] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SOURCE.replace("0.5f", "f(1)"), r"a value that is not read: 'f\(1\)'"),
        (SOURCE.replace("SIZES", "testing::Bool()"), r"no Values: 'testing::Bool\(\)'"),
        (SOURCE.replace("Combine", "ValuesIn"), "no Combine of Values"),
        (SOURCE.replace("true)))", "true))"), "a bracket is not closed"),
        (SOURCE.replace("true)))", "true)), Name)"), "AbsLayerTest: names of instances are not read: Name"),
        (SOURCE.replace("TEST_P(Abs", "TEST_P(Exp"), "ExpLayerTest: no INSTANTIATE_TEST_SUITE_P names it"),
    ],
)
def test_a_source_that_is_not_read(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grids(text.split("TEST_P(Abs")[0] if "bracket" in message else text, definitions(MACROS))


def test_the_comparison() -> None:
    """CompareData for fp16: 1 % of the sum or 0.001, else the cosine; what is no number counts against it."""
    right = np.linspace(0.25, 4, 1000)
    assert tnn_layers.agree(right * 1.019, right)
    assert tnn_layers.agree(np.array([0.0]), np.array([0.0009]))
    assert not tnn_layers.agree(np.array([0.0, 1.0]), np.array([0.5, 1.0]))
    one = right.copy()
    one[7] += 0.01
    assert tnn_layers.agree(one, right)
    one[7:400] *= -1
    assert not tnn_layers.agree(one, right)
    one = right.copy()
    one[7] = np.nan
    assert not tnn_layers.agree(one, right) and tnn_layers.agree(right, one)


SMALL: dict[str, list[list[Any]]] = {
    "ConvLayerTest": [
        [2],
        [3],
        [9],
        [2],
        [3],
        [2],
        [2],
        [1],
        [-1, 0, 1],
        ["DATA_TYPE_FLOAT"],
        list(tnn_layers.ACTIVATIONS),
    ],
    "DeconvLayerTest": [
        [2],
        [2],
        [3],
        [3, 8],
        [1, 2],
        [2, 3, 4],
        [1],
        [2],
        [1],
        [0],
        [-1, 1, 2],
        ["DATA_TYPE_FLOAT"],
        ["ActivationType_ReLU6"],
    ],
    "ReshapeLayerTest": [[2], [4], [5], [2, 3, 4], [0, 1], ["DATA_TYPE_FLOAT"]],
    "ShuffleLayerTest": [[2], [5], [4], [2, 3, 4, 5, 6], [1, 2, 3]],
    "UpsampleLayerTest": [
        [1],
        [3],
        [9],
        [1, 2, 3],
        [0, 1],
        [0.3, 1.45, 2],
        [1.0, 2.78],
        [True, False],
        ["DATA_TYPE_FLOAT"],
    ],
    "SubLayerTest": [[2], [3], [9], [1, 2], [0, 1, 2, 3], [-1, 0, 1], [2, 3, 4], ["DATA_TYPE_FLOAT"]],
    "ReduceOpLayerTest": [[2], [3], [9], [10], [1], [4], [[1, -1]], ["DATA_TYPE_FLOAT"]],
}


@pytest.fixture(scope="module", autouse=True)
def golden() -> object:
    """The golden engine, kept open."""
    context = get_device(DeviceType.DEVICE_RK3588).CreateContext(0, "golden")
    yield context
    context.close()


def _grid(suite: str) -> Grid:
    return Grid(f"LayerTest/{suite}", "Layer", SMALL[suite])


@pytest.mark.parametrize("suite", SMALL)
def test_a_layer_passes_and_a_wrong_one_fails(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each network of small grids agrees with TNN's formula; with another formula every one fails."""
    passed = tnn_layers.judged(_grid(suite), "golden", 200, 300)
    assert passed.verdict == ledger.PASS, passed.note
    right = tnn_layers.BODIES[suite]

    def turned(numbers: tnn_layers.Numbers, case: tnn_layers.Case) -> list[tnn_layers.Layer]:
        """The layers with all results mirrored and moved by a small amount."""
        return [
            replace(one, formula=lambda *x, one=one: 0.25 - one.formula(*x)) for one in right(numbers, case)
        ]

    monkeypatch.setitem(tnn_layers.BODIES, suite, turned)
    failed = tnn_layers.judged(_grid(suite), "golden", 8, 300)
    networks = passed.note.split()[0]
    assert failed.verdict == ledger.FAIL
    count, _, of, *_ = failed.note.split()
    assert count == of and int(of) >= min(int(networks), 8), failed.note


def test_skips_limits_and_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = "ReshapeLayerTest"
    halves = replace(_grid(suite), axes=[*SMALL[suite][:-1], ["DATA_TYPE_HALF"]])
    assert tnn_layers.judged(halves, "golden", 5, 300).verdict == ledger.SKIP
    assert tnn_layers.judged(_grid(suite), "golden", 5, 300, largest=1).verdict == ledger.SKIP
    late = tnn_layers.judged(_grid(suite), "golden", 5, -1.0)
    assert late.verdict == ledger.LIMIT and late.note.startswith("ended after 0 networks")
    odd = tnn_layers.Layer("Reshape", [(2, 4)], lambda x: x, [0, 2, 2, 3, 3, 0])
    monkeypatch.setitem(tnn_layers.BODIES, suite, lambda numbers, case: [odd])
    refused = tnn_layers.judged(_grid(suite), "golden", 1, 300)
    assert refused.verdict == ledger.FAIL and "Reshape refused: " in refused.note


def test_the_suite_reads_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the interface has no layer for are left out; a test that is gone is said."""
    here = ledger.Checkout("Tencent/TNN", tmp_path, "", "python3")
    with pytest.raises(ledger.NotHere, match="Tencent/TNN has no test/unit_test/layer_test"):
        tnn._run(here, "golden", tmp_path)
    tests = tmp_path / tnn.TESTS
    tests.mkdir(parents=True)
    (tmp_path / tnn.MACROS).write_text("#define SIZES testing::Values(1), testing::Values(3, 4)\n")
    made = (
        "INSTANTIATE_TEST_SUITE_P(LayerTest, {0}LayerTest, testing::Combine(SIZES, testing::Values(3), "
        "testing::Values(2, 4), testing::Values(DATA_TYPE_FLOAT, DATA_TYPE_HALF)));\n"
        "TEST_P({0}LayerTest, UnaryLayerTest) {{}}\n"
    )
    for name in ("Neg", "Acos"):
        (tests / f"test_{name.lower()}_layer.cc").write_text(made.format(name))
    with pytest.raises(ledger.NotHere, match="Tencent/TNN has no test AbsLayerTest"):
        tnn._run(here, "golden", tmp_path)
    monkeypatch.setattr(tnn, "BODIES", {"NegLayerTest": tnn_layers.BODIES["NegLayerTest"]})
    found = tnn._run(here, "golden", tmp_path)
    assert found == {"NegLayerTest": ledger.Outcome("pass", found["NegLayerTest"].note)}
    assert found["NegLayerTest"].note == "4 networks (4 on the NPU) of 4 of 8 instances"
