"""One kick on the golden model, word by word, forwards and backwards."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task import GoldenError, GoldenNpu, Memory
from rkcosim.golden.task.context import Finding, TaskReport
from rkcosim.golden.task.device import DeviceState, GoldenDevice
from rkcosim.golden.task.errors import GoldenHang, MemoryFault
from rkcosim.golden.task.memory import atom_ranges
from rkcosim.regcmd.disassembler import Command, decode_word
from rkcosim.regcmd.word import RegcmdError
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import kick_writes
from rkcosim.verify.streams.contents import StreamContents

T = TypeVar("T")

MOST_STATES = 64
"""Number of states of the core that a kick keeps; beyond it every other one is dropped."""

MOST_BYTES = 256 << 20
"""Bytes of overwritten memory that a kick keeps; beyond it the oldest are dropped."""


class LoggedMemory(Memory):
    """The golden model's memory, which keeps the bytes that are overwritten.

    Members
    -------
    log : (address, the bytes before) of each write, oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[int, NDArray[np.uint8]]] = []

    def scatter(self, addresses: NDArray[np.int64], atoms: NDArray[np.uint8]) -> None:
        """Write one atom at each address, see `Memory.scatter`."""
        for start, size in atom_ranges(addresses & ~np.int64(15)):
            self._keep(start, size)
        super().scatter(addresses, atoms)

    def _keep(self, start: int, size: int) -> None:
        try:
            before = self.view(start, size)
        except MemoryFault:
            return  # the write itself reports it, before it changes anything
        self.log.append((start, before.copy()))

    def take_back(self, entries: list[tuple[int, NDArray[np.uint8]]]) -> None:
        """Write the bytes of a log back, the newest first."""
        for start, data in reversed(entries):
            self.view(start, data.size)[:] = data


