"""Programs for the task-level golden device: registers by name, cubes of any type element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rkcosim.golden.task import GoldenDevice, Memory
from rkcosim.regcmd import op_enable_mask, op_enable_word, register_word
from rkcosim.spec.regs import registers

MAIN, ELEMENT, BS, BN, OUT = 0x10000, 0x20000, 0x30000, 0x38000, 0x40000
BITS = {0: 8, 1: 16, 2: 16, 3: 16, 4: 32, 5: 32, 6: 4}
"""Bits per element by DPU code."""


def device(strict: bool = True) -> GoldenDevice:
    """Return a device with memory at all the addresses above."""
    memory = Memory()
    for base, size in ((MAIN, 0x10000), (ELEMENT, 0x10000), (BS, 0x8000), (BN, 0x8000), (OUT, 0x20000)):
        memory.map(base, size)
    return GoldenDevice(memory, strict=strict)


class Program:
    """Registers of one task by name; registers that are not set have their reset value."""

    def __init__(self, *blocks: str) -> None:
        self.blocks = blocks
        self.fields: dict[tuple[str, str], dict[str, int]] = {}

    def set(self, block: str, register: str, *value: int, **fields: int) -> None:
        """Set fields; a bare value sets the field with the register's name."""
        if value:
            fields = {register: value[0]}
        known = registers()[block][register].fields
        store = self.fields.setdefault((block, register), {})
        store.update({name: v % (1 << known[name].width) for name, v in fields.items()})

    def get(self, block: str, register: str, field: str) -> int:
        """Return the value of a field, 0 if it was not set."""
        return self.fields.get((block, register), {}).get(field, 0)

    def words(self) -> list[int]:
        """The task's command words."""
        table = registers()
        words = [
            register_word(table[block][register], table[block][register].encode(**values))
            for (block, register), values in self.fields.items()
        ]
        return [*words, op_enable_word(op_enable_mask(self.blocks))]

    def run(self, dev: GoldenDevice) -> None:
        """Run on a device that has run nothing since its reset."""
        dev.run_task(self.words())


