"""Register values of the tasks of a matrix product.

A product is a 1x1 convolution over M pixels: a row of A is a pixel, a column of B a kernel.  A is read
and C is written in one of two layouts: row by row (GROUP_LINE_OFF with a surface pitch of one pixel,
[HW 4.1.2]; the output uses a notch), or in the native layout [K/C2, M, C2], surface by surface.
B has the packed weights of [HW 3.6], which is the native layout [N/G, K/32, G, 32].

If K is divided into parts, all parts but the last write sums in int32 or binary32, surface by surface, to
separate memory for each tile of C.  All parts but the first read these sums with ERDMA and add them in EW
[HW 8.4].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.matmul.shape import ATOM_BITS, KINDS, ProductShape, pack_b
from rkcosim.compiler.matmul.tiling import SUM_BYTES, MatmulTile, plan_tiles
from rkcosim.compiler.programs.dpu import BURST_16
from rkcosim.compiler.programs.operands import TABLE_BYTES
from rkcosim.compiler.requant import BS_SHIFT
from rkcosim.compiler.tiling import ENTRY_BYTES, STRIPE
from rkcosim.regcmd import TaskBuilder
from rkcosim.spec.layouts import ATOM_BYTES, pack_bs_table
from rkcosim.spec.regs import registers

HALF_BYTES = 2
STORAGE = {HALF_BYTES: 2, 4: 3}
"""Bytes of an element -> its size code (EDATA_SIZE, ERDMA_DATA_SIZE)."""

_SKIPPED = ("LUT_ACCESS", "CLK_GATE", "MAC_GATING", "S_POINTER")


@dataclass(frozen=True)
class Places:
    """Byte addresses of the matrices, of the operand table and of the sums of the parts of K."""

    a: int
    b: int
    c: int
    table: int
    sums: int

    def sums_of(self, p: ProductShape, t: MatmulTile) -> int:
        """Byte address of the sums of a tile; the tiles of a column range follow one another by rows."""
        return self.sums + t.sum_bytes * (t.column * p.m + t.row * t.columns)


@dataclass(frozen=True)
class Requant:
    """Integer arithmetic applied to the sums of int8 products.

    `q = sat(rne(rne((sum + bias - zero * S) * multiplier, 14) * scale, shift) + offset)`, where S is the
    sum of the row of A; `bias`, `zeros` and `multipliers` have one element per column.
    """

    bias: npt.NDArray[np.int64]
    zeros: npt.NDArray[np.int64]
    multipliers: npt.NDArray[np.int64]
    scale: int = 1
    shift: int = 0
    offset: int = 0

    def table(self) -> npt.NDArray[np.uint8]:
        """Return the operand table that BRDMA reads.

        Raises
        ------
        ValueError
            If a bias does not fit 32 bits.
        """
        return pack_bs_table(self.bias, -self.zeros, self.multipliers)


class _Program:
    """Field values of the registers of some blocks; all registers are written, unset fields with 0."""

    def __init__(self, blocks: tuple[str, ...]) -> None:
        self.blocks = blocks
        self.fields: dict[tuple[str, str], dict[str, int]] = {}
        self.words: dict[tuple[str, str], int] = {}

    def set(self, block: str, register: str, **values: int) -> None:
        fields = registers()[block][register].fields
        wrapped = {name: v % (1 << fields[name].width) if v < 0 else v for name, v in values.items()}
        self.fields.setdefault((block, register), {}).update(wrapped)

    def address(self, block: str, register: str, value: int) -> None:
        self.words[block, register] = value

    def builder(self, name: str) -> TaskBuilder:
        builder = TaskBuilder(name)
        for block in self.blocks:
            if block not in ("CNA", "CORE"):  # the host owns the pointers of these [HW 1.7]
                builder.set(block, "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
            for register in registers()[block]:
                if not register.shadowed or register.name.startswith(_SKIPPED):
                    continue
                key = block, register.name
                value = self.words.get(key)
                if value is None:
                    value = register.encode(**self.fields.get(key, {}))
                builder.set_word(block, register.name, value)
        return builder.enable(*self.blocks)


def _task(p: ProductShape, t: MatmulTile, places: Places, requant: Requant | None) -> TaskBuilder:
    """Return the task of a tile; `requant` needs the whole K in one tile."""
    blocks = ("CNA", "CORE", "DPU") + (("DPU_RDMA",) if requant or t.adds else ())
    program = _Program(blocks)
    _cna(program, p, t, places)
    program.set("CORE", "MISC_CFG", QD_EN=int(requant is not None), PROC_PRECISION=p.kind.code)
    program.set("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=t.rows - 1)
    program.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=t.columns - 1)
    _dpu(program, p, t, places, requant)
    if requant or t.adds:
        _rdma(program, p, t, places, requant)
    name = f"matmul rows {t.row}+{t.rows} columns {t.column}+{t.columns}"
    return program.builder(name if t.depth == p.k else f"{name} of K {t.first}+{t.depth}")


def _cna(program: _Program, p: ProductShape, t: MatmulTile, places: Places) -> None:
    cna = partial(program.set, "CNA")
    column = t.depth * p.kind.bits // 8
    cna("CONV_CON1", IN_PRECISION=p.kind.code, PROC_PRECISION=p.kind.code, GROUP_LINE_OFF=1)
    cna("CONV_CON2", FEATURE_GRAINS=min(STRIPE, t.rows))
    cna("CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    cna("DATA_SIZE0", DATAIN_WIDTH=1, DATAIN_HEIGHT=t.rows)
    real = (t.depth - 1) % 64 if t.depth > 64 else t.depth - 1
    cna("DATA_SIZE1", DATAIN_CHANNEL=t.depth, DATAIN_CHANNEL_REAL=real)
    cna("DATA_SIZE2", DATAOUT_WIDTH=1)
    cna("DATA_SIZE3", DATAOUT_ATOMICS=t.rows)
    cna("WEIGHT_SIZE0", WEIGHT_BYTES=t.columns * column)
    cna("WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=column)
    cna("WEIGHT_SIZE2", WEIGHT_WIDTH=1, WEIGHT_HEIGHT=1, WEIGHT_KERNELS=t.columns)
    cna(
        "CBUF_CON0",
        DATA_BANK=t.data_banks,
        WEIGHT_BANK=t.weight_banks,
        WEIGHT_REUSE=int(t.reuse),
        DATA_REUSE=int(t.data_reuse),
    )
    cna("CBUF_CON1", DATA_ENTRIES=-(-column // ENTRY_BYTES))
    cna("CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    cna("FC_DATA_SIZE0", DMA_WIDTH=1, DMA_HEIGHT=t.rows)
    cna("FC_DATA_SIZE1", DMA_CHANNEL=t.depth)
    cna("DMA_CON0", WEIGHT_BURST_LEN=BURST_16, DATA_BURST_LEN=BURST_16)
    first = t.first * p.kind.bits // ATOM_BITS
    if p.a_native:
        cna("DMA_CON1", LINE_STRIDE=1)
        cna("DMA_CON2", SURF_STRIDE=p.m - 1)
        start = places.a + (first * p.m + t.row) * ATOM_BYTES
    else:
        cna("DMA_CON1", LINE_STRIDE=p.row_atoms)
        cna("DMA_CON2", SURF_STRIDE=0)  # the surface pitch is then the width, which is one atom
        start = places.a + (t.row * p.row_atoms + first) * ATOM_BYTES
    program.address("CNA", "FEATURE_DATA_ADDR", start)
    program.address("CNA", "DCOMP_ADDR0", places.b + t.first * p.n * p.kind.bits // 8 + t.column * column)


def _dpu(program: _Program, p: ProductShape, t: MatmulTile, places: Places, requant: Requant | None) -> None:
    dpu = partial(program.set, "DPU")
    sums = KINDS["float16 x float16 -> float16"] if t.sum_bytes == HALF_BYTES else p.kind.sums
    kind = p.kind if t.last else sums
    assert kind is not None
    surfaces = kind.group // kind.c_step
    dpu("FEATURE_MODE_CFG", BURST_LEN=BURST_16, OUTPUT_MODE=2)
    negative = BS_SHIFT if requant else 0
    dpu(
        "DATA_FORMAT",
        OUT_PRECISION=kind.out,
        IN_PRECISION=kind.code,
        PROC_PRECISION=kind.code,
        BS_MUL_SHIFT_VALUE_NEG=negative,
    )
    first = t.column // kind.c_step
    if not t.last:
        start, surface, notch = places.sums_of(p, t), t.rows, 0
    elif p.c_native:
        start, surface, notch = places.c + ATOM_BYTES * (first * p.m + t.row), p.m, 0
    else:
        start, surface = places.c + ATOM_BYTES * (t.row * p.line_atoms + first), 1
        notch = p.line_atoms - 1 if t.rows > 1 else 0
    program.address("DPU", "DST_BASE_ADDR", start)
    dpu("DST_SURF_STRIDE", DST_SURF_STRIDE=surface)
    dpu("SURFACE_ADD", SURF_ADD=surfaces * surface)
    dpu("DATA_CUBE_HEIGHT", HEIGHT=t.rows - 1)
    dpu("DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=notch, NOTCH_ADDR_1=notch)
    dpu("DATA_CUBE_CHANNEL", CHANNEL=t.columns - 1, ORIG_CHANNEL=t.columns - 1)
    dpu("WDMA_SIZE_0", CHANNEL_WDMA=t.columns - 1)
    dpu("WDMA_SIZE_1", HEIGHT_WDMA=t.rows - 1)
    size = surfaces - 1
    dpu(
        "BS_OW_CFG",
        SIZE_E_0=size,
        SIZE_E_1=size,
        SIZE_E_2=size,
        OD_BYPASS=int(requant is None),
        OW_SRC=int(requant is not None),
    )
    if requant:
        dpu("BS_CFG", BS_ALU_ALGO=2, BS_ALU_SRC=1, BS_RELU_BYPASS=1)
        dpu("BS_MUL_CFG", BS_MUL_SHIFT_VALUE=BS_SHIFT, BS_MUL_SRC=1)
    else:
        dpu("BS_CFG", BS_RELU_BYPASS=1, BS_MUL_BYPASS=1, BS_ALU_BYPASS=1, BS_BYPASS=1)
    dpu("BN_CFG", BN_RELU_BYPASS=1, BN_MUL_BYPASS=1, BN_ALU_BYPASS=1, BN_BYPASS=1)
    if t.adds:
        dpu(
            "EW_CFG",
            EW_DATA_MODE=1,
            EDATA_SIZE=STORAGE[t.sum_bytes],
            EW_ALU_ALGO=2,
            EW_OP_SRC=1,
            EW_RELU_BYPASS=1,
            EW_OP_CVT_BYPASS=int(not kind.is_float),  # sums of fp16 would be wrong with 1 (4.7)
            EW_LUT_BYPASS=1,
        )
    else:
        dpu("EW_CFG", EW_RELU_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_BYPASS=1, EW_BYPASS=1)
    dpu("EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
    dpu(
        "OUT_CVT_SCALE",
        OUT_CVT_SCALE=requant.scale if requant else 1,
        FP32TOFP16_EN=int(kind.is_float and kind.out == 2),
    )
    dpu("OUT_CVT_SHIFT", OUT_CVT_SHIFT=requant.shift if requant else 0)
    dpu("OUT_CVT_OFFSET", OUT_CVT_OFFSET=requant.offset if requant else 0)


def _rdma(program: _Program, p: ProductShape, t: MatmulTile, places: Places, requant: Requant | None) -> None:
    rdma = partial(program.set, "DPU_RDMA")
    rdma("DATA_CUBE_HEIGHT", HEIGHT=t.rows - 1)
    rdma("DATA_CUBE_CHANNEL", CHANNEL=t.columns - 1)
    if requant:
        rdma("BRDMA_CFG", BRDMA_DATA_USE=7)
        program.address("DPU_RDMA", "BS_BASE_ADDR", places.table + t.column * TABLE_BYTES)
    if t.adds:
        rdma("ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=STORAGE[t.sum_bytes])
        rdma("EW_SURF_STRIDE", EW_SURF_STRIDE=t.rows)
        program.address("DPU_RDMA", "EW_BASE_ADDR", places.sums_of(p, t))
    else:
        rdma("ERDMA_CFG", ERDMA_DISABLE=1)
    rdma(
        "FEATURE_MODE_CFG",
        BURST_LEN=BURST_16,
        MRDMA_DISABLE=1,
        IN_PRECISION=p.kind.code,
        PROC_PRECISION=p.kind.code,
    )
    rdma("WEIGHT", E_WEIGHT=1, N_WEIGHT=1, B_WEIGHT=1, M_WEIGHT=1)


@dataclass(frozen=True)
class Matmul(ProductShape):
    """A product of fixed shape and layouts; `builders` returns its tasks for given addresses.

    Raises
    ------
    MatmulError
        If a size is not a positive multiple of what the type needs, or does not fit CBUF.
    """

    tiles: tuple[MatmulTile, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tiles", plan_tiles(self))

    def with_tiles(self, tiles: Iterable[MatmulTile]) -> Matmul:
        """Return the same product divided into these tasks, for plans of other software."""
        other = replace(self)
        object.__setattr__(other, "tiles", tuple(tiles))
        return other

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First element and number of elements of each part of K, in the order of B's blocks."""
        return sorted({(tile.first, tile.depth) for tile in self.tiles})

    @property
    def sums_bytes(self) -> int:
        """Bytes of memory for the sums of the parts of K, in addition to the matrices; 0 if K is whole."""
        return self.m * self.n * SUM_BYTES if len(self.parts) > 1 else 0

    def pack_b(self, matrix: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
        """Convert B (K x N; int4 as int8 numbers) to what the tasks read: a native block per part of K."""
        blocks = [pack_b(matrix[first : first + depth], self.kind) for first, depth in self.parts]
        return np.concatenate(blocks)

    def builders(
        self, a: int, b: int, c: int, requant: Requant | None = None, table: int = 0, sums: int = 0
    ) -> list[TaskBuilder]:
        """Return the unlinked tasks for matrices at these byte addresses (multiples of 16).

        `table` is the address of `requant.table()`, `sums` the address of `sums_bytes` free bytes.
        """
        places = Places(a, b, c, table, sums)
        return [_task(self, tile, places, requant) for tile in self.tiles]
