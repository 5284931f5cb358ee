"""Small jobs through both kernel drivers in Python: os, fcntl, mmap, select and ctypes structures.

`rkcosim device -- python examples/device/program.py rknpu` (or rocket) does the same as the C programs
in this folder; nothing in it is specific to the simulation.
"""

import ctypes as ct
import errno
import fcntl
import mmap
import os
import select
import sys
import time

import numpy as np

from rkcosim.regcmd import TaskBuilder, build_task_list
from rkcosim.regcmd.tasks import TAIL_WORDS

POINTER = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
DPU_DONE, PPU_DONE = 0x300, 0xC00
JOB_PC, JOB_NONBLOCK, JOB_PINGPONG, JOB_FENCE_OUT = 1, 2, 4, 16


def _struct(*fields: tuple[str, type], pack: int = 0) -> type[ct.Structure]:
    body: dict = {"_fields_": list(fields)}
    return type("Struct", (ct.Structure,), {"_pack_": pack, **body} if pack else body)


u32, s32, u64, s64 = ct.c_uint32, ct.c_int32, ct.c_uint64, ct.c_int64
MemCreate = _struct(
    *(("handle", u32), ("flags", u32), ("size", u64), ("obj_addr", u64), ("dma_addr", u64)),
    *(("sram_size", u64), ("iommu_domain_id", s32), ("core_mask", u32)),
)
MemMap = _struct(("handle", u32), ("reserved", u32), ("offset", u64))
MemDestroy = _struct(("handle", u32), ("reserved", u32), ("obj_addr", u64))
Task = _struct(
    *(("flags", u32), ("op_idx", u32), ("enable_mask", u32), ("int_mask", u32), ("int_clear", u32)),
    *(("int_status", u32), ("regcfg_amount", u32), ("regcfg_offset", u32), ("regcmd_addr", u64)),
    pack=1,
)
Subcore = _struct(("task_start", u32), ("task_number", u32))
Submit = _struct(
    *(("flags", u32), ("timeout", u32), ("task_start", u32), ("task_number", u32), ("task_counter", u32)),
    *(("priority", s32), ("task_obj_addr", u64), ("iommu_domain_id", u32), ("reserved", u32)),
    *(("task_base_addr", u64), ("hw_elapse_time", s64), ("core_mask", u32), ("fence_fd", s32)),
    ("subcore_task", Subcore * 5),
)
Version = _struct(
    *(("major", s32), ("minor", s32), ("patch", s32), ("name_len", u64), ("name", u64)),
    *(("date_len", u64), ("date", u64), ("desc_len", u64), ("desc", u64)),
)
CreateBo = _struct(("size", u32), ("handle", u32), ("dma_address", u64), ("offset", u64))
PrepBo = _struct(("handle", u32), ("reserved", u32), ("timeout_ns", s64))
GemClose = _struct(("handle", u32), ("pad", u32))
RocketTask = _struct(("regcmd", u32), ("regcmd_count", u32))
RocketJob = _struct(
    *(("tasks", u64), ("in_bo_handles", u64), ("out_bo_handles", u64), ("task_count", u32)),
    *(("task_struct_size", u32), ("in_bo_handle_count", u32), ("out_bo_handle_count", u32)),
)
RocketSubmit = _struct(("jobs", u64), ("job_count", u32), ("job_struct_size", u32), ("reserved", u64))


def _ioc(direction: int, number: int, kind: type) -> int:
    return direction << 30 | ct.sizeof(kind) << 16 | ord("d") << 8 | number


VERSION = _ioc(3, 0x00, Version)
RKNPU_SUBMIT, RKNPU_CREATE = _ioc(3, 0x41, Submit), _ioc(3, 0x42, MemCreate)
RKNPU_MAP, RKNPU_DESTROY = _ioc(3, 0x43, MemMap), _ioc(3, 0x44, MemDestroy)
ROCKET_CREATE, ROCKET_SUBMIT = _ioc(3, 0x40, CreateBo), _ioc(1, 0x41, RocketSubmit)
ROCKET_PREP, GEM_CLOSE = _ioc(1, 0x42, PrepBo), _ioc(1, 0x09, GemClose)


class Buffer:
    """Device memory: `address` is the NPU's address, `array` is this process's view."""

    def __init__(self, handle: int, obj: int, address: int, mapping: mmap.mmap) -> None:
        self.handle, self.object, self.address, self.map = handle, obj, address, mapping
        self.array = np.frombuffer(mapping, np.uint8)


