"""Random streams from the conformance generator that fit the geometry under test."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

from rkcosim.export import designs
from rkcosim.golden.task import GoldenError, GoldenNpu
from rkcosim.spec.config import NpuConfig
from rkcosim.verify.conformance.case import Case
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.groups import GROUPS, draw_case
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.crosscheck.program import Task
from rkcosim.verify.streams.stream import Stream

TRIES = 500
"""Number of consecutive draws that may be too large before a group counts as having none that fits."""

MAX_CYCLES = 20_000
"""Maximum number of nominal golden-model cycles of a drawn kick."""


@dataclass(frozen=True)
class Drawn:
    """A drawn stream: its group, its name (SEED/INDEX repeats it), a description of its tasks."""

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
    """Draw streams of one group of `rkcosim conformance`; equal arguments give the same streams.

    Only kicks that end are drawn, without diagnostics, faults or slave mode.

    Parameters
    ----------
    group : a name in `rkcosim.verify.conformance.groups.GROUPS`, as "pool int8", "conv fp16", "flying
        integers".
    count : number of streams.
    geometry : tasks whose data do not fit its CBUF completely are left out; None: the geometry that
        `simulate` runs, else "rk3588".
    max_cycles : leave out kicks with more nominal cycles of the golden model.

    Raises
    ------
    ValueError
        for an unknown group, or one without a stream that fits.
    """
    if group not in GROUPS:
        raise ValueError(f"unknown group {group!r}; known: {', '.join(GROUPS)}")
    config = geometry or os.environ.get("RKCOSIM_GEOMETRY", "rk3588")
    if not isinstance(config, NpuConfig):
        config = designs.geometry(config)
    given = last = 0
    for index in itertools.count():
        if given == count:
            return
        if index - last == TRIES:
            raise ValueError(
                f"{TRIES} draws of {group!r} in a row do not fit {config.name} in {max_cycles} cycles"
            )
        with contextlib.suppress(Refused):
            case = draw_case(group, seed, index)
            if _plain(case) and fits(case.plan.tasks, config) and _nominal(case) <= max_cycles:
                given, last = given + 1, index + 1
                yield Drawn(group, f"{seed}/{index}", case.stream(), case.text())


def _plain(case: Case) -> bool:
    special = ("hang", "fault", "diagnostics", "reset", "slave", "loop", "probes")
    return not any(getattr(case.plan, name) for name in special)


def fits(tasks: list[Task], config: NpuConfig) -> bool:
    """Return whether features and weights of every convolution fit the banks of a geometry at once."""
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
    """Return the nominal cycles of a case, above any bound if the golden model refuses it."""
    golden = GoldenNpu(1, strict=False)
    for address, data in case.regions:
        golden.memory.map(address, data.size)[:] = data
    try:
        result = run_kick(golden, case.kick, 0, writes=case.plan.writes)
    except GoldenError:
        return 1 << 62
    return result.cycles if result.done and not golden.diagnostics() else 1 << 62
