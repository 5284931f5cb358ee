"""Tile plans of the vendor's compiler as jobs: its geometry, our command lists ([HW 1.9], [HW 4.4]).

Each plan (`plan_tables.py`) becomes one job: on one core a chain of its tasks, on two or three cores a chain
per core in which a PPU task of one pixel follows every convolution, as in the captures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.driver import Buffer, Driver, Job, Task
from rkcosim.regcmd import TaskBuilder, build_task_list, task_list_bytes
from rkcosim.spec.layouts import (
    argb_pitch,
    pack_alu_table,
    pack_argb,
    pack_feature,
    pack_weights,
    padded_channels,
    surfaces,
    unpack_feature,
)
from rkcosim.spec.layouts.weights import padded_kernels, weights_bytes
from rkcosim.spec.regs import registers
from rkcosim.spec.types import BANK_BYTES
from rkcosim.verify.conformance.plan_tables import ATOM, Plan, PlanRow

POINTER = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
SCALE, OFFSET = 23170, 3
"""Requantisation of the int8 plans: about acc * 0.7 / 2^shift + 3."""


@dataclass(frozen=True)
class Tensors:
    """Operands of a layer and the expected output (numpy, no golden model).

    Members
    -------
    x : input (C, H, W).
    w : weights (OC, C, kh, kw).
    bias : (OC,) int32 for int8, or None.
    y : expected output (OC, OH, OW).
    """

    x: NDArray[Any]
    w: NDArray[Any]
    bias: NDArray[np.int32] | None
    y: NDArray[Any]
    shift: int


def make_tensors(plan: Plan, rng: np.random.Generator) -> Tensors:
    """Draw operands. fp16 values are small integers, so that every sum is exact in any order."""
    row = plan.rows[0]
    taps = row.cin * row.kernel_h * row.kernel_w
    shape_x = (row.cin, row.in_height, row.in_width)
    shape_w = (row.cout, row.cin, row.kernel_h, row.kernel_w)
    if plan.dtype == "int8":
        x = rng.integers(-128, 128, shape_x).astype(np.int8)
        w = rng.integers(-128, 128, shape_w).astype(np.int8)
        bias = rng.integers(-20000, 20000, row.cout).astype(np.int32)
        acc = _convolve(x, w, row).astype(np.int64) + bias[:, None, None]
        shift = 14 + max(0, int(np.log2(73 * 73 * np.sqrt(taps) / 60)))
        product = acc * SCALE
        low = product >> shift
        rest = product - (low << shift)
        half = 1 << (shift - 1)
        rounded = low + ((rest > half) | ((rest == half) & (low % 2 == 1)))
        return Tensors(x, w, bias, np.clip(rounded + OFFSET, -128, 127).astype(np.int8), shift)
    x = (rng.integers(-16, 17, shape_x) / 4).astype(np.float16)
    w = (rng.integers(-16, 17, shape_w) / 8).astype(np.float16)
    return Tensors(x, w, None, _convolve(x, w, row).astype(np.float32).astype(np.float16), 0)


def _convolve(x: NDArray[Any], w: NDArray[Any], row: PlanRow) -> NDArray[np.float64]:
    """Return a direct convolution in float64 (exact for all values here), one matrix product per tap."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (row.pad_h,) * 2, (row.pad_w,) * 2))
    height = (padded.shape[1] - row.kernel_h) // row.stride + 1
    width = (padded.shape[2] - row.kernel_w) // row.stride + 1
    total = np.zeros((row.cout, height * width))
    for r in range(row.kernel_h):
        for c in range(row.kernel_w):
            rows = slice(r, r + (height - 1) * row.stride + 1, row.stride)
            columns = slice(c, c + (width - 1) * row.stride + 1, row.stride)
            total += w[:, :, r, c].astype(np.float64) @ padded[:, rows, columns].reshape(row.cin, -1)
    return total.reshape(row.cout, height, width)


