"""Checks of a snapshot's contents before they are used, since a correct checksum does not make them valid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.engines.library import RUN_TASK, DramConfig
from rkcosim.engines.memory import PAGE, SPACE
from rkcosim.engines.protocol import SnapshotError
from rkcosim.engines.snapshots.file import SnapshotFile

_PAGES = SPACE // PAGE
_U32, _U64, _I64 = range(1 << 32), range(1 << 64), range(-(1 << 63), 1 << 63)

_ENTRIES = {
    "w": (range(3), _U32, _U32, _I64, _U64, _U32),
    "r": (range(3), _U32, _U32, _I64, _U64, _U32),
    "x": (_U32, _U64, range(RUN_TASK + 1), _U64, _U32),
    "z": (_U32, _U32, _U64, _U32),
}
"""By kind of an entry of the host's log (host_log.py): bounds of each of its numbers."""


class _Wrong(Exception):
    """A part has an invalid form; the message says which."""


def read_snapshot(path: Path) -> SnapshotFile:
    """Read a snapshot completely, and check the form of each part.

    Raises
    ------
    SnapshotError
        as `SnapshotFile.read`, and for contents that no engine wrote; names the part.
    """
    file = SnapshotFile.read(path, check=_check_sizes)
    try:
        _check_pages(file)
        if "host" in file.blocks or "host_pages" in file.blocks:
            _check_log(file)
    except _Wrong as error:
        raise _damaged(path, error) from None
    return file


BLOCKS = ("state", "pages", "memory")
HOST_BLOCKS, INPUTS = ("host", "host_pages"), "inputs"
"""Blocks that every snapshot has, those of one with a log of the host, and the inputs of a model's run as
.npz; any other is refused."""


def _check_sizes(path: Path, header: dict[str, Any]) -> None:
    """Check everything that can be checked before a block is unpacked."""
    try:
        _check_header(header)
        sizes = {entry["name"]: entry["size"] for entry in header["blocks"]}
        for name in BLOCKS:
            _need(name in sizes, f"there is no block '{name}'")
        for name in sizes:
            _need(name in (*BLOCKS, *HOST_BLOCKS, INPUTS), f"its block {_shown(name)} is not known")
        mapped = sum(size for _, size in header["ranges"])
        _need(sizes["pages"] % 4 == 0, f"block 'pages' has {sizes['pages']:,} bytes")
        wanted = sizes["pages"] // 4 * PAGE
        _need(
            sizes["memory"] == wanted <= mapped,
            f"block 'memory' has {sizes['memory']:,} bytes for {wanted:,} in pages of {mapped:,} mapped ones",
        )
    except _Wrong as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: _Wrong) -> SnapshotError:
    return SnapshotError(f"{path}: damaged snapshot: {error}")


def _need(good: bool, text: str) -> None:
    if not good:
        raise _Wrong(text)


def _check_header(header: dict[str, Any]) -> None:
    kinds: dict[str, type] = {"engine": str, "cell": str, "variant": str, "geometry": str, "build": str}
    kinds |= {
        "cores": int,
        "cycle": int,
        "tasks": dict,
        "ranges": list,
        "dram": dict,
        "host": dict,
        "run": dict,
    }
    for name, kind in kinds.items():
        _need(type(header.get(name)) is kind, f"its header's '{name}' is {_shown(header.get(name))}")
    cores = header["cores"]
    _need(1 <= cores <= 3, f"its header's 'cores' is {cores}")
    _number(header["cycle"], _U64, "its header's 'cycle'")
    options = header.get("options", [])
    _need(_texts(options), f"its header's 'options' is {_shown(options)}")
    known = {field.name: type(field.default) for field in fields(DramConfig)}
    for name, value in header["dram"].items():
        _need(name in known, f"its memory timing has an unknown member '{name}'")
        _need(type(value) in (int, known[name]), f"its memory timing's '{name}' is {_shown(value)}")
    try:
        DramConfig(**header["dram"])
    except ValueError as error:
        raise _Wrong(f"its memory timing's {error}") from None
    end = 0
    for item in header["ranges"]:
        _numbers(item, (range(end, SPACE), range(1, SPACE + 1)), "a range of its memory")
        _need(not (item[0] % PAGE or item[1] % PAGE), f"a range of its memory is {_shown(item)}")
        end = item[0] + item[1]
        _need(end <= SPACE, f"a range of its memory ends at {end:#x}")
    _check_host(header["host"], cores)
    _check_run(header["run"])


