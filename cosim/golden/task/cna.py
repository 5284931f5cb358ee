"""CNA of the task-level golden model: feature and weight fetch through a byte image of CBUF.

Everything here follows docs/hardware.md sections 1 and 2; int8 only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.arith import saturate, shift_even, shift_up, signed
from cosim.golden.task.context import Context
from cosim.golden.task.errors import GoldenHang
from cosim.golden.task.memory import ATOM
from cosim.golden.task.registers import View

ENTRY_ATOMS = 4
BANK_ENTRIES = 512
BANKS = 12
ENTRY_BYTES = ENTRY_ATOMS * ATOM
STRIPE = 16
GROUP = 32
DEPTHWISE_GROUP = 64


@dataclass(frozen=True)
class ConvShape:
    """Sizes of a convolution task, decoded from CNA registers."""

    depthwise: bool
    argb: int
    """Channels per pixel in ARGB mode, 0 otherwise."""
    height: int
    width: int
    channels: int
    """DATAIN_CHANNEL: the live lanes."""
    kernels: int
    kernel_height: int
    kernel_width: int
    out_width: int
    pixels: int
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad_top: int
    pad_left: int

    @property
    def taps(self) -> int:
        """Kernel rows times columns."""
        return self.kernel_height * self.kernel_width

    @property
    def groups(self) -> int:
        """Kernel groups of 32, or channel groups of 64 in depthwise mode."""
        if self.depthwise:
            return -(-self.channels // DEPTHWISE_GROUP)
        return -(-self.kernels // GROUP)

    @property
    def padded_channels(self) -> int:
        """Channels rounded up to whole atoms."""
        return -(-self.channels // ATOM) * ATOM


def conv_shape(ctx: Context, cna: View) -> ConvShape:
    """Decode and check the CNA registers of a task (docs/hardware.md 1.5, 3.1-3.4)."""
    for register, name in (
        ("CONV_CON1", "IN_PRECISION"),
        ("CONV_CON1", "PROC_PRECISION"),
        ("CONV_CON1", "DECONV"),
        ("CONV_CON2", "CSC_WO_EN"),
        ("CONV_CON2", "CSC_DO_EN"),
        ("FC_CON0", "FC_SKIP_EN"),
        ("CBUF_CON0", "FC_DATA_BANK"),
        ("DCOMP_CTRL", "DECOMP_CONTROL"),
    ):
        ctx.require(
            cna.get(register, name) == 0, "RESERVED_MODE", cna, register, name, "mode is not supported"
        )
    mode = cna.get("CONV_CON1", "CONV_MODE")
    ctx.require(
        mode in (0, 3), "RESERVED_MODE", cna, "CONV_CON1", "CONV_MODE", "neither direct nor depthwise"
    )
    argb = cna.get("CONV_CON1", "ARGB_IN")
    if argb:
        ok = (
            8 <= argb <= 11
            and cna.get("CONV_CON1", "NONALIGN_DMA")
            and cna.get("CONV_CON1", "GROUP_LINE_OFF")
        )
        ctx.require(
            bool(ok),
            "RESERVED_MODE",
            cna,
            "CONV_CON1",
            "ARGB_IN",
            "needs 8..11, NONALIGN_DMA and GROUP_LINE_OFF",
        )
    elif cna.get("CVT_CON0", "CVT_BYPASS") == 0:
        ctx.require(
            False, "RESERVED_MODE", cna, "CVT_CON0", "CVT_BYPASS", "converter is on outside ARGB mode"
        )
    for register, name in (
        ("DATA_SIZE0", "DATAIN_WIDTH"),
        ("DATA_SIZE0", "DATAIN_HEIGHT"),
        ("DATA_SIZE1", "DATAIN_CHANNEL"),
        ("DATA_SIZE2", "DATAOUT_WIDTH"),
        ("DATA_SIZE3", "DATAOUT_ATOMICS"),
        ("WEIGHT_SIZE2", "WEIGHT_WIDTH"),
        ("WEIGHT_SIZE2", "WEIGHT_HEIGHT"),
        ("WEIGHT_SIZE2", "WEIGHT_KERNELS"),
    ):
        if cna.get(register, name) == 0:
            raise ctx.error("size is zero", cna.block, f"{register}.{name}", 0, "EMPTY_SIZE")
    for register, name, other, twin in (
        ("FC_DATA_SIZE0", "DMA_WIDTH", "DATA_SIZE0", "DATAIN_WIDTH"),
        ("FC_DATA_SIZE0", "DMA_HEIGHT", "DATA_SIZE0", "DATAIN_HEIGHT"),
        ("FC_DATA_SIZE1", "DMA_CHANNEL", "DATA_SIZE1", "DATAIN_CHANNEL"),
    ):
        same = cna.get(register, name) == cna.get(other, twin)
        ctx.require(same, "SIZE_MISMATCH", cna, register, name, f"differs from {other}.{twin}")
    for name in ("CONV_Y_STRIDE", "CONV_X_STRIDE"):
        ctx.require(
            cna.get("CONV_CON3", name) > 0, "RESERVED_MODE", cna, "CONV_CON3", name, "stride 0 counts as 1"
        )
    return ConvShape(
        depthwise=mode == 3,
        argb=argb - 7 if argb else 0,
        height=cna.get("DATA_SIZE0", "DATAIN_HEIGHT"),
        width=cna.get("DATA_SIZE0", "DATAIN_WIDTH"),
        channels=cna.get("DATA_SIZE1", "DATAIN_CHANNEL"),
        kernels=cna.get("WEIGHT_SIZE2", "WEIGHT_KERNELS"),
        kernel_height=cna.get("WEIGHT_SIZE2", "WEIGHT_HEIGHT"),
        kernel_width=cna.get("WEIGHT_SIZE2", "WEIGHT_WIDTH"),
        out_width=cna.get("DATA_SIZE2", "DATAOUT_WIDTH"),
        pixels=cna.get("DATA_SIZE3", "DATAOUT_ATOMICS"),
        stride=(cna.get("CONV_CON3", "CONV_Y_STRIDE") or 1, cna.get("CONV_CON3", "CONV_X_STRIDE") or 1),
        dilation=(
            cna.get("CONV_CON3", "ATROUS_Y_DILATION") + 1,
            cna.get("CONV_CON3", "ATROUS_X_DILATION") + 1,
        ),
        pad_top=cna.get("PAD_CON0", "PAD_TOP"),
        pad_left=cna.get("PAD_CON0", "PAD_LEFT"),
    )


class Cbuf:
    """Byte image of the 384 KiB convolution buffer, kept from task to task for the reuse modes."""

    def __init__(self) -> None:
        self.atoms = np.zeros((BANKS * BANK_ENTRIES * ENTRY_ATOMS, ATOM), np.uint8)

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The image as uint8 [384 Ki], in place."""
        return self.atoms.reshape(-1)

    def features(self, ctx: Context, cna: View, shape: ConvShape) -> NDArray[np.int8]:
        """Fetch the features unless DATA_REUSE is set and read them back: int8 [height, width, channels]."""
        data, weight = cna.get("CBUF_CON0", "DATA_BANK"), cna.get("CBUF_CON0", "WEIGHT_BANK")
        ctx.require(
            data + weight <= BANKS and data > 0 and weight > 0,
            "BANK_SUM",
            cna,
            "CBUF_CON0",
            "DATA_BANK",
            f"{data} data and {weight} weight banks of {BANKS}",
        )
        if shape.argb:
            return self._argb(ctx, cna, shape, data)
        places = self._places(ctx, cna, shape, data)
        if not cna.get("CBUF_CON0", "DATA_REUSE"):
            self.atoms[places.ravel()] = ctx.read(
                "feature", "CNA", "FEATURE_DATA_ADDR", feature_addresses(ctx, cna, shape)
            )
        image = self.atoms[places]  # [surface, row, column, 16]
        image = image.transpose(1, 2, 0, 3).reshape(shape.height, shape.width, -1)
        return np.ascontiguousarray(image[:, :, : shape.channels]).view(np.int8)

    def _places(self, ctx: Context, cna: View, shape: ConvShape, banks: int) -> NDArray[np.int64]:
        """Atom index in CBUF of every (surface, row, column) (docs/hardware.md 2.2)."""
        surfaces, width = shape.padded_channels // ATOM, shape.width
        full, rest = divmod(surfaces, ENTRY_ATOMS)
        if rest == 3:
            full, rest = full + 1, 0
        pitch = cna.get("CBUF_CON1", "DATA_ENTRIES")
        used = full * width + (-(-rest * width // ENTRY_ATOMS))
        ctx.require(
            pitch >= used,
            "FEATURE_FOOTPRINT",
            cna,
            "CBUF_CON1",
            "DATA_ENTRIES",
            f"a row takes {used} entries",
        )
        ctx.require(
            pitch * shape.height <= banks * BANK_ENTRIES,
            "FEATURE_FOOTPRINT",
            cna,
            "CBUF_CON1",
            "DATA_ENTRIES",
            f"{shape.height} rows do not fit {banks} banks",
        )
        atom = np.arange(surfaces, dtype=np.int64)[:, None, None]
        y = np.arange(shape.height, dtype=np.int64)[None, :, None]
        x = np.arange(width, dtype=np.int64)[None, None, :]
        slab, column = atom // ENTRY_ATOMS, atom % ENTRY_ATOMS
        entry = y * pitch + slab * width + x + 0 * column
        column = column + 0 * entry
        if rest:
            tail = np.broadcast_to(slab == full, entry.shape)
            share = ENTRY_ATOMS // rest
            entry = np.where(tail, y * pitch + full * width + x // share, entry)
            column = np.where(tail, (x % share) * rest + column, column)
        return (entry % (BANKS * BANK_ENTRIES)) * ENTRY_ATOMS + column

    def _argb(self, ctx: Context, cna: View, shape: ConvShape, banks: int) -> NDArray[np.int8]:
        """First-layer mode: pixels of 1 to 4 bytes through the input converter (docs/hardware.md 1.5-2.3)."""
        colours = shape.argb
        pitch = cna.get("DMA_CON1", "LINE_STRIDE")
        pixel = 4 * (4 if colours == 3 else colours)
        total = shape.height * pitch
        ctx.require(
            pitch >= shape.width, "SIZE_MISMATCH", cna, "DMA_CON1", "LINE_STRIDE", "pitch is below the width"
        )
        ctx.require(
            total * pixel <= banks * BANK_ENTRIES * ENTRY_BYTES,
            "FEATURE_FOOTPRINT",
            cna,
            "DMA_CON1",
            "LINE_STRIDE",
            f"{total} pixels of {pixel} bytes do not fit {banks} banks",
        )
        where = np.arange(total, dtype=np.int64)[:, None] * pixel + np.arange(colours)[None, :]
        where %= self.bytes.size
        if not cna.get("CBUF_CON0", "DATA_REUSE"):
            base = ctx.address(cna, "FEATURE_DATA_ADDR")
            raw = ctx.read_run("feature", "CNA", "FEATURE_DATA_ADDR", base, total * colours)
            self.bytes[where] = convert_input(cna, raw.reshape(total, colours))
        lines = self.bytes[where].reshape(shape.height, pitch, colours)[:, : shape.width]
        image = np.zeros((shape.height, shape.width, shape.channels), np.uint8)
        image[:, :, : min(colours, shape.channels)] = lines[:, :, : shape.channels]
        return image.view(np.int8)

    def weights(self, ctx: Context, cna: View, shape: ConvShape) -> NDArray[np.int8]:
        """Fetch the weights unless WEIGHT_REUSE is set and return the byte stream, int8 [WEIGHT_BYTES].

        Raises
        ------
        GoldenHang
            when the stream is shorter than the loops, or a kernel group exceeds its banks in a task
            of more than one stripe.
        """
        banks = cna.get("CBUF_CON0", "WEIGHT_BANK")
        ring = banks * BANK_ENTRIES * ENTRY_BYTES
        start = (BANKS - banks) * BANK_ENTRIES * ENTRY_BYTES
        size = cna.get("WEIGHT_SIZE0", "WEIGHT_BYTES")
        sizes = group_bytes(shape)
        if size < sum(sizes):
            raise GoldenHang(
                f"the kernels take {sum(sizes)} bytes",
                task=ctx.report.index,
                block="CNA",
                register="WEIGHT_SIZE0.WEIGHT_BYTES",
                value=size,
            )
        if max(sizes) > ring and shape.pixels > STRIPE:
            raise GoldenHang(
                f"a kernel group of {max(sizes)} bytes does not fit its {banks} banks",
                task=ctx.report.index,
                block="CNA",
                register="CBUF_CON0.WEIGHT_BANK",
                value=banks,
                code="WEIGHT_FOOTPRINT",
            )
        size = -(-size // ATOM) * ATOM
        image = self.bytes
        if cna.get("CBUF_CON0", "WEIGHT_REUSE"):
            ctx.require(
                size <= ring,
                "REUSE_FOOTPRINT",
                cna,
                "WEIGHT_SIZE0",
                "WEIGHT_BYTES",
                f"ring holds {ring} bytes",
            )
            return image[start + np.arange(size) % ring].view(np.int8)
        stream = ctx.read_run("weight", "CNA", "DCOMP_ADDR0", ctx.address(cna, "DCOMP_ADDR0"), size)
        tail = np.arange(max(0, size - ring), size)
        image[start + tail % ring] = stream[tail]
        return stream.view(np.int8)


def feature_addresses(ctx: Context, cna: View, shape: ConvShape) -> NDArray[np.int64]:
    """Byte address of every feature atom, int64 [surface, row, column] (docs/hardware.md 1.1-1.3)."""
    stride, jump = cna.get("DMA_CON1", "LINE_STRIDE"), cna.signed("DMA_CON2", "SURF_STRIDE")
    surface = stride + jump
    line = stride
    if not cna.get("CONV_CON1", "GROUP_LINE_OFF"):
        ctx.require(
            stride % 4 == 0, "SIZE_MISMATCH", cna, "DMA_CON1", "LINE_STRIDE", "no multiple of four lines"
        )
        line = stride // 4
    elif jump == 0:
        surface = shape.width
    c1 = np.arange(shape.padded_channels // ATOM, dtype=np.int64)[:, None, None]
    y = np.arange(shape.height, dtype=np.int64)[None, :, None]
    x = np.arange(shape.width, dtype=np.int64)[None, None, :]
    return ctx.address(cna, "FEATURE_DATA_ADDR") + ATOM * (c1 * surface + y * line + x)


def convert_input(cna: View, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Input converter, uint8 [pixel, channel] -> the same shape (docs/hardware.md 1.6)."""
    if cna.get("CVT_CON0", "CVT_BYPASS"):
        return raw
    out = raw.copy()
    for channel in range(raw.shape[1]):
        if not cna.get("CVT_CON5", "PER_CHANNEL_CVT_EN") >> channel & 1:
            continue
        x = raw[:, channel].astype(np.int64)
        if cna.get("CVT_CON0", "DATA_SIGN"):
            x = raw[:, channel].view(np.int8).astype(np.int64)
        scale = signed(cna.get(f"CVT_CON{channel + 1}", f"CVT_SCALE{channel}"), 16)
        offset = signed(cna.get(f"CVT_CON{channel + 1}", f"CVT_OFFSET{channel}"), 16)
        shift = cna.get("CVT_CON0", f"CVT_TRUNCATE_{channel}")
        t = (x + offset) * scale if cna.get("CVT_CON0", "CVT_TYPE") else x * scale + offset
        t = shift_up(t, shift) if cna.get("CVT_CON0", "ROUND_TYPE") else shift_even(t, shift)
        out[:, channel] = saturate(t, 8).astype(np.int8).view(np.uint8)
    return out


def group_bytes(shape: ConvShape) -> list[int]:
    """Weight bytes of each kernel group (docs/hardware.md 3.3)."""
    if shape.depthwise:
        return [shape.taps * DEPTHWISE_GROUP] * shape.groups
    return [
        min(GROUP, shape.kernels - GROUP * g) * shape.padded_channels * shape.taps
        for g in range(shape.groups)
    ]


def unpack_weights(stream: NDArray[np.int8], shape: ConvShape) -> NDArray[np.int8]:
    """Undo the tile order of a weight stream.

    Returns
    -------
    int8 [rows, columns, channels, kernels] for a direct convolution, [rows, columns, channels] for
    a depthwise one; only live channels and real kernels.
    """
    kh, kw = shape.kernel_height, shape.kernel_width
    if shape.depthwise:
        size = shape.groups * shape.taps * DEPTHWISE_GROUP
        tiles = stream[:size].reshape(shape.groups, kh, kw, DEPTHWISE_GROUP)
        return tiles.transpose(1, 2, 0, 3).reshape(kh, kw, -1)[:, :, : shape.channels]
    out = np.zeros((kh, kw, shape.padded_channels, shape.kernels), np.int8)
    at = 0
    for k in range(0, shape.kernels, GROUP):
        n = min(GROUP, shape.kernels - k)
        for c in range(0, shape.padded_channels, GROUP):
            m = min(GROUP, shape.padded_channels - c)
            tile = stream[at : at + n * m * shape.taps].reshape(kh, kw, n, m)
            out[:, :, c : c + m, k : k + n] = tile.transpose(0, 1, 3, 2)
            at += n * m * shape.taps
    return out[:, :, : shape.channels]
