"""Every constant that influences cycles: its value, read from the code, and its source.

A constant is *published* (a row of the hardware reference has it; a test checks quotation and mark),
*fitted* (`tools.calibrate`, or where its source says so), *assumed* (no published source; its effect on the
totals is given, either by reasoning or measured by `tools.effects`), or *derived* from other constants.
Values are read from the code, never copied.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rkcosim.base import PACKAGE
from rkcosim.measure.perf.page import table

EFFECTS = Path(__file__).with_name("effects.json")
SCHEMA_VERSION = 1

TABLE = r"""
# DRAM and interconnect
dram.peak_bytes_per_cycle: published, bytes/cycle at 1 GHz
  largest transfer rate of DRAM, all cores and both directions together
  [HW 11.3] [derived: vendor-profile]: vendor profile uses 70 % (23.65 GB/s at 1 GHz)
dram.core_bytes_per_cycle: fitted, bytes/cycle at 1 GHz
  largest transfer rate of one core, both directions together (cosim/measure/perf/boards/calibrated.json: two
    tensors in, one out, three times the rate of the source)
  [HW 7.15] [board: vendor-profile]: about 4 B out per ns on one core (bound by DDR)
dram.efficiency: derived, -
  factor on the peak: 1, since 23.65 already is 70 % of the chips' rate
  [HW 12.6] [derived: vendor-profile]: 23.654 at 1 GHz
dram.port_bytes_per_cycle: published, bytes/cycle
  width of one core's data bus in one direction
  [HW 11.2] [derived: trm]: 32 strobe bits, which fits a 256-bit (32-byte) write data bus
dram.read_latency: assumed, cycles
  from a read request to its first beat
dram.write_latency: assumed, cycles
  from a burst's last beat to its response
dram.jitter: assumed, cycles
  additional latency of a request, uniformly distributed
dram.read_outstanding: published, bursts
  outstanding reads of one core
  [HW 11.2] [board: notes-counters]: read 255, write 15
dram.write_outstanding: published, bursts
  outstanding writes of one core
  [HW 11.2] [board: notes-counters]: read 255, write 15
dram.client_read_outstanding: assumed, bursts
  outstanding reads of one AXI id
dram.client_write_outstanding: assumed, bursts
  outstanding writes of one AXI id
dram.overdraft: assumed, beats, cosim/engines/harness/dram.h: OVERDRAFT
  write beats accepted before bandwidth for their bytes is available
  effect: shifts beats by eight at most; the bytes of a task take the same time
axi.beat: published, bytes, spec/config.py: AXI_BYTES
  a data beat
  [HW 11.2] [derived: trm]: 32 strobe bits, which fits a 256-bit (32-byte) write data bus
axi.page: published, beats, rtl/npu/ddma.py: PAGE_BEATS
  bursts end at 4 KiB
  [HW 11.2] [derived: trm]: bursts are split at 4 KiB
ddma.max_outstanding: published, bursts, rtl/npu/ddma.py: MAX_OUTSTANDING
  bursts whose order is stored: the most that CFG_OUTSTANDING can request
  [HW 11.2] [board: notes-counters]: read 255, write 15
ddma.todo: assumed, bursts, rtl/npu/ddma.py: todo_layout.size, depth
  write bursts whose address has been sent and whose data have not
  effect: more than the 15 outstanding writes that are allowed: never the limit
# Command lists and registers
pc.fetch: published, bytes, rtl/list_fetch.py: FETCH_BYTES
  unit in which the PC counts command words
  [HW 1.6] [derived: vendor-driver]: number of 16-byte fetches minus one
pc.burst: published, beats, rtl/list_fetch.py: MAX_BURST
  longest burst of the PC
  [HW 11.2] [derived: trm]: 3/7/15 = 4/8/16 beats
pc.fifo: assumed, beats, rtl/list_fetch.py: FIFO_BEATS
  command words fetched ahead
  effect: about two lists; a larger one would hide up to 120 cycles per task, if such tasks follow directly
