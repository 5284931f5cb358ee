"""Exit codes of `rkcosim`, and how errors become one line.

0: match or ok. 1: mismatch or finding. 2: bad input. 3: error or time-out of the simulated device. 4:
nothing was compared, because nothing ran on the NPU. 70: internal error of this program. 130: Ctrl-C. 141:
the reader of the output closed it. 143: SIGTERM. With `RKCOSIM_DEBUG=1` every error shows its traceback.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

from rkcosim.base import BAD_INPUT, DEVICE_ERROR, progress
from rkcosim.base.extras import MissingPackage, extra_of, missing
from rkcosim.base.failures import DEBUG_VARIABLE, INTERNAL, is_internal, keep, new_log, one_line
from rkcosim.cli import results, streams
from rkcosim.cli.results import STDOUT

OK = 0
MISMATCH = 1
NOTHING = 4
INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141


@dataclass
class Asked:
    """The files that a command is to write, and their state before it ran.

    Parameters
    ----------
    command : the command's words, as "regcmd run".
    files : path of each file; "-" is the JSON document on standard output.
    json : the file that takes the JSON document.
    """

    command: str
    files: list[Path]
    json: Path | None = None
    told: bool = field(init=False, default=False)
    """True once an error message has named the missing files."""
    before: dict[Path, object] = field(init=False)
    absent: list[Path] = field(init=False)
    """Folders of the files that did not exist."""

    def __post_init__(self) -> None:
        self.absent = list(dict.fromkeys(path.parent for path in self.files if not path.parent.exists()))
        # Devices and pipes do not show that they were written.
        kept = [path for path in self.files if os.path.isfile(path) or not os.path.exists(path)]
        self.before = {path: _stamp(path) for path in kept}

    def missing(self) -> list[Path]:
        """Return the files that have not been written since."""
        return [path for path, stamp in self.before.items() if _stamp(path) in (None, stamp)]


def _stamp(path: Path) -> object:
    """Return a value that changes when a file is written; None if it does not exist."""
    if path == STDOUT:
        return results.printed
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_ino, info.st_mtime_ns, info.st_size


_asked: Asked | None = None
"""The files that the running command is to write."""


def _named(paths: list[Path]) -> str:
    return ", ".join("the JSON document" if path == STDOUT else str(path) for path in paths)


@contextmanager
def _accounted(asked: Asked) -> Iterator[None]:
    """Check at a command's end that it wrote the requested files; otherwise make its exit code non-zero."""
    global _asked
    _asked = asked
    code: object = 0
    try:
        try:
            yield
        except KeyboardInterrupt as error:
            stopped(error)
        except SystemExit as end:
            if asked.told or not asked.missing():
                raise
            code = end.code
        if lost := asked.missing():
            fail(f"{_named(lost)}: not written", code if isinstance(code, int) and code else BAD_INPUT)
    finally:
        for folder in filter(Path.is_dir, asked.absent):
            progress.say(f"made the folder {folder}")
        _asked = None


@contextmanager
def mannered(quiet: bool, asked: Asked) -> Iterator[None]:
    """Run a command: show progress, keep JSON separate, turn exceptions into exit codes.

    If an error ends the command, the message names the files of `asked` that were not written. If the device
    is at fault, the JSON document is written with the error in it.
    """
    from rkcosim.base.progress_display import shown

    with flushed(), results.json_alone(asked.json == STDOUT), shown(quiet), _accounted(asked), reported():
        if asked.json == STDOUT and "output" in streams.closed:
            raise ValueError("standard output is closed, so the JSON document cannot be written to it")
        yield
        flush()


@contextmanager
def flushed() -> Iterator[None]:
    """End the program as described above if it is interrupted, or if standard output cannot be written."""
    try:
        yield
    except KeyboardInterrupt as error:
        stopped(error)
    except BrokenPipeError:
        leave_pipe()
    except SystemExit:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            leave_pipe()
        except OSError:  # was reported already, or follows an error that was
            _forget_output()
        raise


