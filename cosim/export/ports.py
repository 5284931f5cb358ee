"""Ports of a component in the form of Verilog: plain vectors with readable names."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from amaranth.hdl import Cat, Const, Elaboratable, Module, Shape, Signal, Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib import data, stream, wiring

from rkcosim.engines.plain_names import identifier
from rkcosim.rtl.bus import Axi4, AxiLite
from rkcosim.rtl.core import NpuCore
from rkcosim.rtl.soc import NpuSoc
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
    idle : value of an input at which it has no effect, to which it is tied if nothing drives it; None for an
        output.
    domain : clock to which it is synchronous.
    """

    name: str
    direction: str
    width: int
    signed: bool
    path: tuple[str | int, ...]
    meaning: str = ""
    idle: int | None = None
    domain: str = "clk"


_RENAMED = {"axi": "m_axi", "axil": "s_axil", "task": "task_index"}
"""Members that are buses or whose name is a keyword, with the names that tools expect."""

CLOCK = Port("clk", "input", 1, False, ("clk",), "clock; everything happens at its rising edge", domain="-")
RESET = Port("rst", "input", 1, False, ("rst",), "reset, synchronous, high for at least one cycle", 0)


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


_BUSES: Mapping[str, type[wiring.Signature]] = {"s_axil_": AxiLite, "m_axi_": Axi4}
"""Signatures of buses whose signals are members of a component, by the prefix of their names."""


_FOREIGN = {wiring.__name__.partition(".")[0], object.__module__}
"""Packages of classes whose docstrings describe no port."""

_HANDSHAKE = {"valid": "a transfer is offered", "ready": "the transfer is accepted"}
"""Members of every stream."""


@functools.cache
def members(kind: type) -> dict[str, str]:
    """Return the texts of the section Members of a class's docstring, by name, without their types.

    A name may end in `*`. Names without a text are left out.
    """
    section = re.search(r"^Members\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", inspect.getdoc(kind) or "", re.M | re.S)
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?! )", section[1]) if section else ():
        first, *more = entry.split("\n")
        names, colon, text = first.partition(" : ")
        if re.match(r"(?:In|Out)\b", text):  # the type, with or without a text in the same line
            text = text.partition(" : ")[2]
        text = " ".join(" ".join([text, *more]).split())
        if colon and text:
            found |= dict.fromkeys(names.strip().split(", "), text)
    return found


def _is_foreign(kind: type) -> bool:
    """Whether a class is one of Amaranth or Python."""
    return kind.__module__.partition(".")[0] in _FOREIGN


def _entry(kind: type, name: str) -> str:
    """Return the first sentence of a member's text, "" without one."""
    bases = [base for base in kind.__mro__ if not _is_foreign(base)]
    known = {name: text for base in reversed(bases) for name, text in members(base).items()}
    text = known.get(name) or next(
        (text for glob, text in known.items() if glob.endswith("*") and name.startswith(glob[:-1])), ""
    )
    return _sentence(text)


def _sentence(text: str) -> str:
    first = re.split(r"(?<=[^.])\.\s+(?=[A-Z`(])", text, maxsplit=1)[0]
    return first.rstrip(" .;,:").replace("`", "")


def _deeper(shape: Any, path: Sequence[str | int]) -> str:
    """Return what the signature or the struct of a member says about a part of it."""
    name = next((part for part in path if isinstance(part, str)), None)
    rest = path[path.index(name) + 1 :] if name is not None else ()
    if isinstance(shape, wiring.FlippedSignature):
        shape = shape.flip()
    if isinstance(shape, stream.Signature):
        payload = shape.members["payload"].shape
        return _HANDSHAKE.get(name or "", "") or _deeper(payload, rest)
    if isinstance(shape, wiring.Signature):
        if name is not None:
            said = _entry(type(shape), name)
            inner = shape.members[name]
            deep = _deeper(inner.signature if inner.is_signature else inner.shape, rest)
            return said or deep or _summary(type(shape))
    elif isinstance(shape, type) and issubclass(shape, data.Struct):
        if name is not None:
            return _entry(shape, name) or _summary(shape)
        return _summary(shape)
    return ""


def _summary(kind: type) -> str:
    """Return the first sentence of a class's docstring, "" for a class of Amaranth."""
    if _is_foreign(kind):
        return ""
    return _sentence(" ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()))


def meaning(path: Sequence[str | int], kind: type, block: str, member: wiring.Member | None = None) -> str:
    """Return a description of a port: from a register field, or from docstrings.

    The docstring of the component comes first, then those of the signatures and structs of its members.

    Parameters
    ----------
    path : as `Port.path`.
    kind : class of the component.
    block : block whose registers `cfg` holds; other blocks are named by their member.
    member : the first member of the path, if its signature or struct may say more.
    """
    first, *rest = (str(part) for part in path)
    if rest and (first == "cfg" or first.endswith("_cfg")):
        register = registers()[block if first == "cfg" else other_block(first)][rest[0]]
        described = register.fields[rest[1]].desc if len(rest) > 1 else register.desc
        return re.sub(r"\s*\[[A-Z]\]", "", described).strip().split("\n")[0].rstrip(".")
    core = re.fullmatch(r"(core\d+)_(.+)", first)
    if core and issubclass(kind, NpuSoc):
        return meaning((core[2], *path[1:]), NpuCore, block)
    said = _entry(kind, first)
    for prefix, signature in _BUSES.items():
        place = first.find(prefix)
        if place >= 0:
            signal = _entry(signature, first[place + len(prefix) :])
            return f"{said.partition(',')[0]}: {signal}" if said else signal
    if member is not None:
        inside = member.signature if member.is_signature else member.shape
        if not said or (member.is_signature and isinstance(inside, Axi4 | AxiLite)):
            return _deeper(inside, path[1:])
    return said


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
        init, place = Const.cast(whole.init).value if isinstance(whole, Signal) else 0, 0
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
            first = self._component.signature.members[str(full[0])]
            said = meaning(full, type(self._component), self._block, first)
            idle = (init >> place) & ((1 << len(leaf)) - 1) if direction == "input" else None
            self.ports.append(Port(name, direction, len(leaf), signed, full, said, idle))
            place += len(leaf)
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
