"""From steps to a plan: memory, tiles and tasks of a whole network."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.affine import fold_affines
from rkcosim.compiler.byte_functions import fold_byte_functions
from rkcosim.compiler.constraints.functions import function_reason
from rkcosim.compiler.fusion import fold_pads, fuse_operations
from rkcosim.compiler.graph import Graph, GraphInput, HostCall, ModelError, Tensor
from rkcosim.compiler.graph_products import SUM_BYTES
from rkcosim.compiler.limits import MAX_SIZE
from rkcosim.compiler.lowering.lower import lower
from rkcosim.compiler.memory import Block, assign
from rkcosim.compiler.plan import ALIGN, MAX_BYTES, MAX_TASKS, Plan, aligned
from rkcosim.compiler.programs.byte_products import byte_tiles
from rkcosim.compiler.programs.convolution import (
    CONV_BLOCKS,
    ConvOperands,
    convolution,
    tile_shape,
    written_group,
)
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.programs.elementwise import FLYING_BLOCKS, FlyingStep, copy, flying, repeat
from rkcosim.compiler.programs.operands import (
    FLOAT_TABLE_BYTES,
    SLOPE_BYTES,
    bias_table,
    channel_words,
    packed_weights,
    table_entry,
)
from rkcosim.compiler.programs.parts import on_parts
from rkcosim.compiler.programs.permutation import permute
from rkcosim.compiler.programs.pooling import POOL_BLOCKS, fold, pool
from rkcosim.compiler.programs.products import (
    column_sums,
    kernel_atoms,
    kernel_tiles,
    product,
    product_tiles,
)
from rkcosim.compiler.programs.stages import channel_operands, stages, table
from rkcosim.compiler.programs.task import Ref, Settings, Task
from rkcosim.compiler.rearrangements import rearranged_on_npu
from rkcosim.compiler.requant import SINGLE_ERROR
from rkcosim.compiler.sharing import one_core_reason, steps_to_share, submit_cycles
from rkcosim.compiler.softmax import softmax_on_npu
from rkcosim.compiler.steps import (
    AtomsStep,
    ByteTilesStep,
    CallStep,
    ConvStep,
    CopyStep,
    FloatStep,
    FoldStep,
    HostStep,
    PermuteStep,
    PoolStep,
    ProductStep,
    RepeatStep,
    SlopeStep,
    Step,
    SumsStep,
    TableStep,
    TilesStep,
)
from rkcosim.compiler.tiling import (
    STRIPE,
    ConvShape,
    Tile,
    is_planned_by_another,
    plan_tiles,
    saved_cycles,
)
from rkcosim.spec.layouts import (
    ATOM_BYTES,
    argb_pitch,
    pack_feature,
    surfaces,
)
from rkcosim.spec.layouts.weights import channel_group

log = logging.getLogger("rkcosim.compiler")


def _overwritten(blocks: list[Block], offsets: dict[str, int]) -> set[str]:
    """Return the blocks of which a later block overwrites some byte that should be kept."""
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
        The network.
    reuse
        Whether tensors that are not needed at the same time share memory.
    cores
        Number of cores, 1 to 3, among which convolutions are divided if that saves more time than the further
        submits take (`rkcosim.compiler.sharing`).
    fuse
        Whether a convolution's task also does the addition, function or slope after it, and functions of
        one tensor become one table (`rkcosim.compiler.fusion`).

    Raises
    ------
    ModelError
        If a layer is not supported, or there are too many tasks or bytes.
    """
    if cores not in (1, 2, 3):
        raise ModelError(f"model '{graph.name}': {cores} cores were requested; there are 1 to 3")
    fold_pads(graph)
    notes = []
    if fuse:
        fold_affines(graph)
        fold_byte_functions(graph)
        notes = fuse_operations(graph, cores)
    softmax_on_npu(graph)
    rearranged_on_npu(graph)
    planner = _Planner(graph, reuse, cores)
    plan = planner.run()
    plan.notes = notes + [note for step in plan.steps for note in _inexact_channels(step)]
    if plan.activation_bytes + len(plan.weights) > MAX_BYTES:
        total = plan.activation_bytes + len(plan.weights)
        raise ModelError(f"model '{graph.name}' needs {total} bytes; the NPU's addresses have 32 bits")
    if len(plan.tasks) > MAX_TASKS:
        raise ModelError(f"model '{graph.name}' needs {len(plan.tasks)} tasks, a job has at most {MAX_TASKS}")
    return plan


