"""C header of all registers: `python -m rkcosim.spec.regs.cheader [FILE]` (standard output without FILE).

It is for programs that build register commands: offsets, fields and codes as macros, and the
64-bit word (docs/reference; [HW 1.4]) as a function.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rkcosim.spec.regs.table import Block, Field, Register, registers

PREFIX = "RK_"


def _place(field: Field, *, kind: str = "uint32_t") -> str:
    ones = f"0x{field.mask >> field.lsb:X}u" if kind == "uint32_t" else f"0x{field.mask >> field.lsb:X}ull"
    return f"((({kind})(v) & {ones}) << {field.lsb})"


def _register(block: Block, register: Register) -> Iterator[str]:
    name = f"{PREFIX}{block.name}_{register.name}"
    yield f"#define {name} 0x{register.offset:04X}u"
    for field in register.fields.values():
        yield f"#define {name}__{field.name}(v) {_place(field)}"
        for label, code in (field.enum or {}).items():
            yield f"#define {name}__{field.name}__{label} 0x{code:X}u"


def header() -> str:
    """Return the text of the header."""
    lines = [
        "/* Registers of one NPU core, made by `python -m rkcosim.spec.regs.cheader` from spec/regs (*.rdl).",
        f" * {PREFIX}<BLOCK>_<REGISTER> is an offset, ..__<FIELD>(v) a value in its place,",
        " * ..__<FIELD>__<NAME> a named code; rk_word() is a word of a command list. */",
        "#ifndef RK_NPU_REGISTERS_H",
        "#define RK_NPU_REGISTERS_H",
        "#include <stdint.h>",
        "",
    ]
    word = registers().word
    for label, code in (word.fields["TARGET"].enum or {}).items():
        lines.append(f"#define {PREFIX}TARGET_{label} 0x{code:04X}u")
    parts = []
    for name in ("TARGET", "VALUE", "OFFSET"):
        parts.append(_place(word.fields[name], kind="uint64_t").replace("(v)", f"({name.lower()})"))
    lines += [
        "",
        "static inline uint64_t rk_word(uint32_t target, uint32_t offset, uint32_t value)",
        "{",
        f"    return {' | '.join(parts)};",
        "}",
        "",
    ]
    for block in registers():
        lines.append(f"/* {block.name} */")
        if block.target:
            lines.append(f"#define {PREFIX}{block.name}_TARGET 0x{block.target:04X}u")
        for register in block:
            lines += _register(block, register)
        lines.append("")
    return "\n".join([*lines, "#endif", ""])


def main(arguments: list[str]) -> int:
    """Write the header to the given file, or to standard output."""
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(f"usage: python -m rkcosim.spec.regs.cheader [FILE]\n\n{__doc__}", file=sys.stderr)
        return 2
    if arguments:
        path = Path(arguments[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(header(), "utf-8")
    else:
        print(header(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
