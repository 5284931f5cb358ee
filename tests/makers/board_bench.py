"""Tasks whose results somebody has read from a board, on the golden model and on the RTL.

The bench knows registers, cubes and memory, and none of the hardware's arithmetic: what a test expects comes
from its source, never from a model of the project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rkcosim.driver.core_port import Kick
from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd import TaskBuilder, build_task_list
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import run_kick

INT8, INT16, FP16, BF16, INT32, FP32 = 0, 1, 2, 3, 4, 5
"""Element types by their code in DPU and DPU_RDMA."""

BYTES = {INT8: 1, INT16: 2, FP16: 2, BF16: 2, INT32: 4, FP32: 4}
MAX, MIN, ADD, DIV, SUB, ABS, NEG, FLOOR, CEIL = range(9)
"""EW_ALU_ALGO."""

BASE, SIZE = 0x0020_0000, 0x0040_0000
MAIN, ELEMENT, BS, BN, OUT, COMMANDS = (
    BASE + part for part in (0, 0x8_0000, 0x10_0000, 0x12_0000, 0x18_0000, 0x3F_0000)
)
FILL = 0xA5
"""Byte of all memory before a task."""

BOUND, HANG = 3_000_000, 20_000
"""Cycles in which a task has to end, and in which it must not."""


class Task:
    """Registers of a task by name; those that are not set are not written, and keep their value."""

    def __init__(self, *blocks: str) -> None:
        self.blocks = blocks
        self.values: dict[tuple[str, str], int] = {}
        for block in blocks:
            if block not in ("CNA", "CORE"):
                self.set(block, "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)

    def set(self, block: str, register: str, **fields: int) -> Task:
        """Set fields of a register; its other fields stay as they are, 0 at first."""
        described = registers()[block][register]
        value = self.values.get((block, register), 0)
        for name, number in fields.items():
            field = described.fields[name]
            ones = (1 << field.width) - 1
            value = value & ~(ones << field.lsb) | (number & ones) << field.lsb
        self.values[block, register] = value
        return self

    def word(self, block: str, register: str, value: int) -> Task:
        """Set a whole register."""
        self.values[block, register] = value
        return self

    def builder(self) -> TaskBuilder:
        """The task's command list."""
        built = TaskBuilder().enable(*self.blocks)
        for (block, register), value in self.values.items():
            built.set_word(block, register, value & 0xFFFF_FFFF)
        return built


class Board:
    """A device for tasks, each of which begins after a reset with all of memory filled."""

    def __init__(self, device: Any, size: int = SIZE) -> None:
        self.device, self.size = device, size
        device.memory.map(BASE, size)
        self._said = 0

    def load(self, data: Mapping[int, bytes]) -> None:
        """Reset the core, fill memory, and write data at addresses."""
        self.device.reset(1)
        self.device.memory.write(BASE, np.full(self.size, FILL, np.uint8))
        for address, raw in data.items():
            self.device.memory.write(address, np.frombuffer(raw, np.uint8))

    def kick(self, tasks: Sequence[Task], bound: int = BOUND) -> str:
        """Run a chain of tasks from the present state; returns "" when it ends, else what does not."""
        placed = build_task_list([task.builder() for task in tasks], COMMANDS)
        self.device.memory.write(COMMANDS, np.frombuffer(placed.data, np.uint8))
        self._said = len(self.device.diagnostics())
        mask = 0x300 if "DPU" in tasks[-1].blocks else 0xC00
        result = run_kick(self.device, Kick(COMMANDS, placed.tasks[0].amount, len(tasks), mask), 0, bound)
        return "" if result.done else result.state or "no interrupt"

    def read(self, count: int, kind: str, at: int = OUT) -> np.ndarray:
        """Elements from an address on."""
        kind_ = np.dtype(kind)
        return np.frombuffer(bytes(self.device.memory.read(at, count * kind_.itemsize)), kind_).copy()

    def run(
        self, task: Task, main: bytes = b"", element: bytes = b"", bs: bytes = b"", bn: bytes = b""
    ) -> None:
        """Run one task that has to end, after a reset, with data at MAIN, ELEMENT, BS and BN."""
        places = ((MAIN, main), (ELEMENT, element), (BS, bs), (BN, bn))
        self.load({address: raw for address, raw in places if raw})
        state = self.kick([task])
        assert not state, state

    def hangs(self, task: Task, field: str, main: bytes = b"", element: bytes = b"") -> None:
        """Run one task that must not end and whose cause is said: a register or `BLOCK.REGISTER.FIELD`.

        The golden model names the field in the state of the kick; the engine raises a diagnostic at the
        register, which its reports print with the register's fields.
        """
        self.load({MAIN: main or bytes(4096), ELEMENT: element or bytes(4096)})
        state = self.kick([task], HANG)
        assert state, "the task ends"
        said = self.said()
        register = ".".join(field.split(".")[:2])
        assert field in state or register in said, f"{field} is not named: {state}, {said}"

    def said(self) -> list[str]:
        """Registers of the diagnostics of the last kick, as `BLOCK.REGISTER`."""
        return sorted({name_of(one) for one in self.device.diagnostics()[self._said :]})


