"""Faults of boards whose cause is not known, injected so that drivers and libraries can be tried.

RTL and golden model do not have them: they come from a state of the silicon that no register shows. Each is
a question on docs/board.md with the program that would settle it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rkcosim.golden.task.registers import View
from rkcosim.regcmd.machine import Machine
from rkcosim.regcmd.program import program_of_chain
from rkcosim.regcmd.tasks import FETCH_BYTES
from rkcosim.regcmd.word import WORD_BYTES, words_from_bytes
from rkcosim.spec.regs import registers
from rkcosim.spec.types import bits_of

DENSE, INT32 = "h1_dense_after_depthwise", "h2_fp16_after_int32"

FAULTS = {
    DENSE: "a dense convolution at once behind a depthwise one of its core writes only 16 channels",
    INT32: "a large fp16 convolution that follows an int8 one with int32 output on its core never ends",
}
"""Faults by name.

Both were measured by the author of boydjohnson/iree-rocket with the mainline driver. The first is
intermittent on the board and a pause of 1 ms cures it (iree-rocket-hal/tests/dpu_mode_multicore_hw.rs
@66485fd); here it happens each time. The second stays until the core's power domain has been off: 30 ms of
pause were not enough, 150 ms were (c8_precision_transition_hw.rs @10f5129).
"""

QUIET = {DENSE: 0.01, INT32: 0.1}
"""Seconds between two kicks of a core after which the fault does not happen.

They are seconds of the host, as device time does not pass while a program sleeps; the first is ten times the
board's, because a simulated kick ends later for its program.
"""

CLEAN_BYTES = 128 << 10
"""Largest output of an fp16 convolution that ended on a poisoned core; one of 139 KiB did not."""

CHANNELS = 16
"""Channels of the dense result that are written."""

_FP16, _INT8, _INT32, _DEPTHWISE, _ATOM = 2, 0, 4, 3, 16


@dataclass
class _Core:
    """What the last kick left, and what the present one must not change."""

    left: str = ""
    ended: float = 0.0
    leaves: str = ""
    kept: tuple[tuple[int, bytes], ...] = ()


class FaultyDevice:
    """A device with faults; everything else is passed on to the device behind it.

    A kick is looked at when it starts, by the command lists in memory. What a kick leaves counts for the next
    one of its core, and a reset of the core clears it.

    Parameters
    ----------
    device : a device of the driver's protocol.
    faults : names of `FAULTS`.
    clock : seconds of the host.

    Members
    -------
    happened : (core, name) of each time that a fault was injected.

    Raises
    ------
    ValueError
        For a name that does not exist.
    """

    def __init__(
        self, device: Any, faults: Iterable[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.faults = frozenset(faults)
        if unknown := sorted(self.faults - set(FAULTS)):
            raise ValueError(f"there is no fault '{unknown[0]}'; the faults are {', '.join(FAULTS)}")
        self._device, self._clock = device, clock
        self._pc: list[dict[int, int]] = [{} for _ in range(device.cores)]
        self._cores = [_Core() for _ in range(device.cores)]
        self.happened: list[tuple[int, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def write32(self, core: int, offset: int, value: int) -> None:
        """See the device's method; the start of a kick that a fault stops is not passed on."""
        enable = registers()["PC"]["OPERATION_ENABLE"]
        register = registers().at(offset)
        if register is not None and register.block == "PC" and offset != enable.offset:
            self._pc[core][offset] = value
        if offset == enable.offset and enable.decode(value)["OP_EN"] and self._stops(core):
            return
        self._device.write32(core, offset, value)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """See the device's method; a kick that has ended leaves its traces."""
        raised: int = self._device.run_until_irq(core_mask, max_cycles)
        for number, core in enumerate(self._cores):
            if raised >> number & 1:
                for address, data in core.kept:
                    self._device.memory.write(address, np.frombuffer(data, np.uint8))
                self._cores[number] = _Core(core.leaves or core.left, self._clock())
        return raised

    def reset(self, core_mask: int) -> None:
        """See the device's method."""
        for core in range(self._device.cores):
            if core_mask >> core & 1:
                self._cores[core], self._pc[core] = _Core(), {}
        self._device.reset(core_mask)

    def _stops(self, number: int) -> bool:
        """Look at a kick that starts; returns whether it never ends."""
        core = self._cores[number]
        if core.left and self._clock() - core.ended >= QUIET[core.left]:
            core.left = ""
        views = self._tasks(number)
        core.leaves, core.kept = "", ()
        for view in views:
            if core.left == INT32 and _is_fp16(view) and _output_bytes(view) > CLEAN_BYTES:
                self.happened.append((number, INT32))
                return True
            if core.left == DENSE and not _is_depthwise(view):
                self.happened.append((number, DENSE))
                core.kept += tuple((at, bytes(self._device.memory.read(at, n))) for at, n in _past(view))
            core.leaves = self._leaves(view) or core.leaves
        if views and core.left == DENSE:
            core.left = ""
        return False

    def _leaves(self, view: View) -> str:
        if INT32 in self.faults and view("DATA_FORMAT", "IN_PRECISION") == _INT8:
            if view("DATA_FORMAT", "OUT_PRECISION") == _INT32:
                return INT32
        return DENSE if DENSE in self.faults and _is_depthwise(view) else ""

    def _tasks(self, core: int) -> list[View]:
        """The DPU's registers of each convolution of the kick, as its own lists have them."""
        pc = registers()["PC"]

        def field(register: str, name: str) -> int:
            described = pc[register]
            return int(described.decode(self._pc[core].get(described.offset, described.reset))[name])

        base = field("BASE_ADDRESS", "PC_SOURCE_ADDR") * FETCH_BYTES

        def fetch(address: int, count: int) -> list[int]:
            try:
                return words_from_bytes(bytes(self._device.memory.read(address, count * WORD_BYTES)))
            except Exception:  # a list outside of memory: the device says so
                return []

        amount = field("REGISTER_AMOUNTS", "PC_DATA_AMOUNT")
        program = program_of_chain("kick", fetch, base, amount, field("TASK_CON", "TASK_NUMBER"))
        machine = Machine()
        machine.arm(core)
        starts = [start for index, task in enumerate(program.tasks) for start in machine.task(index, task)]
        return [start.views["DPU"] for start in starts if {"CORE", "DPU"} <= set(start.blocks)]


