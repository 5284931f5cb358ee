"""The memory of the engines alone, for cores that are simulated elsewhere: pins in, pins out."""

from __future__ import annotations

import ctypes as ct
import hashlib
from pathlib import Path
from typing import Any

from rkcosim.engines import cache, toolchain
from rkcosim.engines import library as lib
from rkcosim.engines.build import harness_folder
from rkcosim.engines.cache import Progress
from rkcosim.engines.complaints import read_log
from rkcosim.engines.diagnostics import Fault, make_fault
from rkcosim.engines.library import DramConfig
from rkcosim.engines.memory import DeviceMemory
from rkcosim.engines.protocol import EngineError
from rkcosim.engines.records import CoreCounters, core_counters, open_bursts

_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared")
_NAME = "dram.so"
_NEVER = (1 << 64) - 1
_P, _I, _U64 = ct.c_void_p, ct.c_int, ct.c_uint64
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "dram_abi": (_U64, []),
    "dram_create": (_P, [ct.POINTER(lib.DramConfigC), _P, _I]),
    "dram_destroy": (None, [_P]),
    "dram_map": (None, [_P, _U64, _U64, _I]),
    "dram_edge": (None, [_P, _U64, _I, ct.POINTER(lib.CoreIn), ct.POINTER(lib.CoreOut)]),
    "dram_reset": (None, [_P, _I, ct.POINTER(lib.CoreIn)]),
    "dram_wakes": (_U64, [_P, _I, ct.POINTER(lib.CoreIn)]),
    "dram_faults": (_U64, [_P, _U64, ct.POINTER(lib.FaultEventC), _U64]),
    "dram_counters": (None, [_P, _I, ct.POINTER(lib.CountersC)]),
    "dram_open_bursts": (None, [_P, _I, ct.POINTER(ct.c_uint32)]),
}


def _library(progress: Progress) -> Path:
    """Return the compiled library, from the cache or built now; raises BuildError."""
    tool, source = toolchain.compiler(), harness_folder() / "memory" / "dram_api.cpp"
    digest = hashlib.sha256(f"{tool.version} {_FLAGS}".encode())
    for path in (source, *(harness_folder() / name for name in ("dram.h", "port.h", "pins.h"))):
        digest.update(path.read_bytes())
    key = f"dram-{digest.hexdigest()[:24]}"
    arguments = [*_FLAGS, str(source), "-o", _NAME]
    return cache.built(
        key,
        _NAME,
        "memory model",
        lambda work: tool.run(arguments, work),
        progress,
        toolchain.check_loads,
    )


class Dram:
    """AXI4 memory of one to three cores, with the timing of the engines (cosim/engines/harness/dram.h).

    Parameters
    ----------
    config : timing, default `DramConfig()`.
    cores : number of ports, 1..3.
    progress : called with one line for each step that takes long.

    Members
    -------
    memory : the mapped ranges; bursts outside of them end in DECERR.
    pins_in : by core, the outputs of the memory (`m_` members of `CoreIn`); they change at `edge` only.
    pins_out : by core, the inputs of the memory (`m_` members of `CoreOut`); to be set before `edge`.

    Raises
    ------
    BuildError
        if the library cannot be compiled; the message says what to install.
    """

    def __init__(
        self, config: DramConfig | None = None, cores: int = 1, progress: Progress = cache.say
    ) -> None:
        self._lib = lib.load_functions(_library(progress), _PROTOTYPES)
        sizes = {lib.CoreIn: 0, lib.CoreOut: 8, lib.CountersC: 16, lib.DramConfigC: 32}
        if self._lib.dram_abi() != sum(ct.sizeof(struct) << bits for struct, bits in sizes.items()):
            raise EngineError("the built memory model does not fit this version of the package")
        self.config, self.cores = config or DramConfig(), cores
        self._handle: int | None = None
        self.memory = DeviceMemory(self._mapping_changed)
        settings = lib.DramConfigC.of(self.config)
        self._handle = self._lib.dram_create(ct.byref(settings), self.memory.address, cores)
        if self._handle is None:
            raise ValueError(f"cores must be 1..{lib.MAX_CORES}, not {cores}")
        self.pins_in, self.pins_out = (lib.CoreIn * cores)(), (lib.CoreOut * cores)()
        for core in range(cores):
            self.reset(core)

    def edge(self, now: int) -> None:
        """Perform the clock edge that ends cycle `now`.

        It may be skipped if it changes nothing (see `wakes`).
        """
        self._lib.dram_edge(self._handle, now, self.cores, self.pins_in, self.pins_out)

    def reset(self, core: int) -> None:
        """Write the data that a core has sent and drop its other transfers.

        Call at both ends of its reset.
        """
        self._lib.dram_reset(self._handle, core, ct.byref(self.pins_in[core]))

    def wakes(self, core: int) -> int | None:
        """Return the first cycle whose `edge` changes something if the core does not act.

        None if there is none.
        """
        found = int(self._lib.dram_wakes(self._handle, core, ct.byref(self.pins_in[core])))
        return None if found == _NEVER else found

    def faults(self, first: int = 0) -> list[Fault]:
        """Return the refused accesses from number `first` on, oldest first."""
        raw = read_log(
            lambda at, to, room: self._lib.dram_faults(self._handle, at, to, room), lib.FaultEventC, first
        )
        return [
            make_fault(cycle, core, client, address, kind)
            for cycle, address, core, client, kind, _ in raw.tolist()
        ]

    def counters(self, core: int) -> CoreCounters:
        """Return bytes by AXI client, and numbers of bursts."""
        raw = lib.CountersC()
        self._lib.dram_counters(self._handle, core, ct.byref(raw))
        return core_counters(raw, None, raw.read_requests, raw.write_requests)

    def open_bursts(self, core: int) -> dict[str, int]:
        """Return the number of open bursts by name, as "reads of FEATURE"."""
        raw = (ct.c_uint32 * (lib.READ_IDS + lib.WRITE_IDS))()
        self._lib.dram_open_bursts(self._handle, core, raw)
        return open_bursts(raw)

    def close(self) -> None:
        """Free the model and the address space of its memory."""
        if self._handle is not None:
            self._lib.dram_destroy(self._handle)
            self._handle = None
            self.memory.close()

    def _mapping_changed(self, page: int, pages: int, mapped: bool) -> None:
        if self._handle is not None:
            self._lib.dram_map(self._handle, page, pages, int(mapped))
