"""The two libraries that read waveforms, behind one small interface.

pywellen reads VCD and FST and is fast; vcdvcd is pure Python and reads VCD only. Only this module uses their
interfaces.
"""

from __future__ import annotations

import heapq
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from rkcosim.base.extras import install, missing, needed
from rkcosim.base.processes import end_child
from rkcosim.waves.files import FileFacts, WaveError
from rkcosim.waves.framing import receive, send

Value = int | float | str | None
"""Value of a signal: a number, the text of a text signal, or None if some bits are unknown."""

Changes = list[tuple[int, Value]]
"""Ordered pairs (time, value); time is in the file's units or in cycles."""

LARGE = 1 << 20
"""Size in bytes of a VCD file from which pywellen is preferred."""

STREAMED = 128 << 20
"""Size in bytes of a VCD file from which pywellen scans it for every query and keeps nothing in memory."""

_NOT_BITS = ("real", "realtime", "string")

_RANGE = re.compile(r"\s*\[\d+:\d+\]$")
_BITS = re.compile(r"(.*?)\s*\[(\d+)(?::(\d+))?\]")


def vcd_parser() -> Any:
    """Return the class VCDVCD of the package vcdvcd.

    The import of that package gives SIGPIPE its default action, so that a later write to a closed pipe or
    socket would end the process without a message; this function restores the action.
    """
    before = signal.getsignal(signal.SIGPIPE)
    with needed("vcdvcd", "reading a VCD file", WaveError):
        from vcdvcd import VCDVCD

    if before is not None and signal.getsignal(signal.SIGPIPE) != before:
        signal.signal(signal.SIGPIPE, before)
    return VCDVCD


