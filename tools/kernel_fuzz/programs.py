"""Programs of the fuzzer: hostile ones with their state, and an honest bystander."""

from __future__ import annotations

import mmap
import os
import random
import time
from ctypes import sizeof
from dataclasses import dataclass, field
from errno import EBADF, EFAULT, EMFILE
from typing import Any

from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.files import File
from rkcosim.driver.kernel.interface import Credentials, KernelError, KernelFile
from rkcosim.driver.kernel.machine import ACCEL, CARD, Kernel
from rkcosim.driver.kernel.rknpu_jobs import record_of
from rkcosim.regcmd import TaskBuilder, build_task_list
from rkcosim.regcmd.job import Task
from rkcosim.spec.regs import registers

START, SIZE = 0x7F00_0000_0000, 1 << 16
FIRST_DATA = START + 0x1000
BYSTANDER_DOMAIN = 15
BYSTANDER_PID = 9
ATOM, SIDE, CHANNELS = 16, 4, 32
CUBE = SIDE * SIDE * CHANNELS
MAX_FDS = 64


class Arena:
    """The memory of a fuzzed program.

    Members
    -------
    told : (address, size) of all writes since the list was last emptied.
    """

    def __init__(self) -> None:
        self.data = bytearray(SIZE)
        self.told: list[tuple[int, int]] = []

    def read(self, address: int, size: int) -> bytes:
        """Check that bytes are inside; raises EFAULT."""
        if not START <= address <= address + size <= START + SIZE:
            raise KernelError(EFAULT, f"{size} bytes at {address:#x}")
        return bytes(self.data[address - START : address - START + size])

    def write(self, address: int, data: bytes) -> None:
        """Write inside; raises EFAULT."""
        self.read(address, len(data))
        self.told.append((address, len(data)))
        self.data[address - START : address - START + len(data)] = data


class Table:
    """The descriptors of a fuzzed program; 0 is something else."""

    def __init__(self) -> None:
        self.open: dict[int, KernelFile | None] = {0: None}

    def install(self, obj: KernelFile, cloexec: bool) -> int:
        """Return the lowest free number."""
        if len(self.open) >= MAX_FDS:
            raise KernelError(EMFILE)
        fd = next(n for n in range(MAX_FDS) if n not in self.open)
        self.open[fd] = obj
        return fd

    def lookup(self, fd: int) -> KernelFile | None:
        """Return the object of a number."""
        if fd not in self.open:
            raise KernelError(EBADF)
        return self.open[fd]

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        obj = self.open.pop(fd, None)
        if obj is not None:
            obj.close()


@dataclass
class Made:
    """A buffer that a program has made."""

    handle: int
    size: int
    iova: int
    address: int
    offset: int
    domain: int = 0


@dataclass
class Client:
    """A fuzzed program: an open node and the values that the program knows."""

    path: str
    pid: int
    file: File
    arena: Arena = field(default_factory=Arena)
    fds: Table = field(default_factory=Table)
    buffers: list[Made] = field(default_factory=list)
    magics: list[int] = field(default_factory=list)

    @property
    def rocket(self) -> bool:
        """Whether it uses the rocket interface."""
        return self.path == ACCEL

    def call(self, request: int, struct: s.Struct, at: int = START) -> s.Struct:
        """Do an ioctl that is expected to succeed."""
        self.arena.write(at, bytes(struct))
        self.file.ioctl(request, at, self.arena, self.fds)
        return type(struct).of(self.arena.read(at, sizeof(struct)))

    def poke(self, made: Made, at: int, data: bytes) -> None:
        """Write to a buffer through its mapping."""
        fd, _ = self.file.mmap(made.offset, made.size, mmap.PROT_WRITE, mmap.MAP_SHARED)
        os.pwrite(fd, data[: max(0, made.size - at)], at)

    def peek(self, made: Made, size: int) -> bytes:
        """Read a buffer."""
        fd, _ = self.file.mmap(made.offset, made.size, mmap.PROT_READ, mmap.MAP_SHARED)
        return os.pread(fd, size, 0)

    def make(self, size: int, flags: int = 0x40B, domain: int = 0) -> Made:
        """Make a buffer."""
        if self.rocket:
            bo = self.call(s.ROCKET_CREATE_BO, s.CreateBo(size=size))
            return Made(bo.handle, -(-size // 4096) * 4096, bo.dma_address, 0, bo.offset)
        new = self.call(s.RKNPU_MEM_CREATE, s.MemCreate(flags=flags, size=size, iommu_domain_id=domain))
        place = self.call(s.RKNPU_MEM_MAP, s.MemMap(handle=new.handle))
        return Made(new.handle, new.size, new.dma_addr, new.obj_addr, place.offset, domain)


def copy_task(source: int, target: int) -> TaskBuilder:
    """Return a DPU task that copies an int8 cube [4, 4, 32].

    It writes every register of its blocks, because registers keep the values of earlier jobs.
    """
    task, area = TaskBuilder("copy").enable("DPU", "DPU_RDMA"), SIDE * SIDE
    toggles = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
    for block in ("DPU", "DPU_RDMA"):
        task.set(block, "S_POINTER", **toggles)
        for register in registers()[block]:
            if register.shadowed and register.writable:
                task.set_word(block, register.name, register.reset)
    task.set("DPU", "FEATURE_MODE_CFG", BURST_LEN=15, OUTPUT_MODE=2, FLYING_MODE=1)
    task.set("DPU", "DATA_FORMAT")
    task.set("DPU", "DST_BASE_ADDR", DST_BASE_ADDR=target // ATOM)
    task.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=area)
    task.set("DPU", "SURFACE_ADD", SURF_ADD=area)
    task.set("DPU", "DATA_CUBE_WIDTH", WIDTH=SIDE - 1)
    task.set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=SIDE - 1)
    task.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=CHANNELS - 1, ORIG_CHANNEL=CHANNELS - 1)
    task.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=CHANNELS - 1)
    task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=SIDE - 1, WIDTH_WDMA=SIDE - 1)
    task.set("DPU", "BS_OW_CFG", OD_BYPASS=1)
    task.set("DPU", "BS_CFG", BS_BYPASS=1)
    task.set("DPU", "BN_CFG", BN_BYPASS=1)
    task.set("DPU", "EW_CFG", EW_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_OP_BYPASS=1)
    task.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1)
    task.set("DPU", "OUT_CVT_SHIFT", OUT_CVT_SHIFT=0)
    task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=SIDE - 1)
    task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=SIDE - 1)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=CHANNELS - 1)
    task.set("DPU_RDMA", "SRC_BASE_ADDR", SRC_BASE_ADDR=source)
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", BURST_LEN=15, FLYING_MODE=1)
    return task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=1, ERDMA_DISABLE=1)


