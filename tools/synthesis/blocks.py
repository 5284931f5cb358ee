"""The blocks of the page, and what the modules below a block need together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tools.synthesis.flows import MACRO_BITS
from tools.synthesis.modules import Hierarchy, MemoryUse

DEPTH = 4
"""Blocks lie at most so many levels below the core."""

BLOCK_BYTES = 45_000
"""A block is a module whose text, with those below it, is at least as long, or a part of the core itself."""

_PLACE = re.compile(r"^ +cell \\(\S+) \\(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A module of the page.

    Members
    -------
    path : names of instances from the core to it, with dots; empty: the core.
    module : its module.
    alike : number of instances with the same parent whose modules have the same representative.
    """

    path: str
    module: str
    alike: int = 1

    @property
    def name(self) -> str:
        """The path without the numbers that Amaranth appends."""
        return re.sub(r"_\d{2,}(?=\.|$)|_(?=\.|$)", "", self.path) or "core"


def blocks(hierarchy: Hierarchy, *, depth: int = DEPTH, least: int = BLOCK_BYTES) -> list[Block]:
    """Return the core and its larger blocks, each before those inside of it."""
    out = [Block("", hierarchy.top)]

    def visit(name: str, path: str, left: int) -> None:
        places = _PLACE.findall(hierarchy.units[name].text)
        same = Counter(hierarchy.representative(child) for child, _ in places)
        done: set[str] = set()
        for child, instance in places:
            kind = hierarchy.representative(child)
            size = sum(len(hierarchy.units[unit].text) for unit in hierarchy.below(child))
            if kind not in done and (size >= least or not path):
                done.add(kind)
                inside = f"{path}.{instance}" if path else instance
                out.append(Block(inside, child, same[kind]))
                if left:
                    visit(child, inside, left - 1)

    visit(hierarchy.top, "", depth - 1)
    return out


@dataclass
class Need:
    """What a block needs with everything below it.

    Members
    -------
    fpga, cells : number of primitives or cells of each type.
    area : of the cells, in square micrometres.
    macro_bits : bits of memories that are not flip-flops.
    missing : modules without a result, by flow.
    """

    fpga: Counter[str] = field(default_factory=Counter)
    cells: Counter[str] = field(default_factory=Counter)
    area: float = 0.0
    macro_bits: int = 0
    missing: dict[str, list[str]] = field(default_factory=lambda: {"fpga": [], "cells": []})

    @property
    def luts(self) -> int:
        """Look-up tables that hold logic."""
        return sum(count for kind, count in self.fpga.items() if re.fullmatch(r"LUT\d|INV", kind))

    @property
    def lut_memories(self) -> int:
        """Look-up tables that hold memories or shift registers."""
        return sum(count * LUT_MEMORY[kind] for kind, count in self.fpga.items() if kind in LUT_MEMORY)

    @property
    def registers(self) -> int:
        """Flip-flops of the FPGA."""
        return sum(count for kind, count in self.fpga.items() if re.fullmatch(r"FD[RSCP]E", kind))

    @property
    def dsps(self) -> int:
        """DSP slices."""
        return self.fpga["DSP48E2"]

    @property
    def block_rams(self) -> tuple[int, int]:
        """Block memories of 36 and of 18 Kibit."""
        return self.fpga["RAMB36E2"], self.fpga["RAMB18E2"]

    @property
    def gates(self) -> int:
        """Cells of the library, flip-flops included."""
        return sum(count for kind, count in self.cells.items() if kind not in ("MEM_IN", "MEM_OUT"))

    @property
    def flip_flops(self) -> int:
        """Flip-flops of the library."""
        return self.cells["DFFPOSX1"]


LUT_MEMORY = {
    "RAM32M": 4,
    "RAM32M16": 8,
    "RAM32X1D": 2,
    "RAM64M": 4,
    "RAM64M8": 8,
    "RAM64X1D": 2,
    "RAM64X8SW": 8,
    "RAM128X1D": 4,
    "RAM256X1D": 8,
    "RAM32X16DR8": 8,
    "RAM512X1S": 8,
    "SRL16E": 1,
    "SRLC16E": 1,
    "SRLC32E": 1,
}
"""LUTs of a primitive (UltraScale CLB: each LUT is 64 bits of memory)."""


def need(hierarchy: Hierarchy, results: Mapping[str, Mapping[str, Any]], top: str) -> Need:
    """Sum the results of all modules below one, each times its instances.

    Parameters
    ----------
    results : results by module, by flow.
    """
    total = Need()
    for name, times in hierarchy.instances(top).items():
        own = hierarchy.representative(name)
        for flow, counter in (("fpga", total.fpga), ("cells", total.cells)):
            found = results[flow].get(own)
            if found is None or "error" in found:
                total.missing[flow].append(name)
                continue
            for kind, count in found["cells"].items():
                if kind not in hierarchy.units:
                    counter[kind] += count * times
            if flow == "cells":
                total.area += found["area"] * times
        total.macro_bits += times * sum(
            memory.bits for memory in hierarchy.units[name].memories if macro(memory)
        )
    return total


def macro(memory: MemoryUse) -> bool:
    """Whether a memory stays one in the flow of cells."""
    return memory.bits >= MACRO_BITS and memory.writes > 0 and memory.asynchronous == 0
