"""From a `TraceSpec` to the declarations and order that cosim/engines/harness/trace.h takes."""

from __future__ import annotations

import ctypes as ct
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from rkcosim.base.extras import install
from rkcosim.engines import library as lib
from rkcosim.engines.protocol import WaveformError
from rkcosim.engines.traces.names import OP_ENABLE, OTHER_SCOPES, SCOPES, Declaration, is_pin, placed
from rkcosim.spec.regs import registers
from rkcosim.waves.spec import AFTER, TASKS, SpecError, TraceSpec, When

RING_BYTES = 256 << 20
"""Memory for the cycles before the start, in bytes."""

CLOCK = "npu.clk"

_BITS = {
    **dict.fromkeys(["core_index", "s_bresp", "s_rresp", "m_rresp", "m_bresp", "m_arburst", "m_awburst"], 2),
    **dict.fromkeys(["m_arsize", "m_awsize"], 3),
    **dict.fromkeys(["s_wstrb", "m_bid", "m_awid", "diag_block"], 4),
    **dict.fromkeys(["m_rid", "m_arid"], 5),
    **dict.fromkeys(["options", "m_arlen", "m_awlen", "diag_code"], 8),
    "task_index": 12,
    **dict.fromkeys(["s_awaddr", "s_araddr", "diag_register", "watch_offset", "step_report"], 16),
    "step_answer": 18,
    **dict.fromkeys(["s_wdata", "s_rdata", "diag_value", "m_wstrb", "watch_value"], 32),
    **dict.fromkeys(["m_araddr", "m_awaddr"], 40),
    **dict.fromkeys(["m_rdata", "m_wdata"], 256),
}
"""Width of each pin with more than one bit."""

_SCOPES = {"s": "axil", "m": "axi", "diag": "diag", "watch": "watch"}
_PORTS = {"s": "s_axil", "m": "m_axi"}  # prefixes of the core's ports, where the harness has shorter ones
_GROUPED_PINS = ("events", "busy_blocks")


@dataclass(frozen=True)
class Variable:
    """One line of a waveform: `path`, and `source` as trace.h parses it."""

    path: str
    source: str


@dataclass(frozen=True)
class TraceResult:
    """State of a waveform.

    Members
    -------
    path : the file, which exists if `cycles` is not None.
    bytes : its size so far.
    cycles : first and last cycle in it, or None before it has begun.
    writing : True while more will be written.
    text : all of this in one line.
    """

    path: Path
    bytes: int
    cycles: tuple[int, int] | None
    writing: bool
    text: str


def _pins(core: int) -> Iterator[Variable]:
    for letter, struct in (("i", lib.CoreIn), ("o", lib.CoreOut)):
        for name, *_ in struct._fields_:
            prefix, _, rest = name.partition("_")
            if not is_pin(_PORTS.get(prefix, prefix) + name[len(prefix) :]) or name in _GROUPED_PINS:
                continue
            path = f"{_SCOPES[prefix]}.{rest}" if prefix in _SCOPES and rest else name
            offset = getattr(struct, name).offset
            yield Variable(f"core{core}.{path}", f"{letter} {core} {offset} 0 {_BITS.get(name, 1)}")


def _pin_bits(core: int, name: str, scope: str, bits: dict[str, int]) -> Iterator[Variable]:
    """Yield single bits of an output of the core."""
    offset = getattr(lib.CoreOut, name).offset
    for bit_name, bit in bits.items():
        yield Variable(f"core{core}.{scope}.{bit_name}", f"o {core} {offset} {bit} 1")


def op_enable_bits() -> dict[str, int]:
    """Return the bit of each block in the op-enable mask, and in `busy_blocks`."""
    fields = registers()["GLOBAL"]["OPERATION_ENABLE"].fields
    return {name.removesuffix("_OP_EN"): field.lsb for name, field in fields.items()}


def variables(declarations: Iterable[Declaration], cores: int, events: Iterable[str]) -> list[Variable]:
    """Return everything that can be traced.

    Parameters
    ----------
    declarations : signals of the model below the core's scope; their code is the model's number.
    cores : number of cores.
    events : names of the bits of the core's `events`, from bit 0 on.
    """
    signals = list(declarations)
    enable = next((item.code for item in signals if item.path == OP_ENABLE), None)
    named = {item.path for item in signals}
    found = [
        Variable(CLOCK, "n -1 c 1"),
        Variable("npu.jobs", "n -1 j 32"),
        Variable("npu.irq", "n -1 i 3"),
        Variable("npu.layer", "n -1 l 16"),
        Variable("npu.layer_name", "n -1 L 16"),
    ]
    bits = {name: bit for bit, name in enumerate(events) if not name.startswith("event_")}
    for core in range(cores):
        own = f"npu.core{core}"
        found += [
            Variable(f"{own}.job", f"n {core} j 32"),
            Variable(f"{own}.task", f"n {core} t 12"),
            Variable(f"{own}.tasks_started", f"n {core} s 32"),
            Variable(f"{own}.tasks_done", f"n {core} d 32"),
            Variable(f"{own}.layer", f"n {core} l 16"),
            Variable(f"{own}.layer_name", f"n {core} L 16"),
            Variable(f"{own}.reads_open", f"n {core} r 16"),
            Variable(f"{own}.writes_open", f"n {core} w 16"),
        ]
        found += _pins(core)
        found += _pin_bits(core, "events", "events", bits)
        found += _pin_bits(core, "busy_blocks", "busy", op_enable_bits())
        found += [
            Variable(f"core{core}.{item.path}", f"m {core} {item.code} {item.bits}") for item in signals
        ]
        if any(".registers." in path for path in named):
            found += _other_registers(core, named, enable)
    return sorted(found, key=lambda v: _order(v.path))