def _is_depthwise(view: View) -> bool:
    return view("FEATURE_MODE_CFG", "CONV_MODE") == _DEPTHWISE


def _is_fp16(view: View) -> bool:
    return view("DATA_FORMAT", "OUT_PRECISION") == _FP16


def _shape(view: View) -> tuple[int, int, int]:
    """Width and height of the output, and its surfaces."""
    lanes = 128 // bits_of(view("DATA_FORMAT", "OUT_PRECISION"))
    channels = view("DATA_CUBE_CHANNEL", "CHANNEL") + 1
    width, height = view("DATA_CUBE_WIDTH", "WIDTH") + 1, view("DATA_CUBE_HEIGHT", "HEIGHT") + 1
    return width, height, -(-channels // lanes)


def _output_bytes(view: View) -> int:
    width, height, surfaces = _shape(view)
    return width * height * surfaces * _ATOM


def _past(view: View) -> list[tuple[int, int]]:
    """Address and bytes of each line of the surfaces past the first 16 channels [HW 7.11.2]."""
    width, height, surfaces = _shape(view)
    first = CHANNELS * bits_of(view("DATA_FORMAT", "OUT_PRECISION")) // 128
    each = view("BS_OW_CFG", "SIZE_E_1") + 1
    lines = width + view("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0")
    base = view.raw("DST_BASE_ADDR")
    places = []
    for surface in range(first, surfaces):
        group, place = divmod(surface, each)
        atoms = group * view("SURFACE_ADD", "SURF_ADD") + place * view("DST_SURF_STRIDE", "DST_SURF_STRIDE")
        places += [(base + _ATOM * (atoms + y * lines), _ATOM * width) for y in range(height)]
    return places
