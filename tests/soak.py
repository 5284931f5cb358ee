"""Many small jobs on each server and each long-lived object: nothing may grow with their number.

`make soak` runs 10,000 jobs of each load in a process of its own, samples resident memory, Python objects,
descriptors, threads, mappings and files in /dev/shm and in the socket's folder, prints a table and fails if
something grows. tests/unit/test_soak.py runs a few hundred jobs and compares only counts.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import rkcosim.rknn_api as rk
from rkcosim.apis.diopi import npu as diopi_npu
from rkcosim.apis.diopi import runtime as diopi
from rkcosim.apis.hexagon import account as hexagon_account
from rkcosim.apis.hexagon.account import Account
from rkcosim.apis.hexagon.geometry import Padding
from rkcosim.apis.hexagon.npu import Npu
from rkcosim.apis.link.instruments import open_machine
from rkcosim.apis.link.protocol import PROTOCOL, Message, RequestKind, Runtime, Status
from rkcosim.apis.link.worker import Worker
from rkcosim.apis.litert.calls import LiteRtCalls
from rkcosim.apis.nnapi.device import IDevice
from rkcosim.apis.nnapi.hal_types import Request, RequestArgument
from rkcosim.apis.nnapi.memory import ashmem
from rkcosim.apis.nnapi.model import DataLocation
from rkcosim.apis.ort import parts as ort_parts
from rkcosim.apis.ort.calls import OrtCalls
from rkcosim.apis.tnn.instance import Instance
from rkcosim.base.processes import resident
from rkcosim.driver import Driver, Job, Task
from rkcosim.driver.kernel import Kernel
from rkcosim.driver.kernel import structs as s
from rkcosim.driver.server import Server
from rkcosim.driver.server.protocol import Op
from rkcosim.engines import records
from rkcosim.engines.engine import open_engine
from rkcosim.golden.task import GoldenNpu
from rkcosim.golden.task.npu import KEPT_REPORTS
from rkcosim.regcmd import build_task_list
from rkcosim.rknn_api.server import RknnServer
from rkcosim.rknn_api.session import Model, use
from rkcosim.running import machine as running_machine
from rkcosim.running import meter as running_meter
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings
from rkcosim.verify.crosscheck.kick import run_kick
from tests import seeds
from tests.makers import plugin_graphs as plugin
from tests.makers.diopi_tensors import Calls
from tests.makers.hexagon_graphs import Builder, execute
from tests.makers.kernel_client import CARD, LOW, Program, submit_of, sums
from tests.makers.nnapi_models import conv_model
from tests.makers.rknn_models import image_model
from tests.makers.small_streams import streams
from tests.makers.small_tasks import add_task
from tests.makers.tnn_layers import CASES, network_of, run_instance
from tests.system import test_device_hostile as device_client
from tests.system import test_librknnrt_hostile as rknn_client
from tests.unit.test_tnn_status import on_device

JOBS = 10_000
SAMPLES = 5
SELDOM = 25
"""One of so many jobs also opens and closes a client, a model or a graph."""

BYTES_PER_JOB = 200
"""Growth of resident memory per job that fails; GoldenNpu.reports took 4,600, the log of one task 550."""

NOISE = {"RSS": 1 << 20, "descriptors": 3, "threads": 3, "mappings": 8, "files": 2}
"""Growth by which a count may differ between samples, in bytes for RSS."""

OBJECTS = 24
"""Objects and items of a type that may be more in the last sample than in the first."""


@dataclass
class Sample:
    """What a process has after a number of jobs; `objects` by type, and items of containers by type."""

    jobs: int
    seconds: float
    counts: dict[str, int]
    objects: Counter[str]


@dataclass
class Growth:
    """Samples of a load.

    Members
    -------
    samples : in the order of the jobs.
    """

    load: str
    samples: list[Sample] = field(default_factory=list)

    def found(self, memory: bool = True) -> list[str]:
        """Return a line for each count that grew from sample to sample by more than noise.

        Parameters
        ----------
        memory : also judge resident memory.
        """
        first, last = self.samples[0], self.samples[-1]
        jobs, lines = last.jobs - first.jobs, []
        for name, noise in NOISE.items():
            more = last.counts[name] - first.counts[name]
            allowed = noise + (BYTES_PER_JOB * jobs if name == "RSS" else 0)
            if more > allowed and (memory or name != "RSS"):
                lines.append(f"{self.load}: {name} grew by {more:,} in {jobs:,} jobs")
        for name, count in last.objects.items():
            steps = [one.objects[name] for one in self.samples]
            more = count - steps[0]
            if more > OBJECTS and all(a < b for a, b in pairwise(steps)):
                lines.append(f"{self.load}: {name} grew by {more:,} in {jobs:,} jobs")
        return lines


def sample(jobs: int, seconds: float, folder: Path) -> Sample:
    """Return what this process has."""
    gc.collect()
    proc = Path("/proc/self")
    counts = {
        "RSS": resident(),
        "descriptors": len(os.listdir(proc / "fd")),
        "threads": len(os.listdir(proc / "task")),
        "mappings": (proc / "maps").read_text().count("\n"),
        "files": sum(1 for place in (Path("/dev/shm"), folder) if place.is_dir() for _ in place.iterdir()),
    }
    objects: Counter[str] = Counter()
    for one in gc.get_objects():
        name = type(one).__qualname__
        objects[name] += 1
        if (type(one) in (list, dict, set) or (type(one) is deque and one.maxlen is None)) and one:
            with contextlib.suppress(RuntimeError):  # another thread changes it
                first = next(iter(one.values() if isinstance(one, dict) else one))
                objects[f"items of {name} ({type(first).__qualname__})"] += len(one)
    return Sample(jobs, seconds, counts, objects)


def run(load: str, jobs: int) -> Growth:
    """Run a load; the first sample is taken after a third of the jobs, when bounded records are full."""
    found = Growth(load)
    with tempfile.TemporaryDirectory() as name, LOADS[load](Path(name)) as step:
        marks = [jobs // 3 + (jobs - jobs // 3) * n // (SAMPLES - 1) for n in range(SAMPLES)]
        begun = time.monotonic()
        for number in range(jobs):
            step(number)
            if number + 1 in marks:
                found.samples.append(sample(number + 1, time.monotonic() - begun, Path(name)))
    return found


Step = Callable[[int], None]


@contextlib.contextmanager
def _golden(_: Path) -> Iterator[Step]:
    device, stream = GoldenNpu(1, kept=16), streams()["conv"]
    stream.load_into(device.memory)
    yield lambda _: check(run_kick(device, stream.kick, 0).done)


@contextlib.contextmanager
def _driver(_: Path) -> Iterator[Step]:
    with Driver(GoldenNpu(1, kept=16)) as driver:

        def step(_: int) -> None:
            left, right, out, commands = (
                driver.alloc(4096, name) for name in ("left", "right", "out", "words")
            )
            task = add_task(left.iova, right.iova, out.iova, 4, 4)
            tasks = build_task_list([task], commands.iova)
            commands.view(0, len(tasks.data))[:] = np.frombuffer(tasks.data, np.uint8)
            driver.submit(Job([Task.of_entry(entry) for entry in tasks.tasks]))
            for buffer in (left, right, out, commands):
                buffer.free()

        yield step


@contextlib.contextmanager
def machine_of() -> Iterator[Machine]:
    """Yield a machine that lists few models and whose engine keeps few reports."""
    small = mock.patch.object
    with small(running_machine, "MOST_MODELS", 4), small(hexagon_account, "MOST_MODELS", 4):
        machine = open_machine(Settings(engine="golden", summary=False))
        machine.engine._kept = 16
        try:
            yield machine
        finally:
            machine.close()


@contextlib.contextmanager
def _delegate(_: Path) -> Iterator[Step]:
    with machine_of() as machine:
        model, x = machine.compile(image_model()), _image()
        kept = machine.load("kept", model)

        def step(number: int) -> None:
            kept.run([x], [False])
            if number % SELDOM == 0:
                other = machine.load("other", model)
                other.run([x], [False])
                machine.unload(other)

        yield step


@contextlib.contextmanager
def _model(_: Path) -> Iterator[Step]:
    use(GoldenNpu(2, kept=16))
    data, x = image_model(), _image()
    try:
        with Model(data) as model:

            def step(number: int) -> None:
                model.run(x)
                if number % SELDOM == 0:
                    with model.copy() as other, Model(data) as second:
                        other.run(x)
                        second.run(x)

            yield step
    finally:
        use(None)


@contextlib.contextmanager
def _kernel(_: Path) -> Iterator[Step]:
    with Kernel(GoldenNpu(strict=False, kept=16)) as kernel:
        program = Program(kernel)
        work = sums(program)

        def step(number: int) -> None:
            program.ioctl(s.RKNPU_SUBMIT, submit_of(work))
            if number % SELDOM == 0:
                other = Program(kernel, pid=200)
                one = sums(other)
                other.ioctl(s.RKNPU_SUBMIT, submit_of(one))
                other.file.close()

        yield step


class SocketProgram(Program):
    """A program that uses the device by the socket of a server."""

    def __init__(self, server: Server) -> None:
        self.client = device_client.Client(server, CARD)

    def ioctl(self, request: int, struct: s.Struct, at: int = LOW) -> s.Struct:
        """Do an ioctl, which must succeed."""
        self.result, self.last = self.client.ioctl(request, struct, self.client.node)
        check(self.result == 0)
        return self.last

    def map(self, offset: int, size: int) -> np.ndarray:
        """Return the bytes of a buffer."""
        place = self.client.ask(Op.MMAP, (0, offset, size, 3, mmap.MAP_SHARED), fd=self.client.node)
        check(place.a[0] == 0)
        try:
            return np.frombuffer(mmap.mmap(place.fd, size, offset=place.a[1]), np.uint8)
        finally:
            place.close()


@contextlib.contextmanager
def _serve(folder: Path) -> Iterator[Step]:
    with Kernel(GoldenNpu(strict=False, kept=16)) as kernel, Server(kernel, folder / "device") as server:
        program = SocketProgram(server)
        work = sums(program)

        def step(number: int) -> None:
            work.out.bytes[:] = 0
            program.ioctl(s.RKNPU_SUBMIT, submit_of(work))
            check(work.right_result)
            if number % SELDOM == 0:
                other = SocketProgram(server)
                one = sums(other)
                other.ioctl(s.RKNPU_SUBMIT, submit_of(one))
                other.client.close()

        yield step
        program.client.close()


@contextlib.contextmanager
def _rknn(folder: Path) -> Iterator[Step]:
    rk.use_device(Driver(GoldenNpu(1, kept=16), shared=True))
    try:
        with RknnServer(folder / "socket") as server:
            data, size, at = image_model(), _image().nbytes, rknn_client.SIZE // 2

            def opened() -> tuple[rknn_client.Client, int]:
                made = rknn_client.Client(server.path)
                made.pages[4096 : 4096 + len(data)] = data
                check(made.call("rknn_init", 64, 4096, len(data), 0, 0, used=4096 + len(data)) == 0)
                struct.pack_into("<I4xQIB3xii", made.pages, 256, 0, at, size, 0, 0, 0)
                return made, struct.unpack_from("<Q", made.pages, 64)[0]

            client, context = opened()

            def step(number: int) -> None:
                check(client.call("rknn_inputs_set", context, 1, 256, used=at + size) == 0)
                check(client.call("rknn_run", context, 0) == 0)
                if number % SELDOM == 0:
                    opened()[0].close()

            yield step
            client.close()
    finally:
        rk.use_device(None)


@contextlib.contextmanager
def _nnapi(_: Path) -> Iterator[Step]:
    with machine_of() as machine, IDevice(machine=machine) as device:
        model, x, _facts = conv_model()
        kept = device.prepare_model(model)
        room = int(np.prod([n + 8 for n in x.shape])) * 4
        source, target = ashmem(x.nbytes), ashmem(room)
        source.write(0, x)

        def request() -> Request:
            def place(pool: int, length: int) -> RequestArgument:
                return RequestArgument(location=DataLocation(pool, 0, length))

            return Request((place(0, x.nbytes),), (place(1, room),), (source, target))

        def step(number: int) -> None:
            kept.execute_synchronously(request())
            if number % SELDOM == 0:
                other = device.prepare_model(model)
                other.execute_synchronously(request())
                other.close()

        yield step
        source.close()
        target.close()


@contextlib.contextmanager
def _hexagon(_: Path) -> Iterator[Step]:
    with machine_of() as machine:
        npu, account = Npu(machine), Account(checked=False)
        x = np.random.default_rng(seeds.seed("soak")).integers(0, 256, (1, 6, 6, 8), np.uint8)

        def made(number: int) -> Any:
            b = Builder()
            b.graph.number = number
            (data,) = b.input()
            window = [b.shape(1, 2, 2, 1)] * 2
            b.output(b.node("QuantizedMaxPool_8", [data, *b.range(-1, 1), *window], 3, Padding.VALID))
            return b.prepared()

        kept, numbers = made(1), iter(range(2, 1 << 30))

        def once(graph: Any) -> None:
            outcome = execute(graph, [x], npu)
            check(outcome.result == 0)
            account.executed(graph, outcome)

        def step(number: int) -> None:
            once(kept)
            if number % SELDOM == 0:
                other = made(next(numbers))
                once(other)
                npu.forget(other)
                account.add(other)

        yield step


@contextlib.contextmanager
def _litert(_: Path) -> Iterator[Step]:
    """The calls of LiteRT's delegate: one graph stays, others come and go as an interpreter sends them."""
    shape = 6, 10, 16
    x = np.random.default_rng(seeds.seed("soak")).integers(-128, 128, shape, np.int8)
    expected = x.reshape(3, 2, 5, 2, 16).max((1, 3)).tobytes()
    size = plugin.room(x.nbytes, len(expected))
    given = x.tobytes().ljust(size, b"\0")
    with machine_of() as machine:
        calls = LiteRtCalls(machine)

        def opened() -> tuple[int, int]:
            graph, _ = plugin.ask(calls.answer, RequestKind.GRAPH, content=plugin.litert_pool(*shape))
            part = plugin.ints(0) + plugin.ints(0) + plugin.ints(1)
            for use in (0, 1):  # the delegate asks first, and then for the part that the runtime has made
                number, _ = plugin.ask(calls.answer, RequestKind.COMPILE, graph, plugin.numbers(use) + part)
            return graph, number

        def once(number: int) -> None:
            _, found = plugin.ask(calls.answer, RequestKind.RUN, number, given)
            check(found[plugin.room(x.nbytes) :][: len(expected)] == expected)

        _, kept = opened()

        def step(number: int) -> None:
            once(kept)
            if number % SELDOM == 0:
                graph, other = opened()
                plugin.ask(calls.answer, RequestKind.FORGET, graph)
                once(other)
                plugin.ask(calls.answer, RequestKind.RELEASE, other)

        yield step


