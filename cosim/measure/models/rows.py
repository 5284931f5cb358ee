"""Rows for JSON and report about each layer, task and buffer of a run of a model or command stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rkcosim.compiler.programs.task import Ref
from rkcosim.compiler.runtime import LayerReport, TaskMeasure
from rkcosim.engines.library import DramConfig
from rkcosim.golden.task import GoldenError, GoldenNpu, TaskReport
from rkcosim.measure.perf import formula
from rkcosim.measure.perf.attribution import HOST, NOT_ENDED, add, attribute_tasks
from rkcosim.running.meter import meter, unended
from rkcosim.spec.config import RK3588
from rkcosim.spec.octets import OctetRate, octet_rate
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import run_kick

if TYPE_CHECKING:
    from rkcosim.verify.streams.stream import Stream


@dataclass
class LayerRow:
    """One layer of a model and of one inference.

    The members from `core_cycles` on are set if an engine measured the tasks.

    Members
    -------
    name
        The layer's name in the file.
    op
        Its operator; with "+", operators that the NPU computes together.
    target
        Where it runs: "npu" or "host".
    tasks
        Number of tasks of the hardware.
    cycles
        Cycles of the NPU; None if nothing was measured.
    macs
        Multiply-accumulates.
    utilisation
        Share of the multiply-accumulates that the arrays of all cores that ran it could do in `cycles`.
    mac_busy
        Share of the cycles of all these cores in which their arrays had an operand slot.
    bytes_read, bytes_written
        Bytes that the NPU moved from and to DRAM, without command words; planned ones without a measurement.
    formula_npu
        Lower bound of the array's cycles, divided evenly among the cores that ran it [HW 12.6].
    formula_ddr
        Lower bound of the cycles of the DRAM [HW 12.6].
    formula_cycles
        The larger of both.
    core_cycles
        Cycles of all cores that ran it: `cycles` times their number.
    spent
        `core_cycles` by cause (`rkcosim.measure.perf.attribution.Cause`); their sum is `core_cycles`.
    counters
        The engine's counters in cycles (`rkcosim.engines.EVENT_NAMES`); these may overlap.
    read_by, written_by
        Bytes by AXI client; those of PC are command words, which `bytes_read` excludes.
    cores
        Cores that ran it.
    peak
        Multiply-accumulates that one core's array can do per cycle for a layer of this kind and type.
    input_shape, output_shape
        Shapes with the channels in front.
    host_seconds
        Seconds that the host's part took on this machine.
    reason
        Why the host computes it, if it does; the reasons of its operators, each once.
    bound
        What limits it: the largest cause in words, "host", "not ended", or "" if nothing was measured.
    itemsize
        Bytes of an element of its result.
    """

    name: str
    op: str
    target: str
    tasks: int
    cycles: int | None
    macs: int
    utilisation: float | None
    mac_busy: float | None
    bytes_read: int
    bytes_written: int
    formula_npu: int
    formula_ddr: int
    formula_cycles: int
    core_cycles: int | None = None
    spent: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    read_by: dict[str, int] = field(default_factory=dict)
    written_by: dict[str, int] = field(default_factory=dict)
    cores: list[int] = field(default_factory=list)
    peak: int = 0
    input_shape: list[int] = field(default_factory=list)
    output_shape: list[int] = field(default_factory=list)
    host_seconds: float = 0.0
    reason: str = ""
    bound: str = ""
    itemsize: int = 1

    def as_json(self) -> dict[str, Any]:
        """All members."""
        return asdict(self)

    def flat(self) -> dict[str, Any]:
        """Members for a table of plain columns: a dict becomes columns `member.part`, a list becomes text."""
        columns: dict[str, Any] = {}
        for name, value in self.as_json().items():
            if isinstance(value, dict):
                columns |= {f"{name}.{part}": count for part, count in value.items()}
            else:
                columns[name] = "x".join(map(str, value)) if isinstance(value, list) else value
        return columns


def layer_row(layer: Any, dram: DramConfig | None = None) -> LayerRow:
    """Make the row of a `rkcosim.compiler.LayerReport`; `dram` is the memory it ran with (None: default)."""
    moved = layer.bytes_read + layer.bytes_written
    measures = getattr(layer, "measures", ())
    cores = sorted({m.core for m in measures})
    ddr = formula.ddr(layer.bytes_read, layer.bytes_written, dram, len(cores) or 1) if moved else 0
    busy = getattr(layer, "mac_busy", None)
    cycles = layer.cycles
    capacity = cycles * (len(cores) or 1) if cycles else 0  # cycles of all cores that ran it
    npu = -(-layer.formula_npu // (len(cores) or 1))
    row = LayerRow(
        layer.name,
        layer.op,
        layer.target,
        layer.tasks,
        cycles,
        layer.macs,
        round(layer.macs * layer.itemsize / (capacity * RK3588.macs_int8), 4) if capacity else None,
        round(busy / capacity, 4) if capacity and busy is not None else None,
        layer.bytes_read,
        layer.bytes_written,
        npu,
        ddr,
        max(ddr, npu),
        peak=_peak(layer),
        input_shape=[int(n) for n in layer.input_shape],
        output_shape=[int(n) for n in layer.output_shape],
        host_seconds=round(layer.host_seconds, 6),
        itemsize=layer.itemsize,
        reason="; ".join(dict.fromkeys(item.reason for item in getattr(layer, "hosted", ()))),
    )
    if layer.target == HOST:
        row.bound = HOST
    if measures:
        row.core_cycles = capacity
        if any(m.events for m in measures):
            found = attribute_tasks(measures, layer.rates, cycles, dram)
            row.core_cycles, row.spent, row.bound = found.total, found.as_json(), row.bound or found.bound
        row.counters = add(*(m.events for m in measures))
        row.read_by = add(*(m.read_by for m in measures))
        row.written_by = add(*(m.written_by for m in measures))
        row.cores = cores
    return row


def _peak(layer: Any) -> int:
    if not layer.macs:
        return 0
    depthwise = layer.op.startswith("Depthwise")
    return formula.DEPTHWISE_GROUP if depthwise else RK3588.macs_int8 // layer.itemsize


def task_rows(layers: Sequence[Any]) -> list[dict[str, Any]]:
    """Return start and core of each task of one inference, oldest first; empty if nothing was measured.

    `layer` is the index of its layer; `start` is relative to the start of the first task.
    """
    found = [
        {
            "layer": number,
            "core": m.core,
            "start": m.start,
            "cycles": m.cycles,
            "mac_busy": m.mac_busy or 0,
            "bytes_read": sum(m.read_by.values()),
            "bytes_written": m.bytes_written,
        }
        for number, layer in enumerate(layers)
        for m in getattr(layer, "measures", ())
        if m.start is not None
    ]
    found.sort(key=lambda row: (row["start"], row["core"]))
    zero = found[0]["start"] if found else 0
    return [{**row, "start": row["start"] - zero} for row in found]


def buffers(loaded: Any) -> list[dict[str, Any]]:
    """Return the address of every buffer in device memory and the layers that need it.

    Parameters
    ----------
    loaded
        `rkcosim.compiler.LoadedModel`.

    Returns
    -------
    For each buffer its `name`, `kind` ("input", "output", "tensor", "constant", "weights" or "commands"),
    `address`, `size` in bytes, `first` and `last` layer that needs its contents, and `used`, the
    layers that read or write it.
    """
    plan = getattr(getattr(loaded, "model", None), "plan", None)
    if plan is None:
        return []
    found = [*_tensors(plan, loaded.bases), *_weights(plan, loaded.bases), *_commands(plan, loaded)]
    return sorted(found, key=lambda item: (item["address"], item["first"]))


def _tensors(plan: Any, bases: Any) -> Iterator[dict[str, Any]]:
    graph, last = plan.graph, len(plan.steps) - 1
    inputs = {graph.root(item.tensor) for item in graph.inputs}
    outputs = {graph.root(o.value) for o in graph.outputs if not o.real}
    outputs |= {graph.root(o.input) for o in graph.host_ops if o.input in graph.tensors}
    for name, place in plan.places.items():  # as in the plan, inputs and outputs are kept to the end
        writes = [n for n, step in enumerate(plan.steps) if graph.root(step.output.name) == name]
        reads = [n for n, s in enumerate(plan.steps) if any(graph.root(t.name) == name for t in s.inputs)]
        used = sorted({*writes, *reads})
        kind = "tensor"
        for candidate, names in (("output", outputs), ("input", inputs), ("constant", graph.constants)):
            kind = candidate if name in names else kind
        yield {
            "name": name,
            "kind": kind,
            "address": place.ref.address(bases),
            "size": place.size,
            "first": min(writes) if writes else 0,
            "last": last if name in outputs or not writes else max(used),
            "used": used,
        }


def _weights(plan: Any, bases: Any) -> Iterator[dict[str, Any]]:
    """Yield the contiguous kernels and tables of each layer; constants have separate places."""
    starts: dict[int, int] = {}
    for task in plan.tasks:
        for setting in task.settings:
            for value in setting.fields.values():
                if isinstance(value, Ref) and value.region == "weights":
                    starts[task.layer] = min(value.offset, starts.get(task.layer, value.offset))
    constants = {p.ref.offset for p in plan.places.values() if p.ref.region == "weights"}
    marks = sorted({*starts.values(), *constants, len(plan.weights)})
    for layer, start in starts.items():
        if start not in constants:
            yield {
                "name": plan.steps[layer].name,
                "kind": "weights",
                "address": bases["weights"] + start,
                "size": marks[marks.index(start) + 1] - start,
                "first": 0,
                "last": len(plan.steps) - 1,
                "used": [layer],
            }


def _commands(plan: Any, loaded: Any) -> Iterator[dict[str, Any]]:
    spans: dict[int, tuple[int, int]] = {}
    for task, entry in zip(plan.tasks, loaded.tasks.tasks, strict=True):
        start, end = entry.address, entry.address + 8 * entry.n_words
        low, high = spans.get(task.layer, (start, end))
        spans[task.layer] = min(low, start), max(high, end)
    for layer, (start, end) in spans.items():
        yield {
            "name": plan.steps[layer].name,
            "kind": "commands",
            "address": start,
            "size": end - start,
            "first": 0,
            "last": len(plan.steps) - 1,
            "used": [layer],
        }


def stream_rows(device: Any, stream: Stream) -> dict[str, Any]:
    """Return members for the JSON of a stream's run, in the same form as for models.

    Parameters
    ----------
    device
        An engine or the golden model, after the run.
    stream
        The stream that it ran.  A golden model runs it again to find each task's kind, MACs and bounds;
        these are missing if the golden model cannot run it.

    Returns
    -------
    `rows` (`LayerRow`, one per task), `runs` (`task_rows`), `regions` of the stream, `dram`, `peak`, `cores`,
    `geometry` and `cell`.
    """
    timed = device.has_cycles
    reports = device.task_log()
    if timed or len(reports) < device.task_count():  # the golden model keeps the latest ones
        reports = _reports(stream)
    ended = meter(device)() if timed else []
    measures = [*ended, *unended(device)] if timed else ended
    count = len(measures) if timed else len(reports)
    layers = [
        _task_layer(n, reports[n] if n < len(reports) else None, measures[n] if measures else None)
        for n in range(count)
    ]
    dram = device.dram
    rows = [
        _task_row(layer, reports[n] if n < len(reports) else None, dram) for n, layer in enumerate(layers)
    ]
    for row in rows[len(ended) :] if timed else []:
        row.name, row.bound = f"{row.name}, {NOT_ENDED}", NOT_ENDED
    return {
        "rows": [row.as_json() for row in rows],
        "runs": task_rows(layers),
        "regions": [
            {"name": region.name, "address": region.address, "size": int(region.data.size)}
            for region in stream.regions
        ],
        "dram": asdict(dram or DramConfig()),
        "peak": RK3588.macs_int8,
        "cores": 1,
        "geometry": RK3588.name,
        "cell": device.cell,
    }


def _reports(stream: Stream) -> Sequence[TaskReport]:
    """Return the golden model's task reports; if it cannot run the stream, those before the fault."""
    golden = GoldenNpu(stream.core + 1, strict=False, kept=None)
    stream.load_into(golden.memory)
    with suppress(GoldenError):
        run_kick(golden, stream.kick, stream.core, writes=stream.writes)
    return golden.task_log()


