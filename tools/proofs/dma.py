"""Proofs of the DMA and of the readers and writers in front of it."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib.fifo import SyncFIFO

from rkcosim.rtl import list_fetch
from rkcosim.rtl.layouts import ReadClient
from rkcosim.rtl.list_fetch import FETCH_BYTES, ListFetcher
from rkcosim.rtl.npu import ddma, dpu_rdma_operands, write_buffer
from rkcosim.rtl.npu.atom_reader import AtomReader
from rkcosim.rtl.npu.atom_writer import AtomWriter
from rkcosim.rtl.npu.cna_fetch import BurstReader
from rkcosim.rtl.npu.ddma import PAGE_BEATS, BurstSplitter, Ddma, SplitTracker
from rkcosim.rtl.npu.dpu_rdma_operands import OperandReader
from rkcosim.rtl.npu.write_buffer import WriteBuffer
from rkcosim.spec.config import NpuConfig
from rkcosim.spec.regs import registers
from tools.proofs.bench import Bench, in_order, offers, stable


def _within_page(address: Value, beats_m1: Value) -> Value:
    """Whether a burst stays within a 4 KiB page."""
    return (address[5:12] + beats_m1) < PAGE_BEATS


def burst_splitter(bench: Bench) -> None:
    """Bursts stay within 4 KiB and together are the request; each client's turn comes."""
    ports = 8
    block = bench.drive("block", BurstSplitter(ports, unbased=ReadClient.PC), skip=("addr", "base"))
    bench.m.d.comb += block.base.eq(Cat(*[0] * 5, bench.constant("base_beats", 27)))
    requests = []
    for n in range(ports):
        beats = bench.free(f"addr_beats_{n}", 27)
        bench.m.d.comb += block.addr[n].eq(Cat(*[0] * 5, beats))
        offers(bench, block.valid[n], block.ready[n], Cat(beats, block.beats_m1[n]))
        requests.append(Cat(block.addr[n], block.beats_m1[n]))
    taken = block.ready.any()
    many = sum((Value.cast(block.ready[n]) for n in range(ports)), start=Value.cast(0))
    bench.claim("one client is served at a time", many <= 1)
    bench.claim("only a client that asks is served", (block.ready & ~block.valid) == 0)

    # What has been taken and is to be issued.
    number = Signal(3, name="number")
    for n in range(ports):
        with bench.m.If(block.ready[n]):
            bench.m.d.comb += number.eq(n)
    request = Array(requests)[number]
    base = Mux(number == ReadClient.PC, 0, block.base)
    start = bench.when(taken, (request[:32] + base)[:32], "start")
    left = Signal(5, name="left")  # beats that are to be issued
    client = bench.when(taken, number, "client")
    issued = block.o_valid & block.allow
    amount = block.o.beats_m1 + 1
    place = Signal(32, name="place")
    bench.m.d.comb += place.eq(start)
    done = Signal(5, name="done")  # beats of the request that have been issued
    with bench.m.If(taken):
        bench.m.d.sync += [left.eq(request[32:36] + 1), done.eq(0)]
    with bench.m.Elif(issued):
        bench.m.d.sync += [left.eq(left - amount), done.eq(done + amount)]
    bench.claim("a burst stays within 4 KiB", ~block.o_valid | _within_page(block.o.addr, block.o.beats_m1))
    bench.claim(
        "a burst is the next part of the request",
        ~block.o_valid | (block.o.addr == (place + (done << 5))[:32]),
    )
    bench.claim("a burst belongs to its client", ~block.o_valid | (block.o.id == client))
    bench.claim("a burst has no more beats than are left", ~block.o_valid | (amount <= left))
    bench.claim("the last burst ends the request", ~(issued & ~block.more) | (amount == left))
    bench.claim("a request is taken when nothing is left", ~taken | (left == Mux(issued, amount, 0)))

    waiting = bench.constant("waiting", 3)
    mine = Array(block.valid[n] & ~block.ready[n] for n in range(ports))[waiting]
    passed = Signal(4, name="passed")
    with bench.m.If(~mine):
        bench.m.d.sync += passed.eq(0)
    with bench.m.Elif(taken):
        bench.m.d.sync += passed.eq(passed + 1)
    bench.claim("at most seven requests pass a waiting one", passed <= ports - 1)
    bench.reach(issued & block.more)
    bench.reach(passed == ports - 1)


