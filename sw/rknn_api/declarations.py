"""Generator of C and JSON declarations of the interface, for the shared library and for programs.

The declarations are derived from the ctypes classes and from `rkcosim.rknn_api.signatures`, not from a
header. A front end in another language needs `structs` or `header` and the server's messages
(`rkcosim.rknn_api.server`).
"""

from __future__ import annotations

import ctypes as ct
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from enum import EnumType
from typing import Any

from rkcosim.rknn_api import matmul_types
from rkcosim.rknn_api.signatures import (
    ALIASES,
    MODULES,
    NESTED,
    QUERIES,
    SIGNATURES,
    Argument,
    Signature,
    type_named,
)

HEADER = "rkcosim_rknn.h"
"""Name of the generated header."""

ARGUMENTS = 6
"""Maximum number of arguments of a function."""

COUNT_ONE, COUNT_TEXT, COUNT_MATRIX, COUNT_UNPACKED = -1, -2, -3, -4
"""Codes for the number of elements of a pointer's target if no argument gives it; as in rknnrt.h."""

MATRICES = {"matrix": COUNT_MATRIX, "unpacked": COUNT_UNPACKED}
"""Codes of the sizes that depend on K, N and the type of the product; `unpacked` has a byte for an int4."""

WAYS = {"value": 0, "in": 1, "out": 2, "inout": 3, "address": 0}
"""Codes of the directions for the library: bit 0 is set for input and bit 1 for output."""

FUNCTION_POINTER: Any = ct.CFUNCTYPE(None).__mro__[1]
"""Base class of all ctypes function types."""

C_NAMES: dict[Any, str] = {
    ct.c_int8: "int8_t",
    ct.c_uint8: "uint8_t",
    ct.c_int16: "int16_t",
    ct.c_int32: "int32_t",
    ct.c_uint32: "uint32_t",
    ct.c_int64: "int64_t",
    ct.c_uint64: "uint64_t",
    ct.c_float: "float",
    ct.c_char: "char",
    ct.c_void_p: "void *",
    ct.c_char_p: "char *",
}


def structs() -> dict[str, type[ct.Structure]]:
    """Return every struct of the three headers by name, each after the structs that it contains."""
    return {
        name: kind
        for module in MODULES
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, ct.Structure) and kind.__module__ == module.__name__
    }


def enumerations() -> dict[str, dict[str, int]]:
    """Return the members of every enumeration of the three headers by its name."""
    return {
        name: {member: int(value) for member, value in dict[str, Any](kind.__members__).items()}
        for module in MODULES
        for name, kind in vars(module).items()
        if isinstance(kind, EnumType) and kind.__module__ == module.__name__ and name.startswith("rknn_")
    }


def constants() -> dict[str, int]:
    """Return every named number that does not belong to an enumeration."""
    members = {member for names in enumerations().values() for member in names}
    return {
        name: value
        for module in MODULES
        for name, value in vars(module).items()
        if name.startswith("RKNN_") and type(value) is int and name not in members
    }


def c_type(kind: Any) -> str:
    """Return the C name of a ctypes type that is neither an array nor a function."""
    if kind in C_NAMES:
        return C_NAMES[kind]
    if isinstance(kind, type) and issubclass(kind, ct._Pointer):
        target: Any = kind._type_
        return f"{c_type(target)} *"
    return str(kind.__name__)


def member(name: str, kind: Any) -> str:
    """Return the C declaration of a member of a struct."""
    lengths = ""
    while isinstance(kind, type) and issubclass(kind, ct.Array):
        lengths, kind = f"{lengths}[{kind._length_}]", kind._type_
    if isinstance(kind, type) and issubclass(kind, FUNCTION_POINTER):
        function: Any = kind
        given = ", ".join(c_type(one) for one in function._argtypes_)
        return f"{c_type(function._restype_)} (*{name})({given})"
    return _spaced(c_type(kind), f"{name}{lengths}")


