"""Random convolution settings (CNA and CORE), and their registers for a tile of the layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosim.crosscheck.arena import ATOM, Arena, Refused
from cosim.crosscheck.draw_dpu import Tile
from cosim.crosscheck.program import Task

BANK_BYTES = 32 * 1024
BANKS = 12


@dataclass
class ConvDraw:
    """Settings of a convolution layer; `emit` writes the registers of one tile."""

    depthwise: bool
    argb: int
    height: int
    width: int
    channels: int
    kernels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[int, int]
    out: tuple[int, int]
    line: int = 0
    """Line pitch in atoms, or in pixels in ARGB mode."""
    surface: int = 0
    group_line_off: bool = False
    surf_stride_zero: bool = False
    data: int = 0
    weights: int = 0
    pad_value: int = 0
    data_bank: int = 1
    weight_bank: int = 11
    grains: int = 1
    qd: int = 1
    clip: tuple[int, int] = (0, 0)
    cvt: dict[str, dict[str, int]] | None = None

    @property
    def padded_channels(self) -> int:
        """Channels rounded up to whole atoms."""
        return -(-self.channels // ATOM) * ATOM

    @property
    def taps(self) -> int:
        """Kernel rows times columns."""
        return self.kernel[0] * self.kernel[1]

    @property
    def row_entries(self) -> int:
        """CBUF entries of an input row (H3.8); for ARGB of the whole image, rounded up."""
        if self.argb:
            pixel = 4 * (4 if self.argb == 3 else self.argb)
            return -(-self.line * self.height * pixel // 64)
        full, rest = divmod(self.padded_channels // ATOM, 4)
        return full * self.width + (self.width if rest == 3 else -(-rest * self.width // 4))

    def weight_bytes(self, kernels: int) -> int:
        """Bytes of so many kernels (all channels of a depthwise layer)."""
        if self.depthwise:
            return -(-self.channels // 64) * 64 * self.taps
        return kernels * self.padded_channels * self.taps

    def cycles(self) -> int:
        """Formula cycles of the layer (H9.6)."""
        pixels = -(-self.out[0] * self.out[1] // 16) * 16
        if self.depthwise:
            return pixels * -(-self.channels // 64) * self.taps
        return pixels * -(-self.kernels // 32) * max(self.taps * -(-self.channels // 32), 4)

    def input_rows(self, tile: Tile) -> tuple[int, int, int]:
        """Return (first input row, rows, top padding) that output rows of a tile need."""
        first = tile.row * self.stride[0] - self.pad[0]
        last = (
            (tile.row + tile.rows - 1) * self.stride[0]
            + (self.kernel[0] - 1) * self.dilation[0]
            - self.pad[0]
        )
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
        byte = start * self.line * (self.argb or ATOM)
        if byte % ATOM:
            raise Refused("an ARGB tile does not start on an atom")
        task.set(
            "CNA",
            "CONV_CON1",
            CONV_MODE=3 if self.depthwise else 0,
            ARGB_IN=7 + self.argb if self.argb else 0,
            NONALIGN_DMA=int(self.argb > 0),
            GROUP_LINE_OFF=int(self.group_line_off or self.argb > 0),
        )
        task.set("CNA", "CONV_CON2", FEATURE_GRAINS=self.grains)
        task.set(
            "CNA",
            "CONV_CON3",
            CONV_Y_STRIDE=self.stride[0],
            CONV_X_STRIDE=self.stride[1],
            ATROUS_Y_DILATION=self.dilation[0] - 1,
            ATROUS_X_DILATION=self.dilation[1] - 1,
        )
        task.set("CNA", "DATA_SIZE0", DATAIN_WIDTH=self.width, DATAIN_HEIGHT=rows)
        real = (self.argb or self.channels) - 1
        task.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL_REAL=real % 64, DATAIN_CHANNEL=self.channels)
        task.set("CNA", "DATA_SIZE2", DATAOUT_WIDTH=self.out[1])
        task.set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=self.out[1] * tile.rows)
        task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=size)
        task.set("CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=self.weight_bytes(1))
        task.set(
            "CNA",
            "WEIGHT_SIZE2",
            WEIGHT_WIDTH=self.kernel[1],
            WEIGHT_HEIGHT=self.kernel[0],
            WEIGHT_KERNELS=1 if self.depthwise else kernels,
        )
        task.set(
            "CNA",
            "CBUF_CON0",
            DATA_BANK=self.data_bank,
            WEIGHT_BANK=self.weight_bank,
            WEIGHT_REUSE=weight_reuse,
            DATA_REUSE=data_reuse,
        )
        entries = self.width * rows if self.argb else self.row_entries
        task.set("CNA", "CBUF_CON1", DATA_ENTRIES=entries % (1 << 15))
        if self.cvt:
            for register, values in self.cvt.items():
                task.set("CNA", register, **values)
        else:
            task.set("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
        task.set("CNA", "PAD_CON0", PAD_TOP=top, PAD_LEFT=self.pad[1])
        task.set("CNA", "PAD_CON1", PAD_VALUE=self.pad_value)
        task.address("CNA", "FEATURE_DATA_ADDR", self.data + byte)
        task.address("CNA", "DCOMP_ADDR0", self.weights + offset)
        task.set("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
        task.set(
            "CNA", "DMA_CON1", LINE_STRIDE=self.line if self.group_line_off or self.argb else 4 * self.line
        )
        jump = self.surface - (self.line if self.group_line_off or self.argb else 4 * self.line)
        task.set("CNA", "DMA_CON2", SURF_STRIDE=0 if self.surf_stride_zero else jump)
        task.set("CNA", "FC_DATA_SIZE0", DMA_WIDTH=self.width, DMA_HEIGHT=rows)
        task.set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=self.channels)
        task.set("CORE", "MISC_CFG", DW_EN=int(self.depthwise), QD_EN=self.qd)
        task.set("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=tile.rows - 1, DATAOUT_WIDTH=self.out[1] - 1)
        group = 64 if self.depthwise else 32
        lanes = self.channels if self.depthwise else kernels
        task.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=-(-lanes // group) * group - 1)
        task.set("CORE", "CLIP_TRUNCATE", CLIP_TRUNCATE=self.clip[0], ROUND_TYPE=self.clip[1])


class ConvDrawer:
    """Draws convolution settings.

    Parameters
    ----------
    rng
        source of every choice.
    arena
        where features and weights go.
    budget
        upper bound on the formula cycles of a layer.
    """

    def __init__(self, rng: np.random.Generator, arena: Arena, budget: int = 12000) -> None:
        self.rng, self.arena, self.budget = rng, arena, budget
        self.largest = 24
        """Rows and columns of a map, at most (more in ARGB mode)."""

    def chance(self, p: float) -> bool:
        """Return True with probability p."""
        return bool(self.rng.random() < p)

    def integer(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return int(self.rng.integers(low, high, endpoint=True))

    def _count(self, high: int) -> int:
        """Draw a channel or kernel count: whole groups often, odd ones too."""
        if self.chance(0.4):
            return int(self.rng.choice([c for c in (16, 32, 48, 64, 96, 128) if c <= high]))
        return self.integer(1, high)

    def draw(self, kind: str) -> ConvDraw:
        """Draw a layer of kind ``conv``, ``depthwise``, ``argb`` or ``deep`` (weights beyond their banks).

        Raises
        ------
        Refused
            when the draw breaks a rule of the hardware or the budget.
        """
        if kind == "deep":
            return self._deep()
        depthwise, argb = kind == "depthwise", self.integer(1, 4) if kind == "argb" else 0
        kernel = (
            int(self.rng.choice([1, 1, 2, 3, 3, 3, 4, 5, 7])),
            int(self.rng.choice([1, 1, 2, 3, 3, 3, 4, 5, 7])),
        )
        if self.chance(0.6):
            kernel = (kernel[0], kernel[0])
        stride = (self.integer(1, 3), self.integer(1, 3)) if self.chance(0.5) else (1, 1)
        if self.chance(0.05):
            stride = (self.integer(1, 7), self.integer(1, 7))
        dilation = (self.integer(1, 3), self.integer(1, 3)) if self.chance(0.2) else (1, 1)
        reach = [(kernel[i] - 1) * dilation[i] + 1 for i in (0, 1)]
        top, left = (min(15, self.integer(0, r - 1)) if self.chance(0.6) else 0 for r in reach)
        pad = (top, left)
        largest = 40 if argb else self.largest
        height, width = (self.integer(1, largest) for _ in range(2))
        if self.chance(0.1):
            height, width = (1, width) if self.chance(0.5) else (height, 1)
        out = []
        for size, r, p, s in zip((height, width), reach, pad, stride, strict=True):
            trailing = min(15, self.integer(0, r - 1)) if self.chance(0.7) else 0
            count = (size + p + trailing - r) // s + 1
            if size + p + trailing < r:
                raise Refused("the kernel reaches beyond the padded image")
            out.append(count)
        channels = 16 if argb else self._count(160 if depthwise else 128)
        if argb and self.chance(0.2):
            channels = self.integer(argb, 32)
        kernels = 1 if depthwise else self._count(96)
        c = ConvDraw(
            depthwise, argb, height, width, channels, kernels, kernel, stride, dilation, pad, (out[0], out[1])
        )
        if c.cycles() > self.budget:
            raise Refused(f"{c.cycles()} cycles are over the budget")
        self._layout(c)
        self._banks(c)
        c.grains = self.integer(0, height + 3)
        c.qd = int(self.chance(0.85))
        c.clip = (self.integer(1, 4), self.integer(0, 1)) if self.chance(0.3) else (0, 0)
        value = self.integer(0, 255) if self.chance(0.7) else 0
        c.pad_value = value * 0x01010101
        if depthwise and self.chance(0.3):  # byte 1 differs (H2.2)
            c.pad_value = value | self.integer(0, 255) << 8 | value << 16 | value << 24
        if argb:
            c.cvt = self._converter()
        self._fill(c)
        return c

    def _deep(self) -> ConvDraw:
        """Draw a small map with many channels whose kernels run through the ring of weight banks.

        With one stripe a kernel group may even exceed its banks (docs/hardware.md 2.4).
        """
        side = int(self.rng.choice([1, 3, 3]))
        channels, kernels = 32 * self.integer(3, 17) - self.integer(0, 31), self.integer(33, 128)
        height, width = self.integer(1, 7), self.integer(1, 7)
        pad = (side // 2, side // 2)
        c = ConvDraw(
            False, 0, height, width, channels, kernels, (side, side), (1, 1), (1, 1), pad, (height, width)
        )
        if c.cycles() > self.budget:
            raise Refused(f"{c.cycles()} cycles are over the budget")
        self._layout(c)
        group = c.weight_bytes(min(32, kernels))
        least = 1 if height * width <= 16 and self.chance(0.5) else -(-group // BANK_BYTES)
        data = -(-c.row_entries * height * 64 // BANK_BYTES)
        most = min(BANKS - data, -(-c.weight_bytes(kernels) // BANK_BYTES) - 1)
        if not 0 < least <= most:
            raise Refused("the kernels fit their banks, or a group does not")
        c.weight_bank = self.integer(least, min(most, least + 1))
        c.data_bank = self.integer(data, BANKS - c.weight_bank)
        c.grains = self.integer(0, height)
        c.qd = int(self.chance(0.5))
        c.pad_value = self.integer(0, 255) * 0x01010101
        self._fill(c)
        return c

    def lanes(self, c: ConvDraw) -> int:
        """Draw the output channels of the DPU for a layer: as many groups as CORE delivers."""
        if c.depthwise:
            return c.channels if self.chance(0.7) else -(-c.channels // 64) * 64
        if self.chance(0.75):
            return c.kernels
        low = (c.kernels - 1) // 32 * 32 + 1
        return self.integer(low, low + 31)

    def spread(self, c: ConvDraw) -> float:
        """Typical magnitude of an accumulator."""
        return 5000 * float(np.sqrt(c.taps * (1 if c.depthwise else c.argb or c.channels))) / 2.0 ** c.clip[0]

    def _layout(self, c: ConvDraw) -> None:
        """Choose pitches and reserve the features' memory."""
        if c.argb:
            c.line = -(-c.width // 16) * 16 if self.chance(0.7) else c.width + self.integer(0, 5)
            c.surface = c.line * c.height
            c.data = self.arena.alloc(c.line * c.height * c.argb, "features")
            return
        surfaces = c.padded_channels // ATOM
        c.group_line_off = self.chance(0.4)
        if c.group_line_off and self.chance(0.3):  # rows hold all surfaces of a pixel row (H3.5)
            c.surf_stride_zero = True
            c.line, c.surface = surfaces * c.width + self.integer(0, 2), c.width
        else:
            c.line = c.width + (self.integer(0, 4) if self.chance(0.4) else 0)
            c.surface = c.line * c.height + (self.integer(0, 7) if self.chance(0.4) else 0)
            if c.group_line_off and c.surface == c.line:
                c.surface += 1
        span = (surfaces - 1) * c.surface + (c.height - 1) * c.line + c.width
        c.data = self.arena.alloc(span * ATOM, "features")

    def _banks(self, c: ConvDraw) -> None:
        """Split the banks so that all features and all weights fit."""
        rows = 1 if c.argb else c.height
        data = -(-c.row_entries * rows * 64 // BANK_BYTES)
        weight = max(1, -(-c.weight_bytes(c.kernels) // BANK_BYTES))
        if data + weight > BANKS:
            raise Refused(f"{data} data and {weight} weight banks do not fit")
        c.data_bank = self.integer(data, BANKS - weight)
        c.weight_bank = BANKS - c.data_bank if self.chance(0.8) else self.integer(weight, BANKS - c.data_bank)

    def _converter(self) -> dict[str, dict[str, int]]:
        truncate = {f"CVT_TRUNCATE_{i}": self.integer(0, 16) for i in range(4)}
        add_first = self.integer(0, 1)
        cvt = {
            "CVT_CON0": {
                "CVT_BYPASS": int(self.chance(0.15)),
                "CVT_TYPE": add_first,
                "ROUND_TYPE": self.integer(0, 1),
                "DATA_SIGN": self.integer(0, 1),
                **truncate,
            },
            "CVT_CON5": {"PER_CHANNEL_CVT_EN": 0xFFFF if self.chance(0.8) else self.integer(0, 15)},
        }
        for i in range(4):
            shift = truncate[f"CVT_TRUNCATE_{i}"]
            scale = int(np.clip((1 << shift) * self.rng.uniform(-1.3, 1.3), -32768, 32767))
            offset = self.integer(-255, 255) if add_first else self.integer(-32768, 32767)
            cvt[f"CVT_CON{i + 1}"] = {f"CVT_SCALE{i}": scale % 65536, f"CVT_OFFSET{i}": offset % 65536}
        return cvt

    def _fill(self, c: ConvDraw) -> None:
        """Random weights (the features are whatever the arena holds)."""
        size = -(-c.weight_bytes(c.kernels) // ATOM) * ATOM
        values = self.rng.integers(-128, 128, size).astype(np.int8)
        if self.chance(0.1):
            values[:] = self.rng.choice(np.array([-128, 127], np.int8), size)
        c.weights = self.arena.place(values, "weights")