def place(bits: int, c: int, y: int, x: int, line: int, surface: int) -> tuple[int, int]:
    """Byte offset and bit of an element; pitches in atoms."""
    per = 128 // bits
    at = 128 * (c // per * surface + y * line + x) + c % per * bits
    return at // 8, at % 8


def load(dev: GoldenDevice, address: int, bits: int) -> int:
    """Element pattern at an address given as (byte, bit)."""
    return int.from_bytes(dev.memory.read(address, max(1, bits // 8)), "little")


def put(
    dev: GoldenDevice,
    base: int,
    bits: int,
    shape: tuple[int, int, int],
    value: Callable[[int, int, int], int],
    line: int,
    surface: int,
) -> None:
    """Store a cube; `value(c, y, x)` returns patterns."""
    for c in range(shape[0]):
        for y in range(shape[1]):
            for x in range(shape[2]):
                byte, bit = place(bits, c, y, x, line, surface)
                new = value(c, y, x) << bit
                if bits == 4:
                    new |= load(dev, base + byte, 8) & (0xF << (4 - bit))
                dev.memory.write(base + byte, new.to_bytes(max(1, bits // 8), "little"))


def get(dev: GoldenDevice, base: int, bits: int, c: int, y: int, x: int, line: int, surface: int) -> int:
    """Return the pattern of one element of a cube."""
    byte, bit = place(bits, c, y, x, line, surface)
    return load(dev, base + byte, bits) >> bit & ((1 << bits) - 1)


def flying(
    shape: tuple[int, int, int], kind: int, out: int, *, process: int | None = None, element: bool = False
) -> Program:
    """Return a task that moves a tight cube from MAIN to OUT, with all stages bypassed."""
    channels, height, width = shape
    program = Program("DPU", "DPU_RDMA")
    cube(program, shape, kind, out, process=process, flying=True)
    program.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    program.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=height - 1)
    program.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=channels - 1)
    program.set("DPU_RDMA", "SRC_BASE_ADDR", MAIN)
    program.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=int(not element))
    program.set(
        "DPU_RDMA",
        "FEATURE_MODE_CFG",
        FLYING_MODE=1,
        IN_PRECISION=kind,
        PROC_PRECISION=kind if process is None else process,
        MRDMA_FP16TOFP32_EN=int(kind in (2, 3)),
    )
    return program


def cube(
    program: Program,
    shape: tuple[int, int, int],
    kind: int,
    out: int,
    *,
    process: int | None = None,
    flying: bool = False,
    depthwise: bool = False,
) -> None:
    """Set the DPU registers of a tight cube at OUT, with all stages bypassed."""
    channels, height, width = shape
    mode = {"OUTPUT_MODE": 2, "FLYING_MODE": int(flying), "CONV_MODE": 3 * depthwise}
    program.set("DPU", "FEATURE_MODE_CFG", **mode)
    program.set(
        "DPU",
        "DATA_FORMAT",
        OUT_PRECISION=out,
        IN_PRECISION=kind,
        PROC_PRECISION=kind if process is None else process,
    )
    program.set("DPU", "DST_BASE_ADDR", OUT >> 4)
    program.set("DPU", "DST_SURF_STRIDE", height * width)
    surfaces = max(1, BITS[out] // BITS[kind])  # of an input surface
    if not flying:  # of a kernel group, with 32 channels where depthwise takes 64 of 16 bits
        group = (32 if kind in (1, 2, 3) else 64) if depthwise else {0: 32, 6: 64}.get(kind, 16)
        surfaces = max(1, group * BITS[out] // 128)
    e = min(surfaces, 8) - 1
    program.set("DPU", "SURFACE_ADD", SURF_ADD=surfaces * height * width)
    program.set("DPU", "BS_OW_CFG", OD_BYPASS=1, SIZE_E_0=e, SIZE_E_1=e, SIZE_E_2=e)
    program.set("DPU", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    program.set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=height - 1)
    program.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=channels - 1, ORIG_CHANNEL=channels - 1)
    program.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=channels - 1)
    program.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=height - 1, WIDTH_WDMA=width - 1)
    for stage in ("BS", "BN"):
        program.set("DPU", f"{stage}_CFG", **{f"{stage}_BYPASS": 1})
    program.set("DPU", "EW_CFG", EW_BYPASS=1, EW_LUT_BYPASS=1)
    program.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1, FP32TOFP16_EN=int(out == 2))


SPECIAL = (
    *(0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC12345),
    *(1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF),
    *(0x3F000000, 0x3F800000, 0xBFC00000, 0x40200000, 0x4B000001, 0x4F000000, 0xCF000000, 0x477FF000),
)
"""Binary32 patterns at limits: zeros, infinities, NaN, subnormals, halves, limits of integers."""


def pattern(rng: np.random.Generator, kind: int) -> int:
    """Draw an element of a DPU code, as bits; floats often have a moderate size, or are special."""
    bits = BITS[kind]
    if kind not in (2, 3, 5):
        small = rng.random() < 0.3
        return int(rng.integers(-100, 100) if small else rng.integers(1 << bits)) % (1 << bits)
    wide = int(rng.choice(SPECIAL))
    roll = rng.random()
    if roll < 0.75:
        number = np.float32(rng.normal() * 2.0 ** rng.integers(-12, 14))
        wide = int((np.rint(number * 4) / 4 if roll < 0.3 else number).view(np.uint32))
    elif roll < 0.85:
        wide = int(rng.integers(1 << 32))
    if kind == 5:
        return wide
    if kind == 3:
        return wide >> 16
    with np.errstate(all="ignore"):
        half = int(np.uint32(wide).view(np.float32).astype(np.float16).view(np.uint16))
    return int(rng.integers(1 << 16)) if roll > 0.85 else half
