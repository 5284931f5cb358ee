"""Opens all inputs that contain register commands as programs: words, files, captures, models, records."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from ctypes import sizeof
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rkcosim.base import Error
from rkcosim.base.files import MODELS, UNKNOWN, identify, json_of, read_given, with_weights
from rkcosim.base.files import wrong as wrong_kind
from rkcosim.driver.kernel.structs import RknpuTask
from rkcosim.regcmd import amount_code, program_of_words, words_from_bytes
from rkcosim.regcmd.listing import parse_listing
from rkcosim.regcmd.program import Program, fetch_from, program_of_chain
from rkcosim.regcmd.scan import programs_of_buffer
from rkcosim.regcmd.tasks import TAIL_WORDS
from rkcosim.regcmd.word import LOGGED, WORD_BYTES
from rkcosim.verify.streams.capture import SCHEMA_VERSION, import_capture
from rkcosim.verify.streams.programs import bases_of_plan, programs_of_model
from rkcosim.verify.streams.stream import Stream

MODEL_SUFFIXES = (".onnx", ".tflite", ".tnnproto", ".rkc", ".rknn")
TAKEN = (
    *(*MODELS, "stream file", "capture's manifest", "JSON file of another kind"),
    *("text of a register-command stream", "text file", UNKNOWN, "picture"),
)
"""Kinds of files that are opened; a "picture" too, because words may begin like one."""

_WORD_DIGITS = 2 * WORD_BYTES


class SourceError(Error, ValueError):
    """An input contains no register commands; the message says what was tried."""


@dataclass
class Source:
    """An opened input.

    Members
    -------
    kind : "words", "binary", "text", "stream", "capture", "model" or "records".
    name : name for messages.
    programs : one for each kick or chain.
    stream : for streams and captures.
    places : (name, address, bytes) of tensors, where the source names them.
    notes : further messages, one line each.
    """

    kind: str
    name: str
    programs: list[Program]
    stream: Stream | None = None
    notes: list[str] = field(default_factory=list)
    places: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def words(self) -> list[int]:
        """Return all words in order."""
        return [word for program in self.programs for task in program.tasks for word in task.words]


def open_source(
    inputs: Sequence[str],
    *,
    address: int | None = None,
    offset: int = 0,
    count: int | None = None,
    records: bool = False,
    memory: Sequence[tuple[int, bytes]] = (),
    cores: int = 1,
) -> Source:
    """Open a file, standard input ("-"), or words given one by one.

    Parameters
    ----------
    inputs : one file name, "-", or words as hexadecimal numbers.
    address : address of the first byte of a binary file; None: derived from its links if possible.
    offset, count : part of a binary file: bytes to skip, and maximum number of words.
    records : the file holds the driver's task records.
    memory : (address, bytes) of the lists of the records.
    cores : cores among which the large layers of a compiled model are divided.

    Raises
    ------
    SourceError, RegcmdError, StreamError, CaptureError, ModelError, GivenFileError
        if it cannot be read; the message gives the reason.
    FileNotFoundError
        if the file does not exist.
    """
    if not inputs:
        raise SourceError("give a file, words, or - for standard input")
    if len(inputs) > 1 or (_is_word(inputs[0]) and not Path(inputs[0]).exists()):
        wrong = next((text for text in inputs if not _is_word(text)), None)
        if wrong is not None:
            raise SourceError(
                f"{wrong!r} is not a 64-bit word; several inputs must be words, like 0x0201000000000000"
            )
        return Source("words", "words", [program_of_words(int(text, 16) for text in inputs)])
    if inputs[0] == "-":
        return _of_bytes("standard input", sys.stdin.buffer.read(), address, offset, count, records, memory)
    path = Path(inputs[0])
    data = read_given(path)
    kind = identify(data)
    if kind not in TAKEN or (path.suffix in MODEL_SUFFIXES and kind not in (*MODELS, UNKNOWN)):
        raise SourceError(str(wrong_kind(path, data, "a file of register commands or a model")))
    if path.suffix in MODEL_SUFFIXES or kind in (
        "compiled model",
        "TFLite model",
        "TNN network",
        ".rknn file",
    ):
        return _of_model(path, with_weights(path, data), cores)
    # A list is no stream and no manifest, but a kernel log begins with its first time stamp in brackets.
    logged = data[:1] == b"[" and LOGGED.search(data.decode("latin-1"))
    if path.suffix == ".json" or (data[:1] in (b"{", b"[") and not logged):
        return _of_json(path, data)
    return _of_bytes(path.name, data, address, offset, count, records, memory)


def _is_word(text: str) -> bool:
    digits = text[2:] if text[:2].lower() == "0x" else text
    return 1 <= len(digits) <= _WORD_DIGITS and all(c in "0123456789abcdefABCDEF" for c in digits)


def _of_model(path: Path, data: bytes, cores: int) -> Source:
    from rkcosim.compiler.batch import one_of
    from rkcosim.compiler.model import naming_model
    from rkcosim.rknn_file import is_rknn
    from rkcosim.rknn_file.model import FileModel
    from rkcosim.rknn_file.opening import open_model

    with naming_model(path):
        # Each tensor has separate memory, so that addresses name tensors.
        compiled = one_of(open_model(data, reuse=not is_rknn(data), cores=cores, checked=False))
    source = Source("model", path.name, list(programs_of_model(compiled, path.name)))
    if isinstance(compiled, FileModel):
        source.notes += compiled.plan.notes
        source.places = compiled.file_plan.named_places(bases_of_plan(compiled.plan))
        held = _held(compiled)
        for program in source.programs:  # its jobs end where TASK_NUMBER says, before the host or other jobs
            program.following, program.held = None, held
    hosted = [segment for segment in compiled.plan.segments() if segment.host is not None]
    source.notes += [f"on the host: {compiled.plan.steps[s.host].name}" for s in hosted if s.host is not None]
    return source


if TYPE_CHECKING:
    from rkcosim.rknn_file.model import FileModel


def _held(compiled: FileModel) -> list[tuple[int, int]]:
    """Return address and size of the activations that not only one core of one job reads and writes.

    The host, other jobs of the file and other cores of the same job read or write parts of them as well.
    """
    plan, bases = compiled.file_plan, bases_of_plan(compiled.plan)
    users: dict[tuple[int, int], set[tuple[int, int]]] = {}

    def named(names: Iterable[str], who: tuple[int, int]) -> None:
        for root in {plan.graph.root(name) for name in names} & plan.places.keys():
            place = plan.places[root]
            users.setdefault((place.ref.address(bases), place.size), set()).add(who)

    named((item.tensor for item in plan.graph.inputs), (-1, 0))
    for job, segment in enumerate(plan.segments()):
        if segment.host is not None:
            step = plan.steps[segment.host]
            named((tensor.name for tensor in (*step.inputs, *step.outputs)), (job, 0))
        for core, (first, count) in enumerate(segment.parts if segment.host is None else ()):
            for number in plan.records[segment.first + first :][:count]:
                record = plan.file.records[number]
                for word in range(record.first, record.first + record.amount):
                    target = plan.file.relocations.get(word)
                    tensor = plan.file.tensors[target.tensor] if target else None
                    if tensor is not None and tensor.activation:
                        key = plan.refs[tensor.index].address(bases), tensor.size
                        users.setdefault(key, set()).add((job, core))
    return [key for key, who in users.items() if len(who) > 1]


def _of_json(path: Path, text: bytes) -> Source:
    data = json_of(text, path, "a stream file or a capture's manifest")
    if isinstance(data, dict) and "regions" in data:
        stream = Stream.load(path)
        return Source("stream", path.name, [stream.program()], stream)
    if isinstance(data, dict) and {"tasks", "memory"} <= set(data) and "verdict" not in data:
        stream, _ = import_capture(path)
        return Source("capture", path.name, [stream.program()], stream)
    what = f"schema_version {SCHEMA_VERSION}, with 'regions' or with 'tasks' and 'memory'"
    raise SourceError(f"{path}: neither a stream file nor a capture's manifest ({what})")


def _of_bytes(
    name: str,
    data: bytes,
    address: int | None,
    offset: int,
    count: int | None,
    records: bool,
    memory: Sequence[tuple[int, bytes]],
) -> Source:
    text = _as_text(data)
    if text is not None and not records:
        return _of_text(name, text)
    if offset % WORD_BYTES or not 0 <= offset <= len(data):
        raise SourceError(f"{name}: offset {offset} is not a multiple of {WORD_BYTES} up to {len(data)}")
    data = data[offset:] if count is None else data[offset : offset + count * WORD_BYTES]
    place = None if address is None else address + offset
    if records:
        return _of_records(name, data, memory)
    programs = programs_of_buffer(data, name, place)
    source = Source("binary", name, programs)
    if not programs:
        raise SourceError(
            f"{name}: no command list in {len(data)} bytes (a list ends with an op-enable word, as in "
            "0x0081000000010008; task records need --records)"
        )
    rest = len(data) % WORD_BYTES
    kept = len(source.words) * WORD_BYTES
    if rest and kept == len(data) - rest:  # a file of words that ends inside a word
        words_from_bytes(data)
    if kept < len(data) - rest:
        source.notes.append(f"{kept} of {len(data)} bytes are command lists")
    return source


def _as_text(data: bytes) -> str | None:
    """Return bytes as text if they are text."""
    if b"\0" in data or not data.strip():
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c.isspace() for c in text) else None


def _of_text(name: str, text: str) -> Source:
    """Open a listing, words as numbers, or a log with words."""
    tokens = text.split()
    if tokens and all(_is_word(token) for token in tokens):
        return Source("words", name, [program_of_words((int(token, 16) for token in tokens), name)])
    if logged := LOGGED.findall(text):
        source = Source("log", name, [program_of_words((int(word, 16) for word in logged), name)])
        others = sum(1 for line in text.splitlines() if line.strip() and not LOGGED.search(line))
        if others:
            source.notes.append(f"{others} lines of the log have no command word")
        return source
    listing = parse_listing(text)
    if listing.settings is not None:
        stream = Stream.from_listing(listing, name)
        return Source("text", name, [stream.program()], stream)
    tasks = [part if part.address is not None or len(listing.tasks) > 1 else None for part in listing.tasks]
    if all(task is not None for task in tasks) and tasks:
        return Source("text", name, [Program(name, list(listing.tasks))])
    return Source("text", name, [program_of_words(listing.words, name)])


def _of_records(name: str, data: bytes, memory: Sequence[tuple[int, bytes]]) -> Source:
    """Open the driver's `struct rknpu_task` records; `memory` may contain their lists."""
    size = sizeof(RknpuTask)
    if not data or len(data) % size:
        raise SourceError(f"{name}: {len(data)} bytes are not a whole number of task records of {size} bytes")
    records = [RknpuTask.from_buffer_copy(data, at) for at in range(0, len(data), size)]
    source = Source("records", name, [])
    for number, record in enumerate(records):
        source.notes.append(
            f"record {number}: commands at 0x{record.regcmd_addr:X}, {record.regcfg_amount} words and tail, "
            f"enable 0x{record.enable_mask:X}, interrupts 0x{record.int_mask:X}, "
            f"clear 0x{record.int_clear:X}, layer {record.op_idx}, flags 0x{record.flags:X}"
        )
        if record.regcmd_addr >> 32:
            source.notes.append(f"record {number}: the address has more than 32 bits")
    if not memory:
        source.notes.append("give --memory FILE@ADDRESS to see the commands")
        return source
    first = records[0]
    code = amount_code(first.regcfg_amount + TAIL_WORDS)
    source.programs.append(
        program_of_chain(
            name,
            fetch_from(memory),
            first.regcmd_addr & (1 << 32) - 1,
            code,
            len(records),
            mask=records[-1].int_mask,
        )
    )
    return source
