"""Conversion of the tasks of a `.rknn` file to the compiler's form, with all registers, for reports.

Command lists of the vendor's compiler are incremental: since the registers have two groups that alternate, a
list writes only the differences from the second task before. Here each task has all settings that its blocks
use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rkcosim.compiler.programs.task import Ref, Setting, Settings, Task
from rkcosim.golden.task.registers import View
from rkcosim.golden.task.shapes import DpuCube
from rkcosim.regcmd.machine import HOST, Machine
from rkcosim.regcmd.program import ListedTask
from rkcosim.regcmd.word import blocks_of_mask
from rkcosim.rknn_file.container import RknnFile, TaskRecord
from rkcosim.rknn_file.tables import RknnFileError
from rkcosim.spec.regs import Register, registers
from rkcosim.spec.types import ATOM, CONV_CODES, DEPTHWISE, DEPTHWISE_GROUP, STRIPE

Values = Mapping[str, Mapping[str, int]]
"""Block to register to 32-bit value."""


class Replay:
    """Register files of a core while its lists are executed in order.

    Parameters
    ----------
    file
        The file.
    refs
        Place of each of its tensors, by index.
    core
        Index of the core.
    """

    def __init__(self, file: RknnFile, refs: Mapping[int, Ref], core: int) -> None:
        self._file, self._refs = file, refs
        self._machine = Machine()
        self._machine.arm(core)
        self._first: dict[int, int] = {}

    def settings(self, number: int, record: TaskRecord) -> Settings:
        """Return all settings that a task's blocks use: those of earlier tasks, then its own in order."""
        self._first[number] = record.first
        listed = ListedTask(tuple(int(word) for word in self._file.words_of(record)))
        starts = self._machine.task(number, listed)
        own = [
            self._setting(command.register, command.value, record.first + command.index)
            for command in listed.commands
            if command.kind == "register" and command.register is not None
            if command.register.block != "PC"
        ]
        inherited = [
            self._setting(registers()[block][name], value, self._first[origin.task] + origin.word)
            for start in starts
            for block, view in start.views.items()
            for name, value, origin in view.items()
            if origin.task not in (number, HOST)
        ]
        return Settings([*inherited, *own])

    def _setting(self, register: Register, value: int, index: int) -> Setting:
        fields: Mapping[str, Any] = _fields(register.block, register.name, value)
        if (target := self._file.relocations.get(index)) is not None:
            if target.tensor not in self._refs:
                name = self._file.tensors[target.tensor].name
                raise RknnFileError(
                    f"damaged .rknn file: {register.path} points to '{name}', which has no memory"
                )
            widest = max(register.fields, key=lambda n: register.fields[n].width)
            fields = {**fields, widest: self._refs[target.tensor] + target.offset}
        return Setting(register.block, register.name, fields)


@lru_cache(1 << 14)
def _fields(block: str, register: str, value: int) -> Mapping[str, int]:
    return registers()[block][register].decode(value)


def values_of(settings: Settings) -> dict[str, dict[str, int]]:
    """Return register values by block and name; addresses are offsets within their regions."""
    bases = {"regcmd": 0, "weights": 0, "activations": 0}
    found: dict[str, dict[str, int]] = {}
    for item in settings:
        found.setdefault(item.block, {})[item.register] = item.word_value(bases)
    return found


def field_of(values: Values, block: str, register: str, name: str) -> int:
    """Return a field of a register; 0 if the register was never written."""
    return registers()[block][register].decode(values.get(block, {}).get(register, 0))[name]


@dataclass(frozen=True)
class Work:
    """Work of a task according to its registers.

    Members
    -------
    macs : multiply-accumulates, including those of padded channels.
    reads, writes : bytes of operands and results.
    formula_npu : cycles by the vendor's formula [HW 12.6].
    """

    macs: int = 0
    reads: int = 0
    writes: int = 0
    formula_npu: int = 0


