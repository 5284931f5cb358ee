"""The packages that read waveforms leave the process as it was."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, signal
from rkcosim.waves.backends import vcd_parser
vcd_parser()
assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN
read, write = os.pipe()
os.close(read)
try:
    os.write(write, b"x")
except BrokenPipeError:
    print("alive")
"""


def test_the_import_of_vcdvcd_leaves_sigpipe_alone() -> None:
    """Without the restored action, a write to a closed pipe ends the process."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "alive\n"), result.stderr
