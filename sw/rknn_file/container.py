"""Contents of a `.rknn` file as records: tensors, nodes, command words, task records, relocations.

Both versions of the container are read into this form. Files are not trusted: every index, offset and size is
checked before it is used, and each message names the place in the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import MAX_ELEMENTS
from rkcosim.compiler.preprocessing import Preprocessing
from rkcosim.regcmd.word import WORD_BYTES
from rkcosim.rknn_file import schema
from rkcosim.rknn_file.attributes import node_attributes
from rkcosim.rknn_file.schema import DTYPES, GraphSlot, Kind, Layout, NodeSlot, Root, Sizes, TensorSlot
from rkcosim.rknn_file.tables import RknnFileError, Table

MOST_TENSORS, MOST_NODES, MOST_TASKS = 1 << 16, 1 << 12, 1 << 14
"""Maximum numbers of tensors, nodes and tasks of a file; a file with more is refused."""

MOST_INTERNAL = 1 << 30
"""Maximum size in bytes of the internal buffer, and of all constants together."""

PARTS = ((0,), (1, 2), (3, 4, 5))
"""Columns of `FileNode.tasks` that belong to the plans for one, two and three cores."""


@dataclass(frozen=True)
class FileTensor:
    """A tensor of a file.

    Members
    -------
    index : position in the file.
    name : name in the file, may be empty.
    dtype : element type; None for command words, records, tables and compressed weights.
    layout, kind : codes of `schema.Layout` and `schema.Kind`.
    native : dimensions as stored.
    shape : dimensions in the model.
    scale, zero_point : quantisation; 1 and 0 for tensors that are not quantised.
    size : bytes in memory.
    offset : first byte in the internal buffer.
    data : bytes of a constant; empty for other tensors.
    segments : (header and payload, length of the header in bytes) of each segment of compressed weights.
    """

    index: int
    name: str
    dtype: np.dtype[Any] | None
    layout: int
    kind: int
    native: tuple[int, ...]
    shape: tuple[int, ...]
    scale: float = 1.0
    zero_point: int = 0
    size: int = 0
    offset: int = 0
    data: bytes = b""
    segments: tuple[tuple[bytes, int], ...] = ()

    @property
    def activation(self) -> bool:
        """Whether the tensor is stored in the internal buffer."""
        return self.kind in (Kind.INPUT, Kind.OUTPUT, Kind.INTERNAL)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def row_major(self) -> bool:
        """Whether the elements of an activation are stored in the order of the model's shape.

        Between two nodes of the host the native shape can have the four numbers of the shape, although the
        layout is the native one.
        """
        if self.layout == Layout.NATIVE:
            return len(self.native) == 4 and self.native == self.shape
        return self.layout in (Layout.PLAIN, Layout.ROW_MAJOR)


@dataclass(frozen=True)
class FileNode:
    """A node of a file.

    Members
    -------
    index : position in the file.
    type, name : operator and name of the node.
    on_npu : whether the NPU runs the node; otherwise the host does.
    inputs, outputs : indices of tensors.
    tasks : number of task records in six columns: the plan for one core, the first and second core of the
        plan for two, and each core of the plan for three.
    table_tasks : number of tasks that load a table, in the same columns; `tasks` may or may not include them.
    attributes : attributes by their ONNX names.
    unknown_attributes : whether a node of the host has attributes only in a form without known names.
    """

    index: int
    type: str
    name: str
    on_npu: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tasks: tuple[int, ...] = (0,) * 6
    table_tasks: tuple[int, ...] = (0,) * 6
    attributes: Mapping[str, Any] = field(default_factory=dict)
    unknown_attributes: bool = False

    @property
    def is_border(self) -> bool:
        """Whether the node only names an input or output of the model."""
        return self.type in ("InputOperator", "OutputOperator")


@dataclass(frozen=True)
class TaskRecord:
    """Record of a task.

    Members
    -------
    node : index of the node to which the task belongs.
    enable_mask : blocks that the task enables.
    int_mask, int_clear : interrupt bits that signal completion, and bits to clear before.
    first : index of the task's first word in `RknnFile.words`.
    amount : number of words without the four words of the tail.
    """

    node: int
    enable_mask: int
    int_mask: int
    int_clear: int
    first: int
    amount: int


@dataclass(frozen=True)
class Relocation:
    """Relocation of a command word: its 32-bit value becomes the address of byte `offset` of a tensor."""

    tensor: int
    offset: int


@dataclass
class RknnFile:
    """Contents of a `.rknn` file.

    Members
    -------
    version : version of the container.
    compiler, framework : names of the compiler and of the source model's format.
    ours : whether `rkcosim compile` wrote the file.
    tensors, nodes : tensors and nodes in the order of the file.
    inputs, outputs : indices of the model's input and output tensors.
    words : command words before relocation, uint64 (n,).
    relocations : relocation by index of the word.
    links : indices of words that hold the offset of another list within the commands.
    records : one record for each task.
    plans : by number of cores (1 to 3) one list of indices of records for each core; plans that the file does
        not have are absent.
    weight_bytes, internal_bytes : sizes of the vendor runtime's buffers.
    size : bytes of the file.
    notes : remarks for the reader of a report.
    pitches : pixels from row to row of each input of packed pixels whose rows are padded, by its index.
    batch : number of samples for which the model was made; tensors and lists are those of one sample.
    preprocessing : what the runtime does with a program's numbers, by the index of the input's tensor.
    """

    version: int
    compiler: str
    framework: str
    ours: bool
    tensors: list[FileTensor]
    nodes: list[FileNode]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    words: npt.NDArray[np.uint64]
    relocations: dict[int, Relocation]
    links: frozenset[int]
    records: list[TaskRecord]
    plans: dict[int, list[list[int]]]
    weight_bytes: int
    internal_bytes: int
    size: int = 0
    notes: list[str] = field(default_factory=list)
    pitches: dict[int, int] = field(default_factory=dict)
    batch: int = 1
    preprocessing: dict[int, Preprocessing] = field(default_factory=dict)

    def words_of(self, record: TaskRecord) -> npt.NDArray[np.uint64]:
        """Return the command words of a task with its tail, uint64."""
        return self.words[record.first : record.first + record.amount + 4]

    @property
    def regcmd_bytes(self) -> int:
        """Size of all command words in bytes."""
        return int(self.words.size) * WORD_BYTES


def read_tensor(table: Table, index: int, sections: Sequence[bytes]) -> FileTensor:
    """Read a tensor and check it on its own.

    Parameters
    ----------
    table
        The tensor's table in the flatbuffer.
    index
        Position of the tensor.
    sections
        Data sections of the file.

    Raises
    ------
    RknnFileError
        if a member is out of range; the message names the tensor.
    """
    if index >= MOST_TENSORS:
        raise RknnFileError(f".rknn file with more than {MOST_TENSORS} tensors")
    name = table.text(TensorSlot.NAME)
    code, kind = table.number(TensorSlot.DTYPE, 1), table.number(TensorSlot.KIND, 1)
    native, shape = table.numbers(TensorSlot.NATIVE), table.numbers(TensorSlot.SHAPE)
    layout = table.number(TensorSlot.LAYOUT, 1)
    for dims in (shape,) if layout == Layout.WEIGHTS else (shape, native):  # weights: six numbers a block
        if len(dims) > 16 or min(dims, default=0) < 0 or math.prod(dims) > MAX_ELEMENTS:
            raise table.error(f"'{name}' has the dimensions {list(dims[:8])}")
    section = table.number(TensorSlot.SECTION)
    if section and section >= len(sections):
        raise table.error(f"'{name}' names section {section} of {len(sections)}")
    scales, zeros = table.array(TensorSlot.SCALE, "<f4"), table.numbers(TensorSlot.ZERO_POINT)
    scale = float(scales[0]) if scales.size else 1.0
    if not (math.isfinite(scale) and scale > 0):
        raise table.error(f"'{name}' has the scale {scale}")
    data = sections[section] if section else b""
    return FileTensor(
        index,
        name,
        DTYPES.get(code),
        layout,
        kind,
        native,
        shape,
        scale,
        zeros[0] if zeros else 0,
        table.number(TensorSlot.BYTES),
        table.number(TensorSlot.OFFSET),
        data,
        _segments(table, name, data),
    )


def _segments(table: Table, name: str, data: bytes) -> tuple[tuple[bytes, int], ...]:
    """Return header and payload, and the header's length, of each segment of compressed weights."""
    if not table.number(TensorSlot.COMPRESSED, 1):
        return ()
    payloads = table.numbers(TensorSlot.PAYLOADS)
    starts, headers = table.numbers(TensorSlot.STARTS), table.numbers(TensorSlot.HEADERS)
    if not len(payloads) == len(starts) == len(headers) <= 64:
        raise table.error(f"'{name}' has {len(payloads)} payloads, {len(starts)} places of segments")
    if sum(payloads) + sum(headers) > len(data):  # each segment is copied
        raise table.error(f"'{name}': its {len(starts)} segments overlap")
    found = []
    for number, (payload, start, header) in enumerate(zip(payloads, starts, headers, strict=True)):
        if min(payload, start, header) < 0 or start + header + payload > len(data):
            raise table.error(f"'{name}': segment {number} extends past its section")
        found.append((data[start : start + header + payload], header))
    return tuple(found)