pc.settle: assumed, cycles, rtl/pc_task.py: SETTLE_CYCLES
  from an op-enable until the PC examines the blocks again
  effect: once per task: below 0.1 % of a task of 10,000 cycles
regbus.patience: assumed, cycles, rtl/regbus.py: PATIENCE
  how long a refused write blocks the bus before the other initiator gets it
  effect: only if host and PC write at the same time, which programs do not do
regfile.rows: derived, words, rtl/regfile.py: ROWS
  words of a register group; after a reset both groups are cleared at one word per cycle (256 cycles)
  effect: 256 cycles after a reset
cowork.exchange: assumed, cycles, spec/co_work.py: EXCHANGE_CYCLES
  interval at which cooperating cores exchange their states
  effect: at most this long for each start of a co-working task; none on one core
engine.reset: assumed, cycles, cosim/engines/system.py: RESET_CYCLES
  duration of a reset
  effect: once per reset, outside of tasks
# CBUF and loaders
cna.fifo: assumed, beats, spec/config.py: RK3588.read_fifo_beats
  data that a loader may have requested: room for 8 KiB
  effect: covers 256 cycles of latency at one beat per cycle; 690 at the fitted bandwidth
cna.burst: published, atoms, rtl/npu/cna_fetch.py: BURST_ATOMS
  longest burst of a loader
  [HW 11.2] [derived: mesa-regcmd]: all programs use 15
cna.group_rows: published, rows, rtl/npu/cna_feature.py: GROUP_ROWS
  rows fetched together
  [HW 4.1] [derived: mesa-regcmd]: fetches groups of four lines
cna.argb_lanes: assumed, elements/cycle, rtl/npu/cna_argb.py: LANES
  first-layer pixels converted per cycle
  effect: a first layer with three channels needs 4 elements per pixel and at least one cycle of the array per
    pixel and group: twice the rate changes nothing unless kernel and group are 1
# Array
array.channels: published, channels/cycle, rtl/npu/array_integer.py: CHANNELS
  input channels of a weight tile
  [HW 6.1] [derived: trm]: 32 x 32 | 1024
array.kernels_float: published, kernels/cycle, rtl/npu/array_float.py: KERNELS
  kernels of a group in floating point
  [HW 6.1] [derived: trm]: fp16, bf16 | 32 x 16 | 512
array.depthwise: published, channels/cycle, rtl/npu/array.py: DEPTHWISE_LANES
  channels of a depthwise group
  [HW 6.1] [derived: trm]: 64 of 1024 used
array.stripe: published, pixels, rtl/npu/array.py: STRIPE_SLOTS
  pixels for which one weight tile is kept
  [HW 12.6] [derived: nvdla-csc]: R16 means a stripe of 16 pixels per kernel group
array.banks: assumed, banks, rtl/npu/array.py: BANKS
  accumulator banks: one is filled while the other is emptied
  effect: with one bank every stripe would wait for its output: 4 cycles per pixel and group in int8
array.latency: assumed, cycles, rtl/npu/array.py: CELL_LATENCY
  from an operand slot to its sum
  effect: hidden while the other accumulator bank is filled; otherwise once at the end of a task
csc.latency: assumed, cycles, rtl/npu/csc.py: ISSUE_LATENCY
  from the issue of a slot to its operands
  effect: hidden while the other accumulator bank is filled; otherwise once at the end of a task
csc.stripe_latency: derived, cycles, rtl/npu/csc.py: STRIPE_LATENCY
  sum of the two latencies above
cna.check_spacing: assumed, cycles, rtl/npu/checks.py: SPACING
  from one diagnostic to the next
  effect: only in tasks that raise diagnostics
# DPU
dpu.lanes: published, elements/cycle, rtl/layouts.py: LANES
  output rate of CORE and rate of the DPU
  [HW 7.15] [derived: vendor-profile]: 8 output elements per cycle
