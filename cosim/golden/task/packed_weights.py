"""Compressed weights in the task-level golden model [HW 4.13]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

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


def amounts(cna: View) -> list[int]:
    """Return DCOMP_AMOUNT of each segment: its size with its header in atoms, minus one."""
    return [cna(name, name) for name in (f"DCOMP_AMOUNT{n}" for n in range(form.SEGMENTS))]


def segments(cna: View, start: int) -> list[tuple[int, int]]:
    """Return address and size in bytes of each segment of the compressed weights at address `start`."""
    out = []
    for amount in amounts(cna):
        size = (amount + 1) * ATOM
        out.append((start, size))
        start += -(-size // form.SEGMENT_ALIGN) * form.SEGMENT_ALIGN
    return out


@dataclass(frozen=True)
class PackedFault:
    """Why the weights of a segment never come.

    Members
    -------
    segment : number of the segment.
    code : name of the diagnostic: "WEIGHT_CODE", or "SIZE_MISMATCH" if the bits end before the weights.
    value : value of the diagnostic: position and value of the header byte that requests an unknown code, or
        DCOMP_AMOUNT if the bits end.
    message : text for people.
    """

    segment: int
    code: str
    value: int
    message: str


@dataclass(frozen=True)
class _Codes:
    """The code of a header, by the next `_WINDOW` bits, the first in bit 0.

    Members
    -------
    steps : bits of the code, also of one that is unknown; uint8.
    values : the weight, uint8.
    counts : how many times it comes; 0 if the code is unknown, uint8.
    wrong : position of the header byte because of which the code is unknown, uint8.
    """

    steps: NDArray[np.uint8]
    values: NDArray[np.uint8]
    counts: NDArray[np.uint8]
    wrong: NDArray[np.uint8]


_WINDOW = max(map(len, form.PREFIXES)) + 1 + form.WIDEST
"""Bits of the longest code: prefix, sign and size."""

_BLOCK = 1 << 13
"""Bytes of a payload that are decoded together."""


def _unknown_header(header: bytes) -> int | None:
    """Return the position of the first header byte with an unknown value that does not depend on the bits."""
    runs = header[form.HEADER_FLAGS] == form.RUNS
    for place, good in (
        (form.HEADER_FLAGS, runs or header[form.HEADER_FLAGS] == form.PLAIN),
        (form.HEADER_ZERO, not header[form.HEADER_ZERO]),
        (form.HEADER_RUNS, not runs or 1 <= header[form.HEADER_RUNS] <= 4),
        (form.HEADER_RUNS + 1, not runs or not header[form.HEADER_RUNS + 1]),
    ):
        if not good:
            return place
    return None


@lru_cache(128)
def _codes_of(header: bytes) -> _Codes:
    windows = np.arange(1 << _WINDOW, dtype=np.int64)
    steps, values, counts, wrong = (np.zeros(windows.size, np.uint8) for _ in range(4))
    runs, length, offset = (
        header[form.HEADER_FLAGS] == form.RUNS,
        header[form.HEADER_RUNS],
        header[form.HEADER_OFFSET],
    )
    for prefix, rank in _RANK_OF.items():
        begin = int(prefix[::-1], 2)
        here = np.flatnonzero(windows & (1 << len(prefix)) - 1 == begin)
        rest = windows[here] >> len(prefix)
        place = form.HEADER_CLASSES + rank // 2
        kind = header[place] >> 4 * (rank % 2) & 15
        if kind > form.WIDEST:
            steps[here], wrong[here] = len(prefix), place
            continue
        if runs and kind == 0:
            known = rest & 1 == int(form.ZERO_RUN)
            steps[here], values[here] = len(prefix) + 1, offset
            counts[here], wrong[here] = np.where(known, length, 0), np.where(known, 0, form.UNKNOWN_RUN)
            continue
        negative, bits = rest & 1 == 1, rest >> 1
        if runs and kind == form.WIDEST:
            width, size = form.WIDEST, bits & (1 << form.WIDEST) - 1
            value = np.where(negative, np.where(size, -size, -128), size)
        else:
            width = max(kind - 1, 0)
            size = (1 << kind - 1) + (bits & (1 << width) - 1) if kind else np.zeros_like(bits)
            value = np.where(negative, -size if runs else ~size, size)
        steps[here], counts[here] = len(prefix) + 1 + width, 1
        values[here] = (value + offset) % 256
    return _Codes(steps, values, counts, wrong)


def _weights_of(segment: bytes, count: int) -> tuple[NDArray[np.uint8], int | None, bool]:
    """Decode a segment until it has `count` weights.

    Returns
    -------
    The weights, uint8 (a final run may exceed `count`); if there are fewer, the position of the header byte
    that requests an unknown code (None: the segment has no more bits); whether there are fewer.
    """
    header, payload = segment[: form.HEADER_BYTES], np.frombuffer(segment, np.uint8)[form.HEADER_BYTES :]
    unknown = _unknown_header(header)
    if unknown is not None:
        return np.zeros(0, np.uint8), unknown, True
    codes, total = _codes_of(header), 8 * payload.size
    parts: list[NDArray[np.uint8]] = []
    got = at = 0
    while got < count:
        first = at // 8
        block = np.zeros(_BLOCK + 2, np.int32)
        there = payload[first : first + block.size]
        block[: there.size] = there
        words = block[:-2] | block[1:-1] << 8 | block[2:] << 16
        windows = (words[:, None] >> np.arange(8) & (1 << _WINDOW) - 1).reshape(-1)
        emitted = codes.counts[windows]
        late = np.arange(8 * first, 8 * first + windows.size) + codes.steps[windows] > total
        emitted[late] = 0
        steps, counts, here, places = (
            memoryview(codes.steps[windows]),
            memoryview(emitted),
            at - 8 * first,
            [],
        )
        while got < count and here < windows.size and counts[here]:
            places.append(here)
            got += counts[here]
            here += steps[here]
        parts.append(np.repeat(codes.values[windows[places]], codes.counts[windows[places]]))
        at = 8 * first + here
        if got < count and here < windows.size:
            wrong = None if late[here] else int(codes.wrong[windows[here]])
            return np.concatenate(parts), wrong, True
    return np.concatenate([*parts, np.zeros(0, np.uint8)]), None, False


def decode_packed(
    parts: Sequence[bytes], amounts: Sequence[int], quads: int
) -> tuple[list[NDArray[np.uint8]], PackedFault | None]:
    """Decode the segments of compressed weights [HW 4.13].

    Parameters
    ----------
    parts
        Header and payload of each segment.
    amounts
        DCOMP_AMOUNT of each segment.
    quads
        Number of groups of four weights that each segment has.

    Returns
    -------
    Weights of each segment, uint8, and the fault of the segment that the earliest atom needs; None if all
    have their weights.
    """
    found: list[NDArray[np.uint8]] = []
    troubles: list[tuple[int, int, int | None]] = []  # (quad, segment, header byte)
    for number, segment in enumerate(parts):
        weights, unknown, fewer = _weights_of(segment, quads * form.QUAD)
        if fewer:
            troubles.append((len(weights) // form.QUAD, number, unknown))
        found.append(weights[: quads * form.QUAD])
    if not troubles:
        return found, None
    # An atom consists of a quad of each of four segments, which the atoms use in turn. The segment that the
    # earliest atom needs is reported.
    _, number, byte = min(troubles, key=lambda trouble: trouble[:2])
    if byte is None:
        message = f"the bits of segment {number} end before its weights do"
        return found, PackedFault(number, "SIZE_MISMATCH", amounts[number], message)
    value = parts[number][byte]
    message = f"byte {byte} of the header of segment {number} has the unknown value {value:#04x}"
    return found, PackedFault(number, "WEIGHT_CODE", byte << 8 | value, message)


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
    parts = [
        ctx.read_run("weight", "CNA", "DCOMP_ADDR0", at, length).tobytes()
        for at, length in segments(cna, ctx.place(cna, "DCOMP_ADDR0"))
    ]
    weights, fault = decode_packed(parts, amounts(cna), quads)
    if fault is not None:
        raise _report(ctx, fault)
    cube = np.array(weights, np.uint8).reshape(form.LANES_OF_ATOM, form.LANES_OF_ATOM, quads, form.QUAD)
    return cube.transpose(2, 0, 1, 3).reshape(-1)


def _report(ctx: Context, fault: PackedFault) -> GoldenHang:
    """Record the finding about a segment and return the error of the task, which never ends because of it."""
    register, task = f"DCOMP_AMOUNT{fault.segment}", ctx.report.index
    ctx.findings.append(Finding(task, fault.code, "CNA", register, fault.value, fault.message))
    return GoldenHang(
        fault.message, task=task, block="CNA", register=register, value=fault.value, code=fault.code
    )
