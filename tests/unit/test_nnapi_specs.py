"""Specifications of NNAPI: examples from a checkout, verdicts, and the table on the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.nnapi.conformance import (
    Tally,
    all_examples,
    difference,
    fraction,
    run_example,
    tolerance,
)
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings
from tests.makers.nnapi_models import F16, F32, I32, U8
from tests.makers.nnapi_specs import make_checkout

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def golden() -> Iterator[Machine]:
    """A device of the golden model."""
    machine = open_machine(Settings(engine="golden"))
    yield machine
    machine.close()


def tallied(folder: Path, machine: Machine) -> Tally:
    """Run all examples of a checkout."""
    tally = Tally()
    for example in all_examples(folder, tally):
        tally.add(run_example(example, machine, False))
    return tally


def test_verdicts(tmp_path: Path, golden: Machine) -> None:
    tally = tallied(make_checkout(tmp_path), golden)
    assert tally.rows() == [
        ("FLOOR", 0, 2, 0, 0, 0),
        ("RELU", 3, 0, 0, 0, 0),
        ("RANDOM_MULTINOMIAL", 0, 0, 1, 0, 0),
    ]
    assert tally.ok and tally.total() == 6
    assert tally.reasons["FLOOR"].keys() == {
        "float32 is computed on the host, unless the model is relaxed",
        "it fails: operation 0 (FLOOR) has the shape (2,), but the operand (3,)",
    }


def test_wrong_examples(tmp_path: Path, golden: Machine) -> None:
    tally = tallied(make_checkout(tmp_path, wrong=True, fails=False), golden)
    assert not tally.ok
    assert [(verdict.operation, verdict.name) for verdict in tally.wrong] == [
        ("FLOOR", "V1_0/floor:other_shape"),
        ("RELU", "V1_0/relu:wrong"),
    ]
    assert "NPU: output 0: 1 of 3 elements, first 0: 3, expected 9" in tally.wrong[1].text
    assert tally.as_json()["wrong"] == 2 and tally.as_json()["match"] is False


def test_damaged_specification(tmp_path: Path, golden: Machine) -> None:
    folder = make_checkout(tmp_path)
    (folder / "runtime/test/specs/V1_0/damaged.mod.py").write_text("unknown()")
    tally = tallied(folder, golden)
    assert not tally.ok and tally.total() == 6
    assert "damaged.mod.py: NameError" in tally.unreadable[0]


def test_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no tools/test_generator"):
        list(all_examples(tmp_path, Tally()))
    make_checkout(tmp_path)
    for path in tmp_path.rglob("*.mod.py"):
        path.unlink()
    with pytest.raises(ValueError, match="no specifications"):
        list(all_examples(tmp_path, Tally()))


@pytest.mark.parametrize(
    ("kind", "halves", "error", "good"),
    [
        (U8, False, 1, True),
        (U8, False, 2, False),
        (I32, False, 1, False),
        (F32, False, 1.5e-5, True),
        (F32, False, 8e-5, False),
        (F32, True, 0.05, True),
        (F16, False, 0.06, False),
    ],
)
def test_tolerances(kind: object, halves: bool, error: float, good: bool) -> None:
    """Around 10: one step, exact, 1e-5 + 5 * 2**-23 * 10, and 5 * 2**-10 * 11."""
    found, expected = np.array([10 + error], np.float64), np.array([10.0])
    assert (difference(found, expected, kind, halves) == "") is good  # type: ignore[arg-type]
    assert len(tolerance(kind, halves)) == 2  # type: ignore[arg-type]


def test_drawing_depends_on_the_seed_alone() -> None:
    first = [fraction(1, str(n)) for n in range(1000)]
    assert first == [fraction(1, str(n)) for n in range(1000)]
    assert first != [fraction(2, str(n)) for n in range(1000)]
    assert 0.45 < sum(first) / 1000 < 0.55
