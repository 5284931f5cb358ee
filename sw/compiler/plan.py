"""From steps to a plan: memory, tiles and tasks of a whole network as one job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from sw.compiler.fusion.adds import fuse_adds
from sw.compiler.fusion.byte_functions import fold_byte_functions
from sw.compiler.fusion.lookups import fuse_lookups
from sw.compiler.fusion.pads import fold_pads
from sw.compiler.fusion.slopes import fuse_slopes
from sw.compiler.graph import Graph, ModelError, Tensor
from sw.compiler.lower import lower
from sw.compiler.memory import Block, assign
from sw.compiler.programs.convolution import CONV_BLOCKS, ConvOperands, convolution, written_group
from sw.compiler.programs.dpu import Place
from sw.compiler.programs.elementwise import FLYING_BLOCKS, copy, flying
from sw.compiler.programs.operands import (
    SLOPE_BYTES,
    bias_table,
    packed_weights,
    slope_table,
    table_entry,
)
from sw.compiler.programs.pooling import POOL_BLOCKS, pool
from sw.compiler.programs.task import Ref, Task
from sw.compiler.steps import (
    BinaryStep,
    ConvStep,
    CopyStep,
    HostStep,
    LookupStep,
    PoolStep,
    RescaleStep,
    SlopeStep,
    Step,
)
from sw.compiler.tiling import STRIPE, ConvShape, Tile, plan_tiles
from sw.layouts import (
    ATOM_BYTES,
    argb_pitch,
    pack_feature,
    surfaces,
)
from sw.regcmd import RegcmdError, TaskBuilder, TaskEntry, TaskList, build_task_list, task_list_bytes

ALIGN = 64
"""Alignment of everything placed in a region, in bytes."""

MAX_BYTES = 2**32 - 2**28
"""Bytes of weights and activations that can have addresses, with room for commands."""

MAX_TASKS = 4095
"""Tasks of one job (HARDWARE 2.1, TASK_NUMBER)."""


@dataclass(frozen=True)
class Segment:
    """A job of `count` tasks from `first` on, or the step that the host does.

    `parts` are (first, count) of each core, counted in the segment.
    """

    host: int | None
    first: int
    count: int
    parts: tuple[tuple[int, int], ...] = ()


@dataclass
class Plan:
    """Everything needed to run a network, but for the addresses of its three regions.

    `places` maps root tensors to memory; `weights` is the image of the weights region;
    `activation_bytes` the size of the activations region; `tiles` the tiles of each convolution.
    """

    graph: Graph
    steps: list[Step]
    places: dict[str, Place] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    tiles: dict[int, list[Tile]] = field(default_factory=dict)
    weights: bytearray = field(default_factory=bytearray)
    activation_bytes: int = 0
    shared_bytes: int = 0
    separate_bytes: int = 0
    """What the activations take (or would take) with shared memory, and without."""
    reuse: bool = False
    cores: int = 1
    lost: set[str] = field(default_factory=set)
    """Root tensors whose memory another one has taken by the end of a run."""
    notes: list[str] = field(default_factory=list)
    """Why operations that could have shared a task do not."""

    def builders(self, bases: Mapping[str, int]) -> list[TaskBuilder]:
        """The tasks as unlinked command lists for regions that start at `bases`.

        Raises
        ------
        ModelError
            for a layer past a field of a register, naming layer and field.
        """
        result = []
        for task in self.tasks:
            step = self.steps[task.layer]
            builder = TaskBuilder(f"{step.name}{task.note}")
            try:
                for setting in task.settings:
                    builder.set_word(setting.block, setting.register, setting.word_value(bases))
            except (ValueError, RegcmdError) as error:
                raise ModelError(f"{step.kind} '{step.name}' is too large for the NPU: {error}") from error
            result.append(builder.enable(*task.blocks))
        return result

    def segments(self) -> list[Segment]:
        """Jobs and what the host does between them, in order."""
        result: list[Segment] = []
        at = 0
        for index, step in enumerate(self.steps):
            cores = [task.core for task in self.tasks if task.layer == index]
            count, last = len(cores), result[-1] if result else None
            if isinstance(step, HostStep):
                result.append(Segment(index, 0, 0))
            elif any(cores):  # cores wait for each other between layers, so this one is a job
                parts = tuple((cores.index(c), cores.count(c)) for c in range(max(cores) + 1))
                result.append(Segment(None, at, count, parts))
            elif last is not None and last.host is None and len(last.parts) == 1:
                total = last.count + count
                result[-1] = Segment(None, last.first, total, ((0, total),))
            else:
                result.append(Segment(None, at, count, ((0, count),)))
            at += count
        return result

    def regcmd_bytes(self) -> int:
        """Size of the command region."""
        builders = self.builders(dict.fromkeys(("regcmd", "weights", "activations"), 0))
        return task_list_bytes(builders) if builders else ALIGN

    def task_list(self, bases: Mapping[str, int]) -> TaskList:
        """All tasks from `bases["regcmd"]` on, those of one segment linked to a chain."""
        builders = self.builders(bases)
        address, data = bases["regcmd"], b""
        entries: list[TaskEntry] = []
        for segment in self.segments():
            for first, count in segment.parts:
                data = data.ljust(_aligned(len(data)), b"\0")
                part = builders[segment.first + first : segment.first + first + count]
                chain = build_task_list(part, address + len(data))
                data += chain.data
                entries += chain.tasks
        return TaskList(address, data, entries)

    def place(self, tensor: str) -> Place:
        """Memory of a tensor, aliases followed, with the tensor's own rows and columns."""
        place = self.places[self.graph.root(tensor)]
        cube = self.graph.tensors[tensor].cube
        return place if cube == place.cube else replace(place, cube=cube)

    def __str__(self) -> str:
        lines = [
            f"{self.graph.name}: {len(self.tasks)} tasks, weights {len(self.weights)} bytes, "
            f"activations {self.activation_bytes} bytes ({self.shared_bytes} sharing memory, "
            f"{self.separate_bytes} not)"
        ]
        for index, step in enumerate(self.steps):
            tasks = [task for task in self.tasks if task.layer == index]
            shapes = " + ".join("x".join(map(str, t.cube)) for t in step.inputs)
            lines.append(
                f"  {index:3} {step.kind:18} {step.name:28} {shapes} -> "
                f"{'x'.join(map(str, step.output.cube))}  "
                + (
                    "on the host"
                    if isinstance(step, HostStep)
                    else f"tasks {len(tasks)}  formula {sum(task.formula_npu for task in tasks)}"
                )
            )
            for tile in self.tiles.get(index, []):
                lines.append(
                    f"        rows {tile.first_row}+{tile.rows} (in {tile.in_first}+{tile.in_rows}), "
                    f"kernels {tile.first_kernel}+{tile.kernels}, banks {tile.data_banks}/"
                    f"{tile.weight_banks}{', weights reused' if tile.weight_reuse else ''}"
                    f"{f', core {tile.core}' if self.cores > 1 else ''}"
                )
        lines += [f"  {note}" for note in self.notes]
        for name, place in self.places.items():
            form = (
                f"pixels of {place.argb}"
                if place.argb
                else f"{place.surface_count} surfaces{' of fp16' if place.itemsize > 1 else ''}"
            )
            lines.append(
                f"  {place.ref.region}+0x{place.ref.offset:06X} {place.size:8} bytes  {name} ({form})"
            )
        return "\n".join(lines)


