"""Mutated model files of every format: a clear error or a model, never anything else."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sw.compiler import ModelError, compile_model

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
READER_WORDS = ("damaged TFLite", "not an ONNX", "damaged ONNX", "checksum", "cut short", "damaged compiled")
EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def tflite_file() -> bytes:
    pytest.importorskip("tflite", reason="needs the extra tflite")
    from tests.models.tflite_models import Tf

    t = Tf()
    x = t.input((1, 6, 7, 8))
    y = t.depthwise(t.conv(x, 16, 3, 2, FusedActivationFunction=3), 3)
    z = t.add("CONCATENATION", [y, y], (1, 3, 4, 32), Axis=3, **{"scale": t.items[y].scale})
    z = t.add("PAD", [z, t.ints([[0, 0], [1, 1], [1, 0], [0, 0]])], (1, 5, 5, 32))
    z = t.transpose_conv(z, 4, 2, 2, True)
    z = t.add("RESHAPE", [z, t.ints([1, 400])], (1, 400), scale=t.items[z].scale)
    return t.bytes(t.add("SOFTMAX", [t.dense(z, 5)], (1, 5), scale=1 / 256, zero=-128, Beta=1.0))


def onnx_file() -> bytes:
    return DIGITS.read_bytes()


def container_file() -> bytes:
    return compile_model(DIGITS.read_bytes()).save()


FILES = {"tflite": tflite_file, "onnx": onnx_file, "container": container_file}


def mutated_text(data: bytes, rng: np.random.Generator) -> bytes:
    """Digits of a container's text changed, now and then another letter; the checksum fits again."""
    changed = bytearray(data[:-32])
    length = int.from_bytes(changed[16:24], "little")
    for _ in range(rng.integers(1, 4)):
        at = 24 + int(rng.integers(length))
        while rng.random() > 0.02 and not chr(changed[at]).isdigit():
            at = 24 + (at - 23) % length
        changed[at] = rng.choice(list(b"0123456789-"))
    return bytes(changed) + hashlib.sha256(changed).digest()


def mutated(data: bytes, rng: np.random.Generator, kind: str) -> bytes:
    """Some bytes changed, words set to extremes, a piece cut out, or the end cut off."""
    if kind == "container" and rng.random() < 0.8:
        return mutated_text(data, rng)
    changed = bytearray(data)
    # Most of a file are weights, which may have any value: aim at the rest half of the time.
    span = len(changed) if rng.random() < 0.5 else min(len(changed), 6000)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(8, span))
        match rng.integers(0, 2 if kind == "onnx" and rng.random() < 0.8 else 4):
            case 0:
                changed[at] = rng.integers(256)
            case 1 if kind != "onnx":
                word = int(rng.choice(EXTREMES)).to_bytes(4, "little")
                changed[at : at + 4] = word[: len(changed) - at]
            case 2:
                del changed[at : at + int(rng.integers(1, 9))]
            case _:
                changed[at] = (changed[at] + rng.choice([1, 255, 10, 16])) % 256
    if rng.random() < 0.05:
        del changed[int(rng.integers(8, len(changed))) :]
    return bytes(changed)


def fuzz(kind: str, count: int, seed: int) -> Counter[str]:
    """What became of `count` inputs: refused by the format's reader, refused later, or compiled."""
    data = FILES[kind]()
    rng = np.random.default_rng(seed)
    seen: Counter[str] = Counter()
    for number in range(count):
        hostile = mutated(data, rng, kind)
        try:
            compile_model(hostile)
            seen["compiled"] += 1
        except ModelError as error:
            text = str(error)
            assert text and len(text) < 5000
            seen["reader" if any(word in text for word in READER_WORDS) else "later"] += 1
        except BaseException as error:
            raise AssertionError(f"{kind}, seed {seed}, input {number}: {type(error).__name__}") from error
    return seen


@pytest.mark.parametrize("kind", FILES)
def test_some(kind: str) -> None:
    seen = fuzz(kind, 120, 588)
    assert seen["reader"] > 3
    assert seen["later"] + seen["compiled"] > 10  # past the format's own parser


@pytest.mark.heavy
@pytest.mark.parametrize("kind", FILES)
def test_many(kind: str) -> None:
    """At least ten thousand in all; the share past the readers is printed."""
    seen = fuzz(kind, {"tflite": 5000, "onnx": 3000, "container": 2200}[kind], 2024)
    past = (seen["later"] + seen["compiled"]) / sum(seen.values())
    print(f"{kind}: {dict(seen)}, {past:.0%} got past the reader")
