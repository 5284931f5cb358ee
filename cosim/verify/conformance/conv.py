"""A convolution of any type: its sizes, its memory, and its CNA and CORE registers for a tile."""

from __future__ import annotations

from dataclasses import dataclass, field

from rkcosim.spec.regs.options import chosen_options
from rkcosim.spec.types import ATOM, BANK_BYTES, ElementType
from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.crosscheck.program import Task


@dataclass(frozen=True)
class Tile:
    """Part of a cube: output rows [row, row + rows), channels [channel, channel + channels)."""

    row: int
    rows: int
    channel: int
    channels: int


@dataclass
class Conv:
    """Settings of a convolution layer; `emit` writes the registers of one tile."""

    type: ElementType
    depthwise: bool
    argb: int
    height: int
    width: int
    channels: int
    kernels: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    deconv: tuple[int, int] | None = None
    pad: tuple[int, int] = (0, 0)
    out: tuple[int, int] = (1, 1)
    line: int = 0
    """Line pitch in atoms, or in pixels in ARGB mode."""
    surface: int = 0
    group_line_off: bool = False
    data: int = 0
    weights: int = 0
    pad_value: int = 0
    data_bank: int = 1
    weight_bank: int = 11
    entries: int = 0
    grains: int = 1
    qd: int = 1
    clip: tuple[int, int] = (0, 0)
    core_channels: int = 0
    """CORE's channel count (3.8) of the whole layer; 0: that of the kernels in whole groups."""
    spread: float = 1.0
    """Typical magnitude of a result."""
    cvt: dict[str, int] = field(default_factory=lambda: {"CVT_BYPASS": 1})
    """Fields of the input converter."""
    idle_entries: int | None = None
    """DATA_ENTRIES in ARGB mode, where it has no effect (2.3); None: the pixels of the tile."""

    @property
    def surfaces(self) -> int:
        """Atoms per pixel."""
        return self.type.surfaces(self.channels)

    @property
    def taps(self) -> int:
        """Kernel rows times columns."""
        return self.kernel[0] * self.kernel[1]

    @property
    def group(self) -> int:
        """Output channels per group."""
        return 64 if self.depthwise else self.type.kernels

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return self.channels if self.depthwise else self.kernels

    @property
    def pixel_bytes(self) -> int:
        """Bytes of an ARGB pixel in CBUF (2.3)."""
        return 4 * self.type.bits // 8 * (4 if self.argb == 3 else self.argb)

    @property
    def row_entries(self) -> int:
        """CBUF entries of an input row (2.2)."""
        full, rest = divmod(self.surfaces, 4)
        return full * self.width + (self.width if rest == 3 else -(-rest * self.width // 4))

    @property
    def data_banks(self) -> int:
        """Minimum number of banks that hold the features."""
        if self.argb:
            return -(-self.line * self.height * self.pixel_bytes // BANK_BYTES)
        return -(-(self.entries or self.row_entries) * self.height * 64 // BANK_BYTES)

    @property
    def delivered_groups(self) -> int:
        """Groups that CORE delivers to the DPU (3.8)."""
        return -(-max(self.outputs, self.core_channels) // self.group)

    def kernel_bytes(self) -> int:
        """Bytes of one kernel (3.3); for a depthwise layer, of all channels."""
        atoms, full, total = self.surfaces, 4 if self.depthwise else self.type.tile_atoms, 0
        three = self.depthwise and self.type.bits == 8 and "d1_three_atoms_int8" in chosen_options()
        while atoms > 0:
            part = min(atoms, full)
            total += 4 if part == 3 and not three else part
            atoms -= full
        return total * ATOM * self.taps

    def weight_bytes(self, kernels: int) -> int:
        """Return the bytes of a number of kernels (all channels of a depthwise layer)."""
        return self.kernel_bytes() * (1 if self.depthwise else kernels)

    @property
    def group_bytes(self) -> int:
        """Bytes of the largest kernel group."""
        if self.depthwise:
            return min(self.kernel_bytes(), self.taps * 64 * self.type.bits // 8)
        return min(self.group, self.kernels) * self.kernel_bytes()

    def cycles(self) -> int:
        """Return the cycles of the layer by the vendor's formula [HW 12.6]."""
        pixels = -(-self.out[0] * self.out[1] // 16) * 16
        if self.depthwise:
            return pixels * -(-self.channels // 64) * self.taps
        tiles = -(-self.kernels // self.group) * -(-self.channels // self.type.channels)
        return pixels * tiles * self.taps

    def input_rows(self, tile: Tile) -> tuple[int, int, int]:
        """Return (first input row, rows, top padding) that the output rows of a tile need."""
        if self.deconv or tile == Tile(0, self.out[0], tile.channel, tile.channels):
            return 0, self.height, self.pad[0]
        first = tile.row * self.stride[0] - self.pad[0]
        last = first + (tile.rows - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0]
        start, end = max(first, 0), min(last + 1, self.height)
        if end <= start:
            raise Refused("a row tile lies in the padding altogether")
        return start, end - start, max(-first, 0)

    def emit(
        self, task: Task, tile: Tile | None = None, *, weight_reuse: int = 0, data_reuse: int = 0
    ) -> None:
        """Write CNA and CORE registers of a tile (the whole layer by default)."""
        tile = tile or Tile(0, self.out[0], 0, self.kernels)
        start, rows, top = self.input_rows(tile)
        kernels = self.kernels if self.depthwise else tile.channels
        offset = 0 if self.depthwise else self.weight_bytes(tile.channel)
        size = self.weight_bytes(kernels)
        step = ATOM if not self.argb else self.argb * self.type.bits // 8
        byte = start * self.line * step
        if byte % ATOM:
            raise Refused("an ARGB tile does not start on an atom")
        entries = self.entries or self.row_entries
        if self.argb:
            entries = self.width * rows % (1 << 15) if self.idle_entries is None else self.idle_entries
        code = self.type.code
        task.set(
            "CNA",
            CONV_MODE=3 if self.depthwise else 0,
            IN_PRECISION=code,
            PROC_PRECISION=code,
            ARGB_IN=7 + self.argb if self.argb else 0,
            NONALIGN_DMA=int(self.argb > 0),
            GROUP_LINE_OFF=int(self.group_line_off or self.argb > 0),
            DECONV=int(self.deconv is not None),
            FEATURE_GRAINS=self.grains,
            CONV_Y_STRIDE=self.stride[0],
            CONV_X_STRIDE=self.stride[1],
            ATROUS_Y_DILATION=self.dilation[0] - 1,
            ATROUS_X_DILATION=self.dilation[1] - 1,
        )
        if self.deconv:
            task.set("CNA", DECONV_Y_STRIDE=self.deconv[0] - 1, DECONV_X_STRIDE=self.deconv[1] - 1)
        task.set("CNA", DATAIN_WIDTH=self.width, DATAIN_HEIGHT=rows, DATAIN_CHANNEL=self.channels)
        task.set("CNA", DATAOUT_WIDTH=self.out[1], DATAOUT_ATOMICS=self.out[1] * tile.rows, WEIGHT_BYTES=size)
        task.set(
            "CNA",
            WEIGHT_WIDTH=self.kernel[1],
            WEIGHT_HEIGHT=self.kernel[0],
            WEIGHT_KERNELS=1 if self.depthwise else kernels,
            DATA_BANK=self.data_bank,
            WEIGHT_BANK=self.weight_bank,
            WEIGHT_REUSE=weight_reuse,
            DATA_REUSE=data_reuse,
            DATA_ENTRIES=entries,
            **self.cvt,
        )
        task.set("CNA", PAD_TOP=top, PAD_LEFT=self.pad[1], PAD_VALUE=self.pad_value)
        task.address("CNA", "FEATURE_DATA_ADDR", self.data + byte)
        task.address("CNA", "DCOMP_ADDR0", self.weights + offset)
        free = self.group_line_off or self.argb > 0
        stride = self.line if free else 4 * self.line
        half = 1 << 27  # atoms modulo 2^28 are bytes modulo 2^32
        run = self.width if free else 4 * self.width  # what is fetched before the next surface
        jump = (self.surface - run + half) % (2 * half) - half
        task.set("CNA", LINE_STRIDE=stride, SURF_STRIDE=jump)
        task.set("CNA", DMA_WIDTH=self.width, DMA_HEIGHT=rows, DMA_CHANNEL=self.channels)
        task.set("CORE", DW_EN=int(self.depthwise), QD_EN=self.qd, PROC_PRECISION=code)
        lanes = self.channels if self.depthwise else kernels
        task.set("CORE", DATAOUT_HEIGHT=tile.rows - 1, DATAOUT_WIDTH=self.out[1] - 1)
        counted = self.core_channels or -(-lanes // self.group) * self.group
        task.set("CORE", DATAOUT_CHANNEL=counted - 1, CLIP_TRUNCATE=self.clip[0], ROUND_TYPE=self.clip[1])

    def text(self) -> str:
        """Describe the layer in one line."""
        kind = "depthwise " if self.depthwise else f"argb{self.argb} " if self.argb else ""
        kind += "deconv " if self.deconv else ""
        return (
            f"{kind}{self.type.name} {self.argb or self.channels}x{self.height}x{self.width} -> "
            f"{self.outputs}x{self.out[0]}x{self.out[1]} kernel {self.kernel} stride {self.stride} "
            f"dilation {self.dilation} deconv {self.deconv} pad {self.pad} clip {self.clip} qd {self.qd} "
            f"banks {self.data_bank}/{self.weight_bank}"
        )