def replan(plan: Plan, cores: int) -> Plan:
    """Plan the steps of a plan for another number of cores; for errors see `make_plan`.

    The plan of a compiled model has steps, but its graph has no operations.
    """
    if cores not in (1, 2, 3):
        raise ModelError(f"model '{plan.graph.name}': {cores} cores were requested; there are 1 to 3")
    made = _Planner(plan.graph, plan.reuse, cores, plan.steps).run()
    made.notes = list(plan.notes)
    return made


def _inexact_channels(step: Step) -> list[str]:
    """Warn of channels whose results are changed by the rounding of their multipliers; return the text."""
    if not isinstance(step, ConvStep) or step.errors is None or float(step.errors.max()) <= SINGLE_ERROR:
        return []
    wrong = np.flatnonzero(step.errors > SINGLE_ERROR)
    worst = int(step.errors.argmax())
    note = (
        f"{step.kind} '{step.name}': the multipliers of {wrong.size} channels are too small to be exact; "
        f"channel {worst} (multiplier {int(step.multipliers[worst])}) can be wrong by "
        f"{float(step.errors[worst]):.1f} steps"
    )
    log.warning(note)
    return [note]


def refusals(graph: Graph) -> dict[str, str]:
    """Plan each operation of a graph by itself.

    Returns
    -------
    The file's nodes that cannot be planned, with the reasons.
    """
    inputs = {graph.root(item.tensor) for item in graph.inputs}
    found: dict[str, str] = {}
    for op in graph.ops:
        if isinstance(op, HostCall):
            continue
        part = Graph(graph.name, ops=[op])
        part.tensors = {name: graph.tensors[name] for name in (*op.inputs, op.output)}
        part.constants = {n: graph.constants[n] for n in op.inputs if n in graph.constants}
        part.inputs = [GraphInput(n, n, graph.tensors[n].shape) for n in op.inputs if graph.root(n) in inputs]
        try:
            make_plan(part, fuse=False).builders(dict.fromkeys(("regcmd", "weights", "activations"), 0))
        except ModelError as error:
            found[graph.makers.get(op.output, op.name)] = str(error)
            found.setdefault(op.name, str(error))
    return found


def rounded_in_vain(plan: Plan) -> dict[str, str]:
    """Return the host's steps on fp16 tensors of a plan without any task, by node, with the reasons."""
    graph, steps = plan.graph, [s for s in plan.steps if isinstance(s, HostStep) and s.output.real]
    if plan.tasks:
        return {}
    return {
        graph.makers.get(step.output.name, step.name): function_reason(step)
        for step in steps
        if not isinstance(step, CallStep)
    }


