"""Scalar model of the DPU's packets, byte by byte [HW 7.12]."""

from __future__ import annotations

from collections.abc import Iterator

ATOM, PACKET = 16, 8


def stream(atoms: list[list[bytes]], together: int) -> list[bytes]:
    """Return atoms [surface][pixel] in packet order: along surfaces, or pixel by pixel of some surfaces."""
    if not together:
        return [atom for surface in atoms for atom in surface]
    groups = range(0, len(atoms), together)
    return [atoms[g + r][m] for g in groups for m in range(len(atoms[0])) for r in range(together)]


def transposed(block: list[bytes], size: int) -> list[bytes]:
    """Return elements of `size` bytes of a square block of atoms, with rows and columns exchanged."""
    return [b"".join(atom[size * e : size * (e + 1)] for atom in block) for e in range(ATOM // size)]


def packets(
    atoms: list[list[bytes]],
    *,
    together: int,
    size: int,
    sizes: tuple[int, int],
    pitches: tuple[int, int, int],
) -> Iterator[tuple[int, bytes]]:
    """Yield (position in atoms, atom); element `size` is 0 for no transposition, `together` 0 when flying.

    `sizes` are height and width of the WDMA, `pitches` those of surfaces, lines and the atoms of a packet.
    """
    row = stream(atoms, together)
    if size:
        step = ATOM // size
        row = [a for at in range(0, len(row), step) for a in transposed(row[at : at + step], size)]
    (height, width), (jump, line, apart) = sizes, pitches
    for k in range(len(row) // PACKET):
        g, rest = divmod(k, height * width)
        y, x = divmod(rest, width)
        for e in range(PACKET):
            yield g * jump + y * line + x + e * apart, row[PACKET * k + e]
