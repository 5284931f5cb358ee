"""What each cycle of a task or layer went into: the one vocabulary of causes, and how they are counted.

Three resources work at the same time: the memory, the array, and the output (DPU or PPU).  A cycle in which
several of them are occupied counts for the one that is occupied longest in that task, because the others
could be faster without the task becoming shorter.  `attribute` derives this from the counters of an engine;
the estimator calls it with the same counts, as it expects them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from rkcosim.engines.library import DramConfig
from rkcosim.spec.octets import OCTET, OctetRate
from rkcosim.spec.regs.events import ARRAY_STATES, OUTPUT_STATES

if TYPE_CHECKING:
    from rkcosim.compiler.runtime import TaskMeasure


class Cause(StrEnum):
    """What a cycle went into; the values are names in JSON documents, `label` and `meaning` are for people.

    The order is that of tables and charts.
    """

    ARRAY = "array"
    FEATURES = "features"
    WEIGHTS = "weights"
    OPERANDS = "operands"
    LUT = "lut"
    FLOATS = "floats"
    DPU = "dpu"
    PPU = "ppu"
    WRITER = "writer"
    TASK = "task"
    CORES = "cores"

    @property
    def label(self) -> str:
        """The word for tables and charts."""
        return _TEXTS[self][0]

    @property
    def meaning(self) -> str:
        """A sentence without a full stop."""
        return _TEXTS[self][1]

    @property
    def counted(self) -> str:
        """Which counters of an engine it comes from (`rkcosim.spec.regs.events`)."""
        return _TEXTS[self][2]


_TEXTS = {
    Cause.ARRAY: (
        "array",
        "the array multiplies and accumulates (an operand slot is issued, also an empty one of an incomplete "
        "stripe)",
        "`cycles_array_*`",
    ),
    Cause.FEATURES: (
        "features",
        "input rows are loaded into CBUF, and the array waits for them or could not go on without them",
        "`cycles_feature_*`, bytes of FEATURE",
    ),
    Cause.WEIGHTS: (
        "weights",
        "weights are loaded into CBUF, and the array waits for them or could not go on without them",
        "`cycles_weight_*`, bytes of WEIGHT",
    ),
    Cause.OPERANDS: (
        "operands",
        "the DPU or PPU waits for data that DPU_RDMA or PPU_RDMA reads: its input, a second operand, biases",
        "`cycles_*_operand`, bytes of MRDMA, ERDMA, BRDMA, NRDMA and PPU",
    ),
    Cause.LUT: (
        "DPU (LUT)",
        "the DPU looks elements up in its tables, two a cycle",
        "`cycles_*_work` of a task with tables",
    ),
    Cause.FLOATS: (
        "DPU (floats)",
        "the DPU computes in binary32, one operation of eight elements a cycle",
        "`cycles_*_work` of a task with several operations in binary32",
    ),
    Cause.DPU: (
        "DPU",
        "results pass CORE and the DPU, eight elements a cycle",
        "`cycles_*_work` of all other tasks of the DPU",
    ),
    Cause.PPU: ("PPU", "the PPU processes windows", "`cycles_*_work` of a task with atoms of the PPU"),
    Cause.WRITER: (
        "writer",
        "results are written to memory, which does not accept them as fast as they come",
        "`cycles_*_write`, bytes written",
    ),
    Cause.TASK: (
        "start and end",
        "the task starts or ends, or its last writes are answered; with several cores also the fetch of its "
        "registers and the cycles between its tasks",
        "all other cycles",
    ),
    Cause.CORES: (
        "other cores",
        "the core has no more to do in this layer, and another core still works on it",
        "starts and ends of the tasks of all cores",
    ),
}

CAUSES = tuple(Cause)
"""All causes in the order of tables and charts."""

MEMORY = (Cause.FEATURES, Cause.WEIGHTS, Cause.OPERANDS, Cause.WRITER)
"""Causes that are accesses to memory."""

HOST = "host"
"""What bounds a layer of the host."""

NOT_ENDED = "not ended"
"""What is said in the place of a bound of a task that has not ended."""

CLIENTS = {
    "FEATURE": Cause.FEATURES,
    "WEIGHT": Cause.WEIGHTS,
    **dict.fromkeys(("MRDMA", "BRDMA", "NRDMA", "ERDMA", "PPU"), Cause.OPERANDS),
}
"""Cause of the reads of each AXI client; command words have none."""

ALIKE = 0.05
"""Two resources that are occupied for times that differ by less share the cycles that they have in common."""

Ends = Mapping[tuple[str, str], float]
"""Cycles by state of the array and of the output (`ARRAY_STATES`, `OUTPUT_STATES`)."""

_ARRAY = {"array": Cause.ARRAY, "feature": Cause.FEATURES, "weight": Cause.WEIGHTS}
_WAITS = {"operand": Cause.OPERANDS, "write": Cause.WRITER}
_ONE = OctetRate()
_STAGES = {"lut": Cause.LUT, "floats": Cause.FLOATS, "": Cause.DPU}


@dataclass(frozen=True)
class Attribution:
    """The cycles of a task or layer by cause; `cycles` have every cause, and their sum is the total.

    Members
    -------
    cycles
        Cycles by cause.
    octet
        Rate of the DPU in the task, or in the layer's longest task.
    ended
        Whether the task has ended; until then nothing bounds it.
    """

    cycles: dict[Cause, int] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0))
    octet: OctetRate = _ONE
    ended: bool = True

    @property
    def total(self) -> int:
        """All cycles."""
        return sum(self.cycles.values())

    @property
    def largest(self) -> Cause | None:
        """The cause of most cycles; None without any cycle."""
        return max(CAUSES, key=lambda cause: self.cycles[cause]) if self.total else None

    @property
    def bound(self) -> str:
        """What limits the task or layer: the largest cause in words, "not ended", or "" without cycles."""
        if not self.ended:
            return NOT_ENDED
        return self.words(self.largest) if self.largest is not None else ""

    def words(self, cause: Cause) -> str:
        """Return the label of a cause, for the DPU with its rate: "DPU (LUT, 2 elements a cycle)"."""
        if cause in _STAGES.values():
            rate = f"{OCTET / self.octet.cycles:.2g} elements a cycle"
            return f"{cause.label[:-1]}, {rate})" if cause.label.endswith(")") else f"{cause.label} ({rate})"
        return cause.label

    def share(self, cause: Cause) -> float:
        """Return the share of a cause, 0 to 1."""
        return self.cycles[cause] / self.total if self.total else 0.0

    def sentence(self, most: int = 3) -> str:
        """Return the largest shares in words, for example "array 61%, features 30%, start and end 9%"."""
        ranked = sorted(CAUSES, key=lambda cause: -self.cycles[cause])[:most]
        return ", ".join(f"{self.words(c)} {self.share(c):.0%}" for c in ranked if self.cycles[c])

    def as_json(self) -> dict[str, int]:
        """Return the cycles by the name of the cause, with every cause."""
        return {str(cause): count for cause, count in self.cycles.items()}


def ends_of(events: Mapping[str, int]) -> dict[tuple[str, str], float]:
    """Return the states of both ends from an engine's counters (`rkcosim.engines.EVENT_NAMES`)."""
    pairs = {
        (array, output): f"cycles_{array}_{output}" for array in ARRAY_STATES for output in OUTPUT_STATES
    }
    return {pair: float(events[name]) for pair, name in pairs.items() if events.get(name)}


