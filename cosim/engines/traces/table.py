"""From Verilator's tracing code to a table of signals in groups that are sampled separately.

Verilator's tracing code compares every signal of the design, wanted or not. This module reads its
declarations and comparisons (only the expressions matter), drops helper signals (`trace_names`), and writes
C++ in which the signals with the same scopes and the same cause of change share a function. The harness
(trace.h) calls the functions that contain wanted signals and may have changed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rkcosim.engines import toolchain
from rkcosim.engines.protocol import BuildError
from rkcosim.engines.traces import names as trace_names
from rkcosim.engines.traces.names import Declaration, placed

_FUNCTION = re.compile(
    r"^(?:VL_ATTR_COLD )?(?:static )?void (Vcore\w*)\([^\n]*\) \{\n(.*?)^\}$", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"^ *//.*\n", re.MULTILINE)
_END = re.compile(r"(?<=[;{}])\n")
_DECLARED = re.compile(r"VL_TRACE_DECL_(BIT|BUS|QUAD|WIDE)\(tracep,c\+(\d+),0,\"([^\"]*)\",-1,(.*)\);")
_RANGE = re.compile(r"(\d+),(\d+)$")
_ARRAY = re.compile(
    r"VL_TRACE_DECL_\w+_ARRAY\(tracep,c\+(\d+)\+i\*(\d+),fidx,\"\",-1,.*, (\(.*?\)|i)(?:, (\d+),(\d+))?\);"
)
_CALL = re.compile(r"(Vcore___024root__trace_init\w+)\(vlSelf, tracep(.*)\);")
_CHANGE = re.compile(
    r"bufp->(?:chg|full)(Bit|CData|SData|IData|QData|WData)\((?:oldp\+)(\d+),\((.*)\)(?:,(\d+))?\);",
    re.DOTALL,
)
_CHANGES = re.compile(
    r"(Vcore___024root__trace_(?:chg|full)_dtype____\d+)\(vlSelf, bufp, (\d+), (.*)\);", re.DOTALL
)
_ACTIVITY = re.compile(r"__Vm_traceActivity\[(\d+)U\]")
_BASE = re.compile(r"oldp VL_ATTR_UNUSED = bufp->oldp\(vlSymsp->__Vm_baseCode(?: \+ (\d+))?\);")
_TEMPORARY = re.compile(r"\b__Vtemp_\d+\b")

_TYPES = {"Bit": "CData", "CData": "CData", "SData": "SData", "IData": "IData", "QData": "QData"}
_FILE_SIGNALS = 1500


@dataclass
class Signal:
    """One traced value: `kind` as in the names of Verilator's calls, its expression, and its causes."""

    code: int
    bits: int
    kind: str
    expression: str
    before: list[str] = field(default_factory=list)
    activity: int | None = None
    """Bits of Verilator's activity flags, one of which is set if the value may have changed; None: always."""


class _UnknownForm(BuildError):
    """A statement of Verilator's tracing code that this module does not understand."""


def _functions(text: str) -> dict[str, list[str]]:
    """Return the statements of each function by name.

    A line that opens or closes a block is a statement too.
    """
    found = {}
    for name, body in _FUNCTION.findall(text):
        statements = [statement.strip() for statement in _END.split(_COMMENT.sub("", body))]
        if statements.pop():
            raise _UnknownForm(f"the end of {name}")
        found[name] = statements
    return found


def read_declarations(functions: dict[str, list[str]]) -> list[Declaration]:
    """Return every name of the core's values; modules before slashes."""
    top = "Vcore___024root__trace_init_top"
    if top not in functions:
        raise _UnknownForm("no trace_init_top")
    prefix = "core_top/core/"
    return [
        Declaration(found.path.removeprefix(prefix), found.code, found.bits)
        for found in _declared(functions, top, [])
        if found.path.startswith(prefix)
    ]


def _declared(functions: dict[str, list[str]], function: str, scopes: list[str]) -> Iterator[Declaration]:
    """Yield what a function declares within `scopes`, which it may change for the functions that follow."""
    for statement in functions[function]:
        if "VL_TRACE_PUSH_PREFIX" in statement:
            scopes.append(statement.split('"')[1] if '"' in statement else "?")
        elif "VL_TRACE_POP_PREFIX" in statement:
            scopes.pop()
        elif match := _DECLARED.search(statement):
            ends = _RANGE.search(match[4])
            bits = int(ends[1]) - int(ends[2]) + 1 if ends else 1
            yield Declaration("/".join([*scopes, match[3]]), int(match[2]), bits)
        elif "VL_TRACE_DECL" in statement:
            raise _UnknownForm(statement)
        elif call := _CALL.search(statement):
            if "dtype" not in call[1]:
                yield from _declared(functions, call[1], scopes)
            elif parts := re.search(r', "([^"]*)", 0, c\+(\d+)', call[2]):
                yield from _elements(functions, call[1], "/".join([*scopes, parts[1]]), int(parts[2]))
            else:
                raise _UnknownForm(statement)


