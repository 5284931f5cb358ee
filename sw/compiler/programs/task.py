"""Register programs before their addresses are known: settings, references, tasks.

A task is a list of settings in the order of real programs [HW 14.4] and a list of blocks.  An
address field may hold a `Ref`, an offset in one of the plan's memory regions.  `Setting.word_value` adds the
region's base address, and `Plan.builders` makes command words with `rkcosim.regcmd.TaskBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rkcosim.spec.layouts import ATOM_BYTES
from rkcosim.spec.octets import REGISTERS, OctetRate, octet_rate
from rkcosim.spec.regs import registers

Region = Literal["regcmd", "weights", "activations"]
REGIONS: tuple[Region, ...] = ("regcmd", "weights", "activations")


@dataclass(frozen=True)
class Ref:
    """Byte offset in a region; `+ n` returns one that is n bytes further."""

    region: Region
    offset: int

    def __add__(self, more: int) -> Ref:
        return Ref(self.region, self.offset + more)

    def address(self, bases: Mapping[str, int]) -> int:
        """Return the byte address if the regions start at `bases`."""
        return bases[self.region] + self.offset


Value = int | str | Ref


@dataclass(frozen=True)
class Setting:
    """One register write: field names and values; absent fields are 0."""

    block: str
    register: str
    fields: Mapping[str, Value]

    def word_value(self, bases: Mapping[str, int]) -> int:
        """Return the 32-bit register value.

        Raises
        ------
        ValueError
            If a value does not fit its field; the message names block, register and field.
        """
        register = registers()[self.block][self.register]
        values: dict[str, int | str] = {}
        for name, value in self.fields.items():
            if isinstance(value, Ref):
                address = value.address(bases)
                # Address fields that start at bit 4 count atoms [HW 1.10].
                values[name] = address // ATOM_BYTES if register.fields[name].lsb else address
            elif isinstance(value, int) and value < 0:
                values[name] = _wrapped(value, register.fields[name].width, f"{register.path}.{name}")
            else:
                values[name] = value
        return register.encode(**values)


def _wrapped(value: int, width: int, what: str) -> int:
    """Return a negative number as the two's complement of a field."""
    if value < -(2 ** (width - 1)):
        raise ValueError(f"{what}: {value} does not fit {width} bits")
    return value % 2**width


@dataclass
class Settings:
    """An ordered list of settings with a short way to append one."""

    items: list[Setting] = field(default_factory=list)

    def set(self, block: str, register: str, **fields: Value) -> None:
        """Append a write of `register`; `value` sets the only field of a register."""
        if "value" in fields:
            only = next(iter(registers()[block][register].fields))
            fields = {only: fields["value"]}
        self.items.append(Setting(block, register, fields))

    def last(self, block: str, register: str) -> Mapping[str, Value]:
        """Return the fields of the last write of `register`.

        Raises
        ------
        KeyError
            If it is not written.
        """
        for item in reversed(self.items):
            if (item.block, item.register) == (block, register):
                return item.fields
        raise KeyError(f"{block}.{register} is not written")

    def change(self, block: str, register: str, **fields: Value) -> None:
        """Change fields of every write of `register`."""
        for index, item in enumerate(self.items):
            if (item.block, item.register) == (block, register):
                self.items[index] = Setting(block, register, {**item.fields, **fields})

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.items)


@dataclass(frozen=True)
class Task:
    """One task of the blocks in `blocks`.

    `layer` is the index of the step it belongs to, `note` says which part of it.  `macs` counts
    multiply-accumulates with real operands, `reads` and `writes` bytes in DRAM (without commands),
    `formula_npu` is the vendor's cycle formula [HW 12.6].  `core` is the core among those that share
    the layer.
    """

    layer: int
    note: str
    blocks: tuple[str, ...]
    settings: Settings
    macs: int = 0
    reads: int = 0
    writes: int = 0
    formula_npu: int = 0
    core: int = 0

    def values(self, bases: Mapping[str, int]) -> list[tuple[str, str, int]]:
        """Return (block, register, value) of every write, in order."""
        return [(s.block, s.register, s.word_value(bases)) for s in self.settings]

    @property
    def octet(self) -> OctetRate:
        """Cycles of an octet in the DPU, and the stage that takes them."""
        wanted = [s for s in self.settings if s.block == "DPU" and s.register in REGISTERS]
        return octet_rate({s.register: s.word_value({}) for s in wanted}) if wanted else OctetRate()
