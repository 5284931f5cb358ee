"""Outputs that overlap: of two atoms at one address, RTL and golden model leave the same one."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.engines import open_engine
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.case import Case
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.conformance.runner import Runner

GROUPS = ("flying integers", "flying int4", "floats to floats", "unpooling", "conv int8", "depthwise fp16")
DPU_WRITE = 0x1001
"""Upper 16 bits of a command that writes a register of the DPU."""


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with open_engine("verilator", cores=1, on_diagnostic="go on") as device:
        yield Runner(device)


def bring_together(case: Case, atoms: int) -> None:
    """Set the distance of the surfaces that the DPU writes, in all tasks of a case."""
    (offset,) = (r.offset for block in registers() for r in block if r.path == "DPU.DST_SURF_STRIDE")
    commands = case.commands.view("<u8")
    for at in np.flatnonzero(commands):
        word = int(commands[at])
        if word >> 48 == DPU_WRITE and word & 0xFFFF == offset:
            commands[at] = DPU_WRITE << 48 | atoms << 20 | offset


@pytest.mark.parametrize("group", GROUPS)
def test_surfaces_that_are_closer_than_they_are_long(runner: Runner, group: str):
    seed = secrets.randbits(32)
    print("seed", seed)
    drawn = random.Random(seed)
    for number in range(6):
        try:
            case = draw_case(group, seed, number)
        except Refused:
            continue
        bring_together(case, drawn.choice([0, 1, 2, 3, 5, 9, 17, 33]))
        outcome = runner.run(case)
        assert outcome.ok, (number, outcome.text())