def _other_registers(core: int, named: set[str], enable: int | None) -> Iterator[Variable]:
    """Yield register fields that no signal of the core holds: pulses, constants, and write-only fields."""
    for block in registers():
        for register in block:
            for field in register.fields.values():
                path = f"{block.name}.registers.{register.name}.{field.name}"
                if path in named:
                    continue
                if block.name == "GLOBAL" and enable is not None:
                    source = f"s {core} {enable} {field.lsb} {field.width}"
                elif register.writable:
                    source = f"w {core} {register.offset} {field.lsb} {field.width}"
                else:
                    source = f"c {field.reset} {field.width}"
                yield Variable(f"core{core}.{path}", source)


def _order(path: str) -> list[tuple[int, str]]:
    """Sort key: signals of a scope before the scopes in it."""
    *scopes, name = path.split(".")
    return [*((1, scope) for scope in scopes), (0, name)]


def in_tasks_scope(path: str) -> bool:
    """Return whether the scope `tasks` contains a variable: counters, pins without buses, register fields."""
    scope, _, rest = path.partition(".")
    if scope == "npu":
        return path != CLOCK
    parts = rest.split(".")
    if len(parts) == 1 or parts[0] in ("events", "busy", "watch", "diag"):
        return True
    return len(parts) == 4 and parts[1] == "registers" and _is_field(parts[0], parts[2], parts[3])


def _is_field(block: str, register: str, field: str) -> bool:
    blocks = registers().blocks
    return block in blocks and register in blocks[block] and field in blocks[block][register].fields


def chosen(everything: list[Variable], scopes: Iterable[str]) -> list[Variable]:
    """Return the variables selected by globs, and always the counters of the harness.

    Raises
    ------
    SpecError
        for a glob that selects nothing; lists the scopes.
    """
    globs = list(scopes)
    if not globs:
        return everything
    found: set[str] = set()
    for glob in globs:
        if glob == TASKS:
            here = {v.path for v in everything if in_tasks_scope(v.path)}
        else:
            here = {
                v.path for v in everything if fnmatchcase(v.path, glob) or fnmatchcase(v.path, f"{glob}.*")
            }
        if not here:
            tops = sorted({".".join(v.path.split(".")[:2]) for v in everything if v.path.count(".") > 1})
            raise SpecError(
                f"no scope and no signal is called '{glob}'; there are {TASKS}, npu, {', '.join(tops)}"
            )
        found |= here
    return [v for v in everything if v.path in found or (v.path.startswith("npu.") and v.path != CLOCK)]


def check_scopes(globs: Iterable[str], cores: int) -> None:
    """Check that globs begin with an existing core and block, as far as that is known without a build.

    `chosen` checks globs with wildcards and single signals of a core.

    Parameters
    ----------
    cores : number of cores.

    Raises
    ------
    SpecError
        names the glob and similar names.
    """
    tops = [TASKS, "npu", *(f"core{number}" for number in range(cores))]
    blocks = sorted({scope.split(".")[0] for scope in SCOPES.values()} | set(registers().blocks))
    buses = sorted({path.split(".")[1] for path in _pin_scopes()})
    for glob in globs:
        parts = glob.split(".")
        plain = [not set(part) & set("*?[") for part in parts]
        if plain[0] and parts[0] not in tops:
            raise _no_scope(glob, parts[0], tops)
        if len(parts) == 1 or parts[0] == "npu" or not (plain[0] and plain[1]):
            continue
        block, known = parts[1], [*blocks, *buses]
        if block not in known and (len(parts) > 2 or block.isupper()) and block not in OTHER_SCOPES:
            full = [f"{parts[0]}.{name}" for name in known]
            raise _no_scope(glob, f"{parts[0]}.{block}", full)
        if len(parts) > 3 and parts[2] == "registers" and plain[3] and block in registers().blocks:
            names = [register.name for register in registers()[block]]
            if parts[3].isupper() and parts[3] not in names:
                raise _no_scope(glob, parts[3], names)


