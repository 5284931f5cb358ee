"""Reader of graphs of container version 6 (toolkits 1.6 to 2.3): commands, records, relocations, plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rkcosim.regcmd import disassemble
from rkcosim.regcmd.tasks import TAIL_WORDS, amount_code
from rkcosim.regcmd.word import FETCH_WORDS, WORD_BYTES, target_code
from rkcosim.rknn_file import schema
from rkcosim.rknn_file.container import (
    MOST_TASKS,
    PARTS,
    FileNode,
    FileTensor,
    Relocation,
    RknnFile,
    TaskRecord,
    check_graph,
    read_node,
    sizes_of,
)
from rkcosim.rknn_file.schema import GraphSlot, Kind, Layout, LayoutSlot, NodeSlot, RelocationSlot, Root
from rkcosim.rknn_file.tables import RknnFileError, Table
from rkcosim.spec.layouts import ATOM_BYTES
from rkcosim.spec.regs import registers

ROW_PIXELS = 16
"""Number of pixels to a multiple of which the vendor's runtime pads rows of packed pixels."""


def read_graph(root: Table, graph: Table, tensors: list[FileTensor], size: int) -> RknnFile:
    """Read the graph of a version 6 file.

    Raises
    ------
    RknnFileError
        if the graph, its command words or task records are damaged.
    """
    nodes = [
        _with_tasks(read_node(table, n, len(tensors)), table)
        for n, table in enumerate(graph.tables(GraphSlot.NODES, "node"))
    ]
    if nodes and not any(node.on_npu for node in nodes):
        kinds = ", ".join(dict.fromkeys(node.type for node in nodes if not node.is_border))
        raise RknnFileError(
            f".rknn file without command lists: all its nodes run on the host ({kinds or 'none'}); at least "
            "one for the NPU is needed"
        )
    weight_bytes, internal_bytes = sizes_of(root)
    inputs, outputs = check_graph(root, graph, tensors, nodes, internal_bytes)
    words = _words(graph, tensors)
    pitches = _pitches(graph, tensors, inputs, words)
    records = _records(graph, tensors, nodes, words)
    compiler = root.text(Root.COMPILER)
    return RknnFile(
        int(schema.Version.TOOLKIT_2),
        compiler,
        root.text(Root.FRAMEWORK),
        compiler.startswith(schema.OURS),
        tensors,
        nodes,
        inputs,
        outputs,
        words,
        _relocations(graph, tensors, words),
        find_links(words, records),
        records,
        _plans(graph, nodes, records),
        weight_bytes,
        internal_bytes,
        size,
        [f"rows of the input '{tensors[n].name}' have {pitch} pixels" for n, pitch in pitches.items()],
        pitches,
    )


def _with_tasks(node: FileNode, table: Table) -> FileNode:
    counts = []
    for slot in (NodeSlot.TASKS, NodeSlot.TABLE_TASKS):
        numbers = table.numbers(slot) or (0,) * 6
        if len(numbers) != 6 or not all(0 <= n <= MOST_TASKS for n in numbers):
            raise table.error(f"'{node.name}' has the numbers of tasks {list(numbers[:8])}")
        counts.append(numbers)
    return replace(node, tasks=counts[0], table_tasks=counts[1])


def _only(graph: Table, tensors: Sequence[FileTensor], kind: Kind, what: str) -> FileTensor:
    found = [tensor for tensor in tensors if tensor.kind == kind]
    if len(found) != 1 or not found[0].data:
        raise graph.error(f"{len(found)} tensors hold {what}; one with contents is needed")
    return found[0]


def _words(graph: Table, tensors: Sequence[FileTensor]) -> np.ndarray:
    data = _only(graph, tensors, Kind.REGCMD, "command words").data
    if len(data) % (WORD_BYTES * FETCH_WORDS):
        raise graph.error(f"{len(data)} bytes of command words are not a whole number of pairs")
    return np.frombuffer(data, "<u8").astype(np.uint64)


