"""Published measurements beside the RTL: the table, the rule that picks rows, and one row that is run."""

from __future__ import annotations

import pytest

from cosim.perf.boards import FAMILIES, rows
from cosim.perf.validate import families, validate

BY_ID = {row.id: row for row in rows()}


def test_every_row_is_whole() -> None:
    assert len(BY_ID) == len(rows()) >= 45
    assert {row.family for row in rows()} == set(FAMILIES)
    for row in rows():
        assert 0 < row.low_us <= row.high_us and row.clock_mhz in (800, 1000), row


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("CHAN-2", "activation from the LUT"),
        ("CHAN-70", "measured under 1 ms"),
        ("UNET-6", ""),
        ("UNET-9", ""),
    ],
)
def test_the_rule(name: str, why: str) -> None:
    assert BY_ID[name].excluded == why


def test_the_halves_stay_as_they_were() -> None:
    """Chosen by a hash of the row's id, before anything was fitted."""
    counted = [row for row in rows() if not row.excluded]
    assert {row.id for row in counted if row.half == "fitted"} == {
        "CHAN-9",
        "UNET-52",
        "MM-1024x3840x4096",
        "MM-512x1024x1024",
        "CLE-fp16",
        "MobileNetV1",
    }
    assert len(counted) == 15


def test_a_row_runs() -> None:
    (result,) = validate([BY_ID["MM-64x256x256"]])
    assert result.above_formula and result.below_board
    assert result.microseconds is not None and result.error is not None
    assert result.error == pytest.approx(result.microseconds / 90 - 1)
    assert result.as_json()["excluded"] == "measured under 1 ms"
    by_name = {entry["family"]: entry for entry in families([result])}
    assert by_name["matmul"]["run"] == 1 and by_name["matmul"]["counted"] == 0
