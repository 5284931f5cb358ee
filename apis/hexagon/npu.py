"""Graphs on the NPU: layers that are exact, sums of products, and what their jobs take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.chains import PRODUCTS, Chain, ChainFunction, Chains
from rkcosim.apis.hexagon.execution import Usage
from rkcosim.apis.hexagon.geometry import Geometry
from rkcosim.apis.hexagon.graph import Graph, GraphNode
from rkcosim.apis.hexagon.host_sums import HostArithmetic
from rkcosim.apis.hexagon.layers import SIGN, average_model, layer_model, pool_model
from rkcosim.apis.hexagon.operations import Arithmetic
from rkcosim.apis.hexagon.tensors import Edge, Failure, Value, quantised
from rkcosim.compiler import CompiledModel
from rkcosim.compiler.matmul import KINDS, Matmul
from rkcosim.regcmd.job import Job, Task
from rkcosim.regcmd.tasks import build_task_list, task_list_bytes
from rkcosim.running.machine import Machine, Mismatch, RunningModel

Array = npt.NDArray[Any]
Sums = npt.NDArray[np.int32]

INT8 = KINDS["int8 x int8 -> int32"]
STEP = 32
"""Rows and columns of the second factor are filled up to multiples of this."""

MOST_DEPTH = 65504
"""Elements of a sum in one product, the most that the NPU has; longer sums are added by the host."""

MOST_POOLS = 256
"""Shapes and windows for which layers of pooling are made; further ones are computed by the host."""

MOST_RANGES = 4
"""Ranges and shapes of a node for which layers are made; a node with more of them gets its sums only."""


PoolMaker = Callable[[str, tuple[int, int, int], Geometry], CompiledModel | None]
"""Makes the model of a window over an input (H, W, D); None if the NPU has no such layer."""


class Meter:
    """Adds up what the jobs of the device took.

    Parameters
    ----------
    machine : the device.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._usage = Usage()

    def take(self) -> Usage:
        """Return what was used since the last call."""
        found, self._usage = self._usage, Usage()
        return found

    @contextmanager
    def counting(self) -> Iterator[Callable[[int], None]]:
        """Count the tasks that end within the block; the function that it gives adds the cycles of a job."""
        meter = self._machine.meter
        before = len(meter()) if meter else 0

        def add(cycles: int) -> None:
            self._usage.cycles += cycles if meter else 0
            self._usage.jobs += 1

        yield add
        for measure in meter()[before:] if meter else ():
            self._usage.bytes += measure.bytes_read + measure.bytes_written
            self._usage.busy += measure.mac_busy or 0