def split_tracker(bench: Bench) -> None:
    """Each end of a burst gets the flag of its burst, for each client in order."""
    bench.patch(ddma, "MAX_OUTSTANDING", 4)
    block = bench.drive("block", SplitTracker(2))
    for client in (0, 1):
        pushed = block.push & (block.push_id == client)
        popped = block.pop & (block.pop_id == client)
        flight = bench.count(f"flight_{client}", 3, up=pushed, down=popped)
        bench.assume(~popped | (flight != 0))
        bench.assume(~pushed | (flight < 3))
        answered = bench.past(popped, name=f"popped_{client}")
        in_order(bench, f"client {client}", pushed, block.push_more, answered, block.more, 4)
        bench.reach(answered & block.more)


BURSTS = 3
"""Limit of outstanding bursts that is written to the DMA's register."""


def ddma_bus(bench: Bench) -> None:
    """The AXI4 master: stable offers, bursts within 4 KiB, data behind their address, the limit."""
    bench.patch(ddma, "MAX_OUTSTANDING", 8)
    block = Ddma()
    skip = ["port", "sdma_port", "axi.rdata", "dma_base"]
    outstanding = registers()["DDMA"]["CFG_OUTSTANDING"]
    limit = sum(BURSTS << field.lsb for field in outstanding.fields.values())
    skip += [f"reads.{n}.req.payload" for n in range(8)] + [f"writes.{n}" for n in range(2)]
    bench.drive("dma", block, skip=skip)
    m, axi = bench.m, block.axi
    m.d.comb += [
        block.port.write.eq(bench.first),
        block.port.offset.eq(outstanding.local),
        block.port.wdata.eq(limit),
    ]
    for n, client in enumerate(block.reads):
        bench.assume(~bench.first | ~client.req.valid)
        beats = bench.free(f"read_{n}", 8)
        m.d.comb += [
            client.req.payload.addr.eq(beats << 5),
            client.req.payload.beats_m1.eq(bench.free(f"rb_{n}", 2)),
        ]
        offers(bench, client.req.valid, client.req.ready, Cat(Value.cast(client.req.payload)))
    for n, client in enumerate(block.writes):
        beats, count = bench.free(f"write_{n}", 8), bench.free(f"wb_{n}", 2)
        m.d.comb += [
            client.req.valid.eq(bench.free(f"ask_{n}")),
            client.req.payload.addr.eq(beats << 5),
            client.req.payload.beats_m1.eq(count),
            client.data.valid.eq(bench.free(f"give_{n}")),
            client.data.payload.data[0].eq(bench.free(f"word_{n}")),
        ]
        bench.assume(~bench.first | ~client.req.valid)
        offers(bench, client.req.valid, client.req.ready, Cat(beats, count))
        offers(bench, client.data.valid, client.data.ready, client.data.payload.data[0])
    asked, wrote = axi.arvalid & axi.arready, axi.awvalid & axi.awready
    ended, answered = axi.rvalid & axi.rready & axi.rlast, axi.bvalid & axi.bready
    sent = axi.wvalid & axi.wready
    reading = bench.count("reading", 9, up=asked, down=ended)
    writing = bench.count("writing", 9, up=wrote, down=answered)
    unanswered = bench.count("unanswered", 9, up=sent & axi.wlast, down=answered)
    bench.assume(~axi.rvalid | (reading != 0))
    bench.assume(~axi.bvalid | (unanswered != 0))
    for name in ("ar", "aw"):
        valid, ready = getattr(axi, f"{name}valid"), getattr(axi, f"{name}ready")
        address, length = getattr(axi, f"{name}addr"), getattr(axi, f"{name}len")
        stable(bench, name, valid, ready, Cat(address, length, getattr(axi, f"{name}id")))
        bench.claim(f"{name}: a burst stays within 4 KiB", ~valid | _within_page(address, length))
        bench.claim(f"{name}: a burst has at most 16 beats", ~valid | (length < 16))
        bench.claim(f"{name}: 32 bytes in each beat", ~valid | (getattr(axi, f"{name}size") == 5))
    stable(bench, "w", axi.wvalid, axi.wready, Cat(axi.wdata[0], axi.wlast))
    beat = Signal(5, name="beat")
    with m.If(sent):
        m.d.sync += beat.eq(Mux(axi.wlast, 0, beat + 1))
    in_order(bench, "burst lengths", wrote, axi.awlen[:5], sent & axi.wlast, beat, BURSTS)
    bench.claim("at most as many bursts as the limit", (reading <= BURSTS) & (writing <= BURSTS))
    bench.reach(sent & axi.wlast & (beat == 1))
    bench.reach(ended & (reading == BURSTS))


