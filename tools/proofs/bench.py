"""What a proof is made of: the block, free inputs, assumptions and claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from operator import and_
from types import ModuleType
from typing import Any, Literal
from unittest import mock

from amaranth.hdl import (
    Assert,
    Assume,
    ClockDomain,
    Const,
    Cover,
    Elaboratable,
    Fragment,
    Module,
    Mux,
    Shape,
    Signal,
    Value,
    ValueLike,
)
from amaranth.lib import wiring

from rkcosim.rtl.assertions import Assertions

Asserted = int | Literal["all", "false", "rtl"]


class Collected(Assertions):
    """A platform that makes claims of the assertions of the RTL (rkcosim.rtl.assertions).

    What the surroundings of a block have to see to is assumed.

    Members
    -------
    claims : conditions of one bit by their texts, in the order of their elaboration; some texts repeat.
    """

    def __init__(self) -> None:
        self.claims: list[tuple[str, Signal]] = []

    def claim(self, m: Module, condition: Value, text: str, given: bool) -> None:
        """Keep a condition for `Bench.top`."""
        if given:
            m.d.comb += Assume(condition)
        else:
            held = Signal(name=f"rtl_{len(self.claims)}")
            m.d.comb += held.eq(condition)
            self.claims.append((text, held))


class Bench(Elaboratable):
    """The environment of a block in a proof.

    Inputs that nobody drives are free: the solver chooses their value in every cycle. Claims are checked in
    every cycle, from the first one after the initial state on.

    Parameters
    ----------
    assertions : elaborate the block with the assertions of the RTL, for `top("rtl")`.

    Members
    -------
    m : the module to which a proof adds the block and its own registers.
    first : 1 in the first cycle only.
    claims : names of the claims, in the order in which they were made.
    """

    def __init__(self, assertions: bool = False) -> None:
        self.collected = Collected() if assertions else None
        self.m = Module()
        self.clock = ClockDomain("sync")
        self.m.domains.sync = self.clock
        self.m.d.comb += self.clock.rst.eq(0)
        self.first = Signal(init=1, name="first")
        self.m.d.sync += self.first.eq(0)
        self.claims: list[str] = []
        self._ports: list[Signal] = [self.clock.clk]
        self._claims: list[Signal] = []
        self._patches: list[tuple[ModuleType, str, object]] = []
        self._reached: list[Signal] = []

    # -- inputs ---------------------------------------------------------------------------------------

    def free(self, name: str, shape: Any = 1) -> Any:
        """Return a signal whose value the solver chooses in every cycle."""
        signal: Any = Signal(shape, name=name)
        port = Signal(Shape.cast(signal.shape()).width, name=f"{name}_free")
        self._ports.append(port)
        self.m.d.comb += Value.cast(signal).eq(port)
        return signal

    def constant(self, name: str, shape: Any = 1) -> Any:
        """Return a signal whose value the solver chooses once.

        It is a free input in the first cycle and a register with the same value later, not an input that is
        assumed to stay the same: the solver then has one variable for all cycles.
        """
        given = Value.cast(self.free(f"{name}_given", Shape.cast(shape).width))
        kept = Signal(len(given), name=f"{name}_kept")
        with self.m.If(self.first):
            self.m.d.sync += kept.eq(given)
        signal: Any = Signal(shape, name=name)
        self.m.d.comb += Value.cast(signal).eq(Mux(self.first, given, kept))
        return signal

    def drive(self, name: str, block: Any, skip: Iterable[str] = (), elaborated: Module | None = None) -> Any:
        """Add a block whose inputs are all free, but those whose dotted path begins with a name in `skip`.

        `elaborated` is its module, if it has been elaborated already.
        """
        self.m.submodules[name] = block if elaborated is None else elaborated
        left = tuple(skip)
        for path, member, value in block.signature.flatten(block):
            dotted = ".".join(str(part) for part in path)
            skipped = isinstance(value, Const) or any(dotted == s or dotted.startswith(f"{s}.") for s in left)
            if member.flow == wiring.In and not skipped:
                made = self.free("_".join((name, *(str(part) for part in path))), Value.cast(value).shape())
                self.m.d.comb += Value.cast(value).eq(made)
        return block

    def patch(self, module: ModuleType, name: str, value: object) -> None:
        """Give a constant of a module another value while the block is elaborated."""
        self._patches.append((module, name, value))

    def inside(
        self, block: Any, module: ModuleType, narrow: Mapping[int, int] | None = None, **replaced: object
    ) -> tuple[Module, dict[str, Signal]]:
        """Elaborate a block; return its module, for `drive`, and the signals that its class makes, by name.

        Parameters
        ----------
        block : the block.
        module : the module of its class.
        narrow : widths of signals, and the smaller ones that they get in their place.
        replaced : names of the module, and what they stand for meanwhile.
        """
        widths, found = dict(narrow or {}), dict[str, Signal]()

        def signal(*arguments: Any, **options: Any) -> Any:
            shape = arguments[0] if arguments else None
            made = Signal(widths.get(shape, shape) if type(shape) is int else shape, src_loc_at=1, **options)
            if isinstance(made, Signal):
                found[made.name] = made
            return made

        with ExitStack() as stack:
            made = {"Signal": signal} if hasattr(module, "Signal") else {}
            for name, value in {**made, **replaced}.items():
                stack.enter_context(mock.patch.object(module, name, value))
            elaborated: Module = block.elaborate(self.collected)
        block._MustUse__used = True  # the elaborated module is used in its place
        return elaborated, found

    def one_row(self, row: ValueLike, bits: int, *, reads: int = 1) -> Callable[..., Elaboratable]:
        """Return what makes memories that keep one row, at an address that the solver chooses once.

        A read of another row gives a value that the solver chooses, so a claim that holds does not depend on
        other rows; as the row is any, the claim holds for all. `bits` is the width of a row, `reads` the
        number of read ports of all memories together.
        """
        others = iter([self.free(f"other_row_{n}", bits) for n in range(reads)])
        return lambda shape, depth, init: _OneRow(Value.cast(row), shape, others)

    # -- history --------------------------------------------------------------------------------------

    def past(self, value: ValueLike, init: int = 0, name: str | None = None) -> Signal:
        """Return the value of the previous cycle."""
        value = Value.cast(value)
        kept = Signal(value.shape(), init=init, name=name or "past")
        self.m.d.sync += kept.eq(value)
        return kept

    def when(self, condition: ValueLike, value: ValueLike, name: str, init: int = 0) -> Signal:
        """Return a register that loads `value` while `condition` holds."""
        value = Value.cast(value)
        kept = Signal(value.shape(), init=init, name=name)
        with self.m.If(condition):
            self.m.d.sync += kept.eq(value)
        return kept

    def count(self, name: str, bits: int, *, up: ValueLike = 0, down: ValueLike = 0, init: int = 0) -> Signal:
        """Return a register to which `up` is added and from which `down` is subtracted in every cycle."""
        kept = Signal(bits, init=init, name=name)
        self.m.d.sync += kept.eq(kept + up - down)
        return kept

    # -- statements -----------------------------------------------------------------------------------

    def assume(self, condition: ValueLike) -> None:
        """Restrict the inputs: only runs in which the condition always holds are considered."""
        self.m.d.comb += Assume(condition)

    def claim(self, name: str, condition: ValueLike) -> None:
        """Claim that the condition always holds."""
        held = Signal(name=f"claim_{len(self._claims)}")
        self.m.d.comb += held.eq(Value.cast(condition).any() if len(Value.cast(condition)) > 1 else condition)
        self._claims.append(held)
        self.claims.append(name)

    def reach(self, condition: ValueLike) -> None:
        """Name a state that must be reachable, so that the claims are not true only because of that."""
        seen = Signal(name=f"reached_{len(self._reached)}")
        self.m.d.comb += seen.eq(condition)
        self._reached.append(seen)

    # -- the design -----------------------------------------------------------------------------------

    def top(self, asserted: Asserted) -> tuple[Fragment, Sequence[Signal]]:
        """Return the design, which asserts one condition, with its ports.

        Parameters
        ----------
        asserted : the number of a claim, all claims, the false claim that not every state of `reach` is
            ever seen, or the assertions of the RTL ("rtl").

        Raises
        ------
        ValueError
            If there are no such claims.
        """
        if asserted == "rtl":
            return self._with_assertions()
        false = asserted == "false"
        chosen = (
            self._reached if false else self._claims if asserted == "all" else [self._claims[int(asserted)]]
        )
        if not chosen:
            raise ValueError("a proof needs claims, and states that can be reached")
        together = Signal(name="asserted")
        if false:
            seen = [self._kept(value) for value in chosen]
            self.m.d.comb += together.eq(~reduce(and_, seen))
        else:
            self.m.d.comb += together.eq(reduce(and_, chosen))
        _asserted(self.m, together)
        return self._elaborated()

    def _with_assertions(self) -> tuple[Fragment, Sequence[Signal]]:
        inner, ports = self._elaborated()
        claims = self.collected.claims if self.collected is not None else []
        if not claims:
            raise ValueError("the block has no assertions, or the bench was made without them")
        m, together = Module(), Signal(name="asserted")
        del inner.domains["sync"]  # it is that of the design around it
        m.domains.sync = self.clock
        m.submodules.bench = inner
        m.d.comb += together.eq(reduce(and_, (held for _, held in claims)))
        _asserted(m, together)
        return Fragment.get(m, None), ports

    def apart(self) -> tuple[Fragment, Sequence[Signal]]:
        """Return the design with an assertion for each claim and a cover for the states of `reach`.

        The message of an assertion is its claim; that of the cover says what it covers.
        """
        for name, held in zip(self.claims, self._claims, strict=True):
            self.m.d.comb += Assert(held, name.replace("{", "{{").replace("}", "}}"))
        seen = [self._kept(value) for value in self._reached]
        self.m.d.comb += Cover(reduce(and_, seen), "every state that must be reachable has been seen")
        return self._elaborated()

    def _elaborated(self) -> tuple[Fragment, Sequence[Signal]]:
        with ExitStack() as stack:
            for module, name, value in self._patches:
                stack.enter_context(mock.patch.object(module, name, value))
            return Fragment.get(self, self.collected), self._ports

    def _kept(self, value: Signal) -> Value:
        kept = Signal(name=f"seen_{value.name}")
        with self.m.If(value):
            self.m.d.sync += kept.eq(1)
        return kept | value

    def elaborate(self, platform: object) -> Module:
        return self.m


class _Port:
    """A port of `_OneRow`, with the members of Amaranth's that blocks use."""

    def __init__(self, bits: int, address: int, enable: Signal) -> None:
        self.addr, self.data, self.en = Signal(address), Signal(bits), enable