def moved_of(read_by: Mapping[str, int], written: float) -> dict[Cause, float]:
    """Return the bytes of each cause of `MEMORY` from bytes by AXI client."""
    found: dict[Cause, float] = dict.fromkeys(MEMORY, 0.0)
    for client, count in read_by.items():
        if client in CLIENTS:
            found[CLIENTS[client]] += count
    found[Cause.WRITER] += written
    return found


def attribute(
    ends: Ends,
    cycles: float,
    moved: Mapping[Cause, float],
    *,
    octet: OctetRate = _ONE,
    octets: int = 0,
    pooling: bool = False,
    ended: bool = True,
    dram: DramConfig | None = None,
    cores: int = 1,
) -> Attribution:
    """Divide the cycles of a task among the causes.

    Parameters
    ----------
    ends
        Cycles in each pair of states of the array and of the output.
    cycles
        All cycles of the task.
    moved
        Bytes of each cause of `MEMORY`.
    octet
        Rate of the DPU in this task.
    octets
        Octets of the DPU, each of which is work of `octet.cycles` even if the writer waits meanwhile; 0 if
        `ends` include that already.
    pooling
        Whether the PPU is active.
    ended
        Whether the task has ended.
    dram, cores
        The memory, and the number of cores that use it at the same time.
    """
    needed = octets * octet.cycles
    ends = _without_refusals(_whole_octets(ends, needed))
    work = Cause.PPU if pooling else _STAGES[octet.stage]
    front = sum(count for (array, _), count in ends.items() if array != "none")
    back = sum(count for (_, output), count in ends.items() if output != "none")
    found: dict[Cause, float] = dict.fromkeys(CAUSES, 0.0)
    for (array, output), count in ends.items():
        first, second = _ARRAY.get(array), _WAITS.get(output, work if output == "work" else None)
        share = _lean(front, back) if first and second else float(first is not None)
        for cause, part in ((first, share), (second, 1 - share)):
            if cause is not None:
                found[cause] += count * part
    memory = _memory_cycles(moved, dram or DramConfig(), cores)
    working = sum(count for (_, output), count in ends.items() if output == "work")
    worked = needed or working
    slots = sum(count for (array, _), count in ends.items() if array == "array")
    _count_memory(found, work, moved, memory, max(worked, slots))
    found[Cause.TASK] += max(cycles - sum(found.values()), 0.0)
    return Attribution(_whole(found, round(cycles)), octet, ended)