class Rknpu:
    """The vendor's driver."""

    def __init__(self) -> None:
        self.fd = _find("/dev/dri", "card", b"rknpu")
        self.records = self.alloc(4096, 0x40B)
        self.done = DPU_DONE

    def alloc(self, size: int, flags: int = 0x403) -> Buffer:
        made = MemCreate(flags=flags, size=size)
        fcntl.ioctl(self.fd, RKNPU_CREATE, made)
        where = MemMap(handle=made.handle)
        fcntl.ioctl(self.fd, RKNPU_MAP, where)
        return Buffer(
            made.handle, made.obj_addr, made.dma_addr, mmap.mmap(self.fd, size, offset=where.offset)
        )

    def free(self, buffer: Buffer) -> None:
        fcntl.ioctl(self.fd, RKNPU_DESTROY, MemDestroy(handle=buffer.handle))

    def submit(
        self, lists: list, out: Buffer, cores: int, timeout: int = 6000, flags: int = 0
    ) -> ct.Structure:
        """Submit placed lists once; raises OSError with the driver's error."""
        records = [
            Task(
                enable_mask=entry.mask,
                int_mask=self.done,
                int_clear=0x1FFFF,
                regcfg_amount=entry.n_words - TAIL_WORDS,
                regcmd_addr=entry.address,
            )
            for entry in lists
        ]
        data = b"".join(map(bytes, records))
        self.records.map[: len(data)] = data
        job = Submit(flags=JOB_PC | JOB_PINGPONG | flags, timeout=timeout, task_number=len(records))
        job.task_obj_addr, job.fence_fd = self.records.object, -1
        job.core_mask = 7 if cores == 3 else 1
        if cores == 3:
            for core in range(3):
                job.subcore_task[core + 2] = Subcore(core, 1)
        else:
            job.subcore_task[0] = Subcore(0, len(records))
        fcntl.ioctl(self.fd, RKNPU_SUBMIT, job)
        return job

    def run(self, lists: list, out: Buffer, cores: int = 1) -> None:
        job = self.submit(lists, out, cores)
        assert job.task_counter == len(lists) and job.hw_elapse_time > 0

    def time_out(self, lists: list, out: Buffer) -> None:
        self.done = PPU_DONE
        try:
            self.submit(lists, out, 1, timeout=30)
        except OSError as error:
            assert error.errno == errno.ETIMEDOUT, error
        else:
            raise AssertionError("no timeout")
        finally:
            self.done = DPU_DONE

    def fence(self, lists: list, out: Buffer) -> None:
        """Run a job and wait for its fence by polling."""
        fd = self.submit(lists, out, 1, flags=JOB_NONBLOCK | JOB_FENCE_OUT).fence_fd
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(60000), "the fence does not signal"
        os.close(fd)

    def close(self) -> None:
        os.close(self.fd)


class Rocket:
    """The mainline driver, with one open file."""

    def __init__(self) -> None:
        self.fd = _find("/dev/accel", "accel", b"rocket")
        self.alloc(4096)  # occupies address 0

    def alloc(self, size: int) -> Buffer:
        made = CreateBo(size=size)
        fcntl.ioctl(self.fd, ROCKET_CREATE, made)
        return Buffer(made.handle, 0, made.dma_address, mmap.mmap(self.fd, size, offset=made.offset))

    def free(self, buffer: Buffer) -> None:
        fcntl.ioctl(self.fd, GEM_CLOSE, GemClose(handle=buffer.handle))

    def submit(self, lists: list, out: Buffer) -> None:
        tasks = (RocketTask * len(lists))(*((entry.address, entry.n_words) for entry in lists))
        handles = (u32 * 1)(out.handle)
        job = RocketJob(task_count=len(lists), task_struct_size=ct.sizeof(RocketTask), out_bo_handle_count=1)
        job.tasks, job.out_bo_handles = ct.addressof(tasks), ct.addressof(handles)
        fcntl.ioctl(
            self.fd,
            ROCKET_SUBMIT,
            RocketSubmit(ct.addressof(job), job_count=1, job_struct_size=ct.sizeof(job)),
        )

    def wait(self, out: Buffer) -> None:
        limit = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 60 * 10**9
        fcntl.ioctl(self.fd, ROCKET_PREP, PrepBo(handle=out.handle, timeout_ns=limit))

    def run(self, lists: list, out: Buffer, cores: int = 1) -> None:
        self.submit(lists, out)
        self.wait(out)

    def close(self) -> None:
        os.close(self.fd)


