"""An engine's waveform: opened before the run, ended by itself or with the engine."""

from __future__ import annotations

import ctypes as ct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from cosim import progress
from cosim.engines import library as lib
from cosim.engines.errors import WaveformError
from cosim.engines.traces import writing as tracing
from cosim.engines.traces.writing import TraceResult
from waves.spec import TraceSpec, When


class EngineTrace:
    """The waveform and the layers of one engine.

    Parameters
    ----------
    library, handle : functions that give the library in use and its system.
    cores : number of cores.
    events : names of the bits of `events`.
    raw_names : whether the library's names are those of the design (CXXRTL) or already placed.
    """

    def __init__(
        self,
        library: Callable[[], ct.CDLL],
        handle: Callable[[], int],
        cores: int,
        events: Sequence[str],
        raw_names: bool,
    ) -> None:
        self._library, self._handle = library, handle
        self._cores, self._events, self._raw = cores, events, raw_names
        self._spec: TraceSpec | None = None
        self._last: TraceResult | None = None
        self._layers: dict[str, None] = {}  # names, in order

    def start(self, spec: TraceSpec) -> None:
        """Let the library write a waveform.

        Raises
        ------
        SpecError
            for a scope that does not exist.
        WaveformError
            without a writer of the format, or for a moment that no engine knows.
        """
        library, handle = self._library(), self._handle()
        fst = tracing.fst_functions() if spec.format == "fst" else None
        moments = [tracing.moment(when, self._layer(when)) for when in (spec.start, spec.stop)]
        names = tracing.parse_names(library.rk_trace_names(handle).decode(), self._raw)
        wanted = tracing.chosen(tracing.variables(names, self._cores, self._events), spec.scopes)
        lines = "\n".join(f"{v.path} {v.source}" for v in wanted)
        try:
            spec.path.unlink(missing_ok=True)
            with spec.path.open("wb"):
                pass
            spec.path.unlink()
        except OSError as error:
            raise WaveformError(
                f"cannot write a waveform to {spec.path}: {error.strerror or error}"
            ) from error
        order = tracing.order(spec, *moments)
        if library.rk_trace(handle, str(spec.path).encode(), fst, lines.encode(), ct.byref(order)):
            raise WaveformError(
                f"the library does not take the waveform's declarations ({len(wanted)} lines)"
            )
        self._spec, self._last = spec, None

    def _layer(self, when: object) -> int:
        name = getattr(when, "layer", "")
        return self._library().rk_layer_number(self._handle(), name.encode()) if name else 0

    def annotate(self, core: int, layers: Sequence[tuple[int, int, str]]) -> None:
        """Say which tasks of a core's next job are which layer's: (first task, number of tasks, name)."""
        numbered = (lib.LayerTasksC * len(layers))()
        for place, (first, count, name) in enumerate(layers):
            number = self._library().rk_layer_number(self._handle(), name.encode())
            numbered[place] = lib.LayerTasksC(first, count, number)
        self._library().rk_announce(self._handle(), core, numbered, len(layers))
        self._layers.update(dict.fromkeys(name for _, _, name in layers))

    def result(self) -> TraceResult | None:
        """What became of the waveform so far; None if there is none."""
        if self._spec is None or self._last is not None:
            return self._last
        status = lib.TraceStatusC()
        self._library().rk_trace_status(self._handle(), ct.byref(status))
        return tracing.result(self._spec, status, self._layers)

    def error(self) -> None:
        """Something went wrong outside the simulation: the moment `error`."""
        if self._spec is not None and self._last is None:
            self._library().rk_error(self._handle())

    def end(self) -> None:
        """End the file."""
        if self._spec is not None and self._last is None:
            self._library().rk_trace_close(self._handle())
            self._last = self.result()
            if self._last is not None:
                progress.say(self._last.text)


class TracedEngine(ABC):
    """What an engine has for waveforms: the base of `SocEngine`, whose members it uses."""

    name: str
    tracing: EngineTrace
    _source: Any
    _traced: bool
    _touched: bool
    _lib: ct.CDLL

    @abstractmethod
    def _opened(self) -> int: ...
    @abstractmethod
    def _open(self, traced: bool) -> None: ...
    @abstractmethod
    def _close_handle(self) -> None: ...
    @abstractmethod
    def _core(self, core: int) -> int: ...
    @abstractmethod
    def _fetch(self, function: str, struct: type[Any], first: int = 0) -> Iterable[Any]: ...

    def trace(self, what: TraceSpec | str | Path, start: int = 0, stop: int | None = None) -> None:
        """Write a waveform, one nanosecond a cycle: a `TraceSpec`, or a file and the cycles up to `stop`.

        Loads the traced build, so call it before the first access, or open with `traced=True`.

        Raises
        ------
        WaveformError
            if it comes too late or cannot be written.
        SpecError
            for scopes that do not exist.
        """
        if not isinstance(what, TraceSpec):
            if stop is not None and stop <= start:
                raise ValueError(f"trace: stop ({stop}) must be after start ({start})")
            end = When.parse(stop) if stop is not None else None
            what = TraceSpec(Path(what), start=When.parse(start), stop=end)
        if self._source.trace is not None:
            self._trace_outside(what, self._source.trace)
            return
        if not self._traced:
            if self._touched:
                raise WaveformError(
                    "trace() must come before the first access, or open the engine with traced=True"
                )
            self._close_handle()
            self._open(True)
        self.tracing.start(what)

    def _trace_outside(self, spec: TraceSpec, begin: Callable[[str], None]) -> None:
        """Let cores outside the library write a waveform of their own."""
        whole = spec.start == When.parse(0) and spec.stop is None and not spec.scopes and not spec.limit
        if self._touched or not whole or spec.format != "vcd":
            raise WaveformError(
                f"the engine {self.name} traces whole runs only, as VCD: trace(path) before the first access"
            )
        self._close_handle()
        begin(str(spec.path))
        self._open(False)

    def trace_bytes(self) -> int | None:
        """Size of the waveform so far, None without one."""
        found = self.tracing.result()
        return found.bytes if found else None

    def trace_result(self) -> TraceResult | None:
        """What became of the waveform, None without one; final after `close`."""
        return self.tracing.result()

    def annotate(self, core: int, layers: Sequence[tuple[int, int, str]]) -> None:
        """Say which tasks of a core's next job are which layer's: (first task, number of tasks, name)."""
        self._opened()
        self.tracing.annotate(self._core(core), layers)

    def watch_memory(self, address: int) -> None:
        """Note from now on when the cores write the byte at `address` (see `memory_writes`)."""
        self._lib.rk_watch_memory(self._opened(), address)

    def memory_writes(self) -> list[int]:
        """Cycles in which the byte of `watch_memory` was written, oldest first."""
        return list(self._fetch("rk_memory_writes", ct.c_uint64))

    def mark_error(self) -> None:
        """Tell a waveform that waits for an error of one that only the host sees (a time-out)."""
        self._opened()
        self.tracing.error()
