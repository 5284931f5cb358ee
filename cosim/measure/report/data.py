"""The data of a report, read from the JSON of `rkcosim run` or `rkcosim regcmd run`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rkcosim.base import Error
from rkcosim.base.files import KINDS, GivenFileError, identify, read_given, wrong
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import capabilities
from rkcosim.measure.perf.attribution import CAUSES, Cause, add
from rkcosim.measure.report.figures import shorten

SCHEMA_VERSION = 1
_EMBEDDED = re.compile(r'<script type="application/json" id="run">(.*?)</script>', re.DOTALL)


class ReportError(Error, ValueError):
    """A report cannot be made of a file; the text names file and member."""


@dataclass
class ReportRow:
    """One layer of a model or task of a stream; members as in `rkcosim.measure.models.rows.LayerRow`."""

    number: int
    name: str
    op: str
    target: str = "npu"
    tasks: int = 1
    cycles: int | None = None
    macs: int = 0
    utilisation: float | None = None
    mac_busy: float | None = None
    bytes_read: int = 0
    bytes_written: int = 0
    formula_npu: int = 0
    formula_ddr: int = 0
    formula_cycles: int = 0
    core_cycles: int | None = None
    spent: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    read_by: dict[str, int] = field(default_factory=dict)
    written_by: dict[str, int] = field(default_factory=dict)
    cores: list[int] = field(default_factory=list)
    peak: int = 0
    input_shape: list[int] = field(default_factory=list)
    output_shape: list[int] = field(default_factory=list)
    host_seconds: float = 0.0
    bound: str = ""
    itemsize: int = 1
    slots: int | None = None
    """Estimated operand slots of the arrays; None in a run, which has counted them (`counters`)."""
    loaded: int | None = None
    """Estimated bytes that are loaded into CBUF; None in a run (`read_by`)."""
    short: str = ""
    """Its name without the prefix that most names have."""

    @property
    def ratio(self) -> float | None:
        """Cycles divided by those of the formula."""
        return self.cycles / self.formula_cycles if self.cycles and self.formula_cycles else None

    @property
    def moved(self) -> int:
        """Bytes between DRAM and the core, without command words."""
        return self.bytes_read + self.bytes_written

    @property
    def label(self) -> str:
        """Number and short name."""
        return f"{self.number} {self.short or self.name}"


@dataclass
class ReportedRun:
    """A run for the report; `unit` is "layer" or "task"."""

    title: str
    unit: str
    engine: str
    rows: list[ReportRow]
    raw: dict[str, Any]
    cycles: int | None
    """Cycles of one inference (the first), or of one sample of it on average, or of the stream."""
    tasks: list[dict[str, Any]] = field(default_factory=list)
    buffers: list[dict[str, Any]] = field(default_factory=list)
    dram: dict[str, Any] = field(default_factory=dict)
    peak: int = 1024
    cores: int = 1
    verdict: dict[str, Any] = field(default_factory=dict)
    submits: int = 0
    """Jobs of one inference or sample, 0 if the file does not have them."""
    samples: int = 1
    """Samples of an inference of a model of batches; the rows, `cycles` and `submits` are those of one."""

    @property
    def measured(self) -> bool:
        """Whether an engine counted cycles."""
        return any(row.cycles is not None for row in self.rows)

    @property
    def dram_rate(self) -> float:
        """Largest number of bytes per cycle for these cores, both directions together."""
        rate = float(self.dram.get("peak_bytes_per_cycle", DramConfig.peak_bytes_per_cycle))
        rate *= float(self.dram.get("efficiency", 1.0))
        # Files written before this setting existed had no such limit.
        return min(rate, self.cores * float(self.dram.get("core_bytes_per_cycle", rate)))

    @property
    def in_rows(self) -> int:
        """Sum of the cycles of all rows."""
        return sum(row.cycles or 0 for row in self.rows)

    def spent(self) -> dict[str, int]:
        """Core cycles of all rows by cause."""
        return {str(cause): sum(row.spent.get(cause, 0) for row in self.rows) for cause in CAUSES}

    def clients(self, member: str = "read_by") -> list[str]:
        """Names of the AXI clients that moved bytes, in descending order, command words last."""
        total = add(*(getattr(row, member) for row in self.rows))
        return sorted(total, key=lambda name: (name == "PC", -total[name]))


_UNSURE = ("JSON file of another kind", "text file")

MOST = 1 << 53
"""Largest number of cycles, bytes etc. of a run: JSON's numbers are exact up to this."""


def read(path: Path) -> ReportedRun:
    """Read a run's JSON file, or the page of a run, which contains the JSON.

    Raises
    ------
    ReportError
        If it is no such file, or has numbers that no run can have.
    """
    try:
        given = read_given(path)
        kind = identify(given)
        if kind in KINDS and kind not in ("report of a run", "page of a run", *_UNSURE):
            raise ReportError(str(wrong(path, given, "a run's JSON file")))
        text = given.decode()
        if text.lstrip()[:9].lower() == "<!doctype":
            found = _EMBEDDED.search(text)
            if found is None:
                raise ReportError(f"{path}: the page does not contain the figures of one run")
            text = found[1]
        data = json.loads(text, parse_constant=_no_number)
        _check_numbers(data)
    except GivenFileError as error:
        raise ReportError(str(error)) from error
    except RecursionError:
        raise ReportError(f"{path}: not a run's JSON file: it is nested too deeply") from None
    except ReportError:
        raise
    except ValueError as error:  # includes UnicodeDecodeError
        raise ReportError(f"{path}: not a run's JSON file: {error}") from error
    with damaged(path):
        try:
            return from_json(data)
        except ReportError as error:
            raise ReportError(f"{path}: {error}") from error


