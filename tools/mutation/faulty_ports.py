"""Faults at the ports of a component: handshakes and counts that are late, held, raised, dropped or wrong.

A fault lies between the component and everything around it: the component itself keeps its own value, so the
two sides disagree about what happened. It is planted when the component is elaborated, in every instance. The
assertions of the component's ports (rtl/assertions.py) see what its surroundings see.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Fragment, Module, Mux, Signal, Value
from amaranth.hdl._xfrm import FragmentTransformer, StatementTransformer, ValueTransformer
from amaranth.lib import wiring

import rkcosim.rtl
from rkcosim.rtl.assertions import CHECKS

PULSE_FAULTS = ("late", "held", "raised", "dropped")
"""Faults of one bit: one cycle later; one cycle longer; also high in every fourth of the cycles in which it
is low; low in the first cycle of every fourth time that it becomes high."""

COUNT_FAULTS = ("late", "more", "less")
"""Faults of a count: one cycle later; one more than it is; one less, but not below zero."""

COUNTS = frozenset(
    "rows_ready beats held loaded released stripes mine copies octets ready bank_free next_mode task".split()
)
"""Last parts of the names of ports with several bits that count something on which another block waits."""

TOPS = frozenset({"core.NpuCore", "soc.NpuSoc"})
"""Components that only connect others, whose ports are those of other components."""

NO_HANDSHAKES = frozenset({"awlock", "arlock"})
"""Last parts of the names of ports of one bit that never change."""


@dataclass(frozen=True)
class PortFault:
    """A fault of one port: the component's module below `rkcosim.rtl` and class, the port, and the kind."""

    component: str
    port: str
    kind: str

    def __str__(self) -> str:
        return f"{self.component}: {self.port} {self.kind}"


def components() -> dict[str, type[wiring.Component]]:
    """Return all components of the RTL by module and class, as `npu.csc.SequenceController`."""
    found = {}
    for info in pkgutil.walk_packages(rkcosim.rtl.__path__, "rkcosim.rtl."):
        for name, item in vars(importlib.import_module(info.name)).items():
            if inspect.isclass(item) and issubclass(item, wiring.Component) and "elaborate" in vars(item):
                if item.__module__ == info.name:
                    found[f"{info.name.removeprefix('rkcosim.rtl.')}.{name}"] = item
    return found


def faults_of(name: str, component: wiring.Component) -> Iterator[PortFault]:
    """Yield the faults of all handshakes and counts that a component drives."""
    if name in TOPS:
        return
    for port, value in _outputs(component):
        last = port.rpartition("__")[2]
        if len(value) == 1 and last not in NO_HANDSHAKES:
            yield from (PortFault(name, port, kind) for kind in PULSE_FAULTS)
        elif len(value) > 1 and last in COUNTS:
            yield from (PortFault(name, port, kind) for kind in COUNT_FAULTS)


def _outputs(component: wiring.Component) -> Iterator[tuple[str, Signal]]:
    for path, member, value in component.signature.flatten(component):
        if member.flow == wiring.Out and isinstance(value, Signal):
            yield "__".join(map(str, path)), value


def watch(told: Callable[[str, wiring.Component], None]) -> None:
    """Call a function with the name and the object of every component that is elaborated from now on."""
    for name, kind in components().items():

        def elaborate(
            self: Any, platform: object, name: str = name, before: Callable[..., Any] = kind.elaborate
        ) -> Any:
            told(name, self)
            return before(self, platform)

        kind.elaborate = elaborate


class Faults:
    """Faults of components, in every instance that is elaborated from now on; at most one is active.

    An instance without the port of a fault is not changed by it. What has been elaborated, and even compiled
    for a simulation, can be used for all faults: `choose` has an effect from the next reset on.

    Raises
    ------
    ValueError
        if the RTL has no such component.
    """

    def __init__(self, faults: Sequence[PortFault]) -> None:
        self._numbers = {fault: number for number, fault in enumerate(faults, 1)}
        self._chosen = Signal(range(len(faults) + 1), name="chosen_fault")
        for name in dict.fromkeys(fault.component for fault in faults):
            self._plant(name)

    def _plant(self, name: str) -> None:
        mine = {fault: number for fault, number in self._numbers.items() if fault.component == name}
        kind = components().get(name)
        if kind is None:
            raise ValueError(f"{next(iter(mine))}: the RTL has no component {name}")
        before: Callable[..., Any] = kind.elaborate

        def elaborate(component: Any, platform: object) -> Fragment:
            ports = dict(_outputs(component))
            numbers: dict[str, list[tuple[int, str]]] = {}
            for fault, number in mine.items():
                if fault.port in ports:
                    numbers.setdefault(fault.port, []).append((number, fault.kind))
            fragment = Fragment.get(before(component, platform), platform)
            return self._with_faults(fragment, [(ports[port], kinds) for port, kinds in numbers.items()])

        kind.elaborate = elaborate

    def choose(self, fault: PortFault | None) -> None:
        """Make one of the faults active, or none."""
        self._chosen._init = 0 if fault is None else self._numbers[fault]

    def _with_faults(
        self, fragment: Fragment, ports: Sequence[tuple[Signal, Sequence[tuple[int, str]]]]
    ) -> Fragment:
        m = Module()
        for place, (part, name, _) in enumerate(fragment.subfragments):
            if name == CHECKS:
                del fragment.subfragments[place]
                m.submodules[CHECKS] = part
                break
        own = {}
        for port, kinds in ports:
            value = own[id(port)] = Signal(port.shape(), name=f"{port.name}_own", init=port.init)
            shown: Value = value
            for number, kind in kinds:
                shown = Mux(self._chosen == number, _faulty(m, value, kind), shown)
            m.d.comb += port.eq(shown)
        m.submodules.own = _Replacement(own)(fragment)
        return Fragment.get(m, None)


def plant(fault: PortFault) -> None:
    """Give the component the fault, in every instance that is elaborated from now on.

    Raises
    ------
    ValueError
        if there is no such component, or, when it is elaborated, no such port.
    """
    Faults([fault]).choose(fault)
    kind = components()[fault.component]
    before: Callable[..., Any] = kind.elaborate

    def elaborate(self: Any, platform: object) -> Fragment:
        if fault.port not in dict(_outputs(self)):
            raise ValueError(f"{fault}: the component drives no port {fault.port}")
        return before(self, platform)

    kind.elaborate = elaborate


class _Replacement(FragmentTransformer, ValueTransformer, StatementTransformer):
    """Replaces signals of a design by others; the old ones are named by their ids."""

    def __init__(self, new: Mapping[int, Signal]) -> None:
        self._new = new

    def on_Signal(self, value: Signal) -> Signal:
        return self._new.get(id(value), value)


def _faulty(m: Module, own: Signal, kind: str) -> Value:
    """Return the value that the surroundings of the component see."""
    before = Signal.like(own, name=f"{own.name}_before")
    m.d.sync += before.eq(own)
    if kind == "late":
        return before
    if kind == "held":
        return own | before
    if kind == "more":
        return own + 1
    if kind == "less":
        return Mux(own == 0, own, own - 1)
    turn = Signal(2, name=f"{own.name}_turn")
    counted, hit = (own & ~before, 1) if kind == "dropped" else (~own, 3)
    m.d.sync += turn.eq(turn + counted)
    if kind == "dropped":
        return own & ~(counted & (turn == hit))
    return own | (turn == hit)
