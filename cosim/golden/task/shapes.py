"""Sizes, groups, tiles and addresses that follow from the registers of a task, without any data.

[HW 3] to [HW 9].  Everything here follows from register values alone, so that the golden
model, its rules (`rkcosim.golden.task.rules`) and `regcmd lint` share it.
"""

from __future__ import annotations

from functools import cached_property

from rkcosim.golden.task.registers import View
from rkcosim.spec.regs import registers
from rkcosim.spec.types import (
    ALTERNATE,
    ATOM,
    DEPTHWISE,
    DEPTHWISE_GROUP,
    ENTRY_ATOMS,
    ERDMA_BITS,
    FLOAT_CODES,
    FP16,
    INT8,
    INT16,
    INT32,
    LANES,
    MAXIMUM,
    PACKET,
    PLAIN_ONLY,
    POOL_BITS,
    RESIDUAL,
    SIXTEEN_BITS,
    SPREADS,
    STRIPE,
    SURFACES_NAMED,
    bits_of,
    conv_type,
    dpu_group,
)

BLOCK_ATOMS = 4
"""Atoms of one tap of a whole depthwise block: 64 channels of int8, 32 of a 16-bit type."""


MUL_ONLY = 0b100
"""DATA_USE of BRDMA and NRDMA with multipliers only."""


def _short(atoms: int) -> int:
    """Reduce a distance in atoms modulo 2^28 (2^32 bytes) to the value nearest to 0."""
    half = 1 << 27
    return (atoms + half) % (2 * half) - half


