"""Accesses of a task to DRAM and their order, stripe by stripe (`turns`), derived from its sizes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rkcosim.measure.perf.estimator.accesses import (
    FEATURES,
    OPERANDS,
    TABLES,
    WEIGHTS,
    Coefficients,
    Flow,
    Memory,
    Reads,
    Step,
    Wishes,
)
from rkcosim.measure.perf.estimator.features import BEAT, CONV, FLYING, LONGEST, STRIPE, TaskShape
from rkcosim.spec.types import POOL_ATOM_CYCLES, POOL_RESULT_CYCLES

READ_AHEAD = 256
"""Largest number of beats in flight of a loader (spec/config.py)."""
RING_ATOMS = 1024
"""Atoms that a read client of the DPU fetches ahead (rtl/npu/dpu_rdma_stripes.py)."""
LITTLE = 1024
"""If a task's input has fewer beats, the order in which clients are served affects its duration."""
SURFACE_CYCLES = 1.0
"""Cycles of each surface of a pooling in addition to its rows."""
FINISH_CYCLES = 2
"""Cycles per output atom of the last step of the PPU, which processes 64 bits per cycle."""


@dataclass(frozen=True)
class Lists:
    """Beats of command lists fetched during a task: from its start, and after its registers are written."""

    early: float = 0.0
    late: float = 0.0


NO_LISTS = Lists()


def flow(shape: TaskShape, m: Memory, c: Coefficients, lists: Lists = NO_LISTS, gap: float = 0.0) -> Flow:
    """Return the flow of a task that starts `gap` cycles after the previous one."""
    if shape.kind == CONV:
        return _convolution(shape, m, c, lists, gap)
    if shape.kind == FLYING:
        return _flying(shape, m, c, lists, gap)
    return _pooling(shape, m, c, lists, gap)


def _convolution(s: TaskShape, m: Memory, c: Coefficients, lists: Lists, gap: float) -> Flow:
    tile = STRIPE * s.tile_cycles
    slots = tile * s.tiles
    weights, here = s.weight_bytes / BEAT, s.group_bytes / BEAT if s.weight_bytes else 0.0
    ring = s.ring_bytes / BEAT + READ_AHEAD
    table, operand = s.table_bytes / BEAT, s.operand_bytes / BEAT
    operands = operand * s.groups * s.pixels / min(STRIPE, s.pixels)
    ahead = RING_ATOMS // 2 // max(operand, 1) * operand
    # Taps of the first channels come first, row by row; those of the last row wait for the last input row.
    taps = min(s.kernel_x * s.kernel_y, s.tiles)
    last_row = slots - (1 - 1 / s.kernel_y) * slots * taps / s.tiles
    full = min(STRIPE, s.pixels)
    little = s.feature_beats + weights + table + operands < LITTLE or not s.feature_beats
    little = little and m.read <= READ_AHEAD * m.alone  # otherwise latency matters, not the order
    first, soon = c["conv_start"] + m.read, c["flying_start"] + m.read
    steps: list[Step] = []
    kept, read = s.kept, 0.0
    for group in range(s.groups):
        octets = min(kept, s.octets)
        kept -= octets
        # Octets past the last channel are dropped, even while the previous one is processed.
        pixel_cycles = octets * s.octet_cycles + max(s.octets - octets - s.octet_cycles + 1, 0)
        tiles = min((group + 1) * here, weights)
        for n in range(s.stripes):
            pixels = min(STRIPE, s.pixels - n * STRIPE)
            # Remaining cycles of the stripe -> beats that must have been read before they begin.
            needs: dict[float, list[tuple[int, float]]] = {slots: []}
            if not n and here:  # one tile after the other
                first_tile = max(tiles - here * (1 - 1 / s.tiles), 0.0)
                all_first = s.weights_first and s.weight_bytes <= s.ring_bytes
                needs[slots].append((WEIGHTS, weights if all_first else first_tile))
                needs[tile] = [*needs.get(tile, []), (WEIGHTS, tiles)]
            if not group and s.feature_beats:
                top, low = _rows(s, n)
                needs[slots].append((FEATURES, _beats(s, max(top, s.first_rows if n == 0 else 0))))
                needs[last_row] = [*needs.get(last_row, []), (FEATURES, _beats(s, low))]
            drain_needs = [(TABLES, table * (group + 1) / s.groups)] if table else []
            drain_allows = []
            if operand:
                read += operand * pixels / full
                drain_needs.append((OPERANDS, read))
                drain_allows.append((OPERANDS, min(read + ahead, operands)))
            allows = []
            if here and n == s.stripes - 1:
                allows = [(WEIGHTS, min(weights, ring + (group + 1) * here))]
            beats, bursts = _written(s, pixels, 1.0)
            left = sorted(needs, reverse=True)
            for number, cycles in enumerate(left):
                rows = max((beats for who, beats in needs[cycles] if who == FEATURES), default=0.0)
                placed = first + rows / s.feature_beats * s.feature_fills if rows and little else 0.0
                after = left[number + 1] if number + 1 < len(left) else 0.0
                steps.append(
                    Step(
                        needs[cycles],
                        cycles - after,
                        pixels * pixel_cycles,
                        beats,
                        bursts,
                        allows,
                        number == 0,
                        not after,
                        c["row_land"] if rows else c["tile"],
                        placed + c["row_land"] * bool(placed),
                        drain_needs,
                        drain_allows,
                    )
                )
    ratio = s.feature_beats / s.feature_fills if s.feature_fills and not little else 1.0
    # If both are requested, features are served first.
    weights_at = c["weight_start"] + m.read if little else first + LONGEST * m.alone
    earlier, last_burst = s.feature_bursts - s.last_bursts, s.last_beats / max(s.last_bursts, 1)
    reads = (
        Reads(
            s.feature_beats,
            first,
            (s.feature_beats - s.last_beats) / earlier if earlier > 0 else last_burst,
            min(ratio, 1.0),
            tail=s.last_beats,
            tail_burst=last_burst,
            window=READ_AHEAD,
        ),
        Reads(min(here, weights), weights_at, head=s.weight_head, window=READ_AHEAD),
        Reads(table, soon),
        Reads(min(ahead, operands), soon, operand / max(s.operand_runs, 1)),
        Reads(lists.early, m.read),
    )
    return Flow(
        gap,
        reads,
        steps,
        c["drain"],
        c["pipe"],
        m.write + c["conv_end"],
        min(max(READ_AHEAD - m.read / m.alone, 0.0), s.feature_beats),
        min(weights, ring),
        little,
        lists.late,
    )


