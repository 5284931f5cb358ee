"""Compressed weights in the golden model: the layer's results, and findings for unknown encodings."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from rkcosim.golden.task import GoldenDevice, GoldenError, GoldenHang
from rkcosim.golden.task.packed_weights import decode_packed
from rkcosim.spec.layouts.compressed import SegmentCode, compress_weights
from rkcosim.spec.types import INT8
from rkcosim.spec.weight_code import REGNUM
from tests.makers.golden_bench import device
from tests.twins.golden_conv import WEIGHTS, Case, Layer, Recorder, of, program, with_fields
from tests.twins.packed_weights import decode_segment, segment_places, some_code

SHAPE = {"channels": 16, "kernels": 8, "size": (4, 5), "kernel": (3, 3), "out": (4, 5), "pad": (1, 1)}


def compressed(case: Case, amounts: tuple[int, ...], control: int = 1) -> Case:
    """A case with the registers of compressed weights."""
    case = with_fields(case, "CNA", "DCOMP_CTRL", DECOMP_CONTROL=control)
    case = with_fields(case, "CNA", "DCOMP_REGNUM", DCOMP_REGNUM=REGNUM)
    for n, amount in enumerate(amounts):
        case = with_fields(case, "CNA", f"DCOMP_AMOUNT{n}", **{f"DCOMP_AMOUNT{n}": amount})
    return case


def stored(strict: bool, codes: Any = None) -> tuple[Case, Layer, GoldenDevice, np.ndarray, tuple[int, ...]]:
    """A layer with compressed weights in memory."""
    case = of(INT8, **SHAPE)
    layer = Layer(case, np.random.default_rng(5))
    dev = device(strict=strict)
    dev.observer = Recorder()
    layer.store(dev)
    content, amounts = compress_weights(np.array(layer.stream(), np.uint8), codes)
    dev.memory.write(WEIGHTS, content.tobytes())
    return compressed(case, amounts), layer, dev, content, amounts


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_results(seed: int | None) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    codes = None if seed is None else [some_code(rng) for _ in range(16)]
    case, layer, dev, content, amounts = stored(True, codes)
    program(case).run(dev)
    observer = dev.observer
    assert isinstance(observer, Recorder)
    accs, _ = observer.lanes(20, 1, 4)
    assert [lanes[:8] for lanes in accs] == layer.expect()[0]
    read = sum(t.bytes for t in dev.reports[0].reads if t.client == "weight")
    assert read == sum(16 * (amount + 1) for amount in amounts) and read <= content.size


@pytest.mark.parametrize(
    ("register", "fields", "code"),
    [
        ("DCOMP_CTRL", {"DECOMP_CONTROL": 3}, "RESERVED_MODE"),
        ("DCOMP_REGNUM", {"DCOMP_REGNUM": 0}, "RESERVED_MODE"),
        ("WEIGHT_SIZE0", {"WEIGHT_BYTES": 1168}, "SIZE_MISMATCH"),
        ("DCOMP_AMOUNT2", {"DCOMP_AMOUNT2": 1 << 31}, "SIZE_MISMATCH"),
    ],
)
def test_registers_that_are_not_known(register: str, fields: dict[str, int], code: str) -> None:
    case, _, dev, *_ = stored(False)
    with pytest.raises(GoldenHang, match=f"{register}.*{code}"):
        program(with_fields(case, "CNA", register, **fields)).run(dev)
    assert (code, register) in {(f.code, f.register.split(".")[0]) for f in dev.findings}


@pytest.mark.parametrize("strict", [False, True])
def test_header_that_is_not_known(strict: bool) -> None:
    """The finding names segment, byte and value; the first one in the order of the weights is reported."""
    case, _, dev, content, amounts = stored(strict)
    broken, places = content.copy(), segment_places(amounts)
    broken[places[9]], broken[places[5] + 3], broken[places[6]] = 0x21, 7, 0x10
    dev.memory.write(WEIGHTS, broken.tobytes())
    with pytest.raises(GoldenError, match=r"byte 3 .* segment 5 has the unknown value 0x07.*WEIGHT_CODE"):
        program(case).run(dev)
    (found,) = dev.findings
    assert (found.register, found.value) == ("DCOMP_AMOUNT5", 0x307)


def test_run_and_class_that_are_not_known() -> None:
    """A run of another length than the first one, and class 8."""
    case, _, dev, content, amounts = stored(False, [SegmentCode(True)] * 16)
    broken = content.copy()
    broken[16:17] = 0b100  # rank 0, class 0, then a run code that begins with 1
    dev.memory.write(WEIGHTS, broken.tobytes())
    with pytest.raises(GoldenHang, match="byte 10 of the header of segment 0 has the unknown value 0x02"):
        program(case).run(dev)
    case, _, dev, content, amounts = stored(False)
    broken = content.copy()
    broken[segment_places(amounts)[4] + 4 :][:4] = 0x88
    dev.memory.write(WEIGHTS, broken.tobytes())
    with pytest.raises(GoldenHang, match=r"byte . of the header of segment 4 has the unknown value 0x88"):
        program(case).run(dev)


def test_segment_that_ends_too_early() -> None:
    case, _, dev, _, amounts = stored(False)
    case = with_fields(case, "CNA", "DCOMP_AMOUNT15", DCOMP_AMOUNT15=1)
    with pytest.raises(GoldenHang, match=r"the bits of segment 15 end before its weights.*SIZE_MISMATCH"):
        program(case).run(dev)
    assert amounts[15] > 1


@pytest.mark.parametrize("runs", [False, True])
def test_segments_are_decoded_up_to_where_they_end(runs: bool) -> None:
    """Against a decoder that works on strings: parts of segments, and ones that are longer than a block."""
    rng = random.Random(11 + runs)
    numbers = np.random.default_rng(3)
    for count in (4, 64, 4096, 40_000):
        code = some_code(rng, runs=runs)
        weights = numbers.integers(0, 256, count).astype(np.uint8)
        bits = np.array([int(bit) for bit in code.bits(weights)], np.uint8)
        segment = code.header() + np.packbits(bits, bitorder="little").tobytes()
        found, fault = decode_packed([segment], [0], count // 4)
        assert fault is None and np.array_equal(found[0], weights)
        if count <= 4096:
            assert decode_segment(segment, count) == weights.tolist()
        cut = segment[: rng.randrange(17, len(segment) - 1)] if count > 4 else segment[:17]
        found, fault = decode_packed([cut], [7], count // 4)
        assert fault is not None and (fault.code, fault.value) == ("SIZE_MISMATCH", 7)
        assert np.array_equal(found[0], weights[: found[0].size]) and found[0].size < count


def test_a_long_segment_whose_last_code_is_unknown() -> None:
    """The fault is found behind the first block; the bits before it are weights."""
    code = SegmentCode(classes=(0, 1, 2, 3, 4, 5, 6, 15))
    payload = bytes(20_000) + bytes([0b0001])  # codes of 3 bits; the last 0 and this byte begin with 01000
    found, fault = decode_packed([code.header() + payload], [0], 1 << 20)
    assert fault is not None and (fault.code, fault.value) == ("WEIGHT_CODE", 7 << 8 | 0xF6)
    assert found[0].size == 160_000 // 3
