"""Changes of a file's contents: bytes, words and pieces, and values of JSON documents."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

EXTREMES = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
_VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 1 << 31, 1 << 40, 1 << 63, 1 << 200, 1e308, -0.5, float("nan"), True, None),
    *("", "0x10", "-1", "../../etc/hostname", "/dev/zero", "\0", "x" * 100_000, [], {}, [[]] * 1000),
)


def mutated(data: bytes, rng: random.Random, text: bool) -> bytes:
    """Change a part of the file: usually a few bytes, in a JSON document usually a value."""
    if text and rng.random() < 0.8:
        document = json.loads(data)
        for _ in range(rng.randint(1, 3)):
            document = mutated_value(document, rng)
        return json.dumps(document).encode()
    changed = bytearray(data)
    span = len(changed) if rng.random() < 0.5 else min(len(changed), 6000)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not changed:
            break
        at = rng.randrange(max(1, min(span, len(changed))))
        match rng.randrange(6):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                size = rng.choice((2, 4, 8))
                word = (rng.choice(EXTREMES) & ((1 << 8 * size) - 1)).to_bytes(
                    size, rng.choice(("little", "big"))
                )
                changed[at : at + size] = word[: len(changed) - at]
            case 2:
                del changed[at : at + rng.randint(1, 8)]
            case 3:
                changed[at:at] = changed[at : at + rng.randint(1, 64)]
            case 4:  # a piece of another place: a length, an offset or a name that is valid there
                size, source = rng.choice((1, 4, 8, 32)), rng.randrange(len(changed))
                piece = changed[source : source + size]
                changed[at : at + len(piece)] = piece
            case _:
                changed[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05 and changed:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def mutated_value(document: Any, rng: random.Random) -> Any:
    """Replace, remove, duplicate or rename one value somewhere within a JSON document."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, inner in items:
            places.append((value, key))
            walk(inner)

    walk(document)
    if not places or rng.random() < 0.01:
        return copy.deepcopy(rng.choice(_VALUES))
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 1:
            holder[f"{key}x"] = holder.pop(key)
        case 2 if isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] = holder[key] + rng.choice((-1, 1, 16, 1 << 20, 1 << 32))
        case 2 if isinstance(holder[key], str) and holder[key]:
            text = list(holder[key])
            text[rng.randrange(len(text))] = rng.choice("0123456789abcdefxX-_./\\ \u00e9")
            holder[key] = "".join(text)
        case _:
            holder[key] = copy.deepcopy(rng.choice(_VALUES))
    return document
