"""Register groups and pointers of every block, and named access to the active group [HW 1.7]."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rkcosim.golden.task.arith import signed
from rkcosim.golden.task.errors import GoldenError
from rkcosim.spec.regs import Field, Register, registers

UNDECODED = range(0x2000, 0x3000)
"""Offsets whose reads return an error response [HW 1.3.1]."""

SHADOWED_BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")


class View:
    """Field values of one block's register group, as the hardware sees them during a task.

    Parameters
    ----------
    block
        Name in the register description, e.g. ``"CNA"``.
    values
        Offset in the core -> 32-bit value; missing registers have their reset value.
    """

    def __init__(self, block: str, values: dict[int, int]) -> None:
        self.block = block
        self.values = values
        self._registers = registers()[block].registers
        self._decoded: dict[str, dict[str, int]] = {}

    def raw(self, register: str) -> int:
        """Return a whole register, 32 bits."""
        r = self._registers[register]
        return self.values.get(r.offset, r.reset)

    def bits(self, register: str) -> int:
        """Return a whole register with only the bits that belong to a field."""
        return self.raw(register) & self._registers[register].mask

    def __call__(self, register: str, name: str | None = None) -> int:
        """Return a field (by default the one with the name of its register), unsigned."""
        fields = self._decoded.get(register)
        if fields is None:
            fields = self._registers[register].decode(self.raw(register))
            self._decoded[register] = fields
        width = self._registers[register].fields[name or register].width
        return int(fields[name or register]) % (1 << width)

    def signed(self, register: str, name: str | None = None) -> int:
        """Return a field as a two's complement number of its width."""
        return signed(self(register, name), self._registers[register].fields[name or register].width)

    def fields(self, register: str) -> Mapping[str, Field]:
        """Return the fields of a register by name."""
        return self._registers[register].fields

    def changed(self, fields: Mapping[tuple[str, str], int]) -> View:
        """Return a view with other values of some (register, field)s."""
        values = dict(self.values)
        for (name, field_name), value in fields.items():
            r = self._registers[name]
            decoded = r.decode(values.get(r.offset, r.reset))
            values[r.offset] = r.encode(**{**decoded, field_name: value})
        return View(self.block, values)

    def text(self) -> dict[str, int]:
        """Return register name -> value of everything that was written."""
        names = {r.offset: name for name, r in self._registers.items()}
        return {names.get(offset, f"{offset:#06x}"): value for offset, value in sorted(self.values.items())}


@dataclass
class BlockState:
    """The two register groups of one block with their pointers [HW 1.7]."""

    name: str
    groups: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))
    enabled: list[bool] = field(default_factory=lambda: [False, False])
    pointer: int = 0
    executer: int = 0
    control: int = 0
    """Last value written to S_POINTER."""

    def copied(self) -> BlockState:
        """Return an independent copy."""
        first, second = self.groups
        twin = copy.copy(self)
        twin.groups, twin.enabled = (dict(first), dict(second)), list(self.enabled)
        return twin

    def _flag(self, name: str) -> int:
        return int(registers()[self.name]["S_POINTER"].decode(self.control)[name])

    def write_pointer(self, value: int) -> None:
        """Write S_POINTER: clear bits act immediately; POINTER is ignored while POINTER_PP_EN is set."""
        self.control = value
        if self._flag("EXECUTER_PP_CLEAR"):
            self.executer = 0
        if self._flag("POINTER_PP_CLEAR"):
            self.pointer = 0
        elif not self._flag("POINTER_PP_EN"):
            self.pointer = self._flag("POINTER")

    def read_pointer(self) -> int:
        """Read S_POINTER: the written control bits with the current pointers."""
        r = registers()[self.name]["S_POINTER"]
        fields = r.decode(self.control)
        fields.update(POINTER=self.pointer, EXECUTER=self.executer)
        fields.update(POINTER_PP_CLEAR=0, EXECUTER_PP_CLEAR=0)
        return r.encode(**fields)

    def core_index(self) -> int:
        """Core index in bits [29:28] of S_POINTER (CNA and CORE)."""
        return self._flag("CORE_INDEX")

    def enable(self) -> None:
        """Op-enable: the written group becomes pending and the pointer advances."""
        self.enabled[self.pointer] = True
        if self._flag("POINTER_PP_EN"):
            self.pointer = 1 - self.pointer if self._flag("POINTER_PP_MODE") else 1 - self.executer

    def ready(self) -> bool:
        """Whether the group that runs next is enabled."""
        return self.enabled[self.executer]

    def status(self, fits: bool) -> dict[str, int]:
        """Return the fields of S_STATUS [HW 1.8].

        Parameters
        ----------
        fits
            Whether the block may start: CNA and CORE stay idle while the core index is another one.
        """
        operating = fits and self.ready()
        waiting = self.enabled[1 - self.executer]
        states: dict[str, int] = {}
        if operating:
            states[f"STATUS_{self.executer}"] = 2 if waiting else 1
        return states

    def finish(self) -> int:
        """End of the block's task: return the group that ran and select the next one."""
        group = self.executer
        self.enabled[group] = False
        if self._flag("EXECUTER_PP_EN"):
            self.executer = 1 - group
        return group

    def view(self) -> View:
        """Return the active register group."""
        return View(self.name, self.groups[self.executer])


