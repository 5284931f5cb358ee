"""Random convolutions as registers, CBUF contents, weight stream and expected accumulators.

Everything is written element by element from docs/hardware.md, sections 2 and 3.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from rtl.config import NpuConfig

SLOTS = 16


@dataclass(kw_only=True)
class Conv:
    """One task.  `x` is (height, width, stored channels) int8, `w` (kernels, channels up to an atom, kh, kw).

    Depthwise: `w` is (channels up to 64, kh, kw).  `argb` is 0 or the number of interleaved channels.
    """

    height: int
    width: int
    channels: int
    kernels: int = 32
    kh: int = 1
    kw: int = 1
    stride_y: int = 1
    stride_x: int = 1
    dil_y: int = 1
    dil_x: int = 1
    pad_top: int = 0
    pad_left: int = 0
    out_h: int = 0
    out_w: int = 0
    pixels: int = 0
    depthwise: bool = False
    argb: int = 0
    pitch: int = 0
    spare_entries: int = 0
    pad_value: int = 0
    grains: int = 1
    weight_banks: int = 6
    seed: int = 0
    x: np.ndarray = field(init=False)
    w: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        if not self.out_h:
            span_y = self.height + 2 * self.pad_top - (self.kh - 1) * self.dil_y - 1
            self.out_h = max(1, span_y // self.stride_y + 1)
        if not self.out_w:
            span_x = self.width + 2 * self.pad_left - (self.kw - 1) * self.dil_x - 1
            self.out_w = max(1, span_x // self.stride_x + 1)
        self.pixels = self.pixels or self.out_h * self.out_w
        self.pitch = max(self.pitch, self.width)
        stored = self.argb or self.channels
        self.x = rng.integers(-128, 128, (self.height, self.width, stored), np.int8)
        if self.depthwise:
            self.w = rng.integers(-128, 128, (-(-self.channels // 64) * 64, self.kh, self.kw), np.int8)
        else:
            shape = (self.kernels, 16 * self.atoms, self.kh, self.kw)
            self.w = rng.integers(-128, 128, shape, np.int8)

    # ------------------------------------------------------------------ sizes

    @property
    def atoms(self) -> int:
        return -(-self.channels // 16)

    @property
    def groups(self) -> int:
        return -(-self.channels // 64) if self.depthwise else -(-self.kernels // 32)

    @property
    def stripes(self) -> int:
        return -(-self.pixels // SLOTS)

    @property
    def tiles(self) -> int:
        """Weight tiles of a kernel group."""
        return self.kh * self.kw * (1 if self.depthwise else -(-self.channels // 32))

    @property
    def row_entries(self) -> int:
        full, rest = divmod(self.atoms, 4)
        if rest == 3:
            full, rest = full + 1, 0
        return full * self.width + -(-rest * self.width // 4)

    def footprint(self) -> int:
        """CBUF entries of the features."""
        if self.argb:
            return -(-self.height * self.pitch * 4 * self._class() // 64)
        return (self.row_entries + self.spare_entries) * self.height

    def group_bytes(self) -> int:
        """Weight bytes of the first, largest kernel group."""
        if self.depthwise:
            return 64 * self.kh * self.kw
        return min(32, self.kernels) * 16 * self.atoms * self.kh * self.kw

    def _class(self) -> int:
        return {1: 1, 2: 2, 3: 4, 4: 4}[self.argb]

    # ------------------------------------------------------------------ what the hardware gets

    def registers(self) -> dict[str, dict[str, int]]:
        """CNA registers by name."""
        argb = {"ARGB_IN": 7 + self.argb, "NONALIGN_DMA": 1, "GROUP_LINE_OFF": 1} if self.argb else {}
        entries = self.pitch * self.height if self.argb else self.row_entries + self.spare_entries
        return {
            "CONV_CON1": {"CONV_MODE": 3 if self.depthwise else 0} | argb,
            "CONV_CON2": {"FEATURE_GRAINS": self.grains},
            "CONV_CON3": {
                "CONV_Y_STRIDE": self.stride_y,
                "CONV_X_STRIDE": self.stride_x,
                "ATROUS_Y_DILATION": self.dil_y - 1,
                "ATROUS_X_DILATION": self.dil_x - 1,
            },
            "DATA_SIZE0": {"DATAIN_WIDTH": self.width, "DATAIN_HEIGHT": self.height},
            "DATA_SIZE1": {"DATAIN_CHANNEL": self.channels},
            "DATA_SIZE2": {"DATAOUT_WIDTH": self.out_w},
            "DATA_SIZE3": {"DATAOUT_ATOMICS": self.pixels},
            "WEIGHT_SIZE0": {"WEIGHT_BYTES": len(self.weight_stream())},
            "WEIGHT_SIZE2": {
                "WEIGHT_WIDTH": self.kw,
                "WEIGHT_HEIGHT": self.kh,
                "WEIGHT_KERNELS": 1 if self.depthwise else self.kernels,
            },
            "CBUF_CON0": {"WEIGHT_BANK": self.weight_banks, "DATA_BANK": 12 - self.weight_banks},
            "CBUF_CON1": {"DATA_ENTRIES": entries % (1 << 15)},
            "PAD_CON0": {"PAD_TOP": self.pad_top, "PAD_LEFT": self.pad_left},
            "PAD_CON1": {"PAD_VALUE": self.pad_value},
            "DMA_CON1": {"LINE_STRIDE": self.pitch if self.argb else 4 * self.width},
        }

    def store_row(self, cbuf: np.ndarray, y: int) -> None:
        """Write one input row into the CBUF image (entries, 64 bytes)."""
        flat = cbuf.reshape(-1)
        if self.argb:
            size = 4 * self._class()
            for x in range(self.width):
                at = (y * self.pitch + x) * size
                flat[at : at + self.argb] = self.x[y, x]
            return
        row = np.zeros((self.width, 16 * self.atoms), np.int8)
        row[:, : self.channels] = self.x[y]
        full, rest = divmod(self.atoms, 4)
        if rest == 3:
            full, rest = full + 1, 0
        base = y * (self.row_entries + self.spare_entries)
        for x in range(self.width):
            for a in range(self.atoms):
                slab, j = divmod(a, 4)
                if slab < full:
                    entry, column = base + slab * self.width + x, j
                elif rest == 1:
                    entry, column = base + full * self.width + x // 4, x % 4
                else:
                    entry, column = base + full * self.width + x // 2, 2 * (x % 2) + j
                at = 64 * (entry % len(cbuf)) + 16 * column
                flat[at : at + 16] = row[x, 16 * a : 16 * a + 16]

    def weight_stream(self) -> bytes:
        """Weights in memory order."""
        out = bytearray()
        for g in range(self.groups):
            if self.depthwise:
                for r in range(self.kh):
                    for c in range(self.kw):
                        out += self.w[64 * g : 64 * g + 64, r, c].tobytes()
                continue
            mine = self.w[32 * g : 32 * g + 32]
            for first in range(0, mine.shape[1], 32):
                for r in range(self.kh):
                    for c in range(self.kw):
                        out += mine[:, first : first + 32, r, c].tobytes()
        return bytes(out)

    # ------------------------------------------------------------------ what must come out

    def expected(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Accumulators and window sums, int64 (groups, pixels, 64 lanes), and real lanes of each group."""
        lanes = 16 * self.atoms
        pad = np.zeros(lanes, np.int64)
        byte = [np.int8(np.uint8(self.pad_value >> (8 * n) & 255)) for n in range(2)]
        for c in range(self.channels):
            odd = self.depthwise and c % 64 < 32 and c % 2
            pad[c] = byte[1 if odd else 0]
        acc = np.zeros((self.groups, self.pixels, 64), np.int64)
        total = np.zeros((self.groups, self.pixels, 64), np.int64)
        real = []
        for p in range(self.pixels):
            oy, ox = divmod(p, self.out_w)
            for r in range(self.kh):
                for c in range(self.kw):
                    y = oy * self.stride_y + r * self.dil_y - self.pad_top
                    x = ox * self.stride_x + c * self.dil_x - self.pad_left
                    operand = pad
                    if 0 <= y < self.height and 0 <= x < self.width:
                        operand = np.zeros(lanes, np.int64)
                        operand[: self.x.shape[2]] = self.x[y, x]
                    for g in range(self.groups):
                        if self.depthwise:
                            mine = operand[64 * g : 64 * g + 64]
                            acc[g, p, : len(mine)] += mine * self.w[64 * g : 64 * g + len(mine), r, c]
                            total[g, p, : len(mine)] += mine
                        else:
                            mine = self.w[32 * g : 32 * g + 32, :, r, c].astype(np.int64)
                            acc[g, p, : len(mine)] += mine @ operand
                            total[g, p, :32] += operand.sum()
        for g in range(self.groups):
            left = self.channels - 64 * g if self.depthwise else self.kernels - 32 * g
            real.append(min(left, 64 if self.depthwise else 32))
        return acc, total, np.array(real)


