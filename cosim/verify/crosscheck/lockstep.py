"""Lockstep: a kick on RTL and golden model, stopped at the first difference inside a core.

The probed engine (`open_engine(probed=True)`) records every atom written into CBUF and every octet of CORE;
the golden model shows what they must be. A wrong operand is therefore found in the cycle in which it enters
CBUF, and a wrong sum in the cycle in which CORE delivers it, long before the output is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.driver.core_port import Kick
from rkcosim.golden.task import GoldenNpu, Memory
from rkcosim.spec.regs import registers
from rkcosim.spec.types import ATOM
from rkcosim.verify.crosscheck.compare import compare_images, copy_memory
from rkcosim.verify.crosscheck.kick import run_kick, start

FEATURE, WEIGHT, OCTET = range(3)
"""`kind` of a probe event (cosim/engines/harness/pins.h)."""

ACC_BYTES = 6
"""Bits of an accumulator as CORE delivers it."""
CHUNK = 2000
"""Cycles between two reads of the probes."""


@dataclass(frozen=True)
class Divergence:
    """The first difference.

    Members
    -------
    cycle : cycle of the engine; 0 for a difference that is only visible in memory at the end.
    task : number of the task in its kick; -1 if it is unknown.
    place : what differs.
    rtl, golden : the values, as text.
    """

    cycle: int
    task: int
    place: str
    rtl: str
    golden: str

    def __str__(self) -> str:
        return f"cycle {self.cycle}, task {self.task}: {self.place}: RTL {self.rtl}, golden {self.golden}"


@dataclass
class LockstepResult:
    """End of a lockstep run: what was compared, and the first difference if there is one."""

    cycles: int = 0
    atoms: int = 0
    octets: int = 0
    divergence: Divergence | None = None


@dataclass
class _Task:
    """A convolution in the golden model."""

    number: int
    images: dict[str, dict[int, tuple[NDArray[np.uint8], NDArray[np.bool_]]]] = field(default_factory=dict)
    """Kind -> entry -> (64 bytes, which of them belong to an operand)."""
    acc: list[NDArray[np.uint64]] = field(default_factory=list)
    sum: list[NDArray[np.uint32]] = field(default_factory=list)


class _Recorder:
    """Observer of the golden model."""

    def __init__(self) -> None:
        self.tasks: list[_Task] = []

    def cbuf(
        self,
        task: int,
        kind: str,
        numbers: NDArray[np.int64],
        entries: NDArray[np.uint8],
        held: NDArray[np.bool_],
    ) -> None:
        if not self.tasks or kind in self.tasks[-1].images:
            self.tasks.append(_Task(task))
        image = zip(numbers.tolist(), entries, held, strict=True)
        self.tasks[-1].images[kind] = {number: (data, mask) for number, data, mask in image}

    def core(self, task: int, octet: int, acc: NDArray[np.uint64], sum: NDArray[np.uint32]) -> None:
        self.tasks[-1].acc.append(acc)
        self.tasks[-1].sum.append(sum)


class _Comparison:
    """Compares probe events with the recorded tasks, in the order of the events."""

    def __init__(self, tasks: list[_Task], result: LockstepResult) -> None:
        self.tasks, self.result = tasks, result
        self.at, self.octet = 0, 0
        self.weights: dict[int, tuple[int, NDArray[np.uint8]]] = {}
        """Place -> (cycle, atom): the last one written there in this task."""

    def take(self, events: Iterable[Any]) -> Divergence | None:
        """Return the first difference among some events."""
        for event in events:
            data = np.frombuffer(bytes(event.data), np.uint8)
            if self.at >= len(self.tasks):
                return Divergence(event.cycle, -1, "activity after the last convolution", "some", "none")
            if event.kind == OCTET:
                found = self._core(event.cycle, data)
            else:
                found = self._fill(event.kind, event.cycle, list(event.place), data)
            if found is not None:
                return found
        return None

    def end(self, cycle: int) -> Divergence | None:
        """Return what is missing after the kick has ended."""
        if self.at == len(self.tasks):
            return None
        task = self.tasks[self.at]
        return Divergence(cycle, task.number, "octets of CORE", f"{self.octet}", f"{len(task.acc)}")

    def _fill(self, kind: int, cycle: int, places: list[int], data: NDArray[np.uint8]) -> Divergence | None:
        for number, place in enumerate(places):
            if place < 0:
                continue
            atom = data[ATOM * number : ATOM * (number + 1)]
            self.result.atoms += 1
            if kind == WEIGHT:  # a ring: earlier weights may be overwritten later on
                self.weights[place] = (cycle, atom)
            elif (found := self._atom("feature", cycle, place, atom)) is not None:
                return found
        return None

    def _atom(self, kind: str, cycle: int, place: int, atom: NDArray[np.uint8]) -> Divergence | None:
        task = self.tasks[self.at]
        entry, column = divmod(place, 4)
        name = f"CBUF {kind} entry {entry}"
        if entry not in task.images[kind]:  # filler after the operand
            return None
        image, held = task.images[kind][entry]
        part = slice(ATOM * column, ATOM * (column + 1))
        wrong = np.flatnonzero((image[part] != atom) & held[part])
        if not wrong.size:
            return None
        byte = int(wrong[0])
        where = f"{name}, byte {ATOM * column + byte}"
        return Divergence(cycle, task.number, where, f"{atom[byte]:#04x}", f"{image[part][byte]:#04x}")

    def _weights_wrong(self) -> Divergence | None:
        found = [self._atom("weight", cycle, place, atom) for place, (cycle, atom) in self.weights.items()]
        return min((d for d in found if d is not None), key=lambda d: d.cycle, default=None)

    def _core(self, cycle: int, data: NDArray[np.uint8]) -> Divergence | None:
        task = self.tasks[self.at]
        self.result.octets += 1
        acc = np.zeros((8, 8), np.uint8)
        acc[:, :ACC_BYTES] = data[: 8 * ACC_BYTES].reshape(8, ACC_BYTES)
        for name, rtl, golden in (
            ("accumulator", acc.view("<u8")[:, 0], task.acc[self.octet]),
            ("window sum", data[8 * ACC_BYTES :].view("<u4"), task.sum[self.octet]),
        ):
            wrong = np.flatnonzero(rtl != golden)
            if wrong.size:
                lane = int(wrong[0])
                here = Divergence(
                    cycle,
                    task.number,
                    f"CORE octet {self.octet}, lane {lane}, {name}",
                    f"{rtl[lane]:#010x}",
                    f"{golden[lane]:#010x}",
                )
                operand = self._weights_wrong()
                return operand if operand is not None and operand.cycle < cycle else here
        self.octet += 1
        if self.octet == len(task.acc):
            found = self._weights_wrong()
            self.at, self.octet, self.weights = self.at + 1, 0, {}
            return found
        return None


def lockstep(
    engine: Any,
    kick: Kick,
    core: int = 0,
    max_cycles: int = 5_000_000,
    memory: Memory | None = None,
    writes: Sequence[tuple[int, int]] = (),
) -> LockstepResult:
    """Run a kick on a probed engine and on the golden model, up to the first difference inside.

    Parameters
    ----------
    engine : opened with `probed=True`, its memory prepared for the kick; it is reset first, so that both
        sides start with the same registers.
    kick, core : what to run, and on which core.
    max_cycles : bound of the run.
    memory : memory of the golden model; a copy of the engine's by default.
    writes : (offset, value) that the host writes before the start.

    Returns
    -------
    The result; after a divergence the engine is reset.
    """
    image = copy_memory(engine.memory) if memory is None else memory
    golden = GoldenNpu(core + 1, strict=False, memory=image, options=engine.options)
    recorder = _Recorder()
    golden.devices[core].observer = recorder
    golden_ends = run_kick(golden, kick, core, writes=writes).done
    result = LockstepResult()
    comparison = _Comparison(recorder.tasks, result)
    seen = len(engine.probes())
    engine.reset(1 << core)
    begin = start(engine, kick, core, writes)
    ended = False
    while not ended and result.divergence is None and engine.cycle - begin < max_cycles:
        ended = bool(engine.run_until_irq(1 << core, min(CHUNK, max_cycles)))
        events = engine.probes(seen)
        seen += len(events)
        result.divergence = comparison.take(event for event in events if event.core == core)
    result.cycles = engine.cycle - begin
    while ended and result.divergence is None:  # an interrupt may come before the last block ends
        engine.run(CHUNK)
        events = engine.probes(seen)
        if not events:
            break
        seen += len(events)
        result.divergence = comparison.take(event for event in events if event.core == core)
    if result.divergence is None and ended != golden_ends:
        said = "ends", "hangs"
        result.divergence = Divergence(result.cycles, -1, "the kick", said[not ended], said[not golden_ends])
    if result.divergence is None and ended:
        result.divergence = comparison.end(engine.cycle) or _memory(engine, golden)
        clear = registers()["PC"]["INTERRUPT_CLEAR"]
        engine.write32(core, clear.offset, clear.mask)
    if result.divergence is not None or not ended:
        engine.reset(1 << core)
    return result


def _memory(engine: Any, golden: GoldenNpu) -> Divergence | None:
    first = compare_images(engine.memory, golden.memory, list(engine.memory.ranges.items()))
    if first is None:
        return None
    return Divergence(0, -1, f"memory at {first.address:#010x}", f"{first.rtl:#04x}", f"{first.golden:#04x}")
