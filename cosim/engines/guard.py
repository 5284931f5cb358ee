"""What a build has started ends with it, even if the build's process is killed and cannot clean up.

A small process waits for the end of the one that builds. If that ends without a word, the process ends the
compilers with all that they have started, and removes the working folder.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_WATCHER = r"""
import os, shutil, signal, sys
held = {}
for line in sys.stdin:
    word, pid = line[0], int(line[1:] or 0)
    if word == "+":
        try:
            held[pid] = os.pidfd_open(pid)
        except OSError:
            pass
    elif word == "-" and pid in held:
        os.close(held.pop(pid))
    elif word == ".":
        sys.exit()

def children():
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        found.setdefault(parent, []).append(int(name))
    return found

def end(pid, handle, known):
    for child in known.get(pid, ()):
        try:
            below = os.pidfd_open(child)
        except OSError:
            continue
        end(child, below, known)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        pass

def living(handle):
    try:
        signal.pidfd_send_signal(handle, 0)
    except OSError:
        return False
    return True

known = children()
for pid, handle in held.items():
    if living(handle):
        end(pid, handle, known)
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
"""Reads `+PID`, `-PID` and `.` (all is well), one a line; acts at the end of its input."""

_guards: list[_Guard] = []


class _Guard:
    def __init__(self, work: Path) -> None:
        self._lock = threading.Lock()
        command = [sys.executable, "-I", "-S", "-c", _WATCHER, str(work)]
        # Own session: signals of the terminal reach only the others.
        self._watcher = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def tell(self, line: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            assert self._watcher.stdin is not None
            self._watcher.stdin.write(f"{line}\n")
            self._watcher.stdin.flush()

    def close(self) -> None:
        self.tell(".")
        with contextlib.suppress(OSError):
            self._watcher.communicate()


@contextlib.contextmanager
def guarded(work: Path) -> Iterator[None]:
    """Guard the processes of `started` and the folder `work` within the `with` block, where Linux runs."""
    made: _Guard | None = None
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # no further process: the build fails by itself
            made = _Guard(work)
    if made is None:
        yield
        return
    _guards.append(made)
    try:
        yield
    finally:
        _guards.remove(made)
        made.close()


@contextlib.contextmanager
def started(pid: int) -> Iterator[None]:
    """Name a process that runs within the `with` block to the innermost guard."""
    made = _guards[-1] if _guards else None
    if made is None:
        yield
        return
    made.tell(f"+{pid}")
    try:
        yield
    finally:
        made.tell(f"-{pid}")