def _lean(a: float, b: float) -> float:
    """Return the part of their common cycles that the first of two resources has.

    The one that is occupied longer has all, unless they differ by less than `ALIKE`.
    """
    return min(max(0.5 + (a - b) / (2 * ALIKE * max(a, b, 1e-9)), 0.0), 1.0)


def _without_refusals(ends: Ends) -> Ends:
    """Leave out waits of the writer while the array works or waits: its buffers absorb them."""
    found: dict[tuple[str, str], float] = {}
    for (array, output), count in ends.items():
        pair = (array, "none" if output == "write" and array != "none" else output)
        found[pair] = found.get(pair, 0.0) + count
    return found


def _whole_octets(ends: Ends, needed: float) -> Ends:
    """Count waits of the writer as work until the output has worked as long as its octets need."""
    found = dict(ends)
    less = needed - sum(count for (_, output), count in ends.items() if output == "work")
    for (array, output), count in ends.items():
        if output == "write" and less > 0:
            more = min(count, less)
            less -= more
            found[array, output] -= more
            found[array, "work"] = found.get((array, "work"), 0.0) + more
    return found


def _memory_cycles(moved: Mapping[Cause, float], dram: DramConfig, cores: int) -> float:
    """Return the cycles that the memory needs for these bytes, if all cores use it equally."""
    written = moved.get(Cause.WRITER, 0.0)
    read = sum(moved.values()) - written
    rate, port = dram.bandwidth(cores) / cores, dram.port_bytes_per_cycle
    return max((read + written) / rate, read / port, written / port)


def _count_memory(
    found: dict[Cause, float], work: Cause, moved: Mapping[Cause, float], busy: float, others: float
) -> None:
    """Give the memory cycles of work, if it is occupied (`busy`) longer than array and output (`others`)."""
    waits, works = sum(found[cause] for cause in MEMORY), found[Cause.ARRAY] + found[work]
    more = min(busy - waits, works) * _lean(busy, others)
    if more <= 0:
        return
    for cause in (Cause.ARRAY, work):
        found[cause] -= more * found[cause] / works
    for cause, count in moved.items():
        found[cause] += more * count / sum(moved.values())


