"""Compile SystemRDL text to the plain table that `rkcosim.spec.regs.table` reads and caches."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from systemrdl import RDLCompileError, RDLCompiler
from systemrdl.messages import MessagePrinter
from systemrdl.node import AddrmapNode, FieldNode, RegNode
from systemrdl.rdltypes import OnWriteType


class _Collector(MessagePrinter):
    """Collect the messages of the compiler instead of printing them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def emit_message(self, lines: list[str]) -> None:
        self.lines.extend(lines)


def _field(node: FieldNode) -> dict[str, Any]:
    encode = node.get_property("encode")
    reset = node.get_property("reset")
    sw = node.get_property("sw").name
    if node.get_property("onwrite") is OnWriteType.woclr:
        sw = "w1c"
    return {
        "name": node.inst_name,
        "lsb": node.lsb,
        "width": node.width,
        "reset": reset if isinstance(reset, int) else 0,
        "enum": {m.name: m.value for m in encode} if encode is not None else None,
        "sw": sw,
        "signed": bool(node.get_property("is_signed")),
        "desc": node.get_property("desc") or "",
    }


def _register(node: RegNode) -> dict[str, Any]:
    # SystemRDL orders fields by position from bit 0; the tables of the reference start with the top bit.
    fields = sorted((_field(f) for f in node.fields()), key=lambda f: -f["lsb"])
    return {
        "name": node.inst_name,
        "local": node.address_offset,
        "width": node.get_property("regwidth"),
        "shadowed": bool(node.get_property("shadowed")),
        "desc": node.get_property("desc") or "",
        "fields": fields,
    }


def _block(node: AddrmapNode) -> dict[str, Any]:
    return {
        "name": node.inst_name,
        "base": node.address_offset,
        # SDMA has the same type as DDMA, but no word target reaches it.
        "target": 0 if node.inst_name == "SDMA" else int(node.get_property("target", default=0) or 0),
        "desc": node.get_property("desc") or "",
        "registers": sorted((_register(r) for r in node.registers()), key=lambda r: r["local"]),
    }


def _elaborated(top: Path, *names: str) -> list[AddrmapNode]:
    printer = _Collector()
    rdl = RDLCompiler(message_printer=printer)
    try:
        rdl.compile_file(str(top))
        return [rdl.elaborate(name).top for name in names]
    except RDLCompileError as error:
        raise RuntimeError("register description: " + "\n".join(printer.lines)) from error


def elaborated(top: Path, name: str) -> AddrmapNode:
    """Return one address map of the description, for exporters of other projects.

    Parameters
    ----------
    top
        The file that includes all others; exporters may read it again.
    name
        Name of the address map.

    Raises
    ------
    RuntimeError
        If the compiler rejects the text; the message has its output.
    """
    return _elaborated(top, name)[0]


def compile_sources(sources: Mapping[str, str], top: str) -> dict[str, Any]:
    """Compile the register description.

    Parameters
    ----------
    sources
        Texts by file name; they define `npu_core`, `regcmd_word` and `npu_counters`.
    top
        Name of the file that includes all others.

    Returns
    -------
    dict
        JSON-ready: `blocks` (list), `word` and `counters` (a list as `blocks`).

    Raises
    ------
    RuntimeError
        If the compiler rejects the text; the message has its output.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, text in sources.items():
            Path(folder, name).write_text(text, "utf-8")
        core, word, counters = _elaborated(Path(folder, top), "npu_core", "regcmd_word", "npu_counters")
    return {
        "blocks": [_block(child) for child in core.children() if isinstance(child, AddrmapNode)],
        "word": _register(next(iter(word.registers()))),
        "counters": [_block(child) for child in counters.children() if isinstance(child, AddrmapNode)],
    }
