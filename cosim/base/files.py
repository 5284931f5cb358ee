"""Files given by users: bounded reading of regular files, and identification by contents.

Only regular files of bounded size are read, so that the program never waits for a device or a FIFO.
"""

from __future__ import annotations

import json
import os
import re
import stat
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO

from rkcosim.base import Error

MOST_BYTES = 1 << 32
"""Maximum number of bytes of a file that is read as a whole: the size of the device's address space."""

_IRREGULAR: dict[int, str] = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


_PART = 1 << 20


class GivenFileError(Error, ValueError):
    """A file cannot be read as a whole; the message names it and says what it is."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, at its first byte; never waits.

    Raises
    ------
    GivenFileError
        for a folder, a device, a FIFO or a socket.
    OSError
        if it does not exist or cannot be read.
    """
    _regular(path, os.stat(path).st_mode)
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    try:
        _regular(path, os.fstat(file.fileno()).st_mode)
    except GivenFileError:
        file.close()
        raise
    return file


def said_of_mode(mode: int) -> str:
    """Return what a file is, from its mode: "a device"."""
    return "a regular file" if stat.S_ISREG(mode) else _IRREGULAR.get(stat.S_IFMT(mode), "something else")


def _regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise GivenFileError(f"{path}: is {said_of_mode(mode)}, not a regular file")