dpu.lut: published, elements/cycle, rtl/npu/dpu_lut.py: WIDTH
  rate with the LUT: 2 is the choice of [HW 13.20]; the source gives the rates measured on boards
  [HW 7.15] [board: vendor-profile]: about 1.5-1.8 elements per cycle
dpu.float_steps: assumed, operations, rtl/npu/dpu_float.py: STEPS
  floating-point operations, each one cycle for eight elements if it is enabled
  effect: a layer of fp16 with bias takes 2 cycles for 8 elements, as often as the array delivers them (G/8);
    more operations than that can limit 1x1 layers of few channels
dpu.stages: assumed, cycles, rtl/npu/dpu_frame.py: STAGES
  length of the DPU's pipeline
  effect: once per task: below 0.1 % of a task of 10,000 cycles
dpu_rdma.operand_fifo: assumed, beats, rtl/npu/dpu_rdma_operands.py: FIFO_BEATS
  operands of channels read ahead
  effect: room for four groups of 64 channels, 16 beats each: never empty while a group is processed
dpu_rdma.operand_burst: published, beats, rtl/npu/dpu_rdma_operands.py: BURST_BEATS
  longest burst
  [HW 11.2] [derived: mesa-regcmd]: all programs use 15
dpu_rdma.ring: assumed, atoms, rtl/npu/dpu_rdma_stripes.py: RING_ATOMS
  a second operand read ahead
  effect: covers 500 cycles of latency at 32 bytes a cycle
dpu_rdma.runs: assumed, runs, rtl/npu/dpu_rdma_stripes.py: RUNS
  outstanding runs of atoms
  effect: one run every two cycles covers the latency: only rows of one or two atoms could exhaust it
dpu_wdma.burst: published, beats, rtl/npu/atom_writer.py: BURST_BEATS
  longest burst of a writer, and depth of the buffer in front of the DMA
  [HW 11.2] [derived: mesa-regcmd]: all programs use 15
# PPU
ppu.stages: assumed, cycles, rtl/npu/ppu_finish.py: STAGES
  last part of the PPU's pipeline
  effect: once per task: below 0.1 % of a task of 10,000 cycles
ppu.run: assumed, atoms, spec/types.py: POOL_RUN
  longest run of the PPU's writer
  effect: 16 beats; programs set bursts of 4 [HW 11], which this writer does not follow
ppu.atom: fitted, cycles, spec/types.py: POOL_ATOM_CYCLES
  an atom of the PPU's input
  [HW 9.10] [derived: unet-profile]: An atom of the input takes 4 cycles
ppu.result: fitted, cycles, spec/types.py: POOL_RESULT_CYCLES
  an atom of the PPU's results, in addition to those of the input
  [HW 9.10] [derived: unet-profile]: an atom of results takes one more
