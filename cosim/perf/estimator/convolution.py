"""Cycles of a convolution: a recurrence over the stripes of its channel groups.

A stripe passes the array, the DPU and the writer; each takes one up when it is free and the stripe has come
from the one before.  What the array needs first comes from a DRAM that always works as long as somebody
waits for it.  No cycle is simulated: stripes that only repeat the ones before are counted.
"""

from __future__ import annotations

from cosim.perf.estimator.features import BEAT, LONGEST, STRIPE, TaskShape
from cosim.perf.estimator.memory import (
    BOUNDS,
    NO_LISTS,
    READ_AHEAD,
    REGISTER_CYCLES,
    RING_ATOMS,
    Coefficients,
    Lists,
    Memory,
    Time,
    repeats,
)


class Convolution:
    """The recurrence of a convolution; times count from the task's start."""

    def __init__(self, shape: TaskShape, memory: Memory, c: Coefficients, lists: Lists = NO_LISTS) -> None:
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
        # DRAM serves a core's clients burst by burst: those with long bursts get more beats.
        s = shape
        earlier = s.feature_bursts - s.last_bursts
        self.last_turn = LONGEST * s.last_bursts / s.last_beats if s.last_beats else 1.0
        self.turn = LONGEST * earlier / (s.feature_beats - s.last_beats) if earlier else self.last_turn
        # Weights of the next group are asked for once all rows are, and share turns with the last of them.
        last = min(max(READ_AHEAD - memory.read / memory.alone, 0.0), s.feature_beats)
        first_left = max(group_beats - (s.feature_beats - last) * self.turn, 0.0)
        rest = min(last, s.last_beats)
        late_turns = rest * self.last_turn + (last - rest) * self.turn
        self.early = min(max(total - group_beats, 0.0), max(late_turns - first_left, 0.0))
        self.lists = lists
        self.before_lists = REGISTER_CYCLES / memory.alone

    def rows_time(self, rows: float, stripe: int) -> float:
        """When so many rows are in CBUF; `stripe` stripes have been written by then."""
        s = self.s
        if not s.feature_beats:
            return self.first
        step = s.row_step
        part = min(-(-int(rows) // step) * step / s.rows, 1.0)
        beats = part * s.feature_beats
        turns = max(beats * self.turn - LONGEST, 0.0)  # features are asked for first
        other = min(self.group_beats, turns) + min(self.table, turns) + min(self.lists.early, turns)
        other += min(self.lists.late, max(beats + other - self.before_lists, 0.0))
        if self.operand:
            other += min(self.operands_ahead + stripe * self.operand, turns / 2)
        left = s.feature_beats - beats
        other += max(self.early - left * self.last_turn, 0.0)
        written = max(stripe - 1, 0) * s.write_beats
        moved = self.m.together(beats + other, written)
        return self.first + max(moved, part * s.feature_fills) + self.c["row_land"]

    def operands_time(self, stripe: int) -> float:
        """When the operands of a stripe are there."""
        s = self.s
        beats = (stripe + 1) * self.operand
        weights = s.weight_bytes / BEAT
        other = sum(min(of, beats) for of in (s.feature_beats, weights, self.table, self.lists.early))
        return self.first + self.m.together(beats + other, stripe * s.write_beats)

    def run(self) -> Time:
        s, m, c = self.s, self.m, self.c
        slots = self.slots
        waits = dict.fromkeys(BOUNDS, 0.0)
        features_end = self.rows_time(s.rows, 0)
        # The first group's weights come beside the features.
        share = min(s.feature_beats, self.group_beats / self.turn)
        beside = min(self.table, self.group_beats) + min(self.lists.early, self.group_beats)
        beside += min(self.lists.late, max(self.group_beats + share + beside - self.before_lists, 0.0))
        weights_at = self.first + m.together(self.group_beats + share + beside, 0)
        early = self.early
        kept = s.kept
        ring = s.ring_bytes / BEAT + READ_AHEAD / 2
        array_free = 0.0
        drained = [0.0, 0.0]
        written = [0.0, 0.0]
        drain_end = write_end = 0.0
        stripe = 0
        width = max(s.row_pixels, 1)
        last_stripe_start = busy_until = 0.0
        complete = False
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
            # Reads go on until the ring is full or all weights are there.
            if here and not complete:
                allowed = min(s.weight_bytes / BEAT, ring + group * self.group_beats)
                ahead_of = max(allowed - (group + 1) * self.group_beats - early, 0.0)
                busy_until = max(features_end, weights_at) + ahead_of * self._weight_beat()
                complete = allowed * BEAT >= s.weight_bytes
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
                    drain = max(drain, self.operands_time(stripe))
                drain_end = drain + pixels * pixel_cycles
                drained[stripe % 2] = drain_end
                write_start = max(drain_end + c["pipe"], write_end)
                contended = write_start < max(busy_until, features_end)
                write_end = write_start + self._write_cycles(pixels, contended)
                written[stripe % 2] = write_end
                stripe += 1
                n += 1
                states.append((array_free, drain_end, write_end))
                by = repeats(states) if all_rows and not contended else 0.0
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
        shared = m.together(beats, writes * alone / max(array, alone)) / beats
        return min(shared, max(2 * m.beat, m.port))

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