class _OneRow(Elaboratable):
    """A memory (`amaranth.lib.memory.Memory`) that keeps the row at address `row`, which is 0 at first."""

    def __init__(self, row: Value, shape: Any, others: Iterator[Signal]) -> None:
        self._row, self._shape, self._others = row, Shape.cast(shape), others
        self._writes: list[tuple[_Port, int]] = []
        self._reads: list[tuple[_Port, Signal, str]] = []

    def write_port(self, *, granularity: int | None = None) -> _Port:
        """Return a write port; with a granularity, that of an array of two, one enable for each half."""
        parts = 1 if granularity is None else 2
        port = _Port(self._shape.width, len(self._row), Signal(parts))
        self._writes.append((port, parts))
        return port

    def read_port(self, *, domain: str = "sync") -> _Port:
        """Return a read port; a synchronous one gives the content before a write of the same cycle."""
        port = _Port(self._shape.width, len(self._row), Signal(init=1))
        self._reads.append((port, next(self._others), domain))
        return port

    def elaborate(self, platform: object) -> Module:
        m = Module()
        content = Signal(self._shape.width, name="row")
        for port, parts in self._writes:
            size = len(content) // parts
            for part in range(parts):
                with m.If(port.en[part] & (port.addr == self._row)):
                    m.d.sync += content.word_select(part, size).eq(port.data.word_select(part, size))
        for port, other, domain in self._reads:
            value = Mux(port.addr == self._row, content, other)
            if domain == "comb":
                m.d.comb += port.data.eq(value)
            else:
                with m.If(port.en):
                    m.d.sync += port.data.eq(value)
        return m


