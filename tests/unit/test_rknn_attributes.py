"""Attributes of custom operators in `.rknn` files: BSON documents, read from hostile bytes."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from rkcosim.rknn_file import RknnFileError
from rkcosim.rknn_file.attributes import MOST_BYTES, node_attributes
from tests import seeds


def document(items: dict[str, Any]) -> bytes:
    """A BSON document."""
    body = b""
    for name, value in items.items():
        key = name.encode() + b"\0"
        if isinstance(value, dict):
            body += b"\3" + key + document(value)
        elif isinstance(value, tuple):
            body += b"\4" + key + document({str(n): one for n, one in enumerate(value)})
        elif isinstance(value, str):
            text = value.encode() + b"\0"
            body += b"\2" + key + struct.pack("<i", len(text)) + text
        elif isinstance(value, bool):
            body += b"\x08" + key + bytes([value])
        elif isinstance(value, float):
            body += b"\1" + key + struct.pack("<d", value)
        else:
            kind, code = (b"\x10", "<i") if abs(value) < 1 << 31 else (b"\x12", "<q")
            body += kind + key + struct.pack(code, value)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def attributes(**items: tuple[str, Any]) -> bytes:
    return document({name: {"dtype": kind, "value": value} for name, (kind, value) in items.items()})


def test_the_bytes_of_a_public_file():
    """Bytes of alpha = 0.5, as airockchip/rknn-toolkit2 59a913d, dual_residual_custom.rknn has them."""
    data = bytes.fromhex(
        "2d000000 03 616c70686100 21000000 02 647479706500 02000000 6600"
        "01 76616c756500 000000000000e03f 00 00"
    )
    assert data == attributes(alpha=("f", 0.5))
    assert node_attributes(data, "node") == {"alpha": 0.5}


def test_types():
    data = attributes(
        axis=("i", -1),
        large=("i", 1 << 40),
        flag=("i", True),
        pads=("is", (0, 1, 2, 3)),
        scales=("fs", (1.5, 2)),
        mode=("s", "linear"),
        names=("ss", ("a", "b")),
        tensor=("t", 3),
        wrong=("f", "text"),
        one=("is", 3),
    )
    assert node_attributes(data, "node") == {
        "axis": -1,
        "large": 1 << 40,
        "flag": 1,
        "pads": (0, 1, 2, 3),
        "scales": (1.5, 2.0),
        "mode": "linear",
        "names": ("a", "b"),
    }
    assert node_attributes(b"", "node") == node_attributes(bytes(16), "node") == {}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x05", "unpack"),
        (struct.pack("<i", 1 << 30) + b"\0", "a document of 1073741824 bytes at 0"),
        (document({"a": 1}) + b"\0", "1 bytes follow"),
        (document({"a": {"b": {"c": {"d": 1}}}}), "deeper than 3"),
        (struct.pack("<i", 8) + b"\x7fa\0" + b"\0", "an element of type 127"),
        (struct.pack("<i", 12) + b"\2a\0" + struct.pack("<i", 90) + b"\0", "a text of 90 bytes"),
        (bytes(MOST_BYTES + 1), "attributes of 1048577 bytes"),
    ],
)
def test_damaged_documents(data: bytes, text: str):
    with pytest.raises(RknnFileError, match=f"node 'x'.*{text}"):
        node_attributes(data, "node 'x'")


def test_mutants_are_read_or_refused():
    seed = seeds.seed(__name__, 31)
    print(f"seed {seed}")
    rng = random.Random(seed)
    sound = attributes(alpha=("f", 0.5), pads=("is", (0, 1)), mode=("s", "linear"))
    taken = 0
    for _ in range(3000):
        data = bytearray(sound)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(
                (0, 1, 2, 3, 4, 16, 127, 128, 255, rng.randrange(256))
            )
        try:
            taken += isinstance(node_attributes(bytes(data), "node"), dict)
        except RknnFileError:
            pass
    assert 0 < taken < 3000