class AccessWindow(Protocol):
    """Registers that access a memory."""

    def holds(self, offset: int) -> bool:
        """Whether an offset in the core is one of these registers."""

    def write(self, offset: int, value: int) -> None:
        """Write one of the registers."""

    def read(self, offset: int) -> int:
        """Read one of the registers."""


class RegisterSpace:
    """All registers of one core by offset; writes to registers with groups go to the group under the pointer.

    Parameters
    ----------
    diagnose
        Called as `diagnose(code, block, register, value, message)` for suspicious accesses.
    tables
        The access registers of the LUT.
    """

    def __init__(self, diagnose: Callable[[str, str, str, int, str], None], tables: AccessWindow) -> None:
        self._map = registers()
        self._diagnose, self._tables = diagnose, tables
        self.blocks = {name: BlockState(name) for name in SHADOWED_BLOCKS}
        self.plain: dict[int, int] = {}

    def find(self, offset: int) -> Register | None:
        """Return the register at an offset, or None."""
        return self._map.at(offset)

    def value(self, block: str, register: str) -> int:
        """Return a register without groups."""
        r = self._map[block][register]
        return self.plain.get(r.offset, r.reset)

    def write(self, offset: int, value: int) -> None:
        """Write one register; for a register with groups, that of the group under the pointer."""
        r = self.find(offset)
        if r is None:
            self._diagnose("UNKNOWN_WRITE", "", f"{offset:#06x}", value, "write to an unknown register")
            return
        state = self.blocks.get(r.block)
        if self._tables.holds(offset):
            self._tables.write(offset, value)
        elif state is None:
            self.plain[offset] = value
            if r.path == "PC.TASK_DMA_BASE_ADDR" and r.decode(value)["DMA_BASE_ADDR"] % 2:
                message = "not a multiple of 32 bytes"
                self._diagnose("UNALIGNED_ADDRESS", r.block, r.name, value, message)
        elif r.name == "S_POINTER":
            state.write_pointer(value)
        elif r.name == "S_STATUS":
            pass
        elif r.shadowed:
            state.groups[state.pointer][offset] = value
        else:
            self.plain[offset] = value

    def read(self, offset: int) -> int:
        """Read one register (with groups: that of the group under the pointer); unknown ones are 0.

        Raises
        ------
        GoldenError
            In the window in which no address is decoded.
        """
        r = self.find(offset)
        if r is None:
            if offset in UNDECODED:
                name, message = f"{offset:#06x}", "the read ends in an error response"
                self._diagnose("UNDECODED_ACCESS", "", name, 0, message)
                raise GoldenError(message, register=name, value=0, code="UNDECODED_ACCESS")
            return 0
        if self._tables.holds(offset):
            return self._tables.read(offset)
        state = self.blocks.get(r.block)
        if state is None or not (r.shadowed or r.name == "S_POINTER"):
            return self.plain.get(offset, r.reset) & r.mask
        if r.name == "S_POINTER":
            return state.read_pointer()
        return state.groups[state.pointer].get(offset, r.reset) & r.mask
