"""What a run says of each layer, task and buffer: the rows of `cosim.models.run.ModelRun`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cosim.engines.library import DramConfig
from cosim.perf import formula
from cosim.perf.spent import add, spent
from rtl.config import RK3588
from sw.compiler.programs.task import Ref


@dataclass
class LayerRow:
    """One layer of the report: cycles and bytes of one inference, `formula_*` of DESIGN 4.5.

    The members from `core_cycles` on are there where an engine measured the tasks.
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
    """Cycles of its tasks, added up; more than `cycles` where several cores shared the layer."""
    spent: dict[str, int] = field(default_factory=dict)
    """What `core_cycles` went on, by part (`cosim.perf.spent.PARTS`); the parts add up to them."""
    counters: dict[str, int] = field(default_factory=dict)
    """The engine's counters in cycles (`cosim.engines.EVENT_NAMES`); these may overlap."""
    read_by: dict[str, int] = field(default_factory=dict)
    """Bytes by AXI client; PC's are the command words, which `bytes_read` leaves out."""
    written_by: dict[str, int] = field(default_factory=dict)
    cores: list[int] = field(default_factory=list)
    """Cores that ran it."""
    peak: int = 0
    """MACs that one core's array does a cycle at most in a layer of this kind and type."""
    input_shape: list[int] = field(default_factory=list)
    output_shape: list[int] = field(default_factory=list)
    host_seconds: float = 0.0

    @property
    def bound(self) -> str:
        """What bounds it: array, DRAM, latency or element rate (neither formula comes near), the host."""
        if self.target == "host":
            return "host"
        if self.cycles is not None and self.cycles > 2 * self.formula_cycles:
            return "latency" if self.formula_npu else "element rate"
        return "array" if self.formula_npu >= self.formula_ddr else "DRAM"

    def as_json(self) -> dict[str, Any]:
        """All members and `bound`."""
        return {**asdict(self), "bound": self.bound}

    def flat(self) -> dict[str, Any]:
        """Members for a table of plain columns: those with parts become `member.part`, lists text."""
        columns: dict[str, Any] = {}
        for name, value in self.as_json().items():
            if isinstance(value, dict):
                columns |= {f"{name}.{part}": count for part, count in value.items()}
            else:
                columns[name] = "x".join(map(str, value)) if isinstance(value, list) else value
        return columns


def layer_row(layer: Any, dram: DramConfig | None = None) -> LayerRow:
    """The row of a `sw.compiler.LayerReport`; `dram` is the memory that it ran with, None the default."""
    moved = layer.bytes_read + layer.bytes_written
    ddr = formula.ddr(layer.bytes_read, layer.bytes_written, dram) if moved else 0
    busy = getattr(layer, "mac_busy", None)
    cycles = layer.cycles
    measures = getattr(layer, "measures", ())
    row = LayerRow(
        layer.name,
        layer.op,
        layer.target,
        layer.tasks,
        cycles,
        layer.macs,
        round(layer.macs * layer.itemsize / (cycles * RK3588.macs_int8), 4) if cycles else None,
        round(busy / cycles, 4) if cycles and busy is not None else None,
        layer.bytes_read,
        layer.bytes_written,
        layer.formula_npu,
        ddr,
        max(ddr, layer.formula_npu),
        peak=_peak(layer),
        input_shape=[int(n) for n in layer.input_shape],
        output_shape=[int(n) for n in layer.output_shape],
        host_seconds=round(layer.host_seconds, 6),
    )
    if measures:
        row.core_cycles = sum(m.cycles for m in measures)
        row.spent = add(*(spent(m.events, m.cycles) for m in measures))
        row.counters = add(*(m.events for m in measures))
        row.read_by = add(*(m.read_by for m in measures))
        row.written_by = add(*(m.written_by for m in measures))
        row.cores = sorted({m.core for m in measures})
    return row


def _peak(layer: Any) -> int:
    if not layer.macs:
        return 0
    depthwise = layer.op.startswith("Depthwise")
    return formula.DEPTHWISE_GROUP if depthwise else RK3588.macs_int8 // layer.itemsize


def task_rows(layers: Sequence[Any]) -> list[dict[str, Any]]:
    """When and where each task of one inference ran, oldest first; empty where nothing was measured.

    `layer` is the index of its layer, `start` counts from the start of the first task.
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
    """Where everything lies in device memory, and the layers that need it.

    Parameters
    ----------
    loaded
        `sw.compiler.LoadedModel`.

    Returns
    -------
    Per buffer its `name`, `kind` ("input", "output", "tensor", "constant", "weights" or "commands"),
    `address`, `size` in bytes, `first` and `last` layer in which its contents are needed, and `used`, the
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
    for name, place in plan.places.items():  # kept as the plan does: inputs and outputs to the end
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
    """Kernels and tables of each layer, which lie together; constants have places of their own."""
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
