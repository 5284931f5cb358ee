"""The log of host requests to an engine, replayed in other portions; limits and files of snapshots."""

from __future__ import annotations

import copy
import ctypes as ct
import json
import os
import struct
import tracemalloc
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.engines import library as lib
from rkcosim.engines.library import DramConfig
from rkcosim.engines.memory import PAGE, DeviceMemory
from rkcosim.engines.protocol import SnapshotError
from rkcosim.engines.snapshots.contents import read_snapshot
from rkcosim.engines.snapshots.file import MAGIC, VERSION, SnapshotFile
from rkcosim.engines.snapshots.host_log import HostLog
from rkcosim.engines.snapshots.orders import Border

BASE = 0x10_0000
PAGES = 8


class FakeLibrary:
    """Answers like a library: each cycle changes a number, some raise an interrupt or write memory."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.state, self.cycle, self.irq = 1, 16, 0
        self.written: set[int] = set()

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.cycle += 1
            self.state = zlib.crc32(b"next", self.state)
            if self.state % 5 == 0:
                page = BASE // PAGE + self.state // 5 % PAGES
                self.memory.array[page * PAGE + self.state % PAGE] = self.state >> 8 & 0xFF
                self.written.add(page)
            if self.state % 23 == 0:
                self.irq = 1

    def rk_cycle(self, handle: int) -> int:
        return self.cycle

    def rk_irq(self, handle: int) -> int:
        return self.irq

    def rk_write(self, handle: int, core: int, offset: int, value: int, bound: int) -> int:
        self.step(5)
        self.state = zlib.crc32(bytes([offset, value]), self.state)
        self.irq = 0
        return 0

    def rk_read(self, handle: int, core: int, offset: int, to: Any, bound: int) -> int:
        self.step(4)
        to._obj.value = self.state
        return self.state % 2

    def rk_reset(self, handle: int, mask: int, cycles: int) -> None:
        self.step(cycles)
        self.irq = 0

    def rk_run(self, handle: int, end: int, mask: int, stop: int) -> int:
        while self.cycle < end:
            if self.irq & mask:
                return lib.RUN_IRQ
            self.step()
        return lib.RUN_IRQ if self.irq & mask else lib.RUN_BOUND

    def rk_counters(self, handle: int, core: int, to: Any) -> None:
        to._obj.read_requests = self.state

    def rk_note_pages(self, handle: int, on: int) -> None:
        self.written.clear()

    def rk_take_pages(self, handle: int, to: int) -> int:
        words = (ct.c_uint64 * (1 << 14)).from_address(to)
        ct.memset(to, 0, ct.sizeof(words))
        for page in self.written:
            words[page // 64] |= 1 << page % 64
        count = len(self.written)
        self.written.clear()
        return count


class Host:
    """A program that executes given steps and records all results.  Runs are in portions of `chunk`."""

    def __init__(self, library: Any, memory: DeviceMemory, chunk: int) -> None:
        self.library, self.memory, self.chunk = library, memory, chunk
        self.seen: list[Any] = []

    def do(self, what: tuple[str, int], stop_at: int | None = None) -> bool:
        """Execute one step of the program; False if its run reached cycle `stop_at` before its end."""
        kind, number = what
        if kind == "write":
            self.seen.append(self.library.rk_write(1, 0, 4 * (number % 3), number, 9))
        elif kind == "read":
            value = ct.c_uint32()
            self.seen.append((self.library.rk_read(1, 0, 8, ct.byref(value), 9), value.value))
        elif kind == "reset":
            self.library.rk_reset(1, 1, number)
        elif kind == "counters":
            raw = lib.CountersC()
            self.library.rk_counters(1, 0, ct.byref(raw))
            self.seen.append(raw.read_requests)
        elif kind == "memory":
            self.memory.array[BASE + 31 * number] ^= number  # the host writes too
        else:
            if not self.run(number, int(kind == "wait"), stop_at):
                return False
        now = self.library.rk_cycle(1)
        self.seen.append((now, self.library.rk_irq(1), zlib.crc32(self.memory.read(BASE, PAGES * PAGE))))
        return True

    def run(self, cycles: int, mask: int, stop_at: int | None) -> bool:
        log = self.library if isinstance(self.library, HostLog) else None
        end = self.library.rk_cycle(1) + cycles
        if log:
            log.run_begins()
        while True:
            now = self.library.rk_cycle(1)
            limit = min(end, now + self.chunk)
            if stop_at is not None and now <= stop_at <= end:
                limit = min(limit, stop_at)
            result = self.library.rk_run(1, limit, mask, 0)
            now = self.library.rk_cycle(1)
            if stop_at is not None and now == stop_at < end and result == lib.RUN_BOUND:
                return False
            if result == lib.RUN_IRQ or now >= end:
                break
        self.seen.append(result)
        if log:
            log.run_over()
        return True


def fresh() -> DeviceMemory:
    memory = DeviceMemory(lambda *_: None)
    memory.map(BASE, PAGES * PAGE)
    return memory


STEPS = st.tuples(
    st.sampled_from(["write", "read", "run", "wait", "wait", "counters", "memory", "reset"]),
    st.integers(0, 90),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=25), st.integers(16, 700), st.integers(1, 60), st.integers(1, 60))
def test_told_again_in_other_portions(program: list[Any], stop_at: int, chunk: int, other: int) -> None:
    """Saved in a run or after an access and replayed with runs in other portions: equal results."""
    memory = fresh()
    host = Host(FakeLibrary(memory), memory, 1 << 20)
    for step in program:
        host.do(step)

    memory = fresh()
    library = FakeLibrary(memory)
    log = HostLog(library, memory)  # type: ignore[arg-type]
    log.attach(1)
    first = Host(log, memory, chunk)
    tail = False  # the host wrote to memory after its last access
    for step in program:
        tail = step[0] == "memory" or (tail and step[0] == "counters")
        if not first.do(step, stop_at) or library.cycle >= stop_at:
            break
    blocks, image = log.dump(), memory.array[BASE : BASE + PAGES * PAGE].copy()

    again = fresh()
    later = copy.copy(library)
    later.memory, later.written = again, set()
    told: list[bool] = []
    log = HostLog(later, again)  # type: ignore[arg-type]
    log.attach(1)

    def end() -> None:
        now = again.array[BASE : BASE + PAGES * PAGE]
        told.append(bool((now == image).all()) or tail)

    log.load(blocks, end)
    second = Host(log, again, other)
    for step in program:
        second.do(step)
    assert second.seen == host.seen
    if library.cycle > 16:
        assert told == [True] and not log.replaying


def test_something_else_is_noticed() -> None:
    memory = fresh()
    log = HostLog(FakeLibrary(memory), memory)  # type: ignore[arg-type]
    log.attach(1)
    host = Host(log, memory, 10)
    for step in (("write", 3), ("run", 20), ("read", 0), ("reset", 4)):
        host.do(step)
    blocks = log.dump()
    for wrong, text in (
        ([("write", 4)], r"access 0 is a write \(core 0, 0x4, 0x4\), it was a write \(core 0, 0x0, 0x3\)"),
        ([("write", 3), ("wait", 20)], r"access 1 is a run \(cores 0b1\), it was a run \(cores 0b0\)"),
        ([("write", 3), ("run", 21)], "access 1 is a run to cycle 42, it was one to cycle 41"),
        ([("write", 3), ("run", 20), ("reset", 4)], "access 2 is a reset .*, it was a read"),
        ([("write", 3), ("run", 20), ("read", 0), ("reset", 5)], "access 3 is a reset"),
    ):
        log = HostLog(FakeLibrary(fresh()), fresh())  # type: ignore[arg-type]
        log.attach(1)
        log.load(blocks, lambda: None)
        host = Host(log, memory, 1 << 20)
        for step in wrong[:-1]:
            host.do(step)
        with pytest.raises(SnapshotError, match=text):
            host.do(wrong[-1])
    with pytest.raises(SnapshotError, match="saved without the log of its program"):
        log.load({}, lambda: None)


@pytest.mark.parametrize(
    ("text", "border"),
    [
        ("task:3", (None, 3, "")),
        (" task:0@12 ", (12, 0, "")),
        ("layer:conv3/relu 1", (None, None, "conv3/relu 1")),
        ("job", (None, None, "")),
        ("job:2", (2, None, "")),
    ],
)
def test_borders(text: str, border: tuple[Any, ...]) -> None:
    found = Border.parse(text)
    assert (found.job, found.tasks, found.layer) == border and found.text == text.strip()


@pytest.mark.parametrize(
    "text", ["", "3", "task", "task:", "task:-1", "task:1@", "layer:", "jobs", "job:x", "end"]
)
def test_no_borders(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a border between tasks; use task:N"):
        Border.parse(text)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.binary(max_size=300), max_size=4), st.data())
def test_files(tmp_path_factory: Any, blocks: dict[str, bytes], data: Any) -> None:
    path: Path = tmp_path_factory.mktemp("file") / "deeper" / "s.snap"
    size = SnapshotFile({"cycle": 7, "text": "é"}, blocks).write(path)
    found = SnapshotFile.read(path)
    assert found.blocks == blocks and found.header["cycle"] == 7 and found.header["text"] == "é"
    assert SnapshotFile.read(path, blocks=False).blocks == {} and size == path.stat().st_size
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(SnapshotError, match=r"s\.snap: "):
        SnapshotFile.read(path)
    place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
    with pytest.raises(SnapshotError, match=r"s\.snap: "):
        SnapshotFile.read(path)
    assert not list(path.parent.glob("*.part"))


# Snapshots whose checksums are right and whose contents are not.


def sound() -> SnapshotFile:
    """A snapshot as an engine with a host log would write it."""
    memory = DeviceMemory(lambda *_: None)
    memory.map(BASE, PAGES * PAGE)
    library = FakeLibrary(memory)
    log = HostLog(library, memory)  # type: ignore[arg-type]
    log.attach(1)
    log.rk_write(1, 0, 8, 1, 100)
    log.run_begins()
    log.rk_run(1, 400, 1, 0)
    log.run_over()
    counters = lib.CountersC()
    log.rk_counters(1, 0, ct.byref(counters))
    header: dict[str, Any] = {
        **{"engine": "verilator", "cell": "cpp", "cores": 2, "variant": "v", "geometry": "g", "build": "b"},
        **{"dram": asdict(DramConfig()), "options": [], "cycle": 400, "tasks": {"0": 1}},
        "ranges": [[BASE, PAGES * PAGE]],
        "host": {
            **{"reset_at": [16, 16], "reported": 0, "kicks": [[20, 0]], "kicks_gone": 0, "counting": False},
            **{"announced": {"1": [[0, 1, "next"]]}, "layers": {"0": [[0, 1, "first"]]}},
        },
        "run": {"command": "run", "file": "m", "sha256": "0", "options": {"exact": False, "seed": 3}},
    }
    blocks = {"state": bytes(100), "pages": np.array([BASE // PAGE], np.uint32).tobytes()}
    return SnapshotFile(header, {**blocks, "memory": bytes([1]) * PAGE, **log.dump()})


def leaves(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every item in a tree of JSON."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *leaves(value[key])]]


JUNK: list[Any] = [None, -1, 1 << 70, 1.5, True, "x", "\ud800", [], {}, [[]], float("nan")]


def test_a_sound_snapshot_is_read(tmp_path: Path) -> None:
    file = sound()
    file.write(tmp_path / "s.snap")
    assert read_snapshot(tmp_path / "s.snap").blocks == file.blocks


@pytest.mark.parametrize("part", ["header", "host"])
def test_junk_anywhere_is_a_snapshot_error(part: str, tmp_path: Path) -> None:
    original, path, refused = sound(), tmp_path / "s.snap", 0
    tree = original.header if part == "header" else json.loads(original.blocks["host"])
    count = len(leaves(tree))
    assert count > 25
    for n in range(count):
        for junk in JUNK:
            changed = copy.deepcopy(tree)
            container, key = leaves(changed)[n]
            same = type(container[key]) is type(junk)
            container[key] = junk
            header = changed if part == "header" else original.header
            blocks = dict(original.blocks)
            if part == "host":
                blocks["host"] = json.dumps(changed).encode()
            SnapshotFile(header, blocks).write(path)
            try:
                read_snapshot(path)
            except SnapshotError as error:
                refused += 1
                assert str(error).startswith(f"{path}: damaged snapshot: ") and "\n" not in str(error)
                assert len(str(error)) < 300 + len(str(path))
            else:
                free = key in ("tasks", "0") or container in (changed.get("tasks"), changed.get("run"))
                assert same or free or junk is True or key in ("options", "seed", "exact"), (key, junk)
    assert refused > 5 * count


@pytest.mark.parametrize(
    ("name", "block", "said"),
    [
        ("memory", bytes(PAGE + 1), "block 'memory' has 4,097 bytes for 4,096"),
        ("memory", b"", "block 'memory' has 0 bytes"),
        ("pages", b"abc", "block 'pages' has 3 bytes"),
        ("pages", bytes(4), "not mapped, or not in order"),
        ("host", b"{", "block 'host' is not JSON"),
        ("host", b"[" * 100_000, "block 'host' is not JSON"),
        ("host_pages", b"12", "block 'host_pages' has 2 bytes"),
        ("state", None, "no block 'state'"),
    ],
)
def test_blocks_that_do_not_fit(name: str, block: bytes | None, said: str, tmp_path: Path) -> None:
    file = sound()
    file.blocks.pop(name)
    if block is not None:
        file.blocks[name] = block
    file.write(tmp_path / "s.snap")
    with pytest.raises(SnapshotError, match=said):
        read_snapshot(tmp_path / "s.snap")


def test_nothing_is_unpacked_beyond_its_bound(tmp_path: Path) -> None:
    """Zeros that compress a thousandfold: unpacking is refused, or stays within the size in the table."""
    path = tmp_path / "bomb.snap"
    packed = zlib.compress(bytes(64 << 20), 9)

    def write(size: int, length: int = len(packed), header: Any = None) -> None:
        entry = {"name": "state", "size": size, "bytes": length, "crc": zlib.crc32(packed)}
        text = json.dumps({**sound().header, "blocks": [entry]} if header is None else header).encode()
        head = struct.pack("<8sIII", MAGIC, VERSION, len(text), zlib.crc32(text))
        path.write_bytes(head + text + packed)

    for size, said in (
        (10 << 30, "unpack to 10,737,418,240 bytes, at most"),
        (1000, "block 'state' has a wrong length"),
        (-1, "not a table of blocks"),
    ):
        write(size)
        tracemalloc.start()
        with pytest.raises(SnapshotError, match=said):
            SnapshotFile.read(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20
    for header in ([], {}, {"blocks": 5}, {"blocks": [5]}, {"blocks": [{"name": "a"}]}):
        write(1000, header=header)
        with pytest.raises(SnapshotError, match="damaged snapshot"):
            SnapshotFile.read(path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SnapshotError, match="is a FIFO, not a regular file"):
        SnapshotFile.read(tmp_path / "fifo")


@pytest.mark.parametrize(
    "text", ["", "00", "zz" * ct.sizeof(lib.CountersC), " " * 2 * ct.sizeof(lib.CountersC)]
)
def test_answers_of_another_length(text: str) -> None:
    file = sound()
    data = json.loads(file.blocks["host"])
    assert len(data["answers"]) == 1
    begin = data["begin"]
    data["answers"] = {f"rk_counters {begin} 0": [[0, text]]}
    memory = DeviceMemory(lambda *_: None)
    log = HostLog(FakeLibrary(memory), memory)  # type: ignore[arg-type]
    log.load({**file.blocks, "host": json.dumps(data).encode()}, lambda: None)
    with pytest.raises(SnapshotError, match="its answer to 'rk_counters"):
        log.rk_counters(1, 0, ct.byref(lib.CountersC()))