"""
"""One entry per constant.  First line: id, kind, unit and place (those of DRAM are fields of `DramConfig`).
Second line: its meaning.  Third line: the section of docs/reference, its mark and words of the line, or the
largest effect of an assumed constant that cannot be changed.  A line with a deeper indent continues the one
before it."""

WORKLOADS = {"layers": "the 12 layers", "worst": "worst of them", "mobilenet_v1": "MobileNetV1"}
"""The work on which effects were measured (`effects`), in words."""


@dataclass(frozen=True)
class Source:
    """Where docs/reference says so: number of the section, words of a line there, and its mark."""

    section: str
    quote: str
    mark: str

    def __str__(self) -> str:
        """Return the section, followed by its mark if the mark is in brackets."""
        return f"[HW {self.section}] {self.mark}"


@dataclass(frozen=True)
class Constant:
    """One constant.

    Members
    -------
    id : stable name.
    place : file, and the name in that file; `value` reads it.
    kind : origin of the value, as described at the top of this module.
    why : its meaning, in words.
    source : source of a published constant; for a fitted or derived one, the source it is based on.
    bound : for an assumed constant that cannot be changed: its largest effect, by reasoning.
    """

    id: str
    place: str
    unit: str
    kind: str
    why: str
    source: Source | None = None
    bound: str = ""

    def value(self) -> Any:
        """Return the number in the code: a module's attribute, or the number after the name in the file.

        Raises
        ------
        ValueError
            If the file has no such number.
        """
        file, _, name = self.place.partition(": ")
        if not name:
            return 1  # a rate that is built into the whole file
        room = file.removeprefix("cosim/")
        if room.endswith(".py") and re.fullmatch(r"[\w.]+", name):
            found: Any = import_module(f"rkcosim.{room.removesuffix('.py').replace('/', '.')}")
            for part in name.split("."):
                found = getattr(found, part)
            return found
        number = re.search(rf"{re.escape(name)} ?= ?(\d+)", (PACKAGE / room).read_text())
        if number is None:
            raise ValueError(f"{file}: no number is given to {name}")
        return int(number[1])

    def as_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "value": self.value(), "effects": effects().get(self.id, {})}

    def effects_in_words(self) -> list[str]:
        """Return the changes by workload, for each value that was tried."""
        return [
            f"at {words}: " + ", ".join(f"{WORKLOADS[name]} {value:+.1%}" for name, value in changed.items())
            for words, changed in effects().get(self.id, {}).items()
        ]


def _constants() -> tuple[Constant, ...]:
    """Parse the constants of `TABLE`."""
    lines = re.sub(r"\n {4}", " ", TABLE).strip()
    found = []
    for entry in re.split(r"\n(?! )", re.sub(r"^# .*\n", "", lines, flags=re.MULTILINE)):
        head, why, *more = (line.strip() for line in entry.splitlines())
        id, _, rest = head.partition(": ")
        kind, unit, *place = rest.split(", ", 2)
        source = re.fullmatch(r"\[HW ([\d.]+)\] (\[[^\]]*\]): (.*)", more[0]) if more else None
        found.append(
            Constant(
                id,
                place[0] if place else f"cosim/engines/library.py: DramConfig.{id.partition('.')[2]}",
                unit.replace("-", ""),
                kind,
                why,
                Source(source[1], source[3], source[2]) if source else None,
                more[0].removeprefix("effect: ") if more and not source else "",
            )
        )
    return tuple(found)


CONSTANTS = _constants()


@cache
def effects() -> dict[str, dict[str, dict[str, float]]]:
    """Return the stored effects: id -> changed value -> workload -> relative change of its cycles."""
    found: dict[str, dict[str, dict[str, float]]] = json.loads(EFFECTS.read_text())["effects"]
    return found


def lines() -> list[str]:
    """Return one line per constant, for the terminal."""
    return [
        f"{'constant':28} {'value':>10} {'unit':22} kind       from",
        *(
            f"{one.id:28} {f'{one.value():g}':>10} {one.unit:22} {one.kind:10} {one.source or one.place}"
            for one in CONSTANTS
        ),
    ]


def section() -> str:
    """Return the section `constants` of the page: sources, and effects of assumed constants."""
    known, assumed = [], []
    for one in CONSTANTS:
        cells = [one.id, f"{one.value():g} {one.unit}", one.why]
        if one.kind == "assumed":
            assumed.append([*cells, "; ".join(one.effects_in_words()) or one.bound])
        else:
            quoted = f"{one.source}: {one.source.quote}".replace("|", "/") if one.source else one.place
            known.append([*cells, one.kind, quoted])
    tried = [
        f"{one.id} {words}" for one in CONSTANTS if one.kind != "assumed" for words in one.effects_in_words()
    ]
    text = [
        *table(["constant", "value", "what", "kind", "source"], known),
        "",
        "Assumed constants and their effect on the totals. Parameters were changed and the 12 layers and "
        "MobileNetV1 run again (`python -m tools.effects`); for constants that are fixed in the design the "
        "largest effect is given.",
        "",
        *table(["constant", "value", "what", "effect"], assumed),
    ]
    return "\n".join([*text, "", "For comparison, effects of published ones: " + "; ".join(tried) + "."])
