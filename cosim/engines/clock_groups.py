"""Groups of blocks that get no clock edge in the default engine while none of their registers change.

The RTL has one clock and is independent of these groups. The causes below name signals that exist in the
blocks anyway (valid and ready of streams, busy, done); `rkcosim.engines.clock_gates` looks them up in the
Verilog and adds the logic. A cause that holds too often only costs speed. A missing cause is a bug, which a
build with `open_engine(watched=True)` reports: there every register is compared while its group sleeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ClockGroup:
    """Blocks with a common clock.

    Parameters
    ----------
    blocks : paths of submodules of `rkcosim.rtl.core.NpuCore`. A path that leads into a block of another
        group removes that part from the other group.
    causes : Verilog expressions of one bit over signals of the core, named by path. A register of the group
        changes at a clock edge only if one of them holds before the edge, or held at most `linger` cycles
        earlier.
    linger : number of cycles, for data that move on through registers of the group.
    with_control : whether the group is also awake with the group CONTROL; if not, the causes must include the
        reset and the start of the blocks' work.
    """

    blocks: tuple[str, ...]
    causes: tuple[str, ...]
    linger: int = 7
    with_control: bool = True


def _taken(stream: str) -> str:
    """Return the expression for a transfer of a stream."""
    return f"({stream}__valid & {stream}__ready)"


_BLOCKS = ("cna", "core_block", "dpu", "dpu_rdma", "ppu", "ppu_rdma")
_FILES = tuple(f"{name}_registers" for name in ("cna", "core", "dpu", "dpu_rdma", "ppu", "ppu_rdma"))
_MERGES = (
    "diagnostics",
    *(
        f"diagnostics_{b}"
        for b in ("fabric", "pc", "cna", "core", "dpu", "dpu_rdma", "ppu", "ppu_rdma", "ddma")
    ),
)
_PREPARES, _LOADS = _FEATURES = ("cna.feature.prepare.busy", "cna.feature.loading")
_WEIGHTS = ("cna.weight.starting", "cna.weight.loading")
_WRITER = ("source__valid", "buffer.full0", "buffer.full1", "surfaces.busy", "packets.busy", "writer.working")
_WRITES = tuple(f"dpu.writer.{name}" for name in (*_WRITER, "writer.write__done"))

CONTROL = "control"
"""The group that wakes the others, because tasks start in it."""

CLOCK_GROUPS: dict[str, ClockGroup] = {
    CONTROL: ClockGroup(
        (
            "axil",
            "fabric",
            "pc",
            "interrupts",
            *_FILES,
            "cna",
            "cna.csc.constants",
            "cna.csc.check",
            *_MERGES,
        ),
        (
            "rst",
            *(f"s_axil_{channel}valid" for channel in ("aw", "w", "b", "ar", "r")),
            *("axil.bus__write", "axil.bus__read"),
            *(
                "pc.words.accept",
                "pc.active.ends",
                "pc.registers.kick",
                "~pc.active.settled",
                "pc.bus__write",
            ),
            *("(step_answer != pc.steps.held)", "pc.steps.arrives", "pc.steps.lost"),
            *("pc.read__rsp__valid", "pc.fetcher.read__req__valid", _taken("pc.fetcher.words")),
            "(pc.lists.follows & ~pc.active.active)",
            *(f"{file}.{name}" for file in _FILES for name in ("sweeping", "starting", "op_enable")),
            *(f"{block}.control__done" for block in _BLOCKS),
            *("cna.done_feature", "cna.done_weight", "cna.done_csc", "ddma.read_error", "ddma.write_error"),
            *(f"{source}.diag__valid" for source in ("fabric", "pc", "ddma", *_BLOCKS[1:], *_FILES)),
            "cna.diagnostics.o__valid",
            *(f"{merge}.o__valid" for merge in _MERGES),
        ),
        linger=63,  # the longest duration of a block's checks
    ),
    "convolution": ClockGroup(
        ("cna.csc", "cna.cbuf", "cna.diagnostics", "core_block.array_cell"),
        ("cna_registers.running", "core_registers.running"),
    ),
    "release": ClockGroup(("cna.csc.weights.release",), ("cna.csc.weights.release.advance",)),
    "drain": ClockGroup(
        ("core_block",),
        tuple(
            f"core_block.{name}"
            for name in ("feed__stripe__valid", "draining", "loaded", "acc__valid", "finished", "check.busy")
        ),
    ),
    "fills": ClockGroup(("cna.cbuf.turn",), (*_FEATURES, *_WEIGHTS)),
    "features": ClockGroup(("cna.feature",), _FEATURES),
    "pixels": ClockGroup(
        ("cna.feature.unpack",),
        ("rst", "cna.feature.unpack.start", _PREPARES, f"({_LOADS} & cna.feature.prepare.argb)"),
        with_control=False,  # seldom used, as the following ones
    ),
    "converter": ClockGroup(
        ("cna.feature.convert",),
        ("rst", "cna.feature.convert.start", _PREPARES, f"({_LOADS} & cna.feature.prepare.converts)"),
        with_control=False,
    ),
    "weights": ClockGroup(("cna.weight",), _WEIGHTS),
    "decompress": ClockGroup(
        ("cna.weight.decompressor",),
        (
            *("rst", "(cna.weight.starting & cna.weight.is_packed)"),
            *(f"cna.weight.decompressor.{name}" for name in ("active", "check.busy")),
        ),
        with_control=False,  # large, and seldom used
    ),
    "dpu": ClockGroup(
        ("dpu",),
        (
            *("dpu.acc__valid", "dpu.main__valid", "dpu.ew__valid", "dpu.pipe.floats.active"),
            *(f"dpu.pipe.stages__valid__{stage}" for stage in range(11)),
            *(_taken(f"dpu.pipe.{table}.load") for table in ("bs_table", "bn_table")),
        ),
    ),
    "maximum": ClockGroup(("dpu.row",), ("rst", "dpu.row.start", "dpu.row.on"), with_control=False),
    "floats": ClockGroup(
        ("dpu.pipe.floats",),
        ("rst", "dpu.pipe.floats.start", "dpu.pipe.floats.active"),
        with_control=False,
    ),
    "dpu_writer": ClockGroup(("dpu.writer",), _WRITES),
    "packets": ClockGroup(
        ("dpu.writer.packets",),
        ("rst", "dpu.writer.packets.start", f"(dpu.writer.packed & ({' | '.join(_WRITES)}))"),
        with_control=False,
    ),
    "dpu_rdma": ClockGroup(
        ("dpu_rdma",),
        (
            *("~dpu_rdma.m.idle", "~dpu_rdma.e.idle"),
            *(
                cause
                for port, octets in (("brdma", "bs"), ("nrdma", "bn"))
                for cause in (
                    _taken(f"dpu_rdma.{port}__req"),
                    f"dpu_rdma.{port}__rsp__valid",
                    _taken(f"dpu_rdma.{octets}"),
                )
            ),
        ),
    ),
    "ppu": ClockGroup(
        ("ppu", "ppu_rdma", "write_buffer_ppu"),
        (
            *("rst", "ppu_registers.running", "ppu_rdma_registers.running", "dpu.ppu__valid"),
            *("ppu.check.busy", "ppu_rdma.check.busy"),
            "(write_buffer_ppu.whole != write_buffer_ppu.gathering)",
        ),
        with_control=False,
    ),
    "memory": ClockGroup(
        ("ddma", "write_buffer_dpu"),
        (
            *("~ddma.reads_idle", "~ddma.writes_idle"),
            *(f"{block}.write__{part}__valid" for block in ("dpu", "ppu") for part in ("req", "data")),
        ),
    ),
}
"""Groups by name, in the order of the bits of `awake` and `clk_gates`."""


def without(groups: Mapping[str, ClockGroup], block: str) -> dict[str, ClockGroup]:
    """Return groups without a block that the design lacks: its path, and the causes that name its signals."""
    out = {}
    for name, group in groups.items():
        blocks = tuple(path for path in group.blocks if path != block)
        causes = tuple(cause for cause in group.causes if f"{block}." not in cause)
        if blocks:
            out[name] = replace(group, blocks=blocks, causes=causes)
    return out
