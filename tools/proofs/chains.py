"""Proofs of the PC: what the words of task lists do, and how the lists of a kick follow one another.

The fetcher, which has a proof of its own, is replaced by a stream of words that the solver chooses: it has
words only of lists that were started, and it takes a list when every word of those before has been taken, or
earlier. The merging of diagnostics is left out; events are observed where they arise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring

from rkcosim.rtl import pc_dma, pc_lists
from rkcosim.rtl.bus import DiagnosticMerge
from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.list_fetch import ListFetcher
from rkcosim.rtl.pc_dma import PcDma
from rkcosim.rtl.pc_lists import ListSequence
from rkcosim.rtl.pc_registers import PcRegisters
from rkcosim.rtl.pc_words import WordExecution
from rkcosim.rtl.regbus import OP_ENABLE_BITS, op_enable_fields
from rkcosim.spec.regs import registers
from tools.proofs.bench import Bench, in_order, named, offers

KICK, WORD = 1, 2
"""Ports of the diagnostics of the kick and of its words."""

WINDOWS = {57: 1, 58: 8, 59: 3, 60: 4, 61: 5, 62: 6, 63: 7}
"""Window of 4 KiB that a word with each target bit writes, except that of the PC (bit 56) [HW 1.4]."""

SETTLE = 4
"""Cycles from the start of a task until its blocks show that they are busy."""


class _Empty(wiring.Component):
    """A component without content: the bench drives its outputs."""

    def elaborate(self, platform: object) -> Module:
        return Module()


def _empty(like: Any) -> Any:
    like._MustUse__used = True  # only its signature is used
    return _Empty(like.signature)


@dataclass(frozen=True)
class _Pc:
    """The PC with a free stream of words.

    Members
    -------
    block : the PC.
    fetcher, diagnostics : what replaces the submodules.
    registers : its registers, which have a proof of their own.
    sequence : its lists.
    ahead : the fetch of the next list has been started.
    words : its words.
    taken : a word is taken.
    last : it is the last one of its list.
    offset, value : its fields.
    enable, write, base, amount : what it is; none of these: a word without effect.
    bad : it is not allowed.
    starts : a list is started.
    lists : lists that have been started and are not taken as a whole.
    """

    block: PcDma
    fetcher: Any
    diagnostics: Any
    registers: PcRegisters
    sequence: ListSequence
    ahead: Signal
    words: WordExecution
    taken: Value
    last: Value
    offset: Value
    value: Value
    enable: Signal
    write: Signal
    base: Signal
    amount: Signal
    bad: Signal
    starts: Value
    lists: Signal


INDEX_BITS = 12
"""Width of the number of a list."""


def _pc(bench: Bench, bits: int = INDEX_BITS) -> _Pc:
    """Add the PC with its assumptions; numbers of lists have fewer bits if `bits` is smaller."""
    m = bench.m
    fetcher, diagnostics = _empty(ListFetcher()), _empty(DiagnosticMerge(4))
    kept, sequence, executed, block = PcRegisters(), ListSequence(), WordExecution(), PcDma()
    narrowed, inner = bench.inside(sequence, pc_lists, {INDEX_BITS: bits})
    sequence.elaborate = lambda platform: narrowed  # type: ignore[method-assign]
    elaborated, _ = bench.inside(
        block,
        pc_dma,
        ListFetcher=lambda: fetcher,
        DiagnosticMerge=lambda count: diagnostics,
        PcRegisters=lambda: kept,
        ListSequence=lambda: sequence,
        WordExecution=lambda: executed,
    )
    bench.drive("pc", block, skip=("read", "interrupts"), elaborated=elaborated)
    words, payload = fetcher.words, bench.free("payload", 65)
    m.d.comb += [
        fetcher.ready.eq(bench.free("fetcher_ready")),
        words.valid.eq(bench.free("word_valid")),
        Value.cast(words.payload).eq(payload),
    ]
    offers(bench, words.valid, words.ready, payload)
    starts, taken, last = fetcher.start, words.valid & words.ready, words.payload.last
    lists = bench.count("lists", 3, up=starts & fetcher.ready, down=taken & last)
    bench.assume(~words.valid | (lists != 0))
    bench.assume((lists != 0) | fetcher.ready)

    # What a word is [HW 1.4] [HW 1.5] [HW 1.6].
    word, described = words.payload.word, registers()["PC"]
    offset, value, target = word[:16], word[16:48], word[49:64]  # bit 48 is not decoded
    window = offset[12:]
    one = {bit: target == 1 << (bit - 49) for bit in range(54, 64)}
    link, slave = offset == described["BASE_ADDRESS"].offset, value[0]
    enable = named(bench, "enable", one[55] & (offset == described["OPERATION_ENABLE"].offset))
    base = named(bench, "base", one[56] & link & ~slave)
    amount = named(bench, "amount", one[56] & (offset == described["REGISTER_AMOUNTS"].offset))
    known = reduce(or_, (one[bit] & (window == place) for bit, place in WINDOWS.items()))
    write = named(bench, "write", known | (one[56] & (window == 0) & ~link & ~amount))
    nothing = (target == 0) | one[54]
    bad = named(bench, "bad", ~(nothing | enable | base | amount | write))
    return _Pc(
        block,
        fetcher,
        diagnostics,
        kept,
        sequence,
        inner["ahead"],
        executed,
        taken,
        last,
        offset,
        value,
        enable,
        write,
        base,
        amount,
        bad,
        starts,
        lists,
    )


def _task(bench: Bench, block: PcDma) -> tuple[Signal, Signal]:
    """Return whether a task is active, and whether it ends.

    It is active until its blocks are idle and all write responses have come [HW 1.6].
    """
    m = bench.m
    active, age = Signal(name="active"), Signal(range(SETTLE + 1), name="age")
    blocks = bench.when(block.task_start, block.op_enable, "blocks")
    idle = ~(block.busy & blocks).any() & ~block.writes_pending
    ends = named(bench, "ends", active & (age == SETTLE) & idle)
    with m.If(block.task_start):
        m.d.sync += [active.eq(1), age.eq(1)]
    with m.Elif(ends):
        m.d.sync += active.eq(0)
    with m.If(~block.task_start & (age != SETTLE)):
        m.d.sync += age.eq(age + 1)
    return active, ends


def pc_words(bench: Bench) -> None:
    """Each word acts once and in order; an op-enable waits for the task before; bad words are named."""
    pc = _pc(bench)
    block, bus, links = pc.block, pc.block.bus, pc.registers
    written, starts = bus.write & bus.ready, block.task_start
    mask = pc.value[:OP_ENABLE_BITS]
    done = Cat(written, starts, links.link_base, links.link_amount)
    bench.claim(
        "one word takes effect at a time", reduce(or_, (done == 1 << n for n in range(4))) | (done == 0)
    )
    in_order(
        bench,
        "words",
        pc.taken & (pc.write | pc.enable | pc.base | pc.amount),
        Cat(
            pc.write,
            pc.enable,
            pc.base,
            pc.amount,
            Mux(pc.enable, mask, pc.value),
            Mux(pc.write, pc.offset, 0),
        ),
        done.any(),
        Cat(
            done,
            Mux(starts, block.op_enable, Mux(written, bus.wdata, links.link_value)),
            Mux(written, bus.offset, 0),
        ),
        2,
    )
    bench.claim("blocks are enabled by op-enable words only", (block.op_enable == 0) | starts)
    luts = Cat(bus.offset == r.offset for r in registers()["DPU"] if r.name.startswith("LUT_ACCESS")).any()
    dpu = block.busy[op_enable_fields()["DPU"]]
    bench.claim("LUT_ACCESS is written while the DPU is idle", ~(bus.write & luts & dpu))

    active, ends = _task(bench, block)
    bench.claim("a task starts when the one before has ended", ~starts | ~active)
    bench.claim(
        "a task ends when its blocks are idle and all responses have come",
        block.task_done == bench.past(ends, name="ended"),
    )
    event, refused = pc.diagnostics.i[WORD], pc.diagnostics.i[KICK].valid
    in_order(
        bench,
        "bad words",
        pc.taken & (pc.bad | (pc.enable & ~mask.any())),
        Cat(pc.offset, pc.value),
        event.valid,
        Cat(event.payload.register, event.payload.value),
        1,
    )
    named = event.payload.code == DiagnosticCode.BAD_COMMAND
    bench.claim("bad words are named BAD_COMMAND", ~event.valid | named)
    bench.claim("a kick during a kick is named", ~(links.kick & block.running) | refused)
    bench.reach(starts & (block.op_enable == 0x1D))
    bench.reach(block.task_done)
    bench.reach(written & (bus.offset == 0x4100))
    bench.reach(event.valid & (event.payload.register == 0x3010))


def pc_chain(bench: Bench) -> None:
    """The lists of a kick are as many as its tasks, each at the link of the one before; then it ends."""
    bits = 3
    pc = _pc(bench, bits)
    block, m, regs, sequence, words = pc.block, bench.m, pc.registers, pc.sequence, pc.words
    fields = registers()["PC"]
    bench.assume(~(block.running & regs.kick))
    bench.assume(regs.tasks < 1 << bits)
    accepted = named(bench, "accepted", regs.kick & ~block.running & ~regs.slave_mode & (regs.tasks != 0))
    follows = named(bench, "follows", pc.starts & block.running)
    bench.claim("a kick starts its first list", (pc.starts & ~block.running) == accepted)
    bench.claim("a list is started only while the fetcher can take it", ~pc.starts | pc.fetcher.ready)
    linking = regs.link_base + regs.link_amount
    links = bench.count("links", 2, up=pc.taken & (pc.base | pc.amount), down=linking)
    here = (pc.fetcher.base == regs.base) & (pc.fetcher.amount == regs.amount)
    bench.claim(
        "a list is read where the registers say, which have the link", ~pc.starts | (here & (links == 0))
    )

    # What the words of the current list were.
    new = Signal(init=1, name="new")  # the next word is the first one of its list
    linked, enabled = Signal(name="linked"), Signal(name="enabled")
    with m.If(pc.taken):
        m.d.sync += [
            new.eq(pc.last),
            linked.eq(pc.base | (linked & ~new)),
            enabled.eq(pc.enable | (enabled & ~new)),
        ]
    final = bench.when(accepted, (regs.tasks - 1)[:bits], "last_list")
    begun = Signal(bits, name="begun")  # lists of the kick that have been started, minus one
    over = Signal(bits + 1, name="over")  # lists of the kick that have been taken as a whole
    with m.If(accepted):
        m.d.sync += [begun.eq(0), over.eq(0)]
    with m.Elif(follows):
        m.d.sync += begun.eq(begun + 1)
    with m.If(pc.taken & pc.last):
        m.d.sync += over.eq(over + 1)
    bench.claim("a list follows only on a link to it", ~follows | linked)
    bench.claim("a list follows only on an op-enable", ~follows | enabled)
    bench.claim("no more lists than tasks", ~follows | (begun < final))
    bench.claim("at most one list ahead", pc.lists <= 2)

    # What the registers inside mean, with which the solver finds the other claims.
    index, ahead = sequence.index, pc.ahead
    end = bench.past(words.accept & words.last, name="end_of_list")
    passed = Signal(name="passed")  # all words of the list `index` have been taken
    with m.If(pc.taken & pc.last):
        m.d.sync += passed.eq(1)
    with m.Elif(accepted | (end & ahead) | (follows & ~words.valid)):
        m.d.sync += passed.eq(0)
    bench.claim("the list that is decoded is one of the kick", index <= final)
    bench.claim("the list fetched last is that one or the next", begun == index + ahead)
    bench.claim("nothing is fetched behind the last list", ~(ahead | sequence.follows) | (index != final))
    bench.claim("lists are decoded one after another", ~block.running | (over == index + passed))

    place = bench.when(pc.taken, over, "place")
    bench.claim("a word belongs to the list that is decoded", ~words.valid | (place == index))
    bench.claim("the index of a task is that of its list", ~block.task_start | (block.task == place))
    bench.claim("the last task is shown", block.last_task == (~block.running | (block.task == final)))

    # A list without an op-enable word, or without a link, if tasks are left, ends the work.
    without = pc.taken & pc.last & ~(pc.enable | (enabled & ~new))
    missing = pc.taken & pc.last & ~without & (over != final) & ~(pc.base | (linked & ~new))
    dead, broken, drain = Signal(name="dead"), Signal(name="broken"), Signal(name="drain")
    with m.If(accepted):
        m.d.sync += [broken.eq(0), drain.eq(0)]
    with m.If(end & enabled & ~ahead & ((index == final) | ~linked)):
        m.d.sync += drain.eq(1)
    with m.If(without):
        m.d.sync += dead.eq(1)
    with m.If(missing):
        m.d.sync += broken.eq(1)
    event = pc.diagnostics.i[KICK]
    bench.claim("behind a list without an op-enable no word is taken", ~dead | ~(pc.taken | pc.starts))
    bench.claim("behind a list without an op-enable the kick does not end", ~dead | block.running)
    bench.claim("behind a missing link no list is started", ~broken | ~follows)
    at_enable = event.payload.register == fields["OPERATION_ENABLE"].offset
    at_link = event.payload.register == fields["BASE_ADDRESS"].offset
    in_order(
        bench,
        "faults",
        without | missing,
        Cat(without, missing),
        event.valid & ~regs.kick,
        Cat(at_enable, at_link),
        1,
    )
    number = event.payload.value + 1 == over
    bench.claim("a fault has the number of its list", ~event.valid | regs.kick | number)
    bench.claim("a kick that cannot start is named", event.valid | ~regs.kick | accepted)

    # The end of a kick.
    written = block.bus.write & block.bus.ready
    effect = pc.taken & (pc.write | pc.enable)
    waiting = bench.count("waiting", 3, up=effect, down=written | block.task_start)
    active, _ = _task(bench, block)
    whole = over == final + 1
    ended = bench.past(block.running, name="running_before") & ~block.running
    bench.claim("nothing is left when the kick is about to end", ~drain | broken | whole)
    bench.claim("a kick ends behind its last list or a missing link", ~ended | broken | whole)
    bench.claim("a kick ends behind its last task", ~ended | ~(active | (waiting != 0) | (pc.lists != 0)))
    busy = written | block.task_start | pc.taken | follows
    bench.claim("nothing is written or started outside of a kick", block.running | ~busy)
    quiet = Signal(4, name="quiet")
    with m.If(block.running & (broken | whole) & ~dead & ~active & (waiting == 0)):
        m.d.sync += quiet.eq(quiet + 1)
    with m.Else():
        m.d.sync += quiet.eq(0)
    bench.claim("a kick ends at most 8 cycles behind its last task", quiet <= 8)
    bench.reach(ended & (final == 1) & ~broken)
    bench.reach(ended & broken)
