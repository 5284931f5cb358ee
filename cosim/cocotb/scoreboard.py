"""Scoreboard: the same stream on the task-level golden model, and all memory compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cosim.cocotb.agent import IRQ_CYCLES, NpuAgent
from cosim.cocotb.values import RunResult, words_stream
from cosim.crosscheck.kick import run_kick
from cosim.golden.task import GoldenError, GoldenNpu, Memory, TaskReport
from cosim.streams.stream import Region, Stream
from sw.driver.job import fold_interrupts


class Mismatch(AssertionError):
    """Core and golden model differ; the text names region, task and address of the first difference."""


@dataclass(frozen=True)
class Checked:
    """A stream that matched: what the core did, what the golden model did, bytes compared."""

    run: RunResult
    reports: Sequence[TaskReport]
    bytes: int


class Scoreboard:
    """Runs streams on a core and on the golden model, which lives through the same streams and resets.

    Parameters
    ----------
    agent
        of the core; its memory is what the golden model starts from.

    Members
    -------
    checked : streams that matched so far.
    """

    def __init__(self, agent: NpuAgent) -> None:
        self.agent = agent
        self.checked: list[Checked] = []
        self.golden = GoldenNpu(agent.core + 1, strict=False, options=agent.options)
        agent.on_reset.append(lambda: self.golden.reset(1 << agent.core))

    async def run(self, stream: Stream | Iterable[int], bound_cycles: int = IRQ_CYCLES) -> Checked:
        """Run a stream (or the words of one task) on both, and compare.

        Compared are all mapped bytes, the interrupt status and the diagnostics.

        Raises
        ------
        Mismatch
            at the first difference.
        InterruptTimeout, DiagnosticFound
            as `NpuAgent.run_stream`.
        GoldenError
            when the golden model refuses the stream (not strict: only what it cannot run).
        """
        agent = self.agent
        if not isinstance(stream, Stream):
            stream = words_stream(stream, agent.core)
        agent.load(stream)
        golden, memory = self.golden, Memory()
        for start, size in agent.memory.ranges.items():
            memory.map(start, size)[:] = np.frombuffer(agent.memory.read(start, size), np.uint8)
        golden.memory = memory
        for device in golden.devices:
            device.memory = memory
        said, ran = len(golden.diagnostics()), len(golden.reports[agent.core])
        before = len(agent.log.diagnostics)
        result = await agent.run_stream(stream, bound_cycles, load=False)
        try:
            twin = run_kick(golden, stream.kick, agent.core, writes=stream.writes)
        except GoldenError as error:
            raise Mismatch(f"the core ends, but the golden model refuses: {error}") from error
        if not twin.done:
            raise Mismatch(
                f"the core ends after {result.cycles} cycles, but the golden model hangs: {twin.state}"
            )
        reports = golden.reports[agent.core][ran:]
        compared = self._memory(stream, golden, reports)
        # Which of its two groups a block has used depends on all it did before.
        if fold_interrupts(result.status) != fold_interrupts(twin.status):
            raise Mismatch(f"PC.INTERRUPT_STATUS is {result.status:#x}, golden {twin.status:#x}")
        mine = {(d.code, d.register) for d in agent.log.diagnostics[before:]}
        theirs = {(f.code, f"{f.block}.{f.register.split('.')[0]}") for f in golden.diagnostics()[said:]}
        if mine != theirs:
            raise Mismatch(f"diagnostics differ: core {sorted(mine)}, golden {sorted(theirs)}")
        checked = Checked(result, reports, compared)
        self.checked.append(checked)
        return checked

    def _memory(self, stream: Stream, golden: GoldenNpu, reports: Sequence[TaskReport]) -> int:
        total = 0
        first: tuple[int, int, int] | None = None
        differing = 0
        for start, size in sorted(self.agent.memory.ranges.items()):
            total += size
            core = np.frombuffer(self.agent.memory.read(start, size), np.uint8)
            wanted = golden.memory.view(start, size)
            where = np.flatnonzero(core != wanted)
            differing += where.size
            if where.size and first is None:
                at = int(where[0])
                first = start + at, int(core[at]), int(wanted[at])
        if first is None:
            return total
        address, mine, theirs = first
        names = [
            f"region '{r.name}' + {address - r.address:#x}" for r in stream.regions if _inside(address, r)
        ]
        place = names[0] if names else "outside the stream's regions"
        writers = [
            f"task {report.index} ({move.client})"
            for report in reports
            for move in report.writes
            if any(low <= address < low + size for low, size in move.ranges)
        ]
        wrote = (
            f"written by {writers[-1]} of the golden run" if writers else "which the golden run leaves alone"
        )
        raise Mismatch(
            f"first difference at {address:#010x} ({place}), {wrote}: "
            f"core {mine:#04x}, golden {theirs:#04x}; {differing} of {total} bytes differ"
        )


def _inside(address: int, region: Region) -> bool:
    return region.address <= address < region.address + region.data.size
