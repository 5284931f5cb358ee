"""What the blocks tell the performance counters: one of a few states each cycle, and how full queues are."""

from amaranth.hdl import Module, Value
from amaranth.lib import data

from rtl.regs import counter_registers
from rtl.regs.counters import LEVEL_BITS


def activity_layout(block: str) -> data.StructLayout:
    """A bit for each state of a block, under its name in rtl/regs/counters.rdl."""
    return data.StructLayout({state.name: 1 for state in counter_registers()[block]})


def levels_layout(*names: str) -> data.StructLayout:
    """Levels by their names in rtl/regs/counters.rdl."""
    known = counter_registers()["LEVELS"]
    return data.StructLayout({known[name].name: LEVEL_BITS for name in names})


def tell(m: Module, activity: data.View, idle: Value, **causes: Value) -> None:
    """Drive a block's states: `IDLE` from its own condition, the others from theirs.

    Where several causes hold, the first counts, which the counters see to.  There is no state for "none of
    them": that each cycle has exactly one state is for the tests to find out.  Each cause should be an
    expression that nothing else uses, so that a simulator needs it only while somebody counts.

    Raises
    ------
    ValueError
        for other states than the block has, or in another order.
    """
    expected = [state for state in activity.shape().members if state != "IDLE"]
    if list(causes) != expected:
        raise ValueError(f"the states are {expected}, not {list(causes)}")
    m.d.comb += activity.IDLE.eq(idle)
    m.d.comb += [activity[state].eq(cause) for state, cause in causes.items()]
