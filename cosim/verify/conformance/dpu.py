"""Settings of DPU and DPU_RDMA for a cube of any type, and their registers for a tile of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rkcosim.spec.types import ATOM, FLOAT_CODES, ElementType, bits_of
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.conv import Tile
from rkcosim.verify.crosscheck.program import Task

STORAGE = {4: 0, 8: 1, 16: 2, 32: 3}
"""Code of EDATA_SIZE, ERDMA_DATA_SIZE and PPU_RDMA's IN_PRECISION by bits of an element."""


def size_e(value: int) -> dict[str, int]:
    """Return the fields of BS_OW_CFG that all hold the number of surfaces of a group, less one (4.10)."""
    return {f"SIZE_E_{n}": value for n in range(3)}


def dpu_blocks(task: Task) -> list[str]:
    """Return the blocks with the sizes of the output cube: the DPU and, if the task has it, DPU_RDMA."""
    return [block for block in ("DPU", "DPU_RDMA") if block in task.blocks]


def in_floats(task: Task) -> bool:
    """Return whether the DPU works on floats."""
    return task.get("DPU", "PROC_PRECISION") in FLOAT_CODES


def element_bits(task: Task) -> tuple[int, int]:
    """Return the bits of the DPU's input and output elements; 8 for codes that are no type."""
    data = task.get("DPU", "IN_PRECISION"), task.get("DPU", "OUT_PRECISION")
    return bits_of(data[0]), bits_of(data[1])


def input_surface(task: Task) -> int:
    """Return the channels of an input surface of a flying task [HW 7.11.10]."""
    return 8 * ATOM // element_bits(task)[0] * (1 + task.get("DPU", "COMB_USE"))