def name_of(diagnostic: Any) -> str:
    """`BLOCK.REGISTER` of a diagnostic of either device."""
    register = str(diagnostic.register)
    return register if "." in register else f"{diagnostic.block}.{register}"


@contextmanager
def open_board(kind: str, size: int = SIZE) -> Iterator[Board]:
    """A board of "golden" or of an engine's name; both continue after diagnostics as the hardware does.

    `size` is that of the memory from BASE on, in bytes.
    """
    if kind == "golden":
        yield Board(GoldenNpu(1, strict=False), size)
        return
    from rkcosim.engines import open_engine

    with open_engine(kind, cores=1, on_diagnostic="go on") as device:
        yield Board(device, size)


def flying(
    kind: int,
    out: int | None = None,
    *,
    channels: int = 8,
    width: int = 1,
    height: int = 1,
    original: int | None = None,
    size_e: int = 0,
    surface: int | None = None,
    group: int | None = None,
) -> Task:
    """A flying task with all stages bypassed that moves a tight cube from MAIN to OUT.

    Parameters
    ----------
    kind, out : type in IN_ and PROC_PRECISION of both blocks, and OUT_PRECISION (the same by default).
    original : real channels (ORIG_CHANNEL + 1); all by default.
    size_e : SIZE_E_0, _1 and _2.
    surface, group : DST_SURF_STRIDE and SURF_ADD in atoms; by default the pixels of a surface.
    """
    out = kind if out is None else out
    area = width * height
    half = kind in (FP16, BF16)
    task = Task("DPU", "DPU_RDMA")
    task.set("DPU", "FEATURE_MODE_CFG", BURST_LEN=15, OUTPUT_MODE=2, FLYING_MODE=1)
    task.set("DPU", "DATA_FORMAT", OUT_PRECISION=out, IN_PRECISION=kind, PROC_PRECISION=kind)
    task.set("DPU", "DST_BASE_ADDR", DST_BASE_ADDR=OUT >> 4)
    task.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=area if surface is None else surface)
    task.set("DPU", "SURFACE_ADD", SURF_ADD=area if group is None else group)
    task.set("DPU", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    task.set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=height - 1)
    task.set(
        "DPU",
        "DATA_CUBE_CHANNEL",
        CHANNEL=channels - 1,
        ORIG_CHANNEL=(channels if original is None else original) - 1,
    )
    task.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=channels - 1)
    task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=height - 1, WIDTH_WDMA=width - 1)
    task.set("DPU", "BS_OW_CFG", OD_BYPASS=1, SIZE_E_0=size_e, SIZE_E_1=size_e, SIZE_E_2=size_e)
    for stage in ("BS", "BN"):
        parts = {f"{stage}_{part}": 1 for part in ("BYPASS", "ALU_BYPASS", "MUL_BYPASS", "RELU_BYPASS")}
        task.set("DPU", f"{stage}_CFG", **parts)
    task.set(
        "DPU", "EW_CFG", EW_BYPASS=1, EW_OP_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_LUT_BYPASS=1, EW_RELU_BYPASS=1
    )
    task.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1, FP32TOFP16_EN=int(out == FP16))
    task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=height - 1)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=channels - 1)
    task.set("DPU_RDMA", "SRC_BASE_ADDR", SRC_BASE_ADDR=MAIN)
    task.set("DPU_RDMA", "BRDMA_CFG", BRDMA_DISABLE=1)
    task.set("DPU_RDMA", "NRDMA_CFG", NRDMA_DISABLE=1)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
    task.set(
        "DPU_RDMA",
        "FEATURE_MODE_CFG",
        IN_PRECISION=kind,
        PROC_PRECISION=kind,
        BURST_LEN=15,
        MRDMA_FP16TOFP32_EN=int(half),
        FLYING_MODE=1,
    )
    return task


