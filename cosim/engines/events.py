"""The event log of an engine: the records of the harness (cosim/engines/harness/events.h), with names."""

from __future__ import annotations

import ctypes as ct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base.numbered import Numbered
from rkcosim.engines import library as lib
from rkcosim.engines import records
from rkcosim.engines.diagnostics import Diagnostic, Fault
from rkcosim.engines.event_files import FOREVER, EventFiles
from rkcosim.engines.protocol import EngineError
from rkcosim.engines.records import EVENT_NAMES
from rkcosim.engines.system import System
from rkcosim.engines.traces.engine import EngineTrace
from rkcosim.spec.port_codes import client_name
from rkcosim.spec.regs import registers
from rkcosim.waves import events
from rkcosim.waves.events import Event, EventLog, Text

RECORDED = ("write", "burst", "stripe", "mac", "packet", "irq", "stall", "busy")
"""Kinds whose recording costs time, by `RecordKind` of events.h.

The others come from logs that are always kept.
"""

LIMIT = 4_000_000
"""Default number of records that are kept: 192 MB."""

GAP = 8
"""Number of cycles after which a level that returns counts as a new event."""

_RECORD = np.dtype(
    [
        *((name, np.uint64) for name in ("cycle", "end", "address")),
        *((name, np.uint32) for name in ("value", "bytes", "latency", "job")),
        ("task", np.uint16),
        *((name, np.uint8) for name in ("kind", "core", "detail", "flags", "response", "pad")),
    ]
)
"""`Record` of events.h."""

_FETCHED, _IS_WRITE, _OPEN, _RESET = 1, 2, 4, 8
_RESPONSES = ("", "EXOKAY", "SLVERR", "DECERR")

_BLOCK_OF_READER = {
    "FEATURE": "CNA",
    "WEIGHT": "CNA",
    "MRDMA": "DPU_RDMA",
    "BRDMA": "DPU_RDMA",
    "NRDMA": "DPU_RDMA",
    "ERDMA": "DPU_RDMA",
    "PPU": "PPU_RDMA",
    "PC": "PC",
}
"""Block of each reading AXI client."""

_BLOCK_OF_EVENT = {
    "mac_slots": "CORE",
    "stall_feature": "CNA",
    "stall_weight": "CNA",
    "stall_acc": "CORE",
    "dpu_octets": "DPU",
    "ppu_atoms": "PPU",
    "stripes": "CNA",
    "stall_dpu": "CORE",
    "only_dpu": "CORE",
    "only_acc": "CORE",
}
"""Block of a bit of the core's `events`; other bits belong to the PPU if it is running, else to the DPU."""


