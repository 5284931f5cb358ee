"""CBUF: the convolution buffer between the loaders and the sequence controller (H 3.8, DESIGN 4.2)."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rtl.config import NpuConfig
from rtl.layouts import CbufFill

ENTRY_BITS = 512
ATOM_BITS = 128


class FillTurn(wiring.Component):
    """Which side's fill goes first: the other one than that of the last fill.

    Members
    -------
    valid, take_weight : In(1) : a fill is taken in this cycle, and it is a weight fill.
    weight : Out(1)            : the weight side goes first.
    """

    def __init__(self) -> None:
        super().__init__({"valid": In(1), "take_weight": In(1), "weight": Out(1)})

    def elaborate(self, platform) -> Module:
        m = Module()
        with m.If(self.valid):
            m.d.sync += self.weight.eq(~self.take_weight)
        return m


class Cbuf(wiring.Component):
    """All banks of CBUF: two loaders write, the sequence controller reads features and weights.

    Built as two memories, the even and the odd 64-byte entries, with an enable per 16-byte atom.
    Banks are ranges of entries: a bank holds features or weights in one task, never both, so the
    feature port and the weight port never meet in one bank and each memory may have a read port
    for each.  The two feature entries of a cycle are adjacent slabs of one pixel and may fall into
    the same half; hence two feature read ports a memory.

    Members
    -------
    feature_fill, weight_fill : In(stream of CbufFill)
        one fill is taken a cycle, in turn when both wait; it can be read in the next cycle.
    f_en0, f_entry0, f_en1, f_entry1 : In(1), In(13)
        feature read; the data come in the next cycle.
    f_data : Out(1024)
        entry 0 in the low half, entry 1 in the high half; each half holds while not enabled.
    w_en, w_entry0, w_entry1, w_column : In(1), In(13), In(13), In(2)
        weight read of 64 bytes from atom `w_column` of entry 0 on, running on into entry 1, which
        is of the other parity than entry 0 and is read only when `w_column` is not 0.
    w_data : Out(512)
        the bytes, in the next cycle.
    """

    def __init__(self, cfg: NpuConfig) -> None:
        self._depth = cfg.cbuf_entries // 2
        super().__init__(
            {
                "feature_fill": In(stream.Signature(CbufFill)),
                "weight_fill": In(stream.Signature(CbufFill)),
                "f_en0": In(1),
                "f_entry0": In(13),
                "f_en1": In(1),
                "f_entry1": In(13),
                "f_data": Out(2 * ENTRY_BITS),
                "w_en": In(1),
                "w_entry0": In(13),
                "w_entry1": In(13),
                "w_column": In(2),
                "w_data": Out(ENTRY_BITS),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()

        # 1. One fill a cycle; after a fill of one side the other goes first.
        m.submodules.turn = turn = FillTurn()
        weight_turn = turn.weight
        take_weight = Signal()
        fill = Signal(CbufFill)
        fill_valid = Signal()
        m.d.comb += [
            take_weight.eq(self.weight_fill.valid & (weight_turn | ~self.feature_fill.valid)),
            self.weight_fill.ready.eq(weight_turn | ~self.feature_fill.valid),
            self.feature_fill.ready.eq(~take_weight),
            fill.eq(Mux(take_weight, self.weight_fill.payload, self.feature_fill.payload)),
            fill_valid.eq(self.weight_fill.valid | self.feature_fill.valid),
        ]
        m.d.comb += [turn.valid.eq(fill_valid), turn.take_weight.eq(take_weight)]

        # 2. The two halves. Both atoms of a fill in one half share the entry.
        atom0, atom1 = fill.data[:ATOM_BITS], fill.data[ATOM_BITS:]
        f0_data, f1_data, w_halves = [], [], []
        w_second = Signal()
        m.d.comb += w_second.eq(self.w_en & (self.w_column != 0))
        for half, name in enumerate(("even", "odd")):
            bank = Memory(shape=ENTRY_BITS, depth=self._depth, init=[])
            m.submodules[name] = bank
            write = bank.write_port(granularity=ATOM_BITS)
            hit0 = Signal(name=f"{name}_hit0")
            hit1 = Signal(name=f"{name}_hit1")
            m.d.comb += [
                hit0.eq(fill_valid & (fill.entry[0] == half)),
                hit1.eq(fill_valid & fill.two & (fill.entry2[0] == half)),
                write.addr.eq(Mux(hit0, fill.entry[1:], fill.entry2[1:])),
            ]
            for column in range(ENTRY_BITS // ATOM_BITS):
                second = hit1 & (fill.column2 == column)
                m.d.comb += [
                    write.en[column].eq(second | (hit0 & (fill.column == column))),
                    write.data[ATOM_BITS * column : ATOM_BITS * (column + 1)].eq(Mux(second, atom1, atom0)),
                ]
            for enable, entry, into in (
                (self.f_en0, self.f_entry0, f0_data),
                (self.f_en1, self.f_entry1, f1_data),
            ):
                read = bank.read_port()
                m.d.comb += [read.en.eq(enable & (entry[0] == half)), read.addr.eq(entry[1:])]
                into.append(read.data)
            read = bank.read_port()
            first = self.w_entry0[0] == half
            m.d.comb += [
                read.en.eq(Mux(first, self.w_en, w_second)),
                read.addr.eq(Mux(first, self.w_entry0[1:], self.w_entry1[1:])),
            ]
            w_halves.append(read.data)

        # 3. Features: which half each entry came from.
        f_odd0, f_odd1 = Signal(reset_less=True), Signal(reset_less=True)
        with m.If(self.f_en0):
            m.d.sync += f_odd0.eq(self.f_entry0[0])
        with m.If(self.f_en1):
            m.d.sync += f_odd1.eq(self.f_entry1[0])
        m.d.comb += [
            self.f_data[:ENTRY_BITS].eq(Mux(f_odd0, f0_data[1], f0_data[0])),
            self.f_data[ENTRY_BITS:].eq(Mux(f_odd1, f1_data[1], f1_data[0])),
        ]

        # 4. Weights: the 64 bytes from the column on.
        w_odd = Signal(reset_less=True)
        w_column = Signal(2, reset_less=True)
        with m.If(self.w_en):
            m.d.sync += [w_odd.eq(self.w_entry0[0]), w_column.eq(self.w_column)]
        first, second = Signal(ENTRY_BITS), Signal(ENTRY_BITS)
        m.d.comb += [
            first.eq(Mux(w_odd, w_halves[1], w_halves[0])),
            second.eq(Mux(w_odd, w_halves[0], w_halves[1])),
        ]
        with m.Switch(w_column):
            for column in range(4):
                cut = ATOM_BITS * column
                with m.Case(column):
                    m.d.comb += self.w_data.eq(Cat(first[cut:], second[:cut]))
        return m
