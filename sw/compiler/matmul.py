"""Matrix products C (M x N) = A (M x K) * B (K x N) as tasks: a 1x1 convolution over M pixels.

A row of A is a pixel, a column of B a kernel.  A is read and C written either row by row
(GROUP_LINE_OFF with a surface pitch of one pixel, docs/hardware.md 1.2; on the way out a line notch)
or surface by surface, the native layout [K/C2, M, C2]; B is the packed weights of H 3.6, which is
the native layout [N/G, K/32, G, 32].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rtl.regs import registers
from sw.compiler.requant import BS_SHIFT
from sw.compiler.tiling import BANK_BYTES, BANK_ENTRIES, BANKS, MAX_SIZE, STRIPE
from sw.layouts import ATOM_BYTES, pack_bs_table
from sw.regcmd import TaskBuilder

ATOM_BITS = 8 * ATOM_BYTES
BURST_16 = 15
MAX_KERNELS = 8192
"""Channels of one task: the DPU's field has 13 bits."""
MAX_CHANNELS = 65504
"""K: DATAIN_CHANNEL has 16 bits."""
MAX_NOTCH = 8191
TABLE_BYTES = 8
"""Bytes of the operand table a column."""
CHANNEL_STEP = 32
"""K must be a multiple of this: a whole weight tile in every type."""

_SKIPPED = ("LUT_ACCESS", "CLK_GATE", "MAC_GATING", "S_POINTER")


class MatmulError(ValueError):
    """A product that cannot be computed; the message says why."""


@dataclass(frozen=True)
class MatmulKind:
    """Types of a product.

    `code` is the precision code of A and B (docs/hardware.md 0), `out` that of C; `group` the
    columns computed in parallel.
    """

    name: str
    code: int
    bits: int
    group: int
    out: int
    out_bits: int

    @property
    def is_float(self) -> bool:
        """Whether A and B are fp16."""
        return self.code == 2

    @property
    def a_step(self) -> int:
        """Elements of A in an atom, the last dimension of its native layout."""
        return ATOM_BITS // self.bits

    @property
    def c_step(self) -> int:
        """Elements of C in an atom."""
        return ATOM_BITS // self.out_bits


INT4, INT8, FP16 = (6, 4, 64), (0, 8, 32), (2, 16, 16)
KINDS = {
    kind.name: kind
    for kind in (
        MatmulKind("float16 x float16 -> float32", *FP16, 5, 32),
        MatmulKind("float16 x float16 -> float16", *FP16, 2, 16),
        MatmulKind("int8 x int8 -> int32", *INT8, 4, 32),
        MatmulKind("int8 x int8 -> int8", *INT8, 0, 8),
        MatmulKind("int8 x int8 -> float32", *INT8, 5, 32),
        MatmulKind("int4 x int4 -> int16", *INT4, 1, 16),
    )
}
"""Products of the RK3588, by name."""


@dataclass(frozen=True)
class Requant:
    """What is done with the sums of int8 products, in integers.

    `q = sat(rne(rne((sum + bias - zero * S) * multiplier, 14) * scale, shift) + offset)` with S the
    sum of the row of A; `bias`, `zeros`, `multipliers` have one element a column.
    """

    bias: npt.NDArray[np.int64]
    zeros: npt.NDArray[np.int64]
    multipliers: npt.NDArray[np.int64]
    scale: int = 1
    shift: int = 0
    offset: int = 0

    def table(self) -> npt.NDArray[np.uint8]:
        """The operand table that BRDMA reads.

        Raises
        ------
        ValueError
            for a bias beyond 32 bits.
        """
        return pack_bs_table(self.bias, -self.zeros, self.multipliers)


@dataclass(frozen=True)
class MatmulTile:
    """One task: rows of A, columns of B and the split of CBUF."""

    row: int
    rows: int
    column: int
    columns: int
    data_banks: int
    weight_banks: int
    reuse: bool