class Recording:
    """The recording of one engine's events, behind `SocEngine.record` and `.events`."""

    def __init__(self, engine: System, tracing: EngineTrace) -> None:
        self.engine, self.tracing = engine, tracing
        self.asked: dict[str, Any] = {}
        self.kicks: Numbered[tuple[int, int]] = Numbered()  # (cycle, core)
        self.announced: dict[int, Sequence[tuple[int, int, str]]] = {}  # by core
        self.layers: dict[int, Sequence[tuple[int, int, str]]] = {}  # by job
        self.files: list[EventFiles] = []
        engine.reopened.append(self.arm)

    def start(
        self,
        kinds: Iterable[str] | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        limit: int = LIMIT,
        gap: int = GAP,
    ) -> None:
        """Record events from now on; earlier records are discarded.

        Parameters
        ----------
        kinds : kinds of `rkcosim.waves.events.KINDS`, None for all. Those not in `RECORDED` cost no time.
        first, last : first and last cycle of the window, None: to the end.
        limit : maximum number of events of the kinds in `RECORDED`; later ones are only counted.
        gap : a level (array, packets, stalls) that was low for at most this number of cycles continues the
            same event.

        Raises
        ------
        ValueError
            for an unknown kind or a number out of range.
        """
        chosen = tuple(events.KINDS if kinds is None else kinds)
        events.check_kinds(chosen)
        if first < 0 or (last is not None and last < first):
            raise ValueError(f"the window of events must end after it begins, not be {first} to {last}")
        if limit < 1 or not 0 <= gap < 1 << 32:
            raise ValueError(f"events: limit must be at least 1 (it is {limit}), gap at least 0 ({gap})")
        window = {"first": max(first, self.engine.cycle, self.engine.resumed_at), "last": last}
        self.asked = {"kinds": list(chosen), **window, "limit": limit, "gap": gap}
        self.engine.keep_tasks(True)
        self.arm()

    def arm(self) -> None:
        """Pass the settings to the library; also to a library that was loaded after `start`."""
        if not self.asked:
            return
        mask = sum(1 << bit for bit, kind in enumerate(RECORDED) if kind in self.asked["kinds"])
        last = FOREVER if self.asked["last"] is None else self.asked["last"]
        config = lib.RecordConfigC(mask, self.asked["gap"], self.asked["first"], last, self.asked["limit"])
        self.engine.lib.rk_record(self.engine.opened(), ct.byref(config) if mask else None)

    def log(self) -> EventLog:
        """Return what has been recorded so far; open events end with the present cycle.

        Raises
        ------
        EngineError
            if nothing is recorded.
        """
        engine = self.engine
        if not self.asked:
            raise EngineError("no events are recorded: call record() before the run")
        raw, dropped = _fetch(engine)
        log = _decode(raw).joined(EventLog.of([*_logged(engine, self), *_layers(engine, self)]))
        waveform = self.tracing.result()
        log.meta = {
            "schema_version": events.SCHEMA_VERSION,
            "engine": engine.name,
            "cell": engine.cell,
            "cores": engine.cores,
            "cycles": engine.cycle,
            "dram": asdict(engine.dram),
            "options": sorted(engine.options),
            **self.asked,
            "dropped": dropped,
            "traced": list(waveform.cycles) if waveform is not None and waveform.cycles else None,
        }
        return log

    def since(self, first: int) -> npt.NDArray[Any]:
        """Return the records of the kinds in `RECORDED` from number `first` on, as the engine has them.

        See `decoded`; those of writes have the members `cycle`, `core`, `address` (of the register), `value`,
        and `flags`, of which bit 0 is set for a write of the PC.
        """
        raw, _ = _fetch(self.engine, first)
        return raw

    def decoded(self, raw: npt.NDArray[Any]) -> EventLog:
        """Return records of `since` as events, in the order of their cycles."""
        return _decode(raw)

    def into(self, files: list[EventFiles]) -> None:
        """Record what these files need, and write them when the engine closes."""
        if files:
            self.files = files
            kinds = {kind for one in files for kind in one.kinds or events.KINDS}
            ends = [one.last for one in files]
            last = None if None in ends else max(end for end in ends if end is not None)
            self.start([k for k in events.KINDS if k in kinds], first=min(f.first for f in files), last=last)

    def finish(self) -> None:
        """Write the files, once."""
        files, self.files = self.files, []
        if files:
            log = self.log()
            for one in files:
                one.write(log)

    def kick(self, core: int, offset: int, value: int) -> None:
        """Count a register write that starts a job."""
        enable = registers()["PC"]["OPERATION_ENABLE"]
        if offset == enable.offset and enable.fields["OP_EN"].get(value):
            if layers := self.announced.pop(core, ()):
                self.layers[len(self.kicks)] = layers
            self.kicks.append((self.engine.cycle, core))
            if not self.asked:
                self.kicks.trim(records.KEPT)
                for job in [job for job in self.layers if job < len(self.kicks) - records.KEPT]:
                    del self.layers[job]
            self.engine.lib.rk_kick(self.engine.opened(), core)

    def annotate(self, core: int, layers: Sequence[tuple[int, int, str]]) -> None:
        """Set the layers of the core's next kick: (first task, number of tasks, name)."""
        self.announced[core] = layers

    def job(self, core: int, cycle: int) -> int:
        """Return the number of the core's latest kick in a cycle."""
        mine = [(when, number) for number, (when, c) in enumerate(self.kicks, self.kicks.gone) if c == core]
        place = bisect_right(mine, (cycle, len(self.kicks)))
        return mine[place - 1][1] if place else events.NONE


def _fetch(engine: System, first: int = 0) -> tuple[npt.NDArray[Any], dict[str, int]]:
    """Return the records from number `first` on, and how many found no room."""
    library, handle = engine.lib, engine.opened()
    lost = (ct.c_uint64 * len(RECORDED))()
    count = max(library.rk_settle(handle, lost) - first, 0)
    raw = np.empty(count, _RECORD)
    library.rk_records(handle, first, raw.ctypes.data, count)
    return raw, {kind: n for kind, n in zip(RECORDED, lost, strict=True) if n}


def _block_of(client: str, write: bool) -> str:
    """Return the block of an AXI client; writers have the name of their block."""
    return client if write else _BLOCK_OF_READER.get(client, "")


class _Names:
    """Assigns codes to texts in the order of their first use."""

    def __init__(self) -> None:
        self.known = {"": 0}

    def __getitem__(self, text: str) -> int:
        return self.known.setdefault(text, len(self.known))