def write_buffer_whole(bench: Bench) -> None:
    """A held-back request leaves only when all its beats are there; beats leave in order."""
    bench.patch(write_buffer, "BURST_BEATS", 4)
    block = WriteBuffer()
    bench.drive("block", block, skip=("client.data.payload", "client.req.payload", "whole"))
    m, client, port = bench.m, block.client, block.port
    word, last, address = bench.free("word", 3), bench.free("last"), bench.free("address", 4)
    m.d.comb += [
        block.whole.eq(1),
        client.data.payload.data[:3].eq(word),
        client.data.payload.last.eq(last),
        client.req.payload.addr.eq(address << 5),
    ]
    bench.assume(~bench.first | ~(client.req.valid | client.data.valid))  # the setting is taken while idle
    offers(bench, client.data.valid, client.data.ready, Cat(word, last))
    offers(bench, client.req.valid, client.req.ready, address)
    entered, left = client.data.valid & client.data.ready, port.data.valid & port.data.ready
    asked = port.req.valid & port.req.ready
    beat = Signal(3, name="beat")
    with m.If(entered):
        m.d.sync += beat.eq(Mux(last, 0, beat + 1))
    bench.assume(last | (beat < 3))  # at most four beats in a burst
    complete = bench.count("complete", 4, up=entered & last, down=asked)
    owed = bench.count("owed", 4, up=asked, down=left & port.data.payload.last)
    bench.assume(~port.data.ready | (owed != 0))  # the DMA takes the data of a burst after its request
    bench.claim("a request leaves when its beats are there", ~asked | (complete != 0))
    in_order(
        bench,
        "beats",
        entered,
        Cat(word, last),
        left,
        Cat(port.data.payload.data[:3], port.data.payload.last),
        5,
    )
    stable(bench, "requests", port.req.valid, port.req.ready, port.req.payload.addr[5:9])
    stable(
        bench,
        "data",
        port.data.valid,
        port.data.ready,
        Cat(port.data.payload.data[:3], port.data.payload.last),
    )
    bench.reach(asked & (beat == 2))
    bench.reach(left & port.data.payload.last)


def atom_writer(bench: Bench) -> None:
    """Every atom of a run is written once and in order, to the half of the beat that its address names."""
    block = AtomWriter()
    bench.drive("block", block, skip=("run.payload", "atoms.payload", "write.done"))
    m, run, atoms, out = bench.m, block.run, block.atoms, block.write
    half, number = bench.free("half"), bench.free("number", 3)
    two = bench.free("two")
    tag = Signal(4, name="tag")  # number of the next atom, modulo 16
    bench.assume(number != 0)
    m.d.comb += [
        run.payload.addr[4].eq(half),
        run.payload.atoms.eq(number),
        atoms.payload.two.eq(two),
        atoms.payload.data[:4].eq(tag),
        atoms.payload.data[128:132].eq(tag + 1),
    ]
    offers(bench, run.valid, run.ready, Cat(half, number))
    offers(bench, atoms.valid, atoms.ready, two)
    taken, opened = atoms.valid & atoms.ready, run.valid & run.ready
    with m.If(taken):
        m.d.sync += tag.eq(tag + 1 + two)
    # A pair never extends beyond the end of its run.
    left = bench.count("left", 4, up=Mux(opened, number, 0), down=Mux(taken, 1 + two, 0))
    here = Signal(5, name="here")
    m.d.comb += here.eq(left + Mux(opened, number, 0))
    bench.assume(~(atoms.valid & two) | (here != 1))
    beat = out.data.payload
    low, high = beat.strb[:16].any(), beat.strb[16:].any()
    sent = out.data.valid & out.data.ready
    expected = Signal(4, name="expected")
    with m.If(sent):
        m.d.sync += expected.eq(expected + low + high)
    bench.claim("the lower half has the next atom", ~(sent & low) | (beat.data[:4] == expected))
    bench.claim(
        "the upper half has the next atom", ~(sent & high) | (beat.data[128:132] == (expected + low)[:4])
    )
    bench.claim("no beat is empty", ~sent | low | high)
    whole = (beat.strb[:16].all() | ~low) & (beat.strb[16:].all() | ~high)
    bench.claim("an atom is written as a whole", ~sent | whole)
    stable(
        bench,
        "requests",
        out.req.valid,
        out.req.ready,
        Cat(out.req.payload.addr[4:6], out.req.payload.beats_m1),
    )
    stable(
        bench,
        "data",
        out.data.valid,
        out.data.ready,
        Cat(beat.data[:4], beat.data[128:132], beat.strb, beat.last),
    )
    beats = bench.count("beats", 5, up=sent)
    with m.If(sent & beat.last):
        m.d.sync += beats.eq(0)
    length = ((number + half + 1) >> 1)[:3]
    in_order(bench, "lengths", opened, length, sent & beat.last, (beats + 1)[:3], 3)
    asks = out.req.valid & out.req.ready
    in_order(bench, "requested lengths", opened, length, asks, (out.req.payload.beats_m1 + 1)[:3], 3)
    bench.reach(sent & beat.last & (beats == 3))
    bench.reach(sent & high & ~low)


