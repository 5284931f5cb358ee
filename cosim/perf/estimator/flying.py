"""Cycles of a task of the DPU that reads its own input: a recurrence over stripes."""

from __future__ import annotations

from cosim.perf.estimator.features import BEAT, STRIPE, TaskShape
from cosim.perf.estimator.memory import NO_LISTS, RING_ATOMS, Coefficients, Lists, Memory, Time


def flying(s: TaskShape, m: Memory, c: Coefficients, lists: Lists = NO_LISTS) -> Time:
    """Cycles from start to end.

    Reads run ahead as far as the ring has room; they and the writes keep DRAM busy in turns.  The writer
    has room for two stripes.
    """
    first = c["flying_start"] + m.read
    full = min(STRIPE, s.pixels)
    reads_full = (s.source_bytes + s.operand_bytes) / BEAT
    ring = max(RING_ATOMS // 16 // max(s.surfaces, 1), 1)
    clock = first  # until when DRAM has work
    drain_end = write_end = 0.0
    released: list[float] = []
    writes: list[tuple[float, float]] = []  # end and beats of those that DRAM's clock does not have yet
    counted = 0
    waits = {"output": 0.0, "memory": 0.0}
    written = [0.0, 0.0]
    left = s.kept
    stripe = 0
    other = lists.early + lists.late
    for _ in range(s.groups):
        octets = min(left, s.octets)
        left -= octets
        share = octets / min(s.kept, s.octets)
        n = 0
        while n < s.stripes:
            pixels = min(STRIPE, s.pixels - n * STRIPE)
            reads, beats = _beats(reads_full, pixels, full, share), _beats(s.write_beats, pixels, full, share)
            if stripe >= ring and released[stripe - ring] + m.read > clock:
                clock = released[stripe - ring] + m.read
                counted = len(writes)  # whatever was written is done before
            extra = min(other, reads)
            other -= extra
            runs = max(s.source_runs, s.operand_runs) * pixels / full * share
            clock += max((reads + extra) * m.alone, runs)
            while counted < len(writes) and writes[counted][0] <= clock:
                clock += writes[counted][1] * (max(2 * m.beat, m.port) - m.alone)
                counted += 1
            begin = max(drain_end, clock + c["flying_fill"], written[stripe % 2] - c["pipe"])
            waits["memory"] += max(begin - max(drain_end, first), 0.0)
            drain_end = begin + pixels * octets * s.octet_cycles
            waits["output"] += pixels * octets * s.octet_cycles
            released.append(drain_end)
            start = max(drain_end + c["pipe"], write_end)
            rate = max(2 * m.beat, m.port) if clock > start else m.alone
            bursts = s.write_runs * pixels / full * share * (m.write + c["write_turn"]) / m.outstanding
            write_end = start + max(beats * rate, bursts)
            written[stripe % 2] = write_end
            writes.append((write_end, beats))
            stripe += 1
            n += 1
    return Time(write_end + m.write + c["flying_end"], max(waits, key=lambda name: waits[name]))


def _beats(of_full: float, pixels: int, full: int, share: float) -> float:
    """Beats of a stripe of fewer pixels: whole ones for each surface."""
    return of_full * pixels / full * share