def _find(folder: str, prefix: str, driver: bytes) -> int:
    for entry in sorted(os.listdir(folder)):
        if entry.startswith(prefix):
            fd = os.open(f"{folder}/{entry}", os.O_RDWR | os.O_CLOEXEC)
            text = ct.create_string_buffer(16)
            fcntl.ioctl(fd, VERSION, Version(name_len=15, name=ct.addressof(text)))
            if text.value == driver:
                return fd
            os.close(fd)
    raise SystemExit(f"no {driver.decode()} device")


class Convolution:
    """An int8 convolution of [32, height, width] with 32 kernels, `taps` x `taps`, and an optional bias."""

    def __init__(self, driver: Rknpu | Rocket, taps: int, bias: bool, seed: int) -> None:
        self.height, self.width, self.taps, self.shift = 6, 8, taps, 9
        self.bias = bias
        rng = np.random.default_rng(seed)
        self.x = rng.integers(-128, 128, (32, self.height, self.width), np.int8)
        self.kernels = rng.integers(-128, 128, (32, 32, taps, taps), np.int8)
        self.a = rng.integers(-9999, 9999, 32, np.int32)
        area = self.height * self.width
        self.buffer = driver.alloc(5 * 4096 + 4096 * -(-1024 * taps * taps // 4096))
        self.source, self.target, self.table = 0, 4096, 8192
        self.list, self.weights = 12288, 20480
        array = self.buffer.array
        packed = self.x.reshape(2, 16, self.height, self.width).transpose(0, 2, 3, 1)
        array[: 32 * area] = packed.ravel().view(np.uint8)
        weights = self.kernels.transpose(2, 3, 0, 1).ravel().view(np.uint8)
        array[self.weights : self.weights + weights.size] = weights
        array[self.table : self.table + 128] = self.a.view(np.uint8)
        array[self.target : self.target + 32 * area] = 0x55

    def want(self) -> np.ndarray:
        """Return the result of plain arithmetic: int8 [32, height, width]."""
        pad = self.taps // 2
        wide = np.pad(self.x.astype(np.int64), ((0, 0), (pad, pad), (pad, pad)))
        total = np.zeros((32, self.height, self.width), np.int64)
        for y in range(self.taps):
            for x in range(self.taps):
                part = wide[:, y : y + self.height, x : x + self.width]
                total += np.einsum("kc,chw->khw", self.kernels[:, :, y, x].astype(np.int64), part)
        if self.bias:
            total += self.a[:, None, None]
        return np.clip(np.rint(total / 2.0**self.shift), -128, 127).astype(np.int8)

    def got(self) -> np.ndarray:
        """Return the result of the NPU in the same form."""
        area = self.height * self.width
        raw = self.buffer.array[self.target : self.target + 32 * area].view(np.int8)
        return raw.reshape(2, self.height, self.width, 16).transpose(0, 3, 1, 2).reshape(32, self.height, -1)

    def task(self) -> TaskBuilder:
        h, w, area, base = self.height, self.width, self.height * self.width, self.buffer.address
        size = 1024 * self.taps**2
        blocks = ("CNA", "CORE", "DPU", "DPU_RDMA") if self.bias else ("CNA", "CORE", "DPU")
        t = TaskBuilder("convolution").enable(*blocks)
        t.set("CNA", "CONV_CON1").set("CNA", "CONV_CON2", FEATURE_GRAINS=h)
        t.set("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
        t.set("CNA", "DATA_SIZE0", DATAIN_WIDTH=w, DATAIN_HEIGHT=h)
        t.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL_REAL=31, DATAIN_CHANNEL=32)
        t.set("CNA", "DATA_SIZE2", DATAOUT_WIDTH=w).set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=area)
        t.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=size)
        t.set("CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=size // 32)
        t.set("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=self.taps, WEIGHT_HEIGHT=self.taps, WEIGHT_KERNELS=32)
        t.set("CNA", "CBUF_CON0", DATA_BANK=1, WEIGHT_BANK=1)
        t.set("CNA", "CBUF_CON1", DATA_ENTRIES=-(-w // 2))
        t.set("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
        t.set("CNA", "PAD_CON0", PAD_LEFT=self.taps // 2, PAD_TOP=self.taps // 2).set("CNA", "PAD_CON1")
        t.set("CNA", "FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=base + self.source)
        t.set_word("CNA", "DCOMP_ADDR0", base + self.weights)
        t.set("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
        t.set("CNA", "DMA_CON1", LINE_STRIDE=4 * w).set("CNA", "DMA_CON2", SURF_STRIDE=area - 4 * w)
        t.set("CNA", "FC_DATA_SIZE0", DMA_WIDTH=w, DMA_HEIGHT=h).set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=32)
        t.set("CORE", "MISC_CFG").set("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=h - 1, DATAOUT_WIDTH=w - 1)
        t.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=31).set("CORE", "CLIP_TRUNCATE")
        t.set("DPU", "S_POINTER", **POINTER)
        t.set("DPU", "FEATURE_MODE_CFG", BURST_LEN=15, OUTPUT_MODE=2).set("DPU", "DATA_FORMAT")
        t.set_word("DPU", "DST_BASE_ADDR", base + self.target)
        t.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=area).set("DPU", "SURFACE_ADD", SURF_ADD=2 * area)
        t.set("DPU", "DATA_CUBE_WIDTH", WIDTH=w - 1).set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=h - 1)
        t.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=31, ORIG_CHANNEL=31)
        if self.bias:
            t.set("DPU", "BS_CFG", BS_ALU_ALGO=2, BS_ALU_SRC=1, BS_MUL_BYPASS=1, BS_RELU_BYPASS=1)
        else:
            t.set("DPU", "BS_CFG", BS_BYPASS=1)
        t.set("DPU", "BS_OW_CFG", SIZE_E_0=1, SIZE_E_1=1, SIZE_E_2=1, OD_BYPASS=1)
        t.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=31)
        t.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=h - 1, WIDTH_WDMA=w - 1)
        t.set("DPU", "BN_CFG", BN_BYPASS=1)
        t.set("DPU", "EW_CFG", EW_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_OP_BYPASS=1)
        t.set("DPU", "OUT_CVT_OFFSET").set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1)
        t.set("DPU", "OUT_CVT_SHIFT", OUT_CVT_SHIFT=self.shift)
        if self.bias:
            t.set("DPU_RDMA", "S_POINTER", **POINTER)
            t.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=w - 1).set(
                "DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=h - 1
            )
            t.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=31)
            t.set("DPU_RDMA", "BRDMA_CFG", BRDMA_DATA_USE=1)
            t.set("DPU_RDMA", "BS_BASE_ADDR", BS_BASE_ADDR=base + self.table)
            t.set("DPU_RDMA", "NRDMA_CFG").set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
            t.set("DPU_RDMA", "FEATURE_MODE_CFG", BURST_LEN=15, MRDMA_DISABLE=1)
        return t

    def place(self, *chain: "Convolution") -> list:
        """Write the list of this task, followed by those of a chain; return their entries."""
        placed = build_task_list([one.task() for one in (self, *chain)], self.buffer.address + self.list)
        self.buffer.map[self.list : self.list + len(placed.data)] = placed.data
        return placed.tasks

    def check(self, name: str) -> None:
        np.testing.assert_array_equal(self.got(), self.want(), name)
        print(f"{name}: right")


