"""Jobs of a core from its bus pins: what the host started, and the command lists that the PC fetched.

The watch port and the events, which only waveforms of the whole core have, are not needed. What the bus does
not show is not guessed: the start of a task inside of the core has no signal on the bus, so a task has cycles
only where the events are in the waveform.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from rkcosim.regcmd import Command, blocks_of_mask, disassemble
from rkcosim.regcmd.program import fetch_from, program_of_chain
from rkcosim.regcmd.tasks import FETCH_BYTES
from rkcosim.regcmd.word import WORD_BYTES, RegcmdError
from rkcosim.spec.regs import registers
from rkcosim.waves.accesses import Access
from rkcosim.waves.bursts import Burst, core_bursts
from rkcosim.waves.pins import BEAT_BYTES, has_group, spelled
from rkcosim.waves.ports import AXI_READ
from rkcosim.waves.reader import Reader, Value

_PC = registers()["PC"]
_CHAIN = ("BASE_ADDRESS", "REGISTER_AMOUNTS", "TASK_CON")
LIST_CLIENT = "PC"
"""The client that fetches command lists."""


@dataclass(frozen=True)
class JobTask:
    """One task of a job.

    Members
    -------
    index : index in the job.
    address : address of its command list; None if the task has none, or it is unknown.
    words : the words of the list; empty if the waveform does not show them.
    cycles : cycle in which each word arrived, None for one that did not.
    blocks : blocks that the task starts, as far as that is known.
    start, end : cycles of the events; None if the waveform does not contain them.
    """

    index: int
    address: int | None = None
    words: tuple[int, ...] = ()
    cycles: tuple[int | None, ...] = ()
    blocks: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None

    @cached_property
    def commands(self) -> list[Command]:
        """The decoded words."""
        return disassemble(self.words)


@dataclass(frozen=True)
class Job:
    """What one kick of the host started on a core.

    Members
    -------
    number : number of the kick, counted from 0 over all cores of the waveform.
    start : cycle in which the write that starts it was accepted.
    direct : True if the host has written the registers itself and starts blocks; False for command lists.
    tasks : its tasks; those whose lists the waveform does not show have no words.
    registers : values of the PC's registers at the start, by name, as far as the waveform shows them.
    end : cycle of the first sign of its end, None if there is none.
    ended_by : that sign: "irq" (the line rises), "status" (the host reads a status that is not 0) or "clear"
        (the host clears interrupts); "" without one. Only "irq" is the end itself.
    status : the first INTERRUPT_STATUS that the host has read since then, None if it has not.
    cleared : cycle in which the host has cleared interrupts since then, None if it has not.
    stopped : why further tasks are unknown; "" if all are known.
    """

    core: int
    number: int
    start: int
    direct: bool
    tasks: tuple[JobTask, ...]
    registers: Mapping[str, int] = field(default_factory=dict)
    end: int | None = None
    ended_by: str = ""
    status: int | None = None
    cleared: int | None = None
    stopped: str = ""


@dataclass
class _Kick:
    cycle: int
    blocks: list[str]  # of a direct start
    registers: dict[str, int]


def _kicks(accesses: Iterable[Access], ends: Sequence[int]) -> list[_Kick]:
    """Return the starts that the host writes, with the PC's registers then.

    Parameters
    ----------
    ends : cycles in which the interrupt line rises, in order.
    """
    found: list[_Kick] = []
    written: dict[str, int] = {}
    writes = [a for a in accesses if a.direction == "write" and a.whole and a.described]
    for access in sorted(writes, key=lambda access: access.accepted):
        register, value, cycle = access.described, access.value, access.accepted
        assert register is not None
        if value is None:
            continue
        if register.block == "PC" and register.name != "OPERATION_ENABLE":
            written[register.name] = value
            continue
        if register.path == "GLOBAL.OPERATION_ENABLE":
            blocks = blocks_of_mask(value)
        elif register.name == "OPERATION_ENABLE" and register.decode(value)["OP_EN"]:
            blocks = [] if register.block == "PC" else [register.block]
        else:
            continue
        if register.block == "PC":
            found.append(_Kick(cycle, [], dict(written)))
            continue
        last = found[-1] if found and found[-1].blocks else None
        ended = last is not None and bisect_right(ends, last.cycle) != bisect_right(ends, cycle)
        if last is None or ended or set(blocks) & set(last.blocks):
            if blocks:
                found.append(_Kick(cycle, blocks, dict(written)))
        else:  # the host starts the blocks of one task one after the other
            last.blocks += blocks
    return found


def fetched_beats(wave: Reader, core: int) -> list[tuple[int, int, bytes]]:
    """Return (cycle, address, bytes) of each beat that the PC has fetched; no beats without its pins."""
    if not has_group(wave, core, AXI_READ) or spelled(wave, core, "m_axi_rdata") is None:
        return []
    found: list[tuple[int, int, bytes]] = []

    def take(burst: Burst, cycle: int, value: Value) -> None:
        if burst.client == LIST_CLIENT and isinstance(value, int):
            address = burst.address + burst.bytes - BEAT_BYTES  # `bytes` includes this beat
            found.append((cycle, address, value.to_bytes(BEAT_BYTES, "little")))

    core_bursts(wave, core, take)
    return found


def _pieces(beats: Iterable[tuple[int, int, bytes]]) -> tuple[list[tuple[int, bytes]], dict[int, int]]:
    """Return (address, bytes) of each range without a gap, and the cycle of each beat by its address."""
    data = {address: content for _, address, content in beats}
    cycles = {address: cycle for cycle, address, _ in beats}
    runs: list[tuple[int, bytearray]] = []
    for address in sorted(data):
        if runs and runs[-1][0] + len(runs[-1][1]) == address:
            runs[-1][1].extend(data[address])
        else:
            runs.append((address, bytearray(data[address])))
    return [(address, bytes(content)) for address, content in runs], cycles


def _list_tasks(kick: _Kick, beats: Sequence[tuple[int, int, bytes]]) -> tuple[list[JobTask], str]:
    """Return the tasks of a kick's command lists, and why further ones are unknown."""
    pieces, cycles = _pieces(beats)
    fields = {name: _PC[name].decode(kick.registers.get(name, 0)) for name in _CHAIN}
    base = fields["BASE_ADDRESS"]["PC_SOURCE_ADDR"] * FETCH_BYTES
    amount = fields["REGISTER_AMOUNTS"]["PC_DATA_AMOUNT"]
    number = max(fields["TASK_CON"]["TASK_NUMBER"], 1)
    whole = fetch_from(pieces)

    def fetch(address: int, count: int) -> Sequence[int]:
        try:
            return whole(address, count)
        except RegcmdError:
            text = f"the fetch of {count} command words at 0x{address:X} is not in the waveform"
            raise RegcmdError(text) from None

    program = program_of_chain("list", fetch, base, amount, number)
    tasks = []
    for index, task in enumerate(program.tasks):
        assert task.address is not None
        first = task.address
        when = tuple(
            cycles.get((first + n * WORD_BYTES) // BEAT_BYTES * BEAT_BYTES) for n in range(len(task.words))
        )
        blocks = [
            block
            for command in task.commands
            if command.kind == "op_enable"
            for block in blocks_of_mask(command.value)
        ]
        tasks.append(JobTask(index, first, task.words, when, tuple(blocks)))
    if "BASE_ADDRESS" not in kick.registers:
        stopped = "PC.BASE_ADDRESS was written before the waveform begins"
    else:
        stopped = program.stopped
        if not tasks:
            tasks.append(JobTask(0, base))
    tasks += [JobTask(index) for index in range(len(tasks), program.number or 1)]
    return tasks, stopped


def core_jobs(
    wave: Reader,
    core: int,
    accesses: Sequence[Access],
    rises: Sequence[int],
    events: Sequence[tuple[int, int, int | None]],
) -> list[Job]:
    """Return the jobs of a core, numbered from 0 for this core.

    Parameters
    ----------
    accesses : the host's accesses to the core.
    rises : cycles in which the interrupt line rises, in order; empty if it is not in the waveform.
    events : (index, start, end) of tasks, if their events are in the waveform.
    """
    kicks = _kicks(accesses, rises)
    beats = fetched_beats(wave, core)
    found = []
    for place, kick in enumerate(kicks):
        until = kicks[place + 1].cycle if place + 1 < len(kicks) else wave.last + 1
        if kick.blocks:
            tasks, stopped = [JobTask(0, blocks=tuple(kick.blocks))], ""
        else:
            tasks, stopped = _list_tasks(kick, [beat for beat in beats if kick.cycle < beat[0] < until])
        for index, first, last in events:
            if kick.cycle <= first < until and index < len(tasks):
                tasks[index] = replace(tasks[index], start=first, end=last)
        inside = [a for a in accesses if a.end is not None and kick.cycle < a.accepted < until]
        rising = [cycle for cycle in rises if kick.cycle < cycle < until]
        end, ended_by = _end(kick, inside, rising)
        later = [a for a in inside if end is not None and (a.end or 0) >= end]
        status = next((a.value for a in later if _is(a, "read", "INTERRUPT_STATUS")), None)
        cleared = next((a.accepted for a in later if _is(a, "write", "INTERRUPT_CLEAR")), None)
        job = Job(core, place, kick.cycle, bool(kick.blocks), tuple(tasks), kick.registers)
        found.append(
            replace(job, end=end, ended_by=ended_by, status=status, cleared=cleared, stopped=stopped)
        )
    return found


def _is(access: Access, direction: str, register: str) -> bool:
    return access.direction == direction and access.described is _PC[register]


def _end(kick: _Kick, inside: Iterable[Access], rises: Sequence[int]) -> tuple[int | None, str]:
    """Return the first sign of a job's end, and which one it is."""
    if rises:
        return rises[0], "irq"
    mask = kick.registers.get("INTERRUPT_MASK", _PC["INTERRUPT_MASK"].reset)
    for access in sorted(inside, key=lambda access: access.end or 0):
        status = _is(access, "read", "INTERRUPT_STATUS") or _is(access, "read", "INTERRUPT_RAW_STATUS")
        if status and access.value is not None and access.value & mask:
            return access.end, "status"
        if _is(access, "write", "INTERRUPT_CLEAR") and access.value:
            return access.accepted, "clear"
    return None, ""
