"""The expressions of a timing model in C++, with the functions of arithmetic.h."""

from __future__ import annotations

from rkcosim.engines.protocol import BuildError
from rkcosim.engines.timing.nodes import WORD, BitRun, LogicNode, Rows, Term, Variable
from rkcosim.engines.timing.state import State, mask_of

_COMPARE = {"==": "==", "!=": "!=", "u<": "<", "u>": ">", "u<=": "<=", "u>=": ">="}
_COMPARE_SIGNED = {"s<": "<", "s>": ">", "s<=": "<=", "s>=": ">="}


def _extends(run: BitRun | None, above: BitRun) -> bool:
    """Return whether `above` repeats the highest bit of `run`."""
    if run is None or not above.repeated or run.repeated:
        return False
    return run.variable is above.variable and run.low + run.width - 1 == above.low


def bits_of(words: list[Term], first: int, width: int) -> Term:
    """Return some bits of a value that consists of words."""
    runs: list[BitRun] = []
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
                runs.append(BitRun(run.variable, value, high - low, run.repeated))
            at += run.width
    return tuple(runs)


class Expressions:
    """Expressions of terms and nodes; each is an unsigned integer of 64 bits.

    Members
    -------
    local : numbers of the variables that the function has computed itself.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.local: set[int] = set()

    def term(self, term: Term) -> str:
        """Return the expression of a term."""
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

    def _run(self, run: BitRun, at: int) -> str:
        if run.variable is None:
            return f"{run.low << at:#x}ull"
        text = self._name(run.variable)
        if run.low:
            text = f"({text} >> {run.low})"
        if run.repeated:
            text = f"({text} & 1)" if run.low + 1 < run.variable.width else text
            text = f"((0 - {text}) & {mask_of(run.width)})"
        elif run.low + run.width < run.variable.width:
            text = f"({text} & {mask_of(run.width)})"
        return f"({text} << {at})" if at else text

    def _name(self, variable: Variable) -> str:
        if variable.number in self.local:
            return f"t{variable.number}"
        place = self._state.place(variable.number)
        return f"uint64_t({place})" if variable.width < WORD else place

    def _extended(self, run: BitRun, copies: int, at: int) -> str:
        """Return the expression of a run whose highest bit is repeated `copies` times above it."""
        assert run.variable is not None
        above, width = WORD - run.low - run.width, run.width + copies
        text = self._name(run.variable)
        text = f"uint64_t(int64_t({text} << {above}) >> {WORD - run.width})"
        if width + at < WORD:
            text = f"({text} & {mask_of(width)})"
        return f"({text} << {at})" if at else text

    def row(self, rows: Rows, address: Term, first: int, width: int) -> str:
        """Return the expression of bits of a row; behind the last row there are zeros."""
        at = self.term(address)
        if rows.words == 1:
            text = f"uint64_t(s.m{rows.number}[{at}])"
            text = f"({text} >> {first})" if first else text
            text = f"({text} & {mask_of(width)})" if first + width < rows.width else text
        else:
            text = f"row_bits(s.m{rows.number} + {at} * {rows.words}, {first}, {width})"
        if rows.depth < 1 << sum(run.width for run in address):
            text = f"({at} < {rows.depth} ? {text} : 0)"
        return text

    def expression(self, node: LogicNode) -> str:
        """Return the expression of a node.

        Raises
        ------
        BuildError
            for an operator that is not known.
        """
        assert node.out is not None
        width, kind = node.out.width, node.kind
        if kind == "read":
            return self.row(node.extra[0], node.terms[0], node.extra[1], width)
        if kind == "part":
            return self._part(node)
        if kind == "matches":
            return self._matches(node)
        terms = [self.term(term) for term in node.terms]
        if kind == "first":
            return f"{terms[0]} ? ({terms[1]} & (0 - {terms[1]})) : 0ull"
        widths = node.extra
        if len(terms) == 1:
            return {
                "~": f"{terms[0]} ^ {mask_of(width)}",
                "-": f"(0 - {terms[0]}) & {mask_of(width)}",
                "b": f"{terms[0]} != 0",
                "r|": f"{terms[0]} != 0",
                "r&": f"{terms[0]} == {mask_of(widths[0])}",
                "r^": f"uint64_t(__builtin_parityll({terms[0]}))",
            }[kind]
        a, b = terms[:2]
        if kind == "m":
            return f"{a} ? {b} : {terms[2]}"
        if kind in ("&", "|", "^"):
            return f"{a} {kind} {b}"
        if kind in ("+", "-", "*"):
            return f"({a} {kind} {b}) & {mask_of(width)}"
        if kind in _COMPARE:
            return f"{a} {_COMPARE[kind]} {b}"
        if kind in _COMPARE_SIGNED:
            return f"widened({a}, {widths[0]}) {_COMPARE_SIGNED[kind]} widened({b}, {widths[1]})"
        shifts = {"<<": f"({a} << {b}) & {mask_of(width)}", "u>>": f"{a} >> {b}"}
        if kind in shifts:
            return f"{b} < 64 ? {shifts[kind]} : 0ull"
        if kind == "s>>":
            return f"uint64_t(widened({a}, {widths[0]}) >> ({b} < 63 ? {b} : 63)) & {mask_of(width)}"
        if kind in ("u//", "u%"):
            return f"{b} ? {a} {'/' if kind == 'u//' else '%'} {b} : 0ull"
        if kind in ("s//", "s%"):
            function = "floor_quotient" if kind == "s//" else "floor_rest"
            return f"{function}(widened({a}, {widths[0]}), widened({b}, {widths[1]})) & {mask_of(width)}"
        raise BuildError(f"the netlist has the operator {kind}, which the timing model does not know")

    def _part(self, node: LogicNode) -> str:
        assert node.out is not None
        stride, signed, total, base = node.extra
        offset, *words = node.terms
        shift = f"{self.term(offset)} * {stride}" if stride != 1 else self.term(offset)
        shift = f"{shift} + {base}" if base else shift
        texts = [self.term(word) for word in words]
        if len(texts) == 1 and not signed:
            return f"low_bits({texts[0]}, {shift}) & {mask_of(node.out.width)}"
        values = ", ".join(texts)
        sign = int(bool(signed))
        return (
            f"part_bits<{len(texts)}>({{{{{values}}}}}, {total}, {shift}, {sign}) & {mask_of(node.out.width)}"
        )

    def _matches(self, node: LogicNode) -> str:
        words = [self.term(term) for term in node.terms]
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