def random_conv(rng: random.Random, config: NpuConfig, *, kind: str = "any") -> Conv:
    """Draw until a small task fits the buffer."""
    while True:
        what = kind if kind != "any" else rng.choice(("direct", "direct", "depthwise", "argb"))
        kh, kw = rng.choice(((1, 1), (1, 1), (3, 3), (2, 3), (1, 4), (5, 1)))
        values = {
            "height": rng.randint(1, 8),
            "width": rng.randint(1, 9),
            "channels": rng.choice((1, 3, 16, 17, 31, 32, 33, 40, 48, 64, 70, 80, 100, 130)),
            "kernels": rng.choice((1, 2, 15, 16, 31, 32, 33, 34, 64, 70)),
            "kh": kh,
            "kw": kw,
            "stride_y": rng.randint(1, 3),
            "stride_x": rng.randint(1, 3),
            "dil_y": rng.choice((1, 1, 2, 3)),
            "dil_x": rng.choice((1, 1, 2, 3)),
            "pad_top": rng.choice((0, 1, 2)),
            "pad_left": rng.choice((0, 1, 3)),
            "pad_value": rng.choice((0, 0x7F7F7F7F, 0x80808080, rng.getrandbits(32))),
            "grains": rng.choice((0, 1, 2, 100)),
            "spare_entries": rng.choice((0, 0, 3)),
            "weight_banks": rng.randint(1, 11),
            "depthwise": what == "depthwise",
            "seed": rng.getrandbits(32),
        }
        if what == "argb":
            values |= {"argb": rng.randint(1, 4), "channels": 16, "pitch": rng.randint(1, 16)}
        conv = Conv(**values)
        if rng.random() < 0.2:
            conv.pixels = max(1, conv.pixels - rng.randint(0, 5))
        cycles = 16 * conv.tiles * conv.stripes * conv.groups
        banks = config.bank_entries
        if conv.footprint() > banks * (12 - conv.weight_banks) or cycles > 1000:
            continue
        if conv.group_bytes() > 64 * banks * conv.weight_banks and conv.stripes > 1:
            continue
        return conv