def _spaced(kind: str, name: str) -> str:
    return f"{kind}{name}" if kind.endswith("*") else f"{kind} {name}"


def _parameter(argument: Argument) -> str:
    names = {"bytes": "void", "text": "const char", "s32": "int", "float": "float"}
    known = names.get(argument.kind) or ("rknn_context" if argument.kind == "rknn_context" else "")
    kind = known or c_type(argument.ctype)
    return _spaced(kind if argument.way == "value" else f"{kind} *", argument.name)


def prototype(signature: Signature) -> str:
    """Return the C declaration of a function, without the semicolon."""
    result = {"code": "int", "void": "void"}.get(signature.result, f"{signature.result} *")
    return f"{_spaced(result, signature.name)}({', '.join(map(_parameter, signature.arguments))})"


def header() -> str:
    """Return a C header with all constants, structs and functions that checks the layout of the structs."""
    lines = [
        "/* Constants, structs and functions of librknnrt.so, made by rkcosim.rknn_api.declarations. */",
        "#ifndef RKNN_DECLARATIONS_H",
        "#define RKNN_DECLARATIONS_H",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#define RKNN_CHECK(condition) static_assert(condition, #condition)",
        "#else",
        "#define RKNN_CHECK(condition) _Static_assert(condition, #condition)",
        "#endif",
        "",
        "typedef uint64_t rknn_context;",
        "typedef rknn_context rknn_matmul_ctx;",
        "typedef uint64_t rknn_custom_op_interal_context;",
        *(f"#define {name} {value if value < 0 else hex(value)}" for name, value in constants().items()),
    ]
    for name, members in enumerations().items():
        lines.append(f"typedef enum {{ {', '.join(f'{k} = {v}' for k, v in members.items())} }} {name};")
    for name, kind in structs().items():
        lines.append(f"typedef struct {name} {{")
        lines += [f"    {member(field[0], field[1])};" for field in kind._fields_]
        lines.append(f"}} {name};")
        lines.append(f"RKNN_CHECK(sizeof({name}) == {ct.sizeof(kind)});")
        lines += [
            f"RKNN_CHECK(offsetof({name}, {field[0]}) == {getattr(kind, field[0]).offset});"
            for field in kind._fields_
        ]
    lines += [f"{prototype(signature)};" for signature in SIGNATURES.values()]
    lines += ["#undef RKNN_CHECK", "#ifdef __cplusplus", "}", "#endif", "#endif", ""]
    return "\n".join(lines)


def _count(signature: Signature, argument: Argument) -> int:
    if argument.kind == "text":
        return COUNT_TEXT
    if argument.count in MATRICES:
        return MATRICES[argument.count]
    return signature.place(argument.count) if argument.count else COUNT_ONE


def _described(signature: Signature) -> str:
    parts = []
    for argument in signature.arguments:
        kind = argument.ctype
        nested = f"nested_{argument.kind}" if argument.kind in NESTED else "NULL"
        count = len(NESTED.get(argument.kind, ()))
        values = (WAYS[argument.way], _count(signature, argument), ct.sizeof(kind), nested, count)
        parts.append("{" + ", ".join(map(str, values)) + "}")
    return f'    {{"{signature.name}", {len(parts)}, {{{", ".join(parts)}}}}},'


def _exported(signature: Signature) -> Iterator[str]:
    yield f"RK_EXPORT {prototype(signature)}"
    yield "{"
    values = []
    for argument in signature.arguments:
        pointer = argument.way != "value"
        signed = not pointer and argument.ctype in (ct.c_int32, ct.c_int)
        cast = "(uint64_t)(uintptr_t)" if pointer else "(uint64_t)(int64_t)" if signed else ""
        values.append(f"{cast}{argument.name}")
    yield f"    const uint64_t given[RK_ARGUMENTS] = {{{', '.join(values)}}};"
    call = f"rk_call(RK_{signature.name}, given)"
    if signature.result == "void":
        yield f"    {call};"
    elif signature.result == "code":
        yield f"    return (int){call};"
    else:
        yield f"    return ({signature.result} *)(uintptr_t){call};"
    yield "}"


