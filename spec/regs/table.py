"""The register description as plain Python objects, read from the .rdl files in this folder.

The SystemRDL compiler takes about half a second, so its result is kept as JSON in the user's cache
folder under a name that contains the hash of the sources.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from rkcosim.base.folders import NoHomeError, user_cache

SCHEMA = 2
"""Version of the cached format; part of the hash."""

TOP = "npu.rdl"
"""The file that includes all others, in the order of compilation."""


CORE_ADDRESS = 0xFDAB0000
"""Address of core 0's registers in the SoC; the windows of the cores follow each other [HW 1.2]."""

CORE_BYTES = 0x10000
"""Bytes of a core's window [HW 1.2]."""

BLOCK_BYTES = 0x1000
"""Bytes of a block's window [HW 1.3]."""


class NamedDict(dict[str, Any]):
    """A dict whose KeyError names the missing key and the existing ones."""

    def __init__(self, owner: str, items: Mapping[str, Any] | None = None) -> None:
        super().__init__(items or {})
        self.owner = owner

    def __missing__(self, key: str) -> Any:
        raise KeyError(f"{self.owner} has no {key!r}; it has {', '.join(self)}")


@dataclass(frozen=True)
class Field:
    """One field of a register.

    Members
    -------
    sw : access by software ("rw", "r", "w", "w1c").
    enum : codes by name, or None.
    signed : whether `Register.encode` accepts and `Register.decode` returns negative values.
    """

    name: str
    lsb: int
    width: int
    reset: int
    enum: Mapping[str, int] | None
    sw: str
    signed: bool
    desc: str

    @cached_property
    def mask(self) -> int:
        """Mask of the field's bits in the register word."""
        return ((1 << self.width) - 1) << self.lsb

    @cached_property
    def least(self) -> int:
        """Least value that `Register.encode` takes."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @cached_property
    def most(self) -> int:
        """Greatest value that `Register.encode` takes."""
        return (1 << self.width) - 1

    @property
    def msb(self) -> int:
        """Highest bit of the field."""
        return self.lsb + self.width - 1

    def get(self, word: int) -> int:
        """Value of the field in a register word; negative if the field is signed and the top bit is set."""
        value = (word >> self.lsb) & ((1 << self.width) - 1)
        return value - (1 << self.width) if self.signed and value >> (self.width - 1) else value

    def label(self, value: int) -> str | None:
        """Enum name of a value, or None."""
        return self._labels.get(value)

    @cached_property
    def _labels(self) -> dict[int, str]:
        return {code: name for name, code in (self.enum or {}).items()}


@dataclass(frozen=True)
class Register:
    """One register: `offset` inside the core, `local` inside the block's 4 KiB window."""

    name: str
    block: str
    offset: int
    local: int
    width: int
    shadowed: bool
    desc: str
    fields: dict[str, Field]

    @cached_property
    def reset(self) -> int:
        """Reset value of the whole register."""
        return sum(f.reset << f.lsb for f in self.fields.values())

    @cached_property
    def readable(self) -> bool:
        """Whether any field can be read."""
        return any("r" in f.sw for f in self.fields.values())

    @cached_property
    def writable(self) -> bool:
        """Whether any field can be written."""
        return any("w" in f.sw for f in self.fields.values())

    @cached_property
    def mask(self) -> int:
        """Mask of the bits that belong to a field."""
        return sum(f.mask for f in self.fields.values())

    @property
    def path(self) -> str:
        """`BLOCK.REGISTER`."""
        return f"{self.block}.{self.name}"

    def encode(self, **values: int | str) -> int:
        """Build a register word from field values; fields that are not named are 0.

        Parameters
        ----------
        values
            Field name to int or enum name.  Signed fields take -2^(w-1) .. 2^w - 1.

        Raises
        ------
        ValueError
            For an unknown field or enum name or a value out of range; the message names BLOCK.REGISTER.FIELD.
        """
        word = 0
        for name, value in values.items():
            field = self.fields.get(name)
            if field is None:
                raise ValueError(f"{self.path}.{name}: no such field; there are {', '.join(self.fields)}")
            if isinstance(value, str):
                if not field.enum or value not in field.enum:
                    known = ", ".join(field.enum) if field.enum else "none"
                    raise ValueError(f"{self.path}.{name}: no code named {value!r}; known: {known}")
                value = field.enum[value]
            value = int(value)
            if not field.least <= value <= field.most:
                raise ValueError(f"{self.path}.{name}: {value} is outside {field.least}..{field.most}")
            word |= (value << field.lsb) & field.mask
        return word

    def decode(self, value: int) -> dict[str, int]:
        """Split a register word into field values (signed fields may be negative)."""
        return {name: field.get(value) for name, field in self.fields.items()}

    def update(self, word: int, **values: int | str) -> int:
        """Return a register word with the named fields replaced; other bits are kept.

        Raises
        ------
        ValueError
            As `encode`.
        """
        new = self.encode(**values)
        for name in values:
            word &= ~self.fields[name].mask
        return word | new


