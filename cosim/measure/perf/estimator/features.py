"""The quantities that determine the time of a task, derived from its register values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rkcosim.compiler.tiling import bank_bytes
from rkcosim.measure.perf.attribution import Cause
from rkcosim.spec.octets import REGISTERS, Stage, octet_rate
from rkcosim.spec.regs import registers
from rkcosim.spec.types import ALTERNATE, ATOM, DEPTHWISE, STRIPE

Values = Mapping[str, Mapping[str, int]]
"""Block -> register -> 32-bit value; missing registers count as 0."""

BEAT = 32
LONGEST = 16
"""Beats of the longest burst."""
BLOCK = 32
"""Atoms of the longest burst; bursts end at multiples of this (rtl/npu/cna_fetch.py)."""

CONV, FLYING, POOL = "conv", "flying", "pool"
"""Kinds: a convolution, a task of the DPU that reads its input by DMA, one of the PPU that does so."""

GROUPS = {6: 64, 0: 32}
"""CNA precision code -> kernels per group; 16 for all other types [HW 3]."""

TILE_ATOMS = {6: 1, 0: 2, 7: 4}
"""CNA precision code -> atoms per row of a full weight tile: 32 channels, 16 for tf32; otherwise 4."""

WIDTHS = {0: 8, 1: 16, 2: 16, 3: 16, 4: 32, 5: 32, 6: 4}
"""Precision code of the DPU -> bits per element."""


@dataclass(frozen=True)
class TaskShape:
    """Sizes of one task; sizes that its kind does not have are 0.

    Members
    -------
    kind : `CONV`, `FLYING` or `POOL`.
    words : words of the command list that the PC fetches, 0 if unknown.
    lut_words : words that wait until the DPU is idle: those after the first access to its tables.
    pixels : output pixels.  groups : channel groups.  octets : octets (8 channels) of a full group.
    kept : octets of all groups together that are not dropped.
    octet_cycles, octet_stage : see `rkcosim.spec.octets.OctetRate`.
    surfaces : atoms of a pixel that a full group writes.  written : those that all groups write.
    write_beats, write_runs : beats and bursts of one full stripe of a group.
    to_memory : whether it writes to memory.
    table_bytes : per-channel operands of all channels.
    operand_bytes : bytes of a full stripe that ERDMA reads.  operand_runs : its bursts.
    source_bytes, source_runs : the same for MRDMA.
    tiles : weight tiles of a stripe.  row_pixels : output pixels of a row.
    rows : input rows.  row_step : rows that arrive together.  first_rows : rows before the first slot.
    feature_beats, feature_bursts : beats and bursts of the whole input; last_beats and last_bursts: those of
        the last rows that arrive together.  feature_fills : cycles to write them to CBUF.
    stride, pad, reach, spread : input rows between output rows, above the first row, under a window, and
        log2 of the distance of the real rows.
    weight_bytes : of all groups, 0 if they are in CBUF already.  group_bytes : of one group.  ring_bytes :
        size of their ring.  weight_head : beats of the first burst, which ends at a multiple of the longest.
    kernel_x, kernel_y : for a convolution or pooling.
    in_width, in_height, stride_x, pad_x : for a pooling; its rows are `rows`.
    peak_macs : largest number of MACs per cycle of the array for the type and kind.
    """

    kind: str
    words: int = 0
    lut_words: int = 0
    pixels: int = 0
    groups: int = 0
    octets: int = 0
    kept: int = 0
    octet_cycles: int = 1
    surfaces: int = 0
    written: int = 0
    write_beats: int = 0
    write_runs: int = 0
    to_memory: bool = True
    table_bytes: int = 0
    operand_bytes: int = 0
    operand_runs: int = 0
    source_bytes: int = 0
    source_runs: int = 0
    tiles: int = 0
    row_pixels: int = 0
    rows: int = 0
    row_step: int = 0
    first_rows: int = 0
    feature_beats: int = 0
    feature_fills: int = 0
    feature_bursts: int = 0
    last_beats: int = 0
    last_bursts: int = 0
    stride: int = 1
    pad: int = 0
    reach: int = 1
    spread: int = 0
    weight_bytes: int = 0
    group_bytes: int = 0
    ring_bytes: int = 0
    weight_head: int = LONGEST
    in_width: int = 0
    in_height: int = 0
    kernel_x: int = 1
    kernel_y: int = 1
    stride_x: int = 1
    pad_x: int = 0
    peak_macs: int = 0
    octet_stage: Stage = ""

    weights_first: ClassVar[bool] = False
    """Whether the array waits for all weights of the task, if they fit their ring (`LoadedFirst`)."""
    tile_cycles: ClassVar[float] = 1.0
    """Cycles of the array for a pixel and a weight tile (`hardware`)."""

    @property
    def stripes(self) -> int:
        """Stripes per group."""
        return -(-self.pixels // STRIPE)

    @property
    def slots(self) -> int:
        """Operand slots of the array, also empty ones."""
        return self.tiles * self.groups * self.stripes * STRIPE if self.kind == CONV else 0

    @property
    def loaded(self) -> int:
        """Bytes of features and weights that are loaded into CBUF."""
        return self.feature_beats * BEAT + self.weight_bytes if self.kind == CONV else 0

    @property
    def itemsize(self) -> int:
        """Bytes of an element that the DPU writes; 1 for a pooling."""
        return max(self.written * ATOM // max(self.kept * 8, 1), 1) if self.kind != POOL else 1

    def moved_by(self) -> dict[Cause, int]:
        """Return the bytes of each cause that is an access to memory, without command words."""
        if self.kind == POOL:
            read = self.in_width * self.in_height * self.groups * ATOM
            return {Cause.OPERANDS: read, Cause.WRITER: self.pixels * self.groups * ATOM}
        full = min(STRIPE, self.pixels) * min(self.octets, self.kept)
        times = self.pixels * self.kept / max(full, 1)
        per_stripe = (self.operand_bytes + self.source_bytes) * times
        return {
            Cause.FEATURES: self.feature_beats * BEAT,
            Cause.WEIGHTS: self.weight_bytes,
            Cause.OPERANDS: self.table_bytes + round(per_stripe),
            Cause.WRITER: self.pixels * self.written * ATOM if self.to_memory else 0,
        }

    def moved(self) -> tuple[int, int]:
        """Return bytes read and written, without command words."""
        moved = self.moved_by()
        return sum(moved.values()) - moved[Cause.WRITER], moved[Cause.WRITER]


@dataclass(frozen=True)
class LoadedFirst(TaskShape):
    """A convolution whose array begins when all rows and all weights that fit their ring are in CBUF.

    Boards take about as long as tasks of this kind (docs/board_times.md), and so does the RTL with the option
    i5_rows_and_weights_first ([HW 4.11]).  Without it, the RTL begins when FEATURE_GRAINS rows and the first
    weight tile are there.  Weights that do not fit their ring count as if the array waited for its first tile
    only, whereas the RTL waits until the ring is full.
    """

    weights_first: ClassVar[bool] = True

    @classmethod
    def of(cls, shape: TaskShape) -> TaskShape:
        """Return a task loaded first; tasks of other kinds are returned as they are."""
        return cls(**vars(shape) | {"first_rows": shape.rows}) if shape.kind == CONV else shape


class _Registers:
    """Field values by block, register and field name."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._map = registers()

    def has(self, block: str) -> bool:
        return bool(self._values.get(block))

    def word(self, block: str, register: str) -> int:
        return self._values.get(block, {}).get(register, 0)

    def get(self, block: str, register: str, name: str | None = None) -> int:
        value = self._values.get(block, {}).get(register, 0)
        decoded = self._map[block][register].decode(value)
        return decoded[name] if name else next(iter(decoded.values()))


