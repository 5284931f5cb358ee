"""Functional coverage of the tasks that a core ran, in the database of cocotb-coverage.

coverage = Coverage(npu)
...
coverage.save("coverage.xml")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles
from cocotb_coverage.coverage import CoverCross, CoverPoint, coverage_db, coverage_section

from rkcosim.cocotb.agent import NpuAgent
from rkcosim.cocotb.monitors import CommandMonitor, Event
from rkcosim.cocotb.pins import EVENT_BITS, event_samples
from rkcosim.regcmd import blocks_of_mask
from rkcosim.spec.regs import registers

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
CROSSES = {
    "conv": (("in_precision", "conv_mode"), ("in_precision", "kernel"), ("kernel", "stride")),
    "dpu": (("in_precision", "out_precision"), ("bs", "bn", "ew")),
    "ppu": (("proc_precision", "pooling_method"), ("kernel", "stride")),
}
"""Points that are crossed, by group."""

_BUSY_AFTER = 2
"""Cycles from the start of a task on its event to all of its blocks on `busy_blocks`."""


@dataclass
class Task:
    """A task at its start: its blocks, and the values of their registers by path.

    `changed` contains the fields ("BLOCK.REGISTER.FIELD") that were written with a non-zero value since the
    task before.
    """

    blocks: tuple[str, ...]
    values: dict[str, int] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()

    def fields(self, block: str, register: str) -> dict[str, int]:
        """Return the values of a register's fields by name; those of its reset if nothing was written."""
        item = registers()[block][register]
        return item.decode(self.values.get(item.path, item.reset))


class Coverage:
    """Samples every task that a core starts.

    Parameters
    ----------
    agent : agent of the core.
    name : first part of the names in cocotb-coverage's `coverage_db`, which all coverages of a simulation
        with that name share.
    commands : an existing monitor to use.

    Members
    -------
    tasks : number of tasks sampled.
    """

    def __init__(self, agent: NpuAgent, name: str = "npu", commands: CommandMonitor | None = None) -> None:
        self.agent, self.name, self.tasks = agent, name, 0
        self._values: dict[str, int] = {}
        self._changed: set[str] = set()
        self._count = coverage_section(*_items(name))(_counted)
        (commands or CommandMonitor(agent)).subscribe(self._written)
        cocotb.start_soon(self._watch())

    def _written(self, event: Event) -> None:
        register = registers().at(event.address)
        if register is not None:
            self._values[register.path] = event.value
            self._changed.update(f"{register.path}.{name}" for name, value in event.fields.items() if value)

    async def _watch(self) -> None:
        dut = self.agent.dut
        async for value in event_samples(dut):
            if value & EVENT_BITS["task_start"]:
                values, changed = dict(self._values), frozenset(self._changed)
                self._changed.clear()
                await ClockCycles(dut.clk, _BUSY_AFTER)
                self.sample(Task(tuple(blocks_of_mask(int(dut.busy_blocks.value))), values, changed))

    def sample(self, task: Task) -> None:
        """Count one task."""
        self.tasks += 1
        self._count(task)

    def text(self) -> str:
        """Return a line for each point and cross."""
        lines = [
            f"{item.coverage:5} of {item.size:5}  {name}"
            for name, item in sorted(coverage_db.items())
            if name.startswith(f"{self.name}.") and isinstance(item, (CoverPoint, CoverCross))
        ]
        return "\n".join([f"{self.tasks} tasks", *lines])

    def save(self, path: str | Path) -> Path:
        """Write the coverage database as .xml or .yml.

        Several files are merged by cocotb_coverage's `merge_coverage`.

        Raises
        ------
        ValueError
            for another suffix.
        """
        path = Path(path)
        if path.suffix not in (".xml", ".yml", ".yaml"):
            raise ValueError(f"coverage is written as .xml or .yml, not {path.suffix or path.name!r}")
        path.parent.mkdir(parents=True, exist_ok=True)
        export = coverage_db.export_to_xml if path.suffix == ".xml" else coverage_db.export_to_yaml
        export(filename=str(path))
        return path


