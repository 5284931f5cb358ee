"""Random convolutions as registers, CBUF contents, weight stream and expected accumulators.

Everything is computed element by element from [HW 3], [HW 4], [HW 5], [HW 6].  The sequence
controller only moves bits, so elements of every type are treated as signed integers of their width here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rkcosim.spec.config import NpuConfig

SLOTS = 16


@dataclass(frozen=True)
class Kind:
    """A row of the table of types: bits per element, channels per atom and per channel group, kernels per
    kernel group, atoms per kernel of a full tile.
    """

    bits: int
    atom: int
    channels: int
    kernels: int
    tile: int

    @property
    def wide(self) -> bool:
        return self.bits == 16


KINDS = {
    6: Kind(4, 32, 32, 64, 1),
    0: Kind(8, 16, 32, 32, 2),
    1: Kind(16, 8, 32, 16, 4),
    2: Kind(16, 8, 32, 16, 4),
    3: Kind(16, 8, 32, 16, 4),
    7: Kind(32, 4, 16, 16, 4),
}
"""Kinds by precision code of CNA and CORE."""


def pack(values: np.ndarray, bits: int) -> bytes:
    """Return signed elements as bytes in memory order; 4-bit elements are two per byte, the even one low."""
    flat = np.asarray(values, np.int64).reshape(-1)
    if bits == 4:
        nibbles = (flat & 15).astype(np.uint8)
        return (nibbles[::2] | nibbles[1::2] << 4).tobytes()
    return flat.astype(f"<i{bits // 8}").tobytes()


def unpack(raw: bytes, bits: int) -> np.ndarray:
    """Return bytes as signed elements, int64."""
    if bits == 4:
        bytes_ = np.frombuffer(raw, np.uint8).astype(np.int64)
        return (np.stack([bytes_ & 15, bytes_ >> 4], axis=1).reshape(-1) ^ 8) - 8
    return np.frombuffer(raw, f"<i{bits // 8}").astype(np.int64)


@dataclass(kw_only=True)
class Conv:
    """One task.  `x` is (height, width, stored channels), `w` (kernels, channels of whole atoms, kh, kw).

    Depthwise: `w` is (channels of the weight blocks, kh, kw).  `argb` is 0 or the number of interleaved
    channels.  `spread_y` and `spread_x` are the distance of input pixels of a transposed convolution, 0
    for an ordinary one.  Entries of CBUF from `data_entries` on hold no features.
    """

    height: int
    width: int
    channels: int
    precision: int = 0
    kernels: int = 32
    kh: int = 1
    kw: int = 1
    stride_y: int = 1
    stride_x: int = 1
    dil_y: int = 1
    dil_x: int = 1
    spread_y: int = 0
    spread_x: int = 0
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
    data_entries: int = 1 << 13
    seed: int = 0
    x: np.ndarray = field(init=False)
    w: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        if not self.out_h:
            span_y = self.tall + 2 * self.pad_top - (self.kh - 1) * self.dil_y - 1
            self.out_h = max(1, span_y // self.stride_y + 1)
        if not self.out_w:
            span_x = self.broad + 2 * self.pad_left - (self.kw - 1) * self.dil_x - 1
            self.out_w = max(1, span_x // self.stride_x + 1)
        self.pixels = self.pixels or self.out_h * self.out_w
        self.pitch = max(self.pitch, self.width)
        self.x = self.draw(rng, (self.height, self.width, self.argb or self.channels))
        if self.depthwise:
            atoms = self.atoms + (self.atoms % 4 == 3)
            self.w = self.draw(rng, (self.kind.atom * atoms, self.kh, self.kw))
        else:
            atoms = self.atoms + (self.kind.tile == 4 and self.atoms % 4 == 3)
            self.w = self.draw(rng, (self.kernels, self.kind.atom * atoms, self.kh, self.kw))

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        """Return random elements of the type."""
        half = 1 << (self.kind.bits - 1)
        return rng.integers(-half, half, shape, np.int64)

    # ------------------------------------------------------------------ sizes

    @property
    def kind(self) -> Kind:
        return KINDS[self.precision]

    @property
    def tall(self) -> int:
        """Rows of the input including the pixels that a transposed convolution inserts."""
        return (self.height - 1) * max(1, self.spread_y) + 1

    @property
    def broad(self) -> int:
        return (self.width - 1) * max(1, self.spread_x) + 1

    @property
    def atoms(self) -> int:
        return -(-self.channels // self.kind.atom)

    @property
    def groups(self) -> int:
        return -(-self.channels // 64) if self.depthwise else -(-self.kernels // self.kind.kernels)

    @property
    def stripes(self) -> int:
        return -(-self.pixels // SLOTS)

    @property
    def tiles(self) -> int:
        """Weight tiles of a kernel group."""
        return self.kh * self.kw * (1 if self.depthwise else -(-self.channels // self.kind.channels))

    @property
    def row_entries(self) -> int:
        full, rest = divmod(self.atoms, 4)
        if rest == 3:
            full, rest = full + 1, 0
        return full * self.width + -(-rest * self.width // 4)

    def footprint(self) -> int:
        """CBUF entries of the features."""
        if self.argb:
            return -(-self.height * self.pitch * self._slot() // 64)
        return (self.row_entries + self.spare_entries) * self.height

    def group_bytes(self) -> int:
        """Weight bytes of the first, largest kernel group."""
        if self.depthwise:
            return len(self.w[:64]) * self.kind.bits // 8 * self.kh * self.kw
        return min(self.kind.kernels, self.kernels) * self.w[0].size * self.kind.bits // 8

    def _slot(self) -> int:
        """CBUF bytes of a pixel in ARGB mode."""
        return 4 * self.kind.bits // 8 * {1: 1, 2: 2, 3: 4, 4: 4}[self.argb]

    # ------------------------------------------------------------------ inputs of the hardware

    def registers(self) -> dict[str, dict[str, int]]:
        """CNA registers by name."""
        argb = {"ARGB_IN": 7 + self.argb, "NONALIGN_DMA": 1, "GROUP_LINE_OFF": 1} if self.argb else {}
        entries = self.pitch * self.height if self.argb else self.row_entries + self.spare_entries
        types = {"IN_PRECISION": self.precision, "PROC_PRECISION": self.precision}
        deconv = {"DECONV": 1} if self.spread_y or self.spread_x else {}
        return {
            "CONV_CON1": {"CONV_MODE": 3 if self.depthwise else 0} | types | argb | deconv,
            "CONV_CON2": {"FEATURE_GRAINS": self.grains},
            "CONV_CON3": {
                "CONV_Y_STRIDE": self.stride_y,
                "CONV_X_STRIDE": self.stride_x,
                "ATROUS_Y_DILATION": self.dil_y - 1,
                "ATROUS_X_DILATION": self.dil_x - 1,
                "DECONV_Y_STRIDE": max(1, self.spread_y) - 1,
                "DECONV_X_STRIDE": max(1, self.spread_x) - 1,
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
            for x in range(self.width):
                pixel = np.frombuffer(pack(self.x[y, x], self.kind.bits), np.int8)
                at = (y * self.pitch + x) * self._slot()
                flat[at : at + len(pixel)] = pixel
            return
        row = np.zeros((self.width, self.kind.atom * self.atoms), np.int64)
        row[:, : self.channels] = self.x[y]
        stored = np.frombuffer(pack(row, self.kind.bits), np.int8).reshape(self.width, self.atoms, 16)
        for x in range(self.width):
            for a in range(self.atoms):
                entry, column = self._entry(y, x, a)
                at = 64 * (entry % len(cbuf)) + 16 * column
                if entry < self.data_entries:
                    flat[at : at + 16] = stored[x, a]

    def _entry(self, y: int, x: int, atom: int) -> tuple[int, int]:
        """Return the entry of CBUF with an atom of a pixel, and the atom's place in it."""
        full, rest = divmod(self.atoms, 4)
        if rest == 3:
            full, rest = full + 1, 0
        base = y * (self.row_entries + self.spare_entries)
        slab, j = divmod(atom, 4)
        if slab < full:
            return base + slab * self.width + x, j
        if rest == 1:
            return base + full * self.width + x // 4, x % 4
        return base + full * self.width + x // 2, 2 * (x % 2) + j

    @cached_property
    def _stream(self) -> bytes:
        parts = []
        taps = [(r, c) for r in range(self.kh) for c in range(self.kw)]
        if self.depthwise:
            block = 32 if self.kind.wide else 64
            for first in range(0, len(self.w), block):
                parts += [self.w[first : first + block, r, c] for r, c in taps]
        else:
            for first in range(0, self.kernels, self.kind.kernels):
                mine = self.w[first : first + self.kind.kernels]
                for lane in range(0, mine.shape[1], self.kind.channels):
                    parts += [mine[:, lane : lane + self.kind.channels, r, c] for r, c in taps]
        return b"".join(pack(part, self.kind.bits) for part in parts)

    def weight_stream(self) -> bytes:
        """Weights in memory order."""
        return self._stream

    # ------------------------------------------------------------------ expected outputs

    def pads(self) -> np.ndarray:
        """The pad value of each stored lane."""
        bits = self.kind.bits

        def element(shift: int) -> int:
            value = self.pad_value >> shift & ((1 << bits) - 1)
            return value - (1 << bits) if value >> (bits - 1) else value

        pad = np.zeros(self.kind.atom * self.atoms, np.int64)
        for c in range(self.channels):
            odd = self.precision == 0 and self.depthwise and c % 64 < 32 and c % 2
            pad[c] = element(8 if odd else 0)
        return pad

    def place(self, p: int, r: int, c: int) -> tuple[int, int] | None:
        """Return row and column of the input of output pixel `p` for tap (r, c); None: the pad value."""
        oy, ox = divmod(p, self.out_w)
        y = oy * self.stride_y + r * self.dil_y - self.pad_top
        x = ox * self.stride_x + c * self.dil_x - self.pad_left
        if not (0 <= y < self.tall and 0 <= x < self.broad):
            return None
        y, between_y = divmod(y, max(1, self.spread_y))
        x, between_x = divmod(x, max(1, self.spread_x))
        return None if between_y or between_x else (y, x)

    def rows_in_order(self) -> list[int | None]:
        """Return the input row that each slot of the task reads, in order; None: it reads none.

        The order is that of [HW 5.3]: groups, stripes, channel groups, taps, and 16 pixels of a stripe.
        """
        taps = [(r, c) for r in range(self.kh) for c in range(self.kw)]
        places = [[self.place(p, r, c) if p < self.pixels else None for p in range(SLOTS * self.stripes)]
                  for r, c in taps]  # fmt: skip
        again = self.tiles // len(taps)
        group = [
            place[0] if place else None
            for first in range(0, SLOTS * self.stripes, SLOTS)
            for _ in range(again)
            for tap in places
            for place in tap[first : first + SLOTS]
        ]
        return group * self.groups

    def operand(self, p: int, r: int, c: int) -> np.ndarray:
        """Return the channels that output pixel `p` uses for tap (r, c)."""
        place = self.place(p, r, c)
        if place is None:
            return self.pads()
        lanes = np.zeros(self.kind.atom * self.atoms, np.int64)
        lanes[: self.x.shape[2]] = self.x[place]
        for atom in range(self.atoms) if self.data_entries < self.footprint() else ():
            if self._entry(*place, atom)[0] >= self.data_entries:
                lanes[atom * self.kind.atom : (atom + 1) * self.kind.atom] = 0
        return lanes

    def expected(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Accumulators and window sums, int64 (groups, pixels, 64 lanes), and real lanes of each group."""
        acc = np.zeros((self.groups, self.pixels, 64), np.int64)
        total = np.zeros((self.groups, self.pixels, 64), np.int64)
        count = self.kind.kernels
        lanes = self.kind.atom * self.atoms
        for p in range(self.pixels):
            for r in range(self.kh):
                for c in range(self.kw):
                    operand = self.operand(p, r, c)
                    for g in range(self.groups):
                        if self.depthwise:
                            mine = operand[64 * g : 64 * g + 64]
                            factor = self.w[64 * g : 64 * g + 64, r, c]
                            both = min(len(mine), len(factor))
                            acc[g, p, :both] += mine[:both] * factor[:both]
                            total[g, p, : len(mine)] += mine
                        else:
                            mine = self.w[count * g : count * g + count, :lanes, r, c]
                            acc[g, p, : len(mine)] += (mine * operand).sum(axis=1)
                            total[g, p, :count] += operand.sum()
        real = []
        for g in range(self.groups):
            left = self.channels - 64 * g if self.depthwise else self.kernels - count * g
            real.append(min(left, 64 if self.depthwise else count))
        return acc, total, np.array(real)


def random_conv(
    rng: random.Random,
    config: NpuConfig,
    *,
    kind: str = "any",
    precision: int | None = None,
    budget: int = 1000,
) -> Conv:
    """Draw until a small task, of at most `budget` slots, fits the buffer."""
    while True:
        code = precision if precision is not None else rng.choice((0, 0, 1, 2, 3, 6, 7))
        what = kind if kind != "any" else rng.choice(("direct", "direct", "depthwise", "argb"))
        if code in (6, 7):
            what = "direct"
        of = KINDS[code]
        kh, kw = rng.choice(((1, 1), (1, 1), (3, 3), (2, 3), (1, 4), (5, 1)))
        atom, many = of.atom, of.kernels
        values = {
            "precision": code,
            "height": rng.randint(1, 8),
            "width": rng.randint(1, 9),
            "channels": rng.choice(
                (1, 3, atom, atom + 1, 31, 32, 33, 40, 64, 70, 80, 100, 130, atom * rng.randint(1, 9))
            ),
            "kernels": rng.choice(
                (1, 2, many // 2 - 1, many // 2, many - 1, many, many + 1, many + 2, 64, 70)
            ),
            "kh": kh,
            "kw": kw,
            "stride_y": rng.choice((1, 1, 2, 3, 7)),
            "stride_x": rng.choice((1, 1, 2, 3, 7)),
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
        if rng.random() < 0.25:
            values |= {"spread_y": rng.choice((0, 1, 2, 4, 8)), "spread_x": rng.choice((0, 1, 2, 4, 8))}
            values |= {"height": rng.randint(1, 4), "width": rng.randint(1, 4)}
        if what == "argb":
            values |= {"argb": rng.randint(1, 4), "channels": of.atom, "pitch": rng.randint(1, 16)}
        conv = Conv(**values)
        if rng.random() < 0.2:
            conv.pixels = max(1, conv.pixels - rng.randint(0, 5))
        cycles = 16 * conv.tiles * conv.stripes * conv.groups
        banks = config.bank_entries
        if conv.footprint() > banks * (12 - conv.weight_banks) or cycles > budget:
            continue
        if conv.group_bytes() > 64 * banks * conv.weight_banks and conv.stripes > 1:
            continue
        if conv.depthwise and conv.kind.wide and 64 * (kh * kw + 1) > 64 * banks * conv.weight_banks:
            continue
        return conv
