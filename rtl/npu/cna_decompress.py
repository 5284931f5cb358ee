"""Decompression of weights: 16 segments are decoded in parallel into one stream [HW 4.13]."""

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.bus import DiagnosticMerge
from rkcosim.rtl.layouts import AXI_BITS, DiagnosticCode, DiagnosticPort
from rkcosim.rtl.npu.checks import SPACING, Check, add_checker
from rkcosim.rtl.npu.cna_fetch import ATOM_ADDRESS_BITS, AtomBeat, AtomRun
from rkcosim.rtl.npu.cna_types import DEPTHWISE
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec import weight_code as code
from rkcosim.spec.regs import registers
from rkcosim.spec.types import ATOM

STORED_ATOMS = 8
"""Capacity of a segment's decoder in atoms; requested atoms count as well."""

RUN_ATOMS = code.SEGMENT_ALIGN // ATOM
"""Maximum number of atoms of one request for a segment."""

AMOUNT_BITS = (code.MOST_UNITS - 1).bit_length()
ATOM_BITS = 8 * ATOM
WORDS = ATOM_BITS // 32


class LaneFault(data.Struct):
    """Reason for which a segment cannot be decoded.

    Members
    -------
    short : the segment has too few bits.
    byte : if `short` is 0, position of the header byte that requests an unknown code.
    value : value of that byte.
    """

    short: 1
    byte: 4
    value: 8