def _overwritten(blocks: list[Block], offsets: dict[str, int]) -> set[str]:
    """Blocks of which some kept byte is written by a later one."""
    lost = set()
    for block in blocks:
        start = offsets[block.name]
        for other in blocks:
            begin = offsets[other.name]
            meets = begin < start + block.kept and start < begin + other.size
            if other is not block and meets and other.written > block.last:
                lost.add(block.name)
    return lost


def make_plan(graph: Graph, reuse: bool = False, cores: int = 1, fuse: bool = True) -> Plan:
    """Plan a whole graph.

    Parameters
    ----------
    graph
        the network.
    reuse
        let tensors share memory that are not needed at the same time.
    cores
        1 to 3: share convolutions out among so many cores where that is worth it.
    fuse
        let a convolution's task do the addition, function or slope behind it, and make one table of
        functions of one tensor (`sw.compiler.fusion`).

    Raises
    ------
    ModelError
        for a layer that cannot be done, or too many tasks.
    """
    if cores not in (1, 2, 3):
        raise ModelError(f"model '{graph.name}': {cores} cores, there are 1 to 3")
    fold_pads(graph)
    notes = []
    if fuse:
        fold_byte_functions(graph)
        notes = fuse_adds(graph) + fuse_lookups(graph) + fuse_slopes(graph)
    planner = _Planner(graph, reuse, cores)
    plan = planner.run()
    plan.notes = notes
    if plan.activation_bytes + len(plan.weights) > MAX_BYTES:
        total = plan.activation_bytes + len(plan.weights)
        raise ModelError(f"model '{graph.name}' needs {total} bytes; the NPU's addresses have 32 bits")
    if len(plan.tasks) > MAX_TASKS:
        raise ModelError(f"model '{graph.name}' needs {len(plan.tasks)} tasks, a job has at most {MAX_TASKS}")
    return plan


