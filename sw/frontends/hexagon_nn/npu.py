"""Sums of products on the NPU, exact in int32, and the cycles, bytes and busy cycles of its jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.matmul import KINDS, Matmul
from rkcosim.frontends.hexagon_nn.execution import Usage
from rkcosim.frontends.hexagon_nn.geometry import Geometry
from rkcosim.frontends.hexagon_nn.graph import Graph, Node
from rkcosim.frontends.hexagon_nn.host_sums import HostArithmetic
from rkcosim.frontends.hexagon_nn.operations import Arithmetic
from rkcosim.frontends.hexagon_nn.tensors import Edge, Failure, Value
from rkcosim.plugins.machine import Machine, Mismatch
from rkcosim.regcmd.job import Job, Task
from rkcosim.regcmd.tasks import build_task_list, task_list_bytes

Array = npt.NDArray[Any]
Sums = npt.NDArray[np.int32]

INT8 = KINDS["int8 x int8 -> int32"]
STEP = 32
"""Rows and columns of the second factor are filled up to multiples of this."""

MOST_DEPTH = 65504
"""Elements of a sum in one product, the most that the NPU has; longer sums are added by the host."""

SIGN = 128
"""Unsigned bytes less this are the NPU's signed ones."""


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

    def convolve(self, x: Array, x_zero: int, w: Array, w_zero: int, window: Geometry) -> Sums:
        """See `rkcosim.frontends.hexagon_nn.operations.Arithmetic`."""
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
        """Compute on the host: a matrix product would multiply by zeros for all other channels."""
        return self._host.depthwise(x, x_zero, w, w_zero, window)

    def max_pool(self, x: Array, window: Geometry) -> npt.NDArray[np.uint8]:
        """Compute on the host."""
        return self._host.max_pool(x, window)

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


class Npu:
    """The accelerator of a device: see `rkcosim.frontends.hexagon_nn.execution.Accelerator`.

    Parameters
    ----------
    machine : the device.
    """

    def __init__(self, machine: Machine) -> None:
        self._meter = Meter(machine)
        self.arithmetic: Arithmetic = NpuArithmetic(machine, self._meter)

    def take_usage(self) -> Usage:
        """Return what the NPU was used for since the last call."""
        return self._meter.take()

    def run_layer(self, graph: Graph, node: Node, values: dict[Edge, Value]) -> bool:
        """Return that no layer can be computed."""
        return False

    def forget(self, graph: Graph) -> None:
        """Free what is kept for a graph."""


__all__ = ["Failure", "Npu"]
