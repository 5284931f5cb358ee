"""Damaged files of every kind that commands read; the fuzzer detects wrong reactions."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.base import BAD_INPUT, DEVICE_ERROR
from rkcosim.cli.exits import said
from rkcosim.golden.task.errors import GoldenError
from tests import seeds
from tests.extent import extent
from tools.file_fuzz import KINDS, Kind, KindReport, fuzz_files, judge, mutated
from tools.file_fuzz.__main__ import Record, run_share

INPUTS = int(os.environ.get("RKCOSIM_FUZZ", extent("264", "2200")))


def test_readers_take_or_refuse_every_file():
    seed = seeds.seed(__name__, 31)
    print(f"seed {seed}")
    left_out = {"snapshot"}  # it needs a compiled engine
    if shutil.which("vcd2fst") is None:
        left_out.add("FST")
    kinds = [name for name in KINDS if name not in left_out]
    reports = fuzz_files(seed, INPUTS, kinds)
    for name, report in reports.items():
        assert not report.wrong, f"seed {seed}, {name}: {report.wrong[:3]}"
        assert 0 <= report.inputs - INPUTS // len(kinds) <= 1
    refused = sum(report.refused.total() for report in reports.values())
    assert INPUTS // 4 < refused < INPUTS * 19 // 20


def text(folder: Path) -> Path:
    path = folder / "a.txt"
    path.write_text("nothing much, in a file")
    return path


held: list[Any] = []


def _raise(path: Path) -> None:
    raise KeyError("x")


def _hang(path: Path) -> None:
    time.sleep(5)


def _compute(path: Path) -> None:
    while True:
        sum(range(1000))


def _leave(path: Path) -> None:
    (path.parent / "left").touch()


def _leave_temporary(path: Path) -> None:
    tempfile.mkstemp()


def _write_elsewhere(path: Path) -> None:
    Path("/tmp/rkcosim-must-not-be").unlink(missing_ok=True)


def _read_elsewhere(path: Path) -> None:
    Path("/etc/hostname").read_bytes()


def _start(path: Path) -> None:
    subprocess.run(["true"], check=True)


def _say_much(path: Path) -> None:
    raise ValueError("x" * 100_000 + "\n" * 100_000)


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
        (_compute, 1, "takes longer than 0.4 s"),
        (_hang, 1, "takes longer than 0.4 s"),
        (_leave, 1, "/left"),
        (_leave_temporary, 1, "leaves the temporary file"),
        (_write_elsewhere, 1, "writes /tmp/rkcosim-must-not-be"),
        (_read_elsewhere, 1, "reads /etc/hostname"),
        (_start, 1, "starts ['true']"),
        (_keep, 60, "descriptors remain open"),
        (_grow, 100, "memory grew by"),
    ],
)
def test_what_is_wrong_is_noticed(monkeypatch, read, inputs: int, said: str):
    monkeypatch.setattr(judge, "BOUND", 0.4)
    monkeypatch.setattr(judge, "WAIT", 0.8)
    monkeypatch.setattr(judge, "GROWTH", 20 << 20)
    monkeypatch.setitem(KINDS, "text", Kind(text, read, sound=False))
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
    monkeypatch.setitem(KINDS, "text", Kind(text, _on_the_device, codes=codes, sound=False))
    report = fuzz_files(1, 2, ["text"])["text"]
    assert bool(report.wrong) == wrong and report.inputs == 2
    assert KINDS["rknn"].codes == KINDS["rknn of three cores"].codes == (BAD_INPUT,)


def _die(path: Path) -> None:
    if path.read_bytes()[:1] != b"n":
        os.kill(os.getpid(), signal.SIGKILL)
    if b"file" not in path.read_bytes():
        raise ValueError("no file")


def test_a_process_that_a_file_ends_costs_one_case(monkeypatch, tmp_path: Path):
    """The cases before and behind such a file have the results that they have alone."""
    monkeypatch.setitem(KINDS, "text", Kind(text, _die))
    one = judge.Judge("text", KINDS["text"], tmp_path)
    fatal, good, refused = [], 0, 0
    for number in range(120):
        data = one.change(1, number).read_bytes()
        fatal += [number] * (data[:1] != b"n")
        good += data[:1] == b"n" and b"file" in data
        refused += data[:1] == b"n" and b"file" not in data
    found, number = KindReport(), 0
    while number < 120:
        report, number = run_share("text", tmp_path, 1, number, 120 - number)
        found.add(report)
    assert len(fatal) > 2 and good > 20 and refused > 5
    counts = found.taken, found.refused["ValueError"], found.failed
    assert counts == (good, refused, len(fatal)), found.wrong[:5]
    assert [line.split(":")[0] for line in found.wrong] == [f"seed 1, case {number}" for number in fatal]


def _takes(path: Path) -> None:
    if path.read_bytes()[:1] != b"n":
        np.full(32 << 20, 1, np.uint8)


def test_memory_of_the_process_that_starts_readers_is_not_theirs(monkeypatch, tmp_path: Path):
    """A process of 64 MiB starts readers that may take 16 MiB: only those that take more are found."""
    monkeypatch.setitem(KINDS, "text", Kind(text, _takes))
    monkeypatch.setattr(judge, "MOST_BYTES", 16 << 20)
    held = np.full(64 << 20, 1, np.uint8)
    found, number = KindReport(), 0
    while number < 60:
        report, number = run_share("text", tmp_path, 1, number, 60 - number)
        found.add(report)
    one = judge.Judge("text", KINDS["text"], tmp_path)
    large = [number for number in range(60) if one.change(1, number).read_bytes()[:1] != b"n"]
    assert held.all() and large and len(large) < 30
    assert [line.split(": ")[0] for line in found.wrong] == [f"seed 1, case {number}" for number in large]
    assert all(": needs " in line for line in found.wrong)


def test_a_record_is_continued(tmp_path: Path):
    report, number = run_share("tables of hybrid quantisation", tmp_path, 1, 0, 30)
    record = Record(1, {"tables of hybrid quantisation": number}, {"tables of hybrid quantisation": report})
    record.save(tmp_path / "record.json")
    again = Record.load(tmp_path / "record.json", 77)
    assert not report.failed, report.wrong[:5]
    assert again == record and number == 30
    assert "| tables of hybrid quantisation | 30 |" in again.lines()[2]


def test_long_messages_are_cut():
    """100,000 characters of a file in a message are one line with a mark; lists of names stay as they are."""
    whole = f"model.onnx: {'x' * 100_000}: is too long"
    text = said(ValueError(whole))
    assert len(text) < 1100 and text.startswith("model.onnx: xxx") and text.endswith("x: is too long")
    assert f"[... {len(whole) - 1024:,} characters ...]" in text
    assert len(said(ValueError("\n" * 10**6))) < 17_000
    names = "\n".join(f"node {n}: operator 'Nothing' is not supported" for n in range(200))
    assert said(ValueError(names)) == names


def test_documents_stay_documents():
    rng = random.Random(3)
    changed = {mutated(b'{"a": [1, 2, {"b": "text"}]}', rng, text=True) for _ in range(200)}
    assert len(changed) > 100 and any(
        b"36893488147419103232" in text or b"1606938" in text for text in changed
    )
