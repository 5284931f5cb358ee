"""Reader of graphs of container version 2 (toolkits 1.x), which are converted to the form of version 6.

Each task has a separate tensor with its command list, without targets, tail and link: records of {u16 zero,
u16 register, u32 value}. The reader adds the missing parts, places the lists one after another and links the
tasks of each core. A task can need a table of an activation: the tensor that it names holds the list that
loads the table, which then runs first. Nodes that have only tasks for one core run on the first core in the
plans for several. The tasks of OutputOperators, which convert outputs to float32, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rkcosim.regcmd.job import completion_mask
from rkcosim.regcmd.tasks import TASK_ALIGN, TaskBuilder, build_task_list
from rkcosim.regcmd.word import WORD_BYTES, blocks_of_mask, pack_word
from rkcosim.rknn_file import schema
from rkcosim.rknn_file.container import (
    MOST_TASKS,
    PARTS,
    FileTensor,
    Relocation,
    RknnFile,
    TaskRecord,
    check_graph,
    read_node,
    weight_buffer_bytes,
)
from rkcosim.rknn_file.schema import GraphSlot, Kind, Layout, NodeSlot, Root, TaskSlotV2
from rkcosim.rknn_file.tables import RknnFileError, Table
from rkcosim.rknn_file.version6 import find_links
from rkcosim.spec.regs import registers

NOTE = "version 2: targets, tails, links, core indices and interrupt masks of the lists are completed here"

_WORD = np.dtype([("zero", "<u2"), ("register", "<u2"), ("value", "<u4")])
_RELOCATION = np.dtype([("register", "<u4"), ("tensor", "<u4"), ("offset", "<u8"), ("other", "<u8")])


@dataclass(frozen=True)
class _Task:
    """A task in the form of version 2.

    Members
    -------
    node : index of the node.
    part : index of the core.
    column : column of `FileNode.tasks`.
    list : index of the tensor with the command list.
    enable_mask : blocks that it enables.
    relocations : offset of each relocated register, and its relocation.
    table : index of the table that it needs; 0 for none.
    """

    node: int
    part: int
    column: int
    list: int
    enable_mask: int
    relocations: tuple[tuple[int, Relocation], ...]
    table: int = 0


def read_graph(root: Table, graph: Table, tensors: list[FileTensor], size: int) -> RknnFile:
    """Read the graph of a version 1 or 2 file.

    Raises
    ------
    RknnFileError
        if the graph or one of its command lists is damaged.
    """
    nodes, tasks = [], list[_Task]()
    tensors[:] = map(_whole, tensors)
    for number, table in enumerate(graph.tables(GraphSlot.NODES, "node")):
        node = read_node(table, number, len(tensors))
        if node.type == "OutputOperator":
            nodes.append(replace(node, on_npu=False))
            continue
        own = [
            _task(part, number, tensors) for part in table.tables(NodeSlot.TASKS_V2, f"{table.where}, task")
        ]
        if own and not node.on_npu:
            raise table.error(f"'{node.name}' has tasks although the NPU does not run it")
        tasks += own
        counts, loads = (
            tuple(sum(t.column == c and (not with_table or t.table > 0) for t in own) for c in range(6))
            for with_table in (False, True)
        )
        nodes.append(replace(node, tasks=counts, table_tasks=loads))
    if len(tasks) > MOST_TASKS or not tasks:
        raise graph.error(f"{len(tasks)} tasks")
    ends = [tensor.offset + tensor.size for tensor in tensors if tensor.activation]
    internal_bytes = max(ends, default=0)
    inputs, outputs = check_graph(root, graph, tensors, nodes, internal_bytes)
    words, records, relocations, plans = _lists(tasks, tensors)
    return RknnFile(
        int(schema.Version.TOOLKIT_1),
        root.text(Root.COMPILER),
        root.text(Root.FRAMEWORK),
        False,
        tensors,
        nodes,
        inputs,
        outputs,
        words,
        relocations,
        find_links(words, records),
        records,
        plans,
        weight_buffer_bytes(tensors),
        internal_bytes,
        size,
        [NOTE],
    )


def _whole(tensor: FileTensor) -> FileTensor:
    """Return a constant with the size of its section.

    The size that container version 1 states has the kernels of the model, while the section has the even
    number that memory has: 47 kernels of 192 bytes take 9,216 bytes, and the file states 9,024
    (Zhou-sx/yolov5_Deepsort_rknn 17f0417f, `model/yolov5.rknn`).
    """
    if tensor.kind != Kind.CONSTANT or tensor.layout != Layout.WEIGHTS or tensor.segments:
        return tensor
    return replace(tensor, size=max(tensor.size, len(tensor.data)))


def _task(table: Table, node: int, tensors: Sequence[FileTensor]) -> _Task:
    number = table.number(TaskSlotV2.LIST)
    if number >= len(tensors) or tensors[number].kind != Kind.LIST:
        raise table.error(f"its command list is tensor {number}, which is not a command list")
    cores, part = table.number(TaskSlotV2.CORES), table.number(TaskSlotV2.PART)
    if not 1 <= cores <= len(PARTS) or part >= cores:
        raise table.error(f"part {part} of a plan for {cores} cores")
    found = []
    for item in table.array(TaskSlotV2.RELOCATIONS, _RELOCATION):
        tensor, offset = int(item["tensor"]), int(item["offset"])
        if tensor >= len(tensors):
            raise table.error(f"a relocation to tensor {tensor} of {len(tensors)}")
        room = max(tensors[tensor].size, len(tensors[tensor].data), schema.WEIGHT_ALIGN)
        if offset >= room:
            raise table.error(f"a relocation to byte {offset} of the {room} of '{tensors[tensor].name}'")
        found.append((int(item["register"]), Relocation(tensor, offset)))
    column, loaded = PARTS[cores - 1][part], table.number(TaskSlotV2.TABLE)
    if loaded and (loaded >= len(tensors) or tensors[loaded].kind != Kind.TABLE):
        raise table.error(f"its table is tensor {loaded}, which is no table of an activation")
    return _Task(node, part, column, number, table.number(TaskSlotV2.ENABLE), tuple(found), loaded)


_ADDRESSES = (("DPU", "DST_BASE_ADDR"), ("DPU_RDMA", "SRC_BASE_ADDR"))
"""Registers of a list that loads a table: its task copies an atom at the table's own address."""


