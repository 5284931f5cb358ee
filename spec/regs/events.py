"""Bits of a core's `events` port: their order, their names, and their meanings.

The core drives the bits of `EVENTS`. An engine counts the cycles in which each bit is high under the name in
`COUNTERS`, and adds `REASONS`, of which one tells why the array has no operand slot
(`with_reason` in cosim/engines/harness/pins.h), and `ENDS`, which tell what both ends of the core do (`ends`
there).
"""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """One bit of the port.

    Members
    -------
    name : name of the bit.
    counter : name of the engine's count of its cycles or pulses.
    meaning : one line of text.
    """

    name: str
    counter: str
    meaning: str


PORT = (
    Event("task_start", "task_start", "pulse, a task begins"),
    Event("task_done", "task_done", "pulse, a task is done: its blocks are idle, its writes are answered"),
    Event("mac_slot", "mac_slots", "an operand slot is issued; it may be an empty one of a partial stripe"),
    Event("mac_real", "mac_pixels", "a pixel is issued"),
    Event("stall_feature", "stall_feature", "CNA waits for features"),
    Event("stall_weight", "stall_weight", "CNA waits for weights"),
    Event("stall_acc", "stall_acc", "CORE's accumulators are full"),
    Event("dpu_octet", "dpu_octets", "eight channels enter the DPU's pipe"),
    Event("ppu_atom", "ppu_atoms", "the PPU has processed an input atom"),
    Event("stripe", "stripes", "CNA passes up to 16 finished pixels to CORE"),
    Event("stall_dpu", "stall_dpu", "CORE has results that the DPU does not accept"),
    Event("stall_write", "stall_write", "the writer of the DPU or PPU waits for the DMA"),
    Event("stall_operand", "stall_operand", "the DPU or PPU waits for data that DPU_RDMA or PPU_RDMA reads"),
)
"""Bits from bit 0 up; the port has room for 16."""

REASONS = (
    Event("only_write", "only_write", "no slot, no wait for features or weights, but `stall_write`"),
    Event("only_operand", "only_operand", "none of the above, but `stall_operand`"),
    Event("only_dpu", "only_dpu", "none of the above, but `stall_dpu`"),
    Event("only_acc", "only_acc", "none of the above, but `stall_acc`"),
    Event("only_output", "only_output", "none of the above, but an octet of the DPU or an atom of the PPU"),
)
"""Counts that an engine adds to those of the port's bits.

Each cycle counts for at most one of them, so that `mac_slots`, `stall_feature`, `stall_weight` and these
never exceed the cycles of a task.
"""

ARRAY_STATES = {
    "none": "it is off, has ended, or waits for an accumulator bank",
    "array": "an operand slot is issued",
    "feature": "no slot, because input rows are missing (`stall_feature`)",
    "weight": "no slot, because a weight tile is missing (`stall_weight`)",
}
"""States of the array in a cycle, with their meaning."""

OUTPUT_STATES = {
    "none": "none of the others",
    "operand": "no octet or atom passes, and data of DPU_RDMA or PPU_RDMA are missing (`stall_operand`)",
    "write": "neither, and the DMA does not accept what is written (`stall_write`)",
    "work": "an octet or atom passes or is being worked on; or CORE has results for the DPU or no free "
    "accumulator bank",
}
"""States of the output (CORE, DPU, PPU) in a cycle, with their meaning."""

ENDS = tuple(
    f"cycles_{array}_{output}"
    for array in ARRAY_STATES
    for output in OUTPUT_STATES
    if (array, output) != ("none", "none")
)
"""Counts of the cycles in each pair of states of the array and of the output, but for ("none", "none").

Each cycle counts for at most one of them.
"""

EVENTS = tuple(event.name for event in PORT)
"""Names of the port's bits."""

COUNTERS = (*(event.counter for event in (*PORT, *REASONS)), *ENDS)
"""Names of the counters of an engine: those of the port's bits, of the reasons, and of both ends."""

STALLS = {event.name: event.meaning for event in PORT if event.name.startswith("stall_")}
"""Levels of a waiting block, with their meaning; only these may stay high in a core that hangs."""
