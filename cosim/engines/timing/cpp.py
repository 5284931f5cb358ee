"""The C++ program of a timing model (used by cosim/engines/harness/timing_model.h).

A cluster is one function that computes the next contents of its registers and those of its values that other
clusters use. If such a value differs from before, the clusters that use it are marked. At the clock edge the
registers with new contents take them, and mark the clusters that use them. A cycle in which few registers
change therefore costs little.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from rkcosim.engines.library import CoreIn, CoreOut
from rkcosim.engines.timing.clusters import Clusters, clusters_of
from rkcosim.engines.timing.cone import DATA_OUTPUTS
from rkcosim.engines.timing.expressions import Expressions, bits_of
from rkcosim.engines.timing.functions import Functions, changed
from rkcosim.engines.timing.nodes import AT_EDGE, WORD, Program
from rkcosim.engines.timing.state import State, mask_of

ARITHMETIC = "arithmetic.h"
"""File of what the functions use."""

FILES = 8
"""Number of files with clusters, which are compiled in parallel."""


def write_program(program: Program, folder: Path) -> list[Path]:
    """Write `timing.h`, what it needs, and the source files into `folder`; return the source files."""
    writer = _Writer(program, clusters_of(program))
    shutil.copy(Path(__file__).with_name(ARITHMETIC), folder)
    (folder / "timing.h").write_text(writer.state.header())
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


def _joined(parts: Iterable[str]) -> str:
    return "\n".join([*parts, ""])


class _Writer:
    def __init__(self, program: Program, found: Clusters) -> None:
        self._program, self._found = program, found
        self.state = State(program, found)
        self._expressions = Expressions(self.state)

    def parts(self) -> list[str]:
        """Return the texts of the files with clusters."""
        clusters = self._found.clusters
        size = (len(clusters) + FILES - 1) // FILES
        functions, out = Functions(self.state), []
        for first in range(0, len(clusters), max(size, 1)):
            lines = ['#include "timing.h"', f'#include "{ARITHMETIC}"', ""]
            for cluster in clusters[first : first + size]:
                lines += functions.of(cluster)
            out.append(_joined(lines))
        return out

    def main(self) -> str:
        """Return the text of the file with the functions that the harness calls."""
        clusters = self._found.clusters
        commits = {
            cluster.number for cluster in clusters if any(node.kind in AT_EDGE for node in cluster.nodes)
        }
        lines = [
            "#include <cstring>",
            "#include <new>",
            "",
            '#include "timing.h"',
            "",
        ]
        lines += [f"void timing_f{c.number}(TimingState& s);" for c in clusters]
        lines += [f"void timing_g{number}(TimingState& s);" for number in sorted(commits)]
        lines += ["using Work = void (*)(TimingState&);", "static const Work evaluate[] = {"]
        lines += [f"    timing_f{c.number}," for c in clusters]
        lines += ["};", "static const Work commit[] = {"]
        lines += [f"    {f'timing_g{c.number}' if c.number in commits else 'nullptr'}," for c in clusters]
        lines += [
            "};",
            _LOOPS.replace("GROUPS", str(self.state.groups)),
            *self._start(),
            *self._pins(),
            *self._pull(),
        ]
        return _joined(lines)

    def _start(self) -> list[str]:
        lines = ["void timing_start(TimingState& s) {", "    std::memset((void*)&s, 0, sizeof s);"]
        if self.state.has_cell:
            lines.append("    new (&s.cell) npu::Cell();")
        for node in self._program.nodes:
            if node.out is not None and node.out.state and node.out.init:
                now, after = self.state.place(node.out.number), self.state.place(node.out.number, "n")
                lines.append(f"    {now} = {after} = {node.out.init:#x}ull;")
        for rows in self._program.memories:
            for at, row in enumerate(rows.init):
                for k in range(rows.words):
                    word = row >> k * WORD & ((1 << WORD) - 1)
                    if word:
                        lines.append(f"    s.m{rows.number}[{at * rows.words + k}] = {word:#x}ull;")
        lines.append("    " + self.state.mark_of(c.number for c in self._found.clusters))
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
                text = f"({bits}) & {mask_of(variable.width)}"
                mark = self.state.mark(variable.number)
                line = changed(f"s.v{variable.number}", text, mark)
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
                        text = self._expressions.term(bits_of(words, k * 32, 32))
                        written.append(f"        o.{member}[{k}] = uint32_t({text});")
                continue
            if name == "levels":
                for k in range(sum(run.width for term in words for run in term) // 16):
                    term = bits_of(words, k * 16, 16)
                    later.append(f"    o.levels[{k}] = uint16_t({self._expressions.term(term)});")
                continue
            (later if name in counted else lines).append(
                f"    o.{member} = decltype(o.{member})({self._expressions.term(words[0])});"
            )
        if written:
            lines += ["    if (o.m_wvalid) {", *written, "    }"]
        if counting := self._program.inputs.get("counting"):
            lines += [f"    if (!s.v{counting[0].number}) return;", *later]
        return [*lines, "}"]


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
