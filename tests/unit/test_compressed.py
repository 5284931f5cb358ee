"""The entropy code of compressed weights: the encoder against a decoder that works on strings."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rkcosim.spec.layouts.compressed import SegmentCode, best_code, compress_weights, segment_values
from tests.twins.packed_weights import decode_segment, decode_weights, some_weights


@pytest.mark.parametrize("seed", range(20))
def test_encoded_and_decoded(seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    taps = rng.choice([1, 2, 9, 15, 25])
    stream, codes = some_weights(rng, taps)
    content, amounts = compress_weights(stream, codes)
    assert content.size % 64 == 0
    assert (decode_weights(content, amounts, taps) == stream).all()


def test_a_segment_by_hand() -> None:
    """Words written by hand, bit by bit: prefixes, signs, lengths, the ends of the range."""
    code = SegmentCode(runs=False, offset=0x10, classes=(3, 0, 1, 2, 4, 5, 6, 7))
    weights = np.array([0x15, 0x10, 0x0F, 0x11, 0x0E, 0x90, 0x8F], np.uint8)
    # 5: class 3, rank 0; 0 and -1: class 0; 1 and -2: class 1; -128: class 7, rank 7; 127: the same
    expected = "00" + "0" + "10"  # 5 = 0b101
    expected += "10" + "0" + "10" + "1"
    expected += "111" + "0" + "111" + "1"
    expected += "01000" + "1" + "111111" + "01000" + "0" + "111111"
    assert code.bits(weights) == expected
    runs = SegmentCode(runs=True, offset=0, classes=(0, 1, 2, 3, 4, 5, 6, 7), lengths=(2, 1, 3, 4))
    weights = np.array([0, 0, 0, 0, 1, 0xFF, 0x80, 0x7F, 3], np.uint8)
    expected = "000" * 2 + "10" + "0" + "10" + "1"
    expected += "01000" + "1" + "0000000" + "01000" + "0" + "1111111" + "111" + "0" + "1"
    assert runs.bits(weights) == expected
    header = runs.header()
    assert header.hex() == "11000000" + "10325476" + "0200010003000400"
    bits = expected.ljust(-(-len(expected) // 8) * 8, "0")
    payload = bytes(int(bits[n : n + 8][::-1], 2) for n in range(0, len(bits), 8))
    assert decode_segment(header + payload, 9) == weights.tolist()


def test_segments_of_a_stream() -> None:
    """Segment 4i + j: kernels i and i + 4, channels 4j to 4j + 3, tap by tap."""
    tap, kernel, channel = np.indices((3, 8, 16))
    stream = (tap * 64 + kernel * 8 + channel // 2).astype(np.uint8).reshape(-1)
    for n, values in enumerate(segment_values(stream)):
        i, j = divmod(n, 4)
        expected = [
            t * 64 + k * 8 + c // 2 for t in range(3) for k in (i, i + 4) for c in range(4 * j, 4 * j + 4)
        ]
        assert values.tolist() == [value % 256 for value in expected]


def test_sparse_weights_become_short() -> None:
    """Runs of zeros shorten the segment, and its header says that there are runs."""
    stream = np.zeros(1152, np.uint8)
    assert best_code(segment_values(stream)[0]).runs
    content, amounts = compress_weights(stream)
    assert amounts == (1,) * 16 and content.size == 16 * 64


@pytest.mark.parametrize("size", [0, 32, 1000])
def test_part_of_a_block(size: int) -> None:
    with pytest.raises(ValueError, match="multiple of 64 bytes"):
        compress_weights(np.zeros(size, np.uint8))


def test_values_without_a_code() -> None:
    with pytest.raises(ValueError, match="class 2 has no rank"):
        SegmentCode(classes=(0, 1, 3, 4, 5, 6, 7, 8)).bits(np.array([3], np.uint8))
    with pytest.raises(ValueError, match="3 zeros cannot be divided into runs of 2"):
        SegmentCode(runs=True, lengths=(2, 1, 3, 4)).bits(np.zeros(3, np.uint8))
