"""What to trace: the file, the scopes, the start and the end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from rkcosim.base import Error
from rkcosim.spec.regs import registers

FORMATS = ("vcd", "fst")

KINDS = ("cycle", "task", "layer", "write", "error", "mismatch")

BEFORE = 2000
"""Default number of cycles recorded before an error or mismatch."""

AFTER = 200
"""Number of cycles that a waveform continues after an error or mismatch that started it."""

TASKS = "tasks"
"""Scope that is not part of the design: pins, interrupt, counters, and every register field."""


class SpecError(Error, ValueError):
    """A trace cannot be made as requested; the message names the problem."""


@dataclass(frozen=True)
class When:
    """A moment of a run.

    Members
    -------
    kind : one of `KINDS`.
    text : the text that was parsed.
    cycle : for kind "cycle".
    task, job : for kind "task": index in its job, and the number of the kick (from 0, over all cores), None
        for the first job with such a task. As a start it means the task's start, as an end its end.
    layer : for kind "layer": the name; from the start of its first task to the end of its last one.
    offset, mask, value : for kind "write": the register's offset in the core; a write counts if its word has
        `value` in the bits of `mask` (0: any value).
    """

    kind: str
    text: str
    cycle: int = 0
    task: int = 0
    job: int | None = None
    layer: str = ""
    offset: int = 0
    mask: int = 0
    value: int = 0

    @classmethod
    def parse(cls, text: str | int) -> When:
        """Parse a moment.

        It is a cycle number, `task:N`, `task:N@J`, `layer:NAME`, `write:BLOCK.REGISTER` with `=VALUE` or
        `.FIELD=VALUE`, `error` or `mismatch`.

        Raises
        ------
        SpecError
            describes the error in the text.
        """
        text = str(text).strip()
        kind, colon, rest = text.partition(":")
        if re.fullmatch(r"[\d_,]+", text):
            return cls("cycle", text, cycle=int(text.replace(",", "")))
        if text in ("error", "mismatch"):
            return cls(text, text)
        if kind == "cycle" and re.fullmatch(r"\d+", rest):
            return cls("cycle", text, cycle=int(rest))
        if kind == "task" and colon:
            found = re.fullmatch(r"(\d+)(?:@(\d+))?", rest)
            if found is None:
                raise SpecError(f"'{text}': task:N or task:N@JOB, with numbers from 0")
            return cls("task", text, task=int(found[1]), job=None if found[2] is None else int(found[2]))
        if kind == "layer" and colon:
            if not rest:
                raise SpecError(f"'{text}': layer: needs the name of a layer (rkcosim compile lists them)")
            return cls("layer", text, layer=rest)
        if kind == "write" and colon:
            return cls._write(text, rest)
        raise SpecError(
            f"'{text}' is not a moment of a run; use a cycle, task:N, task:N@JOB, layer:NAME, "
            "write:BLOCK.REGISTER, write:BLOCK.REGISTER=VALUE, write:BLOCK.REGISTER.FIELD=VALUE, error or "
            "mismatch"
        )

    @classmethod
    def _write(cls, text: str, rest: str) -> When:
        place, equals, value = rest.partition("=")
        names = place.strip().split(".")
        if not 2 <= len(names) <= 3:
            raise SpecError(f"'{text}': write:BLOCK.REGISTER may be followed by =VALUE or .FIELD=VALUE")
        try:
            register = registers()[names[0]][names[1]]
            fields = register.fields
            chosen = fields[names[2]] if len(names) == 3 else None
        except KeyError as error:
            raise SpecError(f"'{text}': {error.args[0]}") from error
        if chosen is not None and not equals:
            raise SpecError(f"'{text}': a field needs a value: {place}=VALUE")
        if not equals:
            return cls("write", text, offset=register.offset)
        value = value.strip()
        try:
            number: int | str = int(value, 0)
        except ValueError:
            number = value
        if chosen is not None:
            try:
                word = register.encode(**{chosen.name: number})
            except ValueError as error:
                raise SpecError(f"'{text}': {error}") from error
            return cls("write", text, offset=register.offset, mask=chosen.mask, value=word)
        if isinstance(number, str) or not 0 <= number < 1 << 32:
            raise SpecError(f"'{text}': '{value}' is not a 32-bit number")
        return cls("write", text, offset=register.offset, mask=(1 << 32) - 1, value=number)

    @property
    def keeps_before(self) -> bool:
        """Whether the cycles before the moment are of interest."""
        return self.kind in ("error", "mismatch")


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}


def parse_size(text: str) -> int:
    """Parse a number of bytes, optionally with k, M, G, Ki, Mi or Gi after it (and B).

    Raises
    ------
    SpecError
        if it is not a size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMG]i?)?B?", text.strip())
    if found is None:
        raise SpecError(f"'{text}' is not a size: give a number of bytes, optionally with k, M or G, as 500M")
    size = int(float(found[1]) * _UNITS[(found[2] or "").upper()])
    if size < 4096:
        raise SpecError(f"'{text}': a waveform needs at least 4096 bytes")
    return size


