"""Fetch of task lists over AXI and their cutting into register words (HARDWARE 1.4, 1.6)."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from rtl.config import AXI_BYTES
from rtl.layouts import AXI_BITS, ReadPort

WORD_BITS = 64
FETCH_BYTES = 16
"""The PC counts in units of two words (HARDWARE 1.6)."""
MAX_BURST = 16
FIFO_BEATS = 64
"""Room for 256 words ahead of the decoder, two of the longest lists programs use (assumed)."""

_FETCHES = data.StructLayout({"half": 1, "count_m1": 16})


class ListFetcher(wiring.Component):
    """Read lists of words ahead of their consumer, as far as the FIFO has room.

    A list of `amount + 1` fetches of 16 bytes is read in bursts of at most 16 beats; its first half
    beat is skipped when it starts on an odd multiple of 16.  Room is reserved before asking.

    Members
    -------
    start : In(1)                  : take `base` and `amount`; only while `ready`.
    base : In(28)                  : address of the list in units of 16 bytes.
    amount : In(16)                : fetches minus one.
    ready : Out(1)                 : a list may be started.
    fetching : Out(1)              : words of a list are still to come from memory.
    read : Out(ReadPort())
    words : Out(stream)            : `word` (64), `last` of its list (1).
    """

    start: In(1)
    base: In(28)
    amount: In(16)
    ready: Out(1)
    fetching: Out(1)
    read: Out(ReadPort())
    words: Out(stream.Signature(data.StructLayout({"word": WORD_BITS, "last": 1})))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.beats = beats = SyncFIFOBuffered(width=AXI_BITS, depth=FIFO_BEATS)
        m.submodules.lists = lists = SyncFIFO(width=_FETCHES.size, depth=2)

        # Asking.  `room` counts beats of the FIFO that nobody has asked for yet.
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
            # amount + 1 halves and a skipped one, rounded up to beats
            m.d.sync += [place.eq(self.base[1:]), left.eq((self.amount + self.base[0] + 2) >> 1)]
        m.d.sync += [
            room.eq(room - Mux(asked, chunk, 0) + popped),
            coming.eq(coming + Mux(asked, chunk, 0) - self.read.rsp.valid),
        ]

        # Cutting.
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
        return m
