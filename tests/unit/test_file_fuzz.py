"""Damaged files of every kind that commands read; the fuzzer detects wrong reactions."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from rkcosim.base import BAD_INPUT, DEVICE_ERROR
from rkcosim.golden.task.errors import GoldenError
from tests import seeds
from tests.extent import extent
from tools import file_fuzz
from tools.file_fuzz import KINDS, Kind, fuzz_files, mutated

INPUTS = int(os.environ.get("RKCOSIM_FUZZ", extent("264", "2200")))


def test_readers_take_or_refuse_every_file():
    seed = seeds.seed(__name__, 31)
    print(f"seed {seed}")
    left_out = {"snapshot"}  # it needs a compiled engine
    if shutil.which("vcd2fst") is None:
        left_out.add("FST")
    kinds = [name for name in KINDS if name not in left_out]
    for name, report in fuzz_files(seed, INPUTS, kinds).items():
        assert not report.wrong, f"seed {seed}, {name}: {report.wrong[:3]}"
        assert 0 <= report.inputs - INPUTS // len(kinds) <= 1
        pixels = name.startswith("picture")  # most of their bytes may have any value
        assert sum(report.refused.values()) > report.inputs // (12 if pixels else 4)


def text(folder: Path) -> Path:
    path = folder / "a.txt"
    path.write_text("nothing much, in a file")
    return path


held: list[Any] = []


def _raise(path: Path) -> None:
    raise KeyError("x")


def _hang(path: Path) -> None:
    time.sleep(5)


def _leave(path: Path) -> None:
    (path.parent / "left").touch()


def _keep(path: Path) -> None:
    held.append(path.open(encoding="utf-8"))


def _grow(path: Path) -> None:
    # Not from the heap: what earlier tests gave back to it counts as resident already.
    piece = mmap.mmap(-1, 1 << 20)
    piece.write(bytes(len(piece)))
    held.append(piece)


@pytest.mark.parametrize(
    "read, inputs, said",
    [
        (_raise, 1, "KeyError: 'x' (test_file_fuzz.py:"),
        (_hang, 1, "takes longer than 0.2 s"),
        (_leave, 1, "files were created or removed"),
        (_keep, 60, "descriptors remain open"),
        (_grow, 100, "memory grew by"),
    ],
)
def test_what_is_wrong_is_noticed(monkeypatch, read, inputs: int, said: str):
    monkeypatch.setattr(file_fuzz, "BOUND", 0.2)
    monkeypatch.setattr(file_fuzz, "GROWTH", 20 << 20)
    monkeypatch.setitem(KINDS, "text", Kind(text, read))
    try:
        report = fuzz_files(1, inputs, ["text"])["text"]
    finally:
        for item in held:
            if hasattr(item, "close"):
                item.close()
        held.clear()
    assert any(said in line for line in report.wrong), report.wrong


def _on_the_device(path: Path) -> None:
    raise GoldenError("a word is dropped", task=3)


@pytest.mark.parametrize("codes, wrong", [((BAD_INPUT,), True), ((BAD_INPUT, DEVICE_ERROR), False)])
def test_errors_of_the_device_are_failures_where_a_check_must_refuse(monkeypatch, codes, wrong: bool):
    monkeypatch.setitem(KINDS, "text", Kind(text, _on_the_device, codes=codes))
    report = fuzz_files(1, 2, ["text"])["text"]
    assert bool(report.wrong) == wrong and report.inputs == 2
    assert KINDS["rknn"].codes == KINDS["rknn of three cores"].codes == (BAD_INPUT,)


def test_documents_stay_documents():
    rng = random.Random(3)
    changed = {mutated(b'{"a": [1, 2, {"b": "text"}]}', rng, text=True) for _ in range(200)}
    assert len(changed) > 100 and any(
        b"36893488147419103232" in text or b"1606938" in text for text in changed
    )
