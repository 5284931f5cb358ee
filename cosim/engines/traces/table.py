"""From Verilator's tracing code to a table of signals in groups that are sampled one by one.

Verilator's own code compares every signal of the design, wanted or not.  Its declarations and its
comparisons are read here (only the expressions matter), helpers are left out (`trace_names`), and C++ is
written in which the signals that share their scopes and their cause of change form a function of their
own; the harness (trace.h) calls those that hold something wanted and may have changed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cosim.engines.errors import BuildError
from cosim.engines.traces import names as trace_names
from cosim.engines.traces.names import Declaration, placed

_FUNCTION = re.compile(r"^(?:VL_ATTR_COLD )?(?:static )?void (Vcore\w*)\((.*)\) \{$")
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
    """One traced value: `kind` as in the names of Verilator's calls, what gives it, and its causes."""

    code: int
    bits: int
    kind: str
    expression: str
    before: list[str] = field(default_factory=list)
    activity: int | None = None
    """Bits of Verilator's activity flags of which one is set when it may have changed; None: always."""


def _unknown(what: str) -> BuildError:
    return BuildError(
        f"Verilator's tracing code has a form that is not known here ({what}); "
        "known is that of Verilator 5.048: trace with that one or with --engine cxxrtl"
    )


def _functions(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Each function with its parameters and the lines of its body."""
    lines = iter(text.splitlines())
    for line in lines:
        found = _FUNCTION.match(line)
        if not found:
            continue
        body: list[str] = []
        for inner in lines:
            if inner == "}":
                break
            body.append(inner)
        yield found[1], found[2], body


def _statements(body: list[str]) -> Iterator[str]:
    """Statements, and lines that open or close a block, each as one text."""
    pending = ""
    for line in body:
        if not pending and line.lstrip().startswith("//"):
            continue
        pending = f"{pending}\n{line}" if pending else line.strip()
        bare = pending.rstrip()
        if bare.endswith((";", "{")) or bare.strip() == "}":
            yield bare.strip()
            pending = ""
    if pending:
        raise _unknown(pending[:80])


def read_declarations(functions: dict[str, tuple[str, list[str]]]) -> list[Declaration]:
    """Every name of the core's values; modules before slashes."""
    found: list[Declaration] = []
    scopes: list[str] = []

    def array(name: str, base: int, function: str) -> None:
        for line in functions[function][1]:
            inner = _CALL.search(line)
            if inner:
                array(name, base, inner[1])
                continue
            element = _ARRAY.search(line)
            if element:
                first, step = int(element[1]), int(element[2])
                high = int(element[4]) if element[4] else 0
                sizes = [int(n) for n in re.findall(r"i < (\d+)", "\n".join(functions[function][1]))]
                order = element[3]
                if len(sizes) != 1:
                    raise _unknown(line.strip())
                for i in range(sizes[0]):
                    index = i if order == "i" else _index(order, i)
                    found.append(Declaration(f"{name}[{index}]", base + first + i * step, high + 1))
            elif "VL_TRACE_DECL" in line:
                raise _unknown(line.strip())

    def walk(function: str) -> None:
        for line in functions[function][1]:
            if "VL_TRACE_PUSH_PREFIX" in line:
                scopes.append(line.split('"')[1] if '"' in line else "?")
            elif "VL_TRACE_POP_PREFIX" in line:
                scopes.pop()
            elif "VL_TRACE_DECL" in line:
                match = _DECLARED.search(line)
                if match is None:
                    raise _unknown(line.strip())
                ends = _RANGE.search(match[4])
                bits = int(ends[1]) - int(ends[2]) + 1 if ends else 1
                found.append(Declaration("/".join([*scopes, match[3]]), int(match[2]), bits))
            else:
                call = _CALL.search(line)
                if call is None:
                    continue
                if "dtype" in call[1]:
                    parts = re.search(r', "([^"]*)", 0, c\+(\d+)', call[2])
                    if parts is None:
                        raise _unknown(line.strip())
                    array("/".join([*scopes, parts[1]]), int(parts[2]), call[1])
                else:
                    walk(call[1])

    top = "Vcore___024root__trace_init_top"
    if top not in functions:
        raise _unknown("no trace_init_top")
    walk(top)
    prefix = "core_top/core/"
    return [
        Declaration(d.path.removeprefix(prefix), d.code, d.bits) for d in found if d.path.startswith(prefix)
    ]


def _index(order: str, i: int) -> int:
    found = re.fullmatch(r"\((\d+) - i\)", order)
    if found is None:
        raise _unknown(order)
    return int(found[1]) - i


def read_signals(functions: dict[str, tuple[str, list[str]]]) -> dict[int, Signal]:
    """What gives the value of each code."""
    signals: dict[int, Signal] = {}
    for name, (_, body) in functions.items():
        constant = "__trace_const_" in name
        if not name.startswith("Vcore___024root__"):
            continue  # of a module that stays a class of its own (float kernels): not traced
        if ("__trace_chg_" in name and "dtype" not in name) or constant:
            _read_changes(body, functions, signals, constant)
    return signals


def _read_changes(
    body: list[str], functions: dict[str, tuple[str, list[str]]], signals: dict[int, Signal], constant: bool
) -> None:
    activity: int | None = 0 if constant else None
    temporaries: dict[str, list[str]] = {}
    inside = False
    start = 0

    def add(code: int, kind: str, expression: str, bits: int) -> None:
        signal = Signal(code, bits, kind, expression, activity=activity)
        for name in dict.fromkeys(_TEMPORARY.findall(expression)):
            signal.before += temporaries.get(name, [])
        signals[code] = signal

    for statement in _statements(body):
        base = _BASE.search(statement)
        if base:
            start = int(base[1] or 0)
        elif statement.startswith("if (VL_UNLIKELY("):
            flags = [int(n) for n in _ACTIVITY.findall(statement)]
            if "__Vm_activity" in statement and not flags:
                continue
            if not flags or inside:
                raise _unknown(statement[:80])
            activity = sum(1 << n for n in flags) if max(flags) < 63 else None
            inside = True
        elif statement == "}":
            activity, inside = None, False
        elif "bufp->chg" in statement or "bufp->full" in statement:
            match = _CHANGE.match(statement)
            if match is None:
                raise _unknown(statement[:120])
            bits = int(match[4]) if match[4] else 1
            add(start + int(match[2]), match[1], match[3], bits)
        elif "_dtype____" in statement:
            several = _CHANGES.match(statement)
            if several is None:
                raise _unknown(statement[:120])
            for line in _statements(functions[several[1]][1]):
                match = _CHANGE.match(line)
                if match:
                    text = match[3].replace("__VdtypeVar", several[3])
                    add(int(several[2]) + int(match[2]), match[1], text, int(match[4]) if match[4] else 1)
        elif statement.startswith("VlWide<"):
            name = statement.rstrip(";").split()[-1]
            temporaries[name] = [statement]
        else:
            name = next(iter(_TEMPORARY.findall(statement.partition("=")[0])), "")
            if name in temporaries:
                _assign(name, statement, temporaries)


def _assign(name: str, statement: str, temporaries: dict[str, list[str]]) -> None:
    used = [n for n in _TEMPORARY.findall(statement) if n != name and n in temporaries]
    for other in dict.fromkeys(used):
        for line in temporaries[other]:
            if line not in temporaries[name]:
                temporaries[name].insert(0 if line.startswith("VlWide") else len(temporaries[name]), line)
    temporaries[name].append(statement)


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
    """What groups are cut by: two levels of scope, so that a block's registers stand apart."""
    return ".".join(path.split(".")[:-1][:2])


_HEADER = """#include "Vcore__Syms.h"
#include "trace_sampler.h"

"""

_STUBS = """
// Verilator's own way to a waveform, which nothing takes.
class VerilatedVcd;
void Vcore___024root__trace_decl_types(VerilatedVcd*) {}
void Vcore___024root__trace_init_top(Vcore___024root*, VerilatedVcd*) {}
void Vcore___024root__trace_register(Vcore___024root*, VerilatedVcd*) {}
"""


def fingerprint() -> bytes:
    """What the table depends on besides the core: how it is written and which names it holds."""
    return Path(__file__).read_bytes() + Path(trace_names.__file__).read_bytes()


def write_table(generated: Path) -> list[Path]:
    """Write the table beside Verilator's files; the files to compile instead of its tracing code.

    Raises
    ------
    BuildError
        where Verilator's code has another form than the known ones.
    """
    functions: dict[str, tuple[str, list[str]]] = {}
    for path in sorted(generated.glob("Vcore__Trace*.cpp")):
        for name, parameters, body in _functions(path.read_text()):
            functions[name] = (parameters, body)
    declarations, signals = read_declarations(functions), read_signals(functions)
    shown = placed(declarations)
    missing = [item.path for item in shown if item.code not in signals]
    if missing or not shown:
        raise _unknown(f"no value of {', '.join(missing[:3]) or 'anything'}")

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
