"""A published row as work for an engine: built, bounded by the formula, run, estimated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosim.engines.engine import Engine
from cosim.engines.library import DramConfig
from cosim.perf import formula, layer_models
from cosim.perf.boards.calibrated import board_memory
from cosim.perf.boards.networks import network_file
from cosim.perf.boards.table import Row
from cosim.perf.estimator import estimate_model
from cosim.perf.spent import add, spent
from cosim.perf.workloads import matmul, run_compiled
from sw.compiler import ModelError, compile_model
from sw.compiler.matmul import CHANNEL_STEP, KINDS, SUM_BYTES, Matmul
from sw.compiler.steps import HostStep

BITS = {"int4": 4, "int8": 8, "fp16": 16}
PRECISION = {"int4": 6, "int8": 0, "fp16": 2}
"""Type to CNA's code (`cosim.perf.formula.GROUPS`)."""

PRODUCTS = {
    "fp16": "float16 x float16 -> float32",
    "int8": "int8 x int8 -> int32",
    "int4": "int4 x int4 -> int16",
}
"""Type of a published product to the kind that runs (the rows do not say the output's type)."""

NETWORKS = {"MobileNetV1": "mobilenet_v1", "MobileNetV2": "mobilenet_v2", "ResNet50": "resnet50"}
"""Row to network of `examples/networks/make.py`."""

PATIENCE = 12
"""A job may take this many times its formula before it counts as hung, and a million cycles besides."""


@dataclass(frozen=True)
class Bounds:
    """The vendor's formula (HARDWARE 9.6): cycles of the array and of DRAM; `cycles` of the whole."""

    npu: int
    ddr: int
    cycles: int


@dataclass(frozen=True)
class Ran:
    """What a row took: cycles, what they went on (`cosim.perf.spent.PARTS`; empty for estimates)."""

    cycles: int
    tasks: int
    submits: int
    spent: dict[str, int]


class Work(ABC):
    """One row.

    Members
    -------
    note : how it is run if not as it stands.
    """

    note = ""

    @abstractmethod
    def bounds(self) -> Bounds:
        """The vendor's formula, each tensor moved once, at the vendor's bandwidth."""

    @abstractmethod
    def traffic(self) -> float:
        """Bytes that the plan moves over those of the tensors."""

    @abstractmethod
    def run(self, engine: Engine) -> Ran:
        """Run on an engine of one core."""

    @abstractmethod
    def estimate(self, dram: DramConfig) -> tuple[Ran, str]:
        """Without simulation; with what it was estimated."""


def work(row: Row) -> Work:
    """What to do for a row.

    Raises
    ------
    ModelError, MatmulError, NetworkError
        where it cannot be built; the message says why.
    """
    if row.operation == "matmul":
        return Product(row)
    return Network(row) if row.operation == "model" else Layer(row)


class Layer(Work):
    """A single layer, compiled from a model of it."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._parts = 1
        try:
            self._model = compile_model(_layer(row, row.input[0]))
        except ModelError:
            # Depthwise channels are independent: a layer too wide for CBUF is as many layers of one group.
            channels = formula.DEPTHWISE_GROUP
            if row.family != "depthwise" or row.input[0] <= channels:
                raise
            self._model = compile_model(_layer(row, channels))
            self._parts = -(-row.input[0] // channels)
            self.note = f"{self._parts} times {channels} of its channels"
        if any(isinstance(step, HostStep) for step in self._model.plan.steps):
            raise ModelError(f"{row.id}: a part of it runs on the host")

    def _moved(self) -> tuple[int, int]:
        """Bytes of what is read and of what is written, once each."""
        row, size = self._row, BITS[self._row.type] // 8
        read = (2 if row.operation == "add" else 1) * math.prod(row.input)
        if row.operation == "conv":
            depth = 1 if row.family == "depthwise" else row.input[0]
            read += row.kernel**2 * row.output[0] * depth
        return read * size, math.prod(row.output) * size

    def traffic(self) -> float:
        """Bytes of the tasks over those of the tensors."""
        tasks = self._model.plan.tasks
        return self._parts * sum(task.reads + task.writes for task in tasks) / sum(self._moved())

    def bounds(self) -> Bounds:
        """From the row's sizes, as the published columns are."""
        row = self._row
        npu = 0
        if row.operation == "conv":
            depthwise = row.family == "depthwise"
            taps = row.kernel**2
            pixels = row.output[1] * row.output[2]
            npu = formula.conv_npu(pixels, row.output[0], row.input[0], taps, depthwise, PRECISION[row.type])
        ddr = formula.formula_ddr(*self._moved(), board_memory(row.clock_mhz))
        return Bounds(npu, ddr, max(npu, ddr))

    def run(self, engine: Engine) -> Ran:
        """The layer's tasks on random data."""
        limit = PATIENCE * self.bounds().cycles + 1_000_000
        return _times(_compiled(engine, self._row.id, self._model, limit), self._parts)

    def estimate(self, dram: DramConfig) -> tuple[Ran, str]:
        """Of its tasks."""
        ran, how = _estimated(self._model, dram)
        return _times(ran, self._parts), how