def task_shape(values: Values, blocks: tuple[str, ...], words: int = 0, lut_words: int = 0) -> TaskShape:
    """Derive the sizes of a task.

    Parameters
    ----------
    values
        Register values of the task.
    blocks
        Blocks that the task starts.
    words, lut_words
        See `TaskShape`.

    Raises
    ------
    ValueError
        If there is no estimate for this set of blocks.
    """
    r = _Registers(values)
    if "CNA" in blocks and "DPU" in blocks and "PPU" not in blocks:
        return _conv(r, words, lut_words)
    if "DPU" in blocks and "DPU_RDMA" in blocks and "PPU" not in blocks:
        return TaskShape(FLYING, **_common(r, words, lut_words), **_flying(r))
    if set(blocks) == {"PPU", "PPU_RDMA"}:
        return _pool(r, words)
    raise ValueError(f"there is no estimate for a task of {', '.join(blocks)}")


def _octets(precision: int, depthwise: bool = False) -> int:
    """Octets (8 channels) of a full group, by the DPU's precision code."""
    return 8 if depthwise or precision == 6 else 4 if precision == 0 else 2


def _atoms(r: _Registers, octets: int, bits: int) -> int:
    """Atoms per pixel that DPU_RDMA reads for a full group, or for all channels if these are fewer."""
    channels = r.get("DPU_RDMA", "DATA_CUBE_CHANNEL", "CHANNEL") + 1
    return min(max(octets * 8 * bits // 128, 1), -(-channels * bits // 128))


def _common(r: _Registers, words: int, lut_words: int) -> dict[str, Any]:
    """Return the sizes of the DPU: octets, rates, operands, writes."""
    precision = r.get("DPU", "DATA_FORMAT", "IN_PRECISION")
    depthwise = r.get("DPU", "FEATURE_MODE_CFG", "CONV_MODE") == DEPTHWISE
    octets = _octets(precision, depthwise)
    out_bits = WIDTHS.get(r.get("DPU", "DATA_FORMAT", "OUT_PRECISION"), 8)
    channels = r.get("DPU", "DATA_CUBE_CHANNEL", "CHANNEL") + 1
    unpooled = r.has("DPU_RDMA") and bool(r.get("DPU_RDMA", "SRC_DMA_CFG", "UNPOOLING_EN"))
    if unpooled:  # atoms are moved as they are; OUT_PRECISION only counts their channels [HW 8.7]
        channels, out_bits = -(-channels * out_bits // 16), 16
    width = r.get("DPU", "DATA_CUBE_WIDTH", "WIDTH") + 1
    pixels = width * (r.get("DPU", "DATA_CUBE_HEIGHT", "HEIGHT") + 1)
    kept = -(-channels // 8)
    flying = bool(r.get("DPU", "FEATURE_MODE_CFG", "FLYING_MODE"))
    readers = 1 + r.get("DPU", "FEATURE_MODE_CFG", "COMB_USE")
    given = readers * 128 // WIDTHS.get(precision, 8)  # channels of the input atoms of a beat [HW 7.11]
    lanes = min(given, 128 // out_bits) if flying else 128 // out_bits
    surfaces = max(octets * 8 // lanes, 1)
    notch = r.get("DPU", "DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    stride = r.get("DPU", "DST_SURF_STRIDE", "DST_SURF_STRIDE")
    base = r.get("DPU", "DST_BASE_ADDR", "DST_BASE_ADDR")
    series = r.get("DPU", "BS_OW_CFG", "SIZE_E_1") + 1
    written = -(-channels // lanes)
    by_pixel = stride == 1 and width == 1 and series == surfaces
    if flying:
        add, made = r.get("DPU", "SURFACE_ADD", "SURF_ADD"), max(1, given * out_bits // 128)
        near = width == 1 and notch + 1 >= surfaces > 1
        by_pixel = near and add == made and (made == 1 or stride == 1)
        stride = add if made == 1 else stride
    here = min(surfaces, written)
    beats, runs = _stripe_beats(base, stride, width, notch, here, by_pixel, pixels)
    rate = octet_rate({name: r.word("DPU", name) for name in REGISTERS})
    copies = series if unpooled else 1  # how often each row is written
    return {
        "words": words,
        "lut_words": lut_words,
        "pixels": pixels,
        "groups": -(-kept // octets),
        "octets": octets,
        "kept": kept,
        "octet_cycles": rate.cycles,
        "octet_stage": rate.stage,
        "surfaces": here,
        "written": written * copies,
        "write_beats": beats * copies,
        "write_runs": runs * copies,
        "to_memory": bool(r.get("DPU", "FEATURE_MODE_CFG", "OUTPUT_MODE") & 2),
        "table_bytes": _tables(r, kept),
        **_operand(r, here, pixels),
    }


def _stripe_beats(
    base: int, stride: int, width: int, notch: int, surfaces: int, by_pixel: bool, pixels: int
) -> tuple[int, int]:
    """Return beats and bursts of a full stripe."""
    full = min(STRIPE, pixels)
    if by_pixel:
        pieces = [(base + number * (width + notch), surfaces) for number in range(full)]
    else:
        row = width if notch else full
        pieces = [
            (base + surface * stride + number * (row + notch), min(row, full - number * row))
            for surface in range(surfaces)
            for number in range(-(-full // row))
        ]
    return sum((count + at % 2 + 1) // 2 for at, count in pieces), len(pieces)


def _tables(r: _Registers, kept: int) -> int:
    """Return the bytes that BRDMA and NRDMA read."""
    total = 0
    for config, name in (("BRDMA_CFG", "BRDMA"), ("NRDMA_CFG", "NRDMA")):
        use = r.get("DPU_RDMA", config, f"{name}_DATA_USE") & 7
        if use and not r.get("DPU_RDMA", config, f"{name}_DISABLE"):
            total += kept * ATOM * (2 * (use & 1) + (use >> 1 & 1) + (use >> 2))
    return total


def _operand(r: _Registers, surfaces: int, pixels: int) -> dict[str, int]:
    """Return bytes and bursts of a full stripe that ERDMA reads."""
    if not r.has("DPU_RDMA") or r.get("DPU_RDMA", "ERDMA_CFG", "ERDMA_DISABLE"):
        return {}
    depthwise = r.get("DPU_RDMA", "FEATURE_MODE_CFG", "CONV_MODE") == DEPTHWISE
    octets = _octets(r.get("DPU_RDMA", "FEATURE_MODE_CFG", "IN_PRECISION"), depthwise)
    bits = 4 << max(r.get("DPU_RDMA", "ERDMA_CFG", "ERDMA_DATA_SIZE"), 0)
    atoms = _atoms(r, octets, bits)
    if _alternates(r):
        precision = r.get("DPU_RDMA", "FEATURE_MODE_CFG", "IN_PRECISION")
        atoms = _atoms(r, octets, WIDTHS.get(precision, 8)) // 2
    elif r.get("DPU_RDMA", "ERDMA_CFG", "ERDMA_DATA_MODE") == 0:
        return {"operand_bytes": atoms * BEAT, "operand_runs": atoms}
    base = r.get("DPU_RDMA", "EW_BASE_ADDR") // ATOM
    width = r.get("DPU_RDMA", "DATA_CUBE_WIDTH", "WIDTH") + 1
    height = r.get("DPU_RDMA", "DATA_CUBE_HEIGHT", "HEIGHT") + 1
    notch = r.get("DPU_RDMA", "DATA_CUBE_HEIGHT", "EW_LINE_NOTCH_ADDR")
    stride = (width + notch) * (height - 1) + width + r.get("DPU_RDMA", "EW_SURF_NOTCH")
    beats, runs = _stripe_beats(base, stride, width, notch, atoms, False, pixels)
    return {"operand_bytes": beats * BEAT, "operand_runs": runs}


def _alternates(r: _Registers) -> bool:
    """Return whether MRDMA and ERDMA each read a part of the main data [HW 8.5]."""
    flying = r.get("DPU_RDMA", "FEATURE_MODE_CFG", "FLYING_MODE")
    combination = r.get("DPU_RDMA", "FEATURE_MODE_CFG", "COMB_USE")
    return bool(flying and combination == ALTERNATE and r.get("DPU", "FEATURE_MODE_CFG", "COMB_USE"))


def _flying(r: _Registers) -> dict[str, Any]:
    """Return bytes and bursts of a full stripe that MRDMA reads."""
    width = r.get("DPU_RDMA", "DATA_CUBE_WIDTH", "WIDTH") + 1
    height = r.get("DPU_RDMA", "DATA_CUBE_HEIGHT", "HEIGHT") + 1
    notch = r.get("DPU_RDMA", "SRC_DMA_CFG", "LINE_NOTCH_ADDR")
    precision = r.get("DPU_RDMA", "FEATURE_MODE_CFG", "IN_PRECISION")
    atoms = _atoms(r, _octets(precision), WIDTHS.get(precision, 8))
    if _alternates(r):
        atoms = -(-atoms // 2)
    base = r.get("DPU_RDMA", "SRC_BASE_ADDR") // ATOM
    tail = r.get("DPU_RDMA", "SURF_NOTCH", "SURF_NOTCH_ADDR")
    stride = (width + notch) * (height - 1) + width + tail
    beats, runs = _stripe_beats(base, stride, width, notch, atoms, False, width * height)
    times = 1  # how often unpooling delivers each pixel
    if r.get("DPU_RDMA", "SRC_DMA_CFG", "UNPOOLING_EN"):
        times = r.get("DPU_RDMA", "SRC_DMA_CFG", "KERNEL_WIDTH") + 1
    return {"source_bytes": -(-beats // times) * BEAT, "source_runs": -(-runs // times)}


# ------------------------------------------------------------------ convolution


def _conv(r: _Registers, words: int, lut_words: int) -> TaskShape:
    code = r.get("CNA", "CONV_CON1", "IN_PRECISION")
    depthwise = r.get("CNA", "CONV_CON1", "CONV_MODE") == DEPTHWISE
    channels = r.get("CNA", "DATA_SIZE1", "DATAIN_CHANNEL")
    kernel_y = r.get("CNA", "WEIGHT_SIZE2", "WEIGHT_HEIGHT")
    kernel_x = r.get("CNA", "WEIGHT_SIZE2", "WEIGHT_WIDTH")
    kernels = r.get("CNA", "WEIGHT_SIZE2", "WEIGHT_KERNELS")
    taps = kernel_x * kernel_y
    group = 64 if depthwise else GROUPS.get(code, 16)
    bits = {6: 4, 0: 8, 7: 32}.get(code, 16)
    stored = -(-channels * bits // 128)  # atoms of a pixel
    full = TILE_ATOMS.get(code, 4)
    if depthwise:
        groups, tiles = -(-channels // 64), taps
        needed = (stored + (stored % 4 == 3)) * ATOM * taps
        group_bytes = min(needed, 64 * taps * (2 if bits == 16 else 1))
    else:
        groups, tiles = -(-kernels // group), taps * -(-stored // full)
        per_kernel = (stored + (full == 4 and stored % 4 == 3)) * ATOM * taps
        group_bytes, needed = min(group, kernels) * per_kernel, kernels * per_kernel
    reuse = r.get("CNA", "CBUF_CON0", "WEIGHT_REUSE")
    total = r.get("CNA", "WEIGHT_SIZE0", "WEIGHT_BYTES")
    dpu = _common(r, words, lut_words)
    pixels = r.get("CNA", "DATA_SIZE3", "DATAOUT_ATOMICS")
    dpu.update(pixels=pixels, groups=groups)
    shifts = {0: 0, 1: 1, 3: 2, 7: 3}
    deconv = r.get("CNA", "CONV_CON1", "DECONV")
    grains = r.get("CNA", "CONV_CON2", "FEATURE_GRAINS")
    rows = r.get("CNA", "DATA_SIZE0", "DATAIN_HEIGHT")
    dilation = r.get("CNA", "CONV_CON3", "ATROUS_Y_DILATION") + 1
    return TaskShape(
        CONV,
        **dpu,
        tiles=tiles,
        row_pixels=r.get("CNA", "DATA_SIZE2", "DATAOUT_WIDTH"),
        rows=rows,
        first_rows=min(max(grains, 1), rows),
        stride=max(r.get("CNA", "CONV_CON3", "CONV_Y_STRIDE"), 1),
        pad=r.get("CNA", "PAD_CON0", "PAD_TOP"),
        reach=(kernel_y - 1) * dilation + 1,
        kernel_x=max(kernel_x, 1),
        kernel_y=max(kernel_y, 1),
        spread=shifts.get(r.get("CNA", "CONV_CON3", "DECONV_Y_STRIDE"), 0) if deconv else 0,
        weight_bytes=0 if reuse else max(total, needed),
        group_bytes=group_bytes,
        ring_bytes=r.get("CNA", "CBUF_CON0", "WEIGHT_BANK") * bank_bytes(),
        weight_head=LONGEST - r.get("CNA", "DCOMP_ADDR0", "DECOMPRESS_ADDR0") % BLOCK // 2,
        peak_macs=64 if depthwise else group * 32 if code != 7 else group * 16,
        **_features(r, stored, bits),
    )


def _features(r: _Registers, stored: int, bits: int) -> dict[str, Any]:
    """Return beats and bursts of the input, cycles to write it to CBUF, and how its rows arrive."""
    if r.get("CNA", "CBUF_CON0", "DATA_REUSE"):
        return {"row_step": 1}
    width = r.get("CNA", "DATA_SIZE0", "DATAIN_WIDTH")
    rows = r.get("CNA", "DATA_SIZE0", "DATAIN_HEIGHT")
    line = r.get("CNA", "DMA_CON1", "LINE_STRIDE")
    surf = r.get("CNA", "DMA_CON2", "SURF_STRIDE")
    code = r.get("CNA", "CONV_CON1", "ARGB_IN")
    if code >= 8:
        channels = (code & 3) + 1
        size = rows * line * channels * bits // 8
        # The unpacker outputs at most two atoms per cycle (rtl/npu/cna_argb.py).
        fills = -(-rows * line * (1, 2, 4, 4)[channels - 1] * bits // 64)
        beats = -(-size // BEAT)
        bursts = -(-beats // LONGEST)
        return {
            "row_step": 1,
            "feature_beats": beats,
            "feature_bursts": bursts,
            "last_beats": min(beats, LONGEST),
            "last_bursts": 1,
            "feature_fills": fills,
        }
    grouped = not r.get("CNA", "CONV_CON1", "GROUP_LINE_OFF")
    pitch = line >> 2 if grouped else line
    surface = (line if grouped else width) + surf
    if surface >= 1 << 28:
        surface -= 1 << 28
    base = r.get("CNA", "FEATURE_DATA_ADDR") // ATOM
    if (not grouped or rows == 1) and width == 1 and surface == 1:
        width, stored = stored, 1
    step = 4 if grouped else 1
    beats = fills = last_beats = last_bursts = 0
    whole = 0.0  # bursts
    for first in range(0, rows, step):
        count = min(step, rows - first)
        last_beats = last_bursts = 0
        joined = pitch == width and (stored == 1 or surface == count * width)  # contiguous in memory
        for number in range(min(stored, BLOCK)):  # positions relative to a block repeat
            times = -(-(stored - number) // BLOCK)
            at = base + number * surface + first * pitch
            runs = (
                [(at, count * width)] if pitch == width else [(at + n * pitch, width) for n in range(count)]
            )
            here = sum((atoms + start % 2 + 1) // 2 for start, atoms in runs)
            cut = sum((at + n * width) % 2 for n in range(1, count)) if pitch == width else 0
            # Bursts end at multiples of the longest burst.
            pieces = sum((start % BLOCK + atoms + BLOCK - 1) // BLOCK for start, atoms in runs)
            last_beats += times * here
            last_bursts += times * pieces
            fills += times * (here + cut)
        beats += last_beats
        whole += stored * count * width / BLOCK if joined else last_bursts
        if joined:
            last_bursts = -(-stored * count * width // BLOCK)
    return {
        "row_step": step,
        "feature_beats": beats,
        "feature_bursts": max(round(whole), last_bursts),
        "last_beats": last_beats,
        "last_bursts": last_bursts,
        "feature_fills": fills,
    }


# ------------------------------------------------------------------ pooling


def _pool(r: _Registers, words: int) -> TaskShape:
    wide = r.get("PPU", "DATA_FORMAT", "PROC_PRECISION") != 0
    channels = r.get("PPU", "DATA_CUBE_IN_CHANNEL", "DATA_CUBE_IN_CHANNEL")
    surfaces = (channels >> 3 if wide else channels >> 4) + 1
    in_width = r.get("PPU", "DATA_CUBE_IN_WIDTH") + 1
    width = r.get("PPU", "DATA_CUBE_OUT_WIDTH") + 1
    height = r.get("PPU", "DATA_CUBE_OUT_HEIGHT") + 1
    return TaskShape(
        POOL,
        words=words,
        pixels=width * height,
        groups=surfaces,
        surfaces=1,
        written=surfaces,
        row_pixels=width,
        rows=height,
        in_width=in_width,
        in_height=r.get("PPU", "DATA_CUBE_IN_HEIGHT") + 1,
        kernel_x=r.get("PPU", "POOLING_KERNEL_CFG", "KERNEL_WIDTH") + 1,
        kernel_y=r.get("PPU", "POOLING_KERNEL_CFG", "KERNEL_HEIGHT") + 1,
        stride_x=r.get("PPU", "POOLING_KERNEL_CFG", "KERNEL_STRIDE_WIDTH") + 1,
        stride=r.get("PPU", "POOLING_KERNEL_CFG", "KERNEL_STRIDE_HEIGHT") + 1,
        pad_x=r.get("PPU", "POOLING_PADDING_CFG", "PAD_LEFT"),
        pad=r.get("PPU", "POOLING_PADDING_CFG", "PAD_TOP"),
    )