class PlanJob:
    """A plan's buffers and its job on a driver.

    Parameters
    ----------
    plan, driver : the driver's device must have the plan's cores.
    seed : seed of the operands.
    """

    def __init__(self, plan: Plan, driver: Driver, seed: int) -> None:
        self.plan, self.driver = plan, driver
        self.tensors = make_tensors(plan, np.random.default_rng(seed))
        self._buffers: list[Buffer] = []
        self._place()
        self.job = self._build()

    def close(self) -> None:
        """Free the buffers."""
        for buffer in self._buffers:
            buffer.free()
        self._buffers.clear()

    def output(self, data: NDArray[np.uint8] | None = None) -> NDArray[Any]:
        """Return the output tensor (OC, OH, OW) from memory."""
        element = np.int8 if self.plan.dtype == "int8" else np.float16
        memory = self.out.view() if data is None else data
        return unpack_feature(memory[: self._out_bytes], self.tensors.y.shape, element)

    def mismatches(self, got: NDArray[Any]) -> int:
        """Count the elements in the rows and kernels of the plan that differ from numpy."""
        return int(((got != self.tensors.y) & self._covered()).sum())

    def _covered(self) -> NDArray[np.bool_]:
        covered = np.zeros(self.tensors.y.shape, bool)
        for row in self.plan.rows:
            first, line = self._out_place(row)
            covered[first : first + row.kernels, line : line + row.out_rows] = True
        if not self.plan.left_out:
            assert covered.all(), f"{self.plan.name} does not cover its layer"
        return covered

    # ---- memory

    def _alloc(self, data: NDArray[np.uint8], name: str, size: int | None = None) -> Buffer:
        buffer = self.driver.alloc(max(size or 0, data.size), name)
        buffer.write(data)
        self._buffers.append(buffer)
        return buffer

    def _place(self) -> None:
        row, tensors = self.plan.rows[0], self.tensors
        size = self.plan.itemsize
        self.argb = row.cin if row.cin <= 4 else 0
        self.pitch = argb_pitch(row.in_width, size) if self.argb else row.in_width
        packed = pack_argb(tensors.x) if self.argb else pack_feature(tensors.x)
        self.x = self._alloc(packed, "features")
        stride = padded_kernels(row.cout, size) * weights_bytes(
            (1, row.cin, row.kernel_h, row.kernel_w), size
        )
        self.w = self._alloc(pack_weights(tensors.w), "weights", stride)
        if tensors.bias is not None:
            self.bias = self._alloc(pack_alu_table(tensors.bias), "bias")
        height, width = tensors.y.shape[1:]
        self.surface = height * width
        self._out_bytes = surfaces(row.cout, size) * self.surface * ATOM
        self.out = self._alloc(np.full(self._out_bytes, 0x5A, np.uint8), "output")
        self.sync = self._alloc(np.zeros(64, np.uint8), "synchronisation")

    def _out_place(self, row: PlanRow) -> tuple[int, int]:
        """Return first kernel and first output row of a task."""
        surface, rest = divmod(row.out_offset, self.surface * ATOM)
        return surface * (ATOM // self.plan.itemsize), rest // (row.out_width * ATOM)

    # ---- command lists

    def _build(self) -> Job:
        plan = self.plan
        per_core = len(plan.rows) // plan.cores
        if per_core * plan.cores != len(plan.rows):
            raise ValueError(f"{plan.name}: {len(plan.rows)} tasks on {plan.cores} cores")
        records: list[Task] = []
        ranges = {}
        for core in range(plan.cores):
            tasks, resident = [], None
            for row in plan.rows[core * per_core : (core + 1) * per_core]:
                kernels = (self._out_place(row)[0], row.kernels)
                tasks.append(self._conv(row, reuse=resident == kernels))
                fits = self._weight_bytes(row) <= row.weight_banks * BANK_BYTES
                resident = kernels if fits else None
                if plan.cores > 1:
                    tasks.append(self._sync(core))
            commands = self.driver.alloc(task_list_bytes(tasks), f"commands {core}")
            self._buffers.append(commands)
            placed = build_task_list(tasks, commands.iova)
            commands.write(placed.data)
            ranges[core] = (len(records), len(tasks))
            records += [Task.of_entry(entry) for entry in placed.tasks]
        return Job(records, core_mask=(1 << plan.cores) - 1, ranges=ranges)

    def _weight_bytes(self, row: PlanRow) -> int:
        return weights_bytes((row.kernels, row.cin, row.kernel_h, row.kernel_w), self.plan.itemsize)

    def _sync(self, core: int) -> TaskBuilder:
        """Return the PPU task (one pixel, 32 channels) after each tile of the vendor's multi-core plans."""
        task = TaskBuilder(f"synchronisation {core}").enable("PPU", "PPU_RDMA")
        for block in ("PPU", "PPU_RDMA"):
            task.set(block, "S_POINTER", **POINTER)
        task.set("PPU", "DATA_CUBE_IN_CHANNEL", DATA_CUBE_IN_CHANNEL=31)
        task.set("PPU", "DATA_CUBE_OUT_CHANNEL", DATA_CUBE_OUT_CHANNEL=31)
        task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD=1)
        task.set("PPU", "RECIP_KERNEL_WIDTH", RECIP_KERNEL_WIDTH=1 << 16)
        task.set("PPU", "RECIP_KERNEL_HEIGHT", RECIP_KERNEL_HEIGHT=1 << 16)
        for register in ("DATA_CUBE_IN_WIDTH", "DATA_CUBE_IN_HEIGHT", "POOLING_KERNEL_CFG"):
            task.set("PPU", register)
        for register in ("DATA_CUBE_OUT_WIDTH", "DATA_CUBE_OUT_HEIGHT", "POOLING_PADDING_CFG"):
            task.set("PPU", register)
        task.set("PPU", "DST_BASE_ADDR", DST_BASE_ADDR=(self.sync.iova + 32) // ATOM)
        task.set("PPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=1)
        task.set("PPU", "DATA_FORMAT", INDEX_ADD=1)
        task.set("PPU", "MISC_CTRL", BURST_LEN=3)
        for register in ("CUBE_IN_WIDTH", "CUBE_IN_HEIGHT"):
            task.set("PPU_RDMA", register)
        task.set("PPU_RDMA", "CUBE_IN_CHANNEL", CUBE_IN_CHANNEL=31)
        task.set_word("PPU_RDMA", "SRC_BASE_ADDR", self.sync.iova)
        task.set("PPU_RDMA", "SRC_LINE_STRIDE", SRC_LINE_STRIDE=1)
        task.set("PPU_RDMA", "SRC_SURF_STRIDE", SRC_SURF_STRIDE=1)
        task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=1)
        return task

    def _conv(self, row: PlanRow, reuse: bool) -> TaskBuilder:
        plan = self.plan
        int8 = plan.dtype == "int8"
        precision = 0 if int8 else 2
        size = plan.itemsize
        stored = padded_channels(row.cin, size)
        first_kernel, _ = self._out_place(row)
        kernel_bytes = weights_bytes((1, row.cin, row.kernel_h, row.kernel_w), size)
        kernel_bytes //= padded_kernels(1, size)
        kernels = padded_kernels(row.kernels, size)
        task = TaskBuilder(f"{plan.name} task {row.task}")
        task.enable("CNA", "CORE", "DPU", *(["DPU_RDMA"] if int8 else []))

        def cna(register: str, **fields: int) -> None:
            task.set("CNA", register, **fields)

        mode = {"NONALIGN_DMA": 1, "GROUP_LINE_OFF": 1, "ARGB_IN": 7 + self.argb} if self.argb else {}
        cna("CONV_CON1", IN_PRECISION=precision, PROC_PRECISION=precision, **mode)
        nn_mode = registers()["CNA"]["CONV_CON2"].fields
        code = next(name for name in nn_mode if nn_mode[name].lsb == 28)
        cna("CONV_CON2", FEATURE_GRAINS=row.feature_grains, **{code: row.plan})
        cna("CONV_CON3", CONV_Y_STRIDE=row.stride, CONV_X_STRIDE=row.stride)
        cna("DATA_SIZE0", DATAIN_WIDTH=row.width, DATAIN_HEIGHT=row.rows)
        cna("DATA_SIZE1", DATAIN_CHANNEL_REAL=row.channels_real, DATAIN_CHANNEL=stored)
        cna("DATA_SIZE2", DATAOUT_WIDTH=row.out_width)
        cna("DATA_SIZE3", DATAOUT_ATOMICS=row.out_atomics)
        cna("WEIGHT_SIZE0", WEIGHT_BYTES=kernels * kernel_bytes)
        cna("WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=kernel_bytes)
        cna("WEIGHT_SIZE2", WEIGHT_WIDTH=row.kernel_w, WEIGHT_HEIGHT=row.kernel_h, WEIGHT_KERNELS=kernels)
        cna("CBUF_CON0", WEIGHT_REUSE=int(reuse), WEIGHT_BANK=row.weight_banks, DATA_BANK=row.data_banks)
        cna("CBUF_CON1", DATA_ENTRIES=row.data_entries)
        cna("CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
        cna("PAD_CON0", PAD_LEFT=row.pad_left, PAD_TOP=row.pad_top)
        cna("PAD_CON1")
        cna("FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=self.x.iova + row.first_row_offset)
        cna("DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
        if self.argb:
            line, surface = self.pitch, self.pitch * (row.in_height - 1)
        else:
            line, surface = 4 * row.in_width, row.in_width * (row.in_height - 4)
        cna("DMA_CON1", LINE_STRIDE=line)
        cna("DMA_CON2", SURF_STRIDE=surface)
        cna("FC_DATA_SIZE0", DMA_WIDTH=row.width, DMA_HEIGHT=row.rows)
        cna("FC_DATA_SIZE1", DMA_CHANNEL=stored)
        first = self.w.iova + first_kernel * kernel_bytes
        cna("DCOMP_ADDR0", DECOMPRESS_ADDR0=first // ATOM)
        cna("CVT_CON5")
        task.set("CORE", "MISC_CFG", PROC_PRECISION=precision)
        task.set("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=row.out_rows - 1, DATAOUT_WIDTH=row.out_width - 1)
        task.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=row.kernels - 1)
        task.set("CORE", "CLIP_TRUNCATE")
        self._dpu(task, row, min(row.kernels, row.cout - first_kernel), precision, first_kernel)
        return task

    def _dpu(self, task: TaskBuilder, row: PlanRow, channels: int, precision: int, first_kernel: int) -> None:
        def dpu(register: str, **fields: int) -> None:
            task.set("DPU", register, **fields)

        int8 = precision == 0
        dpu("S_POINTER", **POINTER)
        dpu("FEATURE_MODE_CFG", BURST_LEN=15, OUTPUT_MODE=2)
        dpu("DATA_FORMAT", OUT_PRECISION=precision, IN_PRECISION=precision, PROC_PRECISION=precision)
        dpu("OFFSET_PEND")
        dpu("DST_BASE_ADDR", DST_BASE_ADDR=(self.out.iova + row.out_offset) // ATOM)
        dpu("DST_SURF_STRIDE", DST_SURF_STRIDE=self.surface)
        dpu("DATA_CUBE_WIDTH", WIDTH=row.out_width - 1)
        dpu("DATA_CUBE_HEIGHT", HEIGHT=row.out_rows - 1)
        dpu("DATA_CUBE_NOTCH_ADDR")
        dpu("DATA_CUBE_CHANNEL", ORIG_CHANNEL=channels - 1, CHANNEL=channels - 1)
        if int8:
            dpu("BS_CFG", BS_ALU_ALGO=2, BS_ALU_SRC=1, BS_RELU_BYPASS=1, BS_MUL_BYPASS=1)
        else:
            dpu("BS_CFG", BS_RELU_BYPASS=1, BS_MUL_BYPASS=1, BS_ALU_BYPASS=1, BS_BYPASS=1)
        dpu("BS_OW_CFG", SIZE_E_2=1, SIZE_E_1=1, SIZE_E_0=1, OD_BYPASS=1)
        dpu("WDMA_SIZE_0", CHANNEL_WDMA=channels - 1)
        dpu("WDMA_SIZE_1", HEIGHT_WDMA=row.out_rows - 1, WIDTH_WDMA=row.out_width - 1)
        dpu("BN_CFG", BN_RELU_BYPASS=1, BN_MUL_BYPASS=1, BN_ALU_BYPASS=1, BN_BYPASS=1)
        dpu("EW_CFG", EW_RELU_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_BYPASS=1, EW_BYPASS=1)
        dpu("OUT_CVT_OFFSET", OUT_CVT_OFFSET=OFFSET if int8 else 0)
        dpu("OUT_CVT_SCALE", OUT_CVT_SCALE=SCALE if int8 else 1, FP32TOFP16_EN=int(not int8))
        dpu("OUT_CVT_SHIFT", OUT_CVT_SHIFT=self.tensors.shift)
        dpu("SURFACE_ADD", SURF_ADD=2 * self.surface)
        if not int8:
            return

        def rdma(register: str, **fields: int) -> None:
            task.set("DPU_RDMA", register, **fields)

        rdma("S_POINTER", **POINTER)
        rdma("DATA_CUBE_WIDTH", WIDTH=row.out_width - 1)
        rdma("DATA_CUBE_HEIGHT", HEIGHT=row.out_rows - 1)
        rdma("DATA_CUBE_CHANNEL", CHANNEL=channels - 1)
        rdma("BRDMA_CFG", BRDMA_DATA_USE=1)
        rdma("BS_BASE_ADDR", BS_BASE_ADDR=self.bias.iova + 4 * first_kernel)
        rdma("NRDMA_CFG")
        rdma("ERDMA_CFG", ERDMA_DISABLE=1)
        rdma("FEATURE_MODE_CFG", BURST_LEN=15, MRDMA_DISABLE=1)


@dataclass(frozen=True)
class PlanResult:
    """Result of a plan: elements that differ from numpy, cycles of the job, array slots."""

    plan: Plan
    mismatches: int
    cycles: int
    error: str = ""

    @property
    def good(self) -> bool:
        """Whether it completed and is equal."""
        return not self.error and self.mismatches == 0


def run_plans(plans: Iterable[Plan], driver: Driver, seed: int) -> Iterator[PlanResult]:
    """Run plans one after the other on a driver's device and compare each output with numpy."""
    from rkcosim.driver import DriverError

    for plan in plans:
        bound = 100_000 + 20 * plan.slots
        case = PlanJob(plan, driver, seed)
        try:
            result = driver.submit(replace(case.job, max_cycles=bound))
            yield PlanResult(plan, case.mismatches(case.output()), result.cycles)
        except DriverError as error:
            yield PlanResult(plan, -1, 0, str(error))
        finally:
            case.close()
