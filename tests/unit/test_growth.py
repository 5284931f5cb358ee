"""The benchmark of growth: its models are valid, and its rows come from checked runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.growth import HEADS, WORK, Work, made, measured, rows
from rkcosim.running.session import Session

SMALL = Work("layers", "2", 2, 32, 4, 3)


def test_a_model_has_as_many_layers_as_its_work(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    made(SMALL, path := tmp_path / "model.onnx")
    assert [node.op_type for node in onnx.load(path).graph.node].count("Conv") == SMALL.layers
    with Session(path, engine="golden") as session:
        assert session.context


def test_every_series_grows() -> None:
    for series in {work.series for work in WORK}:
        sizes = [w.cores * w.layers * w.channels**2 for w in WORK if w.series == series]
        assert sizes == sorted(set(sizes)) and len(sizes) >= 3


@pytest.mark.heavy
def test_rows_have_a_cell_for_each_head_and_start_at_the_least(tmp_path: Path) -> None:
    found = rows((SMALL, Work("layers", "4", 4, 32, 4, 3)))
    assert {len(row) for row in found} == {len(HEADS)}
    assert "1.00" in {row[-1] for row in found}
    assert measured(SMALL, tmp_path)["start"] > 0
