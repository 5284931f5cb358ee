"""Scoreboard: runs the same stream on the task-level golden model and compares all memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rkcosim.cocotb.agent import IRQ_CYCLES, NpuAgent
from rkcosim.cocotb.stimulus import Drawn
from rkcosim.cocotb.values import RunResult, words_stream
from rkcosim.golden.task import GoldenError, GoldenNpu, TaskReport
from rkcosim.regcmd.job import fold_interrupts
from rkcosim.verify.crosscheck.compare import compare_images, copy_memory
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.streams.stream import Stream


class Mismatch(AssertionError):
    """Core and golden model differ; the message names region, task and address of the first difference."""


@dataclass(frozen=True)
class Checked:
    """A stream that matched: results of the core and of the golden model, number of compared bytes."""

    run: RunResult
    reports: Sequence[TaskReport]
    bytes: int


class Scoreboard:
    """Runs streams on a core and on a golden model that processes the same streams and resets.

    Parameters
    ----------
    agent : agent of the core; the golden model starts with its memory.

    Members
    -------
    checked : streams that matched so far.
    """

    def __init__(self, agent: NpuAgent) -> None:
        self.agent = agent
        self.checked: list[Checked] = []
        self.golden = GoldenNpu(agent.core + 1, strict=False, options=agent.options)
        agent.on_reset.append(lambda: self.golden.reset(1 << agent.core))

    async def run(self, stream: Stream | Drawn | Iterable[int], bound_cycles: int = IRQ_CYCLES) -> Checked:
        """Run a stream (one of `random_streams`, or the words of one task) on both, and compare.

        All mapped bytes, the interrupt status and the diagnostics are compared.

        Raises
        ------
        Mismatch
            at the first difference.
        InterruptTimeout, DiagnosticFound
            as `NpuAgent.run_stream`.
        GoldenError
            if the golden model refuses the stream (not strict: only what it cannot run).
        """
        agent = self.agent
        if isinstance(stream, Drawn):
            stream = stream.stream
        if not isinstance(stream, Stream):
            stream = words_stream(stream, agent.core)
        agent.load(stream)
        golden, memory = self.golden, copy_memory(agent.memory)
        golden.memory = memory
        for device in golden.devices:
            device.memory = memory
        said, ran = len(golden.diagnostics()), golden.reports[agent.core].total
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
        reports = golden.reports[agent.core].since(ran)
        compared = self._memory(stream, golden, reports)
        # Which of its two groups a block has used depends on its whole history.
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
        """Compare all mapped memory; return the number of bytes."""
        ranges = self.agent.memory.ranges.items()
        total = sum(size for _, size in ranges)
        found = compare_images(self.agent.memory, golden.memory, ranges)
        if found is None:
            return total
        at = found.address
        places = [
            f"region '{region.name}' + {at - region.address:#x}"
            for region in stream.regions
            if region.address <= at < region.address + region.data.size
        ]
        writers = [
            f"written by task {report.index} ({move.client}) of the golden run"
            for report in reports
            for move in report.writes
            if any(low <= at < low + size for low, size in move.ranges)
        ]
        raise Mismatch(
            f"first difference at {at:#010x} ({[*places, 'outside of the regions of the stream'][0]}), "
            f"{['which the golden run does not write', *writers][-1]}: "
            f"core {found.rtl:#04x}, golden {found.golden:#04x}; {found.count} of {total} bytes differ"
        )