def run(kind: str) -> None:
    """Run all cases on one driver; raises if one fails."""
    driver = Rknpu() if kind == "rknpu" else Rocket()
    for name, taps, bias in (("product", 1, False), ("convolution with bias", 3, True)):
        one = Convolution(driver, taps, bias, seed=taps)
        driver.run(one.place(), one.buffer)
        one.check(name)
    first, second = Convolution(driver, 1, False, 5), Convolution(driver, 3, True, 6)
    driver.run(first.place(second), second.buffer)
    first.check("chain, first task")
    second.check("chain, second task")
    if isinstance(driver, Rknpu):
        several = [Convolution(driver, 3, True, 10 + core) for core in range(3)]
        driver.run([one.place()[0] for one in several], several[2].buffer, cores=3)
        driver.time_out(first.place(), first.buffer)
        fenced = Convolution(driver, 1, True, 20)
        driver.fence(fenced.place(), fenced.buffer)
        fenced.check("fence")
    else:
        drivers = [driver, Rocket(), Rocket()]
        several = [Convolution(drivers[core], 3, True, 10 + core) for core in range(3)]
        for core, one in enumerate(several):
            drivers[core].submit(one.place(), one.buffer)
        for core, one in enumerate(several):
            drivers[core].wait(one.buffer)
        for other in drivers[1:]:
            other.close()
    for one in several:
        one.check("three cores")
    driver.free(first.buffer)
    driver.close()


if __name__ == "__main__":
    run(sys.argv[1])
