"""CNA of the task-level golden model: feature and weight fetch through a byte image of CBUF.

Everything here follows docs/hardware.md sections 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.cna_argb import argb_places, load_argb
from cosim.golden.task.cna_banks import (
    BANK_ENTRIES,
    BANKS,
    ENTRY_ATOMS,
    ENTRY_BYTES,
    check_banks,
    check_weights,
    feature_entries,
    slabs,
)
from cosim.golden.task.cna_check import SPREADS, check_cna, is_argb, is_depthwise
from cosim.golden.task.cna_weights import DEPTHWISE_GROUP, group_bytes
from cosim.golden.task.context import Context
from cosim.golden.task.conv_types import INT8, ConvType, decode, type_of
from cosim.golden.task.memory import ATOM
from cosim.golden.task.registers import View


@dataclass(frozen=True)
class ConvShape:
    """Sizes of a convolution task, decoded from the registers of CNA (and of CORE: `octets`)."""

    type: ConvType
    """What CNA and the array take the elements for."""
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
    spread: tuple[int, int]
    """Distance of input rows and columns with zeros inserted between them; 1 without DECONV."""
    pad_top: int
    pad_left: int
    octets: int
    """Octets that CORE delivers of a group: 8 times this is the group size towards the DPU."""
    is_float: bool
    """Whether CORE delivers binary32 bits."""
    out_channels: int
    """Channels by CORE's own count."""
    three_atoms: bool = False
    """Whether three atoms of the last depthwise block of int8 are stored as three (an option, 3.3)."""

    @property
    def taps(self) -> int:
        """Kernel rows times columns."""
        return self.kernel_height * self.kernel_width

    @property
    def groups(self) -> int:
        """Kernel groups, or channel groups of 64 in depthwise mode."""
        if self.depthwise:
            return -(-self.channels // DEPTHWISE_GROUP)
        return -(-self.kernels // self.type.kernels)

    @property
    def delivered_groups(self) -> int:
        """Groups that CORE delivers: those with kernels, and behind them those that its own count adds."""
        return max(self.groups, -(-self.out_channels // (8 * self.octets)))

    @property
    def group_lanes(self) -> int:
        """Output lanes of a group in the array."""
        return DEPTHWISE_GROUP if self.depthwise else self.type.kernels

    @property
    def surfaces(self) -> int:
        """Atoms of a pixel."""
        return -(-self.channels // self.type.per_atom)

    @property
    def lanes(self) -> int:
        """Input lanes: channels rounded up to whole channel groups."""
        group = DEPTHWISE_GROUP if self.depthwise else self.type.channels
        return -(-self.channels // group) * group


def conv_shape(ctx: Context, cna: View, octets: int, is_float: bool, out_channels: int) -> ConvShape:
    """Decode and check the CNA registers of a task.

    Parameters
    ----------
    octets, is_float, out_channels
        what CORE makes of them.

    Raises
    ------
    GoldenHang
        for sizes with which the task never ends.
    """
    stops = check_cna(ctx, cna)
    kind = type_of(cna.get("CONV_CON1", "IN_PRECISION"))
    con3 = "CONV_CON3"
    deconv = cna.get("CONV_CON1", "DECONV")
    axes = ("Y", "X")
    spread = [SPREADS.get(cna.get(con3, f"DECONV_{a}_STRIDE"), 1) if deconv else 1 for a in axes]
    shape = ConvShape(
        type=kind,
        depthwise=is_depthwise(cna),
        argb=cna.get("CONV_CON1", "ARGB_IN") - 7 if is_argb(cna) else 0,
        height=cna.get("DATA_SIZE0", "DATAIN_HEIGHT"),
        width=cna.get("DATA_SIZE0", "DATAIN_WIDTH"),
        channels=cna.get("DATA_SIZE1", "DATAIN_CHANNEL"),
        kernels=cna.get("WEIGHT_SIZE2", "WEIGHT_KERNELS"),
        kernel_height=cna.get("WEIGHT_SIZE2", "WEIGHT_HEIGHT"),
        kernel_width=cna.get("WEIGHT_SIZE2", "WEIGHT_WIDTH"),
        out_width=cna.get("DATA_SIZE2", "DATAOUT_WIDTH"),
        pixels=cna.get("DATA_SIZE3", "DATAOUT_ATOMICS"),
        stride=(cna.get(con3, "CONV_Y_STRIDE") or 1, cna.get(con3, "CONV_X_STRIDE") or 1),
        dilation=(cna.get(con3, "ATROUS_Y_DILATION") + 1, cna.get(con3, "ATROUS_X_DILATION") + 1),
        spread=(spread[0], spread[1]),
        pad_top=cna.get("PAD_CON0", "PAD_TOP"),
        pad_left=cna.get("PAD_CON0", "PAD_LEFT"),
        octets=octets,
        is_float=is_float,
        out_channels=out_channels,
        three_atoms=kind is INT8 and "d1_three_atoms_int8" in ctx.options,
    )
    check_banks(ctx, cna, shape)
    stops += check_weights(ctx, cna, shape)
    if stops:
        raise stops[0]
    return shape


class Cbuf:
    """Byte image of the 384 KiB convolution buffer, kept from task to task for the reuse modes."""

    def __init__(self) -> None:
        self.atoms = np.zeros((BANKS * BANK_ENTRIES * ENTRY_ATOMS, ATOM), np.uint8)
        self._held: dict[str, NDArray[np.int64]] = {}

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The image as uint8 [384 Ki], in place."""
        return self.atoms.reshape(-1)

    @property
    def entries(self) -> NDArray[np.uint8]:
        """The image as uint8 [6144, 64], in place."""
        return self.atoms.reshape(-1, ENTRY_BYTES)

    def occupied(self, kind: str) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.bool_]]:
        """What the "feature"s or "weight"s of the last task occupy.

        Returns
        -------
        Entry numbers int64 [n], ascending, a copy of the entries uint8 [n, 64], and which of their
        bytes belong to an operand, bool [n, 64].
        """
        flat = np.zeros(self.bytes.size, bool)
        flat[self._held[kind]] = True
        held = flat.reshape(-1, ENTRY_BYTES)
        numbers = np.flatnonzero(held.any(axis=1))
        return numbers, self.entries[numbers], held[numbers]

    def features(self, ctx: Context, cna: View, shape: ConvShape) -> NDArray:
        """Fetch the features unless DATA_REUSE is set and read them back.

        What would lie in the weights' banks or behind them is not stored, and reads as zero (2.7).

        Returns
        -------
        Elements as `decode` has them, [rows, columns, shape.lanes]; lanes that are not live are 0.
        """
        fetch = not cna.get("CBUF_CON0", "DATA_REUSE")
        room = feature_entries(cna)
        out_shape = (shape.height, shape.width, shape.lanes)
        if shape.argb:
            if fetch:
                load_argb(ctx, cna, shape, self.bytes[: room * ENTRY_BYTES])
            places = argb_places(cna, shape)
            stored = places < room * ENTRY_BYTES
            self._held["feature"] = places[stored]
            read = np.zeros(places.shape, np.uint8)
            read[stored] = self.bytes[places[stored]]
            elements = decode(shape.type, read)
        else:
            atoms = self._places(cna, shape)
            stored = atoms < room * ENTRY_ATOMS
            if fetch:
                addresses = feature_addresses(ctx, cna, shape)
                fetched = ctx.read("feature", "CNA", "FEATURE_DATA_ADDR", addresses)
                self.atoms[atoms[stored]] = fetched[stored.ravel()]
            self._held["feature"] = atoms[stored][:, None] * ATOM + np.arange(ATOM)
            read = np.zeros((*atoms.shape, ATOM), np.uint8)
            read[stored] = self.atoms[atoms[stored]]
            image = read.transpose(1, 2, 0, 3)  # from [surface, row, column, 16]
            elements = decode(shape.type, image.reshape(shape.height, shape.width, -1))
        live = min(elements.shape[2], shape.channels)
        out = np.zeros(out_shape, elements.dtype)
        out[:, :, :live] = elements[:, :, :live]
        return out

    @staticmethod
    def _places(cna: View, shape: ConvShape) -> NDArray[np.int64]:
        """Atom from the first entry on of every (surface, row, column) (docs/hardware.md 2.2)."""
        full, rest = slabs(shape)
        pitch, width = cna.get("CBUF_CON1", "DATA_ENTRIES"), shape.width
        atom = np.arange(shape.surfaces, dtype=np.int64)[:, None, None]
        y = np.arange(shape.height, dtype=np.int64)[None, :, None]
        x = np.arange(width, dtype=np.int64)[None, None, :]
        slab, column = atom // ENTRY_ATOMS, atom % ENTRY_ATOMS
        entry = y * pitch + slab * width + x
        column = column + 0 * entry
        if rest:
            tail = np.broadcast_to(slab == full, entry.shape)
            share = ENTRY_ATOMS // rest
            entry = np.where(tail, y * pitch + full * width + x // share, entry)
            column = np.where(tail, (x % share) * rest + column, column)
        return entry * ENTRY_ATOMS + column

    def weights(self, ctx: Context, cna: View, shape: ConvShape) -> NDArray[np.uint8]:
        """Fetch the weights unless WEIGHT_REUSE is set and return the byte stream, uint8 [WEIGHT_BYTES]."""
        banks = cna.get("CBUF_CON0", "WEIGHT_BANK")
        ring = banks * BANK_ENTRIES * ENTRY_BYTES
        start = (BANKS - banks) * BANK_ENTRIES * ENTRY_BYTES
        size = cna.get("WEIGHT_SIZE0", "WEIGHT_BYTES")
        size = -(-size // ATOM) * ATOM
        image = self.bytes
        held = (start + np.arange(ring)) % image.size
        self._held["weight"] = held[:size]
        if cna.get("CBUF_CON0", "WEIGHT_REUSE"):
            size = min(size, sum(group_bytes(shape)))  # the rest is never read, and may be 4 GiB
            return image[held[np.arange(size) % ring]]
        stream = ctx.read_run("weight", "CNA", "DCOMP_ADDR0", ctx.address(cna, "DCOMP_ADDR0"), size)
        tail = np.arange(max(0, size - ring), size)
        image[held[tail % ring]] = stream[tail]
        return stream


def feature_addresses(ctx: Context, cna: View, shape: ConvShape) -> NDArray[np.int64]:
    """Byte address of every feature atom, int64 [surface, row, column] (docs/hardware.md 1.1-1.3)."""
    stride, jump = cna.get("DMA_CON1", "LINE_STRIDE"), cna.signed("DMA_CON2", "SURF_STRIDE")
    surface = stride + jump
    line = stride
    if not cna.get("CONV_CON1", "GROUP_LINE_OFF"):
        line = stride // 4
    elif jump == 0:
        surface = shape.width
    c1 = np.arange(shape.surfaces, dtype=np.int64)[:, None, None]
    y = np.arange(shape.height, dtype=np.int64)[None, :, None]
    x = np.arange(shape.width, dtype=np.int64)[None, None, :]
    return ctx.place(cna, "FEATURE_DATA_ADDR") + ATOM * (c1 * surface + y * line + x)