@dataclass
class Matmul:
    """A product of fixed shape and layouts; `builders` gives its tasks for given addresses.

    Raises
    ------
    MatmulError
        for sizes that are not positive multiples of what the type needs, or K past the limit.
    """

    kind: MatmulKind
    m: int
    k: int
    n: int
    a_native: bool = False
    c_native: bool = False
    tiles: list[MatmulTile] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.m <= 0 or self.k <= 0 or self.n <= 0:
            raise MatmulError(f"sizes must be positive, not M {self.m}, K {self.k}, N {self.n}")
        if self.k % CHANNEL_STEP:
            raise MatmulError(f"K must be a multiple of {CHANNEL_STEP}, not {self.k}")
        if self.n % self.kind.group:
            raise MatmulError(f"N must be a multiple of {self.kind.group} for {self.kind.name}, not {self.n}")
        if self.k > MAX_CHANNELS:
            raise MatmulError(f"K may be up to {MAX_CHANNELS}, not {self.k}")
        self.tiles = _tiles(self)

    @property
    def a_bytes(self) -> int:
        """Bytes of A."""
        return self.m * self.k * self.kind.bits // 8

    @property
    def b_bytes(self) -> int:
        """Bytes of B."""
        return self.k * self.n * self.kind.bits // 8

    @property
    def c_bytes(self) -> int:
        """Bytes of C."""
        return self.m * self.n * self.kind.out_bits // 8

    @property
    def row_atoms(self) -> int:
        """Atoms of a row of A."""
        return self.k * self.kind.bits // ATOM_BITS

    @property
    def row_entries(self) -> int:
        """CBUF entries of a row of A: a slab of four atoms each (docs/hardware.md 2.2)."""
        return -(-self.row_atoms // 4)

    @property
    def line_atoms(self) -> int:
        """Atoms of a row of C."""
        return self.n * self.kind.out_bits // ATOM_BITS

    def builders(
        self, a: int, b: int, c: int, requant: Requant | None = None, table: int = 0
    ) -> list[TaskBuilder]:
        """The tasks, unlinked, for matrices at these byte addresses (multiples of 16).

        `table` is where `requant.table()` lies.
        """
        return [_task(self, tile, a, b, c, requant, table) for tile in self.tiles]


def _tiles(p: Matmul) -> list[MatmulTile]:
    """Among the splits of the banks take the one that moves the fewest bytes (fewer tasks break ties)."""
    best: tuple[int, int, list[MatmulTile]] | None = None
    column = p.k * p.kind.bits // 8
    for data_banks in range(1, BANKS):
        ring = (BANKS - data_banks) * BANK_BYTES
        rows = min(p.m, MAX_SIZE, data_banks * BANK_ENTRIES // p.row_entries)
        if p.kind.group * column > ring and rows > STRIPE:
            rows = STRIPE  # a group larger than its banks is streamed, with one stripe only
        if not p.c_native and p.line_atoms - 1 > MAX_NOTCH:
            rows = min(rows, 1)  # a pitch of C beyond its field
        if rows == 0:
            continue
        resident = max(ring // (p.kind.group * column), 0) * p.kind.group
        for columns in {min(p.n, MAX_KERNELS), min(p.n, resident, MAX_KERNELS)} - {0}:
            tiles = list(_cut(p, rows, columns, data_banks, columns <= resident))
            moved = sum(
                t.rows * p.row_atoms * ATOM_BYTES + (0 if t.reuse else t.columns * column) for t in tiles
            )
            if best is None or (moved, len(tiles)) < best[:2]:
                best = moved, len(tiles), tiles
    if best is None:
        raise MatmulError(f"a row of {p.k} elements does not fit CBUF")
    return best[2]


def _cut(p: Matmul, rows: int, columns: int, data_banks: int, resident: bool) -> Iterator[MatmulTile]:
    for column in range(0, p.n, columns):
        for row in range(0, p.m, rows):
            yield MatmulTile(
                row,
                min(rows, p.m - row),
                column,
                min(columns, p.n - column),
                data_banks,
                BANKS - data_banks,
                resident and row > 0,
            )


class _Program:
    """Field values of the registers of some blocks; all registers are written, unset fields as 0."""

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
            if block not in ("CNA", "CORE"):  # pointers of those belong to the host (H 1.7)
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


def _task(
    p: Matmul, t: MatmulTile, a: int, b: int, c: int, requant: Requant | None, table: int
) -> TaskBuilder:
    blocks = ("CNA", "CORE", "DPU") + (("DPU_RDMA",) if requant else ())
    program = _Program(blocks)
    _cna(program, p, t, a, b)
    program.set("CORE", "MISC_CFG", QD_EN=int(requant is not None), PROC_PRECISION=p.kind.code)
    program.set("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=t.rows - 1)
    program.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=t.columns - 1)
    _dpu(program, p, t, c, requant)
    if requant:
        _rdma(program, p, t, table + t.column * TABLE_BYTES)
    return program.builder(f"matmul rows {t.row}+{t.rows} columns {t.column}+{t.columns}")


def _cna(program: _Program, p: Matmul, t: MatmulTile, a: int, b: int) -> None:
    def cna(register: str, **values: int) -> None:
        program.set("CNA", register, **values)

    column = p.k * p.kind.bits // 8
    cna("CONV_CON1", IN_PRECISION=p.kind.code, PROC_PRECISION=p.kind.code, GROUP_LINE_OFF=1)
    cna("CONV_CON2", FEATURE_GRAINS=min(STRIPE, t.rows))
    cna("CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    cna("DATA_SIZE0", DATAIN_WIDTH=1, DATAIN_HEIGHT=t.rows)
    real = (p.k - 1) % 64 if p.k > 64 else p.k - 1
    cna("DATA_SIZE1", DATAIN_CHANNEL=p.k, DATAIN_CHANNEL_REAL=real)
    cna("DATA_SIZE2", DATAOUT_WIDTH=1)
    cna("DATA_SIZE3", DATAOUT_ATOMICS=t.rows)
    cna("WEIGHT_SIZE0", WEIGHT_BYTES=t.columns * column)
    cna("WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=column)
    cna("WEIGHT_SIZE2", WEIGHT_WIDTH=1, WEIGHT_HEIGHT=1, WEIGHT_KERNELS=t.columns)
    cna("CBUF_CON0", DATA_BANK=t.data_banks, WEIGHT_BANK=t.weight_banks, WEIGHT_REUSE=int(t.reuse))
    cna("CBUF_CON1", DATA_ENTRIES=p.row_entries)
    cna("CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    cna("FC_DATA_SIZE0", DMA_WIDTH=1, DMA_HEIGHT=t.rows)
    cna("FC_DATA_SIZE1", DMA_CHANNEL=p.k)
    cna("DMA_CON0", WEIGHT_BURST_LEN=BURST_16, DATA_BURST_LEN=BURST_16)
    if p.a_native:
        cna("DMA_CON1", LINE_STRIDE=1)
        cna("DMA_CON2", SURF_STRIDE=p.m - 1)
        start = a + t.row * ATOM_BYTES
    else:
        cna("DMA_CON1", LINE_STRIDE=p.row_atoms)
        cna("DMA_CON2", SURF_STRIDE=0)  # the surface pitch is then the width, one atom
        start = a + t.row * p.row_atoms * ATOM_BYTES
    program.address("CNA", "FEATURE_DATA_ADDR", start)
    program.address("CNA", "DCOMP_ADDR0", b + t.column * column)


def _dpu(program: _Program, p: Matmul, t: MatmulTile, c: int, requant: Requant | None) -> None:
    def dpu(register: str, **values: int) -> None:
        program.set("DPU", register, **values)

    kind = p.kind
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
    if p.c_native:
        start, surface, notch = c + ATOM_BYTES * (first * p.m + t.row), p.m, 0
    else:
        start, surface = c + ATOM_BYTES * (t.row * p.line_atoms + first), 1
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
    dpu("EW_CFG", EW_RELU_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_BYPASS=1, EW_BYPASS=1)
    dpu("EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
    dpu(
        "OUT_CVT_SCALE",
        OUT_CVT_SCALE=requant.scale if requant else 1,
        FP32TOFP16_EN=int(kind.is_float and kind.out == 2),
    )
    dpu("OUT_CVT_SHIFT", OUT_CVT_SHIFT=requant.shift if requant else 0)
    dpu("OUT_CVT_OFFSET", OUT_CVT_OFFSET=requant.offset if requant else 0)


def _rdma(program: _Program, p: Matmul, t: MatmulTile, table: int) -> None:
    def rdma(register: str, **values: int) -> None:
        program.set("DPU_RDMA", register, **values)

    rdma("DATA_CUBE_HEIGHT", HEIGHT=t.rows - 1)
    rdma("DATA_CUBE_CHANNEL", CHANNEL=t.columns - 1)
    rdma("BRDMA_CFG", BRDMA_DATA_USE=7)
    rdma("ERDMA_CFG", ERDMA_DISABLE=1)
    rdma(
        "FEATURE_MODE_CFG",
        BURST_LEN=BURST_16,
        MRDMA_DISABLE=1,
        IN_PRECISION=p.kind.code,
        PROC_PRECISION=p.kind.code,
    )
    rdma("WEIGHT", E_WEIGHT=1, N_WEIGHT=1, B_WEIGHT=1, M_WEIGHT=1)
    program.address("DPU_RDMA", "BS_BASE_ADDR", table)


def pack_b(matrix: npt.NDArray[np.generic], kind: MatmulKind) -> npt.NDArray[np.uint8]:
    """B (K x N; int4 as int8 numbers) in the native layout [N/G, K/32, G, 32], zero padded.

    int4 has the even index of K in the low nibble.
    """
    k, n = matrix.shape
    rows, columns = -(-k // CHANNEL_STEP), -(-n // kind.group)
    full = np.zeros((rows * CHANNEL_STEP, columns * kind.group), dtype=matrix.dtype)
    full[:k, :n] = matrix
    tiles = full.reshape(rows, CHANNEL_STEP, columns, kind.group).transpose(2, 0, 3, 1)
    return pack_elements(np.ascontiguousarray(tiles), kind.bits)


def unpack_b(memory: npt.NDArray[np.uint8], k: int, n: int, kind: MatmulKind) -> npt.NDArray[np.generic]:
    """B (K x N) out of the native layout; the inverse of `pack_b`."""
    rows, columns = -(-k // CHANNEL_STEP), -(-n // kind.group)
    values = unpack_elements(memory, rows * columns * CHANNEL_STEP * kind.group, kind)
    tiles = values.reshape(columns, rows, kind.group, CHANNEL_STEP).transpose(1, 3, 0, 2)
    return np.ascontiguousarray(tiles.reshape(rows * CHANNEL_STEP, -1)[:k, :n])


def pack_elements(values: npt.NDArray[np.generic], bits: int) -> npt.NDArray[np.uint8]:
    """Bytes of an array in C order; 4 bits: two elements a byte, the even one in the low nibble."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if bits != 4:
        return flat.view(np.uint8)
    nibbles = flat.astype(np.int8).view(np.uint8) % 16
    return (nibbles[0::2] + 16 * nibbles[1::2]).astype(np.uint8)


def unpack_elements(memory: npt.NDArray[np.uint8], count: int, kind: MatmulKind) -> npt.NDArray[np.generic]:
    """`count` elements of A or B; the inverse of `pack_elements` (int4 as int8 numbers)."""
    data = np.ascontiguousarray(memory[: count * kind.bits // 8])
    if kind.bits != 4:
        return data.view(np.float16 if kind.is_float else np.int8)
    nibbles = np.stack([data % 16, data // 16], axis=1).reshape(-1).astype(np.int8)
    return np.where(nibbles > 7, nibbles - 16, nibbles).astype(np.int8)
