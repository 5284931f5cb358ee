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
NOT_STARTED, BURST = "job_not_started", "job_not_started_in_a_burst"
LOST, LATE, PAGE = "interrupt_lost", "interrupt_late", "page_fault"

FAULTS = {
    DENSE: "a dense convolution at once behind a depthwise one of its core writes only 16 channels",
    INT32: "a large fp16 convolution that follows an int8 one with int32 output on its core never ends",
    NOT_STARTED: "a job is accepted, its task counter stays 0 and no interrupt comes",
    BURST: "the same, only for a job that starts within 0.9 ms of the one before it on its core",
    LOST: "a job ends and its results are in memory, but no interrupt comes",
    LATE: "the interrupt of a job comes 1 ms late",
    PAGE: "a job's command list is not mapped for the NPU",
}
"""Faults by name.

Both were measured by the author of boydjohnson/iree-rocket with the mainline driver. The first is
intermittent on the board and a pause of 1 ms cures it (iree-rocket-hal/tests/dpu_mode_multicore_hw.rs
@66485fd); here it happens each time. The second stays until the core's power domain has been off: 30 ms of
pause were not enough, 150 ms were (c8_precision_transition_hw.rs @10f5129).

The two of jobs that do not start are those of oRKLLM/ork-driver, DOORBELL_STALL_WIP.md @32c9158: 86 of 1,069
jobs of a language model, all among the first three after the driver had switched the IOMMU domain (46 % of
those, none of 371 later ones), and all 0.24 to 0.9 ms after the previous job of their core, which its author
holds for a symptom, as enforced pauses did not cure it. The counter stays 0, no interrupt and no page fault
comes, and SUBMIT ends with ETIMEDOUT; a soft reset and a second SUBMIT succeed. No board lost an interrupt in
these measurements, so `interrupt_lost` and `interrupt_late` are assumed: they are what the recovery of a
driver is written for. A page fault is what a wrong address gives; the list's fetch then ends with the error
bit of the read DMA, which the vendor's driver ignores.
"""

EACH = (NOT_STARTED, BURST, LOST, LATE, PAGE)
"""Faults that happen to each n-th kick that they can happen to."""

LATE_CYCLES = 1_000_000
"""Cycles after which a late interrupt comes: 1 ms at 1 GHz."""

BURST_SECONDS = 0.009
"""Seconds of the host between two starts of a core that count as a burst: ten times the board's 0.9 ms."""

UNMAPPED = 0
"""Address of the list after a page fault; nothing is ever mapped there."""

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
    lost: bool = False
    late: bool = False
    due: int | None = None
    """Cycle in which a late interrupt comes."""


class FaultyDevice:
    """A device with faults; everything else is passed on to the device behind it.

    A kick is looked at when it starts, by the command lists in memory. What a kick leaves counts for the next
    one of its core, and a reset of the core clears it.

    Parameters
    ----------
    device : a device of the driver's protocol.
    faults : names of `FAULTS`.
    clock : seconds of the host.
    each : the faults of `EACH` happen to the kicks `each`, 2 * `each` and so on of all that they can happen
        to.

    Members
    -------
    happened : (core, name) of each time that a fault was injected.

    Raises
    ------
    ValueError
        For a name that does not exist, or an interval below 1.
    """

    def __init__(
        self,
        device: Any,
        faults: Iterable[str],
        clock: Callable[[], float] = time.monotonic,
        each: int = 2,
    ) -> None:
        self._faults = frozenset(faults)
        if unknown := sorted(self._faults - set(FAULTS)):
            raise ValueError(f"there is no fault '{unknown[0]}'; the faults are {', '.join(FAULTS)}")
        if each < 1:
            raise ValueError(f"a fault happens to each n-th job, n at least 1, not {each}")
        self._device, self._clock, self._each = device, clock, each
        self._counts = dict.fromkeys(EACH, 0)
        self._starts: list[float | None] = [None] * device.cores
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
        raised = self._run(core_mask, max_cycles)
        for number, core in enumerate(self._cores):
            if raised >> number & 1:
                for address, data in core.kept:
                    self._device.memory.write(address, np.frombuffer(data, np.uint8))
                self._cores[number] = _Core(core.leaves or core.left, self._clock())
        return raised

    def _run(self, core_mask: int, max_cycles: int) -> int:
        """Run without the lines of cores whose interrupt is lost or not due yet."""
        end = self._device.cycle + max_cycles
        while True:
            ready = 0
            for number, core in enumerate(self._cores):
                if (
                    core_mask >> number & 1
                    and not core.lost
                    and (core.due is None or self._device.cycle >= core.due)
                ):
                    ready |= 1 << number
            dues = [core.due for core in self._cores if core.due is not None]
            limit = min([end, *(due for due in dues if due > self._device.cycle)])
            before = self._device.cycle
            raised: int = self._device.run_until_irq(ready, max(0, limit - before))
            early = 0
            for number, core in enumerate(self._cores):
                if raised >> number & 1 and core.late:
                    core.late, core.due, early = False, self._device.cycle + LATE_CYCLES, early | 1 << number
                elif raised >> number & 1:
                    core.due = None
            stands = self._device.cycle == before and not early
            if raised & ~early or self._device.cycle >= end or stands:
                return raised & ~early

    def reset(self, core_mask: int) -> None:
        """See the device's method."""
        for core in range(self._device.cores):
            if core_mask >> core & 1:
                self._cores[core], self._pc[core] = _Core(), {}
        self._device.reset(core_mask)

    def _stops(self, number: int) -> bool:
        """Look at a kick that starts; returns whether it never ends."""
        core, now = self._cores[number], self._clock()
        core.lost, core.late, core.due = self._happens(number, LOST), self._happens(number, LATE), None
        last, self._starts[number] = self._starts[number], now
        burst = last is not None and now - last < BURST_SECONDS
        if self._happens(number, NOT_STARTED) or (burst and self._happens(number, BURST)):
            return True
        if self._happens(number, PAGE):
            base = registers()["PC"]["BASE_ADDRESS"].offset
            self._device.write32(number, base, UNMAPPED)
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

    def _happens(self, core: int, name: str) -> bool:
        """Count a kick that a fault can happen to; returns whether it does."""
        if name not in self._faults:
            return False
        self._counts[name] += 1
        if self._counts[name] % self._each:
            return False
        self.happened.append((core, name))
        return True

    def _leaves(self, view: View) -> str:
        if INT32 in self._faults and view("DATA_FORMAT", "IN_PRECISION") == _INT8:
            if view("DATA_FORMAT", "OUT_PRECISION") == _INT32:
                return INT32
        return DENSE if DENSE in self._faults and _is_depthwise(view) else ""

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