class _Planner:
    def __init__(self, graph: Graph, reuse: bool, cores: int, steps: Sequence[Step] = ()) -> None:
        self.graph = graph
        self.plan = Plan(graph, list(steps) or lower(graph), reuse=reuse, cores=cores)
        self.inputs = {graph.root(item.tensor) for item in graph.inputs}
        self.shapes: dict[int, ConvShape] = {}
        self.known: dict[bytes, Ref] = {}
        self.readers: dict[str, list[int]] = {}
        self.writers: dict[str, list[int]] = {}
        for index, step in enumerate(self.plan.steps):
            for name in {graph.root(item.name) for item in step.inputs}:
                self.readers.setdefault(name, []).append(index)
            for name in {graph.root(item.name) for item in step.outputs}:
                self.writers.setdefault(name, []).append(index)

    def run(self) -> Plan:
        self._tile()
        self._place()
        for index, step in enumerate(self.plan.steps):
            if isinstance(step, ConvStep):
                self._conv(index, step)
            elif isinstance(step, ProductStep):
                self._product(index, step)
            elif isinstance(step, SumsStep):
                self._sums(index, step)
            elif not isinstance(step, HostStep):
                self._other(index, step)
        return self.plan

    def _as_pixels(self, name: str) -> bool:
        """Whether a tensor is stored as packed pixels: an input of 1..4 channels only for convolutions."""
        users = [self.plan.steps[index] for index in self.readers.get(name, ())]
        cube = self.graph.tensors[name].cube
        return (
            name in self.inputs
            and not self.graph.tensors[name].real
            and cube[0] <= 4
            and cube[1] * cube[2] > 1
            and cube[2] <= MAX_SIZE
            and name not in self.graph.ends()
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
            if isinstance(step, ProductStep | SumsStep):
                self.plan.tiles[index] = product_tiles(step)
            if not isinstance(step, ConvStep):
                continue
            x = step.inputs[0]
            what = f"{step.kind} '{step.name}'"
            shape = self._shape(step, self._as_pixels(self.graph.root(x.name)))
            self.shapes[index] = shape
            self.plan.tiles[index] = plan_tiles(shape, what, self.plan.cores)
        if self.plan.cores > 1 and not is_planned_by_another():
            self._leave_on_one_core()

    def _leave_on_one_core(self) -> None:
        """Take back divisions among cores that do not save the time of their submits."""
        alone: dict[int, list[Tile]] = {}
        savings: list[int | None] = [None if isinstance(s, HostStep) else 0 for s in self.plan.steps]
        for index, shape in self.shapes.items():
            divided, step = self.plan.tiles[index], self.plan.steps[index]
            if any(tile.core for tile in divided):
                alone[index] = plan_tiles(shape, f"{step.kind} '{step.name}'")
                savings[index] = saved_cycles(shape, alone[index], divided)
        shared = steps_to_share(savings, submit_cycles())
        for index in alone.keys() - set(shared):
            self.plan.tiles[index] = alone[index]
        if any(saving is not None for saving in savings) and not shared:
            self.plan.on_one_core = one_core_reason()

    def _shape(self, step: ConvStep, pixels: bool) -> ConvShape:
        x, y = step.inputs[0], step.output
        argb = (x.cube[0], argb_pitch(x.cube[2])) if pixels else (0, 0)
        return ConvShape(
            *x.cube,
            *y.cube,
            step.window,
            step.depthwise,
            *argb,
            step.insert[0],
            y.itemsize,
            step.insert[1],
            step.activation is not None,
        )

    def _surfaces_written(self, index: int, step: Step) -> int:
        """Surfaces that a step writes, including those of incomplete kernel groups."""
        if isinstance(step, ProductStep):
            return step.surfaces_written
        if not isinstance(step, ConvStep):
            return surfaces(step.output.cube[0], step.output.itemsize)
        group = written_group(step.depthwise, step.output.itemsize)
        c2 = 16 // step.output.itemsize
        return max(
            tile.first_kernel // c2 + -(-tile.kernels // group) * (group // c2)
            for tile in self.plan.tiles[index]
        )

    def _surfaces_added(self, tensor: Tensor) -> list[int]:
        """Surfaces of a tensor that convolutions read as addend, or products as a factor.

        They read whole kernel groups, or whole weight tiles.
        """
        result = [0]
        for index in self.readers.get(tensor.name, ()):
            step = self.plan.steps[index]
            if (
                isinstance(step, AtomsStep | ByteTilesStep | ProductStep)
                and self.graph.root(step.inputs[0].name) == tensor.name
            ):
                result.append(step.surfaces_read)
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
            if name in self.graph.aliases or tensor.host:
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
        """Return how a tensor is stored; its address is assigned later."""
        ref = Ref("activations", 0)
        if self._as_pixels(tensor.name):
            channels, _, width = tensor.cube
            return Place(ref, tensor.cube, 0, channels, argb_pitch(width), tensor.unsigned)
        written = [
            self._surfaces_written(index, step)
            for index in self.writers.get(tensor.name, ())
            if self.graph.root((step := self.plan.steps[index]).output.name) == tensor.name
        ]
        count = max([surfaces(tensor.cube[0], tensor.itemsize), *written, *self._surfaces_added(tensor)])
        return Place(ref, tensor.cube, count, itemsize=tensor.itemsize)

    def _block(self, name: str, place: Place) -> Block:
        """Return when a tensor is needed; inputs and outputs always, because programs may read them."""
        steps = self.plan.steps
        writes, reads = self.writers.get(name, []), self.readers.get(name, [])
        last = len(steps) if name in self.graph.ends() or not writes else max([*reads, *writes])
        factor = any(
            isinstance(steps[i], AtomsStep | ByteTilesStep | ProductStep) for i in reads
        )  # zeros behind count, too
        kept = surfaces(place.cube[0], place.itemsize) * place.surface * ATOM_BYTES
        if place.argb or factor:
            kept = place.size
        if not writes:
            return Block(name, place.size, kept, 0, len(steps), last)
        return Block(name, place.size, kept, min(writes), max(writes), last)

    def _weights(self, data: npt.NDArray[np.uint8]) -> Ref:
        content = data.tobytes()
        if content in self.known:  # the samples of a batch share their weights
            return self.known[content]
        ref = Ref("weights", len(self.plan.weights))
        self.plan.weights += content.ljust(aligned(data.size), b"\0")
        if self.graph.samples > 1:
            self.known[content] = ref
        return ref

    def _conv(self, index: int, step: ConvStep) -> None:
        shape = self.shapes[index]
        x, y = self.plan.place(step.inputs[0].name), self.plan.place(step.output.name)
        table = self._weights(bias_table(step))
        correction = slopes = None
        words = step.seconds
        if step.slopes is not None and step.slopes.values.size > 1:
            words = step.slopes.words
        if words is not None:
            whole = 64 * -(-(shape.kernels + 64) // 64)  # whole groups after the last tile's first kernel
            slopes = self._weights(channel_words(words, whole))
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
                atom += tile.first_column
                operands = replace(operands, correction=correction + atom * 16)
            if slopes is not None:
                operands = replace(operands, slopes=slopes + tile.first_kernel * SLOPE_BYTES)
            if step.addend is not None:
                operands = replace(operands, addend=self.plan.place(step.inputs[1].name))
            settings = convolution(step, shape, tile, x, y, operands)
            group = 64 if step.depthwise else 32 // shape.itemsize
            whole = written_group(step.depthwise, shape.itemsize)
            written = -(-tile.kernels // whole) * whole
            part = tile_shape(shape, tile)
            pixels = tile.rows * part.out_width
            added = written * (1 if step.added_per_channel else pixels) if step.addend else 0
            task = Task(
                index,
                f".{number}" if len(self.plan.tiles[index]) > 1 else "",
                CONV_BLOCKS,
                settings,
                macs=pixels * tile.kernels * shape.taps * (1 if step.depthwise else shape.channels),
                reads=tile.in_rows * part.row_bytes
                + (0 if tile.weight_reuse else size)
                + written * (entry + (SLOPE_BYTES if slopes is not None else 0))
                + added,
                writes=pixels * written * shape.itemsize,
                formula_npu=-(-pixels // STRIPE) * STRIPE * -(-tile.kernels // group) * shape.pixel_cycles,
                core=tile.core,
            )
            self.plan.tasks.append(task)

    def _product(self, index: int, step: ProductStep) -> None:
        factors, tiles = step.factors, self.plan.tiles[index]
        places = tuple(self.plan.place(tensor.name) for tensor in step.inputs)
        y = self.plan.place(step.output.name)
        kernels = sum(tile.kernels for tile in tiles if tile.first_row == 0)
        table = self._weights(np.zeros(FLOAT_TABLE_BYTES * (kernels + 64), np.uint8))
        for number, (settings, tile) in enumerate(product(step, places, y, table, tiles)):
            self._factors(index, number, step, settings, tile, factors.itemsize)

    def _sums(self, index: int, step: SumsStep) -> None:
        factors = step.factors
        values = np.zeros((factors.blocks * channel_group(), 1, 1), np.int8)
        values[: factors.depth] = step.zero
        places = self.plan.place(step.inputs[0].name), self.plan.place(step.output.name)
        features = self._weights(pack_feature(values))
        tiles = self.plan.tiles[index]
        for number, (settings, tile) in enumerate(column_sums(step, *places, features, tiles)):
            self._factors(index, number, step, settings, tile, SUM_BYTES)

    def _factors(
        self,
        index: int,
        number: int,
        step: ProductStep | SumsStep,
        settings: Settings,
        tile: Tile,
        written: int,
    ) -> None:
        """Add a product's task of a number; its results have `written` bytes."""
        factors = step.factors
        depth, size = factors.blocks * channel_group(), factors.itemsize
        real = min(tile.kernels, factors.columns - tile.first_kernel)
        weights = 0 if tile.weight_reuse else size * tile.kernels * depth
        table = tile.kernels * FLOAT_TABLE_BYTES if isinstance(step, ProductStep) else 0
        groups = tile.kernels // factors.group
        task = Task(
            index,
            f".{number}" if len(self.plan.tiles[index]) * factors.heads > 1 else "",
            CONV_BLOCKS,
            settings,
            macs=tile.rows * real * factors.depth,
            reads=size * tile.rows * depth + weights + table,
            writes=written * tile.rows * tile.kernels,
            formula_npu=-(-tile.rows // STRIPE) * STRIPE * groups * max(factors.blocks, 4 // size),
        )
        self.plan.tasks.append(task)

    def _other(self, index: int, step: Step) -> None:
        places = tuple(self.plan.place(t.name) for t in step.inputs)
        y = self.plan.place(step.output.name)
        reads = sum(surfaces(p.cube[0], p.itemsize) * p.surface * 16 for p in places)
        writes = surfaces(y.cube[0], y.itemsize) * y.surface * 16
        blocks = POOL_BLOCKS if isinstance(step, PoolStep | FoldStep) else FLYING_BLOCKS
        programs: list[Settings]
        if isinstance(step, PoolStep):
            programs = pool(step, places[0], y)
        elif isinstance(step, FoldStep):
            programs = list(fold(step, places[0], y))
            reads = step.surfaces * y.surface * 16
        elif isinstance(step, CopyStep):
            programs = copy(step, places[0], y)
            reads = writes = surfaces(step.size[0], y.itemsize) * step.size[1] * step.size[2] * 16
        elif isinstance(step, AtomsStep):
            programs, reads = list(kernel_atoms(step, places[0], y)), writes
        elif isinstance(step, TilesStep):
            programs, reads = list(kernel_tiles(step, places[0], y)), writes
        elif isinstance(step, ByteTilesStep):
            programs, reads = list(byte_tiles(step, places[0], y)), writes
        elif isinstance(step, PermuteStep):
            programs = permute(step, places[0], y)
        elif isinstance(step, RepeatStep):
            programs = repeat(step, places[0], y)
        else:
            programs = self._elementwise(step, places, y)
        for number, settings in enumerate(programs):
            note, count = f".{number}" if len(programs) > 1 else "", len(programs)
            task = Task(index, note, blocks, settings, reads=reads // count, writes=writes // count)
            self.plan.tasks.append(task)

    def _elementwise(self, step: Step, places: tuple[Place, ...], y: Place) -> list[Settings]:
        """Return the programs of a step that treats all pixels alike."""
        if isinstance(step, FloatStep):
            operands = None
            if step.second.varies("add") or step.second.varies("mul"):
                operands = self._weights(channel_operands(step.second, y.cube[0]))
            settings = stages(step, places, y, operands)
        elif isinstance(step, TableStep):
            settings = table(step, places[0], y)
        else:
            assert isinstance(step, FlyingStep)
            slopes = None
            if isinstance(step, SlopeStep) and step.slopes.values.size > 1:
                slopes = self._weights(channel_words(step.slopes.words, step.slopes.values.size))
            settings = flying(step, places, y, slopes)
        return on_parts(settings, y)
