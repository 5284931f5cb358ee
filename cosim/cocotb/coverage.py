"""Functional coverage of the tasks that a core ran, with cocotb-coverage.

coverage = Coverage(npu)
...
coverage.save("coverage.xml")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from cosim.cocotb.agent import NpuAgent, event_samples
from cosim.cocotb.monitors import CommandMonitor, Event
from cosim.engines.soc import EVENT_NAMES
from rtl.regs import registers
from sw.regcmd import blocks_of_mask

BLOCK_SETS = (
    "CNA+CORE+DPU",
    "CNA+CORE+DPU+DPU_RDMA",
    "CNA+CORE+DPU+PPU",
    "CNA+CORE+DPU+DPU_RDMA+PPU",
    "DPU+DPU_RDMA",
    "DPU+DPU_RDMA+PPU",
    "PPU+PPU_RDMA",
)
"""Blocks that a task can start together."""

KERNELS = ("1x1", "1x3", "3x1", "2x2", "3x3", "5x5", "7x7", "other")
STRIDES = ("1", "2", "3 and more", "differing")
_BUSY_AFTER = 2
"""Cycles from the start of a task on its event to all of its blocks on `busy_blocks`."""

Point = tuple[str, Callable[["Task"], Any], tuple[Any, ...]]
"""Name, what is sampled (None: nothing), bins."""


@dataclass
class Task:
    """A task as it was started: its blocks, and the values of their registers.

    `changed` has the fields ("BLOCK.REGISTER.FIELD") that were written with something else than 0
    since the task before.
    """

    blocks: tuple[str, ...]
    values: dict[str, int] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()

    def get(self, block: str, register: str, name: str) -> int | None:
        """A field's value, None where the block is not of the task."""
        if block not in self.blocks:
            return None
        item = registers()[block][register]
        return item.decode(self.values.get(item.path, item.reset))[name]

    def label(self, block: str, register: str, name: str) -> str | None:
        """The name of a field's value."""
        value = self.get(block, register, name)
        return None if value is None else registers()[block][register].fields[name].label(value)


class Coverage:
    """Samples every task that a core starts.

    Parameters
    ----------
    agent
        of the core.
    name
        first part of the names in the coverage database, which all coverages of a simulation with
        that name share.
    commands
        a monitor that is there already.

    Members
    -------
    tasks : number of tasks sampled.
    """

    def __init__(self, agent: NpuAgent, name: str = "npu", commands: CommandMonitor | None = None) -> None:
        self.agent, self.name, self.tasks = agent, name, 0
        self._values: dict[str, int] = {}
        self._changed: set[str] = set()
        self._sample = _sampler(name)
        commands = commands or CommandMonitor(agent)
        commands.subscribe(self._written)
        cocotb.start_soon(self._watch())

    def _written(self, event: Event) -> None:
        register = registers().at(event.address)
        if register is not None:
            self._values[register.path] = event.value
            self._changed.update(f"{register.path}.{name}" for name, value in event.fields.items() if value)

    async def _watch(self) -> None:
        start = 1 << EVENT_NAMES.index("task_start")
        async for value in event_samples(self.agent.dut):
            if value & start:
                values, changed = dict(self._values), frozenset(self._changed)
                self._changed.clear()
                for _ in range(_BUSY_AFTER):
                    await RisingEdge(self.agent.dut.clk)
                blocks = blocks_of_mask(int(self.agent.dut.busy_blocks.value))
                self.sample(Task(tuple(blocks), values, changed))

    def sample(self, task: Task) -> None:
        """Count one task."""
        self.tasks += 1
        self._sample(task)

    def items(self) -> dict[str, tuple[int, int]]:
        """Covered bins and all bins of every point and cross, by name."""
        from cocotb_coverage.coverage import coverage_db

        mine = {name: item for name, item in coverage_db.items() if name.startswith(f"{self.name}.")}
        return {name: (item.coverage, item.size) for name, item in mine.items() if hasattr(item, "_hits")}

    def hits(self, item: str) -> dict[Any, int]:
        """Hits by bin of one point or cross, by its name without the first part."""
        from cocotb_coverage.coverage import coverage_db

        return dict(coverage_db[f"{self.name}.{item}"].detailed_coverage)

    def text(self) -> str:
        """A line for each point and cross."""
        lines = [f"{covered:5} of {size:5}  {name}" for name, (covered, size) in sorted(self.items().items())]
        return "\n".join([f"{self.tasks} tasks", *lines])

    def save(self, path: str | Path) -> Path:
        """Write the coverage database as .xml or .yml (several are merged by cocotb_coverage's
        `merge_coverage`).

        Raises
        ------
        ValueError
            for another suffix.
        """
        from cocotb_coverage.coverage import coverage_db

        path = Path(path)
        if path.suffix not in (".xml", ".yml", ".yaml"):
            raise ValueError(f"coverage is written as .xml or .yml, not {path.suffix or path.name!r}")
        path.parent.mkdir(parents=True, exist_ok=True)
        export = coverage_db.export_to_xml if path.suffix == ".xml" else coverage_db.export_to_yaml
        export(filename=str(path))
        return path


