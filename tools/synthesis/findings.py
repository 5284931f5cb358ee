"""Why what synthesis finds is left as it is."""

from __future__ import annotations

PATHS: dict[str, str] = {}
"""The reason why the longest path of a block is left, by the name of the block; also for blocks inside."""

ASYNCHRONOUS = (
    "Its data are needed in the cycle of the address. A synchronous memory would give them one cycle later."
)
"""Memories that are read asynchronously."""

SMALL_MEMORIES = "It is as small that Yosys prefers LUTs, or has more ports than a block RAM."
"""Memories with synchronous reads that are no block RAM."""

OTHERS = {
    "registers": (
        "The block that it configures reads every register of a group in every cycle, which needs a port for "
        "each. The rows that no register has are constant and vanish."
    ),
    "latches": "Amaranth makes none.",
    "multiple drivers": "Amaranth refuses them.",
    "combinational loops": "Each block was checked with all its submodules.",
}
"""Other findings, by their kind."""