def _start() -> When:
    return When("cycle", "0")


@dataclass(frozen=True)
class TraceSpec:
    """A waveform to write.

    Parameters
    ----------
    path : the file.
    format : "vcd" or "fst"; "": from the file's ending.
    scopes : globs of scopes or signals, "core0.CNA", "core?.DPU*", "*.registers", or the group "tasks"; none:
        everything.
    start : when to begin.
    stop : when to end (a cycle is the first one that is not traced); None: with the run, or `AFTER` cycles
        after an error or mismatch that started the waveform.
    before : number of cycles recorded before the start; None: `BEFORE` for an error or mismatch, else 0.
    limit : size in bytes at which the waveform ends (the run continues); None: no limit.

    Raises
    ------
    SpecError
        for values that exclude each other, or an unknown ending without `format`.
    """

    path: Path
    format: str = ""
    scopes: tuple[str, ...] = ()
    start: When = field(default_factory=_start)
    stop: When | None = None
    before: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        object.__setattr__(self, "scopes", tuple(self.scopes))
        if not self.format:
            ending = self.path.suffix.lower()
            if ending.removeprefix(".") not in FORMATS:
                raise SpecError(
                    f"{self.path}: the ending '{ending}' is not that of a waveform; name the file .vcd or "
                    ".fst, or give --format vcd or --format fst"
                )
            object.__setattr__(self, "format", ending.removeprefix("."))
        if self.format not in FORMATS:
            raise SpecError(f"the format of a waveform is {' or '.join(FORMATS)}, not '{self.format}'")
        if self.before is None:
            object.__setattr__(self, "before", BEFORE if self.start.keeps_before else 0)
        assert self.before is not None
        if not 0 <= self.before <= 1 << 24:
            raise SpecError(f"before: 0 to {1 << 24} cycles are kept, not {self.before}")
        if self.before and self.start.kind == "cycle":
            raise SpecError(
                "before: needs a start at a task, layer, write, error or mismatch; from cycle "
                f"{self.start.cycle} on, give --from {max(self.start.cycle - self.before, 0)}"
            )
        if self.limit is not None and self.limit < 4096:
            raise SpecError(f"limit: a waveform needs at least 4096 bytes, not {self.limit}")
        if self.stop is None:
            return
        if self.stop.kind == "mismatch":
            raise SpecError("a waveform can begin at a mismatch (with the cycles before it), not end there")
        if self.start.kind == self.stop.kind == "cycle" and self.stop.cycle <= self.start.cycle:
            raise SpecError(
                f"the waveform's end (cycle {self.stop.cycle}) must be after its start ({self.start.cycle})"
            )

    @classmethod
    def of(cls, trace: TraceSpec | str | Path) -> TraceSpec:
        """Return a specification unchanged, or that of a file: everything, for the whole run."""
        return trace if isinstance(trace, TraceSpec) else cls(Path(trace))
