"""Ports of a component in the form of Verilog: plain vectors with readable names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Shape, Signal, Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib import data, wiring

from rkcosim.engines.plain_names import identifier
from rkcosim.spec.regs import registers


class ExportError(ValueError):
    """A design cannot be exported, or a name is unknown."""


@dataclass(frozen=True)
class Port:
    """A port of an exported module.

    Members
    -------
    name, direction ("input" or "output"), width : as in Verilog.
    signed : True if its bits are a two's complement number (the Verilog does not say so).
    path : position in the component's signature, followed by the fields of a struct.
    meaning : one line.
    """

    name: str
    direction: str
    width: int
    signed: bool
    path: tuple[str | int, ...]
    meaning: str = ""


_RENAMED = {"axi": "m_axi", "axil": "s_axil", "task": "task_index"}
"""Members that are buses or whose name is a keyword, with the names that tools expect."""

CLOCK = Port("clk", "input", 1, False, ("clk",), "clock; everything happens at its rising edge")
RESET = Port("rst", "input", 1, False, ("rst",), "reset, synchronous, high for at least one cycle")


def _leaves(value: Value, shape: Any) -> Iterator[tuple[tuple[str | int, ...], Value, bool]]:
    """Yield the parts of a value, those of structs and arrays one by one, lowest bits first."""
    layout = data.Layout.cast(shape) if isinstance(shape, type) and issubclass(shape, data.Struct) else shape
    if not isinstance(layout, data.StructLayout | data.ArrayLayout):
        yield (), value, Shape.cast(shape).signed
        return
    for key, field in layout:
        part = value[field.offset : field.offset + field.width]
        for path, leaf, signed in _leaves(part, field.shape):
            yield (key, *path), leaf, signed


def other_block(member: str) -> str:
    """Return the block whose registers a member such as `dpu_cfg` holds."""
    name = member.removesuffix("_cfg").upper()
    return "PPU_RDMA" if name == "RDMA" else name


def meaning(path: Sequence[str | int], kind: type, block: str) -> str:
    """Return a description of a port: from a register field, or from the docstring of the class.

    Parameters
    ----------
    path : as `Port.path`.
    kind : class of the component.
    block : block whose registers `cfg` holds; other blocks are named by their member.
    """
    member, *rest = (str(part) for part in path)
    if rest and (member == "cfg" or member.endswith("_cfg")):
        register = registers()[block if member == "cfg" else other_block(member)][rest[0]]
        described = register.fields[rest[1]].desc if len(rest) > 1 else register.desc
        return re.sub(r"\s*\[[A-Z]\]", "", described).strip().split("\n")[0].rstrip(".")
    known = rf"(?:{member}|{member.rpartition('_')[0]}_\*)"  # `diag_*` describes `diag_code`
    entry = rf"^(?:[\w, ]*, )?{known}(?:, [\w, ]*)? : (?:[^:\n]*(?:: +|\n    ))?(.+)$"  # NAMES : TYPE : TEXT
    found = re.search(entry, inspect.getdoc(kind) or "", re.MULTILINE)
    return found[1].rstrip(" .;,").replace("`", "") if found else ""


def port_name(path: Sequence[str | int], indices: Mapping[str, type[Enum]]) -> str:
    """Return the name of a port: REGISTER_FIELD for the block's registers.

    Those of others begin with their block.
    """
    parts = [str(part) for part in path]
    for n, part in enumerate(path[1:], 1):
        if isinstance(part, int) and path[n - 1] in indices:
            parts[n] = indices[str(path[n - 1])](part).name.lower()
    if parts[0] == "cfg":
        parts = parts[1:]
    elif parts[0].endswith("_cfg"):
        parts[0] = other_block(parts[0])
    else:
        parts[0] = _RENAMED.get(parts[0], parts[0])
    return identifier("_".join(parts))


def taken(component: Any) -> Any:
    """Mark a component as used, since it is elaborated here or represents another one, and return it."""
    component._MustUse__used = True
    return component


class Flattened(Elaboratable):
    """A component with ports that are plain vectors.

    Parameters
    ----------
    component : the exported component; its own module gets the ports, without a wrapper.
    indices : for members that are arrays, the enum whose names replace the numbers.
    block : block whose registers `cfg` holds.

    Members
    -------
    ports : list of Port, in the order of the signature, without `clk` and `rst`.
    signals : their signals by name.
    """

    def __init__(
        self, component: wiring.Component, indices: Mapping[str, type[Enum]] | None = None, block: str = ""
    ) -> None:
        self._component = taken(component)
        self._block = block
        self._joins: list[tuple[Value, list[Signal], bool]] = []
        self.ports: list[Port] = []
        self.signals: dict[str, Signal] = {}
        for path, member, value in component.signature.flatten(component):
            if member.is_port and isinstance(value, (Signal, data.View)):  # `ready` may be a constant
                self._add(tuple(path), member, value, indices or {})

    def _add(self, path: tuple[str | int, ...], member: Any, value: Any, indices: Mapping[str, Any]) -> None:
        direction = "input" if member.flow == wiring.In else "output"
        whole = Value.cast(value)
        parts = list(_leaves(whole, member.shape))
        single = len(parts) == 1 and isinstance(whole, Signal)
        signals = []
        for inner, leaf, signed in parts:
            if not len(leaf):
                continue
            full = (*path, *inner)
            name = port_name(full, indices)
            if name in self.signals or name in ("clk", "rst"):
                raise ExportError(f"two ports of {type(self._component).__name__} would be named {name}")
            signal = whole if single else Signal(len(leaf), name=name)
            assert isinstance(signal, Signal)
            signals.append(signal)
            self.signals[name] = signal
            said = meaning(full, type(self._component), self._block)
            self.ports.append(Port(name, direction, len(leaf), signed, full, said))
        if not single and len(whole):
            self._joins.append((whole, signals, direction == "input"))

    def directed(self) -> dict[str, tuple[Signal, PortDirection]]:
        """Signals of the ports and their directions by name, in the form of Amaranth's back ends."""
        ways = {"input": PortDirection.Input, "output": PortDirection.Output}
        return {port.name: (self.signals[port.name], ways[port.direction]) for port in self.ports}

    def elaborate(self, platform: Any) -> Module:
        m = self._component.elaborate(platform)
        if not isinstance(m, Module):
            raise ExportError(f"{type(self._component).__name__} does not elaborate to a module")
        for whole, signals, is_input in self._joins:
            m.d.comb += whole.eq(Cat(*signals)) if is_input else Cat(*signals).eq(whole)
        return m