def operation(task: Task, algorithm: int | None, *, bits: int, bypass: bool, memory: bool = True) -> Task:
    """Switch on the EW operation: an algorithm of the ALU, or None for MUL.

    Parameters
    ----------
    bits : width of ERDMA's elements.
    bypass : EW_OP_CVT_BYPASS.
    memory : the operand comes from ELEMENT, each surface behind the other; else from EW_OP_VALUE.
    """
    size = {4: 0, 8: 1, 16: 2, 32: 3}[bits]
    task.word("DPU", "EW_CFG", 0)
    task.set(
        "DPU",
        "EW_CFG",
        EW_DATA_MODE=1,
        EDATA_SIZE=size,
        EW_ALU_ALGO=algorithm or 0,
        EW_OP_TYPE=int(algorithm is None),
        EW_OP_SRC=int(memory),
        EW_OP_CVT_BYPASS=int(bypass),
        EW_LUT_BYPASS=1,
        EW_RELU_BYPASS=1,
    )
    task.set("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
    if memory:
        width = task.values["DPU", "DATA_CUBE_WIDTH"] & 0x1FFF
        height = task.values["DPU", "DATA_CUBE_HEIGHT"] & 0x1FFF
        task.word("DPU_RDMA", "ERDMA_CFG", 0)
        task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=size)
        task.set("DPU_RDMA", "EW_BASE_ADDR", EW_BASE_ADDR=ELEMENT)
        task.set("DPU_RDMA", "EW_SURF_STRIDE", EW_SURF_STRIDE=(width + 1) * (height + 1))
    return task


