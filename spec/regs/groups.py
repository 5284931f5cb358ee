"""Registers and fields that belong together by their names: arrays and stages.

Nothing here is a list: registers and fields are grouped by the names in the register description.

- Registers of a block that are numbered from 0 on and have the same fields are an **array**:
  `EW_OP_VALUE_0` to `EW_OP_VALUE_7` are `EW_OP_VALUE`.
- Fields that are numbered from 0 on, in one register or in several, are an array as well, if they are not
  in an array of registers: `CVT_SCALE0` to `CVT_SCALE3` of `CVT_CON1` to `CVT_CON4` are `CVT_SCALE`.
- Registers and fields whose names begin with a prefix are a **stage**: `BS_CFG.BS_ALU_ALGO` is `ALU_ALGO` of
  `CFG` in the stage `BS`, and `DATA_FORMAT.BS_MUL_SHIFT_VALUE_NEG` is `MUL_SHIFT_VALUE_NEG` of `DATA_FORMAT`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rkcosim.spec.regs.table import Block, Field, Register

_NUMBERED = re.compile(r"(.+?)_?(\d+)")


def register_arrays(block: Block) -> dict[str, list[Register]]:
    """Return the arrays of registers of a block: stem of the name -> registers by number.

    A register is in an array if the others differ from it in nothing but the number, which may end the names
    of fields too.
    """
    found = {}
    for stem, names in _numbered(block.registers).items():
        members = [block[name] for name in names]
        shapes = {
            tuple(
                (name, field.lsb, field.width, field.signed) for name, field in fields_of(member, n).items()
            )
            for n, member in enumerate(members)
        }
        if len(shapes) == 1:
            found[stem] = members
    return found


def fields_of(register: Register, number: int) -> dict[str, Field]:
    """Return the fields of a register of an array, named without its number in the array."""
    return {_without(name, number): field for name, field in register.fields.items()}


def field_arrays(block: Block) -> dict[str, list[tuple[Register, Field]]]:
    """Return the arrays of fields of a block: stem of the name -> register and field by number.

    All fields of an array have the same width and sign.
    """
    arrays = {register.name for members in register_arrays(block).values() for register in members}
    owners = {
        name: (register, field)
        for register in block
        if register.name not in arrays
        for name, field in register.fields.items()
    }
    found = {}
    for stem, names in _numbered(owners).items():
        members = [owners[name] for name in names]
        if len({(field.width, field.signed) for _, field in members}) == 1:
            found[stem] = members
    return found


def stage(block: Block, prefix: str) -> dict[str, tuple[Register, Mapping[str, Field]]]:
    """Return the registers and fields of a stage: short name -> register, and its fields by short names.

    A register whose name begins with the prefix has all of its fields. Another register has those of its
    fields whose names begin with it, and its own name.

    Raises
    ------
    KeyError
        If no register of the block begins with the prefix.
    """
    head = f"{prefix}_"
    found: dict[str, tuple[Register, Mapping[str, Field]]] = {}
    for register in block:
        own = register.name.startswith(head)
        fields = {
            name.removeprefix(head): field
            for name, field in register.fields.items()
            if own or name.startswith(head)
        }
        if fields:
            found[register.name.removeprefix(head)] = register, fields
    if not any(register.name.startswith(head) for register, _ in found.values()):
        raise KeyError(f"{block.name} has no registers of a stage {prefix!r}")
    return found


def _without(name: str, number: int) -> str:
    matched = _NUMBERED.fullmatch(name)
    return matched[1] if matched and int(matched[2]) == number else name


def _numbered(names: Iterable[str]) -> dict[str, Sequence[str]]:
    """Return the names that are numbered from 0 on without a gap, by their stem, at least two."""
    groups: dict[str, dict[int, str]] = {}
    for name in names:
        if matched := _NUMBERED.fullmatch(name):
            groups.setdefault(matched[1], {})[int(matched[2])] = name
    return {
        stem: [members[n] for n in range(len(members))]
        for stem, members in groups.items()
        if len(members) > 1 and sorted(members) == list(range(len(members)))
    }
