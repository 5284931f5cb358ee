"""Timing diagrams: windows of waveforms as documents for WaveDrom."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from vcd import VCDWriter

from rkcosim import waves
from rkcosim.waves.files import WaveError
from rkcosim.waves.wavedrom import MOST_COLUMNS, timing_diagram
from tools.timing.record import DIAGRAMS, PICTURES, picture


@pytest.fixture
def wave(tmp_path: Path) -> waves.Wave:
    """Cycles 0 to 29: a bit, a bus that is unknown at first, and a bit that changes in every cycle."""
    path = tmp_path / "x.vcd"
    with path.open("w") as file, VCDWriter(file, timescale="1 ns") as writer:
        bit = writer.register_var("core0", "bit", "wire", size=1, init=0)
        bus = writer.register_var("core0", "bus", "wire", size=8, init="x")
        busy = writer.register_var("core0", "busy", "wire", size=1, init=0)
        for cycle in range(1, 30):
            if cycle in (3, 20):
                writer.change(bit, cycle, int(cycle == 3))
            if cycle == 4:
                writer.change(bus, cycle, 0x2A)
            if cycle > 25:
                writer.change(busy, cycle, cycle & 1)
        writer.close(30)
    return waves.open(path)


def test_columns_gaps_and_unknown_values(wave: waves.Wave) -> None:
    found = timing_diagram(wave, first=1, last=22, signals=["core0.bit", "core0.bus"])
    cycle, bit, bus = found["signal"]
    assert bit == {"name": "core0.bit", "wave": "0.1.|.0.."}
    assert bus == {"name": "core0.bus", "wave": "x..=|....", "data": ["2a"]}
    assert cycle == {"name": "cycle", "wave": "=...|=...", "data": ["1", "19"]}
    assert json.loads(json.dumps(found)) == found


def test_every_cycle_is_a_column_where_something_changes(wave: waves.Wave) -> None:
    (cycle, busy) = timing_diagram(wave, first=24, last=29, signals=["core0.busy"])["signal"]
    assert busy["wave"] == "0.0101" or busy["wave"] == "0..101"
    assert len(cycle["wave"]) == 6


def test_what_cannot_be_drawn_is_named(wave: waves.Wave) -> None:
    with pytest.raises(WaveError, match="no cycles 40 to 50; the waveform has 0 to 29"):
        timing_diagram(wave, first=40, last=50, signals=["core0.bit"])
    with pytest.raises(WaveError, match="nothing"):
        timing_diagram(wave, signals=["core0.nothing"])


def test_a_window_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.vcd"
    with path.open("w") as file, VCDWriter(file, timescale="1 ns") as writer:
        bit = writer.register_var("core0", "bit", "wire", size=1, init=0)
        for cycle in range(1, MOST_COLUMNS + 20):
            writer.change(bit, cycle, cycle & 1)
        writer.close(MOST_COLUMNS + 20)
    with pytest.raises(WaveError, match=f"columns; {MOST_COLUMNS} are possible"):
        timing_diagram(waves.open(path), signals=["core0.bit"])


@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_pictures_are_those_of_the_documents(name: str) -> None:
    document = (PICTURES / f"timing-{name}.json").read_text("utf-8")
    drawn = (PICTURES / f"timing-{name}.svg").read_text("utf-8")
    assert picture(document) == drawn
    parts = set(re.findall(r'<use [^>]*href="#([^"]*)"', drawn))
    assert "000" in parts and parts <= set(re.findall(r' id="([^"]*)"', drawn)), "every level is drawn"
    page = (PICTURES.parent / "ports.md").read_text("utf-8")
    assert f"(pictures/timing-{name}.svg)" in page
    lengths = {len(lane["wave"]) for lane in json.loads(document)["signal"]}
    assert len(lengths) == 1 and lengths.pop() <= 60


@pytest.mark.heavy
@pytest.mark.parametrize("name", DIAGRAMS)
def test_the_documents_are_those_of_the_rtl(name: str) -> None:
    from tools.timing.record import current

    assert current(name), f"python -m tools.timing {name}"