def _answers(bench: Bench, read: object, bits: int) -> tuple[Signal, Value]:
    """Model a memory that answers requests in order; returns the number of a beat, and whether one arrives.

    Requests are consecutive: the beat that is answered is the next one after those answered before.
    """
    asked = read.req.valid & read.req.ready  # type: ignore[attr-defined]
    arrives = read.rsp.valid  # type: ignore[attr-defined]
    amount = read.req.payload.beats_m1 + 1  # type: ignore[attr-defined]
    open_beats = bench.count("open_beats", bits, up=Mux(asked, amount, 0), down=arrives)
    bench.assume(~arrives | (open_beats != 0))
    place = Signal(bits, name="place")
    return place, arrives


def list_fetcher(bench: Bench) -> None:
    """A list of n fetches gives its 2 n words in order, marks the last, and reads nothing behind it."""
    bench.patch(list_fetch, "FIFO_BEATS", 4)
    bench.patch(list_fetch, "MAX_BURST", 2)
    block = ListFetcher()
    bench.drive("block", block, skip=("base", "amount", "read.rsp.payload", "start"))
    m, read, words = bench.m, block.read, block.words
    base, amount = bench.constant("base", 3), bench.constant("amount", 3)
    start = bench.free("start")
    started = Signal(name="started")
    m.d.comb += [block.base.eq(base), block.amount.eq(amount), block.start.eq(start & ~started)]
    with m.If(start & block.ready):
        m.d.sync += started.eq(1)
    place, arrives = _answers(bench, read, 5)
    with m.If(block.start):
        m.d.sync += place.eq(base[1:])
    with m.Elif(arrives):
        m.d.sync += place.eq(place + 1)
    for word in range(4):
        m.d.comb += read.rsp.payload.data.word_select(word, 64)[:5].eq(4 * place + word)
    taken = words.valid & words.ready
    given = bench.count("given", 5, up=taken)
    first_word = base * (FETCH_BYTES // 8)
    last = given == 2 * amount + 1
    bench.claim("words come in order", ~words.valid | (words.payload.word[:5] == (first_word + given)[:5]))
    bench.claim("the last word is marked", ~words.valid | (words.payload.last == last))
    bench.claim("no more words than the list has", ~words.valid | (given <= 2 * amount + 1))
    end = ((base + amount + 2) >> 1)[:5]  # first beat behind the list
    ask_end = (read.req.payload.addr[5:10] + read.req.payload.beats_m1 + 1)[:5]
    bench.claim("nothing behind the list is read", ~read.req.valid | (ask_end <= end))
    whole = given == 2 * amount + 2
    bench.claim("the next list is taken when every word has been", ~(started & whole) | block.ready)
    stable(bench, "words", words.valid, words.ready, words.payload.word[:5])
    bench.reach(taken & words.payload.last & (amount == 5))
    bench.reach(started & base[0])


def atom_reader(bench: Bench) -> None:
    """A run of n atoms gives its atoms in order; only beats that have them are read."""
    _atom_reader(bench, 3)


def atom_reader_bursts(bench: Bench) -> None:
    """The same for runs of several bursts."""
    _atom_reader(bench, 7)


def _atom_reader(bench: Bench, bits: int) -> None:
    """Claims for runs whose number of atoms has `bits` bits."""
    block = AtomReader(32)
    bench.drive("block", block, skip=("run.payload", "read.rsp.payload", "run.valid"))
    m, read, atoms = bench.m, block.read, block.atoms
    half, number = bench.constant("half"), bench.constant("number", bits)
    bench.assume(number != 0)
    offered = Signal(name="offered")
    m.d.comb += [
        block.run.valid.eq(~offered & bench.free("offer")),
        block.run.payload.addr[4].eq(half),
        block.run.payload.atoms.eq(number),
    ]
    with m.If(block.run.valid & block.run.ready):
        m.d.sync += offered.eq(1)
    place, arrives = _answers(bench, read, bits)
    with m.If(arrives):
        m.d.sync += place.eq(place + 1)
    wide = bits + 1
    low, high = read.rsp.payload.data[:wide], read.rsp.payload.data[128 : 128 + wide]
    m.d.comb += [low.eq(2 * place), high.eq(2 * place + 1)]
    taken = atoms.valid & atoms.ready
    given = bench.count("given", wide, up=taken)
    bench.claim("atoms come in order", ~atoms.valid | (atoms.payload.data[:wide] == (given + half)[:wide]))
    bench.claim("no more atoms than the run has", ~atoms.valid | (given < number))
    bench.claim("idle when all atoms were given and not before", ~offered | (block.idle == (given == number)))
    bench.claim("at most 32 beats are requested or buffered", block.beats <= 32)
    asked = read.req.valid & read.req.ready
    amount = read.req.payload.beats_m1 + 1
    requested = bench.count("requested", wide, up=Mux(asked, amount, 0))
    needed = ((number + half + 1) >> 1)[:wide]
    bench.claim("only beats with atoms of the run are read", requested <= needed)
    bench.reach(taken & (given == 5))
    bench.reach(offered & block.idle)


def operand_reader(bench: Bench) -> None:
    """Each octet has its atoms at the places of their kinds, in order; only beats that have them are read."""
    bench.patch(dpu_rdma_operands, "FIFO_BEATS", 4)
    bench.patch(dpu_rdma_operands, "BURST_BEATS", 2)
    skip = ("start", "base", "blocks", "use", "port.rsp.payload")
    block = bench.drive("block", OperandReader(), skip=skip)
    m, port, out = bench.m, block.port, block.octets
    half, blocks, use = bench.constant("half"), bench.constant("blocks", 2), bench.constant("use", 3)
    bench.assume((use != 0) & (blocks != 0))
    m.d.comb += [
        block.start.eq(bench.first),
        block.base[0].eq(half),
        block.blocks.eq(blocks),
        block.use.eq(use),
    ]
    place, arrives = _answers(bench, port, 5)
    with m.If(arrives):
        m.d.sync += place.eq(place + 1)
    number = (2 * place - half)[:5]  # number of the atom in the lower half of a beat
    m.d.comb += [
        port.rsp.payload.data[:5].eq(number),
        port.rsp.payload.data[128:133].eq(number + 1),
    ]
    taken = out.valid & out.ready
    given = bench.count("given", 4, up=taken)
    next_atom = bench.count("next_atom", 5, up=Mux(taken, (use[0] << 1) + use[1] + use[2], 0))
    octet = Value.cast(out.payload)
    kinds = ((use[0], 0), (use[0], 1), (use[1], use[0] << 1), (use[2], (use[0] << 1) + use[1]))
    for n, (used, ahead) in enumerate(kinds):
        atom = octet[128 * n : 128 * n + 5]
        bench.claim(f"atom {n} of an octet", ~out.valid | (atom == Mux(used, (next_atom + ahead)[:5], 0)))
    stable(bench, "octets", out.valid, out.ready, Cat(*(octet[128 * n : 128 * n + 5] for n in range(4))))
    bench.claim("no more octets than blocks", ~out.valid | (given < blocks))
    bench.claim("idle when all octets were given", bench.first | ~block.idle | (given == blocks))
    asked = port.req.valid & port.req.ready
    amount = port.req.payload.beats_m1 + 1
    requested = bench.count("requested", 6, up=Mux(asked, amount, 0))
    atoms = Mux(use[0], blocks << 1, 0) + Mux(use[1], blocks, 0) + Mux(use[2], blocks, 0)
    bench.claim("only beats with atoms are read", requested <= ((atoms + half + 1) >> 1))
    bench.claim("no more beats than the buffer has are requested or buffered", block.beats <= 4)
    bench.reach(taken & (given == 1) & use.all() & half)
    bench.reach(block.idle & (given == 2))


def burst_reader(bench: Bench) -> None:
    """Runs of atoms, joined or not, give their atoms in order; bursts end at multiples of 512 bytes."""
    block = BurstReader(NpuConfig(name="small buffer", read_fifo_beats=32))
    skip = ("run.payload", "read.rsp", "burst_m1", "read.req.ready")
    bench.drive("block", block, skip=skip)
    m, run, read, beat = bench.m, block.run, block.read, block.beat
    longest = bench.constant("longest", 4)
    start, number = bench.free("start", 6), bench.free("number", 2)
    bench.assume(number != 0)
    m.d.comb += [
        block.burst_m1.eq(longest),
        run.payload.addr.eq(start),
        run.payload.atoms.eq(number),
    ]
    offers(bench, run.valid, run.ready, Cat(start, number))

    # The memory answers the requests in order; it takes two before it has answered the first.
    m.submodules.requests = requests = SyncFIFO(width=6 + 4, depth=2)
    step = Signal(4, name="step")  # beats of the oldest request that have been given
    asked = read.req.valid & read.req.ready
    first_beat, beats_m1 = requests.r_data[:6], requests.r_data[6:]
    answers = bench.free("answers")
    tag = Signal(6, name="tag")
    m.d.comb += [
        read.req.ready.eq(requests.w_rdy),
        requests.w_en.eq(asked),
        requests.w_data.eq(Cat(read.req.payload.addr[5:11], read.req.payload.beats_m1)),
        read.rsp.valid.eq(answers & requests.r_rdy),
        read.rsp.payload.last.eq(step == beats_m1),
        requests.r_en.eq(read.rsp.valid & read.rsp.payload.last),
        tag.eq((first_beat + step) << 1),
        read.rsp.payload.data[:6].eq(tag),
        read.rsp.payload.data[128:134].eq(tag + 1),
    ]
    with m.If(read.rsp.valid):
        m.d.sync += step.eq(Mux(read.rsp.payload.last, 0, step + 1))

    # The atoms of one run are followed.
    entered, left = run.valid & run.ready, beat.valid & beat.ready
    low, high = beat.payload.low, beat.payload.high
    gone = Mux(left, low + high, 0)
    inside = bench.count("inside", 7, up=Mux(entered, number, 0), down=gone)
    mark, marked = bench.free("mark"), Signal(name="marked")
    ahead, begin, length = Signal(7, name="ahead"), Signal(6, name="begin"), Signal(2, name="length")
    given = Signal(4, name="given")
    mine_low = marked & low & (ahead == 0) & (given < length)
    place = Mux(ahead == 0, given + low, 0)
    mine_high = marked & high & (ahead <= low) & (place < length)
    with m.If(entered & mark & ~marked):
        m.d.sync += [marked.eq(1), ahead.eq(inside - gone), begin.eq(start), length.eq(number)]
    with m.Elif(left):
        m.d.sync += [
            ahead.eq(Mux(ahead > gone, ahead - gone, 0)),
            given.eq(given + mine_low + mine_high),
        ]
    data = beat.payload.data
    bench.claim("a lower half is the next atom", ~(left & mine_low) | (data[:6] == (begin + given)[:6]))
    bench.claim(
        "an upper half is the next atom", ~(left & mine_high) | (data[128:134] == (begin + place)[:6])
    )
    bench.claim("a beat has an atom", ~beat.valid | low | high)
    bench.claim("no more atoms than the runs have", gone <= inside)
    bench.claim("idle only when all atoms were given", ~block.idle | (inside == 0))
    burst = read.req.payload
    bench.claim(
        "a burst ends at a multiple of 512 bytes", ~read.req.valid | ((burst.addr[5:9] + burst.beats_m1) < 16)
    )
    bench.claim("a burst is not longer than software allows", ~read.req.valid | (burst.beats_m1 <= longest))
    bench.claim("no more beats than the buffer has are requested or buffered", block.beats <= 32)
    stable(bench, "requests", read.req.valid, read.req.ready, Cat(burst.addr[5:11], burst.beats_m1))
    stable(bench, "beats", beat.valid, beat.ready, Cat(data[:6], data[128:134], low, high))
    bench.reach(left & mine_low & (given == 2))
    bench.reach(block.idle & marked & (given == length))