def read_given(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return all bytes of a regular file.

    Raises
    ------
    GivenFileError
        if it is not a regular file, or has more than `most` bytes.
    OSError
        if it does not exist or cannot be read.
    """
    with open_regular(path) as file:
        return read_opened(file, path, most)


def read_opened(file: BinaryIO, path: Path, most: int = MOST_BYTES) -> bytes:
    """Return all bytes of an open file; memory is only taken for what it has.

    Parameters
    ----------
    path : its name in messages.

    Raises
    ------
    GivenFileError
        if it is not a regular file, or has more than `most` bytes.
    OSError
        if it cannot be read.
    """
    found = os.fstat(file.fileno())
    _regular(path, found.st_mode)
    size, parts, count = found.st_size, [], 0
    room = size + 1  # one more byte shows that the file has grown, or has no size as in /proc
    while size <= most >= count and (part := file.read(min(room, most + 1 - count))):
        parts.append(part)
        count += len(part)
        room = _PART
    if max(size, count) > most:
        raise GivenFileError(f"{path}: is too large: {max(size, count):,} bytes, at most {most:,} are read")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_json(path: Path, what: str, most: int = MOST_BYTES) -> Any:
    """Return the JSON value in a regular file.

    Parameters
    ----------
    what : what the file should be, for the message: "a stream file".

    Raises
    ------
    GivenFileError
        if it is not a regular file, has more than `most` bytes, or does not contain JSON.
    OSError
        if it does not exist or cannot be read.
    """
    return json_of(read_given(path, most), path, what)


def json_of(data: bytes, path: Path, what: str) -> Any:
    """Return the JSON value in the bytes of a file; parameters and errors as for `read_json`."""
    try:
        return json.loads(data)
    except RecursionError:
        raise GivenFileError(f"{path}: not {what} (JSON): it is nested too deeply") from None
    except UnicodeDecodeError:
        raise GivenFileError(f"{path}: not {what} (JSON): it has bytes that are no text") from None
    except ValueError as error:  # not JSON, or a number with thousands of digits
        raise GivenFileError(f"{path}: not {what} (JSON): {error}") from error


MODELS = ("ONNX model", "TFLite model", "TNN network", "compiled model", ".rknn file")
"""Kinds of files that `rkcosim.rknn_file.opening.open_model` accepts."""

UNKNOWN = "unknown"


class WrongKindError(Error, ValueError):
    """A command does not accept files of this kind.

    The message names the file, its kind and suitable commands.
    """


_RUN = "rkcosim run {file}"
_INPUT = "rkcosim run MODEL --input {file}"
KINDS = {
    "ONNX model": _RUN,
    "TFLite model": _RUN,
    "TNN network": _RUN,
    "compiled model": _RUN,
    ".rknn file": _RUN,
    "snapshot": "rkcosim run MODEL --resume {file}, or rkcosim regcmd run STREAM --resume {file}",
    "stream file": "rkcosim regcmd run {file}",
    "capture's manifest": "rkcosim regcmd import {file} -o stream.json",
    "report of a run": "rkcosim report {file} -o page.html",
    "page of a run": "a browser, or rkcosim report {file} -o page.html",
    "event log": "rkcosim timeline {file}, or rkcosim diff {file} OTHER",
    "waveform": "rkcosim waves {file}",
    "archive of arrays (.npz)": _INPUT,
    "array (.npy)": _INPUT,
    "picture": _INPUT,
    "text of a register-command stream": "rkcosim regcmd asm {file} -o stream.json",
    "empty file": "",
    "JSON file of another kind": "",
    "ZIP archive without arrays": "",
    "picture of a format that is not read": "",
    "text file": "",
}
"""Kinds of files, as in messages without an article, and the command that takes one; "" if there is none."""

_BEGINNINGS = {
    "compiled model": (b"RKCOSIM\0",),
    "snapshot": (b"RKCOSIM\x1a",),
    ".rknn file": (b"RKNN", b"CYPTRKNN"),
    "array (.npy)": (b"\x93NUMPY",),
    "event log": (b"PAR1", b"ARROW1", b"FEA1"),
    "picture": (b"BM", b"P5", b"P6", b"\x89PNG", b"\xff\xd8\xff"),
    "picture of a format that is not read": (b"GIF8",),
}
_FST = b"\0\0\0\0\0\0\0\x01\x49"  # block of type 0 with 329 bytes
_VCD = re.compile(rb"\s*\$(date|version|timescale|comment|scope|var|attrbegin|enddefinitions)\b")
_ONNX = re.compile(rb"\x08[\x01-\x20](?=[\x12\x1a\x22\x2a\x32\x3a\x42])")  # ir_version, then another member
_TNN = re.compile(rb'[\s"]*1\s+\d+\s+1\s+(4206624770|4206624772)\b')  # header of a .tnnproto file
_LISTING = re.compile(rb"(?m)^\s*(\.stream|\.task|\.region)\b")


def is_container(data: bytes) -> bool:
    """Return whether a file begins as the container of a compiled model does."""
    return data.startswith(_BEGINNINGS["compiled model"])


def identify(data: bytes) -> str:
    """Return the kind of a file's contents, a name of `KINDS`, or `UNKNOWN`."""
    if not data:
        return "empty file"
    found = next((name for name, begins in _BEGINNINGS.items() if data.startswith(begins)), None)
    if found is not None:
        return found
    if data[4:8] == b"TFL3":
        return "TFLite model"
    if data.startswith(b"PK\3\4"):
        return "archive of arrays (.npz)" if b".npy" in data else "ZIP archive without arrays"
    if data.startswith(_FST) or _VCD.match(data):
        return "waveform"
    if _ONNX.match(data):
        return "ONNX model"
    if _TNN.match(data[:512]):
        return "TNN network"
    start = data[:512].lstrip()
    if start[:1] in (b"{", b"["):
        return _of_json(data)
    if start[:9].lower() == b"<!doctype":
        return "page of a run" if b'id="run"' in data else "text file"
    if _LISTING.search(data[: 1 << 16]) and b"\0" not in data[: 1 << 16]:
        return "text of a register-command stream"
    return "text file" if _is_text(data[: 1 << 16]) else UNKNOWN


def _of_json(data: bytes) -> str:
    try:
        members = json.loads(data)
    except (ValueError, RecursionError):
        return "text file" if _is_text(data[: 1 << 16]) else UNKNOWN
    return kind_of_members(set(members) if isinstance(members, dict) else set())


def kind_of_members(names: set[str]) -> str:
    """Return the kind of a JSON file with these members."""
    if "verdict" in names or {"layers", "cycles"} <= names:
        return "report of a run"
    if "regions" in names:
        return "stream file"
    return "capture's manifest" if "memory" in names else "JSON file of another kind"


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 4:  # otherwise the excerpt ends within a character
            return False
        text = data[: error.start].decode()
    return all(c.isprintable() or c.isspace() for c in text)


def said(path: Path, kind: str) -> str:
    """Describe a kind in words, with the command that takes such a file: "a stream file (...)"."""
    if kind == UNKNOWN:
        return "a file of an unknown kind"
    article = "an" if kind[0] in "aeiou" or kind.startswith("ONNX") else "a"
    taken = KINDS[kind]
    return f"{article} {kind}" + (f" ({taken.replace('{file}', str(path))} takes it)" if taken else "")


def wrong(path: Path, data: bytes, wanted: str) -> WrongKindError:
    """Return the error for a file of a kind that a command does not accept; `wanted` is as "a model"."""
    return WrongKindError(f"{path}: is {said(path, identify(data))}, not {wanted}")


def read_model(path: Path) -> bytes:
    """Return the bytes of a model file; see `with_weights` for a network in two files.

    Raises
    ------
    WrongKindError
        for a file of another kind.
    GivenFileError, OSError
        if it cannot be read.
    """
    data = read_given(path)
    kind = identify(data)
    if kind not in (*MODELS, UNKNOWN):
        raise wrong(path, data, "a model (ONNX, TFLite, TNN, .rknn, or compiled)")
    return with_weights(path, data)


def with_weights(path: Path, data: bytes) -> bytes:
    """Return the bytes of a model with those of the file beside it that has its weights, if there is one.

    A network of TNN is a text, `NAME.tnnproto`, and `NAME.tnnmodel` with its arrays.  Both are returned with
    a byte 0 between them.  An ONNX model gets the tensors that are in other files of its folder
    (`rkcosim.base.onnx_weights`).  A model of another kind is returned unchanged.

    Parameters
    ----------
    path
        The model's file.
    data
        Its bytes.

    Raises
    ------
    GivenFileError
        If the other file does not exist or cannot be read.
    """
    kind = identify(data)
    if kind == "ONNX model":
        from rkcosim.base.onnx_weights import OnnxWeightsError, whole

        try:
            return whole(data, partial(_part_beside, path))
        except OnnxWeightsError as error:
            raise GivenFileError(f"{path}: {error}") from error
    if kind != "TNN network" or b"\0" in data:
        return data
    beside = path.with_suffix(".tnnmodel")
    try:
        return data + b"\0" + read_given(beside)
    except OSError as error:
        raise GivenFileError(
            f"{path}: a TNN network, whose arrays are expected in {beside}: {error.strerror}"
        ) from error


def _part_beside(path: Path, location: str, offset: int, length: int | None) -> bytes:
    """Return bytes of a file in the folder of another one; None: all bytes from `offset` on.

    Raises
    ------
    GivenFileError
        If it lies outside of the folder, also behind a link, is no regular file, or has too few bytes.
    OSError
        If it cannot be read.
    """
    shown, posix, windows = location[:200], PurePosixPath(location), PureWindowsPath(location)
    if not posix.parts or posix.is_absolute() or windows.drive or ".." in posix.parts or "\0" in location:
        raise GivenFileError(f"{shown!r} is not a file inside of the model's folder")
    folder = path.parent.resolve()
    file = (folder / location).resolve()
    if folder not in file.parents:
        raise GivenFileError(f"{shown!r} leads out of the model's folder")
    with open_regular(file) as opened:
        size = opened.seek(0, os.SEEK_END)
        count = max(size - offset, 0) if length is None else length
        if offset + count > size:
            raise GivenFileError(f"{count:,} bytes from {offset:,} are not in {shown!r}, which has {size:,}")
        opened.seek(offset)
        return opened.read(count)