def ceil(value: int, step: int) -> int:
    """Number of steps of size `step` that hold a value."""
    return -(-value // step)


def cut(block: str, register: str, name: str, value: int) -> int:
    """The part of a value that remains in a field that is too narrow for it."""
    return value % (1 << registers()[block][register].fields[name].width)


class ConvShape:
    """Sizes of a convolution task.

    Parameters
    ----------
    cna
        Registers of CNA.
    core
        Registers of CORE, whose type and mode determine how the results are grouped; None: those of CNA.
    options
        Names of non-default interpretations of the hardware (spec/regs/options.py).
    """

    def __init__(self, cna: View, core: View | None = None, options: frozenset[str] = frozenset()) -> None:
        con1, con3 = "CONV_CON1", "CONV_CON3"
        self.view = cna
        code = cna(con1, "IN_PRECISION")
        self.type = conv_type(code)
        """Type of the elements according to CNA and the array."""
        self.depthwise = cna(con1, "CONV_MODE") == DEPTHWISE and code not in PLAIN_ONLY
        first = cna(con1, "ARGB_IN")
        self.argb = first - 7 if 8 <= first <= 11 and code not in PLAIN_ONLY else 0
        """Channels per pixel of first-layer input, 0 otherwise (1.5)."""
        self.width, self.height = cna("DATA_SIZE0", "DATAIN_WIDTH"), cna("DATA_SIZE0", "DATAIN_HEIGHT")
        self.channels = cna("DATA_SIZE1", "DATAIN_CHANNEL")
        self.kernels = cna("WEIGHT_SIZE2", "WEIGHT_KERNELS")
        self.kernel = cna("WEIGHT_SIZE2", "WEIGHT_HEIGHT"), cna("WEIGHT_SIZE2", "WEIGHT_WIDTH")
        """Rows and columns; the other pairs are (vertical, horizontal) as well."""
        self.out_width = cna("DATA_SIZE2", "DATAOUT_WIDTH")
        self.pixels = cna("DATA_SIZE3", "DATAOUT_ATOMICS")
        self.stride = cna(con3, "CONV_Y_STRIDE"), cna(con3, "CONV_X_STRIDE")
        self.dilation = cna(con3, "ATROUS_Y_DILATION") + 1, cna(con3, "ATROUS_X_DILATION") + 1
        self.pads = cna("PAD_CON0", "PAD_TOP"), cna("PAD_CON0", "PAD_LEFT")
        fields = ("DECONV_Y_STRIDE", "DECONV_X_STRIDE")
        deconv = cna(con1, "DECONV")
        self.spread = tuple(SPREADS.get(cna(con3, name), 1) if deconv else 1 for name in fields)
        """Distance of input rows and columns with pad pixels inserted between them; 1 without DECONV."""
        self.three_atoms = self.type is INT8 and "d1_three_atoms_int8" in options
        """Whether three atoms of the last depthwise block of int8 are stored as three (an option, 3.3)."""
        drained = self.type if core is None else conv_type(core("MISC_CFG", "PROC_PRECISION"))
        wide = self.depthwise if core is None else bool(core("MISC_CFG", "DW_EN"))
        self.octets = DEPTHWISE_GROUP // 8 if wide else drained.octets
        """Octets of a group that CORE delivers: the group size for the DPU is 8 times this."""
        self.is_float = drained.is_float
        """Whether CORE delivers binary32 bits."""
        self.out_channels = 0 if core is None else core("DATAOUT_SIZE_1", "DATAOUT_CHANNEL") + 1
        """Number of channels according to CORE."""

    @property
    def converts(self) -> bool:
        """Whether the input converter works on the features (2.x): integers of packed pixels, and int8."""
        able = self.type.bits >= 8 and not self.type.is_float if self.argb else self.type is INT8
        return able and not self.view("CVT_CON0", "CVT_BYPASS")

    @property
    def macs(self) -> int:
        """Multiply-accumulates of pixels, channels and kernels that exist, without padding."""
        kernels = 1 if self.depthwise else self.kernels
        return self.pixels * self.taps * (self.argb or self.channels) * kernels

    @property
    def taps(self) -> int:
        """Kernel rows times columns."""
        return self.kernel[0] * self.kernel[1]

    @property
    def surfaces(self) -> int:
        """Number of atoms of a pixel."""
        return ceil(self.channels, self.type.per_atom)

    @property
    def groups(self) -> int:
        """Number of kernel groups, or of channel groups of 64 in depthwise mode (3.1)."""
        if self.depthwise:
            return ceil(self.channels, DEPTHWISE_GROUP)
        return ceil(self.kernels, self.type.kernels)

    @property
    def delivered_groups(self) -> int:
        """Number of groups that CORE delivers: those with kernels, and those that its channel count adds."""
        return max(self.groups, ceil(self.out_channels, 8 * self.octets))

    @property
    def group_lanes(self) -> int:
        """Number of output lanes of a group in the array."""
        return DEPTHWISE_GROUP if self.depthwise else self.type.kernels

    @property
    def lanes(self) -> int:
        """Number of input lanes: channels rounded up to whole channel groups."""
        group = DEPTHWISE_GROUP if self.depthwise else self.type.channels
        return ceil(self.channels, group) * group

    @property
    def pixel_bytes(self) -> int:
        """Bytes of a first-layer pixel in CBUF: 4 elements for one channel, 8 for two, 16 otherwise (2.3)."""
        return 4 * self.type.bits // 8 * (4 if self.argb == 3 else self.argb)

    @property
    def tile_atoms(self) -> list[int]:
        """Atoms of a kernel in the tile of each channel group; for the wide types three count as four."""
        full = self.type.tile_atoms
        sizes = (min(full, self.surfaces - first) for first in range(0, self.surfaces, full))
        return [4 if atoms == 3 else atoms for atoms in sizes]

    @property
    def block_atoms(self) -> list[int]:
        """Atoms of a tap in each depthwise block; three in the last block count as four."""
        sizes = [min(BLOCK_ATOMS, self.surfaces - at) for at in range(0, self.surfaces, BLOCK_ATOMS)]
        return [BLOCK_ATOMS if atoms == 3 and not self.three_atoms else atoms for atoms in sizes]

    @cached_property
    def group_bytes(self) -> list[int]:
        """Weight bytes of each kernel group (3.3)."""
        if self.depthwise:
            blocks, step = self.block_atoms, 1 if self.type is INT8 else 2
            return [ATOM * self.taps * sum(blocks[at : at + step]) for at in range(0, len(blocks), step)]
        kernel, most = sum(self.tile_atoms) * ATOM * self.taps, self.type.kernels
        return [min(most, self.kernels - most * group) * kernel for group in range(self.groups)]

    @property
    def slabs(self) -> tuple[int, int]:
        """Number of full slabs of a pixel, and of atoms of the remainder slab, 0 to 2 (2.2)."""
        full, rest = divmod(self.surfaces, ENTRY_ATOMS)
        return (full + 1, 0) if rest == 3 else (full, rest)

    @property
    def row_entries(self) -> int:
        """Number of CBUF entries of a row of pixels (2.2)."""
        full, rest = self.slabs
        return full * self.width + (ceil(self.width, ENTRY_ATOMS // rest) if rest else 0)

    @property
    def entries(self) -> int:
        """Number of CBUF entries of all features (2.2, 2.3)."""
        return self._entries_of(self.height)

    def _entries_of(self, rows: int) -> int:
        if self.argb:
            return ceil(rows * self.view("DMA_CON1", "LINE_STRIDE") * self.pixel_bytes, ENTRY_ATOMS * ATOM)
        return max(rows - 1, 0) * self.view("CBUF_CON1", "DATA_ENTRIES") + self.row_entries

    @property
    def entries_counted(self) -> int:
        """Number of entries without the rows, fewer than a stride, that may lie behind the last window."""
        behind = max(self.stride[0] - 1, 0)
        return self._entries_of(self.height - behind if self.height > behind else self.height)

    @property
    def entries_read(self) -> int:
        """Number of CBUF entries up to the last row that a window covers."""
        rows = ceil(self.pixels, self.out_width) if self.out_width else 0
        reach = (self.kernel[0] - 1) * self.dilation[0] + 1
        last = max(rows - 1, 0) * self.stride[0] + reach - self.pads[0]
        return self._entries_of(self.height if self.spread != (1, 1) else min(self.height, max(last, 0)))

    @property
    def pitches(self) -> tuple[int, int]:
        """Line and surface pitch in atoms (1.1, 1.2) nearest to 0, as addresses count modulo 2^32."""
        stride, jump = self.view("DMA_CON1", "LINE_STRIDE"), self.view.signed("DMA_CON2", "SURF_STRIDE")
        if not self.view("CONV_CON1", "GROUP_LINE_OFF"):
            return stride // 4, _short(4 * self.width + jump)
        return _short(stride), _short(self.width + jump)


class Cube:
    """Cube and channel group of the DPU or of DPU_RDMA (4.1, 5.1)."""

    def __init__(self, view: View, types: str) -> None:
        self.view = view
        self.width = view("DATA_CUBE_WIDTH", "WIDTH") + 1
        self.height = view("DATA_CUBE_HEIGHT", "HEIGHT") + 1
        self.channels = view("DATA_CUBE_CHANNEL", "CHANNEL") + 1
        self.depthwise = view("FEATURE_MODE_CFG", "CONV_MODE") == DEPTHWISE
        self.type = view(types, "IN_PRECISION")
        self.group = dpu_group(self.depthwise, self.type)
        self.flying = bool(view("FEATURE_MODE_CFG", "FLYING_MODE"))

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def groups(self) -> int:
        return ceil(self.channels, self.group)


DIVIDE = 3
"""Code of the division in EW_ALU_ALGO."""


class DpuCube(Cube):
    """Cube of the DPU in a task, with the settings of its writer (4.10).

    Parameters
    ----------
    dpu
        Registers of the DPU.
    copies
        Copies of a row that the unpooling of DPU_RDMA makes, 0 without unpooling (5.7).
    """

    def __init__(self, dpu: View, copies: int = 0) -> None:
        super().__init__(dpu, "DATA_FORMAT")
        self.output = dpu("FEATURE_MODE_CFG", "OUTPUT_MODE")
        self.copies = copies if self.flying and not self.reduces else 0
        self.bits = bits_of(dpu("DATA_FORMAT", "OUT_PRECISION"))
        readers = 2 if dpu("FEATURE_MODE_CFG", "COMB_USE") else 1
        self.given = readers * 8 * ATOM // bits_of(self.type)
        """Channels of an input atom of a flying task, of two atoms with COMB_USE."""
        self.floats = dpu("DATA_FORMAT", "PROC_PRECISION") in FLOAT_CODES
        on = not dpu("EW_CFG", "EW_BYPASS")
        self.lut = on and not dpu("EW_CFG", "EW_LUT_BYPASS")
        self.operation = on and not dpu("EW_CFG", "EW_OP_BYPASS")
        self.needs_element = self.operation and bool(dpu("EW_CFG", "EW_OP_SRC"))
        full = 8 * ATOM // self.bits
        self.per_atom = min(full, self.given) if self.flying and not self.moves else full
        """Channels of an output atom; fewer than fit where a flying task narrows its elements (4.10)."""
        self.multiplies = self.operation and bool(dpu("EW_CFG", "EW_OP_TYPE"))
        self.divides = (
            self.floats
            and self.operation
            and not self.lut
            and not self.multiplies
            and dpu("EW_CFG", "EW_ALU_ALGO") == DIVIDE
        )

    @property
    def packets(self) -> bool:
        """Whether TP_EN or TP_ORG_EN has an effect (4.11)."""
        dpu, wide = self.view, self.view("WDMA_SIZE_0", "TP_PRECISION")
        asked = dpu("BS_OW_CFG", "TP_ORG_EN") or (dpu("FEATURE_MODE_CFG", "TP_EN") and self.flying and wide)
        given, out = self.type, dpu("DATA_FORMAT", "OUT_PRECISION")
        proc, half = dpu("DATA_FORMAT", "PROC_PRECISION"), FP16.dpu_code
        wanted = (INT16 if self.flying else INT32).dpu_code
        known = given == INT16.dpu_code and (self.moves or (not self.floats and out == wanted))
        known = known or (not self.flying and bool(wide) and given == proc == out == half)
        return bool(asked) and known and not self.depthwise and not self.needs_element

    @property
    def packet_atoms(self) -> int:
        """Atoms of a pixel that a packet takes from CORE: those of a kernel group of 16 channels."""
        return 2 * LANES * self.bits // (8 * ATOM)

    @property
    def packet_block(self) -> int:
        """Number of atoms that are converted to packets together: 16 when bytes are transposed."""
        turned = self.view("BS_OW_CFG", "TP_ORG_EN")
        return 16 if turned and not self.view("WDMA_SIZE_0", "TP_PRECISION") else PACKET

    @property
    def packet_run(self) -> int:
        """Atoms of all surfaces, or of the surfaces of a kernel group; they make whole blocks."""
        return self.pixels * (self.surfaces if self.flying else self.packet_atoms)

    @property
    def packets_told(self) -> int:
        """Number of packets according to the sizes of WDMA."""
        rows = (self.view("WDMA_SIZE_0", "SIZE_C_WDMA") + 1) * (self.view("WDMA_SIZE_1", "HEIGHT_WDMA") + 1)
        return rows * (self.view("WDMA_SIZE_1", "WIDTH_WDMA") + 1)

    @property
    def moves(self) -> bool:
        """Whether an unpooled task leaves its atoms unchanged (5.7)."""
        stages = all(self.view(f"{name}_CFG", f"{name}_BYPASS") for name in ("BS", "BN", "EW"))
        return bool(self.copies) and stages and self.type == INT16.dpu_code and self.bits < 32

    @property
    def feeds_ppu(self) -> bool:
        """Whether the result is sent to the PPU."""
        return bool(self.output & 1) and not self.packets and not self.copies

    @property
    def reduces(self) -> bool:
        """Whether the task writes one number for each pixel, the maximum over the channels (7.16)."""
        dpu, mode = self.view, "FEATURE_MODE_CFG"
        asked = dpu("DATA_CUBE_HEIGHT", "MINMAX_CTL") == MAXIMUM and dpu(mode, "NONALIGN")
        types = {dpu("DATA_FORMAT", f"{name}_PRECISION") for name in ("IN", "PROC", "OUT")}
        halves = types == {FP16.dpu_code} and not dpu("OUT_CVT_SCALE", "FP32TOFP16_EN")
        alone = self.flying and self.output == 2 and not dpu(mode, "COMB_USE")
        fits = self.height == 1 and self.width <= STRIPE * LANES
        told = dpu(mode, "SURF_LEN") == ceil(self.width, LANES)
        return bool(asked) and halves and alone and not self.depthwise and fits and told

    @property
    def surfaces(self) -> int:
        """Number of surfaces of the cube as written."""
        return ceil(self.channels, self.per_atom)

    @property
    def told_surfaces(self) -> int:
        """Number of surfaces according to CHANNEL_WDMA."""
        return ceil(self.view("WDMA_SIZE_0", "CHANNEL_WDMA") + 1, self.per_atom)

    @property
    def stripe_surfaces(self) -> int:
        """Surfaces of a channel group, of which a stripe is written before the next one (4.1)."""
        group = LANES if self.packets and self.flying else self.group
        return max(1, group // self.per_atom)

    @property
    def flying_surfaces(self) -> bool:
        """Whether a flying task writes surfaces, each of them once."""
        return bool(self.output & 2) and self.flying and not self.packets and not self.copies

    @property
    def flying_series(self) -> int:
        """Number of output surfaces of an input surface of a flying task."""
        return max(1, self.given * self.bits // (8 * ATOM))

    @property
    def half_bytes_stuck(self) -> bool:
        """Whether there are more partly filled atoms of int8 than CHANNEL_WDMA names: the task hangs."""
        int8 = self.view("DATA_FORMAT", "OUT_PRECISION") == INT8.dpu_code
        partly = self.flying_surfaces and int8 and self.per_atom < ATOM
        return partly and self.surfaces > ceil(self.view("WDMA_SIZE_0", "CHANNEL_WDMA") + 1, ATOM)

    @property
    def fixed(self) -> bool:
        """Whether the writer ignores SIZE_E (4.10)."""
        bypassed = bool(self.view("BS_OW_CFG", "OD_BYPASS")) and not self.flying
        unnamed = self.group_surfaces > SURFACES_NAMED
        return bypassed and (unnamed or bool(self.view("DATA_FORMAT", "MC_SURF_OUT")))

    @property
    def grouped(self) -> bool:
        """Whether the writer waits for as many surfaces of each kernel group as SIZE_E specifies (4.10)."""
        return bool(self.output & 2) and not self.flying and not self.packets and not self.fixed

    @property
    def series(self) -> int:
        """Number of surfaces at distance DST_SURF_STRIDE before SURF_ADD is added."""
        if self.flying and not self.copies:
            return self.flying_series
        return self.group_surfaces if self.fixed else self.view("BS_OW_CFG", "SIZE_E_1") + 1

    @property
    def kept(self) -> int:
        """Number of surfaces of a series that are written."""
        said = self.view("BS_OW_CFG", "SIZE_E_1") + 1
        looked_at = self.flying and not self.copies and self.series <= SURFACES_NAMED
        return min(said, self.series) if looked_at else self.series

    @property
    def group_surfaces(self) -> int:
        """Number of surfaces of a group for the type of the output."""
        group = 32 if self.depthwise and self.type in SIXTEEN_BITS else self.group
        return max(1, group * self.bits // (8 * ATOM))

    @property
    def converter(self) -> bool:
        """Whether CPEND is active, which requires a correct SIZE_E."""
        return not self.flying and not self.view("BS_OW_CFG", "OD_BYPASS") and not self.packets

    @property
    def written_surfaces(self) -> list[int]:
        """Distance in atoms from DST_BASE_ADDR to each output surface."""
        dpu, per = self.view, self.series
        add, stride = dpu.signed("SURFACE_ADD", "SURF_ADD"), dpu.signed("DST_SURF_STRIDE")
        count = min(self.surfaces, self.told_surfaces) * max(self.copies, 1)
        return [s // per * add + s % per * stride for s in range(count) if s % per < self.kept]

    @property
    def line(self) -> int:
        """Distance in atoms from an output line to the next."""
        return self.width + self.view("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")


class RdmaCube(Cube):
    """Cube of DPU_RDMA in a task.

    Parameters
    ----------
    rdma
        Registers of DPU_RDMA.
    dpu
        Registers of the DPU, whose COMB_USE lets both readers deliver main data; None if it does not start.
    """

    def __init__(self, rdma: View, dpu: View | None = None) -> None:
        super().__init__(rdma, "FEATURE_MODE_CFG")
        mode = "FEATURE_MODE_CFG"
        self.main = not rdma(mode, "MRDMA_DISABLE")
        self.element = not rdma("ERDMA_CFG", "ERDMA_DISABLE")
        self.main_bits = bits_of(self.type)
        self.residual = rdma(mode, "COMB_USE") == RESIDUAL and not self.flying
        """Whether both readers deliver the EW operand together (5.5)."""
        combines = dpu is not None and bool(dpu(mode, "COMB_USE"))
        self.alternate = rdma(mode, "COMB_USE") == ALTERNATE and self.flying and combines
        """Whether both readers deliver the main data together (5.5)."""
        self.shared = self.residual or self.alternate
        """Whether each reader reads every second surface of one cube."""
        self.block_channels = 4 if self.flying and self.main_bits == 32 and not combines else LANES
        """Channels of a block of operands that count: those of a beat (5.3)."""
        self.floats = rdma(mode, "PROC_PRECISION") in FLOAT_CODES
        self.element_bits = ERDMA_BITS[rdma("ERDMA_CFG", "ERDMA_DATA_SIZE")]
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
            and self.type == INT16.dpu_code
        )
        self.unpooled = (kernel[0] + 1, kernel[1] + 1) if known else None
        """How often rows and columns are repeated (5.7)."""

    def _use(self, client: str) -> int:
        rdma = self.view
        return (
            0 if rdma(f"{client}_CFG", f"{client}_DISABLE") else rdma(f"{client}_CFG", f"{client}_DATA_USE")
        )

    def drops_rest(self, client: str) -> bool:
        """Whether the multipliers of a last, incomplete block of BRDMA or NRDMA are 0 (5.3)."""
        alone = self.flying and self.main_bits == 16 and self.use[client] & 7 == MUL_ONLY
        return alone and all(divmod(self.channels, LANES))

    @property
    def anything(self) -> bool:
        """Whether any reader is enabled."""
        return self.main or self.element or any(use & 7 for use in self.use.values())


class PoolShape:
    """Sizes of the PPU in a task (6)."""

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
