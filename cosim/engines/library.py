"""The C interface of a built library (cosim/engines/harness/pins.h, dram.h, api.cpp) for ctypes."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rkcosim.engines.protocol import BuildError, EngineError
from rkcosim.spec.regs.events import COUNTERS

MAX_CORES = 3
MAX_LOOKAHEAD = 32
"""Longest window in which cores are simulated independently (port.h)."""

READ_IDS = 32
WRITE_IDS = 16
EVENTS = len(COUNTERS)
STATES = 48
LEVELS = 12

NO_JOB = 0xFFFFFFFF
"""Job of a task that no kick started."""

RUN_BOUND, RUN_IRQ, RUN_DIAGNOSTIC, RUN_MODEL_ERROR, RUN_TASK = range(5)
LITE_TIMEOUT, LITE_MODEL_ERROR = 100, 101

_U8, _U16, _U32, _U64 = ct.c_uint8, ct.c_uint16, ct.c_uint32, ct.c_uint64


@dataclass(frozen=True, kw_only=True)
class DramConfig:
    """Timing of DRAM and interconnect; cycles are NPU clocks (1 GHz, so bytes per cycle = GB/s).

    Members
    -------
    peak_bytes_per_cycle : of all cores and both directions ([HW 11], [HW 12.6]: 70 % of 33.8 GB/s).
    efficiency : factor on the peak; 1.0, as 23.65 is the vendor's figure after efficiency.
    core_bytes_per_cycle : of one core, both directions together (fitted to boards, on one core:
        `tools.calibrate`).
    port_bytes_per_cycle : of one core in one direction ([HW 11], inferred: 256-bit bus).
    read_latency, write_latency : cycles from request to first beat, from last beat to response (assumed).
    jitter : additional latency, drawn per request from 0..jitter by `seed`.
    read_outstanding, write_outstanding : maximum of open bursts of one core, 1..255 ([HW 11], measured).
    client_read_outstanding, client_write_outstanding : maximum number of open bursts of one AXI id (assumed:
        no separate limit).
    fault_read, fault_write : the n-th burst (from 1, over all cores) ends in SLVERR; 0 for none.

    Raises
    ------
    ValueError
        for a value out of range; the message names it.
    """

    peak_bytes_per_cycle: float = 23.65
    efficiency: float = 1.0
    core_bytes_per_cycle: float = 11.75
    port_bytes_per_cycle: float = 32.0
    read_latency: int = 120
    write_latency: int = 60
    jitter: int = 0
    read_outstanding: int = 255
    write_outstanding: int = 15
    client_read_outstanding: int = 255
    client_write_outstanding: int = 15
    seed: int = 1
    fault_read: int = 0
    fault_write: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if isinstance(field.default, float):
                if not 0 < value <= 4096:
                    raise ValueError(f"{name} must be above 0 and at most 4096, not {value}")
                continue
            low = 1 if "outstanding" in name or "latency" in name else 0
            most = {"seed": (1 << 63) - 1, "fault_read": (1 << 63) - 1, "fault_write": (1 << 63) - 1}
            high = 255 if "outstanding" in name else most.get(name, 1 << 20)
            if not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"{name} must be {low}..{high}, not {value!r}")

    def bandwidth(self, cores: int = 1) -> float:
        """Return the maximum number of bytes per cycle that `cores` cores move, both directions together."""
        return min(self.peak_bytes_per_cycle * self.efficiency, cores * self.core_bytes_per_cycle)

    def faster(self, times: float) -> DramConfig:
        """Return the same memory with `times` the bandwidth, of all cores and of one core."""
        return replace(
            self,
            peak_bytes_per_cycle=self.peak_bytes_per_cycle * times,
            core_bytes_per_cycle=self.core_bytes_per_cycle * times,
        )

    @property
    def unshared(self) -> DramConfig:
        """Return the same memory as if one core could use its full bandwidth."""
        return replace(self, core_bytes_per_cycle=self.peak_bytes_per_cycle)

    def at_clock(self, gigahertz: float) -> DramConfig:
        """Return this memory, given in cycles of a 1 GHz clock, in cycles of another clock of the NPU.

        The DRAM keeps its clock, so its bandwidth and latencies are constant in time; the core's port runs
        with the core.
        """
        return replace(
            self.faster(1 / gigahertz),
            read_latency=max(round(self.read_latency * gigahertz), 1),
            write_latency=max(round(self.write_latency * gigahertz), 1),
        )

    @property
    def lookahead(self) -> int:
        """Cycles after which the memory sees what a core sends: `lookahead_of` of port.h."""
        cycles = MAX_LOOKAHEAD
        while cycles >= min(self.read_latency, self.write_latency):
            cycles //= 2
        return cycles


class DramConfigC(ct.Structure):
    """`DramConfig` as the library takes it."""

    _fields_ = [
        ("peak_bytes_per_cycle", ct.c_double),
        ("efficiency", ct.c_double),
        ("core_bytes_per_cycle", ct.c_double),
        ("port_bytes_per_cycle", ct.c_double),
        ("read_latency", _U32),
        ("write_latency", _U32),
        ("jitter", _U32),
        ("read_outstanding", _U32),
        ("write_outstanding", _U32),
        ("client_read_outstanding", _U32),
        ("client_write_outstanding", _U32),
        ("pad", _U32),
        ("seed", _U64),
        ("fault_read", _U64),
        ("fault_write", _U64),
    ]

    @classmethod
    def of(cls, config: DramConfig) -> DramConfigC:
        """Return the C form of a configuration."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(config)})