def surfaces_made(task: Task) -> int:
    """Return the output surfaces that an input surface of a flying task makes [HW 7.11.10]."""
    return max(1, input_surface(task) * element_bits(task)[1] // (8 * ATOM))


@dataclass
class Operand:
    """A cube in memory that a reader of DPU_RDMA fetches: pitches in atoms, `bits` of an element."""

    address: int
    bits: int
    line: int
    surface: int
    per_pixel: bool = True
    idle: int = 0
    """Value of the register of ERDMA's surface pitch that has no effect in its mode (5.4)."""

    def at(self, channel: int, row: int) -> int:
        """Return the address of the atom with a channel in column 0 of a row."""
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
    """Type of the main data: that of the convolution, or that in memory (flying)."""
    out: ElementType
    depthwise: bool = False
    flying: bool = False
    group: int = 32
    """Channels of a group (4.1)."""
    float_domain: bool = False
    proc: int = 0
    divides: bool = False
    """Whether EW divides (floats only)."""
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
    preset: Task = field(default_factory=lambda: Task(()))
    """Fields common to all tiles."""
    rdma: bool = False
    bs: tuple[int, int] | None = None
    """(address, bytes per block of 8 channels) of BRDMA's table."""
    bn: tuple[int, int] | None = None
    ew: Operand | None = None
    main: Operand | None = None
    combined: bool = False
    """COMB_USE 5: MRDMA and ERDMA together deliver the EW operand."""
    alternate: bool = False
    """COMB_USE 3 of a flying task: MRDMA and ERDMA together deliver the main data."""
    orig: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def given(self) -> int:
        """Channels of an input atom of a flying task, of two atoms with two readers (4.10)."""
        return self.source.per_atom * (2 if self.alternate else 1)

    @property
    def per_atom(self) -> int:
        """Channels of an output atom (4.10)."""
        return min(self.given, self.out.per_atom) if self.flying else self.out.per_atom

    @property
    def surfaces(self) -> int:
        """Output surfaces."""
        return -(-self.channels // self.per_atom)

    @property
    def block(self) -> int:
        """Channels of a block of operands that count (5.3)."""
        return 4 if self.flying and self.given < 8 else 8

    def set(self, block: str, register: str = "", /, **values: int) -> None:
        """Set fields common to all tiles (see `Task.set`)."""
        self.preset.set(block, register, **values)

    def emit(self, task: Task, tile: Tile | None = None) -> None:
        """Write the registers of a tile (the whole cube by default) into a task."""
        tile = tile or Tile(0, self.height, 0, self.channels)
        if tile.channel * self.out.bits % 128:
            raise Refused("a tile does not start on an atom of the output")
        for (block, register), values in self.preset.fields.items():
            task.set(block, register, **values)
        first = tile.channel * self.out.bits // 128
        jump = first // self.group_surfaces * self.surface_add + first % self.group_surfaces * self.surface
        line = self.width + self.notch
        orig = min(max(self.orig - tile.channel, 1), tile.channels)
        task.set(
            "DPU",
            CONV_MODE=3 if self.depthwise else 0,
            OUTPUT_MODE=2 * self.to_memory + self.to_ppu,
            FLYING_MODE=int(self.flying),
            OUT_PRECISION=self.out.dpu_code,
            IN_PRECISION=self.source.dpu_code,
            PROC_PRECISION=self.proc,
            OD_BYPASS=int(self.bypass_cpend),
            DST_SURF_STRIDE=self.surface,
            SURF_ADD=self.surface_add,
            ORIG_CHANNEL=orig - 1,
            **size_e(self.size_e),
        )
        task.set("DPU", WIDTH=self.width - 1, HEIGHT=tile.rows - 1, CHANNEL=tile.channels - 1)
        task.set("DPU", WIDTH_WDMA=self.width - 1, HEIGHT_WDMA=tile.rows - 1, CHANNEL_WDMA=tile.channels - 1)
        task.set("DPU", NOTCH_ADDR_0=self.notch, NOTCH_ADDR_1=self.notch)
        task.address("DPU", "DST_BASE_ADDR", self.address + ATOM * (jump + tile.row * line))
        if self.rdma:
            self._emit_rdma(task, tile)

    def _emit_rdma(self, task: Task, tile: Tile) -> None:
        task.set(
            "DPU_RDMA",
            IN_PRECISION=self.source.dpu_code,
            PROC_PRECISION=self.proc,
            CONV_MODE=3 if self.depthwise else 0,
            MRDMA_DISABLE=int(self.main is None),
            FLYING_MODE=int(self.flying),
            COMB_USE=5 if self.combined else 3 if self.alternate else 0,
            ERDMA_DISABLE=int(self.ew is None),
            WIDTH=self.width - 1,
            HEIGHT=tile.rows - 1,
            CHANNEL=tile.channels - 1,
        )
        if tile.channel % 8 and (self.bs or self.bn):
            raise Refused("a channel tile does not start on a block of operands")
        if self.bs:
            task.address("DPU_RDMA", "BS_BASE_ADDR", self.bs[0] + tile.channel // 8 * self.bs[1])
        if self.bn:
            task.address("DPU_RDMA", "BN_BASE_ADDR", self.bn[0] + tile.channel // 8 * self.bn[1])
        if self.main:
            m = self.main
            task.address("DPU_RDMA", "SRC_BASE_ADDR", m.at(tile.channel, tile.row))
            task.set("DPU_RDMA", LINE_NOTCH_ADDR=m.line - self.width, SURF_NOTCH_ADDR=self._notch(m, tile))
        if self.ew:
            e = self.ew
            task.address("DPU_RDMA", "EW_BASE_ADDR", e.at(tile.channel, tile.row))
            notch = e.line - self.width if e.per_pixel else 0
            task.set("DPU_RDMA", EW_LINE_NOTCH_ADDR=notch)
            pitch = self._notch(e, tile) if e.per_pixel else e.surface % (1 << 28)
            names = ("EW_SURF_NOTCH", "EW_SURF_STRIDE")
            live, idle = names if e.per_pixel else names[::-1]
            task.set("DPU_RDMA", **{live: pitch, idle: e.idle})

    def _notch(self, operand: Operand, tile: Tile) -> int:
        """Return the gap after the last line of a surface (5.2)."""
        return (operand.surface - operand.line * (tile.rows - 1) - self.width) % (1 << 28)

    def text(self) -> str:
        """Describe the settings in one line."""
        flying = "flying " if self.flying else ""
        return (
            f"{flying}{self.source.name} -> {self.out.name} {self.channels}x{self.height}x{self.width}; "
            + ", ".join(self.notes)
        )
