"""Division of the cycles of a task or layer into parts that add up to the cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

OTHER = "other"

_PARTS = {
    "busy": (
        "mac_slots",
        "array busy",
        "the array processes an operand slot (also an empty slot of an incomplete stripe)",
    ),
    "feature": ("stall_feature", "waits for features", "the array waits for input rows to arrive in CBUF"),
    "weight": ("stall_weight", "waits for weights", "the array waits for a weight tile to arrive in CBUF"),
    "operand": (
        "only_operand",
        "waits for operands",
        "no slot, and the DPU or PPU waits for data that DPU_RDMA or PPU_RDMA reads",
    ),
    "accumulator": (
        "only_acc",
        "waits for an accumulator",
        "the array waits for an accumulator bank, which is still being emptied",
    ),
    "dpu": ("only_dpu", "waits for the DPU", "no slot, and the DPU does not accept results of CORE"),
    "write": (
        "only_write",
        "waits for the writer",
        "no slot, and the writer of the DPU or PPU waits for the DMA",
    ),
    "output": ("only_output", "output", "no slot and no wait, but results pass the DPU or PPU"),
    OTHER: ("", "other", "none of the above: register fetch, start, last responses"),
}
"""Part -> counter of an engine (`rkcosim.engines.EVENT_NAMES`; they exclude each other), title, meaning."""

PARTS = tuple(_PARTS)
"""Names of the parts, in the order of the reports."""

NAMES = {part: title for part, (_, title, _) in _PARTS.items()}
"""Titles of the parts in tables and charts."""

MEANINGS = {part: meaning for part, (_, _, meaning) in _PARTS.items()}


def spent(events: Mapping[str, int], cycles: int) -> dict[str, int]:
    """Return the cycles of each of `PARTS`.

    Parameters
    ----------
    events
        Counters in cycles by name, as `CoreCounters.events`; absent ones are 0.
    cycles
        Cycles of the task.
    """
    parts = {part: events.get(counter, 0) for part, (counter, *_) in _PARTS.items() if counter}
    return {**parts, OTHER: cycles - sum(parts.values())}


def add(*parts: Mapping[str, int]) -> dict[str, int]:
    """Add counts by name; names keep the order in which they first occur."""
    total: Counter[str] = Counter()
    for counts in parts:
        total.update(counts)
    return dict(total)