@dataclass
class _Kept:
    """A state at the start of a task, and what was overwritten from there to the next kept state."""

    task: int
    state: DeviceState
    overwritten: list[tuple[int, NDArray[np.uint8]]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(data.size for _, data in self.overwritten)


@dataclass
class Executed:
    """What one step has done.

    Members
    -------
    task, word : number of the task, and index of the first executed word.
    words : the executed words.
    reports : activity of the blocks that ran.
    findings : diagnostics.
    events : interrupt events that were raised, as bits of RAW_STATUS.
    """

    task: int
    word: int
    words: list[int] = field(default_factory=list)
    reports: list[TaskReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    events: int = 0

    @property
    def commands(self) -> list[Command]:
        """The executed words, decoded."""
        return [decode_word(one, number) for number, one in enumerate(self.words, self.word)]


@dataclass(frozen=True)
class Reach:
    """How far the kept states of a kick reach back, and what they cost.

    Members
    -------
    tasks : tasks at whose start a state is kept; earlier ones are reached by running again from the start.
    states, overwritten : bytes of the states, and of the overwritten memory.
    """

    tasks: tuple[int, ...]
    states: int
    overwritten: int


class SteppedKick:
    """A kick on the golden model that stops before each word or task and can be put back.

    States are kept at the starts of tasks. A position between them is reached from the one before it by
    running again, which gives the same bytes. Where no state is kept any more, the kick runs again from its
    start.

    Parameters
    ----------
    stream : what runs.
    most_states, most_bytes : bounds of what is kept.

    Members
    -------
    memory : memory of the core.
    device : registers and blocks of the core.
    end : why the kick runs no further, "" while it does: "done" (all tasks have run), "hang" or "error".
    reason : the text of the error.
    """

    def __init__(
        self, stream: StreamContents, *, most_states: int = MOST_STATES, most_bytes: int = MOST_BYTES
    ) -> None:
        if stream.kick.slave:
            raise RegcmdError(
                "the stream runs in slave mode: the host writes the registers, and there is no command list "
                "to step through"
            )
        if most_states < 2 or most_bytes < 1:
            raise ValueError(f"at least 2 states and 1 byte must be kept, not {most_states} and {most_bytes}")
        self.stream = stream
        self._most_states, self._most_bytes = most_states, most_bytes
        self.memory = LoggedMemory()
        stream.load_into(self.memory)
        self._begin()

    def _begin(self) -> None:
        """Go to the start of the kick, with the memory as it is."""
        self._npu = GoldenNpu(self.stream.core + 1, strict=False, memory=self.memory)
        self.device: GoldenDevice = self._npu.devices[self.stream.core]
        self.end = self.reason = ""
        self._kept: list[_Kept] = []
        self.memory.log = []
        before, _ = kick_writes(self.stream.kick, self.stream.core, self.stream.writes)
        for offset, value in before:
            self._npu.write32(self.stream.core, offset, value)
        self._go(self.device.begin_kick())

    def _go(self, iterator: Iterator[None]) -> None:
        """Take an iterator of the device, and run it to the point before its first word."""
        self._iterator = iterator
        self.device.pause = "word"
        self._advance()
        self._keep()

    def _advance(self) -> None:
        """Run to the next pause; sets `end` where the kick ends."""
        try:
            next(self._iterator)
        except StopIteration:
            self.end = "done"
        except GoldenHang as hang:
            self.end, self.reason = "hang", str(hang)
        except (GoldenError, MemoryFault) as error:
            self.end, self.reason = "error", str(error)

    def _keep(self) -> None:
        """Keep the state at the start of a task."""
        task, _, word = self.device.position
        if self.end or word or (self._kept and self._kept[-1].task >= task):
            return
        if self._kept:
            self._kept[-1].overwritten += self.memory.log
        self.memory.log, held = [], sum(kept.size for kept in self._kept)
        before = self._kept[-1].state if self._kept else None
        self._kept.append(_Kept(task, self.device.saved(before)))
        while held > self._most_bytes and len(self._kept) > 1:
            held -= self._kept.pop(0).size
        if len(self._kept) > self._most_states:
            self._thin()

    def _thin(self) -> None:
        """Drop every other state of the older half; what was overwritten after it goes to the one before."""
        half = len(self._kept) // 2
        thinned: list[_Kept] = []
        for number, kept in enumerate(self._kept[:half]):
            if number % 2:
                thinned[-1].overwritten += kept.overwritten
            else:
                thinned.append(kept)
        self._kept[:half] = thinned

    # -- positions -------------------------------------------------------------------------------

    @property
    def place(self) -> tuple[int, int]:
        """The task, and the index of the word that is executed next; after the end, that behind the last."""
        task, _, word = self.device.position
        return task, word

    @property
    def list_address(self) -> int:
        """Address of the list of the task."""
        return self.device.position[1]

    @property
    def words(self) -> list[int]:
        """Words of the task's list, as the PC fetched them."""
        return self.device.list_words

    @property
    def reach(self) -> Reach:
        """How far back the kept states reach, and what they cost."""
        images = {id(kept.state.buffer): kept.state.buffer.nbytes for kept in self._kept}
        size = sum(images.values()) + sum(kept.state.size for kept in self._kept)
        overwritten = sum(kept.size for kept in self._kept) + sum(data.size for _, data in self.memory.log)
        return Reach(tuple(kept.task for kept in self._kept), size, overwritten)

    @property
    def interrupt(self) -> int:
        """PC.INTERRUPT_STATUS: the events that the mask lets through."""
        return self.device.raw & self.device.space.value("PC", "INTERRUPT_MASK")

    # -- forwards --------------------------------------------------------------------------------

    def step(self, whole: bool = False) -> Executed:
        """Execute the next word, or with `whole` all words up to the start of the next task.

        Returns
        -------
        What was done; nothing after the end of the kick.
        """
        device, (task, word) = self.device, self.place
        done = Executed(task, word)
        if self.end:
            return done
        reports, findings, raw, words = (
            len(device.reports),
            len(device.findings),
            device.raw,
            device.list_words,
        )
        device.pause = "task" if whole else "word"
        self._advance()
        after = len(words) if whole or self.place[0] != task else self.place[1]
        done.words = words[word:after]
        done.reports, done.findings = device.reports[reports:], list(device.findings[findings:])
        done.events = device.raw & ~raw
        self._keep()
        return done

    # -- backwards -------------------------------------------------------------------------------

    def go_to(self, task: int, word: int = 0) -> None:
        """Go to a position before the present one, or run to a later one.

        Parameters
        ----------
        task, word : as `place`.
        """
        if (task, word) < self.place or self.end:
            self._put_back(task)
        while not self.end and self.place[0] < task:
            self.step(whole=True)
        while not self.end and self.place < (task, word):
            self.step()

    def _put_back(self, task: int) -> None:
        """Return to the latest kept state at or before the start of a task, or to the start of the kick."""
        at = bisect.bisect_right([kept.task for kept in self._kept], task) - 1
        if at < 0:
            self._restart()
            return
        self._kept[-1].overwritten += self.memory.log
        for kept in reversed(self._kept[at:]):
            self.memory.take_back(kept.overwritten)
        kept = self._kept[at]
        kept.overwritten, self.memory.log = [], []
        del self._kept[at + 1 :]
        self._resume(kept.state)

    def _resume(self, state: DeviceState) -> None:
        """Put the core back, and go to the pause before its next word."""
        self.device.put_back(state)
        self.end = self.reason = ""
        self._iterator = self.device.resume_kick()
        self.device.pause = "word"
        next(self._iterator)

    def _restart(self) -> None:
        for address, size in self.memory.regions():
            self.memory.view(address, size)[:] = 0
        for region in self.stream.regions:
            self.memory.write(region.address, region.data)
        self._begin()

    # -- trials ----------------------------------------------------------------------------------

    def trial(self, changes: Mapping[tuple[str, str], int], look: Callable[[Memory, Executed], T]) -> T | str:
        """Run the present task again with other field values, and take everything back.

        Parameters
        ----------
        changes : (`BLOCK.REGISTER`, field) -> value, put into the registers before the blocks start.
        look : called with the memory and what was done after the task; its result is returned.

        Returns
        -------
        The result of `look`, or the text of the error with which the task ended.

        Raises
        ------
        ValueError
            if the kick does not stand at the start of a task, or a value does not fit its field.
        """
        task, word = self.place
        if word or self.end:
            raise ValueError("a trial begins at the start of a task")
        state, log = self.device.saved(self._kept[-1].state if self._kept else None), self.memory.log
        self.memory.log = []
        try:
            done = self._tried(task, changes)
            return self.reason if self.end in ("hang", "error") else look(self.memory, done)
        finally:
            self.memory.take_back(self.memory.log)
            self.memory.log = log
            self._resume(state)

    def _tried(self, task: int, changes: Mapping[tuple[str, str], int]) -> Executed:
        """Execute the words of a task, with changes before its op-enable word."""
        done = Executed(task, 0)
        enable = registers()["PC"]["OPERATION_ENABLE"].offset
        space, device = self.device.space, self.device
        reports = len(device.reports)
        device.pause = "word"
        while not self.end and self.place[0] == task:
            word = decode_word(device.list_words[self.place[1]])
            if word.kind == "op_enable" and word.offset == enable:
                for (path, name), value in changes.items():
                    block, _, register_name = path.partition(".")
                    register = registers()[block][register_name]
                    group = space.blocks[block].groups[space.blocks[block].pointer]
                    before = group.get(register.offset, register.reset)
                    group[register.offset] = register.update(before, **{name: value})
            self._advance()
        done.reports = device.reports[reports:]
        return done
