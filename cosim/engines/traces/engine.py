"""An engine's waveform: opened before the run, ended by itself or when the engine closes."""

from __future__ import annotations

import ctypes as ct
import errno
import hashlib
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rkcosim.base import progress
from rkcosim.engines import library as lib
from rkcosim.engines.protocol import WaveformError
from rkcosim.engines.records import EVENT_NAMES
from rkcosim.engines.system import System
from rkcosim.engines.traces import writing as tracing
from rkcosim.engines.traces.writing import TraceResult
from rkcosim.spec.regs.events import EVENTS
from rkcosim.waves.spec import TraceSpec, When


class EngineTrace:
    """The waveform and the layers of one engine.

    Parameters
    ----------
    system : the engine's system.
    refused : called if a waveform cannot be written as requested.
    """

    def __init__(self, system: System, refused: Callable[[], None]) -> None:
        self._system, self._refused = system, refused
        self._spec: TraceSpec | None = None
        self._last: TraceResult | None = None
        self._layers: dict[str, None] = {}  # names, in order
        self._claim: socket.socket | None = None
        self._everything: list[tracing.Variable] = []
        self._read: dict[tuple[str, ...], tuple[list[str], list[int], bytes]] = {}

    def values(self, scopes: Sequence[str]) -> dict[str, int]:
        """Return the values of signals in the present cycle, by the names that they have in a waveform.

        Parameters
        ----------
        scopes : globs of scopes or signals below a core, as for a waveform.

        Raises
        ------
        SpecError
            for a scope that does not exist.
        WaveformError
            for an engine that was not opened with `traced=True`, and while it writes a waveform.
        """
        if not self._system.traced:
            raise WaveformError("values of signals need the traced build: open the engine with traced=True")
        key = tuple(scopes)
        if key not in self._read:
            if not self._everything:
                self._everything = [v for v in self._variables() if v.source[0] in "mios"]
            wanted = [v for v in tracing.chosen(self._everything, scopes) if not v.path.startswith("npu.")]
            widths = [-(-int(v.source.rsplit(" ", 1)[1]) // 32) for v in wanted]
            declared = "\n".join(f"{v.path} {v.source}" for v in wanted)
            self._read[key] = [v.path for v in wanted], widths, declared.encode()
        names, words, lines = self._read[key]
        values = np.zeros(sum(words), np.uint32)
        count = self._system.lib.rk_values(
            self._system.opened(),
            lines,
            values.ctypes.data_as(ct.POINTER(ct.c_uint32)),
            values.size,
        )
        if count != values.size:
            raise WaveformError("the values of signals cannot be read while a waveform is written")
        places = np.cumsum([0, *words]).tolist()
        return {
            name: int.from_bytes(values[at:end].tobytes(), "little")
            for name, at, end in zip(names, places, places[1:], strict=False)
        }

    def _variables(self) -> list[tracing.Variable]:
        """Return everything that the library can trace."""
        names = tracing.parse_names(
            self._system.lib.rk_trace_names(self._system.opened()).decode(), self._system.source.raw_names
        )
        return tracing.variables(names, self._system.cores, EVENT_NAMES[: len(EVENTS)])

    def trace(self, what: TraceSpec | str | Path, start: int = 0, stop: int | None = None) -> None:
        """Write a waveform, one nanosecond per cycle: a `TraceSpec`, or a file and the cycles up to `stop`.

        This loads the traced build, so it must be called before the first access, unless the engine was
        opened with `traced=True`.

        Raises
        ------
        WaveformError
            if it is called too late or the file cannot be written.
        SpecError
            for scopes that do not exist.
        """
        if not isinstance(what, TraceSpec):
            if stop is not None and stop <= start:
                raise ValueError(f"trace: stop ({stop}) must be after start ({start})")
            end = When.parse(stop) if stop is not None else None
            what = TraceSpec(Path(what), start=When.parse(start), stop=end)
        if self._system.source.trace is not None:
            self._trace_outside(what, self._system.source.trace)
            return
        if not self._system.traced:
            if self._system.touched:
                raise WaveformError(
                    "trace() must come before the first access, or open the engine with traced=True"
                )
            self._system.unload()
            self._system.load(True)
        try:
            self.start(what)
        except ValueError:  # the request cannot be met, so no part of it is written
            self._refused()
            raise

    def _trace_outside(self, spec: TraceSpec, begin: Callable[[str], None]) -> None:
        """Let cores outside of the library write their waveforms."""
        whole = spec.start == When.parse(0) and spec.stop is None and not spec.scopes and not spec.limit
        if self._system.touched or not whole or spec.format != "vcd":
            raise WaveformError(
                f"the engine {self._system.name} traces whole runs only, as VCD: "
                "trace(path) before the first access"
            )
        self._claim_file(spec.path)
        self._system.unload()
        begin(str(spec.path))
        self._system.load(False)

    def start(self, spec: TraceSpec) -> None:
        """Let the library write a waveform.

        Raises
        ------
        SpecError
            for a scope that does not exist.
        WaveformError
            without a writer of the format, or for a moment that no engine detects.
        """
        library, handle = self._system.lib, self._system.opened()
        fst = tracing.fst_functions() if spec.format == "fst" else None
        moments = [tracing.moment(when, self._layer(when)) for when in (spec.start, spec.stop)]
        wanted = tracing.chosen(self._variables(), spec.scopes)
        lines = "\n".join(f"{v.path} {v.source}" for v in wanted)
        self._claim_file(spec.path)
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
                f"the library does not accept the waveform's declarations ({len(wanted)} lines)"
            )
        self._spec, self._last = spec, None

    def _claim_file(self, path: Path) -> None:
        """Keep other processes from writing the same waveform, which is written during the run.

        An address of a socket without a file says so: it is free again when this process ends in any way.

        Raises
        ------
        WaveformError
            if another process, or another engine of this one, writes the file.
        """
        self._free_file()
        claim = socket.socket(socket.AF_UNIX)
        name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
        try:
            claim.bind(f"\0rkcosim waveform {name[:40]}".encode())
        except OSError as error:
            claim.close()
            if error.errno == errno.EADDRINUSE:
                raise WaveformError(f"{path}: another run is writing this waveform") from error
        else:
            self._claim = claim

    def _free_file(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def _layer(self, when: object) -> int:
        name = getattr(when, "layer", "")
        return self._system.lib.rk_layer_number(self._system.opened(), name.encode()) if name else 0

    def annotate(self, core: int, layers: Sequence[tuple[int, int, str]]) -> None:
        """Assign tasks of a core's next job to layers: (first task, number of tasks, name)."""
        self._system.core_number(core)
        numbered = (lib.LayerTasksC * len(layers))()
        for place, (first, count, name) in enumerate(layers):
            number = self._system.lib.rk_layer_number(self._system.opened(), name.encode())
            numbered[place] = lib.LayerTasksC(first, count, number)
        self._system.lib.rk_announce(self._system.opened(), core, numbered, len(layers))
        self._layers.update(dict.fromkeys(name for _, _, name in layers))

    def result(self) -> TraceResult | None:
        """Return the state of the waveform so far; None without one."""
        if self._spec is None or self._last is not None:
            return self._last
        status = lib.TraceStatusC()
        self._system.lib.rk_trace_status(self._system.opened(), ct.byref(status))
        return tracing.result(self._spec, status, self._layers)

    def error(self) -> None:
        """Report an error outside of the simulation: the moment `error`."""
        if self._spec is not None and self._last is None:
            self._system.lib.rk_error(self._system.opened())

    def end(self) -> None:
        """End the file."""
        if self._spec is not None and self._last is None:
            self._system.lib.rk_trace_close(self._system.opened())
            self._last = self.result()
            if self._last is not None:
                progress.say(self._last.text)
        self._free_file()