def operand_bits() -> dict[int, int]:
    """Return the number of bits of an element of the matrix B, by the type of the product."""
    found = {}
    for kind in matmul_types.rknn_matmul_type:
        match = re.search(r"_MM_[A-Z]+(\d+)_TO_", kind.name)
        assert match is not None
        found[int(kind)] = int(match[1])
    return found


def table_header() -> str:
    """Return the C header for the hand-written part of the library: numbers of functions, and the digest."""
    lines = [f"#define RK_ARGUMENTS {ARGUMENTS}", f"#define RK_DIGEST {digest()}ull", "enum {"]
    lines += [f"    RK_{name}," for name in SIGNATURES]
    return "\n".join([*lines, "    RK_FUNCTIONS", "};", ""])


def library() -> str:
    """Return the C source of the exported functions and of the descriptions of their arguments."""
    lines = ['#include "rknnrt.h"', ""]
    for name, pointers in NESTED.items():
        kind = type_named(name)
        parts = [
            f"{{{getattr(kind, one.member).offset}, {getattr(kind, one.length).offset}, {one.unit}}}"
            for one in pointers
        ]
        lines.append(f"static const struct rk_nested nested_{name}[] = {{{', '.join(parts)}}};")
    lines += ["", "const struct rk_function rk_functions[RK_FUNCTIONS] = {"]
    lines += [_described(signature) for signature in SIGNATURES.values()]
    sizes = ", ".join(f"[{cmd}] = {ct.sizeof(type_named(name))}" for cmd, name in sorted(QUERIES.items()))
    bits = ", ".join(f"[{kind}] = {count}" for kind, count in sorted(operand_bits().items()))
    lines += [
        "};",
        "",
        f"static const uint32_t query_sizes[] = {{{sizes}}};",
        "",
        "uint32_t rk_query_size(uint64_t command)",
        "{",
        "    return command < sizeof(query_sizes) / sizeof(query_sizes[0]) ? query_sizes[command] : 0;",
        "}",
        "",
        f"static const uint8_t operand_bits[] = {{{bits}}};",
        "",
        "uint32_t rk_operand_bits(int type)",
        "{",
        "    return (uint32_t)type < sizeof(operand_bits) ? operand_bits[type] : 0;",
        "}",
        "",
    ]
    for signature in SIGNATURES.values():
        lines += [*_exported(signature), ""]
    for alias, name in ALIASES.items():
        same = dataclasses.replace(SIGNATURES[name], name=alias)
        lines.append(f'RK_EXPORT {prototype(same)} __attribute__((alias("{name}")));')
    return "\n".join([*lines, ""])


def digest() -> int:
    """Return a hash of all signatures and layouts, 63 bits, which library and server compare."""
    layouts = [
        (name, ct.sizeof(kind), [(field[0], getattr(kind, field[0]).offset) for field in kind._fields_])
        for name, kind in structs().items()
    ]
    text = repr((list(SIGNATURES.values()), layouts, NESTED, sorted(QUERIES.items()), ARGUMENTS))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def as_json() -> str:
    """Return structs (name, C type and length of each member) and numbers as JSON, for other languages."""
    layouts = {}
    for name, kind in structs().items():
        members = []
        for field in kind._fields_:
            one: Any = field[1]
            lengths = []
            while isinstance(one, type) and issubclass(one, ct.Array):
                lengths.append(one._length_)
                one = one._type_
            pointer = isinstance(one, type) and issubclass(one, (ct._Pointer, FUNCTION_POINTER))
            members.append([field[0], "void *" if pointer else c_type(one), *lengths])
        layouts[name] = members
    numbers = constants() | {k: v for members in enumerations().values() for k, v in members.items()}
    return json.dumps({"structs": layouts, "numbers": numbers}, indent=1)