def _counted(task: Task) -> None:
    """Only sampled; does nothing."""


_Point = tuple[str, str, str, Callable[[dict[str, int]], str | None], Sequence[str]]
"""Name, block, register, function from field values to the bin, all bins."""


def _label(block: str, register: str, name: str) -> _Point:
    item = registers()[block][register].fields[name]
    return name.lower(), block, register, lambda fields: item.label(fields[name]), list(item.enum or {})


def _stage(name: str) -> _Point:
    register, bypass = f"{name.upper()}_CFG", f"{name.upper()}_BYPASS"
    return name, "DPU", register, lambda fields: "off" if fields[bypass] else "on", ("on", "off")


def _kernel(block: str, register: str, rows: str, columns: str, plus: int = 0) -> _Point:
    def size(fields: dict[str, int]) -> str:
        text = f"{fields[rows] + plus}x{fields[columns] + plus}"
        return text if text in KERNELS else "other"

    return "kernel", block, register, size, KERNELS


def _stride(block: str, register: str, rows: str, columns: str, plus: int = 0) -> _Point:
    def step(fields: dict[str, int]) -> str:
        if fields[rows] != fields[columns]:
            return "differing"
        return STRIDES[min(max(fields[rows] + plus, 1), 3) - 1]

    return "stride", block, register, step, STRIDES


def _groups() -> dict[str, list[_Point]]:
    return {
        "conv": [
            _label("CNA", "CONV_CON1", "IN_PRECISION"),
            _label("CNA", "CONV_CON1", "CONV_MODE"),
            _kernel("CNA", "WEIGHT_SIZE2", "WEIGHT_HEIGHT", "WEIGHT_WIDTH"),
            _stride("CNA", "CONV_CON3", "CONV_Y_STRIDE", "CONV_X_STRIDE"),
        ],
        "dpu": [
            _label("DPU", "DATA_FORMAT", "IN_PRECISION"),
            _label("DPU", "DATA_FORMAT", "OUT_PRECISION"),
            _label("DPU", "FEATURE_MODE_CFG", "FLYING_MODE"),
            _label("DPU", "FEATURE_MODE_CFG", "OUTPUT_MODE"),
            *map(_stage, ("bs", "bn", "ew")),
        ],
        "ppu": [
            _label("PPU", "DATA_FORMAT", "PROC_PRECISION"),
            _label("PPU", "OPERATION_MODE_CFG", "POOLING_METHOD"),
            _kernel("PPU", "POOLING_KERNEL_CFG", "KERNEL_HEIGHT", "KERNEL_WIDTH", 1),
            _stride("PPU", "POOLING_KERNEL_CFG", "KERNEL_STRIDE_HEIGHT", "KERNEL_STRIDE_WIDTH", 1),
        ],
    }


def _items(name: str) -> list[Any]:
    """Return all points and crosses; those of a name that are already in the database are reused."""

    def point(group: str, of: _Point) -> CoverPoint:
        one, block, register, text, bins = of

        def chosen(task: Task) -> str | None:  # None is not a bin: the block does not take part in the task
            return text(task.fields(block, register)) if block in task.blocks else None

        return CoverPoint(f"{name}.{group}.{one}", xf=chosen, bins=list(bins))

    items: list[Any] = [
        CoverPoint(f"{name}.blocks", xf=lambda task: "+".join(task.blocks), bins=[*BLOCK_SETS])
    ]
    for group, points in _groups().items():
        items += [point(group, of) for of in points]
        for crossed in CROSSES[group]:  # a cross uses what its points have just counted
            parts = [f"{name}.{group}.{one}" for one in crossed]
            items.append(CoverCross(f"{name}.{group}.{'_x_'.join(crossed)}", items=parts))
    settable = [
        f"{register.path}.{field}"
        for block in registers()
        for register in block
        if register.shadowed
        for field in register.fields
    ]
    in_task = {"xf": lambda task: task.changed, "rel": lambda changed, one: one in changed, "inj": False}
    return [*items, CoverPoint(f"{name}.fields_set", bins=settable, **in_task)]
