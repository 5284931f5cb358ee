"""A program of the kernel model without a process: memory, descriptors, buffers, submits."""

from __future__ import annotations

import ctypes as ct
import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from errno import EBADF, EFAULT

import numpy as np

from rkcosim.driver.kernel import Credentials, File, Kernel, KernelError, KernelFile
from rkcosim.driver.kernel import structs as s
from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd import TaskBuilder, build_task_list
from rkcosim.regcmd.job import completion_mask
from rkcosim.regcmd.tasks import TAIL_WORDS
from tests.makers.small_tasks import add_task

CARD, RENDER, ACCEL = "/dev/dri/card1", "/dev/dri/renderD129", "/dev/accel/accel0"
LOW, HIGH = 0x1_0000, 0x9_0000
HEIGHT, WIDTH = 4, 4
CUBE = HEIGHT * WIDTH * 32
"""Size in bytes of the int8 cubes of an `add` task."""


class ProcessMemory:
    """The addresses LOW .. HIGH of a program."""

    def __init__(self) -> None:
        self.data = bytearray(HIGH - LOW)

    def _check(self, address: int, size: int) -> int:
        if not LOW <= address <= address + size <= HIGH:
            raise KernelError(EFAULT, f"{size} bytes at {address:#x}")
        return address - LOW

    def read(self, address: int, size: int) -> bytes:
        at = self._check(address, size)
        return bytes(self.data[at : at + size])

    def write(self, address: int, data: bytes) -> None:
        at = self._check(address, len(data))
        self.data[at : at + len(data)] = data


class Descriptors:
    """A program's table; 0 to 2 are irrelevant files."""

    def __init__(self, room: int = 1000) -> None:
        self.table: dict[int, KernelFile | None] = {0: None, 1: None, 2: None}
        self.room = room

    def install(self, obj: KernelFile, cloexec: bool) -> int:
        if len(self.table) >= self.room:
            raise KernelError(24, "no descriptors left")
        fd = next(n for n in range(self.room) if n not in self.table)
        self.table[fd] = obj
        return fd

    def lookup(self, fd: int) -> KernelFile | None:
        if fd not in self.table:
            raise KernelError(EBADF, f"descriptor {fd}")
        return self.table[fd]

    def close(self, fd: int) -> None:
        obj = self.table.pop(fd)
        if obj is not None:
            obj.close()


class SlowNpu(GoldenNpu):
    """The golden device with delayed interrupts: cores in `held` raise theirs when released."""

    def __init__(self) -> None:
        super().__init__(strict=False)
        self.held = 0
        self.stride = 100_000  # cycles of a step while something is held
        self.kicks: list[int] = []

    def write32(self, core: int, offset: int, value: int) -> None:
        if offset == 8 and value:
            self.kicks.append(core)
        super().write32(core, offset, value)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        if core_mask & self.held:
            time.sleep(0.001)
        raised = self.irq & core_mask & ~self.held
        if not raised:
            self.cycle += max(0, min(max_cycles, self.stride if self.held else max_cycles))
        return raised


def until(done: Callable[[], object], seconds: float = 10) -> None:
    """Wait until a condition becomes true."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.002)


@dataclass
class Buffer:
    """A buffer of a program: the result of its creation, and its bytes (uint8, shared)."""

    handle: int
    size: int
    iova: int
    address: int
    bytes: np.ndarray


class Program:
    """One process with one open node."""

    def __init__(self, kernel: Kernel, path: str = CARD, pid: int = 100, uid: int = 0) -> None:
        self.kernel, self.memory, self.fds = kernel, ProcessMemory(), Descriptors()
        self.file: File = kernel.open(path, 2, Credentials(pid, uid, uid))

    def ioctl(self, request: int, struct: s.Struct, at: int = LOW) -> s.Struct:
        """Do an ioctl; return the structure as the program sees it afterwards, also in `last`."""
        size = s.ioc_size(request)
        self.memory.write(at, bytes(struct)[:size].ljust(size, b"\0"))
        try:
            self.result = self.file.ioctl(request, at, self.memory, self.fds)
        finally:
            self.last = type(struct).of(self.memory.read(at, min(size, ct.sizeof(struct))))
        return self.last

    def fails(self, request: int, struct: s.Struct, at: int = LOW) -> int:
        """Return the errno of an ioctl, 0 if it did not fail."""
        try:
            self.ioctl(request, struct, at)
        except KernelError as error:
            return error.code
        return 0

    def map(self, offset: int, size: int) -> np.ndarray:
        """Return the bytes of a buffer by its mmap offset."""
        fd, start = self.file.mmap(offset, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED)
        return np.frombuffer(mmap.mmap(fd, size, offset=start), np.uint8)

    def create(self, size: int, flags: int = 0x403, domain: int = 0) -> Buffer:
        """Create a vendor's buffer, mapped."""
        made = self.ioctl(s.RKNPU_MEM_CREATE, s.MemCreate(flags=flags, size=size, iommu_domain_id=domain))
        place = self.ioctl(s.RKNPU_MEM_MAP, s.MemMap(handle=made.handle))
        return Buffer(made.handle, size, made.dma_addr, made.obj_addr, self.map(place.offset, size))

    def create_bo(self, size: int) -> Buffer:
        """Create a rocket buffer, mapped."""
        made = self.ioctl(s.ROCKET_CREATE_BO, s.CreateBo(size=size))
        return Buffer(made.handle, size, made.dma_address, 0, self.map(made.offset, size))