def _pitches(
    graph: Table, tensors: Sequence[FileTensor], inputs: Sequence[int], words: np.ndarray
) -> dict[int, int]:
    """Set LINE_STRIDE where the rows of an input of packed pixels are padded; `words` are changed.

    The lists hold the pitch of rows without padding, but the size of the input and the addresses at which the
    tasks of several cores start have padded rows (observed: multiples of 16 pixels). The words to change are
    those that the file names for inputs in another layout.

    Returns
    -------
    The pitch in pixels of each such input, by its index.
    """
    by_name = {tensors[n].name: tensors[n] for n in inputs}
    line = registers()["CNA"]["DMA_CON1"]
    value = registers().word.fields["VALUE"]
    found: dict[int, int] = {}
    for layout in graph.tables(GraphSlot.INPUT_LAYOUTS, "layout of an input"):
        tensor = by_name.get(layout.text(LayoutSlot.INPUT))
        pitch = 0 if tensor is None else _padded_row(tensor)
        if tensor is None or not pitch:
            continue
        for task in layout.tables(LayoutSlot.TASKS, f"{layout.where}, task"):
            index = task.number(LayoutSlot.PITCH, 8) >> 32
            if not task.has(LayoutSlot.PITCH):
                continue
            command = disassemble([int(words[index])])[0] if index < words.size else None
            if command is None or command.register is not line:
                raise task.error(f"word {index} of {words.size} is not a write of {line.path}")
            held = line.encode(LINE_STRIDE=pitch)
            word = int(words[index]) & ~value.mask | held << value.lsb
            words[index] = word
            found[tensor.index] = pitch
    return found


def _padded_row(tensor: FileTensor) -> int:
    """Return the pixels of a row with its padding, from the size of an input of packed pixels; 0 without."""
    if tensor.layout != Layout.NATIVE or len(tensor.native) != 5 or tensor.dtype is None:
        return 0
    _, blocks, height, width, channels = tensor.native
    pixel = channels * tensor.dtype.itemsize
    if blocks != 1 or pixel >= ATOM_BYTES or tensor.size % (height * pixel):
        return 0
    pitch = tensor.size // (height * pixel)
    return pitch if width < pitch < width + ROW_PIXELS else 0


