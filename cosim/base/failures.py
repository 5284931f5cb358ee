"""Unforeseen errors: which ones they are, where their tracebacks are kept, and what a server does with them.

A command that serves the calls of a program must not end at an error of this package behind a call, and must
not hide it either.  The call returns the error code of its interface, one line on standard error says what
happened, a file keeps the traceback, and the command's exit code is not 0.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

INTERNAL = 70
"""Exit code of a command with an unforeseen error (all codes: `rkcosim.cli.exits`)."""

DEBUG_VARIABLE = "RKCOSIM_DEBUG"
"""Environment variable that puts tracebacks on standard error."""

FOLDER_VARIABLE = "RKCOSIM_FAILURES"
"""Environment variable with a folder in which the processes of a program tell a command of errors."""

MOST_KEPT = 64
"""Largest number of tracebacks that one command writes to its file, so that the file is bounded."""


def is_internal(error: BaseException) -> bool:
    """Return whether an error is one of this package, which no caller can foresee or avoid.

    Errors that a caller can meet have a class of this package, or are caused by the system: a file that
    cannot be read, memory that is used up.
    """
    ours = hasattr(error, "exit_code") or type(error).__module__.partition(".")[0] == "rkcosim"
    return not ours and not isinstance(error, (OSError, MemoryError))


def one_line(error: BaseException) -> str:
    """Return the class and the text of an error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def new_log() -> Path:
    """Create the file for the tracebacks of a command, which begins with the command line.

    Raises
    ------
    OSError
        if it cannot be written.
    """
    handle, name = tempfile.mkstemp(prefix="rkcosim-error-", suffix=".txt")
    with os.fdopen(handle, "w") as file:
        file.write(f"{' '.join(sys.argv)}\n")
    return Path(name)


def keep(error: BaseException, log: Path, what: str = "") -> None:
    """Append the traceback of an error to a file of `new_log`; `what` says where it occurred.

    Raises
    ------
    OSError
        if the file cannot be written.
    """
    with log.open("a", encoding="utf-8") as file:
        file.write(f"\n{what}\n" if what else "\n")
        traceback.print_exception(error, file=file)


def told(folder: Path) -> list[str]:
    """Return the errors of the processes whose variable `FOLDER_VARIABLE` names a folder."""
    return [line for file in sorted(folder.glob("*.failed")) for line in file.read_text().splitlines()]


class Failures:
    """Record of the unforeseen errors behind the calls of programs; any thread may use it.

    Members
    -------
    count : number of errors.
    lines : what happened, each kind of error once.
    """

    def __init__(self) -> None:
        self.count = 0
        self.lines: list[str] = []
        self._log: Path | None = None
        self._lock = threading.Lock()

    def add(self, what: str, error: BaseException) -> None:
        """Record an error; its first occurrence writes a line on standard error.

        Parameters
        ----------
        what : the call that caused it, as "rknn_run".
        error : the exception.
        """
        text = f"internal error in {what}: {one_line(error)}"
        with self._lock:
            self.count += 1
            if self.count > MOST_KEPT:
                return
            if os.environ.get(DEBUG_VARIABLE):
                traceback.print_exception(error)
            where = self._keep(what, error)
            if text in self.lines:
                return
            self.lines.append(text)
        with contextlib.suppress(OSError, ValueError):  # nobody reads standard error any more
            print(f"rkcosim: {text} ({where})", file=sys.stderr, flush=True)
        if folder := os.environ.get(FOLDER_VARIABLE):
            with (
                contextlib.suppress(OSError),
                Path(folder, f"{os.getpid()}.failed").open("a", encoding="utf-8") as file,
            ):
                file.write(f"{text}\n")

    def _keep(self, what: str, error: BaseException) -> str:
        """Write the traceback; return where it is."""
        try:
            self._log = self._log or new_log()
            keep(error, self._log, what)
        except OSError:
            return f"set {DEBUG_VARIABLE}=1 to see the traceback"
        return f"traceback in {self._log}; please report it"

    def code(self, code: int) -> int:
        """Return the exit code of a command whose program ended with `code`."""
        return code or (INTERNAL if self.count else 0)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Also record the exceptions that end a thread of this process within the block."""
        before = threading.excepthook

        def ended(args: threading.ExceptHookArgs) -> None:
            name = args.thread.name if args.thread is not None else "unknown"
            if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
                self.add(f"the thread '{name}'", args.exc_value)

        threading.excepthook = ended
        try:
            yield
        finally:
            threading.excepthook = before
