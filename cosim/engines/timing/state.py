"""The state of a timing model: the members that have its variables, and the marks of its clusters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from rkcosim.engines.timing.clusters import Clusters
from rkcosim.engines.timing.nodes import WORD, Program, Rows

FEWEST_IN_BANK = 4
"""Number of variables from which they are stored, compared and taken together."""


def type_of(width: int) -> str:
    """Return the type of a variable of some number of bits."""
    return f"uint{next(size for size in (8, 16, 32, 64) if width <= size)}_t"


def mask_of(width: int) -> str:
    """Return the constant with the lowest bits set."""
    return f"{(1 << width) - 1:#x}ull"


def row_type(rows: Rows) -> str:
    """Return the type of a memory's words."""
    return type_of(rows.width) if rows.words == 1 else "uint64_t"


@dataclass
class Bank:
    """Variables in an array: their type, whether they are registers, and their numbers."""

    kind: str
    state: bool
    numbers: list[int]


class State:
    """The structure `TimingState`.

    Members
    -------
    stored : numbers of the values that it has because more than one cluster uses them.
    banks : by number of a variable, the array that has it and its place there.
    bank_list : the arrays.
    writes : writes to memories, which have their operands there until the clock edge.
    has_cell : the array cell is a part of it.
    words, groups : words of the marks, and words with a bit for each of these.
    """

    def __init__(self, program: Program, found: Clusters) -> None:
        self._program, self._found = program, found
        self.words = (len(found.clusters) + WORD - 1) // WORD
        self.groups = (self.words + WORD - 1) // WORD
        outside = {
            run.variable.number
            for words in program.outputs.values()
            for t in words
            for run in t
            if run.variable
        }
        self.stored = {
            variable.number
            for variable in program.variables
            if not variable.state and (found.readers.get(variable.number) or variable.number in outside)
        }
        self.has_cell = any(node.kind == "cell" for node in program.nodes)
        self.writes = [node for node in program.nodes if node.kind == "write"]
        self.banks: dict[int, tuple[int, int]] = {}
        self.bank_list: list[Bank] = []
        self._make_banks()

    def place(self, number: int, letter: str = "v") -> str:
        """Return the member of the state that has a variable (v), or its next contents (n)."""
        bank = self.banks.get(number)
        return f"s.{letter}{number}" if bank is None else f"s.{letter}b{bank[0]}[{bank[1]}]"

    def _make_banks(self) -> None:
        """Find variables of a cluster that are equally wide and have the same users; they become an array."""
        for cluster in self._found.clusters:
            alike: dict[tuple[str, bool, tuple[int, ...]], list[int]] = defaultdict(list)
            for node in cluster.nodes:
                if node.out is not None and (node.out.state or node.out.number in self.stored):
                    readers = tuple(sorted(self._found.readers.get(node.out.number, ())))
                    alike[type_of(node.out.width), node.out.state, readers].append(node.out.number)
            for (kind, state, _), numbers in alike.items():
                if len(numbers) >= FEWEST_IN_BANK:
                    self.banks.update({number: (len(self.bank_list), k) for k, number in enumerate(numbers)})
                    self.bank_list.append(Bank(kind, state, numbers))

    def mark(self, variable: int) -> str:
        """Return the statements that mark the users of a variable."""
        return self.mark_of(self._found.readers.get(variable, ()))

    def mark_row(self, memory: int) -> str:
        """Return the statements that mark the readers of a memory."""
        return self.mark_of(self._found.row_readers.get(memory, ()))

    def mark_of(self, clusters: Iterable[int]) -> str:
        """Return the statements that mark clusters."""
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

    def header(self) -> str:
        """Return the text of timing.h."""
        lines = ["// The state of a timing model; generated.", "#pragma once"]
        lines += ["#include <cstddef>", "#include <cstdint>", "#include <vector>", ""]
        lines += ['#include "pins.h"']
        lines += ['#include "npu_cell.h"'] if self.has_cell else []
        lines += ["", "struct TimingState {"]
        if self.has_cell:
            lines += ["    npu::Cell cell;", "    npu::CellIn cell_in;", "    uint8_t cell_rst;"]
            lines += ["    uint64_t cell_w_data[8], cell_f_data[16];"]
        lines.append("    // Clusters to evaluate: a bit of each, and a bit of each word of such bits.")
        lines.append(f"    uint64_t dirty[{self.words}], words[{self.groups}];")
        lines.append("    // Clusters with registers that the next clock edge changes.")
        lines.append(f"    uint32_t count; uint16_t fresh[{self.words * WORD}];")
        registers = {node.out.number for node in self._program.nodes if node.out and node.out.state}
        for size in (8, 4, 2, 1):
            for variable in self._program.variables:
                if int(type_of(variable.width)[4:-2]) != size * 8:
                    continue
                if variable.number in self.banks:
                    continue
                if variable.state or variable.number in self.stored:
                    more = f", n{variable.number}" if variable.number in registers else ""
                    lines.append(f"    {type_of(variable.width)} v{variable.number}{more};")
        for number, bank in enumerate(self.bank_list):
            count = len(bank.numbers)
            more = f", nb{number}[{count}]" if bank.state else ""
            lines.append(f"    alignas(64) {bank.kind} vb{number}[{count}]{more};")
        for number, node in enumerate(self.writes):
            rows, whole = node.extra
            lines.append(f"    uint64_t a{number}, w{number}[{rows.words}];")
            lines.append(f"    uint64_t e{number}[{1 if whole else rows.words}];")
        for rows in self._program.memories:
            lines.append(f"    {row_type(rows)} m{rows.number}[{rows.depth * rows.words}];")
        lines += ["};", "", "void timing_start(TimingState& s);", "void timing_settle(TimingState& s);"]
        lines += ["void timing_commit(TimingState& s);", "void timing_pins(TimingState& s, const CoreIn& i);"]
        lines += ["void timing_pull(const TimingState& s, CoreOut& o);"]
        return "\n".join([*lines, ""])