@contextmanager
def damaged(*paths: Path) -> Iterator[None]:
    """Context manager around code that uses read files: a member of a wrong type is an error of the file.

    Raises
    ------
    ReportError
        If the code inside fails because of such a member; the text names the files.
    """
    try:
        yield
    except (ReportError, OSError):
        raise
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, ArithmeticError) as error:
        names = " or ".join(str(path) for path in paths)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise ReportError(f"{names}: a member has a value that no run can have ({text})") from error


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number of JSON")


def _check_numbers(data: Any) -> None:
    """Refuse numbers beyond what a run can count, with which drawing the page would never end."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        for item in data:
            _check_numbers(item)
    elif isinstance(data, (int, float)) and not -MOST <= data <= MOST:
        raise ValueError(f"{data:.6g} is more than a run can count")


def embed(data: Mapping[str, Any]) -> str:
    """Return JSON text that can be put into a page's script element."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def from_json(data: Any) -> ReportedRun:
    """Return the run that a JSON document describes.

    Raises
    ------
    ReportError
        If the document is of another kind or version, or a member has a wrong type.
    """
    if not isinstance(data, dict) or not ("layers" in data or "rows" in data):
        raise ReportError("there is neither `layers` nor `rows`: use a file of `rkcosim run --json`")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise ReportError(f"schema_version must be {SCHEMA_VERSION}, not {data.get('schema_version')!r}")
    stream = "layers" not in data
    engine = str(data.get("engine", "?"))
    rows = [_row(n, item) for n, item in enumerate(_list(data, "rows" if stream else "layers"))]
    for row, short in zip(rows, shorten([row.name for row in rows]), strict=True):
        row.short = short
    if not capabilities(engine).has_cycles:
        for row in rows:
            row.cycles = None
    cycles = data.get("cycles")
    each = data.get("inference_cycles") or []
    if each:
        cycles = each[0]
    elif not stream and isinstance(cycles, int):
        cycles //= max(int(data.get("inferences") or 1), 1)
    samples = max(int(data.get("samples") or 1), 1)
    if isinstance(cycles, int):
        cycles //= samples
    verdict = data.get("verdict")
    tasks = _items(data, "runs" if stream else "tasks", _TASK)
    for number, task in enumerate(tasks):
        if not 0 <= task["layer"] < len(rows):
            raise ReportError(f"tasks[{number}]: there is no {'row' if stream else 'layer'} {task['layer']}")
    return ReportedRun(
        title=str(data.get("stream" if stream else "model", "?")),
        unit="task" if stream else "layer",
        engine=engine,
        rows=rows,
        raw=data,
        cycles=cycles if capabilities(engine).has_cycles else None,
        tasks=tasks,
        buffers=_items(data, "regions", _REGION) if stream else _items(data, "buffers", _BUFFER),
        dram=data.get("dram") or {},
        peak=int(data.get("peak", 1024)),
        cores=max([int(data.get("cores") or 1), *(len(row.cores) for row in rows)]),
        verdict=verdict if isinstance(verdict, dict) else {},
        submits=int(data.get("submits") or 0) // samples,
        samples=samples,
    )


def _list(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = data.get(name) or []
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ReportError(f"member `{name}` must be a list of objects")
    return found


def _items(data: Mapping[str, Any], name: str, kinds: Mapping[str, type]) -> list[dict[str, Any]]:
    """Return a list of objects that have these members."""
    found = _list(data, name)
    for number, item in enumerate(found):
        for member, kind in kinds.items():
            if not isinstance(item.get(member), kind):
                raise ReportError(f"{name}[{number}]: `{member}` is {item.get(member)!r}")
    return found


def _row(number: int, item: Mapping[str, Any]) -> ReportRow:
    known = {
        name: item[name] for name in ReportRow.__dataclass_fields__ if name in item and name not in _OURS
    }
    for name in ("name", "op"):
        if not isinstance(known.get(name), str):
            raise ReportError(f"row {number} has no text member `{name}`")
    for name, kind in _KINDS.items():
        value = known.get(name)
        if value is not None and not isinstance(value, kind):
            raise ReportError(f"row {number} ('{known['name']}'): `{name}` is {value!r}")
    if isinstance(spent := known.get("spent"), dict):
        known["spent"] = add(*({str(_EARLIER.get(name, name)): count} for name, count in spent.items()))
    return ReportRow(number, **known)


_EARLIER = {
    "busy": Cause.ARRAY,
    "feature": Cause.FEATURES,
    "weight": Cause.WEIGHTS,
    "operand": Cause.OPERANDS,
    "write": Cause.WRITER,
    **dict.fromkeys(("accumulator", "output"), Cause.DPU),
    "other": Cause.TASK,
}
"""Causes that stand for the parts of files written before 2026-12-01."""

_TASK = dict.fromkeys(("layer", "core", "start", "cycles"), int)
_REGION = {"name": str, "address": int, "size": int}
_BUFFER = {**_REGION, "kind": str, "first": int, "last": int, "used": list}
_OURS = ("number", "short")
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("cycles", "macs", "tasks", "bytes_read", "bytes_written", "core_cycles", "peak"), int),
    **dict.fromkeys(("itemsize", "slots", "loaded"), int),
    **dict.fromkeys(("formula_npu", "formula_ddr", "formula_cycles"), int),
    **dict.fromkeys(("utilisation", "mac_busy", "host_seconds"), (int, float)),
    **dict.fromkeys(("spent", "counters", "read_by", "written_by"), dict),
    **dict.fromkeys(("cores", "input_shape", "output_shape"), list),
    **dict.fromkeys(("target", "bound"), str),
}