def _elements(functions: dict[str, list[str]], function: str, name: str, base: int) -> Iterator[Declaration]:
    """Yield the elements of an array that a function declares."""
    statements = functions[function]
    sizes = re.findall(r"i < (\d+)", "\n".join(statements))
    for statement in statements:
        if inner := _CALL.search(statement):
            yield from _elements(functions, inner[1], name, base)
        elif (element := _ARRAY.search(statement)) and len(sizes) == 1:
            first, step, high = int(element[1]), int(element[2]), int(element[4] or 0)
            for i in range(int(sizes[0])):
                index = i if element[3] == "i" else _index(element[3], i)
                yield Declaration(f"{name}[{index}]", base + first + i * step, high + 1)
        elif "VL_TRACE_DECL" in statement:
            raise _UnknownForm(statement)


def _index(order: str, i: int) -> int:
    found = re.fullmatch(r"\((\d+) - i\)", order)
    if found is None:
        raise _UnknownForm(order)
    return int(found[1]) - i


def read_signals(functions: dict[str, list[str]]) -> dict[int, Signal]:
    """Return the signal of each code."""
    signals: dict[int, Signal] = {}
    for name in functions:
        constant = "__trace_const_" in name
        if not name.startswith("Vcore___024root__"):
            continue  # of a module that remains a separate class (float kernels): not traced
        if ("__trace_chg_" in name and "dtype" not in name) or constant:
            for signal in _changes(name, functions, 0 if constant else None):
                signals[signal.code] = signal
    return signals


def _changes(function: str, functions: dict[str, list[str]], activity: int | None) -> Iterator[Signal]:
    """Yield the values that a function compares; `activity` is that of its first statements."""
    temporaries: dict[str, list[str]] = {}
    inside = False
    start = 0

    def signal(statement: str, base: int, variable: str = "") -> Signal:
        match = _CHANGE.match(statement)
        if match is None:
            raise _UnknownForm(statement[:120])
        expression = match[3].replace("__VdtypeVar", variable)
        before = [line for name in _temporaries(expression) for line in temporaries.get(name, [])]
        return Signal(base + int(match[2]), int(match[4] or 1), match[1], expression, before, activity)

    for statement in functions[function]:
        if base := _BASE.search(statement):
            start = int(base[1] or 0)
        elif statement.startswith("if (VL_UNLIKELY("):
            flags = [int(n) for n in _ACTIVITY.findall(statement)]
            if "__Vm_activity" in statement and not flags:
                continue
            if not flags or inside:
                raise _UnknownForm(statement[:80])
            activity = sum(1 << n for n in flags) if max(flags) < 63 else None
            inside = True
        elif statement == "}":
            activity, inside = None, False
        elif "bufp->chg" in statement or "bufp->full" in statement:
            yield signal(statement, start)
        elif "_dtype____" in statement:
            several = _CHANGES.match(statement)
            if several is None:
                raise _UnknownForm(statement[:120])
            for line in functions[several[1]]:
                if "bufp->chg" in line or "bufp->full" in line:
                    yield signal(line, int(several[2]), several[3])
        elif statement.startswith("VlWide<"):
            temporaries[statement.rstrip(";").split()[-1]] = [statement]
        else:
            name = next(iter(_temporaries(statement.partition("=")[0])), "")
            if name in temporaries:
                _assign(name, statement, temporaries)


def _temporaries(text: str) -> list[str]:
    """Return the names of temporary variables in a text, each once."""
    return list(dict.fromkeys(_TEMPORARY.findall(text)))


def _assign(name: str, statement: str, temporaries: dict[str, list[str]]) -> None:
    """Add a statement that assigns to a temporary variable, after those that it needs."""
    known = temporaries[name]
    for other in _temporaries(statement):
        for line in temporaries.get(other, []) if other != name else []:
            if line not in known:
                known.insert(0 if line.startswith("VlWide") else len(known), line)
    known.append(statement)


