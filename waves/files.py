"""Facts about a waveform file from its ends: format, complete or truncated, first and last time.

VCD is text (IEEE 1364, clause 18). FST is a sequence of blocks, each with a type byte and a big-endian length
of the rest (GTKWave's manual, appendix F, and fstapi.h); block 0 is the header with first and last time.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from rkcosim.base import Error

WRITTEN_BY = "written by rkcosim waves"
"""Text in the first line of generated viewers' files; a viewer that saves its state drops it."""

_CHUNK = 1 << 20
_TAIL = 1 << 16
_OVERLAP = 32
"""Bytes of a time in a VCD file: a line feed, `#` and up to 20 digits, and blanks."""

_MOST = 256 << 20
"""Bytes of a VCD file's header, and of the changes at its last time, that are searched."""

_FST_HEADER_LENGTH = 329
_FST_LENGTH_BYTES = 8
_FST_HEADER, _FST_GEOMETRY, _FST_PACKED = 0, 3, 254
_FST_HIERARCHY = (4, 6, 7)
_TIME = re.compile(rb"\n[ \t]*#(\d+)")
_VCD_START = re.compile(rb"\s*\$(date|version|timescale|comment|scope|var|attrbegin|enddefinitions)\b")


class WaveError(Error, ValueError):
    """A waveform cannot be read or lacks a signal; the message names the file and the remedy."""


@dataclass(frozen=True)
class FileFacts:
    """Facts about a waveform file.

    Members
    -------
    format : "vcd" or "fst".
    first : first time in the file, in the file's units.
    end : the time with which it ends: the last time without changes, or one after the last changes.
    cut : why the file is incomplete, if it is.
    """

    format: str
    first: int
    end: int
    cut: str = ""


def ours(path: Path) -> Path:
    """Return where a viewer's file may be written: `path`, or a name next to it if a user's file is there."""
    try:
        with path.open(encoding="utf-8") as stream:
            mine = WRITTEN_BY in stream.readline()
    except FileNotFoundError:
        return path
    except (OSError, UnicodeDecodeError):
        mine = False
    return path if mine else path.with_name("rkcosim." + path.name)


def inspect(file: Path) -> FileFacts:
    """Inspect a waveform's beginning and end.

    Raises
    ------
    WaveError
        if the file does not exist, is not a waveform, or ends inside its header.
    """
    try:
        with file.open("rb") as stream:
            start = stream.read(64)
    except OSError as error:
        raise WaveError(f"{file}: {(error.strerror or str(error)).lower()}") from error
    if not start:
        raise WaveError(f"{file}: the file is empty; did the run that traced end in an error?")
    if start[0] == _FST_PACKED:
        raise WaveError(f"{file}: FST packed as a whole; repack it with fst2vcd and vcd2fst first")
    if start[0] == _FST_HEADER and start[1:9] == struct.pack(">Q", _FST_HEADER_LENGTH):
        return _inspect_fst(file)
    if _VCD_START.match(start):
        return _inspect_vcd(file)
    if start[:2] == b"\x1f\x8b":
        raise WaveError(f"{file}: packed with gzip; unpack it first (gunzip)")
    raise WaveError(f"{file}: not a waveform (neither VCD nor FST)")


def _inspect_vcd(file: Path) -> FileFacts:
    size = file.stat().st_size
    with file.open("rb") as stream:
        seen = b""
        while b"$enddefinitions" not in seen:
            chunk = stream.read(_CHUNK)
            if not chunk:
                raise WaveError(f"{file}: cut off inside its header; trace again")
            if stream.tell() > _MOST:
                raise WaveError(f"{file}: no $enddefinitions in its first {_MOST >> 20} MiB")
            seen = seen[-_TAIL:] + chunk
        after = seen[seen.index(b"$enddefinitions") :] + stream.read(_TAIL)
        begin = _TIME.search(after)
        stream.seek(max(0, size - _TAIL))
        tail = stream.read()
        place = size - len(tail)
        last, behind = _last_time(tail), tail
        changes = False
        while last is None and place > 0:  # a cycle with many changes
            if size - place > _MOST:
                raise WaveError(f"{file}: no time in its last {_MOST >> 20} MiB")
            changes = changes or bool(behind.strip())
            step = min(_CHUNK, place)
            place -= step
            stream.seek(place)
            behind = stream.read(step + _OVERLAP)  # a time may begin before the part that was searched
            last = _last_time(behind)
    first = end = int(begin[1]) if begin else 0
    if begin and last is not None:
        end = int(last[1]) + (changes or bool(behind[last.end() :].strip()))
    cut = "" if tail.endswith(b"\n") else "it ends inside a line"
    return FileFacts("vcd", first, end, cut)


def _last_time(text: bytes) -> re.Match[bytes] | None:
    """Return the last time in a part of a file that may begin inside a line."""
    return next(iter(deque(_TIME.finditer(text, max(text.find(b"\n"), 0)), maxlen=1)), None)


def _inspect_fst(file: Path) -> FileFacts:
    size = file.stat().st_size
    kinds: set[int] = set()
    first = end = 0
    with file.open("rb") as stream:
        place = 0
        while place < size:
            stream.seek(place)
            head = stream.read(25)
            if len(head) < 9:
                break
            kind, (length,) = head[0], struct.unpack(">Q", head[1:9])
            if place + 1 + length > size or length < _FST_LENGTH_BYTES:  # which the length includes
                break
            if kind == _FST_HEADER and len(head) == 25:
                first, end = struct.unpack(">QQ", head[9:25])
            kinds.add(kind)
            place += 1 + length
    if place < size or _FST_GEOMETRY not in kinds or not kinds & set(_FST_HIERARCHY):
        raise WaveError(
            f"{file}: FST file without its end: cut off, or still being written "
            "(names come last in FST; trace to VCD where a run may be killed)"
        )
    return FileFacts("fst", first, end)
