"""Conversion of register-command words to commands and to text, and of text to the same words.

Text form, one word per line, `#` starts a comment::

    CNA.CONV_CON1 CONV_MODE=DIRECT IN_PRECISION=INT8
    OP_ENABLE CNA CORE DPU
    CONFIG_END
    NOP
    RAW 0x0123456789abcdef

Omitted fields are 0; `RESERVED=` has the bits that belong to no field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rkcosim.regcmd.word import (
    RegcmdError,
    blocks_of_mask,
    op_enable_mask,
    op_enable_word,
    pack_word,
    register_word,
    target_code,
    unpack_word,
)
from rkcosim.spec.regs import Field, Register, registers

RESERVED = "RESERVED"
"""Name of the bits outside all fields in text."""


@dataclass(frozen=True)
class Command:
    """A decoded word.

    Members
    -------
    index, word : position in the list, and the 64 bits.
    kind : "register", "op_enable", "config_end", "nop" or "unknown".
    target, value, offset : parts of the word.
    block, register : None if the word writes no known register of its target's block.
    canonical : the text form without RAW gives the same word.
    """

    index: int
    word: int
    kind: str
    target: int
    value: int
    offset: int
    block: str | None = None
    register: Register | None = None
    canonical: bool = False

    @cached_property
    def fields(self) -> dict[str, int]:
        """Values of the fields of the register, or of the blocks that an op-enable word names."""
        if self.register:
            return self.register.decode(self.value)
        if self.kind == "op_enable":
            return registers()["GLOBAL"]["OPERATION_ENABLE"].decode(self.value)
        return {}

    @property
    def name(self) -> str:
        """`BLOCK.REGISTER`, or the kind of the word."""
        return self.register.path if self.register else self.kind.upper()

    @property
    def reserved(self) -> int:
        """Bits of the value that belong to no field."""
        return self.value & ~self.register.mask if self.register else 0


def decode_word(word: int, index: int = 0) -> Command:
    """Decode one 64-bit word. It never fails; unknown words have the kind "unknown"."""
    target, value, offset = unpack_word(word)
    regs = registers()
    if target == target_code("NOP"):
        return Command(index, word, "nop", target, value, offset, canonical=word == 0)
    if target == target_code("CONFIG_END"):
        canonical = word == pack_word(target, 0, 0)
        return Command(index, word, "config_end", target, value, offset, canonical=canonical)
    if target == target_code("OP_ENABLE"):
        canonical = word == op_enable_word(value)
        return Command(index, word, "op_enable", target, value, offset, canonical=canonical)
    # Bit 48 is set in every valid word and ignored by the decoder [HW 1.4].
    marker = target_code("PC") & target_code("CNA")
    block = regs.block_of_target(target | marker)
    register = regs.at(offset)
    if block is None or register is None or register.block != block.name:
        return Command(index, word, "unknown", target, value, offset, block.name if block else None)
    return Command(
        index,
        word,
        "register",
        target,
        value,
        offset,
        block.name,
        register,
        target == block.target,
    )


def disassemble(words: Iterable[int]) -> list[Command]:
    """Decode a list of 64-bit words, in order."""
    return [decode_word(word, index) for index, word in enumerate(words)]


def _field_text(item: Field, value: int) -> str:
    label = item.label(value)
    if label is not None:
        return f"{item.name}={label}"
    wide = item.width >= 16 and not item.signed and value > 9
    return f"{item.name}=0x{value:X}" if wide else f"{item.name}={value}"


def format_command(command: Command) -> str:
    """One line of text for a command; assembling the line gives the same word."""
    if not command.canonical:
        known = command.name if command.register else f"{command.kind} target 0x{command.target:04X}"
        return (
            f"RAW 0x{command.word:016x} # {known}, offset 0x{command.offset:04X}, value 0x{command.value:X}"
        )
    if command.kind == "op_enable":
        mask = command.value
        blocks = blocks_of_mask(mask)
        rest = mask & ~op_enable_mask(blocks)
        return " ".join(["OP_ENABLE", *blocks, *([f"{RESERVED}=0x{rest:X}"] if rest else [])])
    if command.register is None:
        return command.kind.upper()
    parts = [command.register.path]
    parts += [_field_text(item, command.fields[name]) for name, item in command.register.fields.items()]
    if command.reserved:
        parts.append(f"{RESERVED}=0x{command.reserved:X}")
    return " ".join(parts)


def assemble_line(tokens: Sequence[str]) -> int:
    """Return the word of one line, which is split at blanks.

    Raises
    ------
    ValueError, KeyError
        If the line cannot be read.
    """
    head, arguments = tokens[0], tokens[1:]
    if head == "RAW":
        word = _number("RAW", " ".join(arguments))
        if not 0 <= word < 1 << registers().word.width:
            raise RegcmdError(f"{word:#x} is not a 64-bit word")
        return word
    if head == "OP_ENABLE":
        blocks = [argument for argument in arguments if "=" not in argument]
        reserved = dict(_pair(argument) for argument in arguments if "=" in argument)
        mask = op_enable_mask(blocks) | _reserved(reserved, op_enable_mask(blocks))
        if reserved:
            raise RegcmdError(f"no such field: {', '.join(reserved)}")
        return op_enable_word(mask)
    if head in ("NOP", "CONFIG_END"):
        if arguments:
            raise RegcmdError(f"accepts no fields, got {' '.join(arguments)}")
        return pack_word(target_code(head), 0, 0)
    block, _, name = head.partition(".")
    if not name:
        raise RegcmdError("expected BLOCK.REGISTER, OP_ENABLE, CONFIG_END, NOP or RAW")
    register = registers()[block][name]
    pairs = dict(_pair(argument) for argument in arguments)
    extra = _reserved(pairs, register.mask)
    values = {key: _value(register, key, text) for key, text in pairs.items()}
    return register_word(register, register.encode(**values) | extra)


def _pair(argument: str) -> tuple[str, str]:
    key, separator, text = argument.partition("=")
    if not separator or not text:
        raise RegcmdError(f"expected FIELD=VALUE, got {argument!r}")
    return key, text


def _reserved(pairs: dict[str, str], used: int) -> int:
    """Remove RESERVED= from `pairs` and return its bits."""
    bits = _number(RESERVED, pairs.pop(RESERVED, "0"))
    if not 0 <= bits < 1 << registers().word.fields["VALUE"].width or bits & used:
        raise RegcmdError(f"{RESERVED}={bits:#x} does not lie outside the fields")
    return bits


def _number(name: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise RegcmdError(f"{name}: {text!r} is not a number") from None


def _value(register: Register, name: str, text: str) -> int | str:
    item = register.fields.get(name)
    if item is not None and item.enum and text in item.enum:
        return text
    return text if text.isidentifier() else _number(f"{register.path}.{name}", text)
