"""Groups of blocks that can do without the clock while nothing in them moves.

The RTL has one clock and works without any of this.  For each group the core tells, ahead of every
clock edge, whether a register of the group may change at it; an engine that gives each group a clock of
its own then leaves out edges that would change nothing (cosim/engines/clock_gates.py).  To say that
too often costs speed, to say it too seldom would be an error: a check build watches every register.
"""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value

CLOCK_GROUPS: dict[str, tuple[str, ...]] = {
    "control": (
        "axil",
        "fabric",
        "pc",
        "interrupts",
        *(f"{block}_registers" for block in ("cna", "core", "dpu", "dpu_rdma", "ppu", "ppu_rdma")),
        "cna",
        "cna.csc.constants",
        "cna.csc.check",
        "diagnostics",
        *(
            f"diagnostics_{b}"
            for b in ("fabric", "pc", "cna", "core", "dpu", "dpu_rdma", "ppu", "ppu_rdma", "ddma")
        ),
    ),
    "convolution": ("cna.csc", "cna.cbuf", "cna.diagnostics", "core_block.array_cell"),
    "release": ("cna.csc.weights.release",),
    "drain": ("core_block",),
    "fills": ("cna.cbuf.turn",),
    "features": ("cna.feature",),
    "weights": ("cna.weight",),
    "dpu": ("dpu",),
    "floats": ("dpu.pipe.floats",),
    "dpu_writer": ("dpu.writer",),
    "dpu_rdma": ("dpu_rdma",),
    "ppu": ("ppu", "ppu_rdma", "write_buffer_ppu"),
    "memory": ("ddma", "write_buffer_dpu"),
}
"""Group to the submodules of `rtl.core.NpuCore` in it (paths); a group takes its parts out of others."""

LINGER = {"control": 63}
"""Cycles for which a group goes on after its last cause, for what passes through its registers: the
longest walk through a block's checks for `control`, which starts all others with it."""

_LINGER = 7


def awake(m: Module, group: str, cause: Value) -> Signal:
    """Whether a register of `group` may change at the next edge: `cause` holds, or did lately."""
    most = LINGER.get(group, _LINGER)
    left = Signal(range(most + 1), init=most, name=f"{group}_lingers")
    now = Signal(name=f"{group}_awake")
    m.d.comb += now.eq(cause | (left != 0))
    with m.If(cause):
        m.d.sync += left.eq(most)
    with m.Elif(left != 0):
        m.d.sync += left.eq(left - 1)
    return now
