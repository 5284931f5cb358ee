"""Faults of boards that can be injected: what they do, and what cures them."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rkcosim.devices.faults import (
    BURST,
    DENSE,
    FAULTS,
    INT32,
    LATE,
    LATE_CYCLES,
    LOST,
    NOT_STARTED,
    PAGE,
    FaultyDevice,
)
from rkcosim.driver import Driver, DriverTimeout, Job
from rkcosim.driver.kernel import Kernel
from rkcosim.driver.kernel import structs as s
from rkcosim.golden.task import GoldenNpu
from rkcosim.golden.task.errors import GoldenError
from rkcosim.regcmd import TaskBuilder, build_task_list
from tests.makers.board_bench import FP16, INT8, Task, flying
from tests.makers.board_bench import INT32 as INT32_TYPE
from tests.makers.jobs import records_of_builders
from tests.makers.kernel_client import Buffer as ClientBuffer
from tests.makers.kernel_client import Program, records

SIDE = 33
"""A map of 33 x 33 pixels of 64 fp16 channels has 139,392 bytes, one of 32 x 32 has 131,072."""

MS = 0.001


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A golden core with faults, and convolutions on it whose weights are all one."""

    data: Any
    weights: Any
    out: Any

    def __init__(self, *faults: str) -> None:
        self.clock = Clock()
        self.device = FaultyDevice(GoldenNpu(2, strict=False), faults, self.clock)
        self.open()

    def open(self) -> None:
        self.driver = Driver(self.device, max_cycles=10_000_000)
        self.data, self.weights = self.driver.alloc(1 << 20, "data"), self.driver.alloc(1 << 16, "weights")
        self.out = self.driver.alloc(1 << 20, "out")

    def run(self, task: TaskBuilder, core: int = 0, pause: float = 0.0) -> np.ndarray:
        self.clock.now += pause
        self.out.view()[:] = 0xA5
        self.driver.submit(Job(records_of_builders(self.driver, [task]), core_mask=1 << core))
        return self.out.view().copy()

    def conv(self, kind: int, out: int, side: int, channels: int, *, depthwise: bool = False) -> TaskBuilder:
        """A product of a map of ones of 32 channels (depthwise: of the channels) with 1x1 kernels of ones."""
        size, lanes = (1 if kind == INT8 else 2), 32 if not depthwise else channels
        one = np.array([1], np.int8 if kind == INT8 else np.float16)
        self.data.view()[: side * side * lanes * size] = np.tile(one.view(np.uint8), side * side * lanes)
        self.weights.view()[: lanes * channels * size] = np.tile(one.view(np.uint8), lanes * channels)
        task = Task("CNA", "CORE", "DPU")
        mode = 3 * depthwise
        task.set("CNA", "CONV_CON1", IN_PRECISION=kind, PROC_PRECISION=kind, CONV_MODE=mode)
        task.set("CNA", "CONV_CON2", FEATURE_GRAINS=2)
        task.set("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
        task.set("CNA", "DATA_SIZE0", DATAIN_WIDTH=side, DATAIN_HEIGHT=side)
        task.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL=lanes, DATAIN_CHANNEL_REAL=lanes - 1)
        task.set("CNA", "DATA_SIZE2", DATAOUT_WIDTH=side).set(
            "CNA", "DATA_SIZE3", DATAOUT_ATOMICS=side * side
        )
        kernels = 1 if depthwise else channels
        task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=size * lanes * kernels)
        task.set("CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=size * lanes)
        task.set("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=1, WEIGHT_HEIGHT=1, WEIGHT_KERNELS=kernels)
        entries = -(-side * lanes * size // 64)
        task.set("CNA", "CBUF_CON0", DATA_BANK=10, WEIGHT_BANK=2).set(
            "CNA", "CBUF_CON1", DATA_ENTRIES=entries
        )
        task.set("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
        task.set("CNA", "FC_DATA_SIZE0", DMA_WIDTH=side, DMA_HEIGHT=side)
        task.set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=lanes)
        task.word("CNA", "FEATURE_DATA_ADDR", self.data.iova).word("CNA", "DCOMP_ADDR0", self.weights.iova)
        task.set("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
        task.set("CNA", "DMA_CON1", LINE_STRIDE=4 * side)
        task.set("CNA", "DMA_CON2", SURF_STRIDE=side * (side - 4))
        task.set("CORE", "MISC_CFG", PROC_PRECISION=kind, DW_EN=int(depthwise))
        task.set("CORE", "DATAOUT_SIZE_0", DATAOUT_WIDTH=side - 1, DATAOUT_HEIGHT=side - 1)
        task.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=channels - 1)
        group = (64 if kind == INT8 else 32) if depthwise else 32 if kind == INT8 else 16
        surfaces = group * {INT8: 8, FP16: 16, INT32_TYPE: 32}[out] // 128
        plain = flying(
            kind,
            out,
            channels=channels,
            width=side,
            height=side,
            size_e=surfaces - 1,
            group=surfaces * side * side,
        )
        task.values |= {place: value for place, value in plain.values.items() if place[0] == "DPU"}
        task.set("DPU", "FEATURE_MODE_CFG", FLYING_MODE=0, CONV_MODE=mode)
        return task.word("DPU", "DST_BASE_ADDR", self.out.iova).builder()

    def halves(self, side: int, channels: int) -> np.ndarray:
        """The fp16 output by surface, pixel and lane."""
        size = side * side * channels * 2
        return self.out.view()[:size].view(np.float16).reshape(channels // 8, side * side, 8)


def test_dense_result_behind_a_depthwise_one_has_16_channels() -> None:
    bench = Bench(DENSE)
    dense = bench.conv(FP16, FP16, 8, 64)
    bench.run(dense)
    assert (bench.halves(8, 64) == 32).all() and not bench.device.happened
    for core, expected in ((1, 8), (0, 2), (0, 8)):  # another core, this one, the next job on it
        bench.run(bench.conv(FP16, FP16, 8, 32, depthwise=True), 0)
        if (core, expected) == (0, 8):
            bench.run(bench.conv(FP16, FP16, 8, 64))
        bench.run(bench.conv(FP16, FP16, 8, 64), core)
        result = bench.halves(8, 64)
        assert (result[:expected] == 32).all()
        assert (result[expected:].view(np.uint16) == 0xA5A5).all()
    assert bench.device.happened == [(0, DENSE), (0, DENSE)]


@pytest.mark.parametrize("cure", ["pause", "reset"])
def test_what_cures_the_dense_result(cure: str) -> None:
    bench = Bench(DENSE)
    bench.run(bench.conv(FP16, FP16, 8, 32, depthwise=True))
    if cure == "reset":
        bench.device.reset(1)
    bench.run(bench.conv(FP16, FP16, 8, 64), pause=10 * MS if cure == "pause" else 0)
    assert (bench.halves(8, 64) == 32).all() and not bench.device.happened


def test_large_fp16_job_behind_int32_results_never_ends() -> None:
    bench = Bench(INT32)
    bench.run(bench.conv(INT8, INT32_TYPE, 8, 32))
    bench.run(bench.conv(FP16, FP16, 32, 64))  # 128 KiB
    assert (bench.halves(32, 64) == 32).all()
    bench.run(bench.conv(FP16, FP16, SIDE, 64), core=1)  # another core
    with pytest.raises(DriverTimeout):
        bench.run(bench.conv(FP16, FP16, SIDE, 64), pause=30 * MS)
    assert bench.device.happened == [(0, INT32)]
    bench.run(bench.conv(FP16, FP16, SIDE, 64))  # the driver has reset the core
    assert (bench.halves(SIDE, 64) == 32).all()


@pytest.mark.parametrize("before", ["int8", "fp16", "int32, 150 ms ago"])
def test_large_fp16_job_behind_others_ends(before: str) -> None:
    bench = Bench(INT32)
    kinds = {"int8": (INT8, INT8), "fp16": (FP16, FP16)}.get(before, (INT8, INT32_TYPE))
    bench.run(bench.conv(*kinds, 8, 32))
    bench.run(bench.conv(FP16, FP16, SIDE, 64), pause=0.15 if kinds[1] == INT32_TYPE else 0)
    assert (bench.halves(SIDE, 64) == 32).all() and not bench.device.happened


@dataclass
class Mapped:
    """A buffer of a program, as `rkcosim.driver.Buffer`."""

    buffer: ClientBuffer

    @property
    def iova(self) -> int:
        return self.buffer.iova

    def view(self) -> np.ndarray:
        return self.buffer.bytes


class ProgramBench(Bench):
    """The same convolutions, from a program of the vendor's driver: a job is run again if it is not right."""

    def open(self) -> None:
        self.kernel = Kernel(self.device)
        self.program = Program(self.kernel)
        self.data, self.weights, self.out, self.lists = (
            Mapped(self.program.create(size)) for size in (1 << 20, 1 << 16, 1 << 20, 4096)
        )
        self.records = self.program.create(4096, 0x40B)

    def __enter__(self) -> ProgramBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.program.file.close()
        self.kernel.close()

    def submit(self, task: TaskBuilder) -> int:
        """Run a job; return its errno, 0 if it ends."""
        placed = build_task_list([task], self.lists.iova)
        self.lists.view()[: len(placed.data)] = np.frombuffer(placed.data, np.uint8)
        self.records.bytes[:40] = np.frombuffer(records(placed.tasks), np.uint8)
        self.out.view()[:] = 0xA5
        job = s.RknpuSubmit(
            flags=5,
            timeout=20,
            task_number=1,
            core_mask=1,
            fence_fd=-1,
            task_obj_addr=self.records.address,
        )
        job.subcore_task[0] = s.SubcoreTask(0, 1)
        return self.program.fails(s.RKNPU_SUBMIT, job)

    def run_until_right(self, task: TaskBuilder, channels: int, side: int) -> list[str]:
        """Run a job until it ends and each element is 32; return what was wrong in each run before."""
        found: list[str] = []
        for _ in range(4):
            error = self.submit(task)
            if not error and (self.halves(side, channels) == 32).all():
                return found
            found.append(errno.errorcode[error] if error else "wrong")
        raise AssertionError(found)


def test_a_program_recovers_from_a_wrong_result() -> None:
    """H1: a dense job behind a depthwise one of 32 channels is wrong once, and right when it is run again."""
    with ProgramBench(DENSE) as bench:
        for _ in range(3):
            deep = bench.conv(FP16, FP16, 8, 32, depthwise=True)
            bench.submit(deep)
            assert bench.run_until_right(bench.conv(FP16, FP16, 8, 64), 64, 8) == ["wrong"]
        assert bench.device.happened == [(0, DENSE)] * 3
    with ProgramBench() as bench:
        bench.submit(bench.conv(FP16, FP16, 8, 32, depthwise=True))
        assert bench.run_until_right(bench.conv(FP16, FP16, 8, 64), 64, 8) == []


def test_a_program_recovers_from_a_job_that_never_ends() -> None:
    """H2: the driver ends a large fp16 job behind int32 results with ETIMEDOUT, and the next run is right."""
    with ProgramBench(INT32) as bench:
        bench.submit(bench.conv(INT8, INT32_TYPE, 8, 32))
        assert bench.run_until_right(bench.conv(FP16, FP16, SIDE, 64), 64, SIDE) == ["ETIMEDOUT"]
        assert bench.device.happened == [(0, INT32)]


def test_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match=f"there is no fault 'h3'; the faults are {', '.join(FAULTS)}"):
        FaultyDevice(GoldenNpu(1), ["h3"])


@pytest.mark.parametrize("name", [NOT_STARTED, LOST, PAGE])
def test_a_job_that_fails_is_right_when_it_is_submitted_again(name: str) -> None:
    bench = Bench(name)
    task = bench.conv(FP16, FP16, 8, 64)
    bench.run(task)
    with pytest.raises((DriverTimeout, GoldenError)):  # the golden model stops at a page fault
        bench.run(task)
    assert bench.device.happened == [(0, name)]
    bench.device.reset(1)
    assert ((bench.halves(8, 64) == 32).all()) == (name == LOST)  # its results are in memory
    bench.run(task)
    assert (bench.halves(8, 64) == 32).all()


def test_a_late_interrupt_comes() -> None:
    bench = Bench(LATE)
    task, spent = bench.conv(FP16, FP16, 8, 64), []
    for _ in range(3):
        begin = bench.device.cycle
        bench.run(task)
        spent.append(bench.device.cycle - begin)
        assert (bench.halves(8, 64) == 32).all()
    assert spent[1] - spent[0] == LATE_CYCLES and spent[2] == spent[0]


def test_only_bursts_have_the_fault_of_bursts() -> None:
    bench = Bench(BURST)
    task = bench.conv(FP16, FP16, 8, 64)
    for _ in range(6):
        bench.run(task, pause=10 * MS)
    bench.run(task)
    with pytest.raises(DriverTimeout):
        bench.run(task)
    assert bench.device.happened == [(0, BURST)]


def test_the_interval_of_faults() -> None:
    device = FaultyDevice(GoldenNpu(1, strict=False), [NOT_STARTED], each=3)
    assert [device._stops(0) for _ in range(7)] == [False, False, True] * 2 + [False]
    with pytest.raises(ValueError, match="n at least 1, not 0"):
        FaultyDevice(GoldenNpu(1), [LOST], each=0)