def _asserted(m: Module, condition: Signal) -> None:
    """Assert a condition one cycle later: ABC's engines need a register."""
    held = Signal(init=1, name="asserted_before")
    m.d.sync += held.eq(condition)
    m.d.comb += Assert(held)


def named(bench: Bench, name: str, value: Value) -> Signal:
    """Return a signal with a name that has `value`."""
    signal = Signal(value.shape(), name=name)
    bench.m.d.comb += signal.eq(value)
    return signal


# -- common claims ------------------------------------------------------------------------------------


def stable(bench: Bench, name: str, valid: Value, ready: Value, payload: ValueLike | None = None) -> None:
    """Claim that an offered value stays until it is taken [AXI: A3.2.1; Amaranth streams]."""
    waiting = bench.past(valid & ~ready, name=f"{name}_waiting".replace(" ", "_"))
    bench.claim(f"{name}: an offer stays until it is taken", ~waiting | valid)
    if payload is not None:
        value = Value.cast(payload)
        before = bench.past(value, name=f"{name}_before".replace(" ", "_"))
        bench.claim(f"{name}: the offered value does not change", ~waiting | (value == before))


def offers(bench: Bench, valid: Value, ready: Value, payload: ValueLike | None = None) -> None:
    """Assume that a free input stream keeps what it offers."""
    waiting = bench.past(valid & ~ready)
    bench.assume(~waiting | valid)
    if payload is not None:
        value = Value.cast(payload)
        bench.assume(~waiting | (value == bench.past(value)))