def opened(kernel: Kernel, path: str, credentials: Credentials) -> File:
    """Open a device node of a driver."""
    file = kernel.open(path, os.O_RDWR, credentials)
    assert isinstance(file, File), path
    return file


class Bystander:
    """An honest program that copies a cube from time to time."""

    def __init__(self, kernel: Kernel) -> None:
        path = CARD if kernel.rknpu is not None else ACCEL
        self.client = Client(path, BYSTANDER_PID, opened(kernel, path, Credentials(BYSTANDER_PID)))
        if self.client.rocket:
            self.client.make(4096)
        self.source, self.target, self.commands, self.tasks = (
            self.client.make(4096, domain=BYSTANDER_DOMAIN) for _ in range(4)
        )

    def run(self, rng: random.Random) -> bool:
        """Copy random bytes; return whether they arrived."""
        data = rng.randbytes(CUBE)
        self.client.poke(self.source, 0, data)
        self.client.poke(self.target, 0, bytes(CUBE))
        placed = build_task_list([copy_task(self.source.iova, self.target.iova)], self.commands.iova)
        self.client.poke(self.commands, 0, placed.data)
        entry = placed.tasks[0]
        try:
            if self.client.rocket:
                self._rocket(entry)
            else:
                self._vendor(entry)
        except KernelError:
            return False
        return self.client.peek(self.target, CUBE) == data

    def _vendor(self, entry: Any) -> None:
        self.client.poke(self.tasks, 0, bytes(record_of(Task.of_entry(entry))))
        args = s.RknpuSubmit(
            flags=5,
            timeout=60_000,
            task_number=1,
            task_obj_addr=self.tasks.address,
            iommu_domain_id=BYSTANDER_DOMAIN,
            fence_fd=-1,
        )
        for core in range(3):
            args.subcore_task[core] = s.SubcoreTask(0, 1)
        self.client.call(s.RKNPU_SUBMIT, args)

    def _rocket(self, entry: Any) -> None:
        arena = self.client.arena
        arena.write(FIRST_DATA, bytes(s.RocketTask(entry.address, entry.n_words)))
        arena.write(FIRST_DATA + 64, self.target.handle.to_bytes(4, "little"))
        job = s.RocketJob(
            tasks=FIRST_DATA,
            task_count=1,
            task_struct_size=8,
            out_bo_handles=FIRST_DATA + 64,
            out_bo_handle_count=1,
        )
        arena.write(FIRST_DATA + 128, bytes(job))
        self.client.call(
            s.ROCKET_SUBMIT, s.RocketSubmit(jobs=FIRST_DATA + 128, job_count=1, job_struct_size=40)
        )
        deadline = time.monotonic_ns() + 600_000_000_000
        self.client.call(s.ROCKET_PREP_BO, s.PrepBo(handle=self.target.handle, timeout_ns=deadline))


class Canaries:
    """Buffers that must not change, with addresses between those of the hostile programs.

    They are in a separate IOMMU domain, which assigns the same addresses as those of the hostile
    programs.  A mapping that outlives the switch of domains, or that is a page too long, changes them.

    Members
    -------
    changed : number of changed canaries, over all checks.
    """

    COUNT, PAGES = 24, 16

    def __init__(self, bystander: Bystander) -> None:
        self.client = bystander.client
        self.changed = 0
        sizes = [4096 * (1 + n % self.PAGES) for n in range(self.COUNT)]
        self._made = [self.client.make(size, domain=BYSTANDER_DOMAIN) for size in sizes]
        for made in self._made:
            self.client.poke(made, 0, self._song(made))

    @staticmethod
    def _song(made: Made) -> bytes:
        return made.iova.to_bytes(8, "little") * (made.size // 8)

    def look(self) -> None:
        """Count the canaries that have changed, and restore them."""
        for made in self._made:
            if self.client.peek(made, made.size) != self._song(made):
                self.changed += 1
                self.client.poke(made, 0, self._song(made))
