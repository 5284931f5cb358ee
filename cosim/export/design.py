"""From an elaborated design to Verilog text."""

from __future__ import annotations

import sys
from typing import Any

from cosim.export.names import identifier
from cosim.export.rtlil import Module, parse
from cosim.export.writer import Child, ModuleWriter


def module_text(rtlil: str, name: str, order: list[str], *, sources: bool = False) -> str:
    """Verilog of all modules of an RTLIL text, the top module first.

    Parameters
    ----------
    rtlil : what `amaranth.back.rtlil` wrote.
    name : name of the top module, and the beginning of all other names.
    order : the ports of the top module in the order in which they shall stand.
    sources : whether to say in comments where things come from.

    Raises
    ------
    ExportError
        for a construct that has no Verilog here.
    """
    modules = parse(rtlil)
    names = _module_names(modules, name)
    children: dict[str, Child] = {}
    texts: dict[str, str] = {}  # by the name of the module
    known: dict[str, str] = {}  # text without a name to the name
    deep = sys.getrecursionlimit()
    sys.setrecursionlimit(max(deep, 20_000))  # expressions nest as deep as the logic is
    try:
        for module in reversed(modules):  # children stand behind their parents
            top = module is modules[0]
            writer = ModuleWriter(module, children, order=order if top else None, sources=sources)
            text = writer.text("@")
            own = names[module.name] if top else known.setdefault(text, names[module.name])
            texts[own] = text.replace("module @ (", f"module {own} (", 1)
            outputs = frozenset(wire.name[1:] for wire in module.wires.values() if wire.direction == "output")
            children[module.name] = Child(own, writer.port_names, outputs)
    finally:
        sys.setrecursionlimit(deep)
    return "\n".join(reversed(texts.values()))


def _module_names(modules: list[Module], top: str) -> dict[str, str]:
    """Names of the modules: the path of the first instance, joined with underscores."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for module in modules:
        path = module.name[1:].split(".")[1:]
        wanted = "_".join([top, *(identifier(part).rstrip("_") for part in path)])
        name, count = wanted, 1
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        taken.add(name)
        names[module.name] = name
    return names


def rtlil_of(elaboratable: Any, name: str, ports: dict[str, Any], *, sources: bool) -> str:
    """RTLIL of a design with the ports given."""
    from amaranth.back import rtlil  # slow to import

    from cosim.engines.verilog import _quickly

    with _quickly(rtlil):
        return rtlil.convert(elaboratable, name=name, ports=ports, emit_src=sources)