class _Planner:
    def __init__(self, graph: Graph, reuse: bool, cores: int) -> None:
        self.graph = graph
        self.plan = Plan(graph, lower(graph), reuse=reuse, cores=cores)
        self.inputs = {graph.root(item.tensor) for item in graph.inputs}
        self.shapes: dict[int, ConvShape] = {}

    def run(self) -> Plan:
        self._tile()
        self._place()
        for index, step in enumerate(self.plan.steps):
            if isinstance(step, ConvStep):
                self._conv(index, step)
            elif not isinstance(step, HostStep):
                self._other(index, step)
        return self.plan

    def _as_pixels(self, name: str) -> bool:
        """Whether a tensor is stored as packed pixels: an input of 1..4 channels for convolutions only."""
        users = [s for s in self.plan.steps if any(self.graph.root(t.name) == name for t in s.inputs)]
        cube = self.graph.tensors[name].cube
        output = any(self.graph.root(o.value) == name for o in self.graph.outputs if not o.real)
        source = {self.graph.root(o.input) for o in self.graph.host_ops if o.input in self.graph.tensors}
        return (
            name in self.inputs
            and not self.graph.tensors[name].real
            and cube[0] <= 4
            and cube[1] * cube[2] > 1
            and not output
            and name not in source
            and all(
                isinstance(s, ConvStep)
                and not s.depthwise
                and s.insert == (1, 1)
                and s.inputs[0].cube == cube
                and all(self.graph.root(t.name) != name for t in s.inputs[1:])
                for s in users
            )
        )

    def _tile(self) -> None:
        for index, step in enumerate(self.plan.steps):
            if not isinstance(step, ConvStep):
                continue
            channels, height, width = step.inputs[0].cube
            kernels, out_height, out_width = step.output.cube
            pixels = self._as_pixels(self.graph.root(step.inputs[0].name))
            shape = ConvShape(
                channels,
                height,
                width,
                kernels,
                out_height,
                out_width,
                step.window,
                step.depthwise,
                channels if pixels else 0,
                argb_pitch(width) if pixels else 0,
                step.insert[0],
                step.output.itemsize,
            )
            self.shapes[index] = shape
            self.plan.tiles[index] = plan_tiles(shape, f"{step.kind} '{step.name}'", self.plan.cores)

    def _surfaces_written(self, index: int, step: Step) -> int:
        """Surfaces that a step writes, whole kernel groups included."""
        if not isinstance(step, ConvStep):
            return surfaces(step.output.cube[0], step.output.itemsize)
        group = written_group(step.depthwise, step.output.itemsize)
        c2 = 16 // step.output.itemsize
        return max(
            tile.first_kernel // c2 + -(-tile.kernels // group) * (group // c2)
            for tile in self.plan.tiles[index]
        )

    def _surfaces_added(self, tensor: Tensor) -> list[int]:
        """Surfaces of a tensor that convolutions add: they read whole kernel groups as well."""
        result = [0]
        for index, step in enumerate(self.plan.steps):
            if not isinstance(step, ConvStep) or step.addend is None:
                continue
            _, height, width = step.inputs[1].cube
            if self.graph.root(step.inputs[1].name) == tensor.name:
                atoms = self._surfaces_written(index, step) * height * width
                result.append(-(-atoms // (tensor.cube[1] * tensor.cube[2])))
        return result

    def _place(self) -> None:
        blocks = []
        for name, tensor in self.graph.tensors.items():
            if name in self.graph.aliases:
                continue
            if name in self.graph.constants:
                count = max(surfaces(tensor.cube[0], tensor.itemsize), *self._surfaces_added(tensor))
                ref = self._weights(pack_feature(self.graph.constants[name], surface_count=count))
                self.plan.places[name] = Place(ref, tensor.cube, count, itemsize=tensor.itemsize)
                continue
            place = self._form(tensor)
            self.plan.places[name] = place
            blocks.append(self._block(name, place))
        offsets, self.plan.activation_bytes = assign(blocks, ALIGN, self.plan.reuse)
        self.plan.shared_bytes = assign(blocks, ALIGN)[1]
        self.plan.separate_bytes = assign(blocks, ALIGN, share=False)[1]
        for name, offset in offsets.items():
            self.plan.places[name] = replace(self.plan.places[name], ref=Ref("activations", offset))
        if self.plan.reuse:
            self.plan.lost = _overwritten(blocks, offsets)

    def _form(self, tensor: Tensor) -> Place:
        """How a tensor is stored; its address comes later."""
        ref = Ref("activations", 0)
        if self._as_pixels(tensor.name):
            channels, _, width = tensor.cube
            return Place(ref, tensor.cube, 0, channels, argb_pitch(width), tensor.unsigned)
        written = [
            self._surfaces_written(index, step)
            for index, step in enumerate(self.plan.steps)
            if self.graph.root(step.output.name) == tensor.name
        ]
        count = max([surfaces(tensor.cube[0], tensor.itemsize), *written, *self._surfaces_added(tensor)])
        return Place(ref, tensor.cube, count, itemsize=tensor.itemsize)

    def _block(self, name: str, place: Place) -> Block:
        """When a tensor is needed: model inputs and outputs always, as programs may look at them."""
        steps = self.plan.steps
        writes = [i for i, step in enumerate(steps) if self.graph.root(step.output.name) == name]
        reads = [i for i, s in enumerate(steps) if any(self.graph.root(t.name) == name for t in s.inputs)]
        ends = {self.graph.root(o.value) for o in self.graph.outputs if not o.real}
        ends |= {self.graph.root(o.input) for o in self.graph.host_ops if o.input in self.graph.tensors}
        last = len(steps) if name in ends or not writes else max([*reads, *writes])
        kept = (
            place.size if place.argb else surfaces(place.cube[0], place.itemsize) * place.surface * ATOM_BYTES
        )
        if not writes:
            return Block(name, place.size, kept, 0, len(steps), last)
        return Block(name, place.size, kept, min(writes), max(writes), last)

    def _weights(self, data: npt.NDArray[np.uint8]) -> Ref:
        ref = Ref("weights", len(self.plan.weights))
        self.plan.weights += data.tobytes().ljust(_aligned(data.size), b"\0")
        return ref

    def _conv(self, index: int, step: ConvStep) -> None:
        shape = self.shapes[index]
        x, y = self.plan.place(step.inputs[0].name), self.plan.place(step.output.name)
        table = self._weights(bias_table(step))
        correction = slopes = None
        if step.slopes is not None and step.slopes.values.size > 1:
            whole = 64 * -(-(shape.kernels + 64) // 64)  # whole groups behind the last tile's first kernel
            slopes = self._weights(slope_table(step.slopes, whole))
        if step.correction is not None:
            whole = 64 if step.depthwise else 32
            count = 4 * self._surfaces_written(index, step) + whole // 4
            correction = self._weights(pack_feature(step.correction, surface_count=count))
        packed: dict[int, tuple[Ref, int]] = {}
        for number, tile in enumerate(self.plan.tiles[index]):
            if tile.first_kernel not in packed:
                data = packed_weights(step, tile)
                packed[tile.first_kernel] = self._weights(data), data.size
            weights, size = packed[tile.first_kernel]
            entry = table_entry(step)
            operands = ConvOperands(weights, size, table + tile.first_kernel * entry)
            if correction is not None:
                atom = (tile.first_kernel // 4 * shape.out_height + tile.first_row) * shape.out_width
                operands = replace(operands, correction=correction + atom * 16)
            if slopes is not None:
                operands = replace(operands, slopes=slopes + tile.first_kernel * SLOPE_BYTES)
            if step.addend is not None:
                operands = replace(operands, addend=self.plan.place(step.inputs[1].name))
            settings = convolution(step, shape, tile, x, y, operands)
            group = 64 if step.depthwise else 32 // shape.itemsize
            whole = written_group(step.depthwise, shape.itemsize)
            written = -(-tile.kernels // whole) * whole
            pixels = tile.rows * shape.out_width
            added = written * (1 if step.added_per_channel else pixels) if step.addend else 0
            task = Task(
                index,
                f".{number}" if len(self.plan.tiles[index]) > 1 else "",
                CONV_BLOCKS,
                settings,
                macs=pixels * tile.kernels * shape.taps * (1 if step.depthwise else shape.channels),
                reads=tile.in_rows * shape.row_bytes
                + (0 if tile.weight_reuse else size)
                + written * (entry + (SLOPE_BYTES if slopes is not None else 0))
                + added,
                writes=pixels * written * shape.itemsize,
                formula_npu=-(-pixels // STRIPE) * STRIPE * -(-tile.kernels // group) * shape.pixel_cycles,
                core=tile.core,
            )
            self.plan.tasks.append(task)

    def _other(self, index: int, step: Step) -> None:
        places = tuple(self.plan.place(t.name) for t in step.inputs)
        y = self.plan.place(step.output.name)
        reads = sum(surfaces(p.cube[0], p.itemsize) * p.surface * 16 for p in places)
        writes = surfaces(y.cube[0], y.itemsize) * y.surface * 16
        if isinstance(step, PoolStep):
            settings, blocks = pool(step, places[0], y), POOL_BLOCKS
        elif isinstance(step, CopyStep):
            settings, blocks = copy(step, places[0], y), FLYING_BLOCKS
            reads = writes = surfaces(step.size[0], y.itemsize) * step.size[1] * step.size[2] * 16
        else:
            assert isinstance(step, BinaryStep | RescaleStep | SlopeStep | LookupStep)
            slopes = None
            if isinstance(step, SlopeStep) and step.slopes.values.size > 1:
                slopes = self._weights(slope_table(step.slopes, step.slopes.values.size))
            settings, blocks = flying(step, places, y, slopes), FLYING_BLOCKS
        self.plan.tasks.append(Task(index, "", blocks, settings, reads=reads, writes=writes))


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