def work_of(values: Values, blocks: Sequence[str]) -> Work:
    """Return the work of a task; operands and results count once, commands do not count."""

    def get(block: str, register: str, name: str) -> int:
        return field_of(values, block, register, name)

    reads = writes = macs = formula = 0
    if "CNA" in blocks:
        depthwise = get("CNA", "CONV_CON1", "CONV_MODE") == DEPTHWISE
        kind = CONV_CODES.get(get("CNA", "CONV_CON1", "IN_PRECISION"))
        group, tile = (kind.kernels, kind.channels) if kind else (32, 32)
        channels = get("CNA", "DATA_SIZE1", "DATAIN_CHANNEL")
        kernels = channels if depthwise else get("CNA", "WEIGHT_SIZE2", "WEIGHT_KERNELS")
        taps = get("CNA", "WEIGHT_SIZE2", "WEIGHT_HEIGHT") * get("CNA", "WEIGHT_SIZE2", "WEIGHT_WIDTH")
        pixels = get("CNA", "DATA_SIZE3", "DATAOUT_ATOMICS")
        bits = kind.bits if kind else 8
        real = get("CNA", "DATA_SIZE1", "DATAIN_CHANNEL_REAL") + 1
        macs = pixels * kernels * taps * (1 if depthwise else real)
        width = get("CNA", "DATA_SIZE0", "DATAIN_WIDTH")
        reads = width * get("CNA", "DATA_SIZE0", "DATAIN_HEIGHT") * channels * bits // 8
        reads += get("CNA", "WEIGHT_SIZE0", "WEIGHT_BYTES")
        stripes = -(-pixels // STRIPE) * STRIPE
        if depthwise:
            formula = stripes * -(-kernels // DEPTHWISE_GROUP) * taps
        else:
            formula = stripes * -(-kernels // group) * max(taps * -(-channels // tile), group // 8)
    if "DPU" in blocks:
        size = get("DPU", "DATA_CUBE_WIDTH", "WIDTH") + 1
        size *= get("DPU", "DATA_CUBE_HEIGHT", "HEIGHT") + 1
        size *= get("DPU", "DATA_CUBE_CHANNEL", "CHANNEL") + 1
        writes = size * (2 if get("DPU", "DATA_FORMAT", "OUT_PRECISION") == 2 else 1)
        reads = reads or writes
    if "PPU" in blocks:
        size = get("PPU", "DATA_CUBE_OUT_WIDTH", "DATA_CUBE_OUT_WIDTH") + 1
        size *= get("PPU", "DATA_CUBE_OUT_HEIGHT", "DATA_CUBE_OUT_HEIGHT") + 1
        size *= get("PPU", "DATA_CUBE_OUT_CHANNEL", "DATA_CUBE_OUT_CHANNEL") + 1
        writes = size * (2 if get("PPU", "DATA_FORMAT", "PROC_PRECISION") == 2 else 1)
    return Work(macs, reads, writes, formula)


def written_bytes(settings: Settings) -> int:
    """Return how many bytes a DPU task spans from its DST_BASE_ADDR on [HW 7.11]; 0 for packets."""
    values = values_of(settings).get("DPU", {})
    cube = DpuCube(View("DPU", {registers()["DPU"][name].offset: value for name, value in values.items()}))
    surfaces = cube.written_surfaces
    if cube.packets or not cube.output & 2 or not surfaces:
        return 0
    return ATOM * max(max(surfaces) + (cube.height - 1) * cube.line + cube.width, 0)


def file_task(layer: int, note: str, record: TaskRecord, settings: Settings, core: int) -> Task:
    """Return a task of a plan in the compiler's form."""
    blocks = tuple(blocks_of_mask(record.enable_mask))
    work = work_of(values_of(settings), blocks)
    return Task(layer, note, blocks, settings, work.macs, work.reads, work.writes, work.formula_npu, core)
