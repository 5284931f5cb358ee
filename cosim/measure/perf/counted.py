"""Performance counters of a model's run, as data and as a section of docs/results/performance.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rkcosim.engines.block_counters import BlockCounters
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import require
from rkcosim.engines.settings import changed
from rkcosim.measure.models.draw import random_inputs
from rkcosim.measure.models.rows import layer_row
from rkcosim.measure.perf.attribution import CAUSES, add
from rkcosim.measure.perf.page import table
from rkcosim.running.session import Session
from rkcosim.spec.regs.counters import BUSY, IDLE

SCHEMA_VERSION = 1
"""Version of the JSON form of `CountedRun`."""


@dataclass(frozen=True)
class CountedRun:
    """Counters of one or more inferences.

    Members
    -------
    model, engine, cell : the model, and the engine it ran on.
    inferences : number of inferences.
    cycles : cycles of all inferences, from the first task to the last.
    macs : multiply-accumulates of the layers that the NPU computes, in all inferences.
    cores : counters of each core, from the first cycle of the first inference to the end of the last one.
    dram : timing of the memory.
    causes : cycles of all layers by cause (`rkcosim.measure.perf.attribution`), of each core that ran them.
    """

    model: str
    engine: str
    cell: str
    inferences: int
    cycles: int
    macs: int
    cores: list[BlockCounters]
    dram: DramConfig = field(default_factory=DramConfig)
    causes: dict[str, int] = field(default_factory=dict)

    @property
    def causes_line(self) -> str:
        """The causes in one line, the largest first; empty without any."""
        every = sum(self.causes.values())
        ranked = sorted(CAUSES, key=lambda cause: -self.causes.get(cause, 0))
        words = [f"{c.label} {self.causes[c] / every:.1%}" for c in ranked if self.causes.get(c)]
        return f"causes of the layers' cycles: {', '.join(words)}" if words else ""

    def as_json(self) -> dict[str, Any]:
        """Return a form for `json.dump`; `unaccounted` is empty if the states add up to the cycles."""
        plain = {name: getattr(self, name) for name in ("model", "engine", "cell", "inferences", "cycles")}
        cores = [core.as_dict() | {"unaccounted": core.unaccounted()} for core in self.cores]
        memory = {"dram": asdict(self.dram), "dram_changed": changed(self.dram)}
        own = {"macs": self.macs, "cores": cores, "causes": self.causes}
        return {"schema_version": SCHEMA_VERSION, **plain, **memory, **own}


def count_model(
    model: str | Path,
    batch: Sequence[Sequence[npt.NDArray[Any]]] | None = None,
    *,
    engine: str | None = None,
    exact: bool = False,
    cores: int = 1,
    dram: DramConfig | None = None,
    seed: int = 0,
) -> CountedRun:
    """Run a model with performance counters.

    Parameters
    ----------
    model : path of the model.
    batch : for each inference one real-valued array per input; None: one inference on random values.
    engine, exact, cores, dram : as for `rkcosim.running.session.Session`.
    seed : seed of the random inputs.

    Raises
    ------
    ValueError
        If the engine has no performance counters.
    RunError, EngineError
    """
    require(engine, "has_counters", "`rkcosim counters`")
    with Session(model, engine=engine, exact=exact, cores=cores, dram=dram) as session:
        device = session.device
        inputs = batch if batch is not None else [random_inputs(session, seed)]
        device.count_blocks()
        cycles = macs = 0
        causes: dict[str, int] = {}
        for values in inputs:
            session.infer(values)
            report = session.report
            cycles += report.cycles
            macs += sum(layer.macs for layer in report.layers if layer.target != "host")
            rows = [layer_row(layer, device.dram) for layer in report.layers]
            causes = add(causes, *(row.spent for row in rows))
        device.count_blocks(False)
        device.run(2)
        found = [device.block_counters(core) for core in range(session.cores)]
        names = session.path.name, device.name, device.cell
        return CountedRun(*names, len(inputs), cycles, macs, found, device.dram, causes)


def shares(found: BlockCounters) -> Iterator[tuple[str, float, float, list[tuple[str, float]]]]:
    """Yield (block, idle, busy, waits) as shares of the counted cycles; the largest wait is first."""
    for block, states in found.states.items():
        parts = {state: count / max(found.cycles, 1) for state, count in states.items()}
        idle, busy = parts.pop(IDLE.lower()), parts.pop(BUSY.lower())
        waits = sorted((item for item in parts.items() if item[1]), key=lambda item: -item[1])
        yield block, idle, busy, waits


def markdown(run: CountedRun) -> str:
    """Return the section `counters` of docs/results/performance.md."""
    lines = [
        f"`rkcosim counters {run.model}`: {run.inferences} inference{'s' * (run.inferences != 1)}, "
        f"{run.cycles:,} cycles.",
    ]
    lines += ["", f"{run.causes_line[0].upper()}{run.causes_line[1:]}."] if run.causes_line else []
    for number, core in enumerate(run.cores):
        used = core.macs["useful"] / core.macs["busy"] if core.macs["busy"] else 0.0
        rows = []
        for block, idle, busy, waits in shares(core):
            text = ", ".join(f"{state} {share:.1%}" for state, share in waits) or "-"
            rows.append((block, f"{idle:.1%}", f"{busy:.1%}", text))
        lines += [
            "",
            f"Core {number}: {core.cycles:,} cycles counted, {core.tasks['done']:,} tasks in "
            f"{core.tasks['cycles']:,} cycles; MACs useful {core.macs['useful']:,}, "
            f"{used:.1%} of the array's capacity in its busy cycles.",
            "",
            *table(("block", "idle", "busy", "waits"), rows),
        ]
        moved = {c: n for c, n in core.bytes.items() if n and c not in ("reads", "writes")}
        marks = {name: most for name, most in core.levels.items() if most}
        lines += [
            "",
            "Bytes: " + ", ".join(f"{client} {n:,}" for client, n in moved.items()) + ".",
            "High-water marks: " + ", ".join(f"{name} {most:,}" for name, most in marks.items()) + ".",
        ]
    return "\n".join(lines)