@contextlib.contextmanager
def _ort(_: Path) -> Iterator[Step]:
    """The calls of onnxruntime's provider: one part stays, and gets inputs of always other sizes."""
    with machine_of() as machine, mock.patch.object(ort_parts, "KEPT_SHAPES", 2):
        calls, rng = OrtCalls(machine), np.random.default_rng(seeds.seed("soak"))
        open_shape = (1, 3, -1, -1)

        def opened() -> tuple[int, int]:
            graph, _ = plugin.ask(calls.answer, RequestKind.GRAPH, content=plugin.ort_relu(open_shape))
            x, y = plugin.ort_value(b"x", open_shape), plugin.ort_value(b"y", open_shape)
            number, _ = plugin.ask(calls.answer, RequestKind.COMPILE, graph, y + x + y)
            return graph, number

        def fit(part: int, number: int) -> bytes:
            shape = (1, 3, 2 + number % 60, 2 + number // 60 % 60)
            plugin.ask(calls.answer, RequestKind.SHAPE, part, plugin.longs(*shape))
            return (rng.integers(-100, 100, shape) / 2).astype(np.float32).tobytes()

        def once(part: int, x: bytes) -> None:
            size, at = plugin.room(len(x), len(x)), plugin.room(len(x))
            _, found = plugin.ask(calls.answer, RequestKind.RUN, part, x.ljust(size, b"\0"))
            check(found[at:][: len(x)] == np.maximum(np.frombuffer(x, np.float32), 0).tobytes())

        _, kept = opened()
        x = fit(kept, 0)

        def step(number: int) -> None:
            nonlocal x
            if number % SELDOM == 0:
                x = fit(kept, number // SELDOM)
                graph, other = opened()
                plugin.ask(calls.answer, RequestKind.FORGET, graph)
                once(other, fit(other, number % 7))
                plugin.ask(calls.answer, RequestKind.RELEASE, other)
            once(kept, x)

        yield step


@contextlib.contextmanager
def few_reports() -> Iterator[None]:
    """Golden devices that others open keep 16 reports."""
    made = GoldenNpu.__init__
    given = tuple(16 if value == KEPT_REPORTS else value for value in made.__defaults__ or ())
    named = {key: 16 if key == "kept" else value for key, value in (made.__kwdefaults__ or {}).items()}
    with mock.patch.object(made, "__defaults__", given), mock.patch.object(made, "__kwdefaults__", named):
        yield


@contextlib.contextmanager
def _engine(_: Path) -> Iterator[Step]:
    """The RTL, whose logs keep few tasks, with a client that asks for them."""
    stream = streams()["conv"]
    with mock.patch.object(records, "KEPT", 16), mock.patch.object(running_meter, "KEPT", 16):
        with open_engine("verilator", cores=1) as device:
            stream.load_into(device.memory)
            meter = running_meter.meter(device)

            def step(number: int) -> None:
                check(run_kick(device, stream.kick, 0).done)
                if number % SELDOM == 0:
                    check(len(meter()) == device.task_count() == number + 1)

            yield step


@contextlib.contextmanager
def _tnn(_: Path) -> Iterator[Step]:
    rng = np.random.default_rng(seeds.seed("soak"))
    net = network_of("Pooling", CASES["Pooling"](rng))
    inputs = {item.name: rng.normal(size=item.dims).astype(np.float32) for item in net.structure.inputs}
    with few_reports(), Instance(net, on_device(), {}) as kept:

        def step(number: int) -> None:
            run_instance(kept, inputs)
            if number % SELDOM == 0:
                with Instance(net, on_device(), {}) as other:
                    run_instance(other, inputs)

        yield step


@contextlib.contextmanager
def _diopi(_: Path) -> Iterator[Step]:
    small, options = mock.patch.object, {diopi_npu.OPTIONS_VARIABLE: "engine=golden\n"}
    with (
        small(diopi_npu, "MOST_KEPT", 2),
        small(running_machine, "MOST_MODELS", 4),
        mock.patch.dict(os.environ, options),
        few_reports(),
    ):
        diopi.init_library()
        try:
            calls, x = Calls(), _image().astype(np.float16)

            def step(number: int) -> None:
                check(calls.compute("Relu", x.shape, x).shape == x.shape)
                if number % SELDOM == 0:  # a network that is not kept
                    wide = np.zeros((1, 2 + number // SELDOM % 3, 4, 4), np.float16)
                    calls.compute("Relu", wide.shape, wide)

            yield step
        finally:
            diopi.finalize_library()


class _Kept:
    """Calls of a plug-in: each runs a model that stays loaded, or a copy that it loads and frees."""

    def __init__(self, _: Runtime, machine: Machine) -> None:
        self.machine, self.model = machine, machine.compile(image_model())
        self.kept = machine.load("kept", self.model)

    def greeting(self) -> bytes:
        """Return nothing."""
        return b""

    def answer(self, request: Message, memory: memoryview) -> tuple[Message, bytes]:
        """Run the model on the request's contents."""
        x = np.frombuffer(bytes(memory[: request.used]), np.float32).reshape(_image().shape)
        running = self.machine.load("other", self.model) if request.number else self.kept
        found = running.run([x], [False])
        if request.number:
            self.machine.unload(running)
        return Message(request.call, size=request.size), np.ascontiguousarray(found[0]).tobytes()


@contextlib.contextmanager
def _worker(_: Path) -> Iterator[Step]:
    """The process of a plug-in, by its socket; some requests bring new shared memory."""
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    x, size = _image().tobytes(), 1 << 16
    with mock.patch.object(running_machine, "MOST_MODELS", 4), few_reports(), theirs, ours:
        thread = threading.Thread(target=Worker(theirs, _Kept).serve)
        thread.start()

        def ask(message: Message, content: bytes, fresh: bool) -> Message:
            rights = []
            if fresh:
                memory = os.memfd_create("soak")
                os.write(memory, content.ljust(size, b"\0"))
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", memory))]
            form = (message.call, message.status, message.number, len(content), size)
            ours.sendmsg([struct.pack("<IIQQQ", *form)], rights)
            if fresh:
                os.close(memory)
            return Message(*struct.unpack("<IIQQQ", ours.recv(32)))

        options = b"engine\0golden\0summary\0" + b"0\0"
        hello = Message(RequestKind.HELLO, number=Runtime.LITERT << 32 | PROTOCOL)
        check(ask(hello, options, True).status == Status.OK)

        def step(number: int) -> None:
            fresh = number % SELDOM == 0  # later requests read their inputs where the answer was written
            check(ask(Message(RequestKind.RUN, number=fresh), x, fresh).status == Status.OK)

        yield step
        check(ask(Message(RequestKind.CLOSE), b"", False).status == Status.OK)
        thread.join()


def _image() -> np.ndarray:
    rng = np.random.default_rng(seeds.seed("soak"))
    return (rng.integers(-100, 100, (1, 3, 6, 10)) / 2).astype(np.float32)


def check(good: object) -> None:
    """Raise AssertionError unless a job succeeded."""
    if not good:
        raise AssertionError("a job failed")


LOADS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Step]]] = {
    "golden": _golden,
    "driver": _driver,
    "delegate": _delegate,
    "model": _model,
    "kernel": _kernel,
    "serve": _serve,
    "rknn": _rknn,
    "nnapi": _nnapi,
    "hexagon": _hexagon,
    "litert": _litert,
    "ort": _ort,
    "tnn": _tnn,
    "diopi": _diopi,
    "worker": _worker,
    "engine": _engine,
}
"""Loads by name; each yields a function that does one job."""


def main() -> int:
    """Run loads, each in a process of its own, and print a table; the exit code is 1 if something grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=main.__doc__)
    parser.add_argument("loads", nargs="*", default=list(LOADS), help=f"loads: {', '.join(LOADS)}")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs of each load (%(default)s)")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.loads) - set(LOADS)):
        parser.error(f"there is no load {unknown[0]}")
    if asked.jobs < 10 * SAMPLES:
        parser.error(f"a load has at least {10 * SAMPLES} jobs")
    if len(asked.loads) > 1:
        command = [sys.executable, "-m", "tests.soak", "--jobs", str(asked.jobs)]
        root = Path(__file__).resolve().parents[1]
        codes = [subprocess.run([*command, load], cwd=root, check=False).returncode for load in asked.loads]
        return max(codes)
    growth = run(asked.loads[0], asked.jobs)
    for one in growth.samples:
        counts = ", ".join(f"{count} {name}" for name, count in one.counts.items() if name != "RSS")
        objects = sum(count for name, count in one.objects.items() if not name.startswith("items"))
        memory = f"{one.counts['RSS'] / 2**20:.1f} MiB, {objects} objects"
        print(f"{growth.load}: {one.jobs} jobs, {one.seconds:.0f} s: {memory}, {counts}", flush=True)
    lines = growth.found()
    print("\n".join(lines or [f"{growth.load}: nothing grows"]), flush=True)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