@dataclass
class Sum:
    """An `add` task chain of a program: buffers, records and the expected result."""

    left: Buffer
    right: Buffer
    out: Buffer
    commands: Buffer
    tasks: Buffer | None
    entries: list
    expected: np.ndarray

    @property
    def right_result(self) -> bool:
        """Whether the output is correct."""
        return bool((self.out.bytes[: self.expected.size] == self.expected).all())


def sums(
    program: Program,
    number: int = 1,
    *,
    domain: int = 0,
    seed: int = 0,
    rocket: bool = False,
    linked: bool = True,
    bypass: int | None = 1,
) -> Sum:
    """Return tasks that add two int8 cubes [4, 4, 32], each with a separate output.

    `bypass` is that of `add_task`.
    """

    def new(size: int, flags: int = 0x403) -> Buffer:
        return program.create_bo(size) if rocket else program.create(size, flags, domain)

    if rocket and not len(program.file.handles):
        new(4096)  # the buffer at address 0
    left, right, out = new(CUBE), new(CUBE), new(CUBE * number)
    rng = np.random.default_rng(seed)
    for buffer in (left, right):
        buffer.bytes[:] = rng.integers(0, 256, CUBE, np.uint8)
    builders: list[TaskBuilder] = [
        add_task(left.iova, right.iova, out.iova + CUBE * index, HEIGHT, WIDTH, f"add {index}", bypass=bypass)
        for index in range(number)
    ]
    commands = new(4096 * number)
    if linked:
        placed = build_task_list(builders, commands.iova, 4096)
        commands.bytes[: len(placed.data)] = np.frombuffer(placed.data, np.uint8)
        entries = placed.tasks
    else:
        entries = []
        for index, builder in enumerate(builders):
            placed = build_task_list([builder], commands.iova + 4096 * index)
            commands.bytes[4096 * index :][: len(placed.data)] = np.frombuffer(placed.data, np.uint8)
            entries += placed.tasks
    tasks = None if rocket else new(40 * number, 0x40B)
    if tasks is not None:
        tasks.bytes[:] = np.frombuffer(records(entries), np.uint8)
    both = left.bytes.view(np.int8).astype(int) + right.bytes.view(np.int8)
    expected = np.tile(np.clip(both, -128, 127).astype(np.int8).view(np.uint8), number)
    return Sum(left, right, out, commands, tasks, entries, expected)


def records(entries: Sequence) -> bytes:
    """Return records of a vendor's task buffer for placed tasks."""
    parts = []
    for entry in entries:
        mask = completion_mask(entry.mask)
        parts.append(
            s.RknpuTask(
                enable_mask=entry.mask,
                int_mask=mask,
                int_clear=0x1FFFF,
                regcfg_amount=entry.n_words - TAIL_WORDS,
                regcmd_addr=entry.address,
            )
        )
    return b"".join(map(bytes, parts))


def submit_of(work: Sum, **more) -> s.RknpuSubmit:
    """Return a blocking one-core submit of a chain; keywords set members (`ranges`: subcore_task entries)."""
    number = len(work.entries)
    ranges = more.pop("ranges", [(0, number)] * 3)
    fields = {"flags": 5, "timeout": 6000, "task_number": number, "core_mask": 1, "fence_fd": -1} | more
    args = s.RknpuSubmit(task_obj_addr=0 if work.tasks is None else work.tasks.address, **fields)
    for index, (start, count) in enumerate(ranges):
        args.subcore_task[index] = s.SubcoreTask(start, count)
    return args


def rocket_submit(program: Program, jobs: Sequence[tuple[Sequence, Sequence[int], Sequence[int]]]) -> int:
    """Submit jobs of (placed tasks, in handles, out handles); return the errno."""
    place = LOW + 0x1000

    def put(data: bytes) -> int:
        nonlocal place
        at, place = place, place + -(-len(data) // 8) * 8 + 8
        program.memory.write(at, data)
        return at

    parts = []
    for entries, reads, writes in jobs:
        tasks = b"".join(bytes(s.RocketTask(entry.address, entry.n_words)) for entry in entries)
        arrays = [b"".join(handle.to_bytes(4, "little") for handle in handles) for handles in (reads, writes)]
        parts.append(
            s.RocketJob(
                tasks=put(tasks),
                in_bo_handles=put(arrays[0]),
                out_bo_handles=put(arrays[1]),
                task_count=len(entries),
                task_struct_size=8,
                in_bo_handle_count=len(reads),
                out_bo_handle_count=len(writes),
            )
        )
    array = put(b"".join(map(bytes, parts)))
    return program.fails(
        s.ROCKET_SUBMIT, s.RocketSubmit(jobs=array, job_count=len(parts), job_struct_size=40)
    )


def hanging_task() -> TaskBuilder:
    """Return a DPU task that waits for a convolution that never starts."""
    return TaskBuilder("hang").set("DPU", "S_POINTER", POINTER_PP_EN=1).enable("DPU")
