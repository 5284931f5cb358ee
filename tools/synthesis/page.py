"""The page of the synthesis, in Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.synthesis.blocks import Block, Need, macro, need
from tools.synthesis.findings import ASYNCHRONOUS, OTHERS, PATHS, SMALL_MEMORIES
from tools.synthesis.modules import Hierarchy, MemoryUse

FOLDER = Path(__file__).parent

DEEP = 10.0
"""Paths of more nanoseconds are findings."""

LARGE = 4096
"""Memories of at least so many bits that are not block RAM or macros are findings."""

_PRIMITIVES = {
    "$__XILINX_BLOCKRAM_TDP_": "block RAM",
    "$__XILINX_BLOCKRAM_SDP_": "block RAM",
    "$__XILINX_BLOCKRAM_": "block RAM",
    "$__XILINX_URAM_": "UltraRAM",
    "flip-flops": "flip-flops",
}


@dataclass(frozen=True)
class Facts:
    """What was measured.

    Members
    -------
    hierarchy : the modules.
    blocks : the blocks of the page.
    results : results by module, by flow.
    timing : longest path or error by module of a block.
    versions : names and versions of the programs.
    """

    hierarchy: Hierarchy
    blocks: Sequence[Block]
    results: Mapping[str, Mapping[str, Any]]
    timing: Mapping[str, Any]
    versions: Sequence[str]


def page(facts: Facts) -> str:
    """Return the whole page."""
    needs = {block.path: need(facts.hierarchy, facts.results, block.module) for block in facts.blocks}
    parts = [
        (FOLDER / "introduction.md").read_text().rstrip(),
        f"Measured with {', '.join(facts.versions)}.",
        _summary(facts, needs[""]),
        "## Blocks",
        "A block includes the blocks below it; of equal or alike blocks with the same parent the first is "
        "shown, with their number. *LUT RAM* is in LUTs, *cells* include flip-flops, *macros* are in Kibit.",
        _blocks(facts, needs),
        "## Longest paths",
        "The longest path of a block with everything inside of it, from a clock edge to the next, with the "
        "set-up time of the last flip-flop; *cells* are the gates between. `R_` is a flip-flop "
        "with its signal and bit, `M_` a pin of a memory; other names are ports of the block.",
        _paths(facts),
        "## Memories",
        _memories(facts),
        "## Findings",
        "What synthesis finds, and why it is left: cycles and results of the RTL are those of the hardware "
        "reference, and a register more in a path would change them.",
        _findings(facts),
        (FOLDER / "published.md").read_text().rstrip(),
        "## Modules",
        "Each module by itself, without its submodules. Seconds are those of one run, FPGA and cells; of "
        "modules that are synthesised together, their share.",
        _modules(facts),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _summary(facts: Facts, core: Need) -> str:
    times = facts.hierarchy.instances()
    large, small = core.block_rams
    fpga, cells = ("at least " if core.missing[flow] else "" for flow in ("fpga", "cells"))
    text = (
        f"The core has {len(facts.hierarchy.units):,} different modules with {sum(times.values()):,} "
        f"instances. **FPGA**: {fpga}{core.luts:,} LUTs for logic and {core.lut_memories:,} as memories, "
        f"{core.registers:,} flip-flops, {core.dsps:,} DSP slices, {large:,} block RAMs of 36 Kibit and "
        f"{small:,} of 18. **Cells**: {cells}{core.gates:,}, of which {core.flip_flops:,} are flip-flops, "
        f"with an area of {core.area / 1e6:.1f} mm2 at 180 nm, and {core.macro_bits / 1024:,.0f} Kibit of "
        "macros."
    )
    found = facts.timing.get(facts.hierarchy.top, {})
    if "nanoseconds" in found:
        text += f" The longest path of the whole core takes {found['nanoseconds']:.1f} ns."
    elif "error" in found:
        text += f" The longest path of the whole core was not found: {found['error']}."
    return "\n\n".join([text, *_missing(facts, core)])


def _missing(facts: Facts, core: Need) -> Sequence[str]:
    times = facts.hierarchy.instances()
    out = []
    for flow, title in (("fpga", "FPGA"), ("cells", "cells")):
        counts: Counter[str] = Counter()
        for name in core.missing[flow]:
            counts[facts.hierarchy.representative(name)] += times[name]
        listed = (
            f"`{_short(facts, name)}` ({_why(facts, flow, name)}; {n} instances)"
            for name, n in counts.items()
        )
        if counts:
            out.append(f"Not in the figures of {title}: {', '.join(listed)}.")
    return out


def _why(facts: Facts, flow: str, name: str) -> str:
    found = facts.results[flow].get(facts.hierarchy.representative(name))
    return str(found["error"]) if found else "not run"


def _blocks(facts: Facts, needs: Mapping[str, Need]) -> str:
    rows = []
    for block in facts.blocks:
        own = needs[block.path]
        large, small = own.block_rams
        holes = [bool(own.missing[flow]) for flow in ("fpga", "cells")]
        row = [
            f"`{block.name}`" + (f" ({block.alike})" if block.alike > 1 else ""),
            *_counts((own.luts, own.lut_memories, own.registers, own.dsps), holes[0], own.fpga),
            *_texts([f"{large} + {small}"], holes[0], own.fpga),
            *_counts((own.gates, own.flip_flops), holes[1], own.cells),
            *_texts([f"{own.area / 1e6:.3f}"], holes[1], own.cells),
            f"{own.macro_bits / 1024:,.0f}",
        ]
        rows.append(row)
    head = ("block", "LUTs", "LUT RAM", "flip-flops", "DSPs", "RAMB36 + RAMB18")
    return _table((*head, "cells", "flip-flops", "area, mm2", "macros"), rows)


def _counts(values: Sequence[int], incomplete: bool, found: Counter[str]) -> list[str]:
    return _texts([f"{value:,}" for value in values], incomplete, found)


def _texts(values: Sequence[str], incomplete: bool, found: Counter[str]) -> list[str]:
    """Values as they are, as lower bounds, or, if nothing is known, as such."""
    if not incomplete:
        return list(values)
    return [f"> {value}" if found else "not known" for value in values]


def _paths(facts: Facts) -> str:
    rows = []
    for block in facts.blocks:
        found = facts.timing[block.module]
        if "error" in found:
            rows.append((f"`{block.name}`", "", "", found["error"], ""))
            continue
        ends = (f"`{shortened(found['start'])}`", f"`{shortened(found['end'])}`")
        rows.append((f"`{block.name}`", f"{found['nanoseconds']:.2f}", str(found["cells"]), *ends))
    return _table(("block", "ns", "cells", "from", "to"), rows)


def shortened(place: str) -> str:
    """A name of an instance without its pin, with dots between the levels."""
    return place.replace("/", ".").replace("\\", "")


def kept_as(facts: Facts, name: str, memory: MemoryUse) -> tuple[str, str]:
    """How a memory is mapped: FPGA, cells."""
    found = facts.results["fpga"].get(facts.hierarchy.representative(name), {})
    if "error" in found or not found:
        fpga = f"not known: {found.get('error', 'not run')}"
    else:
        kind = found["memories"].get(memory.name, "")
        fpga = _PRIMITIVES.get(kind, "LUT RAM" if "LUTRAM" in kind else kind or "logic")
    if not memory.writes:
        return "logic", "logic"
    return fpga, "macro" if macro(memory) else "flip-flops"


def _memories(facts: Facts) -> str:
    times = facts.hierarchy.instances()
    rows = []
    for name, memory in _all_memories(facts):
        fpga, cells = kept_as(facts, name, memory)
        reads = f"{memory.reads}" + (f" ({memory.asynchronous} asynchronous)" if memory.asynchronous else "")
        size = f"{memory.depth:,} x {memory.width}"
        ports = (f"{memory.bits * times[name] / 1024:,.1f}", reads, str(memory.writes))
        rows.append((f"`{_short(facts, name)}.{memory.name}`", str(times[name]), size, *ports, fpga, cells))
    head = ("memory", "instances", "rows x bits", "Kibit in all", "reads", "writes", "FPGA", "cells")
    return _table(head, rows)


def _short(facts: Facts, name: str) -> str:
    return name.removeprefix(f"{facts.hierarchy.top}_")


def _all_memories(facts: Facts) -> list[tuple[str, MemoryUse]]:
    times = facts.hierarchy.instances()
    found = [(name, memory) for name, unit in facts.hierarchy.units.items() for memory in unit.memories]
    return sorted(found, key=lambda pair: (-pair[1].bits * times[pair[0]], pair[0]))


def _findings(facts: Facts) -> str:
    rows: list[tuple[str, str, str]] = []
    for block in facts.blocks:
        found = facts.timing[block.module]
        if found.get("nanoseconds", 0.0) >= DEEP:
            text = (
                f"{found['nanoseconds']:.1f} ns, {found['cells']} cells, from `{shortened(found['start'])}` "
                f"to `{shortened(found['end'])}`"
            )
            rows.append((f"`{block.name}`: arithmetic too deep for a cycle", text, reason(block)))
    for name, memory in _all_memories(facts):
        fpga, cells = kept_as(facts, name, memory)
        if memory.bits >= LARGE and ("flip-flops" in (fpga, cells) or fpga == "LUT RAM"):
            text = f"{memory.depth:,} x {memory.width}; FPGA: {fpga}; cells: {cells}"
            cause = ASYNCHRONOUS if memory.asynchronous else SMALL_MEMORIES
            place = f"`{_short(facts, name)}.{memory.name}`"
            if memory.asynchronous and memory.reads > 4:
                cause = OTHERS["registers"]
            rows.append((f"{place}: a memory that is not block RAM or a macro", text, cause))
    counts: Counter[str] = Counter()
    for flow in facts.results.values():
        for found in flow.values():
            for line in found.get("warnings", ()):
                counts[_kind(line)] += 1
    for kind in ("latches", "multiple drivers", "combinational loops"):
        loops = sum(found.get("loops", 0) for found in facts.timing.values())
        number = counts[kind] + (loops if kind == "combinational loops" else 0)
        rows.append((kind, str(number) if number else "none", OTHERS[kind]))
    return _table(("what", "figures", "why it is left"), rows)


def reason(block: Block) -> str:
    """Why the longest path of a block is left: that of the block, or of the nearest one around it."""
    place = re.sub(r"_\d+(?=\.|$)", "", block.name)
    while place and place not in PATHS:
        place = place.rpartition(".")[0]
    return PATHS[place or "core"]


def _kind(line: str) -> str:
    if "Latch inferred" in line:
        return "latches"
    return "combinational loops" if "loop" in line else "multiple drivers"


def _modules(facts: Facts) -> str:
    times = facts.hierarchy.instances()
    rows = []
    for name in sorted(facts.hierarchy.units):
        same = facts.hierarchy.representative(name)
        label = f"`{_short(facts, name)}`"
        if same != name:
            rows.append((label, str(times[name]), "", *["as `" + _short(facts, same) + "`", *[""] * 6]))
            continue
        own = Need()
        texts = []
        for flow, counter in (("fpga", own.fpga), ("cells", own.cells)):
            found = facts.results[flow].get(name, {"error": "not run", "seconds": 0})
            texts.append(found.get("error", ""))
            counter.update(
                {k: v for k, v in found.get("cells", {}).items() if k not in facts.hierarchy.units}
            )
        seconds = [facts.results[flow].get(name, {}).get("seconds", 0) for flow in ("fpga", "cells")]
        fpga = (
            [texts[0], "", "", ""]
            if texts[0]
            else [f"{n:,}" for n in (own.luts, own.lut_memories, own.registers, own.dsps)]
        )
        cells = [texts[1], ""] if texts[1] else [f"{n:,}" for n in (own.gates, own.flip_flops)]
        source = facts.hierarchy.units[name].source
        where = f"`{source}`" if source.startswith("rtl/") else source.rpartition("/")[2]
        rows.append((label, str(times[name]), where, *fpga, *cells, f"{seconds[0]:.0f}, {seconds[1]:.0f}"))
    head = ("module", "instances", "source", "LUTs", "LUT RAM", "flip-flops", "DSPs")
    return _table((*head, "cells", "flip-flops", "seconds"), rows)
