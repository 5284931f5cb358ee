"""Fetch task lists over AXI and cut them into register words ([HW 1.4], [HW 1.6])."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import AXI_BITS, ReadPort
from rkcosim.spec.config import AXI_BYTES

WORD_BITS = 64
FETCH_BYTES = 16
"""Bytes of one PC fetch unit: two words [HW 1.6]."""
MAX_BURST = 16
FIFO_BEATS = 64
"""Capacity of the FIFO in beats: 256 words, two of the longest lists that programs use (assumed)."""

WORDS = data.StructLayout({"word": WORD_BITS, "last": 1})
"""A word of a list, and whether it is the last one of its list."""

_FETCHES = data.StructLayout({"half": 1, "count_m1": 16})


class ListFetcher(wiring.Component):
    """Read lists of words ahead of their consumer, as far as the FIFO has room.

    A list of `amount + 1` fetches of 16 bytes is read in bursts of at most 16 beats. If the list starts at
    an odd multiple of 16, its first half beat is skipped. Space in the FIFO is reserved before each request.

    Members
    -------
    start : In(1)                  : start the list at `base`, `amount`; allowed only while `ready`.
    base : In(28)                  : address of the list in units of 16 bytes.
    amount : In(16)                : number of fetches minus one.
    ready : Out(1)                 : a list may be started.
    fetching : Out(1)              : words of a list are still to be read from memory.
    read : Out(ReadPort())
    words : Out(stream)            : `word` (64 bits), and `last` (1 bit) with the last word of a list.
    """

    start: In(1)
    base: In(28)
    amount: In(16)
    ready: Out(1)
    fetching: Out(1)
    read: Out(ReadPort())
    words: Out(stream.Signature(WORDS))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.beats = beats = SyncFIFOBuffered(width=AXI_BITS, depth=FIFO_BEATS)
        m.submodules.lists = lists = SyncFIFO(width=_FETCHES.size, depth=2)

        # Requests.  `room` counts beats of the FIFO that are not reserved yet.
        left = Signal(16)
        place = Signal(27)
        room = Signal(range(FIFO_BEATS + 1), init=FIFO_BEATS)
        coming = Signal(range(FIFO_BEATS + 1))
        chunk = Signal(range(MAX_BURST + 1))
        asked = Signal()
        popped = Signal()
        request = self.read.req
        m.d.comb += [
            self.ready.eq((left == 0) & lists.w_rdy),
            self.fetching.eq((left != 0) | (coming != 0)),
            chunk.eq(Mux(left >= MAX_BURST, MAX_BURST, left)),
            request.valid.eq((left != 0) & (room >= chunk)),
            request.payload.addr.eq(place << (AXI_BYTES.bit_length() - 1)),
            request.payload.beats_m1.eq(chunk - 1),
            asked.eq(request.valid & request.ready),
            lists.w_en.eq(self.start & self.ready),
            beats.w_en.eq(self.read.rsp.valid),
            beats.w_data.eq(self.read.rsp.payload.data),
        ]
        entry = data.View(_FETCHES, lists.w_data)
        m.d.comb += [entry.half.eq(self.base[0]), entry.count_m1.eq(self.amount)]
        with m.If(asked):
            m.d.sync += [left.eq(left - chunk), place.eq(place + chunk)]
        with m.If(self.start & self.ready):
            # amount + 1 half beats and possibly a skipped one, rounded up to beats
            m.d.sync += [place.eq(self.base[1:]), left.eq((self.amount + self.base[0] + 2) >> 1)]
        m.d.sync += [
            room.eq(room - Mux(asked, chunk, 0) + popped),
            coming.eq(coming + Mux(asked, chunk, 0) - self.read.rsp.valid),
        ]

        # Cut beats into words.
        now = data.View(_FETCHES, lists.r_data)
        loaded = Signal()
        position = Signal(2)
        fetches_left = Signal(16)
        out = self.words
        taken = Signal()
        m.d.comb += [
            out.valid.eq(loaded & beats.r_rdy),
            out.payload.word.eq(beats.r_data.word_select(position, WORD_BITS)),
            out.payload.last.eq((fetches_left == 0) & position[0]),
            taken.eq(out.valid & out.ready),
            popped.eq(taken & (out.payload.last | position.all())),
            beats.r_en.eq(popped),
        ]
        with m.If(taken):
            m.d.sync += position.eq(position + 1)
            with m.If(position[0]):
                m.d.sync += fetches_left.eq(fetches_left - 1)
            with m.If(out.payload.last):
                m.d.sync += loaded.eq(0)
        with m.If(~loaded & lists.r_rdy):
            m.d.comb += lists.r_en.eq(1)
            m.d.sync += [
                loaded.eq(1),
                position.eq(Mux(now.half, 2, 0)),
                fetches_left.eq(now.count_m1),
            ]
        assertions.has_room(m, platform, beats, "ListFetcher.beats")
        assertions.has_value(m, platform, beats, "ListFetcher.beats")
        reserved = Mux(asked, chunk, 0)
        assertions.bounded(m, platform, room, "ListFetcher.room", up=popped, down=reserved, most=FIFO_BEATS)
        response = self.read.rsp.valid
        assertions.bounded(m, platform, coming, "ListFetcher.coming", up=reserved, down=response, given=True)
        assertions.ports(m, platform, self)
        return m
