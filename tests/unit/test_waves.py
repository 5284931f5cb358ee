"""Reading waveforms back."""

from __future__ import annotations

from pathlib import Path

import pytest

from waves import open_trace
from waves.reader import TraceError

VCD = """$timescale 100ps $end
$scope module core0 $end
$var wire 1 ! irq $end
$var wire 4 # count [3:0] $end
$scope module inner $end
$var wire 1 % valid $end
$upscope $end
$scope module other $end
$var wire 1 & valid $end
$upscope $end
$upscope $end
$enddefinitions $end
#0
0!
bxxxx #
0%
1&
#30
b0101 #
#50
1!
#70
0!
1%
#90
1!
b1111 #
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "w.vcd"
    path.write_text(VCD)
    return path


def test_values_and_edges_by_cycle(file: Path):
    trace = open_trace(file, ["core0.irq", "count", "inner.valid"])
    assert trace.rises("core0.irq") == [5, 9]
    assert [trace.value("count", cycle) for cycle in (0, 2, 3, 8, 9)] == [None, None, 5, 5, 15]
    assert trace.value("inner.valid", 6) == 0 and trace.value("inner.valid", 7) == 1


def test_names_that_fit_none_or_several(file: Path):
    with pytest.raises(TraceError, match=r"2 signals are called 'valid'"):
        open_trace(file, ["valid"])
    with pytest.raises(TraceError, match=r"0 signals are called 'nothing'"):
        open_trace(file, ["nothing"])
    with pytest.raises(TraceError, match="no signal 'count'"):
        open_trace(file, ["core0.irq"]).value("count", 0)


def test_not_a_waveform(tmp_path: Path):
    path = tmp_path / "w.vcd"
    path.write_text("hello\n")
    with pytest.raises(TraceError):
        open_trace(path, ["irq"])