def _words(signal: Signal) -> int:
    return 2 if signal.kind == "QData" else -(-signal.bits // 32) if signal.kind == "WData" else 1


def _put(number: int, word: int, signal: Signal) -> str:
    before = "".join(f"{line}\n" for line in signal.before)
    if signal.kind == "WData":
        call = f"s.wide({number}, {word}, {_words(signal)}, ({signal.expression}));"
    elif signal.kind == "QData":
        call = f"s.quad({number}, {word}, QData({signal.expression}));"
    else:
        call = f"s.word({number}, {word}, {_TYPES[signal.kind]}({signal.expression}));"
    return f"    {{\n{before}{call}\n    }}\n" if before else f"    {call}\n"


def _scope_of(path: str) -> str:
    """Return the key of a group: two levels of scope, so that the registers of a block are separate."""
    return ".".join(path.split(".")[:-1][:2])


_HEADER = """#include "Vcore__Syms.h"
#include "trace_sampler.h"

"""

_STUBS = """
// Stubs of Verilator's tracing interface, which is not used.
class VerilatedVcd;
void Vcore___024root__trace_decl_types(VerilatedVcd*) {}
void Vcore___024root__trace_init_top(Vcore___024root*, VerilatedVcd*) {}
void Vcore___024root__trace_register(Vcore___024root*, VerilatedVcd*) {}
"""


def fingerprint() -> bytes:
    """Return what the table depends on besides the core: this code and the names it keeps."""
    return Path(__file__).read_bytes() + Path(trace_names.__file__).read_bytes()


def write_table(generated: Path, version: str) -> list[Path]:
    """Write the table to the folder of Verilator's files.

    Return the files to compile instead of its tracing code.

    Parameters
    ----------
    generated : folder of Verilator's output.
    version : the Verilator that wrote it, for the error.

    Raises
    ------
    BuildError
        if Verilator's code has another form than that of the supported version.
    """
    try:
        return _write_table(generated)
    except _UnknownForm as error:
        raise BuildError(
            f"waveforms are read from the tracing code of Verilator {toolchain.VERILATOR}; {version} writes "
            f"another one ({error}): {toolchain.VERILATOR_FIX}, or trace with --engine cxxrtl"
        ) from error


def _write_table(generated: Path) -> list[Path]:
    functions: dict[str, list[str]] = {}
    for path in sorted(generated.glob("Vcore__Trace*.cpp")):
        functions |= _functions(path.read_text())
    declarations, signals = read_declarations(functions), read_signals(functions)
    shown = placed(declarations)
    missing = [item.path for item in shown if item.code not in signals]
    if missing or not shown:
        raise _UnknownForm(f"no value of {', '.join(missing[:3]) or 'anything'}")

    scopes: dict[int, set[str]] = defaultdict(set)
    for item in shown:
        scopes[item.code].add(_scope_of(item.path))
    groups: dict[tuple[tuple[str, ...], int | None], list[int]] = defaultdict(list)
    for code in sorted(scopes):
        groups[tuple(sorted(scopes[code])), signals[code].activity].append(code)

    number: dict[int, int] = {}
    places: dict[int, int] = {}
    word = 0
    files: list[list[str]] = [[]]
    rows: list[str] = []
    for index, ((_, activity), codes) in enumerate(groups.items()):
        if len(number) >= _FILE_SIGNALS * len(files):
            files.append([])
        body = []
        first = len(number)
        for code in codes:
            number[code], places[code] = len(number), word
            body.append(_put(number[code], word, signals[code]))
            word += _words(signals[code])
        files[-1].append(
            f"void rk_table_group_{index}(Vcore__Syms* vlSymsp, TraceSampler& s) {{\n"
            f"    auto& vlSelfRef = vlSymsp->TOP;\n    (void)vlSelfRef;\n{''.join(body)}}}\n"
        )
        mask = f"{1 << 63 if activity is None else activity}ULL"  # bit 63: always
        rows.append(f"    {{rk_table_group_{index}, {mask}, {first}, {len(number)}}},\n")

    paths = []
    for count, functions_text in enumerate(files):
        path = generated / f"trace_groups_{count}.cpp"
        path.write_text(_HEADER + "\n".join(functions_text))
        paths.append(path)
    declared = "".join(f"void rk_table_group_{n}(Vcore__Syms*, TraceSampler&);\n" for n in range(len(groups)))
    names = "".join(f'    "{item.path} {number[item.code]} {item.bits}\\n"\n' for item in shown)
    sizes = ", ".join(str(places[code]) for code in number)
    flags = max(
        (n for s in signals.values() if s.activity for n in range(63) if s.activity >> n & 1), default=0
    )
    table = generated / "trace_table.cpp"
    table.write_text(
        f"{_HEADER}{declared}\n"
        f"extern const TraceGroup rk_table_groups[] = {{\n{''.join(rows)}}};\n"
        f"extern const uint32_t rk_table_places[] = {{{sizes}}};\n"
        f"extern const char rk_table_names[] =\n{names};\n"
        f"extern const TraceSizes rk_table_sizes = {{{len(groups)}, {len(number)}, {word}}};\n"
        "uint64_t rk_table_activity(Vcore__Syms* syms) {\n"
        "    // Each flag is a byte, 0 or 1; the product moves eight of them into one byte.\n"
        "    uint64_t bytes[8] = {}, flags = 0;\n"
        f"    std::memcpy(bytes, &syms->TOP.__Vm_traceActivity[0], {flags + 1});\n"
        f"    std::memset(&syms->TOP.__Vm_traceActivity[0], 0, {flags + 1});\n"
        "    for (int n = 0; n < 8; n++) flags |= (bytes[n] * 0x0102040810204080ULL >> 56) << 8 * n;\n"
        "    return flags;\n"
        f"}}\n{_STUBS}"
    )
    return [table, *paths]
