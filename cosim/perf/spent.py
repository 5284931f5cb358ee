"""Where the cycles of a task or layer went: a partition, so that the parts add up to the cycles."""

from __future__ import annotations

from collections.abc import Mapping

COUNTERS = {
    "busy": "mac_slots",
    "feature": "stall_feature",
    "weight": "stall_weight",
    "operand": "only_operand",
    "accumulator": "only_acc",
    "dpu": "only_dpu",
    "write": "only_write",
    "output": "only_output",
}
"""Part -> counter of an engine (`cosim.engines.EVENT_NAMES`); the counters exclude each other."""

OTHER = "other"
PARTS = (*COUNTERS, OTHER)
"""In the order in which reports show them."""

NAMES = {
    "busy": "array busy",
    "feature": "waits for features",
    "weight": "waits for weights",
    "operand": "waits for operands",
    "accumulator": "waits for an accumulator",
    "dpu": "waits for the DPU",
    "write": "waits for the writer",
    "output": "output",
    "other": "other",
}
"""What tables and charts call the parts."""

MEANINGS = {
    "busy": "the array works on an operand slot (also on an empty one of a partial stripe)",
    "feature": "the array waits for input rows to arrive in CBUF",
    "weight": "the array waits for a weight tile to arrive in CBUF",
    "accumulator": "the array waits for an accumulator bank, which is still being emptied",
    "dpu": "no slot, and the DPU does not take the results that CORE has",
    "operand": "no slot, and the DPU or PPU waits for data that DPU_RDMA or PPU_RDMA reads",
    "write": "no slot, and the writer of the DPU or PPU waits for the DMA",
    "output": "no slot and no wait, but results pass the DPU or PPU",
    "other": "none of these: register fetch, start, last responses",
}


def spent(events: Mapping[str, int], cycles: int) -> dict[str, int]:
    """Cycles of each of `PARTS`.

    Parameters
    ----------
    events
        counters in cycles by name, as `CoreCounters.events`; absent ones are 0.
    cycles
        of the task.
    """
    parts = {part: events.get(counter, 0) for part, counter in COUNTERS.items()}
    return {**parts, OTHER: cycles - sum(parts.values())}


def add(*parts: Mapping[str, int]) -> dict[str, int]:
    """Sum of counts by name, names in the order in which they come."""
    total: dict[str, int] = {}
    for counts in parts:
        for name, count in counts.items():
            total[name] = total.get(name, 0) + count
    return total