def _records(
    graph: Table, tensors: Sequence[FileTensor], nodes: Sequence[FileNode], words: np.ndarray
) -> list[TaskRecord]:
    data = _only(graph, tensors, Kind.TASKS, "task records").data
    size = schema.RECORD.size
    if len(data) % size or len(data) > size * MOST_TASKS:
        raise graph.error(f"{len(data)} bytes of task records, which have {size} bytes each")
    found = []
    for number, record in enumerate(schema.RECORD.iter_unpack(data)):
        _, node, enable, mask, clear, _, amount, _, address = record
        if node >= len(nodes) or not nodes[node].on_npu:
            raise graph.error(f"task {number} belongs to node {node}, which the NPU does not run")
        check_list(number, address, amount, words.size)
        found.append(TaskRecord(node, enable, mask, clear, address // WORD_BYTES, amount))
    return found


def check_list(number: int, address: int, amount: int, words: int) -> None:
    """Check that a command list is within the commands and can be fetched.

    Parameters
    ----------
    number
        Index of the task, for messages.
    address
        First byte of the list.
    amount
        Number of words without the tail.
    words
        Number of all command words.

    Raises
    ------
    RknnFileError
        if the list is misaligned, too long or extends past the commands.
    """
    pair = WORD_BYTES * FETCH_WORDS
    try:
        amount_code(amount + TAIL_WORDS)
    except ValueError as error:
        raise RknnFileError(f"damaged .rknn file: task {number}: {error}") from error
    if address % pair or address // WORD_BYTES + amount + TAIL_WORDS > words:
        raise RknnFileError(
            f"damaged .rknn file: task {number}: {amount} words from byte {address} on, the commands have "
            f"{words * WORD_BYTES} bytes"
        )


def _relocations(graph: Table, tensors: Sequence[FileTensor], words: np.ndarray) -> dict[int, Relocation]:
    by_name = {tensor.name: tensor for tensor in tensors if tensor.name}
    often = Counter(tensor.name for tensor in tensors)
    found: dict[int, Relocation] = {}
    for table in graph.tables(GraphSlot.RELOCATIONS, "relocation"):
        name = table.text(RelocationSlot.TENSOR)
        tensor = by_name.get(name)
        if tensor is None:
            raise table.error(f"it names the tensor '{name[:80]}', which does not exist")
        if often[name] > 1:
            raise table.error(f"it names the tensor '{name[:80]}'; {often[name]} tensors have this name")
        for offset, word in _pairs(table):
            if word >= words.size:
                raise table.error(f"'{name}': word {word} of {words.size}")
            if word in found and found[word] != Relocation(tensor.index, offset):
                raise table.error(f"'{name}': word {word} is relocated to two tensors")
            room = max(tensor.size, len(tensor.data), schema.WEIGHT_ALIGN)
            if offset >= room:
                raise table.error(f"'{name}': offset {offset} of {room} bytes")
            found[word] = Relocation(tensor.index, offset)
    return found


def _pairs(table: Table) -> list[tuple[int, int]]:
    pairs = table.array(RelocationSlot.WORDS, np.dtype([("offset", "<u4"), ("word", "<u4")]))
    return [(int(pair["offset"]), int(pair["word"])) for pair in pairs]


def find_links(words: np.ndarray, records: Sequence[TaskRecord]) -> frozenset[int]:
    """Return the indices of the words in the tails that hold the offset of the next list."""
    base = registers()["PC"]["BASE_ADDRESS"]
    target = target_code("PC")
    found = set()
    for record in records:
        for index in range(record.first + record.amount, record.first + record.amount + TAIL_WORDS):
            word = int(words[index])
            fields = registers().word.decode(word)
            if fields["TARGET"] == target and fields["OFFSET"] == base.offset and fields["VALUE"]:
                found.add(index)
    return frozenset(found)


def _plans(
    graph: Table, nodes: Sequence[FileNode], records: Sequence[TaskRecord]
) -> dict[int, list[list[int]]]:
    """Return the records of each plan and core: they are consecutive, and the nodes give their numbers."""
    starts = [0, *graph.numbers(GraphSlot.PLANS)[3:5]]
    plans: dict[int, list[list[int]]] = {}
    for number, columns in enumerate(PARTS):
        if len(starts) <= number or not any(n.tasks[columns[0]] for n in nodes):
            continue
        start = starts[number]
        end = next((s for s in starts[number + 1 :] if s), len(records))
        if not 0 <= start <= end <= len(records):
            raise graph.error(f"the plan for {number + 1} cores has tasks {start} to {end} of {len(records)}")
        plans[number + 1] = _cores(graph, nodes, records, columns, start, end)
    return plans


def _cores(
    graph: Table,
    nodes: Sequence[FileNode],
    records: Sequence[TaskRecord],
    columns: Sequence[int],
    start: int,
    end: int,
) -> list[list[int]]:
    """Divide one plan's records among its cores.

    Depending on the toolkit, the number of a node's tasks includes those that load tables or not; the
    interpretation that agrees with the node of every record is used.
    """
    for besides in (True, False):
        at, cores = start, []
        for column in columns:
            own: list[int] = []
            for node in nodes:
                count = node.tasks[column] + (node.table_tasks[column] if besides else 0)
                own += [at + n for n in range(count)]
                if any(at + n >= end or records[at + n].node != node.index for n in range(count)):
                    break
                at += count
            else:
                cores.append(own)
                continue
            break
        if len(cores) == len(columns) and at == end:
            return cores
    raise graph.error(f"tasks {start} to {end} do not fit the nodes' numbers of tasks")