def _rows(s: TaskShape, stripe: int) -> tuple[int, int]:
    """Input rows under the last pixel of a stripe: those needed to begin it, and all of them."""
    row = (min((stripe + 1) * STRIPE, s.pixels) - 1) // max(s.row_pixels, 1)
    top = ((row * s.stride - s.pad) >> s.spread) + 1
    low = ((row * s.stride - s.pad + s.reach - 1) >> s.spread) + 1
    return min(max(top, 1), s.rows), min(max(low, 1), s.rows)


def _beats(s: TaskShape, rows: int) -> float:
    """Beats of features up to a number of rows; the last group of rows may be smaller."""
    steps, wanted = -(-s.rows // s.row_step), -(-rows // s.row_step)
    if wanted >= steps:
        return s.feature_beats
    if s.last_beats * steps <= s.feature_beats * 1.1:
        return wanted * (s.feature_beats - s.last_beats) / (steps - 1)
    return wanted * s.row_step / s.rows * s.feature_beats


def _written(s: TaskShape, pixels: int, share: float) -> tuple[float, float]:
    """Return the beats and bursts that a stripe writes."""
    part = pixels / min(STRIPE, s.pixels) * share
    return (s.write_beats * part if s.to_memory else 0.0), max(s.write_runs * part, 1.0)


def _flying(s: TaskShape, m: Memory, c: Coefficients, lists: Lists, gap: float) -> Flow:
    full = min(STRIPE, s.pixels)
    ring = max(RING_ATOMS // STRIPE // max(s.surfaces, 1), 1)
    source, operand = s.source_bytes / BEAT, s.operand_bytes / BEAT
    levels = [0.0]
    stripes = []
    left = s.kept
    for _ in range(s.groups):
        octets = min(left, s.octets)
        left -= octets
        share = octets / min(s.kept, s.octets)
        for n in range(s.stripes):
            pixels = min(STRIPE, s.pixels - n * STRIPE)
            levels.append(levels[-1] + pixels / full * share)
            stripes.append((pixels * octets * s.octet_cycles, *_written(s, pixels, share)))
    count = len(stripes)

    def both(level: float) -> Wishes:
        return [(who, level * beats) for who, beats in ((FEATURES, source), (OPERANDS, operand)) if beats]

    steps = [
        Step(both(levels[n + 1]), 0.0, *stripe, drain_allows=both(levels[min(n + 1 + ring, count)]))
        for n, stripe in enumerate(stripes)
    ]
    first, soon = levels[min(ring, count)], c["flying_start"] + m.read
    reads = (
        Reads(first * source, soon, source / max(s.source_runs, 1)),
        Reads(),
        Reads(),
        Reads(first * operand, soon, operand / max(s.operand_runs, 1)),
        Reads(lists.early, m.read),
    )
    fill, behind = c["flying_fill"] - c["pipe"], m.write + c["flying_end"]
    return Flow(gap, reads, steps, fill, c["pipe"], behind, lists=lists.late, kind=s.kind)


def _pooling(s: TaskShape, m: Memory, c: Coefficients, lists: Lists, gap: float) -> Flow:
    """Return the flow of a pooling: the rows of all surfaces, one after the other."""
    rows = s.rows * s.groups
    beats = s.in_width * s.in_height * s.groups / 2
    work, writes = steps_of_rows(s) / rows, s.pixels * s.groups / 2 / rows
    bursts = max(writes / LONGEST, 1.0)
    steps = []
    for n in range(rows):  # a row begins with its first beat and ends with its last
        begins = [(FEATURES, min(beats * n / rows + 1, beats))]
        steps.append(Step(begins, work, 0.0, 0.0, 1.0, last=False))
        steps.append(Step([(FEATURES, beats * (n + 1) / rows)], 0.0, 0.0, writes, bursts, first=False))
    reads = (Reads(beats, c["pool_start"] + m.read), Reads(), Reads(), Reads(), Reads(lists.early, m.read))
    return Flow(gap, reads, steps, 0.0, 0.0, m.write, lists=lists.late, kind=s.kind)


def steps_of_rows(s: TaskShape) -> float:
    """Cycles of all rows of all surfaces if the input were already available."""
    rows = Counter(_axis(s.kernel_y, s.stride, s.pad, s.in_height, s.rows))
    total = SURFACE_CYCLES + sum(count * _pool_row(s, *row) for row, count in rows.items())
    return s.groups * max(total, FINISH_CYCLES * s.pixels)


def _axis(kernel: int, stride: int, pad: int, size: int, out: int) -> list[tuple[bool, int, bool]]:
    """Positions along an axis: inside the input, open windows, one closes (rtl/npu/ppu_windows.py)."""
    found = []
    at, begun, lowest, open_ = -pad, 0, 0, 0
    while True:
        opens = at == begun * stride - pad and begun < out
        now = open_ + opens
        closes = now > 0 and at == lowest * stride - pad + kernel - 1
        found.append((0 <= at < size, now, closes))
        if at >= size - 1 and lowest + closes >= out:
            return found
        open_ = now - closes
        begun += opens
        lowest += closes
        at += 1


def _pool_row(s: TaskShape, inside: bool, open_rows: int, closes_row: bool) -> float:
    """Return the cycles of a row (rtl/npu/ppu.py).

    Each position serves its open windows, beginning with the one that closes, and has the cycles of its atom
    and of the result that it completes for that [HW 9.10].  A closing window is passed to the open rows, one
    per cycle, and, if a row of windows closes too, to the last step.  The next row begins when all have been
    passed on.
    """
    if inside:
        positions = []
        for real, windows, closes in _axis(s.kernel_x, s.stride_x, s.pad_x, s.in_width, s.row_pixels):
            result = closes and closes_row
            busy = POOL_ATOM_CYCLES * real + POOL_RESULT_CYCLES * result
            positions.append((max(windows, busy, 1), closes and open_rows > 0))
    else:
        positions = [(1, True)] * s.row_pixels if open_rows else [(1, False)]
    now = free = 0
    finished = -FINISH_CYCLES
    for windows, closes in positions:
        if closes:
            now = max(now, free)
            gone = now + 1
            if closes_row:
                gone = finished = max(gone, finished + FINISH_CYCLES)
            free = gone + open_rows - 1
        now += windows
    return max(now, free + 1) + 1
