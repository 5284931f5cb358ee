"""Compressed weights in the task-level golden model [HW 4.13]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task.context import Context, Finding
from rkcosim.golden.task.errors import GoldenHang
from rkcosim.golden.task.registers import View
from rkcosim.spec import weight_code as form
from rkcosim.spec.types import ATOM

_RANK_OF = {prefix: rank for rank, prefix in enumerate(form.PREFIXES)}


def is_packed(cna: View) -> bool:
    """Return whether CNA fetches compressed weights."""
    on = cna("DCOMP_CTRL", "DECOMP_CONTROL") and not cna("DCOMP_CTRL", "WT_DEC_BYPASS")
    return bool(on) and not cna("CBUF_CON0", "WEIGHT_REUSE")


def segments(cna: View, start: int) -> list[tuple[int, int]]:
    """Return address and size in bytes of each segment of the compressed weights at address `start`."""
    out = []
    for name in (f"DCOMP_AMOUNT{n}" for n in range(form.SEGMENTS)):
        size = (cna(name, name) + 1) * ATOM
        out.append((start, size))
        start += -(-size // form.SEGMENT_ALIGN) * form.SEGMENT_ALIGN
    return out


@dataclass(frozen=True)
class _Unknown(Exception):
    """A segment cannot be decoded further.

    Members
    -------
    byte : position of the header byte that requests an unknown code; None if the segment has no more bits.
    """

    byte: int | None


class _Bits:
    """Reader of the bits of a payload, in the order in which they are decoded."""

    def __init__(self, payload: bytes) -> None:
        self._payload, self._at = payload, 0

    def take(self, count: int) -> int:
        """Return the next `count` bits as a number, the first in bit 0; raise `_Unknown` at the end."""
        first, bit = divmod(self._at, 8)
        self._at += count
        if self._at > 8 * len(self._payload):
            raise _Unknown(None)
        return int.from_bytes(self._payload[first : first + 2], "little") >> bit & ((1 << count) - 1)


def _weights_of(segment: bytes, count: int) -> tuple[list[int], _Unknown | None]:
    """Decode a segment until it has `count` weights.

    Returns
    -------
    The weights, 0 to 255 (a final run may exceed `count`), and the reason if there are fewer; else None.
    """
    out: list[int] = []
    try:
        _decode(segment, count, out)
    except _Unknown as unknown:
        return out, unknown
    return out, None


def _decode(segment: bytes, count: int, out: list[int]) -> None:
    header, bits = segment[: form.HEADER_BYTES], _Bits(segment[form.HEADER_BYTES :])
    runs = header[form.HEADER_FLAGS] == form.RUNS
    if header[form.HEADER_FLAGS] not in (form.RUNS, form.PLAIN):
        raise _Unknown(form.HEADER_FLAGS)
    if header[form.HEADER_ZERO]:
        raise _Unknown(form.HEADER_ZERO)
    length = header[form.HEADER_RUNS]
    if runs and not 1 <= length <= 4:
        raise _Unknown(form.HEADER_RUNS)
    if runs and header[form.HEADER_RUNS + 1]:
        raise _Unknown(form.HEADER_RUNS + 1)
    offset = header[form.HEADER_OFFSET]
    while len(out) < count:
        prefix = ""
        while prefix not in _RANK_OF:
            prefix += str(bits.take(1))
        rank = _RANK_OF[prefix]
        place = form.HEADER_CLASSES + rank // 2
        kind = header[place] >> 4 * (rank % 2) & 15
        if kind > form.WIDEST:
            raise _Unknown(place)
        if runs and kind == 0:
            if str(bits.take(1)) != form.ZERO_RUN:
                raise _Unknown(form.UNKNOWN_RUN)
            out += [offset] * length
            continue
        negative = bits.take(1)
        if runs and kind == form.WIDEST:
            size = bits.take(form.WIDEST)
            value = (-size or -128) if negative else size
        else:
            size = (1 << kind - 1 | bits.take(kind - 1)) if kind else 0
            value = size if not negative else -size if runs else ~size
        out.append((value + offset) % 256)


def fetch_packed(ctx: Context, cna: View, size: int) -> NDArray[np.uint8]:
    """Fetch compressed weights and decompress them [HW 4.13].

    Parameters
    ----------
    ctx
        Memory, settings and findings of the task.
    cna
        Registers of CNA.
    size
        WEIGHT_BYTES rounded up to whole atoms; the rules about compressed weights have been checked.

    Returns
    -------
    The weights in the layout of uncompressed weights in memory, uint8 [size].

    Raises
    ------
    GoldenHang
        if a segment uses an unknown code or ends before its weights.
    """
    quads = size // form.WHOLE
    parts: list[list[int]] = []
    troubles: list[tuple[int, int, _Unknown]] = []  # (quad, segment, why)
    heads: list[bytes] = []
    for number, (at, length) in enumerate(segments(cna, ctx.place(cna, "DCOMP_ADDR0"))):
        segment = ctx.read_run("weight", "CNA", "DCOMP_ADDR0", at, length).tobytes()
        weights, unknown = _weights_of(segment, quads * form.QUAD)
        if unknown is not None:
            troubles.append((len(weights) // form.QUAD, number, unknown))
        parts.append(weights[: quads * form.QUAD])
        heads.append(segment[: form.HEADER_BYTES])
    if troubles:
        # An atom consists of a quad of each of four segments, which the atoms use in turn. The segment that
        # the earliest atom needs is reported.
        _, number, unknown = min(troubles, key=lambda trouble: trouble[:2])
        amount = cna(f"DCOMP_AMOUNT{number}", f"DCOMP_AMOUNT{number}")
        raise _report(ctx, number, unknown, amount, heads[number])
    cube = np.array(parts, np.uint8).reshape(form.LANES_OF_ATOM, form.LANES_OF_ATOM, quads, form.QUAD)
    return cube.transpose(2, 0, 1, 3).reshape(-1)


def _report(ctx: Context, number: int, unknown: _Unknown, amount: int, header: bytes) -> GoldenHang:
    """Record the finding about a segment and return the error of the task, which never ends because of it."""
    register, byte = f"DCOMP_AMOUNT{number}", unknown.byte
    if byte is None:
        code, value = "SIZE_MISMATCH", amount
        message = f"the bits of segment {number} end before its weights do"
    else:
        code, value = "WEIGHT_CODE", byte << 8 | header[byte]
        message = f"byte {byte} of the header of segment {number} has the unknown value {header[byte]:#04x}"
    task = ctx.report.index
    ctx.findings.append(Finding(task, code, "CNA", register, value, message))
    return GoldenHang(message, task=task, block="CNA", register=register, value=value, code=code)