def in_order(
    bench: Bench,
    name: str,
    enters: Value,
    given: ValueLike,
    leaves: Value,
    shown: ValueLike,
    capacity: int,
) -> Signal:
    """Claim that what enters leaves once, in the same order and unchanged.

    The solver marks one value when it enters. The values that are ahead of it are counted, and what leaves
    when none is left must be the marked value. A value may leave in the cycle in which it enters only if
    nothing is inside.

    Returns
    -------
    Signal
        The number of values inside; the claim bounds it by `capacity`.
    """
    m, prefix = bench.m, name.replace(" ", "_")
    inside = Signal(range(capacity + 2), name=f"{prefix}_inside")
    m.d.sync += inside.eq(inside + enters - leaves)
    mark = bench.free(f"{prefix}_mark")
    value = Value.cast(given)
    marked, done = Signal(name=f"{prefix}_marked"), Signal(name=f"{prefix}_done")
    kept = Signal(value.shape(), name=f"{prefix}_kept")
    ahead = Signal(range(capacity + 2), name=f"{prefix}_ahead")
    now = Signal(name=f"{prefix}_now")
    m.d.comb += now.eq(enters & mark & ~marked)
    with m.If(now):
        m.d.sync += [marked.eq(1), kept.eq(value), ahead.eq(inside - leaves)]
    with m.Elif(leaves & (ahead != 0)):
        m.d.sync += ahead.eq(ahead - 1)
    through = now & (inside == 0)  # enters and leaves in the same cycle
    due = Signal(name=f"{prefix}_due")
    m.d.comb += due.eq(leaves & ((marked & ~done & (ahead == 0)) | through))
    with m.If(due):
        m.d.sync += done.eq(1)
    same = Value.cast(shown) == Mux(through, value, kept)
    bench.claim(f"{name}: at most {capacity} values are inside", inside <= capacity)
    bench.claim(f"{name}: values leave in order and unchanged", ~due | same)
    bench.claim(f"{name}: nothing leaves that has not entered", ~leaves | (inside != 0) | enters)
    return inside
