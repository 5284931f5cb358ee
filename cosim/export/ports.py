"""Ports of a component as Verilog wants them: plain vectors with readable names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Shape, Signal, Value
from amaranth.lib import data, wiring

from cosim.export.meanings import described_members, meaning, other_block
from cosim.export.names import identifier
from cosim.export.rtlil import ExportError
from rtl.core import NpuCore
from rtl.soc import NpuSoc


@dataclass(frozen=True)
class Port:
    """A port of an exported module.

    Members
    -------
    name, direction ("input" or "output"), width : as in Verilog.
    signed : its bits are a two's complement number (the Verilog says nothing of it).
    path : where it is in the component's signature, with the fields of a struct behind it.
    shape : type of the struct that it is a part of, by name, or "".
    meaning : one line.
    """

    name: str
    direction: str
    width: int
    signed: bool
    path: tuple[str | int, ...]
    meaning: str = ""


_RENAMED = {"axi": "m_axi", "axil": "s_axil", "task": "task_index"}
"""Members that are a bus, under the names that tools look for, or a keyword."""

CLOCK = Port("clk", "input", 1, False, ("clk",), "clock; everything happens at its rising edge")
RESET = Port("rst", "input", 1, False, ("rst",), "reset, synchronous, high for at least one cycle")


def _leaves(value: Any, shape: Any) -> Iterator[tuple[tuple[str | int, ...], Value, bool]]:
    """Parts of a value, those of structs and arrays one by one, lowest bits first."""
    layout: Any = shape
    if isinstance(shape, type) and issubclass(shape, data.Struct):
        layout = data.Layout.cast(shape)
    if isinstance(layout, data.StructLayout):
        low = 0
        for name, field in layout:
            if field.offset != low:
                raise ExportError(f"{layout!r} has gaps")
            low += field.width
            part = Value.cast(value)[field.offset : field.offset + field.width]
            for path, leaf, signed in _leaves(part, field.shape):
                yield (str(name), *path), leaf, signed
    elif isinstance(layout, data.ArrayLayout):
        width = Shape.cast(layout.elem_shape).width
        for n in range(layout.length):
            part = Value.cast(value)[n * width : (n + 1) * width]
            for path, leaf, signed in _leaves(part, layout.elem_shape):
                yield (n, *path), leaf, signed
    else:
        yield (), Value.cast(value), Shape.cast(shape).signed


def port_name(path: Sequence[str | int], indices: Mapping[str, type[Enum]]) -> str:
    """Name of a port: registers of the block itself as REGISTER_FIELD, those of others with its name."""
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
    """The component, which Amaranth shall not miss because it is elaborated here or stands for another."""
    component._MustUse__used = True
    return component


class Flattened(Elaboratable):
    """A component behind ports that are plain vectors.

    Parameters
    ----------
    component : what is exported; its own module gets the ports, nothing is wrapped around it.
    indices : for members that are arrays, the enum whose names stand for the numbers.
    block : whose registers `cfg` has.

    Members
    -------
    ports : list of Port, in the order of the signature, without `clk` and `rst`.
    signals : their signals by name, and the direction as Amaranth wants it.
    """

    def __init__(
        self, component: wiring.Component, indices: Mapping[str, type[Enum]] | None = None, block: str = ""
    ) -> None:
        self._component = taken(component)
        self._block = block
        self._members = described_members(type(component))
        if isinstance(component, NpuSoc):
            self._members = described_members(NpuCore)
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
            self.ports.append(
                Port(name, direction, len(leaf), signed, full, meaning(full, self._members, self._block))
            )
        if not single and len(whole):
            self._joins.append((whole, signals, direction == "input"))

    def elaborate(self, platform: Any) -> Module:
        m = self._component.elaborate(platform)
        if not isinstance(m, Module):
            raise ExportError(f"{type(self._component).__name__} does not elaborate to a module")
        for whole, signals, is_input in self._joins:
            m.d.comb += whole.eq(Cat(*signals)) if is_input else Cat(*signals).eq(whole)
        return m
