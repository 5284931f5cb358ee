"""Assertions of the RTL: what has to hold at every handshake, FIFO and count, in every cycle.

They are made only if a design is elaborated with `Assertions` as its platform: in the checked engine
(`open_engine(assertions=True)`), in the tests of blocks and in the proofs (`tools.proofs.bench`). The
platform None makes none of them: the RTL of all other engines and of exports is the same as without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Assert, Cat, Elaboratable, Module, Signal, Value, ValueLike
from amaranth.lib import data, wiring

Path = tuple[str | int, ...]

CHECKS = "assertions"
"""Name of the submodule of a component with the assertions of its ports."""


class Assertions:
    """A platform of Amaranth for simulation in which all assertions of the RTL are checked.

    A failed assertion is an `AssertionError` in Amaranth's simulator; the checked engine raises
    `AssertionFailed`, which also names the instance and the cycle.
    """

    def claim(self, m: Module, condition: Value, text: str, given: bool) -> None:
        """Check a condition of one bit at every edge of the clock.

        Parameters
        ----------
        text : what does not hold if the condition is 0; it has no braces.
        given : whether the surroundings of the component have to see to the condition.
        """
        m.d.sync += Assert(condition, text)


@dataclass(frozen=True)
class Handshake:
    """A pair of valid and ready among the ports of a component, with what is offered.

    Members
    -------
    name : names of the members, joined with dots.
    valid, ready : the signals; `valid` is `write` or `read` of a bus for accesses of registers.
    payload : signals that stay the same while valid waits for ready.
    given : whether the surroundings drive `valid`.
    """

    name: str
    valid: Value
    ready: Value
    payload: tuple[Value, ...]
    given: bool


def handshakes(component: wiring.Component) -> Iterator[Handshake]:
    """Yield the handshakes of a component: its streams, AXI channels, and buses for accesses of registers.

    Ports of blocks for accesses (`RegisterPort`) are none: the fabric may serve the other initiator while a
    write waits.
    """
    for path, members in _members(component).items():
        for last, (flow, valid) in members.items():
            channel, word, rest = last.partition("valid")
            if word and not rest and f"{channel}ready" in members and (path or channel):
                ready = f"{channel}ready"
                names = [name for name in members if name.startswith(channel) and name not in (last, ready)]
            elif last in ("write", "read") and {"ready", "offset", "wdata", "error"} <= set(members):
                ready = "ready"
                names = ["offset", *(["wdata"] if last == "write" else [])]
            else:
                continue
            same = tuple(members[name][1] for name in names if members[name][0] == flow)
            name = ".".join(map(str, (*path, last)))
            yield Handshake(name, valid, members[ready][1], same, flow == wiring.In)


def _members(component: wiring.Component) -> Mapping[Path, Mapping[str, tuple[wiring.Flow, Value]]]:
    """Return direction and value of each member of a component's ports, by the path of the port and name."""
    groups: dict[Path, dict[str, tuple[wiring.Flow, Value]]] = {}
    for path, member, value in component.signature.flatten(component):
        groups.setdefault(tuple(path[:-1]), {})[str(path[-1])] = member.flow, Value.cast(value)
    return groups


def ports(m: Module, platform: object, component: wiring.Component, *, withdrawn: ValueLike = 0) -> None:
    """Assert that every offer at a component's ports stays until it is taken, unchanged.

    This holds for what the component offers and for what it is offered [AXI: A3.2.1; Amaranth streams]. Ports
    for accesses of registers never have a write and a read in the same cycle. After a cycle in which
    `withdrawn` is 1, what the component offers may be gone: it starts anew.

    A block that tells the counters that it is idle has no task: none ends in that cycle, and it is not busy.
    """
    if isinstance(platform, Assertions):
        m.submodules[CHECKS] = _Ports(platform, component, Value.cast(withdrawn))


