"""Cycles of one task from its sizes: a recurrence over the stripes of its channel groups.

A convolution's stripe passes the array, the DPU and the writer; each takes one up when it is free and the
stripe has come from the one before.  What the array needs first comes from a DRAM that always works as
long as somebody waits for it.  No cycle is simulated: stripes that only repeat the ones before are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosim.engines.library import DramConfig
from cosim.perf.estimator.features import BEAT, CONV, FLYING, STRIPE, TaskShape

READ_AHEAD = 256
"""Beats that a loader may have under way (rtl/config.py)."""
RING_ATOMS = 1024
"""Atoms that a reader of the DPU fetches ahead (rtl/npu/dpu_rdma_stripes.py)."""
LONGEST = 16
"""Beats of the longest burst."""
BOUNDS = ("array", "output", "features", "weights", "operands", "memory", "pooling", "start and end")


@dataclass(frozen=True)
class Memory:
    """What a task sees of DRAM, in cycles of the NPU.

    Members
    -------
    beat : cycles of a beat at the peak that this core gets.
    port : cycles of a beat of one direction, at least.
    read, write : latencies.
    outstanding : write bursts under way.
    """

    beat: float
    port: float
    read: int
    write: int
    outstanding: int

    @classmethod
    def of(cls, dram: DramConfig, share: float = 1.0) -> Memory:
        """Of a configuration, of whose peak this core gets `share`."""
        peak = dram.peak_bytes_per_cycle * dram.efficiency * share
        port = max(BEAT / dram.port_bytes_per_cycle, 1.0)
        return cls(
            BEAT / peak,
            port,
            dram.read_latency,
            dram.write_latency,
            min(dram.write_outstanding, dram.client_write_outstanding),
        )

    def together(self, reads: float, writes: float) -> float:
        """Cycles in which so many beats are moved, when reads and writes come together and take turns."""
        both = 2 * min(reads, writes) * max(self.beat, self.port / 2)
        return both + abs(reads - writes) * self.alone

    @property
    def alone(self) -> float:
        """Cycles of a beat while the other direction wants nothing."""
        return max(self.beat, self.port)


@dataclass
class Time:
    """Cycles of a task, and what most of them were waited for."""

    cycles: float
    bound: str


Coefficients = Mapping[str, float]


def task_time(shape: TaskShape, memory: Memory, c: Coefficients) -> Time:
    """Cycles from a task's start to its end."""
    if shape.kind == CONV:
        return _Conv(shape, memory, c).run()
    if shape.kind == FLYING:
        return _flying(shape, memory, c)
    return _pool(shape, memory, c)


