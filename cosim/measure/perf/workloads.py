"""Twelve single layers whose cycles are monitored; together they cover everything that can limit a layer.

Each is one job of one core with random data.  The convolutions come from the compiler, in int8 or in floating
point (fp16 on the NPU); the matrix product writes int32 sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import CompiledModel, compile_conv_layer, compile_model
from rkcosim.compiler.matmul import KINDS, Matmul, MatmulKind, pack_elements
from rkcosim.compiler.runtime import LayerReport, TaskMeasure
from rkcosim.driver import Driver, Job, Task
from rkcosim.engines.engine import Engine
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf import formula, layer_models
from rkcosim.measure.perf.attribution import Cause, add, attribute_tasks, sum_of
from rkcosim.measure.perf.measure import SEED, loaded, random_values
from rkcosim.regcmd import build_task_list, task_list_bytes
from rkcosim.running.meter import measure, meter
from rkcosim.verify.crosscheck.model_check import ModelChecker

MAX_CYCLES = 20_000_000

MEMORY = DramConfig().unshared
"""Memory for these layers, and for measurements of the simulator's speed.  One core may use the whole
bandwidth of DRAM, so that array and DPU are measured and figures of different dates can be compared."""

STALLS = ("stall_feature", "stall_weight", "stall_acc", "stall_dpu", "stall_write")
"""Events that give the reason of a wait; several may be set in the same cycle."""


@dataclass(frozen=True)
class Measured:
    """Measurements of a layer on the RTL.

    Members
    -------
    cycles : from the start of the first task to the end of the last.
    macs : useful multiply-accumulates.
    mac_slots : cycles in which the array works, including empty slots of a stripe.
    stalls : cycles by event name (`STALLS`).
    spent : the cycles by cause (`rkcosim.measure.perf.attribution`), whose sum is `cycles` on one core.
    bytes_read, bytes_written : bytes of data, without command words.
    formula_npu, formula_ddr : lower bounds (docs/results/performance.md).
    match : whether all bytes equal the golden models'; None if they were not compared.
    """

    name: str
    tasks: int
    cycles: int
    macs: int
    mac_slots: int
    stalls: dict[str, int]
    spent: dict[str, int]
    bytes_read: int
    bytes_written: int
    formula_npu: int
    formula_ddr: int
    match: bool | None = None

    @property
    def formula_cycles(self) -> int:
        """The larger of the two bounds."""
        return max(self.formula_npu, self.formula_ddr)

    @property
    def ratio(self) -> float:
        """Cycles divided by the bound."""
        return self.cycles / self.formula_cycles

    @property
    def mac_busy(self) -> float:
        """Share of the cycles in which the array works."""
        return self.mac_slots / self.cycles

    def as_json(self) -> dict[str, Any]:
        """Return plain values, including the derived ones."""
        return {
            **self.__dict__,
            "formula_cycles": self.formula_cycles,
            "ratio": round(self.ratio, 4),
            "mac_busy": round(self.mac_busy, 4),
        }


@dataclass(frozen=True)
class Workload:
    """A named layer and the function that makes it; `busy` if the array is to work in 90 % of the cycles."""

    name: str
    make: Callable[[], CompiledModel | Matmul]
    busy: bool = False

    def measure(self, engine: Engine, check: bool = False) -> Measured:
        """Run the layer once on an engine; with `check` compare its bytes with the golden models."""
        return run_work(engine, self.name, self.make(), check)


def run_work(
    engine: Engine,
    name: str,
    work: CompiledModel | Matmul,
    check: bool = False,
    max_cycles: int = MAX_CYCLES,
) -> Measured:
    """Run a compiled model or a product once on random data; all its tasks together form the layer.

    Parameters
    ----------
    check : compare tensors with the golden models, and int32 sums of a product with numpy.
    max_cycles : limit of each job.

    Raises
    ------
    RuntimeError
        If a task did not end.
    """
    before = len(engine.task_log())
    driver = Driver(engine, max_cycles)
    match, layers = None, list[LayerReport]()
    if isinstance(work, Matmul):
        m, k, n = work.m, work.k, work.n
        rng = np.random.default_rng(SEED)
        a, b = (_elements(rng, shape, work.kind) for shape in ((m, k), (k, n)))
        result = multiply(driver, work, pack_elements(a, work.kind.bits), work.pack_b(b))
        if check and work.kind.name.endswith("int32"):
            sums = result.view(np.int32).reshape(m, n)
            match = bool(np.array_equal(sums, a.astype(np.int32) @ b.astype(np.int32)))
        sizes = ((tile.rows, tile.columns, tile.depth) for tile in work.tiles)
        npu, macs = sum(formula.conv_npu(*size, 1, False, work.kind.code) for size in sizes), m * k * n
        moved = work.a_bytes + work.b_bytes, work.c_bytes
    else:
        values = random_values(work)
        with loaded(work, driver, values, meter=meter(engine)) as ready:
            layers = ready.run().layers
            match = ModelChecker(ready).check([*values]).match if check else None
        npu, macs = sum(layer.formula_npu for layer in layers), sum(layer.macs for layer in layers)
        moved = sum(task.reads for task in work.plan.tasks), sum(task.writes for task in work.plan.tasks)
    records = engine.task_log()[before:]
    ends = [record.end for record in records if record.end is not None]
    if len(ends) < len(records):
        raise RuntimeError(f"{name}: a task did not end")
    cycles = max(ends) - min(record.start for record in records)
    tasks = [measure(record, record.cycles or 0) for record in records]
    events = add(*(task.events for task in tasks))
    return Measured(
        name,
        len(records),
        cycles,
        macs,
        events.get("mac_slots", 0),
        {stall: events.get(stall, 0) for stall in STALLS},
        _spent(tasks, layers, cycles, engine.dram),
        sum(task.bytes_read for task in tasks),
        sum(task.bytes_written for task in tasks),
        npu,
        formula.ddr(*moved, engine.dram, len({task.core for task in tasks})),
        match,
    )


def _spent(
    tasks: Sequence[TaskMeasure], layers: Sequence[LayerReport], cycles: int, dram: DramConfig
) -> dict[str, int]:
    """Return the cycles by cause, those of each core of a shared layer; cycles between layers are `TASK`."""
    timed = [layer for layer in layers if layer.measures]
    if not timed:
        return attribute_tasks(tasks, cycles=cycles, dram=dram).as_json()
    found = sum_of(attribute_tasks(one.measures, one.rates, one.cycles, dram) for one in timed)
    found[Cause.TASK] += max(cycles - sum(layer.cycles or 0 for layer in timed), 0)
    return {str(cause): count for cause, count in found.items()}


def multiply(
    driver: Driver, product: Matmul, a: npt.NDArray[np.uint8], b: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """The bytes of C, computed as one job of core 0; `a` has the product's layout, `b` its `pack_b`."""
    sizes = {"A": product.a_bytes, "B": product.b_bytes, "C": product.c_bytes}
    sizes["sums"] = max(product.sums_bytes, 64)
    buffers = [driver.alloc(size, what) for what, size in sizes.items()]
    left, right, out, sums = buffers
    try:
        left.view(0, a.size)[:] = a
        right.view(0, b.size)[:] = b
        builders = product.builders(left.iova, right.iova, out.iova, sums=sums.iova)
        commands = driver.alloc(task_list_bytes(builders), "commands")
        buffers.append(commands)
        tasks = build_task_list(builders, commands.iova)
        commands.view(0, len(tasks.data))[:] = np.frombuffer(tasks.data, np.uint8)
        driver.submit(Job([Task.of_entry(entry) for entry in tasks.tasks], core_mask=1))
        return out.view(0, product.c_bytes).copy()
    finally:
        for buffer in buffers:
            buffer.free()