class _Ports(Elaboratable):
    """The assertions of handshakes, in a module of their own."""

    def __init__(self, platform: Assertions, component: wiring.Component, withdrawn: Value) -> None:
        self._platform, self._component, self._withdrawn = platform, component, withdrawn

    def elaborate(self, platform: object) -> Module:
        m, owner = Module(), type(self._component).__name__
        for path, members in _members(self._component).items():
            if {"write", "read", "offset", "rdata"} <= set(members):
                both = members["write"][1] & members["read"][1]
                title = ".".join(map(str, (owner, *path)))
                given = members["write"][0] == wiring.In
                self._platform.claim(m, ~both, f"{title}: a write and a read in the same cycle", given)
        self._idle(m, owner)
        for one in handshakes(self._component):
            name, title = one.name.replace(".", "_"), f"{owner}.{one.name}"
            waiting = Signal(name=f"{name}_waiting")
            stays = 1 if one.given else ~self._withdrawn.any()
            m.d.sync += waiting.eq(one.valid & ~one.ready & stays)
            held, same = Signal(name=f"{name}_held"), Signal(name=f"{name}_same")
            m.d.comb += held.eq(~waiting | one.valid)
            self._platform.claim(m, held, f"{title}: an offer ends before it is taken", one.given)
            m.d.comb += same.eq(1)
            for number, value in enumerate(one.payload):
                before = Signal(len(value), name=f"{name}_before_{number}")
                m.d.sync += before.eq(value)
                with m.If(waiting & one.valid & (before != value)):
                    m.d.comb += same.eq(0)
            if one.payload:
                self._platform.claim(m, same, f"{title}: an offer changes before it is taken", one.given)
        return m

    def _idle(self, m: Module, owner: str) -> None:
        """The end of a task, and whether there is one, agree with the state that the counters see."""
        members = self._component.signature.members
        # The core itself passes on the states of all its blocks, as bits without names.
        if "activity" not in members or not isinstance(members["activity"].shape, data.Layout):
            return
        idle = self._component.activity.IDLE
        if "control" in members:
            done = self._component.control.done
            self._platform.claim(
                m, ~(done & idle), f"{owner}.control.done: a task ends while it is idle", False
            )
        if "busy" in members and members["busy"].flow == wiring.Out:
            self._platform.claim(
                m, self._component.busy ^ idle, f"{owner}.busy: it differs from the state", False
            )


def always(m: Module, platform: object, condition: ValueLike, text: str, *, given: bool = False) -> None:
    """Assert that a condition of one bit holds in every cycle.

    Parameters
    ----------
    text : what does not hold otherwise.
    given : whether the surroundings of the component have to see to it.
    """
    if isinstance(platform, Assertions):
        platform.claim(m, Value.cast(condition), text, given)


def stable(
    m: Module,
    platform: object,
    values: Mapping[str, ValueLike],
    name: str,
    *,
    after: ValueLike,
    during: ValueLike = 1,
) -> None:
    """Assert that values which are read for many cycles change only in the cycles that are meant for it.

    Parameters
    ----------
    values : the values by the names of a submodule and its port.
    name : name of the component, for the message.
    after : 1 in a cycle behind which they may change: the start of a task, or a step to the next place.
    during : 0 in cycles without a task, in which they may change at any time.
    """
    if isinstance(platform, Assertions):
        follows, during = Signal(name="stable_follows"), Value.cast(during).any()
        m.d.sync += follows.eq(during & ~Value.cast(after).any())
        for title, value in values.items():
            before = Signal(len(Value.cast(value)), name=f"{title.replace('.', '_')}_before")
            m.d.sync += before.eq(value)
            same = ~follows | ~during | (before == value)
            always(m, platform, same, f"{name}.{title}: it changes while it is in use")


def behind(m: Module, platform: object, pulse: ValueLike, cause: ValueLike, cycles: int, name: str) -> None:
    """Assert that a pulse comes so many cycles (at least one) behind its cause, and at no other time."""
    if isinstance(platform, Assertions):
        came = Signal(cycles, name="behind_causes")
        m.d.sync += came.eq(Cat(Value.cast(cause).any(), came))
        always(m, platform, ~Value.cast(pulse).any() | came[-1], f"{name}: a pulse at the wrong time")


def has_room(m: Module, platform: object, queue: Any, name: str) -> None:
    """Assert that a FIFO (`amaranth.lib.fifo`) is not written while it is full: its writer reserves the room.

    `name` is that of component and FIFO, for the message.
    """
    always(m, platform, ~(queue.w_en & ~queue.w_rdy), f"{name}: a value finds no room")


def has_value(m: Module, platform: object, queue: Any, name: str) -> None:
    """Assert that a FIFO is not read while it is empty: its reader knows that there is a value."""
    always(m, platform, ~(queue.r_en & ~queue.r_rdy), f"{name}: it is read while it is empty")


def bounded(
    m: Module,
    platform: object,
    count: Value,
    name: str,
    *,
    up: ValueLike = 0,
    down: ValueLike = 0,
    most: int | None = None,
    given: bool = False,
) -> None:
    """Assert that a count does not become negative or too large.

    Parameters
    ----------
    up, down : what is added to the count and subtracted from it in this cycle.
    most : the largest value; None: that of its width.
    given : whether this depends on the surroundings of the component, which answer what was asked only.
    """
    if isinstance(platform, Assertions):
        up, down = Value.cast(up), Value.cast(down)
        limit = (1 << len(count)) - 1 if most is None else most
        always(m, platform, count + up >= down, f"{name}: it becomes negative", given=given)
        text = f"{name}: it becomes larger than {limit}"
        always(m, platform, count + up <= down + limit, text, given=given)