def convolution(
    height: int,
    width: int,
    channels: int,
    kernels: int,
    size: tuple[int, int] = (1, 1),
    out: tuple[int, int] | None = None,
) -> Task:
    """A convolution of fp16 from MAIN with weights at BN to OUT, stages bypassed, stride 1 and no padding.

    `channels` is a multiple of 32 and `kernels` one of 16; `size` is that of a kernel and `out` that of the
    output, by default the input's.
    """
    rows, columns = out or (height, width)
    each = size[0] * size[1] * channels * 2
    task = Task("CNA", "CORE", "DPU")
    task.set("CNA", "CONV_CON1", IN_PRECISION=FP16, PROC_PRECISION=FP16)
    task.set("CNA", "CONV_CON2", FEATURE_GRAINS=height + size[0])
    task.set("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    task.set("CNA", "DATA_SIZE0", DATAIN_WIDTH=width, DATAIN_HEIGHT=height)
    task.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL=channels, DATAIN_CHANNEL_REAL=channels - 1)
    task.set("CNA", "DATA_SIZE2", DATAOUT_WIDTH=columns)
    task.set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=rows * columns)
    task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=kernels * each)
    task.set("CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=each)
    task.set("CNA", "WEIGHT_SIZE2", WEIGHT_HEIGHT=size[0], WEIGHT_WIDTH=size[1], WEIGHT_KERNELS=kernels)
    task.set("CNA", "CBUF_CON0", DATA_BANK=1, WEIGHT_BANK=11)
    task.set("CNA", "CBUF_CON1", DATA_ENTRIES=width * channels // 32)
    task.set("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    task.set("CNA", "FC_DATA_SIZE0", DMA_WIDTH=width, DMA_HEIGHT=height)
    task.set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=channels)
    task.word("CNA", "FEATURE_DATA_ADDR", MAIN).word("CNA", "DCOMP_ADDR0", BN)
    task.set("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
    task.set("CNA", "DMA_CON1", LINE_STRIDE=4 * width)
    task.set("CNA", "DMA_CON2", SURF_STRIDE=width * (height - 4))
    task.set("CORE", "MISC_CFG", PROC_PRECISION=FP16)
    task.set("CORE", "DATAOUT_SIZE_0", DATAOUT_WIDTH=columns - 1, DATAOUT_HEIGHT=rows - 1)
    task.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=kernels - 1)
    area = rows * columns
    plain = flying(FP16, channels=kernels, width=columns, height=rows, size_e=1, group=2 * area)
    task.values |= {place: value for place, value in plain.values.items() if place[0] == "DPU"}
    return task.set("DPU", "FEATURE_MODE_CFG", FLYING_MODE=0)


def element_wise(kind: int, algorithm: int | None, out: int | None = None, **shape: int) -> Task:
    """An operation of two tensors as the sources program it for a type.

    fp16: 16-bit operands, the converter bypassed for MUL and DIV only; DIV without widening and narrowing.
    int32 and fp32: 32-bit operands, the converter bypassed.
    int8 and int16: operands of their own width, the converter live.
    """
    task = flying(kind, out, **shape)
    bypass = kind in (INT32, FP32) or (kind in (FP16, BF16) and algorithm in (None, DIV))
    operation(task, algorithm, bits=8 * BYTES[kind], bypass=bypass)
    if kind == FP16 and algorithm == DIV:
        task.set("DPU", "OUT_CVT_SCALE", FP32TOFP16_EN=0)
        task.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_FP16TOFP32_EN=0)
    return task


def stage(task: Task, name: str, **fields: int) -> Task:
    """Switch on BS or BN: ALU, MUL and RELU are bypassed unless said; fields without the stage's name."""
    given = {"BYPASS": 0, "ALU_BYPASS": 1, "MUL_BYPASS": 1, "RELU_BYPASS": 1, **fields}
    task.word("DPU", f"{name}_CFG", 0)
    return task.set("DPU", f"{name}_CFG", **{f"{name}_{field}": value for field, value in given.items()})


def operands(task: Task, name: str, use: int) -> Task:
    """Let BRDMA (BS) or NRDMA (BN) read kinds of operands by their bits: 1 ALU, 2 CPEND, 4 MUL."""
    reader, address = {"BS": ("BRDMA", BS), "BN": ("NRDMA", BN)}[name]
    task.word("DPU_RDMA", f"{reader}_CFG", 0)
    task.set("DPU_RDMA", f"{reader}_CFG", **{f"{reader}_DATA_USE": use})
    return task.set("DPU_RDMA", f"{name}_BASE_ADDR", **{f"{name}_BASE_ADDR": address})


def cube(values: np.ndarray) -> bytes:
    """Bytes of pixels [W, C] as surfaces of 16-byte atoms; the last atom is filled up with zeros."""
    width, channels = values.shape
    lanes = 16 // values.dtype.itemsize
    padded = np.zeros((width, -(-channels // lanes) * lanes), values.dtype)
    padded[:, :channels] = values
    return padded.reshape(width, -1, lanes).transpose(1, 0, 2).tobytes()


def pixels(raw: np.ndarray, width: int, channels: int) -> np.ndarray:
    """The reverse of `cube`, of all its elements."""
    lanes = 16 // raw.dtype.itemsize
    return raw.reshape(-1, width, lanes).transpose(1, 0, 2).reshape(width, -1)[:, :channels]


def f16(*values: float) -> bytes:
    """Halves, little endian."""
    return np.array(values, np.float16).tobytes()


def h16(*bits: int) -> bytes:
    """16-bit patterns, little endian."""
    return np.array(bits, np.uint16).tobytes()


def f32(*values: float) -> bytes:
    """Binary32, little endian."""
    return np.array(values, np.float32).tobytes()


def i32(*values: int) -> bytes:
    """32-bit integers, signed or not, little endian."""
    return np.array([value & 0xFFFF_FFFF for value in values], np.uint32).tobytes()