def read_node(table: Table, index: int, tensors: int) -> FileNode:
    """Read a node without its tasks, and check its tensors.

    Parameters
    ----------
    table
        The node's table in the flatbuffer.
    index
        Position of the node.
    tensors
        Number of tensors of the file.

    Raises
    ------
    RknnFileError
        if the file has too many nodes, or the node uses a tensor that does not exist.
    """
    if index >= MOST_NODES:
        raise RknnFileError(f".rknn file with more than {MOST_NODES} nodes")
    kind, name = table.text(NodeSlot.TYPE), table.text(NodeSlot.NAME)
    inputs, outputs = table.numbers(NodeSlot.INPUTS), table.numbers(NodeSlot.OUTPUTS)
    for number in (*inputs, *outputs):
        if not 0 <= number < tensors:
            raise table.error(f"{kind} '{name}' uses tensor {number} of {tensors}")
    code = table.number(NodeSlot.CODE, 1)
    attributes = _attributes(table, code)
    on_npu = table.number(NodeSlot.TARGET, 1) == schema.ON_NPU
    unknown = False
    if not on_npu:
        own = node_attributes(table.bytes(NodeSlot.MODEL_ATTRIBUTES), f"{kind} '{name}'")
        unknown = not own and code not in schema.ATTRIBUTES and table.has(NodeSlot.ATTRIBUTES)
        attributes |= own
    return FileNode(
        index, kind, name, on_npu, inputs, outputs, attributes=attributes, unknown_attributes=unknown
    )