class _Conv:
    """The recurrence of a convolution; times count from the task's start."""

    def __init__(self, shape: TaskShape, memory: Memory, c: Coefficients) -> None:
        self.s, self.m, self.c = shape, memory, c
        self.first = c["conv_start"] + memory.read  # the first beat is there
        group_beats = shape.group_bytes / BEAT if shape.weight_bytes else 0
        self.group_beats = group_beats
        self.table = shape.table_bytes / BEAT
        self.operand = shape.operand_bytes / BEAT
        ahead = RING_ATOMS // 2 // max(shape.operand_bytes // BEAT, 1) if self.operand else 0
        self.operands_ahead = ahead * self.operand
        self.slots = STRIPE * shape.tiles
        total = shape.weight_bytes / BEAT
        self.early = min(max(total - group_beats, 0.0), READ_AHEAD, shape.feature_beats)

    def rows_time(self, rows: float, stripe: int) -> float:
        """When so many rows are in CBUF; `stripe` stripes have been written by then."""
        s = self.s
        if not s.feature_beats:
            return self.first
        step = s.row_step
        part = min(-(-int(rows) // step) * step / s.rows, 1.0)
        beats = part * s.feature_beats
        other = min(self.group_beats, beats)
        other += min(self.table, beats)
        if self.operand:
            other += min(self.operands_ahead + stripe * self.operand, beats)
        # Weights of the next group are asked for once all rows are, and overtake the last of them.
        other += min(self.early, max(beats - (s.feature_beats - READ_AHEAD), 0.0))
        written = max(stripe - 1, 0) * s.write_beats
        moved = self.m.together(beats + other, written)
        return self.first + max(moved, part * s.feature_fills) + self.c["row_land"]

    def run(self) -> Time:
        s, m, c = self.s, self.m, self.c
        slots = self.slots
        waits = dict.fromkeys(BOUNDS, 0.0)
        features_end = self.rows_time(s.rows, 0)
        # The first group's weights come beside the features.
        share = min(s.feature_beats, self.group_beats)
        weights_at = self.first + m.together(self.group_beats + share + min(self.table, share), 0)
        early = self.early
        kept = s.kept
        ring = s.ring_bytes / BEAT + READ_AHEAD / 2
        array_free = 0.0
        drained = [0.0, 0.0]
        written = [0.0, 0.0]
        drain_end = write_end = 0.0
        operand_at = self.first
        stripe = 0
        width = max(s.row_pixels, 1)
        last_stripe_start = 0.0
        shift = s.spread
        for group in range(s.groups):
            here = self.group_beats
            if group and here:
                # The stream goes on behind the features; what the ring has no room for waits for the
                # tiles that the group before gives back with its last stripe.
                here = min(here, s.weight_bytes / BEAT - group * self.group_beats)
                beat = self._weight_beat()
                ahead = min(early, here)
                early -= ahead
                room = max(min(ring - self.group_beats, here), 0.0)
                weights_at = max(
                    max(weights_at, features_end) + (here - ahead) * beat,
                    last_stripe_start + (here - room) * beat,
                )
            octets = min(kept, s.octets)
            kept -= octets
            # Octets past the last channel are dropped, also while the one before is still worked on.
            pixel_cycles = octets * s.octet_cycles + max(s.octets - octets - s.octet_cycles + 1, 0)
            states: list[tuple[float, ...]] = []
            n = 0
            while n < s.stripes:
                pixels = min(STRIPE, s.pixels - n * STRIPE)
                start = array_free
                # Rows of the last pixel: those under the kernel's first row to begin, all of them to end.
                end = start + slots
                all_rows = True
                if group == 0:
                    row = (n * STRIPE + pixels - 1) // width
                    top = ((row * s.stride - s.pad) >> shift) + 1
                    low = ((row * s.stride - s.pad + s.reach - 1) >> shift) + 1
                    if n == 0:
                        start = max(start, self.rows_time(s.first_rows, 0))
                    ready = self.rows_time(min(max(top, 1), s.rows), stripe)
                    start = max(start, ready)
                    whole = self.rows_time(min(max(low, 1), s.rows), stripe)
                    all_rows = low >= s.rows
                    features_end = max(features_end, whole)
                    kernel_rows = 1 if s.reach == 1 else min(s.reach, s.tiles)
                    behind = slots * (1 - (kernel_rows - 1) / kernel_rows) if kernel_rows > 1 else slots
                    waits["features"] += max(0.0, max(start, whole + behind - slots) - array_free)
                    end = max(start + slots, whole + min(behind, slots))
                if drained[stripe % 2] > start:
                    waits["output"] += drained[stripe % 2] - start
                    end += drained[stripe % 2] - start
                    start = drained[stripe % 2]
                if n == 0 and self.group_beats:
                    # Tiles come one after the other: the last one ends the stripe.
                    first_tile = weights_at - here * (1 - 1 / s.tiles) * m.alone + c["tile"]
                    if first_tile > start:
                        waits["weights"] += first_tile - start
                        end += first_tile - start
                        start = first_tile
                    late = weights_at + c["tile"] + STRIPE
                    if late > end:
                        waits["weights"] += late - end
                        end = late
                if n == s.stripes - 1:
                    last_stripe_start = start
                waits["array"] += slots
                array_free = end
                # The DPU takes the stripe's sums once the array is through.
                drain = max(end + c["drain"], drain_end)
                held = written[stripe % 2] - c["pipe"]
                drain = max(drain, held)
                if self.operand:
                    operand_at = max(
                        self.first
                        + m.together((stripe + 1) * self.operand + self.table, stripe * s.write_beats),
                        operand_at,
                    )
                    drain = max(drain, operand_at)
                drain_end = drain + pixels * pixel_cycles
                drained[stripe % 2] = drain_end
                write_start = max(drain_end + c["pipe"], write_end)
                write_end = write_start + self._write_cycles(pixels, array_free < features_end)
                written[stripe % 2] = write_end
                stripe += 1
                n += 1
                states.append((array_free, drain_end, write_end))
                by = _repeats(states) if group or all_rows else 0.0
                if by and s.stripes - n > 6:
                    skip = (s.stripes - n - 2) // 2 * 2
                    by *= skip / 2
                    array_free, drain_end, write_end = (x + by for x in states[-1])
                    drained = [x + by for x in drained]
                    written = [x + by for x in written]
                    states.clear()
                    waits["array"] += skip * slots
                    waits["output"] += by - skip * slots
                    stripe += skip
                    n += skip
        total = write_end + m.write + c["conv_end"]
        waits["start and end"] = max(0.0, total - sum(waits.values()))
        return Time(total, max(waits, key=lambda name: waits[name]))

    def _weight_beat(self) -> float:
        """Cycles of a beat of weights, with the results that are written meanwhile."""
        s, m, beats = self.s, self.m, self.group_beats
        writes = s.stripes * s.write_beats if s.to_memory else 0.0
        array = s.stripes * max(self.slots, s.octets * STRIPE * s.octet_cycles)
        alone = m.together(beats, writes)
        return m.together(beats, writes * alone / max(array, alone)) / beats

    def _write_cycles(self, pixels: int, contended: bool) -> float:
        s, m = self.s, self.m
        if not s.to_memory:
            return s.write_beats * pixels / STRIPE
        beats = s.write_beats * pixels / min(STRIPE, s.pixels)
        rate = max(2 * m.beat, m.port) if contended else m.alone
        bursts = (
            s.write_runs * pixels / min(STRIPE, s.pixels) * (m.write + self.c["write_turn"]) / m.outstanding
        )
        return max(beats * rate, bursts)


def _repeats(states: list[tuple[float, ...]]) -> float:
    """Cycles by which all of the last states are later than those two stripes before; 0: they are not."""
    if len(states) < 6:
        return 0.0
    by = states[-1][0] - states[-3][0]
    for late, early in ((-1, -3), (-2, -4), (-3, -5), (-4, -6)):
        if any(abs(a - b - by) > 1e-6 for a, b in zip(states[late], states[early], strict=True)):
            return 0.0
    return by


def _flying(s: TaskShape, m: Memory, c: Coefficients) -> Time:
    """A task of the DPU that reads its own input: octets, DRAM or bursts bound it, stripe for stripe."""
    first = c["flying_start"] + m.read
    source, operand = s.source_bytes / BEAT, s.operand_bytes / BEAT
    total = memory_bound = 0.0
    octet_cycles = 0.0
    full, rest = divmod(s.pixels, STRIPE)
    left = s.kept
    for _ in range(s.groups):
        octets = min(left, s.octets)
        left -= octets
        share = octets / min(s.kept, s.octets)
        for count, times in ((STRIPE, full), (rest, 1 if rest else 0)):
            part = count / min(STRIPE, s.pixels) * share
            by_octets = count * octets * s.octet_cycles
            reads, writes = (source + operand) * part, s.write_beats * part
            by_memory = m.together(reads, writes)
            by_memory = max(by_memory, s.write_runs * part * (m.write + c["write_turn"]) / m.outstanding)
            by_memory = max(by_memory, max(s.source_runs, s.operand_runs) * part)
            memory_bound += times * by_memory
            octet_cycles += times * by_octets
            total += times * max(by_octets, by_memory)
    stripe = min(STRIPE, s.pixels)
    fill = m.together(source + operand, 0)
    last = max(s.write_beats * m.beat, s.write_beats)
    ends = min(stripe * s.octets, 64) if memory_bound > octet_cycles else 0
    cycles = first + fill + total + last + ends * c["flying_ends"] + m.write + c["flying_end"]
    return Time(cycles, "memory" if memory_bound > octet_cycles else "output")


def _pool(s: TaskShape, m: Memory, c: Coefficients) -> Time:
    rows: dict[tuple[bool, int], float] = {}
    total = 0.0
    for inside, open_, _ in _axis(s.kernel_y, s.stride, s.pad, s.in_height, s.rows):
        key = inside, open_
        if key not in rows:
            rows[key] = _pool_row(s, inside, open_)
        total += rows[key] + c["pool_row"]
    surfaces = s.groups
    reads = s.in_width * s.in_height / 2
    writes = s.pixels / 2
    bound = max(total, m.together(reads, writes), 2 * s.pixels)
    cycles = c["pool_start"] + m.read + surfaces * (bound + c["pool_surface"]) + m.write
    return Time(cycles, "pooling" if bound == total else "memory")


def _axis(kernel: int, stride: int, pad: int, size: int, out: int) -> list[tuple[bool, int, bool]]:
    """Positions that the PPU walks: inside the input, windows open, one closes (rtl/npu/ppu_windows.py)."""
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


def _pool_row(s: TaskShape, inside: bool, open_rows: int) -> float:
    """Cycles of a row: each position serves its open windows; what closes goes to the open rows."""
    if not inside:
        return s.row_pixels * max(open_rows, 1) if open_rows else 1.0
    now = free = 0.0
    for _, windows, closes in _axis(s.kernel_x, s.stride_x, s.pad_x, s.in_width, s.row_pixels):
        now += max(windows, 1)
        if closes and open_rows:
            now = max(now, free + 1)
            free = now + open_rows - 1
    return max(now, free)
