"""CBUF: the convolution buffer between the loaders and the sequence controller [HW 4.4]."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import CbufFill, CbufReads
from rkcosim.spec.config import NpuConfig

ENTRY_BITS = 512
ATOM_BITS = 128


class FillTurn(wiring.Component):
    """Arbitration of fills: the side that was not served last goes first.

    Members
    -------
    valid, take_weight : In(1) : a fill is accepted in this cycle, and it is a weight fill.
    weight : Out(1)            : the weight side goes first.
    """

    valid: In(1)
    take_weight: In(1)
    weight: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.valid):
            m.d.sync += self.weight.eq(~self.take_weight)
        return m


class Cbuf(wiring.Component):
    """All banks of CBUF: two loaders write, the sequence controller reads features and weights.

    CBUF consists of two memories, for the even and the odd 64-byte entries, with a write enable per 16-byte
    atom. A bank is a range of entries and holds either features or weights during a task. The feature port
    and the weight port therefore never access the same bank, and each memory may have a read port
    for each. The two feature entries of a cycle are adjacent slabs of one pixel and may be in
    the same memory; hence each memory has two read ports for features.

    Members
    -------
    feature_fill, weight_fill : In(stream of CbufFill)
        one fill is accepted per cycle, alternately if both sides wait; it can be read in the next cycle.
    reads : In(CbufReads())
        reads; the data come in the next cycle, `entry1` of the weights counts where `column` is not 0.
    """

    feature_fill: In(stream.Signature(CbufFill))
    weight_fill: In(stream.Signature(CbufFill))
    reads: In(CbufReads())

    def __init__(self, cfg: NpuConfig) -> None:
        self._depth = cfg.cbuf_entries // 2
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()

        # 1. One fill per cycle; after a fill of one side the other side goes first.
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

        # 2. The two memories.  If both atoms of a fill go to one memory, they share the entry.
        atom0, atom1 = fill.data[:ATOM_BITS], fill.data[ATOM_BITS:]
        features, weights = (self.reads.feature0, self.reads.feature1), self.reads.weights
        halves: list[list[Value]] = []  # data of the two feature reads and of the weight read, by memory
        w_second = Signal()
        m.d.comb += w_second.eq(weights.en & (weights.column != 0))
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
            first = weights.entry0[0] == half
            wanted = [(port.en & (port.entry[0] == half), port.entry) for port in features]
            wanted.append((Mux(first, weights.en, w_second), Mux(first, weights.entry0, weights.entry1)))
            shown = []
            for enable, entry in wanted:
                read = bank.read_port()
                m.d.comb += [read.en.eq(enable), read.addr.eq(entry[1:])]
                shown.append(read.data)
            halves.append(shown)

        # 3. Features: select the memory of each entry.
        for n, port in enumerate(features):
            odd = Signal(reset_less=True, name=f"f_odd{n}")
            with m.If(port.en):
                m.d.sync += odd.eq(port.entry[0])
            m.d.comb += port.data.eq(Mux(odd, halves[1][n], halves[0][n]))

        # 4. Weights: select the 64 bytes from the column on.
        w_odd = Signal(reset_less=True)
        w_column = Signal(2, reset_less=True)
        with m.If(weights.en):
            m.d.sync += [w_odd.eq(weights.entry0[0]), w_column.eq(weights.column)]
        first, second = Signal(ENTRY_BITS), Signal(ENTRY_BITS)
        m.d.comb += [
            first.eq(Mux(w_odd, halves[1][-1], halves[0][-1])),
            second.eq(Mux(w_odd, halves[0][-1], halves[1][-1])),
        ]
        with m.Switch(w_column):
            for column in range(4):
                cut = ATOM_BITS * column
                with m.Case(column):
                    m.d.comb += weights.data.eq(Cat(first[cut:], second[:cut]))
        assertions.ports(m, platform, self)
        return m