def _whole(found: Mapping[Cause, float], total: int) -> dict[Cause, int]:
    """Round to whole cycles with this sum: the largest rests are rounded up."""
    scale = total / sum(found.values()) if sum(found.values()) > total else 1.0
    exact = {cause: found[cause] * scale for cause in CAUSES}
    whole = {cause: int(count) for cause, count in exact.items()}
    rests = sorted(CAUSES, key=lambda cause: whole[cause] - exact[cause])
    left = total - sum(whole.values())
    for cause in rests[:left] if left <= len(rests) else ():
        whole[cause] += 1
    whole[Cause.TASK] += total - sum(whole.values())
    return whole


@dataclass(frozen=True)
class Ran:
    """A task as a part of a layer: its attribution, core, and first cycle (None: unknown)."""

    of: Attribution
    core: int = 0
    start: int | None = None


def together(tasks: Sequence[Ran], cycles: int | None = None) -> Attribution:
    """Return the attribution of a layer from those of its tasks.

    Parameters
    ----------
    tasks
        All tasks of the layer, those of a core in their order.
    cycles
        Cycles of the layer; None: those of the core that takes longest.  If several cores ran it, each of
        them has that many cycles in the sum.
    """
    if not tasks:
        return Attribution()
    total: Counter[Cause] = Counter()
    for task in tasks:
        total.update(task.of.cycles)
    cores = sorted({task.core for task in tasks})
    own = {core: sum(task.of.total for task in tasks if task.core == core) for core in cores}
    layer = max(own.values()) if cycles is None else cycles
    ends = {t.core: t.start + t.of.total for t in tasks if t.start is not None}  # the last one of each core
    for core in cores:
        rest = max(layer - own[core], 0)
        late = max(ends.values()) - ends[core] if len(ends) == len(cores) else max(own.values()) - own[core]
        total[Cause.CORES] += min(late, rest)
        total[Cause.TASK] += rest - min(late, rest)
    longest = max(tasks, key=lambda task: task.of.total)
    counts = {cause: total[cause] for cause in CAUSES}
    return Attribution(counts, longest.of.octet, all(task.of.ended for task in tasks))


def attribute_tasks(
    tasks: Sequence[TaskMeasure],
    rates: Sequence[OctetRate] = (),
    cycles: int | None = None,
    dram: DramConfig | None = None,
    *,
    ended: bool = True,
) -> Attribution:
    """Return the attribution of a layer from the engine's measurements of its tasks.

    Parameters
    ----------
    tasks
        All tasks of the layer, those of a core in their order.
    rates
        The DPU's rate in each task; ignored if there is not one for each.
    cycles
        Cycles of the layer; see `together`.
    dram
        The memory; None: default.
    ended
        Whether the tasks have ended.
    """
    cores = len({task.core for task in tasks}) or 1
    known = rates if len(rates) == len(tasks) else [_ONE] * len(tasks)
    found = [
        Ran(
            attribute(
                ends_of(task.events),
                task.cycles,
                moved_of(task.read_by, task.bytes_written),
                octet=rate,
                octets=task.events.get("dpu_octets", 0),
                pooling=bool(task.events.get("ppu_atoms")),
                ended=ended,
                dram=dram,
                cores=cores,
            ),
            task.core,
            task.start,
        )
        for task, rate in zip(tasks, known, strict=True)
    ]
    return together(found, cycles)


def add(*parts: Mapping[str, int]) -> dict[str, int]:
    """Add counts by name; names keep the order in which they first occur."""
    total: Counter[str] = Counter()
    for counts in parts:
        total.update(counts)
    return dict(total)


def sum_of(parts: Iterable[Attribution]) -> dict[Cause, int]:
    """Return the cycles of several attributions by cause."""
    found = dict.fromkeys(CAUSES, 0)
    for part in parts:
        for cause, count in part.cycles.items():
            found[cause] += count
    return found
