"""What a task's registers amount to: sizes, groups, tiles, and the memory that each client touches.

docs/hardware.md sections 0 to 6; every shape is worked out once for a start (`Check.cache`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from rtl.regs import registers
from rtl.regs.options import chosen_options
from sw.regcmd.lint.rule import Check
from sw.regcmd.machine import View

T = TypeVar("T")

ATOM = 16
BANKS, BANK_ENTRIES, ENTRY_ATOMS = 12, 512, 4
ENTRY_BYTES = ENTRY_ATOMS * ATOM
STRIPE = 16
PACKET = 8
"""Atoms of a packet (4.11)."""
SURFACES_NAMED = 8
"""The most surfaces of a kernel group that SIZE_E can name (4.10)."""
DEPTHWISE = 3
FLOAT_CODES = (2, 3, 5)
"""DPU codes of the float types (0.4)."""
ELEMENT_BITS = {0: 8, 1: 16, 2: 16, 3: 16, 4: 32, 5: 32, 6: 4}
"""Bits of an element by DPU code (0)."""
PLAIN_ONLY = (6, 7)
"""CNA codes without depthwise and first-layer modes: int4, tf32 (1.5, 3.1)."""
SPREADS = {0: 1, 1: 2, 3: 4, 7: 8}
RESIDUAL = 5
"""COMB_USE that splits the EW operand between both readers (5.5)."""
SIXTEEN_BITS = (1, 2, 3)
POOL_BITS = {0: 8, 1: 16, 2: 16}


@dataclass(frozen=True)
class ConvType:
    """A line of the table in docs/hardware.md 0: bits, kernels and channels of a group."""

    name: str
    bits: int
    kernels: int
    channels: int
    is_float: bool

    @property
    def per_atom(self) -> int:
        return 128 // self.bits


CONV_TYPES = {
    0: ConvType("int8", 8, 32, 32, False),
    1: ConvType("int16", 16, 16, 32, False),
    2: ConvType("fp16", 16, 16, 32, True),
    3: ConvType("bf16", 16, 16, 32, True),
    6: ConvType("int4", 4, 64, 32, False),
    7: ConvType("tf32", 32, 16, 16, True),
}


def _short(atoms: int) -> int:
    """A distance in atoms modulo 2^28, that is 2^32 bytes, as the nearest one."""
    half = 1 << 27
    return (atoms + half) % (2 * half) - half


def ceil(value: int, step: int) -> int:
    """Steps that hold a value."""
    return -(-value // step)


class Conv:
    """CNA of a start."""

    def __init__(self, cna: View) -> None:
        self.view = cna
        code = cna("CONV_CON1", "IN_PRECISION")
        self.type = CONV_TYPES.get(code, CONV_TYPES[0])
        self.depthwise = cna("CONV_CON1", "CONV_MODE") == DEPTHWISE and code not in PLAIN_ONLY
        first = cna("CONV_CON1", "ARGB_IN")
        self.argb = first - 7 if 8 <= first <= 11 and code not in PLAIN_ONLY else 0
        self.width, self.height = cna("DATA_SIZE0", "DATAIN_WIDTH"), cna("DATA_SIZE0", "DATAIN_HEIGHT")
        self.channels = cna("DATA_SIZE1", "DATAIN_CHANNEL")
        self.kernels = cna("WEIGHT_SIZE2", "WEIGHT_KERNELS")
        self.kernel = cna("WEIGHT_SIZE2", "WEIGHT_HEIGHT"), cna("WEIGHT_SIZE2", "WEIGHT_WIDTH")
        self.out_width = cna("DATA_SIZE2", "DATAOUT_WIDTH")
        self.pixels = cna("DATA_SIZE3", "DATAOUT_ATOMICS")
        con3 = "CONV_CON3"
        self.stride = cna(con3, "CONV_Y_STRIDE") or 1, cna(con3, "CONV_X_STRIDE") or 1
        self.dilation = cna(con3, "ATROUS_Y_DILATION") + 1, cna(con3, "ATROUS_X_DILATION") + 1
        self.pads = cna("PAD_CON0", "PAD_TOP"), cna("PAD_CON0", "PAD_LEFT")
        deconv = cna("CONV_CON1", "DECONV")
        fields = ("DECONV_Y_STRIDE", "DECONV_X_STRIDE")
        self.spread = tuple(SPREADS.get(cna(con3, name), 1) if deconv else 1 for name in fields)

    @property
    def surfaces(self) -> int:
        """Atoms of a pixel."""
        return ceil(self.channels, self.type.per_atom)

    @property
    def groups(self) -> int:
        """Kernel groups (3.1)."""
        if self.depthwise:
            return ceil(self.channels, 64)
        return ceil(self.kernels, self.type.kernels)

    @cached_property
    def group_bytes(self) -> list[int]:
        """Weight bytes of each kernel group (3.3)."""
        taps = self.kernel[0] * self.kernel[1]
        if self.depthwise:
            whole = 64 // self.type.per_atom  # atoms that a tap of a whole group takes
            three = self.type.bits == 8 and "d1_three_atoms_int8" in chosen_options()
            stored = self.surfaces + (self.surfaces % 4 == 3 and not three)
            return [min(whole, stored - whole * group) * ATOM * taps for group in range(self.groups)]
        full, left, atoms = self.type.channels // self.type.per_atom, self.surfaces, 0
        while left > 0:
            part = min(left, full)
            atoms += 4 if part == 3 else part
            left -= full
        most = self.type.kernels
        sizes = (min(most, self.kernels - most * group) for group in range(self.groups))
        return [count * atoms * ATOM * taps for count in sizes]

    @property
    def row_entries(self) -> int:
        """CBUF entries that a row of pixels takes (2.2)."""
        full, rest = divmod(self.surfaces, ENTRY_ATOMS)
        if rest == 3:
            full, rest = full + 1, 0
        return full * self.width + (ceil(self.width, ENTRY_ATOMS // rest) if rest else 0)

    @property
    def entries(self) -> int:
        """CBUF entries of all features (2.2, 2.3)."""
        if self.argb:
            pixel = 4 * self.type.bits // 8 * (4 if self.argb == 3 else self.argb)
            return ceil(self.height * self.view("DMA_CON1", "LINE_STRIDE") * pixel, ENTRY_BYTES)
        return max(self.height - 1, 0) * self.view("CBUF_CON1", "DATA_ENTRIES") + self.row_entries

    @property
    def pitches(self) -> tuple[int, int]:
        """Line and surface pitch in atoms (1.1, 1.2), the short way round: addresses count modulo 2^32."""
        stride, jump = self.view("DMA_CON1", "LINE_STRIDE"), self.view.signed("DMA_CON2", "SURF_STRIDE")
        if not self.view("CONV_CON1", "GROUP_LINE_OFF"):
            return stride // 4, _short(stride + jump)
        return _short(stride), self.width if jump == 0 else _short(stride + jump)


class Cube:
    """Cube and group of the DPU or of DPU_RDMA (4.1, 5.1)."""

    def __init__(self, view: View, types: str) -> None:
        self.view = view
        self.width = view("DATA_CUBE_WIDTH", "WIDTH") + 1
        self.height = view("DATA_CUBE_HEIGHT", "HEIGHT") + 1
        self.channels = view("DATA_CUBE_CHANNEL", "CHANNEL") + 1
        self.depthwise = view("FEATURE_MODE_CFG", "CONV_MODE") == DEPTHWISE
        self.type = view(types, "IN_PRECISION")
        self.group = 64 if self.depthwise else {6: 64, 0: 32}.get(self.type, 16)
        self.flying = bool(view("FEATURE_MODE_CFG", "FLYING_MODE"))

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def groups(self) -> int:
        return ceil(self.channels, self.group)


class DpuCube(Cube):
    """The DPU of a start, with its writer (4.10)."""

    def __init__(self, dpu: View) -> None:
        super().__init__(dpu, "DATA_FORMAT")
        self.copies = 0
        """Copies of a row that unpooling makes, 0 without it (5.7)."""
        self.bits = ELEMENT_BITS.get(dpu("DATA_FORMAT", "OUT_PRECISION"), 8)
        self.output = dpu("FEATURE_MODE_CFG", "OUTPUT_MODE")
        self.floats = dpu("DATA_FORMAT", "PROC_PRECISION") in FLOAT_CODES
        on = not dpu("EW_CFG", "EW_BYPASS")
        self.lut = on and not dpu("EW_CFG", "EW_LUT_BYPASS")
        self.operation = on and not dpu("EW_CFG", "EW_OP_BYPASS")
        self.needs_element = self.operation and bool(dpu("EW_CFG", "EW_OP_SRC"))

    @property
    def packets(self) -> bool:
        """Whether TP_EN or TP_ORG_EN has an effect (4.11)."""
        dpu, wide = self.view, self.view("WDMA_SIZE_0", "TP_PRECISION")
        asked = dpu("BS_OW_CFG", "TP_ORG_EN") or (dpu("FEATURE_MODE_CFG", "TP_EN") and self.flying and wide)
        out = 1 if self.flying else 4
        known = self.type == 1 and not self.floats and dpu("DATA_FORMAT", "OUT_PRECISION") == out
        return bool(asked) and known and not self.depthwise and not self.needs_element

    @property
    def packet_block(self) -> int:
        """Atoms that make packets together: 16 when bytes are transposed."""
        turned = self.view("BS_OW_CFG", "TP_ORG_EN")
        return 16 if turned and not self.view("WDMA_SIZE_0", "TP_PRECISION") else PACKET

    @property
    def packets_told(self) -> int:
        """Packets that the sizes of WDMA name."""
        rows = (self.view("WDMA_SIZE_0", "SIZE_C_WDMA") + 1) * (self.view("WDMA_SIZE_1", "HEIGHT_WDMA") + 1)
        return rows * (self.view("WDMA_SIZE_1", "WIDTH_WDMA") + 1)

    @property
    def moves(self) -> bool:
        """Whether an unpooled task leaves its atoms as they are (5.7)."""
        stages = all(self.view(f"{name}_CFG", f"{name}_BYPASS") for name in ("BS", "BN", "EW"))
        return bool(self.copies) and stages and self.type == 1 and self.bits < 32

    @property
    def feeds_ppu(self) -> bool:
        """Whether the PPU gets the result."""
        return bool(self.output & 1) and not self.packets and not self.copies

    @property
    def surfaces(self) -> int:
        """Surfaces of the cube as it is written."""
        return ceil(self.channels, 128 // self.bits)

    @property
    def fixed(self) -> bool:
        """Whether the writer does not look at SIZE_E (4.10)."""
        bypassed = bool(self.view("BS_OW_CFG", "OD_BYPASS")) and not self.flying
        unnamed = self.group_surfaces > SURFACES_NAMED
        return bypassed and (unnamed or bool(self.view("DATA_FORMAT", "MC_SURF_OUT")))

    @property
    def grouped(self) -> bool:
        """Whether the writer waits for the surfaces of each kernel group that SIZE_E names (4.10)."""
        return bool(self.output & 2) and not self.flying and not self.packets and not self.fixed

    @property
    def series(self) -> int:
        """Surfaces at DST_SURF_STRIDE before SURF_ADD leads on."""
        return self.group_surfaces if self.fixed else self.view("BS_OW_CFG", "SIZE_E_1") + 1

    @property
    def group_surfaces(self) -> int:
        """Surfaces that the type of the output gives a group."""
        group = 32 if self.depthwise and self.type in SIXTEEN_BITS else self.group
        return max(1, group * self.bits // (8 * ATOM))

    @property
    def converter(self) -> bool:
        """Whether CPEND is live, which needs SIZE_E to fit."""
        return not self.flying and not self.view("BS_OW_CFG", "OD_BYPASS") and not self.packets

    @property
    def written_surfaces(self) -> list[int]:
        """Atoms from DST_BASE_ADDR to each output surface."""
        dpu, per = self.view, self.series
        add, stride = dpu.signed("SURFACE_ADD", "SURF_ADD"), dpu.signed("DST_SURF_STRIDE")
        told = ceil(dpu("WDMA_SIZE_0", "CHANNEL_WDMA") + 1, 128 // self.bits)
        count = min(self.surfaces, told) * max(self.copies, 1)
        return [s // per * add + s % per * stride for s in range(count)]

    @property
    def line(self) -> int:
        """Atoms from an output line to the next."""
        return self.width + self.view("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")


class RdmaCube(Cube):
    """DPU_RDMA of a start."""

    def __init__(self, rdma: View) -> None:
        super().__init__(rdma, "FEATURE_MODE_CFG")
        mode = "FEATURE_MODE_CFG"
        self.main = not rdma(mode, "MRDMA_DISABLE")
        self.element = not rdma("ERDMA_CFG", "ERDMA_DISABLE")
        self.shared = rdma(mode, "COMB_USE") == RESIDUAL and not self.flying
        self.floats = rdma(mode, "PROC_PRECISION") in FLOAT_CODES
        self.element_bits = (4, 8, 16, 32)[rdma("ERDMA_CFG", "ERDMA_DATA_SIZE")]
        self.main_bits = ELEMENT_BITS.get(self.type, 8)
        self.use = {client: self._use(client) for client in ("BRDMA", "NRDMA")}
        source, pad = "SRC_DMA_CFG", "PAD_CFG"
        kernel = rdma(source, "KERNEL_HEIGHT"), rdma(source, "KERNEL_WIDTH")
        known = (
            rdma(source, "UNPOOLING_EN")
            and not rdma(source, "POOLING_METHOD")
            and kernel == (rdma(source, "KERNEL_STRIDE_HEIGHT"), rdma(source, "KERNEL_STRIDE_WIDTH"))
            and not any(rdma(pad, name) for name in ("PAD_VALUE", "PAD_TOP", "PAD_LEFT"))
            and self.flying
            and self.main
            and not self.element
            and not self.depthwise
            and self.type == 1
        )
        self.unpooled = (kernel[0] + 1, kernel[1] + 1) if known else None
        """How often rows and columns are repeated (5.7)."""

    def _use(self, client: str) -> int:
        rdma = self.view
        return (
            0 if rdma(f"{client}_CFG", f"{client}_DISABLE") else rdma(f"{client}_CFG", f"{client}_DATA_USE")
        )

    @property
    def anything(self) -> bool:
        """Whether any reader works."""
        return self.main or self.element or any(use & 7 for use in self.use.values())


class Pool:
    """The PPU of a start (6)."""

    def __init__(self, ppu: View) -> None:
        self.view = ppu
        self.width, self.height = ppu("DATA_CUBE_IN_WIDTH") + 1, ppu("DATA_CUBE_IN_HEIGHT") + 1
        self.channels = ppu("DATA_CUBE_IN_CHANNEL") + 1
        self.out_width, self.out_height = ppu("DATA_CUBE_OUT_WIDTH") + 1, ppu("DATA_CUBE_OUT_HEIGHT") + 1
        kernel = "POOLING_KERNEL_CFG"
        self.kernel = ppu(kernel, "KERNEL_HEIGHT") + 1, ppu(kernel, "KERNEL_WIDTH") + 1
        self.stride = ppu(kernel, "KERNEL_STRIDE_HEIGHT") + 1, ppu(kernel, "KERNEL_STRIDE_WIDTH") + 1
        self.pads = ppu("POOLING_PADDING_CFG", "PAD_TOP"), ppu("POOLING_PADDING_CFG", "PAD_LEFT")
        self.type = ppu("DATA_FORMAT", "PROC_PRECISION")
        self.bits = POOL_BITS.get(self.type, 8)
        self.fed = not ppu("OPERATION_MODE_CFG", "FLYING_MODE")
        self.indexed = bool(ppu("OPERATION_MODE_CFG", "INDEX_EN"))

    @property
    def surfaces(self) -> int:
        return ceil(self.channels * self.bits, 8 * ATOM)


def cut(block: str, register: str, name: str, value: int) -> int:
    """What is left of a value in a field that is too narrow for it."""
    return value % (1 << registers()[block][register].fields[name].width)


def collision(places: list[int], line: int, rows: int, columns: int) -> tuple[int, int] | None:
    """Two surfaces at different places that share an atom, the first such pair."""
    for second in range(1, len(places)):
        for first in range(max(0, second - 64), second):
            apart = abs(places[second] - places[first])
            if apart >= (rows - 1) * line + columns:
                continue
            near = round(apart / line)
            if any(0 <= k < rows and abs(apart - k * line) < columns for k in (near - 1, near, near + 1)):
                return first, second
    return None


def _shape(check: Check, block: str, make: Callable[[View], T]) -> T | None:
    assert check.start is not None
    view = check.start.view(block)
    if view is None:
        return None
    if block not in check.cache:
        check.cache[block] = make(view)
    found: T = check.cache[block]
    return found


def conv_of(check: Check) -> Conv | None:
    """CNA of the start, None when it does not start."""
    return _shape(check, "CNA", Conv)


def dpu_of(check: Check) -> DpuCube | None:
    """DPU of the start."""
    dpu, rdma = _shape(check, "DPU", DpuCube), rdma_of(check)
    if dpu is not None and dpu.flying and rdma is not None and rdma.unpooled:
        dpu.copies = rdma.unpooled[0]
    return dpu


def started_dpu(check: Check) -> DpuCube:
    """The DPU's cube in a rule whose start includes the DPU."""
    dpu = dpu_of(check)
    assert dpu is not None
    return dpu


def rdma_of(check: Check) -> RdmaCube | None:
    """DPU_RDMA of the start."""
    return _shape(check, "DPU_RDMA", RdmaCube)


def pool_of(check: Check) -> Pool | None:
    """PPU of the start."""
    return _shape(check, "PPU", Pool)
