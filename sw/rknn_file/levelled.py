"""Sizes that vendor-compiled lists say twice and in two forms, in the one form that the hardware compares.

The DPU ignores WIDTH_WDMA and HEIGHT_WDMA of a task without packets, but it compares them with its cube
[HW 7.11]. Transpositions of the vendor's compiler have a line there where the cube has a column of as many
pixels (nsbb/rknn_VT, BCResNet-t2-simplified.rknn): both name the same consecutive atoms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rkcosim.golden.task.registers import View
from rkcosim.golden.task.shapes import DpuCube
from rkcosim.regcmd.machine import HOST, Machine
from rkcosim.regcmd.program import ListedTask
from rkcosim.rknn_file.container import RknnFile
from rkcosim.spec.regs import registers

_SIZES = "WDMA_SIZE_1"
_VALUE_AT = 16
"""First bit of the value in a command word."""


def level(file: RknnFile, parts: Sequence[Sequence[int]]) -> tuple[RknnFile, list[str]]:
    """Return a file whose tasks have WDMA sizes in the form of their cubes, and a note if there are such.

    A word that a task with packets uses as well, or several tasks with different cubes, stays as it is.

    Parameters
    ----------
    file
        The file.
    parts
        Indices of the records of each core of a plan, in their order.
    """
    wanted: dict[int, set[int]] = {}
    for core, part in enumerate(parts):
        machine, firsts = Machine(), dict[int, int]()
        machine.arm(core)
        for number in part:
            record = file.records[number]
            firsts[number] = record.first
            listed = ListedTask(tuple(int(word) for word in file.words_of(record)))
            for start in machine.task(number, listed):
                if "DPU" not in start.views:
                    continue
                values, origin = dict[int, int](), None
                for name, value, source in start.views["DPU"].items():
                    values[registers()["DPU"][name].offset] = value
                    if name == _SIZES and source.task != HOST:
                        origin = firsts[source.task] + source.word
                if origin is not None:
                    wanted.setdefault(origin, set()).add(_said(View("DPU", values)))
    words, changed = file.words.copy(), 0
    for index, found in wanted.items():
        held = int(words[index]) >> _VALUE_AT & 0xFFFF_FFFF
        if len(found) == 1 and (value := found.pop()) != held:
            changed += 1
            words[index] = int(words[index]) & ~(0xFFFF_FFFF << _VALUE_AT) | value << _VALUE_AT
    if not changed:
        return file, []
    note = (
        f"WDMA_SIZE_1 has the form of the DPU's cube in {changed} lists, which said as many pixels otherwise"
    )
    return replace(file, words=np.asarray(words, np.uint64)), [note]


def _said(dpu: View) -> int:
    """Return WDMA_SIZE_1 in the form of the cube; as it is if the two are not the same atoms."""
    cube, value = DpuCube(dpu), dpu.raw(_SIZES)
    width, height = dpu(_SIZES, "WIDTH_WDMA") + 1, dpu(_SIZES, "HEIGHT_WDMA") + 1
    same = width * height == cube.width * cube.height and cube.line == cube.width
    if cube.packets or not cube.flying or cube.copies or not same:
        return value
    return registers()["DPU"][_SIZES].update(value, WIDTH_WDMA=cube.width - 1, HEIGHT_WDMA=cube.height - 1)