def _members(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class CoreIn(ct.Structure):
    """Inputs of the core.

    Members are named after the ports, with `s_` for `s_axil_` and `m_` for `m_axi_`.
    """

    _fields_ = [
        *_members(_U8, "rst core_index s_awvalid s_wvalid s_wstrb s_bready s_arvalid s_rready"),
        *_members(_U16, "s_awaddr s_araddr"),
        *_members(_U32, "s_wdata"),
        *_members(_U8, "m_arready m_awready m_wready m_rvalid m_rid m_rresp m_rlast"),
        *_members(_U8, "m_bvalid m_bid m_bresp counting options"),
        ("step_answer", _U32),
        ("m_rdata", _U32 * 8),
    ]


class CoreOut(ct.Structure):
    """Outputs of the core after the last clock edge."""

    _fields_ = [
        *_members(_U8, "s_awready s_wready s_bvalid s_bresp s_arready s_rvalid s_rresp"),
        *_members(_U8, "m_arvalid m_arid m_arlen m_arsize m_arburst m_rready"),
        *_members(_U8, "m_awvalid m_awid m_awlen m_awsize m_awburst m_wvalid m_wlast m_bready"),
        *_members(_U8, "irq idle diag_valid diag_code diag_block"),
        *_members(_U8, "watch_valid watch_fetched busy_blocks"),
        ("pad", _U8 * 3),
        *_members(_U16, "diag_register events task_index watch_offset step_report pad3"),
        *_members(_U32, "s_rdata diag_value m_wstrb watch_value"),
        *_members(_U64, "m_araddr m_awaddr"),
        ("m_wdata", _U32 * 8),
        ("activity", _U64),
        ("levels", _U16 * LEVELS),
        *_members(_U16, "macs array_macs"),
        ("pad2", _U16 * 2),
    ]


class CountersC(ct.Structure):
    """`Counters` of pins.h."""

    _fields_ = [
        ("events", _U64 * EVENTS),
        ("bytes_read", _U64 * READ_IDS),
        ("bytes_written", _U64 * WRITE_IDS),
        *_members(_U64, "read_requests write_requests cycles_evaluated"),
    ]


class TaskEventC(ct.Structure):
    """`TaskEvent` of pins.h."""

    _fields_ = [
        ("cycle", _U64),
        *_members(_U32, "core task kind job"),
        ("events", _U64 * EVENTS),
        ("bytes_read", _U64 * 8),
        ("bytes_written", _U64 * 4),
    ]


class DiagnosticEventC(ct.Structure):
    """`DiagnosticEvent` of pins.h."""

    _fields_ = [("cycle", _U64), *_members(_U32, "core code block reg value pad")]


class FaultEventC(ct.Structure):
    """`FaultEvent` of pins.h."""

    _fields_ = [*_members(_U64, "cycle address"), *_members(_U32, "core client kind pad")]


class ProbeEventC(ct.Structure):
    """`ProbeEvent` of pins.h."""

    _fields_ = [
        ("cycle", _U64),
        *_members(_U32, "core kind"),
        ("place", ct.c_int32 * 2),
        ("data", _U32 * 20),
    ]


class RecordConfigC(ct.Structure):
    """`RecordConfig` of events.h."""

    _fields_ = [*_members(_U32, "kinds gap"), *_members(_U64, "first last limit")]


AT_NEVER, AT_CYCLE, AT_TASK, AT_LAYER, AT_WRITE, AT_ERROR = range(6)
"""Kinds of a `Moment` (trace_moments.h)."""

TRACE_OFF, TRACE_WAITS, TRACE_WRITES, TRACE_ENDED, TRACE_FULL, TRACE_FAILED = range(6)
"""States of a waveform (trace.h)."""


class MomentC(ct.Structure):
    """`Moment` of trace_moments.h."""

    _fields_ = [
        *_members(_U32, "kind task"),
        ("job", ct.c_int64),
        ("cycle", _U64),
        *_members(_U32, "offset mask value layer"),
    ]


class LayerTasksC(ct.Structure):
    """`LayerTasks` of trace_moments.h."""

    _fields_ = _members(_U32, "first count name")


class TraceOrderC(ct.Structure):
    """`TraceOrder` of trace.h."""

    _fields_ = [("start", MomentC), ("stop", MomentC), *_members(_U64, "before after limit ring_bytes")]


class TraceStatusC(ct.Structure):
    """`TraceStatus` of trace.h."""

    _fields_ = [*_members(_U64, "bytes first last"), *_members(_U32, "state shortened")]


STEP = ct.CFUNCTYPE(ct.c_int, ct.c_int, ct.POINTER(CoreIn), ct.POINTER(CoreOut))
"""Callback for a core that is simulated elsewhere: (core, pins in, pins out) -> 0, or 1 to stop."""

_P, _I = ct.c_void_p, ct.c_int
_PROTOTYPES: dict[str, tuple[type | None, list[type]]] = {
    "rk_abi": (_U64, []),
    "rk_create": (_P, [_I, ct.POINTER(DramConfigC), _P, STEP]),
    "rk_destroy": (None, [_P]),
    "rk_map": (None, [_P, _U64, _U64, _I]),
    "rk_reset": (None, [_P, _U32, _U32]),
    "rk_write": (_I, [_P, _I, _U32, _U32, _U32]),
    "rk_read": (_I, [_P, _I, _U32, ct.POINTER(_U32), _U32]),
    "rk_run": (_I, [_P, _U64, _U32, _I]),
    "rk_take_diagnostics": (_U64, [_P]),
    "rk_cycle": (_U64, [_P]),
    "rk_failure": (ct.c_char_p, [_P]),
    "rk_irq": (_U32, [_P]),
    "rk_may_sleep": (None, [_P, _I]),
    "rk_options": (None, [_P, _U32]),
    "rk_threads": (None, [_P, _U32, _I]),
    "rk_window": (None, [_P, _U32]),
    "rk_patience": (None, [_P, _U32, _U32]),
    "rk_lookahead": (_U32, [_P]),
    "rk_pins": (None, [_P, _I, ct.POINTER(CoreIn), ct.POINTER(CoreOut)]),
    "rk_counters": (None, [_P, _I, ct.POINTER(CountersC)]),
    "rk_open_bursts": (None, [_P, _I, ct.POINTER(_U32)]),
    "rk_tasks": (_U64, [_P, _U64, ct.POINTER(TaskEventC), _U64]),
    "rk_tasks_gone": (_U64, [_P, ct.POINTER(_U64)]),
    "rk_keep_tasks": (None, [_P, _U64]),
    "rk_diagnostics": (_U64, [_P, _U64, ct.POINTER(DiagnosticEventC), _U64]),
    "rk_faults": (_U64, [_P, _U64, ct.POINTER(FaultEventC), _U64]),
    "rk_probes": (_U64, [_P, _U64, ct.POINTER(ProbeEventC), _U64]),
    "rk_stop_at_tasks": (None, [_P, _I]),
    "rk_save": (_U64, [_P]),
    "rk_saved": (None, [_P]),
    "rk_restore": (_I, [_P, _P, _U64]),
    "rk_note_pages": (None, [_P, _I]),
    "rk_take_pages": (_U64, [_P, _P]),
    "rk_count": (None, [_P, _I, _I, _I, _I]),
    "rk_counts": (_I, [_P, _I, _I, ct.POINTER(_U64)]),
    "rk_record": (None, [_P, ct.POINTER(RecordConfigC)]),
    "rk_kick": (None, [_P, _I]),
    "rk_settle": (_U64, [_P, ct.POINTER(_U64)]),
    "rk_records": (_U64, [_P, _U64, _P, _U64]),
    "rk_trace_names": (ct.c_char_p, [_P]),
    "rk_trace": (_I, [_P, ct.c_char_p, _P, ct.c_char_p, ct.POINTER(TraceOrderC)]),
    "rk_trace_close": (None, [_P]),
    "rk_trace_status": (None, [_P, ct.POINTER(TraceStatusC)]),
    "rk_values": (_U64, [_P, ct.c_char_p, ct.POINTER(_U32), _U64]),
    "rk_layer_number": (_U32, [_P, ct.c_char_p]),
    "rk_announce": (None, [_P, _I, ct.POINTER(LayerTasksC), _U64]),
    "rk_error": (None, [_P]),
    "rk_watch_memory": (None, [_P, _U64]),
    "rk_memory_writes": (_U64, [_P, _U64, ct.POINTER(_U64), _U64]),
}


def load_functions(path: Path, prototypes: Mapping[str, tuple[Any, list[Any]]]) -> ct.CDLL:
    """Load a built library and declare its functions, (result, arguments) by name; raises BuildError."""
    try:
        library = ct.CDLL(str(path))
        for name, (result, arguments) in prototypes.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise BuildError(f"the built model {path} cannot be loaded: {error}") from error
    return library


def load(path: Path) -> ct.CDLL:
    """Load an engine's built library and declare its functions.

    Raises
    ------
    BuildError
        if it does not load.
    EngineError
        if it belongs to another version of this package.
    """
    library = load_functions(path, _PROTOTYPES)
    shift = {CoreIn: 0, CoreOut: 8, CountersC: 16, TaskEventC: 32, DramConfigC: 48}
    expected = sum(ct.sizeof(struct) << bits for struct, bits in shift.items())
    if library.rk_abi() != expected:
        raise EngineError(f"the built model {path} does not fit this version of the package")
    return library
