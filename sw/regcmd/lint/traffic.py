"""Memory that the clients of a start access according to their registers ([HW 4] to [HW 9])."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from rkcosim.golden.task.packed_weights import is_packed, segments
from rkcosim.golden.task.registers import View
from rkcosim.golden.task.shapes import ConvShape, DpuCube, PoolShape, RdmaCube, ceil
from rkcosim.regcmd.lint.rule import Check
from rkcosim.spec.regs import registers
from rkcosim.spec.types import ATOM, LANES, PACKET
from rkcosim.spec.weight_code import MOST_UNITS

SPACE = 1 << 32
PIECES = 4096
"""Maximum number of rows of one access that are listed separately; larger ones are listed by surface."""


@dataclass(frozen=True)
class Access:
    """Memory that one client reads or writes: (first byte, bytes) of each piece, before wrapping at 2^32.

    Members
    -------
    stride : name of the register that is wrong if any piece but the first is wrong.
    real : number of pieces with channels up to ORIG_CHANNEL, for an output; the others are padding.
    moved : whether a reader's atoms are only moved (packets), with those of padding channels.
    """

    client: str
    block: str
    register: str
    field: str
    stride: tuple[str, str]
    write: bool
    pieces: tuple[tuple[int, int], ...]
    real: int | None = None
    moved: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """First byte and the byte after the last."""
        return min(p[0] for p in self.pieces), max(p[0] + p[1] for p in self.pieces)


def _cube(start: int, surfaces: list[int], line: int, rows: int, columns: int) -> tuple[tuple[int, int], ...]:
    """Pieces of a cube: surfaces at the given atoms, lines `line` atoms apart; adjacent rows are joined."""
    if line == columns or rows == 1:
        length = ATOM * ((rows - 1) * line + columns)
        return tuple((start + ATOM * surface, length) for surface in surfaces)
    if rows * len(surfaces) <= PIECES:
        return tuple(
            (start + ATOM * (surface + row * line), ATOM * columns)
            for surface in surfaces
            for row in range(rows)
        )
    length = ATOM * (max((rows - 1) * line, 0) + columns)
    return tuple((start + ATOM * surface, length) for surface in surfaces)


def accesses(check: Check) -> list[Access]:
    """Every access of a start."""
    if "accesses" not in check.cache:
        check.cache["accesses"] = [item for item in _accesses(check) if item.pieces]
    found: list[Access] = check.cache["accesses"]
    return found


def _accesses(check: Check) -> Iterator[Access]:
    base = check.program.dma_base & ~31
    conv, dpu, rdma, pool = check.conv, check.dpu, check.rdma, check.pool
    if conv is not None and conv.width and conv.height:
        yield from _convolution(conv, base)
    if dpu is not None and dpu.output & 2:
        yield _writer(dpu, base)
    if rdma is not None:
        moved = dpu is not None and dpu.packets
        yield from (replace(item, moved=moved) for item in _readers(rdma, base))
    if pool is not None:
        yield from _pool(pool, check.view("PPU_RDMA"), base)


def _place(view: View, register: str, name: str, base: int) -> int:
    return ((view.raw(register) & _mask(view.block, register, name)) + base) % SPACE


def _mask(block: str, register: str, name: str) -> int:
    return registers()[block][register].fields[name].mask & ~(ATOM - 1)


def _convolution(conv: ConvShape, base: int) -> Iterator[Access]:
    cna = conv.view
    if not cna("CBUF_CON0", "DATA_REUSE"):
        start = _place(cna, "FEATURE_DATA_ADDR", "FEATURE_BASE_ADDR", base)
        pieces: tuple[tuple[int, int], ...]
        if conv.argb:
            size = conv.height * cna("DMA_CON1", "LINE_STRIDE") * conv.argb * conv.type.bits // 8
            pieces = ((start, ceil(size, ATOM) * ATOM),) if size else ()
        else:
            line, surface = conv.pitches
            places = [surface * s for s in range(conv.surfaces)]
            pieces = _cube(start, places, line, conv.height, conv.width)
        stride = ("DMA_CON2", "SURF_STRIDE") if conv.surfaces > 1 else ("DMA_CON1", "LINE_STRIDE")
        name = "FEATURE_BASE_ADDR"
        yield Access("features", "CNA", "FEATURE_DATA_ADDR", name, stride, False, pieces)
    size = cna("WEIGHT_SIZE0", "WEIGHT_BYTES")
    if not cna("CBUF_CON0", "WEIGHT_REUSE") and size:
        start = _place(cna, "DCOMP_ADDR0", "DECOMPRESS_ADDR0", base)
        stride = ("WEIGHT_SIZE0", "WEIGHT_BYTES")
        runs: tuple[tuple[int, int], ...] = ((start, ceil(size, ATOM) * ATOM),)
        if is_packed(cna):
            stride = ("DCOMP_AMOUNT0", "DCOMP_AMOUNT0")
            runs = tuple(run for run in segments(cna, start) if run[1] <= MOST_UNITS * ATOM)
        yield Access("weights", "CNA", "DCOMP_ADDR0", "DECOMPRESS_ADDR0", stride, False, runs)


def _writer(dpu: DpuCube, base: int) -> Access:
    start = _place(dpu.view, "DST_BASE_ADDR", "DST_BASE_ADDR", base)
    stride = ("DST_SURF_STRIDE", "DST_SURF_STRIDE")
    if dpu.packets:
        pieces: tuple[tuple[int, int], ...] = tuple(_packets(dpu, start))
    elif dpu.reduces:
        pieces = ((start, ATOM * ceil(dpu.width, LANES)),)
    else:
        pieces = _cube(start, dpu.written_surfaces, dpu.line, dpu.height, dpu.width)
    real = None
    if not dpu.packets and not dpu.reduces and len(dpu.written_surfaces):
        channels = dpu.view("DATA_CUBE_CHANNEL", "ORIG_CHANNEL") + 1
        surfaces = min(ceil(channels * dpu.bits, 8 * ATOM), len(dpu.written_surfaces))
        real = len(pieces) * surfaces // len(dpu.written_surfaces)
    return Access("output", "DPU", "DST_BASE_ADDR", "DST_BASE_ADDR", stride, True, pieces, real)


def _packets(dpu: DpuCube, start: int) -> Iterator[tuple[int, int]]:
    """Pieces that packets occupy: their atoms lie in planes, in lines of WDMA's width."""
    view = dpu.view
    count = dpu.surfaces * dpu.pixels // PACKET
    width, height = view("WDMA_SIZE_1", "WIDTH_WDMA") + 1, view("WDMA_SIZE_1", "HEIGHT_WDMA") + 1
    line = width + view("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    add, stride = view.signed("SURFACE_ADD", "SURF_ADD"), view.signed("DST_SURF_STRIDE")
    planes = range(min(PACKET, view("BS_OW_CFG", "SIZE_E_1") + 1))
    for first in range(0, count, width * height):
        rows, last = divmod(min(count - first, width * height), width)
        at = first // (width * height) * add
        for e in planes:
            if rows * PACKET > PIECES:
                yield start + ATOM * (at + e * stride), ATOM * (rows * line)
            else:
                for y in range(rows):
                    yield start + ATOM * (at + y * line + e * stride), ATOM * width
            if last:
                yield start + ATOM * (at + rows * line + e * stride), ATOM * last


def _readers(rdma: RdmaCube, base: int) -> Iterator[Access]:
    view = rdma.view
    line = rdma.width + view("SRC_DMA_CFG", "LINE_NOTCH_ADDR")
    surface = line * (rdma.height - 1) + rdma.width + view.signed("SURF_NOTCH", "SURF_NOTCH_ADDR")
    notch = ("SURF_NOTCH", "SURF_NOTCH_ADDR")
    bits = rdma.element_bits if rdma.residual else rdma.main_bits
    surfaces = ceil(rdma.channels * bits, 8 * ATOM)
    if rdma.main:
        start = _place(view, "SRC_BASE_ADDR", "SRC_BASE_ADDR", base)
        count = ceil(surfaces, 2) if rdma.shared else surfaces
        pieces = _cube(start, [surface * s for s in range(count)], line, rdma.height, rdma.width)
        yield Access("main data", "DPU_RDMA", "SRC_BASE_ADDR", "SRC_BASE_ADDR", notch, False, pieces)
    if rdma.element:
        start = _place(view, "EW_BASE_ADDR", "EW_BASE_ADDR", base)
        line = rdma.width + view("DATA_CUBE_HEIGHT", "EW_LINE_NOTCH_ADDR")
        bits = rdma.main_bits if rdma.alternate else rdma.element_bits
        count = ceil(rdma.channels * bits, 8 * ATOM)
        if view("ERDMA_CFG", "ERDMA_DATA_MODE") == 0 and not rdma.shared:
            stride, by = view.signed("EW_SURF_STRIDE"), ("EW_SURF_STRIDE", "EW_SURF_STRIDE")
            pieces = tuple((start + ATOM * stride * s, ATOM) for s in range(count))
        else:
            pitch = line * (rdma.height - 1) + rdma.width + view.signed("EW_SURF_NOTCH")
            places = [pitch * s for s in range(count // 2 if rdma.shared else count)]
            pieces = _cube(start, places, line, rdma.height, rdma.width)
            by = ("EW_SURF_NOTCH", "EW_SURF_NOTCH")
        yield Access("operand", "DPU_RDMA", "EW_BASE_ADDR", "EW_BASE_ADDR", by, False, pieces)
    for client, register in (("BRDMA", "BS_BASE_ADDR"), ("NRDMA", "BN_BASE_ADDR")):
        use = rdma.use[client]
        if use & 7:
            block = 8 * (4 * (use & 1) + 2 * (use >> 1 & 1) + 2 * (use >> 2 & 1))
            start = _place(view, register, register, base)
            run = ((start, ceil(ceil(rdma.channels, 8) * block, ATOM) * ATOM),)
            by = (f"{client}_CFG", f"{client}_DATA_USE")
            yield Access(f"{client} operands", "DPU_RDMA", register, register, by, False, run)


def _pool(pool: PoolShape, rdma: View | None, base: int) -> Iterator[Access]:
    ppu = pool.view
    start = _place(ppu, "DST_BASE_ADDR", "DST_BASE_ADDR", base)
    line = pool.out_width + ppu("OPERATION_MODE_CFG", "NOTCH_ADDR")
    places = [ppu.signed("DST_SURF_STRIDE") * s for s in range(pool.surfaces)]
    pieces = _cube(start, places, line, pool.out_height, pool.out_width)
    stride = ("DST_SURF_STRIDE", "DST_SURF_STRIDE")
    yield Access("output", "PPU", "DST_BASE_ADDR", "DST_BASE_ADDR", stride, True, pieces)
    if pool.indexed and ppu("OPERATION_MODE_CFG", "POOLING_METHOD"):
        jump = ATOM * ppu("DATA_FORMAT", "INDEX_ADD")
        moved = tuple((at + jump, size) for at, size in pieces)
        yield Access("index", "PPU", "DATA_FORMAT", "INDEX_ADD", stride, True, moved)
    if rdma is not None and not pool.fed:
        width, height = rdma("CUBE_IN_WIDTH") + 1, rdma("CUBE_IN_HEIGHT") + 1
        start = _place(rdma, "SRC_BASE_ADDR", "SRC_BASE_ADDR", base)
        places = [rdma.signed("SRC_SURF_STRIDE") * s for s in range(pool.surfaces)]
        read = _cube(start, places, rdma.signed("SRC_LINE_STRIDE"), height, width)
        by = ("SRC_SURF_STRIDE", "SRC_SURF_STRIDE")
        yield Access("input", "PPU_RDMA", "SRC_BASE_ADDR", "SRC_BASE_ADDR", by, False, read)


def packets_share(dpu: DpuCube) -> tuple[int, int] | None:
    """The first two pieces (bytes from DST_BASE_ADDR) of a task's packets that share an atom, or None."""
    sizes = "WDMA_SIZE_1"
    width, height = dpu.view(sizes, "WIDTH_WDMA") + 1, dpu.view(sizes, "HEIGHT_WDMA") + 1
    count = dpu.surfaces * dpu.pixels // PACKET
    if count > PIECES or min(count, width * height) // width * PACKET > PIECES:
        return None  # such packets are only known by planes
    pieces = sorted(_packets(dpu, 0))
    for (first, size), (second, _) in pairwise(pieces):
        if second < first + size:
            return first, second
    return None


def collision(places: list[int], line: int, rows: int, columns: int) -> tuple[int, int] | None:
    """The first pair of surfaces at different addresses that share an atom, or None."""
    for second in range(1, len(places)):
        for first in range(max(0, second - 64), second):
            apart = abs(places[second] - places[first])
            if apart >= (rows - 1) * line + columns:
                continue
            near = round(apart / line)
            if any(0 <= k < rows and abs(apart - k * line) < columns for k in (near - 1, near, near + 1)):
                return first, second
    return None
