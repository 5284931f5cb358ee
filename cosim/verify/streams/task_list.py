"""Task lists written in Python: registers by name, numpy arrays as buffers, one object to run and compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from rkcosim.driver.core_port import Kick
from rkcosim.engines.arrays import PAGE, checked
from rkcosim.regcmd.disassembler import decode_word
from rkcosim.regcmd.job import completion_mask
from rkcosim.regcmd.listing import address_field, parse_listing
from rkcosim.regcmd.named import NamedRegisters, Value, named
from rkcosim.regcmd.program import ListedTask, link_of, program_of_words
from rkcosim.regcmd.tasks import TAIL_WORDS, TASK_ALIGN, TaskBuilder, task_list_bytes
from rkcosim.regcmd.word import WORD_BYTES, RegcmdError, blocks_of_mask, register_word, words_to_bytes
from rkcosim.spec.regs import Field, Register, registers
from rkcosim.verify.streams.contents import Region
from rkcosim.verify.streams.stream import (
    MAX_CYCLES,
    Stream,
    WorkWithSettings,
    listing_table,
    run_work,
)

if TYPE_CHECKING:
    from rkcosim.engines.engine import AnyEngine
    from rkcosim.verify.streams.findings import LintFindings
    from rkcosim.verify.streams.runs import StreamResult, StreamRun, StreamVerdict

FIRST = 0x0010_0000
"""Default address of the commands."""

ROOM = 0x0100_0000
"""Bytes for commands; the buffers are behind them."""

OWN_POINTERS = ("DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
"""Blocks whose S_POINTER the task lists write; the host writes those of CNA and CORE [HW 1.7]."""

TOGGLES = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
"""Fields of S_POINTER with which each task uses the other register group than the one before [HW 1.7]."""


class TaskBuffer:
    """A named array of a task list.

    Members
    -------
    name : its name.
    address : address of its first byte, where the list is placed by default.
    array : the contents before the run; they may be changed until then.
    fixed : True if the address was given, so that it does not move with the list.
    """

    def __init__(self, name: str, address: int, array: npt.NDArray[Any], fixed: bool) -> None:
        self.name, self.address, self.array, self.fixed = name, address, array, fixed

    def __index__(self) -> int:
        return self.address

    def __add__(self, offset: int) -> BufferPlace:
        return BufferPlace(self, offset)

    def __repr__(self) -> str:
        shape = f"{self.array.dtype} {list(self.array.shape)}"
        return f"<buffer {self.name!r}: {shape} at 0x{self.address:08X}>"


class BufferPlace:
    """A byte of a buffer: `buffer + 64`."""

    def __init__(self, buffer: TaskBuffer, offset: int) -> None:
        self.buffer, self.offset = buffer, offset

    def __index__(self) -> int:
        return self.buffer.address + self.offset

    def __add__(self, offset: int) -> BufferPlace:
        return BufferPlace(self.buffer, self.offset + offset)


class ListTask(NamedRegisters):
    """A task of a `TaskList`: register writes in order, and the blocks that it starts.

    `task["PPU.DATA_FORMAT"]` is the value of a register, `task["PPU.DATA_FORMAT.INDEX_ADD"]` that of a field;
    assigning changes the last write of the register, or adds one.

    Members
    -------
    name : name in messages.
    blocks : the blocks that it starts.
    """

    def __init__(self, tasks: TaskList, builder: TaskBuilder, address: int | None = None) -> None:
        self._list, self.builder, self.address = tasks, builder, address
        self.moving: set[int] = set()
        """Indices of the words whose values move with the list."""

    @property
    def name(self) -> str:
        """Name in messages."""
        return self.builder.name

    @property
    def blocks(self) -> list[str]:
        """Blocks that the task starts."""
        return self.builder.blocks

    def set(
        self, register: str | Mapping[str, Any], value: Value | None = None, /, **fields: Value
    ) -> ListTask:
        """Append a write of a register; the last write of a register counts.

        Parameters
        ----------
        register : `BLOCK.REGISTER`, whose 32 bits are written; or `BLOCK.REGISTER.FIELD`, which changes the
            field and keeps the others; or a mapping of such names to values.
        value : a number (an address is in bytes), the name of a code of the field ("MAX"), or a buffer, its
            name, or `buffer + offset` for an address register.
        fields : instead of a value: the fields of the register by name; those that are not named are 0.

        Raises
        ------
        RegcmdError
            for an unknown name or a value out of range; the message has task, word, register, field and
            limits.
        """
        if isinstance(register, Mapping):
            for path, one in register.items():
                self.set(path, one)
            return self
        try:
            described, field = named(register)
            if field is not None or (value is not None and not fields):
                if value is None or fields:
                    raise RegcmdError("a field takes one value and no other fields")
                if field is not None:
                    self[register] = value
                else:
                    self._write(described, self._number(described, None, value))
            elif value is not None:
                raise RegcmdError("give either a value or fields")
            else:
                self._fields(described, fields)
        except (ValueError, TypeError) as error:
            raise RegcmdError(f"{self.name}, word {len(self)} ({register}): {error}") from error
        return self

    def _fields(self, register: Register, fields: Mapping[str, Value]) -> None:
        known: dict[str, int | str] = {}
        moves = False
        for name, value in fields.items():
            field = named(f"{register.path}.{name}")[1]
            number, moving = self._meant(register, field, value)
            known[name] = number if isinstance(number, str) else number.__index__()
            moves |= moving
        self._put(None, register_word(register, register.encode(**known)), moves)

    def _number(self, register: Register, field: Field | None, value: Value) -> tuple[int, bool]:
        from rkcosim.regcmd.named import encoded

        number, moves = self._meant(register, field, value)
        return encoded(register, field, number), moves

    def _write(self, register: Register, number: tuple[int, bool]) -> None:
        self._put(None, register_word(register, number[0]), number[1])

    def find_addresses(self) -> None:
        """Let the addresses in buffers move with the list, of words that were read."""
        spans = [(b.address, b.address + b.array.nbytes) for b in self._list.buffers.values()]
        for index, word in enumerate(self.builder.body):
            command = decode_word(word)
            field = None if command.register is None else address_field(command.register)
            if field is not None:
                address = (command.value & field.mask) + self._list.dma_base
                if any(first <= address < end for first, end in spans):
                    self.moving.add(index)

    def _current(self) -> list[int]:
        return self.builder.body

    def _put(self, index: int | None, word: int, moves: bool) -> None:
        if index is None:
            index = len(self.builder.body)
            self.builder.raw(word)
        else:
            self.builder.replace(index, word)
        if moves:
            self.moving.add(index)
        else:
            self.moving.discard(index)

    def _meant(self, register: Register, field: Field | None, value: Any) -> tuple[Value, bool]:
        """Return the address of a buffer, in units of the field, or the value itself."""
        only = field or (next(iter(register.fields.values())) if len(register.fields) == 1 else None)
        if isinstance(value, str):
            if (only is not None and only.enum and value in only.enum) or value not in self._list.buffers:
                if value in self._list.buffers or only is None or only.enum:
                    return value, False
                known = ", ".join(self._list.buffers) or "none"
                raise RegcmdError(
                    f"{value!r} is neither a code of {register.path} nor a buffer (buffers: {known})"
                )
            value = self._list.buffers[value]
        if not isinstance(value, TaskBuffer | BufferPlace):
            return value, False
        buffer = value if isinstance(value, TaskBuffer) else value.buffer
        if only is None or only is not address_field(register):
            raise RegcmdError(f"{register.path} is no address register and cannot take {buffer!r}")
        address = value.__index__()
        if address % (1 << only.lsb):
            raise RegcmdError(f"0x{address:X} is not a multiple of {1 << only.lsb}")
        return address >> (only.lsb if field is not None else 0), not buffer.fixed

    def __str__(self) -> str:
        from rkcosim.regcmd.disassembler import disassemble, format_command

        return "\n".join(format_command(command) for command in disassemble(self.builder.words()))

    def __repr__(self) -> str:
        return f"<task {self.name!r}: {len(self)} words, {' '.join(self.blocks) or 'no block'}>"

    def _repr_html_(self) -> str:
        return listing_table(repr(self)[1:-1], [self.builder.words()])


class TaskList(Sequence[ListTask]):
    """Tasks that one core runs one after the other, and their buffers.

        tasks = TaskList()
        tasks.buffer("input", numpy.ones((4, 4, 16), numpy.int8))
        tasks.buffer("output", (3, 3, 16), numpy.int8)
        tasks.task("PPU", "PPU_RDMA").set("PPU_RDMA.SRC_BASE_ADDR", "input").set(...)
        result = tasks.run()
        result["output"]

    The tasks are chained as the hardware requires: each ends with the link and the amount of the next one,
    the end of the configuration and the op-enable word [HW 1.6].

    Parameters
    ----------
    core : number of the core.
    name : name in messages.
    at : address of the commands; the buffers are behind them. A list whose place is taken when it is
        submitted moves to a free one, unless addresses were given.
    dma_base : TASK_DMA_BASE in bytes, which the device adds to the addresses of all tasks.
    pingpong : let the PC fetch the registers of the next task while a task runs.

    Members
    -------
    buffers : the buffers by name.
    writes : (offset, value) that the host writes before the start.
    """

    def __init__(
        self, *, core: int = 0, name: str = "tasks", at: int = FIRST, dma_base: int = 0, pingpong: bool = True
    ) -> None:
        if at % PAGE:
            raise ValueError(f"at: 0x{at:X} is not a multiple of {PAGE}")
        self.core, self.name, self.at = core, name, at
        self.dma_base, self.pingpong = dma_base, pingpong
        self.buffers: dict[str, TaskBuffer] = {}
        self.writes: list[tuple[int, int]] = []
        self.interrupt_mask: int | None = None
        """Events that end the list; None: those of the last block of the last task."""
        self._pinned = False
        self._tasks: list[ListTask] = []
        self._next = at + ROOM

    # Contents

    def buffer(
        self,
        name: str,
        contents: npt.NDArray[Any] | int | Sequence[int],
        dtype: npt.DTypeLike | None = None,
        *,
        at: int | None = None,
    ) -> TaskBuffer:
        """Add a named array in device memory.

        Parameters
        ----------
        name : its name, for registers and results.
        contents : an array, which is copied in C order; or the shape (or number of elements) of zeros.
        dtype : type of the zeros; None: uint8.
        at : its address; None: behind the other buffers, with a free page between them, so that an access
            behind its last page is reported.

        Raises
        ------
        ValueError
            for a name that exists, an array without elements, or a type without a fixed size.
        """
        if name in self.buffers:
            raise ValueError(f"{self.name} has a buffer {name!r} already")
        if isinstance(contents, np.ndarray):
            dims, kind = checked(contents.shape, contents.dtype if dtype is None else dtype)
            array = np.array(contents, kind, order="C")
        else:
            dims, kind = checked(contents, np.uint8 if dtype is None else dtype)
            array = np.zeros(dims, kind)
        if not array.size:
            raise ValueError(f"buffer {name!r}: an array of shape {list(dims)} has no elements")
        place = self._next if at is None else at
        if place < 0 or place + array.nbytes > 1 << 32:
            raise ValueError(
                f"buffer {name!r}: {array.nbytes:,} bytes at 0x{place:X} exceed 32-bit addresses"
            )
        if at is None:
            self._next += -(-array.nbytes // PAGE) * PAGE + PAGE
        self.buffers[name] = TaskBuffer(name, place, array, at is not None)
        return self.buffers[name]

    def task(
        self,
        *blocks: str,
        name: str = "",
        registers: Mapping[str, Any] | None = None,
        pointers: bool = True,
    ) -> ListTask:
        """Append a task.

        Parameters
        ----------
        blocks : the blocks that it starts, as "CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA".
        name : name in messages; "": its number.
        registers : register writes, as for `ListTask.set`.
        pointers : begin with writes of S_POINTER for DPU, DPU_RDMA, PPU and PPU_RDMA, so that the tasks use
            both register groups in turn [HW 1.7].

        Raises
        ------
        RegcmdError
            for an unknown block, register or value.
        """
        builder = TaskBuilder(name or f"task {len(self._tasks)}").enable(*blocks)
        added = ListTask(self, builder)
        for block in OWN_POINTERS if pointers else ():
            if block in blocks:
                added.set(f"{block}.S_POINTER", **TOGGLES)
        if registers is not None:
            added.set(registers)
        self._tasks.append(added)
        return added

    def write(self, path: str, value: Value) -> TaskList:
        """Let the host write a register (`BLOCK.REGISTER`) before it starts the list; raises RegcmdError."""
        from rkcosim.regcmd.named import encoded

        register, field = named(path)
        self.writes.append((register.offset, encoded(register, field, value)))
        return self

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> ListTask: ...

    @overload
    def __getitem__(self, index: slice) -> list[ListTask]: ...

    def __getitem__(self, index: int | slice) -> ListTask | list[ListTask]:
        return self._tasks[index]

    def __iter__(self) -> Iterator[ListTask]:
        return iter(self._tasks)

    # Text and files

    @classmethod
    def from_text(cls, text: str, name: str = "text") -> TaskList:
        """Read the text form, as `str` and `rkcosim regcmd dump` write it.

        Parameters
        ----------
        text : tasks with their tails; with a `.stream` line and `.region` lines also core, host's writes and
            buffers.
        name : name in messages.

        Raises
        ------
        RegcmdError
            for text that cannot be read (the message has the line), and for a chain that differs from what
            this class makes of the same registers; `Stream.from_text` reads every one.
        """
        listing = parse_listing(text)
        if listing.settings is not None and any(task.address is not None for task in listing.tasks):
            return cls.from_stream(Stream.from_listing(listing, name))
        tasks = listing.tasks
        if len(tasks) == 1:  # also several tasks without .task lines
            tasks = program_of_words(listing.words, name, tasks[0].address).tasks
        made = cls(name=name)
        made._take(tasks)
        made._pinned = any(task.address is not None for task in tasks)
        return made

    @classmethod
    def from_stream(cls, stream: Stream) -> TaskList:
        """Make a task list of a stream; its regions become buffers of bytes.

        Address registers that point into a region move with the list.

        Raises
        ------
        RegcmdError
            for slave mode, a damaged chain, and a chain that differs from what this class makes of the same
            registers.
        """
        program = stream.program()
        if stream.kick.slave:
            raise RegcmdError(f"{stream.name}: the stream starts no task list (slave mode)")
        if program.stopped:
            raise RegcmdError(f"{stream.name}: the chain cannot be followed: {program.stopped}")
        kick = stream.kick
        made = cls(core=stream.core, name=stream.name, dma_base=kick.dma_base, pingpong=bool(kick.pp_en))
        made.interrupt_mask, made.writes = kick.interrupt_mask, list(stream.writes)
        for region in stream.regions:
            known = region.name
            while known in made.buffers:
                known += "'"
            made.buffer(known, region.data, at=region.address).fixed = False
        made.at = min((region.address for region in stream.regions), default=FIRST) // PAGE * PAGE
        made._take(program.tasks)
        for task in made:
            task.find_addresses()
        if made._tasks[0].builder.amount != kick.amount:
            raise RegcmdError(f"{stream.name}: the amount of the first task is not that of its words")
        return made

    @classmethod
    def load(cls, path: str | Path) -> TaskList:
        """Read a stream file (JSON) or the text form; raises StreamError and RegcmdError."""
        from rkcosim.base.files import read_given

        path = Path(path)
        data = read_given(path)
        if data[:1] == b"{":
            return cls.from_stream(Stream.load(path))
        return cls.from_text(data.decode("utf-8", "replace"), path.name)

    def _take(self, tasks: Sequence[ListedTask]) -> None:
        """Append tasks that were read, and check that the same words come out."""
        for index, listed in enumerate(tasks):
            words, last = list(listed.words), index == len(tasks) - 1
            starts = [n for n, command in enumerate(listed.commands) if command.kind == "op_enable"]
            place = f"{self.name}: task {index}"
            if len(starts) != 1 or starts[0] != len(words) - 1 or len(words) < TAIL_WORDS:
                raise RegcmdError(
                    f"{place} does not end with its only op-enable word; Stream.from_text reads it"
                )
            builder = TaskBuilder(f"task {index}")
            builder.enable(*blocks_of_mask(listed.commands[-1].value))
            body = words[:-TAIL_WORDS]
            for word in body[:-1] if body and body[-1] == 0 and len(body) % 2 == 0 else body:
                builder.raw(word)  # without the padding, which the builder adds again
            address, amount = link_of(ListedTask(tuple(words[-TAIL_WORDS:])))
            builder.link(address or 0, amount or 0)
            if builder.words() != words:
                raise RegcmdError(
                    f"{place} does not end as task lists do [HW 1.6]; Stream.from_text reads it"
                )
            if not last and listed.address is None:
                builder.link(0, 0)
            self._tasks.append(ListTask(self, builder, listed.address))
        if not self._tasks:
            raise RegcmdError(f"{self.name}: no task")

    def save(self, path: str | Path) -> None:
        """Write a stream file; errors as `Stream.save`."""
        self.stream().save(path)

    # The stream

    def stream(self, at: int | None = None) -> Stream:
        """Return the stream of this list: commands and buffers in memory.

        Parameters
        ----------
        at : address of the commands, to which the buffers move as well; None: the list's own.

        Raises
        ------
        RegcmdError
            if there is no task, a task starts no block or is too long, the commands do not fit their room, or
            the list cannot move because addresses were given.
        """
        if not self._tasks:
            raise RegcmdError(f"{self.name}: a task list needs at least one task")
        delta = 0 if at is None else at - self.at
        if delta and not self.movable:
            raise RegcmdError(f"{self.name}: addresses were given, so the list cannot move")
        places, free = [], self.at + delta
        for task in self._tasks:
            places.append(free if task.address is None else task.address + delta)
            free = places[-1] + task_list_bytes([task.builder])
        if any(task.address is None for task in self._tasks) and free > self.at + delta + ROOM:
            raise RegcmdError(f"{self.name}: {free - self.at - delta:,} bytes of commands, at most {ROOM:,}")
        regions = [
            Region(b.name, b.address + (0 if b.fixed else delta), b.array.reshape(-1).view(np.uint8).copy())
            for b in self.buffers.values()
        ]
        pieces: list[tuple[int, npt.NDArray[np.uint8]]] = []
        for number, task in enumerate(self._tasks):
            builder = task.builder
            if number + 1 < len(self._tasks):
                builder.link(places[number + 1], self._tasks[number + 1].builder.amount)
            words = builder.words()
            for index in task.moving if delta else ():
                words[index] = _moved(words[index], delta)
            pieces.append((places[number], np.frombuffer(words_to_bytes(words), np.uint8)))
        _put_commands(regions, pieces)
        last = self._tasks[-1].builder
        mask = completion_mask(last.mask) if self.interrupt_mask is None else self.interrupt_mask
        kick = Kick(
            places[0],
            self._tasks[0].builder.amount,
            len(self._tasks),
            mask,
            dma_base=self.dma_base,
            pp_en=int(self.pingpong),
        )
        return Stream(kick, regions, self.core, list(self.writes), name=self.name)

    @property
    def movable(self) -> bool:
        """Whether the list can be placed at another address: none was given (`at` of a buffer, `.task`)."""
        return not self._pinned and not any(buffer.fixed for buffer in self.buffers.values())

    def lint(self, only: Sequence[str] | None = None) -> LintFindings:
        """Check the rules that the hardware requires; see `Stream.lint`."""
        return self.stream().lint(only)

    def dump(self, memory: bool = False) -> str:
        """Return the list as text; see `Stream.dump`."""
        return self.stream().dump(memory)

    # Runs

    def begin(self, engine: Any, core: int, *, events: bool = False, keep: bool = False) -> StreamRun:
        """Start the list on a core of an engine (for `engine.submit`), at a free place in its memory."""
        stream = self.stream()
        ranges = engine.memory.ranges
        taken = any(
            at < region.address + region.data.size and region.address < at + size
            for region in stream.regions
            for at, size in ranges.items()
        )
        if taken and self.movable:
            end = max(region.address + region.data.size for region in stream.regions)
            stream = self.stream(engine.memory.free_address(end - self.at))
        shapes = {name: (b.array.shape, b.array.dtype) for name, b in self.buffers.items()}
        return stream.begin(engine, core, shapes=shapes, events=events, keep=keep)

    def run(
        self,
        engine: AnyEngine | str | None = None,
        *,
        core: int | None = None,
        max_cycles: int = MAX_CYCLES,
        trace: Any = None,
        events: bool = False,
        keep: bool = False,
        **settings: Any,
    ) -> StreamResult:
        """Run the list and wait for its end; parameters, result and errors as `Stream.run`."""
        return run_work(WorkWithSettings(self, events, keep), engine, core, max_cycles, trace, settings)

    def compare(self, engine: AnyEngine | str | None = None, **how: Any) -> StreamVerdict:
        """Run the list as `run` and compare all memory with the golden model."""
        return self.run(engine, **how).compare()

    def __str__(self) -> str:
        return self.dump() if self._tasks else f"# {self.name}: no task"

    def __repr__(self) -> str:
        words = sum(task.builder.n_words for task in self._tasks)
        count = f"{len(self)} task{'' if len(self) == 1 else 's'}"
        return f"<TaskList {self.name!r}: {count}, {words:,} words, {len(self.buffers)} buffers>"

    def _repr_html_(self) -> str:
        return listing_table(repr(self)[1:-1], [task.builder.words() for task in self._tasks])


def _moved(word: int, delta: int) -> int:
    """Return a word whose address is `delta` bytes higher."""
    command = decode_word(word)
    assert command.register is not None
    return register_word(registers()[command.register.block][command.register.name], command.value + delta)


def _put_commands(regions: list[Region], pieces: Sequence[tuple[int, npt.NDArray[np.uint8]]]) -> None:
    """Put tasks into the regions that have their addresses, and make one region of the others that follow."""
    loose: list[tuple[int, npt.NDArray[np.uint8]]] = []
    for address, data in pieces:
        inside = False
        for region in regions:
            start = address - region.address
            if 0 <= start and start + data.size <= region.data.size:
                region.data[start : start + data.size] = data
                inside = True
        if not inside:
            loose.append((address, data))
    while loose:
        first = loose[0][0]
        end, count = first, 0
        for address, data in loose:
            if not end <= address < end + TASK_ALIGN:
                break
            end, count = address + data.size, count + 1
        whole = np.zeros(-(-(end - first) // WORD_BYTES) * WORD_BYTES, np.uint8)
        for address, data in loose[:count]:
            whole[address - first : address - first + data.size] = data
        number = sum(region.name.startswith("commands") for region in regions)
        regions.append(Region(f"commands {number}" if number else "commands", first, whole))
        loose = loose[count:]
