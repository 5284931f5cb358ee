"""Processes: the memory of this one, and the end of one that was started."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

GRACE_SECONDS = 0.5
KILL_SECONDS = 600.0
"""Time for a process to end by itself after its pipes are closed, and after it was killed."""


def resident() -> int:
    """Return the resident bytes of this process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except OSError:
        return 0


def end_child(child: subprocess.Popen[Any]) -> int:
    """Close the pipes of a process, end it if it does not end by itself, and return its exit code."""
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        return child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait(KILL_SECONDS)