class NpuArithmetic:
    """Sums of products as matrix products of signed bytes on the NPU, with sums of int32.

    Windows become rows of a matrix.  The unsigned codes a and w with the zero points za and zw become
    a - 128 and w - 128, and the sum of (a - za) * (w - zw) follows from the NPU's sum of their products, the
    sums of each window and of each kernel, and the zero points; all of that is exact.

    Parameters
    ----------
    machine : the device.
    meter : counts the jobs.
    """

    def __init__(self, machine: Machine, meter: Meter) -> None:
        self._machine, self._meter = machine, meter
        self._host = HostArithmetic()
        self._pools: dict[tuple[str, tuple[int, int, int], Geometry], RunningModel | None] = {}

    def convolve(self, x: Array, x_zero: int, w: Array, w_zero: int, window: Geometry) -> Sums:
        """See `rkcosim.apis.hexagon.operations.Arithmetic`."""
        patches = window.patches((x.astype(np.int16) - SIGN).astype(np.int8), np.int8(x_zero - SIGN))
        a = np.ascontiguousarray(patches.reshape(-1, w.shape[0] * w.shape[1] * w.shape[2]))
        b = (w.reshape(-1, w.shape[3]).astype(np.int16) - SIGN).astype(np.int8)
        total = np.zeros((len(a), b.shape[1]), np.int64)
        for first in range(0, len(b), MOST_DEPTH):
            total += self._product(a[:, first : first + MOST_DEPTH], b[first : first + MOST_DEPTH])
        za, zw = x_zero - SIGN, w_zero - SIGN
        total -= zw * a.sum(axis=1, dtype=np.int64)[:, None]
        total -= za * b.sum(axis=0, dtype=np.int64)[None]
        found: Sums = (total + len(b) * za * zw).astype(np.int32)
        found = found.reshape(x.shape[0], *window.output, -1)
        if self._machine.settings.check:
            self._check(found, self._host.convolve(x, x_zero, w, w_zero, window))
        return found

    @staticmethod
    def _check(found: Sums, wanted: Sums) -> None:
        wrong = np.argwhere(found != wanted)
        if wrong.size:
            at = tuple(int(n) for n in wrong[0])
            raise Mismatch(f"the sum at {at} is {found[at]}, but {wanted[at]} in the definition")

    def depthwise(self, x: Array, x_zero: int, w: Array, w_zero: int, window: Geometry) -> Sums:
        """Compute groups of channels as convolutions whose other weights are the zero point."""
        rows, columns, depth, count = w.shape
        found = []
        for first in range(0, depth, STEP):
            own = np.arange(min(STEP, depth - first))
            full = np.full((rows, columns, len(own), len(own), count), w_zero, np.uint8)
            full[:, :, own, own] = w[:, :, first : first + STEP]
            dense = full.reshape(rows, columns, len(own), -1)
            part = np.ascontiguousarray(x[..., first : first + STEP])
            found.append(self.convolve(part, x_zero, dense, w_zero, window))
        return np.concatenate(found, 3)

    def max_pool(self, x: Array, window: Geometry) -> npt.NDArray[np.uint8]:
        """Compute as a layer of the NPU, or on the host if the NPU has no such layer."""
        running = self._pool("maximum", x, window, pool_model)
        return self._host.max_pool(x, window) if running is None else run_codes(running, x, self._meter)

    def average_pool(self, x: Array, window: Geometry) -> npt.NDArray[np.uint8]:
        """Compute as a layer of the NPU, if all windows are inside the input and the layer is exact."""
        running = self._pool("average", x, window, average_model)
        return self._host.average_pool(x, window) if running is None else run_codes(running, x, self._meter)

    def _pool(self, name: str, x: Array, window: Geometry, make: PoolMaker) -> RunningModel | None:
        """Return the layer of a window over an input, made at the first call; None if there is none."""
        height, width, depth = x.shape[1:]
        key = name, (height, width, depth), window
        if key not in self._pools:
            if len(self._pools) >= MOST_POOLS:
                return None
            model = make(name, (height, width, depth), window)
            self._pools[key] = None if model is None else self._machine.load(name, model)
        return self._pools[key]

    def _product(self, a: Array, b: Array) -> npt.NDArray[np.int64]:
        """Return a (M x K) times b (K x N), both int8."""
        m, k, n = len(a), len(b), b.shape[1]
        deep, wide = (-(-size // STEP) * STEP for size in (k, n))
        product = Matmul(INT8, m, deep, wide)
        left, right = np.zeros((m, deep), np.int8), np.zeros((deep, wide), np.int8)
        left[:, :k], right[:k, :n] = a, b
        with _Buffers(self._machine) as place:
            inputs = place("A", product.a_bytes, left.view(np.uint8))
            weights = product.pack_b(right)
            factors = place("B", weights.size, weights)
            results = place("C", product.c_bytes)
            sums = place("sums", product.sums_bytes).iova if product.sums_bytes else 0
            builders = product.builders(inputs.iova, factors.iova, results.iova, sums=sums)
            commands = place("regcmd", task_list_bytes(builders))
            tasks = build_task_list(builders, commands.iova)
            commands.view(0, len(tasks.data))[:] = np.frombuffer(tasks.data, np.uint8)
            job = Job([Task.of_entry(entry) for entry in tasks.tasks])
            with self._meter.counting() as add:
                add(self._machine.driver.submit(job).cycles)
            found = results.view(0, product.c_bytes).view(np.int32).reshape(m, wide)[:, :n]
            return found.astype(np.int64)


class _Buffers:
    """Buffers of the device that are freed at the end."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._open: list[Any] = []

    def __enter__(self) -> _Buffers:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._open:
            buffer.free()

    def __call__(self, name: str, size: int, data: npt.NDArray[np.uint8] | None = None) -> Any:
        buffer = self._machine.driver.alloc(size, name)
        self._open.append(buffer)
        if data is not None:
            flat = data.reshape(-1)
            buffer.view(0, flat.size)[:] = flat
        return buffer


def run_codes(running: RunningModel, x: Array, meter: Meter) -> npt.NDArray[np.uint8]:
    """Run a model of one layer on each sample of x, uint8 (B, H, W, D); return uint8 (B, OH, OW, OC)."""
    signed = (x.astype(np.int16) - SIGN).astype(np.int8).transpose(0, 3, 1, 2)
    found = []
    for sample in signed:
        with meter.counting() as add:
            (codes,) = running.run([sample[None]], [True])
            add(running.last_cycles)
        found.append(codes[0])
    whole = np.stack(found).transpose(0, 2, 3, 1).astype(np.int16) + SIGN
    return whole.astype(np.uint8)


class _Layers:
    """The layers of one graph.

    Parameters
    ----------
    machine, meter : the device, and what counts its jobs.
    graph : the graph.
    """

    def __init__(self, machine: Machine, meter: Meter, graph: Graph) -> None:
        self._machine, self._meter, self._graph = machine, meter, graph
        self._chains = Chains(graph)
        self._known: dict[int, dict[tuple[Any, ...], RunningModel | None]] = {}

    def run(self, node: GraphNode, values: dict[Edge, Value]) -> bool:
        """See `rkcosim.apis.hexagon.execution.Accelerator.run_layer`."""
        chain = self._chains.from_node(node)
        if chain is None:
            return False
        try:
            function = ChainFunction(self._graph, chain, values)
            running = self._layer(chain, function)
        except Failure as failure:
            self._graph.say(f"execute: {node.label} is not one layer: {failure}", 2)
            return False
        if running is None:
            return False
        x, (height, width, depth) = function.inputs[0], function.convolution().shape
        codes = run_codes(running, x.codes.reshape(-1, height, width, depth), self._meter)
        if function.name in PRODUCTS:
            codes = codes.reshape(1, 1, -1, codes.shape[3])
        nothing = Value((0, 0, 0, 0), np.zeros(0, np.uint8))
        for one in chain.nodes[:-1]:
            values |= {Edge(one.number, n): nothing for n in range(len(one.declared))}
        limits = quantised(codes, function.limits)
        values |= {Edge(chain.last.number, n): one for n, one in enumerate(limits)}
        for one in chain.nodes[1:]:
            one.place = "npu"
        return True

    def _layer(self, chain: Chain, function: ChainFunction) -> RunningModel | None:
        """Return the layer of a chain for its ranges and shapes, or None if none is exact."""
        node = chain.first
        known = self._known.setdefault(node.number, {})
        key = function.key
        if key not in known:
            if len(known) >= MOST_RANGES:
                raise Failure("its ranges change with the data")
            convolution = function.convolution()
            model = layer_model(convolution)
            if model is None:
                self._graph.say(
                    f"execute: {node.label}: no layer of the NPU is exact; it computes the sums", 2
                )
            known[key] = None if model is None else self._machine.load(convolution.name, model)
        return known[key]

    def close(self) -> None:
        """Free the device's memory."""
        for known in self._known.values():
            for running in known.values():
                if running is not None:
                    self._machine.unload(running)


class Npu:
    """The accelerator of a device: see `rkcosim.apis.hexagon.execution.Accelerator`.

    Parameters
    ----------
    machine : the device.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine, self._meter = machine, Meter(machine)
        self.arithmetic: Arithmetic = NpuArithmetic(machine, self._meter)
        self._layers: dict[int, _Layers] = {}

    def take_usage(self) -> Usage:
        """Return what the NPU was used for since the last call."""
        return self._meter.take()

    def run_layer(self, graph: Graph, node: GraphNode, values: dict[Edge, Value]) -> bool:
        """Compute a node and those that follow it as one layer, if there is one that is exact."""
        if graph.number not in self._layers:
            self._layers[graph.number] = _Layers(self._machine, self._meter, graph)
        return self._layers[graph.number].run(node, values)

    def forget(self, graph: Graph) -> None:
        """Free the layers of a graph."""
        if graph.number in self._layers:
            self._layers.pop(graph.number).close()