@dataclass(frozen=True)
class Block:
    """One 4 KiB window of a core.

    `target` is the target code of its register words [HW 1.4], 0 if words cannot reach the block.
    """

    name: str
    base: int
    target: int
    desc: str
    registers: dict[str, Register]

    def __getitem__(self, name: str) -> Register:
        return self.registers[name]

    def __contains__(self, name: object) -> bool:
        return name in self.registers

    def __iter__(self) -> Iterator[Register]:
        return iter(self.registers.values())

    @cached_property
    def has_groups(self) -> bool:
        """Whether the block has two register groups and a pointer [HW 1.7]."""
        return "S_POINTER" in self.registers


@dataclass(frozen=True)
class Window:
    """Register blocks in one address window."""

    blocks: dict[str, Block]

    def __getitem__(self, name: str) -> Block:
        return self.blocks[name]

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks.values())

    @cached_property
    def _by_offset(self) -> dict[int, Register]:
        return {reg.offset: reg for block in self for reg in block}

    def at(self, offset: int) -> Register | None:
        """Register at a byte offset inside the window, or None."""
        return self._by_offset.get(offset)


@dataclass(frozen=True)
class RegisterMap(Window):
    """All registers of one core, and the register word of the PC."""

    word: Register
    """The 64-bit word [HW 1.4]: fields TARGET (enum of codes), VALUE, OFFSET."""

    @cached_property
    def _by_target(self) -> dict[int, Block]:
        return {block.target: block for block in reversed(list(self)) if block.target}

    def block_of_target(self, target: int) -> Block | None:
        """Block of a word's target code [HW 1.4], or None."""
        return self._by_target.get(target)

    def block_at(self, offset: int) -> Block | None:
        """Block whose 4 KiB window holds a byte offset inside the core, or None."""
        return next((b for b in self if b.base <= offset < b.base + BLOCK_BYTES), None)


def sources() -> dict[str, str]:
    """Return the texts of the description by file name: `TOP`, and those that it includes in its order."""
    folder = resources.files(__package__)
    top = folder.joinpath(TOP).read_text("utf-8")
    included = re.findall(r'^`include "(\S+)"$', top, re.MULTILINE)
    return {TOP: top} | {name: folder.joinpath(name).read_text("utf-8") for name in included}


def one_file() -> str:
    """Return the whole description as one text without `include`, which any SystemRDL compiler takes."""
    texts = sources()
    return re.sub(r'^`include "(\S+)"$', lambda found: texts[found[1]], texts[TOP], flags=re.MULTILINE)


def _digest(sources: Mapping[str, str]) -> str:
    state = hashlib.sha256(f"schema {SCHEMA}".encode())
    for name, text in sources.items():
        state.update(f"\n{name}\n{text}".encode())
    return state.hexdigest()[:20]


def _load_cached(path: Path) -> dict[str, Any] | None:
    try:
        table = json.loads(path.read_text("utf-8"))
        body = json.dumps(table["body"], sort_keys=True)
        if table["check"] != hashlib.sha256(body.encode()).hexdigest():
            return None
        return table["body"]
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent or damaged: rebuild it from the sources


def _store_cached(path: Path, body: dict[str, Any]) -> None:
    check = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as out:
            json.dump({"check": check, "body": body}, out)
        os.replace(out.name, path)
    except OSError:
        pass  # a cache that cannot be written costs time only


def _from_body(body: dict[str, Any]) -> tuple[RegisterMap, Window]:
    def register(block: str, base: int, raw: dict[str, Any]) -> Register:
        path = f"{block}.{raw['name']}"
        fields = NamedDict(path, {f["name"]: Field(**f) for f in raw["fields"]})
        return Register(
            raw["name"],
            block,
            base + raw["local"],
            raw["local"],
            raw["width"],
            raw["shadowed"],
            raw["desc"],
            fields,
        )

    def window(name: str, described: list[dict[str, Any]]) -> dict[str, Block]:
        blocks = NamedDict(name)
        for raw in described:
            regs = NamedDict(raw["name"])
            for r in raw["registers"]:
                regs[r["name"]] = register(raw["name"], raw["base"], r)
            blocks[raw["name"]] = Block(raw["name"], raw["base"], raw["target"], raw["desc"], regs)
        return blocks

    core = RegisterMap(window("the register map", body["blocks"]), register("REGCMD", 0, body["word"]))
    return core, Window(window("the window of counters", body["counters"]))


def registers() -> RegisterMap:
    """The register map of one core.

    Raises
    ------
    RuntimeError
        If the description does not compile; the text has the file and the line.
    """
    return _described()[0]


def counter_registers() -> Window:
    """The window of one core's performance counters (rtl/counters.py), outside the core's register map.

    Raises
    ------
    RuntimeError
        As `registers`.
    """
    return _described()[1]


@lru_cache(maxsize=1)
def _described() -> tuple[RegisterMap, Window]:
    """The register map and the window of counters, from the cache if the sources are unchanged.

    Raises
    ------
    RuntimeError
        If the description does not compile; the text has the file and the line.
    """
    texts = sources()
    path: Path | None
    try:
        path = user_cache() / "rkcosim" / f"registers-{_digest(texts)}.json"
    except NoHomeError:  # nothing is kept
        path = None
    body = _load_cached(path) if path is not None else None
    if body is not None:
        try:
            return _from_body(body)
        except (KeyError, TypeError):
            pass  # written by another program version: rebuild it
    from rkcosim.spec.regs.compile import compile_sources

    body = compile_sources(texts, TOP)
    if path is not None:
        _store_cached(path, body)
    return _from_body(body)