def _labels(block: str, register: str, name: str) -> Point:
    item = registers()[block][register].fields[name]
    bins = tuple(label for label in (item.enum or {}))
    return name.lower(), lambda task: task.label(block, register, name), bins


def _bit(name: str, block: str, register: str, bypass: str) -> Point:
    def on(task: Task) -> str | None:
        value = task.get(block, register, bypass)
        return None if value is None else ("off" if value else "on")

    return name, on, ("on", "off")


def _kernel(block: str, register: str, rows: str, columns: str, plus: int) -> Point:
    def size(task: Task) -> str | None:
        height, width = task.get(block, register, rows), task.get(block, register, columns)
        if height is None or width is None:
            return None
        text = f"{height + plus}x{width + plus}"
        return text if text in KERNELS else "other"

    return "kernel", size, KERNELS


def _stride(block: str, register: str, rows: str, columns: str, plus: int) -> Point:
    def stride(task: Task) -> str | None:
        down, across = task.get(block, register, rows), task.get(block, register, columns)
        if down is None or across is None:
            return None
        if down != across:
            return "differing"
        step = max(down + plus, 1)
        return str(step) if step < 3 else "3 and more"

    return "stride", stride, STRIDES


def _points() -> dict[str, list[Point]]:
    conv = [
        _labels("CNA", "CONV_CON1", "IN_PRECISION"),
        _labels("CNA", "CONV_CON1", "CONV_MODE"),
        _kernel("CNA", "WEIGHT_SIZE2", "WEIGHT_HEIGHT", "WEIGHT_WIDTH", 0),
        _stride("CNA", "CONV_CON3", "CONV_Y_STRIDE", "CONV_X_STRIDE", 0),
    ]
    dpu = [
        _labels("DPU", "DATA_FORMAT", "IN_PRECISION"),
        _labels("DPU", "DATA_FORMAT", "OUT_PRECISION"),
        _labels("DPU", "FEATURE_MODE_CFG", "FLYING_MODE"),
        _labels("DPU", "FEATURE_MODE_CFG", "OUTPUT_MODE"),
        _bit("bs", "DPU", "BS_CFG", "BS_BYPASS"),
        _bit("bn", "DPU", "BN_CFG", "BN_BYPASS"),
        _bit("ew", "DPU", "EW_CFG", "EW_BYPASS"),
    ]
    ppu = [
        _labels("PPU", "DATA_FORMAT", "PROC_PRECISION"),
        _labels("PPU", "OPERATION_MODE_CFG", "POOLING_METHOD"),
        _kernel("PPU", "POOLING_KERNEL_CFG", "KERNEL_HEIGHT", "KERNEL_WIDTH", 1),
        _stride("PPU", "POOLING_KERNEL_CFG", "KERNEL_STRIDE_HEIGHT", "KERNEL_STRIDE_WIDTH", 1),
    ]
    return {"conv": conv, "dpu": dpu, "ppu": ppu}


CROSSES = {
    "conv": (("in_precision", "conv_mode"), ("in_precision", "kernel"), ("kernel", "stride")),
    "dpu": (("in_precision", "out_precision"), ("bs", "bn", "ew")),
    "ppu": (("proc_precision", "pooling_method"), ("kernel", "stride")),
}
"""Points that are crossed, by group."""


def field_names() -> list[str]:
    """Every field that a task can set, `BLOCK.REGISTER.FIELD`."""
    return [
        f"{register.path}.{name}"
        for block in registers().blocks.values()
        for register in block
        if register.shadowed
        for name in register.fields
    ]


_SAMPLERS: dict[str, Callable[[Task], None]] = {}


def _sampler(name: str) -> Callable[[Task], None]:
    """The function that counts a task; made once, since the database is one for a simulation."""
    if name in _SAMPLERS:
        return _SAMPLERS[name]
    from cocotb_coverage.coverage import CoverCross, CoverPoint

    items: list[Any] = [CoverPoint(f"{name}.blocks", xf=_blocks, bins=list(BLOCK_SETS))]
    for group, points in _points().items():
        items += [CoverPoint(f"{name}.{group}.{p}", xf=xf, bins=list(bins)) for p, xf, bins in points]
        for crossed in CROSSES[group]:
            parts = [f"{name}.{group}.{point}" for point in crossed]
            items.append(CoverCross(f"{name}.{group}.{'_x_'.join(crossed)}", items=parts))
    items.append(
        CoverPoint(
            f"{name}.fields_set",
            xf=lambda task: task.changed,
            rel=lambda changed, one: one in changed,
            bins=field_names(),
            inj=False,
        )
    )
    _SAMPLERS[name] = _decorated(items)
    return _SAMPLERS[name]


def _blocks(task: Task) -> str:
    return "+".join(task.blocks)


def _decorated(items: Iterable[Any]) -> Callable[[Task], None]:
    def count(task: Task) -> None:
        """Do nothing besides being sampled."""

    sample: Callable[[Task], None] = count
    for item in reversed(list(items)):  # a cross looks at what its points have just counted
        sample = item(sample)
    return sample