_LOAD_MASK = 0x18
"""Blocks of that task: DPU and DPU_RDMA."""


def _with_loads(part: Sequence[_Task]) -> list[_Task]:
    """Return tasks with the lists that load their tables before them."""
    made = []
    for task in part:
        if task.table:
            places = tuple(
                (registers()[block][name].offset, Relocation(task.table, 0)) for block, name in _ADDRESSES
            )
            made.append(replace(task, list=task.table, enable_mask=_LOAD_MASK, relocations=places, table=0))
        made.append(task)
    return made


def _parts(tasks: Sequence[_Task], columns: Sequence[int]) -> list[list[_Task]]:
    """Return the tasks of each core of a plan; nodes without any in it run their tasks for one core."""
    known = {task.node for task in tasks if task.column in columns}
    parts = []
    for core, column in enumerate(columns):
        alone = PARTS[0][0] if core == 0 else -1
        own = [t for t in tasks if t.column == column or (t.column == alone and t.node not in known)]
        parts.append(_with_loads(own))
    return parts if known else [[] for _ in columns]


def _lists(
    tasks: Sequence[_Task], tensors: Sequence[FileTensor]
) -> tuple[np.ndarray, list[TaskRecord], dict[int, Relocation], dict[int, list[list[int]]]]:
    """Return commands, records, relocations and plans of the completed lists."""
    data, records = b"", list[TaskRecord]()
    relocations: dict[int, Relocation] = {}
    plans: dict[int, list[list[int]]] = {}
    for number, columns in enumerate(PARTS):
        parts = _parts(tasks, columns)
        if not parts[0]:
            continue
        plan = plans.setdefault(number + 1, [])
        for part in parts:
            builders, places = [], []
            for task in part:
                builder, changed = _completed(task, tensors)
                builders.append(builder)
                places.append(changed)
            plan.append(list(range(len(records), len(records) + len(part))))
            if not part:
                continue
            chain = build_task_list(builders, len(data))
            for task, entry, changed in zip(part, chain.tasks, places, strict=True):
                first = entry.address // WORD_BYTES
                mask = completion_mask(task.enable_mask)
                record = TaskRecord(task.node, task.enable_mask, mask, mask, first, entry.n_words - 4)
                records.append(record)
                relocations |= {first + word: what for word, what in changed.items()}
            data += chain.data
            data += b"\0" * (-len(data) % TASK_ALIGN)
    return np.frombuffer(data, "<u8").astype(np.uint64), records, relocations, plans


def _completed(task: _Task, tensors: Sequence[FileTensor]) -> tuple[TaskBuilder, dict[int, Relocation]]:
    """Return a list with its targets, and the relocations by index of the word."""
    tensor = tensors[task.list]
    where = f"the list of a task of node {task.node}"
    if len(tensor.data) % _WORD.itemsize:
        raise RknnFileError(f"damaged .rknn file: {where} has {len(tensor.data)} bytes")
    held = np.frombuffer(tensor.data, _WORD)
    wanted = dict(task.relocations)
    at = held["register"].tolist()
    if missing := set(wanted) - set(at):
        names = ", ".join(f"0x{offset:04X}" for offset in sorted(missing))
        raise RknnFileError(f"damaged .rknn file: {where} does not write the relocated registers {names}")
    builder = TaskBuilder(where)
    writes = {offset: _write(offset, task.part, where) for offset in set(at)}
    for offset, value in zip(at, held["value"].tolist(), strict=True):
        target, kept, index = writes[offset]
        builder.raw(pack_word(target, value & kept | index, offset))
    changed = {index: wanted[offset] for index, offset in enumerate(at) if offset in wanted}
    try:
        return builder.enable(*blocks_of_mask(task.enable_mask)), changed
    except ValueError as error:
        raise RknnFileError(f"damaged .rknn file: {where}: {error}") from error


def _write(offset: int, core: int, where: str) -> tuple[int, int, int]:
    """Return the target of a register's words, the bits of their values that stay, and an index to add."""
    register = registers().at(offset)
    if register is None:
        raise RknnFileError(f"damaged .rknn file: {where}: there is no register at 0x{offset:04X}")
    target = registers()[register.block].target
    if not target:
        raise RknnFileError(
            f"damaged .rknn file: {where}: {register.path}: no register word reaches this block"
        )
    every = (1 << register.width) - 1
    if register.name != "S_POINTER" or "CORE_INDEX" not in register.fields:
        return target, every, 0
    return target, every & ~register.fields["CORE_INDEX"].mask, register.encode(CORE_INDEX=core)