def flush() -> None:
    """Write what has been printed; an error names standard output, whatever object stands for it."""
    from rkcosim.waves.whole_file import named

    with named("standard output"):
        sys.stdout.flush()


@contextmanager
def reported() -> Iterator[None]:
    """Turn errors into one message on stderr and the right exit code."""
    try:
        yield
    except Exception as error:
        if _heard is not None:  # code in C may turn an interruption into an error, as "import failed"
            stopped(_heard)
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        code = exit_code(error)
        if code is None:
            raise
        text = said(error) if code != INTERNAL else f"internal error: {one_line(error)} ({_kept(error)})"
        fail(text, code, error_facts(error))


MOST_TEXT, MOST_LINE = 16_384, 1024
"""Largest number of characters of a message, and of a line in it: values and names of files may be long."""


def said(error: Exception) -> str:
    """Return the message of an expected error, as the command line prints it behind "rkcosim: ".

    A message with a value of 100,000 characters is cut, with a mark where something is left out.
    """
    lines = [_cut(line, MOST_LINE) for line in _text_of(error).split("\n")]
    return _cut("\n".join(lines), MOST_TEXT)


def _cut(text: str, most: int) -> str:
    """Return a text with at most `most` characters and a mark: its beginning and its end."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]} [... {len(text) - most:,} characters ...] {text[-end:]}"


def _text_of(error: Exception) -> str:
    if lacks_memory(error):
        what = f"memory is used up{_NO_FILE[errno.ENOMEM]}"
        where = str(error).rstrip(": ")
        return f"{where}: {what}" if where else what
    if isinstance(error, FileNotFoundError):
        return f"{error.filename}: no such file{_hint(str(error.filename))}"
    if isinstance(error, OSError):  # an OSError of writing names the file
        where = f"{_text(error.filename)}: " if error.filename else ""
        return f"{where}{error.strerror or error}{_NO_FILE.get(error.errno or 0, '')}"
    if _no_thread(error):
        return f"no further thread can be started{_NO_FILE[errno.EAGAIN]}"
    if isinstance(error, ModuleNotFoundError) and extra_of(error.name or ""):
        return missing(error.name or "", "this command")
    return str(error)


_NO_FILE = {
    errno.EMFILE: " (limit of this process: ulimit -n)",
    errno.ENFILE: " (limit of this machine: sysctl fs.file-max)",
    errno.EAGAIN: " (limit of processes and threads of this user: ulimit -u)",
    errno.ENOMEM: " (limit of memory: ulimit -v)",
}
"""Remedies for errors of the system that no file has caused."""


def _text(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, (str, bytes)) else str(name)


def _hint(name: str) -> str:
    """Return why a file that does not exist may have this name."""
    if "://" in name or re.match(r"(?i)https?:/", name):  # pathlib makes one slash of two
        return " (addresses of the web are not read; download the file first)"
    return " (the shell has not replaced the ~; write $HOME)" if name.startswith("~") else ""


def lacks_memory(error: BaseException | None) -> bool:
    """Return whether an error, or the one that caused it (its attribute `cause`), is a lack of memory."""
    while error is not None and not isinstance(error, MemoryError):
        error = getattr(error, "cause", None)
    return error is not None


def _no_thread(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


def exit_code(error: Exception) -> int | None:
    """Return the exit code of an error; None if it is handled elsewhere, `INTERNAL` for an unexpected one.

    Expected errors have an attribute `exit_code`, or are a ValueError or OSError (bad input), or a lack of
    memory, threads or packages (the same code). The exit code of the attribute `cause` takes precedence.
    """
    if isinstance(error, BrokenPipeError):
        return None
    code: int | None = getattr(error, "exit_code", None)
    if isinstance(error, ModuleNotFoundError) and extra_of(error.name or ""):
        return BAD_INPUT
    if code is None:
        expected = isinstance(error, (ValueError, OSError, MissingPackage, MemoryError)) or _no_thread(error)
        return BAD_INPUT if expected else INTERNAL
    cause = getattr(error, "cause", None)
    if not isinstance(cause, Exception):
        return code
    found = exit_code(cause)
    # A refusal of a library of this package without an exit code is as foreseen as the error around it.
    foreseen = not is_internal(cause)
    return code if found is None or (found == INTERNAL and foreseen) else found


def _kept(error: Exception) -> str:
    """Write the traceback to a file and return where it is."""
    try:
        log = new_log()
        keep(error, log)
    except OSError:
        return f"set {DEBUG_VARIABLE}=1 to see the traceback"
    return f"traceback in {log}, or set {DEBUG_VARIABLE}=1; please report it"


def error_facts(error: BaseException) -> dict[str, Any]:
    """Return the facts of an error for JSON: its `kind`, and the `cores` of a job that did not end."""
    cause = getattr(error, "cause", None)
    raised = cause if isinstance(cause, BaseException) else error
    found = getattr(raised, "cores", [])
    cores = [asdict(core) for core in found if is_dataclass(core) and not isinstance(core, type)]
    return {"kind": type(raised).__name__} | ({"cores": cores} if cores else {})


def fail(message: str, code: int, facts: Mapping[str, Any] | None = None) -> NoReturn:
    """Print what went wrong and which files were therefore not written, and end with `code`.

    If the device or this program is at fault, a JSON document that was requested and not written yet is
    written with the error in it.

    Parameters
    ----------
    facts : more members of that document's `error`.
    """
    lost = _not_written(message, code, facts or {})
    if lost:
        message += f"\nnot written: {lost}" if "\n" in message else f" (not written: {lost})"
    if (unused := sys.modules.get("amaranth._unused")) is not None:
        # An interrupted elaboration leaves parts that are not used; Amaranth would name each at the end.
        warnings.simplefilter("ignore", unused.UnusedMustUse)
    with contextlib.suppress(OSError):
        print(f"rkcosim: {message}", file=sys.stderr)
    raise SystemExit(code)


def _not_written(message: str, code: int, facts: Mapping[str, Any]) -> str:
    """Write the JSON document of an error; return the names of the files that are still missing."""
    if _asked is None or _asked.told:
        return ""
    _asked.told = True
    missing = _asked.missing()
    if code in (DEVICE_ERROR, INTERNAL) and _asked.json in missing:
        error = {"text": message, "exit_code": code, **facts}
        data = {"command": _asked.command, "verdict": {"match": None}, "error": error}
        with contextlib.suppress(OSError):
            results.write_json(_asked.json, data)
            missing.remove(_asked.json)
    if code == BAD_INPUT and len(missing) == len(_asked.before):
        return ""  # bad input: nothing is written (docs/commandline.md)
    return "" if all(str(path) in message for path in missing) else _named(missing)


class Terminated(KeyboardInterrupt):
    """SIGTERM ended the command; it leaves the same files as Ctrl-C."""


_heard: KeyboardInterrupt | None = None
"""The last interruption by a signal."""


def hear_signals() -> None:
    """Let SIGTERM raise `Terminated`, and remember Ctrl-C, unless the signals are handled elsewhere."""
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _terminate(*_: object) -> NoReturn:
    global _heard
    _heard = Terminated()
    raise _heard


def _interrupt(*_: object) -> NoReturn:
    global _heard
    _heard = KeyboardInterrupt()
    raise _heard


def stopped(error: KeyboardInterrupt) -> NoReturn:
    """End the command as after Ctrl-C or SIGTERM."""
    if isinstance(error, Terminated):
        fail("ended by SIGTERM", TERMINATED)
    fail("interrupted", INTERRUPTED)


def leave_pipe() -> NoReturn:
    """The output was closed by its reader: end silently, and suppress the interpreter's last flush."""
    _forget_output()
    raise SystemExit(BROKEN_PIPE)


def _forget_output() -> None:
    """Discard what remains for standard output."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
