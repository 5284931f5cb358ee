"""The C++ program of a timing model (used by cosim/engines/harness/timing_model.h).

A cluster is one function that computes the next contents of its registers and those of its values that other
clusters use. If such a value differs from before, the clusters that use it are marked. At the clock edge the
registers with new contents take them, and mark the clusters that use them. A cycle in which few registers
change therefore costs little.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rkcosim.engines.library import CoreIn, CoreOut
from rkcosim.engines.protocol import BuildError
from rkcosim.engines.timing.branches import branches_of
from rkcosim.engines.timing.clusters import Cluster, Clusters, clusters_of, used
from rkcosim.engines.timing.cone import DATA_OUTPUTS
from rkcosim.engines.timing.nodes import AT_EDGE, WORD, Node, Program, Rows, Run, Term, Variable

FEWEST_IN_BANK = 4
"""Number of registers from which they are stored, compared and taken together."""

FILES = 8
"""Number of files with clusters, which are compiled in parallel."""

_COMPARE = {"==": "==", "!=": "!=", "u<": "<", "u>": ">", "u<=": "<=", "u>=": ">="}
_COMPARE_SIGNED = {"s<": "<", "s>": ">", "s<=": "<=", "s>=": ">="}


def write_program(program: Program, folder: Path) -> list[Path]:
    """Write `timing.h` and the source files into `folder`, and return the source files."""
    writer = _Writer(program, clusters_of(program))
    (folder / "timing.h").write_text(writer.header())
    paths = []
    for number, text in enumerate([*writer.parts(), writer.main()]):
        path = folder / f"timing_{number}.cpp"
        path.write_text(text)
        paths.append(path)
    return paths


_PINS_IN = {field[0] for field in CoreIn._fields_}
_PINS_OUT = {field[0] for field in CoreOut._fields_}


def _member(port: str) -> str:
    """Return the name of a port in the structures of pins.h."""
    return port.replace("s_axil_", "s_").replace("m_axi_", "m_")


def _type(width: int) -> str:
    return f"uint{next(size for size in (8, 16, 32, 64) if width <= size)}_t"


def _mask(width: int) -> str:
    return f"{(1 << width) - 1:#x}ull"


def _changed(place: str, value: str, mark: str) -> str:
    """Return the statement that stores a value and, if it is another one than before, marks its users."""
    return f"    {{ const uint64_t x = {value}; if ({place} != x) {{ {place} = x; {mark} }} }}"


def _extends(run: Run | None, above: Run) -> bool:
    """Return whether `above` repeats the highest bit of `run`."""
    if run is None or not above.repeated or run.repeated:
        return False
    return run.variable is above.variable and run.low + run.width - 1 == above.low


def _joined(parts: Iterable[str]) -> str:
    return "\n".join([*parts, ""])


@dataclass
class _Bank:
    """Variables in an array: their type, whether they are registers, and their numbers."""

    kind: str
    state: bool
    numbers: list[int]


class _Writer:
    def __init__(self, program: Program, found: Clusters) -> None:
        self._program = program
        self._found = found
        self._words = (len(found.clusters) + WORD - 1) // WORD
        outside = {
            run.variable.number
            for words in program.outputs.values()
            for t in words
            for run in t
            if run.variable
        }
        self._stored = {
            variable.number
            for variable in program.variables
            if not variable.state and (found.readers.get(variable.number) or variable.number in outside)
        }
        self._has_cell = any(node.kind == "cell" for node in program.nodes)
        self._writes = [node for node in program.nodes if node.kind == "write"]
        self._write_number = {id(node): number for number, node in enumerate(self._writes)}
        self._make_banks()

    # names

    def _run(self, run: Run, at: int) -> str:
        if run.variable is None:
            return f"{run.low << at:#x}ull"
        text = self._name(run.variable)
        if run.low:
            text = f"({text} >> {run.low})"
        if run.repeated:
            text = f"({text} & 1)" if run.low + 1 < run.variable.width else text
            text = f"((0 - {text}) & {_mask(run.width)})"
        elif run.low + run.width < run.variable.width:
            text = f"({text} & {_mask(run.width)})"
        return f"({text} << {at})" if at else text

    def _name(self, variable: Variable) -> str:
        if variable.number in self._local:
            return f"t{variable.number}"
        place = self._place(variable.number)
        return f"uint64_t({place})" if variable.width < WORD else place

    def _place(self, number: int, letter: str = "v") -> str:
        """Return the member of the state that has a variable (v), or its next contents (n)."""
        bank = self._banks.get(number)
        return f"s.{letter}{number}" if bank is None else f"s.{letter}b{bank[0]}[{bank[1]}]"

    def _make_banks(self) -> None:
        """Find variables of a cluster that are equally wide and have the same users; they become an array."""
        self._banks: dict[int, tuple[int, int]] = {}
        self._bank_list: list[_Bank] = []
        for cluster in self._found.clusters:
            alike: dict[tuple[str, bool, tuple[int, ...]], list[int]] = defaultdict(list)
            for node in cluster.nodes:
                if node.out is not None and (node.out.state or node.out.number in self._stored):
                    readers = tuple(sorted(self._found.readers.get(node.out.number, ())))
                    alike[_type(node.out.width), node.out.state, readers].append(node.out.number)
            for (kind, state, _), numbers in alike.items():
                if len(numbers) >= FEWEST_IN_BANK:
                    self._banks.update(
                        {number: (len(self._bank_list), k) for k, number in enumerate(numbers)}
                    )
                    self._bank_list.append(_Bank(kind, state, numbers))

    def _extended(self, run: Run, copies: int, at: int) -> str:
        """Return the expression of a run whose highest bit is repeated `copies` times above it."""
        assert run.variable is not None
        above, width = WORD - run.low - run.width, run.width + copies
        text = self._name(run.variable)
        text = f"uint64_t(int64_t({text} << {above}) >> {WORD - run.width})"
        if width + at < WORD:
            text = f"({text} & {_mask(width)})"
        return f"({text} << {at})" if at else text

    def _term(self, term: Term) -> str:
        parts, at = [], 0
        for place, run in enumerate(term):
            above = term[place + 1] if place + 1 < len(term) else None
            before = term[place - 1] if place else None
            if _extends(before, run):
                pass
            elif above is not None and _extends(run, above):
                parts.append(self._extended(run, above.width, at))
            elif run.variable is not None or run.low or len(term) == 1:
                parts.append(self._run(run, at))
            at += run.width
        return f"({' | '.join(parts)})" if len(parts) > 1 else parts[0] if parts else "0ull"

    def _mark(self, clusters: Iterable[int]) -> str:
        words: dict[int, int] = {}
        groups: dict[int, int] = {}
        for number in clusters:
            word = number // WORD
            words[word] = words.get(word, 0) | 1 << number % WORD
            groups[word // WORD] = groups.get(word // WORD, 0) | 1 << word % WORD
        parts = [f"s.dirty[{word}] |= {bits:#x}ull;" for word, bits in sorted(words.items())]
        return " ".join(
            parts + [f"s.words[{group}] |= {bits:#x}ull;" for group, bits in sorted(groups.items())]
        )

    # header

    def header(self) -> str:
        lines = ["// The state of a timing model; generated.", "#pragma once"]
        lines += ["#include <cstddef>", "#include <cstdint>", "#include <vector>", ""]
        lines += ['#include "pins.h"']
        lines += ['#include "npu_cell.h"'] if self._has_cell else []
        lines += ["", "struct TimingState {"]
        if self._has_cell:
            lines += ["    npu::Cell cell;", "    npu::CellIn cell_in;", "    uint8_t cell_rst;"]
            lines += ["    uint64_t cell_w_data[8], cell_f_data[16];"]
        groups = (self._words + WORD - 1) // WORD
        lines.append("    // Clusters to evaluate: a bit of each, and a bit of each word of such bits.")
        lines.append(f"    uint64_t dirty[{self._words}], words[{groups}];")
        lines.append("    // Clusters with registers that the next clock edge changes.")
        lines.append(f"    uint32_t count; uint16_t fresh[{self._words * WORD}];")
        registers = {node.out.number for node in self._program.nodes if node.out and node.out.state}
        for size in (8, 4, 2, 1):
            for variable in self._program.variables:
                if int(_type(variable.width)[4:-2]) != size * 8:
                    continue
                if variable.number in self._banks:
                    continue
                if variable.state or variable.number in self._stored:
                    more = f", n{variable.number}" if variable.number in registers else ""
                    lines.append(f"    {_type(variable.width)} v{variable.number}{more};")
        for number, bank in enumerate(self._bank_list):
            count = len(bank.numbers)
            more = f", nb{number}[{count}]" if bank.state else ""
            lines.append(f"    alignas(64) {bank.kind} vb{number}[{count}]{more};")
        for number, node in enumerate(self._writes):
            rows, whole = node.extra
            lines.append(f"    uint64_t a{number}, w{number}[{rows.words}];")
            lines.append(f"    uint64_t e{number}[{1 if whole else rows.words}];")
        for rows in self._program.memories:
            lines.append(f"    {self._row_type(rows)} m{rows.number}[{rows.depth * rows.words}];")
        lines += ["};", "", "void timing_start(TimingState& s);", "void timing_settle(TimingState& s);"]
        lines += ["void timing_commit(TimingState& s);", "void timing_pins(TimingState& s, const CoreIn& i);"]
        lines += ["void timing_pull(const TimingState& s, CoreOut& o);"]
        return _joined(lines)

    def _row_type(self, rows: Rows) -> str:
        return _type(rows.width) if rows.words == 1 else "uint64_t"

    # clusters

    def parts(self) -> list[str]:
        """Return the texts of the files with clusters."""
        clusters = self._found.clusters
        size = (len(clusters) + FILES - 1) // FILES
        out = []
        for first in range(0, len(clusters), max(size, 1)):
            lines = ["#include <array>", "", '#include "timing.h"', _HELPERS]
            for cluster in clusters[first : first + size]:
                lines += self._cluster(cluster)
            out.append(_joined(lines))
        return out

    def _cluster(self, cluster: Cluster) -> list[str]:
        self._local: set[int] = set()
        self._inside = branches_of(cluster.nodes, self._stored)
        self._kept = self._keeping(cluster)
        kept = {id(node) for node in self._kept.values()}
        lines = [f"// {cluster.module}", f"void timing_f{cluster.number}(TimingState& s) {{"]
        commits: list[str] = []
        for node in self._inside.get(None, []):
            if id(node) in kept:
                continue
            if node.kind in ("register", "registered read"):
                lines += self._register(node, commits)
            elif node.kind == "write":
                lines += self._write(node, cluster, commits)
            elif node.kind == "cell":
                lines += self._cell(node, cluster, commits)
            else:
                lines += self._value(node)
        if commits:
            lines.insert(2, "    bool fresh = false;")
            lines.append(f"    s.fresh[s.count] = {cluster.number}, s.count += fresh;")
        lines.append("}")
        if commits:
            lines += [f"void timing_g{cluster.number}(TimingState& s) {{", *commits, "}"]
        return lines

    def _keeping(self, cluster: Cluster) -> dict[int, Node]:
        """Return, by register, the assignments that it takes if it keeps its contents without them."""
        uses: dict[int, int] = defaultdict(int)
        for node in cluster.nodes:
            for variable in used(node):
                uses[variable.number] += 1
        makers = {node.out.number: node for node in cluster.nodes if node.kind == "assign" and node.out}
        found = {}
        for node in cluster.nodes:
            if node.kind != "register" or node.out is None or len(node.terms[0]) != 1:
                continue
            run, own = node.terms[0][0], (Run(node.out, 0, node.out.width),)
            maker = makers.get(run.variable.number) if run.variable else None
            if maker is None or maker.out is None or run != Run(maker.out, 0, node.out.width):
                continue
            alone = uses[maker.out.number] == 1 and maker.out.number not in self._stored
            if alone and maker.out.width == node.out.width and maker.terms[0] == own:
                found[node.out.number] = maker
        return found

    def _branch(self, node: Node, term: int) -> list[str]:
        """Return the statements for what only one operand of a node needs."""
        return [line for inner in self._inside.get((id(node), term), []) for line in self._value(inner)]

    def _value(self, node: Node) -> list[str]:
        assert node.out is not None
        number = node.out.number
        name = f"t{number}"
        if node.kind == "assign":
            lines = self._assign(node, name)
        elif node.kind == "m" and self._has_branch(node):
            lines = [f"    uint64_t {name};", f"    if ({self._term(node.terms[0])}) {{"]
            lines += [*self._branch(node, 1), f"    {name} = {self._term(node.terms[1])};", "    } else {"]
            lines += [*self._branch(node, 2), f"    {name} = {self._term(node.terms[2])};", "    }"]
        elif node.kind == "first" and self._has_branch(node):
            lines = [f"    uint64_t {name} = 0;", f"    if ({self._term(node.terms[0])}) {{"]
            lines += [*self._branch(node, 1), f"    {name} = {self._term(node.terms[1])};"]
            lines += [f"    {name} &= 0 - {name};", "    }"]
        else:
            lines = [f"    const uint64_t {name} = {self._expression(node)};"]
        if number in self._stored:
            lines += self._store(number)
        self._local.add(number)
        return lines

    def _store(self, number: int) -> list[str]:
        """Return the statements that store a value for other clusters; for an array at its last one."""
        mark = self._mark(self._found.readers.get(number, ()))
        if number not in self._banks:
            return [f"    if (t{number} != s.v{number}) {{ s.v{number} = t{number}; {mark} }}"]
        place, _ = self._banks[number]
        bank = self._bank_list[place]
        if number != bank.numbers[-1]:
            return []
        values = ", ".join(f"{bank.kind}(t{other})" for other in bank.numbers)
        return [
            f"    const {bank.kind} b{place}[] = {{{values}}};",
            f"    if (differ(s.vb{place}, b{place})) {{ take(s.vb{place}, b{place}); {mark} }}",
        ]

    def _has_branch(self, node: Node) -> bool:
        return any((id(node), term) in self._inside for term in range(len(node.terms)))

    def _assign(self, node: Node, name: str) -> list[str]:
        assert node.out is not None
        lines = [f"    uint64_t {name} = {self._term(node.terms[0])};"]
        for number, (low, width) in enumerate(node.extra):
            cond, value = node.terms[1 + 2 * number : 3 + 2 * number]
            inner = self._branch(node, 2 + 2 * number)
            text = self._term(value)
            if width < node.out.width:
                keep = ((1 << node.out.width) - 1) & ~(((1 << width) - 1) << low)
                text = f"({name} & {keep:#x}ull) | ({text} << {low})"
            if cond == (Run(None, 1, 1),):
                lines.append(f"    {name} = {text};")
            elif inner:
                lines += [f"    if ({self._term(cond)}) {{", *inner, f"    {name} = {text};", "    }"]
            else:
                lines.append(f"    if ({self._term(cond)}) {name} = {text};")
        return lines

    def _register(self, node: Node, commits: list[str]) -> list[str]:
        assert node.out is not None
        number = node.out.number
        kind, now, after = _type(node.out.width), self._place(number), self._place(number, "n")
        if held := self._kept.get(number):
            lines = self._assign(held, after)[1:]  # without an assignment it keeps its contents
        elif node.kind == "register":
            lines = [f"    {after} = {kind}({self._term(node.terms[0])});"]
        else:  # without the enable it keeps its contents, which are also the next ones
            lines = [
                f"    if ({self._term(node.terms[0])}) {{",
                *(line for place in range(1, len(node.terms)) for line in self._branch(node, place)),
                f"    {after} = {kind}({self._registered(node)});",
                "    }",
            ]
        mark = self._mark(self._found.readers.get(number, ()))
        if number not in self._banks:
            commits.append(f"    if ({now} != {after}) {{ {now} = {after}; {mark} }}")
            return [*lines, f"    fresh |= {after} != {now};"]
        bank, _ = self._banks[number]
        if number == self._bank_list[bank].numbers[-1]:
            commits.append(
                f"    if (differ(s.vb{bank}, s.nb{bank})) {{ take(s.vb{bank}, s.nb{bank}); {mark} }}"
            )
            lines.append(f"    fresh |= differ(s.vb{bank}, s.nb{bank});")
        return lines

    def _registered(self, node: Node) -> str:
        assert node.out is not None
        rows, first = node.extra
        _, address, *writes = node.terms
        text = self._row(rows, address, first, node.out.width)
        for at in range(0, len(writes), 3):
            on, where, data = writes[at : at + 3]
            same = f"{self._term(on)} && {self._term(where)} == {self._term(address)}"
            text = f"({same} ? {self._term(data)} : {text})"
        return text

    def _row(self, rows: Rows, address: Term, first: int, width: int) -> str:
        at = self._term(address)
        if rows.words == 1:
            text = f"uint64_t(s.m{rows.number}[{at}])"
            text = f"({text} >> {first})" if first else text
            text = f"({text} & {_mask(width)})" if first + width < rows.width else text
        else:
            text = f"row_bits(s.m{rows.number} + {at} * {rows.words}, {first}, {width})"
        if rows.depth < 1 << sum(run.width for run in address):
            text = f"({at} < {rows.depth} ? {text} : 0)"
        return text

    def _write(self, node: Node, cluster: Cluster, commits: list[str]) -> list[str]:
        number = self._write_number[id(node)]
        rows, whole = node.extra
        address, *words = node.terms
        enables, data = words[: rows.words], words[rows.words :]
        if whole:
            enables = [self._bits(enables, 0, 1)]
        count = len(enables)
        lines = [f"    s.e{number}[{k}] = {self._term(term)};" for k, term in enumerate(enables)]
        on = " | ".join(f"s.e{number}[{k}]" for k in range(count))
        lines.append(f"    if ({on}) {{")
        lines.append(f"        fresh = true, s.a{number} = {self._term(address)};")
        lines += [f"        s.w{number}[{k}] = {self._term(term)};" for k, term in enumerate(data)]
        lines.append("    }")
        mark = self._mark(self._found.row_readers.get(rows.number, ()))
        again = self._mark([cluster.number])
        inside = f" && s.a{number} < {rows.depth}"
        commits.append(f"    if (({on}){inside}) {{")
        commits.append(f"        {again}")
        for k in range(rows.words):
            row = f"s.m{rows.number}[s.a{number} * {rows.words} + {k}]"
            if whole:
                new = f"s.w{number}[{k}]"
            else:
                new = f"({row} & ~s.e{number}[{k}]) | (s.w{number}[{k}] & s.e{number}[{k}])"
            commits.append("    " + _changed(row, new, mark))
        commits.append("    }")
        return lines

    def _cell(self, node: Node, cluster: Cluster, commits: list[str]) -> list[str]:
        """Take the operands of the array cell; the clock edge is a step of it."""
        ports, outputs = node.extra

        def term(name: str, word: int = 0) -> str:
            return self._term(node.terms[ports[name][0] + word])

        lines = [
            f"    s.cell_in.{name} = uint8_t({term(name)});"
            for name in ports
            if name not in ("clk", "rst", "w_data", "f_data")
        ]
        lines.append(f"    s.cell_rst = uint8_t({term('rst')});")
        for data, valid in (("w_data", "w_valid"), ("f_data", "f_valid")):
            lines.append(f"    if (s.cell_in.{valid}) {{")
            for k in range(ports[data][1]):
                lines.append(f"        s.cell_{data}[{k}] = {term(data, k)};")
            lines.append("    }")
        valid = "s.cell_in.w_valid | s.cell_in.f_valid | s.cell_in.d_valid | s.cell.busy()"
        lines.append(f"    fresh |= {valid} | s.cell_rst;")
        commits += [
            f"    {self._mark([cluster.number])}",
            f"    if ({valid})",
            "        s.cell.step(s.cell_in, (const uint8_t*)s.cell_w_data, (const uint8_t*)s.cell_f_data);",
            "    if (s.cell_rst) s.cell.reset();",
            "    if (s.cell_in.d_valid) {",
            "        uint32_t o_acc[14] = {}, o_sum[10] = {};",
            "        s.cell.pack_acc(o_acc), s.cell.pack_sum(o_sum);",
        ]
        for name, pieces in outputs.items():
            for at, out in pieces:
                text = f"(word_bits({name}, {at}) & {_mask(out.width)})"
                mark = self._mark(self._found.readers.get(out.number, ()))
                commits.append("    " + _changed(f"s.v{out.number}", text, mark))
        commits.append("    }")
        return lines

    # expressions

    def _expression(self, node: Node) -> str:
        assert node.out is not None
        width, kind = node.out.width, node.kind
        if kind == "read":
            return self._row(node.extra[0], node.terms[0], node.extra[1], width)
        if kind == "part":
            return self._part(node)
        if kind == "matches":
            return self._matches(node)
        terms = [self._term(term) for term in node.terms]
        if kind == "first":
            return f"{terms[0]} ? ({terms[1]} & (0 - {terms[1]})) : 0ull"
        widths = node.extra
        if len(terms) == 1:
            return {
                "~": f"{terms[0]} ^ {_mask(width)}",
                "-": f"(0 - {terms[0]}) & {_mask(width)}",
                "b": f"{terms[0]} != 0",
                "r|": f"{terms[0]} != 0",
                "r&": f"{terms[0]} == {_mask(widths[0])}",
                "r^": f"uint64_t(__builtin_parityll({terms[0]}))",
            }[kind]
        a, b = terms[:2]
        if kind == "m":
            return f"{a} ? {b} : {terms[2]}"
        if kind in ("&", "|", "^"):
            return f"{a} {kind} {b}"
        if kind in ("+", "-", "*"):
            return f"({a} {kind} {b}) & {_mask(width)}"
        if kind in _COMPARE:
            return f"{a} {_COMPARE[kind]} {b}"
        if kind in _COMPARE_SIGNED:
            return f"widened({a}, {widths[0]}) {_COMPARE_SIGNED[kind]} widened({b}, {widths[1]})"
        shifts = {"<<": f"({a} << {b}) & {_mask(width)}", "u>>": f"{a} >> {b}"}
        if kind in shifts:
            return f"{b} < 64 ? {shifts[kind]} : 0ull"
        if kind == "s>>":
            return f"uint64_t(widened({a}, {widths[0]}) >> ({b} < 63 ? {b} : 63)) & {_mask(width)}"
        if kind in ("u//", "u%"):
            return f"{b} ? {a} {'/' if kind == 'u//' else '%'} {b} : 0ull"
        if kind in ("s//", "s%"):
            function = "floor_quotient" if kind == "s//" else "floor_rest"
            return f"{function}(widened({a}, {widths[0]}), widened({b}, {widths[1]})) & {_mask(width)}"
        raise BuildError(f"the netlist has the operator {kind}, which the timing model does not know")

    def _part(self, node: Node) -> str:
        assert node.out is not None
        stride, signed, total, base = node.extra
        offset, *words = node.terms
        shift = f"{self._term(offset)} * {stride}" if stride != 1 else self._term(offset)
        shift = f"{shift} + {base}" if base else shift
        texts = [self._term(word) for word in words]
        if len(texts) == 1 and not signed:
            return f"low_bits({texts[0]}, {shift}) & {_mask(node.out.width)}"
        values = ", ".join(texts)
        sign = int(bool(signed))
        return (
            f"part_bits<{len(texts)}>({{{{{values}}}}}, {total}, {shift}, {sign}) & {_mask(node.out.width)}"
        )

    def _matches(self, node: Node) -> str:
        words = [self._term(term) for term in node.terms]
        cases = []
        for pattern in node.extra:
            tests = []
            for at, word in enumerate(words):
                bits = pattern[::-1][at * WORD : (at + 1) * WORD]
                care = sum(1 << k for k, c in enumerate(bits) if c != "-")
                want = sum(1 << k for k, c in enumerate(bits) if c == "1")
                if care == (1 << len(bits)) - 1:
                    tests.append(f"{word} == {want:#x}ull")
                elif care:
                    tests.append(f"({word} & {care:#x}ull) == {want:#x}ull")
            cases.append(" && ".join(tests) if tests else "true")
        return " || ".join(f"({case})" for case in cases) if cases else "0ull"

    # the rest

    def main(self) -> str:
        """Return the text of the file with the functions that the harness calls."""
        self._local = set()
        clusters = self._found.clusters
        commits = {
            cluster.number for cluster in clusters if any(node.kind in AT_EDGE for node in cluster.nodes)
        }
        lines = [
            "#include <array>",
            "#include <cstring>",
            "#include <new>",
            "",
            '#include "timing.h"',
            _HELPERS,
        ]
        lines += [f"void timing_f{c.number}(TimingState& s);" for c in clusters]
        lines += [f"void timing_g{number}(TimingState& s);" for number in sorted(commits)]
        lines += ["using Work = void (*)(TimingState&);", "static const Work evaluate[] = {"]
        lines += [f"    timing_f{c.number}," for c in clusters]
        lines += ["};", "static const Work commit[] = {"]
        lines += [f"    {f'timing_g{c.number}' if c.number in commits else 'nullptr'}," for c in clusters]
        lines += [
            "};",
            _LOOPS.replace("GROUPS", str((self._words + WORD - 1) // WORD)),
            *self._start(),
            *self._pins(),
            *self._pull(),
        ]
        return _joined(lines)

    def _start(self) -> list[str]:
        lines = ["void timing_start(TimingState& s) {", "    std::memset((void*)&s, 0, sizeof s);"]
        if self._has_cell:
            lines.append("    new (&s.cell) npu::Cell();")
        for node in self._program.nodes:
            if node.out is not None and node.out.state and node.out.init:
                now, after = self._place(node.out.number), self._place(node.out.number, "n")
                lines.append(f"    {now} = {after} = {node.out.init:#x}ull;")
        for rows in self._program.memories:
            for at, row in enumerate(rows.init):
                for k in range(rows.words):
                    word = row >> k * WORD & ((1 << WORD) - 1)
                    if word:
                        lines.append(f"    s.m{rows.number}[{at * rows.words + k}] = {word:#x}ull;")
        lines.append("    " + self._mark(c.number for c in self._found.clusters))
        return [*lines, "    timing_settle(s);", "}"]

    def _pins(self) -> list[str]:
        lines = ["void timing_pins(TimingState& s, const CoreIn& i) {"]
        read: list[str] = []
        for name, variables in self._program.inputs.items():
            member, at = _member(name), 0
            if member not in _PINS_IN:  # the clock, and signals that no engine drives
                continue
            wide = sum(variable.width for variable in variables) > WORD
            for variable in variables:
                bits = (
                    self._word_bits(member, at, variable.width) if wide else f"uint64_t(i.{member}) >> {at}"
                )
                text = f"({bits}) & {_mask(variable.width)}"
                mark = self._mark(self._found.readers.get(variable.number, ()))
                line = _changed(f"s.v{variable.number}", text, mark)
                late = member in ("m_rdata", "m_rid", "m_rresp", "m_rlast")
                (read if late else lines).append(line)
                at += variable.width
        return [*lines, "    if (!i.m_rvalid) return;", *read, "}"]

    def _word_bits(self, member: str, at: int, width: int) -> str:
        """Return the expression of bits of a pin of several 32-bit words."""
        parts = []
        for word in range(at // 32, (at + width - 1) // 32 + 1):
            place = word * 32 - at
            text = f"uint64_t(i.{member}[{word}])"
            parts.append(f"{text} << {place}" if place >= 0 else f"{text} >> {-place}")
        return " | ".join(f"({part})" for part in parts)

    def _pull(self) -> list[str]:
        lines = ["void timing_pull(const TimingState& s, CoreOut& o) {"]
        counted = ["activity", "levels", "macs", "array_macs"]
        later: list[str] = []
        written: list[str] = []
        for name, words in self._program.outputs.items():
            member = _member(name)
            if member not in _PINS_OUT:
                continue
            if name in DATA_OUTPUTS:
                if any(run.variable for term in words for run in term):
                    for k in range(8):
                        text = self._term(self._bits(words, k * 32, 32))
                        written.append(f"        o.{member}[{k}] = uint32_t({text});")
                continue
            if name == "levels":
                for k in range(sum(run.width for term in words for run in term) // 16):
                    term = self._bits(words, k * 16, 16)
                    later.append(f"    o.levels[{k}] = uint16_t({self._term(term)});")
                continue
            (later if name in counted else lines).append(
                f"    o.{member} = decltype(o.{member})({self._term(words[0])});"
            )
        if written:
            lines += ["    if (o.m_wvalid) {", *written, "    }"]
        if counting := self._program.inputs.get("counting"):
            lines += [f"    if (!s.v{counting[0].number}) return;", *later]
        return [*lines, "}"]

    def _bits(self, words: list[Term], first: int, width: int) -> Term:
        runs: list[Run] = []
        at = 0
        for term in words:
            for run in term:
                low, high = max(at, first), min(at + run.width, first + width)
                if low < high:
                    skip = low - at
                    if run.variable is None:
                        value = run.low >> skip & ((1 << high - low) - 1)
                    else:
                        value = run.low if run.repeated else run.low + skip
                    runs.append(Run(run.variable, value, high - low, run.repeated))
                at += run.width
        return tuple(runs)


_HELPERS = """
namespace {
inline int64_t widened(uint64_t value, unsigned width) {
    return int64_t(value << (64 - width)) >> (64 - width);
}
inline uint64_t floor_quotient(int64_t a, int64_t b) {
    if (!b) return 0;
    const int64_t q = a / b;
    return uint64_t(a % b && (a < 0) != (b < 0) ? q - 1 : q);
}
inline uint64_t floor_rest(int64_t a, int64_t b) {
    if (!b) return 0;
    const int64_t r = a % b;
    return uint64_t(r && (r < 0) != (b < 0) ? r + b : r);
}
template <class T, size_t count>
inline bool differ(const T (&a)[count], const T (&b)[count]) {
    T found = 0;
    for (size_t k = 0; k < count; k++) found |= a[k] ^ b[k];
    return found != 0;
}
template <class T, size_t count>
inline void take(T (&a)[count], const T (&b)[count]) {
    for (size_t k = 0; k < count; k++) a[k] = b[k];
}
inline uint64_t low_bits(uint64_t value, uint64_t shift) { return shift < 64 ? value >> shift : 0; }
inline uint64_t row_bits(const uint64_t* row, unsigned first, unsigned width) {
    const unsigned word = first / 64, bit = first % 64;
    uint64_t out = row[word] >> bit;
    if (bit + width > 64) out |= row[word + 1] << (64 - bit);
    return width < 64 ? out & ((uint64_t(1) << width) - 1) : out;
}
inline uint64_t word_bits(const uint32_t* words, unsigned first) {
    const uint64_t low = uint64_t(words[first / 32 + 1]) << 32 | words[first / 32];
    return first % 32 ? low >> first % 32 | uint64_t(words[first / 32 + 2]) << (64 - first % 32) : low;
}
// Bits from `shift` on of a value of `total` bits, continued with zeros or its sign.
template <unsigned count>
inline uint64_t part_bits(
    const std::array<uint64_t, count>& words, unsigned total, uint64_t shift, bool sign) {
    const bool fill = sign && (words[count - 1] >> ((total - 1) % 64) & 1);
    const auto word = [&](uint64_t n) {
        if (n >= count) return fill ? ~uint64_t(0) : 0;
        return n == count - 1 && fill && total % 64 ? words[n] | ~uint64_t(0) << total % 64 : words[n];
    };
    const uint64_t n = shift / 64, bit = shift % 64;
    return bit ? word(n) >> bit | word(n + 1) << (64 - bit) : word(n);
}
}  // namespace
"""

_LOOPS = """
void timing_settle(TimingState& s) {
    for (unsigned group = 0; group < GROUPS; group++)
        while (s.words[group]) {
            const unsigned word = group * 64 + __builtin_ctzll(s.words[group]);
            s.words[group] &= s.words[group] - 1;
            while (s.dirty[word]) {
                const unsigned bit = __builtin_ctzll(s.dirty[word]);
                s.dirty[word] &= s.dirty[word] - 1;
                evaluate[word * 64 + bit](s);
            }
        }
}
void timing_commit(TimingState& s) {
    const uint32_t count = s.count;
    s.count = 0;
    for (uint32_t n = 0; n < count; n++) commit[s.fresh[n]](s);
}
"""
