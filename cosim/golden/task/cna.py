"""CNA of the task-level golden model: feature and weight fetch through a byte image of CBUF.

The model follows [HW 4] to [HW 6].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task.arith import decode, saturate, shift_even, shift_up, signed
from rkcosim.golden.task.context import Context
from rkcosim.golden.task.packed_weights import fetch_packed, is_packed
from rkcosim.golden.task.registers import View
from rkcosim.golden.task.shapes import ConvShape
from rkcosim.spec.config import ENTRY_BYTES
from rkcosim.spec.types import ATOM, BANK_ENTRIES, BANKS, DEPTHWISE_GROUP, ENTRY_ATOMS

CONVERTERS = 4
"""Sets of factors of the input converter."""


def feature_entries(cna: View) -> int:
    """Entries that can hold features: those before the banks of the weights (2.7)."""
    return max(BANKS - cna("CBUF_CON0", "WEIGHT_BANK"), 0) * BANK_ENTRIES


class SavedCbuf(NamedTuple):
    """A copy of CBUF, with the number of the change after which it was made."""

    changes: int
    atoms: NDArray[np.uint8]
    held: dict[str, NDArray[np.int64] | slice]


class Cbuf:
    """Byte image of the 384 KiB convolution buffer, kept from task to task for the reuse modes."""

    def __init__(self) -> None:
        self.atoms = np.zeros((BANKS * BANK_ENTRIES * ENTRY_ATOMS, ATOM), np.uint8)
        self._held: dict[str, NDArray[np.int64] | slice] = {}
        self._changes = 0
        """Number of fetches so far; also `put_back` counts, so that no two contents have the same number."""

    def saved(self, before: SavedCbuf | None = None) -> SavedCbuf:
        """Return a copy for `put_back`; that of `before` is used if nothing has changed since."""
        same = before is not None and before.changes == self._changes
        atoms = before.atoms if before is not None and same else self.atoms.copy()
        return SavedCbuf(self._changes, atoms, dict(self._held))

    def put_back(self, saved: SavedCbuf) -> None:
        """Return to what `saved` copied."""
        self.atoms[:] = saved.atoms
        self._held = dict(saved.held)
        self._changes += 1

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The image as uint8 [384 Ki], in place."""
        return self.atoms.reshape(-1)

    @property
    def entries(self) -> NDArray[np.uint8]:
        """The image as uint8 [6144, 64], in place."""
        return self.atoms.reshape(-1, ENTRY_BYTES)

    def occupied(self, kind: str) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.bool_]]:
        """Entries that the features or weights of the last task occupy; `kind` is "feature" or "weight".

        Returns
        -------
        Entry numbers int64 [n], ascending; a copy of the entries, uint8 [n, 64]; and which of their
        bytes belong to an operand, bool [n, 64].
        """
        flat = np.zeros(self.bytes.size, bool)
        flat[self._held[kind]] = True
        held = flat.reshape(-1, ENTRY_BYTES)
        numbers = np.flatnonzero(held.any(axis=1))
        return numbers, self.entries[numbers], held[numbers]

    def features(self, ctx: Context, cna: View, shape: ConvShape) -> NDArray:
        """Fetch the features unless DATA_REUSE is set, and read them back from CBUF.

        Data that would lie in or behind the banks of the weights are not stored, and read as zero (2.7).

        Returns
        -------
        Elements as returned by `decode`, [rows, columns, shape.lanes]; unused lanes are 0.
        """
        self._changes += 1
        fetch = not cna("CBUF_CON0", "DATA_REUSE")
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
                if shape.converts and not shape.argb:
                    fetched = convert_input(cna, shape.type.bits, fetched)
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
        """Atom, relative to the first entry, of every (surface, row, column) [HW 4.5]."""
        full, rest = shape.slabs
        pitch, width = cna("CBUF_CON1", "DATA_ENTRIES"), shape.width
        atom = np.arange(shape.surfaces, dtype=np.int64)[:, None, None]
        y = np.arange(shape.height, dtype=np.int64)[None, :, None]
        x = np.arange(width, dtype=np.int64)[None, None, :]
        slab, column = atom // ENTRY_ATOMS, atom % ENTRY_ATOMS
        entry = y * pitch + slab * width + x
        column = np.broadcast_to(column, entry.shape)
        if rest:
            tail = np.broadcast_to(slab == full, entry.shape)
            share = ENTRY_ATOMS // rest
            entry = np.where(tail, y * pitch + full * width + x // share, entry)
            column = np.where(tail, (x % share) * rest + column, column)
        return entry * ENTRY_ATOMS + column

    def weights(self, ctx: Context, cna: View, shape: ConvShape) -> NDArray[np.uint8]:
        """Fetch the weights unless WEIGHT_REUSE is set, and return the byte stream, uint8 [WEIGHT_BYTES]."""
        self._changes += 1
        banks = cna("CBUF_CON0", "WEIGHT_BANK")
        ring = banks * BANK_ENTRIES * ENTRY_BYTES
        start = (BANKS - banks) * BANK_ENTRIES * ENTRY_BYTES
        size = cna("WEIGHT_SIZE0", "WEIGHT_BYTES")
        size = -(-size // ATOM) * ATOM
        image = self.bytes
        if size <= ring and start + size <= image.size and not cna("CBUF_CON0", "WEIGHT_REUSE"):
            here = slice(start, start + size)  # no byte overwrites another one
            self._held["weight"] = here
            image[here] = self._stream(ctx, cna, size)
            return image[here].copy()
        held = (start + np.arange(ring)) % image.size
        self._held["weight"] = held[:size]
        if cna("CBUF_CON0", "WEIGHT_REUSE"):
            size = min(size, sum(shape.group_bytes))  # the rest, which may be up to 4 GiB, is never read
            return image[held[np.arange(size) % ring]]
        stream = self._stream(ctx, cna, size)
        tail = np.arange(max(0, size - ring), size)
        image[held[tail % ring]] = stream[tail]
        return stream

    @staticmethod
    def _stream(ctx: Context, cna: View, size: int) -> NDArray[np.uint8]:
        """Read the weights from memory, uint8 [size]."""
        if is_packed(cna):
            return fetch_packed(ctx, cna, size)
        return ctx.read_run("weight", "CNA", "DCOMP_ADDR0", ctx.place(cna, "DCOMP_ADDR0"), size)


def feature_addresses(ctx: Context, cna: View, shape: ConvShape) -> NDArray[np.int64]:
    """Byte address of every feature atom, int64 [surface, row, column] ([HW 4.1.1] to [HW 4.1.3])."""
    line, surface = shape.pitches
    c1 = np.arange(shape.surfaces, dtype=np.int64)[:, None, None]
    y = np.arange(shape.height, dtype=np.int64)[None, :, None]
    x = np.arange(shape.width, dtype=np.int64)[None, None, :]
    return ctx.place(cna, "FEATURE_DATA_ADDR") + ATOM * (c1 * surface + y * line + x)


# -- first-layer input ----------------------------------------------------------------------------


def load_argb(ctx: Context, cna: View, shape: ConvShape, image: NDArray[np.uint8]) -> None:
    """Fetch, convert and store the pixels.

    Parameters
    ----------
    image
        Bytes of CBUF before the weights, written in place from byte 0 on. Unused bytes of a pixel and the
        rest of the last atom become zero.  Pixels beyond the end of `image` are not stored (2.7).
    """
    pitch = cna("DMA_CON1", "LINE_STRIDE")
    total, size = shape.height * pitch, shape.type.bits // 8
    base = ctx.place(cna, "FEATURE_DATA_ADDR")
    raw = ctx.read_run("feature", "CNA", "FEATURE_DATA_ADDR", base, total * shape.argb * size)
    pixels = raw.reshape(total, -1)
    if shape.converts:
        pixels = convert_input(cna, shape.type.bits, pixels)
    step = shape.pixel_bytes
    stored = np.zeros((total, step), np.uint8)
    stored[:, : shape.argb * size] = pixels
    flat = np.pad(stored.ravel(), (0, -total * step % ATOM))[: image.size]
    image[: flat.size] = flat


def argb_places(cna: View, shape: ConvShape) -> NDArray[np.int64]:
    """Byte from the first entry on of every channel of a pixel, int64 [rows, columns, channels' bytes]."""
    y = np.arange(shape.height, dtype=np.int64)[:, None, None]
    x = np.arange(shape.width, dtype=np.int64)[None, :, None]
    byte = np.arange(shape.argb * shape.type.bits // 8, dtype=np.int64)
    return (y * cna("DMA_CON1", "LINE_STRIDE") + x) * shape.pixel_bytes + byte


def convert_input(cna: View, bits: int, raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Input converter: integers of `bits` bits, uint8 [..., channels * bytes], to the same form [HW 4.3].

    The channels are those of a pixel of the first layer, or those of an atom.
    """
    elements = np.ascontiguousarray(raw).view(f"<i{bits // 8}").astype(np.int64)
    for channel in range(elements.shape[-1]):
        if not cna("CVT_CON5", "PER_CHANNEL_CVT_EN") >> channel & 1:
            continue
        x, number = elements[..., channel], channel % CONVERTERS
        if not cna("CVT_CON0", "DATA_SIGN"):
            x = x % (1 << bits)
        scale = signed(cna(f"CVT_CON{number + 1}", f"CVT_SCALE{number}"), 16)
        offset = signed(cna(f"CVT_CON{number + 1}", f"CVT_OFFSET{number}"), 16)
        shift = cna("CVT_CON0", f"CVT_TRUNCATE_{number}")
        add_first = cna("CVT_CON0", "CVT_TYPE")
        t = (x + offset) * scale if add_first else x * scale
        t = shift_up(t, shift) if cna("CVT_CON0", "ROUND_TYPE") else shift_even(t, shift)
        elements[..., channel] = saturate(t if add_first else t + offset, bits)
    return elements.astype(f"<i{bits // 8}").view(np.uint8).reshape(raw.shape)


# -- weights --------------------------------------------------------------------------------------


def unpack_weights(stream: NDArray[np.uint8], shape: ConvShape) -> NDArray:
    """Convert a weight stream from the order of tiles.

    Parameters
    ----------
    stream
        uint8, at least the bytes of all groups.

    Returns
    -------
    Elements as returned by `decode`. Direct convolution: [channel groups, taps, lanes of a channel group,
    kernels], with 0 in lanes above the atoms of a tile. Depthwise: [taps, groups * 64], with 0 in channels
    above the last block.
    """
    elements = decode(shape.type, stream[: sum(shape.group_bytes)])
    if shape.depthwise:
        counts = np.array(shape.block_atoms) * shape.type.per_atom
        parts = np.split(elements, np.cumsum(counts * shape.taps)[:-1])
        tiles = np.concatenate([part.reshape(shape.taps, -1) for part in parts], axis=1)
        return np.pad(tiles, ((0, 0), (0, shape.groups * DEPTHWISE_GROUP - tiles.shape[1])))
    lanes, most = shape.type.channels, shape.type.kernels
    atoms = shape.tile_atoms
    out = np.zeros((len(atoms), shape.taps, lanes, shape.kernels), elements.dtype)
    at = 0
    for k in range(0, shape.kernels, most):
        n = min(most, shape.kernels - k)
        for group, count in enumerate(atoms):
            m = count * shape.type.per_atom
            tile = elements[at : at + n * m * shape.taps].reshape(shape.taps, n, m)
            out[group, :, :m, k : k + n] = tile.transpose(0, 2, 1)
            at += tile.size
    return out