class Product(Work):
    """A matrix product; sizes that the hardware does not take are rounded up, as software has to."""

    def __init__(self, row: Row) -> None:
        (m, k), (_, n) = row.input, row.output
        kind = KINDS[PRODUCTS[row.type]]
        even = -(-k // CHANNEL_STEP) * CHANNEL_STEP, -(-n // kind.group) * kind.group
        if even != (k, n):
            self.note = f"K x N rounded up to {even[0]} x {even[1]}"
        self._product = Matmul(kind, m, *even)
        self._row = row

    def bounds(self) -> Bounds:
        """The product as a 1x1 convolution of M pixels."""
        p = self._product
        npu = formula.conv_npu(p.m, p.n, p.k, 1, False, p.kind.code)
        ddr = formula.formula_ddr(p.a_bytes + p.b_bytes, p.c_bytes, board_memory(self._row.clock_mhz))
        return Bounds(npu, ddr, max(npu, ddr))

    def traffic(self) -> float:
        """Bytes of the tiles over those of the matrices."""
        p = self._product
        moved = 0.0
        for tile in p.tiles:
            weights = 0 if tile.reuse else tile.columns * tile.depth
            moved += (tile.rows * tile.depth + weights) * p.kind.bits / 8
            results = tile.rows * tile.columns
            moved += results * (p.kind.out_bits // 8 if tile.last else SUM_BYTES)
            moved += results * SUM_BYTES * tile.adds
        return moved / (p.a_bytes + p.b_bytes + p.c_bytes)

    def run(self, engine: Engine) -> Ran:
        """Its tiles on random data."""
        p = self._product
        limit = PATIENCE * self.bounds().cycles + 1_000_000
        found = matmul(p.kind.name, p.m, p.k, p.n, limit)(engine, self._row.id, False)
        return _ran(engine, found.cycles)

    def estimate(self, dram: DramConfig) -> tuple[Ran, str]:
        """Of its tiles."""
        return _estimated(self._product, dram)


class Network(Work):
    """A whole network of published shapes with random weights."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._file: Path = network_file(NETWORKS[row.id])
        self._model = compile_model(self._file.read_bytes())
        self._jobs = sum(segment.host is None for segment in self._model.plan.segments())

    def bounds(self) -> Bounds:
        """Sums over the layers, of the larger of both for `cycles`, as HARDWARE 9.6 does."""
        layers: dict[int, tuple[int, int, int]] = {}
        for task in self._model.plan.tasks:
            npu, read, written = layers.get(task.layer, (0, 0, 0))
            layers[task.layer] = npu + task.formula_npu, read + task.reads, written + task.writes
        ddr = {layer: formula.formula_ddr(read, written) for layer, (_, read, written) in layers.items()}
        return Bounds(
            sum(npu for npu, *_ in layers.values()),
            sum(ddr.values()),
            sum(max(npu, ddr[layer]) for layer, (npu, *_) in layers.items()),
        )

    def traffic(self) -> float:
        """1: what the tensors between the layers have in bytes follows from the plan."""
        return 1.0

    def run(self, engine: Engine) -> Ran:
        """One inference; what the host computes in between takes no cycles."""
        ran = _compiled(engine, self._row.id, self._model, PATIENCE * self.bounds().cycles + 1_000_000)
        return Ran(ran.cycles, ran.tasks, self._jobs, ran.spent)

    def estimate(self, dram: DramConfig) -> tuple[Ran, str]:
        """Of its tasks."""
        ran, how = _estimated(self._model, dram)
        return Ran(ran.cycles, ran.tasks, self._jobs, {}), how


def _compiled(engine: Engine, name: str, model: Any, limit: int) -> Ran:
    return _ran(engine, run_compiled(engine, name, False, model, limit).cycles)


def _ran(engine: Engine, cycles: int) -> Ran:
    """All tasks that a fresh engine has run."""
    records = engine.task_log()
    parts = add(*(spent(record.counters.events, record.cycles or 0) for record in records))
    between = cycles - sum(parts.values())
    return Ran(cycles, len(records), 1, parts | {"between": between})


def _times(ran: Ran, count: int) -> Ran:
    parts = {part: count * cycles for part, cycles in ran.spent.items()}
    return Ran(count * ran.cycles, count * ran.tasks, ran.submits, parts)


def _estimated(work: Any, dram: DramConfig) -> tuple[Ran, str]:
    """By the estimator that is fitted to the RTL, task after task."""
    found = estimate_model(work, dram=dram)
    return Ran(found.cycles, len(found.tasks), 1, {}), "estimator"


def _layer(row: Row, channels: int) -> bytes:
    int8 = row.type == "int8"
    _, height, width = row.input
    if row.operation == "conv":
        depthwise = row.family == "depthwise"
        return layer_models.conv(
            channels,
            channels if depthwise else row.output[0],
            (height, width),
            int8=int8,
            kernel=row.kernel,
            stride=row.stride,
            pad=row.pad,
            depthwise=depthwise,
            activation=row.activation,
        )
    if row.operation == "add":
        return layer_models.add(row.input, int8=int8)
    if row.operation == "concat":
        return layer_models.concat(row.input, 3, int8=int8)
    if row.operation == "maxpool":
        return layer_models.max_pool(row.input, row.kernel, row.stride, row.pad, int8=int8)
    if row.operation == "resize":
        return layer_models.resize(row.input, row.kernel, int8=int8)
    raise ValueError(f"{row.id}: no such operation: {row.operation}")
