"""Weights to compress, and a decoder that works on strings [HW 4.13].

The decoder handles one segment at a time and does not model lanes, atoms or cycles.
"""

from __future__ import annotations

import random

import numpy as np

from rkcosim.spec.layouts.compressed import SegmentCode, segment_values

RANKS = {"00": 0, "10": 1, "111": 2, "110": 3, "011": 4, "0101": 5, "01001": 6, "01000": 7}


def some_code(rng: random.Random, *, runs: bool | None = None) -> SegmentCode:
    """A code that has every weight: random ranks, offset and lengths, runs of one zero."""
    classes = list(range(8))
    rng.shuffle(classes)
    lengths = [1, *rng.sample((2, 3, 4), 3)]
    chosen = rng.random() < 0.5 if runs is None else runs
    return SegmentCode(chosen, rng.randrange(-128, 256), tuple(classes), tuple(lengths))


def some_weights(rng: random.Random, taps: int) -> tuple[np.ndarray, list[SegmentCode] | None]:
    """Weights of `taps` taps, uint8 [128 * taps], and codes of their segments (None: the best ones)."""
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    kind = rng.choice(["any", "narrow", "sparse", "extreme"])
    if kind == "any":
        stream = numbers.integers(0, 256, 128 * taps)
    elif kind == "narrow":
        stream = np.round(numbers.laplace(rng.randrange(-40, 40), 6, 128 * taps)).astype(int) % 256
    elif kind == "sparse":
        stream = numbers.integers(-128, 128, 128 * taps) * (numbers.random(128 * taps) < 0.2) % 256
    else:
        stream = numbers.choice([0x80, 0x7F, 0, 0xFF, 1, 0x40, 0xBF, 0xC0], 128 * taps)
    stream = stream.astype(np.uint8)
    codes = None if rng.random() < 0.4 else [some_code(rng) for _ in range(16)]
    if codes is not None:
        for n, values in enumerate(segment_values(stream)):
            if rng.random() < 0.3:  # a run of more than one zero, where the weights have nothing else
                values = (values.astype(int) - codes[n].offset) % 256
                length = rng.choice([2, 4])
                if not values.any() and values.size % length == 0:
                    rest = tuple(k for k in (1, 2, 3, 4) if k != length)
                    codes[n] = SegmentCode(True, codes[n].offset, codes[n].classes, (length, *rest))
    return stream, codes


def segment_places(amounts: tuple[int, ...]) -> list[int]:
    """First byte of each segment."""
    places = [0]
    for amount in amounts[:-1]:
        places.append(places[-1] + (16 * (amount + 1) + 63) // 64 * 64)
    return places


def decode_segment(segment: bytes, count: int) -> list[int]:
    """`count` weights, 0 to 255, of a segment with its header."""
    bits = "".join(f"{byte:08b}"[::-1] for byte in segment[16:])
    classes = [nibble for byte in segment[4:8] for nibble in (byte & 15, byte >> 4)]
    out: list[int] = []
    at = 0
    while len(out) < count:
        size = next(n for n in range(2, 6) if bits[at : at + n] in RANKS)
        kind, at = classes[RANKS[bits[at : at + size]]], at + size
        if segment[0] == 0x11 and kind == 0:
            assert bits[at] == "0"
            out += [0] * segment[8]
            at += 1
            continue
        negative, at = bits[at] == "1", at + 1
        if segment[0] == 0x11 and kind == 7:
            size, at = int(bits[at : at + 7][::-1], 2), at + 7
            out.append((-size if size else -128) if negative else size)
            continue
        low = bits[at : at + max(kind - 1, 0)]
        size = (1 << kind - 1) + int(low[::-1] or "0", 2) if kind else 0
        at += len(low)
        out.append((-size if segment[0] else ~size) if negative else size)
    return [(value + segment[1]) % 256 for value in out[:count]]


def decode_weights(content: np.ndarray, amounts: tuple[int, ...], taps: int) -> np.ndarray:
    """All weights of compressed ones, uint8 [128 * taps]: by tap, kernel, channel."""
    out = np.zeros((taps, 8, 16), np.uint8)
    for n, at in enumerate(segment_places(amounts)):
        values = decode_segment(bytes(content[at : at + 16 * (amounts[n] + 1)]), 8 * taps)
        kernel, channel = n // 4, 4 * (n % 4)
        for tap in range(taps):
            first, second = values[8 * tap : 8 * tap + 4], values[8 * tap + 4 : 8 * tap + 8]
            out[tap, kernel, channel : channel + 4] = first
            out[tap, kernel + 4, channel : channel + 4] = second
    return out.reshape(-1)
