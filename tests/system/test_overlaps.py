"""Outputs that overlap: of two atoms at one address, RTL and golden model leave the same one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from rkcosim.engines import open_engine
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance import overlaps
from rkcosim.verify.conformance.case import Case
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.conformance.runner import Runner
from tests import seeds

GROUPS = ("flying integers", "flying int4", "floats to floats", "unpooling", "conv int8", "depthwise fp16")
POOLS = ("pool int8", "pool fp16", "pool index", "dpu to ppu")
DISTANCES = (0, 1, 2, 3, 5, 9, 17, 33)
"""Atoms between surfaces, or between values and positions."""


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with open_engine("verilator", cores=1, on_diagnostic="go on") as device:
        yield Runner(device)


def bring_together(case: Case, path: str, field: str, atoms: int) -> None:
    """Set a distance, a field in units of atoms, in all tasks of a case."""
    name, _, member = path.partition(".")
    block = registers()[name]
    register = block[member]
    target, lsb = block.target, register.fields[field].lsb
    commands = case.commands.view("<u8")
    for at in np.flatnonzero(commands):
        word = int(commands[at])
        if word >> 48 == target and word & 0xFFFF == register.offset:
            low = word & ((1 << lsb) - 1) << 16
            commands[at] = target << 48 | atoms << lsb + 16 | low | register.offset


def run_cases(
    runner: Runner, group: str, distances: Sequence[tuple[str, str]], seed: int | None = None
) -> None:
    """Run cases of a group on both models, with each distance (register, field) drawn."""
    seed = seeds.seed(__name__) if seed is None else seed
    print("seed", seed)
    drawn = random.Random(seed)
    for number in range(8):
        try:
            case = draw_case(group, seed, number)
        except Refused:
            continue
        for path, field in distances:
            bring_together(case, path, field, drawn.choice(DISTANCES))
        outcome = runner.run(case)
        assert outcome.ok, (number, outcome.text())


@pytest.mark.parametrize("group", GROUPS)
def test_surfaces_that_are_closer_than_they_are_long(runner: Runner, group: str):
    run_cases(runner, group, [("DPU.DST_SURF_STRIDE", "DST_SURF_STRIDE")])


@pytest.mark.parametrize("group", POOLS)
def test_pooled_surfaces_and_positions_that_overlap(runner: Runner, group: str):
    run_cases(runner, group, [("PPU.DST_SURF_STRIDE", "DST_SURF_STRIDE"), ("PPU.DATA_FORMAT", "INDEX_ADD")])


@pytest.mark.parametrize(("group", "seed"), [("conv int8", 640360273)])
def test_seeds_that_failed(runner: Runner, group: str, seed: int):
    """The RTL went pixel by pixel where pixels share a place, so that another atom remained."""
    run_cases(runner, group, [("DPU.DST_SURF_STRIDE", "DST_SURF_STRIDE")], seed)


def test_every_writer_and_type(runner: Runner):
    """One case of each kind of the group of conformance that draws such outputs, all distances small."""
    seed = seeds.seed(__name__)
    print("seed", seed)
    for number in range(len(overlaps.KINDS)):
        outcome = runner.run(draw_case("overlapping outputs", seed, number))
        assert outcome.ok, (number, outcome.text())
