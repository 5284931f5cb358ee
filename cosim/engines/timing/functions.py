"""The functions of a timing model's clusters in C++."""

from __future__ import annotations

from collections import defaultdict

from rkcosim.engines.timing.branches import branches_of
from rkcosim.engines.timing.clusters import Cluster, used
from rkcosim.engines.timing.expressions import Expressions, bits_of
from rkcosim.engines.timing.nodes import BitRun, LogicNode
from rkcosim.engines.timing.state import State, mask_of, type_of


def changed(place: str, value: str, mark: str) -> str:
    """Return the statement that stores a value and, if it is another one than before, marks its users."""
    return f"    {{ const uint64_t x = {value}; if ({place} != x) {{ {place} = x; {mark} }} }}"


class Functions:
    """Writes the functions of clusters."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._words = Expressions(state)
        self._write_number = {id(node): number for number, node in enumerate(state.writes)}

    def of(self, cluster: Cluster) -> list[str]:
        """Return the lines of a cluster's functions: its evaluation, and what the clock edge changes."""
        self._words.local = set()
        self._inside = branches_of(cluster.nodes, self._state.stored)
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

    def _keeping(self, cluster: Cluster) -> dict[int, LogicNode]:
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
            run, own = node.terms[0][0], (BitRun(node.out, 0, node.out.width),)
            maker = makers.get(run.variable.number) if run.variable else None
            if maker is None or maker.out is None or run != BitRun(maker.out, 0, node.out.width):
                continue
            alone = uses[maker.out.number] == 1 and maker.out.number not in self._state.stored
            if alone and maker.out.width == node.out.width and maker.terms[0] == own:
                found[node.out.number] = maker
        return found

    def _branch(self, node: LogicNode, term: int) -> list[str]:
        """Return the statements for what only one operand of a node needs."""
        return [line for inner in self._inside.get((id(node), term), []) for line in self._value(inner)]

    def _value(self, node: LogicNode) -> list[str]:
        assert node.out is not None
        number = node.out.number
        name = f"t{number}"
        if node.kind == "assign":
            lines = self._assign(node, name)
        elif node.kind == "m" and self._has_branch(node):
            lines = [f"    uint64_t {name};", f"    if ({self._words.term(node.terms[0])}) {{"]
            lines += [
                *self._branch(node, 1),
                f"    {name} = {self._words.term(node.terms[1])};",
                "    } else {",
            ]
            lines += [*self._branch(node, 2), f"    {name} = {self._words.term(node.terms[2])};", "    }"]
        elif node.kind == "first" and self._has_branch(node):
            lines = [f"    uint64_t {name} = 0;", f"    if ({self._words.term(node.terms[0])}) {{"]
            lines += [*self._branch(node, 1), f"    {name} = {self._words.term(node.terms[1])};"]
            lines += [f"    {name} &= 0 - {name};", "    }"]
        else:
            lines = [f"    const uint64_t {name} = {self._words.expression(node)};"]
        if number in self._state.stored:
            lines += self._store(number)
        self._words.local.add(number)
        return lines

    def _store(self, number: int) -> list[str]:
        """Return the statements that store a value for other clusters; for an array at its last one."""
        mark = self._state.mark(number)
        if number not in self._state.banks:
            return [f"    if (t{number} != s.v{number}) {{ s.v{number} = t{number}; {mark} }}"]
        place, _ = self._state.banks[number]
        bank = self._state.bank_list[place]
        if number != bank.numbers[-1]:
            return []
        values = ", ".join(f"{bank.kind}(t{other})" for other in bank.numbers)
        return [
            f"    const {bank.kind} b{place}[] = {{{values}}};",
            f"    if (differ(s.vb{place}, b{place})) {{ take(s.vb{place}, b{place}); {mark} }}",
        ]

    def _has_branch(self, node: LogicNode) -> bool:
        return any((id(node), term) in self._inside for term in range(len(node.terms)))

    def _assign(self, node: LogicNode, name: str) -> list[str]:
        assert node.out is not None
        lines = [f"    uint64_t {name} = {self._words.term(node.terms[0])};"]
        for number, (low, width) in enumerate(node.extra):
            cond, value = node.terms[1 + 2 * number : 3 + 2 * number]
            inner = self._branch(node, 2 + 2 * number)
            text = self._words.term(value)
            if width < node.out.width:
                keep = ((1 << node.out.width) - 1) & ~(((1 << width) - 1) << low)
                text = f"({name} & {keep:#x}ull) | ({text} << {low})"
            if cond == (BitRun(None, 1, 1),):
                lines.append(f"    {name} = {text};")
            elif inner:
                lines += [f"    if ({self._words.term(cond)}) {{", *inner, f"    {name} = {text};", "    }"]
            else:
                lines.append(f"    if ({self._words.term(cond)}) {name} = {text};")
        return lines

    def _register(self, node: LogicNode, commits: list[str]) -> list[str]:
        assert node.out is not None
        number = node.out.number
        kind, now, after = type_of(node.out.width), self._state.place(number), self._state.place(number, "n")
        if held := self._kept.get(number):
            lines = self._assign(held, after)[1:]  # without an assignment it keeps its contents
        elif node.kind == "register":
            lines = [f"    {after} = {kind}({self._words.term(node.terms[0])});"]
        else:  # without the enable it keeps its contents, which are also the next ones
            lines = [
                f"    if ({self._words.term(node.terms[0])}) {{",
                *(line for place in range(1, len(node.terms)) for line in self._branch(node, place)),
                f"    {after} = {kind}({self._registered(node)});",
                "    }",
            ]
        mark = self._state.mark(number)
        if number not in self._state.banks:
            commits.append(f"    if ({now} != {after}) {{ {now} = {after}; {mark} }}")
            return [*lines, f"    fresh |= {after} != {now};"]
        bank, _ = self._state.banks[number]
        if number == self._state.bank_list[bank].numbers[-1]:
            commits.append(
                f"    if (differ(s.vb{bank}, s.nb{bank})) {{ take(s.vb{bank}, s.nb{bank}); {mark} }}"
            )
            lines.append(f"    fresh |= differ(s.vb{bank}, s.nb{bank});")
        return lines

    def _registered(self, node: LogicNode) -> str:
        assert node.out is not None
        rows, first = node.extra
        _, address, *writes = node.terms
        text = self._words.row(rows, address, first, node.out.width)
        for at in range(0, len(writes), 3):
            on, where, data = writes[at : at + 3]
            same = f"{self._words.term(on)} && {self._words.term(where)} == {self._words.term(address)}"
            text = f"({same} ? {self._words.term(data)} : {text})"
        return text

    def _write(self, node: LogicNode, cluster: Cluster, commits: list[str]) -> list[str]:
        number = self._write_number[id(node)]
        rows, whole = node.extra
        address, *words = node.terms
        enables, data = words[: rows.words], words[rows.words :]
        if whole:
            enables = [bits_of(enables, 0, 1)]
        count = len(enables)
        lines = [f"    s.e{number}[{k}] = {self._words.term(term)};" for k, term in enumerate(enables)]
        on = " | ".join(f"s.e{number}[{k}]" for k in range(count))
        lines.append(f"    if ({on}) {{")
        lines.append(f"        fresh = true, s.a{number} = {self._words.term(address)};")
        lines += [f"        s.w{number}[{k}] = {self._words.term(term)};" for k, term in enumerate(data)]
        lines.append("    }")
        mark = self._state.mark_row(rows.number)
        again = self._state.mark_of([cluster.number])
        inside = f" && s.a{number} < {rows.depth}"
        commits.append(f"    if (({on}){inside}) {{")
        commits.append(f"        {again}")
        for k in range(rows.words):
            row = f"s.m{rows.number}[s.a{number} * {rows.words} + {k}]"
            if whole:
                new = f"s.w{number}[{k}]"
            else:
                new = f"({row} & ~s.e{number}[{k}]) | (s.w{number}[{k}] & s.e{number}[{k}])"
            commits.append("    " + changed(row, new, mark))
        commits.append("    }")
        return lines

    def _cell(self, node: LogicNode, cluster: Cluster, commits: list[str]) -> list[str]:
        """Take the operands of the array cell; the clock edge is a step of it."""
        ports, outputs = node.extra

        def term(name: str, word: int = 0) -> str:
            return self._words.term(node.terms[ports[name][0] + word])

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
            f"    {self._state.mark_of([cluster.number])}",
            f"    if ({valid})",
            "        s.cell.step(s.cell_in, (const uint8_t*)s.cell_w_data, (const uint8_t*)s.cell_f_data);",
            "    if (s.cell_rst) s.cell.reset();",
            "    if (s.cell_in.d_valid) {",
            "        uint32_t o_acc[14] = {}, o_sum[10] = {};",
            "        s.cell.pack_acc(o_acc), s.cell.pack_sum(o_sum);",
        ]
        for name, pieces in outputs.items():
            for at, out in pieces:
                text = f"(word_bits({name}, {at}) & {mask_of(out.width)})"
                mark = self._state.mark(out.number)
                commits.append("    " + changed(f"s.v{out.number}", text, mark))
        commits.append("    }")
        return lines