@dataclass(frozen=True)
class Signal:
    """One name in a waveform.

    Members
    -------
    name : full name with dots.
    width : width in bits (0: a real number or a text).
    reference : identifies the signal; equal for all names of the same signal.
    parts : if the file has the signal under another name or in parts, what it is there, from bit 0 on.
    """

    name: str
    width: int
    reference: str
    parts: tuple[Signal, ...] = ()

    @property
    def scope(self) -> str:
        """Name of the scope that contains it."""
        return self.name.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        """Name inside its scope."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Part:
    """Bits of a signal, or a constant, that are bits of another signal.

    Members
    -------
    source : the signal; None: a constant, `low`.
    low : its lowest bit, or the value of the constant.
    width : number of bits.
    inverted : True if 0 means 1.
    """

    source: Signal | None
    low: int
    width: int
    inverted: bool = False


def joined(parts: Sequence[Part], found: Mapping[str, Changes]) -> Changes:
    """Return the changes of a signal that consists of parts, from bit 0 on.

    Its value is unknown as long as one of the parts is.

    Parameters
    ----------
    found : changes of the parts' sources by reference.
    """
    value, unknown, place = 0, set[int](), 0
    places: list[int] = []
    columns: list[list[tuple[int, int, Value]]] = []
    for number, part in enumerate(parts):
        places.append(place)
        if part.source is None:
            value |= part.low << place
        else:
            unknown.add(number)
            columns.append([(when, number, now) for when, now in found[part.source.reference]])
        place += part.width
    changes: Changes = [(0, value)] if not columns else []
    for when, group in groupby(heapq.merge(*columns, key=itemgetter(0)), key=itemgetter(0)):
        for _, number, now in group:
            if not isinstance(now, int):
                unknown.add(number)
                continue
            unknown.discard(number)
            part, mask = parts[number], (1 << parts[number].width) - 1
            bits = (now >> part.low ^ (mask if part.inverted else 0)) & mask
            value = value & ~(mask << places[number]) | bits << places[number]
        seen = None if unknown else value
        if not changes or changes[-1][1] != seen:
            changes.append((when, seen))
    return changes


def read_joined(
    read: Callable[[Sequence[Signal]], dict[str, Changes]],
    parts: Mapping[str, Sequence[Part]],
    signals: Sequence[Signal],
) -> dict[str, Changes]:
    """Read signals of which those in `parts` (by reference) consist of others."""
    made = {signal.reference: parts[signal.reference] for signal in signals if signal.reference in parts}
    plain = [signal for signal in signals if signal.reference not in parts]
    sources = [part.source for of in made.values() for part in of if part.source is not None]
    every = {signal.reference: signal for signal in (*plain, *sources)}
    found = read(list(every.values())) if every else {}
    return {signal.reference: found[signal.reference] for signal in plain} | {
        reference: joined(of, found) for reference, of in made.items()
    }


class Backend(Protocol):
    """Reads one file."""

    name: str
    unit: Fraction  # seconds
    signals: list[Signal]

    def read(self, signals: Sequence[Signal]) -> dict[str, Changes]:
        """Return the changes of signals by reference, with times in units of the file."""
        ...


def have_pywellen() -> bool:
    """Return whether pywellen is installed."""
    return find_spec("pywellen") is not None


def open_backend(file: Path, facts: FileFacts, name: str = "auto") -> Backend:
    """Choose a library for a file.

    Raises
    ------
    WaveError
        if the file needs pywellen and it is not installed, or the library cannot read the file.
    """
    small = facts.format == "vcd" and file.stat().st_size < LARGE
    if name == "auto":
        name = "vcdvcd" if small or (facts.format == "vcd" and not have_pywellen()) else "pywellen"
    if name == "vcdvcd":
        if facts.format != "vcd":
            raise WaveError(f"{file}: vcdvcd reads VCD only; {install('waves')}")
        with _readable(file, facts):
            return _Checked(VcdVcdBackend(file, facts), file, facts)
    if name != "pywellen":
        raise WaveError(f"no reader '{name}': auto, pywellen or vcdvcd")
    if not have_pywellen():
        raise WaveError(f"{file}: {missing('pywellen', 'reading FST')}, or trace to VCD")
    with _readable(file, facts):
        return _Checked(_Process(file, facts), file, facts)


class _Checked:
    """A backend whose errors are all WaveError."""

    def __init__(self, backend: Backend, file: Path, facts: FileFacts) -> None:
        self._backend, self._file, self._facts = backend, file, facts
        self.name, self.unit, self.signals = backend.name, backend.unit, backend.signals
        if self.unit <= 0:
            raise WaveError(f"{file}: a time scale of {self.unit} s")

    def read(self, signals: Sequence[Signal]) -> dict[str, Changes]:
        """See `Backend`; raises WaveError for everything that the library raises."""
        with _readable(self._file, self._facts):
            return self._backend.read(signals)


@contextmanager
def _readable(file: Path, facts: FileFacts) -> Iterator[None]:
    """Turn everything that a library raises for a damaged file into WaveError, one line.

    vcdvcd checks little and raises any exception.
    """
    try:
        yield
    except WaveError:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: " + " ".join(str(error).split())
        raise WaveError(f"{file}: not a readable {facts.format.upper()} file ({text})") from error


class VcdVcdBackend:
    """Reads VCD through vcdvcd."""

    name = "vcdvcd"

    def __init__(self, file: Path, facts: FileFacts) -> None:
        self._file = file
        self._cut = bool(facts.cut)
        header = self._parse(only_sigs=True)
        if "timescale" not in header.timescale:
            raise WaveError(f"{file}: no time scale")
        self.unit = Fraction(header.timescale["timescale"])
        self._full = {ident: name for name, ident in header.references_to_ids.items()}
        self._width = {
            ident: 0 if header.data[ident].var_type in _NOT_BITS else int(header.data[ident].size)
            for ident in self._full
        }
        self._texts = {ident for ident in self._full if header.data[ident].var_type == "string"}
        self._parts: dict[str, list[Part]] = {}
        self.signals = list(self._whole(header.references_to_ids))

    def _whole(self, names: Mapping[str, str]) -> Iterator[Signal]:
        """Yield all signals; those that the file declares bit by bit, or in ranges, become one."""
        pieces: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for name, ident in names.items():
            if match := _BITS.fullmatch(name):
                high, low = int(match[2]), int(match[3] or match[2])
                pieces[match[1]].append((low, high, ident))
        whole: dict[str, list[Part]] = {}
        for base, items in pieces.items():
            items.sort()
            ends = [0, *(high + 1 for _, high, _ in items)]
            if len(items) > 1 and base not in names and [low for low, *_ in items] == ends[:-1]:
                whole[base] = [
                    Part(Signal(base, high + 1 - low, ident), 0, high + 1 - low) for low, high, ident in items
                ]
        for name, ident in names.items():
            match = _BITS.fullmatch(name)
            base = match[1] if match else ""
            if base not in whole:
                yield Signal(_RANGE.sub("", name), self._width[ident], ident)
            elif (reference := f"parts of {base}") not in self._parts:  # no identifier has a space
                self._parts[reference] = whole[base]
                yield Signal(base, sum(part.width for part in whole[base]), reference)

    def read(self, signals: Sequence[Signal]) -> dict[str, Changes]:
        return read_joined(self._read_plain, self._parts, signals)

    def _read_plain(self, signals: Sequence[Signal]) -> dict[str, Changes]:
        wanted = {signal.reference for signal in signals}
        found = self._read_texts(wanted & self._texts)
        numbers = wanted - self._texts
        if numbers:
            data = self._parse(signals=[self._full[r] for r in numbers], store_tvs=True).data
            found |= {r: [(when, self._value(r, text)) for when, text in data[r].tv] for r in numbers}
        return found

    def _read_texts(self, wanted: set[str]) -> dict[str, Changes]:
        """Return values of text variables (`sTEXT CODE`, an extension by GTKWave), which vcdvcd skips."""
        found: dict[str, Changes] = {reference: [] for reference in wanted}
        if not wanted:
            return found
        when = 0
        with self._file.open() as lines:
            for line in lines:
                if line.startswith("#"):
                    when = int(line[1:].split()[0])
                elif line.startswith("s") and line.endswith("\n"):
                    text, _, reference = line[1:].strip().rpartition(" ")
                    if reference in found:
                        found[reference].append((when, text))
        return found

    def _parse(self, **options: Any) -> Any:
        VCDVCD = vcd_parser()
        try:
            if self._cut or self._file.stat().st_size < LARGE:
                text = self._file.read_text()
                return VCDVCD(vcd_string=text[: text.rindex("\n") + 1], **options)
            return VCDVCD(str(self._file), **options)
        except Exception as error:  # the parser does no checks, so it may raise anything
            what = f"{type(error).__name__}: {error}"
            raise WaveError(f"{self._file}: not a readable VCD file ({what})") from error

    def _value(self, reference: str, text: str) -> Value:
        if not self._width[reference]:
            try:
                return float(text)
            except ValueError:
                return text
        return int(text, 2) if set(text) <= {"0", "1"} else None


class WellenBackend:
    """Reads VCD and FST through pywellen: a signal is read when it is first requested.

    A large VCD file is scanned for every query, so that only the requested signals are in memory. This class
    works in a process of its own (`rkcosim.waves.backend_worker`), because the library can end its process.
    """

    def __init__(self, file: Path, form: str) -> None:
        import pywellen

        self._streamed = form == "vcd" and file.stat().st_size >= STREAMED
        self._wave: Any = pywellen.Waveform(str(file), stream_only=self._streamed)
        scale = self._wave.timescale
        exponent = scale.unit.to_exponent() if scale is not None else None
        if exponent is None:
            raise WaveError(f"{file}: no time scale")
        self.unit = Fraction(scale.factor) * Fraction(10) ** exponent
        self._vars: dict[str, Any] = {}
        self.signals = []
        for var in self._wave.all_vars():
            reference = str(var.signal_id)
            self._vars.setdefault(reference, var)
            self.signals.append(Signal(_RANGE.sub("", var.full_name), var.bitwidth or 0, reference))

    def read_references(self, references: Sequence[str]) -> dict[str, Changes]:
        """Return the changes of signals by reference."""
        wanted = {reference: self._vars[reference] for reference in references}
        found: dict[str, Changes] = {reference: [] for reference in wanted}

        def take(when: int, reference: object, value: int | float | str) -> None:
            found[str(reference)].append((when, self._value(value, str(reference))))

        if self._streamed:
            self._wave.stream_changes(take, list(wanted.values()))
        else:
            for reference, var in wanted.items():
                for when, value in var.signal:
                    take(when, reference, value)
        return found

    def _value(self, value: int | float | str, reference: str) -> Value:
        # pywellen returns bits that are not all 0 or 1 as a text.
        return None if isinstance(value, str) and self._vars[reference].bitwidth else value


LEAST_SPACE, SPACE_PER_BYTE = 4 << 30, 64
"""Address space of a reader's process: a fixed part, and bytes for each byte of the file."""

