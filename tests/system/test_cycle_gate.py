"""Fixed layers and networks take exactly the cycles of the checked-in baseline."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim.engines.engine import open_engine
from rkcosim.measure.perf import gate
from rkcosim.measure.perf.workloads import LAYERS, MEMORY


def test_nothing_changed() -> None:
    found = gate.differences(gate.read_baseline(), gate.measure())
    assert not found, (
        f"{gate.report(found)}\nif this is intended: python -m rkcosim.measure.perf.gate --update"
    )


def test_a_change_in_either_direction_is_named() -> None:
    before = {"layer": {"cycles": 100, "tasks": 1}, "gone": {"cycles": 5}}
    now = {"layer": {"cycles": 99, "tasks": 1}, "new": {"cycles": 7}}
    found = gate.differences(before, now)
    assert found == [("layer", "cycles", 100, 99), ("gone", "cycles", 5, None), ("new", "cycles", None, 7)]
    assert "layer: cycles 100 -> 99 (-1.00%)" in gate.report(found)
    assert gate.differences(before, before) == []


def test_a_baseline_of_another_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    gate.write_baseline({"a": {"cycles": 1}}, file)
    assert gate.read_baseline(file) == {"a": {"cycles": 1}}
    file.write_text('{"schema_version": 0}')
    with pytest.raises(ValueError, match="schema_version"):
        gate.read_baseline(file)


@pytest.mark.heavy
def test_the_layers_are_right_and_keep_to_their_bounds() -> None:
    with open_engine(cores=1, dram=MEMORY) as engine:
        for layer in LAYERS.values():
            found = layer.measure(engine, check=True)
            assert found.match, layer.name
            assert 1 <= found.ratio <= 1.3, found
            assert not layer.busy or found.mac_busy >= 0.9, found
