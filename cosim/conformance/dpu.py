"""Settings of DPU and DPU_RDMA for a cube of any type, and their registers for a tile of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cosim.conformance.choices import Refused
from cosim.conformance.conv import Tile
from cosim.conformance.types import ATOM, ElementType
from cosim.crosscheck.program import Task

STORAGE = {4: 0, 8: 1, 16: 2, 32: 3}
"""Bits of an element to EDATA_SIZE, ERDMA_DATA_SIZE and PPU_RDMA's IN_PRECISION."""


@dataclass
class Operand:
    """A cube in memory that a reader of DPU_RDMA fetches: pitches in atoms, `bits` of an element."""

    address: int
    bits: int
    line: int
    surface: int
    per_pixel: bool = True
    notch: int = 0
    """Part of the surface pitch that the notch register gives (ERDMA)."""

    def at(self, channel: int, row: int) -> int:
        """Address of the atom of a channel in column 0 of a row."""
        first = channel * self.bits
        if first % 128:
            raise Refused("a channel tile does not start on an atom of its operand")
        return self.address + ATOM * (
            first // 128 * self.surface + (row * self.line if self.per_pixel else 0)
        )


@dataclass
class Dpu:
    """Settings for a whole cube; `emit` writes the registers of one tile."""

    width: int
    height: int
    channels: int
    source: ElementType
    """Type of the main data: the convolution's, or that in memory (flying)."""
    out: ElementType
    depthwise: bool = False
    flying: bool = False
    group: int = 32
    """Channels of a group (4.1)."""
    float_domain: bool = False
    proc: int = 0
    surface: int = 0
    notch: int = 0
    surface_add: int = 0
    group_surfaces: int = 1
    """Surfaces of a group, Z of 4.10."""
    size_e: int = 0
    bypass_cpend: bool = True
    address: int = 0
    to_memory: bool = True
    to_ppu: bool = False
    fields: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    rdma: bool = False
    rdma_proc: int | None = None
    bs: tuple[int, int] | None = None
    """(address, bytes per block of 8 channels) of BRDMA's table."""
    bn: tuple[int, int] | None = None
    ew: Operand | None = None
    main: Operand | None = None
    combined: bool = False
    """COMB_USE 5: MRDMA and ERDMA together deliver the EW operand."""
    orig: int = 0
    notes: list[str] = field(default_factory=list)

    def set(self, block: str, register: str, **values: int) -> None:
        """Remember field values common to all tiles (they may be negative)."""
        self.fields.setdefault((block, register), {}).update(values)

    def emit(self, task: Task, tile: Tile | None = None) -> None:
        """Write the registers of a tile (the whole cube by default) into a task."""
        tile = tile or Tile(0, self.height, 0, self.channels)
        if tile.channel * self.out.bits % 128:
            raise Refused("a tile does not start on an atom of the output")
        for (block, register), values in self.fields.items():
            task.set(block, register, **values)
        first = tile.channel * self.out.bits // 128
        jump = first // self.group_surfaces * self.surface_add + first % self.group_surfaces * self.surface
        line = self.width + self.notch
        task.set(
            "DPU",
            "FEATURE_MODE_CFG",
            CONV_MODE=3 if self.depthwise else 0,
            OUTPUT_MODE=2 * self.to_memory + self.to_ppu,
            FLYING_MODE=int(self.flying),
        )
        task.set(
            "DPU",
            "DATA_FORMAT",
            OUT_PRECISION=self.out.dpu,
            IN_PRECISION=self.source.dpu,
            PROC_PRECISION=self.proc,
        )
        e = self.size_e
        task.set(
            "DPU",
            "BS_OW_CFG",
            SIZE_E_0=e,
            SIZE_E_1=e,
            SIZE_E_2=e,
            OD_BYPASS=int(self.bypass_cpend),
        )
        task.address("DPU", "DST_BASE_ADDR", self.address + ATOM * (jump + tile.row * line))
        task.put("DPU", "DST_SURF_STRIDE", self.surface)
        task.set("DPU", "SURFACE_ADD", SURF_ADD=self.surface_add)
        task.set("DPU", "DATA_CUBE_WIDTH", WIDTH=self.width - 1)
        task.set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=tile.rows - 1)
        orig = min(max(self.orig - tile.channel, 1), tile.channels)
        task.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=tile.channels - 1, ORIG_CHANNEL=orig - 1)
        task.set("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=self.notch, NOTCH_ADDR_1=self.notch)
        task.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=tile.channels - 1)
        task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=tile.rows - 1, WIDTH_WDMA=self.width - 1)
        if self.rdma:
            self._emit_rdma(task, tile)

    def _emit_rdma(self, task: Task, tile: Tile) -> None:
        task.set(
            "DPU_RDMA",
            "FEATURE_MODE_CFG",
            IN_PRECISION=self.source.dpu,
            PROC_PRECISION=self.proc if self.rdma_proc is None else self.rdma_proc,
            CONV_MODE=3 if self.depthwise else 0,
            MRDMA_DISABLE=int(self.main is None),
            FLYING_MODE=int(self.flying),
            COMB_USE=5 if self.combined else 0,
        )
        task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=int(self.ew is None))
        task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=self.width - 1)
        task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=tile.rows - 1)
        task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=tile.channels - 1)
        if tile.channel % 8 and (self.bs or self.bn):
            raise Refused("a channel tile does not start on a block of operands")
        if self.bs:
            task.address("DPU_RDMA", "BS_BASE_ADDR", self.bs[0] + tile.channel // 8 * self.bs[1])
        if self.bn:
            task.address("DPU_RDMA", "BN_BASE_ADDR", self.bn[0] + tile.channel // 8 * self.bn[1])
        if self.main:
            m = self.main
            task.address("DPU_RDMA", "SRC_BASE_ADDR", m.at(tile.channel, tile.row))
            task.set("DPU_RDMA", "SRC_DMA_CFG", LINE_NOTCH_ADDR=m.line - self.width)
            task.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=self._notch(m, tile))
        if self.ew:
            e = self.ew
            task.address("DPU_RDMA", "EW_BASE_ADDR", e.at(tile.channel, tile.row))
            notch = e.line - self.width if e.per_pixel else 0
            task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", EW_LINE_NOTCH_ADDR=notch)
            if self.combined:
                task.put("DPU_RDMA", "EW_SURF_NOTCH", self._notch(e, tile))
            else:
                notch = e.notch if e.per_pixel else 0
                task.put("DPU_RDMA", "EW_SURF_STRIDE", (e.surface - notch) % (1 << 28))
                task.put("DPU_RDMA", "EW_SURF_NOTCH", notch)

    def _notch(self, operand: Operand, tile: Tile) -> int:
        """What a surface has behind its last line (5.2)."""
        return (operand.surface - operand.line * (tile.rows - 1) - self.width) % (1 << 28)

    def text(self) -> str:
        """One line for people."""
        flying = "flying " if self.flying else ""
        return (
            f"{flying}{self.source.name} -> {self.out.name} {self.channels}x{self.height}x{self.width}; "
            + ", ".join(self.notes)
        )