LEAST_SECONDS, BYTES_PER_SECOND = 30.0, 1 << 20
"""Time of a reader's process for one answer: a fixed part, and what the size of the file adds."""


class _Process:
    """`WellenBackend` in a process with limits of memory and time, which ends with this object."""

    name = "pywellen"

    def __init__(self, file: Path, facts: FileFacts) -> None:
        size = file.stat().st_size
        self._file, self._form = file, facts.format
        self._seconds = LEAST_SECONDS + size / BYTES_PER_SECOND
        words = [sys.executable, "-P", "-m", "rkcosim.waves.backend_worker"]
        self._child = subprocess.Popen(
            [*words, str(file.absolute()), facts.format, str(LEAST_SPACE + SPACE_PER_BYTE * size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._end = weakref.finalize(self, end_child, self._child)
        numerator, denominator, signals = self._answer()
        self.unit = Fraction(numerator, denominator)
        self.signals = [Signal(*item) for item in signals]

    def read(self, signals: Sequence[Signal]) -> dict[str, Changes]:
        assert self._child.stdin is not None
        try:
            send(cast(BinaryIO, self._child.stdin), sorted({signal.reference for signal in signals}))
        except BrokenPipeError:
            raise self._died() from None
        found: dict[str, Changes] = self._answer()
        return found

    def _answer(self) -> Any:
        assert self._child.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._child.kill()

        timer = threading.Timer(self._seconds, stop)
        timer.start()
        try:
            kind, value = receive(cast(BinaryIO, self._child.stdout))
        except EOFError:
            if late.is_set():
                self._end()
                raise self._unreadable(f"it takes more than {self._seconds:.0f} s") from None
            raise self._died() from None
        except BaseException:
            self._end()
            raise
        finally:
            timer.cancel()
        if kind == "right":
            return value
        if kind == "WaveError":
            raise WaveError(value)
        raise self._unreadable(value if kind == "RuntimeError" else f"{kind}: {value}")

    def _died(self) -> WaveError:
        code = self._end()
        return self._unreadable(
            "its reader needs too much memory" if code == -signal.SIGABRT else f"its reader ends with {code}"
        )

    def _unreadable(self, why: str) -> WaveError:
        return WaveError(f"{self._file}: not a readable {self._form.upper()} file ({why})")