class SegmentDecoder(wiring.Component):
    """Decode one segment, at most one weight a cycle.

    Members
    -------
    clear : In(1)               : discard the state of the previous segment.
    ended : In(1)               : all atoms of the segment have arrived.
    atom : In(stream of 128)    : the segment's atoms, the first of which is its header. Always accepted,
        because atoms are requested only while `room` is 1.
    asked : In(3)               : number of atoms that are requested in this cycle.
    room : Out(1)               : `RUN_ATOMS` more atoms can be requested.
    quad : Out(stream of 32)    : four weights.
    stuck : Out(1)              : no weight follows those of `quad`, for the reason in `fault`.
    fault : Out(LaneFault)
    """

    clear: In(1)
    ended: In(1)
    atom: In(stream.Signature(ATOM_BITS, always_ready=True))
    asked: In(range(RUN_ATOMS + 1))
    room: Out(1)
    quad: Out(stream.Signature(32))
    stuck: Out(1)
    fault: Out(LaneFault)

    def elaborate(self, platform: object) -> Module:
        m = Module()

        # 1. Store of the atoms that have arrived, and the room for more.
        m.submodules.store = store = Memory(shape=ATOM_BITS, depth=STORED_ATOMS, init=[])
        put, get = store.write_port(), store.read_port(domain="comb")
        level = Signal(range(STORED_ATOMS + 1))  # atoms in the store
        room = Signal(range(STORED_ATOMS + 1), init=STORED_ATOMS)  # atoms that may be requested
        pop = Signal()
        m.d.comb += [
            put.en.eq(self.atom.valid),
            put.data.eq(self.atom.payload),
            self.room.eq(room >= RUN_ATOMS),
        ]
        m.d.sync += [level.eq(level + self.atom.valid - pop), room.eq(room - self.asked + pop)]
        with m.If(self.atom.valid):
            m.d.sync += put.addr.eq(put.addr + 1)
        with m.If(pop):
            m.d.sync += get.addr.eq(get.addr + 1)

        # 2. The header.
        known = Signal()  # the header has been read
        runs = Signal()
        offset = Signal(8, reset_less=True)
        classes = Signal(32, reset_less=True)
        length = Signal(3, reset_less=True)
        blamed = Signal(8, reset_less=True)  # value that is reported with an unknown run code
        header = get.data
        wrong = Signal()
        take_header = Signal()
        m.d.comb += [
            take_header.eq(~known & ~self.stuck & (level != 0)),
            wrong.eq(self._header_fault(m, header, take_header)),
        ]
        with m.If(take_header):
            m.d.sync += [
                known.eq(~wrong),
                self.stuck.eq(wrong),
                runs.eq(header[0]),
                offset.eq(header.word_select(code.HEADER_OFFSET, 8)),
                classes.eq(header.word_select(code.HEADER_CLASSES // 4, 32)),
                length.eq(header.word_select(code.HEADER_RUNS, 8)),
                blamed.eq(header.word_select(code.UNKNOWN_RUN, 8)),
            ]

        # 3. Two words of bits; the first `place` bits of the first word are consumed.
        low, high = Signal(32, reset_less=True), Signal(32, reset_less=True)
        words = Signal(range(3))
        place = Signal(5)
        word = Signal(range(WORDS))  # index of the next word in the first stored atom
        moved = Signal()  # the first word is consumed
        more = Signal()
        m.d.comb += [
            more.eq(known & (level != 0) & ((words != 2) | moved)),
            pop.eq(take_header | (more & (word == WORDS - 1))),
        ]
        left = Signal(range(3))
        m.d.comb += left.eq(words - moved)
        with m.If(moved):
            m.d.sync += low.eq(high)
        with m.If(more):
            m.d.sync += word.eq(word + 1)
            with m.If(left == 0):
                m.d.sync += low.eq(header.word_select(word, 32))
            with m.Else():
                m.d.sync += high.eq(header.word_select(word, 32))
        m.d.sync += words.eq(left + more)

        # 4. One code per cycle, when all of its bits are available or no more bits follow.
        over = Signal()  # no bits follow
        bits = Signal(16)
        have = Signal(7)
        zeros = Signal(range(4))  # remaining zeros of the run
        room_for_value = Signal()
        reading = Signal()
        m.d.comb += [
            over.eq(self.ended & (level == 0)),
            bits.eq(Cat(low, Mux(words == 2, high, 0)) >> place),
            have.eq(Cat(Const(0, 5), words) - place),
            reading.eq(known & ~self.stuck & room_for_value & (zeros == 0) & ((words == 2) | over)),
        ]
        m.submodules.decode = decode = CodeReader()
        m.d.comb += [
            decode.bits.eq(Mux(reading & (words != 0), bits, 0)),
            decode.have.eq(have),
            decode.runs.eq(runs),
            decode.classes.eq(classes),
        ]
        good = Signal()
        after = Signal(6)
        m.d.comb += [
            good.eq(reading & ~decode.short & ~decode.unknown),
            after.eq(place + decode.width),
            moved.eq(good & after[5]),
        ]
        with m.If(good):
            m.d.sync += place.eq(after)
            with m.If(decode.run):
                m.d.sync += zeros.eq(length - 1)
        with m.Elif(reading):
            at = Mux(decode.run, code.UNKNOWN_RUN, code.HEADER_CLASSES + decode.rank[1:])
            byte = Mux(decode.run, blamed, classes.word_select(decode.rank[1:], 8))
            m.d.sync += [self.stuck.eq(1), self.fault.short.eq(decode.short)]
            m.d.sync += [self.fault.byte.eq(at), self.fault.value.eq(byte)]

        # 5. Assembly of four weights.
        value = Signal(8)
        count = Signal(2)
        building = Signal(24, reset_less=True)
        out = Signal()
        free = Signal()
        m.d.comb += [
            out.eq(good | ((zeros != 0) & room_for_value)),
            value.eq(Mux((zeros != 0) | decode.run, 0, decode.value) + offset),
            free.eq(~self.quad.valid | self.quad.ready),
            room_for_value.eq((count != 3) | free),
        ]
        with m.If((zeros != 0) & room_for_value):
            m.d.sync += zeros.eq(zeros - 1)
        with m.If(free):
            m.d.sync += self.quad.valid.eq(out & (count == 3))
        with m.If(out):
            m.d.sync += [count.eq(count + 1), building.eq(Cat(building[8:], value))]
            with m.If(count == 3):
                m.d.sync += self.quad.payload.eq(Cat(building, value))

        with m.If(self.clear):
            m.d.sync += [
                *(s.eq(0) for s in (level, put.addr, get.addr, known, self.stuck, words, place, word, zeros)),
                *(s.eq(0) for s in (count, self.quad.valid)),
                room.eq(STORED_ATOMS),
            ]
        up, most = self.atom.valid, STORED_ATOMS
        assertions.bounded(m, platform, level, "SegmentDecoder.level", up=up, down=pop, most=most)
        assertions.bounded(
            m, platform, room, "SegmentDecoder.room", up=pop, down=self.asked, most=most, given=True
        )
        assertions.ports(m, platform, self, withdrawn=self.clear)
        return m

    def _header_fault(self, m: Module, header: Value, take: Signal) -> Signal:
        """Return whether a header requests an unknown code, and store the first such byte in `fault`."""
        wrong = Signal()
        flags, zero, low, high = (
            header.word_select(byte, 8)
            for byte in (code.HEADER_FLAGS, code.HEADER_ZERO, code.HEADER_RUNS, code.HEADER_RUNS + 1)
        )
        length_bad = (flags == code.RUNS) & ((low == 0) | (low > 4))
        for byte, value, bad in (
            (code.HEADER_RUNS + 1, high, (flags == code.RUNS) & (high != 0)),
            (code.HEADER_RUNS, low, length_bad),
            (code.HEADER_ZERO, zero, zero != 0),
            (code.HEADER_FLAGS, flags, (flags != code.RUNS) & (flags != code.PLAIN)),
        ):  # the last condition that holds has precedence
            with m.If(bad):
                m.d.comb += wrong.eq(1)
                with m.If(take):
                    m.d.sync += [
                        self.fault.short.eq(0),
                        self.fault.byte.eq(byte),
                        self.fault.value.eq(value),
                    ]
        return wrong


class CodeReader(wiring.Component):
    """Decode the first code of a bit string.

    Members
    -------
    bits : In(16)     : the string, its first bit in bit 0, followed by zeros.
    have : In(7)      : length of the string in bits.
    runs : In(1)      : class 0 is a run of zeros.
    classes : In(32)  : class of each rank, 4 bits each.
    rank : Out(3)     : rank of the code.
    width : Out(4)    : length of the code in bits.
    value : Out(8)    : value of the code without the offset.
    run : Out(1)      : the code is a run of zeros.
    unknown : Out(1)  : the code's class or its run is unknown.
    short : Out(1)    : the string ends before the code. Has precedence over `unknown`, except that after a
        complete prefix an unknown class has precedence.
    """

    bits: In(16)
    have: In(7)
    runs: In(1)
    classes: In(32)
    rank: Out(3)
    width: Out(4)
    value: Out(8)
    run: Out(1)
    unknown: Out(1)
    short: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        longest = max(len(prefix) for prefix in code.PREFIXES)
        prefix_bits = Signal(3)
        rest = Signal(8)
        with m.Switch(self.bits[:longest]):
            for rank, prefix in enumerate(code.PREFIXES):
                with m.Case(prefix[::-1].rjust(longest, "-")):
                    m.d.comb += [
                        self.rank.eq(rank),
                        prefix_bits.eq(len(prefix)),
                        rest.eq(self.bits[len(prefix) :]),
                    ]
        kind = Signal(4)
        sign = rest[0]
        size = Signal(8)
        bad_class, bad_run = Signal(), Signal()
        m.d.comb += [
            kind.eq(self.classes.word_select(self.rank, 4)),
            self.run.eq(self.runs & (kind == 0)),
            bad_class.eq(kind > code.WIDEST),
            bad_run.eq(self.run & rest[0]),
            self.unknown.eq(bad_class | bad_run),
        ]
        tail = Signal(4)  # bits after the prefix
        m.d.comb += tail.eq(1)
        with m.Switch(kind):
            for number in range(1, code.WIDEST + 1):
                with m.Case(number):
                    m.d.comb += [
                        size.eq(Cat(rest[1:number], Const(1, 1))),
                        tail.eq(number),
                    ]
        whole = Signal()  # all bits of the magnitude are stored, including the highest
        m.d.comb += whole.eq(self.runs & (kind == code.WIDEST))
        magnitude = Signal(8)
        m.d.comb += [
            magnitude.eq(Mux(whole, rest[1:], size)),
            self.width.eq(prefix_bits + tail + whole),
            self.short.eq(Mux(bad_class, self.have < prefix_bits, self.have < self.width)),
        ]
        with m.If(~sign):
            m.d.comb += self.value.eq(magnitude)
        with m.Elif(self.runs):
            m.d.comb += self.value.eq(Mux(magnitude == 0, 0x80, -magnitude))
        with m.Else():
            m.d.comb += self.value.eq(~magnitude)
        return m


class Decompressor(wiring.Component):
    """Fetch the segments of compressed weights in turn and merge their weights into one stream.

    The decoder of a segment holds `STORED_ATOMS` atoms and may request `RUN_ATOMS` more every 16 cycles. All
    decoders together deliver at most one atom of weights per cycle. An unknown setting or code is reported
    once, and no weight follows it. The registers are checked first. A code is reported when the next output
    atom cannot be completed because of it; if several of its four segments fail, the first one is reported.

    Members
    -------
    cfg : In(config_signature("CNA")) : stable from `start` until `active` falls.
    start : In(1)                 : pulse.
    run : Out(stream of AtomRun)  : requests to memory. No output depends on an input stream in the same
        cycle, so that a simulator need not evaluate this component while it is idle.
    fetched : In(stream of AtomBeat) : the requested beats.
    atoms : Out(stream of 128)    : weights in the layout of uncompressed weights in memory.
    active : Out(1)               : 1 until all segments are fetched and `atoms` has delivered all weights.
    diag : Out(DiagnosticPort())  : RESERVED_MODE, SIZE_MISMATCH, WEIGHT_CODE.
    """

    cfg: In(config_signature("CNA"))
    start: In(1)
    run: Out(stream.Signature(AtomRun))
    fetched: In(stream.Signature(AtomBeat))
    atoms: Out(stream.Signature(ATOM_BITS))
    active: Out(1)
    diag: Out(DiagnosticPort())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg = self.cfg
        m.submodules.diagnostics = diagnostics = DiagnosticMerge(2)
        wiring.connect(m, diagnostics.o, wiring.flipped(self.diag))
        lanes = [SegmentDecoder() for _ in range(code.SEGMENTS)]
        amounts = [register.DCOMP_AMOUNT for register in cfg.DCOMP_AMOUNT]

        # 1. Checks of the registers; then the first address of each segment.
        checks, known, atoms = self._checks()
        reports = wiring.flipped(diagnostics.i[0])
        # One cycle late, so that only `active` follows the weight loader while no weights are compressed.
        begun = Signal()
        m.d.sync += begun.eq(self.start)
        with m.If(self.start):
            m.d.sync += self.active.eq(1)
        add_checker(m, "CNA", cfg, begun, reports, checks, spacing=SPACING)
        setting = Signal()
        number = Signal(range(code.SEGMENTS))
        amount = Signal(32)
        address = Signal(ATOM_ADDRESS_BITS, reset_less=True)
        addresses = Array(Signal(ATOM_ADDRESS_BITS, reset_less=True) for _ in lanes)
        left = Array(Signal(AMOUNT_BITS + 1) for _ in lanes)  # atoms that are not yet requested
        missing = Signal(ATOM_ADDRESS_BITS + 1)  # atoms of weights that are not yet assembled
        failed = Signal()
        asking = Signal()  # the first addresses of all segments are known
        m.d.comb += asking.eq(self.active & ~begun & ~setting)
        m.d.comb += amount.eq(Array(amounts)[number])
        with m.If(begun):
            m.d.sync += [setting.eq(known), number.eq(0), failed.eq(~known)]
            m.d.sync += [missing.eq(atoms), address.eq(cfg.DCOMP_ADDR0.DECOMPRESS_ADDR0)]
        with m.If(setting):
            units = Signal(AMOUNT_BITS + 1)
            m.d.comb += units.eq(amount[:AMOUNT_BITS] + 1)
            m.d.sync += [
                addresses[number].eq(address),
                left[number].eq(units),
                address.eq(address + Cat(Const(0, 2), (units + RUN_ATOMS - 1)[2:])),
                number.eq(number + 1),
                setting.eq(number != code.SEGMENTS - 1),
            ]
            with m.If(amount[AMOUNT_BITS:] != 0):
                m.d.sync += [setting.eq(0), failed.eq(1)]
                m.d.sync += [left_of.eq(0) for left_of in left]
                m.d.comb += self._told(diagnostics.i[1], DiagnosticCode.SIZE_MISMATCH, number, amount)

        # 2. Request atoms, in turn for each segment.
        turn = Signal(range(code.SEGMENTS))
        wanted = Signal(range(RUN_ATOMS + 1))
        asks = Signal()
        m.submodules.order = order = SyncFIFO(width=4 + 3, depth=code.SEGMENTS)
        run = self.run
        done = Signal()  # all weights are assembled
        mine = Array(lane.room for lane in lanes)[turn]
        m.d.comb += [
            done.eq(missing == 0),
            wanted.eq(Mux(left[turn] < RUN_ATOMS, left[turn], RUN_ATOMS)),
            asks.eq(asking & ~run.valid & order.w_rdy & (left[turn] != 0) & (mine | done)),
            order.w_en.eq(asks),
            order.w_data.eq(Cat(turn, wanted)),
        ]
        with m.If(asking & ~run.valid):
            m.d.sync += turn.eq(turn + 1)
        with m.If(asks):
            m.d.sync += [
                run.valid.eq(1),
                run.payload.addr.eq(addresses[turn]),
                run.payload.atoms.eq(wanted),
                addresses[turn].eq(addresses[turn] + wanted),
                left[turn].eq(left[turn] - wanted),
            ]
        with m.If(run.valid & run.ready):
            m.d.sync += run.valid.eq(0)

        # 3. Distribute the fetched atoms to the decoders, one per cycle.
        m.submodules.beats = beats = SyncFIFO(width=AXI_BITS + 2, depth=2)
        source = Signal(AtomBeat)
        half = Signal()
        low, single, taken = Signal(), Signal(), Signal()
        owner = order.r_data[:4]
        had = Signal(range(RUN_ATOMS + 1))
        last = Signal()
        atom = Signal(ATOM_BITS)
        m.d.comb += [
            beats.w_data.eq(self.fetched.payload),
            beats.w_en.eq(self.fetched.valid),
            self.fetched.ready.eq(beats.w_rdy),
            source.eq(beats.r_data),
            low.eq(source.low & ~half),
            single.eq(low & source.high),
            taken.eq(beats.r_rdy),
            beats.r_en.eq(~single),
            atom.eq(Mux(low, source.data[:ATOM_BITS], source.data[ATOM_BITS:])),
            last.eq(had + 1 == order.r_data[4:]),
            order.r_en.eq(taken & last),
        ]
        with m.If(taken):
            m.d.sync += [half.eq(single), had.eq(Mux(last, 0, had + 1))]
        waiting = Signal(code.SEGMENTS)  # mask of segments with atoms that have not arrived
        under_way = Array(Signal(range(STORED_ATOMS + 1)) for _ in lanes)

        # 4. The decoders; four of them together form an output atom.
        part = Signal(range(code.SEGMENTS // code.LANES_OF_ATOM))
        whole = Signal(ATOM_BITS)
        ready = Signal()
        m.submodules.made = made = SyncFIFO(width=ATOM_BITS, depth=2)
        m.d.comb += [
            made.w_data.eq(whole),
            made.w_en.eq(ready),
            self.atoms.payload.eq(made.r_data),
            self.atoms.valid.eq(made.r_rdy),
            made.r_en.eq(self.atoms.ready),
        ]
        for n, lane in enumerate(lanes):
            m.submodules[f"lane_{n}"] = lane
            comes, asked = Signal(name=f"comes_{n}"), Signal(range(RUN_ATOMS + 1), name=f"asked_{n}")
            m.d.comb += [
                comes.eq(taken & (owner == n)),
                asked.eq(Mux(asks & (turn == n), wanted, 0)),
                lane.clear.eq(begun),
                lane.atom.valid.eq(comes & ~done),
                lane.atom.payload.eq(atom),
                lane.asked.eq(asked),
                lane.ended.eq((left[n] == 0) & (under_way[n] == 0) & ~setting),
                lane.quad.ready.eq(ready & (part == n // code.LANES_OF_ATOM)),
                waiting[n].eq((left[n] != 0) | (under_way[n] != 0)),
            ]
            m.d.sync += under_way[n].eq(under_way[n] + asked - comes)
        groups = [lanes[n : n + code.LANES_OF_ATOM] for n in range(0, code.SEGMENTS, code.LANES_OF_ATOM)]
        present, over = Signal(code.LANES_OF_ATOM), Signal(code.LANES_OF_ATOM)
        with m.Switch(part):
            for n, group in enumerate(groups):
                with m.Case(n):
                    m.d.comb += [
                        present.eq(Cat(lane.quad.valid for lane in group)),
                        over.eq(Cat(lane.stuck for lane in group)),
                        whole.eq(Cat(lane.quad.payload for lane in group)),
                    ]
        m.d.comb += ready.eq(~done & ~failed & ~setting & present.all() & made.w_rdy)
        with m.If(ready):
            m.d.sync += [part.eq(part + 1), missing.eq(missing - 1)]
        with m.If(begun):
            m.d.sync += part.eq(0)

        # 5. Report of a segment that cannot be decoded, when the next output atom needs it.
        blocked = Signal()
        m.d.comb += blocked.eq(asking & ~done & ~failed & (present | over).all() & ~present.all())
        with m.If(blocked):
            m.d.sync += failed.eq(1)
            with m.Switch(part):
                for n, group in enumerate(groups):
                    with m.Case(n):
                        for k, lane in reversed(list(enumerate(group))):
                            at = code.LANES_OF_ATOM * n + k
                            with m.If(~lane.quad.valid):
                                m.d.comb += self._told_fault(diagnostics.i[1], at, lane.fault, amounts[at])
        with m.If(asking & done & ~failed & ~waiting.any() & ~made.r_rdy):
            m.d.sync += self.active.eq(0)
        assertions.has_room(m, platform, order, "Decompressor.order")
        assertions.has_room(m, platform, made, "Decompressor.made")
        assertions.has_value(m, platform, order, "Decompressor.order")
        assertions.ports(m, platform, self)
        return m

    def _checks(self) -> tuple[list[Check], Value, Value]:
        """Return the checks of the registers, whether all pass, and the number of atoms of weights."""
        cfg = self.cfg
        first = cfg.CONV_CON1
        atoms = (cfg.WEIGHT_SIZE0.WEIGHT_BYTES + ATOM - 1) >> 4
        control = cfg.DCOMP_CTRL.DECOMP_CONTROL != code.CONTROL  # reported with the other checks of weights
        other = (first.CONV_MODE == DEPTHWISE) | (first.IN_PRECISION != 0)
        checks = [
            Check("DCOMP_REGNUM", cfg.DCOMP_REGNUM.as_value() != code.REGNUM),
            Check("CONV_CON1", other),
            Check("WEIGHT_SIZE0", atoms[:2] != 0, DiagnosticCode.SIZE_MISMATCH),
        ]
        refused = Cat(*(check.when for check in checks), control).any()
        return checks, ~refused, atoms

    def _told(self, port: Any, kind: DiagnosticCode, number: Signal, value: ValueLike) -> list:
        """Return the assignments that report a diagnostic at a segment's DCOMP_AMOUNT register."""
        first = registers()["CNA"]["DCOMP_AMOUNT0"].offset
        return [
            port.valid.eq(1),
            port.payload.code.eq(kind),
            port.payload.register.eq(first + 4 * number),
            port.payload.value.eq(value),
        ]

    def _told_fault(self, port: Any, number: int, fault: Any, amount: ValueLike) -> list:
        """Return the assignments that report the reason for which a segment cannot be decoded."""
        named = Cat(fault.value, fault.byte)
        kind = Mux(fault.short, DiagnosticCode.SIZE_MISMATCH, DiagnosticCode.WEIGHT_CODE)
        return self._told(port, kind, number, Mux(fault.short, amount, named))
