"""Why what synthesis finds is left as it is."""

from __future__ import annotations

PATHS = {
    "core": (
        "It is one stage in the RTL. One more register would change the cycles of the block, which are "
        "compared with those of boards and held fixed by tests."
    ),
    "core_block.array_cell": (
        "The products of a pixel and their adder tree are one stage: the array takes a pixel in every cycle, "
        "and the stripe that uses the sums follows at once."
    ),
    "core_block.array_cell.floats.float_octet": (
        "The next tile may add to the same accumulator in the next cycle, so that rounding and addition of "
        "binary32 are one stage."
    ),
    "dpu.pipe": (
        "The stages of the pipe are those of the hardware reference: a multiplication, or a shift with "
        "rounding, saturation and an addition, takes one cycle."
    ),
}
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
    "combinational loops": "Each module was checked by Yosys, and each block with a path by OpenSTA.",
}
"""Other findings, by their kind."""