def _elements(rng: np.random.Generator, shape: tuple[int, int], kind: MatmulKind) -> npt.NDArray[Any]:
    """Draw random numbers of a product's type (int4 as int8 numbers)."""
    if kind.is_float:
        return rng.normal(size=shape).astype(np.float16)
    most = 1 << (kind.bits - 1)
    return rng.integers(-most, most, shape).astype(np.int8)


def _conv(channels: int, kernels: int, size: int, **options: Any) -> Callable[[], CompiledModel]:
    """Return a function that makes an int8 convolution over a square map."""
    return lambda: compile_conv_layer(channels=channels, kernels=kernels, height=size, width=size, **options)


def _float_conv(channels: int, kernels: int, size: int, **options: Any) -> Callable[[], CompiledModel]:
    """Return a function that makes a floating-point convolution over a square map."""
    return lambda: compile_model(layer_models.conv(channels, kernels, (size, size), int8=False, **options))


LAYERS: dict[str, Workload] = {
    layer.name: layer
    for layer in (
        Workload("int8 1x1 512->512 at 14x14", _conv(512, 512, 14), True),
        Workload("int8 3x3 64->64 at 56x56", _conv(64, 64, 56, kernel=3, pad=1), True),
        Workload("int8 3x3 256->256 at 14x14", _conv(256, 256, 14, kernel=3, pad=1), True),
        Workload("int8 1x1 64->256 at 56x56", _conv(64, 256, 56)),
        Workload("int8 depthwise 3x3 256 at 28x28", _conv(256, 256, 28, kernel=3, pad=1, depthwise=True)),
        Workload(
            "int8 first layer 3x3 3->32 from 224x224 stride 2", _conv(3, 32, 224, kernel=3, stride=2, pad=1)
        ),
        Workload("int8 fully connected 1024->1024", _conv(1024, 1024, 1)),
        Workload(
            "int8 product 128x1024x1024 to int32",
            lambda: Matmul(KINDS["int8 x int8 -> int32"], 128, 1024, 1024),
        ),
        Workload("fp16 1x1 512->512 at 14x14", _float_conv(512, 512, 14), True),
        Workload("fp16 3x3 64->64 at 64x64", _float_conv(64, 64, 64, kernel=3, pad=1), True),
        Workload(
            "fp16 depthwise 3x3 128 at 28x28", _float_conv(128, 128, 28, kernel=3, pad=1, depthwise=True)
        ),
        Workload("fp16 fully connected 1024->1024", _float_conv(1024, 1024, 1)),
    )
}
"""The layers by name."""