def _attributes(table: Table, code: int) -> dict[str, Any]:
    names = schema.ATTRIBUTES.get(code)
    inner = table.table(NodeSlot.ATTRIBUTES, f"{table.where}, attributes") if names else None
    found: dict[str, Any] = {}
    for slot, name in enumerate(names or ()):
        if inner is None or not name or not inner.has(slot):
            continue
        if name in schema.TEXTS:
            found[name] = inner.text(slot)
        elif name in schema.NUMBERS:
            number = inner.number(slot, schema.NUMBERS[name])
            found[name] = number - (1 << 32) if number >> 31 else number
        else:
            found[name] = inner.numbers(slot)
    return found


def check_graph(
    root: Table,
    graph: Table,
    tensors: Sequence[FileTensor],
    nodes: Sequence[FileNode],
    internal_bytes: int,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Check the parts that both versions of the container have.

    Returns
    -------
    Indices of the model's input and of its output tensors.

    Raises
    ------
    RknnFileError
        if an index, size or shape is invalid, or inputs, outputs or nodes are missing.
    """
    inputs, outputs = graph.numbers(GraphSlot.INPUTS), graph.numbers(GraphSlot.OUTPUTS)
    for number in (*inputs, *outputs):
        if not 0 <= number < len(tensors):
            raise graph.error(f"the model has tensor {number} of {len(tensors)} as input or output")
        if not tensors[number].activation or tensors[number].dtype is None:
            raise graph.error(f"the model's tensor '{tensors[number].name}' is not an activation")
    if not inputs or not outputs or not nodes:
        raise graph.error(f"{len(inputs)} inputs, {len(outputs)} outputs, {len(nodes)} nodes")
    if internal_bytes > MOST_INTERNAL:
        raise root.error(f"an internal buffer of {internal_bytes} bytes")
    for tensor in tensors:
        if tensor.activation and tensor.offset + tensor.size > internal_bytes:
            raise graph.error(
                f"tensor '{tensor.name}' extends past the internal buffer ({tensor.offset} + {tensor.size} "
                f"of {internal_bytes})"
            )
        if tensor.kind == Kind.CONSTANT and len(tensor.data) > max(tensor.size, 0) and not tensor.segments:
            raise graph.error(f"constant '{tensor.name}' has {len(tensor.data)} bytes in {tensor.size}")
        _check_layout(graph, tensor)
    return inputs, outputs


def _check_layout(graph: Table, tensor: FileTensor) -> None:
    """Raise RknnFileError if the shapes of an activation contradict each other."""
    if not tensor.activation or tensor.dtype is None:
        return
    dims = tensor.native
    if not tensor.shape or math.prod(tensor.shape) == 0:
        raise graph.error(f"tensor '{tensor.name}' has the shape {list(tensor.shape)}")
    if tensor.layout != Layout.NATIVE or tensor.row_major:
        return
    wrong = len(dims) != 5 or 0 in dims
    if not wrong and len(tensor.shape) == 4:
        _, channels, rows, columns = tensor.shape
        wrong = dims[0] != tensor.shape[0] or dims[1] * dims[4] < channels
        wrong |= dims[2] != rows or dims[3] < columns
    elif not wrong:  # a cube of (1, C, H, W) in another shape
        pixels = dims[2] * dims[3]
        wrong = dims[0] != 1 or tensor.elements % pixels != 0
        wrong |= dims[1] * dims[4] < tensor.elements // pixels
    if wrong:
        raise graph.error(f"tensor '{tensor.name}' of {list(tensor.shape)} is stored as {list(dims)}")


def weight_buffer_bytes(tensors: Sequence[FileTensor]) -> int:
    """Return the size of the weight buffer without commands: all constants, each rounded up to 64 bytes."""
    kept = (t for t in tensors if t.kind in (Kind.CONSTANT, Kind.HOST_CONSTANT))
    return sum(-(-t.size // schema.WEIGHT_ALIGN) * schema.WEIGHT_ALIGN for t in kept)


def sizes_of(root: Table) -> tuple[int, int]:
    """Return the sizes of the weights and of the internal buffer in bytes, from the root table."""
    table = root.table(Root.SIZES, "table of sizes")
    if table is None:
        raise root.error("it has no table of sizes")
    return table.number(Sizes.WEIGHTS, 8), table.number(Sizes.INTERNAL, 8)
