"""Every constant that decides about cycles: its value as the code has it, and where it comes from.

A constant is *published* (a row of the hardware reference says so, by a quotation that a test looks up
together with its mark), *fitted* (`cosim.perf.boards.calibrate`), *assumed* (nobody has published it; its
effect on the totals stands beside it, measured by `cosim.perf.constants.effects` or reasoned), or *derived*
from others.  Values are read from the code, never copied.
"""

from __future__ import annotations

from dataclasses import fields

from cosim.engines.library import DramConfig
from cosim.perf.boards import calibrated
from cosim.perf.constants.kinds import Constant, Source, imported, memory, written

PER_TASK = "once a task: below 0.1 % of a task of 10,000 cycles"
PER_STRIPE = "hidden while the other accumulator bank is filled; else once at a task's end"

CONSTANTS: tuple[Constant, ...] = (
    # DRAM and interconnect
    memory(
        "peak_bytes_per_cycle",
        "bytes/cycle at 1 GHz",
        "published",
        "what DRAM moves at most, all cores and both directions",
        Source("8", "vendor profile uses 70 % (23.65 GB/s at 1 GHz)", "[C]"),
        11.825,
        47.3,
    ),
    Constant(
        "board.core_bytes_per_ns",
        "cosim/perf/boards/calibrated.json: core_bytes_per_ns",
        lambda: calibrated.read().core_bytes_per_ns,
        "bytes/ns",
        "fitted",
        "what one core moves at most on a board, both directions (two tensors in, one out: three times "
        "the rate of the source); `rkcosim validate` uses it",
        Source("5.12", "about 4 B out per ns on one core (DDR bound)", "[M]"),
    ),
    memory(
        "efficiency",
        "",
        "derived",
        "factor on the peak: 1, since 23.65 is 70 % of what the chips do",
        Source("9.6", "23.654 at 1 GHz", "[I]"),
    ),
    memory(
        "port_bytes_per_cycle",
        "bytes/cycle",
        "published",
        "one core's data bus in one direction",
        Source("8", "32 strobe bits, which fits a 256-bit (32-byte) write data bus", "[I]"),
        16.0,
    ),
    memory("read_latency", "cycles", "assumed", "from a read request to its first beat", None, 60, 240),
    memory("write_latency", "cycles", "assumed", "from a burst's last beat to its response", None, 30, 120),
    memory("jitter", "cycles", "assumed", "added latency of a request, drawn evenly", None, 60),
    memory(
        "read_outstanding",
        "bursts",
        "published",
        "reads of one core under way",
        Source("8", "read 255, write 15", "[M]"),
        64,
    ),
    memory(
        "write_outstanding",
        "bursts",
        "published",
        "writes of one core under way",
        Source("8", "read 255, write 15", "[M]"),
        4,
    ),
    memory("client_read_outstanding", "bursts", "assumed", "reads of one AXI id under way", None, 16),
    memory("client_write_outstanding", "bursts", "assumed", "writes of one AXI id under way", None, 4),
    written(
        "dram.overdraft",
        "cosim/harness/dram.h",
        r"OVERDRAFT = (\d+) \* BEAT_COST",
        "beats",
        "assumed",
        "write beats taken before their bytes are paid",
        bound="shifts beats by eight at most; the bytes of a task take the same time",
    ),
    imported(
        "axi.beat",
        "rtl.config",
        "AXI_BYTES",
        "bytes",
        "published",
        "a data beat",
        Source("8", "32 strobe bits, which fits a 256-bit (32-byte) write data bus", "[I]"),
    ),
    imported(
        "axi.page",
        "rtl.npu.ddma",
        "PAGE_BEATS",
        "beats",
        "published",
        "bursts end at 4 KiB",
        Source("8", "bursts are split at 4 KiB", "[T]"),
    ),
    imported(
        "ddma.max_outstanding",
        "rtl.npu.ddma",
        "MAX_OUTSTANDING",
        "bursts",
        "published",
        "bursts whose order is remembered: what CFG_OUTSTANDING can ask for",
        Source("8", "read 255, write 15", "[M]"),
    ),
    written(
        "ddma.todo",
        "rtl/npu/ddma.py",
        r"todo_layout\.size, depth=(\d+)",
        "bursts",
        "assumed",
        "write bursts whose address is out and whose data are not",
        bound="more than the 15 writes that may be under way: never the limit",
    ),
    # Command lists and registers
    imported(
        "pc.fetch",
        "rtl.list_fetch",
        "FETCH_BYTES",
        "bytes",
        "published",
        "unit in which the PC counts",
        Source("1.6", "number of 16-byte fetches minus one", "[D]"),
    ),
    imported(
        "pc.burst",
        "rtl.list_fetch",
        "MAX_BURST",
        "beats",
        "published",
        "longest burst of the PC",
        Source("8", "3/7/15 = 4/8/16 beats", "[T]"),
    ),
    imported(
        "pc.fifo",
        "rtl.list_fetch",
        "FIFO_BEATS",
        "beats",
        "assumed",
        "command words fetched ahead",
        bound="about two lists; more would hide up to 120 cycles a task, if lists of it follow at once",
    ),
    imported(
        "pc.settle",
        "rtl.pc_dma",
        "SETTLE_CYCLES",
        "cycles",
        "assumed",
        "after an op-enable until the blocks are looked at again",
        bound=PER_TASK,
    ),
    imported(
        "regbus.patience",
        "rtl.regbus",
        "PATIENCE",
        "cycles",
        "assumed",
        "a refused write keeps the way before the other initiator gets it",
        bound="only when host and PC write at once, which programs do not do",
    ),
    imported(
        "regfile.rows",
        "rtl.regfile",
        "ROWS",
        "words",
        "derived",
        "words of a group; all of both groups are set back after a reset, one a cycle (256 cycles)",
        bound="256 cycles after a reset",
    ),
    imported(
        "engine.reset",
        "cosim.engines.soc",
        "RESET_CYCLES",
        "cycles",
        "assumed",
        "how long a reset lasts",
        bound="once a reset, outside of tasks",
    ),
    # CBUF and loaders
    imported(
        "cna.fifo",
        "rtl.config",
        "RK3588.read_fifo_beats",
        "beats",
        "assumed",
        "what a loader may have under way: room for 8 KiB",
        bound="covers 256 cycles of latency at a beat a cycle; at the fitted bandwidth 690",
    ),
    imported(
        "cna.burst",
        "rtl.npu.cna_fetch",
        "BURST_ATOMS",
        "atoms",
        "published",
        "longest burst of a loader",
        Source("8", "all programs use 15", "[T]"),
    ),
    imported(
        "cna.group_rows",
        "rtl.npu.cna_feature",
        "GROUP_ROWS",
        "rows",
        "published",
        "rows fetched together",
        Source("2", "0: fetch groups of 4 lines; 1: off", "ARGB 1"),
    ),
    imported(
        "cna.argb_lanes",
        "rtl.npu.cna_argb",
        "LANES",
        "elements/cycle",
        "assumed",
        "first-layer pixels converted a cycle",
        bound="a first layer with three channels needs 4 elements a pixel and at least one cycle of the "
        "array a pixel and group: twice the rate changes nothing unless kernel and group are 1",
    ),
    # Array
    imported(
        "array.channels",
        "rtl.npu.array_integer",
        "CHANNELS",
        "channels/cycle",
        "published",
        "input channels of a tile",
        Source("4.1", "32 x 32 | 1024", ""),
    ),
    imported(
        "array.kernels_float",
        "rtl.npu.array_float",
        "KERNELS",
        "kernels/cycle",
        "published",
        "kernels of a group of floats",
        Source("4.1", "fp16, bf16 | 32 x 16 | 512", ""),
    ),
    imported(
        "array.depthwise",
        "rtl.npu.array",
        "DEPTHWISE_LANES",
        "channels/cycle",
        "published",
        "channels of a depthwise group",
        Source("4.1", "64 of 1024 used", ""),
    ),
    imported(
        "array.stripe",
        "rtl.npu.array",
        "STRIPE_SLOTS",
        "pixels",
        "published",
        "pixels for which one weight tile is held",
        Source("9.6", "R16 means a stripe of 16 pixels per kernel group", "[N]"),
    ),
    imported(
        "array.banks",
        "rtl.npu.array",
        "BANKS",
        "banks",
        "assumed",
        "accumulators: one is filled while the other is emptied",
        bound="with one, every stripe would wait for its output: 4 cycles a pixel and group in int8",
    ),
    imported(
        "array.latency",
        "rtl.npu.array",
        "CELL_LATENCY",
        "cycles",
        "assumed",
        "from a slot to its sum",
        bound=PER_STRIPE,
    ),
    imported(
        "csc.latency",
        "rtl.npu.csc",
        "ISSUE_LATENCY",
        "cycles",
        "assumed",
        "from the issue of a slot to its operands",
        bound=PER_STRIPE,
    ),
    imported(
        "csc.stripe_latency",
        "rtl.npu.csc",
        "STRIPE_LATENCY",
        "cycles",
        "derived",
        "both of the above",
    ),
    imported(
        "cna.check_spacing",
        "rtl.npu.cna_check",
        "SPACING",
        "cycles",
        "assumed",
        "from one diagnostic to the next",
        bound="only in tasks that raise diagnostics",
    ),
    # DPU
    imported(
        "dpu.lanes",
        "rtl.layouts",
        "LANES",
        "elements/cycle",
        "published",
        "rate of CORE's output and of the DPU",
        Source("5.12", "8 output elements per cycle", "[C]"),
    ),
    imported(
        "dpu.lut",
        "rtl.npu.dpu_lut",
        "WIDTH",
        "elements/cycle",
        "published",
        "rate with the LUT: 2 is the choice of HARDWARE Q20, what boards reached stands in the source",
        Source("5.12", "about 1.5-1.8 elements per cycle", "[M]"),
    ),
    imported(
        "dpu.float_steps",
        "rtl.npu.dpu_float",
        "STEPS",
        "operations",
        "assumed",
        "of floats, one cycle each for eight elements where it is on",
        bound="a layer of fp16 with bias takes 2 cycles for 8 elements, as often as the array gives them "
        "(G/8); more operations than that can bound 1x1 layers of few channels",
    ),
    imported(
        "dpu.stages",
        "rtl.npu.dpu_frame",
        "STAGES",
        "cycles",
        "assumed",
        "length of the DPU's pipeline",
        bound=PER_TASK,
    ),
    imported(
        "dpu_rdma.operand_fifo",
        "rtl.npu.dpu_rdma_operands",
        "FIFO_BEATS",
        "beats",
        "assumed",
        "operands of channels read ahead",
        bound="room for four groups of 64 channels, 16 beats each: never used up while one is worked on",
    ),
    imported(
        "dpu_rdma.operand_burst",
        "rtl.npu.dpu_rdma_operands",
        "BURST_BEATS",
        "beats",
        "published",
        "longest burst",
        Source("8", "all programs use 15", "[T]"),
    ),
    imported(
        "dpu_rdma.ring",
        "rtl.npu.dpu_rdma_stripes",
        "RING_ATOMS",
        "atoms",
        "assumed",
        "a second operand read ahead",
        bound="covers 500 cycles of latency at 32 bytes a cycle",
    ),
    imported(
        "dpu_rdma.runs",
        "rtl.npu.dpu_rdma_stripes",
        "RUNS",
        "runs",
        "assumed",
        "runs of atoms under way",
        bound="a run every two cycles covers the latency: only rows of one or two atoms could use it up",
    ),
    imported(
        "dpu_wdma.burst",
        "rtl.npu.atom_writer",
        "BURST_BEATS",
        "beats",
        "published",
        "longest burst of a writer, and depth of the buffer in front of the DMA",
        Source("8", "all programs use 15", "[T]"),
    ),
    # PPU
    imported(
        "ppu.stages",
        "rtl.npu.ppu_finish",
        "STAGES",
        "cycles",
        "assumed",
        "end of the PPU's pipeline",
        bound=PER_TASK,
    ),
    imported(
        "ppu.run",
        "rtl.npu.ppu_writer",
        "PIECE",
        "atoms",
        "assumed",
        "longest run of the PPU's writer",
        bound="16 beats; programs ask for bursts of 4 (HARDWARE 8), which this writer does not keep to",
    ),
    Constant(
        "ppu.rate",
        "rtl/npu/ppu.py",
        lambda: 1,
        "atoms/cycle",
        "assumed",
        "windows are added up atom by atom: a pixel and surface a cycle and row of the window",
        bound="boards pool slower: 5x5 over 128x60x60 takes 339 us where this takes 153 (CHAN 42)",
    ),
)

NO_TIMING: dict[str, str] = {
    "dram.seed": "of the jitter",
    "dram.fault_read": "injects an error",
    "dram.fault_write": "injects an error",
}
"""Fields of `DramConfig` that decide about no cycle of a run without faults."""


def by_id() -> dict[str, Constant]:
    """All constants by their ids."""
    return {constant.id: constant for constant in CONSTANTS}


def dram_fields() -> set[str]:
    """Ids that the fields of `DramConfig` must have."""
    return {f"dram.{field.name}" for field in fields(DramConfig)}
