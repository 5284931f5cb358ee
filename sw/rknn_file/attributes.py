"""Attributes of a model's own node in a `.rknn` file: a BSON document (bsonspec.org, version 1.1).

Every attribute is a document with `dtype` (`i`, `f`, `s`, or the same with a second `s` for lists) and
`value`.
The document was found in the files of allbilly/rk3588, Nyan-SouthKorea/insightface-orangepi-rknn and
airockchip/rknn-toolkit2 that docs/rknn_files.md names; files of the container version 2 have none.
"""

from __future__ import annotations

import struct
from typing import Any

from rkcosim.rknn_file.tables import RknnFileError

MOST_BYTES = 1 << 20
"""Longest document that is read."""

_DEEPEST = 3
_DOUBLE, _TEXT, _DOCUMENT, _ARRAY, _BOOL, _INT32, _INT64 = 1, 2, 3, 4, 8, 16, 18
_NUMBERS = {_DOUBLE: struct.Struct("<d"), _INT32: struct.Struct("<i"), _INT64: struct.Struct("<q")}
_KINDS = {"i": int, "f": float, "s": str}


def node_attributes(data: bytes, where: str) -> dict[str, Any]:
    """Return the attributes of a node by their names.

    Parameters
    ----------
    data
        The BSON document; empty or zeros if the node has none.
    where
        The node, for error messages.

    Returns
    -------
    dict
        int, float and str, and tuples of them. Attributes with other types are left out.

    Raises
    ------
    RknnFileError
        if the document is damaged, longer than `MOST_BYTES`, or has an element of an unknown type.
    """
    if len(data) > MOST_BYTES:
        raise RknnFileError(f"{where}: attributes of {len(data)} bytes; {MOST_BYTES} are supported")
    if not any(data):
        return {}
    try:
        document, end = _document(data, 0, _DEEPEST)
    except (struct.error, ValueError, IndexError) as error:
        raise RknnFileError(f"damaged .rknn file: {where}: attributes: {error}") from error
    if end != len(data):
        raise RknnFileError(f"damaged .rknn file: {where}: attributes: {len(data) - end} bytes follow")
    found = {name: _value(item) for name, item in document.items()}
    return {name: value for name, value in found.items() if value is not None}


def _document(data: bytes, at: int, depth: int) -> tuple[dict[str, Any], int]:
    """Return the elements of a document, and the offset after it."""
    if not depth:
        raise ValueError(f"documents within each other at {at}, deeper than {_DEEPEST}")
    (size,) = struct.unpack_from("<i", data, at)
    end = at + size
    if size < 5 or end > len(data) or data[end - 1]:
        raise ValueError(f"a document of {size} bytes at {at}")
    found: dict[str, Any] = {}
    at += 4
    while at < end - 1:
        kind = data[at]
        stop = data.index(0, at + 1, end)
        name = data[at + 1 : stop].decode()
        found[name], at = _element(data, kind, stop + 1, depth)
        if at > end - 1:
            raise ValueError(f"'{name[:40]}' lies past its document")
    return found, end


def _element(data: bytes, kind: int, at: int, depth: int) -> tuple[Any, int]:
    """Return the value of an element, and the offset after it."""
    if kind in _NUMBERS:
        return _NUMBERS[kind].unpack_from(data, at)[0], at + _NUMBERS[kind].size
    if kind == _BOOL:
        return int(data[at]), at + 1
    if kind in (_DOCUMENT, _ARRAY):
        inner, end = _document(data, at, depth - 1)
        return (tuple(inner.values()) if kind == _ARRAY else inner), end
    if kind == _TEXT:
        (size,) = struct.unpack_from("<i", data, at)
        end = at + 4 + size
        if size < 1 or end > len(data) or data[end - 1]:
            raise ValueError(f"a text of {size} bytes at {at}")
        return data[at + 4 : end - 1].decode(), end
    raise ValueError(f"an element of type {kind} at {at}")


def _value(item: Any) -> Any:
    """Return the value of an attribute; None if its type is not known or the value does not have it."""
    if not isinstance(item, dict) or not isinstance(item.get("dtype"), str):
        return None
    kind, value = _KINDS.get(item["dtype"][:1]), item.get("value")
    if kind is None or item["dtype"][1:] not in ("", "s"):
        return None
    values = value if isinstance(value, tuple) else (value,)
    if isinstance(value, tuple) != (item["dtype"][1:] == "s"):
        return None
    if kind is float:
        values = tuple(float(one) if isinstance(one, int) else one for one in values)
    if not all(isinstance(one, kind) for one in values):
        return None
    return values if isinstance(value, tuple) else values[0]
