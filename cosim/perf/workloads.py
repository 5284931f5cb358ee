"""Single layers whose cycles are watched: twelve that between them show every way a layer is bound.

Each is one job of one core with random data.  The convolutions come from the compiler, int8 or as
floats (fp16 on the NPU); the matrix product writes its int32 sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim.crosscheck.model_check import ModelChecker
from cosim.engines.engine import Engine
from cosim.engines.soc import TaskRecord
from cosim.perf import formula, layer_models
from cosim.perf.measure import COMMANDS, meter
from cosim.perf.spent import add, spent
from sw.compiler import compile_conv_layer, compile_model
from sw.compiler.matmul import KINDS, Matmul, MatmulKind, pack_elements
from sw.driver import Driver, Job, Task
from sw.regcmd import build_task_list, task_list_bytes

MAX_CYCLES = 20_000_000

STALLS = ("stall_feature", "stall_weight", "stall_acc", "stall_dpu", "stall_write")
"""Events that say why something waits; two may be high in a cycle."""


@dataclass(frozen=True)
class Measured:
    """What a layer cost on the RTL.

    Members
    -------
    cycles : from the first start of a task to the last end.
    macs : useful ones.
    mac_slots : cycles in which the array works, empty slots of a stripe included.
    stalls : cycles by event name (`STALLS`).
    spent : cycles by what they went on; these add up to `cycles` (`cosim.perf.spent`).
    bytes_read, bytes_written : data; command words are not counted.
    formula_npu, formula_ddr : bounds (docs/performance.md).
    match : whether all bytes equal the golden models; None where nobody looked.
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
        """The larger of both bounds."""
        return max(self.formula_npu, self.formula_ddr)

    @property
    def ratio(self) -> float:
        """Cycles over the bound."""
        return self.cycles / self.formula_cycles

    @property
    def mac_busy(self) -> float:
        """Share of the cycles in which the array works."""
        return self.mac_slots / self.cycles

    def as_json(self) -> dict[str, Any]:
        """Plain values, those derived included."""
        return {
            **self.__dict__,
            "formula_cycles": self.formula_cycles,
            "ratio": round(self.ratio, 4),
            "mac_busy": round(self.mac_busy, 4),
        }


Runner = Callable[[Engine, str, bool], Measured]


@dataclass(frozen=True)
class Workload:
    """A layer by name; `busy` if DESIGN 4.5 wants the array 90 % busy in it."""

    name: str
    run: Runner
    busy: bool = False

    def measure(self, engine: Engine, check: bool = False) -> Measured:
        """Run the layer once on an engine; with `check` compare its bytes with the golden models."""
        return self.run(engine, self.name, check)


def _conv(**spec: Any) -> Runner:
    """An int8 convolution."""
    return lambda engine, name, check: run_compiled(engine, name, check, compile_conv_layer(**spec))


def _float_conv(
    channels: int, kernels: int, size: int, kernel: int = 1, pad: int = 0, depthwise: bool = False
) -> Runner:
    """A convolution of floats over a square map."""

    def run(engine: Engine, name: str, check: bool) -> Measured:
        layer = layer_models.conv(
            channels, kernels, (size, size), int8=False, kernel=kernel, pad=pad, depthwise=depthwise
        )
        return run_compiled(engine, name, check, compile_model(layer))

    return run


def run_compiled(
    engine: Engine, name: str, check: bool, model: Any, max_cycles: int = MAX_CYCLES
) -> Measured:
    """Run a compiled model once on random data, a job for `max_cycles`; its tasks together are the layer."""
    before = len(engine.task_log())
    loaded = model.load(Driver(engine, max_cycles), meter=meter(engine))
    try:
        rng = np.random.default_rng(layer_models.SEED)
        values: list[npt.NDArray[Any]] = []
        for number, info in enumerate(model.inputs):
            values.append(rng.normal(size=info.shape).astype(info.dtype))
            if info.quantised:
                values[-1] = rng.integers(-128, 128, info.shape).astype(np.int8)
            loaded.set_input(number, values[-1])
        layers = loaded.run().layers
        match = ModelChecker(loaded).check([*values]).match if check else None
    finally:
        loaded.close()
    tasks = model.plan.tasks
    moved = sum(task.reads for task in tasks), sum(task.writes for task in tasks)
    npu, macs = sum(layer.formula_npu for layer in layers), sum(layer.macs for layer in layers)
    return _measured(name, engine.task_log()[before:], macs, npu, moved, match)