def _task_layer(number: int, report: TaskReport | None, measure: TaskMeasure | None) -> LayerReport:
    read, written = (measure.bytes_read, measure.bytes_written) if measure else (0, 0)
    if report and not measure:
        read, written = report.bytes_read, report.bytes_written
    npu, dpu = 0, report.registers.get("DPU") if report else None
    if report:
        with suppress(KeyError):  # a register that was never written: there is no bound
            npu = formula.formula_npu(report.registers)
    return LayerReport(
        f"task {number}",
        report.kind if report else "task",
        "npu",
        1,
        measure.cycles if measure else None,
        report.macs if report else 0,
        read,
        written,
        npu,
        (),
        (),
        measure.mac_busy if measure else None,
        measures=(measure,) if measure else (),
        rates=(octet_rate(dpu) if dpu else OctetRate(),) if measure else (),
    )


def _task_row(layer: LayerReport, report: TaskReport | None, dram: DramConfig | None) -> LayerRow:
    row = layer_row(layer, dram)
    row.peak = _peak_of_task(layer, report)
    row.utilisation = round(layer.macs / (layer.cycles * row.peak), 4) if layer.cycles and row.peak else None
    return row


def _peak_of_task(layer: LayerReport, report: TaskReport | None) -> int:
    """Return the largest number of MACs per cycle for the type in the task's registers."""
    if not layer.macs or report is None:
        return 0
    if layer.op == "depthwise":
        return formula.DEPTHWISE_GROUP
    register = registers()["CNA"]["CONV_CON1"]
    precision = register.decode(report.registers.get("CNA", {}).get("CONV_CON1", 0))["IN_PRECISION"]
    kernels, channels = formula.GROUPS.get(precision, formula.GROUPS[0])
    return kernels * channels
