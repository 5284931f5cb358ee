"""Standard input, output and error of the program `rkcosim`, usable in every surrounding.

A stream that is closed at the start becomes the null device, so that the command does all its work and no
file that it opens takes the number of the stream.  An error of writing names the stream.  Every text can be
printed: bytes of a file's name that are no text pass through unchanged, and a character that the encoding of
the terminal lacks is printed as its number, as `\\u2026`, and so are control characters.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import sys
from typing import Any

LEGIBLE = "rkcosim.legible"
"""Error handler for `str.encode` and text files, see `_legible`."""

closed: set[str] = set()
"""Streams that were closed when the program was started: of "input", "output" and "error"."""

_STREAMS = ("stdin", "stdout", "stderr")
_NAMES = {"stdin": "input", "stdout": "output", "stderr": "error"}


def _legible(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace what cannot be encoded: by the bytes that Python has read as surrogates, else by numbers."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    if all("\udc80" <= character <= "\udcff" for character in text):
        return bytes(ord(character) - 0xDC00 for character in text), error.end
    if any("\udc80" <= character <= "\udcff" for character in text):
        return codecs.backslashreplace_errors(
            UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
        )
    return codecs.backslashreplace_errors(error)


codecs.register_error(LEGIBLE, _legible)


_OTHERS = r"|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
_CONTROL = {
    "stdout": re.compile(r"\x1b(?!\[[0-9;]*m)" + _OTHERS),  # colours may pass,
    "stderr": re.compile(r"\x1b(?!\[[0-9;]*[mAK]|\[\?25[lh])" + _OTHERS),  # and what the progress line needs
}
"""Characters in names of a file's contents that could give orders to a terminal, by the stream."""


class _Text(io.TextIOWrapper):
    """A text stream that writes control characters as their numbers.

    Parameters
    ----------
    control : matches them.
    """

    def __init__(self, buffer: io.BufferedWriter, control: re.Pattern[str], **settings: Any) -> None:
        super().__init__(buffer, **settings)
        self._control = control

    def write(self, text: str, /) -> int:
        """Write a text; tabs and the ends of lines are no control characters here."""
        return super().write(self._control.sub(lambda found: f"\\x{ord(found[0]):02x}", text))


class _Named(io.FileIO):
    """A file descriptor whose errors of writing have the name of its stream as their file name."""

    def __init__(self, number: int, name: str) -> None:
        super().__init__(number, "wb", closefd=False)
        self._stream = name

    def write(self, data: Any, /) -> int:
        """Write bytes; raises OSError that names the stream, a BrokenPipeError unchanged."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._stream) from None


def prepare() -> None:
    """Make the standard streams of this process usable; to be called once, before anything is printed."""
    for number, name in enumerate(_STREAMS):
        stream = getattr(sys, name)
        if stream is None:
            closed.add(_NAMES[name])
            number = _null(number)
        elif name == "stdin" or type(stream) is not io.TextIOWrapper or not _is_own(stream, number):
            continue
        if name == "stdin":
            sys.stdin = open(number, encoding="utf-8", closefd=False)
            continue
        encoding = getattr(stream, "encoding", None) or "utf-8"
        # Text is passed on at once where a person reads it, errors always.
        raw = _Named(number, f"standard {_NAMES[name]}")
        lines = name == "stderr" or raw.isatty()
        made = _Text(
            io.BufferedWriter(raw),
            _CONTROL[name],
            encoding=encoding,
            errors=LEGIBLE,
            line_buffering=lines,
            write_through=name == "stderr",
        )
        setattr(sys, name, made)


def _is_own(stream: Any, number: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return bool(stream.fileno() == number)
    return False


def _null(number: int) -> int:
    """Open the null device, as descriptor `number` if nothing else has that number."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened == number:
        os.set_inheritable(opened, True)
        return number
    try:
        os.fstat(number)
    except OSError:
        os.dup2(opened, number)
        os.close(opened)
        return number
    return opened
