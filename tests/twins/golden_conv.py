"""Convolutions for the golden device, and CORE's expected output, element by element in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from rkcosim.golden.task import GoldenDevice
from rkcosim.spec.types import BF16, INT8, TF32, ElementType
from tests.makers.golden_bench import ELEMENT as WEIGHTS
from tests.makers.golden_bench import MAIN, Program, cube, device, put
from tests.twins.exact_sums import tile_sum

Pair = tuple[int, int]


def out_size(size: Pair, kernel: Pair, *, spread: Pair = (1, 1), more: Pair = (0, 0)) -> Pair:
    """Output size of a stride-1 convolution with `padding` rows and columns of padding in total."""
    real = [(size[i] - 1) * spread[i] + 1 + more[i] - kernel[i] + 1 for i in (0, 1)]
    return real[0], real[1]


@dataclass(frozen=True)
class Case:
    """One convolution; sizes as (rows, columns)."""

    kind: ElementType
    channels: int
    kernels: int
    size: Pair
    kernel: Pair
    out: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    spread: Pair | None = None
    """Distance of input pixels, with DECONV."""
    pad: Pair = (0, 0)
    pad_word: int = 0
    depthwise: bool = False
    clip: Pair = (0, 0)
    """CLIP_TRUNCATE and ROUND_TYPE."""
    qd: int = 1
    surface: int | None = None
    """Surface pitch in atoms; tight by default, rows are always tight."""
    group_line_off: bool = False
    special: float = 0.0
    """Share of infinities, NaNs and zeros among floats."""
    fields: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    @property
    def outputs(self) -> int:
        """Output channels."""
        return self.channels if self.depthwise else self.kernels

    @property
    def group(self) -> int:
        """Output channels per group."""
        return 64 if self.depthwise else self.kind.kernels

    @property
    def atoms(self) -> int:
        """Atoms per pixel."""
        return -(-self.channels // self.kind.per_atom)

    @property
    def tiles(self) -> list[int]:
        """Weights of a kernel in each channel group, in memory order."""
        left, full, out = self.atoms, self.kind.tile_atoms, []
        while left > 0:
            atoms = min(left, full)
            out.append((4 if atoms == 3 else atoms) * self.kind.per_atom)
            left -= full
        return out

    @property
    def block(self) -> int:
        """Channels of a whole depthwise weight block."""
        return 64 if self.kind is INT8 else 32

    @property
    def stored(self) -> int:
        """Channels of depthwise weights in memory: whole atoms, with three atoms stored as four."""
        return (self.atoms + (self.atoms % 4 == 3)) * self.kind.per_atom


def draw_bits(rng: np.random.Generator, case: Case) -> int:
    """Draw one element as bits; floats have similar sizes and are sometimes special."""
    kind = case.kind
    if not kind.is_float:
        return int(rng.integers(1 << kind.bits))
    roll = rng.random()
    wide = int(np.float32(rng.normal() * 2.0 ** rng.integers(-3, 4)).view(np.uint32))
    if roll < case.special:
        wide = int(rng.choice([0x7F800000, 0xFF800000, 0x7FC00000, 0, 0x80000000]))
    if kind is TF32:
        return wide
    if kind is BF16:
        return wide >> 16
    return int(np.uint32(wide).view(np.float32).astype(np.float16).view(np.uint16))


class Layer:
    """A case with its data."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.case = case
        rows, columns = case.size
        lanes = case.atoms * case.kind.per_atom
        self.x = [[[draw_bits(rng, case) for _ in range(columns)] for _ in range(rows)] for _ in range(lanes)]
        taps = case.kernel[0] * case.kernel[1]
        if case.depthwise:
            self.w = [[[draw_bits(rng, case)] for _ in range(taps)] for _ in range(case.stored)]
        else:
            lanes = sum(case.tiles)
            self.w = [
                [[draw_bits(rng, case) for _ in range(lanes)] for _ in range(taps)]
                for _ in range(case.kernels)
            ]

    def stream(self) -> list[int]:
        """Weights in memory order."""
        case, w = self.case, self.w
        taps = range(case.kernel[0] * case.kernel[1])
        if case.depthwise:
            blocks = [w[b : b + case.block] for b in range(0, len(w), case.block)]
            return [channel[tap][0] for block in blocks for tap in taps for channel in block]
        out, group = [], case.kind.kernels
        for g in range(0, case.kernels, group):
            first = 0
            for count in case.tiles:
                for tap in taps:
                    for k in range(g, min(g + group, case.kernels)):
                        out += w[k][tap][first : first + count]
                first += count
        return out

    def store(self, dev: GoldenDevice) -> None:
        """Write features and weights."""
        case, bits = self.case, self.case.kind.bits
        rows, columns = case.size
        surface = rows * columns if case.surface is None else case.surface
        base = MAIN - min(0, surface) * 16 * (case.atoms - 1)
        put(dev, base, bits, (len(self.x), rows, columns), lambda c, y, x: self.x[c][y][x], columns, surface)
        dev.memory.write(WEIGHTS, pack(self.stream(), bits))

    # -- output of CORE -----------------------------------------------------------------------------

    def place(self, oy: int, ox: int, kr: int, kc: int) -> str | Pair:
        """Return the input pixel of a tap: its position, or "pad"."""
        case = self.case
        spread = case.spread or (1, 1)
        at = []
        for axis, (out, tap) in enumerate(((oy, kr), (ox, kc))):
            at.append(out * case.stride[axis] + tap * case.dilation[axis] - case.pad[axis])
        if any(not 0 <= at[i] < (case.size[i] - 1) * spread[i] + 1 for i in (0, 1)):
            return "pad"
        if any(at[i] % spread[i] for i in (0, 1)):
            return "pad"
        return at[0] // spread[0], at[1] // spread[1]

    def operand(self, c: int, place: str | Pair) -> int:
        """Return the element of a lane as bits."""
        case = self.case
        if c >= case.channels:
            return 0
        if place == "pad":
            byte = int(case.depthwise and case.kind is INT8 and c % 64 < 32 and c % 2 == 1)
            return case.pad_word >> 8 * byte & ((1 << case.kind.bits) - 1)
        return self.x[c][place[0]][place[1]]

    def expect(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return accumulators (48 bits) and window sums (32 bits) of all outputs, [pixel][output channel]."""
        case = self.case
        accs, sums = [], []
        for pixel in range(case.out[0] * case.out[1]):
            places = [
                self.place(*divmod(pixel, case.out[1]), kr, kc)
                for kr in range(case.kernel[0])
                for kc in range(case.kernel[1])
            ]
            results = [self._one(places, k) for k in range(case.outputs)]
            accs.append([acc for acc, _ in results])
            sums.append([total if case.qd else 0 for _, total in results])
        return accs, sums

    def _one(self, places: list, k: int) -> Pair:
        case = self.case
        if case.kind.is_float:
            return signed(self._floats(places, k), 32) % (1 << 48), 0
        acc = total = 0
        for tap, place in enumerate(places):
            lanes = [k] if case.depthwise else range(case.channels)
            for lane, c in enumerate(lanes):
                x = signed(self.operand(c, place), case.kind.bits)
                acc += x * signed(self.w[k][tap][lane], case.kind.bits)
                total += x
        return acc % (1 << 48), total % (1 << 32)

    def _floats(self, places: list, k: int) -> int:
        case = self.case
        shift = 13 if case.kind is TF32 else 0
        acc = np.float32(0)
        groups = [1] if case.depthwise else case.tiles
        first = 0
        with np.errstate(all="ignore"):
            for count in groups:
                for tap, place in enumerate(places):
                    lanes = [k] if case.depthwise else range(first, first + count)
                    x = [self.operand(c, place) >> shift for c in lanes]
                    w = [bits >> shift for bits in self.w[k][tap][first : first + count]]
                    acc = np.float32(acc + np.float32(tile_sum(case.kind, x, w)))
                first += count
        return 0x7FC00000 if acc != acc else int(acc.view(np.uint32))


def signed(value: int, bits: int) -> int:
    """Two's complement."""
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def clip(value: int, setting: Pair) -> int:
    """CLIP_TRUNCATE and saturation."""
    shift, up = setting
    exact = Fraction(value, 1 << shift)
    rounded = (exact + Fraction(1, 2)).__floor__() if up and shift else round(exact)
    return max(-(1 << 31), min((1 << 31) - 1, rounded))


def pack(elements: list[int], bits: int) -> bytes:
    """Return elements as bytes, low nibble first, padded to whole atoms."""
    if bits == 4:
        elements = [a | b << 4 for a, b in zip(elements[::2], elements[1::2], strict=True)]
    raw = b"".join(e.to_bytes(max(1, bits // 8), "little") for e in elements)
    return raw + bytes(-len(raw) % 16)


def program(case: Case) -> Program:
    """Return the task: features at MAIN, weights at ELEMENT; the DPU passes 32 bits through."""
    p = Program("CNA", "CORE", "DPU")
    kind, code = case.kind, case.kind.code
    rows, columns = case.size
    atoms = case.atoms
    full, rest = divmod(atoms, 4)
    entries = (full + 1) * columns if rest == 3 else full * columns + -(-rest * columns // 4)
    surface = rows * columns if case.surface is None else case.surface
    stride = columns if case.group_line_off else 4 * columns
    lanes = sum(case.tiles) * case.kernels
    if case.depthwise:
        lanes = case.stored
    p.set("CNA", "CONV_CON1", CONV_MODE=3 * case.depthwise, IN_PRECISION=code, PROC_PRECISION=code)
    p.set("CNA", "CONV_CON1", GROUP_LINE_OFF=int(case.group_line_off), DECONV=int(case.spread is not None))
    p.set("CNA", "CONV_CON2", FEATURE_GRAINS=rows)
    p.set("CNA", "CONV_CON3", CONV_Y_STRIDE=case.stride[0], CONV_X_STRIDE=case.stride[1])
    p.set("CNA", "CONV_CON3", ATROUS_Y_DILATION=case.dilation[0] - 1, ATROUS_X_DILATION=case.dilation[1] - 1)
    if case.spread:
        p.set("CNA", "CONV_CON3", DECONV_Y_STRIDE=case.spread[0] - 1, DECONV_X_STRIDE=case.spread[1] - 1)
    p.set("CNA", "DATA_SIZE0", DATAIN_WIDTH=columns, DATAIN_HEIGHT=rows)
    p.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL=case.channels)
    p.set("CNA", "DATA_SIZE2", DATAOUT_WIDTH=case.out[1])
    p.set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=case.out[0] * case.out[1])
    p.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=lanes * case.kernel[0] * case.kernel[1] * kind.bits // 8)
    p.set("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=case.kernel[1], WEIGHT_HEIGHT=case.kernel[0])
    p.set("CNA", "WEIGHT_SIZE2", WEIGHT_KERNELS=1 if case.depthwise else case.kernels)
    p.set("CNA", "CBUF_CON0", DATA_BANK=4, WEIGHT_BANK=8)
    p.set("CNA", "CBUF_CON1", DATA_ENTRIES=entries)
    p.set("CNA", "CVT_CON0", CVT_BYPASS=1)
    p.set("CNA", "PAD_CON0", PAD_TOP=case.pad[0], PAD_LEFT=case.pad[1])
    p.set("CNA", "PAD_CON1", PAD_VALUE=case.pad_word)
    p.set("CNA", "FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=MAIN - min(0, surface) * 16 * (atoms - 1))
    p.set("CNA", "DCOMP_ADDR0", DECOMPRESS_ADDR0=WEIGHTS >> 4)
    p.set("CNA", "DMA_CON1", LINE_STRIDE=stride)
    p.set("CNA", "DMA_CON2", SURF_STRIDE=surface - stride)
    p.set("CNA", "FC_DATA_SIZE0", DMA_WIDTH=columns, DMA_HEIGHT=rows)
    p.set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=case.channels)
    p.set("CORE", "MISC_CFG", DW_EN=int(case.depthwise), QD_EN=case.qd, PROC_PRECISION=code)
    p.set("CORE", "CLIP_TRUNCATE", CLIP_TRUNCATE=case.clip[0], ROUND_TYPE=case.clip[1])
    dpu = 5 if kind is TF32 else code
    cube(p, (case.outputs, *case.out), dpu, 5 if kind.is_float else 4, depthwise=case.depthwise)
    wide = 32 if case.depthwise and kind.bits == 16 else case.group
    p.set("DPU", "SURFACE_ADD", SURF_ADD=wide // 4 * case.out[0] * case.out[1])
    for (block, register), values in case.fields.items():
        p.set(block, register, **values)
    return p


class Recorder:
    """An observer that stores everything."""

    def __init__(self) -> None:
        self.octets: list[tuple[list[int], list[int]]] = []
        self.images: dict[str, dict[int, bytes]] = {}

    def cbuf(self, task: int, kind: str, numbers: np.ndarray, entries: np.ndarray, held: np.ndarray) -> None:
        """Store entries by number."""
        assert entries.shape == held.shape == (numbers.size, 64) and entries.dtype == np.uint8
        assert held.any(axis=1).all()
        self.images[kind] = {int(n): e.tobytes() for n, e in zip(numbers, entries, strict=True)}

    def core(self, task: int, octet: int, acc: np.ndarray, sum: np.ndarray) -> None:
        """Store octets in order."""
        assert octet == len(self.octets)
        self.octets.append((acc.tolist(), sum.tolist()))

    def lanes(self, pixels: int, groups: int, octets: int) -> tuple[list[list[int]], list[list[int]]]:
        """Return the octets combined: [pixel][lane] of accumulators and of sums."""
        assert len(self.octets) == pixels * groups * octets
        accs: list[list[int]] = [[] for _ in range(pixels)]
        sums: list[list[int]] = [[] for _ in range(pixels)]
        for at, (acc, total) in enumerate(self.octets):
            pixel = at // octets % pixels
            accs[pixel] += acc
            sums[pixel] += total
        return accs, sums


def with_fields(case: Case, block: str, register: str, **values: int) -> Case:
    """Return a case with additional fields set."""
    merged = {**case.fields.get((block, register), {}), **values}
    return replace(case, fields={**case.fields, (block, register): merged})


def run(case: Case, layer: Layer, *, strict: bool = True) -> tuple[Recorder, list]:
    """Run a case; return the observations, and (code, register) of the findings."""
    dev = device(strict)
    dev.observer = recorder = Recorder()
    layer.store(dev)
    program(case).run(dev)
    return recorder, [(f.code, f.register.split(".")[0]) for f in dev.findings]


def check(case: Case, seed: int = 0) -> Recorder:
    """Compare every lane that CORE outputs."""
    layer = Layer(case, np.random.default_rng(seed))
    recorder, _ = run(case, layer)
    pixels, groups = case.out[0] * case.out[1], -(-case.outputs // case.group)
    accs, sums = recorder.lanes(pixels, groups, case.group // 8)
    want_accs, want_sums = layer.expect()
    for pixel in range(pixels):
        assert accs[pixel][: case.outputs] == want_accs[pixel], pixel
        assert not any(accs[pixel][case.outputs :])
        assert sums[pixel][: case.outputs] == want_sums[pixel], pixel
    assert len({tuple(a) for a in accs}) > 1
    return recorder


def of(kind: ElementType, **more: Any) -> Case:
    """Return a small 3x2 convolution with strides, pads and partial groups."""
    base: dict[str, Any] = {
        "channels": kind.channels + kind.per_atom + 1,
        "kernels": kind.kernels + 3,
        "size": (4, 3),
        "kernel": (3, 2),
        "out": (3, 4),
        "pad": (1, 1),
        "pad_word": 0x3F9D3E15,
    }
    return Case(kind, **{**base, **more})
