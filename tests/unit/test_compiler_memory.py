"""Shared memory of activations, and containers of compiled models."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.compiler import CompiledModel, LoadedModel, ModelError, compile_model, keeping_tensors
from rkcosim.compiler.container import MAGIC, load_plan
from rkcosim.compiler.memory import Block, assign
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
BASES = {"regcmd": 0x0100_0000, "weights": 0x0200_0000, "activations": 0x0300_0000}


@st.composite
def needs(draw: st.DrawFn) -> list[Block]:
    blocks = []
    for number in range(draw(st.integers(1, 12))):
        size = draw(st.integers(1, 900))
        kept = draw(st.integers(1, size))
        first = draw(st.integers(0, 9))
        written = draw(st.integers(first, 10))
        blocks.append(Block(f"t{number}", size, kept, first, written, draw(st.integers(written, 12))))
    return blocks


@settings(max_examples=150, deadline=None)
@given(needs())
def test_blocks_never_meet(blocks: list[Block]) -> None:
    """Replays the assignment byte by byte: no block overlaps a block that is still needed."""
    offsets, size = assign(blocks, 16)
    plain = assign(blocks, 16, share=False)[1]
    assert size <= plain and all(offset % 16 == 0 for offset in offsets.values())
    for step in range(13):
        owner = np.full(size, -1)
        for number, block in enumerate(blocks):
            if block.first <= step <= block.last:
                length = block.size if step <= block.written else block.kept
                part = owner[offsets[block.name] : offsets[block.name] + length]
                assert part.size == length and (part == -1).all()
                part[:] = number


def run(model: CompiledModel, x: np.ndarray, times: int = 1) -> list[np.ndarray]:
    loaded = LoadedModel(model, GoldenDriver())
    loaded.set_input(0, x)
    results = []
    for _ in range(times):
        loaded.run()
        results.append(loaded.get_output(0))
    checker = ModelChecker(loaded, "device")
    verdict = checker.check([x])
    assert verdict.match, str(verdict.first)
    assert checker.check_memory() is None
    return results


def test_sharing_gives_the_same_bytes() -> None:
    """Also in later runs without a new input, because inputs keep their memory."""
    data = DIGITS.read_bytes()
    x = np.random.default_rng(1).uniform(0, 1, (1, 1, 16, 16)).astype(np.float32)
    apart = compile_model(data, reuse=False)
    shared = compile_model(data)
    (want,) = run(apart, x)
    for result in run(shared, x, times=3):
        assert np.array_equal(result, want)
    assert shared.plan.activation_bytes == shared.plan.shared_bytes < 0.6 * shared.plan.separate_bytes
    assert apart.plan.activation_bytes == apart.plan.separate_bytes and not apart.plan.lost
    assert shared.plan.lost
    with keeping_tensors():
        assert not compile_model(data).plan.lost


def test_container_gives_the_same_bytes() -> None:
    model = compile_model(DIGITS.read_bytes())
    data = model.save()
    again = compile_model(data)
    assert data.startswith(MAGIC) and again.save() == data
    assert again.plan.task_list(BASES).data == model.plan.task_list(BASES).data
    assert again.plan.weights == model.plan.weights and again.inputs == model.inputs
    x = np.random.default_rng(1).uniform(0, 1, (1, 1, 16, 16)).astype(np.float32)
    assert np.array_equal(run(again, x)[0], run(model, x)[0])


def signed(body: bytes) -> bytes:
    """A container with a correct checksum."""
    return body + hashlib.sha256(body).digest()


def test_a_container_is_planned_for_more_cores_as_its_model() -> None:
    model = compile_model(DIGITS.read_bytes())
    again = compile_model(model.save())
    for cores in (3, 1):
        want, found = model.replanned(cores).plan, again.replanned(cores).plan
        assert len(found.tasks) == len(want.tasks) > 0 and found.jobs == want.jobs
        assert found.weights == want.weights and found.cores == cores


def test_damaged_containers() -> None:
    data = compile_model(DIGITS.read_bytes()).save()
    body = data[:-32]
    bad = {
        "cut short": data[:20],
        "checksum": data[:-1] + bytes([data[-1] ^ 1]),
        "version 7": signed(body[:8] + struct.pack("<I", 7) + body[12:]),
        "header": signed(body[:16] + struct.pack("<Q", 1 << 40) + body[24:]),
        "JSONDecodeError": signed(body[:30] + b"}}" + body[32:]),
    }
    for words, changed in bad.items():
        with pytest.raises(ModelError, match=words):
            load_plan(changed)


def test_damaged_bytes_with_a_checksum_that_fits() -> None:
    """Any text gives a clear error, or a model that stays within its memory."""
    body = bytearray(compile_model(DIGITS.read_bytes()).save()[:-32])
    length = struct.unpack_from("<Q", body, 16)[0]
    rng = np.random.default_rng(588)
    refused = 0
    for _ in range(60):
        changed = bytearray(body)
        for _ in range(2):
            changed[24 + rng.integers(length)] = rng.choice(list(b'0123456789"{}[],:-ae'))
        try:
            load_plan(signed(bytes(changed)))
        except ModelError as error:
            refused += 1
            assert "damaged" in str(error) or "'" in str(error)
    assert refused > 20
