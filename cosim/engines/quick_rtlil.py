"""Amaranth's conversion to RTLIL in about half of its time, with the same result.

Within `quickly`, some functions of Amaranth are replaced by faster ones. Their names are not part of
Amaranth's interface; if one is missing, it is left alone and only speed is lost.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

BITWISE = ("~", "&", "|", "^", "m")
"""Operators of which an output bit depends on one bit of each input (of those with several)."""


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Replace functions of Amaranth within the `with` block, which must not run in two threads at once."""
    from amaranth.back import rtlil  # slow to import, and not needed if everything is cached

    with contextlib.ExitStack() as stack:
        if gc.isenabled():
            gc.disable()  # all objects live until the end
            stack.callback(_enable_collection)
        for owner, name, replacement in _replacements(rtlil):
            stack.callback(setattr, owner, name, vars(owner)[name])
            setattr(owner, name, replacement)
        yield


def _enable_collection() -> None:
    """Enable the collector, with all present objects among the old ones.

    Otherwise the next allocation would look at all of them, which takes seconds. They are looked at in the
    next full collection, usually while the C++ compiler is running.
    """
    if gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()
    gc.enable()


def _replacements(rtlil: Any) -> Iterator[tuple[Any, str, Any]]:
    emitter = getattr(rtlil, "ModuleEmitter", None)
    if emitter is not None and hasattr(emitter, "emit_memory"):
        yield emitter, "emit_memory", _memory_emitter(emitter.emit_memory)
    try:
        from amaranth.hdl import _nir

        value, net, netlist, operator = _nir.Value, _nir.Net, _nir.Netlist, _nir.Operator
        check = netlist.check_comb_cycles
        if "__new__" not in vars(value) or "resolve_value" not in vars(netlist):
            return
    except (ImportError, AttributeError):
        return
    yield value, "__new__", staticmethod(_value_maker(net))
    yield netlist, "resolve_value", _resolver(value)
    yield netlist, "check_comb_cycles", _cycle_check(check, operator)


def _memory_emitter(original: Any) -> Any:
    def emit_memory(self: Any, index: Any, cell: Any) -> None:
        """Leave out the initial values of zero-filled memories, which are otherwise written bit by bit."""
        if any(cell.init):
            original(self, index, cell)

    return emit_memory


def _value_maker(net: Any) -> Any:
    make = tuple.__new__

    def new(cls: Any, nets: Any = ()) -> Any:
        """Make a value without looking at the type of each of its nets."""
        return make(cls, (nets,) if isinstance(nets, net) else nets)

    return new


def _resolver(value: Any) -> Any:
    make = tuple.__new__

    def resolve_value(self: Any, nets: Any) -> Any:
        """Replace nets that are connected to others (negative numbers) by those."""
        connections = self.connections
        found = list(nets)
        for place, net in enumerate(found):
            while net < 0:
                net = connections[net]
            found[place] = net
        return make(value, found)

    return resolve_value


def _cycle_check(original: Any, operator: Any) -> Any:
    def check_comb_cycles(self: Any) -> None:
        """Call the original, which explains the cycle, only if there is one."""
        if has_cycle(self, operator):
            original(self)

    return check_comb_cycles


def has_cycle(netlist: Any, operator: Any) -> bool:
    """Return True if a net depends on itself through combinational logic.

    All output bits of an operator such as an addition depend on the same nets, so they are one node here;
    Amaranth visits each of them. Nets below 0 are connected to another one, 0 and 1 are constants.
    """
    cells, connections = netlist.cells, netlist.connections
    whole = [type(cell) is operator and cell.operator not in BITWISE for cell in cells]

    def sources(node: int) -> Iterator[int]:
        if node < 0:
            return iter((connections[node],))
        return (source for source, _ in cells[node >> 16].comb_edges_to(node & 0xFFFF))

    finished: set[int] = {0, 1}
    busy: set[int] = set()
    for start in _outputs(netlist):
        path: list[tuple[int, Iterator[int]]] = [(start, iter((start,)))]
        while path:
            node, rest = path[-1]
            for source in rest:
                if source >= 2 and whole[source >> 16]:
                    source = source >> 16 << 16
                if source in finished:
                    continue
                if source in busy:
                    return True
                busy.add(source)
                path.append((source, sources(source)))
                break
            else:
                path.pop()
                if path:
                    busy.discard(node)
                    finished.add(node)
    return False


def _outputs(netlist: Any) -> Iterator[int]:
    for index, cell in enumerate(netlist.cells):
        yield from cell.output_nets(index)
    for value in netlist.signals.values():
        yield from value