def _pin_scopes() -> Iterator[str]:
    """Yield the paths of a core's pins that have separate scopes."""
    pins = [
        *_pins(0),
        *_pin_bits(0, "events", "events", {"": 0}),
        *_pin_bits(0, "busy_blocks", "busy", {"": 0}),
    ]
    return (pin.path for pin in pins if pin.path.count(".") > 1)


def _no_scope(glob: str, word: str, known: list[str]) -> SpecError:
    found = get_close_matches(word, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(found)}?" if found else f"there are {', '.join(known)}"
    return SpecError(f"no scope and no signal is called '{glob}'; {hint}")


def parse_names(text: str, raw: bool) -> list[Declaration]:
    """Return the declarations from the library's lines of path, number and bits; `raw`: not yet placed."""
    found = []
    for line in text.splitlines():
        path, number, bits = line.rsplit(" ", 2)
        found.append(Declaration(path, int(number), int(bits)))
    return placed(found) if raw else found


def moment(when: When | None, layer_number: int = 0) -> lib.MomentC:
    """Return the C form of a moment; None: never."""
    if when is None:
        return lib.MomentC(kind=lib.AT_NEVER)
    kinds = {
        "cycle": lib.AT_CYCLE,
        "task": lib.AT_TASK,
        "layer": lib.AT_LAYER,
        "write": lib.AT_WRITE,
        "error": lib.AT_ERROR,
    }
    if when.kind not in kinds:
        raise WaveformError(
            f"a waveform around a {when.kind} needs something to compare with: rkcosim run --check or "
            "rkcosim regcmd run --check"
        )
    return lib.MomentC(
        kind=kinds[when.kind],
        task=when.task,
        job=-1 if when.job is None else when.job,
        cycle=when.cycle,
        offset=when.offset,
        mask=when.mask,
        value=when.value,
        layer=layer_number,
    )


def order(spec: TraceSpec, start: lib.MomentC, stop: lib.MomentC) -> lib.TraceOrderC:
    """Return the C form of the times and sizes in a specification."""
    return lib.TraceOrderC(
        start=start, stop=stop, before=spec.before, after=AFTER, limit=spec.limit or 0, ring_bytes=RING_BYTES
    )


_FST = (
    "Create Close SetScope SetUpscope CreateVar EmitTimeChange EmitValueChange "
    "EmitVariableLengthValueChange FlushContext SetTimescaleFromString SetVersion SetPackType"
).split()
_fst_library: ct.CDLL | None = None


def fst_functions() -> ct.Array[ct.c_void_p]:
    """Return the functions that write FST files, in the order of `FstFunctions` (trace_sink.h).

    Raises
    ------
    WaveformError
        without the library of pylibfst; the message says how to install it and names the other format.
    """
    global _fst_library
    found = importlib.util.find_spec("_libfstapi")
    try:
        if found is None or found.origin is None:
            raise OSError("not installed")
        if _fst_library is None:
            _fst_library = ct.CDLL(found.origin)
        functions = [getattr(_fst_library, f"fstWriter{name}") for name in _FST]
    except (OSError, AttributeError) as error:
        raise WaveformError(
            f"no writer of FST files is installed ({error}): {install('waves')}, or write VCD (--format vcd)"
        ) from error
    return (ct.c_void_p * len(functions))(*(ct.cast(f, ct.c_void_p).value for f in functions))


def result(spec: TraceSpec, status: lib.TraceStatusC, layers: Iterable[str]) -> TraceResult:
    """Return the result for a status."""
    name, state = spec.path, status.state
    began = state == lib.TRACE_WRITES or status.bytes > 0
    cycles = (status.first, status.last) if began else None
    size = f"{status.bytes:,} bytes, cycles {status.first:,} to {status.last:,}"
    if state == lib.TRACE_FAILED:
        text = f"waveform {name}: cannot be written (is the disk full?)"
    elif not began:
        text = f"no waveform: {_why_none(spec, layers)}"
    elif state == lib.TRACE_FULL:
        text = f"waveform {name}: {size}; ended at its limit of {spec.limit:,} bytes"
        if status.first == status.last:
            text += " (it is filled by the names of its signals: use --scope)"
    else:
        text = f"waveform {name}: {size}"
    if status.shortened:
        text += f"; memory did not hold all {spec.before:,} cycles before the start"
    return TraceResult(name, status.bytes, cycles, state == lib.TRACE_WRITES, text)


def _why_none(spec: TraceSpec, layers: Iterable[str]) -> str:
    start, known = spec.start, list(dict.fromkeys(layers))
    if start.kind == "error":
        return "no error happened"
    if start.kind == "layer" and start.layer not in known:
        some = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
        return f"no layer is called '{start.layer}'" + (f"; there were {some}" if known else "")
    return (
        f"{start.text} was never reached"
        if start.kind != "cycle"
        else f"the run ended before cycle {start.cycle:,}"
    )
