"""Write docs/results/fpga.md: what the core needs on two families of FPGAs, with and without floats.

Results are kept in a folder, so that a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rkcosim.engines.toolchain import yosys
from rkcosim.spec.config import RK3588
from tools.synthesis.blocks import LUT_MEMORY, blocks, need
from tools.synthesis.flows import Bounds
from tools.synthesis.modules import Hierarchy
from tools.synthesis.work import SynthesisError, core, measure

FOLDER = Path("build/synthesis-fpga")

DEPTH = 3
"""Blocks lie at most so many levels below the core."""

LEAST = 500
"""Blocks with fewer LUTs are shown only if they are parts of the core itself."""


@dataclass(frozen=True)
class Parts:
    """Parts of an FPGA: those of a device, or those that a block needs.

    Members
    -------
    luts : look-up tables, of 6 inputs (Xilinx) or 4 (Lattice), those that serve as memory included.
    registers : flip-flops.
    multipliers : DSP slices of 25 x 18 bits, or multipliers of 18 x 18.
    memories : block RAMs of 36 or 18 Kibit; half a one counts half.
    """

    luts: int
    registers: int
    multipliers: int
    memories: float

    def __iter__(self) -> Any:
        return iter((self.luts, self.registers, self.multipliers, self.memories))


NAMES = ("LUTs", "flip-flops", "multipliers", "block RAMs")
"""The members of `Parts` in words."""


@dataclass(frozen=True)
class Family:
    """A family of FPGAs.

    Members
    -------
    flow : key of `tools.synthesis.flows.FLOWS`.
    title : heading of its table.
    luts : number of LUTs that a primitive takes.
    registers, multipliers : expressions for the names of these primitives.
    memories : number of block RAMs that a primitive takes.
    devices : their parts by name.
    example : one of them that many boards have.
    """

    flow: str
    title: str
    luts: Mapping[str, int]
    registers: str
    multipliers: str
    memories: Mapping[str, float]
    devices: Mapping[str, Parts]
    example: str

    def parts(self, primitives: Counter[str]) -> Parts:
        """Sum up primitives."""

        def matching(pattern: str) -> int:
            return sum(count for kind, count in primitives.items() if re.fullmatch(pattern, kind))

        return Parts(
            sum(primitives[kind] * each for kind, each in self.luts.items()),
            matching(self.registers),
            matching(self.multipliers),
            sum(primitives[kind] * each for kind, each in self.memories.items()),
        )


FAMILIES = (
    Family(
        "xc7",
        "Xilinx 7 series",
        {**{f"LUT{inputs}": 1 for inputs in range(1, 7)}, "INV": 1, **LUT_MEMORY},
        "FD[RSCP]E",
        "DSP48E1",
        {"RAMB36E1": 1, "RAMB18E1": 0.5},
        {
            "XC7A35T": Parts(20_800, 41_600, 90, 50),
            "XC7A100T": Parts(63_400, 126_800, 240, 135),
            "XC7A200T": Parts(134_600, 269_200, 740, 365),
            "XC7K325T": Parts(203_800, 407_600, 840, 445),
            "XC7VX485T": Parts(303_600, 607_200, 2_800, 1_030),
            "XC7VX690T": Parts(433_200, 866_400, 3_600, 1_470),
            "XC7V2000T": Parts(1_221_600, 2_443_200, 2_160, 1_292),
        },
        "XC7A100T",
    ),
    Family(
        "ecp5",
        "Lattice ECP5",
        {"LUT4": 1, "INV": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6},
        "TRELLIS_FF",
        "MULT18X18D",
        {"DP16KD": 1, "PDPW16KD": 1},
        {
            "LFE5U-25F": Parts(24_288, 24_288, 28, 56),
            "LFE5U-45F": Parts(43_848, 43_848, 72, 108),
            "LFE5U-85F": Parts(83_640, 83_640, 156, 208),
        },
        "LFE5U-85F",
    ),
)
"""The families, with the sources of the devices' parts in fpga.md."""


@dataclass(frozen=True)
class Design:
    """One of the two designs: its modules, and results by flow and module."""

    hierarchy: Hierarchy
    results: Mapping[str, Mapping[str, Mapping[str, Any]]]

    def modules(self) -> dict[str, tuple[str, int]]:
        """Return the module and the number of instances of each block, by the name of the block."""
        shown = blocks(self.hierarchy, depth=DEPTH, least=0)
        return {block.name: (block.module, block.alike) for block in shown}

    def needs(self, family: Family, module: str) -> tuple[Parts, Sequence[str]]:
        """Return what a module needs with all below it, and the modules that have no result."""
        found = need(self.hierarchy, {"fpga": self.results[family.flow], "cells": {}}, module)
        return family.parts(found.fpga), found.missing["fpga"]


