"""The logs of diagnostics and refused accesses as messages: against a simple definition, and their cost."""

from __future__ import annotations

import ctypes as ct
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np

from rkcosim.engines import library as lib
from rkcosim.engines.complaints import MOST, ComplaintLog, Place, read_log
from rkcosim.engines.diagnostics import LAG, WRITE_FAULTS, refused_at, task_at
from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.spec.regs import registers


@dataclass
class Span:
    core: int
    task: int
    start: int
    end: int | None


class Logs:
    """Random logs in the library's form: `count` diagnostics, half of them DMA errors, and `count` faults."""

    def __init__(self, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.raw = np.zeros(count, np.dtype(lib.DiagnosticEventC))
        self.refused = np.zeros(count, np.dtype(lib.FaultEventC))
        for log in (self.raw, self.refused):
            log["cycle"] = np.sort(rng.integers(0, 10 * count, count))
            log["core"] = rng.integers(0, 3, count)
        codes = [DiagnosticCode.READ_ERROR, DiagnosticCode.WRITE_ERROR, DiagnosticCode.EMPTY_SIZE, 200]
        self.raw["code"] = rng.choice([int(code) for code in codes], count)
        self.raw["reg"] = rng.choice([0x1010, 0x4058, registers()["DPU"]["DST_BASE_ADDR"].offset], count)
        self.raw["block"] = self.raw["reg"] >> 12
        self.raw["value"] = rng.integers(0, 4, count)
        self.refused["client"] = rng.integers(0, 4, count)
        self.refused["kind"] = rng.integers(0, 4, count)
        self.refused["address"] = rng.integers(0, 1 << 32, count)
        starts = np.sort(rng.integers(0, 10 * count, 40)).tolist()
        self.tasks = [Span(n % 3, n // 3, at, at + 5 * count // 40) for n, at in enumerate(starts)]
        self.tasks[-1].end = None
        self.log = ComplaintLog(self._read, lambda: self.tasks)

    def _read(self, function: str, struct: type[ct.Structure], first: int) -> np.ndarray:
        return {"rk_diagnostics": self.raw, "rk_faults": self.refused}[function][first:]


def test_every_record_has_the_words_of_the_plain_definition() -> None:
    logs = Logs(300, 1)
    faults = logs.log.faults()
    assert [(f.cycle, f.address, f.write) for f in faults] == [
        (one["cycle"], one["address"], one["kind"] in WRITE_FAULTS) for one in logs.refused
    ]
    assert [f.task for f in faults] == [task_at(logs.tasks, f.core, f.cycle) for f in faults]
    assert len({f.task for f in faults}) > 5
    found = logs.log.diagnostics()
    addresses = set()
    for one, raw in zip(found, logs.raw, strict=True):
        write = {"READ_ERROR": False, "WRITE_ERROR": True}.get(one.code)
        client = int(raw["value"])
        address = None if write is None else refused_at(faults, one.core, client, write, one.cycle)
        assert (one.address, one.task) == (address, task_at(logs.tasks, one.core, one.cycle - LAG))
        addresses.add(address)
    assert len(addresses) > 50 and [d.cycle for d in found] == logs.raw["cycle"].tolist()
    assert logs.log.diagnostics(200, 30) == found[200:230] and logs.log.faults(7, 2) == faults[7:9]


def test_kinds_are_counted_with_their_first_and_last() -> None:
    logs = Logs(300, 2)
    found = logs.log.diagnostics()
    every = logs.log.kinds()
    counted = Counter((d.core, d.code, d.register, d.client) for d in found)
    assert {kind.kind: kind.count for kind in every.diagnostics} == counted
    for kind in every.diagnostics:
        mine = [d for d in found if (d.core, d.code, d.register, d.client) == kind.kind]
        assert (kind.first, kind.last) == (mine[0], mine[-1])
        assert kind.count == 1 or f"({kind.count} times, the last in cycle {mine[-1].cycle})" in str(kind)
    assert [kind.first.cycle for kind in every.diagnostics] == sorted(
        kind.first.cycle for kind in every.diagnostics
    )
    faults = Counter((f.core, f.text, f.client) for f in logs.log.faults())
    assert {kind.kind: kind.count for kind in every.faults} == faults
    assert every.place == (300, 300) and not every.full
    later = logs.log.kinds(Place(250, 300))
    assert sum(kind.count for kind in later.diagnostics) == 50 and not later.faults
    one = logs.log.kinds(core=1, cycle=1500)
    assert {kind.first.core for kind in one.diagnostics} == {1}
    assert min(kind.first.cycle for kind in one.faults) >= 1500


def test_full_logs_cost_their_length() -> None:
    """Regression: each diagnostic searched all faults, 4 * 10^9 comparisons here."""
    logs = Logs(MOST, 3)
    begun = time.process_time()
    assert len(logs.log.diagnostics()) == MOST
    whole = time.process_time() - begun
    begun = time.process_time()
    kinds = logs.log.kinds()
    assert kinds.full and sum(kind.count for kind in kinds.diagnostics) == MOST
    assert whole < 20 and time.process_time() - begun < min(3, whole)


def test_a_log_is_read_in_parts() -> None:
    logs = Logs(20_000, 4)

    def call(first: int, to: ct.Array, room: int) -> int:
        part = logs.refused[first : first + room]
        ct.memmove(to, part.tobytes(), part.nbytes)
        return len(part)

    assert (read_log(call, lib.FaultEventC) == logs.refused).all()
    assert (read_log(call, lib.FaultEventC, 19_990) == logs.refused[19_990:]).all()
    assert not read_log(call, lib.FaultEventC, 20_000).size
