"""Random streams from the conformance generator, no larger than the geometry under test takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from cosim.conformance.case import Case
from cosim.conformance.choices import Refused
from cosim.conformance.groups import GROUPS, draw_case
from cosim.crosscheck.kick import run_kick
from cosim.crosscheck.program import Task
from cosim.golden.task import GoldenError, GoldenNpu
from cosim.streams.stream import Stream
from rtl.config import NpuConfig

TRIES = 500
"""Draws in a row that may be too large before the group counts as having nothing that fits."""

MAX_CYCLES = 20_000
"""Nominal cycles of the golden model that a drawn kick may take."""


@dataclass(frozen=True)
class Drawn:
    """A drawn stream: its group, its name (SEED/INDEX repeats it), what its tasks are."""

    group: str
    name: str
    stream: Stream
    text: str


def random_streams(
    group: str,
    seed: int,
    count: int,
    *,
    geometry: str | NpuConfig | None = None,
    max_cycles: int = MAX_CYCLES,
) -> Iterator[Drawn]:
    """Draw streams of one group of `rkcosim conformance`; the same numbers give the same streams.

    Only kicks that end, without diagnostics, faults or slave mode.

    Parameters
    ----------
    group
        a name in `cosim.conformance.groups.GROUPS`, as "pool int8", "conv fp16", "flying integers".
    count
        number of streams.
    geometry
        tasks whose data do not fit its CBUF whole are left out; None: the one that `simulate` runs, else
        "rk3588".
    max_cycles
        leave out kicks above so many nominal cycles of the golden model.

    Raises
    ------
    ValueError
        for an unknown group, or one that has nothing that fits.
    """
    from cosim.cocotb import sources

    if group not in GROUPS:
        raise ValueError(f"unknown group {group!r}; known: {', '.join(GROUPS)}")
    config = sources.geometry(geometry or os.environ.get("RKCOSIM_GEOMETRY", "rk3588"))
    index, given, since = 0, 0, 0
    while given < count:
        if since == TRIES:
            raise ValueError(
                f"{TRIES} draws of {group!r} in a row do not fit {config.name} in {max_cycles} cycles"
            )
        since += 1
        try:
            case = draw_case(group, seed, index)
        except Refused:
            index += 1
            continue
        index += 1
        if _plain(case) and fits(case.plan.tasks, config) and _nominal(case) <= max_cycles:
            given, since = given + 1, 0
            yield Drawn(group, f"{seed}/{index - 1}", case.stream(), case.text())


def _plain(case: Case) -> bool:
    plan = case.plan
    return not (
        plan.hang or plan.fault or plan.diagnostics or plan.reset or plan.slave or plan.loop or plan.probes
    )


def fits(tasks: list[Task], config: NpuConfig) -> bool:
    """Whether features and weights of every convolution lie in the banks of a geometry, all at once."""
    for task in tasks:
        if "CNA" not in task.blocks:
            continue
        cna = {name: values for (block, name), values in task.fields.items() if block == "CNA"}
        banks = cna["CBUF_CON0"]
        entries = cna["CBUF_CON1"].get("DATA_ENTRIES", 0) * cna["DATA_SIZE0"].get("DATAIN_HEIGHT", 0)
        if entries > banks.get("DATA_BANK", 0) * config.bank_entries:
            return False
        if cna["WEIGHT_SIZE0"].get("WEIGHT_BYTES", 0) > banks.get("WEIGHT_BANK", 0) * config.cbuf_bank_bytes:
            return False
    return True


def _nominal(case: Case) -> int:
    """Nominal cycles of a case, more than any bound where the golden model refuses it."""
    golden = GoldenNpu(1, strict=False)
    for address, data in case.regions:
        golden.memory.map(address, data.size)[:] = data
    try:
        result = run_kick(golden, case.kick, 0, writes=case.plan.writes)
    except GoldenError:
        return 1 << 62
    return result.cycles if result.done and not golden.diagnostics() else 1 << 62
