"""Exit codes of `rkcosim`, how errors become one line, and where results go (DESIGN 11).

0 match or ok, 1 mismatch or finding, 2 bad input, 3 error or time-out of the simulated device; 70 a fault
of this program's own, 130 Ctrl-C, 141 the reader of the output went away.  With `RKCOSIM_DEBUG=1` every
error shows its traceback.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

OK = 0
MISMATCH = 1
BAD_INPUT = 2
DEVICE_ERROR = 3
INTERNAL = 70
INTERRUPTED = 130
BROKEN_PIPE = 141

STDOUT = Path("-")
"""The `--json` that means standard output."""

_KNOWN = (
    ("cosim.models.run", "RunError", BAD_INPUT),
    ("sw.driver.errors", "DriverError", DEVICE_ERROR),
    ("cosim.engines.errors", "WaveformError", BAD_INPUT),
    ("cosim.engines.errors", "SnapshotError", BAD_INPUT),
    ("cosim.engines.errors", "EngineError", DEVICE_ERROR),
    ("cosim.golden.task.errors", "GoldenError", DEVICE_ERROR),
    ("cosim.cli.inputs", "InputError", BAD_INPUT),
    ("cosim.models.references", "ReferenceProblem", BAD_INPUT),
    ("sw.driver.server.server", "ServerError", BAD_INPUT),
    ("cosim.shards.errors", "WorkersLost", DEVICE_ERROR),
    ("cosim.shards.errors", "ClusterError", BAD_INPUT),
    ("cosim.shards.errors", "ShardError", DEVICE_ERROR),
)
"""Module and name of what is raised on purpose, and its exit code; the code of a `cause` goes first.

Everything else on purpose is a ValueError or OSError: bad input."""

_result: TextIO | None = None
"""Where JSON for standard output goes while everything else printed goes to the error stream."""


@contextmanager
def mannered(quiet: bool = False, json: Path | None = None) -> Iterator[None]:
    """Run a command: show what is under way, keep JSON apart, turn what is raised into exit codes."""
    from cosim.cli.progress import shown

    try:
        with _json_alone(json == STDOUT), shown(quiet), reported():
            yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        leave_pipe()
    except SystemExit:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
            raise
        leave_pipe()


@contextmanager
def reported() -> Iterator[None]:
    """Turn errors into one message on stderr and the right exit code."""
    try:
        yield
    except Exception as error:
        if os.environ.get("RKCOSIM_DEBUG") and not _typers(error):
            traceback.print_exc()
        code = _code(error)
        if code is None:
            raise
        if code == INTERNAL:
            fail(f"internal error: {_in_a_line(error)} ({_kept(error)})", code)
        fail(_text(error), code)


def _typers(error: Exception) -> bool:
    """Whether typer raised it to end or to complain about the command line."""
    import typer

    return isinstance(error, (typer.Exit, typer.Abort, typer.BadParameter))


def _code(error: Exception) -> int | None:
    """The exit code of an error; None where others deal with it."""
    if isinstance(error, BrokenPipeError) or _typers(error):
        return None
    for module, name, code in _KNOWN:
        kind = getattr(sys.modules.get(module), name, None)  # not loaded: nobody can have raised it
        if kind is not None and isinstance(error, kind):
            cause = getattr(error, "cause", None)
            return _code(cause) or code if isinstance(cause, Exception) else code
    return BAD_INPUT if isinstance(error, (ValueError, OSError)) else INTERNAL


def _text(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{error.filename}: no such file"
    if isinstance(error, OSError):
        return f"{error.filename or 'file'}: {error.strerror or error}"
    return str(error)


def _in_a_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _kept(error: Exception) -> str:
    """Write the traceback to a file and say where."""
    try:
        handle, name = tempfile.mkstemp(prefix="rkcosim-error-", suffix=".txt")
        with os.fdopen(handle, "w") as file:
            file.write(f"{' '.join(sys.argv)}\n\n")
            traceback.print_exception(error, file=file)
    except OSError:
        return "set RKCOSIM_DEBUG=1 to see where"
    return f"traceback in {name}, or set RKCOSIM_DEBUG=1; please report it"


def fail(message: str, code: int) -> NoReturn:
    """Say what went wrong and end with `code`."""
    with contextlib.suppress(BrokenPipeError):
        print(f"rkcosim: {message}", file=sys.stderr)
    raise SystemExit(code)


def leave_pipe() -> NoReturn:
    """Nobody reads any more: end without a word, and without one from the interpreter's last flush."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(BROKEN_PIPE)


@contextmanager
def _json_alone(wanted: bool) -> Iterator[None]:
    """Send all that is printed, also by programs started here, to the error stream; JSON stays out."""
    global _result
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept, _result = sys.stdout, sys.stdout
    own = _descriptor(kept)
    saved = None
    if own == 1:
        saved = os.dup(1)
        _result = open(saved, "w", closefd=True)
        os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if saved is not None:
            os.dup2(saved, 1)
            with contextlib.suppress(BrokenPipeError):
                _result.close()
        _result = None


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def check_output(path: Path) -> None:
    """See that a file can be written, before work is done whose result would be lost.

    Raises
    ------
    ValueError
        if not; the text says why.
    """
    if path.is_dir():
        raise ValueError(f"{path}: is a folder, name a file in it")
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise ValueError(f"{path}: {folder} is a file, not a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{path}: cannot be written")


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write JSON so that a reader never sees half of it; to standard output for "-"."""
    text = json.dumps(data, indent=2) + "\n"
    if path == STDOUT:
        print(text, end="", file=_result or sys.stdout, flush=True)
        return
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write a file that is there as a whole or not at all, with its folder."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
