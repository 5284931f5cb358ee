"""Bits of a core's `events` port: their order, their names, and what each says.

The one home of these facts.  The core drives the bits of `EVENTS`; an engine counts the cycles in which each
is high under the name in `COUNTERS`, and adds `REASONS`, one of which says why the array has no operand slot
(`with_reason` in cosim/harness/pins.h).
"""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """One bit.

    Members
    -------
    name : of the bit on the port.
    counter : of the count of its cycles, or pulses, in an engine.
    meaning : one line.
    """

    name: str
    counter: str
    meaning: str


PORT = (
    Event("task_start", "task_start", "pulse, a task begins"),
    Event("task_done", "task_done", "pulse, a task is done: its blocks are idle, its writes answered"),
    Event("mac_slot", "mac_slots", "an operand slot is issued, also an empty one of a partial stripe"),
    Event("mac_real", "mac_pixels", "a pixel is issued"),
    Event("stall_feature", "stall_feature", "CNA waits for features"),
    Event("stall_weight", "stall_weight", "CNA waits for weights"),
    Event("stall_acc", "stall_acc", "CORE's accumulators are full"),
    Event("dpu_octet", "dpu_octets", "eight channels enter the DPU's pipe"),
    Event("ppu_atom", "ppu_atoms", "the PPU has done with an input atom"),
    Event("stripe", "stripes", "CNA hands up to 16 finished pixels to CORE"),
    Event("stall_dpu", "stall_dpu", "CORE has results that the DPU does not take"),
    Event("stall_write", "stall_write", "the writer of the DPU or PPU waits for the DMA"),
    Event("stall_operand", "stall_operand", "the DPU or PPU waits for data that DPU_RDMA or PPU_RDMA reads"),
)
"""From bit 0 up; the port has room for 16."""

REASONS = (
    Event("only_write", "only_write", "no slot, no want of features or weights, but `stall_write`"),
    Event("only_operand", "only_operand", "none of the above, but `stall_operand`"),
    Event("only_dpu", "only_dpu", "none of the above, but `stall_dpu`"),
    Event("only_acc", "only_acc", "none of the above, but `stall_acc`"),
    Event("only_output", "only_output", "none of the above, but an octet of the DPU or an atom of the PPU"),
)
"""What an engine adds behind the bits of the port.  One cycle counts for one of them at most, so that
`mac_slots`, `stall_feature`, `stall_weight` and these never exceed the cycles of a task."""

EVENTS = tuple(event.name for event in PORT)
"""Names of the port's bits."""

COUNTERS = tuple(event.counter for event in (*PORT, *REASONS))
"""Names of an engine's counters, those of the reasons last."""

STALLS = {event.name: event.meaning for event in PORT if event.name.startswith("stall_")}
"""Levels that say that something waits, with their meaning; only these may stay high in a core that hangs."""