def _decode(raw: npt.NDArray[Any]) -> EventLog:
    """Make the columns of an event log from the harness's records."""
    size = len(raw)
    blocks, clients, directions, reasons = _Names(), _Names(), _Names(), _Names()
    block, client, direction, reason = (np.zeros(size, np.int32) for _ in range(4))
    of = {kind: np.flatnonzero(raw["kind"] == number) for number, kind in enumerate(RECORDED)}
    address = raw["address"].astype(np.int64)

    for write in (False, True):
        mine = of["burst"][(raw["flags"][of["burst"]] & _IS_WRITE != 0) == write]
        direction[mine] = directions["write" if write else "read"]
        for number in np.unique(raw["detail"][mine]):
            rows = mine[raw["detail"][mine] == number]
            name = client_name(int(number), write=write)
            client[rows] = clients[name]
            block[rows] = blocks[_block_of(name, write)]
    for flag, text in ((_OPEN, "open"), (_RESET, "reset")):
        reason[of["burst"][raw["flags"][of["burst"]] & flag != 0]] = reasons[text]
    for number, text in enumerate(_RESPONSES):
        if text:
            reason[of["burst"][raw["response"][of["burst"]] == number]] = reasons[text]

    writes = of["write"]
    for number in np.unique(address[writes]):
        found = registers().block_at(int(number))
        block[writes[address[writes] == number]] = blocks[found.name if found else ""]
    reason[writes] = np.where(raw["flags"][writes] & _FETCHED, reasons["fetched"], reasons["host"])

    enable = {f.lsb: name for name, f in registers()["GLOBAL"]["OPERATION_ENABLE"].fields.items()}
    names = {bit: name.removesuffix("_OP_EN") for bit, name in enable.items()}
    ppu = sum(1 << bit for bit, name in names.items() if name == "PPU")
    for kind in ("mac", "packet", "stall", "busy"):
        rows = of[kind]
        for number in np.unique(raw["detail"][rows]):
            mine = rows[raw["detail"][rows] == number]
            event = EVENT_NAMES[number] if kind != "busy" else ""
            if kind == "busy":
                block[mine] = blocks[names.get(int(number), f"bit {number}")]
            elif event in _BLOCK_OF_EVENT:
                block[mine] = blocks[_BLOCK_OF_EVENT[event]]
            else:
                block[mine] = np.where(address[mine] & ppu, blocks["PPU"], blocks["DPU"])
            if kind == "stall":
                reason[mine] = reasons[event]
        address[rows] = 0
    block[of["stripe"]] = blocks[_BLOCK_OF_EVENT["stripes"]]
    block[of["irq"]] = blocks["PC"]
    address[of["irq"]] = 0

    task = raw["task"].astype(np.int32)
    task[task == 0xFFFF] = events.NONE
    log = EventLog(
        {
            "kind": Text(raw["kind"], RECORDED),
            "cycle": raw["cycle"],
            "end": raw["end"],
            "core": raw["core"],
            "task": task,
            "job": raw["job"].view(np.int32) if size else raw["job"],
            "block": Text(block, blocks.known),
            "client": Text(client, clients.known),
            "address": address,
            "value": raw["value"],
            "bytes": raw["bytes"],
            "direction": Text(direction, directions.known),
            "reason": Text(reason, reasons.known),
            "latency": raw["latency"],
        }
    )
    return log.sorted()


def _logged(engine: System, recording: Recording) -> Iterator[Event]:
    """Yield tasks, diagnostics and faults inside the window, from the logs that every engine keeps."""
    first, last = recording.asked["first"], recording.asked["last"]
    kinds = recording.asked["kinds"]
    now = engine.cycle + 1
    stop = now if last is None else min(now, last + 1)
    for record in engine.task_log() if "task" in kinds else []:
        end, reason = (now, "running") if record.end is None else (record.end, "")
        if record.start < stop and end > first:
            yield Event("task", record.start, end, record.core, record.task, record.job, "PC", reason=reason)
    for d in engine.diagnostics() if "diagnostic" in kinds else []:
        if first <= d.cycle < stop:
            yield Event(
                "diagnostic",
                **_where(recording, d),
                block=d.block,
                address=d.offset,
                value=d.value,
                reason=f"{d.code}: {d.text}",
            )
    for f in engine.faults() if "fault" in kinds else []:
        if first <= f.cycle < stop:
            yield Event(
                "fault",
                **_where(recording, f),
                block=_block_of(f.client, f.write),
                address=f.address,
                direction="write" if f.write else "read",
                reason=f.text,
            )


def _where(recording: Recording, found: Diagnostic | Fault) -> dict[str, Any]:
    """Return what the events of diagnostics and of faults have in common."""
    task = events.NONE if found.task is None else found.task
    at = {"cycle": found.cycle, "end": found.cycle + 1, "core": found.core, "task": task}
    return {**at, "job": recording.job(found.core, found.cycle), "client": found.client}


def _layers(engine: System, recording: Recording) -> Iterator[Event]:
    """Yield named layers: one event per job and layer, over the tasks of the layer in that job."""
    first, last = recording.asked["first"], recording.asked["last"]
    if "layer" not in recording.asked["kinds"]:
        return
    known = {
        (job, task): (begin, count, name)
        for job, layers in recording.layers.items()
        for begin, count, name in layers
        for task in range(begin, begin + count)
    }
    found: dict[tuple[int, int], Event] = {}
    for record in engine.task_log() if known else []:
        layer = known.get((record.job, record.task))
        if layer is not None:
            begin, count, name = layer
            new = Event("layer", record.start, 0, record.core, begin, record.job, value=count, reason=name)
            end = engine.cycle + 1 if record.end is None else record.end
            found[record.job, begin] = found.get((record.job, begin), new)._replace(end=end)
    for event in found.values():
        if event.end > first and (last is None or event.cycle <= last):
            yield event
