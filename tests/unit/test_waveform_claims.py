"""A waveform is written by one run at a time; the end of a process frees it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rkcosim.engines.protocol import WaveformError
from rkcosim.engines.traces.engine import EngineTrace

HOLD = """
import sys, time
from pathlib import Path
from rkcosim.engines.traces.engine import EngineTrace
trace = EngineTrace(None, print)
trace._claim_file(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_another_process_is_refused_until_the_first_has_ended(tmp_path: Path):
    path, link = tmp_path / "wave.vcd", tmp_path / "link.vcd"
    link.symlink_to(path)
    nothing: Any = None
    trace = EngineTrace(nothing, lambda: None)
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdout.readline() == "held\n"
        for name in (path, link):
            with pytest.raises(WaveformError, match=f"{name.name}: another run is writing this waveform"):
                trace._claim_file(name)
        trace._claim_file(tmp_path / "other.vcd")
        first.send_signal(signal.SIGKILL)
    trace._claim_file(path)
    other = EngineTrace(nothing, lambda: None)
    with pytest.raises(WaveformError, match="another run"):
        other._claim_file(path)
    trace._free_file()
    other._claim_file(path)
    other._free_file()
