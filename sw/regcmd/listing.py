"""Listings: register programs, and whole streams with their memory, as text and back.

In addition to words (`rkcosim.regcmd.disassembler`) a listing has directives, one per line::

    .stream core=0 base=0x00100000 amount=55 tasks=2 interrupt_mask=0x300 dma_base=0x0 pp_en=1 slave=0
    .write 0x1004 0x0000000E
    .task 0x00100000
    .region 0x00200000 4096 "weights"
    .data eJxjYBgFo2AUAAAEEAAB
    .output 0x00300000 64 "result"
    .data ...
    .register PC.TASK_STATUS 0x00000002

`.task` sets the address of the words that follow it; `.data` lines hold zlib-compressed bytes in base64 for
the preceding `.region` or `.output`.  Words replace the bytes of a region at the same address.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from rkcosim.regcmd.disassembler import Command, assemble_line, disassemble, format_command
from rkcosim.regcmd.machine import is_start
from rkcosim.regcmd.program import ListedTask, Program
from rkcosim.regcmd.word import RegcmdError, blocks_of_mask
from rkcosim.spec.regs import Field, Register, registers

DATA_COLUMNS = 100
MAX_BYTES = 1 << 30

Annotate = Callable[[int, Command], str]
"""(number of the task, word) -> text that is printed before its line."""


@dataclass
class Piece:
    """Bytes at an address."""

    name: str
    address: int
    data: bytes


@dataclass
class Listing:
    """Contents of a listing.

    Members
    -------
    tasks : words with their address; None if no `.task` line gives one.
    settings : values of the `.stream` line; None without one.
    writes : writes of the host, (offset, value).
    regions, outputs : memory before the run, and expected memory after it.
    registers : expected values after the run, by path.
    """

    tasks: list[ListedTask] = field(default_factory=list)
    settings: dict[str, int] | None = None
    writes: list[tuple[int, int]] = field(default_factory=list)
    regions: list[Piece] = field(default_factory=list)
    outputs: list[Piece] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)

    @property
    def words(self) -> list[int]:
        """All words, in order."""
        return [word for task in self.tasks for word in task.words]


def blocks_text(task: ListedTask) -> str:
    """Names of the blocks that a task starts."""
    for command in task.commands:
        if is_start(command):
            return " ".join(blocks_of_mask(command.value)) or "no block"
    return "no op-enable word"


def task_heading(index: int, task: ListedTask) -> str:
    """A comment that describes a task."""
    title = f" ({task.title})" if task.title else ""
    amount = "" if task.amount is None else f", amount {task.amount}"
    return f"# task {index}{title}: {len(task.words)} words{amount}, {blocks_text(task)}"


def program_lines(
    program: Program, annotate: Annotate | None = None, places: Iterable[Piece] = ()
) -> Iterator[str]:
    """Lines of a program: a comment and a `.task` for each task, then its words.

    Parameters
    ----------
    annotate
        Returns the text to print before each line.
    places
        Pieces of memory (only the number of their bytes is used): addresses that lie in a piece get a
        comment with its name.
    """
    known = sorted((piece.address, len(piece.data), piece.name) for piece in places)
    for index, task in enumerate(program.tasks):
        yield task_heading(index, task)
        if task.address is not None:
            yield f".task 0x{task.address:08X}"
        elif len(program.tasks) > 1:
            yield ".task"
        for command in task.commands:
            line = (annotate(index, command) if annotate else "") + format_command(command)
            yield line + (_place_comment(command, known, program.dma_base) if known else "")
    if program.stopped:
        yield f"# the chain ends here: {program.stopped}"


def address_field(register: Register) -> Field | None:
    """The field of a register that holds an address of data; None for other registers."""
    if not register.name.endswith(("_ADDR", "_ADDR0")) or register.block == "PC":
        return None
    name = next((n for n in register.fields if n.endswith(("_ADDR", "_ADDR0"))), "")
    return register.fields[name] if name and "NOTCH" not in name else None


def _place_comment(command: Command, known: list[tuple[int, int, str]], base: int) -> str:
    """Comment with the target of an address register; "" for other words."""
    found = None if command.register is None else address_field(command.register)
    if found is None or not command.value:
        return ""
    address = ((command.value & found.mask) + base) % (1 << 32)
    for start, size, title in known:
        if start <= address < start + size:
            shown = "".join(c if c.isprintable() else "?" for c in title)
            return f" # 0x{address:08X}, {shown} + 0x{address - start:X}"
    return f" # 0x{address:08X}"


def stream_lines(
    settings: dict[str, int],
    writes: Iterable[tuple[int, int]],
    regions: Iterable[Piece],
    outputs: Iterable[Piece] = (),
    values: dict[str, int] | None = None,
) -> Iterator[str]:
    """Lines of everything in a stream except its words."""
    yield ".stream " + " ".join(f"{name}={_plain(name, value)}" for name, value in settings.items())
    for offset, value in writes:
        register = registers().at(offset)
        yield f".write 0x{offset:04X} 0x{value:08X}" + (f" # {register.path}" if register else "")
    for kind, pieces in (("region", regions), ("output", outputs)):
        for piece in pieces:
            yield f".{kind} 0x{piece.address:08X} {len(piece.data)} {_quoted(piece.name)}"
            text = base64.b64encode(zlib.compress(piece.data, 9)).decode()
            for at in range(0, len(text), DATA_COLUMNS):
                yield f".data {text[at : at + DATA_COLUMNS]}"
    for path, value in (values or {}).items():
        yield f".register {path} 0x{value:08X}"


def _plain(name: str, value: int) -> str:
    return f"0x{value:X}" if name in ("base", "interrupt_mask", "dma_base") else str(value)


def _quoted(name: str) -> str:
    """A name in quotes: JSON, with characters that start a comment escaped."""
    return json.dumps(name).replace("#", r"\u0023")


def parse_listing(text: str) -> Listing:
    """Read a listing.

    Raises
    ------
    RegcmdError
        If the text cannot be read; the message has the line number.
    """
    reader = _Reader()
    word = 0
    try:
        for line in text.splitlines():
            reader.line += 1
            if line.startswith(".data "):  # long, and without comments
                reader.data(line.removeprefix(".data ").strip())
                continue
            bare = line.split("#", 1)[0].strip()
            if bare.startswith("."):
                reader.directive(bare)
            elif bare:
                try:
                    reader.word(assemble_line(bare.split()))
                except (ValueError, KeyError) as error:
                    reason = error.args[0] if error.args else error
                    raise RegcmdError(f"word {word} ({bare.split()[0]}): {reason}") from error
                word += 1
        return reader.finish()
    except (ValueError, KeyError, zlib.error, binascii.Error) as error:
        reason = error.args[0] if error.args else error
        raise RegcmdError(f"line {reader.line}, {reason}") from error


class _Reader:
    """Collect the lines of a listing."""

    def __init__(self) -> None:
        self.listing = Listing()
        self.line = 0
        self.words: list[int] = []
        self.address: int | None = None
        self.piece: tuple[list[Piece], str, int, int] | None = None
        self.text: list[str] = []

    def word(self, value: int) -> None:
        self.words.append(value)

    def data(self, text: str) -> None:
        if self.piece is None:
            raise RegcmdError(".data must follow a .region or .output")
        self.text.append(text)

    def directive(self, line: str) -> None:
        self._close_piece()
        name, *arguments = line.split(None, 3) if line.startswith(_NAMED) else line.split()
        method = getattr(self, "_" + name[1:], None) if name[1:] in _DIRECTIVES else None
        if method is None:
            raise RegcmdError(f"no directive {name}; there are .{', .'.join(_DIRECTIVES)} and .data")
        least, most = _DIRECTIVES[name[1:]]
        if not least <= len(arguments) <= most:
            raise RegcmdError(f"{name} takes {least} to {most} values, not {len(arguments)}")
        method(*arguments)

    def finish(self) -> Listing:
        self._close_piece()
        self._close_task()
        return self.listing

    def _close_task(self) -> None:
        if self.words or self.address is not None:
            self.listing.tasks.append(ListedTask(tuple(self.words), self.address))
        self.words, self.address = [], None

    def _close_piece(self) -> None:
        if self.piece is None:
            return
        where, name, address, size = self.piece
        unpack = zlib.decompressobj()
        data = unpack.decompress(base64.b64decode("".join(self.text), validate=True), size + 1)
        if len(data) != size or not unpack.eof:
            raise RegcmdError(f"the data of '{name}' are not the {size} bytes that its line specifies")
        where.append(Piece(name, address, data))
        self.piece, self.text = None, []

    def _task(self, address: str | None = None) -> None:
        self._close_task()
        self.address = None if address is None else _number(address)

    def _stream(self, *pairs: str) -> None:
        if self.listing.settings is not None:
            raise RegcmdError(".stream occurs twice")
        settings = {}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals or not key.isidentifier():
                raise RegcmdError(f".stream: expected NAME=VALUE, got {pair!r}")
            settings[key] = _number(value)
        self.listing.settings = settings

    def _write(self, offset: str, value: str) -> None:
        self.listing.writes.append((_number(offset), _number(value)))

    def _region(self, address: str, size: str, name: str) -> None:
        self._piece(self.listing.regions, address, size, name)

    def _output(self, address: str, size: str, name: str) -> None:
        self._piece(self.listing.outputs, address, size, name)

    def _piece(self, where: list[Piece], address: str, size: str, name: str) -> None:
        length = _number(size)
        if length > MAX_BYTES:
            raise RegcmdError(f"{length} bytes are too many for one region")
        self.piece = where, str(json.loads(name)), _number(address), length

    def _register(self, path: str, value: str) -> None:
        self.listing.registers[path] = _number(value)


_DIRECTIVES = {
    "task": (0, 1),
    "stream": (1, 99),
    "write": (2, 2),
    "region": (3, 3),
    "output": (3, 3),
    "register": (2, 2),
}
"""Minimum and maximum number of values of each directive."""

_NAMED = (".region", ".output")
"""Directives whose last value is a name, which may contain blanks."""


def _number(text: str) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        raise RegcmdError(f"{text!r} is not a number") from None
    if value < 0:
        raise RegcmdError(f"{text} is negative")
    return value


def program_json(
    program: Program, annotate: Callable[[int, Command], dict[str, object]] | None = None
) -> dict:
    """A program as data for JSON."""
    return {
        "name": program.name,
        "task_number": program.number,
        "interrupt_mask": program.mask,
        "dma_base": program.dma_base,
        "core": program.core,
        "stopped": program.stopped or None,
        "tasks": [
            {
                "index": index,
                "title": task.title,
                "address": task.address,
                "amount": task.amount,
                "words": [command_json(c) | (annotate(index, c) if annotate else {}) for c in task.commands],
            }
            for index, task in enumerate(program.tasks)
        ],
    }


def command_json(command: Command) -> dict[str, object]:
    """A word as data for JSON."""
    return {
        "index": command.index,
        "word": f"0x{command.word:016x}",
        "kind": command.kind,
        "block": command.block,
        "register": command.register.name if command.register else None,
        "value": command.value,
        "fields": command.fields,
    }


def words_json(words: Iterable[int]) -> list[dict[str, object]]:
    """Words as data for JSON."""
    return [command_json(command) for command in disassemble(words)]
