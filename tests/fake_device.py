"""A device without hardware: it answers the driver's protocol and ends tasks after some cycles."""

from __future__ import annotations

import numpy as np

from rkcosim.regcmd import ListedTask, program_of_chain, words_from_bytes
from rkcosim.spec.regs import registers

PAGE = 4096


class FakeMemory:
    """Mapped ranges as separate arrays; an access outside of them is an error."""

    def __init__(self) -> None:
        self.ranges: dict[int, np.ndarray] = {}

    def map(self, iova: int, size: int) -> None:
        assert iova % PAGE == 0 and size % PAGE == 0 and size > 0
        for start, data in self.ranges.items():
            assert iova + size <= start or start + data.size <= iova, "overlap"
        self.ranges[iova] = np.zeros(size, np.uint8)

    def unmap(self, iova: int) -> None:
        del self.ranges[iova]

    def view(self, iova: int, n: int) -> np.ndarray:
        for start, data in self.ranges.items():
            if start <= iova and iova + n <= start + data.size:
                return data[iova - start : iova - start + n]
        raise AssertionError(f"0x{iova:X} is not mapped")

    def read(self, iova: int, n: int) -> bytes:
        return self.view(iova, n).tobytes()

    def write(self, iova: int, data: bytes) -> None:
        self.view(iova, len(data))[:] = np.frombuffer(data, np.uint8)


class FakeCore:
    """Registers of one core by offset, and the running kick."""

    def __init__(self) -> None:
        self.registers = {r.offset: r.reset for block in registers() for r in block}
        self.raw = 0
        self.end: int | None = None
        self.walked: list[ListedTask] = []


class FakeDevice:
    """Three cores that need `cycles_per_task` cycles for each task.

    Members
    -------
    writes
        every register write: (core, "BLOCK.REGISTER", value).
    hang
        cores that never end, with the number of tasks after which they hang.
    spurious
        cores that first raise a wrong interrupt once.
    raw_errors
        raw bits that a core sets with its next completion.
    kicks
        (core, list of task addresses) of each kick.
    """

    def __init__(self, cores: int = 3, cycles_per_task: int = 100) -> None:
        self.cores = cores
        self.cycle = 0
        self.memory = FakeMemory()
        self.cycles_per_task = cycles_per_task
        self.writes: list[tuple[int, str, int]] = []
        self.hang: dict[int, int] = {}
        self.spurious: set[int] = set()
        self.raw_errors: dict[int, int] = {}
        self.kicks: list[tuple[int, list[int]]] = []
        self.resets: list[int] = []
        self._cores = [FakeCore() for _ in range(cores)]

    def read32(self, core: int, offset: int) -> int:
        self.cycle += 4
        register = registers().at(offset)
        assert register is not None and register.readable, hex(offset)
        unit = self._cores[core]
        pc = registers()["PC"]
        if register is pc["INTERRUPT_RAW_STATUS"]:
            return unit.raw
        if register is pc["INTERRUPT_STATUS"]:
            return unit.raw & unit.registers[pc["INTERRUPT_MASK"].offset]
        return unit.registers[offset]

    def write32(self, core: int, offset: int, value: int) -> None:
        self.cycle += 4
        register = registers().at(offset)
        assert register is not None and register.writable, hex(offset)
        self.writes.append((core, register.path, value))
        unit = self._cores[core]
        pc = registers()["PC"]
        unit.registers[offset] = value
        if register is pc["INTERRUPT_CLEAR"]:
            unit.raw &= ~value
        if register is pc["OPERATION_ENABLE"] and register.decode(value)["OP_EN"]:
            self._kick(core, unit)

    def _kick(self, core: int, unit: FakeCore) -> None:
        pc = registers()["PC"]

        def fields(name: str) -> dict[str, int]:
            return pc[name].decode(unit.registers[pc[name].offset])

        base = fields("BASE_ADDRESS")
        if base["PC_SEL"]:
            return
        count = fields("TASK_CON")["TASK_NUMBER"]
        chain = program_of_chain(
            "kick",
            lambda address, n: words_from_bytes(self.memory.read(address, 8 * n)),
            base["PC_SOURCE_ADDR"] * 16,
            fields("REGISTER_AMOUNTS")["PC_DATA_AMOUNT"],
            count,
        )
        assert not chain.stopped, f"the chain is shorter than TASK_NUMBER: {chain.stopped}"
        unit.walked = chain.tasks
        self.kicks.append((core, [task.address for task in unit.walked if task.address is not None]))
        unit.end = self.cycle + self.cycles_per_task * count
        if core in self.hang:
            unit.end = None
            unit.registers[pc["TASK_STATUS"].offset] = self.hang[core]
            status = registers()["DPU"]["S_STATUS"]
            unit.registers[status.offset] = status.encode(STATUS_1="OPERATING")

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        bound = self.cycle + max_cycles
        ends = [u.end for n, u in enumerate(self._cores) if core_mask & (1 << n) and u.end is not None]
        if not ends or min(ends) > bound:
            self.cycle = bound
            return 0
        self.cycle = max(self.cycle, min(ends))
        raised = 0
        pc = registers()["PC"]
        for number, unit in enumerate(self._cores):
            if unit.end is None or unit.end > self.cycle or not core_mask & (1 << number):
                continue
            raised |= 1 << number
            if number in self.spurious:
                self.spurious.discard(number)
                unit.raw |= 1
                unit.end = self.cycle + 50
                continue
            unit.end = None
            mask = unit.registers[pc["INTERRUPT_MASK"].offset]
            unit.raw |= mask & -mask  # one group of the pair, as the hardware does
            unit.raw |= self.raw_errors.pop(number, 0)
            unit.registers[pc["TASK_STATUS"].offset] = len(unit.walked)
            self.finish(number, unit)
        return raised

    def finish(self, core: int, unit: FakeCore) -> None:
        """Called when a kick ends; tests override it to produce results."""

    def reset(self, core_mask: int) -> None:
        self.resets.append(core_mask)
        for number in range(self.cores):
            if core_mask & (1 << number):
                self._cores[number] = FakeCore()

    def block_state(self, core: int) -> str:
        return f"DPU of core {core} waits for the write response"