def matmul(kind: str, m: int, k: int, n: int, max_cycles: int = MAX_CYCLES) -> Runner:
    """A product of the named kind (`sw.compiler.matmul.KINDS`), rows of A and C as they are.

    Only sums in int32 are compared with numpy.
    """

    def run(engine: Engine, name: str, check: bool) -> Measured:
        product = Matmul(KINDS[kind], m, k, n)
        before = len(engine.task_log())
        driver = Driver(engine, max_cycles)
        rng = np.random.default_rng(layer_models.SEED)
        a, b = (_elements(rng, shape, product.kind) for shape in ((m, k), (k, n)))
        result = multiply(driver, product, pack_elements(a, product.kind.bits), product.pack_b(b))
        match = None
        if check and product.kind.name.endswith("int32"):
            sums = result.view(np.int32).reshape(m, n)
            match = bool(np.array_equal(sums, a.astype(np.int32) @ b.astype(np.int32)))
        npu = sum(
            formula.conv_npu(t.rows, t.columns, t.depth, 1, False, product.kind.code) for t in product.tiles
        )
        moved = product.a_bytes + product.b_bytes, product.c_bytes
        return _measured(name, engine.task_log()[before:], m * k * n, npu, moved, match)

    return run


def multiply(
    driver: Driver, product: Matmul, a: npt.NDArray[np.uint8], b: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """The bytes of C, computed as one job of core 0; `a` as the product reads it, `b` by its `pack_b`."""
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
    """Random numbers of a product's type (int4 as int8 numbers)."""
    if kind.is_float:
        return rng.normal(size=shape).astype(np.float16)
    most = 1 << (kind.bits - 1)
    return rng.integers(-most, most, shape).astype(np.int8)


def _measured(
    name: str, records: list[TaskRecord], macs: int, npu: int, moved: tuple[int, int], match: bool | None
) -> Measured:
    counters = [record.counters for record in records]

    events = add(*(c.events for c in counters))
    ends = [record.end for record in records if record.end is not None]
    if len(ends) < len(records):
        raise RuntimeError(f"{name}: a task did not end")
    cycles = max(ends) - min(record.start for record in records)
    return Measured(
        name,
        len(records),
        cycles,
        macs,
        events.get("mac_slots", 0),
        {stall: events.get(stall, 0) for stall in STALLS},
        spent(events, cycles),
        sum(n for c in counters for client, n in c.bytes_read.items() if client != COMMANDS),
        sum(n for c in counters for n in c.bytes_written.values()),
        npu,
        formula.ddr(*moved),
        match,
    )


LAYERS: dict[str, Workload] = {
    layer.name: layer
    for layer in (
        Workload("int8 1x1 512->512 at 14x14", _conv(channels=512, kernels=512, height=14, width=14), True),
        Workload(
            "int8 3x3 64->64 at 56x56",
            _conv(channels=64, kernels=64, height=56, width=56, kernel=3, pad=1),
            True,
        ),
        Workload(
            "int8 3x3 256->256 at 14x14",
            _conv(channels=256, kernels=256, height=14, width=14, kernel=3, pad=1),
            True,
        ),
        Workload("int8 1x1 64->256 at 56x56", _conv(channels=64, kernels=256, height=56, width=56)),
        Workload(
            "int8 depthwise 3x3 256 at 28x28",
            _conv(channels=256, kernels=256, height=28, width=28, kernel=3, pad=1, depthwise=True),
        ),
        Workload(
            "int8 first layer 3x3 3->32 from 224x224 stride 2",
            _conv(channels=3, kernels=32, height=224, width=224, kernel=3, stride=2, pad=1),
        ),
        Workload("int8 fully connected 1024->1024", _conv(channels=1024, kernels=1024, height=1, width=1)),
        Workload("int8 product 128x1024x1024 to int32", matmul("int8 x int8 -> int32", 128, 1024, 1024)),
        Workload("fp16 1x1 512->512 at 14x14", _float_conv(512, 512, 14), True),
        Workload("fp16 3x3 64->64 at 64x64", _float_conv(64, 64, 64, kernel=3, pad=1), True),
        Workload("fp16 depthwise 3x3 128 at 28x28", _float_conv(128, 128, 28, 3, 1, depthwise=True)),
        Workload("fp16 fully connected 1024->1024", _float_conv(1024, 1024, 1)),
    )
}
"""By name."""
