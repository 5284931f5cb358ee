"""Conversion of a `.rknn` file to a plan of the compiler: steps, places, tasks and jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np

from rkcosim.compiler.graph import Graph, GraphInput, GraphOutput, Tensor
from rkcosim.compiler.plan import Plan, Segment
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.programs.task import Ref, Task
from rkcosim.compiler.steps import HostStep, Step
from rkcosim.regcmd import PlacedTasks, TaskBuilder, TaskEntry, amount_code
from rkcosim.regcmd.job import Task as JobTask
from rkcosim.regcmd.program import ListedTask, link_of
from rkcosim.regcmd.tasks import TAIL_WORDS
from rkcosim.regcmd.word import WORD_BYTES, blocks_of_mask, words_from_bytes
from rkcosim.rknn_file.constants import FileStep, real_macs
from rkcosim.rknn_file.container import MOST_INTERNAL, FileNode, RknnFile, TaskRecord
from rkcosim.rknn_file.host import HOST_TYPES, computed, host_op, host_step
from rkcosim.rknn_file.levelled import level
from rkcosim.rknn_file.memory import (
    ALIGN,
    FilePlace,
    graph_tensor,
    place_activations,
    place_constants,
    place_of,
)
from rkcosim.rknn_file.schema import Kind, Version
from rkcosim.rknn_file.tables import RknnFileError
from rkcosim.rknn_file.tasks import Replay, file_task, written_bytes
from rkcosim.spec.regs import registers

BARRIER = "tempMC11"
"""Begin of the names of the scratch tensors that only the tasks of a barrier address."""


@dataclass
class FilePlan(Plan):
    """Plan of a `.rknn` file for a number of cores.

    Members
    -------
    file : contents of the file.
    refs : place of each tensor of the file, by its index.
    names : name in the graph of each activation, by its index.
    records : index in the file of each task's record, in the order of `tasks`.
    jobs_by : "chain" or None: tasks that the file links are one job; "node": each node is a job.
    custom : operators after the network that only the program can compute; their inputs are outputs here.
    """

    file: RknnFile = field(kw_only=True)
    refs: dict[int, Ref] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    records: list[int] = field(default_factory=list)
    jobs_by: str | None = None
    custom: list[FileNode] = field(default_factory=list)
    _segments: list[Segment] = field(default_factory=list)

    def segments(self) -> list[Segment]:
        """Return the jobs and the host steps between them, in order."""
        return self._segments

    def place(self, tensor: str) -> Place:
        """Return the place of a tensor with the tensor's own shape; aliases are followed."""
        place, shown = self.places[self.graph.root(tensor)], self.graph.tensors[tensor]
        if shown.cube == place.cube:
            return place
        return replace(cast(FilePlace, place), cube=shown.cube, tensor=shown)

    def regcmd_bytes(self) -> int:
        """Return the size of the command region: all words of the file, including those of other plans."""
        return self.file.regcmd_bytes

    def task_list(self, bases: Mapping[str, int]) -> PlacedTasks:
        """Return the file's words, relocated and placed at `bases["regcmd"]`, and the tasks of this plan."""
        words = self.file.words.copy()
        value = registers().word.fields["VALUE"]
        low, mask = np.uint64(value.lsb), np.uint64(value.mask)
        base = bases["regcmd"]
        new = {word: self._held(word) + base for word in self.file.links}
        new |= {word: self._address(word, bases) for word in self.file.relocations}
        if new:
            at = np.array(list(new), np.int64)
            words[at] = (words[at] & ~mask) | (np.array(list(new.values()), np.uint64) << low & mask)
        entries = [
            TaskEntry(
                f"{self.steps[task.layer].name}{task.note}",
                base + record.first * WORD_BYTES,
                record.amount + TAIL_WORDS,
                amount_code(record.amount + TAIL_WORDS),
                record.enable_mask,
            )
            for task, record in zip(self.tasks, self._own_records(), strict=True)
        ]
        return PlacedTasks(base, words.astype("<u8").tobytes(), entries)

    def _address(self, word: int, bases: Mapping[str, int]) -> int:
        """Return the value of a relocated word when the regions start at `bases`."""
        target = self.file.relocations[word]
        ref = self.refs.get(target.tensor)
        if ref is None:
            name = self.file.tensors[target.tensor].name
            raise RknnFileError(f"damaged .rknn file: word {word} points to '{name}', which has no memory")
        return (ref + target.offset).address(bases)

    def _held(self, word: int) -> int:
        return registers().word.decode(int(self.file.words[word]))["VALUE"]

    def _own_records(self) -> list[TaskRecord]:
        return [self.file.records[number] for number in self.records]

    def builders(self, bases: Mapping[str, int]) -> list[TaskBuilder]:
        """Return the file's lists without links, for regions that start at `bases`."""
        data, found = words_from_bytes(self.task_list(bases).data), []
        for task, record in zip(self.tasks, self._own_records(), strict=True):
            builder = TaskBuilder(f"{self.steps[task.layer].name}{task.note}")
            for word in data[record.first : record.first + record.amount]:
                builder.raw(word)
            found.append(builder.enable(*blocks_of_mask(record.enable_mask)))
        return found

    def named_places(self, bases: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Return (name, address, size in bytes) of each tensor of the file in memory, ordered by address."""
        found = []
        for index, ref in self.refs.items():
            tensor = self.file.tensors[index]
            size = max(tensor.size, len(tensor.data) if tensor.kind != Kind.TABLE else 0, 1)
            found.append((tensor.name or f"tensor {index}", ref.address(bases), size))
        return sorted(found, key=lambda item: item[1])

    def job_tasks(self, entries: Sequence[TaskEntry]) -> list[JobTask]:
        """Return the file's task records for the lists that `task_list` has placed."""
        found = []
        for entry, task, record in zip(entries, self.tasks, self._own_records(), strict=True):
            masks = record.int_mask, record.int_clear, record.enable_mask
            found.append(JobTask(entry.address, record.amount, *masks, task.layer, entry.name))
        return found


@dataclass
class _Chain:
    """A job under construction: steps, and the records of each core."""

    steps: list[int] = field(default_factory=list)
    cores: list[list[int]] = field(default_factory=list)


def _not_computed(node: FileNode) -> str:
    return f"{node.type} '{node.name}' runs on the host and is not computed; its inputs are outputs here"


def file_plan(file: RknnFile, cores: int = 1, reuse: bool = True, jobs_by: str | None = None) -> FilePlan:
    """Convert a file to a plan.

    Parameters
    ----------
    file
        Contents of the file.
    cores
        Number of cores, 1 to 3; selects one of the file's plans.
    reuse
        Let tensors share memory as in the file; otherwise each tensor has separate memory.
    jobs_by
        See `FilePlan`.

    Raises
    ------
    RknnFileError
        if the file has no such plan or cannot be run; the message names node or tensor.
    """
    return _Maker(file, cores, reuse, jobs_by).plan()


class _Maker:
    def __init__(self, file: RknnFile, cores: int, reuse: bool, jobs_by: str | None) -> None:
        self.notes: list[str] = []
        """Changes of the lists, for a report."""
        if cores not in file.plans:
            known = ", ".join(map(str, file.plans)) or "none"
            raise RknnFileError(f".rknn file without a plan for {cores} cores; it has plans for {known}")
        self.parts = file.plans[cores]
        if not file.ours:
            file, self.notes = level(file, self.parts)
        self.file, self.cores, self.reuse, self.jobs_by = file, cores, reuse, jobs_by
        """Indices of records of each core."""
        self.by_node: dict[int, list[list[int]]] = {}
        for core, part in enumerate(self.parts):
            for number in part:
                node = file.records[number].node
                self.by_node.setdefault(node, [[] for _ in self.parts])[core].append(number)
        self.graph = Graph("model")
        self.names: dict[int, str] = {}
        self.aliases: dict[int, int] = {}
        """Maps each output of a node without tasks to the tensor that holds its bytes."""
        self.makers: dict[str, FileNode] = {}
        """Maps each tensor of the graph to the node that computes it."""
        self.values: dict[int, str] = {}
        """Names of the values that the host computes after the network, by index of the tensor."""
        self.before: dict[int, tuple[int, ...]] = {}
        """Maps each such output to the nodes without tasks between it and the computing node."""
        self.custom: list[FileNode] = []
        self.behind: set[int] = set()
        """Tensors that custom operators compute."""

    def plan(self) -> FilePlan:
        steps = self._steps()
        plan = self._placed(steps, {})
        if not self.reuse and (rooms := self._rooms(plan)):
            plan = self._placed(steps, rooms)
        plan.lost = self._lost(plan) if self.reuse else self._rewritten(plan)
        return plan

    def _placed(self, steps: list[Step], rooms: Mapping[int, int]) -> FilePlan:
        """Return the plan with its places and tasks; for `rooms` see `place_activations`."""
        weights, refs = place_constants(self.file)
        size, activations, separate = place_activations(self.file, self.aliases, self.reuse, rooms)
        refs |= activations
        plan = FilePlan(
            self.graph,
            steps,
            weights=weights,
            activation_bytes=size,
            shared_bytes=self.file.internal_bytes,
            separate_bytes=separate,
            reuse=self.reuse,
            cores=self.cores,
            notes=[*self.file.notes, *self.notes, *map(_not_computed, self.custom)],
            file=self.file,
            refs=refs,
            names=self.names,
            jobs_by=self.jobs_by,
            custom=self.custom,
        )
        for index, name in self.names.items():
            if index not in self.aliases and not self.graph.tensors[name].host:
                tensor = self.file.tensors[index]
                plan.places[name] = place_of(self.file, tensor, self.graph.tensors[name], refs[index])
        self._jobs(plan)
        self._tasks(plan)
        return plan

    def _writes(self, plan: FilePlan) -> Iterator[tuple[Task, Ref]]:
        """Yield the tasks that write activations, each with its first byte."""
        for task in plan.tasks:
            for setting in task.settings:
                if setting.block in ("DPU", "PPU") and setting.register == "DST_BASE_ADDR":
                    ref = next((v for v in setting.fields.values() if isinstance(v, Ref)), None)
                    if ref is not None and ref.region == "activations" and setting.block in task.blocks:
                        yield task, ref

    def _owner(self, plan: FilePlan, offset: int) -> int | None:
        """Return the tensor that has a byte of the activations in separate memory."""
        for tensor in self.file.tensors:
            if tensor.activation and tensor.index not in self.aliases:
                start = plan.refs[tensor.index].offset
                if start <= offset < start + max(tensor.size, ALIGN):
                    return tensor.index
        return None

    def _rooms(self, plan: FilePlan) -> dict[int, int]:
        """Return the sizes of tensors past whose bytes tasks write.

        Tasks with a table first write binary32 values for all lanes of a group of kernels, three or four
        times the bytes of the fp16 tensor, of which the file states what its own layout has room for.
        """
        found: dict[int, int] = {}
        for task, ref in self._writes(plan):
            index = self._owner(plan, ref.offset)
            if index is None or "DPU" not in task.blocks or "PPU" in task.blocks:
                continue
            start = plan.refs[index].offset
            end = ref.offset - start + written_bytes(task.settings)
            if end > max(found.get(index, 0), self.file.tensors[index].size):
                found[index] = min(end, MOST_INTERNAL)
        return found

    def _rewritten(self, plan: FilePlan) -> set[str]:
        """Return the tensors, each in separate memory, whose bytes tasks of a later step change in place."""
        lost = set[str]()
        outputs = [{tensor.name for tensor in step.outputs} for step in plan.steps]
        for task, ref in self._writes(plan):
            index = self._owner(plan, ref.offset)
            name = self.names.get(index) if index is not None else None
            if name is not None and self.graph.root(name) not in map(self.graph.root, outputs[task.layer]):
                lost.add(self.graph.root(name))
        return lost

    # steps

    def _name(self, index: int) -> str:
        """Return the name of an activation in the graph; add it to the graph at its first use."""
        if index not in self.names:
            tensor = self.file.tensors[index]
            name = tensor.name or f"tensor {index}"
            if name in self.graph.tensors:
                name = f"{name} #{index}"
            self.graph.tensors[name] = graph_tensor(tensor, name)
            self.names[index] = name
        return self.names[index]

    def _tensor(self, index: int) -> Tensor:
        return self.graph.tensors[self._name(index)]

    def _steps(self) -> list[Step]:
        file, steps, made = self.file, list[Step](), set[int]()
        for index in file.inputs:
            made.add(index)
            tensor = self._tensor(index)
            self.graph.inputs.append(GraphInput(tensor.name, tensor.name, tensor.shape))
        names = set[str]()
        for node in file.nodes:
            if node.is_border and node.index not in self.by_node:
                continue
            own = replace(node, name=node.name if node.name not in names else f"{node.name} #{node.index}")
            names.add(own.name)
            for step in self._border(own) if node.is_border else self._node_steps(own, made):
                steps.append(step)
                self.makers[step.name] = node
            made.update(node.outputs)
        for index in file.outputs:
            if index in self.values:
                name, shape = file.tensors[index].name, file.tensors[index].shape
                self.graph.outputs.append(GraphOutput(name, shape, self.values[index], True))
                continue
            if index in self.behind:
                continue
            if index not in made or index in self.aliases:
                raise RknnFileError(f"no node computes the model's output '{file.tensors[index].name}'")
            tensor = self._tensor(index)
            self.graph.outputs.append(GraphOutput(tensor.name, tensor.shape, tensor.name, False))
        known = {item.name for item in self.graph.outputs}
        for index in dict.fromkeys(n for node in self.custom for n in node.inputs):
            if self.file.tensors[index].activation and index not in self.behind:
                tensor = self._tensor(index)
                if tensor.name not in known:
                    self.graph.outputs.append(GraphOutput(tensor.name, tensor.shape, tensor.name, False))
        return steps

    def _border(self, node: FileNode) -> list[Step]:
        """Return the step of an input whose rows the NPU fills up in place; see `_records` for its tasks.

        Tasks of outputs convert them to another type (container version 2) and are left out: outputs are
        those that the last node computes.
        """
        if node.type == "OutputOperator":
            return []
        if len(node.outputs) != 1 or node.outputs[0] not in self.file.inputs:
            raise RknnFileError(
                f"{node.type} '{node.name}' has tasks, but no input of the model as its output"
            )
        tensor = self._tensor(node.outputs[0])
        others = tuple(n for n in node.inputs if n != node.outputs[0])
        records = tuple(map(tuple, self.by_node[node.index]))
        return [
            FileStep(
                node.name,
                node.type,
                (tensor,),
                tensor,
                nodes=(node.index,),
                operands=others,
                records=records,
            )
        ]

    def _node_steps(self, node: FileNode, made: set[int]) -> list[Step]:
        """Return the steps of a node: none for a view or an operation after the network."""
        label = f"{node.type} '{node.name}'"
        if not node.on_npu and not self.file.ours and not computed(node):
            self._cut(node, made, label)
            return []
        if behind := [n for n in node.inputs if n in self.behind]:
            name = self.file.tensors[behind[0]].name
            raise RknnFileError(
                f"{label} reads '{name}' of a custom operator, after which no node is supported"
            )
        if not node.outputs or not all(self.file.tensors[n].activation for n in node.outputs):
            raise RknnFileError(f"{label} has an output that is no activation, or no output")
        if made.intersection(node.outputs) or len(set(node.outputs)) != len(node.outputs):
            raise RknnFileError(
                f"damaged .rknn file: {label} computes a tensor that an earlier node computes"
            )
        read = [n for n in node.inputs if self.file.tensors[n].activation and n in made]
        if not read:
            raise RknnFileError(f"{label} reads no tensor that an earlier node computes")
        first = self.values.get(read[0])
        if not node.on_npu and (first or self._ends(node)):
            if op := host_op(self.file, node, first or self._name(read[0])):
                self.graph.host_ops.append(op)
                self.values[node.outputs[0]] = op.output
                return []
        if taken := [n for n in read if n in self.values]:
            name = self.file.tensors[taken[0]].name
            raise RknnFileError(f"{label} reads '{name}', which is computed after the network")
        others = tuple(n for n in node.inputs if n not in read)
        sources = tuple(self._tensor(n if self.file.ours else self._root(n)) for n in read)
        before = tuple(dict.fromkeys(one for n in read for one in self.before.get(n, ())))
        if not node.on_npu:
            outputs = [self._tensor(n) for n in node.outputs]
            return [host_step(self.file, node, read, before, sources, outputs, others)]
        if node.index not in self.by_node:
            if any(node.tasks):
                raise RknnFileError(
                    f"{label} has tasks, but none in the plan for {self.cores} cores; use another number"
                )
            if len(read) != 1 or len(node.outputs) != 1:
                raise RknnFileError(
                    f"{label} has no task, {len(read)} inputs and {len(node.outputs)} outputs"
                )
            output = self._tensor(node.outputs[0])
            self.aliases[node.outputs[0]] = self._root(read[0])
            if self.file.ours:
                self._view(node, read[0])
            elif output.host or sources[0].host:
                raise RknnFileError(f"{label} has no task, but its tensors are those of the host")
            else:
                self.before[node.outputs[0]] = (*before, node.index)
            return []
        for tensor in (*sources, *map(self._tensor, node.outputs)):
            if tensor.host:
                raise RknnFileError(
                    f"{label} runs on the NPU, and its tensor '{tensor.name}' has elements of "
                    f"{tensor.dtype}; int8, uint8 and float16 are supported"
                )
        nodes = (*before, node.index)
        return [
            FileStep(
                node.name if len(node.outputs) == 1 else f"{node.name}, output {port}",
                node.type,
                sources,
                self._tensor(node.outputs[port]),
                nodes=nodes,
                operands=others,
                port=port,
                records=records,
            )
            for port, records in self._ports(node, label)
        ]

    def _ends(self, node: FileNode) -> bool:
        """Return whether nothing but operations after the network reads the result of a node of the host."""
        if self.file.ours:
            return True
        readers = [n for n in self.file.nodes if set(n.inputs) & set(node.outputs) and not n.is_border]
        return all(not n.on_npu and n.type in HOST_TYPES and self._ends(n) for n in readers)

    def _ports(self, node: FileNode, label: str) -> list[tuple[int, tuple[tuple[int, ...], ...]]]:
        """Return (number of the output, records of each core) for the outputs of a node.

        The tasks of an output are those that address it; others (which load a table) belong to the next ones.
        """
        parts = self.by_node[node.index]
        if len(node.outputs) == 1:
            return [(0, tuple(map(tuple, parts)))]
        found: dict[int, list[list[int]]] = {}
        for core, part in enumerate(parts):
            order, waiting, port = list[int](), list[int](), None
            for number in part:
                addressed = self._addressed(number, node.outputs)
                if len(addressed) > 1:
                    raise RknnFileError(f"{label}: task {number} of the file writes two of its outputs")
                waiting.append(number)
                if not addressed:
                    continue
                port = addressed.pop()
                if port in order and order[-1] != port:
                    raise RknnFileError(f"{label}: the tasks of its outputs are not one after the other")
                order.append(port)
                found.setdefault(port, [[] for _ in parts])[core] += waiting
                waiting = []
            if waiting and port is None:
                raise RknnFileError(f"{label}: a task writes none of its outputs")
            if port is not None:
                found[port][core] += waiting
        if missing := set(range(len(node.outputs))) - set(found):
            name = self.file.tensors[node.outputs[min(missing)]].name
            raise RknnFileError(f"{label}: no task writes its output '{name}'")
        return [(port, tuple(map(tuple, own))) for port, own in found.items()]

    def _addressed(self, number: int, tensors: Sequence[int]) -> set[int]:
        """Return which of some tensors the words of a task address."""
        record = self.file.records[number]
        words = range(record.first, record.first + record.amount)
        targets = {self.file.relocations[w].tensor for w in words if w in self.file.relocations}
        return {place for place, index in enumerate(tensors) if index in targets}

    def _cut(self, node: FileNode, made: set[int], label: str) -> None:
        """Leave a custom operator to the program: its inputs become outputs of the graph."""
        for index in (*node.inputs, *node.outputs):
            tensor = self.file.tensors[index]
            if tensor.dtype is None or not (tensor.activation or tensor.data):
                raise RknnFileError(
                    f"{label} runs on the host, but is no custom operator: '{tensor.name}' has no elements"
                )
        for index in node.inputs:
            if self.file.tensors[index].activation and (
                index not in made or index in self.aliases or index in self.values
            ):
                raise RknnFileError(
                    f"{label} runs on the host and reads a tensor that no task of an earlier node computes"
                )
        if not node.outputs or made.intersection(node.outputs):
            raise RknnFileError(f"damaged .rknn file: {label} computes no tensor, or that of an earlier node")
        self.custom.append(node)
        self.behind.update(node.outputs)

    def _view(self, node: FileNode, read: int) -> None:
        """Add a view: in our files a node without tasks only changes the shape of a cube."""
        view, root = self._tensor(node.outputs[0]), self._tensor(self._root(read))
        if view.elements != root.elements or view.itemsize != root.itemsize or view.cube[0] != root.cube[0]:
            raise RknnFileError(f"damaged .rknn file: '{view.name}' is not a view of '{root.name}'")
        self.graph.aliases[view.name] = root.name

    def _root(self, index: int) -> int:
        return self.aliases.get(index, index)

    # jobs

    def _linked(self, first: int, second: int) -> bool:
        """Return whether the tail of one record's list links to the list of the other."""
        a, b = self.file.records[first], self.file.records[second]
        listed = ListedTask(tuple(int(word) for word in self.file.words_of(a)[-TAIL_WORDS:]))
        return link_of(listed) == (b.first * WORD_BYTES, amount_code(b.amount + TAIL_WORDS))

    def _jobs(self, plan: FilePlan) -> None:
        """Divide the records into jobs, with host steps between or after them."""
        chain, waiting = _Chain(), list[int]()
        for index, step in enumerate(plan.steps):
            if isinstance(step, HostStep):
                waiting.append(index)
                continue
            held = [n for n in waiting if self._in_the_way(plan, n, index)]
            if held:
                self._flush(plan, chain)
                last = waiting.index(held[-1])
                for number in waiting[: last + 1]:
                    plan._segments.append(Segment(number, 0, 0))
                del waiting[: last + 1]
                chain = _Chain()
            assert isinstance(step, FileStep)
            parts = [list(part) for part in step.records if part]
            if not self._joins(chain, parts):
                self._flush(plan, chain)
                chain = _Chain()
            self._append(plan, chain, index, parts)
            if len(parts) > 1 and (
                all(self._is_barrier(part[-1]) for part in parts) or self._runs_alone(parts)
            ):
                self._flush(plan, chain)
                chain = _Chain()
        self._flush(plan, chain)
        plan._segments += [Segment(number, 0, 0) for number in waiting]

    def _is_barrier(self, number: int) -> bool:
        """Return whether a task is the pooling of scratch memory at which all cores wait for each other.

        The chain of lists goes on behind it where the next node is divided as well, but a core starts that
        node only after all cores have ended this one. Here a job ends there.
        """
        record = self.file.records[number]
        words = range(record.first, record.first + record.amount)
        names = [
            self.file.tensors[self.file.relocations[w].tensor].name
            for w in words
            if w in self.file.relocations
        ]
        return bool(names) and all(name.startswith(BARRIER) for name in names)

    def _runs_alone(self, parts: list[list[int]]) -> bool:
        """Return whether cores must wait for each other behind a divided node that no barrier follows.

        Containers before version 6 have no barriers and no links; the reader makes the chains. Cores wait for
        each other only at tasks of a convolution [HW 1.9], and a convolution behind a divided Concat reads
        rows of other cores.
        """
        if self.file.version == Version.TOOLKIT_2:
            return False
        return any("CNA" not in blocks_of_mask(self.file.records[part[-1]].enable_mask) for part in parts)

    def _joins(self, chain: _Chain, parts: list[list[int]]) -> bool:
        """Return whether a node's tasks continue the job."""
        if not chain.steps:
            return True
        if self.jobs_by == "node" or len(parts) != len(chain.cores):
            return False
        return all(self._linked(own[-1], part[0]) for own, part in zip(chain.cores, parts, strict=True))

    def _append(self, plan: FilePlan, chain: _Chain, index: int, parts: list[list[int]]) -> None:
        """Add a node's tasks; if not all of its lists are linked, each linked sequence becomes a job."""
        if len(parts) == 1:
            for number in parts[0]:
                if chain.steps and not self._linked(chain.cores[0][-1], number):
                    self._flush(plan, chain)
                    chain.steps, chain.cores = [], []
                if not chain.steps:
                    chain.cores = [[]]
                chain.cores[0].append(number)
                chain.steps.append(index)
            return
        for part in parts:
            for a, b in pairwise(part):
                if not self._linked(a, b):
                    name = plan.steps[index].name
                    raise RknnFileError(f"'{name}': its lists for several cores are not linked")
        if not chain.cores:
            chain.cores = [[] for _ in parts]
        for own, part in zip(chain.cores, parts, strict=True):
            own += part
        chain.steps.append(index)

    def _flush(self, plan: FilePlan, chain: _Chain) -> None:
        if not chain.steps:
            return
        first, parts = len(plan.records), []
        for own in chain.cores:
            parts.append((len(plan.records) - first, len(own)))
            plan.records += own
        plan._segments.append(Segment(None, first, len(plan.records) - first, tuple(parts)))

    def _spans(self, plan: FilePlan, tensors: Sequence[int]) -> list[tuple[int, int]]:
        """Return first byte and end of activations in their region."""
        found = []
        for n in tensors:
            if self.file.tensors[n].activation:
                start = plan.refs[n].offset
                found.append((start, start + max(self.file.tensors[n].size, 1)))
        return found

    def _in_the_way(self, plan: FilePlan, host: int, npu: int) -> bool:
        """Return whether a host step must end before a step of the NPU starts."""
        theirs = self._node_of(plan.steps[npu])
        ours = self._node_of(plan.steps[host])
        if {self._root(n) for n in theirs.inputs} & {self._root(n) for n in ours.outputs}:
            return True
        scratch = [n for n in theirs.inputs if self.file.tensors[n].name.endswith("_exSecondary")]
        written = self._spans(plan, [*theirs.outputs, *scratch])
        touched = self._spans(plan, [*ours.inputs, *ours.outputs])
        return any(a < d and c < b for a, b in written for c, d in touched)

    def _node_of(self, step: Step) -> FileNode:
        return self.makers[step.name]

    # tasks

    def _tasks(self, plan: FilePlan) -> None:
        place_of_record = {
            number: (index, at, len(part))
            for index, step in enumerate(plan.steps)
            if isinstance(step, FileStep)
            for part in step.records
            for at, number in enumerate(part)
        }
        made: dict[int, Any] = {}
        for core, part in enumerate(self.parts):
            replay = Replay(self.file, plan.refs, core)
            for number in part:
                record = self.file.records[number]
                settings = replay.settings(number, record)
                if number in place_of_record:
                    index, at, count = place_of_record[number]
                    note = f", task {at}" if count > 1 else ""
                    made[number] = file_task(index, note, record, settings, core)
        plan.tasks = [made[number] for number in plan.records]
        self._spread_macs(plan)

    def _spread_macs(self, plan: FilePlan) -> None:
        """Scale the multiply-accumulates of a step's tasks so that padded channels do not count."""
        by_layer: dict[int, list[int]] = {}
        for number, task in enumerate(plan.tasks):
            if task.macs:
                by_layer.setdefault(task.layer, []).append(number)
        for index, padded in by_layer.items():
            step, total = plan.steps[index], sum(plan.tasks[n].macs for n in padded)
            if not isinstance(step, FileStep):
                continue
            real = real_macs(self.file, step)
            for n in padded:
                share = plan.tasks[n].macs * real // total
                plan.tasks[n] = replace(plan.tasks[n], macs=share)

    def _lost(self, plan: FilePlan) -> set[str]:
        """Return the tensors whose bytes a later step overwrites."""
        lost, alive = set[str](), dict[str, tuple[int, int]]()
        for name, place in plan.places.items():
            if name in {item.tensor for item in self.graph.inputs}:
                alive[name] = place.ref.offset, place.ref.offset + place.size
        for step in plan.steps:
            node = self._node_of(step)
            scratch = [n for n in node.inputs if self.file.tensors[n].name.endswith("_exSecondary")]
            written = self._spans(plan, [*node.outputs, *scratch])
            for name, (start, end) in list(alive.items()):
                if any(a < end and start < b for a, b in written):
                    lost.add(name)
                    del alive[name]
            for tensor in step.outputs:
                if tensor.name in plan.places:
                    place = plan.places[tensor.name]
                    alive[tensor.name] = place.ref.offset, place.ref.offset + place.size
        return lost
