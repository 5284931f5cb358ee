"""Reading waveforms back: files, names, values, with both libraries."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rkcosim import waves
from rkcosim.waves import Wave, WaveError
from rkcosim.waves.backends import have_pywellen

VCD = """$timescale 100ps $end
$scope module core0 $end
$var wire 1 ! irq $end
$var wire 4 # count [3:0] $end
$scope module inner $end
$var wire 1 % valid $end
$var wire 4 # copy [3:0] $end
$var real 64 r load $end
$var string 1 t name $end
$upscope $end
$scope module other $end
$var wire 1 & valid $end
$var wire 256 w wide [255:0] $end
$upscope $end
$upscope $end
$scope module core1 $end
$var wire 1 ( irq $end
$upscope $end
$enddefinitions $end
#0
$dumpvars
0!
bxxxx #
0%
1&
b101 w
0(
sfirst t
$end
#30
b0101 #
#50
1!
r1.5 r
ssecond t
#55
b0110 #
#70
0!
1%
#75
0%
#90
1!
b1111 #
#95
b1x11 #
#120
"""

needs_pywellen = pytest.mark.skipif(not have_pywellen(), reason="pywellen is not installed")
READERS = ["vcdvcd", pytest.param("pywellen", marks=needs_pywellen)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "w.vcd"
    path.write_text(VCD)
    return path


@pytest.fixture(params=READERS)
def wave(file: Path, request: pytest.FixtureRequest) -> Wave:
    wave = waves.open(file, reader=request.param)
    assert wave.reader == request.param
    return wave


def test_values_and_edges_by_cycle(wave: Wave):
    assert (wave.format, wave.first, wave.last, wave.cores) == ("vcd", 0, 11, [0, 1])
    assert wave.rises("core0.irq") == [5, 9] and wave.falls("core0.irq") == [7]
    assert wave.rises("core0.irq", first=6) == [9] and wave.rises("core0.irq", last=8) == [5]
    assert [wave.value("count", cycle) for cycle in (0, 2, 3, 4, 5, 8, 9, 11)] == [
        *(None, None, 5, 5, 6, 6),
        *(None, None),
    ]
    # Changes that are undone within the same cycle are left out.
    assert wave.changes("inner.valid") == [(0, 0)]
    assert (
        wave.value("other.wide", 11) == 5 and wave.value("load", 4) is None and wave.value("load", 5) == 1.5
    )
    assert wave.changes("inner.name") == [(0, "first"), (5, "second")]
    assert wave.changes("count", 3, 5) == [(3, 5), (5, 6)] and wave.changes("count", 4, 4) == []
    assert wave.when("core0.irq", 1) == [(5, 7), (9, 12)]


def test_stretches_of_several_signals(wave: Wave):
    assert list(wave.steps(["core0.irq", "count"])) == [
        (0, 3, (0, None)),
        (3, 5, (0, 5)),
        (5, 7, (1, 6)),
        (7, 9, (0, 6)),
        (9, 12, (1, None)),
    ]
    assert list(wave.steps(["core0.irq", "count"], 4, 6)) == [(4, 5, (0, 5)), (5, 7, (1, 6))]
    assert list(wave.steps(["core0.irq"], 20, 30)) == []


def test_names(wave: Wave):
    assert [(s.name, s.width) for s in wave.signals] == [
        ("core0.irq", 1),
        ("core0.count", 4),
        ("core0.inner.valid", 1),
        ("core0.inner.copy", 4),
        ("core0.inner.load", 0),
        ("core0.inner.name", 0),
        ("core0.other.valid", 1),
        ("core0.other.wide", 256),
        ("core1.irq", 1),
    ]
    assert wave.find("copy").reference == wave.find("count").reference
    assert [s.name for s in wave.glob("core0.*", "core1.irq")] == [s.name for s in wave.signals]
    assert [s.name for s in wave.glob("*.valid")] == ["core0.inner.valid", "core0.other.valid"]
    assert [s.name for s in wave.glob("inner.*a*")] == [
        "core0.inner.valid",
        "core0.inner.load",
        "core0.inner.name",
    ]
    assert [s.name for s in wave.glob("irq")] == ["core0.irq", "core1.irq"]
    assert wave.glob("nothing*") == []
    assert wave.scopes() == ["core0", "core1"] and wave.scopes("core0") == ["core0.inner", "core0.other"]
    assert [s.leaf for s in wave.within("core0")] == ["irq", "count"]
    assert "inner.valid" in wave and "nothing" not in wave


def test_names_that_fit_none_or_several(wave: Wave):
    with pytest.raises(
        WaveError, match=r"2 signals are called 'valid'.*core0\.inner\.valid, core0\.other\.valid"
    ):
        wave.find("valid")
    with pytest.raises(
        WaveError, match=r"no signal is called 'core0\.inner\.vallid'; near: core0\.inner\.valid"
    ):
        wave.find("core0.inner.vallid")
    with pytest.raises(WaveError, match=r"no signal is called 'cuont'; near: core0\.count"):
        wave.value("cuont", 0)
    with pytest.raises(WaveError, match=r"no core 2 in this waveform \(there are: 0, 1\)"):
        wave.irqs(2)


def test_another_clock(file: Path):
    wave = waves.open(file, cycle=2e-9)
    assert wave.last == 5 and wave.rises("core0.irq") == [2, 4]
    with pytest.raises(WaveError, match="shorter than the file's unit"):
        waves.open(file, cycle=1e-12)


@needs_pywellen
def test_a_large_file_is_gone_through_for_every_question(file: Path, monkeypatch: pytest.MonkeyPatch):
    kept = waves.open(file, reader="pywellen")
    monkeypatch.setattr("rkcosim.waves.backends.STREAMED", 0)
    streamed = waves.open(file, reader="pywellen")
    for signal in kept.signals:
        assert streamed.changes(signal.name) == kept.changes(signal.name)


def test_files_that_are_no_waveforms(tmp_path: Path):
    path = tmp_path / "w.vcd"
    with pytest.raises(WaveError, match="no such file"):
        waves.open(path)
    for text, says in (
        ("hello\n", "not a waveform"),
        ("", "the file is empty"),
        (VCD[:300], "cut off inside its header"),
    ):
        path.write_text(text)
        with pytest.raises(WaveError, match=says):
            waves.open(path)
    path.write_bytes(gzip.compress(VCD.encode()))
    with pytest.raises(WaveError, match="unpack it first"):
        waves.open(path)
    path.write_bytes(bytes(400))
    with pytest.raises(WaveError, match="not a waveform"):
        waves.open(path)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_cut_off(tmp_path: Path, reader: str):
    path = tmp_path / "w.vcd"
    path.write_text(VCD[: VCD.index("b1111 #") + 3])
    with pytest.raises(WaveError, match="cut off: it ends inside a line"):
        waves.open(path, reader=reader)
    wave = waves.open(path, reader=reader, partial=True)
    assert wave.rises("core0.irq") == [5, 9] and wave.value("count", 9) == 6 and wave.last == 9


def test_files_that_vcdvcd_cannot_read(tmp_path: Path):
    path = tmp_path / "w.fst"
    path.write_bytes(b"\0" + (329).to_bytes(8, "big") + bytes(321))
    with pytest.raises(WaveError, match="FST file without its end"):
        waves.open(path)
    with pytest.raises(WaveError, match="no reader 'other'"):
        (tmp_path / "w.vcd").write_text(VCD)
        waves.open(tmp_path / "w.vcd", reader="other")