def _check_host(host: dict[str, Any], cores: int) -> None:
    names = ("reset_at", "kicks", "announced", "layers")
    _need(
        isinstance(host.get("reset_at"), list)
        and isinstance(host.get("kicks"), list)
        and all(isinstance(host.get(name), dict) for name in names[2:]),
        f"its header's 'host' lacks one of {', '.join(names)}",
    )
    _numbers(host["reset_at"], (_U64,) * cores, "host.reset_at")
    _number(host.get("reported"), _U64, "host.reported")
    _need(type(host.get("counting")) is bool, f"host.counting is {_shown(host.get('counting'))}")
    for kick in host["kicks"]:
        _numbers(kick, (_U64, range(cores)), "an entry of host.kicks")
    _number(host.get("kicks_gone"), _U64, "host.kicks_gone")
    for name, most in (("announced", cores), ("layers", host["kicks_gone"] + len(host["kicks"]))):
        for number, layers in host[name].items():
            good = number.isascii() and number.isdigit() and len(number) < 20 and int(number) < most
            _need(good and isinstance(layers, list), f"host.{name} has an entry {_shown(number)}")
            for layer in layers:
                good = isinstance(layer, list) and len(layer) == 3 and isinstance(layer[2], str)
                _need(good, f"a layer in host.{name} is {_shown(layer)}")
                _numbers(layer[:2], (_U32, _U32), f"a layer in host.{name}")


def _check_run(run: dict[str, Any]) -> None:
    """Check the facts of the command line; they are missing if a Python program saved the engine."""
    if "command" not in run:
        return
    for name in ("command", "file", "sha256"):
        _need(isinstance(run.get(name), str), f"its header's run.{name} is {_shown(run.get(name))}")
    options = run.get("options")
    good = isinstance(options, dict) and all(
        type(v) in (bool, int, str, type(None)) for v in options.values()
    )
    _need(good, f"its header's run.options is {_shown(options)}")


def _check_pages(file: SnapshotFile) -> None:
    """Check that the pages are in order and mapped."""
    pages = np.frombuffer(file.blocks["pages"], np.uint32).astype(np.int64)
    mapped = np.zeros(_PAGES, bool)
    for iova, size in file.header["ranges"]:
        mapped[iova // PAGE : (iova + size) // PAGE] = True
    _need(
        bool((np.diff(pages) > 0).all() and (pages < _PAGES).all() and mapped[pages].all()),
        "block 'pages' names pages that are not mapped, or not in order",
    )


def _check_log(file: SnapshotFile) -> None:
    try:
        data = json.loads(file.blocks.get("host", b""))
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"block 'host' is not JSON ({type(error).__name__})") from None
    kinds: dict[str, type] = {"begin": int, "entries": list, "pages": list, "answers": dict, "running": bool}
    for name, kind in kinds.items():
        value = data.get(name) if isinstance(data, dict) else None
        _need(type(value) is kind, f"block 'host' has the member '{name}' {_shown(value)}")
    _number(data["begin"], _U64, "host.begin")
    entries = data["entries"]
    _need(len(entries) == len(data["pages"]), f"block 'host' has pages of {len(data['pages'])} accesses")
    for n, entry in enumerate(entries):
        first = entry[0] if isinstance(entry, list) and entry else None
        bounds = _ENTRIES.get(first) if isinstance(first, str) else None
        if bounds is None:
            raise _Wrong(f"access {n} of block 'host' is {_shown(entry)}")
        _numbers(entry[1:], bounds, f"access {n} of block 'host'")
    cycles = [data["begin"], *(entry[-2] for entry in entries), file.header["cycle"]]
    _need(cycles == sorted(cycles), "the cycles of block 'host' are not in order up to the snapshot's")
    last = bool(entries) and entries[-1][0] == "x"
    _need(last or not data["running"], "block 'host' has an unfinished run that is not an access")
    count = 0
    for n, pages in enumerate(data["pages"]):
        good = isinstance(pages, list) and all(type(page) is int and 0 <= page < _PAGES for page in pages)
        _need(good, f"the pages of access {n} of block 'host' are {_shown(pages)}")
        count += len(pages)
    size = len(file.blocks.get("host_pages", b""))
    _need(size == count * PAGE, f"block 'host_pages' has {size:,} bytes for {count:,} pages")
    for key, answers in data["answers"].items():
        good = isinstance(answers, list) and all(
            isinstance(answer, list) and answer and type(answer[0]) is int and _texts(answer[1:])
            for answer in answers
        )
        _need(good, f"an answer to '{_shown(key)}' in block 'host' is {_shown(answers)}")


def _texts(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, str) for item in items)


def _numbers(items: Any, bounds: Sequence[range], what: str) -> None:
    good = isinstance(items, list) and len(items) == len(bounds)
    _need(good, f"{what} is {_shown(items)}, not {len(bounds)} numbers")
    for item, bound in zip(items, bounds, strict=True):
        _number(item, bound, what)


def _number(value: Any, bound: range, what: str) -> None:
    _need(type(value) is int and value in bound, f"{what} is or has {_shown(value)}")


def _shown(value: Any) -> str:
    """Format a value in a text of bounded length."""
    text = "missing" if value is None else repr(value)
    return text if len(text) < 60 else f"{text[:60]}..."
