"""From steps to a plan: memory, tiles and tasks of a whole network as one job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import Graph, ModelError, Tensor
from sw.compiler.lower import AddStep, ConvStep, PoolStep, RescaleStep, Step, lower
from sw.compiler.program import Ref, Task
from sw.compiler.programs import (
    CONV_BLOCKS,
    FLYING_BLOCKS,
    POOL_BLOCKS,
    ConvOperands,
    Place,
    convolution,
    flying,
    pool,
)
from sw.compiler.tiling import STRIPE, ConvShape, Tile, plan_tiles
from sw.layouts import (
    argb_pitch,
    pack_bs_table,
    pack_feature,
    pack_weights,
    pack_weights_depthwise,
    surfaces,
)
from sw.regcmd import TaskBuilder, TaskList, build_task_list, task_list_bytes

ALIGN = 64
"""Alignment of everything placed in a region, in bytes."""

MAX_TASKS = 4095
"""Tasks of one job (HARDWARE 2.1, TASK_NUMBER)."""

TABLE_BYTES = 8
"""Bytes of bias table a channel: 64 per eight (HARDWARE 3.7)."""


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

    def builders(self, bases: Mapping[str, int]) -> list[TaskBuilder]:
        """The tasks as unlinked command lists for regions that start at `bases`."""
        result = []
        for task in self.tasks:
            builder = TaskBuilder(f"{self.steps[task.layer].name}{task.note}")
            for setting in task.settings:
                builder.set_word(setting.block, setting.register, setting.word_value(bases))
            result.append(builder.enable(*task.blocks))
        return result

    def regcmd_bytes(self) -> int:
        """Size of the command region."""
        return task_list_bytes(self.builders(dict.fromkeys(("regcmd", "weights", "activations"), 0)))

    def task_list(self, bases: Mapping[str, int]) -> TaskList:
        """The linked chain of all tasks at `bases["regcmd"]`."""
        return build_task_list(self.builders(bases), bases["regcmd"])

    def place(self, tensor: str) -> Place:
        """Memory of a tensor, aliases followed."""
        return self.places[self.graph.root(tensor)]

    def __str__(self) -> str:
        lines = [
            f"{self.graph.name}: {len(self.tasks)} tasks, weights {len(self.weights)} bytes, "
            f"activations {self.activation_bytes} bytes"
        ]
        for index, step in enumerate(self.steps):
            tasks = [task for task in self.tasks if task.layer == index]
            shapes = " + ".join("x".join(map(str, t.cube)) for t in step.inputs)
            lines.append(
                f"  {index:3} {step.kind:18} {step.name:28} {shapes} -> "
                f"{'x'.join(map(str, step.output.cube))}  tasks {len(tasks)}"
                f"  formula {sum(task.formula_npu for task in tasks)}"
            )
            for tile in self.tiles.get(index, []):
                lines.append(
                    f"        rows {tile.first_row}+{tile.rows} (in {tile.in_first}+{tile.in_rows}), "
                    f"kernels {tile.first_kernel}+{tile.kernels}, banks {tile.data_banks}/"
                    f"{tile.weight_banks}{', weights reused' if tile.weight_reuse else ''}"
                )
        for name, place in self.places.items():
            form = f"pixels of {place.argb}" if place.argb else f"{place.surface_count} surfaces"
            lines.append(
                f"  {place.ref.region}+0x{place.ref.offset:06X} {place.size:8} bytes  {name} ({form})"
            )
        return "\n".join(lines)


def make_plan(graph: Graph) -> Plan:
    """Plan a whole graph as one job.

    Raises
    ------
    ModelError
        for a layer that cannot be done, or too many tasks.
    """
    planner = _Planner(graph)
    plan = planner.run()
    if len(plan.tasks) > MAX_TASKS:
        raise ModelError(f"model '{graph.name}' needs {len(plan.tasks)} tasks, a job has at most {MAX_TASKS}")
    return plan


class _Planner:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.plan = Plan(graph, lower(graph))
        self.inputs = {graph.root(item.tensor) for item in graph.inputs}
        self.shapes: dict[int, ConvShape] = {}

    def run(self) -> Plan:
        self._tile()
        self._place()
        for index, step in enumerate(self.plan.steps):
            if isinstance(step, ConvStep):
                self._conv(index, step)
            else:
                self._other(index, step)
        return self.plan

    def _as_pixels(self, name: str) -> bool:
        """Whether a tensor is stored as packed pixels: an input of 1..4 channels for convolutions only."""
        users = [s for s in self.plan.steps if any(self.graph.root(t.name) == name for t in s.inputs)]
        cube = self.graph.tensors[name].cube
        output = any(self.graph.root(o.value) == name for o in self.graph.outputs if not o.real)
        return (
            name in self.inputs
            and cube[0] <= 4
            and cube[1] * cube[2] > 1
            and not output
            and all(isinstance(s, ConvStep) and not s.depthwise and s.inputs[0].cube == cube for s in users)
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
            )
            self.shapes[index] = shape
            self.plan.tiles[index] = plan_tiles(shape, f"{step.kind} '{step.name}'")

    def _surfaces_written(self, index: int, step: Step) -> int:
        """Surfaces that a step writes, whole kernel groups included."""
        if not isinstance(step, ConvStep):
            return surfaces(step.output.cube[0])
        group = 64 if step.depthwise else 32
        return max(
            tile.first_kernel // 16 + -(-tile.kernels // group) * (group // 16)
            for tile in self.plan.tiles[index]
        )

    def _place(self) -> None:
        writers = {self.graph.root(s.output.name): (i, s) for i, s in enumerate(self.plan.steps)}
        for name, tensor in self.graph.tensors.items():
            if name in self.graph.aliases:
                continue
            if name in self.graph.constants:
                ref = self._weights(pack_feature(self.graph.constants[name]))
                self.plan.places[name] = Place(ref, tensor.cube, surfaces(tensor.cube[0]))
                continue
            place = self._activation(tensor, *writers[name]) if name in writers else self._input(tensor)
            self.plan.places[name] = place
            self.plan.activation_bytes = _aligned(place.ref.offset + place.size)

    def _activation(self, tensor: Tensor, index: int, step: Step) -> Place:
        ref = Ref("activations", self.plan.activation_bytes)
        count = max(surfaces(tensor.cube[0]), self._surfaces_written(index, step))
        return Place(ref, tensor.cube, count)

    def _input(self, tensor: Tensor) -> Place:
        ref = Ref("activations", self.plan.activation_bytes)
        if self._as_pixels(tensor.name):
            channels, _, width = tensor.cube
            return Place(ref, tensor.cube, 0, channels, argb_pitch(width), tensor.unsigned)
        return Place(ref, tensor.cube, surfaces(tensor.cube[0]))

    def _weights(self, data: npt.NDArray[np.uint8]) -> Ref:
        ref = Ref("weights", len(self.plan.weights))
        self.plan.weights += data.tobytes().ljust(_aligned(data.size), b"\0")
        return ref

    def _conv(self, index: int, step: ConvStep) -> None:
        shape = self.shapes[index]
        x, y = self.plan.place(step.inputs[0].name), self.plan.place(step.output.name)
        table = self._weights(self._table(step))
        packed: dict[int, tuple[Ref, int]] = {}
        for number, tile in enumerate(self.plan.tiles[index]):
            if tile.first_kernel not in packed:
                data = self._packed(step, tile)
                packed[tile.first_kernel] = self._weights(data), data.size
            weights, size = packed[tile.first_kernel]
            operands = ConvOperands(weights, size, table + tile.first_kernel * TABLE_BYTES)
            settings = convolution(step, shape, tile, x, y, operands)
            group = 64 if step.depthwise else 32
            written = -(-tile.kernels // group) * group
            taps = shape.taps if step.depthwise else max(shape.taps * -(-shape.channels // 32), 4)
            pixels = tile.rows * shape.out_width
            task = Task(
                index,
                f".{number}" if len(self.plan.tiles[index]) > 1 else "",
                CONV_BLOCKS,
                settings,
                macs=pixels * tile.kernels * shape.taps * (1 if step.depthwise else shape.channels),
                reads=tile.in_rows * shape.row_bytes
                + (0 if tile.weight_reuse else size)
                + written * TABLE_BYTES,
                writes=pixels * written,
                formula_npu=-(-pixels // STRIPE) * STRIPE * -(-tile.kernels // group) * taps,
            )
            self.plan.tasks.append(task)

    def _packed(self, step: ConvStep, tile: Tile) -> npt.NDArray[np.uint8]:
        part = step.weights[tile.first_kernel : tile.first_kernel + tile.kernels]
        if step.depthwise:
            return pack_weights_depthwise(part[:, 0], fill=step.weight_zero)
        return pack_weights(part, fill=step.weight_zero)

    def _table(self, step: ConvStep) -> npt.NDArray[np.uint8]:
        """A = bias - input zero * sum(w - w_zero), B = -w_zero, C = multiplier (HARDWARE 3.7, 5.11)."""
        sums = (step.weights.astype(np.int64) - step.weight_zero).reshape(step.weights.shape[0], -1).sum(1)
        alu = step.bias - step.inputs[0].zero_point * sums
        limit = 2**31
        if np.abs(alu).max() >= limit:
            raise ModelError(f"{step.kind} '{step.name}': a bias passes 32 bits")
        count = -(-len(alu) // 64) * 64 + 32  # whole groups behind the last tile's first kernel
        table = np.zeros((3, count), dtype=np.int64)
        table[0, : len(alu)] = alu
        table[1, : len(alu)] = -step.weight_zero
        table[2, : len(alu)] = step.multipliers
        return pack_bs_table(table[0], table[1], table[2])

    def _other(self, index: int, step: Step) -> None:
        places = tuple(self.plan.place(t.name) for t in step.inputs)
        y = self.plan.place(step.output.name)
        reads = sum(surfaces(p.cube[0]) * p.surface * 16 for p in places)
        writes = surfaces(y.cube[0]) * y.surface * 16
        if isinstance(step, PoolStep):
            settings, blocks = pool(step, places[0], y), POOL_BLOCKS
        else:
            assert isinstance(step, AddStep | RescaleStep)
            settings, blocks = flying(step, places, y), FLYING_BLOCKS
        self.plan.tasks.append(Task(index, "", blocks, settings, reads=reads, writes=writes))


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