def measured(folder: Path, floats: bool, jobs: int, bounds: Bounds) -> Design:
    """Synthesise one of the designs for all families; modules of the other one are not made again."""
    place, other = (folder / name for name in ("whole", "integers")[:: 1 if floats else -1])
    hierarchy = core(place, replace(RK3588, floats=floats))
    results = {}
    for family in FAMILIES:
        (place / family.flow).mkdir(parents=True, exist_ok=True)
        for path in (other / family.flow).glob("*.json"):
            if not (place / family.flow / path.name).exists():
                shutil.copy(path, place / family.flow)

        def told(name: str, found: dict[str, Any], flow: str = family.flow) -> None:
            print(f"{flow:5} {name:60} {found.get('error') or str(found['seconds']) + ' s'}", flush=True)

        results[family.flow] = measure(
            hierarchy, family.flow, hierarchy.units, place, jobs=jobs, bounds=bounds, told=told
        )
    return Design(hierarchy, results)


def page(whole: Design, integers: Design, version: str) -> str:
    """Return the page."""
    intro = Path(__file__).with_suffix(".md").read_text("utf-8").rstrip()
    parts = [intro, f"Measured with {version}.", "## What fits", _fits(whole, integers)]
    for family in FAMILIES:
        parts += [f"## Blocks on {family.title}", _blocks(family, whole, integers)]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _fits(whole: Design, integers: Design) -> str:
    rows, holes = [], []
    for family in FAMILIES:
        asked = []
        for title, design in (("whole core", whole), ("without floats", integers)):
            parts, missing = design.needs(family, design.hierarchy.top)
            holes += [f"`{name}` ({family.title}, {title})" for name in missing]
            asked.append(parts)
        for device, has in family.devices.items():
            row = [device, *(_number(value) for value in has)]
            for parts in asked:
                shares = [100 * used / there for used, there in zip(parts, has, strict=True)]
                over = [f"{n} {share:,.0f} %" for n, share in zip(NAMES, shares, strict=True) if share > 100]
                most = max(zip(shares, NAMES, strict=True))
                row.append("no: " + ", ".join(over) if over else f"by numbers: {most[1]} {most[0]:.0f} %")
            rows.append(row)
    text = _table(("device", *NAMES, "whole core", "without floats"), rows)
    text += "".join(f"\n\n{_alone(family, integers)}" for family in FAMILIES)
    return text + (f"\n\nNot in the sums, because they have no result: {', '.join(holes)}." if holes else "")


def _alone(family: Family, design: Design) -> str:
    """Return a sentence about the parts of the core that a device of the family, `example`, can hold."""
    has = family.devices[family.example]
    parts = {name: module for name, (module, _) in design.modules().items() if "." not in name}
    large = [
        name
        for name, module in parts.items()
        if module != design.hierarchy.top
        and any(a > b for a, b in zip(design.needs(family, module)[0], has, strict=True))
    ]
    named = ", ".join(f"`{name}`" for name in large) or "none"
    return f"Parts of the core without floats that do not fit on one {family.example} alone: {named}."


def _blocks(family: Family, whole: Design, integers: Design) -> str:
    rows = []
    other = integers.modules()
    for name, (module, alike) in whole.modules().items():
        parts, missing = whole.needs(family, module)
        if "." in name and parts.luts < LEAST and not missing:
            continue
        row = [f"`{name}`" + (f" ({alike})" if alike > 1 else "")]
        row += [("> " if missing else "") + _number(value) for value in parts]
        if name in other:
            less, missing = integers.needs(family, other[name][0])
            same = less == parts
            row += ["" if same else ("> " if missing else "") + _number(value) for value in less]
        else:
            row += ["-"] * len(NAMES)
        rows.append(row)
    return _table(("block", *NAMES, *(f"{name}, without floats" for name in NAMES)), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.synthesis.fpga", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--page", type=Path, help="write the page to this file")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help=f"where results are kept (default: {FOLDER})"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="processes at the same time; 0: only what is known (default: 2)"
    )
    parser.add_argument("--seconds", type=int, default=1200, help="bound of one process (default: 1200)")
    parser.add_argument("--memory", type=int, default=8, help="bound of one process in GiB (default: 8)")
    given = parser.parse_args(arguments)
    bounds = Bounds(given.seconds, given.memory)
    try:
        integers, whole = (measured(given.folder, floats, given.jobs, bounds) for floats in (False, True))
    except SynthesisError as error:
        print(error)
        return 1
    if given.page:
        given.page.write_text(page(whole, integers, yosys().version), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
