"""Compiled models of several shapes as one file (docs/container.md), and the lists of shapes.

This module needs only Python's standard library: `rkcosim rknn` copies it for scripts of the toolkit.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Sequence
from typing import Any

MAGIC = b"RKCOSIM\0"
VERSION = 4
HEADER = struct.Struct("<8sIIQ")
"""Magic, version, number of shapes (0 for a model of one) or `NO_WEIGHTS`, size of the JSON text in bytes."""
DIGEST = 32

NO_WEIGHTS = 1 << 31
"""In the place of the number of shapes: the weights are those of another model."""

KEY = "dynamic_input"
"""Name of the list of shapes: an entry of an ONNX model's metadata, an option of the vendor's converter."""

MOST_SETS = 512
"""Maximum number of sets of shapes, RKNN_MAX_DYNAMIC_SHAPE_NUM of rknn_api.h."""

MOST_ELEMENTS = 1 << 28
"""Maximum number of elements of a shape."""

Shape = tuple[int, ...]
ShapeSet = tuple[Shape, ...]
"""A shape for each input of a model."""


def sets_of(listed: Any, inputs: int | None = None) -> list[ShapeSet]:
    """Check a list of sets of shapes, one for every input, as in [[[1, 3, 64, 64]], [[1, 3, 96, 96]]].

    Parameters
    ----------
    listed
        Nested lists of numbers, or the same as a JSON text.
    inputs
        Number of inputs of the model; None if it is not known.

    Raises
    ------
    ValueError
        If it is no such list, or a set has another number of shapes or other ranks than the first.
    """
    what = "shapes" if inputs is None else f"{inputs} shapes"
    problem = ValueError(f"{KEY} must be a list of sets of {what}, with positive sizes and equal ranks")
    try:
        given = json.loads(listed) if isinstance(listed, (str, bytes)) else listed
        sets = [tuple(tuple(_size(n) for n in shape) for shape in shapes) for shapes in given]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise problem from error
    if not 0 < len(sets) <= MOST_SETS or len(set(sets)) != len(sets) or not sets[0]:
        raise problem
    ranks = {tuple(len(shape) for shape in shapes) for shapes in sets}
    if len(ranks) != 1 or (inputs is not None and len(sets[0]) != inputs):
        raise problem
    if any(
        not shape or min(shape) < 1 or math.prod(shape) > MOST_ELEMENTS for shapes in sets for shape in shapes
    ):
        raise problem
    return sets


def _size(value: Any) -> int:
    if isinstance(value, bool) or value != int(value):
        raise ValueError(f"{value} is no size")
    return int(value)


def largest(sets: Sequence[ShapeSet]) -> int:
    """Return the number of the set with the most elements, which represents the model."""
    sizes = [sum(math.prod(shape) for shape in shapes) for shapes in sets]
    return sizes.index(max(sizes))


def is_several(data: bytes) -> bool:
    """Whether `data` begins as a compiled model of several shapes."""
    if data[: len(MAGIC)] != MAGIC or len(data) < HEADER.size:
        return False
    return 0 < int(HEADER.unpack_from(data)[2]) < NO_WEIGHTS


def pack(sets: Sequence[ShapeSet], models: Sequence[bytes]) -> bytes:
    """Return the file with a compiled model for each set of shapes."""
    text = json.dumps({KEY: sets, "sizes": [len(model) for model in models]}, separators=(",", ":")).encode()
    data = HEADER.pack(MAGIC, VERSION, len(sets), len(text)) + text + b"".join(models)
    return data + hashlib.sha256(data).digest()


def unpack(data: bytes) -> tuple[list[ShapeSet], list[bytes]]:
    """Return the sets of shapes and the compiled models in a file of several shapes.

    Raises
    ------
    ValueError
        If the file is damaged or has another version; the message says which.
    """
    _, version, number, length = HEADER.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"compiled model of version {version}; this program reads version {VERSION}")
    body, digest = data[:-DIGEST], data[-DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError("damaged compiled model: its checksum does not fit")
    first = HEADER.size + length
    try:
        fields = json.loads(body[HEADER.size : first])
        sets, sizes = sets_of(fields[KEY]), [int(size) for size in fields["sizes"]]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"damaged compiled model: {type(error).__name__}: {error}") from error
    if len(sets) != number or len(sizes) != number or min(sizes) < 0 or first + sum(sizes) != len(body):
        raise ValueError("damaged compiled model: its header makes no sense")
    models = []
    for size in sizes:
        models.append(body[first : first + size])
        first += size
    if any(model[: len(MAGIC)] != MAGIC or is_several(model) for model in models):
        raise ValueError("damaged compiled model: a part is no model of one shape")
    return sets, models
